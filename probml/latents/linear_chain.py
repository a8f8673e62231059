"""Gaussian chains with all that is linear beside them: integrated out along time (Kalman 1960).

The numbers of a step, those of the chains, of normal sites along time and of the row itself, are
one state s_t, parents first:

    a chain        z_t = F z_{t−1} + b + ε,        a number of the row   z_t = z_{t−1},
    a normal site  z_t = location(others at t) + ε,

each b and location affine in the numbers before it in that order. One linearisation of the traced
programs of a step gives s_t = A s_{t−1} + b + ε and what is seen, y_t = C s_t + c + ν, so that sums
of structural parts, regressions with moving coefficients and holes in what feeds others are all
one case. factors/linear_chains.py takes it over steps and rows, elimination/kalman/ along time.

The gain of an M-step in the expected log density of chains of normal numbers, over the point at
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
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag, solve_triangular

from probml.jaxpr.memo import memo
from probml.latents.gaussian import KINDS, not_affine
from probml.latents.latent import Group, placed, slices_of_latents
from probml.latents.pooled_normal import Second, locations, root_of, shifted
from probml.numerics.compiling import jit
from probml.numerics.lapack import root, standardised
from probml.numerics.logs import LOG_TWO_PI
from probml.numerics.process.inline_calls import evaluated
from probml.structure.densities import example
from probml.structure.site import Site
from probml.structure.structure import Structure

# kind → the arguments that may depend on latents
MOVED = {"GaussianChain": ("offset",), **dict.fromkeys(KINDS, ("loc",))}
# what a parameter moves → the covariance about it
ABOUT = {"transition": "covariance", "offset": "covariance", "initial_mean": "initial_covariance"}


class Moves(NamedTuple):
    """Of s_t given s_{t−1}: slope (D, D), offset (D,), covariance (D, D); or of s_1, no slope."""

    slope: jax.Array | None
    offset: jax.Array
    covariance: jax.Array


class Emission(NamedTuple):
    """The measurements of a step given s_t, concatenated, vectors standardised: slope (m, D),
    variance (m,), log volume (m,); and before standardisation: offset (m,), and of each site of
    vectors its roots (cells, d, d)."""

    slope: jax.Array
    variance: jax.Array
    log: jax.Array
    offset: jax.Array
    roots: dict[str, jax.Array]


class LinearChain:
    """Chains of normal numbers; see the top of this file."""

    description = "integrated out, in closed form along time (Kalman filter)"
    pools = exact = True
    averages = False
    breadth, finer, tolerance = 1, None, 0.0

    def why_not(self, structure: Structure, group: Group) -> str | None:
        sites = structure.sites
        if not any(sites[name].chain for name in group.names):
            return "none of the sites is a chain"
        timeless = next((name for name in group.sites
                         if name not in group.names and sites[name].time is None), None)
        reason = not_affine(structure, group, MOVED)
        return reason if reason or timeless is None else f"'{timeless}' has no time steps"


def first(structure: Structure, group: Group, env: Mapping) -> Moves:
    """The moves that lead to the first state."""

    def own(site: Site, arguments: Mapping[str, jax.Array], before: jax.Array):
        if site.chain:
            return (arguments["initial_mean"][0], arguments["initial_covariance"][0])
        return (arguments["loc"].reshape(-1), _covariance(site, arguments))

    return _linear(structure, group, env, own)._replace(slope=None)


def transition_of(structure: Structure, group: Group, env: Mapping) -> Moves:
    """From a state to the next, at the next one's step."""

    def own(site: Site, arguments: Mapping[str, jax.Array], before: jax.Array):
        if site.chain:
            location = arguments["transition"][0] @ before + arguments["offset"][0]
            return location, arguments["covariance"][0]
        if site.time is None:
            return (before, jnp.zeros((len(before), len(before)), before.dtype))
        return (arguments["loc"].reshape(-1), _covariance(site, arguments))

    return _linear(structure, group, env, own)


def _covariance(site: Site, arguments: Mapping) -> jax.Array:
    scale = root_of(site, arguments)
    if not site.event:
        return jnp.diag(scale**2)
    return block_diag(*(scale @ jnp.swapaxes(scale, -1, -2)))


