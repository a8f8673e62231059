"""The questions of the command line, asked of a face or of a Fit: tables in, tables out."""

import warnings
from typing import Any

import numpy as np
import pandas as pd

from probml.comparison.compare import compare
from probml.errors import DataError, ModelError
from probml.interface.fit import Fit

LONG = 80  # letters of a model that is told in full


def title(found: Any) -> str:
    """What a file holds, in a line."""
    fit = fit_of(found)
    what = repr(fit.model) if isinstance(found, Fit) else type(found).__name__
    what = what if len(what) <= LONG else f"{fit.model.name}(…)"
    return f"{what} by {fit.engine.partition('(')[0]}: {fit.status}"


def fit_of(found: Any) -> Fit:
    """The Fit, of a face its own."""
    return found if isinstance(found, Fit) else found.fit_


def columns_of(found: Any, table: pd.DataFrame) -> pd.DataFrame:
    """The columns that were learnt from; others of the table are left alone. A face that takes
    unseen cells takes a column that is absent as unseen, and warns.

    Raises:
        DataError: none of them is there; or one, of a face that takes no unseen cell.
    """
    if isinstance(found, Fit):
        known = [*found.structure.named, *found.model.inputs]
        return table[[name for name in table.columns if name in known]]
    wanted = getattr(found, "feature_names_in_", None)
    if wanted is None:
        return table
    missing = [name for name in wanted if name not in table.columns]
    unseen = found.__sklearn_tags__().input_tags.allow_nan and len(missing) < len(wanted)
    if missing and unseen:
        warnings.warn(f"the table has no column {', '.join(map(repr, missing))}: taken as unseen",
                      RuntimeWarning, stacklevel=2)
        table = table.assign(**dict.fromkeys(missing))
    elif missing:
        raise DataError(f"the table has no column '{missing[0]}', from which "
                        f"{type(found).__name__} was learnt; it has {list(table.columns)}")
    return table[list(wanted)]


def predict(found: Any, table: pd.DataFrame, site: str | None, proba: bool) -> pd.DataFrame:
    """The most probable state or the mean of every row; with `proba` the probabilities beside
    it."""
    rows = columns_of(found, table)
    if isinstance(found, Fit):
        if site is not None and site in rows:
            rows = rows.drop(columns=site)
        out = pd.DataFrame({site or "prediction": np.asarray(found.predict(rows, site))})
        if proba:
            p, labels = found.predict_proba(rows, site), found.labels(site or _only(found, rows))
    else:
        rows = rows if hasattr(found, "feature_names_in_") else rows.to_numpy(float)
        out = pd.DataFrame({site or "prediction": np.asarray(found.predict(rows))})
        if proba:
            p = found.predict_proba(rows)
            labels = getattr(found, "classes_", range(p.shape[1]))
    if proba:
        out = out.assign(**{f"p({label})": p[:, i] for i, label in enumerate(labels)})
    return out


def _only(fit: Fit, rows: pd.DataFrame) -> str:
    """The one site with states that the rows do not show.

    Raises:
        ModelError: there are several, or none.
    """
    names = [site.name for site in fit.structure.sites.values()
             if site.rows and site.finite and site.name not in rows]
    if len(names) != 1:
        raise ModelError(f"say which site is predicted, --site NAME: {names} are unseen")
    return names[0]


def impute(found: Any, table: pd.DataFrame) -> pd.DataFrame:
    """The table with its unseen cells filled; columns that the model does not know stay."""
    rows = columns_of(found, table)
    if not hasattr(found, "impute"):
        raise ModelError(f"{type(found).__name__} does not say how its columns are distributed, "
                         f"so it cannot fill them: use a mixture, or a network")
    filled = found.impute(rows)
    out = table.copy()
    for name in (name for name in rows.columns if name in filled.columns and name in out):
        out[name] = filled[name].to_numpy()
    return out


