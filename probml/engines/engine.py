"""What iterative engines share: the outcome of a run, its status, settings checks and a progress
bar."""

import enum
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from probml.errors import ModelError


class Status(enum.IntEnum):
    """How a run ended; `message` says it in words."""

    RUNNING = 0
    CONVERGED = 1
    MAX_ITERATIONS = 2
    FELL = 3
    COLLAPSED = 4
    EXACT = 5
    KNOWN = 6
    STALLED = 7
    SAMPLED = 8
    DOUBTFUL = 9
    APPROXIMATED = 10
    RUNAWAY = 11
    EARLY = 12
    WANDERED = 13
    LEFT = 14

    @property
    def message(self) -> str:
        return {
            Status.RUNNING: "still running",
            Status.CONVERGED: "converged: the objective gained less than the tolerance",
            Status.MAX_ITERATIONS: "stopped at the iteration limit before it converged: raise "
            "max_iterations or steps, or the tolerance",
            Status.FELL: "stopped: the objective fell, which it must not; the best point is kept, "
            "please report the model",
            Status.COLLAPSED: "collapsed: a component's scale went to zero or the objective was "
            "not finite",
            Status.STALLED: "stopped: no ascent was found, but the gradient is not zero; the "
            "objective may be unbounded, badly scaled, or "
            "have a kink there",
            Status.EXACT: "exact",
            Status.RUNAWAY: "stopped: there is no maximum, parameters run away",
            Status.EARLY: "stopped early, as asked: the held-out rows had gained nothing for a "
            "while; their best point is kept",
            Status.WANDERED: "stopped at the step limit: the objective no longer rises, but the "
            "steps still wander about; more of "
            "them gain nothing: lower the learning rate, let it decay "
            "(optax.cosine_decay_schedule), or take MAP() without an optimizer",
            Status.LEFT: "left: other starts were far ahead",
            Status.SAMPLED: "sampled",
            Status.DOUBTFUL: "sampled, but not to be trusted yet",
            Status.APPROXIMATED: "approximated by a distribution that need not be the posterior",
            Status.KNOWN: "parameters were given, nothing was fitted",
        }[self]


class Outcome(NamedTuple):
    """What an engine found."""

    params: dict[str, Any]
    history: np.ndarray
    status: Status
    iterations: int
    notes: tuple[str, ...] = ()
    posterior: Any = None
    log_evidence: float | None = None
    belief: Any = None  # belief.Draws or belief.Normal
    # mean log evidence of rows that were not learnt from, at every entry of history
    held_out: np.ndarray | None = None
    lost: int = 0  # restarts that collapsed, beside the one that is kept
    short: bool = False  # of digits, see factors.short
    model: Any = None  # that was fitted, where the engine chose settings of it


def check_settings(engine: Any, positive: Sequence[str] = (),
                   nonnegative: Sequence[str] = ()) -> None:
    """Refuse settings out of range, naming engine, setting, expected and got."""
    for name in (*positive, *nonnegative):
        value = getattr(engine, name)
        if value is None:
            continue
        whole = name != "tolerance"
        low = 1 if name in positive else 0
        if (isinstance(value, bool) or not isinstance(value, int | float | np.number)
            or (whole and value != int(value)) or not value >= low):
            kind = "a whole number" if whole else "a number"
            raise ModelError(f"{type(engine).__name__}({name}={value!r}): expected {kind} of at "
                             f"least {low}")


DELAY = 10.0  # seconds without a sign of life


class Progress:
    """A tqdm bar: at once if asked for, else after ten seconds where somebody looks on (a terminal
    or a notebook).

    A thread of its own shows it, and moves its clock, also while a program compiles and no count
    comes. Work within other work of the same thread, as EM's within a sampler's fit, hides that
    one's bar while it shows its own; the ten seconds are those of the whole.

    Args:
        total: counts to come; None where nothing is counted: a clock.
    """

    _open = threading.local()  # `innermost`: of this thread's work

    def __init__(self, title: str, total: int | None, show: bool):
        self.title, self.total, self.bar = title, total, None
        self._begun, self._lock, self._ended = time.time(), threading.Lock(), threading.Event()
        self._at: tuple[int, str] = (0, "preparing" if total else "working")
        self._outer: Progress | None = getattr(self._open, "innermost", None)
        self._inner: Progress | None = None
        self._since: float = self._outer._since if self._outer else self._begun
        self._hidden = False
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
        self.bar.start_t = self._begun
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
        self.bar.set_postfix_str(said, refresh=False)
        self.bar.update(count - self.bar.n)

    def _watch(self) -> None:
        wait = max(self._since + DELAY - time.time(), 0.0)
        while not self._ended.wait(wait):
            wait = DELAY
            with self._lock:
                if self._ended.is_set():
                    return
                if self._inner is not None:  # which shows itself
                    continue
                if self.bar is None:
                    self._appear()
                self.bar.refresh()

    def __enter__(self):
        self._open.innermost = self
        if self._outer is not None:
            self._outer._inner = self
        if self._watched:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def update(self, count: int, value: float) -> None:
        with self._lock:
            self._at = (count, f"objective {value:.6g}")
            if self.bar is not None:
                self._show()

    def __exit__(self, *_):
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


def looked_on() -> bool:
    """Whether somebody sees what is written to stderr now: a terminal or a notebook, no pipe, file
    or test."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return (shell is not None and "IPKernelApp" in shell.config) or (
        sys.stderr is not None and sys.stderr.isatty()
    )
