"""The log posterior density, latent variables summed or integrated out, as a function of
unbounded coordinates: the objective of optimisers and the target of samplers."""

import dataclasses
import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.distributions.transforms import Transform

from probml.device.rows import Chunk, Known, Resident, Rows, Summary
from probml.errors import present
from probml.evidence import centring, random_effect_gradients, row_coordinates
from probml.evidence.e_step import (
    add_ordered_sites,
    chunkwise_plan,
    log_evidence,
    row_totals,
    sum_and_vjp,
    total_evidence,
    weighted_total,
)
from probml.factors.affine_predictors import derivatives
from probml.factors.factors import global_factors, row_evidence
from probml.factors.naturals import log_prior, naturals
from probml.families import domains
from probml.families.domains import Domain
from probml.jaxpr import backward
from probml.jaxpr.backward import with_vjp
from probml.jaxpr.hoisting import hoisted
from probml.numerics.curvature import second_order
from probml.plan.plan import Plan
from probml.plan.sufficient_statistics import is_affine_in_rows
from probml.typing import PyTree

EDGE = 15.0  # the coordinate of a value on the edge of its support: 3e-7 inside, so float32 sees it


def domain(plan: Plan, name: str, env: Mapping) -> Domain:
    """The domain of a parameter, which may depend on those before it, in `env`."""
    declared = plan.structure.sites[name].domain
    if declared.fixed:
        return declared
    # any: it is the same in all (see decide.make)
    states = {v: jnp.zeros(plan.structure.sites[v].shape, int) for v in plan.globals}
    return domains.of(plan.structure.distribution(name, {**states, **env}).support)


def bijection(plan: Plan, name: str, env: Mapping) -> Transform:
    """The one-to-one map from unbounded coordinates to that domain."""
    return domain(plan, name, env).bijection


def unbounded_by_name(plan: Plan, params: Mapping, known: Known) -> dict[str, jax.Array]:
    """Unbounded coordinates of parameters; a value on the edge of its support (a rate or a
    probability of 0) a little inside."""
    env = {**known.given, **params}
    values = {name: jnp.broadcast_to(jnp.asarray(params[name]), plan.structure.sites[name].shape)
              for name in plan.free}
    free = {name: bijection(plan, name, env).inv(value) for name, value in values.items()}
    for name, share in known.centring.items():
        free[name] = centring.to_centred(free[name], share,
                                         *centring.location_and_scale(plan, name, env))
    return jax.tree.map(lambda u: jnp.nan_to_num(u, nan=jnp.nan, posinf=EDGE, neginf=-EDGE), free)


def from_unbounded_by_name(plan: Plan, u: Mapping, known: Known) -> tuple[dict[str, jax.Array],
                                                                          jax.Array]:
    """Parameters at unbounded coordinates, and log |∂ parameters / ∂ u|."""
    env, out, volume = dict(known.given), {}, jnp.zeros(())
    for name in plan.free:  # in order: what a prior depends on stands before it
        transform, v = bijection(plan, name, env), u[name]
        if name in known.centring:
            v, extra = centring.from_centred(v, known.centring[name],
                                             *centring.location_and_scale(plan, name, env))
            volume += extra
        env[name] = out[name] = transform(v)
        volume += jnp.sum(transform.log_abs_det_jacobian(v, out[name]))
    return out, volume


def to_unbounded(plan: Plan, params: Mapping, known: Known) -> jax.Array:
    """Unbounded coordinates as one vector (d,), in the order of the parameters' names."""
    return ravel_pytree(unbounded_by_name(plan, params, known))[0]


def unbounded_shapes(plan: Plan) -> dict[str, tuple[int, ...]]:
    """The shapes of the unbounded coordinates."""
    sites = {name: plan.structure.sites[name] for name in plan.free}
    return {name: site.domain.unbounded_shape(site.shape) for name, site in sites.items()}


def unbounded_size(plan: Plan) -> int:
    """d, the number of unbounded coordinates."""
    return sum(math.prod(shape) for shape in unbounded_shapes(plan).values())


def coordinate_slices(plan: Plan) -> dict[str, slice]:
    """The unbounded coordinates of each parameter in the vector of all."""
    shapes = unbounded_shapes(plan)
    names = sorted(shapes)
    bounds = np.cumsum([0, *(math.prod(shapes[name]) for name in names)])
    return {name: slice(*bounds[i : i + 2]) for i, name in enumerate(names)}


