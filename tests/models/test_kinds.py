"""One rule for the kinds of columns: what is guessed, what is shown, how it is overruled, what is
refused or doubted."""

import contextlib
import datetime
import warnings

import networkx as nx
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import sample

pytest.importorskip("sklearn")
import probml
from probml.models import (
    GaussianDiscriminant,
    GaussianMixture,
    HiddenMarkov,
    MixedMixture,
    MixtureDiscriminant,
    NaiveBayes,
    bayesian_network,
    learn_structure,
)
from probml.models.frames.kinds import default_kind, discrete, has_few_values
from probml.models.frames.ties import warn_of_ties_in_array


@pytest.fixture(scope="module")
def passengers():
    random = np.random.default_rng(0)
    first = random.random(300) < 0.4
    return pd.DataFrame(
        {
            "Survived": (random.random(300) < np.where(first, 0.7, 0.3)).astype(int),
            "Pclass": np.where(first, 1.0, np.where(random.random(300) < 0.3, 2.0, np.nan)),
            "Age": np.where(random.random(300) < 0.2, np.nan, random.normal(30, 12, 300)),
            "Fare": random.lognormal(np.where(first, 4, 2), 0.5),
            "Sex": np.where(random.random(300) < 0.5, "male", "female"),
            "Alone": random.random(300) < 0.5,
        }
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 1] * 20, "categorical"),
        ([1.0, 2.0, np.nan, 3.0] * 20, "categorical"),
        ([True, False], "categorical"),
        (["a", "b"], "categorical"),
        (list(range(40)) * 5, "normal"),
        ([1, 2, 3, 4], "normal"),  # each seen once
        ([0, 1, 1], "categorical"),  # 0 and 1 are what they are
        ([0.5, 1.5] * 20, "normal"),
        ([7.0] * 20, "normal"),
        ([*[0, 1] * 600, 0.5], "normal"),  # beyond the first glance
    ],
)
def test_few_whole_numbers_that_repeat_are_categories_and_other_numbers_are_numbers(values, kind):
    assert default_kind(pd.Series(values), "column 'a'") == kind
    if kind == "normal":
        assert not discrete(np.asarray(values, float))


def test_a_column_that_repeats_few_values_is_doubted_as_a_normal():
    assert has_few_values([0.5, 1.5] * 20) and not has_few_values(np.linspace(0, 1, 40))


def test_the_kinds_that_were_guessed_are_shown_and_overruled_one_by_one(passengers):
    estimator = MixedMixture(2, kinds={"Survived": "bernoulli"}).fit(passengers)
    assert dict(zip(estimator.columns_.names, estimator.columns_.kinds, strict=True)) == {
        "Survived": "bernoulli", "Pclass": "categorical", "Age": "normal", "Fare": "normal",
        "Sex": "categorical", "Alone": "categorical",
    }  # fmt: skip
    assert ("Pclass: categorical (1.0, 2.0), guessed" in str(estimator.columns_)
            and "'Pclass'" in estimator.status and "'Survived'" not in estimator.status)
    assert estimator.columns_.labels[1] == (1.0, 2.0)
    with pytest.warns(UserWarning, match="column 'Pclass' has 2 distinct values.*kinds={'Pclass': "
                      "'categorical'}"):
        MixedMixture(1, kinds="normal").fit(passengers[["Pclass", "Fare"]])


def test_a_whole_number_that_training_did_not_show_counts_as_unseen(passengers):
    estimator = NaiveBayes().fit(passengers[["Pclass", "Fare"]], passengers["Survived"])
    new = pd.DataFrame({"Pclass": [3.0], "Fare": [10.0]})
    with pytest.warns(UserWarning,
                      match="column 'Pclass' is 3.0 in row 0.*treated as missing.*kinds="):
        found = estimator.predict_proba(new)
    np.testing.assert_allclose(found, estimator.predict_proba(new.assign(Pclass=np.nan)))


def test_dates_are_refused_with_what_to_do(passengers):
    dated = passengers[["Fare"]].assign(when=pd.Timestamp("2020-01-01"))
    for fit in (lambda: MixedMixture(2).fit(dated), lambda: learn_structure(dated, "bic")):
        with pytest.raises(probml.DataError, match="column 'when' contains dates.*Timedelta"):
            fit()


def test_structure_takes_whole_floats_as_categories_unless_told(passengers):
    data = passengers[["Survived", "Pclass"]].fillna(3.0)
    assert learn_structure(data, "bdeu", restarts=0).has_node("Pclass")
    with pytest.raises(probml.DataError, match="'Pclass' is continuous, but score='bdeu'"):
        learn_structure(data, "bdeu", kinds={"Pclass": "normal"})
    with pytest.raises(probml.DataError, match="kinds=.'Pclass': 'poisson'"):
        learn_structure(data, "bdeu", kinds={"Pclass": "poisson"})


