"""One way to jit: as `jax.jit`, with XLA's CPU backend told not to use its fusion emitters where it
knows that option, and with batches of matrices taken apart where jaxlib could block (lapack.py).

Measured on an EM step (full covariance, 16 states): 5.1 → 2.4 s of compiling, 54 → 46 ms an
iteration. The option may leave XLA; so it is left out from the first program on that refuses it.
Never beside `xla_backend_optimization_level` 0: small programs then compile a third faster, and
sums over 50 numbers leave some out (jaxlib 0.10.2); level 1 gains a tenth.

NumPyro checks the arguments of distributions eagerly, also within a trace: two dozen small programs
for one covariance matrix. What we trace has been checked before, so the checks are off meanwhile.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator

import jax
from numpyro.distributions import Distribution

from probml.numerics import lapack
from probml.numerics.kept import disk, holding
from probml.numerics.kept.programs import Shelf
from probml.numerics.outside import feeding

OPTIONS = {"xla_cpu_use_fusion_emitters": False}


_REFUSED: list[str] = []  # what XLA said of the options
_CHECKS = threading.RLock()
_SINCE: dict[int, float] = {}  # thread → when it began to compile
_OFF: list[bool] = []  # NumPyro's own setting, once for each of us that turned it off


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """NumPyro's checks of arguments are off within; the last of several threads to leave turns them
    on again."""
    with _CHECKS:
        _OFF.append(Distribution._validate_args if not _OFF else _OFF[0])
        Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        with _CHECKS:
            own = _OFF.pop()
            if not _OFF:
                Distribution.set_default_validate_args(own)


@functools.cache
def _options() -> dict | None:
    if jax.default_backend() != "cpu":
        return None
    return OPTIONS


def _marked(function: Callable) -> Callable:
    """The same function, of which a trace marks its thread: it is compiling from then on, until the
    call returns, which does not wait for results."""

    @functools.wraps(function)
    def traced(*args):
        _SINCE.setdefault(threading.get_ident(), time.time())
        holding.made()
        return function(*args)

    return traced


def underway(thread: int) -> float:
    """For how many seconds a thread has been compiling; 0 where it is not."""
    since = _SINCE.get(thread)
    return 0.0 if since is None else time.time() - since


def jit(function: Callable, long: bool = False, **keywords) -> Callable:
    """jax.jit; decided at the first call, since asking for the backend at import would start it.

    Args:
        long: the program will run for long, so that XLA may take longer to compile it (with its
            fusion emitters, whose exponentials and logarithms are vectors).
    """
    compiled: list[Callable] = []
    options: list[dict | None] = []
    seen = _marked(function)
    shelf = Shelf(seen, keywords)

    @functools.wraps(function)
    def call(*args):
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
            return function(*args)  # part of somebody's program, whose options are theirs
        if not compiled:
            options.append(None if long or _REFUSED else _options())
            compiled.append(jax.jit(seen, compiler_options=options[-1], **keywords))
        holding.let_go()
        try:
            with lapack.guarded(), unchecked():
                program = shelf.find(args, options[-1])
                if program is not None:
                    dynamic = (a for i, a in enumerate(args) if i not in shelf.static)
                    return feeding.sound(program(*dynamic))
                with disk.kept():
                    return feeding.sound(compiled[0](*args))
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error) or options[-1] is None:
                raise
            _REFUSED.append(str(error))
        finally:
            _SINCE.pop(threading.get_ident(), None)
        compiled.clear()
        return call(*args)

    return call
