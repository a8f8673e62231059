"""Structural time series: a level, a trend, seasons, a cycle, that wander and add up, seen with
noise: y_t = Σ parts + x_t β + ν, ν ~ N(0, noise²).

A row is a series, and time its only axis: data are {"y": (n, steps)}, or lists of series of
different lengths, unseen steps NaN. The parts are Gaussian chains, integrated
out along time, so that what is learnt are the spreads alone: all of them may be 0, which a fit says
of itself. `level_part` and its like may be called in any generative function beside other terms.

Priors: each spread HalfNormal(scale); the first level N(centre, (10 scale)²), the first slope and
seasons N(0, scale²). With scale the standard deviation of the data, and centre their first values,
they say little.

Parts of structural time series: Gaussian chains that add up, each a function of its own.

    level:    ℓ_t = ℓ_{t−1} + s_{t−1} + ε,   ε ~ N(0, level²)
    slope:    s_t = s_{t−1} + ζ,             ζ ~ N(0, slope²)           (of a trend; else s = 0)
    seasons:  γ_t = −γ_{t−1} − … − γ_{t−p+1} + ω,  ω ~ N(0, seasonal²)
    cycle:    c_t = ρ R(2π / period) c_{t−1} + κ,  κ ~ N(0, cycle² I),  c ∈ ℝ², R a rotation
    AR(p):    a_t = φ_1 a_{t−1} + … + φ_p a_{t−p} + ξ,  ξ ~ N(0, ar²)

Call a part outside rows(), where it samples its spread, and what it returns inside, where it
samples its path and gives what the part adds to each step. Cycles and autoregressions are
stationary: they begin in the law that their moves keep.

Sources: Harvey (1989), "Forecasting, Structural Time Series Models and the Kalman Filter", chapters
2 and 4; Durbin & Koopman (2012), "Time Series Analysis by State Space Methods", chapter 3;
Barndorff-Nielsen & Schou (1973), "On the parametrization of autoregressive models by partial
autocorrelations".
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro import deterministic, sample

import probml
from probml.errors import counted, listed
from probml.models.summaries.chains import series_tables
from probml.models.summaries.former_names import SIGMA

Part = Callable[[], jax.Array]  # called inside rows(): (rows, steps)
FIRST_LEVEL_SCALES = 10.0  # scales that a first level may lie from its centre


def level_part(name: str = "level", scale: ArrayLike = 1.0, centre: ArrayLike = 0.0,
               first: ArrayLike = None, still: bool = False) -> Part:
    """A level that follows a random walk: the standard deviation of its steps is the site
    `{name}_scale`, its path `name` (steps, 1).

    Args:
        scale: prior scale of the standard deviation. centre, first: mean and standard deviation of
            the first level; None: 10 scales.
        still: it is constant: the same at every step, without a scale.
    """
    _check_part("level_part", name, scale, centre=centre, first=first)
    sd = 0.0 if still else sample(f"{name}_scale", dist.HalfNormal(scale))
    first_sd = FIRST_LEVEL_SCALES * scale if first is None else first

    def path() -> jax.Array:
        z = sample(name, probml.GaussianChain(
            jnp.full(1, centre), first_sd**2 * jnp.eye(1), jnp.eye(1), sd**2 * jnp.eye(1)))
        return z[..., 0]

    return path


def trend_part(name: str = "trend", scale: ArrayLike = 1.0, centre: ArrayLike = 0.0,
               first: ArrayLike = None, smooth: bool = False) -> Part:
    """A level and its slope, both of which follow random walks: the standard deviations of their
    steps are `{name}_scale` (2,), their paths `name` (steps, 2).

    Args:
        scale, centre: as of `level_part`. first: standard deviations of the first level and slope;
            None: 10 scales and 1.
        smooth: the slope alone wanders, and `{name}_scale` () is its standard deviation.
    """
    _check_part("trend_part", name, scale, centre=centre, first=first, sizes=(2,))
    prior = dist.HalfNormal(scale)
    sd = sample(f"{name}_scale", prior if smooth else prior.expand([2]).to_event(1))
    first_sd = jnp.array([FIRST_LEVEL_SCALES * scale, scale] if first is None else first)

    def path() -> jax.Array:
        noise = jnp.stack([jnp.zeros_like(sd), sd]) if smooth else sd
        z = sample(name, probml.GaussianChain(
            jnp.array([centre, 0.0]), jnp.diag(first_sd**2), jnp.array([[1.0, 1.0], [0.0, 1.0]]),
            jnp.diag(noise**2)))
        return z[..., 0]

    return path


def seasonal_part(period: int, name: str = "season", scale: ArrayLike = 1.0,
                  first: ArrayLike = None) -> Part:
    """Effects of `period` seasons that add up to noise alone: their standard deviation is
    `{name}_scale`, their paths `name` (steps, period − 1), the present effect first.

    Args:
        scale: prior scale of the standard deviation. first: standard deviation of the first
            effects; None: a scale.
    """
    is_integer = isinstance(period, int) and not isinstance(period, bool)
    if not is_integer or period < 2:
        raise probml.ModelError(f"seasonal_part(period={period!r}): expected the number of "
                                f"seasons, an integer of at least 2, such as 4 for quarters or 12 "
                                f"for months")
    _check_part("seasonal_part", name, scale, first=first)
    sd = sample(f"{name}_scale", dist.HalfNormal(scale))
    lags, first_sd = period - 1, scale if first is None else first
    # the present effect is minus the others'; those are copied on, without noise
    transition = jnp.eye(lags, k=-1).at[0].set(-1.0)

    def path() -> jax.Array:
        z = sample(name, probml.GaussianChain(
            jnp.zeros(lags), first_sd**2 * jnp.eye(lags), transition,
            sd**2 * jnp.zeros((lags, lags)).at[0, 0].set(1.0)))
        return z[..., 0]

    return path


def cycle_part(shortest: float, longest: float, name: str = "cycle",
               scale: ArrayLike = 1.0) -> Part:
    """A damped cycle whose period is estimated: `{name}_period` between two bounds, in steps,
    `{name}_damping` ρ between 0 and 1, `{name}_scale`; its path `name` (steps, 2)."""
    _check_part("cycle_part", name, scale)
    are_numbers = all(isinstance(bound, int | float | np.number) for bound in (shortest, longest))
    if not are_numbers or not 2 <= shortest < longest < np.inf:
        raise probml.ModelError(f"cycle_part({shortest!r}, {longest!r}): expected the shortest and "
                                f"the longest period, 2 steps or more, such as cycle_part(6, 40)")
    sd = sample(f"{name}_scale", dist.HalfNormal(scale))
    period = sample(f"{name}_period", dist.Uniform(float(shortest), float(longest)))
    damping = sample(f"{name}_damping", dist.Uniform(0.0, 1.0))

    def path() -> jax.Array:
        c, s = jnp.cos(2 * jnp.pi / period), jnp.sin(2 * jnp.pi / period)
        transition = damping * jnp.stack([jnp.stack([c, s]), jnp.stack([-s, c])])
        z = sample(name, probml.GaussianChain(
            jnp.zeros(2), sd**2 / (1 - damping**2) * jnp.eye(2), transition,
            sd**2 * jnp.eye(2)))
        return z[..., 0]

    return path


def autoregressive_part(order: int, name: str = "ar", scale: ArrayLike = 1.0) -> Part:
    """A stationary autoregression: its partial autocorrelations `{name}_partial` (order,), the
    standard deviation of the innovations `{name}_scale`, its path `name` (steps, order), the
    present first; computed: `{name}_coefficients` (order,)."""
    order_of(order, "autoregressive_part")
    _check_part("autoregressive_part", name, scale)
    sd = sample(f"{name}_scale", dist.HalfNormal(scale))
    partial = sample(f"{name}_partial", dist.Uniform(-1.0, 1.0).expand([order]).to_event(1))
    coefficients, correlations = autoregression(partial)
    deterministic(f"{name}_coefficients", coefficients)

    def path() -> jax.Array:
        z = sample(name, probml.GaussianChain(
            jnp.zeros(order), sd**2 * correlations, companion(coefficients),
            sd**2 * jnp.zeros((order, order)).at[0, 0].set(1.0)))
        return z[..., 0]

    return path


def _check_part(where: str, name: object, scale: ArrayLike, centre: ArrayLike = 0.0,
                first: ArrayLike = None, sizes: tuple[int, ...] = ()) -> None:
    """Refuse a name that is none, and numbers that are known and not what a part takes."""
    if not isinstance(name, str) or not name:
        raise probml.ModelError(f"{where}(name={name!r:.60}): expected a text, the name that the "
                                f"new site will have, such as 'level'")
    checks: dict[str, tuple[ArrayLike, bool | None, tuple[int, ...]]] = {
        "scale": (scale, True, ()), "centre": (centre, None, ())}
    checks |= {} if first is None else {"first": (first, False, sizes)}
    for argument, (value, positive, shape) in checks.items():
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)):
            continue  # of a site, or of an input
        try:
            numbers = np.asarray(value, float)
        except (TypeError, ValueError):
            numbers = np.asarray(np.nan)
        in_range = numbers > 0 if positive else numbers >= (-np.inf if positive is None else 0)
        if numbers.shape != shape or not (np.isfinite(numbers) & in_range).all():
            phrase = {"scale": "a finite number above 0", "centre": "a finite number",
                      "first": "a finite number of at least 0"}[argument]
            phrase = phrase if not shape else f"{counted(shape[0], 'finite number')} of at least 0"
            raise probml.ModelError(f"{where}({argument}={value!r:.60}): expected {phrase}")


def autoregression(partial: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Coefficients (p,) of a stationary autoregression, and the covariance of p of its steps in
    units of the variance of what is new, (p, p), from its partial autocorrelations (p,), each
    between −1 and 1 (Durbin & Levinson's recursion)."""
    order = len(partial)
    coefficients, correlations, variance = jnp.zeros(0, partial.dtype), [jnp.ones(())], jnp.ones(())
    for k in range(order):
        past = jnp.stack(correlations[:0:-1]) if k else jnp.zeros(0, partial.dtype)
        correlations.append(coefficients @ past + partial[k] * variance)
        coefficients = jnp.concatenate([coefficients - partial[k] * coefficients[::-1],
                                        partial[k : k + 1]])
        variance = variance * (1 - partial[k] ** 2)
    lags = abs(jnp.arange(order)[:, None] - jnp.arange(order))
    return coefficients, jnp.stack(correlations)[lags] / variance


