"""Loads data to the device: columns are centred, padded to a bucket size and cut into chunks, with
masks of the observed cells."""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from probml.dataset import tables
from probml.dataset.dataset import Data
from probml.dataset.moments import Moments
from probml.device.in_place import InPlaceRows, large_inputs, place_in_memory
from probml.device.lanes import Kinds, Lanes, may_underflow
from probml.device.layout import Layout, bucket, fitting_rows
from probml.device.rows import Chunk, Coordinates, Known, Pairs, Resident
from probml.errors import present
from probml.families.marginal_normal import Tiles, locate
from probml.numerics.process.threads import cores, map_in_threads
from probml.numerics.transfer import aligned, placed, rounded
from probml.plan.plan import Plan
from probml.plan.random_effects import sparsely_crossed
from probml.typing import SiteValues

ROOM = 1024  # steps up to which padding to a power of two costs less than compiling again
LANES = 32  # minimum sequences per thread
PARTED = 2**22  # numbers in a pass from which the chunks can be split evenly among threads
MIN_CHUNKS_TO_ALIGN = 32  # chunks from which their number is a multiple of 8
PART = 2**24  # bytes from which another thread for copying pays
SCATTERED = 64  # multiplications in a dense product that cost as much as one scatter-add
PAIRED = 2**25  # maximum products of pairs of rows, which are all in memory in a pass
# rows × steps up to which a query's arrays stay on the host until the program runs
MAX_HOST_ROW_STEPS = 1024


def load(
    data: Data,
    plan: Plan,
    weights: np.ndarray | None = None,
    keep: np.ndarray | Layout | None = None,
    copies: int = 1,
    least: int = 1,
    params: SiteValues | None = None,
    roomy: bool = False,
    devices: int = 1,
) -> tuple[Resident | InPlaceRows, Known]:
    """Rows on the device, (chunks, rows per chunk, ...), and the values that they share.

    Args:
        weights: (rows,); None: 1 each.
        keep: indices of the rows to take, in this order, or a layout of all; all by default.
        copies: number of parameter values at which the rows are evaluated at once.
        least: minimum number of rows after padding, so that one program serves smaller data.
        params: (initial) parameter values, as far as known: chains with very small transition
            probabilities are computed in log space.
        roomy: for queries: few rows stay on the host until the program runs (JAX's device_put takes
            longer than such a program), and few steps are padded to a power of two, so that one
            program serves shorter sequences.
        devices: the number of chunks is a multiple of this number of devices.

    Cost: one centred copy of the data in JAX's float type, except large inputs that can be read in
        place (in_place.py); padding repeats the first row at weight 0.
    """
    table, dtype = data.table, jnp.result_type(float)
    if not isinstance(keep, Layout):
        keep = None if keep is None else Layout(np.asarray(keep), np.ones((), bool))
    index, own, tiles = keep or (None, True, None)
    rows = table.rows if index is None else len(index)
    total = bucket(max(rows, least))
    chunks, size = _chunk_shape(data, plan, total, copies, devices, tiles)
    to_device = np.asarray if roomy and total * (data.steps or 1) <= MAX_HOST_ROW_STEPS else placed
    row_w = np.broadcast_to(1.0, table.rows) if weights is None else weights
    centre, spreads = centres_and_scales(plan, _moments(data, plan, weights), row_w.sum(),
                                         to_device)
    weight = aligned((chunks * size,), np.float64)
    weight[:rows] = own
    weight[:rows] *= row_w if index is None else row_w[index]
    weight[rows:] = 0.0
    kinds = Kinds(dtype, jnp.result_type(int))
    can_stay = index is None and copies == devices == 1 and not roomy and chunks % 2 == 0
    if can_stay and (in_place := large_inputs(data, plan, dtype)):
        views = place_in_memory(data, in_place, weight[:rows], chunks,
                                lambda part, own, shape: pack_chunks(part, plan, centre, own, shape,
                                                                     kinds))
        if views is not None:
            return views, placed_values(data, centre, spreads, to_device)
    chunk = pack_chunks(data, plan, centre, weight, (chunks, size), kinds, index, chunks > 1,
                        tiles=tiles)
    if to_device is placed:  # on a CPU without copying; nothing else refers to these arrays
        chunk = jax.tree.map(jax.device_put, chunk)
    if data.steps:
        lanes = Lanes(data, plan, weight, index, (chunks, size), may_underflow(plan, params or {}),
                      kinds, padded_steps(data.steps) if roomy and data.steps <= ROOM else None,
                      to_device)
        chunk = chunk._replace(steps=lanes.load(used_columns(data, plan), centre, spreads))
    pairs = _pairs(plan, chunk, to_device) if copies == devices == 1 else None
    return Resident(chunk, pairs=pairs), placed_values(data, centre, spreads, to_device)


