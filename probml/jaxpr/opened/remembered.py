"""Functions of trees of arrays that are traced once for what they are made for and the shapes of
what they take, whoever asks, and then are a list of equations."""

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
from jax._src import config, core

from probml.jaxpr.memo import kept_by
from probml.jaxpr.program import flatten

MOST = 512  # programs


def remembered(count: int) -> Callable[[Callable], Callable]:
    """For functions whose first so many arguments say what they are made for, hashable, and which
    look at nothing but their arguments: within traces what they have been traced to is bound
    again."""

    def decorated(function: Callable) -> Callable:
        held: OrderedDict[tuple, tuple] = OrderedDict()  # last used, last

        def forget() -> None:
            """Let go of the half that was used longest ago."""
            for _ in range(len(held) // 2):
                held.popitem(last=False)

        kept_by(forget)

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            made, trees = args[:count], args[count:]
            leaves, tree = jax.tree.flatten(trees)
            if core.trace_state_clean():
                return function(*args)
            key = (made, tree, tuple(map(core.shaped_abstractify, leaves)), config.trace_context())
            found = held.get(key)
            if found is None:
                closed, shapes = jax.make_jaxpr(functools.partial(function, *made),
                                                return_shape=True)(*trees)
                found = held[key] = flatten(closed), jax.tree.structure(shapes)
                if len(held) > MOST:
                    held.popitem(last=False)
            program, results = found
            return jax.tree.unflatten(results, program.run(leaves))

        return call

    return decorated
