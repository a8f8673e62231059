"""Do two groups of numbers differ? The default Bayes factor of a shift (Rouder et al. 2009) beside
the tests of the textbooks.

    x_i ~ N(μ + σδ/2, σ²),  y_j ~ N(μ − σδ/2, σ²),   p(μ, σ²) ∝ 1/σ²
    no difference: δ = 0;   a difference: δ ~ Cauchy(0, r)

μ and σ, which both share, integrate out; with t the statistic of Student's test on ν degrees and
n = n_x n_y / (n_x + n_y) (of pairs, the number of pairs)

    BF = ∫ (1 + n g r²)^(−1/2) [(1 + t²/(ν (1 + n g r²))) / (1 + t²/ν)]^(−(ν + 1)/2) p(g) dg,
    g ~ InverseGamma(1/2, 1/2)

which is left as an integral of one number.

Source: Rouder, Speckman, Sun, Morey & Iverson (2009), "Bayesian t tests for accepting and rejecting
the null hypothesis", equation 1 with their section on the JZS prior.
"""


import numpy as np
from scipy import stats
from scipy.integrate import quad

from probml import DataError
from probml.errors import counted
from probml.estimators.rules import FLAG, hold, integer, number
from probml.language.given import floats
from probml.language.language import check_seed
from probml.models.hypotheses.tables import COLUMNS, MAX_PERMUTATIONS
from probml.numerics.process.libraries import pd

HELD = 2**22  # numbers of permutations that lie in memory at once
WIDTH = 2**-0.5  # r: half of all shifts lie within 0.7 standard deviations


