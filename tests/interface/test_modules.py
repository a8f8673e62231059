"""Networks of other libraries in a function, by numpyro's own modules: weights are found as params,
sampled where they have priors."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from numpyro.contrib.module import ParamShape
from scipy import stats

import probml

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))
Y = X @ [1.0, -2.0] + 0.5 + 0.1 * RNG.normal(size=20)
LINE = np.linalg.lstsq(np.c_[np.ones(20), X], Y, rcond=None)[0]


def half_random(x, y=None):
    """What numpyro's random modules do: the weights have a prior, the bias is a param."""
    held = numpyro.param("net$params", {"bias": jnp.zeros(1), "kernel": jnp.ones((2, 1))})
    bias, held["kernel"] = held["bias"], ParamShape((2, 1))
    kernel = sample("net/kernel", dist.Normal(0, 1).expand([2, 1]).to_event())
    with plate("n", len(x)):
        sample("y", dist.Normal((x @ kernel + bias)[:, 0], 0.5), obs=y)


def log_of(bias, kernel):
    return stats.norm(X @ kernel[:, 0] + bias, 0.5).logpdf(Y).sum()


def test_weights_with_a_prior_are_no_param_as_well():
    kernel = np.array([[1.0], [-0.5]])
    got = probml.model(half_random)().log_density(
        {"x": X, "y": Y}, {"net$params": np.array([0.3]), "net/kernel": kernel})
    np.testing.assert_allclose(got, log_of(0.3, kernel) + stats.norm().logpdf(kernel).sum())


@pytest.fixture(scope="module")
def flax():
    return pytest.importorskip("flax")


def test_a_module_of_flax_is_trained(flax):
    from flax import linen
    from numpyro.contrib.module import flax_module

    def line(x, y=None):
        net = flax_module("net", linen.Dense(1), input_shape=(2,))
        with plate("n", len(x)):
            sample("y", dist.Normal(net(x)[:, 0], 0.5), obs=y)

    fit = probml.model(line)().fit({"x": X, "y": Y}, probml.MAP())
    np.testing.assert_allclose(fit.params["net$params"], LINE, atol=1e-3)


def test_a_module_of_nnx_is_trained(flax):
    from flax import nnx
    from numpyro.contrib.module import nnx_module

    module = nnx.Linear(2, 1, rngs=nnx.Rngs(0))

    def line(x, y=None):
        net = nnx_module("net", module)
        with plate("n", len(x)):
            sample("y", dist.Normal(net(x)[:, 0], 0.5), obs=y)

    fit = probml.model(line)().fit({"x": X, "y": Y}, probml.MAP())
    np.testing.assert_allclose(fit.params["net$params"], LINE, atol=1e-3)


@pytest.mark.parametrize("kind", ["linen", "nnx"])
def test_a_random_module_has_the_density_of_its_weights_alone(flax, kind):
    from flax import linen, nnx
    from numpyro.contrib.module import random_flax_module, random_nnx_module

    module = linen.Dense(1) if kind == "linen" else nnx.Linear(2, 1, rngs=nnx.Rngs(0))

    def line(x, y=None):
        if kind == "linen":
            net = random_flax_module("net", module, dist.Normal(0, 1), input_shape=(2,))
        else:
            net = random_nnx_module("net", module, dist.Normal(0, 1))
        with plate("n", len(x)):
            sample("y", dist.Normal(net(x)[:, 0], 0.5), obs=y)

    kernel = np.array([[1.0], [-0.5]])
    got = probml.model(line)().log_density(
        {"x": X, "y": Y}, {"net/bias": np.array([0.3]), "net/kernel": kernel})
    want = log_of(0.3, kernel) + stats.norm().logpdf(np.r_[0.3, kernel[:, 0]]).sum()
    np.testing.assert_allclose(got, want)