def _linear(structure: Structure, group: Group, env: Mapping, moments: Callable) -> Moves:
    slices = slices_of_latents(structure, group.names)

    def step(before: jax.Array, noise):
        env_z, values, covariances = dict(env), [], []
        for name, part in slices.items():
            site = structure.sites[name]
            location, covariance = moments(site, structure.cells(name, env_z), before[part])
            value = location + noise[part]
            env_z[name] = site.place(value)
            values.append(value)
            covariances.append(covariance)
        return jnp.concatenate(values), block_diag(*covariances)

    zero = jnp.zeros(slices[group.names[-1]].stop, jnp.result_type(float))
    offset, push, covariance = jax.linearize(step, zero, zero, has_aux=True)
    eye = jnp.eye(len(zero), dtype=zero.dtype)
    slope = jax.vmap(lambda e: push(e, zero))(eye).T
    if any(set(structure.sites[name].parents) & set(group.names) for name in group.names):
        noise_slope = jax.vmap(lambda e: push(zero, e))(eye).T
        covariance = noise_slope @ covariance @ noise_slope.T
    return Moves(slope, offset, covariance)


def emission_sites(group: Group) -> tuple[str, ...]:
    """The observed sites that depend on latents of the chain."""
    return tuple(name for name in group.sites if name not in group.names)


def sight(structure: Structure, group: Group, env: Mapping) -> Emission:
    """The measurements of a step."""
    zero = jnp.zeros(slices_of_latents(structure, group.names)[group.names[-1]].stop,
                     jnp.result_type(float))
    parts: dict[str, list] = {"slope": [jnp.zeros((0, len(zero)), zero.dtype)],
                              **{n: [jnp.zeros(0, zero.dtype)] for n in ("variance", "log",
                                                                         "offset")}}
    roots = {}
    for name in emission_sites(group):
        site = structure.sites[name]
        offset, slope, arguments = locations(structure, name, env, zero,
                                             functools.partial(placed, structure, group))
        scale = root_of(site, arguments)
        if site.event:
            roots[name] = scale
            slope = solve_triangular(scale, slope, lower=True)
            parts["variance"].append(jnp.ones(offset.size, zero.dtype))
            log = -jnp.log(jnp.abs(jnp.diagonal(scale, axis1=-2, axis2=-1)))
        else:
            parts["variance"].append(scale**2)
            log = jnp.zeros(offset.size, zero.dtype)
        parts["log"].append(log.reshape(-1))
        parts["slope"].append(slope.reshape(-1, len(zero)))
        parts["offset"].append(offset.reshape(-1))
    return Emission(**{name: jnp.concatenate(part) for name, part in parts.items()}, roots=roots)


class Line(NamedTuple):
    """A site below as a function of the state: its location at s̄, (cells, d), the slope (cells, d,
    D), and the scale of each cell, or the roots of its covariances."""

    offset: jax.Array
    slope: jax.Array
    root: jax.Array


class Middle(NamedTuple):
    """The point about which statistics are taken: a state s̄, the moves, and what is below."""

    state: jax.Array
    initial: Moves
    transition: Moves
    children: dict[str, Line]


def line(structure: Structure, group: Group, name: str, env: Mapping, state: jax.Array) -> Line:
    """A site below at the programs' parameters, about a state."""
    offset, slope, arguments = locations(structure, name, env, state,
                                         functools.partial(placed, structure, group))
    return Line(offset, slope, root_of(structure.sites[name], arguments))


def expansion_point(structure: Structure, group: Group, env: Mapping) -> Middle:
    """The point of parameters, about the state with which rows begin."""
    initial = first(structure, group, env)
    state = initial.offset
    return Middle(state, initial, transition_of(structure, group, env),
                  {name: line(structure, group, name, env, state)
                   for name in emission_sites(group)})


