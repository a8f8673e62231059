"""Rows that are passed over once, block by block from the host, have the statistics of rows that are
held at once."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from compilations import compiled
from probml.device import blocks
from probml.fits import places
from probml.models import naive_bayes

N = 20_000
RANDOM = np.random.default_rng(3)
LABELS = np.sort(RANDOM.integers(3, size=N))
X = RANDOM.normal(size=(N, 2)) * [1.0, 50.0] + LABELS[:, None] + [1e4, 0.0]
HOLES = np.where(RANDOM.random(X.shape) < 0.3, np.nan, X)
WEIGHTS = RANDOM.integers(3, size=N).astype(float)
MODEL = naive_bayes(3, {"x": ("normal", 2), "n": "poisson"})
DATA = {"x": X, "n": RANDOM.poisson(LABELS + 1.0), "class": LABELS}


@probml.model
def heights():
    variance = sample("variance", dist.InverseGamma(1.0, 1.0))
    mean = sample("mean", dist.Normal(0, (variance / 0.01) ** 0.5))
    with probml.rows():
        sample("y", dist.Normal(mean, variance**0.5))


@pytest.fixture
def small(monkeypatch):
    """Blocks of one chunk."""
    monkeypatch.setattr(blocks, "NUMBERS", 1)


@pytest.mark.parametrize("weights", (None, WEIGHTS), ids=("plain", "weighted"))
@pytest.mark.parametrize("x", (X, HOLES), ids=("complete", "with holes"))
def test_blocks_have_the_statistics_of_all_rows_at_once(monkeypatch, x, weights):
    data = {**DATA, "x": x}
    whole = MODEL.fit(data, probml.Exact(), weights=weights)
    monkeypatch.setattr(blocks, "NUMBERS", 1)
    parts = MODEL.fit(data, probml.Exact(), weights=weights)
    for name, value in whole.params.items():
        np.testing.assert_allclose(parts.params[name], value, rtol=1e-9)
    np.testing.assert_allclose(parts.log_evidence, whole.log_evidence, rtol=1e-11)
    some = {name: value[::997] for name, value in data.items()}
    np.testing.assert_allclose(parts.log_prob(some), whole.log_prob(some), rtol=1e-9)
    for name, value in whole.kept.known.sd.items():
        np.testing.assert_allclose(parts.kept.known.sd[name], value, rtol=1e-9)
    # about another centre, which merging takes off
    both, other = whole.merge(parts), parts.merge(whole)
    np.testing.assert_allclose(both.log_evidence, other.log_evidence, rtol=1e-11)


def test_sorted_columns_far_from_zero_keep_their_digits(small):
    y = 1e8 + np.sort(RANDOM.normal(size=N))
    fit = heights().fit({"y": y}, probml.Exact())
    share = 0.5 * 0.01 * N / (N + 0.01) * y.mean() ** 2
    variance = (1 + 0.5 * N * y.var() + share) / (1 + N / 2 - 1)
    np.testing.assert_allclose(fit.params["variance"], variance, rtol=1e-7)
    np.testing.assert_allclose(fit.params["mean"], N * y.mean() / (N + 0.01), rtol=1e-14)


def test_float32_has_the_means_and_variances_of_double(small):
    y = (3 + 2 * RANDOM.normal(size=N)).astype(np.float32)
    with jax.enable_x64(False):
        fit = heights().fit({"y": y}, probml.Exact())
    exact = y.astype(float)
    np.testing.assert_allclose(fit.params["mean"], exact.mean(), rtol=1e-5)
    np.testing.assert_allclose(fit.params["variance"], exact.var(), rtol=1e-3)


def test_any_number_of_rows_takes_one_program(small):
    heights().fit({"y": X[:, 0]}, probml.Exact())
    with compiled() as found:
        heights().fit({"y": X[:-777, 0] + 1.0}, probml.Exact())
    assert found == []


def test_no_copy_of_the_rows_is_made(small, monkeypatch):
    held = []
    monkeypatch.setattr(places, "summarised", lambda plan, known, rows, of=places.summarised:
                        held.append(rows.stacked.weights.size) or of(plan, known, rows))
    heights().fit({"y": X[:, 0]}, probml.Exact())
    assert len(held) == 3 and max(held) <= 8192
