"""How far each number of a point may be off: standard errors from the curvature where a climb
ended.

With g what was maximised (the log posterior, or the log likelihood) and û its maximum in unbounded
coordinates u, the observed information is H = −∇²g(û), all that is unseen summed or integrated out
(of a mixture it is Louis' 1982, since g is the log density of what is seen). A number θ = h(u) has

    sd(θ)² = ∇h(û)ᵀ H⁻¹ ∇h(û),

the delta method; at a maximum it is the same whichever coordinates u are. It is a width of the
curvature, not of a posterior: of few rows, or skew, these differ (Laplace, NUTS).

Beside effects v of groups, which are integrated out, coefficients β are the parameters that say
where rows, or effects, lie; the others say how wide. Of normal rows whose means are affine in both,
β has its errors given the widths, by generalised least squares, as lme4, nlme and SAS have them:
the expected information between the two is 0. Effects v | β, rows ~ N(v̂(β), C) have

    C + (∂v̂/∂β) Cov(β) (∂v̂/∂β)ᵀ,

the inverse of the joint information of β and v, given the widths (Henderson 1975).
"""

import functools
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data
from probml.device.load import load
from probml.device.rows import Known, Rows
from probml.engines import importance
from probml.engines.engine import Engine, planned
from probml.engines.findings import Code, Finding
from probml.engines.optimization.identifiability import (
    MAX_DIFFERENCED_COORDINATES,
    describe_direction,
    domain_flags,
    repeat_per_coordinate,
)
from probml.engines.optimization.maximization import is_smooth
from probml.engines.optimization.objective import flat, optimum_at
from probml.engines.progress import Progress
from probml.evidence import density
from probml.evidence.effects import means
from probml.numerics.compile_effort import ASKED
from probml.numerics.compiling import jit
from probml.numerics.curvature import MAX_HESSIAN_COORDINATES, MIN_CURVATURE, scaled, units
from probml.numerics.optimum import Optimum
from probml.numerics.refinement import refine_with_hessians
from probml.numerics.transfer import placed_all
from probml.plan import decide, effects
from probml.plan.plan import Plan
from probml.plan.spreads import spreads
from probml.posteriors.pareto import k_limit
from probml.posteriors.units import Unit, ways_in_units
from probml.structure.trace import trace

WORDS = ("standard errors: square roots of the diagonal of the inverse observed information matrix "
         "at the estimate; they are not posterior standard deviations")
# curvature of a logarithm or a logit that hardly tells it: 3 widths are a factor of 10,000
EDGE = 0.1
FAR = 100.0  # coordinate of a logarithm or a logit, 4e-44, that is at the edge of the support
# curvature, every coordinate in units of its own width, that is none: of derivatives, differences
ROUNDED, ROUGH = 1e-11, MIN_CURVATURE[np.dtype(np.float64)]
LOADED = 1e-6  # share of the square of a number's way along what is not told, that is none
SHORT = 0.125  # nats, half a standard error, that may be left to gain
HALF = 0.3  # nats that the fall one width away may differ from half of one
HELD = 2**22  # numbers of the rows that a fit of a point holds on to: 32 MiB
WIDE = 2**26  # numbers of all ways of all that is told
LOOKED, AWAY = 400, 0.5  # draws of a look at the posterior; deviations that its mean may be away
WORK = 2**28  # numbers that differences pass over unasked: some ten seconds


class Again(NamedTuple):
    """What was fitted, for what is asked of its curvature later.

    Attributes:
        data: the rows, in the user's own arrays where these are numbers. weights: (n,); None: 1
            each. first: the engine for which they were planned.
        stamp: a checksum of them when they were fitted, by which a change in place is found out.
    """

    data: Data
    weights: np.ndarray | None
    first: Engine
    stamp: int | None = None


