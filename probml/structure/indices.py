"""Which inputs are indices: an input's codes → the axes of parameters and of constant arrays that
they pick from, and their range.

JAX clamps a gather out of bounds and drops such a scatter, so nobody would hear of a wrong code.
The traced program of a site's arguments says which number of which input reaches which gather: the
program is read once, element by element, every number being an affine function of one cell of an
input, perhaps clipped, or other arithmetic, kept as a formula that is evaluated on the data.
`where(i < 0, i + n, i)`, by which jnp reads negative indices, is seen through: a negative code is
out of range.

What is left unchecked, as it is meant: `mode="clip"`, a fill value that is stated, a one-hot row of
zeros (reference coding), the branches of `cond`, and loops of `while`.

For arrays of floats the reader follows along which axis the members of a plate stand, through
elementwise arithmetic, so that `(mu + tau * z)[group]` is a reading of `z`; and whether anything
else of a row depends on other members.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
from probml.structure.site import Site

Programs = Mapping[str, tuple[Any, tuple[str, ...]]]  # site → its program, what it takes


class Axis(NamedTuple):
    """Along which axis of a parameter the codes of an input run: code c is entry scale · c +
    offset."""

    parameter: str
    axis: int
    scale: int = 1
    offset: int = 0


class Index(NamedTuple):
    """An input, or a cell of it, that is used as an index.

    Attributes:
        input: its name. cells: the cells of a row that are meant; () for a whole input.
        length: the number of entries of the (shortest) axis it indexes; 0 where no range follows
            from it.
        low, high: the codes that are allowed, both included; None: no bound, as after a clip.
        axes: the axes of parameters along which the codes run.
        table: it reads constant arrays too (settings): codes that these do not have have no value.
        rigid: it reads a parameter in a way that a new member cannot have: after other arithmetic,
            or as a part of a whole.
    """

    input: str
    cells: tuple[int, ...]
    length: int
    low: int | None
    high: int | None
    axes: tuple[Axis, ...]
    table: bool
    rigid: bool

    @property
    def name(self) -> str:
        return self.input + (f"[{', '.join(map(str, self.cells))}]" if self.cells else "")

    @property
    def parameters(self) -> tuple[tuple[str, int], ...]:
        """The parameters that it indexes, (name, axis)."""
        return tuple(dict.fromkeys((axis.parameter, axis.axis) for axis in self.axes))

    @property
    def description(self) -> str:
        """The parameters that it indexes, for messages."""
        return ", ".join(f"{name} (axis {axis})" for name, axis in self.parameters) or "an array"


class Formula(NamedTuple):
    """An index that is computed from codes by more than a shift: what it is, and the largest value
    that is allowed."""

    number: tuple[float, ...]
    last: int
    words: str
    nodes: Sequence[Node]
    cells: dict[int, tuple[str, int]]  # source → input, cell

    @property
    def sources(self) -> list[int]:
        return sources_of(self.nodes, self.number)

    def value(self, codes: dict[int, np.ndarray]) -> np.ndarray:
        """Its value for arrays of codes, by source."""
        with np.errstate(all="ignore"):
            return evaluated(self.nodes, self.number, codes, {})


class Facts(NamedTuple):
    """What is known of the indices of a model.

    Attributes:
        indexed: the inputs that index something, by name; where cells of one differ, by name and
            cell, as `x[1]`.
        formulas: indices whose range is not that of one input's codes.
    """

    indexed: dict[str, Index]
    formulas: tuple[Formula, ...]


def facts(programs: Programs, sites: Mapping[str, Site], specs: Sequence[tuple]) -> Facts:
    """Which inputs of a model, of these specs, index what.

    Cost: one pass over the programs of the sites in rows, no array computation.
    """
    reader, loose, starts = _read(programs, sites, specs)
    readings, out = reader.found, {}
    cells = {begin + cell: (name, cell) for name, count, begin in starts for cell in range(count)}
    formulas = {}
    for number, last, labels in reader.formulas:
        words = (", ".join(sorted({f"{p} (axis {axis})" for p, axis, _ in labels if p != TABLE}))
                 or "an array")
        formulas[number[NODE], last, words] = Formula(number, last, words, reader.nodes, cells)
    for name, size, begin in starts:
        found = {cell: _index(name, readings[begin + cell], loose) for cell in range(size)
                 if begin + cell in readings}
        if len(found) == size and len(set(found.values())) == 1:
            out[name] = found[0]
            continue
        for cell, index in found.items():
            own = index._replace(cells=(cell,))
            out[own.name] = own
    return Facts(out, tuple(formulas.values()))


def parameter_axes(programs: Programs, sites: Mapping[str, Site],
                   name: str) -> list[tuple[frozenset[Label], ...]]:
    """Of each result of a site's program, or of the value of a deterministic: for each axis, the
    axes of parameters that run along it, (parameter, axis, shift).

    Cost: one pass over the program, no array computation.
    """
    program, takes = programs[name]
    inputs = [_unknown(aval.shape) if other not in sites
              or sites[other].rows else _labelled(other, aval.shape)
              for other, aval in zip(takes, program.in_avals, strict=True)]
    return [value.axes for value in analyse(program, Reader(), inputs)]


def _unknown(shape: Sequence[int]) -> Value:
    """An array of which nothing is known."""
    return Value(None, (frozenset(),) * len(shape))


def _labelled(name: str, shape: Sequence[int]) -> Value:
    """A parameter: along each axis its own entries."""
    return Value(None, tuple(frozenset([(name, axis, 0)]) for axis in range(len(shape))))


def _read(programs: Programs, sites: Mapping[str, Site],
          specs: Sequence[tuple]) -> tuple[Reader, frozenset, list[tuple[str, int, int]]]:
    starts, begin = [], 0
    for name, shape, _ in specs:
        cells = math.prod(1 if size is None else size for size in shape)
        starts.append((name, cells, begin))
        begin += cells
    reader, loose = Reader(), frozenset()
    first = {name: (begin, cells) for name, cells, begin in starts}
    for site in sites.values():
        if not site.rows or not starts:
            continue
        program, takes = programs[site.name]
        inputs = []
        for name, aval in zip(takes, program.in_avals, strict=True):
            if name in first:
                number = np.arange(first[name][1], dtype=float).reshape(aval.shape) + first[name][0]
                inputs.append(Value(numbers_of(number, 1.0, 0.0), (frozenset(),) * len(aval.shape)))
            elif sites[name].rows:
                inputs.append(_unknown(aval.shape))
            else:
                inputs.append(_labelled(name, aval.shape))
        for value in analyse(program, reader, inputs):
            loose |= value.every
    return reader, loose, starts


def _index(name: str, readings: Sequence[Reading], loose: frozenset) -> Index:
    """All readings by one cell as one fact."""
    low, high, lengths, axes, table, rigid = -math.inf, math.inf, [], set(), False, False
    for reading in readings:
        _, scale, offset, least, most, _ = reading.number
        plain = math.isfinite(scale) and scale == round(scale) and scale != 0
        if plain:
            axes |= {Axis(p, axis, int(scale), int(offset) - shift)
                     for p, axis, shift in reading.labels if p != TABLE}
        table |= not reading.labels or any(label[0] == TABLE for label in reading.labels)
        rigid |= not plain or reading.whole or math.isfinite(least) or math.isfinite(most)
        if not plain or reading.free:
            continue
        ends = sorted([(0 - offset) / scale, (reading.last - offset) / scale])
        # whether the number can fall short, or exceed
        below, above = least < 0, most > reading.last
        if scale < 0:
            below, above = above, below
        before = low, high
        low, high = (max(low, math.ceil(ends[0])) if below else low,
                     min(high, math.floor(ends[1])) if above else high)
        if (low, high) != before:
            lengths.append(reading.length)
    rigid |= any(axis[:2] in loose for axis in axes)
    first, last = (None if math.isinf(bound) else int(bound) for bound in (low, high))
    return Index(name, (), min(lengths, default=0), first, last, tuple(sorted(axes)), table, rigid)
