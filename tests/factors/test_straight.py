"""Second derivatives of rows in coefficients, by way of the one number that these enter."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from probml.dataset.read import read
from probml.device.load import load
from probml.evidence import density

RANDOM = np.random.default_rng(0)
N = 40
X = RANDOM.normal(size=(N, 2))
CODES = RANDOM.integers(3, size=N)
COUNTS = np.where(RANDOM.random((N, 2)) < 0.2, np.nan, RANDOM.poisson(2.0, (N, 2)))


@probml.model
def softmax(x):
    w = sample("w", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    with probml.rows():
        sample("y", dist.Categorical(logits=x @ w))


@probml.model
def counts(x):
    w = sample("w", dist.Normal(0, 1).expand([2, 2]).to_event(2))
    b = sample("b", dist.Normal(0, 1))
    level = sample("level", dist.Normal(0, 1))
    with probml.rows():
        sample("y", dist.Poisson(jnp.exp(x @ w + b)).to_event(1))
        sample("z", dist.Normal(level, 1.0))


@probml.model
def shifted(x):
    w = sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    low = sample("low", dist.HalfNormal(1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ w - low))


@probml.model
def both(x):
    w = sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    level = sample("level", dist.Normal(0, 1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ w))
        sample("z", dist.Normal(level, 1.0))


CASES = {"several numbers a row": (softmax(), {"x": X, "y": CODES}, False),
         "beside a pooled site": (both(), {"x": X, "y": CODES > 0, "z": X[:, 0]}, True),
         "counts through a link": (counts(), {"x": X, "y": COUNTS, "z": X[:, 0]}, False),
         "a bounded coefficient": (shifted(), {"x": X, "y": CODES > 0}, False)}


@pytest.mark.parametrize("case", CASES)
def test_the_hessian_of_a_climb_is_that_of_the_density(case):
    model, data, few = CASES[case]
    held = read(model, data)
    plan = held.plan()
    rows, known = load(held, plan, RANDOM.integers(3, size=N).astype(float))
    assert density._has_affine_predictors(plan, known) == few
    u = jnp.asarray(RANDOM.normal(size=density.unbounded_size(plan)))

    def point(u):
        return density.from_unbounded(plan, u, known)

    def both(u):
        return density.value_and_gradient(plan, point, u, known, rows, scale=2.0)

    @jax.jit
    def all_ways(u):
        found = density.value_gradient_hessian(plan, point, u, known, rows, scale=2.0)
        return found, (*both(u), jax.jacfwd(lambda u: both(u)[1])(u))

    for one, other in zip(*all_ways(u), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-11)
