"""Inverses and determinants of positive definite matrices, and what they are derived to."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from probml.families import definite, registry
from probml.families.densities import censored
from probml.numerics import lapack

RANDOM = np.random.default_rng(5)
ROOTS = RANDOM.standard_normal((4, 3, 3)) + 2 * np.eye(3)
MATRICES = ROOTS @ np.swapaxes(ROOTS, -1, -2)
MOVE = RANDOM.standard_normal((4, 3, 3))
MOVE = MOVE + np.swapaxes(MOVE, -1, -2)


def test_they_are_numpys():
    np.testing.assert_allclose(definite.inverse(MATRICES), np.linalg.inv(MATRICES), rtol=1e-10)
    np.testing.assert_allclose(definite.half_log_det(MATRICES),
                               0.5 * np.linalg.slogdet(MATRICES)[1], rtol=1e-12)


@pytest.mark.parametrize("ours, theirs", [
    (definite.inverse, jnp.linalg.inv),
    (definite.half_log_det, lambda p: 0.5 * jnp.linalg.slogdet(p)[1]),
    (jax.vmap(lambda p: definite.solve(p, p[0] ** 2)),
     jax.vmap(lambda p: jnp.linalg.solve(p, p[0] ** 2))),
    (jax.vmap(lambda p: definite.half_square(p, p[0] ** 2)),
     jax.vmap(lambda p: 0.5 * p[0] ** 2 @ jnp.linalg.solve(p, p[0] ** 2))),
], ids=["inverse", "half_log_det", "solve", "half_square"])
def test_first_and_second_derivatives_are_those_through_lu(ours, theirs):
    def slopes(function):
        def along(p):
            return jax.jvp(function, (p,), (MOVE,))[1]

        def back(p):
            return jax.grad(lambda p: jnp.sum(jnp.sin(function(p))))(p)

        return jax.jvp(along, (MATRICES,), (MOVE,)), jax.jvp(back, (MATRICES,), (MOVE,))

    for mine, other in zip(*(jax.tree.leaves(slopes(f)) for f in (ours, theirs)), strict=True):
        # a gradient may be any whose symmetric part is right
        mine, other = (0.5 * (a + jnp.swapaxes(a, -1, -2)) if a.ndim == 3 else a
                       for a in (mine, other))
        np.testing.assert_allclose(mine, other, rtol=1e-8, atol=1e-10)


def test_the_inverse_of_a_large_matrix_is_numpys():
    root = np.random.default_rng(0).standard_normal((200, 300))
    matrix = root @ root.T
    np.testing.assert_allclose(definite.inverse(matrix) @ matrix, np.eye(len(matrix)), atol=1e-10)


def test_what_is_not_positive_definite_is_nan():
    assert np.isnan(definite.half_log_det(-np.eye(2))) and np.isnan(
        definite.inverse(-np.eye(2))).all()


@pytest.mark.parametrize("scale", [
    {"precision_matrix": MATRICES}, {"covariance_matrix": MATRICES},
    {"scale_tril": np.linalg.cholesky(MATRICES)}], ids=lambda scale: next(iter(scale)))
def test_a_normal_priors_density_is_numpyros(scale):
    loc, value = RANDOM.standard_normal((2, 4, 3))
    family = registry.entry(dist.MultivariateNormal(loc, **scale)).likelihood
    np.testing.assert_allclose(family.density({"loc": loc, **scale}, value),
                               dist.MultivariateNormal(loc, **scale).log_prob(value), rtol=1e-11)


def test_one_vector_of_many_coordinates_has_numpyros_density_and_derivatives():
    d = 70
    away = np.random.default_rng(0).normal(size=d)

    def density(p):
        places = jnp.arange(d) / 10
        covariance = p[0] * jnp.exp(-(((places[:, None] - places) / p[1]) ** 2)) + 0.1 * jnp.eye(d)
        return dist.MultivariateNormal(p[2], covariance).log_prob(away)

    def value_and_slopes(p):
        return density(p), jax.grad(density)(p), jax.hessian(density)(p)

    at = jnp.array([1.3, 0.7, 0.2])
    theirs = jax.jit(value_and_slopes)(at)
    with censored.accurate():
        ours = jax.jit(lambda p: value_and_slopes(p))(at)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-8)


def test_a_large_inverse_by_halves_is_that_by_two_solves(monkeypatch):
    root = np.tril(RANDOM.standard_normal((13, 13))) + 5 * np.eye(13)
    want = np.linalg.inv(root @ root.T)
    monkeypatch.setattr(lapack, "UNSPLIT", 3)
    inverse, product = jax.jit(lapack.inverse_product)(root)
    np.testing.assert_allclose(inverse, np.linalg.inv(root), atol=1e-13)
    np.testing.assert_allclose(product, want, atol=1e-13)


@pytest.mark.parametrize("scale", [{"rate_matrix": MATRICES}, {"scale_matrix": MATRICES[0]},
                                   {"scale_tril": np.linalg.cholesky(MATRICES)}],
                         ids=lambda scale: next(iter(scale)))
def test_a_wishart_priors_density_is_numpyros(scale):
    wishart = dist.Wishart(np.array([3.5, 4.0, 5.0, 9.0]), **scale)
    ours = registry.entry(wishart).log_density(wishart, jnp.asarray(MATRICES[::-1]), True)
    np.testing.assert_allclose(ours, wishart.log_prob(jnp.asarray(MATRICES[::-1])), rtol=1e-11)
