"""Data in → rows on the device: what was seen of which site, centred, padded to buckets and cut into chunks."""

import copy
import math
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml import bounds, ragged, tables
from probml import codes as coding
from probml import plan as planning
from probml.factors import Known, Rows
from probml.families.unseen import Unseen, locate
from probml.lanes import Lanes, fitting_rows
from probml.language import Bound, ModelError, Refusal
from probml.plan import Plan, bucket
from probml.structure import Site, Structure

FEW = 2**14  # rows up to which a question to a network goes through the one program in which every discrete cell may be unseen
HELD = 2**23  # numbers that the evidence of such a question may take
ZERO = "{kind} has no density at 0. What was rounded down to 0 wants half of what it is rounded to; Exponential takes 0 as it is."
ALIGNED = 64  # bytes
PART = 2**24  # bytes that are worth a thread to copy


class Data(NamedTuple):
    """A model with its data, on the host."""

    model: Bound
    structure: Structure
    table: tables.Table
    steps: int | None = None  # of sites along chains
    lengths: np.ndarray | None = None  # (rows,) how many of them count; None: all
    given: np.ndarray | None = None  # (rows,) how many each sequence of a list had
    new: Mapping[str, np.ndarray] = {}  # index input → the number of its new member, (rows, ...); −1 where the fit knows it

    @property
    def pattern(self) -> dict[str, str]:
        """Site → seen, part, torn (some vector of it is seen in part) or likelihood."""

        def state(column):
            if column.likelihood is not None:
                return "likelihood"
            return "seen" if column.seen is None else "torn" if column.torn else "part"

        return {name: state(column) for name, column in self.table.columns.items()}

    @property
    def labels(self) -> dict[str, tuple]:
        """Site → labels of its states: those that the model declares, and those that came with the data."""
        return {**self.structure.labels, **self.table.labels}

    @property
    def shapes(self) -> dict[str, tuple]:
        """Input → (trailing shape, dtype kind): what the structure was traced for."""
        timed = self.structure.timed
        shapes = {name: (None, *value.shape[2:]) if name in timed else value.shape[1:] for name, value in self.table.inputs.items()}
        return {name: (tuple(shapes[name]), value.dtype.kind) for name, value in self.table.inputs.items()}

    def trimmed(self) -> "Data":
        """The same data without the steps behind the last that shows anything: they sum to one, whatever the parameters are."""
        sites, shown = self.structure.sites, self.shown()
        lengths = None if shown is None else ragged.count_steps(shown)
        if lengths is None:
            return self
        dead, columns = np.arange(self.steps) >= lengths[:, None], dict(self.table.columns)
        for name, column in columns.items():
            if sites[name].time is None:
                continue
            beyond = np.expand_dims(dead, [1 + i for i in range(column.seen.ndim - 1) if i != sites[name].time])
            seen = column.seen | beyond
            columns[name] = replace(column, seen=None if seen.all() else seen)
        return self._replace(table=replace(self.table, columns=columns), lengths=lengths)

    def shown(self) -> np.ndarray | None:
        """The steps at which anything is seen, bool (rows, steps); None where some site along time is seen whole."""
        along = [name for name in self.table.columns if self.structure.sites[name].time is not None]
        if not along or any(self.table.columns[name].seen is None for name in along):
            return None
        return np.logical_or.reduce([self._units(name).any(-1) for name in along])

    def extended(self, last: np.ndarray, more: int, read: Callable, inputs: Mapping[str, Any]) -> "Data":
        """The same rows with `more` steps behind the `last` of each, in which nothing is seen.

        Args:
            read: from a mapping name → array to Data.
            inputs: those with an axis of time, at the steps that follow.
        """
        table, sites, timed = self.table, self.structure.sites, self.structure.timed
        missing = [name for name in timed if np.shape(inputs.get(name))[:2] != (table.rows, more)]
        if missing:
            shape = (table.rows, more, *table.inputs[missing[0]].shape[2:])
            got = np.shape(inputs.get(missing[0]))
            raise ModelError(f"forecast needs the input '{missing[0]}' at the steps that follow, {shape}, got {got}")
        out: dict[str, Any] = dict(table.values)
        at = last[:, None] + np.arange(more)
        for name, codes in table.inputs.items():
            array = coding.shown(self.structure, table.labels, name, codes)
            if name in timed:
                array = np.concatenate([array, np.zeros((table.rows, more, *array.shape[2:]), array.dtype)], 1)
                array[np.arange(table.rows)[:, None], at] = inputs[name]
            out[name] = array
        for name, column in table.columns.items():
            time = sites[name].time
            value = column.values.astype(float) if column.seen is not None or time is not None else column.values
            if column.likelihood is not None:
                out[name] = column.likelihood
                continue
            if column.seen is not None:
                value = np.where(column.seen, value, np.nan)
            if time is not None:
                pad = [(0, more if axis == 1 + time else 0) for axis in range(value.ndim)]
                value = np.pad(value, pad, constant_values=np.nan)
            labels = table.labels.get(name)
            out[name] = value if labels is None else np.array([*labels, None], object)[np.where(np.isnan(value), -1, value).astype(int)]
        return read(out)

    def unrolled(self, picks: np.ndarray) -> "Data":
        """Single steps as rows: `picks` number them, row by row."""
        return self.stretches(picks // self.steps, picks % self.steps, 1)._replace(lengths=None)

    def stretches(self, rows: np.ndarray, begins: np.ndarray, steps: int) -> "Data":
        """So many steps in turn of some of the rows, as rows of their own."""
        table, sites = self.table, self.structure.sites
        at = begins[:, None] + np.arange(steps)

        def cut(name, array, axis):
            return array[rows] if axis is None else np.moveaxis(np.moveaxis(array, 1 + axis, 1)[rows[:, None], at], 1, 1 + axis)

        def column(name, c):
            parts = (leaf if leaf is None else cut(name, leaf, sites[name].time) for leaf in (c.values, c.seen, c.likelihood))
            return tables.Column(*parts, c.torn)

        inputs = {name: cut(name, array, 0 if name in self.structure.timed else None) for name, array in table.inputs.items()}
        columns = {name: column(name, c) for name, c in table.columns.items()}
        table = replace(table, rows=len(rows), columns=columns, inputs=inputs, index=None)
        lengths = None if self.lengths is None else np.clip(self.lengths[rows] - begins, 0, steps)
        new = {name: array[rows] for name, array in self.new.items()}
        return self._replace(table=table, steps=steps, lengths=lengths, given=None, new=new)

    def taken(self, index: np.ndarray) -> "Data":
        """Some of the rows, in this order, as often as they stand there."""

        def at(array):
            return None if array is None else array[index]

        columns = {
            name: tables.Column(column.values[index], at(column.seen), at(column.likelihood), column.torn)
            for name, column in self.table.columns.items()
        }
        inputs = {name: array[index] for name, array in self.table.inputs.items()}
        table = replace(self.table, rows=len(index), columns=columns, inputs=inputs, index=None)
        new = {name: array[index] for name, array in self.new.items()}
        return self._replace(table=table, lengths=at(self.lengths), given=at(self.given), new=new)

    def loosened(self, names: Iterable[str]) -> "Data":
        """The same data, in which the discrete sites `names` count as seen in part: another pattern of evidence, the same program."""
        columns = dict(self.table.columns)
        for name in names:
            column, shape = columns.get(name), (self.table.rows, *self.structure.sites[name].along(self.steps))
            if column is None:
                columns[name] = tables.Column(np.zeros(shape, np.int32), np.zeros(shape, bool))
            elif column.likelihood is None and column.seen is None:
                columns[name] = replace(column, seen=np.ones(shape, bool))
        return self._replace(table=replace(self.table, columns=columns))

    def small(self) -> bool:
        """Whether evidence on every cell of the network takes little memory, and compiling a program for it more than running it."""
        return self.table.rows <= FEW and self.table.rows * sum(self.structure.sites[n].states for n in self.structure.network) <= HELD

    def plan(self, targets: tuple[str, ...] = (), merge_globals: bool = False, joints: tuple = ()) -> Plan:
        plan = planning.make(self.structure, self.pattern, tuple(self.table.values), targets, merge_globals, joints)
        self._refuse_holes(plan)
        return plan

    def _refuse_holes(self, plan: Plan) -> None:
        """An unseen continuous cell must not feed a site that matters in the same row; a vector is seen whole or not at all, unless
        its family integrates coordinates out."""
        sites, columns = self.structure.sites, self.table.columns
        for name, column in columns.items():
            site = sites[name]
            if column.seen is None or site.discrete and not column.torn:
                continue
            if column.torn and not hasattr(site.family, "fill"):
                some = column.seen.reshape(self.table.rows, -1, math.prod(site.event))
                row = int(np.argwhere(some.any(-1) & ~some.all(-1))[0, 0])
                raise Refusal(
                    f"site '{name}' ({site.kind}) is seen in part in row {row}: a vector like this is seen whole or not at all. "
                    f"Drop such rows, or give independent coordinates with {'Poisson' if site.discrete else 'Normal'}(...).to_event(1), "
                    "where unseen cells are exact"
                )
            hole = ~self._units(name).all(-1)
            for child in self._below(name):
                if child in plan.targets or child in sites and sites[child].factor:
                    hurt = hole
                elif child in columns and child in (*plan.observed, *plan.variables):
                    seen = columns[child].seen
                    hurt = hole & (True if seen is None else self._units(child).any(-1))
                else:
                    continue
                if hurt.any():
                    raise Refusal(
                        f"site '{name}' ({site.kind}) is unseen in row {int(np.argwhere(hurt)[0, 0])}, where '{child}' depends "
                        "on it: only discrete sites "
                        f"are summed out. Drop the {int(hurt.sum())} rows, or fill '{name}' first"
                    )

    def _units(self, name: str) -> np.ndarray:
        """What is seen of a site, (rows, steps or 1, cells)."""
        seen, time = self.table.columns[name].seen, self.structure.sites[name].time
        n = self.table.rows
        return seen.reshape(n, 1, -1) if time is None else np.moveaxis(seen, 1 + time, 1).reshape(n, self.steps, -1)

    def _below(self, name: str) -> list[str]:
        found, stack = [], list(self.structure.children[name])
        while stack:
            child = stack.pop()
            if child not in found:
                found.append(child)
                stack += self.structure.children[child]
        return found + [site.name for site in self.structure.deterministics.values() if {name, *found} & set(site.parents)]


def read(
    model: Bound,
    data: Any,
    labels: Mapping[str, tuple] | None = None,
    rows: int | None = None,
    shapes: Mapping | None = None,
    steps: int | None = None,
    unknown: str = coding.REFUSE,
) -> Data:
    """Check data against a model, before any compile.

    Args:
        labels: site → labels of its states, from a fit.
        shapes: input → (trailing shape, dtype kind) that a fit had.
        steps: the length of chains, where the data do not tell it.
        unknown: what becomes of a label or code of an index input that the fit does not know: "refuse", or "new".

    Raises:
        DataError: see tables.read and codes.read.
    """
    known = {} if data is None else data
    done = next((name for name, _ in model.interventions if name in getattr(known, "column_names", known)), None)
    if done is not None:
        raise tables.DataError(f"'{done}' is set by do() in every row: leave it out of the data")
    raws, specs, beyond = {}, {}, {}
    for name in model.inputs:
        if name in getattr(known, "column_names", known if hasattr(known, "__contains__") else ()):
            value = known[name]
            full = ragged.padded(name, value, unseen=False)
            if not np.ndim(full):
                raise tables.DataError(
                    f"{model.name}: the input '{name}' is one value, {value!r}, but an input has one a row, (n, ...): bind what is "
                    f"the same in all rows, {model.name}({name}={value!r})"
                )
            padded = full is not value
            full = ragged.padded(name, value) if padded and full.dtype.hasobject else full  # text is padded by None
            raws[name] = raw = tables.as_raw(f"the input '{name}'", full, True)
            if padded:
                beyond[name] = np.arange(raw.values.shape[1]) >= np.array([len(part) for part in value])[:, None]
            shape = raw.values.shape
            specs[name] = (shape[1:], raw.values.dtype.kind)
            if shapes and shapes[name][0][:1] == (None,) and len(shape) > 1:
                specs[name] = ((None, *shape[2:]), raw.values.dtype.kind)
            if shapes and specs[name][0] != tuple(shapes[name][0]):
                wanted = ("n", *shapes[name][0])
                raise tables.DataError(
                    f"input '{name}' has shape {shape}, but the fit had {wanted}: pass the same columns in the same order"
                )
        else:
            tables.read(known, {}, [name], model=model.name, rows=rows)  # raises, naming the input
    structure = coding.settled(model, raws, shapes or {}, specs)
    shown = getattr(known, "column_names", known if hasattr(known, "__contains__") else ())
    computed = next((name for name in structure.deterministics if name in shown), None)
    if computed is not None:
        raise tables.DataError(
            f"{model.name}: '{computed}' is computed by the model (numpyro.deterministic, or a reparametrised site), so it cannot be data: "
            f"leave '{computed}' out; to see it, sample it without reparametrisation"
        )
    codes = coding.read(structure, raws, labels or {}, beyond, unknown)
    length = given = None
    if structure.chains and (isinstance(known, Mapping) or not hasattr(known, "shape")):
        if not isinstance(known, Mapping):
            tables.read(known, {}, model=model.name)  # raises
        known, length, given = ragged.along_time(structure, known, steps)
    elif structure.chains:
        raise tables.DataError(f"{model.name}: a table's columns cannot hold sequences: pass a mapping name -> array (rows, steps, ...)")
    expected = {site.name: _expected(site, structure, length) for site in structure.sites.values() if not site.factor}
    labels = {**structure.labels, **(labels or {})}
    table = tables.read(known, expected, model.inputs, labels, model=model.name, rows=rows, codes=codes.values)
    table = replace(table, labels={**table.labels, **codes.labels})
    bounds.check(structure, table)
    return Data(model, structure, table, length, given=given, new=codes.new)


def _expected(site: Site, structure: Structure, steps: int | None) -> tables.Expected:
    words, valid = "real", None
    support = site.support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    ends = [v for v in vars(support).values() if not isinstance(v, str)] if support is not None else []
    checkable = type(support).__name__ != "_Real" and not any(isinstance(v, jax.Array) for v in ends)  # all finite numbers are real
    if site.domain == "simplex":
        inside = site.rows and site.kind == "Dirichlet"  # a density, whose value on the edge is 0 or infinite
        words = f"a vector of {'positive ' if inside else ''}probabilities that sums to 1"

        def valid(values):
            return ((values > 0) if inside else (values >= 0)).all(-1, keepdims=True) & (np.abs(values.sum(-1, keepdims=True) - 1) < 1e-4)

    elif site.rows and hasattr(site.family, "inside"):
        words, valid = site.family.words, site.family.inside
    elif (most := structure.constant(site.name, getattr(site.family, "limit", None))) is not None:
        most = most.reshape(-1)[0] if most.size == 1 else np.asarray(site.layout(jnp.asarray(most), 0)).reshape(site.cells)
        words = f"a whole number in 0 … {most}, its {site.family.limit}"

        def valid(values):
            return values <= most

    elif support is not None and checkable and (site.states is None or any(map(np.ndim, ends))) and site.event == ():
        words = _words(support, site)
        held = copy.copy(support)
        for end, bound in vars(support).items():
            if site.rows and np.ndim(bound):  # of cells, in NumPyro's axes
                setattr(held, end, np.asarray(site.layout(jnp.asarray(bound), 0)).reshape(site.cells))

        def valid(values):
            return np.asarray(held(site.valued(values)))

    zero = ZERO.format(kind=site.kind) if site.rows and words == "positive" else tables.UNSEEN
    event = 0 if site.chain else len(site.event)  # a chain may be seen in part
    low = site.low
    return tables.Expected(site.name, site.discrete, site.states, site.along(steps), site.rows, words, valid, event, site.plates, low, zero)


def _words(support: Any, site: Site) -> str:
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    if np.ndim(low) or np.ndim(high):
        ends = [np.asarray(end).tolist() if np.ndim(end) else end for end in (low, high)]
        return f"{'a whole number ' if site.discrete else ''}in {ends[0]} … {'∞' if high is None else ends[1]}, cell by cell"
    if low is None and high is None:
        return type(support).__name__.strip("_").lower()
    if low == 0 and high is None:
        return "zero or positive" if site.discrete or "Eq" in type(support).__name__ or "negative" in type(support).__name__ else "positive"
    return f"{'a whole number ' if site.discrete else ''}in {low} … {'∞' if high is None else high}"


def order(data: Data, plan: Plan) -> np.ndarray | None:
    """The order of rows in which the work of a chunk is even: torn vectors by how much of them is unseen; None = as they are."""
    torn = [data.table.columns[name] for name in plan.torn if name not in plan.steps]
    if not torn:
        return None
    return np.argsort(sum((~c.seen).reshape(len(c.seen), -1).sum(1) for c in torn), kind="stable")


def load(
    data: Data,
    plan: Plan,
    weights: np.ndarray | None = None,
    keep: np.ndarray | None = None,
    copies: int = 1,
    least: int = 1,
    params: Mapping[str, Any] | None = None,
) -> tuple[Rows, Known]:
    """Rows on the device, (chunks, rows a chunk, ...), and what they share.

    Args:
        weights: one a row; None = 1.
        keep: indices of the rows to take, in this order; all by default.
        copies: how many parameter values the rows will be met with at once.
        least: fewer rows are padded to so many, so that one program serves them all.
        params: where the rows will be met, or begin to be, as far as known: chains with improbable moves are treated with more care.

    Cost: one centred copy of the data in JAX's float type; padding repeats the first row at weight 0.
    """
    table, sites = data.table, data.structure.sites
    dtype = jnp.result_type(float)
    index = None if keep is None else np.asarray(keep)
    rows = table.rows if index is None else len(index)
    total = bucket(max(rows, least))
    fitting = fitting_rows(plan.width * bucket(data.steps), copies) if data.steps else plan.chunk_rows(copies)
    chunks = max(1, round(total / fitting))
    size = -(-total // chunks)
    centre = {name: _centre(table.columns[name], sites[name], weights) for name in plan.centred if sites[name].time is None}

    weight = np.zeros(chunks * size)
    weight[:rows] = 1.0 if weights is None else weights if index is None else weights[index]

    def ship(array, kind=None, shift=None):
        array = array if index is None else array[index]
        out = _aligned((chunks * size, *array.shape[1:]), kind or array.dtype)
        if shift is None:
            _copy(array, out[:rows])
        else:
            np.subtract(array, shift, out=out[:rows], casting="unsafe")
            share = weight[:rows] / weight.sum()
            spread.append(np.sqrt(np.einsum("i,i...,i...->...", share, out[:rows], out[:rows])))
        out[rows:] = out[0]
        return jax.device_put(out.reshape(chunks, size, *array.shape[1:]))  # on a CPU the device keeps this array, which nobody else has

    used = {*plan.observed, *plan.variables, *(p for n in (*plan.pooled, *plan.rowwise) for p in sites[n].parents)}
    columns = {name: column for name, column in table.columns.items() if name in used}
    values, seen, unseen, likelihood, spread, spreads = {}, {}, {}, {}, [], {}
    together = {name for names in plan.partly.values() for name in names}
    codes = {states: ship(_codes([columns[name] for name in names])) for states, names in plan.partly.items()}
    for name, column in columns.items():
        if name in together or sites[name].time is not None:
            continue
        if column.likelihood is not None:
            likelihood[name] = ship(column.likelihood, dtype)
            continue
        site = sites[name]
        shift = centre[name].reshape(site.cells) if name in centre else None
        values[name] = ship(column.values, jnp.result_type(int) if site.discrete else dtype, shift)
        if shift is not None:
            spreads[name] = jnp.asarray(spread.pop().reshape(centre[name].shape), dtype)
        elif name in plan.rowwise and hasattr(site.family, "scatter") and site.family.event == 0:
            spreads[name] = jnp.asarray(_spread(column, weight[:rows], index).reshape(math.prod(site.lattice)), dtype)
        if column.seen is not None:
            seen[name] = ship(column.seen)
            if name in plan.torn:
                found = locate(column.seen.reshape(table.rows, math.prod(site.lattice), *site.event), chunks > 1)
                unseen[name] = Unseen(*(leaf if leaf is None else ship(leaf) for leaf in found))
    own = {name: array for name, array in table.inputs.items() if name not in data.structure.timed}
    inputs = {name: ship(array, None if array.dtype.kind in "iub" else dtype) for name, array in own.items()}
    given = {name: jnp.asarray(value, jnp.result_type(int if sites[name].discrete else float)) for name, value in table.values.items()}
    steps = None
    if data.steps:
        steps = Lanes(data, plan, weight, index, (chunks, size), params or {}).load(columns, centre, spreads)
    known = Known(given, {name: jnp.asarray(value, dtype) for name, value in centre.items()}, spreads)
    return Rows(values, seen, codes, unseen, likelihood, inputs, jnp.asarray(weight.reshape(chunks, size), dtype), steps), known


def _spread(column, weight: np.ndarray, index: np.ndarray | None) -> np.ndarray:
    """Weighted standard deviations of a column's cells over the rows in which they are seen."""
    values, seen = (leaf if leaf is None or index is None else leaf[index] for leaf in (column.values, column.seen))
    share = weight.reshape(-1, *(1,) * (values.ndim - 1)) * (np.ones(values.shape) if seen is None else seen)
    total = np.maximum(share.sum(0), np.finfo(float).tiny)
    mean = (share * values).sum(0) / total
    return np.sqrt((share * (values - mean) ** 2).sum(0) / total)


def _aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array at an address from which a CPU device needs no copy of its own."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGNED, np.uint8)
    begin = -raw.ctypes.data % ALIGNED
    return raw[begin : begin + size].view(dtype).reshape(shape)


def _copy(array: np.ndarray, out: np.ndarray) -> None:
    """out[:] = array; of much, by several threads: fresh memory is slow to touch."""
    parts = min(out.nbytes // PART, os.cpu_count() or 1)
    if parts < 2:
        out[:] = array
        return
    cuts = np.linspace(0, len(out), parts + 1).astype(int)
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(lambda a, b: np.copyto(out[a:b], array[a:b], casting="unsafe"), cuts[:-1], cuts[1:]))


def _codes(columns: list[tables.Column]) -> np.ndarray:
    """The states of scalar columns, (rows, columns); −1 where unseen."""
    out = np.empty((len(columns[0].values), len(columns)), np.int32)
    for i, column in enumerate(columns):
        out[:, i] = np.where(column.seen, column.values, -1).reshape(-1)
    return out


def unload(array: Any, rows: int, order: np.ndarray | None) -> np.ndarray:
    """(chunks, b, ...) of loaded rows → (rows, ...), padding dropped, in the user's order."""
    flat = np.asarray(array)
    flat = flat.reshape(-1, *flat.shape[2:])[:rows]
    if order is None:
        return flat
    out = np.empty_like(flat)
    out[order] = flat
    return out


def _centre(column: tables.Column, site: Site, weights: np.ndarray | None) -> np.ndarray:
    """The (weighted) mean of a column; unseen cells hold the mean of the seen ones."""
    if weights is None:
        mean = column.values.mean(0, dtype=np.float64)
    else:
        mean = np.tensordot(weights / weights.sum(), column.values, 1)
    return mean.reshape(math.prod(site.lattice), *site.event)
