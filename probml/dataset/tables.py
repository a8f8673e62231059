"""A user's data as NumPy columns, checked: labels, missing cells, shapes, weights. Every error
names the site, the row and what to do.

Arrays, lists, DataFrames and pyarrow tables become columns with a mask of observed cells. pandas is
imported only where the user's own data needs it.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from probml.dataset import frames
from probml.dataset.arrays import NUMBERS, UNSEEN, Raw, as_raw, deny
from probml.dataset.coding import labels as naming
from probml.dataset.sources import arrow
from probml.errors import DataError, counted, listed
from probml.numerics.process.threads import finite, map_chunks
from probml.typing import DataLike

SITE_HINT = ("Missing values are inferred only for sites. Fill in the value, drop the row, or make "
             "the input a site (sample it in the model).")
LARGEST_COUNT = 2**62


@dataclass(frozen=True)
class Expected:
    """What a model expects of one site."""

    name: str
    discrete: bool
    # number of states 0..states-1 of a finite discrete site; None for counts and continuous sites
    states: int | None
    # shape after the row axis: plates inside rows, outermost first, then event axes
    cells: tuple[int, ...]
    rows: bool = True  # False: a site outside rows(), a parameter or global value of shape `cells`
    support: str = "real"  # words for messages: "'x' must be {support}"
    # True where an observed value is in the support, per cell or per event
    valid: Callable[[np.ndarray], np.ndarray] | None = None
    event: int = 0  # trailing axes of `cells` that are event axes
    plates: tuple[tuple[str, int], ...] = ()  # (name, size) of those around the site
    low: int = 0  # the value of code 0
    zero: str = UNSEEN  # the remedy for a 0 that is refused
    # (number of labels) → why their order has a meaning; None: it has none
    ordered: Callable[[int], str | None] = lambda labels: None


@dataclass(frozen=True, eq=False)
class Column:
    """One site's values, (n, *cells); missing cells hold a finite value, never NaN."""

    values: np.ndarray  # int32 codes, int32 or int64 counts, float32 or float64
    observed: np.ndarray | None  # bool (n, *cells), the observed cells; None: all
    # (n, states) weights >= 0 of a scalar finite discrete site; `observed` is then all False
    likelihood: np.ndarray | None = None
    partial: bool = False  # some vector of it is partially observed
    # bool (n, *cells): missing cells that a sampler sets, and which then count as observed
    sampled: np.ndarray | None = None

    @property
    def pattern(self) -> str:
        """Whether it is observed: "seen", "part", "partially_observed" (some vector is),
        "likelihood" or "sampled"."""
        if self.likelihood is not None:
            return "likelihood"
        if self.sampled is not None:
            return "sampled"
        return "seen" if self.observed is None else "partially_observed" if self.partial else "part"

    def mapped(self, function: Callable[[np.ndarray], np.ndarray]) -> "Column":
        """The same column with other rows or steps: a function of each of its arrays."""
        seen, likelihood = (None if array is None else function(array)
                            for array in (self.observed, self.likelihood))
        return Column(function(self.values), seen, likelihood, self.partial)

    @property
    def values_or_nan(self) -> np.ndarray:
        """The values (states as codes), missing cells NaN."""
        return (self.values if self.observed is None
                else np.where(self.observed, self.values, np.nan))


@dataclass(frozen=True, eq=False)
class Table:
    """Data as a model takes it."""

    rows: int
    columns: dict[str, Column]  # sites inside rows with an observed cell or likelihood evidence
    inputs: dict[str, np.ndarray]  # covariates, rows first
    values: dict[str, np.ndarray]  # sites outside rows that were given
    labels: dict[str, tuple]  # site -> labels in code order, for sites that came with labels
    index: object | None  # the index of a DataFrame
    without_values: tuple[str, ...] = ()  # sites inside rows, given with all cells missing


