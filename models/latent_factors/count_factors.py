"""Counts as sums of few Poisson parts: Poisson–Gamma factorisation by mean-field variational Bayes.

    x_nj ~ Poisson(Σ_k θ_nk β_kj),   θ_nk ~ Gamma(a, b),   β_kj ~ Gamma(c, d)

A count is the sum of its parts, of which part k is Poisson(θ_nk β_kj); given the count the parts
are multinomial, so that every block is conjugate:

    φ_njk ∝ exp(E log θ_nk + E log β_kj)
    θ_nk ~ Gamma(a + Σ_j x_nj φ_njk, b + Σ_j E β_kj)
    β_kj ~ Gamma(c + Σ_n x_nj φ_njk, d + Σ_n E θ_nk)
    bound = Σ [x log Σ_k exp(E log θ + E log β) − Σ_k E θ E β − log x!] − KL(θ) − KL(β)

with sums over the cells that are seen. Without priors, and counts so large that E log θ = log E θ,
it is non-negative matrix factorisation under the Kullback–Leibler divergence (Lee & Seung 1999).
It is written by hand: a language of rows has no counts that are divided among unseen parts.

Sources: Cemgil (2009), "Bayesian inference for nonnegative matrix factorisation models"; Gopalan,
Hofman & Blei (2015), "Scalable recommendation with hierarchical Poisson factorization".
"""

from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln

TINY = 1e-300
CALM = 1e-2  # of the root of a tolerance of bounds, that amounts move by at an end


class Gammas(NamedTuple):
    """Independent gamma distributions."""

    shape: np.ndarray
    rate: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return self.shape / self.rate

    @property
    def geometric(self) -> np.ndarray:
        """exp(E log), the mean of what multiplies."""
        return np.exp(digamma(self.shape)) / self.rate

    def gap(self, shape: float, rate: float) -> float:
        """KL from a prior Gamma(shape, rate), summed."""
        a, b = self.shape, self.rate
        return float(((a - shape) * digamma(a) - gammaln(a) + gammaln(shape)
                      + shape * (np.log(b) - np.log(rate)) + a * (rate - b) / b).sum())


class Factors(NamedTuple):
    """What is known of both factors, and the bounds on the way."""

    rows: Gammas  # (n, k)
    columns: Gammas  # (k, d)
    history: list[float]
    converged: bool


def factorise(X: np.ndarray, k: int, prior: tuple[float, float, float, float], tolerance: float,
              iterations: int, random: np.random.Generator,
              columns: Gammas | None = None) -> Factors:
    """Coordinate ascent from a random start, until an iteration gains less than the tolerance a
    cell.

    Args:
        X: counts (n, d), NaN where unseen.
        prior: (a, b, c, d).
        columns: known already; they stay.

    Cost: O(cells · k) an iteration.
    """
    a, b, c, d = prior
    observed = ~np.isnan(X)
    counts, mask = np.where(observed, X, 0.0), observed.astype(float)
    if columns is not None:
        return Factors(_fit_rows(counts, mask, k, a, b, tolerance, iterations, columns), columns,
                       [],
                       True)
    constant = gammaln(counts + 1).sum()
    level = np.sqrt(max(counts.sum() / max(mask.sum(), 1.0), TINY) / k)
    columns = Gammas(random.gamma(20.0, size=(k, X.shape[1])), np.full((1, 1), 20.0 / level))
    rows = Gammas(random.gamma(20.0, size=(len(X), k)), np.full((1, 1), 20.0 / level))
    history: list[float] = []
    for _ in range(iterations):
        ratio = counts / np.maximum(rows.geometric @ columns.geometric, TINY)
        rows = Gammas(a + rows.geometric * (ratio @ columns.geometric.T), b + mask @ columns.mean.T)
        ratio = counts / np.maximum(rows.geometric @ columns.geometric, TINY)
        columns = Gammas(c + columns.geometric * (rows.geometric.T @ ratio),
                         d + rows.mean.T @ mask)
        product = rows.geometric @ columns.geometric
        history.append(float(
            (counts * np.log(np.maximum(product, TINY))).sum() - (mask * (rows.mean @ columns.mean)
                                                                  ).sum()
            - constant - rows.gap(a, b) - columns.gap(c, d)))
        if len(history) > 1 and history[-1] - history[-2] <= tolerance * mask.sum():
            return Factors(rows, columns, history, True)
    return Factors(rows, columns, history, False)


def _fit_rows(counts: np.ndarray, mask: np.ndarray, k: int, a: float, b: float, tolerance: float,
              iterations: int, columns: Gammas) -> Gammas:
    """The rows' amounts of known factors: each row is done when its own amounts change by less than
    the root of the tolerance, relative to them, so that they do not depend on the other rows."""
    shape, rate = np.ones((len(counts), k)), b + mask @ columns.mean.T
    rows, init = np.arange(len(counts)), Gammas(np.ones((len(counts), k)), np.ones((1, 1)))
    geometric = init.geometric
    for _ in range(iterations):
        if not len(rows):
            break
        ratio = counts[rows] / np.maximum(geometric @ columns.geometric, TINY)
        updated = Gammas(a + geometric * (ratio @ columns.geometric.T), rate[rows])
        changed = np.abs(updated.shape - shape[rows]).max(1) > CALM * np.sqrt(tolerance) * (
            updated.shape.max(1))
        shape[rows] = updated.shape
        rows, geometric = rows[changed], updated.geometric[changed]
    return Gammas(shape, rate)
