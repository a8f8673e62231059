"""Guides that take the function's arguments: amortised ones, batches of a subsampled plate, params
and modules of model and guide. Held to posteriors in closed form."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.example_libraries import stax
from numpyro import plate, sample
from numpyro.distributions import constraints

import probml
from coded import codes
from probml.errors import ModelError, Refusal

RNG = np.random.default_rng(1)
Y = RNG.normal(1.5, 1.4, size=40)


def two_levels(y, batch=None):
    mu = sample("mu", dist.Normal(0, 2))
    with plate("n", len(y), subsample_size=batch) as index:
        z = sample("z", dist.Normal(mu, 1.0))
        sample("y", dist.Normal(z, 1.0), obs=y[index])


def amortised(y, batch=None):
    loc = numpyro.param("loc", 0.0)
    scale = numpyro.param("scale", 0.5, constraint=constraints.positive)
    a, b = numpyro.param("a", 0.1), numpyro.param("b", 0.0)
    s = numpyro.param("s", 1.0, constraint=constraints.positive)
    sample("mu", dist.Normal(loc, scale))
    with plate("n", len(y), subsample_size=batch) as index:
        sample("z", dist.Normal(a * y[index] + b, s))


def test_an_amortised_guide_in_batches_finds_the_posterior():
    precision = 1 / 4 + len(Y) / 2
    mean = Y.sum() / 2 / precision
    fit = probml.model(two_levels)(batch=10).fit(
        {"y": Y}, probml.SVI(guide=amortised, steps=4000, particles=4), seed=1)
    # of the guides of this family the best: q(z) = N((mean + y) / 2, 1 / 2)
    assert abs(fit.params["mu"] - mean) < 0.1
    z = fit.draws(400)["z"]
    assert z.shape == (400, 40)
    np.testing.assert_allclose(z.mean(0), (mean + Y) / 2, atol=0.25)
    np.testing.assert_allclose(z.std(0), np.sqrt(1 / 2), atol=0.15)


def decoded(x):
    net = numpyro.module("decoder", stax.Dense(2), (1,))
    with plate("n", len(x)):
        z = sample("z", dist.Normal(0.0, 1.0).expand([1]).to_event(1))
        sample("x", dist.Normal(net(z), 0.3).to_event(1), obs=x)


def encoder(x):
    net = numpyro.module("encoder", stax.Dense(2), (2,))
    out = net(x)
    with plate("n", len(x)):
        sample("z", dist.Normal(out[:, :1], jnp.exp(out[:, 1:])).to_event(1))


@pytest.mark.filterwarnings("ignore::probml.ConvergenceWarning")  # one is stopped too early
def test_a_linear_autoencoder_finds_the_principal_direction():
    z = RNG.normal(size=(60, 1))
    x = z * np.array([2.0, -1.0]) + np.array([1.0, 3.0]) + 0.3 * RNG.normal(size=(60, 2))
    model = probml.model(decoded)()
    slow, fit = (model.fit({"x": x}, probml.SVI(guide=encoder, steps=3000), seed=seed)
                 for seed in (0, 4))
    assert "guide-not-converged" in codes(slow) and "guide-not-converged" not in codes(fit)
    weights = fit.params["decoder$params"]  # of one vector: the bias after the matrix
    direction = weights[:2] / np.linalg.norm(weights[:2])
    assert abs(direction @ np.array([2.0, -1.0]) / np.sqrt(5)) > 0.99
    # the bound is that of probabilistic PCA within the guide's own gap
    loading = np.linalg.eigh(np.cov(x.T, bias=True))
    w = loading[1][:, -1] * np.sqrt(max(loading[0][-1] - 0.09, 0))
    cov = np.outer(w, w) + 0.09 * np.eye(2)
    rest = x - x.mean(0)
    exact = -0.5 * (np.log(np.linalg.det(2 * np.pi * cov)) * 60
                    + np.einsum("ni,ij,nj->", rest, np.linalg.inv(cov), rest))
    assert -0.5 < exact - np.mean(fit.history[-300:]) < 5.0


def without_z(y):
    sample("mu", dist.Normal(numpyro.param("loc", 0.0), 1.0))


def of_others(y, k):
    sample("mu", dist.Normal(numpyro.param("loc", 0.0), 1.0))


def test_a_guide_that_does_not_fit_the_function_is_refused_by_name():
    model = probml.model(two_levels)()
    with pytest.raises(ModelError, match="does not sample 'z'"):
        model.fit({"y": Y}, probml.SVI(guide=without_z))
    with pytest.raises(ModelError, match="has the argument 'k'"):
        model.fit({"y": Y}, probml.SVI(guide=of_others))

    def rows_of_its_own():
        mu = sample("mu", dist.Normal(0, 1))
        with probml.rows():
            sample("y", dist.Normal(mu, 1))

    with pytest.raises(Refusal, match="gets no data"):
        probml.model(rows_of_its_own)().fit({"y": Y}, probml.SVI(guide=without_z))


def test_batches_of_a_function_are_its_density_on_average():
    model, point = probml.model(two_levels)(batch=2), {"mu": 0.4}
    y, z = Y[:4], RNG.normal(size=4)
    read, each = model.read({"y": y}), []
    (name,) = read.inputs
    for pair in ([0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]):
        index = jnp.array(pair)
        values = {**point, "z": jnp.asarray(z)[index], "n": index}
        with numpyro.handlers.substitute(data=values):
            log = numpyro.infer.util.log_density(
                lambda: read.generative.forward(read.bound, {name: jnp.asarray(y)}), (), {}, {})[0]
        each.append(log)
    np.testing.assert_allclose(np.mean(each), model.log_density({"y": y}, {**point, "z": z}))
