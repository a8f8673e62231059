"""Log densities of one row's sites, from the traced programs of their arguments; and a point at
which these programs may be looked at."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from probml.errors import present
from probml.families import finite
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
    if site.traits.direct is None and site.family is not None and site.discrete:
        return _kernel(site, site.family.natural(structure.cells(site.name, env), 0.0),
                       cells(site, x[None]), None if seen is None else cells(site, seen[None]))
    return log_densities(structure, site, env, x, seen).sum()


def _kernel(site: Site, natural: Mapping[str, jax.Array], x: jax.Array,
            mask: jax.Array | None) -> jax.Array:
    assert site.family is not None
    return site.family.log_density(jax.tree.map(lambda leaf: leaf[None], natural), x, mask)[0, 0]


def log_densities(structure: Structure, site: Site, env: Mapping, x: jax.Array | None,
                  seen: jax.Array | None) -> jax.Array:
    """The same of every lattice cell, (lattice cells,); what is unseen adds 0."""
    if site.factor:
        (value,) = structure.arguments(site.name, env).values()
        return site.layout(value, 0)
    assert x is not None
    if site.traits.direct is not None:
        arguments = structure.cells(site.name, env)
        return site.traits.direct(arguments, cells(site, x[None])[0],
                                  None if seen is None else cells(site, seen[None])[0])
    if site.family is not None and site.discrete:
        natural = site.family.natural(structure.cells(site.name, env), 0.0)
        each = (natural, cells(site, x[None])[0], None if seen is None else cells(
            site, seen[None])[0])
        lone = jax.tree.map(lambda leaf: jnp.broadcast_to(
            leaf, (math.prod(site.lattice), *leaf.shape[1:]))[:, None], each)
        return jax.vmap(lambda natural, x, mask: _kernel(
            site, natural, x[None], None if mask is None else mask[None]))(*lone)
    distribution = structure.distribution(site.name, env)
    if seen is not None and site.traits.fill is not None:
        x, seen = (cells(site, leaf[None])[0] for leaf in (x, seen))
        loc, covariance = (site.layout(distribution.loc, 1),
                           site.layout(distribution.covariance_matrix, 2))
        return unseen_density(loc, covariance, x, seen)
    log = site.layout(supported(distribution, site.valued(site.place(x))), 0)
    if seen is not None:
        log = jnp.where(cells(site, seen[None])[0].reshape(len(log), -1).all(-1), log, 0.0)
    return log


def log_weight(structure: Structure, name: str, env: Mapping) -> jax.Array:
    """What a numpyro.factor adds: the sum of its cells."""
    site, (value,) = structure.sites[name], structure.arguments(name, env).values()
    return jnp.broadcast_to(value, site.shape).sum()


def log_masses(structure: Structure, name: str, env: Mapping) -> jax.Array:
    """log p of every value of a site with finitely many, for one row: (lattice cells, values)."""
    site = structure.sites[name]
    if site.family is not None and site.states is not None:
        return site.family.natural(structure.cells(name, env), 0.0)["log"]
    return site.layout(finite.log_masses(structure.distribution(name, env), site.low,
                                         present(site.finite), site.shape), 1)


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
