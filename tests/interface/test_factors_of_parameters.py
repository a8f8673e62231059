"""A factor outside plates that concerns parameters alone, as a soft sum to zero, leaves the rows; one
that goes over the data is no prior."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import factor, plate, sample
from numpyro.infer.util import log_density

import probml

RANDOM = np.random.default_rng(4)
DATA = {"group": np.arange(30) % 4, "x": RANDOM.normal(size=30), "y": RANDOM.normal(size=30)}
AT = {"b": jnp.array(0.7), "u": jnp.array([0.1, 0.2, -0.1, -0.3])}
FACTORS = {  # name → (value, whether the plate can be the rows)
    "prior": (lambda b, u, x, y: -3 * (b - 1) ** 2, True),
    "sum to zero": (lambda b, u, x, y: dist.Normal(0.0, 0.01).log_prob(u.sum()), True),
    "differences": (lambda b, u, x, y: dist.Normal(0.0, 0.5).log_prob(u[1:] - u[:-1]), True),
    "sum of inputs": (lambda b, u, x, y: -(b * x).sum(), False),
    "of each input": (lambda b, u, x, y: -b * x, False),
    "an axis more": (lambda b, u, x, y: -b * x[:, None], False),
    "of one row": (lambda b, u, x, y: -b * x[0], False),
    "of outcomes": (lambda b, u, x, y: -((b - y.mean()) ** 2), False),
    "number of rows": (lambda b, u, x, y: -b * len(x), False),
    "as many as rows": (lambda b, u, x, y: -b * jnp.ones(len(x)), False),
}


@pytest.mark.parametrize("name", FACTORS)
def test_a_factor_outside_plates_is_a_prior_or_there_are_no_rows(name):
    value, rows = FACTORS[name]

    def effects(group, x, y=None):
        b = sample("b", dist.Normal(0.0, 1.0))
        with plate("groups", 4):
            u = sample("u", dist.Normal(0.0, 1.0))
        with plate("n", len(x)):
            y = sample("y", dist.Normal(b * x + u[group], 1.0), obs=y)
        factor("more", value(b, u, x, y))

    model = probml.model(effects)()
    wanted = log_density(effects, (), {k: jnp.asarray(v) for k, v in DATA.items()}, AT)[0]
    np.testing.assert_allclose(model.log_density(DATA, AT), wanted, rtol=1e-5)
    assert ("the rows of the data are" in str(model.explain(DATA))) == rows


@pytest.mark.parametrize("name", ["of each input", "as many as rows", "sum of inputs"])
def test_a_factor_outside_rows_that_concerns_rows_is_refused(name):
    @probml.model
    def line(x):
        b = sample("b", dist.Normal(0.0, 1.0))
        factor("more", FACTORS[name][0](b, None, x, None))
        with probml.rows():
            sample("y", dist.Normal(b * x, 1.0))

    with pytest.raises(probml.ModelError, match="'more'"):
        line().log_density({"x": DATA["x"], "y": DATA["y"]}, {"b": 0.7})
