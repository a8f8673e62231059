"""The inverse-Wishart form: objectives in a covariance matrix; conjugate priors InverseWishart (covariance) and Wishart (precision)."""

from typing import NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist


def _symmetric(matrix):
    return 0.5 * (matrix + jnp.swapaxes(matrix, -1, -2))


class InverseWishart:
    """Q(c) = −½ν log|c| − ½ tr(Ψ c⁻¹) + constant in a covariance matrix c, shape (..., d, d).

    Along the ray s·c: f' = −½νd + ½tr(Ψc⁻¹) and f' + f'' = −½tr(Ψc⁻¹) at s = 1 give ν; then Ψ = 2 c ∇Q c + ν c.
    """

    name = "inverse_wishart"

    def reference(self, c, event):
        return c

    def directions(self, c, event):
        return c[None]

    def read(self, c, gradient, curvature, event):
        gradient = _symmetric(gradient)
        first = jnp.sum(gradient * c, (-2, -1))
        second = jnp.sum(curvature[0] * c, (-2, -1))
        trace = -2 * (first + second)
        nu = (trace - 2 * first) / c.shape[-1]
        return {"nu": nu, "Psi": _symmetric(2 * c @ gradient @ c + nu[..., None, None] * c)}

    def mode(self, natural, fallback, event):
        nu = natural["nu"][..., None, None]
        good = nu > 0
        return jnp.where(good, natural["Psi"] / jnp.where(good, nu, 1.0), fallback)


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
