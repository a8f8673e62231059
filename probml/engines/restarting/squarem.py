"""Iterations of EM with SQUAREM extrapolation (Varadhan & Roland 2008), safeguarded: the device
evaluates the objective and makes M-steps, the host chooses the next points.

The host chooses the next point of each restart from a few numbers: compiling this choice doubled
compile time.

Slices of parallel runs: a program evaluates a few runs at a time, so that a slice stays in
cache, threads work on several slices at once, and runs that have ended cost nothing. One program
serves every slice, whichever runs are in it.

The rows of a single run are split into parts, one for each thread: XLA (jaxlib 0.10) runs the
operations of a chunk of rows one after the other, and shares only the large ones among cores.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.device.in_place import InPlaceRows
from probml.device.rows import Known, Resident, Rows
from probml.engines.engine import Status
from probml.engines.restarting import vectors
from probml.engines.restarting.vectors import pack, unpack
from probml.engines.start.start import Start
from probml.evidence.e_step import (
    Expected,
    accumulate_statistics,
    e_step_from_totals,
    expect,
    is_additive,
)
from probml.factors.digits import has_collapsed_scale
from probml.factors.naturals import log_prior, naturals
from probml.jaxpr.backward import shortened
from probml.numerics import lapack
from probml.numerics.compiling import jit
from probml.numerics.process.threads import cores, map_in_threads
from probml.plan.plan import Plan
from probml.typing import PyTree
from probml.updates.updates import maximise

# numbers that an evaluation of a slice uses: some milliseconds, compared with which the overhead of
# a call is small
SLICE_NUMBERS = 2**21
PARTED = 2**22  # numbers that an evaluation of a single run uses, from which its rows are split
UNEVEN_PARTS = 8  # of rows that take different amounts of work


def runs_per_program(plan: Plan, rows: int, runs: int) -> int:
    """How many of so many runs one program evaluates: a power of 2, or all.

    Args:
        rows: of the data, or their steps.
    """
    if jax.default_backend() != "cpu":
        return runs
    fitting = max(SLICE_NUMBERS // max(rows * plan.effort, 1), 1)
    return runs if fitting >= runs else 1 << fitting.bit_length() - 1


def runs_at_once(plan: Plan, rows: object, runs: int) -> int:
    """As `runs_per_program`, for rows on the device. Rows that are read again in each pass, or
    divided among devices, are passed over once for all runs."""
    return runs_per_program(plan, _n_steps(rows), runs) if type(rows) is Resident else runs


def _n_steps(rows: Resident) -> int:
    """The number of rows, or of their steps."""
    steps = rows.stacked.steps
    return rows.chunks * rows.size * (steps.length * steps.blocks if steps else 1)


def parts_for_threads(plan: Plan, rows: object, runs: int) -> list[Resident | InPlaceRows]:
    """The rows of a single run in parts for threads; none if E-steps of parts do not add up, or
    splitting does not pay."""
    return split_rows(plan, rows) if runs == 1 and is_additive(plan) else []


def split_rows(plan: Plan, rows: PyTree) -> list[Resident | InPlaceRows]:
    """Rows in parts of one shape, for threads, without copying; none if that does not pay.
    Partially observed vectors are ordered by their work (layout.py): they are split into more
    parts, those with most work first."""
    if type(rows) not in (Resident, InPlaceRows) or jax.default_backend() != "cpu" or cores() < 2:
        return []
    if type(rows) is InPlaceRows:
        return [*rows.halves()]
    if rows.chunks % 2 or _n_steps(rows) * max(plan.effort, plan.brought) < PARTED:
        return []
    count = UNEVEN_PARTS if plan.partially_observed and rows.chunks % UNEVEN_PARTS == 0 else 2
    stacked, size = jax.tree.map(np.asarray, rows.stacked), rows.chunks // count
    slices = [slice(begin, begin + size) for begin in range(0, rows.chunks, size)]
    return [Resident(jax.tree.map(lambda leaf, part=part: jax.device_put(leaf[part]), stacked))
            for part in reversed(slices)]


def evaluate_running(evaluate: Callable[[np.ndarray], PyTree], running: np.ndarray, size: int,
                     default: object, serial: bool = False) -> PyTree:
    """The results of the runs that are running, in slices of `size`; `default` for the others.

    Args:
        evaluate: indices of `size` runs → their results, a pytree of arrays that begin with an axis
            of runs. running: (runs,) bool. default: results of all runs.
        serial: one slice after the other, as when the first one compiles.
    """
    indices = np.flatnonzero(running)
    parts = [indices[begin : begin + size] for begin in range(0, len(indices), size)]
    results = map_in_threads(lambda part: evaluate(np.resize(part, size)), parts, serial)
    merged = jax.tree.map(np.array, default)
    for part, result in zip(parts, results, strict=True):
        jax.tree.map(lambda target, leaf, part=part: target.__setitem__(part, leaf[: len(part)]),
                     merged, result)
    return merged


MAX_READINGS = 3  # points at which an M-step evaluates the matrices of a closed form, at most
PRIOR_SHARE = 0.01  # of the prior mean in first probabilities, so that none is 0
BLOCK = 32  # evaluations of a call, at most: progress shows and Ctrl-C works in between
# Factor by which a prediction of the steps that are left decays: the next one is made from another
# step, which may not contain the slow directions.
PREDICTION_DECAY = 0.8
# In float32, where rounding hides gains: the factor on the number of evaluations without a gain
# after which a run ends, at most; relative changes below which parameters have converged.
MAX_PATIENCE, MIN_CHANGE = 8.0, 3e-5
# Cosine of the angle of two M-steps below which they are rounding: that of differences of one error
# from the next is −1/2, of steps of EM it is positive, as the eigenvalues of its map are.
MAX_TURNED_COSINE = -0.25
MAX_EXTRAPOLATION = 256.0  # steps
START = -1  # phase: the first M-step uses the statistics of the labelled rows


class State(NamedTuple):
    """All restarts, on the host; the first axis of every leaf is that of restarts. Parameters are
    vectors, see vectors.py.

    Attributes:
        pending: the point that is evaluated next.
        params, value: the best point that was evaluated, and its objective.
        phase: START; 0: `pending` is the result of a plain M-step; 1: of one made from `base`; 2:
            an extrapolation.
        base: the first point of the cycle. fallback: the point to return to if an extrapolation
            lowers the objective.
        stalled: consecutive evaluations that gained less than the tolerance.
        steps_left: the number of further steps, as predicted by how slowly steps shrink.
        distance: relative distance of the parameters from their limit, predicted so.
        count: evaluations. status: of the run.
    """

    pending: np.ndarray
    params: np.ndarray
    value: np.ndarray
    phase: np.ndarray
    base: np.ndarray
    fallback: np.ndarray
    stalled: np.ndarray
    steps_left: np.ndarray
    distance: np.ndarray
    count: np.ndarray  # type: ignore[assignment] # not the tuple's method
    status: np.ndarray


class Evaluated(NamedTuple):
    """Results of an evaluation of every restart: the objective, the sum of the absolute values of
    its terms, whether a scale has collapsed, and the point after an M-step."""

    value: ArrayLike
    size: ArrayLike
    collapsed: ArrayLike
    improved: ArrayLike


def initial_state(plan: Plan, params: Mapping, labelled: bool,
            drawn: np.ndarray | None = None) -> State:
    """The state before the first evaluation.

    Args:
        params: (restarts, ...). labelled: the first M-step uses the statistics of labelled rows.
        drawn: (restarts,) those of which it does not; None: none.
    """
    restarts = np.shape(next(iter(params.values())))[0] if params else 1
    vector = vectors.pack_all(plan, params, restarts)
    zero = np.zeros(restarts, np.int32)
    value = np.full(restarts, -np.inf, vector.dtype)
    phase = zero + (START if labelled else 0)
    phase = phase if drawn is None else np.where(drawn, 0, phase).astype(zero.dtype)
    return State(vector, vector, value, phase, vector, vector, zero, np.ones_like(value),
                 np.zeros_like(value), zero, zero)


def run_em_block(plan: Plan, static: tuple, state: State, init: Start, known: Known, rows: Rows,
                 limit: int, min_gain: float) -> tuple[State, np.ndarray, bool]:
    """Evaluates until `limit`, BLOCK times, or until every restart has stopped: the states, the
    values of the objective (restarts, BLOCK), and whether all have stopped.

    Args:
        static: prior, hard, accelerate: settings of EM; closed: whether closed forms are used.
        min_gain: of the objective, below which an evaluation counts as stalled.
    """
    prior, hard, accelerate, closed = static
    objectives = np.full((len(state.value), BLOCK), np.nan, state.value.dtype)
    size = runs_at_once(plan, rows, len(state.value))
    parts = parts_for_threads(plan, rows, len(state.value))

    def evaluate_states(state: State, running: np.ndarray, serial: bool) -> Evaluated:
        args = state.pending, state.phase == START, init.expected, init.allowed

        def evaluate_members(members: tuple) -> Evaluated:
            if not parts:
                return jax.device_get(evaluate(plan, (prior, hard, closed), *members, known, rows))
            sums = map_in_threads(lambda part: jax.block_until_ready(
                _sum_over_rows(plan, hard, members[0], members[3], known, part)), parts, serial)
            return jax.device_get(_evaluate_sums(plan, (prior, hard, closed), *members, known, rows,
                                            sums))

        if size == len(running):
            return evaluate_members(args)
        # a restart that has ended stays where it is
        default = Evaluated(state.value, np.zeros_like(state.value), np.zeros(len(running), bool),
                            state.pending)
        return evaluate_running(
            lambda idx: evaluate_members(jax.tree.map(lambda leaf: leaf[idx], args)), running, size,
            default, serial)

    if size < len(state.value):
        init = jax.tree.map(np.asarray, init)
    for i in range(BLOCK):
        running = (state.status == Status.RUNNING) & (state.count < limit)
        if not running.any():
            break
        evaluated = evaluate_states(state, running, i == 0)
        with np.errstate(all="ignore"):  # restarts that have collapsed
            after = _choose_next(plan, accelerate, state, init, evaluated, min_gain)
        objectives[:, i] = np.where(running & (state.phase != START), after.value, np.nan)
        state = _select(running, after, state)
    return state, objectives, bool((state.status != Status.RUNNING).all())


@jit(static_argnames=("plan", "static"))
def evaluate(plan: Plan, static: tuple, pending: jax.Array, starting: jax.Array,
             labelled: Expected | None, allowed: Mapping, known: Known, rows: Rows) -> Evaluated:
    """An E-step and an M-step of every restart, batched; of a single restart without a batch axis,
    since products with a batch axis of one are slower.

    The matrices of all restarts may be too many for LAPACK in one batch (numerics/lapack.py): then
    only the E-steps are batched, and the M-steps run one after the other.

    Args:
        pending: (restarts, parameters).
        starting: (restarts,) those whose M-step uses the statistics `labelled`, if there are any.
        allowed: see Start.
    """
    hard, restarts = static[1], len(pending)

    def expected(point: jax.Array, allowed: Mapping[str, jax.Array],
                 natural: Mapping[str, jax.Array] | None = None):
        return expect(plan, unpack(plan, point), known._replace(allowed=dict(allowed)), rows, hard,
                      natural)

    def step(point: jax.Array, starting: jax.Array, labelled: Expected | None, expected: Expected):
        return _step(plan, static, point, starting, labelled, expected, known, rows)

    if restarts == 1:
        single = jax.tree.map(lambda leaf: leaf[0], (pending, starting, labelled, allowed))
        result = step(single[0], single[1], single[2], expected(single[0], single[3]))
        return jax.tree.map(lambda leaf: leaf[None], result)
    if MAX_READINGS * restarts * plan.factorising < lapack.WORK:
        return rows.vmap_copies(shortened(lambda point, starting, labelled, allowed: step(
            point, starting, labelled, expected(point, allowed)
        ), last=True), pending, starting, labelled, allowed)
    natural = jax.lax.map(lambda point: naturals(plan, unpack(plan, point), known), pending)
    return jax.lax.map(lambda arguments: step(*arguments),
                       (pending, starting, labelled, jax.vmap(expected)(pending, allowed, natural)))


@jit(static_argnames=("plan", "hard"), loops=UNEVEN_PARTS)
def _sum_over_rows(plan: Plan, hard: bool, pending: jax.Array, allowed: Mapping, known: Known,
                   rows: Rows) -> tuple[jax.Array, dict]:
    """The sums over some of the rows that an E-step of a single restart needs."""
    point, own = jax.tree.map(lambda leaf: leaf[0], (pending, allowed))
    return accumulate_statistics(plan, unpack(plan, point), known._replace(allowed=own), rows, hard)


@jit(static_argnames=("plan", "static"))
def _evaluate_sums(plan: Plan, static: tuple, pending: jax.Array, starting: jax.Array,
                   labelled: Expected | None, allowed: Mapping, known: Known, rows: Rows,
                   sums: list) -> Evaluated:
    """`evaluate` for a single restart, from the sums over parts of the rows."""
    single = jax.tree.map(lambda leaf: leaf[0], (pending, starting, labelled, allowed))
    total = functools.reduce(lambda a, b: jax.tree.map(jnp.add, a, b), sums)
    expected = e_step_from_totals(plan, unpack(plan, single[0]), known._replace(allowed=single[3]),
                                  *total)
    return jax.tree.map(lambda leaf: leaf[None],
                        _step(plan, static, single[0], single[1], single[2], expected, known, rows))


def _step(plan: Plan, static: tuple, pending: jax.Array, starting: jax.Array,
          labelled: Expected | None, expected: Expected, known: Known, rows: Rows) -> Evaluated:
    prior, _, closed = static
    point = unpack(plan, pending)
    value = expected.log_evidence + (log_prior(plan, point, known, mode=True) if prior else 0.0)
    is_collapsed = has_collapsed_scale(plan, point, known, rows)
    size = expected.size
    if labelled is not None:
        expected = jax.tree.map(lambda a, b: jax.lax.select(starting, a, b), labelled, expected)
    improved = pending
    if plan.free:
        params = maximise(plan, expected, point, known, rows, prior, closed=closed)
        improved = pack(plan, params).astype(pending.dtype)
    return Evaluated(value, size, is_collapsed, improved)


def _select(flag: np.ndarray, a: object, b: object) -> PyTree:
    """For each restart `a` if its flag is set, else `b`."""
    return jax.tree.map(lambda x, y: np.where(flag.reshape(-1, *(1,) * (np.ndim(x) - 1)), x, y), a,
                        b)


def _choose_next(plan: Plan, accelerate: bool, state: State, first: Start, evaluated: Evaluated,
                 min_gain: float) -> State:
    """The state after an evaluation at `pending`, with the next point to evaluate.

    A cycle is base → M-step → M-step → extrapolation; an extrapolation that lowers the objective is
    rejected.
    """
    value, dtype = evaluated.value, state.value.dtype
    starting, extrapolated = state.phase == START, state.phase == 2
    # scales may be 0 at a start, if rows are equal; a sum over rows may hide a NaN
    healthy = starting | (np.isfinite(value) & (~evaluated.collapsed | (state.count == 0))
                          & ~np.isnan(state.pending).any(-1))
    rounding = np.finfo(dtype).eps
    slack = 64 * rounding * (1 + np.abs(value) + evaluated.size)  # large terms of the sum cancel
    rejected = extrapolated & ~(healthy & (value >= state.value))
    fell = ~starting & ~extrapolated & healthy & (value < state.value - slack)
    improved = _constrain_first_steps(plan, first, state.pending, evaluated.improved, starting)
    pending, base, phase = improved, state.base, np.where(starting, 0, state.phase)
    steps_left, distance = state.steps_left, state.distance
    if accelerate:
        extrapolate = state.phase == 1
        pending = _select(rejected, state.fallback, improved)
        base = _select(extrapolate, state.base, state.pending)
        phase = np.where(rejected | starting, 0, np.where(extrapolate, 2, 1))
        if extrapolate.any():
            pending = _select(extrapolate, _extrapolate(plan, state.base, state.pending, improved),
                              pending)
            steps = _predict_steps_left(plan, state.base, state.pending, improved)
            steps_left = np.where(extrapolate, np.maximum(steps, PREDICTION_DECAY * steps_left),
                                  steps_left)
            distance = np.where(extrapolate, steps_left * _relative_changes(
                plan, state.pending, improved), distance)

    small = value - state.value <= min_gain
    stalled = np.where(rejected, state.stalled, np.where(small & ~starting, state.stalled + 1, 0))
    patience = np.asarray(2 if accelerate else 1)
    is_float32 = dtype == np.float32
    if is_float32:
        patience = patience * _float32_patience(plan, state, value, min_gain, improved)
    status = np.where(stalled >= patience, int(Status.CONVERGED), int(Status.RUNNING))
    status = np.where(fell, int(Status.FELL), status)
    status = np.where(~healthy & ~rejected, int(Status.COLLAPSED), status)
    usable = ~rejected & healthy & ~fell & ~starting
    higher = usable & (value >= state.value)
    # near the optimum values differ by rounding: keep M-steps, and extrapolations that gain more
    is_kept = usable & (~extrapolated | (value > state.value + 4 * rounding * np.abs(value))
                        ) if is_float32 else higher
    after = State(pending, _select(is_kept, state.pending, state.params),
                  np.where(higher, value, state.value), phase, base, improved, stalled, steps_left,
                  distance, state.count + np.where(starting, 0, 1), status)
    return State(*(np.asarray(leaf, old.dtype) for leaf, old in zip(after, state, strict=True)))


def _constrain_first_steps(plan: Plan, init: Start, pending: np.ndarray, improved: np.ndarray,
                           starting: np.ndarray) -> np.ndarray:
    """The points after the first M-steps of restarts that begin at labelled rows: given values stay
    fixed, and probabilities do not become 0 because of a few rows."""
    if not starting.any() or not (init.fixed or init.expected is not None and not init.allowed):
        return improved
    constrained = np.array(improved)
    for i in np.flatnonzero(starting):
        before, after = (vectors.unpack(plan, point[i]) for point in (pending, improved))
        for name, value in after.items():
            if name in init.fixed:
                after[name] = np.asarray(init.fixed[name])[i]
            elif init.expected is not None and not init.allowed:
                after[name] = away_from_zero(plan, name, value, before[name])
        constrained[i] = vectors.pack_all(plan, {name: np.asarray(value)[None]
                                                 for name, value in after.items()}, 1)[0]
    return constrained


def _float32_patience(plan: Plan, state: State, value: np.ndarray, min_gain: float,
                      after: np.ndarray) -> np.ndarray:
    """The factor on the number of stalled evaluations after which a run ends, where rounding hides
    what an evaluation gains: until gains add up, or the parameters have converged, also up to
    rounding: then an M-step turns back on the one before, which those of EM do not near a maximum.
    """
    base, here = state.base, state.pending
    rounding = np.finfo(value.dtype).eps * np.abs(value)
    n_hidden = np.ceil(rounding / min_gain) if min_gain > 0 else np.ones_like(value)
    size = _bundle_maxima(plan, after)
    last_step, new_step = (here - base) / size, (after - here) / size
    turned = (state.phase == 1) & ((last_step * new_step).sum(1) < MAX_TURNED_COSINE * np.sqrt(
        (last_step**2).sum(1) * (new_step**2).sum(1)))
    return np.where((_relative_changes(plan, here, after) > MIN_CHANGE) & ~turned,
                    np.clip(n_hidden, 1.0, MAX_PATIENCE), 1.0)


def _bundle_maxima(plan: Plan, points: np.ndarray) -> np.ndarray:
    """For every parameter the largest absolute value of its bundle, (restarts, parameters)."""
    arrays = vectors.split(np.abs(points), [math.prod(bundle.joined) for bundle in plan.bundles])
    maxima = [np.broadcast_to(array.max(1, initial=1e-30, keepdims=True), array.shape)
              for array in arrays]
    return np.concatenate([points[:, :0], *maxima], 1)


def _relative_changes(plan: Plan, here: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The largest change of a parameter, relative to the largest of its bundle, (restarts,)."""
    return (np.abs(after - here) / _bundle_maxima(plan, after)).max(1, initial=0.0)


