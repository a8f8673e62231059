"""A scene on matplotlib's axes: probml[plot]."""

from typing import Any

from probml.assessment.pages.scene import ANGULAR, ROLES, Scene
from probml.errors import ModelError

POINTS = 72.0  # an inch


def drawn(scene: Scene, ax: Any = None) -> Any:
    """A scene drawn on axes; by default those of a new pyplot figure of its size."""
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
    from matplotlib.path import Path

    if ax is not None and not hasattr(ax, "set_axis_off"):
        raise ModelError(f"draw(ax={ax!r:.200}): expected matplotlib's axes, or None for new ones")
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
                fontweight="bold" if text.inside and text.size > 12 else "normal",
                color="#1a1a1a" if text.inside else "#6b6b6b")
    return ax
