"""The jointly most probable states of each row (max-product; along time Viterbi 1967).

Joint posterior draws of all latent and missing values of each row (forward filtering, backward
sampling).
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data
from probml.device import load
from probml.device.rows import Chunk, Known, Rows
from probml.elimination import elimination
from probml.elimination.chains import paths as chain_best
from probml.elimination.chains import paths as chain_paths
from probml.elimination.factor import Factor
from probml.errors import Refusal
from probml.evidence import e_step
from probml.factors import integrated, sequences
from probml.numerics.compiling import ASKED, jit
from probml.plan.plan import Plan
from probml.queries.fitted import Fitted
from probml.queries.queries import Belief, Parts, conditional, means_along, parts_of, rows_of_site
from probml.typing import PyTree


@jit(static_argnames=("plan", "sites", "leaves"), seldom=ASKED)
def decode(plan: Plan, sites: tuple[str, ...], leaves: tuple[str, ...], belief: Belief,
           known: Known, all_rows: Rows):
    """The jointly most probable states of the variables `sites`, all others summed out: the log of
    that maximum, up to a constant, (chunks, b), and name → (chunks, b) joint states.

    Args:
        leaves: sites that are not variables of the plan. Each of their cells is maximised given its
            parents, which are among `sites`: (chunks, b, *cells).
    """
    return all_rows.map(lambda rows: _decode_chunk(plan, sites, leaves, belief, known, rows))


Peaks = tuple[jax.Array, tuple[str, ...]]  # a table over joint states of a scope, and that scope


def _decode_chunk(plan: Plan, sites: tuple[str, ...], leaves: tuple[str, ...], belief: Belief,
                  known: Known, rows: Chunk) -> tuple[jax.Array, dict[str, jax.Array]]:
    """As `decode`, of one chunk of rows."""
    size = len(rows.weights)
    parts = parts_of(plan, belief, known, rows)
    cells = _maximise_cells(plan, sites, belief, known, rows, parts)
    peaks = {name: _maximise_leaf(plan, name, belief, known, rows, parts) for name in leaves}
    chained = any(v in sites for v in plan.chains)
    if chained:
        step_leaves = any(plan.structure.sites[name].time is not None for name in leaves)
        value, paths, in_steps = _best_paths(plan, sites, parts, rows.along, size, step_leaves)
        factors = [*parts.rows, sequences.of_rows(plan, value)]
    else:
        factors = parts.factor_graph()
    summed = tuple(v for v in plan.order if v not in sites)
    maximised = tuple(v for v in plan.order if v in sites)
    best, states = elimination.maximise(elimination.remainder(factors, summed), maximised)
    states = {name: jnp.broadcast_to(states[name], (size,)) for name in maximised}
    by_step = _states_of_steps(plan, sites, paths, in_steps, states, rows.along) if chained else {}
    decoded = {name: states[name] if name in states else rows.along.folded(by_step[name])
               for name in sites if name in states or name in by_step}
    for name, (best_cells, scope) in cells.items():
        decoded[name] = best_cells[(jnp.arange(size), *(states[v] for v in scope))]
    for name, (probs, scope) in peaks.items():
        timed = plan.structure.sites[name].time is not None
        lookup = by_step if timed else states
        chosen = probs[(jnp.arange(len(probs)), *(lookup[parent] for parent in scope))] if all(
            v in lookup for v in scope
        ) else probs
        chosen = chosen.argmax(-1)
        decoded[name] = sequences.fold(plan, name, rows.along.folded(chosen)) if timed else chosen
    return jnp.broadcast_to(best, (size,)), decoded


def _maximise_cells(plan: Plan, sites: tuple[str, ...], belief: Belief, known: Known, rows: Chunk,
                    parts: Parts) -> dict[str, Peaks]:
    """The most probable states of sites that are summed out cell by cell, given each joint state of
    their parents; appends the log of the maximum to the factors of rows."""
    cells = {}
    for group in plan.latents:
        names = [name for name in group.cellwise if name in sites]
        if names:
            factor, by_site = integrated.best_cells(plan, belief.params, known, rows, group, names)
            parts.rows.append(factor)
            cells |= {name: (states, factor.names) for name, states in by_site.items()}
    return cells


def _maximise_leaf(plan: Plan, name: str, belief: Belief, known: Known, rows: Chunk,
                   parts: Parts) -> Peaks:
    """The probabilities of a site without children, given its parents; where it is missing, appends
    the log of their maximum (summed over cells) to the factors of rows or steps."""
    chunk, count = rows_of_site(plan, rows, name)
    probs = conditional(plan, belief.params, known, chunk, name, "probabilities", count,
                        means_along(plan, belief.params, known, rows, name, "all"))
    scope = tuple(parent for parent in plan.structure.sites[name].parents
                  if parent in plan.variables)
    log_max = jnp.log(probs.max(-1)).reshape(*probs.shape[: 1 + len(scope)], -1)
    if name in chunk.observed:
        missing = ~chunk.observed[name].reshape(count, *(1,) * len(scope), -1)
        log_max = jnp.where(missing, log_max, 0.0)
    (parts.rows if chunk is rows else parts.steps).append(Factor(log_max.sum(-1), scope))
    return probs, scope


def _best_paths(plan: Plan, sites: tuple[str, ...], parts: Parts, steps: PyTree, size: int,
                with_others: bool) -> tuple[jax.Array, PyTree, list[Factor]]:
    """The log probability of the best path of the chains (Viterbi), the path, and the factors of
    its steps with the other variables summed out; [] where these were not needed.

    Args:
        with_others: other sites of the steps are maximised as well.
    """
    path = None if with_others else parts.path()
    if path is not None:
        return *path, []
    factors = elimination.remainder(parts.steps, [v for v in plan.step_order if v not in sites])
    chain = sequences.chain_of(plan, factors, parts.moves, steps, size, hard=True)
    return *chain_best.maximise(chain, sequences.layout_of(steps)), factors


def _states_of_steps(plan: Plan, sites: tuple[str, ...], paths: jax.Array, factors: list[Factor],
                     states: dict[str, jax.Array], steps: PyTree) -> dict[str, jax.Array]:
    """The most probable states of the variables of each step, given the best path of the chains and
    the states of the row's variables."""
    by_step, hot = sequences.clamps(plan, sequences.lane_states(plan, paths, states, steps), states,
                                    steps)
    targets = [v for v in plan.step_order if v in sites]
    if targets:
        by_step |= elimination.maximise([*factors, *hot], (*targets, *plan.along, *plan.chains))[1]
    return by_step


