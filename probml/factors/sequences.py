"""The factors of every step and the tables of the chains → one factor of each row.

The arrays of steps lead with one axis N = L · rows · blocks in this order, so that the factors of a
step are made like those of a row. Eliminating the variables of a step leaves a table over the
chains and over the row's own variables.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from probml.device.rows import Steps
from probml.elimination import elimination
from probml.elimination.chains import paths
from probml.elimination.chains import sums as chain_sums
from probml.elimination.chains.arithmetic import Chain, ScanLayout, has_next_step
from probml.elimination.chains.walk import Pieces, Tables, count_of
from probml.elimination.factor import Factor
from probml.errors import present
from probml.families.likelihoods.categorical import ONE_HOT
from probml.plan.plan import Plan
from probml.typing import PyTree


class Moves(NamedTuple):
    """Log tables of one chain, over the scope of its discrete parents; the lead counts 1, rows or
    (transition) steps."""

    initial: jax.Array  # (lead, *scope, k)
    transition: jax.Array  # (lead, *scope, k, k)
    scope: tuple[str, ...]
    name: str
    # (lead of 1 or rows, *scope, k): log of what the moves out of a state were divided by, so that
    # they sum to 1, as those of a step that does not count must; None: they did
    leaving: jax.Array | None = None


HELD = 2**25  # numbers up to which the factors of all steps are made at once
PIECE = 2**20  # numbers of a piece of the steps, where they are more
MAX_STORED_EMISSIONS = 2**18  # numbers from which the emissions of all steps are not stored at once
IN_CACHE = 2**17  # numbers of a piece of the emissions, where they are more


def layout_of(steps: Steps) -> ScanLayout:
    """The layout of a pass along the steps."""
    return ScanLayout(steps.blocks, steps.parallel, steps.in_logs)


def width_of(plan: Plan) -> int:
    """About how many numbers the data of a step are expanded to on the way to its factors."""
    width = 1
    for name in plan.steps:
        site = plan.structure.sites[name]
        if name in plan.observed and name in plan.pooled:
            size = math.prod(site.event)
            width += math.prod(site.lattice) * (min(site.states or 0, ONE_HOT)
                                                or size * (3 + size) // 2)
    return width


def count_pieces(plan: Plan, steps: Steps, rows: int) -> int:
    """The number of pieces into which the steps are cut."""
    lanes, width = rows * steps.blocks, width_of(plan)
    if steps.length * lanes * width <= HELD:
        return 1
    return count_of(steps.length, PIECE // (lanes * width))


def within(plan: Plan, factors: Sequence[Factor], hard: bool = False) -> Factor:
    """The factors of steps as one over the chains and the row's own variables, the variables inside
    a step eliminated."""
    present = {n for f in factors for n in f.names}
    return (elimination.peak if hard else elimination.sum_out)(
        factors, [n for n in plan.step_order if n in present]
    )


def expand_axes(array: jax.Array, names: Sequence[Hashable],
                target: Sequence[Hashable]) -> jax.Array:
    """A table over names with the axes of `target` after its leading one; missing axes have size
    1."""
    array = jnp.transpose(array, (0, *(1 + names.index(n) for n in target if n in names)))
    return jnp.expand_dims(array, [1 + i for i, n in enumerate(target) if n not in names])


def _flat(array: jax.Array, sizes: Sequence[int], scope: int,
          states: Sequence[Sequence[int]]) -> jax.Array:
    """(lead, *scope, *groups of states) → (lead, G or 1, K, ...), the states broadcast to their
    sizes."""
    lead, inner = array.shape[0], tuple(size for group in states for size in group)
    present = any(size > 1 for size in array.shape[1 : 1 + scope])
    array = jnp.broadcast_to(array, (lead, *(sizes if present else (1,) * scope), *inner))
    return array.reshape(lead, math.prod(sizes) if present else 1,
                         *(math.prod(group) for group in states))


def emissions(plan: Plan, factors: Sequence[Factor], length: int, lanes: int,
              hard: bool = False) -> jax.Array:
    """Log emissions of the joint states of the chains in so many steps of all lanes, (L, G or 1, K,
    M), the variables inside a step eliminated."""
    sizes = {name: variable.states for name, variable in plan.variables.items()}
    scope, names, joint = plan.along, plan.chains, within(plan, factors, hard)
    log = _flat(expand_axes(joint.log, joint.names, (*scope, *names)), [sizes[n] for n in scope],
                len(scope), [[sizes[n] for n in names]])
    log = jnp.broadcast_to(log, (length * lanes, *log.shape[1:]))
    return jnp.moveaxis(log.reshape(length, lanes, *log.shape[1:]), 1, -1)


def _leaving(plan: Plan, moves: Sequence[Moves], steps: Steps) -> jax.Array | None:
    """Log weights of states, (G or 1, K, M or 1), by which the moves out of them were divided; they
    are added to the emissions of steps that another follows. None: no moves were divided."""
    sizes = {name: variable.states for name, variable in plan.variables.items()}
    scope, names, total = plan.along, plan.chains, None
    for move in (move for move in moves if move.leaving is not None):
        scale = _flat(expand_axes(move.leaving, (*move.scope, move.name), (*scope, *names)),
                      [sizes[n] for n in scope], len(scope), [[sizes[n] for n in names]])
        scale = jnp.moveaxis(jnp.repeat(scale, steps.blocks, 0) if len(scale) > 1 else scale, 0, -1)
        total = scale if total is None else total + scale
    return total


def tables(plan: Plan, moves: Sequence[Moves], steps: Steps,
           rows: int) -> tuple[jax.Array, jax.Array]:
    """The joint first states and moves of all chains, logs: (G or 1, K, rows or 1) and (L or 1, G
    or 1, K from, K to, M or 1)."""
    sizes = {name: variable.states for name, variable in plan.variables.items()}
    scope, names = plan.along, plan.chains
    outer, k = [sizes[n] for n in scope], [sizes[n] for n in names]
    lanes, length = rows * steps.blocks, steps.length

    def placed(array: jax.Array, per_row: bool):
        """(lead, ...) → (L or 1, M or 1, ...)."""
        if len(array) == 1 and lanes * length > 1:
            return array[None]
        if per_row:
            return jnp.repeat(array, steps.blocks, 0)[None]
        return array.reshape(length, lanes, *array.shape[1:])

    initial, transition = jnp.zeros((1, *(1,) * (len(scope) + len(names)))), None
    for move in moves:
        first = move.initial
        if len(first) == length * lanes and len(first) != rows:
            first = first.reshape(length, rows, steps.blocks, *first.shape[1:])[0, :, 0]
        initial = initial + expand_axes(first, (*move.scope, move.name), (*scope, *names))
    for move in moves:
        target = (*scope, *((n, "before") for n in names), *names)
        table = placed(move.transition, len(move.transition) == rows and rows != length * lanes)
        lead = table.shape[:2]
        table = expand_axes(table.reshape(-1, *table.shape[2:]),
                            (*move.scope, (move.name, "before"), move.name), target)
        table = table.reshape(*lead, *table.shape[1:])
        transition = table if transition is None else transition + table
    initial = _flat(initial, outer, len(scope), [k])
    transition = present(transition)
    lead, states = transition.shape[:2], math.prod(k)
    transition = _flat(transition.reshape(-1, *transition.shape[2:]), outer, len(scope), [k, k])
    transition = transition.reshape(*lead, -1, states, states)
    return jnp.moveaxis(initial, 0, -1), jnp.moveaxis(transition, 1, -1)


def chain_of(
    plan: Plan, factors: Sequence[Factor], moves: Sequence[Moves], steps: Steps, rows: int,
    hard: bool = False, pairs: jax.Array | None = None
) -> Chain:
    """All chains of the rows as one whose states are joint ones, the variables inside a step
    eliminated.

    Args:
        hard: by their maximum.
        pairs: zeros added to every step's moves, so that the gradient with respect to them is the
            pair marginals.
    """
    lanes, length, scale = rows * steps.blocks, steps.length, _leaving(plan, moves, steps)
    emission = emissions(plan, factors, length, lanes, hard)
    if scale is not None:
        emission = emission + jnp.where(_has_next(steps, rows)[:, None, None], scale, 0.0)
    initial, transition = tables(plan, moves, steps, rows)
    alive = steps.rows.weights
    return Chain(initial, transition if pairs is None else transition + pairs, emission,
                 None if alive is None else alive.reshape(length, lanes))


def _has_next(steps: Steps, rows: int) -> jax.Array:
    """Whether the step after each one counts, (L, lanes)."""
    shape, alive = (steps.length, rows * steps.blocks), steps.rows.weights
    return has_next_step(jnp.ones(shape, bool) if alive is None else alive.reshape(shape),
                         steps.blocks)


def of_rows(plan: Plan, log: jax.Array) -> Factor:
    """(G, rows) as a factor of rows."""
    sizes = [plan.variables[n].states for n in plan.along] if log.shape[0] > 1 else []
    return Factor(log.T.reshape(log.shape[1], *sizes), plan.along if sizes else ())


def factor(
    plan: Plan, factors: Sequence[Factor], moves: Sequence[Moves], steps: Steps, rows: int,
    hard: bool = False, pairs: jax.Array | None = None
) -> Factor:
    """The factor of each row from its steps: log of the sum over all latent variables of the steps,
    (rows, *states of the row's variables)."""
    if plan.chains:
        chain = chain_of(plan, factors, moves, steps, rows, hard, pairs)
        if hard:
            return of_rows(plan, paths.best(chain, steps.blocks))
        return of_rows(plan, chain_sums.evidence(chain, layout_of(steps)))
    joint = within(plan, factors, hard)
    log = expand_axes(joint.log, joint.names, plan.along)
    log = jnp.broadcast_to(log, (steps.length * rows * steps.blocks, *log.shape[1:]))
    if steps.rows.weights is not None:
        log = jnp.where(steps.rows.weights.reshape(-1, *(1,) * (log.ndim - 1)), log, 0.0)
    log = log.reshape(steps.length, rows, steps.blocks, *log.shape[1:]).sum((0, 2))
    names = tuple(n for n in plan.along if n in joint.names)
    return Factor(log.reshape(rows, *(plan.variables[n].states for n in names)), names)


def count_cached_pieces(plan: Plan, steps: Steps, rows: int, width: int) -> int:
    """The number of pieces, each in cache, whose emissions chains/sums.py computes one after
    another; 1 where steps are few, or where pieces cannot be used: with latent numbers that a
    sampler moves, on machines that process all steps at once.

    Args:
        width: numbers of a step from which its emissions are computed.
    """
    lanes = rows * steps.blocks
    states = math.prod(plan.variables[n].states for n in (*plan.along, *plan.chains))
    if steps.parallel or plan.sampled or steps.length * lanes * states < MAX_STORED_EMISSIONS:
        return 1
    return count_of(steps.length, IN_CACHE // (lanes * (width + 2 * states)))


class Cut(NamedTuple):
    """The arguments of chains/sums.in_pieces."""

    emit: Callable
    layout: ScanLayout
    tables: Tables
    pieces: Pieces


def cut_of(plan: Plan, count: int, factors_of: Callable, moves: Sequence[Moves], steps: Steps,
           rows: int, pieces: Pieces) -> Cut:
    """The chains of rows whose steps are cut into so many pieces.

    Args:
        factors_of: (shared, constants, (own, blank), fixed) → the factors of a piece's steps.
        pieces: leaves of `own` and `fixed` lead with all steps, (N, ...).
    """
    lanes, size, scale = rows * steps.blocks, steps.length // count, _leaving(plan, moves, steps)
    has_next = None if scale is None else _has_next(steps, rows)

    def emit(shared: list, constants: list, own: PyTree, fixed: PyTree):
        (shared, scale), (fixed, has_next) = shared, fixed
        log = emissions(plan, factors_of(shared, constants, own, fixed), size, lanes)
        return log if has_next is None else log + jnp.where(has_next[:, None, None], scale, 0.0)

    initial, transition = tables(plan, moves, steps, rows)
    alive = steps.rows.weights
    alive = None if alive is None else alive.reshape(-1, lanes)
    own, fixed = jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]),
                              (pieces.per_piece, (pieces.fixed, has_next)))
    return Cut(emit, layout_of(steps), Tables(initial, transition, alive),
               Pieces((pieces.shared, scale), pieces.constants, own, fixed, pieces.blank))


