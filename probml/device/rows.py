"""Rows on the device, as values: chunks of rows, all rows and the one way to pass over them, their
statistics, steps of sequences, and what is known besides."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.errors import present
from probml.families.marginal_normal import Unseen


@dataclass(frozen=True)
class Steps:
    """The steps of a chunk's rows, as rows of one step; their weights are bool, the steps that
    count (None: all)."""

    rows: "Chunk"
    length: int  # L
    blocks: int
    parallel: bool  # join blocks by an associative scan
    wide: bool  # no limit of range
    even: bool = False  # all rows have the same steps that count

    def folded(self, array: jax.Array, laned: bool = False) -> jax.Array:
        """(N, ...) → (rows, time, ...).

        Args:
            laned: they lie lane after lane.
        """
        if laned:
            return array.reshape(-1, self.blocks * self.length, *array.shape[1:])
        lanes = array.reshape(self.length, -1, self.blocks, *array.shape[1:])
        lanes = jnp.moveaxis(lanes, 0, 2)
        return lanes.reshape(len(lanes), -1, *array.shape[1:])

    def repeated(self, array: jax.Array) -> jax.Array:
        """(rows, ...), the same at every step → (N, ...)."""
        lanes = jnp.broadcast_to(array[None, :, None], (self.length, len(array), self.blocks,
                                                        *array.shape[1:]))
        return lanes.reshape(-1, *array.shape[1:])


jax.tree_util.register_dataclass(Steps, data_fields=["rows"],
                                 meta_fields=["length", "blocks", "parallel", "wide", "even"])


class Chunk(NamedTuple):
    """Some rows on the device; every leaf leads with the rows axis (of several chunks, stacked,
    with those of chunks and rows)."""

    values: dict[str, jax.Array]  # seen sites: (b, *cells), unseen cells filled harmlessly
    seen: dict[str, jax.Array]  # sites seen in part: bool (b, *cells)
    # variables of so many states seen in part, Plan.partly: their states (b, variables), −1 unseen
    codes: dict[int, jax.Array]
    unseen: dict[str, Unseen]  # sites whose vectors are seen in part: which coordinates are not
    likelihood: dict[str, jax.Array]  # likelihood evidence: (b, states)
    inputs: dict[str, jax.Array]
    weights: jax.Array  # (b,), 0 for padding
    steps: Steps | None = None  # of sites along chains: every step as a row
    # sites with numbers that a sampler moves: which cells these are, and their coordinates
    carried: dict[str, "Coordinates"] = {}

    @property
    def along(self) -> Steps:
        """The steps of rows that have chains."""
        return present(self.steps)

    def revalued(self, values: dict[str, jax.Array]) -> "Chunk":
        """With other values of some sites of the rows, (b, *cells), which their steps see too."""
        steps = self.steps
        if steps is not None:
            below = {name: steps.repeated(value) for name, value in values.items()
                     if name in steps.rows.values}
            steps = replace(steps, rows=steps.rows.revalued(below))
        return self._replace(values={**self.values, **values}, steps=steps)


class Coordinates(NamedTuple):
    """Numbers of rows as a sampler moves them; see evidence/row_coordinates.py."""

    free: jax.Array  # bool (b, *cells); the others are seen
    # (b, ...) in NumPyro's layout of a row; None: values stand as they are
    u: jax.Array | None = None


def merged(chunks: Chunk) -> Chunk:
    """All chunks of rows as one; on the host where they are."""
    steps = chunks.steps
    whole = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]),
                         chunks._replace(steps=None))
    if steps is None:
        return whole

    def merge_lanes(leaf: jax.Array):
        leaf = leaf.reshape(len(leaf), steps.length, -1, *leaf.shape[2:])
        return leaf.swapaxes(0, 1).reshape(-1, *leaf.shape[3:])

    return whole._replace(steps=jax.tree.map(merge_lanes, steps))


def picked(rows: Chunk, index: jax.Array) -> Chunk:
    """Some of a chunk's rows, with their steps; no longer in tiles."""
    steps = rows.steps
    unseen = {name: found._replace(tiles=None) for name, found in rows.unseen.items()}
    whole = jax.tree.map(lambda leaf: leaf[index], rows._replace(unseen=unseen, steps=None))
    if steps is None:
        return whole

    def pick_lanes(leaf: jax.Array):
        leaf = leaf.reshape(steps.length, -1, steps.blocks, *leaf.shape[1:])[:, index]
        return leaf.reshape(-1, *leaf.shape[3:])

    return whole._replace(steps=jax.tree.map(pick_lanes, steps))


