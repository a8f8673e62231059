"""EmpiricalBayes: settings at the maximum of the exact log evidence, held to closed forms of it."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy.optimize import minimize
from scipy.special import betaln, gammaln
from scipy.stats import multivariate_normal, norm

import probml
from compilations import counted
from probml import EmpiricalBayes, Exact
from probml.models import linear_regression
from probml.numerics.box import search

pytest.importorskip("sklearn")
from probml.models import BayesianLinearRegression


@probml.model
def coins(a=1.0, b=1.0, groups=6, tosses=10):
    with plate("coin", groups):
        p = sample("p", dist.Beta(a, b))
    with probml.rows():
        sample("y", dist.Binomial(tosses, p).to_event(1))


@probml.model
def bags(concentration=(1.0, 1.0, 1.0), groups=8, drawn=20):
    with plate("bag", groups):
        p = sample("p", dist.Dirichlet(jnp.asarray(concentration)))
    with probml.rows(), plate("bags", groups, dim=-2):
        sample("y", dist.Multinomial(drawn, p[:, None]))


@probml.model
def level(loc=0.0, scale=1.0, noise=1.0):
    mean = sample("mean", dist.Normal(loc, scale))
    with probml.rows():
        sample("y", dist.Normal(mean, noise))


COUNTS = np.array([[1, 2, 4, 5, 3, 8]])


def binomial_evidence(a, b, y=COUNTS[0], n=10):
    """Σ log of the beta–binomial, by hand."""
    ways = gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
    return float(np.sum(ways + betaln(a + y, b + n - y) - betaln(a, b)))


def highest(function, start):
    return minimize(lambda u: -function(u), start, method="Nelder-Mead",
                    options={"xatol": 1e-10, "fatol": 1e-12, "maxiter": 5000})


@pytest.fixture(scope="module")
def tossed():
    return coins(a=1.0, b=1.0).fit({"y": COUNTS}, EmpiricalBayes(choose=("a", "b")))


def test_both_counts_of_a_beta_prior_are_those_of_the_beta_binomial(tossed):
    best = highest(lambda u: binomial_evidence(*np.exp(u)), [0.0, 0.0])
    found = tossed.model.bound
    np.testing.assert_allclose([found["a"], found["b"]], np.exp(best.x), rtol=1e-4)
    np.testing.assert_allclose(tossed.log_evidence, -best.fun, atol=1e-8)


def test_the_posterior_is_exacts_at_what_was_chosen(tossed):
    again = tossed.model.fit({"y": COUNTS}, Exact())
    np.testing.assert_allclose(tossed.params["p"], again.params["p"], rtol=1e-12)
    np.testing.assert_allclose(tossed.log_evidence, again.log_evidence, rtol=1e-12)
    a, b = tossed.model.bound["a"], tossed.model.bound["b"]
    np.testing.assert_allclose(tossed.params["p"], (a + COUNTS[0]) / (a + b + 10), rtol=1e-10)
    assert tossed.model == coins(a=a, b=b) and pickle.loads(pickle.dumps(tossed)).model == again.model


def test_the_status_says_what_was_chosen_and_from_what(tossed):
    first = binomial_evidence(1.0, 1.0)
    assert tossed.converged and tossed.status.startswith("Exact posterior (EmpiricalBayes); settings chosen by maximising the log evidence: a = ")
    assert f"with the given a = 1, b = 1 it is {first:.6g}" in tossed.status
    assert tossed.history[0] <= tossed.history[-1] == pytest.approx(tossed.log_evidence, abs=1e-9)


@pytest.mark.slow
def test_further_rows_choose_anew():
    rng = np.random.default_rng(2)
    y = np.concatenate([COUNTS, rng.binomial(10, 0.4, (1, 6))])
    engine = EmpiricalBayes(choose=("a", "b"))
    both = coins().fit({"y": y}, engine)
    parts = coins().fit({"y": y[:1]}, engine).update({"y": y[1:]})
    for name in "ab":
        assert parts.model.bound[name] == pytest.approx(both.model.bound[name], rel=1e-3)
    np.testing.assert_allclose(parts.params["p"], both.params["p"], rtol=1e-4)


def test_one_setting_is_chosen_at_the_others_as_bound_within_its_bounds():
    fit = coins(a=2.0, b=3.0).fit({"y": COUNTS}, EmpiricalBayes(choose={"a": (0.5, 2.5)}))
    best = highest(lambda u: binomial_evidence(np.exp(u[0]), 3.0), [0.0])
    assert fit.model.bound["b"] == 3.0
    np.testing.assert_allclose(fit.model.bound["a"], np.exp(best.x[0]), rtol=1e-4)
    held = coins(a=2.2, b=3.0).fit({"y": COUNTS}, EmpiricalBayes(choose={"a": (2.1, 2.5)}))
    assert best.x[0] < np.log(2.1) and held.model.bound["a"] == pytest.approx(2.1)
    assert "'a' is at the end of the range that was searched, 2.1" in held.status


def test_every_entry_of_a_dirichlet_concentration_is_chosen():
    rng = np.random.default_rng(0)
    y = np.array([rng.multinomial(20, p) for p in rng.dirichlet([0.5, 2.0, 4.0], 8)])

    def evidence(u):
        a = np.exp(u)
        ways = gammaln(21) - gammaln(y + 1).sum(1)
        rows = gammaln(a.sum()) - gammaln(a.sum() + 20) + (gammaln(a + y) - gammaln(a)).sum(1)
        return float((ways + rows).sum())

    fit = bags().fit({"y": y[None]}, EmpiricalBayes(choose=("concentration",)))
    best = highest(evidence, np.zeros(3))
    np.testing.assert_allclose(fit.model.bound["concentration"], np.exp(best.x), rtol=1e-4)
    np.testing.assert_allclose(fit.log_evidence, -best.fun, atol=1e-8)


def test_scale_and_noise_of_a_regression_are_at_the_maximum_of_its_evidence():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.7 * rng.normal(size=40)

    def evidence(u):
        s, noise = np.exp(u)
        cover = noise**2 * np.eye(40) + s**2 * x @ x.T
        return multivariate_normal.logpdf(y, np.zeros(40), cover)

    fit = linear_regression(weight_scale=10.0, bias_scale=0, noise=1.0).fit(
        {"x": x, "y": y}, EmpiricalBayes(choose=("weight_scale", "noise"))
    )
    best = highest(evidence, [0.0, 0.0])
    found = [fit.model.bound["weight_scale"], fit.model.bound["noise"]]
    np.testing.assert_allclose(found, np.exp(best.x), rtol=1e-4)
    np.testing.assert_allclose(fit.log_evidence, -best.fun, atol=1e-7)
    estimator = BayesianLinearRegression(fit_intercept=False).fit(x, y)  # its own way, by moments
    np.testing.assert_allclose(found, [estimator.lambda_**-0.5, estimator.alpha_**-0.5], rtol=1e-4)
    s, noise = found
    mean = np.linalg.solve(x.T @ x + (noise / s) ** 2 * np.eye(3), x.T @ y)
    np.testing.assert_allclose(fit.params["beta"], mean, rtol=1e-8)


def test_a_setting_of_any_sign_is_found_and_a_flat_one_is_named():
    y = np.array([-3.0, -2.5, -3.5])
    fit = level(loc=2.0, scale=1.0).fit({"y": y}, EmpiricalBayes(choose=("loc", "scale")))
    # the mean of three rows is its own best guess, and needs no prior beside it
    np.testing.assert_allclose(fit.model.bound["loc"], -3.0, rtol=1e-4)
    alone = norm.logpdf(y, -3.0, 1.0).sum()
    np.testing.assert_allclose(fit.log_evidence, alone, atol=2e-3)
    assert "'scale' may be even smaller: the log evidence is equally high at 1e-09" in fit.status


@pytest.mark.slow
def test_the_choice_does_not_depend_on_jax_precision_nor_on_where_it_begins(tossed):
    with jax.enable_x64(False):
        narrow = coins(a=50.0, b=0.2).fit({"y": COUNTS}, EmpiricalBayes(choose=("a", "b")))
    for name in "ab":
        assert narrow.model.bound[name] == pytest.approx(tossed.model.bound[name], rel=1e-3)


def test_a_second_choice_compiles_nothing(tossed):
    with counted() as found:
        coins(a=1.0, b=1.0).fit({"y": COUNTS[:, ::-1].copy()}, EmpiricalBayes(choose=("a", "b")))
    assert found == []


def test_the_search_finds_the_highest_of_several_hills_and_keeps_to_its_box():
    def hills(u):  # a low one at 0, a high one at (5, -4), nothing beyond 6
        one, other = ((u**2).sum(1), ((u - [5.0, -4.0]) ** 2).sum(1))
        value = np.maximum(-np.log1p(one), 1.0 - np.log1p(other))
        return np.where(u[:, 0] > 6, -np.inf, value)

    random = np.random.default_rng(0)
    box = np.array([-10.0, -10.0]), np.array([10.0, 10.0])
    found = search(hills, *box, 4, 32, 200, random)
    np.testing.assert_allclose(found.point, [5.0, -4.0], atol=1e-4)
    assert found.converged and found.first == 0 and found.value == pytest.approx(1.0)
    held = search(hills, box[0], np.array([4.0, 10.0]), 4, 32, 200, random)
    assert held.converged and held.point[0] == 4.0 and held.edge_values[0, 1] == pytest.approx(held.value)
    assert search(lambda u: np.full(len(u), -np.inf), *box, 4, 8, 10, random) is None


@probml.model
def branching(scale=1.0):
    mean = sample("mean", dist.Normal(0.0, scale if scale > 0.5 else 0.5))
    with probml.rows():
        sample("y", dist.Normal(mean, 1.0))


@probml.model
def idle(scale=1.0, other=2.0):
    mean = sample("mean", dist.Normal(0.0, scale))
    with probml.rows():
        sample("y", dist.Normal(mean, 1.0))


@probml.model
def tied(weights=(0.5, 0.5), spread=1.0):
    mean = sample("mean", dist.Normal(0.0, spread))
    with probml.rows():
        sample("z", dist.Categorical(jnp.asarray(weights)))
        sample("y", dist.Normal(mean, 1.0))


@probml.model
def rates(scale=1.0):
    rate = sample("rate", dist.LogNormal(0.0, scale))
    with probml.rows():
        sample("y", dist.Poisson(rate))


Y = {"y": np.array([0.3, 1.2, -0.4])}


@pytest.mark.parametrize(
    ("model", "data", "choose", "error", "words"),
    [
        (level(), Y, ("width",), probml.ModelError, r"'width' is not a setting.*'loc', 'scale'"),
        (linear_regression(), {"x": np.ones((3, 1)), **Y}, ("x",), probml.ModelError,
         "'x' is an input"),
        (linear_regression(), {"x": np.ones((3, 1)), **Y}, ("prior",), probml.Refusal,
         "setting 'prior' is 'normal', which is not a number"),
        (linear_regression(noise=None), {"x": np.ones((3, 1)), **Y}, ("noise",), probml.Refusal,
         "setting 'noise' is None, which is not a number. Set 'noise' to"),
        (coins(), {"y": COUNTS}, ("groups",), probml.Refusal, "setting 'groups' cannot be "
         "optimised. The function needs it as a Python number"),
        (branching(), Y, ("scale",), probml.Refusal, "setting 'scale' cannot be optimised"),
        (idle(), Y, ("other",), probml.Refusal, "no distribution depends on setting 'other'"),
        (tied(), {**Y, "z": np.array([0, 1, 1])}, ("weights",), probml.Refusal,
         "'weights': its values cannot be changed one by one"),
        (rates(), {"y": np.array([1, 2])}, ("scale",), probml.Refusal,
         "exact log evidence .*cannot be computed.*'rate'"),
        (level(), {**Y, "mean": 0.5}, ("noise",), probml.Refusal, "values of all parameters"),
        (level(), Y, {"scale": (2.0, 3.0)}, probml.ModelError, "the value of 'scale' in the model, 1"),
        (level(), Y, {"scale": (-1.0, 3.0)}, probml.ModelError, "above 0"),
    ],
    ids=["unknown", "input", "word", "none", "size", "branch", "idle", "tied", "inexact", "given",
         "outside", "negative"],
)
def test_what_cannot_be_chosen_is_refused_by_name(model, data, choose, error, words):
    with pytest.raises(error, match=words):
        model.fit(data, EmpiricalBayes(choose=choose))


def test_settings_of_the_engine_are_checked():
    with pytest.raises(probml.ModelError, match="names of settings"):
        EmpiricalBayes(choose=())
    with pytest.raises(probml.ModelError, match="restarts=0"):
        EmpiricalBayes(choose=("a",), restarts=0)
