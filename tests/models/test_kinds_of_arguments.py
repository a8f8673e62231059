"""Arguments whose kind is not the one that was fitted, or that is no number: dates in the place of
numbers, labels of groups as other types, columns of a table called like terms of a formula.

Dates, as floats, are counts of a unit that nobody has said; labels that all seem new are answered by
the mean of all groups. Neither may happen in silence. To add a verb, add a line to DATED.
"""

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

pytest.importorskip("sklearn")

import probml
from probml import models
from probml.dataset.labels import left_out

R = np.random.default_rng(0)
N = 60
DAYS = np.arange("2020-01-01", "2020-03-01", dtype="M8[D]")
X = pd.DataFrame({"u": R.normal(size=N), "v": R.normal(size=N)})
Y = X["u"] + R.normal(size=N)
G = np.repeat(np.arange(6), 10)
TABLE = X.assign(y=Y + R.normal(size=6)[G], g=G, h=np.tile([1, 2], 30))


def dated(kind):
    """Dates and durations of every kind that arrays and tables hold."""
    return {"days": DAYS, "durations": DAYS - DAYS[0], "Series": pd.Series(DAYS)}[kind]


DATED = {
    "y of a GLM": lambda d: models.GeneralizedLinearModel().fit(X, d),
    "y of Bayesian regression": lambda d: models.BayesianLinearRegression().fit(X, d),
    "y of a mixed model": lambda d: models.MixedModel({"g": ["1"]}).fit(TABLE[["u", "g"]], d),
    "y of a Gaussian process": lambda d: models.GaussianProcess().fit(X, d),
    "y of a mixture of experts": lambda d: models.MixtureOfExperts().fit(X, d),
    "y of boosting": lambda d: models.Boosted().fit(X, d),
    "times of survival": lambda d: models.SurvivalRegression().fit(X, d),
    "residuals": lambda d: models.GeneralizedLinearModel().fit(X, Y).residuals(X, d),
    "offset": lambda d: models.GeneralizedLinearModel().fit(X, Y, offset=d),
    "weights": lambda d: models.GeneralizedLinearModel().fit(X, Y, sample_weight=d),
    "trials": lambda d: models.GeneralizedLinearModel("binomial").fit(X, Y > 0, trials=d),
    "events": lambda d: models.SurvivalRegression().fit(X, np.exp(Y), event=d),
    "column of a mixed model": lambda d: models.MixedModel({"g": ["1"]}).fit(
        TABLE[["g"]].assign(u=np.asarray(d)), Y),
    "estimates of studies": lambda d: models.MetaAnalysis().fit(d, np.ones(N)),
    "errors of studies": lambda d: models.MetaAnalysis().fit(Y, d),
    "moderators": lambda d: models.MetaAnalysis().fit(Y, np.ones(N), X=pd.DataFrame({"a": d})),
    "series": lambda d: models.StructuralTimeSeries().fit(d),
    "steps": lambda d: models.HiddenMarkov(2).fit(np.asarray(d)[:, None]),
    "columns of factors": lambda d: models.FactorAnalysis(1).fit(pd.DataFrame({"a": d, "b": d})),
    "numbers of clusters": lambda d: models.how_many(np.column_stack([d, d])),
    "one sample": lambda d: models.two_samples(d, d),
}


@pytest.mark.parametrize("kind", ["days", "durations", "Series"])
@pytest.mark.parametrize("verb", DATED)
def test_dates_are_no_numbers(verb, kind):
    with pytest.raises(ValueError):
        DATED[verb](dated(kind))


AS = {"floats": lambda g: g.astype(float), "objects": lambda g: g.astype(object),
      "nullable": lambda g: g.astype("Int64"), "categories": lambda g: g.astype("category")}


@pytest.fixture(scope="module")
def nested():
    return models.formula("y ~ u + (1 | g/h)", TABLE, family="normal")


@pytest.mark.parametrize("kind", AS)
@pytest.mark.parametrize("column", ["g", "h"])
def test_labels_of_groups_are_the_same_whatever_stores_them(nested, column, kind):
    """One missing cell makes floats of a column of integers."""
    asked = TABLE.assign(**{column: AS[kind](TABLE[column])})
    np.testing.assert_allclose(nested.predict(asked), nested.predict(TABLE), rtol=1e-9)


@pytest.mark.parametrize("labels", [G.astype(str), G.astype(float).astype(str)], ids=["text", "text of floats"])
def test_labels_of_another_type_are_not_new_groups(nested, labels):
    with pytest.raises(probml.DataError, match=r"'g' has the label '0.*' \(text\), but the fitted data have 0 \(int64\)"):
        nested.predict(TABLE.assign(g=labels))


