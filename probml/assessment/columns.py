"""Which axis of which parameter runs along the columns of a table: `w` of `x @ w`, the means of a
component. Found by looking at what depends on what, so however the function is written."""

import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr.program import evaluate
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.structure.site import Site
from probml.structure.structure import Structure

LARGEST = 2**21  # entries of a table of dependences, above which entries keep their numbers


def along(structure: Structure, columns: Mapping[str, tuple]) -> dict[tuple[str, int], tuple]:
    """(parameter, axis) → the names of the columns that its entries stand for.

    Of an input, its i-th entry is the only one that matters where all columns but the i-th are 0;
    of a site, the i-th cell is the only one that it tells of.

    Args:
        columns: input or site → the names of its columns.
    """
    asked = []
    for name, labels in columns.items():
        for site in structure.sites.values():
            own = site.name == name and _cells(site, len(labels))
            if site.rows and (own or name in site.inputs):
                asked += [(p, site.name, name) for p in structure.parameters
                          if p in structure.programs[site.name][1]
                          and _fits(structure, p, site.name, len(labels))]
    out: dict[tuple[str, int], tuple] = {}
    found = _touched(structure, tuple(asked)) if asked else ()
    for (parameter, _, name), tables in zip(asked, jax.device_get(found), strict=True):
        labels = columns[name]
        for axis in range(len(structure.sites[parameter].shape)):
            if any(_one_to_one(table, axis, len(labels)) for table in tables):
                out[parameter, axis] = labels
    return out


def _cells(site: Site, count: int) -> bool:
    return site.family is not None and site.time is None and site.cells == (count,)


def _fits(structure: Structure, parameter: str, child: str, count: int) -> bool:
    shape = structure.sites[parameter].shape
    outputs = sum(math.prod(aval.shape) for aval in structure.programs[child][0].out_avals)
    return count in shape and count * math.prod(shape) * max(outputs, 1) <= LARGEST


def _one_to_one(table: np.ndarray, axis: int, count: int) -> bool:
    """Whether entry i along an axis, and no other, belongs to column i: `table` is (columns,
    *shape) bool."""
    if table.shape[1 + axis] != count:
        return False
    rest = tuple(i for i in range(1, table.ndim) if i != 1 + axis)
    return bool((table.any(rest) == np.eye(count, dtype=bool)).all())


@functools.partial(jit, static_argnums=(0, 1), seldom=ONCE)
def _touched(structure: Structure, asked: tuple[tuple[str, str, str], ...]) -> list:
    """For (parameter, site, name of the columns): tables (columns, *shape), whether an entry
    matters for a column."""
    return [_by_input(structure, parameter, child, name) if name in structure.model.inputs
            else _by_cell(structure, parameter, child) for parameter, child, name in asked]


def _env(structure: Structure, child: str) -> tuple[Any, tuple[str, ...], dict[str, Any]]:
    """The program of a site's arguments, what it takes, and a point that is nowhere special."""
    program, takes = structure.programs[child]
    env = {}
    for name, spec in zip(takes, program.in_avals, strict=True):
        real = jnp.issubdtype(spec.dtype, jnp.floating)
        size = math.prod(spec.shape)
        fill = 0.3 + 0.4 * jnp.linspace(0, 1, size) if real else jnp.zeros(size)
        env[name] = fill.reshape(spec.shape).astype(spec.dtype)
    return program, takes, env


def _by_input(structure: Structure, parameter: str, child: str, name: str) -> list[jax.Array]:
    program, takes, env = _env(structure, child)

    def at(column: object):
        shown = jnp.where(jnp.arange(env[name].shape[-1]) == column, env[name], 0.0)

        def arguments(value: jax.Array):
            out = evaluate(program, *({**env, name: shown, parameter: value}[n] for n in takes))
            return jnp.concatenate([jnp.ravel(leaf) for leaf in out
                                    if jnp.issubdtype(leaf.dtype, jnp.floating)])

        return (jax.jacrev(arguments)(env[parameter]) != 0).any(0)

    return [jax.vmap(at)(jnp.arange(env[name].shape[-1]))]


def _by_cell(structure: Structure, parameter: str, child: str) -> list[jax.Array]:
    """A table for each argument."""
    program, takes, env = _env(structure, child)
    site = structure.sites[child]

    def arguments(value: jax.Array):
        out = evaluate(program, *({**env, parameter: value}[n] for n in takes))
        tail = site.traits.argument_event
        cells = (site.layout(leaf, tail[key]) for key, leaf in zip(site.arguments, out, strict=True)
                 if jnp.issubdtype(leaf.dtype, jnp.floating))
        return [_by_column(leaf, bool(site.event), site.cells[0]) for leaf in cells]

    found = jax.jacrev(arguments)(env[parameter])
    return [(table != 0).any(1) for table in found if table is not None]


def _by_column(cells: jax.Array, vector: bool, count: int) -> jax.Array:
    """An argument, (lattice cells, its own axes), as (columns, rest): of a vector its own axes are
    the columns, of a matrix both."""
    if not vector:
        return cells.reshape(count, -1)
    own = cells.reshape(-1, *cells.shape[1:])[0]
    if own.shape == (count,):
        return own[:, None]
    return jnp.diagonal(own)[:, None] if own.shape == (count, count) else jnp.zeros((count, 1))
