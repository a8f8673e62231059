"""The Dirichlet form: objectives in a probability table; conjugate prior Dirichlet."""

from typing import NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import gammaln, xlogy


class Dirichlet:
    """Q(c) = Σ N_i log c_i + constant on the simplex: N_i = c_i ∂Q/∂c_i, read at the uniform
    point."""

    name = "dirichlet"
    domain = "simplex"
    steady = True  # what is read does not depend on where: once is enough

    def points(self, c, event):
        return jnp.full_like(c, 1.0 / c.shape[-1])[None]

    def read(self, points, gradients, event):
        return {"N": points[0] * gradients[0]}

    def value(self, natural, c, event):
        """Q(c) up to a constant."""
        return jnp.sum(xlogy(natural["N"], c))

    def mode(self, natural, fallback, event):
        count = jnp.maximum(natural["N"], 0.0)
        total = count.sum(-1, keepdims=True)
        return jnp.where(total <= 0, fallback, count / jnp.where(total <= 0, 1.0, total))

    def moved(self, natural, role, move):
        """The posterior of c where it is copied to: c ~ Dirichlet(concentration)."""
        return {"concentration": move(natural["N"] + 1.0)}


class DirichletPrior(NamedTuple):
    """Dirichlet(a); where some a is below 1 the density has no maximum and is maximised in the
    softmax coordinate."""

    kind: str = "Dirichlet"
    form: str = "dirichlet"
    steps: tuple = ()

    def posterior(self, natural, event):
        return dist.Dirichlet(natural["N"] + 1.0)

    def log_density(self, distribution, value, mode):
        """The log density; with `mode`, in the coordinate in which it is maximised."""
        a = distribution.concentration
        shift = jnp.where(jnp.min(a, -1, keepdims=True) < 1, 0.0, 1.0) if mode else 1.0
        return xlogy(a - shift, value).sum(-1) + gammaln(a.sum(-1)) - gammaln(a).sum(-1)


PRIOR = DirichletPrior()
