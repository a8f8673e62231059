"""Time series as users paste them: lagged inputs, a scan within a row, hidden Markov models, change
points."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import plate, sample

import probml
from user_truth import Case


@probml.model
def lagged(before):
    a, phi = sample("a", dist.Normal(0, 2)), sample("phi", dist.Uniform(-1, 1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with probml.rows():
        sample("y", dist.Normal(a + phi * before, sigma))


def walk(rng, n=60, phi=0.6):
    y = np.zeros(n)
    for t in range(1, n):
        y[t] = 0.3 + phi * y[t - 1] + 0.5 * rng.normal()
    return y


@probml.model
def two_lags(lags):
    a, phi = sample("a", dist.Normal(0, 2)), sample("phi",
                                                    dist.Normal(0, 1).expand([2]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with probml.rows():
        sample("y", dist.Normal(a + lags @ phi, sigma))


def with_lags(rng):
    y = walk(rng)
    return {"lags": np.stack([y[1:-1], y[:-2]], 1), "y": y[2:]}


@probml.model
def ar_by_shift(y0):
    """A row is a series; its own values, shifted, are the mean: y must be an input of itself, so it
    is taken twice."""
    a, phi, sigma = (sample("a", dist.Normal(0, 2)), sample("phi", dist.Normal(0, 1)),
                     sample("sigma", dist.HalfNormal(1)))
    with probml.rows():
        sample("y", dist.Normal(a + phi * y0, sigma).to_event(1))


@probml.model
def moving_average(y_in):
    """MA(1) by a scan within a row (Stan User's Guide 2.2), the series given as an input, its
    density as a factor of its own errors."""
    mu, theta = sample("mu", dist.Normal(0, 2)), sample("theta", dist.Uniform(-1, 1))
    sigma = sample("sigma", dist.HalfNormal(2))

    def step(e, y):
        now = mu + theta * e
        return y - now, now

    with probml.rows():
        if y_in.ndim > 1:
            _, mean = jax.lax.scan(step, jnp.zeros(y_in.shape[0]), y_in.T)
            mean = mean.T
        else:
            _, mean = jax.lax.scan(step, 0.0, y_in)
        sample("y", dist.Normal(mean, sigma).to_event(1))


@probml.model
def garch(r_in):
    """GARCH(1, 1) by vmap of a scan over each row's own steps."""
    a0 = sample("a0", dist.HalfNormal(1))
    a1, b1 = sample("a1", dist.Beta(2, 4)), sample("b1", dist.Beta(2, 2))

    def variance(r):
        def step(v, r):
            return a0 + a1 * jnp.square(r) + b1 * v, v

        return jax.lax.scan(step, 1.0, r)[1]

    with probml.rows():
        v = jax.vmap(variance)(r_in)
        sample("r", dist.Normal(0, jnp.sqrt(v)).to_event(1))


@probml.model
def exponential_smoothing(x):
    alpha, sigma = sample("alpha", dist.Beta(2, 2)), sample("sigma", dist.HalfNormal(2))

    def levels(series):
        then = lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1])  # noqa: E731
        return jax.lax.associative_scan(then,
                                        (jnp.full(series.shape, 1 - alpha), alpha * series))[1]

    with probml.rows():
        sample("y", dist.Normal(jax.vmap(levels)(x)[:, -1], sigma))


@probml.model
def cumulative_dose(dose):
    """What has been given so far, along the row's own axis."""
    e, s = sample("e", dist.Normal(0, 1)), sample("s", dist.HalfNormal(1))
    with probml.rows():
        sample("effect", dist.Normal(e * jnp.cumsum(dose, -1), s).to_event(1))


@probml.model
def walks_seen():
    s, m = sample("s", dist.Gamma(2.0, 2.0)), sample("m", dist.Normal(0, 1))
    with probml.rows():
        sample("y", dist.GaussianRandomWalk(s, 6))
        sample("level", dist.Normal(m, s))


