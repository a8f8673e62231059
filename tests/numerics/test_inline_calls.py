"""Calls of compiled functions inside our traces are what they do; loops stay loops."""

import threading

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr.program import equations
from probml.numerics.compiling import jit
from probml.numerics.process.inline_calls import evaluated, inline_calls, traced_once

X = np.arange(6.0).reshape(2, 3)


def function(x):
    loop = jax.lax.scan(lambda s, r: (jnp.where(s > 2, s * 0.5, s + r), jnp.sum(s)), x[0], x)
    until = jax.lax.while_loop(lambda s: jnp.sum(s) > 1, lambda s: jnp.clip(s, 0, 9) / 2, x)
    return loop, until, jnp.where(x > 1, jnp.log1p(x), x @ x.T @ x), jax.nn.logsumexp(x, 1), jnp.linalg.cholesky(
        x @ x.T + jnp.eye(2))


def names(function, *args):
    return [eqn.primitive.name for eqn in equations(jax.make_jaxpr(function)(*args))]


def plainly(*args):
    with inline_calls():
        return function(*args)


def test_calls_are_no_equations_and_loops_are():
    assert {"jit", "pjit"} & set(names(function, X))
    found = names(plainly, X)
    assert not {"jit", "pjit"} & set(found) and found.count("scan") == found.count("while") == 1
    for a, b in zip(jax.tree.leaves(jax.jit(plainly)(X)), jax.tree.leaves(jax.jit(function)(X)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)
        assert a.dtype == b.dtype and a.weak_type == b.weak_type


def test_outside_and_in_other_threads_calls_are_compiled():
    traces = []

    @jax.jit
    def counted(x):
        traces.append(x.shape)
        return x + 1

    def ask():
        for _ in range(3):
            counted(X)

    def inside(x):
        with inline_calls():
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()
            return counted(x) + counted(x)

    jax.make_jaxpr(inside)(X)
    assert len(traces) == 3  # one of the thread, two of ours
    ask()
    assert len(traces) == 3


def test_numbers_may_be_computed_within_a_trace():
    def inside(x):
        with evaluated():
            scale = float(jnp.where(jnp.arange(3) > 1, 2.0, 0.0).sum())
        return x * scale

    def plainly(x):
        with inline_calls():
            return inside(x)

    np.testing.assert_array_equal(jax.jit(plainly)(X), 2 * X)

    def foreign(x):
        with jax.ensure_compile_time_eval():
            scale = float(jnp.where(jnp.arange(3) > 1, 2.0, 0.0).sum())
        return x * scale

    np.testing.assert_array_equal(jit(foreign)(X), 2 * X)
    with jax.ensure_compile_time_eval():
        np.testing.assert_array_equal(jit(lambda x: jnp.where(x > 1, x, 0.0) + jnp.arange(3))(X),
                                      np.where(X > 1, X, 0) + np.arange(3))


def test_what_is_traced_once_is_an_equation_of_calls_that_have_none():
    traces = []

    def part(x):
        traces.append(x.shape)
        return jnp.where(x > 1, x, 0.0)

    def whole(x):
        with inline_calls():
            own = traced_once(part)
            return jax.lax.fori_loop(0, 3, lambda _, s: own(s), own(x + 1.0))

    found = names(whole, X)
    assert len(traces) == 1 and found.count("jit") + found.count("pjit") == 2
    np.testing.assert_array_equal(jax.jit(whole)(X), np.where(X + 1 > 1, X + 1, 0))
