"""What a model computes from its sites, numpyro.deterministic and reparametrised sites: nothing of
it is dropped, no engine sees it."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import deterministic, plate, sample
from numpyro.handlers import reparam
from numpyro.infer import Predictive
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

import probml
from cases import fitted
from probml.structure.trace import trace

nan = np.nan
EFFECT = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERROR = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
SCHOOLS = {"code": np.arange(8), "error": ERROR, "y": EFFECT}
BLIND = {"code": np.arange(8), "error": ERROR}


@probml.model
def schools(code, error):
    """Eight schools, not centred by NumPyro's handler."""
    mu = sample("mu", dist.Normal(0.0, 5.0))
    tau = sample("tau", dist.HalfCauchy(5.0))
    with reparam(config={"theta": LocScaleReparam(0)}), plate("school", 8):
        theta = sample("theta", dist.Normal(mu, tau))
    deterministic("best", theta.max())
    with probml.rows():
        effect = deterministic("effect", theta[code])
        sample("y", dist.Normal(effect, error))


@functools.lru_cache
def sampled():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "NUTS of model", UserWarning)  # so few draws
        return schools().fit(SCHOOLS, probml.NUTS(draws=60, warmup=60, chains=2))


@probml.model
def line(x):
    """A straight line; its mean is written outside the block of rows, one value of it is
    transformed."""
    with reparam(config={"b": TransformReparam()}):
        b = sample("b", dist.TransformedDistribution(
            dist.Normal(jnp.zeros(2), 1.0), dist.transforms.AffineTransform(1.0, 2.0)
        ).to_event(1))
    deterministic("twice", 2 * b[0])
    mean = deterministic("mean", b[0] + b[1] * x)
    deterministic("both", jnp.stack([mean, -mean], -1))
    with probml.rows():
        sample("y", dist.Normal(mean, 0.5))


X = np.array([-1.0, 0.5, 2.0, 3.0, 4.5])
LINE = {"x": X, "y": np.array([0.1, 1.2, 2.7, 3.1, 5.2])}


@probml.model
def mixture():
    with plate("component", 2):
        mean = sample("mean", dist.Normal(0.0, 5.0))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.array([0.3, 0.7])))
        level = deterministic("level", mean[z])
        with plate("item", 3, dim=-2):
            item = deterministic("item", level + jnp.arange(3.0)[:, None])
        deterministic("pair", jnp.stack([level, level**2], -1))
        sample("x", dist.Normal(level, 1.0))
        y = sample("y", dist.Normal(item.sum(0), 0.4))
        deterministic("price", jnp.exp(y))


MEANS = {"mean": np.array([-0.5, 0.4])}
WEIGHTS = np.array([0.3, 0.7])


def responsibilities(x):
    joint = WEIGHTS * np.exp(-0.5 * (np.asarray(x)[:, None] - MEANS["mean"]) ** 2)
    return joint / joint.sum(1, keepdims=True)


# Outside rows


def test_a_reparametrised_site_is_in_params_draws_and_summary_as_numpy_computes_it():
    fit = sampled()
    draws = fit.draws(50, seed=3)
    theta = draws["mu"][:, None] + draws["tau"][:, None] * draws["theta_decentered"]
    np.testing.assert_allclose(draws["theta"], theta, atol=1e-10)
    np.testing.assert_allclose(draws["best"], theta.max(1), atol=1e-10)
    v = fit.drawn.values
    every = v["mu"][..., None] + v["tau"][..., None] * v["theta_decentered"]
    np.testing.assert_allclose(fit.params["theta"], every.mean((0, 1)), atol=1e-10)
    np.testing.assert_allclose(fit.params["best"], every.max(-1).mean(), atol=1e-10)
    table = fit.summary()
    np.testing.assert_allclose(table.loc["theta[3]", "sd"], every[..., 3].std(), atol=1e-10)
    np.testing.assert_allclose(table.loc["best", "95%"], np.quantile(every.max(-1), 0.95),
                               atol=1e-10)
    assert "r_hat" in table.columns and np.isfinite(table.loc["theta[0]", "ess_bulk"])


