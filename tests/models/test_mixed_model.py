"""Mixed models' estimator: held to the normal of all rows written down densely, and to lme4's fits."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import probml
from probml.models import MixedModel

N = 60


def table(seed=0):
    rng = np.random.default_rng(seed)
    who, day, x = np.arange(N) % 6, rng.normal(3.0, 2.0, N), rng.normal(100.0, 5.0, N)
    lines = rng.normal(size=(6, 2)) * [8.0, 2.0]
    y = 250 + 3 * day + 0.5 * x + lines[who, 0] + lines[who, 1] * day + 4 * rng.normal(size=N)
    names = np.array(["ann", "bob", "cyd", "dan", "eve", "fay"])
    return pd.DataFrame({"who": names[who], "day": day, "x": x}), y


@pytest.fixture(scope="module", params=[(True, True), (False, False)], ids=["REML", "ML apart"])
def estimator(request):
    reml, correlated = request.param
    X, y = table()
    return MixedModel(effects={"who": ["1", "day"]}, reml=reml, correlated=correlated).fit(X, y)


def dense(estimator, X):
    """Design, covariance of y and of effects with y, at what was found."""
    who = pd.get_dummies(X["who"]).to_numpy(float)
    z = np.stack([who, who * X["day"].to_numpy()[:, None]], -1).reshape(len(X), -1)
    root = np.diag(estimator.spreads_["who"])
    if "who" in estimator.correlations_:
        root = root @ np.linalg.cholesky(estimator.correlations_["who"])
    cross = np.kron(np.eye(6), root @ root.T) @ z.T
    design = np.column_stack([np.ones(len(X)), X[["day", "x"]]])
    return design, z @ cross + estimator.noise_**2 * np.eye(len(X)), cross


def test_likelihood_errors_and_modes_are_those_of_the_dense_normal(estimator):
    X, y = table()
    design, covariance, cross = dense(estimator, X)
    inverse = np.linalg.inv(covariance)
    information = design.T @ inverse @ design
    beta = np.linalg.solve(information, design.T @ inverse @ y)
    left, free = y - design @ beta, N - 3 * estimator.reml
    want = -0.5 * (free * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1]
                   + left @ inverse @ left
                   + estimator.reml * np.linalg.slogdet(information)[1])
    assert estimator.converged_ and estimator.loglik_ == pytest.approx(want, abs=1e-6)
    np.testing.assert_allclose([estimator.intercept_, *estimator.coef_], beta, rtol=1e-5)
    np.testing.assert_allclose(estimator.covariance_, np.linalg.inv(information), rtol=1e-6)
    np.testing.assert_allclose(estimator.effects_["who"].to_numpy().ravel(), cross @ inverse @ left,
                               rtol=1e-4, atol=1e-4)
    if not estimator.correlated:  # Henderson's: with the coefficients' own errors, REML or not
        prior = np.kron(np.eye(6), np.diag(estimator.spreads_["who"] ** 2))
        own = inverse @ design
        inverse = inverse - own @ np.linalg.solve(information, own.T)
        given = np.sqrt(np.diag(prior - cross @ inverse @ cross.T))
        np.testing.assert_allclose(estimator.effect_errors_["who"].to_numpy().ravel(), given, rtol=1e-5)


def test_answers_keep_labels_and_new_members_have_the_mean_of_all(estimator):
    X, _ = table()
    some = X.iloc[:2].assign(who=["cyd", "gus"])
    modes = estimator.effects_["who"]
    assert list(modes.index) == ["ann", "bob", "cyd", "dan", "eve", "fay"]
    plane = estimator.intercept_ + some[["day", "x"]].to_numpy() @ estimator.coef_
    own = modes.loc["cyd", "1"] + modes.loc["cyd", "day"] * some["day"].iloc[0]
    np.testing.assert_allclose(estimator.predict(some), plane + [own, 0.0])
    np.testing.assert_allclose(
        estimator.fit_.predict(estimator.as_data(X)) * estimator._y[1] + estimator._y[0], estimator.predict(X), rtol=1e-6)
    told = estimator.effects_table()
    assert told.loc[("who", "eve", "day"), "mode"] == modes.loc["eve", "day"]
    assert list(estimator.table().index) == ["intercept", "day", "x"]
    with pytest.raises(probml.DataError, match="'gus' in row 1"):
        estimator.as_data(some)


def test_predictions_come_in_the_units_in_which_they_were_given():
    X, y = table()
    model = MixedModel(effects={"who": ["1", "day"]})
    plain = model.fit(X, y).predict(X)
    other = X.assign(day=1e6 * X["day"] + 1e9, x=1e-6 * X["x"])
    moved = model.fit(other, 1e6 * y - 1e9).predict(other)
    np.testing.assert_allclose((moved + 1e9) / 1e6, plain, rtol=1e-4)


def test_what_cannot_be_fitted_is_refused_by_name():
    X, y = table()
    for effects, match in ((None, "a mapping of each grouping to the columns"), ({"who": []}, "a mapping of each grouping"),
                           ({"whom": ["1"]}, "no column 'whom'"), ({"who": ["z"]}, "column 'z'")):
        with pytest.raises(ValueError, match=match):
            MixedModel(effects=effects).fit(X, y)
    with pytest.raises(probml.DataError, match="'who' has only one level, 'ann'"):
        MixedModel({"who": ["1"]}).fit(X.assign(who="ann"), y)
    with pytest.raises(probml.DataError, match="'who' is missing in row 3"):
        MixedModel({"who": ["1"]}).fit(X.assign(who=X["who"].where(np.arange(N) != 3)), y)
    with pytest.raises(probml.DataError, match="'word' of X must be numbers"):
        MixedModel({"who": ["1"]}).fit(X.assign(word="a"), y)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "criterion"), [
    ("correlated_slope", "REML"), ("random_intercept", "ML"), ("uncorrelated_slope", "REML")])
def test_sleepstudy_is_that_of_lmer(shared_data, name, criterion):
    found = json.loads((shared_data / "fits" / "lmm_sleepstudy.json").read_text())
    data = pd.read_csv(shared_data / found["dataset"])
    want = found["fits"][name][criterion]
    estimator = MixedModel({"Subject": ["1", "Days"] if "slope" in name else ["1"]},
                           reml=criterion == "REML", correlated="uncorrelated" not in name)
    estimator.fit(data[["Days", "Subject"]], data["Reaction"])
    assert estimator.loglik_ == pytest.approx(want["loglik"], abs=1e-6)
    np.testing.assert_allclose([estimator.intercept_, *estimator.coef_], list(want["fixed"].values()),
                               rtol=1e-6)
    np.testing.assert_allclose(estimator.standard_errors_, list(want["fixed_se"].values()), rtol=1e-4)
    np.testing.assert_allclose(estimator.spreads_["Subject"],
                               [sd for part in want["random"].values()
                                for sd in part["sd"].values()], rtol=1e-4)
    assert estimator.noise_ == pytest.approx(want["residual"]["sd"], rel=1e-5)
    for member, told in want["blup"]["Subject"].items():
        np.testing.assert_allclose(estimator.effects_["Subject"].loc[member],
                                   list(told["mode"].values()), rtol=2e-4, atol=2e-4)


@pytest.mark.slow
def test_counts_of_trials_are_those_of_glmer(shared_data):
    found = json.loads((shared_data / "fits" / "glmm_cbpp.json").read_text())
    data = pd.read_csv(shared_data / found["dataset"])
    want = found["fits"]["AGQ25"]
    X = pd.get_dummies(data["period"])[["p2", "p3", "p4"]].astype(float).assign(herd=data["herd"])
    estimator = MixedModel({"herd": ["1"]}, family="binomial").fit(X, data["incidence"], trials=data["size"])
    assert estimator.loglik_ == pytest.approx(want["loglik_120_node_check_at_these_estimates"], abs=1e-5)
    np.testing.assert_allclose([estimator.intercept_, *estimator.coef_], list(want["fixed"].values()),
                               atol=5e-4)
    np.testing.assert_allclose(estimator.standard_errors_, list(want["fixed_se"].values()), rtol=0.05)
    np.testing.assert_allclose(estimator.predict(X)[:8], want["fitted_mean_first8"], rtol=1e-3)
    for member, own in want["blup"]["herd"].items():
        np.testing.assert_allclose(estimator.effects_["herd"].loc[member], list(own["mode"].values()), atol=1e-3)


def test_two_effects_of_three_members_are_integrated_out():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"who": np.repeat(["a", "b", "c"], 10), "day": np.tile(np.arange(10.0), 3)})
    own = rng.normal(size=(3, 2))[np.repeat([0, 1, 2], 10)] * [1.0, 0.3]
    y = 1.0 + own[:, 0] + (0.5 + own[:, 1]) * X["day"] + 0.3 * rng.normal(size=30)
    estimator = MixedModel(effects={"who": ["1", "day"]}).fit(X, y)
    assert estimator.fit_.converged
    # no parameters, whose mode together with their spread is no answer
    assert (estimator.effects_table()["standard error"] > 0).all()


@pytest.mark.parametrize("reml", [True, False], ids=["REML", "ML"])
def test_two_members_are_effects_and_no_coefficients(reml):
    """Without their prior they would be coefficients beside an intercept, which no rows tell apart."""
    rng = np.random.default_rng(0)
    g, x = np.arange(40) % 2, rng.normal(size=40)
    y = 1 + 2 * x + np.array([-1.0, 1.5])[g] + rng.normal(size=40)
    estimator = MixedModel({"g": ["1"]}, reml=reml).fit(pd.DataFrame({"g": g, "a": x}), y)
    design, z = np.column_stack([np.ones(40), x]), np.eye(2)[g]

    def height(logs):
        spread, noise = np.exp(logs)
        inverse = np.linalg.inv(noise**2 * np.eye(40) + spread**2 * z @ z.T)
        told = design.T @ inverse @ design
        left = y - design @ np.linalg.solve(told, design.T @ inverse @ y)
        log_det = np.linalg.slogdet(inverse)[1] - (np.linalg.slogdet(told)[1] if reml else 0.0)
        return 0.5 * (log_det - left @ inverse @ left - (40 - 2 * reml) * np.log(2 * np.pi))

    best = minimize(lambda logs: -height(logs), [0.0, 0.0], method="Nelder-Mead",
                    options={"xatol": 1e-9, "fatol": 1e-12})
    np.testing.assert_allclose([estimator.spreads_["g"].iloc[0], estimator.noise_], np.exp(best.x), rtol=1e-5)
    np.testing.assert_allclose(estimator.loglik_, -best.fun, rtol=1e-9)


def test_crossed_effects_too_many_for_one_dense_system_are_refused_with_their_sizes(monkeypatch):
    """Left out of the integral they were coefficients, whose standard deviation nothing tells."""
    monkeypatch.setattr("probml.plan.random_effects.MAX_CROSSED_EFFECTS", 5)
    random = np.random.default_rng(0)
    table = pd.DataFrame({"x": random.normal(size=60), "g": random.integers(0, 8, 60),
                          "h": random.integers(0, 6, 60)})
    for reml in (True, False):
        with pytest.raises(probml.Refusal, match="too many crossed random effects.*'g' 8.*'h' 6.*NUTS"):
            MixedModel({"g": ["1"], "h": ["1"]}, reml=reml).fit(table, random.normal(size=60))


def test_the_score_counts_weights_and_refuses_what_are_none():
    random = np.random.default_rng(0)
    group = np.repeat(range(6), 10)
    X = pd.DataFrame({"x": random.normal(size=60), "g": group})
    y = X["x"] + random.normal(size=6)[group] + random.normal(size=60)
    model = MixedModel({"g": ["1"]}).fit(X, y)
    weights = np.where(group == 0, 0.0, 2.0)
    assert model.score(X, y, weights) == pytest.approx(model.score(X[10:], y[10:]))
    for wrong in ([], 0, np.zeros(60), -weights):
        with pytest.raises(ValueError, match="[Ww]eight|sample"):
            model.score(X, y, wrong)
