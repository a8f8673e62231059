"""Dynamic factors: held to the joint normal and to statsmodels' likelihood."""

import numpy as np
import pytest
from scipy import stats

import probml
from probml.models import DynamicFactor, dynamic_factor

nan = np.nan


def series(steps=80):
    random, f = np.random.default_rng(5), np.zeros(steps)
    for t in range(1, steps):
        f[t] = 0.7 * f[t - 1] + random.normal()
    y = f[:, None] * [1.0, -0.5, 0.8, 0.3] + random.normal(size=(steps, 4)) * [0.5, 0.7, 0.4, 1.0]
    y = np.round(y - y.mean(0), 3)
    y[10:14, 1] = y[40] = y[60:62, 3] = nan
    return y


def test_the_function_is_the_joint_normal_of_its_series():
    point = {"partial": np.array([[0.6], [-0.3]]), "mean": np.array([1.0, 2.0, 3.0]),
             "loadings": np.array([[1.0, 0.0], [0.5, 1.0], [-0.3, 2.0]]), "sigma": np.full(3, 0.5)}
    y = np.random.default_rng(0).normal(size=(5, 3))
    y[2, 1] = nan
    lag = abs(np.subtract.outer(np.arange(5), np.arange(5)))
    cov = 0.25 * np.eye(15)
    for phi, load in zip((0.6, -0.3), point["loadings"].T, strict=True):
        cov += np.kron(phi**lag / (1 - phi**2), np.outer(load, load))
    seen = ~np.isnan(y.ravel())
    want = stats.multivariate_normal(np.tile(point["mean"], 5)[seen],
                                     cov[np.ix_(seen, seen)]).logpdf(y.ravel()[seen])
    fit = dynamic_factor(k=2, d=3).at(point)
    np.testing.assert_allclose(fit.log_prob({"y": y[None]}), [want], atol=1e-9)


@pytest.fixture(scope="module")
def estimator():
    return DynamicFactor().fit(series())


def test_the_likelihood_of_statsmodels_is_reached(estimator):
    """DynamicFactor(k_factors=1, factor_order=1) of 0.15, which has no means."""
    assert -365.01297 <= estimator.loglik_ < -364.9
    np.testing.assert_allclose(estimator.loadings_[:, 0], [0.8202, -0.4177, 0.7973, 0.1778], atol=5e-3)
    np.testing.assert_allclose(estimator.noise_**2, [0.3427, 0.4176, 0.1202, 0.9034], atol=5e-3)
    assert estimator.ar_[0, 0] == pytest.approx(0.7040, abs=5e-3) and estimator.converged_


def test_answers_have_the_units_and_the_shape_of_the_series(estimator):
    y = series()
    factors, errors = estimator.transform(y), estimator.standard_errors(y)
    assert factors.shape == errors.shape == (80, 1) and errors[40] > errors[39]
    filled = estimator.impute(y)
    np.testing.assert_allclose(filled[40], estimator.mean_ + estimator.loadings_ @ factors[40], atol=1e-6)
    np.testing.assert_array_equal(filled[0], y[0])
    ahead = estimator.forecast(y, 2)
    want = estimator.mean_ + estimator.loadings_[:, 0] * estimator.ar_[0, 0] ** 2 * factors[-1, 0]
    np.testing.assert_allclose(ahead[1], want, atol=1e-6)
    assert estimator.score(y) == pytest.approx(estimator.loglik_)
    other = estimator.transform([y[:40], y[41:]])
    assert [part.shape for part in other] == [(40, 1), (39, 1)]


@pytest.mark.slow
def test_a_second_order_reaches_it_too():
    estimator = DynamicFactor(order=2).fit(series())
    assert -364.20828 <= estimator.loglik_ < -364.1
    np.testing.assert_allclose(estimator.ar_[0], [0.5715, 0.1673], atol=5e-3)


def test_what_cannot_be_used_is_refused_by_name():
    with pytest.raises(probml.ModelError, match="n_factors=5.*Use n_factors=4 or less"):
        DynamicFactor(5).fit(series())
    y = series()
    y[:, 2] = 1.0
    with pytest.raises(probml.DataError, match="column 2 is constant"):
        DynamicFactor().fit(y)
    with pytest.raises(probml.ModelError, match="dynamic_factor.order=0.*at least 1"):
        dynamic_factor(k=1, d=2, order=0).fit({"y": np.zeros((1, 5, 2))})


def test_the_summary_and_the_factors_have_the_signs_of_the_loadings(estimator):
    shown = estimator.summary(errors=False)["Loadings"].to_numpy(float)
    np.testing.assert_allclose(shown, estimator.loadings_, rtol=1e-3)
    assert estimator.fit_.units["factors"].factor.shape == (1,)
