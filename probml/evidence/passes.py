"""Passes over rows: chunks are added, and the gradient of their evidence with respect to the
naturals is the expected statistics."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from probml.device.rows import Known, Rows, Summary
from probml.elimination import elimination
from probml.elimination.factor import Factor
from probml.evidence import effects
from probml.evidence.surrogates import inner
from probml.factors import integrated
from probml.factors.chains import rowwise_logs
from probml.factors.effects import Eliminated
from probml.factors.factors import global_factors, row_evidence
from probml.factors.naturals import naturals, over_states
from probml.factors.rowwise import row_environment, setting_logs
from probml.plan.plan import Plan

ORDERED = 2**20  # rows up to which they are put in order, all at once


def weigh(log: jax.Array, weights: jax.Array) -> jax.Array:
    """Σ over rows of weight × log evidence; rows of weight 0 count nothing, even where they are
    impossible."""
    weights = weights.reshape(-1, *(1,) * (log.ndim - 1))
    return jnp.where(weights > 0, weights * jnp.where(weights > 0, log, 0.0), 0.0).sum(0)


class Expected(NamedTuple):
    """An E-step: what the M-step needs of the rows, and the log evidence."""

    statistics: dict[str, Any]  # like naturals: Σ q T(x)
    # row-wise sites: q a row, (chunks, b, *states); groups of latents: their belief; effects of
    # groups, under the name of the first: their moments, once a chunk
    taps: dict[str, Any]
    outer: list[jax.Array]  # posterior tables of the global factors
    log_evidence: jax.Array
    # Σ |statistics × naturals|, of the terms whose sum is the pooled objective: its rounding grows
    # with them
    size: jax.Array
    # groups of latents whose statistics pool: where these were taken about, and they themselves
    middle: dict[str, Any]
    pooled: dict[str, Any]


def expect(plan: Plan, params: Mapping, known: Known, chunks: Rows, hard: bool = False,
           natural: Mapping | None = None) -> Expected:
    """One pass over the rows: expected statistics and log evidence, chunk by chunk.

    Args:
        natural: the naturals at params, where they are known.

    Cost: O(rows × work of one evidence and its gradient) time, one chunk of memory beyond the data;
    with discrete sites outside rows and several chunks one evidence more (`returned`).
    """
    natural = naturals(plan, params, known) if natural is None else natural
    if isinstance(chunks, Summary):
        return Expected(chunks.statistics, {}, [], chunks.base + inner(chunks.statistics, natural),
                        _size(chunks.statistics, natural), {}, {})
    outer = global_factors(plan, params, known)
    logs = [factor.log for factor in outer]
    middle = integrated.middles(plan, params, known)

    def chunk(rows: Rows):
        shapes = jax.eval_shape(lambda: {name: rowwise_logs(plan, params, known, rows, name)
                                         for name in plan.rowwise})
        taps = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        def total(natural, taps):
            return weigh(row_evidence(plan, params, known, natural, rows, taps, hard), rows.weights)

        if not plan.latents:
            return jax.vjp(total, natural, taps)
        sizes = {group.name: [plan.variables[n].states for n in plan.reach(group)]
                 for group in plan.latents}
        messages = {name: jnp.zeros((len(rows.weights), *size)) for name, size in sizes.items()}
        value, back = jax.vjp(total, natural, taps | messages)

        def apart(share):
            statistics, taps = back(share)
            weights = {name: taps.pop(name) for name in messages}
            found = integrated.statistics(plan, params, known, rows, middle, weights)
            return (statistics, found), taps | integrated.beliefs(plan, params, known, rows,
                                                                  weights)

        return value, apart

    def whole(logs, total):
        return total_evidence(
            plan, [Factor(log, f.names) for log, f in zip(logs, outer, strict=True)], total
        )

    def rest(total):
        value, (posteriors, share) = jax.value_and_grad(whole, (0, 1))(logs, total)
        return (value, posteriors), share

    (value, posteriors), statistics, (taps,) = returned(chunk, chunks, rest,
                                                        linear=not plan.touching)
    pooled = {}
    if plan.latents:
        statistics, pooled = statistics
    if plan.groupings:
        more, held = effects.expect(plan, params, known, totals(chunks))
        value += more
        taps = taps | {plan.effects[0]: jax.tree.map(lambda leaf: jnp.broadcast_to(
            leaf, (chunks.weights.shape[0], *leaf.shape)), held)}
    return Expected(statistics, taps, posteriors, value, _size(statistics, natural), middle, pooled)


def _size(statistics: Any, natural: Any) -> jax.Array:
    return inner(jax.tree.map(jnp.abs, statistics), jax.tree.map(jnp.abs, natural))


def summarise(plan: Plan, params: Mapping, known: Known, chunks: Rows) -> Summary:
    """The rows of an additive plan, passed over once.

    A log density linear in its natural parameters is its base measure where they are 0, and its
    slope there the statistics.

    Args:
        params: any; their naturals give the shapes.
    """
    sites = plan.structure.sites
    blank = {name: sites[name].family.zero(leaf)
             for name, leaf in naturals(plan, params, known).items()}

    def chunk(rows):
        return jax.value_and_grad(
            lambda natural: weigh(row_evidence(plan, params, known, natural, rows), rows.weights)
        )(blank), ()

    (base, statistics), _ = accumulate(chunk, chunks)
    return Summary(statistics, base, chunks.weights.sum())


def row_totals(plan: Plan, params: Mapping, known: Known, chunks: Rows) -> jax.Array:
    """Σ over rows of weight × log p(row | params), over the states of the touching global sites; no
    gradient is made."""
    natural = naturals(plan, params, known)
    if isinstance(chunks, Summary):
        return chunks.base + inner(chunks.statistics, natural)
    part = apart(plan, chunks)
    total = accumulate(lambda rows: (weigh(row_evidence(part, params, known, natural, rows),
                                           rows.weights), ()), chunks)[0]
    return together(plan, part, total, params, known, chunks)


def apart(plan: Plan, chunks: Rows) -> Plan:
    """The plan of the sites whose log densities are added chunk by chunk, over every state;
    `together` adds the ordered ones."""
    return plan.others if plan.ordered and chunks.weights.size <= ORDERED else plan


def together(plan: Plan, part: Plan, total: jax.Array, params: Mapping, known: Known, chunks: Rows,
             scale: float = 1.0) -> jax.Array:
    """The total over the states of plan.touching, from that of `part` over its own, and the ordered
    sites'.

    Of rows in the order of the number that is compared with the state's, a switch is on for so many
    first or last ones: their sum is a running sum. Which row comes where does not depend on
    parameters, so that in a loop XLA sorts once.

    Cost: rows + states, in place of rows × states.
    """
    if part is plan:
        return total
    own = {name: plan.variables[name].states for name in plan.touching}
    total = total.reshape([states if name in part.touching else 1 for name, states in own.items()])
    rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]),
                        chunks._replace(codes={}, unseen={}, likelihood={}))
    for name in plan.ordered:
        switches, order = plan.switches[name], plan.switches[name].order
        logs, weights = setting_logs(plan, params, known, rows, name), rows.weights[:, None]
        logs = jnp.where(weights > 0, scale * weights * jnp.where(weights > 0, logs, 0.0), 0.0)
        number = jax.vmap(lambda env, s=switches: s.at(s.order.row, env),
                          axis_size=len(weights))(row_environment(plan, known, rows, name))
        parents = switches.parents
        bound = over_states(plan, lambda *states, s=switches: s.at(
            s.order.state, dict(zip(s.parents, states, strict=True))
        ), parents)
        place = jnp.argsort(number)
        count = jnp.searchsorted(number[place], bound.reshape(-1), side=order.side, method="sort")
        logs = logs[place]
        first, last = (logs[:, 1], logs[:, 0]) if order.first else (logs[:, 0], logs[:, 1])
        nothing = jnp.zeros(1, logs.dtype)
        before = jnp.concatenate([nothing, jnp.cumsum(first)])[count]
        after = jnp.concatenate([jnp.cumsum(last[::-1])[::-1], nothing])[count]
        total = total + (before + after).reshape([states if p in parents else 1
                                                  for p, states in own.items()])
    return total


def log_evidence(plan: Plan, params: Mapping, known: Known, chunks: Rows) -> jax.Array:
    """log p(data | params), everything discrete and unseen summed out, effects of groups integrated
    out."""
    value = total_evidence(plan, global_factors(plan, params, known),
                           row_totals(plan, params, known, chunks))
    if plan.groupings:
        value += effects.given_rows(plan, params, known, totals(chunks)).log
    return value


def totals(chunks: Rows) -> Callable:
    """function → Σ over chunks of function(rows)."""
    return lambda function: accumulate(lambda rows: (function(rows), ()), chunks)[0]


def effects_given(plan: Plan, params: Mapping, known: Known, chunks: Rows) -> Eliminated:
    """The effects of groups given all rows and params."""
    return effects.given_rows(plan, params, known, totals(chunks))


def global_posterior(plan: Plan, params: Mapping, known: Known, chunks: Rows) -> jax.Array:
    """log p(global discrete sites | data, params), one axis a site in the order of plan.globals."""
    total = Factor(row_totals(plan, params, known, chunks)[None], plan.touching)
    joint = elimination.sum_out([*global_factors(plan, params, known), total], ())
    log = jnp.transpose(joint.log[0], [joint.names.index(n) for n in plan.globals])
    return log - jax.scipy.special.logsumexp(log)


def total_evidence(plan: Plan, outer: list[Factor], total: jax.Array) -> jax.Array:
    """log evidence of everything, from the global sites' log tables and the rows' total over what
    they touch."""
    if not plan.globals:
        return total
    return elimination.evidence([*outer, Factor(total[None], plan.touching)], plan.global_order)[0]


def each(function, chunks: Rows, *more):
    """function(rows, ...) of every chunk, stacked."""
    if chunks.weights.shape[0] > 1:
        return jax.lax.map(lambda parts: function(*parts), (chunks, *more))
    return jax.tree.map(lambda leaf: leaf[None],
                        function(*jax.tree.map(lambda leaf: leaf[0], (chunks, *more))))


def accumulate(function, chunks: Rows):
    """Σ over chunks of function(rows)[0], with function(rows)[1] stacked: the one way rows are
    passed over."""
    first = jax.tree.map(lambda leaf: leaf[0], chunks)
    if chunks.weights.shape[0] == 1:
        total, extra = function(first)
        return total, jax.tree.map(lambda leaf: leaf[None], extra)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                        jax.eval_shape(function, first)[0])

    def step(carry, rows):
        more, extra = function(rows)
        return _compensated(*carry, more), extra

    (total, _), extra = jax.lax.scan(step, (zero, zero), chunks)
    return total, extra


def returned(function: Callable, chunks: Rows, outer: Callable,
             linear: bool = False) -> tuple[Any, Any, list[Any]]:
    """Forward and back through a function of a sum over chunks: what `outer` finds, and the
    gradient with respect to what chunks take.

    Where the sum is a table over the states of sites outside rows, its cotangent is their
    posterior, which only the whole sum tells. So several chunks are passed over twice, for the sum
    and for its gradient; back through every state by itself would be as many passes.

    Args:
        function: rows → (their part of the sum, cotangent → gradients), as jax.vjp gives them.
        outer: the sum → (anything, its cotangent).
        linear: the sum is one number and its cotangent 1, so that one pass does.

    Returns: what `outer` found; the first of the gradients, summed over chunks; the others,
        stacked.
    """
    if chunks.weights.shape[0] == 1:
        value, back = function(jax.tree.map(lambda leaf: leaf[0], chunks))
        found, share = outer(value)
        summed, *own = back(share)
        return found, summed, jax.tree.map(lambda leaf: leaf[None], own)

    def both(rows, share=None):
        value, back = function(rows)
        summed, *own = back(jnp.ones_like(value) if share is None else share)
        return (value, summed) if share is None else summed, own

    if linear:
        (value, summed), own = accumulate(both, chunks)
        return outer(value)[0], summed, own
    found, share = outer(accumulate(lambda rows: (function(rows)[0], ()), chunks)[0])
    return found, *accumulate(lambda rows: both(rows, share), chunks)


def _compensated(total, lost, more):
    """Kahan's sum: what an addition loses is added next time, so that float32 totals keep their
    digits over many chunks."""
    term = jax.tree.map(jnp.subtract, more, lost)
    new = jax.tree.map(jnp.add, total, term)
    finite = jax.tree.map(lambda n, t, x: jnp.where(jnp.isfinite(n), (n - t) - x, 0.0), new, total,
                          term)
    return new, finite
