"""Normal numbers that enter the locations of Normal sites affinely: integrated out exactly.

Every latent is written as location + root · ε, ε ~ N(0, I), parents first. What is seen has
residuals w, divided by their own roots, which are affine in all ε together: w = w₀ + B ε. So with
K = I + BᵀB and ε̂ = −K⁻¹ Bᵀ w₀

    log p(seen) = −½ |w₀ + B ε̂|² − ½ |ε̂|² − ½ log det K − Σ log roots − ½ m log 2π,

and ε given the row is N(ε̂, K⁻¹) (Lauritzen 1992; in these coordinates K ⪰ I, whatever the units
and however small a spread, which may be 0; the squares are those of what is left, not of what
cancels, so that float32 keeps its digits). A cell of a latent that is seen is a residual in its
row, and its ε is left at its prior. B comes from one linearisation of the traced programs, which
are affine by a proof on their equations (levels.py), checked at two points. Where neither an input
nor a hole differs from row to row, B and K are the same for all rows and are factored once.

Cost: O(q (m + q) q) a row, q numbers unseen and m seen.
"""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from probml.jaxpr.levels import Level
from probml.latents.latent import Group, Moments, Seen
from probml.latents.pooled_normal import Second, columns, locations, scatter, seconds
from probml.numerics import semidefinite, small
from probml.numerics.compiling import jit
from probml.structure.densities import example
from probml.structure.site import Site
from probml.structure.structure import Structure

LOG_TWO_PI = float(np.log(2 * np.pi))
KINDS = ("Normal", "MultivariateNormal", "LowRankMultivariateNormal")
PLAIN = ("times", "complement")  # coordinates that are affine
SMALL = 16  # columns of a covariance up to which it may be singular
CLOSE = 1e-3  # relative difference that is no rounding, in float32


