"""Draws of large counts. The samplers of JAX accept a proposal by differences of log Γ, which have
no digits left in single precision from 10⁷ on: draws of Poisson(2·10⁷) are a fifth too wide."""

import copy
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

# variance of a count from which it is drawn as a normal with a third moment: what is left out is
# below a twentieth of a count
MIN_NORMAL_VARIANCE = 1e5
OF_LARGE = 2**31 - 1  # child of a key that no sampler of small counts makes


def of_poisson(distribution: dist.Distribution) -> dist.Distribution:
    """The same Poisson distribution, with draws of large counts."""
    return _drawing(distribution, lambda key, shape: _poisson(key, jnp.broadcast_to(
        distribution.rate, shape + distribution.batch_shape)))


def of_gamma_poisson(distribution: dist.Distribution) -> dist.Distribution:
    """A negative binomial distribution, likewise."""

    def draw(key: jax.Array, shape: tuple[int, ...]):
        first, second = jax.random.split(key)
        return _poisson(second, distribution._gamma.sample(first, shape))

    return _drawing(distribution, draw)


def of_binomial(distribution: dist.Distribution) -> dist.Distribution:
    """A binomial distribution, likewise."""
    return _drawing(distribution, lambda key, shape: _binomial(
        key, distribution.total_count, distribution.probs, shape + distribution.batch_shape))


def of_beta_binomial(distribution: dist.Distribution) -> dist.Distribution:
    """A beta-binomial distribution, likewise."""

    def draw(key: jax.Array, shape: tuple[int, ...]):
        first, second = jax.random.split(key)
        probs = distribution._beta.sample(first, shape)
        return _binomial(second, distribution.total_count, probs, probs.shape)

    return _drawing(distribution, draw)


def of_multinomial(distribution: dist.Distribution) -> dist.Distribution:
    """A multinomial distribution, also where its total is computed in a program: NumPyro draws each
    trial, and needs the number of trials in advance."""
    if not _is_computed(distribution):
        return distribution

    def draw(key: jax.Array, shape: tuple[int, ...]):
        probs = distribution.probs
        return _multinomial(key, distribution.total_count, jnp.broadcast_to(
            probs, shape + distribution.batch_shape + probs.shape[-1:]))

    return _drawing(distribution, draw)


def of_dirichlet_multinomial(distribution: dist.Distribution) -> dist.Distribution:
    """A Dirichlet-multinomial distribution, likewise."""
    if not _is_computed(distribution):
        return distribution

    def draw(key: jax.Array, shape: tuple[int, ...]):
        first, second = jax.random.split(key)
        probs = distribution._dirichlet.sample(first, shape)
        return _multinomial(second, distribution.total_count, probs)

    return _drawing(distribution, draw)


def _is_computed(distribution: dist.Distribution) -> bool:
    return (distribution.total_count_max is None
            and isinstance(distribution.total_count, jax.core.Tracer))


def _drawing(distribution: dist.Distribution, draw: Callable) -> dist.Distribution:
    out = copy.copy(distribution)
    vars(out)["sample"] = lambda key, sample_shape=(): draw(key, sample_shape)
    return out


def _poisson(key: jax.Array, rate: jax.Array) -> jax.Array:
    small = jax.random.poisson(key, jnp.minimum(rate, MIN_NORMAL_VARIANCE))
    return jnp.where(rate > MIN_NORMAL_VARIANCE, _large(key, rate, rate, 1.0, small.dtype), small)


def _binomial(key: jax.Array, total: jax.Array, probs: jax.Array,
              shape: tuple[int, ...]) -> jax.Array:
    total, probs = jnp.broadcast_to(total, shape), jnp.broadcast_to(probs, shape)
    variance = total * probs * (1 - probs)
    large = variance > MIN_NORMAL_VARIANCE
    small = dist.BinomialProbs(probs, jnp.where(large, 1, total), validate_args=False).sample(key)
    normal = _large(key, total * probs, variance, 1 - 2 * probs, small.dtype)
    return jnp.where(large, jnp.minimum(normal, total), small)


def _multinomial(key: jax.Array, total: jax.Array, probs: jax.Array) -> jax.Array:
    """Each count given those before it is binomial; probs (..., k)."""
    after = jnp.flip(jnp.cumsum(jnp.flip(probs, -1), -1), -1)
    share = jnp.where(after > 0, probs / jnp.where(after > 0, after, 1.0), 0.0)
    share = jnp.moveaxis(jnp.clip(share.at[..., -1].set(1.0), 0.0, 1.0), -1, 0)
    remaining = jnp.broadcast_to(total, probs.shape[:-1]).astype(jnp.result_type(int))

    def draw(remaining: jax.Array, xs: tuple[jax.Array, jax.Array]):
        count = _binomial(xs[0], remaining, xs[1], remaining.shape).astype(remaining.dtype)
        return remaining - count, count

    counts = jax.lax.scan(draw, remaining, (jax.random.split(key, len(share)), share))[1]
    return jnp.moveaxis(counts, 0, -1)


def _large(key: jax.Array, mean: jax.Array, variance: jax.Array, third: jax.Array | float,
           dtype: jnp.dtype) -> jax.Array:
    """Draws with such moments, whole (Cornish & Fisher 1938); `third`: the third moment by the
    variance."""
    normal_key = jax.random.fold_in(key, OF_LARGE)
    z = jax.random.normal(normal_key, jnp.shape(mean), jnp.result_type(float))
    counts = jnp.round(mean + jnp.sqrt(variance) * z + third * (z**2 - 1) / 6)
    return jnp.maximum(counts, 0).astype(dtype)
