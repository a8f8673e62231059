"""One way to jit: as `jax.jit`, with XLA's CPU backend told not to use its fusion emitters where it
knows that option, and with batches of matrices factorised one by one where jaxlib could block for
ever.

Measured on an EM step (full covariance, 16 states): 5.1 → 2.4 s of compiling, 54 → 46 ms an
iteration. The option may leave XLA; so it is left out from the first program on that refuses it.
Never beside `xla_backend_optimization_level` 0: small programs then compile a third faster, and
sums over 50 numbers leave some out (jaxlib 0.10.2); level 1 gains a tenth.

jaxlib (0.10) splits a batched LAPACK call from 200,000 multiplications on into tasks for XLA's
threads, and waits for them on one of these threads: two such calls at once on two cores wait for
ever. Within our own programs, and only on machines with few cores, such batches are therefore
lowered as a loop over matrices. That needs JAX's table of lowerings, which is not public: where it
is not found, nothing is changed.

NumPyro checks the arguments of distributions eagerly, also within a trace: two dozen small programs
for one covariance matrix. What we trace has been checked before, so the checks are off meanwhile.
"""

import contextlib
import contextvars
import functools
import math
import os
import threading
from collections.abc import Callable, Iterator

import jax
from numpyro.distributions import Distribution

OPTIONS = {"xla_cpu_use_fusion_emitters": False}
CORES = 8  # with more threads than calls that can meet, none blocks
LAPACK = 150_000  # multiplications of a batch

_OURS: contextvars.ContextVar[bool] = contextvars.ContextVar("ours", default=False)


_REFUSED: list[str] = []  # what XLA said of the options
_CHECKS = threading.RLock()
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
    if (os.cpu_count() or 1) <= CORES:
        with contextlib.suppress(Exception):
            _one_by_one()
    return OPTIONS


def _one_by_one() -> None:
    """Lower batches of factorisations in our programs as loops; other programs keep what they
    have."""
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg

    table = mlir._platform_specific_lowerings["cpu"]
    for primitive in (linalg.cholesky_p, linalg.triangular_solve_p, linalg.lu_p):
        entry = table[primitive]
        table[primitive] = type(entry)(rule=_looped(primitive, entry.rule, mlir),
                                       inline=entry.inline)


def _looped(primitive, rule: Callable, mlir) -> Callable:
    def lower(context, *operands, **parameters):
        shape = context.avals_in[-1].shape
        batch = math.prod(shape[:-2])
        if not _OURS.get() or batch <= 1 or batch * shape[-2] ** 2 * max(shape[-2:]) < LAPACK:
            return rule(context, *operands, **parameters)

        def loop(*arrays):
            flat = tuple(a.reshape(-1, *a.shape[-2:]) for a in arrays)
            out = jax.lax.map(lambda each: primitive.bind(*each, **parameters), flat)
            return jax.tree.map(lambda leaf: leaf.reshape(*shape[:-2], *leaf.shape[1:]), out)

        return mlir.lower_fun(loop, multiple_results=primitive.multiple_results)(context, *operands)

    return lower


def jit(function: Callable, long: bool = False, **keywords) -> Callable:
    """jax.jit; decided at the first call, since asking for the backend at import would start it.

    Args:
        long: the program will run for long, so that XLA may take longer to compile it (with its
            fusion emitters, whose exponentials and logarithms are vectors).
    """
    compiled: list[Callable] = []
    options: list[dict | None] = []

    @functools.wraps(function)
    def call(*args):
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
            return function(*args)  # part of somebody's program, whose options are theirs
        if not compiled:
            options.append(None if long or _REFUSED else _options())
            compiled.append(jax.jit(function, compiler_options=options[-1], **keywords))
        token = _OURS.set(True)
        try:
            with unchecked():
                return compiled[0](*args)
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error) or options[-1] is None:
                raise
            _REFUSED.append(str(error))
        finally:
            _OURS.reset(token)
        compiled.clear()
        return call(*args)

    return call
