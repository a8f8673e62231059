"""Priors that are a location and a scale in their unbounded coordinates: what an effect of a
hierarchy is exchanged for, loc + scale · ε, where its scale is unseen."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

LocationScale = tuple[jax.Array, jax.Array]


class Root(NamedTuple):
    """The Cholesky factor of the covariance of vectors, as a map."""

    matrix: jax.Array  # (..., t, t)

    def times(self, u: jax.Array) -> jax.Array:
        return (self.matrix @ u[..., None])[..., 0]

    def inverse(self, v: jax.Array) -> jax.Array:
        whole = jnp.broadcast_to(self.matrix, (*v.shape, v.shape[-1]))
        return jax.scipy.linalg.solve_triangular(whole, v[..., None], lower=True)[..., 0]

    @property
    def volume(self) -> jax.Array:
        """log |∂ times(u) / ∂ u|, (..., 1)."""
        return jnp.sum(jnp.log(jnp.diagonal(self.matrix, axis1=-2, axis2=-1)), -1, keepdims=True)


class Cumulated(NamedTuple):
    """That of a random walk: its numbers times a scale, summed up. Cost: t, where a matrix takes
    t²."""

    scale: jax.Array  # (...)
    steps: int

    @property
    def matrix(self) -> jax.Array:
        return self.scale[..., None, None] * jnp.tri(self.steps)

    def times(self, u: jax.Array) -> jax.Array:
        return self.scale[..., None] * jnp.cumsum(u, -1)

    def inverse(self, v: jax.Array) -> jax.Array:
        return jnp.diff(v, axis=-1, prepend=0.0) / self.scale[..., None]

    @property
    def volume(self) -> jax.Array:
        return self.steps * jnp.log(self.scale)[..., None]


def plain(prior: Any) -> LocationScale:
    """Of a number, or of the logarithm of a LogNormal."""
    return prior.loc, prior.scale


def log_scale(prior: Any) -> LocationScale:
    """Of a positive number that its scale multiplies: the logarithm of it."""
    return jnp.log(prior.scale), jnp.ones(())


def log_rate(prior: Any) -> LocationScale:
    """The same of one that its rate divides."""
    return -jnp.log(prior.rate), jnp.ones(())


def vector(prior: Any) -> LocationScale:
    """Of a vector: the scale is the Cholesky factor of its covariance."""
    return prior.loc, prior.scale_tril


def walk(prior: Any) -> LocationScale:
    """Of a random walk's steps."""
    return jnp.zeros(prior.event_shape[0]), cumulated(prior).matrix


def cumulated(prior: Any) -> Cumulated:
    """The factor of a random walk's covariance."""
    return Cumulated(jnp.asarray(prior.scale), prior.event_shape[0])
