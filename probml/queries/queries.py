"""Questions to a fit, answered for all rows in one compiled call: evidence, marginals, decoding,
joint draws, moments.

Discrete sites outside rows join each row's own variables here, with what was learnt about them as
their factor, so that every answer is about one row at a time, given what was fitted.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from probml.device.rows import Known, Rows, merged, picked
from probml.elimination import chain_paths, elimination
from probml.elimination.factor import Factor
from probml.evidence.passes import each
from probml.factors import integrated, sequences
from probml.factors.chains import chain_moves, in_pieces
from probml.factors.factors import global_factors, level_factors
from probml.factors.naturals import naturals
from probml.factors.sequences import Moves
from probml.numerics.compiling import jit
from probml.numerics.logs import finite, log_of
from probml.plan.plan import Plan
from probml.queries.moments import average, conditional, probability

# what an answer about a step looks at: all, the steps up to it, those before
ALL, FILTERED, PREDICTED = "all", "filtered", "predicted"


class Belief(NamedTuple):
    """What a fit knows of the parameters: a point or draws (leading axis), closed-form predictives,
    and global states."""

    params: dict[str, jax.Array]
    # log posterior over the global discrete sites; of draws, theirs too may lead with an axis of
    # draws
    table: jax.Array | None
    # pooled continuous site → arguments of its predictive (posterior.Marginals)
    predictive: dict[str, Any]


class _Parts(NamedTuple):
    """The factor graph of a chunk of rows in its parts: of rows, of their steps, and the moves of
    the chains."""

    rows: list[Factor]
    steps: list[Factor]
    moves: list[Moves]

    def whole(self, plan: Plan, rows: Rows, pairs: Any = None) -> list[Factor]:
        """One graph; what is hidden along time is summed out."""
        if not (self.steps or self.moves):
            return self.rows
        return [*self.rows, sequences.factor(plan, self.steps, self.moves, rows.steps,
                                             len(rows.weights), pairs=pairs)]


def parts_of(plan: Plan, belief: Belief, known: Known, rows: Rows) -> _Parts:
    """The factor graph of a chunk of rows."""
    natural = naturals(plan, belief.params, known)
    args = (plan, belief.params, known, natural, rows)
    factors = level_factors(*args, False, predictive=belief.predictive)
    if belief.table is not None:
        factors.append(Factor(belief.table[None], plan.globals))
    else:
        outer = global_factors(plan, belief.params, known)
        if plan.mixed:  # log p(states | params), not log p(states, params)
            outer.append(Factor(-elimination.evidence(outer, plan.globals), ()))
        factors += outer

    def inside(rows, taps=None):
        return level_factors(plan, belief.params, known, natural, rows, True,
                             predictive=belief.predictive)

    steps = inside(rows) if plan.step_order else []
    # nothing to eliminate: whatever else is asked of a step is added to its product
    if plan.steps and not plan.step_order:
        steps = [in_pieces(plan, lambda rows, _: sequences.within(plan, inside(rows)), rows)]
    return _Parts(factors, steps, chain_moves(*args))


def _level(plan: Plan, rows: Rows, name: str) -> tuple[Rows, int]:
    """The rows that answers about a site have, and their number: those of the data, or their
    steps."""
    if plan.structure.named[name].time is None:
        return rows, len(rows.weights)
    steps = rows.steps
    return steps.rows, len(rows.weights) * steps.blocks * steps.length


def answer_rows(plan: Plan, ask: tuple[tuple[str, str], ...], belief: Belief, known: Known,
                rows: Rows, view: str) -> tuple[jax.Array, dict]:
    """log p(row) and the answers to `ask`, pairs (question, site), for one chunk of rows at one
    parameter value."""
    size = len(rows.weights)
    scopes = {site: _asked(plan, site) for _, site in ask}
    timed = {site: plan.structure.named[site[0] if isinstance(site, tuple)
                                        else site].time is not None for site in scopes}
    inside = {scopes[site] for site in scopes if timed[site]}
    wanted = {scopes[site] for site in scopes if not timed[site]}
    parts, taps, untapped = parts_of(plan, belief, known, rows), {}, []
    for factor in parts.rows:
        if factor.names in wanted and factor.names not in taps and factor.log.shape[0] == size:
            # evidence on a site is a factor over it, whose gradient is the site's posterior
            taps[factor.names] = factor.log
        else:
            untapped.append(factor)
    blank = {scope: jnp.zeros((size, *(plan.variables[v].states for v in scope)))
             for scope in wanted - taps.keys()}
    taps = sorted((taps | blank).items(), key=lambda item: item[0])
    count = _level(plan, rows, plan.structure.chains[0])[1] if inside else 0
    inner = {scope: jnp.zeros((count, *(plan.variables[v].states for v in scope)))
             for scope in inside}
    states = math.prod(plan.variables[n].states for n in plan.chains)
    pairs = (jnp.zeros((rows.steps.length, 1, states, states, size * rows.steps.blocks))
             if any(q == "pairs" for q, _ in ask) else None)

    def total(logs, inner, pairs):
        tapped = [Factor(log, scope) for log, (scope, _) in zip(logs, taps, strict=True)]
        steps = [*parts.steps, *(Factor(log, scope) for scope, log in inner.items())]
        whole = parts._replace(rows=[*untapped, *tapped], steps=steps).whole(plan, rows, pairs)
        log = jnp.broadcast_to(elimination.evidence(whole, plan.order), (size,))
        return jnp.where(jnp.isfinite(log), log, 0.0).sum(), log

    (_, log), (tables, inner, pairs) = jax.value_and_grad(total, (0, 1, 2), has_aux=True)(
        [log for _, log in taps], inner, pairs
    )
    if view != ALL and inside:
        inner = _so_far(plan, belief, known, rows, parts, sorted(inside), view)
    found = {scope: table for (scope, _), table in zip(taps, tables, strict=True)} | inner
    q = {site: found[scope] for site, scope in scopes.items()}
    out = {}
    for question, site in ask:
        at, count = _level(plan, rows, site[0] if isinstance(site, tuple) else site)
        if view == PREDICTED:
            at = _hidden(at, site)
        if question == "joint":
            answer = q[site]
        elif question == "probability":
            answer = probability(plan, belief.params, known, at, site, q[site], count)
        elif question == "mean" and site in plan.variables:  # a count that others depend on
            found = plan.structure.sites[site]
            answer = jnp.tensordot(q[
                site
            ], found.valued(jnp.asarray(plan.variables[site].values)).astype(q[site].dtype), 1)
        elif question == "mean":
            answer = average(q[site],
                              conditional(plan, belief.params, known, at, site, "mean", count))
        elif question == "pairs":
            answer = _pairs(plan, site, pairs)
        if timed[site]:
            answer = (sequences.fold(plan, rows.steps, site, answer)
                      if question in ("probability", "mean") else rows.steps.folded(answer))
        out[question, site] = answer
    return log, out


def states_and_log(plan: Plan, scope: tuple[str, ...], belief: Belief, known: Known,
                   rows: Rows) -> tuple[jax.Array, jax.Array]:
    """log p(row) of a chunk, and p(joint states of `scope` | row), (b, *states)."""
    if not scope:
        return answer_rows(plan, (), belief, known, rows, ALL)[0], jnp.ones(len(rows.weights))
    log, out = answer_rows(plan, (("joint", scope),), belief, known, rows, ALL)
    return log, out["joint", scope]


def _pairs(plan: Plan, name: str, pairs: jax.Array) -> jax.Array:
    """(L, 1, K, K, M) of the joint states → (N, k, k) of one chain: the pair that leads into each
    step."""
    sizes, i = [plan.variables[n].states for n in plan.chains], plan.chains.index(name)
    table = jnp.moveaxis(pairs[:, 0], -1, 1).reshape(-1, *sizes, *sizes)
    return table.sum(tuple(1 + j for j in range(2 * len(sizes)) if j % len(sizes) != i))


def _so_far(plan: Plan, belief: Belief, known: Known, rows: Rows, parts: _Parts, scopes: list,
            view: str) -> dict:
    """The posterior of what each step hides, over `scopes`, given the steps before it, or up to it,
    and what is seen of the row itself."""
    steps, size = rows.steps, len(rows.weights)
    apart = [n for n in plan.order if n not in plan.along]
    left = elimination.sum_out(parts.rows, apart)
    names = (*plan.along, *plan.chains)
    log = sequences.spread(left.log, left.names, plan.along)
    outer = [plan.variables[n].states for n in plan.along]
    log = jnp.broadcast_to(log, (size, *outer)).reshape(size, -1)
    if plan.chains:
        chain = sequences.chain_of(plan, parts.steps, parts.moves, steps, size)
        predicted, _, before = chain_paths.filtered(chain, steps.blocks, steps.parallel, steps.wide)
        prior = jnp.repeat(log.T, steps.blocks, 1)[None] + before
        prior = jnp.exp(prior - finite(prior.max(1, keepdims=True)))[:, :, None] * predicted
        prior = jnp.moveaxis(
            jnp.broadcast_to(prior, (len(prior), math.prod(outer), *prior.shape[2:])), -1, 1
        )
        prior = log_of(prior).reshape(-1, *outer, *(plan.variables[n].states for n in plan.chains))
    else:
        prior = jnp.broadcast_to(jnp.repeat(log, steps.blocks, 0)[None],
                                 (steps.length, size * steps.blocks, log.shape[1]))
        prior = prior.reshape(-1, *outer)
    inside = parts.steps
    if view == PREDICTED:
        natural = naturals(plan, belief.params, known)
        inside = level_factors(plan, belief.params, known, natural, rows, True,
                               predictive=belief.predictive, evidence=False)

    def total(taps):
        graph = [Factor(prior, names), *inside,
                 *(Factor(log, scope) for scope, log in zip(scopes, taps, strict=True))]
        present = {n for f in graph for n in f.names}
        log = elimination.evidence(graph, [n for n in (*plan.step_order, *names) if n in present])
        return jnp.where(jnp.isfinite(log), log, 0.0).sum()

    blank = [jnp.zeros((len(prior), *(plan.variables[v].states for v in scope)))
             for scope in scopes]
    return dict(zip(scopes, jax.grad(total)(blank), strict=True))


def _hidden(rows: Rows, site: str) -> Rows:
    """The same rows, in which a site is not seen."""
    return rows._replace(
        values={n: v for n, v in rows.values.items() if n != site},
        seen={n: v for n, v in rows.seen.items() if n != site}
    )


def _asked(plan: Plan, site: str | tuple[str, ...]) -> tuple[str, ...]:
    """The variables whose joint posterior answers for a site, or for several together."""
    if isinstance(site, tuple):
        return site
    return (site,) if site in plan.variables else plan.scope(site)


@functools.partial(jit, static_argnames=("plan", "ask", "averaged", "view"))
def answer(plan: Plan, ask: tuple, averaged: bool, belief: Belief, known: Known, chunks: Rows,
           view: str = ALL):
    """log p(row) and answers, over all chunks; `averaged`: belief.params are draws, and answers are
    weighed by each draw's p(row)."""

    def chunk(rows):
        if not averaged:
            return answer_rows(plan, ask, belief, known, rows, view)
        each_table = belief.table is not None and belief.table.ndim > len(plan.globals)

        def at(draw):
            params, table = draw if each_table else (draw, belief.table)
            return answer_rows(plan, ask, belief._replace(params=params, table=table), known, rows,
                           view)

        log, out = jax.lax.map(at, (belief.params, belief.table) if each_table else belief.params)
        weight = jax.nn.softmax(log, 0)
        out = {k: (weight.reshape(*weight.shape, *(1,) * (v.ndim - 2)) * v).sum(0)
               for k, v in out.items()}
        return jax.scipy.special.logsumexp(log, 0) - math.log(log.shape[0]), out

    return each(chunk, chunks)


