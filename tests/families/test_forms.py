"""The algebra of forms: expectations of their statistics under the posterior, held to SciPy's
integrals and draws; and what every entry of the registry says of itself."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import stats
from scipy.optimize import brentq

import probml
from probml.dataset import read
from probml.families import Likelihood, domains, registry
from probml.families.forms import beta, dirichlet, gaussian, inverse_gamma, inverse_wishart
from probml.plan.blocks import blocks

# prior role, what was read, SciPy's posterior of the parameter, the parameter → c, the statistics
SCALAR = {
    "beta": (beta.BetaPrior(), {"A": 2.5, "B": 0.7}, stats.beta(3.5, 1.7), lambda c: c,
             {"log": np.log, "log_rest": lambda c: np.log1p(-c)}),
    "inverse gamma": (inverse_gamma.InverseGammaPrior(), {"A": 4.0, "B": 2.5},
                      stats.invgamma(3.0, scale=2.5), lambda c: c,
                      {"log": np.log, "inverse": lambda c: 1 / c}),
    "gamma": (inverse_gamma.GammaPrior("concentration"), {"A": 1.5, "B": 0.8},
              stats.gamma(2.5, scale=1 / 0.8), lambda t: 1 / t,
              {"log": np.log, "inverse": lambda c: 1 / c}),
    "normal": (gaussian.GaussianPrior(0), {"loc": 0.4, "precision": 2.0},
               stats.norm(0.4, 0.5**0.5), lambda c: c,
               {"value": lambda c: c, "square": lambda c: c**2}),
}


@pytest.mark.parametrize("name", SCALAR)
def test_expected_statistics_are_integrals_over_the_posterior(name):
    prior, natural, posterior, to_c, statistics = SCALAR[name]
    natural = {key: np.asarray(value) for key, value in natural.items()}
    found = prior.form.expectation(natural, prior)
    assert found.keys() == statistics.keys()
    for key, statistic in statistics.items():
        brute = posterior.expect(lambda value, f=statistic: f(to_c(value)))
        np.testing.assert_allclose(found[key], brute, rtol=1e-6)


def test_the_expected_log_of_a_probability_is_that_of_its_beta_marginal():
    counts = np.array([1.5, 0.2, 4.0])
    found = dirichlet.DIRICHLET.expectation({"N": counts}, dirichlet.DirichletPrior())["log"]
    a = counts + 1
    brute = [stats.beta(one, a.sum() - one).expect(np.log) for one in a]
    np.testing.assert_allclose(found, brute, rtol=1e-6)


def test_the_expected_square_of_a_normal_vector_is_its_covariance_and_mean():
    precision = np.array([[2.0, 0.5], [0.5, 1.0]])
    found = gaussian.GAUSSIAN.expectation({"loc": np.array([1.0, -2.0]), "precision": precision},
                                          gaussian.GaussianPrior(1))
    np.testing.assert_allclose(found["square"], np.linalg.inv(precision)
                               + np.outer([1.0, -2.0], [1.0, -2.0]), rtol=1e-12)


def test_what_is_read_of_a_precision_matrix_loses_no_more_digits_than_its_inverse_has():
    """Of Q(P) = ½ν log|P| − ½ tr(ΨP), whose gradient is ½νP⁻¹ − ½Ψ."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    c, psi = (turn * [1e-7, 1.0, 3.0]) @ turn.T, np.diag([2.0, 5.0, 7.0])
    points = np.stack([c, 2 * c])
    inverses = np.linalg.inv(points)
    found = inverse_wishart.INVERSE_WISHART.read_inverse(points, inverses,
                                                         0.5 * (4.0 * points - psi), 2)
    np.testing.assert_allclose(found["nu"], 4.0, rtol=1e-8)
    np.testing.assert_allclose(found["Psi"], psi, atol=1e-7)


