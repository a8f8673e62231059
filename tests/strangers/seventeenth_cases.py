"""Case studies of Stan's site and vignettes of lme4, glmmTMB and brms, three mechanisms together in each, as
README's user writes them. Written before any of them was run.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import scipy.special
import scipy.stats as st
from fifteenth_cases import normals
from judged_by_nuts import Program, program
from ninth_cases import finite, logistic
from numpyro import deterministic, factor, plate, sample
from oracles_of_strangers import close

import probml
from first_cases import back, case


def rng(seed):
    return np.random.default_rng([113, seed])


# ---- Stan's case studies ---------------------------------------------------------------------------


@program("golf: chances by a normal cdf of a geometry × effects of greens × nullable totals × a new green")
def golf_of_greens():
    r = rng(1)
    greens, feet = 9, np.tile(np.arange(2.0, 20.0, 3.0), 9).astype(np.float32)
    green = np.repeat(np.arange(greens), 6)
    width = np.exp(-3.6 + 0.25 * r.normal(size=greens))
    edge = np.arcsin((2.125 - 0.84) / 12 / feet)
    total = r.integers(10, 80, len(feet))
    y = r.binomial(total, scipy.special.erf(edge / width[green] / np.sqrt(2))).astype(float)
    y[[4, 17]] = np.nan

    def parameters():
        return sample("mu", dist.Normal(-3.5, 0.5)), sample("tau", dist.HalfNormal(0.5))

    def chance(feet, u):
        edge = jnp.arcsin((2.125 - 0.84) / 12 / feet)
        return 2 * jax.scipy.stats.norm.cdf(edge * jnp.exp(-u)) - 1

    @probml.model
    def putts(green, feet, total):
        mu, tau = parameters()
        with plate("greens", greens):
            u = sample("u", dist.Normal(mu, tau))
        with probml.rows():
            sample("y", dist.Binomial(total, chance(feet, u[green])))

    there = ~np.isnan(y)

    def plain():
        mu, tau = parameters()
        u = mu + tau * normals("e", greens + 1)
        deterministic("u", u[:greens])
        p = chance(feet, u[green])
        sample("y", dist.Binomial(total[there], p[there]).to_event(1), obs=jnp.asarray(y[there]))
        deterministic("holes", (total * p)[~there])
        deterministic("stranger", 100 * chance(jnp.array([3.0, 30.0]), u[greens]))
        deterministic("density", jnp.exp(dist.Binomial(total[:3], p[:3]).log_prob(y[:3])))

    names = np.array([f"green {k}" for k in range(greens)])
    frame = pd.DataFrame({"green": names[green], "feet": feet, "total": pd.array(total, "Int16"),
                          "y": pd.array(y, "Int64")}, index=pd.Index(np.arange(54) * 3 + 100, name="putt"))
    new = pd.DataFrame({"green": ["new"] * 2, "feet": np.float32([3, 30]), "total": pd.array([100, 100], "Int16")})

    def ask(fit, data):
        made = fit.simulate(seed=2, **{k: new[k].replace("new", "green 1") for k in new})["y"]
        assert ((np.asarray(made, float) >= 0) & (np.asarray(made, float) <= 100)).all()

    answers = {"holes": lambda fit: np.asarray(fit.predict(frame[~there], "y"), float),
               "stranger": lambda fit: fit.predict(new, "y", unknown="new"),
               "density": lambda fit: np.exp(fit.log_prob(frame.iloc[:3]))}
    return Program(putts(), frame, plain, {}, None, ask, ("tau",), answers=answers)


@program("soil: two pools that decay × a share by Beta × effects of cores on a rate × lognormal × holes")
def soil_of_cores():
    r = rng(2)
    cores, days = 7, np.array([1.0, 3, 7, 14, 28, 56, 84])
    core, day = np.repeat(np.arange(cores), 7), np.tile(days, cores)
    fast = np.exp(-1.2 + 0.4 * r.normal(size=cores))
    mean = 7700 * (0.15 * (1 - np.exp(-fast[core] * day)) + 0.85 * (1 - np.exp(-0.004 * day)))
    y = mean * np.exp(0.08 * r.normal(size=49))
    y[r.random(49) < 0.1] = np.nan
    y[core == 6] = np.nan

    def parameters():
        share = sample("share", dist.Beta(2.0, 8.0))
        slow = sample("slow", dist.LogNormal(-5.5, 0.7))
        mu, tau = sample("mu", dist.Normal(-1.0, 1.0)), sample("tau", dist.HalfNormal(0.7))
        return share, slow, mu, tau, sample("sigma", dist.HalfNormal(0.3))

    def released(share, slow, fast, day):
        return 7700 * (share * -jnp.expm1(-fast * day) + (1 - share) * -jnp.expm1(-slow * day))

    @probml.model
    def incubation(core, day):
        share, slow, mu, tau, sigma = parameters()
        with plate("cores", cores):
            log_fast = sample("log_fast", dist.Normal(mu, tau))
        with probml.rows():
            mean = released(share, slow, jnp.exp(log_fast[core]), day)
            sample("co2", dist.LogNormal(jnp.log(mean), sigma))

    there = ~np.isnan(y)

    def plain():
        share, slow, mu, tau, sigma = parameters()
        log_fast = deterministic("log_fast", mu + tau * normals("e", cores))
        mean = released(share, slow, jnp.exp(log_fast[core]), day)
        sample("co2", dist.LogNormal(jnp.log(mean[there]), sigma).to_event(1), obs=jnp.asarray(y[there]))
        late = released(share, slow, jnp.exp(log_fast[jnp.array([0, 6])]), 168.0)
        deterministic("late", late * jnp.exp(sigma**2 / 2))
        deterministic("density", jnp.exp(dist.LogNormal(jnp.log(mean[:3]), sigma).log_prob(y[:3])))

    data = {"core": [f"core {k}" for k in core], "day": day, "co2": y}
    late = {"core": ["core 0", "core 6"], "day": [168.0, 168.0]}

    def ask(fit, data):
        low, high = fit.predict(late, "co2", interval=0.9)[1:]
        assert high[1] - low[1] > 0 and (np.asarray(low) > 1000).all()

    answers = {"late": lambda fit: fit.predict(late, "co2"),
               "density": lambda fit: np.exp(fit.log_prob({k: v[:3] for k, v in data.items()}))}
    return Program(incubation(), data, plain, {}, None, ask, answers=answers)


@program("batting: chances by Beta with a Pareto concentration × years uncentred × weights × update")
def batters_by_position():
    r = rng(3)
    players, positions = 24, 3
    player = np.repeat(np.arange(players), 2)
    year = np.tile([1998, 2020], players)
    p = r.beta(20, 60, players)
    at_bats = r.integers(30, 200, len(player))
    hits = r.binomial(at_bats, logistic(np.log(p / (1 - p))[player] + 0.01 * (year - 2009)))

    def parameters():
        kappa = sample("kappa", dist.Pareto(1.0, 1.5))
        phi = sample("phi", dist.Beta(2.0, 5.0).expand([positions]).to_event(1))
        return kappa, phi, sample("trend", dist.Normal(0.0, 0.05))

    def line(p, trend, year):
        return jnp.log(p) - jnp.log1p(-p) + trend * (year - 2009)

    @probml.model
    def batting(player, year, at_bats):
        kappa, phi, trend = parameters()
        with plate("players", players):
            own = np.arange(players) % positions
            p = sample("p", dist.Beta(kappa * phi[own], kappa * (1 - phi[own])))
        with probml.rows():
            sample("hits", dist.Binomial(at_bats, logits=line(p[player], trend, year)))

    weights = np.where(np.arange(len(player)) % 5 == 0, 0.5, 1.0)

    def plain():
        kappa, phi, trend = parameters()
        own = np.arange(players) % positions
        p = sample("p", dist.Beta(kappa * phi[own], kappa * (1 - phi[own])).to_event(1))
        logits = line(p[player], trend, year)
        log = dist.Binomial(jnp.asarray(at_bats), logits=logits).log_prob(jnp.asarray(hits))
        factor("hits", (weights * log).sum())
        deterministic("mean", 100 * jax.nn.sigmoid(line(p[:2], trend, jnp.array([2021.0, 2021.0]))))
        deterministic("density", jnp.exp(log[2:5]))

    names = np.array([f"b{k:02d}" for k in range(players)])
    frame = pd.DataFrame({"player": names[player], "year": year.astype(np.int16), "at_bats": at_bats, "hits": hits})
    new = pd.DataFrame({"player": ["b00", "b01"], "year": np.int16([2021, 2021]), "at_bats": [100, 100]})

    def ask(fit, data):
        again = back(fit, fit.model)
        np.testing.assert_allclose(again.predict(new, "hits"), fit.predict(new, "hits"), rtol=1e-3)
        assert "kappa" in fit.to_arviz().posterior

    answers = {"mean": lambda fit: fit.predict(new, "hits"),
               "density": lambda fit: np.exp(fit.log_prob(frame.iloc[2:5]))}
    return Program(batting(), frame, plain, {}, None, ask, ("kappa",), weights=weights, answers=answers)


@program("2PL with regressions: difficulty by features of items × ability by covariates × holes × new person")
def items_with_features():
    r = rng(4)
    persons, items = 45, 8
    feature = np.stack([np.linspace(-1, 1, items), np.arange(items) % 2], 1)
    person, item = map(np.ravel, np.meshgrid(np.arange(persons), np.arange(items), indexing="ij"))
    age = r.normal(size=persons)
    theta = 0.5 * age + r.normal(size=persons)
    slope = np.exp(0.3 * r.normal(size=items))
    b = feature @ [1.0, -0.5] + 0.4 * r.normal(size=items)
    y = (r.random(len(person)) < logistic(slope[item] * (theta[person] - b[item]))).astype(float)
    y[r.random(len(y)) < 0.15] = np.nan
    y[person == 44] = np.nan

    def parameters():
        by_age = sample("by_age", dist.Normal(0.0, 1.0))
        gamma = sample("gamma", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        return by_age, gamma, sample("s_slope", dist.HalfNormal(0.5)), sample("s_b", dist.HalfNormal(1.0))

    @probml.model
    def explanatory(person, item, age):
        by_age, gamma, s_slope, s_b = parameters()
        with plate("items", items):
            slope = sample("slope", dist.LogNormal(0.0, s_slope))
            b = sample("b", dist.Normal(feature @ gamma, s_b))
        with plate("persons", persons):
            rest = sample("rest", dist.Normal(0.0, 1.0))
        with probml.rows():
            theta = by_age * age + rest[person]
            sample("right", dist.Bernoulli(logits=slope[item] * (theta - b[item])))

    there = ~np.isnan(y)

    def plain():
        by_age, gamma, s_slope, s_b = parameters()
        slope = deterministic("slope", jnp.exp(s_slope * normals("es", items)))
        b = deterministic("b", feature @ gamma + s_b * normals("eb", items))
        rest = normals("er", persons + 1)
        deterministic("rest", rest[:persons])
        theta = by_age * age + rest[:persons]
        p = jax.nn.sigmoid(slope[item] * (theta[person] - b[item]))
        factor("y", jnp.log(jnp.where(y == 1, p, 1 - p))[there].sum())
        deterministic("known", p[:8])
        deterministic("stranger", jax.nn.sigmoid(slope[:2] * (2 * by_age + rest[persons] - b[:2])))

    frame = pd.DataFrame({"person": [f"p{k:03d}" for k in person], "item": pd.Categorical.from_codes(
        item, [f"item {k}" for k in range(items)]), "age": age[person],
        "right": pd.array(np.where(there, y == 1, None), "boolean")})
    new = pd.DataFrame({"person": ["new", "new"], "item": ["item 0", "item 1"], "age": [2.0, 2.0]})

    def ask(fit, data):
        finite(fit.log_prob(frame.iloc[:9]), (9,), "log_prob")
        assert fit.impute(frame)["right"].notna().all()

    answers = {"known": lambda fit: np.asarray(fit.predict_proba(frame.iloc[:8].drop(columns="right"), "right"))[:, 1],
               "stranger": lambda fit: np.asarray(fit.predict_proba(new, "right", unknown="new"))[:, 1]}
    return Program(explanatory(), frame, plain, {}, None, ask, answers=answers)


@program("BYM2 map: structured effects by a matrix × plain effects × a share of both × offset × a hole")
def lips_of_counties():
    r = rng(5)
    side, n = 5, 25
    at = np.stack(np.divmod(np.arange(n), side), 1)
    near = np.abs(at[:, None] - at[None]).sum(-1) == 1
    q = np.diag(near.sum(1)) - near
    cover = np.linalg.pinv(q.astype(float))
    cover /= np.exp(np.log(np.diag(cover)).mean())
    values, vectors = np.linalg.eigh(cover)
    root = (vectors * np.sqrt(np.maximum(values, 0)))[:, 1:].astype(np.float32)
    x = r.normal(size=n)
    expected = r.uniform(1, 12, n)
    b = 0.6 * (np.sqrt(0.7) * root @ r.normal(size=n - 1) + np.sqrt(0.3) * r.normal(size=n))
    y = r.poisson(expected * np.exp(0.1 + 0.4 * x + b)).astype(float)
    y[12] = np.nan

    def parameters():
        a, beta = sample("a", dist.Normal(0.0, 1.0)), sample("beta", dist.Normal(0.0, 1.0))
        return a, beta, sample("sigma", dist.HalfNormal(1.0)), sample("rho", dist.Beta(0.5, 0.5))

    def both(rho, sigma, phi, theta):
        return sigma * (jnp.sqrt(rho) * (root @ phi) + jnp.sqrt(1 - rho) * theta)

    @probml.model
    def bym(county, x, expected):
        a, beta, sigma, rho = parameters()
        phi = sample("phi", dist.Normal(0.0, 1.0).expand([n - 1]).to_event(1))
        with plate("counties", n):
            theta = sample("theta", dist.Normal(0.0, 1.0))
        b = deterministic("b", both(rho, sigma, phi, theta))
        with probml.rows():
            sample("cases", dist.Poisson(expected * jnp.exp(a + beta * x + b[county])))

    def plain():
        a, beta, sigma, rho = parameters()
        b = deterministic("b", both(rho, sigma, normals("phi", n - 1), normals("theta", n)))
        rate = expected * jnp.exp(a + beta * x + b)
        there = ~np.isnan(y)
        sample("cases", dist.Poisson(rate[there]).to_event(1), obs=jnp.asarray(y[there]))
        deterministic("hole", rate[12:13])
        deterministic("density", jnp.exp(dist.Poisson(rate[:4]).log_prob(y[:4])))

    order = r.permutation(n)
    frame = pd.DataFrame({"county": np.arange(n)[order], "x": x[order], "expected": expected[order],
                          "cases": pd.array(y[order], "Int32")}, index=np.arange(n)[order] + 0.5)

    def ask(fit, data):
        made = fit.simulate(seed=1, **{k: frame[k] for k in ("county", "x", "expected")})["cases"]
        finite(np.asarray(made, float), (n,), "simulate")

    answers = {"hole": lambda fit: np.asarray(fit.predict(frame.loc[[12.5]], "cases"), float),
               "density": lambda fit: np.exp(fit.log_prob(frame.loc[[0.5, 1.5, 2.5, 3.5]]))}
    return Program(bym(), frame, plain, {}, None, ask, answers=answers)


# ---- lme4, glmmTMB, brms ---------------------------------------------------------------------------


@program("salamanders: negative binomial with zeros by a covariate × effects of sites × offset × booleans")
def salamanders():
    r = rng(6)
    sites, n = 14, 168
    site = r.integers(0, sites - 1, n)
    site[0] = sites - 1  # a site with one row
    mined = (np.arange(sites) % 2 == 0)[site]
    effort = r.uniform(0.5, 2.0, n)
    u = 0.5 * r.normal(size=sites)
    mu = effort * np.exp(1.2 - 0.8 * mined + u[site])
    y = np.where(r.random(n) < logistic(-1.5 + 1.8 * mined), 0, r.poisson(mu * r.gamma(2.0, 0.5, n)))

    def parameters():
        b = sample("b", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        zi = sample("zi", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        return b, zi, sample("sd", dist.HalfNormal(1.0)), sample("phi", dist.Gamma(2.0, 1.0))

    def law(b, zi, phi, u, mined, effort):
        return dist.ZeroInflatedDistribution(
            dist.NegativeBinomial2(effort * jnp.exp(b[0] + b[1] * mined + u), phi),
            gate_logits=zi[0] + zi[1] * mined)

    @probml.model
    def counts(site, mined, effort):
        b, zi, sd, phi = parameters()
        with plate("sites", sites):
            u = sample("u", dist.Normal(0.0, sd))
        with probml.rows():
            sample("count", law(b, zi, phi, u[site], mined, effort))

    def plain():
        b, zi, sd, phi = parameters()
        e = sd * normals("e", sites + 1)
        deterministic("u", e[:sites])
        own = law(b, zi, phi, e[site], mined * 1.0, effort)
        factor("y", own.log_prob(jnp.asarray(y)).sum())
        gate = jax.nn.sigmoid(zi[0] + zi[1] * mined[:4])
        deterministic("mean", (1 - gate) * (effort * jnp.exp(b[0] + b[1] * mined + e[site]))[:4])
        new = law(b, zi, phi, e[sites], jnp.array([1.0, 0.0]), 1.0)
        deterministic("empty", jnp.exp(new.log_prob(jnp.array([0, 0]))))

    names = np.array([f"VF-{k}" for k in range(sites)])
    frame = pd.DataFrame({"site": pd.Categorical(names[site], categories=list(names)), "mined": mined,
                          "effort": effort, "count": y.astype(np.int16)})
    new = pd.DataFrame({"site": ["new", "new"], "mined": [True, False], "effort": [1.0, 1.0], "count": [0, 0]})

    def ask(fit, data):
        low, high = fit.predict(frame.iloc[:4].drop(columns="count"), "count", interval=0.9)[1:]
        assert (np.asarray(low) == 0).any() and (np.asarray(high) >= 1).all()

    answers = {"mean": lambda fit: fit.predict(frame.iloc[:4].drop(columns="count"), "count"),
               "empty": lambda fit: np.exp(fit.log_prob(new, unknown="new"))}
    return Program(counts(), frame, plain, {}, None, ask, answers=answers)


@program("beta-binomial: a model of the concentration × crossed effects × weights × a total of 0")
def seeds_of_plates():
    r = rng(7)
    plates, seeds = 8, 6
    dish, kind = map(np.ravel, np.meshgrid(np.arange(plates), np.arange(seeds), indexing="ij"))
    warm = (r.random(48) < 0.5).astype(np.int8)
    total = r.integers(8, 30, 48)
    total[5] = 0
    eta = 0.3 + 0.8 * warm + (0.5 * r.normal(size=plates))[dish] + (0.3 * r.normal(size=seeds))[kind]
    mean, k = logistic(eta), np.exp(2.0 + 0.8 * warm)
    y = r.binomial(total, r.beta(mean * k, (1 - mean) * k))
    weights = r.integers(1, 4, 48).astype(float)

    def parameters():
        b = sample("b", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        phi = sample("phi", dist.Normal(1.5, 1.0).expand([2]).to_event(1))
        return b, phi, sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))

    def law(b, phi, effects, warm, total):
        mean, k = jax.nn.sigmoid(b[0] + b[1] * warm + effects), jnp.exp(phi[0] + phi[1] * warm)
        return dist.BetaBinomial(mean * k, (1 - mean) * k, total)

    @probml.model
    def germination(dish, kind, warm, total):
        b, phi, sd = parameters()
        with plate("dishes", plates):
            u = sample("u", dist.Normal(0.0, sd[0]))
        with plate("kinds", seeds):
            v = sample("v", dist.Normal(0.0, sd[1]))
        with probml.rows():
            sample("y", law(b, phi, u[dish] + v[kind], warm, total))

    def plain():
        b, phi, sd = parameters()
        u, v = sd[0] * normals("eu", plates + 1), sd[1] * normals("ev", seeds)
        deterministic("u", u[:plates])
        deterministic("v", v)
        own = law(b, phi, u[dish] + v[kind], warm * 1.0, jnp.asarray(total))
        log = jnp.where(total > 0, own.log_prob(jnp.asarray(y)), 0.0)
        factor("y", (weights * log).sum())
        deterministic("mean", 10 * jax.nn.sigmoid(b[0] + b[1] + u[plates] + v[:2]))
        deterministic("density", jnp.exp(log[:4]))

    data = {"dish": np.array(list("ABCDEFGH"))[dish], "kind": kind.astype(np.uint8), "warm": warm,
            "total": total, "y": y}
    new = {"dish": ["Z", "Z"], "kind": np.uint8([0, 1]), "warm": np.int8([1, 1]), "total": [10, 10]}

    def ask(fit, data):
        finite(fit.log_prob(data), (48,), "log_prob")
        assert float(fit.log_prob(data)[5]) == pytest.approx(0.0, abs=1e-3)

    answers = {"mean": lambda fit: fit.predict(new, "y", unknown="new"),
               "density": lambda fit: np.exp(fit.log_prob({k: v[:4] for k, v in data.items()}))}
    return Program(germination(), data, plain, {}, None, ask, weights=weights, answers=answers)


@program("sequential ordinal: effects of categories × persons × weights × labels × a level never chosen")
def steps_of_levels():
    r = rng(8)
    persons, n = 30, 120
    person, x = r.integers(0, persons, n), r.normal(size=n) + 2010
    u = 0.8 * r.normal(size=persons)
    cut, by = np.array([-1.0, 0.3, 1.2]), np.array([0.9, 0.2, -0.5])
    y = np.zeros(n, int)
    going = np.ones(n, bool)
    for k in range(3):
        going &= r.random(n) < logistic(u[person] + by[k] * (x - 2010) - cut[k])
        y[going] = k + 1
    y[y == 3] = 2  # the last is never chosen

    def parameters():
        cut = sample("cut", dist.Normal(0.0, 1.5).expand([3]).to_event(1))
        by = sample("by", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        return cut, by, sample("sd", dist.HalfNormal(1.0))

    def logs(cut, by, u, x):
        eta = u[..., None] + by * (x - 2010)[..., None] - cut
        go, stop = jax.nn.log_sigmoid(eta), jax.nn.log_sigmoid(-eta)
        before = jnp.concatenate([jnp.zeros_like(go[..., :1]), jnp.cumsum(go, -1)], -1)
        return before + jnp.concatenate([stop, jnp.zeros_like(stop[..., :1])], -1)

    @probml.model
    def ladder(person, x):
        cut, by, sd = parameters()
        with plate("persons", persons):
            u = sample("u", dist.Normal(0.0, sd))
        with probml.rows():
            sample("level", dist.Categorical(logits=logs(cut, by, u[person], x)))

    weights = np.where(np.arange(n) % 3 == 0, 2.0, 1.0)

    def plain():
        cut, by, sd = parameters()
        u = sd * normals("e", persons + 1)
        deterministic("u", u[:persons])
        log = logs(cut, by, u[person], x)
        factor("y", (weights * log[np.arange(n), y]).sum())
        deterministic("known", jnp.exp(log[:4]))
        deterministic("stranger", jnp.exp(logs(cut, by, u[persons:], jnp.array([2011.0]))))

    words = ["none", "some", "much", "all"]
    frame = pd.DataFrame({"person": pd.Categorical.from_codes(
        person, [f"p{k}" for k in range(persons)]), "x": x, "level": pd.Categorical.from_codes(
        y, words, ordered=True)}, index=[f"r{k}" for k in range(n)])

    def ask(fit, data):
        assert list(fit.labels("level")) == words
        assert set(fit.predict(frame.iloc[:9].drop(columns="level"), "level")) <= set(words)

    answers = {"known": lambda fit: fit.predict_proba(frame.iloc[:4].drop(columns="level"), "level"),
               "stranger": lambda fit: fit.predict_proba({"person": ["new"], "x": [2011.0]}, "level", unknown="new")}
    return Program(ladder(), frame, plain, {}, None, ask, weights=weights, answers=answers)


@program("two responses of chicks share correlated effects of dams × one is yes or no × holes in both")
def chicks_of_dams():
    r = rng(9)
    dams, n = 16, 128
    dam, hatch = r.integers(0, dams, n), r.normal(size=n).astype(np.float32)
    u = r.multivariate_normal([0, 0], [[0.5, 0.4], [0.4, 0.8]], dams)
    tarsus = 0.4 * hatch + u[dam, 0] + 0.8 * r.normal(size=n)
    male = (r.random(n) < logistic(-0.2 + 0.5 * tarsus + u[dam, 1])).astype(float)
    tarsus[r.random(n) < 0.15] = np.nan
    male[r.random(n) < 0.15] = np.nan
    tarsus[3] = male[3] = np.nan

    def parameters():
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        return b, sd[:, None] * sample("root", dist.LKJCholesky(2, 2.0)), sample("s", dist.HalfNormal(1.0))

    @probml.model
    def brood(dam, hatch):
        b, root, s = parameters()
        with plate("dams", dams):
            u = sample("u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root))
        with probml.rows():
            sample("tarsus", dist.Normal(b[0] * hatch + u[dam, 0], s))
            sample("male", dist.Bernoulli(logits=b[1] * hatch + u[dam, 1]))

    t_there, m_there = ~np.isnan(tarsus), ~np.isnan(male)

    def plain():
        b, root, s = parameters()
        u = normals("e", dams + 1, 2) @ root.T
        deterministic("u", u[:dams])
        mean, eta = b[0] * hatch + u[dam, 0], b[1] * hatch + u[dam, 1]
        sample("t", dist.Normal(mean[t_there], s).to_event(1), obs=jnp.asarray(tarsus[t_there]))
        sample("m", dist.Bernoulli(logits=eta[m_there]).to_event(1), obs=jnp.asarray(male[m_there]))
        deterministic("holes", mean[~t_there])
        deterministic("males", jax.nn.sigmoid(eta[~m_there]))
        deterministic("stranger", jax.nn.sigmoid(b[1] + u[dams, 1]))

    frame = pd.DataFrame({"dam": [f"R{k:03d}" for k in dam], "hatch": hatch, "tarsus": tarsus,
                          "male": pd.array(np.where(m_there, male == 1, None), "boolean")})

    def ask(fit, data):
        filled = fit.impute(frame)
        assert filled.notna().all().all()

    answers = {"holes": lambda fit: np.asarray(fit.impute(frame)["tarsus"], float)[~t_there],
               "males": lambda fit: np.asarray(fit.predict_proba(frame, "male"))[~m_there, 1],
               "stranger": lambda fit: fit.predict_proba(
                   {"dam": ["new"], "hatch": np.float32([1]), "tarsus": [np.nan]}, "male", unknown="new")[0, 1]}
    return Program(brood(), frame, plain, {}, None, ask, answers=answers)


@program("a mismeasured covariate with holes × slopes of groups × Student's t × units of 1e6 and 1e-6")
def mismeasured_slopes():
    r = rng(10)
    groups, n = 6, 90
    group = r.integers(0, groups, n)
    x = 1e6 * (3 + r.normal(size=n))
    w = x + 4e5 * r.normal(size=n)
    v = r.multivariate_normal([1.0, 0.5], [[0.2, 0], [0, 0.1]], groups)
    y = 1e-6 * (v[group, 0] + v[group, 1] * x / 1e6 + 0.3 * r.standard_t(4, n))
    w[r.random(n) < 0.2] = np.nan
    w[group == 5] = np.nan

    def parameters():
        m = sample("m", dist.Normal(3e6, 1e6))
        t = sample("t", dist.HalfNormal(2e6))
        mean = sample("mean", dist.Normal(0.0, 1e-6).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1e-6).expand([2]).to_event(1))
        return m, t, mean, sd, sample("s", dist.HalfNormal(1e-6))

    @probml.model
    def slopes(group):
        m, t, mean, sd, s = parameters()
        with plate("groups", groups):
            a = sample("a", dist.Normal(mean[0], sd[0]))
            b = sample("b", dist.Normal(mean[1], sd[1]))
        with probml.rows():
            x = sample("x", dist.Normal(m, t))
            sample("w", dist.Normal(x, 4e5))
            sample("y", dist.StudentT(4.0, a[group] + b[group] * (x / 1e6), s))

    there = ~np.isnan(w)

    def plain():
        m = 1e6 * sample("m0", dist.Normal(3.0, 1.0))
        t = 1e6 * sample("t0", dist.HalfNormal(2.0))
        mean = 1e-6 * normals("mean0", 2)
        sd = 1e-6 * sample("sd0", dist.HalfNormal(1.0).expand([2]).to_event(1))
        s = 1e-6 * sample("s0", dist.HalfNormal(1.0))
        for name, value in (("m", m), ("t", t), ("mean", mean), ("sd", sd), ("s", s)):
            deterministic(name, value)
        ab = mean + sd * normals("e", groups, 2)
        deterministic("a", ab[:, 0])
        deterministic("b", ab[:, 1])
        x = m + t * normals("ex", n)
        factor("w", dist.Normal(x, 4e5).log_prob(jnp.nan_to_num(w))[there].sum())
        factor("y", dist.StudentT(4.0, ab[group, 0] + ab[group, 1] * x / 1e6, s).log_prob(y).sum())
        deterministic("truth", x[:6])
        deterministic("next", ab[:2, 0] + ab[:2, 1] * (m + t**2 / (t**2 + 4e5**2) * (4e6 - m)) / 1e6)

    frame = pd.DataFrame({"group": np.array(list("abcdef"))[group], "w": w, "y": y})

    def ask(fit, data):
        finite(fit.log_prob(frame.iloc[:8]), (8,), "log_prob")

    answers = {"next": lambda fit: fit.predict({"group": ["a", "b"], "w": [4e6, 4e6]}, "y")}
    return Program(slopes(), frame, plain, {}, None, ask, answers=answers)


@program("nested and crossed effects × weights × units of 1e6 × years uncentred × a new class of a known school")
def classes_in_schools():
    r = rng(11)
    schools, classes, years = 8, 3, 6
    school, inner, year = map(np.ravel, np.meshgrid(range(schools), range(classes), range(years), indexing="ij"))
    own = school * classes + inner
    cost = 1e6 * (5 + 0.1 * year + (0.5 * r.normal(size=schools))[school] + (0.3 * r.normal(size=24))[own]
                  + (0.2 * r.normal(size=years))[year] + 0.25 * r.normal(size=len(own)))
    cost[r.random(len(own)) < 0.1] = np.nan
    weights = r.integers(1, 5, len(own)).astype(np.float32)

    def parameters():
        a = sample("a", dist.Normal(5e6, 3e6))
        b = sample("b", dist.Normal(0.0, 1e6))
        sd = sample("sd", dist.HalfNormal(1e6).expand([3]).to_event(1))
        return a, b, sd, sample("s", dist.HalfNormal(1e6))

    @probml.model
    def costs(school, room, year, when):
        a, b, sd, s = parameters()
        with plate("schools", schools):
            u = sample("u", dist.Normal(0.0, sd[0]))
        with plate("rooms", schools * classes):
            v = sample("v", dist.Normal(0.0, sd[1]))
        with plate("years", years):
            w = sample("w", dist.Normal(0.0, sd[2]))
        with probml.rows():
            sample("cost", dist.Normal(a + b * (when - 2000) + u[school] + v[room] + w[year], s))

    there = ~np.isnan(cost)

    def plain():
        a = deterministic("a", 5e6 + 3e6 * sample("a0", dist.Normal(0.0, 1.0)))
        b = deterministic("b", 1e6 * sample("b0", dist.Normal(0.0, 1.0)))
        sd = deterministic("sd", 1e6 * sample("sd0", dist.HalfNormal(1.0).expand([3]).to_event(1)))
        s = deterministic("s", 1e6 * sample("s0", dist.HalfNormal(1.0)))
        u, v, w = sd[0] * normals("eu", schools), sd[1] * normals("ev", 25), sd[2] * normals("ew", years)
        deterministic("u", u)
        deterministic("v", v[:24])
        deterministic("w", w)
        mean = a + b * (1998 + year - 2000) + u[school] + v[own] + w[year]
        log = dist.Normal(mean, s).log_prob(jnp.nan_to_num(cost))
        factor("cost", (weights * log)[there].sum())
        deterministic("holes", mean[~there])
        deterministic("another", a + b * 1.0 + u[2] + v[24] + w[3])

    frame = pd.DataFrame({"school": np.array(list("ABCDEFGH"))[school],
                          "room": [f"{'ABCDEFGH'[i]}{j}" for i, j in zip(school, inner, strict=True)],
                          "year": [f"y{k}" for k in year], "when": (1998 + year).astype(np.int64), "cost": cost})
    another = {"school": ["C"], "room": ["C9"], "year": ["y3"], "when": [2001]}

    def ask(fit, data):
        parts = np.asarray(fit.predict(another, "cost", interval=0.9, unknown="new")).ravel()
        assert parts[1] < parts[0] < parts[2]

    answers = {"holes": lambda fit: np.asarray(fit.impute(frame)["cost"], float)[~there],
               "another": lambda fit: float(np.asarray(fit.predict(another, "cost", unknown="new"))[0])}
    return Program(costs(), frame, plain, {}, None, ask, weights=weights, answers=answers)


# ---- hidden Markov models and networks -------------------------------------------------------------


@program("HMM of animals: covariates in Poisson emissions × effects of sexes × holes × forecast × decode")
def dives_of_seals():
    r = rng(12)
    seals, steps = 10, 14
    sex = np.arange(seals) % 2
    depth = r.normal(size=(seals, steps)).astype(np.float32)
    p = np.array([[0.85, 0.15], [0.25, 0.75]])
    z = np.zeros((seals, steps), int)
    for t in range(1, steps):
        z[:, t] = r.random(seals) < p[z[:, t - 1], 1]
    rate = np.exp(np.array([0.2, 1.9])[z] + 0.3 * depth + np.array([-0.3, 0.3])[sex][:, None])
    y = r.poisson(rate).astype(float)
    y[r.random(y.shape) < 0.1] = np.nan
    y[9] = np.nan

    def parameters():
        stay = sample("stay", dist.Beta(8.0, 2.0).expand([2]).to_event(1))
        low = sample("low", dist.Normal(0.0, 0.5))
        gap = sample("gap", dist.LogNormal(0.5, 0.3))
        return stay, low, gap, sample("beta", dist.Normal(0.0, 0.5)), sample(
            "v", dist.Normal(0.0, 0.5).expand([2]).to_event(1))

    def table(stay):
        return jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])

    @probml.model
    def dives(sex, depth):
        stay, low, gap, beta, v = parameters()
        level = jnp.stack([low, low + gap])
        with probml.rows():
            z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]), table(stay)))
            sample("y", dist.Poisson(jnp.exp(level[z] + beta * depth + v[sex][..., None])).to_event(1))

    def plain():
        stay, low, gap, beta, v = parameters()
        move = table(stay)
        log = beta * depth[..., None] + v[sex][:, None, None] + jnp.stack([low, low + gap])
        own = jnp.where(np.isnan(y)[..., None], 0.0,
                        dist.Poisson(jnp.exp(log)).log_prob(jnp.nan_to_num(y)[..., None]))
        alpha = jnp.log(0.5) + own[:, 0]
        for t in range(1, steps):
            alpha = jax.nn.logsumexp(alpha[:, :, None] + jnp.log(move), 1) + own[:, t]
        factor("y", jax.nn.logsumexp(alpha, -1).sum())

    names = np.array(["f", "m"])
    data = {"sex": names[sex], "depth": depth, "y": y}

    def last(draw):
        """log p(row), and the last state of four rows, at one draw of the parameters."""
        level = np.array([draw["low"], draw["low"] + draw["gap"]])
        mean = np.exp(level + (draw["beta"] * depth + draw["v"][sex][:, None])[:4, :, None])
        own = np.where(np.isnan(y[:4])[..., None], 0.0, st.poisson(mean).logpmf(np.nan_to_num(y[:4])[..., None]))
        move = np.array([[draw["stay"][0], 1 - draw["stay"][0]], [1 - draw["stay"][1], draw["stay"][1]]])
        alpha = np.exp(own[:, 0]) / 2
        for t in range(1, steps):
            alpha = alpha @ move * np.exp(own[:, t])
        return alpha

    def ask(fit, data):
        z = np.asarray(fit.decode(data)["z"])
        assert z.shape == (seals, steps)
        drawn = fit.draws(2000)
        alpha = np.mean([last({k: np.asarray(v)[i] for k, v in drawn.items()}) for i in range(2000)], 0)
        close(np.asarray(fit.predict_proba({k: v[:4] for k, v in data.items()}, "z"))[:, -1],
              alpha / alpha.sum(-1, keepdims=True), "a row as a new one", atol=0.02)
        finite(np.asarray(fit.log_prob(data)), (seals,), "log_prob")
        assert float(np.asarray(fit.log_prob(data))[9]) == pytest.approx(0.0, abs=1e-3)

    return Program(dives(), data, plain, {}, None, ask)


@case("a network in time: a class of the row chooses the table of a chain × two emissions × do × joint × decode")
def classes_of_chains():
    start = np.array([0.6, 0.4])
    tables = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.5, 0.5]], [[0.1, 0.9], [0.9, 0.1]]])
    shares, level = np.array([0.5, 0.3, 0.2]), np.array([-1.0, 2.0])
    alarm = np.array([0.1, 0.7])

    @probml.model
    def households():
        s = sample("s", dist.HalfNormal(1.0))
        with probml.rows():
            c = sample("c", dist.Categorical(jnp.asarray(shares)))
            z = sample("z", probml.MarkovChain(jnp.asarray(start), jnp.asarray(tables)[c]))
            sample("y", dist.Normal(jnp.asarray(level)[z], s).to_event(1))
            sample("alarm", dist.Bernoulli(jnp.asarray(alarm)[z]).to_event(1))

    fit = households().at({"s": 0.8}, labels={"c": ["slow", "fair", "flip"]})
    y = np.array([[-1.2, 2.1, np.nan, 1.7], [np.nan, np.nan, 0.4, np.nan], [0.2, 0.6, 0.3, 0.9]])
    bell = np.array([[0, np.nan, 1, 1], [np.nan] * 4, [1, 0, np.nan, 1]])
    every = np.array(list(itertools.product(range(2), repeat=4)))

    def logs(i, seen_bell=True):
        own = np.where(np.isnan(y[i])[:, None], 0.0,
                       -0.5 * ((np.nan_to_num(y[i])[:, None] - level) / 0.8) ** 2 - np.log(0.8 * np.sqrt(2 * np.pi)))
        rung = np.nan_to_num(bell[i])[:, None]
        if seen_bell:
            own = own + np.where(np.isnan(bell[i])[:, None], 0.0, np.log(np.where(rung == 1, alarm, 1 - alarm)))
        out = np.zeros((3, 16))
        for k in range(3):
            for j, path in enumerate(every):
                out[k, j] = (np.log(shares[k] * start[path[0]])
                             + sum(np.log(tables[k][a, b]) for a, b in zip(path, path[1:], strict=False))
                             + own[np.arange(4), path].sum())
        return out

    data = {"y": y, "alarm": bell}
    total = [np.logaddexp.reduce(logs(i).ravel()) for i in range(3)]
    close(fit.log_prob(data), total, "log_prob")
    close(fit.predict_proba(data, "c"), [np.exp(np.logaddexp.reduce(logs(i), 1) - total[i]) for i in range(3)], "c")
    gamma = []
    for i in range(3):
        w = np.exp(logs(i) - total[i]).sum(0)
        gamma.append([[w[every[:, t] == k].sum() for k in range(2)] for t in range(4)])
    close(fit.predict_proba(data, "z"), gamma, "z")
    got = fit.decode(data)
    for i in range(3):
        k, j = np.unravel_index(logs(i).argmax(), (3, 16))
        assert got["c"][i] == ["slow", "fair", "flip"][k] and list(np.asarray(got["z"])[i]) == list(every[j]), i
    sure = fit.do({"c": "flip"})
    own = [logs(i)[2] - np.log(0.2) for i in range(3)]
    close(sure.log_prob(data), [np.logaddexp.reduce(o) for o in own], "log_prob after do")
    filled = np.asarray(fit.impute(data)["y"], float)
    close(filled[1, 3], np.array(gamma[1][3]) @ level, "imputed")
    last = np.zeros(3)
    for i in range(3):
        w = np.exp(logs(i) - total[i])
        last[i] = sum(w[k, j] * tables[k][every[j, 3]] @ level for k in range(3) for j in range(16))
    close(np.asarray(fit.forecast(data, steps=1)["y"])[:, 0], last, "forecast")


@program("latent growth of ability: Rasch × intercepts and slopes of persons correlated × time × holes × long table")
def growth_of_pupils():
    r = rng(14)
    persons, items, waves = 36, 5, 3
    person, wave, item = map(np.ravel, np.meshgrid(range(persons), range(waves), range(items), indexing="ij"))
    u = r.multivariate_normal([0, 0.4], [[1.0, 0.1], [0.1, 0.15]], persons)
    b = np.linspace(-1.2, 1.2, items)
    y = (r.random(len(person)) < logistic(u[person, 0] + u[person, 1] * wave - b[item])).astype(float)
    y[r.random(len(y)) < 0.1] = np.nan
    y[(person == 3) & (wave > 0)] = np.nan

    def parameters():
        b = sample("b", dist.Normal(0.0, 1.5).expand([items]).to_event(1))
        growth = sample("growth", dist.Normal(0.0, 1.0))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        return b, growth, sd[:, None] * sample("root", dist.LKJCholesky(2, 1.0))

    @probml.model
    def longitudinal(person, wave, item):
        b, growth, root = parameters()
        with plate("persons", persons):
            u = sample("u", dist.MultivariateNormal(jnp.stack([0.0, growth]), scale_tril=root))
        with probml.rows():
            sample("right", dist.Bernoulli(logits=u[person, 0] + u[person, 1] * wave - b[item]))

    there = ~np.isnan(y)

    def plain():
        b, growth, root = parameters()
        u = jnp.stack([jnp.zeros(()), growth]) + normals("e", persons + 1, 2) @ root.T
        deterministic("u", u[:persons])
        p = jax.nn.sigmoid(u[person, 0] + u[person, 1] * wave - b[item])
        factor("y", jnp.log(jnp.where(y == 1, p, 1 - p))[there].sum())
        deterministic("later", jax.nn.sigmoid(u[:3, 0] + 3 * u[:3, 1] - b[0]))
        deterministic("stranger", jax.nn.sigmoid(u[persons, 0] + u[persons, 1] * jnp.arange(2.0) - b[4]))

    data = {"person": [f"p{k:02d}" for k in person], "wave": wave.astype(np.float32), "item": np.array(list("vwxyz"))[item], "right": y}
    later = {"person": ["p00", "p01", "p02"], "wave": np.float32([3] * 3), "item": ["v"] * 3}
    new = {"person": ["new", "new"], "wave": np.float32([0, 1]), "item": ["z", "z"]}

    def ask(fit, data):
        table = probml.compare({"one": fit}, data)
        assert len(table) == 1

    answers = {"later": lambda fit: np.asarray(fit.predict_proba(later, "right"))[:, 1],
               "stranger": lambda fit: np.asarray(fit.predict_proba(new, "right", unknown="new"))[:, 1]}
    return Program(longitudinal(), data, plain, {}, None, ask, answers=answers)
