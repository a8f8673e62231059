"""A TransformedDistribution that is a Normal, or another member of a family, is fitted as that."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from numpyro.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IdentityTransform,
)

import probml
from probml.families.registry import plain

moved = dist.TransformedDistribution
STANDARD = dist.Normal(0.0, 1.0)
X = np.linspace(-1.0, 2.0, 12)
Y = 1.5 * X + np.cos(7 * X)

EQUAL = {
    "affine": (lambda m: moved(STANDARD, AffineTransform(m, 0.8)), dist.Normal, Y),
    "mirrored": (lambda m: moved(STANDARD, AffineTransform(m, -0.8)), dist.Normal, Y),
    "two steps": (lambda m: moved(STANDARD, [AffineTransform(0.0, 0.8), AffineTransform(m, 1.0)]),
                  dist.Normal, Y),
    "no change": (lambda m: moved(dist.Normal(m, 0.8), [IdentityTransform()]), dist.Normal, Y),
    "masked": (lambda m: dist.Normal(m, 0.8).mask(True), dist.Normal, Y),
    "exp": (lambda m: moved(dist.Normal(m, 0.8), ExpTransform()), dist.LogNormal, np.exp(Y)),
    "affine, exp": (lambda m: moved(STANDARD, ComposeTransform([
        AffineTransform(m, 0.8), ExpTransform()])), dist.LogNormal, np.exp(Y)),
}


def fitted(likelihood, prior, y):
    def line(x):
        b = sample("b", prior)
        with probml.rows():
            sample("y", likelihood(b * x))

    return probml.model(line)().fit({"x": X, "y": y})


@pytest.mark.parametrize("written", EQUAL)
def test_a_likelihood_is_exact_however_its_family_is_written(written):
    likelihood, family, y = EQUAL[written]
    fit = fitted(likelihood, dist.Normal(0.0, 2.0), y)
    same = fitted(lambda m: family(m, 0.8), dist.Normal(0.0, 2.0), y)
    assert fit.status.startswith("Exact") and same.status.startswith("Exact")
    np.testing.assert_allclose(fit.log_evidence, same.log_evidence, rtol=1e-6)
    np.testing.assert_allclose(fit.params["b"], same.params["b"], rtol=1e-6)


def test_a_prior_is_conjugate_however_its_family_is_written():
    fit = fitted(lambda m: dist.Normal(m, 0.8), moved(STANDARD, AffineTransform(0.0, 2.0)), Y)
    precision = 1 / 2.0**2 + (X**2).sum() / 0.8**2
    np.testing.assert_allclose(fit.params["b"], (X * Y).sum() / 0.8**2 / precision, rtol=1e-5)
    assert fit.status.startswith("Exact")


def test_a_scale_that_is_a_parameter_is_read_as_one():
    def spread(n):
        s = sample("s", dist.LogNormal(0.0, 1.0))
        with probml.rows():
            sample("y", moved(STANDARD, AffineTransform(n * 1.0, s)))

    transformed = probml.model(spread)(n=1).fit({"y": Y}, probml.EM(tolerance=1e-12))
    s = np.linspace(0.3, 3.0, 27001)
    posterior = (-(len(Y) + 1) * np.log(s) - ((Y - 1.0)**2).sum() / (2 * s**2)
                 - np.log(s)**2 / 2)
    np.testing.assert_allclose(transformed.params["s"], s[posterior.argmax()], rtol=1e-3)


@pytest.mark.parametrize("fn", [
    moved(dist.Normal(1.0, 2.0).expand([2, 3]).to_event(1),
          [AffineTransform(jnp.ones(3), 2.0), AffineTransform(1.0, -0.5)]),
    moved(dist.StudentT(3.0, 1.0, 2.0), AffineTransform(jnp.arange(2.0), -2.0)),
    moved(dist.LogNormal(1.0, 2.0), [IdentityTransform()]),
    moved(dist.Gumbel(0.0, 1.0), AffineTransform(0.0, -1.0)),
    moved(dist.HalfNormal(1.0), AffineTransform(1.0, 2.0, domain=dist.constraints.positive)),
    moved(dist.Normal(1.0, 2.0), [ExpTransform(), AffineTransform(
        1.0, 2.0, domain=dist.constraints.positive)]),
], ids=lambda fn: type(fn.base_dist).__name__)
def test_the_family_has_the_density_and_the_shapes_of_the_transformed(fn):
    found, x = plain(fn), fn.sample(jax.random.key(0), (4,))
    assert (found.batch_shape, found.event_shape) == (fn.batch_shape, fn.event_shape)
    np.testing.assert_allclose(found.log_prob(x), fn.log_prob(x), rtol=1e-5, atol=1e-5)