def by_step(array: jax.Array) -> jax.Array:
    """(M, L, ...) → (N, ...)."""
    return jnp.moveaxis(array, 0, 1).reshape(-1, *array.shape[2:])


def by_lane(steps: Steps, array: jax.Array) -> jax.Array:
    """(N, ...) → (M, L, ...)."""
    return jnp.moveaxis(array.reshape(steps.length, -1, *array.shape[1:]), 0, 1)


def lane_states(plan: Plan, states: jax.Array, chosen: Mapping[str, jax.Array],
                steps: Steps) -> jax.Array:
    """The joint chain states (L, G, M) at each row's states of its own variables → (N,)."""
    if states.shape[1] > 1:
        g = jnp.ravel_multi_index(tuple(chosen[n] for n in plan.along),
                                  [plan.variables[n].states for n in plan.along], mode="clip")
        states = jnp.take_along_axis(states, jnp.repeat(g, steps.blocks)[None, None], 1)
    return states.reshape(-1)


def clamps(plan: Plan, joint: jax.Array, chosen: Mapping[str, jax.Array],
           steps: Steps) -> tuple[dict[str, jax.Array], list[Factor]]:
    """The states (N,) of each chain, from their joint ones, and of the row's own variables; and
    factors of the steps that fix them."""
    sizes = [plan.variables[n].states for n in plan.chains]
    states = dict(zip(plan.chains, jnp.unravel_index(joint, sizes), strict=True))
    for name in plan.along:
        lanes = jnp.repeat(chosen[name], steps.blocks)
        states[name] = jnp.broadcast_to(lanes, (steps.length, len(lanes))).reshape(-1)
    factors = [
        Factor(jnp.where(jnp.arange(plan.variables[n].states) == z[:, None], 0.0, -jnp.inf), (n,))
        for n, z in states.items()
    ]
    return states, factors


def fold(plan: Plan, name: str, array: jax.Array) -> jax.Array:
    """An array of a site's steps, folded, (rows, time, *cells of one step, ...) → (rows, *cells,
    ...)."""
    site = plan.structure.named[name]
    array = jnp.squeeze(array, 2 + present(site.time))
    return jnp.moveaxis(array, 1, 1 + present(site.time))
