"""Queries of many rows. Either block by block from the user's arrays: no copy of all rows is made,
and one program serves any number of rows. Or in equal parts, one thread each: this uses cores that
XLA leaves idle, as in scans along chains, whose steps are too small to be parallelised."""

import collections
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np

from probml.dataset.dataset import Data
from probml.device.blocks import AHEAD, Blocks
from probml.numerics.precision import in_same_precision
from probml.numerics.process.cores import cores
from probml.plan.plan import Plan
from probml.queries import queries
from probml.queries.parts import Belief
from probml.typing import PyTree

PARTED = 2**20  # numbers in all rows from which they are split: some milliseconds per part
LEAST = 32  # minimum rows of a part: a scan over fewer costs as much
# plan → (rows of a part, query) pairs whose programs are compiled already
_MET: WeakKeyDictionary[Plan, set[Any]] = WeakKeyDictionary()


def answer(blocks: Blocks, ask: tuple, averaged: bool, belief: Belief,
           view: str) -> tuple[np.ndarray, dict]:
    """As queries.answer, in the order of the table and without padding: (n,) and (n, ...).

    Cost: memory of the results and of a few blocks.
    """
    rows = blocks.data.table.rows
    waiting: collections.deque = collections.deque()
    every: list[np.ndarray] = []
    begin = 0

    def keep(found: Any) -> None:
        nonlocal begin
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.device_get(found))]
        leaves = [leaf.reshape(-1, *leaf.shape[2:]) for leaf in leaves]
        if not every:
            every.extend(np.empty((rows, *leaf.shape[1:]), leaf.dtype) for leaf in leaves)
        end = min(begin + len(leaves[0]), rows)
        for whole, leaf in zip(every, leaves, strict=True):
            whole[begin:end] = leaf[: end - begin]
        begin = end

    for block in blocks:
        found = queries.answer(blocks.plan, ask, averaged, belief, blocks.known, block, view)
        form = jax.tree.structure(found)
        waiting.append(found)
        if len(waiting) > AHEAD:
            keep(waiting.popleft())
    for found in waiting:
        keep(found)
    return jax.tree.unflatten(form, every)


def cut(data: Data, plan: Plan) -> list[Data]:
    """The rows in parts of equal size (the last may be smaller), one part where splitting does not
    pay. Nothing is copied."""
    rows = data.table.rows
    count = min(cores(), rows // LEAST)
    numbers = rows * (data.steps or 1) * plan.effort
    if count < 2 or numbers < PARTED or jax.default_backend() != "cpu":
        return [data]
    size = -(-rows // count)
    return [data.taken(slice(begin, min(begin + size, rows))) for begin in range(0, rows, size)]


def side_by_side(ask: Callable[[Data], PyTree], some: list[Data], plan: Plan,
                 about: object) -> PyTree:
    """The results of ask(part), pytrees of arrays with a leading axis of rows, concatenated over
    the parts, which run in parallel threads.

    Args:
        about: hashable key of the query. Its first run is sequential, so that its programs are
            compiled only once.
    """
    if len(some) == 1:
        return ask(some[0])
    met, what = _MET.setdefault(plan, set()), (some[0].table.rows, about)
    if what in met:
        with ThreadPoolExecutor(len(some)) as pool:
            found = list(pool.map(in_same_precision(ask), some))
    else:
        found = [ask(part) for part in some]
        met.add(what)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *found)
