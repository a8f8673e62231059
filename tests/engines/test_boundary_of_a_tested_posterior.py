"""A mode at the boundary of its support says nothing of a posterior that was tested."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml

CHANCE = np.array([[0.02, 0.05, 0.1, 0.01], [0.9, 0.8, 0.95, 0.85]])


@probml.model
def diagnoses():
    share = sample("share", dist.Beta(2.0, 2.0))
    low = sample("low", dist.Beta(1.0, 9.0).expand([4]).to_event(1))
    high = sample("high", dist.Beta(8.0, 2.0).expand([4]).to_event(1))
    with probml.rows():
        sick = sample("sick", dist.Bernoulli(share))
        sample("y", dist.Bernoulli(jnp.where(sick[..., None] == 1, high, low)).to_event(1))


@pytest.mark.filterwarnings("ignore::probml.ReliabilityWarning")
def test_the_posterior_about_a_mode_at_a_boundary_has_no_warning():
    random = np.random.default_rng(1)
    sick = (random.random(60) < 0.4).astype(int)
    y = (random.random((60, 4)) < CHANCE[sick]).astype(int)
    point, fit = (diagnoses().fit({"y": y}, engine) for engine in (probml.EM(), None))
    assert [warning.code.value for warning in point.warnings] == ["boundary"]
    assert point.params["low"].min() < 1e-6
    assert fit.status.startswith("Posterior") and not fit.warnings
    # with the states known, as nearly they are here
    mean = (1 + y[sick == 0].sum(0)) / (10 + (sick == 0).sum())
    np.testing.assert_allclose(fit.params["low"], mean, atol=0.03)
