"""Second looks: a climb says nothing of maxima that it did not meet. One more starts on the other
side of the first start, and, where nobody asked for a mode, two at draws of the prior.

Two ends are one maximum where the objective nowhere falls on the straight way between them, as of
anything convex; and two spellings of one where they are as high and all that the function computes
from them by name (numpyro.deterministic) is the same.
"""

from collections.abc import Collection, Iterator, Mapping

import jax
import numpy as np

from probml.engines.climbing.coordinates import from_coordinates, objective, to_coordinates
from probml.engines.climbing.search import Maximize, higher
from probml.engines.engine import Outcome, Problem, Status
from probml.engines.findings import Code, Finding
from probml.engines.start.prior import UNDRAWABLE, noise_of, prior_draws
from probml.numerics.transfer import placed_all
from probml.plan.blocks import blocks
from probml.plan.plan import Plan
from probml.plan.straight import straight
from probml.structure import deterministics

FEW = 32  # coordinates, and rows times coordinates, up to which further climbs are taken
WORK = 2**22
DRAWN = 2  # draws of the prior
NEAR = 0.1  # of the way from the start to the end, within which two ends are one
LOWER = 5.0  # nats below the highest at which another maximum is reported
HARDLY = 0.01  # nats that are none
SAME = 1e-6  # of the objective's size, by which one must be higher to be taken
ALIKE = 1e-3  # of the largest number, within which computed values are the same
BETWEEN = (0.1, 0.3, 0.5, 0.7, 0.9)  # places on the way between two ends
# whose tails are those of a power: rows far apart are a maximum each, also of what is affine
HEAVY = ("Cauchy", "StudentT")

Coordinates = dict[str, np.ndarray]


def other_side(problem: Problem, prior: bool, outcome: Outcome, begun: Mapping,
               climb: Maximize) -> Outcome:
    """The highest of a climb's end and where climbs from elsewhere end: from its mirror image about
    the start, in what has no bounds and then also in logits, which exchanges what a chance is of;
    with a finding where there are two.

    Of few coordinates and rows, where rows do not read one number that is affine in them.

    Args:
        begun: the point where it started. climb: parameters → what is found from there.
    """
    if not _asked(problem, prior, outcome):
        return outcome
    start = _coordinates(problem, begun)
    for point in _elsewhere(problem, outcome, start):
        other = climb(from_coordinates(problem.plan, placed_all(point), problem.known))
        found = _compared(problem, prior, outcome, other, start)
        if found.warned:
            return found
        outcome = found
    return outcome


def _coordinates(problem: Problem, params: Mapping) -> Coordinates:
    return jax.device_get(to_coordinates(problem.plan, placed_all(dict(params)), problem.known))


def _elsewhere(problem: Problem, outcome: Outcome, start: Coordinates) -> Iterator[Coordinates]:
    """Points to climb from, each once it is wanted."""
    end = _coordinates(problem, outcome.params)
    for names in dict.fromkeys(_turned(problem.plan)):
        if any(np.any(end[name] != start[name]) for name in names):
            yield {**end, **{name: 2 * start[name] - end[name] for name in names}}
    if problem.asked:
        return
    try:
        drawn = jax.device_get(prior_draws(problem.plan, problem.known,
                                           noise_of(problem.plan, DRAWN, problem.seed)))
    except UNDRAWABLE:
        return
    yield from ({name: value[i] for name, value in drawn.items()} for i in range(DRAWN))


def _compared(problem: Problem, prior: bool, outcome: Outcome, other: Outcome,
              start: Coordinates) -> Outcome:
    """The higher of two ends, with a finding where both are maxima."""
    if other.status is not Status.CONVERGED or not np.isfinite(other.history[-1]):
        return outcome
    rises = other.history[-1] - outcome.history[-1]
    best, rest = (other, outcome) if higher(other, outcome) else (outcome, other)
    here, there = (_coordinates(problem, one.params) for one in (best, rest))
    apart = {name: np.abs(here[name] - there[name]) for name in here}
    far = {name: float(np.max(gap, initial=0.0)) for name, gap in apart.items()
           if np.max(gap, initial=0.0) > NEAR * np.max(np.abs(here[name] - start[name]),
                                                       initial=0.0)}
    if (not far or abs(rises) > LOWER or _respelt(problem, best, rest, far)
            or _joined(problem, prior, best, rest)):
        return best
    name = max(far, key=far.__getitem__)
    values = [np.asarray(one.params[name]) for one in (best, rest)]
    index = np.unravel_index(int(np.argmax(np.abs(values[0] - values[1]))), values[0].shape)
    lower = best.history[-1] - rest.history[-1]
    height = f"at a value lower by {lower:.2g}" if lower > HARDLY else "at the same value"
    return best.noting(Finding.of(Code.SEVERAL_OPTIMA, name, index, height=height,
                                  here=values[0][index], there=values[1][index]))


def _respelt(problem: Problem, best: Outcome, rest: Outcome, far: Collection[str]) -> bool:
    """Whether two ends are as high, and the parameters that differ enter what the function computes
    by name, which is the same."""
    structure = problem.plan.structure
    asked = {name for each in structure.derived for name in structure.programs[each][1]}
    fall = best.history[-1] - rest.history[-1]
    if not asked.issuperset(far) or fall > SAME * (1 + abs(best.history[-1])):
        return False
    here, there = (jax.device_get(deterministics.at(structure, {**problem.known.given,
                                                                **placed_all(dict(one.params))}))
                   for one in (best, rest))
    return all(np.allclose(there[name], value, rtol=0.0,
                           atol=ALIKE * np.max(np.abs(value), initial=0.0))
               for name, value in here.items())


def _joined(problem: Problem, prior: bool, best: Outcome, rest: Outcome) -> bool:
    """Whether the objective nowhere falls below the lower end on the way between two ends."""
    plan, known, low = problem.plan, problem.known, rest.history[-1]
    least = low - SAME * (1 + abs(low))
    for share in BETWEEN:
        point = {name: (1 - share) * np.asarray(value) + share * np.asarray(rest.params[name])
                 for name, value in best.params.items()}
        u = to_coordinates(plan, placed_all(point), known)
        if not float(objective(plan, prior, u, known, problem.rows)[0]) >= least:
            return False
    return True


def _asked(problem: Problem, prior: bool, outcome: Outcome) -> bool:
    plan, sites = problem.plan, problem.plan.structure.sites
    size = sum(int(np.prod(sites[name].shape)) for name in plan.free)
    formed = all(block.form for stage in blocks(plan, prior) for block in stage)
    heavy = any(sites[name].kind in HEAVY for name in plan.rowwise)
    affine = straight(plan) and not plan.pooled and not heavy
    return (outcome.status is Status.CONVERGED and not outcome.warned and not problem.start
            and not problem.in_parts and problem.size is not None and plan.complete
            and not (plan.globals or plan.groupings or plan.latents or formed or affine)
            and size <= FEW and size * problem.size <= WORK)


def _turned(plan: Plan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Parameters without bounds, and these with logits."""
    domains = {name: plan.structure.sites[name].domain for name in plan.free}
    free = tuple(name for name, domain in domains.items() if domain.unbounded)
    return free, tuple(name for name, domain in domains.items() if name in free or (
        domain.logarithmic and domain.rank == 0 and not domain.log_scale))
