"""One loop for all that iterates: a device call at a time, so that progress shows, a long run gives
a sign of life, and Ctrl-C works in between."""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from probml.engines.engine import Status
from probml.errors import ModelError
from probml.numerics.compiling import underway
from probml.numerics.outside.checkpoint import Grown, Past, check_same_form
from probml.numerics.outside.watching import Step, watchers
from probml.numerics.precision import in_same_precision

if TYPE_CHECKING:
    from probml.numerics.outside.checkpoint import Journal

DELAY = 5.0  # seconds without a sign of life
SLOWER = 4.0  # times as long until the next plain line
COMPILING = 1.0  # seconds of compiling after which the line says so


class Progress:
    """A tqdm bar: at once if asked for, else after five seconds where somebody looks on (a terminal
    or a notebook); once a program compiles for longer than a second, it says so. Elsewhere, as in
    a file of what a job wrote, a plain line of the whole after five seconds, the next ever later.

    A thread of its own shows it, and moves its clock, also while a program compiles and no count
    comes. Work within other work of the same thread, as EM's within a sampler's fit, hides that
    one's bar while it shows its own; the five seconds are those of the whole.

    Args:
        total: counts to come; None where nothing is counted: a clock.
    """

    _open = threading.local()  # `innermost`: of this thread's work

    def __init__(self, title: str, total: int | None, show: bool):
        self.title, self.total, self.bar = title, total, None
        self._begun, self._lock, self._ended = time.monotonic(), threading.Lock(), threading.Event()
        self._at: tuple[int, str] = (0, "preparing" if total else "working")
        self._outer: Progress | None = getattr(self._open, "innermost", None)
        self._inner: Progress | None = None
        self._since: float = self._outer._since if self._outer else self._begun
        self._hidden, self._thread = False, threading.get_ident()
        self.about = self._outer.about if self._outer else ""  # the size of the work, in words
        self.stopped = threading.Event()  # set: turns under way are the last
        # of a fit that is kept while it runs, and what it calls the loop of this bar
        self.journal: Journal | None = self._outer.journal if self._outer else None
        self.section = self.journal.section(title) if self.journal else ""
        # how many rows are read a second
        self.reading: Callable[[], float] | None = self._outer.reading if self._outer else None
        self._watchers = watchers()
        self._step: Step | None = None  # that was not told yet
        self._watched = show or looked_on()
        if show:
            self._appear()

    def _appear(self) -> None:
        from tqdm.auto import tqdm

        if self._outer is not None:
            self._outer._hide()
        clock = {} if self.total else {"bar_format": "{desc}: {elapsed}{postfix}"}
        self.bar = tqdm(total=self.total, desc=self.title, unit="it", leave=bool(self.total),
                        **clock)
        self.bar.start_t -= time.monotonic() - self._begun
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
        count, said = self._at
        if self.reading is not None:
            said = f"{said}, {self.reading():,.0f} rows a second"
        if underway(self._thread) > COMPILING:
            said = f"compiling {self.title}{self.about and f' for {self.about}'}, once"
        self.bar.set_postfix_str(said, refresh=False)
        self.bar.update(count - self.bar.n)

    def _watch(self) -> None:
        said, wait = False, min(COMPILING, max(self._since + DELAY - time.monotonic(), 0.0))
        while not self._ended.wait(wait):
            left = self._since + DELAY - time.monotonic()
            wait = min(COMPILING, left if left > 0 else DELAY)
            with self._lock:
                if self._ended.is_set():
                    return
                if self._inner is not None:  # which shows itself
                    continue
                compiling = underway(self._thread) > COMPILING
                if self.bar is None:
                    if not compiling and left > 0:
                        continue
                    self._appear()
                elif said != compiling:
                    self._show()
                said = compiling
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
        """What is done, for how long, and how much longer it may take."""
        inner, now = self, time.monotonic()
        while inner._inner is not None:
            inner = inner._inner
        what = self.title + f" ({self.about})" * bool(self.about)
        what += f", {inner.title}" * (inner.title != self.title)
        if underway(self._thread) > COMPILING:
            return f"{what}: compiling, once; {now - self._since:.0f} s so far"
        done, said = inner._at
        if not (inner.total and done):
            return f"{what}: {said}; {now - self._since:.0f} s so far"
        left = (now - inner._begun) * (inner.total - done) / done
        return (f"{what}: {done} of at most {inner.total} iterations, {said}; "
                f"{now - self._since:.0f} s so far, at most about {left:.0f} s more")

    def advance(self, count: int, value: float) -> None:
        """So many counts more, of any of the threads that work."""
        with self._lock:
            self._at = (self._at[0] + count, f"objective {value:.6g}")
            if self.bar is not None:
                self._show()
        self._tell(self._at[0], value)

    @property
    def count(self) -> int:
        """How many counts are done."""
        return self._at[0]

    def passed(self, rows: int) -> None:
        """So many rows are done in all, of work whose end nobody knows."""
        with self._lock:
            speed = rows / max(time.monotonic() - self._begun, 1e-6)
            self._at = (0, f"{rows:,} rows, {speed:,.0f} a second")
            if self.bar is not None:
                self._show()
        self._tell(rows, None, speed)

    def _tell(self, done: int, value: float | None, speed: float | None = None) -> None:
        """Those who watch."""
        if not self._watchers:
            return
        took = time.monotonic() - self._begun
        left = took * (self.total - done) / done if self.total and done else None
        speed = self.reading() if speed is None and self.reading is not None else speed
        self._step = Step(self.title, done, self.total, value, took, left, speed)
        for watcher in self._watchers:
            watcher.hear(self._step, False)

    def __exit__(self, failed, *_):
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


