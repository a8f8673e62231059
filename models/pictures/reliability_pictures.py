"""Pictures of probabilities against what came true."""

from collections.abc import Hashable

import numpy as np

from probml import Calibration, ModelError
from probml.errors import counted, listed, type_of
from probml.models.pictures.canvas import COLOURS, axes_of


def reliability(report, label=None, *, ax=None):
    """The reliability curve: observed share against mean predicted probability; on the diagonal
    promises are kept.

    Points grow with the rows of their bin. Bars are 95% intervals of the share (Wilson 1927). Grey
    bars: the rows of each bin.

    Args:
        report: of `probml.calibration(...)` or `fit.calibration(...)`.
        label: that label against all others; by default the most probable one of every row.

    Raises:
        ModelError: no calibration report, or a label that it has not.
    """
    if not isinstance(report, Calibration):
        raise ModelError("reliability: expected the result of fit.calibration(...), got "
                         f"{type_of(report)}")
    if label is not None and (not isinstance(label, Hashable) or label not in report.curves):
        raise ModelError(f"reliability(label={label!r:.80}): expected one of "
                         f"{listed(report.labels)}")
    curve = report.curve if label is None else report.curves[label]
    ax = axes_of(ax, (4.8, 4.8))
    rows, predicted, share = (curve[name].to_numpy(float)
                              for name in ("rows", "predicted", "observed"))
    low, high = _wilson(share, rows)
    ax.bar(curve["low"], 0.18 * rows / rows.max(), curve["high"] - curve["low"], align="edge",
           color="0.9", edgecolor="white", zorder=1)
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle=(0, (4, 2)), zorder=2)
    ax.errorbar(predicted, share, yerr=[share - low, high - share], color=COLOURS[0], linewidth=1.4,
                elinewidth=1, capsize=2, zorder=3)
    ax.scatter(predicted, share, s=14 + 60 * rows / rows.max(), color=COLOURS[0], edgecolor="white",
               linewidth=0.6, zorder=4)
    error = float((rows * np.abs(share - predicted)).sum() / rows.sum())
    ax.set(xlim=(-0.01, 1.01), ylim=(0, 1.02), aspect="equal")
    what = "most probable label" if label is None else f"probability of {label!s}"
    ax.set_title(f"{what}\ncalibration error {error:.3f}, "
                 f"{counted(report.rows, 'row')}", fontsize=9)
    ax.set_xlabel("mean predicted probability")
    ax.set_ylabel("observed share")
    return ax


def _wilson(share: np.ndarray, rows: np.ndarray, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
    centre = (share + z**2 / (2 * rows)) / (1 + z**2 / rows)
    half = z / (1 + z**2 / rows) * np.sqrt(share * (1 - share) / rows + z**2 / (4 * rows**2))
    return np.minimum(centre - half, share), np.maximum(centre + half, share)