def from_unbounded(plan: Plan, u: jax.Array, known: Known) -> tuple[dict[str, jax.Array],
                                                                    jax.Array]:
    """Parameters at a vector of unbounded coordinates, and log |∂ parameters / ∂ u|."""
    blank = {name: jnp.zeros(shape, u.dtype) for name, shape in unbounded_shapes(plan).items()}
    return from_unbounded_by_name(plan, ravel_pytree(blank)[1](u), known)


def without_volume(plan: Plan, known: Known) -> Callable:
    """Unbounded coordinates → parameters, and 0 in the place of the volume: whose density is that
    of the parameters themselves, which a mode is the maximum of."""
    return lambda u: (from_unbounded(plan, u, known)[0], 0.0)


def coordinate_names(plan: Plan) -> list[str]:
    """Whose coordinate each element of the vector is: "beta[2]"; of a support of fewer dimensions,
    the number of the coordinate."""
    out = []
    for name, shape in sorted(unbounded_shapes(plan).items()):
        grid = [", ".join(map(str, index)) for index in np.ndindex(shape)]
        out += [f"{name}[{index}]" if index else name for index in grid]
    return out


def value_and_gradient(
    plan: Plan, point: Callable, u: object, known: Known, rows: Rows | Summary, prior: bool = True,
    mode: bool = False, scale: float = 1.0
):
    """log p(data, parameters) at `point(u)` and its gradient in u, chunk by chunk.

    Args:
        point: u → (parameters, log volume), the volume added to the density: 0 for the density in
            the parameters' own coordinates.
        prior: with log p(parameters), or the likelihood alone.
        mode: priors in the coordinates that are maximised (naturals.log_prior).
        scale: rows count so many times, when they are a batch of all.

    Of rows with coordinates of their own (evidence/row_coordinates.py) the density is that of these
    too, and the gradient a pair: in u, and in theirs, name → (chunks, b, ...).

    Cost: one evidence of all rows and its gradient, memory of one chunk; with discrete sites
    outside rows that rows touch and several chunks one evidence more (e_step.sum_and_vjp).
    """

    part = plan if isinstance(rows, Summary) else chunkwise_plan(plan, rows)
    has_coords = (plan.sampled and not isinstance(rows, Summary)
                  and row_coordinates.has_coordinates(rows))

    def chunk(batch: Chunk):
        def total(u: jax.Array, coords: Mapping[str, jax.Array] | None = None):
            params, at, volume = point(u)[0], batch, 0.0
            if has_coords:
                at, volume = row_coordinates.with_values_of_coordinates(plan, params, known, batch,
                                                                        present(coords))
            return scale * (weighted_total(
                row_evidence(part, params, known, naturals(part, params, known), at), batch.weights
            ) + volume)

        coords = (row_coordinates.coordinates_of(batch),) if has_coords else ()
        return with_vjp(total)(u, *coords)

    def rest(u: jax.Array, total: jax.Array):
        params, volume = point(u)
        total = add_ordered_sites(plan, part, total, params, known, rows, scale)
        value = total_evidence(plan, global_factors(plan, params, known), total) + volume
        return value + (log_prior(plan, params, known, mode) if prior else 0.0)

    if isinstance(rows, Summary):  # no rows: one differentiation of all
        return backward.value_and_gradient(
            lambda u: rest(u, row_totals(plan, point(u)[0], known, rows)))(u)

    def outside(total: jax.Array):
        log_p, pullback = with_vjp(rest)(u, total)
        outer, cotangent = pullback(jnp.ones_like(log_p))
        return (log_p, outer), cotangent

    (log_p, outer), rowwise, coords = sum_and_vjp(chunk, rows, outside, linear=not plan.row_globals)
    gradient = jax.tree.map(jnp.add, outer, rowwise)
    if plan.groupings:
        effects, d_effects = random_effect_gradients.value_and_gradient(plan, point, u, known, rows)
        log_p += effects
        gradient = jax.tree.map(jnp.add, gradient, d_effects)
    return log_p, (gradient, coords[0]) if has_coords else gradient


