"""The cost of one evaluation of the log posterior density of a plan, counted from its program."""

from collections.abc import Hashable

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data
from probml.device.load import load
from probml.evidence import density
from probml.jaxpr.cost import count_operations
from probml.jaxpr.memo import memo
from probml.numerics.process.making import unchecked
from probml.plan.plan import Plan
from probml.typing import PyTree


def evaluation_cost(plan: Plan, data: Data) -> float:
    """Numbers that one evaluation of the log posterior density computes, with what is summed or
    integrated out in it: the steps of an inner optimisation, the nodes of a quadrature.

    Cost: one row is loaded; a trace, once for each plan and shape of the data.
    """
    rows, known = load(data, plan, keep=np.zeros(1, int))
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype),
                          (known, rows))
    if rows.stacked.steps is None:
        shapes = shapes[0], jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(
            (1, data.table.rows, *leaf.shape[2:]), leaf.dtype), shapes[1])
    leaves, treedef = jax.tree.flatten(shapes)
    return _counted(plan, treedef, tuple(leaves))


@memo(64)
def _counted(plan: Plan, treedef: PyTree, leaves: tuple[Hashable, ...]) -> float:
    known, rows = jax.tree.unflatten(treedef, leaves)
    u = jax.ShapeDtypeStruct((density.unbounded_size(plan),), jnp.result_type(float))
    with unchecked():
        return count_operations(jax.make_jaxpr(lambda u, known, rows: density.log_posterior_value(
            plan, known, rows)(u))(u, known, rows).jaxpr)
