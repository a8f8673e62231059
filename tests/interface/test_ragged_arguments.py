"""Lists of arrays of different lengths, given to functions written for NumPyro; and names in the data
that mean two things."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from numpyro.infer.util import log_density
from scipy import stats

import probml

RNG = np.random.default_rng(4)
LISTS = [RNG.normal(size=size) for size in (3, 1, 4, 2)]
WORDS = [np.array([0, 2, 1]), np.array([1]), np.array([2, 2, 0, 1])]
A = np.array([0.2, -0.4, 1.0, 0.3])


def one_by_one(y):
    mu = sample("mu", dist.Normal(0.0, 2.0))
    with plate("groups", len(y)):
        a = sample("a", dist.Normal(mu, 1.0))
    for i, own in enumerate(y):
        with plate(f"n_{i}", len(own)):
            sample(f"y_{i}", dist.Normal(a[i], 0.5), obs=own)


def as_one_array(y):
    mu = sample("mu", dist.Normal(0.0, 2.0))
    with plate("groups", len(y), dim=-2):
        a = sample("a", dist.Normal(mu, 1.0))
        with plate("n", np.shape(y)[1]):
            sample("y", dist.Normal(a, 0.5), obs=y)


def topics(docs):
    phi = sample("phi", dist.Dirichlet(jnp.ones(3)).expand([2]).to_event(1))
    with plate("documents", len(docs), dim=-2):
        theta = sample("theta", dist.Dirichlet(jnp.ones(2)))
        with plate("words", np.shape(docs)[1]):
            z = sample("z", dist.Categorical(theta))
            sample("w", dist.Categorical(phi[z]), obs=docs)


def test_a_list_that_is_gone_over_in_python_is_given_as_it_is():
    got = probml.model(one_by_one)().log_density({"y": LISTS}, {"mu": 0.3, "a": A})
    want = log_density(one_by_one, (LISTS,), {}, {"mu": jnp.asarray(0.3), "a": jnp.asarray(A)})[0]
    assert got == pytest.approx(float(want), abs=1e-9)


def test_a_list_where_an_array_is_wanted_is_padded_by_cells_that_are_left_out():
    model = probml.model(as_one_array)()
    got = model.log_density({"y": LISTS}, {"mu": 0.3, "a": A[:, None]})
    want = probml.model(one_by_one)().log_density({"y": LISTS}, {"mu": 0.3, "a": A})
    assert got == pytest.approx(want, abs=1e-9)
    short = model.log_density({"y": [own.tolist() for own in LISTS]}, {"mu": 0.3, "a": A[:, None]})
    assert short == pytest.approx(want, abs=1e-9)


def test_words_of_documents_of_different_lengths_are_summed_out_one_by_one():
    phi = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    theta = np.array([[0.3, 0.7], [0.5, 0.5], [0.9, 0.1]])
    got = probml.model(topics)().log_density({"docs": WORDS}, {"phi": phi, "theta": theta[:, None]})
    want = sum(np.log(theta[d] @ phi[:, own]).sum() for d, own in enumerate(WORDS))
    want += 2 * stats.dirichlet(np.ones(3)).logpdf(np.full(3, 1 / 3))  # that of a topic's share is 0
    assert got == pytest.approx(want, abs=1e-8)


def test_lists_that_cannot_be_meant_are_refused_by_name():
    def line(x, y):
        b = sample("b", dist.Normal(0.0, 1.0))
        with plate("groups", len(y), dim=-2), plate("n", np.shape(y)[1]):
            sample("y", dist.Normal(b * x, 1.0), obs=y)

    with pytest.raises(probml.DataError, match="'x' is a list of arrays of different lengths"):
        probml.model(line)().explain({"x": LISTS, "y": LISTS})
    holed = [LISTS[0], np.array([np.nan, 1.0])]
    with pytest.raises(probml.DataError, match="'y' is a list of arrays, and array 1 has missing"):
        probml.model(one_by_one)().explain({"y": holed})


def test_a_name_of_a_setting_and_of_a_site_is_refused():
    def means(y=None, m=0.0):
        sample("y", dist.Normal(sample("m", dist.Normal(m, 1.0)), 1.0), obs=y)

    with pytest.raises(probml.DataError, match="'m' in the data is ambiguous: it is the name of an arg"):
        probml.model(means)().log_density({"y": 0.3, "m": 0.1}, {})
    found = probml.model(means)(m=2.0).log_density({"y": 0.3}, {"m": 1.0})
    assert found == pytest.approx(stats.norm(2, 1).logpdf(1.0) + stats.norm(1, 1).logpdf(0.3))
