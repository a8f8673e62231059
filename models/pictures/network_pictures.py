"""A picture of a Bayesian network: its graph in layers, in every node the probabilities of its
states given what was seen.

All arrows point down, and none crosses a box: see `assessment/pages/layout.py`. Colours are those
of Okabe & Ito (2008), which every kind of colour vision tells apart; what is seen has a thicker
frame as well. Needs matplotlib: probml[plot].

What a picture of a network says of each node: the probabilities of its states given one row of
evidence, its mean, or what was seen or set.
"""

import functools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from probml import DataError, Fit, ModelError, Refusal, errors
from probml.assessment.pages.layout import Layout, arrange
from probml.errors import counted, type_of
from probml.models.pictures.canvas import (
    INK,
    PAPER,
    as_names,
    axes_of,
    figure_of,
    fit_of,
)
from probml.numerics.process.libraries import pd
from probml.typing import FitOrEstimator

if TYPE_CHECKING:
    from matplotlib.axes import Axes


STATES = 10  # bars in a box at the most: of more states the most probable ones are drawn
LETTERS = 18  # of a state's label


class DrawnNode(NamedTuple):
    """A node as it is drawn."""

    name: str
    kind: str  # a key of STYLES
    bars: tuple[tuple[str, float], ...] = ()  # label of a state, its probability
    note: str = ""  # instead of bars: what is known of the value


def graph_of(fit):
    """The DAG of the sites in rows, and what do() has set: name → its text."""
    original = fit.model if fit.learnt is None else fit.learnt
    dag, done = original.graph, {}
    for name in set(dag) - set(fit.model.graph):
        dag.remove_edges_from(list(dag.in_edges(name)))
        done[name] = _text(fit.simulate(1)[name][0]) if not fit.model.inputs else "set"
    return dag, done


def row_of(fit, evidence, dag, done) -> dict[str, list]:
    """Evidence as the fit takes it: name → one row, what is unseen left out."""
    if evidence is None:
        return {}
    if isinstance(evidence, pd.DataFrame):
        if len(evidence) != 1:
            raise DataError(f"draw_network: evidence has {counted(len(evidence), 'row')}, "
                            f"expected one. Pass a single row, evidence.iloc[[0]]")
        evidence = {name: evidence[name].iloc[0] for name in evidence.columns}
    if not isinstance(evidence, Mapping | pd.Series):
        raise ModelError(f"draw_network: evidence is {type_of(evidence)}; expected a "
                         "mapping of names to labels, such as {'smoke': 'yes'}, or a DataFrame of "
                         "one row")
    row = {}
    for name, value in evidence.items():
        if name in done:
            raise DataError(f"draw_network: '{name}' is set by do(), so it cannot be in the "
                            f"evidence. Drop it from the evidence")
        if not isinstance(name, str) or name not in dag and name not in fit.model.inputs:
            raise ModelError(f"draw_network: the evidence contains {name!r}, which is not a node. "
                             f"Use one of the nodes {errors.listed(dag)}")
        if np.ndim(value) and len(value) != 1:
            raise DataError(f"draw_network: evidence of '{name}' has "
                            f"{counted(len(value), 'row')}, expected "
                            f"one. Give a label, or an array of label probabilities, (1, states)")
        value = value if np.ndim(value) else [value]
        if np.ndim(value) == 1 and pd.isna(value[0]):
            continue
        site = fit.structure.sites.get(name)
        if np.ndim(value) == 1 and site is not None and site.states and value[0] not in fit.labels(
            name
        ):
            raise DataError(f"draw_network: evidence of '{name}' is {value[0]!r}, expected one of "
                            f"its states, {errors.listed(fit.labels(name))}")
        row[name] = value
    return row


def select_nodes(dag, nodes) -> list[str]:
    if nodes is None:
        return list(dag)
    return as_names("draw_network", "nodes", nodes, list(dag))


