"""Classes parted by planes: agreement with scikit-learn, R's glm and multinom, theory, units, bad
input."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
import jax
from scipy import optimize
from sklearn import datasets, discriminant_analysis, exceptions, linear_model, svm
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import compilations
import probml
from contract import DENSE, contract
from probml.models import (
    FisherDiscriminant,
    GaussianDiscriminant,
    LeastSquaresClassifier,
    LinearSVM,
    LogisticRegression,
    logistic_regression,
    softmax_regression,
)

RAW, CANCER = datasets.load_breast_cancer(return_X_y=True)
UNITS = StandardScaler().fit_transform(RAW)
X, Y = datasets.load_iris(return_X_y=True)
EXACT = {"tol": 1e-12, "max_iter": 50_000}


DEGENERATE = ("some column is constant in every class, or collinear: without a prior there is no "
              "maximum of the likelihood")
EXPECTED = {
    "FisherDiscriminant": dict.fromkeys(
        ("check_sample_weights_shape", "check_sample_weights_not_overwritten", DENSE), DEGENERATE
    ),
}


@pytest.mark.slow
@pytest.mark.one_in(3)
@contract(LogisticRegression(), LinearSVM(), LinearSVM(loss="hinge"), LeastSquaresClassifier(),
          FisherDiscriminant(), expected=EXPECTED)
def test_every_linear_estimator_keeps_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


# Agreement with scikit-learn


@pytest.mark.parametrize("c", [0.01, 1.0, 100.0])
def test_logistic_coefficients_are_those_of_scikit_learn(c):
    ours = LogisticRegression(C=c).fit(UNITS, CANCER)
    peer = linear_model.LogisticRegression(C=c, solver="newton-cholesky", **EXACT).fit(UNITS,
                                                                                       CANCER)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(UNITS), peer.predict_proba(UNITS), atol=1e-6)


def test_softmax_coefficients_are_those_of_scikit_learn_at_any_offset():
    peer = linear_model.LogisticRegression(C=2.0, **EXACT).fit(X, Y)
    for offset in (0.0, 1e6):
        ours = LogisticRegression(C=2.0).fit(X + offset, Y)
        np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-5)
        np.testing.assert_allclose(ours.predict_proba(X + offset), peer.predict_proba(X), atol=1e-5)


def test_columns_in_any_units_are_climbed_to_the_top():
    ours = LogisticRegression(C=0.5).fit(RAW, CANCER)
    peer = linear_model.LogisticRegression(C=0.5, solver="newton-cholesky", **EXACT).fit(RAW,
                                                                                         CANCER)
    assert ours.converged_
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-8)


def test_row_and_class_weights_count_as_they_do_there():
    weights = np.random.default_rng(0).uniform(0, 2, len(CANCER))
    for mode in (None, "balanced", {0: 3.0, 1: 0.5}):
        ours = LogisticRegression(class_weight=mode).fit(UNITS, CANCER, weights)
        peer = linear_model.LogisticRegression(class_weight=mode, **EXACT).fit(UNITS, CANCER,
                                                                               weights)
        np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-5)


def test_squared_hinge_and_hinge_are_those_of_scikit_learn():
    ours = LinearSVM(C=0.1).fit(UNITS, CANCER)
    peer = svm.LinearSVC(C=0.1, tol=1e-12, max_iter=10**6, intercept_scaling=1e4).fit(UNITS, CANCER)
    np.testing.assert_allclose(ours.decision_function(UNITS), peer.decision_function(UNITS),
                               atol=1e-3)
    ours, peer = (LinearSVM(C=0.1, loss="hinge").fit(UNITS, CANCER),
                  svm.SVC(C=0.1, kernel="linear", tol=1e-9).fit(UNITS, CANCER))
    np.testing.assert_allclose(ours.decision_function(UNITS), peer.decision_function(UNITS),
                               atol=1e-3)
    np.testing.assert_array_equal(ours.support_, np.sort(peer.support_))


def test_a_linear_svm_that_stops_early_warns_by_the_class_of_both_libraries():
    for kind in (probml.ConvergenceWarning, exceptions.ConvergenceWarning):
        with pytest.warns(kind, match="LinearSVM stopped after"):
            LinearSVM(loss="hinge", C=1e3, max_iter=1).fit(UNITS, CANCER)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_a_squared_hinge_has_its_minimum_in_any_unit(unit):
    """By BFGS in coordinates in which a column has a spread of 1, where the penalty is β²/2C'."""
    x, sign = X[50:, 2:], np.where(Y[50:] == 2, 1.0, -1.0)
    scaled = (x - x.mean(0)) / x.std(0)
    penalty = (unit * x.std(0)) ** -2.0

    def loss(u):
        short = np.maximum(0, 1 - sign * (scaled @ u[:2] + u[2]))
        slope = -2 * (short * sign) @ np.column_stack([scaled, np.ones(len(x))])
        return (0.5 * penalty @ u[:2] ** 2 + (short**2).sum(),
                slope + np.append(penalty * u[:2], 0.0))

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        estimator = LinearSVM().fit(unit * x, Y[50:])
    found = np.append(estimator.coef_[0] * unit * x.std(0),
                      estimator.intercept_ + unit * x.mean(0) @ estimator.coef_[0])
    assert estimator.converged_
    words = [str(one.message) for one in said]
    if unit < 1:  # weights next to 0: n rows of loss 1, and no sign is told
        np.testing.assert_allclose(loss(found)[0], len(x), rtol=1e-9)
        assert len(words) == 1 and "Standardise the columns, or raise C=1" in words[0]
    else:
        least = optimize.minimize(loss, np.zeros(3), jac=True, tol=1e-12).fun
        assert not words
        np.testing.assert_allclose(loss(found)[0], least, rtol=1e-8)


