"""What all pictures are drawn on, and the colours of Okabe & Ito (2008), which every kind of colour
vision tells apart. Needs matplotlib: probml[plot].

A figure belongs to pyplot where pyplot is loaded, so that `plt.savefig` and `plt.show` know it;
else it is drawn by Agg, without a screen or a state of the process.
"""

import sys
from typing import Any

import numpy as np

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#595959")


def figure_of(size: tuple[float, float], layout: str | None = "constrained") -> Any:
    """A new figure of (width, height) inches."""
    from matplotlib.figure import Figure

    pyplot = sys.modules.get("matplotlib.pyplot")
    make = Figure if pyplot is None else pyplot.figure
    return make(figsize=size, layout=layout)


def axes_of(ax, size=(6.4, 4.2)):
    if ax is not None:
        return ax
    ax = figure_of(size).subplots()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def palette(k: int) -> np.ndarray:
    """k colours, (k, 3)."""
    import matplotlib
    from matplotlib.colors import to_rgb

    if k <= len(COLOURS):
        return np.array([to_rgb(colour) for colour in COLOURS[:k]])
    return matplotlib.colormaps["viridis"](np.linspace(0, 0.95, k))[:, :3]  # in order of lightness


def legend(ax, **where) -> None:
    ax.legend(frameon=False, fontsize=9, **where)
