"""Support vector machines: both estimators against LIBSVM by hand, e1071 and the conditions of a maximum,
the linear machine's own solver, the loss as a model."""

import json

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    make_classification,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import probml
from contract import contract
from probml.models import SupportVectorMachine, SupportVectorRegression
from probml.models.kernels.interior_point import hinge, solution
from probml.models.kernels.support_vectors import Kernel

nan = np.nan
X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"], dtype=object)[Y]
U, V = load_diabetes(return_X_y=True)


@pytest.mark.slow
@pytest.mark.one_in(3)
@contract(SupportVectorMachine(gamma="auto", tol=1e-10),
          SupportVectorRegression(gamma="auto", tol=1e-10))
def test_both_estimators_keep_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


# Agreement


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"kernel": "linear"},
        {"kernel": "poly", "coef0": 1.0, "degree": 2},
        {"kernel": "sigmoid", "gamma": 0.01},
        {"C": 10.0, "gamma": "auto", "class_weight": "balanced", "decision_function_shape": "ovo"},
        {"class_weight": {"setosa": 3.0}},
    ],
    ids=["rbf", "linear", "poly", "sigmoid", "balanced pairs", "weights"],
)
def test_classes_are_parted_as_svc_does(settings):
    peer, ours = (SVC(tol=1e-8, **settings).fit(X, NAMES),
                  SupportVectorMachine(tol=1e-6, **settings).fit(X, NAMES))
    np.testing.assert_allclose(ours.decision_function(X), peer.decision_function(X), atol=1e-3)
    np.testing.assert_array_equal(ours.support_, peer.support_)
    np.testing.assert_array_equal(ours.n_support_, peer.n_support_)
    np.testing.assert_allclose(ours.dual_coef_, peer.dual_coef_, atol=1e-3)
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=1e-3)
    np.testing.assert_array_equal(ours.predict(X), peer.predict(X))
    if settings.get("kernel") == "linear":
        np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-3)


def test_two_classes_and_weighted_rows_are_parted_as_svc_does():
    x, y = load_breast_cancer(return_X_y=True)
    x, weights = (StandardScaler().fit_transform(x),
                  np.random.default_rng(0).integers(3, size=len(y)).astype(float))
    peer = SVC(C=2.0, gamma=0.05, tol=1e-8).fit(x, y, sample_weight=weights)
    ours = SupportVectorMachine(C=2.0, gamma=0.05).fit(x, y, sample_weight=weights)
    # at the tolerance of both defaults
    np.testing.assert_allclose(ours.decision_function(x), peer.decision_function(x), atol=2e-3)
    finer = clone(ours).set_params(tol=1e-6).fit(x, y, sample_weight=weights)
    np.testing.assert_allclose(finer.decision_function(x), peer.decision_function(x), atol=1e-4)
    # SVC numbers rows without those of weight 0
    np.testing.assert_array_equal(finer.support_vectors_, peer.support_vectors_)
    np.testing.assert_array_equal(finer.support_vectors_, x[finer.support_])
    np.testing.assert_allclose(finer.dual_coef_, peer.dual_coef_, atol=1e-4)


@pytest.mark.parametrize("settings", [{"C": 10.0, "epsilon": 5.0},
                                      {"kernel": "linear", "epsilon": 1.0}, {"epsilon": 400.0}])
def test_numbers_are_predicted_as_svr_does(settings):
    x = StandardScaler().fit_transform(U)
    peer, ours = (SVR(tol=1e-8, **settings).fit(x, V),
                  SupportVectorRegression(tol=1e-6, **settings).fit(x, V))
    np.testing.assert_allclose(ours.predict(x), peer.predict(x), atol=1e-3)
    np.testing.assert_array_equal(ours.support_, peer.support_)
    np.testing.assert_allclose(ours.dual_coef_, peer.dual_coef_, atol=1e-3)
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=1e-3)


def test_many_steps_leave_out_what_is_settled_and_end_where_svc_does():
    x, y = make_classification(400, 20, n_informative=10, flip_y=0.1, class_sep=0.7, random_state=0)
    peer, ours = SVC(C=100.0, tol=1e-8).fit(x, y), SupportVectorMachine(C=100.0, tol=1e-6).fit(x, y)
    assert ours.converged_ and ours.n_iter_[0] > 2000
    np.testing.assert_array_equal(ours.support_, peer.support_)
    np.testing.assert_allclose(ours.decision_function(x), peer.decision_function(x), atol=1e-3)


