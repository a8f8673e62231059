"""Elimination along time, on arrays: against enumeration of every path, cut into any number of
blocks, joined in turn or associatively."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.elimination.chains import paths as chain_best
from probml.elimination.chains import paths as chain_paths
from probml.elimination.chains import sums as chains
from probml.elimination.chains.arithmetic import Chain, ScanLayout

ROWS, STEPS, OUTER, STATES = 3, 6, 2, 3
# blocks, parallel, wide
WAYS = [(1, False, False), (3, False, False), (6, True, False), (1, False, True)]


def enumerate_paths(initial, transition, emission):
    """log evidence, state and pair marginals, the best path and its log weight, and the probability
    of every path."""
    steps, k = emission.shape
    paths = np.indices((k,) * steps).reshape(steps, -1).T
    logs = initial[paths[:, 0]] + emission[np.arange(steps), paths].sum(1)
    logs += transition[np.arange(1, steps), paths[:, :-1], paths[:, 1:]].sum(1)
    total = np.logaddexp.reduce(logs)
    q = np.exp(logs - total) if np.isfinite(total) else np.zeros(len(logs))
    hot = np.eye(k)[paths]
    pair = np.zeros((steps, k, k))
    pair[1:] = np.einsum("p,pti,ptj->tij", q, hot[:, :-1], hot[:, 1:])
    return total, np.einsum("p,pti->ti", q, hot), pair, tuple(paths[logs.argmax()]), logs.max(), q


def lanes(array, blocks):
    """(rows, steps, ...) → (L, ..., M)."""
    rows, steps = array.shape[:2]
    array = np.moveaxis(array.reshape(rows, blocks, steps // blocks, *array.shape[2:]), 2, 0)
    return jnp.asarray(np.moveaxis(array.reshape(steps // blocks, rows * blocks, *array.shape[3:]),
                                   1, -1))


def back(states, blocks):
    """(L, G, M) → (rows, steps, G)."""
    states = np.asarray(states)
    length, outer, m = states.shape
    return states.reshape(length, outer, m // blocks,
                          blocks).transpose(2, 3, 0, 1).reshape(m // blocks, length * blocks, outer)


@functools.cache
def problem(varying, ragged):
    random = np.random.default_rng(varying + 2 * ragged)
    initial = np.log(random.dirichlet(np.ones(STATES), (ROWS, OUTER)))
    transition = random.dirichlet(np.ones(STATES), (ROWS, STEPS, OUTER, STATES))
    transition[random.random(transition.shape) < 0.15] = 0
    transition[..., 0] += transition.sum(-1) == 0
    transition /= transition.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        transition = np.log(transition)
    if not varying:
        transition = np.broadcast_to(transition[:1, :1], transition.shape)
    emission = 3 * random.normal(size=(ROWS, STEPS, OUTER, STATES))
    emission[0, 2, :, 1] = -np.inf
    emission[1, 1, 0] = -np.inf  # an impossible sequence
    return initial, transition, emission, np.array([6, 4, 0]) if ragged else np.full(ROWS, STEPS)


@functools.cache
def truth(varying, ragged):
    initial, transition, emission, lengths = problem(varying, ragged)
    cells = [(row, g) for row in range(ROWS) for g in range(OUTER) if lengths[row]]
    return {(r, g): enumerate_paths(initial[r, g], transition[r, :, g],
                                    emission[r, : lengths[r], g]) for r, g in cells}


def chain(initial, transition, emission, lengths, varying, blocks):
    alive = None if (lengths == STEPS).all() else lanes(np.arange(STEPS) < lengths[:, None], blocks)
    moves = lanes(transition, blocks) if varying else jnp.asarray(transition[0, :1][..., None])
    return Chain(jnp.asarray(initial.transpose(1, 2, 0)), moves, lanes(emission, blocks), alive)


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("blocks", "parallel", "wide"), WAYS)
def test_evidence_its_gradient_and_the_best_path_equal_enumeration(varying, ragged, blocks,
                                                                   parallel, wide):
    initial, transition, emission, lengths = problem(varying, ragged)
    held = chain(initial, transition, emission, lengths, varying, blocks)
    share = np.random.default_rng(5).random((OUTER, ROWS))

    def total(initial, transition, emission):
        log = chains.evidence(Chain(initial, transition, emission, held.alive),
                              ScanLayout(blocks, parallel, wide))
        return (jnp.where(jnp.isfinite(log), log, 0.0) * share).sum(), log

    def hardest(emission):
        value = chain_best.best(held._replace(emission=emission), blocks)
        return jnp.where(jnp.isfinite(value), value, 0.0).sum()

    @jax.jit
    def all_at_once(held):
        slopes, log = jax.grad(total, (0, 1, 2), has_aux=True)(*held[:3])
        return (slopes, log, chain_best.maximise(held, ScanLayout(blocks, parallel)),
                jax.value_and_grad(hardest)(held.emission))

    slopes, log, (best, states), (hard, one_hot) = all_at_once(held)
    states, one_hot = back(states, blocks), np.asarray(one_hot)
    first, pairs, each = (np.zeros((OUTER, STATES, ROWS)), np.zeros((*transition.shape,)),
                          np.zeros(emission.shape))
    total_best = 0.0
    for row, g in itertools.product(range(ROWS), range(OUTER)):
        n = lengths[row]
        if n == 0:
            assert log[g, row] == 0 and best[g, row] == 0
            continue
        want, state, pair, path, peak, _ = truth(varying, ragged)[row, g]
        np.testing.assert_allclose(log[g, row], want, atol=1e-10)
        np.testing.assert_allclose(best[g, row], peak, atol=1e-10)
        if np.isfinite(want):
            assert tuple(states[row, :n, g]) == path
            total_best += peak
            first[g, :, row] = state[0] * share[g, row]
            each[row, :n, g], pairs[row, :n, g] = state * share[g, row], pair * share[g, row]
    np.testing.assert_allclose(slopes[0], first, atol=1e-10)
    np.testing.assert_allclose(slopes[2], lanes(each, blocks), atol=1e-10)
    pooled = lanes(pairs, blocks) if varying else pairs.sum((0, 1))[None, ..., None]
    np.testing.assert_allclose(slopes[1], pooled, atol=1e-10)
    np.testing.assert_allclose(hard, total_best, atol=1e-10)
    assert set(np.unique(one_hot)) <= {0.0, 1.0}


@pytest.mark.parametrize(("blocks", "parallel", "wide"), WAYS)
def test_filters_and_draws_equal_enumeration(blocks, parallel, wide):
    random = np.random.default_rng(8)
    initial, transition = (np.log(random.dirichlet(np.ones(STATES))),
                           np.log(random.dirichlet(np.ones(STATES), STATES)))
    emission, draws = random.normal(size=(STEPS, STATES)), 20_000
    moves = np.broadcast_to(transition, (STEPS, STATES, STATES))
    every = np.broadcast_to(emission[None, :, None], (draws, STEPS, 1, STATES))
    held = Chain(
        jnp.asarray(initial)[None, :, None], jnp.asarray(transition)[None, None, :, :, None],
        lanes(every, blocks), None
    )
    one = held._replace(emission=held.emission[..., :blocks])
    predicted, filtered, before = jax.jit(
        lambda c: chain_paths.filtered(c, ScanLayout(blocks, parallel, wide))
    )(one)
    for t in range(STEPS):
        block, step = divmod(t, STEPS // blocks)
        blind = np.where(np.arange(t + 1)[:, None] == t, 0.0, emission[: t + 1])
        log, state, *_ = enumerate_paths(initial, moves, blind)
        np.testing.assert_allclose(predicted[step, 0, :, block], state[-1], atol=1e-12)
        np.testing.assert_allclose(before[step, 0, block], log, atol=1e-10)
        np.testing.assert_allclose(filtered[step, 0, :, block],
                                   enumerate_paths(initial, moves, emission[: t + 1])[1][-1],
                                   atol=1e-12)
    _, states = jax.jit(lambda c: chain_paths.draw(c, jax.random.key(1), ScanLayout(blocks, parallel,
                                                                                      wide)))(held)
    codes = back(states, blocks)[..., 0] @ STATES ** np.arange(STEPS)[::-1]
    share, q = np.bincount(codes, minlength=STATES**STEPS) / draws, enumerate_paths(initial, moves,
                                                                                    emission)[-1]
    error = np.abs(share - q).sum()
    # the expected error of a multinomial sample
    assert error < 1.3 * np.sqrt(2 / np.pi * q / draws).sum()


@pytest.mark.slow
@pytest.mark.parametrize("stay", [0.9, 1.0])  # a chain that forgets; one that never does
def test_blocks_equal_the_plain_scan_on_long_chains(stay):
    random, steps, k = np.random.default_rng(2), 40_000, 4
    with np.errstate(divide="ignore"):
        transition = np.log(stay * np.eye(k) + (1 - stay) / k)
    emission = random.normal(size=(1, steps, 1, k)) * (0.01 if stay == 1 else 1)
    found = {}
    ways = [(np.float64, 1, False), (np.float64, 64, False), (np.float64, 64, True),
            (np.float32, 64, False)]
    for precision, blocks, parallel in ways if stay < 1 else ways[:2]:
        held = Chain(
            jnp.full((1, k, 1), -np.log(k), precision),
            jnp.asarray(transition, precision)[None, None, :, :, None],
            lanes(emission.astype(precision), blocks),
            None,
        )

        @jax.jit
        def both(c, b=blocks, p=parallel):
            return (jax.value_and_grad(lambda c: chains.evidence(c, ScanLayout(b, p)).sum())(c),
                    chain_best.maximise(c, ScanLayout(b, p)))

        (value, slope), (_, states) = both(held)
        found[precision, blocks, parallel] = (
            float(value), np.asarray(slope.transition[0, 0, ..., 0], float), back(states, blocks)
        )
    truth = found[np.float64, 1, False]
    for (precision, *_), (value, pairs, states) in found.items():
        slack = 1e-10 if precision is np.float64 else 1e-3
        np.testing.assert_allclose(value, truth[0], rtol=slack)
        np.testing.assert_allclose(pairs, truth[1], rtol=slack, atol=slack)
        if precision is np.float64:
            np.testing.assert_array_equal(states, truth[2])


def test_wide_keeps_what_is_lost_to_the_range_of_a_float():
    # left to right: a state once left is never entered again
    moves = np.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]])
    y = np.array([0.0, 0.1, 90.0, 5.0, 0.2, 5.0, 10.0, -60.0, 10.0, 9.0])
    emission = -0.5 * ((y[:, None] - np.array([0.0, 5.0, 10.0])) / 0.3) ** 2
    with np.errstate(divide="ignore"):
        initial, transition = np.log(np.array([1.0, 0, 0])), np.log(moves)
    want = enumerate_paths(initial, np.broadcast_to(transition, (10, 3, 3)), emission)
    for precision, slack in ((np.float32, 1e-4), (np.float64, 1e-12)):
        held = Chain(*(jnp.asarray(
            a, precision
        ) for a in (initial[None, :, None], transition[None, None, :, :, None])), None, None)
        held = held._replace(emission=jnp.asarray(emission, precision)[:, None, :, None])
        value, slope = jax.jit(jax.value_and_grad(
            lambda c: chains.evidence(c, ScanLayout(in_logs=True)).sum()))(held)
        np.testing.assert_allclose(value, want[0], rtol=slack)
        np.testing.assert_allclose(slope.emission[:, 0, :, 0], want[1], atol=10 * slack)
        assert tuple(np.asarray(jax.jit(chain_best.maximise)(held)[1])[:, 0, 0]) == want[3]


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("sticky", [False, True])  # forgets within a block; within many
def test_blocks_have_the_paths_and_the_evidence_of_a_plain_scan(precision, sticky):
    """Of rows of unequal lengths, one of which ends within its first block, one before a block."""
    random, rows, steps, k = np.random.default_rng(4), 3, 400, 3
    initial = np.log(random.dirichlet(np.ones(k), (rows, 1)))
    moves = np.log(random.dirichlet(np.ones(k), k) * (1e-4 if sticky else 0.3)
                   + np.eye(k) * (1 - 1e-4 if sticky else 0.7))
    emission = random.normal(size=(rows, steps, 1, k)) * (0.003 if sticky else 1)
    lengths = np.array([steps, 130, 200])

    @functools.partial(jax.jit, static_argnums=1)
    def found(held, blocks):
        def log(*logs):
            return chains.evidence(Chain(*logs, held.alive), ScanLayout(blocks)).sum()

        return (jax.value_and_grad(log, (1, 2))(*held[:3]), chain_best.maximise(held, ScanLayout(blocks)))

    ends = []
    for blocks in (1, 4):
        held = Chain(jnp.asarray(initial.transpose(1, 2, 0), precision),
                     jnp.asarray(moves, precision)[None, None, :, :, None],
                     lanes(emission.astype(precision), blocks),
                     lanes(np.arange(steps) < lengths[:, None], blocks))
        (value, (moved, seen)), (best, states) = found(held, blocks)
        ends.append((value, moved, back(seen[:, 0], blocks), best, back(states, blocks)))
    slack = 1e-10 if precision is np.float64 else 1e-4
    for plain, cut in zip(*ends, strict=True):
        np.testing.assert_allclose(cut, plain, rtol=slack, atol=slack)
    assert (ends[0][-1][1, 130:] == ends[0][-1][1, 129]).all()
