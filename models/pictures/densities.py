"""Pictures of fitted mixtures and classifiers: densities, ellipses, responsibilities, profiles.

Each function takes an estimator, or a probml Fit with its data as a mapping, draws on `ax` (by
default on a new figure, which is pyplot's where pyplot is loaded) and returns the Axes, whose
`figure` shows or saves it. Components bear their number or name beside their colour."""

import numpy as np

from probml import DataError, ModelError
from probml.errors import counted
from probml.estimators.rules import hold, integer, numbers, optional
from probml.models.pictures.canvas import INK, PAPER, across, axes_of, legend, palette, place_legend
from probml.models.pictures.pictured import PictureData, ask, column_of, normals, tables

RULES = ("auto", "fd", "doane", "scott", "stone", "rice", "sturges", "sqrt")
_words, _number = optional(integer(1, 10_000))
BINS = (f"{_words}, increasing edges of bins, or the name of a rule of numpy.histogram_bin_edges",
        lambda bins: _number(bins) or isinstance(bins, str) and bins in RULES or _edges(bins))
ROWS = 2000  # bars of responsibilities at the most: further ones would be thinner than a pixel


def density(fitted, X, column=0, *, bins=None, ax=None):
    """The density of a mixture along one column over a histogram of it, with its components.

    Args:
        fitted: an estimator, or a Fit of a model with one discrete site in its rows.
        X: rows (n, d) as the estimator takes them, or the mapping {site: (n,) or (n, d)} of a Fit;
            unseen cells are left out.
        column: name or index; with more columns than one the others are integrated out.
        bins: of the histogram, as numpy.histogram takes them; counts have a bin each.

    Raises:
        ModelError: not fitted, or a column that is not there. DataError: data that are no numbers.
    """
    hold("density", bins=(bins, BINS))
    asked = ask(fitted, X)
    j = column_of(asked, column)
    x = asked.values[:, j][~np.isnan(asked.values[:, j])]
    if not len(x):
        raise DataError(f"density: column {asked.names[j]!r} has no observed value: it is missing "
                        "in every row. Choose another column")
    is_count = any(s.discrete for s in asked.fit.structure.sites.values() if s.rows
                   and s.name != asked.target)
    if is_count:
        grid = np.arange(x.min(), x.max() + 1)
        edges: np.ndarray | int = np.append(grid, grid[-1] + 1) - 0.5
    else:
        varies = np.ptp(x) > 0
        margin = 0.08 * np.ptp(x) if varies else 1e-3 * max(np.abs(x).max(), 1e3)
        grid = np.linspace(x.min() - margin, x.max() + margin, 400)
        # narrow components need narrow bins
        edges = max(len(np.histogram_bin_edges(x, "auto")) - 1,
                    min(int(2 * len(x) ** 0.5), 40)) if varies else grid[[0, -1]]
    points = np.full((len(grid), asked.values.shape[1]), np.nan)
    points[:, j] = grid
    data = asked.data(points)
    total = np.exp(asked.fit.log_prob(data))
    parts = total[:, None] * asked.fit.predict_proba(data, asked.target)
    ax, colours = axes_of(ax), palette(len(asked.classes))
    ax.hist(x, bins=edges if bins is None else bins, density=True, color="0.87", edgecolor="white",
            linewidth=0.5, label="data")
    style = {"marker": "o", "markersize": 3} if is_count else {}
    for part, colour, name in zip(parts.T, colours, _titles(asked), strict=True):
        ax.plot(grid, part, color=colour, linewidth=1.6, label=name, **style)
    ax.plot(grid, total, color=INK, linewidth=1.4, linestyle=(0, (4, 2)), label="mixture")
    ax.set_xlabel(asked.names[j])
    ax.set_ylabel("probability of a count" if is_count else "density")
    place_legend(ax, len(colours) + 2)
    return ax


def ellipses(fitted, X, columns=(0, 1), *, sd=(1, 2), ax=None):
    """Rows in the mixed colours of their probabilities, and normal components as ellipses of some
    standard deviations.

    A row that sees one of the two columns only is a tick at the edge.

    Args:
        fitted: an estimator or Fit with normal components: GaussianMixture, GaussianDiscriminant,
            MixtureDiscriminant (whose ellipses have the colours of the classes), gaussian_mixture.
        X: rows (n, d), or the mapping {site: (n, d)} of a Fit.
        columns: two, by name or index; the others are left out of the ellipses, not of the
            probabilities.
        sd: sizes of the ellipses, in standard deviations along every direction.

    Raises:
        ModelError: no normal components, not two columns. DataError: data that are no numbers.
    """
    asked = ask(fitted, X)
    if not (isinstance(columns, list | tuple | np.ndarray) and getattr(columns, "ndim", 1) == 1
            and len(columns) == 2):
        raise ModelError(f"ellipses(columns={columns!r:.80}): expected two columns, by name or "
                         "number, such as columns=(0, 1)")
    hold("ellipses", sd=(sd, numbers(0.0)))
    a, b = (column_of(asked, column) for column in columns)
    means, covariances, owners = normals(asked)
    ax, colours = axes_of(ax), palette(len(asked.classes))
    blend = np.clip(asked.fit.predict_proba(asked.data(asked.values), asked.target) @ colours, 0, 1)
    x, y = asked.values[:, a], asked.values[:, b]
    ax.scatter(x, y, s=18, c=blend, alpha=0.8, linewidths=0.3, edgecolors="white", zorder=2)
    for values, other, transform, marker in ((x, y, ax.get_xaxis_transform(), "|"),
                                             (y, x, ax.get_yaxis_transform(), "_")):
        partial = ~np.isnan(values) & np.isnan(other)
        if partial.any():
            edge = np.full(partial.sum(), 0.01)
            ax.scatter(
                *((values[partial], edge) if marker == "|" else (edge, values[partial])),
                c=blend[partial], marker=marker, transform=transform
            )
    angle = np.linspace(0, 2 * np.pi, 181)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    for mean, covariance, owner in zip(means, covariances, owners, strict=True):
        root = np.linalg.cholesky(covariance[np.ix_([a, b], [a, b])])
        for size in np.ravel(sd):
            edge = mean[[a, b], None] + size * root @ circle
            ax.plot(*edge, color=colours[owner], linewidth=1.4, zorder=3)
    for mean, name, owner in zip(means, _numbers(asked, owners), owners, strict=True):
        box = {"boxstyle": "round,pad=0.2", "facecolor": PAPER, "edgecolor": colours[owner],
               "alpha": 0.85}
        ax.text(mean[a], mean[b], name, ha="center", va="center", fontsize=8, zorder=4, bbox=box,
                clip_on=True)
    ax.set_xlabel(asked.names[a])
    ax.set_ylabel(asked.names[b])
    return ax


