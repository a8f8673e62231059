"""Generalized linear models and robust regression: R's glm, scikit-learn, units, posteriors, bad
input."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import GammaRegressor, LinearRegression, PoissonRegressor

import probml
from contract import DENSE, contract
from probml.models import GeneralizedLinearModel, MixedModel, RobustRegression, generalized_linear

EXACT = {"alpha": 0.0, "tol": 1e-10, "max_iter": 1000}
PLANE = ("a plane goes through every row, or has as many coefficients: t noise has no scale, and "
         "the likelihood no maximum")
EXPECTED = {
    "RobustRegression": dict.fromkeys(
        (
            "check_sample_weights_shape",
            "check_sample_weights_not_overwritten",
            DENSE,
            "check_regressors_no_decision_function",
        ),
        PLANE,
    )
}


@pytest.mark.slow
@pytest.mark.one_in(3)
@contract(GeneralizedLinearModel(), RobustRegression(), expected=EXPECTED)
def test_estimators_keep_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return rng, x, np.exp(1 + x @ [0.5, -0.3])


# Fits of R


def reference(shared_data, name):
    return json.loads((shared_data / "fits" / f"{name}.json").read_text())


def test_poisson_glm_of_insect_sprays(shared_data):
    fit, frame = (reference(shared_data, "poisson_insectsprays"),
                  pd.read_csv(shared_data / "classic/insectsprays.csv"))
    x = np.stack([(frame.spray == kind) * 1.0 for kind in "BCDEF"], 1)
    ours = GeneralizedLinearModel("poisson").fit(x, frame["count"])
    np.testing.assert_allclose([ours.intercept_, *ours.coef_], list(fit["coefficients"].values()),
                               atol=1e-9)
    assert ours.deviance_ == pytest.approx(fit["deviance"], abs=1e-9)
    assert ours.history_[-1] == pytest.approx(fit["loglik"], abs=1e-9)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_binomial_glm_of_menarche(shared_data, link):
    fit, frame = (reference(shared_data, "binomial_menarche")[link],
                  pd.read_csv(shared_data / "classic/menarche.csv"))
    ours = GeneralizedLinearModel("binomial", link=link).fit(frame[["Age"]], frame.Menarche,
                                                             trials=frame.Total)
    np.testing.assert_allclose([ours.intercept_, *ours.coef_], list(fit["coefficients"].values()),
                               rtol=1e-7)
    assert ours.deviance_ == pytest.approx(fit["deviance"], abs=1e-8)
    assert ours.history_[-1] == pytest.approx(fit["loglik"], abs=1e-8)
    if "covariance" in fit:
        np.testing.assert_allclose(ours.covariance_, fit["covariance"], rtol=1e-6)


def test_standard_errors_are_those_of_glm(shared_data):
    fit, frame = (reference(shared_data, "logistic_saheart"),
                  pd.read_csv(shared_data / "classic/saheart.csv"))
    x = frame[["sbp", "tobacco", "ldl", "famhist", "obesity", "alcohol", "age"]].assign(
        famhist=(frame.famhist == "Present") * 1.0
    )
    ours = GeneralizedLinearModel("bernoulli").fit(x, frame.chd)
    np.testing.assert_allclose(ours.standard_errors_, list(fit["std_errors"].values()), rtol=1e-6)
    np.testing.assert_allclose(ours.covariance_, fit["covariance"], rtol=1e-5, atol=1e-10)
    assert (ours.deviance_ == pytest.approx(fit["deviance"])
            and ours.null_deviance_ == pytest.approx(fit["null_deviance"]))
    np.testing.assert_allclose(ours.predict(x)[:5], fit["fitted_first5"], atol=1e-8)
    assert ours.table().loc["age", "estimate"] == pytest.approx(fit["coefficients"]["age"])


# scikit-learn, and other families


def test_poisson_and_gamma_are_those_of_scikit_learn():
    rng, x, mean = rows()
    counts, sizes = rng.poisson(mean), rng.gamma(3.0, mean / 3)
    for family, y, peer in (("poisson", counts, PoissonRegressor(**EXACT)),
                            ("gamma", sizes, GammaRegressor(**EXACT))):
        ours, peer = GeneralizedLinearModel(family).fit(x, y), peer.fit(x, y)
        np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-6)
        assert ours.score(x, y) == pytest.approx(peer.score(x, y), abs=1e-9)
    ours, peer = (GeneralizedLinearModel("poisson", penalty=3.0).fit(x, counts),
                  PoissonRegressor(alpha=3 / 300, tol=1e-10).fit(x, counts))
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-6)


def test_a_normal_family_is_least_squares_with_its_standard_errors():
    rng, x, _ = rows()
    y = x @ [1.0, 2.0] + rng.normal(size=300)
    for offset in (0.0, 1e6):
        ours, peer = GeneralizedLinearModel().fit(x + offset, y + offset), LinearRegression().fit(x,
                                                                                                  y)
        np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-7)
    design = np.column_stack([np.ones(300), x])
    left = y - peer.predict(x)
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * (left @ left) / 297)
    np.testing.assert_allclose(ours.standard_errors_[1:], errors[1:], rtol=1e-6)


def test_a_column_that_is_the_sum_of_others_takes_no_degree_of_freedom():
    """R's glm: df.residual is n less the rank, and an aliased coefficient has no standard error."""
    random = np.random.default_rng(0)
    X = random.normal(size=(12, 2)) + 100.0
    y = X[:, 0] + random.normal(size=12)
    right = GeneralizedLinearModel().fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # of numpy: table() divides
        for more, unknown in ((X[:, :1], [1, 3]), (np.full((12, 1), 5.0), [3])):
            found = GeneralizedLinearModel().fit(np.column_stack([X, more]), y)
            known = np.setdiff1d(np.arange(4), unknown)
            assert found.dispersion_ == pytest.approx(right.dispersion_)
            assert found.standard_errors_[known] == pytest.approx(right.standard_errors_[known])
            assert np.isinf(found.standard_errors_[unknown]).all()
            assert (found.table()["p"].iloc[unknown] == 1).all()
    few = GeneralizedLinearModel().fit(np.ones((2, 1)), [1.0, 3.0])
    assert few.dispersion_ == pytest.approx(2.0)  # of one mean: one degree of freedom is left


