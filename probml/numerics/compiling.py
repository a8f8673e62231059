"""One way to jit: as `jax.jit`, with XLA's CPU backend told not to use its fusion emitters where it
knows that option, and with batches of matrices taken apart where jaxlib could block (lapack.py).

Measured on an EM step (full covariance, 16 states): 5.1 → 2.4 s of compiling, 54 → 46 ms an
iteration. The option may leave XLA; so it is tried once on a trivial program, and left out if
refused. Never beside `xla_backend_optimization_level` 0: small programs then compile a third
faster, and sums over 50 numbers leave some out (jaxlib 0.10.2); level 1 gains a tenth.
"""

import functools
from collections.abc import Callable

import jax

from probml.numerics import lapack

OPTIONS = {"xla_cpu_use_fusion_emitters": False}


@functools.cache
def _options() -> dict | None:
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(lambda x: x, compiler_options=OPTIONS).lower(0.0).compile()
    except Exception:
        return None
    return OPTIONS


def jit(function: Callable, long: bool = False, **keywords) -> Callable:
    """jax.jit; decided at the first call, since asking for the backend at import would start it.

    Args:
        long: the program will run for long, so that XLA may take longer to compile it (with its
            fusion emitters, whose exponentials and logarithms are vectors).
    """
    compiled: list[Callable] = []

    @functools.wraps(function)
    def call(*args):
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
            return function(*args)  # part of somebody's program, whose options are theirs
        if not compiled:
            options = _options()
            compiled.append(jax.jit(function, compiler_options=None if long else options,
                                    **keywords))
        with lapack.guarded():
            return compiled[0](*args)

    return call
