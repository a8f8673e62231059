"""One sample statement: its distribution, its place in the plates, and its layout in NumPyro's axes
and in the user's."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.errors import present
from probml.families.domains import Domain
from probml.families.entry import Entry
from probml.families.likelihood import UNKNOWN, Likelihood
from probml.jaxpr import levels
from probml.language.measured import Measure


@dataclass(frozen=True, eq=False)
class Site:
    """One `sample` statement: its distribution, its place in the plates, and its layout.

    `shape` is NumPyro's (batch dims, then event dims) for one row; `cells` is the user's: plates
    inside rows with the outermost first, then event axes. `independent` of the event axes are batch
    axes of the base distribution.
    """

    name: str
    rows: bool
    discrete: bool
    entry: Entry  # what families knows of it
    kind: str  # the distribution's name
    arguments: tuple[str, ...]
    treedef: Any  # rebuilds the base distribution from its leaves, where there is no family
    batch: tuple[int, ...]
    independent: tuple[int, ...]
    event: tuple[int, ...]
    axes: tuple[int, ...]  # batch axes of the plates inside rows, outermost first
    row_axis: int | None
    plates: tuple[tuple[str, int], ...]
    states: int | None
    domain: Domain  # the set of the values of one cell
    parents: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    # argument -> parameter -> Use
    uses: Mapping[str, Mapping[str, levels.Use]] = field(default_factory=dict)
    locations: tuple[str, ...] = ()  # the arguments that only say where the density lies
    # of its states, where the model declares them: sample(..., infer={"labels": (...)})
    labels: tuple | None = None
    measure: Measure | None = None  # it is known, by a measurement of the rows
    chain: bool = False  # a distribution along time: MarkovChain, GaussianChain
    # the number of its values: its states, or of a count of known total, 0 … total
    finite: int | None = None
    low: int = 0  # the least of them; within this package a value is its code, value − low
    # it counts among a total: answered by a mean, and not by the most probable value
    count: bool = False
    seen: int | None = None  # of a factor that observes something: how many numbers
    # the axis of `cells` that runs along a chain; such a site is traced for one step
    time: int | None = None

    def along(self, steps: object) -> tuple:
        """`cells` of a sequence of so many steps."""
        return self.cells if self.time is None else (*self.cells[: self.time], steps,
                                                     *self.cells[self.time + 1 :])

    @property
    def family(self) -> Likelihood | None:
        """Its likelihood; None: no kernel, NumPyro's own log_prob is used."""
        return self.entry.likelihood

    @property
    def traits(self) -> Likelihood:
        """What its likelihood knows of itself; nothing, where there is none."""
        return self.entry.likelihood or UNKNOWN

    def distribution(self, arguments: list) -> dist.Distribution:
        """The base distribution of a site without a family."""
        found = jax.tree.unflatten(self.treedef, arguments)
        return found if self.entry.sharp is None else self.entry.sharp(found)

    @property
    def factor(self) -> bool:
        """A numpyro.factor: a log weight, no random variable."""
        return self.kind == "factor"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.batch + self.independent + self.event

    @property
    def cells(self) -> tuple[int, ...]:
        return self.lattice + self.event

    @property
    def lattice(self) -> tuple[int, ...]:
        """The cells that are separate values of the base distribution: plates inside rows, then
        independent event axes."""
        if not self.rows:
            return self.batch + self.independent
        return tuple(self.batch[axis] for axis in self.axes) + self.independent

    def layout(self, array: jax.Array, tail: int) -> jax.Array:
        """One row of NumPyro's layout, broadcast, with `tail` trailing axes → (lattice cells
        flattened, tail axes)."""
        rank = len(self.batch) + len(self.independent)
        inner = array.shape[array.ndim - tail :]
        array = jnp.broadcast_to(array, self.batch + self.independent + inner)
        if self.rows:
            used = (*self.axes, *range(len(self.batch), rank))
            rest = [axis for axis in range(rank) if axis not in used]
            array = jnp.transpose(array, (*rest, *used, *range(rank, rank + tail)))
        return array.reshape((math.prod(self.lattice), *inner))

    def valued(self, codes: jax.Array) -> jax.Array:
        """Codes as the values that the distribution and the user's function know."""
        return codes + self.low if self.low else codes

    def place(self, cells: jax.Array) -> jax.Array:
        """One row in the user's layout (cells) → NumPyro's layout for a single row."""
        if not self.rows:
            return jnp.reshape(cells, self.shape)
        plates = len(self.axes)
        cells = jnp.reshape(cells, self.cells)
        order = sorted(range(plates), key=lambda i: self.axes[i])
        cells = jnp.transpose(cells, (*order, *range(plates, cells.ndim)))
        return cells.reshape(self.shape)

    def collect(self, value: jax.Array, rows: int) -> jax.Array:
        """NumPyro's layout with `rows` rows → (rows, cells)."""
        if not self.rows:
            return value
        batch = list(self.batch)
        batch[present(self.row_axis)] = rows
        value = jnp.broadcast_to(value, tuple(batch) + self.independent + self.event)
        front = (present(self.row_axis), *self.axes)
        rest = [axis for axis in range(len(batch)) if axis not in front]
        value = jnp.transpose(value, (*front, *rest, *range(len(batch), value.ndim)))
        return value.reshape((rows, *self.cells))

    def spread(self, cells: jax.Array) -> jax.Array:
        """(rows, cells) → NumPyro's layout with that many rows."""
        value = jax.vmap(self.place)(cells)
        axis = present(self.row_axis)
        return jnp.moveaxis(jnp.squeeze(value, axis + 1), 0, axis)
