"""The scikit-learn estimator of dynamic factors."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import numpy as np
from jax.typing import ArrayLike

from probml import MAP, DataError, Fit, ModelError
from probml.engines.engine import Engine
from probml.estimators.estimator import Projection, absent, flat
from probml.estimators.information_criteria import criteria
from probml.estimators.rules import ENGINE, FLAG, SEED, Seed, check, check_count, integer, parameter
from probml.estimators.validation import check_is_fitted
from probml.models.chains.dynamic_factor import dynamic_factor
from probml.models.chains.sequences import OfSequences, Steps, stacked
from probml.models.latent_factors.factor_analysis import covariance_root, factors
from probml.posteriors.units import Unit, of_rows


@dataclass(eq=False, repr=False)
class DynamicFactor(Projection, OfSequences):
    """A few autoregressive factors behind many series; statsmodels' DynamicFactor. Missing cells
    are NaN. The model is probml.models.dynamic_factor.

    X is one array of all steps, (n_steps, d), with the `lengths` of the sequences in it, or a list
    of arrays (steps_i, d), for which answers are lists too.

    Args:
        n_factors: factors, k.
        order: of the autoregression of each.
        prior: posterior mode under weak priors (True) or maximum likelihood (False), as the peer.
        random_state: seed of a sampler; None is 0.
        engine: an engine's value; by default MAP(prior=prior).

    Attributes:
        loadings_ (d, k): of factors whose news have variance 1, the largest entry of each, in
        standard deviations of its column, above 0; ar_ (k, order), coefficients; noise_ (d,),
        standard deviations; mean_ (d,); loglik_, natural, with all constants; n_parameters_, aic_,
        bic_; n_iter_, converged_; fit_: the probml Fit, of columns less their means and in units of
        their standard deviation.

    Examples:
        >>> import numpy as np
        >>> from probml.models import DynamicFactor
        >>> random = np.random.default_rng(0)
        >>> common = random.normal(size=60).cumsum() * 0.5
        >>> X = common[:, None] * [1.0, 0.8, 0.6] + random.normal(0, 0.3, (60, 3))
        >>> model = DynamicFactor(n_factors=1).fit(X - X.mean(0))
        >>> model.loadings_.shape
        (3, 1)
        >>> model.forecast(X - X.mean(0), 2).shape
        (2, 3)
    """

    _title: ClassVar[str] = "Dynamic factor model"
    _kind: ClassVar[str] = "none"

    n_factors: int = parameter(1, integer(1))
    _: KW_ONLY
    order: int = parameter(1, integer(1))
    prior: bool = parameter(False, FLAG)
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def fit(self, X, y=None, lengths=None):
        """Learn from sequences; y is ignored, present for scikit-learn's convention.

        Args:
            lengths: steps of each sequence in X, by name; None is one sequence.

        Raises:
            ModelError, DataError: a parameter, a sequence or a cell that cannot be used, by name; a
                constant column.
        """
        check(self)
        _, lengths = self._second(X, y, lengths)
        steps = self._steps(X, lengths, reset=True)
        values, k, d = steps.values, int(self.n_factors), steps.values.shape[1]
        if k > d:
            raise ModelError(f"DynamicFactor(n_factors={k}) is more than the number of columns of "
                             f"X. Use n_factors={d} or less")
        if self.order >= steps.lengths.max():
            raise ModelError(f"DynamicFactor(order={self.order}): the order must be less than the "
                             f"length of the longest sequence of X, {steps.lengths.max()}. Use a "
                             f"smaller order")
        if (constant := flat(values)).any():
            raise DataError(f"{self._column(int(np.argmax(constant)))} is constant, so it contains "
                            f"no information about the factors. Drop the column")
        self._centre, self._unit = np.nanmean(values, 0), np.nanstd(values, 0)
        scaled = self._scaled(steps)
        loadings, uniqueness = factors(covariance_root((values - self._centre) / self._unit), k)
        # a factor of variance 1 is one whose news have 1 − φ², at φ = ½
        start = {"loadings": loadings * np.sqrt(0.75), "mean": np.zeros(d),
                 "sigma": np.sqrt(np.maximum(uniqueness, 0.01)),
                 "partial": np.linspace(0.5, 0.3, k)[:, None] * (np.arange(self.order) == 0)}
        fit = dynamic_factor(k=k, d=d, order=int(self.order)).fit(
            scaled, self.engine or MAP(prior=bool(self.prior)), seed=self._seed(), start=start)
        self.fit_ = replace(fit, units=self._parameter_units(fit))
        self.n_iter_, self.converged_ = max(fit.iterations, 1), fit.converged
        self._learn(scaled, steps)
        return self

    @property
    def _n_features_out(self):
        return int(self.n_factors)

    def _scaled(self, steps: Steps) -> dict[str, ArrayLike]:
        return {"y": stacked(steps.parts((steps.values - self._centre) / self._unit))}

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        """The units of the columns; the largest loading of a factor, in standard deviations of its
        column, is above 0."""
        names = {0: self._column_names} if self._column_names else {}
        loadings = np.asarray(fit.params["loadings"], float)
        self._sign = np.where(loadings.max(0) < -loadings.min(0), -1.0, 1.0)
        return {"loadings": Unit(self._unit[:, None] * self._sign, names=names),
                "factors": Unit(np.repeat(self._sign, int(self.order))),
                "sigma": Unit(self._unit, names=names),
                "mean": Unit(self._unit, self._centre, names=names),
                **of_rows(y=(self._centre, self._unit))}

    def _learn(self, data: dict, steps: Steps) -> None:
        """What was learnt, in the units of X."""
        p = self.fit_.params
        self.loadings_ = np.asarray(p["loadings"], float) * self._unit[:, None] * self._sign
        self.ar_ = np.asarray(p["coefficients"], float)
        self.noise_ = np.asarray(p["sigma"], float) * self._unit
        self.mean_ = np.asarray(p["mean"], float) * self._unit + self._centre
        self.loglik_ = self._loglik(steps, data)
        ic = criteria(self.loglik_, self.n_parameters_, len(steps.values))
        self.aic_, self.bic_ = ic["aic"], ic["bic"]

    def as_data(self, X, lengths=None):
        """Sequences as the data of `fit_`: columns in standard deviations about their means."""
        return self._of(X, lengths)[1]

    def _of(self, X, lengths) -> tuple[Steps, dict]:
        check_is_fitted(self, "fit_")
        steps = self._steps(X, lengths, reset=False)
        return steps, self._scaled(steps)

    predict_proba = absent("predict_proba", "use transform(X) for the factors of the steps")

    def transform(self, X, lengths=None):
        """The factors of each step given the whole sequence, smoothed, (n_steps, k), or a list of
        such."""
        steps, data = self._of(X, lengths)
        states = np.asarray(self.fit_.impute(data)["factors"])
        return steps.back(states[..., :: int(self.order)] * self._sign)

    def standard_errors(self, X, lengths=None):
        """Standard deviations of the factors given the whole sequence, as transform gives them."""
        steps, data = self._of(X, lengths)
        posterior = self.fit_.conditional(data, "factors")
        return steps.labelled(np.sqrt(np.asarray(posterior.variance))[..., :: int(self.order)],
                              self.get_feature_names_out())

    def score(self, X, y=None, lengths=None):
        """log p(X), summed over all sequences, in units of X."""
        return self._loglik(*self._of(X, lengths))

    def _loglik(self, steps: Steps, data: dict) -> float:
        log_units = (~np.isnan(steps.values)).sum(0) @ np.log(self._unit)
        return float(np.sum(self.fit_.log_prob(data, plug_in=True)) - log_units)

    def forecast(self, X, steps=1, lengths=None):
        """Forecast means of the next steps, (steps, d), (n, steps, d) with lengths, or a list; for
        a DataFrame a DataFrame whose dates or row numbers continue."""
        check_count("forecast", "steps", steps)
        sequences, data = self._of(X, lengths)
        means = np.asarray(self.fit_.forecast(data, steps=int(steps), plug_in=True)["y"])
        return sequences.ahead(means * self._unit + self._centre)

    def impute(self, X, lengths=None):
        """X with its missing cells at their mean given the whole sequence."""
        steps, data = self._of(X, lengths)
        filled = np.asarray(self.fit_.impute(data)["y"]) * self._unit + self._centre
        arrays = self._filled(steps, filled)
        return arrays if steps.listed else np.concatenate(arrays).reshape(np.shape(steps.tables[0]))
