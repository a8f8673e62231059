"""Rows on the device, as values: chunks of rows, their statistics, steps of sequences, and what is
known besides."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.families.marginal_normal import Unseen


@dataclass(frozen=True)
class Steps:
    """The steps of a chunk's rows, as rows of one step; their weights are bool, the steps that
    count (None: all)."""

    rows: "Rows"
    length: int  # L
    blocks: int
    parallel: bool  # join blocks by an associative scan
    wide: bool  # no limit of range

    def folded(self, array: jax.Array) -> jax.Array:
        """(N, ...) → (rows, time, ...)."""
        lanes = array.reshape(self.length, -1, self.blocks, *array.shape[1:])
        lanes = jnp.moveaxis(lanes, 0, 2)
        return lanes.reshape(len(lanes), -1, *array.shape[1:])


jax.tree_util.register_dataclass(Steps, data_fields=["rows"],
                                 meta_fields=["length", "blocks", "parallel", "wide"])


def merged(chunks: "Rows") -> "Rows":
    """All chunks of rows as one; on the host where they are."""
    steps = chunks.steps
    whole = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]),
                         chunks._replace(steps=None))
    if steps is None:
        return whole

    def lanes(leaf):
        leaf = leaf.reshape(len(leaf), steps.length, -1, *leaf.shape[2:])
        return leaf.swapaxes(0, 1).reshape(-1, *leaf.shape[3:])

    return whole._replace(steps=jax.tree.map(lanes, steps))


def total_weight(rows: "Rows | Summary") -> float:
    """Of all rows, added up on the host."""
    return float(np.asarray(rows.weights).sum())


def picked(rows: "Rows", index: jax.Array) -> "Rows":
    """Some of a chunk's rows, with their steps."""
    steps = rows.steps
    whole = jax.tree.map(lambda leaf: leaf[index], rows._replace(steps=None))
    if steps is None:
        return whole

    def lanes(leaf):
        leaf = leaf.reshape(steps.length, -1, steps.blocks, *leaf.shape[1:])[:, index]
        return leaf.reshape(-1, *leaf.shape[3:])

    return whole._replace(steps=jax.tree.map(lanes, steps))


class Rows(NamedTuple):
    """Rows on the device; every leaf leads with the rows axis (or with chunks and rows)."""

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


class Coordinates(NamedTuple):
    """Numbers of rows as a sampler moves them; see evidence/carried.py."""

    free: jax.Array  # bool (b, *cells); the others are seen
    # (b, ...) in NumPyro's layout of a row; None: values stand as they are
    u: jax.Array | None = None


class Summary(NamedTuple):
    """What is left of the rows of an additive plan: engines take it in the place of Rows, and the
    passes over rows are saved."""

    statistics: dict[str, Any]  # like naturals: Σ weight T(x)
    base: jax.Array  # Σ weight × what of log p(row) no parameter enters
    weights: jax.Array  # () the total


class Known(NamedTuple):
    """What all rows share: values of sites outside rows, and the column means that data are centred
    on."""

    given: dict[str, jax.Array]
    centre: dict[str, jax.Array]  # site -> (lattice cells, event)
    # their standard deviations, against which a collapsed component is judged
    spread: dict[str, jax.Array]
    # variable -> (states,) bool: the others are impossible, as if it had fewer
    allowed: dict[str, jax.Array] = {}
    # parameter -> how far its unbounded coordinates are its own (1), not its prior's (0)
    centring: dict[str, jax.Array] = {}
