"""Fits side by side: every number against its definition; who may stand in one table; what is
missing and why."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import stats

import probml
from probml.dataset import read
from probml.engines import Status

pytest.importorskip("arviz")
nan = np.nan
N, NOISE, PRIOR = 24, 0.5, 2.0


@probml.model
def regression(x):
    beta = sample("beta", dist.Normal(0.0, PRIOR).expand([x.shape[-1]]).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(x @ beta, NOISE))


@probml.model
def mixture(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 5.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], 1.0))


@probml.model
def schools():
    centre = sample("centre", dist.Normal(0.0, 1.0))
    with plate("school", 3):
        effect = sample("effect", dist.Normal(centre, 1.0))
    with probml.rows():
        sample("y", dist.Normal(effect, 1.0).to_event(1))


def line():
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(N), rng.normal(size=N)])
    return x, x @ np.array([1.0, -1.0]) + NOISE * rng.normal(size=N)


def learnt(x, y):
    """Mean and covariance of the coefficients, by hand."""
    covariance = np.linalg.inv(x.T @ x / NOISE**2 + np.eye(x.shape[1]) / PRIOR**2)
    return covariance @ x.T @ y / NOISE**2, covariance


def predictive(x, y, new, value):
    mean, covariance = learnt(x, y)
    return stats.norm(
        new @ mean, np.sqrt(NOISE**2 + np.einsum("ni,ij,nj->n", new, covariance, new))
    ).logpdf(value)


@pytest.fixture(scope="module")
def pair():
    x, y = line()
    data = {"slope": {"x": x, "y": y}, "flat": {"x": x[:, :1], "y": y}}
    return {name: regression().fit(rows) for name, rows in data.items()}, data


@pytest.fixture(scope="module")
def table(pair):
    fits, data = pair
    return probml.compare(fits, data, folds=3)


def test_point_criteria_follow_their_formulas(pair, table):
    _, data = pair
    for name, rows in data.items():
        x, y = rows["x"], rows["y"]
        loglik = stats.norm(x @ learnt(x, y)[0], NOISE).logpdf(y).sum()
        np.testing.assert_allclose(table.loc[name, "loglik"], loglik, rtol=1e-8)
        assert table.loc[name, "parameters"] == x.shape[1]
        np.testing.assert_allclose(table.loc[name, "aic"], -2 * loglik + 2 * x.shape[1], rtol=1e-8)
        np.testing.assert_allclose(table.loc[name, "bic"], -2 * loglik + x.shape[1] * np.log(N),
                                   rtol=1e-8)
        evidence = stats.multivariate_normal(np.zeros(N),
                                             PRIOR**2 * x @ x.T + NOISE**2 * np.eye(N)).logpdf(y)
        np.testing.assert_allclose(table.loc[name, "log_evidence"], evidence, rtol=1e-8)
    assert table["log_bayes_factor"].max() == 0 and table["log_bayes_factor"].min() < -5


def test_leave_one_out_agrees_with_refits_without_each_row(pair, table):
    _, data = pair
    terms = {}
    for name, rows in data.items():
        x, y = rows["x"], rows["y"]
        left = [np.arange(N) != i for i in range(N)]
        terms[name] = np.array([predictive(x[k], y[k], x[i : i + 1], y[i : i + 1])[0]
                                for i, k in enumerate(left)])
        np.testing.assert_allclose(table.loc[name, "elpd_loo"], terms[name].sum(),
                                   atol=0.6 if name == "slope" else 3.0)
        np.testing.assert_allclose(table.loc[name, "se"], np.sqrt(N * terms[name].var()), rtol=0.1)
    difference = terms["flat"] - terms["slope"]
    np.testing.assert_allclose(table.loc["flat", "elpd_diff"], difference.sum(), rtol=0.05)
    np.testing.assert_allclose(table.loc["flat", "se_diff"], np.sqrt(N * difference.var()),
                               rtol=0.1)
    assert 1 < table.loc["slope", "p_loo"] < 3


def test_folds_score_each_row_by_a_refit_without_it(pair, table):
    from sklearn.model_selection import KFold

    x, y = line()
    terms = np.empty(N)
    for train, test in KFold(3, shuffle=True, random_state=0).split(x):
        terms[test] = predictive(x[train], y[train], x[test], y[test])
    np.testing.assert_allclose(table.loc["slope", ["elpd_kfold", "se_kfold"]],
                               [terms.sum(), np.sqrt(N * terms.var())], rtol=1e-8)
    assert table.loc["slope", "kfold_diff"] == 0 and table.loc["flat", "kfold_diff"] < -5
    fits, data = pair
    half = [(np.arange(N // 2), np.arange(N // 2, N))]  # no row of the first half is scored
    again = probml.compare({"slope": fits["slope"]}, data["slope"], folds=half)
    later = predictive(x[: N // 2], y[: N // 2], x[N // 2 :], y[N // 2 :])
    np.testing.assert_allclose(again.loc["slope", "elpd_kfold"], later.sum(), rtol=1e-8)


def test_the_best_stands_first_and_the_table_says_by_what(table):
    assert (list(table.index) == ["slope", "flat"] and table.attrs["criterion"] == "elpd_kfold"
            and table.attrs["missing"] == {})


@pytest.fixture(scope="module")
def mixtures():
    x = np.concatenate([np.random.default_rng(6).normal(m, 1, 40) for m in (-3, 3)])
    return {f"k={k}": mixture(k=k).fit({"x": x}, probml.EM(restarts=2)) for k in (1, 2)}, x


def test_hidden_sites_are_summed_out_and_a_simplex_has_one_parameter_less(mixtures):
    fits, x = mixtures
    table = probml.compare(fits, {"x": x})
    assert table["bic"].idxmin() == "k=2" == table.index[0] and table.attrs["criterion"] == "bic"
    assert table["parameters"].to_dict() == {"k=2": 3, "k=1": 1}
    params = fits["k=2"].params
    loglik = np.log(stats.norm(params["mean"], 1).pdf(x[:, None]) @ params["weights"]).sum()
    np.testing.assert_allclose(table.loc["k=2", "loglik"], loglik, rtol=1e-8)


def test_what_a_fit_does_not_have_is_nan_with_the_reason(mixtures, pair):
    fits, x = mixtures
    table = probml.compare(fits, {"x": x})
    missing = table.attrs["missing"]["k=2"]
    for column in ("log_evidence", "log_bayes_factor", "elpd_loo", "se", "bad_k"):
        assert np.isnan(table.loc["k=2", column]) and column in missing
    assert "Exact" in missing["log_evidence"] and "gives point estimates" in missing["elpd_loo"]
    known = mixture(k=2).at(fits["k=2"].params)
    with pytest.warns(UserWarning, match="'known' has no held-out score.*The reason: .*parameters were given"):
        table = probml.compare({"known": known, "k=2": fits["k=2"]}, {"x": x}, folds=2)
    assert (table.loc["known", "parameters"] == 0
            and "parameters were given" in table.attrs["missing"]["known"]["elpd_kfold"])
    assert np.isfinite(table.loc["k=2", "elpd_kfold"])


def test_parameters_of_priors_are_no_parameters_of_the_likelihood():
    y = np.random.default_rng(0).normal(size=(5, 3))
    fit = schools().at({"centre": 0.0, "effect": np.zeros(3)})
    table = probml.compare({"schools": dataclasses.replace(fit, outcome=Status.CONVERGED)}, {"y": y})
    assert table.loc["schools", "parameters"] == 3


def test_fits_to_other_rows_are_refused(pair, mixtures):
    fits, data = pair
    short = {"slope": data["slope"],
             "flat": {name: value[:20] for name, value in data["flat"].items()}}
    with pytest.raises(probml.DataError, match="'slope' was fitted to 24 rows and 'flat' to 20 rows"):
        probml.compare(fits, short)
    holding = dataclasses.replace(fits["slope"], data=read.read(regression(), data["slope"]))
    assert len(probml.compare({"slope": holding})) == 1
    with pytest.raises(probml.DataError, match="'slope' was fitted to 24 rows, but the data have 20"):
        probml.compare({"slope": holding},
                       {name: value[:20] for name, value in data["slope"].items()})
    other = {"slope": data["slope"], "flat": {**data["flat"], "y": data["flat"]["y"][::-1]}}
    with pytest.raises(probml.DataError, match="different values of 'y', first in row 0"):
        probml.compare(fits, other)
    with pytest.raises(probml.DataError, match=r"observed sites 'y'"):
        probml.compare({"a": fits["slope"], "b": mixtures[0]["k=1"]},
                       {"a": data["slope"], "b": {"x": np.zeros(N)}})


def test_a_model_that_has_no_likelihood_is_left_out_with_the_reason(pair):
    fits, data = pair

    @probml.model
    def scored(x):
        a = sample("a", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("y", dist.Normal(a * x[:, 0], 1.0))
            numpyro.factor("penalty", -(x[:, 0] ** 2))

    fits, data = {**fits, "scored": scored().at({"a": 0.5})}, {**data, "scored": data["slope"]}
    with pytest.warns(UserWarning, match="'scored' could not be evaluated.*penalty"):
        table = probml.compare(fits, data)
    assert set(table.index) == {"slope", "flat"}
    with pytest.raises(probml.ModelError,
                       match="none of the models could be evaluated.*'scored': .*penalty"):
        probml.compare({"scored": fits["scored"]}, data["scored"])


def test_bad_requests_are_refused_by_name(pair):
    fits, data = pair
    for given, rows, more, words in (
        ({}, None, {}, "from names to Fits or estimators"),
        ([fits["slope"]], None, {}, "from names to Fits or estimators"),
        ({"a": 3}, data["slope"], {}, "'a' has the type int, expected a Fit"),
        (fits, None, {}, r"compare\('slope'\).*does not store the data"),
        (fits, data, {"folds": 1}, r"expected an integer from 2 to 24"),
        (fits, data, {"folds": "many"}, r"folds='many'"),
        (fits, data, {"folds": [([0, 1], [1, 2])]}, "2 training rows and 2 test rows, 1 of"),
        (fits, data, {"engines": {"c": probml.EM()}}, "'c' is not among the fits"),
        ({"a": fits["slope"].do({"y": 0.0})}, data["slope"], {}, r"returned by do"),
    ):
        with pytest.raises(probml.ModelError, match=words):
            probml.compare(given, rows, **more)


def test_a_comparison_is_drawn_with_its_standard_errors(table, tmp_path):
    pytest.importorskip("matplotlib")
    from probml.models import pictures

    ax = pictures.comparison(table, "elpd_loo")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["slope", "flat"]
    (bars,) = ax.containers
    (segment,) = bars.lines[2][0].get_segments()
    low, high = segment[:, 0]
    np.testing.assert_allclose([(low + high) / 2, (high - low) / 2],
                               [-table.loc["flat", "elpd_diff"], table.loc["flat", "se_diff"]])
    ax.figure.savefig(tmp_path / "table.png")
    with pytest.raises(probml.DataError, match="criterion='icl'"):
        pictures.comparison(table, "icl")
