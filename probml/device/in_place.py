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
        rest: the last chunk, of copied rows, with all inputs.
        begin: index of the first full chunk in `inputs`; not 0 in a second half, see `halves`.
        places: (name, index at which the first full chunk begins, shape of a row) of each input.
    """

    inputs: dict[str, jax.Array]
    body: Chunk
    rest: Chunk
    begin: jax.Array
    places: tuple[tuple[str, int, tuple[int, ...]], ...]

    @property
    def chunks(self) -> int:
        return self.body.weights.shape[0] + 1

    @property
    def size(self) -> int:
        return self.body.weights.shape[1]

    @property
    def weight(self) -> float:
        return float(np.asarray(self.body.weights).sum() + np.asarray(self.rest.weights).sum())

    @property
    def mass(self) -> jax.Array:
        return self.body.weights.sum() + self.rest.weights.sum()

    @property
    def first(self) -> Chunk:
        return self._full(0)

    @property
    def stacked(self) -> Chunk:  # type: ignore[override]  # an attribute in other classes
        """A copy of all chunks."""
        return self.taken(jnp.arange(self.chunks * self.size).reshape(self.chunks, -1)).stacked

    def fold(self, step: Callable, init: PyTree, *along: PyTree) -> tuple[PyTree, PyTree]:
        def turn(carry: PyTree, at: tuple) -> tuple[PyTree, PyTree]:
            i, *parts = at
            chunk = jax.lax.cond(i < self.chunks - 1, self._full, lambda _: self.rest, i)
            return step(carry, chunk, *parts)

        return jax.lax.scan(turn, init, (jnp.arange(self.chunks), *along))

    def taken(self, index: jax.Array) -> Resident:
        """As Rows.taken; a gather."""
        index = jnp.atleast_2d(jnp.asarray(index))
        full = (self.chunks - 1) * self.size
        inside = jnp.minimum(index, full - 1)

        def rows(at: jax.Array) -> Chunk:
            found = take_rows(jax.tree.map(
                lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.body), at)
            return found._replace(inputs={**found.inputs, **jax.vmap(
                lambda row: {name: self._stretch(name, place, shape, row, 1)[0]
                             for name, place, shape in self.places}
            )(at)})

        def chosen(one: jax.Array, other: jax.Array) -> jax.Array:
            return jnp.where((index < full).reshape(index.shape + (1,) * (one.ndim - 2)), one,
                             other)

        rest = jax.vmap(lambda at: take_rows(self.rest, jnp.clip(at - full, 0, self.size - 1)))
        return Resident(jax.tree.map(chosen, jax.vmap(rows)(inside), rest(index)))

    def halves(self) -> list["InPlaceRows"]:
        """The rows in two halves of equal shape that share `inputs`; `rest` has weight 0 in the
        first."""
        half = (self.chunks - 1) // 2
        nothing = jax.device_put(np.zeros_like(np.asarray(self.rest.weights)))
        blank = self.rest._replace(weights=nothing)
        body = jax.tree.map(np.asarray, self.body)
        return [replace(self, begin=jax.device_put(np.asarray(self.begin) + at),
                        body=jax.tree.map(lambda leaf, at=at: jax.device_put(leaf[at : at + half]),
                                          body), rest=rest)
                for at, rest in ((0, blank), (half, self.rest))]

    def _full(self, i: ArrayLike) -> Chunk:
        """The i-th full chunk."""
        inputs = {name: self._stretch(name, place, shape, i * self.size, self.size)
                  for name, place, shape in self.places}
        found = jax.tree.map(lambda leaf: leaf[i], self.body)
        return found._replace(inputs={**found.inputs, **inputs})

    def _stretch(self, name: str, place: int, shape: tuple[int, ...], row: ArrayLike,
                 rows: int) -> jax.Array:
        """`rows` rows of an input, beginning at row `row` of the body."""
        width = math.prod(shape)
        begin = place + (self.begin * self.size + row) * width
        return jax.lax.dynamic_slice_in_dim(self.inputs[name], begin, rows * width).reshape(
            rows, *shape
        )


jax.tree_util.register_dataclass(InPlaceRows, data_fields=["inputs", "body", "rest", "begin"],
                                 meta_fields=["places"])


def long(data: Data, plan: Plan, kind: DTypeLike) -> Mapping[str, np.ndarray]:
    """The inputs to read in place: large, C-contiguous, of type `kind`; none where results for each
    row depend on the order of rows, or the device is not a CPU."""
    if (jax.default_backend() != "cpu" or not plan.rowwise or plan.variables
        or plan.partially_observed
        or plan.latents or plan.groupings or plan.carried or plan.structure.chains or data.steps):
        return {}
    return {name: array for name, array in data.table.inputs.items()
            if array.nbytes >= MIN_BYTES_TO_SLICE and array.size < MAX_ARRAY_NUMBERS
            and array.dtype == kind and array.flags.c_contiguous
            and array.ctypes.data % array.dtype.itemsize == 0}


def place_in_memory(data: Data, found: Mapping[str, np.ndarray], weight: np.ndarray, chunks: int,
                    pack: Pack) -> InPlaceRows | None:
    """Rows whose large inputs are read from the user's arrays; None where the rows left over do not
    fit into one chunk.

    Args:
        found: these inputs, from `long`. weight: (n,). chunks: number of full chunks, even.
        pack: (rows, weights, shape) → chunks on the host.
    """
    n = data.table.rows
    leads = {name: -array.ctypes.data % ALIGNMENT // array.dtype.itemsize
             for name, array in found.items()}
    # rows that begin before the first aligned number
    before = max(-(-leads[name] // math.prod(array.shape[1:])) for name, array in found.items())
    size = (n - before) // chunks
    after = before + chunks * size
    if before + n - after > size:
        return None
    others = {name: array for name, array in data.table.inputs.items() if name not in found}
    body = data.taken(slice(before, after))
    body = body._replace(table=replace(body.table,
                                       inputs={name: body.table.inputs[name] for name in others}))
    index = np.concatenate([np.arange(before), np.arange(after, n)])
    index = np.zeros(1, int) if not len(index) else index
    own = aligned((size,), np.float64)
    own[:] = 0.0
    own[: before + n - after] = weight[index[: before + n - after]]
    whole = aligned((chunks * size,), np.float64)
    whole[:] = weight[before:after]
    rest = pack(data.taken(index), own, (1, size))
    held = pack(body, whole, (chunks, size))
    inputs = {name: jax.device_put(array.reshape(-1)[leads[name] :])
              for name, array in found.items()}
    places = tuple((name, before * math.prod(array.shape[1:]) - leads[name], array.shape[1:])
                   for name, array in found.items())
    return InPlaceRows(inputs, jax.tree.map(jax.device_put, held),
                       jax.tree.map(lambda leaf: jax.device_put(leaf[0]), rest), np.asarray(0),
                       places)
