"""Discrete sites outside rows that stand in the prior of a parameter: summed exactly, in every
engine."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from numpyro import plate, sample

import probml
from probml.dataset.read import read
from probml.device.load import load
from probml.engines.start.prior import drawn_prior, prior_point
from probml.evidence.density import coordinate_slices

SPIKE, SLAB = 0.4, 3.0
ROWS = np.random.default_rng(0).normal(size=(40, 2))
DATA = {"x": ROWS, "y": ROWS @ [2.0, 0.05] + np.random.default_rng(1).normal(size=40)}
POINT = {"p": np.array(0.3), "b": np.array([1.5, -0.1])}


@probml.model
def spike_and_slab(x, slab=dist.Normal, width=2):
    p = sample("p", dist.Beta(2.0, 3.0))
    with plate("k", width):
        g = sample("g", dist.Bernoulli(p))
        b = sample("b", slab(0.0, jnp.where(g == 1, SLAB, SPIKE)))
    with probml.rows():
        sample("y", dist.Normal(x @ b, 1.0))


@probml.model
def one_effect():
    g = sample("g", dist.Bernoulli(0.4))
    b = sample("b", dist.Normal(0.0, jnp.where(g == 1, SLAB, SPIKE)))
    with probml.rows():
        sample("y", dist.Normal(b, 1.0))


@functools.partial(jax.jit, static_argnames="slab")
def joint(p, b, slab=dist.Normal):
    """log p(y, p, b), every state of g by itself."""
    terms = []
    for states in itertools.product((0, 1), repeat=len(b)):
        g = jnp.array(states)
        terms.append(dist.Bernoulli(p).log_prob(g).sum()
                     + slab(0.0, jnp.where(g == 1, SLAB, SPIKE)).log_prob(b).sum())
    return logsumexp(
        jnp.array(terms)
    ) + dist.Beta(2.0, 3.0).log_prob(p) + dist.Normal(DATA["x"] @ b, 1.0).log_prob(DATA["y"]).sum()


def student(loc, scale):
    return dist.StudentT(4.0, loc, scale)


@pytest.mark.parametrize("slab", [dist.Normal, student])
def test_the_states_of_a_prior_are_summed_out_of_the_density(slab):
    assert np.isclose(spike_and_slab(slab=slab).log_density(DATA, POINT), joint(**POINT, slab=slab),
                      atol=1e-9)


@pytest.mark.parametrize(("engine", "slab"), [(probml.EM(), dist.Normal), (probml.EM(), student),
                                              (probml.MAP(), student)])
def test_the_mode_is_one_of_the_summed_density(engine, slab):
    fit = spike_and_slab(slab=slab).fit(DATA, engine)
    assert fit.converged
    assert np.isclose(fit.history[-1], joint(fit.point["p"], fit.point["b"], slab), atol=1e-8)
    slopes = jax.jit(jax.grad(lambda p, b: joint(p, b, slab), (0, 1)))(fit.point["p"],
                                                                       fit.point["b"])
    # of a density whose second derivatives are about 40
    assert max(float(np.abs(s).max()) for s in slopes) < 2e-2


def test_a_conjugate_prior_keeps_its_closed_form_and_another_loses_it():
    shown = str(spike_and_slab().explain(DATA))
    assert "weighted least squares (Normal–Normal), closed form" in shown
    assert "StudentT, depends on latent discrete sites" in str(
        spike_and_slab(slab=student).explain(DATA)
    )


@pytest.mark.slow
def test_samplers_and_laplace_tell_the_states_as_the_closed_form_does():
    y = np.array([0.9, 0.1, 1.3, 0.4, 0.7])
    wide = np.array([dist.Normal(0.0, np.sqrt(s**2 + 1 / len(y))).log_prob(y.mean())
                     for s in (SPIKE, SLAB)])
    exact = 0.4 * np.exp(wide[1]) / (0.6 * np.exp(wide[0]) + 0.4 * np.exp(wide[1]))
    fit = one_effect().fit({"y": y}, probml.NUTS(draws=1000, warmup=300, chains=2))
    assert abs(fit.posterior("g").probs[1] - exact) < 0.05
    laplace = one_effect().fit({"y": y}, probml.Laplace())
    assert np.isclose(np.sum(laplace.posterior("g").probs), 1.0)
    assert np.isfinite(laplace.draws(5)["b"]).all()


def test_priors_are_drawn_and_centred_given_the_states_of_their_parents():
    held = read(one_effect(), {"y": np.zeros(3)}).trimmed()
    plan = held.plan()
    _, known = load(held, plan, None)
    drawn = np.asarray(drawn_prior(plan, known, 4000, 0))[:, coordinate_slices(plan)["b"]]
    assert np.isclose(drawn.std(), np.sqrt(0.6 * SPIKE**2 + 0.4 * SLAB**2), rtol=0.1)
    assert prior_point(plan, known)["b"] == 0


def test_the_density_of_a_row_is_given_the_parameters_which_tell_of_the_states():
    found = spike_and_slab().at(POINT).log_prob(DATA)
    np.testing.assert_allclose(found, dist.Normal(DATA["x"] @ POINT["b"], 1.0).log_prob(DATA["y"]),
                               atol=1e-9)

    @probml.model
    def shifted():
        g = sample("g", dist.Bernoulli(0.3))
        b = sample("b", dist.Normal(0.0, jnp.where(g == 1, SLAB, SPIKE)))
        with probml.rows():
            sample("y", dist.Normal(b + g, 1.0))

    y, scale = np.array([0.5, 1.0]), np.array([SPIKE, SLAB])
    share = np.array([0.7, 0.3]) * np.exp(dist.Normal(0.0, scale).log_prob(1.0))
    likelihood = np.exp(dist.Normal(1.0 + np.arange(2), 1.0).log_prob(y[:, None]))
    np.testing.assert_allclose(shifted().at({"b": np.array(1.0)}).log_prob({"y": y}),
                               np.log(likelihood @ share / share.sum()), atol=1e-9)


def test_a_seen_site_outside_rows_tells_of_an_unseen_parent():
    @probml.model
    def two_causes():
        g = sample("g", dist.Bernoulli(0.3))
        sample("h", dist.Bernoulli(jnp.where(g == 1, 0.9, 0.2)))
        b = sample("b", dist.Normal(jnp.where(g == 1, 2.0, 0.0), 1.0))
        with probml.rows():
            sample("y", dist.Normal(b, 1.0))

    y, b = np.array([1.0, 0.5]), 0.7
    terms = [
        np.log([0.7, 0.3][g]) + np.log([0.2, 0.9][g]) + dist.Normal(2.0 * g, 1.0).log_prob(b)
        + dist.Normal(b, 1.0).log_prob(y).sum()
        for g in (0, 1)
    ]
    assert np.isclose(two_causes().log_density({"y": y, "h": 1}, {"b": np.array(b)}),
                      logsumexp(jnp.array(terms)), atol=1e-9)


def test_what_cannot_be_summed_is_refused_in_words():
    @probml.model
    def bounded():
        g = sample("g", dist.Bernoulli(0.3))
        b = sample("b", dist.Uniform(0.0, jnp.where(g == 1, 3.0, 1.0)))
        with probml.rows():
            sample("y", dist.Normal(b, 1.0))

    with pytest.raises(probml.Refusal,
                       match="the support .* of parameter 'b' .Uniform. depends on 'g'"):
        bounded().fit({"y": np.zeros(3)})
    with pytest.raises(probml.Refusal, match="without the prior of 'b' the data do not determine "
                                             "the latent discrete site 'g'"):
        one_effect().fit({"y": np.zeros(3)}, probml.MAP(prior=False))
    with pytest.raises(probml.Refusal,
                       match="site 'g' .*discrete and latent.*posterior of the parameters"):
        one_effect().fit({"y": np.zeros(3)}, probml.Exact())
