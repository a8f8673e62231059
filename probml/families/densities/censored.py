"""Log densities that keep their digits in float32: of censored values, of distributions between
bounds, and of NumPyro's distributions whose formulas take differences of large numbers.

NumPyro takes the log of one minus a probability: 6 standard deviations away, or where an
exponential has fallen by 16 nats, float32 leaves of it what stands for 0, and no slope. Of log Γ at
10⁵ float32 leaves a tenth of a nat. While a function of this package runs or a density is
evaluated, of a site, of a component of a mixture, or by log_prob in a function, such classes have
the method of their Entry instead; NumPyro is unchanged otherwise.

Between bounds NumPyro takes the log of a difference of two probabilities. With both bounds on one
side of the middle, for a normal 6 standard deviations away in float32 or 9 in float64, that is the
log of 0: a density of +∞, at which an optimiser ends and a sampler stays; and its draws leave the
support. Here the log is taken of the logarithms of the probabilities on the smaller side, a draw is
the root of the distribution function, and a moment is a sum over the density.
"""

import contextlib
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import log_sigmoid
from jax.scipy.special import gammainc, gammaincc, i0e, log_ndtr
from numpyro.distributions import truncated, util

from probml.numerics.logs import LOG_TWO_PI
from probml.numerics.process.threads import single_thread


def log1mexp(log: jax.Array):
    """log(1 − exp(log)), finite at 0 with its slopes."""
    return util.log1mexp(jnp.minimum(log, -jnp.finfo(log.dtype).tiny))


def _normal(law: dist.Distribution, x: jax.Array):
    z = (x - law.loc) / law.scale
    return log_ndtr(z), log_ndtr(-z)


def _by_survival(log_survival: Callable) -> Callable:
    """Both chances from (distribution, x) → log P(X > x)."""

    def both(law: dist.Distribution, x: jax.Array):
        log_tail = log_survival(law, x)
        return log1mexp(log_tail), log_tail

    return both


def _logistic(law: dist.Distribution, x: jax.Array):
    z = (x - law.loc) / law.scale
    return log_sigmoid(z), log_sigmoid(-z)


def _laplace(law: dist.Distribution, x: jax.Array):
    z = (x - law.loc) / law.scale
    tail = jnp.log(0.5) - jnp.abs(z)
    return jnp.where(z < 0, tail, jnp.log1p(-jnp.exp(tail))), jnp.where(
        z > 0, tail, jnp.log1p(-jnp.exp(tail)))


def _gumbel(law: dist.Distribution, x: jax.Array):
    log_cdf = -jnp.exp(-(x - law.loc) / law.scale)
    return log_cdf, log1mexp(log_cdf)


def _cauchy(law: dist.Distribution, x: jax.Array):
    z = (x - law.loc) / law.scale
    return jnp.log(jnp.arctan2(1.0, -z) / jnp.pi), jnp.log(jnp.arctan2(1.0, z) / jnp.pi)


def _gamma(law: dist.Distribution, x: jax.Array):
    y, least = law.rate * x, jnp.finfo(x.dtype).tiny
    return tuple(jnp.log(jnp.maximum(chance(law.concentration, y), least))
                 for chance in (gammainc, gammaincc))


# kind → (distribution, x) → log P(X ≤ x), log P(X > x)
LOG_CHANCES: dict[type, Callable] = {
    dist.Normal: _normal,
    dist.LogNormal: lambda own, x: _normal(own, jnp.log(x)),
    dist.HalfNormal: _by_survival(lambda own, x: jnp.log(2.0) + log_ndtr(-x / own.scale)),
    dist.Exponential: _by_survival(lambda own, x: -own.rate * x),
    dist.Weibull: _by_survival(
        lambda own, x: -jnp.exp(own.concentration * log_ratio(x, own.scale))),
    dist.Gompertz: _by_survival(lambda own, x: -own.concentration * jnp.expm1(own.rate * x)),
    dist.Pareto: _by_survival(lambda own, x: -own.alpha * log_ratio(x, own.scale)),
    dist.Logistic: _logistic, dist.Laplace: _laplace, dist.Gumbel: _gumbel, dist.Cauchy: _cauchy,
    dist.Gamma: _gamma,
}


