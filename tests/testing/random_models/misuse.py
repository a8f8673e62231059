"""Bad input, by the thousand: each argument of a call is replaced by what it should not be, and the
answer must be a result without NaN, or an error in words of our own.

    faults = list(misuse.misused("fit", model.fit, {"data": data, "seed": 0}))
"""

import contextlib
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from probml.errors import DataError, ModelError, Refusal

HANG = 60  # seconds of processor
WAITS = 600  # seconds by the clock, of a machine that does other things
UNKNOWN = "NaN returned without a warning"
OURS = (ModelError, DataError, Refusal)
# of what an estimator hands on to scikit-learn's checks, whose words users know
THEIRS = ("sklearn.utils.validation", "sklearn.utils._param_validation", "sklearn.utils.multiclass",
          "sklearn.utils.class_weight", "sklearn.base", "sklearn.utils._array_api",
          "sklearn.utils._tags", "sklearn.metrics")


class Fault(NamedTuple):
    """An answer that is none: to which call, which argument, what was given, and what came."""

    call: str
    argument: str
    given: str
    what: str

    def __str__(self) -> str:
        return f"{self.call}({self.argument}={self.given}): {self.what}"


def odd() -> dict[str, Any]:
    """Values that an argument seldom should have, by what they are called here."""
    return {
        "None": None, "True": True, "-1": -1, "0": 0, "1.5": 1.5, "nan": np.nan, "inf": np.inf,
        "10**18": 10**18, "1e300": 1e300, "'text'": "text", "''": "", "b'bytes'": b"bytes",
        "[]": [], "[[]]": [[]], "{}": {}, "()": (), "{1: 2}": {1: 2}, "object()": object(),
        "int": int, "a function": len, "a set": {1, 2}, "a generator": (i for i in range(3)),
        "1j": 1j, "[None]": [None], "['a', 1]": ["a", 1], "ragged": [[1.0], [1.0, 2.0]],
        "zeros(0)": np.zeros(0), "zeros((0, 2))": np.zeros((0, 2)),
        "zeros((2,2,2,2))": np.zeros((2, 2, 2, 2)), "a NaN array": np.full(6, np.nan),
        "an inf array": np.full(6, np.inf), "complex array": np.array([1j, 2.0]),
        "object array": np.array([object()], object), "dates": np.array(["2020-01-01"], "M8[D]"),
        "huge array": np.full((6, 2), 1e300), "negative array": np.full((6, 2), -1.0),
        "DataFrame()": pd.DataFrame(), "Series of text": pd.Series(["a", "b"]),
        "jax array": jax.numpy.arange(3.0), "0-d": np.array(2.0), "a nested dict": {"x": {"y": 1}},
    }  # fmt: skip


def misused(name: str, call: Callable[..., Any], arguments: Mapping[str, Any],
            only: tuple[str, ...] = (), share: float = 1.0, seed: int = 0) -> Iterator[Fault]:
    """The faults of a call, each argument in turn replaced by each odd value.

    Args:
        name: of the call, for the reports.
        arguments: good values; of `only` these are replaced, by default all.
        share: of all pairs of an argument and a value, which are tried, by chance.
        seed: of that chance.
    """
    random, usual = np.random.default_rng([seed, *name.encode()]), False
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        usual = _nan(call(**arguments))  # as in a table whose rows have cells of their own
    for argument in only or arguments:
        for given, value in odd().items():
            if random.random() >= share:
                continue
            what = find_fault(lambda args: call(**args), {**arguments, argument: value})
            if what is not None and not (usual and what == UNKNOWN):
                yield Fault(name, argument, given, what)


def find_fault(call: Callable[[Any], Any], value: Any) -> str | None:
    """What is wrong with how a call answers; None: nothing."""
    before = _streams()
    found = _fault_of_call(call, value)
    closed = [name for name in before if name not in _streams()]
    return f"the call has closed {closed[0]}" if closed else found


def _streams() -> list[str]:
    """Which of the streams that every process has are open: a number that is taken for the name of
    a file names one, and whoever reads that file closes it."""
    found = []
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        with contextlib.suppress(OSError):
            os.fstat(number)
            found.append(name)
    return found


def _fault_of_call(call: Callable[[Any], Any], value: Any) -> str | None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with _limited(HANG):
                out = call(value)
        except OURS as error:
            text = str(error)
            if len(text) > 3000:
                return f"{len(text)} characters of words"
            return None if len(text) > 20 else f"too few words: {text!r}"
        except _Hung:
            return f"no answer within {HANG} s"
        except (TypeError, ValueError, OSError, AttributeError) as error:
            if _handed_on(error):
                return None
            return f"{type(error).__name__}: {str(error)[:160]} at {_place(error)}"
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:160]} at {_place(error)}"
    unseen = any(None in part for part in value.values() if isinstance(part, list)
                 ) if isinstance(value, dict) else False
    if _nan(out) and not said and not unseen and not _nan(value):
        return UNKNOWN
    return None


class _Hung(BaseException):
    pass


@contextlib.contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Interrupts what takes longer, where there are signals and this is the main thread."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_):
        raise _Hung

    before = [signal.signal(name, stop) for name in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(WAITS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for name, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(name, handler)


def _handed_on(error: Exception) -> bool:
    """Whether an error is Python's of a wrong signature, or scikit-learn's of a wrong table."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, OSError):
        return error.filename is not None  # the file is named, and why
    last = frames[-1].filename.replace("\\", "/")
    if any(place.replace(".", "/") in last for place in THEIRS):
        return True
    said = str(error)
    return isinstance(error, TypeError) and ("argument" in said and len(frames) <= 3
                                             or "missing 1 required positional argument" in said)


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/probml/" in f.filename or "/models/" in f.filename
           if "/testing/" not in f.filename]
    at = own[-1] if own else frames[-1]
    return f"{'/'.join(at.filename.split('/')[-2:])}:{at.lineno}"


def _nan(value: Any) -> bool:
    """Whether a NaN stands in an answer."""
    try:
        leaves = jax.tree.leaves(getattr(value, "point", value))
        return any(np.asarray(leaf).dtype.kind == "f" and bool(np.isnan(np.asarray(leaf)).any())
                   for leaf in leaves)
    except Exception:
        return False
