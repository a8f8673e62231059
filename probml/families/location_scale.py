"""Priors that are a location and a scale in their unbounded coordinates: what an effect of a
hierarchy is exchanged for, loc + scale · ε, where its scale is unseen."""

from typing import Any

import jax
import jax.numpy as jnp

LocationScale = tuple[jax.Array, jax.Array]


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
    steps = prior.event_shape[0]
    return jnp.zeros(steps), jnp.asarray(prior.scale)[..., None, None] * jnp.tri(steps)
