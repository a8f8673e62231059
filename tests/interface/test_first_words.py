"""What a model or its data say that cannot be: refused by name before any compile; and what used to
be refused, or wrong, and works."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

import probml

X, Y = np.array([2.04, -2.55, 0.4]), np.array([1.0, 2.0, 3.0])


@probml.model
def slope(x):
    b = sample("b", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(b * x, 1.0))


@probml.model
def hits(n, more=0):
    p = sample("p", dist.Beta(2.0, 1.0))
    with probml.rows():
        sample("y", dist.Binomial(n + more, p))


@probml.model
def waits(since):
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    with probml.rows(), plate("twice", 2):
        sample("y", dist.TruncatedNormal(rate, 1.0, low=since))


@probml.model
def shares():
    a = sample("a", dist.Gamma(2.0, 1.0).expand([3]).to_event(1))
    with probml.rows():
        sample("y", dist.Dirichlet(a))


@pytest.mark.parametrize(
    "data",
    [
        {"x": X.astype(object), "y": Y},
        {"x": X.astype(object), "y": Y.astype(object)},
        pd.DataFrame({"x": X, "y": Y}).astype(object),
        {"x": pd.Series(X, dtype=object), "y": pd.Series(Y, dtype=object)},
        pd.DataFrame({"x": X, "y": Y, "name": ["a", "b", "c"]}).T.T[["x", "y"]],
    ],
    ids=["input", "both", "frame", "series", "transposed"],
)
def test_numbers_held_as_objects_are_not_truncated(data):
    params = {"b": np.array(0.7)}
    assert slope().log_density(data, params) == slope().log_density({"x": X, "y": Y}, params)


def test_a_chain_with_an_input_along_time_is_predicted():
    @probml.model
    def chain(x):
        with plate("states", 2):
            a = sample("a", dist.Normal(0.0, 3.0))
        with probml.rows():
            z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]),
                                               jnp.array([[0.9, 0.1], [0.2, 0.8]])))
            sample("y", dist.Normal(a[z] + 2.0 * x, 0.5).to_event(1))

    x = np.arange(12.0).reshape(3, 4)
    fit = chain().at({"a": np.array([1.0, 1.0])})
    np.testing.assert_allclose(fit.predict({"x": x}, "y"), 1.0 + 2.0 * x, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        (hits(), {"n": [3, 4, 5], "y": [1, 5, 2]},
         "'y' .Binomial. is 5 in row 1, but must be at most 4 in this row.*, which the model computes from 'n'"),
        (hits(more=1), {"n": [3, 4, 5], "y": [1, 5, 7]},
         "is 7 in row 2, but must be at most 6 in this row.*, which the model computes from 'n'"),
        (waits(), {"since": [0.5, 1.0], "y": [[1.0, 2.0], [1.5, 0.2]]},
         "is 0.2 in row 1, cell .1., but must be at least 1 in this row.*, which the model computes from 'since'"),
        (shares(), {"y": [[0.2, 0.3, 0.5], [0.2, 0.8, 0.0]]},
         "positive probabilities that sums to 1, got .0.2, 0.8, 0.0. in row 1"),
    ],
    ids=["total", "computed", "truncated", "simplex"],
)
def test_values_beyond_the_bounds_of_their_row_are_refused_by_row(model, data, words):
    with pytest.raises(probml.DataError, match=words):
        model.fit({name: np.array(value) for name, value in data.items()})


def test_unseen_cells_are_within_any_bounds():
    data = {"n": np.array([3, 4, 5]), "y": np.array([1.0, np.nan, 2.0])}
    seen = {"n": np.array([3, 5]), "y": np.array([1, 2])}
    params = {"p": np.array(0.3)}
    assert np.isclose(hits().log_density(data, params), hits().log_density(seen, params))


def test_an_argument_named_rows_is_refused_at_decoration():
    with pytest.raises(probml.ModelError, match="an argument 'rows', but this name is reserved"):

        @probml.model
        def taken(rows):
            with probml.rows():
                sample("y", dist.Normal(rows, 1.0))


def _mask(b):
    with probml.rows():
        sample("y", dist.Normal(b, 1.0), obs_mask=jnp.array([True]))


def _delta(b):
    twice = sample("twice", dist.Delta(2 * b))
    with probml.rows():
        sample("y", dist.Normal(twice, 1.0))


def _key(b):
    noise = numpyro.prng_key()
    with probml.rows():
        sample("y", dist.Normal(b + noise[0], 1.0))


def _list(b):
    with probml.rows(), plate("cells", 3):
        sample("y", dist.BetaBinomial(2.0, jnp.exp(b), [5, 6, 7]))


def _named(kind, *arguments):
    def body(b):
        sample("a", kind(*arguments))
        with probml.rows():
            sample("y", dist.Normal(b, 1.0))
    return body


def _mixed(shares):
    return dist.MixtureSameFamily(dist.Categorical(shares), dist.Normal(jnp.zeros(2), 1.0))


@pytest.mark.filterwarnings("ignore:.* requires ndarray")  # NumPyro's own call, of the list
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (_mask, "site 'y': obs_mask= is not supported. Omit obs_mask=, and pass the values as data "
         "with NaN"),
        (_delta, "site 'twice' .Delta.: .* Write numpyro.deterministic"),
        (_key, "prng_key.. draws random numbers that are not sites"),
        (_list, "total_count is .5, 6, 7., expected a number or an array|requires ndarray"),
        (_named(dist.Dirichlet, [1.0, 2.0]),
         "'a' .Dirichlet.: concentration is .1.0, 2.0., expected .* write jnp.array"),
        (_named(dist.Normal, 0.0, None), "'a' .Normal.: scale is None, expected a number or an array"),
        (_named(_mixed, [0.5, 0.5]), "'a' .CategoricalProbs.: probs is .0.5, 0.5., expected"),
        (_named(dist.MultivariateNormal, [0.0, 0.0], np.eye(2)), "take arrays, not lists: write jnp.array"),
    ],
    ids=["obs_mask", "Delta", "prng_key", "list", "a list", "None", "a list inside", "a list to JAX"],
)
def test_what_is_no_part_of_a_model_is_said_in_words(body, words):
    @probml.model
    def asked(asked_of=body):
        asked_of(sample("b", dist.Normal(0.0, 1.0)))

    with pytest.raises((probml.ModelError, probml.DataError), match=words):
        asked().fit({"y": Y})


def _amounts(rate):
    return dist.Gamma(2.0, rate)


@pytest.mark.parametrize("kind", [dist.Poisson, dist.Exponential, _amounts])
def test_a_rate_that_overflows_is_impossible_and_not_unknown(kind):
    @probml.model
    def grows(x, of=kind):
        b = sample("b", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("y", of(jnp.exp(b * x)))

    data = {"x": np.array([500.0, 0.1]), "y": np.array([1, 2])}
    assert grows().log_density(data, {"b": np.array(3.0)}) == -np.inf
    assert np.isfinite(grows().log_density(data, {"b": np.array(0.001)}))


def test_counts_without_end_on_which_nothing_depends_are_dropped():
    @probml.model
    def idle():
        b = sample("b", dist.Normal(0.0, 1.0))
        n = sample("n", dist.Poisson(jnp.exp(b)))
        sample("k", dist.Poisson(n + 1.0))
        with probml.rows():
            sample("y", dist.Normal(b, 1.0))

    fit = idle().fit({"y": Y})
    np.testing.assert_allclose(fit.params["b"], Y.sum() / 4)
    with pytest.raises(probml.Refusal, match=r"only through its parents.* from the draws of 'b'"):
        fit.posterior("n")
    assert "latent, no observed site depends on it" in str(idle().explain({"y": Y}))
    density = dist.Normal(0.0, 1.0).log_prob(0.3) + dist.Normal(0.3, 1.0).log_prob(Y).sum()
    assert np.isclose(idle().log_density({"y": Y}, {"b": np.array(0.3)}), density)


def test_questions_about_rows_need_only_the_parameters_that_rows_look_at():
    @probml.model
    def levels():
        mu = sample("mu", dist.Normal(0.0, 1.0))
        with plate("groups", 2):
            b = sample("b", dist.Normal(mu, 1.0))
        with probml.rows():
            sample("y", dist.Normal(b[0], 1.0))

    fit = levels().at({"b": np.array([0.3, 0.4])})
    np.testing.assert_allclose(fit.log_prob({"y": Y}), dist.Normal(0.3, 1.0).log_prob(Y), atol=1e-9)
    np.testing.assert_allclose(fit.predict({"y": Y}, "y"), 0.3)
    with pytest.raises(probml.ModelError, match="Add 'mu' to params"):
        fit.log_joint({"y": Y})
    with pytest.raises(probml.ModelError, match="the parameter 'b' has no value"):
        levels().at({"mu": np.array(0.0)})
