"""Sequences as the estimators take them: one array of all steps with lengths, or a list of arrays;
answers go back as they came."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from probml import DataError
from probml.dataset.labels import Labels, labels_of, tables_of
from probml.typing import DataLike

if TYPE_CHECKING:
    import pandas as pd


class Steps(NamedTuple):
    """Sequences.

    Attributes:
        values: all steps behind one another, (n_steps, d).
        lengths: the steps of each.
        listed: they came as a list. alone: they came as one array without lengths.
        tables: of each part of the list, or of the one array, what holds its numbers.
        labels: of each of these the labels of its rows; None of an array.
    """

    values: np.ndarray
    lengths: np.ndarray
    listed: bool
    alone: bool
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
        """The same with the labels of the rows, where these came as tables.

        Args:
            names: of the columns of the answer; of an answer of one axis its name.
            framed: answers about arrays are tables, too.
        """
        found = self.back(padded)
        return self._split_tables(found if self.listed else [found], names, framed, False)

    def ahead(self, found: Iterable, names: Sequence | None = None,
              framed: bool = False) -> DataLike:
        """Answers about the steps that follow each sequence, (steps, ...) each, with the labels
        that follow those of the rows; of one array with lengths they are one array."""
        parts = [np.asarray(part) for part in found]
        if not (self.listed or self.alone):
            return np.stack(parts)
        return self._split_tables(parts, names, framed, True)

    def _split_tables(self, parts: list, names: Sequence | None, framed: bool,
                      ahead: bool) -> DataLike:
        told = tables_of(self.labels, parts, names, ahead, framed)
        return told if self.listed else told[0]


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
            raise DataError("lengths= is for sequences in one array, but X is a list of sequences, "
                            "whose lengths are known: omit lengths=")
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
        raise DataError("X is empty: expected at least one sequence of at least one step")
    if not sizes.all():
        raise DataError(f"sequence {int(np.argmin(sizes))} of X is empty (0 steps): drop this "
                        f"sequence")
    if (other := widths != widths[0]).any():
        i = int(np.argmax(other))
        raise DataError(f"sequence {i} of X has {widths[i]} columns, expected {widths[0]}, as "
                        f"sequence 0 has: give all sequences the same columns")
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
    try:
        values = X.to_numpy(dtype=float, na_value=np.nan) if hasattr(X, "to_numpy") else np.asarray(
            X, dtype=float
        )
    except (TypeError, ValueError):
        hint = ("" if hasattr(X, "shape") else "; pass sequences of different lengths as a list of "
                                               "arrays")
        word = X.iloc[0] if hasattr(X, "iloc") else X
        while isinstance(word, list | tuple | np.ndarray) and len(word):
            word = word[0]
        if isinstance(word, str):
            hint += (f", got {word!r}: convert text symbols to codes first, codes, names = "
                     f"pandas.factorize(symbols)")
        raise DataError(f"{where}: expected numbers, an array (n_steps, d) or "
                        f"(n_steps,){hint}") from None
    if values.ndim == 1:
        return values[:, None]
    if values.ndim != 2 or not values.shape[1]:
        raise DataError(
            f"{where} has the shape {values.shape}: expected an array (n_steps, d) or (n_steps,)"
        )
    return values


def _lengths(lengths, steps: int) -> np.ndarray:
    try:
        sizes = np.asarray(lengths)
        valid = sizes.ndim == 1 and sizes.size > 0 and sizes.dtype.kind in "iuf" and bool(
            (sizes == np.floor(sizes)).all()
        )
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise DataError(f"lengths={lengths!r}: expected a list of integers, the number of steps of "
                        f"each sequence in X")
    sizes = sizes.astype(int)
    if (sizes < 0).any():
        i = int(np.argmax(sizes < 0))
        raise DataError(f"lengths[{i}] is {sizes[i]}: expected the number of steps of sequence "
                        f"{i}, an integer of at least 1")
    if sizes.sum() != steps:
        raise DataError(f"lengths add up to {sizes.sum()}, but X has {steps} steps: give the "
                        f"number of steps of every sequence of X")
    return sizes


def together(parts: list[np.ndarray]):
    """(n, steps, ...) where all are equally long, else the list."""
    return np.stack(parts) if len({len(part) for part in parts}) == 1 else parts
