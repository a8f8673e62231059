"""Markov chains inside rows: moves, counted chains, and logs of steps → factors."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from probml.device.rows import Chunk, Known
from probml.elimination.chains import paths
from probml.elimination.chains import sums as chain_sums
from probml.elimination.chains.walk import Pieces
from probml.elimination.factor import Factor
from probml.errors import present
from probml.factors import sequences
from probml.factors.naturals import environment, over_states
from probml.factors.pooled import at_level, in_slices
from probml.factors.rowwise import row_environment, rowwise_factor, without_cell_axis
from probml.factors.sequences import Moves
from probml.families.likelihoods import markov_chain as chains_family
from probml.numerics.logs import finite, log_sum
from probml.plan.plan import Plan
from probml.typing import PyTree


def counted_factor(plan: Plan, natural: Mapping[str, jax.Array], rows: Chunk, name: str,
                   predictive: Mapping) -> Factor:
    """The factor of a completely observed chain; tables of which `predictive` has the
    concentrations are integrated out."""
    site, parents, steps = plan.structure.sites[name], plan.discrete_parents(name), rows.along
    states = steps.folded(steps.rows.values[name].reshape(-1))
    alive = None if steps.rows.weights is None else steps.folded(steps.rows.weights)
    sliced = [p for p in parents if p not in plan.variables]
    tables = in_slices({a: without_cell_axis(leaf, len(parents))
                        for a, leaf in {**natural, **predictive}.items()}, parents, sliced, rows)
    counts = chains_family.counts(states, alive, present(site.states))
    logs = [(chains_family.predictive if a in predictive
             else chains_family.log_density)(table, counts[a]) for a, table in tables.items()]
    return Factor(sum(logs), plan.scope(name))


def _chain_tables(plan: Plan, params: Mapping, known: Known, natural: PyTree, rows: Chunk,
                  name: str,
                  taps: Mapping | None = None) -> Moves:
    """The tables of a chain that is summed out."""
    parents = plan.discrete_parents(name)
    if name in plan.pooled:
        sliced = [p for p in parents if p not in plan.variables]
        arrays = {a: without_cell_axis(leaf, len(parents)) for a, leaf in natural.items()}
        timed = any(plan.structure.sites[p].time is not None for p in sliced)
        tables = in_slices(arrays, parents, sliced, rows.along.rows if timed else rows)
    else:
        tables = rowwise_logs(plan, params, known, rows, name)
        if taps:
            tables = jax.tree.map(jnp.add, tables, taps[name])
    return Moves(tables["initial"], tables["transition"],
                 tuple(p for p in parents if p in plan.variables), name, tables.get("leaving"))


def divided(plan: Plan, natural: Mapping) -> dict[str, PyTree]:
    """Log tables of pooled chains whose moves out of a state need not sum to 1, as averages of
    logarithms do not: so divided that they do, and by what."""
    out = dict(natural)
    for name in (name for name in plan.chains if name in natural):
        moves = natural[name]["transition"]
        total = finite(log_sum(moves, -1))
        out[name] = {**natural[name], "transition": moves - total[..., None], "leaving": total}
    return out


def undivided(natural: Mapping) -> dict[str, PyTree]:
    """Tables, or what was counted of them, without what `divided` put beside them."""
    return {name: {key: leaf for key, leaf in tables.items() if key != "leaving"}
            if isinstance(tables, dict) else tables for name, tables in natural.items()}


def rowwise_logs(plan: Plan, params: Mapping, known: Known, rows: Chunk, name: str,
                 anchor: Mapping | None = None) -> PyTree:
    """The log factor of a row-wise site, (rows or steps, *states); of a chain, its tables, for
    every row, or every step where they vary along time.

    Args:
        anchor: parameters at which the minorant of a family that has one touches its density, in
            whose place it then is.
    """
    if name not in plan.chains:
        return rowwise_factor(plan, params, known, at_level(plan, rows, name), name,
                              anchor=anchor).log
    site, parents = plan.structure.sites[name], plan.discrete_parents(name)
    timed = any(i in plan.structure.timed for i in site.inputs) or any(
        plan.structure.sites[p].time is not None for p in site.parents
    )
    chunk, fixed = rows.along.rows if timed else rows, environment(plan, params, known)

    def natural(env: Mapping):
        return site.traits.natural(plan.structure.cells(name, env), 0.0)

    logs = jax.vmap(lambda varying: over_states(plan, natural, {**fixed, **varying}, parents))(
        row_environment(plan, known, chunk, name))
    return {a: without_cell_axis(leaf, 1 + len(parents)) for a, leaf in logs.items()}


def in_pieces(plan: Plan, function: Callable, rows: Chunk, taps: Mapping | None = None) -> Factor:
    """function(rows, taps) → the factor of their steps, for all steps; where these are many, a
    piece at a time, which is recomputed for its gradient, so that no more than one is in memory.
    """
    steps = rows.along
    count = sequences.count_pieces(plan, steps, len(rows.weights))
    step_taps = ({n: taps[n] for n in plan.rowwise if n in plan.steps and n not in plan.chains}
                 if taps else None)
    if count == 1:
        return function(rows, step_taps)

    def piece(parts: tuple):
        factors.append(function(rows._replace(steps=parts[0]), parts[1]))
        return factors[-1].log

    factors: list[Factor] = []
    logs = lax.map(jax.checkpoint(piece), jax.tree.map(
        lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), (steps, step_taps)))
    return Factor(logs.reshape(-1, *logs.shape[2:]), factors[-1].names)


class Given(NamedTuple):
    """The arguments of factors of steps that come from parameters."""

    params: Mapping
    natural: Mapping
    predictive: Mapping | None
    known: Known


def steps_factor(plan: Plan, factors: Callable, given: Given, moves: list[Moves], rows: Chunk,
                 taps: Mapping | None = None, hard: bool = False,
                 extra: Mapping[tuple[str, ...], jax.Array] = MappingProxyType({})) -> Factor:
    """The factor of each row from its steps, (rows, *states of the row's variables).

    Args:
        factors: (given, steps, taps) → the factors of these steps; it closes over no array.
        taps: row-wise site → zeros added to its factor; with respect to these and to the naturals,
            and to nothing else then, gradients are asked.
        extra: scope → a factor of all steps besides, 0 and lane after lane, (M, L, *states): its
            gradients are asked.
    """
    steps, size = rows.along, len(rows.weights)
    step_taps = ({n: taps[n] for n in plan.rowwise if n in plan.steps and n not in plan.chains}
                 if taps else None)
    width = sequences.width_of(plan) + sum(math.prod(log.shape[2:]) for log in extra.values())
    count = 1 if hard or not plan.chains else sequences.count_cached_pieces(plan, steps, size,
                                                                            width)
    if count == 1:
        from_steps = in_pieces(plan, lambda rows, taps: sequences.within(
            plan, factors(given, rows.along, taps), hard), rows, taps)
        extras = [Factor(sequences.by_step(log), scope) for scope, log in extra.items()]
        return sequences.factor(plan, [from_steps, *extras], moves, steps, size, hard)
    return sequences.of_rows(plan, chain_sums.in_pieces(*_cut(
        plan, factors, given, moves, rows, count, step_taps, taps is not None, extra)))


def best_path(plan: Plan, factors: Callable, given: Given, moves: list[Moves],
              rows: Chunk) -> tuple[jax.Array, jax.Array] | None:
    """The most probable joint path of the chains: its log weight (G, rows), and its states (L, G,
    M), of steps that are gone through a piece at a time; None where they are few, or hide variables
    besides."""
    count = 1 if plan.step_order or not plan.steps else sequences.count_cached_pieces(
        plan, rows.along, len(rows.weights), sequences.width_of(plan))
    return None if count == 1 else paths.in_pieces(*_cut(plan, factors, given, moves, rows,
                                                              count, None, False, {}))


def _cut(plan: Plan, factors: Callable, given: Given, moves: list[Moves], rows: Chunk, count: int,
         step_taps: Mapping | None, nat_only: bool, extra: Mapping) -> sequences.Cut:
    """The chains of rows whose steps are cut into so many pieces; arguments as of steps_factor.

    Args:
        step_taps: taps of the steps. nat_only: whether gradients are asked of the naturals alone.
    """
    steps, size = rows.along, len(rows.weights)
    diff_given = Given({}, given.natural, {}, Known({}, {}, {})) if nat_only else given
    leaves, treedef = jax.tree.flatten(given)
    diff_ids = {id(leaf) for leaf in jax.tree.leaves(diff_given)
                if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)}
    is_diff = [id(leaf) in diff_ids for leaf in leaves]

    def emitted(shared: list, constants: list, step_taps: PyTree, piece_rows: Chunk):
        (taps, logs), sources = step_taps, {True: iter(shared), False: iter(constants)}
        piece_given = jax.tree.unflatten(treedef, [next(sources[diff]) for diff in is_diff])
        piece = replace(steps, rows=piece_rows, length=steps.length // count)
        return [*factors(piece_given, piece, taps),
                *(Factor(log, scope) for log, scope in zip(logs, extra, strict=True))]

    shared, constants = ([leaf for leaf, flag in zip(leaves, is_diff, strict=True) if flag is diff]
                    for diff in (True, False))
    return sequences.cut_of(plan, count, emitted, moves, steps, size, Pieces(
        shared, constants, step_taps, steps.rows, list(extra.values())))


def chain_moves(plan: Plan, params: Mapping, known: Known, natural: Mapping, rows: Chunk,
                taps: Mapping | None = None) -> list[Moves]:
    """The tables of the chains that are summed out."""
    return [_chain_tables(plan, params, known, natural.get(name), rows, name, taps)
            for name in plan.chains]
