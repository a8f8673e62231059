"""Ways up for a climb that found none, since a start is never an answer; and away from saddles:
where states ended alike an ascent may have ended, though there is a way."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from probml.engines.climbing.coordinates import from_coordinates, objective, to_coordinates
from probml.engines.engine import Outcome, Problem, Status
from probml.engines.start.prior import (
    UNDRAWABLE,
    given_start,
    impossible,
    near_the_middle,
    noise_of,
    prior_draws,
)
from probml.engines.start.start import shaken
from probml.errors import Refusal
from probml.numerics.transfer import placed_all
from probml.plan.plan import Plan

# draws of the prior that are looked at where the start leads nowhere, and the best of them that are
# climbed from
DRAWN, CLIMBED = 64, 3
# relative: a way that is none, as from a point where the gradient is zero by symmetry
HARDLY = 1e-6

Climb = Callable[[Mapping], Outcome]


def unstuck(problem: Problem, prior: bool, climb: Climb, plain: Climb, params: Mapping) -> Outcome:
    """A climb; and others, where parameters have not moved at all (from a draw of their prior),
    where it found no way up though the gradient is not zero (by L-BFGS, whose first step is
    along the gradient), or where the start is impossible: a start is never an answer.

    Args:
        climb: parameters to begin with → what is found from there. plain: the same by L-BFGS.

    Raises:
        Refusal: none of them found a way up.
        ModelError: no point was found that has a density.
    """
    plan, known, start = problem.plan, problem.known, problem.start

    def better(found, other):
        return max(found, other, key=lambda each: np.nan_to_num(each.history[-1], nan=-np.inf))

    outcome = climb(params)
    if outcome.status is Status.RUNAWAY:  # no other start has a maximum to go to
        return outcome
    stuck = [name for name in plan.free if name not in start
             and _unmoved(outcome.params[name], params[name])]
    away = moved(problem, _arrays(outcome.params), stuck)
    if not all(np.array_equal(away[name], outcome.params[name]) for name in stuck):
        outcome = better(outcome, climb(away))
    outcome = off_saddle(problem, outcome, lambda apart: climb(_arrays(apart)))
    if _learns_states(plan) and not set(plan.free) <= set(start):
        for point in elsewhere(problem, prior, given_start(plan, start)):
            outcome = better(outcome, climb(_arrays(outcome.params) | point))
    nowhere = not np.isfinite(outcome.history[0])
    if outcome.status is not Status.STALLED and not nowhere:
        return outcome
    here = _arrays(outcome.params)
    others = [here | point for point in elsewhere(problem, prior, given_start(plan, start))]
    if nowhere and not others:
        impossible(plan, params, known, "MAP", outcome.history[0])
    for point in others if nowhere else [here, *others]:
        other = plain(point)
        if point is here:  # the same climb goes on
            other = other.after(outcome)
        outcome = better(outcome, other)
        if outcome.status is Status.CONVERGED:
            return outcome
    if outcome.iterations == 0:
        raise Refusal(
            f"MAP of {problem} found no way up from its start, nor from draws of the prior, though "
            f"the gradient is not zero: the log density is {outcome.history[-1]:.6g} there. Give "
            f"it another start, fit(..., start=...), "
            "an optimiser, MAP(optimizer=optax.adam(1e-2)), or look for a kink or a jump in "
            "the model's function"
        )
    return outcome


def _learns_states(plan: Plan) -> bool:
    """Whether parameters have a member for each state of hidden cells: then there are many maxima,
    and the prior means, where all states are alike, are none."""
    sites = plan.structure.sites
    return any(sites[p].shape.count(sites[z].finite) for z in plan.cellwise
               for child in plan.structure.children[z] for uses in sites[child].uses.values()
               for p in uses if p in plan.free)


def _arrays(params: Mapping) -> dict[str, jax.Array]:
    return placed_all(dict(params))


def elsewhere(problem: Problem, prior: bool, fixed: Mapping) -> list[dict[str, jax.Array]]:
    """The best few of some draws of the prior, where it can be drawn, and of points near the middle
    of unbounded coordinates, where none of these has a density; what the user fixed stays."""
    plan, known = problem.plan, problem.known
    try:
        drawn = jax.device_get(prior_draws(plan, known, noise_of(plan, DRAWN, problem.seed)))
    except UNDRAWABLE:
        return []

    def best(drawn: Mapping) -> list[dict]:
        points = [from_coordinates(plan, {name: leaf[i] for name, leaf in drawn.items()}, known)
                  | fixed for i in range(DRAWN)]
        values = [float(objective(plan, prior, to_coordinates(plan, p, known), known,
                                  problem.rows)[0]) for p in points]
        order = np.argsort([-value if np.isfinite(value) else np.inf for value in values])
        return [points[i] for i in order if np.isfinite(values[i])][:CLIMBED]

    return best(drawn) or best(near_the_middle(drawn, problem.seed))


def _unmoved(value: Any, start: Any) -> bool:
    return bool(np.all(
        np.abs(np.asarray(value) - np.asarray(start)) <= HARDLY * (1 + np.abs(np.asarray(start)))
    ))


def moved(problem: Problem, params: Mapping, stuck: list[str]) -> dict[str, jax.Array]:
    """Parameters in which the density was flat, as in hidden units that are all alike or at 0 of
    what is squared, at a draw from their prior instead."""
    plan, known = problem.plan, problem.known
    used = {p for name in (*plan.pooled, *plan.rowwise)
            for uses in plan.structure.sites[name].uses.values() for p in uses}
    stuck = [name for name in stuck if name in used]
    if not stuck:
        return dict(params)
    try:
        drawn = jax.device_get(prior_draws(plan, known, noise_of(plan, 1, problem.seed)))
        values = from_coordinates(plan, {name: leaf[0] for name, leaf in drawn.items()}, known)
    except UNDRAWABLE:
        return dict(params)
    return {name: values[name] if name in stuck else value for name, value in params.items()}


def off_saddle(problem: Problem, outcome: Outcome, again: Callable[[Mapping], Outcome],
               gain: float = 0.0) -> Outcome:
    """What was found; where states came to share their values, what is found from a little apart if
    that is higher: then the end was a saddle.

    Args:
        again: parameters to begin with → what is found from there.
        gain: nats by which it must be higher.
    """
    if outcome.status is not Status.CONVERGED:
        return outcome
    apart = shaken(problem.plan, outcome.params, problem.seed)
    if apart is None:
        return outcome
    other = again(apart)
    ends = [np.nan_to_num(each.history[-1], nan=-np.inf) if len(each.history) else -np.inf
            for each in (outcome, other)]
    higher = other.status is not Status.COLLAPSED and ends[1] > ends[0] + gain
    return other if higher else outcome
