"""EM without a prior names what no row tells anything of, and nothing else."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from coded import codes
from probml.models import gaussian_mixture

ML = probml.EM(prior=False, restarts=2)
RANDOM = np.random.default_rng(0)
Z = RANDOM.integers(2, size=60)


@probml.model
def kinds(g, groups: int = 3):
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("component", 2):
        mean = sample("mean", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
        precision = sample("precision", dist.Wishart(3.0, jnp.eye(2)))
        move = sample("move", dist.Dirichlet(jnp.ones(3)))
    with plate("group", groups):
        rate = sample("rate", dist.Gamma(2.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.MultivariateNormal(mean[z], precision_matrix=precision[z]))
        sample("word", dist.Categorical(move[z]))
        sample("n", dist.Poisson(rate[g]))


X = np.array([[-3.0, 0.0], [3.0, 1.0]])[Z] + RANDOM.normal(size=(60, 2))
DATA = {"x": X, "word": RANDOM.integers(3, size=60), "n": RANDOM.poisson(4.0, 60),
        "g": np.arange(60) % 3}


def said(data):
    fit = kinds().fit(data, ML)
    assert fit.converged
    return ", ".join(dict(found.numbers)["names"] for found in fit.warnings
                     if found.code.value == "no-information")


@pytest.mark.slow
def test_what_all_rows_tell_is_not_named():
    assert said(DATA) == ""


def test_groups_without_rows_are_named():
    assert said({**DATA, "g": np.arange(60) % 2}) == "'rate[2]'"


@pytest.mark.parametrize("k", [2, 3])
def test_a_component_far_from_the_others_is_informed_by_its_own_rows(k):
    """Moved away with all others it wins no row, so that an M-step leaves it where it is."""
    rows = np.concatenate([RANDOM.normal(40.0 * j, 1.0 + j, (90, 2)) for j in range(k)])
    fit = gaussian_mixture(k=k, d=2, covariance="diagonal").fit({"x": rows}, ML)
    assert "no-information" not in codes(fit)


def test_what_only_unseen_sites_take_is_named():
    some = {**DATA, "g": np.arange(60) % 2}
    unseen = {name: value for name, value in some.items() if name not in ("word", "n")}
    assert said(unseen) == "'move', 'rate'"


@pytest.mark.slow
def test_what_a_prior_holds_is_not_named():
    fit = kinds().fit({**DATA, "g": np.arange(60) % 2}, probml.EM(restarts=2))
    assert "no-information" not in codes(fit)


@pytest.mark.slow
def test_chains_regressions_and_probabilities_at_their_edges_are_not_named():
    @probml.model
    def chain(x):
        initial = jnp.array([0.5, 0.5])
        with plate("state", 2):
            moves = sample("moves", dist.Dirichlet(jnp.ones(2)))
            beta = sample("beta", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
            hit = sample("hit", dist.Beta(1.0, 1.0))
        with probml.rows():
            z = sample("z", probml.MarkovChain(initial, moves))
            sample("y", dist.Normal((x * beta[z]).sum(-1), 1.0).to_event(1))
            sample("b", dist.Bernoulli(hit[z]).to_event(1))

    states = np.cumsum(RANDOM.random((4, 30)) < 0.2, 1) % 2
    x = RANDOM.normal(size=(4, 30, 2))
    y = (x * np.array([[2.0, 0.0], [-2.0, 1.0]])[states]).sum(-1) + RANDOM.normal(size=(4, 30))
    fit = chain().fit({"x": x, "y": y, "b": states}, ML)
    assert np.isin(np.round(np.asarray(fit.params["hit"]), 6), [0, 1]).all()
    assert "no-information" not in codes(fit)
