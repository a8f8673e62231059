"""EM's steps on the device: evaluations, M-steps, and SQUAREM's extrapolations (Varadhan & Roland
2008), safeguarded."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Status
from probml.engines.start.prior import prior_point
from probml.engines.start.start import Start
from probml.evidence.passes import Expected, expect
from probml.factors.digits import collapsed
from probml.factors.naturals import naturals
from probml.factors.prior import log_prior
from probml.numerics import lapack
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.updates.updates import maximise, transforms

READINGS = 3  # points at which the M-step reads a form, at the most
HELD = 0.01  # share of the prior mean in first probabilities of 0
BLOCK = 32  # evaluations a device call at the most: progress shows and Ctrl-C works in between
# share of what a leap told of the steps that are left that counts at the next one, whose step may
# lie across the slow ways
FADING = 0.8
# times longer at the most, where rounding hides gains; relative steps of parameters that stand
# still
PATIENT, STILL = 8.0, 3e-5


class State(NamedTuple):
    """One restart. `pending` is evaluated next; `params`, `value` are the best evaluated; see _step
    for the rest.

    Parameters are held in bundles, each under its first name.
    """

    pending: dict
    params: dict
    value: jax.Array
    # START, or 0: plain; 1: one step made from `base`; 2: `pending` is an extrapolation
    phase: jax.Array
    base: dict  # unconstrained coordinates of the cycle's first point
    fallback: dict
    calm: jax.Array  # how many evaluations in a row gained less than the tolerance
    slow: jax.Array  # how many steps are left when one is made, as lengths of late leaps foretell
    left: jax.Array  # relative way of the parameters to where they go: so many steps
    count: jax.Array
    status: jax.Array


START = -1  # the first M-step takes the statistics of the labelled rows


def initial(plan: Plan, params: Mapping, known: Known, labelled: bool,
            drawn: np.ndarray | None = None) -> State:
    """Host values only: nothing is compiled for it. `base` is written before it is read."""
    params = {bundle.names[0]: bundle.join({n: np.asarray(v) for n, v in params.items()}, 1, np)
              for bundle in plan.bundles}
    restarts = next(iter(params.values())).shape[0] if params else 1
    zero = np.zeros(restarts, np.int32)
    value = np.full(restarts, -np.inf, jnp.result_type(float))
    base = ({name: np.zeros((restarts, *shape), value.dtype) for name, shape in _free_shapes(plan)}
            if params else {})
    phase = zero + (START if labelled else 0)
    phase = phase if drawn is None else np.where(drawn, 0, phase).astype(zero.dtype)
    return State(params, params, value, phase, base, params, zero, np.ones_like(value),
                 np.zeros_like(value), zero, zero)


@functools.lru_cache(maxsize=256)
def _free_shapes(plan: Plan) -> tuple:
    """Name and shape of every parameter's unconstrained coordinates."""
    sites = plan.structure.sites
    if all(sites[bundle.names[0]].domain.fixed for bundle in plan.bundles):
        return tuple((b.names[0], sites[b.names[0]].domain.bijection.inverse_shape(b.joined))
                     for b in plan.bundles)

    def free():
        point = prior_point(plan, Known({n: jnp.zeros(sites[n].shape) for n in plan.given}, {}, {}))
        return free_of(plan, _bundled(plan, point), Known({}, {}, {}))

    return tuple((name, leaf.shape) for name, leaf in jax.eval_shape(free).items())


def _loose(plan: Plan, bundles: Mapping) -> dict:
    """Bundles → the parameters by name."""
    parts = (bundle.part(bundles[bundle.names[0]], jax.lax.split) for bundle in plan.bundles)
    return {name: value for part in parts for name, value in part.items()}


def _bundled(plan: Plan, params: Mapping) -> dict:
    return {bundle.names[0]: bundle.join(params) for bundle in plan.bundles}


def free_of(plan: Plan, bundles: Mapping, known: Known) -> dict:
    """Unconstrained coordinates of bundles; a boundary value held at a large finite one."""
    maps, out = transforms(plan, _loose(plan, bundles), known, list(bundles)), {}
    for name, value in bundles.items():  # one support: its map takes any leading axes
        table = plan.structure.sites[name].domain.sums_to_one
        inside = jnp.maximum(value, 1e-30) if table else value
        out[name] = jnp.nan_to_num(maps[name].inv(inside), nan=0.0, posinf=1e2, neginf=-1e2)
    return out


