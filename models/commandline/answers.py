"""The questions of the command line, asked of an estimator or of a Fit, and forecasts of the steps
after a table of sequences: tables in, tables out.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping

import numpy as np
from jax.typing import ArrayLike

from probml.comparison.compare import compare
from probml.dataset.frames import shortest
from probml.dataset.labels import labels_of
from probml.errors import DataError, ModelError, listed, type_of
from probml.interface.fit import Fit
from probml.models.commandline.files import require_columns
from probml.models.commandline.layouts import (
    PLAIN,
    Laid,
    Layout,
    index_by_date,
    names_of,
    of_fit,
    sequences,
    together,
)
from probml.numerics.process.libraries import pd
from probml.typing import DataLike, FitOrEstimator

MAX_MODEL_CHARACTERS = 80  # letters of a model that is told in full


def title(found: FitOrEstimator) -> str:
    """What a file holds, in a line."""
    fit = fit_of(found)
    what = repr(fit.model) if isinstance(found, Fit) else type(found).__name__
    what = what if len(what) <= MAX_MODEL_CHARACTERS else f"{fit.model.name}(…)"
    return f"{what} by {fit.engine.partition('(')[0]}: {fit.status}"


def fit_of(found: FitOrEstimator) -> Fit:
    """The Fit, of an estimator its own."""
    return found if isinstance(found, Fit) else found.fit_


def estimates_of(found: FitOrEstimator) -> "pd.DataFrame":
    """The parameters, a row each, without the columns that a file says nothing of."""
    table = fit_of(found).summary().reset_index().drop(columns="note", errors="ignore")
    return table.dropna(axis=1, how="all")  # a file holds no rows, of which standard errors are


def summary_of(found: FitOrEstimator) -> str:
    """What `summary()` prints of an estimator; of a Fit its title and its parameters."""
    if isinstance(found, Fit):
        return f"{title(found)}\n\n{estimates_of(found).to_string(index=False)}"
    return str(found.summary())


def columns_of(found: FitOrEstimator, table: "pd.DataFrame") -> "pd.DataFrame":
    """The columns that an estimator was learnt from; others of the table are left alone. One that
    takes unseen cells takes a column that is absent as unseen, and warns.

    Raises:
        DataError: none of them is there; or one, of an estimator that takes no unseen cell.
    """
    wanted = getattr(found, "feature_names_in_", None)
    if wanted is None:
        return table
    missing = [name for name in wanted if name not in table.columns]
    unseen = found.__sklearn_tags__().input_tags.allow_nan and len(missing) < len(wanted)
    if missing and unseen:
        warnings.warn(f"the table lacks columns of the fitted data: {listed(missing)}. Their "
                      "values are treated as missing. Add these columns, or rename the columns "
                      "that contain their values",
                      RuntimeWarning, stacklevel=2)
        table = table.assign(**dict.fromkeys(missing))
    elif missing:
        raise DataError(f"the table has no column '{missing[0]}', which the data of the fitted "
                        f"{type(found).__name__} had. Add this column, or rename the one that "
                        f"contains its values: the table has {listed(list(table.columns))}")
    return table[list(wanted)]


def predict(found: FitOrEstimator, table: "pd.DataFrame", site: str | None, proba: bool,
            layout: Layout = PLAIN) -> "pd.DataFrame":
    """The most probable state or the mean of every row; with `proba` the probabilities beside
    it."""
    if isinstance(found, Fit):
        laid = of_fit(found, table, layout, without=site or "")
        return _predict(found, laid, site, proba, layout.unknown)
    if not hasattr(found, "predict"):
        raise ModelError(f"predict: {type(found).__name__} does not predict a column. Use probml "
                         f"impute, or, for a time series, probml forecast")
    if site is not None and not _needs_target(found):
        raise ModelError(f"predict --target {site}: {type(found).__name__} predicts the component "
                         f"or state of each row, not a column. Omit --target, or fit a model that "
                         f"predicts columns, such as --model network or naive_bayes")
    out = pd.DataFrame({"prediction": _ask_estimator(found, found.predict, table, layout)})
    if not proba:
        return out
    if not hasattr(found, "predict_proba"):
        raise ModelError(f"--proba: {type(found).__name__} predicts numbers, which have no class "
                         f"probabilities. Omit --proba")
    p = _ask_estimator(found, found.predict_proba, table, layout)
    labels = getattr(found, "classes_", range(p.shape[1]))
    return out.assign(**{f"p({label})": p[:, i] for i, label in enumerate(labels)})


def _ask_estimator(estimator: FitOrEstimator, verb: Callable, table: "pd.DataFrame",
                   layout: Layout) -> np.ndarray:
    """What an estimator answers for the rows of the table."""
    rows = columns_of(estimator, table)
    if layout.by is None:
        return np.asarray(_by_table(verb, rows))
    if not getattr(estimator, "lists", False):
        raise ModelError(f"--by {layout.by}: {type(estimator).__name__} is a model of single rows, "
                         f"not of sequences. Omit --by")
    return together(verb(sequences(rows, table, layout.by)), table, layout.by)


def _by_table(verb: Callable, rows: "pd.DataFrame", *more: object) -> ArrayLike:
    """The answer about the rows of a table, also of an estimator that was fitted to an array."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X has feature names", UserWarning)
        return verb(rows, *more)


