"""A family with a form and a domain of its own is one file, von_mises.py, and then everything that
is asked of a shipped family holds of it."""

import numpy as np
import numpyro.distributions as dist
import pytest
import von_mises
from jax.scipy.special import i0e
from numpyro import plate, sample
from numpyro.distributions import constraints
from scipy import integrate, optimize, stats
from scipy.special import ive, logsumexp

import probml

KAPPA, PRIOR = 3.0, (0.5, 0.7)  # the known concentration; direction and concentration of the prior
X = stats.vonmises.rvs(KAPPA, loc=2.5, size=12, random_state=0)
ANGLES = np.concatenate([stats.vonmises.rvs(8.0, loc=-2.9, size=60, random_state=1),
                         stats.vonmises.rvs(4.0, loc=0.6, size=40, random_state=2)])


@probml.model
def compass(concentration: float):
    direction = sample("direction", dist.VonMises(*PRIOR))
    with probml.rows():
        sample("angle", dist.VonMises(direction, concentration))


@probml.model
def flat_compass(concentration: float):
    direction = sample("direction", dist.ImproperUniform(constraints.circular, (), ()))
    with probml.rows():
        sample("angle", dist.VonMises(direction, concentration))


@probml.model
def winds(k: int):
    weights = sample("weights", dist.Dirichlet(2.0 * np.ones(k)))
    with plate("wind", k):
        direction = sample("direction", dist.VonMises(0.0, 0.1))
        focus = sample("focus", dist.Gamma(2.0, 0.2))
    with probml.rows():
        wind = sample("wind of", dist.Categorical(weights))
        sample("angle", dist.VonMises(direction[wind], focus[wind]))


@pytest.fixture(scope="module")
def exact():
    return compass(concentration=KAPPA).fit({"angle": X}, probml.Exact())


@pytest.fixture(scope="module")
def mixture():
    return winds(k=2).fit({"angle": ANGLES}, probml.EM(tolerance=1e-12, restarts=4), seed=0)


def log_i0(z):
    return np.log(ive(0, z)) + z


def resultant():
    """The posterior's direction and concentration, in closed form."""
    both = KAPPA * np.exp(1j * X).sum() + PRIOR[1] * np.exp(1j * PRIOR[0])
    return np.angle(both), np.abs(both)


def test_the_density_is_that_of_scipy_also_with_unseen_cells():
    family, x = von_mises.VonMises(), X[:, None]
    natural = family.natural({"loc": np.array([[0.3], [-3.0]]),
                              "concentration": np.array([[0.5], [200.0]])}, 0.0)
    expected = stats.vonmises.logpdf(x, [0.5, 200.0], loc=[0.3, -3.0])
    np.testing.assert_allclose(family.log_density(natural, x, None), expected, rtol=1e-9)
    seen = np.arange(len(X))[:, None] % 2 == 0
    np.testing.assert_allclose(family.log_density(natural, np.where(seen, x, np.nan), seen),
                               np.where(seen, expected, 0.0), rtol=1e-9)


def test_the_conjugate_posterior_and_the_evidence_are_exact(exact):
    direction, length = resultant()
    found = exact.posterior("direction")
    np.testing.assert_allclose([found.loc, found.concentration], [direction, length], rtol=1e-8)
    evidence = (log_i0(length) - log_i0(PRIOR[1])
                - len(X) * (np.log(2 * np.pi) + log_i0(KAPPA)))
    np.testing.assert_allclose(exact.log_evidence, evidence, rtol=1e-9)


def test_a_flat_prior_on_the_circle_gives_the_mean_direction():
    fit = flat_compass(concentration=KAPPA).fit({"angle": X}, probml.MAP())
    np.testing.assert_allclose(fit.params["direction"], np.angle(np.exp(1j * X).sum()), rtol=1e-6)


def test_a_new_angle_is_predicted_with_the_direction_integrated_out(exact):
    direction, length = resultant()
    new = np.array([-3.1, 0.0, 2.4])

    def brute(x):
        return integrate.quad(lambda c: stats.vonmises.pdf(x, KAPPA, loc=c)
                              * stats.vonmises.pdf(c, length, loc=direction), -np.pi, np.pi)[0]

    np.testing.assert_allclose(exact.log_prob({"angle": new}), np.log([brute(x) for x in new]),
                               rtol=1e-7)


def test_em_reads_the_directions_off_and_climbs_the_rest(mixture):
    blocks = str(mixture.model.explain({"angle": ANGLES}))
    assert "VonMises–VonMises, closed form" in blocks

    def log_joint(u):
        weights = 1 / (1 + np.exp([-u[0], u[0]]))
        focus = np.exp(u[3:])
        rows = stats.vonmises.logpdf(ANGLES[:, None], focus, loc=u[1:3]) + np.log(weights)
        prior = (stats.dirichlet.logpdf(weights, [2.0, 2.0])
                 + stats.vonmises.logpdf(u[1:3], 0.1).sum()
                 + stats.gamma.logpdf(focus, 2.0, scale=5.0).sum())
        return logsumexp(rows, axis=1).sum() + prior

    p = mixture.params
    found = np.array([np.log(p["weights"][0] / p["weights"][1]), *p["direction"],
                      *np.log(p["focus"])])
    np.testing.assert_allclose(mixture.history[-1], log_joint(found), rtol=1e-8)
    better = optimize.minimize(lambda u: -log_joint(u), found)
    np.testing.assert_allclose(-better.fun, mixture.history[-1], atol=1e-5)
    assert (np.diff(mixture.history) > -1e-8).all()


def test_a_saved_fit_is_the_same(exact, mixture, tmp_path):
    for fit, name in ((exact, "exact"), (mixture, "mixture")):
        fit.save(tmp_path / name)
        again = probml.load(tmp_path / name, fit.model)
        np.testing.assert_array_equal(again.log_prob({"angle": X}), fit.log_prob({"angle": X}))
    again = probml.load(tmp_path / "exact", exact.model).posterior("direction")
    np.testing.assert_array_equal(again.concentration, exact.posterior("direction").concentration)


def test_expectations_are_those_of_the_posterior():
    natural = {"cos": np.array([2.0, -0.3]), "sin": np.array([-1.0, 0.4])}
    found = von_mises.CIRCULAR.expectation(natural, None)
    for j, (a, b) in enumerate(zip(natural["cos"], natural["sin"], strict=True)):
        def density(c, a=a, b=b):
            return np.exp(a * np.cos(c) + b * np.sin(c))
        whole = integrate.quad(density, -np.pi, np.pi)[0]
        for name, function in (("cos", np.cos), ("sin", np.sin)):
            mean = integrate.quad(lambda c, f=function, d=density: f(c) * d(c), -np.pi, np.pi)[0]
            np.testing.assert_allclose(found[name][j], mean / whole, rtol=1e-8)
    assert np.isfinite(i0e(1e4))


def test_a_second_entry_for_a_distribution_is_refused_by_name():
    with pytest.raises(probml.ModelError, match="VonMises is already registered"):
        probml.families.register(probml.families.Entry((dist.VonMises,)))
