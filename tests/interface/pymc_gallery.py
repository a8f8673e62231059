"""Models of PyMC's gallery of examples, written for NumPyro on small data."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers, plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import LocScaleReparam
from written_elsewhere import table

RNG = np.random.default_rng(3)
CASES, case = table()
N = 8
X, Y, B, C = (RNG.normal(size=(N, 2)), RNG.normal(size=N), RNG.integers(2, size=N),
              RNG.poisson(2.0, size=N))
COUNTY = np.arange(N) % 3


@case(county=COUNTY, floor=B.astype(float), log_radon=Y)
@handlers.reparam(config={"a": LocScaleReparam(0)})
def radon(county, floor, log_radon):
    mu, tau = sample("mu_a", dist.Normal(0, 1)), sample("sigma_a", dist.Exponential(1))
    with plate("county", 3):
        a = sample("a", dist.Normal(mu, tau))
    b, sigma = sample("beta", dist.Normal(0, 10)), sample("sigma_y", dist.Exponential(1))
    with plate("obs_id", len(county)):
        theta = numpyro.deterministic("theta", a[county] + b * floor)
        sample("y", dist.Normal(theta, sigma), obs=log_radon)


@case(control=Y, drug=Y[:5] + 1)
def best(control, drug):
    with plate("group", 2):
        mean = sample("mean", dist.Normal(0, 2))
        std = sample("std", dist.Uniform(1, 10))
    nu = 1.0 + sample("nu_minus_one", dist.Exponential(1 / 29.0))
    sample("control", dist.StudentT(nu, mean[0], std[0]), obs=control)
    sample("drug", dist.StudentT(nu, mean[1], std[1]), obs=drug)
    numpyro.deterministic("difference", mean[0] - mean[1])


@case(y=C)
def coal_mining(y):
    switch = sample("switchpoint", dist.DiscreteUniform(0, len(y) - 1))
    early, late = (sample(name, dist.Exponential(1.0)) for name in ("early", "late"))
    sample("disasters", dist.Poisson(jnp.where(switch >= jnp.arange(len(y)), early, late)), obs=y)


@case(n=np.array([20, 20, 19]), y=np.array([0, 1, 3]))
def rat_tumours(n, y):
    ab = sample("ab", dist.Gamma(1.0, 0.1).expand([2]))
    numpyro.factor("p(a, b)", -2.5 * jnp.log(ab.sum()) + 0.1 * ab.sum())
    with plate("rats", len(n)):
        theta = sample("theta", dist.Beta(ab[0], ab[1]))
        sample("y", dist.Binomial(n, theta), obs=y)


@case(x=X[:, 0], y=Y)
def robust_lines(x, y):
    """Hogg's signal against noise: each point is an outlier or not."""
    b = sample("b", dist.Normal(0, 10).expand([2]).to_event(1))
    s_in, s_out = sample("sigma_in", dist.HalfNormal(1)), sample("sigma_out", dist.HalfNormal(10))
    m_out, share = sample("mu_out", dist.Normal(0, 10)), sample("share", dist.Uniform(0, 0.5))
    with plate("points", len(x)):
        out = sample("outlier", dist.Bernoulli(share))
        line = b[0] + b[1] * x
        sample("y", dist.Normal(jnp.where(out, m_out, line), jnp.where(out, s_out, s_in)), obs=y)


@case(x=X, y=B)
def spike_and_slab(x, y):
    d = x.shape[1]
    with plate("features", d):
        inside = sample("inside", dist.Bernoulli(0.3))
        beta = sample("beta", dist.Normal(0, 2))
    with plate("n", len(y)):
        sample("y", dist.Bernoulli(logits=x @ (inside * beta)), obs=y)