def log_chances(base: dist.Distribution, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """log P(X ≤ x) and log P(X > x), within the support; NumPyro's cdf of what is not in
    LOG_CHANCES."""
    while isinstance(base, dist.ExpandedDistribution):
        base = base.base_dist
    low, high = (getattr(base.support, end, bound) for end, bound in (
        ("lower_bound", -jnp.inf), ("upper_bound", jnp.inf)))
    is_inside = (x > low) & (x < high)
    log_tails = LOG_CHANCES.get(type(base))
    if log_tails is None:
        eps, least = jnp.finfo(x.dtype).eps, 100.0 * jnp.finfo(x.dtype).tiny
        lower = base.cdf(x)
        return (jnp.log(jnp.clip(lower, least, 1.0)), jnp.log1p(-jnp.clip(lower, 0.0, 1 - eps)))
    safe = base.support.feasible_like(jnp.broadcast_to(x, jnp.broadcast_shapes(
        jnp.shape(x), base.batch_shape)))
    lower, upper = log_tails(base, jnp.where(is_inside, x, safe))
    return (jnp.where(is_inside, lower, jnp.where(x > low, 0.0, -jnp.inf)),
            jnp.where(is_inside, upper, jnp.where(x > low, -jnp.inf, 0.0)))


def one_sided(law: dist.Distribution, value: jax.Array):
    """log p of a value, or of all on the side of it on which it is censored."""
    x = jnp.asarray(value, jnp.result_type(float))
    side = isinstance(law, dist.RightCensoredDistribution)
    return jnp.where(law.censored, log_chances(law.base_dist, x)[side], law.base_dist.log_prob(x))


def log_between(base: dist.Distribution, low: jax.Array, high: jax.Array) -> jax.Array:
    """log P(low < X ≤ high), by the smaller of the two sides' chances; of ends so close that
    nothing of their difference is left, by the density between them."""
    (low_cdf, low_sf), (high_cdf, high_sf) = (_chances_at(base, end) for end in (low, high))
    in_upper = low_sf < high_cdf
    larger, smaller = jnp.where(in_upper, low_sf, high_cdf), jnp.where(in_upper, high_sf, low_cdf)
    finite = jnp.isfinite(smaller)
    log_gap = jnp.where(finite, larger - smaller, 1.0)
    close = log_gap**2 < jnp.finfo(log_gap.dtype).eps
    width = jnp.where(close, high - low, 1.0)
    middle = jnp.where(close, low + 0.5 * width, base.support.feasible_like(width))
    return jnp.where(close, jnp.log(width) + base.log_prob(middle),
                     larger + jnp.where(finite, log1mexp(-jnp.where(close, 1.0, log_gap)), 0.0))


def _chances_at(base, end):
    """log_chances of an end that may be infinite."""
    finite = jnp.where(jnp.isfinite(end), end, 0.0)
    safe = base.support.feasible_like(finite)
    lower, upper = log_chances(base, jnp.where(jnp.isfinite(end), end, safe))
    return (jnp.where(jnp.isneginf(end), -jnp.inf, jnp.where(jnp.isposinf(end), 0.0, lower)),
            jnp.where(jnp.isneginf(end), 0.0, jnp.where(jnp.isposinf(end), -jnp.inf, upper)))


def censored_log_prob(law: dist.Distribution, value: jax.Array):
    """log p of a censored value: the density where both ends agree, else the probability of the
    interval between them or, with censoring on both sides, outside of it."""
    value = jnp.asarray(value, jnp.result_type(float))
    low, high = value[..., 0], value[..., 1]
    no_low, no_high, _, outside, point = law._get_censoring_masks(value)
    low = jnp.where(no_low, -jnp.inf, low)
    high = jnp.where(no_high, jnp.inf, jnp.where(point, jnp.inf, high))
    beyond = jnp.logaddexp(_chances_at(law.base_dist, low)[0], _chances_at(law.base_dist, high)[1])
    log = jnp.where(outside, beyond, log_between(law.base_dist, low, high))
    return jnp.where(point, law.base_dist.log_prob(jnp.where(no_low, high, low)), log)


def log_ratio(x: jax.Array, y: jax.Array):
    """log(x / y), to the last digits near 1 as well."""
    w = (x - y) / y
    return jnp.where(jnp.abs(w) < 0.5, jnp.log1p(jnp.clip(w, -0.5, 0.5)), jnp.log(x) - jnp.log(y))


def pareto(law: dist.Distribution, x: jax.Array):
    return jnp.log(law.alpha) - jnp.log(x) - law.alpha * log_ratio(x, law.scale)


def von_mises(law: dist.Distribution, x: jax.Array):
    k = law.concentration
    return -2 * k * jnp.sin((x - law.loc) / 2) ** 2 - LOG_TWO_PI - jnp.log(i0e(k))


def weibull(law: dist.Distribution, x: jax.Array):
    c, log = law.concentration, log_ratio(x, law.scale)
    return jnp.log(c) - jnp.log(law.scale) + (c - 1) * log - jnp.exp(c * log)


Method = Callable[[dist.Distribution, jax.Array], jax.Array]
_methods: dict[type[dist.Distribution], Method] = {}
_entered: list[bool] = []


def add(kind: type, method: Method) -> None:
    """Compute the log density of a class of distributions, and of those derived from it, so."""
    _methods[kind] = method


@contextlib.contextmanager
def accurate() -> Iterator[None]:
    """Inside, log_prob of NumPyro's distributions keeps its digits; one may enter it again."""
    with single_thread():
        if _entered:  # by this thread
            yield
            return
        originals = {kind: vars(kind).get("log_prob") for kind in _methods}
        _entered.append(True)
        try:
            for kind, method in _methods.items():
                kind.log_prob = method
            yield
        finally:
            for kind, original in originals.items():
                if original is None:
                    del kind.log_prob
                else:
                    kind.log_prob = original
            _entered.clear()


MAX_ASINH_SCALES = 45.0  # scales from the middle, as an area hyperbolic sine: no end
NODES, WEIGHTS = (0.5 * x for x in np.polynomial.legendre.leggauss(40))
NODES = NODES + 0.5  # between 0 and 1
KINDS = (truncated.LeftTruncatedDistribution, truncated.RightTruncatedDistribution,
         truncated.TwoSidedTruncatedDistribution)
_PLAIN = {kind: kind.log_prob for kind in KINDS}


def of_cut(distribution: dist.Distribution, value: jax.Array) -> jax.Array:
    """log p between ends: NumPyro's own where no logarithms of chances are known."""
    sharper = sharp(distribution)
    return (_PLAIN[type(distribution)](distribution, value) if sharper is distribution
            else sharper.log_prob(value))


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
        constant = jax.lax.stop_gradient
        x = constant(_root(*constant((self.base, self.low, self.high, q))))
        slope = constant(jnp.maximum(jnp.exp(self.log_prob(x)), jnp.finfo(x.dtype).tiny))
        excess = jnp.exp(log_between(self.base, self.low, x)
                         - log_between(self.base, self.low, self.high)) - q
        return x - (excess - constant(excess)) / slope  # that root, with its slopes

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
    lims = [jnp.broadcast_to(jnp.clip(jnp.arcsinh((end - base.loc) / base.scale), -MAX_ASINH_SCALES,
                                      MAX_ASINH_SCALES), shape)
            for end in (low, high)]

    def place(v):
        return jnp.clip(base.loc + base.scale * jnp.sinh(v), low, high)

    def halved(_, lims):
        middle = 0.5 * (lims[0] + lims[1])
        is_above = log_between(base, low, place(middle)) >= wanted
        return [jnp.where(is_above, lims[0], middle), jnp.where(is_above, middle, lims[1])]

    steps = jnp.finfo(wanted.dtype).nmant + 4
    return place(sum(jax.lax.fori_loop(0, steps, halved, lims)) / 2)
