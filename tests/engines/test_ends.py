"""A mode at an end of a parameter's support is told, and one that is near an end is not."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from coded import about

MAP = probml.MAP()


@probml.model
def chance(a: float):
    """A chance and a rate whose prior ends far away."""
    p, rate = sample("p", dist.Beta(a, a)), sample("rate", dist.Uniform(0.0, 1e6))
    with probml.rows():
        sample("y", dist.Bernoulli(p))
        sample("count", dist.Poisson(0.7 * rate))


def test_chances_that_end_at_one_are_told_and_held_ones_and_small_ones_are_not():
    data = {"y": np.ones(6, int), "count": np.array([2, 4, 3, 5, 3, 4])}
    fit = chance(1.0).fit(data, MAP)
    assert fit.params["p"] == pytest.approx(1.0) and fit.converged
    assert about(fit, "boundary") == ["p"] and "possible values (1)" in fit.status
    assert "boundary" not in chance(2.0).fit(data, MAP).status  # (6 + 1) / (6 + 2)
    none = chance(2.0).fit({**data, "count": np.zeros(6, int)}, MAP)
    assert about(none, "boundary") == ["rate"] and "possible values (0)" in none.status


@probml.model
def softly(a: float):
    """Shares that a line looks at, and a rate without an upper end."""
    w = sample("w", dist.Dirichlet(a * jnp.ones(3)))
    rate = sample("rate", dist.Exponential(1.0))
    with probml.rows():
        sample("y", dist.Normal(w @ jnp.array([0.0, 1.0, 2.0]) - rate, 0.1))


def test_shares_at_a_corner_and_rates_at_zero_are_told_by_the_number():
    high = softly(1.0).fit({"y": np.full(4, 2.5)}, MAP)
    np.testing.assert_allclose(high.params["w"], [0, 0, 1], atol=1e-3)
    assert about(high, "boundary") == ["w", "rate"] and "(0, in 2 of 3 entries)" in high.status
    assert "'w'" not in softly(2.0).fit({"y": np.full(4, 2.5)}, MAP).status


def test_hidden_classes_without_a_case_are_told_of_em():
    @probml.model
    def classes():
        w = sample("w", dist.Dirichlet(jnp.ones(2)))
        p = sample("p", dist.Beta(jnp.ones((2, 3)), 1.0).to_event(2))
        with probml.rows():
            z = sample("z", dist.Categorical(w))
            sample("x", dist.Bernoulli(p[z]).to_event(1))

    x = np.repeat([[0, 0, 1], [1, 1, 0], [0, 0, 0]], [9, 12, 3], 0)
    fit = classes().fit({"x": x}, probml.EM(restarts=4))
    assert about(fit, "boundary") == ["p"] and "possible values (0 and 1" in fit.status


def test_ends_that_other_parameters_move_and_those_of_a_loop_are_told():
    @probml.model
    def shares():
        with plate("times", 3):
            phi = sample("phi", dist.Uniform(jnp.zeros(3), jnp.array([1.0, 2.0, 1.0])))
        rest = sample("rest", dist.Uniform(0.0, 1.0 - 0.5 * phi[2]))
        with probml.rows():
            sample("y", dist.Normal(jnp.stack([*phi, rest]), 0.1).to_event(1))

    fit = shares().fit({"y": np.tile([1.5, 1.5, 0.3, 2.0], (4, 1))}, MAP)
    # the third gives way to what it bounds
    assert about(fit, "boundary") == ["phi", "rest"]
    assert "possible values (0 and 1, in 2 of 3 entries)" in fit.status and "possible values (1)" in fit.status


@pytest.mark.parametrize("double", [False, True])
def test_a_width_that_was_carried_to_zero_is_taken_from_there_to_what_is_higher(double):
    """Between 0 and infinity a Cauchy of scale 0 about a place below 0 has tails that no longer know the scale."""
    @probml.model
    def cut():
        loc, scale = sample("loc", dist.Normal(0.0, 50.0)), sample("scale", dist.HalfNormal(5.0))
        with probml.rows():
            sample("x", dist.TruncatedDistribution(dist.Cauchy(loc, scale), low=0.0))

    x = np.random.default_rng(0).exponential(0.5, size=200)
    with jax.enable_x64(double):
        fit = cut().fit({"x": x}, probml.MAP())
    assert fit.converged and "boundary" not in fit.status
    np.testing.assert_allclose([fit.params["loc"], fit.params["scale"]], [0.2235, 0.3420], atol=1e-4)
    assert fit.history[-1] > -107.061
