"""A table's columns as the features of naive_bayes: which kind each is, its categories, and groups
that travel as one vector.

Columns of one kind (and one number of states) are one vector site, so that thirty columns are
traced and compiled as one.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from probml import DataError, ModelError
from probml.estimators.face import Face, flat, missing
from probml.models.frames.kinds import refuse_dates, tied, usual

COUNT = (lambda a: (a >= 0) & (a == np.floor(a)), "a count, a whole number >= 0")
# kind of a numeric column -> whether a value may be, in words; None where every number may
KINDS = {
    "normal": None,
    "bernoulli": (lambda a: (a == 0) | (a == 1), "0 or 1"),
    "poisson": COUNT,
    "geometric": COUNT,
    "multinomial": COUNT,
    "exponential": (lambda a: a >= 0, ">= 0, a waiting time"),
}


@dataclass(frozen=True)
class Columns:
    """What was learnt of the columns of X, one entry each.

    `names` are the columns' names, or their indices; `labels` are the categories of a categorical
    column, in code order;
    `spare`: one further state for a category unseen in training; `guessed`: nobody said the kind,
        `probml.models.kinds` did.
    """

    names: tuple[Any, ...]
    kinds: tuple[str, ...]
    labels: tuple[tuple | None, ...]
    spare: bool
    guessed: tuple[bool, ...] = ()

    def __str__(self) -> str:
        """A line a column: its name, its kind, its categories, and whether the kind was guessed."""
        lines = []
        for j, (name, kind, labels) in enumerate(zip(self.names, self.kinds, self.labels,
                                                     strict=True)):
            among = ("" if labels is None
                     else f" ({', '.join(map(str, labels[:6]))}{', …' if len(labels) > 6 else ''})")
            lines.append(f"{name}: {kind}{among}{', guessed' if self._guessed(j) else ''}")
        return "\n".join(lines)

    def _guessed(self, j: int) -> bool:
        return bool(self.guessed) and self.guessed[j]

    def _number(self, j: int) -> bool:
        """Whether numbers were taken for categories."""
        labels = self.labels[j]
        return self._guessed(j) and bool(labels) and not isinstance(labels[0], str | bool)

    @property
    def status(self) -> str:
        """The numbers that were taken for categories, in words; empty where there are none."""
        taken = [repr(self.names[j]) for j in range(len(self.names)) if self._number(j)]
        shown = ", ".join(taken[:12]) + (", …" if len(taken) > 12 else "")
        return (f"whole numbers of few values taken as categories: {shown} (kinds={{...}} to say "
                f"otherwise)" if taken else "")

    @property
    def groups(self) -> dict[str, tuple[tuple, list[int]]]:
        """Site → (kind as naive_bayes takes it, its columns)."""
        found: dict[str, list[int]] = {}
        for j, kind in enumerate(self.kinds):
            found.setdefault(f"{kind}_{self.states(j)}" if kind == "categorical" else kind,
                             []).append(j)
        return {
            name: (("categorical", len(js), self.states(js[0])) if self.labels[js[0]] is not None
                   else (name, len(js)), js)
            for name, js in found.items()
        }

    @property
    def features(self) -> dict[str, tuple]:
        """The setting of naive_bayes."""
        return {name: kind for name, (kind, _) in self.groups.items()}

    def shown(self, j: int) -> str:
        """A column in a message."""
        return f"column {self.names[j]!r}"

    def states(self, j: int) -> int:
        return len(self.labels[j] or ()) + self.spare

    def data(self, X) -> dict[str, np.ndarray]:
        """Site → (n, columns): numbers with NaN, or codes with NaN where a cell is unseen.

        Raises:
            DataError: a value that the kind of its column does not take, or a category unseen in
                training.
        """
        out = {}
        for name, (kind, js) in self.groups.items():
            if kind[0] == "categorical":
                codes = np.stack([self._codes(X, j) for j in js], 1)
                out[name] = np.where(codes < 0, np.nan, codes) if (codes < 0).any() else codes
                continue
            whole = isinstance(X, np.ndarray) and X.dtype.kind == "f" and len(js) == X.shape[1]
            values = X if whole else np.stack([_float(_column(X, j), self.shown(j)) for j in js], 1)
            self._refuse(values, kind[0], js)
            out[name] = values
        return out

    def rows(self, data: Mapping[str, np.ndarray]) -> np.ndarray:
        """Sites back into columns, (n, d), categories as labels; an array of objects where some are
        text."""
        length = len(next(iter(data[name] for name in self.groups)))
        columns: list[Any] = [None] * len(self.names)
        for name, (_, js) in self.groups.items():
            for i, j in enumerate(js):
                values = np.asarray(data[name])[:, i]
                if self.labels[j] is not None:
                    values = np.array([*self.labels[j], None] if self.spare else self.labels[j],
                                      object)[values.astype(int)]
                columns[j] = values
        text = (any(isinstance(label, str) for labels in self.labels for label in labels or ())
                or self.spare)
        out = np.empty((length, len(columns)), object)
        for j, values in enumerate(columns):
            out[:, j] = values
        return out if text else out.astype(float)

    def tables(self, params: Mapping[str, np.ndarray]) -> dict[Any, dict[str, np.ndarray]]:
        """Column → parameter → (k, ...), from the parameters of naive_bayes."""
        out: dict[Any, dict[str, np.ndarray]] = {name: {} for name in self.names}
        for group, (_, js) in self.groups.items():
            for site, value in params.items():
                if site.rpartition("_")[0] == group:
                    for i, j in enumerate(js):
                        out[self.names[j]][site.rpartition("_")[2]] = value[:, i]
        return out

    def _codes(self, X, j: int) -> np.ndarray:
        column, labels = _column(X, j), self.labels[j]
        codes = _code(column, labels)
        if (bad := codes == -2).any():
            if self.spare:
                return np.where(bad, len(labels), codes)
            i = int(np.argmax(bad))
            if self._number(j):
                warnings.warn(
                    f"{self.shown(j)} has {np.asarray(column, object)[i]!r} in row {i}, which was "
                    f"not in training: its {len(labels)} whole "
                    "numbers were taken as categories, so such cells count as unseen. "
                    f"Say kinds={{{self.names[j]!r}: 'normal'}} (or 'poisson') before the fit to "
                    f"treat it as a number",
                    UserWarning,
                    stacklevel=2,
                )
                return np.where(bad, -1, codes)
            shown = ", ".join(map(repr, labels[:12])) + (", …" if len(labels) > 12 else "")
            raise DataError(
                f"{self.shown(j)} has the category {np.asarray(column, object)[i]!r} in row {i}, "
                f"which was not in training; "
                f"known: {shown}. Give categories={{...}} before the fit, or unknown='prior' to "
                f"give it the prior's mass"
            )
        return codes

    def _refuse(self, values: np.ndarray, kind: str, js: Sequence[int]) -> None:
        if KINDS[kind] is None:
            return
        valid, words = KINDS[kind]
        with np.errstate(invalid="ignore"):
            bad = ~(valid(values) | np.isnan(values))
        if bad.any():
            bad = values < 0 if (values < 0).any() else bad
            i, c = map(int, np.unravel_index(np.argmax(bad), bad.shape))
            sign = "Negative values in data: " if values[i, c] < 0 else ""
            raise DataError(f"{sign}{self.shown(js[c])} is of the kind {kind!r} and must be "
                            f"{words}, got {values[i, c]:g} in row {i}")


def take(face: Face, X, reset: bool, frames: tuple) -> Any:
    """X as the face's columns are read from it: floats where every column is a number, else an
    array or DataFrame as it is.

    Args:
        frames: (categorical, kinds), the settings of the face.
    """
    categorical, kinds = frames
    if hasattr(X, "iloc"):
        X = validate_data(face, X, reset=reset, skip_check_array=True)
        if 0 in X.shape:
            raise DataError(f"X is empty: it has the shape {X.shape}, at least 1 sample and 1 "
                            f"feature are needed")
    elif categorical is None and kinds != "categorical" and "categorical" not in getattr(
        kinds, "values", tuple
    )():
        return face._numbers(X, reset)
    else:  # a list of rows with text and NaN stays as it is
        X = np.array(X, dtype=object) if isinstance(X, list | tuple) else X
        X = validate_data(face, X, reset=reset, dtype=None, ensure_all_finite=False)
    if reset:
        columns = [_column(X, j) for j in range(X.shape[1])]
        face._refuse_missing(np.array(
            [missing(c.to_numpy() if hasattr(c, "to_numpy") else c).all() for c in columns]
        ))
    return X


def learn_for(face: Face, X, categorical: Any, kinds: Any) -> Columns:
    """`learn` with the other settings of a face, those it has."""
    names = getattr(face, "feature_names_in_", None)
    spare = getattr(face, "unknown", "refuse") == "prior"
    return learn(X, categorical, kinds, getattr(face, "categories", None), spare,
                 None if names is None else names.tolist())


def warn_of_ties(columns: Columns, data: Mapping[str, np.ndarray]) -> None:
    """Say which normal columns take few values only: in a mixture a component can shrink onto one
    of them."""
    if "normal" not in columns.groups:
        return
    for i, j in enumerate(columns.groups["normal"][1]):
        if tied(data["normal"][:, i]):
            say_ties(columns.shown(j), data["normal"][:, i],
                     f"Say kinds={{{columns.names[j]!r}: 'categorical'}}, or drop it")


def warn_of_tied(X, shown, advice: str) -> None:
    """The same of an array whose columns are all normal; `shown`: a column's number → its name in a
    message."""
    for j in range(X.shape[1]):
        if tied(X[:, j]):
            say_ties(shown(j), X[:, j], advice)


def say_ties(shown: str, values, advice: str) -> None:
    """A warning that a normal fitted to this column has a density that only the prior bounds."""
    distinct = len(np.unique(values[~np.isnan(values)]))
    warnings.warn(
        f"{shown} has {distinct} distinct values in {len(values)} rows and is fitted by normals: a "
        f"component that shrinks onto one value "
        f"has a density that only the prior bounds, and more components always look better. "
        f"{advice}",
        UserWarning,
        stacklevel=5,
    )


def refuse_constant(columns: Columns, data: Mapping[str, np.ndarray], label: Any = None) -> None:
    """Normal columns that have no spread, in one class or in all rows, where the likelihood is to
    be maximised.

    Raises:
        DataError: naming the column and the class.
    """
    if "normal" not in columns.groups:
        return
    values, where = data["normal"], "" if label is None else f" in class {label!r}"
    if label is not None and len(values) < 2:
        raise DataError(
            f"class {label!r} has {len(values)} row: its normal columns have variance 0 and no "
            f"maximum of the likelihood. "
            "Keep prior=True, or drop the class"
        )
    if flat(values).any():
        i = int(np.argmax(flat(values)))
        raise DataError(
            f"{columns.shown(columns.groups['normal'][1][i])} is constant{where}: a normal that is "
            f"fitted to it has variance 0 and no "
            "maximum of the likelihood. Drop it, or keep prior=True"
        )


def learn(X, categorical: Any, kinds: Any, categories: Any, spare: bool,
          names: Sequence[str] | None) -> Columns:
    """The kinds and categories of the columns of X, an array or a DataFrame.

    Args:
        categorical: None, "all", or the categorical columns by name or index.
        kinds: None, one kind for all columns, or column → kind, by name or index.
        categories: None, the categories of all categorical columns, or column → categories.
        spare: one further state for what training did not show.
        names: the columns' names, None where they have none.

    Raises:
        ModelError: a setting that names no column, or an unknown kind.
        DataError: a column that is missing in every row, a kind that its values do not suit.
    """
    width = X.shape[1]
    shown = tuple(f"column {j}" if names is None else f"column {names[j]!r}" for j in range(width))

    def position(key, setting):
        if names is not None and key in names:
            return list(names).index(key)
        if (isinstance(key, int | np.integer) and not isinstance(key, bool)
            and -width <= key < width):
            return int(key) % width
        raise ModelError(f"{setting} names {key!r}, which is not a column: expected one of "
                         f"{_columns(names, width)}")

    said: list[Any] = [kinds if isinstance(kinds, str) else None] * width
    for key, kind in (kinds or {}).items() if not isinstance(kinds, str) else ():
        said[position(key, "kinds")] = kind
    if isinstance(categorical, str) and categorical == "all":
        said = ["categorical"] * width
    elif categorical is not None:
        for key in categorical:
            said[position(key, "categorical")] = "categorical"
    guessed = tuple(kind is None for kind in said)
    found = [_usual(_column(X, j), shown[j]) if kind is None else kind
             for j, kind in enumerate(said)]
    for j, kind in enumerate(found):
        if kind != "categorical" and kind not in KINDS:
            raise ModelError(f"kinds: {shown[j]} is {kind!r}: expected 'categorical' or one of "
                             f"{', '.join(map(repr, KINDS))}")
    for j, kind in enumerate(found):
        if kind != "categorical":
            refuse_dates(_column(X, j), shown[j])
    given = {}
    if isinstance(categories, Mapping):
        given = {position(key, "categories"): tuple(value) for key, value in categories.items()}
    elif categories is not None:
        given = {j: tuple(categories) for j in range(width)}
    labels = []
    for j, kind in enumerate(found):
        labels.append((given[j] if j in given else _labels(_column(X, j), shown[j]))
                      if kind == "categorical" else None)
    return Columns(tuple(range(width) if names is None else names), tuple(found), tuple(labels),
                   spare, guessed)


def _columns(names, width) -> str:
    return f"0 … {width - 1}" if names is None else ", ".join(map(repr, names[:12])) + (
        ", …" if width > 12 else ""
    )


def _column(X, j: int):
    return X.iloc[:, j] if hasattr(X, "iloc") else X[:, j]


def _usual(column, name: str) -> str:
    """The kind of a column that nobody named."""
    # an array of objects: text in it has to be named
    if not hasattr(column, "iloc") and column.dtype.kind == "O":
        try:
            column = column.astype(float)
        except (TypeError, ValueError):
            return "normal"
    return usual(column, name)


def _float(column, name: str) -> np.ndarray:
    try:
        if hasattr(column, "to_numpy"):
            return column.to_numpy(dtype=float, na_value=np.nan)
        return np.asarray(column, float)
    except (TypeError, ValueError):
        for i, value in enumerate(column):
            if isinstance(value, str):
                raise DataError(
                    f"{name} must be numbers, got {value!r} in row {i}: name it in "
                    f"categorical=[...] if it is categorical"
                ) from None
        raise TypeError(f"{name}: float() argument must be a string or a real number") from None


def _labels(column, name: str) -> tuple:
    """The distinct values that are seen, in the order of a pandas Categorical, else sorted, numbers
    before text."""
    if hasattr(column, "cat"):
        return tuple(column.cat.categories.tolist())
    values = np.asarray(column) if not hasattr(column, "to_numpy") else column.to_numpy()
    # no sorting
    if values.dtype.kind in "iub" and len(values) and int(values.max()) - int(values.min()) < 1024:
        low = int(values.min())
        found = np.flatnonzero(np.bincount(values.astype(np.int64, copy=False) - low)) + low
        return tuple(found.astype(values.dtype).tolist())
    hidden = missing(values)
    seen = values[~hidden] if hidden.any() else values
    if values.dtype.kind == "f" and np.isinf(seen).any():
        raise DataError(f"{name} has infinity as a category")
    if values.dtype.kind != "O":
        return tuple(np.unique(seen).tolist())
    for value in seen.tolist():
        if not isinstance(value, str | bool | int | float | np.generic):
            raise TypeError(f"{name}: a category as an argument must be a string or a number, got "
                            f"{type(value).__name__}")
    return tuple(sorted(set(seen.tolist()), key=lambda v: (isinstance(v, str), v)))


def _code(column, labels: tuple) -> np.ndarray:
    """Codes into labels, −1 where unseen, −2 where the label is none of them."""
    values = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    numeric = values.dtype.kind in "iufb" and not any(isinstance(label, str) for label in labels)
    if not numeric or not labels:
        lookup, hidden = {label: code for code, label in enumerate(labels)}, missing(values)
        out = np.full(len(values), -1, np.int32)
        out[~hidden] = [lookup.get(v, -2) for v in values[~hidden].tolist()]
        return out
    table = np.asarray(labels, float)
    order = np.argsort(table)
    place = np.minimum(np.searchsorted(table, values, sorter=order), len(table) - 1)
    codes = order[place]
    out = np.where(table[codes] == values, codes, -2).astype(np.int32)
    return np.where(np.isnan(values), -1, out) if values.dtype.kind == "f" else out
