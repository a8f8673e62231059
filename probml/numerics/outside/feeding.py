"""Streams chunks of data from the host into a running program, one at a time, so that the device
never holds all of them.

A program requests a chunk by a callback with two operands, the number of the feed and of the chunk,
so that one compiled program serves every feed of chunks of the same shapes. While one chunk is
processed, a thread reads the next; at most two are in memory.

An exception of reading cannot pass through a program. It is stored, empty chunks follow, and
`raise_supply_failure` raises it when the program has ended.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from probml.numerics.process.threads import in_same_precision
from probml.typing import PyTree

_OPEN: dict[int, "Supply"] = {}
_NUMBERS = itertools.count()
_END = object()


class Supply:
    """A provider of data that running programs call by its number; a context manager.

    Attributes:
        failure: its exception, stored until the program has ended.
    """

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.number = next(_NUMBERS)

    def __enter__(self) -> Self:
        _OPEN[self.number] = self
        return self

    def __exit__(self, *_: object) -> None:
        _OPEN.pop(self.number)


class Feed(Supply):
    """Chunks in order, from the first again in every pass.

    Args:
        read: returns a new iterator of chunks, pytrees of arrays of the shapes and dtypes of
            `specs`.
        specs: pytree of jax.ShapeDtypeStruct. count: number of chunks.
    """

    def __init__(self, read: Callable[[], Iterator[PyTree]], specs: object, count: int):
        super().__init__()
        self.read, self.specs, self.count = read, specs, count
        self._lock, self._at, self._chunk = threading.Lock(), -1, None
        self._iterator: Iterator[PyTree] | None = None
        self._ahead: Future | None = None
        self._given, self._began = 0, 0.0

    @property
    def speed(self) -> float:
        """Chunks per second since the first request."""
        return self._given / max(time.monotonic() - self._began, 1e-6)

    def __enter__(self) -> "Feed":
        self._pool, self._next = ThreadPoolExecutor(1), in_same_precision(next)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._pool.shutdown(cancel_futures=True)
        self._iterator = self._ahead = self._chunk = None

    def iterate_from(self, i: int) -> Iterator[PyTree]:
        """A new iterator from the i-th chunk on."""
        return itertools.islice(self.read(), i, None)

    def chunk(self, i: int) -> PyTree:
        """The i-th chunk; if it follows the last one, it has been read or is being read."""
        with self._lock:
            if i != self._at:
                self._go(i)
            return self._chunk

    def _go(self, i: int) -> None:
        self._chunk = None  # released before the next is read
        self._began = self._began or time.monotonic()
        if self._ahead is None or i != self._at + 1:
            if self._ahead is not None:
                self._ahead.exception()  # waits: only one thread may read
            self._iterator = self.iterate_from(i)
            self._ahead = self._pool.submit(self._next, self._iterator)
        self._at, self._chunk = i, self._ahead.result()
        self._given += 1
        assert self._iterator is not None
        self._ahead = self._pool.submit(self._next, self._iterator) if i + 1 < self.count else None


def ahead(items: Iterator[PyTree]) -> Iterator[PyTree]:
    """The items, each computed by a thread while the one before is used."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(in_same_precision(next), items, _END)
        while (found := waiting.result()) is not _END:
            waiting = pool.submit(in_same_precision(next), items, _END)
            yield found


def count_fed_numbers(arguments: object) -> int:
    """The number of numbers streamed to a program in a pass: the sum of the attributes `fed` of its
    arguments."""
    if not _OPEN:
        return 0
    found = jax.tree.leaves(arguments, is_leaf=lambda value: hasattr(value, "fed"))
    return sum(int(getattr(value, "fed", 0)) for value in found)


def chunk(number: jax.Array, i: object, specs: object) -> PyTree:
    """The i-th chunk of the feed `number` in a program."""
    return called_back(_chunk, specs, number, i)


def _chunk(feed: Feed, i: jax.Array) -> PyTree:
    return feed.chunk(int(i))


def called_back(function: Callable, specs: object, number: jax.Array, *operands: object) -> PyTree:
    """function(the supply of that number, *operands) in a program; zeros once it has raised.

    Numbers of 64 bits are passed as pairs of 32: the callback runs in another thread, without the
    context in which JAX has 64 bits, and JAX would convert them to 32.

    Args:
        specs: pytree of jax.ShapeDtypeStruct, of the result.
    """
    kinds = jax.tree.map(lambda leaf: jnp.result_type(leaf), operands)

    def ask(number: jax.Array, *operands: object) -> PyTree:
        supply = _OPEN[int(number)]
        try:
            if supply.failure is None:
                found = function(supply, *jax.tree.map(_join_halves, operands, kinds))
                return jax.tree.map(_halved, found)
        except BaseException as error:
            supply.failure = error
        return jax.tree.map(lambda spec: np.zeros(spec.shape, spec.dtype), halves)

    halves = jax.tree.map(lambda spec: jax.ShapeDtypeStruct((*spec.shape, 2), np.uint32)
                          if _is_64_bit(spec.dtype) else spec, specs)
    sent = jax.tree.map(lambda leaf, kind: jax.lax.bitcast_convert_type(leaf, np.uint32)
                        if _is_64_bit(kind) else leaf, operands, kinds)
    found = jax.pure_callback(ask, halves, number, *sent)
    return jax.tree.map(lambda leaf, spec: jax.lax.bitcast_convert_type(leaf, spec.dtype)
                        if _is_64_bit(spec.dtype) else leaf, found, specs)


def _is_64_bit(kind: np.dtype) -> bool:
    return jnp.issubdtype(kind, np.number) and np.dtype(kind).kind in "fiu" and (
        np.dtype(kind).itemsize == 8)


def _halved(array: np.ndarray) -> np.ndarray:
    """Numbers of 64 bits as pairs of 32, (..., 2); a view."""
    array = np.asarray(array)
    return array[..., None].view(np.uint32) if _is_64_bit(array.dtype) else array


def _join_halves(array: jax.Array, kind: np.dtype) -> jax.Array:
    return np.asarray(array).view(kind)[..., 0] if _is_64_bit(kind) else array


def raise_supply_failure(found: object) -> PyTree:
    """The results of a program; raises the stored exception of its supply of data."""
    if _OPEN:
        found = jax.block_until_ready(found)
        failure = next((supply.failure for supply in _OPEN.values() if supply.failure), None)
        if failure is not None:
            raise failure
    return found
