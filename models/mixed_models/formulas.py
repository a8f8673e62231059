"""Wilkinson's formulas for regressions and mixed models: "y ~ a + C(group) + (a | ward)". Needs
formulaic: probml[formula].

A formula is code, as `np.log(a)` in it says: take none from strangers.

Source: Wilkinson & Rogers (1973), "Symbolic description of factorial models"; the terms of effects
are those of Bates, Mächler, Bolker & Walker (2015), section 2.1.
"""

import re
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from probml import DataError, ModelError
from probml.dataset.frames import as_pandas
from probml.engines.engine import Engine
from probml.errors import counted, listed, type_of
from probml.estimators.estimator import Estimator
from probml.models.classifiers.ordinal_regression_estimator import OrdinalRegression
from probml.models.mixed_models.formula_terms import (
    INTERCEPT,
    Terms,
    error_text,
    refuse_habits,
    written,
)
from probml.models.mixed_models.mixed_model_estimator import MixedModel
from probml.models.regression.generalized_linear_estimators import GeneralizedLinearModel
from probml.models.regression.survival_regression import DISTRIBUTIONS
from probml.models.regression.survival_regression_estimator import SurvivalRegression
from probml.typing import DataLike


@dataclass(frozen=True, eq=False, repr=False)
class Formula:
    """A formula with the columns of a table: `f.fit(family="poisson", engine="bayes")` is a
    regression or a mixed model; `MixedModel(f.effects).fit(f.X, f.y)` is one by hand,
    `linear_regression().fit(f.data)` a function.

    Attributes:
        text: as it was written.
        X: a DataFrame: the columns of the terms, without the intercept, then those of groupings.
        y: (n,), the left side; None where there is none. Of Surv(lower, upper, type="interval2")
            (n, 2).
        intercept: whether the formula has one, for fit_intercept.
        effects: grouping → columns whose coefficients differ among its members, as MixedModel
            takes it; None without such terms.
        correlated: whether these have correlations, (a | g), or have not, (a || g).
        fixed: the columns of X that have one coefficient for all rows.
        others: "offset", "trials" or "event" → (n,), as the formula has it.
    """

    text: str
    X: DataLike
    y: ArrayLike
    intercept: bool
    effects: dict[str, list[str]] | None
    correlated: bool
    spec: Any
    terms: Terms
    fixed: list[str] = field(default_factory=list)
    others: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, ArrayLike]:
        """{"x": columns of the terms, "y": the left side} for functions."""
        x = self.X[self.fixed].to_numpy(float)
        return {"x": x} if self.y is None else {"x": x, "y": self.y}

    def fit(self, family: str = "normal", *, sample_weight: ArrayLike | None = None,
            offset: ArrayLike | None = None, trials: ArrayLike | None = None,
            **settings: object) -> Any:
        """The estimator of the formula, fitted to the rows of its table: MixedModel where it has
        effects of groups, OrdinalRegression or SurvivalRegression of their families, else
        GeneralizedLinearModel. `model.predict(new)` answers for other rows of such columns.

        Args:
            family: of GeneralizedLinearModel, or "ordinal", or "weibull", "lognormal",
                "loglogistic" and "exponential" of Surv(time, event).
            sample_weight, offset, trials: see there; an offset is added to that of the formula.
            settings: parameters of the estimator, such as link="probit", or engine="bayes", a
                posterior under default priors.

        Raises:
            ModelError: a formula without a left side or without a term, or with effects and without
                an intercept.
            DataError, ValueError: as of the estimator.
        """
        if self.y is None:
            raise ModelError(f"fit: formula({self.text!r}) has no left side. Write 'y ~ ...'")
        if not len(self.X.columns):
            raise ModelError(f"fit: formula({self.text!r}) has no term but the intercept, and "
                             "estimators need at least one column. Add a term, such as 'y ~ x'. "
                             "The deviance without columns is null_deviance_ of a fitted "
                             "GeneralizedLinearModel")
        model, extra = self._estimator(family, settings), dict(self.others)
        if offset is not None:
            extra["offset"] = extra.get("offset", 0.0) + np.asarray(offset, float)
        if trials is not None:
            extra["trials"] = trials
        if ("event" in extra or np.ndim(self.y) == 2) and not isinstance(model, SurvivalRegression):
            raise ModelError(f"fit(family={family!r}): Surv(...) on the left side needs a survival "
                             f"distribution. Give family= one of {listed(DISTRIBUTIONS)}")
        if unknown := next((name for name in extra if name not in signature(model.fit).parameters),
                           None):
            raise ModelError(f"fit(family={family!r}): {type(model).__name__} does not support "
                             f"{unknown}. Remove {unknown} from the formula and from fit(...)")
        model.fit(self.X, self.y, sample_weight=sample_weight, **extra)
        model.formula_ = self.terms
        return model

    def _estimator(self, family: str, settings: dict) -> Estimator:
        special = {"ordinal": OrdinalRegression, "cumulative": OrdinalRegression} | {
            name: lambda name=name, **kwargs: SurvivalRegression(name, **kwargs)
            for name in DISTRIBUTIONS}
        if self.effects and family in special:
            raise ModelError(f"fit(family={family!r}): formula({self.text!r}) has random effects, "
                             "such as (1 | group), which are not supported with this family. Drop "
                             "them, or write the model as a function of NumPyro (@probml.model)")
        if family in ("ordinal", "cumulative") and not self.intercept:
            raise ModelError(f"fit(family={family!r}): formula({self.text!r}) has no intercept, "
                             "but the thresholds of this family are intercepts. Remove '0 +' or "
                             "'- 1'")
        if self.effects and not self.intercept:
            raise ModelError(f"fit: formula({self.text!r}) has no intercept, but MixedModel always "
                             f"has one. Remove '0 +' or '- 1'")
        if self.effects:
            n_columns = len(self.X.columns) - len(self.effects)
            return MixedModel(self.effects, family=family, correlated=self.correlated,
                              fixed=self.fixed if len(self.fixed) < n_columns else None,
                              **settings)
        if family in special and self.intercept:
            return special[family](**settings)
        make = special.get(family, lambda **kwargs: GeneralizedLinearModel(family, **kwargs))
        return make(fit_intercept=self.intercept, **settings)

    def of(self, table: DataLike) -> Any:
        """X of other rows, categories coded as at first.

        Raises:
            DataError: a column or a cell that is missing, a category that is new.
        """
        return self.terms.of(table)

    def __repr__(self) -> str:
        return f"Formula({self.text!r}: {counted(len(self.X), 'row')}, {listed(self.X.columns)})"


