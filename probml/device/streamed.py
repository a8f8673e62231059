"""Rows that no memory holds: each pass reads them anew, several chunks at a time, while those
before are worked on."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data
from probml.dataset.sources.parts import Reader
from probml.dataset.sources.profile import grouped, joined
from probml.device.lanes import Kinds, Lanes, fitting_rows, located_along, sparse
from probml.device.layout import bucket
from probml.device.load import Room, located, packed, placed_values, used
from probml.device.rows import Chunk, Known, Resident, Rows
from probml.errors import Refusal, present
from probml.numerics.outside import feeding
from probml.numerics.transfer import aligned, placed
from probml.plan.plan import Plan

NUMBERS = 2**20  # numbers that are fed at once: a call from the program to Python has its price
TOGETHER = 16  # chunks that a worker of a cluster meets by one call
ROOMS = 3  # chunks of a feed: one that is used, the next, and that which is being made
FIXED = 8  # feeds of a pass from which on their shapes are the same for any number of rows


@dataclass(frozen=True)
class Streamed(Rows):
    """Rows of a feed, so many chunks each time. Programs know the shapes of these; which feed it
    is, how often it is asked in a pass and what all rows weigh are operands: other data of such
    chunks compile nothing.

    Attributes:
        mixed: the same rows in batches, for engines that take them; see device/mixed.py.
        apart, held_apart: others, from which is not learnt, and how many; see device/held_out.py.
    """

    number: Any  # () int32, of the feed
    count: Any  # () int32, feeds of a pass
    total_weight: Any  # ()
    leaves: tuple[jax.ShapeDtypeStruct, ...]
    form: Any  # the tree of chunks
    mixed: "Mixed | None" = None
    apart: "Streamed | None" = None
    held_apart: Any = None  # () int32

    held = False
    several = True

    @property
    def together(self) -> int:
        """Chunks of a feed."""
        return self._specs.weights.shape[0]

    @property
    def chunks(self) -> int:
        return self.count * self.together

    @property
    def size(self) -> int:
        return self._specs.weights.shape[1]

    @property
    def first(self) -> Chunk:
        return self._chunk_at(np.int32(0)).first

    @property
    def _specs(self) -> Chunk:
        return jax.tree.unflatten(self.form, self.leaves)

    @property
    def fed(self) -> int:
        """Numbers that a pass brings."""
        return int(self.count) * sum(math.prod(leaf.shape) for leaf in self.leaves)

    def _chunk_at(self, i: object) -> Resident:
        return Resident(feeding.chunk(self.number, i, self._specs))

    def fold(self, step: Callable, init: object, *along: object) -> tuple[Any, Any]:
        """As Rows.fold, of steps that say nothing: there is no room for something of each chunk."""
        silence: list[Any] = []  # the tree of nothing

        def turn(i: jax.Array, carry: object) -> Any:
            carry, said = self._chunk_at(i).fold(lambda carry, chunk: step(carry, chunk, *along),
                                                 carry)
            silence.append(said)
            _refuse(said)
            return carry

        _refuse(along)
        return jax.lax.fori_loop(0, self.count, turn, init), silence[-1]

    def walk(self, step: Callable, init: object, size: int, key: jax.Array, epoch: object) -> Any:
        """As Rows.walk, in the order of the mixed rows."""
        mixed = self._batches(size)

        def turn(i: object, carry: object) -> Any:
            return step(carry, mixed.batch(epoch * mixed.count + i))

        return jax.lax.fori_loop(0, mixed.count, turn, init)

    def ordered(self, key: jax.Array, epoch: int, rows: int) -> Any:
        """As Rows.ordered: the number of the epoch's first batch."""
        return np.int32(epoch) * present(self.mixed).count

    def batch(self, order: Any, i: Any, size: int) -> Rows:
        return self._batches(size).batch(order + i)

    def drawn(self, key: jax.Array, step: Any, size: int, rows: int) -> Rows:
        """As Rows.drawn, without replacement in an epoch, whose last rows may stay behind."""
        mixed, whole = self._batches(size), rows // size
        return mixed.batch(step // whole * mixed.count + step % whole)

    def _batches(self, size: int) -> "Mixed":
        if self.mixed is None or self.mixed.size != size:
            raise Refusal("rows that are read in batches need an engine with a batch size, "
                          "`batch_rows=`")
        return self.mixed


def _refuse(kept: object) -> None:
    if jax.tree.leaves(kept):
        raise Refusal("results for each row are not stored for rows that are read in batches: pass "
                      "them in memory")


@dataclass(frozen=True)
class Mixed:
    """Batches of a feed without an end, epoch after epoch."""

    number: Any  # () int32, of the feed
    count: Any  # () int32, batches of an epoch
    leaves: tuple[jax.ShapeDtypeStruct, ...]
    form: Any  # the tree of a batch, which is one chunk

    @property
    def size(self) -> int:
        """Rows of a batch."""
        return jax.tree.unflatten(self.form, self.leaves).weights.shape[1]

    def batch(self, i: object) -> Resident:
        """The i-th since the first epoch began."""
        return Resident(feeding.chunk(self.number, i, jax.tree.unflatten(self.form, self.leaves)))


jax.tree_util.register_dataclass(Streamed, meta_fields=["leaves", "form"],
                                 data_fields=["number", "count", "total_weight", "mixed", "apart",
                                              "held_apart"])
jax.tree_util.register_dataclass(Mixed, meta_fields=["leaves", "form"],
                                 data_fields=["number", "count"])


@dataclass(frozen=True)
class Cut:
    """How the rows of a source become chunks of one shape.

    Attributes:
        reader: of its parts. shape: chunks that are made at once, and rows of a chunk.
        pack: rows as chunks of a shape, on the host, the last padded at weight 0; no JAX in it. A
            Room, if given, holds them.
        some: a few rows. known: what all rows share.
    """

    reader: Reader
    shape: tuple[int, int]
    pack: Callable[..., Chunk]
    some: Data
    known: Known

    @classmethod
    def of(cls, data: Data, plan: Plan, copies: int = 1, alone: bool = False) -> "Cut":
        """Of a source, see parts.open_data.

        Args:
            copies: how many parameter values the rows will be met with at once.
            alone: of parts that are cut by themselves, the largest into equal chunks.
        """
        survey, sites, dtype = present(data.survey), data.structure.sites, jnp.result_type(float)
        profile = survey.profile
        kinds = Kinds(dtype, jnp.result_type(int))
        still = {name: found for name, found in profile.moments.items() if sites[name].time is None}
        centre, spread = located(plan, still, profile.weight)
        for name in (n for n in profile.moments if n in plan.centred and n not in still):
            centre[name], wide = located_along(sites[name], profile.moments[name])
            spread[name] = placed(wide, dtype)
        improbable = bool(data.steps) and sparse(plan, {})

        def pack(piece: Data, shape: tuple[int, int], room: Callable = aligned, at: int = 0,
                 until: int | None = None) -> Chunk:
            end, weight = at + piece.table.rows, room((shape[0] * shape[1],), kinds.real)
            weight[at:end] = 1.0 if piece.weights is None else piece.weights
            weight[end:] = 0.0
            made = packed(piece, plan, centre, weight, shape, kinds, most=True, room=room, at=at,
                          until=until)
            if piece.steps is not None:
                lanes = Lanes(piece, plan, weight, None, shape, improbable, kinds, place=np.asarray,
                              most=True)
                made = made._replace(steps=lanes.load(used(piece, plan), centre, spread))
            return jax.tree.map(lambda leaf: leaf.astype(types[leaf.dtype], copy=False), made)

        types = {kind: jax.dtypes.canonicalize_dtype(kind) for kind in map(np.dtype, (
            "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
            "float32", "float64"))}
        most = fitting_rows(plan, data.steps, copies)
        shape = _even_chunks(max(profile.sizes), most) if alone else _shape(
            most, survey.rows if survey.chosen else profile.rows, max(data.numbers, 1))
        return cls(Reader(data), shape, pack, data.taken(np.arange(1)),
                   placed_values(data, centre, spread))

    @property
    def rows(self) -> int:
        """Of all chunks that are made at once."""
        return self.shape[0] * self.shape[1]

    def counted(self, rows: int) -> int:
        """How often chunks are made of so many rows."""
        return -(-rows // self.rows)

    def specs(self, shape: tuple[int, int]) -> Chunk:
        """The shapes and types of chunks."""
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype),
                            self.pack(self.some, shape))

    def read(self) -> Iterator[Chunk]:
        """A pass: chunks after chunks."""
        for pieces in grouped(self.reader.batches(), self.rows):
            yield self._packed(pieces, Room())

    def _packed(self, pieces: list[Data], room: Room) -> Chunk:
        """Rows behind one another as chunks; each piece is written to its place."""
        if pieces[0].steps is not None:
            return self.pack(joined(pieces), self.shape, room.rewind())
        at, until = 0, sum(piece.table.rows for piece in pieces)
        for piece in pieces:
            made = self.pack(piece, self.shape, room.rewind(), at, until)
            at += piece.table.rows
        return made

    def read_with_buffers(self) -> Iterator[Chunk]:
        """As `read`, with buffers that are reused: a chunk may be overwritten from the third on
        that comes after it, when a program has its own copy."""
        if jax.default_backend() != "cpu":  # where a copy may be under way
            yield from self.read()
            return
        rooms = itertools.cycle([Room() for _ in range(ROOMS)])
        for pieces in grouped(self.reader.batches(), self.rows):
            yield self._packed(pieces, next(rooms))