def _predict(fit: Fit, laid: Laid, site: str | None, proba: bool,
             unknown: str) -> "pd.DataFrame":
    found = fit.predict(laid.data, site, unknown=unknown)
    name = site or _latent_site(fit, laid.data, laid.steps is not None or proba)
    timed = name is not None and fit.structure.named[name].time is not None
    out = laid.columns(site or "prediction", laid.back(found, timed))
    if proba and name is not None:
        p = laid.back(fit.predict_proba(laid.data, name, unknown=unknown), timed)
        for at, each in ({"p": p} if p.ndim == 2 else laid.columns(name, p)).items():
            out |= {f"{at}({label})": each[..., i] for i, label in enumerate(fit.labels(name))}
    return pd.DataFrame(out)


def _latent_site(fit: Fit, data: DataLike, needed: bool) -> str | None:
    """The one site that the data do not show: of several the one with states.

    Raises:
        ModelError: several have, or none, and its name is needed.
    """
    sites = [site for site in fit.structure.sites.values()
             if site.rows and not site.factor and site.name not in data]
    names = [site.name for site in sites if site.finite] or [site.name for site in sites]
    if len(names) == 1 or not needed:
        return names[0] if len(names) == 1 else None
    raise ModelError(f"predict: the sites without values in the table are {listed(names)}, "
                     f"expected one. Name the site to predict, --site NAME")


def impute(found: FitOrEstimator, table: "pd.DataFrame", layout: Layout = PLAIN) -> "pd.DataFrame":
    """The table with its unseen cells filled; columns that the model does not know stay."""
    if not hasattr(found, "impute"):
        raise ModelError(f"impute: {type(found).__name__} does not model the distribution of its "
                         f"columns, so it cannot fill in their missing values. Fit a model of all "
                         f"columns, --model mixture or --model network")
    out = table.copy()
    if isinstance(found, Fit):
        laid = of_fit(found, table, layout)
        answer = found.impute(laid.data, unknown=layout.unknown)
        named = found.structure.named  # a table comes back with its other columns, too
        filled = {name: column for site, value in answer.items() if site in named
                  for name, column in laid.columns(site, laid.back(
                      value, named[site].time is not None)).items()}
    else:
        rows = columns_of(found, table)
        filled = found.impute(rows)
        filled = {name: filled[name].to_numpy() for name in rows.columns if name in filled}
    for name in (name for name in filled if name in out):
        seen = out[name].notna()  # as they were read, to the last digit
        out[name] = out[name].where(seen, pd.Series(shortest(filled[name]), out.index))
    return out


def simulate(found: FitOrEstimator, rows: int, seed: int, inputs: "pd.DataFrame | None" = None,
             layout: Layout = PLAIN) -> "pd.DataFrame":
    """New rows, a column a site; of an estimator its columns; of a model with inputs beside these;
    of chains the steps of one sequence.

    Raises:
        ModelError: the model has inputs, and no table gives them. DataError: it lacks one.
    """
    if isinstance(found, Fit):
        return _simulate(found, rows, seed, inputs, layout)
    if hasattr(found, "columns_"):
        drawn = found.fit_.simulate(rows, seed=seed)
        names = [str(name) for name in found.columns_.names]
        out = pd.DataFrame(found.columns_.rows(drawn), columns=names)
        return out.assign(**{found._target: drawn[found._target]})
    fit = found.fit_
    if not fit.structure.chains:
        return _frame(Laid(None, rows, None, fit.columns), fit.simulate(rows, seed=seed))
    drawn = found.sample(rows, seed)
    x, *states = drawn if isinstance(drawn, tuple) else (drawn,)
    names = list(getattr(found, "feature_names_in_", ()))
    laid = Laid(None, rows, None, {"y": tuple(map(str, names))})
    values = np.asarray(x).reshape(rows, -1)
    return _frame(laid, {"y": values} | ({"state": states[0]} if states else {}))


