"""Climbs in coordinates of the curvature of each number of an argument: blocks of the Hessian, and
the same end as any other climb."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from numpyro import sample

import probml
from probml.dataset.read import read
from probml.device.load import load
from probml.factors.affine_predictors import curvatures
from probml.models import softmax_regression
from probml.numerics.compiling import jit
from probml.plan.sufficient_statistics import blocks_of_hessian

RANDOM = np.random.default_rng(2)
N, D, K = 150, 49, 3
X = RANDOM.normal(size=(N, D)) * np.geomspace(0.03, 30.0, D)
Y = (X @ RANDOM.normal(size=(D, K)) + RANDOM.gumbel(size=(N, K))).argmax(1)


@probml.model
def counted(x, k):
    """Counts of k kinds, each with weights of its own."""
    beta = sample("beta", dist.Normal(0, 1).expand([x.shape[-1], k]).to_event(2))
    with probml.rows():
        sample("y", dist.Poisson(jnp.exp(x @ beta)).to_event(1))


@probml.model
def mixed(x, k):
    """What adds up over the kinds belongs to none of them."""
    beta = sample("beta", dist.Normal(0, 1).expand([x.shape[-1], k]).to_event(2))
    with probml.rows():
        sample("y", dist.Categorical(logits=jnp.cumsum(x @ beta, -1)))


def plan_of(model, data):
    return read(model, data).plan()


def softmax():
    return softmax_regression(states=K)


def test_the_numbers_of_a_softmax_have_coefficients_of_their_own_and_sums_of_them_do_not():
    places = np.array(blocks_of_hessian(plan_of(softmax(), {"x": X, "y": Y})).coefficients)
    assert (places == np.arange(K * D + K).reshape(D + 1, K).T).all()  # intercepts stand last
    assert blocks_of_hessian(plan_of(mixed(k=K), {"x": X, "y": Y})) is None
    counts = {"x": X, "y": RANDOM.poisson(1.0, (N, K))}
    assert blocks_of_hessian(plan_of(counted(k=K), counts)) is None  # not affine


def test_blocks_are_those_of_the_hessian():
    data = {"x": X[:, :4], "y": Y}
    held = read(softmax(), data)
    plan = held.plan()
    rows, known = load(held, plan, np.arange(N) % 3.0)
    point = {"beta": jnp.asarray(RANDOM.normal(size=(4, K))), "intercept": jnp.zeros(K)}
    c, back = ravel_pytree(point)
    places = np.array(blocks_of_hessian(plan).coefficients)

    def loss(c):
        logits = X[:, :4] @ back(c)["beta"] + back(c)["intercept"]
        return -((np.arange(N) % 3.0) * jax.nn.log_softmax(logits)[np.arange(N), Y]).sum()

    @jit
    def both(c):
        return (rows.total(lambda chunk: curvatures(plan, back, c, places, known, chunk)),
                jax.hessian(loss)(c))

    blocks, whole = both(c)
    np.testing.assert_allclose(blocks, np.asarray(whole)[places[:, :, None], places[:, None, :]],
                               rtol=1e-10, atol=1e-10)


def test_the_climb_ends_where_lbfgs_does_and_sooner(monkeypatch):
    data, model, engine = {"x": X, "y": Y}, softmax(), probml.MAP(tolerance=1e-13)
    found = model.fit(data, engine)
    monkeypatch.setattr("probml.engines.map.has_coefficient_blocks", lambda problem: False)
    judged = model.fit(data, engine)
    assert found.converged
    assert found.history[-1] >= judged.history[-1] - 1e-9
    np.testing.assert_allclose(found.history[-1], judged.history[-1], rtol=1e-6)

    # where rounding stops it on the way, what looks at its end takes it up in few steps of another
    # kind: how soon either is there is a question to the climbs alone
    monkeypatch.setattr("probml.engines.optimization.maximization._is_worth_refining", lambda *_: False)
    plain = model.fit(data, engine)

    def arrival(history):
        there = np.flatnonzero(history >= found.history[-1] - 1e-3)
        return there[0] if len(there) else np.inf

    assert 2 * arrival(found.history) < arrival(plain.history)
