"""Fits on a Dask cluster: partitions stay on their workers, and statistics come back as a tree of
sums. Dask schedules and repeats tasks: what a lost worker held is recomputed, and each partition is
counted once.

First the tasks of the workers, each a function of its arguments and of the rows there: profiles of
partitions, chunks, sums over chunks; then the cluster as a place of rows.

A model is sent as its function, by value, and its settings; structure and plan are made on the
worker, from the same profile.
"""

import contextlib
import functools
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data, Profile, Survey
from probml.dataset.source import Part, Source, Weighed
from probml.dataset.sources.parts import profile_source, sampled
from probml.dataset.sources.profile import merged
from probml.device.rows import Chunk, Known, Rows
from probml.device.sharded import Remote
from probml.device.streamed import Cut
from probml.engines.engine import Problem
from probml.errors import MARK_ROWS, DataError, Refusal, present
from probml.fits.places import Place, is_frame
from probml.language.language import Bound
from probml.numerics.outside.sent import Pool, Program, received_for_many
from probml.numerics.process.libraries import pd
from probml.structure.trace import trace
from probml.typing import DataLike


class PartitionSource(Source):
    """A partition of a Dask DataFrame as a source."""

    def __init__(self, frame: object, name: str):
        self.frame, self.name = frame, name

    def parts(self) -> Iterator[Part]:
        yield Part(self.name, self.frame)


class PartitionProfile(NamedTuple):
    """A profile of rows without the model, so that it can be pickled."""

    profile: Profile
    shapes: dict[str, tuple]

    @classmethod
    def of(cls, profile: Profile) -> "PartitionProfile":
        sample = profile.sample
        return cls(replace(profile, sample=without_model(sample)), sample.shapes)

    def with_model(self, model: Bound) -> Profile:
        """The profile with its model."""
        return replace(self.profile, sample=under_model(self.profile.sample, model, self.shapes))


class Recipe(NamedTuple):
    """How a partition becomes chunks."""

    model: bytes
    double: bool
    example: Data  # a row, without the model
    shapes: dict[str, tuple]
    profile: Profile  # of all rows, without their sample
    effects: tuple[str, ...]
    copies: int
    weights: str | None = None  # the column of them


def rows_of(frame: object, name: str, weights: str | None) -> Source:
    """A partition as a source, with its column of weights."""
    source = PartitionSource(frame, name)
    return source if weights is None else Weighed(source, weights)


def without_model(data: Data) -> Data:
    """Data without the model and its structure."""
    return data._replace(model=None, structure=None, survey=None)  # type: ignore[arg-type]


def under_model(data: Data, model: Bound, shapes: dict[str, tuple]) -> Data:
    """Data with a model and its structure."""
    return data._replace(model=model, structure=trace(model, shapes))


def portable(model: Bound) -> bytes:
    """A model as bytes for another process, its function by value where that cannot import it.

    Raises:
        Refusal: a function without rows(), which is read with its data.
    """
    import cloudpickle

    generative = model.generative
    if generative.found or generative.is_joint:
        raise Refusal(f"model '{model.name}' cannot be fitted on a cluster, because its function "
                      f"does not mark the independent rows. {MARK_ROWS}")
    return cloudpickle.dumps((type(model), type(generative), generative.function, model.settings,
                              model.interventions))


@functools.lru_cache(maxsize=8)
def model_of(content: bytes) -> Bound:
    """The model of `portable`."""
    kind, generative, function, settings, interventions = pickle.loads(content)
    return kind(generative(function), settings, interventions)


def profile_partition(content: bytes, double: bool, frame: object, name: str, n_before: int,
                      weights: str | None = None) -> PartitionProfile:
    """The profile of a partition; `n_before` rows stand before it."""
    with jax.enable_x64(double):
        return PartitionProfile.of(profile_source(model_of(content),
                                                  rows_of(frame, name, weights), n_before))


