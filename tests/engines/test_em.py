"""EM: it climbs, it ends where the gradient vanishes, and nothing but the model and the data
matters."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from numpyro.distributions import constraints
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

import cases
import probml
from cases import MIXTURES, ROWS, fitted, log_posterior, mixture, nan
from coded import codes
from probml.dataset import read
from probml.device import load
from probml.plan import plan

every = pytest.mark.parametrize("name", MIXTURES)
# L-BFGS, closed form, several families
some = pytest.mark.parametrize("name", ["scale", "covariance", "mixed"])
TO_THE_END = {"tolerance": 0.0, "max_iterations": 2000}
# before the last digit is reached
FEW = probml.EM(max_iterations=5, tolerance=0.0, accelerate=False)


@functools.lru_cache
def converged(name, accelerate=True):
    model, data, start, _ = mixture(name)
    return fitted(model, data, probml.EM(**TO_THE_END, accelerate=accelerate), start=start)


@functools.lru_cache
def few(name):
    model, data, start, _ = mixture(name)
    return fitted(model, data, FEW, start=start)


def close(name):
    """The same arithmetic in another order: rounding in closed forms; an inner L-BFGS stops where
    the objective has no digits left."""
    return 1e-9 if name in ("variance", "covariance", "precision") else 1e-6


def same(one, other, tolerance):
    assert set(one) == set(other)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=tolerance, atol=tolerance,
                                   err_msg=name)


def climbs(fit):
    history = np.asarray(fit.history)
    noise = 1e-12 * np.abs(history).max()  # a sum of a hundred logs in float64
    assert (np.diff(history) >= -noise).all(), np.diff(history).min()


# The objective


@every
def test_em_never_lowers_the_log_posterior(name):
    climbs(converged(name))


@some
def test_em_without_acceleration_never_lowers_the_log_posterior(name):
    climbs(converged(name, accelerate=False))
    climbs(few(name))


@every
def test_em_ends_where_the_gradient_vanishes(name):
    _, _, start, _ = mixture(name)
    fit = converged(name)
    assert fit.converged
    first = max(np.abs(value).max() for value in log_posterior(name, start)[1].values())
    for parameter, value in log_posterior(name, fit.params)[1].items():
        # no gain is left above the rounding of the objective
        np.testing.assert_allclose(value, 0.0, atol=1e-5 * first, err_msg=parameter)


@every
def test_the_history_is_the_log_posterior_from_the_start_to_the_end(name):
    fit = converged(name)
    np.testing.assert_allclose(fit.history[0], log_posterior(name, mixture(name)[2])[0], rtol=1e-11)
    np.testing.assert_allclose(fit.history[-1], log_posterior(name, fit.params)[0], rtol=1e-11)


@every
def test_log_density_equals_that_of_numpyro_with_the_hidden_states_enumerated(name):
    model, data, start, _ = mixture(name)
    np.testing.assert_allclose(model.log_density(data, start), log_posterior(name, start)[0],
                               rtol=1e-12)


@some
def test_acceleration_changes_the_path_and_not_the_end(name):
    same(converged(name).params, converged(name, accelerate=False).params, 1e-5)


@every
def test_em_equals_lbfgs_map_from_the_same_start(name):
    model, data, start, _ = mixture(name)
    climbed = model.fit(data, probml.MAP(), start=start)
    # L-BFGS stops where the objective has no digits left
    same(climbed.params, converged(name).params, 1e-5)
    np.testing.assert_allclose(climbed.history[-1], converged(name).history[-1], rtol=1e-10)


# What must not matter


@pytest.mark.parametrize("name", ["scale", "covariance", "mixed", "regression", "poisson"])
def test_seven_chunks_give_what_one_gives(name, monkeypatch):
    model, data, start, _ = mixture(name)
    one = few(name)
    monkeypatch.setattr(plan, "CHUNK", 1)
    held = read.read(model, data)
    assert load.load(held, held.plan())[0].weights.shape[0] == 7
    seven = fitted(model, data, FEW, start=start)
    same(one.params, seven.params, close(name))
    np.testing.assert_allclose(one.history, seven.history, rtol=1e-8)


@some
def test_a_row_of_nan_changes_nothing(name):
    model, data, start, _ = mixture(name)
    more = {n: np.concatenate([value, np.full_like(value[:1], nan, float)])
            for n, value in data.items()}
    fit = fitted(model, more, probml.EM(**TO_THE_END, accelerate=False), start=start)
    # both stop where the objective has no digits left
    same(fit.params, converged(name, accelerate=False).params, 1e-5)
    np.testing.assert_allclose(fit.history[-1], converged(name, accelerate=False).history[-1],
                               rtol=1e-12)
    np.testing.assert_allclose(fit.log_prob(more)[-1], 0.0, atol=1e-12)


@some
def test_a_row_twice_is_a_row_of_weight_two(name):
    model, data, start, _ = mixture(name)
    twice = {n: np.concatenate([value, value[4:5]]) for n, value in data.items()}
    weights = np.where(np.arange(ROWS) == 4, 2.0, 1.0)
    same(fitted(model, twice, FEW, start=start).params,
         fitted(model, data, FEW, start=start, weights=weights).params, close(name))


@some
def test_a_row_of_weight_zero_is_no_row(name):
    model, data, start, _ = mixture(name)
    more = {n: np.concatenate([value, value[4:5]]) for n, value in data.items()}
    weights = np.append(np.ones(ROWS), 0.0)
    same(fitted(model, more, FEW, start=start, weights=weights).params, few(name).params,
         close(name))


@some
def test_the_order_of_rows_does_not_matter(name):
    model, data, start, _ = mixture(name)
    order = np.random.default_rng(3).permutation(ROWS)
    same(fitted(model, {n: value[order] for n, value in data.items()}, FEW, start=start).params,
         few(name).params, close(name))


@some
def test_permuting_the_states_of_the_start_permutes_the_answer(name):
    model, data, start, (_, k) = mixture(name)
    order = np.roll(np.arange(k), 1)

    def permuted(params):
        return {n: 1 - value if n == "share" else np.asarray(value)[order]
                for n, value in params.items()}

    same(fitted(model, data, FEW, start=permuted(start)).params, permuted(few(name).params),
         close(name))


def test_the_same_seed_gives_the_same_fit_and_the_best_of_several_restarts_is_kept():
    model, data, _, _ = mixture("variance")
    engine = probml.EM(restarts=4)
    one, other = model.fit(data, engine, seed=5), model.fit(data, engine, seed=5)
    same(one.params, other.params, 0.0)
    singles = [model.fit(data, probml.EM(), seed=seed).history[-1] for seed in range(3)]
    assert one.history[-1] >= min(singles) - 1e-6
    climbs(one)


# Missing cells and half-seen labels


def test_missing_cells_are_summed_out_exactly():
    x, _ = cases.blobs()
    x = np.where(np.random.default_rng(2).random(x.shape) < 0.2, nan, x)
    model, _, start, _ = mixture("scale")
    fit = fitted(model, {"x": x}, probml.EM(**TO_THE_END), start=start)
    climbs(fit)

    def log_likelihood(p):
        log = dist.Normal(p["mean"], p["scale"]).log_prob(jnp.nan_to_num(x)[:, None])
        log = jnp.where(np.isnan(x)[:, None], 0.0, log).sum(-1) + jnp.log(p["weights"])
        return np.log(np.exp(np.asarray(log)).sum(1))

    np.testing.assert_allclose(fit.log_prob({"x": x}), log_likelihood(fit.params), atol=1e-10)
    prior = dist.Dirichlet(
        jnp.full(3, 2.0)
    ).log_prob(fit.params["weights"]) + dist.Normal(0.0, 5.0).log_prob(fit.params["mean"]).sum()
    prior += dist.LogNormal(0.0, 1.0).log_prob(fit.params["scale"]).sum()
    np.testing.assert_allclose(fit.history[-1], fit.log_prob({"x": x}).sum() + prior, rtol=1e-11)


def test_half_seen_labels_hold_their_rows():
    x, z = cases.blobs()
    labels = np.where(np.arange(ROWS) % 2 == 0, z, nan)
    model, _, start, _ = mixture("scale")
    fit = fitted(model, {"x": x, "z": labels}, probml.EM(**TO_THE_END), start=start)
    climbs(fit)
    density = (dist.Normal(fit.params["mean"], fit.params["scale"]).log_prob(x[:, None]).sum(-1)
               + jnp.log(fit.params["weights"]))
    joint = np.exp(np.asarray(density))
    seen = np.arange(ROWS) % 2 == 0
    expected = np.where(seen, joint[np.arange(ROWS), z], joint.sum(1))
    np.testing.assert_allclose(fit.log_prob({"x": x, "z": labels}), np.log(expected), atol=1e-10)
    assert (fit.predict_proba({"x": x, "z": labels}, "z")[seen, z[seen]] == 1).all()


def test_naive_bayes_is_the_mixture_with_labels_seen():
    x, z = cases.blobs()
    model, _, _, _ = mixture("scale")
    fit = model.fit({"x": x, "z": z}, probml.EM(prior=False))
    for k in range(3):
        np.testing.assert_allclose(fit.params["mean"][k], x[z == k].mean(0), rtol=1e-9)
        np.testing.assert_allclose(fit.params["scale"][k], x[z == k].std(0), rtol=1e-9)
        np.testing.assert_allclose(fit.params["weights"][k], (z == k).mean(), rtol=1e-9)


# Agreement with others


def peer(name, iterations):
    """scikit-learn's mixture from the same start."""
    start = mixture(name)[2]
    kind, ones = {"scale": ("diag", np.ones((3, 2))),
                  "covariance": ("full", np.stack([np.eye(2)] * 3))}[name]
    point = {"weights_init": start["weights"], "means_init": start["mean"], "precisions_init": ones}
    return GaussianMixture(3, covariance_type=kind, reg_covar=0, tol=0, max_iter=iterations,
                           **point)


