"""Functions flattened to one list of equations, and their gradients in reverse mode.

Most functions of jax.numpy are jitted calls, which `vmap` and `grad` trace again at every level of
nesting: half of the tracing time of an M-step mapped over restarts. Here a function is traced once
(JAX caches the traces of its calls), calls are inlined, and unused and duplicate equations are
removed. The remaining equations are then bound under the enclosing transformations.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn
from jax.tree_util import PyTreeDef

from probml.errors import ModelError, Refusal
from probml.jaxpr.analysis import values_of
from probml.jaxpr.compat import OFF
from probml.jaxpr.levels import Dependence
from probml.jaxpr.program import CALLS, RULES, Program, bind, flatten
from probml.typing import PyTree


def traced(function: Callable, *args: object,
           calls: frozenset[str] = CALLS) -> tuple[Program, PyTreeDef]:
    """The flat program of a function of trees of arrays, and the tree of its results."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    return flatten(closed, calls), jax.tree.structure(shapes)


def shortened(function: Callable, last: bool = False) -> Callable:
    """The same function of trees of arrays; what it closes over may be traced.

    Args:
        last: the result is not differentiated; see program.flatten.
    """

    if "shortened" in OFF:
        return function

    @functools.wraps(function)
    def run_program(*args: object) -> PyTree:
        program, results = traced(function, *args, calls=CALLS | RULES if last else CALLS)
        return jax.tree.unflatten(results, program.run(jax.tree.leaves(args)))

    return run_program


def with_vjp(function: Callable) -> Callable:
    """As functools.partial(jax.vjp, function), of a function of trees of floats: args → (its
    results, their cotangents → the arguments')."""

    @functools.wraps(function)
    def both(*args: object) -> tuple[PyTree, Callable]:
        gradients, back = _differentiated(functools.partial(jax.vjp, shortened(function)), function,
                                          args)(*args)
        return gradients, _differentiated(back, function, args)

    return both


def value_and_gradient(function: Callable) -> Callable:
    """As jax.value_and_grad, with respect to the first argument."""

    @functools.wraps(function)
    def both(*args: object) -> tuple[jax.Array, PyTree]:
        return _differentiated(jax.value_and_grad(shortened(function)), function, args)(*args)

    return both


def gradient(function: Callable) -> Callable:
    """As jax.grad, with respect to the first argument."""

    @functools.wraps(function)
    def slope(*args: object) -> PyTree:
        return value_and_gradient(function)(*args)[1]

    return slope


def _differentiated(derivative: Callable, function: Callable, args: tuple) -> Callable:
    """A derivative of a function at some arguments; what JAX cannot differentiate is refused by
    its name."""

    def call(*own: object) -> Any:
        try:
            return derivative(*own)
        except (NotImplementedError, ValueError) as error:
            name = None if isinstance(error, ModelError) else _without_derivative(function, args)
            if name is None:
                raise
            said = str(error).partition("\n")[0].rstrip(".")
            raise Refusal(f"the density needs the derivative of '{name}', which JAX does not have "
                          f"({said:.200}). Replace the operation in the model function, or give "
                          "the parameters on which it depends as fixed numbers") from error

    return call


def _without_derivative(function: Callable, args: tuple) -> str | None:
    """The first primitive of a function that JAX cannot differentiate; None: there is none."""
    program, _ = traced(function, *args)
    depends = values_of(program, Dependence(), map(frozenset, zip(program.inputs)))
    for eqn, operands, _ in program.lines:
        moving = [bool(depends[place]) and _is_float(var.aval)
                  for place, var in zip(operands, eqn.invars, strict=True)]
        try:
            jax.eval_shape(functools.partial(_pulled_back, eqn, moving),
                           [var.aval for var in eqn.invars])
        except (NotImplementedError, ValueError):
            return eqn.primitive.name
    return None


def _pulled_back(eqn: JaxprEqn, moving: list[bool], values: list[jax.Array]) -> tuple:
    """Cotangents of those operands of an equation that are moving."""

    def results(*moved: jax.Array) -> list[jax.Array]:
        left = iter(moved)
        found = bind(eqn, [next(left) if each else value
                           for each, value in zip(moving, values, strict=True)])
        return [value for value in found if _is_float(value)]

    found, back = jax.vjp(results, *(value for each, value in zip(moving, values, strict=True)
                                     if each))
    return back(list(map(jnp.ones_like, found)))


def _is_float(array: Any) -> bool:
    return jnp.issubdtype(getattr(array, "dtype", np.dtype(bool)), jnp.inexact)
