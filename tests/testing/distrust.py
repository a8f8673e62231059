"""The statistician who distrusts: `python tests/testing/distrust.py [parts of names] [--where part]`.

Tables of every kind of cell, unit and weight that people bring, through a fit at its defaults and every question
afterwards: what float32 answers is what double answers, to a thousandth of the answers' spread, or is said not to be
relied on; what is drawn has the moments, and the grain, of what double draws. An error is one of ours.
"""

import argparse
import decimal
import inspect
import sys
import time
import traceback
from typing import Any

import jax
import numpy as np
import pandas as pd
import single
from hard_tables import Table, plain

from probml import models

CLOSE = 1e-3
DRAWN = 4000  # rows that are drawn, whose moments differ by chance
nan = np.nan


def _tabled(x, kind: str) -> pd.DataFrame:
    return pd.DataFrame(np.round(x), columns=["a", "b", "c"]).astype(kind)


def _with_na(table: Table) -> Table:
    x, codes = _tabled(10 * table.x, "Int64"), pd.DataFrame(table.codes).astype("boolean")
    x.iloc[3, 1], x.iloc[7, 0], codes.iloc[2, 0] = pd.NA, pd.NA, pd.NA
    counts = pd.DataFrame(table.counts).astype("UInt16")
    counts.iloc[1, 1] = pd.NA
    return table._replace(x=x, codes=codes, counts=counts, y=pd.Series(table.y).astype("Float64"),
                          classes=pd.Series(table.classes).astype("Int64"))


def _decimals(table: Table) -> Table:
    def exact(part):
        return np.vectorize(lambda v: decimal.Decimal(f"{v:.4f}"), otypes=[object])(part)
    return table._replace(x=exact(table.x), y=exact(table.y), counts=exact(table.counts))


def _words(table: Table) -> Table:
    names = np.array(["no thing", "some thing ", " ä thing"], dtype=object)
    codes = pd.DataFrame(names[table.codes.astype(int)], columns=["q 1", "q 2", "q:3", "q 4"])
    return table._replace(classes=names[table.classes], codes=codes)


def _levels(table: Table) -> Table:
    kind = pd.CategoricalDtype(["never", "no", "yes", "unused"], ordered=True)
    names = np.array(["no", "yes"])
    codes = pd.DataFrame({f"q{i}": pd.Series(names[table.codes[:, i].astype(int)]).astype(kind) for i in range(4)})
    return table._replace(codes=codes, classes=pd.Series(names[table.classes]).astype(kind))


def _arrow(table: Table) -> Table:
    return table._replace(x=pd.DataFrame(table.x, columns=["a", "b", "c"]).convert_dtypes(dtype_backend="pyarrow"),
                          classes=pd.Series(np.array(["a b", "c"])[table.classes]).astype("string"))


def _stamps(table: Table) -> Table:
    begin = pd.Timestamp("2026-11-23", tz="Europe/Berlin")
    x = pd.DataFrame({"a": begin + pd.to_timedelta(table.x[:, 0], "D"), "b": table.x[:, 1], "c": table.x[:, 2]})
    return table._replace(x=x)


def _moved(unit: float, offset: float = 0.0, digits: int | None = None):
    def move(table: Table) -> Table:
        x, y = table.x * unit + offset, table.y * unit + offset
        return table._replace(x=x if digits is None else np.round(x, digits),
                              y=y if digits is None else np.round(y, digits))
    return move


def _images(table: Table) -> Table:
    x = np.clip(np.round(128 + 40 * table.x), 0, 255).astype(np.uint8)
    return table._replace(x=x, counts=np.clip(table.counts * 20, 0, 255).astype(np.uint8))


