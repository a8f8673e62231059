"""Functions of trees of arrays that are traced once for what they are made for and the shapes of
what they take, whoever asks, and then are a list of equations."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.api_util import shaped_abstractify

from probml.jaxpr.compat import is_outside_of_traces, trace_settings
from probml.jaxpr.mechanisms import OFF
from probml.jaxpr.memo import memo
from probml.jaxpr.opened.shortened import traced

MOST = 512  # programs of a function


def remembered(count: int) -> Callable[[Callable], Callable]:
    """For functions whose first so many arguments say what they are made for, hashable, and which
    look at nothing but their arguments: within traces what they have been traced to is bound
    again."""

    def decorated(function: Callable) -> Callable:
        @memo(MOST)
        def program(made: tuple, tree: Any, avals: tuple, context: Any) -> tuple:
            return traced(functools.partial(function, *made), *jax.tree.unflatten(tree, avals))

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            made, trees = args[:count], args[count:]
            leaves, tree = jax.tree.flatten(trees)
            if is_outside_of_traces() or "remembered" in OFF:
                return function(*args)
            avals = tuple(map(shaped_abstractify, leaves))
            short, results = program(made, tree, avals, trace_settings())
            return jax.tree.unflatten(results, short.run(leaves))

        return call

    return decorated