def test_arviz_has_deterministics_in_the_posterior_with_the_names_of_their_axes():
    pytest.importorskip("arviz")
    fit = sampled()
    posterior = fit.to_arviz().posterior
    assert posterior["theta"].dims == ("chain", "draw", "school") and posterior["effect"].dims == (
        "chain", "draw", "rows"
    )
    v = fit.drawn.values
    theta = v["mu"][..., None] + v["tau"][..., None] * v["theta_decentered"]
    np.testing.assert_allclose(posterior["theta"], theta, atol=1e-10)
    np.testing.assert_allclose(posterior["effect"], theta, atol=1e-10)
    assert posterior["best"].shape == (2, 60)


def test_a_fit_starts_from_params_and_stands_at_them_and_files_need_not_hold_them(tmp_path):
    fit = sampled()
    at = schools().at(fit.params)
    v = fit.params["mu"] + fit.params["tau"] * fit.params["theta_decentered"]
    # computed anew from the parameters
    np.testing.assert_allclose(at.predict(BLIND, "effect"), v, atol=1e-10)
    again = fitted(schools(), SCHOOLS, probml.MAP(steps=1), start=fit.params)
    # MAP integrates the effects out: what it starts at is the density of the rest
    mu, tau = fit.params["mu"], fit.params["tau"]
    seen = dist.Normal(mu, np.hypot(tau, ERROR)).log_prob(EFFECT).sum()
    prior = dist.Normal(0.0, 5.0).log_prob(mu) + dist.HalfCauchy(5.0).log_prob(tau)
    assert set(again.params) == set(fit.params) and again.history[0] == pytest.approx(
        float(seen + prior)
    )
    fit.save(tmp_path / "fit")
    with np.load(tmp_path / "fit") as file:
        assert "params/theta" not in file.files
    back = probml.load(tmp_path / "fit", schools())
    for name, value in fit.params.items():
        np.testing.assert_array_equal(back.params[name], value)


def test_a_closed_form_has_the_exact_mean_of_what_is_linear_and_draws_of_the_rest():
    fit = line().fit(LINE, probml.Exact())
    b = 1 + 2 * fit.params["b_base"]
    np.testing.assert_allclose(fit.params["b"], b, rtol=1e-10)
    np.testing.assert_allclose(fit.params["twice"], 2 * b[0], rtol=1e-10)
    draws = fit.draws(4)
    np.testing.assert_allclose(draws["b"], 1 + 2 * draws["b_base"], rtol=1e-10)
    table = fit.summary()
    np.testing.assert_allclose(table.loc["twice", "sd"],
                               4 * np.sqrt(fit.posterior("b_base").variance[0]), rtol=0.1)
    np.testing.assert_allclose(fit.predict({"x": X}, "mean"), b[0] + b[1] * X, rtol=1e-10)


def test_a_point_has_the_values_that_numpyro_computes_there():
    model = line()
    params = {"b_base": np.array([0.3, -0.2])}
    fit = model.at(params)
    truth = Predictive(model, {"b_base": params["b_base"][None]})(jax.random.key(0),
                                                                  x=jnp.asarray(X))
    for name in ("mean", "both"):
        np.testing.assert_allclose(fit.predict({"x": X}, name), truth[name][0], atol=1e-10)
    filled = fit.impute({"x": X, "y": np.where(X > 1, nan, 0.7)})
    np.testing.assert_allclose(filled["both"], truth["both"][0], atol=1e-10)
    fitted = model.fit(LINE, probml.MAP())
    np.testing.assert_allclose(fitted.params["b"], 1 + 2 * fitted.params["b_base"], atol=1e-10)
    with pytest.raises(ValueError, match="read-only"):
        fitted.params["b"][0] = 0.0


@probml.model
def bags():
    bag = sample("bag", dist.Categorical(jnp.array([0.2, 0.8])))
    rate = deterministic("rate", jnp.array([0.9, 0.3])[bag])
    with probml.rows():
        sample("cherry", dist.Bernoulli(rate))


def test_what_depends_on_a_discrete_site_outside_rows_is_averaged_over_its_posterior():
    fit = bags().fit({"cherry": [1, 1, 0]})
    joint = np.array([0.2 * 0.9**2 * 0.1, 0.8 * 0.3**2 * 0.7])
    np.testing.assert_allclose(fit.params["rate"], joint @ [0.9, 0.3] / joint.sum(), atol=1e-10)
    draws = fit.draws(6)
    np.testing.assert_allclose(draws["rate"], np.array([0.9, 0.3])[draws["bag"]], atol=1e-10)


# In rows