def responsibilities(fitted, X, *, ax=None):
    """p(component | row) as stacked bars, a bar a row, sorted by the most probable component and
    how sure it is.

    Args:
        fitted, X: an estimator and its rows, or a Fit and its data; of many rows every
            so-and-so-many-th is drawn.
    """
    if X is None:
        raise ModelError("responsibilities(X=None): expected rows of an estimator, or data of a "
                         "Fit. Pass them, responsibilities(fitted, X)")
    asked = ask(fitted, X, numbers=False)
    probability = np.asarray(asked.fit.predict_proba(asked.data(asked.values), asked.target))
    best = probability.argmax(1)
    order = np.lexsort((-probability[np.arange(len(best)), best], best))
    if len(order) > ROWS:
        order = order[np.linspace(0, len(order) - 1, ROWS).astype(int)]
    bars = probability[order]
    ax, colours = axes_of(ax), palette(len(asked.classes))
    edges = np.linspace(0, len(best), len(bars) + 1)
    ax.stackplot(edges, *np.vstack([bars, bars[-1:]]).T, step="post", colors=colours,
                 labels=_titles(asked), linewidth=0)
    ax.set(xlim=(0, len(best)), ylim=(0, 1),
           xlabel=f"{counted(len(best), 'row')}, by their most probable {asked.title}")
    ax.set_ylabel(f"probability of each {asked.title}")
    legend(ax, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def profile(fitted, *, ax=None):
    """What tells the components or classes apart: a row for each column, a cell for each component.

    The number is the mean in the column's own units, or the probability of a category or the share
    of a word; the colour is how far it lies from the mean over all components, in standard
    deviations of the column over all components: a category is read as the variable that is 1 where
    it holds. Of two categories the second is drawn.

    Args:
        fitted: NaiveBayes, LatentClass, MixedMixture, PoissonMixture, GaussianMixture,
            GaussianDiscriminant, or a Fit of naive_bayes or gaussian_mixture.

    Raises:
        ModelError: a model whose columns have no table of their own in every component.
    """
    asked = ask(fitted, None)
    weights = np.asarray(asked.fit.params["weights"])
    names, means, variances, is_prob = tables(fitted, asked)
    overall = means @ weights
    sd = np.sqrt((variances + (means - overall[:, None]) ** 2) @ weights)
    z = (means - overall[:, None]) / np.where(sd > 0, sd, 1.0)[:, None]
    ax = axes_of(ax, (1.6 + 1.2 * len(weights) + 0.055 * max(map(len, names)),
                      1.3 + 0.3 * len(names)))
    limit = max(1.0, np.abs(z).max())
    image = ax.imshow(z, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto")
    for (i, j), value in np.ndenumerate(means):
        text = (f"{value:.2f}" if is_prob[i] else f"{value:#.3g}".rstrip(".")
                if 1e-3 < abs(value) < 1000 else f"{value:.4g}")
        ax.text(j, i, text, ha="center", va="center", fontsize=8,
                color="white" if abs(z[i, j]) > 0.65 * limit else "black")
    ax.set_yticks(range(len(names)), names)
    titles = [f"{name}\n{weight:.0%}" for name, weight in zip(asked.classes, weights, strict=True)]
    across(ax, titles)
    ax.set_xlabel(f"{asked.title} and its share")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(image, ax=ax, shrink=min(1.0, 6 / len(names)), pad=0.02)
    bar.set_label("standard deviations\nfrom the overall mean", fontsize=8)
    bar.outline.set_visible(False)
    return ax


def _titles(asked: PictureData) -> list[str]:
    weights = asked.fit.params.get("weights")
    names = asked.classes if asked.title == "class" else [
        f"{asked.title} {name}" for name in asked.classes
    ]
    return names if weights is None else [f"{name}, {weight:.0%}"
                                          for name, weight in zip(names, weights, strict=True)]


def _numbers(asked: PictureData, owners) -> list[str]:
    return [asked.classes[owner] for owner in owners]


def _edges(bins) -> bool:
    """Whether they are edges of bins, in their order."""
    try:
        array = np.asarray(bins, float)
    except (TypeError, ValueError):
        return False
    return bool(array.ndim == 1 and len(array) > 1 and np.isfinite(array).all()
                and (np.diff(array) > 0).all())
