"""Results that are computed alike are computed together, and are what each is by itself."""

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr.backward import shortened
from probml.jaxpr.repeats.patterns import equivalent_results

X = jnp.array([0.5, -1.0, 2.0, 0.3, 0.7])
M = jnp.array([1.0, 3.0])


def found(function, *args, tracked=()):
    closed = jax.make_jaxpr(shortened(function))(*args)
    return closed, equivalent_results(closed, tracked)


def test_steps_that_differ_by_numbers_and_slices_are_one_class():
    def steps(x):
        return [jnp.exp(x[i]) * (i + 2.0) + jax.nn.relu(x[1:3] * 0.1 * i) for i in range(4)]

    _, classes = found(steps, X)
    assert [c.outputs for c in classes] == [(0, 1, 2, 3)]
    np.testing.assert_allclose(classes[0]([X]), np.stack(steps(X)), rtol=1e-6)


def test_states_of_other_steps_are_told_apart_and_inputs_are_stacked():
    def steps(z, m):
        return [m[i] * M[z[i]] + (M[z[i - 1]] if i else 0.0) for i in range(4)]

    z, m = [jnp.array(i % 2) for i in range(4)], [X[i] for i in range(4)]
    closed, classes = found(steps, z, m, tracked=range(4))
    assert [c.outputs for c in classes] == [(0,), (1, 2, 3)]
    assert classes[1].tracked == ((1, 0), (2, 1), (3, 2))
    for now, before in ((0, 0), (0, 1), (1, 0)):
        got = classes[1]([None] * 4 + m, jnp.array(now), jnp.array(before))
        np.testing.assert_allclose(got, [m[i] * M[now] + M[before] for i in (1, 2, 3)], rtol=1e-6)


def test_other_primitives_shapes_and_derivatives_are_other_classes():
    @jax.custom_jvp
    def own(x):
        return x * 2.0

    own.defjvps(lambda t, out, x: t)

    @jax.custom_jvp
    def other(x):
        return x * 2.0

    other.defjvps(lambda t, out, x: 5.0 * t)

    def steps(x):
        return [jnp.sin(x[0]), jnp.cos(x[1]), jnp.sin(x[:2]), own(x[0]), own(x[1]), other(x[2])]

    _, classes = found(steps, X)
    assert [c.outputs for c in classes] == [(0,), (1,), (2,), (3, 4), (5,)]
    slope = jax.grad(lambda x: classes[3]([x]).sum())(X)
    np.testing.assert_allclose(slope, [1, 1, 0, 0, 0])
