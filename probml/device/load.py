"""Data in → rows on the device: what was seen of which site, centred, padded to buckets and cut
into chunks."""

import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset import tables
from probml.dataset.dataset import Data
from probml.device.lanes import Lanes, fitting_rows
from probml.device.rows import Coordinates, Known, Rows
from probml.families.marginal_normal import Unseen, locate
from probml.numerics.transfer import placed
from probml.plan.plan import Plan, bucket
from probml.structure.site import Site

ROOM = 1024  # steps up to which an empty half costs less than another program
ALIGNED = 64  # bytes
PART = 2**24  # bytes that are worth a thread to copy


def order(data: Data, plan: Plan) -> np.ndarray | None:
    """The order of rows in which the work of a chunk is even: torn vectors by how much of them is
    unseen; None = as they are."""
    torn = [data.table.columns[name] for name in plan.torn if name not in plan.steps]
    if not torn:
        return None
    return np.argsort(sum((~c.seen).reshape(len(c.seen), -1).sum(1) for c in torn), kind="stable")


def load(
    data: Data,
    plan: Plan,
    weights: np.ndarray | None = None,
    keep: np.ndarray | None = None,
    copies: int = 1,
    least: int = 1,
    params: Mapping[str, Any] | None = None,
    roomy: bool = False,
) -> tuple[Rows, Known]:
    """Rows on the device, (chunks, rows a chunk, ...), and what they share.

    Args:
        weights: one a row; None = 1.
        keep: indices of the rows to take, in this order; all by default.
        copies: how many parameter values the rows will be met with at once.
        least: fewer rows are padded to so many, so that one program serves them all.
        params: where the rows will be met, or begin to be, as far as known: chains with improbable
            moves are treated with more care.
        roomy: few steps are padded to a power of two, so that one program serves shorter sequences.

    Cost: one centred copy of the data in JAX's float type; padding repeats the first row at weight
        0.
    """
    table, sites = data.table, data.structure.sites
    dtype = jnp.result_type(float)
    index = None if keep is None else np.asarray(keep)
    rows = table.rows if index is None else len(index)
    total = bucket(max(rows, least))
    fitting = fitting_rows(plan.width * bucket(data.steps),
                           copies) if data.steps else plan.chunk_rows(copies)
    chunks = max(1, round(total / fitting))
    size = -(-total // chunks)
    centre = {name: _centre(table.columns[name], sites[name], weights) for name in plan.centred
              if sites[name].time is None}

    weight = np.zeros(chunks * size)
    weight[:rows] = 1.0 if weights is None else weights if index is None else weights[index]

    def ship(array, kind=None, shift=None):
        array = array if index is None else array[index]
        out = _aligned((chunks * size, *array.shape[1:]), kind or array.dtype)
        if shift is None:
            _copy(array, out[:rows])
        else:
            np.subtract(array, shift, out=out[:rows], casting="unsafe")
            share = weight[:rows] / weight.sum()
            spread.append(np.sqrt(np.einsum("i,i...,i...->...", share, out[:rows], out[:rows])))
        out[rows:] = out[0]
        # on a CPU the device keeps this array, which nobody else has
        return jax.device_put(out.reshape(chunks, size, *array.shape[1:]))

    used = {*plan.observed, *plan.variables,
            *(p for n in (*plan.pooled, *plan.rowwise, *plan.integrated) for p in sites[n].parents)}
    columns = {name: column for name, column in table.columns.items() if name in used}
    values, seen, unseen, likelihood, spread, spreads = {}, {}, {}, {}, [], {}
    together = {name for names in plan.partly.values() for name in names}
    codes = {states: ship(_codes([columns[name] for name in names]))
             for states, names in plan.partly.items()}
    for name, column in columns.items():
        if name in together or sites[name].time is not None:
            continue
        if column.likelihood is not None:
            likelihood[name] = ship(column.likelihood, dtype)
            continue
        site = sites[name]
        shift = centre[name].reshape(site.cells) if name in centre else None
        values[name] = ship(column.values, jnp.result_type(int) if site.discrete else dtype, shift)
        if shift is not None:
            spreads[name] = placed(spread.pop().reshape(centre[name].shape), dtype)
        elif (name in plan.rowwise and site.traits.scatter and site.family.event == 0
              and column.carried is None):
            spreads[name] = placed(
                _spread(column, weight[:rows], index).reshape(math.prod(site.lattice)), dtype
            )
        if column.seen is not None:
            seen[name] = ship(column.seen)
            if name in plan.torn:
                found = locate(column.seen.reshape(table.rows, math.prod(site.lattice),
                                                   *site.event), chunks > 1)
                unseen[name] = Unseen(*(leaf if leaf is None else ship(leaf) for leaf in found))
    own = {name: array for name, array in table.inputs.items() if name not in data.structure.timed}
    inputs = {name: ship(array, None if array.dtype.kind in "iub" else dtype)
              for name, array in own.items()}
    given = {name: placed(value, jnp.result_type(int if sites[name].discrete else float))
             for name, value in table.values.items()}
    steps = None
    if data.steps:
        lanes = Lanes(data, plan, weight, index, (chunks, size), params or {},
                      room(data.steps) if roomy and data.steps <= ROOM else None)
        steps = lanes.load(columns, centre, spreads)
    known = Known(given, {name: placed(value, dtype) for name, value in centre.items()},
                  spreads)
    carried = {name: Coordinates(ship(column.carried)) for name, column in columns.items()
               if column.carried is not None}
    return Rows(values, seen, codes, unseen, likelihood, inputs,
                placed(weight.reshape(chunks, size), dtype), steps, carried), known


def room(steps: int | None) -> int:
    """Steps to which few are padded where one program is to serve them all: the next power of
    two."""
    return 1 if not steps else bucket(steps) if steps > ROOM else 1 << (steps - 1).bit_length()


def _spread(column, weight: np.ndarray, index: np.ndarray | None) -> np.ndarray:
    """Weighted standard deviations of a column's cells over the rows in which they are seen."""
    values, seen = (leaf if leaf is None or index is None else leaf[index]
                    for leaf in (column.values, column.seen))
    share = weight.reshape(-1, *(1,) * (values.ndim - 1)) * (
        np.ones(values.shape) if seen is None else seen
    )
    total = np.maximum(share.sum(0), np.finfo(float).tiny)
    mean = (share * values).sum(0) / total
    return np.sqrt((share * (values - mean) ** 2).sum(0) / total)


def _aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array at an address from which a CPU device needs no copy of its own."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGNED, np.uint8)
    begin = -raw.ctypes.data % ALIGNED
    return raw[begin : begin + size].view(dtype).reshape(shape)


def _copy(array: np.ndarray, out: np.ndarray) -> None:
    """out[:] = array; of much, by several threads: fresh memory is slow to touch."""
    parts = min(out.nbytes // PART, os.cpu_count() or 1)
    if parts < 2:
        out[:] = array
        return
    cuts = np.linspace(0, len(out), parts + 1).astype(int)
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(lambda a, b: np.copyto(out[a:b], array[a:b], casting="unsafe"), cuts[:-1],
                      cuts[1:]))


def _codes(columns: list[tables.Column]) -> np.ndarray:
    """The states of scalar columns, (rows, columns); −1 where unseen."""
    out = np.empty((len(columns[0].values), len(columns)), np.int32)
    for i, column in enumerate(columns):
        out[:, i] = np.where(column.seen, column.values, -1).reshape(-1)
    return out


def unload(array: Any, rows: int, order: np.ndarray | None) -> np.ndarray:
    """(chunks, b, ...) of loaded rows → (rows, ...), padding dropped, in the user's order."""
    flat = np.asarray(array)
    flat = flat.reshape(-1, *flat.shape[2:])[:rows]
    if order is None:
        return flat
    out = np.empty_like(flat)
    out[order] = flat
    return out


def _centre(column: tables.Column, site: Site, weights: np.ndarray | None) -> np.ndarray:
    """The (weighted) mean of a column; unseen cells hold the mean of the seen ones."""
    if weights is None:
        mean = column.values.mean(0, dtype=np.float64)
    else:
        mean = np.tensordot(weights / weights.sum(), column.values, 1)
    return mean.reshape(math.prod(site.lattice), *site.event)
