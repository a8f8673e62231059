"""Supports with finitely many values: which they are, and their probabilities by the distribution's
own log_prob.

A value travels through this package as its code, 0 … k − 1, and the function that the user wrote
gets low + code: `DiscreteUniform(1, 6)` has the codes 0 … 5 and the labels 1 … 6, by which data are
read and answers given.
"""


import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from probml.families import domains

LONGEST = 2**20  # values of a support that are listed; of more, a site is a count without end
CENSORED = (dist.LeftCensoredDistribution, dist.RightCensoredDistribution,
            dist.IntervalCensoredDistribution)


def mean_of(law: dist.Distribution) -> jax.Array:
    """The mean; of a censored outcome that of the outcome itself, were it not censored.

    Raises:
        NotImplementedError: NumPyro does not have it.
    """
    mean = mean_of
    if isinstance(law, CENSORED[:2]):  # the base has arguments, but no batch shape, of all axes
        for _ in law.batch_shape[len(law.base_dist.batch_shape):]:
            mean = jax.vmap(mean)
    elif not isinstance(law, (dist.MaskedDistribution, dist.ExpandedDistribution,
                              dist.Independent)):
        return law.mean
    base_mean = mean(law.base_dist)
    return jnp.broadcast_to(base_mean, jnp.broadcast_shapes(base_mean.shape, law.shape()))


def integer_range(base: dist.Distribution) -> tuple[ArrayLike, ArrayLike] | None:
    """The least and the greatest integer of the support of a distribution; None where it is
    infinite or not of integers."""
    if isinstance(base, CENSORED) or base.event_shape:
        return None
    return domains.of(base.support).integer_range


def listed(low: np.ndarray, high: np.ndarray) -> tuple[int, int] | None:
    """The least value of all cells and how many there are up to the greatest; None for more than
    LONGEST."""
    least, count = int(np.min(low)), int(np.max(high)) - int(np.min(low)) + 1
    return (least, count) if 0 < count <= LONGEST else None


def log_masses(base: dist.Distribution, low: int, count: int, shape: tuple[int, ...]) -> jax.Array:
    """log p of the values low … low + count − 1, (*shape, count); −∞ outside a cell's own support,
    with finite gradients."""
    first, last = integer_range(base) or (low, low + count - 1)

    def at(value: jax.Array):
        value = jnp.full(shape, value)
        clipped = jnp.clip(value, first, last)
        return jnp.where(value == clipped, base.log_prob(clipped), -jnp.inf)

    return jnp.moveaxis(jax.vmap(at)(low + jnp.arange(count)), 0, -1)


class Shifted(dist.CategoricalProbs):
    """A Categorical of the values low, low + 1, …"""

    def __init__(self, probs: jax.Array, low: int):
        super().__init__(probs)
        self.low = low

    @property
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(self.low, self.low + self.probs.shape[-1] - 1)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()):
        return self.low + super().sample(key, sample_shape)

    def log_prob(self, value: jax.Array):
        is_value = jnp.asarray(value)[..., None] == self.low + jnp.arange(self.probs.shape[-1])
        return jnp.log(jnp.where(is_value, self.probs, 0.0).sum(-1))

    @property
    def mean(self) -> jax.Array:
        return self.low + self.probs @ jnp.arange(self.probs.shape[-1], dtype=self.probs.dtype)

    @property
    def variance(self) -> jax.Array:
        values = self.low + jnp.arange(self.probs.shape[-1], dtype=self.probs.dtype)
        return (self.probs * (values - self.mean[..., None]) ** 2).sum(-1)

    def enumerate_support(self, expand: bool = True):
        return self.low + super().enumerate_support(expand)
