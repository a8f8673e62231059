"""Predictions of cells, seen or not: a new value of a seen one, an unseen one given its row."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import sample

import probml

nan = np.nan
LOAD = np.array([1.0, 2.0])


@probml.model
def paired():
    load = sample("load", dist.Normal(0, 1).expand([2]).to_event(1))
    with probml.rows():
        u = sample("u", dist.Normal(0, 1))
        sample("x", dist.Normal(load * u[..., None], 0.3).to_event(1))


@probml.model
def twice():
    level = sample("level", dist.Normal(0.0, 2.0))
    with probml.rows():
        sample("x", dist.Normal(level, 1.0))
        sample("y", dist.Normal(2 * level, 0.5))


@probml.model
def switching():
    mean = sample("mean", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    stay = jnp.array([[0.95, 0.05], [0.05, 0.95]])
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]), stay))
        sample("x", dist.Normal(mean[z], 0.5).to_event(1))


def test_bounds_of_an_unseen_cell_are_given_the_seen_cells_of_its_vector():
    fit = paired().at({"load": LOAD})
    covariance = np.outer(LOAD, LOAD) + 0.09 * np.eye(2)
    slope = covariance[1, 0] / covariance[0, 0]
    wide = 1.645 * np.sqrt([covariance[1, 1] - slope * covariance[1, 0], *np.diag(covariance)])
    x = np.array([[1.5, nan], [nan, nan], [4.0, 4.0]])
    value, lower, upper = fit.predict({"x": x}, "x", interval=0.9)
    np.testing.assert_allclose(value, [[0, 1.5 * slope], [0, 0], [0, 0]], atol=1e-12)
    half = np.array([[wide[1], wide[0]], [wide[1], wide[2]], [wide[1], wide[2]]])
    np.testing.assert_allclose((upper - lower) / 2, half, rtol=0.1)  # of 2000 draws
    np.testing.assert_allclose((upper + lower) / 2, value, atol=0.25)


def test_a_seen_value_tells_nothing_of_a_new_one_in_its_place():
    data = {"x": np.array([1.0, 0.3]), "y": np.array([2.0, 1.5])}
    fit = twice().fit(data, probml.Exact())
    asked, shown = {"x": [1.0]}, {"x": [1.0], "y": [9.0]}
    assert fit.predict(asked, "y") == fit.predict(shown, "y")
    for one, other in zip(fit.predict(asked, "y", interval=0.9),
                          fit.predict(shown, "y", interval=0.9), strict=True):
        assert one == other


def test_bounds_of_an_unseen_step_are_given_the_steps_around_it():
    fit = switching().at({"mean": np.array([-3.0, 3.0])})
    value, lower, upper = fit.predict({"x": np.array([[3.0, nan, 3.1]])}, "x", interval=0.8)
    assert value[0, 1] > 2.9 and lower[0, 1] > 2.0 and upper[0, 1] < 4.0
    assert lower[0, 0] < -3 and upper[0, 0] > 3  # a new first step, given nothing
