"""The jointly most probable states of each row (max-product; along time Viterbi 1967)."""

import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data
from probml.device import load
from probml.device.rows import Known, Rows
from probml.elimination import elimination
from probml.elimination.chains import best as chain_best
from probml.elimination.factor import Factor
from probml.errors import Refusal
from probml.evidence import passes
from probml.factors import integrated, sequences
from probml.numerics.compile_effort import ASKED
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.queries.fitted import Fitted
from probml.queries.moments import conditional, means_along
from probml.queries.parts import Belief, parts_of, rows_of_site


@functools.partial(jit, static_argnames=("plan", "sites", "leaves"), seldom=ASKED)
def decode(plan: Plan, sites: tuple[str, ...], leaves: tuple[str, ...], belief: Belief,
           known: Known, every: Rows):
    """The jointly most probable states of the variables `sites`, all others summed out: the log of
    that maximum, up to a constant, (chunks, b), and name → (chunks, b) joint states.

    Args:
        leaves: sites that are no variables, each cell of them maximised given its parents, which
            are among `sites`: (chunks, b, *cells).
    """

    def chunk(rows):
        size, steps = len(rows.weights), rows.steps
        first = tuple(v for v in plan.order if v not in sites)
        rest = tuple(v for v in plan.order if v in sites)
        parts, peaks, cells = parts_of(plan, belief, known, rows), {}, {}
        for group in plan.latents:
            names = [name for name in group.cellwise if name in sites]
            if names:
                more, found = integrated.best_cells(plan, belief.params, known, rows, group, names)
                parts.rows.append(more)
                cells |= {name: (states, more.names) for name, states in found.items()}
        for name in leaves:  # an unseen leaf adds its maximum, cell by cell, to its parents' score
            at, count = rows_of_site(plan, rows, name)
            p = conditional(plan, belief.params, known, at, name, "probabilities", count,
                            means_along(plan, belief.params, known, rows, name, "all"))
            scope = tuple(parent for parent in plan.structure.sites[name].parents
                          if parent in plan.variables)
            peaks[name] = p, scope
            best = jnp.log(p.max(-1)).reshape(*p.shape[: 1 + len(scope)], -1)
            if name in at.seen:
                unseen = ~at.seen[name].reshape(count, *(1,) * len(scope), -1)
                best = jnp.where(unseen, best, 0.0)
            (parts.rows if at is rows else parts.steps).append(Factor(best.sum(-1), scope))
        within = [v for v in plan.step_order if v in sites]
        path = plan.chains if any(v in sites for v in plan.chains) else ()
        if path:
            beside = any(plan.structure.sites[name].time is not None for name in leaves)
            inside, found = [], None if beside else parts.path()
            if found is None:
                inside = elimination.remainder(parts.steps,
                                               [v for v in plan.step_order if v not in sites])
                chain = sequences.chain_of(plan, inside, parts.moves, steps, size, hard=True)
                found = chain_best.maximise(chain, steps.blocks, steps.parallel)
            value, paths = found
            factors = [*parts.rows, sequences.of_rows(plan, value)]
        else:
            factors = parts.factor_graph()
        best, states = elimination.maximise(elimination.remainder(factors, first), rest)
        states = {name: jnp.broadcast_to(states[name], (size,)) for name in rest}
        if path:
            every, hot = sequences.clamps(plan, sequences.lane_states(plan, paths, states, steps),
                                          states, steps)
            if within:
                every |= elimination.maximise([*inside, *hot],
                                              (*within, *plan.along, *plan.chains))[1]
        else:
            every = {}
        out = {name: states[name] for name in sites if name in states}
        out |= {name: steps.folded(every[name]) for name in sites if name in every
                and name not in states}
        for name, (found, scope) in cells.items():
            out[name] = found[(jnp.arange(size), *(states[v] for v in scope))]
        for name, (p, scope) in peaks.items():
            at = states if plan.structure.sites[name].time is None else every
            chosen = p[(jnp.arange(len(p)), *(at[parent] for parent in scope))] if all(
                v in at for v in scope
            ) else p
            chosen = chosen.argmax(-1)
            out[name] = chosen if at is states else sequences.fold(plan, name,
                                                                            steps.folded(chosen))
        return jnp.broadcast_to(best, (size,)), out

    return every.map(chunk)


def outside(fit: Fitted, data: Data, sites: Sequence[str]) -> dict[str, np.ndarray]:
    """The jointly most probable values of discrete sites outside rows at the point, all others
    summed out: site → (*cells).

    Raises:
        Refusal: nothing that is seen depends on a site, and its values have no end.
    """
    held = data.trimmed()
    plan = held.plan()
    idle = next((name for name in sites if name not in plan.globals), None)
    if idle is not None:
        raise Refusal(f"decode: no observed site depends on '{idle}', and it has infinitely many "
                      f"values")
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


@functools.partial(jit, static_argnums=0, seldom=ASKED)
def _outside(plan: Plan, params: Mapping, known: Known, rows: Rows) -> jax.Array:
    return passes.global_posterior(plan, params, known, rows)
