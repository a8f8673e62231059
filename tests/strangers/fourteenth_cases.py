"""The other half of `thirteenth_cases.py`: programs of users of PyMC and brms, and of a teacher."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import polars as pl
import pytest
import scipy.stats as st
from eleventh_cases import first
from judged_by_nuts import Program, program
from ninth_cases import finite, logistic
from numpyro import deterministic, factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints
from numpyro.infer.reparam import LocScaleReparam

import probml
from first_cases import back


def rng(seed):
    return np.random.default_rng([3012, seed])


# ---- a user of PyMC --------------------------------------------------------------------------------


@program("reinforcement learning: lax.scan with cond under vmap × subjects × unequal values")
def learners_of_rewards():
    r = rng(1)
    people, trials = 14, 40
    rate, heat = logistic(-0.5 + 0.8 * r.normal(size=people)), np.exp(1.0 + 0.4 * r.normal(size=people))
    choice, reward = np.zeros((people, trials), int), np.zeros((people, trials))
    for i in range(people):
        q = np.full(2, 0.5)
        for t in range(trials):
            c = int(r.random() < logistic(heat[i] * (q[1] - q[0])))
            choice[i, t], reward[i, t] = c, float(r.random() < (0.3, 0.7)[c])
            q[c] += rate[i] * (reward[i, t] - q[c])

    def logits(rate, heat, choice, reward):
        def step(q, at):
            c, r = at
            moved = jax.lax.cond(c == 1, lambda q: q.at[1].add(rate * (r - q[1])),
                                 lambda q: q.at[0].add(rate * (r - q[0])), q)
            return moved, heat * (q[1] - q[0])

        return jax.lax.scan(step, jnp.full(2, 0.5), (choice, reward))[1]

    def parameters():
        middle = sample("middle", dist.Normal(jnp.array([-0.5, 1.0]), 1.0).to_event(1))
        return middle, sample("sd", dist.HalfNormal(0.7).expand([2]).to_event(1))

    def learning(choice, reward, picked=None):
        middle, sd = parameters()
        with plate("people", choice.shape[0]):
            own = sample("own", dist.Normal(middle, sd).to_event(1))
            eta = jax.vmap(logits)(jax.nn.sigmoid(own[:, 0]), jnp.exp(own[:, 1]), choice, reward)
            deterministic("p", jax.nn.sigmoid(eta))
            sample("picked", dist.Bernoulli(logits=eta).to_event(1), obs=picked)

    def plain():
        middle, sd = parameters()
        e = sample("e", dist.Normal(0.0, 1.0).expand([people, 2]).to_event(2))
        own = middle + sd * e
        eta = jax.vmap(logits)(jax.nn.sigmoid(own[:, 0]), jnp.exp(own[:, 1]), choice, reward)
        log = jnp.where(choice == 1, jax.nn.log_sigmoid(eta), jax.nn.log_sigmoid(-eta))
        factor("picked", log.sum())
        deterministic("chances", jax.nn.sigmoid(eta[:3, 30:]))

    def ask(fit, data):
        made = fit.simulate(choice=choice, reward=data["reward"], seed=1)["picked"]
        finite(made, (people, trials), "simulate")
        with pytest.raises(probml.Refusal, match="no plate of independent rows"):
            fit.log_prob(data)  # numbers of each person stand in the plate

    data = {"choice": choice, "reward": reward.astype(np.float32), "picked": choice}
    answers = {"chances": lambda fit: np.asarray(fit.draws(2000)["p"]).mean(0)[:3, 30:]}
    return Program(probml.model(learning)(), data, plain, {}, None, ask, answers=answers)


@program("gifts of pairs: correlated giving and receiving × a latent pair of each row × a missing side")
def gifts_of_households():
    r = rng(2)
    homes = 11
    one, two = np.array([(i, j) for i in range(homes) for j in range(i)]).T
    n = len(one)
    u = r.multivariate_normal([0, 0], [[0.5, -0.1], [-0.1, 0.3]], homes)
    d = r.multivariate_normal([0, 0], [[0.4, 0.25], [0.25, 0.4]], n)
    near = r.normal(size=n)
    ab = r.poisson(np.exp(0.6 + 0.3 * near + u[one, 0] + u[two, 1] + d[:, 0])).astype(float)
    ba = r.poisson(np.exp(0.6 + 0.3 * near + u[two, 0] + u[one, 1] + d[:, 1])).astype(float)
    holes = np.array([3, 17, 30, 44])
    true, ba[holes] = ba[holes], np.nan

    def parameters():
        a, b = sample("a", dist.Normal(0.0, 1.0)), sample("b", dist.Normal(0.0, 1.0))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        root = sample("root", dist.LKJCholesky(2, 3.0))
        wide, share = sample("wide", dist.HalfNormal(1.0)), sample("share", dist.Beta(4.0, 4.0))
        rho = 2 * share - 1
        low = wide * jnp.stack([jnp.array([1.0, 0.0]), jnp.stack([rho, jnp.sqrt(1 - rho**2)])])
        return a, b, sd[:, None] * root, low

    @probml.model
    def gifts(one, two, near):
        a, b, root, low = parameters()
        with plate("homes", homes):
            u = sample("u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root))
        with probml.rows():
            d = sample("d", dist.MultivariateNormal(jnp.zeros(2), scale_tril=low))
            sample("ab", dist.Poisson(jnp.exp(a + b * near + u[one, 0] + u[two, 1] + d[..., 0])))
            sample("ba", dist.Poisson(jnp.exp(a + b * near + u[two, 0] + u[one, 1] + d[..., 1])))

    there = ~np.isnan(ba)

    def plain():
        a, b, root, low = parameters()
        e = sample("e", dist.Normal(0.0, 1.0).expand([homes, 2]).to_event(2))
        f = sample("f", dist.Normal(0.0, 1.0).expand([n, 2]).to_event(2))
        u, d = deterministic("u", e @ root.T), f @ low.T
        give = jnp.exp(a + b * near + u[one, 0] + u[two, 1] + d[:, 0])
        back = jnp.exp(a + b * near + u[two, 0] + u[one, 1] + d[:, 1])
        sample("ab", dist.Poisson(give).to_event(1), obs=jnp.asarray(ab))
        sample("ba", dist.Poisson(back[there]).to_event(1), obs=jnp.asarray(ba[there]))
        mean = jnp.exp(a + b * near + u[two, 0] + u[one, 1] + 0.5 * (low[1] ** 2).sum())
        deterministic("back", mean[:5])

    def ask(fit, data):
        filled = np.asarray(fit.impute(data)["ba"])
        assert np.isfinite(filled).all() and len(true) == 4
        assert "root" in fit.to_arviz().posterior

    data = {"one": one, "two": two, "near": near, "ab": ab, "ba": ba}
    new = first(data, 5, "ab", "ba")
    return Program(gifts(), data, plain, {}, None, ask,
                   answers={"back": lambda fit: fit.predict(new, "ba")})


@program("Gaussian process over a matrix of distances, an input that has no rows × counts × years")
def tools_of_islands():
    r = rng(3)
    islands, years = 11, 3
    at = r.uniform(0, 3, (islands, 2))
    distance = np.sqrt(((at[:, None] - at[None]) ** 2).sum(-1))
    island, people = np.repeat(np.arange(islands), years), r.lognormal(1.0, 0.7, islands * years)
    k = r.multivariate_normal(np.zeros(islands), 0.4 * np.exp(-0.5 * distance**2) + 1e-9 * np.eye(islands))
    y = r.poisson(np.exp(1.0 + 0.5 * np.log(people) + k[island])).astype(float)
    y[[4, 18]] = np.nan

    def covariance(distance):
        height = sample("height", dist.Exponential(2.0))
        length = sample("length", dist.InverseGamma(4.0, 3.0))
        square = height * jnp.exp(-0.5 * (distance / length) ** 2)
        return square + 1e-4 * jnp.eye(distance.shape[0])

    def tools(distance, island, people, y=None):
        a, b = sample("a", dist.Normal(0.0, 1.5)), sample("b", dist.Normal(0.0, 0.5))
        k = sample("k", dist.MultivariateNormal(0.0, covariance_matrix=covariance(distance)))
        with plate("n", island.shape[0]):
            sample("y", dist.Poisson(jnp.exp(a + k[island]) * people**b), obs=y)

    there = ~np.isnan(y)

    def plain():
        a, b = sample("a", dist.Normal(0.0, 1.5)), sample("b", dist.Normal(0.0, 0.5))
        root = jnp.linalg.cholesky(covariance(distance))
        k = deterministic("k", root @ sample("e", dist.Normal(0.0, 1.0).expand([islands]).to_event(1)))
        mean = jnp.exp(a + k[island]) * people**b
        sample("y", dist.Poisson(mean[there]).to_event(1), obs=jnp.asarray(y[there]))
        deterministic("mean", jnp.exp(a + k[jnp.array([0, 4, 9])]) * 2.0**b)
        deterministic("density", jnp.exp(dist.Poisson(mean[5:9]).log_prob(y[5:9])))

    def ask(fit, data):
        made = fit.simulate(distance=distance, island=island, people=people, seed=1)["y"]
        finite(made, (islands * years,), "simulate")

    data = {"distance": distance, "island": island, "people": people, "y": y}
    new = {"distance": distance, "island": np.array([0, 4, 9]), "people": np.full(3, 2.0)}
    some = {"distance": distance} | {k: data[k][5:9] for k in ("island", "people", "y")}
    answers = {"mean": lambda fit: fit.predict(new, "y"),
               "density": lambda fit: np.exp(fit.log_prob(some))}
    return Program(probml.model(tools)(), data, plain, {}, None, ask, answers=answers)


class GeneralizedExtremes(dist.Distribution):
    """A user's own class, whose support moves with its parameters, and which says no mean."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "xi": constraints.real}
    support = constraints.real

    def __init__(self, loc, scale, xi, *, validate_args=None):
        shape = jnp.broadcast_shapes(*map(jnp.shape, (loc, scale, xi)))
        self.loc, self.scale, self.xi = (jnp.broadcast_to(v, shape) for v in (loc, scale, xi))
        super().__init__(batch_shape=shape, event_shape=(), validate_args=validate_args)

    def sample(self, key, sample_shape=()):
        e = -jnp.log(jax.random.uniform(key, sample_shape + self.batch_shape, minval=1e-6))
        return self.loc + self.scale * jnp.expm1(-self.xi * jnp.log(e)) / self.xi

    def log_prob(self, value):
        t = 1 + self.xi * (value - self.loc) / self.scale
        log = jnp.log(jnp.where(t > 0, t, 1.0)) / self.xi
        return jnp.where(t > 0, -jnp.log(self.scale) - (1 + self.xi) * log - jnp.exp(-log), -jnp.inf)