def _predict_steps_left(plan: Plan, base: np.ndarray, here: np.ndarray,
                        after: np.ndarray) -> np.ndarray:
    """The predicted number of further steps, given here = M(base) and after = M(here): the step
    relative to the amount by which it shrank, as far as rounding allows.

    It is computed from the parameters themselves: a probability on its way to 0 converges, its
    logit does not.
    """
    size = _bundle_maxima(plan, after)
    step, shrinkage = (here - base) / size, (after - 2 * here + base) / size
    rounding = np.finfo(here.dtype).eps * np.sqrt(size.shape[1])
    steps = np.linalg.norm(step, axis=1) / np.maximum(np.linalg.norm(shrinkage, axis=1), rounding)
    return np.maximum(steps, 1.0)


def _extrapolate(plan: Plan, base: np.ndarray, here: np.ndarray, after: np.ndarray) -> np.ndarray:
    """SQUAREM's extrapolation from base, here = M(base) and after = M(here), in unbounded
    coordinates, by its third step length, at most MAX_EXTRAPOLATION."""
    first, second, third = (vectors.to_unbounded(plan, point) for point in (base, here, after))
    step = second - first
    bend = third - second - step
    rounding = np.finfo(here.dtype).eps * np.linalg.norm(third, axis=1)
    far = np.linalg.norm(step, axis=1) / np.maximum(np.linalg.norm(bend, axis=1), rounding + 1e-30)
    far = np.clip(far, 1.0, MAX_EXTRAPOLATION)[:, None]
    return vectors.from_unbounded(plan, first + 2 * far * step + far**2 * bend, after)


def away_from_zero(plan: Plan, name: str, value: np.ndarray, prior_value: np.ndarray) -> np.ndarray:
    """Probabilities, moved a little towards their prior means if some are 0: what a few rows do not
    contain is not therefore impossible."""
    if not plan.structure.sites[name].domain.probabilities:
        return value
    if not ((value <= 0) | (value >= 1)).any():
        return value
    return ((1 - PRIOR_SHARE) * value + PRIOR_SHARE * prior_value).astype(value.dtype)
