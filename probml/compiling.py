"""One way to jit: as `jax.jit`, with XLA's CPU backend told not to use its fusion emitters where it knows that option, and with
batches of matrices factorised one by one where jaxlib could block for ever.

Measured on an EM step (full covariance, 16 states): 5.1 → 2.4 s of compiling, 54 → 46 ms an iteration. Options may
leave XLA; so they are tried once on a trivial program, and left out if refused.

Where arrays are small, a program is compiled with less effort (`EFFORTS`), since its user waits for the compiler, not for the
program. Measured in CPU seconds of a first and ms of a second fit, at full effort, 1 and 0: mixture of irises 15.3, 13.2, 8.1 and
2000, 2200, 3000; mixture of 10,000 × 8 11.3, 9.9, 7.0 and 820, 770, 2300; chain of 1,000 steps 10.2, 7.9, 4.9 and 140, 100, 200.

jaxlib (0.10) splits a batched LAPACK call from 200,000 multiplications on into tasks for XLA's threads, and waits for them on
one of these threads: two such calls at once on two cores wait for ever. Within our own programs, and only on machines with few
cores, such batches are therefore lowered as a loop over matrices. That needs JAX's table of lowerings, which is not public: where
it is not found, nothing is changed.
"""

import contextlib
import contextvars
import functools
import math
import os
from collections.abc import Callable

import jax
import numpy as np

OPTIONS = {"xla_cpu_use_fusion_emitters": False}
EFFORTS = ((4_096, 0), (65_536, 1))  # numbers in a program's arguments, up to which LLVM optimises at this level
LEVEL = "xla_backend_optimization_level"
CORES = 8  # with more threads than calls that can meet, none blocks
LAPACK = 150_000  # multiplications of a batch

_OURS: contextvars.ContextVar[bool] = contextvars.ContextVar("ours", default=False)


@functools.cache
def _options(effort: int | None) -> dict | None:
    """The compiler's options of this backend, None where it takes none of ours."""
    if jax.default_backend() != "cpu":
        return None
    if effort is not None:
        options = {**(_options(None) or {}), LEVEL: effort}
        return options if _taken(options) else _options(None)
    if (os.cpu_count() or 1) <= CORES:
        with contextlib.suppress(Exception):
            _one_by_one()
    return OPTIONS if _taken(OPTIONS) else None


def _taken(options: dict) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options=options).lower(0.0).compile()
    except Exception:
        return False
    return True


def _one_by_one() -> None:
    """Lower batches of factorisations in our programs as loops; other programs keep what they have."""
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg

    table = mlir._platform_specific_lowerings["cpu"]
    for primitive in (linalg.cholesky_p, linalg.triangular_solve_p, linalg.lu_p):
        entry = table[primitive]
        table[primitive] = type(entry)(rule=_looped(primitive, entry.rule, mlir), inline=entry.inline)


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


def jit(function: Callable, long: bool | None = None, **keywords) -> Callable:
    """jax.jit; decided at the first call, since asking for the backend at import would start it.

    Args:
        long: whether the program will run for long: True lets XLA take longer to compile it (with its fusion emitters, whose
            exponentials and logarithms are vectors), False takes its usual effort; by default the effort follows the sizes of the arrays.
    """
    compiled: dict[int | None, Callable] = {}

    @functools.wraps(function)
    def call(*args):
        leaves = jax.tree.leaves(args)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return function(*args)  # part of somebody's program, whose options are theirs
        effort = _effort(leaves) if long is None else None
        if effort not in compiled:
            options = None if long else _options(effort)
            compiled[effort] = jax.jit(function, compiler_options=options, **keywords)
        token = _OURS.set(True)
        try:
            return compiled[effort](*args)
        finally:
            _OURS.reset(token)

    return call


def _effort(leaves: list) -> int | None:
    size = sum(leaf.size if isinstance(leaf, (jax.Array, np.ndarray)) else 1 for leaf in leaves)
    return next((level for most, level in EFFORTS if size <= most), None)
