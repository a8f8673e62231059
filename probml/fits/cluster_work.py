"""What the workers of a cluster do for a fit, each a function of what is sent to it and of rows
that are there: the first look, chunks, sums over them. Nothing here knows the cluster.

A model travels as its function by value and its settings; structure and plan are made again where
it arrives, from the same profile.
"""

import functools
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from probml.dataset.dataset import Data, Profile, Survey
from probml.dataset.source import Part, Source, Weighed
from probml.dataset.sources.parts import profile_source
from probml.dataset.sources.profile import merged
from probml.device.rows import Chunk
from probml.device.streamed import Cut
from probml.errors import Refusal, present
from probml.language.language import Bound
from probml.numerics.outside.sent import received_for_many
from probml.structure.trace import trace


class Frame(Source):
    """A partition."""

    def __init__(self, frame: object, name: str):
        self.frame, self.name = frame, name

    def parts(self) -> Iterator[Part]:
        yield Part(self.name, self.frame)


class Look(NamedTuple):
    """A profile without what cannot travel."""

    profile: Profile
    shapes: dict[str, tuple]

    @classmethod
    def of(cls, profile: Profile) -> "Look":
        sample = profile.sample
        return cls(replace(profile, sample=bare(sample)), sample.shapes)

    def dressed(self, model: Bound) -> Profile:
        """The profile under a model."""
        return replace(self.profile, sample=under(self.profile.sample, model, self.shapes))


class Recipe(NamedTuple):
    """How a partition becomes chunks."""

    model: bytes
    double: bool
    some: Data  # a row, bare
    shapes: dict[str, tuple]
    profile: Profile  # of all rows, without their sample
    effects: tuple[str, ...]
    copies: int
    weights: str | None = None  # the column of them


def rows_of(frame: object, name: str, weights: str | None) -> Source:
    """A partition, its weights apart."""
    return Frame(frame, name) if weights is None else Weighed(Frame(frame, name), weights)


def bare(data: Data) -> Data:
    """Data without the model and its structure."""
    return data._replace(model=None, structure=None, survey=None)  # type: ignore[arg-type]


def under(data: Data, model: Bound, shapes: dict[str, tuple]) -> Data:
    """Bare data under a model."""
    return data._replace(model=model, structure=trace(model, shapes))


def portable(model: Bound) -> bytes:
    """A model for another process, its function by value where that cannot import it.

    Raises:
        Refusal: it is read by its data, and not by itself.
    """
    import cloudpickle

    generative = model.generative
    if generative.found or generative.whole:
        raise Refusal(f"model '{model.name}' cannot be sent to a cluster, since it names no rows: "
                      f"write `with probml.rows():` in the place of their plate")
    return cloudpickle.dumps((type(model), type(generative), generative.function, model.settings,
                              model.interventions))


@functools.lru_cache(maxsize=8)
def model_of(content: bytes) -> Bound:
    """A model that was sent."""
    kind, generative, function, settings, interventions = pickle.loads(content)
    return kind(generative(function), settings, interventions)


def look(content: bytes, double: bool, frame: object, name: str, first: int,
         weights: str | None = None) -> Look:
    """The profile of a partition; `first` rows stand before it."""
    with jax.enable_x64(double):
        return Look.of(profile_source(model_of(content), rows_of(frame, name, weights), first))


def merge(content: bytes, double: bool, one: Look, other: Look) -> Look:
    """The profile of both."""
    with jax.enable_x64(double):
        model = model_of(content)
        return Look.of(merged(one.dressed(model), other.dressed(model)))


def chunks(recipe: Recipe, frame: object, name: str, rows: int) -> list[Chunk]:
    """A partition as chunks on the host, several behind one another."""
    with jax.enable_x64(recipe.double):
        some = under(recipe.some, model_of(recipe.model), recipe.shapes)
        survey = Survey(rows_of(frame, name, recipe.weights),
                        replace(recipe.profile, sample=some), (name,), (rows,))
        data = some._replace(survey=survey)
        plan = data.plan(effects=recipe.effects)
        return list(Cut.of(data, plan, recipe.copies, alone=True).read())


def store_program(content: bytes) -> bytes:
    """The bytes of a program, which stay on the worker."""
    return content


def total(digest: str, content: bytes, double: bool, parts: Sequence[Chunk],
          constants: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Σ over chunks of a program, in double."""
    with jax.enable_x64(double):
        program, found = received_for_many(digest, content), None
        for chunks in parts:
            own = [_to_64_bit(value).sum(0)
                   for value in program(list(constants), jax.tree.leaves(chunks))]
            found = own if found is None else [a + b for a, b in zip(found, own, strict=True)]
    return present(found)


def added(*totals: list[np.ndarray]) -> list[np.ndarray]:
    """The sum of several."""
    return [functools.reduce(np.add, parts) for parts in zip(*totals, strict=True)]


def _to_64_bit(value: object) -> np.ndarray:
    array = np.asarray(value)
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
