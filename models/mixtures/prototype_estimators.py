"""scikit-learn estimators of k-medoids and of fuzzy c-means.

Groups around prototypes: k-medoids and fuzzy c-means, beside the mixtures that they stand near.

k-medoids chooses k of the rows so that the distances to the nearest of them are least in sum: hard
EM of p(x | z) ∝ exp(−distance(x, row z) / b), with medoids for the centres. From d₁ and d₂, the
distances to the nearest and the second medoid, the change of the sum by taking row x for medoid i
is, for all x and i in one product of matrices,

    Σ_o min(d(o, x) − d₁(o), 0) + Σ_{o of i} [clip(d(o, x), d₁(o), d₂(o)) − d₁(o)]

and the best exchange is made until none helps (PAM's; no pair exchanged lowers the sum then).

Fuzzy c-means has memberships u for probabilities, with no noise behind them:

    least Σ_nk u_nk^m |x_n − c_k|²,  u_nk = 1 / Σ_j (|x_n − c_k| / |x_n − c_j|)^(2/(m − 1)),
    c_k = Σ_n u_nk^m x_n / Σ_n u_nk^m,  over seen cells, |·|² scaled up by the share of them

m near 1 is k-means; a spherical mixture's probabilities fall with exp(−distance²) instead.

Sources: Kaufman & Rousseeuw (1990), "Finding Groups in Data", chapter 2; Schubert & Rousseeuw
(2021), "Fast and eager k-medoids clustering", for the exchange; Bezdek (1981), "Pattern Recognition
with Fuzzy Objective Function Algorithms"; Hathaway & Bezdek (2001), "Fuzzy c-means clustering of
incomplete data", the partial distances.
"""

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np

from probml import DataError
from probml.errors import counted
from probml.estimators.estimator import Estimator, absent
from probml.estimators.rules import SEED, STARTS, Seed, check, integer, number, one_of, parameter
from probml.estimators.validation import ConvergenceWarning, check_is_fitted

METRICS = ("euclidean", "sqeuclidean", "manhattan", "cosine", "precomputed")


class Prototypes(Estimator):
    """What both share: rows and weights in, labels out."""

    def _begin(self, X, sample_weight) -> tuple[np.ndarray, np.ndarray]:
        check(self)
        X = self._numbers(X, reset=True).astype(float)
        weights, kept_rows = self._weigh(X, sample_weight)
        all_weights = np.ones(len(X)) if sample_weight is None else np.zeros(len(X))
        if weights is not None:
            all_weights[slice(None) if kept_rows is None else kept_rows] = weights
        name, n = type(self).__name__, int((all_weights > 0).sum())
        if n < self.n_clusters:
            raise DataError(f"{name}(n_clusters={self.n_clusters}): X has only "
                            f"{counted(n, 'row')} with a weight above 0 (n_samples = {len(X)}), "
                            f"fewer than clusters. Use at most {counted(n, 'cluster')}")
        if (empty := np.isnan(X).all(1)).any():
            raise DataError(f"{name}: row {int(np.argmax(empty))} of X has no observed value. Drop "
                            f"this row")
        return X, all_weights

    def fit_predict(self, X, y=None, sample_weight=None):
        """The groups of the rows that were fitted."""
        return self.fit(X, sample_weight=sample_weight).labels_


