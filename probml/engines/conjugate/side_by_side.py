"""Several data sets in one program: those whose arrays have the same shapes, stacked."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def stack_equal_shapes(loaded: Sequence) -> list[tuple[list[int], Any]]:
    """Groups of data sets whose arrays have the same shapes: the numbers of the data sets, and
    their arrays stacked along a first axis."""
    kinds: dict[Any, list[int]] = {}
    for i, pair in enumerate(loaded):
        leaves, treedef = jax.tree.flatten(pair)
        kinds.setdefault((treedef, tuple((leaf.shape, leaf.dtype) for leaf in leaves)),
                         []).append(i)
    return [(each, jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)),
                                *(loaded[i] for i in each))) for each in kinds.values()]