@pytest.mark.slow
def test_digits_are_read_as_svc_reads_them():
    x, y = load_digits(return_X_y=True)
    peer, ours = SVC(tol=1e-6).fit(x[:1200], y[:1200]), SupportVectorMachine(tol=1e-5).fit(x[:1200],
                                                                                           y[:1200])
    np.testing.assert_array_equal(ours.support_, peer.support_)
    np.testing.assert_allclose(ours.decision_function(x[1200:]), peer.decision_function(x[1200:]),
                               atol=1e-3)


def reference(shared_data, name):
    fits = json.loads((shared_data / "fits" / f"svm_{name}.json").read_text())["fits"]
    if name == "iris":
        table = pd.read_csv(shared_data / "classic" / "iris.csv").query("Species != 'setosa'")
        return fits, table.iloc[:, :4].to_numpy(), np.where(table["Species"] == "versicolor", 1, 0)
    table = pd.read_csv(shared_data / "classic" / "esl_mixture_train.csv")
    return fits, table[["x1", "x2"]].to_numpy(), 1 - table["y"].to_numpy()


@pytest.mark.parametrize("name", ["iris", "esl_mixture"])
def test_the_machines_of_e1071_are_found(name, shared_data):
    fits, x, y = reference(shared_data, name)
    for fit in fits:
        kernel = {"linear": "linear", "radial": "rbf"}[fit["kernel"]]
        tol = 1e-6 if fit["C"] < 1000 else 1e-3  # finer, LIBSVM's steps would not end
        ours = SupportVectorMachine(fit["C"], kernel=kernel, gamma=fit["gamma"], tol=tol).fit(x, y)
        sums, objective = ours.decision_function(x), ours.dual_objective_[0]
        assert ours.converged_ and np.mean((sums > 0) == y) == pytest.approx(
            fit["training_accuracy"], abs=0.006
        )
        if fit["C"] < 1000:
            assert len(ours.support_) == fit["n_sv"]
            scale = max(1.0, fit["C"] / 10)  # LIBSVM holds kernel values in float32
            np.testing.assert_allclose(sums[:10], fit["decision_first10"], atol=1e-3 * scale)
            np.testing.assert_allclose(-ours.intercept_[0], fit["rho"], atol=1e-3 * scale)
            np.testing.assert_allclose(objective, fit["dual_objective"], rtol=1e-6)
            continue
        loss = np.maximum(1 - np.where(y == 1, 1, -1) * sums, 0.0).sum()
        primal = 0.5 * (ours.coef_**2).sum() + fit["C"] * loss
        np.testing.assert_allclose(objective, primal, rtol=1e-4)
        assert objective == pytest.approx(fit["dual_objective"], rel=1e-4)
        np.testing.assert_allclose(sums[:10], fit["decision_first10"], atol=0.05)
        assert abs(len(ours.support_) - fit["n_sv"]) <= 2


# The dual


def test_the_solution_keeps_the_conditions_of_optimality():
    rng = np.random.default_rng(0)
    x, cost = rng.normal(size=(90, 3)), 0.7
    y = (x[:, 0] + rng.normal(size=90) > 0).astype(int)
    estimator = SupportVectorMachine(C=cost, gamma=0.5, tol=1e-8).fit(x, y)
    beta = np.zeros(90)
    beta[estimator.support_] = estimator.dual_coef_[0]
    sign = np.where(y == 1, 1.0, -1.0)
    kernel = np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(2))
    assert abs(beta.sum()) < 1e-9 and (beta * sign >= 0).all() and (beta * sign <= cost).all()
    margin, alpha = sign * estimator.decision_function(x), beta * sign
    np.testing.assert_allclose(estimator.decision_function(x), kernel @ beta + estimator.intercept_,
                               atol=1e-12)
    assert (margin[alpha == 0] >= 1 - 1e-6).all() and (margin[alpha == cost] <= 1 + 1e-6).all()
    np.testing.assert_allclose(margin[(alpha > 0) & (alpha < cost)], 1.0, atol=1e-6)
    primal = 0.5 * beta @ kernel @ beta + cost * np.maximum(1 - margin, 0).sum()
    np.testing.assert_allclose(estimator.dual_objective_[0], primal, rtol=1e-6)