def test_an_exposure_is_an_offset():
    rng, x, mean = rows()
    exposure = rng.uniform(1, 10, 300)
    y = rng.poisson(mean * exposure)
    ours = GeneralizedLinearModel("poisson").fit(x, y, offset=np.log(exposure))
    peer = PoissonRegressor(**EXACT).fit(x, y / exposure, sample_weight=exposure)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict(x[:3], offset=np.log(exposure[:3])),
                               peer.predict(x[:3]) * exposure[:3], rtol=1e-5)


def test_overdispersed_counts_have_a_concentration():
    rng, x, mean = rows(2000)
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + mean))
    ours = GeneralizedLinearModel("negative binomial").fit(x, y)
    assert ours.converged_ and ours.concentration_ == pytest.approx(2.0, rel=0.25)

    def loglik(c, shift=0.0):
        m = np.exp(ours.intercept_ + x @ (ours.coef_ + shift))
        return stats.nbinom.logpmf(y, c, c / (c + m)).sum()

    top = loglik(ours.concentration_)
    # NumPyro and SciPy differ by 1e-7 a row
    assert ours.history_[-1] == pytest.approx(top, abs=1e-3)
    assert all(loglik(ours.concentration_ * f) < top for f in (0.99, 1.01)) and loglik(
        ours.concentration_, 0.01
    ) < top


def test_a_posterior_of_coefficients_is_averaged_over():
    rng, x, mean = rows(80)
    y = rng.poisson(mean)
    estimator = GeneralizedLinearModel("poisson", penalty=0.1, engine=probml.Laplace()).fit(x, y)
    spread = np.std(estimator.fit_.draws(4000)["beta"], axis=0)
    np.testing.assert_allclose(spread, estimator.standard_errors_[1:], rtol=0.1)
    np.testing.assert_allclose(estimator.predict(x), np.exp(estimator.intercept_ + x @ estimator.coef_), rtol=0.1)
    model = generalized_linear(family="poisson", offset=0.0, trials=1, weight_scale=1.0,
                               bias_scale=5.0)
    assert model.fit({"x": x, "y": y}).converged


@pytest.mark.parametrize(
    ("estimator", "y", "more", "words"),
    [
        (GeneralizedLinearModel("poisson"), [1, -2, 3], {}, "row 1.*integer"),
        (GeneralizedLinearModel("gamma"), [1.0, 2.0, 0.0], {}, "row 2.*above 0"),
        (GeneralizedLinearModel("bernoulli"), [0, 1, 2], {}, "row 2.*0 or 1"),
        (GeneralizedLinearModel("binomial"), [0, 1, 2], {}, "trials"),
        (GeneralizedLinearModel("binomial"), [0, 1, 4], {"trials": [3, 3, 3]}, "trials.*row 2"),
        (GeneralizedLinearModel("poisson"), [0, 1, 2], {"offset": [0.0]}, "offset"),
        (GeneralizedLinearModel("binomials"), [0, 1, 2], {}, "family"),
        (GeneralizedLinearModel(link="logits"), [0, 1, 2], {}, "link"),
        (RobustRegression(), [0.0, 1.0, 2.0], {}, "n_samples=3"),
        (RobustRegression(df=0), [0.0, 1.0, 2.0], {}, "df"),
    ],
)
def test_answers_outside_a_family_are_named_by_row(estimator, y, more, words):
    with pytest.raises(ValueError, match=words):
        estimator.fit(np.array([[0.0, 1.0], [1.0, 3.0], [2.0, 0.0]]), y, **more)


