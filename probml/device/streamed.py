"""Rows that do not fit into memory: each pass reads them again from the source, several chunks at a
time, while the previous chunks are processed; or random minibatches of them: the source yields them
in a partly random order, and a shuffle buffer mixes them further.

An epoch of minibatches contains every row once. Its order depends only on seed and epoch, so that a
resumed fit uses the same batches as one that was not interrupted.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.dataset.dataset import Data
from probml.dataset.sources.parts import Reader
from probml.dataset.sources.profile import grouped, joined
from probml.device.lanes import Kinds, Lanes, located_along, may_underflow
from probml.device.layout import bucket, fitting_rows
from probml.device.load import Room, centres_and_scales, pack_chunks, placed_values, used_columns
from probml.device.rows import Chunk, Known, Resident, Rows
from probml.errors import Refusal, present
from probml.numerics.outside import feeding
from probml.numerics.transfer import aligned, placed
from probml.plan.plan import Plan
from probml.typing import PyTree

NUMBERS = 2**20  # numbers per callback from the program to Python, which has a fixed cost
TOGETHER = 16  # chunks that a worker of a cluster processes per call, at most
ROOMS = 3  # buffers: one in use, the next, and one that is being filled
FIXED = 8  # callbacks per pass above which shapes no longer depend on the number of rows


@dataclass(frozen=True)
class Streamed(Rows):
    """Rows that a program obtains from a feed (callbacks to Python), some chunks per call. The
    shapes of the chunks are static; the number of the feed, the calls per pass and the total weight
    are operands, so that other data with chunks of these shapes compile nothing.

    Attributes:
        mixed: the same rows from an endless feed of random batches, one chunk each, epoch after
            epoch, for minibatch engines; see `open_batches`.
        held_out, n_held_out: held-out rows and their number; see device/held_out.py.
    """

    number: ArrayLike  # () int32, of the feed
    count: ArrayLike  # () int32, calls of the feed per pass
    total_weight: ArrayLike  # ()
    leaves: tuple[jax.ShapeDtypeStruct, ...]
    form: object  # the tree structure of the chunks
    mixed: "Streamed | None" = None
    held_out: "Streamed | None" = None
    n_held_out: ArrayLike | None = None  # () int32

    in_memory = False
    several = True

    @property
    def together(self) -> int:
        """Chunks per call of the feed."""
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
    def n_numbers(self) -> int:
        """Numbers that a pass reads."""
        return int(self.count) * sum(math.prod(leaf.shape) for leaf in self.leaves)

    def _chunk_at(self, i: object) -> Resident:
        return Resident(feeding.chunk(self.number, i, self._specs))

    def fold(self, step: Callable, init: object, *along: object) -> tuple[PyTree, PyTree]:
        """As Rows.fold, for steps without output: outputs for each chunk are not stored."""
        outputs: list[PyTree] = []  # the tree structure of the empty output

        def turn(i: jax.Array, carry: object) -> PyTree:
            carry, output = self._chunk_at(i).fold(lambda carry, chunk: step(carry, chunk, *along),
                                                   carry)
            outputs.append(output)
            _refuse(output)
            return carry

        _refuse(along)
        return jax.lax.fori_loop(0, self.count, turn, init), outputs[-1]

    def walk(self, step: Callable, init: object, size: int, key: jax.Array,
             epoch: object) -> PyTree:
        """As Rows.walk, in the order of the mixed rows."""
        mixed = self._batches(size)
        return jax.lax.fori_loop(0, mixed.count, lambda i, carry: step(
            carry, mixed._chunk_at(epoch * mixed.count + i)), init)

    def ordered(self, key: jax.Array, epoch: int, rows: int) -> PyTree:
        """As Rows.ordered: the number of the epoch's first batch."""
        return np.int32(epoch) * present(self.mixed).count

    def batch(self, order: PyTree, i: ArrayLike, size: int) -> Rows:
        return self._batches(size)._chunk_at(order + i)

    def drawn(self, key: jax.Array, step: ArrayLike, size: int, rows: int) -> Rows:
        """As Rows.drawn, but without replacement within an epoch; the last rows % size rows of an
        epoch are not used."""
        mixed, n_batches = self._batches(size), rows // size
        return mixed._chunk_at(step // n_batches * mixed.count + step % n_batches)

    def _batches(self, size: int) -> "Streamed":
        if self.mixed is None or self.mixed.size != size:
            raise Refusal("the data are read in batches, so the engine needs the number of rows of "
                          "a batch. Set it, such as probml.EM(batch_rows=1000)")
        return self.mixed


def _refuse(outputs: object) -> None:
    if jax.tree.leaves(outputs):
        raise Refusal("this method returns one result per row, which is not supported for data "
                      "that are read in batches. Pass a table in memory, or use fit.answer(source, "
                      "ask=[...], to=path)")


jax.tree_util.register_dataclass(Streamed, meta_fields=["leaves", "form"],
                                 data_fields=["number", "count", "total_weight", "mixed",
                                              "held_out", "n_held_out"])


@dataclass(frozen=True)
class Cut:
    """Cuts the rows of a source into chunks of one shape.

    Attributes:
        reader: reads the partitions of the source. shape: (chunks made at once, rows per chunk).
        pack: converts rows to chunks of a shape, on the host and without JAX, the last one padded
            at weight 0; into the buffers of a Room, if given.
        example: one row, from which the shapes are derived. known: values that all rows share.
    """

    reader: Reader
    shape: tuple[int, int]
    pack: Callable[..., Chunk]
    example: Data
    known: Known

    @classmethod
    def of(cls, data: Data, plan: Plan, copies: int = 1, by_partition: bool = False) -> "Cut":
        """For an opened source, see parts.open_data.

        Args:
            copies: number of parameter values at which the rows are evaluated at once.
            by_partition: each partition is cut separately, the largest into equal chunks.
        """
        survey, sites, dtype = present(data.survey), data.structure.sites, jnp.result_type(float)
        profile = survey.profile
        kinds = Kinds(dtype, jnp.result_type(int))
        fixed = {name: found for name, found in profile.moments.items() if sites[name].time is None}
        centre, spread = centres_and_scales(plan, fixed, profile.weight)
        for name in (n for n in profile.moments if n in plan.centred and n not in fixed):
            centre[name], sd = located_along(sites[name], profile.moments[name])
            spread[name] = placed(sd, dtype)
        log_space = bool(data.steps) and may_underflow(plan, {})

        def pack(piece: Data, shape: tuple[int, int], room: Callable = aligned, at: int = 0,
                 until: int | None = None) -> Chunk:
            end, weight = at + piece.table.rows, room((shape[0] * shape[1],), kinds.real)
            weight[at:end] = 1.0 if piece.weights is None else piece.weights
            weight[end:] = 0.0
            chunk = pack_chunks(piece, plan, centre, weight, shape, kinds, any_na=True, room=room,
                                at=at, until=until)
            if piece.steps is not None:
                lanes = Lanes(piece, plan, weight, None, shape, log_space, kinds,
                              to_device=np.asarray, any_missing=True)
                chunk = chunk._replace(steps=lanes.load(used_columns(piece, plan), centre, spread))
            return jax.tree.map(lambda leaf: leaf.astype(types[leaf.dtype], copy=False), chunk)

        types = {kind: jax.dtypes.canonicalize_dtype(kind) for kind in map(np.dtype, (
            "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
            "float32", "float64"))}
        limit = fitting_rows(plan, data.steps, copies)
        shape = _even_chunks(max(profile.sizes), limit) if by_partition else _shape(
            limit, survey.rows if survey.chosen else profile.rows, max(data.numbers, 1))
        return cls(Reader(data), shape, pack, data.taken(np.arange(1)),
                   placed_values(data, centre, spread))

    @property
    def rows(self) -> int:
        """Rows in all chunks that are made at once."""
        return self.shape[0] * self.shape[1]

    def counted(self, rows: int) -> int:
        """Number of times that chunks are made for `rows` rows."""
        return -(-rows // self.rows)

    def specs(self, shape: tuple[int, int]) -> Chunk:
        """The shapes and dtypes of chunks, as ShapeDtypeStruct leaves."""
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype),
                            self.pack(self.example, shape))

    def read(self) -> Iterator[Chunk]:
        """A pass over the source, yielding shape[0] chunks at a time."""
        for pieces in grouped(self.reader.batches(), self.rows):
            yield self._packed(pieces, Room())

    def _packed(self, pieces: list[Data], room: Room) -> Chunk:
        """The rows of the pieces, concatenated, as chunks; each piece is written directly to its
        place in the buffers."""
        if pieces[0].steps is not None:
            return self.pack(joined(pieces), self.shape, room.rewind())
        start, until = 0, sum(piece.table.rows for piece in pieces)
        for piece in pieces:
            chunk = self.pack(piece, self.shape, room.rewind(), start, until)
            start += piece.table.rows
        return chunk

    def read_with_buffers(self) -> Iterator[Chunk]:
        """As `read`, with ROOMS reused buffers: chunks are overwritten when the third after them is
        made; by then the program has its own copy."""
        if jax.default_backend() != "cpu":  # where a transfer may still be running
            yield from self.read()
            return
        rooms = itertools.cycle([Room() for _ in range(ROOMS)])
        for pieces in grouped(self.reader.batches(), self.rows):
            yield self._packed(pieces, next(rooms))


