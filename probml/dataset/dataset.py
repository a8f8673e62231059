"""A model with its data, as NumPy arrays: which cells of which site are observed."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from probml.dataset import ragged, tables
from probml.dataset.coding import indices as coding
from probml.dataset.moments import Moments
from probml.dataset.source import Source
from probml.dataset.sources.chosen import Chosen
from probml.errors import ModelError, Refusal, counted
from probml.language.language import Bound
from probml.plan import decide
from probml.plan.plan import Plan
from probml.structure.structure import Structure
from probml.typing import ArrayLike, SiteValues

# rows, and states of all cells together, up to which a question about a network uses the one
# program in which every discrete cell may be missing
NETWORK_ROWS = 2**14
NETWORK_STATES = 2**23


@dataclass(frozen=True, eq=False)
class Profile:
    """A summary of all rows of a source, made in one pass over its parts.

    Attributes:
        names, sizes: the names of the parts, and their numbers of rows.
        pattern: site → seen, part, partially_observed or likelihood: Data.pattern of all rows.
        labels: site → labels of its states.
        moments: continuous site → mean and variance of its cells.
        sample: a random sample of rows: all of them, or about `profile.SAMPLE_ROWS`, fewer where
            a row has many numbers.
        ranks: (rows of the sample,) the pseudorandom ranks by which they were drawn. They depend
            only on the numbers of the rows among all, not on how these are cut into parts.
        weight: the sum of the weights of all rows.
        columns: site or input → the names of its columns, where the parts have it as a table.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    pattern: Mapping[str, str]
    labels: Mapping[str, tuple]
    moments: Mapping[str, Moments]
    sample: "Data"
    ranks: np.ndarray
    weight: float
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(self.sizes)

    @property
    def means(self) -> dict[str, np.ndarray]:
        """Continuous site without an axis of time → the means of its cells."""
        sites = self.sample.structure.sites
        return {name: found.mean for name, found in self.moments.items()
                if sites[name].time is None}


class Survey(NamedTuple):
    """A source of rows, and the profile of all of them.

    Args:
        profile: of all rows, also those of other processes.
        names, sizes: the names and numbers of rows of the parts of this process.
        shares: the sizes of the parts of each of several processes; () where there is one.
        in_memory: whether the rows are read once and stay on the devices.
        chosen: the rows that a pass reads; None: all.
    """

    source: Source
    profile: Profile
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    shares: tuple[tuple[int, ...], ...] = ()
    in_memory: bool = False
    chosen: Chosen | None = None

    @property
    def rows(self) -> int:
        """The number of rows that a pass reads in this process."""
        return sum(self.sizes) if self.chosen is None else self.chosen.rows


