"""Which axis of which parameter runs along the columns of a table, or along the states of a site:
`w` of `x @ w`, the means of a component. Found by looking at what depends on what, so however the
function is written."""

import functools
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr.program import evaluate
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.structure.site import Site
from probml.structure.structure import Structure

LARGEST = 2**21  # entries of a table of dependences, above which entries keep their numbers


def along(structure: Structure, columns: Mapping[str, tuple],
          labels: Mapping[str, tuple]) -> dict[tuple[str, int], tuple]:
    """(parameter, axis) → the names of the columns, or the labels of the states, that its entries
    stand for: of the i-th of these the i-th entry matters, and no other along the axis.

    Args:
        columns: input or site of rows → the names of its columns. labels: site → of its states.
    """
    asked = []
    for name, names in columns.items():
        asked += [(p, site.name, name) for site in structure.sites.values()
                  if site.rows and (name in site.inputs or name == site.name
                                    and _cells(site, len(names)))
                  for p in structure.parameters if _fits(structure, p, site.name, len(names))]
    for name, names in reversed(labels.items()):
        site = structure.sites.get(name)
        if site is not None and site.states == len(names):
            asked += [(p, child, name) for child in structure.children[name]
                      for p in structure.parameters if len(names) in structure.sites[p].shape]
    asked = [ask for ask in asked if ask[0] in structure.programs[ask[1]][1]]
    out: dict[tuple[str, int], tuple] = {}
    found = _touched(structure, tuple(asked)) if asked else ()
    for (parameter, child, name), table in zip(asked, jax.device_get(found), strict=True):
        names = columns[name] if name == child or name not in structure.sites else labels[name]
        for axis in range(len(structure.sites[parameter].shape)):
            if _one_to_one(table, axis, len(names)):
                out[parameter, axis] = tuple(names)
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
def _touched(structure: Structure, asked: tuple[tuple[str, str, str], ...]) -> list[jax.Array]:
    """For (parameter, site, name of columns or states): (columns, *shape), whether an entry matters
    for a column."""
    return [_touching(structure, *ask) for ask in asked]


def _touching(structure: Structure, parameter: str, child: str, name: str) -> jax.Array:
    """On which entries of a parameter the arguments of a site depend where all columns of an input
    but the i-th are 0, where another site is in its i-th state, or in the i-th cell of the site
    itself; at a point that is nowhere special."""
    (program, takes), site = structure.programs[child], structure.sites[child]
    env = {}
    for other, spec in zip(takes, program.in_avals, strict=True):
        real = jnp.issubdtype(spec.dtype, jnp.floating)
        size = math.prod(spec.shape)
        fill = 0.3 + 0.4 * jnp.linspace(0, 1, size) if real else jnp.zeros(size)
        env[other] = fill.reshape(spec.shape).astype(spec.dtype)
    count = (site.cells[0] if name == child else env[name].shape[-1]
             if name not in structure.sites else structure.sites[name].states or 0)

    def at(i):
        moved = dict(env)
        if name != child:
            moved[name] = (jnp.full_like(env[name], i) if name in structure.sites else
                           jnp.where(jnp.arange(count) == i, env[name], 0))

        def arguments(value):
            out = evaluate(program, *({**moved, parameter: value}[other] for other in takes))
            if name == child:
                out = [_by_column(site.layout(leaf, site.traits.argument_event[key]),
                                  bool(site.event), count)[i]
                       for key, leaf in zip(site.arguments, out, strict=True)]
            return jnp.concatenate([jnp.ravel(leaf) for leaf in out
                                    if jnp.issubdtype(leaf.dtype, jnp.floating)])

        return (jax.jacrev(arguments)(env[parameter]) != 0).any(0)

    return jax.vmap(at)(jnp.arange(count))


def _by_column(cells: jax.Array, vector: bool, count: int) -> jax.Array:
    """An argument, (lattice cells, its own axes), as (columns, rest): of a vector its own axes are
    the columns, of a matrix both."""
    if not vector:
        return cells.reshape(count, -1)
    own = cells.reshape(-1, *cells.shape[1:])[0]
    if own.shape == (count,):
        return own[:, None]
    return jnp.diagonal(own)[:, None] if own.shape == (count, count) else jnp.zeros((count, 1))