@program("extreme values of the user's own class × stations × trend × missing years")
def floods_of_stations():
    r = rng(4)
    stations, years = 9, 20
    station, year = np.repeat(np.arange(stations), years), np.tile(np.linspace(-1, 1, years), stations)
    u = 0.6 * r.normal(size=stations)
    y = st.genextreme.rvs(-0.15, 3.0 + u[station] + 0.4 * year, 0.8, random_state=r)
    y[r.random(len(y)) < 0.1] = np.nan

    def parameters():
        a, b = sample("a", dist.Normal(3.0, 2.0)), sample("b", dist.Normal(0.0, 1.0))
        sd, s = sample("sd", dist.HalfNormal(1.0)), sample("s", dist.LogNormal(0.0, 0.5))
        return a, b, sd, s, sample("xi", dist.TruncatedNormal(0.1, 0.2, low=0.0))

    @probml.model
    def floods(station, year):
        a, b, sd, s, xi = parameters()
        with plate("stations", stations):
            u = sample("u", dist.Normal(0.0, sd))
        deterministic("century", a + s * (jnp.power(-jnp.log(0.99), -xi) - 1) / xi)
        with probml.rows():
            sample("y", GeneralizedExtremes(a + b * year + u[station], s, xi))

    there = ~np.isnan(y)

    def plain():
        a, b, sd, s, xi = parameters()
        u = deterministic("u", sd * sample("e", dist.Normal(0.0, 1.0).expand([stations]).to_event(1)))
        own = GeneralizedExtremes((a + b * year + u[station])[there], s, xi)
        log = own.log_prob(jnp.asarray(y[there]))
        factor("y", log.sum())
        deterministic("density", jnp.exp(log[:6]))
        deterministic("level", a + s * (jnp.power(-jnp.log(0.99), -xi) - 1) / xi)

    def ask(fit, data):
        made = np.asarray(fit.simulate(station=station, year=year, seed=3)["y"])
        finite(made, (len(y),), "simulate")
        low, high = fit.predict(first(data, 5, "y"), "y", interval=0.9)[1:]
        assert (np.asarray(low) < np.asarray(high)).all()

    data = {"station": station, "year": year, "y": y}
    some = {k: v[there][:6] for k, v in data.items()}
    answers = {"density": lambda fit: np.exp(fit.log_prob(some)),
               "level": lambda fit: np.mean(fit.draws(4000, seed=3)["century"])}
    return Program(floods(), data, plain, {}, None, ask, ("xi",), answers=answers)


