"""Functions as one short list of equations, before they are mapped, differentiated or looped over.

Most functions of jax.numpy are calls of compiled functions. A `vmap` or `grad` around such a call
traces its inside again, and another around that once more: of an M-step under a map over restarts
these were the half of its tracing. So the function is traced by itself, where calls are found as
they were traced before; calls are opened, equations that nothing asks for are left out, and equal
ones are made once. What is left is bound under whatever is around.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import source_info_util

CALLS = ("jit", "pjit", "closed_call", "core_call")


def shortened(function: Callable) -> Callable:
    """The same function of trees of arrays; what it closes over may be traced."""

    @functools.wraps(function)
    def short(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        leaves, tree = jax.tree.leaves(args), jax.tree.structure(shapes)
        found = _run(closed.jaxpr, closed.consts, leaves, [True] * len(closed.jaxpr.outvars), {})
        return jax.tree.unflatten(tree, found)

    return short


def _run(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], wanted: Sequence[bool],
         made: dict[tuple, tuple]) -> list[Any]:
    """The wanted results of a program, None for the others.

    Args:
        made: equation, by what it does and takes → its operands, which stay alive, and results.
    """
    env: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args),
                                   strict=True))

    def read(atom: Any) -> Any:
        return atom.val if _literal(atom) else env[atom]

    for eqn, asked in _needed(jaxpr, wanted):
        values = list(map(read, eqn.invars))
        inner = eqn.params.get("jaxpr") if eqn.primitive.name in CALLS else None
        if inner is not None:
            results = _run(inner.jaxpr, inner.consts, values, asked, made)
        else:
            results = list(_once(eqn, values, made))
        env.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) if want else None for atom, want in zip(jaxpr.outvars, wanted, strict=True)]


def _needed(jaxpr: Any, wanted: Sequence[bool]) -> list[tuple[Any, list[bool]]]:
    """The equations that results depend on, in order, and which results of each."""
    alive = {atom for atom, want in zip(jaxpr.outvars, wanted, strict=True)
             if want and not _literal(atom)}
    out = []
    for eqn in reversed(jaxpr.eqns):
        asked = [var in alive for var in eqn.outvars]
        if any(asked) or eqn.effects:
            out.append((eqn, asked))
            alive.update(atom for atom in eqn.invars if not _literal(atom))
    return out[::-1]


def _once(eqn: Any, values: list[Any], made: dict[tuple, tuple]) -> Sequence[Any]:
    """The results of an equation; those of an equal one, where there is one."""
    key = None if eqn.effects else _key(eqn, values)
    if key is not None and key in made:
        return made[key][1]
    results = bind(eqn, values)
    if key is not None:
        made[key] = (values, results)
    return results


def bind(eqn: Any, values: Sequence[Any]) -> Sequence[Any]:
    """The results of an equation for operands of the same shapes."""
    params = eqn.primitive.get_bind_params(eqn.params)
    functions, params = params if isinstance(params, tuple) else ((), params)  # up to JAX 0.9
    with source_info_util.user_context(eqn.source_info.traceback), eqn.ctx.manager:
        found = eqn.primitive.bind(*functions, *values, **params)
    return found if eqn.primitive.multiple_results else [found]


def _key(eqn: Any, values: list[Any]) -> tuple | None:
    """What two equations share that are equal; None where that cannot be told."""
    operands = tuple(_operand(atom, value) for atom, value in zip(eqn.invars, values, strict=True))
    try:
        key = (eqn.primitive, tuple(sorted(eqn.params.items(), key=lambda item: item[0])), operands)
        hash(key)
    except TypeError:
        return None
    return key


def _operand(atom: Any, value: Any) -> tuple:
    if isinstance(value, jax.Array) or np.ndim(value):
        return (id(value),)
    # as bytes: -0.0 is not 0.0
    return (atom.aval.dtype, getattr(atom.aval, "weak_type", False), np.asarray(value).tobytes())


def _literal(atom: Any) -> bool:
    return hasattr(atom, "val")
