"""Meta-analysis, ordinal and survival regression: the digits of metafor, MASS::polr and
survival::survreg, posteriors, bad input."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

pytest.importorskip("sklearn")

import probml  # noqa: E402
from probml.models import MetaAnalysis, OrdinalRegression, SurvivalRegression  # noqa: E402

# Meta-analysis


@pytest.fixture(scope="module")
def bcg(shared_data):
    return (pd.read_csv(shared_data / "classic/bcg.csv"),
            json.loads((shared_data / "fits/meta_bcg.json").read_text())["fits"])


@pytest.mark.parametrize("method", ["REML", "ML", "FE"])
def test_vaccine_trials_have_the_figures_of_metafor(bcg, method):
    table, fits = bcg
    fit, ours = fits[method], MetaAnalysis(method).fit(table["yi"], table["vi"] ** 0.5)
    assert ours.intercept_ == pytest.approx(fit["beta"]["intrcpt"], abs=1e-6)
    assert ours.standard_errors_[0] == pytest.approx(fit["se"], abs=1e-6)
    assert ours.tau_ == pytest.approx(fit["tau"], abs=1e-6)
    assert ours.Q_ == pytest.approx(fit["Q"])
    if method != "FE":
        assert ours.loglik_ == pytest.approx(fit["loglik"], abs=1e-6)
    np.testing.assert_allclose(ours.effects_["effect"], fit["blup"]["mean"], atol=1e-5)
    np.testing.assert_allclose(ours.effects_["effect error"], fit["blup"]["se"], atol=1e-5)


def test_heterogeneity_and_prediction_are_as_printed(bcg):
    """metafor: I^2 92.22%, H^2 12.86, Q(df = 12) = 152.2330, p < .0001; AIC 28.4047, BIC 29.3746;
    predict: -0.7145, ci -1.0669 -0.3622, pi -1.8667 0.4376."""
    table, _ = bcg
    ours = MetaAnalysis().fit(table["yi"], table["vi"] ** 0.5, names=table["trial"])
    assert (round(ours.I2_, 2), round(ours.H2_, 2), ours.Q_df_) == (92.22, 12.86, 12)
    assert round(ours.aic_, 4) == 28.4047 and round(ours.bic_, 4) == 29.3746
    assert ours.Q_p_ < 1e-4 and ours.effects_.index[0] == "t1"
    assert "studies: 13   Q: 152.233   I2: 92.2" in str(ours.summary())
    np.testing.assert_allclose(ours.confint().to_numpy()[0], [-1.0669, -0.3622], atol=5e-5)
    np.testing.assert_allclose(np.ravel(ours.predict(interval=0.95)), [-0.7145, -1.8667, 0.4376],
                               atol=5e-5)


def test_moderators_have_the_figures_of_metafor(bcg):
    table, fits = bcg
    for method in ("REML", "ML"):
        fit = fits[f"{method}_regression"]
        ours = MetaAnalysis(method).fit(table["yi"], table["vi"] ** 0.5, X=table[["ablat"]])
        np.testing.assert_allclose([ours.intercept_, *ours.coef_], list(fit["beta"].values()),
                                   atol=1e-5)
        np.testing.assert_allclose(ours.standard_errors_, fit["se"], rtol=1e-4)
        assert ours.loglik_ == pytest.approx(fit["loglik"], abs=1e-5)
    assert ours.predict(table[["ablat"]]).shape == (13,)
    assert list(ours.confint().index) == ["Intercept", "ablat"]


def test_a_likelihood_ratio_test_of_a_moderator(bcg):
    from probml.models import likelihood_ratio_test

    table, fits = bcg
    both = [MetaAnalysis("ML").fit(table["yi"], table["vi"] ** 0.5, X=X)
            for X in (None, table[["ablat"]])]
    assert likelihood_ratio_test(*both).loc["large", "chi2"] == pytest.approx(
        2 * (fits["ML_regression"]["loglik"] - fits["ML"]["loglik"]), abs=1e-5)
    with pytest.raises(probml.ModelError, match="reml=False|different fixed effects"):
        likelihood_ratio_test(*(MetaAnalysis().fit(table["yi"], table["vi"] ** 0.5, X=X)
                                for X in (None, table[["ablat"]])))


def test_studies_that_agree_have_no_heterogeneity():
    ours = MetaAnalysis().fit([0.1, 0.11, 0.09, 0.1], [0.2, 0.3, 0.25, 0.2])
    assert ours.tau_ == pytest.approx(0, abs=1e-3) and ours.I2_ < 0.1 and ours.Q_p_ > 0.9


def test_a_posterior_is_that_of_quadrature(bcg):
    table, _ = bcg
    y, error = table["yi"].to_numpy(), table["vi"].to_numpy() ** 0.5
    ours = MetaAnalysis(engine="bayes").fit(y, error)
    unit, level = y.std(), y.mean()

    def weight(tau):  # the mean integrated out
        cov = np.diag(error**2 + tau**2) + (2.5 * unit) ** 2
        return np.exp(stats.multivariate_normal.logpdf(y, np.full(13, level), cov) - tau / unit)

    total = integrate.quad(weight, 0, 4)[0]
    tau = integrate.quad(lambda t: t * weight(t), 0, 4)[0] / total
    assert ours.tau_ == pytest.approx(tau, rel=0.08) and ours.loglik_ is None
    assert ours.confint().shape == (1, 2)


@pytest.mark.parametrize(("given", "said"), [
    (([0.1, 0.2], [0.1, 0.0]), "standard_error is 0 in row 1"),
    (([0.1, np.nan], [0.1, 0.2]), "y contains NaN in row 1"),
    (([0.1, 0.2], [0.1]), r"standard_error has the shape \(1,\), expected \(2,\)"),
    (([0.1], [0.1]), "number of studies, 1, must be more than"),
    (([0.1, 0.2, 0.3], [0.1, 0.2, 0.1], np.ones((3, 1))), "the same in every study"),
])
def test_bad_studies_are_refused(given, said):
    with pytest.raises(probml.DataError, match=said):
        MetaAnalysis().fit(*given)


def test_a_forest_has_a_row_for_each_study(bcg):
    pytest.importorskip("matplotlib")
    from probml.models import GeneralizedLinearModel, pictures

    table, _ = bcg
    ours = MetaAnalysis().fit(table["yi"], table["vi"] ** 0.5, names=table["trial"])
    ax = pictures.forest(ours)
    words = [each.get_text() for each in ax.get_yticklabels()]
    assert words == [*table["trial"], "mean (I² 92%)"]
    glm = GeneralizedLinearModel().fit(table[["ablat", "year"]], table["yi"])
    assert [each.get_text() for each in pictures.forest(glm).get_yticklabels()] == ["ablat", "year"]
    assert ours.forest_table(0.9).loc["t1", "upper"] == pytest.approx(
        table["yi"][0] + 1.644854 * table["vi"][0] ** 0.5, abs=1e-5)


# Ordinal

COUNTS = [21, 21, 28, 34, 22, 36, 10, 11, 36, 61, 23, 17, 43, 35, 40, 26, 18, 54, 13, 9, 10, 8, 8,
          12, 6, 7, 9, 18, 6, 7, 15, 13, 13, 7, 5, 11, 14, 19, 37, 17, 23, 40, 3, 5, 23, 78, 46,
          43, 48, 45, 86, 15, 25, 62, 20, 23, 20, 10, 22, 24, 7, 10, 21, 57, 23, 13, 31, 21, 13, 5,
          6, 13]
"""MASS's housing, 1681 tenants of Copenhagen, by satisfaction, influence, type and contact."""
CELL = np.arange(72)
HOUSES = pd.DataFrame({
    "InflMedium": CELL // 3 % 3 == 1, "InflHigh": CELL // 3 % 3 == 2,
    "TypeApartment": CELL // 9 % 4 == 1, "TypeAtrium": CELL // 9 % 4 == 2,
    "TypeTerrace": CELL // 9 % 4 == 3, "ContHigh": CELL // 36 == 1}).astype(float)
ORDER = ["Low", "Medium", "High"]
SATISFIED = np.array(ORDER)[CELL % 3]
POLR = {
    "logit": ([0.5664, 1.2888, -0.5724, -0.3662, -1.0910, 0.3603, -0.4961, 0.6907],
              [0.1047, 0.1272, 0.1192, 0.1552, 0.1515, 0.0955, 0.1248, 0.1255], 3479.149),
    "probit": ([0.3464, 0.7829, -0.3475, -0.2179, -0.6642, 0.2224, -0.2998, 0.4267],
               [0.0641, 0.0764, 0.0723, 0.0948, 0.0918, 0.0581, 0.0762, 0.0764], 3479.689),
}
"""As printed by example(polr): coefficients, then thresholds; standard errors; deviance."""


@pytest.mark.parametrize("link", POLR)
def test_the_satisfaction_of_tenants_has_the_digits_of_polr(link):
    values, errors, deviance = POLR[link]
    ours = OrdinalRegression(link, categories=ORDER).fit(HOUSES, SATISFIED, sample_weight=COUNTS)
    np.testing.assert_allclose([*ours.coef_, *ours.thresholds_], values, atol=6e-5)
    np.testing.assert_allclose(ours.standard_errors_, errors, atol=6e-5)
    assert ours.deviance_ == pytest.approx(deviance, abs=6e-4)
    assert ours.aic_ == pytest.approx(deviance + 16, abs=6e-4)
    assert list(ours.classes_) == ORDER
    assert list(ours.confint().index[-2:]) == ["Low|Medium", "Medium|High"]
    np.testing.assert_allclose(ours.predict_proba(HOUSES).sum(1), 1.0)
    again = ours.fit_.predict_proba(ours.as_data(HOUSES), "y")  # the function's own
    np.testing.assert_allclose(ours.predict_proba(HOUSES), again, atol=1e-5)


def test_categories_come_in_their_order():
    x, y = np.arange(30.0)[:, None], np.repeat(["low", "mid", "top"], 10)
    y[9:11], y[19:21] = ["mid", "low"], ["top", "mid"]
    ordered = pd.Series(pd.Categorical(y, ["top", "mid", "low"], ordered=True))
    ours = OrdinalRegression().fit(x, ordered)
    other = OrdinalRegression(categories=["low", "mid", "top"]).fit(x, y)
    assert list(ours.classes_) == ["top", "mid", "low"]
    np.testing.assert_allclose(ours.coef_, -other.coef_, rtol=1e-3)
    assert (ours.predict(x) == other.predict(x)).all()
    assert ours.loglik_ == pytest.approx(other.loglik_, abs=1e-5)


def test_a_cloglog_is_a_product_of_hazards():
    """P(y > k) = exp(−exp(threshold − x β)): by scipy, at the estimates."""
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 1))
    y = np.digitize(x[:, 0] + random.gumbel(size=200), [-1, 1])
    ours = OrdinalRegression("cloglog").fit(x, y)
    above = np.exp(-np.exp(ours.thresholds_[None, :] - x @ ours.coef_[:, None]))
    np.testing.assert_allclose(ours.predict_proba(x)[:, 2], above[:, 1], rtol=1e-6)
    for j, step in ((0, 1e-3), (0, -1e-3)):
        near = OrdinalRegression("cloglog").fit(x, y)
        near.coef_ = near.coef_ + step * (j == 0)
        logs = np.log(near.predict_proba(x)[np.arange(200), y]).sum()
        assert logs < ours.loglik_


