"""Normals between ends, whose density, mean and draws keep their digits where the ends lie far from
the middle.

NumPyro takes the log of a difference of two chances. With both ends on one side of the middle, 6
standard deviations away in float32 or 9 in float64, that is the log of 0: a density of +∞, at which
a climb ends and a sampler stays; and its draws leave the support. Here lengths count from the end
that is nearest, n = |near − loc| / scale and u = |x − near| / scale,

    log p(x) = −u (n + u/2) − log scale − log ∫ exp(−u (n + u/2)) du

of which nothing cancels. The integral, and those of the moments, is one of Gauss and Legendre's as
far as the density has not fallen by FALLEN nats.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import erf, erfc, ndtri
from numpyro.distributions import truncated

FALLEN = 36.0  # exp(−36) is 2e-16
OPEN = 40.0  # standard deviations: no end
STEPS = 8  # of Newton, for a quantile
NODES, WEIGHTS = (0.5 * x for x in np.polynomial.legendre.leggauss(40))
NODES = NODES + 0.5  # between 0 and 1
KINDS = (truncated.LeftTruncatedDistribution, truncated.RightTruncatedDistribution,
         truncated.TwoSidedTruncatedDistribution)


def sharp(distribution: dist.Distribution) -> dist.Distribution:
    """The same distribution, of a normal between ends one that keeps its digits."""
    if type(distribution.base_dist) is not dist.Normal:
        return distribution
    return TruncatedNormal(distribution)


class TruncatedNormal(dist.Distribution):
    """N(loc, scale²) between `low` and `high`, either of which may be infinite.

    Args:
        of: NumPyro's.

    Cost: 40 exponentials a density, as often for each of STEPS steps of Newton a draw.
    """

    def __init__(self, of: dist.Distribution):
        self.loc, self.scale = of.base_dist.loc, of.base_dist.scale
        self.low = getattr(of, "low", -jnp.inf)
        self.high = getattr(of, "high", jnp.inf)
        self.ends = of.support
        super().__init__(of.batch_shape, validate_args=False)

    @property
    def support(self):
        return self.ends

    def log_prob(self, value):
        tail, sides = self._tail(), self._sides()
        u = jnp.where(tail.use, tail.sign * (value - tail.end) / self.scale, 0.0)
        z = jnp.where(tail.use, 0.0, (value - self.loc) / self.scale)
        beyond = -_fall(tail.near, u) - jnp.log(_moments(tail.near, tail.width)[0])
        inside = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - jnp.log(sides.mass)
        return jnp.where(tail.use, beyond, inside) - jnp.log(self.scale)

    @property
    def mean(self):
        tail, sides = self._tail(), self._sides()
        beyond = tail.sign * _moments(tail.near, tail.width)[1]
        return jnp.where(tail.use, tail.end + self.scale * beyond,
                         self.loc + self.scale * sides.mean)

    @property
    def variance(self):
        tail, sides = self._tail(), self._sides()
        return self.scale**2 * jnp.where(tail.use, _moments(tail.near, tail.width)[2],
                                         sides.variance)

    def sample(self, key, sample_shape=()):
        dtype = jnp.result_type(self.loc, float)
        q = jax.random.uniform(key, (*sample_shape, *self.batch_shape), dtype,
                               minval=jnp.finfo(dtype).tiny)
        return self.icdf(q)

    def icdf(self, q):
        """The value below which a share q lies."""
        tail, sides = self._tail(), self._sides()
        counted = jnp.where(tail.sign > 0, q, 1.0 - q)  # from the nearest end
        far = tail.end + tail.sign * self.scale * _quantile(tail.near, tail.width, counted)
        upper = sides.low + sides.high > 0  # by the smaller of the chances on its two sides
        low = jnp.where(upper, -sides.high, sides.low)
        high = jnp.where(upper, -sides.low, sides.high)
        share = jnp.where(upper, 1.0 - q, q)
        z = ndtri((1.0 - share) * _below(low) + share * _below(high))
        return jnp.clip(jnp.where(tail.use, far, self.loc + self.scale * jnp.where(upper, -z, z)),
                        self.low, self.high)

    def _tail(self) -> "_Tail":
        above, under = self.low > self.loc, self.high < self.loc
        whole = self.high - self.low  # no difference of two lengths from loc, which may be large
        width = jnp.where(jnp.isfinite(whole), _finite(whole) / self.scale, jnp.inf)
        use = above | under | (width < 1.0)
        end = jnp.where(under, self.high, jnp.where(use, self.low, 0.0))
        sign = jnp.where(under, -1.0, 1.0)
        near = jnp.where(use, sign * (end - self.loc) / self.scale, 0.0)
        return _Tail(use, sign, end, near, jnp.where(use, width, jnp.inf))

    def _sides(self) -> "_Sides":
        use = ~self._tail().use
        low, high = (jnp.where(use, jnp.where(jnp.isfinite(end), (_finite(end) - self.loc)
                                              / self.scale, other), other)
                     for end, other in ((self.low, -OPEN), (self.high, OPEN)))
        mass = 0.5 * (erf(high / np.sqrt(2)) - erf(low / np.sqrt(2)))  # a sum of two
        first, last = _density(low), _density(high)
        mean = (first - last) / mass
        spread = (low * first - high * last) / mass
        return _Sides(low, high, mass, mean, 1.0 + spread - mean**2)


class _Tail(NamedTuple):
    """Lengths from the nearest end, in standard deviations: where both ends lie on one side of the
    middle, or near each other."""

    use: jax.Array
    sign: jax.Array  # 1 or −1: up or down from there
    end: jax.Array
    near: jax.Array  # n
    width: jax.Array  # f − n


class _Sides(NamedTuple):
    """Of a middle that lies between the ends: these, the chance between, mean and variance, in
    standard deviations about it."""

    low: jax.Array
    high: jax.Array
    mass: jax.Array
    mean: jax.Array
    variance: jax.Array


def _moments(near: jax.Array, width: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """∫ exp(−u (n + u/2)) du over the width, E u and var u."""
    width = jnp.minimum(width, 2.0 * FALLEN / (near + jnp.sqrt(near**2 + 2.0 * FALLEN)))
    u = width[..., None] * NODES.astype(width.dtype)
    weight = jnp.exp(-_fall(near[..., None], u)) * WEIGHTS.astype(width.dtype)
    whole = weight.sum(-1)
    mean = (weight * u).sum(-1) / whole
    return width * whole, mean, (weight * (u - mean[..., None]) ** 2).sum(-1) / whole


def _quantile(near: jax.Array, width: jax.Array, q: jax.Array) -> jax.Array:
    """u below which a share q lies, by Newton's steps from where the fall would be."""
    wanted = q * _moments(near, width)[0]
    fall = -jnp.log1p(q * jnp.expm1(-_fall(near, width)))
    u = 2.0 * fall / (near + jnp.sqrt(near**2 + 2.0 * fall))

    def step(_, u):
        return jnp.clip(u - (_moments(near, u)[0] - wanted) * jnp.exp(_fall(near, u)), 0.0, width)

    return jax.lax.fori_loop(0, STEPS, step, u)


def _fall(near: jax.Array, u: jax.Array) -> jax.Array:
    return u * (near + 0.5 * u)


def _density(z: jax.Array) -> jax.Array:
    return jnp.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)


def _finite(z: jax.Array) -> jax.Array:
    return jnp.where(jnp.isfinite(z), z, 0.0)


def _below(z: jax.Array) -> jax.Array:
    return 0.5 * erfc(-z / np.sqrt(2))
