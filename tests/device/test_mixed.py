"""Random batches of rows that are read in parts: every row once an epoch, from any batch on the same again."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from probml.dataset.sources.parts import open_data
from probml.device import streamed as mixing
from probml.device.streamed import open_stream


@probml.model
def normal():
    mean = sample("mean", dist.Normal(0.0, 10.0))
    table = sample("table", dist.Dirichlet(jnp.ones(2)))
    with probml.rows():
        sample("x", dist.Normal(mean, 1.0))
        sample("z", dist.Categorical(table))


N, SIZE = 103, 8
X = np.arange(float(N))  # in order


def parts():
    for low in range(0, N, 20):
        yield {"x": X[low : low + 20], "z": np.full(len(X[low : low + 20]), "ab"[low % 3 > 0], object),
               "w": 1.0 + X[low : low + 20] % 3}


def batches(source, seed, first=0, count=40):
    """(rows, weights) of batches, rows as they were given."""
    data = open_data(normal(), source, "w")
    plan = data.plan()
    feed, rows = mixing.open_batches(data, plan, open_stream(data, plan)[1], SIZE, seed)
    centre = data.survey.profile.moments["x"].mean
    with feed:
        found = [feed.chunk(i) for i in range(first, first + count)]
    assert rows.mixed.size == SIZE and rows.mixed.count == feed.batches == 13
    return [(chunk.values["x"][0] + centre, chunk.weights[0]) for chunk in found]


def test_an_epoch_meets_every_row_once_with_its_weight_and_the_next_in_another_order(monkeypatch):
    monkeypatch.setattr(mixing, "BUFFERED", 120)  # a buffer of 40 rows or so
    found = batches(parts, 0)
    for epoch in (found[:13], found[13:26]):
        x, weights = (np.concatenate(every) for every in zip(*epoch, strict=True))
        real = weights > 0
        assert real.sum() == N and real[:96].all()  # the last batch is filled up
        np.testing.assert_allclose(np.sort(x[real]), X, atol=1e-5)
        np.testing.assert_allclose(weights[real], 1.0 + np.round(x[real]) % 3)
        assert np.abs(np.diff(x[real])).mean() > 5  # mixed, though they came in order
    assert not np.array_equal(found[0][0], found[13][0])
    assert not np.array_equal(found[0][0], batches(parts, 1, count=1)[0][0])


def test_batches_from_any_number_on_are_those_of_a_run_that_was_not_interrupted():
    every = batches(parts, 3)
    for first in (7, 13, 30):
        for one, other in zip(batches(parts, 3, first, 5), every[first:], strict=False):
            np.testing.assert_array_equal(one[0], other[0])
            np.testing.assert_array_equal(one[1], other[1])


def test_row_groups_of_all_files_come_in_random_order(tmp_path):
    pa, pq, ds = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".parquet", ".dataset"))
    for i, part in enumerate(parts()):
        pq.write_table(pa.table(part), tmp_path / f"{i}.parquet", row_group_size=4)
    source = ds.dataset(tmp_path, format="parquet")
    found = batches(source, 0)
    x, weights = (np.concatenate(every) for every in zip(*found[:13], strict=True))
    np.testing.assert_allclose(np.sort(x[weights > 0]), X, atol=1e-5)
    orders = [[part.rows["x"][0].as_py() for part in probml.dataset.sources.arrow.ArrowRows(source).mixed(
        np.random.default_rng(seed))] for seed in (0, 1)]
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])
    few = list(itertools.islice(source.filter(ds.field("x") < 30).to_batches(), 9))
    kept = sum(map(len, few))
    data = open_data(normal(), source.filter(ds.field("x") < 30), "w")
    assert data.size == kept == 30


def test_a_source_that_has_other_rows_than_before_is_refused():
    there = [list(parts())]
    data = open_data(normal(), lambda: iter(there[0]), "w")
    feed, _ = mixing.open_batches(data, data.plan(), open_stream(data, data.plan())[1], SIZE, 0)
    there[0] = there[0][:-1]
    with feed, pytest.raises(probml.DataError, match="returned other batches .*: it had 103 rows before and has"):
        for i in range(13):
            feed.chunk(i)