def _simulate(fit: Fit, rows: int, seed: int, inputs: "pd.DataFrame | None",
              layout: Layout) -> "pd.DataFrame":
    needed = fit.model.inputs
    if not needed:
        laid = Laid(None, rows, None, {**fit.columns, **layout.joined})
        if not fit.structure.chains:
            return _frame(laid, fit.simulate(rows, seed=seed))
        laid = laid._replace(steps=(np.arange(rows),))
        return _frame(laid, _answers_by_row(fit, laid, fit.simulate(1, steps=rows, seed=seed)))
    if inputs is None:
        raise ModelError(f"simulate: the model has the inputs {listed(needed)}. Give a table with "
                         f"these columns, --data FILE")
    laid = of_fit(fit, inputs, layout)
    missing = next((name for name in needed if name not in laid.data), None)
    if missing is not None:
        raise DataError(f"simulate --data: the table has no column '{missing}', which is an input "
                        "of the model. Add this column, or rename the one that contains its "
                        f"values: the table has {listed(list(inputs.columns))}")
    given = {name: laid.data[name] for name in needed}
    shown = [name for name in inputs.columns if name in needed
             or any(name in laid.joined.get(own, ()) for own in needed)]
    return pd.concat([inputs[shown].reset_index(drop=True),
                      _frame(laid, _answers_by_row(fit, laid, fit.simulate(seed=seed, **given)))],
                     axis=1)


