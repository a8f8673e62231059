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


def covariance(X: np.ndarray, weights=None) -> np.ndarray:
    """The covariance of columns about their means, (d, d); of every pair over the rows that have
    both, made positive definite.

    With unseen cells it is where EM starts, so eigenvalues below a thousandth of the largest are
    raised to that: a noise too near 0 is a start at the foot of another maximum. Cost: two matrix
    products.
    """
    seen = ~np.isnan(X)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, float)
    mean = np.where(seen, X, 0.0).T @ w / np.maximum(w @ seen, 1e-300)
    away = np.where(seen, X - mean, 0.0)
    found = (w[:, None] * away).T @ away / np.maximum((w[:, None] * seen).T @ seen, 1e-300)
    if seen.all():
        return found
    values, vectors = np.linalg.eigh(found)
    return (vectors * np.maximum(values, 1e-3 * values[-1])) @ vectors.T


def principal(S: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """W (d, k) and σ² of probabilistic PCA at the maximum of the likelihood, from a covariance
    (Tipping & Bishop 1999)."""
    values, vectors = np.linalg.eigh(S)
    values, vectors = values[::-1], vectors[:, ::-1]
    # as many components as columns: any noise below the last is as good
    noise = values[k:].mean() if k < len(S) else values[-1] / 2
    noise = max(noise, np.finfo(float).eps * values[0], 1e-300)
    return vectors[:, :k] * np.sqrt(np.maximum(values[:k] - noise, 0.0)), float(noise)


def factors(S: np.ndarray, k: int, rounds: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """W (d, k) and ψ (d,) near a maximum of the likelihood of factor analysis, the best of three
    starts.

    In turn, W given ψ (principal components in units of the noise: Jöreskog 1967) and ψ = diag(S −
    W Wᵀ). The likelihood has several maxima, many of them with a noise near 0; the starts are what
    the other columns leave of each, half its variance, and all.

    Cost: an eigendecomposition of d × d a round.
    """
    variance = np.where(np.diag(S) > 0, np.diag(S), 1.0)
    unit = S / np.sqrt(variance) / np.sqrt(variance)[:, None]
    left = (1 - k / (2 * len(S))) / np.diag(np.linalg.inv(unit + MIN_NOISE_SHARE * np.eye(len(S))))
    found = [_descend(unit, psi, k, rounds) for psi in (left, np.full(len(S), 0.5),
                                                        np.ones(len(S)))]
    _, W, psi = max(found, key=lambda each: each[0])
    return W * np.sqrt(variance)[:, None], psi * variance


def _descend(S, psi, k, rounds):
    """(log-likelihood a row but for a constant, W, ψ) of correlations S from a start of ψ."""
    best = -np.inf
    for _ in range(rounds):
        root = np.sqrt(np.maximum(psi, MIN_NOISE_SHARE))
        values, vectors = np.linalg.eigh(S / root / root[:, None])
        values, vectors = values[::-1], vectors[:, ::-1]
        top = np.maximum(values[:k], 1.0)
        W = root[:, None] * vectors[:, :k] * np.sqrt(top - 1)
        now = -0.5 * (2 * np.log(root).sum() + np.log(top).sum() + values.sum() - (top - 1).sum())
        psi = np.maximum(1 - (W**2).sum(1), MIN_NOISE_SHARE)
        if now - best < 1e-8:
            break
        best = now
    return now, W, psi