class Rows(ABC):
    """All rows of a problem, as engines and questions see them: passed over chunk by chunk, by
    programs that are compiled once for a shape of chunks. A pytree, which enters programs whole.

    A kind of rows says how a pass goes (`fold`, `first`) and how large it is; sums, answers and
    samples follow from that. Steps and questions are pure JAX, of one chunk.

    Attributes:
        held: whether all rows are there, so that something may be kept of each of them.
        joint: whether devices meet in a pass, perhaps those of other processes too: one thread at a
            time asks for passes, and for how many must depend on no clock.
        lanes: how many members of `vmap_copies` are worked on at once, each on a device of its own.
    """

    stacked: Chunk  # all chunks, of rows that are held
    held: bool = True
    joint: bool = False
    lanes: int = 1
    total_weight: Any  # (), of kinds that know it

    @property
    @abstractmethod
    def chunks(self) -> int:
        """How many chunks a pass meets."""

    @property
    def several(self) -> bool:
        """Whether a pass meets more than one, as far as a program may know."""
        return self.chunks > 1

    @property
    @abstractmethod
    def size(self) -> int:
        """Rows of a chunk, padding included."""

    @property
    def weight(self) -> float:
        """Of all rows, added up on the host."""
        return float(self.total_weight)

    @property
    def mass(self) -> jax.Array:
        """The same inside programs."""
        return jnp.asarray(self.total_weight)

    @property
    @abstractmethod
    def first(self) -> Chunk:
        """The first chunk."""

    @abstractmethod
    def fold(self, step: Callable, init: Any, *along: Any) -> tuple[Any, Any]:
        """step(carry, chunk, ...) → (carry, said) of one chunk after another.

        Args:
            along: more for each chunk, (chunks, ...), in any pytree.

        Returns:
            the last carry, and what was said of every chunk, stacked.
        """

    def accumulate(self, function: Callable, *along: Any) -> tuple[Any, Any]:
        """Σ of function(chunk, ...)[0], compensated, and function(chunk, ...)[1] stacked.

        Args:
            along: as for `fold`.
        """
        first = (self.first, *jax.tree.map(lambda leaf: leaf[0], along))
        if not self.several:
            total, said = function(*first)
            return total, jax.tree.map(lambda leaf: leaf[None], said)
        zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                            jax.eval_shape(function, *first)[0])

        def step(carry: tuple, *parts: Any):
            more, said = function(*parts)
            return compensated(carry[0], carry[1], more), said

        (total, _), said = self.fold(step, (zero, zero), *along)
        return total, said

    def total(self, function: Callable, *along: Any) -> Any:
        """Σ of function(chunk, ...), compensated."""
        return self.accumulate(lambda *parts: (function(*parts), ()), *along)[0]

    def map(self, question: Callable, *along: Any) -> Any:
        """question(chunk, ...) of every chunk, stacked."""
        return self.fold(lambda _, *parts: ((), question(*parts)), (), *along)[1]

    def vmap_copies(self, function: Callable, *copies: Any) -> Any:
        """function(copy, ...), which passes over these rows, for every member of the copies'
        leading axis."""
        return jax.vmap(function)(*copies)

    def walk(self, step: Callable, init: Any, size: int, key: jax.Array, epoch: Any) -> Any:
        """step(carry, rows of a batch) → carry, of batches in which every row is met once, in
        random order.

        Args:
            size: rows of a batch, padding included. key, epoch: of the order.
        """
        places = self.chunks * self.size
        batches = -(-places // size)
        mixed = jnp.resize(self.ordered(key, epoch, places), batches * size)
        real = (jnp.arange(batches * size) < places).reshape(batches, size)

        def turn(carry: Any, at: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
            found = self.taken(at[0]).stacked
            weights = jnp.where(at[1], found.weights, 0.0)
            return step(carry, Resident(found._replace(weights=weights))), ()

        return jax.lax.scan(turn, init, (mixed.reshape(batches, size), real))[0]

    def ordered(self, key: jax.Array, epoch: Any, rows: int) -> Any:
        """What tells which of so many rows are in which batch of an epoch, in random order."""
        return jax.random.permutation(jax.random.fold_in(key, epoch), rows)

    def batch(self, order: Any, i: Any, size: int) -> "Rows":
        """The i-th batch of what `ordered` gave."""
        return self.taken(jax.lax.dynamic_slice(order, (i * size,), (size,)))

    def drawn(self, key: jax.Array, step: Any, size: int, rows: int) -> "Rows":
        """A random batch: each of so many rows is as probable in it.

        Args:
            step: its number, for rows that come in an order.
        """
        return self.taken(jax.random.randint(key, (size,), 0, rows))

    def as_one_chunk(self, most: int) -> Chunk | None:
        """All rows as one chunk, where they are held and are no more than so many."""
        return None

    def taken(self, index: jax.Array) -> "Resident":
        """Some rows by their numbers, chunks behind one another, in chunks of their own.

        Args:
            index: (chunks, size), or (size,) of a single one.

        Cost: a pass, in which every chunk is looked through.
        """
        index = jnp.atleast_2d(jnp.asarray(index))

        def step(carry: tuple, chunk: Chunk):
            found, number = carry
            own = index // self.size == number
            here = jax.vmap(lambda at: picked(chunk, at))(index % self.size)
            found = jax.tree.map(lambda new, old: jnp.where(
                own.reshape(own.shape + (1,) * (new.ndim - 2)), new, old
            ), here, found)
            return (found, number + 1), ()

        blank = jax.tree.map(lambda leaf: jnp.zeros((*index.shape, *leaf.shape[1:]), leaf.dtype),
                             self.first)
        return Resident(self.fold(step, (blank, jnp.zeros((), index.dtype)))[0][0])


@dataclass(frozen=True)
class Stacked(Rows):
    """Rows whose chunks are all there: every leaf leads with chunks and rows."""

    stacked: Chunk

    @property
    def weights(self) -> jax.Array:
        """(chunks, size), 0 for padding."""
        return self.stacked.weights

    @property
    def chunks(self) -> int:
        return self.stacked.weights.shape[0]

    @property
    def size(self) -> int:
        return self.stacked.weights.shape[1]

    @property
    def mass(self) -> jax.Array:
        return self.stacked.weights.sum()

    @property
    def first(self) -> Chunk:
        return jax.tree.map(lambda leaf: leaf[0], self.stacked)


class Pairs(NamedTuple):
    """Every two rows that read the same member of the largest grouping of effects, by their numbers
    in all chunks behind one another, (pairs,) each."""

    one: jax.Array
    two: jax.Array


@dataclass(frozen=True)
class Resident(Stacked):
    """Rows that are held on the device.

    Attributes:
        pairs: of large crossed effects (plan/effects.py, `sparsely_crossed`); None: they are
            eliminated by a dense table.
    """

    pairs: Pairs | None = field(default=None, kw_only=True)

    @property
    def weight(self) -> float:
        return float(np.asarray(self.stacked.weights).sum())

    def fold(self, step: Callable, init: Any, *along: Any) -> tuple[Any, Any]:
        if not self.several:
            carry, said = step(init, self.first, *jax.tree.map(lambda leaf: leaf[0], along))
            return carry, jax.tree.map(lambda leaf: leaf[None], said)
        return jax.lax.scan(lambda carry, parts: step(carry, *parts), init, (self.stacked, *along))

    def as_one_chunk(self, most: int) -> Chunk | None:
        return merged(self.stacked) if self.stacked.weights.size <= most else None

    def taken(self, index: jax.Array) -> "Resident":
        """As Rows.taken; a gather."""
        flat = merged(self.stacked)
        if index.ndim == 1:
            return Resident(jax.tree.map(lambda leaf: leaf[None], picked(flat, index)))
        return Resident(jax.vmap(lambda at: picked(flat, at))(index))


jax.tree_util.register_dataclass(Resident, data_fields=["stacked", "pairs"], meta_fields=[])


class Summary(NamedTuple):
    """What is left of the rows of an additive plan, or of one whose row-wise sites enter by squares
    alone: engines take it in the place of Rows, and the passes over rows are saved."""

    statistics: dict[str, Any]  # like naturals: Σ weight T(x)
    base: jax.Array  # Σ weight × what of log p(row) no parameter enters
    weights: jax.Array  # () the total
    squares: dict[str, Any] = {}  # row-wise site → factors.squares.Squares

    @property
    def held(self) -> bool:
        return True

    @property
    def joint(self) -> bool:
        return False

    @property
    def lanes(self) -> int:
        return 1

    def vmap_copies(self, function: Callable, *copies: Any) -> Any:
        """As Rows.vmap_copies."""
        return jax.vmap(function)(*copies)

    @property
    def chunks(self) -> int:
        return 0

    @property
    def size(self) -> int:
        return 1

    @property
    def weight(self) -> float:
        return float(np.asarray(self.weights))


class Known(NamedTuple):
    """What all rows share: values of sites outside rows, and the column means that data are centred
    on."""

    given: dict[str, jax.Array]
    centre: dict[str, jax.Array]  # site -> (lattice cells, event)
    # their standard deviations, against which a collapsed component is judged
    spread: dict[str, jax.Array]
    # variable -> (states,) bool: the others are impossible, as if it had fewer
    allowed: dict[str, jax.Array] = {}
    # parameter -> the concentration of its prior in the place of the stated one; 0 where a state is
    # impossible
    concentration: dict[str, jax.Array] = {}
    # parameter -> how far its unbounded coordinates are its own (1), not its prior's (0)
    centring: dict[str, jax.Array] = {}
    # parameter -> values, each with a leading axis, over which log densities of groups of latents
    # are averaged before these are integrated out
    settings: dict[str, jax.Array] = {}


def compensated(total: Any, lost: Any, more: Any) -> tuple[Any, Any]:
    """Kahan's sum: what an addition loses is added next time, so that float32 totals keep their
    digits over many chunks."""
    term = jax.tree.map(jnp.subtract, more, lost)
    new = jax.tree.map(jnp.add, total, term)
    finite = jax.tree.map(lambda n, t, x: jnp.where(jnp.isfinite(n), (n - t) - x, 0.0), new, total,
                          term)
    return new, finite
