"""Passes over rows: chunks are added, and the gradient of their evidence with respect to the
naturals is the expected statistics.

Expected complete-data log density (Q of EM), and the E-step's result.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known, Rows, Summary
from probml.elimination import elimination
from probml.elimination.factor import Factor
from probml.errors import present
from probml.evidence import random_effects
from probml.factors import integrated, squares
from probml.factors.chains import divided, rowwise_logs, undivided
from probml.factors.factors import global_factors, row_evidence
from probml.factors.naturals import naturals, over_states
from probml.factors.random_effects.integration import Moments
from probml.factors.rowwise import row_environment, setting_logs
from probml.factors.squares import squares_of
from probml.jaxpr.backward import value_and_gradient, with_vjp
from probml.numerics.logs import weighted_log
from probml.plan.plan import Plan
from probml.plan.sufficient_statistics import squared
from probml.typing import PyTree


@functools.partial(jax.tree_util.register_dataclass,
                   data_fields=["params", "natural", "known", "share", "settings"],
                   meta_fields=["hard"])
@dataclass(frozen=True)
class EStepPoint:
    """Where an E-step was made, and the posterior there of the states that rows touch: all that its
    responsibilities can be made of again."""

    params: PyTree
    natural: PyTree
    known: Known
    share: jax.Array
    hard: bool
    settings: "Settings | None" = None


class Expected(NamedTuple):
    """An E-step: what the M-step needs of the rows, and the log evidence."""

    statistics: dict[str, PyTree]  # like naturals: Σ q T(x)
    # row-wise sites: q a row, (chunks, b, *states); groups of latents: their belief
    responsibilities: dict[str, PyTree]
    outer: list[jax.Array]  # posterior tables of the global factors
    log_evidence: jax.Array
    # Σ |statistics × naturals|, of the terms whose sum is the pooled objective: its rounding grows
    # with them
    size: jax.Array
    # groups of latents whose statistics pool: where these were taken about, and they themselves
    middle: dict[str, PyTree]
    pooled: dict[str, PyTree]
    # in the place of responsibilities, where rows have no room for them: a pass makes them again
    anchor: EStepPoint | None = None
    effects: Moments | None = None  # of groups, given all rows
    squares: dict[str, PyTree] = {}  # of row-wise sites of which no rows are left


def inner(statistics: object, natural: object) -> jax.Array:
    """⟨statistics, naturals⟩, with 0 · (−∞) = 0."""
    terms = jax.tree.map(lambda s, n: jnp.sum(s * jnp.where(s == 0, 0.0, n)), statistics, natural)
    return sum(jax.tree.leaves(terms), start=jnp.zeros(()))


def quadratic(plan: Plan, params: Mapping, known: Known, by_site: Mapping) -> jax.Array:
    """Σ log p of the row-wise sites of which squares are left."""
    return sum((squares.log_density(plan, name, params, known, site_squares)
                for name, site_squares in by_site.items()), start=jnp.zeros(()))


@dataclass(frozen=True)
class Settings:
    """Values of parameters on a grid, over which means are taken.

    `values`: parameter → (*sizes, *its shape), 1 along the axes of the grid on which it does not
    depend; `sizes`: of these axes.
    """

    values: dict[str, jax.Array]
    sizes: tuple[int, ...]

    def map_grid(self, function: Callable) -> PyTree:
        """function(parameters) over the grid, leaves (*sizes, ...), 1 along axes on which none of
        them depends; what depends on the parameters of some axes alone is computed along these."""

        def along(values: Mapping, sizes: tuple[int, ...]) -> PyTree:
            if not sizes:
                return function(dict(values))
            fixed = {name: value[0] for name, value in values.items() if len(value) == 1}
            varying = {name: value for name, value in values.items() if len(value) > 1}
            if not varying:
                return jax.tree.map(lambda leaf: leaf[None], along(fixed, sizes[1:]))
            return jax.vmap(lambda row: along({**fixed, **row}, sizes[1:]))(varying)

        return along(self.values, self.sizes)

    def mean(self, function: Callable) -> jax.Array:
        """The mean of function(parameters) over the grid."""
        axes = tuple(range(len(self.sizes)))
        return jax.tree.map(lambda leaf: leaf.mean(axes), self.map_grid(function))

    def flat(self) -> dict[str, jax.Array]:
        """All points of the grid, parameter → (s, *its shape)."""
        rank = len(self.sizes)
        return {name: jnp.broadcast_to(value, (*self.sizes, *value.shape[rank:])).reshape(
            -1, *value.shape[rank:]) for name, value in self.values.items()}


jax.tree_util.register_dataclass(Settings, data_fields=["values"], meta_fields=["sizes"])


def surrogate(plan: Plan, expected: Expected, params: Mapping, known: Known,
              origin: PyTree = None, changed: Collection[str] | None = None) -> jax.Array:
    """⟨q, log factors(params)⟩ of what pools, and of the global sites: the M-step's objective
    without rows and without prior.

    Args:
        origin: naturals of another point, that are taken off term by term: what is the same at both
            leaves nothing, and the digits are those of the gain, not of the sum.
        changed: parameters; what pools where none of them enters is left out, a constant.
    """
    natural = naturals(plan, params, known, changed)
    if origin is not None:
        natural = jax.tree.map(lambda n, o: jnp.where(jnp.isfinite(o), n - o, n), natural,
                               {name: origin[name] for name in natural})
    value = inner({name: expected.statistics[name] for name in natural}, natural)
    value += quadratic(plan, params, known, expected.squares)
    for posterior, factor in zip(expected.outer, global_factors(plan, params, known), strict=True):
        value += inner(posterior, factor.log)
    if plan.poolable_groups:
        value += integrated.expected_from_statistics(plan, params, known, expected.middle,
                                                     expected.pooled)
    if expected.effects is not None:
        value += random_effects.surrogate(plan, params, known, expected.effects)
    return value


def row_surrogate(plan: Plan, responsibilities: Mapping, params: Mapping, known: Known, rows: Chunk,
                  origin: Mapping, anchor: Mapping | None = None) -> jax.Array:
    """⟨q, log factors(params)⟩ of the row-wise sites on one chunk, with minorants that touch at
    `anchor`, if given; of groups of latents and effects of groups, the expectation over them
    too; of those along time what it gains over the parameters `origin`."""
    total = sum(
        (inner(responsibilities[name], rowwise_logs(plan, params, known, rows, name, anchor))
         for name in plan.rowwise),
        start=jnp.zeros(()),
    )
    if plan.groupings:
        total += random_effects.row_surrogate(plan, params, known, rows,
                                              responsibilities[plan.effects[0]])
    return sum((integrated.expected_log_density(plan, params, known, rows, group,
                                                responsibilities[group.name], origin)
                for group in plan.latents if group not in plan.poolable_groups), start=total)


ORDERED = 2**20  # rows up to which they are put in order, all at once


def weighted_total(log: jax.Array, weights: jax.Array) -> jax.Array:
    """Σ over rows of weight × log evidence; rows of weight 0 count nothing, even where they are
    impossible."""
    weights = weights.reshape(-1, *(1,) * (log.ndim - 1))
    return weighted_log(weights, log).sum(0)


def expect(plan: Plan, params: Mapping, known: Known, rows: Rows | Summary, hard: bool = False,
           natural: Mapping | None = None, settings: Settings | None = None) -> Expected:
    """One pass over the rows: expected statistics and log evidence, chunk by chunk.

    Args:
        natural: the naturals at params, where they are known.
        settings: of parameters, over which log densities of rows are averaged: a mean field's.
            None: they are taken at `params`.

    Cost: O(rows × work of one evidence and its gradient) time, one chunk of memory beyond the data;
    with discrete sites outside rows and several chunks one evidence more (`sum_and_vjp`).
    """
    if natural is None:
        natural = (naturals(plan, params, known) if settings is None else
                   divided(plan, settings.mean(lambda setting: naturals(plan, setting, known))))
    if isinstance(rows, Summary):
        squares_log = functools.partial(quadratic, plan, known=known, by_site=rows.squares)
        value = inner(rows.statistics, natural) + (squares_log(params) if settings is None
                                                   else settings.mean(squares_log))
        return Expected(rows.statistics, {}, [], rows.base + value,
                        _size(rows.statistics, natural), {}, {}, squares=rows.squares)
    outer = global_factors(plan, params, known)
    middle = integrated.expansion_points(plan, params, known) if plan.poolable_groups else {}
    if settings is not None and plan.latents:
        known = known._replace(settings=settings.flat())
    function = _chunk_e_step(plan, params, known, natural, hard, middle, settings)
    redo = not rows.in_memory and bool(plan.rowwise or plan.latents)

    def summed(chunk: Chunk):
        value, pullback = function(chunk)
        return value, lambda share: pullback(share)[:1]

    def rest(total: jax.Array):
        value, (posteriors, share) = _outer_posteriors(plan, outer, total)
        return (value, posteriors, share), share

    (value, posteriors, share), statistics, parts = sum_and_vjp(summed if redo else function, rows,
                                                               rest, linear=not plan.row_globals)
    pooled = {}
    if plan.latents:
        statistics, pooled = statistics
    anchor = EStepPoint(dict(params), natural, known, share, hard, settings) if redo else None
    if settings is not None:
        statistics, natural = undivided(statistics), undivided(natural)
    effects = None
    if plan.groupings:
        effect_log, effects = random_effects.expect(plan, params, known, rows.total)
        value += effect_log
    return Expected(statistics, {} if redo else parts[0], posteriors, value,
                    _size(statistics, natural), middle, pooled, anchor, effects)


def is_additive(plan: Plan) -> bool:
    """Whether an E-step is one number and statistics that add over parts of the rows."""
    return not (plan.row_globals or plan.rowwise or plan.latents or plan.groupings)


def accumulate_statistics(plan: Plan, params: Mapping, known: Known, rows: Rows, hard: bool = False,
                          natural: Mapping | None = None) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The log evidence of rows of such a plan by themselves, and their expected statistics."""
    natural = naturals(plan, params, known) if natural is None else natural
    function = _chunk_e_step(plan, params, known, natural, hard, {})

    def both(chunk: Chunk):
        value, pullback = function(chunk)
        return (value, pullback(jnp.ones_like(value))[0]), ()

    return rows.accumulate(both)[0]


