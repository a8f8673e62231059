"""One rule for the kinds of columns: what is guessed, what is shown, how it is overruled, what is refused or doubted."""

import warnings

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
import probml
from probml.models import GaussianDiscriminant, GaussianMixture, HiddenMarkov, MixedMixture, NaiveBayes, learn_structure
from probml.models.kinds import discrete, tied, usual


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
        ([0.5, 1.5] * 20, "normal"),
        ([7.0] * 20, "normal"),
        ([*[0, 1] * 600, 0.5], "normal"),  # beyond the first glance
    ],
)
def test_few_whole_numbers_that_repeat_are_categories_and_other_numbers_are_numbers(values, kind):
    assert usual(pd.Series(values), "column 'a'") == kind
    if kind == "normal":
        assert not discrete(np.asarray(values, float))


def test_a_column_that_repeats_few_values_is_doubted_as_a_normal():
    assert tied([0.5, 1.5] * 20) and not tied(np.linspace(0, 1, 40))


def test_the_kinds_that_were_guessed_are_shown_and_overruled_one_by_one(passengers):
    face = MixedMixture(2, kinds={"Survived": "bernoulli"}).fit(passengers)
    assert dict(zip(face.columns_.names, face.columns_.kinds, strict=True)) == {
        "Survived": "bernoulli", "Pclass": "categorical", "Age": "normal", "Fare": "normal", "Sex": "categorical", "Alone": "categorical",
    }  # fmt: skip
    assert "Pclass: categorical (1.0, 2.0), guessed" in str(face.columns_) and "'Pclass'" in face.status and "'Survived'" not in face.status
    assert face.columns_.labels[1] == (1.0, 2.0)
    with pytest.warns(UserWarning, match="column 'Pclass' has 2 distinct values.*kinds={'Pclass': 'categorical'}"):
        MixedMixture(1, kinds="normal").fit(passengers[["Pclass", "Fare"]])


def test_a_whole_number_that_training_did_not_show_counts_as_unseen(passengers):
    face = NaiveBayes().fit(passengers[["Pclass", "Fare"]], passengers["Survived"])
    new = pd.DataFrame({"Pclass": [3.0], "Fare": [10.0]})
    with pytest.warns(UserWarning, match="column 'Pclass' has 3.0 in row 0.*count as unseen.*kinds="):
        found = face.predict_proba(new)
    np.testing.assert_allclose(found, face.predict_proba(new.assign(Pclass=np.nan)))


def test_dates_are_refused_with_what_to_do(passengers):
    dated = passengers[["Fare"]].assign(when=pd.Timestamp("2020-01-01"))
    for fit in (lambda: MixedMixture(2).fit(dated), lambda: learn_structure(dated, "bic")):
        with pytest.raises(probml.DataError, match="column 'when' holds dates.*total_seconds"):
            fit()


def test_structure_takes_whole_floats_as_categories_unless_told(passengers):
    data = passengers[["Survived", "Pclass"]].fillna(3.0)
    assert learn_structure(data, "bdeu", restarts=0).has_node("Pclass")
    with pytest.raises(probml.DataError, match="'Pclass' is continuous and score='bdeu'"):
        learn_structure(data, "bdeu", kinds={"Pclass": "normal"})
    with pytest.raises(probml.DataError, match="kinds: column 'Pclass' is 'poisson'"):
        learn_structure(data, "bdeu", kinds={"Pclass": "poisson"})


@pytest.mark.slow
def test_a_discrete_column_of_a_gaussian_mixture_and_a_best_size_at_the_end_are_said():
    random = np.random.default_rng(0)
    x = np.column_stack([random.normal(size=80), random.integers(2, size=80)])
    with pytest.warns(UserWarning, match="column 1 has 2 distinct values.*MixedMixture"):
        GaussianMixture(1).fit(x)
    apart = random.normal(size=(90, 1)) + 20 * np.repeat([0, 1, 2], 30)[:, None]
    with pytest.warns(UserWarning, match="the best n_components by bic is 2, the largest"):
        face = GaussianMixture([1, 2], covariance_type="diag").fit(apart)
    assert "n_components=2 is the largest of the range" in face.status


def test_no_time_at_all_is_a_waiting_time():
    waits = np.random.default_rng(0).exponential([1.0, 1e5], (40, 2))
    waits[0] = 0.0
    face = MixedMixture(1, kinds="exponential").fit(waits)
    np.testing.assert_allclose(face.tables_[1]["rate"][0], 1 / waits[:, 1].mean(), rtol=0.1)
    assert np.isfinite(face.score_samples(waits)).all()


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
