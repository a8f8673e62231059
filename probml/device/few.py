"""Replaces all rows by a few with the same moments, where the log posterior depends on the data
only through total weight, means and second moments.

With W = Σ w, x̄ = Σ w x / W and Σ w (x − x̄)(x − x̄)ᵀ = W Σ_j λ_j v_j v_jᵀ, for m numbers per row,

    x̄ ± √(m λ_j) v_j,    each at weight W / 2m,

are 2m rows with the same moments. Moments of batches can be added (Chan, Golub & LeVeque 1983), so
that fits can be merged. Where rows belong to groups, the rows of each group are replaced: by m + 1,
the corners of a simplex, x̄ + V √λ √(m + 1) h with h the rows of m orthonormal columns that each
sum to 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import helmert

from probml.dataset.dataset import Data
from probml.dataset.tables import Column
from probml.device.rows import Chunk, Resident, Rows
from probml.numerics.compiling import ONCE, jit
from probml.numerics.transfer import placed
from probml.plan.sufficient_statistics import Members
from probml.typing import PyTree


class Moments(NamedTuple):
    """First and second moments of rows, the sufficient statistics; on the host, in float64."""

    weights: np.ndarray  # () W
    mean: np.ndarray  # (m,)
    second: np.ndarray  # (m, m), Σ w (x − x̄)(x − x̄)ᵀ


def moments(rows: Rows, names: tuple[str, ...]) -> Moments:
    """The moments of all rows.

    Args:
        names: the sites to include, completely observed.

    Cost: two passes over all rows, of m² operations per row.
    """
    return Moments(*(np.asarray(found, float) for found in jax.device_get(_moments(names, rows))))


def moments_on_host(columns: Sequence[np.ndarray], weights: np.ndarray | None) -> Moments:
    """The moments of rows on the host.

    Args:
        columns: (n, *cells) of each site. weights: (n,); None: 1 each.
    """
    flat = np.concatenate([np.asarray(column, float).reshape(len(column), -1)
                           for column in columns], 1)
    w = np.ones(len(flat)) if weights is None else np.asarray(weights, float)
    flat, w = flat[w > 0], w[w > 0]
    mean = w @ flat / np.maximum(w.sum(), np.finfo(float).tiny)
    deviation = flat - mean
    return Moments(w.sum(), mean, (w[:, None] * deviation).T @ deviation)


def add_moments(one: Moments, other: Moments) -> Moments:
    """The moments of two batches together."""
    total = np.maximum(one.weights + other.weights, np.finfo(float).tiny)
    shift = other.mean - one.mean
    return Moments(one.weights + other.weights, one.mean + other.weights / total * shift,
                   one.second + other.second
                   + one.weights * other.weights / total * shift[:, None] * shift)


def rows_with_moments(stats: Moments, cells: Mapping[str, tuple[int, ...]]) -> Resident:
    """2m rows with these moments, in one chunk.

    Args:
        cells: site → the shape of its cells, in the order of the moments.

    Cost: an eigendecomposition of m × m.
    """
    values, vectors = np.linalg.eigh(stats.second / stats.weights)
    offsets = (np.sqrt(np.maximum(values, 0.0) * len(stats.mean)) * vectors).T
    flat, out, start = np.concatenate([stats.mean + offsets, stats.mean - offsets]), {}, 0
    dtype = jnp.result_type(float)
    for name, shape in cells.items():
        size = int(np.prod(shape, dtype=int))
        out[name] = placed(flat[:, start : start + size].reshape(1, -1, *shape), dtype)
        start += size
    weights = placed(np.full((1, len(flat)), stats.weights / len(flat)), dtype)
    return Resident(Chunk(out, {}, {}, {}, {}, {}, weights))


@jit(static_argnums=0, seldom=ONCE)
def _moments(names: Sequence[str], rows: Rows) -> PyTree:
    """W, x̄ and Σ w (x − x̄)(x − x̄)ᵀ; squares in a second pass, about the means of the first, for
    precision."""

    def away(chunk: Chunk, mean: jax.Array | float) -> jax.Array:
        flat = jnp.concatenate([chunk.values[name].reshape(len(chunk.weights), -1)
                                for name in names], 1)
        return jnp.where(chunk.weights[:, None] > 0, flat - mean, 0.0)

    weight, total = rows.total(
        lambda chunk: (chunk.weights.sum(), chunk.weights @ away(chunk, 0.0)))
    mean = total / weight

    def squares(chunk: Chunk) -> tuple:
        deviation = away(chunk, mean)
        return chunk.weights @ deviation, (chunk.weights[:, None] * deviation).T @ deviation

    mean_error, second = rows.total(squares)
    mean_error /= weight  # rounding error of the mean in the first pass
    return weight, mean + mean_error, second - weight * mean_error[:, None] * mean_error


def condense_by_cells(data: Data, members: Members, weights: np.ndarray | None,
                      factor: float) -> tuple[Data, np.ndarray] | None:
    """A few rows with the same moments as all rows for each combination of group codes, and their
    weights; None where they would not be fewer by the factor `factor`.

    Cost: a sort of the codes, m² passes over a column, memory of m numbers per row.
    """
    table, n = data.table, data.table.rows
    has_weight = np.ones(n, bool) if weights is None else weights > 0
    owner = np.zeros(int(has_weight.sum()), int)
    for name in members.codes:
        for column in np.asarray(table.inputs[name])[has_weight].reshape(len(owner), -1).T:
            _, codes = np.unique(column, return_inverse=True)
            _, owner = np.unique(owner * (codes.max(initial=0) + 1) + codes, return_inverse=True)
    columns = [(name, table.columns[name].values) for name in members.values] + [
        (name, table.inputs[name]) for name in members.inputs]
    flat = np.concatenate([np.asarray(array, float)[has_weight].reshape(len(owner), -1)
                           for _, array in columns], 1)
    m, count = flat.shape[1], int(owner.max(initial=-1)) + 1
    if count * (m + 1) * factor > len(owner):
        return None
    w = np.ones(len(owner)) if weights is None else np.asarray(weights, float)[has_weight]

    def total(x: np.ndarray):
        return np.bincount(owner, w * x, count)

    weight = np.bincount(owner, w, count)
    mean = np.stack([total(x) for x in flat.T], 1) / weight[:, None]
    deviation = flat - mean[owner]
    second = np.empty((count, m, m))
    for i in range(m):
        for j in range(i + 1):
            second[:, i, j] = second[:, j, i] = total(deviation[:, i] * deviation[:, j]) / weight
    values, vectors = np.linalg.eigh(second)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None]
    # m + 1 points of mean 0 and covariance I
    corners = np.sqrt(m + 1) * helmert(m + 1).T
    points = (mean[:, None] + corners @ np.swapaxes(root, 1, 2)).reshape(-1, m)
    first = np.flatnonzero(has_weight)[np.unique(owner, return_index=True)[1]].repeat(m + 1)
    new_values, start = {}, 0
    for name, array in columns:
        size = int(np.prod(array.shape[1:], dtype=int))
        new_values[name] = points[:, start : start + size].reshape(-1, *array.shape[1:])
        start += size
    inputs = {name: new_values[name] if name in members.inputs else np.asarray(array)[first]
              for name, array in table.inputs.items()}
    new_table = replace(table, rows=len(points), inputs=inputs,
                        columns={name: Column(new_values[name], None) for name in members.values})
    return data._replace(table=new_table, weights=None), (weight / (m + 1)).repeat(m + 1)
