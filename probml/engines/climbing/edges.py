"""Off the edge: a climb in logarithms may carry a width so near to 0, or a correlation so near to
±1, that nothing pulls it back.

A spread at 0 can be a maximum (lme4 calls such a fit singular), and so can the noise of a column
(a Heywood case of factor analysis), but an end beside it need not be one: the density is flat
there, whatever lies beyond, and a correlation of the wrong sign makes the first step away lead
down. So the width is tried at larger values, with the correlations as they are and at their prior's
middle, and what is higher is climbed from.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.climbing.climbs import curved, height
from probml.engines.climbing.coordinates import to_coordinates
from probml.engines.climbing.search import Maximize, Proposal
from probml.engines.engine import Outcome, Problem
from probml.engines.start.prior import compiled_prior_point
from probml.evidence.density import climbed
from probml.numerics.compiling import jit
from probml.numerics.tiers import ONCE
from probml.numerics.transfer import placed_all
from probml.plan.plan import Plan
from probml.plan.spreads import Width, correlations, noises, spreads

FALLEN = 3.0  # logarithms below what is usual from which a width is looked at
TRIED = -np.log(4.0) * np.arange(10)  # logarithms from what is usual
LESS = np.log(0.3)  # of a width that matters to nothing any more
HIGHER = 1e-3  # nats that are worth another climb
ROUNDS = 4


class Edge(NamedTuple):
    """A number of a width that lies near 0.

    Attributes:
        usual: the logarithm of the width that its prior, or the others of its kind, would have.
        seen: it is of what is seen, not of latents or effects.
    """

    width: Width
    index: tuple[int, ...]
    usual: float
    seen: bool

    def moved(self, params: Mapping[str, np.ndarray], logarithm: float) -> np.ndarray:
        """The parameter with this number at a width."""
        value = np.array(params[self.width.name], float)
        value[self.index] = self.width.value(np.asarray(logarithm))
        return value

    def logarithm(self, params: Mapping[str, np.ndarray]) -> float:
        return float(self.width.logarithm(np.asarray(params[self.width.name])[self.index]))


def edges(plan: Plan, known: Known, params: Mapping[str, np.ndarray]) -> list[Edge]:
    """The widths that have fallen far below what is usual."""
    middle, found = jax.device_get(compiled_prior_point(plan, known)), []
    for seen, widths in ((False, spreads(plan)), (True, noises(plan))):
        for width in widths:
            own = width.logarithm(np.asarray(params[width.name], float))
            usual = np.broadcast_to(width.logarithm(np.asarray(middle[width.name], float)),
                                    own.shape)
            if seen:  # columns have units, which a prior may not know
                usual = np.maximum(usual, own.max(initial=-np.inf))
            found += [Edge(width, index, float(usual[index]), seen)
                      for index in map(tuple, np.argwhere(own < usual - FALLEN))]
    return found


def singular(plan: Plan, params: Mapping[str, np.ndarray]) -> list[tuple[str, tuple[int, ...]]]:
    """Rows of factors of correlations that end near their edge: what is told of is nearly a sum of
    those before. Name and (..., row)."""
    found = []
    for name in correlations(plan):
        factor = plan.structure.sites[name].domain.factor(np.asarray(params[name], float))
        own = np.diagonal(factor, axis1=-2, axis2=-1)
        found += [(name, index) for index in map(tuple, np.argwhere(own < np.exp(-FALLEN)))]
    return found


def off_edge(problem: Problem, prior: bool, climb: Maximize) -> Proposal:
    """From where a scale next to 0, or a correlation next to ±1, is taken away from there."""
    plan = problem.plan

    def points(outcome: Outcome) -> list[Mapping]:
        found = _raised(problem, prior, outcome)
        return [] if found is None else [found]

    return Proposal("a larger scale", points, climb,
                    ROUNDS if (plan.groupings or plan.latents) and not plan.carried else 0)


def _raised(problem: Problem, prior: bool, outcome: Outcome) -> dict | None:
    """The best of the points at which one width that ended next to 0 is raised, or correlations are
    at their prior's middle; None where none is higher than the end."""
    plan, known = problem.plan, problem.known
    params = {name: np.asarray(outcome.params[name]) for name in plan.free}
    found, turned = edges(plan, known, params), singular(plan, params)
    if not (found or turned):
        return None
    middle = jax.device_get(compiled_prior_point(plan, known))
    least = outcome.history[-1] + HIGHER

    def at(points: list[dict]) -> np.ndarray:
        return heights(plan, prior, points, known, problem.rows)

    if found:  # narrow ones that the rows do tell, a pass each, are left alone
        less = at([{**params, edge.width.name: edge.moved(
            params, edge.logarithm(params) + LESS)} for edge in found])
        found = [edge for edge, value in zip(found, less, strict=True)
                 if outcome.history[-1] - value < HIGHER]
    shapes = {other: middle[other] for other in _shapes(plan)}
    points = [{**params, name: middle[name]} for name in dict.fromkeys(n for n, _ in turned)]
    for edge in found:
        for way in ({}, shapes) if shapes and not edge.seen else ({},):
            points += [{**params, **way, edge.width.name: edge.moved(
                params, max(edge.usual + share, edge.logarithm(params)))} for share in TRIED]
    if not points:
        return None
    values = at(points)
    best = int(np.argmax(values))
    return placed_all(points[best]) if values[best] > least else None


def heights(plan: Plan, prior: bool, points: list[dict], known: Any, rows: Any) -> np.ndarray:
    """What is climbed, at some points; −∞ where it is no number."""
    if curved(plan, known):  # by Newton's steps, so that no program of L-BFGS is there
        stacked = {name: np.stack([point[name] for point in points]) for name in plan.free}
        values = np.asarray(_values(plan, prior, placed_all(stacked), known, rows))
    else:
        values = np.array([height(plan, prior, {name: point[name] for name in plan.free}, known,
                                  rows) for point in points])
    return np.where(np.isfinite(values), values, -np.inf)


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
