"""A kind of latent that the package does not have works from its one file, mean_latent.py."""

import sys
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
from numpyro import sample
from scipy import stats
from scipy.special import gammaln

import probml

sys.path.insert(0, str(Path(__file__).parent))
import mean_latent  # noqa: F401 — registers the kind

nan = np.nan
A, B = 2.5, 1.7


@probml.model
def waits():
    rate = sample("rate", dist.LogNormal(0.0, 2.0))
    with probml.rows():
        v = sample("v", dist.InverseGamma(A, B))
        sample("x", dist.Exponential(rate / v))
        sample("y", dist.Exponential(2.0 * rate / v))


def rows(n=40):
    rng = np.random.default_rng(3)
    v = stats.invgamma(A, scale=B).rvs(n, random_state=rng)
    return {"x": rng.exponential(v / 0.8), "y": rng.exponential(v / 1.6)}


def closed(data, rate):
    """log p(x, y), and the two parameters of v given them; NaN is unseen."""
    x, c = np.stack([data["x"], data["y"]]), np.array([[rate], [2.0 * rate]])
    seen = ~np.isnan(x)
    a, b = A + seen.sum(0), B + np.nansum(c * x, 0)
    log = A * np.log(B) - a * np.log(b) + gammaln(a) - gammaln(A) + (seen * np.log(c)).sum(0)
    return log, a, b


def test_a_mean_of_a_row_is_integrated_out():
    data = rows(8)
    data["y"][2] = data["x"][5] = data["y"][5] = nan
    fit = waits().at({"rate": 0.8})
    want, a, b = closed(data, 0.8)
    np.testing.assert_allclose(fit.log_prob(data), want, atol=1e-10)
    np.testing.assert_allclose(fit.impute(data)["v"], b / (a - 1), rtol=1e-6)  # over nodes
    some = {**data, "v": np.where(np.arange(8) == 0, 2.0, nan)}
    known = (stats.invgamma(A, scale=B).logpdf(2.0)
             + stats.expon(scale=2.0 / 0.8).logpdf(data["x"][0])
             + stats.expon(scale=2.0 / 1.6).logpdf(data["y"][0]))
    np.testing.assert_allclose(fit.log_prob(some)[:2], [known, want[1]], atol=1e-10)


def test_em_climbs_the_density_without_the_means_and_explain_says_so():
    data = rows()
    fit = waits().fit(data, probml.EM(prior=False))
    assert np.all(np.diff(fit.history) > -1e-8) and fit.converged
    best = float(fit.params["rate"])
    heights = [closed(data, best * times)[0].sum() for times in (0.99, 1.0, 1.01)]
    assert heights[1] >= max(heights[0], heights[2])
    np.testing.assert_allclose(fit.history[-1], heights[1], rtol=1e-9)
    assert "a mean in closed form" in str(waits().explain(data))


def test_what_it_does_not_claim_goes_to_the_next_kind():
    @probml.model
    def other():
        with probml.rows():
            v = sample("v", dist.InverseGamma(A, B))
            sample("x", dist.Normal(0.0, v))

    text = str(other().explain({"x": np.array([0.3, 1.0])}))
    assert "quadrature" in text and "closed form" not in text.partition("'v'")[2][:80]


def test_draws_of_the_mean_follow_its_posterior():
    data = {"x": np.full(4000, 2.0), "y": np.full(4000, 1.0)}
    drawn = waits().at({"rate": 0.8}).simulate(given=data)["v"]
    _, a, b = closed(data, 0.8)
    assert stats.kstest(drawn, stats.invgamma(a[0], scale=b[0]).cdf).pvalue > 1e-3
