"""The numbers of a group in coordinates without bounds, and their joint log density there.

A latent that is a location and a scale (families/location_scale.py) has the coordinates that its
own prior has in units of that scale, z = loc + scale · u, parents first: so the joint density
curves at least like a standard normal's where all else is log-concave, whatever the units and
however small a spread. Any other has those of its support. A cell that is seen keeps its value, and
its coordinate is a standard normal that nothing depends on, which integrates to one. A vector of
which some cells are seen has the coordinates of its support, since its prior's would move those.
"""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import biject_to

from probml.errors import present
from probml.latents import hidden_cells
from probml.latents.latent import Group, Seen, mean_over_settings, placed, slices_of_latents
from probml.numerics.logs import LOG_TWO_PI
from probml.structure.densities import log_density
from probml.structure.site import Site
from probml.structure.structure import Structure


def shapes(structure: Structure, group: Group) -> dict[str, tuple[int, ...]]:
    """The coordinates of each latent of a group, in NumPyro's layout for one row."""
    return {name: own_shape(structure.sites[name]) for name in group.names}


def own_shape(site: Site) -> tuple[int, ...]:
    """The shape of the coordinates of one latent; its support may depend on others, its kind does
    not."""
    return tuple(site.domain.unbounded_shape(site.shape))


def size(structure: Structure, group: Group) -> int:
    """How many coordinates a group has."""
    return sum(math.prod(shape) for shape in shapes(structure, group).values())


def has_fixed_support(site: Site) -> bool:
    """Whether the kind of support does not depend on values: then it has coordinates."""
    return site.domain.fixed or site.domain.rank is not None or not site.event


def enter(structure: Structure, name: str, env: Mapping, u: jax.Array, x: jax.Array | None,
          seen: jax.Array | None, raw: bool = False) -> tuple[jax.Array, jax.Array]:
    """A latent of one row at its coordinates, in NumPyro's layout, and log |∂z/∂u|; observed cells
    have their values, and their coordinates the log density of a standard normal.

    Args:
        env: the parents of its prior. x, seen: its data, (lattice cells, own event axes), as a kind
            of latent takes it.
        raw: the coordinates are those of its fixed support, whatever its prior.
    """
    site, volume, v = structure.sites[name], jnp.zeros(()), u
    mask = None if x is None else (jnp.ones(site.shape, bool) if seen is None
                                   else site.place(seen.reshape(site.cells)))
    transform: dist.transforms.Transform = site.domain.bijection if site.domain.fixed else None
    if not raw:
        distribution = structure.distribution(name, env)
        transform = transform or biject_to(distribution.support)
        if site.entry.location_scale is not None:
            v, logs = _affine_transform(site, distribution, u)
            if mask is not None:
                is_free = ~(mask.any(-1, keepdims=True) if site.entry.coupled else mask)
                v = jnp.where(is_free, v, u)
                logs = jnp.where(is_free[..., 0] if site.entry.coupled else is_free, logs, 0.0)
            volume += logs.sum()
    value = transform(v)
    ladj = transform.log_abs_det_jacobian(v, value)
    if x is None or mask is None:
        return value, volume + ladj.sum()
    is_complete = mask.reshape(ladj.shape
                               + (-1,)).all(-1)  # a bounded vector is seen whole or not at all
    value = jnp.where(mask, site.place(x.reshape(site.cells)), value)
    unused = mask if u.shape == mask.shape else jnp.broadcast_to(
        is_complete.reshape(is_complete.shape + (1,) * (u.ndim - is_complete.ndim)), u.shape)
    unused_log = jnp.where(unused, -0.5 * u**2 - 0.5 * LOG_TWO_PI, 0.0).sum()
    return value, volume + jnp.where(is_complete, 0.0, ladj).sum() + unused_log


def _affine_transform(site: Site, distribution: dist.Distribution,
                      u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """loc + scale · u, and the logarithm of the scale of each coordinate; of a vector of all
    together."""
    loc, scale = present(site.entry.location_scale)(distribution)
    if not site.entry.coupled:
        return (loc + scale * u, jnp.broadcast_to(jnp.log(scale), u.shape))
    return (loc + scale.times(u), jnp.broadcast_to(scale.volume(), u.shape[:-1]))


def joint(structure: Structure, group: Group, env: Mapping, seen: Seen) -> Callable:
    """u (coordinates of the group behind one another) → log p(latents, what is seen) + log |∂z/∂u|,
    and the latents' cells behind one another."""
    log, by_name = log_joint(structure, group, env, seen), shapes(structure, group)

    def at(u: jax.Array) -> tuple[jax.Array, jax.Array]:
        env_z, total, values, start = dict(env), jnp.zeros(()), [], 0
        for name, shape in by_name.items():
            stop = start + math.prod(shape)
            env_z[name], volume = enter(structure, name, env_z, u[start:stop].reshape(shape),
                                        *seen.get(name, (None, None)))
            start, total = stop, total + volume
            values.append(structure.sites[name].collect(env_z[name], 1).reshape(-1))
        flat = jnp.concatenate(values)
        return total + log(flat), flat

    return at


def log_joint(structure: Structure, group: Group, env: Mapping, seen: Seen) -> Callable:
    """Cells of the latents behind one another, (p,) → log p(latents, what is seen), averaged over
    the settings of parameters that `env` has."""
    summed = hidden_cells.sites_with_hidden_cells(structure, group)
    slices = slices_of_latents(structure, group.names)

    def at(values: jax.Array) -> jax.Array:
        def logs(at: Mapping) -> jax.Array:
            total = jnp.zeros(())
            for name in (name for name in group.sites if name not in summed):
                site, (x, mask) = structure.sites[name], seen.get(name, (None, None))
                if name in slices:
                    x, mask = values[slices[name]], None
                if x is not None:
                    total += log_density(structure, site, at, x.reshape(site.cells),
                                         None if mask is None else mask.reshape(site.cells))
            return total

        env_z = {**env, **placed(structure, group, values)}
        return mean_over_settings(env_z, logs) + hidden_cells.log_sum(structure, group, env_z, seen)

    return at
