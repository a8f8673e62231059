"""Progress bars, and the loop of all iterative engines: one device call at a time, so that progress
shows and Ctrl-C works in between."""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from probml.engines.engine import Status
from probml.errors import counted
from probml.numerics.compiling import compiling_for
from probml.numerics.outside.checkpoint import LoopState
from probml.numerics.outside.watching import WATCHERS, Step
from probml.numerics.process.threads import in_same_precision
from probml.typing import PyTree

if TYPE_CHECKING:
    from probml.numerics.outside.checkpoint import Journal

DELAY = 5.0  # seconds before progress shows
SLOWER = 4.0  # times as long until the next plain line
COMPILING = 1.0  # seconds of compiling after which progress mentions it


class Progress:
    """A tqdm bar: at once if asked for, else after five seconds in a terminal or a notebook; it
    says when a program compiles for longer than a second. Elsewhere, as in the log file of a job,
    plain lines, the first after five seconds and the next at growing intervals.

    A thread of its own updates it, also while a program compiles. Nested work of the same thread,
    as EM in the fit of a sampler, hides the outer bar while it shows its own; the five seconds are
    those of the outer work.

    Args:
        total: number of iterations; None: they are not counted, and only a clock shows.
    """

    _open = threading.local()  # `innermost`: of this thread's work

    def __init__(self, title: str, total: int | None, show: bool):
        self.title, self.total = title, total
        self.bar: Any = None
        self._start_time = time.monotonic()
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._at: tuple[int, str] = (0, "preparing" if total else "working")
        self._outer: Progress | None = getattr(self._open, "innermost", None)
        self._inner: Progress | None = None
        self._since: float = self._outer._since if self._outer else self._start_time
        self._hidden, self._thread = False, threading.get_ident()
        self.about = self._outer.about if self._outer else ""  # the size of the work, in words
        self.stopped = threading.Event()  # set: turns under way are the last
        # of a fit with a checkpoint, and the name of this loop in it
        self.journal: Journal | None = self._outer.journal if self._outer else None
        self.section = self.journal.section(title) if self.journal else ""
        # rows that are read per second
        self.reading: Callable[[], float] | None = self._outer.reading if self._outer else None
        self._watchers = WATCHERS.get()
        self._step: Step | None = None  # the last one, for watchers
        self._watched = show or is_interactive()
        if show:
            self._appear()

    def _appear(self) -> None:
        from tqdm.auto import tqdm

        if self._outer is not None:
            self._outer._hide()
        clock = {} if self.total else {"bar_format": "{desc}: {elapsed}{postfix}"}
        self.bar = tqdm(total=self.total, desc=self.title, unit="it", leave=bool(self.total),
                        **clock)
        self.bar.start_t -= time.monotonic() - self._start_time
        self._hidden = False
        self._show()

    def _hide(self) -> None:
        with self._lock:
            if self.bar is not None:
                self.bar.leave = False
                self.bar.close()
                self.bar, self._hidden = None, True
        if self._outer is not None:
            self._outer._hide()

    def _show(self) -> None:
        count, text = self._at
        if self.reading is not None:
            text = f"{text}, {counted(round(self.reading()), 'row')} a second"
        if compiling_for(self._thread) > COMPILING:
            text = f"compiling {self.title}{self.about and f' for {self.about}'}, once"
        self.bar.set_postfix_str(text, refresh=False)
        self.bar.update(count - self.bar.n)

    def _watch(self) -> None:
        noted, wait = False, min(COMPILING, max(self._since + DELAY - time.monotonic(), 0.0))
        while not self._ended.wait(wait):
            remaining = self._since + DELAY - time.monotonic()
            wait = min(COMPILING, remaining if remaining > 0 else DELAY)
            with self._lock:
                if self._ended.is_set():
                    return
                if self._inner is not None:  # which shows itself
                    continue
                compiling = compiling_for(self._thread) > COMPILING
                if self.bar is None:
                    if not compiling and remaining > 0:
                        continue
                    self._appear()
                elif noted != compiling:
                    self._show()
                noted = compiling
                self.bar.refresh()

    def __enter__(self):
        self._open.innermost = self
        if self._outer is not None:
            self._outer._inner = self
        if self._watched or self._outer is None:
            threading.Thread(target=self._watch if self._watched else self._write,
                             daemon=True).start()
        return self

    def _write(self) -> None:
        wait = DELAY
        while not self._ended.wait(wait) and sys.stderr is not None:
            print(self._line(), file=sys.stderr, flush=True)
            wait *= SLOWER

    def _line(self) -> str:
        """A line with the work, its progress, the time so far and the time left."""
        inner, now = self, time.monotonic()
        while inner._inner is not None:
            inner = inner._inner
        line = self.title + f" ({self.about})" * bool(self.about)
        line += f", {inner.title}" * (inner.title != self.title)
        if compiling_for(self._thread) > COMPILING:
            return f"{line}: compiling, once; {now - self._since:.0f} s so far"
        done, text = inner._at
        if not (inner.total and done):
            return f"{line}: {text}; {now - self._since:.0f} s so far"
        remaining = (now - inner._start_time) * (inner.total - done) / done
        return (f"{line}: {done} of at most "
                f"{counted(inner.total, 'iteration')}{text and f', {text}'}; "
                f"{now - self._since:.0f} s so far, at most about {remaining:.0f} s more")

    def advance(self, count: int, value: float | None = None) -> None:
        """Adds iterations, from any thread; `value`: of the objective, where there is one."""
        with self._lock:
            self._at = (self._at[0] + count, "" if value is None else f"objective {value:.6g}")
            if self.bar is not None:
                self._show()
        self._inform_watchers(self._at[0], value)

    @property
    def count(self) -> int:
        """The number of iterations so far."""
        return self._at[0]

    def passed(self, rows: int) -> None:
        """Shows the number of rows so far, for work of unknown length."""
        with self._lock:
            speed = rows / max(time.monotonic() - self._start_time, 1e-6)
            self._at = (0, f"{counted(rows, 'row')}, {speed:,.0f} a second")
            if self.bar is not None:
                self._show()
        self._inform_watchers(rows, None, speed)

    def _inform_watchers(self, done: int, value: float | None, speed: float | None = None) -> None:
        """Informs the watchers."""
        if not self._watchers:
            return
        elapsed = time.monotonic() - self._start_time
        remaining = elapsed * (self.total - done) / done if self.total and done else None
        speed = self.reading() if speed is None and self.reading is not None else speed
        self._step = Step(self.title, done, self.total, value, elapsed, remaining, speed)
        for watcher in self._watchers:
            watcher.hear(self._step, False)

    def __exit__(self, failed: type[BaseException] | None, *_: object):
        with self._lock:
            self._ended.set()
            if self.bar is not None:
                self.bar.close()
        outer = self._open.innermost = self._outer
        if outer is not None:
            with outer._lock:
                outer._inner = None
                if outer._hidden:
                    outer._appear()
        if self._step is not None and failed is None:
            for watcher in self._watchers:
                watcher.hear(self._step, True)