@functools.partial(jit, static_argnames=("plan", "static"))
def advance(plan: Plan, static: tuple, state: State, first: Start, known: Known, rows: Rows, limit,
            gain):
    """Evaluate until `limit` or until every restart has stopped; the objective's trail, (restarts,
    BLOCK)."""
    restarts = state.value.shape[0]
    trail = jnp.full((restarts, BLOCK), jnp.nan, state.value.dtype)

    def more(carry):
        state, _, i = carry
        return (i < BLOCK) & jnp.any((state.status == 0) & (state.count < limit))

    def body(carry):
        state, trail, i = carry
        new = _each(plan, static, state, first, known, rows, gain)
        running = (state.status == 0) & (state.count < limit)
        new = jax.tree.map(lambda a, b: jnp.where(running.reshape(-1, *(1,) * (a.ndim - 1)), a, b),
                           new, state)
        return new, trail.at[:, i].set(jnp.where(running & (state.phase != START), new.value,
                                                 jnp.nan)), i + 1

    state, trail, _ = jax.lax.while_loop(more, body, (state, trail, 0))
    return state, trail, jnp.all(state.status != 0)


def _each(plan: Plan, static: tuple, state: State, first: Start, known: Known, rows: Rows,
          gain) -> State:
    """A step of every restart: together, but a single one by itself, since products with a batch
    axis of one are slower.

    Matrices of all restarts together may be too many for LAPACK in one batch
    (numerics/lapack.py): the restarts' own work is then done in turn, that on rows together.
    """
    hard, restarts = static[1], state.value.shape[0]

    def expected(state, first, natural=None):
        return expect(plan, _loose(plan, state.pending), known._replace(allowed=first.allowed),
                      rows, hard, natural)

    def step(state, first, expected):
        return _step(plan, static, state, first, expected, known, rows, gain)

    if restarts == 1:
        state, first = jax.tree.map(lambda leaf: leaf[0], (state, first))
        return jax.tree.map(lambda leaf: leaf[None], step(state, first, expected(state, first)))
    if READINGS * restarts * plan.factorising < lapack.WORK:
        return jax.vmap(lambda state, first: step(state, first, expected(state, first)))(state,
                                                                                         first)
    natural = jax.lax.map(lambda pending: naturals(plan, _loose(plan, pending), known),
                          state.pending)
    return jax.lax.map(lambda each: step(*each),
                       (state, first, jax.vmap(expected)(state, first, natural)))


def _step(plan: Plan, static: tuple, state: State, first: Start, expected: Expected, known: Known,
          rows: Rows, gain) -> State:
    """One evaluation at `pending` (the E-step `expected`), one M-step, and the choice of the next
    point.

    A cycle is base → M → M → extrapolate; an extrapolation that falls below the last objective is
    thrown away.
    """
    prior, _, accelerate, closed = static
    starting, point = state.phase == START, _loose(plan, state.pending)

    def choose(flag, a, b):
        return jax.tree.map(lambda x, y: jnp.where(flag, x, y), a, b)

    value = expected.log_evidence + (log_prior(plan, point, known, mode=True) if prior else 0.0)
    if first.expected is not None:
        expected = choose(starting, first.expected, expected)
    healthy = starting | (jnp.isfinite(value) & ~collapsed(plan, point, known, rows))
    size = jnp.abs(value) + expected.size  # far clusters cancel: rounding grows with the terms
    noise = 64 * jnp.finfo(value.dtype).eps * (1 + size)
    rejected = (state.phase == 2) & ~(healthy & (value >= state.value))
    fell = ~starting & (state.phase != 2) & healthy & (value < state.value - noise)
    improved = maximise(plan, expected, point, known, rows, prior,
                        closed=closed) if plan.free else {}
    for name, found in improved.items():
        if name in first.fixed:
            improved[name] = jnp.where(starting, first.fixed[name], found)
        elif first.expected is not None and not first.allowed:
            improved[name] = jnp.where(starting, held_at(plan, name, found, point[name]), found)

    improved = _bundled(plan, improved)

    pending, base, phase = improved, state.base, jnp.where(starting, 0, state.phase)
    slow, left = state.slow, state.left
    if accelerate:
        pair = jax.vmap(lambda p: free_of(plan, p, known))(
            jax.tree.map(lambda a, b: jnp.stack([a, b]), state.pending, improved)
        )
        here, after = jax.tree.map(lambda u: u[0], pair), jax.tree.map(lambda u: u[1], pair)
        extrapolate = state.phase == 1
        leap, length = _leap(plan, state, here, after, known)
        slow = jnp.where(extrapolate, jnp.maximum(-length, FADING * slow), slow)
        left = jnp.where(extrapolate, slow * _moved(state.pending, improved), left)
        leap = {name: _supported(plan, name, value, improved[name]) for name, value in leap.items()}
        pending = choose(extrapolate, leap, choose(rejected, state.fallback, improved))
        base = choose(extrapolate, state.base, here)
        phase = jnp.where(rejected | starting, 0, jnp.where(extrapolate, 2, 1))

    small = value - state.value <= gain
    calm = jnp.where(rejected, state.calm, jnp.where(small & ~starting, state.calm + 1, 0))
    turns = 2 if accelerate else 1
    if value.dtype == jnp.float32:
        turns = turns * _patience(value, gain, state.pending, improved)
    ended = jnp.where(calm >= turns, Status.CONVERGED, Status.RUNNING)
    status = jnp.where(~healthy & ~rejected, Status.COLLAPSED, jnp.where(fell, Status.FELL, ended))
    sound = ~rejected & healthy & ~fell & ~starting
    keep = sound & (value >= state.value)
    # near the end rounding chooses: M-steps are kept, and leaps that gain more than that
    if value.dtype == jnp.float32:
        keep = sound & ((state.phase != 2) | (
            value > state.value + 4 * jnp.finfo(value.dtype).eps * jnp.abs(value)
        ))
    return State(
        pending,
        choose(keep, state.pending, state.params),
        jnp.where(sound & (value >= state.value), value, state.value),
        phase.astype(state.phase.dtype),
        base,
        improved,
        calm.astype(state.calm.dtype),
        slow.astype(state.slow.dtype),
        left.astype(state.left.dtype),
        state.count + jnp.where(starting, 0, 1).astype(state.count.dtype),
        status.astype(state.status.dtype),
    )


