"""Fits as arviz's InferenceData: names of axes, log-likelihoods with hidden sites summed out,
replicated rows; refusals by name."""

import dataclasses
import sys

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample
from scipy import stats

import oracles
import probml
from probml.assessment import reports
from probml.dataset import read
from probml.posteriors.posterior import Draws

pytest.importorskip("arviz")
nan = np.nan


@probml.model
def classes(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("class", k):
        with plate("feature", 2):
            mean = sample("mean", dist.Normal(0.0, 3.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        with plate("feature", 2):
            sample("x", dist.Normal(mean[:, z], 1.0))


@probml.model
def bags():
    bag = sample("bag", dist.Categorical(jnp.array([0.2, 0.8])))
    with probml.rows():
        sample("cherry", dist.Bernoulli(jnp.array([0.9, 0.3])[bag]))


@probml.model
def mixture(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 5.0))
        scale = sample("scale", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], scale[z]))


def groups(data):
    """The names of an InferenceData's groups, or a DataTree's."""
    found = data.groups() if callable(data.groups) else data.groups
    return {name.strip("/") for name in found} - {""}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    label = np.where(np.arange(14) % 3 == 0, "low", "high")
    x = np.where(label == "low", -1.0, 2.0)[:, None] + rng.normal(size=(14, 2))
    return {"z": label, "x": x}


@pytest.fixture(scope="module")
def exported(table):
    fit = classes(k=2).fit(table, probml.Exact())
    return fit, fit.to_arviz(table)


def test_axes_are_named_by_plates_and_numbered_by_labels(exported):
    _, data = exported
    mean, x = data.posterior["mean"], data.posterior_predictive["x"]
    assert mean.dims == ("chain", "draw", "feature", "class")
    # z picks the slice of that plate
    assert mean.coords["class"].values.tolist() == ["high", "low"]
    # and of no other, though it has as many members
    assert mean.coords["feature"].values.tolist() == [0, 1]
    assert data.posterior["weights"].coords["weights_dim_0"].values.tolist() == ["high", "low"]
    assert x.dims == ("chain", "draw", "rows", "feature") and x.shape == (1, 1000, 14, 2)
    assert data.observed_data["x"].dims == ("rows", "feature")
    assert data.observed_data["z"].attrs["states"] == ["high", "low"]


def test_draws_and_replicated_rows_are_those_of_the_posterior(exported, table):
    fit, data = exported
    np.testing.assert_allclose(data.posterior["mean"].mean(("chain", "draw")), fit.params["mean"],
                               atol=0.1)
    # each draw of the means with its own rows, labels drawn too
    replicated = data.posterior_predictive["x"].values[0]
    expected = np.einsum("sfk,sk->sf", data.posterior["mean"].values[0],
                         data.posterior["weights"].values[0])
    slope = np.polyfit(expected[:, 0], replicated[:, :, 0].mean(1), 1)[0]
    assert abs(slope - 1) < 0.15
    np.testing.assert_array_equal(data.observed_data["x"], table["x"])


def test_seen_labels_enter_the_log_likelihood_of_a_row(exported, table):
    _, data = exported
    draw, code = 17, (table["z"] == "low").astype(int)
    at = {name: data.posterior[name].values[0, draw] for name in ("mean", "weights")}
    expected = np.log(at["weights"][code]) + stats.norm(at["mean"][:, code].T,
                                                        1).logpdf(table["x"]).sum(1)
    np.testing.assert_allclose(data.log_likelihood["row"][0, draw], expected, rtol=1e-10)


def test_log_likelihoods_equal_enumeration_with_hidden_labels_and_holes():
    rng = np.random.default_rng(1)
    x = rng.normal(size=20)
    x[3] = nan
    draws = {
        "weights": rng.dirichlet([1, 1, 1], (2, 3)),
        "mean": rng.normal(size=(2, 3, 3)),
        "scale": rng.uniform(0.5, 2, size=(2, 3, 3)),
    }
    fit = mixture(k=3).at({name: value[0, 0] for name, value in draws.items()})
    found = reports.log_likelihood(fit, read.read(fit.model, {"x": x}), draws)
    assert found.shape == (2, 3, 20)
    for c, d in np.ndindex(2, 3):
        at = {name: value[c, d] for name, value in draws.items()}
        cells = np.where(np.isnan(x)[:, None], 0.0,
                         stats.norm(at["mean"], at["scale"]).logpdf(x[:, None]))
        joint = oracles.enumerate_factors([(np.log(at["weights"])[None], ("z",)), (cells, ("z",))],
                                          {"z": 3})
        np.testing.assert_allclose(found[c, d], oracles.evidence(joint), atol=1e-12)


def test_rows_are_independent_given_a_draw_of_a_discrete_site_outside_them():
    data = {"cherry": [1, 0, 0]}
    out = bags().fit(data).to_arviz(data)
    bag = out.posterior["bag"].values
    assert set(np.unique(bag)) == {0, 1} and "row" not in out.log_likelihood
    expected = np.log(np.array([[0.9, 0.1, 0.1], [0.3, 0.7, 0.7]]))[bag]
    np.testing.assert_allclose(out.log_likelihood["cherry"], expected, rtol=1e-10)


