"""The information of rows that are not normal about random effects: their log density to the second
order about a point, and at other points.

    log p(rows | u₀ + δ) ≈ g + hᵀδ − ½ δᵀ G δ,   h = ∂ log p / ∂u,   G = −∂² log p / ∂u²  at u₀,

added up member by member as in information.py. With one grouping, the blocks of G come from as many
Hessian-vector products as a member has coordinates, in each of which all members move at once: a
row reads one member, so that products of members do not mix. With several groupings the second
derivatives of each row are taken, along pairs of coordinates.

Where each row's log density is a + b δ − k exp(c δ) at a shift δ of one effect, such as that of a
count under a log link (`Grouping.exponent`), its value and two derivatives at one point say what it
is everywhere: these, added up by member, are sufficient for any number of steps and nodes.

Cost: one grouping: rows × coordinates gradients; several: rows × coordinates² / 2 log densities.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known
from probml.errors import present
from probml.factors.naturals import environment
from probml.factors.random_effects import information
from probml.factors.random_effects.information import EffectVector, Information
from probml.factors.rowwise import row_environment
from probml.numerics.logs import weighted_log
from probml.plan.plan import Plan
from probml.structure.densities import log_density

# units of rounding in a sum over the rows of a member, at most, and the log density that they may
# change
ROUNDINGS, MAX_LOST = 64, 100.0


def compute_information(plan: Plan, params: Mapping, known: Known, rows: Chunk,
                point: Mapping[str, jax.Array]) -> Information:
    """The information of a chunk of weighted rows about the effects at `point`."""
    units = information.unit_steps(plan, point)
    if len(plan.groupings) > 1:
        return _crossed_information(plan, params, known, rows, point, units)
    total = _total(plan, params, known, rows)
    log, slope = jax.value_and_grad(total)(dict(point))
    curvature = jax.vmap(lambda move: jax.jvp(jax.grad(total), (dict(point),), (move,))[1])(units)
    (grouping,), zero = plan.groupings, jnp.zeros((), slope[plan.effects[0]].dtype)
    d, count = grouping.cells, grouping.members
    block = -jnp.moveaxis(jax.vmap(lambda at: _by_member(plan, at))(curvature), 0, 1)
    return Information(log, EffectVector(_by_member(plan, slope), jnp.zeros(0, zero.dtype)), block,
                       jnp.zeros((count, d, 0), zero.dtype), jnp.zeros((0, 0), zero.dtype))


class Expansion(NamedTuple):
    """log p(rows of each member) at a point, and its two derivatives in the member's one effect,
    (members,) each."""

    log: jax.Array
    slope: jax.Array
    curvature: jax.Array

    def information(self, plan: Plan, shift: jax.Array) -> Information:
        """The information of the rows at shifts δ of the effects, (members,)."""
        log, slope, bend = self._shifted(plan, shift)
        none = jnp.zeros(0, log.dtype)
        return Information(log.sum(), EffectVector(slope[:, None], none), -bend[:, None, None],
                           jnp.zeros((len(log), 1, 0), log.dtype), none.reshape(0, 0))

    def member_logs(self, plan: Plan, shifts: jax.Array) -> jax.Array:
        """log p of the rows of each member at several shifts, (members, points)."""
        return jax.vmap(lambda shift: self._shifted(plan, shift)[0], 1, 1)(shifts)

    def _shifted(self, plan: Plan, shift: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Value and derivatives, from b = slope − bend / c and k = −bend / c². Where b is a
        difference of numbers so large that it is rounding, so is the value: lower by more than
        that, so that no density is high there."""
        c = present(plan.groupings[0].exponent)
        rise, lost = self.curvature / c * jnp.expm1(c * shift), jnp.abs(self.curvature / c * shift)
        lost *= ROUNDINGS * jnp.finfo(lost.dtype).eps
        log = self.log + (self.slope - self.curvature / c) * shift + rise / c
        log -= jnp.where(lost > MAX_LOST, lost, 0.0)
        return log, self.slope + rise, self.curvature * jnp.exp(c * shift)


