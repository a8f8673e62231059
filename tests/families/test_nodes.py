"""Nodes of a form: their mean of every statistic is its expectation under the posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.families.form import Form
from probml.families.forms.beta import BETA, BetaPrior
from probml.families.forms.dirichlet import DIRICHLET, DirichletPrior
from probml.families.forms.inverse_gamma import INVERSE_GAMMA, GammaPrior, InverseGammaPrior
from probml.families.forms.inverse_wishart import (
    INVERSE_WISHART,
    InverseWishartPrior,
    WishartPrior,
)
from probml.families.forms.sticks import STICKS, SticksPrior
from probml.families.log_linear import log_less_digamma
from probml.language.stick_breaking import StickBreaking, dirichlet_process, remainders

PSI = jnp.array([[2.0, 0.3], [0.3, 1.0]])
CASES = {
    "dirichlet": (DIRICHLET, DirichletPrior(), {"N": jnp.array([-0.95, 3.0, 40.0])},
                  {"log": jnp.log}),
    "beta": (BETA, BetaPrior(), {"A": jnp.array([-0.5, 3.0, 900.0]),
                                 "B": jnp.array([0.0, 40.0, 0.0])},
             {"log": jnp.log, "log_rest": jnp.log1p}),
    "variance": (INVERSE_GAMMA, InverseGammaPrior(), {"A": jnp.array([1.2, 5.0, 1e5]),
                                                      "B": jnp.array([2.0, 0.1, 7.0])},
                 {"log": jnp.log, "inverse": lambda c: 1 / c}),
    "precision": (INVERSE_GAMMA, GammaPrior(), {"A": jnp.array([-0.8, 5.0]),
                                                "B": jnp.array([2.0, 0.1])},
                  {"log": jnp.log, "inverse": lambda c: 1 / c}),
    "covariance": (INVERSE_WISHART, InverseWishartPrior(), {"nu": jnp.array(6.1), "Psi": PSI},
                   {"log": lambda c: jnp.linalg.slogdet(c)[1], "inverse": jnp.linalg.inv}),
    "precision matrix": (INVERSE_WISHART, WishartPrior(), {"nu": jnp.array(-1.8), "Psi": PSI},
                         {"log": lambda c: jnp.linalg.slogdet(c)[1], "inverse": jnp.linalg.inv}),
    "sticks": (STICKS, SticksPrior(), {"A": jnp.array([3.0, 0.0, 12.0, 0.5]),
                                       "B": jnp.array([0.2, -1.0, 0.0, 0.0])},
               {"log": jnp.log, "log_left": lambda c: jnp.log(remainders(c))}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_mean_of_a_statistic_over_nodes_is_its_expectation(case):
    form, prior, natural, statistics = CASES[case]

    @jax.jit
    def asked(natural):
        nodes = form.nodes(natural, prior)
        return form.expectation(natural, prior), {
            name: statistic(-nodes if name == "log_rest" else nodes).mean(0)
            for name, statistic in statistics.items()}

    expected, means = asked(natural)
    assert set(expected) == set(statistics)
    for name, mean in means.items():
        np.testing.assert_allclose(mean, expected[name], rtol=1e-9, atol=1e-12)


def test_a_form_of_which_nothing_is_said_has_no_nodes():
    with pytest.raises(NotImplementedError, match="mine does not define nodes"):
        type("Mine", (Form,), {"name": "mine"})().nodes({}, BetaPrior())


EULER = 0.5772156649015329


@pytest.mark.parametrize(("a", "exact"), [
    (0.5, np.log(2) + EULER), (1.0, EULER), (2.0, np.log(2) + EULER - 1),
    (900.0, 1 / 1800 + 1 / (12 * 900**2) - 1 / (120 * 900**4)), (1e7, 5e-8 + 1 / 12e14),
])
def test_the_logarithm_less_digamma_keeps_its_digits(a, exact):
    assert abs(float(log_less_digamma(jnp.array(a))) / exact - 1) < 1e-11


def test_stick_breaking_is_a_dirichlet_where_its_concentrations_say_so():
    import numpyro.distributions as dist

    @jax.jit
    def asked(a, rest, w):
        ours, whole = StickBreaking(a[:-1], rest), dist.Dirichlet(a)
        return ((ours.log_prob(w), whole.log_prob(w)), (ours.mean, whole.mean),
                (ours.variance, whole.variance),
                (SticksPrior().log_density(ours, w, False), ours.log_prob(w)))

    a = np.array([0.5, 2.0, 1.5, 3.0])
    for got, want in asked(a, np.cumsum(a[:0:-1])[::-1], np.array([0.1, 0.4, 0.3, 0.2])):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_draws_of_stick_breaking_have_its_moments():
    @jax.jit
    def asked(key):
        prior = dirichlet_process(1.5, 5)
        return prior.sample(key, (20_000,)), prior.mean, prior.variance

    draws, mean, variance = map(np.asarray, asked(jax.random.key(0)))
    np.testing.assert_allclose(draws.sum(-1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.01)
    np.testing.assert_allclose(draws.var(0), variance, atol=0.005)


def test_sticks_are_read_from_slopes_and_have_their_mode_where_none_is_left():
    a, b = jnp.array([3.0, 0.5, 2.0, 1.0, 0.2]), jnp.array([1.0, 4.0, 0.3, 0.0, 0.0])

    def q(c):
        return STICKS.value({"A": a, "B": b}, c, 1)

    @jax.jit
    def asked(c):
        points = STICKS.points(c, 1)
        found = STICKS.read(points, jax.vmap(jax.grad(q))(points), 1)
        peak = STICKS.mode(found, None, 1)
        return found, jax.grad(lambda u: q(jax.nn.softmax(u)))(jnp.log(peak))

    found, slope = asked(jnp.full(5, 0.2))
    np.testing.assert_allclose(found["A"], a, rtol=1e-10)
    np.testing.assert_allclose(found["B"], b, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(slope, 0.0, atol=1e-10)
