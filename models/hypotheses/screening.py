"""Which columns tell of a target, one by one: mutual information and Bayes factors.

A screen looks at every column alone, and is as quick as counting; what columns tell together (and
what one tells twice) is the matter of models of all of them.

| column, target | mutual information, nats | log Bayes factor of dependence |
|---|---|---|
| categories, categories | Σ p log p/(p p), of the counts | Gunel & Dickey (1974), see dependence,
  the column's counts fixed; without categories met once, which tell nothing of others |
| a number, categories | −½ Σ p_c log σ_c²/σ² of normals | normal a category against one normal,
  each mean and precision normal–gamma |
| a number, a number | −½ log(1 − r²) of a normal pair | a line against none, Zellner's g prior with
  g ~ Beta′ (Liang et al. 2008: hyper-g, a = 3) |

Sources: Cover & Thomas (2006), chapter 2; Liang, Paulo, Molina, Clyde & Berger (2008), "Mixtures of
g priors for Bayesian variable selection", equation 17.
"""

from collections.abc import Sequence

import numpy as np
from jax.typing import ArrayLike
from scipy.special import gammaln, xlogy

from probml import DataError, ModelError
from probml.dataset.frames import as_pandas
from probml.errors import counted, listed
from probml.estimators.rules import hold, several
from probml.estimators.table_inputs import refuse_scalar
from probml.models.frames.kinds import discrete
from probml.models.hypotheses import tables
from probml.numerics.process.libraries import pd
from probml.typing import DataLike

STRENGTH, SHAPE, RATE = 1.0, 1.0, 1.0  # of the normal–gamma prior, of numbers in their own units


def screen(X: DataLike, y: ArrayLike, names: Sequence[str] | None = None) -> "pd.DataFrame":
    """The association of every column of X with a target y, the most informative first.

    Args:
        X: a DataFrame, or an array (n, d); text, booleans and few whole numbers that repeat are
            categories (probml.models.kinds), dates and durations numbers. Rows in which a cell or y
            is missing are left out of that column.
        y: the target, (n,): categories or numbers by the same rule.
        names: of the columns of an array.

    Returns:
        DataFrame: a row a column: `kind` ("categories" or "number"), `rows`, `information` (natural
        logarithm), `log_bayes_factor` of dependence, and `probability` of it where it was as
        probable as not; sorted by `log_bayes_factor`. Many columns that are screened at once find
        some by chance: a prior probability of s/d for each asks for log d/s more.

    Raises:
        DataError: y and X of other lengths, infinite numbers; a constant column gets 0,
            not refused.

    Cost: O(n d).
    """
    X, y = as_pandas(X), as_pandas(y)
    for value, name in ((X, "X"), (y, "y")):
        refuse_scalar(value, name, "screen")
    if hasattr(X, "columns") and names is not None:
        raise ModelError("screen(names=...): names= is only for an array, and X is a DataFrame "
                         "with names of its own. Omit names=")
    table = X if hasattr(X, "columns") else _as_frame(X, names)
    target = _as_numbers(pd.Series(y if np.ndim(y) == 1 else np.ravel(y)), "y")
    if len(target) != len(table):
        raise DataError(f"screen: X has {counted(len(table), 'row')}, y has {len(target)}. Pass "
                        "one y for each row of X")
    records = {name: _association(_as_numbers(table[name], f"column {name!r}"), target)
               for name in table.columns}
    result = pd.DataFrame.from_dict(records, orient="index",
                                    columns=["kind", "rows", "information", "log_bayes_factor"])
    result["probability"] = 1 / (1 + np.exp(-result["log_bayes_factor"].clip(-700, 700)))
    result.index.name = "column"
    return result.sort_values("log_bayes_factor", ascending=False, kind="stable")


def _as_frame(X: DataLike, names: Sequence[str] | None) -> "pd.DataFrame":
    X = np.asarray(X)
    if X.ndim != 2:
        raise DataError(f"screen: expected X as a DataFrame or an array (n, d), got the shape "
                        f"{X.shape}")
    if names is None:
        return pd.DataFrame(X)
    hold("screen", names=(names, several("names of columns")))
    if len(names) != X.shape[1]:
        raise DataError(f"screen(names=[{listed(names)}]): expected {counted(X.shape[1], 'name')}, "
                        "one for each column of X")
    return pd.DataFrame(X, columns=list(names))


