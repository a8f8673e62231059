"""Posteriors of one and two parameters integrated on a grid: what draws, the normal at the mode and
the best normal must be.

The densities are written once more, with SciPy; nothing here is random but the engines.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpy.polynomial.hermite_e import hermegauss
from numpyro import sample
from scipy import optimize, special, stats

import probml
from monte_carlo import STANDARD_ERRORS, standard_errors

POINTS = 801  # a grid of so many along each coordinate
NODES = 40  # of Gauss–Hermite along each coordinate


@probml.model
def rare_events():
    rate = sample("rate", dist.LogNormal(0.5, 1.2))
    with probml.rows():
        sample("count", dist.Poisson(rate))


@probml.model
def two_needles():
    share = sample("share", dist.Beta(2.0, 3.0))
    with probml.rows():
        kind = sample("kind", dist.Bernoulli(share))  # unseen: summed out
        sample("length", dist.Normal(jnp.array([0.0, 1.5])[kind], 1.0))


@probml.model
def robust_mean():
    mean = sample("mean", dist.StudentT(3.0, 0.0, 2.0))
    scale = sample("scale", dist.HalfCauchy(1.0))
    with probml.rows():
        sample("x", dist.Normal(mean, scale))


COUNTS = np.array([0, 1, 0, 2, 1])
LENGTHS = np.array([-0.3, 1.9, 0.8, 2.2, 1.1, -0.9, 1.4])
X = np.array([0.3, 1.8, -0.4, 1.1, 0.9, 2.6])


def rare(u):
    log_rate = u[..., 0]
    return stats.norm(
        0.5, 1.2
    ).logpdf(log_rate) + stats.poisson(np.exp(log_rate)[..., None]).logpmf(COUNTS).sum(-1)


def needles(u):
    share = special.expit(u[..., 0])
    each = share[
        ..., None
    ] * stats.norm(1.5, 1).pdf(LENGTHS) + (1 - share[..., None]) * stats.norm(0, 1).pdf(LENGTHS)
    return stats.beta(2, 3).logpdf(share) + np.log(share * (1 - share)) + np.log(each).sum(-1)


def robust(u):
    mean, scale = u[..., 0], np.exp(u[..., 1])
    prior = stats.t(3, 0, 2).logpdf(mean) + stats.halfcauchy(0, 1).logpdf(scale) + u[..., 1]
    return prior + stats.norm(mean[..., None], scale[..., None]).logpdf(X).sum(-1)


@dataclass(frozen=True)
class Oracle:
    """A model, and its density in coordinates u without bounds: what engines are held against.

    Attributes:
        log_density: u (..., d) -> log p(u, data), the volume of the map to parameters in it.
        params: u (..., d) -> name -> parameter.
        span: the range of each coordinate beyond which nothing lies.
    """

    model: Any
    data: dict[str, Any]
    log_density: Callable
    params: dict[str, Callable]
    span: tuple[tuple[float, float], ...]

    @functools.cached_property
    def moments(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation of every parameter, by the trapezoidal rule."""
        axes = [np.linspace(*span, POINTS) for span in self.span]
        u = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
        log = self.log_density(u)
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        found = {}
        for name, value in self.params.items():
            value = value(u)
            mean = (weight * value).sum()
            found[name] = mean, np.sqrt((weight * (value - mean) ** 2).sum())
        return found

    @functools.cached_property
    def peak(self) -> tuple[np.ndarray, np.ndarray]:
        """The mode in u, and the covariance that its curvature tells."""
        start = np.array([np.mean(span) for span in self.span])
        mode = optimize.minimize(lambda u: -self.log_density(u), start, method="Nelder-Mead",
                                 options={"xatol": 1e-9, "fatol": 1e-13}).x
        h = 1e-4
        steps = h * np.eye(len(mode))
        hessian = [
            [sum(a * b * self.log_density(mode + a * one + b * other) for a in (1, -1)
                 for b in (1, -1)) / (4 * h * h) for other in steps]
            for one in steps
        ]
        return mode, np.linalg.inv(-np.array(hessian))

    @functools.cached_property
    def nearest(self) -> tuple[np.ndarray, np.ndarray]:
        """The normal in u with the largest evidence lower bound: its mean and covariance, by
        Gauss–Hermite quadrature."""
        d = len(self.span)
        nodes, weights = hermegauss(NODES)
        grid = np.stack(np.meshgrid(*[nodes] * d, indexing="ij"), -1).reshape(-1, d)
        share = functools.reduce(np.multiply.outer, [weights / weights.sum()] * d).reshape(-1)
        lower = np.tril_indices(d)

        def unpacked(v):
            root = np.zeros((d, d))
            root[lower] = v[d:]
            root[np.diag_indices(d)] = np.exp(np.diag(root))
            return v[:d], root

        def loss(v):
            mean, root = unpacked(v)
            return -(share * self.log_density(mean + grid @ root.T)).sum() - np.log(
                np.diag(root)
            ).sum()

        mode, covariance = self.peak
        root = np.linalg.cholesky(covariance)
        root[np.diag_indices(d)] = np.log(np.diag(root))
        mean, root = unpacked(optimize.minimize(loss, np.concatenate([mode, root[lower]]),
                                                method="BFGS").x)
        return mean, root @ root.T