@dataclass(eq=False, repr=False)
class KMedoids(Prototypes):
    """k-medoids: k rows nearest to all others, in any distance; R's pam.
    Bring the columns in like units first.

    Args:
        n_clusters: groups, k.
        metric: "euclidean" (of rows with missing cells over those that both have, scaled up; rows
            that have none in common are as far apart as others on average),
            "sqeuclidean", "manhattan", "cosine", or "precomputed": X is a matrix of distances.
        n_init: first medoids, drawn far apart as k-means++ draws them; the best end is used.
        random_state: seed of these; None is 0.

    Attributes:
        medoid_indices_ (k,), rows of X, the largest group's first; cluster_centers_ (k, d), those
        rows (None of "precomputed"); labels_ (n,); inertia_, the sum of the distances; n_iter_,
        exchanges made; n_features_in_.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris[["Petal.Length", "Petal.Width"]], iris["Species"]
        >>> from probml.models import KMedoids
        >>> groups = KMedoids(n_clusters=3, random_state=0).fit(X)
        >>> print(groups.cluster_centers_)
        [[4.4 1.4]
         [1.4 0.2]
         [5.6 2.1]]
        >>> print(groups.predict(X[:3]))
        [1 1 1]
    """

    n_clusters: int = parameter(8, integer(1))
    _: KW_ONLY
    metric: str = parameter("euclidean", one_of(*METRICS))
    n_init: int = parameter(5, STARTS)
    random_state: Seed = parameter(None, SEED)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == "precomputed"
        return tags

    def fit(self, X, y=None, sample_weight=None):
        """Choose medoids among rows X (n, d), or of a matrix of distances; y is ignored.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name; more groups than rows.

        Cost: O(n²) memory, O(n² k) an exchange.
        """
        X, weights = self._begin(X, sample_weight)
        self._middle = np.nanmean(X, 0)
        distances = self._distances(X, X)
        random = np.random.default_rng(self._seed())
        best = min((medoids(distances, weights, self._first(distances, weights, random))
                    for _ in range(self.n_init)), key=lambda best: best.loss)
        order = np.argsort(-np.bincount(best.labels, weights, self.n_clusters), kind="stable")
        self.medoid_indices_, self.labels_ = best.chosen[order], np.argsort(order)[best.labels]
        self.cluster_centers_ = None if self.metric == "precomputed" else X[self.medoid_indices_]
        self.inertia_, self.n_iter_ = best.loss, max(best.exchanges, 1)
        return self

    def _first(self, distances, weights, random: np.random.Generator) -> np.ndarray:
        """Rows far from one another, drawn one by one by their distance to those before."""
        chosen = [int(random.choice(len(weights), p=weights / weights.sum()))]
        while len(chosen) < self.n_clusters:
            probs = weights * distances[:, chosen].min(1)
            probs[chosen] = 0.0
            if not probs.sum() > 0:  # all others lie on one of them
                probs = np.where(np.isin(np.arange(len(weights)), chosen), 0.0, weights)
            chosen.append(int(random.choice(len(weights), p=probs / probs.sum())))
        return np.array(chosen)

    def _distances(self, X, Y) -> np.ndarray:
        from sklearn.metrics.pairwise import nan_euclidean_distances, pairwise_distances

        if self.metric == "precomputed":
            if X.shape[0] != X.shape[1] and Y is X or np.isnan(X).any() or (X < 0).any():
                raise DataError("KMedoids(metric='precomputed'): expected an array (n, n) of the "
                                f"distances of n rows, got shape {X.shape} with "
                                f"{np.isnan(X).sum()} missing and "
                                f"{counted((X < 0).sum(), 'negative value')}. "
                                "Pass distances of at least 0, such as "
                                "scipy.spatial.distance.squareform(pdist(X))")
            return X
        if self.metric != "cosine":  # far from 0 the distances would lose their digits
            X, Y = X - self._middle, None if Y is X else Y - self._middle
        if not np.isnan(X).any() and (Y is None or not np.isnan(Y).any()):
            return pairwise_distances(X, Y, metric=self.metric)
        if self.metric not in ("euclidean", "sqeuclidean"):
            raise DataError(f"KMedoids(metric={self.metric!r}): X contains missing values (NaN), "
                            f"which only 'euclidean' and 'sqeuclidean' support. Fill in the "
                            f"values, or use one of these metrics")
        distances = nan_euclidean_distances(X, Y, squared=self.metric == "sqeuclidean")
        return np.where(np.isnan(distances), np.nanmean(distances), distances)

    predict_proba = absent("predict_proba", "use FuzzyCMeans for memberships, or GaussianMixture "
                                            "for probabilities")

    def predict(self, X):
        """The nearest medoid of every row; of "precomputed", X has the distances (m, n) to the rows
        that were fitted."""
        check_is_fitted(self, "medoid_indices_")
        X = self._numbers(X, reset=False).astype(float)
        if self.metric == "precomputed":
            return self._distances(X, None)[:, self.medoid_indices_].argmin(1)
        return self._distances(X, self.cluster_centers_).argmin(1)


