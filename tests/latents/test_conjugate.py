"""Numbers and vectors of a row that are integrated out in closed form: variances and precisions of
normal sites to Student's t, probabilities to the Dirichlet-multinomial."""

import json

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import sample
from scipy import stats
from scipy.special import gammaln

import probml

nan = np.nan


@probml.model
def heavy(kind: str):
    mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        if kind == "precision":
            v = sample("v", dist.Gamma(2.5, 1.7))
            scale = 2.0 / jnp.sqrt(v)
        else:
            v = sample("v", dist.InverseGamma(2.5, 1.7))
            scale = 2.0 * jnp.sqrt(v)
        sample("x", dist.Normal(mean, scale[..., None] * jnp.ones(2)).to_event(1))


@pytest.mark.parametrize("kind", ["precision", "variance"])
def test_a_spread_of_a_row_is_integrated_to_students_t(kind):
    x = np.array([[0.3, -1.0], [4.0, nan], [nan, nan]])
    fit = heavy(kind=kind).at({"mean": 0.5})
    # log p of n cells of one variance 4 v, v ~ InverseGamma(a, b): with S = Σ (x − mean)² / 4
    count, square = np.sum(~np.isnan(x), 1), np.nansum((x - 0.5) ** 2, 1) / 4
    a, b = 2.5 + count / 2, 1.7 + square / 2
    want = (2.5 * np.log(1.7) - a * np.log(b) + gammaln(a) - gammaln(2.5)
            - count / 2 * np.log(2 * np.pi * 4))
    np.testing.assert_allclose(fit.log_prob({"x": x}), want, atol=1e-10)
    mean = a / b if kind == "precision" else b / (a - 1)
    np.testing.assert_allclose(fit.impute({"x": x})["v"], mean, rtol=1e-6)  # over nodes
    words = {site["site"]: site["role"] for site in heavy(kind=kind).explain({"x": x[:2]}).sites}
    assert words["v"] == "latent, integrated out, conjugate"


def test_a_spread_of_another_power_is_none():
    @probml.model
    def other():
        with probml.rows():
            v = sample("v", dist.Gamma(2.0, 2.0))
            sample("x", dist.Normal(0.0, v))

    words = {site["site"]: site["role"] for site in other().explain({"x": np.ones(3)}).sites}
    assert "quadrature" in words["v"]


@probml.model
def texts(letters: int, turned: bool = False):
    """Words of a row by two ways: single ones, and counts of others."""
    alpha = sample("alpha", dist.Gamma(2.0, 1.0).expand([letters]).to_event(1))
    with probml.rows():
        p = sample("p", dist.Dirichlet(alpha))
        q = p[..., ::-1] if turned else p
        each = jnp.broadcast_to(q[..., None, :], (*q.shape[:-1], 3, letters))
        sample("word", dist.Categorical(each).to_event(1))
        sample("count", dist.Multinomial(probs=q, total_count=4))


ALPHA = np.array([0.7, 2.0, 1.2])
WORDS = np.array([[0.0, 2.0, 2.0], [1.0, nan, 1.0], [nan, nan, nan]])
COUNTS = np.array([[1.0, 0.0, 3.0], [nan, nan, nan], [2.0, 2.0, 0.0]])


def test_probabilities_are_integrated_to_the_dirichlet_multinomial():
    fit, data = texts(letters=3).at({"alpha": ALPHA}), {"word": WORDS, "count": COUNTS}
    seen = np.array([[np.sum(row == k) for k in range(3)] for row in WORDS])
    counts, whole = np.nan_to_num(COUNTS), seen + np.nan_to_num(COUNTS)

    def log_beta(a):
        return gammaln(a).sum(-1) - gammaln(a.sum(-1))

    orders = gammaln(counts.sum(1) + 1) - gammaln(counts + 1).sum(1)
    want = log_beta(ALPHA + whole) - log_beta(ALPHA) + orders
    np.testing.assert_allclose(fit.log_prob(data), want, atol=1e-10)
    own = stats.dirichlet_multinomial(ALPHA, 4).logpmf([2, 2, 0])
    assert fit.log_prob(data)[2] == pytest.approx(own, abs=1e-10)
    mean = (ALPHA + whole) / (ALPHA + whole).sum(1, keepdims=True)
    np.testing.assert_allclose(fit.impute(data)["p"], mean, atol=1e-10)
    found = fit.conditional(data, "p")
    for i in range(3):
        np.testing.assert_allclose(found.covariance_matrix[i],
                                   stats.dirichlet(ALPHA + whole[i]).cov(), atol=1e-8)
    words = {site["site"]: site["role"] for site in texts(letters=3).explain(data).sites}
    assert words["p"] == "latent, integrated out, conjugate"


def test_probabilities_in_another_order_are_not_taken_for_themselves():
    data = {"word": WORDS, "count": COUNTS}
    words = {site["site"]: site["role"]
             for site in texts(letters=3, turned=True).explain(data).sites}
    assert "conjugate" not in words["p"]


@pytest.mark.slow
def test_spiders_have_the_maximum_of_vgam(shared_data):
    found = json.loads((shared_data / "fits" / "dirmult_hspider.json").read_text())
    y = pd.read_csv(shared_data / found["dataset"]).to_numpy()

    @probml.model
    def spiders():
        alpha = sample("alpha", dist.LogNormal(0.0, 3.0).expand([6]).to_event(1))
        with probml.rows():
            p = sample("p", dist.Dirichlet(alpha))
            sample("y", dist.Multinomial(probs=p))

    want = found["own_optimum"]
    for engine in (probml.MAP(prior=False), probml.EM(prior=False, tolerance=1e-10)):
        fit = spiders().fit({"y": y}, engine)
        assert np.all(np.diff(fit.history) > -1e-7)
        assert fit.history[-1] == pytest.approx(want["loglik"], abs=1e-4)
        np.testing.assert_allclose(fit.params["alpha"], list(want["alpha"].values()), rtol=2e-2)
    np.testing.assert_allclose(fit.impute({"y": y[:1]})["p"][0, :4], found["posterior_p_row1"][:4],
                               rtol=1e-2)
