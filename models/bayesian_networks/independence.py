"""Are two columns independent given others? Tests, stratum by stratum.

Discrete columns, with n_sxy rows of the values x and y in each configuration s of the given ones,
and e_sxy = n_sx n_sy / n_s what independence expects:

    "chi-squared"       Σ (n − e)² / e                     (Pearson 1900)
    "likelihood ratio"  G² = 2 Σ n log(n / e)              (Wilks 1938)

against χ² of Σ_s (values of x seen in s − 1)(values of y seen in s − 1) degrees. Continuous ones:

    "partial correlation"  r √(degrees / (1 − r²)) against Student's t of n − 2 − given degrees,
                           exact for normal columns       (Fisher 1924)

r the correlation of what least squares on the given columns leaves of the two. Rows with an unseen
cell in a column that takes part are left out, which is right where cells go missing completely at
random.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from scipy.special import xlogy
from scipy.stats import chi2, t

from probml import DataError, ModelError
from probml.errors import listed
from probml.estimators.rules import hold, several
from probml.models.bayesian_networks.folding import combine_codes
from probml.models.bayesian_networks.variables import Variables, read, use_one_of
from probml.numerics.process.libraries import pd

DISCRETE, CONTINUOUS = ("likelihood ratio", "chi-squared"), ("partial correlation",)
MIN_RESIDUAL_SHARE = 1e-12  # what others determine to this share of its variance has none left


def conditional_dependence(data, first: str, second: str, given: Iterable[str] = (), *,
                           states: Mapping | None = None, kinds: Mapping | None = None
                           ) -> "pd.DataFrame":
    """Test whether two columns are dependent given the columns of `given` (conditional
    independence).

    Args:
        data: DataFrame, pyarrow Table or mapping name → column, as learn_structure takes it; cells
            may be missing.
        first, second: names of columns, both discrete or both continuous, and so are
        given: names of others.
        states, kinds: as in learn_structure.

    Returns:
        DataFrame: a row a test, columns `statistic`, `degrees`, `p_value`. See the module; without
        `given`, `dependence` has Bayes factors as well.

    Raises:
        DataError: columns that are absent, of two kinds, or cannot be read. ModelError: a column
        that is named twice.

    Cost: O(rows log rows).
    """
    given = [given] if isinstance(given, str) else given
    hold("conditional_dependence", given=(given, several("names of columns")))
    columns = [first, second, *given]
    if unknown := [name for name in columns if not isinstance(name, str)]:
        raise ModelError(f"conditional_dependence: {unknown[0]!r} is not the name of a column. "
                         "Give names as strings, such as 'smoker'")
    if repeated := [name for name in columns if columns.count(name) > 1]:
        raise ModelError(f"conditional_dependence: the column {repeated[0]!r} is given twice. Give "
                         f"different columns in first, second and given")
    variables = read(data, states, kinds, complete=False)
    if missing := [name for name in columns if name not in variables.names]:
        raise DataError(f"conditional_dependence: {missing[0]!r} is not a column; "
                        f"{use_one_of(variables.names, missing[0])}")
    i, j, *others = (variables.names.index(name) for name in columns)
    table = pd.DataFrame.from_dict(
        {test: independence_test(variables, test, i, j, others)
         for test in tests_of(variables, [i, j, *others])},
        orient="index", columns=["statistic", "degrees", "p_value"], dtype=float)
    table.index.name = "test"
    return table


def tests_of(variables: Variables, columns: Iterable[int]) -> tuple[str, ...]:
    """The tests of columns of one kind; DataError where they are of two."""
    columns = list(columns)
    numbers = [j for j in columns if variables.labels[j] is None]
    if 0 < len(numbers) < len(columns):
        raise DataError(
            "independence tests need columns of one kind. Continuous: "
            f"{listed(variables.names[j] for j in numbers)}. Discrete: "
            f"{listed(variables.names[j] for j in columns if j not in numbers)}. Cut "
            "every continuous column into classes (pandas.cut), or, if its numbers are "
            f"categories, pass kinds={{{variables.names[numbers[0]]!r}: 'categorical'}}"
        )
    return CONTINUOUS if numbers else DISCRETE


def independence_test(variables: Variables, test: str, i: int, j: int, given: Iterable[int]
                      ) -> tuple[float, float, float]:
    """(statistic, degrees of freedom, p-value) of columns i and j given others; 0 degrees and a
    p-value of 1 where the data are not informative."""
    indices = [i, j, *given]
    columns = [variables.columns[c] for c in indices]
    missing = np.zeros(variables.rows, bool)
    for c, values in zip(indices, columns, strict=True):
        missing |= np.isnan(values) if variables.labels[c] is None else values < 0
    if missing.any():
        columns = [values[~missing] for values in columns]
    if test in CONTINUOUS:
        return _partial_correlation(np.stack(columns, 1))
    return _tables(test, columns, [len(variables.labels[c] or ()) for c in indices])


def _tables(test: str, columns: list[np.ndarray], states: list[int]) -> tuple[float, float, float]:
    rows = len(columns[0])
    if rows == 0:
        return 0.0, 0.0, 1.0
    code, _ = combine_codes(list(zip(columns[2:], states[2:], strict=True)), rows)
    strata, stratum = np.unique(code, return_inverse=True)
    shape = len(strata), states[0], states[1]
    counts = np.bincount((stratum * states[0] + columns[0]) * states[1] + columns[1],
                         minlength=int(np.prod(shape))).reshape(shape).astype(float)
    x, y, total = counts.sum(2), counts.sum(1), counts.sum((1, 2))
    expected = x[:, :, None] * y[:, None, :] / total[:, None, None]
    positive = expected > 0
    n, e = counts[positive], expected[positive]
    statistic = float(2 * xlogy(n, n / e).sum() if test == "likelihood ratio"
                      else ((n - e) ** 2 / e).sum())
    degrees = float((((x > 0).sum(1) - 1) * ((y > 0).sum(1) - 1)).sum())
    return statistic, degrees, float(chi2.sf(statistic, degrees)) if degrees else 1.0


def _partial_correlation(values: np.ndarray) -> tuple[float, float, float]:
    degrees = float(len(values) - values.shape[1])
    if degrees < 1:
        return 0.0, 0.0, 1.0
    values = values - values.mean(0)
    scale = np.sqrt((values**2).mean(0))
    values = values / np.where(scale > 0, scale, 1.0)
    pair, design = values[:, :2], values[:, 2:]
    if design.shape[1]:
        pair = pair - design @ np.linalg.lstsq(design, pair)[0]
    variance = (pair**2).mean(0)
    if (variance <= MIN_RESIDUAL_SHARE).any():  # the given columns tell it all
        return 0.0, 0.0, 1.0
    r = float(np.clip((pair[:, 0] * pair[:, 1]).mean() / np.sqrt(variance.prod()), -1.0, 1.0))
    statistic = r * np.sqrt(degrees / max(1 - r * r, MIN_RESIDUAL_SHARE**2))
    return float(statistic), degrees, float(2 * t.sf(abs(statistic), degrees))
