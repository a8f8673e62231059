"""One sample statement: its distribution, its plates, and its layout in NumPyro's axes and in the
user's."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.tree_util import PyTreeDef

from probml.errors import present
from probml.families import registry
from probml.families.domains import Domain
from probml.families.likelihood import UNKNOWN, Entry, Likelihood
from probml.jaxpr import levels
from probml.language.measured import Measure


@dataclass(frozen=True, eq=False)
class Site:
    """One `sample` statement: its distribution, its plates, and its layout.

    `shape` is NumPyro's layout (batch axes, then event axes) for one row. `cells` is the user's
    layout: plates inside rows, outermost first, then event axes. The axes `independent` are event
    axes of the site and batch axes of the base distribution.
    """

    name: str
    rows: bool  # inside rows()
    discrete: bool
    entry: Entry  # of the registry of families
    kind: str  # the distribution's name
    arguments: tuple[str, ...]
    treedef: PyTreeDef | None  # of the base distribution, if it has no family
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
    locations: tuple[str, ...] = ()  # arguments that are location parameters
    # of the states, if the model declares them: sample(..., infer={"labels": (...)})
    labels: tuple | None = None
    measure: Measure | None = None  # statistic of the rows that determines the site's value
    chain: bool = False  # a distribution along time: MarkovChain, GaussianChain
    # number of values: of the states, or total + 1 for a count with a known total
    finite: int | None = None
    low: int = 0  # smallest value; this package uses codes, value − low
    # a count out of a total: predicted by its mean, not by its most probable value
    count: bool = False
    n_observed: int | None = None  # number of observed values of a factor with obs
    # the axis of `cells` that is the time axis; such a site is traced for one step
    time: int | None = None

    def along(self, steps: object) -> tuple:
        """Returns `cells` for a sequence of so many steps."""
        return self.cells if self.time is None else (*self.cells[: self.time], steps,
                                                     *self.cells[self.time + 1 :])

    @property
    def family(self) -> Likelihood | None:
        """The likelihood; None if there is no kernel and NumPyro's log_prob is used."""
        return self.entry.likelihood

    @property
    def traits(self) -> Likelihood:
        """The likelihood, or UNKNOWN, which declares no properties."""
        return self.entry.likelihood or UNKNOWN

    def distribution(self, arguments: list) -> dist.Distribution:
        """Returns the base distribution of a site without a family, from its leaves."""
        base = registry.typed(jax.tree.unflatten(self.treedef, arguments))
        return base if self.entry.sharp is None else self.entry.sharp(base)

    @property
    def factor(self) -> bool:
        """Whether the site is a numpyro.factor: a log weight, not a random variable."""
        return self.kind == "factor"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.batch + self.independent + self.event

    @property
    def cells(self) -> tuple[int, ...]:
        return self.lattice + self.event

    @property
    def lattice(self) -> tuple[int, ...]:
        """Shape of the cells that are separate draws of the base distribution: plates inside rows,
        then independent event axes."""
        if not self.rows:
            return self.batch + self.independent
        return tuple(self.batch[axis] for axis in self.axes) + self.independent

    def layout(self, array: jax.Array | np.ndarray, tail: int, xp: ModuleType = jnp) -> jax.Array:
        """Converts an array from NumPyro's layout for one row, with `tail` trailing axes, to
        (lattice cells, *tail axes), with broadcasting.

        Args:
            xp: jax.numpy, or numpy for an array on the host, for which nothing is compiled.
        """
        rank = len(self.batch) + len(self.independent)
        inner = array.shape[array.ndim - tail :]
        result = xp.broadcast_to(array, self.batch + self.independent + inner)
        if self.rows:
            kept_axes = (*self.axes, *range(len(self.batch), rank))
            other_axes = [axis for axis in range(rank) if axis not in kept_axes]
            result = xp.transpose(result, (*other_axes, *kept_axes, *range(rank, rank + tail)))
        return result.reshape((math.prod(self.lattice), *inner))

    def valued(self, codes: jax.Array) -> jax.Array:
        """Converts codes to values of the distribution."""
        return codes + self.low if self.low else codes

    def place(self, cells: jax.Array) -> jax.Array:
        """Converts one row from the user's layout, (*cells), to NumPyro's layout."""
        if not self.rows:
            return jnp.reshape(cells, self.shape)
        plates = len(self.axes)
        cells = jnp.reshape(cells, self.cells)
        order = sorted(range(plates), key=lambda i: self.axes[i])
        return jnp.transpose(cells, (*order, *range(plates, cells.ndim))).reshape(self.shape)

    def collect(self, value: jax.Array, rows: int) -> jax.Array:
        """Converts NumPyro's layout with `rows` rows to (rows, *cells)."""
        if not self.rows:
            return value
        batch = list(self.batch)
        batch[present(self.row_axis)] = rows
        value = jnp.broadcast_to(value, tuple(batch) + self.independent + self.event)
        lead_axes = (present(self.row_axis), *self.axes)
        other_axes = [axis for axis in range(len(batch)) if axis not in lead_axes]
        value = jnp.transpose(value, (*lead_axes, *other_axes, *range(len(batch), value.ndim)))
        return value.reshape((rows, *self.cells))

    def spread(self, cells: jax.Array) -> jax.Array:
        """Converts (rows, *cells) to NumPyro's layout."""
        value = jax.vmap(self.place)(cells)
        axis = present(self.row_axis)
        return jnp.moveaxis(jnp.squeeze(value, axis + 1), 0, axis)
