"""NUTS, Laplace and SVI against closed forms, quadrature and enumeration; what they say of
themselves; what they refuse."""

import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import factor, plate, sample
from scipy import special, stats

import probml
from coded import codes
from compilations import counted
from probml.dataset import read
from probml.device import load
from probml.evidence import density
from probml.posteriors import diagnostics, pareto, relabelling

RANDOM = np.random.default_rng(0)


@probml.model
def regression(x):
    beta = sample("beta", dist.Normal(0.0, 2.0).expand([x.shape[-1]]).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(x @ beta, 0.5))


@probml.model
def rate():
    p = sample("p", dist.Beta(2.0, 3.0))
    with probml.rows():
        sample("y", dist.Bernoulli(p))


@probml.model
def mixture(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 5.0))
        scale = sample("scale", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], scale[z]))


X = np.column_stack([np.ones(40), RANDOM.normal(size=40)])
LINE = {"x": X, "y": X @ np.array([1.0, -2.0]) + 0.5 * RANDOM.normal(size=40)}
TWO = np.concatenate([RANDOM.normal(-3, 1, 120), RANDOM.normal(2, 0.7, 80)])
ENGINES = {
    "nuts": probml.NUTS(draws=1000, warmup=500, chains=2),
    "laplace": probml.Laplace(),
    "full": probml.SVI(guide="multivariate_normal"),
    "lowrank": probml.SVI(guide="lowrank"),
}


@pytest.fixture(scope="module")
def sampled():
    return mixture(k=2).fit({"x": TWO}, probml.NUTS(draws=300, warmup=300, chains=2), seed=0)


@pytest.mark.parametrize("name", ENGINES)
def test_a_conjugate_posterior_is_found_again(name):
    exact = regression().fit(LINE).posterior("beta")
    fit = regression().fit(LINE, ENGINES[name], seed=1)
    draws = fit.draws(2000)["beta"]
    deviation = np.sqrt(np.diag(exact.covariance_matrix))
    np.testing.assert_allclose(draws.mean(0), exact.mean, atol=0.1 * deviation.max())
    np.testing.assert_allclose(draws.std(0), deviation, rtol=0.1)
    np.testing.assert_allclose(np.corrcoef(draws.T)[0, 1], _correlation(exact.covariance_matrix),
                               atol=0.07)
    np.testing.assert_allclose(fit.params["beta"], exact.mean, atol=0.1 * deviation.max())
    assert fit.converged
    if name == "laplace":
        evidence = regression().fit(LINE).log_evidence
        assert abs(fit.log_evidence - evidence) < 4 * fit.evidence_error < 0.1
    else:
        assert fit.log_evidence is None


def _correlation(covariance):
    return covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])


def test_laplace_is_exact_where_the_density_is_normal():
    exact = regression().fit(LINE).posterior("beta")
    found = regression().fit(LINE, probml.Laplace()).posterior("beta")
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-7)
    np.testing.assert_allclose(found.covariance_matrix, exact.covariance_matrix, rtol=1e-6)


@pytest.mark.parametrize("name", ["nuts", "laplace", "full"])
def test_a_bounded_parameter_agrees_with_its_beta_posterior(name):
    y = np.array([1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 0, 1])
    exact = stats.beta(2 + y.sum(), 3 + (1 - y).sum())
    fit = rate().fit({"y": y}, ENGINES[name], seed=0)
    draws = fit.draws(2000)["p"]
    assert 0 < draws.min() and draws.max() < 1
    np.testing.assert_allclose(draws.mean(), exact.mean(), atol=0.15 * exact.std())
    np.testing.assert_allclose(draws.std(), exact.std(), rtol=0.12)
    np.testing.assert_allclose(fit.params["p"], exact.mean(), atol=0.15 * exact.std())


@probml.model
def window():
    low = sample("low", dist.Uniform(-2.0, 2.0))
    high = sample("high", dist.Uniform(low, 3.0))
    with probml.rows():
        sample("x", dist.Normal(low, 1.0))
        sample("y", dist.Normal(high, 1.0))


