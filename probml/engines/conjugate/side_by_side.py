"""Several data sets in one program: those whose arrays have the same shapes, stacked."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def alike(loaded: Sequence) -> list[tuple[list[int], Any]]:
    """Data sets whose arrays have the same shapes (they may differ where vectors are seen in part):
    their numbers, and the arrays with an axis of them in front."""
    kinds: dict[Any, list[int]] = {}
    for i, pair in enumerate(loaded):
        leaves, treedef = jax.tree.flatten(pair)
        kinds.setdefault((treedef, tuple((leaf.shape, leaf.dtype) for leaf in leaves)),
                         []).append(i)
    return [(each, jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)),
                                *(loaded[i] for i in each))) for each in kinds.values()]
