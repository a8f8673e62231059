"""Coordinates for effects whose scale is a parameter: standardised by their prior to the degree to
which the data leave them open.


An effect v ~ loc + scale · ε has coordinates u, v = loc + scale^(1 − c) (u − c · loc): at c = 1 its
own (centred), at c = 0 those of ε (non-centred). Between a scale and effects that the data hardly
inform, the density has a funnel in the first and none in the second; where the data are informative
it is the other way round. c = i / (i + 1/r), the share of the data in the posterior precision of an
effect, i their information on ε and r the variance of ε, makes both nearly independent
(Papaspiliopoulos, Roberts & Sköld 2007; Gorinova, Moore & Hoffman 2020).
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known
from probml.errors import present
from probml.latents.coordinates import own_shape
from probml.numerics.compiling import ONCE, jit
from probml.plan import hierarchy
from probml.plan.plan import Plan
from probml.structure.densities import ahead

ROUNDS = 30  # of estimating the variance of ε, by EM
# standard errors of its logarithm by which the variance is taken to be smaller: too small a c is
# better than a funnel
SURE = 2.5


def centrable_parameters(plan: Plan) -> tuple[str, ...]:
    """The parameters whose prior has a free scale and is a location-scale family in their unbounded
    coordinates."""
    sites, names = plan.structure.sites, dict.fromkeys(
        tie.name for tie in hierarchy.degenerate_modes(plan) if tie.kind == "spread")
    # one location and one scale, not those of several states, nor of steps about those before
    single = [name for name in names if name not in plan.mixed
              and not ahead(plan.structure, name)]
    return tuple(n for n in single if sites[n].entry.location_scale is not None)


def location_and_scale(plan: Plan, name: str,
                       env: Mapping) -> tuple[jax.Array, Any, bool]:
    """Location and scale of a parameter's prior in unbounded coordinates; the scale is a number a
    cell, or (True) that of each vector (families/location_scale.py)."""
    site = plan.structure.sites[name]
    loc, scale = present(site.entry.location_scale)(plan.structure.distribution(name, env))
    matrix = site.entry.coupled
    shape = own_shape(site)
    return (jnp.broadcast_to(loc, shape),
            scale if matrix else jnp.broadcast_to(scale, shape), matrix)


def to_centred(v: jax.Array, centring: jax.Array, loc: jax.Array, scale: jax.Array,
               matrix: bool) -> jax.Array:
    """The parameter's own unbounded coordinate v → u. Of vectors, c is 0 or 1."""
    if matrix:
        return jnp.where(centring > 0.5, v, scale.without(v - loc))
    return centring * loc + (v - loc) * scale ** (centring - 1)


def from_centred(u: jax.Array, centring: jax.Array, loc: jax.Array, scale: jax.Array,
                 matrix: bool) -> tuple[jax.Array, jax.Array]:
    """u → v, and log |∂v / ∂u|."""
    if matrix:
        volume = jnp.where(centring > 0.5, 0.0, scale.volume()[..., None])
        return (jnp.where(centring > 0.5, u, loc + scale.times(u)),
                jnp.sum(jnp.broadcast_to(volume, (*u.shape[:-1], 1))))
    return (loc + scale ** (1 - centring) * (u - centring * loc),
            jnp.sum((1 - centring) * jnp.log(scale)))


def non_centred(plan: Plan) -> dict[str, np.ndarray]:
    """c = 0 for all effects."""
    sites, dtype = plan.structure.sites, jnp.result_type(float)
    cells = {name: (*sites[name].shape[:-1], 1) if sites[name].entry.coupled
             else own_shape(sites[name]) for name in centrable_parameters(plan)}
    return {name: np.zeros(shape, dtype) for name, shape in cells.items()}


def choose_centring(plan: Plan, params: Mapping, known: Known, u: Mapping[str, np.ndarray],
                    hessian: Mapping[str, np.ndarray]) -> dict:
    """c for every effect, from the standardised coordinates of a mode and the curvature of the
    density there.

    The mode of all parameters together has a scale that is too large (what it costs in the prior of
    ε is 0), so the variance r ≤ 1 of ε beside it is estimated as that of effects of which each is
    known with precision i; its lower bound is taken, since the scale may be small. So c is about 0
    for few effects, for a scale that one effect has for itself (a horseshoe's), and for scales, of
    which what is known is no normal matter.

    Args:
        params: the parameters there. known: with `centring` 0 for all effects.
        u, hessian: name → its coordinates, and their block (size, size) of minus the second
            derivatives.
    """
    sites, out = plan.structure.sites, dict(known.centring)
    ties = {tie.name: tie for tie in hierarchy.degenerate_modes(plan) if tie.kind == "spread"
            and tie.name in out and not sites[tie.name].domain.log_scale}
    for name, scale in _prior_scales(plan, tuple(ties), {**known.given, **params}).items():
        tie, shape, matrix = ties[name], own_shape(sites[name]), sites[name].entry.coupled
        sds = np.asarray(scale, float)
        info = np.maximum(_information(np.asarray(hessian[name], float), sds, shape, matrix), 0.0)
        sharing = math.prod(shape) / max(_count(plan, other) for other in tie.tied_with)
        mode, r = np.nan_to_num(np.asarray(u[name], float)), 1.0
        for _ in range(ROUNDS):
            r = float(np.clip(
                np.mean((mode * (info + 1) / (info + 1 / r)) ** 2 + 1 / (info + 1 / r)), 1e-6, 1.0
            ))
        noise = float(np.median(1 / np.maximum(info, 1e-6)))  # an effect's own, beside r
        r *= math.exp(-SURE * math.sqrt(2 / sharing) * (1 + noise / r))
        c = info * r / (info * r + 1)
        out[name] = (np.round(c.mean(-1, keepdims=True)) if matrix else c).astype(out[name].dtype)
    return out


@jit(static_argnums=(0, 1), seldom=ONCE, on_host=True)
def _prior_scales(plan: Plan, names: tuple[str, ...], env: Mapping) -> dict[str, jax.Array]:
    """Scales of parameters' priors in unbounded coordinates: one a cell, or the Cholesky factor of
    each vector's covariance."""
    scales = {name: location_and_scale(plan, name, env)[1] for name in names}
    return {name: scale.lower() if plan.structure.sites[name].entry.coupled else scale
            for name, scale in scales.items()}


def _count(plan: Plan, name: str) -> int:
    return math.prod(plan.structure.sites[name].shape)


def _information(hessian: np.ndarray, scale: np.ndarray, shape: tuple[int, ...],
                 matrix: bool) -> np.ndarray:
    """The information of the data on each cell, in units of that of its prior given the other cells
    of its vector."""
    if not matrix:
        return np.nan_to_num(np.diagonal(hessian).reshape(shape) - 1)
    size, out = shape[-1], []
    for i, root in enumerate(np.broadcast_to(scale, (*shape, size)).reshape(-1, size, size)):
        inverse = np.linalg.inv(root)
        data = inverse.T @ (hessian[i * size : (i + 1) * size,
                                    i * size : (i + 1) * size] - np.eye(size)) @ inverse
        out.append(np.diagonal(data) / (inverse**2).sum(0))
    return np.nan_to_num(np.stack(out).reshape(shape))
