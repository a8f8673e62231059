"""Apart again: a climb may carry the gap between two numbers of an ordered vector to 0, where
components of a mixture are the same, or a choice between two cutpoints has no rows.

The first can be a maximum, as of data with fewer components, and is a saddle of most mixtures: to
leave it locations must part, widths shrink and weights even out, all at once, so that no single
step leads up. A density on the vector itself that has its weight on logarithms of gaps even rises
there, whatever the data say. So the climb is taken up again from where gaps are raised, with such
widths and weights, and from draws of the prior, and the highest end is kept.
"""

from collections.abc import Iterator, Mapping

import jax
import numpy as np

from probml.engines.climbing.edges import FALLEN, HIGHER, LESS, heights
from probml.engines.climbing.search import Maximize, Proposal
from probml.engines.climbing.ways_up import CLIMBED, elsewhere
from probml.engines.engine import Outcome, Problem
from probml.engines.findings import Code, Finding
from probml.engines.start.prior import compiled_prior_point, given_start
from probml.numerics.transfer import placed_all
from probml.plan.plan import Plan

TRIED = np.log(4.0) * np.arange(-3, 5)  # logarithms from what is usual
NARROWED = (1.0, 0.4)  # of what they are, widths beside locations that part
ROUNDS = 3

Gaps = dict[str, np.ndarray]  # ordered vectors → which of their gaps, (..., numbers − 1)


def idle(problem: Problem, params: Mapping[str, np.ndarray]) -> Gaps:
    """The gaps of ordered vectors that have fallen far below what is usual, and that the rows do
    not tell from 0."""
    plan, sites = problem.plan, problem.plan.structure.sites
    names = [name for name in plan.free if sites[name].domain.ordered
             and sites[name].shape[-1] > 1] if problem.rows is not None else []
    found = {name: _gaps(params[name]) < np.exp(-FALLEN) * usual
             for name, usual in _usual(problem, names).items()}
    cells = [(name, index) for name, low in found.items() for index in map(tuple, np.argwhere(low))]
    if not cells:
        return {}
    points = [dict(params)]
    for name, index in cells:
        gaps = _gaps(params[name])
        gaps[index] *= np.exp(LESS)
        points.append({**params, name: _parted(plan, name, params[name], gaps)})
    values = heights(plan, False, points, problem.known, problem.rows)
    least = HIGHER + 64 * np.finfo(np.asarray(params[cells[0][0]]).dtype).eps * abs(values[0])
    for (name, index), value in zip(cells, values[1:], strict=True):
        found[name][index] = abs(values[0] - value) < least
    return {name: low for name, low in found.items() if low.any()}


def apart(problem: Problem, prior: bool, climb: Maximize) -> Proposal:
    """From where gaps that the rows do not determine are larger, and from draws of the prior."""
    plan = problem.plan

    def points(outcome: Outcome) -> list[Mapping]:
        params = {name: np.asarray(outcome.params[name]) for name in plan.free}
        found = idle(problem, params)
        return [*_raised(problem, prior, params, found),
                *elsewhere(problem, prior, given_start(plan, problem.start))] if found else []

    return Proposal("entries that are not equal", points, climb, 0 if plan.carried else ROUNDS)


def alike(problem: Problem, params: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """The ordered vectors of which some entries ended as equal."""
    if problem.plan.carried:
        return
    for name, low in idle(problem, {name: np.asarray(params[name]) for name in
                                    problem.plan.free}).items():
        where = np.flatnonzero(low.reshape(-1, low.shape[-1]).any(0))
        yield Finding.of(Code.EQUAL_ENTRIES, name,
                         pairs=", ".join(f"{i} and {i + 1}" for i in where))


def _gaps(value: np.ndarray) -> np.ndarray:
    return np.diff(np.asarray(value, float), axis=-1)


def _usual(problem: Problem, names: list[str]) -> dict[str, np.ndarray]:
    """The largest gap that ordered vectors have in the middle of their prior."""
    if not names:
        return {}
    middle = jax.device_get(compiled_prior_point(problem.plan, problem.known))
    return {name: _gaps(middle[name]).max() for name in names}


def _parted(plan: Plan, name: str, value: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """An ordered vector with other gaps: about the middle that it has, where it has no end."""
    first = np.asarray(value, float)[..., :1]
    out = np.concatenate([first, first + np.cumsum(gaps, -1)], -1)
    if plan.structure.sites[name].domain.low_end < 0:
        out += (np.mean(value, -1) - out.mean(-1))[..., None]
    return out.astype(np.asarray(value).dtype)


def _raised(problem: Problem, prior: bool, params: Mapping[str, np.ndarray],
            found: Gaps) -> list[dict]:
    """The best points at which these gaps are raised, one for each of so many heights."""
    plan, sites, points = problem.plan, problem.plan.structure.sites, []
    usual, near = _usual(problem, list(found)), set().union(
        *(plan.structure.children[name] for name in found))
    beside = [p for p in plan.free if p not in problem.start
              and near.intersection(plan.structure.children[p])]
    middle = jax.device_get(compiled_prior_point(plan, problem.known))
    even = {p: middle[p] for p in beside if sites[p].domain.sums_to_one}
    widths = [p for p in beside if sites[p].domain.log_scale]
    for height in TRIED:
        moved = {name: _parted(plan, name, params[name], np.where(
            low, usual[name] * np.exp(height), _gaps(params[name]))) for name, low in found.items()}
        for share in NARROWED if widths else (1.0,):
            for way in ({}, even) if even else ({},):
                points.append({**params, **way, **{p: params[p] * share for p in widths}, **moved})
    values = np.reshape(heights(plan, prior, points, problem.known, problem.rows), (len(TRIED), -1))
    best = np.argsort(-values.max(1))[:CLIMBED]
    size = values.shape[1]
    return [placed_all({name: np.asarray(value, np.asarray(params[name]).dtype)
                        for name, value in points[i * size + values[i].argmax()].items()})
            for i in best if np.isfinite(values[i].max())]
