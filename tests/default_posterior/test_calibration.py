"""Simulation-based calibration of the default answer (Talts et al. 2018): parameters and data are
drawn by NumPyro from twenty functions, and each data set is fitted without naming an engine.

    python tests/default_posterior/test_calibration.py [names] [--simulations 100]

prints a line per function: the coverage of 90 % intervals, the smallest p-value of uniform ranks,
and which engines answered. Fits that warn count as well as those that do not.
"""

import argparse
import inspect
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import plate, sample
from numpyro.infer import Predictive
from scipy import stats

if str(Path(__file__).parent) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parent))

import judge  # noqa: E402

import probml  # noqa: E402

SIMULATIONS = 100
DRAWS = 199  # of a posterior, among which the true value has its rank
BINS = 10
LOWEST, HIGHEST = 0.85, 0.95  # coverage of 90 % intervals, beyond two Monte Carlo errors
SMALLEST = 1e-3  # p-value of uniform ranks, of all parameters of a function together
RNG = np.random.default_rng(9)
MODELS: dict[str, tuple[Callable, Mapping[str, Any]]] = {}
PARALLEL = {"enumerate": "parallel"}


def of(**inputs: Any) -> Callable:
    """A decorator that adds a function with its inputs; its other arguments, None, are outcomes."""
    def add(function: Callable) -> Callable:
        MODELS[function.__name__] = (function, inputs)
        return function
    return add


class Calibrated(NamedTuple):
    """What came out of all fits of a function.

    Attributes:
        ranks: (simulations, numbers), from 0 to 1.
        engines: engine → how many fits it answered.
        warned: how many fits say that they are not to be trusted.
    """

    ranks: np.ndarray
    engines: Counter
    warned: int

    @property
    def coverage(self) -> float:
        """The share of true values within 90 % intervals."""
        return float(np.mean((self.ranks > 0.05) & (self.ranks < 0.95)))

    @property
    def smallest(self) -> float:
        """The smallest p-value of a chi-square test of uniform ranks, times the number of tests."""
        counts = [np.histogram(own, BINS, (0, 1))[0] for own in self.ranks.T]
        return min(1.0, len(counts) * min(stats.chisquare(own).pvalue for own in counts))


def calibrated(name: str, simulations: int = SIMULATIONS) -> Calibrated:
    """Fits by default of data sets drawn from the prior."""
    function, inputs = MODELS[name]
    outcomes = set(inspect.signature(function).parameters) - set(inputs)
    made = jax.device_get(Predictive(function, num_samples=simulations)(jax.random.key(6), **inputs))
    sites = [site for site in made if site not in outcomes and made[site].dtype.kind == "f"]
    model, ranks, engines, warned = probml.model(function)(), [], Counter(), 0
    for i in range(simulations):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = model.fit({**inputs, **{site: made[site][i] for site in outcomes}}, seed=i)
            draws = fit.draws(DRAWS, seed=i)
        below = [np.mean(draws[site] < made[site][i], 0) + np.mean(draws[site] == made[site][i], 0) / 2
                 for site in sites]
        ranks.append(np.concatenate([np.ravel(own) for own in below]))
        engines[fit.engine.split("(")[0]] += 1
        warned += judge.said(fit)
    return Calibrated(np.stack(ranks), engines, warned)


X, GROUP = RNG.normal(size=40), np.arange(40) % 8


@of(n=25)
def normal(n, y=None):
    mean, sd = sample("mean", dist.Normal(0, 3)), sample("sd", dist.LogNormal(0, 0.7))
    with plate("rows", n):
        sample("y", dist.Normal(mean, sd), obs=y)


@of(n=25)
def coin_of_a_beta(n, y=None):
    p = sample("p", dist.Beta(2, 3))
    with plate("rows", n):
        sample("y", dist.Bernoulli(p), obs=y)


