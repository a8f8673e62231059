"""numpyro.factor: inside rows a loss, which has no likelihood; outside rows a penalty, part of the
prior."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import factor, plate, sample
from numpyro.distributions import constraints
from scipy import stats
from scipy.special import logsumexp, softmax

import probml


@probml.model
def squared_hinge(x, c=1.0):
    weights = sample("weights", dist.Normal(0.0, 1.0).expand([x.shape[-1]]).to_event(1))
    bias = sample("bias", dist.ImproperUniform(constraints.real, (), ()))
    with probml.rows():
        y = sample("y", dist.Bernoulli(0.5))
        factor("hinge", -c * jnp.maximum(1 - (2 * y - 1) * (x @ weights + bias), 0.0) ** 2)


@probml.model
def leaning_mixture(k, lean=0.7):
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 3.0))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.ones(k) / k))
        x = sample("x", dist.Normal(mean[z], 1.0))
        factor("lean", lean * x * (z == 0))


@probml.model
def penalised(x, as_factor):
    if as_factor:
        weights = sample("weights", dist.ImproperUniform(constraints.real, (), (x.shape[-1],)))
        factor("penalty", -0.5 * jnp.sum(weights**2) / 0.3**2)
    else:
        weights = sample("weights", dist.Normal(0.0, 0.3).expand([x.shape[-1]]).to_event(1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ weights))


@probml.model
def coin_of_two_bags(push=1.3):
    bag = sample("bag", dist.Categorical(jnp.array([0.25, 0.75])))
    factor("push", push * (bag == 0))
    with probml.rows():
        sample("x", dist.Bernoulli(jnp.array([0.2, 0.6])[bag]))


def classes(n=60, d=3, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, (x @ np.array([2.0, -1.0, 0.0]) + 0.3 + noise * rng.normal(size=n) > 0).astype(int)


def refused(call, *words):
    with pytest.raises(probml.Refusal) as error:
        call()
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_loss_is_minimised_as_the_peer_does():
    from sklearn.svm import LinearSVC

    x, y = classes()
    fit = squared_hinge(c=0.5).fit({"x": x, "y": y}, probml.MAP())
    peer = LinearSVC(C=0.5, tol=1e-12, max_iter=10**6, intercept_scaling=1e4, random_state=0).fit(x,
                                                                                                  y)
    assert fit.converged
    np.testing.assert_allclose(fit.params["weights"], peer.coef_[0], atol=2e-4)
    np.testing.assert_array_equal(fit.predict({"x": x}), peer.predict(x))
    np.testing.assert_array_equal(fit.decode({"x": x})["y"], peer.predict(x))


def test_what_needs_a_normalised_likelihood_refuses_a_loss_by_name():
    x, y = classes(20)
    model, data = squared_hinge(), {"x": x, "y": y}
    fit = model.fit(data)
    for call in (
        lambda: model.simulate(x=x),
        lambda: probml.compare({"svm": fit}, data),
        lambda: model.check(data),
    ):
        refused(call, "likelihood", "'hinge'", "log_prob, predict")
    refused(lambda: model.fit(data, probml.Exact()), "'hinge'")


def test_a_loss_is_no_likelihood_but_its_classes_have_probabilities_over_both():
    x, y = classes(20)
    fit = squared_hinge().fit({"x": x, "y": y}, probml.MAP())
    side = x @ np.asarray(fit.params["weights"]) + float(fit.params["bias"])
    logs = np.log(0.5) - np.maximum(1 - np.array([-1.0, 1.0]) * side[:, None], 0.0) ** 2
    refused(lambda: fit.log_prob({"x": x, "y": y}), "likelihood", "'hinge'", "'y'", "log_joint")
    chance = softmax(logs, 1)
    np.testing.assert_allclose(fit.predict_proba({"x": x}), chance, atol=1e-5)
    drawn = np.mean([fit.simulate(x=x, seed=seed)["y"] for seed in range(300)], 0)
    assert np.abs((drawn - chance[:, 1]) / np.sqrt(chance[:, 0] * chance[:, 1] / 300)).max() < 4.5


def test_explain_says_what_is_a_loss_and_what_a_prior_penalises():
    x, y = classes(20)
    told = squared_hinge().explain({"x": x, "y": y})
    role = {record["site"]: record["role"] for record in told.sites}
    assert role["hinge"].startswith("loss (not a likelihood)")
    equals = {record["parameter"]: record["equals"] for record in told.penalties}
    assert ("ridge" in equals["weights"] and "C = 1" in equals["weights"]
            and equals["bias"] == "no penalty")


def test_a_factor_in_rows_weighs_the_states_as_enumeration_says():
    rng = np.random.default_rng(1)
    x, mean = rng.normal(size=7), np.array([-1.0, 0.5, 2.0])
    fit = leaning_mixture(k=3).at({"mean": mean})
    logs = np.log(1 / 3) + stats.norm.logpdf(x[:, None],
                                             mean) + 0.7 * x[:, None] * (np.arange(3) == 0)
    np.testing.assert_allclose(fit.predict_proba({"x": x}, "z"), softmax(logs, 1), atol=1e-12)
    wanted = logsumexp(logs, 1).sum() + stats.norm.logpdf(mean, 0, 3).sum()
    np.testing.assert_allclose(leaning_mixture(k=3).log_density({"x": x}, {"mean": mean}), wanted,
                               atol=1e-10)


def test_em_climbs_where_a_factor_weighs_hidden_states():
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.normal(-2, 1, 40), rng.normal(2, 1, 40)])
    fit = leaning_mixture(k=2).fit({"x": x}, probml.EM(restarts=3))
    assert fit.converged and np.all(np.diff(fit.history) >= -1e-9)
    step = 1e-5
    at = [leaning_mixture(k=2).log_density(
        {"x": x}, {"mean": fit.params["mean"] + np.array([s, 0.0])}
    ) for s in (-step, step)]
    assert abs(at[1] - at[0]) / (2 * step) < 2e-2


def test_a_factor_outside_rows_is_a_prior():
    x, y = classes(40, noise=4.0)
    data = {"x": x, "y": y}
    ours, normal = (penalised(as_factor=flag).fit(data, probml.MAP()) for flag in (True, False))
    np.testing.assert_allclose(ours.params["weights"], normal.params["weights"], atol=1e-7)
    # the rows have a likelihood
    np.testing.assert_allclose(ours.log_prob(data), normal.log_prob(data), atol=1e-7)
    free = [penalised(as_factor=flag).fit(data, probml.MAP(prior=False)).params["weights"]
            for flag in (True, False)]
    np.testing.assert_allclose(*free, atol=1e-5)
    refused(lambda: penalised(as_factor=True).simulate(x=x), "'penalty'")


def test_a_factor_on_a_discrete_site_outside_rows_enters_its_posterior():
    x = np.array([1, 1, 0, 1, 0])
    fit = coin_of_two_bags().fit({"x": x})
    rate = np.array([0.2, 0.6])
    logs = np.log([0.25, 0.75]) + 1.3 * np.array([1, 0]) + 3 * np.log(rate) + 2 * np.log1p(-rate)
    np.testing.assert_allclose(fit.posterior("bag").probs, softmax(logs), atol=1e-12)


def test_rows_weigh_losses():
    x, y = classes(30)
    weights = np.where(np.arange(30) < 10, 2.0, 1.0)
    twice = np.concatenate([np.arange(10), np.arange(30)])
    ours = squared_hinge().fit({"x": x, "y": y}, weights=weights)
    theirs = squared_hinge().fit({"x": x[twice], "y": y[twice]})
    np.testing.assert_allclose(ours.params["weights"], theirs.params["weights"], atol=1e-6)


def test_a_factor_cannot_be_given_as_data():
    x, y = classes(10)
    with pytest.raises(probml.DataError, match="hinge"):
        squared_hinge().fit({"x": x, "y": y, "hinge": y})


@probml.model
def a_loss_a_cell(x):
    with plate("item", 2):
        weights = sample("weights", dist.Normal(0.0, 1.0))
    with probml.rows():
        y = sample("y", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        factor("loss", -((y - x * weights) ** 2))


@probml.model
def a_plate_of_losses(x):
    with plate("output", 3, dim=-1):
        weights = sample("weights", dist.Normal(0.0, 1.0).expand([x.shape[-1]]).to_event(1))
    with probml.rows(), plate("item", 3, dim=-2):
        y = sample("y", dist.Bernoulli(0.5))
        factor("hinge", -jnp.maximum(1 - (2 * y - 1) * (weights @ x.T), 0.0) ** 2)


def test_a_factor_of_several_cells_wants_a_plate_or_a_sum():
    x, y = classes(40)
    with pytest.raises(probml.ModelError, match="'loss'.*Sum the factor"):
        a_loss_a_cell().fit({"x": x[:, :2], "y": x[:, :2]})
    labels = np.column_stack([y, 1 - y, y])
    fit = a_plate_of_losses().fit({"x": x, "y": labels}, probml.MAP())
    for item in range(3):  # three machines that share nothing
        alone = np.asarray(fit.params["weights"])[item]
        np.testing.assert_allclose(alone, fit.params["weights"][0] * (-1) ** item, atol=1e-5)
    np.testing.assert_array_equal(fit.predict({"x": x}, "y")[:, 0],
                                  (x @ fit.params["weights"][0] > 0).astype(int))