def _pairs(plan: Plan, chunk: Chunk, to_device: Callable) -> Pairs | None:
    """All pairs of rows of positive weight in the same group of the largest grouping; None where
    their products cost more than those of a dense matrix, or in float32."""
    if jnp.result_type(float) != np.float64 or not sparsely_crossed(plan):
        return None
    first, *others = plan.groupings
    index, weights = present(first.index), np.asarray(chunk.weights).reshape(-1)
    codes = np.asarray(chunk.inputs[index.input]).reshape(len(weights), -1)
    codes = np.round(codes[:, index.cells[0] if index.cells else 0]).astype(int)
    order = np.argsort(np.where(weights > 0, codes, -1), kind="stable")
    order = order[np.count_nonzero(weights <= 0) :]
    _, counts = np.unique(codes[order], return_counts=True)
    dense = first.size * sum(part.size for part in others) ** 2
    work = np.sum(counts**2) * sum(part.cells for part in others) ** 2
    if work > min(dense // (SCATTERED * first.cells), PAIRED):
        return None
    n_later = np.repeat(np.cumsum(counts), counts) - np.arange(len(order)) - 1  # in the same group
    row1 = np.repeat(np.arange(len(order)), n_later)
    row2 = row1 + 1 + np.arange(len(row1)) - np.repeat(np.cumsum(n_later) - n_later, n_later)
    return Pairs(*(to_device(order[rows], np.int32) for rows in (row1, row2)))


def placed_values(data: Data, centre: Mapping[str, np.ndarray],
                  sd: dict[str, jax.Array], to_device: Callable = placed) -> Known:
    """Given values of sites outside rows, and column means and standard deviations, on the
    device."""
    sites = data.structure.sites
    return Known({name: to_device(value, jnp.result_type(int if sites[name].discrete else float))
                  for name, value in data.table.values.items()},
                 {name: to_device(value, jnp.result_type(float)) for name, value in centre.items()},
                 sd)


def _chunk_shape(data: Data, plan: Plan, rows: int, copies: int, devices: int,
                 tiles: Tiles | None) -> tuple[int, int]:
    """(chunks, rows per chunk) for `rows` rows, padding included; see `load`."""
    chunks, parts = max(1, round(rows / fitting_rows(plan, data.steps, copies))), devices
    if rows * (data.steps or 1) * max(plan.effort, plan.brought) >= PARTED:
        # equal shares for threads (engines/restarting/squarem.py); along time, a step over half the
        # lanes takes half the time
        chunks = max(chunks, 2 if data.steps and rows >= 2 * LANES else 1)
        parts *= 1 if chunks == 1 else 2 if chunks < MIN_CHUNKS_TO_ALIGN else 8
    chunks, tile_rows = -(-chunks // parts) * parts, max(tiles.rows) if tiles else 1
    return chunks, -(-rows // (chunks * tile_rows)) * tile_rows


def _moments(data: Data, plan: Plan, weights: np.ndarray | None) -> dict[str, Moments]:
    """Moments of the columns whose mean or standard deviation is needed, except those along
    time."""
    return {name: Moments.of(column, weights) for name, column in used_columns(data, plan).items()
            if plan.structure.sites[name].time is None
            and (name in plan.centred or needs_scale(plan, name))}


def centres_and_scales(plan: Plan, moments: Mapping[str, Moments], total: float,
                       to_device: Callable = placed
                       ) -> tuple[dict[str, np.ndarray], dict[str, jax.Array]]:
    """Column means for centring, and column standard deviations, to detect collapsed scales: site →
    (lattice cells, event).

    Args:
        moments: of these columns. total: weight of all rows; missing cells count as at the mean.
        to_device: (array, type) → array on the device.
    """
    sites, centre, spread, dtype = plan.structure.sites, {}, {}, jnp.result_type(float)
    for name, (weight, mean, square) in moments.items():
        site = sites[name]
        shape = (math.prod(site.lattice), *site.event)
        if name in plan.centred:
            centre[name], weight = rounded(mean.reshape(shape)), np.asarray(total)
        if name in plan.centred or needs_scale(plan, name):
            sds = np.sqrt(square / np.maximum(weight, np.finfo(float).tiny))
            spread[name] = to_device(sds.reshape(shape if name in centre else shape[:1]), dtype)
    return centre, spread


def needs_scale(plan: Plan, name: str) -> bool:
    """Whether the standard deviation of a row-wise site is needed, to detect a collapsed scale."""
    site = plan.structure.sites[name]
    return (name in plan.rowwise and bool(site.traits.scatter) and site.traits.event == 0
            and name not in plan.sampled)


def used_columns(data: Data, plan: Plan) -> dict[str, tables.Column]:
    """The columns that the plan uses."""
    sites = data.structure.sites
    used = {*plan.observed, *plan.variables, *plan.hidden,
            *(p for n in (*plan.pooled, *plan.rowwise, *plan.integrated) for p in sites[n].parents)}
    return {name: column for name, column in data.table.columns.items() if name in used}


def pack_chunks(data: Data, plan: Plan, centre: Mapping[str, np.ndarray], weight: np.ndarray,
                shape: tuple[int, int], kinds: Kinds, index: np.ndarray | None = None,
                switch: bool = True, any_na: bool = False, tiles: Tiles | None = None,
                room: Callable | None = None, at: int = 0, until: int | None = None) -> Chunk:
    """Rows as chunks on the host, (chunks, rows per chunk, ...), without sites along time; uses no
    JAX.

    Args:
        centre: subtracted from the columns. weight: (rows of all chunks,), 0 for padding.
        index: the rows to take, in this order. switch: see marginal_normal.locate. any_na: any
            coordinate of partially observed vectors may be missing, not only those missing here.
            tiles: in which these rows are arranged.
        room: (shape, type) → an array to write to; None: new ones.
        at, until: the data are rows at, at + 1, … of `until` rows; those before are already in the
            arrays of `room`.
    """
    table, sites, (chunks, size) = data.table, data.structure.sites, shape
    rows = table.rows if index is None else len(index)

    def cut(array: np.ndarray, kind: np.dtype | None = None, shift: np.ndarray | None = None):
        array = array if index is None else array[index]
        out = (room or aligned)((chunks * size, *array.shape[1:]), kind or array.dtype)
        _write(array, out[at : at + rows], shift)
        if until is None or at + rows == until:
            out[at + rows :] = out[0]
        return out.reshape(chunks, size, *array.shape[1:])

    columns = used_columns(data, plan)
    values, masks, unseen, likelihood = {}, {}, {}, {}
    coded_sites = set().union(*plan.partly.values())
    codes = {states: cut(_codes([columns[name] for name in names]))
             for states, names in plan.partly.items()}
    for name, column in columns.items():
        if name in coded_sites or sites[name].time is not None:
            continue
        if column.likelihood is not None:
            likelihood[name] = cut(column.likelihood, kinds.real)
            continue
        site = sites[name]
        shift = centre[name].reshape(site.cells) if name in centre else None
        values[name] = cut(column.values, kinds.integer if site.discrete else kinds.real, shift)
        if column.observed is not None:
            masks[name] = cut(column.observed)
            if name in plan.partially_observed:
                located = locate(column.observed.reshape(table.rows, math.prod(site.lattice),
                                                         *site.event), switch, any_na)
                unseen[name] = jax.tree.map(cut, located)._replace(tiles=tiles)
    inputs = {name: cut(array, None if array.dtype.kind in "iub" else kinds.real)
              for name, array in table.inputs.items() if name not in data.structure.timed}
    carried = {name: Coordinates(cut(column.sampled)) for name, column in columns.items()
               if column.sampled is not None}
    return Chunk(values, masks, codes, unseen, likelihood, inputs,
                 weight.astype(kinds.real, copy=False).reshape(chunks, size), None, carried)


def padded_steps(steps: int | None) -> int:
    """Number of steps after padding: the next power of two for few steps, so that one program
    serves shorter sequences, else the next bucket size."""
    return 1 if not steps else bucket(steps) if steps > ROOM else 1 << (steps - 1).bit_length()


class Room:
    """Reusable buffers, returned in the order in which they were first requested: writing to newly
    allocated memory costs ten times as much."""

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []
        self._next = 0

    def rewind(self) -> "Room":
        """Restart at the first buffer."""
        self._next = 0
        return self

    def __call__(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        if self._next == len(self._buffers):
            self._buffers.append(aligned(shape, dtype))
        buffer = self._buffers[self._next]
        if buffer.shape != shape or buffer.dtype != dtype:
            buffer = self._buffers[self._next] = aligned(shape, dtype)
        self._next += 1
        return buffer


def _write(array: np.ndarray, out: np.ndarray, shift: np.ndarray | None) -> None:
    """out[:] = array − shift; large copies use several threads, since first writes to new memory
    are slow."""
    if shift is not None and array.dtype != out.dtype and np.can_cast(array.dtype, out.dtype):
        out[:] = array  # a cast within np.subtract is slow: it uses small buffers
        out -= shift
        return
    if shift is not None:
        np.subtract(array, shift, out=out, casting="unsafe")
        return
    parts = max(min(out.nbytes // PART, cores()), 1)
    cuts = np.linspace(0, len(out), parts + 1).astype(int)
    map_in_threads(lambda part: np.copyto(out[part], array[part], casting="unsafe"),
                   list(map(slice, cuts[:-1], cuts[1:])))


def _codes(columns: list[tables.Column]) -> np.ndarray:
    """The states of scalar columns, (rows, columns); −1 where missing."""
    out = np.empty((len(columns[0].values), len(columns)), np.int32)
    for i, column in enumerate(columns):
        out[:, i] = np.where(present(column.observed), column.values, -1).reshape(-1)
    return out


def unload(array: object, rows: int, order: np.ndarray | None) -> np.ndarray:
    """(chunks, b, ...) of loaded rows → (rows, ...), padding dropped, in the user's order."""
    flat = np.asarray(array)
    flat = flat.reshape(-1, *flat.shape[2:])[:rows]
    if order is None:
        return flat
    out = np.empty_like(flat)
    out[order] = flat
    return out