@functools.partial(jit, static_argnames=("plan", "sites", "leaves"))
def decode(plan: Plan, sites: tuple[str, ...], leaves: tuple[str, ...], belief: Belief,
           known: Known, chunks: Rows):
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
        parts, peaks = parts_of(plan, belief, known, rows), {}
        for name in leaves:  # an unseen leaf adds its maximum, cell by cell, to its parents' score
            at, count = _level(plan, rows, name)
            p = conditional(plan, belief.params, known, at, name, "probabilities", count)
            scope = plan.scope(name)
            peaks[name] = p, scope
            best = jnp.log(p.max(-1)).reshape(*p.shape[: 1 + len(scope)], -1)
            if name in at.seen:
                unseen = ~at.seen[name].reshape(count, *(1,) * len(scope), -1)
                best = jnp.where(unseen, best, 0.0)
            (parts.rows if at is rows else parts.steps).append(Factor(best.sum(-1), scope))
        within = [v for v in plan.step_order if v in sites]
        path = plan.chains if any(v in sites for v in plan.chains) else ()
        if path:
            inside = elimination.remainder(parts.steps,
                                           [v for v in plan.step_order if v not in sites])
            chain = sequences.chain_of(plan, inside, parts.moves, steps, size, hard=True)
            value, paths = chain_paths.maximise(chain, steps.blocks, steps.parallel, steps.wide)
            factors = [*parts.rows, sequences.of_rows(plan, value)]
        else:
            factors = parts.whole(plan, rows)
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
        for name, (p, scope) in peaks.items():
            at = states if plan.structure.sites[name].time is None else every
            chosen = p[(jnp.arange(len(p)), *(at[parent] for parent in scope))] if all(
                v in at for v in scope
            ) else p
            chosen = chosen.argmax(-1)
            out[name] = chosen if at is states else sequences.fold(plan, steps, name, chosen)
        return jnp.broadcast_to(best, (size,)), out

    return each(chunk, chunks)


