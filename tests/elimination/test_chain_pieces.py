"""Sums over chains whose emissions are made piece by piece: as those of chains that are all there,
which test_chains.py holds to enumeration."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.elimination.chains import paths
from probml.elimination.chains import sums as chains
from probml.elimination.chains.arithmetic import Chain, ScanLayout
from probml.elimination.chains.walk import Pieces, Tables

ROWS, STEPS, OUTER, STATES, SIZE = 3, 96, 2, 3, 6
TOL = {np.float64: 1e-10, np.float32: 1e-4}


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


def emit(shared, told, own, fixed):
    own, blank = own
    blank = jnp.moveaxis(blank.reshape(SIZE, -1, OUTER, STATES), 1, -1)
    return own + blank + shared * told + fixed


def blank_of(own):
    """0 of every step, lane after lane."""
    return jnp.zeros((own.shape[-1], len(own), OUTER,
                      STATES), own.dtype)


def whole(blocks, initial, transition, shared, own, alive, told):
    return chains.evidence(Chain(initial, transition, own + shared * told, alive), ScanLayout(blocks))


def apart(blocks, initial, transition, shared, own, alive, told):
    count = len(own) // SIZE
    cut = own.reshape(count, SIZE, *own.shape[1:])
    return chains.in_pieces(emit, ScanLayout(blocks), Tables(initial, transition, alive), Pieces(
        shared, told, cut, jnp.zeros((count, SIZE, 1, 1, 1), own.dtype), blank_of(own)))


@functools.partial(jax.jit, static_argnums=(0, 1))
def asked(way, blocks, *arguments):
    """log evidence, and its slopes in each row's share."""
    share = jnp.asarray(np.random.default_rng(5).random((OUTER, ROWS)), arguments[0].dtype)

    def total(*logs):
        log = way(blocks, *logs, *arguments[4:])
        return (jnp.where(jnp.isfinite(log), log, 0.0) * share).sum(), log

    slopes, log = jax.grad(total, (0, 1, 2, 3), has_aux=True)(*arguments[:4])
    return log, slopes


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("blocks", "sticky"), [(1, False), (4, False), (4, True)])
def test_a_sum_in_pieces_and_its_slopes_are_those_of_the_whole(blocks, sticky, ragged, precision):
    held = problem(precision, sticky, ragged, blocks)
    shared = jnp.asarray(np.random.default_rng(1).normal(size=(OUTER, STATES, 1)), precision)
    arguments = (*held[:2], shared, held.emission, held.alive, jnp.asarray(0.3, precision))
    (log, slopes), (want, expected) = (asked(way, blocks, *arguments) for way in (apart, whole))
    np.testing.assert_allclose(log, want, rtol=TOL[precision])
    assert np.isneginf(want[0, 2]) and np.isfinite(want[1]).all()
    for found, right in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(found.reshape(right.shape), right, rtol=TOL[precision],
                                   atol=TOL[precision])


@functools.partial(jax.jit, static_argnums=0)
def paths_of(blocks, held):
    """The best paths in pieces, and those of the whole."""
    count, own = STEPS // blocks // SIZE, held.emission
    cut = own.reshape(count, SIZE, *own.shape[1:])
    nothing = jnp.zeros((count, SIZE, 1, 1, 1), own.dtype)
    return paths.in_pieces(
        emit, ScanLayout(blocks), Tables(held.initial, held.transition, held.alive),
        Pieces(nothing[0, 0], nothing[0, 0], cut, nothing, blank_of(own)),
    ), paths.maximise(held, ScanLayout(blocks))


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("blocks", "sticky"), [(1, False), (4, False), (4, True)])
def test_a_path_in_pieces_is_that_of_the_whole(blocks, sticky, ragged, precision):
    held = problem(precision, sticky, ragged, blocks)
    (value, states), (want, path) = paths_of(blocks, held)
    np.testing.assert_array_equal(states, path)
    np.testing.assert_allclose(value, want, rtol=TOL[precision])
    assert np.isneginf(want[0, 2]) and len(np.unique(path[:, 1])) > 1


def test_several_parameters_at_once_are_each_by_itself():
    held = problem(np.float64, False, True, 4)
    shared = jnp.asarray(np.random.default_rng(2).normal(size=(2, OUTER, STATES, 1)))

    def one(shared):
        return asked.__wrapped__(apart, 4, *held[:2], shared, held.emission, held.alive,
                                 jnp.asarray(1.0))

    together = jax.jit(jax.vmap(one))(shared)
    each = [jax.jit(one)(own) for own in shared]
    for found, *right in zip(jax.tree.leaves(together), *map(jax.tree.leaves, each), strict=True):
        np.testing.assert_allclose(found, np.stack(right), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("blocks", [1, 4])
def test_slopes_of_slopes_are_those_of_the_whole(blocks):
    held = problem(np.float64, False, True, blocks)
    shared = jnp.asarray(np.random.default_rng(1).normal(size=(OUTER, STATES, 1)))
    along = jnp.asarray(np.random.default_rng(6).normal(size=shared.shape))

    def curved(way):
        def slope(shared):
            return jax.grad(lambda shared: jnp.where(
                jnp.isfinite(log := way(blocks, *held[:2], shared, held.emission, held.alive,
                                        jnp.asarray(1.0))), log, 0.0).sum())(shared)

        return jax.jit(lambda at: jax.jvp(slope, (at,), (along,)))(shared)

    for found, right in zip(curved(apart), curved(whole), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-9)
