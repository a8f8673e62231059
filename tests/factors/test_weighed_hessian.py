"""The Hessian of an M-step in coefficients that numbers of an argument have to themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from numpyro import plate, sample

import probml
from probml.dataset.read import read
from probml.device.load import load
from probml.engines.engine import planned
from probml.evidence.e_step import expect
from probml.models import hierarchical_mixture_of_experts, mixture_of_experts
from probml.plan.sufficient_statistics import columns
from probml.updates import updates as objectives
from probml.updates.updates import Objective


@probml.model
def two_parts(x, k=3):
    """A gate of slopes and intercepts apart, of which the last state is the base."""
    slopes = sample("slopes", dist.Normal(0, 1).expand([x.shape[-1], k - 1]).to_event(2))
    level = sample("level", dist.Normal(0, 1).expand([k - 1]).to_event(1))
    with plate("expert", k):
        mean = sample("mean", dist.Normal(0, 3))
    with probml.rows():
        logits = x @ slopes + level
        full = jnp.concatenate([logits, jnp.zeros((*logits.shape[:-1], 1))], -1)
        z = sample("z", dist.Categorical(logits=full))
        sample("y", dist.Normal(mean[z], 1.0))


def rows_of(n=90):
    random = np.random.default_rng(0)
    x = random.normal(size=(n, 2))
    y = np.where(x[:, 0] > 0, x @ [2.0, 1.0], -1.0) + 0.3 * random.normal(size=n)
    y[::9] = np.nan
    return {"x": x, "y": y}


def found(model, names, start):
    engine = probml.EM()
    data = read(model, rows_of())
    plan = planned(engine.prepare_data(data), engine)
    rows, known = load(data, plan)
    params = {name: jnp.asarray(value, float) for name, value in start.items()}
    c, unpack = ravel_pytree({name: params[name] for name in names})

    def hessian(c):
        expected = expect(plan, params, known, rows)
        return Objective(plan, expected, params, known, rows, True).hessian(unpack, c, names)

    return plan, lambda: np.asarray(jax.jit(lambda c: hessian(c))(c))


@pytest.mark.parametrize("case, double", [("gate", True), ("parts", True), ("parts", False)])
def test_the_hessian_of_a_gate_is_that_of_all_directions(case, double, monkeypatch):
    random = np.random.default_rng(1)
    if case == "gate":
        model, names = mixture_of_experts(k=3), ("gate",)
        start = {"gate": random.normal(size=(3, 2)), "weights": random.normal(size=(3, 3)),
                 "precision": np.ones(3)}
        places = ((0, 2, 4), (1, 3, 5))
    else:
        model, names = two_parts(), ("level", "slopes")
        start = {"slopes": random.normal(size=(2, 2)), "level": random.normal(size=2),
                 "mean": random.normal(size=3)}
        places = ((0, 2, 4), (1, 3, 5))
    with jax.enable_x64(double):
        plan, hessian = found(model, names, start)
        assert columns(plan, "z", names).coefficients == places
        ours = hessian()
        monkeypatch.setattr(objectives, "columns", lambda *_: None)
        theirs = hessian()
    assert ours.dtype == (np.float64 if double else np.float32)
    close = 1e-10 if double else 1e-4
    np.testing.assert_allclose(ours, theirs, rtol=close, atol=close * np.abs(theirs).max())


def test_gates_below_a_choice_are_left_to_all_directions():
    model = hierarchical_mixture_of_experts(branches=(2, 2))
    data = read(model, rows_of())
    plan = planned(probml.EM().prepare_data(data), probml.EM())
    assert columns(plan, "z1", ("gate1",)) is not None
    assert columns(plan, "z2", ("gate2",)) is None  # looks at z1
