"""Steps of a recursion are computed by a scan, to the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.jaxpr.backward import shortened
from probml.jaxpr.program import equations, evaluate
from probml.jaxpr.repeats.rolled import evaluated, recursion

RNG = np.random.default_rng(0)


def variances(p, y):
    """A volatility that looks at returns and at itself."""
    s, out = jnp.array(0.5), []
    for t in range(len(y)):
        out.append(s)
        s = jnp.sqrt(0.1 + p[1] * (y[t] - p[2]) ** 2 + p[3] * s**2)
    return jnp.stack(out)


def averages(p, y):
    """Errors of a moving average of order two, that begins with none."""
    one = two = 0.0
    out = []
    for t in range(len(y)):
        error = y[t] - p[0] - p[1] * one - p[2] * two
        one, two = error, one
        out.append(error)
    return jnp.array(out)


def seasons(p, y):
    """A level, and what it was four steps before."""
    level, season, out = y[0], [p[0], p[1], p[2], p[3]], []
    for t in range(len(y)):
        out.append(level + season[t])
        new = 0.3 * (y[t] - season[t]) + 0.7 * level
        season.append(0.2 * (y[t] - level) + 0.8 * season[t])
        level = new
    return jnp.stack(out)


def weighted(p, y):
    """Vectors, each step with a number of its own, put side by side."""
    x, out = jnp.zeros(2), []
    turn = jnp.array([[0.9, 0.2], [-0.1, 0.8]])
    for t in range(len(y)):
        x = turn @ x + (t + 1.0) * p[:2] * y[t]
        out.append(jnp.tanh(x) * p[2])
    return jnp.concatenate(out)


def beside(p, y):
    """Looks at what is made of data alone: no recursion."""
    out, before = [], 0.0
    for t in range(len(y)):
        now = jnp.exp(y[t])
        out.append(p[0] * before + now)
        before = now
    return jnp.stack(out)


def broken(p, y):
    s, out = p[0], []
    for t in range(len(y)):
        s = jnp.cos(s) if t == 9 else jnp.sin(s) + y[t]
        out.append(s)
    return jnp.stack(out)


P = jnp.array([0.5, 0.2, 0.1, 0.6])


@pytest.mark.parametrize("function", [variances, averages, seasons, weighted, beside, broken])
def test_what_is_rolled_has_the_values_and_gradients_of_the_loop(function):
    y = RNG.normal(size=14)

    def both(run, p):
        return run(jax.make_jaxpr(shortened(function))(p, y), [p, jnp.asarray(y)])[0]

    def with_slope(run):
        def of(p):
            value, pull = jax.vjp(lambda p: both(run, p), p)
            return value, pull(jnp.asarray(share[:len(value)]))[0]

        return jax.jit(of)(P)

    share = RNG.normal(size=28)
    (want, pulled), (got, pushed) = map(with_slope, (lambda c, v: evaluate(c, *v), evaluated))
    np.testing.assert_allclose(got, want, rtol=1e-5)
    np.testing.assert_allclose(pushed, pulled, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [variances, averages, seasons, weighted])
def test_the_program_does_not_grow_with_the_steps(function):
    def size(steps):
        y = jnp.zeros(steps)
        closed = jax.make_jaxpr(shortened(function))(P, y)
        return sum(1 for _ in equations(jax.make_jaxpr(lambda p, y: evaluated(closed, [p, y]))(P, y)))

    assert size(20) == size(40)


def test_steps_that_do_not_look_back_are_no_recursion():
    closed = jax.make_jaxpr(lambda p, y: [jnp.exp(p[0] * y[t]) for t in range(12)])(P, jnp.ones(12))
    assert recursion(closed, [(i,) for i in range(12)]) is None
