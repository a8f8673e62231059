"""What all pictures are drawn on, and the colours of Okabe & Ito (2008), which every kind of colour
vision tells apart. Needs matplotlib: probml[plot].

A figure belongs to pyplot where pyplot is loaded, so that `plt.savefig` and `plt.show` know it;
else it is drawn by Agg, without a screen or a state of the process.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from jax.typing import ArrayLike

from probml import DataError, Fit, ModelError
from probml.errors import listed, type_of
from probml.language.given import labels
from probml.numerics.process.libraries import pd
from probml.typing import DataLike, FitOrEstimator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#595959")
INK, PAPER = "#1a1a1a", "#fefefe"  # of words and lines, and behind words: in a page its own
CHARACTER = 0.08  # inches that one of a word below a column is wide
MAX_INSIDE_LEGEND_LINES = 9  # lines of a legend that leaves room for what is drawn


def figure_of(size: tuple[float, float],
              layout: Literal["constrained", "tight"] | None = "constrained") -> "Figure":
    """A new figure of (width, height) inches."""
    from matplotlib.figure import Figure

    pyplot = sys.modules.get("matplotlib.pyplot")
    return (pyplot.figure if pyplot else Figure)(figsize=size, layout=layout)


def axes_of(ax, size=(6.4, 4.2)):
    """The axes that were given, or those of a new figure.

    Raises:
        ModelError: what was given is no axes.
    """
    if ax is not None:
        if not hasattr(ax, "get_xaxis_transform"):
            raise ModelError(f"ax={ax!r:.80}: expected matplotlib's Axes to draw on, such as "
                             f"plt.subplots()[1], or None for a new figure, got {type_of(ax)}")
        return ax
    ax = figure_of(size).subplots()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def fit_of(call: str, fitted: FitOrEstimator) -> Fit:
    """A Fit, or that of an estimator.

    Raises:
        ModelError: neither, or an estimator that has not learnt.
    """
    fit = fitted if isinstance(fitted, Fit) else getattr(fitted, "fit_", None)
    if not isinstance(fit, Fit):
        raise ModelError(f"{call}: expected a Fit or a fitted estimator, got "
                         f"{fitted if isinstance(fitted, str) else type(fitted).__name__}. Fit the "
                         f"model first")
    return fit


def numbers_of(call: str, name: str, value: ArrayLike, axes: tuple[int, ...]) -> np.ndarray:
    """An argument as an array of numbers with so many axes.

    Raises:
        DataError: it is none, or has others.
    """
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"got {array.dtype}")
        array = array.astype(float)
    except (TypeError, ValueError) as error:
        raise DataError(f"{call}({name}={value!r:.80}): expected numbers ({error})") from None
    if array.ndim not in axes or not array.size:
        raise DataError(f"{call}({name}=...): expected at least one number, in an array "
                        f"whose number of axes is {' or '.join(map(str, axes))}, got the shape "
                        f"{array.shape}")
    return array


def as_names(call: str, name: str, value: object, have: list) -> list:
    """One of the names that there are, or several, as a list.

    Raises:
        ModelError: none, or others.
    """
    chosen = labels([value] if isinstance(value, str) else value, f"{call}({name})")
    if stray := [each for each in chosen if each not in have]:
        raise ModelError(f"{call}({name}=...): {stray[0]!r:.80} is not one of the known names. Use "
                         f"one of {listed(have)}")
    return list(dict.fromkeys(chosen))


def palette(k: int) -> np.ndarray:
    """k colours, (k, 3)."""
    import matplotlib
    from matplotlib.colors import to_rgb

    if k <= len(COLOURS):
        return np.array([to_rgb(colour) for colour in COLOURS[:k]])
    return matplotlib.colormaps["viridis"](np.linspace(0, 0.95, k))[:, :3]  # in order of lightness


def legend(ax, **where) -> None:
    ax.legend(frameon=False, fontsize=9, **where)


def across(ax, words: list[str]) -> None:
    """Words below the columns 0, 1, …; aslant where they are wider than these."""
    width = max((len(line) for word in words for line in word.split("\n")), default=0)
    inches = ax.get_position().width * ax.figure.get_figwidth() / max(len(words), 1)
    style = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(words)), words, **(style if width * CHARACTER > inches else {}))


def place_legend(ax, lines: int) -> None:
    """A legend, in the axes where it is short, else at their right."""
    legend(ax, **({} if lines <= MAX_INSIDE_LEGEND_LINES else {"loc": "upper left",
                                                               "bbox_to_anchor": (1.0, 1.0)}))


def steps_of(X: DataLike, count: int) -> tuple[DataLike, bool]:
    """Places on an axis of so many time steps, and whether they are dates: those of the index of
    X, continued with its frequency where it ends before; else 0, 1, …"""
    index = getattr(X, "index", None)
    kind = type(index).__name__
    if index is None or kind not in ("DatetimeIndex", "PeriodIndex") or not len(index):
        return np.arange(count), False
    if count > len(index):
        freq = index.freq or getattr(index, "inferred_freq", None)
        if freq is None:
            return np.arange(count), False
        later = (pd.period_range if kind == "PeriodIndex" else pd.date_range)(
            index[-1], periods=count - len(index) + 1, freq=freq)[1:]
        index = index.append(later)
    index = index.to_timestamp() if kind == "PeriodIndex" else index
    return index[:count].to_pydatetime(), True


def place_of(call: str, argument: str, name: object, names: Sequence) -> int:
    """The place of a name among others; or a place itself, from the end where it is below 0.

    Raises:
        ModelError: it is none of them.
    """
    known = ["intercept" if item == "1" else str(item) for item in names]
    if (isinstance(name, int | np.integer) and not isinstance(name, bool)
        and -len(known) <= name < len(known)):
        return int(name) % len(known)
    if not isinstance(name, str) or name not in [*known, *names]:
        raise ModelError(f"{call}({argument}={name!r:.80}): expected one of {listed(known)}, or an "
                         f"integer below {len(known)}")
    return known.index(name) if name in known else list(names).index(name)