@of(x=X)
def line(x, y=None):
    a, b = sample("a", dist.Normal(0, 2)), sample("b", dist.Normal(0, 2))
    sigma = sample("sigma", dist.Exponential(1.0))
    with plate("rows", len(x)):
        sample("y", dist.Normal(a + b * x, sigma), obs=y)


@of(x=X)
def robust_line(x, y=None):
    a, b = sample("a", dist.Normal(0, 2)), sample("b", dist.Normal(0, 2))
    sigma = sample("sigma", dist.HalfNormal(1.0))
    with plate("rows", len(x)):
        sample("y", dist.StudentT(4.0, a + b * x, sigma), obs=y)


@of(x=X)
def logistic(x, y=None):
    a, b = sample("a", dist.Normal(0, 1.5)), sample("b", dist.Normal(0, 1.5))
    with plate("rows", len(x)):
        sample("y", dist.Bernoulli(logits=a + b * x), obs=y)


@of(x=X)
def poisson(x, y=None):
    a, b = sample("a", dist.Normal(1, 0.5)), sample("b", dist.Normal(0, 0.5))
    with plate("rows", len(x)):
        sample("y", dist.Poisson(jnp.exp(a + b * x)), obs=y)


@of(x=X)
def negative_binomial(x, y=None):
    a, b = sample("a", dist.Normal(1, 0.5)), sample("b", dist.Normal(0, 0.5))
    size = sample("size", dist.Gamma(3, 1))
    with plate("rows", len(x)):
        sample("y", dist.NegativeBinomial2(jnp.exp(a + b * x), size), obs=y)


@of(x=X)
def gamma(x, y=None):
    a, b = sample("a", dist.Normal(0, 1)), sample("b", dist.Normal(0, 1))
    shape = sample("shape", dist.Gamma(3, 1))
    with plate("rows", len(x)):
        sample("y", dist.Gamma(shape, shape / jnp.exp(a + b * x)), obs=y)


@of(x=X)
def ordinal(x, y=None):
    b = sample("b", dist.Normal(0, 1))
    cut = sample("cut", dist.TransformedDistribution(
        dist.Normal(0, 1).expand([3]).to_event(1), dist.transforms.OrderedTransform()))
    with plate("rows", len(x)):
        sample("y", dist.OrderedLogistic(b * x, cut), obs=y)


@of(x=X)
def beta(x, y=None):
    a, b = sample("a", dist.Normal(0, 1)), sample("b", dist.Normal(0, 1))
    size = sample("size", dist.LogNormal(2, 0.5))
    mean = jax.nn.sigmoid(a + b * x)
    with plate("rows", len(x)):
        sample("y", dist.Beta(mean * size, (1 - mean) * size), obs=y)


@of(n=40)
def weibull(n, y=None):
    scale, shape = sample("scale", dist.LogNormal(0, 1)), sample("shape", dist.Gamma(4, 2))
    with plate("rows", n):
        sample("y", dist.Weibull(scale, shape), obs=y)


@of(group=GROUP)
def effects_of_groups(group, y=None):
    mu, tau = sample("mu", dist.Normal(0, 2)), sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.LogNormal(0, 0.5))
    with plate("groups", 8):
        u = sample("u", dist.Normal(mu, tau))
    with plate("rows", len(group)):
        sample("y", dist.Normal(u[group], sigma), obs=y)


@of(se=np.array([15.0, 10, 16, 11, 9, 11, 10, 18]) / 10)
def schools_not_centred(se, y=None):
    mu, tau = sample("mu", dist.Normal(0, 2)), sample("tau", dist.HalfNormal(2))
    with plate("schools", len(se)):
        z = sample("z", dist.Normal(0, 1))
        sample("y", dist.Normal(mu + tau * z, se), obs=y)


@of(group=GROUP)
def counts_of_groups(group, y=None):
    mu, tau = sample("mu", dist.Normal(1, 0.5)), sample("tau", dist.HalfNormal(0.7))
    with plate("groups", 8):
        u = sample("u", dist.Normal(mu, tau))
    with plate("rows", len(group)):
        sample("y", dist.Poisson(jnp.exp(u[group])), obs=y)


