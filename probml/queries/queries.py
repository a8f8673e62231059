"""Queries for all rows in one compiled call: log evidence, marginal and joint probabilities, means.

Discrete sites outside rows are added to each row's own variables, with their posterior as a factor,
so that every result concerns one row, conditional on the fitted data.

The operands of a query: the posterior of the parameters, and the factor graph of a chunk of
rows.

Conditional means and probabilities of a site given the states of its parents, and their averages
over these states.
"""

import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known, Rows
from probml.elimination import elimination
from probml.elimination.chains import paths as chain_paths
from probml.elimination.factor import Factor
from probml.errors import present
from probml.factors import integrated, linear_chains, sequences
from probml.factors.chains import Given, best_path, chain_moves, in_pieces, steps_factor
from probml.factors.factors import factors_of_steps, global_factors, level_factors, row_evidence
from probml.factors.naturals import naturals, over_states
from probml.factors.rowwise import row_environment
from probml.factors.sequences import Moves
from probml.families.finite import mean_of
from probml.numerics.compiling import ASKED, jit
from probml.numerics.logs import finite, log_of
from probml.plan.plan import Plan
from probml.posteriors.posterior import Belief as Belief
from probml.structure.densities import log_masses


class Parts:
    """The factor graph of a chunk of rows in three parts: factors of rows, factors of time steps,
    and initial and transition log probabilities of the chains (`moves`)."""

    def __init__(self, plan: Plan, rows: list[Factor], moves: list[Moves], given: Given,
                 chunk: Chunk):
        self.rows, self.moves = rows, moves
        self._plan, self._given, self._chunk = plan, given, chunk
        self._inside = factors_of_steps(plan, chunk)

    @functools.cached_property
    def steps(self) -> list[Factor]:
        """The factors of all time steps, computed at first access."""
        plan, given = self._plan, self._given
        if plan.step_order:
            return self._inside(given, self._chunk.steps, None)
        if not plan.steps:
            return []

        # no variable to eliminate within a step: all its factors are multiplied into one
        return [in_pieces(plan, lambda rows, _: sequences.within(
            plan, self._inside(given, rows.steps, None)), self._chunk)]

    def path(self) -> tuple[jax.Array, jax.Array] | None:
        """The most probable joint path of the chains, see factors.chains.best_path; None where
        steps have other factors than those of their observed cells."""
        return best_path(self._plan, self._inside, self._given, self.moves, self._chunk)

    def factor_graph(self, pairs: jax.Array | None = None, rows: list[Factor] | None = None,
                     more: Mapping[tuple[str, ...],
                                   jax.Array] = MappingProxyType({})) -> list[Factor]:
        """All factors as one list, with the latent states along time summed out.

        Args:
            rows: replacement of the factors of rows. more: as for steps_factor.
        """
        plan, chunk, rows = self._plan, self._chunk, self.rows if rows is None else rows
        if not (plan.steps or plan.step_order or self.moves or more):
            return rows
        if plan.steps and not plan.step_order and pairs is None and "steps" not in self.__dict__:
            return [*rows, steps_factor(plan, self._inside, self._given, self.moves, chunk,
                                        extra=more)]
        step_factors = [Factor(sequences.by_step(log), scope) for scope, log in more.items()]
        return [*rows, sequences.factor(plan, [*self.steps, *step_factors], self.moves, chunk.along,
                                        len(chunk.weights), pairs=pairs)]


def parts_of(plan: Plan, belief: Belief, known: Known, rows: Chunk) -> Parts:
    """The factor graph of a chunk of rows."""
    natural = naturals(plan, belief.params, known)
    args = (plan, belief.params, known, natural, rows)
    factors = level_factors(*args, False, predictive=belief.predictive)
    if belief.table is not None:
        factors.append(Factor(belief.table[None], plan.globals))
    else:
        outer_factors = global_factors(plan, belief.params, known)
        if plan.mixed:  # log p(states | params), not log p(states, params)
            outer_factors.append(Factor(-elimination.evidence(outer_factors, plan.globals), ()))
        factors += outer_factors
    given = Given(belief.params, natural, belief.predictive, known)
    return Parts(plan, factors, chain_moves(*args), given, rows)


