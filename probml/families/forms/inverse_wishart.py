"""The inverse-Wishart form: objectives in a covariance matrix; conjugate priors InverseWishart
(covariance) and Wishart (precision)."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import digamma, multigammaln

from probml.families import definite, domains
from probml.families.form import Form, Natural, Prior, Steps, ratio
from probml.families.forms.inverse_gamma import two_point_factors
from probml.families.likelihood import Entry
from probml.families.log_linear import log_less_digamma
from probml.numerics.lapack import diagonal


def _symmetric(matrix: jax.Array):
    return 0.5 * (matrix + jnp.swapaxes(matrix, -1, -2))


class InverseWishart(Form):
    """Q(c) = −½ν log|c| − ½ tr(Ψ c⁻¹) + constant in a covariance matrix c, shape (..., d, d).

    f(c) = ⟨∇Q, c⟩ = −½νd + ½tr(Ψc⁻¹) at c and 2c gives tr(Ψc⁻¹) and ν; then Ψ = 2 c ∇Q c + ν c.
    """

    name = "inverse_wishart"
    domain = domains.POSITIVE_DEFINITE
    keys = ("Psi", "nu")
    event = 2
    scaled = scale = True

    def allows(self, steps: Steps):
        return len(steps) <= 1

    def own_axes(self, states: int | None, event: tuple[int, ...]):
        return (event[-1],) * 2

    def points(self, c: jax.Array, event: int):
        return jnp.stack([c, 2 * c])

    def read(self, points: jax.Array, gradients: jax.Array, event: int):
        c, gradient = points[0], _symmetric(gradients[0])
        at_c, at_2c = jnp.sum(points * gradients, (-2, -1))
        nu = (4 * (at_c - at_2c) - 2 * at_c) / c.shape[-1]
        return {"nu": nu, "Psi": _symmetric(2 * c @ gradient @ c + nu[..., None, None] * c)}

    def read_inverse(self, points: jax.Array, inverses: jax.Array, gradients: jax.Array,
                     event: int):
        """As `read`, of gradients in P = c⁻¹: c ∇Q c = −∂Q/∂P. A gradient in c would be P ∂Q/∂P P,
        whose rounding the products with c do not take back: the square of how ill conditioned c
        is."""
        at_c, at_2c = -jnp.sum(inverses * gradients, (-2, -1))
        nu = (4 * (at_c - at_2c) - 2 * at_c) / points.shape[-1]
        return {"nu": nu, "Psi": _symmetric(nu[..., None, None] * points[0] - 2 * gradients[0])}

    def value(self, natural: Natural, c: jax.Array, event: int):
        """Q(c) up to a constant."""
        return -0.5 * jnp.sum(natural["nu"] * 2.0 * definite.half_log_det(c)
                              + jnp.sum(natural["Psi"] * definite.inverse(c), (-2, -1)))

    def mode(self, natural: Natural, fallback: jax.Array, event: int):
        return ratio(natural["Psi"], natural["nu"][..., None, None], fallback)

    def expectation(self, natural: Natural, prior: Prior):
        """E[log|c|] and E[c⁻¹] of InverseWishart(k, Ψ)."""
        k, psi = prior.shape(natural), natural["Psi"]
        d = psi.shape[-1]
        halves = digamma(0.5 * (k[..., None] - jnp.arange(d))).sum(-1)
        return {"log": jnp.linalg.slogdet(psi)[1] - halves - d * jnp.log(2.0),
                "inverse": k[..., None, None] * jnp.linalg.inv(psi)}

    def nodes(self, natural: Natural, prior: Prior):
        """Two multiples of one matrix, 1 / E[c⁻¹], as the inverse-gamma's of a number."""
        k, middle = prior.shape(natural), self.middle(natural, prior)
        d = middle.shape[-1]
        shifted_k = k[..., None] - jnp.arange(d)
        gap = (log_less_digamma(0.5 * shifted_k) + jnp.log(k[..., None] / shifted_k)).mean(-1)
        return two_point_factors(gap)[..., None, None] * middle

    def middle(self, natural: Natural, prior: Prior):
        """1 / E[c⁻¹]."""
        return natural["Psi"] / prior.shape(natural)[..., None, None]

    def spherical(self, sizes: jax.Array, natural: Natural):
        eye = jnp.broadcast_to(jnp.eye(natural["Psi"].shape[-1]), natural["Psi"].shape)
        return eye * sizes[..., None, None]

    def sizes(self, c: jax.Array):
        return c[..., 0, 0]

    def student(self, natural: Natural, prior: Prior, present: jax.Array):
        df = prior.shape(natural) - natural["Psi"].shape[-1] + 1
        total = jnp.trace(natural["Psi"], axis1=-2, axis2=-1) / jnp.trace(present, axis1=-2,
                                                                          axis2=-1)
        return df, total / df

    def integrated(self, natural: Natural, slope: jax.Array):
        slope = slope.sum((-2, -1)) / slope.shape[-1]
        return {"nu": natural["nu"] + 2 * slope, "Psi": natural["Psi"]}


INVERSE_WISHART = InverseWishart()


class InverseWishartPrior(Prior):
    """InverseWishart(ν, Ψ) on the covariance: log density −½(ν+d+1) log|c| − ½tr(Ψc⁻¹)."""

    form = INVERSE_WISHART
    event = 2

    def shape(self, natural: Natural):
        """The concentration of the InverseWishart that c has."""
        return natural["nu"] - natural["Psi"].shape[-1] - 1.0

    def posterior(self, natural: Natural, event: int):
        return dist.InverseWishart(concentration=self.shape(natural), scale_matrix=natural["Psi"])


class WishartPrior(Prior):
    """Wishart(ν, V) on the precision: log density ½(ν−d−1) log|P| − ½tr(V⁻¹P)."""

    form = INVERSE_WISHART
    steps = (("inverse", 1.0),)
    event = 2

    def shape(self, natural: Natural):
        """The concentration of the InverseWishart that c has."""
        return natural["nu"] + natural["Psi"].shape[-1] + 1.0

    def log_density(self, distribution: dist.Distribution, value: jax.Array, mode: bool):
        """As NumPyro's, by the precision itself in place of its Cholesky factor."""
        p, degrees = value.shape[-1], distribution.concentration
        scale = jnp.log(diagonal(distribution.scale_tril)).sum(-1)
        return ((degrees - p - 1) * definite.half_log_det(value)
                - 0.5 * jnp.sum(distribution.rate_matrix * value, (-2, -1))
                - 0.5 * p * degrees * jnp.log(2.0) - multigammaln(0.5 * degrees, p)
                - degrees * scale)

    def posterior(self, natural: Natural, event: int):
        return dist.Wishart(concentration=self.shape(natural), rate_matrix=natural["Psi"])


ENTRIES = (Entry((dist.InverseWishart,), prior=InverseWishartPrior()),
           Entry((dist.Wishart,), prior=WishartPrior()))