def two_samples(x, y, *, paired: bool = False, width: float = WIDTH, permutations: int = 2000,
                seed: int = 0) -> "pd.DataFrame":
    """Test whether two groups of numbers differ.

    | test | of what |
    |---|---|
    | "Student" | a shift, one standard deviation for both; of pairs, of their differences |
    | "Welch" | a shift, standard deviations of their own; not of pairs |
    | "rank" | Mann & Whitney's U; of pairs, Wilcoxon's signed ranks |
    | "permutation" | the difference of means, against groups (of pairs, signs) by chance |
    | "Kolmogorov–Smirnov" | any difference; not of pairs |
    | "Bayes" | none; `log_bayes_factor` for a shift, and `probability` of one where both were
      as probable before |

    Args:
        x, y: numbers, (n,) and (m,); missing ones, NaN, are left out (of pairs, both).
        paired: x_i and y_i belong together.
        width: r of the Cauchy prior of the shift, in standard deviations.
        permutations: that are drawn, or all, if there are no more.
        seed: of these.

    Returns:
        DataFrame: a row a test, columns `statistic`, `degrees`, `p_value` (two-sided),
        `log_bayes_factor`, `probability`; `attrs["difference"]` of the means, `attrs["effect"]`,
        the same in standard deviations.

    Raises:
        DataError: fewer than two numbers in a group, pairs of other lengths, or no standard
            deviation.
        ModelError: a width or a number that cannot be.

    Cost: O(permutations · (n + m)).
    """
    hold("two_samples", paired=(paired, FLAG), width=(width, number(0.0, above=True)),
         permutations=(permutations, integer(1, MAX_PERMUTATIONS)))
    seed = check_seed(seed, "two_samples")
    a, b = _numbers("x", x), _numbers("y", y)
    if paired and len(a) != len(b):
        raise DataError(f"two_samples(paired=True): x has {counted(len(a), 'number')} and y has "
                        f"{len(b)}, but pairs need samples of the same length. Drop the numbers "
                        "without a partner, or use paired=False")
    if paired:
        complete = ~(np.isnan(a) | np.isnan(b))
        a, b = a[complete], b[complete]
    a, b = a[~np.isnan(a)], b[~np.isnan(b)]
    for name, group in (("x", a), ("y", b)):
        if len(group) < 2:
            raise DataError(f"two_samples: expected at least 2 observed numbers in {name}, got "
                            f"{len(group)}. Give more numbers")
    sd = ((a - b).std(ddof=1) if paired else
          np.sqrt(((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1))
                  / (len(a) + len(b) - 2)))
    largest = max(np.abs(a).max(), np.abs(b).max())
    if not sd > 8 * np.finfo(float).eps * largest:  # else it is what rounding left of none
        raise DataError("two_samples: all numbers within each sample are equal, so the standard "
                        "deviation is 0 and the effect size is undefined. Check whether these are "
                        "the right columns")
    student = stats.ttest_rel(a, b) if paired else stats.ttest_ind(a, b)
    size = len(a) if paired else len(a) * len(b) / (len(a) + len(b))
    factor = log_bayes_factor(float(student.statistic), size, float(student.df), width)
    permuted = stats.permutation_test(
        (a, b), lambda a, b, axis: a.mean(axis) - b.mean(axis), vectorized=True,
        permutation_type="samples" if paired else "independent", n_resamples=int(permutations),
        batch=max(HELD // (len(a) + len(b)), 1), rng=np.random.default_rng(seed))
    rank = stats.wilcoxon(a, b) if paired else stats.mannwhitneyu(a, b)
    records: dict[str, tuple] = {"Student": (student.statistic, student.df, student.pvalue)}
    if not paired:
        welch = stats.ttest_ind(a, b, equal_var=False)
        records["Welch"] = (welch.statistic, welch.df, welch.pvalue)
    records["rank"] = (rank.statistic, np.nan, rank.pvalue)
    records["permutation"] = (permuted.statistic, np.nan, permuted.pvalue)
    if not paired:
        smirnov = stats.ks_2samp(a, b)
        records["Kolmogorov–Smirnov"] = (smirnov.statistic, np.nan, smirnov.pvalue)
    records["Bayes"] = (np.nan, np.nan, np.nan, factor, 1 / (1 + np.exp(-factor)))
    out = pd.DataFrame.from_dict({name: dict(zip(COLUMNS, row, strict=False)) for name, row
                                  in records.items()}, orient="index", columns=COLUMNS, dtype=float)
    out.index.name = "test"
    shift = float(a.mean() - b.mean())
    out.attrs |= {"difference": shift, "effect": shift / float(sd)}
    return out


def log_bayes_factor(t: float, size: float, degrees: float, width: float = WIDTH) -> float:
    """log BF of a shift from Student's t, see the module.

    Args:
        size: n_x n_y / (n_x + n_y), or the number of pairs.
    """
    at_zero = -0.5 * (degrees + 1) * np.log1p(t**2 / degrees)

    def log_term(u: float) -> float:
        """The log of the integrand at log g = u, the density of u included."""
        g = np.exp(u)
        scale = 1 + size * g * width**2
        return (-0.5 * np.log(scale) - 0.5 * (degrees + 1) * np.log1p(t**2 / (degrees * scale))
                - 0.5 * np.log(2 * np.pi) - 0.5 * u - 0.5 / g - at_zero)

    grid = np.linspace(-12, 60, 2001)
    peak = max(map(log_term, grid))
    mode = float(grid[int(np.argmax([log_term(u) for u in grid]))])
    area = sum(quad(lambda u: np.exp(log_term(u) - peak), *bounds, epsabs=0, epsrel=1e-10,
                    limit=200)[0] for bounds in ((-12.0, mode), (mode, mode + 80.0)))
    return float(peak + np.log(area))


def _numbers(name: str, values) -> np.ndarray:
    data = floats(values, f"two_samples: {name}", "Pass one column of numbers")
    if data.ndim != 1 or np.isinf(data).any():
        raise DataError(f"two_samples: {name} must be a one-dimensional array of finite numbers, "
                        "got "
                        f"{'an infinite number' if data.ndim == 1 else f'the shape {data.shape}'}. "
                        "Pass one column, without infinite numbers")
    return data
