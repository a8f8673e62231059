"""What is no number is never answered without a word."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import deterministic, sample

import probml


@probml.model
def loosely_held(a=1e-3):
    variance = sample("variance", dist.InverseGamma(a, a))
    with probml.rows():
        sample("y", dist.Normal(0.0, jnp.sqrt(variance)))


@probml.model
def logarithms():
    with probml.rows():
        x = sample("x", dist.Normal(0.0, 1.0))
        deterministic("log x", jnp.log(x))


def test_prior_draws_beyond_the_largest_number_are_told():
    with pytest.warns(RuntimeWarning, match="'variance' is infinite: .*overflows") as said:
        found = loosely_held().simulate(3, seed=2, parameters=True)
    assert np.isinf(found["variance"])
    assert said[0].filename == __file__


def test_posterior_draws_beyond_the_largest_number_are_told():
    fit = loosely_held().fit({"y": np.array([1.0, 2.0])}, weights=np.full(2, 1e-12))
    with pytest.warns(RuntimeWarning, match="of 100 numbers of 'variance' are infinite") as said:
        found = fit.draws(100)["variance"]
    assert np.isinf(found).any() and not np.isnan(found).any()
    assert said[0].filename == __file__
    with pytest.warns(RuntimeWarning, match="of 100 numbers of 'y' are"):
        fit.simulate(100)


def test_single_says_that_double_holds_more():
    with jax.enable_x64(False), pytest.warns(RuntimeWarning, match="in float64 1.8e"):
        loosely_held(0.02).simulate(1, seed=3, parameters=True)


def test_what_a_function_computes_without_a_value_is_told():
    with pytest.warns(RuntimeWarning, match="numbers of 'log x' are NaN"):
        logarithms().simulate(20)
