"""Mixtures of experts: enumeration, regression as the case of one, planted partitions, flexmix and
mixtools, bad input."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest

import probml
from contract import DENSE, contract
from oracles import log_sum
from probml.models import (
    MixtureOfExperts,
    MixtureOfExpertsClassifier,
    hierarchical_mixture_of_experts,
    mixture_of_experts,
)

pytest.importorskip("sklearn")
from sklearn.base import clone  # noqa: E402
from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

  # noqa: E402

nan = np.nan
RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (300, 1))
Y = np.abs(X[:, 0]) + 0.1 * RNG.normal(size=300)
# one setting for every reference
SEARCH = {"prior": False, "n_init": 10, "tol": 1e-10, "max_iter": 5000, "random_state": 0}
SLOW = pytest.mark.slow

# scikit-learn's contract

REASON = {DENSE: "the start draws rows, and a row twice is drawn otherwise than one of weight 2: "
          "another local maximum"}


@SLOW
@pytest.mark.one_in(6)
@contract(MixtureOfExperts(), MixtureOfExpertsClassifier(),
          expected={"MixtureOfExperts": REASON, "MixtureOfExpertsClassifier": REASON})
def test_the_estimators_keep_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


# The functions


def logs(scores):
    """Scores of all states but the first → log probabilities of all."""
    scores = np.concatenate([np.zeros_like(scores[..., :1]), scores], -1)
    return scores - log_sum(scores, (-1,))[..., None]


def normal(y, loc, precision):
    return 0.5 * np.log(precision / (2 * np.pi)) - 0.5 * precision * (y - loc) ** 2


def test_the_evidence_of_a_flat_mixture_is_that_of_enumeration_and_an_unseen_y_says_nothing():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(7, 2)), rng.normal(size=7)
    params = {"gate": rng.normal(size=(3, 2)), "weights": rng.normal(size=(3, 3)),
              "precision": rng.gamma(2.0, size=3)}
    fit, one = mixture_of_experts(k=3).at(params), np.c_[np.ones(7), x]
    joint = logs(one @ params["gate"]) + normal(y[:, None], one @ params["weights"].T,
                                                params["precision"])
    y[2] = nan
    expected = np.where(np.isnan(y), 0.0, log_sum(joint, (1,)))
    np.testing.assert_allclose(fit.log_prob({"x": x, "y": y}), expected, atol=1e-12)
    prior = np.exp(logs(one @ params["gate"]))
    q = np.where(np.isnan(y)[:, None], prior, np.exp(joint - log_sum(joint, (1,))[:, None]))
    np.testing.assert_allclose(fit.predict_proba({"x": x, "y": y}, "z"), q, atol=1e-12)
    np.testing.assert_allclose(fit.predict({"x": x}, "y"),
                               (prior * (one @ params["weights"].T)).sum(1), atol=1e-12)


def test_the_evidence_of_a_tree_of_softmax_experts_is_that_of_enumeration():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(5, 2)), rng.integers(0, 3, 5)
    params = {"gate1": rng.normal(size=(3, 1)), "gate2": rng.normal(size=(2, 3, 2)),
              "weights": rng.normal(size=(6, 2, 3))}
    one, joint = np.c_[np.ones(5), x], np.empty((5, 2, 3))
    for i in range(2):
        for j in range(3):
            answer = logs(one @ params["weights"][3 * i + j].T)[np.arange(5), y]
            joint[:, i, j] = (
                logs(one @ params["gate1"])[:, i] + logs(one @ params["gate2"][i])[:, j] + answer
            )
    fit = hierarchical_mixture_of_experts(branches=(2, 3), classes=3).at(params)
    np.testing.assert_allclose(fit.log_prob({"x": x, "y": y}), log_sum(joint, (1, 2)), atol=1e-12)
    q = np.exp(joint - log_sum(joint, (1, 2))[:, None, None])
    np.testing.assert_allclose(fit.joint({"x": x, "y": y}, ("z1", "z2")), q, atol=1e-12)


def test_gaussian_experts_are_found_by_weighted_least_squares():
    report = str(mixture_of_experts(k=2).explain({"x": X, "y": Y}))
    assert "weighted least squares" in report and "logits of 'z'" in report


# One, two and four experts


def test_one_expert_is_linear_regression():
    x = np.random.default_rng(3).normal(size=(300, 3)) * [1.0, 0.1, 10.0]
    y = x @ [1.0, 20.0, -0.1] + 5.0 + Y
    line, one = LinearRegression().fit(x, y), MixtureOfExperts(1, prior=False).fit(x, y)
    np.testing.assert_allclose(one.predict(x), line.predict(x), rtol=1e-9)
    np.testing.assert_allclose(one.coef_[0], line.coef_, rtol=1e-7)
    np.testing.assert_allclose(one.intercept_, [line.intercept_], rtol=1e-7)
    np.testing.assert_allclose(one.scale_, [(y - line.predict(x)).std()], rtol=1e-7)
    np.testing.assert_allclose(one.history_[-1], one.log_prob(x, y).sum(), rtol=1e-9)
    assert (one.gates(x) == 1).all() and one.gate_coef_.shape == (1, 3) and (one.shares_ == 1).all()


@pytest.fixture(scope="module")
def two():
    return MixtureOfExperts(2).fit(X, Y)


def test_two_experts_find_the_kink_and_em_never_lowers_the_objective(two):
    assert np.mean((two.predict(X) - np.abs(X[:, 0])) ** 2) < 1e-3 and two.converged_
    assert (np.diff(two.history_) >= -1e-9).all() and len(two.history_) > 3
    np.testing.assert_allclose(np.sort(two.coef_[:, 0]), [-1, 1], atol=0.05)
    np.testing.assert_allclose(two.intercept_, 0, atol=0.1)
    np.testing.assert_allclose(two.scale_, 0.1, rtol=0.2)
    assert two.gate_coef_.shape == (2, 1) and two.gate_coef_[0] == 0 and two.score(X, Y) > 0.97


def test_attributes_are_in_the_units_of_the_data(two):
    gates = np.exp(logs((X @ two.gate_coef_.T + two.gate_intercept_)[:, 1:]))
    planes = X @ two.coef_.T + two.intercept_
    np.testing.assert_allclose(two.gates(X), gates, atol=1e-9)
    np.testing.assert_allclose(two.predict(X), (gates * planes).sum(1), atol=1e-9)
    joint = np.log(gates) + normal(Y[:, None], planes, two.scale_**-2.0)
    np.testing.assert_allclose(two.log_prob(X, Y), log_sum(joint, (1,)), atol=1e-8)
    np.testing.assert_allclose(two.responsibilities(X, Y),
                               np.exp(joint - log_sum(joint, (1,))[:, None]), atol=1e-8)
    np.testing.assert_allclose(two.bic(X, Y) - two.aic(X, Y), 8 * (np.log(300) - 2))


def test_units_and_offsets_do_not_matter(two):
    far = MixtureOfExperts(2).fit(1e6 + X, 1e9 + 1e5 * Y)
    np.testing.assert_allclose(far.coef_, 1e5 * two.coef_, rtol=1e-4)
    np.testing.assert_allclose(far.predict(1e6 + X), 1e9 + 1e5 * two.predict(X), rtol=1e-12)
    np.testing.assert_allclose(far.gates(1e6 + X), two.gates(X), atol=1e-5)
    np.testing.assert_allclose(far.log_prob(1e6 + X, 1e9 + 1e5 * Y),
                               two.log_prob(X, Y) - np.log(1e5), atol=1e-3)


def test_rows_whose_y_is_unseen_are_left_out_and_a_weight_of_two_is_a_row_twice(two):
    twice = MixtureOfExperts(2).fit(np.r_[X[150:], X, X[150:]],
                                    np.r_[Y[150:], np.full(300, nan), Y[150:]])
    ours = MixtureOfExperts(2).fit(X, Y, sample_weight=np.r_[np.full(150, 1e-9), np.full(150, 2.0)])
    np.testing.assert_allclose(ours.predict(X), twice.predict(X), atol=1e-4)
    np.testing.assert_allclose(ours.history_[-1], twice.history_[-1], atol=1e-4)
    assert two.log_prob(X[:1], [nan]) == 0.0
    np.testing.assert_allclose(two.responsibilities(X[:1], [nan]), two.gates(X[:1]))


@pytest.mark.slow
@pytest.mark.parametrize("hard", [False, pytest.param(True, marks=SLOW)])
def test_gates_recover_a_planted_partition(hard):
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, (300, 2))
    part = (x @ [1.0, -1.0] > 0.1).astype(int)
    y = (np.array([3.0, -3.0])[part] + (x * np.array([[1.0, 2.0], [-2.0, 0.0]])[part]).sum(1) + 0.05
         * rng.normal(size=300))
    estimator = MixtureOfExperts(2, engine=probml.EM(hard=True, restarts=10) if hard else None).fit(x, y)
    found = estimator.gates(x).argmax(1)
    assert max((found == part).mean(), (found != part).mean()) > 0.98
    np.testing.assert_allclose(estimator.coef_[np.argsort(estimator.coef_[:, 0])], [[-2, 0], [1, 2]],
                               atol=0.05)


@SLOW
def test_a_tree_reaches_the_likelihood_of_two_flat_experts(two):
    kw = {**SEARCH, "tol": 1e-9}
    tree, flat = MixtureOfExperts(branches=(2, 2), **kw).fit(X, Y), MixtureOfExperts(2, **kw).fit(X,
                                                                                                  Y)
    assert (np.diff(tree.history_) >= -1e-9).all() and tree.history_[-1] >= flat.history_[-1] - 1e-6
    assert tree.gates(X).shape == (300, 4) and [level.shape for level in tree.gate_coef_] == [
        (2, 1), (2, 2, 1)
    ]
    alone = MixtureOfExperts(branches=(2,)).fit(X, Y)
    np.testing.assert_allclose(alone.history_[-1], two.history_[-1], atol=1e-3)
    np.testing.assert_allclose(np.sort(alone.predict(X)), np.sort(two.predict(X)), atol=1e-3)


@SLOW
def test_softmax_experts_learn_what_one_cannot():
    x = np.random.default_rng(7).normal(size=(200, 1))
    label = np.where(np.abs(x[:, 0]) < 0.7, "inner", "outer")
    label[:4] = label[5]  # not separable
    y = label.astype(object)
    y[10:20] = None
    estimator = MixtureOfExpertsClassifier(2, n_init=1).fit(x, y)
    assert estimator.score(x, label) > 0.9  # one can tell two thirds
    assert (np.diff(estimator.history_) >= -1e-9).all() and list(estimator.classes_) == ["inner", "outer"]
    assert estimator.coef_.shape == (2, 1, 1) and estimator.intercept_.shape == (2, 1)
    p = 1 / (1 + np.exp(-(x @ estimator.coef_[:, 0].T + estimator.intercept_[:, 0])))
    np.testing.assert_allclose(estimator.predict_proba(x)[:, 1], (estimator.gates(x) * p).sum(1), atol=1e-9)
    chosen = np.where(label == "outer", 1, 0)
    np.testing.assert_allclose(estimator.log_prob(x, label),
                               np.log(estimator.predict_proba(x)[np.arange(200), chosen]), atol=1e-9)
    np.testing.assert_allclose(estimator.responsibilities(x, label).sum(1), 1.0)


@SLOW
def test_experts_of_classes_do_not_learn_noise_by_heart():
    random = np.random.default_rng(8)
    x, y = random.normal(size=(300, 2)), random.integers(0, 2, 300)
    estimator = MixtureOfExpertsClassifier(2, n_init=1).fit(x[:40], y[:40])
    assert estimator.log_prob(x[40:], y[40:]).mean() > np.log(0.5) - 0.1
    assert estimator.gate_scale == estimator.weight_scale == 1.0


@SLOW
def test_one_softmax_expert_is_logistic_regression():
    x = np.random.default_rng(5).normal(size=(300, 2))
    y = (x @ [1.0, -1.0] + np.random.default_rng(6).logistic(size=300) > 0).astype(int)
    ours = MixtureOfExpertsClassifier(1, prior=False, tol=1e-14).fit(x, y)
    peer = LogisticRegression(C=np.inf, tol=1e-10).fit(x, y)
    np.testing.assert_allclose(ours.coef_[0], peer.coef_, atol=1e-4)


@SLOW
def test_an_estimator_works_in_pipelines_and_searches_and_survives_pickling(two):
    search = GridSearchCV(make_pipeline(StandardScaler(), MixtureOfExperts()),
                          {"mixtureofexperts__n_experts": [1, 2]}, cv=3).fit(X, Y)
    assert search.best_params_ == {"mixtureofexperts__n_experts": 2}
    assert (pickle.loads(pickle.dumps(two)).predict(X) == two.predict(X)).all()
    assert (clone(two).fit(X, Y).predict(X) == two.predict(X)).all()


# Fits of flexmix and mixtools

REFERENCES = {
    "moe_mcycle": (MixtureOfExperts(3, **SEARCH), lambda t: (t[["times"]], t["accel"])),
    "moe_npreg": (MixtureOfExperts(2, **SEARCH), lambda t: (t[["x"]], t["yn"])),
    "mixreg_npreg": (MixtureOfExperts(2, gate=False, **SEARCH),
                     lambda t: (np.c_[t["x"], t["x"] ** 2], t["yn"])),
    "mixreg_tonedata": (MixtureOfExperts(2, gate=False, **SEARCH),
                        lambda t: (t[["stretchratio"]], t["tuned"])),
}


@pytest.mark.parametrize("name", [name if name == "mixreg_tonedata"
                                  else pytest.param(name, marks=SLOW) for name in REFERENCES])
def test_the_likelihoods_of_flexmix_and_mixtools_are_reached(shared_data, name):
    reported = json.loads((shared_data / "fits" / f"{name}.json").read_text())
    estimator, columns = REFERENCES[name]
    x, y = columns(pd.read_csv(shared_data / reported["dataset"]))
    estimator.fit(x, y)
    best = max(reported["loglik"], reported.get("mixtools", reported)["loglik"])
    found = estimator.log_prob(x, y).sum()
    assert estimator.converged_ and found >= best - 1e-5, f"{found} < {best}"
    np.testing.assert_allclose(estimator.history_[-1], found, rtol=1e-9)
    assert estimator.n_parameters_ == reported.get("df", estimator.n_parameters_)
    if name == "mixreg_tonedata":  # the one maximum, as printed by mixtools
        order, peer = np.argsort(estimator.shares_)[::-1], reported["mixtools"]
        np.testing.assert_allclose(estimator.shares_[order], peer["lambda"], atol=1e-4)
        np.testing.assert_allclose(np.c_[estimator.intercept_, estimator.coef_][order].T,
                                   peer["beta_columns_are_components"], atol=1e-4)
        np.testing.assert_allclose(estimator.scale_[order], peer["sigma"], rtol=1e-3)


# Bad input


@pytest.mark.parametrize(
    ("estimator", "x", "y", "words"),
    [
        (MixtureOfExperts(0), X, Y, "n_experts=0.*at least 1"),
        (MixtureOfExperts(branches=(2, 1)), X, Y, r"branches=\(2, 1\).*at least 2"),
        (MixtureOfExperts(branches=(2, 2), gate=False), X, Y,
         "gate=False.*a tree of experts needs gates"),
        (MixtureOfExperts(2, scale=0.0), X, Y, "scale=0.0.*above 0"),
        (MixtureOfExperts(4), X[:3], Y[:3], "n_experts=4.*only 3 distinct rows .n_samples=3"),
        (MixtureOfExperts(branches=(2, 2)), X[:3], Y[:3],
         r"branches=\(2, 2\).*only 3 distinct rows"),
        (MixtureOfExperts(2), X[:1], Y[:1], "n_samples=1"),
        (MixtureOfExperts(2, prior=False), X[:4], Y[:4],
         "n_samples=4: 2 experts with 2 coefficients.*prior=True"),
        (MixtureOfExperts(2, prior=False), np.c_[X, np.ones(300)], Y,
         "column 1 of X is constant.*prior=True"),
        (MixtureOfExperts(2, prior=False), X, np.ones(300), "y is constant"),
        (MixtureOfExperts(2), np.where(np.arange(300) == 3, nan, X.T).T, Y,
         "column 0 is missing in row 3"),
        (MixtureOfExperts(2), np.full((5, 2), nan), Y[:5], "every value of X is missing"),
        (MixtureOfExperts(2), X, np.full(300, nan), "every value of y is missing"),
        (MixtureOfExperts(2), X, None, "requires y"),
        (MixtureOfExperts(2), X, Y[:7], "inconsistent numbers of samples"),
        (MixtureOfExpertsClassifier(2), X, np.zeros(300, int), "y has 1 class, 0"),
        (MixtureOfExpertsClassifier(5), X[:4], np.arange(4) % 2,
         "n_experts=5.*only 4 distinct rows"),
    ],
)
def test_bad_input_is_refused_by_name(estimator, x, y, words):
    with pytest.raises(ValueError, match=words):
        estimator.fit(x, y)


def test_an_expert_without_noise_is_refused_where_the_likelihood_has_no_maximum():
    x = np.random.default_rng(8).normal(size=(300, 3))
    with pytest.raises(probml.Refusal, match="(?s)collapsed.*prior"):
        MixtureOfExperts(1, prior=False).fit(x, x @ [1.0, 2.0, 3.0])


@SLOW
@pytest.mark.filterwarnings("ignore::probml.ConvergenceWarning")  # a gate parts seven rows for good
def test_experts_that_collapse_onto_a_few_rows_are_discarded_and_reported():
    estimator = MixtureOfExperts(2, prior=False).fit(X[:7], Y[:7])
    assert estimator.scale_.min() > 1e-3 and "collapsed and were discarded" in estimator.fit_.status


def test_what_an_estimator_has_not_is_said(two):
    with pytest.raises(AttributeError, match="shares.*gates"):
        two.shares_  # noqa: B018
    with pytest.raises(AttributeError, match="responsibilities"):
        two.predict_proba  # noqa: B018


def test_constant_and_collinear_columns_change_nothing_under_a_prior(two):
    for other in (np.full((300, 1), 7.0), 2 * X):
        estimator = MixtureOfExperts(2).fit(np.c_[X, other], Y)
        np.testing.assert_allclose(estimator.predict(np.c_[X, other]), two.predict(X), atol=0.02)
    assert np.ptp(estimator.coef_ @ [1.0, 2.0] - two.coef_[:, 0]) < 0.02
