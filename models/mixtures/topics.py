"""Topics of documents, latent Dirichlet allocation: every word of a document comes from one of k
topics, and documents differ in how much they have of each.

    θ_d ~ Dirichlet(α, …, α)        the topics of document d
    β_j ~ Dirichlet(η, …, η)        the words of topic j
    z | d ~ Categorical(θ_d),   w | z = j ~ Categorical(β_j)       of every word

A row is a word in a document, of weight n where it stands there n times; the documents are a plate
of parameters, so that nothing in a row is unseen but its topic, and mean-field variational Bayes
(probml.VB) has Blei, Ng & Jordan's updates:

    γ_d = α + Σ_w n_dw φ_dw,   λ_j = η + Σ_d n_dw φ_dwj,   φ_dwj ∝ exp(E log θ_dj + E log β_jw)

Source: Blei, Ng & Jordan (2003), "Latent Dirichlet allocation", section 5.4 (smoothed).
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import plate, sample

import probml
from probml.models.summaries.mixtures import topic_tables


@probml.model
def latent_dirichlet(document, documents: int, words: int, k: int, concentration: float = 0.1,
                     word_concentration: float = 0.1):
    """k topics of words in documents.

    Sites: `share` (documents, k), `topic` (k, words), and in every row `z`, its topic, and `word`,
    0 … words − 1. Input: `document` of every row, 0 … documents − 1. `of_counts` makes rows and
    their weights of a table of counts.

    Args:
        documents, words: how many there are, of different words.
        k: topics.
        concentration: α, pseudo-words of each topic in a document.
        word_concentration: η, pseudo-words of each word in a topic.
    """
    with plate("document", documents):
        share = sample("share", dist.Dirichlet(jnp.full(k, concentration)))
    with plate("topics", k):
        topic = sample("topic", dist.Dirichlet(jnp.full(words, word_concentration)))
    with probml.rows():
        z = sample("z", dist.Categorical(share[document]))
        sample("word", dist.Categorical(topic[z]))


latent_dirichlet.summarized(topic_tables)


def of_counts(X) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows of latent_dirichlet and their weights, of a table of counts (documents, words); scipy's
    sparse ones are taken."""
    if hasattr(X, "tocoo"):
        sparse = X.tocoo()
        rows, columns, counts = sparse.row, sparse.col, sparse.data
        positive = counts > 0
        rows, columns, counts = rows[positive], columns[positive], counts[positive]
    else:
        X = np.asarray(X)
        rows, columns = np.nonzero(X)
        counts = X[rows, columns]
    return ({"document": rows.astype(int), "word": columns.astype(int)},
            np.asarray(counts, float))
