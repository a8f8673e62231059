"""Priors that are a location and a scale in their unbounded coordinates: what an effect of a
hierarchy is exchanged for, loc + scale · ε, where its scale is unseen."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular


class Root(NamedTuple):
    """The scale of vectors: the Cholesky factor L of their covariance, (..., d, d)."""

    matrix: jax.Array

    def times(self, x: jax.Array) -> jax.Array:
        """L x of vectors, (..., d)."""
        return (self.matrix @ x[..., None])[..., 0]

    def without(self, x: jax.Array) -> jax.Array:
        """L⁻¹ x."""
        roots = jnp.broadcast_to(self.matrix, (*x.shape, x.shape[-1]))
        return solve_triangular(roots, x[..., None], lower=True)[..., 0]

    def volume(self) -> jax.Array:
        """log |L|, (...)."""
        return jnp.log(jnp.abs(jnp.diagonal(self.matrix, axis1=-2, axis2=-1))).sum(-1)

    def lower(self) -> jax.Array:
        """The lower triangular root L."""
        return self.matrix


class Sums(NamedTuple):
    """The same of running sums: L = scale · (1 where i ≥ j), in O(d) instead of O(d²)."""

    scale: jax.Array  # (...)
    d: int

    def times(self, x: jax.Array) -> jax.Array:
        return self.scale[..., None] * jnp.cumsum(x, -1)

    def without(self, x: jax.Array) -> jax.Array:
        return jnp.diff(x, axis=-1, prepend=jnp.zeros_like(x[..., :1])) / self.scale[..., None]

    def volume(self) -> jax.Array:
        return self.d * jnp.log(self.scale)

    def lower(self) -> jax.Array:
        return self.scale[..., None, None] * jnp.tri(self.d, dtype=self.scale.dtype)


LocationScale = tuple[jax.Array, jax.Array]  # the scale a number a cell, or what `Root` is


def univariate(prior: dist.Distribution) -> LocationScale:
    """Location and scale of a number, or of the logarithm of a LogNormal."""
    return prior.loc, prior.scale


def log_scale(prior: dist.Distribution) -> LocationScale:
    """Location and scale of the logarithm of a positive number that its scale multiplies."""
    return jnp.log(prior.scale), jnp.ones(())


def log_rate(prior: dist.Distribution) -> LocationScale:
    """Location and scale of the logarithm of a positive number that its rate divides."""
    return -jnp.log(prior.rate), jnp.ones(())


def vector(prior: dist.Distribution) -> LocationScale:
    """Location and scale of a vector."""
    return prior.loc, Root(prior.scale_tril)


def walk(prior: dist.Distribution) -> LocationScale:
    """Location and scale of the steps of a random walk."""
    steps = prior.event_shape[0]
    return jnp.zeros(steps), Sums(jnp.asarray(prior.scale), steps)
