"""Stochastic variational inference (Hoffman et al. 2013): q(θ) is updated after every batch of
rows, see restarting/batches.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.engines.conjugate.runs import add_means, initial_posteriors
from probml.engines.conjugate.sweep import averaged_e_step, negative_divergence, updated
from probml.engines.engine import Engine, Problem, Status
from probml.engines.restarting import batches
from probml.engines.start.start import Start
from probml.evidence.expected import Expected
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.posteriors.posterior import Posterior


@dataclass(frozen=True)
class MeanField:
    """q(θ), updated to its optimum given statistics."""

    def update_point(self, plan: Plan, expected: Expected, point: Closed, known: Known,
                     rows: Rows | Summary) -> Closed:
        return updated(plan, expected, point.params, known, rows, point)

    def point_of_fit(self, params: Mapping, posterior: Posterior) -> Closed:
        assert isinstance(posterior, Closed)
        return posterior

    def statistics_and_evidence(self, plan: Plan, point: Closed, known: Known,
                                rows: Rows) -> tuple[Any, jax.Array]:
        found = averaged_e_step(plan, point, known, rows)[0]
        return found.statistics, found.log_evidence

    def validity_and_prior(self, plan: Plan, point: Closed, known: Known,
                           rows: Rows | Summary) -> tuple[jax.Array, jax.Array]:
        value = negative_divergence(plan, point, known)
        return jnp.isfinite(value), value

    def found(self, plan: Plan, point: Closed, known: Known) -> tuple[dict[str, Any], Closed]:
        closed = jax.device_get(add_means(plan, point, known))
        return dict(closed.mean), closed


def run(problem: Problem, brief: Engine, batch_rows: int, max_iterations: int, tolerance: float,
        progress: bool) -> tuple[Closed, np.ndarray, Status, Any]:
    """q(θ) after passes over the rows in batches, the bound of all rows after each, the status, and
    the expected statistics of all rows.

    Args:
        brief: finds the first point, on a sample of the rows.
    """
    params = batches.first_point(problem, brief, batch_rows)
    first = Start({name: value[None] for name, value in params.items()}, None, {})
    start = initial_posteriors(problem.plan, first, problem.known, problem.rows, {})
    point = jax.tree.map(lambda leaf: leaf[0], start.closed)
    return batches.run_passes("VB", MeanField(), problem, point, batch_rows, max_iterations,
                              tolerance, progress)
