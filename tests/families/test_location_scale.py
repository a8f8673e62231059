"""Scales of vectors: running sums are held to the matrix that they stand for. Transformed numbers:
their location and scale are held to NumPyro's density in unbounded coordinates."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to, transforms

from probml.families import registry
from probml.families.location_scale import Root, Sums

MOVED = transforms.AffineTransform(0.3, -2.0)


def test_running_sums_are_their_matrix():
    random = np.random.default_rng(0)
    scale, x = jnp.asarray(random.uniform(0.5, 2.0, 3)), jnp.asarray(random.normal(size=(3, 5)))
    sums = Sums(scale, 5)
    dense = Root(scale[:, None, None] * np.tri(5))
    np.testing.assert_allclose(sums.lower(), dense.lower(), rtol=1e-12)
    for ask in ("times", "without"):
        np.testing.assert_allclose(getattr(sums, ask)(x), getattr(dense, ask)(x), rtol=1e-10)
    np.testing.assert_allclose(sums.volume(), dense.volume(), rtol=1e-12)
    np.testing.assert_allclose(sums.without(sums.times(x)), x, rtol=1e-12)


@pytest.mark.parametrize("steps", [
    transforms.SigmoidTransform(), transforms.ExpTransform(), MOVED,
    [MOVED, MOVED, transforms.SigmoidTransform()]])
def test_a_transformed_number_is_a_location_and_a_scale(steps):
    prior = dist.TransformedDistribution(dist.Normal(0.7, 1.3).expand([4]), steps)
    loc, scale = registry.entry(prior).location_scale(prior)
    to, u = biject_to(prior.support), jnp.array([-1.2, 0.1, 0.8, 2.0])
    value = to(u)
    np.testing.assert_allclose(prior.log_prob(value) + to.log_abs_det_jacobian(u, value),
                               dist.Normal(loc, scale).log_prob(u), rtol=1e-6)


@pytest.mark.parametrize("prior", [
    dist.ZeroSumNormal(0.6, (5,)),
    dist.TransformedDistribution(dist.Normal(0.5, 2.0).expand([3]).to_event(1),
                                 transforms.OrderedTransform())])
def test_so_is_a_vector_by_its_own_coordinates(prior):
    loc, scale = registry.entry(prior).location_scale(prior)
    to = biject_to(prior.support)
    u = jnp.linspace(-1.1, 0.9, loc.size).reshape(loc.shape)
    value = to(u)
    np.testing.assert_allclose(prior.log_prob(value) + to.log_abs_det_jacobian(u, value),
                               dist.Normal(loc, scale).log_prob(u).sum(-1), rtol=1e-5)


@pytest.mark.parametrize("prior", [
    dist.TransformedDistribution(dist.Normal(0, 1), [transforms.ExpTransform(), MOVED]),
    dist.TransformedDistribution(dist.Normal(0, 1), [transforms.SigmoidTransform()] * 2),
    dist.TransformedDistribution(dist.Gamma(2, 1), MOVED)])
def test_one_that_is_none_is_not_taken_for_it(prior):
    assert registry.entry(prior).location_scale is None
