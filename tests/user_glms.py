"""Generalised linear, censored and zero-inflated regressions as users paste them, from the Stan
User's Guide and textbooks."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import factor, handlers, plate, sample

import probml
from user_truth import Case


@probml.model
def kidscore(mom_iq, mom_hs):
    b = sample("b", dist.Normal(0.0, 10.0).expand([4]).to_event(1))
    sigma = sample("sigma", dist.HalfCauchy(2.5))
    with probml.rows():
        sample("kid_score",
               dist.Normal(b[0] + b[1] * mom_iq + b[2] * mom_hs + b[3] * mom_iq * mom_hs, sigma))


def kids(rng):
    iq, hs = rng.normal(0, 1.5, 60), rng.integers(0, 2, 60)
    return {"mom_iq": iq, "mom_hs": hs,
            "kid_score": 8 + 0.6 * iq + 0.5 * hs - 0.2 * iq * hs + rng.normal(size=60)}


@probml.model
def poisson_offset(exposure, treated):
    a = sample("a", dist.Normal(0.0, 2.0))
    b = sample("b", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("roaches", dist.Poisson(jnp.exp(jnp.log(exposure) + a + b * treated)))


def roaches(rng):
    u, t = rng.uniform(0.5, 3, 50), rng.integers(0, 2, 50)
    return {"exposure": u, "treated": t, "roaches": rng.poisson(u * np.exp(1 - 0.5 * t))}


@probml.model
def negative_binomial(x):
    alpha = sample("alpha", dist.Normal(0.0, 2.0))
    beta = sample("beta", dist.Normal(0.0, 1.0))
    inverse_phi = sample("inverse_phi", dist.Exponential(1.0))
    with probml.rows():
        sample("y", dist.NegativeBinomial2(jnp.exp(alpha + beta * x), 1.0 / inverse_phi))


def overdispersed(rng):
    x = rng.normal(size=80)
    return {"x": x, "y": rng.poisson(np.exp(1 + 0.4 * x) * rng.gamma(2.0, 0.5, 80))}


@probml.model
def binomial_totals(dose, total):
    alpha, beta = sample("alpha", dist.Normal(0, 10)), sample("beta", dist.Normal(0, 10))
    with probml.rows():
        sample("dead", dist.Binomial(total, logits=alpha + beta * dose))


def bioassay(rng):  # Racine et al. 1986, as in Gelman et al., section 3.7
    return {"dose": [-0.86, -0.3, -0.05, 0.73], "total": [5, 5, 5, 5], "dead": [0, 1, 3, 5]}


@probml.model
def binomial_plate(total):
    with plate("hospital", 5):
        p = sample("p", dist.Beta(2.0, 2.0))
    with probml.rows():
        sample("deaths", dist.Binomial(jnp.asarray(total), p).to_event(1))


@probml.model
def beta_regression(x):
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    phi = sample("phi", dist.Gamma(2.0, 0.1))
    mu = jax.nn.sigmoid(b[0] + b[1] * x)
    with probml.rows():
        sample("rate", dist.Beta(mu * phi, (1 - mu) * phi))


def rates(rng):
    x = rng.normal(size=60)
    mu = 1 / (1 + np.exp(-0.3 - 0.8 * x))
    return {"x": x, "rate": rng.beta(15 * mu, 15 * (1 - mu))}


@probml.model
def beta_proportion(x):
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    phi = sample("phi", dist.LogNormal(2.0, 1.0))
    with probml.rows():
        sample("rate", dist.BetaProportion(jax.nn.sigmoid(b[0] + b[1] * x), phi))


@probml.model
def gamma_regression(x):
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    shape = sample("shape", dist.Exponential(0.5))
    with probml.rows():
        sample("claim", dist.Gamma(shape, shape * jnp.exp(-b[0] - b[1] * x)))


def claims(rng):
    x = rng.normal(size=60)
    return {"x": x, "claim": rng.gamma(3.0, np.exp(0.5 + 0.4 * x) / 3.0)}


@probml.model
def ordered_logistic(x):
    beta = sample("beta", dist.Normal(0, 1))
    cut = sample("cut", dist.TransformedDistribution(dist.Normal(0, 3).expand([3]).to_event(1),
                                                     dist.transforms.OrderedTransform()))
    with probml.rows():
        sample("rating", dist.OrderedLogistic(beta * x, cut))


def ratings(rng):
    x = rng.normal(size=80)
    return {"x": x, "rating": np.digitize(1.2 * x + rng.logistic(size=80), [-1.5, 0.2, 1.8])}


@probml.model
def robust_regression(x):
    a, b = sample("a", dist.Normal(0, 5)), sample("b", dist.Normal(0, 5))
    sigma = sample("sigma", dist.HalfNormal(2.0))
    nu = sample("nu", dist.Gamma(2.0, 0.1))
    with probml.rows():
        sample("y", dist.StudentT(nu, a + b * x, sigma))


def outliers(rng):
    x = rng.normal(size=70)
    return {"x": x, "y": 1 + 2 * x + 0.5 * rng.standard_t(3, 70)}


@probml.model
def censored_weibull(age):
    a, b = sample("a", dist.Normal(0, 2)), sample("b", dist.Normal(0, 1))
    shape = sample("shape", dist.Gamma(2.0, 1.0))
    with probml.rows():
        sample("time", dist.Weibull(jnp.exp(a + b * age), shape))


@probml.model
def right_censored(age, censored):
    a, b = sample("a", dist.Normal(0, 2)), sample("b", dist.Normal(0, 1))
    shape = sample("shape", dist.Gamma(2.0, 1.0))
    with probml.rows():
        sample("time",
               dist.RightCensoredDistribution(dist.Weibull(jnp.exp(a + b * age), shape), censored))


def survival(rng):
    age = rng.normal(size=60)
    time = np.exp(1 - 0.4 * age) * rng.weibull(1.5, 60)
    return {"age": age, "censored": time > 4, "time": np.minimum(time, 4.0)}


@probml.model
def censored_by_factor(age, censored):
    a, b = sample("a", dist.Normal(0, 2)), sample("b", dist.Normal(0, 1))
    with probml.rows():
        rate = jnp.exp(a + b * age)
        with handlers.mask(mask=censored == 0):
            sample("time", dist.Exponential(rate))
        factor("survived", jnp.where(censored == 1, -4.0 * rate, 0.0))


@probml.model
def truncated_outcome():
    mu, sigma = sample("mu", dist.Normal(0, 5)), sample("sigma", dist.HalfNormal(3))
    with probml.rows():
        sample("y", dist.TruncatedNormal(mu, sigma, low=0.0))


@probml.model
def zero_inflated(x):
    gate = sample("gate", dist.Beta(2, 2))
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    with probml.rows():
        sample("fish", dist.ZeroInflatedPoisson(gate, jnp.exp(b[0] + b[1] * x)))


def fish(rng):
    x = rng.normal(size=80)
    return {"x": x, "fish": rng.poisson(np.exp(1 + 0.5 * x)) * (rng.random(80) > 0.3)}


@probml.model
def hurdle(x):
    p = sample("p", dist.Beta(1.5, 1.5))
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    with probml.rows():
        positive = sample("positive", dist.Bernoulli(p))
        rate = jnp.exp(b[0] + b[1] * x)
        with handlers.mask(mask=positive == 1):
            sample("fish", dist.Poisson(rate))
        factor("truncation", -positive * jnp.log1p(-jnp.exp(-rate)))


def hurdled(rng):
    data = fish(rng)
    return {**data, "positive": (data["fish"] > 0).astype(int)}


CASES = [
    Case(kidscore(), kids, quick=True),
    Case(poisson_offset(), roaches, quick=True),
    Case(negative_binomial(), overdispersed),
    Case(binomial_totals(), bioassay),
    Case(
        binomial_plate(total=(20, 30, 25, 10, 40)),
        lambda rng: {"deaths": rng.binomial([20, 30, 25, 10, 40], 0.3)[None]},
        truth="posterior",
    ),
    Case(beta_regression(), rates),
    Case(beta_proportion(), rates),
    Case(gamma_regression(), claims),
    Case(ordered_logistic(), ratings),
    Case(robust_regression(), outliers),
    Case(censored_weibull(),
         lambda rng: {k: v for k, v in survival(rng).items() if k != "censored"}),
    Case(right_censored(), survival),
    Case(censored_by_factor(), survival),
    Case(truncated_outcome(), lambda rng: {"y": np.abs(1.0 + 1.5 * rng.normal(size=60))}),
    Case(zero_inflated(), fish),
    Case(hurdle(), hurdled),
]
