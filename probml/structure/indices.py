"""Finds the inputs that are used as indices: which axes of parameters and of constant arrays they
index, and the range of valid codes.

JAX clamps a gather out of bounds and drops such a scatter, so that an invalid code gives no error.
The traced program of a site's arguments shows which number of which input is used in which gather.
It is analysed once, element by element. A number is an affine function of one cell of an input,
possibly clipped, or other arithmetic, which is stored as a formula and evaluated on the data.
`where(i < 0, i + n, i)`, which jnp inserts for negative indices, is recognised: a negative code is
out of range. A code out of range is refused only in rows that use what it reads
(dataset/coding/used.py).

Not checked, because the code states what happens: `mode="clip"`, a fill value, a one-hot row of
zeros (reference coding), the branches of `cond`, and `while` loops.

For arrays of floats the analysis follows the axis of a plate through elementwise arithmetic, so
that `(mu + tau * z)[group]` indexes `z`. It also finds whether anything else in a row depends on
other members of the plate.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from probml.jaxpr.analysis import analyse
from probml.jaxpr.gathers.moves import Reading
from probml.jaxpr.gathers.reader import Reader
from probml.jaxpr.gathers.symbols import (
    NODE,
    TABLE,
    Label,
    Node,
    Value,
    evaluated,
    numbers_of,
    sources_of,
)
from probml.jaxpr.program import ClosedJaxpr
from probml.structure.site import Site

Programs = Mapping[str, tuple[ClosedJaxpr, tuple[str, ...]]]  # site → (program, its inputs)


class Axis(NamedTuple):
    """An axis of a parameter that an input indexes: code c selects entry scale · c + offset."""

    parameter: str
    axis: int
    scale: int = 1
    offset: int = 0


class Index(NamedTuple):
    """An input, or a cell of an input, that is used as an index.

    Attributes:
        input: its name. cells: the cells of a row; () for the whole input.
        length: size of the shortest axis that it indexes; 0 if no range follows from it.
        low, high: smallest and largest valid code; None: no bound, as after a clip.
        axes: the indexed axes of parameters.
        table: whether it also indexes constant arrays (settings), which have no entry for a new
            group.
        no_new_groups: whether it is used in a way that excludes new groups: after other arithmetic,
            or where the row depends on the whole axis.
        code: whether it selects an entry itself, up to scale and shift. Else the index is computed
            from it, as in a[floor(x / 10)], and it may be any number.
    """

    input: str
    cells: tuple[int, ...]
    length: int
    low: int | None
    high: int | None
    axes: tuple[Axis, ...]
    table: bool
    no_new_groups: bool
    code: bool = True

    @property
    def name(self) -> str:
        return self.input + (f"[{', '.join(map(str, self.cells))}]" if self.cells else "")

    @property
    def parameters(self) -> tuple[tuple[str, int], ...]:
        """The indexed parameters, (name, axis)."""
        return tuple(dict.fromkeys((axis.parameter, axis.axis) for axis in self.axes))

    @property
    def description(self) -> str:
        """The indexed parameters as text, for messages."""
        return describe_axes(self.parameters)


def describe_axes(axes: Sequence[tuple[str, int]]) -> str:
    """Returns axes of parameters as text, for messages."""
    return ", ".join(f"'{name}' (axis {axis})" for name, axis in axes) or "an array"


class Formula(NamedTuple):
    """An index that is computed from codes by more than a shift.

    Attributes:
        number: the symbolic number. nodes: the arithmetic that it refers to.
        last: largest valid value.
        parameters: those that are indexed.
        cells: source of the number → (input, cell).
    """

    number: tuple[float, ...]
    last: int
    parameters: tuple[tuple[str, int], ...]
    nodes: Sequence[Node]
    cells: dict[int, tuple[str, int]]

    @property
    def sources(self) -> list[int]:
        return sources_of(self.nodes, self.number)

    def value(self, codes: dict[int, np.ndarray]) -> np.ndarray:
        """Returns the value of the index; codes: source → array of codes."""
        with np.errstate(all="ignore"):
            return evaluated(self.nodes, self.number, codes, {})


class IndexUsage(NamedTuple):
    """The indices of a model.

    Attributes:
        indexed: inputs that are used as indices, by name; if the cells of one differ, by name and
            cell, as in `x[1]`.
        formulas: indices that are not an affine function of one input.
    """

    indexed: dict[str, Index]
    formulas: tuple[Formula, ...]


def index_usage(programs: Programs, sites: Mapping[str, Site],
                specs: Sequence[tuple]) -> IndexUsage:
    """Returns the indices of a model.

    Args:
        specs: of the inputs, as in `Structure`.

    Cost: one pass over the programs of the sites in rows, no array computation.
    """
    reader, mixed, blocks = _read(programs, sites, specs)
    readings, indexed = reader.found, {}
    inputs = {first + cell: (name, cell) for name, count, first in blocks for cell in range(count)}
    formulas = {}
    for number, last, labels in reader.formulas:
        axes = tuple(sorted({label[:2] for label in labels if label[0] != TABLE}))
        formulas[number[NODE], last, axes] = Formula(number, last, axes, reader.nodes, inputs)
    for name, cells, first in blocks:
        usage = {cell: _merge_readings(name, readings[first + cell], mixed) for cell in range(cells)
                 if first + cell in readings}
        if len(usage) == cells and len(set(usage.values())) == 1:
            indexed[name] = usage[0]
            continue
        for cell, index in usage.items():
            cell_index = index._replace(cells=(cell,))
            indexed[cell_index.name] = cell_index
    return IndexUsage(indexed, tuple(formulas.values()))


def parameter_axes(programs: Programs, sites: Mapping[str, Site],
                   name: str) -> list[tuple[frozenset[Label], ...]]:
    """Returns for each argument of a site, or for the value of a deterministic, and each of its
    axes the aligned axes of parameters: {(parameter, axis, shift)}.

    Cost: one pass over the program, no array computation.
    """
    program, input_names = programs[name]
    inputs = [_unlabelled(aval.shape) if other not in sites
              or sites[other].rows else _labelled(other, aval.shape)
              for other, aval in zip(input_names, program.in_avals, strict=True)]
    return [value.axes for value in analyse(program, Reader(), inputs)]


def _unlabelled(shape: Sequence[int]) -> Value:
    """Returns the symbolic value of an array without information."""
    return Value(None, (frozenset(),) * len(shape))


def _labelled(name: str, shape: Sequence[int]) -> Value:
    """Returns the symbolic value of a parameter, each axis labelled with itself."""
    return Value(None, tuple(frozenset([(name, axis, 0)]) for axis in range(len(shape))))


def _read(programs: Programs, sites: Mapping[str, Site],
          specs: Sequence[tuple]) -> tuple[Reader, frozenset, list[tuple[str, int, int]]]:
    """Returns the reader of all programs in rows, the axes of parameters on whose every entry a row
    depends, and (name, number of cells, number of its first cell) of each input."""
    blocks, offset = [], 0
    for name, shape, _ in specs:
        cells = math.prod(1 if size is None else size for size in shape)
        blocks.append((name, cells, offset))
        offset += cells
    reader, mixed = Reader(), frozenset()
    spans = {name: (offset, cells) for name, cells, offset in blocks}
    for site in sites.values():
        if not site.rows:
            continue
        program, input_names = programs[site.name]
        inputs = []
        for name, aval in zip(input_names, program.in_avals, strict=True):
            if name in spans:
                number = np.arange(spans[name][1], dtype=float).reshape(aval.shape) + spans[name][0]
                inputs.append(Value(numbers_of(number, 1.0, 0.0), (frozenset(),) * len(aval.shape)))
            elif sites[name].rows:
                inputs.append(_unlabelled(aval.shape))
            else:
                inputs.append(_labelled(name, aval.shape))
        for value in analyse(program, reader, inputs):
            mixed |= value.all_axes
    return reader, mixed, blocks


def _merge_readings(name: str, readings: Sequence[Reading], mixed: frozenset) -> Index:
    """Combines all readings by one cell, or input, into one `Index`."""
    low, high, lengths, axes, table, no_new_groups = -math.inf, math.inf, [], set(), False, False
    code = False
    for reading in readings:
        _, scale, offset, lower, upper, _ = reading.number
        affine = math.isfinite(scale) and scale == round(scale) and scale != 0
        code |= affine
        if affine:
            axes |= {Axis(p, axis, int(scale), int(offset) - shift)
                     for p, axis, shift in reading.labels if p != TABLE}
        table |= not reading.labels or any(label[0] == TABLE for label in reading.labels)
        no_new_groups |= (not affine or reading.reads_all or math.isfinite(lower)
                          or math.isfinite(upper))
        if not affine or reading.free:
            continue
        bounds = sorted([(0 - offset) / scale, (reading.last - offset) / scale])
        # whether the index can be below 0, or above the last entry
        limits_low, limits_high = lower < 0, upper > reading.last
        if scale < 0:
            limits_low, limits_high = limits_high, limits_low
        previous = low, high
        low, high = (max(low, math.ceil(bounds[0])) if limits_low else low,
                     min(high, math.floor(bounds[1])) if limits_high else high)
        if (low, high) != previous:
            lengths.append(reading.length)
    no_new_groups |= any(axis[:2] in mixed for axis in axes)
    first, last = (None if math.isinf(bound) else int(bound) for bound in (low, high))
    return Index(name, (), min(lengths, default=0), first, last, tuple(sorted(axes)), table,
                 no_new_groups,
                 code)
