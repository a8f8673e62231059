"""The Gaussian form: an objective quadratic in a location or in regression weights; conjugate
priors Normal and MultivariateNormal."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular

from probml.families import domains
from probml.families.form import Form, Natural, Prior
from probml.numerics.lapack import diagonal

STEP = 2.0**16  # of a probe: a quadratic's slope must change by more than its rounding, in any unit


def solve(precision: jax.Array, right: jax.Array):
    """precision⁻¹ right for positive definite matrices (..., d, d), equilibrated first, so that
    units do not matter.

    A jitter of a few ulp on the unit diagonal keeps a flat direction (collinear columns) still, a
    larger one where rounding has made it an uphill one.
    """
    pivots = diagonal(precision)
    scale = jnp.where(pivots > 0, pivots, 1.0) ** -0.5
    unit = precision * scale[..., :, None] * scale[..., None, :]
    jitter = 8 * jnp.finfo(precision.dtype).eps * jnp.eye(precision.shape[-1],
                                                          dtype=precision.dtype)
    lower = jnp.linalg.cholesky(unit + jitter)
    lower = jnp.where(jnp.isnan(lower).any((-2, -1), keepdims=True),
                      jnp.linalg.cholesky(unit + 128 * jitter), lower)
    half = solve_triangular(lower, (scale * right)[..., None], lower=True)
    return scale * solve_triangular(jnp.swapaxes(lower, -1, -2), half, lower=False)[..., 0]


class Gaussian(Form):
    """Q(c) = −½ (c − m)ᵀ Λ (c − m) + constant, for scalars (event 0) or vectors (event 1) c.

    Read off from gradients: Λ from their differences, m = c + Λ⁻¹ ∇Q (one Newton step is exact).
    """

    name = "gaussian"
    domain = domains.REAL
    keys = ("loc", "precision")
    joint = scaled = True

    def points(self, c: jax.Array, event: int):
        """c itself, and c moved along every axis that matters, by long steps."""
        step = STEP * jnp.maximum(1.0, jnp.abs(c))
        if event == 0:
            return jnp.stack([c, c + step])
        d = c.shape[-1]
        basis = jnp.eye(d, dtype=c.dtype).reshape(d, *(1,) * (c.ndim - 1), d)
        return jnp.concatenate([c[None], c[None] + basis * step])

    def read(self, points: jax.Array, gradients: jax.Array, event: int):
        c, gradient = points[0], gradients[0]
        if event == 0:
            precision = -(gradients[1] - gradient) / (points[1] - c)
            safe = jnp.where(precision > 0, precision, 1.0)
            return {"loc": c + jnp.where(precision > 0, gradient / safe, 0.0),
                    "precision": precision}
        size = STEP * jnp.maximum(1.0, jnp.abs(c))
        precision = -jnp.moveaxis(gradients[1:] - gradient, 0, -2) / size[..., :, None]
        precision = 0.5 * (precision + jnp.swapaxes(precision, -1, -2))
        return {"loc": c + solve(precision, gradient), "precision": precision}

    def value(self, natural: Natural, c: jax.Array, event: int):
        """Q(c) up to a constant."""
        diff = c - natural["loc"]
        if event == 0:
            return -0.5 * jnp.sum(natural["precision"] * diff**2)
        return -0.5 * jnp.sum(diff * (natural["precision"] @ diff[..., None])[..., 0])

    def mode(self, natural: Natural, fallback: jax.Array, event: int):
        return natural["loc"]

    def expectation(self, natural: Natural, prior: Prior):
        """E[c] and E[c²], or of vectors E[c cᵀ], of the normal with these natural parameters."""
        loc, precision = natural["loc"], natural["precision"]
        if prior.event == 0:
            return {"value": loc, "square": loc**2 + 1 / precision}
        inverse = jnp.linalg.inv(precision)
        return {"value": loc, "square": loc[..., :, None] * loc[..., None, :] + inverse}

    def middle(self, natural: Natural, prior: Prior):
        return natural["loc"]


GAUSSIAN = Gaussian()


class GaussianPrior(Prior):
    """Normal (event 0) and MultivariateNormal (event 1): conjugate to locations."""

    form = GAUSSIAN

    def __init__(self, event: int):
        self.event = event

    def posterior(self, natural: Natural, event: int):
        if event == 0:
            return dist.Normal(natural["loc"], natural["precision"] ** -0.5)
        return dist.MultivariateNormal(natural["loc"], precision_matrix=natural["precision"])
