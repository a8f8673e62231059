"""What a fit says of effects of groups that were integrated out."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import deterministic, plate, sample
from scipy import stats

import probml
from coded import codes
from probml.errors import ConvergenceWarning


@probml.model
def shifted(group, x, groups: int):
    """Non-centred, with what the effects are computed."""
    mean, spread = sample("mean", dist.Normal(0.0, 10.0)), sample("spread", dist.HalfNormal(5.0))
    slope, noise = sample("slope", dist.Normal(0.0, 10.0)), sample("noise", dist.HalfNormal(5.0))
    with plate("groups", groups):
        z = sample("z", dist.Normal(0.0, 1.0))
    level = deterministic("level", mean + spread * z)
    with probml.rows():
        sample("y", dist.Normal(level[group] + slope * x, noise))


NAMES = np.array(["ann", "bob", "cyd", "dan", "eve", "fay"])


def rows(seed=0, n=60):
    rng = np.random.default_rng(seed)
    group, x = np.arange(n) % 6, rng.normal(size=n)
    y = 3 + 2 * rng.normal(size=6)[group] + x + 0.5 * rng.normal(size=n)
    return {"group": NAMES[group], "x": x, "y": y}


@pytest.fixture(scope="module")
def fit():
    """The mode, with the effects' posterior given it."""
    return shifted(groups=6).fit(rows(), probml.MAP())


def test_a_mode_has_effects_with_standard_errors(fit):
    """They add to the variance given the rest that of the mean, by which z moves: ten rows a group
    shrink the distance of a group's average from it by n s² / (σ² + n s²)."""
    assert fit.engine.startswith("MAP") and fit.converged
    table, found = fit.summary(), fit.posterior("z")
    spread, noise = fit.params["spread"], fit.params["noise"]
    moved = table.loc["mean", "sd"] / spread * 10 * spread**2 / (noise**2 + 10 * spread**2)
    np.testing.assert_allclose(table.loc["z[ann]", ["value", "sd"]].astype(float),
                               [found.mean[0], np.hypot(np.sqrt(found.variance[0]), moved)],
                               rtol=1e-3)
    assert table.loc["spread", "sd"] > 0 and noise > 0
    assert list(fit.labels("group")) == NAMES.tolist()
    np.testing.assert_allclose(fit.params["z"], found.mean)
    with pytest.raises(probml.ModelError, match="'spread'"):
        fit.posterior("spread")


def test_draws_are_of_the_effects_given_the_rest(fit):
    drawn = fit.draws(4000, seed=1)
    assert np.ptp(drawn["spread"]) == 0 and drawn["z"].shape == (4000, 6)
    found = fit.posterior("z")
    np.testing.assert_allclose(drawn["z"].mean(0), found.mean, atol=0.02)
    np.testing.assert_allclose(drawn["z"].std(0), np.sqrt(found.variance), rtol=0.05)
    np.testing.assert_allclose(drawn["level"], drawn["mean"][:, None]
                               + drawn["spread"][:, None] * drawn["z"], rtol=1e-9)


def test_what_is_affine_in_effects_is_at_their_means(fit):
    p = fit.params
    np.testing.assert_allclose(p["level"], p["mean"] + p["spread"] * p["z"], rtol=1e-9)
    told = fit.predict({"group": ["cyd", "fay"], "x": [0.0, 1.0]})
    np.testing.assert_allclose(told, p["level"][[2, 5]] + p["slope"] * np.array([0.0, 1.0]),
                               rtol=1e-9)


def test_a_new_group_stands_at_the_mean_with_the_spread_of_all(fit):
    p, new = fit.params, {"group": ["gus"], "x": [0.0]}
    at = fit.predict(new, unknown="new", interval=0.9)
    assert at.value[0] == pytest.approx(float(p["mean"]), abs=0.1)
    wide = float(np.hypot(p["spread"], p["noise"])) * 2 * 1.645
    assert at.upper[0] - at.lower[0] == pytest.approx(wide, rel=0.15)
    with pytest.raises(probml.DataError, match="gus"):
        fit.predict(new)


def test_a_fit_with_effects_is_kept_in_a_file(fit, tmp_path):
    fit.save(tmp_path / "fit")
    again = probml.load(tmp_path / "fit", shifted(groups=6))
    np.testing.assert_array_equal(again.params["z"], fit.params["z"])
    np.testing.assert_array_equal(again.posterior("z").variance, fit.posterior("z").variance)
    for name, value in fit.draws(5, seed=3).items():
        np.testing.assert_array_equal(again.draws(5, seed=3)[name], value)


def test_a_fit_with_effects_begins_another(fit):
    again = shifted(groups=6).fit(rows(), probml.MAP(), start=fit.params)
    assert again.history[-1] == pytest.approx(fit.history[-1], abs=1e-6)


