"""lme4's, nlme's and glmmTMB's mixed models on real data: maximum likelihood, estimates, conditional
modes and their covariances to the digits given, none tuned to."""

import json
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

import probml

ENGINE = probml.MAP(prior=False)
SLOW = pytest.mark.slow


def reference(folder, name):
    found = json.loads((folder / "fits" / f"lmm_{name}.json").read_text())
    return found, pd.read_csv(folder / found["dataset"])


@probml.model
def oneway(group, groups: int):
    mean, spread = sample("mean", dist.Normal(0, 1e4)), sample("spread", dist.HalfNormal(1e3))
    noise = sample("noise", dist.HalfNormal(1e3))
    with plate("groups", groups):
        shift = sample("shift", dist.Normal(0.0, spread))
    with probml.rows():
        sample("y", dist.Normal(mean + shift[group], noise))


@probml.model
def crossed(one, two, ones: int, twos: int):
    mean = sample("mean", dist.Normal(0, 1e3))
    spread = sample("spread", dist.HalfNormal(1e2).expand([2]).to_event(1))
    noise = sample("noise", dist.HalfNormal(1e2))
    with plate("ones", ones):
        a = sample("a", dist.Normal(0.0, spread[0]))
    with plate("twos", twos):
        b = sample("b", dist.Normal(0.0, spread[1]))
    with probml.rows():
        sample("y", dist.Normal(mean + a[one] + b[two], noise))


@probml.model
def lines(subject, day, subjects: int):
    level = sample("level", dist.Normal(0, 1e3).expand([2]).to_event(1))
    spread = sample("spread", dist.HalfNormal(1e2).expand([2]).to_event(1))
    noise, turn = sample("noise", dist.HalfNormal(1e2)), sample("turn", dist.LKJCholesky(2))
    with plate("subjects", subjects):
        own = sample("own", dist.MultivariateNormal(jnp.zeros(2), scale_tril=spread[:, None]
                                                    * turn))
    with probml.rows():
        line = level + own[subject]
        sample("y", dist.Normal(line[..., 0] + line[..., 1] * day, noise))


def modes(fit, name, column, blup):
    """Conditional modes and covariances are the reference's, member by member."""
    labels, found = fit.labels(column), fit.posterior(name)
    for member, told in blup.items():
        at = labels.index(member)
        np.testing.assert_allclose(np.ravel(found.mean[at]), list(told["mode"].values()),
                                   rtol=2e-4, atol=2e-4)
        variance = (found.covariance_matrix if hasattr(found, "covariance_matrix")
                    else found.variance)[at]
        np.testing.assert_allclose(np.ravel(variance), np.ravel(told["cond_var"]), rtol=5e-4,
                                   atol=1e-6)


def fitted(fit, data):
    return fit.predict({name: column for name, column in data.items() if name != "y"})


@pytest.mark.parametrize("name", ["dyestuff", "dyestuff2"])
def test_one_way(shared_data, name):
    found, table = reference(shared_data, name)
    want = found["fits"]["oneway"]["ML"]
    data = {"group": table["Batch"].to_numpy(), "y": table["Yield"].to_numpy(float)}
    fit = oneway(groups=6).fit(data, ENGINE)
    assert fit.converged and fit.history[-1] == pytest.approx(want["loglik"], abs=1e-6)
    assert fit.params["mean"] == pytest.approx(want["fixed"]["(Intercept)"], rel=1e-6)
    assert fit.params["noise"] == pytest.approx(want["residual"]["sd"], rel=1e-5)
    spread = want["random"]["Batch"]["sd"]["(Intercept)"]
    assert fit.params["spread"] == pytest.approx(spread, rel=1e-5, abs=1e-2)
    assert ("'spread' is at its boundary" in fit.status) == want["singular"]
    modes(fit, "shift", "group", want["blup"]["Batch"])
    np.testing.assert_allclose(fitted(fit, data)[:8], want["fitted_first8"], rtol=1e-6)


@pytest.mark.parametrize(("name", "one", "two"), [
    ("penicillin", "plate", "sample"), pytest.param("pastes", "batch", "sample", marks=SLOW)])
def test_crossed_and_nested(shared_data, name, one, two):
    found, table = reference(shared_data, name)
    want = next(iter(found["fits"].values()))["ML"]
    data = {"one": table[one].to_numpy(), "two": table[two].to_numpy(),
            "y": table[{"penicillin": "diameter", "pastes": "strength"}[name]].to_numpy(float)}
    fit = crossed(ones=table[one].nunique(), twos=table[two].nunique()).fit(data, ENGINE)
    assert fit.converged and fit.history[-1] == pytest.approx(want["loglik"], abs=1e-6)
    spreads = [want["random"][factor]["sd"]["(Intercept)"] for factor in (one, two)]
    np.testing.assert_allclose(fit.params["spread"], spreads, rtol=1e-4)
    assert fit.params["noise"] == pytest.approx(want["residual"]["sd"], rel=1e-4)
    modes(fit, "a", "one", want["blup"][one])
    modes(fit, "b", "two", want["blup"][two])
    np.testing.assert_allclose(fitted(fit, data)[:8], want["fitted_first8"], rtol=1e-6)
    criteria = probml.compare({"own": fit}, data)
    assert float(criteria.loc["own", "aic"]) == pytest.approx(want["aic"], abs=1e-4)


