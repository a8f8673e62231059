"""What the processes of one job, joined by `jax.distributed.initialize`, say to each other.

A process that was forked from one that had computed: JAX's threads are not in it, and whatever
it computes waits for them for ever.
"""

import contextlib
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from probml.errors import DataError, ModelError
from probml.jaxpr.compat import has_started

_FORKED: list[int] = []  # the process, where it is one


_BEFORE = [False]  # whether they ran when the fork came: its child must not ask, it would wait


def _mark() -> None:
    if _BEFORE[0]:
        _FORKED.append(os.getpid())


def _ask() -> None:
    _BEFORE[0] = has_started()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_ask, after_in_child=_mark)


def check() -> None:
    """Refuse to compute where no answer would ever come.

    Raises:
        ModelError: this process was forked after JAX had begun.
    """
    if _FORKED:
        raise ModelError(
            f"this process ({_FORKED[-1]}) was forked from one in which JAX was already running; a "
            f"fork does not copy its threads, so it would hang. Start processes by "
            f"multiprocessing.get_context('spawn') (or 'forkserver'), with joblib by its default, "
            f"loky; or fork before the first fit"
        )


# of what JAX says where another process does not answer
LOST = ("Gloo", "NCCL", "peer", "UNAVAILABLE", "DEADLINE_EXCEEDED", "coordination")


@contextlib.contextmanager
def joint() -> Iterator[None]:
    """What all processes do together: one that is lost meanwhile is told of as such.

    Raises:
        DataError: another process does not answer.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not any(word in str(error) for word in LOST):
            raise
        said = str(error).splitlines()[0]
        raise DataError(f"another process, which holds rows of this fit, stopped ({said}): the "
                        f"progress since the last checkpoint is lost. Start all processes again; "
                        f"with checkpoint= they continue") from None


def agreed(function: Callable[[], Any]) -> list[Any]:
    """What a function finds in every process, in their order. All processes call it.

    Raises:
        DataError: it raised in some process; all hear of the first, and none waits for it.
    """
    try:
        said: tuple[bool, Any] = (True, function())
    except Exception as error:
        said = (False, f"{error}")
        mine: Exception | None = error
    else:
        mine = None
    found = gathered(said)
    if mine is not None:
        raise mine
    for number, (well, value) in enumerate(found):
        if not well:
            raise DataError(f"process {number}: {value}")
    return [value for _, value in found]


def gathered(value: object) -> list[Any]:
    """A value of every process, which pickle takes, in the order of processes."""
    from jax.experimental import multihost_utils

    own = np.frombuffer(pickle.dumps(value), np.uint8)
    sizes = np.asarray(multihost_utils.process_allgather(np.asarray(len(own), np.int32)))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: len(own)] = own
    every = np.asarray(multihost_utils.process_allgather(padded))
    every = every.reshape(jax.process_count(), -1)
    return [pickle.loads(row[:size].tobytes())
            for row, size in zip(every, sizes.reshape(-1), strict=True)]
