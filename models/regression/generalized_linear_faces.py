"""scikit-learn faces of generalized linear models and of robust regression."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import xlogy

from probml import EM, MAP, DataError, ModelError
from probml.estimators.face import regiven
from probml.estimators.rules import ENGINE, FLAG, SEED, number, one_of, optional, parameter, whole
from probml.estimators.validation import (
    check_consistent_length,
    check_is_fitted,
    check_sample_weight,
    column_or_1d,
)
from probml.models.frames.framed import Numeric, counted, unpenalised
from probml.models.regression.generalized_linear import FAMILIES, LINKS, generalized_linear
from probml.models.regression.posterior_answers import is_posterior, posterior_rows, predicted
from probml.models.regression.robust_regression import robust_regression
from probml.models.regression.targets import COUNTS, beside, check_targets
from probml.models.regression.weak_priors import (
    BAYES,
    ENGINE_OR_BAYES,
    WEAK,
    middle_and_spread,
    refuse_exact,
    units_of,
)
from probml.posteriors.units import ways_in_units

try:
    from sklearn.metrics import mean_gamma_deviance, mean_poisson_deviance, mean_squared_error
except ModuleNotFoundError as error:
    raise ImportError(f"the estimators of probml.models need scikit-learn ({error}): pip install "
                      f"probml[sklearn]") from error


@dataclass(eq=False, repr=False)
class GeneralizedLinearModel(Numeric):
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
        family: "normal", "bernoulli" (y is 0 or 1), "binomial" (y successes of `trials`),
            "poisson", "negative binomial", "gamma".
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
        null_deviance_, of a posterior those at its means; concentration_ of gamma and negative
        binomial; n_iter_, converged_, history_, fit_: the probml Fit, whose data are those of
        as_data.

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

    family: str = parameter("normal", one_of(*FAMILIES))
    _: KW_ONLY
    link: str | None = parameter(None, optional(one_of(*LINKS)))
    penalty: float = parameter(0.0, number(0.0))
    fit_intercept: bool = parameter(True, FLAG)
    max_iter: int = parameter(1000, whole(1))
    random_state: Any = parameter(None, SEED)
    engine: Any = parameter(None, ENGINE_OR_BAYES)

    def fit(self, X, y, sample_weight=None, offset=None, trials=None):
        """Learn from rows X (n, d) and y (n,).

        Args:
            offset: (n,), added to the linear predictor, such as the log of an exposure.
            trials: (n,), of the binomial.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name; y outside the family's support.
        """
        given = X
        X, y, weights, rows = self._read(X, y, sample_weight)
        count = (getattr(given, "shape", None) or np.asarray(given).shape)[0]
        offset, trials = (beside(offset, "offset", count, rows),
                          beside(trials, "trials", count, rows))
        check_targets(self.family, y, trials, rows)
        self._link, weak = self.link or FAMILIES[self.family], self.engine == BAYES
        if weak and self.penalty:
            raise ModelError(f"GeneralizedLinearModel(penalty={self.penalty}, engine='bayes'): "
                             f"both are priors of the coefficients: use one of them")
        x, normal = self._frame(X, weights, always=weak), self.family == "normal"
        (self._level, self._spread), (self._base, self._slope) = units_of(
            self.family, self._link, y, weights, self.fit_intercept, weak)
        if weak and normal and self._link == "identity":
            refuse_exact(x, self._about(y), self.fit_intercept)
        data = {"x": x, "y": y.astype(int) if self.family in COUNTS else self._about(y),
                "offset": None if offset is None else offset / self._slope, "trials": trials}
        data = {name: value for name, value in data.items() if value is not None}
        fixed = {name: value for name, value in (("offset", 0.0), ("trials", 1))
                 if name not in data}
        priors = WEAK if weak else {"weight_scale": "each" if self.penalty else None,
                                    "bias_scale": None}
        fixed |= priors if self.fit_intercept else {**priors, "bias_scale": 0}
        model = generalized_linear(family=self.family, link=self._link, **fixed)
        engine = None if weak else unpenalised(self.engine or MAP(steps=int(self.max_iter)),
                                               self.penalty)
        data |= {"weight_scale": self._unit / np.sqrt(self.penalty)} if self.penalty else {}
        # a point has the same coefficients whatever the noise
        data |= {"variance": 1.0} if normal and engine and engine.finds == "point" else {}
        level = self._first_level(self._about(y), weights, trials)
        start = {"beta": np.zeros(X.shape[1])} | ({"bias": level} if self.fit_intercept else {})
        self._found(model.fit(data, engine, weights=counted(weights), seed=self._seed(),
                              start=start))
        params = self.fit_.params
        coef, intercept = self._planes(params["beta"][:, None] * self._slope,
                                       np.reshape(params.get("bias", 0.0), -1) * self._slope)
        self.coef_, self.intercept_ = coef[0], float(intercept[0]) + self._base
        if "concentration" in params:
            self.concentration_ = float(params["concentration"])
        self._judge_fit(X, y, weights, 0.0 if offset is None else offset,
                        np.ones(len(y)) if trials is None else trials)
        return self

    def _first_level(self, y, weights, trials) -> np.ndarray:
        """The intercept at which the mean is that of y, kept inside what the link can reach."""
        mean = np.average(y if trials is None else y / trials, weights=weights)
        if self.family in COUNTS[:2]:
            mean = np.clip(mean, 1e-3, 1 - 1e-3)
        elif self._link in ("log", "inverse"):
            mean = max(mean, 1e-3)
        inverse = {
            "identity": lambda m: m, "log": np.log, "logit": lambda m: np.log(m / (1 - m)),
            "inverse": lambda m: 1 / m,
            "cloglog": lambda m: np.log(-np.log1p(-m)),
            "probit": lambda m: float(jax.scipy.stats.norm.ppf(m)),
        }  # fmt: skip
        return np.asarray(inverse[self._link](mean), float)

    def _judge_fit(self, X, y, weights, offset, trials) -> None:
        """Deviance, dispersion and the information, at the point that was found."""
        mean, slope = self._means(X, offset)
        spread = {
            "normal": lambda m: np.ones_like(m), "gamma": lambda m: m**2, "poisson": lambda m: m,
            "negative binomial": lambda m: m + m**2 / self.concentration_,
        }.get(self.family, lambda m: np.maximum(m * (1 - m), 1e-300) / trials)(mean)  # fmt: skip
        y = y / trials
        design = (np.column_stack([np.ones(len(X)), self._framed(X)]) if self.fit_intercept
                  else self._framed(X))
        digits = self._digits(X)
        free = weights.sum() - _directions(design * np.sqrt(weights)[:, None], digits)[0].sum()
        pearson = float((weights * (y - mean) ** 2 / spread).sum())
        self.dispersion_ = 1.0 if self.family in COUNTS else pearson / free if free > 0 else np.nan
        told = design * (slope * np.sqrt(weights / spread))[:, None]
        if self.penalty:
            prior = np.concatenate([np.zeros(int(self.fit_intercept)),
                                    self.penalty / self._unit**2])
            prior *= self.dispersion_ if self.family == "gamma" else 1.0
            told = np.concatenate([told, np.diag(np.sqrt(prior))])
        known, size, turned = _directions(told, digits)
        self._learn_errors((turned[known] / size[known, None]) * np.sqrt(self.dispersion_),
                           (np.abs(turned[~known]) > 1e-6).any(0))
        level = np.average(y, weights=weights * trials)
        self.deviance_ = self._deviance(y, mean, weights, trials)
        self.null_deviance_ = self._deviance(y, np.full_like(y, level), weights, trials)

    def _learn_errors(self, root: np.ndarray, unknown: np.ndarray) -> None:
        """The covariance of (b, β), and their standard errors as the summary has them: of a
        posterior its own.

        Args:
            root: columns of a root of the covariance of a point, (k, p), in the frame of X.
            unknown: (p,), which no row tells.
        """
        first, fit = int(self.fit_intercept), self.fit_
        planes = ("bias", "beta")[1 - first :]
        if fit.belief.varies or self.engine == BAYES:
            self.covariance_ = fit._covariance(planes)
            self.standard_errors_ = np.sqrt(np.diag(self.covariance_))
            return
        if self.family == "normal" and 0 < self.dispersion_ < np.inf:
            fit = regiven(fit, {"variance": self.dispersion_ / self._spread**2})
        ways = {"beta": root[:, first:] / self._slope}
        ways |= {"bias": root[:, 0] / self._slope} if first else {}
        ways = ways_in_units(fit.units, ways)
        root = np.column_stack([ways[name] for name in planes])
        self.covariance_ = root.T @ root
        self.standard_errors_ = np.where(unknown, np.inf, np.sqrt(np.diag(self.covariance_)))
        errors = {"beta": self.standard_errors_[first:]}
        errors |= {"bias": self.standard_errors_[0]} if first else {}
        self.fit_ = replace(fit, errors=errors)

    def _digits(self, X) -> float:
        """What rounding of its cells, of a unit of a column."""
        return float(np.finfo(float).eps * np.max(np.abs(X).max(0) / self._unit, initial=1.0))

    def _means(self, X, offset) -> tuple[np.ndarray, np.ndarray]:
        """μ and dμ/dη at rows X."""
        with jax.enable_x64(True):  # a large mean needs its digits
            eta = jnp.asarray(X @ self.coef_ + self.intercept_ + offset)
            mean, slope = jax.jvp(LINKS[self._link], (eta,), (jnp.ones_like(eta),))
        return np.asarray(mean, float), np.asarray(slope, float)

    def _deviance(self, y, mean, weights, trials) -> float:
        """2 Σ weight (log p(y | μ = y) − log p(y | μ))."""
        total = weights.sum()
        if self.family == "normal":
            return float(total * mean_squared_error(y, mean, sample_weight=weights))
        if self.family == "poisson":
            return float(total * mean_poisson_deviance(y, np.maximum(mean, 1e-300),
                                                       sample_weight=weights))
        if self.family == "gamma":
            return float(total * mean_gamma_deviance(y, mean, sample_weight=weights))
        if self.family == "negative binomial":
            r = self.concentration_
            parts = xlogy(y, y) - xlogy(y, mean) - (y + r) * (np.log(y + r) - np.log(mean + r))
        else:
            parts = trials * (
                xlogy(y, y) - xlogy(y, mean) + xlogy(1 - y, 1 - y) - xlogy(1 - y, 1 - mean)
            )
        return float(2 * (weights * parts).sum())

    def predict(self, X, offset=None, interval=None, trials=None):
        """E[y | x], (n,), of the binomial the rate; averaged over a posterior, where there is one.

        Args:
            interval: a probability, such as 0.9: answer with an Interval (value, lower, upper), the
                bounds of a new y, of the binomial of its rate in so many `trials`, (n,) (1).

        Raises:
            ModelError: an interval of y that is 0 or 1; no probability.
        """
        check_is_fitted(self, "coef_")
        X = self._whole(X, reset=False)
        offset, trials = beside(offset, "offset", len(X)), beside(trials, "trials", len(X))
        if interval is None and not is_posterior(self.fit_):
            return self._means(X, 0.0 if offset is None else offset)[0]
        inputs = {"x": self._framed(X), "trials": trials,
                  "offset": None if offset is None else offset / self._slope}
        return predicted(self.fit_, self.family, inputs, (self._level, self._spread), interval)

    def score(self, X, y, sample_weight=None):
        """D², the share of the null deviance that is explained; R² of the normal."""
        check_is_fitted(self, "coef_")
        X, y = self._whole(X, reset=False), column_or_1d(np.asarray(y, float))
        check_consistent_length(X, y)
        ones, weights = np.ones(len(y)), check_sample_weight(sample_weight, X, dtype=float,
                                                              ensure_non_negative=True)
        null = self._deviance(y, np.full_like(y, np.average(y, weights=weights)), weights, ones)
        return 1 - self._deviance(y, self.predict(X), weights, ones) / null if null > 0 else 0.0

    def table(self):
        """A pandas table: a row for the intercept and each column; estimate, standard error, z,
        two-sided p of the normal; of a posterior mean, sd, 5%, 95%."""
        import pandas as pd
        from scipy.stats import norm

        check_is_fitted(self, "coef_")
        names = list(getattr(self, "feature_names_in_",
                             [f"x{j}" for j in range(self.n_features_in_)]))
        names = ["intercept"] * int(self.fit_intercept) + names
        if is_posterior(self.fit_):
            return posterior_rows(self.fit_, ("bias", "beta")[1 - int(self.fit_intercept) :], names)
        estimate = np.concatenate([[self.intercept_] * int(self.fit_intercept), self.coef_])
        z = estimate / self.standard_errors_
        columns = {"estimate": estimate, "standard error": self.standard_errors_, "z": z,
                   "p": 2 * norm.sf(np.abs(z))}
        return pd.DataFrame(columns, index=names)


@dataclass(eq=False, repr=False)
class RobustRegression(Numeric):
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
    max_iter: int = parameter(1000, whole(1))
    random_state: Any = parameter(None, SEED)
    engine: Any = parameter(None, ENGINE)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name; y that a plane goes through.
        """
        X, y, weights, _ = self._read(X, y, sample_weight)
        n, d = X.shape
        if n <= d + int(self.fit_intercept):
            raise DataError(f"n_samples={n}: {d} columns and an intercept fit every row exactly, "
                            f"so the scale of the noise is 0: give more")
        x = self._frame(X, weights, always=True)
        self._level, self._spread = middle, spread = middle_and_spread(y, weights,
                                                                       self.fit_intercept)
        design = np.column_stack([x, np.ones(n)]) if self.fit_intercept else x
        root = np.sqrt(weights)
        first = np.linalg.lstsq(design * root[:, None], (y - middle) / spread * root, rcond=None)[0]
        left = (y - middle) / spread - design @ first
        if np.sqrt(np.average(left**2, weights=weights)) < 1e-10:
            raise DataError("a plane fits every row of y exactly: the scale of the noise is 0, so "
                            "a robust regression is undefined")
        model = robust_regression(
            df=None if self.df is None else float(self.df),
            weight_scale="each" if self.penalty else None,
            bias_scale=None if self.fit_intercept else 0
        )
        data = {"x": x, "y": self._about(y)}
        data |= {"weight_scale": self._unit / spread / np.sqrt(self.penalty)
                 } if self.penalty else {}
        start = {"beta": first[:d], "variance": np.asarray(np.average(left**2, weights=weights))}
        start |= {"bias": np.asarray(first[d])} if self.fit_intercept else {}
        start |= {"df": np.asarray(4.0)} if self.df is None else {}
        engine = unpenalised(self.engine or EM(tolerance=float(self.tol),
                                               max_iterations=int(self.max_iter)), self.penalty)
        self._found(model.fit(data, engine, weights=counted(weights), seed=self._seed(),
                              start=start))
        params = self.fit_.params
        coef, intercept = self._planes(params["beta"][:, None] * spread,
                                       np.reshape(params.get("bias", 0.0), -1) * spread)
        self.coef_, self.intercept_ = coef[0], float(intercept[0]) + self._level
        self.scale_, self.df_ = (float(np.sqrt(params["variance"])) * spread,
                                 float(params.get("df", self.df or 0.0)))
        return self

    def predict(self, X):
        """x β + b, (n,)."""
        check_is_fitted(self, "coef_")
        return self._whole(X, reset=False) @ self.coef_ + self.intercept_

    def row_weights(self, X, y):
        """The expected precision of every row given y, (df + 1) / (df + (residual/scale)²), (n,):
        near 0 for outliers."""
        residual = (np.asarray(y, float) - self.predict(X)) / self.scale_
        return (self.df_ + 1) / (self.df_ + residual**2)


def _directions(rows: np.ndarray, digits: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(which of the orthogonal directions of coefficients the rows tell, (p,), how much, (p,), the
    directions (p, p)), by singular values: the information would square the condition."""
    square = np.linalg.qr(rows, mode="r")
    missing = rows.shape[1] - len(square)
    _, size, turned = np.linalg.svd(np.pad(square, ((0, missing), (0, 0))))
    return size > size[:1] * digits * max(rows.shape), size, turned