def expand(plan: Plan, params: Mapping, known: Known, rows: Chunk,
           point: Mapping[str, jax.Array]) -> Expansion:
    """The expansion of a chunk of weighted rows about one effect at `point`."""
    (grouping,), has_weight = plan.groupings, rows.weights > 0

    def logs(shift: jax.Array) -> jax.Array:
        return row_logs(plan, params, known, rows,
                        {name: value + shift for name, value in point.items()})

    def with_slopes(shift: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(logs, (shift,), (jnp.ones_like(shift),))

    zero = jnp.zeros((), rows.weights.dtype)
    (log, slope), (_, bend) = jax.jvp(with_slopes, (zero,), (jnp.ones_like(zero),))
    owner = information.member_of_each_row(grouping, rows, len(rows.weights))

    def by_member(column: jax.Array) -> jax.Array:  # one by one: XLA is slow with three at once
        return jax.ops.segment_sum(column, owner, grouping.members)

    return Expansion(by_member(weighted_log(rows.weights, log)), *(
        by_member(jnp.where(has_weight, rows.weights * column, 0.0)) for column in (slope, bend)))


def slopes(plan: Plan, params: Mapping, known: Known, rows: Chunk,
           point: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """∂ log p(a chunk of rows) / ∂ effects at `point`, name → its shape."""
    return jax.grad(_total(plan, params, known, rows))(dict(point))


def member_logs(plan: Plan, params: Mapping, known: Known, rows: Chunk,
                points: Mapping[str, jax.Array]) -> jax.Array:
    """log p of the rows of each member of the one grouping at several points, name → (points,
    *shape): (members, points)."""
    (grouping,) = plan.groupings
    owner = information.member_of_each_row(grouping, rows, len(rows.weights))

    def at(point: Mapping) -> jax.Array:
        logs = row_logs(plan, params, known, rows, point)
        return jax.ops.segment_sum(weighted_log(rows.weights, logs), owner, grouping.members)

    return jax.vmap(at)(dict(points)).T


def row_logs(plan: Plan, params: Mapping, known: Known, rows: Chunk,
             point: Mapping[str, jax.Array]) -> jax.Array:
    """log p of the sites of each row that depend on random effects, at one point of these, (b,)."""
    sites, fixed = plan.structure.sites, {**environment(plan, params, known), **point}

    def row_log(varying: Mapping, values: Mapping, masks: Mapping) -> jax.Array:
        return sum((log_density(plan.structure, sites[name], {**fixed, **varying[name]},
                                values[name], masks.get(name)) for name in plan.grouped),
                   start=jnp.zeros(()))

    return jax.vmap(row_log, axis_size=len(rows.weights))(
        {name: row_environment(plan, known, rows, name) for name in plan.grouped},
        {name: rows.values[name] for name in plan.grouped},
        {name: rows.observed[name] for name in plan.grouped if name in rows.observed})


def _total(plan: Plan, params: Mapping, known: Known, rows: Chunk):
    return lambda point: weighted_log(rows.weights,
                                      row_logs(plan, params, known, rows, point)).sum()


def _by_member(plan: Plan, arrays: Mapping[str, jax.Array]) -> jax.Array:
    """Arrays of the shapes of the one grouping's effects → (members, cells)."""
    (grouping,) = plan.groupings
    return jnp.concatenate([information.by_member(grouping, i, arrays[name])
                            for i, name in enumerate(grouping.names)], -1)


def _crossed_information(plan: Plan, params: Mapping, known: Known, rows: Chunk,
             point: Mapping[str, jax.Array], units: Mapping[str, jax.Array]) -> Information:
    """The information for several groupings: a row reads one member of each."""

    def logs(shift: jax.Array) -> jax.Array:
        u = {name: value + jnp.tensordot(shift, units[name], 1) for name, value in point.items()}
        return weighted_log(rows.weights, row_logs(plan, params, known, rows, u))

    zero = jnp.zeros(sum(grouping.cells for grouping in plan.groupings), rows.weights.dtype)
    gradient = jax.jacfwd(logs)
    owners = [information.member_of_each_row(grouping, rows, len(rows.weights))
              for grouping in plan.groupings]
    return information.add_by_member(plan, owners, logs(zero).sum(), gradient(zero),
                                     -jax.jacfwd(gradient)(zero))
