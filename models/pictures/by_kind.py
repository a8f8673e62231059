"""The pictures of each kind of model: `picture` draws the first one, a report has all of them.

An estimator declares its kind (`_kind`); of a Fit it follows from the structure of its model.
"""

import contextlib
import io
import re
import sys
import zlib
from collections.abc import Callable, Mapping
from html import escape
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from probml import DataError, ModelError, Refusal
from probml.errors import type_of
from probml.interface.showing.subject import Subject
from probml.models.pictures.canvas import INK, PAPER, figure_of, fit_of
from probml.models.pictures.densities import density, ellipses, profile, responsibilities
from probml.models.pictures.forests import forest
from probml.models.pictures.latent_pictures import biplot, components, effects, groupings
from probml.models.pictures.network_pictures import draw_network
from probml.models.pictures.pictured import ask, normals
from probml.models.pictures.ranks import counts
from probml.models.pictures.regressions import effects_of, qq, residuals
from probml.models.pictures.reliability_pictures import reliability
from probml.models.pictures.scores import choosing, confusion
from probml.models.pictures.series import entries, learning, timeline, traces
from probml.typing import DataLike, FitOrEstimator

MAX_POINTS = 2000  # rows of a scatter plot in a page
MEMBERS = 60  # of a grouping, whose names are drawn
AHEAD = 8  # of a series its length / AHEAD steps are forecast


class Drawing(NamedTuple):
    """A picture of a kind of model.

    Attributes:
        title: of its tab. draw: of (fitted, X, y). caption: what it shows. rows: whether it needs
            rows. may_drop_rows: whether it may leave rows out.
    """

    title: str
    draw: Callable[[FitOrEstimator, DataLike, ArrayLike], object]
    caption: str
    rows: bool = True
    may_drop_rows: bool = False


def picture(fitted: FitOrEstimator, X: DataLike = None, y: ArrayLike = None):
    """The picture that is usual for this kind of model: clusters with their ellipses, classes, the
    states along time, the components of a series, effects of groups, a network, a biplot, a smooth
    curve, or a forest plot of coefficients.

    Args:
        fitted: an estimator of probml.models, or a probml Fit.
        X: the rows as `fit` takes them, of a Fit its data as a mapping; by default those that an
            estimator still has (none after `load`).
        y: the target, of an estimator that has one.

    Returns:
        matplotlib.axes.Axes, of several an array of them: their `figure` shows or saves them.

    Raises:
        ModelError: not fitted, or of a kind without a picture. DataError: rows that are missing, or
            of the wrong form.

    Example:
        >>> import numpy as np
        >>> from probml.models import GaussianMixture, pictures
        >>> X = np.repeat([[0.0, 0.1], [5.0, 5.2]], 10, 0) + np.linspace(0, 1, 40).reshape(20, 2)
        >>> pictures.picture(GaussianMixture(2, n_init=1).fit(X)).get_xlabel()
        'column 0'
    """
    fit_of("picture", fitted)
    if X is None:
        stored = getattr(fitted, "_fitted_rows", {})
        X, y = stored.get("X"), stored.get("y", y)
    reason: Exception | None = None
    for drawing in KINDS.get(kind_of(fitted), ()):
        if drawing.rows and X is None:
            reason = DataError(f"picture: this {type(fitted).__name__} does not store the rows to "
                               f"which it was fitted. Pass the rows, picture(fitted, X)")
            continue
        try:
            return drawing.draw(fitted, X, y)
        except (ModelError, DataError, Refusal) as error:
            reason = reason or error
    raise reason or ModelError(f"picture: there is no picture for {type_of(fitted)}. Use "
                               "pictures.intervals(fitted), which shows its parameters")


def kind_of(fitted: FitOrEstimator) -> str:
    """A key of KINDS, or ""."""
    if declared := getattr(fitted, "_kind", ""):
        return declared
    fit = fit_of("picture", fitted)
    sites = [site for site in fit.structure.sites.values() if site.rows]
    pattern = dict(fit.pattern)
    if fit.structure.markov:
        return "states"
    if hasattr(fitted, "classes_"):
        return "classes"
    if any(site.finite and site.name not in pattern for site in sites):
        return "clusters"
    if len(sites) > 2 and all(site.finite for site in sites):
        return "network"
    if groupings(fit):
        return "effects"
    return "regression" if hasattr(fitted, "predict") and fitted is not fit else ""