@pytest.mark.parametrize("precision", [False, True])
def test_the_expected_log_determinant_and_inverse_of_a_covariance_are_means_of_draws(precision):
    psi = np.array([[2.0, 0.6], [0.6, 1.5]])
    prior = (inverse_wishart.WishartPrior if precision else inverse_wishart.InverseWishartPrior)()
    natural = {"nu": np.asarray(9.0), "Psi": psi}
    found = prior.form.expectation(natural, prior)
    draws = stats.invwishart(float(prior.shape(natural)), psi).rvs(40_000, random_state=0)
    np.testing.assert_allclose(found["log"], np.linalg.slogdet(draws)[1].mean(), atol=0.01)
    np.testing.assert_allclose(found["inverse"], np.linalg.inv(draws).mean(0), rtol=0.02)


@pytest.mark.parametrize("entry", registry.entries(), ids=lambda entry: entry.types[0].__name__)
def test_an_entry_says_what_the_rest_of_the_house_asks_of_it(entry):
    family, prior = entry.likelihood, entry.prior
    if family is not None:
        assert isinstance(family, Likelihood) and family.name
        assert {*family.canonical, *family.scatter, *(family.mean_of or ())} <= {
            *family.argument_event}
        for form, steps in family.canonical.values():
            assert form.normalise(steps) == steps and form.seen_from(steps).fixed
    if prior is not None:
        assert prior.form.normalise(prior.steps) == prior.steps
        assert tuple(sorted(prior.form.keys)) == prior.form.keys  # as in saved files
        assert prior.form.domain.rank == prior.form.event or prior.form.joint


def test_forms_keep_to_the_coordinates_they_are_closed_under():
    times, power = ("times", 2.0), ("power", 2.0)
    variance, table = inverse_gamma.INVERSE_GAMMA, dirichlet.DIRICHLET
    assert variance.normalise((times, power, ("power", 0.5))) == ()
    assert variance.seen_from((power,)) == domains.POSITIVE
    assert variance.normalise((("log", 1.0),)) is None and table.normalise((times,)) is None
    assert beta.BETA.normalise((("complement", 1.0),)) == ()
    assert beta.BETA.seen_from((("logistic", 1.0),)) == domains.REAL


@probml.model
def experts(x):
    with plate("expert", 2):
        level = sample("level", dist.Normal(0.0, 5.0))
    gate = sample("gate", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
    with probml.rows():
        z = sample("z", dist.Categorical(logits=x @ gate))
        sample("y", dist.Normal(level[z], 1.0))


def test_smooth_gates_under_an_unbounded_prior_are_climbed_by_newton_on_the_rows():
    data = read.read(experts(), {"x": np.eye(4, 2), "y": np.arange(4.0)})
    found = {block.names: block for stage in blocks(data.plan(), True) for block in stage}
    assert found["gate",].newton and found["gate",].form is None
    assert found["level",].form is gaussian.GAUSSIAN and found["level",].conjugate


@pytest.mark.parametrize("unit", [1.0, 8e6, 1e-7])
@pytest.mark.parametrize("power", [1.0, -2.0])
def test_a_spread_whose_prior_is_not_conjugate_is_found_in_any_unit(power, unit):
    """In float32, whose range the curvatures of B/c, with c³, and of c = 1/τ leave at a scale of
    3·10⁶: σ^power ~ LogNormal(power log unit, 1), the power of a scale or of a precision."""
    y = np.random.default_rng(0).normal(size=20)

    @probml.model
    def noise():
        spread = sample("spread", dist.LogNormal(power * np.log(unit), 1.0))
        with probml.rows():
            sample("y", dist.Normal(0.0, spread ** (1 / power)))

    with jax.enable_x64(False):
        found = noise().fit({"y": y * unit}, probml.EM()).params["spread"] / unit**power

    def slope(u):  # of the log density in u = log of the spread, a unit of it being 1
        return -u - 1 - 20 / power + (y**2).sum() / power * np.exp(-2 / power * u)
    assert found == pytest.approx(np.exp(brentq(slope, -5.0, 5.0)), rel=1e-5)
