"""Sites whose rows pool: natural parameters and rows → factors, by one product a chunk."""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known
from probml.elimination.factor import Factor
from probml.errors import present
from probml.families.marginal_normal import Unseen
from probml.plan.plan import Plan
from probml.structure.densities import cells
from probml.structure.site import Site
from probml.typing import PyTree

SLICES = 64  # states of observed parents up to which all are evaluated and one is picked


def _observed(plan: Plan, rows: Chunk, name: str) -> jax.Array | None:
    return cells(plan.structure.sites[name], rows.observed[name]) if name in rows.observed else None


def at_level(plan: Plan, rows: Chunk, name: str) -> Chunk:
    """The rows that a site's own factor has: those of the data, or their steps."""
    return rows.along.rows if name in plan.steps else rows


def _log_densities(site: Site, natural: Mapping[str, jax.Array], x: jax.Array,
                   mask: jax.Array | None, unseen: Unseen | None) -> jax.Array:
    """A kernel at cells of rows, (b, p); `unseen` is for the families that integrate coordinates
    out."""
    density: Callable = site.traits.log_density
    return density(natural, x, mask, *(() if unseen is None else (unseen,)))


def in_slices(tables: PyTree, parents: tuple[str, ...], sliced: list[str], rows: Chunk) -> PyTree:
    """Tables over discrete parents at the observed states of some of them: (rows or 1, *states of
    the other parents, ...)."""
    axes = [parents.index(p) for p in sliced]
    codes = tuple(rows.values[p].reshape(-1) for p in sliced)
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axes, range(len(axes)))[codes]
                        if sliced else leaf[None], tables)


def pooled_factor(plan: Plan, natural: PyTree, rows: Chunk, name: str) -> Factor:
    site, parents, scope = plan.structure.sites[name], plan.discrete_parents(name), plan.scope(name)
    sliced = [p for p in parents if p not in plan.variables]
    is_variable = name in plan.variables
    slices = math.prod(present(plan.structure.sites[p].states) for p in sliced)
    if sliced and not is_variable and slices <= SLICES:
        return Factor(_at_observed(plan, natural, rows, name, sliced), scope)
    if is_variable:
        return Factor(in_slices(natural, parents, sliced, rows), scope)
    shape = tuple(plan.variables[p].states for p in scope)
    x, mask, unseen = cells(site, rows.values[name]), _observed(plan, rows,
                                                                name), rows.missing.get(name)
    size, n_axes = math.prod(shape), len(parents) - len(sliced)
    if not sliced:
        flat = jax.tree.map(lambda leaf: leaf.reshape(size, *leaf.shape[n_axes:]), natural)
        value = _log_densities(site, flat, x, mask, unseen)
    else:
        flat = jax.tree.map(lambda leaf: leaf.reshape(len(leaf), size, *leaf.shape[1 + n_axes :]),
                            in_slices(natural, parents, sliced, rows))
        single_rows = jax.tree.map(lambda leaf: leaf[:, None],
                                   (x, mask, unseen and unseen._replace(most=None, tiles=None)))
        value = jax.vmap(lambda n, row: _log_densities(site, n, *row)[0])(flat, single_rows)
    return Factor(value.reshape(len(x), *shape), scope)


def _at_observed(plan: Plan, natural: Mapping[str, jax.Array], rows: Chunk, name: str,
                 sliced: list[str]) -> jax.Array:
    """A pooled factor at the observed states of some parents: all states by one product, then the
    observed one; its gradient is a product too, where a gather's would be a serial scatter."""
    site, parents = plan.structure.sites[name], plan.discrete_parents(name)
    order = [parents.index(p) for p in sliced] + [i for i, p in enumerate(parents)
                                                  if p not in sliced]
    sizes = [present(plan.structure.sites[p].states) if p in sliced else plan.variables[p].states
             for p in parents]
    shape = [sizes[i] for i in order]

    def flat(leaf: jax.Array):
        leaf = jnp.transpose(leaf, (*order, *range(len(parents), leaf.ndim)))
        return leaf.reshape(math.prod(shape), *leaf.shape[len(parents) :])

    x, mask, unseen = cells(site, rows.values[name]), _observed(plan, rows,
                                                                name), rows.missing.get(name)
    value = _log_densities(site, jax.tree.map(flat, natural), x, mask, unseen)
    count = math.prod(shape[: len(sliced)])
    code = jnp.ravel_multi_index(tuple(rows.values[p].reshape(-1) for p in sliced),
                                 shape[: len(sliced)], mode="clip")
    hot = code[:, None] == jnp.arange(count)
    value = jnp.where(hot[..., None], value.reshape(len(code), count, -1), 0.0).sum(1)
    return value.reshape(len(code), *shape[len(sliced) :])


def predictive_factor(plan: Plan, known: Known, rows: Chunk, name: str,
                      arguments: Mapping[str, jax.Array]) -> Factor:
    """The factor of a site whose parameters are integrated out, by its family's predictive;
    arguments over its table, (*states, cells, ...)."""
    site, parents, scope = plan.structure.sites[name], plan.discrete_parents(name), plan.scope(name)
    x, mask = cells(site, rows.values[name]), _observed(plan, rows, name)
    if name in known.centre:
        # as the data are: float32 at large offsets
        arguments = {**arguments, "loc": arguments["loc"] - known.centre[name]}
    sliced = [p for p in parents if p not in plan.variables]
    if sliced:
        arguments = in_slices(arguments, parents, sliced, rows)
    x = x.astype(jnp.result_type(float))
    if not sliced and site.traits.predictive_sum is not None and x.ndim == 2:
        flat = {a: v.reshape(-1, v.shape[-1]) for a, v in arguments.items()}
        value = site.traits.predictive_sum(flat, x, mask)
        if value is not None:
            return Factor(value.reshape(len(x), *(plan.variables[p].states for p in scope)), scope)
    x, mask = (v if v is None else v.reshape(len(v), *(1,) * len(scope), *v.shape[1:])
               for v in (x, mask))
    return Factor(present(site.traits.predictive)(arguments, x, mask).sum(-1), scope)
