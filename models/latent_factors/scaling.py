"""Multidimensional scaling: points in few dimensions whose distances are those that were measured.

    δ_ij = |p_i − p_j|,   d_ij ~ N(δ_ij, σ²)  or  log d_ij ~ N(log δ_ij, σ²)

A row is a pair of points. Normal noise makes the most likely points those of least raw stress,
Σ (d − δ)² (Kruskal 1964); log-normal noise counts distances by their ratios (Ramsay 1977). Pairs
that nobody measured are left out. What is found is so up to turns, mirrors and shifts, and it is a
mode among several: climbs begin at classical scaling.

Classical scaling (Torgerson 1952) has a closed form: with J = I − 11ᵀ/n and B = −½ J D² J, the k
largest eigenvalues λ and their vectors V of B give the points V √λ. Of Euclidean distances between
rows these are the principal components' scores (Gower 1966).

Sources: Torgerson (1952), "Multidimensional scaling: I. Theory and method"; Kruskal (1964),
"Multidimensional scaling by optimizing goodness of fit to a nonmetric hypothesis"; Ramsay (1977),
"Maximum likelihood estimation in multidimensional scaling".
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import sample
from scipy.sparse.csgraph import shortest_path

import probml
from probml.errors import listed
from probml.estimators.rules import PARTS, hold
from probml.language.given import floats

NOISES = ("normal", "lognormal")
GUESS = 0.1  # of σ, in the distances' unit
# squared distance added, so that points on one another have a gradient
SQUARED_DISTANCE_FLOOR = 1e-18


@probml.model
def multidimensional_scaling(first, second, points: int, k: int = 2, noise: str = "normal",
                             spread: float = 10.0, guess: float = GUESS):
    """Distances between points. Inputs `first`, `second`, the points of a pair, 0, …, points − 1;
    in every row `distance` (). Sites outside: `position` (points, k), `variance` (), σ².

    With `variance` in the data MAP finds the points' mode. With both latent and few pairs per point
    the joint mode is degenerate: the points are integrated out, or drawn (NUTS).

    Args:
        points: how many.
        k: dimensions.
        noise: "normal", σ in the distances' units, or "lognormal", σ of their logarithms.
        spread: prior standard deviation of a coordinate, in the distances' units.
        guess: of σ, worth one pair: σ² ~ InverseGamma(1/2, guess²/2).

    Raises:
        ModelError: another noise.
    """
    if noise not in NOISES:
        raise probml.ModelError(f"multidimensional_scaling(noise={noise!r}): expected one of "
                                f"{listed(NOISES)}")
    position = sample("position", dist.Normal(0.0, spread).expand([points, k]).to_event(2))
    variance = sample("variance", dist.InverseGamma(0.5, guess**2 / 2))
    with probml.rows():
        distance = jnp.sqrt(((position[first] - position[second]) ** 2).sum(-1)
                            + SQUARED_DISTANCE_FLOOR)
        sample("distance", dist.Normal(distance, jnp.sqrt(variance)) if noise == "normal"
               else dist.LogNormal(jnp.log(distance), jnp.sqrt(variance)))


@multidimensional_scaling.identifies
def _distances(parameters):
    """Squared distances, which rotations and shifts of all points leave as they are."""
    position = parameters["position"]
    return {**parameters, "position": ((position[:, None] - position) ** 2).sum(-1)}


def classical_scaling(distances, k: int = 2) -> np.ndarray:
    """Points (n, k) whose distances are nearest to those given, in the closed form of the module:
    centred, on their principal axes, the widest first.

    Args:
        distances: (n, n), symmetric, 0 on the diagonal. NaN where missing: the shortest way over
            points between replaces it (Isomap's, Tenenbaum, de Silva & Langford 2000).
        k: dimensions; those that no eigenvalue above 0 has are 0.

    Raises:
        DataError: no such matrix, or points that no distances connect. ModelError: no number of
            dimensions.

    Cost: O(n³).
    """
    hold("classical_scaling", k=(k, PARTS))
    d = square(distances, "classical_scaling")
    if np.isnan(d).any():
        # an edge of length 0 is none in the graph of shortest_path: points on one another stay near
        tiny = np.finfo(float).tiny
        d = shortest_path(np.where(np.isnan(d), np.inf, np.maximum(d, tiny)))
        if np.isinf(d).any():
            pair = np.argwhere(np.isinf(d))[0]
            raise probml.DataError("classical_scaling: no observed distances connect the points "
                                   f"{pair[0]} and {pair[1]}, so their relative position is "
                                   "unknown. Give distances that connect these points, or scale "
                                   "the connected parts separately")
    b = -0.5 * d**2
    b = b - b.mean(0) - b.mean(1)[:, None] + b.mean()
    values, vectors = np.linalg.eigh(b)
    largest = np.arange(len(b))[::-1][:k]
    points = np.zeros((len(b), k))
    points[:, : len(largest)] = vectors[:, largest] * np.sqrt(np.maximum(values[largest], 0.0))
    return on_axes(points)


def on_axes(points: np.ndarray) -> np.ndarray:
    """Points centred and turned to their principal axes, the largest coordinate of each axis
    positive: one of all turns and mirrors."""
    points = points - points.mean(0)
    axes = np.linalg.svd(points, full_matrices=False)[2]
    points = points @ axes.T
    padded = np.zeros((len(points), axes.shape[1]))
    padded[:, : points.shape[1]] = points
    largest = np.take_along_axis(padded, np.abs(padded).argmax(0)[None], 0)[0]
    return padded * np.where(largest < 0, -1.0, 1.0)


def square(distances, where: str) -> np.ndarray:
    """A matrix of distances; DataError for what is none."""
    d = floats(distances, f"{where}: the distances")
    if d.ndim != 2 or d.shape[0] != d.shape[1] or len(d) < 2:
        raise probml.DataError(f"{where}: expected an array (n, n) of the distances of n points, n "
                               f"at least 2, got the shape {d.shape}. Convert a vector of "
                               f"n (n − 1) / 2 distances by scipy.spatial.distance.squareform")
    size = np.nanmax(np.abs(d)) if not np.isnan(d).all() else 0.0
    for bad, what in ((np.isinf(d) | (d < 0), "0 or more, or NaN where missing"),
                      (~(np.isclose(d, d.T, rtol=1e-7, atol=1e-9 * size)
                         | np.isnan(d) & np.isnan(d.T)), "the same distance as for the reversed "
                                                         "pair (a symmetric matrix)"),
                      (np.diag(np.nan_to_num(np.diag(d)) > 1e-9 * size), "0 on the diagonal")):
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise probml.DataError(f"{where}: the distance in row {row}, column {column} is "
                                   f"{d[row, column]:g}, expected {what}. Correct it")
    d = (d + d.T) / 2
    np.fill_diagonal(d, 0.0)
    return d
