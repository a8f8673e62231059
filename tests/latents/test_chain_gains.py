"""What an M-step gains of chains: the difference of two expectations, with digits of its own, so
that levels far from 0 and small drifts are learnt in float32 as in double."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from probml.latents import linear_chain
from probml.latents.linear_chain import Moves
from probml.numerics.lapack import log_det, rank, root, standardised

RANDOM = np.random.default_rng(0)
D, N = 3, 7


def some_moves(singular):
    slope, offset = RANDOM.normal(size=(D, D)), RANDOM.normal(size=D)
    half = RANDOM.normal(size=(D, D))
    if singular:  # the last number is copied: the same in every case
        half[-1], slope[-1], offset[-1] = 0.0, np.eye(D)[0], 0.0
    return Moves(jnp.asarray(slope), jnp.asarray(offset), jnp.asarray(half @ half.T))


def log_moves(at, before, after):
    """Σ log N(after; A before + b, Q), on the range of Q."""
    left = after - before @ at.slope.T - at.offset
    lower = root(at.covariance)
    square = jnp.sum(standardised(lower, left.T) ** 2)
    return -0.5 * square - len(left) * (log_det(lower) + 0.5 * rank(lower) * np.log(2 * np.pi))


@pytest.mark.parametrize("singular", [False, True])
def test_a_gain_is_the_difference_of_the_log_densities_of_the_moves(singular):
    old, new = some_moves(singular), some_moves(singular)
    before, state = jnp.asarray(RANDOM.normal(size=(N, D))), jnp.asarray(RANDOM.normal(size=D))
    noise = jnp.asarray(RANDOM.normal(size=(N, D))) @ root(old.covariance).T
    after = before @ old.slope.T + old.offset + noise
    u = jnp.concatenate([jnp.ones((N, 1)), before - state, noise], 1)
    want = log_moves(new, before, after) - log_moves(old, before, after)
    found = linear_chain.moves_gain(new, old, state, u.T @ u)
    np.testing.assert_allclose(found, want, rtol=1e-9)
    assert linear_chain.moves_gain(old, old, state, u.T @ u) == 0.0


def test_a_small_gain_has_its_digits_in_single():
    """Of a spread that is off by a thousandth, the gain is a millionth of the sum it is taken
    of."""

    def gain(dtype):
        old = Moves(jnp.eye(1, dtype=dtype), jnp.zeros(1, dtype), 2.0 * jnp.eye(1, dtype=dtype))
        new = old._replace(covariance=old.covariance * (1 + 2**-10))
        second = jnp.diag(jnp.asarray([1000.0, 50.0, 2002.0], dtype))
        return float(linear_chain.moves_gain(new, old, jnp.zeros(1, dtype), second))

    assert gain(jnp.float64) < 1e-3
    np.testing.assert_allclose(gain(jnp.float32), gain(jnp.float64), rtol=1e-2)


@probml.model
def walk(centre: float):
    drift, noise = sample("drift", dist.HalfNormal(10.0)), sample("noise", dist.HalfNormal(10.0))
    with probml.rows():
        z = sample("z", probml.GaussianChain(jnp.full(1, centre), 100 * jnp.eye(1), jnp.eye(1),
                                             drift**2 * jnp.eye(1)))
        sample("y", dist.Normal(z[..., 0], noise).to_event(1))


@pytest.fixture(scope="module")
def steps():
    random = np.random.default_rng(0)
    drift = 0.1 * random.normal(size=(1, 150))
    # of so few digits that an offset of a million leaves them all
    return np.round(np.cumsum(drift, 1) + random.normal(size=(1, 150)), 3)


@pytest.fixture(scope="module")
def wanted(steps):
    return walk(centre=0.0).fit({"y": steps}, probml.EM(prior=False, tolerance=1e-12))


@pytest.mark.parametrize(("offset", "double"), [
    pytest.param(1e3, True, marks=pytest.mark.slow), (1e3, False), (1e6, True),
    pytest.param(1e6, False, marks=pytest.mark.slow)])  # in single it is asked in double
def test_how_far_a_level_lies_does_not_matter(steps, wanted, offset, double):
    with jax.enable_x64(double):
        fit = walk(centre=offset).fit({"y": steps + offset}, probml.EM(prior=False))
    assert fit.converged
    np.testing.assert_allclose(fit.history[-1], wanted.history[-1], atol=3e-4)
    for name in ("drift", "noise"):
        np.testing.assert_allclose(fit.params[name], wanted.params[name], rtol=2e-2)
