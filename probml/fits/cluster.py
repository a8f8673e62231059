"""A Dask cluster as the place of rows: partitions stay where they are, and statistics come back as
a tree of sums. Dask schedules, moves and repeats: what a lost worker held is made again, and each
partition is counted once."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data, Survey
from probml.dataset.sources.parts import sampled
from probml.device.remote import Remote
from probml.device.rows import Known, Rows
from probml.device.streamed import Cut
from probml.engines.engine import Problem
from probml.errors import DataError, Refusal
from probml.fits import cluster_work as work
from probml.fits.places import Place
from probml.language.language import Bound
from probml.numerics.outside.sent import Pool, Program

BRANCHES = 8  # sums that are added in one task
PAUSE, PATIENCE = 5.0, 120.0  # seconds between two looks, and without any worker


@dataclass
class Cluster(Place):
    """The workers of a `dask.distributed.Client`."""

    client: Any
    frames: list[Any] = field(default_factory=list)
    weights: str | None = None  # the column of them

    def open_data(self, model: Bound, data: Any, weights: object) -> Data:
        """See parts.open_data; of a Dask DataFrame, whose partitions are looked at where they are.

        Raises:
            DataError: another kind of data, no rows, or bad ones, named by partition and row.
        """
        if not is_frame(data):
            raise DataError(f"where={self.client!r}: expected a Dask DataFrame, as of "
                            f"dask.dataframe.read_parquet, got {type(data).__name__}: rows of this "
                            f"process become one by dask.dataframe.from_pandas")
        if not (weights is None or isinstance(weights, str)):
            raise DataError("the rows of a Dask DataFrame have their weights in a column of it: "
                            "give its name, weights='...'")
        self.weights = weights
        double, content = jax.config.jax_enable_x64, work.portable(model)
        every = self.client.compute(data.to_delayed())
        counts = self._all([self.client.submit(len, frame) for frame in every])
        self.frames = [frame for frame, rows in zip(every, counts, strict=True) if rows]
        sizes = [rows for rows in counts if rows]
        if not sizes:
            raise DataError(f"model '{model.name}': the Dask DataFrame has no rows")
        names = [f"partition {i}" for i, rows in enumerate(counts) if rows]
        first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).tolist()
        looks = [self.client.submit(work.look, content, double, frame, name, begin, weights)
                 for frame, name, begin in zip(self.frames, names, first, strict=True)]
        while len(looks) > 1:
            looks = [self.client.submit(work.merge, content, double, *pair) if len(pair) > 1
                     else pair[0] for pair in _grouped(looks, 2)]
        profile = self._all(looks)[0].dressed(model)
        source = work.rows_of(data, "the frame", weights)
        return sampled(Survey(source, profile, tuple(names), tuple(sizes)))

    @contextlib.contextmanager
    def shipped(self, problem: Problem, copies: int, reducible: bool, batch: int | None,
                whole: bool, apart: float = 0.0,
                runs: int = 1) -> Iterator[tuple[Rows, Known]]:
        held, plan = problem.data, problem.plan
        assert held.survey is not None
        if apart:
            raise Refusal(f"{problem}: rows on a cluster stay where they are, so none can be "
                          f"held out: leave held_out out, and ask fit.score of other rows")
        if batch is not None:
            raise Refusal(f"{problem}: rows on a cluster are added up where they are, and come in "
                          f"no batches: leave batch_rows out, or read the files here, "
                          f"fit(pyarrow.dataset.dataset(folder), ...)")
        survey, cutter = held.survey, Cut.of(held, plan, copies, alone=True)
        some = held.taken(np.arange(1))
        recipe = work.Recipe(
            work.portable(held.model), jax.config.jax_enable_x64, work.bare(some), held.shapes,
            replace(survey.profile, sample=None, ranks=survey.profile.ranks[:1]),  # type: ignore
            tuple(plan.effects), copies, self.weights
        )
        parts = [self.client.submit(work.chunks, recipe, frame, name, rows) for frame, name, rows
                 in zip(self.frames, survey.names, survey.sizes, strict=True)]
        example = jax.tree.map(lambda leaf: leaf[0], cutter.pack(cutter.some, cutter.shape))
        count = cutter.shape[0] * sum(cutter.counted(rows) for rows in survey.sizes)
        with _Workers(self, parts) as pool:
            yield Remote(np.int32(pool.number), np.int32(count),
                         np.asarray(survey.profile.weight, jnp.result_type(float)),
                         example), cutter.known

    def _all(self, futures: Sequence[Any]) -> list[Any]:
        return [self.result(future) for future in futures]

    def result(self, future: Any) -> Any:
        """What a task found.

        Raises:
            DataError: there has been no worker for PATIENCE seconds.
        """
        alone = 0.0
        while True:
            try:
                return future.result(timeout=PAUSE)
            except TimeoutError:
                if future.status == "error":
                    raise  # the task's own; one that is finished may be slow to come here
                alone = 0.0 if self.client.scheduler_info()["workers"] else alone + PAUSE
                if alone >= PATIENCE:
                    raise DataError(f"the cluster has had no workers for {PATIENCE:.0f} seconds: "
                                    f"what was found since the last checkpoint is lost") from None


class _Workers(Pool):
    """Chunks on workers."""

    def __init__(self, cluster: Cluster, parts: list[Any]):
        super().__init__()
        self.cluster, self.parts = cluster, parts
        self.sent: dict[str, Any] = {}  # programs, of which each worker gets one copy

    def sum(self, program: Program, constants: Sequence[np.ndarray]) -> list[np.ndarray]:
        client = self.cluster.client
        if program.digest not in self.sent:
            # a task, which is made again elsewhere where a worker dies
            self.sent[program.digest] = client.submit(work.store_program, program.content,
                                                      pure=False)
        sums = [client.submit(work.total, program.digest, self.sent[program.digest],
                              program.double, part, list(constants), pure=False)
                for part in self.parts]
        while len(sums) > 1:
            sums = [client.submit(work.added, *group, pure=False) if len(group) > 1 else group[0]
                    for group in _grouped(sums, BRANCHES)]
        return self.cluster.result(sums[0])


def is_frame(data: object) -> bool:
    """Whether data are a Dask DataFrame."""
    return type(data).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(
        data, "to_delayed")


def is_client(where: object) -> bool:
    """Whether a place is a `dask.distributed.Client`."""
    return type(where).__module__.partition(".")[0] == "distributed" and hasattr(where, "submit")


def _grouped(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [values[i : i + size] for i in range(0, len(values), size)]
