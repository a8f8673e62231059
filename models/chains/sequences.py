"""Sequences as the estimators take them: one array of all steps with lengths, or a list of arrays,
of numbers or symbols, with states where they are known. Answers have the form of what was given.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from probml import DataError, ReliabilityWarning
from probml.dataset.labels import Labels, labels_of, left_out, tables_of
from probml.errors import counted, listed
from probml.estimators.estimator import Estimator, n_parameters
from probml.estimators.validation import check_feature_names, check_is_fitted
from probml.language.given import floats
from probml.numerics.process.libraries import pd
from probml.typing import DataLike


class Steps(NamedTuple):
    """Sequences.

    Attributes:
        values: all steps behind one another, (n_steps, d).
        lengths: the steps of each.
        listed: they came as a list. is_single: they came as one array without lengths.
        tables: of each part of the list, or of the one array, what holds its numbers.
        labels: of each of these the labels of its rows; None of an array.
    """

    values: np.ndarray
    lengths: np.ndarray
    listed: bool
    is_single: bool
    tables: "tuple[pd.DataFrame, ...]"
    labels: tuple[Labels | None, ...]

    def parts(self, values) -> list[np.ndarray]:
        """Steps behind one another as one array a sequence."""
        return np.split(np.asarray(values), np.cumsum(self.lengths)[:-1])

    def back(self, padded) -> DataLike:
        """(n, longest, ...) as it was asked: a list of arrays, or one array of all steps."""
        parts = [np.asarray(row)[:length] for row, length in zip(padded, self.lengths, strict=True)]
        return parts if self.listed else np.concatenate(parts)

    def labelled(self, padded, names: Sequence | None = None, framed: bool = False) -> DataLike:
        """As `back`, with the labels of the rows, where these came as tables.

        Args:
            names: of the columns of the answer; of an answer of one axis its name.
            framed: answers about arrays are tables, too.
        """
        answers = self.back(padded)
        return self._split_tables(answers if self.listed else [answers], names, framed, False)

    def ahead(self, answers: Iterable, names: Sequence | None = None,
              framed: bool = False) -> DataLike:
        """Answers about the steps that follow each sequence, (steps, ...) each, with the labels
        that follow those of the rows; of one array with lengths they are one array."""
        parts = [np.asarray(part) for part in answers]
        if not (self.listed or self.is_single):
            return np.stack(parts)
        return self._split_tables(parts, names, framed, True)

    def _split_tables(self, parts: list, names: Sequence | None, framed: bool,
                      ahead: bool) -> DataLike:
        tables = tables_of(self.labels, parts, names, ahead, framed)
        return tables if self.listed else tables[0]


def read(X, lengths) -> Steps:
    """Sequences in any of the forms a user gives them.

    Args:
        X: (n_steps, d) or (n_steps,), all steps; or a list of such arrays, or an array (n, steps,
            d): a sequence each.
        lengths: the steps of each sequence in one array; None is one sequence.

    Raises:
        DataError: nothing, text, other columns, an empty sequence, lengths that do not add up.
    """
    listed = is_list(X)
    if listed:
        if lengths is not None:
            raise DataError("X is a list of sequences, whose lengths are known, but lengths= is "
                            "given, too. Omit lengths=")
        tables, labels = zip(*map(labels_of, X), strict=True) if len(X) else ((), ())
        parts = [_table(part, f"sequence {i} of X") for i, part in enumerate(tables)]
        widths, sizes = (np.array([part.shape[1] for part in parts]),
                         np.array([len(part) for part in parts], int))
    else:
        tables, labels = zip(labels_of(X), strict=True)
        values = _table(tables[0], "X")
        sizes = np.array([len(values)]) if lengths is None else _lengths(lengths, len(values))
        parts, widths = [values], np.array([values.shape[1]])
    if not sizes.any():
        raise DataError("X is empty: expected at least one sequence of at least one step. Check "
                        "how the data were read or filtered")
    if not sizes.all():
        raise DataError(f"sequence {int(np.argmin(sizes))} of X is empty (0 steps). Drop this "
                        f"sequence")
    if (differs := widths != widths[0]).any():
        i = int(np.argmax(differs))
        raise DataError(f"sequence {i} of X has {counted(widths[i], 'column')}, but sequence 0 has "
                        f"{widths[0]}. Give all sequences the same columns")
    return Steps(np.concatenate(parts), sizes, listed, not listed and lengths is None, tables,
                 labels)


def is_list(X) -> bool:
    """Whether X is a list of sequences: of arrays, tables or lists of rows, and not one list of
    rows or numbers."""
    if isinstance(X, np.ndarray):
        return X.ndim == 3 or X.ndim == 1 and X.dtype == object and any(np.ndim(part) for part in X)
    if not isinstance(X, list | tuple):
        return False
    if not X or any(hasattr(part, "shape") and len(part.shape) for part in X):
        return True
    return any(isinstance(part, list | tuple) and any(isinstance(row, list | tuple) for row in part)
               for part in X)


def _table(X, where: str) -> np.ndarray:
    """Steps as floats (steps, d)."""
    values = floats(X, where, "Pass an array of shape (n_steps, d) or (n_steps,), or a list of "
                    "such arrays. Convert text symbols to codes first, codes, names = "
                    "pandas.factorize(symbols)")
    if values.ndim == 1:
        return values[:, None]
    if values.ndim != 2 or not values.shape[1]:
        raise DataError(
            f"{where} has the shape {values.shape}, expected (n_steps, d) or (n_steps,). Pass "
            "several sequences as a list of such arrays" if values.ndim else
            f"{where} is one number, expected the series, (n_steps, d) or (n_steps,). Pass it "
            "first, as in forecast(X, steps)"
        )
    return values


def _warn_of_gaps(labels: Iterable[Labels | None]) -> None:
    """Warn where dates of sequences leave out steps, which would be none at all."""
    for label in labels:
        count, last_date = (0, None) if label is None else left_out(label.index)
        if count:
            warnings.warn(f"the dates of X leave out {counted(count, 'time step')}, the first "
                          f"after {last_date}. The rows before and after a gap are treated as "
                          "adjacent. Add rows of NaN for the missing dates, such as by "
                          "X.asfreq('D') if the data are daily", ReliabilityWarning, stacklevel=5)


def _lengths(lengths, steps: int) -> np.ndarray:
    try:
        sizes = np.asarray(lengths)
        valid = sizes.ndim == 1 and sizes.size > 0 and sizes.dtype.kind in "iuf" and bool(
            (sizes == np.floor(sizes)).all()
        )
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise DataError(f"lengths={lengths!r}: expected the number of steps of each sequence in X, "
                        "a list of integers such as [100, 80]")
    sizes = sizes.astype(int)
    if (sizes < 0).any():
        i = int(np.argmax(sizes < 0))
        raise DataError(f"lengths[{i}] is {sizes[i]}, expected the number of steps of sequence "
                        f"{i}, an integer of at least 1")
    if sizes.sum() != steps:
        raise DataError(f"lengths= adds up to {sizes.sum()}, but X has {counted(steps, 'step')}. "
                        "Give the number of steps of every sequence of X")
    return sizes


def stacked(parts: list[np.ndarray]):
    """(n, steps, ...) where all are equally long, else the list."""
    return np.stack(parts) if len({len(part) for part in parts}) == 1 else parts


SYMBOLS = 1000  # up to which numbers of symbols make an alphabet, seen or not


class OfSequences(Estimator):
    """An estimator of sequences: X, lengths and y as data, checked."""

    lists: ClassVar[bool] = True
    _row: ClassVar[str] = "time step"

    def _asked(self, X, lengths=None):
        check_is_fitted(self, "fit_")
        steps = self._steps(X, lengths, reset=False)
        return steps, self._padded(steps)

    def _steps(self, X, lengths, reset: bool) -> Steps:
        """X as floats, in sequences, checked against the emission; `reset`: columns, their names
        and symbols are learnt from it."""
        steps = read(X, lengths)
        for i, part in enumerate(steps.tables):
            check_feature_names(self, part, reset=reset and i == 0)
        self._check_values(steps.values, steps.lengths, reset)
        if reset:
            _warn_of_gaps(steps.labels)
        return steps

    def _check_values(self, values: np.ndarray, sizes: np.ndarray, reset: bool) -> None:
        """Refuse cells that the estimator does not take, saying where they are."""
        d = values.shape[1]
        if reset:
            self.n_features_in_ = d
            self._refuse_missing(np.isnan(values).all(0))
        elif d != self.n_features_in_:
            raise DataError(f"X has {d} features, but {type(self).__name__} is expecting "
                            f"{self.n_features_in_} features as input. Pass the columns that were "
                            "fitted")
        self._refuse(values, sizes, np.isinf(values), "a finite number")

    @staticmethod
    def _refuse(values: np.ndarray, sizes: np.ndarray, bad: np.ndarray, expected: str) -> None:
        if bad.any():
            step, column = map(int, np.unravel_index(np.argmax(bad), bad.shape))
            i = int(np.searchsorted(np.cumsum(sizes), step, side="right"))
            step, value = step - int(sizes[:i].sum()), values[step, column]
            where = f"sequence {i}, step {step}, column {column}"
            raise DataError(f"X is {value:g} in {where}, expected {expected}. Correct the value, "
                            f"or set it to NaN if it is missing")

    def _padded(self, steps: Steps) -> dict[str, ArrayLike]:
        """The sequences as the model's data: an array where they are equally long, else a list."""
        return {"y": stacked(steps.parts(steps.values))}

    @staticmethod
    def _second(X, y, lengths) -> tuple[DataLike, ArrayLike]:
        """(y, lengths) of fit(X, y, lengths=...) and of hmmlearn's fit(X, lengths): as y, integers
        that are fewer than the steps and add up to them are lengths."""
        if y is None or lengths is not None or is_list(X):
            return y, lengths
        array, steps = np.asarray(y), len(X)
        is_lengths = (array.ndim == 1 and array.dtype.kind in "iu" and len(array) < steps
                      and array.sum() == steps)
        return (None, y) if is_lengths else (y, None)

    @staticmethod
    def _filled(steps: Steps, means: np.ndarray) -> list[np.ndarray]:
        """Each sequence, its unseen cells at their means, (sequences, longest, d)."""
        return [np.where(np.isnan(part), mean[: len(part)].reshape(part.shape), part)
                for part, mean in zip(steps.parts(steps.values), means, strict=True)]

    @property
    def n_parameters_(self) -> int:
        """Numbers that are learnt, each as free as its support lets it."""
        check_is_fitted(self, "fit_")
        return n_parameters(self.fit_)