def draw_pictures(subject: Subject) -> list[tuple[str, str, str]]:
    """(title, SVG, caption) of the pictures of a report.

    Raises:
        ImportError: there is no matplotlib.
    """
    fitted, drawn = subject.fitted, []
    X, y = (*subject.rows, None, None)[:2]
    for drawing in KINDS.get(kind_of(fitted), ()):
        if drawing.rows and X is None:
            continue
        data = _subsample(X, y) if drawing.may_drop_rows else (X, y)
        # it may be no picture of these data, such as ellipses of categories
        with contextlib.suppress(ModelError, DataError, Refusal, AttributeError, KeyError):
            drawn.append((drawing.title, _svg(drawing.title, drawing.caption, drawing.draw, fitted,
                                              *data), drawing.caption))
    return drawn


def draw_for_page(kind: str, title: str, caption: str, *numbers: object) -> str:
    """The SVG of a picture of numbers, one of `ON_PAGES`.

    Raises:
        ImportError: there is no matplotlib.
    """
    return _svg(title, caption, ON_PAGES[kind], *numbers)


def _subsample(X: DataLike, y: ArrayLike) -> tuple[DataLike, ArrayLike]:
    """Every so-and-so-many-th of many rows."""
    if isinstance(X, Mapping) or not hasattr(X, "__len__") or len(X) <= MAX_POINTS:
        return X, y
    rows = np.linspace(0, len(X) - 1, MAX_POINTS).astype(int)

    def take_rows(values: DataLike) -> DataLike:
        return values.iloc[rows] if hasattr(values, "iloc") else np.asarray(values)[rows]

    return take_rows(X), None if y is None else take_rows(y)


def _svg(title: str, caption: str, draw: Callable, *numbers: object) -> str:
    """What is drawn as SVG of a page: ids of its own, the ink and the paper of the page."""
    import matplotlib

    colours = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color",
                             "ytick.color"), INK)
    buffer, name = io.StringIO(), f"p{zlib.crc32(title.encode()):x}"
    with matplotlib.rc_context({**colours, "svg.fonttype": "none"}):
        figure = np.asarray(draw(*numbers), object).flat[0].figure
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close(figure)  # else it is kept
    text = buffer.getvalue()
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]*)"', lambda m: f'id="{name}-{m[1]}"', text)
    text = re.sub(r'href="#([^"]*)"', lambda m: f'href="#{name}-{m[1]}"', text)
    text = re.sub(r"url\(#([^)]*)\)", lambda m: f"url(#{name}-{m[1]})", text)
    text = text.replace(INK, "currentColor").replace(PAPER, "var(--paper)")
    min_width = min(0.6 * 72 * figure.get_figwidth(), 320)
    head = (f'<svg role="img" style="max-width:100%;min-width:{min_width:.0f}px;height:auto;'
            f'stroke-linejoin:round" ')
    described = f"<title>{escape(title)}</title><desc>{escape(caption)}</desc>"
    end = text.index(">") + 1
    return text[:end].replace("<svg ", head, 1) + described + text[end:]


# The pictures

def _ellipses(fitted: FitOrEstimator, X: DataLike, y: ArrayLike):
    asked = ask(fitted, X)
    if len(asked.names) < 2:
        return density(fitted, X)
    means, covariances, _ = normals(asked)
    within = covariances[:, range(len(asked.names)), range(len(asked.names))].mean(0)
    separation = means.var(0) / np.maximum(within, 1e-300)
    columns = sorted(np.argsort(-separation, kind="stable")[:2].tolist())
    return ellipses(fitted, X, columns)


def _states(fitted: FitOrEstimator, X: DataLike, y: ArrayLike):
    if isinstance(X, list | tuple) and len(X) and np.ndim(X[0]):
        X = X[0]
    return timeline(fitted, X)


