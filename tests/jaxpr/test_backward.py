"""Gradients of flattened functions are JAX's own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import lax
from numpyro import sample

import probml
from probml.errors import Refusal
from probml.jaxpr.backward import gradient, value_and_gradient, with_vjp

X = np.random.default_rng(0).normal(size=(3, 4))
Y = np.random.default_rng(1).normal(size=(3, 4)) + 3.0

OF = {
    "extremes": lambda x: (x.max(1), jnp.maximum(x, Y - 3), jnp.clip(x, -0.5, 0.5), jnp.abs(x)),
    "indices": lambda x: (x[jnp.array([0, 2, 2])], x[jnp.argsort(x[:, 0])], jnp.take_along_axis(x, jnp.argsort(x, 1), 1)),
    "writes": lambda x: (x.at[0].set(1.0), x.at[jnp.array([0, 0])].add(x[:2]), jnp.cumsum(x, 1)),
    "rules of their own": lambda x: (jax.nn.relu(x), jax.nn.logsumexp(x, 1), jax.nn.softmax(x), jnp.logaddexp(x, Y)),
    "matrices": lambda x: (jnp.linalg.cholesky(x @ x.T + jnp.eye(3)), jnp.linalg.solve(x[:, :3] + 5 * jnp.eye(3), x)),
    "loops": lambda x: (lax.scan(lambda s, r: (jnp.tanh(s + r), s * r), x[0], x), lax.fori_loop(0, 3, lambda i, s: s * x[0] + i, x[1])),
    "branches": lambda x: (lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), lax.switch(2, [jnp.sin, jnp.cos, jnp.exp], x)),
    "flat": lambda x: (x * lax.stop_gradient(x), jnp.floor(x) * x, jnp.sign(x) + x, jnp.round(x)),
    "whole numbers": lambda x: (x * (x > 0), jnp.argmax(x) * x, x[jnp.argmax(x[:, 0])]),
    "what is not asked for": lambda x: (x, 1.0, jnp.zeros(3)),
    "again": lambda x: jax.grad(lambda v: jnp.sin(v @ v.T).sum())(x),
}


def share(tree):
    random = np.random.default_rng(2)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=jnp.shape(leaf)), leaf.dtype), tree)


def test_cotangents_are_as_jax_has_them():
    def all_by(way, x):
        out = {}
        for name, of in OF.items():
            found, back = way(lambda x, of=of: jax.tree.map(jnp.asarray, of(x)))(x)
            out[name] = found, back(share(found))
        return out

    got, want = (jax.jit(functools.partial(all_by, way))(X)
                 for way in (with_vjp, lambda of: functools.partial(jax.vjp, of)))
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13, err_msg=jax.tree_util.keystr(path))


def test_it_is_differentiated_mapped_and_compiled():
    def total(x, y):
        return jnp.sum(jax.nn.logsumexp(x @ y.T, 1)) + (x["a"] if isinstance(x, dict) else x[0, 0]) ** 2

    slope, of_a_tree = gradient(total), value_and_gradient(lambda tree: total(tree["x"], Y) * tree["y"][0])

    @jax.jit
    def wanted(both, x, y):
        return total(x, y), jax.grad(total)(x, y), jax.hessian(total)(x, y), jax.vmap(
            jax.grad(total), (0, None))(both, y)

    @jax.jit
    def ours(both, x, y):
        return (slope(x, y), jax.jacfwd(slope)(x, y), jax.vmap(slope, (0, None))(both, y),
                of_a_tree({"x": x, "y": (2.0,)}))

    both = np.stack([X, Y])
    whole, one, curved, each = wanted(both, X, Y)
    got, bends, every, (value, found) = ours(both, X, Y)
    np.testing.assert_allclose(slope(X, Y), one, rtol=1e-13)  # not compiled
    np.testing.assert_allclose(got, one, rtol=1e-13)
    np.testing.assert_allclose(bends, curved, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(every, each, rtol=1e-13)
    assert value == pytest.approx(2 * whole)
    np.testing.assert_allclose(found["x"], 2 * one, rtol=1e-13)
    np.testing.assert_allclose(found["y"][0], whole, rtol=1e-13)


def test_what_is_closed_over_is_another_even_where_it_is_the_same_array():
    x = jnp.asarray(X)
    np.testing.assert_allclose(gradient(lambda v: (v * x).sum())(x), x)
    np.testing.assert_allclose(jax.grad(lambda w: gradient(lambda v: (v * v * w).sum())(w).sum())(x), 4 * x)


def test_whole_numbers_have_no_gradient():
    with pytest.raises(TypeError, match="int"):
        gradient(lambda n: n * 1.0)(3)


@pytest.mark.parametrize(("name", "function"), {
    "regularized_incomplete_beta": lambda x: jax.scipy.special.betainc(x, 2.0, 0.5),
    "while": lambda x: lax.while_loop(lambda v: v < 3.0, lambda v: v * 1.5, x),
    "pure_callback": lambda x: jax.pure_callback(
        np.sin, jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="sequential"),
}.items())
def test_what_has_no_derivative_is_refused_by_its_name(name, function):
    with pytest.raises(Refusal, match=f"the derivative of '{name}', which JAX does not have"):
        gradient(function)(jnp.asarray(1.5))


def test_a_density_without_a_derivative_is_refused():
    def copula():
        a = sample("a", dist.Gamma(2.0, 0.5).expand([2]).to_event(1))
        with probml.rows():
            sample("y", dist.GaussianCopulaBeta(a, a, jnp.eye(2)))

    with pytest.raises(probml.Refusal, match="regularized_incomplete_beta"):
        probml.model(copula)().fit({"y": np.full((5, 2), 0.3)})