def companion(coefficients: jax.Array) -> jax.Array:
    """(a_{t−1}, …, a_{t−p}) → (a_t, …, a_{t−p+1}), (p, p)."""
    return jnp.eye(len(coefficients), k=-1).at[0].set(coefficients)


def order_of(order: ArrayLike, where: str) -> None:
    """Refuse an order of an autoregression that is none."""
    if not isinstance(order, int) or isinstance(order, bool) or order < 1:
        raise probml.ModelError(f"{where}(order={order!r}): expected an integer of at least 1")


TRENDS = ("still", "level", "trend", "smooth")


def _sample_observations(parts: list[Part], scale: ArrayLike, x: jax.Array | None = None) -> None:
    noise = sample("sigma", dist.HalfNormal(scale))
    if x is not None:
        beta = sample("beta", dist.Normal(0.0, 10.0 * scale).expand(x.shape[-1:]).to_event(1))
    with probml.rows():
        mean = parts[0]()
        for part in parts[1:]:
            mean = mean + part()
        if x is not None:
            mean = mean + x @ beta
        sample("y", dist.Normal(mean, noise).to_event(1))


@probml.model
def structural_time_series(x, trend="level", seasonal=None, cycle=None, order=0, scale=1.0,
                           centre=0.0, first=None):
    """A structural time series of any parts. Input `x` (n, steps, d), exogenous columns,
    or x=None.

    Sites: `sigma`; of the trend, `level_scale` or `trend_scale`, of seasons `season_scale`, of a
    cycle `cycle_scale`, `cycle_period`, `cycle_damping`, of an autoregression `ar_scale` and
    `ar_partial`; `beta` (d,) of columns; in every row `level` (steps, 1) or `trend` (steps, 2),
    `season` (steps, seasonal − 1), `cycle` (steps, 2), `ar` (steps, order), and `y` (steps,).

    Args:
        trend: "level", one that wanders; "trend", with a slope that wanders; "smooth", of which the
            slope alone wanders; "still", a level that is the same at every step.
        seasonal: seasons of a year, such as 12; None: none.
        cycle: the shortest and the longest period of a cycle in steps, such as (6, 40).
        order: of an autoregression.
        scale: the standard deviation of the data, about: prior scale of all standard deviations.
        centre: where the first level lies, about.
        first: standard deviations of the first level, slope and seasons, in the data's units; None:
            10 scales, 1 and 1.

    Raises:
        ModelError: another trend; a period, an order or bounds that are none.
    """
    if trend not in TRENDS:
        raise probml.ModelError(f"structural_time_series(trend={trend!r}): expected one of "
                                f"{listed(TRENDS)}")
    level_sd, slope_sd, season_sd = (None, None, None) if first is None else first
    if trend in ("level", "still"):
        parts = [level_part("level", scale, centre, level_sd, still=trend == "still")]
    else:
        parts = [trend_part("trend", scale, centre, None if first is None else (level_sd, slope_sd),
                            smooth=trend == "smooth")]
    if seasonal is not None:
        parts.append(seasonal_part(seasonal, "season", scale, season_sd))
    if cycle is not None:
        parts.append(cycle_part(cycle[0], cycle[1], "cycle", scale))
    if order:
        parts.append(autoregressive_part(order, "ar", scale))
    _sample_observations(parts, scale, x)