def emission_gain(site: Site, new: Line, old: Line, second: Second) -> jax.Array:
    """The gain of Σ E[log p] of a site below, from second moments of (1, s − s̄, its error at
    `old`)."""
    change = shifted(second, new.offset - old.offset, new.slope - old.slope)
    count = second.latent[:, 0, 0]
    if site.event:
        part = _right_solve(solve_triangular(old.root, second.own, lower=True), old.root)
        share = solve_triangular(new.root, old.root - new.root, lower=True)
        square = _right_solve(solve_triangular(new.root, change, lower=True), new.root)
        square, log = _trace(square) + _trace_of_quadratic(share, part), jnp.log1p(
            _diagonal(share)).sum(-1)
    else:
        share = (old.root - new.root) / new.root
        part = second.own[..., 0, 0] / old.root**2
        square = change[..., 0, 0] / new.root**2 + share * (2 + share) * part
        log = jnp.log1p(share)
    return jnp.where(count > 0, count * log - 0.5 * square, 0.0).sum()


def moves_gain(new: Moves, old: Moves, state: jax.Array, second: jax.Array) -> jax.Array:
    """The gain of Σ E[log p(s_t | s_{t−1})], or of the first states, from second moments of (1,
    s_{t−1} − state, the noise at `old`), or of (1, the noise); of singular noise that of the
    numbers that have some."""
    d_offset = new.offset - old.offset
    if new.slope is not None:
        d_slope = new.slope - old.slope
        d_line = jnp.concatenate([(d_offset + d_slope @ state)[:, None], d_slope], 1)
    else:
        d_line = d_offset[:, None]
    width = d_line.shape[1]
    cross = d_line @ second[:width, width:]
    change = d_line @ second[:width, :width] @ d_line.T - cross - cross.T
    lower, old_lower, count = root(new.covariance), root(old.covariance), second[0, 0]
    square, part = _whiten(lower, change), _whiten(old_lower, second[width:, width:])
    share = standardised(lower, old_lower - lower)
    pivots, old_pivots = _diagonal(lower), _diagonal(old_lower)
    have_noise = (pivots > 0) & (old_pivots > 0)
    log = jnp.where(have_noise, jnp.log1p(jnp.where(have_noise, _diagonal(share), 0.0)), 0.0)
    new_noise = (pivots > 0) & ~have_noise  # a number that had no noise
    log -= jnp.where(new_noise, jnp.log(jnp.where(new_noise, pivots, 1.0)) + 0.5 * LOG_TWO_PI, 0.0)
    gain = count * log.sum() - 0.5 * (_trace(square) + _trace_of_quadratic(share, part))
    return jnp.where(count > 0, gain, 0.0)


def _whiten(lower: jax.Array, matrix: jax.Array) -> jax.Array:
    """L⁻¹ M L⁻ᵀ of a symmetric M in the range of L Lᵀ."""
    return standardised(lower, standardised(lower, matrix).T)


def _right_solve(half: jax.Array, lower: jax.Array) -> jax.Array:
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


@memo(256)
def noiseless_parameters(structure: Structure, name: str) -> tuple[tuple[str, str, int], ...]:
    """(parameter, argument, number of the state) where the argument of a chain moves with the
    parameter and the number has no noise, at a point without zeros. EM cannot move such a
    parameter: no path that is possible now would be possible at other values."""
    env = example(structure, name)
    keys = [key for key in env if np.issubdtype(env[key].dtype, np.floating)]
    if not keys:
        return ()

    @jit
    def derivatives(env: Mapping[str, jax.Array]):
        def at(key: str, step: float):
            return structure.cells(name, {**env, key: env[key] + step * (1 + env[key])})

        return {key: jax.jvp(lambda step, key=key: at(key, step), (jnp.zeros(()),),
                             (jnp.ones(()),)) for key in keys}

    with evaluated():
        jvps = jax.tree.map(np.asarray, derivatives(env))
    out = []
    for key, (values, slopes) in jvps.items():
        for argument, cov_name in ABOUT.items():
            no_noise = np.diagonal(values[cov_name][0]) == 0
            rows = (slopes[argument][0] != 0).reshape(len(no_noise), -1).any(1) & no_noise
            out += [(key, argument, int(i)) for i in np.flatnonzero(rows)]
    return tuple(out)