def _shape(limit: int, rows: int, numbers: int) -> tuple[int, int]:
    """(chunks per callback, rows per chunk), with chunks of at most `limit` rows: independent of
    `rows` for many rows; for few such that there is little padding."""
    n_chunks = max(NUMBERS // numbers // limit, 1)
    if rows > FIXED * n_chunks * limit:
        return n_chunks, limit
    n_rows = bucket(rows)
    per_call = -(-_even_size(n_rows, n_chunks * limit) // limit)
    return per_call, -(-_even_size(n_rows, n_chunks * limit) // per_call)


def _even_chunks(rows: int, limit: int) -> tuple[int, int]:
    """(chunks per call, rows per chunk), with chunks of at most `limit` rows, of equal size for a
    partition of `rows` rows."""
    size = _even_size(rows, limit)
    return _even_size(-(-rows // size), TOGETHER), size


def _even_size(rows: int, limit: int) -> int:
    """The size of equal pieces when `rows` are cut into as few as possible of at most `limit`."""
    return -(-rows // -(-rows // limit))


def open_stream(data: Data, plan: Plan, copies: int = 1) -> tuple[feeding.Feed, Streamed, Known]:
    """The feed of a source's rows (a context manager, to be open during passes), the rows, and the
    values that all rows share, from the profile.

    Args:
        data: see parts.open_data. copies: as for Cut.of.

    Cost: memory of two callbacks' chunks and one partition, whatever the number of rows.
    """
    cutter, survey = Cut.of(data, plan, copies), present(data.survey)
    specs = cutter.specs(cutter.shape)
    feed = feeding.Feed(cutter.read_with_buffers, specs, cutter.counted(survey.rows))
    leaves, form = jax.tree.flatten(specs)
    share = survey.rows / survey.profile.rows if survey.chosen else 1.0  # approximate
    weight = np.asarray(survey.profile.weight * share, jnp.result_type(float))
    rows = Streamed(np.int32(feed.number), np.int32(feed.count), weight, tuple(leaves), form)
    return feed, rows, cutter.known


BUFFERED = 2**22  # numbers in the shuffle buffer
BATCHES = 4  # minimum batches in the buffer
ORDER = 8  # part of the seed of the random order of rows
ENDLESS = 2**62


class _Epochs(feeding.Feed):
    """Batches, epoch after epoch.

    Args:
        size: rows of a batch; the last of an epoch is padded with rows of weight 0.
    """

    def __init__(self, cutter: Cut, rows: int, size: int, seed: int, buffer: int):
        self.cutter, self.size, self.seed, self.buffer = cutter, size, seed, buffer
        self.batches = -(-rows // size)
        super().__init__(lambda: self.iterate_from(0), cutter.specs((1, size)), ENDLESS)

    def iterate_from(self, i: int) -> Iterator[Chunk]:
        epoch, n_done = divmod(i, self.batches)
        epochs = itertools.chain.from_iterable(map(self._epoch, itertools.count(epoch)))
        for piece in itertools.islice(epochs, n_done, None):
            yield self.cutter.pack(piece, (1, self.size))

    def _epoch(self, epoch: int) -> Iterator[Data]:
        for mixed in feeding.ahead(self._mixed(epoch)):
            for low in range(0, mixed.table.rows, self.size):
                yield mixed.taken(slice(low, low + self.size))

    def _mixed(self, epoch: int) -> Iterator[Data]:
        """The rows of an epoch, several batches at a time: whenever the buffer is full, a random
        half of its rows is yielded."""
        random = np.random.default_rng([self.seed, ORDER, epoch])
        pending: list[Data] = []
        n_held = 0
        for piece in self.cutter.reader.mixed(random):
            pending.append(piece)
            n_held += piece.table.rows
            del piece  # free its memory before the next one is read
            if n_held >= self.buffer:
                buffered, order = joined(pending), random.permutation(n_held)
                n_out = n_held // 2 // self.size * self.size
                yield buffered.taken(order[:n_out])
                pending, n_held = [buffered.taken(order[n_out:])], n_held - n_out
        yield joined(pending).taken(random.permutation(n_held))


def open_batches(data: Data, plan: Plan, rows: Streamed, size: int,
                 seed: int) -> tuple[feeding.Feed, Streamed]:
    """A feed of random batches of a source's rows, to be opened together with the feed of `rows`,
    and `rows` with `mixed` set to these batches.

    Args:
        data: see parts.open_data. rows: see `open_stream`. size: rows of a batch.

    Cost: an epoch is a pass over the source; memory of two buffers and one part of the source.
    """
    cutter, count = Cut.of(data, plan), present(data.survey).rows
    buffer = max(BUFFERED // (1 + data.numbers), BATCHES * size)
    feed = _Epochs(cutter, count, size, seed, buffer)
    leaves, form = jax.tree.flatten(feed.specs)
    batches = replace(rows, number=np.int32(feed.number), count=np.int32(feed.batches),
                      leaves=tuple(leaves), form=form)
    return feed, replace(rows, mixed=batches)