def outside(fit: Fitted, data: Data, sites: Sequence[str]) -> dict[str, np.ndarray]:
    """The jointly most probable values of discrete sites outside rows at the point estimate, all
    others summed out: site → (*cells).

    Raises:
        Refusal: no observed site depends on one of them, and it has infinitely many values.
    """
    trimmed = data.trimmed()
    plan = trimmed.plan()
    idle = next((name for name in sites if name not in plan.globals), None)
    if idle is not None:
        raise Refusal(f"decode: '{idle}' has infinitely many values, and no observed site depends "
                      f"on it, so its most probable value cannot be computed. Omit '{idle}' from "
                      f"sites=")
    rows, known = load.load(trimmed, plan, params=fit.point)
    params = {name: jnp.asarray(fit.point[name]) for name in plan.free}
    probs = np.exp(np.asarray(_outside(plan, params, known, rows)))
    axes = [plan.globals.index(name) for name in sites]
    others = tuple(i for i in range(probs.ndim) if i not in axes)
    probs = probs.sum(others, keepdims=True)
    best = np.unravel_index(probs.argmax(), probs.shape)
    all_sites = trimmed.structure.sites
    return {name: all_sites[name].valued(np.asarray(plan.variables[name].values)[best[axis]])
            for name, axis in zip(sites, axes, strict=True)}


_outside = jit(e_step.global_posterior, static_argnums=0, seldom=ASKED)


@jit(static_argnames=("plan",), seldom=ASKED)
def draw_each(plan: Plan, belief: Belief, known: Known, rows: Rows, index: jax.Array,
              key: jax.Array):
    """As `draw`, with different parameters for each group of rows.

    Args:
        belief: its parameters have a leading axis of groups.
        index: (groups, rows per group) row numbers, counted through all chunks.

    Returns:
        log p(row), (groups, rows per group), and name → joint states of the same shape.
    """

    def group(belief, index, key):
        return jax.tree.map(lambda leaf: leaf[0],
                            drawn_once(plan, belief, known, rows.taken(index), key))

    return belief.map_draws(plan, group, index, jax.random.split(key, len(index)))


def drawn_once(plan: Plan, belief: Belief, known: Known, all_rows: Rows, key: jax.Array):
    """Joint draws of all variables given the observed cells of each row: log p(row), (chunks, b),
    and name → (chunks, b) joint states."""

    def chunk(rows: Chunk, key: jax.Array):
        parts, size = parts_of(plan, belief, known, rows), len(rows.weights)
        if plan.chains:
            steps = rows.along
            chain = sequences.chain_of(plan, parts.steps, parts.moves, steps, size)
            key, path_key, last = jax.random.split(key, 3)
            value, paths = chain_paths.draw(chain, path_key, sequences.layout_of(steps))
            factors = [*parts.rows, sequences.of_rows(plan, value)]
        else:
            factors = parts.factor_graph()
        keys = ()
        if plan.latents:  # split before use: a PRNG key must not be both used and split
            key, *keys = jax.random.split(key, 1 + len(plan.latents))
        batched = [Factor(jnp.broadcast_to(f.log, (size, *f.log.shape[1:])), f.names)
                   for f in factors[:1]] + factors[1:]
        log_prob, states = elimination.draw(batched, plan.order, key)
        for group, group_key in zip(plan.latents, keys, strict=True):
            states |= integrated.draw(plan, belief.params, known, rows, group, states, group_key)
        if plan.chains:
            by_step, hot = sequences.clamps(plan, sequences.lane_states(plan, paths, states, steps),
                                            states, steps)
            if plan.step_order:
                by_step |= elimination.draw([*hot, *parts.steps],
                                            (*plan.step_order, *plan.along, *plan.chains), last)[1]
            states |= {name: steps.folded(state) for name, state in by_step.items()
                       if name not in states}
        return jnp.broadcast_to(log_prob, (size,)), states

    return all_rows.map(chunk, jax.random.split(key, all_rows.chunks))


draw = jit(drawn_once, static_argnums=0, seldom=ASKED)
