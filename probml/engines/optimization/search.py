"""One search for a higher optimum: proposals say from where else to maximise, one rule says which
optimum is higher, and a finding records which proposal won.

A start is never an answer: if the gradient is 0 there, or the objective does not rise from it, the
search begins elsewhere. For a small problem the search is repeated from the mirror image of the
start and, unless the user asked for a mode, from two draws of the prior. Two optima are one if the
objective nowhere falls on the straight line between them, as for anything convex; and they are
equivalent if they are as high and all that the function computes from them by name
(numpyro.deterministic) is the same.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from probml.engines.engine import Outcome, Problem, Status
from probml.engines.findings import Code, Finding
from probml.engines.optimization.identifiability import domain_flags, repeat_per_coordinate
from probml.engines.optimization.maximization import objective_value
from probml.engines.start.prior import (
    drawn_prior,
    given_start,
    points_near_zero,
    raise_impossible_start,
)
from probml.engines.start.start import separate_equal_states
from probml.errors import Refusal
from probml.evidence import density
from probml.numerics.transfer import placed_all
from probml.plan.blocks import all_blocks
from probml.plan.plan import Plan
from probml.plan.sufficient_statistics import is_affine_in_rows
from probml.posteriors.posterior import constrained, unconstrained
from probml.structure.densities import deterministics_at, identified_at

ROUNDING = 1e-7  # a smaller gain, relative to the objective, is none

Maximize = Callable[[Mapping], Outcome]  # parameters at the start → the optimum


class Proposal(NamedTuple):
    """Points from which a higher optimum may be reached.

    Attributes:
        name: of the points, for the finding that it was successful.
        points: an optimum → the points; none, or None, where the proposal does not apply to it.
        maximize: from each of them; None: no optimum that can be compared.
        rounds: how often it may be repeated from the optimum it found.
        compare: the higher of two optima, the other → a finding about both, or None.
    """

    name: str
    points: Callable[[Outcome], Iterable[Mapping | None]]
    maximize: Callable[[Mapping], Outcome | None]
    rounds: int = 1
    compare: Callable[[Outcome, Outcome], Finding | None] = lambda best, rest: None


def final_objective(outcome: Outcome) -> float:
    """The objective at an optimum; −∞ where there is none."""
    if outcome.status is Status.COLLAPSED or not len(outcome.history):
        return -np.inf
    return float(np.nan_to_num(outcome.history[-1], nan=-np.inf))


def is_higher(outcome: Outcome, other: Outcome, slack: float = 0.0) -> bool:
    """Whether one optimum is higher than another by more than `slack`, and than rounding."""
    low = final_objective(other)
    return final_objective(outcome) > low + max(
        slack, ROUNDING * (1 + abs(low)) if np.isfinite(low) else 0.0)


def index_of_highest(values: np.ndarray, allowed: np.ndarray, slack: float = 0.0) -> int:
    """The index of the highest of several optima of one program: the first, unless another that is
    `allowed` is higher by more than `slack`."""
    is_first = np.arange(len(values)) == 0
    candidates = np.where((is_first | allowed) & np.isfinite(values), values, -np.inf)
    return int(np.argmax(candidates + np.where(is_first, slack, 0.0)))


def improve(outcome: Outcome, proposals: Iterable[Proposal], slack: float = 0.0) -> Outcome:
    """The highest optimum that is reached from an optimum by proposals, one after another.

    Args:
        slack: of the objective, by which an optimum must be higher to be taken.
    """
    for proposal in proposals:
        for _ in range(proposal.rounds):
            points = filter(None, proposal.points(outcome))
            optima = filter(None, map(proposal.maximize, points))
            best = max(optima, key=final_objective, default=None)
            if best is None:
                break
            if not is_higher(best, outcome, slack):
                outcome = outcome.noting(proposal.compare(outcome, best))
                break
            low = final_objective(outcome)
            gain = final_objective(best) - low if np.isfinite(low) else np.inf
            outcome = best.noting(Finding.of(Code.IMPROVED, where=proposal.name, gain=gain),
                                  proposal.compare(best, outcome))
    return outcome


# Starts from which the objective does not rise, and saddle points.

DRAWS, MAX_STARTS = 64, 3  # draws of the prior that are evaluated, the best of them that are used
UNMOVED = 1e-6  # relative change that is none, as from a point whose gradient is 0 by symmetry


def find_first_optimum(problem: Problem, prior: bool, maximize: Maximize, lbfgs: Maximize,
                       params: Mapping) -> Outcome:
    """The optimum from a start, or a higher one from elsewhere: from a draw of the prior for
    parameters that did not move at all; by L-BFGS, whose first step is along the gradient, if no
    step increased the objective though the gradient is not 0; from draws of the prior if the start
    has no density.

    Args:
        maximize, lbfgs: parameters at the start → the optimum, by the method of choice and L-BFGS.

    Raises:
        Refusal: no step from any of these points increases the objective.
        ModelError: no point with a density was found.
    """
    plan, known, start = problem.plan, problem.known, problem.start
    outcome = maximize(params)
    if outcome.status is Status.DIVERGED:  # no other start has a maximum to go to
        return outcome

    def draws(outcome: Outcome) -> list[Mapping]:
        return [placed_all(dict(outcome.params)) | point
                for point in prior_points(problem, prior, given_start(plan, start))]

    proposals = [Proposal("other values of the parameters that the optimiser had not changed, "
                          "drawn from their prior",
                          lambda optimum: _unmoved_at_draw(problem, params, optimum), maximize),
                 propose_unequal_states(problem, maximize)]
    if _has_parameters_by_hidden_state(plan) and not set(plan.free) <= set(start):
        proposals.append(Proposal("values drawn from the prior", draws, maximize))
    outcome = improve(outcome, proposals)
    impossible_start = not np.isfinite(outcome.history[0])
    if outcome.status is not Status.STALLED and not impossible_start:
        return outcome
    stalled, prior_draws = outcome, draws(outcome)
    if impossible_start and not prior_draws:
        raise_impossible_start(plan, params, known, "MAP", outcome.history[0])

    def until_converged(point: Mapping) -> Callable[[Outcome], list[Mapping]]:
        return lambda optimum: [] if optimum.status is Status.CONVERGED else [point]

    outcome = improve(outcome, [
        *([] if impossible_start else [Proposal(
            "the point at which it had stopped", until_converged(placed_all(dict(stalled.params))),
            lambda point: lbfgs(point).after(stalled))]),
        *(Proposal("values drawn from the "
                   "prior", until_converged(point), lbfgs) for point in prior_draws)])
    if outcome.status is not Status.CONVERGED and outcome.iterations == 0:
        raise Refusal(
            f"MAP cannot fit {problem}: the optimiser found no step that increases the log density "
            f"({outcome.history[-1]:.6g}), although its gradient is not zero. It was started from "
            f"the initial values and from values drawn from the prior. Give other initial values, "
            f"fit(..., start={{...}}), or an optimiser, MAP(optimizer=optax.adam(1e-2)). Or check "
            f"whether the density of the model is continuous and differentiable"
        )
    return outcome


def _unmoved_at_draw(problem: Problem, params: Mapping, outcome: Outcome) -> list[Mapping]:
    """The optimum with the parameters that are still at their start at a draw of their prior."""
    end = placed_all(dict(outcome.params))
    unmoved = [name for name in problem.plan.free if name not in problem.start and np.all(
        np.abs(np.asarray(end[name]) - np.asarray(params[name]))
        <= UNMOVED * (1 + np.abs(np.asarray(params[name]))))]
    point = at_prior_draw(problem, end, unmoved)
    return [] if all(np.array_equal(point[name], end[name]) for name in unmoved) else [point]


def _has_parameters_by_hidden_state(plan: Plan) -> bool:
    """Whether parameters have an entry for each state of hidden cells: then there are many maxima,
    and the prior means, where all states are equal, are none."""
    sites = plan.structure.sites
    return any(sites[p].shape.count(sites[z].finite) for z in plan.cellwise
               for child in plan.structure.children[z] for uses in sites[child].uses.values()
               for p in uses if p in plan.free)


def objective_at_points(problem: Problem, prior: bool, points: Sequence[Mapping]) -> np.ndarray:
    """The objective at some points; −∞ where it is not finite."""
    plan, known, rows = problem.plan, problem.known, problem.rows
    coords = [unconstrained(plan, placed_all({name: point[name] for name in plan.free}), known)
              for point in points]
    values = np.array([objective_value(plan, prior, u, known, rows) for u in coords])
    return np.where(np.isfinite(values), values, -np.inf)


def prior_points(problem: Problem, prior: bool, fixed: Mapping) -> list[dict[str, jax.Array]]:
    """The best few draws of the prior, if it can be drawn from, or of points near 0 in unbounded
    coordinates if no draw has a density; `fixed` parameters have the user's values."""
    plan, known = problem.plan, problem.known
    drawn = drawn_prior(plan, known, DRAWS, problem.seed)
    if drawn is None:
        return []

    def best(drawn: np.ndarray) -> list[dict]:
        values = jax.device_get(constrained(plan, known, drawn))
        points = [placed_all({name: value[i] for name, value in values.items()} | dict(fixed))
                  for i in range(DRAWS)]
        heights = objective_at_points(problem, prior, points)
        return [points[i] for i in np.argsort(-heights) if np.isfinite(heights[i])][:MAX_STARTS]

    return best(drawn) or best(points_near_zero(drawn, problem.seed))


