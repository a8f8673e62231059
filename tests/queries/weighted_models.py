"""Models with numpyro.factor inside rows, each with what is true of it by NumPy: a reader adds one
by a function and a line of CASES.

The oracle of a case is the log weight of each value of a site in each row, as the model is written
and with the values that its factors cut off left out: all else (means, quantiles, probabilities) is
arithmetic on that table.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import factor, sample
from scipy import stats

import probml

RNG = np.random.default_rng(8)
COUNTS = np.arange(400)
LINE = np.linspace(-30, 60, 90001)
POSITIVE = np.linspace(1e-6, 120, 120001)


class Case(NamedTuple):
    """
    Attributes:
        site: that is asked for, seen in `data`.
        values: of it, or nodes.
        log: (parameters, the data, values (m,)) → (n or 1, m) log weights.
        quick: part of the short run.
    """

    model: Any
    data: Mapping[str, np.ndarray]
    site: str
    values: np.ndarray
    log: Callable
    quick: bool = False
    name: str = ""

    def __repr__(self) -> str:
        return self.name or self.model.name

    def table(self, params: Mapping[str, Any], data: Mapping[str, np.ndarray]) -> np.ndarray:
        """The normalised weights, (n, m)."""
        n = len(next(iter(data.values()))) if data else 1
        logs = np.broadcast_to(self.log(params, data, self.values), (n, len(self.values)))
        share = np.exp(logs - logs.max(1, keepdims=True))
        return share / share.sum(1, keepdims=True)


CASES: list[Case] = []


def case(site: str, values: np.ndarray, log: Callable, quick: bool = False, settings: Any = None,
         **data: np.ndarray) -> Callable:
    def keep(function: Callable) -> Callable:
        CASES.append(Case(probml.model(function)(**(settings or {})), data, site, values, log,
                          quick, function.__name__))
        return function

    return keep


def above(log: np.ndarray, values: np.ndarray, low: Any) -> np.ndarray:
    return np.where(values > np.reshape(low, (-1, 1)), log, -np.inf)


def drawn(draw: Callable, keep: Callable, n: int) -> np.ndarray:
    out = draw(500 + 20 * n)
    return out[keep(out)][:n]


X = RNG.normal(size=60)
BEDS = RNG.uniform(0.5, 1.5, 60)
DAYS = np.array([drawn(lambda k, b=b: RNG.poisson(b, k), lambda y: y > 0, 1)[0] for b in BEDS])


@case("days", COUNTS, lambda p, d, v: above(
    stats.poisson.logpmf(v, p["rate"] * d["beds"][:, None]), v, 0), beds=BEDS, days=DAYS)
def zero_truncated_poisson(beds):
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    with probml.rows():
        sample("days", dist.Poisson(rate * beds))
        factor("truncated", -jnp.log1p(-jnp.exp(-rate * beds)))


@case("days", COUNTS, lambda p, d, v: above(stats.poisson.logpmf(v, p["rate"]), v, 0), True,
      days=DAYS)
def zero_truncated_alike_in_all_rows():
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    with probml.rows():
        sample("days", dist.Poisson(rate))
        factor("truncated", -jnp.log1p(-jnp.exp(-rate)))


@case("y", COUNTS, lambda p, d, v: np.where(v <= 6, stats.poisson.logpmf(v, p["rate"]), -np.inf),
      y=drawn(lambda n: RNG.poisson(5.0, n), lambda y: y <= 6, 60))
def counts_up_to_six():
    rate = sample("rate", dist.Gamma(2.0, 0.5))
    with probml.rows():
        sample("y", dist.Poisson(rate))
        factor("cut", -jnp.log(jax.scipy.special.gammaincc(7.0, rate)))


@case("y", COUNTS, lambda p, d, v: np.where((v >= 2) & (v <= 5),
                                            stats.poisson.logpmf(v, p["rate"]), -np.inf),
      y=drawn(lambda n: RNG.poisson(3.0, n), lambda y: (y >= 2) & (y <= 5), 60))
def counts_from_two_to_five():
    rate = sample("rate", dist.Gamma(2.0, 0.5))
    with probml.rows():
        sample("y", dist.Poisson(rate))
        inside = dist.Poisson(rate).log_prob(jnp.arange(2, 6)[:, None])
        factor("cut", -jax.nn.logsumexp(inside, axis=0))


@case("y", COUNTS, lambda p, d, v: above(
    stats.nbinom.logpmf(v, p["k"], p["k"] / (p["k"] + p["mean"])), v, 0),
      y=drawn(lambda n: RNG.negative_binomial(2, 0.5, n), lambda y: y > 0, 80))
def zero_truncated_negative_binomial():
    mean, k = sample("mean", dist.LogNormal(0.0, 1.0)), sample("k", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        y = dist.NegativeBinomial2(mean, k)
        sample("y", y)
        factor("cut", -jnp.log1p(-jnp.exp(y.log_prob(0))))


ENTRY = RNG.uniform(-1, 1, 60)


@case("y", LINE, lambda p, d, v: above(stats.norm.logpdf(v, p["mu"], p["sd"]), v, d["entry"]),
      True, entry=ENTRY,
      y=np.array([drawn(lambda n: RNG.normal(0.5, 1, n), lambda y, a=a: y > a, 1)[0]
                  for a in ENTRY]))
def entered_late(entry):
    mu, sd = sample("mu", dist.Normal(0.0, 2.0)), sample("sd", dist.HalfNormal(2.0))
    with probml.rows():
        y = dist.Normal(mu, sd)
        sample("y", y)
        factor("entered", -jax.scipy.special.log_ndtr((mu - entry) / sd))


@case("y", LINE, lambda p, d, v: np.where(
    (v > -1) & (v < 2), stats.norm.logpdf(v, p["mu"], p["sd"]), -np.inf),
      y=drawn(lambda n: RNG.normal(1.0, 1.5, n), lambda y: (y > -1) & (y < 2), 80))
def between_two_numbers():
    mu, sd = sample("mu", dist.Normal(0.0, 2.0)), sample("sd", dist.HalfNormal(2.0))
    with probml.rows():
        y = dist.Normal(mu, sd)
        sample("y", y)
        factor("cut", -jnp.log(y.cdf(2.0) - y.cdf(-1.0)))


LAST = RNG.uniform(0.5, 3, 60)


@case("delay", POSITIVE, lambda p, d, v: np.where(
    v <= d["last"][:, None], stats.expon.logpdf(v, scale=1 / p["rate"]), -np.inf), last=LAST,
      delay=np.array([drawn(lambda n: RNG.exponential(1.0, n), lambda y, a=a: y < a, 1)[0]
                      for a in LAST]))
def reported_in_time(last):
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    with probml.rows():
        sample("delay", dist.Exponential(rate))
        factor("reported", -jnp.log1p(-jnp.exp(-rate * last)))


@case("y", LINE, lambda p, d, v: above(stats.norm.logpdf(
    v, p["a"] + p["b"] * d["x"][:, None], p["sd"]), v, 0), x=X, y=np.array(
    [drawn(lambda n, x=x: RNG.normal(0.5 + x, 1, n), lambda y: y > 0, 1)[0] for x in X]))
def truncated_regression(x):
    a, b = sample("a", dist.Normal(0.0, 2.0)), sample("b", dist.Normal(0.0, 2.0))
    sd = sample("sd", dist.HalfNormal(2.0))
    with probml.rows():
        mean = a + b * x
        y = sample("y", dist.Normal(mean, sd))
        factor("cut", jnp.where(y > 0, -jax.scipy.special.log_ndtr(mean / sd), -jnp.inf))


@case("y", LINE, lambda p, d, v: stats.norm.logpdf(v, p["mu"], 2.0) - 0.5 * (v - 3) ** 2, True,
      y=RNG.normal(2, 1, 40))
def a_soft_constraint():
    mu = sample("mu", dist.Normal(0.0, 2.0))
    with probml.rows():
        y = sample("y", dist.Normal(mu, 2.0))
        factor("near", -0.5 * (y - 3) ** 2)


@case("y", POSITIVE, lambda p, d, v: stats.gamma.logpdf(v, 2.0, scale=1 / p["rate"]) - 0.5 * v,
      y=RNG.gamma(2.0, 1.0, 40))
def a_tilt():
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    with probml.rows():
        y = sample("y", dist.Gamma(2.0, rate))
        factor("tilt", -0.5 * y)


@case("y", POSITIVE, lambda p, d, v: above(stats.lognorm.logpdf(
    v, 0.5, scale=np.exp(p["mu"])), v, 1.0),
      y=drawn(lambda n: RNG.lognormal(0.3, 0.5, n), lambda y: y > 1, 60))
def incomes_above_one():
    mu = sample("mu", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.LogNormal(mu, 0.5))
        factor("cut", -jax.scipy.special.log_ndtr(mu / 0.5))


@case("k", np.arange(6), lambda p, d, v: above(stats.binom.logpmf(v, 5, p["p"]), v, 0),
      k=drawn(lambda n: RNG.binomial(5, 0.3, n), lambda y: y > 0, 60))
def seen_at_least_once():
    p = sample("p", dist.Beta(1.0, 1.0))
    with probml.rows():
        sample("k", dist.Binomial(5, p))
        factor("seen", -jnp.log1p(-((1 - p) ** 5)))


def _two_kinds(p, d, v):
    logs = [np.log(w) + stats.poisson.logpmf(v, r) - np.log1p(-np.exp(-r))
            for w, r in zip((0.4, 0.6), np.asarray(p["rate"]), strict=True)]
    return above(np.logaddexp(*logs), v, 0)


@case("y", COUNTS, _two_kinds, y=np.r_[drawn(lambda n: RNG.poisson(0.5, n), lambda y: y > 0, 40),
                                       RNG.poisson(9.0, 60)])
def truncated_mixture():
    rate = sample("rate", dist.Gamma(jnp.array([1.0, 8.0]), 1.0).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.array([0.4, 0.6])))
        sample("y", dist.Poisson(rate[z]))
        factor("cut", -jnp.log1p(-jnp.exp(-rate[z])))


W = RNG.uniform(0.5, 3, 50)


@case("y", LINE, lambda p, d, v: d["w"][:, None] * stats.norm.logpdf(v, p["mu"], p["sd"]), w=W,
      y=RNG.normal(1, 2, 50))
def weighted_likelihood(w):
    mu, sd = sample("mu", dist.Normal(0.0, 2.0)), sample("sd", dist.HalfNormal(3.0))
    with probml.rows():
        y = dist.Normal(mu, sd)
        value = sample("y", y)
        factor("weight", (w - 1) * y.log_prob(value))


@case("y", LINE, lambda p, d, v: 0.7 + stats.norm.logpdf(v, p["mu"], 1.0), True,
      y=RNG.normal(1, 1, 30))
def a_constant():
    mu = sample("mu", dist.Normal(0.0, 2.0))
    with probml.rows():
        sample("y", dist.Normal(mu, 1.0))
        factor("constant", 0.7)


T, EVENT = RNG.exponential(1.0, 50), RNG.integers(0, 2, 50)


@case("y", LINE, lambda p, d, v: stats.norm.logpdf(v, p["mu"], 1.0) + (
    d["event"] * p["mu"] - d["t"] * np.exp(p["mu"]))[:, None], t=T, event=EVENT,
      y=RNG.normal(0, 1, 50))
def a_survival_time_beside(t, event):
    mu = sample("mu", dist.Normal(0.0, 2.0))
    with probml.rows():
        sample("y", dist.Normal(mu, 1.0))
        factor("survival", event * mu - t * jnp.exp(mu))


@case("y", np.arange(3), lambda p, d, v: np.log(np.asarray(p["w"])) + d["x"][:, None] * (v == 1),
      x=X, y=RNG.integers(0, 3, 60))
def classes_that_a_factor_favours(x):
    w = sample("w", dist.Dirichlet(2.0 * jnp.ones(3)))
    with probml.rows():
        y = sample("y", dist.Categorical(w))
        factor("favour", x * (y == 1))
