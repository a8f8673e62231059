"""Distributions between ends, whose density, mean and draws keep their digits where the ends lie
far from the middle.

NumPyro takes the log of a difference of two chances. With both ends on one side of the middle, for
a normal 6 standard deviations away in float32 or 9 in float64, that is the log of 0: a density of
+∞, at which a climb ends and a sampler stays; and its draws leave the support. Here lengths count
from the end that is nearest, n = |near − loc| / scale and u = |x − near| / scale; of a normal

    log p(x) = −u (n + u/2) − log scale − log ∫ exp(−u (n + u/2)) du

of which nothing cancels. The integral, and those of the moments, is one of Gauss and Legendre's as
far as the density has not fallen by FALLEN nats. Of a Laplace, a logistic and a Cauchy it is
closed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import log_sigmoid
from jax.scipy.special import erf, erfc, expit, ndtri
from numpyro.distributions import truncated

FALLEN = 36.0  # exp(−36) is 2e-16
OPEN = 40.0  # standard deviations: no end
STEPS = 8  # of Newton, for a quantile
NODES, WEIGHTS = (0.5 * x for x in np.polynomial.legendre.leggauss(40))
NODES = NODES + 0.5  # between 0 and 1
KINDS = (truncated.LeftTruncatedDistribution, truncated.RightTruncatedDistribution,
         truncated.TwoSidedTruncatedDistribution)


_PLAIN = {kind: kind.log_prob for kind in KINDS}


def of_cut(distribution: dist.Distribution, value: jax.Array) -> jax.Array:
    """log p between ends: NumPyro's own of what is not in SHARP."""
    found = sharp(distribution)
    return (_PLAIN[type(distribution)](distribution, value) if found is distribution
            else found.log_prob(value))


def sharp(distribution: dist.Distribution) -> dist.Distribution:
    """The same distribution between ends, one that keeps its digits where there is such."""
    found = SHARP.get(type(distribution.base_dist))
    return distribution if found is None else found(distribution)


class Truncated(dist.Distribution):
    """A distribution about `loc`, as wide as `scale`, between `low` and `high`, either of which may
    be infinite.

    Args:
        of: NumPyro's.
    """

    def __init__(self, of: dist.Distribution):
        self.of, self.loc, self.scale = of, of.base_dist.loc, of.base_dist.scale
        self.low = getattr(of, "low", -jnp.inf)
        self.high = getattr(of, "high", jnp.inf)
        super().__init__(of.batch_shape, validate_args=False)

    @property
    def support(self):
        return self.of.support

    @property
    def mean(self):
        return self.of.mean

    @property
    def variance(self):
        return self.of.variance

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()):
        dtype = jnp.result_type(self.loc, float)
        q = jax.random.uniform(key, (*sample_shape, *self.batch_shape), dtype,
                               minval=jnp.finfo(dtype).tiny)
        return self.icdf(q)

    def _width(self) -> jax.Array:
        """From end to end, in scales: no difference of two lengths from loc, which may be large."""
        whole = self.high - self.low
        return jnp.where(jnp.isfinite(whole), _finite(whole) / self.scale, jnp.inf)


class TruncatedNormal(Truncated):
    """N(loc, scale²) between ends.

    Cost: 40 exponentials a density, as often for each of STEPS steps of Newton a draw.
    """

    def log_prob(self, value: jax.Array):
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

    def icdf(self, q: jax.Array):
        """The value below which a share q lies."""
        tail, sides = self._tail(), self._sides()
        counted = jnp.where(tail.sign > 0, q, 1.0 - q)  # from the nearest end
        far = tail.end + tail.sign * self.scale * _quantile(tail.near, tail.width, counted)
        upper = sides.low + sides.high > 0  # by the smaller of the chances on its two sides
        low = jnp.where(upper, -sides.high, sides.low)
        high = jnp.where(upper, -sides.low, sides.high)
        share = jnp.where(upper, 1.0 - q, q)
        z = ndtri((1.0 - share) * _normal_cdf(low) + share * _normal_cdf(high))
        return jnp.clip(jnp.where(tail.use, far, self.loc + self.scale * jnp.where(upper, -z, z)),
                        self.low, self.high)

    def _tail(self) -> "_Tail":
        above, under = self.low > self.loc, self.high < self.loc
        width = self._width()
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


