"""A scene on matplotlib's axes: probml[plot]."""

from typing import Any

from probml.assessment.pages.scene import ROLES, Scene
from probml.errors import ModelError

POINTS = 72.0  # an inch


def drawn(scene: Scene, ax: Any = None) -> Any:
    """A scene drawn on axes; by default those of a new pyplot figure of its size."""
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
    from matplotlib.path import Path

    used = [role for role in ROLES if any(box.node.role == role for box in scene.boxes)]
    columns = max(int(scene.width / 1.9), 1)
    width = max(scene.width, 1.9)
    height = scene.height + 0.28 * -(-len(used) // columns)
    if ax is not None and not hasattr(ax, "set_axis_off"):
        raise ModelError(f"draw(ax={ax!r:.200}): expected matplotlib's axes, or None for new ones")
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.figure(figsize=(width, height)).add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    ax.set_axis_off()

    def box(x: float, y: float, wide: float, high: float, role: str, name: str | None = None):
        inside, edge, dashes, _ = ROLES[role]
        style = (0, tuple(map(float, dashes.split()))) if dashes else "-"
        round_ = 0.03 if role in ("computed", "input", "factor") else 0.11
        round_ = min(round_, high / 3)
        patch = FancyBboxPatch((x, y), wide, high, facecolor=inside, edgecolor=edge, linewidth=1.4,
                               linestyle=style, zorder=3,
                               boxstyle=f"round,pad=0,rounding_size={round_}")
        patch.set_gid(name)
        ax.add_patch(patch)

    for frame in scene.frames:
        ax.add_patch(Rectangle((frame.x, frame.y), frame.width, frame.height, fill=False,
                               edgecolor="#7f7f7f", zorder=1))
        ax.text(frame.x + frame.width - 0.1, frame.y + frame.height - 0.1, frame.name, ha="right",
                va="bottom", fontsize=8, color="#6b6b6b")
    for arrow in scene.arrows:
        path = Path(arrow.points, [Path.MOVETO, *[Path.CURVE4] * 3])
        patch = FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=9, color="#7f7f7f",
                                linewidth=1.0, zorder=2)
        patch.set_gid(f"{arrow.tail}→{arrow.head}")
        ax.add_patch(patch)
    for place in scene.boxes:
        node = place.node
        box(place.x, place.y, place.width, place.height, node.role, node.name)
        middle = place.x + place.width / 2
        ax.text(middle, place.y + place.height * (0.33 if node.note else 0.5), node.name,
                ha="center", va="center", fontsize=9.5, fontweight="bold", zorder=4,
                color="#1a1a1a")
        ax.text(middle, place.y + place.height * 0.71, node.note, ha="center", va="center",
                fontsize=7.5, zorder=4, color="#1a1a1a")
    for i, role in enumerate(used):
        x, y = 1.9 * (i % columns) + 0.08, scene.height + 0.28 * (i // columns)
        box(x, y + 0.04, 0.28, 0.18, role)
        ax.text(x + 0.35, y + 0.13, ROLES[role][3], va="center", fontsize=8, color="#6b6b6b")
    return ax
