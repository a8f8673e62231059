"""The scikit-learn estimator of topics of documents."""

from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
from scipy.special import digamma, gammaln

from probml import VB, DataError
from probml.engines.engine import Engine
from probml.estimators.estimator import Estimator, Projection, absent
from probml.estimators.rules import (
    ENGINE,
    SEED,
    STARTS,
    Seed,
    check,
    hold,
    integer,
    number,
    optional,
    parameter,
)
from probml.estimators.validation import check_is_fitted
from probml.models.mixtures.topics import latent_dirichlet, of_counts
from probml.numerics.process.libraries import pd
from probml.posteriors.units import Unit

ROUNDS = 1000  # of a new document's topics, at the most


@dataclass(eq=False, repr=False)
class TopicModel(Projection, Estimator):
    """Latent Dirichlet allocation by variational Bayes: topics of a table of word counts; the
    function is probml.models.latent_dirichlet.

    The names are scikit-learn's LatentDirichletAllocation's, and so are the updates; what differs:
    the bound is that of all documents together until it rests, and the best of several starts is
    used.

    Args:
        n_components: topics, k.
        doc_topic_prior, topic_word_prior: pseudo-words of each topic in a document, and of each
            word in a topic; None is 1/k.
        tol: stop when an iteration gains less than this per word.
        max_iter: iterations at the most; one that stops there warns and leaves converged_ False.
        n_init: starts; the best bound is used. None: as many as VB chooses.
        random_state: seed of the starts; None is 0.
        engine: an engine's value instead of the VB that these arguments describe.

    Attributes:
        components_ (k, words), λ: pseudo-counts of the words of each topic, whose rows over their
        sums are its words' mean probabilities; doc_topic_ (documents, k), the mean shares of the
        documents that were fitted; bound_, below log p(counts) in their order of coming; n_iter_,
        converged_, fit_: the probml Fit.

    Examples:
        >>> import numpy as np
        >>> from probml.models import TopicModel
        >>> sport, cooking = [4, 3, 5, 0, 0, 1], [0, 1, 0, 6, 4, 5]      # counts of six words
        >>> X = np.array([sport, cooking] * 10)
        >>> topics = TopicModel(n_components=2, random_state=0).fit(X)
        >>> print(topics.transform(X[:2]).round(1))
        [[1. 0.]
         [0. 1.]]
        >>> topics.top_words(1)["word"].tolist()                         # columns of X
        [2, 3]
    """

    n_components: int = parameter(10, integer(1))
    _: KW_ONLY
    doc_topic_prior: float | None = parameter(None, optional(number(0.0, above=True)))
    topic_word_prior: float | None = parameter(None, optional(number(0.0, above=True)))
    tol: float = parameter(1e-7, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    n_init: int | None = parameter(None, optional(STARTS))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def fit(self, X, y=None):
        """Learn from counts X (documents, words), whole or not, none missing; y is ignored, present
        for scikit-learn's convention.

        Raises:
            ModelError, DataError: a parameter or a cell that cannot be used, by name.
        """
        check(self)
        X = self._counts(X, reset=True)
        data, counts = of_counts(X)
        if not len(counts):
            raise DataError("TopicModel: every count of X is 0, so there are no words. Give at "
                            "least one count above 0")
        n, n_words = X.shape
        alpha, eta = self._priors()
        model = latent_dirichlet(documents=n, words=n_words, k=self.n_components,
                                 concentration=alpha, word_concentration=eta)
        engine = self.engine or VB(max_iterations=self.max_iter, tolerance=self.tol,
                                   restarts=self.n_init)
        fit = model.fit(data, engine, weights=counts, seed=self._seed())
        units = {"topic": Unit(names={1: self._column_names})} if self._column_names else {}
        self.fit_ = replace(fit, units=units)
        self.n_iter_, self.converged_ = max(self.fit_.iterations, 1), self.fit_.converged
        self.components_ = np.asarray(self.fit_.posterior("topic").concentration, float)
        self.doc_topic_, self.bound_ = np.asarray(self.fit_.params["share"]), self.fit_.bound
        return self

    def _priors(self) -> list[float]:
        return [1 / self.n_components if prior is None else float(prior)
                for prior in (self.doc_topic_prior, self.topic_word_prior)]

    def _counts(self, X, reset: bool) -> np.ndarray:
        X = self._numbers(X, reset)
        for row, j in np.argwhere(~(X >= 0))[:1]:
            raise DataError(f"{self._column(int(j))} of X is {X[row, j]:g} in row {row}, expected "
                            "a count of words, a number of at least 0, and no missing values. "
                            "Correct the value, or drop the row")
        return X

    def _data(self, X):
        """Every word as a row."""
        data, counts = of_counts(self._counts(X, reset=False))
        return {name: np.repeat(values, counts.astype(int)) for name, values in data.items()}

    predict_proba = absent("predict_proba", "use transform(X) for the topics of the documents")

    def transform(self, X):
        """Mean shares of the topics in documents, given the topics that were learnt, (documents,
        k)."""
        shares = self._posterior_and_bound(self._counts(X, reset=False))[0]
        return shares / shares.sum(1, keepdims=True)

    def _posterior_and_bound(self, X) -> tuple[np.ndarray, np.ndarray]:
        """γ of the posterior Dirichlet(γ) of each document's shares of topics, (documents, k), at
        the learnt q(β), and the lower bound of each document's log probability."""
        check_is_fitted(self, "fit_")
        alpha, k = self._priors()[0], self.n_components
        words = np.exp(_logs(self.components_))
        gamma = alpha + np.repeat(X.sum(1, keepdims=True) / k, k, 1)
        for _ in range(ROUNDS):
            previous, topics = gamma, np.exp(_logs(gamma))
            gamma = alpha + topics * (X / np.maximum(topics @ words, 1e-300) @ words.T)
            if np.abs(gamma - previous).max() <= 1e-10 * max(gamma.max(), 1.0):
                break
        log_shares = _logs(gamma)
        expected = (X * np.log(np.maximum(np.exp(log_shares) @ words, 1e-300))).sum(1)
        divergence = (gammaln(gamma.sum(1)) - gammaln(gamma).sum(1) - gammaln(k * alpha)
                      + k * gammaln(alpha) + ((gamma - alpha) * log_shares).sum(1))
        return gamma, expected - divergence

    def top_words(self, n=10):
        """The n most probable words of each topic.

        Args:
            n: how many words of each topic; all where there are fewer.

        Returns:
            DataFrame, one row per word, most probable first: topic (0 to k−1), word (the name of
            the column of X, or its number) and probability, the posterior mean.
        """
        check_is_fitted(self, "fit_")
        hold("TopicModel.top_words", n=(n, integer(1)))
        names = np.asarray(self._column_names or range(self.components_.shape[1]), object)
        mean = self.components_ / self.components_.sum(1, keepdims=True)
        order = np.argsort(-mean, 1, kind="stable")[:, :n]
        return pd.DataFrame({"topic": np.repeat(np.arange(len(order)), order.shape[1]),
                             "word": names[order].ravel(),
                             "probability": np.take_along_axis(mean, order, 1).ravel()})

    def score(self, X, y=None):
        """A lower bound of log p(documents | the topics), summed over all."""
        return float(self._posterior_and_bound(self._counts(X, reset=False))[1].sum())

    def perplexity(self, X):
        """exp(−score / number of words), the perplexity per word (lower is better)."""
        X = self._counts(X, reset=False)
        return float(np.exp(-self._posterior_and_bound(X)[1].sum() / max(X.sum(), 1e-300)))


def _logs(concentration: np.ndarray) -> np.ndarray:
    """E log π of Dirichlets, along the last axis."""
    return digamma(concentration) - digamma(concentration.sum(-1, keepdims=True))
