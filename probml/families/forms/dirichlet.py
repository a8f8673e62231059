"""The Dirichlet form: objectives in a probability table; conjugate prior Dirichlet."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import digamma, gammaln, xlogy

from probml.families import domains
from probml.families.form import Form, Natural, Prior, Steps, ratio
from probml.families.likelihood import Entry
from probml.families.log_linear import log_dirichlet


class Dirichlet(Form):
    """Q(c) = Σ N_i log c_i + constant on the simplex: N_i = c_i ∂Q/∂c_i, read at the uniform
    point."""

    name = "dirichlet"
    domain = domains.SIMPLEX
    keys = ("N",)
    event = 1
    steady = True

    def allows(self, steps: Steps):
        return len(steps) <= 1

    def own_axes(self, states: int | None, event: tuple[int, ...]):
        return (states or event[-1],)

    def points(self, c: jax.Array, event: int):
        return jnp.full_like(c, 1.0 / c.shape[-1])[None]

    def read(self, points: jax.Array, gradients: jax.Array, event: int):
        return {"N": points[0] * gradients[0]}

    def value(self, natural: Natural, c: jax.Array, event: int):
        """Q(c) up to a constant."""
        return jnp.sum(xlogy(natural["N"], c))

    def mode(self, natural: Natural, fallback: jax.Array, event: int):
        count = jnp.maximum(natural["N"], 0.0)
        return ratio(count, count.sum(-1, keepdims=True), fallback)

    def copied_posterior(self, natural: Natural, prior: Prior,
                         move: Callable[[jax.Array], jax.Array]):
        """Arguments of a likelihood's predictive for c ~ Dirichlet(concentration)."""
        return {"concentration": move(natural["N"] + 1.0)}

    def confined(self, natural: Natural, concentration: jax.Array):
        return {"N": jnp.where(concentration > 0, natural["N"], -1.0)}

    def expectation(self, natural: Natural, prior: Prior):
        """E[log c] of Dirichlet(N + 1); −∞ of a state that is impossible, N + 1 = 0."""
        a = natural["N"] + 1.0
        possible = a > 0
        log = jnp.where(possible, digamma(jnp.where(possible, a, 1.0)), -jnp.inf)
        return {"log": log - digamma(a.sum(-1, keepdims=True))}

    def nodes(self, natural: Natural, prior: Prior):
        """exp E log c alone: it sums to less than 1, and only logarithms are taken of it."""
        log = self.expectation(natural, prior)["log"]
        return jnp.maximum(jnp.exp(log), jnp.finfo(log.dtype).tiny)[None]

    def middle(self, natural: Natural, prior: Prior):
        a = natural["N"] + 1.0
        return a / a.sum(-1, keepdims=True)


DIRICHLET = Dirichlet()


class DirichletPrior(Prior):
    """Dirichlet(a); where some a is below 1 the density has no maximum and is maximised in the
    softmax coordinate. A state of a = 0 is impossible, and the others are as if it were not there,
    up to a factor, 1 / its probability, that densities of one table share."""

    form = DIRICHLET
    event = 1
    concentrations = ("concentration",)
    coordinate = "softmax coordinate, (n + a)/Σ(n + a) for counts n and concentrations a"

    def posterior(self, natural: Natural, event: int):
        return dist.Dirichlet(natural["N"] + 1.0)

    def log_density(self, distribution: dist.Distribution, value: jax.Array, mode: bool):
        """The log density; with `mode`, in the coordinate in which it is maximised."""
        a = distribution.concentration
        shift = jnp.where(jnp.min(a, -1, keepdims=True) < 1, 0.0, 1.0) if mode else 1.0
        possible = a > 0
        norm = jnp.where(possible, gammaln(jnp.where(possible, a, 1.0)), 0.0).sum(-1)
        return xlogy(a - shift, value).sum(-1) + gammaln(a.sum(-1)) - norm

    def widened(self, distribution: dist.Distribution, own: tuple[int, ...],
                shape: tuple[int, ...]):
        a = jnp.broadcast_to(distribution.concentration, own)
        lattice = [(0, n - m) for n, m in zip(shape[:-1], own[:-1], strict=True)]
        return jnp.pad(jnp.pad(a, [*lattice, (0, 0)], mode="edge"),
                       [*((0, 0) for _ in lattice), (0, shape[-1] - own[-1])])

    def of_concentration(self, concentration: jax.Array):
        return dist.Dirichlet(concentration)


def of_shares(distribution: dist.Distribution, value: jax.Array):
    """log p of a Dirichlet, to the last digits at large concentrations."""
    inside = jnp.where(value > 0, value, 1.0)
    log = log_dirichlet(distribution.concentration, inside) - jnp.log(inside).sum(-1)
    return jnp.where((value > 0).all(-1), log, DirichletPrior().log_density(distribution, value,
                                                                           False))


ENTRIES = (Entry((dist.Dirichlet,), prior=DirichletPrior(), interior=True, log_prob=of_shares),)