def describe(fit: Fit, row: Mapping[str, Sequence], names: Iterable[str],
             done: Mapping[str, str]) -> list[DrawnNode]:
    """Every node with its probabilities given the row, or its mean."""
    sites, marks = fit.structure.sites, [node_of(fit, row, name, done) for name in names]
    blank = next(({n: [None] if sites[n].states else [np.nan]} for n in sites if sites[n].rows
                  and not sites[n].cells), {})
    data = {**blank, **row}  # a row of data has at least one cell
    queried = [mark.name for mark in marks if mark.name not in done and sites[mark.name].states
               and not sites[mark.name].cells]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*probability 0 under the fitted model",
                                category=RuntimeWarning)
        probs = fit.predict_proba(data, queried) if queried else {}
    if any(not chance.sum() > 0.5 for chance in probs.values()):
        raise DataError("draw_network: the evidence ("
                        f"{', '.join(f'{name} = {_text(row[name][0])}' for name in row)}) has "
                        "probability 0 under the model, so no other probability is defined. Change "
                        "at least one of these values")
    nodes = []
    for mark in marks:
        if mark.name in probs:
            nodes.append(mark._replace(
                bars=_bars(map(_text, fit.labels(mark.name)), probs[mark.name][0]), note=""
            ))
        elif mark.kind == "unseen" and not sites[mark.name].states:
            try:
                note = f"mean {_text(fit.predict(data, mark.name)[0])}"
            except Refusal:  # it depends on a continuous node that is unseen as well
                note = "mean unknown"
            nodes.append(mark._replace(note=note))
        else:
            nodes.append(mark)
    return nodes


def node_of(fit, row, name, done) -> DrawnNode:
    if name in done:
        return DrawnNode(name, "done", note=f"do: {done[name]}")
    if name not in row:
        return DrawnNode(name, "unseen")
    if fit.structure.sites[name].states and np.ndim(row[name]) == 2 and not fit.structure.sites[
        name
    ].cells:
        return DrawnNode(name, "likelihood", note="likelihood")
    return DrawnNode(name, "seen", note=f"= {_text(row[name][0])}")


def _bars(labels, probs) -> tuple:
    pairs = [(label, float(chance)) for label, chance in zip(labels, probs, strict=True)]
    if len(pairs) <= STATES:
        return tuple(pairs)
    top = sorted(sorted(range(len(pairs)), key=lambda i: -pairs[i][1])[: STATES - 1])
    other = sum(chance for i, (_, chance) in enumerate(pairs) if i not in top)
    return (*(pairs[i] for i in top), (f"{len(pairs) - len(top)} others", other))


def _text(value) -> str:
    if np.ndim(value):
        return "[" + ", ".join(map(_text, value)) + "]"
    text = f"{value:.3g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"


DETAILED = 30  # nodes up to which every one is a box with its probabilities
STYLES = {  # what is known of a node → colours of its edge, its inside, its bars
    "unseen": ("#7f7f7f", PAPER, "#0072b2"),
    "seen": ("#d55e00", "#fdebdc", "#d55e00"),
    "likelihood": ("#d55e00", PAPER, "#0072b2"),
    "done": ("#009e73", "#ddf3ec", "#009e73"),
}
NAME, TEXT = 9.0, 8.0  # points, where a unit of the axes is an inch
# inches: a line of text, margins, the longest bar, "100.0%"
LINE, PAD, BAR, PERCENT = 0.16, 0.07, 0.62, 0.46
MAX_INCHES = 60.0  # inches: side of a figure that is made here
DOT = 0.2  # inches: diameter of a node of a large network


def draw_network(fitted: FitOrEstimator, evidence: Mapping[str, object] | None = None,
                 nodes: Iterable[str] | None = None, ax: "Axes | None" = None):
    """A network drawn in layers, with the probabilities of every node's states given one row of
    evidence.

    Seen nodes are orange, nodes set by `fit.do` green, all others white with blue bars. A
    continuous node shows its mean. More than 30 nodes are drawn as circles with names, and nothing
    is computed.

    Args:
        fitted: a Fit of `bayesian_network`, `read_bif`, or any model; `fit.do(...)` is drawn
            without the arrows that it cut.
        evidence: what was observed, name → label (or value), a pandas Series of them, or a
            DataFrame of one row; None and NaN are missing. An array (1, states) is likelihood
            evidence.
        nodes: those to draw; by default all. Evidence counts for nodes that are not drawn, too.
        ax: axes to draw on, in which the picture is as large as they allow; by default those of a
            new figure, one inch a unit.

    Returns:
        The Axes. Every box or circle has the gid "node", every bar "node=state". Of hundreds of
        nodes save a PDF or SVG, in which small letters can be enlarged:
        `returned.figure.savefig("network.svg")`.

    Raises:
        ModelError: no Fit; a name that is no node. DataError: evidence of several rows, a label
        that is no state, evidence of probability 0.

    Cost: that of `fit.predict_proba` for one row; the layout, about nodes × layers skipped.
    """
    fit = fit_of("draw_network", fitted)
    dag, done = graph_of(fit)
    row = row_of(fit, evidence, dag, done)
    names = select_nodes(dag, nodes)
    boxes = describe(fit, row, names, done) if len(names) <= DETAILED else [
        node_of(fit, row, name, done) for name in names
    ]
    return _draw(dag.subgraph(names), {node.name: node for node in boxes}, len(names) <= DETAILED,
                 ax)


