"""The scikit-learn estimator of mixed models."""

from collections.abc import Hashable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from probml import MAP, DataError, Fit, ModelError
from probml.engines.engine import Engine
from probml.errors import listed
from probml.estimators.estimator import Estimator, objective_of
from probml.estimators.rules import (
    FLAG,
    SEED,
    Rule,
    Seed,
    check,
    integer,
    one_of,
    optional,
    parameter,
    several,
)
from probml.estimators.validation import (
    RegressorMixin,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)
from probml.models.frames.complete import NoProbabilities, finite_target
from probml.models.mixed_models.mixed_columns import (
    codes_of,
    labels_of,
    numbers_of,
    refuse_dependent,
    table_of,
)
from probml.models.mixed_models.mixed_model import effect_sites, mixed_model
from probml.models.regression.family_functions import inverse_link, mean_of_y
from probml.models.regression.generalized_linear import ALIASES, FAMILIES, LINKS
from probml.models.regression.results import (
    OffsetResults,
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
    refuse_exact,
    units_of,
)
from probml.numerics.process.libraries import pd
from probml.posteriors.units import Unit, of_rows, plane

ONE = "1"  # the column of an intercept
DRAWS = 4000  # of a posterior, for the mean of what is computed from parameters


def _is_effects(value: object) -> bool:
    return value is None or isinstance(value, Mapping) and len(value) > 0 and all(
        isinstance(columns, list | tuple) and len(set(columns)) == len(columns) > 0
        for columns in value.values())


EFFECTS: Rule = ("a mapping of each grouping to the columns whose coefficients vary between its "
                 "levels, such as {\"subject\": [\"1\", \"days\"]}", _is_effects)