class Symmetric(Truncated):
    """One whose chances are closed, symmetric about loc.

    It is turned so that the end with more beyond it comes first; where that lies above the middle,
    lengths count from it.
    """

    def log_prob(self, value: jax.Array):
        turned = self._turned()
        u = turned.sign * (value - turned.end) / self.scale
        z = turned.sign * (value - self.loc) / self.scale
        beyond = self._beyond(turned.above, turned.width, jnp.where(turned.use, u, 0.0))
        inside = self._log_density_at(turned.first, turned.last, jnp.where(turned.use, 0.0, z))
        return jnp.where(turned.use, beyond, inside) - jnp.log(self.scale)

    def icdf(self, q: jax.Array):
        """The value below which a share q lies."""
        turned = self._turned()
        counted = jnp.where(turned.sign > 0, q, 1.0 - q)  # from the first end
        u = jnp.clip(self._length(turned.above, turned.width, counted), 0.0, turned.width)
        z = self._place(turned.first, turned.last, counted)
        return jnp.clip(jnp.where(turned.use, turned.end + turned.sign * self.scale * u,
                                  self.loc + turned.sign * self.scale * z), self.low, self.high)

    def _turned(self) -> "_Turned":
        low, high = (jnp.where(jnp.isfinite(end), (_finite(end) - self.loc) / self.scale, end)
                     for end in (self.low, self.high))
        down = jnp.abs(low) > jnp.abs(high)
        first, last = jnp.where(down, -high, low), jnp.where(down, -low, high)
        use = first > 0
        return _Turned(jnp.where(down, -1.0, 1.0), use,
                       jnp.where(use, jnp.where(down, self.high, self.low), 0.0),
                       jnp.where(use, first, 1.0), jnp.where(use, self._width(), jnp.inf),
                       jnp.where(use, -1.0, first), jnp.where(use, 1.0, last))

    def _beyond(self, near: jax.Array, width: jax.Array, u: jax.Array) -> jax.Array:
        """log p, in scales, at a length u from an end that lies `near` above the middle."""
        raise NotImplementedError

    def _log_density_at(self, first: jax.Array, last: jax.Array, z: jax.Array) -> jax.Array:
        """log p, in scales, at a length z from a middle between the ends, or near one."""
        raise NotImplementedError

    def _length(self, near: jax.Array, width: jax.Array, q: jax.Array) -> jax.Array:
        """u within which a share q lies."""
        raise NotImplementedError

    def _place(self, first: jax.Array, last: jax.Array, q: jax.Array) -> jax.Array:
        """z below which a share q lies."""
        raise NotImplementedError


class TruncatedLaplace(Symmetric):
    """exp(−|x − loc| / scale) between ends; beyond its middle exponential."""

    def _beyond(self, near: jax.Array, width: jax.Array, u: jax.Array):
        return -u - _log_left(width)

    def _log_density_at(self, first: jax.Array, last: jax.Array, z: jax.Array):
        return -jnp.abs(z) - jnp.log(-jnp.expm1(first) - jnp.expm1(-last))

    def _length(self, near: jax.Array, width: jax.Array, q: jax.Array):
        return -jnp.log1p(q * jnp.expm1(-width))

    def _place(self, first: jax.Array, last: jax.Array, q: jax.Array):
        below = (1.0 - q) * jnp.exp(first) + q * (2.0 - jnp.exp(-last))
        above = (1.0 - q) * (2.0 - jnp.exp(first)) + q * jnp.exp(-last)
        return jnp.where(below < above, jnp.log(below), -jnp.log(above))