def _draw(dag, shown: Mapping[str, DrawnNode], detailed: bool, ax):
    size = {name: (_box if detailed else _dot)(node) for name, node in shown.items()}
    layout = arrange(dag, size)
    left = min(layout.x[n] - w / 2 for n, (w, _) in size.items()) - 0.1
    right = max(layout.x[n] + w / 2 for n, (w, _) in size.items()) + 0.1
    left, right = (min([left, *(x - 0.1 for x in layout.x.values())]),
                   max([right, *(x + 0.1 for x in layout.x.values())]))
    bottom, top = layout.top[-1] - layout.height[-1] - 0.1, 0.1
    if ax is None:
        shrink = min(1.0, MAX_INCHES / max(right - left, top - bottom))
        figure = figure_of((shrink * (right - left), shrink * (top - bottom)), layout=None)
        ax = figure.add_axes((0, 0, 1, 1))
    ax = axes_of(ax)
    ax.set(xlim=(left, right), ylim=(bottom, top), aspect="equal", anchor="N")
    ax.set_axis_off()
    scale = _scale(ax)
    _arrows(ax, layout, size, shown, scale, detailed)
    for name, node in shown.items():
        level, (width, height) = layout.layer[name], size[name]
        corner = layout.x[name] - width / 2, layout.top[level] - _drop(layout.height[level], height,
                                                                       detailed)
        (_draw_box if detailed else _draw_dot)(ax, node, corner, width, height, scale)
    return ax


def _scale(ax) -> float:
    """Inches a unit of the axes, as they stand now."""
    ax.apply_aspect()
    corners = ax.transData.transform([(0.0, 0.0), (1.0, 0.0)])
    return float(corners[1, 0] - corners[0, 0]) / _dots_per_inch(ax)


def _dots_per_inch(ax) -> float:
    return ax.figure.figure.dpi


@functools.cache
def _letters():
    from matplotlib.text import Text

    class Letters(Text):
        """Text that grows and shrinks with its axes, whose place is known only when they are
        drawn."""

        def __init__(self, *args, points, **style):
            super().__init__(*args, parse_math=False, verticalalignment="center", zorder=5,
                             clip_on=False, **style)
            self.points = points
            self.set_in_layout(False)

        def draw(self, renderer):
            # no font is below a pixel
            self.set_fontsize(max(self.points * _scale(self.axes),
                                  72 / _dots_per_inch(self.axes)))
            super().draw(renderer)

    return Letters


def _write(ax, x, y, text, points, **style) -> None:
    ax.add_artist(_letters()(x, y, text, points=points, fontsize=points * _scale(ax), **style))


def _drop(layer_height: float, height: float, detailed: bool) -> float:
    """How far below the top of its layer a node begins: boxes are centred, circles in line."""
    return (layer_height - height) / 2 if detailed else 0.0


