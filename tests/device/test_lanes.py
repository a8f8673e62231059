"""Sequences as they lie on the device: steps first, then rows, then blocks."""

from types import SimpleNamespace

import numpy as np
import pytest

from probml.dataset.checks.digits import TOLD, measured
from probml.device.lanes import Lanes

# rows of the data, chunks, rows a chunk, steps, blocks, steps of a block, cells, which of them is
# behind time
CASES = [(3, 1, 4, 10, 1, 12, (2,), 0), (5, 2, 3, 7, 1, 8, (), 0), (1, 1, 1, 250, 32, 8, (4,), 0),
         (2, 1, 2, 90, 16, 6, (3,), 1), (2, 3, 1, 41, 4, 11, (), 0)]


@pytest.mark.parametrize(("n", "chunks", "size", "steps", "blocks", "length", "rest", "time"),
                         CASES)
@pytest.mark.parametrize("holed", [False, True])
def test_every_step_lies_at_its_place_and_padding_repeats_the_first(n, chunks, size, steps, blocks,
                                                                    length, rest, time, holed):
    random = np.random.default_rng(0)
    array = random.normal(size=(n, *rest[:time], steps, *rest[time:]))
    shift, seen = random.normal(size=rest), random.random(array.shape) < 0.8
    lanes = object.__new__(Lanes)
    lanes.__dict__ |= dict(data=SimpleNamespace(steps=steps), index=None, shape=(chunks, size),
                           length=length, blocks=blocks, to_device=np.asarray)
    found = lanes.ship(array, time, float, shift, seen if holed else None)
    left = np.moveaxis(array, 1 + time, 1) - shift
    left = np.where(np.moveaxis(seen, 1 + time, 1), left, 0.0) if holed else left
    left = np.concatenate([left, np.repeat(left[:, :1], length * blocks - steps, 1)], 1)
    left = np.concatenate([left, np.repeat(left[:1], chunks * size - n, 0)])
    left = left.reshape(chunks, size, blocks, length, *rest)
    want = np.moveaxis(left, 3, 1).reshape(chunks, -1, *rest)
    np.testing.assert_array_equal(found, np.expand_dims(want, 2 + time))
    bare = lanes.ship(seen, time)
    assert bare.dtype == bool and bare.shape == found.shape


def test_a_first_look_at_one_long_sequence_takes_some_of_its_steps():
    values = np.random.default_rng(1).normal(3.0, 2.0, size=(1, 40 * TOLD, 2))
    centre, spread = measured(values, None, (0, 1))
    few = values[:, :: 40]
    np.testing.assert_allclose(centre, few.mean((0, 1)))
    np.testing.assert_allclose(spread, few.std((0, 1)))
