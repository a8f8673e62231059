"""Student's t as a scale mixture of normals: EM's updates are weighted least squares, in any
model."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import stats

import probml
from coded import codes


@probml.model
def robust(x, df=4.0):
    weights = sample("weights", dist.ImproperUniform(dist.constraints.real, (), (x.shape[-1],)))
    variance = sample("variance", dist.InverseGamma(1.0, 1.0))
    with probml.rows():
        sample("y", dist.StudentT(df, x @ weights, jnp.sqrt(variance)))


@probml.model
def robust_of_unknown_tails(x):
    weights = sample("weights", dist.Normal(0.0, 10.0).expand([x.shape[-1]]).to_event(1))
    variance = sample("variance", dist.InverseGamma(1.0, 1.0))
    df = sample("df", dist.Gamma(2.0, 0.1))
    with probml.rows():
        sample("y", dist.StudentT(df, x @ weights, jnp.sqrt(variance)))


@probml.model
def robust_mixture(k):
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 10.0))
        variance = sample("variance", dist.InverseGamma(2.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.ones(k) / k))
        sample("x", dist.StudentT(3.0, mean[z], jnp.sqrt(variance[z])))


def lines(n=120, seed=0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    y = x @ [1.0, 2.0, -3.0] + rng.standard_t(3, size=n)
    y[:4] += 40
    return {"x": x, "y": y}


def reweighted(x, y, df, rounds=400):
    """Iteratively reweighted least squares of the textbook, with the mode of InverseGamma(1, 1)."""
    weights, variance = np.linalg.lstsq(x, y, rcond=None)[0], 1.0
    for _ in range(rounds):
        w = (df + 1) / (df + (y - x @ weights) ** 2 / variance)
        weights = np.linalg.solve((x * w[:, None]).T @ x, x.T @ (w * y))
        variance = (1.0 + 0.5 * (w * (y - x @ weights) ** 2).sum()) / (1.0 + 1 + len(y) / 2)
    return weights, variance


def test_em_of_a_robust_regression_is_reweighted_least_squares():
    data = lines()
    fit = robust().fit(data, probml.EM(tolerance=1e-12))
    weights, variance = reweighted(**data, df=4.0)
    np.testing.assert_allclose(fit.params["weights"], weights, atol=1e-5)
    np.testing.assert_allclose(fit.params["variance"], variance, rtol=1e-5)
    assert fit.converged and (np.diff(fit.history) >= -1e-9).all()
    told = robust().explain(data)
    assert all("scale mixture" in record["update (EM, MAP-EM)"] for record in told.updates)
    posterior = robust().fit(data)  # what is chosen by itself: nothing is hidden by name
    assert posterior.engine.startswith("Laplace") and "weights-pass" in codes(posterior)


def test_em_and_map_meet_where_the_tails_are_unknown():
    data = lines()
    em = robust_of_unknown_tails().fit(data, probml.EM(tolerance=1e-12))
    climbed = robust_of_unknown_tails().fit(data, probml.MAP())
    np.testing.assert_allclose(em.history[-1], climbed.history[-1], atol=1e-6)
    np.testing.assert_allclose(em.params["df"], climbed.params["df"], rtol=1e-3)
    assert (np.diff(em.history) >= -1e-9).all()


def test_unseen_cells_drop_out_and_weights_are_repetitions():
    data = lines(40)
    holes = {**data, "y": np.where(np.arange(40) % 5 == 0, np.nan, data["y"])}
    seen = {name: value[np.arange(40) % 5 != 0] for name, value in data.items()}
    engine = probml.EM(tolerance=1e-12)
    kept = robust().fit(seen, engine)
    np.testing.assert_allclose(robust().fit(holes, engine).params["weights"],
                               kept.params["weights"], atol=1e-6)
    weights = np.where(np.arange(40) % 5 == 0, 0.0, 1.0)
    np.testing.assert_allclose(robust().fit(data, engine, weights=weights).params["weights"],
                               kept.params["weights"], atol=1e-6)


def test_a_mixture_of_students_climbs_by_its_closed_forms():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.standard_t(3, size=80) - 6, rng.standard_t(3, size=80) + 6])
    model = robust_mixture(k=2)
    fit = model.fit({"x": x}, probml.EM(restarts=3, tolerance=1e-12))
    assert fit.converged and (np.diff(fit.history) >= -1e-9).all()
    logs = np.log(0.5) + stats.t.logpdf(x[:, None], 3, fit.params["mean"],
                                        np.sqrt(fit.params["variance"]))
    np.testing.assert_allclose(fit.log_prob({"x": x}), np.logaddexp(*logs.T), atol=1e-10)
    climbed = model.fit({"x": x}, probml.MAP(), start=fit.params)
    np.testing.assert_allclose(climbed.history[-1], fit.history[-1], atol=1e-6)


@probml.model
def heavy_prior(d):
    spread = sample("spread", dist.HalfNormal(1.0))
    mean = sample("mean", dist.StudentT(3.0, 0.0, spread).expand([d]).to_event(1))
    with probml.rows():
        sample("x", dist.Normal(mean, 1.0).to_event(1))


def test_a_student_prior_has_no_form_and_exact_refuses_both():
    x = np.random.default_rng(2).normal(size=(30, 2)) + 4
    fit = heavy_prior(d=2).fit({"x": x}, probml.MAP())  # a joint mode, asked for by name
    step = 1e-4
    for name in ("mean", "spread"):
        at = [
            heavy_prior(d=2).log_density(
                {"x": x},
                {**fit.params, name: fit.params[name] + s
                 * (np.arange(fit.params[name].size) == 0).reshape(fit.params[name].shape)},
            )
            for s in (-step, step)
        ]
        assert abs(at[1] - at[0]) / (2 * step) < 1e-2
    for model, data in ((heavy_prior(d=2), {"x": x}), (robust(), lines(20))):
        with pytest.raises(probml.Refusal, match="Exact cannot fit"):
            model.fit(data, probml.Exact())
