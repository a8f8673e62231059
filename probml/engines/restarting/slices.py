"""Slices of parallel runs: a program evaluates a few runs at a time, so that a slice stays in
cache, threads work on several slices at once, and runs that have ended cost nothing. One program
serves every slice, whichever runs are in it.

The rows of a single run are split into parts, one for each thread: XLA (jaxlib 0.10) runs the
operations of a chunk of rows one after the other, and shares only the large ones among cores.
"""

from collections.abc import Callable

import jax
import numpy as np

from probml.device.in_place import InPlaceRows
from probml.device.rows import Resident
from probml.evidence.e_step import is_additive
from probml.numerics.precision import map_in_threads
from probml.numerics.process.cores import cores
from probml.plan.plan import Plan
from probml.typing import PyTree

# numbers that an evaluation of a slice uses: some milliseconds, compared with which the overhead of
# a call is small
SLICE_NUMBERS = 2**21
PARTED = 2**22  # numbers that an evaluation of a single run uses, from which its rows are split
UNEVEN_PARTS = 8  # of rows that take different amounts of work


def runs_per_program(plan: Plan, rows: int, runs: int) -> int:
    """How many of so many runs one program evaluates: a power of 2, or all.

    Args:
        rows: of the data, or their steps.
    """
    if jax.default_backend() != "cpu":
        return runs
    fitting = max(SLICE_NUMBERS // max(rows * plan.effort, 1), 1)
    return runs if fitting >= runs else 1 << fitting.bit_length() - 1


def runs_at_once(plan: Plan, rows: object, runs: int) -> int:
    """As `runs_per_program`, for rows on the device. Rows that are read again in each pass, or
    divided among devices, are passed over once for all runs."""
    return runs_per_program(plan, _places(rows), runs) if type(rows) is Resident else runs


def _places(rows: Resident) -> int:
    """The number of rows, or of their steps."""
    steps = rows.stacked.steps
    return rows.chunks * rows.size * (steps.length * steps.blocks if steps else 1)


def parts_for_threads(plan: Plan, rows: object, runs: int) -> list[Resident | InPlaceRows]:
    """The rows of a single run in parts for threads; none if E-steps of parts do not add up, or
    splitting does not pay."""
    return split_rows(plan, rows) if runs == 1 and is_additive(plan) else []


def split_rows(plan: Plan, rows: PyTree) -> list[Resident | InPlaceRows]:
    """Rows in parts of one shape, for threads, without copying; none if that does not pay.
    Partially observed vectors are ordered by their work (layout.py): they are split into more
    parts, those with most work first."""
    if type(rows) not in (Resident, InPlaceRows) or jax.default_backend() != "cpu" or cores() < 2:
        return []
    if type(rows) is InPlaceRows:
        return [*rows.halves()]
    if rows.chunks % 2 or _places(rows) * max(plan.effort, plan.brought) < PARTED:
        return []
    count = UNEVEN_PARTS if plan.partially_observed and rows.chunks % UNEVEN_PARTS == 0 else 2
    held, size = jax.tree.map(np.asarray, rows.stacked), rows.chunks // count
    cuts = [slice(begin, begin + size) for begin in range(0, rows.chunks, size)]
    return [Resident(jax.tree.map(lambda leaf, part=part: jax.device_put(leaf[part]), held))
            for part in reversed(cuts)]


def evaluate_running(evaluate: Callable[[np.ndarray], PyTree], running: np.ndarray, size: int,
                     blank: object, alone: bool = False) -> PyTree:
    """The results of the runs that are running, in slices of `size`; `blank` for the others.

    Args:
        evaluate: indices of `size` runs → their results, a pytree of arrays that begin with an axis
            of runs. running: (runs,) bool. blank: results of all runs.
        alone: one slice after the other, as when the first one compiles.
    """
    at = np.flatnonzero(running)
    parts = [at[begin : begin + size] for begin in range(0, len(at), size)]

    def evaluate_part(part: np.ndarray) -> PyTree:
        return evaluate(np.resize(part, size))

    out = jax.tree.map(np.array, blank)
    for part, found in zip(parts, map_in_threads(evaluate_part, parts, alone), strict=True):
        jax.tree.map(lambda whole, leaf, part=part: whole.__setitem__(part, leaf[: len(part)]),
                     out, found)
    return out
