"""Log densities of one row's sites, from the traced programs of their arguments; and a point at
which these programs may be looked at."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from probml.families.domains import supported
from probml.families.marginal_normal import log_density as unseen_density
from probml.structure.site import Site
from probml.structure.structure import Structure


def cells(site: Site, array: jax.Array) -> jax.Array:
    """(rows, *cells) → (rows, lattice cells, own event axes)."""
    return array.reshape(len(array), math.prod(site.lattice), *site.event)


def log_density(structure: Structure, site: Site, env: Mapping, x: jax.Array,
                seen: jax.Array | None) -> jax.Array:
    """log p of one row's seen cells of a site, by its kernel where it is discrete, else by
    NumPyro's log_prob; of a factor its value."""
    if site.factor:
        return log_weight(structure, site.name, env)
    if site.traits.direct is not None:
        arguments = structure.cells(site.name, env)
        return site.traits.direct(arguments, cells(site, x[None])[0],
                                  None if seen is None else cells(site, seen[None])[0]).sum()
    if site.family is not None and site.discrete:
        natural = jax.tree.map(lambda leaf: leaf[None],
                               site.family.natural(structure.cells(site.name, env), 0.0))
        mask = None if seen is None else cells(site, seen[None])
        return site.family.log_density(natural, cells(site, x[None]), mask)[0, 0]
    distribution = structure.distribution(site.name, env)
    if seen is not None and site.traits.fill is not None:
        x, seen = (cells(site, leaf[None])[0] for leaf in (x, seen))
        loc, covariance = (site.layout(distribution.loc, 1),
                           site.layout(distribution.covariance_matrix, 2))
        return unseen_density(loc, covariance, x, seen).sum()
    log = site.layout(supported(distribution, site.valued(site.place(x))), 0)
    if seen is not None:
        log = jnp.where(cells(site, seen[None])[0].reshape(len(log), -1).all(-1), log, 0.0)
    return log.sum()


def log_weight(structure: Structure, name: str, env: Mapping) -> jax.Array:
    """What a numpyro.factor adds: the sum of its cells."""
    site, (value,) = structure.sites[name], structure.arguments(name, env).values()
    return jnp.broadcast_to(value, site.shape).sum()


def ahead(structure: Structure, name: str) -> tuple[str, ...]:
    """The sites at which the distribution of a site looks though they do not stand before it:
    itself, where a step of a loop looks at the one before, and sites of later steps."""
    order = {own: i for i, own in enumerate(structure.sites)}
    return tuple(p for p in structure.programs[name][1] if order.get(p, -1) >= order[name])


def example(structure: Structure, name: str) -> dict[str, np.ndarray]:
    """What the arguments of a site are computed from, at a point without zeros or symmetries."""
    program, takes = structure.programs[name]
    env = {}
    for i, (key, spec) in enumerate(zip(takes, program.in_avals, strict=True)):
        ramp = 0.31 + 0.07 * i + 0.4 * np.linspace(0, 1, spec.size).reshape(spec.shape)
        env[key] = (ramp if np.issubdtype(spec.dtype, np.floating)
                    else np.zeros(spec.shape)).astype(spec.dtype)
    return env