class OfEmissions(OfSequences):
    """Sequences that hidden states emit: of numbers, symbols or counts.

    Symbols are the numbers 0 … n − 1. Whole numbers that are far larger than the sequences are
    long, such as product numbers of eight digits, are codes: the alphabet is then those that are
    seen, in their order, `symbols_`, and not a table with a column for each number below them.
    """

    def _steps(self, X, lengths, reset: bool) -> Steps:
        """As there; symbols as columns of the emissions' table."""
        steps = super()._steps(X, lengths, reset)
        if self.emission != "categorical":
            return steps
        codes = np.searchsorted(self.symbols_, steps.values).astype(float)
        return steps._replace(values=np.where(np.isnan(steps.values), np.nan, codes))

    def _symbols_of(self, columns: np.ndarray) -> np.ndarray:
        """The user's symbols of columns of the emissions' table; other emissions as they are."""
        return self.symbols_[columns] if self.emission == "categorical" else columns

    def _check_values(self, values: np.ndarray, sizes: np.ndarray, reset: bool) -> None:
        super()._check_values(values, sizes, reset)
        d = values.shape[1]

        def refuse(bad: np.ndarray, expected: str) -> None:
            self._refuse(values, sizes, bad, expected)

        is_count = np.isnan(values) | (values == np.floor(values)) & (values >= 0)
        if self.emission == "categorical":
            if d != 1:
                raise DataError(f"X has {counted(d, 'column')}, but emission='categorical' needs "
                                "one column of symbols 0, 1, …. Combine the columns into one, or "
                                "use another emission")
            refuse(~is_count, "a symbol, an integer of at least 0")
            if reset:
                size = int(np.nanmax(values)) + 1 if self.n_symbols is None else int(self.n_symbols)
                is_coded = self.n_symbols is None and size > max(SYMBOLS, 2 * len(values))
                self.symbols_ = (np.unique(values[~np.isnan(values)]).astype(int) if is_coded
                                 else np.arange(size))
                self.n_symbols_ = len(self.symbols_)
            expected = (f"a symbol from 0 to {self.n_symbols_ - 1}, the symbols of the fit; for "
                        "more symbols set n_symbols= before the fit"
                        if self.symbols_[-1] < self.n_symbols_ else
                        f"one of the {self.n_symbols_} symbols of the fit, "
                        f"{listed(self.symbols_.tolist())}")
            refuse(~(np.isnan(values) | np.isin(values, self.symbols_)), expected)
        elif self.emission == "poisson":
            refuse(~is_count, "a count, an integer of at least 0")
        elif self.emission == "bernoulli":
            refuse(~(np.isnan(values) | (values == 0) | (values == 1)), "0 or 1")

    def _padded(self, steps: Steps) -> dict[str, ArrayLike]:
        """The sequences as the model's data: an array where they are equally long, else a list."""
        values = steps.values[:, 0] if self.emission == "categorical" else steps.values
        if (self.emission in ("categorical", "poisson", "bernoulli")) and not np.isnan(
            values
        ).any():
            values = values.astype(int)
        return {"y": stacked(steps.parts(values))}

    def _hidden(self, path, steps: Steps):
        """Paths (n, longest) as data: padding is unseen."""
        return stacked(
            [np.asarray(row)[:length] for row, length in zip(path, steps.lengths, strict=True)]
        )

    def _states(self, y, steps: Steps):
        """Known states as data."""
        parts = list(y) if steps.listed and isinstance(y, Sequence | np.ndarray) else [y]
        known = [floats(part, "y", f"Give states from 0 to {self._numbers_of_states()[0] - 1}, and "
                        "NaN where the state is unknown") for part in parts]
        shapes = [part.shape for part in known]
        if shapes != (wanted := [(length,) for length in steps.lengths.tolist()]
                      if steps.listed else [(len(steps.values),)]):
            raise DataError(
                f"y has the shape {shapes if steps.listed else shapes[0]}, expected "
                f"{wanted if steps.listed else wanted[0]}, a state for each time step of X, or NaN "
                f"where it is unknown. If y contains the lengths of sequences, pass them by name, "
                f"fit(X, lengths=y)"
            )
        values = np.concatenate(known)
        bad = ~np.isnan(values) & (
            (values < 0) | (values >= self._numbers_of_states()[0]) | (values != np.floor(values))
        )
        if bad.any():
            raise DataError(
                f"y is {values[np.argmax(bad)]:g} at step {int(np.argmax(bad))}, expected a "
                f"state from 0 to {self._numbers_of_states()[0] - 1}, or NaN where it is unknown"
            )
        return stacked(steps.parts(values))