def read(data: object, expected: Mapping[str, Expected], inputs: Sequence[str] = (),
         labels: Mapping = {}, *, model: str, rows: int | None = None,
         codes: Mapping[str, np.ndarray] = {}, has_fit: bool = False) -> Table:
    """The user's data as NumPy columns, checked against what the model expects.

    Args:
        data: a mapping name → array, a DataFrame, a pyarrow Table or None.
        labels: site → its labels in an earlier fit.
        rows: the number of rows, for data without a column of rows.
        codes: index input → its codes.
        has_fit: whether there is an earlier fit; a site that has no labels in it has codes.

    Raises:
        DataError: a column does not have the rows, shape, type or support that its site has.

    Cost: one or two passes over each column; a complete contiguous float array is not copied.
    """
    items, frame, index, height = _items(data, expected, inputs, model)
    items |= {name: value for name, value in codes.items() if name in items}
    missing = next((name for name in inputs if items.get(name) is None), None)
    if missing is not None:
        others = [name for name in items if name not in expected and name not in inputs]
        raise frames.missing_input(model, missing, others if frame else ())
    items = frames.select_known_columns(items, expected, inputs, has_fit, model) if frame else items
    sites = [name for name in items if name not in inputs]
    for name in sites:
        bare = frame and not arrow.holds_lists(items[name])
        frames.check(name, bare, expected, inputs, model)
    items = {name: value for name, value in items.items() if value is not None}  # not observed
    sites = [name for name in sites if name in items]
    by_row = {name: name in inputs or expected[name].rows for name in items}
    raws = {name: as_raw(f"'{name}'", value, by_row[name]) for name, value in items.items()}
    counts = {name: len(raw.values) for name, raw in raws.items() if by_row[name]}
    raws |= {name: _shaped(expected[name], raws[name]) for name in sites}
    n = _agreed(counts, rows, height,
                [name for name, e in expected.items() if e.rows] + list(inputs), model)
    columns, values, new_labels, without_values = {}, {}, {}, []
    for name in sites:
        column, names = _site(expected[name], raws[name], labels.get(name), has_fit)
        if names is not None:
            new_labels[name] = names
        if column is not None:
            (columns if by_row[name] else values)[name] = column if by_row[name] else column.values
        elif by_row[name]:
            without_values.append(name)
    covariates = {name: _complete(f"the input '{name}'", raws[name], SITE_HINT) for name in inputs}
    return Table(n, columns, covariates, values, new_labels, index, tuple(without_values))


def read_weights(weights: object, rows: int, all_rows: bool = True) -> np.ndarray | None:
    """Row weights as float64 (n,), checked to be finite and not negative, and, where they are those
    of all rows, not all zero; None stays None."""
    if weights is None:
        return None
    raw = as_raw("weights", weights, True)
    if raw.values.shape != (rows,):
        raise DataError(f"weights must have the shape ({rows},), one number per row, got "
                        f"{raw.values.shape}. Give each row one weight.")
    out = _complete("weights", raw, "Fill in the weight, or drop the row.").astype(np.float64)
    deny(out < 0, "weights", out, "at least 0", hint="Correct this weight; a row with weight 0 is "
                                                     "ignored.")
    if all_rows and not out.any():
        raise DataError("all weights are zero. Give at least one row a weight above 0.")
    return out


def to_labels(codes: np.ndarray, labels: tuple | None) -> np.ndarray:
    """Codes as labels, same shape; unchanged without labels."""
    if labels is None:
        return codes
    codes = np.asarray(codes).astype(np.intp, copy=False)  # bool would be a mask, not an index
    if codes.size and (codes.min() < 0 or codes.max() >= len(labels)):
        raise DataError(f"the labels {listed(labels)} have the codes 0 to {len(labels) - 1}, got "
                        f"codes from {codes.min()} to {codes.max()}. Correct these codes")
    kinds = set(map(type, labels))
    if len(kinds) == 1 and kinds <= {str, int, float, bool}:
        return np.array(labels)[codes]
    return np.fromiter(labels, object, len(labels))[codes]


