"""The zoo: closed forms found, engines chosen, posteriors equal to the formulas of the books and to
scikit-learn."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import probml
from probml.models import gaussian_mixture, mixture_of_mixtures, naive_bayes

nan = np.nan
SHAPES = ["full", "tied", "diagonal", "spherical", "tied diagonal", "tied spherical"]
ROWS = 1200  # of both mixtures that are fitted by EM: one program
CENTRES = np.array([[-4.0, 0.0], [0.0, 4.0], [4.0, -1.0]])


def blobs(n=150, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.integers(3, size=n)
    return CENTRES[z] + rng.normal(size=(n, 2)) * [0.5, 1.0], z


def student(x, rows, scale, centre=0.0, mean_scale=1000.0):
    """log predictive of one more cell after `rows` (n,) of a normal with τ ~ Gamma(3/2, scale²/2),
    μ ~ N(centre, mean_scale²/τ)."""
    n, kappa = len(rows), mean_scale**-2
    mean = (kappa * centre + rows.sum()) / (kappa + n)
    shape = 1.5 + n / 2
    rate = 0.5 * (scale**2 + (rows**2).sum() + kappa * centre**2 - (kappa + n) * mean**2)
    return stats.t(2 * shape, mean, np.sqrt(rate * (kappa + n + 1) / (shape * (kappa + n)))).logpdf(
        x
    )


# Gaussian mixtures


@pytest.mark.parametrize("covariance", SHAPES)
def test_every_update_of_a_mixture_is_in_closed_form_and_its_engine_follows_from_what_is_seen(
    covariance
):
    x, z = blobs(30)
    model = gaussian_mixture(k=3, d=2, covariance=covariance)
    unseen, seen = model.explain({"x": x}), model.explain({"x": x, "z": z})
    assert {record["parameter"] for record in unseen.updates} == {"weights", "mean", "precision"}
    assert all("closed form" in record["update (EM, MAP-EM)"] for record in unseen.updates)
    words = [record[""].split(",")[0].split(";")[0] for record in unseen.engines[1:3]]
    assert words == ["chosen", "possible"] and "'z'" in unseen.engines[0][""]
    words = [record[""].split(",")[0].split(";")[0] for record in seen.engines[:3]]
    assert words == ["chosen", "possible", "possible"]


def test_an_unknown_covariance_is_refused_by_name():
    with pytest.raises(probml.ModelError, match="'round'.*'spherical'.*'tied diagonal'"):
        gaussian_mixture(k=2, d=2, covariance="round").explain({"x": np.zeros((3, 2))})


def test_a_mixture_survives_pickling():
    model = gaussian_mixture(k=3, d=2, scale=[0.1, 2.0])
    assert pickle.loads(pickle.dumps(model)) == model == gaussian_mixture(k=3, d=2,
                                                                          scale=[0.1, 2.0])


@pytest.mark.slow
def test_a_mixture_recovers_what_it_simulated():
    truth = {
        "weights": np.array([0.5, 0.3, 0.2]),
        "mean": CENTRES,
        "precision": np.linalg.inv([[[1.0, 0.6], [0.6, 1.0]], [[0.3, 0.0], [0.0, 2.0]],
                                    [[0.5, -0.3], [-0.3, 0.5]]]),
    }
    model = gaussian_mixture(k=3, d=2)
    rows = model.at(truth).simulate(ROWS, seed=0)
    fit = model.fit({"x": rows["x"]}, probml.EM(restarts=3), seed=0)
    order = np.argsort(fit.params["mean"][:, 0])
    assert fit.converged
    # 3 standard errors of the largest
    np.testing.assert_allclose(fit.params["weights"][order], truth["weights"], atol=0.04)
    np.testing.assert_allclose(fit.params["mean"][order], CENTRES, atol=0.2)
    covariance = np.linalg.inv(fit.params["precision"][order])
    np.testing.assert_allclose(covariance, np.linalg.inv(truth["precision"]), atol=0.35)
    assert (np.argsort(order)[fit.predict({"x": rows["x"]})] == rows["z"]).mean() > 0.97


def test_the_default_prior_holds_a_component_on_repeated_rows_in_any_unit():
    x, z = blobs(2100)
    x, z = x[z < 2][: ROWS - 3], z[z < 2][: ROWS - 3]
    # the likelihood has no bound on the repeated row
    x = np.vstack([x, np.repeat([[9.0, 9.0]], 3, 0)])
    model = gaussian_mixture(k=3, d=2)
    spread = 0.1 * x.std(0)  # the scale of the prior, measured on the rows
    for unit in (1.0, 100.0):
        fit = model.fit({"x": unit * x}, probml.EM(restarts=3), seed=0)
        predicted = fit.predict({"x": unit * x})
        covariance = np.linalg.inv(fit.params["precision"])
        # scale² / (n + 2)
        np.testing.assert_allclose(np.linalg.eigvalsh(covariance).min(),
                                   unit**2 * spread.min() ** 2 / (3 + 2), rtol=0.01)
        assert all((predicted[:-3][z == j] == np.bincount(predicted[:-3][z == j]).argmax()).mean()
                   > 0.99 for j in range(2))
        assert len(set(predicted[-3:])) == 1 and predicted[-1] not in predicted[:-3]


def test_seen_labels_give_the_normal_wishart_posterior():
    x, z = blobs(40)
    fit = gaussian_mixture(k=3, d=2, scale=0.5, mean_scale=10.0, centre=1.0).fit({"x": x, "z": z})
    point = np.array([[0.5, 3.0]])
    logs, kappa = [], 10.0**-2
    for j in range(3):
        mine = x[z == j]
        n, mean = len(mine), (kappa + mine.sum(0)) / (kappa + len(mine))
        psi = 0.25 * np.eye(2) + mine.T @ mine + kappa * np.ones((2, 2)) - (kappa + n) * np.outer(
            mean, mean
        )
        df = 4.0 + n - 2 + 1
        logs.append(np.log((n + 1) / 43) + stats.multivariate_t(
            mean, psi * (kappa + n + 1) / ((kappa + n) * df), df
        ).logpdf(point[0]))
    np.testing.assert_allclose(fit.log_prob({"x": point}), np.logaddexp.reduce(logs), atol=1e-9)
    np.testing.assert_allclose(fit.predict_proba({"x": point})[0],
                               np.exp(logs - np.logaddexp.reduce(logs)), atol=1e-9)


def test_an_unseen_cell_of_a_diagonal_mixture_is_integrated_out():
    truth = {"weights": np.full(3, 1 / 3), "mean": CENTRES,
             "precision": np.array([[1.0, 4.0], [0.5, 1.0], [2.0, 1.0]])}
    fit = gaussian_mixture(k=3, d=2, covariance="diagonal").at(truth)
    seen = stats.norm(truth["mean"][:, 1], truth["precision"][:, 1] ** -0.5).pdf(1.5) / 3
    holes = {"x": np.array([[nan, 1.5], [nan, nan]])}
    np.testing.assert_allclose(fit.log_prob(holes), [np.log(seen.sum()), 0.0], atol=1e-12)
    np.testing.assert_allclose(fit.impute(holes)["x"][0], [seen @ CENTRES[:, 0] / seen.sum(), 1.5],
                               atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["full", "tied"])
def test_an_unseen_cell_of_correlated_ones_is_integrated_out(covariance):
    matrices = np.array([[[1.0, 0.6], [0.6, 2.0]], [[0.5, -0.3], [-0.3, 1.0]],
                         [[2.0, 0.9], [0.9, 1.5]]])
    matrices = matrices if covariance == "full" else np.stack([matrices[0]] * 3)
    precision = np.linalg.inv(matrices if covariance == "full" else matrices[0])
    fit = gaussian_mixture(k=3, d=2, covariance=covariance).at(
        {"weights": np.full(3, 1 / 3), "mean": CENTRES, "precision": precision}
    )
    seen = stats.norm(CENTRES[:, 1], np.sqrt(matrices[:, 1, 1])).pdf(1.5) / 3
    regressed = CENTRES[:, 0] + matrices[:, 0, 1] / matrices[:, 1, 1] * (1.5 - CENTRES[:, 1])
    holes = {"x": np.array([[nan, 1.5], [nan, nan]])}
    np.testing.assert_allclose(fit.log_prob(holes), [np.log(seen.sum()), 0.0], atol=1e-12)
    np.testing.assert_allclose(fit.predict_proba(holes)[0], seen / seen.sum(), atol=1e-12)
    np.testing.assert_allclose(fit.impute(holes)["x"][0], [seen @ regressed / seen.sum(), 1.5],
                               atol=1e-12)
    x, z = blobs(150)
    x[z == 0, 1] = nan
    assert gaussian_mixture(k=3, d=2, covariance=covariance).fit({"x": x, "z": z}).converged


def test_correlated_cells_seen_in_part_have_no_exact_posterior():
    x, z = blobs(30)
    x[4, 1] = nan
    with pytest.raises(probml.Refusal, match=r"'x'.*partially observed.*EM\(\)"):
        gaussian_mixture(k=3, d=2).fit({"x": x, "z": z}, probml.Exact())


def test_counts_of_one_total_are_seen_whole_or_not_at_all():
    counts, z = np.random.default_rng(0).poisson(3.0, (30, 3)).astype(float), np.arange(30) % 2
    counts[4, 1] = nan
    model = naive_bayes(classes=2, features={"words": ("multinomial", 3)})
    with pytest.raises(probml.Refusal, match="'words'.*row 4.*Poisson"):
        model.fit({"words": counts, "class": z})


# Mixtures of mixtures


def test_a_mixture_of_mixtures_is_one_mixture_with_its_components_grouped():
    x, z = blobs(20)
    weights, shares = np.array([0.7, 0.3]), np.array([[0.2, 0.8], [0.5, 0.5]])
    mean, precision = (np.arange(8.0).reshape(2, 2, 2),
                       np.stack([np.eye(2) * (1 + j) for j in range(4)]).reshape(2, 2, 2, 2))
    both = mixture_of_mixtures(classes=2, k=2, d=2)
    nested = both.at({"weights": weights, "shares": shares, "mean": mean, "precision": precision})
    joined = {"weights": (weights[:, None] * shares).ravel(), "mean": mean.reshape(4, 2),
              "precision": precision.reshape(4, 2, 2)}
    whole = gaussian_mixture(k=4, d=2).at(joined)
    np.testing.assert_allclose(nested.log_prob({"x": x}), whole.log_prob({"x": x}), atol=1e-10)
    grouped = whole.predict_proba({"x": x}).reshape(20, 2, 2).sum(2)
    np.testing.assert_allclose(nested.predict_proba({"x": x}, "class"), grouped, atol=1e-10)
    explained = both.explain({"x": x, "class": z % 2})
    assert all("closed form" in record["update (EM, MAP-EM)"] for record in explained.updates)
    assert explained.engines[1] == {"engine": "EM", "": "chosen"}


# Naive Bayes


WEATHER = naive_bayes(classes=2,
                      features={"sky": 3, "wind": 2, "heat": "normal", "cells": ("normal", 2)})


def weather(n=90, seed=0):
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.4).astype(int)
    return {
        "class": label,
        "sky": np.where(rng.random(n) < 0.6, 2 * label, rng.integers(3, size=n)),
        "wind": np.where(rng.random(n) < 0.7, label, rng.integers(2, size=n)),
        "heat": 20 + 5 * label + 3 * rng.normal(size=n),
        "cells": rng.normal(size=(n, 2)) + [[1.0, -1.0]] * label[:, None],
    }


@pytest.fixture(scope="module")
def weather_fit():
    return WEATHER.fit(weather())


def test_naive_bayes_is_exact_with_classes_seen_and_em_with_classes_seen_in_part():
    data = weather()
    part = {**data, "class": np.where(np.arange(90) % 3 == 0, nan, data["class"])}
    whole, half = WEATHER.explain(data), WEATHER.explain(part)
    assert whole.engines[0] == {"engine": "Exact", "": "chosen"}
    assert "'class'" in half.engines[0][""] and half.engines[1] == {"engine": "EM", "": "chosen"}
    assert all("closed form" in record["update (EM, MAP-EM)"] for record in half.updates)


def hand_log_joint(data, row):
    """log p(class = c, row | data) of the weather by the formulas of the docstring."""
    logs = []
    for c in range(2):
        mine = data["class"] == c
        n = mine.sum()
        log = np.log((n + 1) / (len(mine) + 2))
        for name, states in (("sky", 3), ("wind", 2)):
            log += np.log(((data[name][mine] == row[name]).sum() + 1) / (n + states))
        log += student(row["heat"], data["heat"][mine], 0.1)
        log += sum(student(row["cells"][i], data["cells"][mine, i], 0.1) for i in range(2))
        logs.append(log)
    return np.array(logs)


def test_the_predictive_of_naive_bayes_is_dirichlet_counts_times_student_t(weather_fit):
    row = {"sky": 2, "wind": 0, "heat": 23.5, "cells": np.array([0.3, -2.0])}
    logs = hand_log_joint(weather(), row)
    asked = {name: np.asarray(value)[None] for name, value in row.items()}
    np.testing.assert_allclose(weather_fit.log_prob(asked), np.logaddexp.reduce(logs), atol=1e-9)
    np.testing.assert_allclose(weather_fit.predict_proba(asked, "class")[0],
                               np.exp(logs - np.logaddexp.reduce(logs)), atol=1e-9)


def test_the_evidence_of_naive_bayes_is_the_product_of_its_predictives(weather_fit):
    data = weather()
    total = 0.0
    for i in range(90):
        past = {name: value[:i] for name, value in data.items()}
        total += hand_log_joint(past, {name: value[i] for name, value in data.items()})[
            data["class"][i]
        ]
    np.testing.assert_allclose(weather_fit.log_evidence, total, rtol=1e-9)


def test_naive_bayes_takes_a_table_with_labels_and_unseen_cells():
    data = weather(300)
    sky = np.array(["cloud", "rain", "sun"])[data["sky"]]
    table = pd.DataFrame({"class": np.array(["dry", "wet"])[data["class"]], "sky": sky,
                          "heat": data["heat"]})
    table.loc[::3, "class"] = None
    table.loc[5:20, "heat"] = nan
    fit = naive_bayes(classes=2, features={"sky": 3, "heat": "normal"}).fit(table)
    assert fit.engine.startswith("EM") and fit.labels("class") == ("dry", "wet")
    agree = fit.predict(table.drop(columns="class"),
                        "class") == np.array(["dry", "wet"])[data["class"]]
    assert agree.mean() > 0.8
    assert set(fit.impute(table)["sky"]) <= {"cloud", "rain", "sun"}


EVERY = {"n": "normal", "c": 3, "cs": ("categorical", 2, 3), "b": ("bernoulli", 2),
         "m": ("multinomial", 2)}
EVERY |= {"p": "poisson", "g": "geometric", "e": ("exponential", 2)}


def test_every_kind_of_feature_is_exact():
    rng = np.random.default_rng(0)
    codes, waits = rng.integers(3, size=(20, 2)), rng.exponential(size=(20, 2))
    data = {"class": codes[:, 0] % 2, "n": waits[:, 0], "c": codes[:, 0], "cs": codes,
            "b": codes % 2, "p": codes[:, 1], "g": codes[:, 0]}
    data |= {"e": waits, "m": codes}
    explained = naive_bayes(classes=2, features=EVERY).explain(data)
    assert explained.engines[0] == {"engine": "Exact", "": "chosen"}


def test_a_vector_of_categorical_columns_is_the_columns_one_by_one():
    data = weather()
    codes = np.stack([data["sky"], data["sky"][::-1]], 1)
    together = naive_bayes(classes=2, features={"v": ("categorical", 2, 3)}).fit(
        {"class": data["class"], "v": codes}
    )
    apart = naive_bayes(classes=2, features={"a": 3, "b": 3}).fit(
        {"class": data["class"], "a": codes[:, 0], "b": codes[:, 1]}
    )
    np.testing.assert_allclose(together.log_evidence, apart.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(together.params["v_probs"][:, 1], apart.params["b_probs"],
                               atol=1e-10)


def test_an_unknown_kind_of_feature_is_refused_by_name():
    with pytest.raises(probml.ModelError, match="'wind'.*'poison'"):
        naive_bayes(classes=2, features={"wind": "poison"}).explain({"wind": np.zeros(3)})


def test_gaussian_naive_bayes_equals_scikit_learn():
    peers = pytest.importorskip("sklearn.naive_bayes")
    x, z = blobs(120, seed=3)
    fit = naive_bayes(classes=3, features={"x": ("normal", 2)}).fit({"x": x, "class": z},
                                                                    probml.EM(prior=False))
    peer = peers.GaussianNB(var_smoothing=0).fit(x, z)
    np.testing.assert_allclose(fit.params["x_mean"], peer.theta_, atol=1e-8)
    np.testing.assert_allclose(1 / fit.params["x_precision"], peer.var_, atol=1e-8)
    np.testing.assert_allclose(fit.predict_proba({"x": x}), peer.predict_proba(x), atol=1e-8)


def test_categorical_naive_bayes_equals_scikit_learn_at_the_posterior_mean(weather_fit):
    peers = pytest.importorskip("sklearn.naive_bayes")
    data = weather()
    codes = np.stack([data["sky"], data["wind"]], 1)
    prior = weather_fit.params["weights"]  # scikit-learn does not smooth the classes
    peer = peers.CategoricalNB(alpha=1.0, class_prior=prior).fit(codes, data["class"])
    for name, table in zip(("sky", "wind"), peer.feature_log_prob_, strict=True):
        np.testing.assert_allclose(weather_fit.params[f"{name}_probs"], np.exp(table), atol=1e-8)
    asked = {"sky": data["sky"], "wind": data["wind"]}
    np.testing.assert_allclose(weather_fit.predict_proba(asked, "class"), peer.predict_proba(codes),
                               atol=1e-8)
