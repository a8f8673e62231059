"""Ways up for a climb that found none, since a start is never an answer; and away from saddles:
where states ended alike an ascent may have ended, though there is a way."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from probml.engines.climbing.coordinates import from_coordinates, objective, to_coordinates
from probml.engines.climbing.search import Maximize, Proposal, improve
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


def unstuck(problem: Problem, prior: bool, climb: Maximize, plain: Maximize,
            params: Mapping) -> Outcome:
    """An optimum, and those from elsewhere: where parameters have not moved at all, from a draw of
    their prior; where it found no way up though the gradient is not zero, by L-BFGS, whose first
    step is along the gradient; where the start is impossible: a start is never an answer.

    Args:
        climb: parameters to begin with → what is found from there. plain: the same by L-BFGS.

    Raises:
        Refusal: none of them found a way up.
        ModelError: no point was found that has a density.
    """
    plan, known, start = problem.plan, problem.known, problem.start
    outcome = climb(params)
    if outcome.status is Status.RUNAWAY:  # no other start has a maximum to go to
        return outcome

    def draws(outcome: Outcome) -> list[Mapping]:
        return [_arrays(outcome.params) | point
                for point in elsewhere(problem, prior, given_start(plan, start))]

    proposals = [Proposal("a draw of the prior of what had not moved",
                          lambda found: _moved_away(problem, params, found), climb),
                 off_saddle(problem, climb)]
    if _learns_states(plan) and not set(plan.free) <= set(start):
        proposals.append(Proposal("draws of the prior", draws, climb))
    outcome = improve(outcome, proposals)
    nowhere = not np.isfinite(outcome.history[0])
    if outcome.status is not Status.STALLED and not nowhere:
        return outcome
    here, others = _arrays(outcome.params), draws(outcome)
    if nowhere and not others:
        impossible(plan, params, known, "MAP", outcome.history[0])
    stalled = outcome
    ways = [] if nowhere else [Proposal("where it stalled", lambda _: [here],
                                        lambda point: plain(point).after(stalled))]
    ways += [Proposal("a draw of the prior", lambda _, point=point: [point], plain)
             for point in others]
    for way in ways:
        outcome = improve(outcome, [way])
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


def _moved_away(problem: Problem, params: Mapping, outcome: Outcome) -> list[Mapping]:
    """The optimum with those parameters at a draw of their prior that are where they began."""
    stuck = [name for name in problem.plan.free if name not in problem.start
             and _unmoved(outcome.params[name], params[name])]
    away = moved(problem, _arrays(outcome.params), stuck)
    return [] if all(np.array_equal(away[name], outcome.params[name]) for name in stuck) else [away]


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


def off_saddle(problem: Problem, climb: Maximize) -> Proposal:
    """Where states came to share their values, points a little apart: such an end may be a
    saddle."""
    def points(outcome: Outcome) -> list[Mapping]:
        apart = (shaken(problem.plan, outcome.params, problem.seed)
                 if outcome.status is Status.CONVERGED else None)
        return [] if apart is None else [_arrays(apart)]

    return Proposal("states that are not equal", points, climb)