class Gaussian:
    """Normal latents under Normal sites; see the top of this file."""

    words = "integrated out, exact Gaussian"
    pools = exact = True
    breadth, finer = 1, None

    def doubt(self, names: tuple[str, ...], gap: float, rows: float) -> str | None:
        return None

    def claims(self, structure: Structure, group: Group) -> str | None:
        for name in group.sites:
            site = structure.sites[name]
            if site.kind not in KINDS:
                return (f"'{name}' is {site.kind}" if name in group.names
                        else f"'{name}', which depends on '{group.name}', is {site.kind}")
            if site.time is not None:
                return f"'{name}' runs along a chain"
            for argument, uses in structure.row_uses(name).items():
                for latent, use in ((n, use) for n, use in uses.items() if n in group.names):
                    if argument != "loc":
                        return f"'{latent}' enters the {argument} of '{name}'"
                    bent = any(step not in PLAIN for step, _ in use.coordinate)
                    if use.level > Level.AFFINE or bent or not straight(structure, group.names,
                                                                            name):
                        return f"'{latent}' enters the location of '{name}' not affinely"
        return None

    def message(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> jax.Array:
        found = _posterior(structure, group, env, seen)
        log_det = jnp.log(jnp.diagonal(found.lower)).sum()
        return found.log - 0.5 * jnp.sum(found.left**2) - 0.5 * jnp.sum(found.centre**2) - log_det

    def conditional(self, structure: Structure, group: Group, env: Mapping,
                    seen: Seen) -> Moments:
        found = _posterior(structure, group, env, seen)
        return Moments(found.values + found.centre @ found.moves,
                       found.inverse @ found.moves)

    belief = conditional

    def draw(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
             key: jax.Array) -> jax.Array:
        found = _posterior(structure, group, env, seen)
        noise = jax.random.normal(key, found.centre.shape, found.centre.dtype)
        return found.values + (found.centre + noise @ found.inverse) @ found.moves

    def expected(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
                 moments: Moments) -> jax.Array:
        def residuals(values: jax.Array):
            at, out, log, start = dict(env), [], jnp.zeros(()), 0
            for name in group.sites:
                site = structure.sites[name]
                x, mask = seen.get(name, (None, None))
                if name in group.names:
                    size = int(np.prod(site.cells, dtype=int))
                    value, mask = values[start : start + size], None
                    start, x = start + size, value.reshape(_layout(site))
                own = standardised(site, structure.cells(name, at), x, mask,
                                   prior=name in group.names)
                out.append(own[0].reshape(-1))
                log += own[1]
                if name in group.names:
                    at[name] = site.place(value)
            return jnp.concatenate(out), log

        residual, push, log = jax.linearize(residuals, moments.mean, has_aux=True)
        spread = jax.vmap(push)(moments.root)
        return log - 0.5 * jnp.sum(residual**2) - 0.5 * jnp.sum(spread**2)


    def middle(self, structure: Structure, group: Group, env: Mapping) -> dict[str, jax.Array]:
        at, out = dict(env), {}
        for name in group.sites:
            site = structure.sites[name]
            out[name] = columns(site, structure.cells(name, at)["loc"])
            if name in group.names:
                at[name] = site.place(out[name])
        return out

    def statistics(self, structure: Structure, group: Group, middle: Mapping, weight: jax.Array,
                   seen: Seen, moments: Moments) -> dict[str, Second]:
        flat = jnp.concatenate([middle[name].reshape(-1) for name in group.names])
        mean, out, start = moments.mean - flat, {}, 0
        for name in group.sites:
            site, (x, mask) = structure.sites[name], seen.get(name, (None, None))
            cells, at = _layout(site)[0], slice(0)
            if name in group.names:
                x, mask, at = None, None, slice(start, start + middle[name].size)
                start = at.stop
            else:
                x = columns(site, x) - middle[name]
                mask = None if mask is None else columns(site, mask)
            spread = jnp.swapaxes(moments.root, -1, -2) @ moments.root
            out[name] = seconds(weight, mean, spread, x, mask, at, cells)
        return out

    def pooled(self, structure: Structure, group: Group, middle: Mapping, env: Mapping,
               statistics: Mapping[str, Second]) -> jax.Array:
        flat = jnp.concatenate([middle[name].reshape(-1) for name in group.names])
        sizes = np.cumsum([middle[name].size for name in group.names])[:-1]

        def place(values):
            return {name: structure.sites[name].place(part) for name, part in zip(
                group.names, jnp.split(values, sizes), strict=True)}

        total = jnp.zeros(())
        for name in group.sites:
            site = structure.sites[name]
            loc, slope, arguments = locations(structure, name, env, flat, place)
            left = scatter(statistics[name], loc - middle[name], slope)
            total += log_total(site, root_of(site, arguments), left,
                               statistics[name].around[:, 0, 0], name in group.names)
        return total


class _Posterior:
    """ε given a row: N(centre, (lower lowerᵀ)⁻¹), what is affine in it, and the residuals that are
    left at its centre.

    Args:
        residual, slope: of all cells, (m,), (q, m). seen: which of them are, (m,); None: all.
        alike: the slope is that of every row.
    """

    def __init__(self, residual, values, slope, moves, log, seen, alike):
        self.values, self.moves, self.log = values, moves, log
        eye = jnp.eye(len(slope), dtype=slope.dtype)
        if seen is None:
            gram = slope @ slope.T
        elif alike:  # of all rows one product, by what each has seen
            pairs = slope[:, None, :] * slope
            gram = (pairs.reshape(-1, slope.shape[1]) @ seen).reshape(eye.shape)
        else:
            gram = (slope * seen) @ slope.T
        residual = residual if seen is None else residual * seen
        self.lower = small.cholesky(eye + gram, many=True)
        # once for all rows where K is one: solving for the rows themselves hands a BLAS of several
        # threads thousands of columns of q numbers, fifteen times the time of these products
        self.inverse = small.solve(self.lower, eye, many=True)
        self.centre = -(self.inverse @ (slope @ residual)) @ self.inverse
        moved = self.centre @ slope
        self.left = residual + (moved if seen is None else moved * seen)


def _posterior(structure: Structure, group: Group, env: Mapping, seen: Seen) -> _Posterior:
    sizes = {name: int(np.prod(structure.sites[name].cells, dtype=int)) for name in group.names}
    # scalars seen in part: their residuals are made of every cell, and those of the others taken
    # off behind, so that slopes are the same in every row
    torn = {name for name in group.sites if name not in group.names
            and not structure.sites[name].event and seen.get(name, (None, None))[1] is not None}

    def forward(noise: jax.Array):
        at, residuals, values, log, masks, start = dict(env), [], [], jnp.zeros(()), [], 0
        for name in group.sites:
            site, (x, mask) = structure.sites[name], seen.get(name, (None, None))
            arguments, own = structure.cells(name, at), None
            if name in group.names:
                own = noise[start : start + sizes[name]].reshape(_layout(site))
                start += sizes[name]
            if name in torn:
                whole = jnp.where(mask, x, 0.0)
                residual, _, value = standardised(site, arguments, whole, None)
                scale = jnp.broadcast_to(root_of(site, arguments), whole.shape)
                more = -jnp.where(mask, jnp.log(scale) + 0.5 * LOG_TWO_PI, 0.0).sum()
            else:
                residual, more, value = standardised(site, arguments, x, mask, own)
            residuals.append(residual.reshape(-1))
            masks.append(jnp.asarray(mask, residual.dtype).reshape(-1) if name in torn
                         else jnp.ones(residual.size, residual.dtype))
            log += more
            if value is not None:
                values.append(value.reshape(-1))
                at[name] = site.place(value)
        return (jnp.concatenate(residuals), jnp.concatenate(values)), (log, jnp.concatenate(masks))

    start = jnp.zeros(sum(sizes.values()), jnp.result_type(float))
    (residual, values), push, (log, mask) = jax.linearize(forward, start, has_aux=True)
    slope, moves = jax.vmap(push)(jnp.eye(len(start), dtype=start.dtype))
    alike = not any(name in seen for name in group.names) and _alike(structure, group)
    return _Posterior(residual, values, slope, moves, log, mask if torn else None, alike)


@functools.lru_cache(maxsize=1024)
def _alike(structure: Structure, group: Group) -> bool:
    """Whether the programs of a group take nothing of a row but its latents."""
    sites = structure.sites
    return not any(sites[name].inputs or any(sites[p].rows and p not in group.names
                                             for p in sites[name].parents)
                   for name in group.sites)


def _layout(site: Site) -> tuple[int, ...]:
    """A row's cells as the family has them: (lattice cells, own event axes)."""
    return (int(np.prod(site.lattice, dtype=int)), *site.event)


def standardised(
    site: Site, arguments: Mapping, x: jax.Array | None, seen: jax.Array | None,
    noise: jax.Array | None = None, prior: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Standardised residuals of the seen cells of a site, zero elsewhere; what its log density has
    beside their squares; and its value, where unseen made of `noise`.

    Args:
        prior: of latents, whose covariance may be singular: they lie in its range.
    """
    loc, root = arguments["loc"], root_of(site, arguments)
    if site.event:
        return _vectors(loc, root, x, seen, noise, prior)
    value = None if noise is None else loc + root * noise
    if x is None:
        return jnp.zeros(0, loc.dtype), jnp.zeros(()), value
    residual, log = (x - loc) / root, -jnp.log(root) - 0.5 * LOG_TWO_PI
    if seen is not None:
        residual, log = jnp.where(seen, (x - loc) / root, 0.0), jnp.where(seen, log, 0.0)
        value = None if noise is None else jnp.where(seen, x, value)
    return residual, log.sum(), value


def _vectors(loc: jax.Array, root: jax.Array, x: jax.Array | None, seen: jax.Array | None,
             noise: jax.Array | None, prior: bool) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """The same of vectors (cells, d), their coordinates unseen by a mask; an unseen one has the
    matrices of an identity in its place."""
    value = None if noise is None else loc + (root @ noise[..., None])[..., 0]
    if x is None:
        return jnp.zeros(0, loc.dtype), jnp.zeros(()), value
    count, gap = float(np.prod(loc.shape)), x - loc
    if seen is not None:
        count, gap, eye = seen.sum(), jnp.where(seen, gap, 0.0), jnp.eye(loc.shape[-1])
        covariance = root @ jnp.swapaxes(root, -1, -2)
        root = jnp.linalg.cholesky(jnp.where(seen[..., :, None] & seen[..., None, :], covariance,
                                             eye))
    still, root = _still(root, prior)
    residual = jnp.where(still, 0.0, solve_triangular(root, gap[..., None], lower=True)[..., 0])
    log = -jnp.log(jnp.abs(jnp.diagonal(root, axis1=-2, axis2=-1))).sum() - 0.5 * LOG_TWO_PI * count
    if noise is not None and seen is not None:
        cross = jnp.where(~seen[..., :, None] & seen[..., None, :], covariance, 0.0)
        half = solve_triangular(root, jnp.swapaxes(cross, -1, -2), lower=True)
        left = covariance - jnp.swapaxes(half, -1, -2) @ half
        hole = jnp.linalg.cholesky(jnp.where(~seen[..., :, None] & ~seen[..., None, :], left, eye))
        moved = loc + (jnp.swapaxes(half, -1, -2) @ residual[..., None])[..., 0]
        moved += (hole @ jnp.where(seen, 0.0, noise)[..., None])[..., 0]
        value = jnp.where(seen, x, moved)
    return residual, log, value


def _still(root: jax.Array, prior: bool) -> tuple[jax.Array, jax.Array]:
    """Which coordinates of vectors have no noise of their own, and the root with a pivot of 1
    there; none, of what is seen."""
    pivots = jnp.diagonal(root, axis1=-2, axis2=-1)
    still = (pivots == 0) & prior
    return still, root + still[..., None] * jnp.eye(root.shape[-1], dtype=root.dtype)


def log_total(site: Site, root: jax.Array, left: jax.Array, count: jax.Array,
              prior: bool = False) -> jax.Array:
    """Σ of E[log p] over rows and cells of a site.

    Args:
        root: as `root_of`. left: Σ E[(x − loc)(x − loc)ᵀ] of each cell, (cells, d, d). count: how
            often each cell is seen, (cells,). prior: as of `standardised`.
    """
    if site.event:
        still, root = _still(root, prior)
        half = solve_triangular(root, left, lower=True)
        half = solve_triangular(root, jnp.swapaxes(half, -1, -2), lower=True)
        square = jnp.where(still, 0.0, jnp.diagonal(half, axis1=-2, axis2=-1)).sum(-1)
        log = jnp.log(jnp.abs(jnp.diagonal(root, axis1=-2, axis2=-1))).sum(-1)
    else:
        square, log = left[..., 0, 0] / root**2, jnp.log(root)
    log += 0.5 * LOG_TWO_PI * left.shape[-1]
    return -jnp.where(count > 0, 0.5 * square + count * log, 0.0).sum()


def root_of(site: Site, arguments: Mapping) -> jax.Array:
    """A scale of each cell, or the Cholesky factor of each vector's covariance."""
    if not site.event:
        return arguments["scale"]
    if "scale_tril" in arguments:
        return jnp.tril(arguments["scale_tril"])
    if "precision_matrix" in arguments:
        lower = jnp.linalg.cholesky(arguments["precision_matrix"])
        eye = jnp.broadcast_to(jnp.eye(lower.shape[-1], dtype=lower.dtype), lower.shape)
        return jnp.linalg.cholesky(cho_solve((lower, True), eye))
    if "cov_factor" in arguments:
        factor = arguments["cov_factor"]
        return jnp.linalg.cholesky(factor @ jnp.swapaxes(factor, -1, -2) + jnp.eye(
            factor.shape[-2], dtype=factor.dtype) * arguments["cov_diag"][..., None])
    covariance = arguments["covariance_matrix"]
    if covariance.shape[-1] > SMALL:
        return jnp.linalg.cholesky(covariance)
    lower = semidefinite.root(covariance)
    gap = jnp.abs(lower @ jnp.swapaxes(lower, -1, -2) - covariance).max((-2, -1), keepdims=True)
    size = jnp.abs(covariance).max((-2, -1), keepdims=True)
    return jnp.where(gap <= CLOSE * size, lower, jnp.nan)  # as Cholesky's, of what is none


@functools.lru_cache(maxsize=1024)
def straight(structure: Structure, names: tuple[str, ...], name: str,
             argument: str = "loc") -> bool:
    """Whether the location at two points of the latents, of both signs, and at their middle, lie on
    a line: a proof reads powers on the positive half line alone."""
    env = example(structure, name)
    mine = [key for key in env if key in names]

    @jit
    def locations(env: Mapping, shifts: jax.Array):
        return jax.vmap(lambda shift: structure.arguments(
            name, {**env, **{key: env[key] + shift for key in mine}}
        )[argument])(shifts)

    with jax.ensure_compile_time_eval():
        low, middle, high = np.asarray(locations(env, jnp.asarray([-3.1, -0.7, 1.7])))
    size = np.maximum(np.abs(low), np.abs(high)).max(initial=1e-30)
    return bool(np.nanmax(np.abs(low + high - 2 * middle), initial=0.0) <= CLOSE * size)