def e_step_from_totals(plan: Plan, params: Mapping, known: Known, total: jax.Array,
                       statistics: dict, natural: Mapping | None = None) -> Expected:
    """An E-step from the log evidence and the statistics of all rows."""
    natural = naturals(plan, params, known) if natural is None else natural
    value, (posteriors, _) = _outer_posteriors(plan, global_factors(plan, params, known), total)
    return Expected(statistics, {}, posteriors, value, _size(statistics, natural), {}, {})


def _outer_posteriors(plan: Plan, outer: list[Factor], total: jax.Array) -> tuple[jax.Array,
                                                                                 tuple]:
    """The log evidence of everything, and its slopes: the posterior tables of the global factors,
    and the posterior of the states that the rows' total is over."""
    def evidence_of(logs: list[jax.Array], total: jax.Array) -> jax.Array:
        return total_evidence(
            plan, [Factor(log, f.names) for log, f in zip(logs, outer, strict=True)], total
        )

    return jax.value_and_grad(evidence_of, (0, 1))([factor.log for factor in outer], total)


def _chunk_e_step(plan: Plan, params: Mapping, known: Known, natural: Mapping, hard: bool,
                  middle: Mapping, settings: Settings | None = None) -> Callable:
    """chunk → (Σ log evidence, its cotangent → (statistics, responsibilities of the states))."""

    def chunk(rows: Chunk):
        def logs(params: Mapping[str, jax.Array]):
            return {name: rowwise_logs(plan, params, known, rows, name) for name in plan.rowwise}

        taps = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                            jax.eval_shape(logs, params))
        if settings is not None and plan.rowwise:
            # what the mean over settings has above the logs at params, to which taps are added
            taps = jax.tree.map(lambda mean, at: jnp.where(mean == at, 0.0, mean - at),
                                settings.mean(logs), logs(params))

        def total(natural: Mapping[str, PyTree], taps: Mapping[str, jax.Array]):
            return weighted_total(row_evidence(plan, params, known, natural, rows, taps, hard),
                                  rows.weights)

        if not plan.latents:
            return with_vjp(total)(natural, taps)
        sizes = {group.name: [plan.variables[n].states for n in plan.group_scope(group)]
                 for group in plan.latents}
        messages = {name: jnp.zeros((len(rows.weights), *size)) for name, size in sizes.items()}
        value, pullback = with_vjp(total)(natural, taps | messages)

        def pull_back(share: jax.Array):
            statistics, taps = pullback(share)
            weights = {name: taps.pop(name) for name in messages}
            pooled = integrated.statistics(plan, params, known, rows, middle, weights)
            return (statistics, pooled), taps | integrated.posterior_moments(
                plan, params, known, rows, weights)

        return value, pull_back

    return chunk


