"""Optima at the boundary of the support: scales next to 0, correlations next to ±1, probabilities
of 0 or 1, equal entries of an ordered vector.

Such an optimum can be right (lme4 calls a fit with a variance of 0 singular; a residual variance of
0 is a Heywood case of factor analysis), but need not be one: in logarithms the objective is flat
next to the boundary, whatever lies beyond. So each comes with a proposal (search.py) that moves
away from the boundary, and what ends there all the same is a finding: the mode lies there, the
posterior mass does not, and what has probability 0 is impossible ever after.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Outcome, Problem, Status
from probml.engines.findings import Code, Finding
from probml.engines.optimization.maximization import height_of, newton_pays
from probml.engines.optimization.objective import to_coordinates
from probml.engines.optimization.search import CLIMBED, Maximize, Proposal, prior_points
from probml.engines.start.prior import compiled_prior_point, given_start
from probml.evidence.density import log_posterior_and_gradient
from probml.factors.digits import collapsed
from probml.families.domains import Domain, of
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed_all
from probml.plan.plan import Plan
from probml.plan.spreads import UNKNOWN, Width, correlations, noises, spreads

FALLEN = 3.0  # logarithms below what is usual from which a width is looked at
SCALES = -np.log(4.0) * np.arange(10)  # logarithms from what is usual
LESS = np.log(0.3)  # of a width that matters to nothing any more
HIGHER = 1e-3  # nats that are worth another climb
ROUNDS = 4


class NarrowScale(NamedTuple):
    """A number of a width that lies near 0.

    Attributes:
        usual: the logarithm of the width that its prior, or the others of its kind, would have.
        seen: it is of what is seen, not of latents or effects.
    """

    width: Width
    index: tuple[int, ...]
    usual: float
    seen: bool

    def parameter_at(self, params: Mapping[str, np.ndarray], logarithm: float) -> np.ndarray:
        """The parameter with this element at another scale, given its logarithm."""
        value = np.array(params[self.width.name], float)
        value[self.index] = self.width.value(np.asarray(logarithm))
        return value

    def logarithm(self, params: Mapping[str, np.ndarray]) -> float:
        return float(self.width.logarithm(np.asarray(params[self.width.name])[self.index]))


def narrow_scales(plan: Plan, known: Known, params: Mapping[str, np.ndarray]) -> list[NarrowScale]:
    """The widths that have fallen far below what is usual."""
    middle, found = jax.device_get(compiled_prior_point(plan, known)), []
    for seen, widths in ((False, spreads(plan)), (True, noises(plan))):
        for width in widths:
            own = width.logarithm(np.asarray(params[width.name], float))
            usual = np.broadcast_to(width.logarithm(np.asarray(middle[width.name], float)),
                                    own.shape)
            if seen:  # columns have units, which a prior may not know
                usual = np.maximum(usual, own.max(initial=-np.inf))
            found += [NarrowScale(width, index, float(usual[index]), seen)
                      for index in map(tuple, np.argwhere(own < usual - FALLEN))]
    return found


def singular_correlations(plan: Plan, params: Mapping[str, np.ndarray]) -> list[
    tuple[str, tuple[int, ...]]]:
    """Rows of factors of correlations that end near their edge: what is told of is nearly a sum of
    those before. Name and (..., row)."""
    found = []
    for name in correlations(plan):
        factor = plan.structure.sites[name].domain.factor(np.asarray(params[name], float))
        own = np.diagonal(factor, axis1=-2, axis2=-1)
        found += [(name, index) for index in map(tuple, np.argwhere(own < np.exp(-FALLEN)))]
    return found


def larger_scale(problem: Problem, prior: bool, climb: Maximize) -> Proposal:
    """From where a scale next to 0, or a correlation next to ±1, is taken away from there."""
    plan = problem.plan

    def points(outcome: Outcome) -> list[Mapping]:
        found = _with_larger_scale(problem, prior, outcome)
        return [] if found is None else [found]

    return Proposal("a larger scale", points, climb,
                    ROUNDS if (plan.groupings or plan.latents) and not plan.carried else 0)


def _with_larger_scale(problem: Problem, prior: bool, outcome: Outcome) -> dict | None:
    """The best of the points at which one width that ended next to 0 is raised, or correlations are
    at their prior's middle; None where none is higher than the end."""
    plan, known = problem.plan, problem.known
    params = {name: np.asarray(outcome.params[name]) for name in plan.free}
    found, turned = narrow_scales(plan, known, params), singular_correlations(plan, params)
    if not (found or turned):
        return None
    middle = jax.device_get(compiled_prior_point(plan, known))
    least = outcome.history[-1] + HIGHER

    def at(points: list[dict]) -> np.ndarray:
        return heights(plan, prior, points, known, problem.rows)

    if found:  # narrow ones that the rows do tell, a pass each, are left alone
        less = at([{**params, edge.width.name: edge.parameter_at(
            params, edge.logarithm(params) + LESS)} for edge in found])
        found = [edge for edge, value in zip(found, less, strict=True)
                 if outcome.history[-1] - value < HIGHER]
    shapes = {other: middle[other] for other in _shapes(plan)}
    points = [{**params, name: middle[name]} for name in dict.fromkeys(n for n, _ in turned)]
    for edge in found:
        for way in ({}, shapes) if shapes and not edge.seen else ({},):
            points += [{**params, **way, edge.width.name: edge.parameter_at(
                params, max(edge.usual + share, edge.logarithm(params)))} for share in SCALES]
    if not points:
        return None
    values = at(points)
    best = int(np.argmax(values))
    return placed_all(points[best]) if values[best] > least else None