@pytest.mark.slow
def test_an_ordinal_posterior_is_near_the_maximum_of_many_rows():
    ours = OrdinalRegression(categories=ORDER, engine="bayes").fit(HOUSES, SATISFIED,
                                                                   sample_weight=COUNTS)
    values, errors, _ = POLR["logit"]
    np.testing.assert_allclose(ours.coef_, values[:6], atol=0.04)
    np.testing.assert_allclose(ours.standard_errors_, errors, rtol=0.15)
    assert ours.loglik_ is None and ours.confint(0.5).shape == (8, 2)


@pytest.mark.parametrize(("settings", "y", "said"), [
    ({"categories": ["Low", "High"]}, SATISFIED, "'Medium', which is not among"),
    ({"categories": ["Low", "Low"]}, SATISFIED, "each once"),
    ({"categories": "Low"}, SATISFIED, "expected two or more categories"),
    ({"link": "log"}, SATISFIED, "link='log'"),
    ({}, np.full(72, "Low"), "greater than one"),
    ({}, SATISFIED, "whose order is unknown.*categories="),
    ({}, pd.Categorical(SATISFIED, ORDER), "whose order is unknown.*ordered=True"),
    ({}, SATISFIED.astype(object), "whose order is unknown"),
])
def test_bad_categories_are_refused(settings, y, said):
    with pytest.raises((probml.ModelError, probml.DataError), match=said):
        OrdinalRegression(**settings).fit(HOUSES, y)