def _items(data: DataLike, expected: Mapping[str, Expected], inputs: Sequence[str], model: str):
    """(name → value, whether data are a table, its index, its number of rows)."""
    module = type(data).__module__.partition(".")[0]
    if module in ("pandas", "pyarrow") and hasattr(data, "columns") and hasattr(data, "shape"):
        pandas = module == "pandas"
        names = list(data.columns if pandas else data.schema.names)
        return ({name: data[name] if pandas else data.column(name) for name in names}, True,
                data.index if pandas else None, data.shape[0])
    if data is None or isinstance(data, Mapping):
        return dict(data or {}), False, None, None
    sites = [e.name for e in expected.values() if e.rows]
    some = "some of " * (len(sites) > 1 and not inputs)
    known = ", ".join(f"'{name}': ..." for name in (*inputs, *sites) or "x")
    rest = ", ..." * bool(inputs and not sites)
    file = (" Read a file first: pandas.read_csv(path), or for Parquet, also a folder of more rows "
            "than fit into memory, pyarrow.dataset.dataset(path)."
            ) * isinstance(data, str | os.PathLike)
    raise DataError(f"model '{model}': data must be a mapping from names to arrays, a DataFrame or "
                    f"a pyarrow Table, got {type(data).__name__}. Pass "
                    f"{some}{{{known}{rest}}}.{file}")


def _agreed(counts: dict[str, int], rows: int | None, height: int | None, known: list[str],
            model: str):
    """The number of rows, the same in all columns."""
    if rows is not None and rows < 1 or height == 0:
        raise DataError(f"model '{model}': the data are empty: expected at least 1 row, got 0. "
                        "Check how the data were read or filtered.")
    n = rows or height or (Counter(counts.values()).most_common(1)[0][0] if counts else None)
    for odd in (name for name, count in counts.items() if count != n):
        base = next((f"'{name}' has {n}" for name, count in counts.items() if count == n),
                    f"{n} are expected")
        raise DataError(f"'{odd}' has {counted(counts[odd], 'row')}, but {base}. Give every column "
                        "the same rows in the same order, with NaN or None where a value is "
                        "missing.")
    if n is None and known:
        raise DataError(f"model '{model}': the data are empty, so the number of rows is unknown. "
                        f"Give one of {listed(known)}, or give the number, rows=n.")
    return n or 1


def _likely(e: Expected, raw: Raw):
    """Whether a column is likelihood evidence: float (n, states) for a scalar discrete site."""
    v = raw.values
    return (e.rows and e.states is not None and e.cells == () and raw.labels is None
            and v.dtype.kind == "f" and v.shape[1:] == (e.states,))


def _shaped(e: Expected, raw: Raw):
    """A column that has the shape its site expects; refused otherwise."""
    shape = raw.values.shape
    cells = shape[1:] if e.rows else shape
    if cells == e.cells or _likely(e, raw):
        return raw
    if e.rows and (*cells, 1) == e.cells:
        return replace(raw, values=raw.values[..., None])
    want = str(("n", *e.cells)).replace("'", "") if e.rows else str(e.cells)
    if e.rows and e.states is not None and e.cells == ():
        want += f" with codes or labels, or label probabilities, a float array (n, {e.states})"
    remedy = ("Put the rows on the first axis, and give each row "
              f"{f'an array of shape {e.cells}' if e.cells else 'one value'}" if e.rows
            else outside(e.name, e.plates, shape[0] if shape else None))
    if e.rows and len(shape) > 1 and shape[-2::-1] == e.cells:
        remedy = f"Pass {e.name}.T, so that the first axis is the rows"
    elif e.cells == () and cells == (1,):
        remedy = f"Pass {e.name}[:, 0]" if e.rows else f"Pass {e.name}[0]"
    elif e.rows and e.cells == () and len(cells) == 1:
        remedy = f"Pass {e.name}[0], whose first axis is the rows" if shape[0] == 1 else (
            f"Pass one column, {e.name}[:, 0], or let the model have vectors as the values of "
            f"'{e.name}', with a distribution .to_event(1)")
    raise DataError(f"'{e.name}' has the wrong shape: expected {want}, got {shape}. {remedy}.")


