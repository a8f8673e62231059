"""Wilkinson's formulas for regressions and mixed models: "y ~ a + C(group) + (a | ward)". Needs
formulaic: probml[formula].

A formula is code, as `np.log(a)` in it says: take none from strangers.

Source: Wilkinson & Rogers (1973), "Symbolic description of factorial models"; the terms of effects
are those of Bates, Mächler, Bolker & Walker (2015), section 2.1.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from probml import DataError, ModelError
from probml.models.regression.generalized_linear_faces import GeneralizedLinearModel
from probml.models.regression.mixed_model_face import MixedModel

EFFECT = re.compile(r"\(\s*([^()|]+?)\s*(\|\|?)\s*([^()|]+?)\s*\)")
INTERCEPT = "Intercept"


@dataclass(frozen=True, eq=False, repr=False)
class Formula:
    """A formula that has met a table: `f.fit(family="poisson", engine="bayes")` is a regression or
    a mixed model; `MixedModel(f.effects).fit(f.X, f.y)` is one by hand, `linear_regression().fit(
    f.data)` a function.

    Attributes:
        text: as it was written.
        X: a DataFrame: the columns of the terms, without the intercept, then those of groupings.
        y: (n,), the left side; None where there is none.
        intercept: whether the formula has one, for fit_intercept.
        effects: grouping → columns whose coefficients differ among its members, as MixedModel
            takes it; None without such terms.
        correlated: whether these have correlations, (a | g), or have not, (a || g).
    """

    text: str
    X: Any
    y: Any
    intercept: bool
    effects: dict[str, list[str]] | None
    correlated: bool
    spec: Any

    @property
    def data(self) -> dict[str, Any]:
        """{"x": columns of the terms, "y": the left side} for functions."""
        x = self.X.drop(columns=list(self.effects or ()))
        return {"x": x.to_numpy(float)} if self.y is None else {"x": x.to_numpy(float),
                                                                "y": self.y}

    def fit(self, family: str = "normal", *, sample_weight: Any = None, offset: Any = None,
            trials: Any = None, **settings: Any) -> Any:
        """The estimator of the formula, fitted to the rows of its table: MixedModel where it has
        effects of groups, else GeneralizedLinearModel. `model.predict(f.of(new))` answers for other
        rows.

        Args:
            family, sample_weight, offset, trials: see there.
            settings: parameters of the estimator, such as link="probit", or engine="bayes", a
                posterior under default priors.

        Raises:
            ModelError: a formula without a left side, or with effects and without an intercept.
            DataError, ValueError: as of the estimator.
        """
        if self.y is None:
            raise ModelError(f"fit: formula({self.text!r}) has no left side: write 'y ~ ...'")
        if self.effects and not self.intercept:
            raise ModelError(f"fit: formula({self.text!r}) has no intercept, but MixedModel always "
                             f"has one: remove '0 +'")
        model = (MixedModel(self.effects, family=family, correlated=self.correlated, **settings)
                 if self.effects else
                 GeneralizedLinearModel(family, fit_intercept=self.intercept, **settings))
        return model.fit(self.X, self.y, sample_weight=sample_weight, offset=offset, trials=trials)

    def of(self, table: Any) -> Any:
        """X of other rows, categories coded as at first.

        Raises:
            DataError: a column or a cell that is missing, a category that is new.
        """
        return _columns(self.text, table, self.effects or {},
                        lambda: self.spec.get_model_matrix(table, context={"np": np}))

    def __repr__(self) -> str:
        return f"Formula({self.text!r}: {len(self.X)} rows, {list(self.X.columns)})"


def formula(text: str, table: Any) -> Formula:
    """Read a formula with the columns of a pandas table.

    Args:
        text: "y ~ terms": names, C(name) for categories, a:b and a * b, functions such as
            np.log(a); "0 +" leaves the intercept out; (1 + a | ward) are effects of a grouping,
            (a || ward) without correlations.

    Raises:
        ModelError: a text that is no formula, effects of what is no column of the terms, nested
            groupings; formulaic is absent.
        DataError: a column that is missing, or has missing cells.
    """
    try:
        import formulaic
    except ModuleNotFoundError as error:
        raise ModelError(f"formulas need formulaic ({error}): pip install 'probml[formula]'"
                         ) from None
    if not isinstance(text, str):
        raise ModelError(f"formula: expected text first, formula('y ~ x', table), got a "
                         f"{type(text).__name__}")
    _refuse_habits(text)
    found = EFFECT.findall(text)
    fixed = re.sub(r"\+\s*(?=$|\+)", "", EFFECT.sub("", text)).strip()
    fixed = re.sub(r"~\s*\+?\s*$", "~ 1", re.sub(r"~\s*\+", "~ ", fixed))
    try:
        rest = [name for name in table.columns if name not in {name for *_, name in found}]
        parsed = formulaic.Formula(fixed, _context={"__formulaic_variables_available__": rest})
    except Exception as error:
        raise ModelError(f"formula({text!r}): {_said(error)}") from None
    if isinstance(getattr(parsed, "rhs", parsed), tuple):
        raise ModelError(f"formula({text!r}): write the effects of groups in brackets, y ~ x + (1 "
                         f"| group)")
    made: list[Any] = []

    def right() -> Any:
        made.append(parsed.get_model_matrix(table, context={"np": np}, na_action="raise"))
        return getattr(made[0], "rhs", made[0])

    groupings = {name: terms for terms, _, name in found}
    if len(groupings) < len(found):
        name = next(name for *_, name in found if [own for *_, own in found].count(name) > 1)
        raise ModelError(f"formula({text!r}): the grouping {name!r} is in two brackets: write one, "
                         f"(1 + x | {name}), or (1 + x || {name}) without correlations")
    X = _columns(text, table, groupings, right)
    left = getattr(made[0], "lhs", None)
    if left is not None and left.shape[1] != 1:
        raise ModelError(f"formula({text!r}): expected one number on the left, got the columns "
                         f"{list(left.columns)}")
    effects = {name: _effects(text, terms, list(X.columns)) for name, terms in groupings.items()}
    spec = getattr(made[0], "rhs", made[0]).model_spec
    return Formula(text, X, None if left is None else left.iloc[:, 0].to_numpy(float),
                   INTERCEPT in spec.column_names, effects or None,
                   not any(bar == "||" for _, bar, _ in found), spec)


def _columns(text: str, table: Any, groupings: dict, right: Any) -> Any:
    """The columns of the terms and of the groupings, or a DataError that says what is wrong."""
    for name in groupings:
        if name not in table.columns:
            raise DataError(f"formula({text!r}): the table has no column {name!r}, a grouping; it "
                            f"has {list(table.columns)}. (1 | a/b) is not supported: use a column "
                            f"that combines both")
    try:
        X = right()
    except Exception as error:
        raise DataError(f"formula({text!r}): {_said(error)}; the table has the columns "
                        f"{list(table.columns)}") from None
    X = X.drop(columns=[INTERCEPT], errors="ignore")
    return X.assign(**{name: table[name].to_numpy() for name in groupings})


def _effects(text: str, terms: str, columns: list[str]) -> list[str]:
    """The columns of one (terms | grouping), "1" the intercept."""
    words = [word.strip() for word in terms.split("+")]
    own = [word for word in words if word not in ("0", "1")]
    wrong = next((word for word in own if word not in columns), None)
    if wrong is not None:
        raise ModelError(f"formula({text!r}): the group effect of {wrong!r} needs {wrong!r} as a "
                         f"fixed effect, too; the fixed effects are {columns}")
    return ([] if "0" in words else ["1"]) + own


# as R writes it → what is wanted here
HABITS = (
    (re.compile(r"\bfactor\s*\("), "a category is C(name), not factor(name)"),
    (re.compile(r"\bcbind\s*\("), "the left side is one column, the successes; pass the numbers of "
                                  "trials by fit(X, y, trials=...)"),
    (re.compile(r"\bI\s*\([^()]*\^"), "a power is I(x**2), not I(x^2)"),
    (re.compile(r"\boffset\s*\("), "an offset is fit(X, y, offset=...)"),
    (re.compile(r"(?<![=~!<>])=(?!=)(?![^()]*\))"), "the sides are separated by ~, as in 'y ~ x'"),
)


def _refuse_habits(text: str) -> None:
    """
    Raises:
        ModelError: what R's formulas have and these have not, with how it is written here.
    """
    for pattern, instead in HABITS:
        if pattern.search(text):
            raise ModelError(f"formula({text!r}): {instead}")


def _said(error: Exception) -> str:
    """What formulaic says, without colours, on one line."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split()).rstrip(".")