def _answers_by_row(fit: Fit, laid: Laid, found: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    """Answers about sites for the rows of the table."""
    return {name: laid.back(value, fit.structure.named[name].time is not None)
            for name, value in found.items()}


def _frame(laid: Laid, found: Mapping[str, ArrayLike]) -> "pd.DataFrame":
    return pd.DataFrame({label: column for name, value in found.items()
                         for label, column in laid.columns(name, np.asarray(value)).items()})


def score(found: FitOrEstimator, table: "pd.DataFrame", target: str | None,
          layout: Layout = PLAIN) -> dict[str, float]:
    """Mean log probability of a row, or of a sequence; with a target the score of its
    prediction."""
    out: dict[str, float] = {"rows": len(table)}
    if isinstance(found, Fit):
        laid = of_fit(found, table, layout)
        out |= {} if laid.steps is None else {"sequences": len(laid.steps)}
        return out | {"log_score": found.score(laid.data, unknown=layout.unknown)}
    rows = columns_of(found, table)
    if target is None and _needs_target(found):
        raise ModelError(f"score: {type_of(found)} is scored by its predictions. Name the "
                         f"column with the true values, --target NAME; the columns are "
                         f"{listed(table.columns)}")
    if target is None:
        return out | {"log_score": float(_by_table(found.score, rows))}
    require_columns(table, [target], "--target")
    y = table[target].to_numpy()
    if hasattr(found, "classes_"):
        p = np.asarray(_by_table(found.predict_proba, rows))
        lookup = {label: i for i, label in enumerate(found.classes_.tolist())}
        unknown = next((label for label in y.tolist() if label not in lookup), None)
        if unknown is not None:
            raise DataError(f"score: column '{target}' contains {unknown!r}, but in the training "
                            f"data it had only the values {listed(lookup)}. Correct the value, or "
                            "drop these rows")
        own = p[np.arange(len(y)), [lookup[label] for label in y.tolist()]]
        return out | {"accuracy": float(_by_table(found.score, rows, y)),
                      "log_score": float(np.log(np.maximum(own, 1e-300)).mean())}
    if not hasattr(found, "log_prob"):
        raise ModelError(f"--target {target}: {type(found).__name__} does not predict a column. "
                         f"Omit --target")
    return out | {"r2": float(_by_table(found.score, rows, y)),
                  "log_score": float(np.mean(_by_table(found.log_prob, rows, y)))}


def _needs_target(found: FitOrEstimator) -> bool:
    """Whether an estimator's score needs the true values of the target."""
    y = inspect.signature(found.score).parameters.get("y")
    return y is not None and y.default is inspect.Parameter.empty


def compare_files(files: dict[str, FitOrEstimator], table: "pd.DataFrame", target: str | None,
                  folds: int | None, layout: Layout = PLAIN) -> "pd.DataFrame":
    """Several of them on one table, each by the columns that it was learnt from: see
    probml.compare; estimators need a target, and are fitted again."""
    if target is None:
        estimators = [name for name, found in files.items() if not isinstance(found, Fit)]
        if estimators:
            raise ModelError(f"compare: '{estimators[0]}' contains "
                             f"{type_of(files[estimators[0]])}, which is compared by its "
                             "predictions. Name the column with the true values, --target NAME")
        rows = {name: of_fit(found, table, layout).data for name, found in files.items()}
        return compare(files, rows, folds=folds).reset_index()
    require_columns(table, [target], "--target")
    data = {name: of_fit(found, table, layout).data if isinstance(found, Fit)
            else columns_of(found, table).assign(**{target: table[target]})
            for name, found in files.items()}
    return compare(files, data, target=target, folds=folds or 5).reset_index()


def rows_of(found: FitOrEstimator, table: "pd.DataFrame", layout: Layout) -> DataLike:
    """The table as what a question in Python takes."""
    return of_fit(found, table, layout).data if isinstance(found, Fit) else columns_of(found, table)


BOUNDS = ("lower", "upper")


def forecast(found: FitOrEstimator, table: "pd.DataFrame", steps: int, interval: float | None,
             layout: Layout = PLAIN) -> "pd.DataFrame":
    """The steps that follow the table, or each of its sequences: a row a step, a column a site that
    runs along time, with its dates where the table has a column of them; with an interval its
    bounds after each number.

    Raises:
        ModelError: a model without chains, or with inputs, which have no value at those steps; an
            interval of what has none.
    """
    fit = fit_of(found)
    if not fit.structure.chains or not hasattr(found, "forecast"):
        raise ModelError(f"forecast: model '{fit.model.name}' has no time steps, so it has no "
                         f"forecasts. Use probml predict")
    table = index_by_date(table)
    of = _of_fit if isinstance(found, Fit) else _of_estimator
    ahead = of(found, table, steps, interval, layout)
    names = names_of(table, layout.by)
    head = {} if layout.by is None else {layout.by: np.repeat(names, steps)}
    if isinstance(table.index, pd.DatetimeIndex):
        parts = [table] if layout.by is None else sequences(table, table, layout.by)
        dates = [labels.following(steps) for part in parts
                 if (labels := labels_of(part)[1]) is not None]
        if all(isinstance(each, pd.DatetimeIndex) for each in dates):
            head[table.index.name] = np.concatenate([each.astype(str) for each in dates])
    return pd.DataFrame({**head, "ahead": np.tile(np.arange(1, steps + 1), len(names)), **ahead})


def _of_fit(fit: Fit, table: "pd.DataFrame", steps: int, interval: float | None,
            layout: Layout) -> dict[str, np.ndarray]:
    if fit.model.inputs:
        raise ModelError(f"forecast: the model has the inputs {listed(fit.model.inputs)}, whose "
                         f"values at the forecast steps are not in the table. Forecast in Python, "
                         f"fit.forecast(data, steps, "
                         f"{', '.join(f'{name}=...' for name in fit.model.inputs)})")
    laid = of_fit(fit, table, layout)
    out: dict[str, np.ndarray] = {}
    for name, answer in fit.forecast(laid.data, steps=steps, interval=interval).items():
        bounded = interval is not None and hasattr(answer, "lower")
        parts = {"": answer.value, **{f" {end}": getattr(answer, end) for end in BOUNDS}} if (
            bounded) else {"": answer}
        for end, value in parts.items():
            value = np.asarray(value)
            flat = value.reshape(-1, *value.shape[2:])
            out |= {label + end: column for label, column in laid.columns(name, flat).items()}
    return out


def _of_estimator(estimator: FitOrEstimator, table: "pd.DataFrame", steps: int,
                  interval: float | None, layout: Layout) -> dict[str, np.ndarray]:
    rows, settings = columns_of(estimator, table), {}
    if interval is not None:
        if "interval" not in inspect.signature(estimator.forecast).parameters:
            raise ModelError(f"forecast --interval {interval}: {type(estimator).__name__} "
                             f"forecasts means only. Omit --interval")
        settings["interval"] = interval
    X = rows if layout.by is None else sequences(rows, table, layout.by)
    found = estimator.forecast(X, steps, **settings)
    parts = found if isinstance(found, list) else [found]
    names = tuple(map(str, rows.columns))
    if interval is not None:
        each = pd.concat(parts)
        return {names[0] + {"value": ""}.get(end, f" {end}"): each[end].to_numpy()
                for end in each.columns}
    flat = np.concatenate([np.asarray(part).reshape(steps, -1) for part in parts])
    return Laid(None, len(flat), None, {"y": names}).columns("y", flat)