@probml.model
def vector_autoregression(before):
    table = sample("table", dist.Normal(0, 1).expand([2, 2]).to_event(2))
    corr, spread = (sample("corr", dist.LKJCholesky(2, 2.0)),
                    sample("spread", dist.HalfNormal(1).expand([2]).to_event(1)))
    with probml.rows():
        sample("y", dist.MultivariateNormal(before @ table, scale_tril=jnp.diag(spread) @ corr))


@probml.model
def seasonal(t):
    c = sample("c", dist.Normal(0, 2).expand([4]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with probml.rows():
        w = 2 * jnp.pi * t / 12
        sample("y",
               dist.Normal(c[0] + c[1] * t / 100 + c[2] * jnp.sin(w) + c[3] * jnp.cos(w), sigma))


@probml.model
def logistic_growth(t):
    cap, r, mid = (sample("cap", dist.LogNormal(2, 1)), sample("r", dist.HalfNormal(1)),
                   sample("mid", dist.Normal(10, 5)))
    phi = sample("phi", dist.Gamma(4.0, 0.5))
    with probml.rows():
        sample("cases", dist.NegativeBinomial2(cap * 10 / (1 + jnp.exp(-r * (t - mid))), phi))


@probml.model
def epidemic(day):
    """SIR by Euler steps outside rows; rows read the day."""
    beta, gamma = sample("beta", dist.LogNormal(-0.5, 0.5)), sample("gamma",
                                                                    dist.LogNormal(-1.5, 0.5))

    def step(state, _):
        s, i = state
        new = beta * s * i
        return (s - new, i + new - gamma * i), new

    _, new = jax.lax.scan(step, (0.99, 0.01), None, length=20)
    with probml.rows():
        sample("cases", dist.Poisson(500 * new[day] + 1e-3))


def outbreak(rng):
    s, i, new = 0.99, 0.01, []
    for _ in range(20):
        n = 0.7 * s * i
        s, i = s - n, i + n - 0.25 * i
        new.append(n)
    return {"day": np.arange(20), "cases": rng.poisson(500 * np.array(new))}


def pairs(rng):
    y = np.zeros((60, 2))
    for t in range(1, 60):
        y[t] = y[t - 1] @ [[0.5, 0.2], [0.0, 0.6]] + 0.5 * rng.normal(size=2)
    return {"before": y[:-1], "y": y[1:]}


def several(rng, n=6, t=12):
    return np.stack([walk(rng, t) for _ in range(n)])


def series(name_in, name):
    def make(rng):
        y = several(rng)
        return {name_in: y, name: y}

    return make


def shifted(rng):
    y = several(rng)
    return {"y0": y[:, :-1], "y": y[:, 1:]}


def doses(rng):
    dose = rng.integers(0, 3, (10, 5))
    return {"dose": dose, "effect": 0.4 * np.cumsum(dose, 1) + 0.5 * rng.normal(size=(10, 5))}


def smoothed(rng):
    x = several(rng)
    return {"x": x, "y": x[:, -3:].mean(1) + 0.2 * rng.normal(size=6)}


@probml.model
def hidden_markov():
    initial = sample("initial", dist.Dirichlet(jnp.full(2, 2.0)))
    with plate("state", 2):
        transition = sample("transition", dist.Dirichlet(jnp.full(2, 2.0)))
        mean = sample("mean", dist.Normal(0, 3))
    sigma = sample("sigma", dist.InverseGamma(3.0, 2.0))
    with probml.rows():
        z = sample("z", probml.MarkovChain(initial, transition))
        sample("y", dist.Normal(mean[z], sigma).to_event(1))


@probml.model
def markov_regression(x):
    """A regression whose line switches along time."""
    with plate("state", 2):
        transition = sample("transition", dist.Dirichlet(jnp.full(2, 2.0)))
        a, b = sample("a", dist.Normal(0, 3)), sample("b", dist.Normal(0, 3))
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.full(2, 0.5), transition))
        sample("y", dist.Normal(a[z] + b[z] * x, 0.5).to_event(1))


