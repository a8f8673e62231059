"""What pictures draw, read from a fit: rows as numbers, probabilities, normal components, the
columns' tables."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from probml import DataError, Fit, ModelError
from probml.errors import listed, type_of
from probml.language.given import floats as as_floats
from probml.models.pictures.canvas import fit_of
from probml.typing import DataLike

MOMENTS = {  # kind of a column -> the mean and the variance of a cell, given its parameter
    "Poisson": ("rate", lambda rate: (rate, rate)),
    "Exponential": ("rate", lambda rate: (1 / rate, rate**-2.0)),
    "Geometric": ("probs", lambda probs: (1 / probs - 1, (1 - probs) / probs**2)),
    "Bernoulli": ("probs", lambda probs: (probs, probs * (1 - probs))),
}


class PictureData(NamedTuple):
    """A fit, and rows as numbers with the names of their columns."""

    fit: Fit
    target: str
    names: list[str]
    values: DataLike  # (n, d) floats, NaN unseen
    data: Callable  # values (m, d) -> what the fit takes
    classes: list[str]
    title: str  # what a state of the target is


def ask(fitted, X, numbers=True) -> PictureData:
    """An estimator and its rows, or a Fit and its mapping, as what can be drawn.

    Args:
        X: None where the parameters alone are drawn.
        numbers: the columns are to be numbers.

    Raises:
        ModelError: not fitted, a Fit without a mapping, nothing discrete that is unseen. DataError:
            columns of text.
    """
    fit = fit_of("pictures", fitted)
    sites = [site for site in fit.structure.sites.values() if site.rows]
    estimator = None if fit is fitted else fitted
    if estimator is not None:
        target = estimator._target
    else:
        unseen = [site.name for site in sites if site.states
                  and (not isinstance(X, Mapping) or site.name not in X)]
        target = next((name for name in ("class", "z", *unseen) if name in unseen), None)
        if target is None:
            raise ModelError(f"model '{fit.model.name}' has no latent discrete site, so it has no "
                             "components that could be drawn. Use pictures.intervals(fitted) for "
                             "its parameters")
    classes = [str(label) for label in getattr(estimator, "classes_", fit.labels(target))]
    title = "class" if hasattr(estimator, "classes_") or target == "class" else "component"
    rows: tuple[list[str], DataLike, Callable] = (
        ([], None, dict) if X is None else _mapping_rows(X, numbers) if estimator is None
        else _table_rows(estimator, X, numbers))
    return PictureData(fit, target, *rows, classes, title)


def _table_rows(estimator, X, numbers: bool) -> tuple[list[str], DataLike, Callable]:
    """Names of columns, values, and what makes data of values, of an estimator's rows."""
    columns = getattr(X, "columns", None)
    if columns is not None:
        names = list(map(str, columns))
    elif (shape := np.asarray(X, object).shape)[1:2]:
        names = [f"column {j}" for j in range(shape[1])]
    else:
        raise DataError(f"X has the shape {shape}, expected a matrix or table with rows and "
                        "columns. Reshape one column by X[:, None]")

    def data(rows):
        return estimator._asked(rows if columns is None or hasattr(rows, "columns")
                                else type(X)(rows, columns=columns))

    return names, floats(X) if numbers else X, data


def _mapping_rows(X, numbers: bool) -> tuple[list[str], DataLike, Callable]:
    """As `_table_rows`, of the data of a Fit; as numbers those of its one site."""
    if not isinstance(X, Mapping):
        raise ModelError("expected the data of a Fit as a mapping, such as {'x': X}, got "
                         f"{type_of(X)}")
    if not numbers:
        return [], X, lambda rows: rows
    if len(X) != 1:
        raise ModelError("a picture of a Fit needs an X with the data of one site, got "
                         f"{listed(X)}. Pass one site, X={{{next(iter(X), 'x')!r}: ...}}")
    ((name, values),) = X.items()
    flat = np.ndim(values) == 1
    values = floats(values[:, None] if flat else values)
    names = [name] if flat else [f"{name}[{j}]" for j in range(values.shape[1])]
    return names, values, lambda rows: (
        rows if isinstance(rows, Mapping) else {name: rows[:, 0] if flat else rows})


def floats(X) -> np.ndarray:
    values = as_floats(X, "the columns of a picture", "Convert or drop the other columns")
    if values.ndim != 2:
        raise DataError(f"X has the shape {values.shape}, expected rows and columns. Reshape one "
                        "column by X[:, None]")
    return values


def column_of(asked: PictureData, column) -> int:
    if isinstance(column, str) and column in asked.names:
        return asked.names.index(column)
    is_index = isinstance(column, int | np.integer) and not isinstance(column, bool)
    if is_index and -len(asked.names) <= column < len(asked.names):
        return int(column) % len(asked.names)
    raise ModelError(f"X has no column {column!r:.80}. Use one of {listed(asked.names)}, or an "
                     f"index below {len(asked.names)}")


