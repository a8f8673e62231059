"""Python loops over time or over items, their discrete sites summed out; brute force says what comes
out."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import stats
from scipy.special import logsumexp

import probml
from probml.errors import Refusal

RNG = np.random.default_rng(3)
T = 13  # one binary digit more than joint values are kept


def states(y):
    row = sample("row", dist.Beta(2.0, 2.0).expand([2]).to_event(1))
    m = sample("m", dist.Normal(0, 5).expand([2]).to_event(1))
    z = 0
    for t in range(len(y)):
        z = sample(f"z_{t}", dist.Bernoulli(row[z]))
        sample(f"y_{t}", dist.Normal(m[z], 1.0), obs=y[t])


Y = np.random.default_rng(5).normal(size=T)  # whose best path is not the best of each pair
P = {"row": np.array([0.3, 0.8]), "m": np.array([-1.0, 1.2])}
PRIOR = stats.beta(2, 2).logpdf(P["row"]).sum() + stats.norm(0, 5).logpdf(P["m"]).sum()
PATHS = np.array(list(itertools.product((0, 1), repeat=T)))


def logs_of_paths(paths, y, row=P["row"], m=P["m"]):
    before = np.concatenate([np.zeros((len(paths), 1), int), paths[:, :-1]], 1)
    p = row[before]
    return (np.log(np.where(paths == 1, p, 1 - p)).sum(1)
            + stats.norm(m[paths], 1).logpdf(y).sum(1))


def test_states_of_a_loop_are_summed_out_and_answered_for_as_brute_force_does():
    logs = logs_of_paths(PATHS, Y)
    model = probml.model(states)()
    np.testing.assert_allclose(model.log_density({"y": Y}, P), logsumexp(logs) + PRIOR, atol=1e-9)
    fit = model.at(P)
    share = np.exp(logs - logsumexp(logs))
    for t in (0, 6, T - 1):
        want = np.array([share[PATHS[:, t] == k].sum() for k in (0, 1)])
        np.testing.assert_allclose(fit.predict_proba({"y": Y}, f"z_{t}"), want, atol=1e-10)
    found = fit.decode({"y": Y})
    np.testing.assert_array_equal([found[f"z_{t}"] for t in range(T)], PATHS[logs.argmax()])


@pytest.mark.slow
def test_some_states_of_a_loop_are_maximised_once_the_others_are_summed_out():
    logs = logs_of_paths(PATHS, Y)
    share = np.exp(logs - logsumexp(logs))
    some = probml.model(states)().at(P).decode({"y": Y}, ["z_5", "z_6"])
    pairs = [share[(PATHS[:, 5] == i) & (PATHS[:, 6] == j)].sum() for i in (0, 1) for j in (0, 1)]
    assert [some["z_5"], some["z_6"]] == list(np.unravel_index(np.argmax(pairs), (2, 2)))
    assert tuple(PATHS[logs.argmax()][[5, 6]]) != (some["z_5"], some["z_6"])


def test_a_step_that_is_not_like_the_others_is_itself():
    def odd(y):
        row = sample("row", dist.Beta(2.0, 2.0).expand([2]).to_event(1))
        m = sample("m", dist.Normal(0, 5).expand([2]).to_event(1))
        z = 0
        for t in range(len(y)):
            z = sample(f"z_{t}", dist.Bernoulli(row[z]))
            sample(f"y_{t}", dist.Cauchy(m[z], 2.0) if t == 5 else dist.Normal(m[z], 1.0),
                   obs=y[t])

    logs = logs_of_paths(PATHS, Y)
    at = P["m"][PATHS[:, 5]]
    logs += stats.cauchy(at, 2).logpdf(Y[5]) - stats.norm(at, 1).logpdf(Y[5])
    got = probml.model(odd)().log_density({"y": Y}, P)
    np.testing.assert_allclose(got, logsumexp(logs) + PRIOR, atol=1e-9)


def test_sequences_in_a_plate_and_states_of_a_step_are_cells_of_the_loop():
    def herd(y):
        row = sample("row", dist.Beta(2.0, 2.0).expand([2]).to_event(1))
        m = sample("m", dist.Normal(0, 5).expand([2]).to_event(1))
        z = jnp.zeros(2, int)
        for t in range(y.shape[0]):
            with plate("animals", 2):
                z = sample(f"z_{t}", dist.Bernoulli(row[z]))
                w = sample(f"w_{t}", dist.Bernoulli(0.2 + 0.3 * z))
                sample(f"y_{t}", dist.Normal(m[z] + 2.0 * w, 1.0), obs=y[t])

    y = RNG.normal(size=(5, 2))
    total = PRIOR
    every = np.array(list(itertools.product((0, 1), repeat=10)))
    z, w = every[:, :5], every[:, 5:]
    p, q = P["row"][np.c_[np.zeros(len(z), int), z[:, :-1]]], 0.2 + 0.3 * z
    for animal in range(2):
        total += logsumexp(np.log(np.where(z, p, 1 - p)).sum(1)
                           + np.log(np.where(w, q, 1 - q)).sum(1)
                           + stats.norm.logpdf(y[:, animal], P["m"][z] + 2.0 * w, 1).sum(1))
    model = probml.model(herd)()
    np.testing.assert_allclose(model.log_density({"y": y}, P), total, atol=1e-9)
    found = model.at(P).decode({"y": y})
    assert found["z_0"].shape == (2,) and set(found) == {f"{n}_{t}" for n in "zw" for t in range(5)}


@pytest.mark.parametrize("look", ["second", "shared"])
def test_steps_that_look_further_than_to_their_neighbours_are_summed_out_as_well(look):
    def further(y):
        m = sample("m", dist.Normal(0, 5).expand([2]).to_event(1))
        row = sample("row", dist.Beta(2.0, 2.0).expand([2]).to_event(1))
        kind = sample("kind", dist.Bernoulli(0.4)) if look == "shared" else 0
        one = two = 0
        for t in range(len(y)):
            p = row[one] * 0.5 + 0.4 * (kind if look == "shared" else two)
            one, two = sample(f"z_{t}", dist.Bernoulli(p)), one
            sample(f"y_{t}", dist.Normal(m[one], 1.0), obs=y[t])

    one = np.concatenate([np.zeros((len(PATHS), 1), int), PATHS[:, :-1]], 1)
    two = np.concatenate([np.zeros((len(PATHS), 1), int), one[:, :-1]], 1)
    logs = []
    for kind in (0, 1):
        p = P["row"][one] * 0.5 + 0.4 * (kind if look == "shared" else two)
        logs.append(np.log(np.where(PATHS == 1, p, 1 - p)).sum(1)
                    + stats.norm(P["m"][PATHS], 1).logpdf(Y).sum(1)
                    + (np.log((0.6, 0.4)[kind]) if look == "shared" else -np.log(2)))
    got = probml.model(further)().log_density({"y": Y}, P)
    np.testing.assert_allclose(got, logsumexp(logs) + PRIOR, atol=1e-9)


def test_items_of_a_loop_that_do_not_look_at_each_other_are_summed_out_side_by_side():
    def items(y):
        w = sample("w", dist.Dirichlet(jnp.ones(3)))
        m = sample("m", dist.Normal(0, 5).expand([3]).to_event(1))
        for i in range(len(y)):
            z = sample(f"z{i}", dist.Categorical(w))
            sample(f"y{i}", dist.Normal(m[z], 1.0), obs=y[i])

    p = {"w": np.array([0.2, 0.3, 0.5]), "m": np.array([-2.0, 0.0, 2.0])}
    each = np.log(p["w"]) + stats.norm(p["m"], 1).logpdf(Y[:, None])
    want = logsumexp(each, axis=1).sum() + stats.norm(0, 5).logpdf(p["m"]).sum() + np.log(2)
    model = probml.model(items)()
    np.testing.assert_allclose(model.log_density({"y": Y}, p), want, atol=1e-9)
    found = model.at(p).decode({"y": Y})
    np.testing.assert_array_equal([found[f"z{i}"] for i in range(T)], each.argmax(1))
    with pytest.raises(Refusal, match="decode.*'z0'"):
        model.at(p).decode({"y": Y}, ["m"])