def _text_width(text: str, points: float, weight: str = "normal") -> float:
    """The width of a text in inches, and a little for the hinting of small letters."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return text_to_path.get_text_width_height_descent(
        text, FontProperties(size=points, weight=weight), ismath=False
    )[0] * 1.08 / 72


def _box(node: DrawnNode) -> tuple[float, float]:
    labels = max((_text_width(label, TEXT) for label, _ in node.bars), default=0.0)
    bars = labels + PAD + BAR + PERCENT if node.bars else _text_width(node.note, TEXT)
    lines = max(len(node.bars), bool(node.note))
    return max(bars,
               _text_width(node.name, NAME, "bold")) + 2 * PAD, (lines + 1.15) * LINE + 2 * PAD


def _dot(node: DrawnNode) -> tuple[float, float]:
    lines = [node.name, *([node.note] if node.note else [])]
    return max(DOT, *(_text_width(line, TEXT) for line in lines)), DOT + 0.03 + 0.14 * len(lines)


def _draw_box(ax, node: DrawnNode, at, width, height, scale) -> None:
    from matplotlib.patches import FancyBboxPatch, Rectangle

    (x, y), (edge, estimator, colour) = at, STYLES[node.kind]
    line_width = scale * (1.0 if node.kind == "unseen" else 2.0)
    box = f"round,pad=0,rounding_size={PAD}"
    frame = FancyBboxPatch((x, y - height), width, height, boxstyle=box, facecolor=estimator,
                           edgecolor=edge, linewidth=line_width, zorder=3)
    frame.set_gid(node.name)
    ax.add_patch(frame)
    line = y - PAD - LINE / 2
    _write(ax, x + width / 2, line, node.name, NAME, ha="center", fontweight="bold")
    line -= 1.15 * LINE
    if not node.bars:
        _write(ax, x + width / 2, line, node.note, TEXT, ha="center")
        return
    end = x + width - PAD
    start = end - PERCENT - BAR
    for label, chance in node.bars:
        _write(ax, start - PAD, line, label, TEXT, ha="right")
        _write(ax, end, line, _percent(chance), TEXT, ha="right")
        ax.add_patch(Rectangle((start, line - 0.3 * LINE), BAR, 0.6 * LINE, facecolor="#e6e6e6",
                               linewidth=0, zorder=4))
        bar = Rectangle((start, line - 0.3 * LINE), BAR * chance, 0.6 * LINE, facecolor=colour,
                        linewidth=0, zorder=4.5)
        bar.set_gid(f"{node.name}={label}")
        ax.add_patch(bar)
        line -= LINE


def _percent(chance: float) -> str:
    return f"{chance:.0%}" if min(chance, 1 - chance) < 1e-9 else f"{chance:.1%}"


def _draw_dot(ax, node: DrawnNode, at, width, height, scale) -> None:
    from matplotlib.patches import Circle

    (x, y), (edge, estimator, colour) = at, STYLES[node.kind]
    fill = colour if node.kind in ("seen", "done") else estimator
    circle = Circle((x + width / 2, y - DOT / 2), DOT / 2, facecolor=fill, edgecolor=edge,
                    linewidth=1.2 * scale, zorder=3)
    circle.set_gid(node.name)
    ax.add_patch(circle)
    back = {"boxstyle": "square,pad=0.05", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.85}
    for i, text in enumerate([node.name, *([node.note] if node.note else [])]):
        where = x + width / 2, y - DOT - 0.03 - 0.14 * (i + 0.5)
        _write(ax, *where, text, TEXT, ha="center", bbox=back, color=edge if i else INK)


def _arrows(ax, layout: Layout, size, shown, scale, detailed) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    leaving, entering = _ports(layout, size, detailed)
    for a, b in layout.hops:
        xa, ya = leaving[a, b], _edge(layout, size, a, False, detailed)
        xb, yb = entering[a, b], _edge(layout, size, b, True, detailed)
        low, high = (layout.top[layout.layer[a]] - layout.height[layout.layer[a]],
                     layout.top[layout.layer[b]])
        middle = (low + high) / 2
        corners, codes = [(xa, ya)], [Path.MOVETO]
        if ya > low + 1e-6:
            corners, codes = [*corners, (xa, low)], [*codes, Path.LINETO]
        corners, codes = [*corners, (xa, middle), (xb, middle), (xb, high)], [*codes,
                                                                              *[Path.CURVE4] * 3]
        if yb < high - 1e-6:
            corners, codes = [*corners, (xb, yb)], [*codes, Path.LINETO]
        arrow = FancyArrowPatch(
            path=Path(corners, codes),
            arrowstyle="-|>" if b in size else "-",
            mutation_scale=9 * scale,
            linewidth=1.0 * scale,
            color="#595959",
            capstyle="butt",
            zorder=2,
        )
        arrow.set_gid(f"{a}→{b}")
        ax.add_patch(arrow)


def _edge(layout, size, point, upper: bool, detailed: bool) -> float:
    """Height at which an arrow enters or leaves."""
    level = layout.layer[point]
    layer_height = layout.height[level]
    if point not in size:
        # the line through the layer belongs to the hop that leaves the waypoint
        return layout.top[level]
    top = layout.top[level] - _drop(layer_height, size[point][1], detailed)
    return top if upper else top - size[point][1]


def _ports(layout, size, detailed):
    """Places along the edge of a box, in the order of where the arrows go to: so they do not cross
    at its foot."""
    leaving, entering = {}, {}
    for ports, end in ((leaving, 0), (entering, 1)):
        groups: dict = {}
        for hop in layout.hops:
            groups.setdefault(hop[end], []).append(hop)
        for point, hops in groups.items():
            hops.sort(key=lambda hop: layout.x[hop[1 - end]])  # noqa: B023
            span = size[point][0] * 0.7 if point in size and detailed else 0.0
            step = min(span / max(len(hops) - 1, 1), 0.3)
            for i, hop in enumerate(hops):
                ports[hop] = layout.x[point] + step * (i - (len(hops) - 1) / 2)
    return leaving, entering
