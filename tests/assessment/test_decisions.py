"""Decisions from probabilities, and whether probabilities keep what they promise."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import factor, sample

import probml

P = np.array([[0.9, 0.1], [0.6, 0.4], [0.48, 0.52]])
DEAR = np.array([[0.0, 1.0], [5.0, 0.0]])
nan = np.nan


@probml.model
def coin():
    rate = sample("rate", dist.Beta(1.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Bernoulli(rate))
        sample("x", dist.Normal(jnp.array([-1.0, 1.0])[z], 1.0))


@probml.model
def switches():
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with probml.rows():
        z = sample("z", probml.MarkovChain(weights, jnp.array([[0.9, 0.1], [0.2, 0.8]])))
        sample("x", dist.Normal(jnp.array([-1.0, 1.0])[z], 1.0).to_event(1))


@probml.model
def plane(x):
    bias = sample("bias", dist.Normal(0.0, 1.0))
    with probml.rows():
        y = sample("y", dist.Bernoulli(0.5))
        factor("hinge", -jnp.maximum(1 - (2 * y - 1) * (x + bias), 0.0))


def posterior(x, rate=0.3):
    odds = rate / (1 - rate) * np.exp(2 * np.asarray(x))
    return np.column_stack([1 / (1 + odds), odds / (1 + odds)])


# Decisions


def test_the_action_has_the_least_expected_loss_of_all():
    rng = np.random.default_rng(0)
    p, loss = rng.dirichlet(np.ones(3), 200), rng.normal(size=(3, 5))
    every = np.array([[sum(row[k] * loss[k, a] for k in range(3)) for a in range(5)] for row in p])
    np.testing.assert_array_equal(probml.decide(p, loss), every.argmin(1))
    np.testing.assert_array_equal(probml.decide(p), p.argmax(1))
    least = every.min(1)
    np.testing.assert_array_equal(probml.decide(p, loss, reject=0.5),
                                  np.where(least > 0.5, -1, every.argmin(1)))
    assert list(probml.decide([[0.5, 0.5]])) == [0] and list(probml.decide(P, DEAR)) == [0, 1, 1]


def test_a_loss_may_name_states_in_any_order_and_actions():
    loss = {"ill": {"treat": 0.0, "wait": 10.0, "test": 2.0},
            "well": {"treat": 4.0, "wait": 0.0, "test": 1.0}}
    names = ["well", "ill"]
    assert list(probml.decide(P, loss, labels=names)) == ["wait", "test", "test"]
    frame = pd.DataFrame(loss).T
    assert list(probml.decide(P, frame, reject=1.2, labels=names)) == ["wait", None, None]
    assert list(probml.decide(P, labels=names)) == ["well", "well", "ill"]
    assert list(probml.decide(P, np.ones((2, 1)), labels=names)) == [0, 0, 0]


def test_a_fit_decides_in_labels_and_says_none():
    x = np.array([-2.0, 0.4, 2.0])
    fit = coin().at({"rate": 0.3}, labels={"z": ["no", "yes"]})
    np.testing.assert_array_equal(fit.decide({"x": x}), fit.predict({"x": x}))
    assert list(fit.decide({"x": x}, reject=0.2)) == ["no", None, "yes"]
    assert list(fit.decide({"x": x}, "z", {"no": {"a": 0, "b": 1}, "yes": {"a": 9, "b": 0}})) == [
        "a", "b", "b"
    ]
    bare = coin().at({"rate": 0.3})
    assert list(bare.decide({"x": x}, loss=DEAR, reject=0.4)) == list(
        probml.decide(posterior(x), DEAR, 0.4)
    )


def test_each_step_of_a_chain_is_decided():
    x = np.random.default_rng(0).normal(size=(3, 6))
    fit = switches().at({"weights": np.array([0.5, 0.5])})
    assert fit.decide({"x": x}, loss=DEAR).shape == (3, 6)
    np.testing.assert_array_equal(fit.decide({"x": x}, reject=0.2),
                                  probml.decide(fit.predict_proba({"x": x}), reject=0.2))


@pytest.mark.parametrize(
    ("p", "more", "words"),
    [
        ([0.5, 0.5], {}, r"\(n, k\), .*got shape \(2,\)"),
        ([[0.5, 0.4]], {}, "row 0 is 0.5, 0.4, with the sum 0.9"),
        ([[0.5, 0.5], [1.5, -0.5]], {}, "row 1"),
        ([[nan, 1.0]], {}, "row 0 is"),
        ([["a", "b"]], {}, "expected an array of probabilities"),
        (P, {"loss": np.eye(3)}, r"loss.*shape \(3, 3\).*2 states"),
        (P, {"loss": [[0, nan], [1, 0]]}, r"loss\[0, 1\] is nan"),
        (P, {"loss": [["a", "b"], ["c", "d"]]}, "loss.*numbers"),
        (P, {"loss": {"ill": {"a": 0}, "sick": {"a": 1}}, "labels": ["well", "ill"]},
         r"2 states, with the index 'well', 'ill', got 'ill', 'sick'"),
        (P, {"loss": {0: {"a": 0, "b": 1}, 1: {"a": 1}}}, "true state 1 has no loss for the action 'b'"),
        (P, {"loss": {0: 1, 1: 2}}, r"expected {truth: {action: loss}}"),
        (P, {"reject": -1}, "reject=-1"),
        (P, {"reject": nan}, "reject=nan"),
        (P, {"labels": ["a"]}, "expected 2 labels"),
    ],
)
def test_what_cannot_be_decided_is_refused_by_name(p, more, words):
    with pytest.raises(ValueError, match=words):
        probml.decide(p, **more)


# Calibration


@pytest.fixture(scope="module")
def honest():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 3000)
    return np.array([rng.choice(3, p=row) for row in p]), p


def test_reports_hold_the_numbers_of_scikit_learn(honest):
    pytest.importorskip("sklearn")
    from sklearn.calibration import calibration_curve
    from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

    y, p = honest
    for strategy in ("uniform", "quantile"):
        report = probml.calibration(y, p, strategy=strategy)
        for k in range(3):
            share, mean = calibration_curve(y == k, p[:, k], n_bins=10, strategy=strategy)
            np.testing.assert_allclose(report.curves[k][["observed", "predicted"]],
                                       np.column_stack([share, mean]))
    assert report.curve["rows"].sum() == report.rows == 3000
    np.testing.assert_allclose(
        [report.accuracy, report.log_score], [accuracy_score(y, p.argmax(1)), -log_loss(y, p)]
    )
    np.testing.assert_allclose(report.brier,
                               sum(brier_score_loss(y == k, p[:, k]) for k in range(3)))


def test_errors_are_the_mean_gaps_of_the_bins_and_tell_honest_from_boastful(honest):
    pytest.importorskip("sklearn")
    y, p = honest
    report = probml.calibration(y, p, bins=4)
    top, right = p.max(1), p.argmax(1) == y
    bin_ = np.minimum((top * 4).astype(int), 3)
    gaps = [(bin_ == b).mean() * abs(top[bin_ == b].mean() - right[bin_ == b].mean())
            for b in range(4) if (bin_ == b).any()]
    np.testing.assert_allclose(report.ece, sum(gaps))
    sharp = p**3 / (p**3).sum(1, keepdims=True)
    boastful = probml.calibration(y, sharp, bins=4)
    assert boastful.ece > 0.15 > 0.03 > report.ece and boastful.ece_classwise > report.ece_classwise
    assert (boastful.log_score < report.log_score and boastful.brier > report.brier
            and boastful.accuracy == report.accuracy)
    assert "3,000 rows" in str(report) and "top label" in report.table().index


def test_a_truth_held_impossible_has_a_log_score_of_minus_infinity():
    pytest.importorskip("sklearn")
    report = probml.calibration([0, 1], [[1.0, 0.0], [1.0, 0.0]])
    assert report.log_score == -np.inf and report.accuracy == 0.5 and report.ece == 0.5


def test_a_fit_is_judged_on_rows_that_show_the_site():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(1)
    z = (rng.random(400) < 0.3).astype(int)
    x = rng.normal(2.0 * z - 1)
    fit = coin().at({"rate": 0.3}, labels={"z": ["no", "yes"]})
    shown = np.array(["no", "yes"], object)[z]
    shown[:50] = None
    report = fit.calibration({"x": x, "z": shown}, "z")
    wanted = probml.calibration(z[50:], posterior(x[50:]))
    assert report.labels == ("no", "yes") and report.rows == 350
    np.testing.assert_allclose([report.ece, report.brier, report.log_score],
                               [wanted.ece, wanted.brier, wanted.log_score])
    assert fit.calibration({"x": x, "z": shown}, bins=5).ece < 0.08
    chain = switches().at({"weights": np.array([0.5, 0.5])})
    drawn = chain.simulate(40, steps=8, seed=0)
    assert chain.calibration(drawn).rows == 320


def test_a_report_that_cannot_be_made_is_refused_by_name(honest):
    y, p = honest
    for call, words in (
        (lambda: probml.calibration(y[:5], p), r"\(3000,\), got shape \(5,\)"),
        (lambda: probml.calibration(y + 1, p), "a true label is 3, which is not one of the labels"),
        (lambda: probml.calibration(np.full(3000, nan), p), "every true label is missing"),
        (lambda: probml.calibration(y, p, bins=0), "bins=0"),
        (lambda: probml.calibration(y, p, strategy="round"), "strategy='round'.*uniform"),
        (lambda: probml.calibration(y, p, labels=["a"]), "expected 3 labels"),
        (lambda: coin().at({"rate": 0.3}).calibration({"x": [0.0]}), "observed values of a discrete site of model 'coin'"),
        (lambda: coin().at({"rate": 0.3}).calibration({"x": [0.0]}, "z"), "expected a column 'z' of true labels"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_a_loss_is_calibrated_by_the_probabilities_it_is_written_with():
    x, y = np.array([-2.0, -0.5, 0.25, 3.0]), np.array([0, 1, 1, 1])
    logs = -np.maximum(1 - np.array([-1.0, 1.0]) * x[:, None], 0.0)
    p = np.exp(logs) / np.exp(logs).sum(1, keepdims=True)
    fit = plane().at({"bias": 0.0})
    np.testing.assert_allclose(fit.predict_proba({"x": x}), p, atol=1e-5)
    ours, own = fit.calibration({"x": x, "y": y}), probml.calibration(y, p)
    assert ours.log_score == pytest.approx(own.log_score, abs=1e-5)
    assert ours.brier == pytest.approx(own.brier, abs=1e-5)


def test_a_reliability_curve_is_drawn_with_its_bins(honest, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("sklearn")
    from probml.models import pictures

    y, p = honest
    report = probml.calibration(np.array(["a", "b", "c"])[y], p, ["a", "b", "c"])
    ax = pictures.reliability(report, "b")
    (points,) = [c for c in ax.collections if len(c.get_offsets()) == len(report.curves["b"])]
    np.testing.assert_allclose(points.get_offsets(), report.curves["b"][["predicted", "observed"]])
    ax.figure.savefig(tmp_path / "reliability.png")
    for bad, words in ((lambda: pictures.reliability(3), "got an int"),
                       (lambda: pictures.reliability(report, "d"), "label='d'")):
        with pytest.raises(probml.ModelError, match=words):
            bad()


def test_in_a_notebook_a_calibration_is_scores_a_picture_and_a_table(honest):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    y, p = honest
    report = probml.calibration(np.array(["a", "b<", "c"])[y], p, ["a", "b<", "c"])
    page = report._repr_html_()
    assert page.count("<svg") == 1 and page.count("<table") == 2
    assert f"{report.accuracy:.4g}" in page and "b&lt;" in page and "b<" not in page
    assert "<title>Reliability of the most probable label</title>" in page


def test_a_fit_of_known_parameters_and_inputs_decides_at_once():
    @probml.model
    def logistic(x):
        beta = sample("beta", dist.Normal(0.0, 1.0).expand([x.shape[-1]]).to_event(1))
        with probml.rows():
            sample("y", dist.Bernoulli(logits=x @ beta))

    x = np.array([[-2.0], [0.1], [2.0]])
    for ask in (lambda fit: fit.decide({"x": x}, "y", reject=0.2),
                lambda fit: probml.decide(fit.predict_proba({"x": x}, "y"), reject=0.2)):
        assert list(ask(logistic().at({"beta": [1.0]}))) == [0, -1, 1]


def test_columns_of_a_table_of_probabilities_are_labels_in_any_order(honest):
    y, p = honest
    labels = ["a", "b", "c"]
    truth, table = np.array(labels)[y], pd.DataFrame(p, columns=labels)
    loss = {"a": {"go": 0.0, "stay": 2.0}, "b": {"go": 5.0, "stay": 1.0}, "c": {"go": 1.0, "stay": 1.0}}
    report, actions = probml.calibration(truth, p, labels), probml.decide(p, loss, labels=labels)
    for order in (["c", "a", "b"], labels):
        found = probml.calibration(truth, table[order], labels)
        assert (found.log_score, found.ece_classwise) == (report.log_score, report.ece_classwise)
        assert list(probml.decide(table[order], loss, labels=labels)) == list(actions)
