"""What every fitted regression answers, in the words of R and statsmodels: intervals of its
coefficients, residuals, AIC and BIC, and the likelihood-ratio test between two of them. Tables and
predictions of regressions whose answer is a posterior of all parameters.

Sources: Wilks (1938), "The large-sample distribution of the likelihood ratio"; Akaike (1974);
Schwarz (1978); McCullagh & Nelder (1989), section 2.4 for residuals.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from probml import DataError, Fit, ModelError
from probml.assessment.intervals import Interval
from probml.errors import counted, type_of
from probml.estimators.information_criteria import criteria
from probml.estimators.rules import hold, one_of, within
from probml.estimators.validation import check_is_fitted, column_or_1d
from probml.models.regression.family_functions import (
    mean_of_y,
    unit_deviance,
    variance_function,
)
from probml.models.regression.targets import checked_column
from probml.numerics.process.libraries import pd
from probml.posteriors.units import in_units
from probml.typing import FitOrEstimator, SiteValues

DRAWS = 4000  # of a posterior, for quantiles
KINDS = one_of("response", "pearson", "deviance")
FAMILY_PARAMETERS = {"concentration": "concentration_", "zero_probability": "zero_probability_",
                     "df": "df_", "sigma": "noise_"}
"""The parameter of a family → the attribute of an estimator that has its estimate."""


class RegressionResults:
    """What every fitted regression answers. An estimator calls `_learn_likelihood` in its fit, and
    has `_inverse_link` where it has residuals."""

    loglik_: float | None = None
    n_parameters_: int
    n_observations_: float
    _row_sums: np.ndarray | None = None  # sums that tell other rows apart
    _restricted: tuple | None = None
    # of the estimator
    fit_: Fit
    n_features_in_: int
    predict: Callable[..., Any]

    def _learn_likelihood(self, loglik: float | None, parameters: int, y: np.ndarray,
                          weights: np.ndarray, restricted: tuple | None = None) -> None:
        """
        Args:
            loglik: the greatest log likelihood, with all constants, in units of y; None: the fit is
                no maximum of it, as that of a posterior, or under a penalty.
            parameters: how many were estimated.
            restricted: of a restricted likelihood the names of the fixed effects.
        """
        self.loglik_ = None if loglik is None else float(loglik)
        self.n_parameters_, self.n_observations_ = int(parameters), float(np.sum(weights))
        columns = np.reshape(np.where(np.isfinite(y), y, 0.0), (len(weights), -1))
        # the same in any order of the rows, up to rounding
        self._row_sums = np.concatenate([weights @ columns, weights @ columns**2, [weights.sum()]])
        self._restricted = restricted

    def _maximum(self, name: str) -> float:
        check_is_fitted(self, "fit_")
        if self.loglik_ is None:
            raise AttributeError(f"this {type(self).__name__} has no {name}, because its estimate "
                                 f"is not a maximum of the likelihood: it has a posterior or a "
                                 f"penalty. Compare such fits by probml.compare")
        return self.loglik_

    @property
    def aic_(self) -> float:
        """Akaike's information criterion, −2 log L + 2 parameters: smaller is better."""
        return criteria(self._maximum("aic_"), self.n_parameters_, 1)["aic"]

    @property
    def bic_(self) -> float:
        """The Bayesian information criterion, −2 log L + log(n) parameters: smaller is better."""
        return criteria(self._maximum("bic_"), self.n_parameters_, self.n_observations_)["bic"]

    def _coefficient_sites(self) -> tuple[str, ...]:
        """The sites of the coefficients, in the order of the table."""
        return ("intercept", "beta")[1 - bool(getattr(self, "fit_intercept", True)):]

    def _coefficient_names(self) -> Sequence[str] | None:
        """What the rows of confint are called."""
        names = [str(name) for name in getattr(
            self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])]
        return ["Intercept"] * bool(getattr(self, "fit_intercept", True)) + names

    def _coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Estimates and standard errors, (p,) each, in the user's units."""
        sites = self._coefficient_sites()
        converted = in_units(self.fit_.units, self.fit_.params)
        estimate = np.concatenate([np.ravel(converted.get(name, self.fit_.params[name]))
                                   for name in sites])
        errors = getattr(self, "standard_errors_", None)
        if errors is None:
            errors = np.sqrt(np.diag(self.fit_._covariance(sites)))
        return estimate, np.asarray(errors, float)

    def confint(self, level: float = 0.95):
        """Intervals of the coefficients.

        Args:
            level: their probability.

        Returns:
            A DataFrame, a row for each coefficient, by default with the columns "2.5%" and "97.5%":
            estimate ± z · standard error, of a posterior its quantiles.

        Raises:
            ModelError: no probability; the standard errors are not known, as of a file whose fit
                stored none.

        Example:
            >>> GeneralizedLinearModel("poisson").fit(X, y).confint(level=0.9)
        """
        hold("confint", level=(level, within(0, 1)))
        check_is_fitted(self, "fit_")
        tails = np.array([(1 - level) / 2, (1 + level) / 2])
        if is_posterior(self.fit_):
            draws = self.fit_.draws(DRAWS)
            draws = {**draws, **in_units(self.fit_.units, draws)}
            bounds = np.concatenate([np.quantile(draws[name], tails, 0).reshape(2, -1)
                                     for name in self._coefficient_sites()], 1).T
            return self._bounds(bounds, tails)
        return self._wald(level)

    def _wald(self, level: float):
        """Estimate ± z · standard error."""
        from scipy.stats import norm

        hold("confint", level=(level, within(0, 1)))
        check_is_fitted(self)
        tails = np.array([(1 - level) / 2, (1 + level) / 2])
        estimate, errors = self._coefficients()
        if np.isnan(errors).all():
            raise ModelError(f"confint: the standard errors of this {type(self).__name__} are NaN. "
                             "Give more rows than coefficients, or use engine=probml.NUTS()")
        return self._bounds(estimate[:, None] + errors[:, None] * norm.ppf(tails), tails)

    def _bounds(self, bounds: np.ndarray, tails: np.ndarray):
        return pd.DataFrame(bounds, index=self._coefficient_names(),
                            columns=[f"{100 * tail:.6g}%" for tail in tails])

    # Residuals

    def _family_parameters(self) -> Mapping[str, float]:
        return {name: getattr(self, attribute) for name, attribute in FAMILY_PARAMETERS.items()
                if hasattr(self, attribute)}

    def fitted(self, X):
        """E[y | x] of every row, (n,): the mean of predict(X)."""
        return self.predict(X)

    def residuals(self, X, y, kind: str = "response"):
        """What rows differ from their expectation, (n,).

        Args:
            X, y: as of fit.
            kind: "response": y − E[y | x], of the binomial of rates; "pearson": divided by the
                square root of the variance function of the family, 1 of the normal; "deviance": the
                signed square root of the row's share of the deviance. As R's residuals(glm, type).

        Returns:
            (n,).

        Raises:
            ModelError: an unknown kind; a family that has no deviance of single rows.
            DataError: X or y of another length.

        Example:
            >>> GeneralizedLinearModel("poisson").fit(X, y).residuals(X, y, kind="pearson")
        """
        y = self._numbers_of(y)
        return self._residuals(y, np.ones(len(y)), self._inverse_link(X), kind)

    def _residuals(self, y: np.ndarray, n: np.ndarray, mu: np.ndarray, kind: str) -> np.ndarray:
        """Residuals of a kind: of y out of so many trials, about μ."""
        hold("residuals", kind=(kind, KINDS))
        family, extra = self._family_of_y(), self._family_parameters()
        if len(mu) != len(y):
            raise DataError(f"residuals: X has {counted(len(mu), 'row')}, y has {len(y)}. Pass one "
                            "y for each row of X")
        resid = y / n - mean_of_y(family, mu, extra)
        if kind == "pearson":
            return resid / np.sqrt(variance_function(family, mu, n, extra))
        if kind == "deviance":
            return np.sign(resid) * np.sqrt(np.maximum(unit_deviance(family, y / n, mu, n, extra),
                                                       0.0))
        return resid

    def _numbers_of(self, y) -> np.ndarray:
        check_is_fitted(self, "fit_")
        return column_or_1d(np.asarray(y, float))

    def _family_of_y(self) -> str:
        return "normal"

    def _inverse_link(self, X) -> np.ndarray:
        """μ of every row at the estimates; of the normal the prediction."""
        return np.asarray(self.predict(X), float)