# Robust regression


def heavy(n=200):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 2))
    y = 3 + x @ [1.0, 2.0] + rng.standard_t(3, size=n)
    y[:10] += 100
    return x, y


def test_robust_regression_lets_outliers_be_in_any_units():
    x, y = heavy()
    estimator = RobustRegression().fit(x, y)
    np.testing.assert_allclose([estimator.intercept_, *estimator.coef_], [3, 1, 2], atol=0.35)
    assert estimator.row_weights(x, y)[:10].max() < 0.01 and np.median(estimator.row_weights(x, y)) > 0.5
    assert (np.diff(estimator.history_) >= -1e-9).all()
    moved = RobustRegression().fit(x * 1e-3 + 1e6, y * 1e5 + 1e9)
    np.testing.assert_allclose(moved.coef_ * 1e-8, estimator.coef_, rtol=1e-5)
    np.testing.assert_allclose(moved.scale_ * 1e-5, estimator.scale_, rtol=1e-5)


def test_robust_regression_is_at_the_top_of_the_likelihood():
    x, y = heavy()
    for df in (4.0, None):
        estimator = RobustRegression(df=df).fit(x, y)

        def loglik(shift=0.0, factor=1.0, tails=1.0, estimator=estimator):
            residual = y - estimator.intercept_ - x @ estimator.coef_ - shift
            return stats.t.logpdf(residual, estimator.df_ * tails, 0, estimator.scale_ * factor).sum()

        top = loglik()
        steps = [loglik(shift=0.02), loglik(shift=-0.02), loglik(factor=1.01), loglik(factor=0.99)]
        steps += [loglik(tails=1.02), loglik(tails=0.98)] if df is None else []
        assert max(steps) < top


def test_weights_are_repetitions():
    x, y = heavy(60)
    weights = np.where(np.arange(60) < 20, 2.0, 1.0)
    twice = np.concatenate([np.arange(20), np.arange(60)])
    for estimator in (RobustRegression(), GeneralizedLinearModel()):
        ours, theirs = clone(estimator).fit(x, y, sample_weight=weights), clone(estimator).fit(x[twice],
                                                                                     y[twice])
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)


OFFSET = np.random.default_rng(4).uniform(0.0, 2.0, 60)
GROUPED = pd.DataFrame({"x": np.random.default_rng(5).normal(size=60), "who": np.arange(60) % 6})
NUMBERS = np.random.default_rng(6).poisson(np.exp(0.3 * GROUPED["x"] + OFFSET))
ESTIMATORS = {
    "counts": lambda: (GeneralizedLinearModel("poisson"), GROUPED[["x"]]),
    "numbers": lambda: (GeneralizedLinearModel(), GROUPED[["x"]]),
    "bayes": lambda: (GeneralizedLinearModel("poisson", engine="bayes"), GROUPED[["x"]]),
    "mixed": lambda: (MixedModel({"who": ["1"]}, family="poisson"), GROUPED),
    "mixed numbers": lambda: (MixedModel({"who": ["1"]}), GROUPED),
}
ASKS = {"predict": lambda model, X, **given: model.predict(X, **given),
        "fitted": lambda model, X, **given: model.fitted(X, **given),
        "score": lambda model, X, **given: model.score(X, NUMBERS, **given),
        "residuals": lambda model, X, **given: model.residuals(X, NUMBERS, **given)}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_offset_of_the_fit_is_not_forgotten(name):
    """Every answer about the fitted rows needs their offset: without it there is a warning."""
    model, X = ESTIMATORS[name]()
    model.fit(X, NUMBERS, offset=OFFSET)
    plain = ESTIMATORS[name]()[0].fit(X, NUMBERS)
    for ask in ("predict", "fitted", "residuals", *["score"] * hasattr(model, "_deviance")):
        with pytest.warns(probml.ReliabilityWarning, match="fitted with offset="):
            without = ASKS[ask](model, X)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            zeros = ASKS[ask](model, X, offset=np.zeros(60))
            there = ASKS[ask](model, X, offset=OFFSET)
            ASKS[ask](plain, X)  # none was fitted, none is needed
        np.testing.assert_allclose(without, zeros, rtol=1e-5)
        assert not np.allclose(without, there)


def test_the_rank_of_rows_needs_no_decomposition_twice(monkeypatch):
    random, done = np.random.default_rng(0), []
    X, weights = random.normal(size=(60, 4)), np.ones(60)
    X[:, 3] = X[:, 0] - X[:, 1]
    estimator = GeneralizedLinearModel().fit(X[:, :3], random.normal(size=60))
    estimator._frame(X, weights)
    qr = np.linalg.qr
    monkeypatch.setattr(np.linalg, "qr", lambda *args, **more: done.append(1) or qr(*args, **more))
    assert estimator._rank(X, weights) == 4 and len(done) == 1
