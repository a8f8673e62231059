"""What is said of an end that is one of many, of a normal that is not the posterior, and of a bound
that still rises: held to densities whose answers are known."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import deterministic, plate, sample
from scipy import stats

import probml
from coded import codes
from probml.engines.sampling.reliance import _far_finding, rising_finding
from probml.numerics.curvature import differences

RANDOM = np.random.default_rng(0)
Z = RANDOM.standard_normal((300, 2))
Y = RANDOM.normal(1.0, 2.0, 30)
FLAT = dist.ImproperUniform(dist.constraints.real, (), ())


@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1.0), (1.0, 1.0), (0.0, 2.0), (0.0, 0.5)])
def test_a_normal_elsewhere_or_of_another_width_is_far_and_the_right_one_is_not(mean, scale):
    logs = stats.norm.logpdf(Z, [mean, 0.0], [scale, 1.0]).sum(1)
    found = _far_finding(logs, stats.norm.logpdf(Z).sum(1), Z, "the normal distribution that approximates it")
    assert (found is None) == (mean == 0.0 and scale == 1.0)


def test_draws_at_which_neither_density_is_finite_are_left_out_in_silence():
    own = np.where(np.arange(300) % 9 == 0, -np.inf, stats.norm.logpdf(Z).sum(1))
    assert _far_finding(own, own, Z, "the same") is None


@probml.model
def shifted(k: int = 2):
    """Means of hidden clusters and a shift of all: only their sums are told."""
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 2.0)))
    shift = sample("shift", FLAT)
    with plate("component", k):
        mean = sample("mean", FLAT)
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("y", dist.Normal(mean[z] + shift, 1.0))


@probml.model
def bent():
    """The product of two numbers: a ridge with a bend."""
    a, b = sample("a", FLAT), sample("b", FLAT)
    with probml.rows():
        sample("y", dist.StudentT(5.0, a * b, 1.0))


@probml.model
def told():
    a, scale = sample("a", FLAT), sample("scale", dist.HalfNormal(5.0))
    with probml.rows():
        sample("y", dist.StudentT(5.0, a, scale))


def test_a_level_direction_beside_what_is_hidden_is_told():
    y = np.r_[Y, Y + 9.0]
    fit = shifted().fit({"y": y}, probml.MAP(), start={"mean": [0.0, 8.0], "shift": 1.0})
    assert "not-identified" in codes(fit) and "shift" in fit.status


@pytest.mark.parametrize("prior", [True, False])
def test_a_ridge_with_a_bend_is_told_as_well(prior):
    fit = bent().fit({"y": Y}, probml.MAP(prior=prior), start={"a": 1.0, "b": 0.5})
    assert "not-identified" in codes(fit)


def test_of_one_maximum_nothing_is_said():
    assert told().fit({"y": Y}, probml.MAP(prior=False)).findings == ()


@probml.model
def squared(named: bool):
    """A root of which rows see the square alone."""
    root = sample("root", dist.Normal(0.0, 3.0))
    mean = deterministic("square", root**2) if named else root**2
    with probml.rows():
        sample("y", dist.Normal(mean, 1.0))


@pytest.mark.parametrize("named", [False, True])
def test_two_maxima_are_told_unless_what_is_computed_by_name_is_the_same(named):
    found = codes(squared(named).fit({"y": np.full(6, 9.0)}, probml.MAP()))
    assert ("several-optima" in found) is not named


@probml.model
def level_top():
    """Laplace's rows, half of them at -1, half at 1: all between is as high, and convex."""
    at = sample("at", dist.Normal(-0.5, 1e3))
    with probml.rows():
        sample("y", dist.Laplace(at, 1.0))


@pytest.mark.filterwarnings("ignore::probml.ConvergenceWarning")
def test_ends_between_which_nothing_is_lower_are_one_maximum():
    fit = level_top().fit({"y": np.repeat([-1.0, 1.0], 5)}, probml.MAP())
    assert abs(fit.params["at"]) < 1 + 1e-6 and "several-optima" not in codes(fit)


def test_second_derivatives_are_those_of_the_function():
    curved = np.array([[2.0, 0.3], [0.3, 1e-6]])
    found = differences(lambda u: curved @ u, np.array([1.0, 1e3]))
    np.testing.assert_allclose(found, curved, rtol=1e-6, atol=1e-9)


def test_laplace_of_many_normal_rows_is_not_doubted_whatever_the_seed():
    """The logarithm of a spread is skewed, so that the tail of the ratios is thick by its shape;
    of many rows it reaches nowhere."""
    @probml.model
    def normal():
        mean, spread = sample("mean", dist.Normal(0.0, 100.0)), sample("spread", dist.HalfNormal(9.0))
        with probml.rows():
            sample("y", dist.Normal(mean, spread))

    y = np.random.default_rng(0).normal(size=400)
    for seed in range(4):
        assert "result is unreliable" not in normal().fit({"y": y}, probml.Laplace(), seed=seed).status


def test_a_bound_that_still_rises_is_told_and_noise_is_not():
    noise = np.random.default_rng(0).normal(size=1000)
    (found,) = rising_finding(np.linspace(-60.0, -10.0, 1000) + noise)
    assert found.code.value == "guide-not-converged" and "rose by 9.9" in found.problem
    assert rising_finding(-10.0 + 30 * noise) == rising_finding(-10.0 + noise) == rising_finding(noise[:90]) == ()
    assert rising_finding(np.r_[noise, np.nan]) == ()  # that is said otherwise


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::probml.ConvergenceWarning")
def test_a_place_that_is_only_compared_is_not_left_where_its_climb_began():
    @probml.model
    def switch(y):
        early, late = (sample(name, dist.Exponential(1.0)) for name in ("early", "late"))
        at = sample("at", dist.Uniform(0.0, 20.0))
        sample("y", dist.Poisson(jnp.where(np.arange(20) < at, early, late)), obs=y)

    y = np.repeat([6, 1], [6, 14])
    fit = switch().fit({"y": y})
    assert fit.engine.startswith("NUTS") and 5.0 < fit.params["at"] < 6.0
