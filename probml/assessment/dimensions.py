"""Names for the axes of arrays: plates, steps, and the labels of states.

An axis of a parameter may correspond to the columns of a table, or to the states of a site: of `w`
in `x @ w`, of the means of components. This is found from the dependences in the program, however
the function is written.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.coding.indices import bounds, together
from probml.errors import ModelError, present
from probml.jaxpr.program import evaluate
from probml.numerics.compiling import ONCE, jit
from probml.queries.fitted import Fitted
from probml.structure import indices
from probml.structure.structure import Structure
from probml.typing import ArrayLike

if TYPE_CHECKING:
    from probml.dataset.dataset import Data

MAX_DEPENDENCES = 2**21  # entries of a dependence matrix, above which entries are numbered


def along(structure: Structure, columns: Mapping[str, tuple],
          labels: Mapping[str, tuple]) -> dict[tuple[str, int], tuple]:
    """(parameter, axis) → the names of the columns, or the labels of the states, to which its
    entries correspond one to one: only the i-th entry along the axis affects the i-th of these.

    Args:
        columns: input or site of rows → the names of its columns. labels: site → of its states.
    """
    edges = []
    for name, names in columns.items():
        edges += [(p, site.name, name) for site in structure.sites.values()
                  if site.rows and (name in site.inputs or name == site.name
                                    and site.family is not None and site.time is None
                                    and site.cells == (len(names),))
                  for p in structure.parameters
                  if _has_axes_that_fit(structure, p, site.name, len(names))]
    for name, names in reversed(list(labels.items())):
        site = structure.sites.get(name)
        if site is not None and site.states == len(names):
            edges += [(p, child, name) for child in structure.children[name]
                      for p in structure.parameters if len(names) in structure.sites[p].shape]
    edges = [edge for edge in edges if edge[0] in structure.programs[edge[1]][1]]
    by_axis: dict[tuple[str, int], tuple] = {}
    tables = _dependences(structure, tuple(edges)) if edges else ()
    for (parameter, child, name), table in zip(edges, jax.device_get(tables), strict=True):
        names = columns[name] if name == child or name not in structure.sites else labels[name]
        for axis in range(len(structure.sites[parameter].shape)):
            if _one_to_one(table, axis, len(names)):
                by_axis[parameter, axis] = tuple(names)
    return by_axis


def _has_axes_that_fit(structure: Structure, parameter: str, child: str, count: int) -> bool:
    shape = structure.sites[parameter].shape
    outputs = sum(math.prod(aval.shape) for aval in structure.programs[child][0].out_avals)
    return count in shape and count * math.prod(shape) * max(outputs, 1) <= MAX_DEPENDENCES


def _one_to_one(table: np.ndarray, axis: int, count: int) -> bool:
    """Whether entry i along an axis, and no other, belongs to column i: `table` is (columns,
    *shape) bool."""
    if table.shape[1 + axis] != count:
        return False
    others = tuple(i for i in range(1, table.ndim) if i != 1 + axis)
    return bool((table.any(others) == np.eye(count, dtype=bool)).all())


@jit(static_argnums=(0, 1), seldom=ONCE)
def _dependences(structure: Structure, edges: tuple[tuple[str, str, str], ...]) -> list[jax.Array]:
    """For (parameter, site, name of columns or states): (columns, *shape), whether an entry affects
    a column."""
    return [_dependence_on_columns(structure, *edge) for edge in edges]


def _dependence_on_columns(structure: Structure, parameter: str, child: str,
                           name: str) -> jax.Array:
    """The entries of a parameter on which the arguments of a site depend where all columns of an
    input but the i-th are 0, where another site is in its i-th state, or in the i-th cell of the
    site itself; at a generic point."""
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
        inputs = dict(env)
        if name != child:
            inputs[name] = (jnp.full_like(env[name], i) if name in structure.sites else
                            jnp.where(jnp.arange(count) == i, env[name], 0))

        def arguments(value: jax.Array):
            outputs = evaluate(program, *({**inputs, parameter: value}[other] for other in takes))
            if name == child:
                outputs = [_by_column(site.layout(leaf, site.traits.argument_event[key]),
                                      bool(site.event), count)[i]
                           for key, leaf in zip(site.arguments, outputs, strict=True)]
            return jnp.concatenate([jnp.ravel(leaf) for leaf in outputs
                                    if jnp.issubdtype(leaf.dtype, jnp.floating)])

        return (jax.jacrev(arguments)(env[parameter]) != 0).any(0)

    return jax.vmap(at)(jnp.arange(count))


def _by_column(cells: jax.Array, vector: bool, count: int) -> jax.Array:
    """An argument, (lattice cells, its own axes), as (columns, rest): of a vector its own axes are
    the columns, of a matrix both."""
    if not vector:
        return cells.reshape(count, -1)
    first = cells.reshape(-1, *cells.shape[1:])[0]
    if first.shape == (count,):
        return first[:, None]
    return jnp.diagonal(first)[:, None] if first.shape == (count, count) else jnp.zeros((count, 1))


class Dimensions:
    """The dimensions of a Fit's sites, and their coordinates.

    Attributes:
        rows: the name of the axis of rows.
        coords: dimension → its labels, else 0, 1, …; a plate whose axis a labelled site indexes has
            that site's.
    """

    def __init__(self, fit: Fitted, data: "Data"):
        self.structure, self.data = data.structure, data
        self.labels = {**fit.names, **data.labels}
        self.meanings: dict[str, tuple] = {}  # dimension → (its meaning, its size)
        self.coords: dict[str, ArrayLike] = {}
        self.rows = self._name("rows", ("plate", "rows"), data.table.rows)
        index = data.table.index
        is_flat = index is not None and getattr(index, "nlevels", 1) == 1
        self.coords[self.rows] = np.asarray(index) if is_flat else np.arange(data.table.rows)
        self.columns = fit.columns
        self.entries = named_entries(fit, self.labels)

    def _name(self, name: str, meaning: tuple, size: int) -> str:
        """A name that no site has (xarray would take the site for the dimension's coordinates) and
        no other dimension."""
        for choice in (name, f"{name}_dim", *(f"{name}_{i}" for i in range(2, 100))):
            if choice not in (*self.structure.named, *self.structure.model.inputs, "chain", "draw"):
                if self.meanings.setdefault(choice, (meaning, size)) == (meaning, size):
                    self.coords.setdefault(choice, np.arange(size))
                    return choice
        raise AssertionError(f"a hundred dimensions have the name '{name}'")

    def _name_axes(self, name: str, shape: tuple) -> list[str]:
        """Default names of the axes of a shape."""
        return [self._name(f"{name}_dim_{i}", (name, i), size) for i, size in enumerate(shape)]

    def of_parameter(self, name: str) -> tuple[str, ...]:
        """The dimensions of a site outside rows: its plates, then the axes of an event."""
        site = self.structure.named[name]
        dims = self._name_axes(name, site.shape)
        plates = dict(site.plates)
        # the first is the outermost and has the last batch axis, unless dim= was given
        for i, (plate, size) in enumerate(site.plates):
            axis = len(site.batch) - 1 - i
            if axis < 0 or site.batch[axis] != size:
                matches = [a for a, length in enumerate(site.batch) if length == size]
                if len(matches) != 1 or list(plates.values()).count(size) > 1:
                    continue
                axis = matches[0]
            dims[axis] = self._name(plate, ("plate", plate), size)
        for axis, dim in enumerate(dims):
            if (name, axis) in self.entries:
                self.coords[dim] = _array(self.entries[name, axis])
        return tuple(dims)

    def of_row_site(self, name: str) -> tuple[str, ...]:
        """The dimensions of a site inside rows: rows, its plates, the axes of an event, of which
        one may be the steps of a chain."""
        site = self.structure.named[name]
        shape = site.along(self.data.steps)
        dims = self._name_axes(name, shape)
        for i, (plate, size) in enumerate(p for p in site.plates if p[0] != "rows"):
            dims[i] = self._name(plate, ("plate", plate), size)
        if site.time is not None:
            dims[site.time] = self._name("step", ("plate", "step"), shape[site.time])
        self._along_columns(name, dims)
        return (self.rows, *dims)

    def of_plated_site(self, name: str, shape: tuple[int, ...], batch: int,
                       frames: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
        """The dimensions of a site that a function observes in plates of its own.

        Args:
            batch: axes that are no event's; frames: (plate, its axis from the right of these).
        """
        dims = self._name_axes(name, shape)
        for plate, dim in frames:
            if shape[batch + dim] != 1:
                dims[batch + dim] = self._name(plate, ("plate", plate), shape[batch + dim])
        return tuple(dims)

    def covariate(self, name: str) -> tuple[str, ...]:
        """The dimensions of an input."""
        dims = self._name_axes(name, self.data.table.inputs[name].shape[1:])
        if name in self.structure.timed:
            dims[0] = self._name("step", ("plate", "step"), present(self.data.steps))
        self._along_columns(name, dims)
        return (self.rows, *dims)

    def _along_columns(self, name: str, dims: list[str]) -> None:
        if name in self.columns and len(dims) == 1:
            self.coords[dims[0]] = np.array(self.columns[name])

    def states(self, name: str) -> dict[str, list]:
        """The labels of a labelled site's codes, as an attribute."""
        return {"states": _array(self.labels[name]).tolist()} if name in self.labels else {}


def _array(labels: tuple) -> np.ndarray:
    """Labels as an array; as text unless all are numbers, or all text."""
    is_plain = len(set(map(type, labels))) == 1 and isinstance(labels[0], str | int | float | bool)
    return np.array(labels if is_plain else [str(label) for label in labels])


def named_entries(fit: Fitted, labels: Mapping[str, tuple]) -> dict[tuple[str, int], tuple]:
    """(parameter, axis) → the names of the entries along it: columns of a table, members of a
    group, states of a labelled site; others are numbered, all of them while the shapes of the
    inputs are unknown, as of `model.at(params)`."""
    try:
        structure = fit.structure
    except ModelError:
        return {}
    known = {name: columns for name, columns in fit.columns.items() if name in structure.sites
             or name in structure.model.inputs}
    declared = {(name, axis): tuple(names) for name, unit in fit.units.items()
                for axis, names in unit.names.items()}
    by_axis = (_entries_of_classes(structure, labels) | along(structure, known, labels)
               | entries(structure, labels) | declared)
    return _entries_of_deterministics(structure, by_axis) | by_axis


def _entries_of_deterministics(structure: Structure,
             known: Mapping[tuple[str, int], tuple]) -> dict[tuple[str, int], tuple]:
    """Names of the entries of deterministics outside rows, from those of the parameters that they
    are computed from: `a = mu + tau * z` has the names of z."""
    by_axis: dict[tuple[str, int], tuple] = {}
    for name in structure.derived if known else ():
        for axis, aligned in enumerate(indices.parameter_axes(structure.programs, structure.sites,
                                                                 name)[0]):
            size = structure.named[name].shape[axis]
            candidates = {tuple(_shifted(known[name, source_axis], shift, size))
                          for name, source_axis, shift in aligned if (name, source_axis) in known}
            if len(candidates) == 1:
                by_axis[name, axis] = candidates.pop()
    return by_axis


def _shifted(names: tuple, shift: int, size: int) -> list:
    """Names of the entries of an axis along which those that have them are shifted."""
    return [names[i - shift] if 0 <= i - shift < len(names) else i for i in range(size)]


def _entries_of_classes(structure: Structure,
                        labels: Mapping[str, tuple]) -> dict[tuple[str, int], tuple]:
    """(parameter, axis) → labels of a site whose logits or probabilities run along it: the columns
    of a softmax are classes."""
    by_axis: dict[tuple[str, int], tuple] = {}
    for z, classes in labels.items():
        site = structure.sites.get(z)
        if site is None or site.states != len(classes) or not site.kind.startswith("Categorical"):
            continue
        (axes, *_) = indices.parameter_axes(structure.programs, structure.sites, z)
        for parameter, axis, shift in axes[-1] if axes else ():
            if parameter in structure.sites:
                size = structure.sites[parameter].shape[axis]
                by_axis[parameter, axis] = tuple(_shifted(tuple(classes), -shift, size))
    return by_axis


def entry(name: str, index: tuple[int, ...], entries: dict[tuple[str, int], tuple]) -> str:
    """The name of an entry of a parameter, w[smoke], by the names along its axes."""
    if not index:
        return name
    words = (entries[name, axis][i] if (name, axis) in entries else i
             for axis, i in enumerate(index))
    return f"{name}[{', '.join(map(str, words))}]"


def entries(structure: Structure, labels: Mapping[str, tuple]) -> dict[tuple[str, int], tuple]:
    """(parameter, axis) → the names of the entries along it, from labels of index inputs; others
    are numbered."""
    by_axis: dict[tuple[str, int], tuple] = {}
    if not any(name in structure.model.inputs for name in labels):
        return by_axis
    for names in together({name: index for name, index in structure.indexed.items()
                           if not index.cells}):
        base, _ = bounds(structure.indexed[name] for name in names)
        for name in (name for name in names if name in labels):
            codes = {base + k: label for k, label in enumerate(labels[name])}
            for axis in structure.indexed[name].axes:
                words = {axis.scale * code + axis.offset: label for code, label in codes.items()}
                size = structure.sites[axis.parameter].shape[axis.axis]
                by_axis[axis[:2]] = tuple(words.get(position, position) for position in range(size))
    return by_axis
