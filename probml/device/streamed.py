"""Rows that no memory holds: each pass reads them anew, chunk by chunk, while the chunk before is
worked on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data
from probml.dataset.sources.parts import Reader
from probml.device.load import Kinds, located, packed
from probml.device.rows import Chunk, Known, Rows
from probml.errors import Refusal
from probml.numerics.outside import feeding
from probml.numerics.transfer import placed
from probml.plan.plan import Plan


@dataclass(frozen=True)
class Streamed(Rows):
    """Rows of a feed. Programs know the shapes of a chunk; which feed it is, how many chunks it has
    and what they weigh are operands: other data of such chunks compile nothing."""

    number: Any  # () int32, of the feed
    count: Any  # () int32, chunks
    total_weight: Any  # ()
    leaves: tuple[jax.ShapeDtypeStruct, ...]
    form: Any  # the tree of a chunk

    held = False
    several = True

    @property
    def chunks(self) -> int:
        return self.count

    @property
    def size(self) -> int:
        return self._specs.weights.shape[0]

    @property
    def weight(self) -> float:
        return float(self.total_weight)

    @property
    def first(self) -> Chunk:
        return self._chunk(np.int32(0))

    @property
    def _specs(self) -> Chunk:
        return jax.tree.unflatten(self.form, self.leaves)

    def _chunk(self, i: Any) -> Chunk:
        return feeding.chunk(self.number, i, self._specs)

    def fold(self, step: Callable, init: Any, *along: Any) -> tuple[Any, Any]:
        """As Rows.fold, of steps that say nothing: there is no room for something of each chunk."""
        silence: list[Any] = []  # the tree of nothing

        def turn(i: Any, carry: Any) -> Any:
            carry, said = step(carry, self._chunk(i), *along)
            silence.append(said)
            _refuse(said)
            return carry

        _refuse(along)
        return jax.lax.fori_loop(0, self.count, turn, init), silence[-1]


def _refuse(kept: Any) -> None:
    if jax.tree.leaves(kept):
        raise Refusal("rows that are read in parts have no room for something of each row: pass "
                      "them in memory")


jax.tree_util.register_dataclass(Streamed, data_fields=["number", "count", "total_weight"],
                                 meta_fields=["leaves", "form"])


@dataclass(frozen=True)
class Cut:
    """How the rows of a source become chunks of one shape.

    Attributes:
        reader: of its pieces. chunk: a piece as a chunk on the host; no JAX in it.
        specs: the shapes and types of a chunk. known: what all rows share.
    """

    reader: Reader
    chunk: Callable[[Data], Chunk]
    specs: Chunk
    known: Known

    @classmethod
    def of(cls, data: Data, plan: Plan, copies: int = 1) -> "Cut":
        """Of a source, see parts.opened.

        Args:
            copies: how many parameter values the rows will be met with at once.
        """
        assert data.survey is not None
        profile, sites, dtype = data.survey.profile, data.structure.sites, jnp.result_type(float)
        most = min(plan.chunk_rows(copies), max(profile.sizes))
        size = -(-max(profile.sizes) // -(-max(profile.sizes) // most))
        kinds = Kinds(dtype, jnp.result_type(int))
        centre, spread = located(plan, profile.moments, profile.rows)
        reader = Reader(data, size, {name: found.mean for name, found in profile.moments.items()})

        def chunk(piece: Data) -> Chunk:
            weight = np.zeros(size)
            weight[: piece.table.rows] = 1.0
            made = packed(piece, plan, centre, weight, (1, size), kinds, most=True)
            return jax.tree.map(lambda leaf: leaf[0].astype(types[leaf.dtype], copy=False), made)

        types = {kind: jax.dtypes.canonicalize_dtype(kind) for kind in map(np.dtype, (
            "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
            "float32", "float64"))}
        some = data.taken(np.arange(min(size, data.table.rows)))
        specs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), chunk(some))
        given = {name: placed(value, jnp.result_type(int if sites[name].discrete else float))
                 for name, value in data.table.values.items()}
        known = Known(given, {name: placed(value, dtype) for name, value in centre.items()}, spread)
        return cls(reader, chunk, specs, known)

    def read(self) -> Iterator[Chunk]:
        """A pass: chunk after chunk."""
        return map(self.chunk, self.reader.pieces())


def streamed(data: Data, plan: Plan, copies: int = 1) -> tuple[feeding.Feed, Streamed, Known]:
    """The rows of a source, a feed to be opened around whatever passes over them, and what all rows
    share, from the profile.

    Args:
        data: see parts.opened. copies: as for Cut.of.

    Cost: two chunks of memory and one part of the source, whatever the number of rows.
    """
    assert data.survey is not None
    cutter = Cut.of(data, plan, copies)
    feed = feeding.Feed(cutter.read, cutter.specs, cutter.reader.count)
    leaves, form = jax.tree.flatten(cutter.specs)
    weight = np.asarray(data.survey.profile.rows, jnp.result_type(float))
    rows = Streamed(np.int32(feed.number), np.int32(feed.count), weight, tuple(leaves), form)
    return feed, rows, cutter.known
