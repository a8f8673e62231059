"""A function without rows that has a loop of JAX's is compiled once, and drawn from with any seed."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import deterministic, plate, sample
from numpyro.contrib.control_flow import scan

import probml
from compilations import counted

X = np.linspace(0, 1, 9)


def scanned(x, y=None):
    b, s = sample("b", dist.Normal(0, 1)), sample("s", dist.HalfNormal(1))

    def step(level, at):
        level = sample("level", dist.Normal(b * level + at, s))
        return level, level

    levels = scan(step, 0.0, x)[1]
    with plate("n", len(x)):
        sample("y", dist.Normal(levels, 1), obs=y)


def looped(x, y=None):
    b = sample("b", dist.Normal(0, 1))
    total = jax.lax.fori_loop(0, len(x), lambda i, sum_: sum_ + b * jnp.asarray(x)[i], 0.0)
    deterministic("twice", 2 * total)
    sample("y", dist.MultivariateNormal(total * jnp.ones(len(x)), jnp.eye(len(x))), obs=y)


def branching(x, y=None):
    b = sample("b", dist.Normal(0, 1))
    total = jax.lax.fori_loop(0, 3, lambda i, sum_: sum_ + b, 0.0)
    mean = total if float(b) > 0 else -total
    sample("y", dist.MultivariateNormal(mean * jnp.ones(len(x)), jnp.eye(len(x))), obs=y)


@pytest.mark.parametrize("function", [scanned, looped])
def test_a_second_simulation_compiles_nothing(function):
    model = probml.model(function)()
    first = model.simulate(seed=0, x=X)
    with counted() as found:
        again = [model.simulate(seed=seed, x=X) for seed in range(4)]
    assert not found
    assert list(first) == list(again[0]) and first["b"] != again[1]["b"]
    for name, value in first.items():
        np.testing.assert_array_equal(value, again[0][name])
    other = model.simulate(seed=0, x=2 * X)  # other arguments are another program
    assert other["b"] == first["b"] and not np.allclose(other["y"], first["y"])


def test_a_function_that_needs_numbers_runs_operation_by_operation():
    model = probml.model(branching)()
    drawn = [model.simulate(seed=seed, x=X) for seed in range(20)]
    assert {float(one["b"]) > 0 for one in drawn} == {True, False}
    assert np.mean([one["y"].mean() for one in drawn]) > 0
