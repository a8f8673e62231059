"""Latent numbers inside rows that a sampler moves: each row has coordinates of its own, in addition
to those of the parameters.

The plan treats such a site as observed ("sampled"): its density is part of the likelihood, its
children are evaluated at its values, and other latents are integrated or summed out. Here these
values come from coordinates u: z = loc + scale · u where its prior has a location and a scale, so
that there is no funnel between the scale and z (coordinates.py); else those of its support.
Observed cells, and rows of weight 0, have standard normal coordinates on which nothing depends, so
that shapes depend on the number of rows alone.
"""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known, Resident, Rows
from probml.factors.naturals import environment
from probml.factors.rowwise import row_environment
from probml.latents import coordinates
from probml.numerics.logs import LOG_TWO_PI
from probml.plan.plan import Plan
from probml.structure.densities import cells
from probml.structure.site import Site


def shapes(plan: Plan, rows: Rows) -> dict[str, tuple[int, ...]]:
    """Site → its coordinates, (chunks, b, ...)."""
    return {name: (*rows.stacked.weights.shape, *coordinates.own_shape(plan.structure.sites[name]))
            for name in plan.sampled}


def size(plan: Plan, rows: Rows) -> int:
    """How many coordinates rows have."""
    return sum(math.prod(shape) for shape in shapes(plan, rows).values())


def to_vector(coords: Mapping[str, jax.Array]) -> jax.Array:
    """Coordinates as one vector, in the order of the names."""
    return jnp.concatenate([jnp.ravel(coords[name]) for name in sorted(coords)])


def with_coordinates(plan: Plan, rows: Rows, u: jax.Array) -> Resident:
    """The rows with a vector of coordinates."""
    out, start = dict(rows.stacked.sampled), 0
    for name, shape in sorted(shapes(plan, rows).items()):
        count = math.prod(shape)
        out[name] = out[name]._replace(u=u[start : start + count].reshape(shape))
        start += count
    return Resident(rows.stacked._replace(sampled=out))


def has_coordinates(rows: Rows) -> bool:
    """Whether the rows' latent numbers are given by coordinates; else they have fixed values."""
    return any(one.u is not None for one in rows.stacked.sampled.values())


def coordinates_of(rows: Chunk) -> dict[str, jax.Array]:
    """The coordinates that rows have."""
    return {name: one.u for name, one in rows.sampled.items()}


def with_values_of_coordinates(plan: Plan, params: Mapping, known: Known, rows: Chunk,
                               coords: Mapping[str, jax.Array]) -> tuple[Chunk, jax.Array]:
    """A chunk of rows with the values of its coordinates in them, and log |∂ values / ∂ u|."""
    fixed, total, sites = environment(plan, params, known), jnp.zeros(()), plan.structure.sites
    has_weight = rows.weights > 0
    for name in plan.sampled:
        site = sites[name]
        raw = site.domain.fixed and any(p in plan.variables or p in plan.hidden
                                        for p in site.parents)

        def enter_row(varying: Mapping[str, jax.Array], u: jax.Array, x: jax.Array,
                      seen: jax.Array, name: str = name, site: Site = site, raw: bool = raw):
            value, volume = coordinates.enter(plan.structure, name, {**fixed, **varying}, u, x,
                                              seen, raw)
            return site.collect(value, 1)[0], volume

        u, seen = coords[name], ~rows.sampled[name].free
        values, volumes = jax.vmap(enter_row)(row_environment(plan, known, rows, name), u,
                                              cells(site, rows.values[name]), cells(site, seen))
        unused_log = (-0.5 * u**2 - 0.5 * LOG_TWO_PI).reshape(len(u), -1).sum(1)
        total += jnp.where(has_weight, volumes, unused_log).sum()
        rows = rows.revalued({name: values})
    return rows, total


def with_values(plan: Plan, rows: Rows, values: Mapping[str, jax.Array]) -> Rows:
    """The rows with values of the carried sites, (chunks, b, *cells), as if they were data."""
    if not plan.sampled:
        return rows
    carried = {name: values[name] for name in plan.sampled}
    return Resident(jax.vmap(Chunk.revalued)(rows.stacked, carried))


def values(plan: Plan, params: Mapping, known: Known, rows: Rows,
           u: jax.Array) -> dict[str, jax.Array]:
    """The values of the carried sites at a vector of their coordinates, (chunks, b, *cells)."""

    def chunk_values(chunk: Chunk):
        found, _ = with_values_of_coordinates(plan, params, known, chunk, coordinates_of(chunk))
        return {name: found.values[name] for name in plan.sampled}

    return with_coordinates(plan, rows, u).map(chunk_values)
