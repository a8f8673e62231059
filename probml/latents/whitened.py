"""The posterior of normal latents of a row, N(ε̂, K⁻¹) in standardised coordinates, and the
residuals at its mean; at a point of the parameters, or averaged over them.

Averaged over settings θ_s of parameters, as a mean field's E-step has it, the log density of a row
is quadratic in its latents as it is at a point:

    (1/S) Σ_s log p(x, z | θ_s) = c − (1/2S) Σ_s |w_s + B_s ε|²,

the residuals of all settings behind one another, divided by √S, those of the latents' own prior
among them. With z = location + root ε at one point of the parameters, whichever, and K = BᵀB,

    log ∫ exp(...) dz = c + log |∂z/∂ε| + (q/2) log 2π − ½ |w + B ε̂|² − ½ log det K.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from probml.latents.latent import SETTINGS, Group, Seen, places
from probml.latents.residuals import layout, root_of, standardised
from probml.numerics import small
from probml.numerics.logs import LOG_TWO_PI
from probml.structure.site import Site
from probml.structure.structure import Structure


class Whitened:
    """ε given a row: N(centre, (lower lowerᵀ)⁻¹), the latents as affine functions of it, and the
    log evidence.

    Args:
        residual, slope: of all cells, (m,), (q, m). seen: which of them are, (m,); None: all.
        values, moves: the latents at ε = 0, (p,), and how ε moves them, (q, p).
        log: the log density but for the squares of ε and of residuals.
        alike: whether all rows share the slope.
        own: the prior precision of the coordinates, (q,).
    """

    def __init__(self, residual: jax.Array, values: jax.Array, slope: jax.Array,
                 moves: jax.Array, log: jax.Array, seen: jax.Array | None, alike: bool,
                 own: jax.Array | float):
        self.values, self.moves, self.own = values, moves, own
        eye = jnp.eye(len(slope), dtype=slope.dtype)
        if seen is None:
            gram = slope @ slope.T
        elif alike:  # of all rows one product, by what each has seen
            pairs = slope[:, None, :] * slope
            gram = (pairs.reshape(-1, slope.shape[1]) @ seen).reshape(eye.shape)
        else:
            gram = (slope * seen) @ slope.T
        residual = residual if seen is None else residual * seen
        self.lower = small.cholesky(own * eye + gram, many=True)
        # once for all rows where K is one: solving for the rows themselves hands a BLAS of several
        # threads thousands of columns of q numbers, fifteen times the time of these products
        self.inverse = small.solve(self.lower, eye, many=True)
        self.centre = -(self.inverse @ (slope @ residual)) @ self.inverse
        moved = self.centre @ slope
        left = residual + (moved if seen is None else moved * seen)
        self.log = (log - 0.5 * jnp.sum(left**2) - 0.5 * jnp.sum(own * self.centre**2)
                    - jnp.log(jnp.diagonal(self.lower)).sum())


def partially_observed(structure: Structure, group: Group, seen: Seen) -> set[str]:
    """The scalar sites of which some cells are observed: their residuals are made of every cell,
    and those of the missing ones are taken off afterwards, so that slopes are the same in every
    row."""
    return {name for name in group.sites if name not in group.names
            and not structure.sites[name].event and seen.get(name, (None, None))[1] is not None}


def every(site: Site, arguments: Mapping, x: jax.Array,
          mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Residuals of all cells of scalars, and the log volume of the observed ones."""
    whole = jnp.where(mask, x, 0.0)
    scale = jnp.broadcast_to(root_of(site, arguments), whole.shape)
    residual = standardised(site, arguments, whole, None)[0]
    return residual, -jnp.where(mask, jnp.log(scale) + 0.5 * LOG_TWO_PI, 0.0).sum()


def averaged(structure: Structure, group: Group, env: Mapping, seen: Seen,
             alike: bool) -> Whitened:
    """Latents given a row at log densities averaged over the settings of `env`."""
    settings, parted = env[SETTINGS], partially_observed(structure, group, seen)
    count, where = len(next(iter(settings.values()))), places(structure, group.names)

    def made(noise: jax.Array) -> dict[str, jax.Array]:
        """The latents at the parameters of `env`, in the layout of their family."""
        at, out = dict(env), {}
        for name, part in where.items():
            site = structure.sites[name]
            out[name] = standardised(site, structure.cells(name, at), *seen.get(
                name, (None, None)), noise[part].reshape(layout(site)))[2]
            at[name] = site.place(out[name])
        return out

    def left(setting: Mapping, latents: Mapping) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Residuals at a setting, log volume, and which residuals are of observed cells."""
        at = {**env, **setting, **{name: structure.sites[name].place(value)
                                   for name, value in latents.items()}}
        residuals, masks, log = [], [], jnp.zeros(())
        for name in group.sites:
            site, (x, mask), arguments = (structure.sites[name], seen.get(name, (None, None)),
                                          structure.cells(name, at))
            if name in parted:
                residual, more = every(site, arguments, x, mask)
            else:
                x, mask = (latents[name], None) if name in latents else (x, mask)
                residual, more, _ = standardised(site, arguments, x, mask, prior=name in latents)
                mask = None
            residuals.append(residual.reshape(-1))
            masks.append(jnp.ones(residual.size, residual.dtype) if mask is None
                         else jnp.asarray(mask, residual.dtype).reshape(-1))
            log += more
        return jnp.concatenate(residuals), log, jnp.concatenate(masks)

    def forward(noise: jax.Array):
        latents = made(noise)
        residual, log, masks = jax.vmap(lambda setting: left(setting, latents))(settings)
        flat = jnp.concatenate([value.reshape(-1) for value in latents.values()])
        return (residual.reshape(-1) / np.sqrt(count), flat), (log.mean(), masks.reshape(-1))

    size = where[group.names[-1]].stop
    start = jnp.zeros(size, jnp.result_type(float))
    (residual, values), push, (log, mask) = jax.linearize(forward, start, has_aux=True)
    slope, moves = jax.vmap(push)(jnp.eye(size, dtype=start.dtype))
    # nothing depends on the ε of observed cells, or of latents without variance: they are N(0, 1)
    pivots = jnp.diagonal(moves)
    still = pivots == 0
    log += jnp.where(still, 0.0, jnp.log(jnp.abs(jnp.where(still, 1.0, pivots)))
                     + 0.5 * LOG_TWO_PI).sum()
    return Whitened(residual, values, slope, moves, log, mask if parted else None, alike,
                    jnp.where(still, 1.0, 0.0))