def total_with_responsibilities(plan: Plan, expected: Expected, rows: Rows,
                                function: Callable) -> PyTree:
    """Σ over chunks of function(chunk, what the E-step found of its row-wise sites and latents)."""
    anchor = expected.anchor
    if expected.effects is not None:
        original, effects = function, {plan.effects[0]: expected.effects}

        def function(chunk: Chunk, responsibilities: Mapping[str, jax.Array]):
            return original(chunk, {**responsibilities, **effects})

    if anchor is None:
        return rows.total(function, expected.responsibilities)
    redo = _chunk_e_step(plan, anchor.params, anchor.known, anchor.natural, anchor.hard,
                         expected.middle, anchor.settings)
    return rows.total(lambda chunk: function(chunk, redo(chunk)[1](anchor.share)[1]))


def _size(statistics: object, natural: object) -> jax.Array:
    return inner(jax.tree.map(jnp.abs, statistics), jax.tree.map(jnp.abs, natural))


def summarise(plan: Plan, params: Mapping, known: Known, rows: Rows) -> Summary:
    """The rows of an additive plan, passed over once; of one with `squared` sites, twice more for
    each of these.

    A log density linear in its natural parameters is its base measure where they are 0, and its
    slope there the statistics.

    Args:
        params: any; their naturals give the shapes.
    """
    squares = {name: squares_of(plan, name, params, known, rows) for name in squared(plan)}
    if squares:
        plan = dataclasses.replace(plan, rowwise=())
    sites = plan.structure.sites
    blank = {name: sites[name].traits.zero(leaf)
             for name, leaf in naturals(plan, params, known).items()}

    def chunk(rows: Chunk):
        if not plan.pooled:
            return (jnp.zeros(()), blank), rows.weights.sum()
        found = value_and_gradient(
            lambda natural: weighted_total(row_evidence(plan, params, known, natural, rows),
                                           rows.weights)
        )(blank)
        return found, rows.weights.sum()

    (base, statistics), weight = rows.total(chunk)
    return Summary(statistics, base, weight, squares)


