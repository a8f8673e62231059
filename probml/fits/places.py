"""The place of the rows of a fit: one device, a source that is read in each pass, several devices
or processes. A place opens data and loads them, or their sufficient statistics; engines do not
depend on which it is."""

import contextlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from probml.dataset.dataset import Data
from probml.dataset.sources import parts, processes
from probml.dataset.sources.chosen import split
from probml.device import layout, load, sharded
from probml.device.blocks import Blocks
from probml.device.held_out import check_held_out
from probml.device.rows import Known, Rows, Summary
from probml.device.streamed import open_batches, open_stream
from probml.engines.engine import Engine, Problem
from probml.engines.progress import reading
from probml.engines.start.prior import prior_point
from probml.errors import Refusal, present
from probml.evidence.e_step import summarise
from probml.language.language import Bound
from probml.numerics.compiling import ONCE, jit
from probml.numerics.outside.meshes import spans_processes
from probml.numerics.outside.processes import joint
from probml.numerics.transfer import placed
from probml.plan.plan import Plan
from probml.typing import SiteValues

MAX_REPLICATED_NUMBERS = 2**22  # in all rows, up to which every device may hold them


class Place(ABC):
    """The place of rows."""

    @abstractmethod
    def open_data(self, model: Bound, data: object, weights: object) -> Data:
        """A user's data, checked against a model, with their weights, see parts.open_data."""

    @abstractmethod
    def shipped(self, problem: Problem, copies: int, reducible: bool, batch: int | None,
                whole: bool, apart: float = 0.0,
                runs: int = 1) -> contextlib.AbstractContextManager:
        """A context manager of (rows, values that they share), loaded; where the rows are
        `reducible`, their sufficient statistics may be loaded instead.

        Args:
            batch: rows of a batch; None: the engine uses no batches.
            whole: the engine uses only sums over all rows, so that these may be in tiles.
            apart: the share of rows that is held out, see device/held_out.py.
            runs: the number of simultaneous runs, see Engine.runs.
        """


@dataclass(frozen=True)
class SingleDevice(Place):
    """One device: tables are loaded, sources streamed."""

    def open_data(self, model: Bound, data: object, weights: object) -> Data:
        return parts.open_data(model, data, weights)

    @contextlib.contextmanager
    def shipped(self, problem: Problem, copies: int, reducible: bool, batch: int | None,
                whole: bool, apart: float = 0.0,
                runs: int = 1) -> Iterator[tuple[Rows | Summary, Known]]:
        obs, plan = problem.data, problem.plan
        if obs.survey is None and reducible:
            yield condensed(obs, plan, problem.weights, problem.start)
            return
        if obs.survey is None:
            order = layout.choose_layout(obs, plan, copies, whole)
            yield load.load(obs, plan, problem.weights, order, copies, params=problem.start)
            return
        with contextlib.ExitStack() as stack:
            training, held_out = split(obs.size, apart, problem.seed) if apart else (None, None)
            if held_out is not None:
                check_held_out(apart, held_out.rows, obs.size)
            obs = obs._replace(survey=obs.survey._replace(chosen=training))
            feed, rows, known = open_stream(obs, plan, copies)
            stack.enter_context(feed)
            if held_out is not None:
                other_obs = obs._replace(survey=present(obs.survey)._replace(chosen=held_out))
                other_feed, other_rows, _ = open_stream(other_obs, plan, copies)
                stack.enter_context(other_feed)
                rows = replace(rows, held_out=other_rows, n_held_out=np.int32(held_out.rows))
            n_each, source = rows.size * rows.together, feed
            if batch is not None and batch < obs.size:
                n_each, source, rows = batch, *open_batches(obs, plan, rows, batch, problem.seed)
                stack.enter_context(source)
            reading(lambda: source.speed * n_each)
            yield rows, known


