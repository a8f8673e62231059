"""The place of the rows of a fit: one device, a source that is read in each pass, several devices
or processes. A place opens data and loads them; engines do not depend on which it is."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jax.sharding import Mesh

from probml.dataset.dataset import Data
from probml.dataset.sources import parts, processes
from probml.dataset.sources.chosen import split
from probml.device import layout, load, sharded
from probml.device.rows import Known, Rows, Summary
from probml.device.streamed import open_batches, open_stream
from probml.engines.engine import Problem
from probml.engines.progress import reading
from probml.errors import ModelError, Refusal, present
from probml.fits.condensing import condensed
from probml.language.language import Bound
from probml.numerics.outside.meshes import shared
from probml.numerics.outside.processes import joint

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
        held, plan = problem.data, problem.plan
        if held.survey is None and reducible:
            yield condensed(held, plan, problem.weights, problem.start)
            return
        if held.survey is None:
            keep = layout.choose_layout(held, plan, copies, whole)
            yield load.load(held, plan, problem.weights, keep, copies, params=problem.start)
            return
        with contextlib.ExitStack() as stack:
            learnt, left = split(held.size, apart, problem.seed) if apart else (None, None)
            if left is not None and not 0 < left.rows < held.size:
                raise ModelError(f"{problem}: held_out={apart} of {held.size} rows holds out "
                                 f"{left.rows} rows; expected at least 1 row to hold out, and at "
                                 f"least 1 row to fit")
            held = held._replace(survey=held.survey._replace(chosen=learnt))
            feed, rows, known = open_stream(held, plan, copies)
            stack.enter_context(feed)
            if left is not None:
                beside = held._replace(survey=present(held.survey)._replace(chosen=left))
                other, own, _ = open_stream(beside, plan, copies)
                stack.enter_context(other)
                rows = replace(rows, apart=own, held_apart=np.int32(left.rows))
            each, source = rows.size * rows.together, feed
            if batch is not None and batch < held.size:
                each, source, rows = batch, *open_batches(held, plan, rows, batch, problem.seed)
                stack.enter_context(source)
            reading(lambda: source.speed * each)
            yield rows, known


@dataclass(frozen=True)
class Devices(Place):
    """Several devices, over which the rows are distributed; of several processes each provides its
    own rows. If rows are few and runs many, each device holds all rows and takes some of the runs.
    """

    mesh: Mesh

    def open_data(self, model: Bound, data: object, weights: object) -> Data:
        if shared(self.mesh):
            with joint():
                return processes.open_data(model, data, weights)
        held = parts.open_data(model, data, weights)
        return held if held.survey is None else held._replace(
            survey=held.survey._replace(held=True)
        )

    @contextlib.contextmanager
    def shipped(self, problem: Problem, copies: int, reducible: bool, batch: int | None,
                whole: bool, apart: float = 0.0,
                runs: int = 1) -> Iterator[tuple[Rows, Known]]:
        held, plan = problem.data, problem.plan
        if plan.carried:
            raise Refusal(f"{problem} has a latent variable in each row, '{plan.carried[0]}', "
                          f"whose values are sampled, which is supported only on one device. Omit "
                          f'where=, or use integrate="all"')
        if held.survey is not None:
            with joint() if shared(self.mesh) else contextlib.nullcontext():
                yield sharded.load_sharded(held, plan, self.mesh, copies)
            return
        copies = max(copies, runs)  # also where one device would run them in slices
        keep = layout.choose_layout(held, plan, copies, whole)
        few = runs >= self.mesh.size and held.size * held.numbers <= MAX_REPLICATED_NUMBERS
        rows, known = load.load(held, plan, problem.weights, keep, copies, params=problem.start,
                                devices=1 if few else self.mesh.size)
        yield (sharded.replicate_rows if few else sharded.distribute_rows)(rows, self.mesh), known

