"""Newton's method, L-BFGS: where they end, and by how many evaluations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.numerics.curvature import second_order
from probml.numerics.newton import Newton, chords, clipped_step, separable
from probml.numerics.optimum import LBFGS, maximize, negligible
from probml.numerics.refinement import HostBFGS

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
    """By the Hessian of the start."""
    def objective(c):
        value, gradient = jax.value_and_grad(function)(c)
        return -value, -gradient, ()

    return maximize(objective, start, chords(-jax.hessian(function)(start), steps)).point


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
        method = LBFGS(200, 1e-14, 200, slopes=slopes)
        found = jax.jit(lambda u: maximize(jax.value_and_grad(lambda u: -valley(u)), u, method)
                        )(start)
        seen = np.asarray(found.history)[: int(found.iterations) + 1]
        assert np.all(np.diff(seen) >= 0) and int(found.iterations) < 100
        return np.asarray(found.point, float), -float(found.value)

    right, least = end(jnp.float64, False)
    found, value = end(jnp.float32, True)
    assert abs(value - least) < 1e-3
    np.testing.assert_allclose(found, right, atol=2e-4)
    np.testing.assert_array_equal(end(jnp.float64, True)[0], right)


def newton(function, start, **settings):
    method = Newton(50, 1e-14, history=50, **settings)
    return jax.jit(lambda u: maximize(second_order(lambda u: -function(u)), u, method))(start)


def test_newton_ends_where_lbfgs_and_bfgs_on_the_host_do():
    both = jax.jit(jax.value_and_grad(lambda c: -logistic(c)))
    other = jax.jit(lambda u: maximize(both, u, LBFGS(200, 1e-14)))(np.zeros(3))
    host = maximize(lambda c: tuple(map(np.asarray, both(c))), np.zeros(3), HostBFGS(200, 1e-14))
    found = newton(logistic, np.zeros(3))
    assert found.flat and other.flat and host.flat and found.iterations < 10
    np.testing.assert_allclose(other.point, found.point, atol=1e-5)
    np.testing.assert_allclose(host.point, found.point, atol=1e-5)
    np.testing.assert_allclose(found.hessian, -jax.hessian(logistic)(found.point), rtol=1e-6)
    np.testing.assert_allclose(found.first, -jax.hessian(logistic)(np.zeros(3)), rtol=1e-9)


@pytest.mark.parametrize("start", [np.array([0.1, 3.0, -0.3]), np.zeros(3)])
def test_newton_leaves_where_the_curvature_is_the_wrong_way_and_never_falls(start):
    found = newton(waves, start)
    seen = np.asarray(found.history)[: int(found.iterations) + 1]
    assert np.all(np.diff(seen) >= 0) and found.value >= -waves(start)
    if start.any():
        assert found.flat and np.linalg.eigvalsh(found.hessian).max() < 0


def test_without_a_blind_last_step_everything_found_is_of_its_point():
    found = newton(logistic, np.ones(3), skip_last_evaluation=False)
    value, gradient = jax.value_and_grad(logistic)(found.point)
    assert float(found.value) == pytest.approx(-float(value), rel=1e-14)
    np.testing.assert_allclose(found.gradient, -gradient, atol=1e-12)


def test_a_sum_of_functions_of_one_number_each_is_maximised_at_all_of_them():
    """Log densities of logarithms of gamma variables: steep on one side, where steps are bounded."""
    shape = np.array([0.3, 1.0, 40.0])
    start = {"u": np.array([-3.0, 9.0, 0.0])}
    method = Newton(60, 1e-16, step=clipped_step)
    found = jax.jit(lambda u: maximize(separable(
        lambda u: jnp.sum(shape * u["u"] - jnp.exp(u["u"]))), u, method))(start)
    np.testing.assert_allclose(found.point["u"], np.log(shape), atol=1e-9)


def test_where_there_is_no_maximum_the_end_still_promises_a_gain():
    """By which an M-step knows that it found none: the logarithm of a spread on its way to 0."""
    def left(function):
        found = maximize(separable(function), np.zeros(2), Newton(40, 1e-16, step=clipped_step))
        return clipped_step(found.point, found.gradient, found.hessian, 0.0)[1] / negligible(
            found.value)

    assert jax.jit(lambda: left(lambda u: -3.0 * jnp.sum(u)))() > 1e3
    assert jax.jit(lambda: left(lambda u: jnp.sum(u - jnp.exp(u))))() < 1.0