# Survival

OVARIAN = pd.DataFrame({
    "time": [59, 115, 156, 421, 431, 448, 464, 475, 477, 563, 638, 744, 769, 770, 803, 855, 1040,
             1106, 1129, 1206, 1227, 268, 329, 353, 365, 377],
    "died": [1, 1, 1, 0, 1, 0, 1, 1, 0, 1, 1, *[0] * 10, 1, 1, 1, 1, 0],
    "ecog.ps": [1, 1, 2, 1, 1, 2, 2, 2, 1, 2, 2, 1, 2, 1, 1, 2, 2, 1, 1, 1, 2, 2, 1, 2, 1, 1],
    "rx": [1, 1, 1, 2, 1, 1, 2, 2, 1, 2, 1, 2, 2, 2, 1, 1, 1, 1, 2, 2, 2, 1, 1, 2, 2, 2]})
"""R's survival::ovarian, Edmunson et al. (1979)."""
COLUMNS = ["ecog.ps", "rx"]
SURVREG = {
    "exponential": ([6.962, -0.433, 0.582], [1.322, 0.587, 0.587], 1.0, -97.2),
    "weibull": ([6.897, -0.385, 0.529], [1.178, 0.527, 0.529], 0.884, -97.1),
}
"""As printed by example(survreg): (Intercept), ecog.ps, rx; errors; scale; log likelihood."""


