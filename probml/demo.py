"""The main job on shipped data: mixtures of several sizes fitted to the Old Faithful eruptions, the
best of them, a figure.

`python -m probml.demo --help` tells the options; `make demo` runs it.
"""

import argparse
import os
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

COLUMNS = ("eruptions", "waiting")
# Okabe & Ito (2008): told apart by every kind of colour vision
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
ELLIPSES = (1, 2)  # standard deviations


def main(argv: Sequence[str] | None = None) -> None:
    """Fit k = 1 … K components side by side, compare them by BIC, tell the plan and the result of
    the best, draw it."""
    options = _options(argv)

    import jax
    import numpy as np
    import pandas as pd

    import probml
    from probml.interface.showing.summaries import summarized
    from probml.interface.sizes import grid
    from probml.models import gaussian_mixture

    # minutes far from 0 would be fitted in float32 first, and then once more
    jax.config.update("jax_enable_x64", True)
    with (resources.files("probml.data") / "faithful.csv").open() as file:
        table = pd.read_csv(file)[list(COLUMNS)]
    x, data, sizes = table.to_numpy(), {"x": table}, range(1, options.most + 1)

    print(f"Old Faithful: {len(x)} eruptions, their length and the wait for the next one, in "
          f"minutes; no labels.\n")
    engine = probml.EM(restarts=options.restarts, progress=True)
    fits = grid({k: gaussian_mixture(k=k, d=2) for k in sizes}, data, "z", engine)
    print(f"Mixtures of 1 … {options.most} normals, {options.restarts} starts each, stand "
          f"{since_start():.1f} s after the process started.\n")

    print("How many components? Compared by BIC = p ln n − 2 ln L, the smallest is best:\n")
    records = []
    for k, found in fits.items():
        log_likelihood, free = float(found.log_prob(data).sum()), free_parameters(k, 2)
        records.append((k, free, log_likelihood, free * np.log(len(x)) - 2 * log_likelihood))
    table = pd.DataFrame(records, columns=["k", "p", "ln L", "BIC"])
    table[""] = np.where(table["BIC"] == table["BIC"].min(), "← best", "")
    print(table.to_string(index=False, float_format="{:.1f}".format), end="\n\n")

    best = int(table["k"][table["BIC"].idxmin()])
    fit = fits[best]
    print(f"The best, k = {best}: {fit.status}.\n")
    print(fit.model.explain(data), end="\n\n")
    print(summarized(fit), end="\n\n")

    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw_fit(fit, x, options.out)
    print(f"Figure of the fit: {options.out}")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m probml.demo", description="Fit mixtures to "
                                     "the Old Faithful eruptions and draw one.")
    parser.add_argument("--out", type=Path, default=Path("out/faithful.png"),
                        help="where the figure goes (default: %(default)s)")
    parser.add_argument("--most", type=int, default=5,
                        help="compare 1 … this many components (default: %(default)s)")
    parser.add_argument("--restarts", type=int, default=5,
                        help="starts of EM for each number of components (default: %(default)s)")
    return parser.parse_args(argv)


def since_start() -> float:
    """Seconds since this process started, the imports included; where the system does not tell, the
    seconds it computed."""
    try:
        ticks = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except OSError:
        return time.process_time()


def free_parameters(k: int, d: int) -> int:
    """The parameters of k full-covariance components in d dimensions: weights, means,
    covariances."""
    return (k - 1) + k * d + k * d * (d + 1) // 2


def components(fit):
    """Weights (k,), means (k, d) and covariances (k, d, d) of a fitted mixture, the heaviest
    component first."""
    import numpy as np

    weights, means, precisions = (np.asarray(fit.params[name])
                                  for name in ("weights", "mean", "precision"))
    order = np.argsort(-weights)
    return weights[order], means[order], np.linalg.inv(precisions)[order], order


def draw_fit(fit, x, path: Path) -> None:
    """Scatter the rows in the colours of their responsibilities, with ellipses of one and two sd
    per component.

    Args:
        fit: of gaussian_mixture(k, d=2) with full covariances, k at most as many as COLOURS.
        x: the rows, (n, 2).
        path: of the picture; its folder exists.
    """
    import numpy as np
    from matplotlib import colors

    # drawn by Agg: without pyplot there is no screen and no state of the process
    from matplotlib.figure import Figure

    weights, means, covariances, order = components(fit)
    palette = np.array([colors.to_rgb(c) for c in COLOURS[: len(weights)]])
    # a row that may be of two components gets a colour in between
    blend = fit.predict_proba({"x": x}, "z")[:, order] @ palette

    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.subplots()
    axes.scatter(*x.T, s=22, c=np.clip(blend, 0, 1), alpha=0.75, linewidths=0.4, edgecolors="white",
                 zorder=2)
    angle = np.linspace(0, 2 * np.pi, 181)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    for j, (weight, mean, covariance) in enumerate(zip(weights, means, covariances, strict=True)):
        for sd in ELLIPSES:
            edge = mean[:, None] + sd * np.linalg.cholesky(covariance) @ circle
            axes.fill(*edge, color=palette[j], alpha=0.10, linewidth=0, zorder=1)
            axes.plot(*edge, color=palette[j], linewidth=1.2, zorder=3)
        axes.plot(*mean, "+", color="black", markersize=9, markeredgewidth=1.6, zorder=4)
        along = np.sqrt(np.diag(covariance))
        name = (f"{weight:.0%} of eruptions: {mean[0]:.1f} ± {along[0]:.1f} min, next after "
                f"{mean[1]:.0f} ± {along[1]:.0f} min")
        axes.plot([], [], "o", color=palette[j], label=name)
    axes.legend(
        loc="upper left",
        frameon=False,
        fontsize=9,
        handletextpad=0.2,
        title="colour: probability of each component",
        title_fontsize=9,
        alignment="left",
    )
    axes.margins(0.06, 0.06)
    axes.set_ylim(top=axes.get_ylim()[1] + 0.16 * np.ptp(x[:, 1]))  # room for the legend
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("length of the eruption, minutes")
    axes.set_ylabel("wait for the next eruption, minutes")
    axes.set_title(f"Old Faithful: {len(weights)} normal components, ellipses of 1 and 2 sd",
                   fontsize=11, loc="left")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
