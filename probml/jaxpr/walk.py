"""Traced programs: how they are made, run and looked through."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from probml.jaxpr.compat import is_outside_of_traces
from probml.jaxpr.primitives import known
from probml.jaxpr.program import bodies, flat

__all__ = ["ClosedJaxpr", "Literal", "equations", "evaluate", "jaxpr_of", "one_way"]


def jaxpr_of(function: Callable) -> Callable[..., ClosedJaxpr]:
    """As jax.make_jaxpr, but what the program holds of NumPy's arrays is its own.

    JAX (0.10) makes of an array that a function holds one of its precision, and hands that out
    again, in any precision, for as long as something holds it: a program of float32 would then have
    constants of double, which no operation takes, or one of double those of float32. A copy is
    nobody else's.
    """
    trace = jax.make_jaxpr(function)

    def own(*args: Any) -> ClosedJaxpr:
        closed = trace(*args)
        return ClosedJaxpr(closed.jaxpr, [held.copy() if isinstance(held, np.ndarray) else held
                                          for held in closed.consts])

    return own


def evaluate(closed: ClosedJaxpr, *values: Any) -> list:
    """The results of a program; inside a trace its calls are opened."""
    if is_outside_of_traces():
        return jaxpr_as_fun(closed)(*values)
    return flat(closed).run(values)


def equations(closed: ClosedJaxpr) -> Iterator[Any]:
    """All equations of a program and of the programs inside it."""
    for eqn in closed.jaxpr.eqns:
        yield eqn
        for body in bodies(eqn):
            yield from equations(body)


def one_way(closed: ClosedJaxpr) -> bool:
    """Whether a program can be differentiated backwards alone: it has functions with a derivative
    of their own (jax.custom_vjp), as solvers of differential equations have, or primitives of other
    libraries (lineax's), of which nothing is known."""
    return any(eqn.primitive.name.startswith("custom_vjp_call") or known(eqn) is None and any(
        np.issubdtype(getattr(var.aval, "dtype", bool), np.inexact) for var in eqn.outvars)
        for eqn in equations(closed))
