"""One density of everything as arviz's InferenceData: its own plates name dimensions, and the log
likelihood of each element is scipy's."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import stats

import probml

arviz = pytest.importorskip("arviz")
RNG = np.random.default_rng(2)
Y = RNG.normal(size=(3, 4))
Y[1, 2] = np.nan
X = RNG.normal(size=(5, 2))


def layered(y, x):
    with plate("judge", 4):
        a = sample("a", dist.Normal(0, 1))
    with plate("item", 3, dim=-2):
        b = sample("b", dist.Normal(0, 1))
        with plate("judge", 4):
            sample("y", dist.Normal(a + b, 1.0), obs=y)
    with plate("row", 5):
        c = sample("c", dist.Normal(0, 1))
        sample("x", dist.Normal(c[:, None], 0.5).expand([5, 2]).to_event(1), obs=x)


@pytest.mark.filterwarnings("ignore:Estimated shape")  # of so few draws
def test_elements_of_what_is_observed_have_plates_and_likelihoods():
    fit = probml.model(layered)().fit({"y": Y, "x": X}, probml.Laplace())
    assert fit.model.is_joint
    out = fit.to_arviz()
    assert out.posterior["a"].dims == ("chain", "draw", "judge")
    assert out.observed_data["y"].dims == ("item", "judge")
    assert out.observed_data["x"].dims == ("row", "x_dim_1")
    logs = out.log_likelihood
    assert logs["y"].dims == ("chain", "draw", "item", "judge")
    assert logs["x"].dims == ("chain", "draw", "row")
    a, b, c = (out.posterior[name].values[0] for name in ("a", "b", "c"))
    want = stats.norm(a[:, None] + np.reshape(b, (len(b), 3, 1)), 1.0).logpdf(Y)
    np.testing.assert_allclose(logs["y"].values[0], np.where(np.isnan(Y), 0.0, want), atol=1e-8)
    want = stats.norm(c[:, :, None], 0.5).logpdf(X).sum(-1)
    np.testing.assert_allclose(logs["x"].values[0], want, atol=1e-8)
    assert np.isfinite(arviz.loo(out, var_name="x").elpd_loo)


def words(documents, w):
    theta = sample("theta", dist.Dirichlet(jnp.ones((2, 2))).to_event(1))
    phi = sample("phi", dist.Dirichlet(jnp.ones((2, 3))).to_event(1))
    with plate("document", 8):
        kind = sample("kind", dist.Bernoulli(0.4))
    with plate("word", len(w)):
        z = sample("z", dist.Categorical(theta[kind[documents]]))
        sample("w", dist.Categorical(phi[z]), obs=w)


@pytest.mark.slow
def test_what_looks_at_summed_sites_has_no_likelihood_of_its_own():
    documents = np.array([0, 0, 1, 2, 3, 4, 5, 6, 7])
    data = {"documents": documents, "w": documents % 3}
    fit = probml.model(words)().fit(data, probml.Laplace(), start={
        "theta": np.array([[0.3, 0.7], [0.6, 0.4]]), "phi": np.array([[0.5, 0.3, 0.2]] * 2)})
    with pytest.warns(RuntimeWarning, match="no log-likelihood of its own"):
        out = fit.to_arviz()
    assert "log_likelihood" not in out.groups() and "posterior" in out.groups()
