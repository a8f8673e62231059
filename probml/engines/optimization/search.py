"""One search for a higher optimum: proposals say from where else to maximise, one rule says what
is higher, and a fit records which proposal won.

A start is never an answer: from one where the gradient is 0, or the objective does not rise, the
search begins elsewhere. Second looks start on the other side of the first start and, where nobody
asked for a mode, at two draws of the prior. Two optima are one where the objective nowhere falls on
the straight way between them, as of anything convex; and two spellings of one where they are as
high and all that the function computes from them by name (numpyro.deterministic) is the same.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.engines.engine import Outcome, Problem, Status
from probml.engines.findings import Code, Finding
from probml.engines.optimization.objective import from_coordinates, objective, to_coordinates
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
from probml.plan.affine_rows import is_affine_in_rows
from probml.plan.blocks import all_blocks
from probml.plan.plan import Plan
from probml.structure import computed

ROUNDING = 1e-7  # of the objective's size, which no gain is told from

Maximize = Callable[[Mapping], Outcome]  # parameters to begin with → where it ends


class Proposal(NamedTuple):
    """Points from which a higher optimum may be reached.

    Attributes:
        name: the points, as the record of a fit calls them. points: an optimum → the points; none
            where the proposal does not apply to it. maximize: from each of them; None: what it
            ends at is no optimum that can be compared.
        rounds: how often it may be made again from what it found.
        compare: the higher of two optima, the other → a finding, where there is something to be
            said of both; by default nothing.
    """

    name: str
    points: Callable[[Outcome], Iterable[Mapping]]
    maximize: Callable[[Mapping], Outcome | None]
    rounds: int = 1
    compare: Callable[[Outcome, Outcome], Finding | None] = lambda best, rest: None


def height(outcome: Outcome) -> float:
    """The objective at an optimum; −∞ where there is none."""
    if outcome.status is Status.COLLAPSED or not len(outcome.history):
        return -np.inf
    return float(np.nan_to_num(outcome.history[-1], nan=-np.inf))


def higher(one: Outcome, other: Outcome, slack: float = 0.0) -> bool:
    """Whether one optimum is higher than another: by more than `slack`, and than rounding."""
    low = height(other)
    return height(one) > low + max(slack, ROUNDING * (1 + abs(low)) if np.isfinite(low) else 0.0)


def highest(values: jax.Array, allowed: jax.Array, slack: float = 0.0) -> jax.Array:
    """The number of the highest optimum, of several that one program found: the first, unless
    another that is `allowed` is higher than it by more than `slack`. Pure JAX."""
    first = jnp.arange(len(values)) == 0
    worth = jnp.where((first | allowed) & jnp.isfinite(values), values, -jnp.inf)
    return jnp.argmax(worth + jnp.where(first, slack, 0.0))


def improve(outcome: Outcome, proposals: Iterable[Proposal], slack: float = 0.0) -> Outcome:
    """The highest optimum that is reached from one and from what is proposed, one proposal after
    another.

    Args:
        slack: of the objective, by which an optimum must be higher to be taken.
    """
    for proposal in proposals:
        for _ in range(proposal.rounds):
            found = filter(None, map(proposal.maximize, proposal.points(outcome)))
            best = max(found, key=height, default=None)
            if best is None:
                break
            if not higher(best, outcome, slack):
                outcome = outcome.noting(proposal.compare(outcome, best))
                break
            low = height(outcome)
            gain = height(best) - low if np.isfinite(low) else np.inf
            outcome = best.noting(Finding.of(Code.IMPROVED, where=proposal.name, gain=gain),
                                  proposal.compare(best, outcome))
    return outcome


# Starts from which nothing rises, and saddles.

# draws of the prior that are looked at where the start leads nowhere, and the best of them that are
# climbed from
DRAWN, CLIMBED = 64, 3
# relative: a way that is none, as from a point where the gradient is zero by symmetry
HARDLY = 1e-6


def first_optimum(problem: Problem, prior: bool, climb: Maximize, plain: Maximize,
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
                for point in prior_points(problem, prior, given_start(plan, start))]

    proposals = [Proposal("a draw of the prior of what had not moved",
                          lambda found: _away_from_start(problem, params, found), climb),
                 unequal_states(problem, climb)]
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

    def until_converged(point: Mapping) -> Callable[[Outcome], list[Mapping]]:
        return lambda found: [] if found.status is Status.CONVERGED else [point]

    outcome = improve(outcome, [
        *([] if nowhere else [Proposal("where it stalled", until_converged(here),
                                       lambda point: plain(point).after(stalled))]),
        *(Proposal("a draw of the prior", until_converged(point), plain) for point in others)])
    if outcome.status is not Status.CONVERGED and outcome.iterations == 0:
        raise Refusal(
            f"MAP of {problem} found no way up from its start, nor from draws of the prior, though "
            f"the gradient is not zero: the log density is {outcome.history[-1]:.6g} there. Give "
            f"it another start, fit(..., start=...), "
            "an optimiser, MAP(optimizer=optax.adam(1e-2)), or look for a kink or a jump in "
            "the model's function"
        )
    return outcome


def _away_from_start(problem: Problem, params: Mapping, outcome: Outcome) -> list[Mapping]:
    """The optimum with those parameters at a draw of their prior that are where they began."""
    stuck = [name for name in problem.plan.free if name not in problem.start
             and _is_unmoved(outcome.params[name], params[name])]
    away = moved_from_start(problem, _arrays(outcome.params), stuck)
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


def prior_points(problem: Problem, prior: bool, fixed: Mapping) -> list[dict[str, jax.Array]]:
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


def _is_unmoved(value: jax.Array, start: jax.Array) -> bool:
    return bool(np.all(
        np.abs(np.asarray(value) - np.asarray(start)) <= HARDLY * (1 + np.abs(np.asarray(start)))
    ))


def moved_from_start(problem: Problem, params: Mapping, stuck: list[str]) -> dict[str, jax.Array]:
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


def unequal_states(problem: Problem, climb: Maximize) -> Proposal:
    """Where states came to share their values, points a little apart: such an end may be a
    saddle."""
    def points(outcome: Outcome) -> list[Mapping]:
        apart = (shaken(problem.plan, outcome.params, problem.seed)
                 if outcome.status is Status.CONVERGED else None)
        return [] if apart is None else [_arrays(apart)]

    return Proposal("states that are not equal", points, climb)

# Second looks.

FEW = 32  # coordinates, and rows times coordinates, up to which further climbs are taken
WORK = 2**22
SECOND = 2  # draws of the prior
NEAR = 0.1  # of the way from the start to the end, within which two ends are one
LOWER = 5.0  # nats below the highest at which another maximum is reported
EQUAL = 0.01  # nats that are none
SAME = 1e-6  # of the objective's size, by which one must be higher to be taken
ALIKE = 1e-3  # of the largest number, within which computed values are the same
BETWEEN = (0.1, 0.3, 0.5, 0.7, 0.9)  # places on the way between two ends
# whose tails are those of a power: rows far apart are a maximum each, also of what is affine
HEAVY = ("Cauchy", "StudentT")

Coordinates = dict[str, np.ndarray]


def second_looks(problem: Problem, prior: bool, begun: Mapping, climb: Maximize) -> list[Proposal]:
    """Further optimisations that end at the same optimum, or at another, which is a finding: from
    the mirror image of the optimum about the start, in what has no bounds and then also in logits,
    which exchanges what a chance is of; and, where nobody asked for a mode, from draws of the
    prior. Of few coordinates and rows, where rows do not read one number that is affine in them.

    Args:
        begun: the point where it started. climb: parameters → what is found from there.
    """
    plan, known = problem.plan, problem.known

    def converged(params: Mapping) -> Outcome | None:
        other = climb(params)
        return other if other.status is Status.CONVERGED and np.isfinite(height(other)) else None

    def look(name: str, place: Callable[[Coordinates], Coordinates | None]) -> Proposal:
        def points(outcome: Outcome) -> list[Mapping]:
            point = (place(_coordinates(problem, outcome.params))
                     if _worth_a_second_look(problem, prior, outcome) else None)
            return [] if point is None else [from_coordinates(plan, placed_all(point), known)]

        return Proposal(name, points, converged, 1, lambda best, rest: _several(
            problem, prior, best, rest, _coordinates(problem, begun)))

    def mirrored(names: tuple[str, ...], end: Coordinates) -> Coordinates | None:
        start = _coordinates(problem, begun)
        moved = {name: 2 * start[name] - end[name] for name in names}
        return {**end, **moved} if any(np.any(end[name] != start[name]) for name in names) else None

    @functools.cache
    def draws() -> Coordinates | None:
        try:
            return jax.device_get(prior_draws(plan, known, noise_of(plan, SECOND, problem.seed)))
        except UNDRAWABLE:
            return None

    def drawn(number: int, _: Coordinates) -> Coordinates | None:
        found = draws()
        return None if found is None else {name: value[number] for name, value in found.items()}

    return [*(look("the mirror image about the start", functools.partial(mirrored, names))
              for names in dict.fromkeys(_mirrored_names(plan))),
            *(look("a draw of the prior", functools.partial(drawn, number))
              for number in range(0 if problem.asked else SECOND))]


def _coordinates(problem: Problem, params: Mapping) -> Coordinates:
    return jax.device_get(to_coordinates(problem.plan, placed_all(dict(params)), problem.known))


def _several(problem: Problem, prior: bool, best: Outcome, rest: Outcome,
             start: Coordinates) -> Finding | None:
    """That two optima are maxima apart, hardly of different height."""
    here, there = (_coordinates(problem, one.params) for one in (best, rest))
    apart = {name: np.abs(here[name] - there[name]) for name in here}
    far = {name: float(np.max(gap, initial=0.0)) for name, gap in apart.items()
           if np.max(gap, initial=0.0) > NEAR * np.max(np.abs(here[name] - start[name]),
                                                       initial=0.0)}
    lower = height(best) - height(rest)
    if (not far or lower > LOWER or _is_respelled(problem, best, rest, far)
            or _is_joined(problem, prior, best, rest)):
        return None
    name = max(far, key=far.__getitem__)
    values = [np.asarray(one.params[name]) for one in (best, rest)]
    far_off = int(np.argmax(np.abs(values[0] - values[1])))
    index = tuple(int(i) for i in np.unravel_index(far_off, values[0].shape))
    by = f"at a value lower by {lower:.2g}" if lower > EQUAL else "at the same value"
    return Finding.of(Code.SEVERAL_OPTIMA, name, index, height=by, here=values[0][index],
                      there=values[1][index])


def _is_respelled(problem: Problem, best: Outcome, rest: Outcome, far: Collection[str]) -> bool:
    """Whether two ends are as high, and what the model declares to be identified is the same; or
    the parameters that differ enter what the function computes by name, and that is the same."""
    structure = problem.plan.structure
    declared = structure.model.identified_by is not None
    asked = {name for each in structure.derived for name in structure.programs[each][1]}
    fall = best.history[-1] - rest.history[-1]
    if not (declared or asked.issuperset(far)) or fall > SAME * (1 + abs(best.history[-1])):
        return False
    values = computed.identified_at if declared else computed.at
    here, there = (jax.device_get(values(structure, {**problem.known.given,
                                                     **placed_all(dict(one.params))}))
                   for one in (best, rest))
    return all(np.allclose(there[name], value, rtol=0.0,
                           atol=ALIKE * np.max(np.abs(value), initial=0.0))
               for name, value in here.items())


def _is_joined(problem: Problem, prior: bool, best: Outcome, rest: Outcome) -> bool:
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


def _worth_a_second_look(problem: Problem, prior: bool, outcome: Outcome) -> bool:
    plan, sites = problem.plan, problem.plan.structure.sites
    size = sum(int(np.prod(sites[name].shape)) for name in plan.free)
    formed = all(block.form for block in all_blocks(plan, prior))
    heavy = any(sites[name].kind in HEAVY for name in plan.rowwise)
    affine = is_affine_in_rows(plan) and not plan.pooled and not heavy
    return (outcome.status is Status.CONVERGED and not outcome.warned and not problem.start
            and not problem.in_parts and problem.size is not None and plan.complete
            and not (plan.globals or plan.groupings or plan.latents or formed or affine)
            and size <= FEW and size * problem.size <= WORK)


def _mirrored_names(plan: Plan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Parameters without bounds, and these with logits."""
    domains = {name: plan.structure.sites[name].domain for name in plan.free}
    free = tuple(name for name, domain in domains.items() if domain.unbounded)
    return free, tuple(name for name, domain in domains.items() if name in free or (
        domain.logarithmic and domain.rank == 0 and not domain.log_scale))