def at_prior_draw(problem: Problem, params: Mapping, names: list[str]) -> dict[str, jax.Array]:
    """Parameters, some of which are replaced by a draw of their prior: those in which the density
    is flat, as in hidden units that are all equal, or at 0 for what is squared."""
    plan, known = problem.plan, problem.known
    entering = {p for name in (*plan.pooled, *plan.rowwise)
                for uses in plan.structure.sites[name].uses.values() for p in uses}
    names = [name for name in names if name in entering]
    drawn = drawn_prior(plan, known, 1, problem.seed) if names else None
    if drawn is None:
        return dict(params)
    values = constrained(plan, known, drawn[0])
    return {name: values[name] if name in names else value for name, value in params.items()}


def propose_unequal_states(problem: Problem, maximize: Maximize) -> Proposal:
    """A point near an optimum at which hidden states have the same values: it may be a saddle."""
    return Proposal("unequal states", lambda outcome: [
        separate_equal_states(problem.plan, outcome.params, problem.seed)
        if outcome.status is Status.CONVERGED else None],
        lambda point: maximize(placed_all(dict(point))))


# Other optima of small problems.

MAX_COORDINATES = 32  # up to which an optimisation is repeated
MAX_WORK = 2**22  # rows times coordinates up to which it is repeated
PRIOR_STARTS = 2  # draws of the prior from which it is repeated
SAME_OPTIMUM = 0.1  # of the distance from the start, within which two optima are one
MAX_LOWER = 5.0  # log density by which another optimum that is reported may be lower
EQUAL = 0.01  # log density: no difference
ON_THE_WAY = 1e-6  # fall of the objective, relative to it, on the line between optima that are one
EQUAL_VALUES = 1e-3  # relative to the largest number: computed values that are the same
BETWEEN = (0.1, 0.3, 0.5, 0.7, 0.9)  # points on the line between two optima
# distributions whose tails fall as a power: each outlier may make a maximum, in affine models too
HEAVY_TAILED = ("Cauchy", "StudentT")


