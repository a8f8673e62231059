"""A table's columns as the features of naive_bayes: which kind each is, its categories, and groups
that travel as one vector.

Columns of one kind (and one number of states) are one vector site, so that thirty columns are
traced and compiled as one.
"""

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike

from probml import DataError, ModelError
from probml.dataset.arrays import NUMBERS
from probml.dataset.frames import shortest
from probml.errors import counted, listed, meant
from probml.models.frames.cells import codes_of, column_of, numbers_of
from probml.numerics.process.libraries import pd

COUNT = (lambda a: (a >= 0) & (a == np.floor(a)), "an integer of at least 0")
# kind of a numeric column -> whether a value may be, in words; None where every number may
KINDS = {
    "normal": None,
    "bernoulli": (lambda a: (a == 0) | (a == 1), "0 or 1"),
    "poisson": COUNT,
    "geometric": COUNT,
    "multinomial": COUNT,
    "exponential": (lambda a: a >= 0, "a number of at least 0"),
}


@dataclass(frozen=True)
class Columns:
    """What was learnt of the columns of X, one entry each.

    `names` are the columns' names, or their indices; `labels` are the categories of a categorical
    column, in code order;
    `spare`: one further state for a category unseen in training; `guessed`: nobody said the kind,
        `probml.models.kinds` did.
    """

    names: tuple[Hashable, ...]
    kinds: tuple[str, ...]
    labels: tuple[tuple | None, ...]
    spare: bool
    guessed: tuple[bool, ...] = ()

    def __str__(self) -> str:
        """A line a column: its name, its kind, its categories, and whether the kind was guessed."""
        lines = []
        for j, (name, kind, labels) in enumerate(zip(self.names, self.kinds, self.labels,
                                                     strict=True)):
            words = ("" if labels is None
                     else f" ({', '.join(map(str, labels[:6]))}{', …' if len(labels) > 6 else ''})")
            lines.append(f"{name}: {kind}{words}{', guessed' if self._guessed(j) else ''}")
        return "\n".join(lines)

    def _guessed(self, j: int) -> bool:
        return bool(self.guessed) and self.guessed[j]

    def _number(self, j: int) -> bool:
        """Whether numbers were taken for categories."""
        labels = self.labels[j]
        return bool(labels and self._guessed(j) and not isinstance(labels[0], str | bool))

    @property
    def status(self) -> str:
        """The numbers that were taken for categories, in words; empty where there are none."""
        names = [self.names[j] for j in range(len(self.names)) if self._number(j)]
        return ("columns of integers with few distinct values are treated as categories: "
                f"{listed(names)} (use kinds={{...}} to change this)" if names else "")

    @property
    def groups(self) -> dict[str, tuple[tuple, list[int]]]:
        """Site → (kind as naive_bayes takes it, its columns)."""
        by_site: dict[str, list[int]] = {}
        for j, kind in enumerate(self.kinds):
            by_site.setdefault(f"{kind}_{self.states(j)}" if kind == "categorical" else kind,
                               []).append(j)
        return {
            name: (("categorical", len(js), self.states(js[0])) if self.labels[js[0]] is not None
                   else (name, len(js)), js)
            for name, js in by_site.items()
        }

    @property
    def features(self) -> dict[str, tuple]:
        """The setting of naive_bayes."""
        return {name: kind for name, (kind, _) in self.groups.items()}

    @property
    def cells(self) -> dict[str, tuple[str, ...]]:
        """Site → the names of its columns."""
        return {name: tuple(str(self.names[j]) for j in js)
                for name, (_, js) in self.groups.items()}

    @property
    def categories(self) -> dict[str, list[tuple]]:
        """Site → the categories of each of its columns."""
        return {name: [self.labels[j] or () for j in js] for name, (kind, js) in self.groups.items()
                if kind[0] == "categorical"}

    def describe_column(self, j: int) -> str:
        """A column as a message names it."""
        return f"column {self.names[j]!r}"

    def states(self, j: int) -> int:
        return len(self.labels[j] or ()) + self.spare

    def data(self, X) -> dict[str, np.ndarray]:
        """Site → (n, columns): numbers with NaN, or codes with NaN where a cell is unseen.

        Raises:
            DataError: a value that the kind of its column does not take, or a category unseen in
                training.
        """
        arrays = {}
        for name, (kind, js) in self.groups.items():
            if kind[0] == "categorical":
                codes = np.stack([self._codes(X, j) for j in js], 1)
                arrays[name] = np.where(codes < 0, np.nan, codes) if (codes < 0).any() else codes
                continue
            as_is = isinstance(X, np.ndarray) and X.dtype.kind == "f" and len(js) == X.shape[1]
            values = X if as_is else np.stack(
                [numbers_of(column_of(X, j), self.describe_column(j)) for j in js], 1
            )
            self._refuse(values, kind[0], js)
            arrays[name] = values
        return arrays

    def rows(self, data: Mapping[str, np.ndarray]) -> np.ndarray:
        """Sites back into columns, (n, d), categories as labels; an array of objects where some are
        text."""
        length = len(next(iter(data[name] for name in self.groups)))
        columns: list[ArrayLike] = [None] * len(self.names)
        for name, (_, js) in self.groups.items():
            for i, j in enumerate(js):
                values = np.asarray(data[name])[:, i]
                if (labels := self.labels[j]) is not None:
                    values = np.array([*labels, None] if self.spare else labels,
                                      object)[values.astype(int)]
                columns[j] = values
        has_text = (any(not isinstance(label, NUMBERS) for labels in self.labels
                        for label in labels or ()) or self.spare)
        table = np.empty((length, len(columns)), object)
        for j, values in enumerate(columns):
            table[:, j] = values
        return table if has_text else table.astype(float)

    def tables(self, params: Mapping[str, np.ndarray]) -> dict[Hashable, dict[str, np.ndarray]]:
        """Column → parameter → (k, ...), from the parameters of naive_bayes."""
        tables: dict[Hashable, dict[str, np.ndarray]] = {name: {} for name in self.names}
        for group, (_, js) in self.groups.items():
            for site, value in params.items():
                if site.rpartition("_")[0] == group:
                    for i, j in enumerate(js):
                        tables[self.names[j]][site.rpartition("_")[2]] = value[:, i]
        return tables

    def table(self, name: Hashable, params: Mapping[str, np.ndarray], rows: object):
        """What was learnt of one column, a pandas table: probabilities of its categories, or its
        parameters, side by side.

        Args:
            rows: the index, classes or components.

        Raises:
            ModelError: no such column.
        """
        if getattr(name, "ndim", 0) or name not in self.names:
            raise ModelError(f"table({name!r}): there is no such "
                             f"column{meant(str(name), map(str, self.names))}. Use one of the "
                             f"fitted columns, {listed(self.names)}")
        estimates, labels = self.tables(params)[name], self.labels[self.names.index(name)]
        if labels is None:
            values = {word: shortest(value) for word, value in estimates.items()}
            return pd.DataFrame(values, index=rows).rename_axis(columns=name)
        columns = [*labels, "(another)"] if self.spare else list(labels)
        return pd.DataFrame(shortest(estimates["probs"]), index=rows,
                            columns=pd.Index(columns, name=name))

    def _codes(self, X, j: int) -> np.ndarray:
        column, labels = column_of(X, j), self.labels[j] or ()
        codes = codes_of(column, labels)
        if (bad := codes == -2).any():
            if self.spare:
                return np.where(bad, len(labels), codes)
            i = int(np.argmax(bad))
            if self._number(j):
                warnings.warn(
                    f"{self.describe_column(j)} is {np.asarray(column, object)[i]!r} in row {i}, "
                    f"which was not in the training data. The integers of this column were "
                    f"treated as {counted(len(labels), 'category', 'categories')}, so this "
                    f"value is treated as missing. To treat the column as numbers, create the "
                    f"estimator with kinds={{{self.names[j]!r}: 'normal'}} (or 'poisson') and "
                    f"fit again",
                    UserWarning,
                    stacklevel=2,
                )
                return np.where(bad, -1, codes)
            raise DataError(
                f"{self.describe_column(j)} is {np.asarray(column, object)[i]!r} in row {i}, a "
                f"category that was not in the training data; expected one of {listed(labels)}. "
                f"Create the estimator with all categories, categories={{{self.names[j]!r}: "
                "[...]}, or with unknown='prior', which reserves a small probability for new "
                "categories"
            )
        return codes

    def _refuse(self, values: np.ndarray, kind: str, js: Sequence[int]) -> None:
        rule = KINDS[kind]
        if rule is None:
            return
        valid, words = rule
        with np.errstate(invalid="ignore"):
            bad = ~(valid(values) | np.isnan(values))
        if bad.any():
            bad = values < 0 if (values < 0).any() else bad
            i, c = map(int, np.unravel_index(np.argmax(bad), bad.shape))
            sign = "Negative values in data: " if values[i, c] < 0 else ""
            raise DataError(
                f"{sign}{self.describe_column(js[c])} is {values[i, c]:g} in row {i}, but its "
                f"distribution, {kind!r}, needs {words}. Correct the value, or use NaiveBayes or "
                f"MixedMixture with another distribution, "
                f"kinds={{{self.names[js[c]]!r}: 'normal'}}")
