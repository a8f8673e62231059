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
    Layout,
    TableData,
    index_by_date,
    names_of,
    of_fit,
    sequences,
    together,
)
from probml.numerics.process.libraries import pd
from probml.typing import DataLike, FitOrEstimator

MAX_MODEL_CHARACTERS = 80  # letters of a model that is told in full


def title(fitted: FitOrEstimator) -> str:
    """What a file holds, in a line."""
    fit = fit_of(fitted)
    what = repr(fit.model) if isinstance(fitted, Fit) else type(fitted).__name__
    what = what if len(what) <= MAX_MODEL_CHARACTERS else f"{fit.model.name}(…)"
    return f"{what} by {fit.engine.partition('(')[0]}: {fit.status}"


def fit_of(fitted: FitOrEstimator) -> Fit:
    """The Fit, of an estimator its own."""
    return fitted if isinstance(fitted, Fit) else fitted.fit_


def estimates_of(fitted: FitOrEstimator) -> "pd.DataFrame":
    """The parameters, a row each, without the columns that a file says nothing of."""
    table = fit_of(fitted).summary().reset_index().drop(columns="note", errors="ignore")
    return table.dropna(axis=1, how="all")  # a file holds no rows, of which standard errors are


def summary_of(fitted: FitOrEstimator) -> str:
    """What `summary()` prints of an estimator; of a Fit its title and its parameters."""
    if isinstance(fitted, Fit):
        return f"{title(fitted)}\n\n{estimates_of(fitted).to_string(index=False)}"
    return str(fitted.summary())


def columns_of(fitted: FitOrEstimator, table: "pd.DataFrame") -> "pd.DataFrame":
    """The columns that an estimator was learnt from; others of the table are left alone. One that
    takes unseen cells takes a column that is absent as unseen, and warns.

    Raises:
        DataError: none of them is there; or one, of an estimator that takes no unseen cell.
    """
    needed = getattr(fitted, "feature_names_in_", None)
    if needed is None:
        return table
    missing = [name for name in needed if name not in table.columns]
    unseen = fitted.__sklearn_tags__().input_tags.allow_nan and len(missing) < len(needed)
    if missing and unseen:
        warnings.warn(f"the table lacks columns of the fitted data: {listed(missing)}. Their "
                      "values are treated as missing. Add these columns, or rename the columns "
                      "that contain their values",
                      RuntimeWarning, stacklevel=2)
        table = table.assign(**dict.fromkeys(missing))
    elif missing:
        raise DataError(f"the table has no column '{missing[0]}', which the data of the fitted "
                        f"{type(fitted).__name__} had. Add this column, or rename the one that "
                        f"contains its values: the table has {listed(list(table.columns))}")
    return table[list(needed)]


def predict(fitted: FitOrEstimator, table: "pd.DataFrame", site: str | None, proba: bool,
            layout: Layout = PLAIN) -> "pd.DataFrame":
    """The most probable state or the mean of every row; with `proba` the probabilities beside
    it."""
    if isinstance(fitted, Fit):
        laid = of_fit(fitted, table, layout, without=site or "")
        return _predict(fitted, laid, site, proba, layout.unknown)
    if not hasattr(fitted, "predict"):
        raise ModelError(f"predict: {type(fitted).__name__} does not predict a column. Use probml "
                         f"impute, or, for a time series, probml forecast")
    if site is not None and not _needs_target(fitted):
        raise ModelError(f"predict --target {site}: {type(fitted).__name__} predicts the component "
                         f"or state of each row, not a column. Omit --target, or fit a model that "
                         f"predicts columns, such as --model network or naive_bayes")
    answer = pd.DataFrame({"prediction": _ask_estimator(fitted, fitted.predict, table, layout)})
    if not proba:
        return answer
    if not hasattr(fitted, "predict_proba"):
        raise ModelError(f"--proba: {type(fitted).__name__} predicts numbers, which have no class "
                         f"probabilities. Omit --proba")
    p = _ask_estimator(fitted, fitted.predict_proba, table, layout)
    labels = getattr(fitted, "classes_", range(p.shape[1]))
    return answer.assign(**{f"p({label})": p[:, i] for i, label in enumerate(labels)})


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


