"""What every fitted regression answers: intervals, residuals, AIC and BIC, likelihood-ratio tests,
by R's figures and by hand."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

pytest.importorskip("sklearn")
pytest.importorskip("formulaic")

from sklearn.metrics import r2_score  # noqa: E402

import probml  # noqa: E402
from probml.models import (  # noqa: E402
    BayesianLinearRegression,
    GeneralizedLinearModel,
    LogisticRegression,
    MetaAnalysis,
    MixedModel,
    OrdinalRegression,
    RobustRegression,
    SmoothingSpline,
    SurvivalRegression,
    formula,
    likelihood_ratio_test,
)
from probml.models.regression.family_functions import (  # noqa: E402
    inverse_link,
    log_density,
    mean_of_y,
    unit_deviance,
    variance_function,
)
from probml.models.regression.generalized_linear import HurdlePoisson  # noqa: E402

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(80, 2))
TABLE = pd.DataFrame(X, columns=["a", "b"])
COUNT = RANDOM.poisson(np.exp(0.5 + X @ [0.5, -0.3]))
NUMBER = X @ [1.0, -2.0] + RANDOM.normal(size=80)


@pytest.fixture(scope="module")
def poisson():
    return GeneralizedLinearModel("poisson").fit(TABLE, COUNT)


def test_a_negative_binomial_has_the_figures_of_glm_nb(shared_data):
    """MASS: -546.5755 (df=8)."""
    fit = json.loads((shared_data / "fits/nb_quine.json").read_text())
    quine = pd.read_csv(shared_data / "classic/quine.csv")
    ours = formula("Days ~ Eth + Sex + Age + Lrn", quine, family="negative_binomial")
    assert ours.loglik_ == pytest.approx(fit["loglik"], abs=1e-8)
    assert ours.n_parameters_ == 8 and ours.aic_ == pytest.approx(1109.151, abs=1e-3)
    assert ours.bic_ == pytest.approx(-2 * fit["loglik"] + 8 * np.log(146), abs=1e-7)
    bounds = ours.confint(0.9)
    assert list(bounds) == ["5%", "95%"] and bounds.index[0] == "Intercept"
    np.testing.assert_allclose(
        bounds.to_numpy()[:, 1] - bounds.to_numpy()[:, 0],
        2 * stats.norm.ppf(0.95) * np.array(list(fit["std_errors"].values())), rtol=2e-3)


@pytest.mark.slow
def test_the_anova_of_sleepstudy_is_that_of_lme4(shared_data):
    """lme4: AIC 1802.1 and 1763.9, BIC 1814.8 and 1783.1, logLik -897.04 and -875.97, Chisq
    42.139, Df 2, p 7.072e-10."""
    table = pd.read_csv(shared_data / "classic/sleepstudy.csv")
    small = formula("Reaction ~ Days + (1 | Subject)", table, family="gaussian", reml=False)
    large = formula("Reaction ~ Days + (Days | Subject)", table, family="gaussian", reml=False)
    found = likelihood_ratio_test(small, large)
    assert list(found["parameters"]) == [4, 6]
    np.testing.assert_allclose(found["AIC"], [1802.079, 1763.939], atol=1e-3)
    np.testing.assert_allclose(found["BIC"], [1814.850, 1783.097], atol=1e-3)
    np.testing.assert_allclose(found["log-likelihood"], [-897.0393, -875.9697], atol=1e-4)
    assert found.loc["large", "chi2"] == pytest.approx(42.139, abs=1e-3)
    assert found.loc["large", "p"] == pytest.approx(7.072e-10, rel=1e-3)
    left = large.residuals(table)
    np.testing.assert_allclose(left, table["Reaction"] - large.predict(table), atol=1e-9)


def test_residuals_are_shares_of_chi_squared_and_of_the_deviance(poisson):
    for kind, total in (("pearson", ((COUNT - poisson.predict(TABLE)) ** 2
                                     / poisson.predict(TABLE)).sum()),
                        ("deviance", poisson.deviance_)):
        left = poisson.residuals(TABLE, COUNT, kind=kind)
        assert (left**2).sum() == pytest.approx(total)
        assert (np.sign(left) == np.sign(COUNT - poisson.fitted(TABLE))).all()
    np.testing.assert_allclose(poisson.residuals(TABLE, COUNT), COUNT - poisson.predict(TABLE))


def test_the_binomial_has_residuals_of_rates():
    trials = np.full(80, 5)
    y = RANDOM.binomial(5, 1 / (1 + np.exp(-X[:, 0])))
    ours = GeneralizedLinearModel("binomial").fit(TABLE, y, trials=trials)
    rate = ours.predict(TABLE)
    left = ours.residuals(TABLE, y, kind="pearson", trials=trials)
    np.testing.assert_allclose(left, (y / 5 - rate) / np.sqrt(rate * (1 - rate) / 5))
    assert (ours.residuals(TABLE, y, "deviance", trials=trials) ** 2).sum() == pytest.approx(
        ours.deviance_)
    assert ours.score(TABLE, y, trials=trials) == pytest.approx(
        1 - ours.deviance_ / ours.null_deviance_)
    assert ours.loglik_ == pytest.approx(stats.binom.logpmf(y, 5, rate).sum())


def test_a_likelihood_ratio_test_by_hand(poisson):
    small = GeneralizedLinearModel("poisson").fit(TABLE[["a"]], COUNT)
    found = likelihood_ratio_test(small, poisson)
    drop = small.deviance_ - poisson.deviance_
    assert found.loc["large", "chi2"] == pytest.approx(drop)
    assert found.loc["large", "df"] == 1
    assert found.loc["large", "p"] == pytest.approx(stats.chi2.sf(drop, 1))


def test_what_cannot_be_compared_is_refused(poisson):
    small = GeneralizedLinearModel("poisson").fit(TABLE[["a"]], COUNT)
    with pytest.raises(probml.ModelError, match="the second model must be the larger one"):
        likelihood_ratio_test(poisson, small)
    with pytest.raises(probml.DataError, match="different rows"):
        likelihood_ratio_test(GeneralizedLinearModel("poisson").fit(TABLE[["a"]][:70], COUNT[:70]),
                              poisson)
    with pytest.raises(probml.ModelError, match="posterior or a penalty"):
        likelihood_ratio_test(GeneralizedLinearModel("poisson", penalty=1.0).fit(TABLE, COUNT),
                              poisson)
    with pytest.raises(probml.ModelError, match="expected a fitted regression"):
        likelihood_ratio_test(GeneralizedLinearModel("poisson"), poisson)
    for level in (0, 95, "0.9"):
        with pytest.raises(probml.ModelError, match="level"):
            poisson.confint(level)
    with pytest.raises(probml.ModelError, match="kind"):
        poisson.residuals(TABLE, COUNT, kind="student")
    with pytest.raises(AttributeError, match="posterior or a penalty"):
        _ = GeneralizedLinearModel("poisson", penalty=1.0).fit(TABLE, COUNT).aic_


@pytest.mark.slow
def test_restricted_likelihoods_of_other_fixed_effects_are_not_compared():
    table = TABLE.assign(y=NUMBER, g=np.arange(80) % 8)
    both = [formula(text, table, family="normal") for text in ("y ~ a + (1 | g)",
                                                               "y ~ a + b + (1 | g)")]
    with pytest.raises(probml.ModelError, match="reml=False"):
        likelihood_ratio_test(*both)


def test_linear_regressions_have_the_intervals_of_least_squares():
    design = np.column_stack([np.ones(80), X])
    ours = BayesianLinearRegression(weight_scale=1e6, noise=1.0).fit(TABLE, NUMBER)
    root = np.linalg.inv(design.T @ design)
    middle, half = root @ design.T @ NUMBER, 1.959964 * np.sqrt(np.diag(root))
    np.testing.assert_allclose(ours.confint(), np.column_stack([middle - half, middle + half]),
                               rtol=1e-4)
    found, std = ours.predict(TABLE, interval=0.9), ours.predict(TABLE, return_std=True)[1]
    np.testing.assert_allclose(found.upper - found.value, stats.norm.ppf(0.95) * std)
    np.testing.assert_allclose(ours.residuals(TABLE, NUMBER), NUMBER - ours.predict(TABLE))
    curve = SmoothingSpline(noise=0.5).fit(TABLE[["a"]], NUMBER)
    wide = curve.predict(TABLE[["a"]], interval=0.9)
    assert ((wide.upper - wide.lower) / 2 > stats.norm.ppf(0.95) * 0.5).all()


def test_a_robust_regression_has_a_likelihood_and_intervals():
    ours = RobustRegression().fit(TABLE, NUMBER)
    centre = ours.predict(TABLE)
    assert ours.loglik_ == pytest.approx(stats.t.logpdf(NUMBER, 4, centre, ours.scale_).sum())
    assert ours.n_parameters_ == 4 and (ours.confint().diff(axis=1).iloc[:, 1] > 0).all()
    low, high = ours.predict(TABLE, interval=0.5)[1:]
    assert 0.3 < ((low < NUMBER) & (high > NUMBER)).mean() < 0.7


def test_a_logistic_regression_has_them_too():
    y = np.where(RANDOM.random(80) < 1 / (1 + np.exp(-X[:, 0])), "yes", "no")
    ours = LogisticRegression(C=np.inf).fit(TABLE, y)
    glm = GeneralizedLinearModel("binomial").fit(TABLE, (y == "yes") * 1)
    np.testing.assert_allclose(ours.confint(), glm.confint(), rtol=1e-3)
    assert ours.aic_ == pytest.approx(glm.aic_, abs=1e-3)
    np.testing.assert_allclose(ours.residuals(TABLE, y, "deviance"),
                               glm.residuals(TABLE, (y == "yes") * 1, "deviance"), atol=1e-4)
    with pytest.raises(probml.DataError, match="one of the fitted classes"):
        ours.residuals(TABLE, np.full(80, "perhaps"))


# Families

FAMILIES = {
    "zero_inflated_poisson": {"zero_probability": 0.3},
    "zero_inflated_negative_binomial": {"zero_probability": 0.3, "concentration": 2.5},
    "hurdle_poisson": {"zero_probability": 0.3},
    "negative binomial": {"concentration": 2.5}, "poisson": {},
    "bernoulli": {},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_means_and_variances_are_those_of_the_density(family):
    extra, mu = FAMILIES[family], np.array([0.4, 0.9])
    values = np.arange(2 if family == "bernoulli" else 200)[:, None] * np.ones(2)
    mass = np.exp(log_density(family, values, mu, 1, extra))
    np.testing.assert_allclose(mass.sum(0), 1.0)
    mean = (mass * values).sum(0)
    np.testing.assert_allclose(mean, mean_of_y(family, mu, extra))
    np.testing.assert_allclose((mass * (values - mean) ** 2).sum(0),
                               variance_function(family, mu, 1, extra), rtol=1e-6)


def test_a_hurdle_draws_what_its_density_says():
    import jax

    here = HurdlePoisson(0.3, np.array([0.2, 3.0]))
    draws = np.asarray(here.sample(jax.random.PRNGKey(0), (20000,)))
    for k in range(4):
        np.testing.assert_allclose((draws == k).mean(0), np.exp(here.log_prob(np.array([k, k]))),
                                   atol=0.015)
    np.testing.assert_allclose(draws.mean(0), here.mean, atol=0.05)
    np.testing.assert_allclose(draws.var(0), here.variance, rtol=0.05)


@pytest.mark.parametrize("family", [
    "zero_inflated_poisson", "hurdle_poisson",
    *(pytest.param(name, marks=pytest.mark.slow) for name in (
        "zero_inflated_negative_binomial", "beta", "student_t"))])
def test_estimates_and_errors_are_those_of_the_maximum(family):
    """The likelihood of scipy, climbed by scipy, its curvature by differences."""
    random, x = np.random.default_rng(3), X[:, :1]
    mu = np.exp(0.7 + 0.5 * x[:, 0])
    y = {"beta": random.beta(3, 2, 80), "student_t": mu + random.standard_t(3, 80)}.get(
        family, np.where(random.random(80) < 0.3, 0, random.negative_binomial(3, 3 / (3 + mu))))
    ours = GeneralizedLinearModel(family).fit(x, y)
    names = {"zero_inflated_negative_binomial": ["concentration", "zero_probability"],
             "beta": ["concentration"], "student_t": ["sigma", "df"]}.get(family,
                                                                         ["zero_probability"])
    link = {"beta": lambda eta: 1 / (1 + np.exp(-eta)), "student_t": lambda eta: eta}.get(family,
                                                                                          np.exp)

    def loss(at):
        extra = {name: (1 / (1 + np.exp(-value)) if name == "zero_probability" else np.exp(value))
                 for name, value in zip(names, at[2:], strict=True)}
        return -log_density(family, y, link(at[0] + x[:, 0] * at[1]), 1, extra).sum()

    best = optimize.minimize(loss, np.zeros(2 + len(names)), method="Nelder-Mead", options={
        "xatol": 1e-9, "fatol": 1e-11, "maxiter": 20000, "maxfev": 20000})
    assert ours.loglik_ == pytest.approx(-best.fun, abs=1e-5)
    np.testing.assert_allclose([ours.intercept_, *ours.coef_], best.x[:2], atol=2e-3)
    step, p = 1e-4, len(best.x)
    eye = np.eye(p) * step
    curve = np.array([[loss(best.x + a + b) - loss(best.x + a - b) - loss(best.x - a + b)
                       + loss(best.x - a - b) for a in eye] for b in eye]) / (4 * step**2)
    np.testing.assert_allclose(ours.standard_errors_,
                               np.sqrt(np.diag(np.linalg.inv(curve)))[:2], rtol=5e-3)
    assert ours.n_parameters_ == p
    left = ours.residuals(x, y, kind="pearson")
    assert abs(left.mean()) < 0.3 and left.shape == (80,)
    if family in ("beta", "student_t"):
        assert (unit_deviance(family, y, ours.predict(x), 1, ours._family_parameters()) >= 0).all()
    else:
        with pytest.raises(probml.ModelError, match="pearson"):
            ours.residuals(x, y, kind="deviance")


def test_a_binomial_without_trials_is_of_0_and_1():
    y = (X[:, 0] + RANDOM.normal(size=80) > 0) * 1
    ours = [GeneralizedLinearModel(name).fit(X, y).coef_ for name in ("binomial", "bernoulli")]
    np.testing.assert_array_equal(*ours)
    with pytest.raises(probml.DataError, match="For counts of successes use family=.binomial. with trials="):
        GeneralizedLinearModel("binomial").fit(X, COUNT)
    with pytest.raises(probml.DataError, match="trials= is only for family='binomial'"):
        GeneralizedLinearModel("poisson").fit(X, COUNT, trials=np.full(80, 9))
    with pytest.raises(probml.DataError, match="above 0 and below 1"):
        GeneralizedLinearModel("beta").fit(X, y)


LEVELS = {  # family, link → y of a mean
    ("poisson", "log"): RANDOM.poisson, ("gamma", "log"): lambda mu: RANDOM.gamma(3, mu / 3),
    ("normal", "identity"): lambda mu: 1e6 + mu + RANDOM.normal(size=80),
    ("normal", "log"): lambda mu: mu + 0.1 * RANDOM.normal(size=80),
    ("negative binomial", "log"): lambda mu: RANDOM.poisson(RANDOM.gamma(3, mu / 3)),
    ("binomial", "logit"): lambda mu: RANDOM.binomial(9, mu / 20),
    ("bernoulli", "cloglog"): lambda mu: RANDOM.binomial(1, mu / 20),
}


@pytest.mark.parametrize(("family", "link"), LEVELS)
def test_the_null_model_has_the_offset(family, link):
    """R: "The null model will include the offset, and an intercept if there is one in the model"."""
    offset = RANDOM.uniform(-1, 2, 80)
    y = LEVELS[family, link](np.clip(np.exp(offset), 0.1, 19))
    weights = RANDOM.integers(1, 3, 80)
    more = {"offset": offset} | ({"trials": np.full(80, 9.0)} if family == "binomial" else {})
    null = {}
    for intercept in (True, False):
        ours = GeneralizedLinearModel(family, link=link, fit_intercept=intercept)
        ours.fit(TABLE, y, sample_weight=weights, **more)
        null[intercept] = ours.null_deviance_
        extra = ours._family_parameters()
        trials = np.broadcast_to(more.get("trials", 1.0), y.shape)

        def deviance(level, extra=extra, trials=trials):
            mu = inverse_link(link, level + offset)[0]
            return (weights * unit_deviance(family, y / trials, mu, trials, extra)).sum()

        levels = np.linspace(-5, 5, 501) + (np.average(y, weights=weights) if link == "identity"
                                             else 0.0)
        if intercept:
            near = min(levels, key=deviance)
            best = optimize.minimize_scalar(deviance, bounds=(near - 0.02, near + 0.02),
                                            method="bounded", options={"xatol": 1e-7})
            assert null[True] == pytest.approx(best.fun, rel=1e-4)
            assert ours.score(TABLE, y, weights, **more) == pytest.approx(
                1 - ours.deviance_ / null[True], abs=1e-9)
        else:
            assert null[False] == pytest.approx(deviance(0.0))


def test_scores_of_counts_need_their_trials():
    y = RANDOM.binomial(5, 0.4, 80)
    ours = GeneralizedLinearModel("binomial").fit(TABLE, y, trials=np.full(80, 5))
    with pytest.raises(probml.DataError, match="score: family 'binomial' needs the number of trials"):
        ours.score(TABLE, y)


@pytest.mark.slow
def test_the_score_of_a_mixed_model_is_of_rates_and_has_the_offset():
    table = TABLE[["a"]].assign(g=np.arange(80) % 8)
    trials, offset = RANDOM.integers(1, 9, 80), RANDOM.normal(size=80)
    y = RANDOM.binomial(trials, 1 / (1 + np.exp(-X[:, 0] - offset)))
    ours = MixedModel({"g": ["1"]}, family="binomial", nodes=1).fit(table, y, trials=trials,
                                                                    offset=offset)
    found = ours.predict(table, offset=offset)
    assert ours.score(table, y, trials=trials, offset=offset) == pytest.approx(
        r2_score(y / trials, found, sample_weight=trials))
    with pytest.raises(probml.DataError, match="score: family 'binomial' needs the number of trials"):
        ours.score(table, y, offset=offset)


SPARE = {
    "poisson": lambda x: GeneralizedLinearModel("poisson").fit(x, COUNT),
    "normal": lambda x: GeneralizedLinearModel().fit(x, NUMBER),
    "robust": lambda x: RobustRegression().fit(x, NUMBER),
    "weibull": lambda x: SurvivalRegression().fit(x, np.exp(NUMBER)),
    "lognormal without an intercept": lambda x: SurvivalRegression(
        "lognormal", fit_intercept=False).fit(x, np.exp(NUMBER)),
    "logistic": lambda x: LogisticRegression(C=np.inf).fit(x, COUNT > 1),
    "three classes": lambda x: LogisticRegression(C=np.inf).fit(x, np.minimum(COUNT, 2)),
    "ordinal": lambda x: OrdinalRegression().fit(x, np.minimum(COUNT, 3)),
}


@pytest.mark.filterwarnings("ignore:MAP|EM:UserWarning")
@pytest.mark.parametrize("kind", SPARE)
def test_a_column_that_is_the_sum_of_others_is_no_parameter(kind):
    small, large = SPARE[kind](TABLE), SPARE[kind](TABLE.assign(c=TABLE["a"] + TABLE["b"]))
    assert large.n_parameters_ == small.n_parameters_
    assert large.aic_ == pytest.approx(small.aic_, abs=1e-2)


def test_moderators_that_are_sums_of_others_are_refused():
    twice = np.column_stack([X[:8, 0], 2 * X[:8, 0]])
    for method in ("REML", "ML", "FE"):
        with pytest.raises(probml.DataError, match="moderators 0, 1 are linearly dependent"):
            MetaAnalysis(method).fit(NUMBER[:8], np.ones(8), X=twice)
    table = TABLE.assign(c=TABLE["a"] + 1e3 * TABLE["b"], g=np.arange(len(TABLE)) % 5)
    with pytest.raises(probml.DataError, match="columns 'a', 'b', 'c' are linearly dependent"):
        MixedModel({"g": ["1"]}).fit(table, NUMBER)


def test_a_negative_binomial_of_a_large_concentration_is_a_poisson():
    mu, y = np.array([0.5, 1.0, 7.0, 30.0]), np.array([0, 1, 5, 40])
    for own in (0.3, 900.0, 1100.0, 1e6):
        found = log_density("negative binomial", y, mu, 1, {"concentration": own})
        np.testing.assert_allclose(found, stats.nbinom.logpmf(y, own, own / (own + mu)), rtol=1e-8)
    for own in (1e12, 1e19, 1e300):
        found = log_density("negative binomial", y, mu, 1, {"concentration": own})
        np.testing.assert_allclose(found, stats.poisson.logpmf(y, mu), rtol=1e-8)
        np.testing.assert_allclose(unit_deviance("negative binomial", y, mu, 1, {"concentration": own}),
                                   unit_deviance("poisson", y, mu, 1, {}), rtol=1e-8)


def test_log_densities_take_offsets_and_trials():
    trials, offset = RANDOM.integers(1, 9, 80), RANDOM.normal(size=80)
    y = RANDOM.binomial(trials, 1 / (1 + np.exp(-X[:, 0])))
    binomial = GeneralizedLinearModel("binomial").fit(TABLE, y, trials=trials)
    assert binomial.log_prob(TABLE, y, trials=trials).sum() == pytest.approx(binomial.loglik_, rel=1e-4)
    count = RANDOM.poisson(np.exp(offset))
    poisson = GeneralizedLinearModel("poisson").fit(TABLE, count, offset=offset)
    assert poisson.log_prob(TABLE, count, offset=offset).sum() == pytest.approx(poisson.loglik_, rel=1e-4)
