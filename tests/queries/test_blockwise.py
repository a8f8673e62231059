"""Questions about many rows, block by block from where they lie, have the answers of rows that are
held at once."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.device import blocks
from probml.models import hidden_markov, naive_bayes
from probml.queries import asking

N = 20_000
RANDOM = np.random.default_rng(5)
LABELS = RANDOM.integers(3, size=N)
X = RANDOM.normal(size=(N, 2)) * [1.0, 50.0] + LABELS[:, None] + [1e4, 0.0]
HOLES = np.where(RANDOM.random(X.shape) < 0.3, np.nan, X)
MODEL = naive_bayes(3, {"x": ("normal", 2), "n": "poisson"})
COUNTS = RANDOM.poisson(LABELS + 1.0)
FIT = {}


def fit() -> probml.Fit:
    if not FIT:
        FIT["of some"] = MODEL.fit({"x": X[:500], "n": COUNTS[:500], "class": LABELS[:500]})
    return FIT["of some"]


def answers(data, plug_in) -> list[np.ndarray]:
    return [fit().predict_proba(data, "class", plug_in=plug_in),
            fit().log_prob(data, plug_in=plug_in)]


@pytest.mark.parametrize("plug_in", (False, True), ids=("averaged", "plug-in"))
@pytest.mark.parametrize("x", (X, HOLES), ids=("complete", "with holes"))
def test_blocks_have_the_answers_of_all_rows_at_once(monkeypatch, x, plug_in):
    data = {"x": x, "n": COUNTS}
    whole = answers(data, plug_in)
    monkeypatch.setattr(blocks, "NUMBERS", 1)
    for part, all_at_once in zip(answers(data, plug_in), whole, strict=True):
        np.testing.assert_allclose(part, all_at_once, rtol=1e-10, atol=1e-12)


@probml.model
def faulty():
    with plate("kind", 2):
        rate = sample("rate", dist.Beta(1.0, 1.0))
    with probml.rows():
        kind = sample("kind", dist.Categorical(jnp.ones(2) / 2))
        sample("fault", dist.Bernoulli(rate[kind]))


def test_an_impossible_row_of_many_is_told_by_its_number(monkeypatch):
    monkeypatch.setattr(blocks, "NUMBERS", 1)
    never = faulty().at({"rate": np.zeros(2)})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = never.predict_proba({"fault": np.arange(N) == N - 7}, "kind")
    assert len(found) == N and (found[: N - 7] == 0.5).all()
    assert f"rows {N - 7}" in str(told[0].message)


@pytest.mark.parametrize("given", ("all", "filtered"))
def test_sequences_in_parts_side_by_side_have_the_answers_of_all(monkeypatch, given):
    model = hidden_markov(k=2, d=1)
    y = [RANDOM.normal(size=(n, 1)) + 3 * (np.arange(n) % 7 > 3)[:, None] for n in (30, 17, 25, 30,
                                                                                  9)]
    fit = model.at({"initial": np.ones(2) / 2, "transition": np.full((2, 2), 0.5),
                    "mean": np.array([[0.0], [3.0]]), "scale": np.ones((2, 1))})

    def asked() -> list:
        return [fit.predict_proba({"y": y}, "z", given=given), fit.decode({"y": y})["z"],
                fit.log_prob({"y": y})]

    whole = asked()
    monkeypatch.setattr(asking, "PARTED", 0)
    monkeypatch.setattr(asking, "MIN_PART_ROWS", 2)
    monkeypatch.setattr(asking, "cores", lambda: 2)
    for _ in range(2):  # one part after the other, then side by side
        for part, all_at_once in zip(asked(), whole, strict=True):
            for a, b in zip(part, all_at_once, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
