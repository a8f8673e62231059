"""Arrays of one kind treated as one: many small tables are then no longer to compile than a few."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Bundle:
    """Named arrays whose values lie behind one another, or one array as it is."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    event: tuple[int, ...] | None  # the axes of a value; None: one array as it is

    @property
    def ranks(self) -> list[int]:
        """How many axes of each array count its values."""
        return [len(shape) - len(self.event or ()) for shape in self.shapes]

    @property
    def joined(self) -> tuple[int, ...]:
        """The shape of the arrays as one."""
        if self.event is None:
            return self.shapes[0]
        return (sum(math.prod(shape[:rank]) for shape, rank in zip(self.shapes, self.ranks,
                                                                   strict=True)), *self.event)

    def join(self, arrays: Mapping, lead: int = 0, numpy: Any = jnp) -> jax.Array:
        """The arrays as one, (values, *event); behind the values stands, in place of the event,
        whatever was made of each.

        Args:
            lead: axes before those of the values, the same for all.
        """
        if self.event is None:
            return arrays[self.names[0]]
        found = [arrays[name] for name in self.names]
        flat = [a.reshape(*a.shape[:lead], -1, *a.shape[lead + rank :])
                for a, rank in zip(found, self.ranks, strict=True)]
        return numpy.concatenate(flat, lead)

    def part(self, joined: jax.Array, cut: Callable) -> dict[str, jax.Array]:
        """The inverse of `join` without leading axes; `cut(array, sizes)` cuts along the first
        axis."""
        if self.event is None:
            return {self.names[0]: joined}
        batches = [shape[:rank] for shape, rank in zip(self.shapes, self.ranks, strict=True)]
        pieces = cut(joined, [math.prod(batch) for batch in batches])
        return {n: piece.reshape((*b, *piece.shape[1:]))
                for n, piece, b in zip(self.names, pieces, batches, strict=True)}
