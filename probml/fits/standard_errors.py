"""Standard errors of a point estimate, from the curvature at the optimum.

With g the objective (the log posterior, or the log likelihood) and û its maximum in unbounded
coordinates u, the observed information is H = −∇²g(û), latent variables summed or integrated out
(of a mixture it is Louis' 1982, since g is the log density of the observed cells). A quantity
θ = h(u) has

    sd(θ)² = ∇h(û)ᵀ H⁻¹ ∇h(û),

the delta method; at a maximum it does not depend on the choice of u. It is not the standard
deviation of the posterior: these differ where rows are few or the posterior is skewed (Laplace,
NUTS).

In a mixed model, whose effects v of groups are integrated out, coefficients β are the parameters
that locate rows or effects; the others are variance components and scales. Where rows are normal
with means affine in β and v, β has its errors given the variance components, by generalised least
squares, as in lme4, nlme and SAS: the expected information between the two is 0. Effects
v | β, rows ~ N(v̂(β), C) have

    C + (∂v̂/∂β) Cov(β) (∂v̂/∂β)ᵀ,

the inverse of the joint information of β and v, given the variance components (Henderson 1975).
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

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
from probml.engines.progress import Progress
from probml.evidence import density
from probml.evidence.random_effects import conditional_means
from probml.fits.places import FittedRows, checksum
from probml.numerics.compiling import ASKED, jit
from probml.numerics.curvature import MAX_HESSIAN_COORDINATES, MIN_CURVATURE, scaled, units
from probml.numerics.optimum import Optimum
from probml.numerics.refinement import refine_with_hessians
from probml.numerics.transfer import placed_all
from probml.plan import decide, random_effects
from probml.plan.hierarchy import scale_parameters
from probml.plan.plan import Plan
from probml.posteriors.pareto import k_limit
from probml.posteriors.posterior import unconstrained
from probml.posteriors.units import Unit, roots_in_units
from probml.structure.trace import trace

NOTE = ("standard errors: square roots of the diagonal of the inverse observed information matrix "
        "at the estimate; not posterior standard deviations")
# curvature of a logarithm or a logit below which the parameter is at its boundary: 3 standard
# deviations are a factor of 10,000
BOUNDARY_CURVATURE = 0.1
MAX_LOG_COORDINATE = 100.0  # of a logarithm or a logit, 4e-44; further out is at the boundary
# least curvature of an identified direction, coordinates scaled to curvature 1: of second
# derivatives, and of differences of gradients
MIN_EXACT_CURVATURE, MIN_DIFFERENCED_CURVATURE = 1e-11, MIN_CURVATURE[np.dtype(np.float64)]
MAX_UNIDENTIFIED_SHARE = 1e-6  # of a squared derivative, along directions not identified
MAX_REMAINING_GAIN = 0.125  # nats that an optimiser may still gain: half a standard error
MAX_FALL_ERROR = 0.3  # nats between 1/2 and the fall of the objective one standard deviation away
INSTEAD = "use NUTS() for posterior standard deviations"
MAX_DERIVATIVES = 2**26  # numbers in the derivatives of all quantities along all directions
POSTERIOR_DRAWS = 400  # importance draws that compare the posterior with the point
MAX_MEAN_OFFSET = 0.5  # posterior standard deviations between the posterior mean and the point
MAX_UNASKED_WORK = 2**28  # numbers that differences pass over where no data are given: some 10 s


class StandardErrors(NamedTuple):
    """Standard errors, as a root of the joint covariance of all parameters.

    Attributes:
        root: name → (k, *shape), columns of a root of the joint covariance (posteriors/units.py),
            NaN where there is none; of effects of groups the part that coefficients add to their
            covariance given these. reasons: name → why it is NaN; "": of all parameters.
        posterior: the finding that the posterior is far from the normal distribution at the point,
            or its mean far from the point; None: neither, or not computed.
        derivatives: name → (directions, *shape), of parameters along every direction, also those
            that are not identified. curvature, identified: of each direction.
    """

    root: Mapping[str, np.ndarray]
    reasons: Mapping[str, str]
    posterior: Finding | None = None
    derivatives: Mapping[str, np.ndarray] = {}
    curvature: np.ndarray = np.zeros(0)
    identified: np.ndarray = np.zeros(0, bool)

    @classmethod
    def missing(cls, reason: str) -> "StandardErrors":
        """None of any parameter."""
        return cls({}, {"": reason})

    @classmethod
    def of(cls, derivatives: Mapping[str, np.ndarray], curvature: np.ndarray,
           identified: np.ndarray, reasons: Mapping[str, str],
           posterior: Finding | None = None) -> "StandardErrors":
        """From the derivatives of parameters along each direction."""
        bare = cls({}, reasons, posterior, derivatives, curvature, identified)
        return bare._replace(root={name: bare.root_of(own) for name, own in derivatives.items()})

    def root_of(self, derivatives: np.ndarray) -> np.ndarray:
        """A root of the covariance, (k, *shape), of a quantity with these derivatives along the
        directions; NaN where it changes along one that is not identified."""
        square = derivatives**2
        undefined = square[~self.identified].sum(0) > MAX_UNIDENTIFIED_SHARE * square.sum(0)
        curvature = self.curvature[self.identified].reshape(-1, *(1,) * (square.ndim - 1))
        return np.where(undefined, np.nan, derivatives[self.identified] * curvature**-0.5)


def standard_errors(fitted: FittedRows, engine: Engine, point: Mapping[str, np.ndarray],
                    units: Mapping[str, Unit], computed: bool,
                    unlimited: bool = False) -> StandardErrors:
    """The standard errors of a point, in the units of the user's columns; computed in float64.

    Args:
        engine: that found the point. computed: also of what the model computes outside rows.
        unlimited: however long it takes.

    Cost: of a regression a Hessian; else four gradients a parameter, each a pass over all rows.
    """
    obs = fitted.data
    if fitted.checksum not in (None, checksum(obs, fitted.weights)):
        return StandardErrors.missing("the array of the data was changed in place after the fit; "
                                      "call fit.summary(data) with the values before the change")
    with Progress("standard errors", None, False), jax.enable_x64(True):
        data = fitted.first.prepare_data(obs._replace(structure=trace(obs.model, obs.shapes)))
        plan = planned(data, fitted.first)
        missing = next((name for name in plan.free if name not in point), None)
        if missing is not None:
            return StandardErrors.missing(f"the fit has no estimate of '{missing}'; fit the model "
                                          f"again")
        if not plan.free:
            return StandardErrors({}, {})
        sites = plan.structure.sites
        kinked = next((name for name in (*plan.rowwise, *plan.pooled, *plan.free)
                       if sites[name].entry.kinked), None)
        if kinked is not None:
            return StandardErrors.missing(f"the density of '{kinked}' ({sites[kinked].kind}) is "
                                          "not differentiable everywhere, and standard errors need "
                                          f"second derivatives; {INSTEAD}")
        size = sum(int(np.prod(sites[name].shape)) for name in plan.free)
        if size > MAX_HESSIAN_COORDINATES:
            return StandardErrors.missing(f"the model has {size:,} parameters, more than the limit "
                                          f"of {MAX_HESSIAN_COORDINATES:,} for a matrix of second "
                                          f"derivatives; {INSTEAD}")
        work = 4 * size * data.table.rows * (data.numbers + 1)
        if not (unlimited or is_smooth(plan)) and work > MAX_UNASKED_WORK:
            return StandardErrors.missing(f"{4 * size:,} passes over all rows would be needed, "
                                          "which may take long. Call fit.summary(data) to compute "
                                          "them")
        rows, known = load(data, plan, fitted.weights, params=point)
        params = placed_all({name: np.asarray(point[name], float) for name in plan.free})
        u = np.array(unconstrained(plan, params, known))
        extreme = domain_flags(plan, "logarithmic") & (np.abs(u) > MAX_LOG_COORDINATE)
        u[extreme] = np.sign(u[extreme]) * density.EDGE  # further out derivatives underflow
        optimum = _optimum_with_hessian(plan, engine.capabilities.uses_prior, u, known, rows)
        directions = _find_directions(plan, optimum)
        if isinstance(directions, str):
            return StandardErrors.missing(directions)
        reported = sum(spec.size for spec in jax.eval_shape(
            functools.partial(_reported_values, plan, computed), u, u, known, rows).values())
        if u.size * reported > MAX_DERIVATIVES:
            return StandardErrors.missing(f"standard errors of {reported:,} reported numbers, "
                                          f"functions of {u.size:,} parameters (delta method), "
                                          f"need {reported * u.size:,} derivatives, more than the "
                                          f"limit of {MAX_DERIVATIVES:,}; {INSTEAD}")
        vectors = directions.vectors.T
        coefficients = repeat_per_coordinate(plan, _coefficients(plan).__contains__)
        derivatives = jax.device_get(_derivatives_along(plan, computed, u, vectors,
                                                        vectors * coefficients, known, rows))
        return _errors_from_derivatives(roots_in_units(units, derivatives), directions)._replace(
            posterior=(_check_posterior(plan, known, rows, optimum, directions)
                       if engine.capabilities.uses_prior else None))


def _check_posterior(plan: Plan, known: Known, rows: Rows, optimum: Optimum,
                     directions: "_Directions") -> Finding | None:
    """A finding where the posterior is far from the normal distribution at the point, by weighted
    draws of it (engines/importance.py); None: it is not, rows are many, or a direction is not
    identified.

    Cost: `POSTERIOR_DRAWS` densities, four times as many at the most.
    """
    work = max(importance.work(plan, known, rows), rows.size * plan.width)  # nodes, too
    if (not directions.identified.all() or plan.globals
            or POSTERIOR_DRAWS * work > importance.MAX_WORK):
        return None
    mode = importance.proposal(optimum.point, directions.vectors / np.sqrt(directions.curvature))
    sample = importance.sample_adaptively(importance.densities_of(plan, known, rows), [mode],
                                          POSTERIOR_DRAWS)
    if sample.k > k_limit(len(sample.weights)):
        return Finding.of(Code.K_HAT, k=sample.k, limit=k_limit(len(sample.weights)))
    deviation = np.sqrt(sample.weights @ (sample.points - sample.mean) ** 2)
    offsets = np.abs(sample.mean - optimum.point) / deviation
    worst = int(np.argmax(offsets))
    return None if offsets[worst] < MAX_MEAN_OFFSET else Finding.of(
        Code.MODE_FAR_FROM_MEAN, density.coordinate_names(plan)[worst], away=offsets[worst])


class _Directions(NamedTuple):
    """Conjugate directions in unbounded coordinates, the columns of (d, k); the curvature along
    each, whether the direction is identified, and why some are not."""

    vectors: np.ndarray
    curvature: np.ndarray
    identified: np.ndarray
    reasons: tuple[str, ...]


def _find_directions(plan: Plan, optimum: Optimum) -> _Directions | str:
    """Directions that are orthogonal in the Hessian at a point; in words why there are none."""
    hessian, owners = optimum.hessian, density.coordinate_names(plan)
    in_means = repeat_per_coordinate(plan, _mean_coefficients(plan).__contains__)
    hessian = np.where(in_means[:, None] == in_means, hessian, 0.0)
    if not (np.isfinite(hessian).all() and np.isfinite(optimum.gradient).all()):
        return "the objective has no finite second derivatives at the estimate"
    bound = domain_flags(plan, "logarithmic") & (
        (np.abs(np.diagonal(hessian)) < BOUNDARY_CURVATURE)
        | (np.abs(optimum.point) == density.EDGE))
    unit = np.where(bound, BOUNDARY_CURVATURE**-0.5, units(hessian))
    curvature, axes = np.linalg.eigh(np.where(bound[:, None] | bound, 0.0, scaled(hessian, unit)))
    is_exact = is_smooth(plan)
    vectors, identified = unit[:, None] * axes, curvature > (
        MIN_EXACT_CURVATURE if is_exact else MIN_DIFFERENCED_CURVATURE)
    is_interior = np.abs(axes[~bound]).max(0, initial=0.0) > MIN_DIFFERENCED_CURVATURE
    flat_directions = np.flatnonzero(~identified & is_interior)
    if (flat_directions.size and not (is_exact or bound.any())
            and len(unit) <= MAX_DIFFERENCED_COORDINATES):
        root = _widely_scaled_root(optimum)
        if root is not None:
            vectors, curvature = root, np.ones(len(unit))
            identified, flat_directions = np.ones(len(unit), bool), flat_directions[:0]
    gradients = (optimum.gradient @ vectors)[identified]
    gain = 0.5 * float(np.sum(gradients**2 / curvature[identified]))
    if not gain <= MAX_REMAINING_GAIN:
        return (f"the estimate is {np.sqrt(2 * gain):.2g} standard errors away from the maximum of "
                f"the objective")
    reasons = ("the estimate is at the boundary of its possible values",) * bool(bound.any())
    if flat_directions.size:
        first = flat_directions[0]
        direction = describe_direction(vectors[:, first], np.abs(np.diagonal(hessian)), owners)
        is_flat = curvature[first] > -MIN_DIFFERENCED_CURVATURE
        behaviour = ("does not fall, so that they are not identified separately" if is_flat
                     else "rises, so that the estimate is not a maximum")
        reasons += (f"if {direction}, the objective {behaviour}",)
    return _Directions(vectors, curvature, identified, reasons)


def _widely_scaled_root(optimum: Optimum) -> np.ndarray | None:
    """Coordinates in which the curvature is 1, (d, d), where the standard deviations differ by so
    many orders of magnitude that one difference step does not suffice; None where moving by one
    standard deviation does not cost half a nat."""
    refined = refine_with_hessians(optimum.evaluate, optimum.point)
    if not (refined.reliable and np.isfinite(refined.predicted_gain)):
        return None
    falls = np.array([[optimum.value - optimum.value_at(optimum.point + side * column)
                       for side in (1, -1)] for column in refined.root.T])
    return refined.root if np.abs(falls - 0.5).max() < MAX_FALL_ERROR else None


def _errors_from_derivatives(by_name: Mapping[str, np.ndarray],
                             directions: _Directions) -> StandardErrors:
    """From the derivative of each number along each direction, (k, *shape)."""
    derivatives = {name: np.asarray(value, float) for name, value in by_name.items()}
    errors = StandardErrors.of(derivatives, directions.curvature, directions.identified, {})
    return errors._replace(reasons={name: "; ".join(directions.reasons)
                                    for name, value in errors.root.items()
                                    if np.isnan(value).any()})


def _coefficients(plan: Plan) -> set[str]:
    """The parameters of a mixed model that locate rows and effects: neither variance components
    nor scales. Of other models none."""
    sites, scales = plan.structure.sites, {width.name for width in scale_parameters(plan)}
    for name in (name for name in plan.grouped if sites[name].family is not None):
        scales |= {p for argument in sites[name].traits.scatter
                   for p in sites[name].uses.get(argument, ())}
    return {name for name in plan.free if plan.groupings and sites[name].domain.unbounded
            and name not in scales}


def _mean_coefficients(plan: Plan) -> set[str]:
    """The coefficients on which the means of normal rows depend, and their covariance does not."""
    if any(grouping.nodes for grouping in plan.groupings):
        return set()
    full_plan = decide.make(plan.structure, plan.pattern, plan.given)
    return _coefficients(plan) & {*random_effects.coefficients(full_plan, plan.effects),
                                  *random_effects.centres(plan)}


def _optimum_with_hessian(plan: Plan, prior: bool, u: np.ndarray, known: Known,
                          rows: Rows) -> Optimum:
    """The point as an optimum, with its second derivatives where these can be taken."""
    def evaluate_only(u: np.ndarray, steps: int) -> tuple[np.ndarray, float, np.ndarray]:
        value, gradient = _value_and_gradient(plan, prior, u, known, rows)
        return u, float(value), -np.asarray(gradient)

    hessian = (-np.asarray(_compute_hessian(plan, prior, u, known, rows)) if is_smooth(plan)
               else None)
    return Optimum(evaluate_only, u, hessian)


@jit(static_argnums=(0, 1), seldom=ASKED)
def _value_and_gradient(plan: Plan, prior: bool, u: jax.Array, known: Known, rows: Rows):
    return density.value_and_gradient(plan, density.without_volume(plan, known), u, known, rows,
                                      prior, mode=True)


@jit(static_argnums=(0, 1), seldom=ASKED)
def _compute_hessian(plan: Plan, prior: bool, u: jax.Array, known: Known, rows: Rows) -> jax.Array:
    return density.value_gradient_hessian(plan, density.without_volume(plan, known), u, known, rows,
                                          prior, mode=True)[2]


@jit(static_argnums=(0, 1), seldom=ASKED)
def _derivatives_along(plan: Plan, computed: bool, u: jax.Array, directions: jax.Array,
                       coefficient_directions: jax.Array, known: Known,
                       rows: Rows) -> dict[str, jax.Array]:
    """Derivatives of parameters, effects and quantities computed from both along each of the
    directions (k, d); effects along the part of them in coefficients alone."""
    return jax.lax.map(lambda tangents: jax.jvp(
        lambda u, v: _reported_values(plan, computed, u, v, known, rows), (u, u), tangents)[1],
                       (directions, coefficient_directions))


def _reported_values(plan: Plan, computed: bool, u: jax.Array, u_of_effects: jax.Array,
                     known: Known, rows: Rows) -> dict[str, jax.Array]:
    """Parameters, and what is computed from them, at unbounded coordinates u (d,); effects of
    groups, and what is computed from these, at coordinates `u_of_effects`."""
    params, structure = density.from_unbounded(plan, u, known)[0], plan.structure
    grouped, other = {}, params
    if plan.groupings:
        other = density.from_unbounded(plan, u_of_effects, known)[0]
        grouped = conditional_means(plan, other, known, rows.total)
    values = {**params, **grouped}
    for name in structure.derived if computed else ():
        by_effects = not grouped.keys().isdisjoint(structure.deterministics[name].parents)
        values[name] = structure.computed(name, {
            **known.given, **(other if by_effects else params), **grouped})
    return {name: jnp.asarray(value, float) for name, value in values.items()}
