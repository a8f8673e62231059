"""Where a user's project takes warnings for errors, what warns of nothing does not break."""

import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np, jax.numpy as jnp, numpyro.distributions as dist
from numpyro import plate, sample
import probml
from probml import models

@probml.model
def clusters(k: int = 2):
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 2.0)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 5.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], 1.0))

@probml.model
def rate():
    p = sample("p", dist.Beta(2.0, 3.0))
    with probml.rows():
        sample("y", dist.Bernoulli(p))

random = np.random.default_rng(0)
x = np.where(random.random(60) < 0.1, np.nan, random.normal(size=60) + np.repeat([0.0, 6.0], 30))
fit = clusters().fit({"x": x})
fit.predict_proba({"x": x}), fit.decode({"x": x}), fit.impute({"x": x}), fit.log_prob({"x": x})
fit.simulate(5), fit.summary(), repr(fit), fit._repr_html_(), repr(clusters().explain({"x": x}))
tosses = {"y": np.array([1, 0, 1, 1, 0])}
for engine in (probml.Exact(), probml.Laplace(), probml.MAP(), probml.SVI(steps=1500)):
    rate().fit(tosses, engine).simulate(3)
table, classes = np.column_stack([np.nan_to_num(x), random.normal(size=60)]), np.repeat([0, 1], 30)
models.GaussianMixture(2).fit(table).predict(table)
models.NaiveBayes().fit(table, classes).predict(table)
models.LogisticRegression().fit(table, classes).predict(table)
models.BayesianLinearRegression().fit(table, classes + 0.5).predict(table)
"""


@pytest.mark.slow
def test_warnings_as_errors_break_nothing():
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True,
                          timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