class TruncatedLogistic(Symmetric):
    """1 / cosh²((x − loc) / 2 scale) between ends."""

    def _beyond(self, near: jax.Array, width: jax.Array, u: jax.Array):
        return (-u + 2.0 * log_sigmoid(near + u) - log_sigmoid(near) - log_sigmoid(near + width)
                - _log_left(width))

    def _log_density_at(self, first: jax.Array, last: jax.Array, z: jax.Array):
        return (log_sigmoid(z) + log_sigmoid(-z) - log_sigmoid(-first) - log_sigmoid(last)
                - _log_left(last - first))

    def _length(self, near: jax.Array, width: jax.Array, q: jax.Array):
        # chances above, times exp(near)
        above = (1.0 - q) * expit(near) + q * jnp.exp(-width) * expit(near + width)
        return jnp.log1p(-jnp.exp(-near) * above) - jnp.log(above)

    def _place(self, first: jax.Array, last: jax.Array, q: jax.Array):
        below = (1.0 - q) * expit(first) + q * expit(last)
        above = (1.0 - q) * expit(-first) + q * expit(-last)
        return jnp.log(below) - jnp.log(above)


class TruncatedCauchy(Symmetric):
    """1 / (1 + (x − loc)² / scale²) between ends: of equal angles, arctan of lengths."""

    def _beyond(self, near: jax.Array, width: jax.Array, u: jax.Array):
        return -2.0 * jnp.log(jnp.hypot(1.0, near + u)) - jnp.log(self._angle(near, width))

    def _log_density_at(self, first: jax.Array, last: jax.Array, z: jax.Array):
        return -2.0 * jnp.log(jnp.hypot(1.0, z)) - jnp.log(jnp.arctan(last) - jnp.arctan(first))

    def _length(self, near: jax.Array, width: jax.Array, q: jax.Array):
        slope = jnp.tan(q * self._angle(near, width))
        return slope * (1.0 / near + near) / jnp.maximum(1.0 / near - slope, 0.0)

    def _place(self, first: jax.Array, last: jax.Array, q: jax.Array):
        return jnp.tan((1.0 - q) * jnp.arctan(first) + q * jnp.arctan(last))

    @staticmethod
    def _angle(near: jax.Array, width: jax.Array):
        """arctan(near + width) − arctan(near), of which no two numbers cancel."""
        longer = near + _finite(width)
        share = jnp.where(jnp.isfinite(width), _finite(width) / longer, 1.0)
        return jnp.arctan2(share, jnp.where(jnp.isfinite(width), 1.0 / longer, 0.0) + near)


SHARP = {dist.Normal: TruncatedNormal, dist.Laplace: TruncatedLaplace,
         dist.Logistic: TruncatedLogistic, dist.Cauchy: TruncatedCauchy}


class _Turned(NamedTuple):
    """Lengths in scales, turned so that the first end is not the farther from the middle."""

    sign: jax.Array  # 1 or −1: up or down
    use: jax.Array  # whether the first end lies above the middle
    end: jax.Array  # that end
    above: jax.Array  # the first end's length from the middle, where it lies above
    width: jax.Array
    first: jax.Array  # ends about a middle that lies between them
    last: jax.Array


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

    def step(_: jax.Array, u: jax.Array):
        return jnp.clip(u - (_moments(near, u)[0] - wanted) * jnp.exp(_fall(near, u)), 0.0, width)

    return jax.lax.fori_loop(0, STEPS, step, u)


def _fall(near: jax.Array, u: jax.Array) -> jax.Array:
    return u * (near + 0.5 * u)


def _density(z: jax.Array) -> jax.Array:
    return jnp.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)


def _finite(z: jax.Array) -> jax.Array:
    return jnp.where(jnp.isfinite(z), z, 0.0)


def _normal_cdf(z: jax.Array) -> jax.Array:
    """The standard normal distribution function."""
    return 0.5 * erfc(-z / np.sqrt(2))


def _log_left(width: jax.Array) -> jax.Array:
    """log(1 − exp(−width))."""
    return jnp.log(-jnp.expm1(-width))