@pytest.mark.parametrize("off", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("double", [True, False])
def test_nearly_collinear_columns_are_told_apart_by_the_shared_covariance(off, double):
    """What is read of a precision matrix loses no more digits than its inverse has."""
    random = np.random.default_rng(0)
    x = X[:, :2] + 0.0
    x = np.column_stack([x, x[:, 0] + off * random.normal(size=len(x))])
    with jax.enable_x64(double):
        ours = FisherDiscriminant().fit(x, Y).predict_proba(x)
    peer = discriminant_analysis.LinearDiscriminantAnalysis(solver="lsqr").fit(x, Y)
    np.testing.assert_allclose(ours, peer.predict_proba(x), atol=2e-3)


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_the_fit_of_a_linear_machine_decides_as_its_estimator_does(loss):
    for x, y in ((UNITS, CANCER), (X, Y)):
        estimator = LinearSVM(C=0.3, loss=loss).fit(x, y)
        np.testing.assert_array_equal(estimator.fit_.predict(estimator.as_data(x), "y"), estimator.predict(x))
        if estimator.decision_function(x).ndim == 1:  # classes alike, and the loss
            lost = np.maximum(np.array([[1.0], [-1.0]]) * estimator.decision_function(x) + 1.0, 0.0)
            lost = lost if loss == "hinge" else lost**2
            np.testing.assert_allclose(estimator.fit_.predict_proba(estimator.as_data(x), "y"),
                                       np.exp(-lost).T / np.exp(-lost).sum(0)[:, None], atol=1e-5)
        with pytest.raises(probml.Refusal, match="log_prob needs a likelihood"):
            estimator.fit_.log_prob(estimator.as_data(x, y))


def test_least_squares_of_classes_is_ridge_classification():
    for x, y in ((UNITS, CANCER), (X, Y)):
        ours, peer = (LeastSquaresClassifier(alpha=2.0).fit(x, y),
                      linear_model.RidgeClassifier(alpha=2.0).fit(x, y))
        np.testing.assert_allclose(ours.coef_, np.atleast_2d(peer.coef_), atol=1e-8)
        np.testing.assert_array_equal(ours.predict(x), peer.predict(x))


def test_fishers_directions_are_those_of_scikit_learn():
    ours, peer = (FisherDiscriminant().fit(X, Y),
                  discriminant_analysis.LinearDiscriminantAnalysis(solver="eigen").fit(X, Y))
    sign = np.sign((ours.scalings_ * peer.scalings_[:, :2]).sum(0))
    np.testing.assert_allclose(ours.scalings_ * sign, peer.scalings_[:, :2], atol=1e-8)
    np.testing.assert_allclose(ours.explained_variance_ratio_, peer.explained_variance_ratio_,
                               atol=1e-10)
    np.testing.assert_array_equal(ours.predict(X), peer.predict(X))
    spread = ours.transform(X) - ours.transform(ours.means_)[Y]
    np.testing.assert_allclose(spread.T @ spread / len(X), np.eye(2), atol=1e-8)


def test_another_penalty_compiles_nothing():
    LogisticRegression(C=1.0).fit(UNITS, CANCER)
    with compilations.counted() as found:
        GridSearchCV(LogisticRegression(), {"C": [0.03, 0.3]},
                     cv=[(np.arange(569), np.arange(50))]).fit(UNITS, CANCER)
    assert len(found) == 0


def test_it_stands_in_pipelines_and_searches():
    search = GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()),
                          {"logisticregression__C": [1e-6, 1.0]}, cv=3)
    assert search.fit(RAW, np.array(["bad", "good"])[CANCER]).best_params_ == {
        "logisticregression__C": 1.0
    }
    assert set(search.predict(RAW[:20])) <= {"bad", "good"}
    assert clone(LogisticRegression(C=3.0)).C == 3.0