def is_interactive() -> bool:
    """Whether stderr is shown in a terminal or a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return (shell is not None and "IPKernelApp" in shell.config) or (
        sys.stderr is not None and sys.stderr.isatty()
    )


def reading(speed: Callable[[], float]) -> None:
    """Shows how many rows are read per second in the bar of this thread's work, and of nested work.
    """
    bar = getattr(Progress._open, "innermost", None)
    if bar is not None:
        bar.reading = speed


class StepResult(NamedTuple):
    """The result of one device call."""

    count: int  # type: ignore[assignment] # not the tuple's method; iterations
    value: float  # the objective, to be shown
    status: Status = Status.RUNNING  # another one ends the run


class Loop:
    """The state of a loop between its turns, for checkpoints.

    Args:
        state: of the loop, a pytree of arrays. lists: names of lists to which turns append.
    """

    def __init__(self, state: PyTree, *lists: str):
        self.state = state
        self.lists: dict[str, list] = {name: [] for name in lists}

    def read(self) -> dict[str, PyTree]:
        """All that is saved; the arrays are not modified later."""
        return {"state": jax.tree.leaves(self.state),
                **{name: list(items) for name, items in self.lists.items()}}

    def write(self, saved: dict[str, PyTree]) -> None:
        """Restores what `read` returned."""
        self.state = jax.tree.unflatten(jax.tree.structure(self.state), saved["state"])
        for name, items in self.lists.items():
            items[:] = saved[name]


def iterate(bar: Progress, limit: int, turn: Callable[[int], StepResult], lanes: int = 1,
            held: Loop | None = None, lane: str = "") -> Status:
    """Calls `turn` until it returns a status that ends the run, until `limit` iterations are made,
    or until the bar is stopped.

    Args:
        turn: iterations so far → the result of one more device call. One without iterations counts
            as one.
        lanes: counts of the bar for an iteration, as for chains that are advanced together.
        held: the state in a checkpoint, from which the loop continues; None: it is not saved.
        lane: distinguishes loops that share a bar.

    Returns:
        the status: MAX_ITERATIONS if no turn ended the run.
    """
    done, journal = 0, bar.journal if held is not None else None
    key = f"{bar.section}/{lane}"
    past = journal.past(key) if journal else None
    if past is not None and held is not None:
        done, status = past.done, Status(past.status)
        held.write(past.variables)
        bar.advance(done * lanes, past.value)
        if status is not Status.RUNNING:
            return status
    while done < limit and not bar.stopped.is_set():
        count, value, status = turn(done)
        done += max(count, 1)
        if journal and held is not None:
            journal.note(key, LoopState(done, int(status), value, held.read()))
        bar.advance(count * lanes, value)
        if status is not Status.RUNNING:
            return status
    return Status.MAX_ITERATIONS


def in_threads(bar: Progress, work: Callable[[Any], Any], parts: Sequence,
               workers: int) -> list[Any]:
    """work(part) of every part, by `workers` threads, in this thread's precision. If one raises,
    and at Ctrl-C, those under way end after their present turn and the others do not begin."""
    with ThreadPoolExecutor(workers) as pool:
        try:
            return list(pool.map(in_same_precision(work), parts))
        except BaseException:  # those that have not begun are cancelled by now
            bar.stopped.set()
            raise
