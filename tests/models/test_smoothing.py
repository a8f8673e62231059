"""Smooth curves: B-splines, penalties, scales by evidence against mgcv's, additive terms,
extrapolation, the estimator."""

import functools
import json
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.interpolate import BSpline

pytest.importorskip("sklearn")

import probml
from contract import DENSE, contract
from probml.models import SmoothingSpline, bspline_basis, linear_regression, smoothing
from probml.models.regression import evidence
from probml.models.regression.smoothing import curve, design, smooth_moments

nan = np.nan


def close(got, expected, tolerance=1e-9):
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@functools.lru_cache
def wave(n=80):
    rng = np.random.default_rng(4)
    z = np.sort(rng.uniform(0, 10, n))
    return z, np.sin(z) + 0.3 * rng.normal(size=n)


@functools.lru_cache
def additive():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(300, 4))
    return x, np.sin(6 * x[:, 0]) + 3 * x[:, 1] ** 2 + 0.5 * x[:, 3] + 0.2 * rng.normal(size=300)


# Bases


def test_b_splines_are_scipys_and_sum_to_one():
    z, _ = wave()
    found = bspline_basis(z, knots=3)
    knots = np.concatenate([[z[0]] * 4, np.quantile(z, [0.25, 0.5, 0.75]), [z[-1]] * 4])
    assert found.shape == (80, 7)
    close(found, BSpline.design_matrix(z, knots, 3).toarray(), 1e-13)
    close(found.sum(1), 1.0, 1e-13)


def test_beyond_the_boundary_a_basis_goes_on_as_the_line_that_touches_it():
    inside = bspline_basis(np.array([0.0, 1e-6, 10 - 1e-6, 10.0]), [3.0, 6.0], (0.0, 10.0))
    found = bspline_basis(np.array([-2.0, -1.0, 11.0, 13.0]), [3.0, 6.0], (0.0, 10.0))
    close(found.sum(1), 1.0)
    for near, far, away in ((0, 0, -2.0), (0, 1, -1.0), (2, 2, 1.0), (2, 3, 3.0)):
        edge, slope = inside[0 if near == 0 else 3], (inside[near + 1] - inside[near]) / 1e-6
        np.testing.assert_allclose(found[far], edge + away * slope, atol=1e-5)


@pytest.mark.parametrize("penalty", ["curvature", "differences"])
def test_the_columns_of_a_curve_are_the_b_splines_with_a_penalty_of_one_or_none(penalty):
    z, _ = wave()
    basis = curve(z, 8, penalty)
    columns = np.column_stack([np.ones(80), basis.columns(z)])
    k = columns.shape[1]
    assert k == len(basis.knots) - 4 == 12
    splines = BSpline.design_matrix(z, basis.knots, 3).toarray()
    assert np.linalg.matrix_rank(np.column_stack([columns, splines])) == k
    grid = np.linspace(z[0], z[-1], 20001)
    coefficients = np.random.default_rng(0).normal(size=k - 2)
    if penalty == "curvature":  # ∫ f''² with x in units of its range
        f = BSpline(basis.knots, basis.turn @ coefficients,
                    3).derivative(2)(grid) * (z[-1] - z[0]) ** 2
        value = (f**2).mean()
    else:
        value = (np.diff(basis.turn @ coefficients, 2) ** 2).sum()
    np.testing.assert_allclose(value, coefficients @ coefficients, rtol=1e-3)
    line = basis.columns(z)[:, 0]
    close(np.polyval(np.polyfit(z, line, 1), z), line)


def test_bad_knots_are_refused():
    with pytest.raises(ValueError, match="increasing and between 0 and 1"):
        bspline_basis(np.array([0.0, 0.5, 1.0]), [0.7, 0.2])
    with pytest.raises(ValueError, match="vector of finite numbers"):
        bspline_basis(np.array([0.0, nan]))
    with pytest.raises(ValueError, match="at least 4 distinct values, but the column has only 0.0, 1.0"):
        curve(np.array([0.0, 1.0, 1.0]))


# Formulas


def test_the_posterior_mean_is_that_of_the_elements_of_statistical_learning():
    z, y = wave()
    h = bspline_basis(z, knots=3)
    fit = linear_regression(weight_scale=np.sqrt(1.5), bias_scale=0,
                            noise=0.3).fit({"x": h, "y": y})
    close(h @ fit.params["beta"], h @ np.linalg.solve(h.T @ h + 0.09 / 1.5 * np.eye(7), h.T @ y))


