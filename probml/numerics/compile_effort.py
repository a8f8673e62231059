"""XLA's optimisation level for a program, chosen by the amount of work that the program does.

LLVM takes two thirds of the compilation time of a small program. At its lowest level a third of
that time remains, and the program runs 1 to 4 times as long, which is negligible for small data:
there the overhead of calls dominates. The work is estimated from the arguments before a program is
traced; large work is compiled at the full level. Both levels do the same arithmetic, each operation
once, and agree to rounding (tests/numerics/test_compile_effort.py).

XLA's CPU backend uses its fusion emitters only for programs that run for long. Without them an EM
step (full covariance, 16 states) compiled in 2.4 s instead of 5.1 s and ran in 46 ms instead of
54 ms.

Programs that run rarely, on so few numbers that NumPy is faster than compilation, are not compiled
at all (jaxpr/tapes).
"""

from collections.abc import Hashable, Sequence

import jax
import numpy as np
from jax.typing import ArrayLike

from probml.jaxpr.compat import OFF

# Seconds that a call may take in NumPy: of programs that run once a fit, and of queries, which may
# be repeated. A program never switches to XLA later, since that would change the last digits of
# results and so the draws of a sampler.
ONCE, ASKED = 0.02, 0.002
LEVEL = "xla_backend_optimization_level"
# JAX 0.11 does not have this option, and XLA rejects all options if it does not know one
EMITTERS = ({} if jax.__version_info__ >= (0, 11) or "emitters" in OFF
            else {"xla_cpu_use_fusion_emitters": False})
FULL = {**EMITTERS, LEVEL: 3}  # XLA's default level, whatever XLA_FLAGS is
QUICK = {**FULL, LEVEL: 0}
# Table entries per pass up to which a program is small: the lowest level then costs less running
# time than the full level costs compilation time.
MAX_SMALL_PROGRAM_ENTRIES = 2**17
# Table entries up to which loops are compiled whole (process/whole_loops.py), and the limit on
# bytes that XLA gets for them (none). A leapfrog step so takes a sixth of the time for ten numbers,
# four fifths for 2¹³, and the same time for 2¹⁷.
MAX_WHOLE_LOOP_ENTRIES, PIECE = 2**14, 2**62


# Draws over which a program loops that amount to one optimisation, about
DRAWS = 100


def options(leaves: Sequence[ArrayLike], static: Sequence[Hashable], loops: int = 1,
            fed: int = 0, draws: int = 0) -> dict[str, bool | int]:
    """Returns XLA's options for a CPU program.

    Args:
        leaves: its array arguments.
        static: its static arguments. An integer counts as the size of an array that it creates; the
            `table_entries` of a plan are the entries of tables for each number of a row, its
            `largest_array` those of the largest array that a row makes.
        loops: number of passes over the arguments, relative to an optimisation.
        fed: numbers that it receives from the host in each pass (feeding.py).
        draws: length of the leading axis over which it loops; 0: it does not.
    """
    small = work(leaves, static, loops, fed, draws) <= MAX_SMALL_PROGRAM_ENTRIES
    return QUICK if "effort" not in OFF and small else FULL


def work(leaves: Sequence[ArrayLike], static: Sequence[Hashable], loops: int = 1,
         fed: int = 0,
         draws: int = 0) -> float:
    """Returns the approximate number of table entries that a program computes, in passes of an
    optimisation; Args as in `options`."""
    sizes = ((np.size(leaf), np.shape(leaf)[:1] == (draws,)) for leaf in leaves)
    numbers = fed + sum(size // draws if draws and drawn else size for size, drawn in sizes)
    made = sum(each for each in static if type(each) is int)
    entries = max((getattr(each, "table_entries", 1) for each in static), default=1)
    passes = draws / DRAWS if draws else loops
    largest = max((getattr(each, "largest_array", 0) for each in static), default=0)
    return max(passes * (numbers + made) * max(entries, 1), largest)