class Widths(NamedTuple):
    """Standard errors.

    Attributes:
        root: name → (k, *shape), columns of a root of the joint covariance (posteriors/units.py),
            NaN where there is none; of effects of groups the part that coefficients add to their
            covariance given these. why: name → why, in words; "": of all.
        posterior: that the posterior is far from the normal distribution at the point, or its mean
            from the point; None: neither, or it was not asked.
        moves: name → (directions, *shape), how parameters move along every direction, also those
            that are not identified. curvature, identified: of each direction.
    """

    root: Mapping[str, np.ndarray]
    why: Mapping[str, str]
    posterior: Finding | None = None
    moves: Mapping[str, np.ndarray] = {}
    curvature: np.ndarray = np.zeros(0)
    identified: np.ndarray = np.zeros(0, bool)

    @classmethod
    def of(cls, moves: Mapping[str, np.ndarray], curvature: np.ndarray, identified: np.ndarray,
           why: Mapping[str, str], posterior: Finding | None = None) -> "Widths":
        """From how parameters move along each direction."""
        bare = cls({}, why, posterior, moves, curvature, identified)
        return bare._replace(root={name: bare.root_of(own) for name, own in moves.items()})

    def root_of(self, moves: np.ndarray) -> np.ndarray:
        """A root of the covariance, (k, *shape), of what moves so along the directions, such as a
        function of parameters; NaN where it moves along one that is not identified."""
        square = moves**2
        lost = square[~self.identified].sum(0) > LOADED * square.sum(0)
        long = self.curvature[self.identified].reshape(-1, *(1,) * (square.ndim - 1)) ** -0.5
        return np.where(lost, np.nan, moves[self.identified] * long)


def keep_for_refits(engine: Engine, first: Engine, data: Data,
                    weights: np.ndarray | None) -> Again | None:
    """The data with which a point estimate can be refitted later; None where the rows are many, or
    read in parts."""
    few = data.survey is None and data.table.rows * max(data.numbers, 1) <= HELD
    if not few or engine.capabilities.finds != "point":
        return None
    return Again(data, weights, first, _stamp(data, weights))


def _stamp(data: Data, weights: np.ndarray | None) -> int:
    """A checksum of rows and weights; a GB takes about a second."""
    table, found = data.table, 0
    arrays = [*table.inputs.values(), *table.values.values(), weights]
    arrays += [part for column in table.columns.values()
               for part in (column.values, column.seen, column.likelihood)]
    for array in arrays:
        if array is not None and not np.asarray(array).dtype.hasobject:
            found = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, found)
    return found


def standard_errors(again: Again, engine: Engine, point: Mapping[str, np.ndarray],
                    units: Mapping[str, Unit], computed: bool, patient: bool = False) -> Widths:
    """The standard errors of a point, told in units; in double, whatever it was found in.

    Args:
        engine: that found it. computed: what the model computes outside rows is told of too.
        patient: however long it takes.

    Cost: of a regression a Hessian; else four gradients a parameter, each a pass over all rows.
    """
    if again.stamp is not None and again.stamp != _stamp(again.data, again.weights):
        return Widths({}, {"": "the data array was changed in place after the fit: use "
                               "fit.summary(data)"})
    with Progress("standard errors", None, False), jax.enable_x64(True):
        data = again.first.taken(again.data._replace(structure=trace(again.data.model,
                                                                     again.data.shapes)))
        plan = planned(data, again.first)
        missing = next((name for name in plan.free if name not in point), None)
        if missing is not None or not plan.free:
            return Widths({}, {"": f"'{missing}' is not a parameter of the fit"} if missing else {})
        sites = plan.structure.sites
        bent = next((name for name in (*plan.rowwise, *plan.pooled, *plan.free)
                     if sites[name].entry.kinked), None)
        if bent is not None:
            return Widths({}, {"": f"the density of '{bent}' ({sites[bent].kind}) has a kink, "
                                   f"where it has no second derivative"})
        size = sum(int(np.prod(sites[name].shape)) for name in plan.free)
        if size > MAX_HESSIAN_COORDINATES:
            return Widths({}, {"": f"{size:,} parameters are more than "
                                   f"{MAX_HESSIAN_COORDINATES:,}, the limit for the matrix of "
                                   f"second derivatives"})
        passed = 4 * size * data.table.rows * (data.numbers + 1)
        if not (patient or is_smooth(plan)) and passed > WORK:
            return Widths({}, {"": f"{4 * size:,} passes over all rows would take long: "
                                   f"fit.summary(data) computes them"})
        rows, known = load(data, plan, again.weights, params=point)
        params = placed_all({name: np.asarray(point[name], float) for name in plan.free})
        u = np.array(flat(plan, params, known))
        far = domain_flags(plan, "logarithmic") & (np.abs(u) > FAR)
        u[far] = np.sign(u[far]) * density.EDGE  # further out derivatives underflow
        top = _top(plan, engine.capabilities.uses_prior, u, known, rows)
        ways = _ways(plan, top, known)
        if isinstance(ways, str):
            return Widths({}, {"": ways})
        told = sum(spec.size for spec in jax.eval_shape(
            functools.partial(_reported_values, plan, computed), u, u, known, rows).values())
        if u.size * told > WIDE:
            return Widths({}, {"": f"{told:,} computed numbers and {u.size:,} parameters are too "
                                   f"many for the delta method"})
        beside = ways.along.T * repeat_per_coordinate(plan,
                                              _coefficients(plan).__contains__)
        found = jax.device_get(_derivatives_along(plan, computed, u, ways.along.T, beside, known,
                                                  rows))
        return _widths(ways_in_units(units, found), ways)._replace(
            posterior=(_posterior(plan, known, rows, top, ways)
                       if engine.capabilities.uses_prior else None))


