"""log_evidence of the default answer of fourteen models, held to quadrature of NumPyro's density; six
more that have a closed form stand in tests/engines/test_importance.py.

The oracle: SciPy finds the mode in NumPyro's coordinates without bounds, and the density is summed
over a grid that reaches 9 standard deviations of its curvature, each way. A function whose many
effects or hidden states are integrated out by hand stands beside the one that is fitted.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from jax.scipy.special import logsumexp
from numpyro import handlers, plate, sample
from numpyro.infer.util import potential_energy, unconstrain_fn
from scipy.optimize import minimize

import probml

RNG = np.random.default_rng(77)
REACH, NODES = 9.0, {1: 401, 2: 121, 3: 61}
CASES: dict[str, tuple[Callable, Mapping[str, Any], Callable]] = {}
QUICK = ("normal_with_a_half_normal_sd", "zero_inflated_counts")


def held_to(summed: Callable | None = None, **data: Any) -> Callable:
    """A decorator that adds a function, its data, and what NumPyro is asked in its place."""
    def add(function: Callable) -> Callable:
        CASES[function.__name__] = (function, data, summed or function)
        return function
    return add


def quadrature(function: Callable, data: Mapping[str, Any], nodes: Mapping[int, int] = NODES) -> float:
    """log p(data) of a function of at most three numbers."""
    arguments = {name: jnp.asarray(value) for name, value in data.items()}
    begin = {name: site["value"] for name, site in
             handlers.trace(handlers.seed(function, 0)).get_trace(**arguments).items()
             if site["type"] == "sample" and not site["is_observed"]}
    flat, unravel = ravel_pytree(unconstrain_fn(function, (), arguments, begin))

    @jax.jit
    def minus_log(u):
        return potential_energy(function, (), arguments, unravel(u))

    best = min((minimize(minus_log, start, jac=jax.jit(jax.grad(minus_log)), method="BFGS")
                for start in (flat, 0 * flat, 0 * flat - 1)), key=lambda end: end.fun)
    root = np.linalg.cholesky(np.linalg.inv(jax.hessian(minus_log)(best.x)))
    axis = np.linspace(-REACH, REACH, nodes[flat.size])
    grid = np.stack(np.meshgrid(*[axis] * flat.size), -1).reshape(-1, flat.size)
    log = -jax.lax.map(minus_log, jnp.asarray(best.x + grid @ root.T), batch_size=4096)
    volume = np.linalg.slogdet(root)[1] + flat.size * np.log(axis[1] - axis[0])
    return float(logsumexp(jnp.where(jnp.isnan(log), -jnp.inf, log)) + volume)


X = RNG.normal(size=30)


@held_to(x=X, y=RNG.binomial(1, 1 / (1 + np.exp(-0.3 - X))))
def logistic(x, y):
    a, b = sample("a", dist.Normal(0, 2)), sample("b", dist.Normal(0, 2))
    with plate("n", len(x)):
        sample("y", dist.Bernoulli(logits=a + b * x), obs=y)


@held_to(x=X, y=RNG.poisson(np.exp(0.5 + 0.6 * X)))
def poisson(x, y):
    a, b = sample("a", dist.Normal(0, 1)), sample("b", dist.Normal(0, 1))
    with plate("n", len(x)):
        sample("y", dist.Poisson(jnp.exp(a + b * x)), obs=y)


@held_to(y=RNG.negative_binomial(3, 0.3, 40))
def negative_binomial(y):
    mean, size = sample("mean", dist.LogNormal(1, 1)), sample("size", dist.Gamma(2, 0.5))
    with plate("n", len(y)):
        sample("y", dist.NegativeBinomial2(mean, size), obs=y)


@held_to(y=RNG.normal(1.0, 2.0, 25))
def normal_with_a_half_normal_sd(y):
    mean, sd = sample("mean", dist.Normal(0, 5)), sample("sd", dist.HalfNormal(3))
    with plate("n", len(y)):
        sample("y", dist.Normal(mean, sd), obs=y)


@held_to(x=X, y=1 + 2 * X + RNG.normal(size=30))
def line_of_unknown_noise(x, y):
    a, b = sample("a", dist.Normal(0, 5)), sample("b", dist.Normal(0, 5))
    sigma = sample("sigma", dist.Exponential(1.0))
    with plate("n", len(x)):
        sample("y", dist.Normal(a + b * x, sigma), obs=y)


@held_to(y=RNG.gamma(3.0, 0.5, 40))
def gamma(y):
    shape, rate = sample("shape", dist.LogNormal(0, 1)), sample("rate", dist.LogNormal(0, 1))
    with plate("n", len(y)):
        sample("y", dist.Gamma(shape, rate), obs=y)


TIMES = 3 * RNG.weibull(1.5, 40)


@held_to(t=np.minimum(TIMES, 4.0), late=(TIMES > 4.0).astype(int))
def censored_weibull(t, late):
    scale, shape = sample("scale", dist.LogNormal(1, 1)), sample("shape", dist.Gamma(2, 1))
    with plate("n", len(t)):
        sample("t", dist.RightCensoredDistribution(dist.Weibull(scale, shape), late), obs=t)


@held_to(y=2 + 0.5 * RNG.standard_t(4, 50))
def student(y):
    mean, scale = sample("mean", dist.Normal(0, 5)), sample("scale", dist.HalfNormal(2))
    with plate("n", len(y)):
        sample("y", dist.StudentT(4.0, mean, scale), obs=y)


@held_to(y=np.where(RNG.uniform(size=60) < 0.3, 0, RNG.poisson(2.5, 60)))
def zero_inflated_counts(y):
    gate, rate = sample("gate", dist.Beta(2, 2)), sample("rate", dist.Gamma(2, 1))
    with plate("n", len(y)):
        sample("y", dist.ZeroInflatedPoisson(gate, rate), obs=y)


@held_to(n=np.full(12, 20), y=RNG.binomial(20, RNG.beta(3, 5, 12)))
def shares_of_groups(n, y):
    mean, size = sample("mean", dist.Beta(2, 2)), sample("size", dist.LogNormal(2, 1))
    with plate("group", len(y)):
        sample("y", dist.BetaBinomial(mean * size, (1 - mean) * size, n), obs=y)


def noise_of_groups(y, se):
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.LogNormal(1, 0.5))
    sample("y", dist.Normal(mu, jnp.sqrt(tau**2 + se**2)).to_event(1), obs=y)


@held_to(noise_of_groups, y=RNG.normal(1, 4, 10), se=RNG.uniform(1, 3, 10))
def effects_of_groups(y, se):
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.LogNormal(1, 0.5))
    with plate("group", len(y)):
        theta = sample("theta", dist.Normal(mu, tau))
        sample("y", dist.Normal(theta, se), obs=y)


def kinds_summed(y):
    share = sample("share", dist.Beta(2, 2))
    mean = jnp.stack([sample("low", dist.Normal(-2, 1)), sample("high", dist.Normal(2, 1))])
    log = jnp.log(jnp.stack([1 - share, share])) + dist.Normal(mean, 1.0).log_prob(y[:, None])
    numpyro.factor("y", logsumexp(log, 1).sum())


@held_to(kinds_summed, y=np.where(RNG.uniform(size=40) < 0.4, 1.5, -1.5) + RNG.normal(size=40))
def two_kinds(y):
    share = sample("share", dist.Beta(2, 2))
    mean = jnp.stack([sample("low", dist.Normal(-2, 1)), sample("high", dist.Normal(2, 1))])
    kinds = dist.Categorical(jnp.stack([1 - share, share]))
    with plate("n", len(y)):
        sample("y", dist.MixtureSameFamily(kinds, dist.Normal(mean, 1.0)), obs=y)


DOSE = np.tile([0.1, 0.3, 1.0, 3.0, 10.0], 4)


@held_to(dose=DOSE, y=3 * DOSE / (1 + DOSE) + 0.3 * RNG.normal(size=20))
def michaelis_menten(dose, y):
    top, half = sample("top", dist.LogNormal(1, 0.5)), sample("half", dist.LogNormal(0, 1))
    with plate("n", len(y)):
        sample("y", dist.Normal(top * dose / (half + dose), 0.3), obs=y)


SERIES = [0.0]
for _ in range(40):
    SERIES.append(0.7 * SERIES[-1] + RNG.normal())


@held_to(y=np.array(SERIES))
def autoregression(y):
    rho, sigma = sample("rho", dist.Uniform(-1, 1)), sample("sigma", dist.HalfNormal(2))
    with plate("n", len(y) - 1):
        sample("y", dist.Normal(rho * y[:-1], sigma), obs=y[1:])


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
                                  for name in CASES])
def test_the_evidence_is_that_of_quadrature(name):
    function, data, asked = CASES[name]
    with jax.enable_x64(True):
        want = quadrature(asked, data)
        coarse = quadrature(asked, data, {size: count // 2 + 1 for size, count in NODES.items()})
    assert abs(want - coarse) < 1e-3  # the oracle's own error
    fit = probml.model(function)().fit(data, seed=0)
    assert abs(fit.log_evidence - want) < 3 * fit.evidence_error + 1e-3, (fit.status, want)
    assert fit.evidence_error < 0.1
