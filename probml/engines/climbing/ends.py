"""Estimates at a boundary of their support: a probability of 0 or 1, a rate of 0, where the prior
is flat or rises up to it. The mode lies there, the posterior mass does not, and what has
probability 0 is impossible ever after: that is a finding.

It need not be the mode: next to an end a density is flat in logarithms, and a climb stays there,
in float32 the sooner. So the numbers are tried further inside, too, and what is higher is climbed
from.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from probml.engines.climbing.edges import HIGHER, LESS, heights
from probml.engines.climbing.search import Maximize, Proposal
from probml.engines.engine import Outcome, Problem, Status
from probml.engines.findings import Code, Finding
from probml.engines.start.prior import compiled_prior_point
from probml.families.domains import Domain, of
from probml.numerics.transfer import placed_all
from probml.plan.spreads import UNKNOWN, noises, spreads

NEAR = 1e-3  # of a range, or of the prior's point: what is further from an end is not at it
THERE = 1e-9  # what no rows tell from an end, however many there are
IDLE = 0.01  # nats that tell a number from the end no better than rounding does
INSIDE = 0.25 ** np.arange(6)  # of a range, or of the prior's point: where a number is tried


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

    def at(self, share: float) -> np.ndarray:
        """The parameter with its numbers that are near so far from the end, of `wide`."""
        side = np.where(self.value >= self.end, 1.0, -1.0)
        return np.where(self.away < NEAR, self.end + side * share * self.wide, self.value)

    def nearer(self, shares: bool) -> np.ndarray:
        """The parameter with its numbers that are near nearer still; of shares the others fill."""
        moved = np.where(self.away < NEAR, self.end + np.exp(LESS) * (self.value - self.end),
                         self.value)
        return moved / moved.sum(-1, keepdims=True) if shares else moved

    def finding(self, name: str, least: float) -> Finding:
        """That numbers nearer than `least` are at the boundary."""
        at = self.away < least
        ends = " and ".join(f"{end:g}" for end in np.unique(self.end[at]))
        return at_boundary(name, ends, f", {at.sum()} of {at.size} entries" * (at.size > 1))


def at_boundary(name: str, end: str, count: str = "") -> Finding:
    """That a parameter, or an entry of it, is at its boundary."""
    return Finding.of(Code.BOUNDARY, name, end=end, count=count)


def at_ends(problem: Problem, prior: bool, outcome: Outcome, tried: bool = True) -> Outcome:
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
    told = {width.name for width in (*spreads(plan), *noises(plan))}
    near = {name: found for name in plan.free
            if name not in told and all(found.parameter != name for found in outcome.findings)
            and (found := _end(problem, name, params)) is not None}
    least = {name: max(THERE, 4 * np.finfo(np.asarray(outcome.params[name]).dtype).eps
                       * bool(found.end.any())) for name, found in near.items()}
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
    return outcome.noting(*(found.finding(name, least[name]) for name, found in near.items()
                            if (found.away < least[name]).any()))


def inside(problem: Problem, prior: bool, climb: Maximize) -> Proposal:
    """From where the entries of a parameter that ended next to an end of its support are taken away
    from there, if the objective is higher there; scales of what is integrated out: edges.py.

    Cost: six evaluations of each parameter that is near an end.
    """
    plan = problem.plan

    def points(outcome: Outcome) -> list[Mapping]:
        if outcome.status is not Status.CONVERGED:
            return []
        params = {name: np.asarray(outcome.params[name], float) for name in plan.free}
        tried = [{**params, name: found.at(share)} for name in plan.free
                 if not plan.structure.sites[name].domain.sums_to_one
                 and (found := _end(problem, name, params)) is not None for share in INSIDE]
        if not tried:
            return []
        first, *values = heights(plan, prior, [params, *tried], problem.known, problem.rows)
        rounding = 64 * np.finfo(np.asarray(outcome.params[plan.free[0]]).dtype).eps * abs(first)
        best = int(np.argmax(values))
        return [placed_all(tried[best])] if values[best] > first + HIGHER + rounding else []

    applies = not (problem.start or problem.rows is None or plan.carried or plan.groupings
                   or plan.latents)
    return Proposal("the interior of the support", points, climb, int(applies))


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
