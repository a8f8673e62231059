"""What functions inside distributions hold is an array of these: closures, defaults, partials, methods,
whatever wraps them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import flows

import probml
from probml.structure.leaves import leaves_of_distribution


class Drift:
    def __init__(self, k):
        self.k = k

    def pull(self, x, t):
        return -self.k * x, 0.5

    def __call__(self, x, t):
        return self.pull(x, t)


@jax.tree_util.register_pytree_node_class
class Tree(Drift):
    def tree_flatten(self):
        return (self.k,), None

    @classmethod
    def tree_unflatten(cls, _, held):
        return cls(*held)


def with_keyword(x, t, k=None):
    return -k * x, 0.5


def diffusion(pull):
    return dist.EulerMaruyama(t=jnp.arange(4) * 0.1, sde_fn=pull, init_dist=dist.Normal(0.0, 1.0))


def closure(k):
    def pull(x):
        return -k * x

    return lambda x, t: (pull(x), 0.5)


def in_a_dictionary(k):
    held = {"k": k, "name": "pull"}
    return lambda x, t: (-held["k"] * x, 0.5)


def default(k):
    return lambda x, t, k=k: (-k * x, 0.5)


FUNCTIONS = [closure, in_a_dictionary, default, lambda k: jax.jit(default(k)), lambda k: functools.partial(with_keyword, k=k),
             lambda k: Tree(k).pull, Tree]


@pytest.mark.parametrize("wrapped", [lambda own: own, lambda own: own.expand([2]).to_event(1),
                                     lambda own: own.mask(True)])
@pytest.mark.parametrize("made", FUNCTIONS)
def test_what_a_function_holds_is_a_leaf(made, wrapped):
    value = jnp.linspace(-1.0, 1.0, 4)

    def log(k):
        return wrapped(diffusion(made(k))).log_prob(value).sum()

    @jax.jit
    @jax.value_and_grad
    def by_leaves(k):
        def leaves(k):
            return leaves_of_distribution(wrapped(diffusion(made(k))))[0]

        tree = leaves_of_distribution(wrapped(diffusion(made(jnp.float32(0.0)))))[1]
        return jax.tree.unflatten(tree, leaves(k)).log_prob(value).sum()

    got, slope = by_leaves(0.7)
    np.testing.assert_allclose(got, log(0.7), rtol=1e-6)
    assert abs(float(slope)) > 1e-3


def test_networks_of_a_flow_are_followed():
    def net(k, x):
        return k * jnp.tril(jnp.ones((2, 2)), -1) @ x, 0.0 * x

    def flow(k):
        return dist.TransformedDistribution(
            dist.Normal(0.0, 1.0).expand([2]).to_event(1),
            flows.InverseAutoregressiveTransform(functools.partial(net, k)))

    leaves, tree = leaves_of_distribution(flow(jnp.array(0.7)))
    assert any(np.size(leaf) == 1 and float(leaf) == pytest.approx(0.7) for leaf in leaves)
    again = jax.tree.unflatten(tree, leaves)
    np.testing.assert_allclose(again.log_prob(jnp.ones(2)), flow(0.7).log_prob(jnp.ones(2)))


def test_an_object_that_hides_arrays_is_refused_by_name():
    @jax.jit
    def run(k):
        return leaves_of_distribution(diffusion(Drift(k)))[0]

    with pytest.raises(probml.ModelError) as error:
        run(0.7)
    assert all(word in str(error.value) for word in ("Drift", "'k'", "register"))