@pytest.mark.parametrize("name", ["sleepstudy", pytest.param("sleepstudy_missing", marks=SLOW)])
def test_intercepts_and_slopes_that_are_correlated(shared_data, name):
    found, table = reference(shared_data, name)
    want = found if "loglik" in found else found["fits"]["correlated_slope"]["ML"]
    data = {"subject": table["Subject"].astype(str).to_numpy(), "day": table["Days"].to_numpy(float),
            "y": table["Reaction_obs" if "missing" in name else "Reaction"].to_numpy()}
    fit = lines(subjects=18).fit(data, ENGINE)
    assert fit.converged and fit.history[-1] == pytest.approx(want["loglik"], abs=1e-6)
    np.testing.assert_allclose(fit.params["level"], list(want["fixed"].values()), rtol=1e-5)
    subject = want["random"]["Subject"]
    np.testing.assert_allclose(fit.params["spread"], list(subject["sd"].values()), rtol=1e-4)
    assert fit.params["turn"][1, 0] == pytest.approx(subject["correlation"], abs=1e-4)
    assert fit.params["noise"] == pytest.approx(want["residual"]["sd"], rel=1e-5)
    modes(fit, "own", "subject", want["blup"]["Subject"])
    if "predicted_missing" in want:
        gone = np.isnan(data["y"])
        at = {name: column[gone] for name, column in data.items() if name != "y"}
        np.testing.assert_allclose(fit.predict(at), want["predicted_missing"], rtol=1e-4)
        new = {"subject": ["another"], "day": [3.0]}
        assert fit.predict(new, unknown="new", plug_in=True)[0] == pytest.approx(
            want["new_subject_day3"]["mean"], rel=1e-5)


@SLOW
@pytest.mark.parametrize("name", ["dyestuff", "penicillin"])
def test_em_ends_where_the_likelihood_is_highest(shared_data, name):
    found, table = reference(shared_data, name)
    want = next(iter(found["fits"].values()))["ML"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = probml.EM(prior=False, tolerance=1e-10, max_iterations=5000)
        if name == "dyestuff":
            fit = oneway(groups=6).fit({"group": table["Batch"].to_numpy(),
                                        "y": table["Yield"].to_numpy(float)}, engine)
        else:
            fit = crossed(ones=24, twos=6).fit(
                {"one": table["plate"].to_numpy(), "two": table["sample"].to_numpy(),
                 "y": table["diameter"].to_numpy(float)}, engine)
    assert np.all(np.diff(fit.history) > -1e-8)
    assert fit.history[-1] == pytest.approx(want["loglik"], abs=1e-5)


def by_labels(fit, name, column, blup):
    labels, found = fit.labels(column), fit.posterior(name)
    for member, told in blup.items():
        np.testing.assert_allclose(np.ravel(found.mean[labels.index(member)]),
                                   list(told["mode"].values()), rtol=2e-4, atol=2e-4)


RESTRICTED = probml.MAP(prior=False, restricted=True)


def test_restricted_likelihood_of_one_way(shared_data):
    """Coefficients integrated out under flat priors: their covariance is the reference's."""
    found, table = reference(shared_data, "dyestuff")
    want = found["fits"]["oneway"]["REML"]
    data = {"group": table["Batch"].to_numpy(), "y": table["Yield"].to_numpy(float)}
    fit = oneway(groups=6).fit(data, RESTRICTED)
    assert fit.converged and fit.history[-1] == pytest.approx(want["loglik"], abs=1e-6)
    assert fit.params["mean"] == pytest.approx(want["fixed"]["(Intercept)"], rel=1e-6)
    assert fit.posterior("mean").variance == pytest.approx(want["fixed_cov"][0][0], rel=1e-4)
    assert fit.params["noise"] == pytest.approx(want["residual"]["sd"], rel=1e-5)
    spread = want["random"]["Batch"]["sd"]["(Intercept)"]
    assert fit.params["spread"] == pytest.approx(spread, rel=1e-5)
    by_labels(fit, "shift", "group", want["blup"]["Batch"])


@SLOW
def test_restricted_likelihood_of_crossed_effects_and_of_slopes(shared_data):
    found, table = reference(shared_data, "penicillin")
    want = found["fits"]["crossed"]["REML"]
    data = {"one": table["plate"].to_numpy(), "two": table["sample"].to_numpy(),
            "y": table["diameter"].to_numpy(float)}
    fit = crossed(ones=24, twos=6).fit(data, RESTRICTED)
    assert fit.history[-1] == pytest.approx(want["loglik"], abs=1e-6)
    by_labels(fit, "b", "two", want["blup"]["sample"])
    found, table = reference(shared_data, "sleepstudy")
    want = found["fits"]["correlated_slope"]["REML"]
    data = {"subject": table["Subject"].astype(str).to_numpy(),
            "day": table["Days"].to_numpy(float), "y": table["Reaction"].to_numpy()}
    fit = lines(subjects=18).fit(data, RESTRICTED)
    assert fit.history[-1] == pytest.approx(want["loglik"], abs=1e-6)
    np.testing.assert_allclose(fit.posterior("level").covariance_matrix
                               if hasattr(fit.posterior("level"), "covariance_matrix")
                               else fit.posterior("level").variance,
                               want["fixed_cov"] if hasattr(fit.posterior("level"),
                                                            "covariance_matrix")
                               else np.diag(want["fixed_cov"]), rtol=1e-3)
    by_labels(fit, "own", "subject", want["blup"]["Subject"])


def test_restricting_by_nothing_is_refused_in_words():
    @probml.model
    def centred(group):
        mean, spread = sample("mean", dist.Normal(0, 10)), sample("spread", dist.HalfNormal(1))
        with plate("groups", 3):
            level = sample("level", dist.Normal(mean, spread))
        with probml.rows():
            sample("y", dist.Normal(level[group], 1.0))

    with pytest.raises(probml.Refusal, match=r"prior of the effects depends on 'mean'.*mean \+ effect\[group\]"):
        centred().fit({"group": np.arange(9) % 3, "y": np.arange(9.0)}, RESTRICTED)
