"""Which scale the Gaussian blocks of a conjugate posterior are conditional on."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from probml.device.rows import Known
from probml.plan.blocks import Block
from probml.plan.plan import Plan


class Conjugate(NamedTuple):
    """A conjugate posterior: natural parameters of each block, evaluated at `params` (reference
    values of scales, means of locations).

    The scale of a Gaussian block's prior, like that of the likelihood, may be proportional to a
    scale parameter, so that the posterior covariance is the prior's times a fixed ratio
    (normal–inverse-gamma, normal–inverse-Wishart).
    """

    natural: tuple[dict[str, jax.Array], ...]
    params: dict[str, jax.Array]
    mean: dict[str, jax.Array]


def coupling(plan: Plan, block: Block) -> tuple[str | tuple[str, ...] | None, ...]:
    """The free parameters in the scales of the sites whose location contains a Gaussian block, and
    of its own prior; each distinct set once."""
    sites, found = plan.structure.sites, list[str | tuple[str, ...] | None]()
    for site in sites.values():
        if not site.traits.scatter:
            continue
        if site.name in block.names or any(name in site.uses.get("loc", {})
                                           for name in block.names):
            inside = tuple(p for a in site.traits.scatter for p in site.uses.get(a, {})
                           if p in plan.free)
            found.append(inside[0] if len(inside) == 1 else inside or None)
    return tuple(dict.fromkeys(found))


def coupled(plan: Plan, block: Block) -> str | None:
    """The scale parameter that a Gaussian block's posterior is conditional on: that of all its
    sites and of its prior; None if there is none, or not one for all."""
    scales = coupling(plan, block) if block.form is not None and block.form.joint else ()
    matrix_normal = block.stacked and any(plan.structure.sites[name].traits.event
                                          for name in block.names)
    return scales[0] if len(scales) == 1 and isinstance(scales[0], str) and not matrix_normal \
        else None


def prior_spread(plan: Plan, known: Known, params: Mapping, name: str) -> jax.Array:
    """The prior's scale (Normal) or covariance (MultivariateNormal) of a location at given scale
    parameters."""
    distribution = plan.structure.distribution(name, {**params, **known.given})
    site = plan.structure.sites[name]
    if site.traits.event == 0:
        return jnp.broadcast_to(distribution.scale, site.shape)
    return jnp.broadcast_to(distribution.covariance_matrix,
                            (*site.lattice, site.event[0], site.event[0]))


def equilibrated(precision: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A precision matrix scaled to a diagonal of 1, and the scales, so that the units of the
    coefficients do not matter."""
    scale = jnp.diagonal(precision, axis1=-2, axis2=-1) ** -0.5
    return precision * scale[..., :, None] * scale[..., None, :], scale
