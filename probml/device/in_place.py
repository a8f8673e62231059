"""Rows whose large inputs are read directly from the user's arrays, chunk by chunk: no copy of all
rows is made.

On a CPU, JAX uses a host array without copying only if its address is a multiple of `ALIGNMENT`
bytes, which that of a user's array seldom is. So the array is flattened and used from its first
aligned number on; a chunk is a slice of it. Only a few rows are copied: those that begin before
that number, and those left over when all chunks are full. They form one more chunk, padded at
weight 0.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from probml.dataset.dataset import Data
from probml.device.rows import Chunk, Resident, Rows, take_rows
from probml.numerics.transfer import ALIGNMENT, aligned
from probml.plan.plan import Plan
from probml.typing import PyTree

MIN_BYTES_TO_SLICE = 2**25  # bytes from which copying an array costs more than slicing it
MAX_ARRAY_NUMBERS = 2**31  # numbers of an array must be fewer, for 32-bit indices

Pack = Callable[[Data, np.ndarray, tuple[int, int]], Chunk]  # rows, weights, (chunks, rows of one)


@dataclass(frozen=True)
class InPlaceRows(Rows):
    """Rows with large inputs in place. Their order differs from the user's: full chunks, then the
    chunk of copied rows.

    Attributes:
        inputs: name → the flattened array, from its first aligned number on.
        body: full chunks without these inputs, (chunks, size, ...).
        tail: the last chunk, of copied rows, with all inputs.
        start: index of the first full chunk in `inputs`; not 0 in a second half, see `halves`.
        layouts: (name, index at which the first full chunk begins, shape of a row) of each input.
    """

    inputs: dict[str, jax.Array]
    body: Chunk
    tail: Chunk
    start: jax.Array
    layouts: tuple[tuple[str, int, tuple[int, ...]], ...]

    @property
    def chunks(self) -> int:
        return self.body.weights.shape[0] + 1

    @property
    def size(self) -> int:
        return self.body.weights.shape[1]

    @property
    def weight(self) -> float:
        return float(np.asarray(self.body.weights).sum() + np.asarray(self.tail.weights).sum())

    @property
    def mass(self) -> jax.Array:
        return self.body.weights.sum() + self.tail.weights.sum()

    @property
    def first(self) -> Chunk:
        return self._full(0)

    @property
    def stacked(self) -> Chunk:  # type: ignore[override]  # an attribute in other classes
        """A copy of all chunks."""
        return self.taken(jnp.arange(self.chunks * self.size).reshape(self.chunks, -1)).stacked

    def fold(self, step: Callable, init: PyTree, *along: PyTree) -> tuple[PyTree, PyTree]:
        def turn(carry: PyTree, xs: tuple) -> tuple[PyTree, PyTree]:
            i, *parts = xs
            chunk = jax.lax.cond(i < self.chunks - 1, self._full, lambda _: self.tail, i)
            return step(carry, chunk, *parts)

        return jax.lax.scan(turn, init, (jnp.arange(self.chunks), *along))

    def taken(self, index: jax.Array) -> Resident:
        """As Rows.taken; a gather."""
        index = jnp.atleast_2d(jnp.asarray(index))
        full = (self.chunks - 1) * self.size
        body_index = jnp.minimum(index, full - 1)

        def rows(idx: jax.Array) -> Chunk:
            chunk = take_rows(jax.tree.map(
                lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.body), idx)
            return chunk._replace(inputs={**chunk.inputs, **jax.vmap(
                lambda row: {name: self._stretch(name, offset, shape, row, 1)[0]
                             for name, offset, shape in self.layouts}
            )(idx)})

        def chosen(body: jax.Array, tail: jax.Array) -> jax.Array:
            return jnp.where((index < full).reshape(index.shape + (1,) * (body.ndim - 2)), body,
                             tail)

        tail_rows = jax.vmap(lambda idx: take_rows(self.tail,
                                                   jnp.clip(idx - full, 0, self.size - 1)))
        return Resident(jax.tree.map(chosen, jax.vmap(rows)(body_index), tail_rows(index)))

    def halves(self) -> list["InPlaceRows"]:
        """The rows in two halves of equal shape that share `inputs`; `rest` has weight 0 in the
        first."""
        half = (self.chunks - 1) // 2
        zeros = jax.device_put(np.zeros_like(np.asarray(self.tail.weights)))
        blank = self.tail._replace(weights=zeros)
        body = jax.tree.map(np.asarray, self.body)
        return [replace(self, start=jax.device_put(np.asarray(self.start) + lo),
                        body=jax.tree.map(lambda leaf, lo=lo: jax.device_put(leaf[lo : lo + half]),
                                          body), tail=tail)
                for lo, tail in ((0, blank), (half, self.tail))]

    def _full(self, i: ArrayLike) -> Chunk:
        """The i-th full chunk."""
        inputs = {name: self._stretch(name, offset, shape, i * self.size, self.size)
                  for name, offset, shape in self.layouts}
        chunk = jax.tree.map(lambda leaf: leaf[i], self.body)
        return chunk._replace(inputs={**chunk.inputs, **inputs})

    def _stretch(self, name: str, offset: int, shape: tuple[int, ...], row: ArrayLike,
                 rows: int) -> jax.Array:
        """`rows` rows of an input, beginning at row `row` of the body."""
        width = math.prod(shape)
        start = offset + (self.start * self.size + row) * width
        return jax.lax.dynamic_slice_in_dim(self.inputs[name], start, rows * width).reshape(
            rows, *shape
        )


jax.tree_util.register_dataclass(InPlaceRows, data_fields=["inputs", "body", "tail", "start"],
                                 meta_fields=["layouts"])


def large_inputs(data: Data, plan: Plan, kind: DTypeLike) -> Mapping[str, np.ndarray]:
    """The inputs to read in place: large, C-contiguous, of type `kind`; none where results for each
    row depend on the order of rows, or the device is not a CPU."""
    if (jax.default_backend() != "cpu" or not plan.rowwise or plan.variables
        or plan.partially_observed
        or plan.latents or plan.groupings or plan.sampled or plan.structure.chains or data.steps):
        return {}
    return {name: array for name, array in data.table.inputs.items()
            if array.nbytes >= MIN_BYTES_TO_SLICE and array.size < MAX_ARRAY_NUMBERS
            and array.dtype == kind and array.flags.c_contiguous
            and array.ctypes.data % array.dtype.itemsize == 0}


def place_in_memory(data: Data, in_place: Mapping[str, np.ndarray], weight: np.ndarray, chunks: int,
                    pack: Pack) -> InPlaceRows | None:
    """Rows whose large inputs are read from the user's arrays; None where the rows left over do not
    fit into one chunk.

    Args:
        in_place: these inputs, from `long`. weight: (n,). chunks: number of full chunks, even.
        pack: (rows, weights, shape) → chunks on the host.
    """
    n = data.table.rows
    leads = {name: -array.ctypes.data % ALIGNMENT // array.dtype.itemsize
             for name, array in in_place.items()}
    # rows that begin before the first aligned number
    head = max(-(-leads[name] // math.prod(array.shape[1:])) for name, array in in_place.items())
    size = (n - head) // chunks
    end = head + chunks * size
    if head + n - end > size:
        return None
    others = {name: array for name, array in data.table.inputs.items() if name not in in_place}
    body = data.taken(slice(head, end))
    body = body._replace(table=replace(body.table,
                                       inputs={name: body.table.inputs[name] for name in others}))
    index = np.concatenate([np.arange(head), np.arange(end, n)])
    index = np.zeros(1, int) if not len(index) else index
    rest_weight = aligned((size,), np.float64)
    rest_weight[:] = 0.0
    rest_weight[: head + n - end] = weight[index[: head + n - end]]
    body_weight = aligned((chunks * size,), np.float64)
    body_weight[:] = weight[head:end]
    tail = pack(data.taken(index), rest_weight, (1, size))
    body_chunk = pack(body, body_weight, (chunks, size))
    inputs = {name: jax.device_put(array.reshape(-1)[leads[name] :])
              for name, array in in_place.items()}
    places = tuple((name, head * math.prod(array.shape[1:]) - leads[name], array.shape[1:])
                   for name, array in in_place.items())
    return InPlaceRows(inputs, jax.tree.map(jax.device_put, body_chunk),
                       jax.tree.map(lambda leaf: jax.device_put(leaf[0]), tail), np.asarray(0),
                       places)