def normals(asked: PictureData):
    """Means (m, d), covariances (m, d, d) of all normal components, and the state of the target
    that each belongs to (m,)."""
    params = asked.fit.params
    if "mean" not in params or "precision" not in params:
        raise ModelError(f"this picture draws the components of a Gaussian mixture from the "
                         f"parameters 'mean' and 'precision', which model "
                         f"'{asked.fit.model.name}' does not have. Use pictures.profile(fitted)")
    mean, precision = np.asarray(params["mean"]), np.asarray(params["precision"])
    d, lead = mean.shape[-1], mean.shape[:-1]
    kind = next(site.kind for site in asked.fit.structure.sites.values() if site.rows
                and site.states is None)
    if kind == "MultivariateNormal":
        covariance = np.linalg.inv(precision)
    else:  # (..., d) diagonal or (...) spherical, for each component or for all
        diagonal = asked.fit.structure.sites["precision"].independent
        covariance = (1 / (precision if diagonal else precision[..., None]))[..., None] * np.eye(d)
    covariance = np.broadcast_to(covariance, (*lead, d, d)).reshape(-1, d, d)
    owners = np.repeat(np.arange(lead[0]), np.prod(lead[1:], dtype=int))
    return mean.reshape(-1, d), covariance, owners


def tables(estimator, asked: PictureData):
    """Names of the rows of a profile, means (rows, k), variances (rows, k), and whether each is a
    probability.

    Raises:
        ModelError: a model whose columns have no parameters of their own in every component.
    """
    fit, columns, rows = asked.fit, getattr(estimator, "columns_", None), []
    if np.ndim(fit.params.get("mean", 0.0)) > 2:
        raise ModelError(f"model '{fit.model.name}' has several components in a class, so a class "
                         f"has no single mean. Use pictures.ellipses instead")
    for site in fit.structure.sites.values():
        if site.rows and site.name != asked.target:
            rows += _site_rows(estimator, asked, site)
    if columns is not None:  # sites group columns by kind: back into their order
        index = {str(name): i for i, name in enumerate(columns.names)}
        rows.sort(key=lambda row: index[row[0]])
    texts = [name if state is None else f"{name} = {state}" for name, state, *_ in rows]
    return (texts, np.array([row[2] for row in rows]), np.array([row[3] for row in rows]),
            [row[4] for row in rows])


def _site_rows(estimator, asked: PictureData, site) -> list[tuple]:
    """(column, category or None, means (k,), variances (k,), a probability?) for each row of the
    profile that a site has."""
    params, width, columns = (asked.fit.params, int(np.prod(site.cells, dtype=int)),
                              getattr(estimator, "columns_", None))
    labels = [asked.fit.labels(site.name) if site.states else ()] * width
    if columns is not None:
        js = columns.groups[site.name][1]
        names, labels = [str(columns.names[j]) for j in js], [columns.labels[j] for j in js]
    elif (learnt := getattr(estimator, "feature_names_in_", None)) is not None:
        names = list(map(str, learnt))
    else:
        names = [site.name] if not site.cells else [f"{site.name}[{j}]" for j in range(width)]

    if "mean" in params:
        mean, covariance, _ = normals(asked)
        return [(name, None, mean[:, j], covariance[:, j, j], False)
                for j, name in enumerate(names)]
    if f"{site.name}_mean" in params:
        mean = params[f"{site.name}_mean"].reshape(-1, width)
        variance = 1 / params[f"{site.name}_precision"].reshape(-1, width)
        return [(name, None, mean[:, j], variance[:, j], False) for j, name in enumerate(names)]
    kind = site.kind.removesuffix("Probs")  # NumPyro's names of what is given by probabilities
    parameter, moments = MOMENTS.get(kind, ("probs", None))
    value = params.get(f"{site.name}_{parameter}")
    if value is None:
        raise ModelError(
            f"profile: model '{asked.fit.model.name}' has no parameter '{site.name}_{parameter}' "
            f"(means or probabilities of '{site.name}' by {asked.title}), which profile draws. Use "
            "pictures.intervals(fitted)"
        )
    if moments is not None:
        mean, variance = moments(np.asarray(value).reshape(len(value), width))
        return [(name, None, mean[:, j], variance[:, j], kind == "Bernoulli")
                for j, name in enumerate(names)]
    if site.states is None:  # the shares of a vector of counts
        return [(name, None, value[:, j], value[:, j] * (1 - value[:, j]), True)
                for j, name in enumerate(names)]
    value, rows = np.asarray(value).reshape(len(value), width, -1), []
    for j, name in enumerate(names):
        states = [*labels[j], "other"][: value.shape[2]]
        for s in range(len(states) == 2, len(states)):
            rows.append((name, states[s], value[:, j, s], value[:, j, s] * (1 - value[:, j, s]),
                         True))
    return rows
