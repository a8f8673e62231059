"""The cost of a traced program: how many numbers its operations compute, loops included."""

import math

from jax.extend.core import Jaxpr, JaxprEqn

from probml.jaxpr.primitives import Kind, table_entry
from probml.jaxpr.program import bodies

WHILE_STEPS = 10  # of a loop whose number of steps is known only when it runs, as Newton's


def count_operations(jaxpr: Jaxpr) -> float:
    """Numbers that a program computes; in a product of matrices and in a factorisation, the
    products. The body of a scan counts as often as it runs, the dearest branch once."""
    return sum(map(_operations, jaxpr.eqns))


def _operations(eqn: JaxprEqn) -> float:
    name = eqn.primitive.name
    body_costs = [count_operations(body.jaxpr) for body in bodies(eqn)]
    if name == "cond":
        return max(body_costs)
    if body_costs:
        n_steps = {"scan": eqn.params.get("length", 1), "while": WHILE_STEPS}.get(name, 1)
        return sum(body_costs) * n_steps
    in_sizes, out_sizes = ([math.prod(getattr(var.aval, "shape", ())) for var in side]
                           for side in (eqn.invars, eqn.outvars))
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return out_sizes[0] * math.prod(eqn.invars[0].aval.shape[axis] for axis in contracted)
    entry = table_entry(eqn)
    if entry is not None and entry.kind is Kind.OPAQUE:
        return sum(out_sizes) * max(eqn.invars[0].aval.shape[-1:], default=1)
    combines = entry is None or entry.kind in (Kind.REDUCE, Kind.WRITE)
    return max(sum(out_sizes), sum(in_sizes) if combines else 0)
