"""Steps that are summed over piece by piece: the same statistics, slopes and marginals as of steps
that are all there at once, which test_sequences.py holds to enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.dataset.read import read
from probml.device.load import load
from probml.evidence import e_step
from probml.factors import sequences
from probml.factors.chains import divided
from probml.factors.naturals import naturals
from probml.queries.joint_states import decode
from probml.queries.queries import Belief, answer


@probml.model
def driven(x):
    """A line a state, and symbols: what rows say is made row by row, and of a table."""
    initial = sample("initial", dist.Dirichlet(jnp.ones(2)))
    with plate("state", 2):
        transition = sample("transition", dist.Dirichlet(jnp.ones(2)))
        slope = sample("slope", dist.Normal(0.0, 1.0))
        probs = sample("probs", dist.Dirichlet(jnp.ones(3)))
    with probml.rows():
        z = sample("z", probml.MarkovChain(initial, transition))
        sample("y", dist.Normal(slope[z] * x, 0.5).to_event(1))
        sample("symbol", dist.Categorical(probs[z]).to_event(1))


@probml.model
def moving(x):
    """Moves that differ from step to step."""
    with plate("state", 2):
        slope = sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        mean = sample("mean", dist.Normal(0.0, 1.0))
    with probml.rows():
        moves = jax.nn.softmax(slope * x[..., None, None], -1)
        z = sample("z", probml.MarkovChain(jnp.ones(2) / 2, moves, inhomogeneous=True))
        sample("y", dist.Normal(mean[z], 0.5).to_event(1))


@probml.model
def classes():
    """Two kinds of sequences, and two kinds of steps in each state."""
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    shares = sample("shares", dist.Dirichlet(jnp.ones(2)).expand([2]).to_event(1))
    transition = sample("transition", dist.Dirichlet(jnp.ones(2)).expand([2, 2]).to_event(2))
    mean = sample("mean", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
    with probml.rows():
        c = sample("c", dist.Categorical(weights))
        z = sample("z", probml.MarkovChain(jnp.ones(2) / 2, transition[c]))
        part = sample("part", dist.Categorical(shares[z]).to_event(1))
        sample("y", dist.Normal(mean[z, part], 1.0).to_event(1))


@probml.model
def plain():
    with plate("state", 3):
        transition = sample("transition", dist.Dirichlet(jnp.ones(3)))
        mean = sample("mean", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.ones(3) / 3, transition))
        sample("y", dist.Normal(mean[z], 0.7).to_event(2))


def table(key, *shape):
    return np.random.default_rng(key).dirichlet(np.ones(shape[-1]), shape[:-1])


def numbers(key, *shape):
    return np.random.default_rng(key).normal(size=shape)


def holed(array):
    return np.where(np.random.default_rng(7).random(array.shape) < 0.2, np.nan, array)


# model, data, parameters
CASES = {
    "driven": (driven(), {"x": numbers(1, 3, 8), "y": holed(numbers(2, 3, 8)),
                          "symbol": np.arange(24).reshape(3, 8) % 3},
               {"initial": table(3, 2), "transition": table(4, 2, 2), "slope": numbers(5, 2),
                "probs": table(6, 2, 3)}),
    "moving": (moving(), {"x": numbers(1, 3, 8), "y": [numbers(2, 8), numbers(3, 5), numbers(4, 3)]},
               {"slope": numbers(5, 2, 2), "mean": numbers(6, 2)}),
    "classes": (classes(), {"y": [numbers(1, 8), numbers(2, 5), numbers(3, 3)]},
                {"weights": table(4, 2), "shares": table(5, 2, 2), "transition": table(6, 2, 2, 2),
                 "mean": numbers(7, 2, 2)}),
    # cut into blocks
    "long": (plain(), {"y": numbers(1, 1, 9000, 2)},
             {"transition": 0.1 * table(2, 3, 3) + 0.9 * np.eye(3), "mean": numbers(3, 3, 2)}),
}


@pytest.mark.parametrize("case", list(CASES))
def test_steps_in_pieces_have_the_statistics_slopes_marginals_and_path_of_all_at_once(case, monkeypatch):
    model, data, params = CASES[case]
    held = read(model, data)
    plan = held.plan(("z",))
    rows, known = load(held, plan)
    params = jax.tree.map(jnp.asarray, params)

    def found():
        """Traced anew: how many pieces there are is no part of what programs are known by."""
        @jax.jit
        def every(params):
            expected = e_step.expect(plan, params, known, rows)
            natural = naturals(plan, params, known)
            if "z" in natural:  # averages of logarithms, whose exponentials do not sum to 1
                moved = natural["z"]["transition"]
                natural["z"] = {**natural["z"], "transition": moved - 0.3 * jnp.abs(jnp.sin(
                    jnp.arange(moved.size))).reshape(moved.shape)}
            averaged = e_step.expect(plan, params, known, rows, natural=divided(plan, natural))
            slopes = jax.value_and_grad(
                lambda own: e_step.log_evidence(plan, own, known, rows))(params)
            asked = answer(plan, (("probability", "z"),), False,
                                       Belief(params, None, {}), known, rows)
            best = decode(plan, ("c", "z") if case == "classes" else ("z",), (),
                          Belief(params, None, {}), known, rows)
            return expected[:4], averaged[:4], slopes, asked, best

        steps = rows.first.steps
        return sequences.count_cached_pieces(plan, steps, rows.size, 1), every(params)

    count, whole = found()
    assert count == 1
    monkeypatch.setattr(sequences, "MAX_STORED_EMISSIONS", 0)
    monkeypatch.setattr(sequences, "IN_CACHE", 1 if case != "long" else 2**12)
    count, cut = found()
    assert count > 1
    for right, mine in zip(jax.tree.leaves(whole), jax.tree.leaves(cut), strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-10, atol=1e-10)