@of(n=60)
def two_kinds(n, y=None):
    share = sample("share", dist.Beta(3, 3))
    mean = jnp.stack([sample("low", dist.Normal(-2, 0.7)), sample("high", dist.Normal(2, 0.7))])
    sd = sample("sd", dist.LogNormal(0, 0.3))
    with plate("rows", n):
        kind = sample("kind", dist.Bernoulli(share), infer=PARALLEL)
        sample("y", dist.Normal(mean[kind], sd), obs=y)


@of(n=60)
def zero_inflated_counts(n, y=None):
    gate, rate = sample("gate", dist.Beta(2, 2)), sample("rate", dist.Gamma(4, 1))
    with plate("rows", n):
        sample("y", dist.ZeroInflatedPoisson(gate, rate), obs=y)


@of(n=30)
def change_of_a_rate(n, y=None):
    early, late = sample("early", dist.Gamma(2, 0.5)), sample("late", dist.Gamma(2, 0.5))
    change = sample("change", dist.Categorical(jnp.ones(n) / n), infer=PARALLEL)
    with plate("rows", n):
        sample("y", dist.Poisson(jnp.where(jnp.arange(n) < change, early, late)), obs=y)


@of(n=30)
def local_level(n, y=None):
    step, noise = sample("step", dist.LogNormal(-1, 0.5)), sample("noise", dist.LogNormal(0, 0.5))
    level = sample("level", dist.GaussianRandomWalk(step, n))
    with plate("rows", n):
        sample("y", dist.Normal(level, noise), obs=y)


@of(dose=np.tile([0.1, 0.3, 1.0, 3.0, 10.0], 4))
def michaelis_menten(dose, y=None):
    top, half = sample("top", dist.LogNormal(1, 0.5)), sample("half", dist.LogNormal(0, 0.7))
    sigma = sample("sigma", dist.LogNormal(-1.5, 0.5))
    with plate("rows", len(dose)):
        sample("y", dist.Normal(top * dose / (half + dose), sigma), obs=y)


@of(n=50)
def latent_classes(n, y=None):
    share = sample("share", dist.Beta(4, 4))
    with plate("items", 5):
        low, high = sample("low", dist.Beta(2, 8)), sample("high", dist.Beta(8, 2))
    with plate("rows", n):
        kind = sample("kind", dist.Bernoulli(share), infer=PARALLEL)
        p = jnp.where(kind[..., None] == 1, high, low)
        sample("y", dist.Bernoulli(p).to_event(1), obs=y)


def faults(found: Calibrated) -> list[str]:
    """What is not as it must be, in words."""
    error = 2 * math.sqrt(0.09 / len(found.ranks))
    said = []
    if not LOWEST - error < found.coverage < HIGHEST + error:
        said.append(f"90 % intervals cover {found.coverage:.0%}")
    if found.smallest < SMALLEST:
        said.append(f"ranks are not uniform (p = {found.smallest:.1e})")
    return said


def test_ranks_are_uniform_and_intervals_cover_as_often_as_they_say():
    """Of one function; the others take minutes and are run from the command line."""
    assert not faults(calibrated("coin_of_a_beta"))


def test_intervals_that_are_too_narrow_are_found():
    rank = np.linspace(0, 1, 100)[:, None]
    narrow = stats.norm.cdf(1.6 * stats.norm.ppf(np.clip(rank, 1e-6, 1 - 1e-6)))
    assert not faults(Calibrated(rank, Counter(), 0))
    assert len(faults(Calibrated(narrow, Counter(), 0))) == 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    asked = parser.parse_args()
    for name in asked.names:
        found = calibrated(name, asked.simulations)
        engines = ", ".join(f"{engine} {count}" for engine, count in found.engines.most_common())
        print(f"| {name} | {found.ranks.shape[1]} | {found.coverage:.1%} | {found.smallest:.2g} | "
              f"{engines} | {found.warned} | {'; '.join(faults(found))} |", flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()
