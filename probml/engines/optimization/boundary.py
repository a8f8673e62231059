"""Optima at the boundary of the support: scales next to 0, correlations next to ±1, probabilities
of 0 or 1, equal entries of an ordered vector.

Such an optimum can be right (lme4 calls a fit with a variance of 0 singular; a residual variance of
0 is a Heywood case of factor analysis), but need not be: in logarithms the objective is flat next
to the boundary, so that an optimisation stops there. So each case has a proposal (search.py) that
moves away from the boundary; an optimum that stays there is a finding: the posterior mass is
elsewhere, and what has probability 0 remains impossible in every prediction.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import DTypeLike

from probml.device.rows import Known
from probml.engines.engine import Outcome, Problem, Status
from probml.engines.findings import Code, Finding
from probml.engines.optimization.search import (
    MAX_STARTS,
    Maximize,
    Proposal,
    objective_at_points,
    prior_points,
)
from probml.engines.start.prior import compiled_prior_point, given_start
from probml.factors.digits import has_collapsed_scale
from probml.families.domains import Domain, of
from probml.numerics.compiling import ONCE, jit
from probml.numerics.transfer import placed_all
from probml.plan.hierarchy import (
    UNKNOWN,
    ScaleParameter,
    correlations,
    has_fallen,
    noise_scales,
    scale_parameters,
)
from probml.plan.plan import Plan

Params = Mapping[str, np.ndarray]

NARROW_LOG = 3.0  # a scale is narrow if its logarithm is lower than usual by more than this
SCALE_LOGS = -np.log(4.0) * np.arange(10)  # logarithms, relative to what is usual, that are tried
SHRINK_LOG = np.log(0.3)  # by which a scale is reduced to see whether the data determine it
MIN_GAIN = 1e-3  # of log density, from which a point is worth another optimisation
SCALE_ROUNDS = 4


class NarrowScale(NamedTuple):
    """An element of a scale parameter that lies near 0.

    Attributes:
        usual: the logarithm of the scale at its prior mean, or of the largest element.
        residual: it is the scale of observed columns, not of latent variables or effects.
    """

    width: ScaleParameter
    index: tuple[int, ...]  # type: ignore[assignment] # not the tuple's method
    usual: float
    residual: bool

    def parameter_at(self, params: Params, logarithm: float) -> np.ndarray:
        """The parameter with this element at another scale, given its logarithm."""
        value = np.array(params[self.width.name], float)
        value[self.index] = self.width.value(np.asarray(logarithm))
        return value

    def logarithm(self, params: Params) -> float:
        return float(self.width.logarithm(np.asarray(params[self.width.name])[self.index]))


def narrow_scales(plan: Plan, known: Known, params: Params) -> list[NarrowScale]:
    """The elements of scale parameters that are far smaller than usual."""
    typical, narrow = jax.device_get(compiled_prior_point(plan, known)), []
    for residual, widths in ((False, scale_parameters(plan)), (True, noise_scales(plan))):
        for width in widths:
            logarithms = width.logarithm(np.asarray(params[width.name], float))
            usual = np.broadcast_to(width.logarithm(np.asarray(typical[width.name], float)),
                                    logarithms.shape)
            if residual:  # columns have units, which the prior may not know
                usual = np.maximum(usual, logarithms.max(initial=-np.inf))
            narrow += [NarrowScale(width, index, float(usual[index]), residual)
                       for index in map(tuple, np.argwhere(logarithms < usual - NARROW_LOG))]
    return narrow


def singular_correlations(plan: Plan, params: Params) -> list[tuple[str, tuple[int, ...]]]:
    """Rows of Cholesky factors of correlation matrices with a diagonal element near 0: this
    variable is nearly a linear combination of those before it. Parameter and (..., row)."""
    singular = []
    for name in correlations(plan):
        factor = plan.structure.sites[name].domain.factor(np.asarray(params[name], float))
        diag = np.diagonal(factor, axis1=-2, axis2=-1)
        singular += [(name, index) for index in map(tuple, np.argwhere(diag < np.exp(-NARROW_LOG)))]
    return singular


def propose_larger_scale(problem: Problem, prior: bool, maximize: Maximize) -> Proposal:
    """The optimum with a scale next to 0, or a correlation next to ±1, moved away from there."""
    plan = problem.plan
    applies = (plan.groupings or plan.latents) and not plan.sampled
    return Proposal("a larger scale",
                    lambda outcome: [_with_larger_scale(problem, prior, outcome)], maximize,
                    SCALE_ROUNDS if applies else 0)


def _with_larger_scale(problem: Problem, prior: bool, outcome: Outcome) -> dict | None:
    """The best of the points at which one narrow scale is raised, or correlations are at their
    prior mean; None if none is higher than the optimum."""
    plan = problem.plan
    params = {name: np.asarray(outcome.params[name]) for name in plan.free}
    narrow, singular = (narrow_scales(plan, problem.known, params),
                        singular_correlations(plan, params))
    if not (narrow or singular):
        return None
    typical, top_value = _prior_point(problem), outcome.history[-1]

    objective_at = functools.partial(objective_at_points, problem, prior)
    if narrow:  # a scale that the data determine, so that reducing it costs something, stays
        reduced = objective_at([{**params, scale.width.name: scale.parameter_at(
            params, scale.logarithm(params) + SHRINK_LOG)} for scale in narrow])
        narrow = [scale for scale, value in zip(narrow, reduced, strict=True)
                  if top_value - value < MIN_GAIN]
    shape_params = {other: typical[other] for other in _effect_shapes(plan)}
    points = [{**params, name: typical[name]} for name in dict.fromkeys(n for n, _ in singular)]
    for scale in narrow:
        for changes in ({}, shape_params) if shape_params and not scale.residual else ({},):
            points += [{**params, **changes, scale.width.name: scale.parameter_at(
                params, max(scale.usual + log, scale.logarithm(params)))} for log in SCALE_LOGS]
    if not points:
        return None
    values = objective_at(points)
    best = int(np.argmax(values))
    return placed_all(points[best]) if values[best] > top_value + MIN_GAIN else None


def _effect_shapes(plan: Plan) -> list[str]:
    """Parameters of effects other than their scales: correlations and shares of variance."""
    sites = plan.structure.sites
    parents = {p for name in (*plan.effects, *plan.grouped) for p in sites[name].parents}
    return [name for name in plan.free if name in parents and not sites[name].domain.unbounded
            and not sites[name].domain.log_scale]


def _prior_point(problem: Problem) -> Mapping:
    return jax.device_get(compiled_prior_point(problem.plan, problem.known))


# Entries next to a bound of their support.

# Distance from a bound, relative to the width of the support or to the prior point's distance,
# below which an entry may be at it; and below which it is at it, however many rows there are.
MAX_RELATIVE_DISTANCE, AT_BOUND_DISTANCE = 1e-3, 1e-9
MIN_COUNT = 1e-6  # expected observations; a probability of fewer is at its bound
MAX_IDLE_GAIN = 0.01  # of log density, that does not distinguish an entry from the bound


class NearBound(NamedTuple):
    """A parameter with entries near a bound of their support.

    Attributes:
        value: of the parameter.
        bound: the nearest bound of each entry.
        distance: from it, relative to the width of the support or the prior point's distance.
        half_bounded: the support has one bound only.
    """

    value: np.ndarray
    bound: np.ndarray
    distance: np.ndarray
    half_bounded: bool

    def nearer(self, sums_to_one: bool) -> np.ndarray:
        """The parameter with the entries near the bound moved nearer; probabilities are normalised.
        """
        shrunk = np.where(self.distance < MAX_RELATIVE_DISTANCE, self.bound + np.exp(SHRINK_LOG)
                          * (self.value - self.bound), self.value)
        return shrunk / shrunk.sum(-1, keepdims=True) if sums_to_one else shrunk

    def resolution(self, problem: Problem, dtype: DTypeLike, objective: float) -> float:
        """The distance below which neither rounding, of the entry or of the objective, nor the
        rows distinguish an entry from the bound."""
        eps = float(np.finfo(dtype).eps)
        steps = 1 if problem.data is None else problem.data.steps or 1
        count = 0.0 if problem.rows is None or self.half_bounded else problem.rows.weight * steps
        return max(AT_BOUND_DISTANCE, 4 * eps * bool(self.bound.any()),
                   max(MIN_COUNT, eps * abs(objective)) / count if count > 0 else 0.0)

    def finding(self, name: str, limit: float) -> Finding | None:
        """The finding that entries nearer than `limit` are at the boundary; None: there are
        none."""
        mask = self.distance < limit
        if not mask.any():
            return None
        bounds = " and ".join(f"{bound:g}" for bound in np.unique(self.bound[mask]))
        return boundary_finding(name, bounds,
                                f", in {mask.sum()} of {mask.size} entries" * (mask.size > 1))


def boundary_finding(name: str, end: str, count: str = "") -> Finding:
    """The finding that a parameter, or an entry of it, is at its boundary."""
    return Finding.of(Code.BOUNDARY, name, end=end, count=count)


def find_boundaries(problem: Problem, prior: bool, outcome: Outcome, probe: bool = True) -> Outcome:
    """An outcome with a finding for each parameter with entries at a bound of their support; scales
    of what is integrated out are examined in fits/latent_findings.py.

    Args:
        probe: entries near a bound are moved nearer, and are at it if that costs nothing; False:
            only those that nothing distinguishes from the bound are at it.

    Cost: an evaluation of each parameter that is near a bound.
    """
    plan, sites = problem.plan, problem.plan.structure.sites
    if outcome.status is not Status.CONVERGED or plan.sampled:
        return outcome
    params = {name: np.asarray(outcome.params[name], float) for name in plan.free}
    skipped = {*(width.name for width in (*scale_parameters(plan), *noise_scales(plan))),
               *(finding.parameter for finding in outcome.findings)}
    edges = {name: edge for name in plan.free if name not in skipped
             and (edge := _near_bound(problem, name, params)) is not None}
    limits = {name: edge.resolution(problem, np.asarray(outcome.params[name]).dtype,
                                    outcome.history[-1]) for name, edge in edges.items()}
    # what is small relative to the prior's point may be an ordinary number in another unit
    uncertain = {name: edge for name, edge in edges.items()
                 if edge.half_bounded and (edge.distance < limits[name]).any()
                 or probe and (edge.distance > limits[name]).any()}
    if uncertain and problem.rows is not None:
        points = [params, *({**params, name: edge.nearer(sites[name].domain.sums_to_one)}
                            for name, edge in uncertain.items())]
        peak, *values = objective_at_points(problem, prior, points)
        for name, value in zip(uncertain, values, strict=True):
            if abs(peak - value) < MAX_IDLE_GAIN:
                limits[name] = MAX_RELATIVE_DISTANCE if probe else limits[name]
            elif uncertain[name].half_bounded:
                limits[name] = 0.0
    findings = [edge.finding(name, limits[name]) for name, edge in edges.items()]
    # next to a bound other than 0 few digits are left, and rounding may hide gains beyond it
    rounded = np.asarray(outcome.params[plan.free[0]]).dtype == np.float32 and any(
        edge.bound[edge.distance < limits[name]].any() for name, edge in edges.items())
    return outcome.noting(*findings).with_state(
        stopped_by_rounding=outcome.state.stopped_by_rounding or rounded)


def _near_bound(problem: Problem, name: str, params: Params) -> NearBound | None:
    """The entries of a parameter near a bound of their support; None: there are none."""
    value, bounds = params[name], _bounds(problem, name, params)
    if bounds is None:
        return None
    low, high = bounds
    if high is None:
        width, bound = np.abs(np.asarray(_prior_point(problem)[name], float) - low), low
    else:
        width, bound = high - low, np.where(value - low < high - value, low, high)
    if problem.plan.structure.sites[name].domain.sums_to_one:
        bound = low
    bound = np.broadcast_to(bound, value.shape)
    distance = np.abs(value - bound) / np.maximum(width, np.finfo(float).tiny)
    return NearBound(value, bound, distance,
                     high is None) if (distance < MAX_RELATIVE_DISTANCE).any() else None


def next_to_zero(problem: Problem, start: Params, end: Params) -> list[str]:
    """Parameters with the lower bound 0 that an optimisation carried next to it; arguments as of
    `find_collapsed_scales`."""
    return [name for name in problem.plan.free if name in start
            and (bounds := _bounds(problem, name, end)) is not None and np.all(bounds[0] == 0)
            and has_fallen(start[name], end[name])]


def _bounds(problem: Problem, name: str,
            params: Params) -> tuple[np.ndarray, np.ndarray | None] | None:
    """The bounds of a parameter's support, at a point where they depend on other parameters; None
    if it has no lower bound."""
    structure = problem.plan.structure
    domain: Domain = structure.sites[name].domain
    if domain.sums_to_one:
        return np.zeros(()), np.ones(())
    bounds = domain.bounds
    if any(isinstance(bound, jax.Array) for bound in bounds.values()):
        try:
            env = {**problem.known.given, **params}
            bounds = of(structure.distribution(name, env).support).bounds
        except (KeyError, *UNKNOWN):
            return None
    low, high = (None if bounds.get(f"{side}_bound") is None
                 else np.asarray(bounds[f"{side}_bound"], float) for side in ("lower", "upper"))
    if low is None or any(bound is not None and np.broadcast_shapes(
            bound.shape, params[name].shape) != params[name].shape for bound in (low, high)):
        return None
    return low, high


# Equal entries of ordered vectors. They can be a maximum, as for data with fewer components, and
# are a saddle point of most mixtures: to leave it locations must separate, scales shrink and
# weights become even, all at once, so that no single step leads up.

GAP_LOGS = np.log(4.0) * np.arange(-3, 5)  # of gaps, relative to what is usual, that are tried
SCALE_FACTORS = (1.0, 0.4)  # on the scales of components whose locations are separated
GAP_ROUNDS = 3

Gaps = dict[str, np.ndarray]  # ordered vectors → which of their gaps, (..., entries − 1) bool


def uninformed_gaps(problem: Problem, params: Params) -> Gaps:
    """The gaps of ordered vectors that are far smaller than usual, and that the rows do not
    distinguish from 0."""
    plan, sites = problem.plan, problem.plan.structure.sites
    names = [name for name in plan.free if sites[name].domain.ordered
             and sites[name].shape[-1] > 1] if problem.rows is not None else []
    small = {name: _gaps(params[name]) < np.exp(-NARROW_LOG) * usual
             for name, usual in _usual_gaps(problem, names).items()}
    cells = [(name, index) for name, low in small.items() for index in map(tuple, np.argwhere(low))]
    if not cells:
        return {}
    points = [dict(params)]
    for name, index in cells:
        gaps = _gaps(params[name])
        gaps[index] *= np.exp(SHRINK_LOG)
        points.append({**params, name: _with_gaps(plan, name, params[name], gaps)})
    values = objective_at_points(problem, False, points)
    noise = MIN_GAIN + 64 * np.finfo(np.asarray(params[cells[0][0]]).dtype).eps * abs(values[0])
    for (name, index), value in zip(cells, values[1:], strict=True):
        small[name][index] = abs(values[0] - value) < noise
    return {name: low for name, low in small.items() if low.any()}


def propose_larger_gaps(problem: Problem, prior: bool, maximize: Maximize) -> Proposal:
    """The optimum with larger gaps where the rows do not determine them, and draws of the prior."""
    plan = problem.plan

    def points(outcome: Outcome) -> list[Mapping]:
        params = {name: np.asarray(outcome.params[name]) for name in plan.free}
        small = uninformed_gaps(problem, params)
        return [*_with_larger_gaps(problem, prior, params, small),
                *prior_points(problem, prior, given_start(plan, problem.start))] if small else []

    return Proposal("unequal entries", points, maximize,
                    0 if plan.sampled else GAP_ROUNDS)


def equal_entries(problem: Problem, params: Params) -> Iterator[Finding]:
    """Findings on ordered vectors of which some entries are equal."""
    if problem.plan.sampled:
        return
    for name, mask in uninformed_gaps(problem, {name: np.asarray(params[name]) for name in
                                                problem.plan.free}).items():
        indices = np.flatnonzero(mask.reshape(-1, mask.shape[-1]).any(0))
        yield Finding.of(Code.EQUAL_ENTRIES, name,
                         pairs=", ".join(f"{i} and {i + 1}" for i in indices))


def _gaps(value: np.ndarray) -> np.ndarray:
    return np.diff(np.asarray(value, float), axis=-1)


def _usual_gaps(problem: Problem, names: list[str]) -> dict[str, np.ndarray]:
    """The largest gap of ordered vectors at the prior's point."""
    typical = _prior_point(problem) if names else {}
    return {name: _gaps(typical[name]).max() for name in names}


