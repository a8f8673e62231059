"""Rows that are not learnt from: some, drawn by chance, are held apart, and the others are passed
over as if they were all."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Resident, Rows
from probml.device.streamed import Streamed
from probml.numerics.compiling import jit

CHUNK = 2**11  # rows at once, where rows were divided anew


def divided(rows: Rows, share: float, key: jax.Array, count: int) -> tuple[Rows, Rows, int]:
    """The rows to learn from, those that are held apart, and how many these are: a share of
    `count`; of rows that are read in parts about so many, which were chosen where they are read."""
    if isinstance(rows, Streamed):
        assert rows.apart is not None
        return replace(rows, apart=None), rows.apart, int(rows.held_apart)
    held = round(share * count)
    if not 0 < held < count:
        return rows, rows, held
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), count))
    left, learnt = (_divided(rows, *_padded(np.sort(part)))
                    for part in (order[:held], order[held:]))
    return learnt, left, held


def _padded(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices in whole chunks, (chunks, size), and whether each is a row or padding."""
    chunks = max(1, round(len(index) / CHUNK))
    size = -(-len(index) // chunks)
    real = np.arange(chunks * size) < len(index)
    return np.resize(index, chunks * size).reshape(chunks, size), real.reshape(chunks, size)


@jit
def _divided(rows: Rows, index: jax.Array, real: jax.Array) -> Rows:
    """Some rows in chunks of their own; padding has weight 0."""
    parts = rows.taken(index).stacked
    return Resident(parts._replace(weights=jnp.where(real, parts.weights, 0.0)))