def _posterior(plan: Plan, known: Known, rows: Rows, top: Optimum,
               ways: "_Ways") -> Finding | None:
    """How far the posterior is from the normal distribution at the point, by weighted draws of it
    (engines/importance.py): None where rows are many, or a direction has no width.

    Cost: `LOOKED` densities, four times as many at the most.
    """
    work = max(importance.work(plan, known, rows), rows.size * plan.width)  # nodes, too
    if not ways.told.all() or plan.globals or LOOKED * work > importance.MAX_WORK:
        return None
    mode = importance.proposal(top.point, ways.along / np.sqrt(ways.curvature))
    found = importance.weighted(importance.densities_of(plan, known, rows), [mode], LOOKED)
    if found.k > k_limit(len(found.weights)):
        return Finding.of(Code.K_HAT, k=found.k, limit=k_limit(len(found.weights)))
    deviation = np.sqrt(found.weights @ (found.points - found.mean) ** 2)
    away = np.abs(found.mean - top.point) / deviation
    worst = int(np.argmax(away))
    return None if away[worst] < AWAY else Finding.of(
        Code.MODE_FAR_FROM_MEAN, density.owners(plan)[worst], away=away[worst])


class _Ways(NamedTuple):
    """Directions of unbounded coordinates, (d, k) one a column, across one another; the curvature
    along each; whether it is one; and what is said of those along which it is none."""

    along: np.ndarray
    curvature: np.ndarray
    told: np.ndarray
    why: tuple[str, ...]


def _ways(plan: Plan, top: Optimum, known: Known) -> _Ways | str:
    """The directions in which the curvature at a point is a width of its own; in words why there
    are none."""
    hessian, owners = top.hessian, density.owners(plan)
    apart = repeat_per_coordinate(plan, _mean_coefficients(plan).__contains__)
    hessian = np.where(apart[:, None] == apart, hessian, 0.0)
    if not (np.isfinite(hessian).all() and np.isfinite(top.gradient).all()):
        return "the objective has no finite second derivatives at the estimate"
    edge = domain_flags(plan, "logarithmic") & (
        (np.abs(np.diagonal(hessian)) < EDGE) | (np.abs(top.point) == density.EDGE))
    unit = np.where(edge, EDGE**-0.5, units(hessian))
    bent = np.where(edge[:, None] | edge, 0.0, scaled(hessian, unit))
    curvature, axes = np.linalg.eigh(bent)
    along, told = unit[:, None] * axes, curvature > (ROUNDED if is_smooth(plan) else ROUGH)
    level = np.flatnonzero(~told & (np.abs(axes[~edge]).max(0, initial=0.0) > ROUGH))
    if (level.size and not (is_smooth(plan) or edge.any())
            and len(unit) <= MAX_DIFFERENCED_COORDINATES):
        root = _widely_scaled_root(top)
        if root is not None:
            along, curvature = root, np.ones(len(unit))
            told, level = np.ones(len(unit), bool), level[:0]
    left = 0.5 * float(np.sum((top.gradient @ along)[told] ** 2 / curvature[told]))
    if not left <= SHORT:
        return (f"the estimate is {np.sqrt(2 * left):.2g} standard errors away from the maximum")
    why = ("at the boundary of its support",) * bool(edge.any())
    if level.size:
        way = describe_direction(along[:, level[0]], np.abs(np.diagonal(hessian)), owners)
        why += (f"the curvature is not positive along {way}: "
                + ("not identified" if curvature[level[0]] > -ROUGH else "no maximum"),)
    return _Ways(along, curvature, told, why)


