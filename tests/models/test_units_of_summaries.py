"""What `fit_` of an estimator tells is in the units of the user's columns, by their names, however the
columns were centred and scaled for the fit."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats

pytest.importorskip("sklearn")
import probml  # noqa: E402
from probml import models  # noqa: E402

RANDOM = np.random.default_rng(0)
N = 60
X = pd.DataFrame({"age": 1000.0 + 20 * RANDOM.normal(size=N), "dose": 1e-3 * RANDOM.normal(size=N)})
LINE = 3.0 + 0.1 * (X["age"] - 1000.0) + 2000.0 * X["dose"]
Y = (LINE + RANDOM.normal(size=N)).to_numpy()
LABELS = np.where(LINE + 2 * RANDOM.normal(size=N) > 3.0, "ill", "well")


def told(estimator, column="value"):
    """Entry → its number in the summary."""
    return estimator.fit_.summary()[column].to_dict()


def test_a_bayesian_regression_tells_slopes_and_the_intercept_at_zero():
    estimator = models.BayesianLinearRegression().fit(X, Y)
    summary = estimator.fit_.summary()
    assert list(summary.index) == ["beta[age]", "beta[dose]", "intercept"]
    want = [*estimator.coef_, estimator.intercept_]
    np.testing.assert_allclose(summary["mean"], want, rtol=2e-4)
    spread = np.sqrt(np.diag(estimator.sigma_))
    np.testing.assert_allclose(summary["sd"].iloc[:2], spread, rtol=1e-3)
    middle = X.mean().to_numpy()
    away = np.sqrt(1 / (estimator.alpha_ * N) + middle @ estimator.sigma_ @ middle)
    assert summary.loc["intercept", "sd"] == pytest.approx(away, rel=1e-3)


def test_a_bayesian_regression_goes_to_arviz_in_the_users_units():
    pytest.importorskip("xarray")
    estimator = models.BayesianLinearRegression().fit(X, Y)
    out = estimator.fit_.to_arviz(estimator.as_data(X, Y))
    beta, bias = (out.posterior[name].values[0] for name in ("beta", "intercept"))
    assert out.posterior["beta"].coords["beta_dim_0"].values.tolist() == ["age", "dose"]
    np.testing.assert_allclose(beta.mean(0), estimator.coef_, rtol=0.05)
    np.testing.assert_allclose(out.constant_data["x"], X, rtol=1e-6)
    np.testing.assert_allclose(out.observed_data["y"], Y, rtol=1e-5)
    line = bias[:, None] + beta @ X.to_numpy().T
    np.testing.assert_allclose(out.log_likelihood["y"].values[0],
                               stats.norm(line, estimator.alpha_**-0.5).logpdf(Y), atol=1e-3)


def test_planes_between_classes_are_told_as_their_coefficients(tmp_path):
    estimator = models.LogisticRegression(C=np.inf).fit(X, LABELS)
    want = dict(zip(("beta[age]", "beta[dose]", "intercept"), [*estimator.coef_[0], *estimator.intercept_],
                    strict=True))
    assert told(estimator) == pytest.approx(want, rel=1e-4)
    design = np.c_[X / [1e3, 1e-3], np.ones(N)]
    eta = design @ [1e3 * want["beta[age]"], 1e-3 * want["beta[dose]"], want["intercept"]]
    inverse = np.linalg.inv(design.T * (np.exp(eta) / (1 + np.exp(eta)) ** 2) @ design)
    np.testing.assert_allclose(list(told(estimator, "sd").values()),
                               np.sqrt(np.diag(inverse)) / [1e3, 1e-3, 1.0], rtol=1e-3)
    assert estimator.fit_.params["beta"][0] != pytest.approx(estimator.coef_[0, 0], rel=0.5)  # framed
    estimator.save(tmp_path / "estimator.probml")
    assert told(probml.load(tmp_path / "estimator.probml")) == told(estimator)
    estimator.fit_.save(tmp_path / "fit.probml")
    assert probml.load(tmp_path / "fit.probml").summary()["value"].to_dict() == told(estimator)
    page = estimator.report(tmp_path / "report.html", X, LABELS).read_text()
    assert "beta[age]" in page and "age" in page and "0.0%" in page
    assert f"{estimator.coef_[0, 0]:.4g}" in repr(estimator.fit_)


def test_robust_regression_tells_slopes_and_noise_in_units_of_y():
    estimator = models.RobustRegression().fit(X, 1000 * Y)
    want = {"beta[age]": estimator.coef_[0], "beta[dose]": estimator.coef_[1], "intercept": estimator.intercept_,
            "variance": estimator.scale_**2}
    assert told(estimator) == pytest.approx(want, rel=1e-4)


def test_factors_tell_loadings_means_and_noise_of_columns():
    wide = X.assign(both=X["age"] / 10 + 1000 * X["dose"] + RANDOM.normal(size=N))
    estimator = models.FactorAnalysis(1).fit(wide)
    found = told(estimator)
    for j, name in enumerate(wide):
        assert abs(found[f"loadings[{name}, 0]"]) == pytest.approx(abs(estimator.components_[0, j]),
                                                                   rel=1e-3)
        assert found[f"mean[{name}]"] == pytest.approx(wide[name].mean(), rel=1e-4, abs=1e-6)
        assert 1 / found[f"precision[{name}]"] == pytest.approx(estimator.noise_variance_[j], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["GeneralizedLinearModel", "LinearSVM", "hinge", "Perceptron",
                                  "LeastSquaresClassifier", "softmax"])
def test_every_plane_is_told_as_its_coefficients(kind):
    several = np.where(X["age"] < 990, "young", LABELS)
    estimator, y = {
        "GeneralizedLinearModel": (models.GeneralizedLinearModel("poisson"),
                                   np.round(np.exp(Y / 4))),
        "LinearSVM": (models.LinearSVM(), LABELS), "hinge": (models.LinearSVM(loss="hinge"), LABELS),
        "Perceptron": (models.Perceptron(), np.where(LINE > 3.0, "ill", "well")),
        "LeastSquaresClassifier": (models.LeastSquaresClassifier(), LABELS),
        "softmax": (models.LogisticRegression(), several),
    }[kind]
    estimator.fit(X, y)
    summary = estimator.fit_.summary()
    found = summary[next(name for name in ("value", "mean") if name in summary)]
    named = [entry for entry in found.index if "age" in entry or "dose" in entry]
    coef = np.atleast_2d(estimator.coef_)
    want = sorted(coef.ravel())
    np.testing.assert_allclose(sorted(found[named][: len(want)]), want, rtol=1e-3)
    bias = [entry for entry in found.index if entry.startswith("intercept")]
    shift = np.ravel(estimator.intercept_) - found[bias]
    np.testing.assert_allclose(shift, shift.mean(), atol=1e-3 * np.abs(estimator.intercept_).max())


def test_a_normal_posterior_tells_what_the_model_computes():
    @probml.model
    def mean():
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        numpyro.deterministic("twice", 2 * mu)
        with probml.rows():
            numpyro.sample("y", dist.Normal(mu, 1.0))

    summary = mean().fit({"y": Y[:4]}, probml.Laplace()).summary()
    # what is computed goes by draws, parameters without bounds by the normal itself
    np.testing.assert_allclose(summary.loc["twice"].astype(float),
                               2 * summary.loc["mu"].astype(float), rtol=0.05)
    assert summary.loc["mu", "sd"] == pytest.approx((4 + 0.04) ** -0.5, rel=1e-4)


@pytest.mark.slow
def test_mixed_models_tell_members_and_columns():
    wards = np.arange(N) % 12
    table = pd.DataFrame({"dose": X["dose"], "tens": (X["age"] - 1000) / 10,
                          "ward": np.array([f"ward {i}" for i in range(12)])[wards]})
    own = np.random.default_rng(3).normal(size=(2, 12))  # a level and a slope of each ward
    y = Y + 4 * own[0, wards] + 3 * own[1, wards] * table["tens"].to_numpy()
    estimator = models.MixedModel({"ward": ["1", "tens"]}).fit(table, 10 * y)
    summary = estimator.fit_.summary()
    for ward, modes in estimator.effects_["ward"].iterrows():
        for column, mode in modes.items():
            row = summary.loc[f"ward[{ward}, {column}]"]
            assert row["value"] == pytest.approx(mode, rel=1e-3, abs=1e-6)
            assert row["sd"] == pytest.approx(estimator.effect_errors_["ward"].loc[ward, column],
                                              rel=1e-3)
    assert summary.loc["beta[dose]", "value"] == pytest.approx(estimator.coef_[0], rel=1e-3)
    assert summary.loc["intercept", "value"] == pytest.approx(estimator.intercept_, rel=1e-3)
    assert summary.loc["sigma", "value"] == pytest.approx(estimator.noise_, rel=1e-3)
    spread = estimator.spreads_["ward"]["tens"]
    assert summary.loc["sd_ward[tens]", "value"] == pytest.approx(spread, rel=1e-3)


@pytest.mark.slow
def test_experts_tell_planes_gates_and_noise():
    estimator = models.MixtureOfExperts(2, n_init=2).fit(X, 100 * Y)
    found = told(estimator)
    for k in range(2):
        assert found[f"weights[{k}, intercept]"] == pytest.approx(estimator.intercept_[k], rel=1e-3)
        assert found[f"weights[{k}, dose]"] == pytest.approx(estimator.coef_[k, 1], rel=1e-3)
        assert found[f"precision[{k}]"] == pytest.approx(estimator.scale_[k] ** -2, rel=1e-3)
    assert found["gate[intercept, 0]"] == pytest.approx(estimator.gate_intercept_[1], rel=1e-3)
    assert found["gate[age, 0]"] == pytest.approx(estimator.gate_coef_[1, 0], rel=1e-3)


@pytest.mark.slow
def test_posteriors_of_estimators_are_told_in_their_units():
    estimator = models.LogisticRegression(C=100.0, engine=probml.Laplace()).fit(X, LABELS)
    draws = estimator.fit_.draws(1000, seed=0)
    slopes = draws["beta"] / estimator._unit
    level = draws["intercept"] - slopes @ estimator._centre
    summary = estimator.fit_.summary()
    for j, name in enumerate(X):
        row = summary.loc[f"beta[{name}]"]
        np.testing.assert_allclose(row[["mean", "sd", "5%", "95%"]].astype(float),
                                   [slopes[:, j].mean(), slopes[:, j].std(),
                                    *np.quantile(slopes[:, j], (0.05, 0.95))], rtol=0.15)
    assert summary.loc["intercept", "sd"] == pytest.approx(level.std(), rel=0.15)


@pytest.mark.slow
def test_series_and_curves_tell_spreads_in_their_units():
    series = 500.0 + 30 * np.cumsum(RANDOM.normal(size=80)) + 10 * RANDOM.normal(size=80)
    estimator = models.StructuralTimeSeries("level").fit(series)
    found = told(estimator)
    assert found["sigma"] == pytest.approx(estimator.noise_, rel=1e-3)
    assert found["level_scale"] ** 2 == pytest.approx(estimator.variances_["level"], rel=1e-3)
    smooth = models.GaussianProcess(separate=True).fit(X, 100 * Y)
    found = told(smooth)
    assert found["noise"] == pytest.approx(smooth.noise_, rel=1e-3)
    assert found["length[dose]"] == pytest.approx(smooth.length_[1], rel=1e-3)
    curve = models.SmoothingSpline(knots=4).fit(X, Y)
    entries = list(curve.fit_.summary().index)
    assert entries[:2] == ["beta[age, line]", "beta[dose, line]"]
    assert curve.fit_.summary().loc["intercept", "mean"] == pytest.approx(curve.intercept_, rel=1e-3)
    two = models.DynamicFactor(1).fit(X.assign(dose=1e3 * X["dose"]))
    assert told(two)["mean[age]"] == pytest.approx(two.mean_[0], rel=1e-3)
    assert abs(told(two)["loadings[dose, 0]"]) == pytest.approx(abs(two.loadings_[1, 0]), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [
    models.GaussianMixture(2, n_init=1), models.HiddenMarkov(2, n_init=1), models.KernelDensity(),
    models.NeuralNetworkRegressor((3,)), models.MixedMixture(2, n_init=1),
], ids=lambda estimator: type(estimator).__name__)
def test_entries_bear_the_names_of_columns(estimator):
    with np.errstate(all="ignore"):
        estimator.fit(X, Y) if hasattr(estimator, "log_prob") and "Regressor" in type(estimator).__name__ else (
            estimator.fit(X))
    entries = list(estimator.fit_.summary().index)
    assert any("age" in entry for entry in entries) and any("dose" in entry for entry in entries)