def rows_of_site(plan: Plan, rows: Chunk, name: str) -> tuple[Chunk, int]:
    """The rows in which a site has values, and their number: rows of the data or, of a site along
    time, their time steps."""
    if plan.structure.named[name].time is None:
        return rows, len(rows.weights)
    steps = rows.along
    return steps.rows, len(rows.weights) * steps.blocks * steps.length


# steps that the distribution at a step conditions on: all, up to and including it, before it
ALL, FILTERED, PREDICTED = "all", "filtered", "predicted"


def _answer(plan: Plan, ask: tuple[tuple[str, Any], ...], belief: Belief, known: Known,
            rows: Chunk, view: str) -> tuple[jax.Array, dict]:
    """log p(row), (b,), and the results of `ask`, pairs (question, site), of one chunk of rows at
    one parameter value."""
    scopes = {site: _scope_of(plan, site) for _, site in ask}
    timed = {site: plan.structure.named[_first(site)].time is not None for site in scopes}
    step_scopes = sorted({scopes[site] for site in scopes if timed[site]})
    row_scopes = {scopes[site] for site in scopes if not timed[site]}
    parts = parts_of(plan, belief, known, rows)
    log, row_tables, step_tables, pairs = _posteriors(plan, parts, rows, row_scopes, step_scopes,
                                                      any(q == "pairs" for q, _ in ask))
    if view != ALL and step_scopes:
        step_tables = {scope: sequences.by_lane(rows.along, table) for scope,
                       table in _filtered_posteriors(
            plan, belief, known, rows, parts, step_scopes, view).items()}
    results = {}
    for question, site in ask:
        # tables of variables are ordered by lane, those of other sites by step
        laned = timed[site] and (isinstance(site, tuple) or site in plan.variables)
        table = row_tables[scopes[site]] if not timed[site] else step_tables[scopes[site]]
        if laned:
            table = table.reshape(-1, *table.shape[2:])
        elif timed[site]:
            table = sequences.by_step(table)
        answer = _pairs(plan, site, pairs) if question == "pairs" else _averaged(
            plan, belief, known, rows, view, question, site, table)
        if timed[site]:
            answer = rows.along.folded(answer, laned and question != "pairs")
            if question in ("probability", "mean"):
                answer = sequences.fold(plan, site, answer)
        results[question, site] = answer
    return log, results


def _first(site: str | tuple[str, ...]) -> str:
    """The site; of a tuple the first."""
    return site[0] if isinstance(site, tuple) else site