def heights(plan: Plan, prior: bool, points: list[dict], known: Any, rows: Any) -> np.ndarray:
    """What is climbed, at some points; −∞ where it is no number."""
    if newton_pays(plan, known):  # by Newton's steps, so that no program of L-BFGS is there
        stacked = {name: np.stack([point[name] for point in points]) for name in plan.free}
        values = np.asarray(_values(plan, prior, placed_all(stacked), known, rows))
    else:
        values = np.array([height_of(plan, prior, {name: point[name] for name in plan.free}, known,
                                  rows) for point in points])
    return np.where(np.isfinite(values), values, -np.inf)


def _shapes(plan: Plan) -> list[str]:
    """Parameters that shape effects beside their spreads: correlations and shares."""
    sites = plan.structure.sites
    near = {p for name in (*plan.effects, *plan.grouped) for p in sites[name].parents}
    return [name for name in plan.free if name in near and not sites[name].domain.unbounded
            and not sites[name].domain.log_scale]


@functools.partial(jit, static_argnums=(0, 1), seldom=ONCE)
def _values(plan: Plan, prior: bool, points: Mapping, known: Known, rows: Rows) -> jax.Array:
    return jax.lax.map(lambda point: jnp.asarray(log_posterior_and_gradient(
        plan, prior, to_coordinates(plan, point, known), known, rows)[0]), points)

# Entries next to an end of their support.

NEAR = 1e-3  # of a range, or of the prior's point: what is further from an end is not at it
THERE = 1e-9  # what no rows tell from an end, however many there are
COUNT = 1e-6  # expected observations that are none: a probability of so many is at its end
IDLE = 0.01  # nats that tell a number from the end no better than rounding does


class End(NamedTuple):
    """Numbers of a parameter near the ends of its support.

    Attributes:
        value: the parameter.
        end: of each number the end that is nearest.
        away: how far from it, of the range or of the prior's point.
        wide: that range, or how far the prior's point is from the end.
        unbounded: it has one end only.
    """

    value: np.ndarray
    end: np.ndarray
    away: np.ndarray
    wide: np.ndarray
    unbounded: bool

    def nearer(self, shares: bool) -> np.ndarray:
        """The parameter with its numbers that are near nearer still; of shares the others fill."""
        moved = np.where(self.away < NEAR, self.end + np.exp(LESS) * (self.value - self.end),
                         self.value)
        return moved / moved.sum(-1, keepdims=True) if shares else moved

    def resolution(self, problem: Problem, dtype: Any) -> float:
        """Nearer to the end than this, numbers of this type are at it: neither rounding nor the
        rows tell them from it."""
        steps = 1 if problem.data is None else problem.data.steps or 1
        seen = 0.0 if problem.rows is None or self.unbounded else problem.rows.weight * steps
        return max(THERE, 4 * np.finfo(dtype).eps * bool(self.end.any()),
                   COUNT / seen if seen > 0 else 0.0)

    def finding(self, name: str, least: float) -> Finding | None:
        """That numbers nearer than `least` are at the boundary; None: there are none."""
        at = self.away < least
        if not at.any():
            return None
        ends = " and ".join(f"{end:g}" for end in np.unique(self.end[at]))
        return at_boundary(name, ends, f", {at.sum()} of {at.size} entries" * (at.size > 1))