WHERE = {
    "as they are": lambda t: t,
    "units of 1e9": _moved(1e9), "units of 1e-9": _moved(1e-9), "about 1e6, sd 1": _moved(1.0, 1e6),
    "money with cents": _moved(1e3, 1e8, 2), "seconds of a day": _moved(86400.0 / 4, 1.7e9, 0),
    "dates as input": lambda t: t._replace(x=t.x * 86400 + 1.7e9),
    "one column of dates": lambda t: t._replace(x=np.column_stack([t.x[:, 0] * 86400 + 1.7e9, t.x[:, 1:]])),
    "float16": lambda t: t._replace(x=t.x.astype(np.float16), y=t.y.astype(np.float16)),
    "int8": lambda t: t._replace(x=np.clip(10 * t.x, -128, 127).astype(np.int8), counts=t.counts.astype(np.int8),
                                 y=np.clip(5 * t.y, -128, 127).astype(np.int8)),
    "images": _images, "decimals": _decimals, "nullable with NA": _with_na, "words with spaces": _words,
    "unused levels": _levels, "arrow": _arrow, "timestamps": _stamps,
}  # fmt: skip
NUMBERED = {where: move for where, move in WHERE.items()
            if where not in ("nullable with NA", "words with spaces", "unused levels", "arrow", "timestamps")}
WEIGHTS = {
    "weights with zeros": lambda n: np.where(np.arange(n) % 5 == 0, 0.0, 1.0),
    "weights of 1e-12": lambda n: np.full(n, 1e-12), "weights of 1e9": lambda n: np.full(n, 1e9),
    "weights from 1e-12 to 1e9": lambda n: np.resize([0.0, 1e-12, 1.0, 1e9], n),
}
VERBS = ("predict", "predict_proba", "decision_function", "score_samples", "score", "transform", "sample", "impute",
         "forecast", "log_prob", "filter", "components", "aic", "bic")
DRAWS = {"sample"}


def _taken(verb: str, ask: Any, given: tuple) -> tuple:
    """How a verb is asked."""
    names = [p.name for p in inspect.signature(ask).parameters.values() if p.default is p.empty]
    return given[:1] if verb in ("forecast", "components") else given[:len(names)]


def _fitted(name: str, weights, table: Table) -> dict[str, Any]:
    kind, make = single.ESTIMATORS[name]
    given = single.KINDS[kind][0](table)
    estimator = make()
    more = {} if weights is None else {"sample_weight": weights(len(given[0]))}
    estimator.fit(*given, **more)
    out: dict[str, Any] = {"": getattr(estimator, "status", "")}
    for verb in VERBS:
        ask = getattr(estimator, verb, None)
        if ask is None or (verb == "score" and len(given) == 1 and kind in ("items",)):
            continue
        if verb == "sample":
            drawn = ask(DRAWN)
            out[verb] = _numbers(drawn[0] if isinstance(drawn, tuple) else drawn)
        else:
            out[verb] = _numbers(ask(*_taken(verb, ask, given)))
    return out


def _numbers(found: Any) -> np.ndarray:
    if isinstance(found, tuple):
        found = found[0]
    if isinstance(found, dict):
        found = np.concatenate([np.asarray(v, float).ravel() for v in found.values()])
    found = np.asarray(found)
    if found.dtype.kind == "M":
        return found.astype("M8[us]").astype(float)
    try:
        return found.astype(float)
    except (TypeError, ValueError):  # labels, dates: as codes
        return np.asarray([[pd.Timestamp(v).value / 1e3 if isinstance(v, pd.Timestamp) else
                            float(v) if isinstance(v, int | float | np.number | decimal.Decimal) else
                            nan if v is None or v is pd.NA else float(sum(map(ord, str(v)))) for v in row]
                           for row in np.atleast_2d(found)])