def test_a_value_in_rows_is_averaged_over_what_is_hidden_given_the_row():
    fit, x = mixture().at(MEANS), np.array([-1.0, 0.2, nan])
    q = responsibilities(np.nan_to_num(x))
    q[2] = WEIGHTS
    mean = q @ MEANS["mean"]
    np.testing.assert_allclose(fit.predict({"x": x}, "level"), mean, atol=1e-10)
    np.testing.assert_allclose(fit.predict({"x": x}, "item"), mean[:, None] + np.arange(3),
                               atol=1e-10)
    np.testing.assert_allclose(fit.predict({"x": x}, "pair"),
                               np.stack([mean, q @ MEANS["mean"] ** 2], -1), atol=1e-10)
    seen = fit.predict({"x": x, "z": [0, 1, 1]}, "level")
    np.testing.assert_allclose(seen, MEANS["mean"][[0, 1, 1]], atol=1e-10)
    filled = fit.impute({"x": x, "y": [1.0, 2.0, 0.5]})
    assert filled["item"].shape == (3, 3)
    np.testing.assert_allclose(filled["price"], np.exp([1.0, 2.0, 0.5]), atol=1e-10)


def test_what_takes_an_unseen_number_is_the_mean_of_simulated_rows():
    fit, x = mixture().at(MEANS), np.array([-1.0, 0.2])
    q = responsibilities(x)
    truth = q @ np.exp(3 * MEANS["mean"] + 3 + 0.08)  # of lognormals
    spread = np.sqrt(q @ np.exp(2 * (3 * MEANS["mean"] + 3) + 4 * 0.08) - truth**2)
    np.testing.assert_array_less(np.abs(fit.predict({"x": x}, "price") - truth),
                                 5 * spread / np.sqrt(2000))


@probml.model
def prices():
    mean = sample("mean", dist.Normal(0.0, 5.0))
    with probml.rows():
        y = sample("y", dist.Normal(mean, 0.5))
        deterministic("price", jnp.exp(y))


def test_arviz_says_what_it_leaves_out_since_cells_are_unseen():
    pytest.importorskip("arviz")
    fit, y = prices().fit({"y": [0.1, 0.4, nan]}), np.array([0.1, 0.4, 0.2])
    with pytest.warns(RuntimeWarning,
                      match=r"does not contain 'price'.*fit.predict\(data, 'price'\)"):
        assert "price" not in fit.to_arviz({"y": [0.1, 0.4, nan]}).posterior
    np.testing.assert_allclose(fit.to_arviz({"y": y}).posterior["price"][0, 7], np.exp(y),
                               rtol=1e-10)


def test_simulated_rows_carry_what_is_computed_from_them():
    drawn = mixture().at(MEANS).simulate(7, seed=1)
    np.testing.assert_allclose(drawn["level"], MEANS["mean"][drawn["z"]], atol=1e-12)
    np.testing.assert_allclose(drawn["item"], drawn["level"][:, None] + np.arange(3), atol=1e-12)
    np.testing.assert_allclose(drawn["price"], np.exp(drawn["y"]), rtol=1e-12)
    prior = mixture().simulate(5)
    assert prior["pair"].shape == (5, 2) and len(set(prior["level"])) <= 2


def test_an_interval_of_a_mean_has_its_posteriors_quantiles():
    fit = line().fit(LINE, probml.Exact())
    found = fit.predict({"x": X}, "mean", interval=0.9)
    covariance = np.asarray(fit.posterior("b_base").covariance_matrix)
    deviation = 2 * np.sqrt(np.einsum("ni,ij,nj->n", np.c_[np.ones(5), X], covariance,
                                      np.c_[np.ones(5), X]))
    np.testing.assert_allclose((found.upper - found.lower) / (2 * 1.645 * deviation), 1.0,
                               atol=0.15)
    np.testing.assert_allclose(found.value, fit.predict({"x": X}, "mean"), rtol=1e-12)


@probml.model
def chain():
    with plate("state", 2):
        mean = sample("mean", dist.Normal(0.0, 5.0))
    with probml.rows():
        z = sample("z",
                   probml.MarkovChain(jnp.array([0.6, 0.4]), jnp.array([[0.9, 0.1], [0.2, 0.8]])))
        level = deterministic("level", mean[z])
        sample("x", dist.Normal(level, 1.0).to_event(1))


