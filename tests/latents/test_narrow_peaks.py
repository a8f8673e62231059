"""One number a row that is measured with an error far smaller than its prior is wide: the evidence of a measurement y is
then the prior's density at f⁻¹(y), by change of variables."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from scipy.special import log_ndtr

import probml

PRIORS = {"half-normal": (dist.HalfNormal(2.0), [0.05, 0.8, 5.0]), "gamma": (dist.Gamma(2.0, 1.0), [0.2, 1.0, 4.0]),
          "beta": (dist.Beta(2.0, 3.0), [0.05, 0.4, 0.9]), "normal": (dist.Normal(1.0, 3.0), [-5.0, 0.5, 7.0]),
          "Laplace": (dist.Laplace(0.0, 1.0), [-3.0, 0.4, 2.0]), "uniform": (dist.Uniform(-1.0, 4.0), [-0.9, 0.4, 3.0])}
NOISE = {"normal": (dist.Normal, 1e-4), "Student's t": (lambda m, s: dist.StudentT(3.0, m, s), 2e-3),
         "logistic": (dist.Logistic, 1e-3), "Laplace": (dist.Laplace, 2e-2)}  # with the error of a kink
LINKS = {"1e6": (lambda z: 1e6 * z, lambda z: 1e6 + 0 * z), "exp": (jnp.exp, np.exp)}  # and their slopes
SHARES = 1e-3, 1e-4, 1e-5  # of the number, of which the error of measurement is


def quick(prior, noise, link):
    return (noise == "normal" and link == "exp") or (prior in ("Laplace", "uniform") and link == "1e6")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("prior, noise, link", [
    case if quick(*case) else pytest.param(*case, marks=pytest.mark.slow)
    for case in itertools.product(PRIORS, NOISE, LINKS)])
def test_a_narrow_peak_is_found(prior, noise, link):
    (own, numbers), (error, tolerance), (link, slope) = PRIORS[prior], NOISE[noise], LINKS[link]
    tolerance = tolerance if jax.config.jax_enable_x64 else max(tolerance, 4e-3)

    @probml.model
    def measured(s):
        with probml.rows():
            z = sample("z", own)
            sample("y", error(link(z), s))

    z = np.tile(numbers, len(SHARES))
    widths = np.repeat(SHARES, len(numbers)) * np.abs(z) * slope(z)
    truth = np.asarray(own.log_prob(jnp.asarray(z))) - np.log(slope(z))
    rows = {"s": widths, "y": np.asarray(link(jnp.asarray(z)))}
    np.testing.assert_allclose(float(measured().log_density(rows, {})), truth.sum(),
                               atol=len(z) * tolerance)


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 0.1, 1.0])
def test_a_half_normal_loss_has_the_density_of_a_stochastic_frontier(noise):
    """Aigner, Lovell and Schmidt (1977) have it in closed form; in float32 it was 84,000 nats off."""
    @probml.model
    def frontier(width):
        with probml.rows():
            loss = sample("loss", dist.HalfNormal(width))
            sample("y", dist.Normal(-loss, noise))

    y = np.array([-3.0, -1.0, -0.1, 0.0, noise, 3 * noise])
    for width in (0.03, 0.3, 3.0):
        total = np.hypot(noise, width)
        truth = np.log(2 / total) - 0.5 * (y / total) ** 2 - 0.5 * np.log(2 * np.pi) + log_ndtr(-y * width / noise / total)
        for value, expected in zip(y, truth, strict=True):
            rows = {"width": np.array([width]), "y": np.array([value])}
            got = float(frontier().log_density(rows, {}))
            assert abs(got - expected) < (1e-5 if jax.config.jax_enable_x64 else 0.02 + 1e-5 * abs(expected)), (width, value)