@pytest.mark.filterwarnings("ignore:Best performing initialization did not converge")
@pytest.mark.parametrize("name", ["scale", "covariance"])
def test_fifty_iterations_equal_those_of_scikit_learn(name):
    model, data, start, _ = mixture(name)
    theirs = peer(name, 50).fit(data["x"])
    engine = probml.EM(max_iterations=50, tolerance=0.0, accelerate=False, prior=False)
    ours = fitted(model, data, engine, start=start)
    np.testing.assert_allclose(ours.score(data), theirs.score(data["x"]), rtol=1e-6)
    np.testing.assert_allclose(ours.params["weights"], theirs.weights_, rtol=1e-6)
    np.testing.assert_allclose(ours.params["mean"], theirs.means_, rtol=1e-6, atol=1e-6)
    scatter = ours.params[name] ** 2 if name == "scale" else ours.params[name]
    np.testing.assert_allclose(scatter, theirs.covariances_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(data, "z"), theirs.predict_proba(data["x"]),
                               atol=1e-6)


@pytest.mark.filterwarnings("ignore:Best performing initialization did not converge")
def test_five_iterations_from_the_same_start_equal_those_of_scikit_learn():
    model, data, start, _ = mixture("covariance")
    theirs = peer("covariance", 5).fit(data["x"])
    ours = fitted(model, data, probml.EM(max_iterations=5, tolerance=0.0, accelerate=False,
                                         prior=False), start=start)
    np.testing.assert_allclose(ours.score(data), theirs.score(data["x"]), rtol=1e-9)


