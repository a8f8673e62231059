"""A scene as SVG, to stand in a page: it says what it shows to those who cannot see it."""

from collections.abc import Sequence
from html import escape

from probml.assessment.pages.scene import ROLES, Scene

DOTS = 96.0  # an inch
# what stands on the page itself takes its ink, dark or light
LINE = 'stroke="currentColor" stroke-opacity="0.5"'
INK = 'fill="currentColor" fill-opacity="0.75"'


def svg(scene: Scene, title: str) -> str:
    """SVG text of a scene, 96 dots an inch; it shrinks to the width of its page."""
    used = [role for role in ROLES if any(box.node.role == role for box in scene.boxes)]
    columns = max(int(scene.width / 1.9), 1)
    width, height = max(scene.width, 1.9), scene.height + 0.28 * -(-len(used) // columns)
    parts = [_head(width, height, title, _describe_scene(scene))]
    parts += [f'<rect x="{_d(f.x)}" y="{_d(f.y)}" width="{_d(f.width)}" height="{_d(f.height)}" '
              f'rx="8" fill="none" {LINE}/>' for f in scene.frames]
    parts += [_path(arrow.points) for arrow in scene.arrows]
    for box in scene.boxes:
        parts += _box(box.x, box.y, box.width, box.height, box.node.role)
        middle = box.x + box.width / 2
        at = box.y + box.height * (0.42 if box.node.note else 0.6)
        parts.append(_text(middle, at, box.node.name, 13, 'font-weight="600"'))
        if box.node.note:
            parts.append(_text(middle, box.y + box.height * 0.8, box.node.note, 10.5, ""))
    parts += [f'<text x="{_d(f.x + f.width - 0.1)}" y="{_d(f.y + f.height - 0.08)}" '
              f'text-anchor="end" font-size="11" {INK}>{escape(f.name)}</text>'
              for f in scene.frames]
    for i, role in enumerate(used):
        x, y = 1.9 * (i % columns) + 0.08, scene.height + 0.28 * (i // columns)
        parts += _box(x, y + 0.04, 0.28, 0.18, role)
        parts.append(f'<text x="{_d(x + 0.35)}" y="{_d(y + 0.17)}" font-size="11" '
                     f'{INK}>{escape(ROLES[role][3])}</text>')
    return "".join((*parts, "</svg>"))


def _describe_scene(scene: Scene) -> str:
    """The picture as text: one sentence for each site."""
    above: dict[str, list[str]] = {}
    for arrow in scene.arrows:
        above.setdefault(arrow.head, []).append(arrow.tail)
    return "; ".join(
        f"{box.node.name} ({ROLES[box.node.role][3]})"
        + (f" depends on {', '.join(above[box.node.name])}" if box.node.name in above else "")
        for box in scene.boxes)


def _head(width: float, height: float, title: str, words: str) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{_d(width)}" '
            f'height="{_d(height)}" viewBox="0 0 {_d(width)} {_d(height)}" '
            f'style="max-width:100%;min-width:{_d(0.6 * width)}px;height:auto" '
            f'font-family="system-ui, sans-serif">'
            f'<title>{escape(title)}</title><desc>{escape(words)}</desc>')


def _box(x: float, y: float, width: float, height: float, role: str) -> list[str]:
    inside, edge, dashes, _ = ROLES[role]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    radius = 3 if role in ("computed", "input", "factor") else 11
    return [f'<rect x="{_d(x)}" y="{_d(y)}" width="{_d(width)}" height="{_d(height)}" '
            f'rx="{radius}" fill="{inside}" stroke="{edge}" stroke-width="1.6"{dashed}/>']


def _text(x: float, y: float, text: str, size: float, style: str) -> str:
    return (f'<text x="{_d(x)}" y="{_d(y)}" text-anchor="middle" font-size="{size}" '
            f'fill="#1a1a1a" {style}>{escape(text)}</text>')


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
