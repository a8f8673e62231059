"""Tables that are hard for few digits, or odd in what their cells are: what single.py holds estimators and
functions to."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

nan = np.nan


class Table(NamedTuple):
    """What an estimator is given: X, y by kind of estimator; `asked`: the rows that it is asked about, if these
    are others."""

    x: Any
    classes: Any
    y: Any
    counts: Any
    codes: Any
    asked: Any = None


def plain(rows: int = 40) -> Table:
    random = np.random.default_rng(3)
    classes = np.arange(rows) % 2
    x = random.normal(size=(rows, 3)) + [[3.0, 0.0, -2.0]] * classes[:, None]
    y = x @ [1.0, -2.0, 0.5] + 0.3 * random.normal(size=rows)
    counts = random.poisson(np.where(classes[:, None], [[2.0, 8.0, 4.0]], [[9.0, 1.0, 4.0]])) * 1.0
    codes = (random.random((rows, 4)) < np.where(classes, 0.8, 0.2)[:, None]) * 1.0
    return Table(x, classes, y, counts, codes)


def each(table: Table, change: Callable[[Any], Any]) -> Table:
    return Table(*(change(part) for part in table[:5]))


def _x(x: Callable[[Table], np.ndarray]) -> Callable[[Table], Table]:
    return lambda t: t._replace(x=x(t))


def _unit(unit: float, offset: float = 0.0) -> Callable[[Table], Table]:
    return lambda t: t._replace(x=t.x * unit + offset, y=t.y * unit + offset)


def _constant(table: Table) -> Table:
    codes = table.codes.copy()
    codes[:, 0] = 0.0
    return table._replace(x=np.column_stack([table.x[:, :2], np.full(len(table.x), 5.0)]),
                          codes=codes)


def _first(rows: int) -> Callable[[Table], Table]:
    return lambda t: each(t, lambda part: part[:rows])


def _unseen(table: Table) -> Table:
    return table._replace(x=np.full_like(table.x, nan), counts=np.full_like(table.counts, nan),
                          codes=np.full_like(table.codes, nan))


def _without(table: Table) -> Table:
    """All cells of one column are missing."""
    def emptied(part):
        part = part.copy()
        part[:, 1] = nan
        return part

    return table._replace(x=emptied(table.x), counts=emptied(table.counts),
                          codes=emptied(table.codes))


def _holes(table: Table) -> Table:
    hole = np.random.default_rng(5).random(table.x.shape) < 0.2
    x = np.where(hole, nan, table.x * 1e3 + 1e6)
    x[0] = nan
    return table._replace(x=x)


def _large(table: Table) -> Table:
    random = np.random.default_rng(4)
    return table._replace(counts=random.poisson(table.counts.mean(0) * 2e5 *
                                                (1 + 0.5 * table.classes[:, None])) * 1.0)


def _ten(table: Table) -> Table:
    codes = table.codes.copy()
    codes[:, 0] = np.arange(len(codes)) % 9
    codes[-1, 0] = 9.0  # once
    return table._replace(codes=codes)


def _new(table: Table) -> Table:
    """A category, a count and a place that are asked about were not fitted."""
    codes, counts, x = table.codes.copy(), table.counts.copy(), table.x.copy()
    codes[0, 0], counts[0] = 2.0, 1000.0
    x[0], x[1] = 1e3, -1e3
    return table._replace(asked=table._replace(codes=codes, counts=counts, x=x))


def _infinite(table: Table) -> Table:
    x, counts = table.x.copy(), table.counts.copy()
    x[3, 1], counts[3, 1] = np.inf, np.inf
    return table._replace(x=x, counts=counts)


def _outlier(table: Table) -> Table:
    x, y = table.x.copy(), table.y.copy()
    x[3, 1], y[5] = 1e7, 1e7
    return table._replace(x=x, y=y)


def _objects(table: Table) -> Table:
    def loosened(part):
        part = part.astype(object)
        part[2, 0] = None
        return part

    return table._replace(x=loosened(table.x), counts=loosened(table.counts),
                          codes=loosened(table.codes))


def _integers(table: Table) -> Table:
    return Table(np.round(10 * table.x).astype(np.int32), table.classes.astype(np.int8),
                 np.round(10 * table.y).astype(np.int64), table.counts.astype(np.uint16),
                 table.codes.astype(np.int8))


WHERE: dict[str, Callable[[Table], Table]] = {
    "as they are": lambda t: t, "times a million": _unit(1e6), "times a millionth": _unit(1e-6),
    "about a million": _unit(1.0, 1e6), "seconds since 1970": _unit(3600.0, 1.7e9),
    "collinear": _x(lambda t: np.column_stack([t.x[:, :2], t.x[:, 0] + t.x[:, 1]])),
    "a constant column": _constant, "one row": _first(1), "nothing seen": _unseen,
    "holes, about a million": _holes,
    "clusters far apart": _x(lambda t: t.x + 1e6 * t.classes[:, None]),
    "counts of a million": _large, "ten categories": _ten,
    # what a statistician who distrusts tries
    "two rows": _first(2), "a column unseen": _without,
    "rows twice": lambda t: each(t, lambda part: np.concatenate([part, part])),
    "one row many times": lambda t: each(t, lambda part: np.repeat(part[:1], 20, 0)),
    "columns in units of their own": _x(lambda t: t.x * [1e6, 1.0, 1e-6]),
    "nearly collinear": _x(lambda t: np.column_stack([t.x[:, :2], t.x[:, 0] * (1 + 1e-6)])),
    "small about one": _unit(1e-5, 1.0), "an outlier": _outlier, "asked of what is new": _new,
    "infinite cells": _infinite, "objects with None": _objects, "integers": _integers,
    "booleans": lambda t: t._replace(x=t.x > 0, counts=t.counts > 3, codes=t.codes > 0),
    "of float32": lambda t: each(t, lambda part: part.astype(np.float32)),
    "dates": _x(lambda t: (t.x * 86400e6).astype("M8[us]")),
    "one class": lambda t: t._replace(classes=np.zeros_like(t.classes)),
    "a class of one row": lambda t: t._replace(classes=(np.arange(len(t.x)) == 7).astype(int)),
    "counts of nothing": lambda t: t._replace(counts=np.zeros_like(t.counts)),
}  # fmt: skip