@pytest.mark.parametrize("cost", [1e-3, 1.0, 100.0, 1e4])
def test_an_interior_point_leaves_no_gap_between_a_linear_machine_and_its_dual(cost):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(120, 3)) * [1.0, 30.0, 0.1]
    sign, costs = np.sign(x[:, 0] + rng.normal(size=120)), cost * rng.uniform(0.5, 2.0, 120)
    found = hinge(x, sign, costs, 100)
    beta = found.beta * sign
    assert (beta >= 0).all() and (beta <= costs * (1 + 1e-12)).all() and found.turns < 40
    assert abs(found.beta.sum()) < 1e-8 * beta.sum()
    w = found.beta @ x
    primal = 0.5 * w @ w + costs @ np.maximum(0, 1 - sign * (x @ w + found.bias))
    np.testing.assert_allclose(found.objective, primal, rtol=1e-6)
    # whatever the plane, no other intercept costs less
    for other in found.bias + np.array([-0.1, -1e-3, 1e-3, 0.1]):
        assert costs @ np.maximum(0, 1 - sign * (x @ w + other)) + 0.5 * w @ w >= primal - 1e-9 * cost
    worse = solution(x, sign, costs, 0.9 * found.beta, 0)
    assert worse.objective < found.objective and worse.gap > 1e-3


def test_separable_classes_have_the_widest_margin():
    x, y = X[:100, 2:], Y[:100]
    ours = SupportVectorMachine(C=1e6, kernel="linear", tol=1e-8).fit(x, y)
    margin = np.where(y == 1, 1, -1) * ours.decision_function(x)
    np.testing.assert_allclose(margin.min(), 1.0, atol=1e-6)
    width = 1 / np.linalg.norm(ours.coef_)
    gap = np.linalg.norm(x[y == 0][:, None] - x[y == 1][None], axis=2).min()
    assert width <= gap / 2 + 1e-6 and (ours.predict(x) == y).all()


def test_results_are_those_of_float64_where_jax_has_float32():
    import jax

    wide = SupportVectorMachine(tol=1e-6).fit(X, Y)
    with jax.enable_x64(False):
        narrow = SupportVectorMachine(tol=1e-6).fit(X, Y)
    np.testing.assert_array_equal(wide.decision_function(X), narrow.decision_function(X))


def test_kernels_are_their_formulas():
    a, b = (np.random.default_rng(0).normal(size=(4, 3)) + 1e3,
            np.random.default_rng(1).normal(size=(5, 3)) + 1e3)
    np.testing.assert_allclose(Kernel("rbf", 0.3)(a, b),
                               np.exp(-0.3 * ((a[:, None] - b) ** 2).sum(2)), rtol=1e-9)
    a, b = a - 1e3, b - 1e3
    np.testing.assert_allclose(Kernel("linear")(a, b), a @ b.T)
    np.testing.assert_allclose(Kernel("poly", 0.3, 3, 1.0)(a, b), (0.3 * a @ b.T + 1) ** 3)
    np.testing.assert_allclose(Kernel("sigmoid", 0.3, 3, 1.0)(a, b), np.tanh(0.3 * a @ b.T + 1))


# The loss as a model


def test_the_fit_has_the_classes_and_a_loss():
    estimator = SupportVectorMachine().fit(X, NAMES)
    fit, data = estimator.fit_, estimator.as_data(X)
    np.testing.assert_array_equal(fit.predict(data), estimator.predict(X))
    chance = fit.predict_proba(data)  # exp(−hinge), over both classes
    np.testing.assert_array_equal(np.asarray(fit.labels("y"))[chance.argmax(1)], estimator.predict(X))
    with pytest.raises(probml.Refusal, match="needs the likelihood of a row.*'hinge'"):
        probml.compare({"machine": fit}, {**data, "y": NAMES})
    assert "loss (not a likelihood)" in str(fit.model.explain(estimator.as_data(X, Y)))


def test_the_fit_of_numbers_holds_the_loss():
    estimator = SupportVectorRegression(C=2.0, epsilon=1.0).fit(U, V)
    loss = 2.0 * np.maximum(np.abs(V - estimator.predict(U)) - 1.0, 0.0).sum()
    np.testing.assert_allclose(estimator.fit_.log_joint(estimator.as_data(U, V)), -loss, rtol=1e-9)
    np.testing.assert_allclose(estimator.fit_.log_prob(estimator.as_data(U, V)).sum(), -loss, rtol=1e-5)


# Manners


