"""Incremental steps of a fit with latent variables by further rows. Expected statistics depend on
the point, so that parts cannot be added: each part moves the point by a step of stepwise EM (Cappé
& Moulines 2009, "On-line expectation–maximization algorithm for latent data models"), or a mean
field by one of stochastic variational inference (Hoffman et al. 2013), with running statistics

    s ← s + ρ (s(part; θ) − s),   ρ = (w / n)^0.6,   θ ← the optimum at n s,

per unit of weight: w is the weight of the part, n that of all rows so far. For parts of equal size
ρ is t^−0.6, as in engines/restarting/batches.py, so that expectations at earlier points lose
weight slowly.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from probml.dataset import read, tables
from probml.dataset.dataset import Data
from probml.device.load import load
from probml.device.rows import Summary
from probml.engines.engine import Outcome, Status, short_name
from probml.engines.restarting.batches import (
    FORGETTING,
    expected_statistics,
    improve_point,
    sites_without_statistics,
)
from probml.errors import Refusal
from probml.fits.merging import (
    RetainedStatistics,
    StatisticsWithPattern,
    merge_patterns,
    merge_statistics,
)
from probml.numerics.transfer import placed_all
from probml.plan import decide
from probml.queries.fitted import Fitted
from probml.typing import PyTree


class IncrementalState(NamedTuple):
    """The state of a fit between steps: its point, its running statistics, and the pattern of
    observed cells of all parts."""

    point: PyTree  # as the engine has it, a Way's
    kept: RetainedStatistics
    pattern: Mapping[str, str]


def read_rows(fit: Fitted, rows: object, weights: object) -> tuple[Data, np.ndarray | None]:
    """Rows read with the labels of the fit, and their weights.

    Raises:
        DataError: bad rows, by name.
    """
    held = read.read(fit.model, rows, fit.names, None, fit.shapes)
    held = held._replace(table=replace(held.table,
                                       values={**fit.given, **held.table.values})).trimmed()
    return held, tables.read_weights(weights, held.table.rows)


def current_point(fit: Fitted) -> PyTree:
    """The point of a fit, in the form for its engine's incremental steps.

    Raises:
        Refusal: an engine that takes no steps.
    """
    way = None if fit.by is None else fit.by.capabilities.way
    if way is None:
        raise Refusal(f"update of model '{fit.model.name}' by {short_name(fit.engine)}: only fits "
                      f"by EM() and VB() can be updated when variables are latent. Fit all rows "
                      f"together")
    return way.point_of_fit(fit.point, fit.belief)


def expect_statistics(fit: Fitted, point: object, held: Data,
                      weight: np.ndarray | None) -> tuple[RetainedStatistics, float]:
    """The expected sufficient statistics of rows at a point, and their log evidence.

    Raises:
        Refusal: a site without sufficient statistics.

    Cost: one pass.
    """
    engine, plan = fit.by, held.plan()
    assert engine is not None
    if names := sites_without_statistics(plan):
        raise Refusal(f"update of model '{fit.model.name}' by {short_name(fit.engine)}: there are "
                      f"no sufficient statistics of '{names[0]}' that add up over further rows. "
                      f"Fit all rows together")
    rows, known = load(held, plan, weight, params=fit.point)
    found, value = expected_statistics(plan, engine.capabilities.way, placed_all(point), known,
                                       rows)
    summary = Summary(found, np.zeros(()), np.asarray(rows.weight))
    return RetainedStatistics.of(engine, summary, known, running=True), float(value)


def step(fit: Fitted, at: IncrementalState, held: Data,
         weight: np.ndarray | None) -> tuple[IncrementalState, float]:
    """The state after a step by a part of further rows; and the objective of all rows so far,
    estimated from this part at the point before the step.

    Raises:
        Refusal: a component has collapsed.

    Cost: one pass over the part, and an M-step.
    """
    more, value = expect_statistics(fit, at.point, held, weight)
    before, own = float(at.kept.summary.weights), float(more.summary.weights)
    total, new = before + own, (own / (before + own)) ** FORGETTING
    kept, pattern = merge_expected_statistics(
        fit, (_scaled(at.kept, (1 - new) * total / before), at.pattern),
        (_scaled(more, new * total / own), held.pattern))
    plan = decide.make(fit.structure, pattern, tuple(fit.given))
    summary, known, point = placed_all((kept.summary, kept.known, at.point))
    way = more.engine.capabilities.way
    found, sound, prior = jax.device_get(improve_point(plan, way, summary, point, known))
    if not sound:
        raise Refusal(f"update of model '{fit.model.name}': with these rows a component collapses "
                      f"onto a single point. Keep prior=True, or give more rows at a time")
    return IncrementalState(found, kept, pattern), total * value / own + float(prior)


def to_outcome(fit: Fitted, at: IncrementalState, history: np.ndarray, steps: int) -> Outcome:
    """The state after the steps as an outcome of the engine.

    Args:
        history: the objective before each step. steps: iterations in all.
    """
    plan = decide.make(fit.structure, at.pattern, tuple(fit.given))
    way = at.kept.engine.capabilities.way
    params, posterior = way.found(plan, at.point, placed_all(at.kept.known))
    return Outcome(params, history, Status.MOVED, steps, posterior=posterior)


def merge_expected_statistics(fit: Fitted, one: StatisticsWithPattern,
                              other: StatisticsWithPattern) -> StatisticsWithPattern:
    """As merging.merge_statistics, also where a discrete site is observed in one part and latent in
    the other.

    Raises:
        Refusal: such a site has several cells in a row, whose statistics are those of each cell
            where observed, and of all cells together where latent.
    """
    plan = decide.make(fit.structure, merge_patterns(one[1], other[1]), tuple(fit.given))

    def as_latent(part: StatisticsWithPattern) -> StatisticsWithPattern:
        kept, summary = part[0], _summary(part[0])
        statistics = dict(summary.statistics)
        for name in plan.variables:
            own = statistics.get(name)
            if isinstance(own, Mapping) and not fit.structure.sites[name].chain:
                if own["log"].shape[-2] > 1:
                    raise Refusal(f"update of model '{fit.model.name}': '{name}' has several cells "
                                  f"in a row, which are observed in some batches and latent in "
                                  f"others. Fit all rows together")
                statistics[name] = own["log"][..., 0, :]
        return kept._replace(summary=summary._replace(statistics=statistics)), part[1]

    return merge_statistics(fit.structure, as_latent(one), as_latent(other))


def _summary(kept: RetainedStatistics) -> Summary:
    assert isinstance(kept.summary, Summary)
    return kept.summary


def _scaled(kept: RetainedStatistics, factor: float) -> RetainedStatistics:
    """Statistics times a number, as of rows of the same weight."""
    summary = _summary(kept)
    scaled = jax.tree.map(lambda leaf: leaf * np.asarray(factor, leaf.dtype), summary.statistics)
    return kept._replace(summary=summary._replace(statistics=scaled))
