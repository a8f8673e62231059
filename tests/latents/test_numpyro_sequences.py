"""NumPyro's random walks and state spaces inside rows: integrated out as latent vectors, as the
joint normal of all steps has it."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from scipy import stats

import probml

STEPS = 6
TURN = np.array([[0.9, 0.3], [-0.2, 0.7]])
SPREAD = np.array([[0.5, 0.0], [0.2, 0.4]])
START = np.array([1.0, -2.0])


@probml.model
def walk():
    scale, noise = sample("scale", dist.HalfNormal(2.0)), sample("noise", dist.HalfNormal(2.0))
    with probml.rows():
        z = sample("z", dist.GaussianRandomWalk(scale, STEPS))
        sample("y", dist.Normal(2.0 + 0.5 * z, noise).to_event(1))


@probml.model
def space():
    noise = sample("noise", dist.HalfNormal(2.0))
    with probml.rows():
        z = sample("z", dist.GaussianStateSpace(STEPS, jnp.asarray(TURN),
                                                scale_tril=jnp.asarray(SPREAD),
                                                initial_value=jnp.asarray(START)))
        sample("y", dist.Normal(z[..., 0] - z[..., 1], noise).to_event(1))


def series(seed=0):
    y = np.random.default_rng(seed).normal(2.0, 1.0, (2, STEPS))
    y[0, 2] = y[1, 4] = np.nan
    return y


def of_walk(scale):
    """Mean and covariance of the states of a walk."""
    steps = np.arange(1, STEPS + 1)
    return np.zeros(STEPS), scale**2 * np.minimum.outer(steps, steps), 0.5 * np.eye(STEPS), 2.0


def of_space():
    mean, covariance = np.zeros(2 * STEPS), np.zeros((2 * STEPS, 2 * STEPS))
    for t in range(STEPS):
        mean[2 * t : 2 * t + 2] = np.linalg.matrix_power(TURN, t + 1) @ START
        for s in range(STEPS):
            for k in range(min(s, t) + 1):
                covariance[2 * t : 2 * t + 2, 2 * s : 2 * s + 2] += (
                    np.linalg.matrix_power(TURN, t - k) @ SPREAD @ SPREAD.T
                    @ np.linalg.matrix_power(TURN, s - k).T)
    return mean, covariance, np.kron(np.eye(STEPS), [[1.0, -1.0]]), 0.0


@pytest.mark.parametrize("which", ["walk", "space"])
def test_states_are_integrated_out(which):
    params = {"noise": 0.6, **({"scale": 0.8} if which == "walk" else {})}
    mean, covariance, slope, level = of_walk(0.8) if which == "walk" else of_space()
    model, y = walk() if which == "walk" else space(), series()
    want, states = 0.0, []
    for row in y:
        seen = ~np.isnan(row)
        a = slope[seen]
        inside = a @ covariance @ a.T + 0.36 * np.eye(seen.sum())
        gap = row[seen] - level - a @ mean
        want += stats.multivariate_normal(np.zeros(seen.sum()), inside).logpdf(gap)
        states.append(mean + covariance @ a.T @ np.linalg.solve(inside, gap))
    prior = sum(stats.halfnorm(scale=2.0).logpdf(value) for value in params.values())
    assert model.log_density({"y": y}, params) == pytest.approx(want + prior, abs=1e-9)
    fit = model.at(params)
    found = np.asarray(fit.impute({"y": y})["z"])
    assert found.shape == ((2, STEPS) if which == "walk" else (2, STEPS, 2))
    np.testing.assert_allclose(found.reshape(2, -1), states, atol=1e-8)


def test_a_walks_spread_is_learnt_and_its_paths_are_drawn():
    rng = np.random.default_rng(1)
    z = np.cumsum(rng.normal(size=(40, STEPS)), 1)
    fit = walk().fit({"y": 2 + 0.5 * z + 0.3 * rng.normal(size=z.shape)}, probml.MAP(prior=False))
    assert fit.params["scale"] == pytest.approx(1.0, abs=0.25)
    drawn = fit.simulate(3, seed=0)
    assert drawn["z"].shape == drawn["y"].shape == (3, STEPS)
    assert walk().simulate(3, seed=0)["z"].shape == (3, STEPS)
