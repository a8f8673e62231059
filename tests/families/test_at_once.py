"""Small systems solved in one loop: against NumPy, with their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.families.recursions import at_once, inverted


def systems(random, m, n):
    """(n, m, m) positive definite, and the pairs as arrays."""
    factor = random.normal(size=(n, m, m + 2))
    p = factor @ factor.swapaxes(1, 2) + 0.1 * np.eye(m)
    return p, [jnp.asarray(p[:, i, j]) for i in range(m) for j in range(i + 1)]


@pytest.mark.parametrize("m", [1, 2, 5])
def test_systems_solved_at_once_are_those_of_linear_algebra(m):
    p, pairs = systems(np.random.default_rng(m), m, 37)
    made = jax.jit(lambda *a: at_once(inverted, *a))(*pairs)
    np.testing.assert_allclose(np.stack(made[:-m], 1), np.linalg.inv(p)[:, *np.tril_indices(m)],
                               rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(np.prod(made[-m:], 0), np.linalg.det(p), rtol=1e-10)


def test_systems_solved_at_once_have_derivatives_forward_and_back():
    pairs = jnp.stack(systems(np.random.default_rng(3), 2, 5)[1])

    def ways(solve):
        def all_of(pairs, away):
            def total(pairs):
                return sum((i + 1) * each.sum() ** 2 for i, each in enumerate(solve(pairs)))

            return jax.grad(total)(pairs), *jax.jvp(jax.grad(total), (pairs,), (away,))

        return jax.jit(all_of)(pairs, pairs / 3)

    for a, b in zip(ways(lambda pairs: at_once(inverted, *pairs)),
                    ways(lambda pairs: inverted(*pairs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_systems_of_restarts_are_solved_side_by_side():
    pairs = jnp.stack(systems(np.random.default_rng(4), 2, 6)[1]).reshape(3, 2, 3)
    beside = jax.jit(jax.vmap(lambda h: jnp.stack(at_once(inverted, *h)), 1, 1))(pairs)
    np.testing.assert_allclose(beside, jnp.stack(inverted(*pairs)), rtol=1e-12)
