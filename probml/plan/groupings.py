"""Effects of groups: numbers outside rows that are integrated out, by the index through which rows
read them.

A grouping holds the effects that rows read by one input: a row touches the cells of one member
alone, so that what rows say of a member adds up over its rows, and members of one grouping are
independent given those of the others (Bates et al. 2015, "Fitting linear mixed-effects models using
lme4", of which a grouping is a grouping factor).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from probml.structure.indices import Axis, Index
from probml.structure.structure import Structure


@dataclass(frozen=True, eq=False)
class Grouping:
    """Effects that rows read by one index, or whole.

    Attributes:
        names: the effects.
        index: the input that says which member a row reads; None: one member, which all rows read.
        scale, offset: code c reads member scale · c + offset.
        axes: along which axis of each effect its members stand; None: it is the one member.
        shapes: of each effect.
        nodes: how its integral is taken: 0, in closed form; 1, by Laplace's approximation; more, by
            so many nodes about the mode of each member (plan/integrals.py).
        flat: its effects have a density of 1 everywhere in the place of their prior (restricted
            maximum likelihood).
    """

    names: tuple[str, ...]
    index: Index | None
    scale: int
    offset: int
    axes: tuple[int | None, ...]
    shapes: tuple[tuple[int, ...], ...]
    nodes: int = 0
    flat: bool = False

    @property
    def members(self) -> int:
        return 1 if self.axes[0] is None else self.shapes[0][self.axes[0]]

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers a member, of each effect."""
        return tuple(math.prod(shape) // self.members for shape in self.shapes)

    @property
    def cells(self) -> int:
        """Numbers a member."""
        return sum(self.widths)

    @property
    def size(self) -> int:
        return self.members * self.cells


def groupings(structure: Structure, names: Sequence[str],
              flat: Sequence[str] = ()) -> tuple[Grouping, ...]:
    """The groupings of the effects `names`, the one of most numbers first: it is eliminated member
    by member; those in `flat` have no prior."""
    parts: dict[tuple, list[str]] = {}
    for name in names:
        index, axis = reading(structure, name)
        key = (name,) if index is None or axis is None else (index.name, axis.scale, axis.offset,
                                             structure.sites[name].shape[axis.axis], name in flat)
        parts.setdefault(key, []).append(name)
    out = []
    for group in parts.values():
        index, first = reading(structure, group[0])
        axes = tuple(None if axis is None else axis.axis
                     for _, axis in (reading(structure, name) for name in group))
        shift = (1, 0) if first is None else (first.scale, first.offset)
        out.append(Grouping(tuple(group), index, *shift, axes,
                            tuple(structure.sites[name].shape for name in group),
                            flat=group[0] in flat))
    return tuple(sorted(out, key=lambda grouping: -grouping.size))


def reading(structure: Structure, name: str) -> tuple[Index, Axis] | tuple[None, None]:
    """The one index by which a row reads one member of an effect, of members that are independent,
    and along which axis they stand; (None, None): there is none such, and rows read it whole."""
    found = [(index, axis) for index in structure.indexed.values() for axis in index.axes
             if axis.parameter == name]
    site = structure.sites[name]
    if len(found) != 1:
        return None, None
    index, axis = found[0]
    cells = math.prod(size or 1 for spec, shape, _ in structure.specs if spec == index.input
                      for size in shape)
    alone = axis.axis < len(site.batch) + len(site.independent)
    if (index.no_new_groups or index.input in structure.timed or not alone
        or not (len(index.cells) == 1 or not index.cells and cells == 1)):
        return None, None
    return index, axis
