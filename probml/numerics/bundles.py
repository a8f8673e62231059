"""Concatenation of arrays of one kind, so that many small tables compile as fast as one."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Bundle:
    """Named arrays that are concatenated along their value axes, or a single array."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    event: tuple[int, ...] | None  # shape of a value; None: a single array

    @property
    def ranks(self) -> list[int]:
        """The number of axes of each array in front of its event axes."""
        return [len(shape) - len(self.event or ()) for shape in self.shapes]

    @property
    def joined(self) -> tuple[int, ...]:
        """Shape of the concatenated array."""
        if self.event is None:
            return self.shapes[0]
        return (sum(math.prod(shape[:rank]) for shape, rank in zip(self.shapes, self.ranks,
                                                                   strict=True)), *self.event)

    def join(self, arrays: Mapping, lead: int = 0,
             numpy: ModuleType = jnp) -> jax.Array | np.ndarray:
        """Returns the arrays concatenated, (*lead axes, values, *event). The trailing axes may
        differ from the event, if the arrays are functions of the values.

        Args:
            lead: number of leading axes, the same for all.
            numpy: the module that concatenates.
        """
        if self.event is None:
            return arrays[self.names[0]]
        parts = [arrays[name] for name in self.names]
        flat = [a.reshape(*a.shape[:lead], -1, *a.shape[lead + rank :])
                for a, rank in zip(parts, self.ranks, strict=True)]
        return numpy.concatenate(flat, lead)

    def part(self, joined: jax.Array, cut: Callable) -> dict[str, jax.Array]:
        """Returns the separate arrays, the inverse of `join` without leading axes.

        Args:
            cut: (array, sizes) → pieces along the first axis.
        """
        if self.event is None:
            return {self.names[0]: joined}
        batches = [shape[:rank] for shape, rank in zip(self.shapes, self.ranks, strict=True)]
        pieces = cut(joined, [math.prod(batch) for batch in batches])
        return {n: piece.reshape((*b, *piece.shape[1:]))
                for n, piece, b in zip(self.names, pieces, batches, strict=True)}
