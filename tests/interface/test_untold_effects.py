"""What data do not tell of effects of groups is said, or refused, by the names of sites."""


import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from coded import about, codes

RNG = np.random.default_rng(0)


@probml.model
def shifts(group, groups: int):
    mean, spread = sample("mean", dist.Normal(0.0, 1e2)), sample("spread", dist.HalfNormal(1e1))
    noise = sample("noise", dist.HalfNormal(1e1))
    with plate("groups", groups):
        shift = sample("shift", dist.Normal(0.0, spread))
    with probml.rows():
        sample("y", dist.Normal(mean + shift[group], noise))


@probml.model
def lines(group, t, groups: int):
    level = sample("level", dist.Normal(0.0, 1e2).expand([2]).to_event(1))
    spread = sample("spread", dist.HalfNormal(1e1).expand([2]).to_event(1))
    noise = sample("noise", dist.HalfNormal(1e1))
    with plate("groups", groups):
        own = sample("own", dist.Normal(0.0, spread).to_event(1))
    with probml.rows():
        line = level + own[group]
        sample("y", dist.Normal(line[..., 0] + line[..., 1] * t, noise))


GROUP = np.arange(40) % 8
Y = RNG.normal(size=8)[GROUP] + 0.5 * RNG.normal(size=40)


def test_groups_of_one_row_each_tell_spread_and_noise_together_alone():
    y = RNG.normal(size=20)
    fit = shifts(groups=20).fit({"group": np.arange(20), "y": y}, probml.MAP())
    assert fit.converged and about(fit, "one-row-per-group") == ["group"]
    some = shifts(groups=20).fit({"group": np.r_[1, np.arange(1, 20)], "y": y}, probml.MAP())
    assert not about(some, "one-row-per-group")


@pytest.mark.parametrize(("t", "words"), [
    (1.0, "the data determine 'own[0]', 'own[1]' only jointly"),
    pytest.param(0.0, "the data contain no information about 'own[1]'", marks=pytest.mark.slow)])
def test_a_singular_design_of_effects_is_said(t, words):
    fit = lines(groups=8).fit({"group": GROUP, "t": np.full(40, t), "y": Y}, probml.MAP())
    assert words in fit.status and "collinear-effects" in codes(fit)
    if not t:
        again = lines(groups=8).fit({"group": GROUP, "t": RNG.normal(size=40), "y": Y},
                                    probml.MAP())
        assert "collinear-effects" not in codes(again)


@pytest.mark.slow
def test_coefficients_that_rows_do_not_tell_apart_have_no_restricted_likelihood():
    with pytest.raises(probml.Refusal, match=r"'level\[0\]', 'level\[1\]' only jointly.*Drop a col"):
        lines(groups=8).fit({"group": GROUP, "t": np.ones(40), "y": Y},
                            probml.MAP(prior=False, restricted=True))


@pytest.mark.slow
def test_members_without_rows_stand_at_their_prior():
    fit = shifts(groups=12).fit({"group": GROUP, "y": Y}, probml.MAP())
    found = fit.posterior("shift")
    np.testing.assert_allclose(found.mean[8:], 0.0, atol=1e-12)
    np.testing.assert_allclose(found.variance[8:], fit.params["spread"] ** 2, rtol=1e-9)


def test_a_transition_that_explodes_at_a_point_is_refused_by_name():
    @probml.model
    def walk():
        turn = sample("turn", dist.Normal(0.0, 1.0))
        with probml.rows():
            z = sample("z", probml.GaussianChain(jnp.zeros(1), jnp.eye(1), turn * jnp.eye(1),
                                                 jnp.eye(1)))
            sample("y", dist.Normal(z[..., 0], 1.0).to_event(1))

    with pytest.raises(probml.ModelError, match="'z' .*transition is unstable: .*1.6.*600 steps"):
        walk().at({"turn": 1.6}).log_prob({"y": np.zeros((1, 600))})


def test_effects_that_are_few_say_that_their_widths_leave_their_spread_out():
    many, few = (shifts(groups=groups).fit({"group": np.arange(40) % groups, "y": Y},
                                           probml.MAP()) for groups in (20, 8))
    assert about(few, "few-groups") == ["shift"] and not about(many, "few-groups")
    assert ("entries (groups) of 'shift' is only 8. Their standard deviation 'spread' is known only to a factor of about "
            "1.3" in few.status)