def _predict(fit: Fit, laid: TableData, site: str | None, proba: bool,
             unknown: str) -> "pd.DataFrame":
    prediction = fit.predict(laid.data, site, unknown=unknown)
    name = site or _latent_site(fit, laid.data, laid.steps is not None or proba)
    timed = name is not None and fit.structure.named[name].time is not None
    cols = laid.columns(site or "prediction", laid.back(prediction, timed))
    if proba and name is not None:
        p = laid.back(fit.predict_proba(laid.data, name, unknown=unknown), timed)
        for head, probs in ({"p": p} if p.ndim == 2 else laid.columns(name, p)).items():
            cols |= {f"{head}({label})": probs[..., i] for i, label in enumerate(fit.labels(name))}
    return pd.DataFrame(cols)


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


def impute(fitted: FitOrEstimator, table: "pd.DataFrame", layout: Layout = PLAIN) -> "pd.DataFrame":
    """The table with its unseen cells filled; columns that the model does not know stay."""
    if not hasattr(fitted, "impute"):
        raise ModelError(f"impute: {type(fitted).__name__} does not model the distribution of its "
                         f"columns, so it cannot fill in their missing values. Fit a model of all "
                         f"columns, --model mixture or --model network")
    full = table.copy()
    if isinstance(fitted, Fit):
        laid = of_fit(fitted, table, layout)
        answer = fitted.impute(laid.data, unknown=layout.unknown)
        sites = fitted.structure.named  # a table comes back with its other columns, too
        filled = {name: column for site, value in answer.items() if site in sites
                  for name, column in laid.columns(site, laid.back(
                      value, sites[site].time is not None)).items()}
    else:
        rows = columns_of(fitted, table)
        filled = fitted.impute(rows)
        filled = {name: filled[name].to_numpy() for name in rows.columns if name in filled}
    for name in (name for name in filled if name in full):
        observed = full[name].notna()  # as they were read, to the last digit
        full[name] = full[name].where(observed, pd.Series(shortest(filled[name]), full.index))
    return full


def simulate(fitted: FitOrEstimator, rows: int, seed: int, inputs: "pd.DataFrame | None" = None,
             layout: Layout = PLAIN) -> "pd.DataFrame":
    """New rows, a column a site; of an estimator its columns; of a model with inputs beside these;
    of chains the steps of one sequence.

    Raises:
        ModelError: the model has inputs, and no table gives them. DataError: it lacks one.
    """
    if isinstance(fitted, Fit):
        return _simulate(fitted, rows, seed, inputs, layout)
    if hasattr(fitted, "columns_"):
        simulated = fitted.fit_.simulate(rows, seed=seed)
        names = [str(name) for name in fitted.columns_.names]
        table = pd.DataFrame(fitted.columns_.rows(simulated), columns=names)
        return table.assign(**{fitted._target: simulated[fitted._target]})
    fit = fitted.fit_
    if not fit.structure.chains:
        return _frame(TableData(None, rows, None, fit.columns), fit.simulate(rows, seed=seed))
    simulated = fitted.sample(rows, seed)
    x, *states = simulated if isinstance(simulated, tuple) else (simulated,)
    names = list(getattr(fitted, "feature_names_in_", ()))
    laid = TableData(None, rows, None, {"y": tuple(map(str, names))})
    values = np.asarray(x).reshape(rows, -1)
    return _frame(laid, {"y": values} | ({"state": states[0]} if states else {}))


def _simulate(fit: Fit, rows: int, seed: int, inputs: "pd.DataFrame | None",
              layout: Layout) -> "pd.DataFrame":
    needed = fit.model.inputs
    if not needed:
        laid = TableData(None, rows, None, {**fit.columns, **layout.joined})
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
    columns = [name for name in inputs.columns if name in needed
               or any(name in laid.joined.get(input_name, ()) for input_name in needed)]
    return pd.concat([inputs[columns].reset_index(drop=True),
                      _frame(laid, _answers_by_row(fit, laid, fit.simulate(seed=seed, **given)))],
                     axis=1)


