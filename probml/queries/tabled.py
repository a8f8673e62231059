"""A smooth distribution that is tabulated at quadrature nodes."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints


class Tabled(dist.Distribution):
    """A smooth univariate distribution given by quadrature nodes and weights.

    log p(x) interpolates the density, weight / width, linearly between nodes, and is −∞ outside
    them; samples invert the distribution function, linear between nodes. Mean and variance are sums
    over nodes.

    Args:
        values: (*batch, m), ascending. weights: (*batch, m), which sum to 1.
        centre: (*batch), the mean; None: Σ weights · values.
    """

    arg_constraints = {"values": constraints.real_vector, "weights": constraints.simplex}
    support = constraints.real
    pytree_data_fields = ("values", "weights", "centre")

    def __init__(self, values: jax.Array, weights: jax.Array, centre: jax.Array | None = None, *,
                 validate_args: bool | None = None):
        self.values, self.weights = jnp.asarray(values), jnp.asarray(weights)
        mean = (self.weights * self.values).sum(-1)
        self.centre = mean if centre is None else jnp.asarray(centre)
        super().__init__(self.values.shape[:-1], (), validate_args=validate_args)

    @property
    def mean(self):
        return self.centre

    @property
    def variance(self):
        # nodes of weight 0 may lie so far out that their squares overflow in float32
        away = jnp.where(self.weights > 0, self.values - self.centre[..., None], 0.0)
        return (self.weights * away**2).sum(-1)

    @property
    def _node_cdf(self):
        """The distribution function at the nodes."""
        return jnp.cumsum(self.weights, -1) - 0.5 * self.weights

    def log_prob(self, value: jax.Array):
        edges = jnp.concatenate([self.values[..., :1], 0.5 * (self.values[..., 1:]
                                                              + self.values[..., :-1]),
                                 self.values[..., -1:]], -1)
        width = jnp.diff(edges, axis=-1)
        # the nodes of an observed value coincide: width 0
        high = jnp.where(width > 0, self.weights / jnp.where(width > 0, width, 1.0), jnp.inf)
        return jnp.log(_interpolate(value, self.values, high, 0.0, 0.0))

    def cdf(self, value: jax.Array):
        return _interpolate(value, self.values, self._node_cdf, 0.0, 1.0)

    def icdf(self, q: jax.Array):
        return _interpolate(q, self._node_cdf, self.values, None, None)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()):
        uniform = jax.random.uniform(key, (*sample_shape, *self.batch_shape),
                                     dtype=self.values.dtype)
        return self.icdf(uniform)


def _interpolate(x: jax.Array, at: jax.Array, of: jax.Array, left: jax.Array, right: jax.Array):
    """numpy.interp, batched over the leading axes of the nodes."""
    return jnp.vectorize(lambda x, at, of: jnp.interp(x, at, of, left, right),
                         signature="(),(m),(m)->()")(jnp.asarray(x), at, of)