@case(y=Y, settings={"k": 4})
def dirichlet_process(y, k):
    alpha = sample("alpha", dist.Gamma(1.0, 1.0))
    v = sample("beta", dist.Beta(1, alpha).expand([k - 1]).to_event(1))
    left = jnp.concatenate([jnp.ones(1), jnp.cumprod(1 - v)])
    w = numpyro.deterministic("w", jnp.concatenate([v, jnp.ones(1)]) * left)
    with plate("component", k):
        mu, tau = sample("mu", dist.Normal(0, 3)), sample("tau", dist.Gamma(2.0, 1.0))
    mixture = dist.MixtureSameFamily(dist.Categorical(w), dist.Normal(mu, 1 / jnp.sqrt(tau)))
    sample("obs", mixture.expand([len(y)]), obs=y)


@case(y=Y)
def marginalised_mixture(y):
    w = sample("w", dist.Dirichlet(jnp.ones(3)))
    mu = sample("mu", dist.Normal(0, 10).expand([3]).to_event(1))
    with plate("n", len(y)):
        sample("y", dist.MixtureGeneral(dist.Categorical(w), [dist.Normal(mu[i], 1.0)
                                                             for i in range(3)]), obs=y)


@case(time=np.abs(Y) + 0.1, event=B, metastasised=COUNTY.astype(float))
def weibull_survival(time, event, metastasised):
    b = sample("beta", dist.Normal(0, 5).expand([2]).to_event(1))
    s = sample("s", dist.HalfNormal(5))
    eta = b[0] + b[1] * metastasised
    d = dist.Gumbel(eta, s)
    y = np.log(time)
    with handlers.mask(mask=event == 1):
        sample("observed", d, obs=y)
    numpyro.factor("censored", jnp.where(event == 0, jnp.log1p(-d.cdf(y)), 0.0).sum())


@case(sold=C, price=X[:, 0])
def negative_binomial_regression(sold, price):
    b, phi = sample("b", dist.Normal(0, 1).expand([2]).to_event(1)), sample("phi", dist.Exponential(1))
    with plate("n", len(sold)):
        sample("sold", dist.NegativeBinomial2(jnp.exp(b[0] + b[1] * price), phi), obs=sold)


@case(user=np.array([0, 0, 1, 2, 2]), film=np.array([0, 1, 1, 0, 2]),
      rating=RNG.normal(size=5), settings={"d": 2})
def matrix_factorisation(user, film, rating, d):
    with plate("users", 3):
        u = sample("u", dist.Normal(0, 1).expand([d]).to_event(1))
    with plate("films", 3):
        v = sample("v", dist.Normal(0, 1).expand([d]).to_event(1))
    with plate("ratings", len(rating)):
        sample("rating", dist.Normal((u[user] * v[film]).sum(-1), 0.5), obs=rating)


@case(home=np.array([0, 1, 2, 0]), away=np.array([1, 2, 0, 2]), goals=np.array([[3, 1], [0, 0],
                                                                              [2, 2], [1, 4]]))
def rugby(home, away, goals):
    edge, base = sample("home", dist.Normal(0, 1)), sample("intercept", dist.Normal(3, 1))
    sd = sample("sd", dist.HalfCauchy(2.5))
    with plate("team", 3):
        attack = sample("attack_raw", dist.Normal(0, sd))
        defence = sample("defence_raw", dist.Normal(0, sd))
    attack, defence = attack - attack.mean(), defence - defence.mean()
    with plate("matches", len(home)):
        sample("home_points", dist.Poisson(jnp.exp(base + edge + attack[home] + defence[away])),
               obs=goals[:, 0])
        sample("away_points", dist.Poisson(jnp.exp(base + attack[away] + defence[home])),
               obs=goals[:, 1])


@case(x=X[:, 0], m=X[:, 1], y=Y)
def moderation(x, m, y):
    b = sample("b", dist.Normal(0, 1).expand([4]).to_event(1))
    sigma = sample("sigma", dist.HalfCauchy(1))
    sample("y", dist.Normal(b[0] + b[1] * x + b[2] * x * m + b[3] * m, sigma), obs=y)


