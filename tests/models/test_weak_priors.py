"""engine="bayes": the density is that of the priors written down by hand, answers are those of
NumPyro's NUTS in the table's units, units change nothing, and what has no posterior is refused."""

import functools

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
from numpyro.infer.util import log_density

import probml
from probml.models import GeneralizedLinearModel, MixedModel
from probml.posteriors.units import in_units
from regressions_by_hand import draws, regression

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)) * [1, 100] + [3, 1000]
Y = 5 + X @ [2, 0.03] + 3 * RNG.normal(size=60)
LINE = np.linspace(-1, 1, 20)[:, None]
APART = (LINE[:, 0] > 0).astype(int)  # classes that a threshold separates
COUNTS = RNG.poisson(np.exp(1 + LINE[:, 0]))
HEAVY = 100 * np.exp(LINE[:, 0]) * RNG.gamma(5, 1 / 5, 20)
WHO = np.arange(60) % 6
LEVELS = 250 + 3 * X[:, 0] + 8 * RNG.normal(size=6)[WHO] + 4 * RNG.normal(size=60)
GROUPS = pd.DataFrame({"a": X[:, 0], "who": WHO})

# mean and sd of intercept and coefficients of 40,000 draws by regressions_by_hand.draws
BY_NUTS = {
    "normal": (X[:8], Y[:8], {}, ([25.55, 3.326, 0.00509], [20.8, 1.37, 0.0228])),
    "bernoulli": (LINE, APART, {"family": "bernoulli"}, ([0.002996, 7.535], [0.839, 2.48])),
    "mixed": (X[:, :1], LEVELS, {"members": (WHO,)}, ([244.7, 4.5], [2.06, 0.494])),
}


@functools.cache
def fitted(name):
    X, y, settings, _ = BY_NUTS[name]
    if "members" in settings:
        return MixedModel({"who": ["1"]}, engine="bayes").fit(GROUPS, y)
    return GeneralizedLinearModel(**settings, engine="bayes").fit(X, y)


@pytest.mark.parametrize(("y", "settings"), [
    (Y[:20], {}),
    *(pytest.param(y, settings, marks=pytest.mark.slow) for y, settings in (
        (HEAVY, {"family": "gamma"}), (HEAVY, {"family": "normal", "link": "log"}),
        (APART, {"family": "bernoulli"}), (COUNTS, {"family": "poisson"}),
        (COUNTS, {"family": "negative binomial"})))])
def test_the_density_is_that_of_the_priors_by_hand(y, settings):
    x = X[:20]
    estimator = GeneralizedLinearModel(**settings, engine="bayes").fit(x, y)
    hand, found = regression(x, y, **settings), []
    for seed in (1, 2):
        values = np.random.default_rng(seed)
        params = {"beta": values.normal(size=2), "intercept": values.normal()}
        params |= {name: values.uniform(0.5, 2) for name in ("sigma", "concentration")
                   if name in estimator.fit_.params}
        told = {**params, **in_units(estimator.fit_.units, params)}
        there = {"coef": told["beta"], "intercept": told["intercept"] + told["beta"] @ x.mean(0),
                 "sigma": told.get("sigma"), "concentration": told.get("concentration")}
        there = {name: value for name, value in there.items() if value is not None}
        found.append((estimator.fit_.model.log_density(estimator.as_data(x, y), params),
                      log_density(hand, (), {}, there)[0]))
    (ours, want), (ours2, want2) = found  # units add a constant
    assert ours2 - ours == pytest.approx(float(want2 - want), rel=1e-6)


