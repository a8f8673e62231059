"""Exact draws of the discrete sites outside rows and of effects of groups, given each draw of the
parameters."""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.device.rows import Known, Rows
from probml.engines.importance import in_batches
from probml.evidence import row_coordinates
from probml.evidence.e_step import global_posterior
from probml.numerics.compiling import jit
from probml.numerics.transfer import Use, derive_key, random_key
from probml.plan.plan import Plan
from probml.posteriors import random_effects
from probml.posteriors.posterior import Draws, Normal
from probml.typing import PyTree

MAX_BATCH = 512  # draws of the parameters for a device call
BATCH_NUMBERS = 2**20  # rows, times entries of a row, times draws that are evaluated at once
NORMAL_DRAWS = 1000  # of a normal distribution, where discrete sites are drawn with each
# rows times draws above which effects are drawn about conditional means that are linear in the
# parameters
MAX_EXACT_WORK = 2**24
# optimisations to which a program amounts that passes over the rows for each draw
DRAWING_LOOPS = 32


def with_states(plan: Plan, draws: Draws, known: Known, rows: Rows, seed: int) -> Draws:
    """Draws with the discrete sites outside rows and the effects of groups, drawn given the data
    and each draw of the parameters, and of latent variables of rows in the layout of `rows`."""
    if plan.groupings:
        drawn = _for_each_draw(_effects, plan, draws, known, rows,
                               derive_key(random_key(seed), Use.EFFECTS),
                               plan.table_entries + plan.width)
        draws = draws._replace(values={**draws.values, **drawn})
    if not plan.globals:
        return draws
    states = math.prod(plan.variables[name].states for name in plan.globals)
    tables, drawn = _for_each_draw(_states, plan, draws, known, rows,
                                   derive_key(random_key(seed), Use.STATES), states)
    return draws._replace(values={**draws.values, **drawn}, tables=tables)


def _for_each_draw(program: Callable, plan: Plan, draws: Draws, known: Known, rows: Rows,
                   key: jax.Array, entries: int) -> PyTree:
    """Results (chains, draws, ...) of `program` for each draw of the parameters.

    Args:
        entries: numbers that the program computes for each row.
    """
    lead = np.shape(draws.values[plan.free[0]])[:2]
    flat = {name: np.asarray(value).reshape(-1, *np.shape(value)[2:]) for name, value in (
        *((name, draws.values[name]) for name in plan.free), *draws.inside.items())}
    most = min(MAX_BATCH, max(BATCH_NUMBERS // max(rows.size * entries, 1), 1),
               2 * math.prod(lead) - 1)
    found = in_batches(lambda some, at: program(plan, some, known, rows, key, at), flat,
                       1 << most.bit_length() - 1)
    return jax.tree.map(lambda leaf: leaf.reshape(*lead, *leaf.shape[1:]), found)


@jit(static_argnums=0, loops=DRAWING_LOOPS)
def _effects(plan: Plan, values: Mapping, known: Known, rows: Rows, key: jax.Array,
             numbers: ArrayLike) -> dict:
    """A draw of the effects at each point.

    Args:
        values: of the parameters, (draws, ...). numbers: (draws,), of each draw's random key.
    """
    def draw_effects(params: Mapping, number: jax.Array):
        return random_effects.draw(random_effects.conditional(plan, params, known, rows), plan,
                                   jax.random.fold_in(key, number))

    return jax.vmap(draw_effects)(values, numbers)


@jit(static_argnums=0)
def _states(plan: Plan, values: Mapping, known: Known, rows: Rows, key: jax.Array,
            numbers: ArrayLike) -> tuple:
    """The posterior of the discrete sites outside rows at each point, and a draw of them; Args as
    of `_effects`."""

    def draw_states(params: Mapping, number: jax.Array):
        table = global_posterior(plan, params, known,
                                 row_coordinates.with_values(plan, rows, params))
        where = jnp.unravel_index(jax.random.categorical(
            jax.random.fold_in(key, number), table.reshape(-1)), table.shape)
        cells = {n: jnp.asarray(plan.variables[n].values)[at]
                 for n, at in zip(plan.globals, where, strict=True)}
        return table, {n: cell.reshape(plan.structure.sites[n].shape) for n, cell in cells.items()}

    return jax.vmap(draw_states)(values, numbers)


def complete_normal(plan: Plan, normal: Normal, known: Known, rows: Rows,
                    seed: int) -> Normal | Draws:
    """The normal distribution itself or, if the model has discrete sites outside rows or effects of
    groups, draws of it with these drawn given each; of so many rows that a pass for each is too
    much, effects to the first order about the centre."""
    if not (plan.globals or plan.groupings):
        return normal
    values = normal.draw(plan, known, NORMAL_DRAWS, seed)
    drawn = {name: np.asarray(value)[None] for name, value in values.items()}
    work = rows.chunks * rows.size * NORMAL_DRAWS
    if plan.groupings and not plan.globals and work > MAX_EXACT_WORK:
        effects = random_effects.draw_about_linear_means(
            plan, normal.loc, values, known, rows, derive_key(random_key(seed), Use.EFFECTS))
        return Draws(drawn | {name: np.asarray(value)[None] for name, value in effects.items()},
                     None, {})
    return with_states(plan, Draws(drawn, None, {}), known, rows, seed)
