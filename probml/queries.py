"""Questions to a fit, answered for all rows in one compiled call: evidence, marginals, decoding, joint draws, moments.

Discrete sites outside rows join each row's own variables here, with what was learnt about them as their factor, so that
every answer is about one row at a time, given what was fitted.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from probml import elimination
from probml.compiling import jit
from probml.elimination import Factor
from probml.factors import Known, Rows, global_factors, naturals, over_states, row_environment, row_factors
from probml.passes import each
from probml.plan import Plan


class Belief(NamedTuple):
    """What a fit knows of the parameters: a point or draws (leading axis), closed-form predictives, and global states."""

    params: dict[str, jax.Array]
    table: jax.Array | None  # log posterior over the global discrete sites
    predictive: dict[str, Any]  # pooled continuous site → arguments of its predictive (posterior.Marginals)


def _factors(plan: Plan, belief: Belief, known: Known, rows: Rows) -> list[Factor]:
    natural = naturals(plan, belief.params, known)
    factors = row_factors(plan, belief.params, known, natural, rows, predictive=belief.predictive)
    if belief.table is not None:
        return [*factors, Factor(belief.table[None], plan.globals)]
    return factors + global_factors(plan, belief.params, known)


def _answer(plan: Plan, ask: tuple[tuple[str, str], ...], belief: Belief, known: Known, rows: Rows) -> tuple[jax.Array, dict]:
    """log p(row) and the answers to `ask`, pairs (question, site), for one chunk of rows at one parameter value."""
    factors, size = _factors(plan, belief, known, rows), len(rows.weights)
    scopes = {site: _asked(plan, site) for _, site in ask}
    wanted, taps, untapped = set(scopes.values()), {}, []
    for factor in factors:
        if factor.names in wanted and factor.names not in taps and factor.log.shape[0] == size:
            taps[factor.names] = factor.log  # evidence on a site is a factor over it, whose gradient is the site's posterior
        else:
            untapped.append(factor)
    blank = {scope: jnp.zeros((size, *(plan.variables[v].states for v in scope))) for scope in wanted - taps.keys()}
    taps = sorted((taps | blank).items(), key=lambda item: item[0])

    def total(logs):
        tapped = [Factor(log, scope) for log, (scope, _) in zip(logs, taps, strict=True)]
        log = jnp.broadcast_to(elimination.evidence([*untapped, *tapped], plan.order), (size,))
        return jnp.where(jnp.isfinite(log), log, 0.0).sum(), log

    (_, log), tables = jax.value_and_grad(total, has_aux=True)([log for _, log in taps])
    found = {scope: table for (scope, _), table in zip(taps, tables, strict=True)}
    q = {site: found[scope] for site, scope in scopes.items()}
    out = {}
    for question, site in ask:
        if question == "joint":
            out[question, site] = q[site]
        elif question == "probability":
            out[question, site] = _probability(plan, belief, known, rows, site, q[site])
        elif question == "mean":
            out[question, site] = _average(q[site], conditional(plan, belief.params, known, rows, site, "mean"))
    return log, out


def _asked(plan: Plan, site: str | tuple[str, ...]) -> tuple[str, ...]:
    """The variables whose joint posterior answers for a site, or for several together."""
    if isinstance(site, tuple):
        return site
    return (site,) if site in plan.variables else plan.scope(site)


def _average(q: jax.Array, values: jax.Array) -> jax.Array:
    """Σ over states of q × conditional values: (b, *states) and (b, *states, ...) → (b, ...)."""
    states = tuple(range(1, q.ndim))
    return (q.reshape(*q.shape, *(1,) * (values.ndim - q.ndim)) * values).sum(states)


def _probability(plan: Plan, belief: Belief, known: Known, rows: Rows, name: str, q: jax.Array) -> jax.Array:
    """(b, *cells, states) marginal probabilities of a discrete site."""
    site = plan.structure.sites[name]
    if name in plan.variables:
        values = jnp.asarray(plan.variables[name].values)
        if math.prod(site.cells) == 1:
            return q.reshape(len(q), *site.cells, site.states)
        hot = jax.nn.one_hot(values, site.states)  # (joint states, *cells, states)
        return jnp.tensordot(q, hot, 1)
    p = _average(q, conditional(plan, belief.params, known, rows, name, "probabilities"))
    if name in rows.values:
        hot = jax.nn.one_hot(rows.values[name], site.states)
        p = jnp.where(rows.seen[name][..., None], hot, p) if name in rows.seen else hot
    return p


def conditional(plan: Plan, params: Mapping, known: Known, rows: Rows, name: str, what: str) -> jax.Array:
    """E[x | parents] or p(x | parents) of a site, (b, *states of its variable parents, *cells[, states]); of a vector seen in
    part, the mean given its seen coordinates."""
    site, parents = plan.structure.sites[name], tuple(p for p in plan.structure.sites[name].parents if p in plan.variables)
    fixed, parts = {**params, **known.given}, ()
    if name in rows.seen and hasattr(site.family, "fill"):
        x = rows.values[name]
        parts = (x + known.centre[name].reshape(site.cells) if name in known.centre else x, rows.seen[name])

    def one(varying, parts):
        def at(*states):
            env = {**fixed, **varying, **dict(zip(parents, states, strict=True))}
            if what == "probabilities":
                return site.family.probabilities(plan.structure.cells(name, env)).reshape(*site.cells, site.states)
            distribution = plan.structure.distribution(name, env)
            mean = distribution.mean
            if parts:
                mean = site.family.fill(distribution, mean, *map(site.place, parts))
            return site.layout(mean, len(site.event)).reshape(site.cells)

        return over_states(plan, at, parents)

    return jax.vmap(one, axis_size=len(rows.weights))(row_environment(plan, known, rows, name), parts)


@functools.partial(jit, static_argnames=("plan", "ask", "averaged"))
def answer(plan: Plan, ask: tuple, averaged: bool, belief: Belief, known: Known, chunks: Rows):
    """log p(row) and answers, over all chunks; `averaged`: belief.params are draws, and answers are weighed by each draw's p(row)."""

    def chunk(rows):
        if not averaged:
            return _answer(plan, ask, belief, known, rows)
        log, out = jax.lax.map(lambda params: _answer(plan, ask, belief._replace(params=params), known, rows), belief.params)
        weight = jax.nn.softmax(log, 0)
        out = {k: (weight.reshape(*weight.shape, *(1,) * (v.ndim - 2)) * v).sum(0) for k, v in out.items()}
        return jax.scipy.special.logsumexp(log, 0) - math.log(log.shape[0]), out

    return each(chunk, chunks)


