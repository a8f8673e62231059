"""A row of weight 2 is two rows, in every number of a comparison; weights are never forgotten."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

import probml

pytest.importorskip("arviz")

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=16)
Y = X + RANDOM.normal(size=16)
W = np.tile([1.0, 2.0, 0.0, 3.0], 4)
AGAIN = np.repeat(np.arange(16), W.astype(int))
STEPS = [RANDOM.poisson(np.repeat([2.0, 9.0], 3)[:n]).astype(float) for n in (6, 4, 5, 3)]
W_STEPS = np.array([2.0, 1.0, 0.0, 1.0])


@probml.model
def line(x):
    b = sample("b", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(b * x, 1.0))


@probml.model
def logistic(x):
    b = sample("b", dist.Normal(0.0, 3.0))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=b * x))


@probml.model
def mixture():
    w = sample("w", dist.Beta(2.0, 2.0))
    m = sample("m", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
    with probml.rows():
        z = sample("z", dist.Bernoulli(w))
        sample("y", dist.Normal(m[z], 1.0))


@probml.model
def chain():
    with plate("states", 2):
        move = sample("move", dist.Dirichlet(2 * jnp.ones(2)))
    rate = sample("rate", dist.LogNormal(jnp.array([0.7, 2.2]), 0.2).to_event(1))
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]), move))
        sample("n", dist.Poisson(rate[z]).to_event(1))


MODELS = {"line": (line, {"x": X, "y": Y}), "logistic": (logistic, {"x": X, "y": Y > 0}),
          "mixture": (mixture, {"y": Y}), "chain": (chain, {"n": STEPS})}
POSTERIOR = ("elpd_loo", "se", "p_loo", "log_evidence", "bound")


def repeated(data, weights):
    again = np.repeat(np.arange(len(weights)), weights.astype(int))
    return {name: [value[i] for i in again] if isinstance(value, list) else value[again]
            for name, value in data.items()}


@pytest.mark.parametrize("engine", [None, probml.MAP(), probml.EM(), probml.VB(), probml.Laplace()],
                         ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_every_number_is_that_of_repeated_rows(name, engine):
    model, data = MODELS[name]
    weights = W_STEPS if name == "chain" else W
    rows = repeated(data, weights)
    try:
        one = model().fit(data, engine, weights=weights, seed=0)
    except probml.Refusal:
        pytest.skip("the engine refuses the model")
    two = model().fit(rows, engine, seed=0)
    got = probml.compare({name: one}, data, weights=weights).loc[name]
    want = probml.compare({name: two}, rows).loc[name]
    assert (got.isna() == want.isna()).all()
    for column in want.index[want.notna()]:
        drawn = column in POSTERIOR and not isinstance(two.made_by, probml.Exact | probml.VB)
        np.testing.assert_allclose(got[column], want[column], rtol=1e-2 if drawn else 2e-3,
                                   atol=0.15 if drawn else 0.03, err_msg=column)


def weighed():
    return line().fit({"x": X, "y": Y}, weights=W)


def loaded(tmp_path):
    weighed().save(tmp_path / "fit.probml")
    return probml.load(tmp_path / "fit.probml", line())


def updated():
    first = line().fit({"x": X[:8], "y": Y[:8]}, probml.EM(), weights=W[:8])
    return first.update({"x": X[8:], "y": Y[8:]}, weights=W[8:])


def merged():
    one, two = (line().fit({"x": X[part], "y": Y[part]}, probml.EM(), weights=own)
                for part, own in ((slice(8), np.ones(8)), (slice(8, 16), W[8:])))
    return one.merge(two)


def in_parts():
    table = pd.DataFrame({"x": X, "y": Y, "often": W})
    return line().fit(lambda: iter([table[:7], table[7:]]), weights="often")


FITS = {"fitted": weighed, "loaded": loaded, "updated": updated, "merged": merged,
        "in parts": in_parts}


@pytest.mark.parametrize("how", FITS)
def test_weights_of_a_fit_are_asked_for(how, tmp_path):
    try:
        fit = FITS[how](tmp_path) if how == "loaded" else FITS[how]()
    except probml.Refusal:
        pytest.skip("no sufficient statistics of this model")
    data = {"x": X, "y": Y}
    with pytest.raises(probml.DataError, match="weights of rows.*compare.*weights="):
        probml.compare({"a": fit}, data)
    with pytest.raises(probml.ModelError, match="repeat each row that often"):
        probml.compare({"a": fit}, data, target="y")
    assert np.isfinite(probml.compare({"a": fit}, data, weights=W).loc["a", "bic"])


def test_a_fit_without_weights_is_not_compared_by_weighted_rows():
    fits = {"a": line().fit({"x": X, "y": Y}, weights=W), "b": line().fit({"x": X, "y": Y})}
    with pytest.raises(probml.DataError, match="'b' was fitted without weights of rows"):
        probml.compare(fits, {"x": X, "y": Y}, weights=W)


def test_weights_of_one_are_no_weights():
    fit = line().fit({"x": X, "y": Y}, weights=np.ones(16))
    assert not fit.weighted
    assert np.isfinite(probml.compare({"a": fit}, {"x": X, "y": Y}).loc["a", "elpd_loo"])


def test_weights_are_a_column_or_numbers():
    table = pd.DataFrame({"x": X, "y": Y, "often": W})
    fits = {"a": line().fit(table, weights="often"), "b": line().fit(table, probml.MAP(), weights=W)}
    one = probml.compare(fits, table, weights="often")
    two = probml.compare(fits, table, weights=W)
    own = probml.compare(fits, {"a": table, "b": table}, weights="often")
    pd.testing.assert_frame_equal(one, two)
    pd.testing.assert_frame_equal(one, own)


def test_weights_that_are_no_counts_have_no_leave_one_out():
    fit = line().fit({"x": X, "y": Y}, weights=W / 2)
    found = probml.compare({"a": fit}, {"x": X, "y": Y}, weights=W / 2)
    assert np.isnan(found.loc["a", "elpd_loo"]) and np.isfinite(found.loc["a", "bic"])
    assert "whole numbers" in found.attrs["missing"]["a"]["elpd_loo"]


def test_folds_are_refitted_with_weights():
    fit = line().fit({"x": X, "y": Y}, weights=W)
    train, test = np.arange(10), np.arange(10, 16)
    found = probml.compare({"a": fit}, {"x": X, "y": Y}, weights=W, folds=[(train, test)])
    again = line().fit({"x": X[train], "y": Y[train]}, weights=W[train])
    np.testing.assert_allclose(found.loc["a", "elpd_kfold"],
                               W[test] @ again.log_prob({"x": X[test], "y": Y[test]}), rtol=1e-3)
