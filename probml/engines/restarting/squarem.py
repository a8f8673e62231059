"""EM's steps: the device evaluates and makes M-steps, the host decides what becomes of them:
SQUAREM's extrapolations (Varadhan & Roland 2008), safeguarded.

What is decided are a few numbers for each restart. In a loop on the device they were half of the
program and of the time it took to compile; here they cost less than a device call does.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Status
from probml.engines.restarting import slices, vectors
from probml.engines.restarting.vectors import joined, loose
from probml.engines.start.start import Start
from probml.evidence.expected import Expected
from probml.evidence.passes import expect, gathered, swept
from probml.factors.digits import collapsed
from probml.factors.naturals import naturals
from probml.factors.prior import log_prior
from probml.jaxpr.opened.shortened import shortened
from probml.numerics import lapack
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.updates.updates import maximise

READINGS = 3  # points at which the M-step reads a form, at the most
HELD = 0.01  # share of the prior mean in first probabilities of 0
BLOCK = 32  # evaluations a turn at the most: progress shows and Ctrl-C works in between
# share of what a leap told of the steps that are left that counts at the next one, whose step may
# lie across the slow ways
FADING = 0.8
# times longer at the most, where rounding hides gains; relative steps of parameters that stand
# still
PATIENT, STILL = 8.0, 3e-5
FARTHEST = 256.0  # steps that a leap goes at the most
START = -1  # the first M-step takes the statistics of the labelled rows


class State(NamedTuple):
    """All restarts, on the host; every leaf leads with them. `pending` is evaluated next; `params`,
    `value` are the best evaluated; see _decided for the rest.

    Parameters are vectors, see vectors.py.
    """

    pending: np.ndarray
    params: np.ndarray
    value: np.ndarray
    # START, or 0: plain; 1: one step made from `base`; 2: `pending` is an extrapolation
    phase: np.ndarray
    base: np.ndarray  # the cycle's first point
    fallback: np.ndarray
    calm: np.ndarray  # how many evaluations in a row gained less than the tolerance
    slow: np.ndarray  # how many steps are left when one is made, as late ones foretell by shrinking
    left: np.ndarray  # relative way of the parameters to where they go: so many steps
    count: np.ndarray  # type: ignore[assignment] # not the tuple's method
    status: np.ndarray


class Settings(NamedTuple):
    """What the ascent needs to know of EM."""

    prior: bool
    hard: bool
    accelerate: bool
    tolerance: float
    max_iterations: int
    progress: bool


class Evaluated(NamedTuple):
    """A point of every restart: the objective there, the size of what was added up for it, whether
    a scale has collapsed, and the M-step from it."""

    value: Any
    size: Any
    collapsed: Any
    improved: Any


def initial(plan: Plan, params: Mapping, labelled: bool,
            drawn: np.ndarray | None = None) -> State:
    """`base` is written before it is read."""
    restarts = np.shape(next(iter(params.values())))[0] if params else 1
    vector = vectors.stacked(plan, params, restarts)
    zero = np.zeros(restarts, np.int32)
    value = np.full(restarts, -np.inf, vector.dtype)
    phase = zero + (START if labelled else 0)
    phase = phase if drawn is None else np.where(drawn, 0, phase).astype(zero.dtype)
    return State(vector, vector, value, phase, vector, vector, zero, np.ones_like(value),
                 np.zeros_like(value), zero, zero)


def advance(plan: Plan, static: tuple, state: State, first: Start, known: Known, rows: Rows,
            limit: int, gain: float) -> tuple[State, np.ndarray, bool]:
    """Evaluate until `limit`, BLOCK times, or until every restart has stopped: the states, the
    objective's trail (restarts, BLOCK), and whether all have stopped.

    Args:
        static: prior, hard, accelerate, closed: the settings of EM, and whether closed forms are
            used.
    """
    prior, hard, accelerate, closed = static
    trail = np.full((len(state.value), BLOCK), np.nan, state.value.dtype)
    size = slices.size(plan, rows, len(state.value))
    parts = slices.parted(plan, rows, len(state.value))

    def found_of(state: State, running: np.ndarray, alone: bool) -> Evaluated:
        every = state.pending, state.phase == START, first.expected, first.allowed

        def evaluate_members(members: tuple) -> Evaluated:
            if not parts:
                return jax.device_get(evaluate(plan, (prior, hard, closed), *members, known, rows))
            sums = slices.map_in_threads(lambda part: jax.block_until_ready(
                _swept(plan, hard, members[0], members[3], known, part)), parts, alone)
            return jax.device_get(_gathered(plan, (prior, hard, closed), *members, known, rows,
                                            sums))

        if size == len(running):
            return evaluate_members(every)
        # what has ended stays where it is
        blank = Evaluated(state.value, np.zeros_like(state.value), np.zeros(len(running), bool),
                          state.pending)
        return slices.evaluated(lambda at: evaluate_members(jax.tree.map(lambda leaf: leaf[at],
                                                                         every)),
                                running, size, blank, alone)

    if size < len(state.value):
        first = jax.tree.map(np.asarray, first)
    for i in range(BLOCK):
        running = (state.status == Status.RUNNING) & (state.count < limit)
        if not running.any():
            break
        found = found_of(state, running, i == 0)
        with np.errstate(all="ignore"):  # of those that have collapsed
            new = _decided(plan, accelerate, state, first, found, known, gain)
        trail[:, i] = np.where(running & (state.phase != START), new.value, np.nan)
        state = _chosen(running, new, state)
    return state, trail, bool((state.status != Status.RUNNING).all())


@functools.partial(jit, static_argnames=("plan", "static"))
def evaluate(plan: Plan, static: tuple, pending: jax.Array, starting: jax.Array,
             labelled: Expected | None, allowed: Mapping, known: Known, rows: Rows) -> Evaluated:
    """An E-step and an M-step at a point of every restart: together, but a single one by itself,
    since products with a batch axis of one are slower.

    Matrices of all restarts together may be too many for LAPACK in one batch
    (numerics/lapack.py): the restarts' own work is then done in turn, that on rows together.

    Args:
        pending: (restarts, parameters).
        starting: (restarts,) those whose M-step takes the statistics `labelled`, where there are
            any.
        allowed: see Start.
    """
    hard, restarts = static[1], len(pending)

    def expected(point: jax.Array, allowed: Mapping[str, jax.Array],
                 natural: Mapping[str, jax.Array] | None = None):
        return expect(plan, loose(plan, point), known._replace(allowed=dict(allowed)), rows, hard,
                      natural)

    def step(point: jax.Array, starting: jax.Array, labelled: Expected | None, expected: Expected):
        return _step(plan, static, point, starting, labelled, expected, known, rows)

    if restarts == 1:
        one = jax.tree.map(lambda leaf: leaf[0], (pending, starting, labelled, allowed))
        found = step(one[0], one[1], one[2], expected(one[0], one[3]))
        return jax.tree.map(lambda leaf: leaf[None], found)
    if READINGS * restarts * plan.factorising < lapack.WORK:
        return rows.vmap_copies(shortened(lambda point, starting, labelled, allowed: step(
            point, starting, labelled, expected(point, allowed)
        ), last=True), pending, starting, labelled, allowed)
    natural = jax.lax.map(lambda point: naturals(plan, loose(plan, point), known), pending)
    return jax.lax.map(lambda each: step(*each),
                       (pending, starting, labelled, jax.vmap(expected)(pending, allowed, natural)))


@functools.partial(jit, static_argnames=("plan", "hard"), loops=slices.UNEVEN)
def _swept(plan: Plan, hard: bool, pending: jax.Array, allowed: Mapping, known: Known,
           rows: Rows) -> tuple[jax.Array, dict]:
    """Of a single run: what some of the rows tell."""
    point, own = jax.tree.map(lambda leaf: leaf[0], (pending, allowed))
    return swept(plan, loose(plan, point), known._replace(allowed=own), rows, hard)


@functools.partial(jit, static_argnames=("plan", "static"))
def _gathered(plan: Plan, static: tuple, pending: jax.Array, starting: jax.Array,
              labelled: Expected | None, allowed: Mapping, known: Known, rows: Rows,
              sums: list) -> Evaluated:
    """`evaluate` of a single run, from what parts of the rows told."""
    own = jax.tree.map(lambda leaf: leaf[0], (pending, starting, labelled, allowed))
    total = functools.reduce(lambda a, b: jax.tree.map(jnp.add, a, b), sums)
    expected = gathered(plan, loose(plan, own[0]), known._replace(allowed=own[3]), *total)
    return jax.tree.map(lambda leaf: leaf[None],
                        _step(plan, static, own[0], own[1], own[2], expected, known, rows))


def _step(plan: Plan, static: tuple, pending: jax.Array, starting: jax.Array,
          labelled: Expected | None, expected: Expected, known: Known, rows: Rows) -> Evaluated:
    prior, _, closed = static
    point = loose(plan, pending)
    value = expected.log_evidence + (log_prior(plan, point, known, mode=True) if prior else 0.0)
    lost = collapsed(plan, point, known, rows)
    size = expected.size
    if labelled is not None:
        expected = jax.tree.map(lambda a, b: jax.lax.select(starting, a, b), labelled, expected)
    improved = pending
    if plan.free:
        found = maximise(plan, expected, point, known, rows, prior, closed=closed)
        improved = joined(plan, found).astype(pending.dtype)
    return Evaluated(value, size, lost, improved)


def _chosen(flag: np.ndarray, a: object, b: object) -> Any:
    """Of each restart `a` where the flag is, else `b`."""
    return jax.tree.map(lambda x, y: np.where(flag.reshape(-1, *(1,) * (np.ndim(x) - 1)), x, y), a,
                        b)


def _decided(plan: Plan, accelerate: bool, state: State, first: Start, found: Evaluated,
             known: Known, gain: float) -> State:
    """The choice of the next point after an evaluation at `pending`.

    A cycle is base → M → M → extrapolate; an extrapolation that falls below the last objective is
    thrown away.
    """
    value, kind = found.value, state.value.dtype
    starting, leapt = state.phase == START, state.phase == 2
    # a start may be narrower than rows in a unit of their own; a sum over rows may hide a NaN
    healthy = starting | (np.isfinite(value) & (~found.collapsed | (state.count == 0))
                          & ~np.isnan(state.pending).any(-1))
    size = np.abs(value) + found.size  # far clusters cancel: rounding grows with the terms
    rounding = np.finfo(kind).eps
    rejected = leapt & ~(healthy & (value >= state.value))
    fell = ~starting & ~leapt & healthy & (value < state.value - 64 * rounding * (1 + size))
    improved = _constrain_first_steps(plan, first, state.pending, found.improved, starting)
    pending, base, phase = improved, state.base, np.where(starting, 0, state.phase)
    slow, left = state.slow, state.left
    if accelerate:
        extrapolate = state.phase == 1
        pending = _chosen(rejected, state.fallback, improved)
        base = _chosen(extrapolate, state.base, state.pending)
        phase = np.where(rejected | starting, 0, np.where(extrapolate, 2, 1))
        if extrapolate.any():
            pending = _chosen(extrapolate, _leap(plan, state.base, state.pending, improved, known),
                              pending)
            steps = _steps_left(plan, state.base, state.pending, improved)
            slow = np.where(extrapolate, np.maximum(steps, FADING * slow), slow)
            left = np.where(extrapolate, slow * _relative_changes(plan, state.pending, improved),
                            left)

    small = value - state.value <= gain
    calm = np.where(rejected, state.calm, np.where(small & ~starting, state.calm + 1, 0))
    turns = np.asarray(2 if accelerate else 1)
    single = kind == np.float32
    if single:
        turns = turns * _patience(plan, value, gain, state.pending, improved)
    status = np.where(calm >= turns, int(Status.CONVERGED), int(Status.RUNNING))
    status = np.where(fell, int(Status.FELL), status)
    status = np.where(~healthy & ~rejected, int(Status.COLLAPSED), status)
    sound = ~rejected & healthy & ~fell & ~starting
    higher = sound & (value >= state.value)
    # near the end rounding chooses: M-steps are kept, and leaps that gain more than that
    keep = sound & (~leapt | (value > state.value + 4 * rounding * np.abs(value))
                    ) if single else higher
    new = State(pending, _chosen(keep, state.pending, state.params),
                np.where(higher, value, state.value), phase, base, improved, calm, slow, left,
                state.count + np.where(starting, 0, 1), status)
    return State(*(np.asarray(leaf, old.dtype) for leaf, old in zip(new, state, strict=True)))


def _constrain_first_steps(plan: Plan, first: Start, pending: np.ndarray, improved: np.ndarray,
                           starting: np.ndarray) -> np.ndarray:
    """The first M-steps of restarts that begin at labelled rows: given values stay fixed, and
    probabilities do not become 0 because of a few rows."""
    if not starting.any() or not (first.fixed or first.expected is not None and not first.allowed):
        return improved
    out = np.array(improved)
    for i in np.flatnonzero(starting):
        before, after = (vectors.loose(plan, point[i], vectors.cut) for point in (pending,
                                                                                  improved))
        for name, value in after.items():
            if name in first.fixed:
                after[name] = np.asarray(first.fixed[name])[i]
            elif first.expected is not None and not first.allowed:
                after[name] = held_at(plan, name, value, before[name])
        out[i] = vectors.stacked(plan, {name: np.asarray(value)[None]
                                        for name, value in after.items()}, 1)[0]
    return out


def _patience(plan: Plan, value: np.ndarray, gain: float, here: np.ndarray,
              after: np.ndarray) -> np.ndarray:
    """How many times longer a run must gain nothing until it counts as ended, where rounding hides
    what it gains: until that adds up, or the parameters stand still."""
    rounding = np.finfo(value.dtype).eps * np.abs(value)
    hidden = np.ceil(rounding / gain) if gain > 0 else np.ones_like(value)
    return np.where(_relative_changes(plan, here, after) > STILL, np.clip(hidden, 1.0, PATIENT),
                    1.0)


def _sizes(plan: Plan, points: np.ndarray) -> np.ndarray:
    """Of every parameter the largest absolute value of its bundle, (restarts, parameters)."""
    pieces = vectors.cut(np.abs(points), [math.prod(bundle.joined) for bundle in plan.bundles])
    most = [np.broadcast_to(piece.max(1, initial=1e-30, keepdims=True), piece.shape)
            for piece in pieces]
    return np.concatenate([points[:, :0], *most], 1)


def _relative_changes(plan: Plan, here: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The change of parameters relative to the largest of their bundle: the maximum over bundles,
    per restart."""
    return (np.abs(after - here) / _sizes(plan, after)).max(1, initial=0.0)


