"""How long XLA may work on a program: as long as what it will do is worth.

LLVM is two thirds of compiling a small program, and at its lowest level a third of that time is
left; what it then makes runs 1 to 4 times as long. For few numbers that is nothing: a pass over
Fisher's irises takes as long as its calls do. So a program is told by the numbers it is given,
before it is traced, and large work is compiled at the full level as ever. Both levels do the same
arithmetic, each operation once, and agree to rounding (tests/numerics/test_compile_effort.py).

XLA's CPU backend is told not to use its fusion emitters, but where a program runs for long.
Measured on an EM step (full covariance, 16 states): 5.1 → 2.4 s of compiling, 54 → 46 ms an
iteration.

What runs once or seldom on so little that NumPy is through with it sooner than XLA has compiled it
is not compiled at all (jaxpr/tapes).
"""

from collections.abc import Sequence
from typing import Any

import jax

from probml.jaxpr.compat import OFF

# seconds that a call may take by NumPy: of what is asked once a fit, to compile which takes longer;
# and of questions, which may be asked again and again. A program keeps to what it was: by its count
# the last digits of an answer would be others, of which a sampler makes other draws
ONCE, ASKED = 0.02, 0.002
LEVEL = "xla_backend_optimization_level"
# JAX 0.11 has no switch for them; an option that XLA does not know costs all of them
EMITTERS = ({} if jax.__version_info__ >= (0, 11) or "emitters" in OFF
            else {"xla_cpu_use_fusion_emitters": False})
FULL = {**EMITTERS, LEVEL: 3}  # XLA's own, whatever XLA_FLAGS say
QUICK = {**FULL, LEVEL: 0}
# entries of tables in a pass over its arguments up to which a program is small: the seconds that
# are lost by running it at the lowest level stay below what compiling it at the full one takes
SMALL = 2**17
# entries up to which the steps of a program are one piece of machine code (process/whole_loops.py):
# measured on a leapfrog, a sixth of the time at ten numbers, four fifths at 2¹³, no less at 2¹⁷;
# and bytes that XLA may count in such a loop: any
LITTLE, PIECE = 2**14, 2**62


def options(leaves: Sequence[Any], static: Sequence[Any], loops: int = 1,
            fed: int = 0) -> dict[str, Any]:
    """XLA's options for a program of the CPU.

    Args:
        leaves: what it is given.
        static: what it is made for. Whole numbers are sizes of what it makes; what a plan has
            `met` are the entries of tables for each number of a row.
        loops: how many times as often as an ascent it passes over what it is given.
        fed: numbers that come to it in a pass while it runs.
    """
    return QUICK if "effort" not in OFF and work(leaves, static, loops, fed) <= SMALL else FULL


def work(leaves: Sequence[Any], static: Sequence[Any], loops: int = 1, fed: int = 0) -> int:
    """Entries of tables, about, in a pass over its arguments and over what it is fed."""
    numbers = fed + sum(getattr(leaf, "size", 1) for leaf in leaves)
    made = sum(each for each in static if type(each) is int)
    entries = max((getattr(each, "table_entries", 1) for each in static), default=1)
    return loops * (numbers + made) * max(entries, 1)
