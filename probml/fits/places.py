"""Where the rows of a fit lie: on the one device, in parts that are read anew, over several devices
or processes. A place opens data and ships them; no engine knows which it is."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax.sharding import Mesh

from probml.dataset.dataset import Data
from probml.dataset.sources import parts, processes
from probml.device import layout, load, sharded
from probml.device.mixed import mixed
from probml.device.rows import Known, Rows, Summary
from probml.device.streamed import streamed
from probml.engines.engine import Problem
from probml.engines.progress import reading
from probml.errors import Refusal
from probml.fits.condensing import condensed
from probml.language.language import Bound
from probml.numerics.outside.meshes import shared


class Place(ABC):
    """Where rows lie."""

    @abstractmethod
    def opened(self, model: Bound, data: Any, weights: Any) -> Data:
        """A user's data, checked against a model, with their weights, see parts.opened."""

    @abstractmethod
    def shipped(self, problem: Problem, copies: int, reducible: bool,
                batch: int | None, whole: bool) -> contextlib.AbstractContextManager:
        """Within it (rows, what they share), or on their way there; where the rows are `reducible`
        to their statistics these may stand for them.

        Args:
            batch: rows of the batches in which they are asked for; None: in none.
            whole: they are only met all together, and may stand in tiles.
        """


@dataclass(frozen=True)
class Here(Place):
    """The one device: tables are held, sources streamed."""

    def opened(self, model: Bound, data: Any, weights: Any) -> Data:
        return parts.opened(model, data, weights)

    @contextlib.contextmanager
    def shipped(self, problem: Problem, copies: int, reducible: bool,
                batch: int | None, whole: bool) -> Iterator[tuple[Rows | Summary, Known]]:
        held, plan = problem.data, problem.plan
        assert held is not None
        if held.survey is None and reducible:
            yield condensed(held, plan, problem.weights, problem.start)
            return
        if held.survey is None:
            keep = layout.laid(held, plan, copies, whole)
            yield load.load(held, plan, problem.weights, keep, copies, params=problem.start)
            return
        with contextlib.ExitStack() as stack:
            feed, rows, known = streamed(held, plan, copies)
            stack.enter_context(feed)
            each, source = rows.size * rows.together, feed
            if batch is not None and batch < held.size:
                each, source, rows = batch, *mixed(held, plan, rows, batch, problem.seed)
                stack.enter_context(source)
            reading(lambda: f", {source.speed * each:,.0f} rows a second")
            yield rows, known


@dataclass(frozen=True)
class Devices(Place):
    """Devices side by side, which hold all rows together; of several processes each gives its own
    rows."""

    mesh: Mesh

    def opened(self, model: Bound, data: Any, weights: Any) -> Data:
        if shared(self.mesh):
            return processes.opened(model, data, weights)
        held = parts.opened(model, data, weights)
        return held if held.survey is None else held._replace(
            survey=held.survey._replace(held=True)
        )

    @contextlib.contextmanager
    def shipped(self, problem: Problem, copies: int, reducible: bool,
                batch: int | None, whole: bool) -> Iterator[tuple[Rows, Known]]:
        held, plan = problem.data, problem.plan
        assert held is not None
        if plan.carried:
            raise Refusal(f"{problem} has numbers of rows, '{plan.carried[0]}', which a sampler "
                          f"moves on one device: leave where= out, or take integrate=\"all\"")
        if held.survey is not None:
            yield sharded.gathered(held, plan, self.mesh, copies)
            return
        keep = layout.laid(held, plan, copies, whole)
        rows, known = load.load(held, plan, problem.weights, keep, copies, params=problem.start,
                                devices=self.mesh.size)
        yield sharded.spread(rows, self.mesh), known

