"""Claims of the cost of a program: loops, products and factorisations count as they run."""

import jax
import jax.numpy as jnp
import pytest

from probml.jaxpr.cost import WHILE_STEPS, count_operations

X, SQUARE = jnp.ones(10), jnp.eye(4)


def scanned(x):
    return jax.lax.scan(lambda carry, _: (carry + x, ()), x, None, length=7)[0]


def until(x):
    return jax.lax.while_loop(lambda carry: carry[0] < 3.0, lambda carry: carry + x, x)


def branched(x):
    return jax.lax.cond(x[0] > 0, lambda x: jnp.sin(jnp.cos(x)), lambda x: x + 1.0, x)


@pytest.mark.parametrize(("function", "at", "least", "most"), [
    (lambda x: x + 1.0, X, 10, 10),
    (lambda x: x.sum(), X, 10, 10),
    (lambda x: x @ x, SQUARE, 64, 64),
    (jnp.linalg.cholesky, SQUARE, 64, 240),
    (jax.jit(lambda x: jnp.sin(x) * 2.0), X, 20, 20),
    (scanned, X, 70, 80),
    (until, X, 10 * WHILE_STEPS, 14 * WHILE_STEPS),
    (branched, X, 20, 25),
    (jax.vmap(lambda row: row @ SQUARE), jnp.ones((5, 4)), 80, 80),
    (jax.vmap(scanned), jnp.ones((3, 10)), 210, 240),
])
def test_loops_products_and_branches_count_as_they_run(function, at, least, most):
    assert least <= count_operations(jax.make_jaxpr(function)(at).jaxpr) <= most
