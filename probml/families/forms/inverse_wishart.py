"""The inverse-Wishart form: objectives in a covariance matrix; conjugate priors InverseWishart
(covariance) and Wishart (precision)."""

from typing import NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist


def _symmetric(matrix):
    return 0.5 * (matrix + jnp.swapaxes(matrix, -1, -2))


class InverseWishart:
    """Q(c) = −½ν log|c| − ½ tr(Ψ c⁻¹) + constant in a covariance matrix c, shape (..., d, d).

    f(c) = ⟨∇Q, c⟩ = −½νd + ½tr(Ψc⁻¹) at c and 2c gives tr(Ψc⁻¹) and ν; then Ψ = 2 c ∇Q c + ν c.
    """

    name = "inverse_wishart"
    domain = "positive_definite"

    def points(self, c, event):
        return jnp.stack([c, 2 * c])

    def read(self, points, gradients, event):
        c, gradient = points[0], _symmetric(gradients[0])
        here, there = jnp.sum(points * gradients, (-2, -1))
        nu = (4 * (here - there) - 2 * here) / c.shape[-1]
        return {"nu": nu, "Psi": _symmetric(2 * c @ gradient @ c + nu[..., None, None] * c)}

    def value(self, natural, c, event):
        """Q(c) up to a constant."""
        return -0.5 * jnp.sum(natural["nu"] * jnp.linalg.slogdet(c)[1]
                              + jnp.sum(natural["Psi"] * jnp.linalg.inv(c), (-2, -1)))

    def mode(self, natural, fallback, event):
        nu = natural["nu"][..., None, None]
        empty = nu <= 0  # nothing was seen; a broken reading is NaN and must show
        return jnp.where(empty, fallback, natural["Psi"] / jnp.where(empty, 1.0, nu))


class InverseWishartPrior(NamedTuple):
    """InverseWishart(ν, Ψ) on the covariance: log density −½(ν+d+1) log|c| − ½tr(Ψc⁻¹)."""

    kind: str = "InverseWishart"
    form: str = "inverse_wishart"
    steps: tuple = ()

    def shape(self, natural):
        """The concentration of the InverseWishart that c has."""
        return natural["nu"] - natural["Psi"].shape[-1] - 1.0

    def posterior(self, natural, event):
        return dist.InverseWishart(concentration=self.shape(natural), scale_matrix=natural["Psi"])


class WishartPrior(NamedTuple):
    """Wishart(ν, V) on the precision: log density ½(ν−d−1) log|P| − ½tr(V⁻¹P)."""

    kind: str = "Wishart"
    form: str = "inverse_wishart"
    steps: tuple = (("inverse", 1.0),)

    def shape(self, natural):
        """The concentration of the InverseWishart that c has."""
        return natural["nu"] + natural["Psi"].shape[-1] + 1.0

    def posterior(self, natural, event):
        return dist.Wishart(concentration=self.shape(natural), rate_matrix=natural["Psi"])


PRIORS = (InverseWishartPrior(), WishartPrior())