def merge(content: bytes, double: bool, one: PartitionProfile,
          other: PartitionProfile) -> PartitionProfile:
    """The profile of the rows of both."""
    with jax.enable_x64(double):
        model = model_of(content)
        return PartitionProfile.of(merged(one.with_model(model), other.with_model(model)))


def chunks(recipe: Recipe, frame: object, name: str, rows: int) -> list[Chunk]:
    """A partition as chunks on the host, several stacked in each array."""
    with jax.enable_x64(recipe.double):
        sample = under_model(recipe.example, model_of(recipe.model), recipe.shapes)
        survey = Survey(rows_of(frame, name, recipe.weights),
                        replace(recipe.profile, sample=sample), (name,), (rows,))
        data = sample._replace(survey=survey)
        plan = data.plan(effects=recipe.effects)
        return list(Cut.of(data, plan, recipe.copies, by_partition=True).read())


def total(digest: str, content: bytes, double: bool, parts: Sequence[Chunk],
          constants: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The sum of a program over chunks, in float64."""
    with jax.enable_x64(double):
        program, sums = received_for_many(digest, content), None
        for chunks in parts:
            values = map(np.asarray, program(list(constants), jax.tree.leaves(chunks)))
            batch = [value.sum(0, dtype=np.float64 if value.dtype.kind == "f" else np.int64)
                     for value in values]
            sums = batch if sums is None else [a + b for a, b in zip(sums, batch, strict=True)]
    return present(sums)


def added(*totals: list[np.ndarray]) -> list[np.ndarray]:
    """The elementwise sum of several lists of arrays."""
    return [functools.reduce(np.add, parts) for parts in zip(*totals, strict=True)]


SUMS_PER_TASK = 8  # that are added in one task
POLL_SECONDS, MAX_SECONDS_WITHOUT_WORKERS = 5.0, 120.0


@dataclass
class Cluster(Place):
    """The workers of a `dask.distributed.Client`."""

    client: Any
    frames: "list[pd.DataFrame]" = field(default_factory=list)
    weights: str | None = None  # the column of them

    def open_data(self, model: Bound, data: DataLike, weights: object) -> Data:
        """See parts.open_data; of a Dask DataFrame, whose partitions are profiled on the workers.

        Raises:
            DataError: another kind of data, no rows, or bad ones, named by partition and row.
        """
        if not is_frame(data):
            raise DataError(f"where={self.client!r}: expected a Dask DataFrame, such as "
                            f"dask.dataframe.read_parquet(path), got {type(data).__name__}. "
                            f"Convert a pandas DataFrame by dask.dataframe.from_pandas(table, "
                            f"npartitions=4)")
        if not (weights is None or isinstance(weights, str)):
            raise DataError("the data are a Dask DataFrame, so weights must be the name of one of "
                            "its columns, fit(frame, weights='...')")
        self.weights = weights
        double, content = jax.config.jax_enable_x64, portable(model)
        partitions = self.client.compute(data.to_delayed())
        counts = self._all([self.client.submit(len, frame) for frame in partitions])
        self.frames = [frame for frame, rows in zip(partitions, counts, strict=True) if rows]
        sizes = [rows for rows in counts if rows]
        if not sizes:
            raise DataError(f"model '{model.name}': the Dask DataFrame has no rows, expected at "
                            "least one. Check how it was read or filtered")
        names = [f"partition {i}" for i, rows in enumerate(counts) if rows]
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).tolist()
        profiles = [self.client.submit(profile_partition, content, double, frame, name, begin,
                                       weights)
                    for frame, name, begin in zip(self.frames, names, offsets, strict=True)]
        while len(profiles) > 1:
            profiles = [self.client.submit(merge, content, double, *pair) if len(pair) > 1
                        else pair[0] for pair in _grouped(profiles, 2)]
        profile = self._all(profiles)[0].with_model(model)
        source = rows_of(data, "the frame", weights)
        return sampled(Survey(source, profile, tuple(names), tuple(sizes)))

    @contextlib.contextmanager
    def shipped(self, problem: Problem, copies: int, reducible: bool, batch: int | None,
                whole: bool, apart: float = 0.0,
                runs: int = 1) -> Iterator[tuple[Rows, Known]]:
        obs, plan = problem.data, problem.plan
        if apart:
            raise Refusal(f"{problem}: held_out= is not supported for rows on a Dask cluster "
                          f"(where=client). Omit held_out=, and evaluate fit.score(...) on other "
                          f"rows")
        if batch is not None:
            raise Refusal(f"{problem}: batch_rows= is not supported for rows on a Dask cluster "
                          f"(where=client). Omit batch_rows=, or read the files in this process, "
                          f"fit(pyarrow.dataset.dataset(folder), ...)")
        survey, cutter = present(obs.survey), Cut.of(obs, plan, copies, by_partition=True)
        sample = obs.taken(np.arange(1))
        recipe = Recipe(
            portable(obs.model), jax.config.jax_enable_x64, without_model(sample), obs.shapes,
            replace(survey.profile, sample=None, ranks=survey.profile.ranks[:1]),  # type: ignore
            tuple(plan.effects), copies, self.weights
        )
        tasks = [self.client.submit(chunks, recipe, frame, name, rows) for frame, name, rows
                 in zip(self.frames, survey.names, survey.sizes, strict=True)]
        example = jax.tree.map(lambda leaf: leaf[0], cutter.pack(cutter.example, cutter.shape))
        count = cutter.shape[0] * sum(cutter.counted(rows) for rows in survey.sizes)
        with _Workers(self, tasks) as pool:
            yield Remote(np.int32(pool.number), np.int32(count),
                         np.asarray(survey.profile.weight, jnp.result_type(float)),
                         example), cutter.known

    def _all(self, futures: Sequence[Any]) -> list[Any]:
        return [self.result(future) for future in futures]

    def result(self, future: Any) -> Any:
        """The result of a task.

        Raises:
            DataError: there has been no worker for MAX_SECONDS_WITHOUT_WORKERS seconds.
        """
        waited = 0.0
        while True:
            try:
                return future.result(timeout=POLL_SECONDS)
            except TimeoutError:
                if future.status == "error":
                    raise  # the task's own; one that is finished may be slow to come here
                waited = 0.0 if self.client.scheduler_info()["workers"] else waited + POLL_SECONDS
                if waited >= MAX_SECONDS_WITHOUT_WORKERS:
                    raise DataError(f"the fit was stopped, because the cluster had no workers for "
                                    f"{MAX_SECONDS_WITHOUT_WORKERS:.0f} seconds. The iterations "
                                    f"since the last checkpoint are lost. Start workers, and fit "
                                    f"again") from None


class _Workers(Pool):
    """Chunks on workers."""

    def __init__(self, cluster: Cluster, parts: list[DataLike]):
        super().__init__()
        self.cluster, self.parts = cluster, parts
        self.programs: dict[str, Any] = {}  # programs, of which each worker gets one copy

    def sum(self, program: Program, constants: Sequence[np.ndarray]) -> list[np.ndarray]:
        client = self.cluster.client
        if program.digest not in self.programs:
            # a task whose result stays on a worker, and which is made again where that one dies
            self.programs[program.digest] = client.submit(bytes, program.content, pure=False)
        sums = [client.submit(total, program.digest, self.programs[program.digest],
                              program.double, part, list(constants), pure=False)
                for part in self.parts]
        while len(sums) > 1:
            sums = [client.submit(added, *group, pure=False) if len(group) > 1 else group[0]
                    for group in _grouped(sums, SUMS_PER_TASK)]
        return self.cluster.result(sums[0])


def _grouped(values: Sequence, size: int) -> list[Sequence]:
    return [values[i : i + size] for i in range(0, len(values), size)]
