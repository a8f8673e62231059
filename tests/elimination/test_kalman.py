"""Kalman's filter and its adjoint: held to the joint normal distribution, and to JAX's own
derivatives."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy import stats

from probml.elimination.kalman import evidence as kalman_evidence
from probml.elimination.kalman import evidence as kalman_paths
from probml.elimination.kalman import filter as kalman

T, D, M, SEEN = 12, 3, 2, 2
BLOCKS = 4
TIMED = ("transition", "offset", "noise", "value", "slope", "variance", "observed", "alive")
# as engines call them: in one program each
evidence, smoothed = jax.jit(kalman_evidence.evidence), jax.jit(kalman_evidence.smoothed)


def system(singular=True):
    """Random systems of two lanes, one shorter, with a number that has no noise."""
    random = np.random.default_rng(0)

    def some(*shape):
        return random.normal(size=shape)

    def covariance(*shape):
        root = some(*shape)
        return np.einsum("...ijm,...kjm->...ikm", root, root)

    noise = covariance(T, D, D, M)
    if singular:
        noise[:, 2], noise[:, :, 2] = 0, 0
    alive = np.arange(T)[:, None] < np.array([T, 7])
    seen = (random.random((T, SEEN, M)) < 0.7) & alive[:, None]
    return kalman.System(
        some(D, M), covariance(D, D, M), 0.6 * some(T, D, D, M), some(T, D, M), noise,
        some(T, SEEN, M), some(T, SEEN, D, M), random.uniform(0.3, 1, (T, SEEN, M)), seen, alive)


def cut(leaf):
    """(T, ..., M) in blocks, as lanes."""
    parts = np.moveaxis(np.asarray(leaf).reshape(BLOCKS, T // BLOCKS, *leaf.shape[1:]), 0, -1)
    return parts.reshape(*parts.shape[:-2], -1)


def in_blocks(whole):
    return dataclasses.replace(
        whole, blocks=BLOCKS, mean=np.repeat(whole.mean, BLOCKS, -1),
        covariance=np.repeat(whole.covariance, BLOCKS, -1),
        **{name: cut(getattr(whole, name)) for name in TIMED})


def joint(found, lane):
    """log p(seen), and means and covariances of all states given it, of one lane."""
    n = T * D
    step, own, base, look = (np.zeros((n, n)), np.zeros((n, n)), np.zeros(n),
                             np.zeros((T * SEEN, n)))
    at = [slice(t * D, t * D + D) for t in range(T)]
    own[at[0], at[0]], base[at[0]] = found.covariance[..., lane], found.mean[:, lane]
    for t in range(T):
        look[t * SEEN : (t + 1) * SEEN, at[t]] = found.slope[t, ..., lane]
        if t and found.alive[t, lane]:
            step[at[t], at[t - 1]] = found.transition[t, ..., lane]
            own[at[t], at[t]], base[at[t]] = found.noise[t, ..., lane], found.offset[t, :, lane]
        elif t:
            step[at[t], at[t - 1]] = np.eye(D)
    total = np.linalg.inv(np.eye(n) - step)
    mean, cov = total @ base, total @ own @ total.T
    s = np.asarray(found.observed[..., lane]).ravel()
    look, r = look[s], np.diag(np.asarray(found.variance[..., lane]).ravel()[s])
    gap = (np.asarray(found.value[..., lane]).ravel()[s] - look @ mean)
    part = look @ cov @ look.T + r
    gain = np.linalg.solve(part, look @ cov).T
    log = stats.multivariate_normal(np.zeros(len(gap)), part).logpdf(gap)
    return log, (mean + gain @ gap).reshape(T, D), cov - gain @ look @ cov


@pytest.fixture(scope="module")
def whole():
    return system()


def test_filter_and_smoother_are_the_joint_normal(whole):
    log, found = jax.tree.map(np.asarray, (evidence(whole), smoothed(whole)))
    for lane in range(M):
        want, mean, cov = joint(whole, lane)
        np.testing.assert_allclose(log[lane], want, atol=1e-9)
        np.testing.assert_allclose(found.mean[..., lane], mean, atol=1e-9)
        for t in range(7):
            at, before = slice(t * D, t * D + D), slice(t * D - D, t * D)
            np.testing.assert_allclose(found.covariance[t, ..., lane], cov[at, at], atol=1e-9)
            np.testing.assert_allclose(found.across[t, ..., lane], cov[before, at] if t else 0.0,
                                       atol=1e-9)


def test_blocks_give_what_whole_sequences_give(whole):
    blocks = in_blocks(whole)
    np.testing.assert_allclose(evidence(blocks), evidence(whole), atol=1e-10)
    for one, other in zip(*(map(np.asarray, smoothed(told)) for told in (whole, blocks)), strict=True):
        alive = cut(whole.alive).reshape(T // BLOCKS, *(1,) * (one.ndim - 2), -1)
        np.testing.assert_allclose(np.where(alive, cut(one), 0), np.where(alive, other, 0),
                                   atol=1e-10)


def test_the_gradient_is_that_of_the_recursion(whole):
    weight = np.array([1.0, -2.0])

    def total(evidence):
        return jax.jit(jax.grad(lambda found: (evidence(found) * weight).sum(), allow_int=True))

    own, of = (total(lambda found: kalman.filtered(found).log.sum(0)),
               total(kalman_evidence.evidence))
    want, got, parts = (jax.tree.map(np.asarray, found)
                        for found in (own(whole), of(whole), of(in_blocks(whole))))
    for name in ("mean", "covariance", *TIMED[:-2]):
        one, other = getattr(got, name), getattr(want, name)
        if name in ("covariance", "noise"):  # of symmetric matrices
            other = 0.5 * (other + kalman.transpose(other))
        np.testing.assert_allclose(one, other, atol=1e-9, err_msg=name)
        if name in TIMED:
            np.testing.assert_allclose(getattr(parts, name), cut(one), atol=1e-9, err_msg=name)
    np.testing.assert_allclose(parts.mean[:, ::BLOCKS], got.mean, atol=1e-9)


def test_a_number_seen_without_noise_is_known_from_there_on():
    own, eye = system(False), np.eye(D)[:, :, None] * np.ones(M)
    still = dataclasses.replace(own, transition=np.broadcast_to(eye, (T, D, D, M)),
                                noise=np.zeros((T, D, D, M)), offset=np.zeros((T, D, M)))
    slope, seen = np.zeros((T, SEEN, D, M)), np.zeros((T, SEEN, M), bool)
    slope[:, 0, 0], seen[2:4, 0] = 1.0, True
    told = dataclasses.replace(still, slope=slope, observed=seen, variance=np.zeros((T, SEEN, M)),
                               value=np.full((T, SEEN, M), 1.5))
    want = stats.norm(own.mean[0], np.sqrt(own.covariance[0, 0])).logpdf(1.5)
    np.testing.assert_allclose(evidence(told), want, atol=1e-10)
    found = smoothed(told)
    np.testing.assert_allclose(np.asarray(found.mean)[:, 0], 1.5, atol=1e-10)
    value = told.value.copy()
    value[3, 0] = 2.5
    other = dataclasses.replace(told, value=value)
    assert np.isneginf(evidence(other)).all(), "it cannot be elsewhere"


@pytest.mark.parametrize("blocks", [1, BLOCKS])
def test_lanes_that_are_seen_alike_share_their_covariances(blocks):
    """Held to the same system with every lane by itself."""
    whole, lanes = system(), 5
    random = np.random.default_rng(4)
    one = {name: getattr(whole, name)[..., :1] for name in TIMED[:-1]}
    if blocks > 1:  # what blocks share is the same at all times
        one = {name: leaf[:1] for name, leaf in one.items()}
    alike = kalman.System(
        random.normal(size=(D, lanes)), whole.covariance[..., :1], **{
            **one, "value": random.normal(size=(T, SEEN, lanes))},
        alive=None)
    apart = dataclasses.replace(alike, covariance=np.repeat(alike.covariance, lanes, -1), **{
        name: np.broadcast_to(leaf, (T, *leaf.shape[1:-1], lanes)) for name, leaf in one.items()
        if name != "value"})
    assert alike.shared and not apart.is_lane_invariant
    if blocks > 1:
        alike, apart = (dataclasses.replace(
            told, blocks=blocks, mean=np.repeat(told.mean, blocks, -1),
            covariance=np.repeat(apart.covariance, blocks, -1),
            **{name: cut(leaf) if len(leaf := getattr(told, name)) > 1 else leaf
               for name in TIMED[:-1]}) for told in (alike, apart))
        assert alike.is_lane_invariant and not alike.shared
    weight = random.normal(size=lanes)
    total = jax.jit(jax.value_and_grad(lambda told: (kalman_evidence.evidence(told) * weight).sum(),
                                       allow_int=True))
    (got, own), (want, each) = total(alike), total(apart)
    np.testing.assert_allclose(got, want, atol=1e-10)
    for name in ("mean", *TIMED[:-2]):
        one, other = np.asarray(getattr(own, name)), np.asarray(getattr(each, name))
        axes = tuple(i for i, sizes in enumerate(zip(one.shape, other.shape, strict=True))
                     if sizes[0] != sizes[1])
        np.testing.assert_allclose(one, other.sum(axes, keepdims=True), atol=1e-9, err_msg=name)
    moved = jax.jit(kalman_evidence.smoothed_moves)
    for one, other in zip(jax.tree.leaves(moved(alike)), jax.tree.leaves(moved(apart)), strict=True):
        assert blocks > 1 or one.ndim == 3 or one.shape[-1] == 1
        np.testing.assert_allclose(np.broadcast_to(one, other.shape)[1:], other[1:], atol=1e-10)


def test_wide_priors_keep_their_digits_in_single_precision():
    with jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64():
        steps = 30
        random = np.random.default_rng(1)
        y = 900 + 100 * random.normal(size=(steps, 1, 1))
        told = kalman.System(*(np.asarray(a, np.float32) for a in (
            np.zeros((2, 1)), 1e7 * np.eye(2)[..., None],
            np.array([[1.0, 1.0], [0.0, 1.0]])[None, ..., None], np.zeros((1, 2, 1)),
            np.diag([30.0, 1.0])[None, ..., None], y, np.array([1.0, 0.0])[None, None, :, None],
            np.full((1, 1, 1), 1e4))), np.ones((steps, 1, 1), bool), None)
        single = jax.tree.map(np.asarray, (evidence(told), smoothed(told)))
    double = jax.tree.map(lambda leaf: leaf.astype(float) if leaf.dtype != bool else leaf, told)
    np.testing.assert_allclose(single[0], evidence(double), rtol=1e-4)
    want = jax.tree.map(np.asarray, smoothed(double))
    np.testing.assert_allclose(single[1].mean[:, 0], want.mean[:, 0], rtol=1e-3)
    np.testing.assert_allclose(single[1].covariance[:, 0, 0], want.covariance[:, 0, 0], rtol=5e-3)


def test_paths_of_blocks_are_paths_of_whole_sequences(whole):
    blocks = in_blocks(whole)
    for name in TIMED[:-1]:
        np.testing.assert_array_equal(getattr(kalman_paths.merge_blocks(blocks), name),
                                      getattr(whole, name))
    path = jax.jit(kalman_paths.draw_prior)(whole, jax.random.key(0))
    np.testing.assert_array_equal(kalman_paths.in_blocks(path, BLOCKS), cut(path))
