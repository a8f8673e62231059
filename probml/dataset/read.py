"""A user's data under a model: every column checked against its site, coded, with a mask of its
missing cells.

Bounds that depend on inputs, row by row: the trials of a binomial count, the censoring time of a
waiting time.
"""

import functools
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset import arrays, frames, kinds, ragged, tables
from probml.dataset.coding import indices as coding
from probml.dataset.coding import labels as naming
from probml.dataset.dataset import Data
from probml.errors import DataError, listed
from probml.families.domains import Simplex
from probml.jaxpr.program import evaluate
from probml.language.language import Bound
from probml.language.settings import describe_setting
from probml.numerics.compiling import ONCE, jit
from probml.numerics.transfer import as_array
from probml.structure import trace
from probml.structure.ordering import why_ordered
from probml.structure.site import Site
from probml.structure.structure import Structure
from probml.typing import ArrayLike


def check(structure: Structure, table: tables.Table) -> None:
    """Checks observed values against bounds of their support that depend on inputs only.

    Raises:
        DataError: a value is out of bounds: which, its row and its bound there.

    Cost: one pass over the inputs on which such bounds depend.
    """
    for name, column in table.columns.items():
        site = structure.sites[name]
        if (site.event or site.time is not None or column.likelihood is not None or not site.inputs
            or site.traits.ancillary is not None):
            continue
        values = np.asarray(site.valued(column.values))
        for end, (_, takes) in structure.bounds(name).items():
            if not all(t in table.inputs and t not in structure.timed for t in takes):
                continue

            found = _bound_of_rows(structure, name, end, tuple(table.inputs[t] for t in takes))
            bound = np.asarray(found).reshape(values.shape)
            wrong = values > bound if end == "upper_bound" else values < bound
            wrong = wrong if column.observed is None else wrong & column.observed
            if wrong.any():
                index = tuple(int(i) for i in np.argwhere(wrong)[0])
                cell = f", cell [{listed(index[1:])}]" if index[1:] else ""
                raise DataError(
                    f"'{name}' ({site.kind}) is {values[index]:g} in row {index[0]}{cell}, but "
                    f"must be at {'most' if end == 'upper_bound' else 'least'} {bound[index]:g} in "
                    "this row. Correct this value, or the bound, which the model computes from "
                    f"{' and '.join(repr(t) for t in takes)}"
                )


@jit(static_argnums=(0, 1, 2), seldom=ONCE)
def _bound_of_rows(structure: Structure, name: str, end: str,
                   inputs: tuple[ArrayLike, ...]) -> jax.Array:
    """A bound of a site's support in each row, (rows, cells), from the inputs on which it depends.
    """
    program, site = structure.bounds(name)[end][0], structure.sites[name]

    def at(*row: jax.Array):
        values = (jnp.asarray(v[None], aval.dtype)
                  for v, aval in zip(row, program.in_avals, strict=True))
        return site.layout(evaluate(program, *values)[0], 0)

    return jax.vmap(at)(*inputs)


ZERO = ("{kind} has no density at 0. If zeros come from rounding, replace them by half the "
        "rounding unit; or use Exponential, which allows 0.")


def read(
    model: Bound,
    data: object,
    labels: Mapping[str, tuple] | None = None,
    rows: int | None = None,
    shapes: Mapping | None = None,
    steps: int | None = None,
    unknown: str = coding.REFUSE,
) -> Data:
    """Data checked against a model, before anything is compiled.

    Args:
        labels: site or index input → its labels in an earlier fit; a site without labels there has
            codes. None: there is no fit, and labels are found in the data.
        shapes: input → (trailing shape, dtype kind) in the earlier fit.
        steps: the length of chains, for data without sequences.
        unknown: labels or codes of an index input that the fit does not have are refused
            ("refuse"), or new groups ("new").

    Raises:
        DataError: see tables.read and coding.indices.read.
    """
    frames.check_order(data)
    frame = {} if data is None else frames.as_table(data)
    _check_columns(model, frame)
    inputs = {name: _read_input(model, frame, name, rows, shapes or {}) for name in model.inputs}
    raws = {name: found.raw for name, found in inputs.items()}
    structure = kinds.structure_for_inputs(model, raws, shapes or {},
                                           {name: found.spec for name, found in inputs.items()})
    frames.refuse_computed(model.name, structure.deterministics, _columns(frame))
    _refuse_settings(model, structure, frame)
    has_fit = labels is not None
    padding = {name: found.padding for name, found in inputs.items() if found.padding is not None}
    codes = (coding.read(structure, raws, labels or {}, padding, unknown, has_fit) if raws
             else coding.Codes({}, {}, {}))
    frame, length, given = _read_sequences(structure, frame, steps)
    expected = {site.name: expected_of(site, structure, length) for site in structure.sites.values()
                if not site.factor}
    labels = {**structure.labels, **(labels or {})}
    table = tables.read(frame, expected, model.inputs, labels, model=model.name, rows=rows,
                        codes=codes.values, has_fit=has_fit)
    table = replace(table, labels={**table.labels, **codes.labels})
    check(structure, table)
    if length is not None and len(structure.chains) > len(structure.markov):
        trace.check_chains(structure, {}, length)
    trace.check(structure, table.inputs, length or 1)
    return Data(model, structure, table, length, list_lengths=given, new=codes.new)


def refuse_some_labels(data: Data) -> Data:
    """The data of a fit, all rows of it.

    Raises:
        DataError: the rows have labels for some states only, and it matters which: see
            coding.labels.refuse_some.
    """
    for name, labels in data.table.labels.items():
        site = data.structure.sites.get(name)
        naming.refuse_some(name, labels, functools.partial(why_ordered, data.structure, name),
                           "pass integer codes, and the text as a separate input" if site is None
                           else naming.ORDER.format(name=name, last=len(labels) - 1))
    return data