@pytest.mark.parametrize("name", ["nuts", "laplace"])
def test_a_bound_that_is_another_parameter_has_the_posterior_of_a_grid(name):
    data = {"x": np.array([0.9, 0.1, 0.4]), "y": np.array([0.2, 1.5, 1.0])}
    grid = {"low": np.linspace(-2, 2, 1001)[:, None], "high": np.linspace(-2, 3, 1251)[None]}
    log = sum(stats.norm.logpdf(value, grid[site][..., None], 1).sum(-1) for site, value in (
        ("low", data["x"]), ("high", data["y"])))
    with np.errstate(divide="ignore"):
        share = np.where(grid["low"] < grid["high"], np.exp(log) / (3 - grid["low"]), 0.0)
    share /= share.sum()
    drawn = window().fit(data, ENGINES[name], seed=0).draws(4000)
    assert (drawn["low"] < drawn["high"]).all()
    for site, value in grid.items():
        mean = (share * value).sum()
        sd = np.sqrt((share * (value - mean) ** 2).sum())
        np.testing.assert_allclose(drawn[site].mean(), mean, atol=0.15 * sd)
        np.testing.assert_allclose(drawn[site].std(), sd, rtol=0.12)


def test_the_density_of_unbounded_coordinates_is_numpyros_own():
    model = mixture(k=2)
    held = read.read(model, {"x": TWO[:30]}).trimmed()
    plan = held.plan()
    rows, known = load.load(held, plan)
    params = {"weights": jnp.array([0.3, 0.7]), "mean": jnp.array([-1.0, 2.0]),
              "scale": jnp.array([0.5, 2.0])}
    u = density.to_unbounded(plan, params, known)
    value, gradient = jax.jit(density.log_posterior(plan, known, rows))(u)

    def one_by_one(u):
        """log p(x, parameters) by NumPyro's densities, the labels summed out by hand, and the
        volume of its transforms."""
        free, total = density.from_unbounded(plan, u, known)[0], 0.0
        parts = {"weights": (dist.Dirichlet(jnp.ones(2)), u[3:4]),
                 "scale": (dist.LogNormal(0.0, 1.0).expand([2]), u[:0])}
        parts |= {"scale": (parts["scale"][0], u[2:4]), "weights": (parts["weights"][0], u[4:5])}
        for name, (prior, own) in parts.items():
            transform = dist.biject_to(prior.support)
            total += prior.log_prob(free[name]).sum() + transform.log_abs_det_jacobian(
                own, transform(own)
            ).sum()
        total += dist.Normal(0.0, 5.0).log_prob(free["mean"]).sum()
        logs = jnp.log(free["weights"]) + dist.Normal(free["mean"],
                                                      free["scale"]).log_prob(TWO[:30, None])
        return total + jax.nn.logsumexp(logs, 1).sum()

    by_hand, slope = jax.jit(jax.value_and_grad(one_by_one))(u)
    np.testing.assert_allclose(value, by_hand, rtol=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(density.to_unbounded(plan, density.from_unbounded(plan, u, known)[0], known), u,
                               rtol=1e-12)
    assert density.coordinate_names(plan) == ["mean[0]", "mean[1]", "scale[0]", "scale[1]",
                                           "weights[0]"]


def test_a_mixture_is_sampled_over_its_parameters_alone(sampled):
    draws = sampled.draws(600)
    assert set(draws) == {"weights", "mean", "scale"}
    order = np.argsort(draws["mean"].mean(0))
    np.testing.assert_allclose(draws["mean"].mean(0)[order], [-3, 2], atol=0.3)
    assert (draws["mean"].std(0) < 0.3).all() and sampled.drawn.stats["diverging"].sum() == 0
    table = sampled.summary()
    assert list(table.columns) == ["mean", "sd", "5%", "95%", "ess_bulk", "ess_tail", "r_hat"]
    assert (table["ess_bulk"] > 100).all() and (table["r_hat"] < 1.05).all()


def test_hidden_states_are_averaged_and_drawn_with_the_draws(sampled):
    values, _ = sampled.drawn.averaging_draws(sampled._plan, sampled._known(), 256)
    x = np.array([-3.0, -0.6, -0.3, 2.0])
    logs = np.log(values["weights"])[
        :, None
    ] + stats.norm(values["mean"][:, None], values["scale"][:, None]).logpdf(x[None, :, None])
    each = special.logsumexp(logs, 2)
    weight = special.softmax(each, 0)[..., None]  # a new row is evidence on the parameters too
    by_hand = (weight * np.exp(logs - each[..., None])).sum(0)
    np.testing.assert_allclose(sampled.predict_proba({"x": x}, "z"), by_hand, atol=1e-10)
    np.testing.assert_allclose(sampled.log_prob({"x": x}),
                               special.logsumexp(each, 0) - np.log(len(each)), atol=1e-10)
    z = np.concatenate([sampled.simulate(given={"x": np.repeat(x, 1000)},
                                         seed=s)["z"].reshape(4, 1000) for s in range(3)], 1)
    np.testing.assert_allclose((z == 1).mean(1), by_hand[:, 1], atol=0.04)


def test_a_simulated_row_has_a_draw_of_the_parameters_of_its_own():
    fit = rate().fit({"y": np.array([1, 0, 1])}, probml.Laplace())
    p = fit.draws(1000, seed=3)["p"]
    assert p.std() > 0.1
    new = fit.simulate(50_000, seed=3)["y"].reshape(-1, 50)
    rows = np.array([fit.simulate(400, seed=s)["y"].mean() for s in range(5)])
    np.testing.assert_allclose(new.mean(), p.mean(), atol=0.02)
    # each of the 400 rows its own draw; with one draw for all it would be 0.2
    assert rows.std() < 0.06


def test_an_interval_holds_new_values_as_often_as_it_says():
    fit = regression().fit(LINE)
    found = fit.predict({"x": X[:3]}, interval=0.8)
    mean, covariance = (np.asarray(getattr(fit.posterior("beta"), n))
                        for n in ("mean", "covariance_matrix"))
    predictive = stats.norm(X[:3] @ mean,
                            np.sqrt(0.25 + np.einsum("ni,ij,nj->n", X[:3], covariance, X[:3])))
    np.testing.assert_allclose(found.value, predictive.mean(), atol=1e-9)
    np.testing.assert_allclose(found.lower, predictive.ppf(0.1), atol=0.08)
    np.testing.assert_allclose(found.upper, predictive.ppf(0.9), atol=0.08)
    for wrong in (0, 1.0, 90):
        with pytest.raises(probml.ModelError, match="interval"):
            fit.predict({"x": X}, interval=wrong)


def test_sites_outside_rows_are_drawn_with_each_draw_of_the_parameters():
    @probml.model
    def bags():
        bag = sample("bag", dist.Categorical(jnp.array([0.5, 0.5])))
        theta = sample("theta", dist.Beta(jnp.array([8.0, 2.0]), jnp.array([2.0, 8.0])).to_event(1))
        with probml.rows():
            sample("y", dist.Bernoulli(theta[bag]))

    y = np.array([1, 0, 1, 0, 1])
    log = np.array([special.betaln(a + y.sum(), b + (1 - y).sum()) - special.betaln(a, b)
                    for a, b in ((8, 2), (2, 8))])
    exact = special.softmax(log)
    fit = bags().fit({"y": y}, probml.NUTS(draws=1000, warmup=300, chains=2), seed=0)
    drawn = fit.drawn.values["bag"]
    np.testing.assert_allclose((drawn == 0).mean(), exact[0], atol=0.05)
    np.testing.assert_allclose(fit.posterior("bag").probs, exact, atol=0.03)
    # the first bag's own rate: a posterior where the candies are its, else the prior
    first = fit.drawn.values["theta"][..., 0]
    np.testing.assert_allclose(first[drawn == 0].mean(), (8 + y.sum()) / 15, atol=0.03)
    np.testing.assert_allclose(first[drawn == 1].mean(), 0.8, atol=0.04)
    new = np.log(exact[0] * 11 / 15 + exact[1] * 5 / 15)
    np.testing.assert_allclose(fit.log_prob({"y": [1]}), new, atol=0.03)


def test_exchangeable_states_are_found_and_others_are_not():
    def found(model, data, params):
        held = read.read(model, data).trimmed()
        plan = held.plan()
        rows, known = load.load(held, plan)
        return relabelling.exchanges(plan, params, known, rows)

    params = {"weights": np.array([0.3, 0.7]), "mean": np.array([-1.0, 2.0]),
              "scale": np.array([0.5, 2.0])}
    (exchange,) = found(mixture(k=2), {"x": TWO[:30]}, params)
    assert exchange.site == "z" and dict(exchange.axes) == {"weights": (0,), "mean": (0,),
                                                            "scale": (0,)}

    @probml.model
    def ordered(k: int):
        weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
        mean = sample("mean", dist.Normal(jnp.array([-1.0, 1.0]), 1.0).to_event(1))
        with probml.rows():
            z = sample("z", dist.Categorical(weights))
            sample("x", dist.Normal(mean[z], 1.0))

    assert found(ordered(k=2), {"x": TWO[:30]}, {n: params[n] for n in ("weights", "mean")}) == []


def test_switched_labels_are_switched_back():
    exchange = relabelling.Exchange("z", 3, (("mean", (0,)), ("transition", (0, 1))))
    mean = np.array([0.0, 5.0, 9.0]) + 0.1 * RANDOM.normal(size=(2, 50, 3))
    transition = np.arange(9.0).reshape(3, 3) + 0.01 * RANDOM.normal(size=(2, 50, 3, 3))
    orders = np.stack([RANDOM.permutation(3) for _ in range(100)])
    orders[0] = np.arange(3)
    mixed = [exchange.permuted({"mean": m, "transition": t}, o) for m, t, o in
             # fmt: skip
             zip(mean.reshape(-1, 3), transition.reshape(-1, 3, 3), orders, strict=True)]
    values = {n: np.stack([m[n] for m in mixed]).reshape(2, 50, *mixed[0][n].shape)
              for n in ("mean", "transition")}
    back, moved = relabelling.relabelled([exchange], values)
    np.testing.assert_array_equal(back["mean"], mean)
    np.testing.assert_array_equal(back["transition"], transition)
    assert moved == (orders != np.arange(3)).any(1).sum()


def test_r_hat_and_effective_draws_are_those_of_independent_and_of_stuck_chains():
    good = RANDOM.normal(size=(4, 500, 2))
    assert (diagnostics.r_hat(good) < 1.01).all() and (
        np.abs(diagnostics.effective(good) / 2000 - 1) < 0.2
    ).all()
    assert (diagnostics.effective(good, tail=True) > 1000).all()
    stuck = good + 2 * np.arange(4)[:, None, None]
    assert (diagnostics.r_hat(stuck) > 1.5).all()

    # the same means: only the folded ranks tell
    wide = good * np.array([1, 1, 1, 5.0])[:, None, None]
    assert (diagnostics.r_hat(wide) > 1.05).all()
    # AR(1), 0.9
    slow = np.stack([np.convolve(RANDOM.normal(size=3000), 0.9 ** np.arange(60), "same")
                     for _ in range(4)])
    np.testing.assert_allclose(diagnostics.effective(slow), 4 * 3000 * 0.1 / 1.9, rtol=0.3)
    assert np.isnan(diagnostics.r_hat(good[:1])).all() and np.isnan(
        diagnostics.r_hat(np.ones((2, 10, 1)))
    ).all()


@pytest.mark.parametrize("memory", [-0.3, 0.3, 0.6])
@pytest.mark.parametrize("chains,draws", [(2, 100), (2, 500), (4, 200)])
def test_r_hat_is_above_its_limit_where_chains_differ_and_not_by_chance(memory, chains, draws):
    random, found = np.random.default_rng(0), []
    for shift in (0.0, 0.7):
        for _ in range(10):
            x = random.normal(size=(chains, draws, 22))
            for t in range(1, draws):  # autoregressive, of variance 1
                x[:, t] = memory * x[:, t - 1] + np.sqrt(1 - memory**2) * x[:, t]
            x[0] += shift
            agreement = diagnostics.r_hat(x)
            found.append((agreement > diagnostics.r_hat_limits(x, agreement)).any())
    few = draws * (1 - memory) / (1 + memory) < 100  # effective draws of a chain
    assert sum(found[:10]) <= (10 if few else 2) and all(found[10:])


def test_a_run_says_what_is_wrong_with_it_and_what_to_do():
    @probml.model
    def wall():
        """Smooth on one side, steep on the other: steps that suit the first cannot follow the
        second."""
        effect = sample("effect", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        factor("wall", -1e5 * jnp.minimum(effect.sum() + 2.0, 0.0) ** 2)
        with probml.rows():
            sample("y", dist.Normal(effect.sum(), 10.0))

    with pytest.warns(probml.ReliabilityWarning, match="divergence.*target_accept.*narrower priors"):
        fit = wall().fit({"y": np.zeros(3)},
                         probml.NUTS(draws=100, warmup=20, chains=2, max_tree_depth=6), seed=0)
    assert not fit.converged and "divergences" in codes(fit)
    alone = rate().fit({"y": np.array([1, 0])}, probml.NUTS(draws=100, warmup=100, chains=1))
    assert np.isnan(alone.summary()["r_hat"]).all() and "one-chain" in codes(alone)


@pytest.mark.filterwarnings("ignore:NUTS:probml.ConvergenceWarning")  # runs too short to be trusted
def test_a_second_run_compiles_nothing():
    engines = (probml.NUTS(draws=200, warmup=500, chains=2), probml.Laplace(),
               probml.SVI(guide="lowrank"))
    for engine in engines:
        regression().fit(LINE, engine, seed=0)
    with counted() as programs:
        for engine in engines:
            regression().fit({"x": X + 1, "y": LINE["y"] + 1}, engine, seed=1)
    assert programs == []


@pytest.mark.filterwarnings("ignore:NUTS:probml.ConvergenceWarning")
def test_chains_in_one_program_or_one_after_another_draw_the_same():
    fits = [
        rate().fit({"y": np.array([1, 0, 1])},
                   probml.NUTS(draws=50, warmup=50, chains=2, chain_method=method), seed=4)
        for method in ("parallel", "sequential", "vectorized")
    ]
    np.testing.assert_array_equal(fits[0].drawn.values["p"], fits[1].drawn.values["p"])
    np.testing.assert_allclose(fits[0].drawn.values["p"][:, :5], fits[2].drawn.values["p"][:, :5],
                               rtol=1e-6)


@pytest.mark.parametrize("engine", [ENGINES["nuts"], probml.Laplace()], ids=["draws", "normal"])
def test_what_was_saved_answers_as_before(engine, tmp_path):
    fit = regression().fit(LINE, engine, seed=1)
    fit.save(tmp_path / "fit")
    again = probml.load(tmp_path / "fit", regression())
    np.testing.assert_array_equal(again.draws(20, seed=2)["beta"], fit.draws(20, seed=2)["beta"])
    np.testing.assert_allclose(again.log_prob(LINE), fit.log_prob(LINE), rtol=1e-12)
    assert again.summary().equals(fit.summary()) and again.status == fit.status


def test_a_users_own_guide_is_fitted():
    def guide():
        loc = numpyro.param("loc", jnp.zeros(2))
        scale = numpyro.param("scale", jnp.ones(2), constraint=dist.constraints.positive)
        sample("beta", dist.Normal(loc, scale).to_event(1))

    exact = regression().fit(LINE).posterior("beta")
    fit = regression().fit(
        LINE, probml.SVI(guide=guide, optimizer=optax.adam(2e-2), steps=3000, particles=4), seed=0
    )
    np.testing.assert_allclose(fit.params["beta"], exact.mean, atol=0.1)
    assert fit.draws(10)["beta"].shape == (10, 2) and len(fit.history) == 3000


def test_mini_batches_come_near_the_posterior_of_all_rows():
    exact = regression().fit(LINE).posterior("beta")
    fit = regression().fit(LINE, probml.SVI(guide="multivariate_normal", batch_rows=10), seed=0)
    deviation = np.sqrt(np.diag(exact.covariance_matrix))
    assert (np.abs(fit.params["beta"] - exact.mean) < deviation).all()


@probml.model
def flat(x):
    beta = sample("beta", dist.ImproperUniform(dist.constraints.real, (), (x.shape[-1],)))
    with probml.rows():
        sample("y", dist.Normal(x @ beta, 0.5))


@pytest.mark.parametrize("engine", [probml.NUTS(draws=20, warmup=20), probml.Laplace()])
def test_an_improper_posterior_is_refused_by_its_direction(engine):
    twice = np.column_stack([X, 2 * X[:, 1], np.zeros(40)])
    with pytest.raises(probml.Refusal, match=r"improper.*'beta'.*beta\["):
        flat().fit({"x": twice, "y": LINE["y"]}, engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = flat().fit(LINE, engine)
    least = np.linalg.lstsq(X, LINE["y"], rcond=None)[0]
    np.testing.assert_allclose(found.params["beta"], least, atol=0.2)


def test_bad_settings_and_starts_are_refused_before_anything_is_compiled():
    with counted() as programs:
        for wrong in ({"draws": 0}, {"chains": 0}, {"warmup": -1}, {"target_accept": 1.5},
                      {"chain_method": "fast"}, {"max_tree_depth": 0}):
            with pytest.raises(probml.ModelError, match=next(iter(wrong))):
                probml.NUTS(**wrong)
        for wrong in ({"guide": "gaussian"}, {"steps": 0}, {"optimizer": 3}, {"particles": 0}):
            with pytest.raises(probml.ModelError, match=next(iter(wrong))):
                probml.SVI(**wrong)
        holes = X.copy()
        holes[3, 1] = np.nan
        with pytest.raises(probml.DataError, match="'x'"):
            regression().fit({"x": holes, "y": LINE["y"]}, probml.NUTS())
    assert programs == []


def test_a_density_that_is_not_finite_names_its_site():
    @probml.model
    def broken():
        a = sample("a", dist.Normal(0.0, 1.0))
        b = sample("b", dist.Normal(jnp.sqrt(a - 50.0), 1.0))
        with probml.rows():
            sample("y", dist.Normal(b, 1.0))

    with pytest.raises(probml.ModelError, match="log prior density of 'b' is nan .*loc = nan"):
        broken().fit({"y": np.zeros(3)}, probml.NUTS(draws=10, warmup=10))


def test_laplace_of_effects_whose_prior_has_a_kink_at_the_mode_is_quadratures_posterior():
    """The curvature at a kink is not the width of the density."""
    y = np.array([0.1, -0.1, 0.0, 0.05])

    @probml.model
    def shrinking(group):
        scale = sample("scale", dist.HalfCauchy(1.0))
        with plate("group", 4):
            effect = sample("effect", dist.Laplace(0.0, scale))  # normal ones are integrated out
        with probml.rows():
            sample("y", dist.Normal(effect[group], 1.0))

    fit = shrinking().fit({"group": np.arange(4), "y": y}, probml.Laplace())
    scale, effect = np.exp(np.linspace(-9, 7, 401)), np.exp(np.linspace(-15, 3, 1001))
    effect = np.r_[-effect[::-1], effect]
    joint = (stats.laplace(0, scale[:, None, None]).pdf(effect)
             * stats.norm(effect, 1).pdf(y[:, None]) * np.abs(effect))
    weight = scale * stats.halfcauchy.pdf(scale) * joint.sum(2).prod(1)
    weight /= weight.sum()
    draws = fit.draws(4000)
    for q in (0.1, 0.5, 0.9):
        below = (draws["scale"] < scale[np.searchsorted(np.cumsum(weight), q)]).mean()
        np.testing.assert_allclose(below, q, atol=0.05)
    square = weight @ ((joint * effect**2).sum(2) / joint.sum(2))
    np.testing.assert_allclose((draws["effect"] ** 2).mean(0), square, rtol=0.35)
    assert fit.converged and not fit.warnings


def test_points_have_no_draws_and_draws_have_no_formula(sampled):
    point = mixture(k=2).at({"weights": [0.5, 0.5], "mean": [0.0, 1.0], "scale": [1.0, 1.0]})
    with pytest.raises(probml.Refusal, match="another engine"):
        point.draws(3)
    with pytest.raises(probml.Refusal, match=r"draws\(1000\)"):
        sampled.posterior("mean")
    assert "NUTS" in str(mixture(k=2).explain({"x": TWO[:20]})) and os.cpu_count()


# The mode, and what Laplace's weights make of it


@probml.model
def raw_units(x):
    beta = sample("beta", dist.Normal(0.0, jnp.array([100.0, 1.0, 1e-3])).to_event(1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ beta))


def test_a_logistic_regression_in_raw_units_has_newtons_mode_and_quadratures_means():
    rng = np.random.default_rng(3)
    x = np.stack([np.ones(200), rng.normal(40, 10, 200), rng.normal(1e5, 3e4, 200)], 1)
    y = rng.random(200) < 1 / (1 + np.exp(-(x - x.mean(0)) @ [1.0, 0.1, 2e-5]))
    beta, precision = np.zeros(3), np.diag([1e-4, 1.0, 1e6])
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ beta))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + precision
        beta = beta + np.linalg.solve(hessian, x.T @ (y - p) - precision @ beta)
    node, weight = np.polynomial.hermite_e.hermegauss(20)
    z = np.stack(np.meshgrid(node, node, node), -1).reshape(-1, 3)
    points = beta + z @ np.linalg.cholesky(np.linalg.inv(hessian)).T
    logs = ((points @ x.T) * y - np.logaddexp(0, points @ x.T)).sum(1) + 0.5 * (z**2).sum(1) - 0.5 * (
        points**2 @ np.diagonal(precision))
    share = special.softmax(logs) * np.prod(np.meshgrid(weight, weight, weight), 0).ravel()
    mean = share @ points / share.sum()
    deviation = np.sqrt(share @ (points - mean) ** 2 / share.sum())
    top = raw_units().fit({"x": x, "y": y}, probml.MAP())
    np.testing.assert_array_less(np.abs(top.params["beta"] - beta) / deviation, 1e-6)
    fit = raw_units().fit({"x": x, "y": y}, probml.Laplace())
    np.testing.assert_array_less(np.abs(fit.params["beta"] - mean) / deviation, 0.1)
    np.testing.assert_allclose(fit.draws(4000)["beta"].std(0), deviation, rtol=0.1)


@probml.model
def level_and_width():
    level, log = sample("level", dist.Normal(0.0, 3.0)), sample("log", dist.Normal(0.0, 2.0))
    with probml.rows():
        sample("y", dist.Normal(level, jnp.exp(log)))


def test_laplace_has_the_posterior_mean_also_where_it_climbs_by_lbfgs():
    y = np.random.default_rng(4).normal(20.0, 3.0, 30)
    fit = level_and_width().fit({"y": y}, probml.Laplace())
    log, level = np.meshgrid(np.linspace(-1, 4, 801), np.linspace(10, 30, 801))
    away = y[:, None, None] - level
    density = (-(away**2).sum(0) * np.exp(-2 * log) / 2 - 30 * log - level**2 / 18 - log**2 / 8)
    weight = np.exp(density - density.max())
    for name, grid in (("level", level), ("log", log)):
        mean = (weight * grid).sum() / weight.sum()
        deviation = np.sqrt((weight * (grid - mean) ** 2).sum() / weight.sum())
        assert abs(fit.params[name] - mean) < 0.12 * deviation
        assert fit.draws(1000)[name].std() == pytest.approx(deviation, rel=0.12)


# Whether a normal stands for the posterior


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of arviz itself
@pytest.mark.parametrize("df", [1.0, 2.0, 5.0, None])
def test_paretos_k_is_arvizs(df):
    import arviz

    wide = stats.norm if df is None else stats.t(df)
    u = np.random.default_rng(3).standard_normal(400)
    logs = wide.logpdf(u) - stats.norm.logpdf(u)
    if df is None:
        logs = logs + stats.norm.logpdf(u, 0.0, 0.9) - stats.norm.logpdf(u)
    np.testing.assert_allclose(pareto.k_hat(logs), arviz.psislw(logs)[1], atol=1e-10)
    assert pareto.k_hat(np.zeros(400)) == -np.inf
    assert pareto.k_hat(np.where(np.arange(400), 0.0, 900.0)) == np.inf


@probml.model
def heavy():
    at = sample("at", dist.StudentT(2.0, 0.0, 1.0).expand([10]).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(at.sum(), 100.0))


@pytest.mark.parametrize("engine", [
    probml.Laplace(), pytest.param(probml.SVI(guide="multivariate_normal", steps=800),
                                   marks=pytest.mark.slow)])
def test_a_normal_in_the_place_of_heavy_tails_is_not_to_be_relied_on(engine):
    fit = heavy().fit({"y": np.zeros(4)}, engine)
    assert codes(fit) & {"approximation-far", "long-tail"}
    assert not regression().fit(LINE, engine, seed=1).warnings
