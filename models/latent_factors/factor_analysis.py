"""Factor analysis and probabilistic principal components: x = μ + W z + noise, z ~ N(0, I) a row.

    x | z ~ N(μ + W z, diag(ψ))       factor analysis: a noise variance for every column
    x | z ~ N(μ + W z, σ² I)          probabilistic PCA: one for all

z is an unseen number of the row that enters locations affinely, so that it is integrated out
exactly: complete rows enter by their second moments alone, and unseen cells drop out. W is
determined up to a rotation, W Wᵀ is not touched by it. The likelihood of PCA has its maximum where
W spans the first eigenvectors of the covariance and σ² is the mean of the other eigenvalues; that
of factor analysis has none in closed form.

Sources: Tipping & Bishop (1999), "Probabilistic principal component analysis", equations 7 and 8;
Rubin & Thayer (1982), "EM algorithms for ML factor analysis"; Jöreskog (1967), "Some contributions
to maximum likelihood factor analysis", for the loadings given ψ.
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import sample
from scipy.linalg import eigh

import probml
from probml.models.summaries.factors import factor_tables

MIN_NOISE_SHARE = 1e-4  # share of a column's variance that its noise starts with at the least


@probml.model
def factor_analysis(k: int, d: int, centre=0.0, mean_scale=1000.0, loading_scale=10.0, scale=0.1):
    """k factors of d columns, each column with a noise of its own. Sites: `loadings` (d, k),
    `precision` (d,), 1/ψ, `mean` (d,); in every row `z` (k,), latent, and `x` (d,).

    Args:
        k: factors.
        d: columns.
        centre, mean_scale: normal prior of the mean, in the data's units; one number or (d,).
        loading_scale: prior standard deviation of a loading, in the data's units.
        scale: s of 1/ψ ~ Gamma(3/2, s²/2): worth a row or two with a residual of s, in the data's
            units; one number or (d,). The density vanishes at ψ = 0, so that no noise can (a
            Heywood case).
    """
    precision = sample("precision", dist.Gamma(1.5, jnp.full(d, scale) ** 2 / 2).to_event(1))
    _rows(k, d, precision, centre, mean_scale, loading_scale)


factor_analysis.summarized(factor_tables)
factor_analysis.identifies(lambda parameters: _without_rotation(**parameters))


@probml.model
def probabilistic_pca(k: int, d: int, centre=0.0, mean_scale=1000.0, loading_scale=10.0, scale=0.1):
    """k principal components of d columns, one noise for all. Sites and settings as in
    factor_analysis; `precision` (), 1/σ²."""
    precision = sample("precision", dist.Gamma(1.5, scale**2 / 2))
    _rows(k, d, precision, centre, mean_scale, loading_scale)


probabilistic_pca.summarized(factor_tables)
probabilistic_pca.identifies(lambda parameters: _without_rotation(**parameters))


def _without_rotation(loadings, **others):
    """What a rotation of the factors leaves as it is."""
    return {**others, "common": loadings @ loadings.T}


def _rows(k, d, precision, centre, mean_scale, loading_scale):
    loadings = sample("loadings", dist.Normal(0.0, loading_scale).expand([d, k]).to_event(2))
    mean = sample("mean", dist.Normal(jnp.full(d, centre), mean_scale).to_event(1))
    with probml.rows():
        z = sample("z", dist.Normal(0.0, 1.0).expand([k]).to_event(1))
        sample("x", dist.Normal(mean + z @ loadings.T, precision**-0.5).to_event(1))


def covariance_root(X: np.ndarray, weights=None) -> np.ndarray:
    """R (m, d) with RᵀR the covariance of the columns about their means, m at most d: of fewer rows
    than columns the rows themselves, so that no matrix of d × d is made.

    With missing cells it is where EM starts. Of fewer rows than columns they are at their column's
    mean, and a column has the variance of its observed cells. Else the covariance of every pair of
    columns is over the rows that have both, and eigenvalues below a thousandth of the largest are
    raised to that, which makes it positive definite: a noise too near 0 is a start at the foot of
    another maximum.

    Cost: O(n d); of at least as many rows as columns, two matrix products and an
    eigendecomposition of d × d.
    """
    observed = ~np.isnan(X)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, float)
    total = np.maximum(w @ observed, 1e-300)
    centred = np.where(observed, X - np.where(observed, X, 0.0).T @ w / total, 0.0)
    if len(X) < X.shape[1]:
        return centred * np.sqrt(w[:, None] / total)
    scatter = (w[:, None] * centred).T @ centred
    pairs = w.sum() if observed.all() else np.maximum((w[:, None] * observed).T @ observed, 1e-300)
    values, vectors = np.linalg.eigh(scatter / pairs)
    floor = 0.0 if observed.all() else 1e-3 * values[-1]
    return np.sqrt(np.maximum(values, floor))[:, None] * vectors.T


def spectrum(root: np.ndarray, k: int, leading: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues (m,) of RᵀR, the largest first, and its eigenvectors (d, m); 0 where they are
    rounding, and up to k of them where there are fewer.

    Args:
        root: R, (m, d). leading: only the k largest, (k,) and (d, k).

    Cost: two products and an eigendecomposition of min(m, d) rows; of the k largest one product and
        a tenth of an eigendecomposition.
    """
    m, d = root.shape
    gram = root @ root.T if m < d else root.T @ root
    lowest = max(len(gram) - k, 0) if leading else 0
    values, vectors = (eigh(gram, subset_by_index=(lowest, len(gram) - 1)) if lowest else
                       np.linalg.eigh(gram))
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    if m < d:
        values = np.where(values > 8 * m * np.finfo(float).eps * values[0], values, 0.0)
        vectors = root.T @ (vectors / np.sqrt(np.where(values > 0, values, np.inf)))
    n_pad = max(k - m, 0)
    return np.pad(values, (0, n_pad)), np.pad(vectors, ((0, 0), (0, n_pad)))


