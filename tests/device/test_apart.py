"""Rows of a source that are held apart: which they are depends on their numbers alone, and nothing is learnt from
them."""

import itertools

import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from numpyro import sample

import probml
from probml.dataset.source import Part, Source
from probml.dataset.sources.chosen import split
from probml.dataset.sources.parts import Reader, open_data
from probml.errors import ModelError, Refusal

N = 200
X = np.random.default_rng(0).normal(3.0, 1.0, N)


@probml.model
def normal():
    mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("x", dist.Normal(mean, 1.0))


def cut(*ends):
    return lambda: ({"x": X[low:high]} for low, high in itertools.pairwise((0, *ends, N)))


def rows_of(data, chosen, random=None):
    held = data._replace(survey=data.survey._replace(chosen=chosen))
    pieces = Reader(held).batches() if random is None else Reader(held).mixed(random)
    return np.concatenate([piece.table.columns["x"].values for piece in pieces])


def test_which_rows_are_held_apart_depends_on_their_numbers_alone():
    learnt, left = split(N, 0.3, 5)
    assert learnt.rows + left.rows == N and 40 < left.rows < 80
    np.testing.assert_array_equal(np.sort(np.r_[learnt.indices(0, N), left.indices(0, N)]), np.arange(N))
    assert set(left.indices(0, N)) != set(split(N, 0.3, 6)[1].indices(0, N))
    for parts in (cut(), cut(7, 8, 150), cut(100)):
        data = open_data(normal(), parts)
        np.testing.assert_array_equal(rows_of(data, left), X[left.indices(0, N)])
        np.testing.assert_array_equal(rows_of(data, learnt), X[learnt.indices(0, N)])


def test_row_groups_in_random_order_are_the_same_rows(tmp_path):
    pa, pq, ds = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".parquet", ".dataset"))
    for i, part in enumerate(cut(90)()):
        pq.write_table(pa.table(part), tmp_path / f"{i}.parquet", row_group_size=20)
    data = open_data(normal(), ds.dataset(tmp_path))
    _, left = split(N, 0.3, 5)
    found = rows_of(data, left, np.random.default_rng(1))
    np.testing.assert_array_equal(np.sort(found), np.sort(X[left.indices(0, N)]))
    assert not np.array_equal(found, X[left.indices(0, N)])

    class Nameless(Source):
        def parts(self):
            yield Part("all", {"x": X})

        def mixed(self, random):
            yield Part("some", {"x": X})

    with pytest.raises(Refusal, match="returned a batch named 'some', but its method"):
        rows_of(open_data(normal(), Nameless()), left, np.random.default_rng(1))


@pytest.mark.filterwarnings("ignore:MAP of model:probml.ConvergenceWarning")
@pytest.mark.parametrize("batch", [None, 32])
def test_rows_held_apart_are_judged_by_and_not_learnt_from(batch):
    engine = probml.MAP(optimizer=optax.sgd(1e-3), steps=40, held_out=0.3, batch_rows=batch)
    fit = normal().fit(cut(33, 120), engine, seed=5)
    learnt, left = (X[part.indices(0, N)] for part in split(N, 0.3, 5))
    mean = fit.params["mean"]

    def log(x, at, scale=1.0):
        return -0.5 * ((x - at) / scale) ** 2 - np.log(scale * np.sqrt(2 * np.pi))

    best = int(np.argmax(fit.held_out))
    assert fit.held_out[best] == pytest.approx(log(left, mean).mean(), rel=1e-9)
    assert fit.history[best] == pytest.approx(log(learnt, mean).sum() + log(mean, 0.0, 10.0), rel=1e-9)
    with pytest.raises(ModelError, match="holds out 0 rows and fits"):
        normal().fit(lambda: iter([{"x": X[:3]}]), probml.MAP(optimizer=optax.sgd(1e-3), held_out=0.001))