def _answers_by_row(fit: Fit, laid: TableData, values: Mapping[str, ArrayLike]) -> dict[str,
                                                                                        np.ndarray]:
    """Answers about sites for the rows of the table."""
    return {name: laid.back(value, fit.structure.named[name].time is not None)
            for name, value in values.items()}


def _frame(laid: TableData, answers: Mapping[str, ArrayLike]) -> "pd.DataFrame":
    return pd.DataFrame({label: column for name, value in answers.items()
                         for label, column in laid.columns(name, np.asarray(value)).items()})


def score(fitted: FitOrEstimator, table: "pd.DataFrame", target: str | None,
          layout: Layout = PLAIN) -> dict[str, float]:
    """Mean log probability of a row, or of a sequence; with a target the score of its
    prediction."""
    scores: dict[str, float] = {"rows": len(table)}
    if isinstance(fitted, Fit):
        laid = of_fit(fitted, table, layout)
        scores |= {} if laid.steps is None else {"sequences": len(laid.steps)}
        return scores | {"log_score": fitted.score(laid.data, unknown=layout.unknown)}
    rows = columns_of(fitted, table)
    if target is None and _needs_target(fitted):
        raise ModelError(f"score: {type_of(fitted)} is scored by its predictions. Name the "
                         f"column with the true values, --target NAME; the columns are "
                         f"{listed(table.columns)}")
    if target is None:
        return scores | {"log_score": float(_by_table(fitted.score, rows))}
    require_columns(table, [target], "--target")
    y = table[target].to_numpy()
    if hasattr(fitted, "classes_"):
        p = np.asarray(_by_table(fitted.predict_proba, rows))
        lookup = {label: i for i, label in enumerate(fitted.classes_.tolist())}
        unknown = next((label for label in y.tolist() if label not in lookup), None)
        if unknown is not None:
            raise DataError(f"score: column '{target}' contains {unknown!r}, but in the training "
                            f"data it had only the values {listed(lookup)}. Correct the value, or "
                            "drop these rows")
        p_true = p[np.arange(len(y)), [lookup[label] for label in y.tolist()]]
        return scores | {"accuracy": float(_by_table(fitted.score, rows, y)),
                         "log_score": float(np.log(np.maximum(p_true, 1e-300)).mean())}
    if not hasattr(fitted, "log_prob"):
        raise ModelError(f"--target {target}: {type(fitted).__name__} does not predict a column. "
                         f"Omit --target")
    return scores | {"r2": float(_by_table(fitted.score, rows, y)),
                     "log_score": float(np.mean(_by_table(fitted.log_prob, rows, y)))}


def _needs_target(fitted: FitOrEstimator) -> bool:
    """Whether an estimator's score needs the true values of the target."""
    y = inspect.signature(fitted.score).parameters.get("y")
    return y is not None and y.default is inspect.Parameter.empty


def compare_files(files: dict[str, FitOrEstimator], table: "pd.DataFrame", target: str | None,
                  folds: int | None, layout: Layout = PLAIN) -> "pd.DataFrame":
    """Several of them on one table, each by the columns that it was learnt from: see
    probml.compare; estimators need a target, and are fitted again."""
    if target is None:
        estimators = [name for name, fitted in files.items() if not isinstance(fitted, Fit)]
        if estimators:
            raise ModelError(f"compare: '{estimators[0]}' contains "
                             f"{type_of(files[estimators[0]])}, which is compared by its "
                             "predictions. Name the column with the true values, --target NAME")
        rows = {name: of_fit(fitted, table, layout).data for name, fitted in files.items()}
        return compare(files, rows, folds=folds).reset_index()
    require_columns(table, [target], "--target")
    data = {name: of_fit(fitted, table, layout).data if isinstance(fitted, Fit)
            else columns_of(fitted, table).assign(**{target: table[target]})
            for name, fitted in files.items()}
    return compare(files, data, target=target, folds=folds or 5).reset_index()