def log_posterior_and_gradient(plan: Plan, prior: bool, u: Mapping, known: Known,
                               rows: Rows | Summary,
                               scale: float = 1.0):
    """The log posterior at unbounded coordinates u, name → array, as a density of the parameters
    themselves, and its gradient in u."""
    return value_and_gradient(plan, lambda u: (from_unbounded_by_name(plan, u, known)[0], 0.0), u,
                              known, rows,
                              prior, mode=True, scale=scale)


def value_gradient_hessian(
    plan: Plan, point: Callable, u: jax.Array, known: Known, rows: Rows | Summary,
    prior: bool = True, mode: bool = False, scale: float = 1.0
):
    """value_and_gradient at a vector u (d,), and the Hessian (d, d); for plans without discrete
    sites outside rows that rows touch.

    Cost: d directions of a gradient at once, in a regression two products of the rows with d
        columns; memory of one chunk × d.
    """

    is_affine = _has_affine_predictors(plan, known)
    pooled_plan = dataclasses.replace(plan, rowwise=()) if is_affine else plan

    def chunk(batch: Chunk):
        def total(u: jax.Array):
            params = point(u)[0]
            return scale * weighted_total(
                row_evidence(pooled_plan, params, known, naturals(plan, params, known), batch),
                batch.weights
            )

        if not is_affine:
            return second_order(total)(u)
        derivs = derivatives(plan, lambda u: point(u)[0], u, known, batch, scale)
        return jax.tree.map(jnp.add, derivs, second_order(total)(u)) if plan.pooled else derivs

    def rest(u: jax.Array):
        params, volume = point(u)
        if isinstance(rows, Summary):
            volume += scale * row_totals(plan, params, known, rows)
        return volume + (log_prior(plan, params, known, mode) if prior else 0.0)

    if isinstance(rows, Summary):
        return second_order(rest)(u)
    return jax.tree.map(jnp.add, rows.total(chunk), second_order(rest)(u))


def _has_affine_predictors(plan: Plan, known: Known) -> bool:
    """Whether rows have their second derivatives from numbers that are affine in the coordinates:
    those of parameters without bounds are the parameters themselves."""
    sites = plan.structure.sites
    entering = {p for name in plan.rowwise for uses in sites[name].uses.values() for p in uses
                if p in plan.free}
    return (not known.centring and is_affine_in_rows(plan)
            and all(sites[p].domain.unbounded for p in entering))


def log_posterior(plan: Plan, known: Known, rows: Rows | Summary, scale: float = 1.0) -> Callable:
    """u → (log density of the vector u of unbounded coordinates given the data, up to a constant;
    its gradient). Coordinates of rows stand behind those of the parameters."""
    def point(u: jax.Array):
        return from_unbounded(plan, u, known)

    if not plan.sampled:
        return lambda u: value_and_gradient(plan, point, u, known, rows, scale=scale)
    first = unbounded_size(plan)

    def both(u: jax.Array):
        assert isinstance(rows, Rows)
        at = row_coordinates.with_coordinates(plan, rows, u[first:])
        value, (gradient, d_u) = value_and_gradient(plan, point, u[:first], known, at, scale=scale)
        return value, jnp.concatenate([gradient, row_coordinates.to_vector(d_u)])

    return both


def log_posterior_value(plan: Plan, known: Known, rows: Rows | Summary) -> Callable:
    """u → the value of `log_posterior` alone, in half as large a program."""
    if plan.sampled:
        with_grad = log_posterior(plan, known, rows)
        return lambda u: with_grad(u)[0]

    def value(u: jax.Array):
        params, volume = from_unbounded(plan, u, known)
        return log_evidence(plan, params, known, rows) + log_prior(plan, params, known) + volume

    return value


def for_loop(function: Callable, rows: Rows | Summary, u: PyTree) -> Callable:
    """The same function of coordinates like `u`, which passes over the rows, for a loop that calls
    it: what it computes from rows in several chunks alone is computed now (jaxpr/hoisting.py). Of
    rows in one chunk XLA does so."""
    return hoisted(function, u) if isinstance(rows, Resident) and rows.several else function


def differentiable(with_grad: Callable) -> Callable:
    """A function with a value and a gradient as one that JAX differentiates by that gradient."""

    @jax.custom_vjp
    def value(u: jax.Array):
        return with_grad(u)[0]

    value.defvjp(with_grad, lambda gradient, ct: (jax.tree.map(lambda leaf: ct * leaf, gradient),))
    return value