@probml.model
def poisson_chain():
    with plate("state", 2):
        transition = sample("transition", dist.Dirichlet(jnp.full(2, 2.0)))
        rate = sample("rate", dist.Gamma(2.0, 0.5))
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.full(2, 0.5), transition))
        sample("storms", dist.Poisson(rate[z]).to_event(1))
        sample("calm", dist.Bernoulli(jnp.array([0.8, 0.3])[z]).to_event(1))


def paths(rng):
    z = (np.cumsum(rng.random((12, 5)) < 0.3, 1) % 2).astype(int)
    return {"y": np.array([-2.0, 2.0])[z] + 0.6 * rng.normal(size=z.shape)}


def paths_with_input(rng):
    z, x = (np.cumsum(rng.random((12, 5)) < 0.3, 1) % 2).astype(int), rng.normal(size=(12, 5))
    return {"x": x, "y": np.where(z == 1, 2 + x, -2 - x) + 0.4 * rng.normal(size=z.shape)}


def stormy(rng):
    z = (np.cumsum(rng.random((10, 5)) < 0.3, 1) % 2).astype(int)
    return {"storms": rng.poisson(np.array([1.0, 7.0])[z]),
            "calm": (rng.random(z.shape) < np.array([0.8, 0.3])[z]).astype(int)}


@probml.model
def change_point(year):
    """Coal mining disasters (Stan User's Guide): the year of the change is discrete and outside
    rows."""
    early, late = sample("early", dist.Exponential(0.5)), sample("late", dist.Exponential(0.5))
    s = sample("s", dist.Categorical(jnp.full(20, 0.05)))
    with probml.rows():
        sample("disasters", dist.Poisson(jnp.where(year < s, early, late)))


@probml.model
def change_point_uniform(year):
    early, late = sample("early", dist.Gamma(2.0, 1.0)), sample("late", dist.Gamma(2.0, 1.0))
    s = sample("s", dist.DiscreteUniform(0, 19))
    with probml.rows():
        sample("disasters", dist.Poisson(jnp.where(year < s, early, late)))


def disasters(rng):
    year = np.arange(20)
    return {"year": year, "disasters": rng.poisson(np.where(year < 8, 4.0, 1.0))}


CASES = [
    Case(lagged(), lambda rng: (lambda y: {"before": y[:-1], "y": y[1:]})(walk(rng)), quick=True),
    Case(two_lags(), with_lags),
    Case(ar_by_shift(), shifted),
    Case(moving_average(), series("y_in", "y")),
    Case(garch(), series("r_in", "r")),
    Case(exponential_smoothing(), smoothed),
    Case(cumulative_dose(), doses),
    Case(walks_seen(), lambda rng: {"y": np.cumsum(0.7 * rng.normal(size=(20, 6)), 1),
                                    "level": 0.5 + 0.7 * rng.normal(size=20)}),
    Case(vector_autoregression(), pairs),
    Case(seasonal(), lambda rng: {
        "t": np.arange(48), "y": np.sin(2 * np.pi * np.arange(48) / 12) + 0.3 * rng.normal(size=48)
    }),
    Case(logistic_growth(), lambda rng: {
        "t": np.arange(25), "cases": rng.poisson(80 / (1 + np.exp(-0.5 * (np.arange(25) - 12))))
    }),
    Case(epidemic(), outbreak),
    Case(hidden_markov(), paths, {"z": 2}, steps=5),
    Case(markov_regression(), paths_with_input, {"z": 2}, steps=5),
    Case(poisson_chain(), stormy, {"z": 2}, steps=5),
    Case(change_point(), disasters, {"s": 20}),
    Case(change_point_uniform(), disasters, {"s": 20}),
]
