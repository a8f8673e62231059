"""The waist: parameters and rows → log factors → evidence of each row.

`naturals` runs the traced arguments of the pooled sites over the states of their discrete parents,
without rows. `row_factors` meets them with a chunk of rows. Passes over all rows stand in
e_step.py.
"""

import functools
from collections.abc import Callable, Iterator, Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known
from probml.elimination import elimination
from probml.elimination.factor import Factor, indicator
from probml.factors import integrated
from probml.factors.chains import Given, chain_moves, counted_factor, steps_factor
from probml.factors.naturals import environment, over_states, prior_factor, state_logs, unstacked
from probml.factors.pooled import pooled_factor, predictive_factor
from probml.factors.rowwise import rowwise_factor
from probml.numerics.logs import log_of
from probml.plan.plan import Plan


def row_factors(
    plan: Plan,
    params: Mapping,
    known: Known,
    natural: Mapping,
    rows: Chunk,
    taps: Mapping | None = None,
    predictive: Mapping | None = None,
    hard: bool = False,
) -> list[Factor]:
    """The factor graph of a chunk of rows; what is along time is one factor of each row.

    Args:
        taps: site -> zeros added to a row-wise factor, so that the gradient with respect to them is
            its posterior.
        predictive: site -> arguments of its family's predictive over its table, to stand in for its
            kernel.
        hard: what is hidden along time at its joint maximum instead of summed out.
    """
    factors = level_factors(plan, params, known, natural, rows, False, taps, predictive)
    if not plan.steps:
        return factors
    moves = chain_moves(plan, params, known, natural, rows, taps)
    return [*factors, steps_factor(plan, factors_of_steps(plan, rows),
                                   Given(params, natural, predictive, known), moves, rows, taps,
                                   hard)]


def factors_of_steps(plan: Plan, rows: Chunk) -> Callable:
    """(given, steps, taps) → the factors of some of the rows' steps by themselves."""
    return lambda given, steps, taps: level_factors(
        plan, given.params, given.known, given.natural, rows._replace(steps=steps), True, taps,
        given.predictive)


def level_factors(
    plan: Plan,
    params: Mapping,
    known: Known,
    natural: Mapping,
    chunk: Chunk,
    steps: bool,
    taps: Mapping | None = None,
    predictive: Mapping | None = None,
    evidence: bool = True,
) -> list[Factor]:
    """The factors of rows by themselves, or those of their steps by themselves, but for the chains'
    own.

    Args:
        evidence: with the data; else only the factors among latent variables.
    """
    predictive = predictive or {}
    rows = chunk.along.rows if steps else chunk
    names = [n for n in (*plan.pooled, *plan.rowwise) if (n in plan.steps) == steps
             and n not in (*plan.chains, *plan.counted) and (evidence or n in plan.variables)]
    factors = [counted_factor(plan, natural[name], rows, name, predictive.get(name, {}))
               for name in plan.counted if not steps]
    factors += [predictive_factor(plan, known, rows, name, predictive[name]) if name in predictive
                else pooled_factor(plan, natural[name], rows, name)
                for name in plan.pooled if name in names]
    tapped = [(name, rowwise_factor(plan, params, known, rows, name, predictive.get(name)))
              for name in plan.rowwise if name in names]
    tapped += [(group.name, integrated.message(plan, params, known, rows, group))
               for group in (plan.latents if evidence and not steps else ())]
    factors += [Factor(factor.log + taps[name], factor.names) if taps else factor
                for name, factor in tapped]
    variables = [name for name in plan.variables
                 if (plan.structure.sites[name].time is not None) == steps]
    factors += [indicator(mask[None], name) for name, mask in known.allowed.items()
                if name in variables and name not in plan.globals]
    factors += [_state_evidence(plan, rows, name) for name in (variables if evidence else ())
                if name in {**rows.likelihood, **rows.values}]
    return [*factors, *_partial_evidence(plan, rows)]


def _partial_evidence(plan: Plan, rows: Chunk) -> Iterator[Factor]:
    """The factors of variables that are observed in some rows: codes, −1 where missing."""
    for states, codes in rows.codes.items():
        names, codes = plan.partly[states], codes.T[:, None]  # made with the rows last
        matches = (codes == jnp.arange(states)[:, None]) | (codes < 0)
        logs = unstacked(jnp.where(matches, 0.0, -jnp.inf), len(names))
        for log, name in zip(logs, names, strict=True):
            yield Factor(log.T, (name,), True)


def _state_evidence(plan: Plan, rows: Chunk, name: str) -> Factor:
    """The data of a variable as a factor: weights of its states, or values of some of its cells."""
    if name in rows.likelihood:
        return Factor(log_of(rows.likelihood[name]), (name,))
    states = jnp.asarray(plan.variables[name].values)
    matches = rows.values[name][:, None] == states[None]
    if name in rows.observed:
        matches |= ~rows.observed[name][:, None]
    return indicator(matches.reshape(len(matches), len(states), -1).all(-1), name)


def global_factors(plan: Plan, params: Mapping, known: Known) -> list[Factor]:
    """Log tables of the discrete sites outside rows, then those of what depends on them there
    (Plan.mixed)."""
    factors, env = [], environment(plan, params, known)
    for name in plan.globals:
        scope = plan.scope(name)
        log = over_states(plan, functools.partial(state_logs, plan, name), env,
                          plan.discrete_parents(name))
        if name in known.allowed:
            mask = jnp.where(known.allowed[name], 0.0, -jnp.inf)
            log = log + mask.reshape([mask.size if other == name else 1 for other in scope])
        factors.append(Factor(log[None], scope))
    # each in its own coordinate: those of several states, mixed, must be one
    for name in plan.mixed:
        log = over_states(plan, lambda at, name=name: prior_factor(plan, name, at, False), env,
                          plan.scope(name))
        factors.append(Factor(log[None], plan.scope(name)))
    return factors


def _evidence(plan: Plan, factors: list[Factor], size: int, hard: bool) -> jax.Array:
    """(rows, *states of the touching global variables)."""
    if hard:
        return jnp.broadcast_to(elimination.maximise_value(factors, plan.order), (size,))
    remaining = elimination.sum_out(factors, plan.order)
    log = jnp.transpose(remaining.log, (0, *(1 + remaining.names.index(n) for n in plan.row_globals
                                             if n in remaining.names)))
    log = log.reshape(len(log), *(plan.variables[n].states if n in remaining.names else 1
                                  for n in plan.row_globals))
    return jnp.broadcast_to(log, (size, *(plan.variables[n].states for n in plan.row_globals)))


def row_evidence(plan: Plan, params: Mapping, known: Known, natural: Mapping, rows: Chunk,
                 taps: Mapping[str, jax.Array] | None = None, hard: bool = False) -> jax.Array:
    """log p(row | params [, touching global variables]): (rows, *global states), in nats."""
    return _evidence(plan, row_factors(plan, params, known, natural, rows, taps, hard=hard),
                     len(rows.weights), hard)
