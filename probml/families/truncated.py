"""Distributions between ends, whose density, mean and draws keep their digits where the ends lie
far from the middle.

NumPyro takes the log of a difference of two chances. With both ends on one side of the middle, for
a normal 6 standard deviations away in float32 or 9 in float64, that is the log of 0: a density of
+∞, at which an optimiser ends and a sampler stays; and its draws leave the support. Here that log
is taken of the logarithms of the chances on the smaller side (censored.py), a draw is the root of
the distribution function, and a moment is a sum over the density.
"""


import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import truncated

from probml.families.densities.censored import LOG_CHANCES, log_between

MAX_ASINH_SCALES = 45.0  # scales from the middle, as an area hyperbolic sine: no end
NODES, WEIGHTS = (0.5 * x for x in np.polynomial.legendre.leggauss(40))
NODES = NODES + 0.5  # between 0 and 1
KINDS = (truncated.LeftTruncatedDistribution, truncated.RightTruncatedDistribution,
         truncated.TwoSidedTruncatedDistribution)
_PLAIN = {kind: kind.log_prob for kind in KINDS}


def of_cut(distribution: dist.Distribution, value: jax.Array) -> jax.Array:
    """log p between ends: NumPyro's own where no logarithms of chances are known."""
    found = sharp(distribution)
    return (_PLAIN[type(distribution)](distribution, value) if found is distribution
            else found.log_prob(value))


def sharp(distribution: dist.Distribution) -> dist.Distribution:
    """The same distribution between ends, one that keeps its digits where there is such."""
    return Truncated(distribution) if type(distribution.base_dist) in LOG_CHANCES else distribution


class Truncated(dist.Distribution):
    """A distribution about `loc`, as wide as `scale`, between `low` and `high`, either of which may
    be infinite.

    Args:
        of: NumPyro's.

    Cost: a log density four chances; a draw two for each digit.
    """

    def __init__(self, of: dist.Distribution):
        self.of, self.base = of, of.base_dist
        self.low, self.high = (jnp.asarray(getattr(of, end, other), jnp.result_type(float))
                               for end, other in (("low", -jnp.inf), ("high", jnp.inf)))
        super().__init__(of.batch_shape, validate_args=False)

    @property
    def support(self):
        return self.of.support

    def log_prob(self, value: jax.Array):
        return self.base.log_prob(value) - log_between(self.base, self.low, self.high)

    @property
    def mean(self):
        return self._moments()[0]

    @property
    def variance(self):
        return self._moments()[1]

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...]=()):
        dtype = jnp.result_type(self.base.loc, float)
        return self.icdf(jax.random.uniform(key, (*sample_shape, *self.batch_shape), dtype,
                                            minval=jnp.finfo(dtype).tiny))

    def icdf(self, q: jax.Array):
        """The value below which a share q lies."""
        still = jax.lax.stop_gradient
        x = still(_root(*still((self.base, self.low, self.high, q))))
        slope = still(jnp.maximum(jnp.exp(self.log_prob(x)), jnp.finfo(x.dtype).tiny))
        away = jnp.exp(log_between(self.base, self.low, x)
                       - log_between(self.base, self.low, self.high)) - q
        return x - (away - still(away)) / slope  # that root, with its slopes

    def _moments(self) -> tuple[jax.Array, jax.Array]:
        """Mean and variance, by Gauss and Legendre's sums on both sides of the middle."""
        limits = jnp.finfo(jnp.result_type(float))
        ends = [self.icdf(jnp.full(self.batch_shape, q)) for q in (limits.eps, 1 - limits.eps)]
        middle = jnp.clip(self.base.loc, *ends)
        widths = jnp.stack([middle - ends[0], ends[1] - middle])[:, None]
        x = jnp.stack([ends[0], middle])[:, None] + widths * self._along(NODES)
        weight = widths * self._along(WEIGHTS) * jnp.exp(self.log_prob(x))
        mean = (weight * x).sum((0, 1)) / weight.sum((0, 1))
        return mean, (weight * (x - mean) ** 2).sum((0, 1)) / weight.sum((0, 1))

    def _along(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers before the axes of the batch."""
        return numbers.reshape(-1, *(1,) * len(self.batch_shape))


def _root(base: dist.Distribution, low: jax.Array, high: jax.Array, q: jax.Array) -> jax.Array:
    """Where the chance between the ends is a share q, by bisection."""
    wanted = jnp.log(q) + log_between(base, low, high)
    shape = jnp.broadcast_shapes(jnp.shape(wanted), jnp.shape(low), jnp.shape(high))
    ends = [jnp.broadcast_to(jnp.clip(jnp.arcsinh((end - base.loc) / base.scale), -MAX_ASINH_SCALES,
                                      MAX_ASINH_SCALES), shape)
            for end in (low, high)]

    def place(v):
        return jnp.clip(base.loc + base.scale * jnp.sinh(v), low, high)

    def halved(_, ends):
        middle = 0.5 * (ends[0] + ends[1])
        above = log_between(base, low, place(middle)) >= wanted
        return [jnp.where(above, ends[0], middle), jnp.where(above, middle, ends[1])]

    steps = jnp.finfo(wanted.dtype).nmant + 4
    return place(sum(jax.lax.fori_loop(0, steps, halved, ends)) / 2)