@dataclass(frozen=True)
class Devices(Place):
    """Several devices, over which the rows are distributed; of several processes each provides its
    own rows. If rows are few and runs many, each device holds all rows and takes some of the runs.
    """

    mesh: Mesh

    def open_data(self, model: Bound, data: object, weights: object) -> Data:
        if spans_processes(self.mesh):
            with joint():
                return processes.open_data(model, data, weights)
        obs = parts.open_data(model, data, weights)
        return obs if obs.survey is None else obs._replace(
            survey=obs.survey._replace(in_memory=True)
        )

    @contextlib.contextmanager
    def shipped(self, problem: Problem, copies: int, reducible: bool, batch: int | None,
                whole: bool, apart: float = 0.0,
                runs: int = 1) -> Iterator[tuple[Rows, Known]]:
        obs, plan = problem.data, problem.plan
        if plan.sampled:
            raise Refusal(f"{problem}: where= uses several devices, but the latent variable "
                          f"'{plan.sampled[0]}' (not in the data) is sampled for each row, which "
                          "is supported only on one device. Omit where=, or integrate the variable "
                          'out approximately, such as NUTS(integrate="all")')
        if obs.survey is not None:
            with joint() if spans_processes(self.mesh) else contextlib.nullcontext():
                yield sharded.load_sharded(obs, plan, self.mesh, copies)
            return
        copies = max(copies, runs)  # also where one device would run them in slices
        order = layout.choose_layout(obs, plan, copies, whole)
        few = runs >= self.mesh.size and obs.size * obs.numbers <= MAX_REPLICATED_NUMBERS
        rows, known = load.load(obs, plan, problem.weights, order, copies, params=problem.start,
                                devices=1 if few else self.mesh.size)
        yield (sharded.replicate_rows if few else sharded.distribute_rows)(rows, self.mesh), known


def condensed(data: Data, plan: Plan, weights: np.ndarray | None = None,
              start: SiteValues | None = None) -> tuple[Summary, Known]:
    """The sufficient statistics of the rows of an additive plan, and the values that rows share.

    Args:
        start: see load.load.

    Cost: one pass. Of many rows memory of a few blocks, and one program whatever their number;
        blocks are added in double.
    """
    blocks = None if data.steps else Blocks(data, plan, weights)
    if blocks is None or blocks.fits_few_blocks:
        rows, known = load.load(data, plan, weights, params=start)
        return summarised(plan, known, rows), known
    total: Any = None
    for part in blocks.results(lambda block: summarised(plan, blocks.known, block)):
        part = jax.tree.map(lambda leaf: np.asarray(leaf, float), part)
        total = part if total is None else jax.tree.map(np.add, total, part)
    return jax.tree.map(lambda leaf: placed(leaf, blocks.kinds.real), total), blocks.passed()


@jit(static_argnums=0, seldom=ONCE)
def summarised(plan: Plan, known: Known, rows: Rows) -> Summary:
    """The sufficient statistics of rows on the device, or that are being copied there."""
    return summarise(plan, prior_point(plan, known), known, rows)


def is_frame(data: object) -> bool:
    """Whether data are a Dask DataFrame."""
    return type(data).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(
        data, "to_delayed")


def is_client(where: object) -> bool:
    """Whether a place is a `dask.distributed.Client`."""
    return type(where).__module__.partition(".")[0] == "distributed" and hasattr(where, "submit")


# The rows that a fit retains.

MAX_RETAINED_NUMBERS = 2**22  # in the rows that a fit of a point retains: 32 MiB


class FittedRows(NamedTuple):
    """The rows that were fitted, from which a fit of a point computes standard errors when asked.

    Attributes:
        data: the rows, in the user's own arrays where these are numbers. weights: (n,); None: 1
            each. first: the engine for which the plan was made.
        checksum: of rows and weights when they were fitted, to detect a change in place.
    """

    data: Data
    weights: np.ndarray | None
    first: Engine
    checksum: int | None = None


def retain_rows(engine: Engine, first: Engine, data: Data,
                weights: np.ndarray | None) -> FittedRows | None:
    """The rows that a fit of a point retains; None where they are many, or read in parts."""
    small = data.survey is None and data.table.rows * max(data.numbers, 1) <= MAX_RETAINED_NUMBERS
    if not small or engine.capabilities.finds != "point":
        return None
    return FittedRows(data, weights, first, checksum(data, weights))


def checksum(data: Data, weights: np.ndarray | None) -> int:
    """A checksum of rows and weights; a GB takes about a second."""
    table, crc = data.table, 0
    arrays = [*table.inputs.values(), *table.values.values(), weights]
    arrays += [part for column in table.columns.values()
               for part in (column.values, column.observed, column.likelihood)]
    for array in arrays:
        if array is not None and not np.asarray(array).dtype.hasobject:
            crc = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, crc)
    return crc