@functools.partial(jit, static_argnames=("plan",))
def draw_each(plan: Plan, belief: Belief, known: Known, chunks: Rows, index: jax.Array, key):
    """As `draw`, row groups each with parameters of their own.

    Args:
        belief: its parameters lead with the axis of the groups (and its table, if it is one of
            draws).
        index: (groups, rows a group) numbers of rows, chunks behind one another.

    Returns:
        log p(row), (groups, rows a group), and name → joint states of the same shape.
    """
    flat, each_table = (merged(chunks),
                        belief.table is not None and belief.table.ndim > len(plan.globals))

    def group(parts):
        params, table, index, key = parts
        own = belief._replace(params=params, table=table if each_table else belief.table)
        rows = jax.tree.map(lambda leaf: leaf[None], picked(flat, index))
        return jax.tree.map(lambda leaf: leaf[0], _drawn(plan, own, known, rows, key))

    tables = belief.table if each_table else jnp.zeros(len(index))
    return jax.lax.map(group, (belief.params, tables, index, jax.random.split(key, len(index))))


@functools.partial(jit, static_argnames=("plan",))
def draw(plan: Plan, belief: Belief, known: Known, chunks: Rows, key):
    """Joint draws of all variables given each row: log p(row), (chunks, b), and name → (chunks, b)
    joint states."""
    return _drawn(plan, belief, known, chunks, key)


