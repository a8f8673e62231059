"""One way to jit: as `jax.jit`, with a limit on how long XLA works on a program of the CPU
(compile_effort.py), and with batches of matrices taken apart where jaxlib could block (lapack.py).
XLA's options may leave it; so they are left out from the first program on that refuses them.
"""

import functools
import threading
import time
from collections.abc import Callable

import jax

from probml.numerics import compile_effort
from probml.numerics.compile_effort import FULL, LITTLE, PIECE
from probml.numerics.kept import holding
from probml.numerics.kept.programs import Shelf
from probml.numerics.outside import feeding, forks
from probml.numerics.process import whole_loops
from probml.numerics.process.inline_calls import inline_calls
from probml.numerics.process.making import making
from probml.numerics.process.single_thread import single_thread
from probml.numerics.process.threads import computed

_REFUSED: list[str] = []  # what XLA said of the options
_SINCE: dict[int, float] = {}  # thread → when it began to compile


@functools.cache
def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _marked(function: Callable) -> Callable:
    """The same function, of which a trace marks its thread: it is compiling from then on, until the
    call returns, which does not wait for results."""

    @functools.wraps(function)
    def traced(*args: object):
        _SINCE.setdefault(threading.get_ident(), time.monotonic())
        holding.made()
        with single_thread():
            try:
                with inline_calls():
                    return function(*args)
            except RecursionError:
                # somebody's code computes numbers within the trace, for which calls are needed
                return function(*args)

    return traced


def underway(thread: int) -> float:
    """For how many seconds a thread has been compiling; 0 where it is not."""
    since = _SINCE.get(thread)
    return 0.0 if since is None else time.monotonic() - since


def jit(function: Callable, long: bool = False, loops: int = 1, seldom: float = 0.0,
        steps: bool = False, often: bool = False, on_host: bool = False,
        **keywords: object) -> Callable:
    """jax.jit; decided at the first call, since asking for the backend at import would start it.

    Args:
        seldom: the program is called once or a few times, so that NumPy runs it in place of XLA
            where that takes it no more than so many seconds (ONCE, ASKED in compile_effort.py).
        on_host: results that NumPy computes, none of them random keys, stay NumPy's arrays.
        long: the program will run for long, so that XLA may take longer to compile it (with its
            fusion emitters, whose exponentials and logarithms are vectors).
        loops: how many times as often as an ascent it passes over what it is given.
        steps: it takes many short steps one after the other, as a sampler does: given little, it is
            compiled as one piece (process/whole_loops.py).
        often: it will be called so often that it is compiled at XLA's full level, though small.
    """
    compiled: dict[tuple | None, Callable] = {}  # by XLA's options; None: without
    seen = _marked(function)
    shelf = Shelf(seen, keywords, seldom, on_host)

    def chosen(args: tuple, leaves: list, fixed: list) -> dict | None:
        """XLA's options for these arguments: the same for all of their shapes."""
        if long or _REFUSED or not _on_cpu():
            return None
        fed = feeding.count_fed_numbers(args)
        options = FULL if often else compile_effort.options(leaves, fixed, loops, fed)
        little = steps and compile_effort.work(leaves, fixed, fed=fed) <= LITTLE
        if little and whole_loops.known():
            options = {**options, whole_loops.WHOLE: PIECE}
        return options

    @functools.wraps(function)
    def call(*args: object):
        leaves = jax.tree.leaves([a for i, a in enumerate(args) if i not in shelf.static])
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return function(*args)  # part of somebody's program, whose options are theirs
        forks.check()
        fixed = [args[i] for i in shelf.static if i < len(args)]
        options = chosen(args, leaves, fixed)
        tier = None if options is None else tuple(options.items())
        if tier not in compiled:
            compiled[tier] = jax.jit(seen, compiler_options=options, **keywords)
        holding.let_go()
        try:
            program = shelf.find(args, options)
            if program is not None:
                dynamic = (a for i, a in enumerate(args) if i not in shelf.static)
                return feeding.raise_supply_failure(computed(program, dynamic, fixed))
            with making():
                return feeding.raise_supply_failure(computed(compiled[tier], args, fixed))
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error) or options is None:
                raise
            _REFUSED.append(str(error))
        finally:
            _SINCE.pop(threading.get_ident(), None)
        return call(*args)

    return call
