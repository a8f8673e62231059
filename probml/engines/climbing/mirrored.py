"""A second look from the other side: a climb says nothing of maxima that it did not meet.

Two ends are one maximum where the objective nowhere falls on the straight way between them, as of
anything convex; and two spellings of one where they are as high and all that the function computes
from them by name (numpyro.deterministic) is the same.
"""

from collections.abc import Callable, Collection, Mapping

import jax
import numpy as np

from probml.engines.climbing.coordinates import objective, to_coordinates
from probml.engines.engine import Outcome, Problem, Status
from probml.numerics.transfer import placed_all
from probml.plan.blocks import blocks
from probml.plan.plan import Plan
from probml.plan.straight import straight
from probml.structure import deterministics

FEW = 32  # coordinates, and rows times coordinates, up to which a climb more is taken
WORK = 2**22
NEAR = 0.1  # of the way from the start to the end, within which two ends are one
LOWER = 5.0  # nats below the highest at which a maximum is worth a word
SAME = 1e-6  # of the objective's size, by which one must be higher to be taken
ALIKE = 1e-3  # of the largest number, within which computed values are the same
BETWEEN = (0.1, 0.3, 0.5, 0.7, 0.9)  # places on the way between two ends
# whose tails are those of a power: rows far apart are a maximum each, also of what is affine
HEAVY = ("Cauchy", "StudentT")


def other_side(problem: Problem, prior: bool, outcome: Outcome, begun: Mapping,
               climb: Callable[[Mapping], Outcome]) -> Outcome:
    """The higher of a climb's end and where a climb from its mirror image ends, about the start, in
    what has no bounds; with a word where there are two.

    So what differs from another maximum by a sign is told, as the root of a square is. Of few
    coordinates and rows, where rows do not read one number that is affine in them.

    Args:
        begun: the point where it started. climb: parameters → what is found from there.
    """
    if not _asked(problem, prior, outcome):
        return outcome
    names = _turned(problem.plan)
    start = {name: np.asarray(begun[name]) for name in names}
    way = {name: np.asarray(outcome.params[name]) - start[name] for name in names}
    if not any(np.any(value) for value in way.values()):
        return outcome
    other = climb(placed_all({**outcome.params,
                              **{name: start[name] - way[name] for name in names}}))
    if other.status is not Status.CONVERGED or not np.isfinite(other.history[-1]):
        return outcome
    rises = other.history[-1] - outcome.history[-1]
    best, rest = ((other, outcome) if rises > SAME * (1 + abs(outcome.history[-1]))
                  else (outcome, other))
    apart = {name: np.abs(np.asarray(best.params[name]) - np.asarray(rest.params[name]))
             for name in names}
    far = {name: float(np.max(apart[name], initial=0.0)) for name in names
           if np.max(apart[name], initial=0.0) > NEAR * np.max(np.abs(way[name]), initial=0.0)}
    if (not far or abs(rises) > LOWER or _respelt(problem, best, rest, far)
            or _joined(problem, prior, best, rest)):
        return best
    name = max(far, key=far.__getitem__)
    index = np.unravel_index(int(np.argmax(apart[name])), apart[name].shape)
    cell = f"{name}[{', '.join(map(str, index))}]" if index else name
    here, there = (float(np.asarray(one.params[name])[index]) for one in (best, rest))
    note = (f"one of several maxima: from the other side of its start the climb ended "
            f"{max(best.history[-1] - rest.history[-1], 0.0):.2g} nats lower, where '{cell}' is "
            f"{there:.3g} and not {here:.3g}. Give a prior or bounds that leave one, or ask for "
            f"all that is known: NUTS()")
    return best._replace(notes=(*best.notes, note))


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
    return (outcome.status is Status.CONVERGED and not outcome.notes and not problem.start
            and not problem.in_parts and problem.size is not None and plan.complete
            and not (plan.globals or plan.groupings or plan.latents or formed or affine)
            and size <= FEW and size * problem.size <= WORK and bool(_turned(plan)))


def _turned(plan: Plan) -> list[str]:
    return [name for name in plan.free if plan.structure.sites[name].domain.unbounded]
