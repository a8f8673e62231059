"""The same numbers in every container: `python tests/testing/containers.py [parts of names] [--where part]`.

Each estimator is fitted to a table at its defaults, in float32, and asked; then to the same table as frames with other
indices, column orders, types of cells and layouts in memory. The answer is the same, or one of our errors says what is
wrong. What is asked with a column that lacks, is twice there, or is called otherwise is refused; a further column, or
columns in another order, are put right or refused, and never taken by their place.
"""

import argparse
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pandas as pd
import single
from hard_tables import plain
from scipy import sparse

import probml

NAMES = ("u", "v", "w", "x")
CLOSE = 1e-4
OURS = (probml.ModelError, probml.DataError, probml.Refusal)


def _whole(x: np.ndarray) -> np.ndarray:
    return np.clip(np.round(8 * x), -100, 100)


def _frame(x: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(x, columns=list(NAMES[:x.shape[1]]))


def _backwards(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x[::-1])[::-1]


def _locked(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


def _strided(x: np.ndarray) -> np.ndarray:
    wide = np.full((2 * len(x), 2 * x.shape[1]), 1e30)
    wide[::2, ::2] = x
    return wide[::2, ::2]


def _nullable(x: np.ndarray) -> pd.DataFrame:
    return _frame(x).convert_dtypes()


def _arrow(x: np.ndarray) -> pd.DataFrame:
    return _frame(x).convert_dtypes(dtype_backend="pyarrow")


# what a matrix of whole numbers stands in: the same answer, or an error of ours
SAME: dict[str, Callable[[np.ndarray], Any]] = {
    "int8": lambda x: x.astype(np.int8), "int64": lambda x: x.astype(np.int64),
    "uint8": lambda x: x.astype(np.uint8) if x.min() >= 0 else x.astype(np.int16),
    "float32": lambda x: x.astype(np.float32), "float16": lambda x: x.astype(np.float16),
    "longdouble": lambda x: x.astype(np.longdouble), "big-endian": lambda x: x.astype(">f8"),
    "objects": lambda x: x.astype(object), "a list of lists": lambda x: x.tolist(),
    "Fortran": np.asfortranarray, "backwards": _backwards, "read-only": _locked, "strided": _strided,
    "masked": np.ma.masked_array, "a frame": _frame, "nullable": _nullable, "arrow": _arrow,
    "frame of objects": lambda x: _frame(x).astype(object),
    "frame of float32": lambda x: _frame(x).astype(np.float32),
    "an index of its own": lambda x: _frame(x).set_axis(np.arange(len(x))[::-1] + 100),
    "an index twice": lambda x: _frame(x).set_axis(np.zeros(len(x), int)),
    "dates as index": lambda x: _frame(x).set_axis(pd.date_range("2026-01-01", periods=len(x))),
    "sparse array": sparse.csr_array, "sparse frame": lambda x: _frame(x).astype(pd.SparseDtype(float, 0.0)),
    "matrix": np.matrix,
}  # fmt: skip
# how a table may differ when it is asked about: an error of ours, or the same answer (True)
ASKED: dict[str, tuple[Callable[[pd.DataFrame], Any], bool]] = {
    "in another order": (lambda x: x[x.columns[::-1]], True),
    "with a further column": (lambda x: x.assign(more=1.0), True),
    "without a column": (lambda x: x[x.columns[:-1]], False),
    "a column renamed": (lambda x: x.rename(columns={x.columns[-1]: "other"}), False),
    "a column twice": (lambda x: pd.concat([x, x.iloc[:, :1]], axis=1), False),
    "no rows": (lambda x: x.iloc[:0], False),
    "no columns": (lambda x: x.iloc[:, :0], False),
    "an array": (lambda x: x.to_numpy(), True),
    "too narrow an array": (lambda x: x.to_numpy()[:, :-1], False),
    "one row, flat": (lambda x: x.to_numpy()[0], False),
    "text": (lambda x: x.astype(str).add("!"), False),
    "dates": (lambda x: x.apply(pd.to_datetime), False),
}  # fmt: skip
# whose errors are words for users; scikit-learn's checks are the estimators'
WORDED = ("sklearn/utils/validation.py", "estimators/validation.py", "estimators/taking.py", "estimators/estimator.py")
TABLED = ("numbers", "classes", "sure", "regression", "counts", "codes", "squares", "atoms", "groups of rows", "parts",
          "shares", "topics", "items")


def _given(kind: str) -> tuple:
    table = plain()
    given = single.KINDS[kind][0](table)
    x = np.asarray(given[0], float)
    return (x if kind in ("counts", "codes", "parts", "topics", "items") else _whole(x), *given[1:])


def _answer(estimator: Any, verbs: tuple[str, ...], x: Any) -> list[np.ndarray]:
    return [np.asarray(getattr(estimator, verb)(x)) for verb in verbs]


def _apart(found: list[np.ndarray], right: list[np.ndarray]) -> str:
    for one, other in zip(found, right, strict=True):
        if one.shape != other.shape:
            return f"shape {one.shape}, not {other.shape}"
        if other.dtype.kind in "fiu":
            gap = np.abs(np.asarray(one, float) - other) / (1 + np.nanmax(np.abs(other), initial=0.0))
            if not np.nanmax(gap, initial=0.0) <= CLOSE or (np.isnan(one) != np.isnan(other)).any():
                return f"off by {np.nanmax(gap):.3g}"
        elif (one != other).any():
            return "other labels"
    return ""


def tried(act: Callable[[], str], may_refuse: bool = True, must: bool = False) -> str:
    """What is wrong with an answer: its words; an error that is not ours; none, though there `must` be one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = act()
        except OURS as error:
            return "" if may_refuse else f"refused: {error}"[:200]
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            if isinstance(error, ValueError | TypeError) and where.filename.endswith(WORDED):
                return ""  # in words, of the kind that scikit-learn wants
            return f"{type(error).__name__}: {error} ({where.filename[-40:]}:{where.lineno})"[:250]
    return "answered, though it must not" if must and not found else found


def faults(name: str, where: str = "") -> list[str]:
    kind, make = single.ESTIMATORS[name]
    verbs = ("transform",) if kind == "topics" else single.KINDS[kind][1]
    x, *rest = _given(kind)
    estimator, out = make().fit(x, *rest), []
    right = _answer(estimator, verbs, x)
    for held, move in SAME.items():
        if where not in held:
            continue
        if words := tried(lambda move=move: _apart(_answer(estimator, verbs, move(x)), right)):
            out.append(f"asked of {held}: {words}")
        if words := tried(lambda move=move: _apart(_answer(make().fit(move(x), *rest), verbs, move(x)), right)):
            out.append(f"fitted to {held}: {words}")
    frame = _frame(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = make().fit(frame, *rest)
        right = _answer(estimator, verbs, frame)
    for held, (move, answers) in ASKED.items():
        if where in held and (words := tried(
                lambda move=move: _apart(_answer(estimator, verbs, move(frame)), right), must=not answers)):
            out.append(f"{held}: {words}")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[""], help="of names")
    parser.add_argument("--where", default="")
    asked, defects = parser.parse_args(), 0
    for name, (kind, _) in single.ESTIMATORS.items():
        if kind not in TABLED or not any(part in name for part in asked.parts):
            continue
        began = time.process_time()
        for words in faults(name, asked.where):
            defects += 1
            print(f"{name}, {words}", flush=True)
        print(f"# {name}: {time.process_time() - began:.0f} s", flush=True)
        jax.clear_caches()
    print(f"# {defects} defects")
    return int(defects > 0)


if __name__ == "__main__":
    sys.exit(main())
