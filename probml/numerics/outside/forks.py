"""A process that was forked from one that had computed: JAX's threads are not in it, and whatever
it computes waits for them for ever."""

import os

from probml.errors import ModelError
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
