"""Gradients pulled back line by line are JAX's own."""

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
from probml.jaxpr.backward import PULLS, gradient, value_and_gradient, with_vjp
from probml.jaxpr.program import equations

X = np.random.default_rng(0).normal(size=(3, 4))
Y = np.random.default_rng(1).normal(size=(3, 4)) + 3.0
WHICH = X > 0

# primitive → functions of X that have it
OF = {
    "add": lambda x: (x + x[:1], x + x[0, 0], 2.0 + x),
    "add_any": lambda x: jax.grad(lambda v: (v * v.sum()).sum())(x),
    "broadcast_in_dim": lambda x: (jnp.broadcast_to(x[:1], (3, 4)), jnp.broadcast_to(x[0, 0], (2, 5)),
                                   lax.broadcast_in_dim(x[:, 0], (2, 3, 1), (1,)),
                                   lax.broadcast_in_dim(x[:1], (3, 2, 4), (0, 2))),
    "concatenate": lambda x: (jnp.concatenate([x, Y, 2 * x], 1), jnp.concatenate([Y, x])),
    "convert_element_type": lambda x: x.astype(jnp.float32).astype(x.dtype) ** 2,
    "copy": lambda x: jnp.array(x, copy=True) * x,
    "cos": jnp.cos,
    "div": lambda x: (x / Y, Y / x, x / x[:, :1], 1.0 / x, x[0, 0] / Y),
    "dot_general": lambda x: (x @ x.T, x[0] @ Y.T, jnp.einsum("ab,cb->ca", Y, x), Y.T @ x, x[0] @ x[1],
                              jnp.einsum("abc,dac->bda", Y.reshape(3, 2, 2), x.reshape(2, 3, 2)),
                              jnp.einsum("abc,acb->ab", x.reshape(3, 2, 2), Y.reshape(3, 2, 2)),
                              jnp.tensordot(x.reshape(2, 3, 2), Y.reshape(2, 2, 3), ((0, 1), (1, 2)))),
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "integer_pow": lambda x: (x**3, x**-2, lax.integer_pow(x, 2)),
    "lgamma": lambda x: lax.lgamma(Y + x * x),
    "log": lambda x: jnp.log(Y + x * x),
    "log1p": lambda x: jnp.log1p(x * x),
    "logistic": jax.nn.sigmoid,
    "max": lambda x: (jnp.maximum(x, Y - 3), jnp.maximum(x, x), jnp.maximum(x, 0.1), jnp.maximum(x[:1], x)),
    "min": lambda x: (jnp.minimum(x, 2 * x), jnp.minimum(X[0, 0], x), jnp.minimum(x[0, 0], Y - 3)),
    "mul": lambda x: (x * x, x * Y[:1], x[:, :1] * Y, 3.0 * x, x[1, 2] * Y, x[1, 2] * x),
    "neg": lambda x: -x,
    "reduce_sum": lambda x: (x.sum(), x.sum(1), x.sum(0, keepdims=True)),
    "reshape": lambda x: (x.reshape(2, 6), x.reshape(-1)),
    "select_n": lambda x: (jnp.where(WHICH, x, Y), jnp.where(x > 0.5, Y, x), jnp.where(WHICH, x, 2 * x),
                           jnp.where(x[0, 0] > 9, x, 1.0), jnp.where(WHICH, x[0, 0], x)),
    "sin": jnp.sin,
    "slice": lambda x: (x[1:, ::2], x[:, 3:], x[0:0], lax.slice(x, (0, 1), (3, 4), (2, 3))),
    "split": lambda x: lax.split(x, (1, 2, 1), 1)[1],
    "sqrt": lambda x: jnp.sqrt(Y + x * x),
    "square": lax.square,
    "squeeze": lambda x: (jnp.squeeze(x[:, :1], 1), x[0]),
    "sub": lambda x: (x - x[:1], Y - x, x - x[0, 0], 1.0 - x),
    "tanh": jnp.tanh,
    "transpose": lambda x: (x.T, jnp.transpose(x.reshape(3, 2, 2), (2, 0, 1))),
}
# what is left to JAX, and what has no gradient
OTHERS = {
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


@pytest.mark.parametrize("names", [list(OF), list(OTHERS)], ids=["known", "others"])
def test_cotangents_are_as_jax_has_them(names):
    every = {**OF, **OTHERS}

    def all_by(way, x):
        out = {}
        for name in names:
            found, back = way(lambda x, of=every[name]: jax.tree.map(jnp.asarray, of(x)))(x)
            out[name] = found, back(share(found))
        return out

    got, want = (jax.jit(functools.partial(all_by, way))(X)
                 for way in (with_vjp, lambda of: functools.partial(jax.vjp, of)))
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13, err_msg=jax.tree_util.keystr(path))
    for name in set(names) & set(OF):
        assert name in {eqn.primitive.name for eqn in equations(jax.make_jaxpr(OF[name])(X))}, name


def test_every_known_pull_is_tried():
    assert set(PULLS) - {"copy_p", "expand_dims"} == set(OF)


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
