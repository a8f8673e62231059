"""A structure with its data, on the host: what was seen of which site."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from probml.dataset import ragged, tables
from probml.dataset.coding import indices as coding
from probml.dataset.moments import Moments
from probml.dataset.source import Source
from probml.dataset.sources.chosen import Chosen
from probml.errors import ModelError, Refusal
from probml.language.language import Bound
from probml.plan import decide
from probml.plan.plan import Plan
from probml.structure.structure import Structure

# rows up to which a question to a network goes through the one program in which every discrete cell
# may be unseen
FEW = 2**14
HELD = 2**23  # numbers that the evidence of such a question may take


@dataclass(frozen=True, eq=False)
class Profile:
    """Of all rows of a source, part by part.

    Attributes:
        names, sizes: of the parts, and their rows.
        pattern: site → seen, part, torn or likelihood, as Data.pattern of all rows.
        labels: site → labels of its states.
        moments: continuous site → of its cells.
        sample: at most `profile.KEPT` rows, of many numbers fewer, drawn without regard to
            anything; all, if they are no more.
        weight: of all rows.
        ranks: (rows of the sample,) by which they were drawn: made of their numbers among all rows,
            so that it does not matter how these are cut into parts.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    pattern: Mapping[str, str]
    labels: Mapping[str, tuple]
    moments: Mapping[str, Moments]
    sample: "Data"
    ranks: np.ndarray
    weight: float

    @property
    def rows(self) -> int:
        return sum(self.sizes)

    @property
    def means(self) -> dict[str, np.ndarray]:
        """Continuous site → of its cells, of those that are not along time."""
        sites = self.sample.structure.sites
        return {name: found.mean for name, found in self.moments.items()
                if sites[name].time is None}


class Survey(NamedTuple):
    """Rows that are read in parts, and what one look at all of them told.

    Args:
        profile: of all rows, also those of other processes.
        names, sizes: of the parts of this process.
        shares: of several processes, the sizes of the parts of each; () of one.
        held: whether they are read once and held, on several devices.
        chosen: of passes over some rows; None: they meet all.
    """

    source: Source
    profile: Profile
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    shares: tuple[tuple[int, ...], ...] = ()
    held: bool = False
    chosen: Chosen | None = None

    @property
    def rows(self) -> int:
        """That a pass meets in this process."""
        return sum(self.sizes) if self.chosen is None else self.chosen.rows


