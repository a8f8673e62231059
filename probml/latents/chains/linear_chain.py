"""Gaussian chains with all that is linear beside them: integrated out along time (Kalman 1960).

The numbers of a step, those of the chains, of normal sites along time and of the row itself, are
one state s_t, parents first:

    a chain        z_t = F z_{t−1} + b + ε,        a number of the row   z_t = z_{t−1},
    a normal site  z_t = location(others at t) + ε,

each b and location affine in the numbers before it in that order. One linearisation of the traced
programs of a step gives s_t = A s_{t−1} + b + ε and what is seen, y_t = C s_t + c + ν, so that sums
of structural parts, regressions with moving coefficients and holes in what feeds others are all
one case. factors/linear_chains.py takes it over steps and rows, elimination/kalman/ along time.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import block_diag, solve_triangular

from probml.latents.gaussian import KINDS, not_affine
from probml.latents.latent import Group, placed, places
from probml.latents.pooled_normal import locations
from probml.latents.residuals import root_of
from probml.structure.site import Site
from probml.structure.structure import Structure

# kind → the arguments that may depend on latents
MOVED = {"GaussianChain": ("offset",), "GaussianWalk": ("offset",),
         **dict.fromkeys(KINDS, ("loc",))}


class Moves(NamedTuple):
    """Of s_t given s_{t−1}: slope (D, D), offset (D,), covariance (D, D); or of s_1, no slope."""

    slope: jax.Array | None
    offset: jax.Array
    covariance: jax.Array


class Sight(NamedTuple):
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

    description = "integrated out, exact Gaussian along time (Kalman's filter)"
    pools = exact = True
    averages = True
    breadth, finer, tolerance = 1, None, 0.0

    def why_not(self, structure: Structure, group: Group) -> str | None:
        sites = structure.sites
        if not any(sites[name].chain for name in group.names):
            return "none of the sites is a chain"
        timeless = next((name for name in group.sites
                         if name not in group.names and sites[name].time is None), None)
        why = not_affine(structure, group, MOVED)
        return why if why or timeless is None else f"'{timeless}' has no time steps"


def first(structure: Structure, group: Group, env: Mapping) -> Moves:
    """Of the first state."""

    def own(site: Site, arguments: Mapping[str, jax.Array], before: jax.Array):
        if site.chain:
            return arguments["initial_mean"][0], arguments["initial_covariance"][0]
        return arguments["loc"].reshape(-1), _covariance(site, arguments)

    return _linear(structure, group, env, own)._replace(slope=None)


def moves(structure: Structure, group: Group, env: Mapping) -> Moves:
    """From a state to the next, at the next one's step."""

    def own(site: Site, arguments: Mapping[str, jax.Array], before: jax.Array):
        if site.chain:
            location = arguments["transition"][0] @ before + arguments["offset"][0]
            return location, arguments["covariance"][0]
        if site.time is None:
            return before, jnp.zeros((len(before), len(before)), before.dtype)
        return arguments["loc"].reshape(-1), _covariance(site, arguments)

    return _linear(structure, group, env, own)


def _covariance(site: Site, arguments: Mapping) -> jax.Array:
    scale = root_of(site, arguments)
    if not site.event:
        return jnp.diag(scale**2)
    return block_diag(*(scale @ jnp.swapaxes(scale, -1, -2)))


def _linear(structure: Structure, group: Group, env: Mapping, own: Callable) -> Moves:
    where = places(structure, group.names)

    def step(before: jax.Array, noise):
        at, out, spread = dict(env), [], []
        for name, mine in where.items():
            site = structure.sites[name]
            location, covariance = own(site, structure.cells(name, at), before[mine])
            value = location + noise[mine]
            at[name] = site.place(value)
            out.append(value)
            spread.append(covariance)
        return jnp.concatenate(out), block_diag(*spread)

    zero = jnp.zeros(where[group.names[-1]].stop, jnp.result_type(float))
    offset, push, covariance = jax.linearize(step, zero, zero, has_aux=True)
    eye = jnp.eye(len(zero), dtype=zero.dtype)
    slope = jax.vmap(lambda e: push(e, zero))(eye).T
    if any(set(structure.sites[name].parents) & set(group.names) for name in group.names):
        mixed = jax.vmap(lambda e: push(zero, e))(eye).T
        covariance = mixed @ covariance @ mixed.T
    return Moves(slope, offset, covariance)


def emission_sites(group: Group) -> tuple[str, ...]:
    """The observed sites that depend on latents of the chain."""
    return tuple(name for name in group.sites if name not in group.names)


def sight(structure: Structure, group: Group, env: Mapping) -> Sight:
    """The measurements of a step."""
    zero = jnp.zeros(places(structure, group.names)[group.names[-1]].stop, jnp.result_type(float))
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
    return Sight(**{name: jnp.concatenate(part) for name, part in parts.items()}, roots=roots)
