"""Normal numbers that enter the locations of Normal sites affinely: integrated out exactly.

Every latent is written as location + root · ε, ε ~ N(0, I), parents first. What is seen has
residuals w, divided by their own roots, which are affine in all ε together: w = w₀ + B ε. So with
K = I + BᵀB and ε̂ = −K⁻¹ Bᵀ w₀

    log p(seen) = −½ |w₀ + B ε̂|² − ½ |ε̂|² − ½ log det K − Σ log roots − ½ m log 2π,

and ε given the row is N(ε̂, K⁻¹) (Lauritzen 1992; in these coordinates K ⪰ I, whatever the units
and however small a spread, which may be 0; the squares are those of what is left, not of what
cancels, so that float32 keeps its digits). An observed cell of a latent is a residual in its row,
and its ε keeps its prior. B comes from one linearisation of the traced programs, which are affine
by a proof on their equations (levels.py), checked at three points. Where neither inputs nor missing
cells differ from row to row, B and K are the same for all rows and are factored once.

Cost: O(q (m + q) q) a row, q latent numbers and m observed ones.

The posterior of normal latents of a row, N(ε̂, K⁻¹) in standardised coordinates, and the
residuals at its mean; at a point of the parameters, or averaged over them.

Averaged over settings θ_s of parameters, as a mean field's E-step has it, the log density of a row
is quadratic in its latents as it is at a point:

    (1/S) Σ_s log p(x, z | θ_s) = c − (1/2S) Σ_s |w_s + B_s ε|²,

the residuals of all settings behind one another, divided by √S, those of the latents' own prior
among them. With z = location + root ε at one point of the parameters, whichever, and K = BᵀB,

    log ∫ exp(...) dz = c + log |∂z/∂ε| + (q/2) log 2π − ½ |w + B ε̂|² − ½ log det K.
"""

import functools
from collections.abc import Collection, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from probml.errors import present
from probml.jaxpr.memo import memo
from probml.latents.latent import (
    SETTINGS,
    Group,
    Moments,
    Seen,
    is_row_free,
    placed,
    slices_of_latents,
)
from probml.latents.pooled_normal import (
    MAX_ROUNDING,
    Second,
    columns,
    fixed_pivots,
    layout,
    locations,
    root_of,
    scatter,
    seconds,
    standardised,
)
from probml.numerics import lapack
from probml.numerics.compiling import ASKED, jit
from probml.numerics.logs import LOG_TWO_PI
from probml.numerics.process.inline_calls import evaluated
from probml.structure.densities import example
from probml.structure.site import Site
from probml.structure.structure import Structure


class Whitened:
    """ε given a row: N(centre, (lower lowerᵀ)⁻¹), the latents as affine functions of it, and the
    log evidence.

    Args:
        residual, slope: of all cells, (m,), (q, m). observed: which of them are, (m,); None: all.
        values, jacobian: the latents at ε = 0, (p,), and how ε moves them, (q, p).
        log: the log density but for the squares of ε and of residuals.
        alike: whether all rows share the slope.
        prior_precision: the prior precision of the coordinates, (q,).
    """

    def __init__(self, residual: jax.Array, values: jax.Array, slope: jax.Array,
                 jacobian: jax.Array, log: jax.Array, observed: jax.Array | None, alike: bool,
                 prior_precision: jax.Array | float):
        self.values, self.jacobian, self.prior_precision = values, jacobian, prior_precision
        eye = jnp.eye(len(slope), dtype=slope.dtype)
        if observed is None:
            gram = slope @ slope.T
        elif alike:  # of all rows one product, by what each row has
            pairs = slope[:, None, :] * slope
            gram = (pairs.reshape(-1, slope.shape[1]) @ observed).reshape(eye.shape)
        else:
            gram = (slope * observed) @ slope.T
        residual = residual if observed is None else residual * observed
        self.lower = lapack.cholesky(prior_precision * eye + gram, many=True)
        # once for all rows where K is one: solving for the rows themselves hands a BLAS of several
        # threads thousands of columns of q numbers, fifteen times the time of these products
        self.inverse = lapack.solve(self.lower, eye, many=True)
        self.centre = -(self.inverse @ (slope @ residual)) @ self.inverse
        shift = self.centre @ slope
        updated = residual + (shift if observed is None else shift * observed)
        self.log = (log - 0.5 * jnp.sum(updated**2)
                    - 0.5 * jnp.sum(prior_precision * self.centre**2)
                    - jnp.log(jnp.diagonal(self.lower)).sum())


