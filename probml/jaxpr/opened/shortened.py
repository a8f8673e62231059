"""Functions as one short list of equations, before they are mapped, differentiated or looped over.

Most functions of jax.numpy are calls of compiled functions. A `vmap` or `grad` around such a call
traces its inside again, and another around that once more: of an M-step under a map over restarts
these were the half of its tracing. So the function is traced by itself, where calls are found as
they were traced before; calls are opened, equations that nothing asks for are left out, and equal
ones are made once. What is left is bound under whatever is around.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

from probml.jaxpr.compat import OFF
from probml.jaxpr.program import CALLS, RULES, Program, flatten


def traced(function: Callable, *args: object, calls: frozenset[str] = CALLS) -> tuple[Program, Any]:
    """The flat program of a function of trees of arrays, and the tree of its results."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    return flatten(closed, calls), jax.tree.structure(shapes)


def shortened(function: Callable, last: bool = False) -> Callable:
    """The same function of trees of arrays; what it closes over may be traced.

    Args:
        last: nothing around differentiates it, see program.flatten.
    """

    if "shortened" in OFF:
        return function

    @functools.wraps(function)
    def run_program(*args: object) -> Any:
        program, results = traced(function, *args, calls=CALLS | RULES if last else CALLS)
        return jax.tree.unflatten(results, program.run(jax.tree.leaves(args)))

    return run_program