def at_boundary(name: str, end: str, count: str = "") -> Finding:
    """That a parameter, or an entry of it, is at its boundary."""
    return Finding.of(Code.BOUNDARY, name, end=end, count=count)


def find_boundaries(problem: Problem, prior: bool, outcome: Outcome, tried: bool = True) -> Outcome:
    """An outcome with a finding for each parameter with entries at an end of their support; scales
    of what is integrated out are examined in fits/boundary.py.

    Args:
        tried: numbers that are near an end are moved nearer, to see whether that matters; False:
            only what nothing can tell from it is at an end.

    Cost: an evaluation of each parameter that is near an end.
    """
    plan, sites = problem.plan, problem.plan.structure.sites
    if outcome.status is not Status.CONVERGED or plan.carried:
        return outcome
    params = {name: np.asarray(outcome.params[name], float) for name in plan.free}
    skipped = {*(width.name for width in (*spreads(plan), *noises(plan))),
               *(found.parameter for found in outcome.findings)}
    near = _ends(problem, [name for name in plan.free if name not in skipped], params)
    least = {name: found.resolution(problem, np.asarray(outcome.params[name]).dtype)
             for name, found in near.items()}
    # what is little beside the prior's point may be an ordinary number of another unit
    loose = {name: found for name, found in near.items()
             if found.unbounded and (found.away < least[name]).any()
             or tried and (found.away > least[name]).any()}
    if loose and problem.rows is not None:
        points = [params, *({**params, name: found.nearer(sites[name].domain.sums_to_one)}
                            for name, found in loose.items())]
        first, *others = heights(plan, prior, points, problem.known, problem.rows)
        for name, value in zip(loose, others, strict=True):
            if abs(first - value) < IDLE:
                least[name] = NEAR if tried else least[name]
            elif loose[name].unbounded:
                least[name] = 0.0
    findings = [found.finding(name, least[name]) for name, found in near.items()]
    # next to an end few digits are left, and what lies beyond may be hidden by rounding
    adrift = any(findings) and np.asarray(outcome.params[plan.free[0]]).dtype == np.float32
    return outcome.noting(*findings).with_state(adrift=outcome.state.adrift or adrift)


def _ends(problem: Problem, names: Iterable[str],
          params: Mapping[str, np.ndarray]) -> dict[str, End]:
    """Those of some parameters that have numbers near an end of their support."""
    found = {name: _end(problem, name, params) for name in names}
    return {name: end for name, end in found.items() if end is not None}


def _end(problem: Problem, name: str, params: Mapping[str, np.ndarray]) -> End | None:
    """The numbers of a parameter near an end of its support; None where there are none."""
    value, bounds = params[name], _bounds(problem, name, params)
    if bounds is None:
        return None
    low, high = bounds
    if high is None:
        wide, end = np.abs(np.asarray(_middle(problem)[name], float) - low), np.asarray(low)
    else:
        wide = high - low
        end = np.where(value - low < high - value, low, high)
    if problem.plan.structure.sites[name].domain.sums_to_one:
        end = np.asarray(low)
    end = np.broadcast_to(end, value.shape)
    away = np.abs(value - end) / np.maximum(wide, np.finfo(float).tiny)
    return End(value, end, away, np.asarray(wide), high is None) if (away < NEAR).any() else None


def _bounds(problem: Problem, name: str,
            params: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray | None] | None:
    """The ends of a parameter's support, at a point where other parameters move them; None where it
    has no lower one."""
    structure = problem.plan.structure
    domain: Domain = structure.sites[name].domain
    if domain.sums_to_one:
        return np.zeros(()), np.ones(())
    ends = domain.bounds
    if any(isinstance(end, jax.Array) for end in ends.values()):  # known where they are asked
        try:
            env = {**problem.known.given, **params}
            ends = of(structure.distribution(name, env).support).bounds
        except (KeyError, *UNKNOWN):
            return None
    low, high = (None if ends.get(f"{side}_bound") is None
                 else np.asarray(ends[f"{side}_bound"], float) for side in ("lower", "upper"))
    if low is None or any(end is not None and np.broadcast_shapes(end.shape, params[name].shape)
                          != params[name].shape for end in (low, high)):
        return None
    return low, high


