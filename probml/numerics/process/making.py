"""What holds while a program of ours is traced, lowered and compiled, and at no other time.

NumPyro checks the arguments of distributions eagerly, also within a trace: two dozen small programs
for one covariance matrix. What we trace has been checked before, so the checks are off meanwhile.
A trace also makes hundreds of thousands of small objects that live until it ends: Python's garbage
collector would look at every object that there is, again and again, and find next to nothing.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator

from numpyro.distributions import Distribution

from probml.jaxpr.compat import OFF
from probml.numerics import lapack
from probml.numerics.process import whole_loops
from probml.numerics.process.shared_changes import SharedChange, no_change


def _without_checks() -> Callable[[], object]:
    if "validation" in OFF:
        return no_change
    own = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    return lambda: Distribution.set_default_validate_args(own)


unchecked = SharedChange(_without_checks)
"""NumPyro's checks of arguments are off within."""


def _without_collector() -> Callable[[], object]:
    if "collector" in OFF or not gc.isenabled():
        return no_change
    gc.disable()
    return gc.enable


uncollected = SharedChange(_without_collector)
"""Python's garbage collector is off within."""


@contextlib.contextmanager
def making() -> Iterator[None]:
    """Inside, programs are made: NumPyro does not check, large batches of matrices are taken apart
    (lapack.py), XLA's options may ask for whole loops (whole_loops.py), and
    no garbage is collected."""
    with lapack.guarded(), whole_loops.enabled(), unchecked(), uncollected():
        yield
