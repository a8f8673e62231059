"""Runs side by side, some of them at a time: those that have ended cost nothing, what a slice
touches stays in cache, and threads work on several slices at once. One program serves every slice,
whichever runs are in it and however many there are.

A run by itself has its rows in parts, for a thread each: XLA (jaxlib 0.10) runs the operations
of a chunk of rows one after the other, and shares but the large ones among cores.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from probml.device.in_place import InPlaceRows
from probml.device.rows import Resident
from probml.evidence.passes import additive
from probml.numerics.precision import in_same_precision
from probml.numerics.process.cores import cores
from probml.plan.plan import Plan

# numbers that an evaluation of a slice passes through: some milliseconds, beside which a call is
# little
NUMBERS = 2**21
PARTED = 2**22  # of an evaluation of a single run, from which its rows are parted
UNEVEN = 8  # parts of rows whose work is not even


def together(plan: Plan, rows: int, runs: int) -> int:
    """How many of so many runs are evaluated by one program: a power of 2, or all.

    Args:
        rows: of the data, or their steps.
    """
    if jax.default_backend() != "cpu":
        return runs
    fitting = max(NUMBERS // max(rows * plan.effort, 1), 1)
    return runs if fitting >= runs else 1 << fitting.bit_length() - 1


def size(plan: Plan, rows: object, runs: int) -> int:
    """The same of rows on the device. Rows that are read anew, or that devices share, are passed
    over once for all runs."""
    return together(plan, _places(rows), runs) if type(rows) is Resident else runs


def _places(rows: Resident) -> int:
    """Rows, or their steps."""
    steps = rows.stacked.steps
    return rows.chunks * rows.size * (steps.length * steps.blocks if steps else 1)


def parted(plan: Plan, rows: object, runs: int) -> list[Resident | InPlaceRows]:
    """The rows of a single run in parts, for threads, where an E-step of parts adds up; none where
    that does not pay."""
    return shares(plan, rows) if runs == 1 and additive(plan) else []


def shares(plan: Plan, rows: Any) -> list[Resident | InPlaceRows]:
    """Rows in parts of one shape, for threads; none where that does not pay. Nothing is copied.
    Vectors that are seen in part stand in the order of their work (layout.py): they come in more
    parts, the most work first."""
    if type(rows) not in (Resident, InPlaceRows) or jax.default_backend() != "cpu" or cores() < 2:
        return []
    if type(rows) is InPlaceRows:
        return [*rows.halves()]
    if rows.chunks % 2 or _places(rows) * max(plan.effort, plan.brought) < PARTED:
        return []
    count = UNEVEN if plan.partially_observed and rows.chunks % UNEVEN == 0 else 2
    held, size = jax.tree.map(np.asarray, rows.stacked), rows.chunks // count
    cuts = [slice(begin, begin + size) for begin in range(0, rows.chunks, size)]
    return [Resident(jax.tree.map(lambda leaf, part=part: jax.device_put(leaf[part]), held))
            for part in reversed(cuts)]


def map_in_threads(function: Callable[[Any], Any], parts: list, alone: bool = False) -> list:
    """function(part) of every part, by as many threads as there are cores; by one if `alone`."""
    workers = 1 if alone else min(len(parts), cores())
    if workers == 1:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(in_same_precision(function), parts))


def evaluated(evaluate: Callable[[np.ndarray], Any], running: np.ndarray, size: int, blank: object,
              alone: bool = False) -> Any:
    """evaluate(so many runs, by their numbers) → pytree of arrays that lead with them, of those
    that run; in the place of the others `blank`.

    Args:
        running: (runs,) bool. blank: (runs, ...), the tree of the results.
        alone: one slice after the other, as when the first one compiles.
    """
    at = np.flatnonzero(running)
    parts = [at[begin : begin + size] for begin in range(0, len(at), size)]

    def evaluate_part(part: np.ndarray) -> Any:
        return evaluate(np.resize(part, size))

    out = jax.tree.map(np.array, blank)
    for part, found in zip(parts, map_in_threads(evaluate_part, parts, alone), strict=True):
        jax.tree.map(lambda whole, leaf, part=part: whole.__setitem__(part, leaf[: len(part)]),
                     out, found)
    return out
