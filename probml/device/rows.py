"""Types for rows on the device: `Chunk`, `Steps` (time steps of sequences), `Rows` (all chunks,
with sums and maps over them), `Summary` (sufficient statistics) and `Known` (values that all rows
share)."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.errors import present
from probml.families.marginal_normal import Unseen
from probml.numerics.process.inline_calls import traced_once
from probml.typing import PyTree


@dataclass(frozen=True)
class Steps:
    """The time steps of a chunk's rows, each as a row with one step; their weights are a bool mask,
    False for padding (None: no padding)."""

    rows: "Chunk"
    length: int  # L, steps per block
    blocks: int
    parallel: bool  # join blocks by an associative scan
    in_logs: bool  # compute in log space, where probabilities would underflow
    equal_lengths: bool = False  # all rows have the same number of steps

    def folded(self, array: jax.Array, laned: bool = False) -> jax.Array:
        """(N, ...) → (rows, time, ...).

        Args:
            laned: the array is ordered lane after lane, not step after step.
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
                                 meta_fields=["length", "blocks", "parallel", "in_logs",
                                              "equal_lengths"])


class Chunk(NamedTuple):
    """Some rows on the device; the leading axis of every leaf is that of rows (chunks and rows, if
    several chunks are stacked)."""

    values: dict[str, jax.Array]  # observed sites: (b, *cells), missing ones with valid values
    observed: dict[str,
                   jax.Array]  # mask of sites with missing cells: bool (b, *cells), True: observed
    # number of states → those partially observed variables (Plan.partly): their states, (b,
    # variables), −1 if missing
    codes: dict[int, jax.Array]
    missing: dict[str, Unseen]  # partially observed vectors: the missing coordinates
    likelihood: dict[str, jax.Array]  # likelihood evidence: (b, states)
    inputs: dict[str, jax.Array]
    weights: jax.Array  # (b,), 0 for padding
    steps: Steps | None = None  # of sites along chains: every step as a row
    # sites with cells that MCMC samples: which cells, and their coordinates
    sampled: dict[str, "Coordinates"] = {}

    @property
    def along(self) -> Steps:
        """`steps`, of rows that have chains (never None)."""
        return present(self.steps)

    def revalued(self, values: dict[str, jax.Array]) -> "Chunk":
        """The chunk with other values of some sites, (b, *cells), also in its time steps."""
        steps = self.steps
        if steps is not None:
            below = {name: steps.repeated(value) for name, value in values.items()
                     if name in steps.rows.values}
            steps = replace(steps, rows=steps.rows.revalued(below))
        return self._replace(values={**self.values, **values}, steps=steps)


class Coordinates(NamedTuple):
    """Latent or missing continuous cells in the sampler's unconstrained coordinates; see
    evidence/row_coordinates.py."""

    free: jax.Array  # bool (b, *cells): sampled; the others are observed
    # unconstrained coordinates, (b, ...) in NumPyro's layout of a row; None: values are unchanged
    u: jax.Array | None = None


def merge_chunks(chunks: Chunk) -> Chunk:
    """Stacked chunks merged into one chunk; NumPy arrays stay on the host."""
    steps = chunks.steps
    merged = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]),
                          chunks._replace(steps=None))
    if steps is None:
        return merged

    def merge_lanes(leaf: jax.Array):
        leaf = leaf.reshape(len(leaf), steps.length, -1, *leaf.shape[2:])
        return leaf.swapaxes(0, 1).reshape(-1, *leaf.shape[3:])

    return merged._replace(steps=jax.tree.map(merge_lanes, steps))


def take_rows(rows: Chunk, index: jax.Array) -> Chunk:
    """The rows `index` of a chunk, with their time steps; the result is not tiled."""
    steps = rows.steps
    unseen = {name: found._replace(tiles=None) for name, found in rows.missing.items()}
    taken = jax.tree.map(lambda leaf: leaf[index], rows._replace(missing=unseen, steps=None))
    if steps is None:
        return taken

    def pick_lanes(leaf: jax.Array):
        leaf = leaf.reshape(steps.length, -1, steps.blocks, *leaf.shape[1:])[:, index]
        return leaf.reshape(-1, *leaf.shape[3:])

    return taken._replace(steps=jax.tree.map(pick_lanes, steps))


