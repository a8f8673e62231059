"""Between parameters and the coordinates in which they are climbed or drawn, compiled."""

import functools
from collections.abc import Mapping

import jax

from probml.device.rows import Known, Rows
from probml.evidence import density
from probml.evidence.density import climbed, from_free, to_free
from probml.evidence.density import unflat as unflattened
from probml.numerics.compiling import jit
from probml.numerics.tiers import ONCE
from probml.plan.plan import Plan

to_coordinates = functools.partial(jit, static_argnames=("plan",))(to_free)

# parameters → one vector of them, (d,)
flat = jit(density.flat, static_argnums=0, seldom=ONCE)


@functools.partial(jit, static_argnames=("plan",), seldom=ONCE)
def from_coordinates(plan: Plan, u: Mapping, known: Known):
    return from_free(plan, u, known)[0]


@functools.partial(jit, static_argnames=("plan",), seldom=ONCE)
def unflat(plan: Plan, u: jax.Array, known: Known) -> dict[str, jax.Array]:
    """The parameters at unbounded coordinates that stand in one vector."""
    return unflattened(plan, u, known)[0]


@functools.partial(jit, static_argnames=("plan", "prior"))
def objective(plan: Plan, prior: bool, u, known: Known, rows: Rows):
    """What MAP climbs, and its gradient, at unbounded coordinates."""
    return climbed(plan, prior, u, known, rows)
