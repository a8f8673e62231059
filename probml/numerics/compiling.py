"""`jit`: jax.jit with an optimisation level that depends on the work (compile_effort.py), a cache
on disk (kept/programs.py), and loops over batches of matrices where jaxlib could deadlock
(lapack.py). If XLA rejects the options, they are omitted from then on.
"""

import functools
import threading
import time
from collections.abc import Callable

import jax

from probml.numerics import compile_effort
from probml.numerics.compile_effort import ASKED as ASKED
from probml.numerics.compile_effort import FULL, MAX_WHOLE_LOOP_ENTRIES, PIECE
from probml.numerics.compile_effort import ONCE as ONCE
from probml.numerics.kept import programs
from probml.numerics.kept.programs import ProgramCache
from probml.numerics.outside import feeding, processes
from probml.numerics.process import whole_loops
from probml.numerics.process.inline_calls import inline_calls
from probml.numerics.process.making import making
from probml.numerics.process.threads import computed, single_thread

_REJECTED_OPTIONS: list[str] = []  # XLA's errors about our options
_COMPILING_SINCE: dict[int, float] = {}  # thread → time.monotonic() at the start of a compilation


@functools.cache
def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _prepare(function: Callable) -> Callable:
    """Returns the function to be compiled: its trace records that this thread is compiling (until
    the call returns), runs in one thread at a time and inlines calls."""

    @functools.wraps(function)
    def traced(*args):
        _COMPILING_SINCE.setdefault(threading.get_ident(), time.monotonic())
        programs.count_program()
        with single_thread():
            try:
                with inline_calls():
                    return function(*args)
            except RecursionError:
                # code that computes concrete values within the trace needs compiled calls
                return function(*args)

    return traced


def underway(thread: int) -> float:
    """Returns for how many seconds a thread has been compiling; 0 if it is not."""
    since = _COMPILING_SINCE.get(thread)
    return 0.0 if since is None else time.monotonic() - since


def jit(function: Callable | None = None, long: bool = False, loops: int = 1, seldom: float = 0.0,
        steps: bool = False, often: bool = False, on_host: bool = False, draws: int | None = None,
        **keywords) -> Callable:
    """Returns the function compiled as by jax.jit; without one a decorator with these settings.
    Options are chosen at the first call, since importing the package must not initialise JAX's
    backend.

    Args:
        long: the program runs for long, so that XLA may take longer to compile it (with its fusion
            emitters, which vectorise exponentials and logarithms).
        loops: number of passes over the arguments, relative to an optimisation.
        seldom: the program is called rarely, and NumPy runs it instead of XLA if that takes at most
            so many seconds (ONCE, ASKED in compile_effort.py).
        steps: the program takes many short steps, as a sampler does; with little data its loops are
            compiled whole (process/whole_loops.py).
        often: the program is called so often that it is compiled at XLA's full level.
        on_host: results that NumPy computes, none of them random keys, stay NumPy arrays.
        draws: the argument over whose leading axis the program loops; where that is much work, XLA
            may take longer to compile it, as with `long`.
        keywords: of jax.jit.
    """
    if function is None:
        return functools.partial(jit, long=long, loops=loops, seldom=seldom, steps=steps,
                                 often=often, on_host=on_host, draws=draws, **keywords)
    compiled: dict[tuple | None, Callable] = {}  # by XLA's options; None: without
    prepared = _prepare(function)
    shelf = ProgramCache(prepared, keywords, seldom, on_host)

    def choose_options(args: tuple, leaves: list, fixed: list) -> dict | None:
        """Returns XLA's options for these arguments; None: none."""
        if long or _REJECTED_OPTIONS or not _on_cpu():
            return None
        fed = feeding.count_fed_numbers(args)
        if draws is not None:
            several = len((jax.tree.leaves(args[draws]) or [[]])[0])
            options = compile_effort.options(leaves, fixed, fed=fed, draws=several)
            return None if options is FULL else options
        options = FULL if often else compile_effort.options(leaves, fixed, loops, fed)
        little = steps and compile_effort.work(leaves, fixed, fed=fed) <= MAX_WHOLE_LOOP_ENTRIES
        if little and whole_loops.known():
            options = {**options, whole_loops.WHOLE: PIECE}
        return options

    @functools.wraps(function)
    def call(*args: object):
        leaves = jax.tree.leaves([a for i, a in enumerate(args) if i not in shelf.static])
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return function(*args)  # inside an enclosing program, which has its own options
        processes.check()
        fixed = [args[i] for i in shelf.static if i < len(args)]
        options = choose_options(args, leaves, fixed)
        tier = None if options is None else tuple(options.items())
        if tier not in compiled:
            compiled[tier] = jax.jit(prepared, compiler_options=options, **keywords)
        programs.release_if_many()
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
            _REJECTED_OPTIONS.append(str(error))
        finally:
            _COMPILING_SINCE.pop(threading.get_ident(), None)
        return call(*args)

    return call