class Rows(ABC):
    """All rows of a problem, as engines and queries use them: processed chunk by chunk, by programs
    that are compiled once per shape of a chunk. A pytree, so that it can be an argument of them.

    Subclasses define a pass (`fold`, `first`) and its size; sums, maps and samples are derived from
    these. The functions applied to a chunk are pure JAX.

    Attributes:
        in_memory: whether all rows are in memory, so that results for each row can be stored.
        joint: whether a pass has collective operations between devices, perhaps of several
            processes: only one thread may start passes, and their number must not depend on time.
        parallel_copies: how many members of `vmap_copies` run at once, each on its own device.
    """

    stacked: Chunk  # all chunks, of rows in memory
    in_memory: bool = True
    joint: bool = False
    parallel_copies: int = 1
    total_weight: ArrayLike  # (), of subclasses that store it

    @property
    @abstractmethod
    def chunks(self) -> int:
        """Number of chunks in a pass."""

    @property
    def several(self) -> bool:
        """Whether a pass may have more than one chunk; static, known when a program is traced."""
        return self.chunks > 1

    @property
    @abstractmethod
    def size(self) -> int:
        """Rows of a chunk, padding included."""

    @property
    def weight(self) -> float:
        """Total weight of all rows, on the host."""
        return float(self.total_weight)

    @property
    def mass(self) -> jax.Array:
        """Total weight of all rows, (), for use in traced code."""
        return jnp.asarray(self.total_weight)

    @property
    @abstractmethod
    def first(self) -> Chunk:
        """The first chunk."""

    @abstractmethod
    def fold(self, step: Callable, init: PyTree, *along: PyTree) -> tuple[PyTree, PyTree]:
        """Scan over the chunks with step(carry, chunk, ...) → (carry, output).

        Args:
            along: further arguments of `step`, (chunks, ...), any pytree, one entry per chunk.

        Returns:
            the last carry, and the stacked outputs.
        """

    def accumulate(self, function: Callable, *along: PyTree) -> tuple[PyTree, PyTree]:
        """Σ of function(chunk, ...)[0] by compensated summation, and function(chunk, ...)[1]
        stacked.

        Args:
            along: as for `fold`.
        """
        first = (self.first, *jax.tree.map(lambda leaf: leaf[0], along))
        if not self.several:
            total, outputs = function(*first)
            return total, jax.tree.map(lambda leaf: leaf[None], outputs)
        of_chunk = traced_once(function)  # for its shapes and for the scan
        zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                            jax.eval_shape(of_chunk, *first)[0])

        def step(carry: tuple, *parts: PyTree):
            more, outputs = of_chunk(*parts)
            return compensated(carry[0], carry[1], more), outputs

        (total, _), outputs = self.fold(step, (zero, zero), *along)
        return total, outputs

    def total(self, function: Callable, *along: PyTree) -> PyTree:
        """Σ of function(chunk, ...), by compensated summation."""
        return self.accumulate(lambda *parts: (function(*parts), ()), *along)[0]

    def map(self, question: Callable, *along: PyTree) -> PyTree:
        """The stacked results of question(chunk, ...) for every chunk."""
        return self.fold(lambda _, *parts: ((), question(*parts)), (), *along)[1]

    def vmap_copies(self, function: Callable, *copies: PyTree) -> PyTree:
        """vmap of function(copy, ...), which passes over these rows, over the leading axis of the
        copies."""
        return jax.vmap(function)(*copies)

    def walk(self, step: Callable, init: PyTree, size: int, key: jax.Array,
             epoch: PyTree) -> PyTree:
        """One epoch: step(carry, rows of a batch) → carry over random batches that contain every
        row once.

        Args:
            size: rows of a batch, padding included. key, epoch: determine the order.
        """
        places = self.chunks * self.size
        batches = -(-places // size)
        order = jnp.resize(self.ordered(key, epoch, places), batches * size)
        is_row = (jnp.arange(batches * size) < places).reshape(batches, size)

        def turn(carry: PyTree, xs: tuple[jax.Array, jax.Array]) -> tuple[PyTree, PyTree]:
            chunk = self.taken(xs[0]).stacked
            weights = jnp.where(xs[1], chunk.weights, 0.0)
            return step(carry, Resident(chunk._replace(weights=weights))), ()

        return jax.lax.scan(turn, init, (order.reshape(batches, size), is_row))[0]

    def ordered(self, key: jax.Array, epoch: PyTree, rows: int) -> PyTree:
        """The random order of `rows` rows in an epoch, as an argument for `batch`."""
        return jax.random.permutation(jax.random.fold_in(key, epoch), rows)

    def batch(self, order: PyTree, i: ArrayLike, size: int) -> "Rows":
        """The i-th batch in an order from `ordered`."""
        return self.taken(jax.lax.dynamic_slice(order, (i * size,), (size,)))

    def drawn(self, key: jax.Array, step: ArrayLike, size: int, rows: int) -> "Rows":
        """A random batch of `size` among `rows` rows, uniform with replacement.

        Args:
            step: number of the batch; used only by rows that are read in a fixed order.
        """
        return self.taken(jax.random.randint(key, (size,), 0, rows))

    def as_one_chunk(self, most: int) -> Chunk | None:
        """All rows as one chunk, if they are in memory and at most `most`; else None."""
        return None

    def taken(self, index: jax.Array) -> "Resident":
        """The rows with these numbers (counted through all chunks), as new chunks.

        Args:
            index: (chunks, size), or (size,) for one chunk.

        Cost: a pass over all chunks.
        """
        index = jnp.atleast_2d(jnp.asarray(index))

        def step(carry: tuple, chunk: Chunk):
            chosen, number = carry
            in_chunk = index // self.size == number
            picked = jax.vmap(lambda at: take_rows(chunk, at))(index % self.size)
            chosen = jax.tree.map(lambda new, old: jnp.where(
                in_chunk.reshape(in_chunk.shape + (1,) * (new.ndim - 2)), new, old
            ), picked, chosen)
            return (chosen, number + 1), ()

        blank = jax.tree.map(lambda leaf: jnp.zeros((*index.shape, *leaf.shape[1:]), leaf.dtype),
                             self.first)
        return Resident(self.fold(step, (blank, jnp.zeros((), index.dtype)))[0][0])


@dataclass(frozen=True)
class Stacked(Rows):
    """Rows whose chunks are all in memory, stacked: the leading axes of every leaf are chunks and
    rows."""

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
    """All pairs of rows in the same group of the largest grouping of effects: row numbers, counted
    through all chunks, (pairs,) each."""

    first: jax.Array
    second: jax.Array


@dataclass(frozen=True)
class Resident(Stacked):
    """Rows in the memory of one device.

    Attributes:
        pairs: for large sparsely crossed effects (plan/random_effects.py); None: these
            are eliminated with a dense matrix.
    """

    pairs: Pairs | None = field(default=None, kw_only=True)

    @property
    def weight(self) -> float:
        return float(np.asarray(self.stacked.weights).sum())

    def fold(self, step: Callable, init: PyTree, *along: PyTree) -> tuple[PyTree, PyTree]:
        if not self.several:
            carry, output = step(init, self.first, *jax.tree.map(lambda leaf: leaf[0], along))
            return carry, jax.tree.map(lambda leaf: leaf[None], output)
        return jax.lax.scan(lambda carry, parts: step(carry, *parts), init, (self.stacked, *along))

    def as_one_chunk(self, most: int) -> Chunk | None:
        return merge_chunks(self.stacked) if self.stacked.weights.size <= most else None

    def taken(self, index: jax.Array) -> "Resident":
        """As Rows.taken; a gather."""
        flat = merge_chunks(self.stacked)
        if index.ndim == 1:
            return Resident(jax.tree.map(lambda leaf: leaf[None], take_rows(flat, index)))
        return Resident(jax.vmap(lambda at: take_rows(flat, at))(index))


jax.tree_util.register_dataclass(Resident, data_fields=["stacked", "pairs"], meta_fields=[])


class Summary(NamedTuple):
    """Sufficient statistics of all rows, for plans in which the rows enter only through sums or
    squares. Engines take it in place of Rows, without passes over rows."""

    statistics: dict[str, PyTree]  # in the structure of naturals: Σ weight × T(x)
    base: jax.Array  # (), Σ weight × the terms of log p(row) without parameters
    weights: jax.Array  # (), total weight
    squares: dict[str, PyTree] = {}  # row-wise site → factors.squares.Squares

    @property
    def in_memory(self) -> bool:
        return True

    @property
    def joint(self) -> bool:
        return False

    @property
    def parallel_copies(self) -> int:
        return 1

    def vmap_copies(self, function: Callable, *copies: PyTree) -> PyTree:
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
    """Values that all rows share: given sites outside rows, column means for centring, and so
    on."""

    given: dict[str, jax.Array]
    centre: dict[str, jax.Array]  # site -> (lattice cells, event)
    # column standard deviations, to detect collapsed components
    sd: dict[str, jax.Array]
    # variable -> (states,) bool: states with False have probability 0
    allowed: dict[str, jax.Array] = {}
    # parameter -> concentration that replaces that of its prior; 0: impossible state
    concentration: dict[str, jax.Array] = {}
    # parameter -> degree of centring of its unconstrained coordinates, from centred (1) to
    # non-centred (0)
    centring: dict[str, jax.Array] = {}
    # parameter -> values with a leading axis, over which the log densities of groups of latents are
    # averaged before the latents are integrated out
    settings: dict[str, jax.Array] = {}
    # of effects that are integrated out by nodes: log evidence of each member that is subtracted,
    # (members,), so that differences of log densities of very many rows have digits
    reference: jax.Array | None = None


def compensated(total: PyTree, error: PyTree, addend: PyTree) -> tuple[PyTree, PyTree]:
    """One step of Kahan summation: the rounding error of each addition is carried to the next, so
    that float32 totals keep their precision over many chunks."""
    term = jax.tree.map(jnp.subtract, addend, error)
    new = jax.tree.map(jnp.add, total, term)
    finite = jax.tree.map(lambda n, t, x: jnp.where(jnp.isfinite(n), (n - t) - x, 0.0), new, total,
                          term)
    return new, finite