def propose_other_optima(problem: Problem, prior: bool, start: Mapping,
                         maximize: Maximize) -> list[Proposal]:
    """Repeated optimisations that end at the same optimum, or at another, which is a finding: from
    the mirror image of the optimum about the start, in coordinates without bounds and then also in
    logits, which exchanges the outcomes of a probability; and, unless the user asked for a mode,
    from draws of the prior. Only for few coordinates and rows, whose density does not depend on one
    affine number a row.

    Args:
        start: the point where the first optimisation started. maximize: parameters → the optimum.
    """
    plan, known = problem.plan, problem.known

    def converged(params: Mapping) -> Outcome | None:
        other = maximize(params)
        return other if other.status is Status.CONVERGED and np.isfinite(
            final_objective(other)) else None

    def propose(name: str, transform: Callable[[np.ndarray], np.ndarray | None]) -> Proposal:
        def points(outcome: Outcome) -> list[Mapping]:
            point = (transform(_coordinates(problem, outcome.params))
                     if _is_search_worthwhile(problem, prior, outcome) else None)
            return [] if point is None else [constrained(plan, known, point)]

        return Proposal(name, points, converged, 1, lambda best, other: _several_optima(
            problem, prior, best, other, _coordinates(problem, start)))

    def mirror(image: np.ndarray, end: np.ndarray) -> np.ndarray | None:
        pivot = _coordinates(problem, start)
        return np.where(image, 2 * pivot - end, end) if (end != pivot)[image].any() else None

    draws = functools.cache(lambda: drawn_prior(plan, known, PRIOR_STARTS, problem.seed))

    def draw(number: int, _: np.ndarray) -> np.ndarray | None:
        drawn = draws()
        return None if drawn is None else drawn[number]

    unbounded, sites = domain_flags(plan, "unbounded"), plan.structure.sites
    logits = domain_flags(plan, "logarithmic") & ~domain_flags(plan, "log_scale") & (
        repeat_per_coordinate(plan, lambda name: sites[name].domain.rank == 0))
    return [*(propose("the mirror image of the estimates about the initial "
                      "values", functools.partial(mirror, coordinates))
              for coordinates in (unbounded, *[unbounded | logits] * bool(logits.any()))),
            *(propose("values drawn from the prior", functools.partial(draw, number))
              for number in range(0 if problem.asked else PRIOR_STARTS))]


