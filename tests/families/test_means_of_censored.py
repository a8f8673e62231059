"""The mean of a censored outcome is that of the outcome, were it not censored."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from probml.families.finite import mean_of

BASES = {"normal": lambda a: dist.Normal(a, 2.0), "Weibull": lambda a: dist.Weibull(a, 1.5),
         "exponential": lambda a: dist.Exponential(1 / a), "Student": lambda a: dist.StudentT(4.0, a),
         "log-normal": lambda a: dist.LogNormal(jnp.log(a), 0.5), "Gumbel": lambda a: dist.Gumbel(a)}
KINDS = (dist.RightCensoredDistribution, dist.LeftCensoredDistribution)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("base", BASES)
def test_mean_has_the_axes_of_arguments_and_of_the_censoring(base, kind):
    for at in (2.0, jnp.array([1.0, 2.0, 3.0]), jnp.ones((2, 1))):
        for censored in (0.0, jnp.array([0.0, 1.0, 1.0]), jnp.zeros((2, 3))):
            own = kind(BASES[base](at), censored)
            plain = jnp.broadcast_to(BASES[base](at).mean, own.batch_shape)
            np.testing.assert_allclose(mean_of(own), plain)
            np.testing.assert_allclose(mean_of(own.mask(False).to_event(len(own.batch_shape))), plain)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("base", BASES)
def test_predict_gives_the_mean_of_the_outcome_without_a_warning(base, kind):
    @probml.model
    def survival(censored):
        a = sample("a", dist.LogNormal(0, 1))
        with probml.rows():
            sample("y", kind(BASES[base](a), censored))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = survival().at({"a": np.array(2.0)}).predict({"censored": np.array([0.0, 1.0])}, "y")
    np.testing.assert_allclose(found, BASES[base](2.0).mean, rtol=1e-6)


def test_an_outcome_without_a_mean_has_its_median_and_is_said():
    @probml.model
    def survival(censored):
        a = sample("a", dist.LogNormal(0, 1))
        with probml.rows():
            sample("y", dist.RightCensoredDistribution(dist.Cauchy(a, 1.0), censored))

    with pytest.warns(RuntimeWarning, match="the mean of site 'y' .* is not finite or not known"):
        found = survival().at({"a": np.array(2.0)}).predict({"censored": np.zeros(2)}, "y")
    np.testing.assert_allclose(found, 2.0, atol=0.2)
