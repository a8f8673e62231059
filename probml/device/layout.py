"""The order in which rows stand on the device.

Vectors that are seen in part cost a factorisation for their unseen coordinates, which is the same
for all rows of one pattern of seen and unseen. So rows stand sorted by how many coordinates are
unseen, then by their pattern; and where patterns repeat, each pattern fills whole tiles, for which
families/marginal_normal.py factorises once. A tile that a pattern does not fill has its first row
again, at weight 0.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from probml.dataset.dataset import Data
from probml.errors import present
from probml.families.marginal_normal import MORE, Tiles
from probml.plan.plan import Plan

FEW = 2**12  # rows below which tiles save less than a program of their own costs
LARGEST = 64  # rows of a tile


class Layout(NamedTuple):
    """Which row stands at each place."""

    index: np.ndarray  # type: ignore[assignment] # not the tuple's method; (places,)
    own: np.ndarray  # (places,) bool; False: the row stands elsewhere, here it fills up a tile
    tiles: Tiles | None = None


def order(data: Data, plan: Plan) -> np.ndarray | None:
    """The order of rows in which the work of a chunk is even: torn vectors by how much of them is
    unseen; None = as they are."""
    torn = [data.table.columns[name] for name in plan.partially_observed if name not in plan.steps]
    if not torn:
        return None
    masks = [present(c.seen) for c in torn]
    return np.argsort(sum((~seen).reshape(len(seen), -1).sum(1) for seen in masks), kind="stable")


def choose_layout(data: Data, plan: Plan, copies: int = 1, whole: bool = True) -> Layout | None:
    """The order of the rows that `order` finds, in tiles where these pay; None where the rows stay
    as they are.

    Args:
        copies: how many parameter values the rows will be met with at once.
        whole: all rows are added up, and none picked by its number.

    Cost: one sort of the rows.
    """
    plain = order(data, plan)
    if plain is None:
        return None
    rows, sites = data.table.rows, plan.structure.sites
    partial = plan.partially_observed
    alone = len(partial) == 1 and math.prod(sites[partial[0]].lattice) == 1
    if not whole or rows < FEW or not alone or plan.steps or plan.carried:
        return Layout(plain, np.ones(rows, bool))
    seen = present(data.table.columns[plan.partially_observed[0]].seen).reshape(rows, -1)
    # rows that share one program have its tiles
    several = round(bucket(rows) / plan.chunk_rows(copies)) > 1
    return tiled(seen, several) or Layout(plain, np.ones(rows, bool))


def tiled(seen: np.ndarray, several: bool) -> Layout | None:
    """Rows of one pattern behind one another, in tiles; None where patterns hardly repeat.

    Args:
        seen: (n, d) bool.
        several: rows of few unseen coordinates have a program of their own.
    """
    n, d = seen.shape
    count = d - seen.sum(1)
    words = np.packbits(seen, axis=1).view(np.uint8)
    words = np.pad(words, ((0, 0), (0, -words.shape[1] % 8))).view(np.uint64)
    place = np.lexsort((*words.T, count))
    words, count = words[place], count[place]
    new = np.concatenate([[True], (words[1:] != words[:-1]).any(1)])
    first = np.flatnonzero(new)
    lengths, unseen = np.diff(np.append(first, n)), count[first]
    if not several:
        unseen = np.full(len(unseen), unseen[-1])
    tiles = _tiles(lengths, unseen, d)
    if max(tiles) == 1:
        return None
    tile = np.array(tiles)[unseen]
    wide = -(-lengths // tile) * tile
    begin = np.cumsum(wide) - wide
    index = np.repeat(place[first], wide)
    at = np.repeat(begin - first, lengths) + np.arange(n)
    index[at] = place
    own = np.zeros(len(index), bool)
    own[at] = True
    return Layout(index, own, Tiles(tuple(tiles)))


def _tiles(lengths: np.ndarray, unseen: np.ndarray, d: int) -> list[int]:
    """Rows of a tile by how many coordinates are unseen: the cheapest powers of 2, none larger than
    the one before.

    Args:
        lengths, unseen: of patterns, their rows and unseen coordinates.
    """
    chosen, limit = {}, LARGEST
    for m in np.unique(unseen[unseen > 0]):
        allowed = [2**i for i in range(limit.bit_length())]
        limit = min(allowed, key=partial(cost, lengths[unseen == m], m=int(m), d=d))
        chosen[int(m)] = limit
    tiles = [limit]
    for m in range(int(unseen.max()) - 1, -1, -1):
        tiles.insert(0, chosen.get(m, tiles[0]))
    return tiles


def cost(lengths: np.ndarray, tile: int, m: int, d: int) -> float:
    """Of rows in tiles of patterns of m unseen coordinates of d, in units of about 5 ns for 16
    components: what tiles need and what their rows need, fitted to times of marginal_normal's
    programs at d = 16 and 4."""
    tiles, row = (-(-lengths // tile)).sum(), d * (d + 1) // 2 + d
    if tile == 1:
        loose = 25 + 0.65 * d * d + 8.5 * m * m if m <= MORE else d * d + 95 * m + 18 * m * m
        return tiles * (row + loose)
    return tiles * (10 * m * (d + 1) + 47 * m * m) + tiles * tile * (row + 25 + 1.6 * m * (d + 1))


def bucket(count: int) -> int:
    """The next size of which only sixteen lie between a power of two and the next: few shapes,
    little padding."""
    if count <= 16:
        return 1 << max(count - 1, 0).bit_length()
    step = 1 << ((count - 1).bit_length() - 5)
    return -(-count // step) * step