def _with_gaps(plan: Plan, name: str, value: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """An ordered vector with other gaps, about its mean unless it has a lower bound."""
    first = np.asarray(value, float)[..., :1]
    vector = np.concatenate([first, first + np.cumsum(gaps, -1)], -1)
    if plan.structure.sites[name].domain.low_end < 0:
        vector += (np.mean(value, -1) - vector.mean(-1))[..., None]
    return vector.astype(np.asarray(value).dtype)


def _with_larger_gaps(problem: Problem, prior: bool, params: Params, small: Gaps) -> list[dict]:
    """The best points at which these gaps are raised, one for each of the best gap sizes."""
    plan, sites, points = problem.plan, problem.plan.structure.sites, []
    usual, typical = _usual_gaps(problem, list(small)), _prior_point(problem)
    children = set().union(*(plan.structure.children[name] for name in small))
    related = [p for p in plan.free if p not in problem.start
               and children.intersection(plan.structure.children[p])]
    uniform = {p: typical[p] for p in related if sites[p].domain.sums_to_one}
    scales = [p for p in related if sites[p].domain.log_scale]
    for log in GAP_LOGS:
        widened = {name: _with_gaps(plan, name, params[name], np.where(
            mask, usual[name] * np.exp(log), _gaps(params[name]))) for name, mask in small.items()}
        for factor in SCALE_FACTORS if scales else (1.0,):
            for weights in ({}, uniform) if uniform else ({},):
                points.append({**params, **weights, **{p: params[p] * factor for p in scales},
                               **widened})
    values = np.reshape(objective_at_points(problem, prior, points), (len(GAP_LOGS), -1))
    best = np.argsort(-values.max(1))[:MAX_STARTS]
    size = values.shape[1]
    return [placed_all({name: np.asarray(value, np.asarray(params[name]).dtype)
                        for name, value in points[i * size + values[i].argmax()].items()})
            for i in best if np.isfinite(values[i].max())]


# Scales that go to 0, where a density without a prior on them has no maximum.

# relative to the largest standard deviation of a column, or to 1: wider scales are not examined
MAX_COLLAPSED_SCALE = 1e-3
_collapsed = jit(has_collapsed_scale, static_argnums=0, seldom=ONCE)


def collapsed_scales(problem: Problem, params: Mapping[str, jax.Array]) -> list[str]:
    """Parameters that make a scale smaller than the arithmetic distinguishes from 0, as
    factors.digits says."""
    plan, known = problem.plan, problem.known
    deviations = [float(np.max(spread)) for spread in jax.device_get(known.sd).values()]
    widest = max([deviation for deviation in deviations if deviation > 0], default=1.0)
    sites = plan.structure.sites
    small = [name for name in plan.free if sites[name].domain.log_scale and np.min(
        np.asarray(params[name]), initial=np.inf) < MAX_COLLAPSED_SCALE * widest]
    # parameters from which a scale is computed may take it to 0 if all rows are equal, or no more
    # than there are such parameters
    computed = [name for observed in known.sd for argument in sites[observed].traits.scatter
                for name in sites[observed].uses.get(argument, {})
                if name in plan.free and not sites[name].domain.log_scale]
    count = problem.rows.weight if problem.size is None else problem.size  # of merged fits
    few_rows = count <= sum(np.size(params[name]) for name in plan.free)
    if not deviations or not (small or computed and (few_rows or not all(deviations))):
        return []
    point = placed_all({name: np.asarray(params[name]) for name in plan.free})
    return (small or computed) if bool(_collapsed(plan, point, known, problem.rows)) else []