def _ahead(fitted: FitOrEstimator, X: DataLike, y: ArrayLike):
    return components(fitted, X, max(len(X) // AHEAD, 1))


def _effects(fitted: FitOrEstimator, X: DataLike, y: ArrayLike):
    """A panel for each coefficient of each grouping."""
    panels = [(name, j) for name in getattr(fitted, "_sites", {})
              for j in range(len(fitted.effects[name]))]
    if len(panels) < 2:
        return effects(fitted)
    levels = max(min(len(fitted.groups_[name]), MEMBERS) for name, _ in panels)
    figure = figure_of((4.2 * min(len(panels), 3), max(0.22 * levels + 1.1, 2.6)))
    axes = figure.subplots(1, min(len(panels), 3), squeeze=False)[0]
    for ax, (name, j) in zip(axes, panels, strict=False):
        ax.spines[["top", "right"]].set_visible(False)
        effects(fitted, name, coordinate=j, ax=ax)
    return axes


def _smooth(fitted: FitOrEstimator, X: DataLike, y: ArrayLike):
    ax = effects_of(fitted, 0, X, level=0.95)
    values = np.asarray(X, float)
    if y is not None and values.reshape(len(values), -1).shape[1] == 1:
        ax.plot(values.ravel(), np.asarray(y, float), ".", color="0.55", markersize=4, zorder=0)
        ax.set_title("")
        ax.set_ylabel(str(getattr(y, "name", None) or "y"))
    return ax


def _plot_confusion(fitted: FitOrEstimator, X: DataLike, y: ArrayLike):
    if y is None:
        raise DataError("confusion: the true labels are missing. Pass the target y")
    return confusion(np.asarray(y, object), np.asarray(fitted.predict(X), object))


ELLIPSES = Drawing(
    "Ellipses", _ellipses, "Rows in the colours of their probabilities, and the normal "
                           "components as ellipses of 1 and 2 standard deviations.",
                           may_drop_rows=True)
PROFILE = Drawing(
    "Profile", lambda fitted, X, y: profile(fitted), "Mean or probability of each column in each "
                                                     "component or class; the colour is the "
                                                     "distance from the overall mean, in standard "
                                                     "deviations.",
    rows=False)
SHARES = Drawing(
    "Assignments", lambda fitted, X, y: responsibilities(fitted, X),
    "Probability of each component for each row, sorted.", may_drop_rows=True)
SIZES = Drawing(
    "Criteria", lambda fitted, X, y: choosing(fitted),
    "Information criteria by size; a ring marks the best of each.", rows=False)
FOREST = Drawing(
    "Coefficients", lambda fitted, X, y: forest(fitted),
    "Coefficients with their 95% intervals, without the intercept.", rows=False)
RESIDUALS = Drawing(
    "Residuals", residuals, "Residuals against fitted values, and the running mean of the "
                            "residuals. If the model fits, there is no pattern.",
                            may_drop_rows=True)
QQ = Drawing(
    "Normal quantiles", qq, "Quantiles of the standardised residuals against those of a normal "
                            "distribution.",
    may_drop_rows=True)
EFFECTS = Drawing(
    "Random effects", _effects, "The effect of each level of a grouping, with 95% intervals; those "
                                "that differ from the mean of all are coloured.", rows=False)
CONFUSION = Drawing(
    "Confusion matrix", _plot_confusion, "The number of rows with each pair of true and predicted "
                                    "label.")
STATES = Drawing("States", _states, "The series, and the most probable state of each step.")
COMPONENTS = Drawing(
    "Components", _ahead, "The series with its forecast, and its components, with 90% intervals.")
NETWORK = Drawing(
    "Network", lambda fitted, X, y: draw_network(fitted), "The network with the marginal "
    "probabilities of each variable.", rows=False)
BIPLOT = Drawing(
    "Biplot", lambda fitted, X, y: biplot(fitted, X), "Rows by their first two scores, and columns "
    "as arrows by their loadings.", may_drop_rows=True)
SMOOTH = Drawing("Smooth", _smooth, "The estimated curve with its 95% band.")

KINDS: dict[str, tuple[Drawing, ...]] = {
    "clusters": (ELLIPSES, PROFILE, SHARES, SIZES), "classes": (ELLIPSES, PROFILE, CONFUSION),
    "states": (STATES, SIZES), "components": (COMPONENTS,),
    "effects": (EFFECTS, FOREST, RESIDUALS, QQ), "network": (NETWORK,), "factors": (BIPLOT,),
    "smooth": (SMOOTH, RESIDUALS, QQ), "regression": (FOREST, RESIDUALS, QQ),
}
ON_PAGES: dict[str, Callable] = {"counts": counts, "intervals": entries, "learning": learning,
                                 "reliability": reliability, "traces": traces}
