"""What a Gaussian chain refuses, in words, before anything is compiled."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from coded import codes

ONE = np.eye(1)


def chain(**changes):
    arguments = {"initial_mean": np.zeros(2), "initial_covariance": np.eye(2),
                 "transition": np.eye(2), "covariance": np.eye(2), "steps": 3, **changes}
    return probml.GaussianChain(**arguments)


CONSTRUCTED = {
    "initial_covariance is not a covariance.*negative eigenvalue -1": {
        "initial_covariance": np.diag([1.0, -1.0])},
    r"covariance at \[1\] is not a covariance.*negative eigenvalue": {
        "covariance": np.stack([np.eye(2), -np.eye(2), np.eye(2)])},
    "is not symmetric": {"covariance": np.array([[1.0, 0.5], [0.0, 1.0]])},
    r"initial_mean has 2 elements, so the shape of transition must end in \(2, 2\)": {"transition": np.eye(3)},
    "transition has the shape .* one transition for each step": {"transition": np.zeros((5, 2, 2))},
    "the number of time steps of a GaussianChain is unknown": {"steps": None},
    r"initial_mean must be a vector": {"initial_mean": 0.0},
}


@pytest.mark.parametrize("words", CONSTRUCTED)
def test_arguments_that_are_none_are_refused(words):
    with pytest.raises(probml.ModelError, match=words):
        chain(**CONSTRUCTED[words])


def test_a_singular_covariance_is_none_of_these():
    chain(covariance=np.diag([1.0, 0.0]), initial_covariance=np.zeros((2, 2)))


@probml.model
def walk(turn: float = 1.0):
    drift = sample("drift", dist.Normal(0.0, 1.0))
    with probml.rows():
        z = sample("z", probml.GaussianChain(jnp.zeros(1), ONE, turn * ONE, drift * ONE))
        sample("y", dist.Normal(z[..., 0], 1.0).to_event(1))


def test_a_negative_variance_at_given_parameters_is_refused():
    with pytest.raises(probml.ModelError, match="site 'z' .*covariance is not a covariance"):
        walk().at({"drift": -1.0})


def test_a_transition_that_explodes_is_refused_by_name_and_length():
    with pytest.raises(probml.ModelError, match="'z' .*transition is unstable: .*1.5.*400 steps"):
        walk(turn=1.5).fit({"y": np.zeros((1, 400))})
    assert np.isfinite(walk(turn=1.5).at({"drift": 1.0}).log_prob({"y": np.zeros((1, 4))}))


def test_a_variance_that_inputs_tell_is_refused_in_its_row_and_step():
    @probml.model
    def told(q):
        noise = sample("noise", dist.LogNormal(0.0, 1.0))
        with probml.rows():
            z = sample("z", probml.GaussianChain(jnp.zeros(1), ONE, ONE, q[..., None, None] * ONE))
            sample("y", dist.Normal(z[..., 0], noise).to_event(1))

    q = np.ones((3, 4))
    q[1, 2] = -0.5
    with pytest.raises(probml.ModelError, match="'z' .*in row 1, at step 2,.*eigenvalue -0.5"):
        told().fit({"q": q, "y": np.zeros((3, 4))})


def test_a_switching_linear_system_is_refused_with_what_to_write():
    @probml.model
    def switching():
        with plate("state", 2):
            drift = sample("drift", dist.LogNormal(0.0, 1.0))
        with probml.rows():
            c = sample("c", probml.MarkovChain(jnp.ones(2) / 2, jnp.full((2, 2), 0.5)))
            z = sample("z", probml.GaussianChain(jnp.zeros(1), ONE, ONE,
                                                 drift[c][..., None, None] * ONE))
            sample("y", dist.Normal(z[..., 0], 1.0).to_event(1))

    with pytest.raises(probml.Refusal, match="'z' .*'c'.*switching linear system"):
        switching().fit({"y": np.zeros((2, 5))}, probml.EM())
    # where the states are seen, nothing switches unseen
    seen = {"c": np.array([[0, 1, 1, 0]]), "y": np.zeros((1, 4))}
    point = {"drift": np.array([0.5, 2.0])}
    cov = 1 + np.minimum.outer(*[np.cumsum([0.0, 2.0, 2.0, 0.5])] * 2) + np.eye(4)
    c_log = 4 * np.log(0.5)
    want = c_log - 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]
    np.testing.assert_allclose(switching().at(point).log_prob(seen), [want], atol=1e-10)


def test_em_refuses_what_enters_where_there_is_no_noise_and_the_posterior_is_by_laplace():
    """Two forms of one AR(2): in the first a coefficient is in the copied number."""

    @probml.model
    def lagged(copied: bool):
        a, b = (sample(name, dist.Normal(0.0, 1.0)) for name in "ab")
        moves = jnp.array([[1.0, 1.0], [1.0, 0.0]])
        moves = moves.at[0, 0].set(a).at[(1, 0) if copied else (0, 1)].set(b)
        with probml.rows():
            z = sample("z", probml.GaussianChain(jnp.zeros(2), jnp.eye(2), moves,
                                                 jnp.diag(jnp.array([1.0, 0.0]))))
            sample("y", dist.Normal(z[..., 0], 0.5).to_event(1))

    data = {"y": np.random.default_rng(0).normal(size=(2, 8))}
    words = "EM cannot estimate 'b' .*element 1 of the transition of 'z'"
    with pytest.raises(probml.Refusal, match=words):
        lagged(copied=True).fit(data, probml.EM())
    copied = lagged(copied=True).fit(data)
    assert copied.engine.startswith("Laplace(") and "weights-pass" in codes(copied)
    assert lagged(copied=False).fit(data, probml.EM()).converged


def test_a_count_below_a_chain_is_refused_by_name():
    @probml.model
    def counts():
        drift = sample("drift", dist.LogNormal(0.0, 1.0))
        with probml.rows():
            z = sample("z", probml.GaussianChain(jnp.zeros(1), ONE, ONE, drift * ONE))
            sample("y", dist.Poisson(jnp.exp(z[..., 0])).to_event(1))

    with pytest.raises(probml.Refusal, match="'z' .*'y'"):
        counts().fit({"y": np.ones((2, 5))}, probml.EM())