def outside(name: str, plates: Sequence[tuple[str, int]], rows: int | None) -> str:
    """The remedy for a column of rows that is given for a site outside rows()."""
    own = next((plate for plate, size in plates if size in (rows, 1)), None)
    if own is not None:
        return (
            f"'{name}' is in the plate '{own}', which is not the rows of the data. If '{name}' has "
            f"one value per row, write `with probml.rows():` instead of plate('{own}', ...); the "
            f"number of rows comes from the data"
        )
    return (
        f"'{name}' is sampled outside rows(), so that it has one value for all rows. If '{name}' "
        f"has one value per row, write sample('{name}', ...) inside `with probml.rows():`. If not, "
        f"give a single value of '{name}'"
    )


def _site(e: Expected, raw: Raw, known: np.ndarray | None, has_fit: bool):
    """(Column, or None where every cell is missing; labels or None)."""
    what = f"'{e.name}'"
    if _likely(e, raw):
        return _likelihood(what, raw), None
    if e.states is None or raw.labels is None and known is None:
        a, mask = _finite(what, raw, e.rows)
        if mask is not None and not mask.any():
            return None, None
        return _checked(e, _read_integers(e, a) if e.discrete else _floats(e, a, mask), mask), None
    if raw.labels is None:
        deny(np.isinf(raw.values), what, raw.values, "finite", e.rows)
    # an earlier fit without labels has codes: labels of these rows alone do not name its states
    names = None if has_fit and known is None else tuple(known) if known is not None else naming.of(
        {e.name: raw}, what, e.states, f"the model has only {counted(e.states, 'state')}. Give the "
                                       "model more states, or merge labels")
    if known is None and not has_fit:
        naming.refuse_unordered(e.name, raw, e.ordered, naming.ORDER.format(
            name=e.name, last=e.states - 1))
    codes, strange, na, _, _ = naming.coded(what, raw, names or tuple(range(e.states)), 0, e.rows)
    deny(strange, what, raw if raw.labels is not None else raw.values,
         f"one of the categories {naming.listed_given(names or range(e.states))}", e.rows)
    return _checked(e, codes, ~na if na.any() else None), names


def _finite(what: str, raw: Raw, rows: bool, hint: str = UNSEEN):
    """(finite numbers with 0 in missing cells, mask of observed cells or None); labels that are
    numbers are read as numbers."""
    a = raw.values
    if raw.labels is not None:
        texts = [not isinstance(label, NUMBERS) for label in raw.labels]
        deny(bad := np.array([*texts, False])[a], what, raw, "a number", rows,
             _how_to_convert(raw.labels[a[bad][0]]) if bad.any() else UNSEEN)
        a = np.array([*(np.nan if t else float(v) for t, v in zip(texts, raw.labels, strict=True)),
                      np.nan])[a]
    if a.dtype.kind != "f" or finite(a):  # one pass, no temporary
        return a, None
    deny(np.isinf(a), what, a, "finite", rows, hint)
    is_na = np.isnan(a)
    return (np.where(is_na, a.dtype.type(0), a), ~is_na) if is_na.any() else (a, None)


def _how_to_convert(label: object) -> str:
    """The remedy for a label where a number is expected: text, or any other object."""
    text = label if isinstance(label, str) else ""
    for said, instead in ((text, "pandas.to_numeric(column)"),
                          (text.replace(",", "."), "pandas.read_csv(..., decimal=',')")):
        with contextlib.suppress(ValueError):
            float(said)
            return (f"The value is text that looks like a number: {instead} converts the column to "
                    f"numbers.")
    return "Convert the column to numbers, with NaN where a value is missing."


def _complete(what: str, raw: Raw, hint: str):
    """The finite numbers of an input, or of weights, without missing cells."""
    a, mask = _finite(what, raw, True, "Correct the value, or drop the row.")
    if mask is not None:
        deny(~mask, what, None, "complete", hint=hint)
    return a


def _floats(e: Expected, a: np.ndarray, mask: np.ndarray | None):
    """Floats, missing cells filled in place with the mean of their column, or of all columns where
    that has no observed cell."""
    a = np.asarray(a, np.float64 if a.dtype.kind != "f" else None, order="C")
    if mask is None or not e.rows:
        return a
    with np.errstate(all="ignore"):
        number, total = mask.sum(0), a.sum(0, dtype=np.float64)
        fill = np.where(number > 0, total / number, total.sum() / number.sum())
    np.copyto(a, np.where(np.isfinite(fill), fill, 0.0), where=~mask, casting="same_kind")
    return a