def _steps_left(plan: Plan, base: np.ndarray, here: np.ndarray, after: np.ndarray) -> np.ndarray:
    """How many steps are left, here = M(base) and after = M(here) being two of them: a step over
    what it shrank by, as far as rounding tells.

    Of the parameters themselves: a probability on its way to 0 is at rest, and its logit never is.
    """
    size = _sizes(plan, after)
    step, bend = (here - base) / size, (after - 2 * here + base) / size
    rounding = np.finfo(here.dtype).eps * np.sqrt(size.shape[1])
    steps = np.linalg.norm(step, axis=1) / np.maximum(np.linalg.norm(bend, axis=1), rounding)
    return np.maximum(steps, 1.0)


def _leap(plan: Plan, base: np.ndarray, here: np.ndarray, after: np.ndarray,
          known: Known) -> np.ndarray:
    """SQUAREM's extrapolation from base, here = M(base), and after = M(here): by its third step
    length in unconstrained coordinates, FARTHEST at the most."""
    first, second, third = (vectors.free_of(plan, point, known) for point in (base, here, after))
    step = second - first
    bend = third - second - step
    rounding = np.finfo(here.dtype).eps * np.linalg.norm(third, axis=1)
    far = np.linalg.norm(step, axis=1) / np.maximum(np.linalg.norm(bend, axis=1), rounding + 1e-30)
    far = np.clip(far, 1.0, FARTHEST)[:, None]
    leap = vectors.point_of(plan, first + 2 * far * step + far**2 * bend, here, known)
    return vectors.supported(plan, leap, after)


def held_at(plan: Plan, name: str, found: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """Probabilities of which some are 0, a little towards the prior means: what a few rows never
    showed is not therefore impossible."""
    if not plan.structure.sites[name].domain.probabilities:
        return found
    if not ((found <= 0) | (found >= 1)).any():
        return found
    return ((1 - HELD) * found + HELD * middle).astype(found.dtype)
