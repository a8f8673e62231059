"""`probml demo`: mixtures of several sizes fitted to the Old Faithful eruptions, which are shipped,
the best of them by BIC, and a picture, by public names alone."""

from importlib import resources
from pathlib import Path

from matplotlib.figure import Figure

from probml import models
from probml.numerics.process.libraries import pd

COLUMNS = ["eruptions", "waiting"]


def run(out: Path, max_k: int) -> None:
    """Fit 1 … `max_k` components side by side, compare them, show the best and draw it to `out`."""
    with (resources.files("probml.data") / "faithful.csv").open() as file:
        table = pd.read_csv(file)[COLUMNS]
    print(f"Old Faithful: {len(table)} eruptions, their length and the wait for the next one, in "
          f"minutes; no labels.\n")
    mixture = models.GaussianMixture(range(1, max_k + 1), random_state=0).fit(table)
    print(mixture.summary(), end="\n\n")
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    models.pictures.ellipses(mixture, table, ax=axes)
    axes.set(title="Old Faithful: normal components, ellipses of 1 and 2 standard deviations",
             xlabel="length of the eruption, minutes", ylabel="wait for the next eruption, minutes")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
    print(f"Picture: {out}")
