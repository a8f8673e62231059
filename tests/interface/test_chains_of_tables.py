"""Chains in the first of several tables: their length is that of the data, as it is where the data
are one table; in a table that belongs to it they are refused. Oracle: the model of one table."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml

HALF, MOVES = jnp.array([0.6, 0.4]), jnp.array([[0.9, 0.1], [0.3, 0.7]])
Y = np.array([[0.1, np.nan, 1.4], [2.0, 1.2, 0.3]])
X = np.array([[0.4, -0.3], [1.2, np.nan]])  # of persons p and q
TABLES = {"people": {"person": ["p", "q"], "age": np.array([[0.1, 0.2], [0.3, 0.4]]), "y": Y},
          "visits": {"person": ["q", "p", "p"], "x": np.array([1.2, 0.4, -0.3])}}


def chain(name, kind, steps):
    if name == "Gaussian":
        return probml.GaussianChain(jnp.zeros(1), jnp.eye(1), jnp.eye(1), 0.3 * jnp.eye(1), steps)
    moves = jnp.stack([MOVES, MOVES[::-1]])[kind] if name == "by kind" else MOVES
    return probml.MarkovChain(HALF, moves, steps)


def person_sites(name, steps, age):
    kind = sample("kind", dist.Bernoulli(0.4))
    z = sample("z", chain(name, kind, steps))
    level = z[..., 0] if name == "Gaussian" else 2.0 * z
    sample("y", dist.Normal(level + (kind + age.sum(-1))[..., None], 1.0).to_event(1))
    return kind


@pytest.mark.parametrize("steps", (None, 3))
@pytest.mark.parametrize("name", ("Gaussian", "Markov", "by kind"))
def test_several_tables_answer_as_one(name, steps):
    @probml.model
    def several(person, age):
        with probml.rows("people"):
            kind = person_sites(name, steps, age)
        with probml.rows("visits", of="people"):
            sample("x", dist.Normal(1.0 * kind[person], 1.0))

    @probml.model
    def one(age):
        with probml.rows():
            kind = person_sites(name, steps, age)
            with plate("visits", 2):
                sample("x", dist.Normal(1.0 * kind, 1.0))

    flat = {"age": TABLES["people"]["age"], "y": Y, "x": X}
    fit, other = several().at({}), one().at({})
    np.testing.assert_allclose(fit.log_prob(TABLES), other.log_prob(flat), rtol=1e-5)
    for site in ("kind",) if name == "Gaussian" else ("kind", "z"):
        np.testing.assert_allclose(fit.predict_proba(TABLES, site), other.predict_proba(flat, site),
                                   atol=1e-6)
    np.testing.assert_allclose(fit.impute(TABLES)["y"], other.impute(flat)["y"], rtol=1e-5)


@pytest.mark.parametrize("name", ("Gaussian", "Markov"))
def test_a_chain_of_a_table_that_belongs_to_another_is_refused(name):
    @probml.model
    def weeks(person):
        with probml.rows("people"):
            kind = sample("kind", dist.Bernoulli(0.4))
        with probml.rows("weeks", of="people"):
            sample("x", dist.Normal(1.0 * kind[person], 1.0))
            z = sample("z", chain(name, kind, None))
            sample("y", dist.Normal(z[..., 0] if name == "Gaussian" else z, 1.0).to_event(1))

    data = {"people": {"person": ["p", "q"]},
            "weeks": {"person": ["p", "q", "p"], "x": np.ones(3), "y": np.ones((3, 4))}}
    with pytest.raises(probml.ModelError, match="in the rows of 'people' only, not in those of a table"):
        weeks().fit(data)
