"""Random minibatches of rows that do not fit into memory: the source yields them in a partly random
order, and a shuffle buffer mixes them further.

An epoch contains every row once. Its order depends only on seed and epoch, so that a resumed fit
uses the same batches as one that was not interrupted.
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

NUMBERS = 2**22  # numbers in the shuffle buffer
BATCHES = 4  # minimum batches in the buffer
ORDER = 8  # part of the seed of the random order of rows
ENDLESS = 2**62


class _Epochs(feeding.Feed):
    """Batches, epoch after epoch.

    Args:
        size: rows of a batch; the last of an epoch is padded with rows of weight 0.
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
        """The rows of an epoch, several batches at a time: whenever the buffer is full, a random
        half of its rows is yielded."""
        random = np.random.default_rng([self.seed, ORDER, epoch])
        waiting: list[Data] = []
        held = 0
        for piece in self.cutter.reader.mixed(random):
            waiting.append(piece)
            held += piece.table.rows
            del piece  # free its memory before the next one is read
            if held >= self.buffer:
                whole, order = joined(waiting), random.permutation(held)
                some = held // 2 // self.size * self.size
                yield whole.taken(order[:some])
                waiting, held = [whole.taken(order[some:])], held - some
        yield joined(waiting).taken(random.permutation(held))


def mixed(data: Data, plan: Plan, rows: Streamed, size: int,
          seed: int) -> tuple[feeding.Feed, Streamed]:
    """A feed of random batches of a source's rows, to be opened together with the feed of `rows`,
    and `rows` with `mixed` set to these batches.

    Args:
        data: see parts.open_data. rows: see streamed.streamed. size: rows of a batch.

    Cost: an epoch is a pass over the source; memory of two buffers and one part of the source.
    """
    assert data.survey is not None
    cutter, count = Cut.of(data, plan), data.survey.rows
    buffer = max(NUMBERS // (1 + data.numbers), BATCHES * size)
    feed = _Epochs(cutter, count, size, seed, buffer)
    leaves, form = jax.tree.flatten(feed.specs)
    batches = Mixed(np.int32(feed.number), np.int32(feed.batches), tuple(leaves), form)
    return feed, replace(rows, mixed=batches)
