"""Stochastic variational inference: a few passes in batches reach what many iterations of all rows
reach; and VB in single precision."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.engines.restarting import batches
from probml.errors import ModelError, Refusal


@probml.model
def counts(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 2.0)))
    with plate("component", k):
        rate = sample("rate", dist.Gamma(2.0, 0.5))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Poisson(rate[z]))


@probml.model
def line(x):
    slope = sample("slope", dist.Normal(0.0, 3.0))
    precision = sample("precision", dist.Gamma(1.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(x * slope, precision**-0.5))


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    return {"x": np.sort(random.poisson(np.where(random.random(4000) < 0.4, 2.0, 11.0)))}  # in order


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_three_passes_in_batches_reach_what_all_rows_reach(monkeypatch, rows):
    monkeypatch.setattr(batches, "START_ROWS", 800)  # the first point knows a fifth of the rows
    few = probml.VB(batch_rows=200, max_iterations=3, tolerance=0.0, restarts=2)
    whole = counts(2).fit(rows, probml.VB(restarts=2, tolerance=1e-10))
    fit = counts(2).fit(rows, few)
    assert fit.bound == max(fit.history) and len(fit.history) == fit.iterations + 1 <= 4
    assert whole.bound - 0.02 < fit.bound <= whole.bound + 1e-6  # nats of 4,000 rows together
    order = np.argsort(fit.params["rate"]), np.argsort(whole.params["rate"])
    for name in ("rate",):
        ours, theirs = (each.posterior(name).concentration[by]
                        for each, by in zip((fit, whole), order, strict=True))
        np.testing.assert_allclose(ours, theirs, rtol=2e-3)
    # every row is counted once in the end
    np.testing.assert_allclose(fit.posterior("weights").concentration.sum(), 4004.0, rtol=1e-9)
    assert "batch_rows=200" in fit.status
    np.testing.assert_array_equal(counts(2).fit(rows, few).history, fit.history)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_batches_of_a_source_reach_what_all_rows_reach(monkeypatch, rows):
    monkeypatch.setattr(batches, "START_ROWS", 800)
    few = probml.VB(batch_rows=200, max_iterations=3, tolerance=0.0, restarts=2)
    whole = counts(2).fit(rows, probml.VB(restarts=2, tolerance=1e-10))
    parts = [{"x": rows["x"][low : low + 900]} for low in range(0, 4000, 900)]
    fit = counts(2).fit(lambda: iter(parts), few)
    assert whole.bound - 0.02 < fit.bound <= whole.bound + 1e-6
    np.testing.assert_allclose(fit.posterior("weights").concentration.sum(), 4004.0, rtol=1e-9)
    np.testing.assert_array_equal(counts(2).fit(lambda: iter(parts), few).history, fit.history)


def test_what_has_no_batches_is_refused_by_name(rows):
    with pytest.raises(ModelError, match=r"VB\(batch_rows=5000\) .* only 4,000 rows"):
        counts(2).fit(rows, probml.VB(batch_rows=5000))
    with pytest.raises(Refusal, match="site 'y' has no sufficient statistics .* SVI"):
        line().fit({"x": np.arange(9.0), "y": np.arange(9.0)}, probml.VB(batch_rows=3))
    with pytest.raises(ModelError, match=r"VB\(batch_rows=0\)"):
        probml.VB(batch_rows=0)


# Single precision


@probml.model
def normals(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        precision = sample("precision", dist.Gamma(1.5, 0.5).expand([2]).to_event(1))
        mean = sample("mean", dist.Normal(0.0, (0.01 * precision) ** -0.5).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], precision[z] ** -0.5).to_event(1))


@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_in_single_precision_it_ends_where_double_ends(offset):
    random = np.random.default_rng(1)
    x = np.concatenate([random.normal(-2.0, 1.0, (150, 2)), random.normal(2.0, 0.5, (100, 2))])
    found = {}
    for double in (True, False):
        with jax.enable_x64(double):
            found[double] = normals(2).fit({"x": x + offset}, probml.VB(restarts=2))
            assert found[double].converged
    order = [np.argsort(found[double].params["mean"][:, 0]) for double in (True, False)]
    # a millionth of the bound and of the parameters; of the bound more than rounding of its sum
    assert abs(found[True].bound - found[False].bound) < 2e-5 * abs(found[True].bound)
    for name in ("mean", "precision", "weights"):
        ours, theirs = (found[double].params[name][by]
                        for double, by in zip((True, False), order, strict=True))
        np.testing.assert_allclose(theirs, ours, rtol=2e-3, atol=1e-3)
