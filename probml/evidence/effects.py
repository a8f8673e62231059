"""Effects of groups over all rows: their part of the evidence, its gradient, and what an M-step
needs of them.

Rows add up; the effects are eliminated after the last (factors/effects/messages.py). In float32
rows are taken twice: about the prior's locations, and again about what was found, so that squares
are those of what is left.
"""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known
from probml.evidence import effect_modes
from probml.factors.effects import curved
from probml.factors.effects import eliminated as eliminated_effects
from probml.factors.effects import messages as effects
from probml.factors.effects.eliminated import Eliminated, Moments
from probml.factors.effects.messages import Information, Two
from probml.factors.naturals import environment
from probml.latents.gaussian import log_total
from probml.plan.groupings import Grouping
from probml.plan.plan import Plan


def information(plan: Plan, params: Mapping, known: Known, rows: Chunk,
                point: Mapping[str, jax.Array]) -> Information:
    """What a chunk of rows says of the effects about `point`: of rows that are not normal to the
    second order."""
    return (curved if plan.groupings[0].nodes else effects).information(plan, params, known, rows,
                                                                        point)


def reference(plan: Plan, params: Mapping, known: Known, total: Callable) -> Two:
    """ε about which rows are taken: the mode of those that are not normal.

    Args:
        total: (chunk → what adds up) → its sum over all chunks.
    """
    if plan.groupings[0].nodes:
        return effect_modes.mode(plan, params, known, total)[0]
    nothing = effects.none(plan)
    if nothing.first.dtype != jnp.float32:
        return nothing
    found = _at(plan, jax.lax.stop_gradient(params), known, total, nothing).centre
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(jnp.nan_to_num(leaf)), found)


def _at(plan: Plan, params: Mapping, known: Known, total: Callable, noise: Two) -> Eliminated:
    found, own = effects.prior(plan, params, known), effects.proper(plan)
    told = total(lambda rows: information(plan, params, known, rows,
                                          effects.point_at(plan, found, noise)))
    return eliminated_effects.eliminated(found, told, noise, own)


def given_rows(plan: Plan, params: Mapping, known: Known, total: Callable) -> Eliminated:
    """log p(the rows that look at effects | params), and the effects given them; `total` as in
    `reference`."""
    if plan.groupings[0].nodes:
        return effect_modes.given_rows(plan, params, known, total)
    return _at(plan, params, known, total, reference(plan, params, known, total))


def means(plan: Plan, params: Mapping, known: Known, total: Callable) -> dict[str, jax.Array]:
    """The effects given the rows, at their mean, or mode, by name, with the first derivatives of
    these in the parameters: a mode stands still along its own Newton step, whose derivatives are
    those of the mode."""
    found = _at(plan, params, known, total, reference(plan, params, known, total))
    return effects.point_at(plan, effects.prior(plan, params, known), found.centre)


def expect(plan: Plan, params: Mapping, known: Known,
           total: Callable) -> tuple[jax.Array, Moments]:
    """An E-step: the effects' part of the log evidence, and their moments; `total` as in
    `reference`."""
    found = given_rows(plan, params, known, total)
    return found.log, eliminated_effects.moments(plan, effects.prior(plan, params, known), found)


def row_surrogate(plan: Plan, params: Mapping, known: Known, rows: Chunk,
                  held: Moments) -> jax.Array:
    """E[log p(the rows that look at effects | params)] over effects of these moments; of rows that
    are not normal to the second order about their mean."""
    told = information(plan, params, known, rows, held.mean)
    return told.log - 0.5 * jnp.sum(held.block * told.block) - jnp.sum(
        held.cross * told.cross) - 0.5 * jnp.sum(held.rest * told.rest)


def surrogate(plan: Plan, params: Mapping, known: Known, held: Moments) -> jax.Array:
    """E[log p(effects | params)] over effects of these moments."""
    env, total = environment(plan, params, known), jnp.zeros(())
    for grouping in (grouping for grouping in plan.groupings if not grouping.flat):
        for i, name in enumerate(grouping.names):
            own = eliminated_effects.own_covariance(plan, held, name)
            total += _expected(plan, grouping, i, env, held.mean[name], own)
    return total


def _expected(plan: Plan, grouping: Grouping, i: int, env: Mapping, mean: jax.Array,
              own: jax.Array) -> jax.Array:
    """E[log p(effect | env)] of one effect, from its mean and its members' covariances."""
    site = plan.structure.sites[grouping.names[i]]
    event, d = site.event, math.prod(site.event)
    loc, root = effects.located(plan, site.name, env)
    root = effects.by_member(grouping, i, root, 2 * len(event)).reshape(-1, *event, *event)
    gap = effects.by_member(grouping, i, mean - loc)
    gap = gap.reshape(len(gap), -1, d)
    blocks = own.reshape(*gap.shape, *gap.shape[1:])
    blocks = jnp.moveaxis(jnp.diagonal(blocks, axis1=1, axis2=3), -1, 1)
    square = (gap[..., :, None] * gap[..., None, :] + blocks).reshape(-1, d, d)
    return log_total(site, root, square, jnp.ones(len(square)))