def _patience(value: jax.Array, gain, here: Mapping, after: Mapping) -> jax.Array:
    """How many times longer a run must gain nothing until it counts as ended, where rounding hides
    what it gains: until that adds up, or the parameters stand still."""
    rounding = jnp.finfo(value.dtype).eps * jnp.abs(value)
    hidden = jnp.where(gain > 0, jnp.ceil(rounding / jnp.where(gain > 0, gain, 1.0)), 1.0)
    return jnp.where(_moved(here, after) > STILL, jnp.clip(hidden, 1.0, PATIENT), 1.0)


def _moved(here: Mapping, after: Mapping) -> jax.Array:
    """How far parameters moved, relative to the largest of their bundle; the farthest of all."""
    moved = [jnp.max(jnp.abs(after[name] - here[name]), initial=0.0)
             / jnp.maximum(jnp.max(jnp.abs(after[name]), initial=0.0), 1e-30) for name in after]
    return functools.reduce(jnp.maximum, moved, jnp.zeros(()))


def _leap(plan: Plan, state: State, here: Mapping, after: Mapping,
          known: Known) -> tuple[dict, jax.Array]:
    """SQUAREM's extrapolation from base, here = M(base), after = M(here), and its third step
    length: where a step is so many times what is left of it a step later, so many are left."""
    step = jax.tree.map(jnp.subtract, here, state.base)
    bend = jax.tree.map(lambda a, b, r: a - b - r, after, here, step)
    length = -jnp.sqrt(_square(step) / jnp.maximum(_square(bend), 1e-30))
    length = jnp.clip(length, -256.0, -1.0)
    maps = transforms(plan, _loose(plan, state.pending), known, list(state.pending))
    leap = jax.tree.map(lambda b, r, v: b - 2 * length * r + length**2 * v, state.base, step, bend)
    return {name: maps[name](u) for name, u in leap.items()}, length


def _supported(plan: Plan, name: str, value: jax.Array, step: jax.Array) -> jax.Array:
    """An extrapolated probability table whose zeros are those of the step it was made from: EM's
    own iterates keep them."""
    if not plan.structure.sites[name].domain.sums_to_one:
        return value
    value = jnp.where(step == 0, 0.0, value)
    return value / value.sum(-1, keepdims=True)


def _square(tree) -> jax.Array:
    return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


def held_at(plan: Plan, name: str, found: Any, middle: Any, numpy: Any = jnp) -> Any:
    """Probabilities of which some are 0, a little towards the prior means: what a few rows never
    showed is not therefore impossible."""
    if not plan.structure.sites[name].domain.probabilities:
        return found
    edge = numpy.any((found <= 0) | (found >= 1))
    return numpy.where(edge, (1 - HELD) * found + HELD * middle, found).astype(found.dtype)