class OffsetResults(RegressionResults):
    """What a regression answers whose rows may have an offset and trials."""

    def fitted(self, X, offset=None, trials=None):
        """E[y | x] of every row, (n,): of 0 or 1 the probability of 1, of the binomial the rate; of
        a mixed model at the effects of its groups. Arguments as of fit."""
        return self.predict(X, offset=offset, trials=trials)

    def residuals(self, X, y, kind="response", offset=None, trials=None):
        """See RegressionResults.residuals; offset and trials as of fit."""
        y = self._numbers_of(y)
        n = self._counted_trials(trials, len(y), "residuals")
        return self._residuals(y, n, self._inverse_link(X, offset), kind)

    def _counted_trials(self, trials, count: int, verb: str) -> np.ndarray:
        """The trials of every row, 1 of a family without; DataError: the binomial without any."""
        if trials is None and self._family_of_y() == "binomial":
            raise DataError(f"{verb}: family 'binomial' needs the number of trials of each row. "
                            "Pass trials=, an array (n,)")
        column = checked_column(trials, "trials", count)
        return np.ones(count) if column is None else column

    def _inverse_link(self, X, offset=None) -> np.ndarray:
        raise NotImplementedError


def likelihood_ratio_test(small: FitOrEstimator, large: FitOrEstimator):
    """Compare two nested regressions that were fitted to the same rows by maximum likelihood: R's
    anova(small, large), lmtest's lrtest.

    Where the larger model adds the standard deviation of a random effect, or another parameter that
    the smaller has at the boundary of its range, p is too large (Self & Liang 1987).

    Args:
        small, large: fitted estimators; the parameters of the first are among those of the second.

    Returns:
        A DataFrame with the rows "small" and "large": parameters, AIC, BIC, log-likelihood,
        deviance (−2 log L), and chi2, df and p of the test.

    Raises:
        ModelError: what is no fitted regression, has a posterior or a penalty, or not more
            parameters; restricted likelihoods of other fixed effects; a larger model with a lower
            likelihood.
        DataError: they were fitted to other rows.

    Example:
        >>> small = GeneralizedLinearModel("poisson").fit(table[["age"]], y)
        >>> large = GeneralizedLinearModel("poisson").fit(table[["age", "dose"]], y)
        >>> likelihood_ratio_test(small, large)
    """
    from scipy.stats import chi2

    models = {"small": small, "large": large}
    for name, model in models.items():
        if not isinstance(model, RegressionResults) or model._row_sums is None:
            raise ModelError(f"likelihood_ratio_test({name}=...): expected a fitted regression, "
                             f"such as GeneralizedLinearModel or MixedModel, got {type_of(model)}")
        if model.loglik_ is None:
            raise ModelError(f"likelihood_ratio_test({name}=...): the estimate of this "
                             f"{type(model).__name__} is not a maximum of the likelihood, because "
                             f"it has a posterior or a penalty. Use probml.compare")
    small_sums, large_sums = small._row_sums, large._row_sums
    if small_sums.shape != large_sums.shape or not np.allclose(small_sums, large_sums, rtol=1e-9):
        raise DataError(f"likelihood_ratio_test: the models were fitted to different rows or y "
                        f"({small.n_observations_:.0f} and {large.n_observations_:.0f} rows). Fit "
                        "both to the rows in which no column of either model is missing")
    if small._restricted != large._restricted:
        raise ModelError("likelihood_ratio_test: the two models have different fixed effects and "
                         "restricted likelihoods (reml=True), which cannot be compared. Fit both "
                         "with reml=False")
    df, gain = large.n_parameters_ - small.n_parameters_, large.loglik_ - small.loglik_
    if df <= 0:
        raise ModelError(f"likelihood_ratio_test: the second model must be the larger one, but the "
                         f"models have {small.n_parameters_} and {large.n_parameters_} parameters. "
                         f"Give a smaller model first, then one with further terms")
    if gain < -1e-4 * (1 + abs(small.loglik_)) ** 0.5:
        raise ModelError("likelihood_ratio_test: the log-likelihood of the larger model is lower "
                         f"than that of the smaller one, by {-gain:.4g}. Give the larger model "
                         "all terms of the smaller one. If it has them, fit it with more "
                         "iterations")
    statistic = max(2 * gain, 0.0)
    rows = {name: [model.n_parameters_, model.aic_, model.bic_, model.loglik_, -2 * model.loglik_]
            for name, model in models.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=[
        "parameters", "AIC", "BIC", "log-likelihood", "deviance"])
    return table.astype({"parameters": int}).assign(
        chi2=[np.nan, statistic], df=[np.nan, df], p=[np.nan, chi2.sf(statistic, df)])


