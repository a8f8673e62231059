"""A stream that never ends, in float32: statistics of more rows than float32 counts by ones, about
centres that parts do not share, add up as in double."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.models import naive_bayes

MANY = 2**25  # float32 has no next whole number


@probml.model
def coin():
    p = sample("p", dist.Beta(1.0, 1.0))
    with probml.rows():
        sample("y", dist.Bernoulli(p))


@probml.model
def pair():
    with plate("component", 2):
        mean = sample("mean", dist.Normal(0.0, 10.0))
    weights = sample("weights", dist.Dirichlet(np.ones(2)))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], 1.0))


def test_single_rows_count_beside_more_than_float32_counts_by_ones():
    with jax.enable_x64(False):
        fit = coin().fit({"y": [0]}, weights=[MANY])
        for _ in range(64):
            fit = fit.update({"y": [0]})
        again = fit.merge(coin().fit({"y": [0]}))
    assert float(fit.posterior("p").concentration0) == pytest.approx(1 + MANY + 64, abs=4)
    assert float(again.kept.summary.weights) == MANY + 65


def test_parts_about_any_centre_add_up_to_the_whole():
    """The first row is nowhere near the others, of whose variance 10^-6 of a part's squares are
    left."""
    random = np.random.default_rng(0)
    z = np.concatenate([[0], np.arange(400) % 2])
    x = np.concatenate([np.zeros((1, 2)), 1e6 + random.normal(size=(400, 2)) + 3 * z[1:, None]])
    model = naive_bayes(2, {"x": ("normal", 2)})
    whole = model.fit({"x": x, "class": z})
    with jax.enable_x64(False):
        fit = model.fit({"x": x[:1], "class": z[:1]})
        for part in np.array_split(np.arange(1, 401), 10):
            fit = fit.update({"x": x[part], "class": z[part]})
    assert fit.double
    for name, value in whole.params.items():
        np.testing.assert_allclose(fit.params[name], value, rtol=2e-6)
    np.testing.assert_allclose(fit.params["x_mean"][1], whole.params["x_mean"][1], rtol=1e-11)
    np.testing.assert_allclose(fit.log_evidence, whole.log_evidence, rtol=1e-6)


def test_a_pass_in_batches_adds_up_beside_a_heavy_row():
    x = np.where(np.arange(600) % 2, -4.0, 4.0) + np.random.default_rng(0).normal(size=600)
    with jax.enable_x64(False):
        fit = pair().fit({"x": x}, probml.EM(batch_rows=3, restarts=1, max_iterations=1),
                         weights=np.where(np.arange(600) == 0, 2**26, 1.0))
    assert fit.kept.summary.statistics["z"].sum() == pytest.approx(2**26 + 599, abs=16)