def test_the_default_has_the_means_and_standard_deviations_of_nuts():
    found = shifted(groups=6).fit(rows())
    assert found.engine.startswith("Laplace") and "weights-pass" in codes(found)
    sampled = shifted(groups=6).fit(rows(), probml.NUTS()).summary()
    table, sd = found.summary().loc[sampled.index], sampled["sd"]
    np.testing.assert_allclose((table["mean"] - sampled["mean"]) / sd, 0, atol=0.15)
    np.testing.assert_allclose(table["sd"] / sd, 1, atol=0.15)


@pytest.mark.parametrize("engine", [probml.Laplace(), pytest.param(
    probml.SVI(steps=400), marks=pytest.mark.slow)], ids=["Laplace", "SVI"])
def test_engines_of_posteriors_draw_effects_given_each_draw(fit, engine):
    found = shifted(groups=6).fit(rows(), engine)
    assert set(found.params) == set(fit.params)
    drawn = found.draws(500)
    assert np.ptp(drawn["spread"]) > 0
    np.testing.assert_allclose(drawn["z"].mean(0), fit.params["z"], atol=0.5)
    assert np.all(drawn["level"].std(0) < 1.0)


def test_batches_of_rows_leave_effects_parameters():
    optax = pytest.importorskip("optax")
    with pytest.warns(ConvergenceWarning):
        found = shifted(groups=6).fit(rows(), probml.MAP(optimizer=optax.adam(0.05), steps=20,
                                                         batch_rows=30))
    with pytest.raises(probml.ModelError, match="'z'"):
        found.posterior("z")


def test_a_spread_that_a_climb_lost_is_found_again():
    """From a start next to 0 nothing pulls a spread back, though the rows ask for it."""
    lost = shifted(groups=6).fit(rows(), probml.MAP(), start={"spread": 1e-6})
    assert lost.params["spread"] > 0.5 and "boundary" not in lost.status


def test_float32_agrees_with_double(fit):
    with jax.enable_x64(False):
        found = shifted(groups=6).fit(rows(), probml.MAP())
        for name in ("mean", "spread", "slope", "noise", "level"):
            np.testing.assert_allclose(found.params[name], fit.params[name], rtol=1e-3)


@probml.model
def paired(one, two, groups: int):
    spread, noise = sample("spread", dist.HalfNormal(5.0)), sample("noise", dist.HalfNormal(5.0))
    with plate("groups", groups):
        skill = sample("skill", dist.Normal(0.0, spread))
    with probml.rows():
        sample("y", dist.Normal(skill[one] - skill[two], noise))


@probml.model
def multiplied(one, two, groups: int):
    spread = sample("spread", dist.HalfNormal(5.0).expand([2]).to_event(1))
    with plate("ones", groups):
        a = sample("a", dist.Normal(0.0, spread[0]))
    with plate("twos", groups):
        b = sample("b", dist.Normal(0.0, spread[1]))
    with probml.rows():
        sample("y", dist.Normal(a[one] * b[two], 1.0))


@probml.model
def sized(one, groups: int):
    spread = sample("spread", dist.HalfNormal(5.0))
    with plate("ones", groups):
        a = sample("a", dist.Normal(0.0, spread))
    with probml.rows():
        sample("y", dist.Normal(a[one], jnp.exp(a[one])))


def test_products_of_effects_fail_the_test_of_the_default_and_are_sampled():
    told = multiplied(groups=5).explain(meetings(multiplied))
    engines = {row["engine"]: row[""] for row in told.engines}
    assert engines["Laplace"].startswith("chosen") and "NUTS is used instead" in engines["Laplace"]
    found = multiplied(groups=5).fit(meetings(multiplied))
    assert found.engine.startswith("NUTS") and "previous-engine" in codes(found)


def test_an_effect_in_a_scale_is_integrated_by_quadrature():
    told = sized(groups=5).explain(meetings(sized))
    engines = {row["engine"]: row[""] for row in told.engines}
    roles = {row["site"]: row["role"] for row in told.sites}
    assert engines["Laplace"].startswith("chosen") and "quadrature" in roles["a"]


def meetings(model):
    table = {"one": np.arange(20) % 5, "two": (np.arange(20) // 5 + 1) % 5,
             "y": np.sin(np.arange(20.0))}
    return {name: table[name] for name in table if name != "two" or model is not sized}


def test_rows_that_read_two_members_read_all_of_them():
    """Paired comparisons, against the normal of all rows."""
    table = meetings(paired)
    fit = paired(groups=5).fit(table, probml.MAP(prior=False))
    design = np.eye(5)[table["one"]] - np.eye(5)[table["two"]]
    p = {name: float(fit.params[name]) for name in ("spread", "noise")}
    covariance = p["spread"] ** 2 * design @ design.T + p["noise"] ** 2 * np.eye(20)
    want = stats.multivariate_normal(np.zeros(20), covariance).logpdf(table["y"])
    assert fit.history[-1] == pytest.approx(want, abs=1e-9)
    np.testing.assert_allclose(fit.params["skill"], p["spread"] ** 2 * design.T @ np.linalg.solve(
        covariance, table["y"]), atol=1e-9)
