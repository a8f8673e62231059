"""What holds while a program of ours is traced, lowered and compiled, and at no other time.

NumPyro checks the arguments of distributions eagerly, also within a trace: two dozen small programs
for one covariance matrix. What we trace has been checked before, so the checks are off meanwhile.
"""

import contextlib
from collections.abc import Callable, Iterator

from numpyro.distributions import Distribution

from probml.jaxpr.compat import OFF
from probml.numerics import lapack
from probml.numerics.process import whole_loops
from probml.numerics.process.shared_changes import SharedChange, no_change, uncollected


def _without_checks() -> Callable[[], object]:
    if "validation" in OFF:
        return no_change
    own = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    return lambda: Distribution.set_default_validate_args(own)


unchecked = SharedChange(_without_checks)
"""NumPyro's checks of arguments are off within."""


@contextlib.contextmanager
def making() -> Iterator[None]:
    """Inside, programs are made: NumPyro does not check, large batches of matrices are taken apart
    (lapack.py), XLA's options may ask for whole loops (whole_loops.py), and
    no garbage is collected."""
    with lapack.guarded(), whole_loops.enabled(), unchecked(), (
            contextlib.nullcontext() if "collector" in OFF else uncollected()):
        yield