def test_hard_em_of_the_spherical_mixture_is_k_means():
    x, _ = cases.blobs()
    centres = x[[0, 1, 2]]
    model = cases.spherical_mixture(k=3, d=2, scale=1.0)
    ours = model.fit({"x": x}, probml.EM(hard=True, prior=False, accelerate=False),
                     start={"mean": centres})
    theirs = KMeans(3, init=centres, n_init=1, tol=0, max_iter=300).fit(x)
    np.testing.assert_allclose(ours.params["mean"], theirs.cluster_centers_, rtol=1e-9)
    np.testing.assert_array_equal(ours.predict({"x": x}), theirs.labels_)
    climbs(ours)


# Discrete sites outside rows; concentrations below one; priors on priors


@probml.model
def which_coin():
    """All tosses are of one of two coins, it is not known which."""
    kind = sample("kind", dist.Categorical(jnp.array([0.7, 0.3])))
    with plate("coin", 2):
        p = sample("p", dist.Beta(3.0, 2.0))
    with probml.rows():
        sample("toss", dist.Bernoulli(p[kind]))


def test_em_sums_out_a_discrete_site_outside_rows_over_all_rows_together():
    toss = np.array([1, 1, 1, 0, 1, 0])
    fit = which_coin().fit({"toss": toss}, probml.EM(**TO_THE_END),
                           start={"p": np.array([0.5, 0.6])})
    climbs(fit)
    p = fit.params["p"]
    mass = np.array([0.7, 0.3]) * p**4 * (1 - p) ** 2
    np.testing.assert_allclose(fit.history[-1], np.log(mass.sum())
                               + np.asarray(dist.Beta(3.0, 2.0).log_prob(p)).sum(), rtol=1e-10)
    q = mass / mass.sum()
    np.testing.assert_allclose(p, (2 + 4 * q) / (3 + 6 * q), atol=1e-6)  # the fixed point