def test_sampler_statistics_have_arvizs_names(exported, table):
    fit, _ = exported
    rng = np.random.default_rng(2)
    values = {name: np.stack([value] * 6).reshape(2, 3, *value.shape)
              for name, value in fit.params.items()}
    steps = np.array([[1, 3, 7], [15, 3, 3]])
    said = {"log_density": rng.normal(size=(2, 3)), "diverging": steps > 7, "steps": steps,
            "accept": rng.random((2, 3)), "energy": rng.normal(size=(2, 3))}
    data = dataclasses.replace(fit, belief=Draws(values, None, said)).to_arviz(table)
    assert data.posterior["mean"].shape == (2, 3, 2, 2)
    assert set(data.sample_stats) == {"lp", "diverging", "n_steps", "tree_depth",
                                      "acceptance_rate", "energy"}
    np.testing.assert_array_equal(data.sample_stats["tree_depth"], [[1, 2, 3], [4, 2, 2]])
    assert data.sample_stats["diverging"].values.sum() == 1


def test_the_index_of_a_table_numbers_the_rows():
    frame = pd.DataFrame({"cherry": [1, 0, 1]}, index=["ann", "bob", "eve"])
    out = bags().fit(frame).to_arviz(frame)
    assert out.observed_data["cherry"].coords["rows"].values.tolist() == ["ann", "bob", "eve"]


def test_bad_requests_are_refused_by_name(exported, table, monkeypatch):
    fit, _ = exported
    with pytest.raises(probml.ModelError, match="does not store the data"):
        fit.to_arviz()
    with pytest.raises(probml.Refusal, match="gives point estimates"):
        classes(k=2).at(fit.params).to_arviz({"x": table["x"]})
    with pytest.raises(probml.DataError, match="'y' is neither a site nor an input"):
        fit.to_arviz({"y": table["x"]})
    with pytest.raises(probml.ModelError, match=r"was returned by do\(\)"):
        fit.do({"z": "low"}).to_arviz(table)
    monkeypatch.setattr(reports, "MAX_ROW_NUMBERS", 100)
    with pytest.raises(probml.Refusal, match="1,000 draws for each of 14 rows"):
        fit.to_arviz(table)
    monkeypatch.setattr(reports, "MAX_ROW_NUMBERS", 2**28)
    for name in ("arviz", "arviz_base"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(probml.ModelError, match=r"probml\[arviz\]"):
        fit.to_arviz(table)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:NUTS of model .* R-hat:probml.ConvergenceWarning")
@pytest.mark.parametrize("engine", [probml.NUTS(draws=600, warmup=300, chains=2),
                                    probml.SVI(steps=500), probml.Laplace()])
def test_every_posterior_engine_exports_what_it_has(engine):
    x = np.concatenate([np.random.default_rng(3).normal(m, 1, 30) for m in (-3, 3)])
    fit = mixture(k=2).fit({"x": x}, engine)
    data = fit.to_arviz()
    assert data.posterior["mean"].dims == ("chain", "draw", "component")
    assert data.posterior_predictive["x"].shape == (*data.posterior["mean"].shape[:2], 60)
    assert ("sample_stats" in groups(data)) == isinstance(engine, probml.NUTS)
    np.testing.assert_allclose(data.log_likelihood["x"].values.mean((0, 1)).sum(),
                               fit.log_prob({"x": x}).sum(), atol=8)


def test_the_prior_and_what_it_predicts_are_groups_if_asked_for(exported, table):
    fit, plain = exported
    data = fit.to_arviz(table, prior=400)
    assert groups(data) - groups(plain) == {"prior", "prior_predictive"}
    mean, x = data.prior["mean"], data.prior_predictive["x"]
    assert mean.dims == data.posterior["mean"].dims and mean.shape == (1, 400, 2, 2)
    assert abs(float(mean.std()) - 3.0) < 0.3 and x.shape == (1, 400, 14, 2)
    # rows are made with their own draw: normal about the mean of their label
    z = np.asarray(data.prior_predictive["z"][0], int)
    near = np.stack([mean.values[0, np.arange(400)[:, None], j, z] for j in range(2)], -1)
    assert abs(float((x.values[0] - near).std()) - 1.0) < 0.05
    with pytest.raises(probml.ModelError, match=r"to_arviz\(prior=0\): expected a number"):
        fit.to_arviz(table, prior=0)


def test_weights_that_arviz_does_not_know_are_named():
    @probml.model
    def level():
        mean = sample("mean", dist.Normal(0.0, 10.0))
        with probml.rows():
            sample("y", dist.Normal(mean, 1.0))

    data = {"y": np.array([0.1, 0.9, 2.0])}
    with pytest.warns(probml.ReliabilityWarning, match="rows had weights, which ArviZ does not know"):
        level().fit(data, probml.Exact(), weights=[1.0, 2.0, 3.0]).to_arviz(data)


def test_rows_that_cannot_be_simulated_have_all_other_groups():
    @probml.model
    def lives():
        scale = sample("scale", dist.Gamma(2.0, 1.0))
        root = jnp.array([[1.0, 0.0], [0.6, 0.8]])
        with probml.rows():
            margins = dist.Weibull(scale * jnp.ones(2), 1.5)
            sample("y", dist.GaussianCopula(margins, correlation_cholesky=root))

    fit = lives().fit({"y": np.random.default_rng(0).weibull(1.5, (12, 2))}, probml.Laplace())
    with pytest.warns(RuntimeWarning, match="posterior_predictive, because rows cannot be simul"):
        found = fit.to_arviz()
    assert {"posterior", "log_likelihood", "observed_data"} <= {
        name.strip("/") for name in found.groups()}