def first(u):
    return u[..., 0]


ORACLES = {
    "rare events": Oracle(rare_events(), {"count": COUNTS}, rare,
                          {"rate": lambda u: np.exp(first(u))}, ((-7.0, 4.0),)),
    "two needles": Oracle(two_needles(), {"length": LENGTHS}, needles,
                          {"share": lambda u: special.expit(first(u))}, ((-12.0, 12.0),)),
    "robust mean": Oracle(
        robust_mean(), {"x": X}, robust, {"mean": first, "scale": lambda u: np.exp(u[..., 1])},
        ((-9.0, 11.0), (-3.0, 4.0))
    ),
}
every = pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name == "rare events" else pytest.mark.slow) for name in ORACLES
])


def coordinates(draws):
    """Draws of an engine's parameters as points u."""
    back = {"rate": np.log, "share": special.logit, "mean": np.asarray, "scale": np.log}
    return np.stack([back[name](draws[name]) for name in back if name in draws], -1)


@every
def test_nuts_has_the_moments_of_the_grid(name):
    oracle = ORACLES[name]
    fit = oracle.model.fit(
        oracle.data, probml.NUTS(draws=2000, warmup=1000, chains=4, target_accept=0.9), seed=0
    )
    for site, (mean, sd) in oracle.moments.items():
        found = fit.drawn.values[site]
        of_mean, of_sd = standard_errors(found)
        assert abs(found.mean() - mean) <= STANDARD_ERRORS * of_mean
        assert abs(found.std() - sd) <= STANDARD_ERRORS * of_sd
        np.testing.assert_allclose(fit.params[site], found.mean(), rtol=1e-6)


@every
def test_laplace_has_the_moments_of_the_grid(name):
    oracle = ORACLES[name]
    fit = oracle.model.fit(oracle.data, probml.Laplace())
    for site, (mean, sd) in oracle.moments.items():
        assert abs(fit.params[site] - mean) < 0.15 * sd
        assert fit.draws(1000)[site].std() == pytest.approx(sd, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("name", ORACLES)
def test_svi_is_the_normal_with_the_largest_evidence_lower_bound(name):
    oracle = ORACLES[name]
    fit = oracle.model.fit(oracle.data, probml.SVI(guide="multivariate_normal", particles=8),
                           seed=0)
    mean, covariance = oracle.nearest
    drawn = coordinates(fit.draws(20_000, seed=0))
    spread = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((drawn.mean(0) - mean) / spread, 0, atol=0.05)
    np.testing.assert_allclose(
        np.cov(drawn.T).reshape(covariance.shape) / np.outer(spread, spread),
        covariance / np.outer(spread, spread), atol=0.1
    )