def is_posterior(fit: Fit) -> bool:
    """Whether all parameters have draws; False of a point, also if effects of groups vary about
    it."""
    return fit.drawn is not None and not fit.belief.partly


def posterior_rows(fit: Fit, names: Sequence[str], index: Sequence[str]) -> np.ndarray:
    """The summary of some parameters of a posterior: mean, sd, 5%, 95%, and what the engine says of
    its draws.

    Args:
        index: what the rows are called.
    """
    sizes = {name: np.size(value) for name, value in fit.params.items()}
    offsets = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
    rows = np.concatenate([offsets[name] + np.arange(sizes[name]) for name in names])
    return fit.summary().iloc[rows].set_axis(index)


def expected_response(fit: Fit, family: str, inputs: SiteValues, units: tuple[float, float],
                      interval: float | None) -> np.ndarray | Interval:
    """E[y] of every row, (n,), of the binomial the rate; averaged over a posterior, effects of new
    members drawn.

    Args:
        inputs: of the rows, as the fit takes them; those that its model has not are left out, and
            those that are None are 0 of an offset, and one trial.
        units: the level of y and its unit in the fit.
        interval: a probability: an Interval (value, lower, upper) of a new y, of the binomial of
            its rate.

    Raises:
        ModelError: an interval of y that is 0 or 1; no probability.
    """
    rows = len(next(value for value in inputs.values() if value is not None))
    defaults = {"offset": np.zeros(rows), "trials": np.ones(rows, int)}
    data = {name: defaults[name] if value is None else value for name, value in inputs.items()
            if name in fit.model.inputs}
    if family == "bernoulli":
        if interval is not None:
            raise ModelError(f"predict(interval={interval!r}): y is 0 or 1, so it has no interval. "
                             f"Omit interval=; predict(X) is the probability of 1")
        return fit.predict_proba(data, "y", unknown="new")[:, 1]
    level, unit = units
    answers = fit.predict(data, "y", interval=interval, unknown="new")
    answers = [answer / data.get("trials", 1) * unit + level
               for answer in (answers if interval else [answers])]
    return Interval(*answers) if interval else answers[0]
