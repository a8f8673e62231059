"""Progress callbacks: the progress of long computations reported to a user's function."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple

from probml.errors import ModelError, counted
from probml.numerics.process.shared_changes import assigned


class Step(NamedTuple):
    """The progress of a computation; `str` describes it.

    Args:
        title: of the computation, such as "EM". done, total: iterations, draws or steps; of a
            single pass over rows, rows, and None for their total. objective: its current value.
        seconds: since the start. left: an upper estimate of the remaining seconds; None: unknown.
        rows_per_second: read from a source; None: rows are in memory.
    """

    title: str
    done: int
    total: int | None
    objective: float | None
    seconds: float
    left: float | None
    rows_per_second: float | None

    def __str__(self) -> str:
        parts = [f"{self.title}: {self.done:,}" + (f" of {self.total:,}" if self.total else "")]
        if self.objective is not None:
            parts.append(f"objective {self.objective:.6g}")
        if self.rows_per_second is not None:
            parts.append(f"{counted(round(self.rows_per_second), 'row')} a second")
        parts.append(f"{self.seconds:.0f} s")
        if self.left is not None:
            parts.append(f"{self.left:.0f} s left at most")
        return ", ".join(parts)


class Watcher:
    """A user's callback, called at most every `seconds`, and at the end of each computation."""

    def __init__(self, callback: Callable[[Step], object], seconds: float):
        self.callback, self.seconds = callback, seconds
        self._lock, self._last_call = threading.Lock(), -float("inf")
        self._step: Step | None = None  # the last that was reported

    def hear(self, step: Step, last: bool) -> None:
        """Report a step, if it is time."""
        with self._lock:
            now = time.monotonic()
            if step is not self._step and (last or now - self._last_call >= self.seconds):
                self._last_call, self._step = now, step
                self.callback(step)


# of computations that begin now
WATCHERS: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextlib.contextmanager
def watch(callback: Callable[[Step], object], seconds: float = 1.0) -> Iterator[None]:
    """Within this context `callback(step)` is called with the progress of fits and queries in this
    thread.

        with probml.watch(lambda step: log.info("%s", step), seconds=30):
            model.fit(source)

    Args:
        callback: of one step, with `title`, `done`, `total`, `objective`, `seconds`, `left` and
            `rows_per_second`, None where not known; `str(step)` describes it. Its exceptions stop
            the computation.
        seconds: between two calls, at the least; the last step of each computation is always
            reported.

    Raises:
        ModelError: something that cannot be called, or no number of seconds.
    """
    if not callable(callback):
        raise ModelError(f"watch({callback!r}): expected a function that takes one argument, such "
                         f"as print")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ModelError(f"watch(seconds={seconds!r}): expected the seconds between two calls, a "
                         f"number of at least 0")
    with assigned(WATCHERS, (*WATCHERS.get(), Watcher(callback, seconds))):
        yield
