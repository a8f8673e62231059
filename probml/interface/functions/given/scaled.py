"""handlers.scale around what is unseen: a density to a power, as tempered priors have it."""

from typing import Any

import jax
import numpyro.distributions as dist


class Scaled(dist.Distribution):
    """A distribution whose log density is multiplied; its draws are those of the distribution."""

    arg_constraints: dict = {}
    pytree_data_fields = ("base_dist", "power")

    def __init__(self, base_dist: dist.Distribution, power: object):
        self.base_dist, self.power = base_dist, power
        super().__init__(base_dist.batch_shape, base_dist.event_shape)

    @property
    def support(self) -> Any:
        return self.base_dist.support

    def log_prob(self, value: jax.Array) -> jax.Array:
        return self.power * self.base_dist.log_prob(value)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.base_dist.sample(key, sample_shape)
