"""Does one category depend on another? Bayes factors of a table of counts (Gunel & Dickey 1974)
beside the tests of independence.

Under dependence the probabilities of the cells are Dirichlet(a, …, a); independence has the prior
that follows from it where the cells factorise, Dirichlets of the margins with

    ξ_r = Σ_c a_rc − (C − 1),   ξ_c = Σ_r a_rc − (R − 1)

With D(x) = Π Γ(x_i) / Γ(Σ x_i), log BF of dependence is, by how the table came about,

    "joint"    only the total was fixed:  log D(y + a)/D(a) − log D(y_r + ξ_r)/D(ξ_r)
                                           − log D(y_c + ξ_c)/D(ξ_c)
    "rows"     the totals of the rows were:  the same, both sides given these,
               + log D(y_r + ξ_r)/D(ξ_r) − log D(y_r + a_r)/D(a_r),   a_r = Σ_c a_rc
    "columns"  the same of the other side
    "poisson"  nothing was, cells are Poisson counts with Gamma(a, b) rates: the joint one
               + log NB(y | a.., b) − log NB(y | a.. − (R − 1)(C − 1), b)

Sources: Gunel & Dickey (1974), "Bayes factors for independence in contingency tables"; Jamil et al.
(2017), "Default 'Gunel and Dickey' Bayes factors for contingency tables".
"""


import numpy as np
from scipy.special import gammaln, xlogy
from scipy.stats import chi2, random_table

from probml import DataError, ModelError
from probml.estimators.rules import hold, integer, numbers, one_of
from probml.language.given import floats
from probml.language.language import check_seed
from probml.numerics.process.libraries import pd

COLUMNS = ["statistic", "degrees", "p_value", "log_bayes_factor", "probability"]
MAX_PERMUTATIONS = 10_000_000  # permutations
SAMPLING = ("joint", "rows", "columns", "poisson")


def dependence(table, sampling: str = "joint", *, concentration=1.0, permutations: int = 2000,
               seed: int = 0) -> "pd.DataFrame":
    """Whether the rows of a table of counts depend on its columns.

    | test | `statistic`, `p_value` |
    |---|---|
    | "chi-squared" | Σ (y − e)² / e (Pearson 1900), against χ² |
    | "likelihood ratio" | G = 2 Σ y log(y / e) (Wilks 1938), against χ² |
    | "permutation" | Pearson's, against tables of the same margins, (1 + as large) / (1 + all) |
    | "Gunel–Dickey" | none; `log_bayes_factor` for dependence, and `probability` of it where
      both were as probable before |

    A p-value says how often independence would show as much, not how probable it is.

    Args:
        table: counts (R, C), 2 or more of each; a DataFrame such as pandas.crosstab's is taken.
        sampling: "joint", "rows", "columns" or "poisson": what was fixed before counting, see the
            module.
        concentration: a, pseudo-counts of every cell; one number or (R, C).
        permutations: tables that are drawn.
        seed: of these.

    Returns:
        DataFrame: a row a test, columns `statistic`, `degrees`, `p_value`, `log_bayes_factor`,
        `probability`. Rows and columns of the table without a count are left out of the tests.

    Raises:
        DataError: a table that is none. ModelError: an unknown sampling, a concentration at which
            independence has no prior.

    Cost: O(permutations · R · C).
    """
    y = _counts(table)
    hold("dependence", permutations=(permutations, integer(1, MAX_PERMUTATIONS)))
    seed = check_seed(seed, "dependence") % 2**32  # as of RandomState
    factor = log_bayes_factor(y, sampling, concentration)
    counts = y[y.sum(1) > 0][:, y.sum(0) > 0]
    rows, columns = counts.sum(1), counts.sum(0)
    expected = np.outer(rows, columns) / counts.sum()
    degrees = (counts.shape[0] - 1) * (counts.shape[1] - 1)
    pearson = float(((counts - expected) ** 2 / expected).sum())
    ratio = float(2 * xlogy(counts, counts / expected).sum())
    simulated = random_table(rows, columns).rvs(int(permutations), random_state=seed)
    null_stats = ((simulated - expected) ** 2 / expected).sum((1, 2))
    # tables of the same χ² differ by rounding
    larger = int((null_stats >= pearson * (1 - 1e-12)).sum())
    records = {
        "chi-squared": (pearson, degrees, chi2.sf(pearson, degrees) if degrees else 1.0),
        "likelihood ratio": (ratio, degrees, chi2.sf(ratio, degrees) if degrees else 1.0),
        "permutation": (pearson, np.nan, (1 + larger) / (1 + permutations)),
        "Gunel–Dickey": (np.nan, np.nan, np.nan, factor, 1 / (1 + np.exp(-factor))),
    }
    out = pd.DataFrame.from_dict({name: dict(zip(COLUMNS, row, strict=False)) for name, row
                                  in records.items()}, orient="index", columns=COLUMNS, dtype=float)
    out.index.name = "test"
    return out


