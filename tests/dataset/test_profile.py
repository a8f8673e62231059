"""A first look at rows: profiles of parts add up to that of the whole, however they are cut."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from probml.dataset.moments import Moments
from probml.dataset.read import read
from probml.dataset.sources.parts import open_data
from probml.dataset.sources.profile import SAMPLE_ROWS, profile_of
from probml.dataset.tables import Column


@probml.model
def columns():
    mean = sample("mean", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    table = sample("table", dist.Dirichlet(jnp.ones(4)))
    with probml.rows():
        sample("x", dist.Normal(mean, 1.0).to_event(1))
        sample("label", dist.Categorical(table))
        sample("count", dist.Poisson(jnp.exp(mean[0])))


def rows_of(n: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, 2)) + 1e6
    x[random.random((n, 2)) < 0.3] = np.nan
    label = random.choice(np.array(["a", "b", "d"], object), n)
    label[random.random(n) < 0.2] = None
    return {"x": x, "label": label, "count": random.poisson(2.0, n)}


def cut(table: dict[str, np.ndarray], ends: list[int]) -> list[dict[str, np.ndarray]]:
    return [{name: column[low:high] for name, column in table.items()}
            for low, high in zip([0, *ends], [*ends, len(table["count"])], strict=True)]


@pytest.mark.parametrize("seed", range(8))
def test_profiles_of_parts_add_up_to_that_of_the_whole(seed):
    table, random = rows_of(60, seed), np.random.default_rng(seed)
    ends = sorted(random.choice(np.arange(1, 60), 4, replace=False).tolist())
    held = open_data(columns(), lambda: iter(cut(table, ends)))
    whole, found = read(columns(), table), held.survey.profile
    assert found.rows == held.size == 60 and found.sizes == tuple(np.diff([0, *ends, 60]))
    assert held.pattern == whole.pattern and held.labels == whole.labels
    for name, column in whole.table.columns.items():
        own = held.table.columns[name]
        assert (own.observed is None) == (column.observed is None)
        np.testing.assert_array_equal(own.values_or_nan, column.values_or_nan)
        np.testing.assert_allclose(own.values, column.values, rtol=1e-12)
    own = profile_of(whole).moments["x"]
    for one, other in zip(found.moments["x"], own, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)  # of 1e6, squared, 1e-16


def test_moments_are_those_of_the_seen_cells_and_their_weights():
    random = np.random.default_rng(0)
    values, seen = random.normal(size=(40, 3)) + 1e5, random.random((40, 3)) < 0.6
    weights = random.integers(0, 3, 40).astype(float)
    for w, s in ((None, None), (weights, None), (None, seen), (weights, seen)):
        share = (np.ones(40) if w is None else w)[:, None] * (1.0 if s is None else s)
        share = np.broadcast_to(share, values.shape)
        mean = (share * values).sum(0) / share.sum(0)
        found = Moments.of(Column(values, s), w)
        np.testing.assert_allclose(found.weight, share.sum(0))
        np.testing.assert_allclose(found.mean, mean, rtol=1e-14)
        np.testing.assert_allclose(found.square, (share * (values - mean) ** 2).sum(0), rtol=1e-9)


def test_a_cell_that_nobody_has_seen_lies_where_the_others_do():
    seen = np.array([[True, False], [True, False]])
    found = Moments.of(Column(np.array([[3.0, 0.0], [5.0, 0.0]]), seen))
    np.testing.assert_array_equal(found.mean, [4.0, 4.0])
    np.testing.assert_array_equal(found.weight, [2.0, 0.0])


def test_a_sample_stands_for_many_rows_and_keeps_their_order():
    batch = SAMPLE_ROWS // 2 + 1
    parts = [{"count": np.arange(i * batch, (i + 1) * batch)} for i in range(4)]
    held = open_data(columns(), lambda: iter(parts))
    kept = held.table.columns["count"].values
    assert len(kept) == held.table.rows == SAMPLE_ROWS and held.size == 4 * batch
    assert (np.diff(kept) > 0).all()
    shares = np.bincount(kept // batch) / SAMPLE_ROWS
    np.testing.assert_allclose(shares, 0.25, atol=0.03)
