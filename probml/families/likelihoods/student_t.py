"""Student's t likelihood, a normal whose precision varies from cell to cell: given these precisions
its updates are the normal's."""

import math

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular

from probml.families import log_linear
from probml.families.forms.gaussian import GAUSSIAN
from probml.families.forms.inverse_gamma import INVERSE_GAMMA
from probml.families.likelihood import Arguments, Entry, Likelihood
from probml.families.location_scale import univariate


class ManyDegrees(dist.StudentT):
    """NumPyro's, whose density keeps its digits with many degrees of freedom: a difference of two
    log Γ loses 1.5 nats to rounding at 10^7 in float32, and a climb of df ends in that noise."""

    def log_prob(self, value: jax.Array):
        half, y = 0.5 * self.df, (value - self.loc) / self.scale
        return log_normaliser(half, 1) - jnp.log(self.scale) - (half + 0.5) * log1p_square(
            y / jnp.sqrt(self.df))


class ManyDegreesOfVectors(dist.MultivariateStudentT):
    """As ManyDegrees, of vectors."""

    def log_prob(self, value: jax.Array):
        half, root = 0.5 * self.df, self.scale_tril
        diff = (value - self.loc)[..., None]
        roots = jnp.broadcast_to(root, (*diff.shape[:-2], *root.shape[-2:]))  # JAX below 0.10
        y = solve_triangular(roots, diff, lower=True)[..., 0]
        log_det = jnp.log(jnp.abs(jnp.diagonal(root, axis1=-2, axis2=-1))).sum(-1)
        size = root.shape[-1]
        return log_normaliser(half, size) - log_det - (half + 0.5 * size) * jnp.log1p(
            (y**2).sum(-1) / self.df)


def log1p_square(z: jax.Array):
    """log(1 + z²), where z² is no number of float32 as well."""
    is_large = jnp.abs(z) > 1e9
    return jnp.where(is_large, 2 * jnp.log(jnp.where(is_large, jnp.abs(z), 1.0)),
                     jnp.log1p(jnp.where(is_large, 0.0, z) ** 2))


def log_normaliser(half: jax.Array, size: jax.Array):
    """log Γ((df + d)/2) − log Γ(df/2) − (d/2) log(df π) of half = df/2, to the last digits."""
    return log_linear.rising(half, 0.5 * size) - 0.5 * size * jnp.log(2.0 * math.pi * half)


class StudentT(Likelihood):
    """x = loc + scale · e / √w, e ~ N(0, 1), w ~ Gamma(df/2, df/2): Student's t with df degrees of
    freedom.

    Given a cell, w has the mean (df + 1) / (df + ((x − loc)/scale)²). In its place the log density
    of the cell and w has its expectation below log p(x) + constant, and touches it where that mean
    was taken: an M-step is least squares with weights, and never lowers the likelihood (Dempster,
    Laird & Rubin 1980; Lange, Little & Taylor 1989). `df` itself is climbed.
    """

    name = "StudentT"
    argument_event = {"df": 0, "loc": 0, "scale": 0}
    canonical = {"loc": (GAUSSIAN, ()), "scale": (INVERSE_GAMMA, (("power", 2.0),))}
    scatter = ("scale",)
    mean_of = ("loc",)
    rowwise = True  # every cell has a weight of its own

    def smallest(self, arguments: Arguments):
        """The scale of each cell."""
        return arguments["scale"]

    def distribution(self, arguments: Arguments):
        return ManyDegrees(**arguments)

    def minorant(self, anchor: Arguments, arguments: Arguments, x: jax.Array):
        """E[log p(x, w)] over w given x at the arguments `anchor`, as a function of loc and scale,
        up to a constant; cell by cell."""
        square = ((x - anchor["loc"]) / anchor["scale"]) ** 2
        weight = (anchor["df"] + 1) / (anchor["df"] + square)
        return -jnp.log(arguments["scale"]) - 0.5 * weight * (
            (x - arguments["loc"]) / arguments["scale"]
        ) ** 2


ENTRIES = (Entry((dist.StudentT,), StudentT(), location_scale=univariate,
                 log_prob=ManyDegrees.log_prob),
           Entry((dist.MultivariateStudentT,), log_prob=ManyDegreesOfVectors.log_prob))
