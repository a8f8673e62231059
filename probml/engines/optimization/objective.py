"""The objective, log posterior or log-likelihood, as a function of unbounded coordinates, and the
maps between parameters and these; compiled."""

from collections.abc import Mapping

import jax

from probml.device.rows import Known, Rows, Summary
from probml.evidence import density
from probml.evidence.density import log_posterior_and_gradient, unbounded_by_name
from probml.evidence.e_step import log_evidence
from probml.factors.naturals import log_prior
from probml.numerics.compiling import ONCE, jit
from probml.plan.plan import Plan

# parameters → unbounded coordinates, both by name
to_coordinates = jit(unbounded_by_name, static_argnames=("plan",), seldom=ONCE)

# parameters → unbounded coordinates in one vector, (d,)
flat = jit(density.to_unbounded, static_argnums=0, seldom=ONCE)


@jit(static_argnames=("plan",), seldom=ONCE)
def from_coordinates(plan: Plan, u: Mapping, known: Known):
    """Unbounded coordinates by name → parameters."""
    return density.from_unbounded_by_name(plan, u, known)[0]


@jit(static_argnames=("plan",), seldom=ONCE)
def unflat(plan: Plan, u: jax.Array, known: Known) -> dict[str, jax.Array]:
    """Unbounded coordinates in one vector, (d,) → parameters."""
    return density.from_unbounded(plan, u, known)[0]


@jit(static_argnames=("plan", "prior"))
def objective(plan: Plan, prior: bool, u: jax.Array, known: Known, rows: Rows):
    """The objective of MAP and its gradient, at unbounded coordinates by name."""
    return log_posterior_and_gradient(plan, prior, u, known, rows)


@jit(static_argnames=("plan", "prior"), seldom=ONCE)
def objective_value(plan: Plan, prior: bool, u: Mapping, known: Known,
                    rows: Rows | Summary) -> jax.Array:
    """The objective of MAP alone, at unbounded coordinates by name."""
    params = density.from_unbounded_by_name(plan, u, known)[0]
    value = log_evidence(plan, params, known, rows)
    return value + log_prior(plan, params, known, True) if prior else value


