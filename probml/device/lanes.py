"""Sequences on the device: every time step is a row, in the memory layout that chains.py scans
along; long sequences are cut into blocks, which are scanned in parallel."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from probml.dataset import tables
from probml.dataset.dataset import Data
from probml.dataset.moments import Moments
from probml.dataset.sources.profile import along_steps
from probml.device.layout import LANES, bucket
from probml.device.rows import Chunk, Steps
from probml.errors import present
from probml.families.marginal_normal import Unseen, locate
from probml.numerics.transfer import aligned, placed, rounded
from probml.plan.plan import Plan
from probml.structure.site import Site

MIN_STEPS_TO_CUT = 2**13  # minimum steps for which few sequences are cut into blocks
SPREAD = 2**13  # the number of lanes on a GPU
BLOCK = 64  # minimum steps of a block, about
IMPROBABLE = 1e-15  # transition probability below which float32 computes in log space throughout
GROUP = 8  # blocks of a sequence that are transposed at once: some cache lines wide
# bytes of an item → a type of this size that NumPy copies fast
_KINDS: dict[int, DTypeLike] = {1: np.dtype("u1"), 2: np.dtype("u2"), 4: np.dtype("u4"),
                          8: np.dtype("u8"), 16: np.dtype("c16")}


class Kinds(NamedTuple):
    """Float and integer types on the device."""

    real: DTypeLike
    integer: DTypeLike


def may_underflow(plan: Plan, params: Mapping[str, np.ndarray]) -> bool:
    """Whether, in float32, some transition probability of a hidden chain is so small that underflow
    would matter, see chains.py.

    Args:
        params: values of some parameters; the others are ignored.
    """
    if jnp.finfo(jnp.result_type(float)).bits > 32:
        return False
    structure = plan.structure
    for name in plan.chains:
        takes = structure.programs[name][1]
        if all(p in params for p in takes):
            env = {p: np.reshape(params[p], structure.sites[p].shape) for p in takes}
            tables = [structure.arguments(name, env)["transition"]]
        else:
            tables = [params[p] for p in takes if p in params
                      and structure.sites[p].domain.sums_to_one]
        if any(np.asarray(table).min() < IMPROBABLE for table in tables):
            return True
    return False


def located_along(site: Site, moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a site along time, for centring: (lattice cells, event)."""
    spread = np.sqrt(moments.square / np.maximum(moments.weight, np.finfo(float).tiny))
    shape = (math.prod(site.lattice), *site.event)
    return rounded(moments.mean.reshape(shape)), spread.reshape(shape)


def _items(array: np.ndarray) -> np.ndarray:
    """(..., d) → (...): views the numbers of the last axis as one item, for fast copies."""
    size = array.shape[-1] * array.dtype.itemsize
    kind = _KINDS.get(size, np.dtype((np.void, size)))
    return array.view(kind)[..., 0]


