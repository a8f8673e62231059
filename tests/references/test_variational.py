"""Variational Bayes on real data: how many components stay of twenty under default sparse priors;
topics of documents beside scikit-learn's and gensim's."""

import json

import jax
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
from probml.models import GaussianMixture, TopicModel

pytestmark = pytest.mark.slow

FOUND = {"faithful": {2}, "galaxies": {3, 4, 5, 6}, "iris": {2, 3}}


@pytest.mark.parametrize("double", [True, False], ids=["float64", "float32"])
@pytest.mark.parametrize("name", FOUND)
def test_of_twenty_components_those_that_are_there_stay_whatever_the_seed(shared_data, name, double):
    X = pd.read_csv(shared_data / "classic" / f"{name}.csv").select_dtypes("number").to_numpy(float)
    with jax.enable_x64(double):
        used = set()
        for seed in range(20):
            estimator = GaussianMixture(20, weights="sparse", random_state=seed).fit(X)
            used.add(int((estimator.weights_ * len(X) > 1).sum()))
            assert estimator.converged_, seed
            rounding = 1e-9 if double else 1e-5
            assert (np.diff(estimator.fit_.history) > -rounding * abs(estimator.fit_.bound)).all(), seed
    assert used <= FOUND[name]


def counted(table, part, documents, words):
    rows = table[table["part"] == part]
    out = np.zeros((documents, words))
    np.add.at(out, (rows["doc"], rows["word"]), rows["count"])
    return out


def test_words_left_out_are_about_as_hard_to_guess_as_with_scikit_learns_and_gensims_topics(
    shared_data,
):
    """Document completion: topics of 240 mails; shares of 60 others from half of their words; the
    perplexity of the other half."""
    said = json.loads((shared_data / "fits" / "lda_lee.json").read_text())
    table = pd.read_csv(shared_data / "classic" / "lda_lee.csv.gz")
    parts = {part: counted(table, part, said["documents"], said["vocabulary"])
             for part in table["part"].unique()}
    train = parts["train"][parts["train"].sum(1) > 0]
    seen, scored = parts["test_observed"], parts["test_scored"]
    assert train.sum() == said["train_tokens"] and scored.sum() == said["scored_tokens"]
    found = []
    for seed in range(3):
        estimator = TopicModel(said["topics"], doc_topic_prior=said["alpha"],
                               topic_word_prior=said["eta"], random_state=seed).fit(train)
        topics = estimator.components_ / estimator.components_.sum(1, keepdims=True)
        logs = np.log(estimator.transform(seen) @ topics)
        found.append(np.exp(-(scored * logs)[scored > 0].sum() / scored.sum()))
    peers = [run["completion_perplexity"] for fit in said["fits"].values() for run in fit["runs"]]
    # 767, 783 and 800 where theirs are 769 to 783: many maxima of the bound, of which ours scatter
    # more widely; the best of three is below the best of theirs
    assert min(found) < min(peers) and max(found) < 1.03 * max(peers), (found, peers)
