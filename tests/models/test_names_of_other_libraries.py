"""What users of scikit-learn and hmmlearn rely on: names, and warnings that their filters find.

To add an estimator, add a line to FITTED.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.naive_bayes import BernoulliNB, GaussianNB

from probml import DataError, ModelError, models

R = np.random.default_rng(0)
X = np.r_[R.normal(-1, 1, (30, 3)), R.normal(1, 1, (40, 3))]
Y = np.repeat(["a", "b"], [30, 40])
THREE = np.repeat(["a", "b", "c"], [30, 20, 20])
BITS = (X > 0).astype(int)
COUNTS = R.poisson(2.0, (30, 4))

FITTED = {
    "GaussianDiscriminant": lambda: models.GaussianDiscriminant().fit(X, Y),
    "FisherDiscriminant": lambda: models.FisherDiscriminant().fit(X, Y),
    "NaiveBayes of bits": lambda: models.NaiveBayes(kinds="bernoulli").fit(BITS, Y),
    "NaiveBayes": lambda: models.NaiveBayes().fit(X, Y),
    "ProbabilisticPCA": lambda: models.ProbabilisticPCA(2).fit(X),
    "KernelDensity": lambda: models.KernelDensity().fit(X),
    "PoissonFactors": lambda: models.PoissonFactors(2).fit(COUNTS),
    "SparseCoding": lambda: models.SparseCoding(2).fit(X),
}


@pytest.mark.parametrize("name", FITTED)
def test_every_name_of_a_fitted_estimator_is_there_or_absent(name):
    estimator = FITTED[name]()
    for attribute in dir(estimator):
        hasattr(estimator, attribute)  # raises what is no AttributeError


@pytest.mark.parametrize("name", [name for name in models.__all__
                                  if hasattr(getattr(models, name), "transform")])
def test_what_transforms_names_its_columns(name):
    estimator = getattr(models, name)()
    assert hasattr(estimator, "set_output") and hasattr(estimator, "get_feature_names_out")


def test_columns_of_transforms_are_a_table_where_that_is_asked():
    estimator = models.FisherDiscriminant().fit(X, THREE).set_output(transform="pandas")
    assert list(estimator.transform(X).columns) == ["fisherdiscriminant0", "fisherdiscriminant1"]
    assert list(models.PoissonFactors(2).fit(COUNTS).get_feature_names_out()) == [
        "poissonfactors0", "poissonfactors1"]


@pytest.mark.parametrize("estimator", [models.FactorAnalysis(1, max_iter=1),
                                       models.SparseCoding(2, max_iter=1)], ids=repr)
def test_what_has_not_converged_is_a_convergence_warning(estimator):
    for kind in (ConvergenceWarning, RuntimeWarning):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", kind)
            with pytest.raises(kind):
                estimator.fit(X)


PRIORS = np.array([0.2, 0.8])


@pytest.mark.parametrize("ours, theirs, rows", [
    (models.GaussianDiscriminant(prior=False, priors=PRIORS), QuadraticDiscriminantAnalysis(
        priors=PRIORS), X),
    (models.FisherDiscriminant(priors=PRIORS), LinearDiscriminantAnalysis(priors=PRIORS), X),
    (models.NaiveBayes(prior=False, priors=PRIORS), GaussianNB(priors=PRIORS), X),
    (models.NaiveBayes(kinds="bernoulli", priors=PRIORS), BernoulliNB(class_prior=PRIORS), BITS),
], ids=["quadratic", "linear", "normal", "bits"])
def test_given_probabilities_of_classes_are_the_peers(ours, theirs, rows):
    ours.fit(rows, Y)
    theirs.fit(rows, Y)
    # of covariances theirs divides by n − 1
    np.testing.assert_allclose(ours.predict_proba(rows), theirs.predict_proba(rows), atol=0.03)
    odds = ours.decision_function(rows)
    np.testing.assert_allclose(odds, np.log(ours.predict_proba(rows) @ [-0.0, 1.0])
                               - np.log(ours.predict_proba(rows)[:, 0]), atol=1e-3)
    np.testing.assert_array_equal(ours.class_count_, [30, 40])


def test_probabilities_of_classes_that_cannot_be_are_refused():
    for priors in ([0.5, 0.6], [1.0]):
        with pytest.raises(ModelError, match="priors=.*2 probabilities that sum to 1"):
            models.GaussianDiscriminant(priors=priors).fit(X, Y)


def test_joint_log_probabilities_are_the_peers():
    ours, theirs = models.NaiveBayes(prior=False).fit(X, THREE), GaussianNB().fit(X, THREE)
    np.testing.assert_allclose(ours.predict_joint_log_proba(X), theirs.predict_joint_log_proba(X),
                               atol=1e-3)


def test_as_many_classes_as_rows_are_refused_in_words():
    with pytest.raises(DataError, match="2 rows of 2 classes. The number of samples must be more"):
        models.FisherDiscriminant().fit(X[:2], ["a", "b"])


def test_draws_take_a_seed():
    estimator = models.KernelDensity().fit(X)
    assert (estimator.sample(3, random_state=1) == estimator.sample(3, random_state=1)).all()
    assert (estimator.sample(3, random_state=1) != estimator.sample(3, random_state=2)).any()


def test_draws_of_a_process_have_its_mean_and_width():
    at = np.linspace(-1, 1, 4)[:, None]
    estimator = models.GaussianProcess(n_starts=1).fit(X[:, :1], X[:, 0] + 0.3 * R.normal(size=70))
    drawn, (mean, spread) = estimator.sample_y(at, 4000), estimator.predict(at, return_std=True)
    np.testing.assert_allclose(drawn.mean(1), mean, atol=0.03)
    np.testing.assert_allclose(drawn.std(1), spread, rtol=0.06)


def test_sparse_rows_are_rows():
    dense = models.NaiveBayes(kinds="bernoulli").fit(BITS, Y)
    sparse = models.NaiveBayes(kinds="bernoulli").fit(scipy.sparse.csr_matrix(BITS), Y)
    np.testing.assert_array_equal(sparse.predict_proba(scipy.sparse.csr_matrix(BITS)),
                                  dense.predict_proba(BITS))


def test_a_hidden_markov_model_is_what_its_attributes_are_set_to():
    estimator = models.HiddenMarkov(2)
    estimator.startprob_, estimator.transmat_ = [0.6, 0.4], [[0.9, 0.1], [0.2, 0.8]]
    estimator.means_, estimator.covars_ = [[0.0], [5.0]], [[1.0], [4.0]]
    drawn, states = estimator.sample(50, random_state=0)
    assert (estimator.predict(drawn) == states).mean() > 0.9
    good, path = estimator.decode(drawn, algorithm="map")
    np.testing.assert_array_equal(path, estimator.predict_proba(drawn).argmax(1))
    assert good == pytest.approx(estimator.predict_proba(drawn).max(1).sum(), rel=1e-5)
    np.testing.assert_allclose(estimator.covars_, [[1.0], [4.0]])
    with pytest.raises(ModelError, match="decode.*'viterbi', 'map'"):
        estimator.decode(drawn, algorithm="best")


def test_upper_triangles_make_the_precisions():
    estimator = models.GaussianMixture(2, n_init=1).fit(X)
    root = estimator.precisions_cholesky_
    np.testing.assert_allclose(root @ np.swapaxes(root, -1, -2), estimator.precisions_, rtol=2e-3,
                               atol=1e-4)