def _asked(name: str, settings: dict, of: Any, engine: Any, site: str, table: Table) -> dict[str, Any]:
    """Every question to a fitted function of the zoo; what is predicted, imputed and drawn is a site."""
    data = of(table)
    fit = getattr(models, name)(**settings).fit(data, engine)
    out: dict[str, Any] = {"": fit.status, "log_prob": fit.log_prob(data), "score": np.asarray(fit.score(data))}
    cells = _numbers(data[site])
    holed = np.array(cells)
    holed.reshape(-1)[3] = nan
    if name not in ("naive_bayes", "markov_chain"):
        out["impute"] = _numbers(fit.impute({**data, site: holed})[site])
    given = {other: value for other, value in data.items() if other != site}
    if given:  # what is drawn and predicted given inputs, or others of the row
        out["predict"] = _numbers(fit.predict(given, site))
        one = {other: np.repeat(np.asarray(value)[:1], DRAWN, 0) for other, value in given.items()}
        drawn = fit.simulate(seed=1, given=one)
    else:
        few = DRAWN if cells.ndim < 3 and name not in ("local_level", "local_trend", "seasonal") else 200
        steps = cells.shape[1] if few == 200 else None
        drawn = fit.simulate(few, seed=1, steps=steps) if steps else fit.simulate(few, seed=1)
    found = _numbers(drawn[site])
    out["sample"] = found.reshape(-1, 1 if given or found.ndim == 1 else found.shape[-1])
    if name in ("hidden_markov", "gaussian_mixture"):
        out["predict_proba"] = fit.predict_proba(data, "z")
        out["decode"] = _numbers(fit.decode(data)["z"])
    summary = fit.summary()
    if hasattr(summary, "columns"):
        for column in ("mean", "sd", "value"):
            if column in summary.columns:
                told = summary.sort_index()[column]  # whose order is not ours to judge
                out[f"{column} of the summary"] = _numbers(told.to_numpy()[None])
    return out


FUNCTIONS = {
    "linear_regression": ({}, lambda t: {"x": t.x, "y": t.y}, None, "y"),
    "robust_regression": ({}, lambda t: {"x": t.x, "y": t.y}, None, "y"),
    "logistic_regression": ({}, lambda t: {"x": t.x, "y": t.classes}, None, "y"),
    "gaussian_mixture": ({"k": 2, "d": 3}, lambda t: {"x": t.x}, None, "x"),
    "hidden_markov": ({"k": 2, "d": 3}, lambda t: {"y": t.x[None]}, None, "y"),
    "mixture_of_experts": ({"k": 2}, lambda t: {"x": t.x, "y": t.y}, None, "y"),
    "factor_analysis": ({"k": 1, "d": 3}, lambda t: {"x": t.x}, None, "x"),
    "local_level": ({}, lambda t: {"y": np.asarray(t.y)[None]}, None, "y"),
    "local_trend": ({}, lambda t: {"y": np.asarray(t.y)[None]}, None, "y"),
    "seasonal": ({"period": 4}, lambda t: {"y": np.asarray(t.y)[None]}, None, "y"),
    "generalized_linear": ({"offset": 0.0, "trials": 1}, lambda t: {"x": t.codes, "y": t.counts[:, 0]}, None, "y"),
    "naive_bayes": ({"classes": 2, "features": {"a": "normal"}, "target": "c"},
                    lambda t: {"a": t.x[:, 0], "c": t.classes}, None, "c"),
}


