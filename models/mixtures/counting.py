"""How many groups are there? What mixtures, distances and densities say, in one table.

| column | of what | best |
|---|---|---|
| `bic` | −2 log p(X) + parameters · log n of a Gaussian mixture (Schwarz 1978) | least |
| `icl` | BIC and twice the doubt of the assignments (Biernacki, Celeux & Govaert 2000) | least |
| `aic` | −2 log p(X) + 2 · parameters (Akaike 1974) | least |
| `mdl` | description length of X, nats: −log p(X) + ½ log n a parameter that all components share
  (the weights' among them), ½ log(n w_j) one of component j, of as many rows as tell it (Rissanen
  1978; Figueiredo, Leitão & Jain 1999) | least |
| `bound` | a lower bound of log p(X), parameters integrated out, by variational Bayes, and log k!
  for the orders of the components (Attias 1999; Bishop 2006, section 10.2.4); NaN where a prior is
  not conjugate | most |
| `within` | Σ of squared distances to the means of k-means | – |
| `gap`, `gap_error` | E* log within − log within, E* over rows that are uniform in the box of the
  principal axes, and its simulation error s_k (Tibshirani, Walther & Hastie 2001) | the first
  maximum over k, or the first k that lies within its error of it (the rule of R's clusGap; that
  of the paper, gap(k) ≥ gap(k + 1) − s_{k+1}, stops too early where groups lie far apart) |
| `silhouette_…` | mean of (b − a) / max(a, b), a the mean distance to the rows of one's own group,
  b to those of the next (Rousseeuw 1987); of `kmeans` and of `ward`, agglomerated | most |

Those that find a number by themselves stand in `attrs["chosen"]` beside these choices: "sparse", a
mixture of the largest size under a sparse prior by VB, whose components empty themselves;
"hdbscan", connected places of high density (Campello, Moulavi & Sander 2013); "mean shift", the
modes of a kernel density (Comaniciu & Meer 2002).
"""

import warnings
from collections.abc import Sequence

import numpy as np

from probml import VB, DataError, Refusal
from probml.errors import counted
from probml.estimators.rules import FLAG, hold, integer
from probml.estimators.rules import sizes as several_sizes
from probml.language.given import floats
from probml.language.language import check_seed
from probml.models.frames.covariances import canonical
from probml.models.mixtures.gaussian_estimator import GaussianMixture
from probml.numerics.process.libraries import pd
from probml.typing import DataLike

CRITERIA = ("bic", "icl", "aic", "mdl")
USED = 1.0  # rows that a component of a sparse mixture must have, to be one


def how_many(X: DataLike, sizes: Sequence[int] = range(1, 9), *, covariance_type: str = "full",
             references: int = 20, scale: bool = True, seed: int = 0) -> "pd.DataFrame":
    """The number of clusters in rows X (n, d) by several criteria, in one table.

    They answer different questions: `bic` looks for the number of normal components that the
    density needs, `icl` and the silhouettes for groups that lie apart, `gap` for groups tighter
    than chance; where they agree, the number is safe.

    Args:
        X: numbers, none missing (`GaussianMixture(range(1, 9)).fit(X)` takes missing cells).
        sizes: numbers of groups, such as range(1, 9).
        covariance_type: of the mixtures, see GaussianMixture.
        references: uniform data sets of the gap statistic.
        scale: measure distances in standard deviations of the columns; mixtures need no units.
        seed: of the starts and the references.

    Returns:
        DataFrame: a row a number of groups. `attrs["chosen"]` is criterion → its number.

    Raises:
        DataError: cells that are no finite numbers, more groups than rows. ModelError: sizes or
            references that are none.

    Cost: the mixtures are two programs, EM's and VB's; k-means of every size for every reference;
        silhouettes are O(n² d) a size, of 5,000 rows at the most.
    """
    from sklearn.cluster import AgglomerativeClustering

    hold("how_many", sizes=(sizes, several_sizes(1)), references=(references, integer(2, 10_000)),
         scale=(scale, FLAG))
    ks = sorted(set(map(int, np.atleast_1d(sizes))))
    X = _rows(X, ks[-1])
    seed = check_seed(seed, "how_many") % 2**32  # as scikit-learn's
    mixture = GaussianMixture(ks, covariance_type=covariance_type, random_state=seed).fit(X)
    table = mixture.table_.set_index("n_components")
    table["mdl"] = [_description(table.loc[k], mixture.fits_[k].params["weights"], len(X),
                                 X.shape[1], covariance_type) for k in ks]
    table = table[[*CRITERIA]]
    table.index.name = "groups"
    table["bound"] = _bounds(X, ks, covariance_type, seed)
    sd = X.std(0)
    z = (X - X.mean(0)) / np.where(sd > 0, sd, 1.0) if scale else X - X.mean(0)
    labels = {k: _kmeans(z, k, seed) for k in ks}
    table["within"] = [labels[k].inertia_ for k in ks]
    table["gap"], table["gap_error"] = _gaps(z, ks, table["within"].to_numpy(), int(references),
                                             seed)
    rows = _subsample(len(z), seed)
    for name, fit in (("kmeans", lambda k: labels[k].labels_[rows]),
                      ("ward", lambda k: AgglomerativeClustering(k).fit_predict(z[rows]))):
        table[f"silhouette_{name}"] = [_silhouette(z[rows], fit(k)) if 1 < k < len(rows) else np.nan
                                       for k in ks]
    chosen = {name: int(table[name].idxmin()) for name in CRITERIA}
    if table["bound"].notna().any():
        chosen["bound"] = int(table["bound"].idxmax())
    chosen["gap"] = _first_gap(ks, table["gap"].to_numpy(), table["gap_error"].to_numpy())
    for name in ("silhouette_kmeans", "silhouette_ward"):
        if table[name].notna().any():
            chosen[name] = int(table[name].idxmax())
    chosen |= _sizes_found_by_others(X, z[rows], ks[-1], covariance_type, seed)
    table.attrs |= {"chosen": chosen, "rows": len(X)}
    return table


