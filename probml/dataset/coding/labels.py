"""Labels and their codes along an axis of a model: the states of a site (tables.py), the entries
that an index input selects (indices.py), or an argument of a plain NumPyro function
(given/values.py), of rows in memory or in parts (sources/profile.py).

- Labels are in the order of the categories if the column is categorical, levels without a row
  included; else sorted, numbers before text.
- Text and numbers in one column are refused, except in a Categorical.
- Where their order has a meaning (structure/ordering.py), the user gives it: an ordered category,
  numbers, or labels in the model.
- Numbers that are codes are these codes, in every type of column but an ordered category that has
  all of them. If an axis has more entries than there are labels, other labels are the first
  entries, and the rest is labelled by its number, "state 3" if labels are text or one is that
  number; where the order of entries has a meaning, or their probabilities are fixed and differ,
  this is refused (refuse_some). If the axis has fewer entries, the column is refused.
- A fit to labels is asked about labels, a fit to codes about codes. A label that is written like a
  fitted one, and has another type, is no new group (refuse_other_type).
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from probml.dataset.arrays import NUMBERS, Categories, Raw, deny
from probml.errors import DataError, counted, listed

# how a site's states get an order, besides an ordered category
ORDER = "in the model, sample('{name}', ..., infer={{'labels': [...]}}), or pass codes 0 … {last}"


def order(label: object) -> tuple:
    """The key by which labels are sorted: numbers before text."""
    return isinstance(label, str), label


def union(parts: Sequence[tuple], categorical: bool = False) -> tuple:
    """The labels of one axis from several columns, or parts of one: in the order of the longest
    part, if the others agree with it; else in order of appearance for `categorical` columns, sorted
    for others."""
    longest = max(parts, key=len)
    if all(tuple(label for label in longest if label in part) == part for part in parts):
        return longest
    labels = dict.fromkeys(label for part in parts for label in part)
    return tuple(labels) if categorical else tuple(sorted(labels, key=order))


def of(columns: Mapping[str, Raw], words: str, size: int | None, limit: str,
       base: int = 0) -> tuple:
    """The labels of an axis from the columns that have it, one per entry.

    Args:
        columns: name → its values.
        words: the axis, in words. size: its number of entries; None: the number of labels.
        limit: in messages, why there are fewer entries than labels.
        base: the code of the first entry.

    Raises:
        DataError: text and numbers in one column, labels in one and codes in another, more labels
            than entries.
    """
    ints = [name for name, raw in columns.items() if raw.labels is None]
    if ints:
        named = next(name for name in columns if name not in ints)
        raise DataError(f"'{named}' contains labels and '{ints[0]}' contains integer codes, but "
                        f"both index {words}. Use labels for both")
    for name, raw in columns.items():
        unmixed(f"'{name}'", raw)
    labels = union([raw.labels or () for raw in columns.values()],
                   all(raw.categorical for raw in columns.values()))
    if size is not None and len(labels) > size:
        several = any(raw.categorical for raw in columns.values())
        unused = (" Remove unused categories with "
                  ".cat.remove_unused_categories()." if several else "")
        raise DataError(f"{' and '.join(f'{name!r}' for name in columns)} has "
                        f"{counted(len(labels), 'label')}, {listed(labels)}, but {limit}.{unused}")
    size = size or len(labels)
    if (len(labels) == size and not any(raw.categorical is Categories.ORDERED
                                        for raw in columns.values())
        and all(isinstance(label, NUMBERS) for label in labels)
        and sorted(labels) == [*range(base, base + size)]):
        return tuple(sorted(labels))  # codes, whatever the order of the categories
    return filled(labels, size, base)


def unmixed(what: str, raw: Raw) -> None:
    """
    Raises:
        DataError: text beside numbers in a column that is not categorical, by row.
    """
    text = [isinstance(label, str) for label in raw.labels or ()]
    if any(text) and not all(text) and not raw.categorical:
        is_number = np.isin(raw.values, [code for code, t in enumerate(text) if not t])
        deny(is_number, what, raw, "all text, all integer codes, or a pandas Categorical",
             hint="Convert the column to text, column.astype('string')")


def refuse_unordered(name: str, raw: Raw, why: Callable[[int], str | None], instead: str) -> None:
    """
    Args:
        why: (number of labels) → why their order has a meaning; None: it has none.
        instead: a further remedy besides an ordered category.

    Raises:
        DataError: the order of the labels has a meaning, and is unknown.
    """
    if raw.labels is None or raw.in_order or (reason := why(len(raw.labels))) is None:
        return
    raise DataError(f"'{name}' has the labels {listed(raw.labels)}, but {reason}, and text has no "
                    f"order. Give the order, lowest first, by "
                    f"pandas.Categorical({name}, categories=[...], ordered=True), or {instead}")


def refuse_some(name: str, labels: tuple, why: Callable[[int, int], str | None],
                instead: str) -> None:
    """
    Args:
        labels: one per entry, filled. why: (number of labels, of entries) → why the order of the
            entries has a meaning; None: it has none. instead: as in refuse_unordered.

    Raises:
        DataError: only some entries have labels, and the order has a meaning, so that it is unknown
            which entries these are.
    """
    named = without_padding(labels, None)
    if not named or len(named) == len(labels) or (
            reason := why(len(named), len(labels))) is None:
        return
    raise DataError(f"'{name}' contains {len(named)} of {counted(len(labels), 'possible label')}, "
                    f"{listed(named)}, and {reason}, so the order of all {len(labels)} must be "
                    f"known. Give all labels, lowest first, by pandas.Categorical({name}, "
                    f"categories=[...], ordered=True), or {instead}")


def filled(labels: tuple, size: int, base: int = 0) -> tuple:
    """One label per entry: those without a label are labelled by their number. Numbers that are
    codes, from `base` on, stay at their places."""
    codes = range(base, base + size)
    if len(labels) < size and all(isinstance(label, NUMBERS) and label in codes
                                  for label in labels):
        own = {label: label for label in labels}
        kind = bool if any(isinstance(label, bool | np.bool_) for label in labels) else int
        return tuple(own.get(code, kind(code) if size == 2 else code) for code in codes)
    text = any(isinstance(label, str) for label in labels)
    rest = (f"state {code}" if text or code in labels else code
            for code in range(len(labels), size))
    return (*labels, *rest)


def without_padding(labels: tuple, codes: np.ndarray | None) -> tuple:
    """Labels without the numbers at the end that `filled` added and no row contains."""
    count = len(labels)
    while count and (labels[count - 1] in (count - 1, f"state {count - 1}")
                     and (codes is None or not (codes == count - 1).any())):
        count -= 1
    return labels[:count]


def listed_given(labels: Sequence) -> str:
    """Labels in a message, without the names of states, "state 3", that `filled` added."""
    return listed(label for k, label in enumerate(labels) if label != f"state {k}")


def code_by_label(labels: Iterable, base: int = 0) -> dict[Hashable, int]:
    """Label → its code."""
    return {label: base + k for k, label in enumerate(labels)}


def refuse_other_type(what: str, strange: Iterable, known: Iterable) -> None:
    """
    Args:
        strange: labels that are not among the known ones, and would be new groups.

    Raises:
        DataError: one of them is written like a known one, "3" like 3: the columns have other
            types.
    """
    written = {_as_written(label): label for label in known}
    for label in strange:
        if (text := _as_written(label)) in written:
            raise DataError(f"{what} has the label {_quote_label(label)}, but the fitted data have "
                            f"{_quote_label(written[text])}, of another type, so the label would "
                            "be a new group. Convert the column to the type that was fitted")


def _as_written(label: object) -> str:
    """A label as text, whole numbers without decimals and days without a time."""
    return re.sub(r"(\.0|[ T]00:00:00(\.0+)?)$", "", str(label))


def _quote_label(label: object) -> str:
    kind = type(label).__name__.removesuffix("_")
    return f"{str(label)!r} (text)" if isinstance(label, str) else f"{label} ({kind})"


class Coded(NamedTuple):
    """A column as codes of the labels of its axis.

    Attributes:
        codes: the code of each cell, that of the first label where it has none.
        is_unknown: mask of cells whose value is not a label. is_missing: mask of missing cells.
        distinct, values: the distinct values of the column, and the position of each cell's among
            these, −1 where it is missing.
    """

    codes: np.ndarray
    is_unknown: np.ndarray
    is_missing: np.ndarray
    distinct: Sequence
    values: np.ndarray


def coded(what: str, raw: Raw, known: tuple, base: int = 0, rows: bool = True) -> Coded:
    """A column as codes of the labels `known`.

    Args:
        base: the code of the first label. rows: whether the first axis is that of rows.

    Raises:
        DataError: the column has codes, and the labels are text.
    """
    given, values = raw.labels, raw.values
    if given is None:
        is_na = raw.missing
        if known and all(isinstance(label, str) for label in known):
            deny(~is_na, what, values,
                 f"one of its labels, {listed_given(known)}, not a code", rows,
                 "Pass labels as in the fitted data")
        distinct, values = np.unique(np.where(is_na, values.dtype.type(0), values),
                                     return_inverse=True)
        given, values = distinct.tolist(), np.where(is_na, -1, values.reshape(is_na.shape))
    lookup = code_by_label(known, base)
    codes = np.array([*(lookup.get(label, base) for label in given), base], np.int32)
    strange = np.array([*(label not in lookup for label in given), False])
    return Coded(codes[values], strange[values], values < 0, given, values)
