"""The order of rows on the device.

Partially observed vectors cost a matrix factorisation for their missing coordinates, which is the
same for all rows with one missingness pattern. So rows are sorted by the number of missing
coordinates, then by pattern; and where patterns repeat, the rows of each pattern fill whole tiles,
for which families/marginal_normal.py factorises once. Incomplete tiles are padded with the
pattern's first row at weight 0.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from probml.dataset.dataset import Data
from probml.errors import present
from probml.families.marginal_normal import UNROLLED_FOR_MANY_TILES, Tiles
from probml.plan.plan import CHUNK, Plan

# rows below which tiles save less time than compiling their program takes
MIN_ROWS_FOR_TILES = 2**12
MAX_TILE_ROWS = 64  # maximum rows of a tile
# sequences (or blocks) scanned together on a CPU: overhead dominates with fewer, cache misses with
# more
LANES = 256
AT_ONCE = 2**24  # numbers in the messages along time of a chunk, at most


class Layout(NamedTuple):
    """The row number at each place of the padded device arrays."""

    index: np.ndarray  # type: ignore[assignment] # not the tuple's method; (places,)
    is_row: np.ndarray  # (places,) bool; False: padding of a tile
    tiles: Tiles | None = None


def order(data: Data, plan: Plan) -> np.ndarray | None:
    """The order of rows that balances work within a chunk: by the number of missing coordinates of
    partially observed vectors; None: unchanged."""
    cols = [data.table.columns[name] for name in plan.partially_observed if name not in plan.steps]
    if not cols:
        return None
    masks = [present(c.observed) for c in cols]
    return np.argsort(sum((~mask).reshape(len(mask), -1).sum(1) for mask in masks), kind="stable")


def choose_layout(data: Data, plan: Plan, copies: int = 1, summed: bool = True) -> Layout | None:
    """The order of rows by `order`, in tiles where these save time; None: unchanged.

    Args:
        copies: number of parameter values at which the rows are evaluated at once.
        summed: only sums over all rows are needed, so rows may be padded in between.

    Cost: one sort of the rows.
    """
    row_order = order(data, plan)
    if row_order is None:
        return None
    rows, sites = data.table.rows, plan.structure.sites
    partial = plan.partially_observed
    is_single = len(partial) == 1 and math.prod(sites[partial[0]].lattice) == 1
    if not summed or rows < MIN_ROWS_FOR_TILES or not is_single or plan.steps or plan.sampled:
        return Layout(row_order, np.ones(rows, bool))
    mask = present(data.table.columns[plan.partially_observed[0]].observed).reshape(rows, -1)
    # with several chunks, rows with few missing coordinates have a separate program
    several = round(bucket(rows) / plan.chunk_rows(copies)) > 1
    return tile_by_pattern(mask, several) or Layout(row_order, np.ones(rows, bool))


def tile_by_pattern(mask: np.ndarray, several: bool) -> Layout | None:
    """Rows sorted by missingness pattern, in tiles; None where patterns hardly repeat.

    Args:
        mask: (n, d) bool, the observed cells.
        several: rows with few missing coordinates have a separate program.
    """
    n, d = mask.shape
    count = d - mask.sum(1)
    packed = np.packbits(mask, axis=1).view(np.uint8)
    packed = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)
    place = np.lexsort((*packed.T, count))
    packed, count = packed[place], count[place]
    is_new = np.concatenate([[True], (packed[1:] != packed[:-1]).any(1)])
    first = np.flatnonzero(is_new)
    lengths, unseen = np.diff(np.append(first, n)), count[first]
    if not several:
        unseen = np.full(len(unseen), unseen[-1])
    tiles = _tiles(lengths, unseen, d)
    if max(tiles) == 1:
        return None
    tile = np.array(tiles)[unseen]
    padded = -(-lengths // tile) * tile
    start = np.cumsum(padded) - padded
    index = np.repeat(place[first], padded)
    places = np.repeat(start - first, lengths) + np.arange(n)
    index[places] = place
    is_row = np.zeros(len(index), bool)
    is_row[places] = True
    return Layout(index, is_row, Tiles(tuple(tiles)))


def _tiles(lengths: np.ndarray, unseen: np.ndarray, d: int) -> list[int]:
    """Rows per tile by number of missing coordinates: the cheapest powers of 2, not increasing.

    Args:
        lengths: (patterns,) number of rows. unseen: (patterns,) number of missing coordinates.
    """
    chosen, limit = {}, MAX_TILE_ROWS
    for m in np.unique(unseen[unseen > 0]):
        allowed = [2**i for i in range(limit.bit_length())]
        limit = min(allowed, key=partial(cost, lengths[unseen == m], m=int(m), d=d))
        chosen[int(m)] = limit
    tiles = [limit]
    for m in range(int(unseen.max()) - 1, -1, -1):
        tiles.insert(0, chosen.get(m, tiles[0]))
    return tiles


def cost(lengths: np.ndarray, tile: int, m: int, d: int) -> float:
    """Estimated time of patterns with m of d coordinates missing, in units of about 5 ns for 16
    components: a cost per tile plus a cost per row, fitted to measured times of marginal_normal's
    programs at d = 16 and 4."""
    tiles, row = (-(-lengths // tile)).sum(), d * (d + 1) // 2 + d
    if tile == 1:
        row_cost = (25 + 0.65 * d * d + 8.5 * m * m if m <= UNROLLED_FOR_MANY_TILES
                    else d * d + 95 * m + 18 * m * m)
        return tiles * (row + row_cost)
    return tiles * (10 * m * (d + 1) + 47 * m * m) + tiles * tile * (row + 25 + 1.6 * m * (d + 1))


def bucket(count: int) -> int:
    """`count` rounded up to one of sixteen sizes between successive powers of two: few shapes to
    compile for, little padding."""
    if count <= 16:
        return 1 << max(count - 1, 0).bit_length()
    step = 1 << ((count - 1).bit_length() - 5)
    return -(-count // step) * step


def fitting_rows(plan: Plan, steps: int | None, copies: int) -> int:
    """Rows per chunk; of sequences with `steps` steps at least LANES if memory allows, else as many
    as fit into the cache."""
    if not steps:
        return plan.chunk_rows(copies)
    width = plan.width * bucket(steps)
    enough = min(LANES, max(AT_ONCE // (width * copies), 1))
    return int(np.clip(CHUNK // width, enough, 8192))