def _read_integers(e: Expected, a: np.ndarray):
    """States 0..states-1, or counts, as integers."""
    a = a.view(np.uint8) if a.dtype.kind == "b" else a
    high = LARGEST_COUNT if e.states is None else e.states - 1
    want = ("a count, an integer of at least 0" if e.states is None
            else f"an integer from 0 to {high} ({counted(e.states, 'state')})")
    small = e.states is not None or np.can_cast(a.dtype, np.int32)
    kind = np.int32 if small else np.int64
    copied = a.ndim and (a.dtype != kind or not a.flags.c_contiguous)
    out = np.empty(a.shape, kind) if copied else np.asarray(a, kind)

    def copy_and_bound(part=...):
        """(minimum, maximum, is a value not an integer) of a part, copied to `out` if needed."""
        chunk = a[part]
        if copied:
            with np.errstate(invalid="ignore"):
                out[part] = chunk
        if a.dtype.kind != "f":  # one pass: the bits of a negative integer are a huge unsigned one
            return 0, chunk.view(f"u{a.dtype.itemsize}").max(), False
        return chunk.min(), chunk.max(), bool((out[part] != chunk).any())

    bounds = (map_chunks(copy_and_bound, a) if a.ndim else [copy_and_bound()]) if a.size else []
    least, most = (min(f[0] for f in bounds), max(f[1] for f in bounds)) if bounds else (0, 0)
    if not (least >= 0 and most <= high):
        deny((a < 0) | (a > high), f"'{e.name}'", a, want, e.rows)
    if any(broken for *_, broken in bounds):
        deny(out != a, f"'{e.name}'", a, want, e.rows)
    return out if most >= 2**31 else np.asarray(out, np.int32)


def _checked(e: Expected, values: np.ndarray, mask: np.ndarray | None):
    """The column, its observed values checked against the support; None where all are missing."""
    if mask is not None and not mask.any():
        return None
    if mask is not None and not e.rows:
        deny(~mask, f"'{e.name}'", None, "observed in all elements or in none, because it is a "
                                         "parameter (sampled outside rows())",
             False, f"Give the missing elements, or drop '{e.name}' from the data.")
    if e.valid is not None:
        with np.errstate(all="ignore"):
            ok = np.asarray(e.valid(values))
        batch, look = values.shape[: values.ndim - e.event], True if mask is None else mask
        # one answer per event: check those that are completely observed
        if ok.shape != values.shape and ok.size == np.prod(batch, dtype=int):
            ok, look = ok.reshape(batch), np.all(look, tuple(range(len(batch), np.ndim(look))))
        bad = ~np.broadcast_to(ok, values.shape if ok.ndim == 0 else ok.shape) & look
        hint = e.zero if bad.any() and not values[bad].any() else UNSEEN
        deny(bad, f"'{e.name}'", values + e.low if e.low else values, e.support, e.rows, hint)
    vectors = None if mask is None or not e.event else mask.reshape(
        *values.shape[: values.ndim - e.event], -1
    )
    return Column(values, mask,
                  partial=vectors is not None and bool((vectors.any(-1) & ~vectors.all(-1)).any()))


def _likelihood(what: str, raw: Raw):
    """A column of likelihood evidence; None where every row is missing."""
    w, nan = raw.values, np.isnan(raw.values)
    is_na = nan.all(1)
    bad = (nan.any(1) & ~is_na) | np.isinf(w).any(1) | (w < 0).any(1) | (w == 0).all(1)
    deny(bad, f"{what} as label probabilities (likelihood "
              f"evidence)", w, "finite and at least 0, with at least one value above 0 in each row",
         hint="Use NaN in all columns of a row whose label is unknown.")
    if is_na.all():
        return None
    w = np.where(is_na[:, None], w.dtype.type(1), w) if is_na.any() else w
    return Column(np.zeros(len(w), np.int32), np.zeros(len(w), bool), w)
