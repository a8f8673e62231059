"""Structural time series: a level, a trend and seasons that wander and add up, seen with noise.

    level:    ℓ_t = ℓ_{t−1} + s_{t−1} + ε,   ε ~ N(0, level²)
    slope:    s_t = s_{t−1} + ζ,             ζ ~ N(0, slope²)           (of a trend; else s = 0)
    seasons:  γ_t = −γ_{t−1} − … − γ_{t−p+1} + ω,  ω ~ N(0, seasonal²)
    seen:     y_t = ℓ_t + γ_t + ν,           ν ~ N(0, noise²)

A row is a series, and time its only axis: data are {"y": (n, steps)}, or lists of series of
different lengths, unseen steps NaN. The parts are Gaussian chains, integrated out along time, so
that what is learnt are the spreads alone: all of them may be 0, which a fit says of itself. The
parts are functions of their own: `level_part` and its like may be called in any generative function
beside other terms, their spreads outside rows(), what they return inside.

Priors: each spread HalfNormal(scale); the first level N(centre, (10 scale)²), the first slope and
seasons N(0, scale²). With scale the standard deviation of the data, and centre their first values,
they say little.

Sources: Harvey (1989), "Forecasting, Structural Time Series Models and the Kalman Filter", chapters
2 and 4; Durbin & Koopman (2012), "Time Series Analysis by State Space Methods", chapters 2 and 3.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import sample

import probml

Part = Callable[[], jax.Array]  # called inside rows(): (rows, steps)
WIDE = 10.0  # scales that a first level may lie from its centre


def level_part(name: str = "level", scale: Any = 1.0, centre: Any = 0.0) -> Part:
    """A level that wanders: its spread is the site `{name}_scale`, its path `name`."""
    spread = sample(f"{name}_scale", dist.HalfNormal(scale))

    def path() -> jax.Array:
        z = sample(name, probml.GaussianChain(
            jnp.full(1, centre), (WIDE * scale) ** 2 * jnp.eye(1), jnp.eye(1),
            spread**2 * jnp.eye(1)))
        return z[..., 0]

    return path


def trend_part(name: str = "trend", scale: Any = 1.0, centre: Any = 0.0) -> Part:
    """A level and its slope, both of which wander: their spreads are `{name}_scale` (2,), their
    paths `name` (steps, 2)."""
    spread = sample(f"{name}_scale", dist.HalfNormal(scale).expand([2]).to_event(1))

    def path() -> jax.Array:
        first = jnp.array([(WIDE * scale) ** 2, scale**2])
        z = sample(name, probml.GaussianChain(
            jnp.array([centre, 0.0]), jnp.diag(first), jnp.array([[1.0, 1.0], [0.0, 1.0]]),
            jnp.diag(spread**2)))
        return z[..., 0]

    return path


def seasonal_part(period: int, name: str = "season", scale: Any = 1.0) -> Part:
    """Effects of `period` seasons that add up to noise alone: their spread is `{name}_scale`, their
    paths `name` (steps, period − 1), the present effect first."""
    whole = isinstance(period, int) and not isinstance(period, bool)
    if not whole or period < 2:
        raise probml.ModelError(f"seasonal_part(period={period!r}): expected a whole number of "
                                f"seasons, at least 2, such as 4 of quarters or 12 of months")
    spread = sample(f"{name}_scale", dist.HalfNormal(scale))
    lags = period - 1
    # the present effect is minus the others'; those are copied on, without noise
    turn = jnp.eye(lags, k=-1).at[0].set(-1.0)

    def path() -> jax.Array:
        z = sample(name, probml.GaussianChain(
            jnp.zeros(lags), scale**2 * jnp.eye(lags), turn,
            spread**2 * jnp.zeros((lags, lags)).at[0, 0].set(1.0)))
        return z[..., 0]

    return path


def _seen(parts: list[Part], scale: Any) -> None:
    noise = sample("noise", dist.HalfNormal(scale))
    with probml.rows():
        mean = parts[0]()
        for part in parts[1:]:
            mean = mean + part()
        sample("y", dist.Normal(mean, noise).to_event(1))


@probml.model
def local_level(scale=1.0, centre=0.0):
    """A level that wanders, seen with noise.

    Sites: `level_scale`, `noise`, and in every row `level` (steps, 1) and `y` (steps,).

    Args:
        scale: the standard deviation of the data, about: prior scale of both spreads.
        centre: where the first level lies, about.
    """
    _seen([level_part("level", scale, centre)], scale)


@probml.model
def local_trend(scale=1.0, centre=0.0):
    """A level whose slope wanders too, seen with noise.

    Sites: `trend_scale` (2,), of level and slope, `noise`, and in every row `trend` (steps, 2) and
    `y` (steps,). Args as of `local_level`.
    """
    _seen([trend_part("trend", scale, centre)], scale)


@probml.model
def seasonal(period: int, scale=1.0, centre=0.0, trend: bool = True):
    """Harvey's basic structural model: a trend, or a level, and seasons, seen with noise.

    Sites: those of `local_trend`, or of `local_level`, and `season_scale`, and in every row
    `season` (steps, period − 1).

    Args:
        period: seasons of a cycle. scale, centre: as of `local_level`.
        trend: with a slope.
    """
    own = trend_part if trend else level_part
    _seen([own("trend" if trend else "level", scale, centre),
           seasonal_part(period, "season", scale)], scale)
