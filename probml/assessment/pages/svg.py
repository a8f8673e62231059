"""A scene as SVG, to stand in a page: it says what it shows to those who cannot see it."""

from collections.abc import Sequence
from html import escape

from probml.assessment.pages.scene import ANGULAR, ROLES, Box, Scene, Text

DOTS = 96.0  # an inch
# what stands on the page itself takes its ink, dark or light
LINE = 'stroke="currentColor" stroke-opacity="0.5"'
INK = 'fill="currentColor" fill-opacity="0.75"'


def svg(scene: Scene, title: str) -> str:
    """SVG text of a scene, 96 dots an inch; it shrinks to the width of its page."""
    return "".join([
        _head(scene.width, scene.height, title, _describe_scene(scene)),
        *(f'<rect x="{_d(f.x)}" y="{_d(f.y)}" width="{_d(f.width)}" height="{_d(f.height)}" '
          f'rx="8" fill="none" {LINE}/>' for f in scene.frames),
        *(_path(arrow.points) for arrow in scene.arrows),
        *map(_box, (*scene.boxes, *scene.legend)), *map(_text, scene.texts), "</svg>"])


def _describe_scene(scene: Scene) -> str:
    """The picture as text: one sentence for each site."""
    parents: dict[str, list[str]] = {}
    for arrow in scene.arrows:
        parents.setdefault(arrow.head, []).append(arrow.tail)
    return "; ".join(
        f"{box.node.name} ({ROLES[box.node.role][3]})"
        + (f" depends on {', '.join(parents[box.node.name])}" if box.node.name in parents else "")
        for box in scene.boxes)


def _head(width: float, height: float, title: str, description: str) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{_d(width)}" '
            f'height="{_d(height)}" viewBox="0 0 {_d(width)} {_d(height)}" '
            f'style="max-width:100%;min-width:{_d(0.6 * width)}px;height:auto" '
            f'font-family="system-ui, sans-serif">'
            f'<title>{escape(title)}</title><desc>{escape(description)}</desc>')


def _box(box: Box) -> str:
    inside, edge, dashes, _ = ROLES[box.node.role]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (f'<rect x="{_d(box.x)}" y="{_d(box.y)}" width="{_d(box.width)}" '
            f'height="{_d(box.height)}" rx="{3 if box.node.role in ANGULAR else 11}" '
            f'fill="{inside}" stroke="{edge}" stroke-width="1.6"{dashed}/>')


def _text(text: Text) -> str:
    ink = ('fill="#1a1a1a"' + ' font-weight="600"' * (text.size > 12)) if text.in_box else INK
    return (f'<text x="{_d(text.x)}" y="{_d(text.y)}" text-anchor="{text.anchor}" '
            f'font-size="{text.size:g}" dominant-baseline="central" {ink}>{escape(text.text)}'
            f'</text>')


def _path(points: Sequence[tuple[float, float]]) -> str:
    """A curve with its head: a small triangle along the last direction."""
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = points
    dx, dy = x3 - x2, y3 - y2
    length = max((dx * dx + dy * dy) ** 0.5, 1e-9)
    dx, dy = dx / length * 0.09, dy / length * 0.09
    wing = f"{_d(x3 - dx - dy / 2)},{_d(y3 - dy + dx / 2)} {_d(x3 - dx + dy / 2)}," \
           f"{_d(y3 - dy - dx / 2)}"
    return (f'<path d="M{_d(x0)},{_d(y0)} C{_d(x1)},{_d(y1)} {_d(x2)},{_d(y2)} {_d(x3)},{_d(y3)}" '
            f'fill="none" {LINE} stroke-width="1.3"/>'
            f'<polygon points="{_d(x3)},{_d(y3)} {wing}" fill="currentColor" fill-opacity="0.5"/>')


def _d(inches: float) -> str:
    return f"{inches * DOTS:.1f}"
