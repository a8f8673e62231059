"""The same verbs everywhere: ranges choose, seeds may be generators, and a function that cannot be
read is told how to write it."""

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

import probml
from probml import models
from probml.models import HiddenMarkov


@probml.model
def coin(a: float = 1.0):
    bias = sample("bias", dist.Beta(a, 1.0))
    with probml.rows():
        sample("toss", dist.Bernoulli(bias))


def test_hidden_markov_chooses_among_numbers_of_states():
    random = np.random.default_rng(0)
    path = np.repeat(np.arange(6) % 2, 20)
    y = random.poisson(np.array([2.0, 12.0])[path])
    estimator = HiddenMarkov(range(1, 3), emission="poisson", n_init=1).fit(y)
    assert estimator.n_states_ == 2 and estimator.transmat_.shape == (2, 2)
    assert estimator.table_["bic"].idxmin() == 1 and set(estimator.fits_) == {1, 2}
    assert estimator.table_["bic"].min() == pytest.approx(estimator.bic(y))
    assert (estimator.predict(y) == (estimator.lambdas_[:, 0].argsort().argsort()[path])).mean() > 0.95
    with pytest.raises(probml.ModelError, match="start= needs one number of states"):
        HiddenMarkov([1, 2], emission="poisson", start={"rate": [[1.0]]}).fit(y)


def test_tables_of_estimators_answer_by_column():
    table = pd.DataFrame({"colour": ["red", "red", "blue", "blue"], "size": [1.0, 1.2, 3.0, 3.3]})
    estimator = models.NaiveBayes(alpha=1.0).fit(table, ["a", "a", "b", "b"])
    found = estimator.table("colour")
    assert found.loc["a", "red"] == pytest.approx(3 / 4) and found.columns.name == "colour"
    assert estimator.table("size").loc["b", "mean"] == pytest.approx(3.15, abs=0.1)
    with pytest.raises(probml.ModelError, match="'color'.*Did you mean colour"):
        estimator.table("color")


def test_parameters_drawn_from_the_prior_are_told_if_asked():
    drawn = coin().simulate(2000, parameters=True)
    assert set(drawn) == {"bias", "toss"} and drawn["bias"].shape == ()
    assert abs(drawn["toss"].mean() - drawn["bias"]) < 0.05
    assert set(coin().simulate(5)) == {"toss"}
    np.testing.assert_array_equal(coin().simulate(5, seed=3)["toss"],
                                  coin().simulate(5, seed=3, parameters=True)["toss"])


def test_seeds_may_be_generators_which_move_on():
    random = np.random.default_rng(1)
    first, second = (coin().simulate(30, seed=random)["toss"] for _ in range(2))
    assert (first != second).any()
    again = coin().simulate(30, seed=np.random.default_rng(1))["toss"]
    np.testing.assert_array_equal(first, again)
    assert coin().simulate(3, seed=np.random.RandomState(0))["toss"].shape == (3,)
    np.testing.assert_array_equal(coin().simulate(30, seed=jax.random.key(7))["toss"],
                                  coin().simulate(30, seed=7)["toss"])
    with pytest.raises(probml.ModelError, match="a JAX key, or a NumPy generator"):
        coin().simulate(3, seed=1.5)


def _branching():
    p = sample("p", dist.Beta(1.0, 1.0))
    with probml.rows():
        sample("y", dist.Bernoulli(0.5 if p > 0.5 else p))


def _by_numpy():
    p = sample("p", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(0.0, np.exp(np.asarray(p))))


def _by_math():
    p = sample("p", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(0.0, math.exp(p)))


def _counting():
    k = sample("k", dist.Categorical(jnp.ones(3) / 3))
    with plate("k", 2):
        w = sample("w", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(sum(w[i] for i in range(k)), 1.0))


@pytest.mark.parametrize("function,said", [
    (_branching, r"jnp\.where\(condition, a, b\)"), (_by_numpy, r"jnp\.exp\(x\) instead of np"),
    (_by_math, r"jnp\.exp\(x\) instead of math\.exp"), (_counting, "range"),
])
def test_what_cannot_be_read_is_told_what_to_write(function, said):
    with pytest.raises(probml.ModelError, match=said) as error:
        probml.model(function)().fit({"y": np.zeros(3)})
    assert "Tracer" not in str(error.value) and "at line" in str(error.value)


def test_the_public_names_are_listed_and_told():
    assert set(probml.__all__) <= set(dir(probml))
    assert all(getattr(probml, name) is not None for name in probml.__all__)
    for name in probml.__all__:
        assert inspect.getdoc(getattr(probml, name)), name
        assert name in probml.__doc__, f"help(probml) does not tell of {name}"


def test_the_zoo_lists_its_names_and_no_others():
    assert set(dir(models)) == {*models.__all__, "pictures"}
    assert models.pictures.density.__doc__ and len(set(models.__all__)) == len(models.__all__)
