"""Rows that lie in the memories of other processes, which pass over them there: what comes back is
the sum."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from probml.device.rows import Chunk, Rows
from probml.errors import Refusal
from probml.numerics.outside import sent


@dataclass(frozen=True)
class Remote(Rows):
    """Rows of a pool (numerics/outside/sent.py). Programs know the shapes of a chunk; which pool it
    is and what its rows weigh are operands."""

    number: Any  # () int32, of the pool
    count: Any  # () int32, chunks
    total_weight: Any  # ()
    example: Chunk  # one of them

    held = False
    several = True

    @property
    def chunks(self) -> int:
        return self.count

    @property
    def size(self) -> int:
        return self.example.weights.shape[0]

    @property
    def first(self) -> Chunk:
        return self.example

    def fold(self, step: Callable, init: Any, *along: Any) -> tuple[Any, Any]:
        raise Refusal("rows on a cluster have no fixed order, which this needs: pass rows in "
                      "memory", ("EM", "MAP"))

    def accumulate(self, function: Callable, *along: Any) -> tuple[Any, Any]:
        """As Rows.accumulate, of functions that say nothing of a chunk; sums are made in double."""
        said: list[Any] = []

        def total(chunk: Chunk) -> Any:
            found, own = function(chunk, *along)
            if jax.tree.leaves(own):
                raise Refusal("results for each row are not stored for rows on a cluster: pass "
                              "them in memory")
            said.append(own)
            return found

        specs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype),
                             self.example)
        return sent.summed(total, self.number, specs), said[-1]


jax.tree_util.register_dataclass(Remote, meta_fields=[],
                                 data_fields=["number", "count", "total_weight", "example"])
