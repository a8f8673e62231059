"""The one way to pass over rows: what is held and what is streamed give the same sums and samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.device.rows import Chunk, Resident
from probml.device.streamed import Streamed
from probml.errors import Refusal
from probml.numerics.compiling import jit
from probml.numerics.outside import feeding

CHUNKS, SIZE = 3, 4
X = np.random.default_rng(0).normal(size=(CHUNKS, SIZE, 2)).astype(np.float32)
WEIGHTS = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [2, 1, 0, 0]], np.float32)


def chunk(x: np.ndarray, weights: np.ndarray) -> Chunk:
    return Chunk({}, {}, {}, {}, {}, {"x": x}, weights)


def streamed(x: np.ndarray, weights: np.ndarray, together: int = 1) -> tuple[feeding.Feed, Streamed]:
    fed = [chunk(x[i : i + together], weights[i : i + together]) for i in range(0, len(x), together)]
    specs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), fed[0])
    feed = feeding.Feed(lambda: iter(fed), specs, len(fed))
    leaves, form = jax.tree.flatten(specs)
    return feed, Streamed(np.int32(feed.number), np.int32(len(fed)), weights.sum(), tuple(leaves),
                          form)


@jit
def moments(rows):
    """With nothing along, as plans have it without row-wise sites."""
    return rows.total(lambda some, _: (some.weights @ some.inputs["x"], some.weights.sum()), {})


@jit
def several(rows, powers):
    """For every power a pass of its own, as restarts make them."""
    return jax.vmap(lambda p: rows.total(lambda some: (some.inputs["x"] ** p).sum()))(powers)


@jit
def taken(rows, index):
    return rows.taken(index).stacked.inputs["x"]


def test_sums_samples_and_passes_side_by_side_are_those_of_numpy():
    feed, stream = streamed(X, WEIGHTS)
    other, at_once = streamed(X, WEIGHTS, CHUNKS)
    index, powers = np.array([[11, 0], [5, 5]]), np.array([1.0, 2.0], np.float32)
    assert stream.together == 1 and at_once.together == CHUNKS
    with feed, other:
        for rows in (Resident(chunk(X, WEIGHTS)), stream, at_once):
            total, weight = moments(rows)
            np.testing.assert_allclose(total, np.einsum("ci,cij->j", WEIGHTS, X), rtol=1e-5)
            assert weight == rows.weight == WEIGHTS.sum() and rows.size == SIZE
            np.testing.assert_allclose(several(rows, powers), [X.sum(), (X**2).sum()], rtol=1e-5)
            np.testing.assert_array_equal(taken(rows, index), X.reshape(-1, 2)[index])


def test_a_fold_goes_from_chunk_to_chunk_and_a_map_keeps_what_each_says():
    rows = Resident(chunk(X, WEIGHTS))
    last, said = jax.jit(lambda rows, scale: rows.fold(
        lambda carry, some, s: (0.5 * carry + s * some.inputs["x"].sum(), carry), 0.0, scale
    ))(rows, jnp.arange(3.0))
    sums, carry, before = X.sum((1, 2)), 0.0, []
    for i in range(CHUNKS):
        before.append(carry)
        carry = 0.5 * carry + i * sums[i]
    np.testing.assert_allclose(last, carry, rtol=1e-5)
    np.testing.assert_allclose(said, before, rtol=1e-5)
    np.testing.assert_allclose(rows.map(lambda some: some.inputs["x"].sum(1)), X.sum(2), rtol=1e-5)
    single = Resident(chunk(X[:1], WEIGHTS[:1]))
    np.testing.assert_allclose(single.map(lambda some: some.inputs["x"].sum(1)), X[:1].sum(2),
                               rtol=1e-5)


def test_sums_over_many_chunks_keep_the_digits_of_float32():
    x = np.concatenate([np.full((1, 1, 1), 2.0**24, np.float32), np.ones((512, 1, 1), np.float32)])
    rows = Resident(chunk(x, np.ones(x.shape[:2], np.float32)))
    assert float(jax.jit(lambda rows: rows.total(lambda s: s.inputs["x"].sum()))(rows)) == (
        2.0**24 + 512
    )


def test_a_stream_has_no_room_for_something_of_each_chunk():
    feed, stream = streamed(X, WEIGHTS)
    with feed, pytest.raises(Refusal, match="this method returns one result per row"):
        jax.jit(lambda rows: rows.map(lambda some: some.weights))(stream)


def test_one_program_serves_streams_of_other_lengths():
    traces = []

    @jit
    def total(rows):
        traces.append(1)
        return rows.total(lambda some: some.inputs["x"].sum())

    for count in (2, 3):
        feed, stream = streamed(X[:count], WEIGHTS[:count])
        with feed:
            np.testing.assert_allclose(total(stream), X[:count].sum(), rtol=1e-5)
    assert traces == [1]