def _as_numbers(column, name: str):
    """A column whose numbers are some, whatever they were held as; dates as seconds from the first.
    """
    column = column.reset_index(drop=True).infer_objects()
    if column.dtype.kind in "mM":
        column = (column - column.min()).dt.total_seconds()
    if column.dtype.kind == "f" and np.isinf(column.to_numpy(float, na_value=np.nan)).any():
        row = int(np.flatnonzero(np.isinf(column.to_numpy(float, na_value=np.nan)))[0])
        raise DataError(f"screen: {name} is infinite in row {row}, expected a finite number, or "
                        f"NaN for a missing value")
    return column


def _association(column, target) -> tuple:
    complete = (column.notna() & target.notna()).to_numpy()
    x, y = column[complete], target[complete]
    sorted_x, sorted_y = _categories(x), _categories(y)
    kind = "categories" if sorted_x else "number"
    if not complete.any() or x.nunique() < 2 or y.nunique() < 2:
        return kind, int(complete.sum()), 0.0, 0.0
    if sorted_x and sorted_y:
        measures = _of_table(_contingency_table(x, y))
    elif sorted_x or sorted_y:
        numbers, classes = (y, x) if sorted_x else (x, y)
        measures = _of_groups(numbers.to_numpy(float), classes.factorize()[0])
    else:
        measures = _of_pairs(x.to_numpy(float), y.to_numpy(float))
    return kind, int(complete.sum()), *measures


def _categories(column) -> bool:
    if column.dtype.kind in "biuf":
        return column.dtype.kind == "b" or discrete(column.to_numpy(float))
    return True


def _contingency_table(x, y) -> np.ndarray:
    a, b = x.factorize()[0], y.factorize()[0]
    counts = np.zeros((a.max() + 1, b.max() + 1), int)
    np.add.at(counts, (a, b), 1)
    return counts


def _of_table(counts: np.ndarray) -> tuple[float, float]:
    p = counts / counts.sum()
    independent = np.outer(p.sum(1), p.sum(0))
    repeated = counts[counts.sum(1) > 1]
    factor = tables.log_bayes_factor(repeated, "rows") if len(repeated) > 1 else 0.0
    return float(xlogy(p, p / independent).sum()), factor


def _of_groups(x: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """A number within categories."""
    z = (x - x.mean()) / x.std()
    parts = [z[groups == j] for j in range(groups.max() + 1)]
    shares = np.array([len(part) for part in parts]) / len(z)
    # a category of one row has no spread of its own: it is taken at what the prior leaves
    var = np.array([(part.var() * len(part) + 2 * RATE / len(z)) / len(part) for part in parts])
    information = max(-0.5 * float(shares @ np.log(np.minimum(var, 1.0))), 0.0)
    return information, sum(map(log_normal_gamma, parts)) - log_normal_gamma(z)


def log_normal_gamma(z: np.ndarray) -> float:
    """log evidence of numbers under z ~ N(μ, 1/τ), μ ~ N(0, 1/(κτ)), τ ~ Gamma(a, b), with κ, a, b
    = STRENGTH, SHAPE, RATE."""
    n = len(z)
    strength, shape = STRENGTH + n, SHAPE + n / 2
    rate = RATE + 0.5 * ((z - z.mean()) ** 2).sum() + 0.5 * STRENGTH * n * z.mean()**2 / strength
    return float(gammaln(shape) - gammaln(SHAPE) + SHAPE * np.log(RATE) - shape * np.log(rate)
                 + 0.5 * np.log(STRENGTH / strength) - n / 2 * np.log(2 * np.pi))


def _of_pairs(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """A number and a number."""
    r2 = float(min(np.corrcoef(x, y)[0, 1] ** 2, 1 - 1e-15))
    information, n = -0.5 * np.log1p(-r2), len(x)
    if n < 3:
        return information, 0.0
    # ½ ₂F₁(a, 1; 2; r²) with a = (n − 1)/2, which is ½ ((1 − r²)^(1 − a) − 1) / ((a − 1) r²)
    power = (n - 3) / 2 * -np.log1p(-r2)
    if power < 1e-12:
        return information, float(np.log(0.5) + (np.log(-np.log1p(-r2) / r2) if n == 3 and r2 > 0
                                                 else 0.0))
    factor = np.log(0.5) + power + np.log(-np.expm1(-power)) - np.log((n - 3) / 2 * r2)
    return information, float(factor)
