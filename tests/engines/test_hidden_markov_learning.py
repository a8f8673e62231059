"""Learning hidden Markov models: Baum–Welch step by step as hmmlearn makes it, fixed points, hard
EM, MAP, classes, inputs, labels."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.models import hidden_markov, markov_chain

K, D, T = 3, 2, 300
CENTRES = np.array([[-3.0, 0.0], [0.0, 3.0], [3.0, 0.0]])
START = {"initial": np.full(K, 1 / K), "transition": np.full((K, K), 0.2) + 0.4 * np.eye(K)}


def states(key, steps=T, stay=0.9, k=K):
    random, z = np.random.default_rng(key), [0]
    for _ in range(steps - 1):
        z.append(z[-1] if random.random() < stay else int(random.integers(k)))
    return np.array(z)


def numbers(key):
    return CENTRES[states(key)] + np.random.default_rng(key).normal(size=(T, D))


@pytest.mark.filterwarnings("ignore:EM of model:probml.ConvergenceWarning")
@pytest.mark.parametrize("emission", ["normal", "full", "categorical"])
def test_every_iteration_has_the_likelihood_of_hmmlearn(emission):
    hmm = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is no dependency")
    count, engine = 8, probml.EM(max_iterations=8, prior=False, accelerate=False, tolerance=0.0)
    off = {"n_iter": count + 1, "tol": -np.inf, "init_params": "", "startprob_prior": 1,
           "transmat_prior": 1}
    if emission == "categorical":
        z = states(1)
        y = np.where(np.random.default_rng(2).random(T) < 0.7, z,
                     np.random.default_rng(3).integers(5, size=T))
        table = np.random.default_rng(4).dirichlet(np.full(5, 3.0), K)
        peer = hmm.CategoricalHMM(K, emissionprob_prior=1, **off)
        peer.emissionprob_, x, model, start = (
            table, y[:, None], hidden_markov(k=K, symbols=5, emission=emission), {"probs": table}
        )
    else:
        x, means = numbers(5), CENTRES + 0.5
        y, model = x, hidden_markov(k=K, d=D, emission=emission)
        shape = "diag" if emission == "normal" else "full"
        peer = hmm.GaussianHMM(K, shape, covars_prior=0, covars_weight=0 if shape == "diag" else -K,
                               min_covar=0, means_weight=0, **off)
        peer.means_, peer.covars_ = means, np.ones((K, D)) if shape == "diag" else np.stack(
            [np.eye(D)] * K
        )
        start = {"mean": means} | ({"scale": np.ones((K, D))} if shape == "diag"
                                   else {"precision": np.stack([np.eye(D)] * K)})
        if shape == "full":
            peer.covars_weight = D + 0.0  # hmmlearn's denominator: n + weight − d
    peer.startprob_, peer.transmat_ = START["initial"], START["transition"]
    fit = model.fit({"y": y[None]}, engine, start=START | start)
    peer.fit(x)
    assert len(fit.history) >= 6
    np.testing.assert_allclose(fit.history, list(peer.monitor_.history)[: len(fit.history)],
                               rtol=1e-6)


def test_em_ends_where_the_gradient_vanishes():
    model, data = hidden_markov(k=2, d=1, emission="normal"), {"y": numbers(6)[None, :80, :1]}
    fit = model.fit(data, probml.EM(tolerance=1e-13), seed=1)
    assert fit.converged and (np.diff(fit.history) > -1e-8).all()
    random = np.random.default_rng(7)
    for name, value in fit.params.items():
        way = random.normal(size=value.shape) * (value if name == "scale" else 1.0)
        if name in ("initial", "transition"):
            if (value < 1e-6).any():
                continue  # at an edge of the simplex
            way = value * (way - (value * way).sum(-1, keepdims=True))  # in the softmax coordinate
        up, down = (model.log_density(data, {**fit.params, name: value + sign * 1e-5 * way})
                    for sign in (1, -1))
        assert abs(up - down) / 2e-5 < 2e-3


@pytest.mark.slow
def test_hard_em_follows_paths_and_map_reaches_em():
    model, data = hidden_markov(k=3, d=2, emission="normal"), {"y": numbers(8)[None]}
    soft = model.fit(data, probml.EM(), seed=2)
    hard = model.fit(data, probml.EM(hard=True, accelerate=False), seed=2)
    order = [np.argmin(((soft.params["mean"][:, None] - hard.params["mean"]) ** 2).sum(-1)[i])
             for i in range(3)]
    np.testing.assert_allclose(hard.params["mean"][order], soft.params["mean"], atol=0.15)
    climbed = model.fit(data, probml.MAP(), start=soft.params)
    np.testing.assert_allclose(climbed.history[-1], soft.history[-1], atol=1e-4)


@pytest.mark.slow
def test_stochastic_map_takes_whole_sequences():
    optax = pytest.importorskip("optax")
    y = np.stack([CENTRES[states(key, 20)] + np.random.default_rng(key).normal(size=(20, D))
                  for key in range(12)])
    model = hidden_markov(k=3, d=2, emission="normal")
    truth = model.fit({"y": y}, probml.EM(restarts=2))
    engine = probml.MAP(optimizer=optax.adam(0.02), steps=400, batch_rows=4)
    with pytest.warns(RuntimeWarning, match="MAP"):
        fit = model.fit({"y": y}, engine,
                        start={n: 0.9 * v + 0.1 * v.mean(0) for n, v in truth.params.items()})
    assert abs(fit.history[-1] - truth.history[-1]) < 0.01 * abs(truth.history[-1])


@probml.model
def classes(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("class", 2), plate("state", k):
        transition = sample("transition", dist.Dirichlet(jnp.ones(k)))
    with probml.rows():
        c = sample("c", dist.Categorical(weights))
        sample("z", probml.MarkovChain(jnp.ones(k) / k, jnp.swapaxes(transition, 0, 1)[c]))


@pytest.mark.slow
def test_sequences_are_told_apart_by_how_they_move():
    random, kinds = np.random.default_rng(9), np.repeat([0, 1], 30)
    z = np.stack([states([i, 10], 40, (0.9, 0.2)[kind]) for i, kind in enumerate(kinds)])
    fit = classes(k=3).fit({"z": z}, probml.EM(restarts=8), seed=1)
    found = fit.predict({"z": z}, "c")
    assert max((found == kinds).mean(), (found != kinds).mean()) > 0.95
    labels = np.where(random.random(60) < 0.5, kinds, np.nan)
    named = classes(k=3).fit({"z": z, "c": np.array(["slow", "quick"], object)[kinds]})
    assert named.engine.startswith("Exact") and set(named.predict({"z": z[:5]}, "c")) <= {"slow",
                                                                                          "quick"}
    half = classes(k=3).fit({"z": z, "c": labels}, probml.EM())
    assert (half.predict({"z": z}, "c") == kinds).mean() > 0.95


def test_a_seen_chain_is_counted_exactly_and_parts_add_up():
    z = np.stack([states(key, 30) for key in range(6)])
    fit = markov_chain(k=3).fit({"z": z})
    count = np.ones((3, 3))
    np.add.at(count, (z[:, :-1], z[:, 1:]), 1)
    np.testing.assert_allclose(fit.posterior("transition").concentration, count, atol=1e-9)
    np.testing.assert_allclose(fit.params["transition"], count / count.sum(1, keepdims=True),
                               atol=1e-12)
    tails = [row[: 30 - 4 * i] for i, row in enumerate(z)]
    counts = np.ones((3, 3))
    for row in tails:
        np.add.at(counts, (row[:-1], row[1:]), 1)
    np.testing.assert_allclose(
        markov_chain(k=3).fit({"z": tails}).posterior("transition").concentration, counts, atol=1e-9
    )
    more = fit.update({"z": tails[-1:]})
    np.testing.assert_allclose(more.log_evidence - fit.log_evidence,
                               fit.log_prob({"z": tails[-1:]})[0], atol=1e-8)
    halves = markov_chain(k=3).fit({"z": z[:2]}).merge(markov_chain(k=3).fit({"z": z[2:]}))
    np.testing.assert_allclose(halves.params["transition"], fit.params["transition"], atol=1e-10)
    assert abs(halves.log_evidence - fit.log_evidence) < 1e-8


@probml.model
def moved_by(x):
    slope = sample("slope", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    with probml.rows():
        up = jax.nn.sigmoid(slope * x[..., None])  # (rows, steps, 2): p(state 1 | state before)
        z = sample("z", probml.MarkovChain(jnp.ones(2) / 2, jnp.stack([1 - up, up], -1),
                                           inhomogeneous=True))
        sample("y", dist.Normal(jnp.array([-2.0, 2.0])[z], 1.0).to_event(1))


def test_a_transition_by_covariates_is_learnt_and_saved(tmp_path):
    x = np.random.default_rng(11).normal(size=(40, 60))
    truth = moved_by().at({"slope": np.array([2.0, -1.0])})
    y = truth.simulate(x=x, seed=5)["y"]
    fit = moved_by().fit({"x": x, "y": y}, probml.EM(tolerance=1e-9), start={"slope": np.zeros(2)})
    np.testing.assert_allclose(fit.params["slope"], [2.0, -1.0], atol=0.35)
    fit.save(tmp_path / "fit.npz")
    again = probml.load(tmp_path / "fit.npz", moved_by())
    np.testing.assert_allclose(again.log_prob({"x": x, "y": y}), fit.log_prob({"x": x, "y": y}))
    ahead = fit.forecast({"x": x, "y": y}, 2, x=np.full((40, 2), 3.0))
    longer = {"x": np.concatenate([x, np.full((40, 2), 3.0)], 1),
              "y": np.concatenate([y, np.full((40, 2), np.nan)], 1)}
    np.testing.assert_allclose(ahead["y"], fit.impute(longer)["y"][:, 60:], atol=1e-10)
    with pytest.raises(probml.ModelError, match="'x'"):
        fit.forecast({"x": x, "y": y}, 2)
