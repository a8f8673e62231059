"""Formulas as R, lme4 and bambi write them: one call gives a fitted estimator that takes tables of
the same columns."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("formulaic")

import probml  # noqa: E402
from probml.models import (  # noqa: E402
    GeneralizedLinearModel,
    MixedModel,
    OrdinalRegression,
    SurvivalRegression,
    formula,
)

RANDOM = np.random.default_rng(1)
N = 60
TABLE = pd.DataFrame({"x": RANDOM.normal(size=N), "t": RANDOM.uniform(1, 4, N),
                      "kind": np.tile(["a", "b", "c"], 20), "ward": np.repeat(list("uvwxyz"), 10),
                      "bed": np.tile(np.repeat(["1", "2"], 5), 6), "twice": np.tile([1, 2], 30)})
TABLE["count"] = RANDOM.poisson(np.exp(0.3 + 0.5 * TABLE["x"]) * TABLE["t"])
TABLE["y"] = TABLE["x"] + (TABLE["kind"] == "b") + RANDOM.normal(size=N)


def test_a_family_gives_a_fitted_estimator_and_none_the_columns():
    assert type(formula("y ~ x", TABLE)).__name__ == "Formula"
    ours = formula("y ~ x + C(kind)", TABLE, family="gaussian")
    assert isinstance(ours, GeneralizedLinearModel)
    assert list(ours.confint().index) == ["Intercept", "x", "C(kind)[T.b]", "C(kind)[T.c]"]
    new = TABLE[["x", "kind"]][:3]
    np.testing.assert_allclose(
        ours.predict(new), ours.intercept_ + new["x"] * ours.coef_[0]
        + (new["kind"] == "b") * ours.coef_[1] + (new["kind"] == "c") * ours.coef_[2])
    np.testing.assert_allclose(ours.predict(formula("y ~ x + C(kind)", TABLE).X[:3]),
                               ours.predict(new))  # the columns of the terms are taken, too


def test_offsets_are_read_from_every_table():
    ours = formula("count ~ x + offset(np.log(t))", TABLE, family="poisson")
    hand = GeneralizedLinearModel("poisson").fit(TABLE[["x"]], TABLE["count"],
                                                 offset=np.log(TABLE["t"]))
    np.testing.assert_allclose(ours.coef_, hand.coef_)
    np.testing.assert_allclose(ours.predict(TABLE[:4]),
                               hand.predict(TABLE[["x"]][:4], offset=np.log(TABLE["t"][:4])))
    assert ours.residuals(TABLE).sum() == pytest.approx(0, abs=1e-4)  # y is read, too
    assert ours.score(TABLE) == pytest.approx(1 - ours.deviance_ / ours.null_deviance_, abs=0.3)
    with pytest.raises(probml.DataError, match="t"):
        ours.predict(TABLE[["x"]])


def test_weights_are_a_column():
    ours = formula("count ~ x", TABLE, family="poisson", weights="twice")
    again = formula("count ~ x", TABLE.loc[TABLE.index.repeat(TABLE["twice"])], family="poisson")
    np.testing.assert_allclose(ours.coef_, again.coef_, rtol=1e-6)
    assert ours.loglik_ == pytest.approx(again.loglik_)
    with pytest.raises(probml.DataError, match="no such column"):
        formula("count ~ x", TABLE, family="poisson", weights="thrice")


@pytest.mark.parametrize("left", ["cbind(good, n - good)", "p(good, n)", "prop(good, n)"])
def test_successes_and_failures(left):
    table = TABLE.assign(n=9, good=RANDOM.binomial(9, 0.3, N))
    ours = formula(f"{left} ~ x", table, family="binomial")
    hand = GeneralizedLinearModel("binomial").fit(table[["x"]], table["good"], trials=table["n"])
    np.testing.assert_allclose(ours.coef_, hand.coef_)
    assert ours.residuals(table, kind="pearson").shape == (N,)
    assert ours.predict(table[["x"]]).shape == (N,)  # new rows need no left side


def test_nested_groupings_are_columns_of_their_own():
    found = formula("y ~ x + (1 | ward/bed)", TABLE)
    assert found.effects == {"ward": ["1"], "ward:bed": ["1"]}
    assert list(found.X) == ["x", "ward", "ward:bed"]
    assert set(found.X["ward:bed"]) == {f"{a}:{b}" for a in "uvwxyz" for b in "12"}
    assert formula("y ~ x + (1 | ward:bed)", TABLE).effects == {"ward:bed": ["1"]}
    gone = TABLE.assign(bed=TABLE["bed"].where(TABLE.index != 3))
    with pytest.raises(probml.DataError, match="'bed' in 1 of 60 rows"):
        formula("y ~ x + (1 | ward/bed)", gone, family="gaussian")


def test_categories_may_differ_among_groups():
    found = formula("y ~ kind + (kind | ward)", TABLE)
    assert found.effects == {"ward": ["1", "kind[T.b]", "kind[T.c]"]}
    assert found.fixed == ["kind[T.b]", "kind[T.c]"]
    full = formula("y ~ kind + (0 + kind | ward)", TABLE)
    assert full.effects == {"ward": ["kind[a]", "kind[b]", "kind[c]"]}
    assert full.fixed == found.fixed and full.data["x"].shape == (N, 2)


@pytest.mark.slow
def test_both_codings_of_categories_are_one_model():
    one, other = (formula(f"y ~ kind + ({terms} | ward)", TABLE, family="gaussian", reml=False)
                  for terms in ("kind", "0 + kind"))
    assert one.loglik_ == pytest.approx(other.loglik_, abs=1e-3)
    assert one.n_parameters_ == other.n_parameters_ == 10
    np.testing.assert_allclose(one.predict(TABLE), other.predict(TABLE), atol=2e-2)


@pytest.mark.slow
def test_a_slope_without_a_fixed_effect_is_that_of_a_dense_normal():
    ours = formula("y ~ 1 + (0 + x | ward)", TABLE, family="gaussian", reml=False)
    assert ours.fixed == [] and len(ours.coef_) == 0
    member = (TABLE["ward"].to_numpy()[:, None] == TABLE["ward"].to_numpy()).astype(float)
    x = TABLE["x"].to_numpy()
    cov = (ours.spreads_["ward"]["x"] ** 2 * member * np.outer(x, x)
           + ours.noise_**2 * np.eye(N))
    from scipy.stats import multivariate_normal

    assert ours.loglik_ == pytest.approx(multivariate_normal.logpdf(
        TABLE["y"] - ours.intercept_, np.zeros(N), cov), abs=1e-3)


@pytest.mark.slow
def test_casks_in_batches_have_the_figures_of_lme4(shared_data):
    table = pd.read_csv(shared_data / "classic/pastes.csv")
    fit = json.loads((shared_data / "fits/lmm_pastes.json").read_text())["fits"]["nested"]["REML"]
    ours = formula("strength ~ (1 | batch/cask)", table, family="gaussian")
    assert ours.loglik_ == pytest.approx(fit["loglik"], abs=1e-4)
    sample = formula("strength ~ (1 | batch) + (1 | sample)", table, family="gaussian")
    assert ours.loglik_ == pytest.approx(sample.loglik_, abs=1e-4)
    assert isinstance(ours, MixedModel) and ours.predict(table).shape == (60,)


@pytest.mark.parametrize(("text", "family", "kind"), [
    ("grade ~ x", "ordinal", OrdinalRegression),
    ("Surv(t, done) ~ x", "weibull", SurvivalRegression),
    ("Surv(t, later, type='interval2') ~ x", "lognormal", SurvivalRegression),
])
def test_other_families_have_estimators_of_their_own(text, family, kind):
    table = TABLE.assign(grade=pd.Categorical(np.tile(["low", "mid", "high"], 20),
                                              ["low", "mid", "high"], ordered=True),
                         done=np.tile([1, 1, 0], 20))
    table["later"] = np.where(table["done"] == 1, table["t"] + 0.5, np.nan)
    ours = formula(text, table, family=family)
    assert isinstance(ours, kind) and len(ours.predict(table[["x"]])) == N
    assert "x" in ours.confint().index


def test_an_estimator_of_a_formula_goes_through_files_and_pickles(tmp_path):
    ours = formula("count ~ poly(x, 2) + kind + offset(np.log(t))", TABLE, family="poisson")
    ours.save(tmp_path / "fit.npz")
    for other in (probml.load(tmp_path / "fit.npz"), pickle.loads(pickle.dumps(ours))):
        np.testing.assert_allclose(other.predict(TABLE[:5]), ours.predict(TABLE[:5]))
    with pytest.raises(probml.DataError, match="kind"):
        ours.predict(TABLE[["x", "t"]])


@pytest.mark.parametrize(("text", "settings", "said"), [
    ("y ~ x", {"family": "possion"}, "family='possion'"),
    ("y ~ x", {"engine": "baye"}, "or an engine"),
    ("y ~ x", {"family": "gaussian", "shrinkage": 3}, "shrinkage"),
    ("y ~ x + (1 | ward)", {"family": "weibull"}, "random effects"),
    ("Surv(t, twice) ~ x", {"family": "gaussian"}, "Surv"),
    ("Surv(t) ~ x", {"family": "weibull"}, "two columns"),
    ("kind ~ x + offset(t)", {"family": "ordinal"}, "does not support offset"),
    ("kind ~ 0 + x", {"family": "ordinal"}, "Remove '0"),
    ("y ~ x + (x | ward", {"family": "gaussian"}, "brackets do not match"),
    ("y ~ x + (x | ward) + (1 || bed)", {"family": "gaussian"}, r"\| and \|\|"),
    ("y ~ x + (1 | ward) + (1 | ward/bed)", {"family": "gaussian"}, "in two brackets"),
])
def test_what_cannot_be_fitted_is_refused_in_a_line(text, settings, said):
    with pytest.raises((probml.ModelError, probml.DataError), match=said) as error:
        formula(text, TABLE, **settings)
    assert "\n" not in str(error.value)
