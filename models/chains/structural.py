"""Structural time series: a level, a trend, seasons, a cycle, that wander and add up, seen with
noise: y_t = Σ parts + x_t β + ν, ν ~ N(0, noise²).

A row is a series, and time its only axis: data are {"y": (n, steps)}, or lists of series of
different lengths, unseen steps NaN. The parts are Gaussian chains (structural_parts.py), integrated
out along time, so that what is learnt are the spreads alone: all of them may be 0, which a fit says
of itself. `level_part` and its like may be called in any generative function beside other terms.

Priors: each spread HalfNormal(scale); the first level N(centre, (10 scale)²), the first slope and
seasons N(0, scale²). With scale the standard deviation of the data, and centre their first values,
they say little.

Sources: as of structural_parts.py.
"""


import jax
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro import sample

import probml
from probml.models.chains.structural_parts import (
    Part,
    autoregressive_part,
    cycle_part,
    level_part,
    seasonal_part,
    trend_part,
)
from probml.models.summaries.chains import series_tables
from probml.models.summaries.former_names import SIGMA

TRENDS = ("still", "level", "trend", "smooth")


def _seen(parts: list[Part], scale: ArrayLike, x: jax.Array | None = None) -> None:
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
                                f"{list(TRENDS)}")
    wide, steep, apart = (None, None, None) if first is None else first
    if trend in ("level", "still"):
        parts = [level_part("level", scale, centre, wide, still=trend == "still")]
    else:
        parts = [trend_part("trend", scale, centre, None if first is None else (wide, steep),
                            smooth=trend == "smooth")]
    if seasonal is not None:
        parts.append(seasonal_part(seasonal, "season", scale, apart))
    if cycle is not None:
        parts.append(cycle_part(*cycle, "cycle", scale))
    if order:
        parts.append(autoregressive_part(order, "ar", scale))
    _seen(parts, scale, x)


structural_time_series.summarized(series_tables)
structural_time_series.renames(SIGMA)


@probml.model
def local_level(scale=1.0, centre=0.0):
    """A level that wanders, observed with noise.

    Sites: `level_scale`, `sigma`, and in every row `level` (steps, 1) and `y` (steps,).

    Args:
        scale: the standard deviation of the data, about: prior scale of both standard deviations.
        centre: where the first level lies, about.
    """
    _seen([level_part("level", scale, centre)], scale)


local_level.summarized(series_tables)
local_level.renames(SIGMA)


@probml.model
def local_trend(scale=1.0, centre=0.0):
    """A level whose slope wanders too, observed with noise.

    Sites: `trend_scale` (2,), of level and slope, `sigma`, and in every row `trend` (steps, 2) and
    `y` (steps,). Args as of `local_level`.
    """
    _seen([trend_part("trend", scale, centre)], scale)


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
    own = trend_part if trend else level_part
    _seen([own("trend" if trend else "level", scale, centre),
           seasonal_part(period, "season", scale)], scale)


seasonal.summarized(series_tables)
seasonal.renames(SIGMA)
