"""Saving estimators: one file with the parameters and the fit, as arrays and JSON, no pickle."""

import inspect
import io
import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from probml.errors import ModelError
from probml.fits.saving import ROOT, encoded, file_contents, packed, unpacked, write
from probml.interface.fit import Fit
from probml.interface.loading import read_file, restore
from probml.interface.showing.subject import (
    Subject,
    columns_of,
    describe_argument,
    name_of,
    words_of_name,
)
from probml.numerics.process.libraries import LateModule
from probml.typing import Json, SiteValues

if TYPE_CHECKING:
    from probml.interface.showing import page
else:
    page = LateModule("probml.interface.showing.page")

ROWS = ("_first", "_fitted_rows")  # attributes that hold rows, which are not stored or pickled


class Portable:
    """Saving, loading and reporting of estimators."""

    fit_: Fit
    summary: Callable[..., Any]
    _categories: Callable[[], Any]
    _asked: Callable[..., Any]
    _target: ClassVar[str]

    def save(self, path: str | os.PathLike) -> None:
        """Write one file (arrays and JSON, no pickle), atomically; `probml.load(path)` reads it.

        Raises:
            ModelError: the estimator is not fitted, is no class of the model library, or holds what
                a file cannot, such as an optimiser made of functions.
        """
        kind = type(self)
        if not hasattr(self, "fit_"):
            raise ModelError(f"save: this {kind.__name__} {_why_not_fitted(self)}")
        if not kind.__module__.startswith(ROOT):
            raise ModelError(f"save: {kind.__qualname__} is your own class, which probml.load "
                             f"cannot import. Save its attribute fit_, or use pickle")
        arrays: dict[str, np.ndarray] = {}
        state = {name: packed(value, arrays, f"'{name}'", FITS)
                 for name, value in vars(self).items() if name not in ROWS}
        arrays["meta"] = encoded({"format": 1, "face": [kind.__module__, kind.__qualname__],
                                  "state": state})
        write(path, arrays)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "fit_" and isinstance(value, Fit):
            vars(value)["_estimator"] = weakref.ref(self)  # whose report is that of its fit

    def report(self, path: str | os.PathLike, X: object = None, y: object = None,
               name: str | None = None) -> Path:
        """Write one HTML file about the model and the table: see Fit.report.

        Args:
            X, y: the rows, by default those that were fitted, if the estimator retains them: one
                from a file or a pickle does not. Without y the target is reported as missing.
            name: of the table, for the title; by default `X.attrs["name"]`, if there is one.

        Raises:
            ModelError: the estimator is not fitted, or holds no Fit. DataError: bad rows, by name.
        """
        return page.write(self._subject(X, y, name), path)

    def _subject(self, X: object = None, y: object = None, name: str | None = None) -> Subject:
        """The subject of a report of this estimator."""
        if not hasattr(self, "fit_"):
            raise ModelError(f"report: this {type(self).__name__} {_why_not_fitted(self)}")
        rows = getattr(self, "_fitted_rows", {}) if X is None else {"X": X, "y": y}
        data = self._data_of_fit(**rows) if rows else None
        return Subject(self.fit_, self._title or words_of_name(type(self).__name__), self,
                       self.summary, (rows["X"], rows.get("y")) if rows else (),
                       data, None if data is None else self.fit_._read(data), columns_of(rows),
                       name_of(name, *rows.values()), self._row, self._named_sites(rows),
                       self._categories(), getattr(self, "table_", None))

    def _named_sites(self, rows: SiteValues) -> dict[str, tuple]:
        """Site → the names of its columns in the user's table."""
        names, sites = dict(self.fit_.columns), self.fit_.structure.sites
        target = getattr(self, "_target", "y")
        for site, argument in ((target, "y"), ("y", "y"), ("y", "X"), ("x", "X")):
            if site in sites and site not in names and rows.get(argument) is not None:
                names[site] = tuple(col.name for col in describe_argument(argument, rows[argument]))
        return names

    _title: ClassVar[str] = ""  # of its reports; by default the words of its class name
    _row: ClassVar[str] = "row"  # the word for a row of X
    _kind: ClassVar[str] = ""  # of model, which selects pictures; by default from its structure

    def _data_of_fit(self, X: object, y: object = None, **others: object) -> Any:
        """Rows, and targets where they are given, as the data of `fit_`; None where these depend on
        other arguments."""
        arguments = {name: value for name, value in others.items()
                     if value is not None and name != "sample_weight"}
        reader = self.as_data if hasattr(self, "as_data") else self._asked
        if not arguments.keys() <= inspect.signature(reader).parameters.keys():
            return None
        if hasattr(self, "as_data"):
            data = self.as_data(X, **arguments) if y is None else self.as_data(X, y, **arguments)
        else:
            data = self._asked(X, **arguments)
            # of sequences their steps come first
            data = data[-1] if isinstance(data, tuple) else data
            data = data if y is None else {**data, self._target: y}
        return {**self.fit_.given, **data}  # with given values of sites outside rows

    @classmethod
    def _restored(cls, meta: Json, arrays: Mapping[str, np.ndarray]) -> Self:
        """The estimator that `save` wrote.

        Raises:
            TypeError: `fit_` is no Fit, or the number of column names is wrong.
        """
        estimator = cls()
        for name, value in meta["state"].items():
            setattr(estimator, name, unpacked(value, arrays, FITS))
        if not isinstance(getattr(estimator, "fit_", None), Fit):
            raise TypeError(f"its attribute fit_ is {getattr(estimator, 'fit_', None)!r:.60}, "
                            "expected a Fit")
        count, names = (getattr(estimator, name, None) for name in ("n_features_in_",
                                                                    "feature_names_in_"))
        if not isinstance(count, int | None) or names is not None and (
                np.shape(names) != (count,) or not all(isinstance(name, str) for name in names)):
            raise TypeError(f"it has n_features_in_={count!r:.60}, but the column names "
                            f"{names!r:.60}")
        return estimator


def _why_not_fitted(estimator: object) -> str:
    """Why an estimator has no Fit, and what to do."""
    if any(name.endswith("_") and not name.startswith("_") for name in vars(estimator)):
        return ("was fitted without a model of probml, so it has no Fit that could be saved. To "
                "store the estimator, use pickle or joblib")
    return "is not fitted yet. Call fit first"


def _bytes(fit: Fit, arrays: dict[str, np.ndarray]) -> str:
    """A fit as the bytes of its file, in an array of the estimator's file."""
    if not fit.model.generative.__module__.startswith(ROOT):
        raise ModelError(f"save: the model '{fit.model.name}' is your own function, which "
                         f"probml.load cannot import. Use pickle or joblib")
    buffer, name = io.BytesIO(), f"fit/{len(arrays)}"
    np.savez(buffer, **file_contents(fit))  # type: ignore[arg-type]
    arrays[name] = np.frombuffer(buffer.getvalue(), np.uint8)
    return name


def _fit(name: str, arrays: Mapping[str, np.ndarray]) -> Fit:
    return restore(name, *read_file(io.BytesIO(arrays[name].tobytes()), name))


FITS = {"fit": (Fit, _bytes, _fit)}