@pytest.mark.parametrize("distribution", SURVREG)
def test_ovarian_cancer_has_the_digits_of_survreg(distribution):
    values, errors, scale, loglik = SURVREG[distribution]
    ours = SurvivalRegression(distribution).fit(OVARIAN[COLUMNS], OVARIAN["time"],
                                                event=OVARIAN["died"])
    np.testing.assert_allclose([ours.intercept_, *ours.coef_], values, atol=6e-4)
    np.testing.assert_allclose(ours.standard_errors_, errors, atol=6e-4)
    assert round(ours.scale_, 3) == scale and round(ours.loglik_, 1) == loglik
    assert ours.n_events_ == 12
    assert ours.n_parameters_ == 3 + (distribution == "weibull")


LAWS = {
    "weibull": lambda eta, s: stats.weibull_min(1 / s, scale=np.exp(eta)),
    "exponential": lambda eta, s: stats.expon(scale=np.exp(eta)),
    "lognormal": lambda eta, s: stats.lognorm(s, scale=np.exp(eta)),
    "loglogistic": lambda eta, s: stats.fisk(1 / s, scale=np.exp(eta)),
}


@pytest.mark.parametrize("distribution", LAWS)
def test_intervals_have_the_probabilities_of_scipy(distribution):
    """Exact, right, left and interval censored: the likelihood of scipy at the estimates, and none
    that is higher around."""
    low = np.array([1.0, 2.0, 0.0, 1.5, 3.0, 0.5, 2.5, 4.0])
    high = np.array([1.0, np.inf, 2.0, 2.5, 3.0, 0.9, np.inf, 6.0])
    x = np.array([[0.1], [1.0], [0.3], [-0.2], [0.8], [-1.0], [0.4], [1.2]])
    ours = SurvivalRegression(distribution).fit(x, np.column_stack([low, high]))

    def height(bias, slope, scale):
        law = LAWS[distribution](bias + slope * x[:, 0], scale)
        exact = low == high
        with np.errstate(divide="ignore"):
            return np.where(exact, law.logpdf(np.where(exact, low, 1.0)),
                            np.log(np.maximum(law.sf(low) - law.sf(high), 1e-300))).sum()

    at = (ours.intercept_, ours.coef_[0], ours.scale_)
    assert ours.loglik_ == pytest.approx(height(*at), abs=1e-6)
    for j in range(3 - (distribution == "exponential")):
        for step in (-0.02, 0.02):
            assert height(*(value + step * (i == j) for i, value in enumerate(at))) < ours.loglik_
    law = LAWS[distribution](ours.intercept_ + x[:, 0] * ours.coef_[0], ours.scale_)
    np.testing.assert_allclose(ours.predict(x), law.median(), rtol=1e-5)
    found = ours.predict(x, interval=0.9)
    np.testing.assert_allclose(found.upper, law.ppf(0.95), rtol=1e-5)
    np.testing.assert_allclose(ours.predict_survival(x, [1.0, 3.0]),
                               np.column_stack([law.sf(1.0), law.sf(3.0)]), rtol=1e-5)


