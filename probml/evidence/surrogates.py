"""Expected complete-data log density (Q of EM), and the E-step's result."""

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known
from probml.evidence import random_effects
from probml.factors import integrated, squares
from probml.factors.chains import rowwise_logs
from probml.factors.factors import global_factors
from probml.factors.naturals import naturals
from probml.factors.random_effects.integration import Moments
from probml.plan.plan import Plan
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


def quadratic(plan: Plan, params: Mapping, known: Known, of: Mapping) -> jax.Array:
    """Σ log p of the row-wise sites of which squares are left."""
    return sum((squares.log_density(plan, name, params, known, found)
                for name, found in of.items()), start=jnp.zeros(()))


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
            still = {name: value[0] for name, value in values.items() if len(value) == 1}
            moving = {name: value for name, value in values.items() if len(value) > 1}
            if not moving:
                return jax.tree.map(lambda leaf: leaf[None], along(still, sizes[1:]))
            return jax.vmap(lambda own: along({**still, **own}, sizes[1:]))(moving)

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
              origin: PyTree = None, moving: Collection[str] | None = None) -> jax.Array:
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
