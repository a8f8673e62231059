"""Held-out rows: a random subset is set aside, and engines are given the other rows as if these
were all."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Resident, Rows
from probml.device.streamed import Streamed
from probml.errors import ModelError, counted, present
from probml.numerics.compiling import jit

CHUNK = 2**11  # rows per chunk, about, of training and held-out rows


def split_rows(rows: Rows, share: float, key: jax.Array, count: int) -> tuple[Rows, Rows, int]:
    """Training rows, held-out rows, and the number of the latter, about share × count. Of rows that
    are read in batches the held-out ones were chosen when the source was opened."""
    if isinstance(rows, Streamed):
        return replace(rows, held_out=None), present(rows.held_out), int(present(rows.n_held_out))
    n_held = round(share * count)
    if not 0 < n_held < count:
        return rows, rows, n_held
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), count))
    held_rows, train_rows = (_take_rows(rows, *_pad_index(np.sort(part)))
                             for part in (order[:n_held], order[n_held:]))
    return train_rows, held_rows, n_held


def check_held_out(share: float, held: int, count: int) -> None:
    """Raises ModelError if no row, or every one, of `count` is held out."""
    if not 0 < held < count:
        raise ModelError(f"held_out={share} of {counted(count, 'row')} holds out "
                         f"{counted(held, 'row')} and fits the other {count - held}; both need at "
                         "least 1 row. Give another fraction held_out, or more rows")


def _pad_index(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices padded to full chunks, (chunks, size), and a mask: True for rows, False for
    padding."""
    chunks = max(1, round(len(index) / CHUNK))
    size = -(-len(index) // chunks)
    is_row = np.arange(chunks * size) < len(index)
    return np.resize(index, chunks * size).reshape(chunks, size), is_row.reshape(chunks, size)


@jit
def _take_rows(rows: Rows, index: jax.Array, is_row: jax.Array) -> Rows:
    """The rows of `index` as new chunks; padding (not `is_row`) has weight 0."""
    parts = rows.taken(index).stacked
    return Resident(parts._replace(weights=jnp.where(is_row, parts.weights, 0.0)))
