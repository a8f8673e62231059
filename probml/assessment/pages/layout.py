"""Places for a directed acyclic graph in layers: arrows point down, are short, cross seldom and
pass no box.

layers     below all parents; a node without parents just above its children
waypoints  an arrow that skips a layer keeps a narrow place free in it; arrows from one node
           share theirs
order      in a layer: by the mean place of the neighbours above, then below, and so on;
           the order of fewest crossings is kept
           (Sugiyama, Tagawa & Toda 1981)
places     near the mean of the neighbours, no two boxes nearer than a gap:
           isotonic regression, layer by layer
"""

import bisect
from collections.abc import Container, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from probml.numerics.process.libraries import networkx

# inches: gap beside a box, least gap of layers, width kept free for an arrow
BESIDE, BETWEEN, WAYPOINT = 0.28, 0.42, 0.1


class Layout(NamedTuple):
    """Centres of nodes and waypoints, the latter named (node that the arrow leaves, layer); tops
    and heights of layers; hops."""

    x: dict[Hashable, float]
    layer: dict[Hashable, int]
    top: list[float]
    height: list[float]
    hops: list[tuple[Hashable, Hashable]]  # from one layer to the next


def arrange(dag: "networkx.DiGraph", size: Mapping[str, tuple[float, float]]) -> Layout:
    """Places for boxes of the given (width, height): no two overlap, and no hop passes a box."""
    layer, hops = _layers(dag), networkx.DiGraph()
    hops.add_nodes_from(layer)
    for node, child in dag.edges:  # arrows from one node share their waypoints
        path = [node, *((node, level) for level in range(layer[node] + 1, layer[child])), child]
        layer.update({point: point[1] for point in path[1:-1]})
        networkx.add_path(hops, path)
    above, below = hops.pred, hops.succ
    rows = _ordered(layer, above, below)
    x = _placed(rows, {p: size[p][0] if p in size else WAYPOINT for p in layer}, above, below, size)
    height = [max((size[p][1] for p in row if p in size), default=0.0) for row in rows]
    top, y = [], 0.0
    for level, row in enumerate(rows):
        top.append(y)
        widest = max((abs(x[a] - x[b]) for a in row for b in below[a]), default=0.0)
        y -= height[level] + BETWEEN + min(0.09 * widest, 1.2)  # long arrows need room to turn
    return Layout(x, layer, top, height, list(hops.edges))


def _layers(dag: "networkx.DiGraph") -> dict:
    """Node → layer: below all its parents; of one without parents just above its children."""
    layer = {node: i for i, nodes in enumerate(networkx.topological_generations(dag))
             for node in nodes}
    for node in layer:
        if not dag.in_degree(node) and dag.out_degree(node):
            layer[node] = min(layer[below] for below in dag.successors(node)) - 1
    return layer


def _ordered(layer: dict, above: Mapping[Hashable, Sequence],
             below: Mapping[Hashable, Sequence]) -> list[list]:
    """Layers in an order of few crossings: by the mean place of the neighbours in the layer above,
    then below, and so on."""
    rows: list[list] = [[] for _ in range(max(layer.values()) + 1)]
    for point, level in layer.items():
        rows[level].append(point)
    best, fewest, stale = [list(row) for row in rows], _crossings(rows, below), 0
    for sweep in range(40):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for level in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            place = {}  # shares of the width, in this layer and the one that it is ordered by
            for row in (rows[level], rows[level - 1 if down else level + 1]):
                place.update((p, i / max(len(row) - 1, 1)) for i, p in enumerate(row))
            means = {p: np.mean([place[q] for q in neighbours[p]]) if neighbours[p] else place[p]
                     for p in rows[level]}
            rows[level].sort(key=means.__getitem__)
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest, stale = [list(row) for row in rows], crossings, 0
        elif (stale := stale + 1) > 8:
            break
    return best


def _crossings(rows: Sequence[Sequence[Hashable]],
               below: Mapping[Hashable, Sequence[Hashable]]) -> int:
    count: int = 0
    for row, next_row in zip(rows, rows[1:], strict=False):
        rank, passed = {p: i for i, p in enumerate(next_row)}, list[int]()
        for p in row:
            ends = [rank[q] for q in below[p]]
            count += sum(len(passed) - bisect.bisect_right(passed, end) for end in ends)
            for end in ends:
                bisect.insort(passed, end)
    return count


def _placed(rows: Sequence[Sequence[Hashable]], width: Mapping[Hashable, float],
            above: Mapping[Hashable, Sequence], below: Mapping[Hashable, Sequence],
            size: Container[Hashable]) -> dict[Hashable, float]:
    """Each near the mean of its neighbours, as the order and the widths allow; arrows through
    waypoints are pulled straight."""
    from scipy.optimize import isotonic_regression  # scipy comes with jax

    x = {}
    offsets = []  # of every layer: how far each point is from the first at the least
    for row in rows:
        steps = [(width[a] + width[b]) / 2 + BESIDE * (1.0 if a in size and b in size else 0.5)
                 for a, b in zip(row, row[1:], strict=False)]
        offsets.append(np.concatenate([[0.0], np.cumsum(steps)]))
        x.update(zip(row, offsets[-1] - offsets[-1][-1] / 2, strict=True))
    for sweep in range(60):
        for level in range(len(rows)) if sweep % 2 == 0 else range(len(rows) - 1, -1, -1):
            wish = []
            for p in rows[level]:
                near = [(x[q], 1.0 if p in size and q in size else 4.0)
                        for q in (*above[p], *below[p])]
                wish.append(sum(v * w for v, w in near) / sum(w for _, w in near) if near else x[p])
            x.update(zip(rows[level], isotonic_regression(
                np.array(wish) - offsets[level]).x + offsets[level],
                         strict=True))
    return {p: float(v) for p, v in x.items()}
