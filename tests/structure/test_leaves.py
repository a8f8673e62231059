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
from probml.structure.leaves import _has_computed_field, leaves_of_distribution


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


def kinds(of=dist.Distribution):
    """All classes of distributions that NumPyro and probml have, also those without a public name."""
    for kind in of.__subclasses__():
        if kind.__module__.partition(".")[0] in ("numpyro", "probml"):
            yield kind
        yield from kinds(kind)


def cannot_be_set(kind):
    """The fields of a class's pytree that NumPyro fails to set when it rebuilds one."""
    made = kind.__new__(kind)
    for field in kind.gather_pytree_data_fields():
        try:
            setattr(made, field, 1.0)
        except AttributeError:
            yield field


def test_every_class_that_numpyro_cannot_rebuild_is_known():
    failing = {kind for kind in kinds() if any(cannot_be_set(kind))}
    assert {kind.__name__ for kind in failing} <= {"_HurdleNegativeBinomial2"}, "of NumPyro 0.22"
    assert failing == {kind for kind in kinds() if _has_computed_field(kind)}


@pytest.mark.parametrize("wrapped", [lambda own: own, lambda own: own.expand([2, 3]).to_event(1),
                                     lambda own: own.mask(True)])
def test_what_numpyro_cannot_rebuild_is_rebuilt(wrapped):
    """Negative binomial behind a hurdle: P(0) is the gate, and of counts above 0 as without zeros."""
    def made(mean):
        return wrapped(dist.HurdleNegativeBinomial2(0.3, mean * jnp.ones(3), 2.0))

    @jax.jit
    def again(mean, value):
        leaves, tree = leaves_of_distribution(made(mean))
        return jax.tree.unflatten(tree, leaves).log_prob(value), made(mean).log_prob(value)

    got, wanted = again(1.7, jnp.array([0, 1, 4]))
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


TOTALS, SHARES = jnp.array([5, 7]), jnp.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
KEPT_AS_SETTINGS = {  # class → one with arrays that NumPyro's pytree takes for settings
    "MultinomialProbs": lambda n, p: dist.Multinomial(n, p),
    "MultinomialLogits": lambda n, p: dist.Multinomial(n, logits=jnp.log(p)),
    "DirichletMultinomial": lambda n, p: dist.DirichletMultinomial(3 * p, n),
    "CAR": lambda n, p: dist.CAR(0.0, p[:, 0], 9 * p[:, 1], jnp.array([[0.0, 1.0], [1.0, 0.0]])),
}


def test_every_class_that_takes_an_array_for_a_setting_is_known():
    taken = {kind.__name__ for kind in kinds() if kind.arg_constraints.keys()
             & {*kind.gather_pytree_aux_fields()} - {*kind.gather_pytree_data_fields()}}
    assert taken - {"LKJ"} <= KEPT_AS_SETTINGS.keys()


@pytest.mark.parametrize("wrapped", [
    lambda own: own, lambda own: own.mask(jnp.ones(own.batch_shape, bool)),
    lambda own: dist.MixtureGeneral(dist.Categorical(jnp.array([0.4, 0.6])), [own, own]),
], ids=["alone", "masked", "mixed"])
@pytest.mark.parametrize("name", KEPT_AS_SETTINGS)
def test_an_array_that_numpyro_takes_for_a_setting_is_a_leaf(name, wrapped):
    """A masked multinomial whose totals are an input failed with an error of JAX's."""
    made, trees = KEPT_AS_SETTINGS[name], []
    own = wrapped(made(TOTALS, SHARES))
    value = jnp.ones(own.event_shape) if name == "CAR" else jnp.array([[1, 1, 3], [2, 4, 1]])

    @jax.jit
    def leaves(n, p):
        flat, tree = leaves_of_distribution(wrapped(made(n, p)))
        trees.append(tree)
        return flat

    held = leaves(TOTALS, SHARES)
    got = jax.jit(lambda held: jax.tree.unflatten(trees[0], held).log_prob(value))(held)
    np.testing.assert_allclose(got, own.log_prob(value), rtol=1e-6)