def test_labels_that_are_like_no_fitted_one_are_new_groups_of_any_type(nested):
    asked = TABLE[:1].assign(g="elsewhere")
    assert np.isfinite(nested.predict(asked)).all()


@probml.model
def levels(g, groups=6):
    with plate("groups", groups):
        level = sample("level", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(level[g], 1.0))


@pytest.mark.parametrize(("fitted", "asked"), [
    (G, G.astype(str)), (G * 10, G.astype(str) + np.array(["0"])), (G.astype(str), (G + 0.0).astype(str)),
], ids=["codes", "numbers", "text of floats"])
def test_labels_of_an_index_of_another_type_are_not_new_groups(fitted, asked):
    data = {"g": pd.Categorical(fitted) if fitted[-1] == 50 else fitted, "y": Y}
    fit = levels().fit(data, probml.Exact())
    np.testing.assert_allclose(fit.predict({"g": fitted}, "y", unknown="new"), fit.predict({"g": fitted}, "y"))
    with pytest.raises(probml.DataError, match="but the fitted data have .*, of another type"):
        fit.predict({"g": asked}, "y", unknown="new")


def test_labels_of_several_kinds_are_refused():
    with pytest.raises(probml.DataError, match="'g' has text, such as 'a', and other values"):
        models.MixedModel({"g": ["1"]}).fit(TABLE[["u", "g"]].assign(g=[1, "a"] * 30), Y)


def test_a_missing_label_is_named():
    gone = TABLE[["u"]].assign(g=pd.Series(G, dtype="Int64").mask(G == 3))
    with pytest.raises(probml.DataError, match="grouping 'g' is missing in row 30"):
        models.MixedModel({"g": ["1"]}).fit(gone, Y)


def test_a_column_that_is_called_like_a_term_is_not_taken_for_it():
    table = TABLE.assign(**{"scale(u)": R.normal(size=N)})
    fitted = models.formula("y ~ scale(u)", table, family="normal")
    np.testing.assert_allclose(fitted.predict(table), fitted.predict(TABLE), rtol=1e-9)


def test_categories_without_rows_have_no_coefficient():
    grouped = pd.Series([*"cba"] * 20)
    plain = models.formula("y ~ k", TABLE.assign(k=grouped), family="normal")
    unused = pd.Categorical(grouped, categories=[*"zabcd"])
    spare = models.formula("y ~ k", TABLE.assign(k=unused), family="normal")
    assert [*spare.table().index] == [*plain.table().index]
    np.testing.assert_allclose(spare.standard_errors_, plain.standard_errors_, rtol=1e-6)


def test_moderators_are_columns_of_any_table():
    pyarrow = pytest.importorskip("pyarrow")
    table = X[["u"]][:9]
    ours = models.MetaAnalysis("FE").fit(Y[:9], np.ones(9), X=table)
    other = models.MetaAnalysis("FE").fit(Y[:9], np.ones(9), X=pyarrow.Table.from_pandas(table))
    np.testing.assert_allclose(other.coef_, ours.coef_)


def test_exogenous_columns_are_those_of_the_fit_in_their_order():
    fitted = models.StructuralTimeSeries().fit(Y[:50], exog=X[:50])
    future = X[50:]
    assert np.isfinite(fitted.forecast(Y[:50], 10, exog=X[:50], future=future)).all()
    with pytest.raises(probml.DataError, match=r"future has the columns 'v', 'u', but exog of the fit had"):
        fitted.forecast(Y[:50], 10, exog=X[:50], future=future[["v", "u"]])
    with pytest.raises(probml.DataError, match="exog has the columns"):
        fitted.score(Y[:50], exog=X[:50].rename(columns={"v": "w"}))


DATES = {"days": pd.date_range("2020-01-01", periods=24), "months": pd.date_range("2020-01-31", periods=24, freq="ME"),
         "business days": pd.bdate_range("2020-01-01", periods=24), "quarters": pd.period_range("2020Q1", periods=24, freq="Q"),
         "uneven": pd.to_datetime(np.cumsum(np.arange(24) % 5 + 1), unit="D"), "numbers": pd.RangeIndex(24)}


@pytest.mark.parametrize("kind", DATES)
def test_dates_that_are_left_out_are_counted(kind):
    whole = DATES[kind]
    assert left_out(whole) == left_out(whole[:5]) == (0, None)
    found = left_out(whole.delete([9, 10]))
    assert found == ((2, whole[8]) if kind in ("days", "months", "quarters") else (0, None))


def test_a_series_with_a_gap_in_its_dates_warns():
    series = pd.Series(np.asarray(Y[:24]), index=DATES["days"])
    models.StructuralTimeSeries().fit(series)
    with pytest.warns(probml.ReliabilityWarning, match="the dates of X leave out 1 time step, the first after 2020-01-09"):
        models.StructuralTimeSeries().fit(series.drop(series.index[9]))
