"""Nodes that all rows share: the integral of a fine grid where they lie near enough, and each row's
own nodes where they do not."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from scipy import stats
from scipy.special import log_expit, logsumexp

import probml
from probml.dataset import read
from probml.device import load
from probml.evidence.e_step import log_evidence
from probml.factors.shared_nodes import message

nan = np.nan


@probml.model
def answers(items: int):
    a = sample("a", dist.LogNormal(0.0, 1.0).expand([items]).to_event(1))
    b = sample("b", dist.Normal(0.0, 3.0).expand([items]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Normal(0.5, 1.0))
        sample("y", dist.Bernoulli(logits=a * z[..., None] + b).to_event(1))


RNG = np.random.default_rng(0)
Y = (RNG.random((6, 30)) < 0.6).astype(float)
Y[1, :20], Y[4] = nan, nan
POINT = {"a": RNG.uniform(0.5, 1.5, 30), "b": RNG.normal(size=30)}


def closed(p: dict) -> np.ndarray:
    """log p of each row on a fine grid."""
    z = np.linspace(-9.0, 10.0, 40_001)
    eta = p["a"] * z[:, None] + p["b"]
    logs = np.array([np.where(np.isnan(row), 0.0, log_expit(np.where(row == 1, eta, -eta))).sum(1)
                     for row in Y]) + stats.norm(0.5, 1.0).logpdf(z)
    return logsumexp(logs, axis=1) + np.log(z[1] - z[0])


@pytest.fixture(scope="module")
def case():
    held = read.read(answers(items=30), {"y": Y})
    plan = held.plan()
    rows, known = load.load(held, plan)

    @jax.jit
    def found(p):
        said = message(plan, p, known, rows.first, plan.latents[0])
        assert said is not None
        total, slope = jax.value_and_grad(lambda p: log_evidence(plan, p, known, rows))(p)
        return *said, total, slope

    return lambda p: found({name: jnp.asarray(value) for name, value in p.items()})


@pytest.mark.parametrize(("steep", "near"), [(1.0, True), (6.0, False)])
def test_shared_nodes_are_taken_where_they_lie_near_enough(case, steep, near):
    p = {"a": steep * POINT["a"], "b": POINT["b"]}
    shared, sound, total, slope = case(p)
    want = closed(p)
    assert bool(sound) is near
    if near:
        np.testing.assert_allclose(shared[: len(Y)], want, atol=1e-9)
    else:
        assert np.abs(shared[: len(Y)] - want).max() > 1e-3  # and so they are not taken
    assert float(total) == pytest.approx(want.sum(), abs=1e-8 if near else 1e-3)
    for name, i in (("a", 3), ("b", 7)) if near else ():
        ends = []
        for step in (-1e-5, 1e-5):
            moved = {**p, name: np.array(p[name])}
            moved[name][i] += step
            ends.append(closed(moved).sum())
        assert float(slope[name][i]) == pytest.approx((ends[1] - ends[0]) / 2e-5, abs=1e-5)


def test_rows_that_differ_in_more_have_nodes_of_their_own():
    @probml.model
    def shifted(x):
        b = sample("b", dist.Normal(0.0, 3.0))
        with probml.rows():
            z = sample("z", dist.Normal(0.0, 1.0))
            sample("y", dist.Bernoulli(logits=z + b * x))

    for model, data in ((shifted(), {"x": np.arange(3.0), "y": np.array([0.0, 1.0, 1.0])}),
                        (answers(items=2), {"y": Y[:3, 28:], "z": np.array([0.1, nan, nan])})):
        held = read.read(model, data)
        plan = held.plan()
        rows, known = load.load(held, plan)
        assert message(plan, {}, known, rows.first, plan.latents[0]) is None
