"""Small numerics, a kind a table: whole numbers as arguments, units of what lies near the end of its support, counts
of millions, covariances without noise, and whether the engine that explain names is the one that fits."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.families.densities.censored import accurate
from probml.models import GaussianProcess, bayesian_network

# name → x → log p with whole numbers among its arguments, and the same with floats
WHOLE = {
    "InverseGamma": lambda x, n: dist.InverseGamma(n(5), n(1)).log_prob(x),
    "InverseGamma in its scale": lambda x, n: dist.InverseGamma(n(5), x).log_prob(n(2)),
    "Gamma": lambda x, n: dist.Gamma(n(2), n(1)).log_prob(x),
    "Chi2": lambda x, n: dist.Chi2(n(2)).log_prob(x),
    "Beta": lambda x, n: dist.Beta(n(2), n(3)).log_prob(x / 9),
    "Dirichlet": lambda x, n: dist.Dirichlet(n([1, 2, 3]) * x).log_prob(jnp.array([0.2, 0.3, 0.5])),
    "DirichletMultinomial": lambda x, n: x * dist.DirichletMultinomial(n([1, 2, 3]), 5).log_prob(n([1, 2, 2])),
    "Multinomial": lambda x, n: dist.Multinomial(5, probs=jax.nn.softmax(n([1, 2, 3]) * x)).log_prob(n([1, 2, 2])),
    "BetaBinomial": lambda x, n: dist.BetaBinomial(n(2), x, 5).log_prob(n(3)),
    "BetaNegativeBinomial": lambda x, n: dist.BetaNegativeBinomial(n(3), x, n(2)).log_prob(n(4)),
    "GammaPoisson": lambda x, n: dist.GammaPoisson(n(2), x).log_prob(n(3)),
    "NegativeBinomial2": lambda x, n: dist.NegativeBinomial2(n(3), x).log_prob(n(3)),
    "Poisson": lambda x, n: dist.Poisson(x).log_prob(n(3)),
    "Binomial": lambda x, n: dist.Binomial(5, x / 9).log_prob(n(3)),
    "StudentT": lambda x, n: dist.StudentT(n(3), n(0), n(1)).log_prob(x),
    "Weibull": lambda x, n: dist.Weibull(n(1), n(2)).log_prob(x),
    "Pareto": lambda x, n: dist.Pareto(n(1), n(2)).log_prob(x),
    "VonMises": lambda x, n: dist.VonMises(n(0), n(2)).log_prob(x),
    "right-censored": lambda x, n: dist.RightCensoredDistribution(dist.Weibull(n(1), n(2)), n(1)).log_prob(x),
    "truncated": lambda x, n: dist.TruncatedNormal(n(0), n(1), low=n(0)).log_prob(x),
}


def test_whole_numbers_as_arguments_have_the_density_and_the_slope_of_floats():
    def each(x, kind):
        return {name: jax.value_and_grad(lambda x, log=log: log(x, lambda value: np.asarray(value, kind)))(x)
                for name, log in WHOLE.items()}

    with accurate():
        got, right = jax.jit(lambda x: (each(x, int), each(x, float)))(1.7)
    for name in WHOLE:
        np.testing.assert_allclose(got[name], right[name], rtol=1e-12, err_msg=name)


@probml.model
def of_whole_numbers():
    """Priors whose log_prob has no derivative in JAX where an argument is an integer."""
    sample("share", dist.Kumaraswamy(2, 3))
    sample("income", dist.Dagum(2, 3, 4))
    size = sample("size", dist.DoublyTruncatedPowerLaw(2, 3, 4))
    sample("pair", dist.MixtureSameFamily(dist.Categorical(jnp.array([0.5, 0.5])),
                                          dist.Kumaraswamy(jnp.array([2, 2]), jnp.array([3, 3]))))
    with probml.rows():
        sample("y", dist.Normal(size, 1))


def test_priors_with_whole_numbers_as_arguments_have_their_modes():
    fit = of_whole_numbers().fit({"y": [3.0]}, probml.MAP())
    right = {"share": np.sqrt(1 / 5), "pair": np.sqrt(1 / 5), "income": 4 * (5 / 4) ** (1 / 3),
             "size": (3 + np.sqrt(3**2 + 4 * 2)) / 2}  # Jones (2009); Kleiber (2008); a root of 2/x − (x − 3)
    for name, mode in right.items():
        np.testing.assert_allclose(fit.params[name], mode, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("hits, trials", [(3849, 5_000_000), (0, 10), (12, 12), (7, 1_000_000_000)])
def test_counts_among_millions_end_at_their_share(hits, trials):
    def counted(n, x):
        p = sample("p", dist.Beta(2.0, 2.0))
        sample("x", dist.Binomial(n, logits=jnp.log(p) - jnp.log1p(-p)), obs=x)

    fit = probml.model(counted)().fit({"n": trials, "x": hits}, probml.MAP())
    assert fit.converged, fit.status
    np.testing.assert_allclose(fit.params["p"], (hits + 1) / (trials + 2), rtol=1e-3)


@probml.model
def spreads():
    precision = sample("precision", dist.Gamma(1.0, 1e-2))
    with probml.rows():
        sample("y", dist.Normal(0.0, 1 / jnp.sqrt(precision)))


@probml.model
def arrivals():
    rate = sample("rate", dist.Exponential(1e-6))
    with probml.rows():
        sample("y", dist.Poisson(rate))


@pytest.mark.parametrize("engine", [probml.MAP(prior=False), probml.EM(prior=False)], ids=("MAP", "EM"))
@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e5])
def test_an_ordinary_number_is_at_no_boundary_in_any_unit(engine, unit):
    y = unit * np.random.default_rng(0).normal(size=200)
    fit = spreads().fit({"y": y}, engine)
    assert "boundary" not in fit.status, fit.status
    np.testing.assert_allclose(fit.params["precision"] * np.mean(y**2), 1.0, rtol=1e-2)


def test_a_rate_of_nothing_is_at_its_boundary():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = arrivals().fit({"y": np.zeros(50, int)}, probml.MAP(prior=False))
    assert "boundary" in fit.status, fit.status


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_a_network_of_large_units_has_no_boundary(unit):
    import networkx as nx
    import pandas as pd

    random = np.random.default_rng(0)
    pay = random.normal(45_000, 5000, 400)
    table = pd.DataFrame({"pay": pay, "rent": 0.7 * pay + random.normal(0, 500, 400)})
    table.iloc[::9, 0] = np.nan
    network = bayesian_network(nx.DiGraph([("pay", "rent")]), states={"pay": float, "rent": float})
    assert "boundary" not in network.fit(table / unit).status


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["rbf", "matern52", "rational"])
@pytest.mark.parametrize("rows", [10, 30])
def test_a_gaussian_process_of_a_function_without_noise_predicts_it(kernel, rows):
    random = np.random.RandomState(1)
    X, new = random.uniform(0, 1, (rows, 3)), random.uniform(0.2, 0.8, (4, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = GaussianProcess(kernel=kernel).fit(X, -8e4 * X[:, 0] * X[:, 1] + 10 * X[:, 2]).predict(new)
    np.testing.assert_allclose(got, -8e4 * new[:, 0] * new[:, 1] + 10 * new[:, 2], atol=500 if rows > 10 else 5000)


@probml.model
def line(x, width: float = 1.0):
    b = sample("b", dist.Normal(0.0, width * jnp.ones(2)).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(x @ b, 1.0))


@probml.model
def kinds():
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("kind", 2):
        mean = sample("mean", dist.Normal(0.0, 5.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("y", dist.Normal(mean[z], 1.0))


@probml.model
def vectors():
    m = sample("m", dist.MultivariateNormal(jnp.zeros(2), 4 * jnp.eye(2)))
    with probml.rows():
        sample("x", dist.MultivariateNormal(m, jnp.eye(2)))


R = np.random.default_rng(0)
COLUMNS, Y, LABELS = R.normal(size=(40, 2)), R.normal(size=40), np.arange(40) % 2
TORN = np.where((np.arange(40) == 3)[:, None] & (np.arange(2) == 0), np.nan, COLUMNS)
EXPLAINED = {
    "regression": (line(), {"x": COLUMNS, "y": Y}),
    "regression with unseen cells": (line(), {"x": COLUMNS, "y": np.where(LABELS == 1, np.nan, Y)}),
    "collinear columns": (line(width=1e9), {"x": COLUMNS[:, [0, 0]], "y": Y}),
    "seen kinds": (kinds(), {"y": Y, "z": LABELS}),
    "unseen kinds": (kinds(), {"y": Y}),
    "kinds seen in part": (kinds(), {"y": Y, "z": np.where(np.arange(40) == 39, np.nan, LABELS)}),
    "vectors": (vectors(), {"x": COLUMNS}),
    "vectors seen in part": (vectors(), {"x": TORN}),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_engine_that_explain_names_is_the_one_that_fits(name):
    model, data = EXPLAINED[name]
    said = next(row for row in model.explain(data).engines if row[""].startswith("chosen"))
    took = model.fit(data).engine
    assert took.startswith(said["engine"]) or "unless columns are collinear" in said[""]
