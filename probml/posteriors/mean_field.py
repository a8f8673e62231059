"""Expectations under independent conjugate blocks, as means over values of the parameters (an exact
cubature).

Log densities are linear in the statistics of each block, so that any function of several blocks
that is made of log densities is affine in the statistics of each. Nodes of a block (`Form.nodes`)
are values over which the mean of every statistic is its expectation; over the grid of the nodes of
blocks that occur in the density of the same site, that holds for such functions. Other blocks share
an axis of the grid. So expectations of log densities are exact, by evaluating the model, and no
pair of families needs a formula (Winn & Bishop 2005, "Variational message passing", has them one by
one).
"""

import itertools
from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np

from probml.evidence.e_step import Settings
from probml.families.form import backward
from probml.jaxpr.memo import memo
from probml.plan.blocks import Block, all_blocks, users
from probml.plan.plan import Plan
from probml.posteriors.conjugate import Marginals, coupled

NOISE = ""  # differs from the names of parameters


@memo(256)
def meeting(plan: Plan) -> frozenset[tuple[str, str]]:
    """The pairs of blocks, by their first names, that occur in the density of the same site; both
    ways."""
    own = {name: block.names[0] for block in all_blocks(plan, True)
           for name in block.names}
    pairs = set()
    for user in users(plan):
        near = {user, *(name for uses in plan.structure.sites[user].uses.values()
                        for name in uses)}
        pairs |= set(itertools.permutations({own[name] for name in near if name in own}, 2))
    return frozenset(pairs)


def settings(marginals: Marginals, without: Collection[str] = ()) -> Settings:
    """Values of the parameters of all blocks but some, over which the mean of a function of log
    densities is its expectation.

    Args:
        without: first names of blocks that are left out; a location that is normal given one of
            them is that at the posterior's reference.
    """
    plan = marginals.plan
    wanted = [block for block in marginals.blocks if block.names[0] not in without]
    nodes = {block.names[0]: simplex(block, marginals) if block.closed_form.joint
             else _nodes(marginals, block) for block in wanted}
    place, sizes = _placed(plan, {name: len(values) for name, values in nodes.items()})

    def axes(name: str) -> tuple[int, ...]:
        """The shape of a block's values on the grid."""
        return tuple(size if i == place.get(name) else 1 for i, size in enumerate(sizes))

    out = {}
    for block in (block for block in wanted if not block.closed_form.joint):
        name = block.names[0]
        out[name] = nodes[name].reshape(*axes(name), *nodes[name].shape[1:])
    for block in (block for block in wanted if block.closed_form.joint):
        name, scale = block.names[0], coupled(plan, block)
        known = {scale: out[scale]} if scale in out else {}
        # along its own axis, and along that of the scale on which it is conditional
        noise = jnp.asarray(nodes[name]).reshape(*axes(name), *nodes[name].shape[1:])
        grid = Settings({NOISE: noise, **known}, sizes)
        out |= grid.map_grid(lambda at, block=block: marginals.placed(
            block, at[NOISE], {**marginals.posterior.params, **at}))
    return Settings(out, sizes)


def _placed(plan: Plan, counts: dict[str, int]) -> tuple[dict[str, int], tuple[int, ...]]:
    """Block → its axis of the grid, none for a single node; and the sizes of these axes. Blocks of
    the same site have different ones."""
    met, place, sizes = meeting(plan), {}, []
    for name, count in counts.items():
        if count == 1:
            continue
        taken = {place[other] for other in place if (name, other) in met}
        free = (axis for axis, size in enumerate(sizes) if size == count and axis not in taken)
        place[name] = next(free, len(sizes))
        if place[name] == len(sizes):
            sizes.append(count)
    return place, tuple(sizes)


def _nodes(marginals: Marginals, block: Block) -> jax.Array:
    """A block's nodes as values of its parameter."""
    from_c = block.closed_form.nodes(marginals.natural[block.names],
                                     marginals.prior(block.names[0]))
    return backward(from_c, block.steps)


def simplex(block: Block, marginals: Marginals) -> np.ndarray:
    """Standard normal values over which the mean of a quadratic function is its expectation: ±1 for
    independent numbers, else the corners of a regular simplex, (d + 1, ...)."""
    loc = marginals.natural[block.names]["loc"]
    if block.event == 0:
        corners = np.ones(loc.shape)
        return np.stack([corners, -corners]).astype(loc.dtype)
    apart = np.array(block.vectors) if block.vectors else None  # vectors that do not interact
    d = loc.shape[-1] if apart is None else apart.shape[1]
    helmert = np.tril(np.ones((d + 1, d + 1)))[1:]  # rows that are orthogonal to all before
    helmert[np.arange(d), np.arange(1, d + 1)] = -np.arange(1, d + 1)
    helmert /= np.linalg.norm(helmert, axis=1, keepdims=True)
    corners = np.sqrt(d + 1) * helmert.T
    if apart is not None:
        out = np.zeros((d + 1, *loc.shape), loc.dtype)
        out[:, apart] = corners[:, None, :]
        return out
    shape = (d + 1, *(1,) * (loc.ndim - 1), d)
    return np.broadcast_to(corners.reshape(shape), (d + 1, *loc.shape)).astype(loc.dtype)