structural_time_series.summarized(series_tables)
structural_time_series.renames(SIGMA)


@probml.model
def local_level(scale=1.0, centre=0.0):
    """A level that follows a random walk, observed with noise (local level model).

    Sites: `level_scale`, `sigma`, and in every row `level` (steps, 1) and `y` (steps,).

    Args:
        scale: the standard deviation of the data, about: prior scale of both standard deviations.
        centre: where the first level lies, about.
    """
    _sample_observations([level_part("level", scale, centre)], scale)


local_level.summarized(series_tables)
local_level.renames(SIGMA)


@probml.model
def local_trend(scale=1.0, centre=0.0):
    """A level with a slope, both of which follow random walks, observed with noise (local linear
    trend model).

    Sites: `trend_scale` (2,), of level and slope, `sigma`, and in every row `trend` (steps, 2) and
    `y` (steps,). Args as of `local_level`.
    """
    _sample_observations([trend_part("trend", scale, centre)], scale)


local_trend.summarized(series_tables)
local_trend.renames(SIGMA)


@probml.model
def seasonal(period: int, scale=1.0, centre=0.0, trend: bool = True):
    """Harvey's basic structural model: a trend, or a level, and seasons, observed with noise.

    Sites: those of `local_trend`, or of `local_level`, and `season_scale`, and in every row
    `season` (steps, period − 1).

    Args:
        period: seasons of a cycle. scale, centre: as of `local_level`.
        trend: with a slope.
    """
    part = trend_part if trend else level_part
    _sample_observations([part("trend" if trend else "level", scale, centre),
                          seasonal_part(period, "season", scale)], scale)


seasonal.summarized(series_tables)
seasonal.renames(SIGMA)