def principal(root: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """W (d, k) and σ² of probabilistic PCA at the maximum of the likelihood, from a root of the
    covariance, (m, d) (Tipping & Bishop 1999)."""
    values, vectors = spectrum(root, k)
    d = root.shape[1]
    # as many components as columns: any noise below the last is as good
    noise = values[k:].sum() / (d - k) if k < d else values[k - 1] / 2
    noise = max(noise, np.finfo(float).eps * values[0], 1e-300)
    return vectors[:, :k] * np.sqrt(np.maximum(values[:k] - noise, 0.0)), float(noise)


def factors(root: np.ndarray, k: int, rounds: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """W (d, k) and ψ (d,) near a maximum of the likelihood of factor analysis, the best of three
    starts, from a root R of the covariance, (m, d).

    In turn, W given ψ (principal components in units of the noise: Jöreskog 1967) and ψ = diag(RᵀR
    − W Wᵀ). The likelihood has several maxima, many of them with a noise near 0; the starts are
    what the other columns leave of each, half its variance, and all.

    Cost: the k largest eigenvalues of min(m, d) rows a round.
    """
    d = root.shape[1]
    variance = (root**2).sum(0)
    variance = np.where(variance > 0, variance, 1.0)
    unit = root / np.sqrt(variance)
    values, vectors = spectrum(unit, k)
    # the diagonal of (RᵀR + c I)⁻¹
    inverse = (1 - vectors**2 @ (values / (values + MIN_NOISE_SHARE))) / MIN_NOISE_SHARE
    psi0 = (1 - k / (2 * d)) / inverse
    fits = [_ml_factors(unit, psi, k, rounds) for psi in (psi0, np.full(d, 0.5), np.ones(d))]
    _, W, psi = max(fits, key=lambda result: result[0])
    return W * np.sqrt(variance)[:, None], psi * variance


def _ml_factors(unit, psi, k, rounds):
    """(log-likelihood a row but for a constant, W, ψ) from a start of ψ; `unit`: a root of the
    correlations, (m, d)."""
    best = -np.inf
    for _ in range(rounds):
        root = np.sqrt(np.maximum(psi, MIN_NOISE_SHARE))
        scaled = unit / root
        values, vectors = spectrum(scaled, k, leading=True)
        eigs, total = np.maximum(values[:k], 1.0), np.vdot(scaled, scaled)
        W = root[:, None] * vectors[:, :k] * np.sqrt(eigs - 1)
        loglik = -0.5 * (2 * np.log(root).sum() + np.log(eigs).sum() + total - (eigs - 1).sum())
        psi = np.maximum(1 - (W**2).sum(1), MIN_NOISE_SHARE)
        if loglik - best < 1e-8:
            break
        best = loglik
    return loglik, W, psi