@pytest.mark.parametrize("name", BY_NUTS)
def test_answers_are_those_of_nuts_in_the_units_of_the_table(name):
    estimator, (mean, sd) = fitted(name), BY_NUTS[name][3]
    table = estimator.table()
    assert estimator.converged_ and np.abs((table["mean"] - mean) / sd).max() < 0.15
    np.testing.assert_allclose(table["sd"], sd, rtol=0.2)
    np.testing.assert_allclose([estimator.intercept_, *estimator.coef_], table["mean"], rtol=1e-5)
    np.testing.assert_allclose(estimator.standard_errors_, table["sd"], rtol=1e-5)
    assert (table["5%"] < table["mean"]).all() and (table["mean"] < table["95%"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NUTS)
def test_the_stored_answers_are_those_of_nuts(name):
    x, y, settings, (mean, sd) = BY_NUTS[name]
    found = draws(regression(x, y, **settings), x, 8000)
    found = np.column_stack([found["intercept"], found["coef"]])
    assert (np.abs(found.mean(0) - mean) < 0.1 * np.asarray(sd)).all()
    np.testing.assert_allclose(found.std(0), sd, rtol=0.1)


def test_other_units_of_y_and_of_columns_give_the_same_answer_in_these():
    x, y = X[:8], Y[:8]
    moved = GeneralizedLinearModel(engine="bayes").fit(x * [1e3, 1e-3] + [5, -7], 1e4 * y - 1e6)
    plain = fitted("normal")
    np.testing.assert_allclose(moved.table()[["mean", "sd"]].iloc[1:],
                               plain.table()[["mean", "sd"]].iloc[1:]
                               * np.array([[10.0], [1e7]]), rtol=1e-3)
    np.testing.assert_allclose((moved.predict(x * [1e3, 1e-3] + [5, -7]) + 1e6) / 1e4,
                               plain.predict(x), rtol=1e-4)


@pytest.mark.slow
def test_other_units_of_a_positive_y_and_of_groups_give_the_same_answer_in_these():
    plain, moved = (GeneralizedLinearModel("gamma", engine="bayes").fit(LINE, unit * HEAVY)
                    for unit in (1.0, 1e3))
    np.testing.assert_allclose(moved.intercept_ - np.log(1e3), plain.intercept_, rtol=1e-3)
    np.testing.assert_allclose(moved.concentration_, plain.concentration_, rtol=1e-3)
    other = MixedModel({"who": ["1"]}, engine="bayes").fit(
        GROUPS.assign(a=1e3 * GROUPS["a"] + 7), 1e4 * LEVELS - 1e6)
    plain = fitted("mixed")
    np.testing.assert_allclose(other.coef_, 10 * plain.coef_, rtol=1e-2)
    np.testing.assert_allclose(other.spreads_["who"], 1e4 * plain.spreads_["who"], rtol=1e-2)
    np.testing.assert_allclose(other.noise_, 1e4 * plain.noise_, rtol=1e-2)


def test_weights_are_repetitions_for_the_priors_too():
    x, y = X[:8], Y[:8]
    weighted = GeneralizedLinearModel(engine="bayes").fit(x, y, [3, 1, 1, 1, 1, 1, 1, 0])
    rows = [0, 0, 0, 1, 2, 3, 4, 5, 6]
    repeated = GeneralizedLinearModel(engine="bayes").fit(x[rows], y[rows])
    np.testing.assert_allclose(weighted.table(), repeated.table(), rtol=1e-3, atol=1e-3)


def test_intervals_hold_the_noise_and_new_members_theirs():
    estimator = fitted("mixed")
    rows = GROUPS.iloc[:2].assign(who=[0, 99])
    value, low, high = estimator.predict(rows, interval=0.9)
    np.testing.assert_allclose(value, estimator.predict(rows), atol=1.0)
    wide = high - low
    assert wide[0] > 2 * 1.6 * estimator.noise_ and wide[1] > 1.2 * wide[0]
    assert estimator.loglik_ is None and {"mean", "sd", "5%"} <= {*estimator.effects_table().columns}
    with pytest.raises(probml.ModelError, match="y is 0 or 1"):
        fitted("bernoulli").predict(LINE, interval=0.9)


def test_separated_classes_have_finite_coefficients():
    estimator = fitted("bernoulli")
    p = estimator.predict(LINE)
    assert 3 < estimator.coef_[0] < 12 and (np.diff(p) > 0).all() and 0 < p[0] < 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_row_and_more_columns_than_rows_have_an_answer():
    one = GeneralizedLinearModel("bernoulli", engine="bayes").fit([[1.0, 2.0]], [1])
    assert 0.5 < one.predict([[1.0, 2.0]])[0] < 1
    x = RNG.normal(size=(6, 10))
    many = GeneralizedLinearModel("poisson", engine="bayes").fit(x, RNG.poisson(2, 6))
    assert np.isfinite(many.table()).all().all()


@pytest.mark.parametrize("engine", ["baye", 3, probml.NUTS, np.zeros(2)], ids=str)
@pytest.mark.parametrize("estimator", [GeneralizedLinearModel(), MixedModel({"who": ["1"]})],
                         ids=lambda estimator: type(estimator).__name__)
def test_other_words_for_engines_are_refused_with_those_that_there_are(estimator, engine):
    with pytest.raises(probml.ModelError, match=r"None, 'bayes' or an engine"):
        estimator.set_params(engine=engine).fit(GROUPS, LEVELS)


@pytest.mark.parametrize(("estimator", "y", "words"), [
    (GeneralizedLinearModel(engine="bayes", penalty=1.0), Y, "penalty"),
    (GeneralizedLinearModel("poisson", link="identity", engine="bayes"), WHO, "depends on the size of y"),
    (GeneralizedLinearModel(engine="bayes"), 2 * GROUPS["a"] + 1, "the columns fits every row"),
    (MixedModel({"who": ["1"]}, engine="bayes"), np.full(60, 3.0), "the columns fits every row"),
])
def test_what_has_no_posterior_under_these_priors_is_refused(estimator, y, words):
    with pytest.raises(ValueError, match=words):
        estimator.fit(GROUPS, y)


@pytest.mark.slow
def test_sleepstudy_is_near_lmer(shared_data):
    data = pd.read_csv(shared_data / "classic/sleepstudy.csv")
    estimator = MixedModel({"Subject": ["1", "Days"]}, engine="bayes").fit(data[["Days", "Subject"]],
                                                                     data["Reaction"])
    by_ml = MixedModel({"Subject": ["1", "Days"]}).fit(data[["Days", "Subject"]], data["Reaction"])
    gap = np.subtract([estimator.intercept_, *estimator.coef_], [by_ml.intercept_, *by_ml.coef_])
    assert np.abs(gap / by_ml.standard_errors_).max() < 0.15
    np.testing.assert_allclose(estimator.spreads_["Subject"], by_ml.spreads_["Subject"], rtol=0.2)
    assert estimator.noise_ == pytest.approx(by_ml.noise_, rel=0.03)
    np.testing.assert_allclose(np.diag(estimator.correlations_["Subject"]), 1.0)
    assert np.corrcoef(np.ravel(estimator.effects_["Subject"]),
                       np.ravel(by_ml.effects_["Subject"]))[0, 1] > 0.99


@pytest.mark.slow
def test_an_offset_is_in_units_of_y():
    offset = 5 * LINE[:, 0] + np.linspace(0, 3, 20) ** 2
    y, groups = LEVELS[:20], GROUPS[:20]
    plain = MixedModel({"who": ["1"]}).fit(groups, y)
    moved = MixedModel({"who": ["1"]}).fit(groups, y + offset, offset=offset)
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-4)
    np.testing.assert_allclose(moved.predict(groups, offset=offset) - offset,
                               plain.predict(groups), rtol=1e-5)
