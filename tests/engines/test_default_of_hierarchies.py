"""Claims of what nobody who names no engine is told in silence: hierarchies and other densities
without a plain mode have NUTS's means by default, or the status says that they are not known.

A case more: a function in hierarchy_models.py, and `python tests/engines/hierarchy_models.py`, which
samples it by NumPyro and stores its means and standard deviations."""

import json
import re
import sys
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml

sys.path.insert(0, str(Path(__file__).parent))

from hierarchy_models import MODELS, TRUTHS  # noqa: E402

from coded import codes

TRUTH = json.loads(TRUTHS.read_text())
QUICK = ("counts_under_a_walk",)
FAR = 0.6  # posterior standard deviations
UNSURE = "not to be trusted|not the posterior mean|differs strongly from the normal|maxim|heavy tail|no width|much wider"


def away(name, params):
    """The farthest that a parameter is from its mean, in standard deviations."""
    return max(float(np.max(np.abs(np.asarray(params[site], float) - mean)
                            / np.asarray(TRUTH[name]["sd"][site])))
               for site, mean in TRUTH[name]["mean"].items() if site in params)


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TRUTH])
def test_the_default_has_the_posterior_means_or_says_that_it_has_not(name):
    function, data = MODELS[name]
    fit = probml.model(function)().fit(data)
    if away(name, fit.params) > FAR:
        assert re.search(UNSURE, fit.status)


def separated(x, g, y=None):
    a, c = sample("a", dist.Cauchy(0, 10)), sample("c", dist.Cauchy(0, 2.5))
    with plate("n", len(x)):
        sample("y", dist.Bernoulli(logits=a + c * g + 0.3 * x), obs=y)


@pytest.mark.filterwarnings("ignore")
def test_a_posterior_without_a_mean_is_told_no_mean():
    random = np.random.default_rng(8)
    x = random.normal(size=40)
    g = (x > 0.5).astype(int)
    y = np.where(g == 1, 1, random.binomial(1, 0.4, 40))
    fit = probml.model(separated)().fit({"x": x, "g": g, "y": y})
    assert "mode-far-from-mean" not in codes(fit) and "tail-of-draws" in codes(fit)


def hui_walter(n, tables):
    prevalence = sample("prevalence", dist.Beta(1, 1).expand([2]))
    hit, clear = (sample(name, dist.Beta(1, 1).expand([2])) for name in ("hit", "clear"))
    ill = jnp.outer(jnp.array([hit[0], 1 - hit[0]]), jnp.array([hit[1], 1 - hit[1]])).ravel()
    well = jnp.outer(jnp.array([1 - clear[0], clear[0]]), jnp.array([1 - clear[1],
                                                                      clear[1]])).ravel()
    cells = prevalence[:, None] * ill + (1 - prevalence[:, None]) * well
    sample("tables", dist.Multinomial(total_count=n, probs=cells), obs=tables)


def test_ill_and_healthy_exchanged_are_said_to_be_two_maxima_as_high():
    tables = np.array([[14, 4, 9, 528], [887, 31, 37, 367]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = probml.model(hui_walter)().fit({"n": tables.sum(1), "tables": tables})
    assert "modes-combined" in codes(fit)
    # one is the other with the ill and the healthy exchanged
    np.testing.assert_allclose(fit.params["prevalence"], 0.5, atol=0.05)
