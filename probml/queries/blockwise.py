"""Questions about many rows, answered block by block from where they lie: no copy of all rows is
made, and one program serves any number of them."""

import collections
from typing import Any

import jax
import numpy as np

from probml.device.blocks import AHEAD, Blocks
from probml.queries import queries
from probml.queries.parts import Belief


def answer(blocks: Blocks, ask: tuple, averaged: bool, belief: Belief,
           view: str) -> tuple[np.ndarray, dict]:
    """As queries.answer, in the order of the table and without padding: (n,) and (n, ...).

    Cost: memory of the answers and a few blocks.
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
