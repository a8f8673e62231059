"""Our maps have NumPyro's coordinates, on the device and on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

from probml.families import bijections, domains

RANDOM = np.random.default_rng(0)
DOMAINS = {
    "simplex": (domains.SIMPLEX, (2, 3)),
    "one state": (domains.SIMPLEX, (2, 0)),
    "many states": (domains.SIMPLEX, (2, 99)),
    "positive definite": (domains.POSITIVE_DEFINITE, (2, 6)),
    "lower cholesky": (domains.LOWER_CHOLESKY, (2, 6)),
    "one by one": (domains.POSITIVE_DEFINITE, (2, 1)),
    "positive": (domains.POSITIVE, (2, 3)),
    "unit interval": (domains.UNIT_INTERVAL, (2, 3)),
    "real": (domains.REAL, (2, 3)),
}


@pytest.mark.parametrize("name", DOMAINS)
@pytest.mark.parametrize("far", [1.0, 12.0])
def test_values_coordinates_and_volumes_are_numpyros(name, far):
    domain, shape = DOMAINS[name]
    u = jnp.asarray(far * RANDOM.normal(size=shape))
    ours, theirs = domain.bijection, dist.biject_to(domain.canonical)
    value = theirs(u)
    close = dict(rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours(u), value, **close)
    np.testing.assert_allclose(domain.host.forward(np.asarray(u)), value, **close)
    np.testing.assert_allclose(ours.log_abs_det_jacobian(u, value),
                               theirs.log_abs_det_jacobian(u, value), rtol=1e-9)
    if far == 1.0:
        np.testing.assert_allclose(ours.inv(value), u, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(domain.host.inverse(np.asarray(value)), u, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", ["simplex", "many states", "positive definite"])
def test_first_and_second_derivatives_are_numpyros_also_in_the_middle(name):
    domain, shape = DOMAINS[name]
    at = jnp.zeros(shape[1:])
    weigh = RANDOM.normal(size=np.shape(domain.bijection(at)))
    for order in (jax.grad, jax.hessian):
        ours, theirs = (order(lambda u, m=m: jnp.sum(weigh * m(u) ** 2))(at)
                        for m in (domain.bijection, dist.biject_to(domain.canonical)))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_edge_of_a_simplex_is_held_as_numpyro_holds_it():
    u = jnp.array([[60.0, 0.0], [-60.0, 900.0]])
    found = bijections.SIMPLEX(u)
    np.testing.assert_allclose(found, dist.biject_to(constraints.simplex)(u), rtol=1e-6)
    assert (np.asarray(found)[0] > 0).all()


def test_a_matrix_that_is_not_positive_definite_harms_no_other():
    matrices = np.stack([np.eye(2), np.full((2, 2), np.nan), -np.eye(2), 4 * np.eye(2)])
    found = bijections.cholesky(matrices)
    assert np.isnan(found[1:3, 1, 1]).all()
    np.testing.assert_array_equal(found[[0, 3]], np.stack([np.eye(2), 2 * np.eye(2)]))
