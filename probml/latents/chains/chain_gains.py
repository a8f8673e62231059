"""The gain of an M-step in the expected log density of chains of normal numbers, over the point at
which its statistics were taken.

With s_t = A s_{t−1} + b + ε at that point, statistics are second moments of (1, s_{t−1} − s̄, ε),
and of (1, s_t − s̄, ν) for measurements with an error ν: of residuals, so that nothing cancels. At
other A′, b′ the noise of a move is

    ε′ = ε − (A′ − A)(s_{t−1} − s̄) − (A′ − A) s̄ − (b′ − b),

and with Q = L Lᵀ, Q′ = L′ L′ᵀ, S = Σ E[ε εᵀ] of n moves and S′ = S + C,

    gain = −½ tr(L′⁻¹ C L′⁻ᵀ) − ½ tr(2 N T + N T Nᵀ) + n Σ log(1 + N_ii),
    T = L⁻¹ S L⁻ᵀ,   N = L′⁻¹ (L − L′),

in which every term is 0 where nothing changes. So a level a thousand spreads from 0, and a drift
whose gain is a millionth of the evidence, keep their digits in float32; the difference of two sums
would be their rounding.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from probml.latents.chains.linear_chain import Moves, emission_sites, first, moves
from probml.latents.latent import Group, placed
from probml.latents.pooled_normal import Second, locations, shifted
from probml.latents.residuals import root_of
from probml.numerics.lapack import root, standardised
from probml.numerics.logs import LOG_TWO_PI
from probml.structure.site import Site
from probml.structure.structure import Structure


class Line(NamedTuple):
    """A site below as a function of the state: its location at s̄, (cells, d), the slope (cells, d,
    D), and the scale of each cell, or the roots of its covariances."""

    offset: jax.Array
    slope: jax.Array
    root: jax.Array


class Middle(NamedTuple):
    """The point about which statistics are taken: a state s̄, the moves, and what is below."""

    state: jax.Array
    begin: Moves
    moves: Moves
    below: dict[str, Line]


def line(structure: Structure, group: Group, name: str, env: Mapping, state: jax.Array) -> Line:
    """A site below at the programs' parameters, about a state."""
    offset, slope, arguments = locations(structure, name, env, state,
                                         functools.partial(placed, structure, group))
    return Line(offset, slope, root_of(structure.sites[name], arguments))


def middle(structure: Structure, group: Group, env: Mapping) -> Middle:
    """The point of parameters, about the state with which rows begin."""
    begin = first(structure, group, env)
    state = begin.offset
    return Middle(state, begin, moves(structure, group, env),
                  {name: line(structure, group, name, env, state)
                   for name in emission_sites(group)})


def seen_gain(site: Site, new: Line, old: Line, second: Second) -> jax.Array:
    """Of Σ E[log p] of a site below, from second moments of (1, s − s̄, its error at `old`)."""
    change = shifted(second, new.offset - old.offset, new.slope - old.slope)
    count = second.around[:, 0, 0]
    if site.event:
        part = _among(solve_triangular(old.root, second.own, lower=True), old.root)
        share = solve_triangular(new.root, old.root - new.root, lower=True)
        square = _among(solve_triangular(new.root, change, lower=True), new.root)
        square, log = _trace(square) + _trace_of_quadratic(share, part), jnp.log1p(
            _diagonal(share)).sum(-1)
    else:
        share = (old.root - new.root) / new.root
        part = second.own[..., 0, 0] / old.root**2
        square = change[..., 0, 0] / new.root**2 + share * (2 + share) * part
        log = jnp.log1p(share)
    return jnp.where(count > 0, count * log - 0.5 * square, 0.0).sum()


def moves_gain(new: Moves, old: Moves, state: jax.Array, second: jax.Array) -> jax.Array:
    """Of Σ E[log p(s_t | s_{t−1})], or of the first states, from second moments of (1, s_{t−1} −
    state, the noise at `old`), or of (1, the noise); of singular noise that of the numbers that
    have some."""
    gap = new.offset - old.offset
    if new.slope is not None:
        turn = new.slope - old.slope
        push = jnp.concatenate([(gap + turn @ state)[:, None], turn], 1)
    else:
        push = gap[:, None]
    wide = push.shape[1]
    mixed = push @ second[:wide, wide:]
    change = push @ second[:wide, :wide] @ push.T - mixed - mixed.T
    lower, before, count = root(new.covariance), root(old.covariance), second[0, 0]
    square, part = _both(lower, change), _both(before, second[wide:, wide:])
    share = standardised(lower, before - lower)
    pivots, past = _diagonal(lower), _diagonal(before)
    both = (pivots > 0) & (past > 0)
    log = jnp.where(both, jnp.log1p(jnp.where(both, _diagonal(share), 0.0)), 0.0)
    fresh = (pivots > 0) & ~both  # a number that had no noise
    log -= jnp.where(fresh, jnp.log(jnp.where(fresh, pivots, 1.0)) + 0.5 * LOG_TWO_PI, 0.0)
    gain = count * log.sum() - 0.5 * (_trace(square) + _trace_of_quadratic(share, part))
    return jnp.where(count > 0, gain, 0.0)


def _both(lower: jax.Array, matrix: jax.Array) -> jax.Array:
    """L⁻¹ M L⁻ᵀ of a symmetric M in the range of L Lᵀ."""
    return standardised(lower, standardised(lower, matrix).T)


def _among(half: jax.Array, lower: jax.Array) -> jax.Array:
    """H L⁻ᵀ."""
    return solve_triangular(lower, jnp.swapaxes(half, -1, -2), lower=True)


def _trace_of_quadratic(share: jax.Array, part: jax.Array) -> jax.Array:
    """tr(2 N T + N T Nᵀ)."""
    return _trace(share @ part @ (2 * jnp.eye(share.shape[-1], dtype=share.dtype)
                                  + jnp.swapaxes(share, -1, -2)))


def _trace(matrix: jax.Array) -> jax.Array:
    return jnp.trace(matrix, axis1=-2, axis2=-1)


def _diagonal(matrix: jax.Array) -> jax.Array:
    return jnp.diagonal(matrix, axis1=-2, axis2=-1)