def row_totals(plan: Plan, params: Mapping, known: Known, rows: Rows | Summary) -> jax.Array:
    """Σ over rows of weight × log p(row | params), over the states of the touching global sites; no
    gradient is made."""
    natural = naturals(plan, params, known)
    if isinstance(rows, Summary):
        return rows.base + inner(rows.statistics, natural) + quadratic(plan, params, known,
                                                                       rows.squares)
    part = chunkwise_plan(plan, rows)
    total = rows.total(lambda chunk: weighted_total(
        row_evidence(part, params, known, natural, chunk), chunk.weights))
    return add_ordered_sites(plan, part, total, params, known, rows)


def chunkwise_plan(plan: Plan, rows: Rows) -> Plan:
    """The plan of the sites whose log densities are added chunk by chunk, over every state;
    `add_ordered_sites` adds the ordered ones."""
    return plan.without_ordered if plan.ordered and rows.as_one_chunk(ORDERED) is not None else plan


def add_ordered_sites(plan: Plan, part: Plan, total: jax.Array, params: Mapping, known: Known,
                      rows: Rows | Summary, scale: float = 1.0) -> jax.Array:
    """The total over the states of plan.row_globals, from that of `part` over its own, and the
    ordered sites'.

    Of rows in the order of the number that is compared with the state's, a switch is on for so many
    first or last ones: their sum is a running sum. Which row comes where does not depend on
    parameters, so that in a loop XLA sorts once.

    Cost: rows + states, in place of rows × states.
    """
    if part is plan:
        return total
    n_states = {name: plan.variables[name].states for name in plan.row_globals}
    total = total.reshape([states if name in part.row_globals else 1 for name,
                           states in n_states.items()])
    assert isinstance(rows, Rows)
    all_rows = present(rows.as_one_chunk(ORDERED))
    for name in plan.ordered:
        switches, order = plan.switches[name], present(plan.switches[name].order)
        logs, weights = setting_logs(plan, params, known, all_rows, name), all_rows.weights[:, None]
        logs = scale * weighted_log(weights, logs)
        number = jax.vmap(lambda env, s=switches: s.at(s.order.row, env),
                          axis_size=len(weights))(row_environment(plan, known, all_rows, name))
        parents = switches.parents
        bound = over_states(plan, lambda env, s=switches: s.at(s.order.state, env), {}, parents)
        perm = jnp.argsort(number)
        count = jnp.searchsorted(number[perm], bound.reshape(-1), side=order.side, method="sort")
        logs = logs[perm]
        first, last = (logs[:, 1], logs[:, 0]) if order.first else (logs[:, 0], logs[:, 1])
        zero = jnp.zeros(1, logs.dtype)
        before = jnp.concatenate([zero, jnp.cumsum(first)])[count]
        after = jnp.concatenate([jnp.cumsum(last[::-1])[::-1], zero])[count]
        total = total + (before + after).reshape([states if p in parents else 1
                                                  for p, states in n_states.items()])
    return total


