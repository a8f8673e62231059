"""A function that is shortened is the same function: also mapped, differentiated, looped over."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.jaxpr.backward import shortened
from probml.jaxpr.program import equations

X = np.array([[0.3, -1.2, 2.0], [1.5, 0.25, -0.5], [-2.0, 0.0, 1.0]])


def _loops(x):
    def body(i, carry):
        return jnp.where(carry > 2, carry * 0.5, carry + jnp.clip(x, -1, 1) * i)

    found = jax.lax.fori_loop(0, 4, body, x)
    return jax.lax.while_loop(lambda v: jnp.sum(v) > 1, lambda v: v / 2, found)


def _sums(x):
    return {"log": jax.nn.logsumexp(x), "soft": jax.nn.softplus(x), "pair": (jnp.where(x > 0, x, 0.0).sum(), None)}


FUNCTIONS = {
    "calls": _sums,
    "loops": _loops,
    "rules of their own": lambda x: jax.nn.relu(x) + jax.nn.silu(x),
    "matrices": lambda x: jnp.linalg.solve(x[:, None] * x + 2 * jnp.eye(3), x),
    "branches": lambda x: jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "what is not used": lambda x: (jnp.exp(x), x * 2)[1],
    "random": lambda x: x + jax.random.normal(jax.random.key(3), x.shape),
    "an argument as it is": lambda x: (x, 1.0, jnp.zeros(2)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_maps_and_derivatives_stay(name):
    plain, short = FUNCTIONS[name], shortened(FUNCTIONS[name])
    close = lambda a, b: jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-13, atol=1e-14), a, b)  # noqa: E731
    close(short(X[0]), plain(X[0]))
    close(jax.jit(jax.vmap(short))(X), jax.jit(jax.vmap(plain))(X))

    def total(function):
        return lambda x: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(function(x)))

    if name != "loops":  # a while loop has no gradient
        close(*(jax.jit(jax.vmap(jax.grad(total(f))))(X) for f in (short, plain)))
    close(*(jax.jit(lambda x, t, f=f: jax.jvp(f, (x,), (t,)))(X[0], X[1])
            for f in (short, plain)))


def test_what_is_around_may_be_traced():
    def outer(a, x):
        return jax.vmap(shortened(lambda y: jnp.where(y > a, y * a, a)))(x).sum()

    a = 0.7
    np.testing.assert_allclose(jax.grad(outer)(a, X[0]), np.where(X[0] > a, X[0], 1.0).sum())


def test_equal_equations_are_made_once_and_unused_ones_not_at_all():
    def twice(x):
        jnp.sort(jnp.exp(x))  # nobody asks for it
        return jnp.where(x > 0, jnp.log1p(x), 0.0) + jnp.where(x > 0, jnp.log1p(x), 0.0)

    names = [eqn.primitive.name for eqn in equations(jax.make_jaxpr(shortened(twice))(X))]
    assert names.count("log1p") == names.count("select_n") == 1
    assert not {"sort", "exp", "jit", "pjit"} & set(names)


def test_signed_zeros_and_types_are_told_apart():
    def signs(x):
        return x / 0.0, x / -0.0, x * 1, x * 1.0, (x * jnp.float32(1.0)), x * 1.0

    for got, expected in zip(shortened(signs)(np.float64(2.0)), signs(jnp.float64(2.0)), strict=True):
        assert got == expected and got.dtype == expected.dtype
