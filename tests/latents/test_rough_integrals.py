"""A default posterior in which latent variables were integrated out inaccurately is no answer: the
sampler, which draws them, follows."""

import warnings

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.engines.findings import Code


@probml.model
def slopes(g, x):
    a, s = sample("a", dist.Normal(0, 2)), sample("s", dist.HalfNormal(2).expand([2]).to_event(1))
    with plate("groups", 24):
        u = sample("u", dist.Normal(0, s).to_event(1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=a + u[g, 0] + u[g, 1] * x))


def rows():
    random, g = np.random.default_rng(3), np.repeat(np.arange(24), 5)
    x, u = random.normal(size=120), random.normal(size=(24, 2)) * [2.0, 1.5]
    return {"g": g, "x": x, "y": random.random(120) < 1 / (1 + np.exp(0.5 - u[g, 0] - u[g, 1] * x))}


def fitted(engine, many=False):
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        if many:
            patch.setattr("probml.fits.latent_findings.MAX_SAMPLED", 10)
        return slopes().fit(rows(), engine)


def codes(fit):
    return {finding.code for finding in fit.warnings}


def test_a_rough_integral_is_followed_by_the_sampler():
    assert Code.ROUGH_INTEGRAL in codes(fitted(probml.Laplace()))
    fit = fitted(None)
    assert fit.engine.startswith("NUTS") and not codes(fit)
    assert "Laplace() was tried first" in fit.status


@pytest.mark.slow
def test_of_many_data_the_posterior_stays_with_its_warning():
    fit = fitted(None, many=True)
    assert fit.engine.startswith("Laplace") and Code.ROUGH_INTEGRAL in codes(fit)
