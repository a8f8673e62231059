"""Names for the axes of arrays: plates, steps, and the labels of the states along them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from probml.assessment.columns import along
from probml.dataset.coding.indices import bounds, together
from probml.errors import ModelError
from probml.queries.fitted import Fitted
from probml.structure import indices
from probml.structure.structure import Structure

if TYPE_CHECKING:
    from probml.dataset.dataset import Data


class Dimensions:
    """The dimensions of a Fit's sites, and what is known of their coordinates.

    Attributes:
        rows: the name of the axis of rows.
        coords: dimension → its labels, else 0, 1, …; a plate whose axis a labelled site indexes has
            that site's.
    """

    def __init__(self, fit: Fitted, held: "Data"):
        self.structure, self.held = held.structure, held
        self.labels = {**fit.names, **held.labels}
        self.taken: dict[str, tuple] = {}  # dimension → (what it stands for, its size)
        self.coords: dict[str, Any] = {}
        self.rows = self._name("rows", ("plate", "rows"), held.table.rows)
        index = held.table.index
        plain = index is not None and getattr(index, "nlevels", 1) == 1
        self.coords[self.rows] = np.asarray(index) if plain else np.arange(held.table.rows)
        self.columns = fit.columns
        self.entries = named_entries(fit, self.labels)

    def _name(self, name: str, meaning: tuple, size: int) -> str:
        """A name that no site has (xarray would take the site for the dimension's coordinates) and
        no other dimension."""
        for free in (name, f"{name}_dim", *(f"{name}_{i}" for i in range(2, 100))):
            if free not in (*self.structure.named, *self.structure.model.inputs, "chain", "draw"):
                if self.taken.setdefault(free, (meaning, size)) == (meaning, size):
                    self.coords.setdefault(free, np.arange(size))
                    return free
        raise AssertionError("a hundred dimensions of one name")

    def _name_axes(self, name: str, shape: tuple) -> list[str]:
        """Default names of the axes of a shape."""
        return [self._name(f"{name}_dim_{i}", (name, i), size) for i, size in enumerate(shape)]

    def of_parameter(self, name: str) -> tuple[str, ...]:
        """Of a site outside rows: its plates, then axes of an event."""
        site = self.structure.named[name]
        dims = self._name_axes(name, site.shape)
        plates = dict(site.plates)
        # the first is the outermost and has the last batch axis, unless dim= was given
        for i, (plate, size) in enumerate(site.plates):
            axis = len(site.batch) - 1 - i
            if axis < 0 or site.batch[axis] != size:
                fitting = [a for a, found in enumerate(site.batch) if found == size]
                if len(fitting) != 1 or list(plates.values()).count(size) > 1:
                    continue
                axis = fitting[0]
            dims[axis] = self._name(plate, ("plate", plate), size)
        for axis, dim in enumerate(dims):
            if (name, axis) in self.entries:
                self.coords[dim] = _array(self.entries[name, axis])
        return tuple(dims)

    def of_row_site(self, name: str) -> tuple[str, ...]:
        """Of a site inside rows: rows, its plates, axes of an event, of which one may be the steps
        of a chain."""
        site = self.structure.named[name]
        shape = site.along(self.held.steps)
        dims = self._name_axes(name, shape)
        for i, (plate, size) in enumerate(p for p in site.plates if p[0] != "rows"):
            dims[i] = self._name(plate, ("plate", plate), size)
        if site.time is not None:
            dims[site.time] = self._name("step", ("plate", "step"), shape[site.time])
        self._along_columns(name, dims)
        return (self.rows, *dims)

    def of_plated_site(self, name: str, shape: tuple[int, ...], batch: int,
                       frames: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
        """Of what a function observes in plates of its own.

        Args:
            batch: axes that are no event's; frames: (plate, its axis from the right of these).
        """
        dims = self._name_axes(name, shape)
        for plate, dim in frames:
            if shape[batch + dim] != 1:
                dims[batch + dim] = self._name(plate, ("plate", plate), shape[batch + dim])
        return tuple(dims)

    def covariate(self, name: str) -> tuple[str, ...]:
        """Of an input."""
        dims = self._name_axes(name, self.held.table.inputs[name].shape[1:])
        if name in self.structure.timed:
            dims[0] = self._name("step", ("plate", "step"), self.held.steps)
        self._along_columns(name, dims)
        return (self.rows, *dims)

    def _along_columns(self, name: str, dims: list[str]) -> None:
        if name in self.columns and len(dims) == 1:
            self.coords[dims[0]] = np.array(self.columns[name])

    def states(self, name: str) -> dict[str, list]:
        """What the numbers of a labelled site stand for, as an attribute."""
        return {"states": self._coordinates(name).tolist()} if name in self.labels else {}

    def _coordinates(self, site: str) -> np.ndarray:
        return _array(self.labels[site])


def _array(labels: tuple) -> np.ndarray:
    plain = len(set(map(type, labels))) == 1 and isinstance(labels[0], str | int | float | bool)
    return np.array(labels if plain else [str(label) for label in labels])


def named_entries(fit: Fitted, labels: Any) -> dict[tuple[str, int], tuple]:
    """(parameter, axis) → the names of the entries along it: columns of a table, members of a
    group, states of a labelled site; others are numbers, all of them where nothing has told the
    shapes of the inputs, as of `model.at(params)`."""
    try:
        structure = fit.structure
    except ModelError:
        return {}
    known = {name: columns for name, columns in fit.columns.items() if name in structure.sites
             or name in structure.model.inputs}
    said = {(name, axis): tuple(names) for name, unit in fit.units.items()
            for axis, names in unit.names.items()}
    found = (_classes(structure, labels) | along(structure, known, labels)
             | entries(structure, labels) | said)
    return _derived(structure, found) | found


def _derived(structure: Structure,
             found: Mapping[tuple[str, int], tuple]) -> dict[tuple[str, int], tuple]:
    """The same of what the model computes outside rows, along whose axes entries of parameters
    stand: `a = mu + tau * z` has the names of z."""
    out: dict[tuple[str, int], tuple] = {}
    for name in structure.derived if found else ():
        for axis, standing in enumerate(indices.parameter_axes(structure.programs, structure.sites,
                                                                 name)[0]):
            size = structure.named[name].shape[axis]
            told = {tuple(_shifted(found[own], shift, size)) for *own, shift in standing
                    for own in [tuple(own)] if own in found}
            if len(told) == 1:
                out[name, axis] = told.pop()
    return out


def _shifted(names: tuple, shift: int, size: int) -> list:
    """Names of the entries of an axis along which those that have them are shifted."""
    return [names[i - shift] if 0 <= i - shift < len(names) else i for i in range(size)]


def _classes(structure: Structure, labels: Any) -> dict[tuple[str, int], tuple]:
    """(parameter, axis) → labels of a site whose logits or probabilities it stands along: the
    columns of a softmax are classes."""
    out: dict[tuple[str, int], tuple] = {}
    for z, own in labels.items():
        site = structure.sites.get(z)
        if site is None or site.states != len(own) or not site.kind.startswith("Categorical"):
            continue
        (axes, *_) = indices.parameter_axes(structure.programs, structure.sites, z)
        for parameter, axis, shift in axes[-1] if axes else ():
            if parameter in structure.sites:
                size = structure.sites[parameter].shape[axis]
                out[parameter, axis] = tuple(_shifted(tuple(own), -shift, size))
    return out


def entry(name: str, index: tuple[int, ...], entries: dict[tuple[str, int], tuple]) -> str:
    """What an entry of a parameter is called, w[smoke], by the names along its axes."""
    if not index:
        return name
    words = (entries[name, axis][i] if (name, axis) in entries else i
             for axis, i in enumerate(index))
    return f"{name}[{', '.join(map(str, words))}]"


def entries(structure: Structure, labels: Any) -> dict[tuple[str, int], tuple]:
    """(parameter, axis) → the names of the entries along it, where labels of index inputs tell
    them; others are numbers."""
    out: dict[tuple[str, int], tuple] = {}
    if not any(name in structure.model.inputs for name in labels):
        return out
    for names in together({name: index for name, index in structure.indexed.items()
                           if not index.cells}):
        base, _ = bounds(structure.indexed[name] for name in names)
        for name in (name for name in names if name in labels):
            codes = {base + k: label for k, label in enumerate(labels[name])}
            for axis in structure.indexed[name].axes:
                at = {axis.scale * code + axis.offset: label for code, label in codes.items()}
                size = structure.sites[axis.parameter].shape[axis.axis]
                out[axis[:2]] = tuple(at.get(position, position) for position in range(size))
    return out
