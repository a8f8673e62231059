"""Log densities of the sites of one row, computed from the traced programs of their arguments.

Values of the deterministics outside rows, at a point and at draws. Deterministics of rows are
computed by queries/queries.py, like the mean of a site.
"""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from probml.errors import present
from probml.families import finite
from probml.families.domains import supported
from probml.families.marginal_normal import log_density as marginal_log_density
from probml.numerics.compiling import ASKED, jit
from probml.structure.site import Site
from probml.structure.structure import Structure
from probml.typing import PyTree


def cells(site: Site, array: jax.Array) -> jax.Array:
    """Reshapes (rows, *cells) to (rows, lattice cells, event axes of the base distribution)."""
    return array.reshape(len(array), math.prod(site.lattice), *site.event)


def log_density(structure: Structure, site: Site, env: Mapping, x: jax.Array,
                observed: jax.Array | None) -> jax.Array:
    """Returns the log density of the observed cells of a site in one row, a scalar. Discrete sites
    use the kernel of their family, others NumPyro's log_prob; a factor contributes its value.

    Args:
        env: name → values of the parents, in NumPyro's layout for one row.
        x: values of the site, (*cells). observed: whether each cell is observed; None: all are.
    """
    if site.traits.direct is None and site.family is not None and site.discrete:
        natural = site.family.natural(structure.cells(site.name, env), 0.0)
        return _kernel_log_density(site, natural, cells(site, x[None]),
                                   None if observed is None else cells(site, observed[None]))
    return log_densities(structure, site, env, x, observed).sum()


def _kernel_log_density(site: Site, natural: PyTree, x: jax.Array,
                        mask: jax.Array | None) -> jax.Array:
    batched = jax.tree.map(lambda leaf: leaf[None], natural)
    return present(site.family).log_density(batched, x, mask)[0, 0]


def log_densities(structure: Structure, site: Site, env: Mapping, x: jax.Array | None,
                  observed: jax.Array | None) -> jax.Array:
    """Returns the log density of each lattice cell, (lattice cells,); a missing cell adds 0. The
    arguments are those of `log_density`."""
    if site.factor:
        (value,) = structure.arguments(site.name, env).values()
        return site.layout(value, 0)
    x = present(x)
    if site.traits.direct is not None:
        arguments = structure.cells(site.name, env)
        return site.traits.direct(arguments, cells(site, x[None])[0],
                                  None if observed is None else cells(site, observed[None])[0])
    if site.family is not None and site.discrete:
        natural = site.family.natural(structure.cells(site.name, env), 0.0)
        operands = (natural, cells(site, x[None])[0], None if observed is None else cells(
            site, observed[None])[0])
        inputs = jax.tree.map(lambda leaf: jnp.broadcast_to(
            leaf, (math.prod(site.lattice), *leaf.shape[1:]))[:, None], operands)
        return jax.vmap(lambda natural, x, mask: _kernel_log_density(
            site, natural, x[None], None if mask is None else mask[None]))(*inputs)
    distribution = structure.distribution(site.name, env)
    if observed is not None and site.traits.fill is not None:
        x, observed = (cells(site, leaf[None])[0] for leaf in (x, observed))
        loc, covariance = (site.layout(distribution.loc, 1),
                           site.layout(distribution.covariance_matrix, 2))
        return marginal_log_density(loc, covariance, x, observed)
    log = site.layout(supported(distribution, site.valued(site.place(x))), 0)
    if observed is not None:
        log = jnp.where(cells(site, observed[None])[0].reshape(len(log), -1).all(-1), log, 0.0)
    return log


def log_weight(structure: Structure, name: str, env: Mapping) -> jax.Array:
    """Returns the log weight of a numpyro.factor, summed over its cells."""
    site, (value,) = structure.sites[name], structure.arguments(name, env).values()
    return jnp.broadcast_to(value, site.shape).sum()


def log_masses(structure: Structure, name: str, env: Mapping) -> jax.Array:
    """Returns the log probability of each value of a site with finite support, for one row:
    (lattice cells, values)."""
    site = structure.sites[name]
    if site.family is not None and site.states is not None:
        return site.family.natural(structure.cells(name, env), 0.0)["log"]
    return site.layout(finite.log_masses(structure.distribution(name, env), site.low,
                                         present(site.finite), site.shape), 1)


def ahead(structure: Structure, name: str) -> tuple[str, ...]:
    """Returns the parents of a site that do not precede it: the site itself, if a step of a loop
    depends on the previous step, and sites of later steps."""
    order = {other: i for i, other in enumerate(structure.sites)}
    return tuple(p for p in structure.programs[name][1] if order.get(p, -1) >= order[name])


def example(structure: Structure, name: str) -> dict[str, np.ndarray]:
    """Returns example inputs for the program of a site's arguments, name → array, with distinct,
    nonzero numbers. Codes are 0."""
    program, input_names = structure.programs[name]
    env = {}
    for i, (key, spec) in enumerate(zip(input_names, program.in_avals, strict=True)):
        ramp = 0.31 + 0.07 * i + 0.4 * np.linspace(0, 1, spec.size).reshape(spec.shape)
        env[key] = (ramp if np.issubdtype(spec.dtype, np.floating)
                    else np.zeros(spec.shape)).astype(spec.dtype)
    return env


@jit(static_argnums=0, seldom=ASKED)
def deterministics_at(structure: Structure, env: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the deterministics outside rows, name → array, at one value of the sites outside
    rows."""
    return {name: structure.computed(name, env) for name in structure.derived}


@jit(static_argnums=0, seldom=ASKED)
def identified_at(structure: Structure, env: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the functions of the sites that the model declares to be identified
    (`model.identifies`), name → array, at one value of the sites."""
    return present(structure.model.identified_by)(env)


@jit(static_argnums=0, seldom=ASKED)
def deterministics_at_each(structure: Structure, draws: Mapping[str, jax.Array],
            fixed: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the deterministics outside rows at each draw, name → (draws, ...).

    Args:
        draws: site → (draws, ...). fixed: site → one value for all draws.
    """
    return jax.vmap(lambda draw: deterministics_at(structure, {**fixed, **draw}))(draws)


def over_grid(function: Callable[..., PyTree], env: Mapping, values: Mapping[str, jax.Array],
              *along: PyTree, axis: int = 0) -> PyTree:
    """function(env with each name at each of its values, *along): one leading axis per name;
    `along` have such axes, from `axis` on."""

    def at(states: tuple[jax.Array, ...], along: tuple) -> PyTree:
        return function({**env, **dict(zip(values, states, strict=True))}, *along)

    for i in reversed(range(len(values))):
        at = jax.vmap(at, (tuple(0 if j == i else None for j in range(len(values))), axis))
    return at(tuple(values.values()), along)