def _middle(problem: Problem) -> Mapping:
    return jax.device_get(compiled_prior_point(problem.plan, problem.known))

# Equal entries of ordered vectors. They can be a maximum, as of data with fewer components,
# and are a saddle of most mixtures: to leave it locations must part, widths shrink and weights even
# out, all at once, so that no single step leads up.

GAPS = np.log(4.0) * np.arange(-3, 5)  # logarithms from what is usual
NARROWED = (1.0, 0.4)  # of what they are, widths beside locations that part
GAP_ROUNDS = 3

Gaps = dict[str, np.ndarray]  # ordered vectors → which of their gaps, (..., numbers − 1)


def uninformed_gaps(problem: Problem, params: Mapping[str, np.ndarray]) -> Gaps:
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


def larger_gaps(problem: Problem, prior: bool, climb: Maximize) -> Proposal:
    """From where gaps that the rows do not determine are larger, and from draws of the prior."""
    plan = problem.plan

    def points(outcome: Outcome) -> list[Mapping]:
        params = {name: np.asarray(outcome.params[name]) for name in plan.free}
        found = uninformed_gaps(problem, params)
        return [*_with_larger_gaps(problem, prior, params, found),
                *prior_points(problem, prior, given_start(plan, problem.start))] if found else []

    return Proposal("entries that are not equal", points, climb, 0 if plan.carried else GAP_ROUNDS)


def equal_entries(problem: Problem, params: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """The ordered vectors of which some entries ended as equal."""
    if problem.plan.carried:
        return
    for name, low in uninformed_gaps(problem, {name: np.asarray(params[name]) for name in
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


def _with_larger_gaps(problem: Problem, prior: bool, params: Mapping[str, np.ndarray],
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
    for height in GAPS:
        moved = {name: _parted(plan, name, params[name], np.where(
            low, usual[name] * np.exp(height), _gaps(params[name]))) for name, low in found.items()}
        for share in NARROWED if widths else (1.0,):
            for way in ({}, even) if even else ({},):
                points.append({**params, **way, **{p: params[p] * share for p in widths}, **moved})
    values = np.reshape(heights(plan, prior, points, problem.known, problem.rows), (len(GAPS), -1))
    best = np.argsort(-values.max(1))[:CLIMBED]
    size = values.shape[1]
    return [placed_all({name: np.asarray(value, np.asarray(params[name]).dtype)
                        for name, value in points[i * size + values[i].argmax()].items()})
            for i in best if np.isfinite(values[i].max())]

# Scales of 0, where a density without a prior on them has no maximum.

NARROW = 1e-3  # of the spread of a column, or of 1: what is wider is not looked at
_collapsed = jit(collapsed, static_argnums=0, seldom=ONCE)


def collapsed_scales(problem: Problem, params: Mapping[str, Any]) -> list[str]:
    """Parameters that make a scale smaller than the arithmetic distinguishes from 0, as
    factors.digits says."""
    plan, known = problem.plan, problem.known
    spreads = [float(np.max(spread)) for spread in jax.device_get(known.spread).values()]
    wide = max([spread for spread in spreads if spread > 0], default=1.0)
    sites = plan.structure.sites
    small = [name for name in plan.free if sites[name].domain.log_scale
             and np.min(np.asarray(params[name]), initial=np.inf) < NARROW * wide]
    # one that is computed of others, which rows that are all alike, or no more than there are of
    # these, may carry to 0
    computed = [name for seen in known.spread for argument in sites[seen].traits.scatter
                for name in sites[seen].uses.get(argument, {})
                if name in plan.free and not sites[name].domain.log_scale]
    count = problem.rows.weight if problem.size is None else problem.size  # of merged fits
    few = count <= sum(np.size(params[name]) for name in plan.free)
    if not spreads or not (small or computed and (few or not all(spreads))):
        return []
    point = placed_all({name: np.asarray(params[name]) for name in plan.free})
    return (small or computed) if bool(_collapsed(plan, point, known, problem.rows)) else []
