"""Batches of matrices, factorised one by one where jaxlib could block for ever.

jaxlib (0.10) splits a batched LAPACK call from 200,000 multiplications on into tasks for XLA's
threads, and waits for them on one of these threads: two such calls at once on two cores wait for
ever. Inside `guarded`, and only on machines with few cores, such batches are therefore lowered as a
loop over matrices. That needs JAX's table of lowerings, which is not public: this is the one file
that knows it. Where the table is not found nothing is changed, and a warning says what may follow;
tests/numerics/test_lapack.py fails then.
"""

import contextlib
import contextvars
import functools
import math
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax

from probml.jaxpr import compat
from probml.jaxpr.compat import OFF
from probml.numerics.process.shared_changes import SharedChange

CORES = 8  # with more threads than calls that can meet, none blocks
WORK = 150_000  # multiplications of a batch from which it is taken apart

_GUARDED: contextvars.ContextVar[bool] = contextvars.ContextVar("guarded", default=False)


@functools.cache
def entries() -> tuple[dict, dict]:
    """JAX's table of lowerings for the CPU, and primitive → the entry that takes batches apart;
    none where nothing is to be taken apart."""
    if "lapack" in OFF or jax.default_backend() != "cpu" or (os.cpu_count() or 1) > CORES:
        return {}, {}
    try:
        table, lower, primitives = compat.cpu_lowerings()
        return table, {p: type(table[p])(rule=_looped(p, table[p].rule, lower),
                                         inline=table[p].inline) for p in primitives}
    except (ImportError, AttributeError, KeyError, TypeError) as error:
        warnings.warn(
            f"probml does not know this JAX's table of lowerings ({error}): models with many large "
            f"matrices may block on machines with few cores; install an older JAX than "
            f"{jax.__version__}, or keep batches below {WORK:,} multiplications",
            stacklevel=2,
        )
        return {}, {}


def _install() -> Callable[[], object]:
    table, ours = entries()
    own = {primitive: table[primitive] for primitive in ours}
    table.update(ours)
    return lambda: table.update(own)


_INSTALLED = SharedChange(_install)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Programs that are lowered inside take large batches apart; all others keep what they have."""
    token = _GUARDED.set(True)
    try:
        with _INSTALLED():
            yield
    finally:
        _GUARDED.reset(token)


def _looped(primitive: Any, rule: Callable, lower_function: Callable) -> Callable:
    """The lowering of a factorisation: its own rule for one matrix, a loop over a large batch."""

    def lower(context: Any, *operands: Any, **parameters: Any):
        shape = context.avals_in[-1].shape
        batch = math.prod(shape[:-2])
        small = batch <= 1 or batch * shape[-2] ** 2 * max(shape[-2:]) < WORK
        if not _GUARDED.get() or small:
            return rule(context, *operands, **parameters)

        def loop(*arrays: Any):
            flat = tuple(a.reshape(-1, *a.shape[-2:]) for a in arrays)
            out = jax.lax.map(lambda each: primitive.bind(*each, **parameters), flat)
            return jax.tree.map(lambda leaf: leaf.reshape(*shape[:-2], *leaf.shape[1:]), out)

        return lower_function(loop, multiple_results=primitive.multiple_results)(
            context, *operands)

    return lower
