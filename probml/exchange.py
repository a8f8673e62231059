"""Do rows look at each other? The row axis is followed through a jaxpr traced with a number of rows that no other axis has."""

from typing import Any

import numpy as np
from jax.extend import core

NUMBER = "iota"  # stands for a dependence on a row's number


def mixes(closed: core.ClosedJaxpr, varies: list[bool], rows: int, numbered: bool = False) -> list[str]:
    """For each output, the primitive through which one row comes to depend on another, or ''.

    Args:
        closed: traced with `rows` rows.
        varies: which inputs differ from row to row.
        rows: a size that only row axes have.
        numbered: a constant with a row axis depends on the row's number, and so mixes too.
    """
    flags = [(bool(v), "") for v in varies]
    held = {}
    for var, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        axes = [i for i, size in enumerate(np.shape(value)) if size == rows]
        if numbered and axes and (np.asarray(value) != np.take(np.asarray(value), [0], axes[0])).any():
            held[var] = (True, NUMBER)
    return [mixed for _, mixed in _walk(closed.jaxpr, flags, rows, held, numbered)]


def _walk(jaxpr: Any, inputs: list[tuple[bool, str]], rows: int, held: dict, numbered: bool) -> list[tuple[bool, str]]:
    env: dict[Any, tuple[bool, str]] = held | dict(zip(jaxpr.invars, inputs, strict=True))

    def look(atom):
        return (False, "") if isinstance(atom, core.Literal) else env.get(atom, (False, ""))

    for eqn in jaxpr.eqns:
        read = [look(atom) for atom in eqn.invars]
        varying, mixed = any(v for v, _ in read), next((m for _, m in read if m), "")
        inner = next((eqn.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in eqn.params), None)
        body = getattr(inner, "jaxpr", inner)
        if body is not None and eqn.primitive.name not in ("scan", "while", "cond") and len(body.invars) == len(read):
            results = _walk(body, read, rows, {}, numbered)
        else:
            if numbered and eqn.primitive.name == "iota" and eqn.params["shape"][eqn.params["dimension"]] == rows:
                varying, mixed = True, NUMBER
            if varying and not mixed and _mixing(eqn, [v for v, _ in read], rows):
                mixed = eqn.primitive.name
            results = [(varying, mixed)] * len(eqn.outvars)
        env.update(zip(eqn.outvars, results, strict=True))
    return [look(atom) for atom in jaxpr.outvars]


def _mixing(eqn: Any, varying: list[bool], rows: int) -> bool:
    """Whether an equation on row-varying operands combines rows."""
    name, params = eqn.primitive.name, eqn.params
    shapes = [atom.aval.shape for atom in eqn.invars]
    axes = [{i for i, size in enumerate(shape) if size == rows} for shape in shapes]
    operand = axes[0] if varying[0] else set()
    if name.startswith("reduce_") or name in ("argmax", "argmin"):
        return bool(operand & set(params.get("axes", ())))
    if name.startswith("cum"):
        return params["axis"] in operand
    if name == "sort":
        return any(params["dimension"] in a for a in axes)
    if name == "rev":
        return bool(operand & set(params["dimensions"]))
    if name == "concatenate":
        return any(params["dimension"] in a for a, v in zip(axes, varying, strict=True) if v)
    if name == "dot_general":
        contract = params["dimension_numbers"][0]
        return any(v and a & set(c) for a, v, c in zip(axes, varying, contract, strict=True))
    if name == "gather":
        sliced = params["slice_sizes"]
        batch = set(params["dimension_numbers"].operand_batching_dims)
        return any(sliced[axis] != rows and axis not in batch for axis in operand)
    if name in ("slice", "dynamic_slice"):
        sizes = params.get("slice_sizes") or eqn.outvars[0].aval.shape
        return any(sizes[axis] != rows for axis in operand)
    if name in ("scan", "while", "cond"):
        return True
    # anything else must keep exactly one row axis, as elementwise operations, transposes and broadcasts do
    return any(v.aval.shape.count(rows) != 1 for v in eqn.outvars)