def off(verb: str, one: np.ndarray, other: np.ndarray) -> str:
    """What is wrong with what float32 answers."""
    if one.shape != other.shape:
        return f"shape {other.shape}, in double {one.shape}"
    if verb == "sample":
        one, other = one.reshape(len(one), -1), other.reshape(len(other), -1)
        spread = one.std(0)
        for i in np.flatnonzero(spread > 1e-12 * np.abs(one).max(0)):
            a, b = one[:, i], other[:, i]
            if not np.isfinite(b).all():
                return f"column {i} is not finite"
            if len(np.unique(b)) < 0.8 * len(np.unique(a)):
                return f"column {i} has {len(np.unique(b))} values, in double {len(np.unique(a))}"
            if abs(a.mean() - b.mean()) > 0.15 * spread[i] or not 0.8 < (b.std() + 1e-300) / spread[i] < 1.25:
                return f"column {i} has mean {b.mean():.9g}, sd {b.std():.3g}; in double {a.mean():.9g}, {a.std():.3g}"
        return ""
    if (np.isnan(one) != np.isnan(other)).any() or not np.isfinite(other[np.isfinite(one)]).all():
        return "other cells are unknown or infinite"
    rows = one.reshape(len(one), -1) if one.ndim else one.reshape(1, 1)
    others = other.reshape(rows.shape)
    spread = np.nanstd(rows, axis=0) if len(rows) > 1 else np.zeros(rows.shape[1])
    floor = 1e-9 * np.abs(rows)  # what double itself rounds of a column without spread
    if verb in ("log_prob", "score_samples", "score", "aic", "bic", "filter", "predict_proba"):
        # of many rows how far below the likeliest each is, in nats, whatever the unit of their cells
        below = np.nanmax(rows, axis=0) - rows if verb in ("log_prob", "score_samples") else 0.0
        spread = np.maximum(spread, 1.0 + (np.abs(rows) if rows.shape[0] == 1 else below))
    elif verb == "decision_function" or rows.shape[0] == 1 or not spread.any():
        spread = np.maximum(spread, np.abs(rows).max())
    apart = np.abs(rows - others) / (CLOSE * spread + floor + 1e-300)
    if np.nanmax(apart, initial=0.0) <= 1:
        return ""
    i = np.unravel_index(int(np.nanargmax(apart)), apart.shape)
    return f"{others[i]:.9g}, in double {rows[i]:.9g} ({apart[i]:.2g} times what is allowed)"


def compared(answers, table: Table) -> tuple[int, list[str]]:
    """How many answers there are, and what is wrong with them."""
    right, spoken = single.heard(answers, table, True)
    found, said = single.heard(answers, table, False)
    if right is None or found is None:
        if (right is None) != (found is None):
            return 1, [f"{'double' if right is None else 'single'} alone refuses: {(spoken + said)[0][:300]}"]
        return 1, [] if not spoken[0].startswith("refused: ValueError") else [spoken[0][:300]]
    wrong = [f"{verb}: {words}" for verb in right
             if (words := off(verb, np.asarray(right[verb], float), np.asarray(found[verb], float)))]
    for verb, value in right.items():
        if np.isnan(np.asarray(value, float)).any() and verb not in ("forecast", "filter") and not spoken:
            wrong.append(f"{verb}: NaN, also in double, without a word")
    if wrong and (not set(said) <= set(spoken) or any(word in each for each in said for word in single.NO_ANSWER)):
        return len(right), []
    return len(right), wrong


def cases() -> dict[str, tuple[Any, dict]]:
    """Name → (answers of a table, tables)."""
    found = {name: (lambda t, name=name: _fitted(name, None, t), WHERE) for name in single.ESTIMATORS}
    for name in single.ESTIMATORS:
        if "sample_weight" in inspect.signature(getattr(models, name).fit).parameters:
            found[f"{name}, weighed"] = (None, {
                where: (lambda t, name=name, w=w: _fitted(name, w, t)) for where, w in WEIGHTS.items()})
    for name, (settings, of, engine, site) in FUNCTIONS.items():
        def ask(t, name=name, settings=settings, of=of, engine=engine, site=site):
            return _asked(name, settings, of, engine, site, t)
        found[name] = (ask, NUMBERED)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[""], help="of names")
    parser.add_argument("--where", default="")
    asked = parser.parse_args()
    tried, answers, defects = 0, 0, 0
    for name, (ask, tables) in cases().items():
        if not any(part in name for part in asked.parts):
            continue
        began = time.process_time()
        for where, one in tables.items():
            if asked.where not in where:
                continue
            try:
                count, wrong = compared(ask or one, one(plain()) if ask else plain())
            except Exception as error:
                count, wrong = 1, [f"{type(error).__name__}: {error}"[:300]
                                   + traceback.format_exc()[-400:].replace("\n", " | ")]
            tried, answers = tried + 1, answers + count
            if wrong:
                defects += 1
                print(f"{name}, {where}: {'; '.join(wrong)}", flush=True)
        print(f"# {name}: {time.process_time() - began:.0f} s", flush=True)
        jax.clear_caches()
    print(f"# {tried} tables, {answers} answers, {defects} defects")
    return int(defects > 0)


if __name__ == "__main__":
    sys.exit(main())