def test_a_concentration_below_one_is_maximised_in_the_softmax_coordinate():
    face = np.array([0, 0, 0, 1])
    fit = cases.dice(a=(0.5, 0.5, 0.25)).fit({"face": face}, probml.EM())
    np.testing.assert_allclose(fit.params["theta"], np.array([3.5, 1.5, 0.25]) / 5.25, rtol=1e-6)
    heads = cases.coin(a=0.5, b=0.5).fit({"toss": [1, 1, 1]}, probml.EM()).params["heads"]
    np.testing.assert_allclose(heads, 3.5 / 4.0, rtol=1e-6)


@probml.model
def logits(k: int):
    table = sample("table", dist.Normal(0.0, 1.0).expand([k]).to_event(1))
    with probml.rows():
        sample("y", dist.Categorical(logits=table))


def test_a_table_given_by_logits_is_maximised_though_it_has_no_closed_form():
    y = np.array([0, 1, 1, 2, 2, 2, 2])
    fit = logits(k=3).fit({"y": y}, probml.EM(prior=False, accelerate=False))
    p = np.exp(fit.params["table"])
    # L-BFGS stops on the value: half its digits
    np.testing.assert_allclose(p / p.sum(), np.array([1, 2, 4]) / 7, rtol=1e-5)
    assert fit.converged and "closed-form-left" not in codes(fit)


# Honest results


@probml.model
def ascending_means():
    mean = sample("mean", dist.ImproperUniform(constraints.ordered_vector, (), (3,)))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.ones(3) / 3))
        sample("x", dist.Normal(mean[z], 1.0))


def test_the_closed_form_maximum_does_not_lead_out_of_an_ordered_support():
    x = np.concatenate([np.random.default_rng(0).normal(mean, 1.0, 40)
                        for mean in (-5.0, 0.0, 5.0)])
    for seed in range(4):  # the first labels are in any order
        fit = ascending_means().fit({"x": x}, probml.EM(), seed=seed)
        np.testing.assert_allclose(fit.params["mean"], [-5, 0, 5], atol=0.5)


def test_em_says_when_it_stopped_at_the_iteration_limit():
    model, data, start, _ = mixture("scale")
    with pytest.warns(probml.ConvergenceWarning, match="iteration limit"):
        fit = model.fit(data, probml.EM(max_iterations=2), start=start)
    assert not fit.converged and fit.iterations == 2 and len(fit.history) == 3
    assert "max-iterations" in codes(fit)


def test_a_collapsed_component_is_an_error_that_names_the_remedy():
    model, _, _, _ = mixture("scale")
    x = np.array([[0.0, 0.0], [0.1, 0.2], [-0.3, 0.1], [0.2, -0.2], [50.0, 50.0], [0.1, -0.1],
                  [0.0, 0.3]])
    start = {"weights": np.full(3, 1 / 3), "mean": x[[0, 3, 4]], "scale": np.ones((3, 2))}
    with pytest.raises(probml.Refusal, match="(?s)collapsed.*prior"):
        model.fit({"x": x}, probml.EM(prior=False), start=start)
    held = model.fit({"x": x}, probml.EM(), start=start)  # the prior holds it
    assert held.params["scale"].min() > 0.01


def test_collapsed_restarts_are_discarded_and_the_rest_is_kept():
    model, _, _, _ = mixture("scale")
    x = np.concatenate([cases.blobs(60)[0], [[9.0, 9.0]]])
    outcomes = []
    for seed in range(4):
        try:
            outcomes.append(fitted(model, {"x": x}, probml.EM(prior=False, restarts=6), seed=seed))
        except probml.Refusal as refusal:
            assert "collapsed" in str(refusal)
    assert outcomes
    for fit in outcomes:
        climbs(fit)
        assert fit.params["scale"].min() > 1e-3 and "objective-fell" not in codes(fit)
    assert any("collapsed and were discarded" in fit.status for fit in outcomes)