def _widely_scaled_root(top: Optimum) -> np.ndarray | None:
    """Coordinates in which the curvature is 1, (d, d), where the standard deviations differ by so
    many orders of magnitude that one difference step does not suffice; None where moving by one
    standard deviation does not cost half a nat."""
    found = refine_with_hessians(top.evaluate, top.point)
    if not (found.reliable and np.isfinite(found.predicted_gain)):
        return None
    falls = np.array([[top.value - top.value_at(top.point + side * way) for side in (1, -1)]
                      for way in found.root.T])
    return found.root if np.abs(falls - 0.5).max() < HALF else None


def _widths(found: Mapping[str, np.ndarray], ways: _Ways) -> Widths:
    """From the way of each number along each direction, (k, *shape), a root of its covariance."""
    moves = {name: np.asarray(value, float) for name, value in found.items()}
    widths = Widths.of(moves, ways.curvature, ways.told, {})
    return widths._replace(why={name: "; ".join(ways.why) for name, value in widths.root.items()
                                if np.isnan(value).any()})


def _coefficients(plan: Plan) -> set[str]:
    """Beside effects of groups, the parameters that say where rows and effects lie, and not how
    wide."""
    sites, wide = plan.structure.sites, {width.name for width in spreads(plan)}
    for name in (name for name in plan.grouped if sites[name].family is not None):
        wide |= {p for argument in sites[name].traits.scatter
                 for p in sites[name].uses.get(argument, ())}
    return {name for name in plan.free if plan.groupings and sites[name].domain.unbounded
            and name not in wide}


def _mean_coefficients(plan: Plan) -> set[str]:
    """The coefficients that change the means of normal rows and leave their covariance
    unchanged."""
    if any(grouping.nodes for grouping in plan.groupings):
        return set()
    whole = decide.make(plan.structure, plan.pattern, plan.given)
    return _coefficients(plan) & {*effects.coefficients(whole, plan.effects),
                                  *effects.centres(plan)}


def _top(plan: Plan, prior: bool, u: np.ndarray, known: Known, rows: Rows) -> Optimum:
    """The point as the end of a climb, with its second derivatives where these can be taken."""
    second = -np.asarray(_second(plan, prior, u, known, rows)) if is_smooth(plan) else None
    return optimum_at(plan, prior, u, known, rows, second, ASKED)


@functools.partial(jit, static_argnums=(0, 1), seldom=ASKED)
def _second(plan: Plan, prior: bool, u: jax.Array, known: Known, rows: Rows) -> jax.Array:
    return density.value_gradient_hessian(plan, density.without_volume(plan, known), u, known, rows,
                                          prior, mode=True)[2]


@functools.partial(jit, static_argnums=(0, 1), seldom=ASKED)
def _derivatives_along(plan: Plan, computed: bool, u: jax.Array, ways: jax.Array, beside: jax.Array,
                       known: Known, rows: Rows) -> dict[str, jax.Array]:
    """Derivatives of parameters, effects and quantities computed from both along each of the
    directions (k, d); effects along those of coefficients alone."""
    return jax.lax.map(lambda way: jax.jvp(
        lambda u, v: _reported_values(plan, computed, u, v, known, rows), (u, u), way)[1],
                       (ways, beside))


def _reported_values(plan: Plan, computed: bool, u: jax.Array, beside: jax.Array, known: Known,
                     rows: Rows) -> dict[str, jax.Array]:
    """Parameters, and what is computed from them, at unbounded coordinates (d,); effects of groups,
    and what is computed from these, at coordinates of their own."""
    params, structure = density.unflat(plan, u, known)[0], plan.structure
    grouped, other = {}, params
    if plan.groupings:
        other = density.unflat(plan, beside, known)[0]
        grouped = means(plan, other, known, rows.total)
    found = {**params, **grouped}
    for name in structure.derived if computed else ():
        by_effects = not grouped.keys().isdisjoint(structure.deterministics[name].parents)
        found[name] = structure.computed(name, {
            **known.given, **(other if by_effects else params), **grouped})
    return {name: jnp.asarray(value, float) for name, value in found.items()}
