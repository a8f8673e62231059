"""The base class of mixtures: components, responsibilities, information criteria."""

import contextlib
import warnings
from collections.abc import Mapping
from numbers import Integral

import numpy as np
from scipy.special import gammaln

from probml.engines.engine import short_name
from probml.errors import DataError, ModelError, Refusal, counted
from probml.estimators.estimator import (
    MAX_COMPARED_ROWS,
    Estimator,
    keep_few_rows,
    make_updatable,
    n_parameters,
    rows,
)
from probml.estimators.information_criteria import InformationCriteria, choose_lowest, criteria
from probml.estimators.rules import check, check_count
from probml.estimators.validation import DensityMixin, check_is_fitted
from probml.interface.fit import Fit
from probml.interface.sizes import grid
from probml.language.language import check_seed
from probml.numerics.process.libraries import pd
from probml.typing import DataLike

MAX_DRAWS = 1_000_000  # of components of all rows, one after another


class Mixture(InformationCriteria, DensityMixin, Estimator):
    """A mixture, whose component is latent in every row: clustering, densities, new rows."""

    def fit(self, X: DataLike, y: object = None, sample_weight: object = None):
        """Learn from rows X (n, d), missing cells NaN or None; y is ignored, present for
        scikit-learn's convention.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name.
        """
        check(self)
        X, weights, total = self._batch(X, sample_weight, reset=True)
        data = self._data(X)
        options = () if isinstance(self.n_components, Integral) else self.n_components
        components = sorted({int(k) for k in options}) or [int(self.n_components)]
        self._refuse_few(data, components[-1])
        if not self.prior:
            self._check_likelihood_is_bounded(X, None)
        self.notes_ = self._row_notes(X)
        data, data_without_hyperparameters = data | self._hyperparameters(data, weights), data
        if isinstance(self.n_components, Integral):
            fit = self._infer(self._model(components[0]), data, weights, self._start(X, None),
                              False)
            keep_few_rows(self, fit, data_without_hyperparameters, weights)
            self._keep(fit, total)
        else:
            self._start(X, None)  # refuses an invalid start
            self._choose(components, data, weights, total)
        return self

    def partial_fit(self, X: object, y: object = None, sample_weight: object = None):
        """Learn from further rows. The first ones are fitted by `fit`, here or before; each later
        call is a step of stepwise EM, or of stochastic variational Bayes, see Fit.update: the
        statistics of these rows have the weight (their share of all rows so far)^0.6. Data-
        dependent priors stay those of the first rows. y is ignored.

        It is meant for some hundreds of rows per call, in random order: of sorted rows the last
        have too much weight.

        Raises:
            ModelError: several n_components. Refusal: an engine that takes no steps.
            DataError: after fit to more than a million numbers, or from a file: the rows were not
                retained.
        """
        check(self)
        if not isinstance(self.n_components, Integral):
            raise ModelError("partial_fit needs one number of components, but "
                             f"n_components={self.n_components!r} gives several. Give one, such as "
                             "n_components=3")
        if not hasattr(self, "fit_"):
            self.fit_ = make_updatable(self.fit(X, sample_weight=sample_weight),
                                       lambda: (self.fit_, *self._further(X, sample_weight)[:2]))
            return self
        fit = make_updatable(self)
        data, weights, added = self._further(X, sample_weight)
        self._keep(fit.update(data, weights=weights), self.total_weight_ + added)
        return self

    def _further(self, X: DataLike, sample_weight: object) -> tuple[dict, np.ndarray | None, float]:
        """(data, weights, their sum) of further rows with the same columns."""
        X, weights, total = self._batch(X, sample_weight, reset=False)
        return self._data(X), weights, total

    def _batch(self, X: DataLike, sample_weight: object, reset: bool) -> tuple:
        """(X, weights, their sum) of one batch, checked, without rows of weight 0; `reset`: columns
        are set by it."""
        weights, used_rows = self._weigh(X, sample_weight)
        X = self._validated(rows(X, used_rows), reset)
        return X, weights, X.shape[0] if weights is None else weights.sum()

    def _choose(self, components: list[int], data: Mapping, weights: object, total: float) -> None:
        """Fit every number of components, and select the best by `criterion`."""
        fits, records = self._fits(components, data, weights), []
        w = np.ones(int(total)) if weights is None else weights
        for k, fit in fits.items():
            log, q = w * fit.log_prob(data), fit.predict_proba(data, self._target)
            record = {"n_components": k, **criteria(log.sum(), n_parameters(fit), total)}
            entropy = -2 * (w * np.log(q.max(1))).sum()  # uncertainty of the assignment
            record["icl"] = record["bic"] + entropy
            if fit.bound is not None:
                record["bound"] = fit.bound + self._labellings(k)
            records.append({**record, "converged": fit.converged})
        if self.criterion not in records[0]:
            raise ModelError(f"{type(self).__name__}(criterion='bound'): the engine "
                             f"{short_name(next(iter(fits.values())).engine)} computes no lower "
                             "bound of the log evidence (log probability of the data). Use "
                             "engine=probml.VB(), or criterion='bic'")
        self.table_, self.n_components_ = choose_lowest(records, self.criterion)
        self.fits_ = fits
        self._keep(fits[self.n_components_], total)
        if (len(components) > 1 and self.n_components_ in (components[0], components[-1])
            and self.n_components_ > 1):
            end = "largest" if self.n_components_ == components[-1] else "smallest"
            self.notes_.append(f"n_components={self.n_components_} is the {end} value of the "
                               f"range; values outside the range may be better")
            if end == "largest":
                warnings.warn(
                    f"{type(self).__name__}: the best n_components by {self.criterion} is "
                    f"{self.n_components_}, the largest value tried, and a larger number may be "
                    f"better. Add larger values to n_components. If the largest is chosen again, "
                    f"the distribution of the components may not fit the columns",
                    UserWarning,
                    stacklevel=4,
                )

    def _figures(self) -> dict[str, object]:
        size = getattr(self, "n_components_", 0)
        return super()._figures() | {"parameters": self.n_parameters_,
                                     **self._criteria_of_fit(size, self.total_weight_)}

    def _labellings(self, k: int) -> float:
        """log k!, the number of equivalent orders of k components, of which q has one."""
        return float(gammaln(k + 1))

    def _fits(self, components: list[int], data: Mapping, weights: object) -> dict[int, Fit]:
        """Components → Fit: one program for all restarts of all sizes, in which smaller models are
        the largest with some components impossible."""
        engine = self._ladder(False)[-1]
        # pseudo-counts of impossible components would affect the posterior mode
        comparable = (engine.capabilities.finds == "posterior" or not self.prior
                      or np.all(np.asarray(getattr(self, "concentration", 1.0)) == 1.0))
        models = {k: self._model(k) for k in components}
        if engine.capabilities.sizes and comparable and len(components) > 1:
            with contextlib.suppress(Refusal):  # fitted one by one it says why, or is not refused
                return grid(models, data, self._target, engine, weights=weights, seed=self._seed())
        return {k: self._infer(model, data, weights, {}, False) for k, model in models.items()}

    def _refuse_few(self, data: Mapping, components: int) -> None:
        if 1 < components and len(next(iter(data.values()))) <= MAX_COMPARED_ROWS:
            table = np.concatenate([np.asarray(value, float).reshape(len(value), -1)
                                    for value in data.values()], 1)
            distinct = len(np.unique(np.where(np.isnan(table), np.inf, table), axis=0))
            if distinct < components:
                raise DataError(
                    f"{type(self).__name__}(n_components={self.n_components}): X has only "
                    f"{counted(distinct, 'distinct row')} (n_samples={len(table)}). Use at most "
                    f"{counted(distinct, 'component')}"
                )

    def fit_predict(self, X: object, y: object = None, sample_weight: object = None):
        """The components of the rows that were fitted, as fit(X).predict(X)."""
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def predict(self, X: object):
        """The most probable component of every row, 0 … k−1."""
        return self.predict_proba(X).argmax(1)

    def occupied(self, X: object, draws: int = 1000, seed: int = 0):
        """The distribution of the number of components that have rows of X, by draws of the
        component of every row.

        Args:
            X: rows (n, d), such as those that were fitted. draws, seed: of the components.

        Returns:
            pandas.Series: number of components → its share of the draws.

        Cost: n · k numbers a draw.
        """
        check_count("occupied", "draws", draws, MAX_DRAWS)
        random = np.random.default_rng(check_seed(seed, "occupied"))
        cumulated = np.cumsum(self.predict_proba(X), 1)
        counts = [len(np.unique((random.random((len(cumulated), 1)) * cumulated[:, -1:]
                                 > cumulated).sum(1))) for _ in range(draws)]
        return pd.Series(counts).value_counts(normalize=True).sort_index().rename("probability")

    def score_samples(self, X: object):
        """log p(row), shape (n,); missing cells are summed out."""
        data = self._asked(X)
        return self.fit_.log_prob(data)

    def score(self, X: object, y: object = None):
        """The mean of score_samples."""
        return float(self.score_samples(X).mean())

    @property
    def n_parameters_(self) -> int:  # type: ignore[override]
        """Free parameters of the model: the unconstrained coordinates of every parameter site."""
        return n_parameters(self.fit_)

    def sample(self, n_samples: int = 1, random_state: object = None):
        """New rows and their components: (X (n, d), labels (n,))."""
        check_is_fitted(self, "fit_")
        check_count("sample", "n_samples", n_samples)
        drawn = self.fit_.simulate(int(n_samples), seed=self._seed(random_state, "sample"))
        return self._rows_of(drawn), drawn[self._target]

    def impute(self, X: object):
        """X with its missing cells at their conditional mean, or at their most probable state,
        given the row's observed cells."""
        data = self._asked(X)
        return self._rows_of(self.fit_.impute(data))

    def _rows_of(self, data: Mapping):
        """The columns of X from the values of sites."""
        return np.asarray(data["x"])

    @property
    def weights_(self):
        """The components' weights, (k,)."""
        return self.fit_.params["weights"]
