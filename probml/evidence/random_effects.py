"""Random effects over all rows: their part of the log evidence, and the moments for an M-step.

The information of the rows adds up over chunks; then the effects are integrated out
(factors/random_effects/integration.py). In float32 there are two passes over the rows: about the
prior's locations, and again about the conditional means found, so that residuals are small.
"""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known
from probml.evidence import random_effect_modes
from probml.factors.naturals import environment
from probml.factors.random_effects import information, integration, second_order
from probml.factors.random_effects.information import EffectVector, Information
from probml.factors.random_effects.integration import Conditional, Moments
from probml.latents.gaussian import log_total
from probml.plan.groupings import Grouping
from probml.plan.plan import Plan


def compute_information(plan: Plan, params: Mapping, known: Known, rows: Chunk,
                point: Mapping[str, jax.Array]) -> Information:
    """The information of a chunk of rows about the effects at `point`: exact for normal rows, else
    to the second order."""
    module = second_order if plan.groupings[0].nodes else information
    return module.compute_information(plan, params, known, rows, point)


def expansion_point(plan: Plan, params: Mapping, known: Known, total: Callable) -> EffectVector:
    """ε about which the rows' log density is expanded: the mode if rows are not normal.

    Args:
        total: sums a function of a chunk of rows over all chunks.
    """
    if plan.groupings[0].nodes:
        return random_effect_modes.find_mode(plan, params, known, total)[0]
    nothing = information.zeros(plan)
    if nothing.first.dtype != jnp.float32:
        return nothing
    found = _integrate_about(plan, jax.lax.stop_gradient(params), known, total, nothing).centre
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(jnp.nan_to_num(leaf)), found)


def _integrate_about(plan: Plan, params: Mapping, known: Known, total: Callable,
                     noise: EffectVector) -> Conditional:
    prior, mask = information.compute_prior(plan, params, known), information.prior_mask(plan)
    info = total(lambda rows: compute_information(plan, params, known, rows,
                                          information.effects_at(plan, prior, noise)))
    return integration.integrate_out(prior, info, noise, mask)


def condition_on_rows(plan: Plan, params: Mapping, known: Known, total: Callable) -> Conditional:
    """log p(rows that depend on random effects | params), and the conditional distribution of the
    effects given the rows; `total` as of `expansion_point`."""
    if plan.groupings[0].nodes:
        return random_effect_modes.condition_on_rows(plan, params, known, total)
    return _integrate_about(plan, params, known, total, expansion_point(plan, params, known, total))


def conditional_means(plan: Plan, params: Mapping, known: Known,
                      total: Callable) -> dict[str, jax.Array]:
    """The conditional mean (or mode) of the effects given the rows, by name. Its first derivatives
    in the parameters are right: one Newton step from the mode, which is of length 0, has them."""
    noise = expansion_point(plan, params, known, total)
    centre = _integrate_about(plan, params, known, total, noise).centre
    return information.effects_at(plan, information.compute_prior(plan, params, known), centre)


def expect(plan: Plan, params: Mapping, known: Known,
           total: Callable) -> tuple[jax.Array, Moments]:
    """An E-step: the random effects' part of the log evidence, and their moments; `total` as of
    `expansion_point`."""
    given, prior = (condition_on_rows(plan, params, known, total),
                    information.compute_prior(plan, params, known))
    return given.log, integration.moments(plan, prior, given)


def row_surrogate(plan: Plan, params: Mapping, known: Known, rows: Chunk,
                  moments: Moments) -> jax.Array:
    """E[log p(rows that depend on random effects | params)] over effects with these moments; to
    the second order about the mean if rows are not normal."""
    info = compute_information(plan, params, known, rows, moments.mean)
    return info.log - 0.5 * jnp.sum(moments.block * info.block) - jnp.sum(
        moments.cross * info.cross) - 0.5 * jnp.sum(moments.rest * info.rest)


def surrogate(plan: Plan, params: Mapping, known: Known, moments: Moments) -> jax.Array:
    """E[log p(effects | params)] over effects with these moments."""
    env, total = environment(plan, params, known), jnp.zeros(())
    for grouping in (grouping for grouping in plan.groupings if not grouping.flat):
        for i, name in enumerate(grouping.names):
            own = integration.member_covariances(plan, moments, name)
            total += _expected(plan, grouping, i, env, moments.mean[name], own)
    return total


def _expected(plan: Plan, grouping: Grouping, i: int, env: Mapping, mean: jax.Array,
              own: jax.Array) -> jax.Array:
    """E[log p(effect | env)] of one effect, from its mean and its members' covariances."""
    site = plan.structure.sites[grouping.names[i]]
    event, d = site.event, math.prod(site.event)
    loc, root = information.location_and_root(plan, site.name, env)
    root = information.by_member(grouping, i, root, 2 * len(event)).reshape(-1, *event, *event)
    gap = information.by_member(grouping, i, mean - loc)
    gap = gap.reshape(len(gap), -1, d)
    blocks = own.reshape(*gap.shape, *gap.shape[1:])
    blocks = jnp.moveaxis(jnp.diagonal(blocks, axis1=1, axis2=3), -1, 1)
    square = (gap[..., :, None] * gap[..., None, :] + blocks).reshape(-1, d, d)
    return log_total(site, root, square, jnp.ones(len(square)))
