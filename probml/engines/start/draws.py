"""Approximate draws of priors for starts, from random numbers made on the host.

JAX's generator and its exact draws are slow to compile: a Gamma is a loop of rejections; a
Dirichlet together with a Wishart took 3 s, longer than the rest of a first fit of a mixture. A
start needs neither. Standard random numbers come from NumPy as data, and a Gamma is approximated by
Wilson & Hilferty (1931),

    Gamma(a) = U^(1/a) Gamma(a + 1),   Gamma(a) ~ a (1 − 1/(9a) + z/(3√a))³,  z standard normal,

with an error of less than a hundredth of its standard deviation for a ≥ 1; distributions that are
made of Gammas follow. Distributions not named here are drawn by NumPyro.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.numerics.transfer import random_key

Shape = tuple[int, ...]
MAX_NUMBERS = 4  # of a kind that a draw uses for each of its elements


class Noise(NamedTuple):
    """Standard random numbers, one draw a row."""

    normal: np.ndarray  # (count, m)
    uniform: np.ndarray  # (count, m), in (0, 1)
    keys: jax.Array  # (count,), for distributions that are drawn by NumPyro

    @classmethod
    def of(cls, shapes: Iterable[Shape], count: int, seed: int, stream: int = 8) -> "Noise":
        """Enough numbers for values of these shapes; streams of a seed are independent."""
        random = np.random.default_rng([seed, stream])
        size, dtype = MAX_NUMBERS * sum(map(math.prod, shapes)), jnp.result_type(float)
        uniform = np.clip(random.random((count, size)), 1e-12, 1 - 1e-7)
        seeds = random.integers(2**31, size=count)
        return cls(random.standard_normal((count, size)).astype(dtype), uniform.astype(dtype),
                   np.stack([np.asarray(jax.random.key_data(random_key(s))) for s in seeds]))


class Source:
    """The random numbers of one draw, each of which is used once."""

    def __init__(self, noise: Noise):
        self.noise, self.used = noise, {"normal": 0, "uniform": 0, "keys": 0}

    def _next(self, kind: str, shape: Shape) -> jax.Array:
        begin = self.used[kind]
        self.used[kind] = begin + math.prod(shape)
        return getattr(self.noise, kind)[begin : self.used[kind]].reshape(shape)

    def normal(self, shape: Shape) -> jax.Array:
        """Standard normal numbers."""
        return self._next("normal", shape)

    def uniform(self, shape: Shape) -> jax.Array:
        """Numbers uniform in (0, 1)."""
        return self._next("uniform", shape)

    def key(self) -> jax.Array:
        """A random key."""
        self.used["keys"] += 1
        return jax.random.fold_in(jax.random.wrap_key_data(self.noise.keys), self.used["keys"])

    def gamma(self, a: jax.Array, shape: Shape) -> jax.Array:
        """Approximate draws of Gamma(a, 1); a broadcasts to the shape."""
        raised = jnp.broadcast_to(a, shape) + 1
        cube = jnp.maximum(1 - 1 / (9 * raised) + self.normal(shape) / (3 * jnp.sqrt(raised)), 1e-3)
        return raised * cube**3 * self.uniform(shape) ** (1 / (raised - 1))


def draw(prior: dist.Distribution, source: Source, sample_shape: Shape) -> jax.Array:
    """A draw of a prior, (*sample_shape, *batch, *event)."""
    sampler = next((SAMPLERS[kind] for kind in type(prior).__mro__ if kind in SAMPLERS), None)
    if sampler is None:
        return prior.sample(source.key(), sample_shape)
    return sampler(prior, source, (*sample_shape, *prior.batch_shape))


def _beta(prior: dist.Distribution, source: Source, shape: Shape):
    one = source.gamma(prior.concentration1, shape)
    return one / (one + source.gamma(prior.concentration0, shape))


def _dirichlet(prior: dist.Distribution, source: Source, shape: Shape):
    parts = source.gamma(prior.concentration, (*shape, *prior.event_shape))
    return parts / parts.sum(-1, keepdims=True)


def _student(prior: dist.Distribution, source: Source, shape: Shape):
    spread = jnp.sqrt(prior.df / (2 * source.gamma(prior.df / 2, shape)))
    return prior.loc + prior.scale * spread * source.normal(shape)


def _bartlett(prior: dist.Distribution, source: Source, shape: Shape):
    """The Cholesky factor of a Wishart of unit scale (Bartlett 1933)."""
    d = prior.event_shape[-1]
    freedom = prior.concentration[..., None] - jnp.arange(d)
    diagonal = jnp.sqrt(2 * source.gamma(freedom / 2, (*shape, d)))
    return jnp.tril(source.normal((*shape, d, d)), -1) + diagonal[..., None] * jnp.eye(d)


def _wishart(prior: dist.Distribution, source: Source, shape: Shape):
    root = prior.scale_tril @ _bartlett(prior, source, shape)
    return root @ jnp.swapaxes(root, -1, -2)


def _inverse_wishart(prior: dist.Distribution, source: Source, shape: Shape):
    inner = _bartlett(prior, source, shape)
    unit = jnp.broadcast_to(jnp.eye(inner.shape[-1], dtype=inner.dtype), inner.shape)
    inverse = jax.scipy.linalg.solve_triangular(inner, unit, lower=True)
    root = prior.scale_tril @ jnp.swapaxes(inverse, -1, -2)
    return root @ jnp.swapaxes(root, -1, -2)


def _multivariate(prior: dist.Distribution, source: Source, shape: Shape):
    z = source.normal((*shape, *prior.event_shape))
    return prior.loc + (prior.scale_tril @ z[..., None])[..., 0]


SAMPLERS: Mapping[type, Callable] = {
    dist.Gamma: lambda p, s, shape: s.gamma(p.concentration, shape) / p.rate,
    dist.Chi2: lambda p, s, shape: s.gamma(p.concentration, shape) / p.rate,
    dist.InverseGamma: lambda p, s, shape: p.rate / s.gamma(p.concentration, shape),
    dist.Beta: _beta,
    dist.Dirichlet: _dirichlet,
    dist.Wishart: _wishart,
    dist.InverseWishart: _inverse_wishart,
    dist.Normal: lambda p, s, shape: p.loc + p.scale * s.normal(shape),
    dist.HalfNormal: lambda p, s, shape: p.scale * jnp.abs(s.normal(shape)),
    dist.LogNormal: lambda p, s, shape: jnp.exp(p.loc + p.scale * s.normal(shape)),
    dist.StudentT: _student,
    dist.MultivariateNormal: _multivariate,
    dist.Exponential: lambda p, s, shape: -jnp.log(s.uniform(shape)) / p.rate,
    dist.HalfCauchy: lambda p, s, shape: p.scale * jnp.tan(0.5 * jnp.pi * s.uniform(shape)),
    dist.Cauchy: lambda p, s, shape: p.loc + p.scale * jnp.tan(jnp.pi * (s.uniform(shape) - 0.5)),
    dist.Uniform: lambda p, s, shape: p.low + (p.high - p.low) * s.uniform(shape),
}
