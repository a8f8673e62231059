"""What used to be a raw traceback or a false sentence: it works as in NumPyro, or is refused in
words that say what to do."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from cases import nan
from plain_numpyro import log_density
from probml.models import gaussian_mixture

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=12), RANDOM.normal(size=12)
GROUP = np.repeat(np.arange(3), 4)


def model_of(body, **priors):
    """A model of a location `mu` and one site in rows."""

    @probml.model
    def located(x):
        mu = sample("mu", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("y", body(mu, x))

    return located()


@probml.model
def by_group(group):
    with plate("groups", 3):
        alpha = sample("alpha", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(alpha[group], 1.0))


@probml.model
def captured():
    b = sample("b", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(b * X, 1.0))


@probml.model
def inner_plate():
    b = sample("b", dist.Beta(1.0, 1.0))
    with probml.rows(), plate("trials", 3):
        sample("y", dist.Binomial(np.array([4, 5, 6]), b))


@probml.model
def rows_forgotten(x):
    b = sample("b", dist.Normal(0.0, 1.0))
    sample("y", dist.Normal(b * x, 1.0))


@probml.model
def own_plate():
    b = sample("b", dist.Normal(0.0, 1.0))
    with plate("data", 12):
        sample("y", dist.Normal(b, 1.0))


@probml.model
def own_plate_of_inputs(x):
    b = sample("b", dist.Normal(0.0, 1.0))
    with plate("data", len(x)):
        sample("y", dist.Normal(b * x, 1.0))


WORDS = {
    "expand, a batch axis": (lambda: model_of(
        lambda mu, x: dist.Normal(mu + x, 1.0).expand([3])
    ).fit({"x": X, "y": Y}), "x[:, None]"),
    "expand, an event axis": (
        lambda: model_of(lambda mu, x: dist.Normal(mu + x, 1.0).expand([3]).to_event(1)).fit(
            {"x": X, "y": np.ones((12, 3))}
        ),
        "x[:, None]",
        "to_event(1)",
        "Omit it, since rows() repeats",
    ),
    "groups as a setting": (lambda: by_group(group=GROUP).fit({"y": Y}), "setting 'group'", "(12,)",
                            "input", "fit({'group'"),
    "a list as a setting": (lambda: by_group(group=GROUP.tolist()).fit({"y": Y}), "setting 'group'",
                            "input"),
    "data from around": (lambda: captured().fit({"y": Y}), "'X'", "(12,)", "input"),
    "an array of the inner plate": (lambda: inner_plate().fit({"y": np.ones((2, 3))}), "'trials'",
                                    "v[:, None]", "(3, 1)"),
    "probabilities of a real number": (
        lambda: model_of(lambda mu, x: dist.Normal(mu + x, 1.0)).at({"mu": 0.0}).predict_proba(
            {"x": X}
        ),
        "'y' (Normal)",
        "predict(data, 'y')",
    ),
    "no mean of a matrix": (
        lambda: model_of(
            lambda mu, x: dist.LKJCholesky(3, jnp.exp(mu + x))
        ).at({"mu": 0.0}).predict({"x": X}, "y"),
        "'y' (LKJCholesky)",
        "simulate",
    ),
}


@pytest.mark.parametrize("case", WORDS)
def test_it_is_refused_in_words(case):
    call, *words = WORDS[case]
    with pytest.raises((probml.ModelError, probml.DataError)) as caught:
        call()
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_vector_of_each_row_is_what_the_words_advise():
    model = model_of(
        lambda mu, x: dist.Normal(mu + x[:, None], 1.0).expand([len(x), 3]).to_event(1)
    )
    y = RANDOM.normal(size=(12, 3))
    np.testing.assert_allclose(model.fit({"x": X, "y": y}).params["mu"],
                               (y - X[:, None]).sum() / 37, rtol=1e-3)


@probml.model
def scoped():
    mu = sample("mu", dist.Normal(0.0, 1.0))
    for prefix, width in (("a", 1.0), ("b", 2.0)):
        with numpyro.handlers.scope(prefix=prefix), probml.rows(), plate("pair", 2):
            sample("y", dist.Normal(mu, width))


def test_a_scope_around_rows_names_the_sites_and_leaves_the_rows():
    data = {"a/y": RANDOM.normal(size=(5, 2)), "b/y": RANDOM.normal(size=(5, 2))}
    placed = {name: jnp.asarray(value.T) for name, value in data.items()}
    want = log_density(lambda: scoped()(rows=5), (), {}, {"mu": jnp.asarray(0.3), **placed})
    np.testing.assert_allclose(scoped().log_density(data, {"mu": 0.3}), want, rtol=1e-5)
    assert scoped().simulate(rows=4)["b/y"].shape == (4, 2)


@probml.model
def weighed(x, y):
    b = sample("b", dist.Normal(0.0, 1.0))
    with probml.rows():
        numpyro.factor("loss", dist.Normal(b * x, 1.0).log_prob(y))


@pytest.mark.filterwarnings("ignore:NUTS of model:probml.ConvergenceWarning")  # one chain
@pytest.mark.parametrize("engine", [
    None, probml.Laplace(), probml.NUTS(draws=300, warmup=200, chains=1)
], ids=["MAP", "Laplace", "NUTS"])
def test_inputs_and_a_factor_are_data_enough(engine):
    mean, sd = X @ Y / (X @ X + 1), (X @ X + 1) ** -0.5
    fit = weighed().fit({"x": X, "y": Y}, engine)
    assert abs(fit.params["b"] - mean) < (1e-3 if not isinstance(engine, probml.NUTS) else 0.4 * sd)


@probml.model
def survival(c):
    rate = sample("rate", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        sample("t", dist.RightCensoredDistribution(dist.Exponential(rate), c))


@probml.model
def heavy():
    mu = sample("mu", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("t", dist.Cauchy(mu, 0.1))


def test_the_answer_is_the_mean_or_without_one_a_median_and_says_so():
    known = survival().at({"rate": 0.5})
    data = {"c": np.zeros(2), "t": np.array([nan, 1.0])}
    for ask in (lambda: known.predict(data, "t"),
                lambda: known.predict(data, "t", interval=0.8).value):
        np.testing.assert_allclose(ask(), 1 / 0.5, rtol=1e-6)
    np.testing.assert_allclose(known.impute(data)["t"], [1 / 0.5, 1.0], rtol=1e-6)
    with pytest.warns(RuntimeWarning, match="'t' .Cauchy.*median"):
        np.testing.assert_allclose(heavy().at({"mu": 2.0}).predict({"t": [nan]}, "t"), 2.0,
                                   atol=0.02)


@probml.model
def factors(low_rank: bool):
    loc = sample("loc", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    w, noise = jnp.array([[1.0], [0.5], [-0.7]]), jnp.array([0.3, 0.6, 0.2])
    with probml.rows():
        if low_rank:
            sample("y", dist.LowRankMultivariateNormal(loc, w, noise))
        else:
            sample("y", dist.MultivariateNormal(loc, w @ w.T + jnp.diag(noise)))


def test_unseen_coordinates_of_a_low_rank_normal_are_integrated_out():
    y = RANDOM.normal(size=(6, 3))
    y[0, 1], y[2, :2], y[3] = nan, nan, nan
    low, full = (factors(low_rank).at({"loc": [0.1, -0.2, 0.4]}) for low_rank in (True, False))
    np.testing.assert_allclose(low.log_prob({"y": y}), full.log_prob({"y": y}), rtol=1e-4,
                               atol=1e-5)
    np.testing.assert_allclose(low.impute({"y": y})["y"], full.impute({"y": y})["y"], rtol=1e-4)
    w, noise = np.array([1.0, 0.5, -0.7]), np.array([0.3, 0.6, 0.2])
    marginal = (np.outer(w, w) + np.diag(noise))[2, 2]
    want = -0.5 * (y[2, 2] - 0.4) ** 2 / marginal - 0.5 * np.log(2 * np.pi * marginal)
    np.testing.assert_allclose(low.log_prob({"y": y})[2], want, rtol=1e-4)


@probml.model
def relayed():
    b = sample("b", dist.Normal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Normal(b, 1.0).expand([2]).to_event(1))
        sample("y", dist.StudentT(4.0, z.sum(-1), 1.0))
        sample("alone", dist.Normal(z.sum(-1), 1.0))


def test_explain_says_how_an_unseen_site_is_integrated_out_and_which_need_not_be():
    roles = {record["site"]: record["role"] for record in relayed().explain({"y": Y}).sites}
    assert roles["z"] == "latent, integrated out, by quadrature with 25 × 25 nodes"
    assert roles["alone"] == "latent, no observed site depends on it"


def test_a_view_that_is_no_word_is_refused_in_words():
    fit = gaussian_mixture(2, 1).at({"weights": [0.5, 0.5], "mean": [[0.0], [1.0]],
                                     "precision": [[[1.0]], [[1.0]]]})
    with pytest.raises(probml.ModelError, match="given=.*expected one of 'all', 'filtered'"):
        fit.predict_proba({"x": np.zeros((3, 1))}, given=np.zeros(0))