def formula(text: str, table: DataLike, family: str | None = None, *,
            engine: Engine | str | None = None,
            weights: ArrayLike | None = None, **settings: object) -> Any:
    """Read a formula with the columns of a pandas table, and fit its regression, as bambi's Model
    and R's glm, lmer and glmer do, where a family, an engine or a setting is given.

    Args:
        text: "y ~ terms": names, C(name) for categories, a:b and a * b, functions such as
            np.log(a), offset(np.log(t)); "0 +" leaves the intercept out. (1 + a | ward) are effects
            of a grouping, (a || ward) without correlations, (1 | ward/bed) nested, (1 | a:b) of
            pairs; a may be categories. The left side is a column, cbind(successes, failures) or
            p(successes, trials) of the binomial, Surv(time, event) or Surv(lower, upper,
            type="interval2").
        table: the rows, a DataFrame.
        family: as of Formula.fit, such as "gaussian", "binomial", "poisson", "negative_binomial",
            "zero_inflated_poisson", "hurdle", "beta", "gamma", "student_t", "ordinal", "weibull".
        engine: "bayes": a posterior under weakly informative priors; or an engine's value.
        weights: how many times each row counts: the name of a column, or numbers (n,).
        settings: parameters of the estimator, such as link="probit" or reml=False, and offset= and
            trials=, (n,).

    Returns:
        Without family, engine, weights and settings a Formula: columns that estimators take. Else
        the fitted estimator, GeneralizedLinearModel, MixedModel, OrdinalRegression or
        SurvivalRegression, which takes tables of the same columns: `model.predict(new)`.

    Raises:
        ModelError: a text that is no formula; a family or setting that cannot be used; formulaic is
            absent.
        DataError: a column that is missing, or has missing cells.

    Example:
        >>> model = formula("Reaction ~ Days + (Days | Subject)", table, family="gaussian")
        >>> model.predict(table[:3]), model.confint()
    """
    table = as_pandas(table)
    if (family, engine, weights) == (None, None, None) and not settings:
        return _read(text, table)
    if isinstance(weights, str):
        if weights not in table.columns:
            raise DataError(f"formula(weights={weights!r}): the table has no such column. Use one "
                            f"of its columns, {listed(table.columns)}")
        weights = table[weights]
    settings = settings if engine is None else {**settings, "engine": engine}
    try:
        return _read(text, table).fit("normal" if family is None else family,
                                      sample_weight=weights, **settings)
    except TypeError as error:  # a setting that the estimator has not
        raise ModelError(f"formula({text!r}): {error}. Correct this argument") from None


