"""Pictures of regressions show the numbers of the estimator: partial effects, residuals, quantiles,
intervals of coefficients."""

import numpy as np
import pandas as pd
import pytest

matplotlib = pytest.importorskip("matplotlib")

import probml  # noqa: E402
from probml.models import (  # noqa: E402
    BayesianLinearRegression,
    FactorAnalysis,
    GaussianMixture,
    GeneralizedLinearModel,
    HiddenMarkov,
    LogisticRegression,
    MixedModel,
    StructuralTimeSeries,
    pictures,
)

RANDOM = np.random.default_rng(3)
TABLE = pd.DataFrame({"age": RANDOM.uniform(20, 60, 80), "dose": RANDOM.integers(0, 4, 80)})
Y = pd.Series(2 + 0.5 * TABLE["age"] - TABLE["dose"] + RANDOM.normal(size=80), name="score")


def test_an_effect_is_the_prediction_along_a_column_at_the_medians_of_the_others():
    estimator = BayesianLinearRegression().fit(TABLE, Y)
    ax = pictures.effects_of(estimator, "age")
    line = ax.get_lines()[0]
    x, drawn = line.get_xdata(), line.get_ydata()
    assert (x[0], x[-1]) == (TABLE["age"].min(), TABLE["age"].max())
    rows = pd.DataFrame({"age": x, "dose": TABLE["dose"].median()})
    mean, sd = estimator.predict(rows, return_std=True)
    np.testing.assert_allclose(drawn, mean)
    low, high = ax.collections[0].get_datalim(ax.transData).intervaly
    np.testing.assert_allclose([low, high], [(mean - 1.959964 * sd).min(),
                                             (mean + 1.959964 * sd).max()], rtol=1e-5)
    assert ax.get_xlabel() == "age" and "age" in ax.get_title()
    whole = pictures.effects_of(estimator, 1, TABLE)
    assert whole.get_lines()[0].get_xdata().tolist() == [0, 1, 2, 3]
    labels = pictures.effects_of(LogisticRegression().fit(TABLE, Y > Y.median()), "dose")
    for line, chance in zip(labels.get_lines()[:2], LogisticRegression().fit(
            TABLE, Y > Y.median()).predict_proba(pd.DataFrame({"age": TABLE["age"].median(),
                                                               "dose": range(4)})).T, strict=True):
        np.testing.assert_allclose(line.get_ydata(), chance, atol=1e-6)


def test_an_effect_of_a_grouping_has_a_point_a_level():
    table = TABLE.assign(ward=np.array(["north", "south", "west", "east"])[np.arange(80) % 4])
    shift = {"north": 3.0, "south": -3.0, "west": 0.0, "east": 1.0}
    estimator = MixedModel({"ward": ["1"]}).fit(table, Y + table["ward"].map(shift))
    ax = pictures.effects_of(estimator, "ward")
    levels = [tick.get_text() for tick in ax.get_xticklabels()]
    assert levels == ["east", "north", "south", "west"]
    drawn = dict(zip(levels, ax.get_lines()[-1].get_ydata(), strict=True))
    rows = pd.DataFrame({"age": TABLE["age"].median(), "dose": TABLE["dose"].median(),
                         "ward": levels})
    np.testing.assert_allclose(list(drawn.values()), estimator.predict(rows))
    assert drawn["north"] > drawn["east"] > drawn["south"]
    assert "effect of ward" in pictures.effects(estimator).get_xlabel()
    with pytest.raises(probml.ModelError, match="with one grouping, but its groupings are ..ward"):
        pictures.effects(MixedModel({"ward": ["1"], "dose": ["1"]}).fit(
            table, Y), None)


def test_residuals_and_their_quantiles_are_those_of_the_predictions():
    from scipy.stats import norm

    estimator = GeneralizedLinearModel("normal").fit(TABLE, Y)
    fitted = estimator.predict(TABLE)
    line = pictures.residuals(estimator, TABLE, Y).get_lines()[1]
    np.testing.assert_allclose(line.get_xdata(), fitted)
    np.testing.assert_allclose(line.get_ydata(), Y - fitted)
    ax = pictures.qq(estimator, TABLE, Y)
    rest = np.asarray(Y - fitted)
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), np.sort(
        (rest - rest.mean()) / rest.std()))
    np.testing.assert_allclose(ax.get_lines()[1].get_xdata(), norm.ppf((np.arange(80) + 0.5) / 80))
    with pytest.raises(probml.DataError, match="residuals: the target"):
        pictures.residuals(estimator, TABLE)
    with pytest.raises(probml.ModelError, match="expected a regression"):
        pictures.qq(LogisticRegression().fit(TABLE, Y > 20), TABLE, Y)


def test_a_forest_has_a_row_an_estimate():
    table = pd.DataFrame({"Estimate": [0.4, -0.2, 0.1], "Std. Error": [0.1, 0.2, 0.05]},
                         index=["Ayr 2001", "Bath 2004", "pooled"])
    ax = pictures.forest(table, summary=["pooled"], xlabel="log odds ratio")
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list(table.index)
    bars = np.array([line[:, 0] for line in ax.collections[0].get_segments()])
    np.testing.assert_allclose(bars, [[0.4 - 0.1959964, 0.4 + 0.1959964],
                                      [-0.2 - 0.3919928, -0.2 + 0.3919928],
                                      [0.1 - 0.0979982, 0.1 + 0.0979982]], atol=1e-6)
    assert len(ax.patches) == 1 and ax.get_xlabel() == "log odds ratio"
    assert pictures.forest(table, names=["pooled"]).get_yticklabels()[0].get_text() == "pooled"
    estimator = GeneralizedLinearModel("normal").fit(TABLE, Y)
    drawn = [tick.get_text() for tick in pictures.forest(estimator).get_yticklabels()]
    assert drawn == ["age", "dose"]
    with pytest.raises(probml.DataError, match="a column of estimates"):
        pictures.forest(table[["Std. Error"]])


@pytest.mark.parametrize("made", [
    lambda: (GaussianMixture(2, n_init=1).fit(TABLE.assign(dose=Y)), "age"),
    lambda: (GeneralizedLinearModel("normal").fit(TABLE, Y), "estimate, 95% interval"),
    lambda: (StructuralTimeSeries().fit(Y[:40]), "time step"),
    lambda: (HiddenMarkov(2, n_init=2).fit(pd.Series(
        np.r_[np.zeros(20), np.full(20, 9.0)] + RANDOM.normal(size=40),
        pd.period_range("2001-01", periods=40, freq="M"))), "date"),
    lambda: (FactorAnalysis(2).fit(np.outer(RANDOM.normal(size=80), np.ones(6))
                                   + np.outer(RANDOM.normal(size=80), [1, -1, 1, -1, 1, -1.0])
                                   + RANDOM.normal(size=(80, 6))), "score of factor 1"),
], ids=["mixture", "glm", "series", "states", "factors"])
def test_each_kind_has_a_picture_of_its_own(made):
    estimator, words = made()
    axes = np.ravel(pictures.picture(estimator))
    assert axes[-1].get_xlabel() == words
    matplotlib.pyplot.close("all") if hasattr(matplotlib, "pyplot") else None
