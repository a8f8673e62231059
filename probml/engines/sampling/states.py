"""Exact draws of the discrete sites outside rows and of effects of groups, given each draw of the
parameters."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.device.rows import Known, Rows
from probml.evidence import row_coordinates
from probml.evidence.e_step import global_posterior
from probml.numerics.compiling import jit
from probml.numerics.transfer import Use, derive_key, random_key, split_key
from probml.plan.plan import Plan
from probml.posteriors import random_effects
from probml.posteriors.posterior import Draws, Normal

BLOCK = 512  # draws of the parameters for a device call
BATCH_NUMBERS = 2**18  # rows of a chunk, times states, times draws that are evaluated at once
NORMAL_DRAWS = 1000  # of a normal distribution, where discrete sites are drawn with each


def with_states(plan: Plan, draws: Draws, known: Known, rows: Rows, seed: int) -> Draws:
    """Draws with the discrete sites outside rows and the effects of groups, drawn given the data
    and each draw of the parameters, and of latent variables of rows in the layout of `rows`."""
    if plan.groupings:
        drawn = _drawn_effects(plan, draws, known, rows, seed)
        draws = draws._replace(values={**draws.values, **drawn})
    if not plan.globals:
        return draws
    lead = np.shape(draws.values[plan.free[0]])[:2]
    count = math.prod(lead)
    keys, flat = split_key(derive_key(random_key(seed), Use.STATES), count), {}
    for name, value in {**{n: draws.values[n] for n in plan.free}, **draws.inside}.items():
        flat[name] = np.asarray(value).reshape(count, *np.shape(value)[2:])
    parts, size = [], min(BLOCK, 1 << (count - 1).bit_length())
    # of one size, filled by the last draw: one program, and Ctrl-C works in between
    for low in range(0, count, size):
        at = np.arange(low, low + size).clip(max=count - 1)
        found = jax.device_get(_states(plan, {name: value[at] for name, value in flat.items()},
                                       known, rows, keys[at]))
        parts.append(jax.tree.map(lambda leaf, low=low: leaf[: count - low], found))
    tables, drawn = jax.tree.map(
        lambda *leaves: np.concatenate(leaves).reshape(*lead, *leaves[0].shape[1:]), *parts
    )
    return draws._replace(values={**draws.values, **drawn}, tables=tables)


def _drawn_effects(plan: Plan, draws: Draws, known: Known, rows: Rows,
                   seed: int) -> dict[str, ArrayLike]:
    """A draw of the effects for each draw of the parameters, (chains, draws, ...)."""
    lead = np.shape(draws.values[plan.free[0]])[:2]
    keys = split_key(derive_key(random_key(seed), Use.EFFECTS), math.prod(lead))
    flat = {name: np.asarray(draws.values[name]).reshape(-1, *plan.structure.sites[name].shape)
            for name in plan.free}
    found = jax.device_get(_draw_effects(plan, flat, known, rows, keys))
    return {name: value.reshape(*lead, *value.shape[1:]) for name, value in found.items()}


@jit(static_argnums=0, steps=True)
def _draw_effects(plan: Plan, values: Mapping, known: Known, rows: Rows, keys: jax.Array) -> dict:
    def draw_effects(pair: tuple):
        params, key = pair
        return random_effects.draw(random_effects.conditional(plan, params, known, rows), plan, key)

    # of few rows at once: matrix products and factorisations are then batched
    together = max(BATCH_NUMBERS // max(rows.size * (plan.table_entries + plan.width), 1), 1)
    return jax.lax.map(draw_effects, (values, keys), batch_size=min(together, len(keys)))


@jit(static_argnums=0, steps=True)
def _states(plan: Plan, values: Mapping, known: Known, rows: Rows, keys: jax.Array):
    """The posterior of the discrete sites outside rows at each point, and a draw of them."""

    def draw_states(pair: tuple):
        params, key = pair
        table = global_posterior(plan, params, known,
                                 row_coordinates.with_values(plan, rows, params))
        where = jnp.unravel_index(jax.random.categorical(key, table.reshape(-1)), table.shape)
        cells = {n: jnp.asarray(plan.variables[n].values)[at]
                 for n, at in zip(plan.globals, where, strict=True)}
        return table, {n: cell.reshape(plan.structure.sites[n].shape) for n, cell in cells.items()}

    states = math.prod(plan.variables[name].states for name in plan.globals)
    together = 1 << max(BATCH_NUMBERS // (rows.size * states), 1).bit_length() - 1
    return jax.lax.map(draw_states, (values, keys), batch_size=min(together, len(keys)))


def complete_normal(plan: Plan, normal: Normal, known: Known, rows: Rows,
                    seed: int) -> Normal | Draws:
    """The normal distribution itself or, if the model has discrete sites outside rows or effects of
    groups, draws of it with these drawn given each."""
    if not (plan.globals or plan.groupings):
        return normal
    drawn = {name: np.asarray(value)[None]
             for name, value in normal.draw(plan, known, NORMAL_DRAWS, seed).items()}
    return with_states(plan, Draws(drawn, None, {}), known, rows, seed)