def _shape(most: int, rows: int, numbers: int) -> tuple[int, int]:
    """Chunks of at most so many rows that are fed at once, and the rows of each: the same for many
    rows, of few so that little is padded."""
    fed = max(NUMBERS // numbers // most, 1)
    if rows > FIXED * fed * most:
        return fed, most
    few = bucket(rows)
    together = -(-_even(few, fed * most) // most)
    return together, -(-_even(few, fed * most) // together)


def _even_chunks(rows: int, most: int) -> tuple[int, int]:
    """Chunks of at most so many rows that are met by one call, as even as the largest part allows,
    and the rows of each."""
    size = _even(rows, most)
    return _even(-(-rows // size), TOGETHER), size


def _even(rows: int, most: int) -> int:
    """The size of as few pieces as no more than `most` rows allow."""
    return -(-rows // -(-rows // most))


def streamed(data: Data, plan: Plan, copies: int = 1) -> tuple[feeding.Feed, Streamed, Known]:
    """The rows of a source, a feed to be opened around whatever passes over them, and what all rows
    share, from the profile.

    Args:
        data: see parts.open_data. copies: as for Cut.of.

    Cost: two feeds of memory and one part of the source, whatever the number of rows.
    """
    assert data.survey is not None
    cutter = Cut.of(data, plan, copies)
    specs = cutter.specs(cutter.shape)
    feed = feeding.Feed(cutter.read_with_buffers, specs, cutter.counted(data.survey.rows))
    leaves, form = jax.tree.flatten(specs)
    profile = data.survey.profile
    share = data.survey.rows / profile.rows if data.survey.chosen else 1.0  # about
    weight = np.asarray(profile.weight * share, jnp.result_type(float))
    rows = Streamed(np.int32(feed.number), np.int32(feed.count), weight, tuple(leaves), form)
    return feed, rows, cutter.known
