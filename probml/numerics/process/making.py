"""The process-wide changes during tracing, lowering and compilation of our programs.

NumPyro checks the arguments of distributions eagerly, also within a trace: two dozen small programs
for one covariance matrix. Arguments have been checked before, so these checks are off meanwhile.
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
    """A context for tracing and compilation: without NumPyro's checks, with large batches of
    matrices split (lapack.py), with XLA's option for whole loops (whole_loops.py), and without
    garbage collection."""
    with lapack.guarded(), whole_loops.enabled(), unchecked(), (
            contextlib.nullcontext() if "collector" in OFF else uncollected()):
        yield