# Theory


@pytest.mark.slow
def test_logistic_regression_and_normal_classes_of_one_covariance_meet_as_rows_grow():
    rng = np.random.default_rng(0)
    root, away = np.linalg.cholesky(np.array([[1.0, 0.4], [0.4, 2.0]])), []
    truth = np.linalg.solve(root @ root.T, [1.0, -1.0])
    for n in (2_000, 200_000):
        y = np.arange(n) % 2
        x = rng.normal(size=(n, 2)) @ root.T + y[:, None] * np.array([1.0, -1.0])
        logistic = LogisticRegression(C=np.inf).fit(x, y)
        normal = FisherDiscriminant().fit(x, y)
        away.append(max(np.abs(logistic.coef_ - normal.coef_).max(),
                        np.abs(logistic.intercept_ - normal.intercept_).max()))
        np.testing.assert_allclose(logistic.coef_[0], truth, atol=10 / np.sqrt(n))
    assert away[1] < 0.02 and away[1] < 0.4 * away[0]


def test_averaging_over_a_posterior_softens_probabilities():
    estimator = LogisticRegression(engine=probml.Laplace()).fit(UNITS[:80, :5], CANCER[:80])
    averaged, plug = (estimator.predict_proba(UNITS[:, :5]),
                      estimator.fit_.predict_proba(estimator.as_data(UNITS[:, :5]), "y", plug_in=True))
    assert (np.abs(averaged - 0.5) <= np.abs(plug - 0.5) + 5e-3).mean() > 0.9
    assert np.abs(averaged - plug).max() > 0.01


def test_float32_agrees_with_float64():
    import jax

    estimator = LogisticRegression().fit(RAW + 1e5, CANCER)
    with jax.enable_x64(False):
        single = LogisticRegression().fit(RAW + 1e5, CANCER)
    np.testing.assert_allclose(single.predict_proba(RAW + 1e5), estimator.predict_proba(RAW + 1e5),
                               atol=2e-3)


# Fits of R on real data


def reference(shared_data, name):
    return json.loads((shared_data / "fits" / f"{name}.json").read_text())


