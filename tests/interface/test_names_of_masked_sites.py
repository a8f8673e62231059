"""A site with obs_mask= is two in NumPyro, 'x_observed' and 'x_unobserved'; messages name the one
that the function has."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml

MASK = np.arange(12) % 4 != 0
NUMBERS = np.linspace(0.1, 2.0, 12)
FAMILIES = {
    "Normal": lambda mean: dist.Normal(mean, 1.0),
    "Poisson": lambda mean: dist.Poisson(jnp.exp(mean)),
    "Gamma": lambda mean: dist.Gamma(2.0, jnp.exp(mean)),
    "Bernoulli": lambda mean: dist.Bernoulli(logits=mean),
    "Uniform": lambda mean: dist.Uniform(mean - 9.0, mean + 9.0),
}
COLUMNS = {"numbers": NUMBERS, "counts": np.arange(12) % 3, "negative": -NUMBERS,
           "infinite": np.full(12, np.inf), "text": NUMBERS.astype(str), "large": 1e9 + NUMBERS,
           "NaN": np.where(MASK, NUMBERS, np.nan), "two": np.arange(12) % 2}


@pytest.mark.parametrize("family", FAMILIES)
def test_messages_name_the_site_of_the_function(family):
    def model(x, mask):
        mean = sample("mean", dist.Normal(0, 1))
        with plate("n", len(x)):
            sample("x", FAMILIES[family](mean), obs=x, obs_mask=mask)

    said = {}
    for column, x in COLUMNS.items():
        for ask in (lambda data: probml.model(model)().fit(data, probml.MAP()).status,
                    lambda data: str(probml.model(model)().explain(data)).split("\n\n")[0]):
            try:
                said[column] = ask({"x": x, "mask": MASK})
            except (probml.ModelError, probml.DataError) as error:
                said[column] = str(error)
            assert "observed'" not in said[column], (column, said[column])
    assert any("'x'" in text for text in said.values())


def test_the_advice_about_a_mask_can_be_followed():
    def masked(x, mask):
        mean = sample("mean", dist.Normal(0, 1))
        with plate("n", len(x)):
            sample("x", dist.Poisson(jnp.exp(mean)), obs=x, obs_mask=mask)

    def with_nan(x):
        mean = sample("mean", dist.Normal(0, 1))
        with plate("n", len(x)):
            sample("x", dist.Poisson(jnp.exp(mean)), obs=x)

    x = np.arange(12) % 3
    with pytest.raises(probml.Refusal, match="Omit obs_mask=, and pass 'x' with NaN where it is missing"):
        probml.model(masked)().fit({"x": x, "mask": MASK}, probml.MAP())
    fit = probml.model(with_nan)().fit({"x": np.where(MASK, x, np.nan)}, probml.MAP())
    observed = probml.model(with_nan)().fit({"x": x[MASK]}, probml.MAP())
    np.testing.assert_allclose(fit.params["mean"], observed.params["mean"], rtol=1e-4)
