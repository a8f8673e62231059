"""Expected log densities at given expectations: what an M-step climbs."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known
from probml.evidence import effects
from probml.factors import integrated, squares
from probml.factors.chains import rowwise_logs
from probml.factors.factors import global_factors
from probml.factors.naturals import naturals
from probml.plan.plan import Plan

if TYPE_CHECKING:
    from probml.evidence.passes import Expected


def inner(statistics: Any, natural: Any) -> jax.Array:
    """⟨statistics, naturals⟩, with 0 · (−∞) = 0."""
    terms = jax.tree.map(lambda s, n: jnp.sum(s * jnp.where(s == 0, 0.0, n)), statistics, natural)
    return sum(jax.tree.leaves(terms), start=jnp.zeros(()))


def quadratic(plan: Plan, params: Mapping, known: Known, of: Mapping) -> jax.Array:
    """Σ log p of the row-wise sites of which squares are left."""
    return sum((squares.log_density(plan, name, params, known, found)
                for name, found in of.items()), start=jnp.zeros(()))


def over_settings(function: Callable, settings: Mapping) -> Any:
    """The mean of function(parameters) over settings of them, stacked on a leading axis."""
    count = len(next(iter(settings.values())))
    if count == 1:
        return function({name: value[0] for name, value in settings.items()})
    return jax.tree.map(lambda leaf: leaf.mean(0), jax.vmap(function)(dict(settings)))


def surrogate(plan: Plan, expected: "Expected", params: Mapping, known: Known,
              origin: Any = None, moving: Collection[str] | None = None) -> jax.Array:
    """⟨q, log factors(params)⟩ of what pools, and of the global sites: the M-step's objective
    without rows and without prior.

    Args:
        origin: naturals of another point, that are taken off term by term: what is the same at both
            leaves nothing, and the digits are those of the gain, not of the sum.
        moving: parameters; what pools where none of them enters is left out, a constant.
    """
    natural = naturals(plan, params, known, moving)
    if origin is not None:
        natural = jax.tree.map(lambda n, o: jnp.where(jnp.isfinite(o), n - o, n), natural,
                               {name: origin[name] for name in natural})
    value = inner({name: expected.statistics[name] for name in natural}, natural)
    value += quadratic(plan, params, known, expected.squares)
    for posterior, factor in zip(expected.outer, global_factors(plan, params, known), strict=True):
        value += inner(posterior, factor.log)
    if plan.even:
        value += integrated.pooled(plan, params, known, expected.middle, expected.pooled)
    if expected.effects is not None:
        value += effects.surrogate(plan, params, known, expected.effects)
    return value


def row_surrogate(plan: Plan, taps: Mapping, params: Mapping, known: Known, rows: Chunk,
                  origin: Mapping, anchor: Mapping | None = None) -> jax.Array:
    """⟨q, log factors(params)⟩ of the row-wise sites on one chunk, with minorants that touch at
    `anchor`, if given; of groups of latents and effects of groups, the expectation over them
    too; of those along time what it gains over the parameters `origin`."""
    total = sum(
        (inner(taps[name], rowwise_logs(plan, params, known, rows, name, anchor))
         for name in plan.rowwise),
        start=jnp.zeros(()),
    )
    if plan.groupings:
        total += effects.row_surrogate(plan, params, known, rows, taps[plan.effects[0]])
    return sum((integrated.expected(plan, params, known, rows, group, taps[group.name],
                                    origin)
                for group in plan.latents if group not in plan.even), start=total)
