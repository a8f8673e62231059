"""Small charts as SVG, without a library: lines, intervals, counts. Axes have names and units,
colours are those of Okabe & Ito (2008), and what a chart shows stands in its text."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from probml.errors import counted

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#595959")
# lines and letters take the ink of their page, dark or light
INK = 'fill="currentColor" fill-opacity="0.85"'
AXIS = 'stroke="currentColor" stroke-opacity="0.7"'
GRID = 'stroke="currentColor" stroke-opacity="0.13"'
WIDTH, HEIGHT = 620.0, 250.0
LEFT, RIGHT, TOP, FOOT = 66.0, 14.0, 12.0, 44.0  # margins, in dots
MAX_POINTS = 800  # of a line, about


def lines(series: Sequence[Sequence[float] | np.ndarray], title: str, across: str, up: str) -> str:
    """Series over their index, a line each; what is not finite is left out."""
    curves = [[(float(i), float(y)) for i, y in enumerate(curve) if math.isfinite(y)]
              for curve in series]
    points = [point for curve in curves for point in curve]
    if not points:
        return ""
    x, y = _scale(0.0, max(max(p[0] for p in points), 1.0), LEFT, WIDTH - RIGHT), _room(
        [p[1] for p in points], HEIGHT - FOOT, TOP)
    parts = _axes(x, y, across, up)
    for i, curve in enumerate(curves):
        sampled = [*curve[:: max(len(curve) // MAX_POINTS, 1)], curve[-1]]
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in sampled)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[i % 7]}" '
                     f'stroke-width="1.4"/>')
    low, high = min(p[1] for p in points), max(p[1] for p in points)
    return _svg(parts, HEIGHT, title, f"{up} from {curves[0][0][1]:.4g} to {curves[0][-1][1]:.4g}, "
                f"between {low:.4g} and {high:.4g}")


def intervals(rows: Sequence[tuple[str, float, float, float]], title: str, across: str) -> str:
    """(name, low, middle, high), a line each."""
    rows = [row for row in rows if all(map(math.isfinite, row[1:]))]
    if not rows:
        return ""
    left = 20 + 7.2 * max(len(row[0]) for row in rows)
    height = TOP + 20 * len(rows) + FOOT
    x = _room([value for row in rows for value in row[1:]], left, WIDTH - RIGHT)
    parts = _across(x, height - FOOT, TOP, across, left)
    for i, (name, lower, middle, upper) in enumerate(rows):
        y = TOP + 20 * i + 10
        parts += [_text(left - 8, y + 4, name, "end"),
                  f'<line x1="{x(lower):.1f}" x2="{x(upper):.1f}" y1="{y}" y2="{y}" '
                  f'stroke="{COLOURS[0]}" stroke-width="2.4"/>',
                  f'<circle cx="{x(middle):.1f}" cy="{y}" r="4" fill="{COLOURS[0]}"/>']
    text = "; ".join(f"{name} {middle:.4g}, {lower:.4g} to {upper:.4g}"
                     for name, lower, middle, upper in rows)
    return _svg(parts, height, title, text)


def reliability(bins: Sequence[tuple[float, float, float]], title: str, across: str,
                up: str) -> str:
    """(predicted, observed, rows) of each bin, a dot as large as its rows, beside the diagonal on
    which the two are equal."""
    if not bins:
        return ""
    x, y = _scale(0.0, 1.0, LEFT, WIDTH - RIGHT), _scale(0.0, 1.0, HEIGHT - FOOT, TOP)
    parts = _axes(x, y, across, up)
    parts.append(f'<line x1="{x(0)}" y1="{y(0)}" x2="{x(1)}" y2="{y(1)}" {AXIS} '
                 f'stroke-dasharray="5 4"/>')
    path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b, _ in bins)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[0]}" '
                 f'stroke-width="1.4"/>')
    peak = max(rows for *_, rows in bins)
    parts += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="{3 + 5 * math.sqrt(rows / peak):.1f}" '
              f'fill="{COLOURS[0]}"/>' for a, b, rows in bins]
    text = "; ".join(f"predicted {a:.2f}, observed {b:.2f}, rows: {rows:g}" for a, b, rows in bins)
    return _svg(parts, HEIGHT, title, text)


def counts(edges: np.ndarray, observed: np.ndarray, low: np.ndarray,
           middle: np.ndarray, high: np.ndarray, title: str, across: str,
           up: str) -> str:
    """Numbers in bins, as dots, over the band and the middle of what was expected there."""
    x = _scale(float(edges[0]), float(edges[-1]), LEFT, WIDTH - RIGHT)
    y = _scale(0.0, 1.05 * max(max(observed), max(high), 1.0), HEIGHT - FOOT, TOP)
    parts = _axes(x, y, across, up)
    for i, (count, lower, mid, upper) in enumerate(zip(observed, low, middle, high, strict=True)):
        left, right = x(float(edges[i])), x(float(edges[i + 1]))
        parts += [f'<rect x="{left + 0.5:.1f}" y="{y(upper):.1f}" width="{right - left - 1:.1f}" '
                  f'height="{max(y(lower) - y(upper), 1):.1f}" fill="{COLOURS[5]}" '
                  f'fill-opacity="0.45"/>',
                  f'<line x1="{left + 0.5:.1f}" x2="{right - 0.5:.1f}" y1="{y(mid):.1f}" '
                  f'y2="{y(mid):.1f}" stroke="currentColor" stroke-width="1.6"/>',
                  f'<circle cx="{(left + right) / 2:.1f}" cy="{y(count):.1f}" r="3.5" '
                  f'fill="{COLOURS[1]}"/>']
    n_outside = sum(not a <= count <= b for count, a, b in zip(observed, low, high, strict=True))
    return _svg(parts, HEIGHT, title,
                f"{counted(len(observed), 'bin')} from {edges[0]:.4g} to {edges[-1]:.4g}; the "
                                    f"observed share is outside the band in {n_outside} of them")


class _Axis:
    """Numbers to dots, and the ticks between."""

    def __init__(self, low: float, high: float, first_dot: float, last_dot: float):
        self.low, self.high, self.first_dot, self.last_dot = low, high, first_dot, last_dot

    def __call__(self, value: float) -> float:
        return (self.first_dot + (value - self.low) / (self.high - self.low)
                * (self.last_dot - self.first_dot))

    def ticks(self, count: int = 5) -> list[float]:
        step = 10 ** math.floor(math.log10((self.high - self.low) / count))
        step *= next((m for m in (1, 2, 5, 10) if (self.high - self.low) / (m * step) <= count), 10)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _scale(low: float, high: float, first_dot: float, last_dot: float) -> _Axis:
    return _Axis(low, high if high > low else low + 1.0, first_dot, last_dot)


def _room(values: Sequence[float], first_dot: float, last_dot: float) -> _Axis:
    """An axis with a little room on either side."""
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    return _scale(low - margin, high + margin, first_dot, last_dot)


def _axes(x: _Axis, y: _Axis, across: str, up: str) -> list[str]:
    parts = _across(x, HEIGHT - FOOT, TOP, across, LEFT)
    for tick in y.ticks():
        parts += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" '
                  f'{GRID}/>', _text(LEFT - 6, y(tick) + 4, f"{tick:.6g}", "end")]
    middle = (TOP + HEIGHT - FOOT) / 2
    parts.append(f'<text transform="translate(13 {middle:.1f}) rotate(-90)" text-anchor="middle" '
                 f'font-size="12" {INK}>{escape(up)}</text>')
    return parts


def _across(x: _Axis, foot: float, top: float, name: str, left: float) -> list[str]:
    parts = [f'<line x1="{left:.1f}" x2="{WIDTH - RIGHT}" y1="{foot}" y2="{foot}" {AXIS}/>']
    for tick in x.ticks():
        parts += [f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top}" y2="{foot}" '
                  f'{GRID}/>', _text(x(tick), foot + 16, f"{tick:.6g}", "middle")]
    parts.append(_text((left + WIDTH - RIGHT) / 2, foot + 34, name, "middle"))
    return parts


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" {INK}>'
            f"{escape(text)}</text>")


def _svg(parts: list[str], height: float, title: str, caption: str) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH:g}" '
            f'height="{height:g}" viewBox="0 0 {WIDTH:g} {height:g}" '
            f'style="max-width:100%;min-width:{0.75 * WIDTH:g}px;height:auto" '
            f'font-family="system-ui, sans-serif"><title>{escape(title)}</title>'
            f"<desc>{escape(caption)}</desc>{''.join(parts)}</svg>")
