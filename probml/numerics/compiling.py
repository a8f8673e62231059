"""`jit`: jax.jit with an optimisation level that depends on the work, a cache on disk
(kept/programs.py), and loops over batches of matrices where jaxlib could deadlock (lapack.py). If
XLA rejects the options, they are omitted from then on.

LLVM takes two thirds of the compilation time of a small program. At its lowest level a third of
that time remains, and the program runs 1 to 4 times as long, which is negligible for small data:
there the overhead of calls dominates. The work is estimated from the arguments before a program is
traced; large work is compiled at the full level, of a program that is called rarely if its
operations, counted when it is traced, are worth it (kept/programs.py). Both levels do the same
arithmetic, each operation once, and agree to rounding (tests/numerics/test_compile_effort.py).

XLA's CPU backend uses its fusion emitters only for programs that run for long. Without them an EM
step (full covariance, 16 states) compiled in 2.4 s instead of 5.1 s and ran in 46 ms instead of
54 ms.

Programs that run rarely, on so few numbers that NumPy is faster than compilation, are not compiled
at all (jaxpr/tapes).
"""

import functools
import threading
import time
from collections.abc import Callable, Hashable, Sequence

import jax
import numpy as np
from jax.typing import ArrayLike

from probml.jaxpr.compat import OFF
from probml.numerics.kept import programs
from probml.numerics.kept.programs import ProgramCache
from probml.numerics.outside import callbacks
from probml.numerics.process.inline_calls import compiled_calls, inline_calls
from probml.numerics.process.making import LEVEL, WHOLE_LOOPS, making, whole_loops_known
from probml.numerics.process.threads import computed, refuse_fork, single_thread

# Seconds that a call may take in NumPy: of programs that run once a fit, and of queries, which may
# be repeated. A program never switches to XLA later, since that would change the last digits of
# results and so the draws of a sampler.
ONCE, ASKED = 0.02, 0.002
# JAX 0.11 does not have this option, and XLA rejects all options if it does not know one
EMITTERS = ({} if jax.__version_info__ >= (0, 11) or "emitters" in OFF
            else {"xla_cpu_use_fusion_emitters": False})
FULL = {**EMITTERS, LEVEL: 3}  # XLA's default level, whatever XLA_FLAGS is
QUICK = {**FULL, LEVEL: 0}
# Table entries per pass up to which a program is small: the lowest level then costs less running
# time than the full level costs compilation time.
MAX_SMALL_PROGRAM_ENTRIES = 2**17
# Table entries up to which loops are compiled whole (process/making.py), and the limit on
# bytes that XLA gets for them (none). A leapfrog step so takes a sixth of the time for ten numbers,
# four fifths for 2¹³, and the same time for 2¹⁷.
MAX_WHOLE_LOOP_ENTRIES, PIECE = 2**14, 2**62
# Draws over which a program loops that amount to one optimisation, about
DRAWS = 100


def options_for(leaves: Sequence[ArrayLike], static: Sequence[Hashable], loops: int = 1,
            streamed: int = 0, draws: int = 0) -> dict[str, bool | int]:
    """Returns XLA's options for a CPU program.

    Args:
        leaves: its array arguments.
        static: its static arguments. An integer counts as the size of an array that it creates; the
            `table_entries` of a plan are the entries of tables for each number of a row, its
            `largest_array` those of the largest array that a row makes.
        loops: number of passes over the arguments, relative to an optimisation.
        streamed: numbers that it receives from the host in each pass (callbacks.py).
        draws: length of the leading axis over which it loops; 0: it does not.
    """
    small = work(leaves, static, loops, streamed, draws) <= MAX_SMALL_PROGRAM_ENTRIES
    return QUICK if "effort" not in OFF and small else FULL


def work(leaves: Sequence[ArrayLike], static: Sequence[Hashable], loops: int = 1, streamed: int = 0,
         draws: int = 0) -> float:
    """Returns the approximate number of table entries that a program computes, in passes of an
    optimisation; Args as in `options_for`."""
    sizes = ((np.size(leaf), np.shape(leaf)[:1] == (draws,)) for leaf in leaves)
    numbers = streamed + sum(size // draws if draws and drawn else size for size, drawn in sizes)
    n_created = sum(each for each in static if type(each) is int)
    entries = max((getattr(each, "table_entries", 1) for each in static), default=1)
    passes = draws / DRAWS if draws else loops
    largest = max((getattr(each, "largest_array", 0) for each in static), default=0)
    return max(passes * (numbers + n_created) * max(entries, 1), largest)


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
                with compiled_calls():
                    return function(*args)

    return traced


def compiling_for(thread: int) -> float:
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
            so many seconds (ONCE, ASKED).
        steps: the program takes many short steps, as a sampler does; with little data its loops are
            compiled whole (process/making.py).
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
    cache = ProgramCache(prepared, keywords, seldom, on_host)

    def choose_options(args: tuple, leaves: list, fixed: list) -> dict | None:
        """Returns XLA's options for these arguments; None: none."""
        if long or _REJECTED_OPTIONS or not _on_cpu():
            return None
        streamed = callbacks.count_fed_numbers(args)
        if draws is not None:
            n_draws = len((jax.tree.leaves(args[draws]) or [[]])[0])
            options = options_for(leaves, fixed, streamed=streamed, draws=n_draws)
            return None if options is FULL else options
        options = FULL if often else options_for(leaves, fixed, loops, streamed)
        is_small = steps and work(leaves, fixed, streamed=streamed) <= MAX_WHOLE_LOOP_ENTRIES
        if is_small and whole_loops_known():
            options = {**options, WHOLE_LOOPS: PIECE}
        return options

    @functools.wraps(function)
    def call(*args: object):
        leaves = jax.tree.leaves([a for i, a in enumerate(args) if i not in cache.static])
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return function(*args)  # inside an enclosing program, which has its own options
        refuse_fork()
        fixed = [args[i] for i in cache.static if i < len(args)]
        options = choose_options(args, leaves, fixed)
        tier = None if options is None else tuple(options.items())
        if tier not in compiled:
            compiled[tier] = jax.jit(prepared, compiler_options=options, **keywords)
        programs.release_if_many()
        try:
            program = cache.find(args, options)
            if program is not None:
                dynamic = (a for i, a in enumerate(args) if i not in cache.static)
                return callbacks.raise_supply_failure(computed(program, dynamic, fixed))
            with making():
                return callbacks.raise_supply_failure(computed(compiled[tier], args, fixed))
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error) or options is None:
                raise
            _REJECTED_OPTIONS.append(str(error))
        finally:
            _COMPILING_SINCE.pop(threading.get_ident(), None)
        return call(*args)

    return call