@functools.partial(jit, static_argnames=("plan", "sites", "leaves"))
def decode(plan: Plan, sites: tuple[str, ...], leaves: tuple[str, ...], belief: Belief, known: Known, chunks: Rows):
    """The jointly most probable states of the variables `sites`, all others summed out: the log of that maximum, up to a
    constant, (chunks, b), and name → (chunks, b) joint states.

    Args:
        leaves: sites that are no variables, each cell of them maximised given its parents, which are among `sites`: (chunks, b, *cells).
    """

    def chunk(rows):
        size = len(rows.weights)
        first = tuple(v for v in plan.order if v not in sites)
        rest = tuple(v for v in plan.order if v in sites)
        factors, peaks = _factors(plan, belief, known, rows), {}
        for name in leaves:  # an unseen leaf adds its maximum, cell by cell, to its parents' score
            p = conditional(plan, belief.params, known, rows, name, "probabilities")
            scope = tuple(parent for parent in plan.structure.sites[name].parents if parent in plan.variables)
            peaks[name] = p, scope
            best = jnp.log(p.max(-1)).reshape(*p.shape[: 1 + len(scope)], -1)
            if name in rows.seen:
                unseen = ~rows.seen[name].reshape(size, *(1,) * len(scope), -1)
                best = jnp.where(unseen, best, 0.0)
            factors.append(Factor(best.sum(-1), scope))
        best, states = elimination.maximise(elimination.remainder(factors, first), rest) if plan.order else (jnp.zeros(size), {})
        states = {name: jnp.broadcast_to(states[name], (size,)) for name in rest}
        out = {name: states[name] for name in sites if name in states}
        for name, (p, scope) in peaks.items():
            chosen = p[(jnp.arange(size), *(states[parent] for parent in scope))] if all(v in states for v in scope) else p
            out[name] = chosen.argmax(-1)
        return jnp.broadcast_to(best, (size,)), out

    return each(chunk, chunks)


@functools.partial(jit, static_argnames=("plan",))
def draw(plan: Plan, belief: Belief, known: Known, chunks: Rows, key):
    """Joint draws of all variables given each row: log p(row), (chunks, b), and name → (chunks, b) joint states."""

    def chunk(rows, key):
        factors = _factors(plan, belief, known, rows)
        size = len(rows.weights)
        whole = [Factor(jnp.broadcast_to(f.log, (size, *f.log.shape[1:])), f.names) for f in factors[:1]] + factors[1:]
        log, states = elimination.draw(whole, plan.order, key)
        return jnp.broadcast_to(log, (size,)), states

    return each(chunk, chunks, jax.random.split(key, chunks.weights.shape[0]))