class _Input(NamedTuple):
    """An input: its array, (trailing shape, dtype kind), and the mask (rows, steps) of padding;
    None: there is none."""

    raw: arrays.Raw
    spec: tuple
    padding: np.ndarray | None


def _columns(frame: Any) -> Collection[str]:
    """The names of the columns of a table or a mapping."""
    return getattr(frame, "column_names", frame if hasattr(frame, "__contains__") else ())


def _refuse_settings(model: Bound, structure: Structure, frame: object) -> None:
    """
    Raises:
        DataError: the data give a setting, which would have no effect. Of a table, whose other
            columns are ignored, only one that is not set when the model is built.
    """
    for name in model.at_default if frames.is_table(frame) else model.bound:
        if name in _columns(frame) and name not in (*structure.named, *model.inputs):
            raise DataError(describe_setting(model.name, name, model.bound[name]))


def _check_columns(model: Bound, frame: dict[str, ArrayLike]) -> None:
    """Refuses data that are no table or mapping, duplicate names, and sites that do() sets."""
    frames.check_once(frame)
    if isinstance(frame, str | bytes | list | tuple | jax.Array):
        tables.read(frame, {}, list(model.inputs), model=model.name)  # raises
    fixed = next((name for name, _ in model.interventions
                  if name in getattr(frame, "column_names", frame)), None)
    if fixed is not None:
        raise DataError(f"the data contain '{fixed}', but do() sets '{fixed}' to a fixed "
                               f"value in every row. Drop '{fixed}' from the data")


def _read_input(model: Bound, frame: dict[str, ArrayLike], name: str, rows: int | None,
                shapes: Mapping) -> _Input:
    """An input of the data, padded, with the shape that it has in an earlier fit."""
    if name not in _columns(frame):
        kind = getattr(model.generative.function, "__annotations__", {}).get(name)
        if kind in (int, float, bool, str):
            raise DataError(f"model '{model.name}': '{name}' has no value. By its annotation, "
                            f"{name}: {kind.__name__}, it is one value for all rows, such as the "
                            f"size of a plate. Give it to the model, {model.name}({name}=...)")
        tables.read(frame, {}, list(model.inputs), model=model.name, rows=rows)  # raises, naming it
    value = ragged.of_column(frame[name])
    array = ragged.padded(name, value, as_nan=False)
    padded = array is not value
    # text is padded with None
    array = ragged.padded(name, value) if padded and array.dtype.hasobject else array
    raw = arrays.as_raw(f"the input '{name}'", array, True)
    shape, kind = raw.values.shape, raw.values.dtype.kind
    spec = (shape[1:], kind)
    if shapes and shapes[name][0][:1] == (None,) and len(shape) > 1:
        spec = ((None, *shape[2:]), kind)
    if shapes and spec[0] != tuple(shapes[name][0]):
        wanted = ("n", *shapes[name][0])
        raise DataError(
            f"input '{name}' has shape {shape}, expected {wanted} as in the fitted data. Pass the "
            f"same columns in the same order"
        )
    lengths = np.array([len(part) for part in value]) if padded else None
    return _Input(raw, spec, None if lengths is None
                  else np.arange(raw.values.shape[1]) >= lengths[:, None])


def _read_sequences(structure: Structure, frame: dict[str, ArrayLike], steps: int | None
                    ) -> tuple[dict[str, ArrayLike], int | None, ArrayLike | None]:
    """The data with sequences padded to one length, that length, and the length of each as given;
    both None if the model has no chains."""
    if not structure.chains:
        return frame, None, None
    frame, model = ragged.of_table(frame), structure.model
    if not isinstance(frame, Mapping) and hasattr(frame, "shape"):
        raise DataError(f"model '{model.name}': the model has time steps, and a column of a "
                        f"table has no axis for them. Pass a mapping from names to arrays of "
                        f"shape (rows, steps, ...), such as {{'y': table['y'].to_numpy()[None]}} "
                        f"for a single sequence")
    if not isinstance(frame, Mapping):
        tables.read(frame, {}, list(model.inputs), model=model.name)  # raises
    return ragged.along_time(structure, frame, steps)


def expected_of(site: Site, structure: Structure, steps: int | None) -> tables.Expected:
    """The shape, type and support of the column of a site."""
    words, valid, domain = "real", None, site.domain
    if domain.sums_to_one:
        # a density is 0 or infinite at the boundary
        domain = Simplex(interior=site.rows and site.entry.interior)
        words, valid = domain.description, domain.contains
    elif site.rows and site.traits.checked is not None:
        words, valid = site.traits.checked.description, site.traits.checked.contains
    elif (limit := structure.constant(site.name, site.traits.limit)) is not None:
        limit = (limit.reshape(-1)[0] if limit.size == 1
                 else site.layout(limit, 0, np).reshape(site.cells))
        words = f"an integer from 0 to {limit}, the {site.traits.limit}"

        def valid(values: np.ndarray):
            return values <= limit

    elif domain.checkable and (site.states is None or domain.ragged) and site.event == ():
        words = domain.description
        cell_domain = domain.rearranged(  # of cells, in NumPyro's axes
            lambda end: site.layout(np.asarray(as_array(end)), 0, np).reshape(site.cells)
        ) if site.rows else domain

        def valid(values: np.ndarray):
            return cell_domain.contains(site.valued(values))

    zero = ZERO.format(kind=site.kind) if site.rows and words == "positive" else arrays.UNSEEN
    event = 0 if site.chain else len(site.event)  # chains may be partially observed
    return tables.Expected(site.name, site.discrete, site.states, site.along(steps), site.rows,
                           words, valid, event, site.plates, site.low, zero,
                           functools.partial(why_ordered, structure, site.name))
