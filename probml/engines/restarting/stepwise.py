"""Stepwise EM (Cappé & Moulines 2009): an M-step after every batch of rows, see batches.py; and
E-steps and M-steps separately, for rows that are added to a fit (fits/stepping.py)."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from probml.device.rows import Known, Rows, Summary
from probml.engines.restarting.batches import IncrementalUpdate, expected_of
from probml.evidence.expected import Expected
from probml.evidence.passes import expect
from probml.factors.digits import collapsed
from probml.factors.prior import log_prior
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.posteriors.posterior import Point, Posterior
from probml.updates.updates import maximise


@dataclass(frozen=True)
class PointUpdate:
    """Point estimates, updated by M-steps."""

    prior: bool
    hard: bool

    def update_point(self, plan: Plan, expected: Expected, point: Mapping, known: Known,
                     rows: Rows | Summary) -> dict[str, jax.Array]:
        found = maximise(plan, expected, point, known, rows, self.prior)
        return {name: found[name] for name in point}

    def point_of_fit(self, params: Mapping, posterior: Posterior) -> dict[str, Any]:
        return dict(params)

    def statistics_and_evidence(self, plan: Plan, point: Mapping, known: Known,
                                rows: Rows) -> tuple[Any, jax.Array]:
        found = expect(plan, point, known, rows, self.hard)
        return found.statistics, found.log_evidence

    def validity_and_prior(self, plan: Plan, point: Mapping, known: Known,
                           rows: Rows | Summary) -> tuple[jax.Array, jax.Array]:
        prior = log_prior(plan, point, known, mode=True) if self.prior else jnp.zeros(())
        return ~collapsed(plan, point, known, rows), prior

    def found(self, plan: Plan, point: Mapping, known: Known) -> tuple[dict[str, Any], Posterior]:
        return dict(point), Point()


@functools.partial(jit, static_argnums=(0, 1))
def expected_statistics(plan: Plan, way: IncrementalUpdate, point: object, known: Known,
                        rows: Rows) -> tuple[Any, jax.Array]:
    """Expected statistics of the rows at a point, and the part of the objective that depends on
    them."""
    return way.statistics_and_evidence(plan, point, known, rows)


@functools.partial(jit, static_argnums=(0, 1))
def improve_point(plan: Plan, way: IncrementalUpdate, summary: Summary, point: object,
             known: Known) -> tuple[Any, jax.Array, jax.Array]:
    """The optimum given statistics, starting from a point; whether it is valid; and the part of the
    objective at the point before that does not depend on rows."""
    found = way.update_point(plan, expected_of(summary.statistics), point, known, summary)
    whole = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(found)]))
    return (found, whole & way.validity_and_prior(plan, found, known, summary)[0],
            way.validity_and_prior(plan, point, known, summary)[1])
