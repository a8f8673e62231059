"""A function without rows() is simulated with the data of its fit, which are floats: counts of all
kinds are drawn from totals that are an argument."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, plate, sample

import probml

TRIALS = np.array([3, 40, 7, 1])
COUNTS = {
    "Binomial": lambda n, p: dist.Binomial(n, p),
    "logits": lambda n, p: dist.Binomial(n, logits=jnp.log(p / (1 - p))),
    "BetaBinomial": lambda n, p: dist.BetaBinomial(9 * p, 9 * (1 - p), n),
    "ZeroInflated": lambda n, p: dist.ZeroInflatedDistribution(dist.Binomial(n, p), gate=0.2),
    "masked": lambda n, p: dist.Binomial(n, p).mask(n > 2),
    "mixed": lambda n, p: dist.MixtureGeneral(dist.Categorical(jnp.array([0.4, 0.6])),
                                              [dist.Binomial(n, p), dist.Binomial(n, p / 2)]),
}


def function(made):
    def counts(n, k):
        p = sample("p", dist.Beta(1.0, 1.0))
        with plate("sites", 4), handlers.mask(mask=n > 0):
            sample("k", made(n, p), obs=k)
    return probml.model(counts)()


@pytest.mark.parametrize("name", COUNTS)
def test_counts_out_of_totals_that_are_floats_are_drawn(name):
    model = function(COUNTS[name])
    fit = model.fit({"n": TRIALS, "k": np.array([1, 20, 3, 1])}, probml.MAP())
    for held in ({}, {"n": TRIALS.astype(float)}):
        drawn = np.stack([fit.simulate(seed=seed, **held)["k"] for seed in range(3)])
        assert drawn.shape == (3, 4) and np.array_equal(drawn, np.round(drawn))
        assert (0 <= drawn).all() and (drawn <= TRIALS).all() and (drawn[:, 1] > 0).any()