def test_concordance_by_pairs():
    x, time, event = np.array([[3.0], [1.0], [2.0]]), np.array([5.0, 2.0, 4.0]), [1, 1, 0]
    ours = SurvivalRegression("exponential").fit(x, time, event=event)
    right = ours.predict(x)[0] > ours.predict(x)[1]
    assert ours.score(x, time, event=event) == (1.0 if right else 0.0)


@pytest.mark.slow
def test_a_posterior_of_survival_averages_over_it():
    ours = SurvivalRegression(engine="bayes").fit(OVARIAN[COLUMNS], OVARIAN["time"],
                                                  event=OVARIAN["died"])
    found = ours.predict_survival(OVARIAN[COLUMNS], [100, 500])
    assert ((found > 0) & (found < 1)).all() and (found[:, 0] > found[:, 1]).all()
    assert ours.loglik_ is None


@pytest.mark.parametrize(("y", "event", "said"), [
    ([1.0, -2.0, 3.0], None, "y is -2.0 in row 1"),
    ([1.0, 2.0, 3.0], [0, 0, 0], "every row is right censored"),
    ([1.0, 2.0, 3.0], [0, 2, 1], "event is 2 in row 1"),
    ([[1.0, 2.0], [3.0, 2.0], [1.0, 1.0]], None, r"\[3.0, 2.0\] in row 1"),
    ([[1.0, 2.0], [0.0, np.inf], [1.0, 1.0]], None, r"\[0.0, inf\] in row 1"),
    (np.ones((3, 3)), None, "has the shape"),
])
def test_bad_times_are_refused(y, event, said):
    with pytest.raises((probml.DataError, ValueError), match=said):
        SurvivalRegression().fit(np.array([[1.0], [2.0], [4.0]]), y, event=event)


def test_a_fit_says_nothing_that_is_not_so():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = SurvivalRegression("lognormal").fit(OVARIAN[COLUMNS], OVARIAN["time"],
                                                   event=OVARIAN["died"])
    for verb in ("residuals", "log_prob", "predict_proba"):
        assert not hasattr(ours, verb)
    assert "beta[rx]" in ours.fit_.summary().index
