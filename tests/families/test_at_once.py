"""Small systems solved in one loop: against NumPy, with their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.families.recursions import at_once, inverted, squared, weighted


def systems(random, m, n):
    """(n, m, m) positive definite, (n, m), and the pairs as arrays."""
    factor = random.normal(size=(n, m, m + 2))
    p = factor @ factor.swapaxes(1, 2) + 0.1 * np.eye(m)
    r = random.normal(size=(n, m))
    pairs = [jnp.asarray(p[:, i, j]) for i in range(m) for j in range(i + 1)]
    return p, r, pairs, list(jnp.asarray(r.T))


@pytest.mark.parametrize("m", [1, 2, 5])
def test_systems_solved_at_once_are_those_of_linear_algebra(m):
    p, r, pairs, right = systems(np.random.default_rng(m), m, 37)
    c, slope = np.linalg.inv(p), np.random.default_rng(0).normal(size=37)
    e = np.einsum("nij,nj->ni", c, r)
    square, *pivots = jax.jit(lambda *a: at_once(squared, *a))(*pairs, *right)
    np.testing.assert_allclose(square, (e * r).sum(1), rtol=1e-10)
    np.testing.assert_allclose(sum(map(jnp.log, pivots)), np.linalg.slogdet(p)[1], rtol=1e-10)
    made = jax.jit(lambda *a: at_once(inverted, *a))(*pairs)
    below = np.tril_indices(m)
    np.testing.assert_allclose(np.stack(made[:-m], 1), c[:, *below], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(np.prod(made[-m:], 0), np.linalg.det(p), rtol=1e-10)
    found = np.stack(jax.jit(lambda *a: at_once(weighted, *a))(jnp.asarray(slope), *pairs, *right))
    second = -0.5 * slope[:, None, None] * (e[:, :, None] * e[:, None] + c)
    second *= 2 - np.eye(m)
    np.testing.assert_allclose(found[:-m].T, second[:, *below], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found[-m:].T, slope[:, None] * e, rtol=1e-9, atol=1e-10)


def test_systems_solved_at_once_have_derivatives_forward_and_back():
    """Of the weights, which are derivatives themselves: those of a Hessian."""
    _, _, pairs, right = systems(np.random.default_rng(3), 2, 5)
    held = jnp.stack([*pairs, *right])

    def value(solve):
        def total(held):
            square, *pivots = solve(held)
            return (0.5 * square - 0.5 * sum(map(jnp.log, pivots))).sum()
        return total

    def plain(held):
        return squared(*held)

    def ways(solve, weigh):
        def all_of(held, away):
            return jax.grad(value(solve))(held), *jax.jvp(weigh, (held,), (away,))
        return jax.jit(all_of)(held, held / 3)

    fast = ways(lambda held: at_once(squared, *held),
                lambda held: jnp.stack(at_once(weighted, held[0], *held)))
    slow = ways(plain, lambda held: jnp.stack(weighted(held[0], *held)))
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_systems_of_restarts_are_solved_side_by_side():
    _, _, pairs, right = systems(np.random.default_rng(4), 2, 6)
    held = jnp.stack([*pairs, *right]).reshape(5, 2, 3)
    beside = jax.jit(jax.vmap(lambda h: jnp.stack(at_once(squared, *h)), 1, 1))(held)
    np.testing.assert_allclose(beside, jnp.stack(squared(*held)), rtol=1e-12)
