"""A prior in other units than the data is said once, before the fit, and ordinary models are left
in peace."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.dataset import read
from probml.dataset.checks import prior_data_conflict
from user_models import CASES


@probml.model
def normal():
    mu = sample("mu", dist.Normal(0.0, 1.0))
    sigma = sample("sigma", dist.HalfNormal(1.0))
    with probml.rows():
        sample("y", dist.Normal(mu, sigma))


@probml.model
def clusters(scale: float = 0.1):
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("clusters", 2):
        mean = sample("mean", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
        precision = sample("precision", dist.Gamma(1.5, jnp.full(2, scale**2 / 2)).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], precision[z] ** -0.5).to_event(1))


@probml.model
def line(x):
    slope, noise = sample("slope", dist.Normal(0.0, 1e6)), sample("noise", dist.HalfNormal(1.0))
    with probml.rows():
        sample("y", dist.Normal(slope * x, noise))


@probml.model
def groups(count: int, group):
    centre, spread = sample("centre", dist.Normal(0.0, 1e7)), sample("spread", dist.HalfCauchy(1.0))
    with plate("groups", count):
        effect = sample("effect", dist.Normal(centre, spread))
    with probml.rows():
        sample("y", dist.Normal(effect[group], 1.0))


def said(model, data):
    """What is warned of, before anything is fitted."""
    held = read.read(model, data).trimmed()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prior_data_conflict.warn(held, held.plan())
    return [str(one.message) for one in caught]


Y = np.random.default_rng(0).normal(size=40)


def test_a_location_thousands_of_its_spreads_from_the_data_is_said_with_what_to_write():
    (text,) = said(normal(), {"y": 1e6 + Y})
    assert "prior of 'mu', Normal with centre 0 and scale 1, is 1e+06 of its standard dev" in text
    assert ("'y', of which it is the location, has centre 1e+06 and standard deviation 0.79" in text
            and "dist.Normal(1e+06" in text)


def test_a_scale_thousands_of_its_spreads_below_the_data_is_said_with_what_to_write():
    location, scale = said(normal(), {"y": 1e6 * (Y + 2)})
    assert ("'mu'" in location and "prior of 'sigma', HalfNormal" in scale and "of which it is "
            "the scale" in scale)
    assert "dist.LogNormal(13.6, 1)" in scale


def test_a_precision_that_no_prior_mass_reaches_is_said_of_the_column_that_it_belongs_to():
    x = np.stack([Y, np.random.default_rng(1).normal(size=40) * 1e-4], 1)
    (text,) = said(clusters(), {"x": x})
    assert "'precision', Gamma" in text and "'x'[1]" in text
    assert not said(clusters(1e-4), {"x": x})  # a prior far too weak does no harm


def test_one_scale_of_several_columns_need_reach_one_of_them_alone():
    @probml.model
    def shared():
        noise = sample("noise", dist.HalfNormal(1.0))
        with probml.rows():
            sample("x", dist.Normal(0.0, noise).expand([2]).to_event(1))

    x = np.random.default_rng(0).normal(size=(20, 2))
    assert said(shared(), {"x": x * [1.0, 1e5]}) == []
    found = said(shared(), {"x": x * [1e5, 1e6]})
    assert len(found) == 1 and "'x'[0]" in found[0]


def test_columns_of_a_chain_are_judged_over_all_their_steps():
    @probml.model
    def chain():
        initial, transition = jnp.full(2, 0.5), jnp.full((2, 2), 0.5)
        mean = sample("mean", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with probml.rows():
            z = sample("z", probml.MarkovChain(initial, transition))
            sample("y", dist.Normal(mean[z], 1.0).to_event(1))

    (text,) = said(chain(), {"y": 1e5 + Y[None]})
    assert "'mean'" in text
    assert not said(chain(), {"y": 100 + Y[None]})


def test_it_is_said_once_by_the_fit_and_the_prior_stays_as_written():
    with pytest.warns(UserWarning, match="has centre 1e\\+06") as caught:
        fit = normal().fit({"y": 1e6 + Y}, probml.MAP())
    assert sum("prior of" in str(one.message) for one in caught) == 1
    assert fit.params["mu"] < 1e6 - 1  # it pulls, as its writer said


@pytest.mark.parametrize("unit", [1.0, 300.0, 0.05])
def test_ordinary_units_are_left_in_peace(unit):
    assert not said(normal(), {"y": unit * Y}) and not said(clusters(),
                                                            {"x": unit * np.stack([Y, 5 + Y], 1)})


def test_a_spread_that_a_covariate_or_a_hierarchy_explains_is_no_slip_in_units():
    x = 1e6 * Y
    assert not said(line(), {"x": x, "y": x + Y})
    assert not said(groups(4), {"group": np.arange(40) % 4, "y": 1e7 * (np.arange(40) % 4) + Y})


def test_a_parameter_that_is_given_and_a_heavy_tail_are_left_in_peace():
    @probml.model
    def heavy():
        mu, sigma = sample("mu", dist.Cauchy(0.0, 1.0)), sample("sigma",
                                                                dist.InverseGamma(2.0, 1.0))
        with probml.rows():
            sample("y", dist.Normal(mu, jnp.sqrt(sigma)))

    assert not said(heavy(), {"y": 1e6 * (1 + Y)})
    assert not said(normal(), {"y": 1e6 * (2 + Y), "mu": np.array(2e6), "sigma": np.array(1e6)})


def test_the_zoo_sets_its_priors_by_the_data_and_is_left_in_peace():
    pytest.importorskip("sklearn")
    from probml.models import NaiveBayes

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NaiveBayes(kinds="normal").fit(1e9 + 1e4 * np.stack([Y, Y**2], 1), np.arange(40) % 2)


DENSE = [case for case in CASES if case.truth != "refused"]


@pytest.mark.parametrize("part", range(4))
def test_models_as_users_write_them_are_left_in_peace(part):
    assert [text for case in DENSE[part::4] for text in said(case.model, case.data)] == []


@pytest.mark.parametrize(("kind", "arguments"), [
    (dist.Normal, (1.0, 0.0)), (dist.Normal, (0, np.array([1.0, 0.0]))),
    (dist.Uniform, (1.0, 1.0)), (dist.HalfNormal, (0.0,)),
], ids=["number", "array", "uniform", "positive"])
def test_a_prior_without_width_is_refused_by_name(kind, arguments):
    @probml.model
    def pinned():
        prior = kind(*arguments)
        b = sample("b", prior.to_event(len(prior.batch_shape)))
        with probml.rows():
            sample("y", dist.Normal(jnp.sum(b), 1.0))

    with pytest.raises(probml.ModelError, match=r"the prior of 'b', .*\(.*has scale 0"):
        pinned().fit({"y": np.ones(3)})


def test_nothing_is_said_of_a_prior_that_the_evidence_is_about_to_choose(recwarn):
    @probml.model
    def level(scale=1e-5):
        b = sample("b", dist.Normal(0.0, scale))
        with probml.rows():
            sample("y", dist.Normal(b, 1.0))

    fit = level().fit({"y": np.array([5.9, 6.0, 6.1])}, probml.EmpiricalBayes(("scale",)))
    assert fit.model.bound["scale"] > 1
    assert not [w for w in recwarn if "standard deviations away from the data" in str(w.message)]


def test_the_advice_about_a_constant_column_can_be_followed():
    @probml.model
    def level():
        b = sample("b", dist.Normal(0.0, 1e-5))
        with probml.rows():
            sample("y", dist.Normal(b, 1.0))

    with pytest.warns(UserWarning, match=r"y - 6, or .*dist.Normal\(6, 6\)"):
        level().fit({"y": np.full(3, 6.0)})
