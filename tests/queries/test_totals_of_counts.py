"""Vectors of counts whose total is an input: means, missing vectors, intervals and draws."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.families import registry

TOTAL = np.array([4, 9, 6, 12, 7, 5, 11, 8])
COUNTS = np.array([[2, 1, 1], [4, 3, 2], [1, 2, 3], [6, 4, 2], [3, 3, 1], [2, 2, 1], [7, 2, 2],
                   [3, 4, 1]])
SHARE = np.array([0.5, 0.3, 0.2])
KINDS = {"multinomial": dist.Multinomial, "logits": lambda n, p: dist.Multinomial(n, logits=jnp.log(p)),
         "clumped": lambda n, p: dist.DirichletMultinomial(8.0 * p, n)}


def votes(kind):
    @probml.model
    def model(total):
        share = sample("share", dist.Dirichlet(jnp.ones(3)))
        with probml.rows():
            sample("y", KINDS[kind](total, share))

    return model()


@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_predicted_and_imputed_by_their_total(kind):
    fit = votes(kind).at({"share": SHARE})
    wanted = np.outer([10, 3], SHARE)
    np.testing.assert_allclose(fit.predict({"total": [10, 3]}, "y"), wanted, rtol=1e-5)
    holes = np.array([[np.nan] * 3, [2, 1, 0]])
    filled = fit.impute({"total": [10, 3], "y": holes})["y"]
    np.testing.assert_allclose(filled, [wanted[0], [2, 1, 0]], rtol=1e-5)
    made = np.asarray(fit.simulate(total=TOTAL, seed=1)["y"])
    np.testing.assert_array_equal(made.sum(1), TOTAL)
    low, high = fit.predict({"total": [200]}, "y", interval=0.9)[1:]
    assert (low < 200 * SHARE).all() and (200 * SHARE < high).all()


def test_counts_of_a_mixture_are_predicted_by_their_total():
    @probml.model
    def topics(total):
        with plate("topics", 2):
            words = sample("words", dist.Dirichlet(jnp.ones(3)))
        with probml.rows():
            z = sample("z", dist.Bernoulli(0.25))
            sample("y", dist.Multinomial(total, words[z]))

    words = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])
    fit = topics().at({"words": words})
    np.testing.assert_allclose(fit.predict({"total": [8]}, "y"),
                               [8 * (0.75 * words[0] + 0.25 * words[1])], rtol=1e-5)


def test_a_pasted_function_predicts_by_its_total_unless_the_counts_are_summed_in_it():
    def own(total, y=None):
        share = sample("share", dist.Dirichlet(jnp.ones(3)))
        with plate("n", total.shape[0]):
            sample("y", dist.Multinomial(total, share), obs=y)

    def summed(y):
        share = sample("share", dist.Dirichlet(jnp.ones(3)))
        with plate("n", y.shape[0]):
            sample("counts", dist.Multinomial(y.sum(-1), share), obs=y)

    share = (COUNTS.sum(0) + 1) / (COUNTS.sum() + 3)
    fit = probml.model(own)().fit({"total": TOTAL, "y": COUNTS})
    np.testing.assert_allclose(fit.predict({"total": [10]}, "y"), [10 * share], rtol=0.03)
    fit = probml.model(summed)().fit({"y": COUNTS})
    np.testing.assert_allclose(fit.params["share"], share, rtol=1e-4)
    with pytest.raises(probml.ModelError, match="total_count depends on values that new rows"):
        fit.predict({"y": COUNTS[:2]}, "counts")


def test_missing_counts_remain_missing_where_their_total_is_not_known():
    @probml.model
    def model():
        share = sample("share", dist.Dirichlet(jnp.ones(3)))
        with probml.rows():
            total = sample("total", dist.Poisson(9.0))
            sample("y", dist.Multinomial(total, share))

    fit = model().at({"share": SHARE})
    with pytest.warns(RuntimeWarning, match="are NaN"):
        filled = fit.impute({"total": [3, 3], "y": [[np.nan] * 3, [2, 1, 0]]})["y"]
    np.testing.assert_array_equal(np.isnan(filled), [[True] * 3, [False] * 3])
    with pytest.raises(probml.ModelError, match="total_count depends on values that new rows"):
        fit.predict({"total": [3]}, "y")


@pytest.mark.parametrize("kind", KINDS)
def test_draws_of_a_computed_total_have_the_moments_of_their_distribution(kind):
    @jax.jit
    def draw(key, total):
        return registry.sharp(KINDS[kind](total, jnp.array(SHARE))).sample(key, (20000,))

    made = np.asarray(draw(jax.random.key(0), 12), float)
    own = KINDS[kind](12, jnp.array(SHARE))
    assert (made.sum(1) == 12).all() and (made >= 0).all()
    np.testing.assert_allclose(made.mean(0), own.mean, rtol=0.02)
    np.testing.assert_allclose(made.var(0), own.variance, rtol=0.05)


def test_totals_along_a_chain_and_in_a_plate():
    random = np.random.default_rng(0)
    total = random.integers(3, 20, (4, 6))
    words = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])

    @probml.model
    def moods(total):
        with plate("states", 2):
            words = sample("words", dist.Dirichlet(jnp.ones(3)))
        with probml.rows():
            z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]),
                                               jnp.array([[0.9, 0.1], [0.2, 0.8]])))
            sample("y", dist.Multinomial(total, words[z]).to_event(1))

    fit = moods().at({"words": words})
    made = fit.simulate(total=total, seed=1)["y"]
    np.testing.assert_array_equal(made.sum(-1), total)
    holes = np.array(made, float)
    holes[0, 3] = np.nan
    share = fit.predict_proba({"total": total, "y": holes}, "z")[0, 3] @ words
    np.testing.assert_allclose(fit.impute({"total": total, "y": holes})["y"][0, 3],
                               total[0, 3] * share, rtol=1e-4)

    @probml.model
    def visits(total):
        share = sample("share", dist.Dirichlet(jnp.ones(3)))
        with probml.rows(), plate("visits", 6):
            sample("y", dist.Multinomial(total.T, share))

    found = visits().at({"share": SHARE}).predict({"total": total}, "y")
    np.testing.assert_allclose(found, total[..., None] * SHARE, rtol=1e-5)
