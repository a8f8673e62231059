"""The Gaussian form: an objective quadratic in a location or in regression weights; conjugate priors Normal and MultivariateNormal."""

from typing import NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular


def solve(precision, right):
    """precision⁻¹ right for positive definite matrices (..., d, d); a trace-relative jitter of a few ulp keeps a flat direction still."""
    size = precision.shape[-1]
    scale = jnp.trace(precision, axis1=-2, axis2=-1)[..., None, None] / size
    jitter = 8 * jnp.finfo(precision.dtype).eps * jnp.where(scale > 0, scale, 1.0)
    lower = jnp.linalg.cholesky(precision + jitter * jnp.eye(size, dtype=precision.dtype))
    half = solve_triangular(lower, right[..., None], lower=True)
    return solve_triangular(jnp.swapaxes(lower, -1, -2), half, lower=False)[..., 0]


class Gaussian:
    """Q(c) = −½ (c − m)ᵀ Λ (c − m) + constant, for scalars (event 0) or vectors (event 1) c.

    Read off at any point: Λ = −∇²Q, m = c + Λ⁻¹ ∇Q (one Newton step is exact).
    """

    name = "gaussian"

    def reference(self, c, event):
        return c

    def directions(self, c, event):
        if event == 0:
            return jnp.ones_like(c)[None]
        d = c.shape[-1]
        basis = jnp.eye(d, dtype=c.dtype).reshape(d, *(1,) * (c.ndim - 1), d)
        return jnp.broadcast_to(basis, (d, *c.shape))

    def read(self, c, gradient, curvature, event):
        if event == 0:
            precision = -curvature[0]
            safe = jnp.where(precision > 0, precision, 1.0)
            return {"loc": c + jnp.where(precision > 0, gradient / safe, 0.0), "precision": precision}
        precision = -jnp.moveaxis(curvature, 0, -2)
        precision = 0.5 * (precision + jnp.swapaxes(precision, -1, -2))
        return {"loc": c + solve(precision, gradient), "precision": precision}

    def mode(self, natural, fallback, event):
        return natural["loc"]

    def log_volume(self, natural, event):
        """½ log|2π Λ⁻¹|, the log integral of exp(Q − max Q), per vector or scalar."""
        precision = natural["precision"]
        if event == 0:
            return 0.5 * jnp.log(2 * jnp.pi / precision)
        size = precision.shape[-1]
        return 0.5 * (size * jnp.log(2 * jnp.pi) - jnp.linalg.slogdet(precision)[1])


class GaussianPrior(NamedTuple):
    """Normal and MultivariateNormal: conjugate to locations."""

    kind: str
    form: str = "gaussian"
    steps: tuple = ()

    def posterior(self, natural, event):
        if event == 0:
            return dist.Normal(natural["loc"], natural["precision"] ** -0.5)
        return dist.MultivariateNormal(natural["loc"], precision_matrix=natural["precision"])


PRIORS = (GaussianPrior("Normal"), GaussianPrior("MultivariateNormal"))