def test_estimators_work_in_pipelines_and_searches():
    line = make_pipeline(StandardScaler(), SupportVectorMachine())
    search = GridSearchCV(line, {"supportvectormachine__C": [0.1, 10.0]}, cv=2).fit(X, Y)
    assert search.best_score_ > 0.9
    frame = pd.DataFrame(X, columns=list("abcd"))
    estimator = SupportVectorMachine().fit(frame, NAMES)
    np.testing.assert_array_equal(estimator.predict(frame), estimator.predict(frame.astype(np.float64)))
    assert list(estimator.feature_names_in_) == list("abcd") and not hasattr(estimator, "predict_proba")


def test_a_run_that_stops_at_its_limit_says_so():
    with pytest.warns(RuntimeWarning, match="max_iter=2.*Standardise"):
        estimator = SupportVectorMachine(max_iter=2).fit(X, Y)
    assert not estimator.converged_


def holed(row, column):
    out = X.copy()
    out[row, column] = nan
    return out


@pytest.mark.parametrize(
    ("estimator", "x", "y", "words"),
    [
        (SupportVectorMachine(kernel="laplace"), X, Y,
         "kernel='laplace'.*'linear', 'poly', 'rbf', 'sigmoid'"),
        (SupportVectorMachine(C=0), X, Y, "C=0.*above 0"),
        (SupportVectorMachine(gamma="wide"), X, Y, "gamma='wide'.*'scale'"),
        (SupportVectorMachine(gamma=-1), X, Y, "gamma=-1"),
        (SupportVectorMachine(degree=-1), X, Y, "degree=-1"),
        (SupportVectorMachine(degree=2.5), X, Y, "degree=2.5.*integer"),
        (SupportVectorMachine(kernel="poly", gamma=1.0), 1e120 * X, Y,
         "kernel of row 0 with itself is inf, which is too large .*Standardise"),
        (SupportVectorMachine(coef0=nan), X, Y, "coef0=nan.*a number"),
        (SupportVectorMachine(tol=0), X, Y, "tol=0"),
        (SupportVectorMachine(class_weight="heavy"), X, Y, "class_weight='heavy'.*balanced"),
        (SupportVectorMachine(class_weight={7: 2.0}), X, Y, "7 is not one of the classes.*0, 1, 2 as keys"),
        (SupportVectorMachine(class_weight={1: -2.0}), X, Y, "numbers above 0"),
        (SupportVectorMachine(decision_function_shape="all"), X, Y,
         "decision_function_shape='all'"),
        (SupportVectorMachine(), X, np.zeros(150), "greater than one; y has 1 class"),
        (SupportVectorMachine(), X, np.linspace(0, 1, 150), "continuous"),
        (SupportVectorMachine(), X, np.where(Y == 2, None, NAMES), "y is missing in row 100"),
        (SupportVectorMachine(), X, None, "requires y"),
        (SupportVectorMachine(), holed(3, 2), Y, "column 2 is missing in row 3"),
        (SupportVectorRegression(epsilon=-1), U, V, "epsilon=-1"),
        (SupportVectorRegression(), U, np.where(V > 300, nan, V), "NaN"),
        (SupportVectorRegression(kernel="cosine"), U, V, "kernel='cosine'"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(estimator, x, y, words):
    with pytest.raises(ValueError, match=words):
        estimator.fit(x, y)


def test_only_a_linear_kernel_has_coefficients():
    estimator = SupportVectorMachine().fit(X, Y)
    with pytest.raises(AttributeError, match="kernel='rbf'"):
        estimator.coef_  # noqa: B018
    with pytest.raises(AttributeError, match="not a likelihood"):
        estimator.predict_proba  # noqa: B018


@pytest.mark.parametrize("estimator", [SupportVectorMachine, SupportVectorRegression])
def test_a_row_of_weight_2_counts_twice_for_the_width_of_the_kernel(estimator):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(20, 2)) * np.repeat([[5.0], [1.0]], 10, 0), np.arange(20) % 2
    weight = np.repeat([1, 2], 10)
    one = estimator().fit(x, y, sample_weight=weight)
    other = estimator().fit(x.repeat(weight, 0), y.repeat(weight))
    np.testing.assert_allclose(one.kernel_.gamma, other.kernel_.gamma)
    np.testing.assert_allclose(one.decision_function(x) if estimator is SupportVectorMachine else one.predict(x),
                               other.decision_function(x) if estimator is SupportVectorMachine else other.predict(x),
                               atol=5e-3)
