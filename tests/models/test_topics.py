"""Latent Dirichlet allocation held to scikit-learn's: topics, documents, bound and perplexity."""

import numpy as np
import pytest
from scipy.special import digamma, gammaln

pytest.importorskip("sklearn")
from scipy.sparse import csr_matrix
from sklearn.decomposition import LatentDirichletAllocation

import probml
from probml import DataError
from probml.models import TopicModel, latent_dirichlet
from probml.models.mixtures.topics import of_counts

K, DOCUMENTS, WORDS = 3, 20, 12


def counts(n=DOCUMENTS, seed=0):
    random = np.random.default_rng(seed)
    topics = np.random.default_rng(9).dirichlet(np.full(WORDS, 0.15), K)
    return np.array([random.multinomial(60, random.dirichlet(np.full(K, 0.3)) @ topics)
                     for _ in range(n)])


@pytest.fixture(scope="module")
def peer():
    return LatentDirichletAllocation(
        K, doc_topic_prior=0.4, topic_word_prior=0.3, learning_method="batch", max_iter=3000,
        evaluate_every=1, perp_tol=1e-13, max_doc_update_iter=2000, mean_change_tol=1e-12,
        random_state=0).fit(counts())


@pytest.fixture(scope="module")
def estimator(peer):
    """From the topics that scikit-learn found."""
    data, weights = of_counts(counts())
    shares = peer.transform(counts())
    model = latent_dirichlet(documents=DOCUMENTS, words=WORDS, k=K, concentration=0.4,
                             word_concentration=0.3)
    topics = peer.components_ / peer.components_.sum(1, keepdims=True)
    return model.fit(data, probml.VB(tolerance=1e-13, restarts=1, max_iterations=3000),
                     weights=weights, start={"share": shares, "topic": topics})


def dirichlet_gap(a, prior):
    """KL(Dirichlet(a) ‖ Dirichlet(prior, …)), summed over rows."""
    logs = digamma(a) - digamma(a.sum(-1, keepdims=True))
    k = a.shape[-1]
    return np.sum(gammaln(a.sum(-1)) - gammaln(a).sum(-1) - gammaln(k * prior) + k * gammaln(prior)
                  + ((a - prior) * logs).sum(-1))


def test_topics_and_documents_are_those_of_scikit_learn(estimator, peer):
    np.testing.assert_allclose(estimator.posterior("topic").concentration, peer.components_, rtol=2e-4,
                               atol=2e-4)
    shares = estimator.posterior("share").concentration
    np.testing.assert_allclose(shares / shares.sum(1, keepdims=True), peer.transform(counts()),
                               atol=2e-5)


def test_the_bound_is_that_of_scikit_learn(estimator, peer):
    """Its perplexity is exp(−bound / words) with the bound of topics and documents together; words
    come in an order, so that neither counts arrangements."""
    bound = -np.log(peer.perplexity(counts())) * counts().sum()
    assert estimator.bound == pytest.approx(bound, rel=1e-6)


def test_the_bound_is_the_formula_of_blei_ng_and_jordan(estimator):
    gamma = np.asarray(estimator.posterior("share").concentration)
    topics = np.asarray(estimator.posterior("topic").concentration)
    logs = [digamma(a) - digamma(a.sum(-1, keepdims=True)) for a in (gamma, topics)]
    shown = (counts() * np.log(np.exp(logs[0]) @ np.exp(logs[1]))).sum()
    expected = shown - dirichlet_gap(gamma, 0.4) - dirichlet_gap(topics, 0.3)
    assert estimator.bound == pytest.approx(expected, rel=1e-9)


def test_new_documents_have_the_topics_and_the_perplexity_of_scikit_learn(peer):
    estimator = TopicModel(K, doc_topic_prior=0.4, topic_word_prior=0.3)
    estimator.components_, estimator.fit_, estimator.n_features_in_ = peer.components_, None, WORDS
    new = counts(6, seed=5)
    np.testing.assert_allclose(estimator.transform(new), peer.transform(new), atol=1e-6)
    theirs = -np.log(peer.perplexity(new)) * new.sum() + dirichlet_gap(peer.components_, 0.3)
    assert estimator.score(new) == pytest.approx(theirs, rel=1e-6)
    assert estimator.perplexity(new) == pytest.approx(np.exp(-theirs / new.sum()), rel=1e-6)


def test_the_estimator_finds_topics_as_good_as_scikit_learns_from_its_own_start(peer):
    estimator = TopicModel(K, doc_topic_prior=0.4, topic_word_prior=0.3, n_init=4, tol=1e-7).fit(
        csr_matrix(counts()))
    bound = -np.log(peer.perplexity(counts())) * counts().sum()
    assert estimator.bound_ > bound - 2.0
    assert estimator.components_.shape == (K, WORDS) and estimator.doc_topic_.shape == (DOCUMENTS, K)
    np.testing.assert_allclose(estimator.components_.sum(), counts().sum() + 0.3 * K * WORDS, rtol=1e-6)
    np.testing.assert_allclose(estimator.transform(counts()), estimator.doc_topic_, atol=2e-3)


def test_counts_that_are_none_are_refused_by_cell():
    with pytest.raises(DataError, match="column 1 of X is -1 in row 0"):
        TopicModel(2).fit([[1, -1], [2, 3]])
    with pytest.raises(DataError, match="every count of X is 0"):
        TopicModel(2).fit([[0, 0], [0, 0]])
