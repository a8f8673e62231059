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
           known: Known, every: Rows):
    """The jointly most probable states of the variables `sites`, all others summed out: the log of
    that maximum, up to a constant, (chunks, b), and name → (chunks, b) joint states.

    Args:
        leaves: sites that are not variables of the plan. Each of their cells is maximised given its
            parents, which are among `sites`: (chunks, b, *cells).
    """
    return every.map(lambda rows: _decode_chunk(plan, sites, leaves, belief, known, rows))


Peaks = tuple[jax.Array, tuple[str, ...]]  # a table over joint states of a scope, and that scope


def _decode_chunk(plan: Plan, sites: tuple[str, ...], leaves: tuple[str, ...], belief: Belief,
                  known: Known, rows: Chunk) -> tuple[jax.Array, dict[str, jax.Array]]:
    """As `decode`, of one chunk of rows."""
    size = len(rows.weights)
    parts = parts_of(plan, belief, known, rows)
    cells = _maximise_cells(plan, sites, belief, known, rows, parts)
    peaks = {name: _maximise_leaf(plan, name, belief, known, rows, parts) for name in leaves}
    path = any(v in sites for v in plan.chains)
    if path:
        beside = any(plan.structure.sites[name].time is not None for name in leaves)
        value, paths, inside = _best_paths(plan, sites, parts, rows.along, size, beside)
        factors = [*parts.rows, sequences.of_rows(plan, value)]
    else:
        factors = parts.factor_graph()
    summed = tuple(v for v in plan.order if v not in sites)
    rest = tuple(v for v in plan.order if v in sites)
    best, states = elimination.maximise(elimination.remainder(factors, summed), rest)
    states = {name: jnp.broadcast_to(states[name], (size,)) for name in rest}
    along = _states_of_steps(plan, sites, paths, inside, states, rows.along) if path else {}
    out = {name: states[name] if name in states else rows.along.folded(along[name])
           for name in sites if name in states or name in along}
    for name, (found, scope) in cells.items():
        out[name] = found[(jnp.arange(size), *(states[v] for v in scope))]
    for name, (p, scope) in peaks.items():
        timed = plan.structure.sites[name].time is not None
        at = along if timed else states
        chosen = p[(jnp.arange(len(p)), *(at[parent] for parent in scope))] if all(
            v in at for v in scope
        ) else p
        chosen = chosen.argmax(-1)
        out[name] = sequences.fold(plan, name, rows.along.folded(chosen)) if timed else chosen
    return jnp.broadcast_to(best, (size,)), out


def _maximise_cells(plan: Plan, sites: tuple[str, ...], belief: Belief, known: Known, rows: Chunk,
                    parts: Parts) -> dict[str, Peaks]:
    """The most probable states of sites that are summed out cell by cell, given each joint state of
    their parents; appends the log of the maximum to the factors of rows."""
    cells = {}
    for group in plan.latents:
        names = [name for name in group.cellwise if name in sites]
        if names:
            more, found = integrated.best_cells(plan, belief.params, known, rows, group, names)
            parts.rows.append(more)
            cells |= {name: (states, more.names) for name, states in found.items()}
    return cells


def _maximise_leaf(plan: Plan, name: str, belief: Belief, known: Known, rows: Chunk,
                   parts: Parts) -> Peaks:
    """The probabilities of a site without children, given its parents; where it is missing, appends
    the log of their maximum (summed over cells) to the factors of rows or steps."""
    at, count = rows_of_site(plan, rows, name)
    p = conditional(plan, belief.params, known, at, name, "probabilities", count,
                    means_along(plan, belief.params, known, rows, name, "all"))
    scope = tuple(parent for parent in plan.structure.sites[name].parents
                  if parent in plan.variables)
    best = jnp.log(p.max(-1)).reshape(*p.shape[: 1 + len(scope)], -1)
    if name in at.seen:
        missing = ~at.seen[name].reshape(count, *(1,) * len(scope), -1)
        best = jnp.where(missing, best, 0.0)
    (parts.rows if at is rows else parts.steps).append(Factor(best.sum(-1), scope))
    return p, scope


