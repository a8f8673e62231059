"""Labels and codes: what a column of the user's is along an axis of a model, and how it comes back.

The one place that says so, whether the axis holds the states of a site (tables.py), the entries
that an input picks (indices.py), or what a function of the user's own is given (given/values.py),
whether rows lie in memory or come in parts (sources/profile.py):

- labels stand in the order of their categories where the column is categorical, levels that no row
  shows included, else sorted, numbers before text;
- text beside numbers is refused, but in a Categorical;
- where their order means something (structure/ordering.py), the user gives it: an ordered category,
  numbers, or labels that the model states;
- an axis that has more entries than labels counts on: the others are numbers, "state 3" beside text
  or where a label is that number; one that has fewer is refused;
- what a fit knows by labels is asked by labels; what it knows by codes, by codes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from probml.dataset.arrays import UNSEEN, Raw, deny
from probml.errors import DataError, listed


def order(label: object) -> tuple:
    """What labels are sorted by: numbers before text."""
    return isinstance(label, str), label


def union(parts: Sequence[tuple], categorical: bool = False) -> tuple:
    """The labels of several columns, or parts of one, of one axis: in the order of that which has
    the most, where it holds in the others; else of all in turn where the order of each is the
    user's, `categorical`; else sorted, as of dictionaries in the order in which each file met its
    words."""
    longest = max(parts, key=len)
    if all(tuple(label for label in longest if label in own) == own for own in parts):
        return longest
    found = dict.fromkeys(label for own in parts for label in own)
    return tuple(found) if categorical else tuple(sorted(found, key=order))


def of(columns: Mapping[str, Raw], words: str, size: int | None, few: str,
       hint: str = UNSEEN) -> tuple:
    """The labels of an axis that some columns show, one an entry.

    Args:
        columns: name → its values.
        words: what the axis is, for messages. size: its entries; None: as many as there are.
        few: what is said of fewer entries than labels.

    Raises:
        DataError: text and numbers in one column, labels in one and codes in another, more labels
            than entries.
    """
    plain = [name for name, raw in columns.items() if raw.labels is None]
    if plain:
        named = next(name for name in columns if name not in plain)
        raise DataError(f"'{named}' contains labels and '{plain[0]}' codes, but both index "
                        f"{words}: use labels for both")
    for name, raw in columns.items():
        unmixed(f"'{name}'", raw, hint)
    found = union([raw.labels or () for raw in columns.values()],
                  all(raw.categorical for raw in columns.values()))
    if size is not None and len(found) > size:
        several = any(raw.categorical for raw in columns.values())
        unused = (" Remove unused categories with "
                  ".cat.remove_unused_categories()." if several else "")
        raise DataError(f"{' and '.join(f'{name!r}' for name in columns)} has {len(found)} labels, "
                        f"{listed(found)}, but {few}.{unused}")
    return filled(found, size or len(found))


def unmixed(what: str, raw: Raw, hint: str = UNSEEN) -> None:
    """
    Raises:
        DataError: text beside numbers in a column that is not categorical, by row.
    """
    text = [isinstance(label, str) for label in raw.labels or ()]
    if any(text) and not all(text) and not raw.categorical:
        mixed = np.isin(raw.values, [code for code, t in enumerate(text) if not t])
        deny(mixed, what, raw, "all text, all codes, or a pandas Categorical",
             hint=hint)


def refuse_unordered(name: str, raw: Raw, why: Callable[[int], str | None], instead: str) -> None:
    """
    Args:
        why: (number of labels) → why their order means something; None: it does not.
        instead: what else than an ordered category tells it.

    Raises:
        DataError: labels whose order nobody has given, where it means something.
    """
    if raw.labels is None or raw.in_order or (reason := why(len(raw.labels))) is None:
        return
    raise DataError(f"'{name}' has the labels {listed(raw.labels)}, whose order is unknown, and "
                    f"{reason}. Text has no order: give the order, lowest first, by "
                    f"pandas.Categorical({name}, categories=[...], ordered=True), or {instead}")


def filled(labels: tuple, size: int) -> tuple:
    """One label an entry: entries that nobody has named are numbers, or named by them."""
    text = any(isinstance(label, str) for label in labels)
    rest = (f"state {code}" if text or code in labels else code
            for code in range(len(labels), size))
    return (*labels, *rest)


def without_padding(labels: tuple, codes: np.ndarray | None) -> tuple:
    """Labels without the last ones that stand for entries which no row contains."""
    count = len(labels)
    while count and (labels[count - 1] in (count - 1, f"state {count - 1}")
                     and (codes is None or not (codes == count - 1).any())):
        count -= 1
    return labels[:count]


def places(labels: Iterable, base: int = 0) -> dict[Any, int]:
    """Label → its code."""
    return {label: base + k for k, label in enumerate(labels)}


class Coded(NamedTuple):
    """A column by the labels of its axis.

    Attributes:
        codes: of each cell, that of the first label where there is none.
        strange: cells whose value is no label. hidden: unseen ones.
        given, values: the different values of the column, and which of these each cell has.
    """

    codes: np.ndarray
    strange: np.ndarray
    hidden: np.ndarray
    given: Sequence
    values: np.ndarray


def coded(what: str, raw: Raw, known: tuple, base: int = 0, rows: bool = True) -> Coded:
    """A column by labels that are known, those of a fit or its own.

    Args:
        raw: labels, −1 unseen, or numbers, NaN unseen.
        base: the code of the first label. rows: the first axis is that of rows.

    Raises:
        DataError: codes for an axis whose labels are text.
    """
    given, values = raw.labels, raw.values
    if given is None:
        hidden = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
        if known and all(isinstance(label, str) for label in known):
            deny(~hidden, what, values, f"one of its labels, {listed(known)}, not a code", rows, "")
        found, values = np.unique(np.where(hidden, values.dtype.type(0), values),
                                  return_inverse=True)
        given, values = found.tolist(), np.where(hidden, -1, values.reshape(hidden.shape))
    lookup = places(known, base)
    codes = np.array([*(lookup.get(label, base) for label in given), base], np.int32)
    strange = np.array([*(label not in lookup for label in given), False])
    return Coded(codes[values], strange[values], values < 0, given, values)
