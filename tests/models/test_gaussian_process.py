"""Gaussian processes: against the joint normal in NumPy, and scikit-learn's fits on real data."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

import probml
from probml.engines.optimization import maximization
from probml.models import GaussianProcess, gaussian_process
from probml.models.kernels import (
    average_information,
    gaussian_process_estimator,
    inducing_points,
)
from probml.models.kernels.gaussian_process import KERNELS, distances, kernel_of
from probml.numerics import compiling

BY_HAND = {
    "rbf": lambda r: np.exp(-(r**2) / 2), "exponential": lambda r: np.exp(-r),
    "matern32": lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
    "matern52": lambda r: (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r),
    "rational": lambda r: (1 + r**2 / 3.0) ** -1.5,
    "periodic": lambda r: np.exp(-(r**2) / 2),
}  # fmt: skip
RNG = np.random.default_rng(0)
X = RNG.normal(size=(9, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=9)


@pytest.mark.parametrize("kernel", ["matern52", *(pytest.param(k, marks=pytest.mark.slow)
                                                  for k in BY_HAND if k != "matern52")])
def test_the_density_is_that_of_the_joint_normal(kernel):
    length = np.array([0.7, 1.9])
    params = {"variance": 2.0, "length": length, "noise": 0.3}
    priors = [stats.lognorm(2.0).logpdf(2.0), *stats.lognorm(1.5).logpdf(length),
              stats.lognorm(1.5, scale=0.3).logpdf(0.3)]
    covariance = 2.0 * BY_HAND[kernel](cdist(X / length, X / length))
    if kernel == "rational":
        params["alpha"] = 1.5
        priors.append(stats.lognorm(1.5).logpdf(1.5))
    if kernel == "periodic":
        params |= {"period": 1.3, "waviness": 0.8}
        priors += [stats.lognorm(0.5).logpdf(1.3), stats.lognorm(1.0).logpdf(0.8)]
        wave = np.sin(np.pi * (X[:, None] - X) / 1.3) ** 2
        covariance *= np.exp(-2 * wave.sum(-1) / 0.8**2)
    want = stats.multivariate_normal(np.zeros(9), covariance + 0.09 * np.eye(9)).logpdf(Y)
    found = gaussian_process(kernel=kernel).log_density({"x": X, "y": Y}, params)
    assert found == pytest.approx(want + sum(priors), abs=1e-8)


def test_predictions_are_those_of_the_joint_normal():
    estimator = GaussianProcess(n_starts=1, separate=False).fit(X, Y)
    new = RNG.normal(size=(3, 2))
    whole = np.concatenate([X, new])
    covariance = estimator.variance_ * BY_HAND["rbf"](cdist(whole, whole) / estimator.length_)
    covariance += estimator.noise_**2 * np.eye(12)
    gain = np.linalg.solve(covariance[:9, :9], covariance[:9, 9:]).T
    mean, spread = estimator.predict(new, return_std=True)
    np.testing.assert_allclose(mean, Y.mean() + gain @ (Y - Y.mean()), rtol=1e-7)
    left = covariance[9:, 9:] - gain @ covariance[:9, 9:]
    np.testing.assert_allclose(spread, np.sqrt(np.diag(left)), rtol=1e-7)
    want = stats.multivariate_normal(np.full(9, Y.mean()), covariance[:9, :9]).logpdf(Y)
    assert estimator.log_marginal_likelihood_ == pytest.approx(want, abs=1e-7)
    assert estimator.fit_.history[-1] - 9 * np.log(Y.std()) == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("columns", [1, 3, 18])
def test_distances_and_their_slopes_are_those_of_all_differences(columns):
    x, z = RNG.normal(size=(5, columns)), RNG.normal(size=(4, columns))
    weights = RNG.normal(size=(5, 4))

    def plain(x, z, length):
        return (((x[:, None] - z) / length) ** 2).sum(-1)

    at = x, z, jnp.linspace(0.5, 2.0, columns)

    def both(f):
        def weighted(*args):
            return (weights * jnp.sin(f(*args))).sum()

        return jax.tree.leaves(jax.jit(lambda *args: (f(*args), jax.grad(
            weighted, (0, 1, 2))(*args)))(*at))

    for mine, other in zip(both(distances), both(plain), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_distance_of_a_row_from_itself_has_no_slope_in_a_compiled_program(kernel):
    """There the square of the distance is above 0 by rounding: over it nothing may be divided."""
    own = {"alpha": 1.2, "period": 2.0, "waviness": 1.0}

    @jax.jit
    def slope(length, x, weights):
        def total(length):
            covariance = kernel_of(kernel, {"variance": 1.0, "length": length, **own})(x, x)
            return jnp.sum(weights * covariance)

        return jax.grad(total)(length)

    x = 3 * RNG.random((60, 2))
    with jax.enable_x64(True):
        found = slope(jnp.array([0.7, 0.9]), jnp.asarray(x), jnp.diag(100 * RNG.random(60)))
    np.testing.assert_allclose(found, 0.0, atol=1e-8)


def test_the_likelihood_of_many_rows_has_the_slopes_of_its_values():
    x = 3 * RNG.random((80, 1))
    y = np.sin(4 * x[:, 0]) + 0.3 * RNG.normal(size=80)
    places = average_information.Places("matern52", tuple(
        (name, ()) for name in ("variance", "length", "noise")))
    with jax.enable_x64(True):
        density = average_information.Density(places, x, y)
        start, steps = np.log([1.0, 0.3, 0.5]), 1e-5 * np.eye(3)
        value, slope, information = density.at(start, informed=True)
        covariance = BY_HAND["matern52"](cdist(x, x) / 0.3) + (0.25 + 1e-10) * np.eye(80)
        assert value == pytest.approx(stats.multivariate_normal(np.zeros(80), covariance).logpdf(y))
        by_differences = [(density.at(start + h)[0] - density.at(start - h)[0]) / 2e-5
                          for h in steps]
        np.testing.assert_allclose(slope, by_differences, rtol=1e-6)
        assert np.linalg.eigvalsh(information).min() > 0
        np.testing.assert_array_equal(information, density.information(start))


@pytest.mark.slow
def test_the_fit_of_many_rows_is_that_of_all_evaluations(monkeypatch):
    x = 3 * RNG.random((120, 2))
    y = np.sin(4 * x[:, 0]) + x[:, 1] + 0.3 * RNG.normal(size=120)
    by_lbfgs = GaussianProcess("matern32").fit(x, y)
    monkeypatch.setattr(gaussian_process_estimator, "START_ROWS", 50)
    found = GaussianProcess("matern32").fit(x, y)
    assert "AverageInformation" in found.status and found.converged_
    assert found.log_marginal_likelihood_ == pytest.approx(by_lbfgs.log_marginal_likelihood_,
                                                           abs=1e-4)


def test_rows_whose_covariance_does_not_fit_into_memory_are_refused_with_its_size():
    rows = np.zeros((50_000, 1)), np.zeros(50_000)
    with pytest.raises(probml.DataError, match=r"n_samples=50,000: .* 20 GB each.*random sample"):
        GaussianProcess(engine=probml.MAP()).fit(*rows)
    with pytest.raises(probml.DataError, match="n_samples=250,000: .* at most 200,000 rows"):
        GaussianProcess().fit(*(np.zeros((250_000, *each.shape[1:])) for each in rows))
    with pytest.raises(probml.DataError, match="2,000 columns: every step computes 3 × 3"):
        GaussianProcess().fit(np.zeros((3, 2_000)), np.zeros(3))


def test_a_value_alone_is_that_with_the_gradient(monkeypatch):
    made, make = [], maximization.lbfgs_optimum
    monkeypatch.setattr(maximization, "MAX_MATRIX_WITH_GRADIENT", 0)
    monkeypatch.setattr(maximization, "lbfgs_optimum",
                        lambda *args: made.append(make(*args)) or made[-1])
    for prior in (False, True):
        gaussian_process().fit({"x": X, "y": Y}, probml.MAP(prior=prior))
        assert made[-1].value_at(made[-1].point) == pytest.approx(made[-1].value, rel=1e-9)
        assert made[-1].valued is not None


def test_the_covariance_that_a_program_makes_is_its_work(monkeypatch):
    plans, make = [], maximization.lbfgs_optimum
    monkeypatch.setattr(maximization, "lbfgs_optimum", lambda engine, problem, u: (
        plans.append(problem.plan) or make(engine, problem, u)))
    gaussian_process().fit({"x": X, "y": Y}, probml.MAP())
    assert plans[-1].largest_array == 9**2 and plans[-1].largest_matrix == 9
    assert compiling.work([], (plans[-1],)) == 9**2


def test_what_is_no_kernel_or_has_weights_is_refused_by_name():
    with pytest.raises(probml.ModelError, match="kernel='rbff'"):
        GaussianProcess("rbff").fit(X, Y)
    for weights in (np.arange(len(Y)), np.full(len(Y), 2.0)):  # rows twice have another density
        with pytest.raises(probml.DataError, match="sample_weight"):
            GaussianProcess().fit(X, Y, sample_weight=weights)
    with pytest.raises(probml.ModelError, match="kernel='rbff'"):
        gaussian_process(kernel="rbff").log_density({"x": X, "y": Y}, {"noise": 1.0})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gp_mcycle", "gp_swiss_ard"])
def test_real_data_have_scikit_learns_fits(shared_data, name):
    found = json.loads((shared_data / "fits" / f"{name}.json").read_text())
    table = pd.read_csv(shared_data / found["dataset"])
    if name == "gp_mcycle":
        x, y = table[["times"]].to_numpy(), table["accel"].to_numpy()
    else:
        columns = ["Agriculture", "Examination", "Education", "Catholic", "Infant.Mortality"]
        x, y = table[columns].to_numpy(), table["Fertility"].to_numpy()
    want = found["fits"]["rbf_optimised"]
    estimator = GaussianProcess().fit(x, y)
    assert estimator.log_marginal_likelihood_ >= want["log_marginal_likelihood"] - 1e-4
    mean, spread = estimator.predict(np.array(found["test_points"], float), return_std=True)
    np.testing.assert_allclose(mean - y.mean(), want["predictive_mean"], rtol=2e-2, atol=0.05)
    np.testing.assert_allclose(spread, want["predictive_sd_observation"], rtol=2e-2)


def ukgas(shared_data):
    found = json.loads((shared_data / "fits" / "gp_ukgas_periodic.json").read_text())
    table = pd.read_csv(shared_data / "classic" / "ukgas.csv")
    years = table[["t"]].to_numpy(float)
    return found, years - years[0], table["log10_value"].to_numpy() - 2.5


def named(told):
    """The reference's hyper-parameters by the names of sites."""
    return {"variance": told["signal_variance"], "length": told["length"], "period": told["period"],
            "waviness": told["length_periodic"], "noise": np.sqrt(told["noise_variance"])}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["periodic_rbf_given", "periodic_rbf_optimised"])