def loglik(estimator, x, y):
    return float(
        np.log(estimator.predict_proba(x)[np.arange(len(y)), np.searchsorted(estimator.classes_, y)]).sum()
    )


def test_glm_of_south_african_hearts(shared_data):
    fit = reference(shared_data, "logistic_saheart")
    frame = pd.read_csv(shared_data / "classic/saheart.csv")
    x = frame[["sbp", "tobacco", "ldl", "famhist", "obesity", "alcohol", "age"]].assign(
        famhist=(frame.famhist == "Present") * 1.0
    )
    ours = LogisticRegression(C=np.inf).fit(x, frame.chd)
    np.testing.assert_allclose([*ours.intercept_, *ours.coef_[0]],
                               list(fit["coefficients"].values()), atol=1e-7)
    assert loglik(ours, x, frame.chd) == pytest.approx(fit["loglik"], abs=1e-8)


def test_glm_of_the_mixture_of_esl(shared_data):
    fit = reference(shared_data, "logistic_esl_mixture_train")
    frame = pd.read_csv(shared_data / "classic/esl_mixture_train.csv")
    ours = LogisticRegression(C=np.inf).fit(frame[["x1", "x2"]], frame.y)
    np.testing.assert_allclose([*ours.intercept_, *ours.coef_[0]],
                               list(fit["coefficients"].values()), atol=1e-7)


@pytest.mark.parametrize(
    ("name", "path", "label", "columns"),
    [
        ("softmax_iris", "iris", "Species", None),
        ("softmax_diabetes_reaven_miller", "diabetes_reaven_miller", "class", None),
        ("softmax_penguins_missing", "penguins_missing", "species",
         ["bill_length_mm", "flipper_length_mm"]),
    ],
)
def test_multinom_of_r_is_reached(shared_data, name, path, label, columns):
    fit = reference(shared_data, name)
    frame = pd.read_csv(shared_data / f"classic/{path}.csv").dropna()
    x, y = frame[columns] if columns else frame.drop(columns=label), frame[label].to_numpy(str)
    with warnings.catch_warnings():
        # iris: one class is separated
        warnings.filterwarnings("ignore", r"MAP of model.*has no maximum", RuntimeWarning)
        ours = LogisticRegression(C=np.inf).fit(x, y)
    assert loglik(ours, x, y) >= fit["loglik"] - 1e-5
    assert ours.score(x, y) == pytest.approx(fit["training_accuracy"], abs=1e-9)
    # of the others some classes are separated, and their weights have no maximum
    if name == "softmax_penguins_missing":
        rows = np.column_stack([ours.intercept_, ours.coef_])
        first = list(ours.classes_).index(fit["reference_class"])
        others = [i for i in range(len(ours.classes_)) if i != first]
        np.testing.assert_allclose((rows - rows[first])[others],
                                   fit["coefficients_rows_are_other_classes"], rtol=2e-2, atol=0.2)


def test_error_rates_on_vowels_are_the_published_ones(shared_data):
    fit = reference(shared_data, "classify_esl_vowel")
    train, test = (pd.read_csv(shared_data / f"classic/esl_vowel_{part}.csv")
                   for part in ("train", "test"))
    columns = [name for name in train if name.startswith("x.")]
    softmax = LogisticRegression(C=np.inf).fit(train[columns], train.y)
    assert loglik(softmax, train[columns], train.y) >= fit["softmax"]["loglik_train"] - 1e-4
    estimators = {"softmax": softmax, "lda": FisherDiscriminant(),
                  "qda": GaussianDiscriminant(prior=False)}
    for name, estimator in estimators.items():
        estimator.fit(train[columns], train.y)
        for part, frame in (("train", train), ("test", test)):
            assert 1 - estimator.score(
                frame[columns], frame.y
            ) == pytest.approx(fit[name][f"{part}_error"], abs=1e-9), (name, part)


# Bad input


