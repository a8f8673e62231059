"""Streams chunks of data from the host into a running program, one at a time, so that the device
never holds all of them.

A program requests a chunk by a callback with two operands, the number of the feed and of the chunk,
so that one compiled program serves every feed of chunks of the same shapes. While one chunk is
processed, a thread reads the next; at most two are in memory.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import jax

from probml.numerics.outside.callbacks import Supply, called_back
from probml.numerics.process.threads import in_same_precision
from probml.typing import PyTree

_END = object()


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
        self._n_delivered, self._began = 0, 0.0

    @property
    def speed(self) -> float:
        """Chunks per second since the first request."""
        return self._n_delivered / max(time.monotonic() - self._began, 1e-6)

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
        self._n_delivered += 1
        self._ahead = self._pool.submit(self._next, self._iterator) if i + 1 < self.count else None


def ahead(items: Iterator[PyTree]) -> Iterator[PyTree]:
    """The items, each computed by a thread while the one before is used."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(in_same_precision(next), items, _END)
        while (item := future.result()) is not _END:
            future = pool.submit(in_same_precision(next), items, _END)
            yield item


def chunk(number: jax.Array, i: object, specs: object) -> PyTree:
    """The i-th chunk of the feed `number` in a program."""
    return called_back(_chunk, specs, number, i)


def _chunk(feed: Feed, i: jax.Array) -> PyTree:
    return feed.chunk(int(i))