class Data(NamedTuple):
    """A model with its data, on the host."""

    model: Bound
    structure: Structure
    table: tables.Table
    steps: int | None = None  # of sites along chains
    lengths: np.ndarray | None = None  # (rows,) how many of them count; None: all
    given: np.ndarray | None = None  # (rows,) how many each sequence of a list had
    # index input → the number of its new member, (rows, ...); −1 where the fit knows it
    new: Mapping[str, np.ndarray] = {}
    survey: "Survey | None" = None  # these are a sample of rows that are read in parts
    weights: np.ndarray | None = None  # (rows,), where those of a source have some
    measured: Mapping[str, Moments | None] = {}  # of the columns by which priors are measured

    @property
    def size(self) -> int:
        """Rows, of a sample those for which it stands."""
        return self.table.rows if self.survey is None else self.survey.profile.rows

    @property
    def numbers(self) -> int:
        """How many a row has."""
        held = [column.values for column in self.table.columns.values()]
        held += self.table.inputs.values()
        return sum(math.prod(value.shape[1:]) for value in held)

    @property
    def extent(self) -> str:
        """Rows × numbers a row, in words."""
        return f"{self.size:,} × {self.numbers}"

    @property
    def pattern(self) -> dict[str, str]:
        """Site → seen, part, torn (some vector of it is seen in part), likelihood or carried."""

        def state(column):
            if column.likelihood is not None:
                return "likelihood"
            if column.carried is not None:
                return "carried"
            return "seen" if column.seen is None else "torn" if column.torn else "part"

        return {name: state(column) for name, column in self.table.columns.items()}

    @property
    def labels(self) -> dict[str, tuple]:
        """Site → labels of its states: those that the model declares, and those that came with the
        data."""
        return {**self.structure.labels, **self.table.labels}

    @property
    def shapes(self) -> dict[str, tuple]:
        """Input → (trailing shape, dtype kind): what the structure was traced for."""
        timed = self.structure.timed
        shapes = {name: (None, *value.shape[2:]) if name in timed else value.shape[1:]
                  for name, value in self.table.inputs.items()}
        return {name: (tuple(shapes[name]), value.dtype.kind)
                for name, value in self.table.inputs.items()}

    def trimmed(self) -> "Data":
        """The same data without the steps behind the last that shows anything: they sum to one,
        whatever the parameters are."""
        sites, shown = self.structure.sites, self.observed_steps()
        lengths = None if shown is None else ragged.count_steps(shown)
        if lengths is None:
            return self
        dead, columns = np.arange(self.steps or 0) >= lengths[:, None], dict(self.table.columns)
        for name, column in columns.items():
            if sites[name].time is not None and column.seen is not None:
                seen = column.seen | np.expand_dims(dead, [
                    1 + i for i in range(column.seen.ndim - 1) if i != sites[name].time])
                columns[name] = replace(column, seen=None if seen.all() else seen)
        return self._replace(table=replace(self.table, columns=columns), lengths=lengths)

    def observed_steps(self) -> np.ndarray | None:
        """The steps at which any cell is observed, bool (rows, steps); None where a site along time
        is completely observed."""
        along = [name for name in self.table.columns if self.structure.sites[name].time is not None]
        if not along or any(self.table.columns[name].seen is None for name in along):
            return None
        return np.logical_or.reduce([self._units(name).any(-1) for name in along])

    def extended(self, last: np.ndarray, more: int, read: Callable,
                 inputs: Mapping[str, Any]) -> "Data":
        """The same rows with `more` steps behind the `last` of each, in which nothing is seen.

        Args:
            read: from a mapping name → array to Data.
            inputs: those with an axis of time, at the steps that follow.
        """
        table, sites, timed = self.table, self.structure.sites, self.structure.timed
        missing = [name for name in timed
                   if np.shape(inputs.get(name, 0))[:2] != (table.rows, more)]
        if missing:
            shape = (table.rows, more, *table.inputs[missing[0]].shape[2:])
            got = np.shape(inputs.get(missing[0], 0))
            raise ModelError(f"forecast needs the input '{missing[0]}' at the steps that follow, "
                             f"{shape}, got {got}")
        out: dict[str, Any] = dict(table.values)
        at = last[:, None] + np.arange(more)
        for name, codes in table.inputs.items():
            array = coding.as_labels(self.structure, table.labels, name, codes)
            if name in timed:
                array = np.concatenate(
                    [array, np.zeros((table.rows, more, *array.shape[2:]), array.dtype)], 1
                )
                array[np.arange(table.rows)[:, None], at] = inputs[name]
            out[name] = array
        for name, column in table.columns.items():
            time = sites[name].time
            value = (column.values.astype(float) if column.seen is not None or time is not None
                     else column.values)
            if column.likelihood is not None:
                out[name] = column.likelihood
                continue
            if column.seen is not None:
                value = np.where(column.seen, value, np.nan)
            if time is not None:
                pad = [(0, more if axis == 1 + time else 0) for axis in range(value.ndim)]
                value = np.pad(value, pad, constant_values=np.nan)
            labels = table.labels.get(name)
            out[name] = value if labels is None else np.array([*labels, None], object)[
                np.where(np.isnan(value), -1, value).astype(int)
            ]
        return read(out)

    def unrolled(self, picks: np.ndarray) -> "Data":
        """Single steps as rows: `picks` number them, row by row."""
        return self.stretches(picks // self.steps, picks % self.steps, 1)._replace(lengths=None)

    def stretches(self, rows: np.ndarray, begins: np.ndarray, steps: int) -> "Data":
        """So many steps in turn of some of the rows, as rows of their own."""
        table, sites = self.table, self.structure.sites
        at = begins[:, None] + np.arange(steps)

        def cut(array, axis):
            return array[rows] if axis is None else np.moveaxis(
                np.moveaxis(array, 1 + axis, 1)[rows[:, None], at], 1, 1 + axis
            )

        inputs = {name: cut(array, 0 if name in self.structure.timed else None)
                  for name, array in table.inputs.items()}
        columns = {name: column.mapped(functools.partial(cut, axis=sites[name].time))
                   for name, column in table.columns.items()}
        table = replace(table, rows=len(rows), columns=columns, inputs=inputs, index=None)
        lengths = None if self.lengths is None else np.clip(self.lengths[rows] - begins, 0, steps)
        new = {name: array[rows] for name, array in self.new.items()}
        return self._replace(table=table, steps=steps, lengths=lengths, given=None, new=new)

    def taken(self, index: np.ndarray | slice) -> "Data":
        """Some of the rows, in this order, as often as they stand there; of a slice, nothing is
        copied."""

        def at(array):
            return None if array is None else array[index]

        columns = {name: column.mapped(at) for name, column in self.table.columns.items()}
        inputs = {name: array[index] for name, array in self.table.inputs.items()}
        rows = (len(range(*index.indices(self.table.rows))) if isinstance(index, slice)
                else len(index))
        table = replace(self.table, rows=rows, columns=columns, inputs=inputs, index=None)
        new = {name: array[index] for name, array in self.new.items()}
        return self._replace(table=table, lengths=at(self.lengths), given=at(self.given), new=new,
                             survey=None, weights=at(self.weights))

    def without(self, names: Iterable[str]) -> "Data":
        """The same rows, in which nothing of some sites is seen."""
        columns = {name: column for name, column in self.table.columns.items() if name not in names}
        return self._replace(table=replace(self.table, columns=columns))

    def loosened(self, names: Iterable[str]) -> "Data":
        """The same data, in which the discrete sites `names` count as seen in part: another pattern
        of evidence, the same program."""
        columns = dict(self.table.columns)
        for name in names:
            column, shape = columns.get(name), (self.table.rows,
                                                *self.structure.sites[name].along(self.steps))
            if column is None:
                columns[name] = tables.Column(np.zeros(shape, np.int32), np.zeros(shape, bool))
            elif column.likelihood is None and column.seen is None:
                columns[name] = replace(column, seen=np.ones(shape, bool))
        return self._replace(table=replace(self.table, columns=columns))

    def torn_open(self, targets: Iterable[str]) -> "Data":
        """The same data, in which numbers that nothing depends on and nobody asks for count as seen
        in part: other holes, the same program."""
        columns = dict(self.table.columns)
        for name, column in columns.items():
            site, plain = self.structure.sites[name], (column.likelihood is None
                                                       and column.seen is None)
            if (plain and site.rows and site.states is None and not site.event
                and site.time is None and site.family is not None and name not in targets
                and not self.descendants(name)
                and all(self.structure.sites[p].discrete or not self.structure.sites[p].rows
                        for p in site.parents)):
                columns[name] = replace(column, seen=np.ones(column.values.shape, bool))
        return self._replace(table=replace(self.table, columns=columns))

    def small(self) -> bool:
        """Whether evidence on every cell of the network takes little memory, and compiling a
        program for it more than running it."""
        return self.table.rows <= FEW and self.table.rows * sum(
            self.structure.sites[n].states or 0 for n in self.structure.network
        ) <= HELD

    def plan(self, targets: tuple[str, ...] = (), merge_globals: bool = False,
             joints: tuple = (), hidden: tuple[str, ...] = (),
             effects: tuple[str, ...] = (), lenient: bool = False, flat: tuple[str, ...] = (),
             nodes: int | None = None) -> Plan:
        """The plan for what was seen.

        Args:
            hidden: continuous sites whose unseen cells are asked for as latents.
            effects: parameters that are integrated out.
            lenient: to be read and not run: latents that have no integral are labelled so.
            flat, nodes: how effects are integrated out, see decide.make.
        """
        plan = decide.make(self.structure, self.pattern, tuple(self.table.values), targets,
                           merge_globals, joints, effects=effects, lenient=lenient, flat=flat,
                           nodes=nodes)
        holes = {name: np.zeros(self.table.rows, bool) for name in hidden} | self._holes(plan)
        if not holes:
            return plan
        try:
            return decide.make(self.structure, self.pattern, tuple(self.table.values), targets,
                               merge_globals, joints, tuple(holes), effects, lenient, flat, nodes)
        except Refusal as refusal:
            name, hurt = next(iter(holes.items()))
            if not hurt.any():
                raise
            raise Refusal(f"site '{name}' is missing in row {int(np.argwhere(hurt)[0, 0])} "
                          f"({int(hurt.sum())} rows in all). Drop these rows, or fill '{name}' "
                          f"first: {refusal}") from None

    def carrying(self, names: Iterable[str]) -> "Data":
        """The same data, in which the unseen cells of some continuous sites count as seen, to be
        moved by a sampler; each holds a value of its support."""
        columns = dict(self.table.columns)
        for name in names:
            site, column = self.structure.sites[name], columns.get(name)
            middle = np.asarray(site.domain.middle(site.shape)) if site.domain.fixed else np.full(
                site.shape, 0.5)
            whole = np.broadcast_to(np.asarray(site.collect(middle, 1))[0],
                                    (self.table.rows, *site.cells)).astype(float)
            free = np.ones(whole.shape, bool)
            if column is not None:
                free = ~column.seen if column.seen is not None else ~free
                whole = np.where(free, whole, column.values)
            columns[name] = tables.Column(whole, None, None, False, free)
        return self._replace(table=replace(self.table, columns=columns))

    def _holes(self, plan: Plan) -> dict[str, np.ndarray]:
        """The sites that are no variables of which some cell is unseen in a row in which a site
        that matters looks at it, latents there, and whether that is so, (rows,). A vector is seen
        whole or not at all, unless its family integrates coordinates out.

        Raises:
            Refusal: a vector is seen in part that cannot be.
        """
        sites, columns, found = self.structure.sites, self.table.columns, {}
        for name, column in columns.items():
            site = sites[name]
            if column.seen is None or site.discrete and not column.torn:
                continue
            if column.torn and site.traits.fill is None:
                some = column.seen.reshape(self.table.rows, -1, math.prod(site.event))
                row = int(np.argwhere(some.any(-1) & ~some.all(-1))[0, 0])
                raise Refusal(
                    f"site '{name}' ({site.kind}) is partially observed in row {row}: a vector of "
                    f"this distribution must be observed completely or be missing completely. Drop "
                    f"such rows, or use independent coordinates, "
                    f"{'Poisson' if site.discrete else 'Normal'}(...).to_event(1), for which "
                    f"missing cells are handled exactly"
                )
            hole = ~self._units(name).all(-1)
            for child in self.descendants(name):
                if child in plan.targets or child in sites and sites[child].factor:
                    hurt = hole
                elif child in columns and child in (*plan.observed, *plan.variables,
                                                    *plan.cellwise):
                    seen = columns[child].seen  # of likelihoods in no cell, though they tell
                    every = seen is None or columns[child].likelihood is not None
                    hurt = hole & (True if every else self._units(child).any(-1))
                else:
                    continue
                if hurt.any():
                    found[name] = found.get(name, False) | hurt.any(-1)
        return found

    def with_observed_codes(self, name: str, codes: np.ndarray) -> np.ndarray:
        """Codes of a site, its observed cells replaced by those of the data: an impossible row has
        no other codes that would agree with them."""
        column = self.table.columns.get(name)
        if column is None or column.likelihood is not None:
            return codes
        return column.values if column.seen is None else np.where(column.seen, column.values, codes)

    def _units(self, name: str) -> np.ndarray:
        """What is seen of a site, (rows, steps or 1, cells)."""
        column, time = self.table.columns[name], self.structure.sites[name].time
        seen = np.ones(column.values.shape, bool) if column.seen is None else column.seen
        steps = 1 if time is None else seen.shape[1 + time]
        seen = seen if time is None else np.moveaxis(seen, 1 + time, 1)
        return seen.reshape(self.table.rows, steps, -1)

    def descendants(self, name: str) -> list[str]:
        """The sites, and what is computed, that depend on a site, directly or through others, the
        nearest first."""
        found, stack = [], list(self.structure.children[name])
        while stack:
            child = stack.pop(0)
            if child not in found:
                found.append(child)
                stack += self.structure.children[child]
        return found + [site.name for site in self.structure.deterministics.values()
                        if {name, *found} & set(site.parents)]
