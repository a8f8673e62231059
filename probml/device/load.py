"""Data in → rows on the device: what was seen of which site, centred, padded to buckets and cut
into chunks."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset import tables
from probml.dataset.dataset import Data
from probml.dataset.moments import Moments
from probml.device.lanes import Kinds, Lanes, fitting_rows, sparse
from probml.device.layout import Layout, bucket
from probml.device.rows import Chunk, Coordinates, Known, Resident
from probml.families.marginal_normal import Tiles, locate
from probml.numerics.transfer import aligned, placed, rounded
from probml.plan.plan import Plan

ROOM = 1024  # steps up to which an empty half costs less than another program
LANES = 32  # sequences of a part at least, for threads
PARTED = 2**22  # numbers that a pass goes through, from which chunks are a multiple of the parts
MANY = 32  # chunks from which their number is a multiple of 8
FEW = 1024  # rows and steps that stay on the host until a program takes them


def load(
    data: Data,
    plan: Plan,
    weights: np.ndarray | None = None,
    keep: np.ndarray | Layout | None = None,
    copies: int = 1,
    least: int = 1,
    params: Mapping[str, Any] | None = None,
    roomy: bool = False,
    devices: int = 1,
) -> tuple[Resident, Known]:
    """Rows on the device, (chunks, rows a chunk, ...), and what they share.

    Args:
        weights: one a row; None = 1.
        keep: indices of the rows to take, in this order, or a layout of all; all by default.
        copies: how many parameter values the rows will be met with at once.
        least: fewer rows are padded to so many, so that one program serves them all.
        params: where the rows will be met, or begin to be, as far as known: chains with improbable
            moves are treated with more care.
        roomy: of a question, which one program answers: few rows stay on the host until it takes
            them (JAX's device_put takes longer than such a program), and few steps are padded to a
            power of two, so that it serves shorter sequences.
        devices: chunks are as many on each of so many.

    Cost: one centred copy of the data in JAX's float type; padding repeats the first row at weight
        0.
    """
    table, dtype = data.table, jnp.result_type(float)
    if not isinstance(keep, Layout):
        keep = None if keep is None else Layout(np.asarray(keep), np.ones((), bool))
    index, own, tiles = keep or (None, True, None)
    rows = table.rows if index is None else len(index)
    total = bucket(max(rows, least))
    chunks, size = _chunk_shape(data, plan, total, copies, devices, tiles)
    place = np.asarray if roomy and total * (data.steps or 1) <= FEW else placed
    every = np.broadcast_to(1.0, table.rows) if weights is None else weights
    centre, spreads = located(plan, _moments(data, plan, weights), every.sum(), place)
    weight = aligned((chunks * size,), np.float64)
    weight[:rows] = own
    weight[:rows] *= every if index is None else every[index]
    weight[rows:] = 0.0
    kinds = Kinds(dtype, jnp.result_type(int))
    held = packed(data, plan, centre, weight, (chunks, size), kinds, index, chunks > 1,
                  tiles=tiles)
    if place is placed:  # on a CPU the device keeps these arrays, which nobody else has
        held = jax.tree.map(jax.device_put, held)
    if data.steps:
        lanes = Lanes(data, plan, weight, index, (chunks, size), sparse(plan, params or {}), kinds,
                      room(data.steps) if roomy and data.steps <= ROOM else None, place)
        held = held._replace(steps=lanes.load(used(data, plan), centre, spreads))
    return Resident(held), placed_values(data, centre, spreads, place)


def placed_values(data: Data, centre: Mapping[str, np.ndarray],
                  spread: dict[str, jax.Array], place: Callable = placed) -> Known:
    """On the device: sites outside rows that are given, and what columns are centred on."""
    sites = data.structure.sites
    return Known({name: place(value, jnp.result_type(int if sites[name].discrete else float))
                  for name, value in data.table.values.items()},
                 {name: place(value, jnp.result_type(float)) for name, value in centre.items()},
                 spread)


def _chunk_shape(data: Data, plan: Plan, rows: int, copies: int, devices: int,
                 tiles: Tiles | None) -> tuple[int, int]:
    """(chunks, rows a chunk) of so many rows, padding included; see `load`."""
    chunks, parts = max(1, round(rows / fitting_rows(plan, data.steps, copies))), devices
    if rows * (data.steps or 1) * max(plan.effort, plan.brought) >= PARTED:
        # for threads (engines/restarting/slices.py); a step of half the lanes takes half the time
        chunks = max(chunks, 2 if data.steps and rows >= 2 * LANES else 1)
        parts *= 1 if chunks == 1 else 2 if chunks < MANY else 8
    chunks, whole = -(-chunks // parts) * parts, max(tiles.rows) if tiles else 1
    return chunks, -(-rows // (chunks * whole)) * whole


def _moments(data: Data, plan: Plan, weights: np.ndarray | None) -> dict[str, Moments]:
    """Moments of the columns whose centre or spread is asked for, but for those along time."""
    return {name: Moments.of(column, weights) for name, column in used(data, plan).items()
            if plan.structure.sites[name].time is None
            and (name in plan.centred or scattered(plan, name))}


def located(plan: Plan, moments: Mapping[str, Moments], total: float, place: Callable = placed
            ) -> tuple[dict[str, np.ndarray], dict[str, jax.Array]]:
    """What columns are centred on, and the spreads against which scales are judged: site →
    (lattice cells, event).

    Args:
        moments: of these columns. total: weight of all rows; an unseen cell lies on its centre.
        place: (array, type) → where it is to lie.
    """
    sites, centre, spread, dtype = plan.structure.sites, {}, {}, jnp.result_type(float)
    for name, (weight, mean, square) in moments.items():
        site = sites[name]
        shape = (math.prod(site.lattice), *site.event)
        if name in plan.centred:
            centre[name], weight = rounded(mean.reshape(shape)), total
        if name in plan.centred or scattered(plan, name):
            found = np.sqrt(square / np.maximum(weight, np.finfo(float).tiny))
            spread[name] = place(found.reshape(shape if name in centre else shape[:1]), dtype)
    return centre, spread


def scattered(plan: Plan, name: str) -> bool:
    """Whether a row-wise site's spread is asked for: what a collapsed scale is judged against."""
    site = plan.structure.sites[name]
    return (name in plan.rowwise and bool(site.traits.scatter) and site.family.event == 0
            and name not in plan.carried)


def used(data: Data, plan: Plan) -> dict[str, tables.Column]:
    """The columns that the plan looks at."""
    sites = data.structure.sites
    used = {*plan.observed, *plan.variables, *plan.hidden,
            *(p for n in (*plan.pooled, *plan.rowwise, *plan.integrated) for p in sites[n].parents)}
    return {name: column for name, column in data.table.columns.items() if name in used}


def packed(data: Data, plan: Plan, centre: Mapping[str, np.ndarray], weight: np.ndarray,
           shape: tuple[int, int], kinds: Kinds, index: np.ndarray | None = None,
           switch: bool = True, most: bool = False, tiles: Tiles | None = None) -> Chunk:
    """Rows of data on the host, (chunks, rows a chunk, ...), but for their steps; no JAX in it.

    Args:
        centre: what is taken off the columns. weight: (rows of all chunks,), 0 for padding.
        index: the rows to take, in this order. switch: see marginal_normal.locate. most: any
            coordinate of a vector seen in part may be unseen. tiles: in which these rows stand.
    """
    table, sites, (chunks, size) = data.table, data.structure.sites, shape
    rows = table.rows if index is None else len(index)

    def cut(array, kind=None, shift=None):
        array = array if index is None else array[index]
        out = aligned((chunks * size, *array.shape[1:]), kind or array.dtype)
        if shift is None:
            out[:rows] = array
        else:
            np.subtract(array, shift, out=out[:rows], casting="unsafe")
        out[rows:] = out[0]
        return out.reshape(chunks, size, *array.shape[1:])

    columns = used(data, plan)
    values, seen, unseen, likelihood = {}, {}, {}, {}
    together = set().union(*plan.partly.values())
    codes = {states: cut(_codes([columns[name] for name in names]))
             for states, names in plan.partly.items()}
    for name, column in columns.items():
        if name in together or sites[name].time is not None:
            continue
        if column.likelihood is not None:
            likelihood[name] = cut(column.likelihood, kinds.real)
            continue
        site = sites[name]
        shift = centre[name].reshape(site.cells) if name in centre else None
        values[name] = cut(column.values, kinds.whole if site.discrete else kinds.real, shift)
        if column.seen is not None:
            seen[name] = cut(column.seen)
            if name in plan.partially_observed:
                found = locate(column.seen.reshape(table.rows, math.prod(site.lattice),
                                                   *site.event), switch, most)
                unseen[name] = jax.tree.map(cut, found)._replace(tiles=tiles)
    inputs = {name: cut(array, None if array.dtype.kind in "iub" else kinds.real)
              for name, array in table.inputs.items() if name not in data.structure.timed}
    carried = {name: Coordinates(cut(column.carried)) for name, column in columns.items()
               if column.carried is not None}
    return Chunk(values, seen, codes, unseen, likelihood, inputs,
                 weight.astype(kinds.real, copy=False).reshape(chunks, size), None, carried)


def room(steps: int | None) -> int:
    """Steps to which few are padded where one program is to serve them all: the next power of
    two."""
    return 1 if not steps else bucket(steps) if steps > ROOM else 1 << (steps - 1).bit_length()


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
