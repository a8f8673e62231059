"""Expectations under independent conjugate blocks: values of the parameters over which a mean is an
expectation.

What a block's form says of log densities is linear in its statistics, so that any function of
several blocks that is made of log densities is affine in the statistics of each. Nodes of a block
(`Form.nodes`) are values over which every statistic has its expectation as a mean; over the grid of
the nodes of blocks that meet in a site, such a function has. Blocks that do not meet share an axis
of the grid. So whatever a model says of its parameters is averaged exactly, by evaluating it, and
no product of families needs a formula (Winn & Bishop 2005, "Variational message passing", writes
them out by hand).
"""

import functools
import itertools
from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np

from probml.families.links import backward
from probml.plan.blocks import Block, blocks, users
from probml.plan.plan import Plan
from probml.posteriors.conjugate import Marginals
from probml.posteriors.coupling import coupled


@functools.lru_cache(maxsize=256)
def meeting(plan: Plan) -> frozenset[tuple[str, str]]:
    """The pairs of blocks, by their first names, that meet in the density of a site; both ways."""
    own = {name: block.names[0] for stage in blocks(plan, True) for block in stage
           for name in block.names}
    pairs = set()
    for user in users(plan):
        near = {user, *(name for uses in plan.structure.sites[user].uses.values()
                        for name in uses)}
        pairs |= set(itertools.permutations({own[name] for name in near if name in own}, 2))
    return frozenset(pairs)


def settings(marginals: Marginals, without: Collection[str] = ()) -> dict[str, jax.Array]:
    """Values of the parameters of all blocks but some, (s, ...), over which the mean of a function
    as above is its expectation.

    Args:
        without: first names of blocks that are left out; a location that is normal given one of
            them is taken at the posterior's reference.

    Returns:
        parameter → (s, *shape); s is 1 where one setting will do.
    """
    plan = marginals.plan
    wanted = [block for block in marginals.blocks if block.names[0] not in without]
    single = {block.names[0]: _nodes(marginals, block) for block in wanted
              if not block.form.joint}
    counts = {block.names[0]: len(single[block.names[0]]) if block.names[0] in single
              else len(simplex(block, marginals)) for block in wanted}
    place = _placed(plan, counts)
    axes = [count for _, count in sorted(set(place.values()))]
    at = np.stack(np.meshgrid(*map(np.arange, axes), indexing="ij"),
                  -1).reshape(-1, len(axes)) if axes else np.zeros((1, 0), int)
    where = {name: at[:, number] for name, (number, _) in place.items()}
    out = {name: values[where[name]] if name in where
           else jnp.broadcast_to(values[0], (len(at), *values.shape[1:]))
           for name, values in single.items()}
    for block in (block for block in wanted if block.form.joint):
        noise, scale = simplex(block, marginals)[where[block.names[0]]], coupled(plan, block)
        if scale in out:
            found = jax.vmap(lambda noise, value, block=block, scale=scale: marginals.placed(
                block, noise, {**marginals.posterior.params, scale: value}
            ))(noise, out[scale])
        else:
            found = jax.vmap(lambda noise, block=block: marginals.placed(
                block, noise, marginals.posterior.params
            ))(noise)
        out |= found
    return out


def _placed(plan: Plan, counts: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Block → its axis of the grid and how long that is; none for a single node. Blocks that meet
    have different ones."""
    met, place = meeting(plan), {}
    for name, count in counts.items():
        if count == 1:
            continue
        taken = {place[other] for other in place if (name, other) in met}
        free = (axis for axis in place.values() if axis[1] == count and axis not in taken)
        place[name] = next(free, (len(set(place.values())), count))
    return place


def _nodes(marginals: Marginals, block: Block) -> jax.Array:
    """A block's nodes as values of its parameter."""
    from_c = block.form.nodes(marginals.natural[block.names],
                              marginals.plan.structure.sites[block.names[0]].entry.prior)
    return backward(from_c, block.steps)


def simplex(block: Block, marginals: Marginals) -> np.ndarray:
    """Standard deviations at which a quadratic has its mean over a standard normal: ±1 of numbers
    that do not meet, else the corners of a regular simplex, (d + 1, ...)."""
    loc = marginals.natural[block.names]["loc"]
    if block.event == 0:
        corners = np.ones(loc.shape)
        return np.stack([corners, -corners]).astype(loc.dtype)
    d = loc.shape[-1]
    helmert = np.tril(np.ones((d + 1, d + 1)))[1:]  # rows that are orthogonal to all before
    helmert[np.arange(d), np.arange(1, d + 1)] = -np.arange(1, d + 1)
    helmert /= np.linalg.norm(helmert, axis=1, keepdims=True)
    corners = np.sqrt(d + 1) * helmert.T
    shape = (d + 1, *(1,) * (loc.ndim - 1), d)
    return np.broadcast_to(corners.reshape(shape), (d + 1, *loc.shape)).astype(loc.dtype)
