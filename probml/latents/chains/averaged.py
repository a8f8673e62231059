"""A step of a chain of normal numbers at log densities averaged over settings of the parameters.

Of a move s′ = A s + b + L η, η ~ N(0, I), whose A_k, b_k, L_k differ from setting to setting, the
mean of the log densities is quadratic in (η, s, 1), with the matrix

    J = (1/S) Σ_k W_kᵀ W_k,   W_k = L_k⁻¹ (L, A − A_k, b − b_k) = blocks P, C, H,

so that it is the log density of another move, and a factor of the state before alone,

    s′ = A s + b − L P⁻¹ C (s, 1) + noise of covariance L P⁻¹ Lᵀ,
    exp(log − ½ |R (s, 1)|²),   RᵀR = H − Cᵀ P⁻¹ C,   log = log |L| − ½ log |P| − mean log |L_k|.

Such a factor is D + 1 measurements of variance 1 (Beal 2003, chapter 5, adds the moments of the
matrices to the filter's inverse covariances instead); so the model stays a state-space model. A
measurement is treated as a move. Where there is no noise all settings must have the same move.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from probml.latents.chains import linear_chain
from probml.latents.chains.linear_chain import Moves, Sight
from probml.latents.latent import SETTINGS, Group
from probml.numerics.lapack import log_det, root, standardised
from probml.numerics.logs import LOG_TWO_PI
from probml.structure.structure import Structure


class Tilt(NamedTuple):
    """Averaged moves: the move, and the factor of the state before as measurements
    0 = slope · s + offset + ν, ν ~ N(0, 1), and a log constant."""

    moves: Moves
    slope: jax.Array  # (D + 1, D)
    offset: jax.Array  # (D + 1,)
    log: jax.Array


def tilted(at: Moves, every: Moves) -> Tilt:
    """The mean of moves.

    Args:
        at: the move about which they are compared; every: those of all settings, led by their axis.
            Without a slope: first states.
    """
    size, lower = len(at.offset), root(at.covariance)
    wide = 0 if at.slope is None else at.slope.shape[1]

    def whitened(move: Moves) -> tuple[jax.Array, jax.Array]:
        own = root(move.covariance)
        parts = [lower, *([] if at.slope is None else [at.slope - move.slope]),
                 (at.offset - move.offset)[:, None]]
        return standardised(own, jnp.concatenate(parts, 1)), log_det(own)

    found, logs = jax.vmap(whitened)(every)
    J = jnp.einsum("kij,kil->jl", found, found) / len(found)
    still = jnp.diagonal(lower) == 0
    P = J[:size, :size] + jnp.diag(still.astype(J.dtype))
    half = jnp.linalg.cholesky(P)
    inner = solve_triangular(half, J[:size, size:], lower=True)
    gain = solve_triangular(half, inner, lower=True, trans=1)
    pushed = solve_triangular(half, lower.T, lower=True)
    left = J[size:, size:] - inner.T @ inner
    turned = lower @ gain
    moves = Moves(None if at.slope is None else at.slope - turned[:, :wide],
                  at.offset - turned[:, wide], pushed.T @ pushed)
    log = log_det(lower) - jnp.log(jnp.diagonal(half)).sum() - logs.mean()
    if at.slope is None:
        nothing = jnp.zeros((0, 0), J.dtype)
        return Tilt(moves, nothing, jnp.zeros(0, J.dtype), log - 0.5 * left[0, 0])
    rows = root(left).T
    return Tilt(moves, rows[:, :wide], rows[:, wide], log + 0.5 * LOG_TWO_PI * len(rows))


def first(structure: Structure, group: Group, env: Mapping) -> Tilt:
    """The first states at the settings of `env`."""
    return tilted(*_at_settings(linear_chain.first, structure, group, env))


def moves(structure: Structure, group: Group, env: Mapping) -> Tilt:
    """The moves at the settings of `env`."""
    return tilted(*_at_settings(linear_chain.moves, structure, group, env))


def _at_settings(program: Callable, structure: Structure, group: Group, env: Mapping) -> tuple:
    """A program of a step at `env`, and at all its settings."""
    return program(structure, group, env), jax.vmap(
        lambda setting: program(structure, group, {**env, **setting}))(env[SETTINGS])


class Seen(NamedTuple):
    """The measurements of a step at averaged log densities: as at a point; and those that each
    scalar, or each vector, adds where it is observed."""

    sight: Sight
    slope: jax.Array  # (parts, D + 1, D)
    offset: jax.Array  # (parts, D + 1)


def heads(structure: Structure, group: Group) -> np.ndarray:
    """The place of the first number of each scalar and each vector among the measurements of a
    step."""
    out, start = [np.zeros(0, int)], 0
    for site in (structure.sites[name] for name in linear_chain.emission_sites(group)):
        size = int(np.prod(site.cells, dtype=int))
        out.append(start + np.arange(0, size, int(np.prod(site.event, dtype=int))))
        start += size
    return np.concatenate(out)


def sight(structure: Structure, group: Group, env: Mapping) -> Seen:
    """The measurements of a step at the settings of `env`."""
    at, every = _at_settings(linear_chain.sight, structure, group, env)
    parts, start, roots = [], 0, {}
    for name in linear_chain.emission_sites(group):
        site = structure.sites[name]
        size, d = int(np.prod(site.cells, dtype=int)), int(np.prod(site.event, dtype=int))
        mine = slice(start, start + size)
        start += size
        found = jax.vmap(tilted, in_axes=(0, Moves(1, 1, 1)))(
            _moves(at, name, mine, d), jax.vmap(lambda one, n=name, m=mine, d=d: _moves(
                one, n, m, d))(every))
        if site.event:
            roots[name] = jnp.linalg.cholesky(found.moves.covariance)
        parts.append((site, found))
    return _joined(at, parts, roots)


def _moves(at: Sight, name: str, mine: slice, d: int) -> Moves:
    """The measurements of a site as moves from the state, of each scalar or vector: leaves (parts,
    d, ...)."""
    slope, offset = at.slope[mine].reshape(-1, d, at.slope.shape[1]), at.offset[mine]
    if name not in at.roots:
        return Moves(slope, offset[:, None], at.variance[mine][:, None, None])
    lower = at.roots[name]
    return Moves(lower @ slope, offset.reshape(-1, d), lower @ jnp.swapaxes(lower, -1, -2))


def _joined(at: Sight, parts: list, roots: dict[str, jax.Array]) -> Seen:
    """The measurements of all sites, concatenated, vectors standardised again."""
    out: dict[str, list] = {name: [getattr(at, name)[:0]] for name in (
        "slope", "variance", "log", "offset")}
    more, level = [], []
    for site, found in parts:
        slope, covariance = found.moves.slope, found.moves.covariance
        log = jnp.zeros(found.moves.offset.shape, slope.dtype).at[:, 0].set(found.log)
        if site.event:
            lower = roots[site.name]
            slope = solve_triangular(lower, slope, lower=True)
            out["variance"].append(jnp.ones(log.size, slope.dtype))
            log = log - jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1))
        else:
            out["variance"].append(covariance.reshape(-1))
        out["slope"].append(slope.reshape(-1, slope.shape[-1]))
        out["offset"].append(found.moves.offset.reshape(-1))
        out["log"].append(log.reshape(-1))
        more.append(found.slope)
        level.append(found.offset)
    wide = at.slope.shape[1]
    return Seen(Sight(**{name: jnp.concatenate(leaves) for name, leaves in out.items()},
                      roots=roots),
                jnp.concatenate([jnp.zeros((0, wide + 1, wide)), *more]),
                jnp.concatenate([jnp.zeros((0, wide + 1)), *level]))