@case(cases=np.array([4, 2, 7]), expected=np.array([3.0, 2.5, 5.0]),
      adjacency=np.array([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]]))
def conditional_autoregression(cases, expected, adjacency):
    tau, alpha = sample("tau", dist.Gamma(2.0, 2.0)), sample("alpha", dist.Uniform(0, 1))
    phi = sample("phi", dist.CAR(0.0, alpha, tau, adjacency))
    b = sample("b", dist.Normal(0, 1))
    with plate("areas", len(cases)):
        sample("cases", dist.Poisson(expected * jnp.exp(b + phi)), obs=cases)


@case(y=Y)
def random_walk_in_a_loop(y):
    sigma, x = sample("sigma", dist.HalfNormal(1)), 0.0
    for t in range(len(y)):
        x = sample(f"x_{t}", dist.Normal(x, sigma))
        sample(f"y_{t}", dist.Normal(x, 0.5), obs=y[t])


@case(y=np.array([0.2, 0.1, 2.1, 1.9, 2.2]))
def regimes(y):
    p = sample("p", dist.Beta(10, 2).expand([2]).to_event(1))
    mu = sample("mu", dist.Normal(0, 2).expand([2]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(1))

    def step(s, v):
        s = sample("s", dist.Bernoulli(jnp.where(s == 1, p[1], 1 - p[0])))
        sample("y", dist.Normal(mu[s], sigma), obs=v)
        return s, None

    scan(step, jnp.asarray(0), y)


@case(x=X[:, 0], knots=np.linspace(-1, 1, 3), y=Y)
def spline(x, knots, y):
    basis = jnp.maximum(x[:, None] - knots, 0.0)
    a, s = sample("a", dist.Normal(0, 5)), sample("sigma", dist.Exponential(1))
    w = sample("w", dist.Normal(0, 3).expand([3]).to_event(1))
    mu = numpyro.deterministic("mu", a + basis @ w)
    sample("D", dist.Normal(mu, s), obs=y)


@case(y=RNG.normal(size=(5, 3)), settings={"k": 2})
def factor_analysis(y, k):
    d = y.shape[1]
    w = sample("W", dist.Normal(0, 1).expand([d, k]).to_event(2))
    psi = sample("psi", dist.HalfNormal(1))
    with plate("rows", len(y)):
        f = sample("F", dist.Normal(0, 1).expand([k]).to_event(1))
        sample("X", dist.Normal(f @ w.T, psi).to_event(1), obs=y)


@case(treated=B, score=X[:, 0], outcome=Y)
def causal_with_do(treated, score, outcome):
    """A model with an intervention around a part of it."""
    def part(score):
        p = sample("propensity", dist.Normal(0, 1))
        return sample("t", dist.Bernoulli(logits=p * score), obs=treated)

    t = handlers.do(part, data={"t": treated})(score)
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    sample("y", dist.Normal(b[0] * t + b[1] * score, 1.0), obs=outcome)


@case(time=np.arange(6.0), y=RNG.normal(size=6))
def trend_with_changepoints(time, y):
    k, m = sample("k", dist.Normal(0, 1)), sample("m", dist.Normal(0, 5))
    at = jnp.linspace(1.0, 4.0, 2)
    delta = sample("delta", dist.Laplace(0, 0.5).expand([2]).to_event(1))
    after = (time[:, None] > at).astype(float)
    g = (k + after @ delta) * time + m + after @ (-at * delta)
    sample("y", dist.Normal(g, sample("sigma", dist.HalfNormal(1))), obs=y)


@case(y=jax.device_get(jnp.asarray(Y)), weights=np.arange(1.0, N + 1))
def weighted_rows(y, weights):
    m = sample("m", dist.Normal(0, 1))
    with plate("n", len(y)), handlers.scale(scale=weights):
        sample("y", dist.Normal(m, 1.0), obs=y)
