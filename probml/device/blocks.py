"""A single pass over rows on the host in blocks of one shape, each transferred to the device when
it is needed. No copy of all rows is made, and one program serves any number of rows."""

import collections
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data
from probml.dataset.moments import Moments
from probml.dataset.tables import Column
from probml.device.lanes import Kinds
from probml.device.load import (
    Room,
    centres_and_scales,
    needs_scale,
    pack_chunks,
    placed_values,
    used_columns,
)
from probml.device.rows import Chunk, Known, Resident
from probml.numerics.transfer import aligned
from probml.plan.plan import Plan

NUMBERS = 2**20  # numbers in a block
MAX_LOADED_BLOCKS = 2  # blocks up to which all rows are loaded at once instead
GUESS = 2**12  # rows from which approximate column means are computed
AHEAD = 2  # blocks that may wait for the device while the next is packed


def needs_blocks(data: Data) -> bool:
    """Whether data have more numbers than MAX_LOADED_BLOCKS blocks, and no time axis."""
    return data.steps is None and data.table.rows * (1 + data.numbers) > MAX_LOADED_BLOCKS * NUMBERS


class Blocks:
    """A pass over rows without a time axis, in the order of the table.

    Columns are centred on approximate means, from a sample of rows: sums of squares then have
    about the precision of those about the exact means, without a pass to compute these.

    Args:
        weights: (n,); None: 1 each.
        measured: whether a pass also computes the standard deviations of columns.

    Cost: a pass reads every number once, and three times more if `measured`; memory of a few
        blocks.
    """

    def __init__(self, data: Data, plan: Plan, weights: np.ndarray | None, measured: bool = True):
        self.data, self.plan, self.weights = data, plan, weights
        self.kinds = Kinds(jnp.result_type(float), jnp.result_type(int))
        columns = {name: column for name, column in used_columns(data, plan).items()
                   if name in plan.centred or needs_scale(plan, name)}
        self.measured = tuple(columns) if measured else ()
        self.moments: dict[str, Moments] = {}
        self.size = plan.chunk_rows()
        self.chunks = max(NUMBERS // ((1 + data.numbers) * self.size), 1)
        index = self._sample_rows()
        guess = {name: Moments.of(column.mapped(lambda array: array[index]))
                 for name, column in columns.items()}
        self.centre, spread = centres_and_scales(plan, guess, len(index))
        self.known = placed_values(data, self.centre, spread)

    @property
    def fits_few_blocks(self) -> bool:
        """Whether all rows fit into MAX_LOADED_BLOCKS blocks, so that blocks gain nothing."""
        return self.data.table.rows <= MAX_LOADED_BLOCKS * self.chunks * self.size

    def results(self, ask: Callable[[Resident], Any]) -> Iterator[Any]:
        """ask(block) of every block, as arrays on the host; the programs of AHEAD blocks may run
        while the next is packed."""
        waiting: collections.deque[Any] = collections.deque()
        for block in self._packed():
            waiting.append(ask(block))
            if len(waiting) > AHEAD:
                yield jax.device_get(waiting.popleft())
        yield from map(jax.device_get, waiting)

    def _packed(self) -> Iterator[Resident]:
        """Yields blocks, the last padded at weight 0, and accumulates column moments. When a block
        is requested, programs on all but the last AHEAD blocks must have finished, since buffers
        are reused."""
        n, step = self.data.table.rows, self.chunks * self.size
        full_weight = aligned((step,), self.kinds.real)
        full_weight[:] = 1.0
        self.moments, buffers = {}, [Room() for _ in range(AHEAD + 1)]
        for begin in range(0, n, step):
            part = slice(begin, min(begin + step, n))
            rows = part.stop - begin
            weight = full_weight
            if rows < step or self.weights is not None:
                weight = aligned((step,), self.kinds.real)
                weight[:rows] = 1.0 if self.weights is None else self.weights[part]
                weight[rows:] = 0.0
            block = self.data.taken(part)
            chunk = pack_chunks(block, self.plan, self.centre, weight, (self.chunks, self.size),
                                self.kinds, room=buffers[begin // step % len(buffers)].rewind())
            yield Resident(jax.tree.map(jax.device_put, chunk))
            for name in self.measured:
                moments = self._measured(name, block.table.columns[name], chunk, part)
                self.moments[name] = (self.moments[name].merged(moments) if begin else moments)

    def _measured(self, name: str, column: Column, chunk: Chunk, part: slice) -> Moments:
        """The moments of a column in a block: from its packed, centred values where these are in
        float64, complete and unweighted, else from the column itself."""
        values = chunk.values.get(name)
        if (name not in self.centre or self.weights is not None or column.observed is not None
                or values is None or values.dtype != np.float64):
            return Moments.of(column, None if self.weights is None else self.weights[part])
        deviation = values.reshape(-1, *values.shape[2:])[: part.stop - part.start]
        return Moments.about(deviation, self.centre[name].reshape(deviation.shape[1:]))

    def passed(self) -> Known:
        """The values that all rows share, after a pass: the means used for centring, and the
        standard deviations of all rows."""
        total = self.data.table.rows if self.weights is None else self.weights.sum()
        return self.known._replace(sd=centres_and_scales(self.plan, self.moments, total)[1])

    def _sample_rows(self) -> np.ndarray:
        """About GUESS evenly spaced row numbers, of rows with positive weight."""
        if self.weights is None:
            n = self.data.table.rows
            return np.arange(0, n, max(n // GUESS, 1))
        index = np.flatnonzero(self.weights)
        return index[:: max(len(index) // GUESS, 1)]
