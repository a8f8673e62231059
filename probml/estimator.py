"""The scikit-learn protocol over fit and predict; no maths: parameters, validation, labels, weights, answers as arrays.

A face is a class in models/ that names a model, says how X becomes its data, and gives the learnt numbers the names
that scikit-learn users know. What it learnt is one probml Fit, `fit_`; every attribute is read from it.

Source: scikit-learn, "Developing scikit-learn estimators"; `check_estimator` is the contract.
"""

import dataclasses
import sys
import warnings
from collections.abc import Mapping
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpyro.distributions import biject_to

from probml.engines import EM, Exact
from probml.fit import Fit, grid
from probml.language import Bound, ModelError, Refusal
from probml.parameters import Rule, check, whole
from probml.tables import DataError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, DensityMixin
    from sklearn.utils import assert_all_finite, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight as check_sample_weight
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ImportError(f"the faces of probml.models stand on scikit-learn ({error}): pip install probml[sklearn]") from error

DISTINCT = 10_000  # rows up to which a mixture's components are held against the distinct rows


class Face(BaseEstimator):
    """What all faces share. A face stores its arguments unchanged, and has

    `_rules`: parameter → Rule; `_target`: the model's site of the class or component; `_take(X, reset)`: X, validated;
    `_data(X)`: site → array; `_model(k)`: the bound Model with k classes or components.
    """

    _rules: ClassVar[Mapping[str, Rule]] = {}
    _target: ClassVar[str] = "z"
    _plug_in: ClassVar[bool] = False

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # What a face says

    def _model(self, k: int) -> Bound:
        raise NotImplementedError

    def _data(self, X) -> dict[str, Any]:
        return {"x": X}

    def _take(self, X, reset: bool):
        return self._numbers(X, reset)

    def _start(self, X, labels) -> dict[str, Any]:
        """Starting values of parameters for iterative engines."""
        return {}

    def _hyper(self, data: Mapping, weights, further: bool = False) -> dict[str, Any]:
        """Values of the prior's own sites, measured on the rows; `further`: these come beside those before."""
        return {}

    def _doubt(self, X) -> list[str]:
        """What a user should know of these rows: notes for `status`; what is wrong more likely than not is a warning as well."""
        return []

    def _together(self, others) -> dict[str, Any]:
        """As `_hyper`, of the rows of this face and of others."""
        return {}

    # Reading what the user gave

    def _seed(self) -> int:
        """None is 0, so that a fit repeats; a RandomState gives its next number."""
        if self.random_state is None or isinstance(self.random_state, Integral):
            return int(self.random_state or 0)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _numbers(self, X, reset: bool) -> np.ndarray:
        """X as floats (n, d), NaN unseen; a column must be seen somewhere where it is fitted."""
        try:
            out = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
        except ValueError as error:
            if text := _first_text(X):
                raise DataError(
                    f"X must be numbers, got {text}. {type(self).__name__} takes numeric columns only: encode or drop it"
                ) from error
            raise
        if reset:
            self._refuse_missing(np.isnan(out).all(0) if np.isnan(out.sum()) else np.zeros(out.shape[1], bool))
        return out

    def _refuse_missing(self, empty: np.ndarray) -> None:
        """A column, or everything, that is missing."""
        if empty.all():
            raise DataError(f"every cell of X is missing ({len(empty)} columns): there is nothing to learn from")
        if empty.any():
            raise DataError(f"{self._column(int(np.argmax(empty)))} of X is missing in every row: drop it, or fit on rows that have it")

    def _column(self, index: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return f"column {index}" if names is None else f"column '{names[index]}'"

    def _weigh(self, X, sample_weight):
        """(weights or None, rows to keep or None); rows of weight 0 are left out, as if they were not there."""
        if sample_weight is None:
            return None, None
        weights = check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise DataError("Sample weights are all zero (sample_weight): at least one sample needs a weight above 0")
        kept = None if weights.all() else np.flatnonzero(weights)
        return weights if kept is None else weights[kept], kept

    # Fitting

    def _ladder(self, complete: bool) -> tuple:
        """The engines to try in turn; `complete`: every class is seen."""
        if self.engine is not None:
            return (self.engine,)
        settings = {"max_iter": "max_iterations", "tol": "tolerance", "n_init": "restarts"}
        given = {ours: getattr(self, theirs) for theirs, ours in settings.items() if hasattr(self, theirs)}
        given |= {name: getattr(self, name) for name in ("hard", "accelerate") if hasattr(self, name)}
        em = EM(prior=bool(self.prior), **given)
        return (Exact(), em) if self.prior and complete else (em,)

    def _infer(self, model: Bound, data: Mapping, weights, start: Mapping, complete: bool) -> Fit:
        """The Fit by the first engine that does not refuse."""
        ladder, seed = self._ladder(complete), self._seed()
        if start and {name for name, site in model.structure.nodes(data=True) if not site["rows"]} <= {*start, *data}:
            # a complete start leaves nothing to chance: restarts would repeat it
            ladder = tuple(dataclasses.replace(engine, restarts=1) if isinstance(engine, EM) else engine for engine in ladder)
        for engine in ladder:
            try:
                return model.fit(data, engine, weights=weights, seed=seed, start=start)
            except Refusal:
                if engine is ladder[-1]:
                    raise
        raise AssertionError("a ladder has an engine")

    def _keep(self, fit: Fit, rows: float) -> None:
        self.fit_, self.total_weight_ = fit, float(rows)
        self.n_iter_, self.converged_ = max(fit.iterations, 1), fit.converged
        self.lower_bounds_ = np.asarray(fit.history) / rows  # per unit of weight, as scikit-learn's
        self.lower_bound_ = float(self.lower_bounds_[-1])

    @property
    def status(self) -> str:
        """How the fit ended, and what was guessed or is in doubt."""
        check_is_fitted(self, "fit_")
        return "; ".join([str(self.fit_.status), *getattr(self, "notes_", ())])

    # Answers

    def _asked(self, X) -> dict[str, Any]:
        check_is_fitted(self, "fit_")
        return self._data(self._take(X, reset=False))

    def predict_proba(self, X):
        """p(class or component | row), shape (n, k); a row with nothing seen gets the prior."""
        data = self._asked(X)
        return self.fit_.predict_proba(data, self._target, plug_in=self._averages())

    def _averages(self) -> bool:
        return bool(getattr(self, "plug_in", self._plug_in))


def _rows(X, kept):
    """Some rows of an array or a DataFrame."""
    if kept is None:
        return X
    return X.iloc[kept] if hasattr(X, "iloc") else X[kept]


def _first_text(X) -> str | None:
    """Where X first holds text, in words."""
    array = X.to_numpy(dtype=object) if hasattr(X, "to_numpy") else np.asarray(X, dtype=object)
    if array.ndim != 2:
        return None
    for j in range(array.shape[1]):
        for i, value in enumerate(array[:, j]):
            if isinstance(value, str):
                name = repr(str(X.columns[j])) if hasattr(X, "columns") else j
                return f"{value!r} in column {name}, row {i}"
    return None


def missing(values: np.ndarray) -> np.ndarray:
    """Which cells are NaN, None or NA."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(values.shape, bool)
    if pandas := sys.modules.get("pandas"):
        return pandas.isna(values)
    return np.array([v is None or isinstance(v, float | np.floating) and v != v for v in values.ravel()], bool).reshape(values.shape)


def flat(X: np.ndarray) -> np.ndarray:
    """Which columns have no spread among their seen cells, (d,): a normal fitted to one has no maximum of the likelihood."""
    return np.fmin.reduce(X, 0) >= np.fmax.reduce(X, 0)


def regiven(fit: Fit, values: Mapping[str, np.ndarray]) -> Fit:
    """A fit whose prior's own sites have other values, to be solved again with further rows."""
    if not values:
        return fit
    given = {**fit.given, **{name: np.asarray(value, np.asarray(fit.given[name]).dtype) for name, value in values.items()}}
    kept = None if fit.kept is None else fit.kept._replace(known=fit.kept.known._replace(given=given))
    return dataclasses.replace(fit, given=given, kept=kept)


def n_parameters(fit: Fit) -> int:
    """Free parameters of a model: the unconstrained coordinates of every parameter site that is not given."""
    sites = fit.structure.sites
    shapes = [(sites[name].support, sites[name].shape) for name in fit.structure.parameters if name not in fit.given]
    return sum(int(np.prod(biject_to(support).inverse_shape(shape), dtype=int)) for support, shape in shapes)


class Classifier(ClassifierMixin, Face):
    """A face whose target is seen, in part at least: rows whose y is None or NaN are learnt from without their label."""

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and labels y (n,); unseen cells and unseen labels are NaN or None.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot be used, by name.
        """
        check(self, self._rules)
        return self._learn(X, y, sample_weight, None)

    def _learn(self, X, y, sample_weight, classes):
        X, codes, weights = self._batch(X, y, sample_weight, classes, True)
        if not self.prior:
            self._judge(X, codes)
        complete, data = codes.dtype.kind != "f", {**self._data(X), self._target: codes}
        self.notes_ = self._doubt(X)
        data |= self._hyper(data, weights)
        fit = self._solve(self._model(len(self.classes_)), data, weights, self._start(X, codes), complete)
        fit = dataclasses.replace(fit, names={**fit.names, self._target: tuple(self.classes_.tolist())})
        self._keep(fit, len(codes) if weights is None else weights.sum())
        return self

    def _solve(self, model: Bound, data: Mapping, weights, start: Mapping, complete: bool) -> Fit:
        return self._infer(model, data, weights, start, complete)

    def _batch(self, X, y, sample_weight, classes, reset: bool) -> tuple:
        """(X, codes, weights) of one batch, checked; `reset`: columns and classes are learnt from it."""
        if y is None:
            raise DataError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        weights, kept = self._weigh(X, sample_weight)
        if kept is not None:
            y = np.asarray(y)
            check_consistent_length(X, y)
            X, y = _rows(X if hasattr(X, "iloc") else np.asarray(X), kept), y[kept]
        X = self._take(X, reset)
        check_consistent_length(X, y)
        return X, self._codes(y, classes), weights

    def _codes(self, y, classes) -> np.ndarray:
        """y as codes into `classes_`, which are learnt where `classes` is None; NaN where a label is unseen."""
        y = column_or_1d(y, warn=True)
        hidden = missing(y)
        known = y[~hidden] if hidden.any() else y
        known = np.array(known.tolist()) if known.dtype.kind == "O" and len(known) else known
        if not len(known):
            raise DataError("y has no label, every one is missing: at least one row of each class needs its label")
        if known.dtype.kind == "f":
            assert_all_finite(known, input_name="y")
        check_classification_targets(known)
        self.classes_ = np.unique(known if classes is None else classes)
        codes = np.minimum(np.searchsorted(self.classes_, known), len(self.classes_) - 1)
        if classes is not None and (new := self.classes_[codes] != known).any():
            raise DataError(f"y has the class {known[new].tolist()[0]!r}, which is not one of the classes {self.classes_.tolist()}")
        if not hidden.any():
            return codes
        out = np.full(len(y), np.nan)
        out[~hidden] = codes
        return out

    def _judge(self, X, codes) -> None:
        """Refuse what has no maximum of the likelihood."""

    def predict(self, X):
        """The most probable class of every row, as a label."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def predict_log_proba(self, X):
        """log p(class | row), shape (n, k)."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


class Additive:
    """A classifier whose statistics add up where nothing is hidden but labels: chunks and parts equal one batch."""

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Learn from further rows by adding their statistics: chunks with all labels seen equal one batch.

        With prior=False every chunk needs a maximum of its own, so rows of every class.

        Args:
            classes: all classes that will come; of the first call only, by default those of its y.
        """
        check(self, self._rules)
        if not hasattr(self, "fit_"):
            return self._learn(X, y, sample_weight, classes)
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise DataError(f"partial_fit(classes={list(classes)}): the first call had the classes {self.classes_.tolist()}")
        X, codes, weights = self._batch(X, y, sample_weight, self.classes_, False)
        data = {**self._data(X), self._target: codes}
        before = regiven(self.fit_, values := self._hyper(data, weights, further=True))
        data |= values
        kept = dataclasses.replace(before, names={k: v for k, v in before.names.items() if k != self._target})  # codes, not labels
        fit = dataclasses.replace(kept.update(data, weights=weights), names=self.fit_.names)
        self._keep(fit, self.total_weight_ + (len(codes) if weights is None else weights.sum()))
        return self

    def merge(self, *others):
        """Add what other faces of the same parameters, columns and classes have learnt from other rows; returns self.

        Raises:
            DataError: a part of another class, or with other classes or columns.
        """
        check_is_fitted(self, "fit_")
        for other in others:
            check_is_fitted(other, "fit_")
            if type(other) is not type(self) or other.fit_.model != self.fit_.model or not np.array_equal(other.classes_, self.classes_):
                raise DataError(f"merge: expected {self.fit_.model!r} with the classes {self.classes_.tolist()}, got {other.fit_.model!r}")
            values = self._together([other])
            self._keep(regiven(self.fit_, values).merge(regiven(other.fit_, values)), self.total_weight_ + other.total_weight_)
        return self


class Mixture(DensityMixin, Face):
    """A face whose target is never seen: components, densities, new rows."""

    def fit(self, X, y=None, sample_weight=None):
        """Learn from rows X (n, d), unseen cells NaN or None; y is ignored, present for scikit-learn's convention.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used, by name.
        """
        check(self, self._rules)
        weights, kept = self._weigh(X, sample_weight)
        X = self._take(_rows(X if hasattr(X, "iloc") else np.asarray(X), kept) if kept is not None else X, reset=True)
        data, total = self._data(X), X.shape[0] if weights is None else weights.sum()
        components = [self.n_components] if isinstance(self.n_components, Integral) else sorted({int(k) for k in self.n_components})
        self._refuse_few(data, components[-1])
        if not self.prior:
            self._judge(X, None)
        self.notes_ = self._doubt(X)
        data |= self._hyper(data, weights)
        if isinstance(self.n_components, Integral):
            self._keep(self._infer(self._model(components[0]), data, weights, self._start(X, None), False), total)
        else:
            self._start(X, None)  # refuses a given start
            self._choose(components, data, weights, total)
        return self

    def _choose(self, components: list[int], data: Mapping, weights, total: float) -> None:
        """Fit every number of components, and keep the best by `criterion`."""
        fits, records = self._fits(components, data, weights), []
        w = np.ones(int(total)) if weights is None else weights
        for k, fit in fits.items():
            log, q = w * fit.log_prob(data), fit.predict_proba(data, self._target)
            free = n_parameters(fit)
            bic = -2 * log.sum() + free * np.log(total)
            doubt = -2 * (w * np.log(q.max(1))).sum()  # of the assignment to components
            aic = -2 * log.sum() + 2 * free
            record = {"n_components": k, "loglik": log.sum(), "parameters": free, "aic": aic, "bic": bic, "icl": bic + doubt}
            records.append({**record, "converged": fit.converged})
        import pandas as pd

        self.table_ = pd.DataFrame(records)
        self.fits_, self.n_components_ = fits, int(self.table_.loc[self.table_[self.criterion].idxmin(), "n_components"])
        self._keep(fits[self.n_components_], total)
        if len(components) > 1 and self.n_components_ in (components[0], components[-1]) and self.n_components_ > 1:
            end = "largest" if self.n_components_ == components[-1] else "smallest"
            self.notes_.append(f"n_components={self.n_components_} is the {end} of the range: others beyond it may be better")
            if end == "largest":
                warnings.warn(
                    f"{type(self).__name__}: the best n_components by {self.criterion} is {self.n_components_}, the largest tried: "
                    "more may be better still. Give a longer range; if it never ends, the components do not suit the columns",
                    UserWarning,
                    stacklevel=4,
                )

    def _fits(self, components: list[int], data: Mapping, weights) -> dict[int, Fit]:
        """Components → Fit: one program for all restarts of all, where a model with fewer is one with some impossible."""
        engine = self._ladder(False)[-1]
        flat = not self.prior or np.all(np.asarray(getattr(self, "concentration", 1.0)) == 1.0)
        models = {k: self._model(k) for k in components}
        if isinstance(engine, EM) and flat and len(components) > 1:
            return grid(models, data, self._target, engine, weights=weights, seed=self._seed())
        return {k: self._infer(model, data, weights, {}, False) for k, model in models.items()}

    def _refuse_few(self, data: Mapping, components: int) -> None:
        table = np.concatenate([np.asarray(value, float).reshape(len(value), -1) for value in data.values()], 1)
        if 1 < components and len(table) <= DISTINCT:
            distinct = len(np.unique(np.where(np.isnan(table), np.inf, table), axis=0))
            if distinct < components:
                raise DataError(
                    f"{type(self).__name__}(n_components={self.n_components}): X has only {distinct} distinct rows "
                    f"(n_samples={len(table)}): use at most {distinct} components"
                )

    def _judge(self, X, codes) -> None:
        """Refuse what has no maximum of the likelihood."""

    def fit_predict(self, X, y=None, sample_weight=None):
        """The components of the rows that were fitted, as fit(X).predict(X)."""
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def predict(self, X):
        """The most probable component of every row, 0 … k−1."""
        return self.predict_proba(X).argmax(1)

    def score_samples(self, X):
        """log p(row), shape (n,), nats; unseen cells are summed out."""
        data = self._asked(X)
        return self.fit_.log_prob(data)

    def score(self, X, y=None):
        """The mean of score_samples."""
        return float(self.score_samples(X).mean())

    @property
    def n_parameters_(self) -> int:
        """Free parameters of the model: the unconstrained coordinates of every parameter site."""
        return n_parameters(self.fit_)

    def bic(self, X):
        """−2 Σ log p(row) + parameters · log n (Schwarz 1978); the lower the better."""
        log = self.score_samples(X)
        return float(-2 * log.sum() + self.n_parameters_ * np.log(len(log)))

    def aic(self, X):
        """−2 Σ log p(row) + 2 · parameters (Akaike 1974); the lower the better."""
        return float(-2 * self.score_samples(X).sum() + 2 * self.n_parameters_)

    def sample(self, n_samples=1):
        """New rows and the components that made them: (X (n, d), labels (n,))."""
        check_is_fitted(self, "fit_")
        words, valid = whole(1)
        if not valid(n_samples):
            raise ModelError(f"sample(n_samples={n_samples!r}): expected {words}")
        drawn = self.fit_.simulate(int(n_samples), seed=self._seed())
        return self._rows_of(drawn), drawn[self._target]

    def impute(self, X):
        """X with its unseen cells at their conditional mean, or at their most probable state, given the row's seen cells."""
        data = self._asked(X)
        return self._rows_of(self.fit_.impute(data))

    def _rows_of(self, data: Mapping):
        """Sites back into columns."""
        return np.asarray(data["x"])

    @property
    def weights_(self):
        """The components' weights, (k,)."""
        return self.fit_.params["weights"]