def simulate(found: Any, rows: int, seed: int, inputs: pd.DataFrame | None = None) -> pd.DataFrame:
    """New rows, a column a site; of a face its columns; of a model with inputs beside these.

    Raises:
        ModelError: the model has inputs, and no table gives them. DataError: it lacks one.
    """
    if not isinstance(found, Fit) and hasattr(found, "columns_"):
        drawn = found.fit_.simulate(rows, seed=seed)
        names = [str(name) for name in found.columns_.names]
        out = pd.DataFrame(found.columns_.rows(drawn), columns=names)
        return out.assign(**{found._target: drawn[found._target]})
    fit = fit_of(found)
    if not isinstance(found, Fit) and fit.structure.chains:
        return _flat({name: value[0] for name, value in
                      fit.simulate(1, steps=rows, seed=seed).items()})
    needed = fit.model.inputs if isinstance(found, Fit) else ()
    if not needed:
        return _flat(fit.simulate(rows, seed=seed))
    if inputs is None:
        raise ModelError(f"the model has the inputs {list(needed)}: give a table that has them, "
                         f"--data FILE")
    missing = next((name for name in needed if name not in inputs.columns), None)
    if missing is not None:
        raise DataError(f"--data: the table has no column '{missing}', an input of the model; it "
                        f"has {list(inputs.columns)}")
    given = {name: inputs[name].to_numpy() for name in needed}
    return _flat(given | fit.simulate(seed=seed, **given))


def _flat(drawn: dict[str, np.ndarray]) -> pd.DataFrame:
    """Arrays of rows as columns, a column a cell."""
    out = {}
    for name, value in drawn.items():
        value = np.asarray(value)
        for at in np.ndindex(value.shape[1:]):
            out[f"{name}[{', '.join(map(str, at))}]" if at else name] = value[:, *at]
    return pd.DataFrame(out)


def score(found: Any, table: pd.DataFrame, target: str | None) -> dict[str, float]:
    """Mean log probability of a row; with a target the score of its prediction."""
    rows = columns_of(found, table)
    out: dict[str, float] = {"rows": len(rows)}
    if isinstance(found, Fit):
        return out | {"log_score": found.score(rows)}
    rows = rows if hasattr(found, "feature_names_in_") else rows.to_numpy(float)
    if target is None:
        return out | {"log_score": float(found.score(rows))}
    if target not in table.columns:
        raise DataError(f"--target {target}: the table has no such column; it has "
                        f"{list(table.columns)}")
    y = table[target].to_numpy()
    if hasattr(found, "classes_"):
        p = np.asarray(found.predict_proba(rows))
        lookup = {label: i for i, label in enumerate(found.classes_.tolist())}
        unknown = next((label for label in y.tolist() if label not in lookup), None)
        if unknown is not None:
            raise DataError(f"'{target}' holds {unknown!r}, which was not in training: "
                            f"{list(lookup)}")
        own = p[np.arange(len(y)), [lookup[label] for label in y.tolist()]]
        return out | {"accuracy": float(found.score(rows, y)),
                      "log_score": float(np.log(np.maximum(own, 1e-300)).mean())}
    return out | {"r2": float(found.score(rows, y)),
                  "log_score": float(np.mean(found.log_prob(rows, y)))}


def compared(files: dict[str, Any], table: pd.DataFrame, target: str | None,
             folds: int | None) -> pd.DataFrame:
    """Several of them on one table: see probml.compare; faces need a target, and are fitted
    again."""
    if target is None:
        faces = [name for name, found in files.items() if not isinstance(found, Fit)]
        if faces:
            raise ModelError(f"'{faces[0]}' holds a {type(files[faces[0]]).__name__}: say --target "
                             f"NAME to compare what they predict")
        rows = {name: columns_of(found, table) for name, found in files.items()}
        return compare(files, rows, folds=folds).reset_index()
    if target not in table.columns:
        raise DataError(f"--target {target}: the table has no such column; it has "
                        f"{list(table.columns)}")
    learnt = {tuple(getattr(found, "feature_names_in_", ())) for found in files.values()}
    if len(learnt) > 1:
        raise ModelError("the models were learnt from different columns: fit them to the same")
    names = next(iter(learnt)) or [name for name in table.columns if name != target]
    data = {"x": table[list(names)], "y": table[target].to_numpy()}
    return compare(files, data, target="y", folds=folds or 5).reset_index()