def _drawn(plan: Plan, belief: Belief, known: Known, chunks: Rows, key):
    def chunk(rows, key):
        parts, size, steps = parts_of(plan, belief, known, rows), len(rows.weights), rows.steps
        if plan.chains:
            chain = sequences.chain_of(plan, parts.steps, parts.moves, steps, size)
            key, other, last = jax.random.split(key, 3)
            value, paths = chain_paths.draw(chain, other, steps.blocks, steps.parallel, steps.wide)
            factors = [*parts.rows, sequences.of_rows(plan, value)]
        else:
            factors = parts.whole(plan, rows)
        whole = [Factor(jnp.broadcast_to(f.log, (size, *f.log.shape[1:])), f.names)
                 for f in factors[:1]] + factors[1:]
        log, states = elimination.draw(whole, plan.order, key)
        for i, group in enumerate(plan.latents):
            states |= integrated.draw(plan, belief.params, known, rows, group, states,
                                      jax.random.fold_in(key, i))
        if plan.chains:
            every, hot = sequences.clamps(plan, sequences.lane_states(plan, paths, states, steps),
                                          states, steps)
            if plan.step_order:
                every |= elimination.draw([*hot, *parts.steps],
                                          (*plan.step_order, *plan.along, *plan.chains), last)[1]
            states |= {name: steps.folded(state) for name, state in every.items()
                       if name not in states}
        return jnp.broadcast_to(log, (size,)), states

    return each(chunk, chunks, jax.random.split(key, chunks.weights.shape[0]))