def _coordinates(problem: Problem, params: Mapping) -> np.ndarray:
    return np.asarray(unconstrained(problem.plan, placed_all(dict(params)), problem.known))


def _several_optima(problem: Problem, prior: bool, best: Outcome, other: Outcome,
                    start: np.ndarray) -> Finding | None:
    """The finding that two optima are separate maxima of about the same height; None: they are
    not."""
    u_hi, u_lo = (_coordinates(problem, opt.params) for opt in (best, other))
    parts = density.coordinate_slices(problem.plan)
    gaps, distances = ({name: float(np.abs(difference[part]).max(initial=0.0)) for name,
                        part in parts.items()}
                       for difference in (u_hi - u_lo, u_hi - start))
    different = {name: gap for name, gap in gaps.items() if gap > SAME_OPTIMUM * distances[name]}
    lower = final_objective(best) - final_objective(other)
    if (not different or lower > MAX_LOWER or _are_equivalent(problem, best, other, different)
            or _are_connected(problem, prior, best, other)):
        return None
    name = max(different, key=different.__getitem__)
    values = [np.asarray(opt.params[name]) for opt in (best, other)]
    entry = int(np.argmax(np.abs(values[0] - values[1])))
    index = tuple(int(i) for i in np.unravel_index(entry, values[0].shape))
    height = f"lower by {lower:.2g}" if lower > EQUAL else "of the same height"
    return Finding.of(Code.SEVERAL_OPTIMA, name, index, height=height, here=values[0][index],
                      there=values[1][index])


def _are_equivalent(problem: Problem, best: Outcome, other: Outcome,
                    different: Collection[str]) -> bool:
    """Whether two optima are as high, and what the model declares to be identified is the same; or
    the parameters that differ enter what the function computes by name, and that is the same."""
    structure = problem.plan.structure
    declared = structure.model.identified_by is not None
    entering = {name for output in structure.derived for name in structure.programs[output][1]}
    fall = best.history[-1] - other.history[-1]
    if not (declared or entering.issuperset(different)) or (
            fall > ON_THE_WAY * (1 + abs(best.history[-1]))):
        return False
    evaluate = identified_at if declared else deterministics_at
    v_hi, v_lo = (jax.device_get(evaluate(structure, {**problem.known.given,
                                                      **placed_all(dict(opt.params))}))
                  for opt in (best, other))
    return all(np.allclose(v_lo[name], value, rtol=0.0,
                           atol=EQUAL_VALUES * np.max(np.abs(value), initial=0.0))
               for name, value in v_hi.items())


def _are_connected(problem: Problem, prior: bool, best: Outcome, other: Outcome) -> bool:
    """Whether the objective nowhere falls below the lower optimum on the line between two."""
    low = other.history[-1]
    points = [{name: (1 - share) * np.asarray(value) + share * np.asarray(other.params[name])
               for name, value in best.params.items()} for share in BETWEEN]
    values = objective_at_points(problem, prior, points)
    return bool((values >= low - ON_THE_WAY * (1 + abs(low))).all())


def is_work_small(problem: Problem) -> bool:
    """Whether an optimisation takes so little time that it may be repeated."""
    sites, rows = problem.plan.structure.sites, problem.size
    size = sum(int(np.prod(sites[name].shape)) for name in problem.plan.free)
    return (not problem.in_parts and rows is not None and size <= MAX_COORDINATES
            and size * rows <= MAX_WORK)


def _is_search_worthwhile(problem: Problem, prior: bool, outcome: Outcome) -> bool:
    plan, sites = problem.plan, problem.plan.structure.sites
    closed_forms = all(block.form for block in all_blocks(plan, prior))
    heavy = any(sites[name].kind in HEAVY_TAILED for name in plan.rowwise)
    affine = is_affine_in_rows(plan) and not plan.pooled and not heavy
    return (outcome.status is Status.CONVERGED and not outcome.warned and not problem.start
            and plan.complete and is_work_small(problem)
            and not (plan.globals or plan.groupings or plan.latents or closed_forms or affine))
