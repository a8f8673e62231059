"""Sums over chains in blocks at several parameters at once: each goes through as many pieces as it
needs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from probml.elimination.chains import sums as chains
from probml.elimination.chains.arithmetic import Chain, ScanLayout

ROWS, STEPS, OUTER, STATES = 3, 96, 2, 3


def problem(precision, sticky, ragged, blocks):
    """Two chains a row, of unequal lengths: one ends in its first block, one before a block."""
    random = np.random.default_rng(3)
    moves = (random.dirichlet(np.ones(STATES), (OUTER, STATES)) * (1e-4 if sticky else 0.6)
             + np.eye(STATES) * (1 - 1e-4 if sticky else 0.4))
    moves[1, 0] = [0.0, 0.5, 0.5]
    with np.errstate(divide="ignore"):
        transition = np.log(moves)
    initial = np.log(random.dirichlet(np.ones(STATES), (OUTER, ROWS)).swapaxes(1, 2))
    emission = (0.01 if sticky else 2.0) * random.normal(size=(ROWS, STEPS, OUTER, STATES))
    emission[2, 40, 0] = -np.inf  # an impossible sequence
    lengths = np.array([STEPS, STEPS // 4, 41 if ragged else STEPS])

    def lanes(array):
        array = array.reshape(ROWS, blocks, STEPS // blocks, *array.shape[2:])
        array = np.moveaxis(array, 2, 0)
        return np.moveaxis(array.reshape(len(array), ROWS * blocks, *array.shape[3:]), 1, -1)

    alive = lanes(np.arange(STEPS) < lengths[:, None]) if ragged else None
    leaves = (initial, transition[None, ..., None], lanes(emission))
    return Chain(*(jnp.asarray(leaf, precision) for leaf in leaves),
                 None if alive is None else jnp.asarray(alive))


def whole(blocks, initial, transition, shared, own, alive, told):
    return chains.evidence(Chain(initial, transition, own + shared * told, alive), ScanLayout(blocks))


@functools.partial(jax.jit, static_argnums=(0, 1))
def asked(way, blocks, *arguments):
    """log evidence, and its slopes in each row's share."""
    share = jnp.asarray(np.random.default_rng(5).random((OUTER, ROWS)), arguments[0].dtype)

    def total(*logs):
        log = way(blocks, *logs, *arguments[4:])
        return (jnp.where(jnp.isfinite(log), log, 0.0) * share).sum(), log

    slopes, log = jax.grad(total, (0, 1, 2, 3), has_aux=True)(*arguments[:4])
    return log, slopes


def test_several_parameters_at_once_are_each_by_itself():
    held = problem(np.float64, False, True, 4)
    shared = jnp.asarray(np.random.default_rng(2).normal(size=(2, OUTER, STATES, 1)))

    def one(shared):
        return asked.__wrapped__(whole, 4, *held[:2], shared, held.emission, held.alive,
                                 jnp.asarray(1.0))

    together = jax.jit(jax.vmap(one))(shared)
    each = [jax.jit(one)(own) for own in shared]
    for found, *right in zip(jax.tree.leaves(together), *map(jax.tree.leaves, each), strict=True):
        np.testing.assert_allclose(found, np.stack(right), rtol=1e-12, atol=1e-12)