@program("quarters and a level by scan with partial × a regressor × a table indexed by dates × gaps")
def quarters_of_sales():
    r = rng(5)
    n = 52
    x = r.normal(size=n)
    level = 5.0 + np.cumsum(0.15 * r.normal(size=n))
    y = level + np.tile([1.0, -0.5, -1.2, 0.7], n // 4) + 0.4 * x + 0.3 * r.normal(size=n)
    y[[9, 10, 30, 41]] = np.nan

    def parameters():
        b = sample("b", dist.Normal(0.0, 1.0))
        return b, sample("q", dist.HalfNormal(jnp.array([0.3, 0.2])).to_event(1)), sample(
            "s", dist.HalfNormal(1.0))

    def step(b, q, s, carry, at):
        level, one, two, three = carry
        x, y = at
        level = sample("level", dist.Normal(level, q[0]))
        season = sample("season", dist.Normal(-one - two - three, q[1]))
        y = sample("y", dist.Normal(level + season + b * x, s), obs=y)
        return (level, season, one, two), y

    def sales(x, y=None):
        b, q, s = parameters()
        start = sample("start", dist.Normal(jnp.array([5.0, 0.0, 0.0, 0.0]), 2.0).to_event(1))
        scan(partial(step, b, q, s), tuple(start), (x, y))

    there = ~np.isnan(y)

    def plain():
        b, q, s = parameters()

        def means(w):
            def move(carry, e):
                level, one, two, three = carry
                level, season = level + q[0] * e[0], -one - two - three + q[1] * e[1]
                return (level, season, one, two), level + season

            start = jnp.array([5.0, 0.0, 0.0, 0.0]) + 2 * w[:4]
            return jax.lax.scan(move, tuple(start), w[4:].reshape(n, 2))[1]

        zero = jnp.zeros(4 + 2 * n)  # the states are linear in what moves them
        mean, by = means(zero), jax.jacfwd(means)(zero)
        own = (by @ by.T)[there][:, there] + s**2 * jnp.eye(there.sum())
        away = jnp.asarray(y[there]) - (mean + b * x)[there]
        sample("y", dist.MultivariateNormal(jnp.zeros(there.sum()), own), obs=away)

    def ask(fit, data):
        back(fit, fit.model)
        for question in (lambda: fit.forecast(data, steps=4, x=np.ones(4)), lambda: fit.impute(data)):
            with pytest.raises(probml.Refusal, match="no plate of independent rows"):
                question()

    data = pd.DataFrame({"x": x, "y": y}, index=pd.date_range("2012-01-01", periods=n, freq="QS"))
    return Program(probml.model(sales)(), data, plain, {}, None, ask)


@program("regimes by scan × moves that a covariate drives × one carry of two × missing steps")
def regimes_of_a_river():
    r = rng(6)
    n = 90
    x, z = r.normal(size=n), np.zeros(n, int)
    for t in range(1, n):
        z[t] = r.random() < logistic((-1.5, 1.5)[z[t - 1]] + 1.2 * x[t])
    y = np.array([0.0, 2.0])[z] + np.array([0.6, 1.0])[z] * r.normal(size=n)
    y[r.random(n) < 0.08] = np.nan

    def parameters():
        c = sample("c", dist.Normal(jnp.array([-1.0, 1.0]), 1.0).to_event(1))
        d = sample("d", dist.Normal(0.0, 1.0))
        m = sample("m", dist.Normal(jnp.array([0.0, 2.0]), 0.7).to_event(1))
        return c, d, m, sample("s", dist.HalfNormal(1.0).expand([2]).to_event(1))

    def regimes(x, y=None):
        c, d, m, s = parameters()

        def step(z, at):
            x, y = at
            z = sample("z", dist.Bernoulli(logits=c[z] + d * x))
            sample("y", dist.Normal(m[z], s[z]), obs=y)
            return z, None

        scan(step, 0, (x, y))

    there = ~np.isnan(y)

    def plain():
        c, d, m, s = parameters()
        own = dist.Normal(m, s).log_prob(jnp.asarray(np.nan_to_num(y))[:, None])
        own = jnp.where(there[:, None], own, 0.0)
        up = c + d * x[:, None]
        move = jnp.stack([jax.nn.log_sigmoid(-up), jax.nn.log_sigmoid(up)], -1)

        def total(own):
            alpha = move[0, 0] + own[0]
            for t in range(1, n):
                alpha = jax.nn.logsumexp(alpha[:, None] + move[t], 0) + own[t]
            return jax.nn.logsumexp(alpha)

        factor("y", total(own))
        deterministic("states", jax.grad(total)(own)[::9])

    def ask(fit, data):
        assert (np.asarray(fit.decode(data)["z"]).ravel() == z).mean() > 0.75

    data = {"x": x, "y": y}
    answers = {"states": lambda fit: np.asarray(fit.predict_proba(data, "z")).reshape(n, 2)[::9]}
    return Program(probml.model(regimes)(), data, plain, {}, None, ask, answers=answers)


# ---- a user of brms --------------------------------------------------------------------------------


@program("Dirichlet regression × vectors of effects × arrays of float32 × rows without an answer")
def diets_of_birds():
    r = rng(7)
    n, groups = 72, 9
    site, x = np.arange(n) % groups, r.normal(size=n).astype(np.float32)
    u = 0.4 * r.normal(size=(groups, 2))
    eta = np.concatenate([np.array([0.5, -0.3]) + np.outer(x, [0.6, -0.4]) + u[site], np.zeros((n, 1))], 1)
    p = np.exp(eta) / np.exp(eta).sum(1, keepdims=True)
    y = np.array([r.dirichlet(12 * q) for q in p]).clip(1e-4)
    y = (y / y.sum(1, keepdims=True)).astype(np.float32)
    y[[2, 30, 55]] = np.nan

    def parameters():
        a = sample("a", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        return a, b, sd, sample("phi", dist.Gamma(2.0, 0.1))

    def shares(a, b, u, x):
        eta = a + x[:, None] * b + u
        return jax.nn.softmax(jnp.concatenate([eta, jnp.zeros_like(eta[:, :1])], 1))

    @probml.model
    def diets(site, x):
        a, b, sd, phi = parameters()
        with plate("sites", groups):
            u = sample("u", dist.Normal(0.0, sd).to_event(1))
        with probml.rows():
            sample("y", dist.Dirichlet(phi * shares(a, b, u[site], x)))

    there = ~np.isnan(y[:, 0])

    def plain():
        a, b, sd, phi = parameters()
        e = sample("e", dist.Normal(0.0, 1.0).expand([groups, 2]).to_event(2))
        u = deterministic("u", sd * e)
        p = shares(a, b, u[site], jnp.asarray(x))
        own = jnp.asarray(y[there], float)
        sample("y", dist.Dirichlet(phi * p[there]).to_event(1), obs=own / own.sum(1, keepdims=True))
        deterministic("holes", p[~there])

    def ask(fit, data):
        made = np.asarray(fit.simulate(site=site, x=x, seed=5)["y"], float)
        assert made.shape == (n, 3) and abs(made.sum(1) - 1).max() < 1e-4

    data = {"site": site.astype(np.uint8), "x": x, "y": y}
    answers = {"holes": lambda fit: fit.predict({"site": site[~there], "x": x[~there]}, "y")}
    return Program(diets(), data, plain, {}, None, ask, answers=answers)


@program("psychometric curves × lapses × binomial totals × subjects as categories × a new subject")
def thresholds_with_lapses():
    r = rng(8)
    people, levels = 12, 7
    who, x = np.repeat(np.arange(people), levels), np.tile(np.linspace(-1.5, 2.5, levels), people)
    trials = r.integers(8, 21, len(x))
    m, w = 0.3 + 0.5 * r.normal(size=people), np.exp(-0.5 + 0.3 * r.normal(size=people))
    y = r.binomial(trials, 0.5 + (0.5 - 0.04) * st.norm.cdf((x - m[who]) / w[who]))

    def parameters():
        lapse = sample("lapse", dist.Beta(1.0, 19.0))
        a = sample("a", dist.Normal(jnp.array([0.0, -0.5]), 1.0).to_event(1))
        return lapse, a, sample("sd", dist.HalfNormal(0.7).expand([2]).to_event(1))

    def right(lapse, own, x):
        return 0.5 + (0.5 - lapse) * jax.scipy.special.ndtr((x - own[..., 0]) / jnp.exp(own[..., 1]))

    @probml.model
    def curves(who, x, trials):
        lapse, a, sd = parameters()
        with plate("people", people):
            own = sample("own", dist.Normal(a, sd).to_event(1))
        with probml.rows():
            sample("y", dist.Binomial(trials, right(lapse, own[who], x)))

    def plain():
        lapse, a, sd = parameters()
        e = sample("e", dist.Normal(0.0, 1.0).expand([people + 1, 2]).to_event(2))
        own = a + sd * e
        deterministic("own", own[:people])
        sample("y", dist.Binomial(trials, right(lapse, own[who], x)).to_event(1), obs=jnp.asarray(y))
        deterministic("known", 10 * right(lapse, own[jnp.array([3, 7])], jnp.array([0.5, 1.0])))
        deterministic("stranger", 10 * right(lapse, own[people], jnp.array([0.5])))

    names = np.array([f"S{k}" for k in range(people)])
    category = pd.Categorical(names[who], categories=list(names[::-1]))
    frame = pd.DataFrame({"who": category, "x": x, "trials": trials, "y": y},
                         index=pd.Index(np.arange(len(x)) + 1000, name="row"))

    def ask(fit, data):
        low, high = fit.predict(frame.iloc[:4].drop(columns="y"), "y", interval=0.8)[1:]
        assert (np.asarray(high) <= trials[:4]).all() and (np.asarray(low) >= 0).all()

    known = {"who": ["S3", "S7"], "x": [0.5, 1.0], "trials": [10, 10]}
    stranger = {"who": ["S99"], "x": [0.5], "trials": [10]}
    turned = {"own": lambda fit: np.asarray(fit.draws(4000)["own"]).mean(0)[::-1]}
    answers = turned | {"known": lambda fit: fit.predict(known, "y"),
                        "stranger": lambda fit: fit.predict(stranger, "y", unknown="new")}
    return Program(curves(), frame, plain, {}, None, ask, answers=answers)


@program("ordered answers of text × reparam of the hotels' effects × three rooms × a pasted function")
def satisfied_guests():
    r = rng(9)
    n, hotels = 160, 12
    hotel, room, price = np.arange(n) % hotels, r.integers(0, 3, n), r.normal(size=n)
    eta = np.array([0.0, 0.5, 1.0])[room] - 0.6 * price + 0.7 * r.normal(size=hotels)[hotel]
    y = (eta[:, None] + r.logistic(size=(n, 1)) > np.array([-1.0, 0.3, 1.6])).sum(1)

    def parameters():
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        c, sd = sample("c", dist.Normal(0.0, 1.0)), sample("sd", dist.HalfNormal(1.0))
        cut = sample("cut", dist.TransformedDistribution(
            dist.Normal(0.0, 1.5).expand([3]).to_event(1), dist.transforms.OrderedTransform()))
        return jnp.concatenate([jnp.zeros(1), b]), c, sd, cut

    def guests(hotel, room, price, y=None):
        b, c, sd, cut = parameters()
        with plate("hotels", hotels):
            u = sample("u", dist.Normal(0.0, sd))
        with plate("n", hotel.shape[0]):
            sample("y", dist.OrderedLogistic(b[room] + c * price + u[hotel], cut), obs=y)

    def plain():
        b, c, sd, cut = parameters()
        u = deterministic("u", sd * sample("e", dist.Normal(0.0, 1.0).expand([hotels]).to_event(1)))
        own = dist.OrderedLogistic(b[room] + c * price + u[hotel], cut)
        factor("y", own.log_prob(jnp.asarray(y)).sum())
        deterministic("chances", dist.OrderedLogistic(
            b[np.array([0, 2])] + c * np.array([0.0, 1.0]) + u[np.array([4, 8])], cut).probs)

    words = ["poor", "fair", "good", "best"]
    kinds = ["single", "double", "suite"]
    frame = pd.DataFrame({"hotel": np.array([f"h{k:02d}" for k in range(hotels)])[hotel],
                          "room": pd.Categorical.from_codes(room, kinds), "price": price,
                          "y": pd.Categorical.from_codes(y, words, ordered=True)}).sample(
                              frac=1, random_state=2)

    def ask(fit, data):
        assert list(fit.labels("y")) == words
        assert len(probml.compare({"one": fit}, frame)) == 1

    new = {"hotel": ["h04", "h08"], "room": ["single", "suite"], "price": [0.0, 1.0]}
    centred = handlers.reparam(guests, config={"u": LocScaleReparam(0)})
    return Program(probml.model(centred)(), frame, plain, {}, None, ask,
                   answers={"chances": lambda fit: fit.predict_proba(new, "y")})


@program("mean and width with correlated effects of litters × log-normal widths × an odd index")
def spread_of_litters():
    r = rng(10)
    n, litters = 156, 13
    litter, x = np.arange(n) % litters, r.normal(size=n)
    u = r.multivariate_normal([0, 0], [[0.5, 0.2], [0.2, 0.2]], litters)
    y = 20 + 1.0 * x + u[litter, 0] + np.exp(-0.4 + 0.2 * x + u[litter, 1]) * r.normal(size=n)

    def parameters():
        a = sample("a", dist.Normal(jnp.array([20.0, 0.0]), 5.0).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        return a, b, sd[:, None] * sample("root", dist.LKJCholesky(2, 2.0))

    @probml.model
    def weights(litter, x):
        a, b, root = parameters()
        with plate("litters", litters):
            u = sample("u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root))
        with probml.rows():
            mean, log = a[0] + b[0] * x + u[litter, 0], a[1] + b[1] * x + u[litter, 1]
            sample("y", dist.Normal(mean, jnp.exp(log)))

    def plain():
        a, b, root = parameters()
        e = sample("e", dist.Normal(0.0, 1.0).expand([litters, 2]).to_event(2))
        u = deterministic("u", e @ root.T)
        own = dist.Normal(a[0] + b[0] * x + u[litter, 0], jnp.exp(a[1] + b[1] * x + u[litter, 1]))
        log = own.log_prob(jnp.asarray(y))
        factor("y", log.sum())
        deterministic("density", jnp.exp(log[:6]))
        deterministic("below", own.cdf(19.0)[:6])

    names = [f"litter {k}" for k in range(litters)]
    frame = pd.DataFrame({"litter": pd.Categorical([names[k] for k in litter], categories=names),
                          "x": x, "y": y}, index=pd.Index(r.permutation(n) * 7, name="animal"))

    def below(fit):
        made = np.stack([np.asarray(fit.simulate(litter=frame["litter"], x=frame["x"], seed=k)["y"])[:6]
                         for k in range(1500)])
        return (made < 19.0).mean(0)

    def ask(fit, data):
        back(fit, fit.model)

    answers = {"density": lambda fit: np.exp(fit.log_prob(frame.iloc[:6])), "below": below}
    return Program(weights(), frame, plain, {}, None, ask, answers=answers)


# ---- a teacher -------------------------------------------------------------------------------------


@program("nested choice × inputs of three axes × scales of nests × tastes of persons × a price of one")
def nested_choices():
    r = rng(11)
    n, persons = 150, 25
    who, goods = np.arange(n) % persons, r.normal(size=(n, 4, 2))
    nest = np.array([0, 0, 1, 1])

    def chances(goods, beta, own, scale):
        def one(goods, own):
            v = (goods @ beta + jnp.array([0.0, 0.3, own, own])) / scale[nest]
            inside = jnp.stack([jax.nn.logsumexp(v[:2]), jax.nn.logsumexp(v[2:])])
            outer = jax.nn.log_softmax(scale * inside)
            return jnp.exp(v - inside[nest] + outer[nest])

        return jax.vmap(one)(goods, own)

    beta, scale = jnp.array([-1.0, 0.6]), jnp.array([0.5, 0.8])
    p = np.asarray(chances(goods, beta, (0.6 * r.normal(size=persons))[who], scale), float)
    y = np.array([r.choice(4, p=q / q.sum()) for q in p])

    def parameters():
        beta = sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        scale = sample("scale", dist.Beta(3.0, 2.0).expand([2]).to_event(1))
        return beta, scale, sample("mean", dist.Normal(0.0, 1.0)), sample("sd", dist.HalfNormal(1.0))

    @probml.model
    def choices(who, goods):
        beta, scale, mean, sd = parameters()
        with plate("persons", persons):
            u = sample("u", dist.Normal(mean, sd))
        with probml.rows():
            sample("y", dist.Categorical(chances(goods, beta, u[who], scale)))

    dear = goods[:5].copy()
    dear[:, 1, 0] += 1.0

    def plain():
        beta, scale, mean, sd = parameters()
        e = sample("e", dist.Normal(0.0, 1.0).expand([persons]).to_event(1))
        u = deterministic("u", mean + sd * e)
        p = chances(goods, beta, u[who], scale)
        factor("y", jnp.log(p[np.arange(n), y]).sum())
        deterministic("dear", chances(dear, beta, u[who[:5]], scale))

    def ask(fit, data):
        finite(fit.log_prob(data), (n,), "log_prob")
        finite(fit.simulate(who=who, goods=goods, seed=3)["y"], (n,), "simulate")

    data = {"who": who, "goods": goods, "y": y}
    return Program(choices(), data, plain, {}, None, ask,
                   answers={"dear": lambda fit: fit.predict_proba({"who": who[:5], "goods": dear}, "y")})


@program("MixtureSameFamily × gate by a covariate × Poisson with exposure × f-strings × a polars table")
def kinds_of_visitors():
    r = rng(12)
    n = 140
    x, days = r.normal(size=n), r.integers(1, 6, n)
    kind = (r.random(n) < logistic(-0.3 + 1.0 * x)).astype(int)
    y = r.poisson(days * np.exp(np.array([-0.3, 1.6])[kind] + np.array([0.3, -0.1])[kind] * x))

    def visits(x, days, y=None):
        a = [sample(f"a_{k}", dist.Normal(1.5 * k, 0.7)) for k in range(2)]
        b = {k: sample(f"b_{k}", dist.Normal(0.0, 0.5)) for k in range(2)}
        gate = sample("gate", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        logits = jnp.stack([jnp.zeros(x.shape), gate[0] + gate[1] * x], -1)
        rate = jnp.stack([days * jnp.exp(a[k] + b[k] * x) for k in range(2)], -1)
        with plate("n", x.shape[0]):
            sample("y", dist.MixtureSameFamily(dist.Categorical(logits=logits), dist.Poisson(rate)),
                   obs=y)

    def plain():
        a = jnp.stack([sample(f"a_{k}", dist.Normal(1.5 * k, 0.7)) for k in range(2)])
        b = jnp.stack([sample(f"b_{k}", dist.Normal(0.0, 0.5)) for k in range(2)])
        gate = sample("gate", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        second = jax.nn.sigmoid(gate[0] + gate[1] * x)
        share = jnp.stack([1 - second, second], -1)
        rate = days[:, None] * jnp.exp(a + b * x[:, None])
        log = jax.nn.logsumexp(jnp.log(share) + dist.Poisson(rate).log_prob(jnp.asarray(y)[:, None]), 1)
        factor("y", log.sum())
        deterministic("mean", (share * rate).sum(1)[:5])
        deterministic("density", jnp.exp(log[:5]))

    def ask(fit, data):
        low, high = fit.predict(table[:5].drop("y"), "y", interval=0.9)[1:]
        assert (np.asarray(low) <= np.asarray(high)).all()

    table = pl.DataFrame({"x": x, "days": days, "y": y})
    answers = {"mean": lambda fit: fit.predict(table[:5].drop("y"), "y"),
               "density": lambda fit: np.exp(fit.log_prob(table[:5]))}
    return Program(probml.model(visits)(), table, plain, {}, None, ask, answers=answers)