def missing_cells(text: str, table: DataLike) -> dict[str, int]:
    """Column → missing cells, of the columns that a formula names and that have some; a bound that
    is missing in Surv(lower, upper, type="interval2") is one that was not observed."""
    text = re.sub(r"Surv\([^()]*interval2[^()]*\)", "", text)
    named = [name for name in table.columns if isinstance(name, str)
             and re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", text)]
    counts = {name: int(table[name].isna().sum()) for name in named}
    return {name: count for name, count in counts.items() if count}


def _refuse_missing(text: str, table: DataLike) -> None:
    """Missing cells of columns that a formula names, all at once, with what to type."""
    if missing := missing_cells(text, table):
        counts = ", ".join(f"{name!r} in {count}" for name, count in missing.items())
        raise DataError(f"formula({text!r}): values are missing, {counts} of "
                        f"{counted(len(table), 'row')}. Drop these rows, "
                        f"table.dropna(subset=[{listed(missing)}])")


def _read(text: str, table: DataLike) -> Formula:
    try:
        import formulaic
    except ModuleNotFoundError as error:
        raise ModelError(f"formulas need formulaic ({error}). Install it: pip install "
                         f"'probml[formula]'"
                         ) from None
    if not isinstance(text, str):
        raise ModelError(f"formula({text!r:.60}, ...): the first argument must be text, such as "
                         f"formula('y ~ x', table), got {type_of(text)}")
    refuse_habits(text)
    _refuse_missing(text, table)
    parts = written(text)
    try:
        cols = [name for name in table.columns if name not in parts.used(table.columns)]
        parsed = formulaic.Formula(parts.right, _context={"__formulaic_variables_available__": cols}
                                   )
    except Exception as error:
        raise ModelError(f"formula({text!r}): {error_text(error)}. Correct the formula") from None
    if not isinstance(parsed, formulaic.formula.SimpleFormula):
        raise ModelError(f"formula({text!r}): the effects of groups must be in brackets. Write y ~ "
                         f"x + (1 | group)")
    terms, effects, spec = Terms.learn(parts, parsed, table)
    X = terms.of(table)
    with_slopes = [name for name, columns in effects.items() if len(columns) > 1]
    bars = {bar for _, bar, _ in parts.groups}
    if len(bars) > 1 and any(bar == "|" and name in with_slopes for _, bar, name in parts.groups):
        raise ModelError(f"formula({text!r}): the formula contains both | and ||, which cannot be "
                         f"combined. Write | throughout for correlated effects, or || for "
                         f"uncorrelated effects")
    others = terms.others(table)
    y = others.pop("y", None)
    return Formula(text, X, y, INTERCEPT in terms.columns[0], effects or None, "||" not in bars,
                   spec, terms, [name for name in terms.columns[0] if name != INTERCEPT], others)
