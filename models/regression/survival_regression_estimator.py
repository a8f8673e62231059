"""The estimator of survival regression."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml import MAP, DataError, Fit
from probml.assessment.intervals import Interval
from probml.engines.engine import Engine
from probml.errors import shortly
from probml.estimators.estimator import absent
from probml.estimators.rules import FLAG, SEED, Seed, check, hold, one_of, parameter, within
from probml.estimators.validation import check_is_fitted
from probml.language.given import floats
from probml.models.frames.standardized import Numeric, row_weights
from probml.models.regression.results import DRAWS, RegressionResults, is_posterior
from probml.models.regression.survival_regression import (
    DISTRIBUTIONS,
    ERRORS,
    EXACT,
    INTERVAL,
    LEFT,
    RIGHT,
    CensoredLogTime,
    survival_regression,
)
from probml.models.regression.targets import checked_column
from probml.models.regression.weak_priors import BAYES, ENGINE_OR_BAYES
from probml.posteriors.units import Unit, in_units


@dataclass(eq=False, repr=False)
class SurvivalRegression(RegressionResults, Numeric):
    """Regression of times until an event, some of them censored: an accelerated failure time model,
    in the parameters of R's survival::survreg.

        log T = x β + b + scale · ε

    The function is probml.models.survival_regression.

    Args:
        distribution: of T: "weibull" (shape 1/scale), "exponential" (scale 1), "lognormal" or
            "loglogistic".
        fit_intercept: with b.
        random_state: seed of a sampler; None is 0.
        engine: an engine's value; by default MAP(), maximum likelihood. "bayes": β ~ N(0, 2.5 /
            sd(x)), b at the means of the columns N(mean log time, 2.5), scale exponential with the
            mean 1, and the engine that Model.fit chooses where none is named.

    Attributes:
        coef_ (d,): exp(coef_) is the factor of all times per unit of a column; intercept_;
        scale_; covariance_ and standard_errors_ of (b, β); loglik_, of times and not of their
        logarithms, aic_, bic_; n_events_; n_iter_, converged_, history_, fit_: the probml Fit.

    Examples:
        >>> import numpy as np
        >>> from probml.models import SurvivalRegression
        >>> treated = np.repeat([[0.0], [1.0]], 6, axis=0)
        >>> months = [2.0, 3, 5, 7, 9, 12, 6, 9, 14, 18, 24, 24]
        >>> died = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0]
        >>> model = SurvivalRegression("weibull").fit(treated, months, event=died)
        >>> print(np.exp(model.coef_).round(1), round(model.scale_, 2))
        [3.] 0.54
    """

    distribution: str = parameter("weibull", one_of(*DISTRIBUTIONS))
    _: KW_ONLY
    fit_intercept: bool = parameter(True, FLAG)
    random_state: Seed = parameter(None, SEED)
    engine: Engine | str | None = parameter(None, ENGINE_OR_BAYES)

    _why = "use predict_survival(X, times) for the probability of a later time"
    residuals = absent("residuals", "a censored time has no residual; use predict_survival(X, "
                                    "times)")
    log_prob = absent("log_prob", "use loglik_ for the log-likelihood of the fitted rows")

    def fit(self, X, y, event=None, sample_weight=None):
        """Learn from rows X (n, d) and times y.

        Args:
            y: (n,), times above 0; or (n, 2), an earlier and a later time between which the event
                was: both the same where it was observed, (a, inf) right censored at a, (0, b) left
                censored at b.
            event: (n,), of times (n,): 1 the event, 0 the time at which it had not happened yet;
                None: all events.

        Raises:
            ModelError, DataError, ValueError: a parameter, a time or a weight that cannot be used,
                by name; no events.
        """
        check(self)
        low, high = self._times(y, event)
        X, low, weights, rows = self._read(X, low, sample_weight)
        high = high[rows]
        kind = np.select([low == high, np.isinf(high), low == 0], [EXACT, RIGHT, LEFT], INTERVAL)
        self.n_events_ = float(weights[kind != RIGHT].sum())
        if not self.n_events_:
            raise DataError("every row is right censored, so the likelihood has no maximum. Give "
                            "at least one row with an event")
        lower, upper = np.log(np.where(low > 0, low, high)), np.log(np.where(kind == RIGHT, low,
                                                                           high))
        self._level, weak = (float(np.average(lower, weights=weights)) if self.fit_intercept
                             else 0.0), self.engine == BAYES
        data = {"x": self._frame(X, weights, force=True), "y": lower - self._level,
                "upper": upper - self._level, "kind": kind}
        priors = {"weight_scale": 2.5, "bias_scale": 2.5} if weak else {}
        priors |= {} if self.fit_intercept else {"bias_scale": 0}
        model = survival_regression(distribution=self.distribution, **priors)
        engine: Any = None if weak else self.engine or MAP(prior=False)
        self._found(model.fit(data, engine, weights=row_weights(weights), seed=self._seed()))
        params = self.fit_.params
        coef, intercept = self._planes(np.asarray(params["beta"], float)[:, None],
                                       np.reshape(params.get("intercept", 0.0), -1))
        self.coef_, self.intercept_ = coef[0], float(intercept[0]) + self._level
        self.scale_ = float(params.get("scale", 1.0))
        self.covariance_ = self.fit_._covariance(self._coefficient_sites(), data,
                                                 row_weights(weights))
        self.standard_errors_ = np.sqrt(np.diag(self.covariance_))
        self._learn_loglik(X, lower, upper, kind, weights, np.column_stack([low, high]))
        return self

    def _learn_loglik(self, X, lower, upper, kind, weights, times) -> None:
        with jax.enable_x64(True):
            log_probs = np.asarray(CensoredLogTime(
                DISTRIBUTIONS[self.distribution], jnp.asarray(X @ self.coef_ + self.intercept_),
                self.scale_, jnp.asarray(kind), jnp.asarray(upper)).log_prob(jnp.asarray(lower)))
        log_probs = log_probs - np.where(kind == EXACT, lower, 0.0)  # densities of times
        is_ml = not (self.engine == BAYES or is_posterior(self.fit_))
        self._learn_likelihood(float((weights * log_probs).sum()) if is_ml else None,
                               self._rank(X, weights) + (self.distribution != "exponential"),
                               times, weights)

    def _times(self, y, event) -> tuple[np.ndarray, np.ndarray]:
        """The earlier and the later time of every row."""
        times = floats(y, "y")
        if times.ndim == 2 and times.shape[1] == 2 and event is None:
            low, high = times.T
        elif times.ndim == 1:
            event = np.ones(len(times)) if event is None else checked_column(event, "event",
                                                                             len(times))
            if not np.isin(event, (0, 1)).all():
                row = int(np.argmin(np.isin(event, (0, 1))))
                raise DataError(f"event is {event[row]:g} in row {row}, expected 1 (the event was "
                                f"observed) or 0 (censored)")
            low, high = times, np.where(event == 1, times, np.inf)
        else:
            raise DataError(f"y has the shape {times.shape}. Give one time for each row, (n,); or, "
                            "for interval censoring, two bounds of each time, (n, 2), without "
                            "event=")
        valid = (low >= 0) & (high > 0) & (low <= high) & np.isfinite(low) & (high > 0) & ~(
            (low == 0) & np.isinf(high))
        if not valid.all():
            row = int(np.argmin(valid))
            raise DataError(f"y is {shortly(times[row].tolist())} in row {row}, expected a time "
                            "above 0. With two columns, give two times, the earlier first")
        return low, high

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        units = super()._parameter_units(fit)
        units.pop("y", None)
        return units

    def as_data(self, X, y=None) -> dict[str, np.ndarray]:
        """Rows as the data of `fit_`: columns centred and scaled; y (n,) are times of events."""
        check_is_fitted(self, "fit_")
        x = self._standardize(self._require_complete(X, reset=False))
        logs = np.full(len(x), 0.0) if y is None else np.log(np.asarray(y, float)) - self._level
        data = {"x": x, "kind": np.zeros(len(x), int), "upper": logs}
        return data if y is None else {**data, "y": logs}

    def _linear(self, X) -> np.ndarray:
        check_is_fitted(self, "fit_")
        return self._require_complete(X, reset=False) @ self.coef_ + self.intercept_

    def _quantile(self, eta: np.ndarray, share: float) -> np.ndarray:
        with jax.enable_x64(True):
            error = float(ERRORS[DISTRIBUTIONS[self.distribution]][3](jnp.asarray(share)))
        return np.exp(eta + self.scale_ * error)

    def predict(self, X, quantile=0.5, interval=None):
        """A quantile of the time, (n,), by default the median; at the estimates.

        Args:
            quantile: its probability. interval: a probability, such as 0.9: answer with an Interval
                (value, lower, upper), the bounds of a new time.

        Raises:
            ModelError: no probability.
        """
        hold("predict", quantile=(quantile, within(0, 1)))
        eta = self._linear(X)
        value = self._quantile(eta, quantile)
        if interval is None:
            return value
        hold("predict", interval=(interval, within(0, 1)))
        return Interval(value, self._quantile(eta, (1 - interval) / 2),
                        self._quantile(eta, (1 + interval) / 2))

    def predict_survival(self, X, times):
        """P(T > t | x), (n, number of times); averaged over a posterior, where there is one.

        Args:
            times: (m,), above 0.

        Raises:
            DataError: times that are not above 0.
        """
        times = np.atleast_1d(floats(times, "predict_survival: times"))
        eta = self._linear(X)
        if times.ndim != 1 or not times.size or not (times > 0).all():
            raise DataError("predict_survival: expected times above 0, such as [1.0, 5.0], got "
                            f"{shortly(times.tolist())}")
        scale = np.array([self.scale_])
        if is_posterior(self.fit_):
            draws = self.fit_.draws(DRAWS)
            draws = {**draws, **in_units(self.fit_.units, draws)}
            eta = (self._require_complete(X, reset=False) @ np.asarray(draws["beta"], float).T
                   + np.asarray(draws.get("intercept", 0.0), float)).T
            scale = np.reshape(draws.get("scale", scale), (-1, 1))
        log_sf = ERRORS[DISTRIBUTIONS[self.distribution]][1]
        with jax.enable_x64(True):
            curves = [np.exp(np.asarray(log_sf(jnp.asarray((np.log(t) - eta) / scale))))
                      for t in times]
        return np.column_stack([np.reshape(probs, (-1, eta.shape[-1])).mean(0) for probs in curves])

    def fitted(self, X):
        """The median time of every row, (n,), as predict."""
        return self.predict(X)

    def score(self, X, y, event=None):
        """Harrell's concordance: the share of pairs of rows, of which one is known to have the
        earlier time, that predict puts in this order; 0.5 is chance."""
        low, high = self._times(y, event)
        times = self.predict(X)
        earlier = high[:, None] < low[None, :]
        earlier |= (high[:, None] == low[None, :]) & np.isinf(high)[None, :]
        if not earlier.any():
            raise DataError("score: the concordance needs pairs of rows of which one is known to "
                            "have the earlier event. Because of censoring there is no such pair. "
                            "Give more rows with observed events")
        concordant = (times[:, None] < times[None, :]) + 0.5 * (times[:, None] == times[None, :])
        return float(concordant[earlier].mean())
