"""The estimator of random-effects meta-analysis."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import chi2, norm

from probml import MAP, DataError
from probml.assessment.intervals import Interval
from probml.engines.engine import Engine
from probml.errors import counted, listed
from probml.estimators.estimator import Estimator, absent
from probml.estimators.rules import SEED, Seed, check, hold, one_of, parameter, within
from probml.estimators.validation import check_is_fitted
from probml.language.given import labels
from probml.models.mixed_models.meta_analysis import meta_analysis
from probml.models.mixed_models.mixed_columns import numbers_of, refuse_dependent, table_of
from probml.models.regression.results import RegressionResults, is_posterior
from probml.models.regression.targets import checked_column
from probml.models.regression.weak_priors import BAYES, ENGINE_OR_BAYES, WEAK, middle_and_spread
from probml.numerics.process.libraries import pd
from probml.posteriors.units import Unit, of_rows, plane


@dataclass(eq=False, repr=False)
class MetaAnalysis(RegressionResults, Estimator):
    """Random-effects meta-analysis and meta-regression of estimates with known standard errors; R's
    metafor::rma.

        y_i ~ N(μ + x_i β, τ² + standard_error_i²)

    The function is probml.models.meta_analysis.

    Args:
        method: of τ: "REML", restricted maximum likelihood; "ML"; "FE": τ = 0, one effect that all
            studies have in common.
        random_state: seed of a sampler; None is 0.
        engine: an engine's value; by default MAP(). "bayes": weakly informative priors that the
            data scale (models/regression/weak_priors.py; τ is exponential with the mean sd(y)), and
            the engine that Model.fit chooses where none is named.

    Attributes:
        intercept_: μ, without moderators the mean effect; coef_ (d,); covariance_ and
        standard_errors_ of both, given τ, as metafor has them; tau_: the standard deviation of true
        effects; Q_, Q_df_, Q_p_: Cochran's test of heterogeneity; I2_: the share of the variance
        that is heterogeneity, in percent; H2_; effects_: a table of the studies: estimate, standard
        error, weight in percent, the shrunken effect (BLUP) and its standard error; loglik_, aic_,
        bic_ as metafor has them; fit_: the probml Fit. Of a posterior estimates are means.

    Examples:
        >>> import numpy as np
        >>> from probml.models import MetaAnalysis
        >>> effect = np.array([-0.9, -1.6, -1.3, -0.2, -0.8, -0.5, 0.0, -0.1])
        >>> error = np.array([0.57, 0.44, 0.64, 0.1, 0.4, 0.25, 0.07, 0.27])
        >>> studies = MetaAnalysis().fit(effect, error)
        >>> print(round(studies.intercept_, 2), round(studies.tau_, 2), round(studies.I2_))
        -0.51 0.43 84
    """

    method: str = parameter("REML", one_of("REML", "ML", "FE"))
    _: KW_ONLY
    random_state: Seed = parameter(None, SEED)
    engine: Engine | str | None = parameter(None, ENGINE_OR_BAYES)

    predict_proba = absent("predict_proba", "it predicts numbers, not classes. Use predict(X)")
    residuals = absent("residuals", "use effects_, which has for every study its own estimate and "
                                    "its effect in the model")
    fitted = absent("fitted", "use predict(X) for the mean effect, or effects_ for the effects of "
                              "the studies")

    def fit(self, y, standard_error, X=None, names=None):
        """Learn from the estimates of studies.

        Args:
            y: (n,), such as log odds ratios. standard_error: (n,), above 0.
            X: moderators, a DataFrame or an array (n, d); None: none.
            names: of the studies; None: the index of y where it is a Series, else numbers.

        Raises:
            ModelError, DataError: a parameter or a number that cannot be used, by name; studies
                that are not more than coefficients.
        """
        check(self)
        index = labels(names, "fit(names)") if names is not None else (
            list(y.index) if hasattr(y, "iloc") else None)
        n = len(y) if hasattr(y, "__len__") and getattr(y, "ndim", 1) != 0 else 0
        y, error = checked_column(y, "y", n), checked_column(standard_error, "standard_error", n)
        if y is None or error is None:
            raise DataError("MetaAnalysis.fit: y or standard_error is None. Pass both, with one "
                            "number for each study")
        if not (error > 0).all():
            row = int(np.argmin(error > 0))
            raise DataError(f"MetaAnalysis.fit: standard_error is {error[row]:g} in row {row}, "
                            f"expected a number above 0 (the standard error is the square root of "
                            f"a variance)")
        x = self._moderators(X)
        p = 1 + x.shape[1]
        if len(x) not in (0, n):
            raise DataError(f"MetaAnalysis.fit: X has {counted(len(x), 'row')}, but there are "
                            f"{counted(n, 'study', 'studies')}. Give X one row for each study")
        if n <= p - (self.method == "FE"):
            raise DataError(f"MetaAnalysis.fit: the number of studies, {n}, must be more than the "
                            f"number of coefficients, {p} (the mean, and one for each column of "
                            "X). Add studies, or drop columns of X")
        x = x if p > 1 else np.zeros((n, 0))
        self.studies_ = list(range(n)) if index is None else list(index)
        if len(self.studies_) != n:
            raise DataError("MetaAnalysis.fit: names= contains "
                            f"{counted(len(self.studies_), 'name')}, expected {n}, one for each "
                            "study")
        self._fit_model(y, error, x)
        self._learn(y, error, np.column_stack([np.ones(n), x]))
        return self

    def _moderators(self, X) -> np.ndarray:
        if X is None:
            self._names, self.n_features_in_ = [], 0
            return np.zeros((0, 0))
        table = table_of(X)
        self._names, self.n_features_in_ = list(table), len(table)
        return numbers_of(table, self._names)

    def _figures(self) -> dict[str, object]:
        base = {name: value for name, value in super()._figures().items()
                if name != "observations"}  # of REML less than there are studies
        return {"studies": len(self.studies_), "Q": float(self.Q_), "I2": float(self.I2_), **base}

    def _coefficient_sites(self) -> tuple[str, ...]:
        return ("intercept", "beta")[: 1 + bool(self._names)]

    def _coefficient_names(self) -> list[str]:
        return ["Intercept", *map(str, self._names)]

    def _coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        return np.append(self.intercept_, self.coef_), self.standard_errors_

    def _fit_model(self, y, error, x) -> None:
        weak = self.engine == BAYES
        level, unit = middle_and_spread(y, np.ones(len(y)), True)
        centre, sd = x.mean(0), x.std(0)
        if not (sd > 0).all():
            name = self._names[int(np.argmin(sd > 0))]
            raise DataError(f"MetaAnalysis.fit: the moderator {name!r} is the same in every study, "
                            "so its coefficient cannot be estimated separately from the mean. Drop "
                            "the moderator")
        refuse_dependent("MetaAnalysis", "moderators", x - centre, self._names)
        data = {"y": (y - level) / unit, "standard_error": error / unit}
        data |= {"x": (x - centre) / sd} if self._names else {}
        settings: dict[str, Any] = {} if self._names else {"x": None}
        settings |= {"tau": 0.0} if self.method == "FE" else {}
        settings |= {name: WEAK[name] for name in ("weight_scale", "bias_scale")} if weak else {}
        engine: Any = None if weak else self.engine or MAP(prior=False,
                                                      restricted=self.method == "REML")
        fit = meta_analysis(**settings).fit(data, engine, seed=self._seed())
        units = {"intercept": Unit(unit, level), "tau": Unit(unit)}
        if self._names:
            units |= plane("beta", "intercept", centre, sd, 1, level, unit,
                           tuple(map(str, self._names)))
        rows = of_rows(y=(level, unit), standard_error=(0.0, unit), x=(centre, sd))
        self.fit_ = replace(fit, units={name: each for name, each in units.items()
                                        if name in fit.params} | rows)
        self.n_iter_, self.converged_ = max(fit.iterations, 1), fit.converged
        self.tau_ = float(fit.params.get("tau", 0.0)) * unit

    def _learn(self, y, error, design) -> None:
        """What follows from τ, in closed form."""
        (n, p), tau2 = design.shape, self.tau_**2
        weights = 1 / (error**2 + tau2)
        self.covariance_ = np.linalg.inv((design.T * weights) @ design)
        beta = self.covariance_ @ (design.T * weights) @ y
        if posterior := is_posterior(self.fit_):
            self.covariance_ = self.fit_._covariance(self._coefficient_sites())
            beta = np.concatenate([np.ravel(self.fit_.units[name].convert(name, self.fit_.params))
                                   for name in self._coefficient_sites()])
        self.intercept_, self.coef_ = float(beta[0]), beta[1:]
        self.standard_errors_ = np.sqrt(np.diag(self.covariance_))
        common_w = 1 / error**2
        common_cov = np.linalg.inv((design.T * common_w) @ design)
        residual = y - design @ (common_cov @ (design.T * common_w) @ y)
        self.Q_, self.Q_df_ = float((common_w * residual**2).sum()), n - p
        self.Q_p_ = float(chi2.sf(self.Q_, self.Q_df_)) if n > p else np.nan
        trace = common_w.sum() - np.trace(common_cov @ (design.T * common_w**2) @ design)
        typical_var = (n - p) / trace if n > p else np.nan
        self.I2_, self.H2_ = 100 * tau2 / (tau2 + typical_var), (tau2 + typical_var) / typical_var
        fitted, shrinkage = design @ beta, tau2 * weights
        mean_var = np.einsum("ij,jk,ik->i", design, self.covariance_, design)
        self.effects_ = pd.DataFrame({
            "estimate": y, "standard error": error, "weight": 100 * weights / weights.sum(),
            "effect": fitted + shrinkage * (y - fitted),
            "effect error": np.sqrt(shrinkage * error**2 + (1 - shrinkage) ** 2 * mean_var),
        }, index=pd.Index(self.studies_, name="study"))
        restricted = self.method == "REML"
        loglik = norm.logpdf(y, fitted, weights**-0.5).sum()
        if restricted:  # of n − p contrasts, as metafor's
            loglik += (p * np.log(2 * np.pi) + np.linalg.slogdet(self.covariance_)[1]
                       + np.linalg.slogdet(design.T @ design)[1]) / 2
        self._learn_likelihood(None if posterior else loglik, p + (self.method != "FE"),
                               np.column_stack([y, error]), np.ones(n),
                               tuple(map(str, self._names)) if restricted else None)
        self.n_observations_ = float(n - p * restricted)

    def forest_table(self, level=0.95):
        """The studies with their intervals, and without moderators the mean effect as the last row:
        what pictures.forest draws.

        Args:
            level: the probability of the intervals.

        Returns:
            A DataFrame: estimate, lower, upper, weight.

        Raises:
            ModelError: no probability.
        """
        hold("forest_table", level=(level, within(0, 1)))
        check_is_fitted(self, "fit_")
        half = norm.ppf((1 + level) / 2)
        table = self.effects_[["estimate", "weight"]]
        error = self.effects_["standard error"]
        table = table.assign(lower=table["estimate"] - half * error,
                             upper=table["estimate"] + half * error)
        if self._names:
            return table
        mean, delta = self.intercept_, half * self.standard_errors_[0]
        total = pd.DataFrame({"estimate": [mean], "lower": [mean - delta], "upper": [mean + delta]},
                             index=[f"mean (I² {self.I2_:.0f}%)"])
        return pd.concat([table, total])

    def predict(self, X=None, interval=None):
        """The mean effect, of moderators X (m, d) those of such studies, (m,).

        Args:
            interval: a probability, such as 0.95: answer with an Interval (value, lower, upper),
                the prediction interval of the true effect of a new study.

        Raises:
            DataError: X of other columns. ModelError: no probability.
        """
        check_is_fitted(self, "fit_")
        table = {} if X is None else table_of(X)
        if missing := [name for name in self._names if name not in table]:
            raise DataError(f"predict: X has no column {missing[0]!r}. Give the columns of the "
                            f"fitted data, {listed(self._names)}")
        x = numbers_of(table, self._names) if self._names else np.zeros((1, 0))
        design = np.column_stack([np.ones(len(x)), x])
        mean = design @ np.append(self.intercept_, self.coef_)
        if interval is None:
            return mean
        hold("predict", interval=(interval, within(0, 1)))
        mean_var = np.einsum("ij,jk,ik->i", design, self.covariance_, design)
        half = norm.ppf((1 + interval) / 2) * np.sqrt(mean_var + self.tau_**2)
        return Interval(mean, mean - half, mean + half)
