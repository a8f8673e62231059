"""scikit-learn estimators of generalized linear models and of robust regression."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import jax
import numpy as np

from probml import EM, MAP, DataError, ModelError
from probml.engines.engine import Engine
from probml.estimators.estimator import replace_given
from probml.estimators.rules import (
    ENGINE,
    FLAG,
    SEED,
    Seed,
    integer,
    number,
    one_of,
    optional,
    parameter,
)
from probml.estimators.validation import (
    check_consistent_length,
    check_is_fitted,
    check_sample_weight,
    column_or_1d,
)
from probml.models.frames.standardized import Numeric, directions, row_weights, without_prior
from probml.models.regression.family_functions import (
    best_level,
    inverse_link,
    log_density,
    mean_of_y,
    unit_deviance,
    variance_function,
)
from probml.models.regression.generalized_linear import (
    ALIASES,
    FAMILIES,
    LINKS,
    ZEROS,
    generalized_linear,
    robust_regression,
)
from probml.models.regression.results import (
    OffsetResults,
    RegressionResults,
    expected_response,
    is_posterior,
    posterior_rows,
)
from probml.models.regression.targets import (
    COUNTS,
    asked_offset,
    check_targets,
    checked_column,
    family_of_targets,
)
from probml.models.regression.weak_priors import (
    BAYES,
    ENGINE_OR_BAYES,
    WEAK,
    middle_and_spread,
    refuse_exact,
    units_of,
)
from probml.numerics.process.libraries import pd
from probml.posteriors.units import roots_in_units

# whose coefficients are orthogonal to their other parameters: Fisher's information is known
FISHER = ("normal", "bernoulli", "binomial", "poisson", "negative binomial", "gamma")


@dataclass(eq=False, repr=False)
class GeneralizedLinearModel(OffsetResults, Numeric):
    """A generalized linear model: g(E[y | x]) = x β + b + offset, y of a family; R's glm,
    statsmodels' GLM.

        max over β, b:  Σ_i weight_i log p(y_i | x_i) − penalty/2 · |β|²

    The function is probml.models.generalized_linear. penalty=0 is maximum likelihood; else β ~ N(0,
    1/penalty), of a normal y N(0, σ²/penalty) (ridge), the intercept flat (scikit-learn's
    PoissonRegressor has alpha = penalty / n). engine="bayes" gives a posterior under weakly
    informative priors that the data scale, those of rstanarm (models/regression/weak_priors.py):
    where classes are separated, or columns are more than rows, it has an answer too.
    engine=probml.Laplace() or NUTS() gives a posterior under flat priors, or that of the penalty.
    Predictions are averaged over a posterior.

    Args:
        family: "normal" (or "gaussian"), "binomial" (y successes of `trials`, or 0 or 1 without
            them), "bernoulli", "poisson", "negative binomial" (or "negative_binomial"), "gamma",
            "beta", "student_t", "zero_inflated_poisson", "zero_inflated_negative_binomial",
            "hurdle_poisson" (or "hurdle"); models/regression/generalized_linear.py has their
            densities.
        link: "identity", "log", "logit", "probit", "cloglog" or "inverse"; None: the family's own
            (models/regression/generalized_linear.py).
        penalty: of |β|²/2, in squared units of each column.
        fit_intercept: with b.
        max_iter: Newton's or L-BFGS iterations.
        random_state: seed of a sampler; None is 0.
        engine: an engine's value; by default MAP(). "bayes": default priors, and the engine that
            Model.fit chooses where none is named.

    Attributes:
        coef_ (d,), intercept_, of a posterior the means; dispersion_: φ, 1 of counts, else
        Pearson's χ² / (n − p), p the rank of the columns; covariance_ (p, p) of (b, β) and
        standard_errors_ (p,), which the summary of fit_ has too: from Fisher's information at the
        penalty, times φ; of a posterior its covariance and standard deviations. A coefficient that
        the rows do not identify, of a column that is the sum of others, has a standard error of ∞,
        and covariance_ is that of the shortest coefficients that fit as well; deviance_,
        null_deviance_, of the model without columns but with the offset, as R's; of a posterior
        those at its means, absent of families with added zeros;
        concentration_ of gamma, negative binomial and beta; zero_probability_ of those with added
        zeros; df_ and noise_ of student_t; loglik_, of maximum likelihood, with aic_ and bic_,
        n_parameters_ and n_observations_; n_iter_, converged_, history_, fit_: the probml Fit,
        whose data are those of as_data.

    Separated classes without penalty are warned of. Cost: as probml.MAP; then one product of the
    rows for the information.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> quakes = pd.read_csv(files("probml.data") / "earthquakes.csv")
        >>> from probml.models import GeneralizedLinearModel
        >>> X = (quakes[["year"]] - 1950) / 10
        >>> glm = GeneralizedLinearModel("poisson").fit(X, quakes["count"])
        >>> print(glm.coef_.round(3))
        [-0.038]
        >>> print(glm.predict(X[50:51]).round(1))
        [19.5]
    """

    _title: ClassVar[str] = "Generalized linear model"

    family: str = parameter("normal", one_of(*FAMILIES, *ALIASES))
    _: KW_ONLY
    link: str | None = parameter(None, optional(one_of(*LINKS)))
    penalty: float = parameter(0.0, number(0.0))
    fit_intercept: bool = parameter(True, FLAG)
    max_iter: int = parameter(1000, integer(1))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | str | None = parameter(None, ENGINE_OR_BAYES)

    def fit(self, X, y, sample_weight=None, offset=None, trials=None):
        """Learn from rows X (n, d) and y (n,).

        Args:
            offset: (n,), added to the linear predictor, such as the log of an exposure.
            trials: (n,), of the binomial.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name; y outside the family's support.
        """
        raw_X = X
        X, y, weights, rows = self._read(X, y, sample_weight)
        n_given = (getattr(raw_X, "shape", None) or np.asarray(raw_X).shape)[0]
        offset, trials = (checked_column(offset, "offset", n_given, rows),
                          checked_column(trials, "trials", n_given, rows))
        self._family = family = family_of_targets(self.family, trials)
        check_targets(family, y, trials, rows)
        self._link, weak = self.link or FAMILIES[family], self.engine == BAYES
        if weak and self.penalty:
            raise ModelError(f"GeneralizedLinearModel(penalty={self.penalty!r}, engine='bayes'): "
                             f"penalty= and engine='bayes' both give priors of the coefficients. "
                             f"Use one of them")
        x, is_normal = self._frame(X, weights, force=weak), family == "normal"
        (self._level, self._spread), (self._base, self._slope) = units_of(
            family, self._link, y, weights, self.fit_intercept, weak)
        if weak and is_normal and self._link == "identity":
            refuse_exact(x, self._about(y), self.fit_intercept)
        data = {"x": x, "y": y.astype(int) if family in COUNTS else self._about(y),
                "offset": None if offset is None else offset / self._slope, "trials": trials}
        data = {name: value for name, value in data.items() if value is not None}
        fixed: dict[str, object] = {name: value for name, value in (("offset", 0.0), ("trials", 1))
                                    if name not in data}
        priors: Mapping[str, object] = WEAK if weak else {
            "weight_scale": "each" if self.penalty else None, "bias_scale": None}
        fixed |= priors if self.fit_intercept else {**priors, "bias_scale": 0}
        model = generalized_linear(family=family, link=self._link, **fixed)
        engine = None if weak else without_prior(self.engine or MAP(steps=int(self.max_iter)),
                                                 self.penalty)
        data |= {"weight_scale": self._unit / np.sqrt(self.penalty)} if self.penalty else {}
        # a point has the same coefficients whatever the noise
        if is_normal and engine and engine.capabilities.finds == "point":
            data |= {"variance": 1.0}
        level = self._first_level(self._about(y), weights, trials)
        start = {"beta": np.zeros(X.shape[1])}
        start |= {"intercept": level} if self.fit_intercept else {}
        self._found(model.fit(data, engine, weights=row_weights(weights), seed=self._seed(),
                              start=start))
        params = self.fit_.params
        coef, intercept = self._planes(params["beta"][:, None] * self._slope,
                                       np.reshape(params.get("intercept", 0.0), -1) * self._slope)
        self.coef_, self.intercept_ = coef[0], float(intercept[0]) + self._base
        for name in ("concentration", "zero_probability", "df"):
            if name in params:
                setattr(self, f"{name}_", float(params[name]))
        if family == "student_t":
            self.noise_ = float(params["sigma"]) * self._spread
        self._learn_dispersion(X, y, weights, 0.0 if offset is None else offset,
                               np.ones(len(y)) if trials is None else trials, data)
        return self

    def _first_level(self, y, weights, trials) -> np.ndarray:
        """The intercept at which the mean is that of y, kept inside what the link can reach."""
        mean = np.average(y if trials is None else y / trials, weights=weights)
        if self._link in ("logit", "probit", "cloglog"):
            mean = np.clip(mean, 1e-3, 1 - 1e-3)
        elif self._link in ("log", "inverse"):
            mean = max(mean, 1e-3)
        inverse: dict[str, Callable] = {
            "identity": lambda m: m, "log": np.log, "logit": lambda m: np.log(m / (1 - m)),
            "inverse": lambda m: 1 / m, "cloglog": lambda m: np.log(-np.log1p(-m)),
            "probit": lambda m: float(jax.scipy.stats.norm.ppf(m))}  # fmt: skip
        return np.asarray(inverse[self._link](mean), float)

    def _learn_dispersion(self, X, y, weights, offset, trials, data) -> None:
        """Deviance, dispersion, log likelihood and the covariance of the coefficients, at the point
        that was found; `data`: the rows as they were fitted."""
        family, extra = self._family, self._family_parameters()
        mu, slope = self._means(X, offset)
        variance, counts = variance_function(family, mu, trials, extra), y
        y = y / trials
        design, digits, rank = self._design(X), self._digits(X), self._rank(X, weights)
        dof = weights.sum() - rank
        squares = weights * (y - mean_of_y(family, mu, extra)) ** 2
        pearson = float((squares / variance).sum())
        self.dispersion_ = (1.0 if family not in ("normal", "gamma")
                            else pearson / dof if dof > 0 else np.nan)
        if family in FISHER:
            rows = design * (slope * np.sqrt(weights / variance))[:, None]
            if self.penalty:
                prior = np.concatenate([np.zeros(int(self.fit_intercept)),
                                        self.penalty / self._unit**2])
                prior *= self.dispersion_ if family == "gamma" else 1.0
                rows = np.concatenate([rows, np.diag(np.sqrt(prior))])
            known, singular, axes = directions(rows, digits)
            self._learn_errors((axes[known] / singular[known, None]) * np.sqrt(self.dispersion_),
                               1 - (axes[known] ** 2).sum(0) > 1e-11)
        else:
            self.covariance_ = self.fit_._covariance(self._coefficient_sites(), data,
                                                     row_weights(weights))
            self.standard_errors_ = np.sqrt(np.diag(self.covariance_))
        if family not in ZEROS:
            self.deviance_ = self._deviance(y, mu, weights, trials)
            null_mu = (self._null_means(y, offset, weights, trials) if self.fit_intercept
                       else inverse_link(self._link, np.broadcast_to(offset, y.shape))[0])
            self.null_deviance_ = self._deviance(y, null_mu, weights, trials)
        if family == "normal":  # that of maximum likelihood, which the fit has not
            extra = {"sigma": np.sqrt(squares.sum() / weights.sum())}
        loglik = float((weights * log_density(family, y, mu, trials, extra)).sum())
        n_more = len({*self.fit_.params} - {"intercept", "beta", "variance"}) + (family == "normal")
        is_ml = not (self.penalty or self.engine == BAYES or is_posterior(self.fit_))
        self._learn_likelihood(loglik if is_ml else None, rank + n_more, counts, weights)

    def _family_of_y(self) -> str:
        return getattr(self, "_family", self.family)

    def _inverse_link(self, X, offset=None) -> np.ndarray:
        X = self._require_complete(X, reset=False)
        offset = asked_offset(self.fit_, offset, len(X))
        return self._means(X, 0.0 if offset is None else offset)[0]

    def _learn_errors(self, root: np.ndarray, unidentified: np.ndarray) -> None:
        """The covariance of (b, β), and their standard errors as the summary has them: of a
        posterior its own.

        Args:
            root: columns of a root of the covariance of a point, (k, p), in the frame of X.
            unidentified: (p,), which no row tells.
        """
        n_const, fit = int(self.fit_intercept), self.fit_
        planes = ("intercept", "beta")[1 - n_const :]
        if fit.belief.varies or self.engine == BAYES:
            self.covariance_ = fit._covariance(planes)
            self.standard_errors_ = np.sqrt(np.diag(self.covariance_))
            return
        if self._family == "normal" and 0 < self.dispersion_ < np.inf:
            fit = replace_given(fit, {"variance": self.dispersion_ / self._spread**2})
        roots = {"beta": root[:, n_const:] / self._slope}
        roots |= {"intercept": root[:, 0] / self._slope} if n_const else {}
        roots = roots_in_units(fit.units, roots)
        root = np.column_stack([roots[name] for name in planes])
        self.covariance_ = root.T @ root
        self.standard_errors_ = np.where(unidentified, np.inf, np.sqrt(np.diag(self.covariance_)))
        errors = {"intercept": self.standard_errors_[0]} if n_const else {}
        self.fit_ = replace(fit, errors={"beta": self.standard_errors_[n_const:], **errors})

    def _means(self, X, offset) -> tuple[np.ndarray, np.ndarray]:
        """μ and dμ/dη at rows X."""
        return inverse_link(self._link, X @ self.coef_ + self.intercept_ + offset)

    def _null_means(self, y, offset, weights, trials) -> np.ndarray:
        """μ of every row in a model with an intercept and the offset alone, (n,)."""
        if not np.ptp(offset):
            return np.full_like(y, np.average(y, weights=weights * trials))
        return best_level(self._link, self._first_level(y, weights * trials, None), offset,
                          lambda mu: self._deviance(y, mu, weights, trials))

    def _deviance(self, y, mu, weights, trials) -> float:
        """2 Σ weight (log p(y | μ = y) − log p(y | μ))."""
        return float((weights * unit_deviance(self._family_of_y(), y, mu, trials,
                                              self._family_parameters())).sum())

    def predict(self, X, offset=None, interval=None, trials=None):
        """E[y | x], (n,), of the binomial the rate; averaged over a posterior, where there is one.

        Args:
            interval: a probability, such as 0.9: answer with an Interval (value, lower, upper), the
                bounds of a new y, of the binomial of its rate in so many `trials`, (n,) (1).

        Raises:
            ModelError: an interval of y that is 0 or 1; no probability.
        """
        check_is_fitted(self, "coef_")
        X = self._require_complete(X, reset=False)
        offset = asked_offset(self.fit_, offset, len(X))
        trials = checked_column(trials, "trials", len(X))
        family = self._family_of_y()
        if interval is None and not is_posterior(self.fit_):
            return mean_of_y(family, self._means(X, 0.0 if offset is None else offset)[0],
                             self._family_parameters())
        inputs = {"x": self._standardize(X), "trials": trials,
                  "offset": None if offset is None else offset / self._slope}
        return expected_response(self.fit_, family, inputs, (self._level, self._spread), interval)

    def log_prob(self, X, y, offset=None, trials=None):
        """log p(y | x) of every row, (n,), in units of y; where the engine has a posterior,
        averaged over it. Arguments as of fit."""
        data, columns = self.as_data(X, y), {"offset": offset, "trials": trials}
        data |= {name: column for name, values in columns.items()
                 if (column := checked_column(values, name, len(data["x"]))) is not None}
        data |= {} if offset is None else {"offset": data["offset"] / self._slope}
        return self.fit_.log_prob(data) - np.log(self._spread)

    def score(self, X, y, sample_weight=None, offset=None, trials=None):
        """D², the share that is explained of the deviance of a model with an intercept and the
        offset alone; R² of the normal, and of families with added zeros. Arguments as of fit."""
        check_is_fitted(self, "coef_")
        mu, y = self._inverse_link(X, offset), column_or_1d(np.asarray(y, float))
        check_consistent_length(mu, y)
        weights = check_sample_weight(sample_weight, y, dtype=float, ensure_non_negative=True)
        trials = self._counted_trials(trials, len(y), "score")
        y, family, extra = y / trials, self._family_of_y(), self._family_parameters()
        if family in ZEROS:
            unexplained, total = ((weights * (y - means) ** 2).sum() for means in (
                mean_of_y(family, mu, extra), np.average(y, weights=weights)))
        else:
            offset = 0.0 if offset is None else checked_column(offset, "offset", len(y))
            unexplained, total = (self._deviance(y, means, weights, trials)
                                  for means in (mu, self._null_means(y, offset, weights, trials)))
        return float(1 - unexplained / total) if total > 0 else 0.0

    def table(self):
        """A pandas table: a row for the intercept and each column; estimate, standard error, z,
        two-sided p of the normal; of a posterior mean, sd, 5%, 95%."""
        from scipy.stats import norm

        check_is_fitted(self, "coef_")
        names = list(getattr(self, "feature_names_in_",
                             [f"x{j}" for j in range(self.n_features_in_)]))
        names = ["intercept"] * int(self.fit_intercept) + names
        if is_posterior(self.fit_):
            return posterior_rows(self.fit_, self._coefficient_sites(), names)
        estimate = np.concatenate([[self.intercept_] * int(self.fit_intercept), self.coef_])
        z = estimate / self.standard_errors_
        columns = {"estimate": estimate, "standard error": self.standard_errors_, "z": z,
                   "p": 2 * norm.sf(np.abs(z))}
        return pd.DataFrame(columns, index=names)


@dataclass(eq=False, repr=False)
class RobustRegression(RegressionResults, Numeric):
    """Linear regression with Student's t noise: outliers weigh little (Lange, Little & Taylor
    1989).

        y = x β + b + scale · ε,   ε ~ Student t with df degrees of freedom

    Fitted by EM: t noise is normal noise whose precision differs from row to row, so that a step is
    least squares with the rows' expected precisions as weights; none lowers the likelihood. The
    function is probml.models.robust_regression.

    Args:
        df: degrees of freedom; small is robust, 4 a usual choice; None: learnt, by maximum
            likelihood.
        penalty: of |β|²/2, in squared units of each column; 0: maximum likelihood.
        fit_intercept: with b.
        tol, max_iter: of EM.
        random_state: seed of a sampler; None is 0.
        engine: an engine's value; by default EM().

    Attributes:
        coef_ (d,), intercept_, scale_, df_, n_iter_, converged_, history_: the log likelihood;
        fit_: the probml Fit, of as_data.

    With df below about 2 there may be several maxima: EM starts at least squares.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> penguins = pd.read_csv(files("probml.data") / "penguins.csv").dropna()
        >>> X = penguins[["flipper_length_mm", "bill_length_mm"]]
        >>> y = penguins["body_mass_g"]
        >>> from probml.models import RobustRegression
        >>> robust = RobustRegression(df=4.0).fit(X, y)
        >>> print(robust.coef_.round(0))
        [49.  5.]
    """

    df: float | None = parameter(4.0, optional(number(0.0, above=True)))
    _: KW_ONLY
    penalty: float = parameter(0.0, number(0.0))
    fit_intercept: bool = parameter(True, FLAG)
    tol: float = parameter(1e-9, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name; y that a plane goes through.
        """
        X, y, weights, _ = self._read(X, y, sample_weight)
        n, d = X.shape
        if n <= d + int(self.fit_intercept):
            raise DataError(f"n_samples={n}: the columns (n_features={d}) and an intercept fit "
                            f"every row exactly, so the residual scale is 0. Give more rows")
        x = self._frame(X, weights, force=True)
        self._level, self._spread = level, spread = middle_and_spread(y, weights,
                                                                      self.fit_intercept)
        design = np.column_stack([x, np.ones(n)]) if self.fit_intercept else x
        root = np.sqrt(weights)
        coefs = np.linalg.lstsq(design * root[:, None], (y - level) / spread * root, rcond=None)[0]
        resid = (y - level) / spread - design @ coefs
        if np.sqrt(np.average(resid**2, weights=weights)) < 1e-10:
            raise DataError("a linear function of the columns fits every row of y exactly, so the "
                            "residual scale is 0 and a robust regression is undefined. Use "
                            "family='gaussian', or check y")
        model = robust_regression(
            df=None if self.df is None else float(self.df),
            weight_scale="each" if self.penalty else None,
            bias_scale=None if self.fit_intercept else 0
        )
        data = {"x": x, "y": self._about(y)}
        data |= {"weight_scale": self._unit / spread / np.sqrt(self.penalty)
                 } if self.penalty else {}
        start = {"beta": coefs[:d], "variance": np.asarray(np.average(resid**2, weights=weights))}
        start |= {"intercept": np.asarray(coefs[d])} if self.fit_intercept else {}
        start |= {"df": np.asarray(4.0)} if self.df is None else {}
        engine = without_prior(self.engine or EM(tolerance=float(self.tol),
                                                 max_iterations=int(self.max_iter)), self.penalty)
        self._found(model.fit(data, engine, weights=row_weights(weights), seed=self._seed(),
                              start=start))
        params = self.fit_.params
        coef, intercept = self._planes(params["beta"][:, None] * spread,
                                       np.reshape(params.get("intercept", 0.0), -1) * spread)
        self.coef_, self.intercept_ = coef[0], float(intercept[0]) + self._level
        self.scale_, self.df_ = (float(np.sqrt(params["variance"])) * spread,
                                 float(params.get("df", self.df or 0.0)))
        is_ml = not (self.penalty or is_posterior(self.fit_))
        log_probs = log_density("student_t", y, X @ self.coef_ + self.intercept_, 1,
                                self._family_parameters())
        self._learn_likelihood(float((weights * log_probs).sum()) if is_ml else None,
                               self._rank(X, weights) + 1 + (self.df is None), y, weights)
        return self

    def _family_of_y(self) -> str:
        return "student_t"

    def _family_parameters(self):
        return {"sigma": self.scale_, "df": self.df_}

    def predict(self, X, interval=None):
        """x β + b, (n,).

        Args:
            interval: a probability, such as 0.9: answer with an Interval (value, lower, upper), the
                bounds of a new y.

        Raises:
            ModelError: no probability.
        """
        check_is_fitted(self, "coef_")
        if interval is not None:
            return expected_response(self.fit_, "student_t", self.as_data(X),
                                     (self._level, self._spread), interval)
        return self._require_complete(X, reset=False) @ self.coef_ + self.intercept_

    def row_weights(self, X, y):
        """The expected precision of every row given y, (df + 1) / (df + (residual/scale)²), (n,):
        near 0 for outliers."""
        residual = (self._numbers_of(y) - self.predict(X)) / self.scale_
        return (self.df_ + 1) / (self.df_ + residual**2)
