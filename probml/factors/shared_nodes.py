"""One number a row, integrated at nodes that are the same in every row: log densities of all rows
at all nodes by products of matrices, as of a hidden state with so many values.

With nodes z_j and what each stands for w_j, T(x) the one-hot rows of what is seen and η(z) the log
tables of its sites,

    log p(x_i) ≈ log Σ_j exp(log w_j + T(x_i) · η(z_j)).

Whether the nodes are dense enough is tested in every row: the rules of every third node must agree.
Those are off by e^{−a/3} where all nodes are by e^{−a} (of a density that is analytic in a strip;
of a normal one by e^{−a/9}), and three of them show it wherever the peak lies between two nodes.
Where one row of a chunk is too narrow, or lies at the outermost nodes, the chunk is integrated
about each row's own mode (latents/quadrature.py).
"""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known
from probml.errors import present
from probml.factors.naturals import environment, over_states
from probml.latents.latent import Group, is_row_free
from probml.numerics.logs import exp_below, finite_max, log_of
from probml.plan.plan import TABLE, Plan
from probml.structure.densities import cells

APART = 0.03  # relative difference of three rules of every third node: all nodes are off by 1e-5
EDGE = 1e-8  # share of a row that may lie at the outermost nodes


def message(plan: Plan, params: Mapping, known: Known, rows: Chunk,
            group: Group) -> tuple[jax.Array, jax.Array] | None:
    """log p(data of a group | states), (b, *states), and whether it is accurate in all rows of
    positive weight; None where rows differ in more than their observed values, or a kind has no
    such nodes.

    Cost: rows × nodes × values of all seen cells, and its gradient as much again.
    """
    shared_nodes = getattr(group.kind, "shared_nodes", None)
    if shared_nodes is None or not _has_common_program(plan, group, rows):
        return None
    structure, sites, reach = plan.structure, plan.structure.sites, plan.group_scope(group)
    children = [name for name in group.sites if name in rows.values]
    size = sum(math.prod(sites[name].cells) for name in children)

    def at(env: dict) -> tuple | None:
        result = shared_nodes(structure, group, env, size)
        if result is None:
            return None

        def natural(value: jax.Array) -> dict:
            node_env = {**env, group.name: sites[group.name].place(value)}
            return {name: sites[name].traits.natural(structure.cells(name, node_env), 0.0)
                    for name in children}

        return result[1], jax.vmap(natural)(result[0])

    result = over_states(plan, at, environment(plan, params, known), reach)
    if result is None:
        return None
    logs, natural = result
    nodes, lead = logs.shape[-1], len(reach) + 1
    entries = logs.size * sum(
        int(math.prod(sites[name].cells)) * present(sites[name].states) for name in children)
    if entries > TABLE:
        return None
    total = logs.reshape(1, -1)
    for name in children:
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[lead:]), natural[name])
        x, mask = cells(sites[name], rows.values[name]), rows.observed.get(name)
        total = total + sites[name].traits.log_density(
            flat, x, None if mask is None else cells(sites[name], mask))
    total = jnp.broadcast_to(total, (len(rows.weights), total.shape[1]))
    return _summed(total.reshape(len(total), *logs.shape[:-1], nodes), rows.weights)


def _has_common_program(plan: Plan, group: Group, rows: Chunk) -> bool:
    """Whether the programs of a group take nothing of a row but its one latent number and states,
    none of it observed, and its children have finitely many values."""
    sites = plan.structure.sites
    if len(group.names) != 1 or group.cellwise or group.name in rows.values:
        return False
    finite = all(name == group.name or sites[name].family is not None
                 and sites[name].states is not None and not sites[name].factor
                 for name in group.sites)
    return finite and is_row_free(plan.structure, group.sites, (group.name, *plan.variables))


def _summed(total: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """log Σ exp over nodes, and whether every third of them would do in all rows of positive
    weight."""
    top = finite_max(total, -1)
    mass = exp_below(total - top)
    thirds = mass.reshape(*mass.shape[:-1], -1, 3).sum(-2)
    sum_mass = thirds.sum(-1)
    gap = 3 * (thirds.max(-1) - thirds.min(-1))
    accurate = (gap <= APART * sum_mass) & (mass[..., 0] + mass[..., -1] <= EDGE * sum_mass)
    accurate |= jnp.isneginf(total).all(-1)  # impossible at every node
    has_weight = (weights > 0).reshape(-1, *(1,) * (accurate.ndim - 1))
    return log_of(sum_mass) + top[..., 0], jax.lax.stop_gradient(jnp.all(accurate | ~has_weight))
