"""Several numbers of states by variational Bayes in one program are those that are fitted one by
one."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy.special import digamma

import probml
from probml.errors import Refusal
from probml.families.forms.dirichlet import DIRICHLET, DirichletPrior
from probml.interface.sizes import grid

TIGHT = probml.VB(restarts=4, tolerance=1e-9)
RANDOM = np.random.default_rng(0)
COUNTS = np.concatenate([RANDOM.poisson(2.0, 40), RANDOM.poisson(11.0, 40), RANDOM.poisson(30, 40)])


@probml.model
def counts(k: int, sparse: bool = False):
    """The concentration of the smaller models is another, where the prior is sparse."""
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 1 / k if sparse else 1.5)))
    with plate("component", k):
        rate = sample("rate", dist.Gamma(2.0, 0.5))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Poisson(rate[z]))


@probml.model
def symbols(k: int):
    initial = sample("initial", dist.Dirichlet(jnp.full(k, 1.5)))
    with plate("state", k):
        transition = sample("transition", dist.Dirichlet(jnp.full(k, 0.8)))
        table = sample("table", dist.Dirichlet(jnp.full(3, 0.6)))
    with probml.rows():
        z = sample("z", probml.MarkovChain(initial, transition))
        sample("y", dist.Categorical(table[z]).to_event(1))


def rolls():
    random = np.random.default_rng(5)
    estimators = np.array([[0.8, 0.15, 0.05], [0.1, 0.1, 0.8]])
    z = np.repeat(np.tile([0, 1], 6), 10)
    return np.array([[random.choice(3, p=estimators[j]) for j in z] for _ in range(3)])


def sides(models, data, site):
    together = grid(models, data, site, TIGHT)
    return [(together[k], models[k].fit(data, TIGHT)) for k in models]


@pytest.mark.parametrize("sparse", [pytest.param(False, marks=pytest.mark.slow), True])
def test_sizes_of_a_mixture_in_one_program_have_the_bounds_of_each_alone(sparse):
    models = {k: counts(k, sparse=sparse) for k in (1, 3)}
    for ours, alone in sides(models, {"x": COUNTS}, "z"):
        np.testing.assert_allclose(ours.bound, alone.bound, rtol=1e-8)
        order, theirs = (np.argsort(np.asarray(fit.params["rate"])) for fit in (ours, alone))
        for name, key in (("weights", "concentration"), ("rate", "concentration"), ("rate", "rate")):
            np.testing.assert_allclose(np.asarray(getattr(ours.posterior(name), key))[order],
                                       np.asarray(getattr(alone.posterior(name), key))[theirs],
                                       rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(ours.log_prob({"x": COUNTS}), alone.log_prob({"x": COUNTS}),
                                   rtol=1e-4)


@pytest.mark.slow
def test_sizes_of_a_chain_in_one_program_have_the_bounds_of_each_alone():
    """Where an impossible state would take its share of E log π of every transition."""
    for ours, alone in sides({k: symbols(k) for k in (2, 3)}, {"y": rolls()}, "z"):
        np.testing.assert_allclose(ours.bound, alone.bound, rtol=1e-6)
        assert ours.posterior("transition").concentration.shape == alone.params["transition"].shape
        np.testing.assert_allclose(np.sort(ours.posterior("initial").concentration),
                                   np.sort(alone.posterior("initial").concentration), atol=0.02)


def test_a_state_that_is_impossible_is_as_one_that_is_not_there():
    a = np.array([0.7, 2.0, 3.5])
    logs = DIRICHLET.expectation({"N": jnp.asarray([*a - 1, -1.0])}, None)["log"]
    np.testing.assert_allclose(logs[:3], digamma(a) - digamma(a.sum()), rtol=1e-12)
    assert logs[3] == -np.inf
    wide = DirichletPrior().widened(dist.Dirichlet(a), (2, 3), (4, 5))
    np.testing.assert_array_equal(wide, np.tile([*a, 0.0, 0.0], (4, 1)))


def test_sticks_have_no_states_to_leave_out():
    @probml.model
    def sticks(k: int):
        weights = sample("weights", probml.dirichlet_process(1.0, k))
        with plate("component", k):
            rate = sample("rate", dist.Gamma(2.0, 0.5))
        with probml.rows():
            z = sample("z", dist.Categorical(weights))
            sample("x", dist.Poisson(rate[z]))

    with pytest.raises(Refusal, match="parameter 'weights' .* are not independent"):
        grid({k: sticks(k) for k in (2, 3)}, {"x": COUNTS}, "z", TIGHT)