def test_structure_takes_whole_numbers_of_many_values_as_numbers_and_says_so(passengers):
    data = passengers[["Survived", "Pclass", "Sex"]].fillna(3.0).assign(
        Age=passengers["Age"].fillna(30).round().astype(int)
    )
    dag = learn_structure(data, "bic", restarts=0)
    assert dict(dag.nodes(data="states")) == {"Survived": (0, 1), "Pclass": (1.0, 2.0, 3.0),
                                              "Sex": ("female", "male"), "Age": float}
    assert ("categories: 'Survived', 'Pclass';" in dag.graph["status"]
            and "treated as numbers: 'Age'" in dag.graph["status"])
    told = learn_structure(data, "bic", restarts=0, kinds={"Age": "categorical"})
    assert (told.nodes["Age"]["states"] == tuple(sorted(set(data["Age"])))
            and "'Age'" not in told.graph["status"])
    with pytest.raises(probml.DataError,
                       match="'Age' is continuous, but score='bdeu'.*kinds={'Age': 'categorical'}"):
        learn_structure(data, "bdeu")


def test_a_network_reads_its_states_from_the_data_unseen_cells_and_all(passengers):
    dag = nx.DiGraph([("Pclass", "Survived"), ("Sex", "Survived"), ("Pclass", "Fare")])
    table = passengers[list(dag)].assign(Sex=passengers["Sex"].where(passengers.index > 9))
    fit = bayesian_network(dag, data=table).fit(table)
    assert dict(node[::2][:2] for node in fit.model.bound["nodes"]) == {
        "Pclass": (1.0, 2.0), "Sex": ("female", "male"), "Survived": (0, 1), "Fare": float,
    }  # fmt: skip
    rates = fit.table("Survived")
    assert rates.loc[(1.0, "male"), 1] > 0.55 > 0.45 > rates.loc[(2.0, "male"), 1]
    told = bayesian_network(learn_structure(table.dropna(), "bic", restarts=0), data=table,
                            kinds={"Survived": "normal"})
    assert dict(node[::2][:2] for node in told.bound["nodes"])["Survived"] is float
    # a class that no complete row showed
    rare = table.assign(Pclass=table["Pclass"].where(table.index != 5, 3.0))
    wider = bayesian_network(learn_structure(table.dropna(), "bic", restarts=0), data=rare)
    assert dict(node[::2][:2] for node in wider.bound["nodes"])["Pclass"] == (1.0, 2.0, 3.0)


def test_kinds_of_a_network_that_cannot_be_are_refused(passengers):
    dag, table = nx.DiGraph([("Pclass", "Fare")]), passengers[["Pclass", "Fare"]]
    for given, words in (
        ({}, "'Pclass' has no states.*data=..."),
        ({"kinds": {"Fare": "normal"}}, "but data= is missing"),
        ({"data": table, "kinds": {"fare": "normal"}}, "'fare' is not a node of the graph"),
        ({"data": table, "states": {"Fare": float}, "kinds": {"Fare": "normal"}},
         "'Fare' is in both states= and kinds="),
        ({"data": table, "kinds": {"Fare": "poisson"}},
         "'Fare': 'poisson'.*expected 'categorical' or 'normal'"),
        ({"data": table[["Fare"]]}, "'Pclass' is not a column of data="),
        ({"data": table.assign(Fare=[datetime.date(2020, 1, 1)] * len(table))},
         "'Fare' contains dates"),
    ):
        with pytest.raises((probml.ModelError, probml.DataError), match=words):
            bayesian_network(dag, **given)


