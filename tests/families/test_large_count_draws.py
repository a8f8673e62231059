"""Draws of large counts in single precision have the mean, the width and the tails of their distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from numpyro import sample

import probml

DRAWS = 20000


def gamma_poisson_sd(mean, shape):
    return np.sqrt(mean + mean**2 / shape)


# a mean → a distribution with it, and its standard deviation
FAMILIES = {
    "poisson": (lambda m: dist.Poisson(m), np.sqrt),
    "negative binomial": (lambda m: dist.NegativeBinomial2(m, 3 * m),
                          lambda m: gamma_poisson_sd(m, 3 * m)),
    "binomial": (lambda m: dist.Binomial(jnp.round(3 * m).astype(int), 1 / 3),
                 lambda m: np.sqrt(m * 2 / 3)),
    "binomial of logits": (lambda m: dist.Binomial(jnp.round(3 * m).astype(int),
                                                   logits=-jnp.log(2.0)),
                           lambda m: np.sqrt(m * 2 / 3)),
    "beta-binomial": (lambda m: dist.BetaBinomial(m, 2 * m, jnp.round(3 * m).astype(int)),
                      lambda m: np.sqrt(m * 2 / 3 * (6 * m) / (3 * m + 1))),
    "zero-inflated": (lambda m: dist.ZeroInflatedPoisson(0.0, m), np.sqrt),
    "mixture": (lambda m: dist.MixtureSameFamily(dist.Categorical(jnp.array([0.5, 0.5])),
                                                 dist.Poisson(m[..., None] * jnp.ones(2))), np.sqrt),
}


@pytest.mark.parametrize("mean", [3.0, 3e4, 1.5e5, 2e7, 3e8])
@pytest.mark.parametrize("family", [name if name in ("poisson", "binomial") else pytest.param(
    name, marks=pytest.mark.slow) for name in FAMILIES])
def test_draws_of_counts_are_as_wide_as_they_should_be(family, mean):
    make, spread = FAMILIES[family]

    @probml.model
    def counts(m):
        with probml.rows():
            sample("n", make(m))

    with jax.enable_x64(False):
        drawn = counts().simulate(m=np.full(DRAWS, mean), seed=1)["n"]
    assert drawn.dtype.kind == "i"
    z = (drawn.astype(float) - mean) / spread(mean)
    assert abs(z.mean()) < 5 / np.sqrt(DRAWS)
    assert abs(z.std() - 1) < 0.03
    if mean > 100:
        np.testing.assert_allclose(np.quantile(z, [0.01, 0.05, 0.95, 0.99]),
                                   st.norm.ppf([0.01, 0.05, 0.95, 0.99]), atol=0.12)
