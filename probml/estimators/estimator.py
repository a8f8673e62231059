"""The base class of estimators, with the scikit-learn protocol: parameters, validation, labels,
weights, answers as arrays.

An estimator is a class in models/ that has a model, converts X to its data, and names estimates as
in scikit-learn. Its result is one probml Fit, `fit_`, from which all attributes are read.

Source: scikit-learn, "Developing scikit-learn estimators"; `check_estimator` is the contract.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from probml.engines import EM, Exact
from probml.engines.engine import short_name
from probml.errors import DataError, Refusal, listed
from probml.estimators.information_criteria import criteria
from probml.estimators.portable import ROWS, Portable
from probml.estimators.rules import FLAG, hold
from probml.estimators.table_inputs import MAX_RETAINED_NUMBERS, is_small, take_tables
from probml.estimators.validation import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    check_is_fitted,
    check_sample_weight,
    finite,
    refuse_infinite,
    validate_data,
)
from probml.interface.fit import Fit
from probml.interface.model import Model
from probml.interface.showing.summaries import summarize
from probml.interface.showing.summary import Summary, Table
from probml.language.language import check_seed
from probml.numerics.process.libraries import pd
from probml.posteriors.units import Unit
from probml.typing import ArrayLike, DataLike, SiteValues

# attributes of an estimator that are numbers about the fit as a whole → their names in summaries
FIGURES = {"total_weight_": "observations", "n_observations_": "observations",
           "loglik_": "log-likelihood", "aic_": "AIC",
           "bic_": "BIC", "log_evidence_": "log marginal likelihood",
           "log_marginal_likelihood_": "log marginal likelihood", "n_components_": "components",
           "n_states_": "states", "n_neighbors_": "neighbours", "inertia_": "inertia",
           "stress_": "stress", "noise_": "residual sd", "edf_": "effective degrees of freedom",
           "bound_": "lower bound of the log marginal likelihood", "alpha_": "alpha",
           "n_estimators_": "trees", "n_leaves_": "leaves", "expected_leaves_": "expected leaves",
           "mistaken_": "misclassified rows"}
CRITERIA = {"loglik": "log-likelihood", "aic": "AIC", "bic": "BIC", "icl": "ICL"}
MAX_COMPARED_ROWS = 10_000  # up to which components are compared with the number of distinct rows


class Estimator(Portable, BaseEstimator):
    """The base class. An estimator is a dataclass of its parameters, which are stored unchanged
    (see rules.py), and has

    `_target`: the model's site of the class or component; `_validated(X, reset)`: X, checked;
    `_data(X)`: site → array; `_model(k)`: the bound Model with k classes or components.
    """

    _target: ClassVar[str] = "z"
    _plug_in: ClassVar[bool] = False
    lists: ClassVar[bool] = False  # whether X and y may be lists of sequences

    def __init_subclass__(cls, **settings: object):
        super().__init_subclass__(**settings)
        take_tables(cls)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        return tags

    def __getstate__(self):
        state = super().__getstate__()
        return {name: state[name] for name in state if name not in ROWS}  # rows are not stored

    def __setstate__(self, state: dict[str, object]):
        super().__setstate__(state)
        if "fit_" in vars(self):
            self.fit_ = self.fit_  # sets the fit's reference to this estimator

    # To be defined by an estimator

    def _model(self, k: int) -> Model:
        raise NotImplementedError

    def _data(self, X: object) -> dict[str, ArrayLike]:
        return {"x": X}

    def _validated(self, X: object, reset: bool):
        return self._numbers(X, reset)

    def _start(self, X: object, labels: object) -> dict[str, ArrayLike]:
        """Starting values of parameters for iterative engines."""
        return {}

    def _hyperparameters(self, data: Mapping, weights: object,
                         further: bool = False) -> dict[str, ArrayLike]:
        """Values of hyperparameters that depend on the rows; `further`: rows of a later
        partial_fit."""
        return {}

    def _check_likelihood_is_bounded(self, X: object, codes: object) -> None:
        """Raise where the likelihood has no maximum; `codes`: of the classes, None without such."""

    def _row_notes(self, X: object) -> list[str]:
        """Notes about these rows for `status`; for a probable mistake also a warning."""
        return []

    def _merged_hyperparameters(self, others: object) -> dict[str, ArrayLike]:
        """Values of hyperparameters for the rows of this estimator and of others together."""
        return {}

    # Reading what the user gave

    def _seed(self, random_state: object = None, verb: str = "") -> int:
        """The seed of a fit, or of a method with its own argument; None is 0, so that fits are
        reproducible; a generator gives its next number."""
        given = self.random_state if random_state is None else random_state
        if given is None or isinstance(given, Integral) and not verb:
            return int(given or 0)
        return check_seed(given, verb or type(self).__name__)

    def _numbers(self, X: object, reset: bool) -> np.ndarray:
        """X as floats (n, d), NaN where missing; in a fit no column may be missing completely."""
        array = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32],
                              ensure_all_finite=False)
        if not finite(array):  # one pass by all cores, the only one as a rule
            refuse_infinite(array, [f"'{name}'" for name in getattr(self, "feature_names_in_", ())])
            self._refuse_gaps(array, reset)
        return array

    def _refuse_gaps(self, X: np.ndarray, reset: bool) -> None:
        """Refuse missing cells of X that the estimator cannot use."""
        if reset:
            self._refuse_missing(np.isnan(X).all(0))

    def _refuse_missing(self, empty: np.ndarray) -> None:
        """Refuse columns without any observed cell."""
        if empty.all():
            raise DataError("every value of X is missing, so nothing can be estimated. Check how X "
                            "was read, and pass observed values")
        if empty.any():
            raise DataError(f"{self._column(int(np.argmax(empty)))} of X is missing in every row. "
                            f"Drop this column, or fit to rows in which it is observed")

    def _column(self, index: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return f"column {index}" if names is None else f"column '{names[index]}'"

    def _weigh(self, X: object, sample_weight: object):
        """(weights or None, rows to keep or None); rows of weight 0 are left out."""
        if sample_weight is None:
            return None, None
        weights = check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise DataError("all weights are zero (sample_weight). Give at least one row a weight "
                            "above 0")
        used_rows = None if weights.all() else np.flatnonzero(weights)
        return weights if used_rows is None else weights[used_rows], used_rows

    # Fitting

    def _ladder(self, complete: bool) -> tuple:
        """The engines to try in order; `complete`: all labels are observed."""
        if self.engine is not None:
            return (self.engine,)
        settings = {"max_iter": "max_iterations", "tol": "tolerance", "n_init": "restarts"}
        given = {ours: getattr(self, theirs) for theirs, ours in settings.items()
                 if hasattr(self, theirs)}
        given |= {name: getattr(self, name) for name in ("hard", "accelerate")
                  if hasattr(self, name)}
        em = EM(prior=bool(self.prior), **given)
        return (Exact(), em) if self.prior and complete else (em,)

    def _infer(self, model: Model, data: Mapping, weights: object, start: Mapping,
               complete: bool) -> Fit:
        """The Fit by the first engine that does not refuse."""
        ladder, seed = self._ladder(complete), self._seed()
        if start and {name for name, site in model.structure.nodes(data=True)
                      if not site["rows"]} <= {*start, *data}:
            # with a complete start all restarts would be the same
            ladder = tuple(replace(engine, restarts=1) if engine.capabilities.restarts else engine
                           for engine in ladder)
        *first, last = ladder
        for engine in first:
            with contextlib.suppress(Refusal):
                return model.fit(data, engine, weights=weights, seed=seed, start=start)
        return model.fit(data, last, weights=weights, seed=seed, start=start)

    def _site_columns(self) -> dict[str, tuple[str, ...]]:
        """Site → the names of its cells, from the columns of the table, if these have names."""
        return {"x": self._column_names} if self._column_names else {}

    @property
    def _column_names(self) -> tuple[str, ...]:
        """The names of the columns of X, if they have names."""
        return tuple(map(str, getattr(self, "feature_names_in_", ())))

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        """Parameter → its unit, where columns were rescaled for `fit_`."""
        return {}

    def _keep(self, fit: Fit, rows: float) -> None:
        fit = dataclasses.replace(fit, columns={**fit.columns, **self._site_columns()},
                                  units=self._parameter_units(fit))
        self.fit_, self.total_weight_ = fit, float(rows)
        self.n_iter_, self.converged_ = max(fit.iterations, 1), fit.converged
        self.lower_bounds_ = np.asarray(fit.history) / rows  # per unit of weight, as scikit-learn's
        self.lower_bound_ = float(self.lower_bounds_[-1])

    def _parameter(self, name: str) -> Any:
        """A parameter of `fit_`, estimated or given.

        Raises:
            AttributeError: there is none; so that `hasattr` is False.
        """
        check_is_fitted(self, "fit_")
        known = {**self.fit_.given, **self.fit_.params}
        if name not in known:
            raise AttributeError(f"this {type(self).__name__} has no '{name}'. Use one of its "
                                 f"parameters, {listed(self.fit_.params)}")
        return known[name]

    @property
    def status(self) -> str:
        """How the fit ended, with notes about the rows and warnings."""
        check_is_fitted(self, "fit_")
        return "; ".join([str(self.fit_.status), *getattr(self, "notes_", ())])

    # Showing

    def summary(self, errors: bool = True) -> Summary:
        """The estimates as titled tables with the names of the columns: `print(est.summary())`.

        Args:
            errors: with standard errors, or posterior standard deviations; False: estimates alone,
                which costs a pass over the rows at the most.

        Returns:
            Summary: `summary["Means"]` is one of its tables, a DataFrame; `summary.keys()` are
            their headings, `summary.figures` the log-likelihood and others, `summary.to_dict()`
            plain values.

        Raises:
            NotFittedError: before fit.

        Cost: of standard errors, once, a Hessian of all rows, or four gradients a parameter.
        """
        check_is_fitted(self)
        hold(f"{type(self).__name__}.summary", errors=(errors, FLAG))
        if not hasattr(self, "fit_"):  # fitted without a probml engine
            return Summary(repr(self), tuple(self._attributes()), self._figures())
        result = summarize(self.fit_, repr(self), self._figures(), errors, self._categories(),
                           self._tables, getattr(self, "notes_", ()))
        size_table = getattr(self, "table_", None)  # criteria by the number of components or states
        if size_table is None:
            return result
        size = size_table.columns[0]
        noun = self._size_noun or size.removeprefix("n_")
        return dataclasses.replace(result, tables=(
            *result.tables, Table(f"Comparison of numbers of {noun}", size_table.set_index(size))))

    _size_noun: ClassVar[str] = ""  # the word for a range of sizes; by default its argument's name
    _tables: Callable | None = None  # makes the tables of a summary; None: those of the model

    def _figures(self) -> dict[str, object]:
        """Numbers about the fit as a whole."""
        pairs = ((label, getattr(self, name, None)) for name, label in FIGURES.items())
        numbers = {label: float(value) for label, value in pairs if isinstance(value, Real)}
        return {label: int(value) if value.is_integer() else value
                for label, value in numbers.items()}

    def _criteria_of_fit(self, size: int, rows: float) -> dict[str, float]:
        """Log-likelihood, AIC and BIC of the fitted rows: from the table of sizes that were tried,
        else from the rows, if they are retained."""
        size_table, retained = getattr(self, "table_", None), getattr(self, "_first", None)
        if size_table is not None:
            values = size_table.set_index(size_table.columns[0]).loc[size].to_dict()
        elif retained is not None:
            _, data, weights = retained
            log = np.asarray(self.fit_.log_prob(data))
            values = criteria(float((log if weights is None else log * weights).sum()),
                              n_parameters(self.fit_), rows)
        else:
            values = {}
        return {label: float(values[name]) for name, label in CRITERIA.items() if name in values}

    def _attributes(self) -> list[Table]:
        """The estimates by the names of the attributes: those with a number for each column."""
        names, tables = self._column_names or range(self.n_features_in_), []
        for name, value in vars(self).items():
            if (name.endswith("_") and not name.startswith("_") and isinstance(value, np.ndarray)
                and value.dtype.kind in "fiu" and value.ndim in (1, 2)
                and value.shape[-1] == len(names) > 0):
                frame = pd.DataFrame(np.atleast_2d(value), columns=list(names))
                tables.append(Table(name, frame if value.ndim == 2
                                    else frame.T.set_axis([name], axis=1)))
        return tables

    def _categories(self) -> dict[str, list]:
        """Site → the categories of each of its columns."""
        return {}

    # Answers

    def _asked(self, X: object) -> dict[str, Any]:
        check_is_fitted(self, "fit_")
        return self._data(self._validated(X, reset=False))

    def predict_proba(self, X: object):
        """p(class or component | row), shape (n, k); a row with nothing observed gets the prior."""
        data = self._asked(X)
        return self.fit_.predict_proba(data, self._target, plug_in=self._averages())

    def _averages(self) -> bool:
        return bool(getattr(self, "plug_in", self._plug_in))


class Projection(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """An estimator whose `transform` returns new columns, (n, n_components), named by `set_output`
    and `get_feature_names_out`."""

    @property
    def _n_features_out(self) -> int:
        """The number of columns that `transform` returns."""
        return len(self.components_)


def absent(verb: str, instead: str) -> property:
    """A property that replaces an inherited method without meaning for an estimator: it raises
    AttributeError, so that `hasattr` is False, and names the method to use instead."""

    def none(self):
        raise AttributeError(f"{type(self).__name__} has no {verb}: {instead}")

    return property(none, doc=f"There is no {verb}: {instead}.")


def rows(X: DataLike, used_rows: np.ndarray | None):
    """Some rows of an array or a DataFrame."""
    if used_rows is None:
        return X
    return X.iloc[used_rows] if hasattr(X, "iloc") else np.asarray(X)[used_rows]


def flat(X: np.ndarray) -> np.ndarray:
    """The mask of columns whose observed cells are constant, (d,): the likelihood of a normal
    fitted to one has no maximum."""
    return np.fmin.reduce(X, 0) >= np.fmax.reduce(X, 0)


def objective_of(fit: Fit) -> float:
    """The objective at the end of a fit, by which fits of one model to one table are compared."""
    return -np.inf if fit.history is None else float(fit.history[-1])


def best_of(attempts: Iterable[Callable[[], Fit]]) -> Fit:
    """Returns the fit with the highest objective. Only its own warnings are issued; those of the
    other fits are dropped."""
    found = []
    for attempt in attempts:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found.append((attempt(), said))
    best, said = max(found, key=lambda each: objective_of(each[0]))
    for each in said:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return best


def replace_given(fit: Fit, values: SiteValues) -> Fit:
    """A fit with other values of hyperparameters, to be updated with further rows."""
    given = {**fit.given, **{name: np.asarray(value, np.asarray(fit.given[name]).dtype)
                             for name, value in values.items()}}
    retained = None if fit.kept is None else fit.kept._replace(
        known=fit.kept.known._replace(given=given)
    )
    return dataclasses.replace(fit, given=given, kept=retained)


def keep_few_rows(estimator: Any, fit: Fit, data: Mapping, weights: ArrayLike | None) -> None:
    """Retain the fitted rows, if they are few, until partial_fit is called, or the estimator is
    pickled or saved: partial_fit continues from their expected sufficient statistics, which are
    computed then."""
    updatable = (fit.kept is None and fit.by is not None
                 and fit.by.capabilities.incremental_update is not None)
    estimator._first = (fit, data, weights) if updatable and is_small(data) else None


def make_updatable(estimator: Any, get_rows: Callable[[], tuple] | None = None) -> Fit:
    """The fit of an estimator with running statistics, which further rows update by steps.

    Args:
        get_rows: returns (fit, data, weights) of rows that have just been fitted.

    Raises:
        Refusal: its engine takes no steps, or a site has no sufficient statistics.
        DataError: the fitted rows were not retained.
    """
    fit, name = estimator.fit_, type(estimator).__name__
    retained, estimator._first = getattr(estimator, "_first", None), None
    if fit.kept is None and fit.by is not None and fit.by.capabilities.incremental_update is None:
        raise Refusal(f"partial_fit: this {name} was fitted by {short_name(fit.engine)}, which "
                      "stores no sufficient statistics (sums of the data) of this model. The fit "
                      "cannot be updated with further rows without them. Fit all rows together, or "
                      "use engine=probml.EM() or probml.VB(), which store them if all updates have "
                      "a closed form")
    retained = retained or get_rows and get_rows()
    if fit.kept is None and retained:
        fitted, data, weights = retained
        return dataclasses.replace(fit, kept=fitted.running(data, weights=weights).kept)
    if fit.kept is None:
        raise DataError(f"partial_fit: this {name} stores no sufficient statistics (sums of the "
                        "data), so it cannot be updated with further rows. It was loaded from a "
                        f"file, or fitted by fit() to more than {MAX_RETAINED_NUMBERS:,} cells. "
                        f"Create another {name}, and pass all rows, also the first ones, to its "
                        "partial_fit")
    # the statistics of complete rows are the same at every point
    return fit if fit.kept.running else dataclasses.replace(
        fit, kept=fit.kept._replace(running=True))


def n_parameters(fit: Fit) -> int:
    """Free parameters of a model: the unconstrained coordinates of every parameter site that is not
    given."""
    sites = fit.structure.sites
    return sum(sites[name].domain.size(sites[name].shape) for name in fit.structure.parameters
               if name not in fit.given and sites[name].measure is None)
