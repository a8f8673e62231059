"""Hidden Markov models with more states than are needed: VB empties them; sticks held to updates by
hand."""

import numpy as np
import pytest
from scipy.special import digamma

pytest.importorskip("sklearn")

import probml
from probml.errors import ModelError, Refusal
from probml.models import HiddenMarkov, hidden_markov


def stick_logs(first, rest):
    """E log of the weights of sticks Beta(first, rest), (…, k − 1) → (…, k)."""
    both = digamma(first + rest)
    left = np.cumsum(digamma(rest) - both, -1)
    zero = np.zeros((*first.shape[:-1], 1))
    return np.concatenate([digamma(first) - both, zero], -1) + np.concatenate([zero, left], -1)


def by_hand(y, initial, transition, table, a, alpha, iterations):
    """VB of hidden_markov(transitions="sticks", emission="categorical"), from a point: the sticks
    of the transitions and the counts of the symbols."""
    k, logs = len(initial), [np.log(each) for each in (initial, transition, table)]
    for _ in range(iterations + 1):
        first, moves, shown = (np.exp(each) for each in logs)
        starts, counts, symbols = np.zeros(k), np.zeros((k, k)), np.zeros(shown.shape)
        for row in y:
            steps = len(row)
            forward, backward = np.zeros((steps, k)), np.ones((steps, k))
            forward[0] = first * shown[:, row[0]]
            for t in range(1, steps):
                forward[t] = forward[t - 1] @ moves * shown[:, row[t]]
            for t in reversed(range(steps - 1)):
                backward[t] = moves @ (shown[:, row[t + 1]] * backward[t + 1])
            q = forward * backward / forward[-1].sum()
            starts += q[0]
            for t in range(1, steps):
                counts += (forward[t - 1][:, None] * moves * (shown[:, row[t]] * backward[t])
                           / forward[-1].sum())
            for t in range(steps):
                symbols[:, row[t]] += q[t]
        sticks = []
        for found in (starts, counts):
            later = np.flip(np.cumsum(np.flip(found, -1), -1), -1)[..., 1:]
            sticks.append((1.0 + found[..., :-1], a + later))
        concentration = alpha + symbols
        logs = [stick_logs(*sticks[0]), stick_logs(*sticks[1]),
                digamma(concentration) - digamma(concentration.sum(-1, keepdims=True))]
    return sticks[1], concentration


def test_sticks_of_transitions_take_the_steps_that_were_written_by_hand():
    random = np.random.default_rng(5)
    y = random.integers(3, size=(4, 12))
    y[:, :6] = np.minimum(y[:, :6], 1)
    point = {"initial": np.array([0.6, 0.3, 0.1]),
             "transition": np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.3, 0.3, 0.4]]),
             "probs": np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.3, 0.4, 0.3]])}
    model = hidden_markov(k=3, emission="categorical", symbols=3, concentration=0.8, alpha=0.6,
                          transitions="sticks")
    engine = probml.VB(max_iterations=5, restarts=1, tolerance=1e-14)
    with pytest.warns(probml.ConvergenceWarning, match="iteration limit"):
        fit = model.fit({"y": y}, engine, start=point)
    sticks, symbols = by_hand(y, *point.values(), 0.8, 0.6, len(fit.history) - 1)
    found = fit.posterior("transition")
    np.testing.assert_allclose(found.concentration1, sticks[0], rtol=1e-8)
    np.testing.assert_allclose(found.concentration0, sticks[1], rtol=1e-8)
    np.testing.assert_allclose(fit.posterior("probs").concentration, symbols, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("transitions", ["sparse", "sticks"])
def test_states_that_are_not_asked_for_empty_themselves(transitions):
    random = np.random.default_rng(0)
    z = [0]
    for _ in range(299):
        z.append(z[-1] if random.random() < 0.9 else int(random.integers(3)))
    y = random.normal(np.array([-4.0, 0.0, 4.0])[z], 0.7)
    estimator = HiddenMarkov(8, emission="spherical", transitions=transitions, n_init=6).fit(y)
    steps = np.bincount(estimator.predict(y), minlength=8)
    assert (steps > 0).sum() == 3 and isinstance(estimator.fit_.bound, float)
    shown = np.argsort(-steps)[:3]
    np.testing.assert_allclose(np.sort(estimator.means_[shown, 0]), [-4, 0, 4], atol=0.3)


def test_sticks_that_stick_and_emissions_without_a_conjugate_prior_are_refused():
    with pytest.raises(ModelError, match="transitions='sticks', sticky=2.*transitions='sparse'"):
        hidden_markov(k=3, transitions="sticks", sticky=2.0).fit({"y": np.zeros((1, 9, 1))})
    with pytest.raises(ModelError, match="transitions='few'.*'even', 'sparse', 'sticks'"):
        hidden_markov(k=3, transitions="few").fit({"y": np.zeros((1, 9, 1))})
    with pytest.raises(Refusal, match=r"HiddenMarkov\(transitions='sparse', emission='normal'.*'full'"):
        HiddenMarkov(3, transitions="sparse").fit(np.random.default_rng(0).normal(size=30))