def _best_paths(plan: Plan, sites: tuple[str, ...], parts: Parts, steps: PyTree, size: int,
                beside: bool) -> tuple[jax.Array, PyTree, list[Factor]]:
    """The log probability of the best path of the chains (Viterbi), the path, and the factors of
    its steps with the other variables summed out; [] where these were not needed.

    Args:
        beside: other sites of the steps are maximised as well.
    """
    found = None if beside else parts.path()
    if found is not None:
        return *found, []
    inside = elimination.remainder(parts.steps, [v for v in plan.step_order if v not in sites])
    chain = sequences.chain_of(plan, inside, parts.moves, steps, size, hard=True)
    return *chain_best.maximise(chain, sequences.layout_of(steps)), inside


def _states_of_steps(plan: Plan, sites: tuple[str, ...], paths: jax.Array, inside: list[Factor],
                     states: dict[str, jax.Array], steps: PyTree) -> dict[str, jax.Array]:
    """The most probable states of the variables of each step, given the best path of the chains and
    the states of the row's variables."""
    along, hot = sequences.clamps(plan, sequences.lane_states(plan, paths, states, steps), states,
                                  steps)
    within = [v for v in plan.step_order if v in sites]
    if within:
        along |= elimination.maximise([*inside, *hot], (*within, *plan.along, *plan.chains))[1]
    return along


def outside(fit: Fitted, data: Data, sites: Sequence[str]) -> dict[str, np.ndarray]:
    """The jointly most probable values of discrete sites outside rows at the point estimate, all
    others summed out: site → (*cells).

    Raises:
        Refusal: no observed site depends on one of them, and it has infinitely many values.
    """
    held = data.trimmed()
    plan = held.plan()
    idle = next((name for name in sites if name not in plan.globals), None)
    if idle is not None:
        raise Refusal(f"decode: '{idle}' has infinitely many values, and no observed site depends "
                      f"on it, so its most probable value cannot be computed. Omit '{idle}' from "
                      f"sites=")
    rows, known = load.load(held, plan, params=fit.point)
    params = {name: jnp.asarray(fit.point[name]) for name in plan.free}
    share = np.exp(np.asarray(_outside(plan, params, known, rows)))
    axes = [plan.globals.index(name) for name in sites]
    rest = tuple(i for i in range(share.ndim) if i not in axes)
    share = share.sum(rest, keepdims=True)
    best = np.unravel_index(share.argmax(), share.shape)
    every = held.structure.sites
    return {name: every[name].valued(np.asarray(plan.variables[name].values)[best[axis]])
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

    def group(own, index, key):
        return jax.tree.map(lambda leaf: leaf[0],
                            drawn_once(plan, own, known, rows.taken(index), key))

    return belief.map_draws(plan, group, index, jax.random.split(key, len(index)))


def drawn_once(plan: Plan, belief: Belief, known: Known, every: Rows, key: jax.Array):
    """Joint draws of all variables given the observed cells of each row: log p(row), (chunks, b),
    and name → (chunks, b) joint states."""

    def chunk(rows: Chunk, key: jax.Array):
        parts, size = parts_of(plan, belief, known, rows), len(rows.weights)
        if plan.chains:
            steps = rows.along
            chain = sequences.chain_of(plan, parts.steps, parts.moves, steps, size)
            key, other, last = jax.random.split(key, 3)
            value, paths = chain_paths.draw(chain, other, sequences.layout_of(steps))
            factors = [*parts.rows, sequences.of_rows(plan, value)]
        else:
            factors = parts.factor_graph()
        own = ()
        if plan.latents:  # split before use: a PRNG key must not be both used and split
            key, *own = jax.random.split(key, 1 + len(plan.latents))
        whole = [Factor(jnp.broadcast_to(f.log, (size, *f.log.shape[1:])), f.names)
                 for f in factors[:1]] + factors[1:]
        log, states = elimination.draw(whole, plan.order, key)
        for group, mine in zip(plan.latents, own, strict=True):
            states |= integrated.draw(plan, belief.params, known, rows, group, states, mine)
        if plan.chains:
            every, hot = sequences.clamps(plan, sequences.lane_states(plan, paths, states, steps),
                                          states, steps)
            if plan.step_order:
                every |= elimination.draw([*hot, *parts.steps],
                                          (*plan.step_order, *plan.along, *plan.chains), last)[1]
            states |= {name: steps.folded(state) for name, state in every.items()
                       if name not in states}
        return jnp.broadcast_to(log, (size,)), states

    return every.map(chunk, jax.random.split(key, every.chunks))


draw = jit(drawn_once, static_argnums=0, seldom=ASKED)
