"""Steps by the curvature of the start."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.numerics.ascent import chords, lbfgs

RANDOM = np.random.default_rng(0)
ROOT = RANDOM.normal(size=(3, 3))
X = RANDOM.normal(size=(30, 3))


def square(c):
    return 0.5 * jnp.sum((ROOT @ (c - 1.0)) ** 2)


def logistic(c):
    return jnp.logaddexp(0.0, X @ c).sum() - 9.0 * c[0] + 0.1 * c @ c


def waves(c):
    return jnp.cos(c).sum() + 0.01 * c @ c


@functools.partial(jax.jit, static_argnums=0)
def ends(function, start, steps):
    return chords(jax.value_and_grad(function), jax.hessian(function)(start), start, steps)


def test_one_step_ends_at_the_minimum_of_a_quadratic():
    np.testing.assert_allclose(ends(square, np.zeros(3), 1), 1.0, atol=1e-9)


def test_more_steps_come_nearer_than_newtons_first():
    start = 0.2 * np.ones(3)
    slope = jax.jit(jax.grad(logistic))
    slopes = [np.abs(slope(ends(logistic, start, steps))).max() for steps in (1, 3, 8)]
    assert slopes[0] > 2 * slopes[1] > 4 * slopes[2]


@pytest.mark.parametrize(("function", "start"), [(waves, np.array([0.1, 3.0, -0.3])),
                                                 (logistic, np.array([30.0, -20.0, 9.0])),
                                                 (square, np.ones(3))])
def test_they_never_end_above_the_start(function, start):
    """Where the curvature is downwards, where the start is far away, and at the minimum."""
    at = jax.jit(function)
    assert at(ends(function, start, 2)) <= at(start)


def valley(x):
    """A sum of many terms, curved a thousand times more one way than another."""
    wide = jnp.asarray(np.linspace(-1, 1, 400)[:, None] ** [0, 1, 2], x.dtype)
    return jnp.logaddexp(0.0, wide @ (x * jnp.array([1.0, 3.0, 10.0], x.dtype))).sum() + 500.0 + (
        0.05 * x @ x)


def test_slopes_tell_where_a_minimum_is_when_values_no_longer_do():
    """In float32 a value of 600 has digits for 1e-4: its minimum would be told to 0.05."""
    def end(dtype, slopes):
        start = jnp.array([2.0, -1.0, 1.0], dtype)
        climb = jax.jit(lambda u: lbfgs(jax.value_and_grad(valley), u, 200, 1e-14, 200,
                                        slopes=slopes))
        point, value, count, values, _ = climb(start)
        seen = np.asarray(values)[: int(count) + 1]
        assert np.all(np.diff(seen) <= 0) and int(count) < 100
        return np.asarray(point, float), float(value)

    right, least = end(jnp.float64, False)
    found, value = end(jnp.float32, True)
    assert abs(value - least) < 1e-3
    np.testing.assert_allclose(found, right, atol=2e-4)
    np.testing.assert_array_equal(end(jnp.float64, True)[0], right)
