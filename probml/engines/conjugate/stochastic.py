"""Stochastic variational inference (Hoffman et al. 2013): q(θ) moves after every batch of rows, see
restarting/batches.py."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.conjugate.runs import begun
from probml.engines.conjugate.sweep import averaged, bound, updated
from probml.engines.engine import Engine, Problem, Status
from probml.engines.restarting import batches
from probml.engines.start.start import Start
from probml.evidence.passes import Expected
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed


@dataclass(frozen=True)
class MeanField:
    """q(θ), at its optimum given the statistics of the rows."""

    def statistics(self, plan: Plan, point: Closed, known: Known, rows: Rows) -> Any:
        return averaged(plan, point, known, rows)[0].statistics

    def moved(self, plan: Plan, expected: Expected, point: Closed, known: Known,
              rows: Rows) -> Closed:
        return updated(plan, expected, point.params, known, rows, point)

    def objective(self, plan: Plan, point: Closed, known: Known,
                  rows: Rows) -> tuple[jax.Array, jax.Array]:
        value = bound(plan, point, known, rows)[1]
        return value, jnp.isfinite(value)


def refuse(engine: Engine, problem: Problem) -> None:
    """Raise Refusal where statistics are more than a sum over rows of one size."""
    batches.refuse(engine, problem, "SVI(batch_rows=...)")


def run(problem: Problem, brief: Engine, batch_rows: int, max_iterations: int, tolerance: float,
        progress: bool) -> tuple[Closed, np.ndarray, Status]:
    """q(θ) after passes over the rows in batches, the bound of all rows after each, and how it
    ended.

    Args:
        brief: finds the first point, on a sample of the rows.
    """
    params = batches.first(problem, brief, batch_rows)
    first = Start({name: value[None] for name, value in params.items()}, None, {})
    start = begun(problem.plan, first, problem.known, problem.rows, {})
    point = jax.tree.map(lambda leaf: leaf[0], start.closed)
    return batches.passes("VB", MeanField(), problem, point, batch_rows, max_iterations, tolerance,
                          progress)[:3]
