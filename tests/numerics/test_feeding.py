"""Chunks fed to a running program: in turn, two at the most, and what reading raises comes out."""

import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.numerics.compiling import jit
from probml.numerics.outside import callbacks, feeding

SPEC = jax.ShapeDtypeStruct((3,), np.dtype(np.float32))


@jit
def passes(number, count, times):
    """Σ over passes of Σ over chunks, each pass scaled by what came before."""

    def once(_, total):
        return jax.lax.fori_loop(
            0, count, lambda i, t: t + feeding.chunk(number, i, SPEC).sum(), 0.5 * total
        )

    return jax.lax.fori_loop(0, times, once, jnp.zeros((), np.float32))


def test_every_pass_begins_anew_and_two_chunks_are_there_at_once():
    begun, there, most = [], set(), []

    def read():
        begun.append(1)
        for i in range(4):
            made = np.full(3, i, np.float32)
            key = id(made)
            there.add(key)
            weakref.finalize(made, there.discard, key)
            most.append(len(there))
            yield made
            del made

    with feeding.Feed(read, SPEC, 4) as feed:
        assert float(passes(np.int32(feed.number), np.int32(4), 3)) == 18 * 1.75
    assert len(begun) == 3 and max(most) <= 2
    assert feed.number not in callbacks._OPEN


def test_a_chunk_is_read_while_the_one_before_is_used():
    made = [threading.Event() for _ in range(3)]

    def read():
        for i in range(3):
            yield np.full(3, i, np.float32)
            # asked for another: this one is used, or waits
            made[i].set()

    with feeding.Feed(read, SPEC, 3) as feed:
        feed.chunk(0)
        assert made[0].wait(10)  # nobody has asked for the second yet
        found = list(feeding.ahead(iter(range(5))))
    assert found == [0, 1, 2, 3, 4]


@pytest.mark.filterwarnings("error")
def test_a_running_program_has_one_chunk_while_the_next_is_read():
    reading = [threading.Event() for _ in range(4)]

    def read():
        for i in range(4):
            reading[i].set()
            yield np.full(3, i, np.float32)

    def overtaken(i, total):
        """Whether the next is being read, though this one is not done with."""
        return np.float32(total if i == 3 or reading[int(i) + 1].wait(10) else np.nan)

    @jit
    def used(number):
        def once(i, total):
            total = total + feeding.chunk(number, i, SPEC).sum()
            return jax.pure_callback(overtaken, jax.ShapeDtypeStruct((), np.float32), i, total)

        return jax.lax.fori_loop(0, 4, once, np.float32(0))

    with feeding.Feed(read, SPEC, 4) as feed:
        assert float(used(np.int32(feed.number))) == 18.0


def test_what_reading_raises_is_raised_as_it_was():
    def read():
        yield np.ones(3, np.float32)
        raise KeyError("part 2")

    with feeding.Feed(read, SPEC, 4) as feed, pytest.raises(KeyError, match="part 2"):
        passes(np.int32(feed.number), np.int32(4), 3)
    with feeding.Feed(lambda: iter([np.ones(3, np.float32)] * 2), SPEC, 2) as feed:
        assert float(passes(np.int32(feed.number), np.int32(2), 1)) == 6.0


def test_chunks_out_of_turn_are_found():
    with feeding.Feed(lambda: (np.full(3, i, np.float32) for i in range(5)), SPEC, 5) as feed:
        assert [float(feed.chunk(i)[0]) for i in (3, 3, 4, 0, 1, 1, 0)] == [3, 3, 4, 0, 1, 1, 0]