def test_seasons_have_scikit_learns_density(shared_data, name):
    found, x, y = ukgas(shared_data)
    want, model = found["fits"][name], gaussian_process(kernel="periodic", separate=False)
    at = named(want["hyperparameters"])
    spreads = {"variance": 2.0, "length": 1.5, "period": 0.5, "waviness": 1.0, "noise": 1.5}
    middles = {"noise": 0.3}
    priors = sum(stats.lognorm(spreads[n], scale=middles.get(n, 1.0)).logpdf(at[n]) for n in at)
    assert model.log_density({"x": x, "y": y}, at) - priors == pytest.approx(
        want["log_marginal_likelihood"], abs=1e-6)


@pytest.mark.slow
def test_seasons_are_learnt_as_well_as_by_scikit_learn(shared_data):
    """The period too, which theirs was told."""
    found, x, y = ukgas(shared_data)
    want = found["fits"]["periodic_rbf_optimised"]
    model = gaussian_process(kernel="periodic", separate=False)
    begin = named(found["fits"]["periodic_rbf_given"]["hyperparameters"])
    fit = model.fit({"x": x, "y": y}, probml.MAP(prior=False), start=begin)
    assert fit.history[-1] >= want["log_marginal_likelihood"] - 1e-5
    p, gap = {name: float(value) for name, value in fit.params.items()}, cdist(x, x)
    assert p["period"] == pytest.approx(1.0, abs=0.01)
    covariance = p["variance"] * np.exp(
        -2 * np.sin(np.pi * gap / p["period"]) ** 2 / p["waviness"] ** 2
        - 0.5 * (gap / p["length"]) ** 2) + p["noise"] ** 2 * np.eye(len(y))
    assert fit.history[-1] == pytest.approx(
        stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y), abs=1e-6)
    estimator = GaussianProcess("periodic", separate=False, period=1.0).fit(x, y)
    assert estimator.log_marginal_likelihood_ >= want["log_marginal_likelihood"] - 1e-4
    assert estimator.parameters_["period"] == pytest.approx(1.0, abs=0.01)
    mean, spread = estimator.predict(np.array(found["test_points"], float), return_std=True)
    np.testing.assert_allclose(mean, want["predictive_mean"], atol=0.02)
    np.testing.assert_allclose(spread, want["predictive_sd_observation"], rtol=0.05)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_bound_of_inducing_points_has_the_slopes_of_its_values(kernel):
    own = {"rational": {"alpha": 1.3}, "periodic": {"period": 1.1, "waviness": 0.9}}.get(kernel, {})
    x = 3 * RNG.random((60, 2))
    y = np.sin(4 * x[:, 0]) + 0.3 * RNG.normal(size=60)
    params = {"variance": 1.1, "length": np.array([0.3, 2.0]), "noise": 0.4} | own
    places = average_information.Places.of(kernel, params)
    point = places.point(params)
    with jax.enable_x64(True):
        exact = average_information.Density(places, x, y).at(point).value
        bound = inducing_points.Bound(places, x, y, x[:20])
        value, slopes, _ = bound.at(point)
        by_differences = [(bound.at(point + h).value - bound.at(point - h).value) / 2e-5
                          for h in 1e-5 * np.eye(len(point))]
        np.testing.assert_allclose(slopes, by_differences, rtol=1e-6)
        assert inducing_points.Bound(places, x, y, x).at(point).value == pytest.approx(
            exact, abs=1e-4)  # points everywhere
    assert value < exact
    by_points, by_rows = (gaussian_process(kernel=kernel, points=points).log_density(
        {"x": x, "y": y}, params) for points in (x[:20], None))
    assert by_points - by_rows == pytest.approx(value - exact, abs=1e-6)
    with jax.enable_x64(False):
        model = gaussian_process(kernel=kernel, points=x[:20])
        single = model.log_density({"x": x, "y": y}, params)
        assert np.isfinite(model.at(params).simulate(x=x)["y"]).all()
    assert single == pytest.approx(float(by_points), abs=0.3)


