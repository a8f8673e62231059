"""Whether all that rows tell is their weight, their means and their second moments: rows of normal
numbers that are integrated out of normal locations, in the same way in every row, as the factors
of a factor analysis."""

import functools
import math

from probml.plan.plan import Plan

MOST = 512  # numbers of a row


@functools.lru_cache(maxsize=512)
def by_moments(plan: Plan) -> tuple[str, ...]:
    """The seen sites of a plan of this kind, each seen in every cell; none, where rows tell more.

    The log density of a row is then a quadratic in what is seen of it, whose coefficients no row
    moves, and so is all that an E-step finds: sums over rows are those of any rows of the same
    moments.
    """
    apart = (plan.variables or plan.pooled or plan.rowwise or plan.groupings or plan.carried
             or plan.structure.losses)
    if apart or plan.even != plan.latents or any(map(plan.timed, plan.latents)):
        return ()
    seen = tuple(name for group in plan.latents for name in group.sites if name not in group.names)
    whole = all(plan.pattern.get(name) == "seen" for name in seen) and set(seen) == set(
        plan.observed)
    closed = all(group.kind.exact for group in plan.latents)
    return seen if whole and closed and numbers(plan, seen) <= MOST else ()


def numbers(plan: Plan, names: tuple[str, ...]) -> int:
    """How many numbers of a row the sites have."""
    return sum(math.prod(plan.structure.sites[name].cells) for name in names)


def cells(plan: Plan) -> dict[str, tuple[int, ...]]:
    """The shapes of these sites' cells, in the order of the moments."""
    return {name: plan.structure.sites[name].cells for name in by_moments(plan)}
