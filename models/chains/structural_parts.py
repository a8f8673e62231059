"""Parts of structural time series: Gaussian chains that add up, each a function of its own.

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

Part = Callable[[], jax.Array]  # called inside rows(): (rows, steps)
FIRST_LEVEL_SCALES = 10.0  # scales that a first level may lie from its centre


def level_part(name: str = "level", scale: ArrayLike = 1.0, centre: ArrayLike = 0.0,
               first: ArrayLike = None, still: bool = False) -> Part:
    """A level that wanders: its standard deviation is the site `{name}_scale`, its path `name`
    (steps, 1).

    Args:
        scale: prior scale of the standard deviation. centre, first: mean and standard deviation of
            the first level; None: 10 scales.
        still: it is constant: the same at every step, without a scale.
    """
    _checked("level_part", name, scale, centre=centre, first=first)
    spread = 0.0 if still else sample(f"{name}_scale", dist.HalfNormal(scale))
    wide = FIRST_LEVEL_SCALES * scale if first is None else first

    def path() -> jax.Array:
        z = sample(name, probml.GaussianChain(
            jnp.full(1, centre), wide**2 * jnp.eye(1), jnp.eye(1), spread**2 * jnp.eye(1)))
        return z[..., 0]

    return path


def trend_part(name: str = "trend", scale: ArrayLike = 1.0, centre: ArrayLike = 0.0,
               first: ArrayLike = None, smooth: bool = False) -> Part:
    """A level and its slope, both of which wander: their standard deviations are `{name}_scale`
    (2,), their paths `name` (steps, 2).

    Args:
        scale, centre: as of `level_part`. first: standard deviations of the first level and slope;
            None: 10 scales and 1.
        smooth: the slope alone wanders, and `{name}_scale` () is its standard deviation.
    """
    _checked("trend_part", name, scale, centre=centre, first=first, sizes=(2,))
    prior = dist.HalfNormal(scale)
    spread = sample(f"{name}_scale", prior if smooth else prior.expand([2]).to_event(1))
    wide = jnp.array([FIRST_LEVEL_SCALES * scale, scale] if first is None else first)

    def path() -> jax.Array:
        noise = jnp.stack([jnp.zeros_like(spread), spread]) if smooth else spread
        z = sample(name, probml.GaussianChain(
            jnp.array([centre, 0.0]), jnp.diag(wide**2), jnp.array([[1.0, 1.0], [0.0, 1.0]]),
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
    whole = isinstance(period, int) and not isinstance(period, bool)
    if not whole or period < 2:
        raise probml.ModelError(f"seasonal_part(period={period!r}): expected the number of "
                                f"seasons, an integer of at least 2, such as 4 for quarters or 12 "
                                f"for months")
    _checked("seasonal_part", name, scale, first=first)
    spread = sample(f"{name}_scale", dist.HalfNormal(scale))
    lags, wide = period - 1, scale if first is None else first
    # the present effect is minus the others'; those are copied on, without noise
    turn = jnp.eye(lags, k=-1).at[0].set(-1.0)

    def path() -> jax.Array:
        z = sample(name, probml.GaussianChain(
            jnp.zeros(lags), wide**2 * jnp.eye(lags), turn,
            spread**2 * jnp.zeros((lags, lags)).at[0, 0].set(1.0)))
        return z[..., 0]

    return path


def cycle_part(shortest: float, longest: float, name: str = "cycle",
               scale: ArrayLike = 1.0) -> Part:
    """A damped wave whose period is learnt: `{name}_period` between two bounds, in steps,
    `{name}_damping` ρ between 0 and 1, `{name}_scale`; its path `name` (steps, 2)."""
    _checked("cycle_part", name, scale)
    bounds = all(isinstance(one, int | float | np.number) for one in (shortest, longest))
    if not bounds or not 2 <= shortest < longest < np.inf:
        raise probml.ModelError(f"cycle_part({shortest!r}, {longest!r}): expected the shortest and "
                                f"the longest period in steps, at least 2, such as 6, 40")
    spread = sample(f"{name}_scale", dist.HalfNormal(scale))
    period = sample(f"{name}_period", dist.Uniform(float(shortest), float(longest)))
    damping = sample(f"{name}_damping", dist.Uniform(0.0, 1.0))

    def path() -> jax.Array:
        c, s = jnp.cos(2 * jnp.pi / period), jnp.sin(2 * jnp.pi / period)
        turn = damping * jnp.stack([jnp.stack([c, s]), jnp.stack([-s, c])])
        z = sample(name, probml.GaussianChain(
            jnp.zeros(2), spread**2 / (1 - damping**2) * jnp.eye(2), turn,
            spread**2 * jnp.eye(2)))
        return z[..., 0]

    return path


def autoregressive_part(order: int, name: str = "ar", scale: ArrayLike = 1.0) -> Part:
    """A stationary autoregression: its partial autocorrelations `{name}_partial` (order,), the
    standard deviation of the innovations `{name}_scale`, its path `name` (steps, order), the
    present first; computed: `{name}_coefficients` (order,)."""
    order_of(order, "autoregressive_part")
    _checked("autoregressive_part", name, scale)
    spread = sample(f"{name}_scale", dist.HalfNormal(scale))
    partial = sample(f"{name}_partial", dist.Uniform(-1.0, 1.0).expand([order]).to_event(1))
    coefficients, correlations = autoregression(partial)
    deterministic(f"{name}_coefficients", coefficients)

    def path() -> jax.Array:
        z = sample(name, probml.GaussianChain(
            jnp.zeros(order), spread**2 * correlations, companion(coefficients),
            spread**2 * jnp.zeros((order, order)).at[0, 0].set(1.0)))
        return z[..., 0]

    return path


def _checked(where: str, name: object, scale: ArrayLike, centre: ArrayLike = 0.0,
             first: ArrayLike = None, sizes: tuple[int, ...] = ()) -> None:
    """Refuse a name that is none, and numbers that are known and not what a part takes."""
    if not isinstance(name, str) or not name:
        raise probml.ModelError(f"{where}(name={name!r:.60}): expected the name of a site, such as "
                                f"'level'")
    said = {"scale": (scale, True, ()), "centre": (centre, None, ())}
    said |= {} if first is None else {"first": (first, False, sizes)}
    for argument, (value, positive, shape) in said.items():
        if any(isinstance(one, jax.core.Tracer) for one in jax.tree.leaves(value)):
            continue  # of a site, or of an input
        try:
            numbers = np.asarray(value, float)
        except (TypeError, ValueError):
            numbers = np.asarray(np.nan)
        low = numbers > 0 if positive else numbers >= (-np.inf if positive is None else 0)
        if numbers.shape != shape or not (np.isfinite(numbers) & low).all():
            what = {"scale": "a finite number above 0", "centre": "a finite number",
                    "first": "a finite number of at least 0"}[argument]
            what = what if not shape else f"{shape[0]} finite numbers of at least 0"
            raise probml.ModelError(f"{where}({argument}={value!r:.60}): expected {what}")


def autoregression(partial: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Coefficients (p,) of a stationary autoregression, and the covariance of p of its steps in
    units of the variance of what is new, (p, p), from its partial autocorrelations (p,), each
    between −1 and 1 (Durbin & Levinson's recursion)."""
    order = len(partial)
    coefficients, correlations, left = jnp.zeros(0, partial.dtype), [jnp.ones(())], jnp.ones(())
    for k in range(order):
        past = jnp.stack(correlations[:0:-1]) if k else jnp.zeros(0, partial.dtype)
        correlations.append(coefficients @ past + partial[k] * left)
        coefficients = jnp.concatenate([coefficients - partial[k] * coefficients[::-1],
                                        partial[k : k + 1]])
        left = left * (1 - partial[k] ** 2)
    lags = abs(jnp.arange(order)[:, None] - jnp.arange(order))
    return coefficients, jnp.stack(correlations)[lags] / left


def companion(coefficients: jax.Array) -> jax.Array:
    """(a_{t−1}, …, a_{t−p}) → (a_t, …, a_{t−p+1}), (p, p)."""
    return jnp.eye(len(coefficients), k=-1).at[0].set(coefficients)


def order_of(order: ArrayLike, where: str) -> None:
    """Refuse an order of an autoregression that is none."""
    if not isinstance(order, int) or isinstance(order, bool) or order < 1:
        raise probml.ModelError(f"{where}(order={order!r}): expected an integer of at least 1")
