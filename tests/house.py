"""`make house`: draws the tower, docs/pictures/house.png: a row and a column a room, how many imports
the row's room takes from the column's. Nothing stands above the diagonal: a room knows those below
its floor alone."""

from collections import Counter

import matplotlib
import numpy as np

from test_architecture import FLOORS, MODULES, ROOT, imports, reached, room

PICTURE = ROOT / "docs" / "pictures" / "house.png"


def counts() -> np.ndarray:
    """(rooms, rooms): imports of the row's room from the column's."""
    found = Counter((room(name), room(target)) for name, path in MODULES.items()
                    if not name.startswith("probml.models")
                    for module, names, _ in imports(path) for target in reached(module, names))
    return np.array([[found[here, there] if here != there else 0 for there in FLOORS]
                     for here in FLOORS])


def draw() -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    table = counts()
    files = Counter(room(name) for name in MODULES if not name.startswith("probml.models"))
    _, axes = plt.subplots(figsize=(9, 8.4), layout="constrained")
    axes.imshow(np.log1p(np.ma.masked_equal(table, 0)), cmap="Blues", vmin=-0.5, vmax=6)
    for i, j in zip(*np.nonzero(table), strict=True):
        axes.text(j, i, table[i, j], ha="center", va="center", fontsize=7,
                  color="white" if table[i, j] > 40 else "black")
    axes.set_xticks(range(len(FLOORS)), FLOORS, rotation=90)
    axes.set_yticks(range(len(FLOORS)), [f"{name} ({files[name]} files)" for name in FLOORS])
    axes.set_title("Imports of probml's rooms, from the ground floor up: a row takes from its columns")
    axes.set_xlabel("imported room")
    plt.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    draw()
