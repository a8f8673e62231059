"""What a chain is not: every refusal names what, where, expected and got, before anything is
compiled; and MarkovChain under NumPyro."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, plate, sample

import probml
from probml.structure.trace import trace

HALF, MOVES = jnp.ones(2) / 2, jnp.array([[0.9, 0.1], [0.2, 0.8]])


def emitting(emission):
    @probml.model
    def model():
        mean = sample("mean", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with probml.rows():
            z = sample("z", probml.MarkovChain(HALF, MOVES))
            sample("y", emission(mean, z))

    return model()


@jax.jit
def held(x):
    return x + np.arange(x.shape[-1]) % 3


def smoothed(x):
    return jax.lax.scan(lambda c, v: (0.5 * c + v, c), jnp.zeros(x.shape[:-1]),
                        jnp.moveaxis(x, -1, 0))[1].T


LOOKS = {
    "on other steps, by the JAX operation 'cumsum'": lambda mean, z: dist.Normal(jnp.cumsum(mean[z], -1),
                                                                   1.0).to_event(1),
    "on other steps": lambda mean, z: dist.Normal(jnp.roll(mean[z], 1, -1), 1.0).to_event(1),
    "step number": lambda mean, z: dist.Normal(mean[z] + jnp.arange(z.shape[-1]),
                                                      1.0).to_event(1),
    "step number, held by a call": lambda mean, z: dist.Normal(held(mean[z]), 1.0).to_event(
        1
    ),
    "on the number of steps": lambda mean, z: dist.Normal(mean[z] / z.shape[-1], 1.0).to_event(
        1
    ),
    "on other steps, by the JAX operation 'fft'": lambda mean, z: dist.Normal(jnp.abs(jnp.fft.fft(mean[z])),
                                                                1.0).to_event(1),
    "on other steps, by the JAX operation 'scan'": lambda mean, z: dist.Normal(smoothed(mean[z]), 1.0).to_event(
        1
    ),
    "one value per step too": lambda mean, z: dist.Normal(mean[z].mean(-1), 1.0),
    r"\.to_event\(1\)": lambda mean, z: dist.Normal(mean[z], 1.0),
    "first event axis": lambda mean, z: dist.Normal(jnp.stack([mean[z], mean[z]], -2),
                                                    1.0).to_event(2),
}


@pytest.mark.parametrize("words", LOOKS)
def test_a_site_looks_at_its_own_step_alone(words):
    with pytest.raises(probml.ModelError, match=words.split(",")[0]) as caught:
        trace(emitting(LOOKS[words]), {})
    assert "'y'" in str(caught.value)


@probml.model
def steady(steps: int):
    with probml.rows():
        z = sample("z", probml.MarkovChain(HALF, MOVES, steps))
        sample("roll", dist.Categorical(jnp.array([[0.5, 0.5], [0.1, 0.9]])[z]).to_event(1))


@probml.model
def drifting():
    level = sample("level", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    with probml.rows():
        z = sample("z", probml.MarkovChain(HALF, MOVES, steps=4))
        sample("y", dist.Normal(z + level, 1.0).to_event(1))


@probml.model
def loose():
    with probml.rows():
        z = sample("z", probml.MarkovChain(HALF, MOVES))
        sample("y", dist.Normal(jnp.array([0.0, 3.0])[z], 1.0).to_event(1))


@probml.model
def outside():
    z = sample("z", probml.MarkovChain(HALF, MOVES, 4))
    with probml.rows():
        sample("y", dist.Normal(jnp.array([0.0, 3.0])[z], 1.0).to_event(1))


@probml.model
def plated():
    with probml.rows(), plate("many", 3):
        z = sample("z", probml.MarkovChain(HALF, MOVES))
        sample("y", dist.Normal(jnp.array([0.0, 3.0])[z], 1.0).to_event(1))


@probml.model
def unlike():
    with probml.rows():
        sample("a", probml.MarkovChain(HALF, MOVES, 3))
        sample("b", probml.MarkovChain(HALF, MOVES, 4))


@probml.model
def lopsided():
    with probml.rows():
        z = sample("z", probml.MarkovChain(HALF, np.array([[0.9, 0.2], [0.5, 0.5]]), 3))
        sample("y", dist.Normal(jnp.array([0.0, 3.0])[z], 1.0).to_event(1))


BAD = {
    "integer from 0 to 1": lambda: steady(3).at({}).log_prob({"roll": [[1.0, 9.0, 0.0]]}),
    r"'roll' has 2 time steps, but this model needs 3": lambda: steady(
        3
    ).at({}).log_prob({"roll": [[1, 0]]}),
    "sequence 1 is empty": lambda: loose().at({}).log_prob({"y": [np.ones(3), np.ones(0)]}),
    r"sequence 1 has the shape \(2, 2\)": lambda: loose().at({}).log_prob(
        {"y": [np.ones((3, 1)), np.ones((2, 2))]}
    ),
    "'z' has 2 time steps": lambda: loose().at({}).log_prob(
        {"y": np.ones((1, 3)), "z": np.ones((1, 2))}
    ),
    "number of time steps is unknown": lambda: loose().at({}).simulate(rows=2),
    "values of all sites are missing": lambda: loose().fit({"y": np.full((2, 3), np.nan)}),
    "inside rows": lambda: outside().at({}),
    "no other plate": lambda: plated().at({}),
    "lengths 3, 4": lambda: unlike().at({}),
    r"transition row 0 is not a probability distribution": lambda: lopsided().at({}),
    "given='before'": lambda: loose().at({}).predict_proba({"y": np.ones((1, 3))}, "z",
                                                           given="before"),
    r"forecast\(steps=0\)": lambda: loose().at({}).forecast({"y": np.ones((1, 3))}, 0),
    "fixes the number of steps": lambda: steady(3).at({}).forecast({"roll": [[1, 0, 1]]}),
    "expected the name of a MarkovChain": lambda: loose().at({}).pairs({"y": np.ones((1, 3))}, "y"),
    r"steps=0": lambda: probml.MarkovChain(HALF, MOVES, 0),
    r"transition must end in \(2, 2\)": lambda: probml.MarkovChain(HALF, jnp.ones((3, 3)) / 3, 4),
    "inhomogeneous": lambda: probml.MarkovChain(HALF, jnp.broadcast_to(MOVES, (3, 2, 2)), 4,
                                                inhomogeneous=True),
    "number of time steps of a MarkovChain is unknown": lambda: probml.MarkovChain(HALF, MOVES),
    r"such as level\[week\]": lambda: drifting().fit({"y": np.ones((2, 4))}),
    "has no axis for them": lambda: loose().at({}).log_prob(
        __import__("pandas").DataFrame({"y": [1.0, 2.0]})
    ),
}


@pytest.mark.parametrize("words", BAD)
def test_what_cannot_be_is_refused_by_name(words):
    with pytest.raises((probml.ModelError, probml.DataError), match=words):
        BAD[words]()


def test_a_state_never_reached_and_a_sequence_never_seen_are_no_trouble():
    @probml.model
    def closed():
        with probml.rows():
            z = sample("z", probml.MarkovChain(
                jnp.array([1.0, 0, 0]), jnp.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1.0]])
            ))
            sample("y", dist.Normal(jnp.array([0.0, 3.0, 9.0])[z], 1.0).to_event(1))

    data = {"y": np.array([[9, 9, 9, 9], [np.nan] * 4])}  # integers are numbers
    fit = closed().at({})
    proba = fit.predict_proba(data, "z")
    assert np.isfinite(proba).all() and (proba[..., 2] == 0).all() and fit.log_prob(data)[1] == 0
    assert (fit.decode(data)["z"] < 2).all()


def test_markov_chain_is_a_numpyro_distribution():
    chain, key = probml.MarkovChain(HALF, MOVES, 3), jax.random.key(0)
    paths = np.array(list(itertools.product(range(2), repeat=3)))
    p = np.exp(chain.log_prob(paths))
    np.testing.assert_allclose(p.sum(), 1.0, rtol=1e-6)
    drawn = np.asarray(chain.sample(key, (20_000,))) @ [4, 2, 1]
    assert np.abs(np.bincount(drawn, minlength=8) / 20_000 - p).max() < 0.015
    many = probml.MarkovChain(jnp.stack([HALF, HALF]), jnp.broadcast_to(MOVES, (2, 5, 2, 2)), 5,
                              inhomogeneous=True)
    assert (many.batch_shape == (2,) and many.event_shape == (5,)
            and many.sample(key, (7,)).shape == (7, 2, 5))
    same = probml.MarkovChain(HALF, MOVES, 5)
    z = many.sample(key, (7,))
    np.testing.assert_allclose(many.log_prob(z), same.log_prob(z), rtol=1e-6)
    assert (chain.expand((4,)).sample(key).shape == (4, 3) and chain.support(paths).all()
            and not chain.support(paths + 1).all())
    again = jax.tree.unflatten(*reversed(jax.tree.flatten(chain)))
    assert again.event_shape == (3,) and again.steps == 3
    with handlers.seed(rng_seed=1), handlers.trace() as found:
        steady(3)(rows=4)
    assert found["z"]["value"].shape == (4, 3) and found["roll"]["value"].shape == (4, 3)
    assert loose().simulate(rows=3, steps=6)["y"].shape == (3, 6)
    pi = probml.stationary(MOVES)
    np.testing.assert_allclose(pi @ MOVES, pi, rtol=1e-6)


@pytest.mark.parametrize("shape", [(0, 2), (2, 3), (3,)])
def test_a_stationary_distribution_is_of_a_square_table(shape):
    with pytest.raises(probml.ModelError, match="expected a square table"):
        probml.stationary(np.zeros(shape))


@pytest.mark.parametrize("steps", [None, 3])
@pytest.mark.parametrize("obs", [False, True])
@pytest.mark.parametrize("cells", [[0.1, 2.0, -1.0], [0.1, np.nan, -1.0]])
def test_a_chain_outside_rows_is_refused_by_what_to_write(steps, obs, cells):
    """Missing cells and values given in the function had led to errors of other causes."""
    @probml.model
    def outside(y=None):
        z = sample("z", probml.MarkovChain(HALF, MOVES, steps=steps))
        sample("y", dist.Normal(jnp.array([0.0, 3.0])[z], 1.0), obs=y if obs else None)

    with pytest.raises(probml.ModelError, match=r"MarkovChain .*inside.*probml\.rows\(\)"):
        outside().fit({"y": np.array(cells)})
