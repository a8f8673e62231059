"""The scikit-learn estimators: scikit-learn's own contract, agreement with its classifiers and mixtures,
tables, weights, bad input."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.mixture import GaussianMixture as Peer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import probml
from contract import DENSE, contract
from probml.models import (
    GaussianDiscriminant,
    GaussianMixture,
    LatentClass,
    MixedMixture,
    MixtureDiscriminant,
    NaiveBayes,
    PoissonMixture,
)

nan = np.nan
X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"], dtype=object)[Y]
CODES = np.digitize(X, [2, 3, 5])
BITS = (X > X.mean(0)).astype(float)
COUNTS = np.round(10 * X)

# scikit-learn's contract

EXPECTED = {
    "LatentClass": {DENSE: "it predicts rows left out of the fit, whose categories are then "
                    "unknown, which is refused"},
    "PoissonMixture": {DENSE: "its data are fractions, which are no counts"},
    "MixedMixture": {DENSE: "the start draws rows, and a row twice is drawn otherwise than one "
                     "of weight 2: another local maximum"},
    "MixtureDiscriminant": {DENSE: "as MixedMixture, and a class has fewer distinct rows than "
                            "components"},
}


@contract(NaiveBayes())
def test_naive_bayes_keeps_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.one_in(3)
@contract(GaussianMixture(), LatentClass(), PoissonMixture(), MixedMixture(), GaussianDiscriminant(),
          MixtureDiscriminant(), expected=EXPECTED)
def test_every_other_estimator_keeps_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def test_the_zoo_imports_without_scikit_learn_and_says_what_to_install():
    program = (
        "import sys, probml.models as zoo; from probml.models import gaussian_mixture; assert "
        "'sklearn' not in sys.modules\n"
        "assert 'GaussianMixture' in dir(zoo); sys.modules['sklearn'] = None\n"
        "try: zoo.GaussianMixture\n"
        "except ImportError as error: print(error)"
    )
    assert (
        "pip install 'probml[sklearn]'" in subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout
    )
    with pytest.raises(AttributeError, match="GaussianMixtures.*GaussianMixture"):
        probml.models.GaussianMixtures  # noqa: B018


# Agreement with scikit-learn


@pytest.fixture(scope="module")
def bayes():
    return NaiveBayes().fit(X, NAMES)


@pytest.fixture(scope="module")
def mixture():
    return GaussianMixture(3, random_state=0).fit(X)


def test_normal_naive_bayes_at_maximum_likelihood_is_gaussian_nb():
    ours, peer = NaiveBayes(prior=False).fit(X, Y), GaussianNB(var_smoothing=0).fit(X, Y)
    np.testing.assert_allclose(ours.theta_, peer.theta_, atol=1e-8)
    np.testing.assert_allclose(ours.var_, peer.var_, atol=1e-8)
    np.testing.assert_allclose(ours.class_prior_, peer.class_prior_, atol=1e-8)
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), atol=1e-8)


@pytest.mark.parametrize(
    ("settings", "data", "peer"),
    [
        ({"categorical": "all", "categories": range(4)}, CODES, CategoricalNB(min_categories=4)),
        ({"kinds": "bernoulli"}, BITS, BernoulliNB()),
        ({"kinds": "multinomial"}, COUNTS, MultinomialNB()),
    ],
    ids=["categorical", "bernoulli", "multinomial"],
)
def test_discrete_naive_bayes_at_the_posterior_mean_is_scikit_learns(settings, data, peer):
    ours = NaiveBayes(plug_in=True, **settings).fit(data, Y)
    # scikit-learn does not smooth the classes
    peer.set_params(class_prior=ours.class_prior_).fit(data, Y)
    np.testing.assert_allclose(ours.predict_proba(data), peer.predict_proba(data), atol=1e-8)


def test_discriminants_at_maximum_likelihood_are_qda_and_lda():
    own, peer = (GaussianDiscriminant(prior=False).fit(X, Y),
                 QuadraticDiscriminantAnalysis(store_covariance=True).fit(X, Y))
    # scikit-learn divided by n − 1, later by n
    unbiased = np.isclose(peer.covariance_[0][0, 0], X[Y == 0, 0].var(ddof=1))
    np.testing.assert_allclose(own.means_, peer.means_, atol=1e-8)
    np.testing.assert_allclose(own.priors_, peer.priors_, atol=1e-8)
    np.testing.assert_allclose(own.covariance_ * (50 / 49 if unbiased else 1), peer.covariance_,
                               atol=1e-8)
    if not unbiased:
        np.testing.assert_allclose(own.predict_proba(X), peer.predict_proba(X), atol=1e-8)
    shared, peer = (GaussianDiscriminant("shared", prior=False).fit(X, Y),
                    LinearDiscriminantAnalysis(solver="lsqr").fit(X, Y))
    np.testing.assert_allclose(shared.covariance_, peer.covariance_, atol=1e-8)
    np.testing.assert_allclose(shared.predict_proba(X), peer.predict_proba(X), atol=1e-8)


def test_the_likelihood_of_discriminants_is_mclusts(shared_data):
    reference = json.loads((shared_data / "fits" / "mclustda_iris.json").read_text())["models"]
    # Fisher's, which differs from scikit-learn's in two rows
    table = pd.read_csv(shared_data / "classic" / "iris.csv")
    x, y = table.select_dtypes("number").to_numpy(), table["Species"].to_numpy()
    for covariance, name in (("shared", "EEE"), ("own", "VVV"), ("diagonal", "VVI")):
        estimator = GaussianDiscriminant(covariance, prior=False).fit(x, y)
        # of the rows, not the labels
        np.testing.assert_allclose(150 * estimator.fit_.score({"x": x}), reference[name]["loglik"],
                                   atol=1e-5)
        assert np.isclose((estimator.predict(x) != y).mean(), reference[name]["training_error"])


KINDS = ["full", "tied", "diag", "spherical"]


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_counts_of_a_mixture_are_scikit_learns(kind):
    peer = Peer(3, covariance_type=kind, random_state=0).fit(X)
    estimator = GaussianMixture(3, covariance_type=kind)
    estimator.n_features_in_ = 4
    estimator.fit_ = estimator._model(3).at({"weights": peer.weights_, "mean": peer.means_,
                                             "precision": peer.precisions_})
    assert estimator.n_parameters_ == peer._n_parameters()
    np.testing.assert_allclose(estimator.covariances_, peer.covariances_, rtol=1e-6)
    assert estimator.precisions_.shape == peer.precisions_.shape


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_takes_scikit_learns_steps_from_its_start(kind):
    identity = {"full": np.stack([np.eye(4)] * 3), "tied": np.eye(4), "diag": np.ones((3, 4)),
                "spherical": np.ones(3)}[kind]
    start = {"means_init": X[[0, 60, 120]], "weights_init": np.full(3, 1 / 3),
             "precisions_init": identity}
    peer = Peer(3, covariance_type=kind, tol=0, max_iter=100, reg_covar=0, **start)
    with pytest.warns(UserWarning, match="converge"):
        peer.fit(X)
    ours = GaussianMixture(3, covariance_type=kind, prior=False, **start).fit(X)
    np.testing.assert_allclose(ours.score_samples(X).sum(), peer.score_samples(X).sum(), atol=1e-2)
    np.testing.assert_allclose(ours.bic(X), peer.bic(X), atol=2e-2)
    np.testing.assert_allclose(ours.aic(X), peer.aic(X), atol=2e-2)


def test_a_hard_spherical_mixture_is_k_means():
    start = X[[10, 60, 120]]
    peer = KMeans(3, init=start, n_init=1).fit(X)
    ours = GaussianMixture(3, covariance_type="tied spherical", hard=True, concentration=1e9,
                           means_init=start).fit(X)
    labels = ours.predict(X)
    inertia = sum(((X[labels == j] - X[labels == j].mean(0)) ** 2).sum() for j in range(3))
    np.testing.assert_allclose(inertia, peer.inertia_, rtol=1e-8)


def test_narrow_components_without_rows_empty_themselves_and_leave_the_others_as_they_are():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2)) + np.where(rng.random(300) < 0.4, 6.0, 0.0)[:, None]
    means = np.r_[[[0.0, 0.0], [6.0, 6.0]], np.full((8, 2), 100.0)]
    # where the rows' own scale is expected of a component, one without rows wins some
    estimator = GaussianMixture(10, concentration=0.001, scale=0.1, means_init=means,
                                precisions_init=np.stack([np.eye(2)] * 10)).fit(x)
    assert (estimator.weights_[2:] < 1e-3).all()
    np.testing.assert_allclose(estimator.weights_[:2], [0.6, 0.4], atol=0.06)


# Mixtures


def test_a_mixture_answers_as_scikit_learns_does(mixture):
    assert (mixture.converged_ and mixture.n_iter_ > 1 and mixture.means_.shape == (3, 4)
            and mixture.covariances_.shape == (3, 4, 4))
    np.testing.assert_allclose(mixture.predict_proba(X).sum(1), 1.0)
    np.testing.assert_allclose(mixture.score(X), mixture.score_samples(X).mean())
    assert mixture.score(X) > Peer(3, random_state=0, n_init=5).fit(X).score(X) - 0.15
    np.testing.assert_allclose(mixture.bic(X),
                               -2 * mixture.score_samples(X).sum() + 44 * np.log(150))
    np.testing.assert_allclose(mixture.aic(X), -2 * mixture.score_samples(X).sum() + 88)
    assert mixture.lower_bound_ == mixture.lower_bounds_[-1] >= mixture.lower_bounds_[0]
    rows, labels = mixture.sample(7)
    assert rows.shape == (7, 4) and labels.shape == (7,)
    assert (pickle.loads(pickle.dumps(mixture)).predict(X) == mixture.predict(X)).all()


def test_a_row_with_nothing_seen_gets_the_prior(mixture, bayes):
    rows = np.full((2, 4), nan)
    np.testing.assert_allclose(mixture.predict_proba(rows), [mixture.weights_] * 2, atol=1e-12)
    np.testing.assert_allclose(bayes.predict_proba(rows), np.full((2, 3), 1 / 3), atol=1e-12)


def test_latent_classes_take_labels_and_unseen_cells():
    rng = np.random.default_rng(0)
    hidden = rng.random(400) < 0.5
    votes = pd.DataFrame({f"v{j}": np.where(rng.random(400) < 0.9, hidden, ~hidden)
                          for j in range(4)}).replace({True: "yes", False: "no"})
    truth = votes.copy()
    votes = votes.mask(pd.DataFrame(rng.random((400, 4)) < 0.2, columns=votes.columns))
    estimator = LatentClass(n_init=3).fit(votes)
    found = estimator.predict(votes)
    assert max((found == hidden).mean(), (found != hidden).mean()) > 0.9
    assert estimator.tables_["v0"]["probs"].shape == (2, 2) and estimator.columns_.labels[0] == ("no", "yes")
    filled = estimator.impute(votes)
    assert list(filled) == list(votes) and set(np.unique(filled)) == {"yes", "no"}
    assert (filled == truth).to_numpy().mean() > 0.9
    assert set(estimator.sample(5)[0].ravel()) <= {"yes", "no"}


@pytest.mark.slow
def test_counts_and_mixed_columns_are_clustered():
    rng = np.random.default_rng(1)
    z = rng.integers(2, size=300)
    counts = rng.poisson(np.array([[2.0, 9.0], [8.0, 1.0]])[z]).astype(float)
    poisson = PoissonMixture(2).fit(counts)
    order = np.argsort(poisson.rates_[:, 0])
    np.testing.assert_allclose(poisson.rates_[order], [[2.0, 9.0], [8.0, 1.0]], rtol=0.15)
    table = pd.DataFrame({"n": counts[:, 0], "x": rng.normal(3.0 * z),
                          "kind": np.array(["a", "b"])[z]})
    mixed = MixedMixture(2, kinds={"n": "poisson"}).fit(table)
    assert mixed.columns_.kinds == ("poisson", "normal", "categorical")
    found = mixed.predict(table)
    assert max((found == z).mean(), (found != z).mean()) > 0.95
    assert set(mixed.tables_["x"]) == {"mean", "precision"} and mixed.sample(3)[0].shape == (3, 3)


@pytest.mark.slow
def test_a_class_of_two_modes_needs_a_mixture_of_its_own():
    rng = np.random.default_rng(0)
    y = np.repeat(["inner", "outer"], 150)
    x = rng.normal(size=(300, 1)) + np.where(y == "inner", 0.0, rng.choice([-6.0, 6.0], 300))[:,
                                                                                              None]
    estimator = MixtureDiscriminant(2, n_init=2).fit(x, y)
    assert estimator.score(x, y) > 0.97 > 0.9 > (
        GaussianDiscriminant("shared").fit(x, y).predict(x) == y
    ).mean()
    np.testing.assert_allclose(np.sort(estimator.means_[1, :, 0]), [-6, 6], atol=0.5)
    np.testing.assert_allclose(estimator.weights_.sum(1), 1.0)


# Classifiers


# iris' columns go together within a species: rows without a label hurt naive Bayes, which says so
@pytest.mark.filterwarnings("ignore:NaiveBayes. unlabelled rows:UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator", [NaiveBayes(), GaussianDiscriminant(), GaussianDiscriminant("shared", prior=False),
                  MixtureDiscriminant(2)]
)
def test_classifiers_learn_from_unseen_cells_and_labels_together(estimator):
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.15, nan, X)
    some = np.where(np.arange(150) % 3 == 0, None, NAMES)
    assert (estimator.fit(holes, some).predict(X) == NAMES).mean() > 0.92


@pytest.mark.slow
def test_a_mixture_learns_from_unseen_cells_and_fills_them():
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.15, nan, X)
    estimator = GaussianMixture(3, n_init=3).fit(holes)
    filled = estimator.impute(holes)
    assert (filled == holes)[~np.isnan(holes)].all()
    # the columns' standard deviations are 0.4 to 1.8
    assert np.sqrt(np.mean((filled - X)[np.isnan(holes)] ** 2)) < 0.4


def test_half_the_labels_are_enough(bayes):
    half = NAMES.copy()
    half[::2] = None
    estimator = NaiveBayes().fit(X, half)
    assert list(estimator.classes_) == list(bayes.classes_) == ["setosa", "versicolor", "virginica"]
    assert (estimator.predict(X) == NAMES).mean() > 0.93
    assert estimator.fit_.labels("class") == ("setosa", "versicolor", "virginica")


@pytest.mark.parametrize("plug_in", [False, True])
def test_bayes_factors_multiply_to_the_posterior_odds(bayes, plug_in):
    estimator = clone(bayes).set_params(plug_in=plug_in)
    estimator.__dict__.update({name: value for name, value in vars(bayes).items() if name.endswith("_")})
    rows = X[[70, 100, 130]].copy()
    rows[1, 2] = nan
    factors, p = estimator.bayes_factors(rows, "virginica", "versicolor"), estimator.predict_proba(rows)
    assert factors.shape == (3, 4) and (factors > 0).all() and np.isclose(factors[1, 2], 1.0)
    np.testing.assert_allclose(np.prod(factors, 1) * estimator.class_prior_[2] / estimator.class_prior_[1],
                               p[:, 2] / p[:, 1], rtol=1e-8)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(200) < 0.5, "ill", "well")
    cough = np.where(rng.random(200) < 0.8, y == "ill", y != "ill")
    frame = pd.DataFrame({"heat": 37 + 2 * (y == "ill") + rng.normal(size=200), "cough": cough})
    frame["place"] = pd.Categorical(np.where(y == "ill", "town", "hill"), ["hill", "town", "sea"])
    frame["smoker"] = rng.choice(["no", "yes"], 200)
    frame.loc[3:20, "heat"], frame.loc[5:30, "smoker"] = nan, None
    return frame, y


def test_a_table_brings_kinds_labels_and_unseen_cells(table):
    frame, y = table
    estimator = NaiveBayes().fit(frame, y)
    assert estimator.columns_.kinds == ("normal", "categorical", "categorical",
                                        "categorical") and estimator.score(frame, y) > 0.9
    # the order of the Categorical
    assert estimator.columns_.labels[1:] == ((False, True), ("hill", "town", "sea"), ("no", "yes"))
    n = (y == "ill").sum()
    np.testing.assert_allclose(estimator.tables_["place"]["probs"][0],
                               [1 / (n + 3), (n + 1) / (n + 3), 1 / (n + 3)])
    with pytest.raises(probml.DataError, match=r"'smoker'.*'maybe' in row 0.*'no', 'yes'"):
        estimator.predict(frame.assign(smoker="maybe"))
    open_minded = NaiveBayes(unknown="prior").fit(frame, y)
    odd = open_minded.bayes_factors(frame.assign(smoker="maybe")[:1], "ill", "well")[0, 3]
    smokers = frame["smoker"].notna()
    # alpha over pseudo-rows
    np.testing.assert_allclose(
        odd, ((y == "well")[smokers].sum() + 3) / ((y == "ill")[smokers].sum() + 3)
    )


def test_entries_of_an_estimator_bear_the_names_of_its_columns(table):
    frame, y = table
    found = NaiveBayes().fit(frame, y).fit_.summary()
    assert "normal_mean[ill, heat]" in found.index
    assert "categorical_2_probs[well, smoker, 1]" in found.index


def test_weight_two_is_a_row_twice_and_weight_zero_none(bayes):
    weights = np.random.default_rng(0).integers(3, size=150)
    once = NaiveBayes().fit(X, NAMES, sample_weight=weights)
    twice = NaiveBayes().fit(np.repeat(X, weights, 0), np.repeat(NAMES, weights))
    np.testing.assert_allclose(once.predict_proba(X), twice.predict_proba(X), atol=1e-10)


def test_starts_of_discriminants_take_a_row_twice_as_one_of_weight_two():
    weights = np.random.default_rng(0).integers(1, 4, size=150)
    order = np.random.default_rng(1).permutation(weights.sum())
    once = MixtureDiscriminant(3).fit(X, NAMES, sample_weight=weights)
    twice = MixtureDiscriminant(3).fit(np.repeat(X, weights, 0)[order], np.repeat(NAMES, weights)[order])
    np.testing.assert_allclose(once.predict_proba(X), twice.predict_proba(X), atol=1e-3)


def test_estimators_work_in_pipelines_and_searches():
    line = make_pipeline(StandardScaler(), NaiveBayes())
    assert cross_val_score(line, X, Y, cv=3).mean() > 0.9
    search = GridSearchCV(NaiveBayes(), {"plug_in": [False, True]}, cv=2).fit(X, Y)
    assert search.best_score_ > 0.9


def test_chunks_and_merged_parts_equal_one_batch(bayes):
    order = np.random.default_rng(0).permutation(150)
    chunks = NaiveBayes()
    for rows in np.array_split(np.arange(150), 10):  # sorted by class: most chunks have one
        chunks.partial_fit(X[rows], NAMES[rows], classes=sorted(set(NAMES)))
    parts = [NaiveBayes().fit(X[rows], NAMES[rows]) for rows in np.array_split(order, 4)]
    merged = parts[0].merge(*parts[1:])
    for estimator in (chunks, merged):
        np.testing.assert_allclose(estimator.predict_proba(X), bayes.predict_proba(X), atol=1e-10)
        np.testing.assert_allclose(estimator.theta_, bayes.theta_, atol=1e-10)


def test_parts_that_do_not_fit_together_are_refused(bayes):
    with pytest.raises(probml.DataError, match="merge"):
        bayes.merge(NaiveBayes(alpha=2.0).fit(X, NAMES))
    with pytest.raises(probml.DataError, match="'oak'"):
        clone(bayes).fit(X, NAMES).partial_fit(X, np.where(Y == 0, "oak", NAMES))


# Questions that cannot be answered, runs that do not end


def test_a_prediction_needs_the_columns_of_the_fit(bayes, mixture):
    for estimator in (bayes, mixture):
        with pytest.raises(ValueError, match="3 features.*4 features"):
            estimator.predict(X[:, :3])
    with pytest.raises(probml.DataError, match="'oak' is not one of the fitted classes"):
        bayes.bayes_factors(X, "oak", "setosa")
    with pytest.raises(probml.ModelError, match="n_samples=0"):
        mixture.sample(0)


def test_a_run_that_stops_at_its_limit_says_so():
    with pytest.warns(probml.ConvergenceWarning, match="iteration limit"):
        estimator = GaussianMixture(3, max_iter=2).fit(X)
    assert not estimator.converged_ and estimator.n_iter_ == 2
