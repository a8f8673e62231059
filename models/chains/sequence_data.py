"""What estimators of sequences read: numbers or symbols, and states where they are known, as the
data of the model."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jax.typing import ArrayLike

from probml import DataError
from probml.errors import listed
from probml.estimators.estimator import Estimator, n_parameters
from probml.estimators.validation import check_feature_names, check_is_fitted
from probml.models.chains.sequences import Steps, is_list, read, together
from probml.typing import DataLike

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
        return steps

    def _check_values(self, values: np.ndarray, sizes: np.ndarray, reset: bool) -> None:
        """Refuse cells that the estimator does not take, saying where they are."""
        d = values.shape[1]
        if reset:
            self.n_features_in_ = d
            self._refuse_missing(np.isnan(values).all(0))
        elif d != self.n_features_in_:
            raise DataError(f"X has {d} features, but {type(self).__name__} is expecting "
                            f"{self.n_features_in_} features as input")
        self._refuse(values, sizes, np.isinf(values), "a finite number")

    @staticmethod
    def _refuse(values: np.ndarray, sizes: np.ndarray, bad: np.ndarray, expected: str) -> None:
        if bad.any():
            step, column = map(int, np.unravel_index(np.argmax(bad), bad.shape))
            i = int(np.searchsorted(np.cumsum(sizes), step, side="right"))
            step, shown = step - int(sizes[:i].sum()), values[step, column]
            where = f"sequence {i}, step {step}, column {column}"
            raise DataError(f"X has {shown:g} in {where}: expected {expected}. A missing cell is "
                            f"NaN")

    def _padded(self, steps: Steps) -> dict[str, ArrayLike]:
        """The sequences as the model's data: an array where they are equally long, else a list."""
        return {"y": together(steps.parts(steps.values))}

    @staticmethod
    def _second(X, y, lengths) -> tuple[DataLike, ArrayLike]:
        """(y, lengths) of fit(X, y, lengths=...) and of hmmlearn's fit(X, lengths): as y, integers
        that are fewer than the steps and add up to them are lengths."""
        if y is None or lengths is not None or is_list(X):
            return y, lengths
        found, steps = np.asarray(y), len(X)
        meant = (found.ndim == 1 and found.dtype.kind in "iu" and len(found) < steps
                 and found.sum() == steps)
        return (None, y) if meant else (y, None)

    @staticmethod
    def _filled(steps: Steps, means: np.ndarray) -> list[np.ndarray]:
        """Each sequence, its unseen cells at their means, (sequences, longest, d)."""
        return [np.where(np.isnan(own), mean[: len(own)].reshape(own.shape), own)
                for own, mean in zip(steps.parts(steps.values), means, strict=True)]

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
        found = np.searchsorted(self.symbols_, steps.values).astype(float)
        return steps._replace(values=np.where(np.isnan(steps.values), np.nan, found))

    def _symbols_of(self, columns: np.ndarray) -> np.ndarray:
        """The user's symbols of columns of the emissions' table; other emissions as they are."""
        return self.symbols_[columns] if self.emission == "categorical" else columns

    def _check_values(self, values: np.ndarray, sizes: np.ndarray, reset: bool) -> None:
        super()._check_values(values, sizes, reset)
        d = values.shape[1]

        def refuse(bad: np.ndarray, expected: str) -> None:
            self._refuse(values, sizes, bad, expected)

        whole_ = np.isnan(values) | (values == np.floor(values)) & (values >= 0)
        if self.emission == "categorical":
            if d != 1:
                raise DataError(f"X has {d} columns: expected one column of symbols 0, 1, …, for "
                                f"emission='categorical'")
            refuse(~whole_, "a symbol, an integer >= 0")
            if reset:
                most = int(np.nanmax(values)) + 1 if self.n_symbols is None else int(self.n_symbols)
                codes = self.n_symbols is None and most > max(SYMBOLS, 2 * len(values))
                self.symbols_ = (np.unique(values[~np.isnan(values)]).astype(int) if codes
                                 else np.arange(most))
                self.n_symbols_ = len(self.symbols_)
            expected = (f"a symbol in 0 … {self.n_symbols_ - 1}, the alphabet of the fit; set "
                        f"n_symbols= before the fit for a larger one"
                        if self.symbols_[-1] < self.n_symbols_ else
                        f"one of the {self.n_symbols_} symbols of the fit, "
                        f"{listed(self.symbols_.tolist())}")
            refuse(~(np.isnan(values) | np.isin(values, self.symbols_)), expected)
        elif self.emission == "poisson":
            refuse(~whole_, "a count, an integer >= 0")
        elif self.emission == "bernoulli":
            refuse(~(np.isnan(values) | (values == 0) | (values == 1)), "0 or 1")

    def _padded(self, steps: Steps) -> dict[str, ArrayLike]:
        """The sequences as the model's data: an array where they are equally long, else a list."""
        values = steps.values[:, 0] if self.emission == "categorical" else steps.values
        if (self.emission in ("categorical", "poisson", "bernoulli")) and not np.isnan(
            values
        ).any():
            values = values.astype(int)
        return {"y": together(steps.parts(values))}

    def _hidden(self, path, steps: Steps):
        """Paths (n, longest) as data: padding is unseen."""
        return together(
            [np.asarray(row)[:length] for row, length in zip(path, steps.lengths, strict=True)]
        )

    def _states(self, y, steps: Steps):
        """Known states as data."""
        parts = list(y) if steps.listed and isinstance(y, Sequence | np.ndarray) else [y]
        try:
            known = [np.asarray(part, float) for part in parts]
        except (TypeError, ValueError):
            raise DataError(f"y: expected states 0 … {self._numbers_of_states()[0] - 1}, and NaN "
                            f"where the state is unknown, got values that are not "
                            f"numbers") from None
        found = [part.shape for part in known]
        if found != ([(length,) for length in steps.lengths]
                     if steps.listed else [(len(steps.values),)]):
            raise DataError(
                f"y has the shape {found if steps.listed else found[0]}: expected one state for "
                f"each of the {len(steps.values)} steps of X, NaN where the state is unknown; pass "
                f"the lengths of sequences by name, fit(X, lengths=...)"
            )
        values = np.concatenate(known)
        wrong = ~np.isnan(values) & (
            (values < 0) | (values >= self._numbers_of_states()[0]) | (values != np.floor(values))
        )
        if wrong.any():
            raise DataError(
                f"y has {values[np.argmax(wrong)]:g} at step {int(np.argmax(wrong))}: expected a "
                f"state in 0 … {self._numbers_of_states()[0] - 1}, or NaN"
            )
        return together(steps.parts(values))