def test_a_p_spline_of_fixed_smoothness_is_eilers_and_marxs(shared_data):
    for name in ("lidar", "mcycle", "nile", "bone_spnbmd_male"):
        x, y, reference = example(shared_data, name)
        for fixed in reference["pspline_fixed"]:
            estimator = SmoothingSpline(19, penalty="differences", lam=fixed["lambda"]).fit(x[:, None],
                                                                                            y)
            np.testing.assert_allclose(estimator.predict(np.array(reference["grid"], float)[:, None]),
                                       fixed["mean"], rtol=1e-8, atol=1e-10)
            np.testing.assert_allclose(((y - estimator.predict(x[:, None])) ** 2).sum(), fixed["rss"],
                                       rtol=1e-9)
            np.testing.assert_allclose(estimator.edf_, fixed["edf"], rtol=1e-8)


def test_the_evidence_of_curves_is_the_restricted_likelihood_of_their_rows():
    x, y = additive()
    x, y = x[:40, :2], y[:40]
    basis = design(x, 5, "curvature")
    found = smooth_moments(basis, x, y)
    sizes = [len(members) for members in basis.groups]
    given, ratio = evidence.problem(found, 2, sum(sizes)), np.repeat([3.0, 0.2], sizes)
    columns = basis.columns(x)
    flat, bent = np.column_stack([np.ones(40), columns[:, :2]]), columns[:, 2:]
    covariance = 0.1 * (np.eye(40) + (bent * ratio) @ bent.T)
    inverse = np.linalg.inv(covariance)
    inside = flat.T @ inverse @ flat
    best = flat @ np.linalg.solve(inside, flat.T @ inverse @ y)
    whole = (stats.multivariate_normal(best, covariance).logpdf(y) + 1.5 * np.log(2 * np.pi) - 0.5
             * np.linalg.slogdet(inside)[1])
    close(evidence.evaluate(given, ratio, basis.groups, variance=0.1).log_evidence, whole, 1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_scatter_of_many_rows_is_that_of_their_design(weighted, monkeypatch):
    x, y = additive()
    weights = np.random.default_rng(1).uniform(0.5, 2, 300) if weighted else None
    basis = design(x, 6, "curvature", linear={3}, weights=weights)
    dense = smooth_moments(basis, x, y, weights)
    monkeypatch.setattr(sys.modules["probml.models.regression.smoothing"], "DENSE", 0)
    found = smooth_moments(basis, x, y, weights)
    close(found.mean, dense.mean, 1e-12)
    np.testing.assert_allclose(found.root.T @ found.root, dense.root.T @ dense.root,
                               atol=1e-9 * np.abs(dense.root).max() ** 2)
    close(found.root[-1, -1] ** 2, dense.root[-1, -1] ** 2)
    # no residual: the scatter has no digits of it, QR has
    line = smooth_moments(basis, x, x @ [1.0, 2.0, 3.0, 4.0])
    assert line.root[-1, -1] ** 2 < 1e-25 * (line.root[:, -1] ** 2).sum()


# mgcv


def example(shared_data, name):
    reference = json.loads((shared_data / "fits" / f"smooth_{name}.json").read_text())
    table = pd.read_csv(shared_data / "classic" / ("bone_spnbmd.csv" if "bone" in name
                                                   else f"{name}.csv"))
    if "bone" in name:
        table = table[table["gender"] == name.rsplit("_", 1)[1]][["age", "spnbmd"]]
    return *table.to_numpy(float).T, reference


@pytest.mark.parametrize("name",
                         ["lidar", "mcycle", "nile", "bone_spnbmd_male", "bone_spnbmd_female"])
def test_mean_and_band_are_mgcvs(shared_data, name):
    """The same P-spline: to a hundredth of a standard error. Other bases of the same curves: to a
    quarter of one."""
    x, y, reference = example(shared_data, name)
    grid, size = np.array(reference["grid"], float)[:, None], 15 if "bone" in name else 20
    same, other, finer = ((size - 4, "differences", 0.01, 0.005), (size, "curvature", 0.1, 0.1),
                          (40, "curvature", 0.25, 0.1))
    for peer, (knots, penalty, mean_off, band_off) in {"ps_REML": same, "cr_REML": other,
                                                       "tp_REML": finer}.items():
        estimator, expected = SmoothingSpline(knots, penalty=penalty).fit(x[:, None], y), reference[peer]
        mean, std = estimator.predict(grid, return_std=True)
        assert np.max(np.abs(mean - expected["mean"]) / expected["se"]) < mean_off
        np.testing.assert_allclose(std, expected["se"], rtol=band_off)
        np.testing.assert_allclose(estimator.noise_**2, expected["scale"], rtol=0.01)
        np.testing.assert_allclose(estimator.edf_, expected["edf"], rtol=1e-3 if "ps" in peer else 0.05)


# The estimator


def test_the_fit_answers_as_the_estimator():
    x, y = additive()
    estimator = SmoothingSpline(6, linear=[3]).fit(x, y)
    fit, (mean, std) = estimator.fit_, estimator.predict(x, return_std=True)
    assert fit.model.name == "smoothing" and fit.engine == "Exact()"
    close(fit.predict(estimator.as_data(x), "y") + y.mean(), mean, 1e-8)
    spread = np.sqrt(std**2 + estimator.noise_**2)
    close(fit.log_prob(estimator.as_data(x, y)), stats.norm(mean, spread).logpdf(y), 1e-8)
    again = pickle.loads(pickle.dumps(estimator))
    close(again.predict(x), mean)


def test_additive_terms_are_found_apart_and_a_column_without_curve_becomes_a_line():
    x, y = additive()
    estimator = SmoothingSpline().fit(x, y)
    truth = np.sin(6 * x[:, 0]) + 3 * x[:, 1] ** 2 + 0.5 * x[:, 3]
    mean, std = estimator.predict(x, return_std=True)
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.08
    assert 0.85 < np.mean(np.abs(mean - truth) < 1.96 * std) <= 1.0
    assert estimator.lam_[2] > 1e6  # the third column does nothing


def test_beyond_the_data_a_curve_goes_on_as_a_line_with_a_widening_band():
    z, y = wave()
    estimator = SmoothingSpline().fit(z[:, None], y)
    mean, std = estimator.predict(np.array([z[-1], 11.0, 12.0, 13.0, 20.0])[:, None], return_std=True)
    slopes = np.diff(mean) / np.diff([z[-1], 11.0, 12.0, 13.0, 20.0])
    close(slopes, slopes[0], 1e-7)
    assert (np.diff(std) > 0).all()
    left = estimator.predict(np.array([z[0], -1.0, -2.0])[:, None])
    close(np.diff(left)[1] / -1.0, np.diff(left)[0] / (-1.0 - z[0]), 1e-7)


def test_rows_with_weights_are_rows_so_many_times():
    z, y = wave()
    weights = np.random.default_rng(0).integers(1, 4, 80)
    one = SmoothingSpline().fit(z[:, None], y, sample_weight=weights)
    many = SmoothingSpline().fit(np.repeat(z, weights)[:, None], np.repeat(y, weights))
    close(one.predict(z[:, None]), many.predict(z[:, None]), 1e-7)
    close([one.noise_, one.lam_[0]], [many.noise_, many.lam_[0]], 1e-6)


def test_units_and_offsets_do_not_matter():
    z, y = wave()
    one, other = (SmoothingSpline().fit(z[:, None], y),
                  SmoothingSpline().fit(1e6 + 1e-3 * z[:, None], 1e6 + 10 * y))
    np.testing.assert_allclose(other.predict(1e6 + 1e-3 * z[:, None]) - 1e6,
                               10 * one.predict(z[:, None]), atol=1e-4)


def test_a_curve_without_noise_is_interpolated_to_the_digits_of_its_basis():
    z, _ = wave()
    y = z**2 - 3 * z
    assert np.abs(SmoothingSpline(60).fit(z[:, None],
                                          y).predict(z[:, None]) - y).max() < 1e-3 * np.ptp(y)


@pytest.mark.parametrize(
    ("estimator", "change", "words"),
    [
        (SmoothingSpline(0), None, "knots=0.*at least 1"),
        (SmoothingSpline([3, 4]), None, r"knots=\[3, 4\].*one number for each column .4."),
        (SmoothingSpline(penalty="third"), None, "penalty='third'.*'curvature', 'differences'"),
        (SmoothingSpline(linear=["age"]), None, "linear.*'age' is not a column.*0 … 3"),
        (SmoothingSpline(linear=np.array(0)), None, "linear=array.0.*expected columns"),
        (SmoothingSpline(lam=-1.0), None, "lam=-1.0.*above 0"),
        (SmoothingSpline(lam=[1.0, 2.0]), None, "lam=.*one number for each curve .4."),
        (SmoothingSpline(), (3, 2, nan), "NaN: column 2 is missing in row 3"),
        (SmoothingSpline(), (slice(None), 2, 1.0),
         "column 2 of X is constant, or a linear combination"),
        (SmoothingSpline(), "rows", "n_samples=5: an intercept and a slope for each column need more than 5 rows"),
    ],
)
def test_what_cannot_be_fitted_is_refused_by_name(estimator, change, words):
    x, y = additive()
    if change == "rows":
        x, y = x[:5], y[:5]
    elif change:
        x = x.copy()
        x[change[:2]] = change[2]
    with pytest.raises(ValueError, match=words):
        estimator.fit(x, y)


def test_lines_and_curves_must_add_up():
    with pytest.raises(probml.ModelError, match="add up to 5, but h has 3 columns"):
        smoothing(lines=1, curves=(4,)).fit({"h": np.zeros((4, 3)), "y": np.zeros(4)})


@pytest.mark.slow
@pytest.mark.one_in(3)
@contract(SmoothingSpline(), expected={"SmoothingSpline": {
    DENSE: "its data have more columns than rows, and so more straight lines"}})
def test_smoothing_spline_keeps_the_contract_of_scikit_learn(estimator, check):
    check(estimator)