def rows_of(found: FitOrEstimator, table: "pd.DataFrame", layout: Layout) -> DataLike:
    """The table as what a question in Python takes."""
    return of_fit(found, table, layout).data if isinstance(found, Fit) else columns_of(found, table)


BOUNDS = ("lower", "upper")


def forecast(fitted: FitOrEstimator, table: "pd.DataFrame", steps: int, interval: float | None,
             layout: Layout = PLAIN) -> "pd.DataFrame":
    """The steps that follow the table, or each of its sequences: a row a step, a column a site that
    runs along time, with its dates where the table has a column of them; with an interval its
    bounds after each number.

    Raises:
        ModelError: a model without chains, or with inputs, which have no value at those steps; an
            interval of what has none.
    """
    fit = fit_of(fitted)
    if not fit.structure.chains or not hasattr(fitted, "forecast"):
        raise ModelError(f"forecast: model '{fit.model.name}' has no time steps, so it has no "
                         f"forecasts. Use probml predict")
    table = index_by_date(table)
    ask = _of_fit if isinstance(fitted, Fit) else _of_estimator
    answers = ask(fitted, table, steps, interval, layout)
    names = names_of(table, layout.by)
    head = {} if layout.by is None else {layout.by: np.repeat(names, steps)}
    if isinstance(table.index, pd.DatetimeIndex):
        parts = [table] if layout.by is None else sequences(table, table, layout.by)
        dates = [labels.following(steps) for part in parts
                 if (labels := labels_of(part)[1]) is not None]
        if all(isinstance(index, pd.DatetimeIndex) for index in dates):
            head[table.index.name] = np.concatenate([index.astype(str) for index in dates])
    return pd.DataFrame({**head, "ahead": np.tile(np.arange(1, steps + 1), len(names)), **answers})


def _of_fit(fit: Fit, table: "pd.DataFrame", steps: int, interval: float | None,
            layout: Layout) -> dict[str, np.ndarray]:
    if fit.model.inputs:
        raise ModelError(f"forecast: the model has the inputs {listed(fit.model.inputs)}, whose "
                         f"values at the forecast steps are not in the table. Forecast in Python, "
                         f"fit.forecast(data, steps, "
                         f"{', '.join(f'{name}=...' for name in fit.model.inputs)})")
    laid = of_fit(fit, table, layout)
    cols: dict[str, np.ndarray] = {}
    for name, answer in fit.forecast(laid.data, steps=steps, interval=interval).items():
        bounded = interval is not None and hasattr(answer, "lower")
        parts = {"": answer.value, **{f" {end}": getattr(answer, end) for end in BOUNDS}} if (
            bounded) else {"": answer}
        for end, value in parts.items():
            value = np.asarray(value)
            stacked = value.reshape(-1, *value.shape[2:])
            cols |= {label + end: column for label, column in laid.columns(name, stacked).items()}
    return cols


def _of_estimator(estimator: FitOrEstimator, table: "pd.DataFrame", steps: int,
                  interval: float | None, layout: Layout) -> dict[str, np.ndarray]:
    rows, settings = columns_of(estimator, table), {}
    if interval is not None:
        if "interval" not in inspect.signature(estimator.forecast).parameters:
            raise ModelError(f"forecast --interval {interval}: {type(estimator).__name__} "
                             f"forecasts means only. Omit --interval")
        settings["interval"] = interval
    X = rows if layout.by is None else sequences(rows, table, layout.by)
    answer = estimator.forecast(X, steps, **settings)
    parts = answer if isinstance(answer, list) else [answer]
    names = tuple(map(str, rows.columns))
    if interval is not None:
        frame = pd.concat(parts)
        return {names[0] + {"value": ""}.get(end, f" {end}"): frame[end].to_numpy()
                for end in frame.columns}
    stacked = np.concatenate([np.asarray(part).reshape(steps, -1) for part in parts])
    return TableData(None, len(stacked), None, {"y": names}).columns("y", stacked)
