"""One table for generative and discriminative fits and estimators of scikit-learn: p(one site | all
else), on rows left out."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import factor, plate, sample

pytest.importorskip("sklearn")
from scipy import stats
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import probml

nan = np.nan


@probml.model
def classes():
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("class", 2):
        mean = sample("mean", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    with probml.rows():
        y = sample("y", dist.Categorical(weights))
        sample("x", dist.Normal(mean[y], 1.0).to_event(1))


@probml.model
def logistic(x):
    beta = sample("beta", dist.Normal(0.0, 1.0).expand([x.shape[-1]]).to_event(1))
    bias = sample("bias", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ beta + bias))


@probml.model
def hinge(x):
    beta = sample("beta", dist.Normal(0.0, 1.0).expand([x.shape[-1]]).to_event(1))
    with probml.rows():
        y = sample("y", dist.Bernoulli(0.5))
        factor("hinge", -(jnp.maximum(1 - (2 * y - 1) * (x @ beta), 0.0) ** 2))


@probml.model
def plane(x):
    beta = sample("beta", dist.Normal(0.0, 3.0).expand([x.shape[-1]]).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(x @ beta, 0.5))


@probml.model
def both():
    mean = sample("mean", dist.Normal(0.0, 1.0))
    with probml.rows():
        x = sample("x", dist.Normal(mean, 1.0))
        sample("y", dist.Normal(0.5 * x, 0.5))


def spots(n=80):
    rng = np.random.default_rng(0)
    y = (rng.random(n) < 0.4).astype(int)
    return rng.normal(size=(n, 2)) + 1.5 * y[:, None], y


@pytest.fixture(scope="module")
def table():
    x, y = spots()
    data = {"x": x, "y": y}
    contestants = {
        "generative": classes().fit(data),
        "discriminative": logistic().fit(data),
        "loss": hinge().fit(data),
        "peer": make_pipeline(StandardScaler(), LogisticRegression()),
        "bare": RidgeClassifier(),
        "bayes": GaussianNB(),
    }
    return probml.compare(contestants, data, target="y", folds=4)


def test_all_kinds_of_contestants_stand_in_one_table(table):
    assert set(table.index) == {"generative", "discriminative", "loss", "peer", "bare", "bayes"}
    assert (table["accuracy"].between(0.7, 1).all() and table.attrs["criterion"] == "accuracy"
            and table.attrs["rows"] == 80)
    missing = table.attrs["missing"]
    assert ("predict_proba" in missing["bare"]["log_score"]
            and "has a loss ('hinge')" in missing["loss"]["brier"])
    assert table.loc[["bare", "loss"], ["log_score", "brier"]].isna().to_numpy().all()
    assert set(missing) == {"bare", "loss"}


def test_an_estimators_scores_are_those_of_cross_validation(table):
    x, y = spots()
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    estimators = {"peer": make_pipeline(StandardScaler(), LogisticRegression()), "bayes": GaussianNB()}
    p = {name: cross_val_predict(estimator, x, y, cv=folds, method="predict_proba")
         for name, estimator in estimators.items()}
    log = {name: np.log(each[np.arange(80), y]) for name, each in p.items()}
    for name, each in p.items():
        brier, right = ((each - np.eye(2)[y]) ** 2).sum(1), each.argmax(1) == y
        np.testing.assert_allclose(table.loc[name, "log_score"], log[name].mean())
        np.testing.assert_allclose(table.loc[name, "se_log_score"], log[name].std() / 80**0.5)
        np.testing.assert_allclose(table.loc[name, ["accuracy", "brier"]].astype(float),
                                   [right.mean(), brier.mean()])
    alone = probml.compare(estimators, {"x": x, "y": y}, target="y", folds=4)
    best, other = alone.index
    away = log[other] - log[best]
    wanted = [away.mean(), away.std() / 80**0.5]
    np.testing.assert_allclose(
        alone.loc[other, ["log_score_diff", "se_log_score_diff"]].astype(float), wanted
    )
    assert alone.loc[best, "log_score_diff"] == 0 and alone.attrs["criterion"] == "log_score"


def test_a_generative_model_is_scored_by_the_posterior_of_its_classes(table):
    x, y = spots()
    logs = np.empty(80)
    for train, test in StratifiedKFold(4, shuffle=True, random_state=0).split(x, y):
        joint = []
        for k in range(2):
            rows = x[train][y[train] == k]
            precision = len(rows) + 1 / 100
            spread = np.sqrt(1 + 1 / precision)
            share = (len(rows) + 1) / (len(train) + 2)
            joint.append(
                np.log(share) + stats.norm(rows.sum(0) / precision, spread).logpdf(x[test]).sum(1)
            )
        joint = np.column_stack(joint)
        logs[test] = joint[np.arange(len(test)), y[test]] - np.logaddexp(*joint.T)
    np.testing.assert_allclose(table.loc["generative", "log_score"], logs.mean(), rtol=1e-6)


def test_numbers_are_predicted_with_density_or_without():
    rng = np.random.default_rng(1)
    x = rng.normal(size=60)
    y = 0.5 * x + 0.5 * rng.normal(size=60)
    columns = np.column_stack([x, np.ones(60)])
    data = {"a": {"x": x, "y": y}, "b": {"x": columns, "y": y}, "c": {"x": columns, "y": y}}
    fits = {"a": both().fit(data["a"]), "b": plane().fit(data["b"]), "c": LinearRegression()}
    table = probml.compare(fits, data, target="y", folds=3, seed=2)
    logs = stats.norm(0.5 * x, 0.5).logpdf(y)
    wanted = [logs.mean(), ((y - 0.5 * x) ** 2).mean() ** 0.5]
    np.testing.assert_allclose(table.loc["a", ["log_score", "rmse"]].astype(float), wanted,
                               rtol=1e-8)
    guess = cross_val_predict(LinearRegression(), columns, y,
                              cv=KFold(3, shuffle=True, random_state=2))
    rmse = ((y - guess) ** 2).mean() ** 0.5
    np.testing.assert_allclose(table.loc["c", ["rmse", "r2"]].astype(float),
                               [rmse, 1 - rmse**2 / y.var()])
    assert (np.isnan(table.loc["c", "log_score"])
            and "LinearRegression has no method log_prob" in table.attrs["missing"]["c"]["log_score"])
    assert (table.attrs["criterion"] == "rmse" and table["rmse_diff"].min() == 0
            and table["se_rmse"].between(0.01, 0.2).all())


@pytest.mark.slow
def test_estimators_tell_their_density_in_units_of_the_answer():
    from probml.models import BayesianLinearRegression, RobustRegression, SmoothingSpline

    rng = np.random.default_rng(3)
    x = rng.normal(size=(80, 1))
    y = 500 + 30 * x[:, 0] + 20 * rng.normal(size=80)
    estimators = {"normal": BayesianLinearRegression(), "curve": SmoothingSpline(5),
                  "robust": RobustRegression(df=5.0)}
    table = probml.compare(estimators, {"x": x, "y": y}, target="y", folds=3)
    logs = np.empty(80)
    for train, test in KFold(3, shuffle=True, random_state=0).split(x):
        mean, std = BayesianLinearRegression().fit(x[train], y[train]).predict(x[test],
                                                                               return_std=True)
        logs[test] = stats.norm(mean, std).logpdf(y[test])
    np.testing.assert_allclose(table.loc["normal", "log_score"], logs.mean(), rtol=1e-6)
    assert table.attrs["missing"] == {} and np.allclose(table["log_score"], logs.mean(), atol=0.1)


def test_labels_tables_and_unlabelled_rows_are_taken():
    x, y = spots()
    names = np.array(["no", "yes"], object)[y]
    names[::10] = None
    data = {"x": x, "y": names}
    table = probml.compare({"fit": classes().fit(data, probml.EM()), "peer": GaussianNB()}, data,
                           target="y", folds=3)
    assert table.attrs["rows"] == 72 and "'y' is missing in 8 rows" in table.attrs["notes"][0]
    assert table["accuracy"].between(0.7, 1).all() and np.isfinite(table["log_score"]).all()
    parts = [(np.arange(60), np.arange(60, 80))]  # of all rows, labelled or not
    half = probml.compare({"peer": GaussianNB()}, data, target="y", folds=parts)
    seen = np.arange(60)[np.arange(60) % 10 > 0]
    right = GaussianNB().fit(x[seen], y[seen]).predict(x[60:]) == y[60:]
    assert half.attrs["rows"] == 18 and half.loc["peer", "accuracy"] == pytest.approx(
        right[np.arange(60, 80) % 10 > 0].mean()
    )
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": names}).dropna()
    again = probml.compare({"peer": GaussianNB()}, frame, target="y", folds=3)
    assert again.loc["peer", "accuracy"] > 0.7


def test_a_contestant_that_cannot_take_the_rows_is_named_with_the_reason():
    x, y = spots(30)
    x[4, 1] = nan
    with pytest.warns(UserWarning, match="'peer' could not be evaluated.*fitting LogisticRegression to the "
                      "training rows, or predicting the test rows, failed: Input X contains NaN"):
        table = probml.compare({"peer": LogisticRegression(), "share": DummyClassifier()},
                               {"x": x, "y": y}, target="y", folds=3)
    assert "fitting LogisticRegression to the training rows, or predicting the test rows, failed: Input X contains NaN" in table.attrs[
        "missing"
    ]["peer"]["accuracy"]
    assert (table.attrs["criterion"] == "log_score" and list(table.index) == ["share"]
            and np.isfinite(table.loc["share", "brier"]))


def test_a_class_missing_in_a_training_part_is_refused_by_name():
    x, y = spots(20)
    names = np.array(["no", "yes"], object)[y]
    names[3] = "once"
    for folds in (4, [(np.arange(4, 20), np.arange(4))]):
        with pytest.raises(probml.DataError,
                           match=r"class 'once' of 'y' \(1 row\).*fold \d.*fewer folds"):
            probml.compare({"peer": GaussianNB()}, {"x": x, "y": names}, target="y", folds=folds)


def test_what_cannot_be_compared_is_refused_by_name():
    x, y = spots(20)
    data = {"x": x, "y": y}
    known = classes().at({"weights": np.ones(2) / 2, "mean": np.zeros((2, 2))})
    for fits, rows, more, words in (
        ({}, data, {}, "from names to Fits or estimators"),
        ({"a": 3}, data, {}, "for 'a', got an int"),
        ({"a": GaussianNB}, data, {}, "for 'a', got the class GaussianNB"),
        ({"a": StandardScaler()}, data, {},
         "expected a Fit, or a classifier .* for 'a', got a StandardScaler"),
        ({"a": GaussianNB()}, None, {}, "the data are missing"),
        ({"a": GaussianNB()}, {"x": x}, {}, r"no column 'y', .*one of the columns, 'x'"),
        ({"a": GaussianNB()}, {"y": y}, {}, "have only the column 'y'"),
        ({"a": GaussianNB()}, {"x": x[:5], "y": y}, {},
         r"'x' has shape \(5, 2\), but 'y' has 20 rows"),
        ({"a": GaussianNB()}, {"x": x, "y": np.full(20, None)}, {}, "'y' is observed in 0 of 20 rows"),
        ({"a": GaussianNB(), "b": LinearRegression()}, data, {},
         "'a' predicts 'y' as a class and 'b' as a number"),
        ({"a": known, "b": GaussianNB()}, {"a": data, "b": {"x": x, "y": 1 - y}}, {},
         "different values of 'y'"),
        ({"a": GaussianNB()}, data, {"engines": {"a": probml.EM()}}, "'a' is not among the fits"),
        ({"a": GaussianNB()}, data, {"folds": 1}, "expected an integer from 2 to 20"),
        ({"a": known.do({"y": 0})}, data, {}, r"returned by do"),
    ):
        with pytest.raises(ValueError, match=words):
            probml.compare(fits, rows, target="y", **more)
    with pytest.raises(probml.ModelError, match="'a' has the type GaussianNB, expected a Fit.*target="):
        probml.compare({"a": GaussianNB()}, data)
    with pytest.raises(probml.ModelError, match="target='mean'.*is sampled outside rows"):
        probml.compare({"a": known}, {**data, "mean": np.zeros(20)}, target="mean")
    with pytest.raises(probml.ModelError, match="none of the models could be evaluated.*'a': "
                       ".*parameters were given"):
        probml.compare({"a": known}, data, target="y", folds=2)


def test_a_prediction_table_is_drawn_with_paired_errors(table, tmp_path):
    pytest.importorskip("matplotlib")
    from probml.models import pictures

    ax = pictures.comparison(table)
    assert ([label.get_text() for label in ax.get_yticklabels()] == list(table.index)
            and "accuracy" in ax.get_xlabel())
    ax.figure.savefig(tmp_path / "table.png")
    assert "none" in [text.get_text() for text in pictures.comparison(table, "log_score").texts]


def test_a_table_in_a_mapping_keeps_its_names_and_kinds_for_an_estimator():
    """A column of numbers beside one of text stays one of numbers, by its own name."""
    seen = {}

    class Watcher(DummyClassifier):
        def fit(self, X, y, sample_weight=None):
            seen.update(dict(zip(X.columns, X.dtypes, strict=True)))
            return super().fit(X, y, sample_weight)

    table = pd.DataFrame({"size": np.arange(12.0), "colour": list("rgb") * 4})
    y = np.array(["a", "b"] * 6)
    found = probml.compare({"watcher": Watcher(strategy="prior")}, {"x": table, "y": y}, target="y",
                           folds=2)
    assert list(seen) == ["size", "colour"] and seen["size"].kind == "f"
    assert found.loc["watcher", "log_score"] == pytest.approx(np.log(0.5))
