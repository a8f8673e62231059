"""The other half of `seventeenth_cases.py`: programs pasted with `obs=`, after NumPyro's examples and PyMC's
discourse, with three mechanisms or more in each. Written before any of them was run.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from eleventh_cases import first
from fifteenth_cases import normals
from judged_by_nuts import Program, program
from ninth_cases import finite, logistic
from numpyro import deterministic, factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.contrib.hsgp.approximation import hsgp_matern, hsgp_squared_exponential
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

import probml
from first_cases import back


def rng(seed):
    return np.random.default_rng([113, 18, seed])


# ---- NumPyro's examples ----------------------------------------------------------------------------


@program("predator and prey: a recurrence of two numbers × lognormal × starts unknown × years missing")
def hares_and_lynx():
    r = rng(1)
    years, dt = 20, 0.25
    alpha, beta, gamma, delta = 0.55, 0.028, 0.80, 0.024
    z, path = np.log([30.0, 6.0]), []
    for _ in range(years):
        path.append(z)
        for _ in range(4):
            z = z + dt * np.array([alpha - beta * np.exp(z[1]), -gamma + delta * np.exp(z[0])])
    y = np.exp(np.array(path) + 0.2 * r.normal(size=(years, 2)))
    y[7, 0] = y[8] = np.nan

    def trajectory(theta, start, years):
        def quarter(z, _):
            rates = jnp.stack([theta[0] - theta[1] * jnp.exp(z[1]), -theta[2] + theta[3] * jnp.exp(z[0])])
            return z + dt * rates, z
        return jax.lax.scan(quarter, start, None, length=4 * years)[1][::4]

    def parameters():
        theta = sample("theta", dist.TruncatedNormal(
            jnp.array([0.5, 0.03, 0.8, 0.03]), jnp.array([0.2, 0.01, 0.2, 0.01]), low=0.0).to_event(1))
        start = sample("start", dist.Normal(jnp.log(jnp.array([25.0, 8.0])), 0.5).to_event(1))
        return theta, start, sample("sigma", dist.LogNormal(-1.0, 0.5).expand([2]).to_event(1))

    def populations(years, y=None):
        theta, start, sigma = parameters()
        z = deterministic("z", trajectory(theta, start, years))
        with plate("years", years):
            sample("y", dist.LogNormal(z, sigma).to_event(1), obs=y)

    def plain():
        theta, start, sigma = parameters()
        z = deterministic("z", trajectory(theta, start, years))
        log = dist.LogNormal(z, sigma).log_prob(jnp.where(np.isnan(y), 1.0, y))
        factor("y", jnp.where(np.isnan(y), 0.0, log).sum())
        deterministic("hole", jnp.exp(z[8] + sigma**2 / 2))

    def ask(fit, data):
        with pytest.raises(probml.Refusal, match="no plate of independent rows"):
            fit.impute({"y": y})

    return Program(probml.model(populations)(years=years), {"y": y}, plain, {}, None, ask,
                   answers={"hole": lambda fit: np.mean([fit.simulate(seed=k)["y"][8] for k in range(300)], 0)})


@program("annotation by logistic random effects: enumerate × items and annotators × a long table × unlabelled items")
def annotated_items():
    r = rng(2)
    items, people = 50, 5
    truth = r.choice(3, items, p=[0.5, 0.3, 0.2])
    item, who = map(np.ravel, np.meshgrid(range(items), range(people), indexing="ij"))
    keep = r.random(len(item)) < 0.7
    item, who = item[keep], who[keep]
    skill = np.array([2.5, 1.8, 1.5, 2.0, 0.7])
    logits = np.eye(3)[truth[item]] * skill[who][:, None]
    y = (logits + r.gumbel(size=(len(item), 3))).argmax(1)

    def parameters():
        pi = sample("pi", dist.Dirichlet(jnp.array([5.0, 3.0, 2.0])))
        mu, tau = sample("mu", dist.Normal(1.5, 0.5)), sample("tau", dist.HalfNormal(0.5))
        return pi, mu, tau

    def annotation(item, who, items, y=None):
        pi, mu, tau = parameters()
        with plate("people", people):
            skill = sample("skill", dist.Normal(mu, tau))
        with plate("items", items):
            c = sample("c", dist.Categorical(pi), infer={"enumerate": "parallel"})
        with plate("labels", item.shape[0]):
            sample("y", dist.Categorical(logits=jnp.eye(3)[c[item]] * skill[who][:, None]), obs=y)

    def plain():
        pi, mu, tau = parameters()
        skill = deterministic("skill", mu + tau * normals("e", people))
        log = jax.nn.log_softmax(jnp.eye(3) * skill[who][:, None, None])[:, :, :]  # label, truth, answer
        own = log[np.arange(len(item)), :, y]
        total = jnp.log(pi) + jax.ops.segment_sum(own, item, items)
        factor("y", jax.nn.logsumexp(total, -1).sum())
        deterministic("classes", jax.nn.softmax(total, -1))

    data = {"item": item, "who": np.array(list("abcde"))[who], "y": y.astype(np.uint8)}

    def ask(fit, data):
        assert (np.asarray(fit.decode(data)["c"]) == truth).mean() > 0.7

    return Program(probml.model(annotation)(items=items), data, plain, {}, None, ask,
                   answers={"classes": lambda fit: fit.predict_proba(data, "c")})


@program("Cormack-Jolly-Seber: scan × enumerate × mask before the first capture × floods and sex × effects of years")
def dippers():
    r = rng(3)
    n, years = 60, 7
    flood, male = np.array([0, 1, 1, 0, 0, 1.0]), (r.random(n) < 0.5).astype(float)
    entry = r.integers(0, 5, n)
    capture = np.zeros((n, years))
    for i in range(n):
        alive = True
        for t in range(entry[i], years):
            if t > entry[i]:
                alive = alive and r.random() < logistic(0.5 - 0.8 * flood[t - 1] + 0.3 * male[i])
            capture[i, t] = alive and (t == entry[i] or r.random() < 0.8)

    def parameters():
        b = sample("b", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        tau = sample("tau", dist.HalfNormal(0.5))
        e = sample("e", dist.Normal(0.0, 1.0).expand([years - 1]).to_event(1))
        return b, tau, e, sample("p", dist.Beta(2.0, 1.0))

    def survive(b, tau, e, male):
        return jax.nn.sigmoid(b[0] + b[1] * flood + tau * e + b[2] * male[:, None]).T  # year, animal

    def animals(male, capture=None):
        b, tau, e, p = parameters()
        phi = survive(b, tau, e, male)
        n = male.shape[0]

        def step(carry, now):
            met, z = carry
            phi, seen = now
            with plate("animals", n, dim=-1):
                z = sample("z", dist.Bernoulli(jnp.where(met, phi * z, 1.0)), infer={"enumerate": "parallel"})
                with handlers.mask(mask=met):
                    sample("y", dist.Bernoulli(p * z), obs=seen)
            return (met | (seen == 1), z), None

        scan(step, (capture[:, 0] == 1, jnp.ones(n, jnp.int32)), (phi, capture.T[1:]))

    def plain():
        b, tau, e, p = parameters()
        phi = survive(b, tau, e, jnp.asarray(male))
        total = 0.0
        alpha = jnp.stack([jnp.zeros(n), jnp.ones(n)], -1)  # dead, alive
        for t in range(1, years):
            y = capture[:, t][:, None]
            move = jnp.stack([alpha[:, 0] + alpha[:, 1] * (1 - phi[t - 1]), alpha[:, 1] * phi[t - 1]], -1)
            own = jnp.concatenate([1.0 - y, jnp.where(y == 1, p, 1 - p)], -1)
            met = (capture[:, :t].max(1) > 0)[:, None]
            alpha = jnp.where(met, move * own, alpha)
        total = jnp.log(alpha.sum(-1)).sum()
        factor("y", total)
        deterministic("alive", (alpha[:, 1] / alpha.sum(-1))[:10])

    def ask(fit, data):
        finite(np.asarray(fit.summary()["mean"], float), (11,), "summary")

    data = {"male": male, "capture": capture.astype(np.int8)}
    return Program(probml.model(animals)(), data, plain, {}, None, ask,
                   answers={"alive": lambda fit: np.asarray(fit.predict_proba(data, "z"))[-1, :10, 1]})


@program("births: a sum of two Hilbert space processes × days of a week that sum to zero × holes × days ahead")
def births_by_two_processes():
    r = rng(4)
    n = 140
    day = np.arange(n).astype(float)
    x = (day - 70) / 40
    week = (np.arange(n) % 7).astype(np.uint8)
    effect = np.array([0.2, 0.3, 0.1, 0.2, 0.3, -0.5, -0.6])
    y = 0.7 * np.sin(x) + 0.3 * np.sin(6 * x) + effect[week] + 0.25 * r.normal(size=n)
    y[r.random(n) < 0.1] = np.nan

    def body(x, week, intercept, parts):
        a, l1, a2, l2, w, s = parts
        slow = hsgp_squared_exponential(x, alpha=a, length=l1, ell=4.0, m=8)
        with handlers.scope(prefix="quick", divider="_"):
            quick = hsgp_matern(x, nu=1.5, alpha=a2, length=l2, ell=4.0, m=16)
        return intercept + slow + quick + w[week]

    def parameters():
        intercept = sample("intercept", dist.Normal(0.0, 1.0))
        a, l1 = sample("a", dist.HalfNormal(1.0)), sample("l1", dist.LogNormal(0.3, 0.3))
        a2, l2 = sample("a2", dist.HalfNormal(0.5)), sample("l2", dist.LogNormal(-1.5, 0.3))
        w = sample("w", dist.ZeroSumNormal(0.5, (7,)))
        return intercept, (a, l1, a2, l2, w, sample("s", dist.HalfNormal(0.5)))

    def births(x, week, y=None):
        intercept, parts = parameters()
        f = deterministic("f", body(x, week, intercept, parts))
        with plate("days", x.shape[0]):
            sample("y", dist.Normal(f, parts[-1]), obs=y)

    there = ~np.isnan(y)
    ahead = np.array([72.0, 75.0]) / 40

    def plain():
        intercept, parts = parameters()
        every = np.concatenate([x, ahead])
        f = body(jnp.asarray(every), np.concatenate([week, [2, 5]]).astype(int), intercept, parts)
        deterministic("f", f[:n])
        sample("y", dist.Normal(f[:n][there], parts[-1]).to_event(1), obs=jnp.asarray(y[there]))
        deterministic("ahead", f[n:])
        deterministic("holes", f[:n][~there])

    def ask(fit, data):
        finite(fit.log_prob(data), (n,), "log_prob")

    data = {"x": x, "week": week, "y": y}
    answers = {"ahead": lambda fit: fit.predict({"x": ahead, "week": np.uint8([2, 5])}, "y"),
               "holes": lambda fit: np.asarray(fit.impute(data)["y"])[~there]}
    return Program(probml.model(births)(), data, plain, {}, None, ask, answers=answers)


@program("schools by reparam: LocScale × Transform × meta-regression × a study that is missing × a new school")
def schools_by_reparam():
    r = rng(5)
    J = 12
    sigma, x = r.uniform(5, 15, J), r.normal(size=J)
    y = 5 + 3 * x + 6 * r.normal(size=J) + sigma * r.normal(size=J)
    y[4] = np.nan

    def parameters():
        mu, beta = sample("mu", dist.Normal(0.0, 5.0)), sample("beta", dist.Normal(0.0, 3.0))
        return mu, beta, sample("tau", dist.HalfCauchy(5.0))

    def schools(sigma, x, school, y=None):
        mu, beta, tau = parameters()
        with plate("J", J):
            own = dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.transforms.AffineTransform(0.0, tau))
            theta = sample("theta", own)
        with plate("n", len(sigma)):
            sample("y", dist.Normal(mu + beta * x + theta[school], sigma), obs=y)

    there = ~np.isnan(y)

    def plain():
        mu, beta, tau = parameters()
        theta = tau * normals("e", J + 1)
        deterministic("theta", theta[:J])
        line = mu + beta * x + theta[:J]
        sample("y", dist.Normal(line[there], sigma[there]).to_event(1), obs=jnp.asarray(y[there]))
        deterministic("hole", line[~there])
        deterministic("stranger", jnp.stack([mu + beta + theta[J]]))

    written = handlers.reparam(schools, config={"theta": TransformReparam(), "mu": LocScaleReparam(0)})
    data = {"sigma": sigma, "x": x, "school": [f"s{k:02d}" for k in range(J)], "y": y}
    new = {"sigma": [10.0], "x": [1.0], "school": ["new"]}

    def ask(fit, data):
        low, high = np.asarray(fit.predict(new, "y", interval=0.9, unknown="new"))[1:, 0]
        assert low < 5 < high

    answers = {"hole": lambda fit: np.asarray(fit.impute(data)["y"])[~there],
               "stranger": lambda fit: fit.predict(new, "y", unknown="new")}
    return Program(probml.model(written)(), data, plain, {}, None, ask, ("tau",), answers=answers)


@program("MixtureGeneral of a normal and a wide Student's t × effects of groups × a covariate in float32")
def robust_by_mixture():
    r = rng(6)
    groups, n = 7, 100
    group, x = r.integers(0, groups, n), r.normal(size=n).astype(np.float32)
    y = 1 + 0.8 * x + (0.6 * r.normal(size=groups))[group] + np.where(
        r.random(n) < 0.12, 4 * r.standard_t(3, n), 0.4 * r.normal(size=n))

    def parameters():
        b = sample("b", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        tau, s = sample("tau", dist.HalfNormal(1.0)), sample("s", dist.HalfNormal(1.0))
        return b, tau, s, sample("out", dist.Beta(1.0, 9.0))

    def law(out, mean, s):
        return dist.MixtureGeneral(dist.Categorical(probs=jnp.stack([1 - out, out], -1)),
                                   [dist.Normal(mean, s), dist.StudentT(3.0, mean, 4.0)])

    def robust(group, x, y=None):
        b, tau, s, out = parameters()
        with plate("groups", groups):
            u = sample("u", dist.Normal(0.0, tau))
        with plate("n", len(x)):
            sample("y", law(out, b[0] + b[1] * x + u[group], s), obs=y)

    def plain():
        b, tau, s, out = parameters()
        u = tau * normals("e", groups + 1)
        deterministic("u", u[:groups])
        log = law(out, b[0] + b[1] * x + u[group], s).log_prob(jnp.asarray(y))
        factor("y", log.sum())
        deterministic("density", jnp.exp(log[:6]))
        deterministic("known", b[0] + b[1] * 2 + u[:3])

    data = {"group": np.array(list("ABCDEFG"))[group], "x": x, "y": y}
    new = {"group": list("ABC"), "x": np.float32([2] * 3)}

    def ask(fit, data):
        made = fit.simulate(seed=1, group=data["group"], x=data["x"])["y"]
        finite(made, (n,), "simulate")

    answers = {"density": lambda fit: np.exp(fit.log_prob(first(data, 6))),
               "known": lambda fit: fit.predict(new, "y")}
    return Program(probml.model(robust)(), data, plain, {}, None, ask, answers=answers)


@program("ordinal tutorial: Dirichlet cutpoints by reparam × monotone scale by cumsum × effects × unused words")
def ordered_satisfaction():
    r = rng(7)
    towns, n = 8, 140
    town, school = r.integers(0, towns, n), r.integers(0, 4, n)
    eta = np.array([0.0, 0.8, 1.0, 1.5])[school] + (0.6 * r.normal(size=towns))[town]
    y = (eta[:, None] + r.logistic(size=(n, 1)) > np.array([-0.5, 0.6, 1.9])).sum(1)

    def cuts():
        own = dist.TransformedDistribution(
            dist.Dirichlet(jnp.ones(4) * 2), dist.transforms.SimplexToOrderedTransform(anchor_point=0.5))
        with handlers.reparam(config={"cut": TransformReparam()}):
            return sample("cut", own)

    def parameters():
        beta = sample("beta", dist.Normal(1.0, 1.0))
        share = sample("share", dist.Dirichlet(jnp.full(3, 2.0)))
        return beta, share, sample("tau", dist.HalfNormal(1.0))

    def line(beta, share, school):
        return beta * jnp.concatenate([jnp.zeros(1), jnp.cumsum(share)])[school]

    def satisfaction(town, school, y=None):
        beta, share, tau = parameters()
        cut = cuts()
        with plate("towns", towns):
            u = sample("u", dist.Normal(0.0, tau))
        with plate("n", town.shape[0]):
            sample("y", dist.OrderedLogistic(line(beta, share, school) + u[town], cut), obs=y)

    def plain():
        beta, share, tau = parameters()
        cut = cuts()
        u = tau * normals("e", towns + 1)
        deterministic("u", u[:towns])
        own = dist.OrderedLogistic(line(beta, share, school) + u[town], cut)
        factor("y", own.log_prob(jnp.asarray(y)).sum())
        deterministic("known", own.probs[:4])
        deterministic("stranger", dist.OrderedLogistic(line(beta, share, jnp.array([3])) + u[towns:], cut).probs)

    frame = {"town": pd.Categorical([f"town {k}" for k in town]),
             "school": pd.Categorical.from_codes(school, ["none", "basic", "middle", "high"], ordered=True),
             "y": pd.Categorical.from_codes(y, ["bad", "poor", "fair", "good"], ordered=True)}
    frame = pd.DataFrame(frame, index=np.arange(n)[::-1])
    new = {"town": ["new"], "school": ["high"]}

    def ask(fit, data):
        again = back(fit, fit.model)
        one = first({k: list(frame[k]) for k in frame}, 5, "y")
        np.testing.assert_allclose(again.predict_proba(one, "y"), fit.predict_proba(one, "y"), atol=1e-3)

    answers = {"known": lambda fit: fit.predict_proba(frame.iloc[:4].drop(columns="y"), "y"),
               "stranger": lambda fit: fit.predict_proba(new, "y", unknown="new")}
    return Program(probml.model(satisfaction)(), frame, plain, {}, None, ask, answers=answers)


@program("two submodels by scope × a shared effect × ImproperUniform × Unit × two outcomes")
def scoped_submodels():
    r = rng(8)
    n, groups = 70, 6
    group, x = r.integers(0, groups, n), r.normal(size=n)
    u = r.normal(size=groups)
    one = 2 + 0.5 * x + u[group] + 0.5 * r.normal(size=n)
    two = r.poisson(np.exp(0.3 - 0.4 * x + 0.5 * u[group]))

    def regression(x):
        a = sample("a", dist.ImproperUniform(dist.constraints.real, (), ()))
        b = sample("b", dist.Normal(0.0, 1.0))
        return a + b * x

    def both(group, x, one=None, two=None):
        turn = deterministic("turn", jnp.array(0.5))
        s = sample("s", dist.HalfNormal(1.0))
        with plate("groups", groups):
            u = sample("u", dist.Normal(0.0, 1.0))
        left = handlers.scope(regression, prefix="one")(x)
        right = handlers.scope(regression, prefix="two")(x)
        sample("wide", dist.Unit(dist.Normal(0.0, 0.5).log_prob(s - 0.5)))
        with plate("n", len(x)):
            sample("one", dist.Normal(left + u[group], s), obs=one)
            sample("two", dist.Poisson(jnp.exp(right + turn * u[group])), obs=two)

    def plain():
        s = sample("s", dist.HalfNormal(1.0))
        factor("wide", dist.Normal(0.0, 0.5).log_prob(s - 0.5))
        e = normals("u", groups)
        c = {k: sample(k, dist.ImproperUniform(dist.constraints.real, (), ())) for k in ("one/a", "two/a")}
        c |= {k: sample(k, dist.Normal(0.0, 1.0)) for k in ("one/b", "two/b")}
        left, right = c["one/a"] + c["one/b"] * x + e[group], c["two/a"] + c["two/b"] * x + 0.5 * e[group]
        factor("one", dist.Normal(left, s).log_prob(one).sum())
        factor("two", dist.Poisson(jnp.exp(right)).log_prob(jnp.asarray(two)).sum())
        deterministic("first", left[:4])
        deterministic("density", jnp.exp(dist.Normal(left, s).log_prob(one)
                                         + dist.Poisson(jnp.exp(right)).log_prob(jnp.asarray(two)))[:5])

    data = {"group": group.astype(np.int32), "x": x, "one": one, "two": two}

    def ask(fit, data):
        made = fit.simulate(seed=1, group=data["group"], x=x)
        finite(made["one"], (n,), "simulate")

    answers = {"first": lambda fit: fit.predict(first(data, 4, "one", "two"), "one"),
               "density": lambda fit: np.exp(fit.log_prob(first(data, 5)))}
    return Program(probml.model(both)(), data, plain, {}, None, ask, answers=answers)


# ---- survival, diets, series -----------------------------------------------------------------------


@program("survival with entries and a covariate that changes × Weibull × gamma frailty × factors of a plate")
def recurrences():
    r = rng(9)
    people = 40
    rows = []
    frailty = r.gamma(3.0, 1 / 3, people)
    for i in range(people):
        switch, end, treat = r.uniform(1, 6), r.uniform(4, 10), r.random() < 0.5
        t = 0.0
        for start, stop, on in ((0.0, min(switch, end), 0.0), (switch, end, float(treat))):
            if start >= end:
                continue
            more = -np.log(r.random()) / (0.12 * np.exp(-0.8 * on) * frailty[i])
            t = (start**1.3 + more) ** (1 / 1.3)
            rows.append((i, start, min(t, stop), on, t < stop))
            if t < stop:
                break
    person, start, stop, on, died = map(np.array, zip(*rows, strict=True))

    def parameters():
        k = sample("k", dist.LogNormal(0.2, 0.4))
        return k, sample("b", dist.Normal(jnp.array([-2.0, 0.0]), 1.0).to_event(1)), sample(
            "shape", dist.Gamma(4.0, 1.0))

    def logs(k, b, w, start, stop, on, died):
        rate = jnp.exp(b[0] + b[1] * on) * w
        hazard = jnp.log(rate * k) + (k - 1) * jnp.log(stop)
        return jnp.where(died, hazard, 0.0) - rate * (stop**k - start**k)

    def survival(person, start, stop, on, died):
        k, b, shape = parameters()
        with plate("people", people):
            w = sample("w", dist.Gamma(shape, shape))
        with plate("n", len(start)):
            factor("risk", logs(k, b, w[person], start, stop, on, died))

    def plain():
        k, b, shape = parameters()
        w = sample("w", dist.Gamma(shape, shape).expand([people]).to_event(1))
        log = logs(k, b, w[person], start, stop, on, died)
        factor("risk", log.sum())
        deterministic("density", jnp.exp(log[:4]))

    data = {"person": person, "start": start, "stop": stop, "on": on, "died": died}

    def ask(fit, data):
        assert {"k", "b", "shape", "w"} <= set(fit.to_arviz().posterior)

    return Program(probml.model(survival)(), data, plain, {}, None, ask, ("shape",),
                   answers={"density": lambda fit: np.exp(fit.log_prob(first(data, 4)))})


@program("Dirichlet-multinomial × softmax of covariates × correlated effects of sites × totals × a new site")
def pollen_of_lakes():
    r = rng(10)
    lakes, n = 10, 60
    lake, warm, total = r.integers(0, lakes, n), r.normal(size=n), r.integers(20, 60, n)
    u = r.multivariate_normal([0, 0], [[0.4, 0.2], [0.2, 0.3]], lakes)
    eta = np.concatenate([np.array([0.5, -0.3]) + np.outer(warm, [0.6, -0.4]) + u[lake], np.zeros((n, 1))], 1)
    p = np.exp(eta) / np.exp(eta).sum(1, keepdims=True)
    y = np.stack([r.multinomial(m, r.dirichlet(25 * q)) for m, q in zip(total, p, strict=True)])

    def parameters():
        a = sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        root = sample("root", dist.LKJCholesky(2, 2.0))
        return a, b, sd[:, None] * root, sample("phi", dist.LogNormal(3.0, 0.7))

    def law(a, b, u, phi, warm, total):
        eta = a + b * warm[..., None] + u
        eta = jnp.concatenate([eta, jnp.zeros_like(eta[..., :1])], -1)
        return dist.DirichletMultinomial(phi * jax.nn.softmax(eta), total)

    def pollen(lake, warm, total, y=None):
        a, b, root, phi = parameters()
        with plate("lakes", lakes):
            u = sample("u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root))
        with plate("n", len(warm)):
            sample("y", law(a, b, u[lake], phi, warm, total), obs=y)

    def plain():
        a, b, root, phi = parameters()
        u = normals("e", lakes + 1, 2) @ root.T
        deterministic("u", u[:lakes])
        own = law(a, b, u[lake], phi, jnp.asarray(warm), jnp.asarray(total))
        log = own.log_prob(jnp.asarray(y))
        factor("y", log.sum())
        new = law(a, b, u[lakes:], phi, jnp.array([1.0]), jnp.array([100]))
        deterministic("stranger", new.mean)
        deterministic("density", 1e3 * jnp.exp(log[:4]))

    data = {"lake": np.array([f"lake {k}" for k in range(lakes)])[lake], "warm": warm, "total": total, "y": y}
    new = {"lake": ["lake X"], "warm": [1.0], "total": [100]}

    def ask(fit, data):
        made = np.asarray(fit.simulate(seed=1, **first(data, 5, "y"))["y"])
        assert (made.sum(1) == total[:5]).all()

    answers = {"stranger": lambda fit: fit.predict(new, "y", unknown="new"),
               "density": lambda fit: 1e3 * np.exp(fit.log_prob(first(data, 4)))}
    return Program(probml.model(pollen)(), data, plain, {}, None, ask, answers=answers)


@program("several series: levels by scan within a plate × seasons shared × Student's t × months ahead")
def sales_of_shops():
    r = rng(11)
    shops, months = 3, 36
    season = 0.8 * np.sin(2 * np.pi * np.arange(12) / 12)
    level = np.cumsum(0.2 * r.normal(size=(months, shops)), 0) + [1, 3, 5]
    y = level + season[np.arange(months) % 12][:, None] + 0.25 * r.standard_t(5, (months, shops))

    def parameters():
        drift = sample("drift", dist.HalfNormal(0.5))
        s = sample("s", dist.HalfNormal(0.5))
        return drift, s, sample("season", dist.ZeroSumNormal(1.0, (12,)))

    def sales(month, y=None):
        drift, s, season = parameters()
        with plate("shops", shops):
            start = sample("start", dist.Normal(3.0, 3.0))

        def step(level, month):
            with plate("shops", shops):
                level = sample("level", dist.Normal(level, drift))
                sample("y", dist.StudentT(5.0, level + season[month], s))
            return level, level

        with handlers.condition(data={} if y is None else {"y": y}):
            scan(step, start, month)

    def plain():
        drift, s, season = parameters()
        start = 3 + 3 * normals("e0", shops)
        deterministic("start", start)
        e = normals("e", months, shops)
        level = deterministic("level", start + drift * jnp.cumsum(e, 0))
        mean = level + season[np.arange(months) % 12][:, None]
        factor("y", dist.StudentT(5.0, mean, s).log_prob(y).sum())

    def ask(fit, data):
        made = fit.simulate(seed=1, month=np.arange(40) % 12)["y"]
        assert np.shape(made) == (40, shops)

    data = {"month": (np.arange(months) % 12).astype(np.int16), "y": y}
    return Program(probml.model(sales)(), data, plain, {}, None, ask)


@program("counts by trend, season and an exogenous column × negative binomial × a walk by cumsum × holes")
def visitors_of_parks():
    r = rng(12)
    n = 60
    t, x = np.arange(n), r.normal(size=n)
    level = 2 + np.cumsum(0.12 * r.normal(size=n))
    mu = np.exp(level + 0.5 * np.cos(2 * np.pi * t / 7) + 0.3 * x)
    y = r.poisson(mu * r.gamma(8, 1 / 8, n)).astype(float)
    y[[10, 11, 12, 40]] = np.nan
    there = ~np.isnan(y)

    def parameters():
        b = sample("b", dist.Normal(0.0, 0.5).expand([3]).to_event(1))
        return b, sample("drift", dist.HalfNormal(0.3)), sample("phi", dist.Gamma(4.0, 0.5))

    def visitors(t, x, y=None):
        b, drift, phi = parameters()
        start = sample("start", dist.Normal(2.0, 1.0))
        with plate("steps", len(t)):
            e = sample("e", dist.Normal(0.0, 1.0))
        level = deterministic("level", start + drift * jnp.cumsum(e))
        wave = b[0] * jnp.cos(2 * jnp.pi * t / 7) + b[1] * jnp.sin(2 * jnp.pi * t / 7) + b[2] * x
        with plate("n", len(t)):
            sample("y", dist.NegativeBinomial2(jnp.exp(level + wave), phi), obs=y)

    def plain():
        b, drift, phi = parameters()
        start = sample("start", dist.Normal(2.0, 1.0))
        level = deterministic("level", start + drift * jnp.cumsum(normals("e", n)))
        mu = jnp.exp(level + b[0] * np.cos(2 * np.pi * t / 7) + b[1] * np.sin(2 * np.pi * t / 7) + b[2] * x)
        factor("y", dist.NegativeBinomial2(mu[there], phi).log_prob(y[there]).sum())
        deterministic("holes", mu[~there])

    data = {"t": t.astype(np.float32), "x": x, "y": y}

    def ask(fit, data):
        with pytest.raises(probml.Refusal, match="no plate of independent rows"):
            fit.impute(data)

    return Program(probml.model(visitors)(), data, plain, {}, None, ask, answers={
        "holes": lambda fit: np.mean([fit.simulate(seed=k)["y"][~there] for k in range(300)], 0)})


@program("tides: truncated between moving bounds × effects of ports × folded second outcome × weights × holes")
def tides_of_ports():
    r = rng(13)
    ports, n = 6, 90
    port, low = r.integers(0, ports, n), r.uniform(-1, 0, n)
    high = low + r.uniform(1.5, 4, n)
    u = 0.5 * r.normal(size=ports)
    own = np.clip(0.8 + u[port] + 0.9 * r.normal(size=n), low + 0.01, high - 0.01)
    for i in range(n):
        while not low[i] < own[i] < high[i] or own[i] in (low[i] + 0.01, high[i] - 0.01):
            own[i] = 0.8 + u[port[i]] + 0.9 * r.normal()
    gap = np.abs(1 + 0.5 * u[port] + 0.4 * r.normal(size=n))
    own[r.random(n) < 0.15] = np.nan
    gap[r.random(n) < 0.1] = np.nan
    weights = r.integers(1, 3, n).astype(float)

    def parameters():
        mu, tau = sample("mu", dist.Normal(0.0, 2.0)), sample("tau", dist.HalfNormal(1.0))
        return mu, tau, sample("c", dist.HalfNormal(1.0)), sample("s", dist.HalfNormal(1.0).expand([2]).to_event(1))

    def tides(port, low, high, level=None, gap=None):
        mu, tau, c, s = parameters()
        with plate("ports", ports):
            u = sample("u", dist.Normal(0.0, tau))
        with plate("n", len(low)):
            sample("level", dist.TruncatedNormal(mu + u[port], s[0], low=low, high=high), obs=level)
            sample("gap", dist.FoldedDistribution(dist.Normal(1 + c * u[port], s[1])), obs=gap)

    l_there, g_there = ~np.isnan(own), ~np.isnan(gap)

    def plain():
        mu, tau, c, s = parameters()
        u = deterministic("u", tau * normals("e", ports))
        a = dist.TruncatedNormal(mu + u[port], s[0], low=low, high=high)
        b = dist.FoldedDistribution(dist.Normal(1 + c * u[port], s[1]))
        factor("a", (weights * a.log_prob(jnp.where(l_there, own, (low + high) / 2)))[l_there].sum())
        factor("b", (weights * b.log_prob(jnp.where(g_there, gap, 1.0)))[g_there].sum())
        deterministic("holes", a.mean[~l_there])
        below = jax.scipy.stats.norm.cdf
        m = 1 + c * u[port]
        mean = s[1] * jnp.sqrt(2 / jnp.pi) * jnp.exp(-m**2 / 2 / s[1] ** 2) + m * (1 - 2 * below(-m / s[1]))
        deterministic("gaps", mean[~g_there])

    data = {"port": np.array(list("uvwxyz"))[port], "low": low, "high": high, "level": own, "gap": gap}

    def ask(fit, data):
        finite(fit.log_prob(data), (n,), "log_prob")

    answers = {"holes": lambda fit: np.asarray(fit.impute(data)["level"])[~l_there],
               "gaps": lambda fit: np.asarray(fit.impute(data)["gap"])[~g_there]}
    return Program(probml.model(tides)(), data, plain, {}, None, ask, weights=weights, answers=answers)
