"""What follows a table whose rows are the steps of sequences."""

import inspect

import numpy as np
import pandas as pd

from probml.dataset.labels import labels_of
from probml.errors import ModelError
from probml.interface.fit import Fit
from probml.models.commandline.answers import columns_of, fit_of
from probml.models.commandline.layouts import (
    PLAIN,
    Laid,
    Layout,
    dated,
    names_of,
    of_fit,
    sequences,
)
from probml.typing import FitOrEstimator

BOUNDS = ("lower", "upper")


def forecast(found: FitOrEstimator, table: pd.DataFrame, steps: int, interval: float | None,
             layout: Layout = PLAIN) -> pd.DataFrame:
    """The steps that follow the table, or each of its sequences: a row a step, a column a site that
    runs along time, with its dates where the table has a column of them; with an interval its
    bounds after each number.

    Raises:
        ModelError: a model without chains, or with inputs, which have no value at those steps; an
            interval of what has none.
    """
    fit = fit_of(found)
    if not fit.structure.chains or not hasattr(found, "forecast"):
        raise ModelError(f"model '{fit.model.name}' has no chain along time, so it has no "
                         f"forecasts: use predict")
    table = dated(table)
    of = _of_fit if isinstance(found, Fit) else _of_estimator
    ahead = of(found, table, steps, interval, layout)
    names = names_of(table, layout.by)
    head = {} if layout.by is None else {layout.by: np.repeat(names, steps)}
    if isinstance(table.index, pd.DatetimeIndex):
        parts = [table] if layout.by is None else sequences(table, table, layout.by)
        dates = [labels_of(part)[1].following(steps) for part in parts]
        if all(isinstance(each, pd.DatetimeIndex) for each in dates):
            head[table.index.name] = np.concatenate([each.astype(str) for each in dates])
    return pd.DataFrame({**head, "ahead": np.tile(np.arange(1, steps + 1), len(names)), **ahead})


def _of_fit(fit: Fit, table: pd.DataFrame, steps: int, interval: float | None,
            layout: Layout) -> dict[str, np.ndarray]:
    if fit.model.inputs:
        raise ModelError(f"the model has the inputs {list(fit.model.inputs)}, whose values at the "
                         f"forecast steps are not in the table: forecast in Python, "
                         f"fit.forecast(data, steps, {fit.model.inputs[0]}=…)")
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


def _of_estimator(estimator: FitOrEstimator, table: pd.DataFrame, steps: int,
                  interval: float | None, layout: Layout) -> dict[str, np.ndarray]:
    rows, settings = columns_of(estimator, table), {}
    if interval is not None:
        if "interval" not in inspect.signature(estimator.forecast).parameters:
            raise ModelError(f"--interval {interval}: {type(estimator).__name__} forecasts means "
                             f"only: omit --interval")
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
