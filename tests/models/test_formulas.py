"""Formulas become the columns that one would write by hand; what cannot be read is refused by
name."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("formulaic")

import probml  # noqa: E402
from probml.models import BayesianLinearRegression, MixedModel, formula  # noqa: E402

RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame({"dose": RANDOM.uniform(1, 5, 30), "sex": np.tile(["f", "m", "f"], 10),
                      "ward": np.repeat(["a", "b", "c"], 10)})
TABLE["y"] = 2 * TABLE["dose"] + (TABLE["sex"] == "m") + RANDOM.normal(size=30)


def test_terms_are_columns_and_new_rows_are_coded_as_the_old():
    found = formula("y ~ np.log(dose) + C(sex)", TABLE)
    assert list(found.X.columns) == ["np.log(dose)", "C(sex)[T.m]"] and found.intercept
    np.testing.assert_allclose(found.X.to_numpy(float), np.column_stack(
        [np.log(TABLE["dose"]), TABLE["sex"] == "m"]))
    np.testing.assert_array_equal(found.y, TABLE["y"])
    new = found.of(pd.DataFrame({"dose": [1.0], "sex": ["f"]}))
    np.testing.assert_allclose(new.to_numpy(float), [[0.0, 0.0]])
    assert found.data["x"].shape == (30, 2) and found.effects is None
    assert not formula("y ~ 0 + dose", TABLE).intercept
    estimator = BayesianLinearRegression().fit(found.X, found.y)
    assert estimator.predict(new).shape == (1,)


@pytest.mark.parametrize(("text", "effects", "correlated"), [
    ("y ~ dose + (1 | ward)", {"ward": ["1"]}, True),
    ("y ~ dose + (dose || ward)", {"ward": ["1", "dose"]}, False),
    ("y ~ (1 | ward) + dose + (0 + dose | sex)", {"ward": ["1"], "sex": ["dose"]}, True),
    ("y ~ (1 | ward)", {"ward": ["1"]}, True),
])
def test_effects_are_those_of_a_mixed_model(text, effects, correlated):
    found = formula(text, TABLE)
    assert found.effects == effects and found.correlated == correlated
    assert set(found.X.columns) == ({"dose", *effects} if "dose +" in text or "+ dose" in text
                                    else set(effects))


@pytest.mark.parametrize(("text", "kind", "said"), [
    ("y ~ dose + (1 | bed)", probml.DataError, "grouping 'bed' is not a column"),
    ("y ~ 1 + (dose | ward", probml.ModelError, "brackets do not match"),
    ("y ~ dose +* sex", probml.ModelError, "formula"),
    ("y ~ weight", probml.DataError, "weight"),
])
def test_what_cannot_be_read_is_refused_in_a_line(text, kind, said):
    with pytest.raises(kind, match=said) as error:
        formula(text, TABLE)
    assert "\n" not in str(error.value)


def test_unseen_cells_are_refused():
    with pytest.raises(probml.DataError, match="dose"):
        formula("y ~ dose", TABLE.mask(TABLE["dose"] < 2))


@pytest.mark.slow
def test_a_mixed_model_by_formula_is_the_one_by_hand():
    found = formula("y ~ dose + (1 | ward)", TABLE)
    ours = MixedModel(found.effects).fit(found.X, found.y)
    hand = MixedModel({"ward": ["1"]}).fit(TABLE[["dose", "ward"]], TABLE["y"])
    np.testing.assert_allclose(ours.coef_, hand.coef_)


@pytest.mark.parametrize(("text", "said"), [
    ("y ~ factor(g)", "write a category as C"), ("y ~ I(x^2)", r"I\(x\*\*2\)"),
    ("y = x", "separate the two sides by ~"),
    ("y ~ x | g", r"in brackets, y ~ x \+ \(1 \| group\)"),
])
def test_what_r_writes_otherwise_is_told(text, said):
    table = pd.DataFrame({"y": [1.0, 2.0, 3.0], "x": [0.0, 1.0, 3.0], "g": list("aab")})
    with pytest.raises(probml.ModelError, match=said) as error:
        formula(text, table)
    assert "\x1b" not in str(error.value)


def test_a_point_is_all_other_columns_but_those_of_groupings():
    table = pd.DataFrame({"y": [1.0, 2.0, 3.0], "x": [0.0, 1.0, 3.0], "g": list("aab")})
    assert list(formula("y ~ .", table).X) == ["x", "g[T.b]"]
    assert list(formula("y ~ . + (1 | g)", table).X) == ["x", "g"]
    assert list(formula("y ~ x * np.where(x == 1, 0, x)", table).X)[0] == "x"


@pytest.mark.parametrize(("text", "kind"), [("y ~ dose", "GeneralizedLinearModel"),
                                            ("y ~ 0 + dose", "GeneralizedLinearModel"),
                                            pytest.param("y ~ dose + (1 | ward)", "MixedModel",
                                                         marks=pytest.mark.slow)])
def test_a_formula_is_fitted_by_its_estimator(text, kind):
    found = formula(text, TABLE)
    estimator = found.fit(engine="bayes")
    assert type(estimator).__name__ == kind and estimator.engine == "bayes"
    assert list(estimator.table().index) == ["intercept"] * found.intercept + ["dose"]
    new = pd.DataFrame({"dose": [1.0, 2.0], "ward": ["a", "z"]})
    assert np.isfinite(estimator.predict(found.of(new))).all()


def test_a_formula_that_cannot_be_fitted_says_why():
    with pytest.raises(probml.ModelError, match="no left side"):
        formula("dose", TABLE).fit()
    with pytest.raises(probml.ModelError, match="no intercept, but MixedModel"):
        formula("y ~ 0 + dose + (1 | ward)", TABLE).fit()
    with pytest.raises(probml.ModelError, match="None, 'bayes' or an engine"):
        formula("y ~ dose", TABLE).fit(engine="baye")


ARMS = pd.DataFrame({"arm": list("abcabcabcabc"), "dose": np.linspace(0.0, 1.0, 12),
                     "day": [1, 2, 3] * 4, "late": [False, False, True] * 4,
                     "site": list("uuuuvvvvwwww"), "y": np.arange(12.0) % 5})
NEW = {"y ~ arm": ("arm", "d"), "y ~ C(arm)": ("arm", "d"), "y ~ 0 + arm": ("arm", "d"),
       "y ~ dose:arm": ("arm", "d"), "y ~ dose * arm": ("arm", "d"),
       "y ~ C(arm, contr.sum)": ("arm", "d"), "y ~ dose + C(day)": ("day", 4),
       "y ~ dose + (1 + arm | site)": ("arm", "d"), "y ~ arm + (1 | site)": ("arm", "d")}


@pytest.mark.parametrize("mixed", [False, True], ids=["alone", "beside a known one"])
@pytest.mark.parametrize("kind", [list, pd.Categorical], ids=["values", "categories"])
@pytest.mark.parametrize("text", NEW)
def test_a_new_category_is_refused_in_every_term(text, kind, mixed):
    name, value = NEW[text]
    found = formula(text, ARMS)
    old = ARMS[name].iloc[0]
    new = ARMS[:2].assign(**{name: kind([value, old if mixed else value])})
    with pytest.raises(probml.DataError, match=f"no fitted row had them: {value!r}.*Drop the rows"):
        found.of(new)


@pytest.mark.parametrize("text", NEW)
def test_some_of_the_categories_are_coded_as_all_of_them(text):
    found = formula(text, ARMS)
    every = found.of(ARMS)
    for rows in (ARMS[2:3], ARMS[::-3], ARMS[ARMS["arm"] == "b"]):
        own = rows.assign(arm=pd.Categorical(rows["arm"], ["d", "c", "b", "a"]))
        for table in (rows, own):
            pd.testing.assert_frame_equal(found.of(table), every.loc[rows.index], check_dtype=False)


@pytest.mark.parametrize(("text", "family"), [("y ~ 1", "normal"), ("y ~ 1", "ordinal"),
                                              ("Surv(t, y) ~ 1", "weibull")])
def test_an_intercept_alone_is_refused_by_name(text, family):
    table = pd.DataFrame({"y": [0, 1, 0, 1], "t": [1.0, 2.0, 3.0, 4.0]})
    with pytest.raises(probml.ModelError, match="no term but the intercept.*Add a term"):
        formula(text, table, family=family)