def looked_on() -> bool:
    """Whether somebody sees what is written to stderr now: a terminal or a notebook, no pipe, file
    or test."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return (shell is not None and "IPKernelApp" in shell.config) or (
        sys.stderr is not None and sys.stderr.isatty()
    )


def reading(speed: Callable[[], float]) -> None:
    """How many rows come a second, for bars of this thread's present work, and of work within it.
    """
    bar = getattr(Progress._open, "innermost", None)
    if bar is not None:
        bar.reading = speed


class Turn(NamedTuple):
    """What one device call did."""

    count: int  # iterations
    value: float  # the objective now, to be shown
    status: Status = Status.RUNNING  # how the run ended with it, if it did


class Loop:
    """What a loop holds between its turns, for a fit that is kept while it runs.

    Attributes:
        kept: names of attributes that are kept, pytrees of arrays. lists: to which turns add.

    Args:
        state: of the loop. lists: name → what a turn adds to the list of this name.
    """

    kept: tuple[str, ...] = ("state",)

    def __init__(self, state: Any = None, **lists: Grown):
        self.state, self.grown = state, lists
        self.lists: dict[str, list] = {name: [] for name in lists}

    def read(self) -> dict[str, Any]:
        """All that is kept, in containers of arrays that nobody writes to."""
        trees = {name: jax.tree.leaves(getattr(self, name)) for name in self.kept}
        return trees | {name: list(own) for name, own in self.lists.items()}

    def write(self, held: dict[str, Any]) -> None:
        """Takes back what `read` gave."""
        for name in self.kept:
            form = jax.tree.structure(getattr(self, name))
            setattr(self, name, jax.tree.unflatten(form, held[name]))
        for name, own in self.lists.items():
            own[:] = held[name]


def iterate(bar: Progress, limit: int, turn: Callable[[int], Turn], lanes: int = 1,
            held: Loop | None = None, lane: str = "") -> Status:
    """Turns until one says how the run ended, until `limit` iterations are made, or until the bar
    is stopped.

    Args:
        turn: iterations made so far → what one more device call did. One that makes none counts
            as one.
        lanes: counts of the bar that an iteration is worth, as with chains advanced together.
        held: what is kept at a checkpoint, from which the loop goes on; None: it begins anew.
        lane: tells apart loops that have one bar.

    Returns:
        how the run ended: MAX_ITERATIONS where no turn said.
    """
    done, journal = 0, bar.journal if held is not None else None
    key = f"{bar.section}/{lane}"
    past = journal.past(key) if journal else None
    if past is not None and held is not None:
        try:
            done, status = past.counted(limit), Status(past.status)
            check_same_form(held.read(), past.held, "the state")
            for name, added in held.grown.items():
                added.check(past.held[name], done, f"the state, '{name}'")
            held.write(past.held)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ModelError(f"the checkpoint holds another state of '{bar.section}' ({error}): "
                             f"another version wrote it, or it is broken. Delete it") from None
        bar.advance(done * lanes, past.value)
        if status is not Status.RUNNING:
            return status
    while done < limit and not bar.stopped.is_set():
        count, value, status = turn(done)
        done += max(count, 1)
        if journal and held is not None:
            journal.note(key, Past(done, int(status), value, held.read()))
        bar.advance(count * lanes, value)
        if status is not Status.RUNNING:
            return status
    return Status.MAX_ITERATIONS


def in_threads(bar: Progress, work: Callable[[Any], Any], parts: Sequence,
               workers: int) -> list[Any]:
    """work(part) of every part, so many at once. Where one raises, and at Ctrl-C, those under way
    end after their present turn and the others do not begin. All are in this thread's precision."""
    own = in_same_precision(work)
    with ThreadPoolExecutor(workers) as pool:
        tasks = [pool.submit(own, part) for part in parts]
        try:
            return [task.result() for task in tasks]
        except BaseException:
            bar.stopped.set()
            for task in tasks:
                task.cancel()
            raise