def _posteriors(plan: Plan, parts: Parts, rows: Chunk, scopes: set, timed: list,
                pairs: bool) -> tuple[jax.Array, dict, dict, jax.Array | None]:
    """log p(row), and posterior probabilities of joint states, as its gradients with respect to
    log factors: scope → table for the scopes `scopes` (of rows) and `timed` (of time steps); with
    `pairs` also those of successive states."""
    size = len(rows.weights)
    taps, untapped = _marginal_factors(plan, parts, scopes, size)
    count = rows_of_site(plan, rows, plan.structure.chains[0])[1] if timed else 0
    # one lane after the other: the layout in which the gradients are computed
    length = rows.along.length if timed else 1
    inner = {scope: jnp.zeros((count // length, length, *(plan.variables[v].states for v in scope)))
             for scope in timed}
    states = math.prod(plan.variables[n].states for n in plan.chains)
    zero_pairs = (jnp.zeros((rows.along.length, 1, states, states, size * rows.along.blocks))
                  if pairs else None)

    def total(logs: list[jax.Array], inner: dict, pairs: dict):
        tapped = [tap._replace(log=log) for log, tap in zip(logs, taps, strict=True)]
        factors = parts.factor_graph(pairs, [*untapped, *tapped], inner)
        log = jnp.broadcast_to(elimination.evidence(factors, plan.order), (size,))
        return jnp.where(jnp.isfinite(log), log, 0.0).sum(), log

    (_, log), (tables, inner, successive) = jax.value_and_grad(total, (0, 1, 2), has_aux=True)(
        [tap.log for tap in taps], inner, zero_pairs)
    row_tables = {tap.names: table for tap, table in zip(taps, tables, strict=True)}
    return log, row_tables, inner, successive


def _marginal_factors(plan: Plan, parts: Parts, scopes: set, size: int) -> tuple[list[Factor],
                                                                                 list[Factor]]:
    """One factor for each of the scopes `scopes`, and all other factors of rows. The gradient of
    log p(row) with respect to the former is the posterior of the joint states of its scope."""
    taps: dict[tuple[str, ...], Factor] = {}
    untapped = []
    for factor in parts.rows:
        if factor.names in scopes and factor.names not in taps and factor.log.shape[0] == size:
            taps[factor.names] = factor
        else:
            untapped.append(factor)
    added = {scope: Factor(jnp.zeros((size, *(plan.variables[v].states for v in scope))), scope,
                           True) for scope in scopes - taps.keys()}
    return sorted((taps | added).values(), key=lambda factor: factor.names), untapped


def _averaged(plan: Plan, belief: Belief, known: Known, rows: Chunk, view: str, question: str,
              site: str, table: jax.Array) -> jax.Array:
    """The mean or the probabilities of a site, averaged over the joint states of its parents;
    question "joint": the probabilities of these states, `table` itself."""
    if question == "joint":
        return table
    if question == "mean" and site in plan.variables:  # a count that others depend on
        values = plan.structure.sites[site].valued(jnp.asarray(plan.variables[site].values))
        return jnp.tensordot(table, values.astype(table.dtype), 1)
    part, count = rows_of_site(plan, rows, _first(site))
    if view == PREDICTED:
        part = part._replace(values={n: v for n, v in part.values.items() if n != site},
                             observed={n: v for n, v in part.observed.items() if n != site})
    means = means_along(plan, belief.params, known, rows, site, view)
    if question == "probability":
        return _probability(plan, belief, known, part, site, table, count, means)
    return average(table, conditional(plan, belief.params, known, part, site, "mean", count, means))


def states_and_log(plan: Plan, scope: tuple[str, ...], belief: Belief, known: Known,
                   rows: Chunk) -> tuple[jax.Array, jax.Array]:
    """log p(row), (b,), and p(joint states of `scope` | row), (b, *states), of one chunk."""
    if not scope:
        return _answer(plan, (), belief, known, rows, ALL)[0], jnp.ones(len(rows.weights))
    log, results = _answer(plan, (("joint", scope),), belief, known, rows, ALL)
    return log, results["joint", scope]


def _pairs(plan: Plan, name: str, pairs: jax.Array) -> jax.Array:
    """p(previous state, state at the step) of one chain, (N, k, k), from the table of the joint
    states of all chains, (L, 1, K, K, M)."""
    sizes, i = [plan.variables[n].states for n in plan.chains], plan.chains.index(name)
    table = jnp.moveaxis(pairs[:, 0], -1, 1).reshape(-1, *sizes, *sizes)
    return table.sum(tuple(1 + j for j in range(2 * len(sizes)) if j % len(sizes) != i))


def _filtered_posteriors(plan: Plan, belief: Belief, known: Known, rows: Chunk, parts: Parts,
                         scopes: list,
                         view: str) -> dict:
    """Filtered (or one-step predicted) posterior of the latent variables of each step, scope →
    table, also given the observed cells of the row outside time."""
    steps, size = rows.along, len(rows.weights)
    summed = [n for n in plan.order if n not in plan.along]
    remaining = elimination.sum_out(parts.rows, summed)
    names = (*plan.along, *plan.chains)
    log = sequences.expand_axes(remaining.log, remaining.names, plan.along)
    sizes = [plan.variables[n].states for n in plan.along]
    log = jnp.broadcast_to(log, (size, *sizes)).reshape(size, -1)
    if plan.chains:
        chain = sequences.chain_of(plan, parts.steps, parts.moves, steps, size)
        predicted, _, log_before = chain_paths.filtered(chain, sequences.layout_of(steps))
        prior = jnp.repeat(log.T, steps.blocks, 1)[None] + log_before
        prior = jnp.exp(prior - finite(prior.max(1, keepdims=True)))[:, :, None] * predicted
        prior = jnp.moveaxis(
            jnp.broadcast_to(prior, (len(prior), math.prod(sizes), *prior.shape[2:])), -1, 1
        )
        prior = log_of(prior).reshape(-1, *sizes, *(plan.variables[n].states for n in plan.chains))
    else:
        prior = jnp.broadcast_to(jnp.repeat(log, steps.blocks, 0)[None],
                                 (steps.length, size * steps.blocks, log.shape[1]))
        prior = prior.reshape(-1, *sizes)
    step_factors = parts.steps
    if view == PREDICTED:
        natural = naturals(plan, belief.params, known)
        step_factors = level_factors(plan, belief.params, known, natural, rows, True,
                                     predictive=belief.predictive, evidence=False)

    def total(taps: list[jax.Array]):
        graph = [Factor(prior, names), *step_factors,
                 *(Factor(log, scope) for scope, log in zip(scopes, taps, strict=True))]
        in_graph = {n for f in graph for n in f.names}
        log = elimination.evidence(graph, [n for n in (*plan.step_order, *names) if n in in_graph])
        return jnp.where(jnp.isfinite(log), log, 0.0).sum()

    zeros = [jnp.zeros((len(prior), *(plan.variables[v].states for v in scope)))
             for scope in scopes]
    return dict(zip(scopes, jax.grad(total)(zeros), strict=True))


def _scope_of(plan: Plan, site: str | tuple[str, ...]) -> tuple[str, ...]:
    """The variables whose joint posterior determines the result for a site or a tuple of sites."""
    if isinstance(site, tuple):
        return site
    return (site,) if site in plan.variables else plan.scope(site)


def _probability(plan: Plan, belief: Belief, known: Known, rows: Chunk, name: str, post: jax.Array,
                 size: int, means: Mapping[str, jax.Array]) -> jax.Array:
    """(b, *cells, states) marginal probabilities of a discrete site."""
    site = plan.structure.sites[name]
    if name in plan.variables:
        values = jnp.asarray(plan.variables[name].values)
        if math.prod(site.cells) == 1:
            return post.reshape(len(post), *site.cells, site.finite)
        hot = jax.nn.one_hot(values, site.finite)  # (joint states, *cells, states)
        return jnp.tensordot(post, hot, 1)
    probs = average(post, conditional(plan, belief.params, known, rows, name, "probabilities", size,
                                      means))
    if name in rows.values:
        hot = jax.nn.one_hot(rows.values[name], site.finite)
        probs = jnp.where(rows.observed[name][..., None], hot,
                          probs) if name in rows.observed else hot
    return probs


ERROR = ("error", "log")  # a question that is answered where answers are averaged


@jit(static_argnames=("plan", "ask", "averaged", "view"), seldom=ASKED, on_host=True)
def answer(plan: Plan, ask: tuple, averaged: bool, belief: Belief, known: Known, all_rows: Rows,
           view: str = ALL):
    """log p(row) and the results of `ask`, (chunks, b, ...). With `averaged`, belief.params are
    posterior draws: results are averaged with weights ∝ each draw's p(row); at ERROR the standard
    error of log p(row) from so many draws."""

    def chunk(rows: Chunk):
        if not averaged:
            return _answer(plan, ask, belief, known, rows, view)
        log, out = belief.map_draws(plan, lambda draw: _answer(plan, ask, draw, known, rows, view))
        weight = jax.nn.softmax(log, 0)
        out = {k: (weight.reshape(*weight.shape, *(1,) * (v.ndim - 2)) * v).sum(0)
               for k, v in out.items()}
        # 1 / (effective draws) is 1 / draws where all weights are equal
        out[ERROR] = jnp.sqrt(jnp.maximum((weight**2).sum(0) - 1 / len(weight), 0.0))
        return jax.scipy.special.logsumexp(log, 0) - math.log(log.shape[0]), out

    return all_rows.map(chunk)


@jit(static_argnames=("plan",), seldom=ASKED, draws=1)
def row_logs(plan: Plan, draws: Mapping, known: Known, all_rows: Rows) -> jax.Array:
    """log p(row | parameters), (draws, chunks, b), with missing discrete sites of the row summed
    out. `draws`: of the parameters, and of those sites outside rows that the plan conditions on."""

    def logs_at_draw(draw: dict[str, jax.Array]):
        (params, *_), at = Belief.at_draw(plan, known, draw)
        natural = naturals(plan, params, at)
        return all_rows.map(lambda rows: jnp.broadcast_to(
            row_evidence(plan, params, at, natural, rows), rows.weights.shape
        ))

    return jax.lax.map(logs_at_draw, draws)


@jit(static_argnames=("plan", "names"), seldom=ASKED, draws=2)
def row_values(plan: Plan, names: tuple[str, ...], draws: Mapping, known: Known,
               all_rows: Rows) -> dict[str, jax.Array]:
    """The deterministics `names` inside rows at each draw: name → (draws, chunks, b, *cells).
    `draws`: as for row_logs."""
    ask = tuple(("mean", name) for name in names)

    def values_at_draw(draw: dict[str, jax.Array]):
        belief, at = Belief.at_draw(plan, known, draw)
        return all_rows.map(lambda rows: {
            name: value for (_, name), value in _answer(plan, ask, belief, at, rows, ALL)[1].items()
        })

    return jax.lax.map(values_at_draw, draws)


def average(q: jax.Array, values: jax.Array) -> jax.Array:
    """Σ over states of q × conditional values: (b, *states) and (b, *states, ...) → (b, ...)."""
    states = tuple(range(1, q.ndim))
    return (q.reshape(*q.shape, *(1,) * (values.ndim - q.ndim)) * values).sum(states)


def means_along(plan: Plan, params: Mapping, known: Known, rows: Chunk, name: str,
                view: str) -> dict[str, jax.Array]:
    """Means of the state-space latents that the site is one of or depends on: group → (b, *states,
    p), with b the rows or, of a site along time, the time steps.

    Args:
        rows: a chunk of rows, not of steps. view: as for `linear_chains.means`.
    """
    means = {}
    for group in (group for group in plan.groups(name) if plan.timed(group)):
        group_means = linear_chains.means(plan, params, known, rows, group, view)
        timed = plan.structure.named[name].time is not None
        means[group.name] = group_means if timed else rows.along.folded(group_means)[:, 0]
    return means


def conditional(plan: Plan, params: Mapping, known: Known, rows: Chunk, name: str, kind: str,
                size: int, means: Mapping[str, jax.Array]) -> jax.Array:
    """E[x | parents] or p(x | parents) of a site, (b, *states of its discrete parents, *cells[,
    states]); of a partially observed vector the mean given its observed coordinates; of a
    deterministic its value. `means`: from `means_along`."""
    site, parents = plan.structure.named[name], tuple(p for p in plan.structure.named[name].parents
                                                      if p in plan.variables)
    if plan.groups(name):
        return integrated.average_over_latents(
            plan, params, known, rows, name, lambda env: _mean(plan, name, env, kind, ()), means,
            size)
    observed: tuple = ()
    fixed = {**params, **known.given}
    if name in rows.observed and site.traits.fill is not None:
        x = rows.values[name]
        observed = (x + known.centre[name].reshape(site.cells) if name in known.centre else x,
                    rows.observed[name])

    return jax.vmap(lambda varying, observed: over_states(
        plan, lambda env: _mean(plan, name, env, kind, observed), {**fixed, **varying}, parents
    ), axis_size=size)(row_environment(plan, known, rows, name), observed)


def _mean(plan: Plan, name: str, env: Mapping, kind: str, observed: tuple) -> jax.Array:
    """The mean of a site of one row given its parents, or the probabilities of its states; of a
    deterministic or a latent its value. (*cells[, states]).

    Args:
        observed: of a partially observed vector, its cells and the mask of observed ones; else ().
    """
    site = plan.structure.named[name]
    if name in plan.hidden:
        value = site.collect(env[name], 1)[0]
        if kind == "probabilities":
            return jax.nn.one_hot(value, site.finite)
        return site.valued(value).astype(jnp.result_type(float)) if site.discrete else value
    if name in plan.structure.deterministics:
        return site.collect(plan.structure.computed(name, env),
                            1)[0].astype(jnp.result_type(float))
    if kind == "probabilities":
        if site.family is None or site.states is None:
            return jnp.exp(log_masses(plan.structure, name, env)).reshape(*site.cells, site.finite)
        probs = present(site.traits.probabilities)(plan.structure.cells(name, env))
        return probs.reshape(*site.cells, site.states)
    distribution = plan.structure.distribution(name, env)
    mean = mean_of(distribution)
    if observed:
        mean = present(site.traits.fill)(distribution, mean, *map(site.place, observed))
    return site.layout(mean, len(site.event)).reshape(site.cells)