class Data(NamedTuple):
    """A model with its data, on the host."""

    model: Bound
    structure: Structure
    table: tables.Table
    steps: int | None = None  # of sites along chains
    lengths: np.ndarray | None = None  # (rows,) steps before the padding of each row; None: all
    list_lengths: np.ndarray | None = None  # (rows,) the lengths of sequences that came as a list
    # index input → the number of the new group of each cell, (rows, ...); −1: a group of the fit
    new: Mapping[str, np.ndarray] = {}
    survey: "Survey | None" = None  # the source of which these rows are a sample
    weights: np.ndarray | None = None  # (rows,), where those of a source have some
    measured: Mapping[str, Moments | None] = {}  # of the columns on which priors depend

    @property
    def size(self) -> int:
        """The number of rows; for a sample of a source, that of all rows of the source."""
        return self.table.rows if self.survey is None else self.survey.profile.rows

    @property
    def inputs_of_one_row(self) -> dict[str, np.ndarray]:
        """The inputs of a joint density, name → value, without the axis of its one row."""
        return {name: value[0] for name, value in self.table.inputs.items()}

    @property
    def numbers(self) -> int:
        """How many numbers a row has."""
        arrays = [*(column.values for column in self.table.columns.values()),
                  *self.table.inputs.values()]
        return sum(math.prod(array.shape[1:]) for array in arrays)

    @property
    def extent(self) -> str:
        """Rows × numbers a row, in words."""
        return f"{self.size:,} × {self.numbers}"

    @property
    def is_weighted(self) -> bool:
        """Whether rows have weights other than 1."""
        if self.survey is not None:
            return self.survey.profile.weight != self.survey.profile.rows
        return self.weights is not None and bool((np.asarray(self.weights) != 1).any())

    @property
    def pattern(self) -> dict[str, str]:
        """Site → Column.pattern."""
        return {name: column.pattern for name, column in self.table.columns.items()}

    @property
    def labels(self) -> dict[str, tuple]:
        """Site → labels of its states, from the model or from the data."""
        return {**self.structure.labels, **self.table.labels}

    @property
    def shapes(self) -> dict[str, tuple]:
        """Input → (trailing shape, dtype kind) with which the structure is traced; None in a shape
        is the number of steps."""
        timed = self.structure.timed
        return {name: ((None, *value.shape[2:]) if name in timed else value.shape[1:],
                       value.dtype.kind)
                for name, value in self.table.inputs.items()}

    def trimmed(self) -> "Data":
        """The same data, in which the steps after the last observed one of each row are padding:
        they sum to one, whatever the parameters are."""
        sites, observed = self.structure.sites, self.observed_steps()
        lengths = None if observed is None else ragged.count_steps(observed)
        if lengths is None:
            return self
        padded, columns = np.arange(self.steps or 0) >= lengths[:, None], dict(self.table.columns)
        for name, column in columns.items():
            if sites[name].time is not None and column.observed is not None:
                mask = column.observed | np.expand_dims(padded, [
                    1 + i for i in range(column.observed.ndim - 1) if i != sites[name].time])
                columns[name] = replace(column, observed=None if mask.all() else mask)
        return self._replace(table=replace(self.table, columns=columns), lengths=lengths)

    def observed_steps(self) -> np.ndarray | None:
        """The steps at which any cell is observed, bool (rows, steps); None where a site along time
        is completely observed."""
        timed = [name for name in self.table.columns if self.structure.sites[name].time is not None]
        if not timed or any(self.table.columns[name].observed is None for name in timed):
            return None
        return np.logical_or.reduce([self._units(name).any(-1) for name in timed])

    def extended(self, last: np.ndarray, n_steps: int, read: Callable,
                 inputs: SiteValues) -> "Data":
        """The same rows with `n_steps` missing steps from the step `last` of each row on.

        Args:
            read: makes Data of a mapping name → array.
            inputs: the inputs with an axis of time, at the added steps.
        """
        table, sites, timed = self.table, self.structure.sites, self.structure.timed
        missing = [name for name in timed
                   if np.shape(inputs.get(name, 0))[:2] != (table.rows, n_steps)]
        if missing:
            shape = (table.rows, n_steps, *table.inputs[missing[0]].shape[2:])
            got = np.shape(inputs.get(missing[0], 0))
            raise ModelError(f"forecast: the model has the input '{missing[0]}'. Pass its values "
                             f"at the forecast steps, {missing[0]}=..., an array of shape {shape}, "
                             f"got shape {got}")
        out: dict[str, ArrayLike] = dict(table.values)
        step_index = last[:, None] + np.arange(n_steps)
        for name, codes in table.inputs.items():
            array = coding.as_labels(self.structure, table.labels, name, codes)
            if name in timed:
                array = np.concatenate(
                    [array, np.zeros((table.rows, n_steps, *array.shape[2:]), array.dtype)], 1
                )
                array[np.arange(table.rows)[:, None], step_index] = inputs[name]
            out[name] = array
        for name, column in table.columns.items():
            time = sites[name].time
            value = (column.values.astype(float) if column.observed is not None or time is not None
                     else column.values)
            if column.likelihood is not None:
                out[name] = column.likelihood
                continue
            if column.observed is not None:
                value = np.where(column.observed, value, np.nan)
            if time is not None:
                pad = [(0, n_steps if axis == 1 + time else 0) for axis in range(value.ndim)]
                value = np.pad(value, pad, constant_values=np.nan)
            labels = table.labels.get(name)
            out[name] = value if labels is None else np.array([*labels, None], object)[
                np.where(np.isnan(value), -1, value).astype(int)
            ]
        return read(out)

    def unrolled(self, picks: np.ndarray) -> "Data":
        """Single steps as rows; `picks` are their numbers, counted row by row."""
        return self.stretches(picks // self.steps, picks % self.steps, 1)._replace(lengths=None)

    def stretches(self, rows: np.ndarray, starts: np.ndarray, steps: int) -> "Data":
        """Windows of `steps` steps as rows: of the rows `rows`, from the steps `starts` on."""
        step_index = starts[:, None] + np.arange(steps)

        def window(array: np.ndarray, axis: int | None) -> np.ndarray:
            return array[rows] if axis is None else np.moveaxis(
                np.moveaxis(array, 1 + axis, 1)[rows[:, None], step_index], 1, 1 + axis
            )

        lengths = None if self.lengths is None else np.clip(self.lengths[rows] - starts, 0, steps)
        return self._indexed(rows, len(rows), window)._replace(steps=steps, lengths=lengths)

    def taken(self, index: np.ndarray | slice) -> "Data":
        """The rows with these numbers, in this order; a slice copies nothing."""

        def at(array: ArrayLike) -> ArrayLike:
            return None if array is None else array[index]

        rows = (len(range(*index.indices(self.table.rows))) if isinstance(index, slice)
                else len(index))
        return self._indexed(index, rows, lambda array, axis: array[index])._replace(
            lengths=at(self.lengths), list_lengths=at(self.list_lengths), survey=None,
            weights=at(self.weights))

    def _indexed(self, index: np.ndarray | slice, rows: int,
                 take: Callable[..., np.ndarray]) -> "Data":
        """The rows with these numbers: of each array `take(array, axis of time or None)`."""
        sites, timed = self.structure.sites, self.structure.timed
        columns = {name: column.mapped(functools.partial(take, axis=sites[name].time))
                   for name, column in self.table.columns.items()}
        inputs = {name: take(array, 0 if name in timed else None)
                  for name, array in self.table.inputs.items()}
        table = replace(self.table, rows=rows, columns=columns, inputs=inputs, index=None)
        return self._replace(table=table, list_lengths=None,
                             new={name: array[index] for name, array in self.new.items()})

    def without(self, names: Iterable[str]) -> "Data":
        """The same rows, in which some sites are missing."""
        columns = {name: column for name, column in self.table.columns.items() if name not in names}
        return self._replace(table=replace(self.table, columns=columns))

    def loosened(self, names: Iterable[str]) -> "Data":
        """The same data, in which the discrete sites `names` count as partially observed, so that
        other patterns of missing cells need no other program."""
        columns = dict(self.table.columns)
        for name in names:
            column, shape = columns.get(name), (self.table.rows,
                                                *self.structure.sites[name].along(self.steps))
            if column is None:
                columns[name] = tables.Column(np.zeros(shape, np.int32), np.zeros(shape, bool))
            elif column.likelihood is None and column.observed is None:
                columns[name] = replace(column, observed=np.ones(shape, bool))
        return self._replace(table=replace(self.table, columns=columns))

    def torn_open(self, targets: Iterable[str]) -> "Data":
        """The same data, in which scalar continuous sites without descendants that are no targets
        count as partially observed, so that other missing cells need no other program."""
        columns = dict(self.table.columns)
        for name, column in columns.items():
            site = self.structure.sites[name]
            if (column.likelihood is None and column.observed is None and site.rows
                and site.states is None and not site.event and site.time is None
                and site.family is not None and name not in targets and not self.descendants(name)
                and all(self.structure.sites[p].discrete or not self.structure.sites[p].rows
                        for p in site.parents)):
                columns[name] = replace(column, observed=np.ones(column.values.shape, bool))
        return self._replace(table=replace(self.table, columns=columns))

    def small(self) -> bool:
        """Whether evidence on every cell of the network takes little memory, and compiling a
        program takes longer than running it."""
        return self.table.rows <= NETWORK_ROWS and self.table.rows * sum(
            self.structure.sites[n].states or 0 for n in self.structure.network
        ) <= NETWORK_STATES

    def plan(self, targets: tuple[str, ...] = (), merge_globals: bool = False,
             joints: tuple = (), hidden: tuple[str, ...] = (),
             effects: tuple[str, ...] = (), lenient: bool = False, flat: tuple[str, ...] = (),
             nodes: int | None = None) -> Plan:
        """The plan for these observed and missing cells.

        Args:
            hidden: continuous sites whose missing cells are treated as latent variables.
            effects: parameters that are integrated out.
            lenient: a plan to be shown, not run: latent variables without an integral are labelled.
            targets, merge_globals, joints, flat, nodes: see decide.make.
        """
        make = functools.partial(decide.make, self.structure, self.pattern,
                                 tuple(self.table.values), targets, merge_globals, joints,
                                 effects=effects, lenient=lenient, flat=flat, nodes=nodes)
        plan = make()
        holes = {name: np.zeros(self.table.rows, bool) for name in hidden} | self._holes(plan)
        if not holes:
            return plan
        try:
            return make(holes=tuple(holes))
        except Refusal as refusal:
            name, latent = next(iter(holes.items()))
            if not latent.any():
                raise
            count = int(latent.sum())
            raise Refusal(f"site '{name}' is missing in {count} of {counted(len(latent), 'row')}, "
                          f"first in row {int(np.argwhere(latent)[0, 0])}, and the missing values "
                          f"cannot be integrated out, because {refusal.args[0]}. Drop these rows, "
                          "fill in the values, or use an engine that can sample them, such as "
                          f"{{engines}}", ("NUTS",)) from None

    def carrying(self, names: Iterable[str]) -> "Data":
        """The same data, in which the missing cells of some continuous sites count as observed,
        since a sampler sets them; each begins at a value in its support."""
        columns = dict(self.table.columns)
        for name in names:
            site, column = self.structure.sites[name], columns.get(name)
            middle = np.asarray(site.domain.middle(site.shape)) if site.domain.fixed else np.full(
                site.shape, 0.5)
            values = np.broadcast_to(np.asarray(site.collect(middle, 1))[0],
                                     (self.table.rows, *site.cells)).astype(float)
            missing = np.ones(values.shape, bool)
            if column is not None:
                missing = ~column.observed if column.observed is not None else ~missing
                values = np.where(missing, values, column.values)
            columns[name] = tables.Column(values, None, sampled=missing)
        return self._replace(table=replace(self.table, columns=columns))

    def _holes(self, plan: Plan) -> dict[str, np.ndarray]:
        """Continuous sites with missing cells on which an observed, summed out or asked for site
        depends: they are latent in these rows, a mask (rows,) by site.

        Raises:
            Refusal: a vector is partially observed whose family cannot integrate coordinates out.
        """
        sites, columns, holes = self.structure.sites, self.table.columns, {}
        for name, column in columns.items():
            site = sites[name]
            if column.observed is None or site.discrete and not column.partial:
                continue
            if column.partial and site.traits.fill is None:
                mask = column.observed.reshape(self.table.rows, -1, math.prod(site.event))
                row = int(np.argwhere(mask.any(-1) & ~mask.all(-1))[0, 0])
                raise Refusal(
                    f"site '{name}' ({site.kind}) has observed and missing elements in row {row}, "
                    f"but a vector of this distribution must be observed completely or be missing "
                    f"completely. Drop such rows, or use independent elements, "
                    f"{'Poisson' if site.discrete else 'Normal'}(...).to_event(1), for which "
                    f"missing elements are handled exactly"
                )
            missing = ~self._units(name).all(-1)
            for child in self.descendants(name):
                if child in plan.targets or child in sites and sites[child].factor:
                    latent = missing
                elif child in columns and child in (*plan.observed, *plan.variables,
                                                    *plan.cellwise):
                    # label probabilities are evidence, though no cell of theirs is observed
                    full = columns[child].observed is None or columns[child].likelihood is not None
                    latent = missing & (True if full else self._units(child).any(-1))
                else:
                    continue
                if latent.any():
                    holes[name] = holes.get(name, False) | latent.any(-1)
        return holes

    def with_observed_codes(self, name: str, codes: np.ndarray) -> np.ndarray:
        """Codes of a site, its observed cells replaced by those of the data, with which the codes
        of an impossible row need not agree."""
        column = self.table.columns.get(name)
        if column is None or column.likelihood is not None:
            return codes
        return (column.values if column.observed is None
                else np.where(column.observed, column.values, codes))

    def _units(self, name: str) -> np.ndarray:
        """Whether cells of a site are observed, (rows, steps or 1, cells)."""
        column, time = self.table.columns[name], self.structure.sites[name].time
        mask = np.ones(column.values.shape, bool) if column.observed is None else column.observed
        steps = 1 if time is None else mask.shape[1 + time]
        mask = mask if time is None else np.moveaxis(mask, 1 + time, 1)
        return mask.reshape(self.table.rows, steps, -1)

    def without_values(self) -> list[str]:
        """The columns whose cells are all missing, where no site that depends on them is observed:
        they are none of the model's latent variables."""
        return [name for name in self.table.without_values
                if not self.table.columns.keys() & set(self.descendants(name))]

    def descendants(self, name: str) -> list[str]:
        """The sites and deterministic sites that depend on a site, directly or through others, the
        nearest first."""
        reached, stack = [], list(self.structure.children[name])
        while stack:
            child = stack.pop(0)
            if child not in reached:
                reached.append(child)
                stack += self.structure.children[child]
        return reached + [site.name for site in self.structure.deterministics.values()
                          if {name, *reached} & set(site.parents)]
