"""Domains: one value for a support, held to NumPyro's constraints."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

from probml.families import Entry, domains, registry

RANDOM = np.random.default_rng(0)
ROOT = np.tril(RANDOM.normal(size=(3, 3)), -1) + np.diag([1.0, 0.5, 2.0])
# distribution → its domain, a value inside, a value outside
KNOWN = {
    "normal": (dist.Normal(0, 1), domains.REAL, np.array([-3.0, 4.0]), None),
    "vector": (dist.Normal(0, 1).expand([3]).to_event(1), domains.REAL, np.ones(3), None),
    "gamma": (dist.Gamma(1, 1), domains.POSITIVE, np.array([0.1, 9.0]), np.array([-1.0])),
    "beta": (dist.Beta(1, 1), domains.UNIT_INTERVAL, np.array([0.2, 0.9]), np.array([1.2])),
    "von mises": (dist.VonMises(0, 1), domains.CIRCLE, np.array([-3.0, 3.0]), None),
    "dirichlet": (dist.Dirichlet(jnp.ones(3)), domains.SIMPLEX, np.array([[0.2, 0.3, 0.5]]),
                  np.array([[0.5, 0.6, -0.1]])),
    "wishart": (dist.Wishart(4.0, jnp.eye(3)), domains.POSITIVE_DEFINITE, ROOT @ ROOT.T,
                -ROOT @ ROOT.T),
    "cholesky": (dist.ImproperUniform(constraints.lower_cholesky, (), (3, 3)),
                 domains.LOWER_CHOLESKY, ROOT, ROOT.T),
}
every = pytest.mark.parametrize("name", KNOWN)


@every
def test_a_support_has_one_domain_that_knows_what_lies_in_it(name):
    distribution, domain, inside, outside = KNOWN[name]
    found = domains.of(distribution.support)
    assert found == domain and hash(found) == hash(domain) and found.fixed
    assert found.rank == domain.canonical.event_dim
    assert found.holds(inside) and (outside is None or not found.holds(outside))
    np.testing.assert_array_equal(found.contains(inside), domain.canonical(inside))


@every
def test_coordinates_of_a_domain_lead_there_and_back(name):
    _, domain, inside, _ = KNOWN[name]
    transform = domain.bijection
    np.testing.assert_allclose(transform(transform.inv(inside)), inside, rtol=1e-6)
    middle = np.asarray(domain.middle(inside.shape))
    assert middle.shape == inside.shape and domain.holds(middle)
    assert domain.size(inside.shape) == transform.inv(inside).size


@every
def test_what_is_shaken_a_little_is_still_inside(name):
    _, domain, inside, _ = KNOWN[name]
    if domain.rank < 2:  # a matrix that is not symmetric is refused, and the old one kept
        moved = domain.shaken(inside, 0.05 * RANDOM.standard_normal(inside.shape))
        assert domain.holds(moved) and not np.array_equal(moved, inside)


def test_a_vector_of_values_and_a_single_one_share_a_domain():
    single, vector = KNOWN["normal"][0], KNOWN["vector"][0]
    assert len({domains.of(single.support), domains.of(vector.support)}) == 1
    assert domains.of(dist.HalfNormal(1.0).support) == domains.of(dist.Gamma(1, 1).support)
    assert domains.POSITIVE != domains.REAL


def test_whole_numbers_are_equal_by_their_ends():
    first, second = (domains.of(dist.Binomial(n, 0.5).support) for n in (7, 7))
    assert first.discrete and first.integer_range == (0, 7) and first == second
    assert hash(first) == hash(second) and first != domains.of(dist.Binomial(8, 0.5).support)
    assert domains.of(dist.Bernoulli(0.5).support).integer_range == (0, 1)
    assert domains.of(dist.Poisson(2.0).support).integer_range is None


def test_a_domain_whose_ends_are_computed_is_only_itself():
    low, other = (domains.of(dist.Uniform(jnp.zeros(2), jnp.array([1.0, high])).support)
                  for high in (2.0, 3.0))
    assert not low.fixed and low == low and low != other
    np.testing.assert_array_equal(low.bounds["upper_bound"], [1.0, 2.0])


def test_the_shape_of_coordinates_does_not_depend_on_bounds_of_a_trace_that_has_ended():
    kept = []
    jax.eval_shape(lambda high: kept.append(domains.of(dist.Uniform(0.0, high).support)), jnp.ones(3))
    assert kept[0].unbounded_shape((2, 3)) == (2, 3) and kept[0].size((2, 3)) == 6


@pytest.mark.parametrize("distribution, words", [
    (dist.Gamma(1, 1), "positive"), (dist.Poisson(1.0), "zero or positive"),
    (dist.Binomial(5, 0.5), "an integer from 0 to 5"), (dist.VonMises(0, 1), "an angle in −π … π"),
    (dist.Dirichlet(jnp.ones(2)), "a vector of probabilities that sums to 1"),
    (dist.Uniform(2.0, 5.0), "a number from 2.0 to 5.0"),
])
def test_a_domain_says_in_words_what_it_wants(distribution, words):
    assert domains.of(distribution.support).description == words


def test_edges_are_the_distributions_own():
    zero = np.array([0.0])
    assert not domains.of(dist.Gamma(1, 1).support).contains(zero)
    assert domains.NONNEGATIVE.contains(zero) and domains.POSITIVE.holds(zero)
    edge = np.array([0.0, 1.0])
    assert domains.SIMPLEX.contains(edge) and not domains.Simplex(interior=True).contains(edge)
    assert not domains.OPEN_UNIT_INTERVAL.contains(edge).any()


def test_a_domain_of_ones_own_comes_with_its_entry(monkeypatch):
    class Sphere(domains.Domain):
        name, rank, fixed, canonical = "sphere", 1, True, constraints.sphere

    monkeypatch.setattr(registry, "_found", dict(registry._found))
    monkeypatch.setattr(domains, "_SINGLE", dict(domains._SINGLE))
    support = dist.ProjectedNormal(jnp.ones(3)).support
    assert not domains.of(support).fixed
    registry.register(Entry((dist.ProjectedNormal,), domains=(Sphere,)))
    assert domains.of(support) == Sphere()


@pytest.mark.parametrize("name", sorted(
    name for name, each in vars(constraints).items() if name != "dependent"
    and isinstance(each, constraints.Constraint)))
def test_every_constraint_of_numpyro_is_described_in_words_or_by_its_name(name):
    """A matrix had to be lowercholesky, and a number to be from None to 2."""
    words = domains.of(getattr(constraints, name)).description
    assert "None" not in words and (" " in words or words in ("real", "positive")), words