@pytest.mark.slow
def test_passengers_fall_into_few_groups_of_which_none_collapses(passengers):
    table = passengers.assign(SibSp=np.random.default_rng(1).poisson(0.5, len(passengers)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator = MixedMixture(range(1, 5)).fit(table)
    assert (estimator.n_components_ in (2, 3) and estimator.weights_.min() > 0.05
            and "collapsed" not in estimator.status)
    assert estimator.columns_.kinds == ("categorical", "categorical", "normal", "normal", "categorical",
                                        "categorical", "categorical")
    gains = np.diff(estimator.table_["loglik"])
    assert gains[0] > 20 and (gains[estimator.n_components_ :] < 60).all()


@pytest.mark.slow
def test_a_discrete_column_of_a_gaussian_mixture_and_a_best_size_at_the_end_are_said():
    random = np.random.default_rng(0)
    x = np.column_stack([random.normal(size=80), random.integers(2, size=80)])
    with pytest.warns(UserWarning, match="column 1 has 2 distinct values.*MixedMixture"):
        GaussianMixture(1).fit(x)
    with pytest.warns(UserWarning, match="column 1 has 2 distinct values.*emission='categorical'"):
        # as many starts as states: an initial table that is square is no transition
        HiddenMarkov(2, n_init=2).fit(x)
    with pytest.warns(
        UserWarning, match="column 1 has 2 distinct values.*NaiveBayes"
    ), contextlib.suppress(probml.ModelError):
        MixtureDiscriminant(2, covariance="diag").fit(x, np.arange(80) % 2)
    apart = random.normal(size=(90, 1)) + 20 * np.repeat([0, 1, 2], 30)[:, None]
    with pytest.warns(UserWarning, match="the best n_components by bic is 2, the largest"):
        estimator = GaussianMixture([1, 2], covariance_type="diag").fit(apart)
    assert "n_components=2 is the largest value of the range" in estimator.status


def test_no_time_at_all_is_a_waiting_time():
    waits = np.random.default_rng(0).exponential([1.0, 1e5], (40, 2))
    waits[0] = 0.0
    estimator = MixedMixture(1, kinds="exponential").fit(waits)
    np.testing.assert_allclose(estimator.tables_[1]["rate"][0], 1 / waits[:, 1].mean(), rtol=0.1)
    assert np.isfinite(estimator.score_samples(waits)).all()


def test_a_zero_is_taken_where_it_has_a_density_and_refused_with_what_to_do_where_it_has_none():
    def waits(distribution):
        @probml.model
        def model(scale):
            with probml.rows():
                sample("x", distribution(scale))

        return model(scale=2.0).at({})

    x = np.array([0.0, 1.0])
    np.testing.assert_allclose(waits(lambda scale: dist.Exponential(1 / scale)).log_prob({"x": x}),
                               np.log(0.5) - x / 2, rtol=1e-6)
    for refused in (lambda scale: dist.Gamma(2.0, scale), lambda scale: dist.LogNormal(0.0, scale),
                    lambda scale: dist.Weibull(scale, 1.5)):
        with pytest.raises(probml.DataError, match="'x' must be positive, got 0.0 in row 0. "
                           "(Gamma|LogNormal|Weibull) has no dens.*half"):
            waits(refused).log_prob({"x": x})
        with pytest.raises(probml.DataError, match="got -1.0 in row 1. Correct the value, or use NaN"):
            waits(refused).log_prob({"x": np.array([1.0, -1.0])})


@pytest.mark.slow
def test_scikit_learns_words_for_covariances_are_taken_everywhere():
    x = np.random.default_rng(0).normal(size=(30, 2)) + 3 * (np.arange(30) % 2)[:, None]
    y = np.arange(30) % 2
    for ours, theirs in (("own", "full"), ("shared", "tied"), ("diagonal", "diag")):
        one, other = (GaussianDiscriminant(name).fit(x, y) for name in (ours, theirs))
        assert one.fit_.model == other.fit_.model
        np.testing.assert_array_equal(one.covariance_, other.covariance_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert HiddenMarkov(2, emission="diag").fit(x).covars_.shape == (2, 2)
    with pytest.raises(probml.ModelError, match="covariance='round'.*'own'.*'full'"):
        GaussianDiscriminant("round").fit(x, y)


def test_numbers_that_stand_as_objects_are_numbers():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 60)
    x = rng.normal(2.0 * labels, 1)
    holed = np.where(np.arange(60) < 3, np.nan, x)
    objects = [None if i < 3 else value for i, value in enumerate(x.tolist())]
    one = NaiveBayes().fit(pd.DataFrame({"x": holed}), labels)
    other = NaiveBayes().fit(pd.DataFrame({"x": pd.Series(objects, dtype=object)}), labels)
    assert "normal" in str(other.columns_)
    np.testing.assert_array_equal(one.predict_proba(pd.DataFrame({"x": x})),
                                  other.predict_proba(pd.DataFrame({"x": x})))
    text = NaiveBayes().fit(pd.DataFrame({"x": pd.Series(["1", "2"] * 30)}), labels)
    assert "categorical" in str(text.columns_)


def test_columns_of_few_values_that_normals_are_fitted_to_are_said_in_one_warning():
    values = np.random.default_rng(0).normal(size=(200, 12))
    values[:, 3] = values[:, 3] > 0
    with pytest.warns(UserWarning, match=r"^column 3 has 2 distinct values in 200 rows and is") as w:
        warn_of_ties_in_array(values, lambda j: f"column {j}", "Drop it")
    values[:, 2:11] = np.round(values[:, 2:11].clip(-1, 1))
    with pytest.warns(UserWarning, match=r"column 2 \(3\), column 3 \(2\), .* and 3 more columns") as v:
        warn_of_ties_in_array(values, lambda j: f"column {j}", "Drop it")
    assert len(w) == len(v) == 1
