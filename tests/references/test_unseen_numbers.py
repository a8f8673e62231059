"""Unseen numbers of rows and along time on real data: the maximum likelihoods, estimates and
conditional means of lavaan, factanal, ltm, metafor, glmmTMB, MASS and KFAS, to the digits given,
none tuned to."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

import probml
from probml.models import factor_analysis, probabilistic_pca

pytestmark = pytest.mark.slow
ENGINE = probml.MAP(prior=False)
nan = np.nan


def reference(folder, name, table=None):
    found = json.loads((folder / "fits" / f"{name}.json").read_text())
    return found, pd.read_csv(folder / (table or found["dataset"]))


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("kind", ["FA", "PPCA"])
@pytest.mark.parametrize("part", ["complete", "missing"])
def test_factors_of_tests_of_pupils(shared_data, kind, k, part):
    whole = part == "complete"
    found, table = reference(shared_data, "fa_holzinger",
                             f"classic/holzinger{'' if whole else '_missing'}.csv")
    want, x = found[part][f"{kind}_k{k}"], table.to_numpy(float)
    make = factor_analysis if kind == "FA" else probabilistic_pca
    fit = make(k=k, d=9).fit({"x": x}, probml.EM(prior=False, tolerance=1e-9))
    assert fit.converged and fit.history[-1] == pytest.approx(want["loglik"], abs=1e-3)
    W, psi = np.asarray(fit.params["loadings"]), 1 / np.asarray(fit.params["precision"])
    outer = want.get("loadings_outer_product_LLt_raw_scale", want.get("WWt", want.get("LLt")))
    np.testing.assert_allclose(W @ W.T, outer, atol=5e-3)
    noise = want.get("noise_variances", want.get("noise_variance"))
    np.testing.assert_allclose(psi, noise if np.isscalar(noise) else (
        list(noise.values()) if kind == "FA" else next(iter(noise.values()))), rtol=5e-3)
    if not whole:
        filled = fit.impute({"x": x})["x"]
        for cell in want["imputed"]:
            at = filled[cell["row"] - 1, table.columns.get_loc(cell["column"])]
            assert at == pytest.approx(cell["mean"], abs=5e-3)


@probml.model
def confirmatory():
    """Three correlated factors, each of three columns."""
    mean = sample("mean", dist.Normal(0.0, 10.0).expand([9]).to_event(1))
    load = sample("load", dist.Normal(0.0, 3.0).expand([9]).to_event(1))
    noise = sample("noise", dist.HalfNormal(3.0).expand([9]).to_event(1))
    turn = sample("turn", dist.LKJCholesky(3, 1.0))
    with probml.rows():
        z = sample("z", dist.MultivariateNormal(jnp.zeros(3), scale_tril=turn))
        factors = z @ np.repeat(np.eye(3), 3, 0).T
        sample("x", dist.Normal(mean + load * factors, noise).to_event(1))


@pytest.mark.parametrize("part", ["complete", "missing"])
def test_confirmatory_factors(shared_data, part):
    file = f"classic/holzinger{'' if part == 'complete' else '_missing'}.csv"
    found, table = reference(shared_data, "cfa_holzinger", file)
    fit = confirmatory().fit({"x": table.to_numpy(float)}, ENGINE)
    assert fit.converged and fit.history[-1] == pytest.approx(found[part]["loglik"], abs=1e-4)
    told = {line["par"]: line["est"] for line in found[part]["estimates"]}
    names = [f"{factor} =~ x{3 * i + j}" for i, factor in enumerate(("visual", "textual", "speed"))
             for j in (1, 2, 3)]
    sign = np.sign(fit.params["load"])  # a factor may be turned round
    np.testing.assert_allclose(fit.params["load"] * sign, [told[name] for name in names], atol=2e-3)
    np.testing.assert_allclose(np.asarray(fit.params["noise"]) ** 2,
                               [told[f"x{i} ~~ x{i}"] for i in range(1, 10)], atol=2e-3)
    turn = np.asarray(fit.params["turn"])
    correlations = turn @ turn.T * np.outer(sign[::3], sign[::3])
    assert correlations[1, 0] == pytest.approx(told["visual ~~ textual"], abs=2e-3)
    assert correlations[2, 0] == pytest.approx(told["visual ~~ speed"], abs=2e-3)


@probml.model
def corn():
    b0, b1 = sample("b0", dist.Normal(0.0, 1e3)), sample("b1", dist.Normal(0.0, 10.0))
    middle, wide = sample("middle", dist.Normal(0.0, 1e3)), sample("wide", dist.HalfNormal(1e2))
    noise = sample("noise", dist.HalfNormal(1e2))
    with probml.rows():
        xi = sample("xi", dist.Normal(middle, wide))
        sample("nitrogen", dist.Normal(xi, jnp.sqrt(57.0)))
        sample("crop", dist.Normal(b0 + b1 * xi, noise))


def test_a_covariate_that_is_measured_with_error(shared_data):
    want, table = reference(shared_data, "eiv_fuller_corn")
    fit = corn().fit({"nitrogen": table["nitrogen"].to_numpy(float),
                      "crop": table["yield"].to_numpy(float)}, ENGINE)
    assert fit.history[-1] == pytest.approx(want["loglik"], abs=1e-6)
    assert fit.params["b1"] == pytest.approx(want["b1"], rel=1e-3)
    assert fit.params["wide"] ** 2 == pytest.approx(want["var_xi"], rel=1e-3)
    assert fit.params["noise"] ** 2 == pytest.approx(want["var_e"], rel=1e-3)


@probml.model
def rates():
    shape, mean = (sample(name, dist.LogNormal(0.0, 3.0)) for name in ("shape", "mean"))
    with probml.rows():
        rate = sample("rate", dist.Gamma(shape, shape / mean))
        sample("y", dist.Poisson(rate))


def test_counts_whose_rates_differ(shared_data):
    want, table = reference(shared_data, "gammapoisson_discoveries")
    data = {"y": table["count"].to_numpy()}
    fit = rates().fit(data, ENGINE)
    assert fit.history[-1] == pytest.approx(want["loglik"], abs=1e-6)
    assert fit.params["shape"] == pytest.approx(want["shape"], rel=1e-3)
    assert fit.params["mean"] == pytest.approx(want["mean"], rel=1e-4)
    np.testing.assert_allclose(fit.impute(data)["rate"][:8], want["posterior_rate_first8"],
                               rtol=1e-3)


@probml.model
def litters(group, size):
    beta = sample("beta", dist.Normal(0.0, 10.0).expand([4]).to_event(1))
    phi = sample("phi", dist.LogNormal(0.0, 3.0))
    with probml.rows():
        mean = jax.nn.sigmoid(beta[group])
        p = sample("p", dist.Beta(mean * phi, (1 - mean) * phi))
        sample("dead", dist.Binomial(size, p))


def test_shares_that_differ_from_litter_to_litter(shared_data):
    want, table = reference(shared_data, "betabinomial_lirat")
    data = {"group": table["grp"].str[1:].astype(int).to_numpy() - 1,
            "size": table["N"].to_numpy(), "dead": table["R"].to_numpy()}
    fit = litters().fit(data, ENGINE)
    assert fit.history[-1] == pytest.approx(want["loglik"], abs=1e-5)
    first, *others = want["coefficients"].values()
    np.testing.assert_allclose(fit.params["beta"], [first, *(first + b for b in others)], atol=2e-3)
    assert fit.params["phi"] == pytest.approx(want["phi"], rel=2e-3)
    np.testing.assert_allclose(fit.impute(data)["p"][:8], want["posterior_p_first8"]["mean"],
                               atol=1e-3)


@probml.model
def graded(common: bool):
    """logit P(y <= k) = cut_k − a z; categories from 0."""
    slope = sample("slope", dist.LogNormal(0.0, 3.0).expand([] if common else [4]).to_event(
        0 if common else 1))
    first = sample("first", dist.Normal(0.0, 20.0).expand([4]).to_event(1))
    gap = sample("gap", dist.LogNormal(0.0, 3.0).expand([4, 2]).to_event(2))
    cut = first[:, None] + jnp.concatenate([jnp.zeros((4, 1)), jnp.cumsum(gap, 1)], 1)
    with probml.rows():
        z = sample("z", dist.Normal(0.0, 1.0))
        below = jax.nn.sigmoid(cut - (slope * z[..., None])[..., None])
        edges = jnp.concatenate([jnp.zeros_like(below[..., :1]), below,
                                 jnp.ones_like(below[..., :1])], -1)
        sample("y", dist.Categorical(jnp.diff(edges)).to_event(1))


@pytest.mark.parametrize("common", [False, True])
def test_graded_answers(shared_data, common):
    found, table = reference(shared_data, "irt_graded_science")
    own = found["fits"]["graded_common_discrimination"] if common else found["own_optimum_graded"]
    y = table.to_numpy() - 1
    fit = graded(common=common).fit({"y": y}, ENGINE)
    assert fit.history[-1] == pytest.approx(own["loglik"], abs=1e-4)
    slope = np.broadcast_to(fit.params["slope"], 4)
    np.testing.assert_allclose(slope, list(own["discrimination"].values()), rtol=5e-3)
    np.testing.assert_allclose(fit.params["first"], [cut[0] for cut in own["thresholds"].values()],
                               atol=2e-2)
    given = fit.conditional({"y": y[:8]}, "z")
    np.testing.assert_allclose(given.mean, own["eap_first8_rows"], atol=2e-3)
    np.testing.assert_allclose(given.variance, own["evar_first8_rows"], atol=2e-3)


@probml.model
def trials(error, ablat, sloping: bool):
    mean, spread = sample("mean", dist.Normal(0.0, 1e2)), sample("spread", dist.HalfNormal(1e2))
    slope = sample("slope", dist.Normal(0.0, 1e2)) if sloping else 0.0
    with probml.rows():
        own = sample("own", dist.Normal(mean + slope * ablat, spread))
        sample("y", dist.Normal(own, error))


@pytest.mark.parametrize("name", ["ML", "ML_regression"])
def test_trials_of_one_vaccine(shared_data, name):
    found, table = reference(shared_data, "meta_bcg")
    want = found["fits"][name]
    data = {"y": table["yi"].to_numpy(), "error": np.sqrt(table["vi"].to_numpy()),
            "ablat": table["ablat"].to_numpy(float)}
    fit = trials(sloping=name == "ML_regression").fit(data, ENGINE)
    assert fit.history[-1] == pytest.approx(want["loglik"], abs=1e-6)
    assert fit.params["spread"] == pytest.approx(want["tau"], rel=1e-3)
    np.testing.assert_allclose([fit.params[n] for n in ("mean", "slope") if n in fit.params],
                               list(want["beta"].values()), rtol=1e-3)
    np.testing.assert_allclose(fit.impute(data)["own"], want["blup"]["mean"], atol=1e-3)


@probml.model
def outcomes(within):
    mean = sample("mean", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    spread = sample("spread", dist.HalfNormal(10.0).expand([2]).to_event(1))
    turn = sample("turn", dist.LKJCholesky(2, 1.0))
    with probml.rows():
        own = sample("own", dist.MultivariateNormal(mean, scale_tril=spread[:, None] * turn))
        sample("y", dist.MultivariateNormal(own, covariance_matrix=within))


def berkey(table):
    """Outcomes AL and PD of each trial, and their covariances."""
    parts = [table[table["outcome"] == name].set_index("trial").loc[table["trial"].unique()]
             for name in ("AL", "PD")]
    # the two rows of a trial hold its covariance, in the order of the file: PD before AL
    trials = [table[table["trial"] == name] for name in table["trial"].unique()]
    within = np.stack([trial[["v1", "v2"]].to_numpy()[::-1, ::-1] for trial in trials])
    return np.column_stack([part["yi"] for part in parts]), within


def test_trials_of_two_outcomes(shared_data):
    found, table = reference(shared_data, "meta_berkey")
    want, y, within = found["ML"], *berkey(table)
    fit = outcomes().fit({"within": within, "y": y}, ENGINE)
    assert fit.history[-1] == pytest.approx(want["loglik"], abs=1e-6)
    np.testing.assert_allclose(fit.params["mean"], list(want["beta"].values()), rtol=1e-3)
    np.testing.assert_allclose(np.asarray(fit.params["spread"]) ** 2, want["tau2"], rtol=5e-3)
    assert fit.params["turn"][1, 0] == pytest.approx(want["rho"], abs=2e-3)


RESTRICTED = probml.MAP(prior=False, restricted=True)


@probml.model
def effects_of_trials(trial, error, ablat, sloping: bool):
    """The same with the trials' effects outside the rows, about 0: as restricted maximum likelihood
    wants them."""
    mean, spread = sample("mean", dist.Normal(0.0, 1e2)), sample("spread", dist.HalfNormal(1e2))
    slope = sample("slope", dist.Normal(0.0, 1e2)) if sloping else 0.0
    with plate("trials", 13):
        own = sample("own", dist.Normal(0.0, spread))
    with probml.rows():
        sample("y", dist.Normal(mean + slope * ablat + own[trial], error))


@pytest.mark.parametrize("name", ["REML", "REML_regression"])
def test_restricted_likelihood_of_trials(shared_data, name):
    found, table = reference(shared_data, "meta_bcg")
    want = found["fits"][name]
    data = {"y": table["yi"].to_numpy(), "error": np.sqrt(table["vi"].to_numpy()),
            "ablat": table["ablat"].to_numpy(float), "trial": np.arange(13)}
    fit = effects_of_trials(sloping="regression" in name).fit(data, RESTRICTED)
    assert fit.history[-1] == pytest.approx(want["restricted_loglik_without_XtX_term"], abs=1e-6)
    assert fit.params["spread"] ** 2 == pytest.approx(want["tau2"], rel=1e-4)
    names = [n for n in ("mean", "slope") if n in fit.params]
    np.testing.assert_allclose([fit.params[n] for n in names], list(want["beta"].values()),
                               rtol=1e-4)
    np.testing.assert_allclose([np.sqrt(fit.posterior(n).variance) for n in names],
                               np.ravel(want["se"]), rtol=1e-4)
    fixed = sum(fit.params[n] * data[c] if c else fit.params[n]
                for n, c in (("mean", None), ("slope", "ablat")) if n in names)
    np.testing.assert_allclose(fixed + fit.params["own"], want["blup"]["mean"], atol=1e-4)


@probml.model
def outcomes_of_trials(trial, within):
    mean = sample("mean", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    spread = sample("spread", dist.HalfNormal(10.0).expand([2]).to_event(1))
    turn = sample("turn", dist.LKJCholesky(2, 1.0))
    with plate("trials", 5):
        own = sample("own", dist.MultivariateNormal(jnp.zeros(2), scale_tril=spread[:, None] * turn))
    with probml.rows():
        sample("y", dist.MultivariateNormal(mean + own[trial], covariance_matrix=within))


def test_restricted_likelihood_of_trials_of_two_outcomes(shared_data):
    found, table = reference(shared_data, "meta_berkey")
    want, y, within = found["REML"], *berkey(table)
    fit = outcomes_of_trials().fit({"within": within, "y": y, "trial": np.arange(5)}, RESTRICTED)
    # theirs has ½ log det XᵀX, of two columns of five ones, beside the integral
    assert fit.history[-1] == pytest.approx(want["loglik"] - np.log(5.0), abs=1e-6)
    np.testing.assert_allclose(fit.params["mean"], list(want["beta"].values()), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(fit.params["spread"]) ** 2, want["tau2"], rtol=1e-3)
    assert fit.params["turn"][1, 0] == pytest.approx(want["rho"], abs=1e-3)


@probml.model
def level(centre: float, wide: float, scale: float):
    step = sample("step", dist.HalfNormal(scale))
    noise = sample("noise", dist.HalfNormal(scale))
    with probml.rows():
        z = sample("z", probml.GaussianChain(jnp.full(1, centre), wide**2 * jnp.eye(1), jnp.eye(1),
                                             step**2 * jnp.eye(1)))
        sample("y", dist.Normal(z[..., 0], noise).to_event(1))


@probml.model
def coefficients(x):
    step = sample("step", dist.HalfNormal(1.0).expand([2]).to_event(1))
    noise = sample("noise", dist.HalfNormal(1.0))
    with probml.rows():
        z = sample("z", probml.GaussianChain(jnp.zeros(2), 4.0 * jnp.eye(2), jnp.eye(2),
                                             jnp.diag(step**2)))
        sample("y", dist.Normal(z[..., 0] + z[..., 1] * x, noise).to_event(1))


@probml.model
def two_series():
    step = sample("step", dist.HalfNormal(1.0))
    spread = sample("spread", dist.HalfNormal(1.0).expand([2]).to_event(1))
    turn = sample("turn", dist.LKJCholesky(2, 1.0))
    with probml.rows():
        z = sample("z", probml.GaussianChain(jnp.zeros(1), jnp.eye(1), jnp.eye(1),
                                             step**2 * jnp.eye(1)))
        sample("y", dist.MultivariateNormal(jnp.concatenate([z, z], -1),
                                            scale_tril=spread[:, None] * turn).to_event(1))


SERIES = {
    "ssm_nile_gaps": (level, ("volume_gaps",)),
    "ssm_nile_scattered": (level, ("volume_scattered",)),
    "ssm_macro_tvp": (coefficients, ("dlog_cons",)),
    "ssm_macro_tvp_missing": (coefficients, ("dlog_cons_missing",)),
    "ssm_globaltemp": (two_series, ("HL", "Folland")),
    "ssm_globaltemp_missing": (two_series, ("HL_missing", "Folland_missing")),
}


@pytest.mark.parametrize("name", SERIES)
def test_series_with_steps_unseen(shared_data, name):
    found, table = reference(shared_data, name)
    make, columns = SERIES[name]
    want, y = found["proper_prior_ml"], table[list(columns)].to_numpy(float)
    data = {"y": y[None] if len(columns) > 1 else y.T}
    if make is coefficients:
        data["x"] = table["dlog_inc"].to_numpy()[None]
    model = level(centre=1000.0, wide=500.0, scale=1000.0) if make is level else make()
    fit = model.fit(data, ENGINE)
    assert fit.history[-1] >= want["loglik"] - 1e-5
    p = {key: np.asarray(value) for key, value in fit.params.items()}
    told = want["parameters"]
    steps = [value for key, value in told.items() if key in ("var_level", "var_intercept",
                                                             "var_slope")]
    np.testing.assert_allclose(p["step"] ** 2, steps if make is coefficients else steps[0],
                               rtol=2e-2)
    if make is two_series:
        own = p["spread"][:, None] * p["turn"]
        np.testing.assert_allclose(own @ own.T, [[told["H11"], told["H12"]],
                                                 [told["H12"], told["H22"]]], rtol=2e-2)
    else:
        assert p["noise"] ** 2 == pytest.approx(told["var_obs"], rel=2e-2)
    # at the given parameters the paths are those of a joint normal, to all digits
    at = found["proper_prior_at_given_parameters"]
    given = at["parameters"]
    if make is two_series:
        own = np.linalg.cholesky([[given["H11"], given["H12"]], [given["H12"], given["H22"]]])
        spread = np.sqrt([given["H11"], given["H22"]])
        point = {"step": given["var_level"] ** 0.5, "spread": spread, "turn": own / spread[:, None]}
    elif make is level:
        point = {"step": given["var_level"] ** 0.5, "noise": given["var_obs"] ** 0.5}
    else:
        point = {"step": np.sqrt([given["var_intercept"], given["var_slope"]]),
                 "noise": given["var_obs"] ** 0.5}
    there = model.at(point)
    assert there.log_prob(data)[0] == pytest.approx(at["loglik"], abs=1e-8)
    path = there.conditional(data, "z")
    for state in at["smoothed_state"]:
        t = state["t"] - 1
        np.testing.assert_allclose(np.ravel(path.mean[0, t]), np.ravel(state["mean"]), rtol=1e-7,
                                   atol=1e-9)