def partially_observed(structure: Structure, group: Group, seen: Seen) -> set[str]:
    """The scalar sites of which some cells are observed: their residuals are made of every cell,
    and those of the missing ones are taken off afterwards, so that slopes are the same in every
    row."""
    return {name for name in group.sites if name not in group.names
            and not structure.sites[name].event and seen.get(name, (None, None))[1] is not None}


def all_residuals(site: Site, arguments: Mapping, x: jax.Array,
                  mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Residuals of all cells of scalars, and the log volume of the observed ones."""
    filled = jnp.where(mask, x, 0.0)
    scale = jnp.broadcast_to(root_of(site, arguments), filled.shape)
    residual = standardised(site, arguments, filled, None)[0]
    return residual, -jnp.where(mask, jnp.log(scale) + 0.5 * LOG_TWO_PI, 0.0).sum()


def _residuals(
    structure: Structure, group: Group, env: Mapping, seen: Seen, partly: Collection[str],
    noise: jax.Array | None = None, latents: Mapping = MappingProxyType({})
) -> tuple[jax.Array, jax.Array, jax.Array, dict[str, jax.Array]]:
    """Residuals of all sites, their log volume, which of the residuals are of observed cells, and
    the latents in the layout of their family.

    Args:
        partly: sites of which the residuals of all cells are wanted, see `partially_observed`.
        noise: ε, of which the latents are made. latents: or their values, whose prior has residuals
            too.
    """
    env_z, found, where = dict(env), dict(latents), slices_of_latents(structure, group.names)
    residuals, masks, log = [], [], jnp.zeros(())
    for name in group.sites:
        site, (x, mask), arguments = (structure.sites[name], seen.get(name, (None, None)),
                                      structure.cells(name, env_z))
        if name in partly:
            residual, volume = all_residuals(site, arguments, x, mask)
        else:
            x, mask = (latents[name], None) if name in latents else (x, mask)
            made = name in where and name not in latents
            own = present(noise)[where[name]].reshape(layout(site)) if made else None
            residual, volume, value = standardised(site, arguments, x, mask, own, name in latents)
            if made:
                found[name] = value
            mask = None
        if name in where:
            env_z[name] = site.place(found[name])
        residuals.append(residual.reshape(-1))
        masks.append(jnp.ones(residual.size, residual.dtype) if mask is None
                     else jnp.asarray(mask, residual.dtype).reshape(-1))
        log += volume
    return jnp.concatenate(residuals), log, jnp.concatenate(masks), found


KINDS = ("Normal", "MultivariateNormal", "LowRankMultivariateNormal")


class Gaussian:
    """Normal latents under Normal sites; see the top of this file."""

    description = "integrated out, in closed form (normal distributions)"
    pools = exact = averages = True
    breadth, finer, tolerance = 1, None, 0.0

    def why_not(self, structure: Structure, group: Group) -> str | None:
        timed = next((n for n in group.sites if structure.sites[n].time is not None), None)
        reason = not_affine(structure, group, dict.fromkeys(KINDS, ("loc",)))
        return reason if reason or timed is None else f"'{timed}' is part of a chain"

    def message(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> jax.Array:
        return _posterior(structure, group, env, seen).log

    def conditional(self, structure: Structure, group: Group, env: Mapping,
                    seen: Seen) -> Moments:
        posterior = _posterior(structure, group, env, seen)
        return Moments(posterior.values + posterior.centre @ posterior.jacobian,
                       posterior.inverse @ posterior.jacobian)

    row_posterior = conditional

    def draw(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
             key: jax.Array) -> jax.Array:
        posterior = _posterior(structure, group, env, seen)
        noise = jax.random.normal(key, posterior.centre.shape, posterior.centre.dtype)
        return posterior.values + (posterior.centre + noise
                                   @ posterior.inverse) @ posterior.jacobian

    def expected(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
                 moments: Moments) -> jax.Array:
        slices = slices_of_latents(structure, group.names)

        def residuals(values: jax.Array):
            latents = {name: values[part].reshape(layout(structure.sites[name]))
                       for name, part in slices.items()}
            return _residuals(structure, group, env, seen, (), None, latents)[:2]

        residual, push, log = jax.linearize(residuals, moments.mean, has_aux=True)
        root_shift = jax.vmap(push)(moments.root)
        return log - 0.5 * jnp.sum(residual**2) - 0.5 * jnp.sum(root_shift**2)

    # where the programs of a group depend on nothing of a row but its latents

    def middle(self, structure: Structure, group: Group, env: Mapping) -> dict[str, jax.Array]:
        """The prior means of the latents and sites of a group: statistics are centred there."""
        env_z, out = dict(env), {}
        for name in group.sites:
            site = structure.sites[name]
            out[name] = columns(site, structure.cells(name, env_z)["loc"])
            if name in group.names:
                env_z[name] = site.place(out[name])
        return out

    def statistics(self, structure: Structure, group: Group, middle: Mapping, weight: jax.Array,
                   seen: Seen, moments: Moments) -> dict[str, Second]:
        """The sufficient statistics of rows at one state: all arguments lead with the axis of rows,
        which is summed over."""
        flat = jnp.concatenate([middle[name].reshape(-1) for name in group.names])
        mean, out, slices = moments.mean - flat, {}, slices_of_latents(structure, group.names)
        for name in group.sites:
            site, (x, mask) = structure.sites[name], seen.get(name, (None, None))
            cells, own_slice = layout(site)[0], slices.get(name, slice(0))
            if name in slices:
                x, mask = None, None
            else:
                x = columns(site, x) - middle[name]
                mask = None if mask is None else columns(site, mask)
            covariance = jnp.swapaxes(moments.root, -1, -2) @ moments.root
            out[name] = seconds(weight, mean, covariance, x, mask, own_slice, cells)
        return out

    def pooled(self, structure: Structure, group: Group, middle: Mapping, env: Mapping,
               statistics: Mapping[str, Second]) -> jax.Array:
        """Σ over rows of weight × `expected`, from their statistics."""
        flat = jnp.concatenate([middle[name].reshape(-1) for name in group.names])
        place, total = functools.partial(placed, structure, group), jnp.zeros(())
        for name in group.sites:
            site = structure.sites[name]
            loc, slope, arguments = locations(structure, name, env, flat, place)
            moment = scatter(statistics[name], loc - middle[name], slope)
            total += log_total(site, root_of(site, arguments), moment,
                               statistics[name].latent[:, 0, 0], name in group.names)
        return total


def _posterior(structure: Structure, group: Group, env: Mapping, seen: Seen) -> Whitened:
    """The latents given a row, at a point or at log densities averaged over settings."""
    settings, partly = env.get(SETTINGS), partially_observed(structure, group, seen)
    same_slope = (not any(name in seen for name in group.names)
                  and is_row_free(structure, group.sites, group.names))

    def forward(noise: jax.Array):
        residual, log, mask, latents = _residuals(structure, group, env, seen, partly, noise)
        if settings:
            residual, log, mask, _ = jax.vmap(lambda setting: _residuals(
                structure, group, {**env, **setting}, seen, partly, None, latents))(settings)
            residual, log, mask = (residual.reshape(-1) / np.sqrt(len(log)), log.mean(),
                                   mask.reshape(-1))
        values = jnp.concatenate([latents[name].reshape(-1) for name in group.names])
        return (residual, values), (log, mask)

    size = slices_of_latents(structure, group.names)[group.names[-1]].stop
    start, own_noise = jnp.zeros(size, jnp.result_type(float)), 1.0
    (residual, values), push, (log, mask) = jax.linearize(forward, start, has_aux=True)
    slope, moves = jax.vmap(push)(jnp.eye(size, dtype=start.dtype))
    if settings:
        # nothing depends on the ε of observed cells, or of latents without variance: N(0, 1)
        pivots = jnp.diagonal(moves)
        still = pivots == 0
        log += jnp.where(still, 0.0, jnp.log(jnp.abs(jnp.where(still, 1.0, pivots)))
                         + 0.5 * LOG_TWO_PI).sum()
        own_noise = jnp.where(still, 1.0, 0.0)
    return Whitened(residual, values, slope, moves, log, mask if partly else None, same_slope,
                    own_noise)


def log_total(site: Site, root: jax.Array, moment: jax.Array, count: jax.Array,
              prior: bool = False) -> jax.Array:
    """Σ of E[log p] over rows and cells of a site.

    Args:
        root: as `root_of`. moment: Σ E[(x − loc)(x − loc)ᵀ] of each cell, (cells, d, d). count: how
            often each cell is seen, (cells,). prior: as of `standardised`.
    """
    if site.event:
        is_fixed, root = fixed_pivots(root, prior)
        half = solve_triangular(root, moment, lower=True)
        half = solve_triangular(root, jnp.swapaxes(half, -1, -2), lower=True)
        square = jnp.where(is_fixed, 0.0, jnp.diagonal(half, axis1=-2, axis2=-1)).sum(-1)
        log = jnp.log(jnp.abs(jnp.diagonal(root, axis1=-2, axis2=-1))).sum(-1)
    else:
        square, log = moment[..., 0, 0] / root**2, jnp.log(root)
    log += 0.5 * LOG_TWO_PI * moment.shape[-1]
    return -jnp.where(count > 0, 0.5 * square + count * log, 0.0).sum()


def not_affine(structure: Structure, group: Group,
               allowed: Mapping[str, tuple[str, ...]]) -> str | None:
    """Why the sites of a group are not affine in its latents, in words; None: they are.

    Args:
        allowed: kind of a site → the arguments through which they may.
    """
    for name in group.sites:
        site = structure.sites[name]
        if site.kind not in allowed:
            return (f"'{name}'" + f", which depends on '{group.name}'," * (name not in group.names)
                    + f" is {site.kind} and not normal")
        for argument, uses in structure.row_uses(name).items():
            for latent, use in ((n, use) for n, use in uses.items() if n in group.names):
                if argument not in allowed[site.kind]:
                    return f"'{latent}' enters the argument {argument} of '{name}'"
                if not (use.is_affine and is_location_affine(structure, group.names, name,
                                                             argument)):
                    return f"the argument {argument} of '{name}' is not linear in '{latent}'"
    return None


@memo(1024)
def is_location_affine(structure: Structure, names: tuple[str, ...], name: str,
                       argument: str = "loc") -> bool:
    """Whether the location is affine in the latents, tested at three points: the proof assumes
    positive arguments of powers."""
    return lies_on_line(arguments_at_shifts(structure, names, name)[argument])


@memo(1024)
def arguments_at_shifts(structure: Structure, names: tuple[str, ...],
                        site: str) -> dict[str, np.ndarray]:
    """The arguments of a site, each (3, ...), where numbers of these names are moved together from
    an example: to a point of each sign and half way in between."""
    env = example(structure, site)
    shifts = np.array([-3.1, -0.7, 1.7], jnp.result_type(float))
    with evaluated():
        found = jax.device_get(_shifted_arguments(structure, names, site, env, shifts))
    return {name: np.asarray(value) for name, value in found.items()}


@jit(static_argnums=(0, 1, 2), seldom=ASKED)
def _shifted_arguments(structure: Structure, names: tuple[str, ...], site: str, env: Mapping,
                       shifts: jax.Array) -> dict[str, jax.Array]:
    return jax.vmap(lambda shift: structure.arguments(
        site, {key: value + shift if key in names else value for key, value in env.items()}
    ))(shifts)


def lies_on_line(values: np.ndarray) -> bool:
    """Whether three values, (3, ...), of which the second is half way, lie on a line."""
    low, middle, high = values
    size = np.maximum(np.abs(low), np.abs(high)).max(initial=1e-30)
    return bool(np.nanmax(np.abs(low + high - 2 * middle), initial=0.0) <= MAX_ROUNDING * size)