def _description(fit: "pd.Series", weights: np.ndarray, n: int, d: int, covariance: str) -> float:
    """`mdl` of a mixture of normals."""
    n_cov = {"full": d * (d + 1) / 2, "diagonal": d, "spherical": 1}.get(canonical(covariance), 0)
    n_shared = fit["parameters"] - len(weights) * (d + n_cov)
    rows = np.maximum(n * weights, 1.0)  # of less than a row nothing is told
    return float(-fit["loglik"] + 0.5 * n_shared * np.log(n)
                 + 0.5 * (d + n_cov) * np.log(rows).sum())


def _bounds(X, sizes: list[int], covariance: str, seed: int) -> list[float]:
    """`bound` of every size."""
    estimator = GaussianMixture(sizes, covariance_type=covariance, random_state=seed, engine=VB(),
                                criterion="bound")
    try:
        with warnings.catch_warnings():  # the sizes of the other criteria end where these do
            warnings.filterwarnings("ignore", ".*the largest value tried", UserWarning)
            return estimator.fit(X).table_["bound"].tolist()
    except Refusal:
        return [np.nan] * len(sizes)


def _sizes_found_by_others(X, z, k_max: int, covariance_type: str, seed: int) -> dict[str, int]:
    """The numbers of clusters that methods find which need none."""
    from sklearn.cluster import HDBSCAN, MeanShift, estimate_bandwidth

    sizes = {}
    if k_max > 1:
        sparse = GaussianMixture(k_max, covariance_type=covariance_type, weights="sparse",
                                 random_state=seed).fit(X)
        sizes["sparse"] = int((sparse.weights_ * len(X) > USED).sum())
    min_size = max(5, len(z) // 20)
    if len(z) > min_size:
        labels = HDBSCAN(min_cluster_size=min_size, copy=True).fit_predict(z)
        sizes["hdbscan"] = max(int(labels.max()) + 1, 1)  # none apart: all are one
    bandwidth = estimate_bandwidth(z, random_state=seed)
    if bandwidth > 0:
        sizes["mean shift"] = len(MeanShift(bandwidth=bandwidth, bin_seeding=True).fit(z)
                                  .cluster_centers_)
    return sizes


def _kmeans(z, k: int, seed: int):
    from sklearn.cluster import KMeans

    return KMeans(k, n_init=5, random_state=seed).fit(z)


def _gaps(z, sizes: list[int], within, references: int, seed: int) -> tuple:
    """The gap statistic and its error, of every size."""
    random = np.random.default_rng(seed)
    axes = np.linalg.svd(z, full_matrices=False)[2]
    scores = z @ axes.T
    low, high = scores.min(0), scores.max(0)
    log_within = np.empty((references, len(sizes)))
    for i in range(references):
        uniform = random.uniform(low, high, scores.shape)
        log_within[i] = [np.log(max(_kmeans(uniform, k, seed).inertia_, 1e-300)) for k in sizes]
    error = log_within.std(0) * np.sqrt(1 + 1 / references)
    return log_within.mean(0) - np.log(np.maximum(within, 1e-300)), error


def _first_gap(sizes: list[int], gap, error) -> int:
    """The first maximum, or the first size within its error of it."""
    peak = next((i for i in range(len(sizes) - 1) if gap[i] >= gap[i + 1]), len(sizes) - 1)
    return next(size for size, value in zip(sizes, gap, strict=True)
                if value >= gap[peak] - error[peak])


def _silhouette(z, labels) -> float:
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(z, labels)) if len(np.unique(labels)) > 1 else np.nan


def _subsample(n: int, seed: int, n_max: int = 5000) -> np.ndarray:
    """Rows whose distances are all measured."""
    if n <= n_max:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, n_max, replace=False))


def _rows(X, k_max: int) -> np.ndarray:
    rows = floats(X, "how_many: X", "Convert or drop columns of text")
    if rows.ndim != 2 or not rows.size:
        raise DataError(f"how_many: X has the shape {rows.shape}, expected rows and columns, (n, "
                        "d). Reshape one column by X[:, None]")
    invalid = ~np.isfinite(rows)
    if invalid.any():
        row, column = np.argwhere(invalid)[0]
        raise DataError(f"how_many: X is {rows[row, column]} in row {row}, column {column}, but "
                        f"distances need a finite number in every column. Fill in the value, or "
                        f"use GaussianMixture(range(1, 9)), which supports missing values")
    if len(rows) < k_max:
        raise DataError(f"how_many: X has only {counted(len(rows), 'row')}, which cannot form "
                        f"{counted(k_max, 'cluster')}. Use sizes= of at most {len(rows)}")
    return rows
