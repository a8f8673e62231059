"""Communication of the processes of one job, joined by `jax.distributed.initialize`."""

import contextlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from probml.errors import DataError

# parts of JAX's messages if another process does not answer
LOST = ("Gloo", "NCCL", "peer", "UNAVAILABLE", "DEADLINE_EXCEEDED", "coordination")


@contextlib.contextmanager
def joint() -> Iterator[None]:
    """A context for collective operations, in which the loss of a process is reported as such.

    Raises:
        DataError: another process does not answer.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not any(word in str(error) for word in LOST):
            raise
        message = str(error).splitlines()[0]
        raise DataError(f"another process of this fit, which reads a part of the rows, stopped "
                        f"({message}), so the fit stopped. Start all processes again. With "
                        f"fit(..., checkpoint='file') a fit continues from its last checkpoint; "
                        f"without it, from the beginning") from None


def gather_or_raise(function: Callable[[], Any]) -> list[Any]:
    """The results of a function in every process, in their order. All processes call it.

    Raises:
        DataError: it raised in some process; raised in all, so that none waits.
    """
    try:
        outcome: tuple[bool, Any] = (True, function())
    except Exception as error:
        outcome = (False, f"{error}")
        own_error: Exception | None = error
    else:
        own_error = None
    outcomes = gathered(outcome)
    if own_error is not None:
        raise own_error
    for number, (succeeded, value) in enumerate(outcomes):
        if not succeeded:
            raise DataError(f"process {number}: {value}")
    return [value for _, value in outcomes]


def gathered(value: object) -> list[Any]:
    """The picklable values of every process, in the order of processes."""
    from jax.experimental import multihost_utils

    payload = np.frombuffer(pickle.dumps(value), np.uint8)
    sizes = np.asarray(multihost_utils.process_allgather(np.asarray(len(payload), np.int32)))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: len(payload)] = payload
    payloads = np.asarray(multihost_utils.process_allgather(padded))
    payloads = payloads.reshape(jax.process_count(), -1)
    return [pickle.loads(row[:size].tobytes())
            for row, size in zip(payloads, sizes.reshape(-1), strict=True)]