class Lanes:
    """Loads the sites along time: every step as a row, in the order (L, rows, blocks) that
    chains.py scans, with L steps per block.

    Args:
        weight: (places,). index: rows to load, in this order; None: all. shape: (chunks, rows per
            chunk). in_logs: compute in log space, see `may_underflow`. span: steps after padding.
            to_device: moves an array to the device. any_missing: any coordinate of partially
            observed vectors may be missing, not only those missing here.
    """

    def __init__(self, data: Data, plan: Plan, weight: np.ndarray, index: np.ndarray | None,
                 shape: tuple[int, int], in_logs: bool, kinds: Kinds, span: int | None = None,
                 to_device: Callable = placed, any_missing: bool = False):
        self.data, self.plan, self.weight, self.index, self.shape = data, plan, weight, index, shape
        self.kinds, self.to_device, self.any_missing = kinds, to_device, any_missing
        on_cpu = jax.default_backend() == "cpu"
        lanes, steps = (LANES if on_cpu else SPREAD), present(data.steps)
        self.in_logs = in_logs
        self.chained = tuple(n for group in plan.latents if plan.timed(group)
                             for n in group.sites)
        split = (bool(plan.chains or self.chained) and not self.in_logs
                 and steps >= (MIN_STEPS_TO_CUT if on_cpu else 2 * LANES) and 4 * shape[1] <= lanes)
        max_blocks = 1 << (steps // BLOCK).bit_length()
        self.blocks = min(lanes // (1 << (shape[1] - 1).bit_length()), max_blocks) if split else 1
        self.length = -(-(span or bucket(steps)) // self.blocks)
        self.roomy = span is not None
        self.parallel = not on_cpu

    def ship(self, array: np.ndarray, time: int | None, kind: DTypeLike = None,
             shift: np.ndarray | None = None, mask: np.ndarray | None = None) -> jax.Array:
        """(rows, ..., time, ...) → (chunks, N, ...) with a time axis of length 1; with time None
        the row's values are repeated at every step.

        Args:
            shift: subtracted from the cells of each step; cells that are not `mask` become 0.
        """
        array = array if self.index is None else array[self.index]
        chunks, size = self.shape
        if time is None:
            padded = np.concatenate(
                [array, np.broadcast_to(array[:1], (chunks * size - len(array), *array.shape[1:]))]
            )
            lanes = padded.reshape(chunks, 1, size, 1, *array.shape[1:])
            lanes = np.broadcast_to(lanes,
                                    (chunks, self.length, size, self.blocks, *array.shape[1:]))
            lanes = np.ascontiguousarray(lanes, kind)
            return self.to_device(lanes.reshape(chunks, -1, *array.shape[1:]))
        array = np.moveaxis(array, 1 + time, 1)
        if mask is not None:
            mask = np.moveaxis(mask if self.index is None else mask[self.index], 1 + time, 1)
        lanes = self._transpose(array, np.dtype(kind or array.dtype), shift, mask)
        trailing = array.shape[2:]
        return self.to_device(lanes.reshape(chunks, -1, *trailing[:time], 1, *trailing[time:]))

    def _transpose(self, array: np.ndarray, kind: np.dtype, shift: np.ndarray | None,
                   observed: np.ndarray | None) -> np.ndarray:
        """(rows, steps, ...) → (chunks, L, rows, blocks, ...), GROUP blocks at a time, so that the
        strided writes stay in cache. Padding repeats the first step and the first row."""
        (chunks, size), length, steps = self.shape, self.length, present(self.data.steps)
        trailing, group_steps = array.shape[2:], length * GROUP
        out = aligned((chunks, length, size, self.blocks, *trailing), kind)
        # the numbers of a step are copied as one item
        items = _items(out.reshape(*out.shape[:4], -1))
        for chunk in range(chunks):
            rows = slice(chunk * size, (chunk + 1) * size)
            chunk_rows, mask = array[rows], None if observed is None else observed[rows]
            n = len(chunk_rows)
            for start in range(0, steps, group_steps) if n else ():
                part = slice(start, min(start + group_steps, steps))
                count = part.stop - start
                buffer = np.empty((n, -(-count // length) * length, *trailing), kind)
                if shift is None:
                    buffer[:, :count] = chunk_rows[:, part]
                else:
                    np.subtract(chunk_rows[:, part], shift, out=buffer[:, :count], casting="unsafe")
                    if mask is not None:
                        np.copyto(buffer[:, :count], 0, where=~mask[:, part])
                if start == 0:
                    first = buffer[:, :1].copy()
                buffer[:, count:] = first
                packed = _items(buffer.reshape(n, -1, length, math.prod(trailing)))
                block = start // length
                items[chunk, :, :n, block : block + packed.shape[1]] = np.moveaxis(packed, 2, 0)
            if n:
                n_done = -(-steps // length)
                out[chunk, :, :n, n_done:] = first[None]
            out[chunk, :, n:] = out[0, :, :1]
        return out

    def load(self, columns: Mapping[str, tables.Column], centre: dict, spreads: dict) -> Steps:
        """The time steps of all rows; adds the means and standard deviations of centred sites to
        `centre` and `spreads`."""
        data, plan, sites, dtype = (self.data, self.plan, self.data.structure.sites,
                                    self.kinds.real)
        named = data.structure.named
        targets = tuple(name for name in plan.targets if named[name].time is not None)
        step_sites = (*plan.steps, *plan.counted, *targets, *self.chained)
        parents = {p for name in step_sites for p in named[name].parents if sites[p].rows
                   and p not in plan.variables}
        used_inputs = set().union(*map(plan.structure.row_inputs,
                                       (*plan.steps, *targets, *self.chained)))
        values, masks, unseen, inputs = {}, {}, {}, {}
        for name, column in columns.items():
            time = sites[name].time
            if time is None and name not in (*parents, *self.chained):
                continue
            shift = (self._centre(name, centre, spreads)
                     if name in plan.centred and time is not None else None)
            values[name] = self.ship(column.values, time,
                                     self.kinds.integer if sites[name].discrete else dtype,
                                     shift, None if shift is None else column.observed)
            if column.observed is not None and (time is not None or name in self.chained):
                masks[name] = self.ship(column.observed, time)
                if name in plan.partially_observed and time is not None:
                    unseen[name] = self._missing(name, column.observed)
        for name in used_inputs:
            array = data.table.inputs[name]
            kind = None if array.dtype.kind in "iub" else dtype
            inputs[name] = self.ship(array, 0 if name in data.structure.timed else None, kind)
        return Steps(Chunk(values, masks, {}, unseen, {}, inputs, self._alive()), self.length,
                     self.blocks, self.parallel, self.in_logs, self.data.lengths is None)

    def _alive(self) -> jax.Array | None:
        """Mask of the steps that are not padding, (chunks, N); None: all are real."""
        steps, n = present(self.data.steps), self.data.table.rows
        lengths = self.data.lengths if self.data.lengths is not None else np.full(n, steps)
        if self.length * self.blocks == steps and self.data.lengths is None and not self.roomy:
            return None
        is_step = np.arange(steps) < lengths[:, None]
        (chunks, size), span = self.shape, self.length * self.blocks
        is_step = is_step if self.index is None else is_step[self.index]
        padded = np.zeros((chunks * size, span), bool)
        padded[: len(is_step), :steps] = is_step
        lanes = np.moveaxis(padded.reshape(chunks, size, self.blocks, self.length), 3, 1)
        return self.to_device(np.ascontiguousarray(lanes).reshape(chunks, -1))

    def _centre(self, name: str, centre: dict, spreads: dict) -> np.ndarray:
        """The mean of a column over its observed cells, in the shape of the cells of one step."""
        site, n = self.data.structure.sites[name], self.data.table.rows
        if name not in centre:
            weight = None if self.index is not None else self.weight[:n]
            centre[name], spread = located_along(site, along_steps(self.data, name, weight))
            spreads[name] = placed(spread, self.kinds.real)
        cells = self.data.table.columns[name].values.shape[1:]
        time_axis = present(site.time)
        return centre[name].reshape(cells[:time_axis] + cells[time_axis + 1 :])

    def _missing(self, name: str, mask: np.ndarray) -> Unseen:
        site, n = self.data.structure.sites[name], self.data.table.rows
        steps = present(self.data.steps)
        flat = np.moveaxis(mask, 1 + present(site.time), 1).reshape(
            n * steps, math.prod(site.lattice), *site.event)
        unseen = locate(flat, False, self.any_missing)
        # (rows · steps, ...) → (chunks, N, ...)
        return jax.tree.map(lambda leaf: self.ship(leaf.reshape(n, steps, *leaf.shape[1:]),
                                                   0).squeeze(2), unseen)