def test_of_many_rows_the_process_is_approximated_with_a_warning(monkeypatch):
    random = np.random.default_rng(0)
    x = random.uniform(0, 10, (400, 1))
    y = 3 * np.sin(x[:, 0]) + 0.3 * random.normal(size=400) + 5
    exact = GaussianProcess().fit(x, y)
    for name in ("MAX_EXACT", "START_ROWS"):
        monkeypatch.setattr(gaussian_process_estimator, name, 150)
    monkeypatch.setattr(inducing_points, "BLOCK", 10_000)  # several blocks of rows
    with pytest.warns(probml.ReliabilityWarning, match="400 rows is approximated .* points"):
        process = GaussianProcess().fit(x, y)
    assert len(process._x) < 60 and "InducingPoints" in process.status
    (finding,) = process.fit_.warnings
    assert finding.code.value == "inducing-points" and dict(finding.numbers)["left"] < 2
    assert process.log_marginal_likelihood_ == pytest.approx(exact.log_marginal_likelihood_, abs=1)
    assert process.log_marginal_likelihood_ <= exact.log_marginal_likelihood_
    new = np.linspace(0, 10, 20)[:, None]
    for mine, other in zip(process.predict(new, return_std=True),
                           exact.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(mine, other, rtol=0.01, atol=0.03)
    draws = process.sample_y(new, 2_000)
    np.testing.assert_allclose(draws.std(1), process.predict(new, return_std=True)[1], rtol=0.1)


def test_a_tiny_length_leaves_no_negative_variance_of_a_row_that_is_a_point():
    """There rounding parts rows from themselves: the bound was 10⁸ too high."""
    x = RNG.random((50, 2))
    params = {"variance": 1.0, "length": np.array([0.3, 1e-19]), "noise": 0.4}
    places = average_information.Places.of("rbf", params)
    with jax.enable_x64(True):
        bound = inducing_points.Bound(places, x, x[:, 0], x[:10])
        value = bound.at(places.point(params)).value
    assert 0 < bound.trace_term < 50 / 0.32
    assert value < stats.norm(0, 1.16**0.5).logpdf(x[:, 0]).sum() + 1e-6


def test_points_are_those_that_leave_least_of_the_rows():
    x = np.sort(RNG.random((200, 1)), 0)
    covariance = BY_HAND["rbf"](cdist(x, x) / 0.3)
    chosen = inducing_points.inducing_points(covariance.copy(), 0.1, 1.0)
    left = 1 - np.einsum("ij,ji->i", covariance[:, chosen], np.linalg.solve(
        covariance[np.ix_(chosen, chosen)], covariance[chosen]))
    assert len(chosen) < 15 and left.max() <= 1e-4
