"""Rows that no memory holds in random batches: their source gives them in an order of its own
choice, and a buffer mixes them further.

An epoch meets every row once. Its order is a function of seed and epoch alone, so that a fit that
goes on meets the batches that one that was not interrupted would have met.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import jax
import numpy as np

from probml.dataset.dataset import Data
from probml.dataset.sources.profile import joined
from probml.device.rows import Chunk
from probml.device.streamed import Cut, Mixed, Streamed
from probml.numerics.outside import feeding
from probml.plan.plan import Plan

NUMBERS = 2**22  # numbers that the buffer holds
BATCHES = 4  # that it holds at the least
ORDER = 8  # of the random numbers that put rows in order
ENDLESS = 2**62


class _Epochs(feeding.Feed):
    """Batches, epoch after epoch.

    Args:
        size: rows of a batch; the last of an epoch is filled up at weight 0.
    """

    def __init__(self, cutter: Cut, rows: int, size: int, seed: int, buffer: int):
        self.cutter, self.size, self.seed, self.buffer = cutter, size, seed, buffer
        self.batches = -(-rows // size)
        super().__init__(lambda: self.iterate_from(0), cutter.specs((1, size)), ENDLESS)

    def iterate_from(self, i: int) -> Iterator[Chunk]:
        epoch, done = divmod(i, self.batches)
        every = itertools.chain.from_iterable(map(self._epoch, itertools.count(epoch)))
        for piece in itertools.islice(every, done, None):
            yield self.cutter.pack(piece, (1, self.size))

    def _epoch(self, epoch: int) -> Iterator[Data]:
        for mixed in feeding.ahead(self._mixed(epoch)):
            for low in range(0, mixed.table.rows, self.size):
                yield mixed.taken(slice(low, low + self.size))

    def _mixed(self, epoch: int) -> Iterator[Data]:
        """The rows of an epoch, several batches at a time: half of what the buffer holds, drawn at
        random, whenever it is full."""
        random = np.random.default_rng([self.seed, ORDER, epoch])
        waiting: list[Data] = []
        held = 0
        for piece in self.cutter.reader.mixed(random):
            waiting.append(piece)
            held += piece.table.rows
            del piece  # before another part comes
            if held >= self.buffer:
                whole, order = joined(waiting), random.permutation(held)
                some = held // 2 // self.size * self.size
                yield whole.taken(order[:some])
                waiting, held = [whole.taken(order[some:])], held - some
        yield joined(waiting).taken(random.permutation(held))


def mixed(data: Data, plan: Plan, rows: Streamed, size: int,
          seed: int) -> tuple[feeding.Feed, Streamed]:
    """The rows of a source also in batches, and the feed of these, to be opened beside that of the
    rows.

    Args:
        data: see parts.open_data. rows: see streamed.streamed. size: rows of a batch.

    Cost: an epoch is a pass over the source; memory of the buffer twice, and one part.
    """
    assert data.survey is not None
    cutter, count = Cut.of(data, plan), data.survey.rows
    buffer = max(NUMBERS // (1 + data.numbers), BATCHES * size)
    feed = _Epochs(cutter, count, size, seed, buffer)
    leaves, form = jax.tree.flatten(feed.specs)
    batches = Mixed(np.int32(feed.number), np.int32(feed.batches), tuple(leaves), form)
    return feed, replace(rows, mixed=batches)
