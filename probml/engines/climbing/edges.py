"""Off the edge: a climb in logarithms may carry a spread so near to 0 that nothing pulls it back.

A spread at 0 can be a maximum (lme4 calls such a fit singular), but an end beside it need not be
one: the density is flat there, whatever lies beyond, and a correlation of the wrong sign makes the
first step away lead down. So the spread is tried at larger values, with the correlations as they
are and at their prior's middle, and what is higher is climbed from.
"""

import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.climbing.coordinates import to_coordinates
from probml.engines.engine import Outcome, Problem
from probml.engines.start.prior import compiled_prior_point
from probml.evidence.density import climbed
from probml.numerics.compiling import jit
from probml.numerics.tiers import ONCE
from probml.numerics.transfer import placed_all
from probml.plan.plan import Plan
from probml.plan.spreads import spreads

FALLEN = 3.0  # logarithms below the prior's point from which a spread is looked at
TRIED = 4.0 ** -np.arange(10)  # of the prior's point
HIGHER = 1e-3  # nats that are worth another climb
ROUNDS = 4


def off_edge(problem: Problem, prior: bool, outcome: Outcome,
             climb: Callable[[Mapping], Outcome]) -> Outcome:
    """What was found, or what is found from where a spread next to 0 is raised, if that is higher.

    Args:
        climb: parameters to begin with → what is found from there.
    """
    for _ in range(ROUNDS if problem.plan.groupings else 0):
        point = _raised(problem, prior, outcome)
        if point is None:
            break
        other = climb(point)
        if not other.history[-1] > outcome.history[-1]:
            break
        outcome = other._replace(
            history=np.concatenate([outcome.history, other.history[1:]]),
            iterations=outcome.iterations + other.iterations)
    return outcome


def _raised(problem: Problem, prior: bool, outcome: Outcome) -> dict | None:
    """The best of the points at which one spread that ended next to 0 is raised; None where none is
    higher than the end."""
    plan, known = problem.plan, problem.known
    middle = jax.device_get(compiled_prior_point(plan, known))
    params = {name: np.asarray(outcome.params[name]) for name in plan.free}
    points = []
    for name in spreads(plan):
        for index in map(tuple, np.argwhere(params[name] < np.exp(-FALLEN) * middle[name])):
            for way in ({}, {other: middle[other] for other in _shapes(plan)}):
                for share in TRIED:
                    raised = params[name].copy()
                    raised[index] = max(share * middle[name][index], raised[index])
                    points.append({**params, **way, name: raised})
    if not points:
        return None
    stacked = {name: np.stack([point[name] for point in points]) for name in plan.free}
    values = np.asarray(_values(plan, prior, placed_all(stacked), known, problem.rows))
    best = int(np.nanargmax(np.where(np.isfinite(values), values, -np.inf)))
    return placed_all(points[best]) if values[best] > outcome.history[-1] + HIGHER else None


def _shapes(plan: Plan) -> list[str]:
    """Parameters that shape effects beside their spreads: correlations and shares."""
    sites = plan.structure.sites
    near = {p for name in (*plan.effects, *plan.grouped) for p in sites[name].parents}
    return [name for name in plan.free if name in near and not sites[name].domain.unbounded
            and not sites[name].domain.log_scale]


@functools.partial(jit, static_argnums=(0, 1), seldom=ONCE)
def _values(plan: Plan, prior: bool, points: Mapping, known: Known, rows: Rows) -> jax.Array:
    return jax.lax.map(lambda point: jnp.asarray(climbed(
        plan, prior, to_coordinates(plan, point, known), known, rows)[0]), points)
