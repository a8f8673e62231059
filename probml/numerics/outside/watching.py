"""Long work told to a function of the user's: a logger, a dashboard, a batch system."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple

from probml.errors import ModelError


class Step(NamedTuple):
    """How far some work is; `str` has it in words.

    Args:
        title: of the work, such as "EM". done, total: iterations, draws or steps; of rows that are
            passed once, these, and None for their number. objective: of what is maximised now.
        seconds: since it began. left: about as many to its end at the most; None: nobody knows.
        rows_per_second: that are read; None: they are held.
    """

    title: str
    done: int
    total: int | None
    objective: float | None
    seconds: float
    left: float | None
    rows_per_second: float | None

    def __str__(self) -> str:
        said = [f"{self.title}: {self.done:,}" + (f" of {self.total:,}" if self.total else "")]
        if self.objective is not None:
            said.append(f"objective {self.objective:.6g}")
        if self.rows_per_second is not None:
            said.append(f"{self.rows_per_second:,.0f} rows a second")
        said.append(f"{self.seconds:.0f} s")
        if self.left is not None:
            said.append(f"{self.left:.0f} s left at most")
        return ", ".join(said)


class Watcher:
    """Who is told, at most every so many seconds, and of the last of each work in any case."""

    def __init__(self, callback: Callable[[Step], object], seconds: float):
        self.callback, self.seconds = callback, seconds
        self._lock, self._told = threading.Lock(), -float("inf")
        self._step: Step | None = None  # the last that was told

    def hear(self, step: Step, last: bool) -> None:
        """One step, if it is time."""
        with self._lock:
            now = time.monotonic()
            if step is not self._step and (last or now - self._told >= self.seconds):
                self._told, self._step = now, step
                self.callback(step)


_WATCHERS: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


def watchers() -> tuple[Watcher, ...]:
    """Those who hear of what begins now."""
    return _WATCHERS.get()


@contextlib.contextmanager
def watch(callback: Callable[[Step], object], seconds: float = 1.0) -> Iterator[None]:
    """Within it, `callback(step)` hears how far fits and answers of this thread are.

        with probml.watch(lambda step: log.info("%s", step), seconds=30):
            model.fit(source)

    Args:
        callback: of one step, with `title`, `done`, `total`, `objective`, `seconds`, `left` and
            `rows_per_second`, None where there is none; its words are `str(step)`. What it raises
            ends the work.
        seconds: between two calls, at the least; of each work the last step is reported in any
            case.

    Raises:
        ModelError: something that cannot be called, or no number of seconds.
    """
    if not callable(callback):
        raise ModelError(f"watch({callback!r}): expected a function of one argument, such as print")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ModelError(f"watch(seconds={seconds!r}): expected a number of at least 0")
    token = _WATCHERS.set((*_WATCHERS.get(), Watcher(callback, seconds)))
    try:
        yield
    finally:
        _WATCHERS.reset(token)