@pytest.mark.parametrize("estimator", [LogisticRegression(), LinearSVM(), LeastSquaresClassifier(),
                                       FisherDiscriminant()])
def test_one_class_and_labels_that_are_floats_are_refused(estimator):
    with pytest.raises(ValueError, match="class"):
        clone(estimator).fit(UNITS, np.zeros(len(UNITS)))
    with pytest.raises(ValueError, match="[Uu]nknown label type|continuous"):
        clone(estimator).fit(UNITS, UNITS[:, 0])


def test_a_class_missing_in_a_fold_is_one_that_is_not_predicted():
    estimator = LogisticRegression().fit(X[Y < 2], Y[Y < 2])
    assert estimator.classes_.tolist() == [0, 1] and estimator.predict_proba(X).shape == (150, 2)


def test_separated_classes_without_a_penalty_are_said_to_diverge():
    with pytest.warns(probml.ConvergenceWarning, match=r"'beta'.*\[separation\]"):
        estimator = LogisticRegression(C=np.inf).fit(X, Y > 0)
    assert not estimator.converged_


@pytest.mark.parametrize(
    ("estimator", "word"),
    [
        (LogisticRegression(C=0.0), "C="),
        (LinearSVM(loss="hinges"), "loss"),
        (LeastSquaresClassifier(alpha=-1), "alpha"),
        (FisherDiscriminant(n_components=3), "n_components=3"),
    ],
)
def test_parameters_out_of_range_are_named(estimator, word):
    with pytest.raises(ValueError, match=word):
        estimator.fit(X, Y)


def test_cells_that_are_missing_are_named_by_column_and_row():
    holes = X.copy()
    holes[7, 2] = np.nan
    with pytest.raises(probml.DataError, match="column 2.*row 7"):
        LogisticRegression().fit(holes, Y)
    # says how X is distributed: the cell is integrated out
    estimator = FisherDiscriminant().fit(holes, Y)
    assert estimator.score(X, Y) > 0.95


def test_constant_and_collinear_columns_and_few_rows_do_no_harm():
    wide = np.column_stack([UNITS[:, :3], UNITS[:, 0], np.full(len(UNITS), 5.0)])
    estimator = LogisticRegression().fit(wide, CANCER)
    assert estimator.converged_ and np.isfinite(estimator.coef_).all() and estimator.coef_[0, -1] == pytest.approx(
        0, abs=1e-8
    )
    estimator = LogisticRegression().fit(UNITS[[0, 20]], CANCER[[0, 20]])  # one row of each
    assert estimator.predict(UNITS[[0, 20]]).tolist() == CANCER[[0, 20]].tolist()


def test_a_users_own_functions_say_what_their_priors_penalise():
    told = logistic_regression(weight_scale=2.0).explain({"x": X[:, :2], "y": (Y > 0).astype(int)})
    assert "C = 4" in next(record["equals"] for record in told.penalties
                           if record["parameter"] == "beta")
    fit = softmax_regression(states=3).fit({"x": X, "y": Y})
    assert fit.converged and (fit.predict({"x": X}, "y") == Y).mean() > 0.95


def test_three_classes_have_a_posterior_though_their_intercepts_are_flat():
    random = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = random.normal(size=(60, 2)) + 2 * y[:, None] * np.array([1.0, -0.5])
    mode, posterior = (LogisticRegression().fit(x, y),
                       LogisticRegression(engine=probml.Laplace()).fit(x, y))
    # 60 rows: the posterior's mean lies further out than its mode
    np.testing.assert_allclose(posterior.coef_, mode.coef_, rtol=0.2, atol=0.1)
    np.testing.assert_allclose(posterior.predict_proba(x), mode.predict_proba(x), atol=0.1)
    with pytest.raises(probml.Refusal,
                       match=r"LogisticRegression\(C=inf, engine=Laplace.*finite C"):
        LogisticRegression(C=np.inf, engine=probml.Laplace()).fit(x, y)
