"""A kind of latent that the package does not have works from its one file, variance_latent.py."""

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import sample
from scipy import stats
from scipy.special import gammaln

import probml

sys.path.insert(0, str(Path(__file__).parent))
import variance_latent  # noqa: F401 — registers the kind

nan = np.nan
A, B = 2.5, 1.7


@probml.model
def tails():
    mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        v = sample("v", dist.InverseGamma(A, B))
        sample("x", dist.Normal(mean, jnp.sqrt(v)))
        sample("y", dist.Normal(2.0 * mean, jnp.sqrt(v)))


def rows(n=40):
    rng = np.random.default_rng(3)
    v = stats.invgamma(A, scale=B).rvs(n, random_state=rng)
    return {"x": 1.0 + np.sqrt(v) * rng.normal(size=n), "y": 2.0 + np.sqrt(v) * rng.normal(size=n)}


def log_t(data, mean):
    """log p(x, y): Student's t of two columns with one variance; NaN is unseen."""
    apart = np.stack([data["x"] - mean, data["y"] - 2 * mean])
    seen = ~np.isnan(apart)
    n, square = seen.sum(0), np.where(seen, apart, 0.0) ** 2
    a, b = A + n / 2, B + square.sum(0) / 2
    log = A * np.log(B) - a * np.log(b) + gammaln(a) - gammaln(A) - n / 2 * np.log(2 * np.pi)
    return log, a, b


def test_a_variance_of_a_row_is_integrated_out_to_students_t():
    data = rows(8)
    data["y"][2] = data["x"][5] = data["y"][5] = nan
    fit = tails().at({"mean": 0.8})
    want, a, b = log_t(data, 0.8)
    np.testing.assert_allclose(fit.log_prob(data), want, atol=1e-10)
    np.testing.assert_allclose(fit.impute(data)["v"], b / (a - 1), rtol=1e-6)  # over nodes
    some = {**data, "v": np.where(np.arange(8) == 0, 2.0, nan)}
    known = (stats.invgamma(A, scale=B).logpdf(2.0)
             + stats.norm(0.8, np.sqrt(2)).logpdf(data["x"][0])
             + stats.norm(1.6, np.sqrt(2)).logpdf(data["y"][0]))
    np.testing.assert_allclose(fit.log_prob(some)[:2], [known, want[1]], atol=1e-10)


def test_em_climbs_the_density_without_the_variances_and_explain_says_so():
    data = rows()
    fit = tails().fit(data, probml.EM(prior=False))
    assert np.all(np.diff(fit.history) > -1e-8) and fit.converged
    best = float(fit.params["mean"])
    heights = [log_t(data, best + step)[0].sum() for step in (-1e-3, 0.0, 1e-3)]
    assert heights[1] >= max(heights[0], heights[2])
    np.testing.assert_allclose(fit.history[-1], heights[1], rtol=1e-9)
    assert "a variance in closed form" in str(tails().explain(data))


def test_what_it_does_not_claim_goes_to_the_next_kind():
    @probml.model
    def other():
        with probml.rows():
            v = sample("v", dist.InverseGamma(A, B))
            sample("x", dist.Normal(0.0, v))

    text = str(other().explain({"x": np.array([0.3, 1.0])}))
    assert "quadrature" in text and "closed form" not in text.partition("'v'")[2][:80]


def test_draws_of_the_variance_follow_its_posterior():
    data = {"x": np.full(4000, 2.0), "y": np.full(4000, 1.0)}
    drawn = tails().at({"mean": 0.8}).simulate(given=data)["v"]
    _, a, b = log_t(data, 0.8)
    assert stats.kstest(drawn, stats.invgamma(a[0], scale=b[0]).cdf).pvalue > 1e-3