def test_a_value_along_time_has_a_number_for_every_step():
    fit, x = chain().at(MEANS), np.array([[-1.0, 0.0, 1.0, nan], [2.0, nan, -1.0, 0.3]])
    for given in ("all", "filtered"):
        proba = fit.predict_proba({"x": x}, "z", given=given)
        np.testing.assert_allclose(fit.predict({"x": x}, "level", given=given),
                                   proba @ MEANS["mean"], atol=1e-10)
    drawn = fit.simulate(3, steps=5)
    np.testing.assert_allclose(drawn["level"], MEANS["mean"][drawn["z"]], atol=1e-12)
    ahead = fit.forecast({"x": x}, steps=2)["level"]
    longer = fit.predict({"x": np.c_[x, np.full((2, 2), nan)]}, "level")
    np.testing.assert_allclose(ahead, longer[:, 4:], atol=1e-10)


# No engine sees them


def test_engines_graphs_and_densities_are_those_of_the_model_without():
    @probml.model
    def bare():
        with plate("component", 2):
            mean = sample("mean", dist.Normal(0.0, 5.0))
        with probml.rows():
            z = sample("z", dist.Categorical(jnp.array([0.3, 0.7])))
            sample("x", dist.Normal(mean[z], 1.0))
            sample("y", dist.Normal(3 * mean[z] + 3.0, 0.4))

    data = {"x": np.array([-1.0, 0.2]), "y": np.array([1.0, 4.0])}
    assert set(mixture().structure) == set(bare().structure) == set(trace(mixture()).sites)
    np.testing.assert_allclose(mixture().log_density(data, MEANS), bare().log_density(data, MEANS),
                               rtol=1e-12)
    roles = {record["site"]: record["role"] for record in mixture().explain(data).sites}
    assert roles["level"] == roles["price"] == "deterministic" and roles["mean"] == "parameter"


def test_questions_that_a_computed_value_cannot_answer_say_what_to_ask_instead():
    fit = sampled()
    with pytest.raises(probml.Refusal, match=r"'theta' is computed.*fit.draws\(1000\)\['theta'\]"):
        fit.posterior("theta")
    with pytest.raises(probml.Refusal,
                       match=r"'effect' is computed.*fit.predict\(data, 'effect'\)"):
        fit.posterior("effect")
    with pytest.raises(probml.ModelError, match=r"'theta'.*outside rows\(\).*fit.params"):
        fit.predict(BLIND, "theta")
    with pytest.raises(probml.ModelError, match="'effect' .deterministic. has no finite list"):
        fit.predict_proba(SCHOOLS, "effect")
    with pytest.raises(probml.ModelError, match="'nope'.*'theta', 'best', 'effect'"):
        fit.predict(BLIND, "nope")
    with pytest.raises(probml.DataError, match="'theta' is computed by the model"):
        schools().fit({**SCHOOLS, "theta": EFFECT})
    with pytest.raises(probml.ModelError, match="'effect' is not a parameter"):
        schools().at({**fit.params, "effect": EFFECT}).log_prob(SCHOOLS)


WRONG = {
    "on other rows, by the JAX operation 'reduce_sum'": lambda x, b: deterministic("made", (b * x).sum()),
    "on the number of rows": lambda x, b: deterministic("made", b * x.shape[0]),
    "its shape must not depend": lambda x, b: deterministic("made", x[:, None] * x[None, :]),
    "two sites have the name 'b'": lambda x, b: deterministic("b", 2 * b),
    "expected one array": lambda x, b: deterministic("made", {"b": b}),
}


@pytest.mark.parametrize("said", WRONG)
def test_a_value_that_belongs_to_no_row_and_not_to_the_parameters_is_refused_by_name(said):
    @probml.model
    def wrong(x):
        b = sample("b", dist.Normal(0.0, 1.0))
        WRONG[said](x, b)
        with probml.rows():
            sample("y", dist.Normal(b * x, 1.0))

    with pytest.raises(probml.ModelError, match=said) as refused:
        wrong().fit({"x": X, "y": X})
    assert "'made'" in str(refused.value) or "'b'" in str(refused.value)


def test_a_value_of_one_step_of_a_chain_is_refused_by_name():
    @probml.model
    def last():
        with probml.rows():
            z = sample("z", probml.MarkovChain(jnp.array([0.6, 0.4]),
                                               jnp.array([[0.9, 0.1], [0.2, 0.8]])))
            deterministic("last", z[..., -1])
            sample("x", dist.Normal(z, 1.0).to_event(1))

    with pytest.raises(probml.ModelError, match="'last' has one value for all time steps"):
        last().fit({"x": np.zeros((2, 4))})