@dataclass(eq=False, repr=False)
class MixedModel(OffsetResults, NoProbabilities, RegressorMixin, Estimator):
    """Linear and generalised linear mixed models: coefficients that vary between groups; R's lmer
    and glmer, statsmodels' MixedLM.

        g(E[y | x, u]) = b + x β + Σ over groupings z_k · u_k[member],   u_k[j] ~ N(0, Σ_k)

    The function is probml.models.mixed_model. Every column of X that is no grouping is a column of
    x. Standard deviations and coefficients are estimated by (restricted) maximum likelihood; random
    effects are conditional modes (BLUPs). engine="bayes" gives a posterior of all of them under
    weakly informative priors that the data scale, near those of rstanarm
    (models/regression/weak_priors.py).

    Args:
        effects: grouping, a column of X, → the columns whose coefficients vary between its levels,
            "1" the intercept: {"subject": ["1", "days"]}. Several groupings may be crossed or
            nested.
        fixed: the columns that have one coefficient for all rows; None: all that are no groupings.
            Columns of effects that are not among them vary about 0.
        family, link: as of GeneralizedLinearModel.
        reml: restricted maximum likelihood, coefficients integrated out under flat priors, as lmer
            does it; of the normal with the identity link alone, others are by maximum likelihood.
        correlated: the columns of a grouping have correlations; False: sd only (||).
        nodes: of the quadrature that integrates one effect of one grouping out, where y is not
            normal: 1 is Laplace's approximation (glmer's nAGQ); None: 25.
        random_state: seed of a sampler; None is 0.
        engine: an engine's value; by default MAP(prior=False). "bayes": default priors, and the
            engine that Model.fit chooses where none is named; reml and nodes are not used.

    Attributes:
        coef_ (d,), intercept_, covariance_ (p, p) of (b, β) and standard_errors_, those of the
        summary of fit_: of the normal given the estimated standard deviations (lmer), of
        other families from the curvature of the likelihood (glmer); effects_: grouping → a table of
        conditional modes, levels in rows; effect_errors_: of their standard errors, which contain
        that of (b, β), given the standard deviations; spreads_: grouping → standard deviation of
        each column; correlations_: of those with several columns; noise_ of the normal; loglik_:
        the (restricted) log likelihood, natural, with all constants; groups_: grouping → labels;
        n_iter_, converged_, fit_: the probml Fit, in units of its own (as_data).
        Of a posterior, estimates are means and errors standard deviations, of effects too, and
        loglik_ is None.

    Cost: as probml.MAP; then the covariance, but with REML, four gradients a parameter.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> sleep = pd.read_csv(files("probml.data") / "sleepstudy.csv")
        >>> from probml.models import MixedModel
        >>> X, y = sleep[["Days", "Subject"]], sleep["Reaction"]
        >>> model = MixedModel(effects={"Subject": ["1", "Days"]}).fit(X, y)
        >>> print(round(model.intercept_, 1), model.coef_.round(1))    # as lme4: 251.4 and 10.5
        251.4 [10.5]
        >>> print(model.spreads_["Subject"].round(1))
        1       24.7
        Days     5.9
        dtype: float64
    """

    _kind: ClassVar[str] = "effects"

    effects: Any = parameter(None, EFFECTS)
    _: KW_ONLY
    fixed: Any = parameter(None, optional(several("columns")))
    family: str = parameter("normal", one_of(*FAMILIES, *ALIASES))
    link: str | None = parameter(None, optional(one_of(*LINKS)))
    reml: bool = parameter(True, FLAG)
    correlated: bool = parameter(True, FLAG)
    nodes: int | None = parameter(None, optional(integer(1)))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | str | None = parameter(None, ENGINE_OR_BAYES)

    def fit(self, X, y, sample_weight=None, offset=None, trials=None):
        """Learn from rows X, a DataFrame or an array (n, columns), and y (n,).

        Args:
            offset: (n,), added to the linear predictor. trials: (n,), of the binomial.

        Raises:
            ModelError, DataError, ValueError: a parameter, a column or a cell that cannot be used,
                by name.
        """
        check(self)
        table = table_of(X)
        self.n_features_in_, self._names = len(table), list(table)
        y = finite_target(y)
        check_consistent_length(y, *table.values())
        offset, trials = checked_column(offset, "offset", len(y)), checked_column(trials, "trials",
                                                                                  len(y))
        self._family = family = family_of_targets(self.family, trials)
        check_targets(family, y, trials, np.arange(len(y)))
        weights, kept_rows = self._weigh(y[:, None], sample_weight)
        counts = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, float)
        self._learn_columns(table, counts)
        weak, restricted = self.engine == BAYES, self.reml and self._is_linear()
        self._y, self._eta = units_of(family, self.link or FAMILIES[family], y, counts, True, weak)
        data = {**self._as_data(table), "y": y.astype(int) if family in COUNTS
                else self._about(y)}
        if weak and self._is_linear():
            refuse_exact(data.get("x"), data["y"], True)
        data |= {} if offset is None else {"offset": offset / self._eta[1]}
        data |= {} if trials is None else {"trials": trials}
        settings = {name: value for name, value in (("x", None), ("offset", 0.0), ("trials", 1))
                    if name not in data}
        model = mixed_model(
            effects={self._sites[name]: (len(self.groups_[name]), len(columns))
                     for name, columns in self.effects.items()},
            family=family, link=self.link, correlated=self.correlated,
            spread_scale=1.0, **({"scale_prior": "exponential", **WEAK} if weak
                                 else {"noise_scale": 1.0}), **settings)
        if kept_rows is not None:
            data = {name: value[kept_rows] for name, value in data.items()}
        if restricted and self.engine is None and self._fixed:
            refuse_dependent("MixedModel", "columns", data["x"], self._fixed)
        engine: Any = None if weak else self.engine or MAP(prior=False, nodes=self.nodes,
                                                      restricted=restricted)
        fit = model.fit(data, engine, weights=weights, seed=self._seed())
        fit, planes = replace(fit, units=self._parameter_units(fit)), self._coefficient_sites()
        self.covariance_ = fit._covariance(planes, data, weights)
        self.standard_errors_ = np.sqrt(np.diag(self.covariance_))
        self.fit_ = fit._with_errors((*planes, *self._sites.values()), data, weights)
        self.n_iter_, self.converged_ = max(self.fit_.iterations, 1), self.fit_.converged
        self._learn(data, np.ones(len(data["y"])) if weights is None else weights, restricted)
        return self

    def _figures(self) -> dict[str, object]:
        figures = super()._figures()
        engine = self.fit_.made_by
        if engine is not None and engine.capabilities.restricts:
            figures = {f"REML {name}" if name == "log-likelihood" else name: value
                       for name, value in figures.items()}
        levels = {f"levels of {name}": len(labels) for name, labels in self.groups_.items()}
        rows = {name: value for name, value in figures.items() if name == "observations"}
        return {**rows, **levels, **figures}

    def _is_linear(self) -> bool:
        """Whether y is normal with the identity link."""
        return self._family_of_y() == "normal" and self.link in (None, "identity")

    def _family_of_y(self) -> str:
        return getattr(self, "_family", ALIASES.get(self.family, self.family))

    def _coefficient_sites(self) -> tuple[str, ...]:
        return ("intercept", "beta")[: 1 + bool(self._fixed)]

    def _coefficient_names(self) -> list[str]:
        return ["Intercept", *map(str, self._fixed)]

    def _learn_columns(self, table: Mapping, weights: np.ndarray) -> None:
        """Which columns are groupings and which x; the labels of those, the units of these."""
        if self.effects is None:
            raise ModelError(f"MixedModel(effects=None): expected {EFFECTS[0]}. Without random "
                             f"effects use BayesianLinearRegression or GeneralizedLinearModel")
        for name, columns in self.effects.items():
            for column in (name, *(c for c in columns if c != ONE)):
                if column not in table:
                    raise DataError(f"MixedModel(effects={dict(self.effects)!r}): X has no column "
                                    f"{column!r}. Use one of its columns, {listed(self._names)}")
        candidates = [name for name in table if name not in self.effects]
        self._fixed = candidates if self.fixed is None else list(self.fixed)
        if stray := [name for name in self._fixed if name not in candidates]:
            what = "a grouping of effects=" if stray[0] in self.effects else "not a column of X"
            raise DataError(f"MixedModel(fixed={self._fixed!r}): {stray[0]!r} is {what}. Use only "
                            f"the columns {listed(candidates)}")
        self._sites = effect_sites(self.effects)
        self.groups_ = {name: np.unique(labels_of(table, name)) for name in self.effects}
        for name, labels in self.groups_.items():
            if len(labels) < 2:
                raise DataError(f"the grouping {name!r} has only one level, "
                                f"{labels.tolist()[0]!r}, so the variance between its levels "
                                f"cannot be estimated. Drop {name!r} from effects=")
        x = numbers_of(table, self._fixed)
        self._centre = np.average(x, 0, weights)
        self._unit = np.sqrt(np.average((x - self._centre) ** 2, 0, weights))
        for name, span in zip(self._fixed, np.ptp(x[weights > 0], 0), strict=True):
            if not span > 0:
                raise DataError(f"column {name!r} of X is the same in every row, so its "
                                "coefficient cannot be estimated separately from the intercept. "
                                "Drop the column")
        units = dict(zip(self._fixed, self._unit, strict=True)) | {ONE: 1.0}
        z_only = [c for columns in self.effects.values() for c in columns if c not in units]
        mean_sq = np.average(numbers_of(table, z_only) ** 2, 0, weights)
        units |= dict(zip(z_only, np.where(mean_sq > 0, np.sqrt(mean_sq), 1.0), strict=True))
        self._z_units = {name: np.array([units[c] for c in columns])
                         for name, columns in self.effects.items()}

    def _as_data(self, table: Mapping, new: bool = False) -> dict[str, np.ndarray]:
        """Rows as the data of `fit_`, without y.

        Args:
            new: members that were not there when it was fitted get the number behind the last.

        Raises:
            DataError: a member that is new, where none may be.
        """
        x, z, member = numbers_of(table, self._fixed), [], []
        for name, columns in self.effects.items():
            z.append(self._columns_of(table, columns) / self._z_units[name])
            code = self._codes(table, name)
            if (code < 0).any() and not new:
                row = int(np.argmax(code < 0))
                raise DataError(f"the grouping {name!r} has a level that was not in the training "
                                f"data, {labels_of(table, name).tolist()[row]!r} in row {row}. "
                                "Drop this row, or use predict(), which supports new levels")
            member.append(np.where(code < 0, len(self.groups_[name]), code))
        data = {"z": np.concatenate(z, 1), "member": np.column_stack(member)}
        return {"x": (x - self._centre) / self._unit, **data} if self._fixed else data

    def _columns_of(self, table: Mapping, names: list) -> np.ndarray:
        """The columns of the effects of a grouping, (n, columns), 1 of the intercept."""
        ones = np.ones(len(next(iter(table.values()))))
        return np.column_stack([ones if c == ONE else numbers_of(table, [c])[:, 0] for c in names])

    def _codes(self, table: Mapping, name: Hashable) -> np.ndarray:
        """The number of the member of each row; −1 of one that is new."""
        return codes_of(self.groups_[name], labels_of(table, name), name)

    def as_data(self, X, y=None) -> dict[str, np.ndarray]:
        """Rows as the data of `fit_`: columns centred and scaled, members numbered, a normal y in
        standard deviations about its mean.

        Raises:
            DataError: a member that is new.
        """
        check_is_fitted(self, "fit_")
        data = self._as_data(self._checked_table(X))
        if y is None:
            return data
        y = check_array(column_or_1d(y, warn=True), dtype=np.float64, ensure_2d=False,
                        ensure_all_finite="allow-nan", input_name="y")
        return {**data, "y": self._about(y)}

    def _about(self, y: np.ndarray) -> np.ndarray:
        """y in the units in which it is fitted."""
        level, unit = self._y
        return (y - level) / unit

    def _checked_table(self, X) -> dict:
        table = table_of(X)
        missing = [name for name in self._names if name not in table]
        if missing:
            raise DataError(f"X has no column {missing[0]!r}. Give the columns of the fitted data, "
                            f"{listed(self._names)}")
        return table

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        (level, unit), point = self._eta, fit.point
        units = {"sigma": Unit(self._y[1]), "intercept": Unit(unit, level)}
        if self._fixed:
            units |= plane("beta", "intercept", self._centre, self._unit, 1, level, unit,
                           tuple(map(str, self._fixed)))
        for name, columns in self.effects.items():
            key, scale = self._sites[name], unit / self._z_units[name]
            members, labels = tuple(self.groups_[name].tolist()), tuple(map(str, columns))
            multiple = len(columns) > 1
            units[key] = Unit(scale if multiple else scale[0],
                              names={0: members, **({1: labels} if multiple else {})})
            units[f"sd_{key}"] = Unit(scale if multiple else scale[0],
                                        names={0: labels} if multiple else {})
            units[f"corr_cholesky_{key}"] = Unit(names={0: labels, 1: labels})
        z = np.concatenate([self._z_units[name] for name in self.effects])
        rows = of_rows(y=self._y, z=(0.0, z), **(
            {"x": (self._centre, self._unit)} if self._fixed else {}))
        return {name: value for name, value in units.items() if name in point} | rows

    def _learn(self, data: Mapping, weights: np.ndarray, restricted: bool) -> None:
        """The numbers that were learnt, in the user's units."""
        p, (level, unit) = self.fit_.params, self._eta
        beta = np.asarray(p["beta"]) if self._fixed else np.zeros(0)
        self.coef_ = beta * unit / self._unit
        self.intercept_ = float(p["intercept"] * unit + level - self.coef_ @ self._centre)
        draws = self.fit_.draws(DRAWS) if is_posterior(self.fit_) else p
        self.effects_, self.effect_errors_, self.spreads_, self.correlations_ = {}, {}, {}, {}
        for name, columns in self.effects.items():
            key, scale = self._sites[name], unit / self._z_units[name]
            shape = (len(self.groups_[name]), len(columns))
            # where y is not normal, the conditional mode is not the mean, which params have
            centre = self.fit_.posterior(key).loc if key in self.fit_.belief.partly else p[key]
            for tables, value in ((self.effects_, np.reshape(centre, shape) * scale),
                                  (self.effect_errors_, self.fit_.errors[key].reshape(shape))):
                tables[name] = pd.DataFrame(value, index=pd.Index(self.groups_[name], name=name),
                                            columns=list(columns))
            self.spreads_[name] = pd.Series(np.ravel(p[f"sd_{key}"]) * scale,
                                            index=list(columns))
            if f"corr_cholesky_{key}" in p:
                chol = np.asarray(draws[f"corr_cholesky_{key}"]).reshape(-1, shape[1], shape[1])
                self.correlations_[name] = pd.DataFrame(
                    (chol @ np.swapaxes(chol, 1, 2)).mean(0), list(columns), list(columns))
        if "sigma" in p:
            self.noise_ = float(p["sigma"] * self._y[1])
        for name in ("concentration", "zero_probability", "df"):
            if name in p:
                setattr(self, f"{name}_", float(p[name]))
        loglik = objective_of(self.fit_) - weights.sum() * np.log(self._y[1])
        if restricted:  # coefficients have a density of 1 in their own units
            loglik += np.log(unit) + np.log(unit / self._unit).sum()
        # the history of a posterior is of its density
        posterior = is_posterior(self.fit_) or self.engine == BAYES
        sites, effects = self.fit_.structure.sites, {*self._sites.values()}
        parameters = sum(sites[name].domain.size(sites[name].shape) for name in p
                         if name not in effects)
        self._learn_likelihood(None if posterior else loglik, parameters,
                               data["y"] * self._y[1] + self._y[0], weights,
                               tuple(map(str, self._fixed)) if restricted else None)

    def _means(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """μ and dμ/dη."""
        return inverse_link(self.link or FAMILIES[self._family_of_y()], eta)

    def predict(self, X, offset=None, interval=None, trials=None):
        """E[y | x, effects at their modes], (n,), of the binomial the rate; of a member that is new
        the effects are 0, the mean of all members. Of a posterior the mean over it, effects of new
        members drawn.

        Args:
            interval: a probability, such as 0.9: answer with an Interval (value, lower, upper), the
                bounds of a new y, of the binomial of its rate in so many `trials`, (n,) (1).

        Raises:
            ModelError: an interval of y that is 0 or 1; no probability.
        """
        check_is_fitted(self, "fit_")
        table = self._checked_table(X)
        x = numbers_of(table, self._fixed)
        offset = asked_offset(self.fit_, offset, len(x))
        trials = checked_column(trials, "trials", len(x))
        # a mean that is linear in all parameters is that at their means
        if interval is not None or is_posterior(self.fit_) and not self._is_linear():
            inputs = {**self._as_data(table, new=True), "trials": trials,
                      "offset": None if offset is None else offset / self._eta[1]}
            return expected_response(self.fit_, self._family_of_y(), inputs, self._y, interval)
        eta = self._linear(table, x, offset)
        return eta if self._is_linear() else mean_of_y(self._family_of_y(), self._means(eta)[0],
                                                       self._family_parameters())

    def _linear(self, table: Mapping, x: np.ndarray, offset) -> np.ndarray:
        """The linear predictor at the modes of the effects, (n,)."""
        eta = self.intercept_ + x @ self.coef_ + (0.0 if offset is None else offset)
        for name, columns in self.effects.items():
            code, modes = self._codes(table, name), self.effects_[name].to_numpy()
            z = self._columns_of(table, columns)
            eta = eta + np.where(code >= 0, (z * modes[code]).sum(1), 0.0)
        return eta

    def _inverse_link(self, X, offset=None) -> np.ndarray:
        table = self._checked_table(X)
        x = numbers_of(table, self._fixed)
        return self._means(self._linear(table, x, asked_offset(self.fit_, offset, len(x))))[0]

    def score(self, X, y, sample_weight=None, offset=None, trials=None):
        """R² of the predictions, at the effects of the groups; of the binomial that of the rates,
        weighted by trials. Arguments as of fit."""
        predicted = self.predict(X, offset=offset)
        trials = self._counted_trials(trials, len(predicted), "score")
        y = checked_column(y, "y", len(predicted)) / trials
        case_weights, kept_rows = self._weigh(predicted[:, None], sample_weight)
        if kept_rows is not None:  # rows of weight 0 do not count
            predicted, trials, y = (array[kept_rows] for array in (predicted, trials, y))
        weights = trials if case_weights is None else case_weights * trials
        unexplained, total = (np.average((y - array) ** 2, weights=weights)
                              for array in (predicted, np.average(y, weights=weights)))
        return float(1 - unexplained / total) if total > 0 else 0.0

    def table(self):
        """A pandas table: a row for the intercept and each column of x; estimate, standard error,
        z, two-sided p of the normal; of a posterior mean, sd, 5%, 95%."""
        from scipy.stats import norm

        check_is_fitted(self, "fit_")
        names = ["intercept", *map(str, self._fixed)]
        if is_posterior(self.fit_):
            return posterior_rows(self.fit_, self._coefficient_sites(), names)
        estimate = np.concatenate([[self.intercept_], self.coef_])
        z = estimate / self.standard_errors_
        return pd.DataFrame({"estimate": estimate, "standard error": self.standard_errors_, "z": z,
                             "p": 2 * norm.sf(np.abs(z))}, index=names)

    def effects_table(self):
        """A pandas table: a row for each effect, by grouping, member and column; its conditional
        mode and standard error; of a posterior mean, sd, 5%, 95%."""
        check_is_fitted(self, "fit_")
        tables = {name: pd.DataFrame({"mode": modes.stack(),
                                      "standard error": self.effect_errors_[name].stack()})
                  for name, modes in self.effects_.items()}
        if is_posterior(self.fit_):
            tables = {name: posterior_rows(self.fit_, [self._sites[name]], frame.index)
                      for name, frame in tables.items()}
        return pd.concat(tables, names=["grouping", "member", "column"])