@dataclass(eq=False, repr=False)
class FuzzyCMeans(Prototypes):
    """Fuzzy c-means: memberships that fall with a power of the distance, not as a noise would have
    them; a mixture's probabilities are GaussianMixture's. Bring the columns in like units
    first.

    Args:
        n_clusters: groups, k.
        fuzziness: m, above 1; near 1 it is k-means.
        n_init: random starts; the least objective is used.
        tol: stop when a round gains less than this times the first objective.
        max_iter: rounds at the most; one that stops there warns and leaves converged_ False.
        random_state: seed of the starts; None is 0.

    Attributes:
        cluster_centers_ (k, d), the largest group first; memberships_ (n, k); labels_ (n,);
        objective_; history_, converged_, n_iter_, n_features_in_.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris[["Petal.Length", "Petal.Width"]], iris["Species"]
        >>> from probml.models import FuzzyCMeans
        >>> groups = FuzzyCMeans(n_clusters=3, random_state=0).fit(X)
        >>> print(groups.cluster_centers_.round(1))
        [[4.3 1.4]
         [1.5 0.2]
         [5.7 2.1]]
        >>> print(groups.memberships_[:1].round(1))
        [[0. 1. 0.]]
    """

    n_clusters: int = parameter(8, integer(1))
    _: KW_ONLY
    fuzziness: float = parameter(2.0, number(1.0, above=True))
    n_init: int = parameter(5, STARTS)
    tol: float = parameter(1e-9, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    random_state: Seed = parameter(None, SEED)

    def fit(self, X, y=None, sample_weight=None):
        """Learn from rows X (n, d), NaN where missing; y is ignored.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name; more groups than rows.
        """
        X, weights = self._begin(X, sample_weight)
        random = np.random.default_rng(self._seed())
        means = np.nanmean(X[weights > 0], 0)
        candidates = np.flatnonzero(weights > 0)
        starts = [np.where(np.isnan(rows), means, rows) for rows in
                  (X[random.choice(candidates, self.n_clusters, replace=False)]
                   for _ in range(self.n_init))]
        best = min((fuzzy(X, weights, start, float(self.fuzziness), self.tol, self.max_iter)
                    for start in starts), key=lambda best: best.history[-1])
        order = np.argsort(-(weights @ best.memberships), kind="stable")
        self.cluster_centers_ = best.centres[order]
        self.memberships_ = best.memberships[:, order]
        self.labels_ = self.memberships_.argmax(1)
        self.objective_, self.history_ = best.history[-1], np.array(best.history)
        self.converged_, self.n_iter_ = best.converged, len(best.history)
        if not best.converged:
            warnings.warn(f"FuzzyCMeans stopped at max_iter={self.max_iter}, before the "
                          f"objective converged. Raise max_iter, or "
                          f"tol", ConvergenceWarning, stacklevel=2)
        return self

    def predict_proba(self, X):
        """Memberships of rows, (m, k), which sum to 1 but are not probabilities."""
        check_is_fitted(self, "cluster_centers_")
        X = self._numbers(X, reset=False).astype(float)
        return memberships(squares(X, self.cluster_centers_), float(self.fuzziness))

    def predict(self, X):
        """The group of the largest membership of every row."""
        return self.predict_proba(X).argmax(1)


TINY = 1e-300


class Medoids(NamedTuple):
    """Rows that are medoids, whose each row is, and the sum of the distances."""

    chosen: np.ndarray  # (k,)
    labels: np.ndarray  # (n,)
    loss: float
    exchanges: int


def medoids(distances: np.ndarray, weights: np.ndarray, chosen: np.ndarray) -> Medoids:
    """The best exchange of a medoid for a row, until none lowers the sum.

    Args:
        distances: (n, n).
        weights: (n,); a row of weight 0 is no medoid.
        chosen: (k,) rows, the first medoids, distinct.

    Cost: O(n² k) an exchange.
    """
    chosen, rows, k = chosen.copy(), np.arange(len(distances)), len(chosen)
    exchanges = 0
    while True:
        to_medoids = distances[:, chosen]
        labels = to_medoids.argmin(1)
        dist1 = to_medoids[rows, labels]
        to_medoids[rows, labels] = np.inf
        dist2 = to_medoids.min(1) if k > 1 else np.full(len(rows), np.inf)
        loss = float(weights @ dist1)
        gain = weights @ np.minimum(distances - dist1[:, None], 0.0)  # (n,) of each row x
        own = np.zeros((k, len(rows)))
        own[labels, rows] = weights
        change = gain + own @ (np.clip(distances, dist1[:, None], dist2[:, None]) - dist1[:, None])
        change[:, chosen] = change[:, weights == 0] = np.inf
        i, x = np.unravel_index(np.argmin(change), change.shape)
        if not change[i, x] < -1e-12 * loss:
            return Medoids(chosen, labels, loss, exchanges)
        chosen[i] = x
        exchanges += 1


class Fuzzy(NamedTuple):
    """Centres, memberships, and the objective of every round, which never rises."""

    centres: np.ndarray  # (k, d)
    memberships: np.ndarray  # (n, k)
    history: list[float]
    converged: bool


def squares(X: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Squared distances over the seen cells of a row, scaled up to all of them, (n, k)."""
    observed = ~np.isnan(X)
    residual = np.where(observed[:, None], X[:, None] - centres, 0.0)
    return (residual**2).sum(2) * (X.shape[1] / np.maximum(observed.sum(1), 1))[:, None]


def memberships(distances: np.ndarray, m: float) -> np.ndarray:
    """(n, k) from squared distances; a row on a centre is that one's alone."""
    log_weights = -np.log(np.maximum(distances, TINY)) / (m - 1)
    weights = np.exp(log_weights - log_weights.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def fuzzy(X: np.ndarray, weights: np.ndarray, centres: np.ndarray, m: float, tolerance: float,
          iterations: int) -> Fuzzy:
    """Memberships and centres in turn, until a round gains less than the tolerance times the first
    objective.

    Args:
        X: (n, d), NaN where unseen. weights: (n,). centres: (k, d), the first.

    Cost: O(n d k) a round.
    """
    observed = ~np.isnan(X)
    filled, share = np.where(observed, X, 0.0), X.shape[1] / np.maximum(observed.sum(1), 1)
    history: list[float] = []
    for _ in range(iterations):
        distances = squares(X, centres)
        u = memberships(distances, m)
        history.append(float((weights[:, None] * u**m * distances).sum()))
        if len(history) > 1 and history[-2] - history[-1] <= tolerance * history[0]:
            return Fuzzy(centres, u, history, True)
        # a row counts by its share: the centres are then the minimum of the same objective
        powers = (weights * share)[:, None] * u**m
        total = powers.T @ observed
        centres = np.where(total > 0, powers.T @ filled / np.maximum(total, TINY), centres)
    return Fuzzy(centres, memberships(squares(X, centres), m), history, False)
