"""One thread for small matrices.

OpenBLAS wakes its threads for matrices of 4 × 4 too, and whoever waits for them spins. XLA calls it
from threads of its own, so that on two busy cores 20 iterations of a mixture of 150 rows, with
32 starts, took 12 s instead of 0.4 s (4 s and 0.2 s of processor).
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator

import jax
from threadpoolctl import ThreadpoolController

from probml.jaxpr.compat import OFF
from probml.numerics.process.shared_changes import SharedChange

# columns of a matrix above which all threads are used: of 564 columns two save a thousandth of a
# second, and take 45 times as long as one where another process computes
LARGE = 1024


@functools.cache
def _libraries() -> ThreadpoolController:
    """Those that are loaded; jaxlib has loaded SciPy's."""
    return ThreadpoolController()


def _limit() -> Callable[[], object]:
    back = contextlib.ExitStack()
    back.enter_context(_libraries().limit(limits=1, user_api="blas"))
    return back.close


_LIMITED = SharedChange(_limit)


@contextlib.contextmanager
def one_thread(size: int) -> Iterator[None]:
    """Inside, the linear algebra of the process has one thread, unless matrices of `size` columns
    are large; after it as many as before.

    All that is computed inside must have ended there, since JAX computes while Python goes on.
    Several threads of Python may be inside at once. Cost: 0.1 ms.
    """
    if size > LARGE or "blas" in OFF:
        yield
        return
    with _LIMITED():
        yield


def computed(program: Callable, dynamic: Iterable, static: Iterable) -> object:
    """Run a program. If it was made for a plan that factorises matrices, linear algebra has one
    thread meanwhile, unless they are large, and the result is waited for; within a fit, which
    waits for what it computes, there is one already.

    Args:
        dynamic: the arguments of the program. static: what it was made for, a plan among it.
    """
    size = max((getattr(each, "largest_matrix", 0) for each in static), default=0)
    if not 0 < size <= LARGE or _LIMITED.active:
        return program(*dynamic)
    with one_thread(size):
        return jax.block_until_ready(program(*dynamic))