def log_bayes_factor(table, sampling: str = "joint", concentration=1.0, rate: float | None = None
                     ) -> float:
    """log p(table | dependent) − log p(table | independent), nats, see the module.

    Args:
        rate: b of "poisson"; None: the prior total count is that of the table, b = Σ a / Σ y.
    """
    y = _counts(table)
    hold("dependence", sampling=(sampling, one_of(*SAMPLING)),
         concentration=(concentration, numbers(0.0)))
    a = np.asarray(concentration, float)
    if a.shape not in ((), y.shape):
        raise ModelError(f"dependence(concentration=...): expected one number, or an array of "
                         f"shape {y.shape} with one number per cell, got shape {a.shape}")
    a = np.broadcast_to(a, y.shape)
    margin_priors = a.sum(1) - (y.shape[1] - 1), a.sum(0) - (y.shape[0] - 1)
    if not (np.isfinite(a).all() and (a > 0).all() and all((xi > 0).all() for xi in margin_priors)):
        raise ModelError(f"dependence(concentration={concentration!r}): expected numbers above 0. "
                         f"Their sum over each row must be above the number of columns − 1, and "
                         f"over each column above the number of rows − 1. Numbers of at least 1 "
                         f"are always valid")
    margins = [_gain(y.sum(1 - axis), xi) for axis, xi in enumerate(margin_priors)]
    log_factor = _gain(y, a) - sum(margins)
    if sampling in ("rows", "columns"):
        axis = SAMPLING.index(sampling) - 1
        log_factor += margins[axis] - _gain(y.sum(1 - axis), a.sum(1 - axis))
    if sampling == "poisson":
        total = y.sum()
        b = a.sum() / total if rate is None else float(rate)
        fewer = a.sum() - (y.shape[0] - 1) * (y.shape[1] - 1)
        log_factor += _total(total, a.sum(), b) - _total(total, fewer, b)
    return float(log_factor)


def _gain(y, a) -> float:
    """log D(y + a) / D(a)."""
    return (gammaln(y + a).sum() - gammaln(y.sum() + a.sum())
            - gammaln(a).sum() + gammaln(a.sum()))


def _total(y: float, a: float, b: float) -> float:
    """log of the negative binomial of a total whose rate is Gamma(a, b), but for 1 / y!."""
    return gammaln(y + a) - gammaln(a) + a * np.log(b / (1 + b)) - y * np.log1p(b)


def _counts(table) -> np.ndarray:
    y = floats(table, "dependence: the counts",
               "Pass a table of counts, such as pandas.crosstab(a, b)")
    if y.ndim != 2 or min(y.shape) < 2:
        raise DataError(f"dependence: expected a table with at least 2 rows and 2 columns, got the "
                        f"shape {y.shape}. To count two columns use pandas.crosstab(a, b)")
    invalid = ~(np.isfinite(y) & (y >= 0) & (y == np.round(y)))
    if invalid.any():
        row, column = np.argwhere(invalid)[0]
        raise DataError(f"dependence: the table is {y[row, column]:g} in row {row}, column "
                        f"{column}, expected a count, an integer of at least 0. Correct this count")
    if min(y.shape) > 2 and y.any() and all(
            (each[-1] == each[:-1].sum(0)).all() for each in (y, y.T)):
        raise DataError("dependence: the last row and column of the table are the sums of the "
                        "others. Leave them out, as pandas.crosstab does with margins=False")
    if not y.sum() > 0:
        raise DataError("dependence: all counts of the table are 0, expected at least one count "
                        "above 0. Check how the table was counted")
    return y.astype(int)
