"""A graph of sites in their plates, as boxes, frames and arrows: where everything stands, in
inches, y downwards.

A scene on matplotlib's axes: probml[plot].
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from probml.assessment.pages.layout import arrange
from probml.errors import ModelError
from probml.numerics.process.libraries import networkx

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LETTER, NOTE_LETTER = 0.088, 0.068  # inches a letter of a name, and of a note
HEIGHT, MIN_BOX_WIDTH = 0.48, 0.7  # inches: of a box, its least width
PAD, LABEL, MARGIN = 0.16, 0.24, 0.08  # inches: inside a plate, its name, around all
ENTRY, LINE = 1.9, 0.28  # inches: of an entry of the legend, and of a line of it
DETOURS = (0.0, 0.4, 0.8, 1.2, 1.7, 2.3, 3.0, 4.0)  # inches to the side that an arrow may bend
CLEAR = 0.05  # inches that it keeps from a box
MAX_BOXES_FOR_DETOURS = 40  # boxes up to which ways around them are looked for

Points = tuple[tuple[float, float], ...]  # four, of a cubic curve


class Node(NamedTuple):
    """A site to be drawn: its role is a key of `ROLES`, its plates the outermost first."""

    name: str
    role: str
    note: str = ""
    plates: tuple[str, ...] = ()


class Box(NamedTuple):
    """A node in its place, by its upper left corner."""

    node: Node
    x: float
    y: float
    width: float
    height: float


class Frame(NamedTuple):
    """A plate around what stands in it."""

    name: str
    x: float
    y: float
    width: float
    height: float


class Arrow(NamedTuple):
    """From a box to another, a cubic curve through four points."""

    tail: str
    head: str
    points: Points


class Text(NamedTuple):
    """A line of text about a point: to its right ("start"), about it ("middle"), or to its left.

    Args:
        size: in dots, of which 96 are an inch. in_box: it stands in a box.
    """

    text: str
    x: float
    y: float
    size: float
    anchor: str
    in_box: bool = False


class Scene(NamedTuple):
    """All that is drawn; the legend has a box for each role."""

    width: float
    height: float
    boxes: list[Box]
    frames: list[Frame]
    arrows: list[Arrow]
    legend: list[Box]
    texts: list[Text]


# role → (inside, edge, dashes of the edge, in words): told apart without colours, too
ROLES: dict[str, tuple[str, str, str, str]] = {
    "parameter": ("#ffffff", "#0072b2", "", "parameter"),
    "seen": ("#d9d9d9", "#333333", "", "observed"),
    "part": ("#efefef", "#333333", "5 2", "partially observed"),
    "summed": ("#ffffff", "#d55e00", "5 3", "latent, summed out"),
    "integrated": ("#ffffff", "#009e73", "2 2", "latent, integrated out"),
    "unseen": ("#ffffff", "#333333", "1 2", "in every row"),
    "computed": ("#ffffff", "#7f7f7f", "", "computed"),
    "input": ("#f7f3e3", "#7f7f7f", "", "input"),
    "factor": ("#ffffff", "#cc79a7", "6 2 1 2", "factor"),
}
ANGULAR = ("computed", "input", "factor")  # of which a box has hardly round corners


def scene(nodes: Sequence[Node], edges: Iterable[tuple[str, str]],
          frames: Mapping[str, str]) -> Scene:
    """Places for nodes: arrows point down within a plate, no two boxes overlap, and a plate holds
    its own and nothing else.

    Args:
        frames: plate → what its frame says.
    """
    edges = list(edges)
    width, height, boxes, plates = _placed(tuple(nodes), edges, (), frames)
    at = {box.node.name: box for box in boxes}
    arrows = [Arrow(a, b, routed(at[a], at[b], boxes)) for a, b in edges if a in at and b in at]
    curve_xs = [x for arrow in arrows for x, _ in curve(arrow.points)]
    left, right = min([0.0, *curve_xs]), max([width, *curve_xs])  # a detour may leave the rest

    def translate(x: float, y: float) -> tuple[float, float]:
        return x - left + MARGIN, y + MARGIN

    width, height = right - left + 2 * MARGIN, height + 2 * MARGIN

    def moved(item: Any) -> Any:
        x, y = translate(item.x, item.y)
        return item._replace(x=x, y=y)

    boxes, plates = list(map(moved, boxes)), list(map(moved, plates))
    arrows = [arrow._replace(points=tuple(translate(*point) for point in arrow.points))
              for arrow in arrows]
    used = [role for role in ROLES if any(box.node.role == role for box in boxes)]
    columns = max(int(width / ENTRY), 1)
    legend = [Box(Node("", role), ENTRY * (i % columns) + MARGIN,
                  height + LINE * (i // columns) + 0.04, 0.28, 0.18) for i, role in enumerate(used)]
    texts = [Text(frame.name, frame.x + frame.width - 0.1, frame.y + frame.height - 0.13, 11, "end")
             for frame in plates]
    texts += [Text(ROLES[box.node.role][3], box.x + 0.35, box.y + 0.09, 11, "start")
              for box in legend]
    for box in boxes:
        middle, node = box.x + box.width / 2, box.node
        texts.append(Text(node.name, middle, box.y + box.height * (0.33 if node.note else 0.5), 13,
                          "middle", True))
        texts.append(Text(node.note, middle, box.y + box.height * 0.71, 10.5, "middle", True))
    return Scene(max(width, ENTRY), height + LINE * -(-len(used) // columns), boxes, plates, arrows,
                 legend, [text for text in texts if text.text])


def _placed(nodes: tuple[Node, ...], edges: list, path: tuple[str, ...],
            frames: Mapping[str, str]) -> tuple[float, float, list[Box], list[Frame]]:
    """Width, height, boxes and frames of what stands in the plates of `path`."""
    depth, dag = len(path), networkx.DiGraph()
    groups: dict[str, list[Node]] = {}
    owner: dict[str, Hashable] = {}
    for node in nodes:
        plate = node.plates[depth : depth + 1]
        owner[node.name] = ("plate", *plate) if plate else ("node", node.name)
        dag.add_node(owner[node.name])
        if plate:
            groups.setdefault(plate[0], []).append(node)
    dag.add_edges_from((owner[a], owner[b]) for a, b in edges if a in owner and b in owner
                       and owner[a] != owner[b])
    while not networkx.is_directed_acyclic_graph(dag):  # in and out of a plate again
        dag.remove_edge(*networkx.find_cycle(dag)[-1])
    inner_plates = {name: _placed(tuple(group), edges, (*path, name), frames)
                    for name, group in groups.items()}
    size = {("node", node.name): _size(node) for node in nodes if not node.plates[depth:]}
    for name, (width, height, *_) in inner_plates.items():
        min_width = max(width, NOTE_LETTER * len(frames.get(name, name)))
        size["plate", name] = min_width + 2 * PAD, height + 2 * PAD + LABEL
    # the layout names its waypoints by pairs, so that nodes are text there
    text_of = {item: f"{item[0]} {item[1]}" for item in dag}
    layout = arrange(networkx.relabel_nodes(dag, text_of), {text_of[i]: size[i] for i in size})
    left = min(layout.x[text_of[i]] - size[i][0] / 2 for i in size)
    boxes, plates, right, bottom = [], [], 0.0, 0.0
    by_name = {node.name: node for node in nodes}
    for item, (width, height) in size.items():
        level = layout.layer[text_of[item]]
        x = layout.x[text_of[item]] - width / 2 - left
        y = -layout.top[level] + (layout.height[level] - height) / 2
        right, bottom = max(right, x + width), max(bottom, y + height)
        if item[0] == "node":
            boxes.append(Box(by_name[item[1]], x, y, width, height))
            continue
        plates.append(Frame(frames.get(item[1], item[1]), x, y, width, height))
        nested, dx, dy = inner_plates[item[1]], x + PAD, y + PAD
        dx += (width - 2 * PAD - nested[0]) / 2
        boxes += [box._replace(x=box.x + dx, y=box.y + dy) for box in nested[2]]
        plates += [frame._replace(x=frame.x + dx, y=frame.y + dy) for frame in nested[3]]
    return right, bottom, boxes, plates


def _size(node: Node) -> tuple[float, float]:
    width = max(LETTER * len(node.name), NOTE_LETTER * len(node.note)) + 2 * PAD
    return max(width, MIN_BOX_WIDTH), HEIGHT


def routed(a: Box, b: Box, boxes: Sequence[Box]) -> Points:
    """From the foot of one box to the head of another, or its sides; sideways where they stand side
    by side. Of several ways round the one that passes the fewest boxes, then the straightest."""
    if b.y < a.y + a.height:
        right = b.x >= a.x
        tail = a.x + a.width * right, a.y + a.height / 2
        head = b.x + b.width * (not right), b.y + b.height / 2
        middle = (tail[0] + head[0]) / 2
        return tail, (middle, tail[1]), (middle, head[1]), head
    tail, middle = (a.x + a.width / 2, a.y + a.height), (a.y + a.height + b.y) / 2
    obstacles = [box for box in boxes if box is not a and box is not b
                 and a.y < box.y + box.height and box.y < b.y + b.height]
    routes = []
    for offset in DETOURS if obstacles and len(boxes) <= MAX_BOXES_FOR_DETOURS else (0.0,):
        for sign in (-1, 1) if offset else (1,):
            shift = sign * offset
            heads = [((b.x + b.width * (0.5 + 0.25 * (shift > 0) - 0.25 * (shift < 0)), b.y), 0.0)]
            if offset:
                side = b.x + b.width * (shift > 0), b.y + b.height / 2
                heads.append((side, 0.3))
            for head, cost in heads:
                control_y = head[1] if cost else middle
                points = (tail, (tail[0] + shift, middle), (head[0] + shift, control_y), head)
                passed = sum(box.x - CLEAR < x < box.x + box.width + CLEAR
                             and box.y - CLEAR < y < box.y + box.height + CLEAR
                             for x, y in curve(points) for box in obstacles)
                routes.append((100 * passed + offset + cost, points))
    return min(routes)[1]


def curve(points: Points, steps: int = 24) -> list[tuple[float, float]]:
    """Places along a cubic curve."""
    t = np.linspace(0.0, 1.0, steps + 1)
    weights = np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], 1)
    return [(float(x), float(y)) for x, y in weights @ np.array(points)]


POINTS = 72.0  # an inch


def drawn(scene: Scene, ax: "Axes | None" = None) -> "Axes":
    """A scene drawn on axes; by default those of a new pyplot figure of its size."""
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
    from matplotlib.path import Path

    if ax is not None and not hasattr(ax, "set_axis_off"):
        raise ModelError(f"draw(ax={ax!r:.200}): expected Axes of matplotlib, such as "
                         f"plt.subplots()[1], or None for new Axes")
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.figure(figsize=(scene.width, scene.height)).add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, scene.width), ylim=(scene.height, 0), aspect="equal")
    ax.set_axis_off()

    for frame in scene.frames:
        ax.add_patch(Rectangle((frame.x, frame.y), frame.width, frame.height, fill=False,
                               edgecolor="#7f7f7f", zorder=1))
    for arrow in scene.arrows:
        path = Path(arrow.points, [Path.MOVETO, *[Path.CURVE4] * 3])
        ax.add_patch(FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=9, linewidth=1.0,
                                     color="#7f7f7f", zorder=2, gid=f"{arrow.tail}→{arrow.head}"))
    for box in (*scene.boxes, *scene.legend):
        inside, edge, dashes, _ = ROLES[box.node.role]
        radius = min(0.03 if box.node.role in ANGULAR else 0.11, box.height / 3)
        ax.add_patch(FancyBboxPatch(
            (box.x, box.y), box.width, box.height, facecolor=inside, edgecolor=edge, linewidth=1.4,
            linestyle=(0, tuple(map(float, dashes.split()))) if dashes else "-", zorder=3,
            boxstyle=f"round,pad=0,rounding_size={radius}", gid=box.node.name or None))
    for text in scene.texts:
        ax.text(text.x, text.y, text.text, va="center", fontsize=POINTS / 96 * text.size, zorder=4,
                ha={"start": "left", "middle": "center", "end": "right"}[text.anchor],
                fontweight="bold" if text.in_box and text.size > 12 else "normal",
                color="#1a1a1a" if text.in_box else "#6b6b6b")
    return ax
