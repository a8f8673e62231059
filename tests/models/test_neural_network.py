"""Multi-layer networks: a generative function like any other, trained by MAP, sampled by
Laplace."""

import numpy as np
import optax
import pytest

pytest.importorskip("sklearn")
from sklearn import datasets
from sklearn.linear_model import LogisticRegression

import probml
from contract import DENSE, contract
from probml.models import NeuralNetworkClassifier, NeuralNetworkRegressor, neural_network

X, Y = datasets.make_moons(200, noise=0.2, random_state=0)
LOCAL = {DENSE: "rounding, which differs with the order of rows, leads to another local maximum"}


@pytest.mark.slow
@pytest.mark.one_in(3)
@contract(NeuralNetworkClassifier(hidden=4), NeuralNetworkRegressor(hidden=4),
          expected={"NeuralNetworkClassifier": LOCAL, "NeuralNetworkRegressor": LOCAL})
def test_estimators_keep_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def moons():
    return NeuralNetworkClassifier((8,)).fit(X, np.array(["left", "right"])[Y])


def test_a_network_bends_where_a_plane_cannot(moons):
    plane = LogisticRegression().fit(X, Y).score(X, Y)
    assert moons.score(X, np.array(["left", "right"])[Y]) > max(0.95, plane + 0.05)
    assert moons.coefs_[0].shape == (2, 8) and moons.intercepts_[1].shape == (2,)


def test_its_probabilities_are_those_of_the_layers_by_hand(moons):
    x = (X - X.mean(0)) / X.std(0)
    logits = (
        np.tanh(x @ moons.coefs_[0] + moons.intercepts_[0]) @ moons.coefs_[1] + moons.intercepts_[1]
    )
    probs = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    np.testing.assert_allclose(moons.predict_proba(X), probs, atol=1e-10)
    held = moons.as_data(X, np.array(["left", "right"])[Y])
    np.testing.assert_allclose(moons.fit_.log_prob(held), np.log(probs[np.arange(200), Y]),
                               atol=1e-9)


def test_a_network_without_hidden_layers_is_softmax_regression():
    fit = neural_network(states=2, hidden=(), weight_scale=2.0).fit({"x": X, "y": Y}, probml.MAP())
    difference = fit.params["weights0"][:, 1] - fit.params["weights0"][:, 0]
    # two columns of variance s²/d, and their difference
    peer = LogisticRegression(C=2 * 2.0**2 / 2, tol=1e-12).fit(X, Y)
    np.testing.assert_allclose(difference, peer.coef_[0], rtol=1e-2)  # the bias has a prior here


def test_mini_batches_and_early_stopping_are_a_setting():
    estimator = NeuralNetworkClassifier(8, optimizer=optax.adam(0.05), batch_rows=20, steps=30_000,
                                        held_out=0.25, patience=4, random_state=3)
    estimator.fit(X, Y)
    assert estimator.score(X, Y) > 0.9 and len(estimator.held_out_) == len(estimator.history_)
    again = NeuralNetworkClassifier(**estimator.get_params()).fit(X, Y)
    np.testing.assert_array_equal(estimator.predict_proba(X), again.predict_proba(X))


def test_curves_are_learnt_in_any_units():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (200, 1))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=200)
    estimator = NeuralNetworkRegressor(12).fit(x * 1e3 + 1e6, 50 * y + 7)
    assert estimator.score(x * 1e3 + 1e6, 50 * y + 7) > 0.95
    assert estimator.noise_ == pytest.approx(5.0, rel=0.3)


def test_held_out_rows_choose_the_weight_decay(moons):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 3))
    y = x[:, 0] + 1.5 * rng.normal(size=60)
    assert NeuralNetworkRegressor(4).fit(x[:40], y[:40]).weight_scale_ == 1.0 < moons.weight_scale_


@pytest.mark.slow
def test_the_weights_of_a_network_have_a_posterior():
    estimator = NeuralNetworkClassifier(3, engine=probml.Laplace()).fit(X[:60], Y[:60])
    averaged, plug = estimator.predict_proba(X), estimator.fit_.predict_proba(estimator.as_data(X), "y",
                                                                              plug_in=True)
    assert np.abs(averaged - plug).max() > 0.01 and estimator.score(X, Y) > 0.8


def test_laplace_over_the_last_layer_leaves_the_others_at_the_mode():
    model, data = neural_network(states=2, hidden=(3,)), {"x": X[:80], "y": Y[:80]}
    start = {name: np.random.default_rng(0).normal(size=spec.shape) for name, spec in MODE.items()}
    engine = probml.Laplace(over=("weights1", "bias1"))
    fit = model.fit(data, engine, start=start)
    drawn = fit.draws(4000)
    assert np.ptp(drawn["weights0"],
                  axis=0).max() < 1e-9 and np.ptp(drawn["bias0"], axis=0).max() < 1e-9
    h = np.tanh(X[:80] @ fit.params["weights0"] + fit.params["bias0"])
    p = np.exp(h @ fit.params["weights1"] + fit.params["bias1"])
    p /= p.sum(1, keepdims=True)
    design = np.column_stack([np.ones(80), h])
    w = p[:, 0] * p[:, 1]
    # (bias, weights) × (two states)
    information = np.kron((design * w[:, None]).T @ design, np.array([[1, -1], [-1, 1]]))
    prior = np.repeat(np.r_[1 / 10.0**2, np.full(3, 3 / 3.0**2)], 2)
    covariance = np.linalg.inv(information + np.diag(prior))
    sds = np.sqrt(np.diag(covariance)).reshape(4, 2)
    np.testing.assert_allclose(drawn["bias1"].std(0), sds[0], rtol=0.08)
    np.testing.assert_allclose(drawn["weights1"].std(0), sds[1:], rtol=0.08)
    with pytest.raises(probml.ModelError, match="'weights9'"):
        model.fit(data, probml.Laplace(over=("weights9",)))


MODE = {"weights0": np.zeros((2, 3)), "bias0": np.zeros(3), "weights1": np.zeros((3, 2)),
        "bias1": np.zeros(2)}


@pytest.mark.parametrize(
    ("settings", "word"), [({"activation": "tan"}, "activation"), ({"hidden": 0}, "hidden"),
                           ({"held_out": 1.0}, "held_out")]
)
def test_parameters_out_of_range_are_named(settings, word):
    with pytest.raises(ValueError, match=word):
        NeuralNetworkClassifier(**settings).fit(X, Y)
    if word != "held_out":
        with pytest.raises(probml.ModelError, match=word):
            neural_network(states=2, **{"hidden": (0,)} if word == "hidden" else settings).fit(
                {"x": X, "y": Y}
            )
