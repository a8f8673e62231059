"""The curvature of a density, by differences of gradients, in whatever unit a coordinate is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.numerics import curvature

T = np.random.default_rng(0).normal(size=50)


def student(unit):
    """log density of a place of Student's t rows, beside a place in units of 1."""
    return lambda u: -2.5 * jnp.log1p((T - u[0] / unit) ** 2 / 4).sum() - 0.5 * u[1] ** 2


def poisson(unit):
    """log density of a slope of counts whose input is in units of 1/`unit`: no number far out."""
    return lambda u: (2 * T * (u[0] / unit) - jnp.exp(T * u[0] / unit)).sum() - 0.5 * u[1] ** 2


def slow_poisson(unit):
    """As poisson, of numbers far out that are large."""
    return lambda u: (T * (u[0] / unit) - jnp.exp(0.4 * T * u[0] / unit)).sum() - 0.5 * u[1] ** 2


@pytest.mark.parametrize("density", [student, poisson, slow_poisson])
@pytest.mark.parametrize("unit", [1.0, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e6])
def test_the_curvature_does_not_depend_on_units(density, unit):
    with jax.enable_x64(False):
        both = jax.jit(jax.vmap(jax.value_and_grad(density(unit))))
        u = np.array([0.2 * unit, 0.0], np.float32)
        frame, hessian, _ = curvature.measure(lambda u: jax.device_get(both(u)), u, np.zeros((1, 2)),
                                              np.zeros(2, bool), np.full(2, np.inf))
        right = -jax.jit(jax.hessian(density(1.0)))(np.array([0.2, 0.0], np.float32))[0, 0]
    assert float(hessian[0, 0]) * unit**2 == pytest.approx(float(right), rel=0.02)
    assert float(hessian[1, 1]) == pytest.approx(1.0, rel=1e-3)
    assert (np.asarray(frame.curvature) > 0.9).all()


def test_a_root_of_the_inverse_hessian_changes_as_little_as_the_hessian():
    """As between one device and four, where curvatures are equal: their eigenvectors may be any."""
    random = np.random.default_rng(1)
    for size in (2, 5):
        noise = random.normal(size=(2, size, size))
        hessians = 3 * np.eye(size) + 1e-9 * (noise + noise.transpose(0, 2, 1))
        one, other = (curvature.whitened(hessian, 1e-6) for hessian in hessians)
        np.testing.assert_allclose(one.T @ one, np.linalg.inv(hessians[0]), atol=1e-14)
        np.testing.assert_allclose(one, other, atol=1e-8)
        assert curvature.whitened(hessians[0] + 3 * (1 - np.eye(size)), 1e-6) is None  # flat