def log_evidence(plan: Plan, params: Mapping, known: Known, rows: Rows | Summary) -> jax.Array:
    """log p(data | params), everything discrete and unseen summed out, effects of groups integrated
    out."""
    value = total_evidence(plan, global_factors(plan, params, known),
                           row_totals(plan, params, known, rows))
    if plan.groupings and isinstance(rows, Rows):
        value += random_effects.condition_on_rows(plan, params, known, rows.total).log
    return value


def global_posterior(plan: Plan, params: Mapping, known: Known,
                     rows: Rows | Summary) -> jax.Array:
    """log p(global discrete sites | data, params), one axis a site in the order of plan.globals."""
    total = Factor(row_totals(plan, params, known, rows)[None], plan.row_globals)
    joint = elimination.sum_out([*global_factors(plan, params, known), total], ())
    log = jnp.transpose(joint.log[0], [joint.names.index(n) for n in plan.globals])
    return log - jax.scipy.special.logsumexp(log)


def total_evidence(plan: Plan, outer: list[Factor], total: jax.Array) -> jax.Array:
    """log evidence of everything, from the global sites' log tables and the rows' total over what
    they touch."""
    if not plan.globals:
        return total
    return elimination.evidence([*outer, Factor(total[None], plan.row_globals)],
                                plan.global_order)[0]


def sum_and_vjp(function: Callable, rows: Rows, outer: Callable,
                linear: bool = False) -> tuple[PyTree, PyTree, list[PyTree]]:
    """Forward and back through a function of a sum over chunks: what `outer` finds, and the
    gradient with respect to what chunks take.

    Where the sum is a table over the states of sites outside rows, its cotangent is their
    posterior, which is known only after the whole sum. So several chunks are passed over twice, for
    the sum and for its gradient; a gradient for every state would be as many passes.

    Args:
        function: chunk → (its part of the sum, cotangent → gradients), as jax.vjp gives them.
        outer: the sum → (anything, its cotangent).
        linear: the sum is one number and its cotangent 1, so that one pass does.

    Returns: what `outer` found; the first of the gradients, summed over chunks; the others,
        stacked.
    """
    if not rows.several:
        value, pullback = function(rows.first)
        result, cotangent = outer(value)
        summed, *per_chunk = pullback(cotangent)
        return result, summed, jax.tree.map(lambda leaf: leaf[None], per_chunk)

    def both(chunk: Chunk, cotangent: jax.Array | None = None):
        value, pullback = function(chunk)
        summed, *per_chunk = pullback(jnp.ones_like(value) if cotangent is None else cotangent)
        return (value, summed) if cotangent is None else summed, per_chunk

    if linear:
        (value, summed), per_chunk = rows.accumulate(both)
        return outer(value)[0], summed, per_chunk
    result, cotangent = outer(rows.total(lambda chunk: function(chunk)[0]))
    return result, *rows.accumulate(lambda chunk: both(chunk, cotangent))
