"""A program that is sent away is the function it was made of; mapped, it is sent once."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.device.rows import Chunk
from probml.device.sharded import Remote
from probml.errors import DataError, Refusal
from probml.numerics.compiling import jit
from probml.numerics.outside.sent import Pool, received_for_many

X = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)


class Recorded(Pool):
    """Keeps what it is asked, and answers with ones."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def sum(self, program, constants):
        self.asked.append((program, constants))
        return [np.ones(spec.shape) for spec in program.out_specs]


class Broken(Pool):
    def sum(self, program, constants):
        raise DataError("all workers are gone")


def rows_of(pool: Pool) -> Remote:
    example = Chunk({}, {}, {}, {}, {}, {"x": X[0]}, np.ones(4, np.float32))
    return Remote(np.int32(pool.number), np.int32(3), np.float32(12), example)


@jit
def moments(rows, powers):
    return jax.vmap(lambda p: rows.total(lambda some: {
        "sum": (jnp.abs(some.inputs["x"]) ** p).sum(0), "weight": some.weights.sum()
    }))(powers)


def test_a_mapped_sum_is_one_program_of_its_constants_and_a_chunk():
    powers = np.array([1.0, 2.0, 3.0], np.float32)
    with Recorded() as pool:
        found = moments(rows_of(pool), powers)
    np.testing.assert_array_equal(found["sum"], np.ones((3, 2)))
    assert len(pool.asked) == 1
    program, constants = pool.asked[0]
    run, total = pickle.loads(program.content).call, 0.0
    for x in X:
        chunk = rows_of(pool).example._replace(inputs={"x": x})
        total = total + np.asarray(run(constants, jax.tree.leaves(chunk))[0])
    np.testing.assert_allclose(total, [(np.abs(X) ** p).sum((0, 1)) for p in powers], rtol=1e-5)
    chunks = Chunk({}, {}, {}, {}, {}, {"x": X}, np.ones((3, 4), np.float32))
    every = received_for_many(program.digest, program.content)(constants, jax.tree.leaves(chunks))
    np.testing.assert_allclose(np.asarray(every[0]).sum(0), total, rtol=1e-6)


def test_what_a_pool_raises_is_raised_when_the_program_has_ended():
    with Broken() as pool, pytest.raises(DataError, match="all workers are gone"):
        moments(rows_of(pool), np.ones(2, np.float32))


def test_rows_elsewhere_are_added_up_and_have_no_order():
    with Recorded() as pool:
        rows = rows_of(pool)
        with pytest.raises(Refusal, match="in a fixed order"):
            rows.taken(np.array([0, 1]))
        with pytest.raises(Refusal, match="result"):
            jax.jit(lambda rows: rows.accumulate(lambda chunk: (1.0, chunk.weights)))(rows)
