"""Programs of five strangers (users of NumPyro, Stan and lme4 here), each of several mechanisms.

Two dozen were written before any was run; the other half is in `tenth_cases.py`. Each is fitted by
default and asked two questions; the oracle is NumPyro's NUTS on a plain function.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy.stats as st
from judged_by_nuts import Program, program
from numpyro import deterministic, factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan
from oracles_of_strangers import close

import probml
from first_cases import back


def rng(seed):
    return np.random.default_rng([2411, seed])


def logistic(x):
    return 1 / (1 + np.exp(-np.asarray(x)))


def finite(value, shape, what):
    value = np.asarray(value, float)
    assert value.shape == shape and np.isfinite(value).all(), f"{what}: {value.shape}, {value}"


# ---- a user of NumPyro: functions with obs=, pasted ------------------------------------------------


@program("2PL items × latent regression on a grade × hierarchical discriminations")
def two_parameter_items():
    r = rng(1)
    person, item = np.repeat(np.arange(25), 8), np.tile(np.arange(8), 25)
    grade = r.normal(size=25)
    theta = 0.7 * grade + 0.8 * r.normal(size=25)
    slope, hard = r.lognormal(0.2, 0.4, 8), r.normal(0, 1, 8)
    y = (r.random(200) < logistic(slope[item] * (theta[person] - hard[item]))).astype(int)
    keep = r.random(200) < 0.9
    person, item, y = person[keep], item[keep], y[keep]

    def twopl(person, item, grade, y=None):
        gamma = sample("gamma", dist.Normal(0.0, 1.0))
        spread = sample("spread", dist.HalfNormal(0.5))
        with plate("items", 8):
            hard = sample("hard", dist.Normal(0.0, 1.5))
            slope = sample("slope", dist.LogNormal(0.0, spread))
        with plate("people", 25):
            theta = sample("theta", dist.Normal(gamma * grade, 1.0))
        with plate("answers", person.shape[0]):
            sample("y", dist.Bernoulli(logits=slope[item] * (theta[person] - hard[item])), obs=y)

    data = {"person": person, "item": item, "grade": grade, "y": y}

    def ask(fit, data):
        p = fit.predict_proba({k: data[k] for k in ("person", "item", "grade")}, "y")
        finite(p, (len(y), 2), "predict_proba")
        assert ((p[:, 1] > 0.5) == y).mean() > 0.6

    def plain():
        gamma = sample("gamma", dist.Normal(0.0, 1.0))
        spread = sample("spread", dist.HalfNormal(0.5))
        with plate("items", 8):
            hard = sample("hard", dist.Normal(0.0, 1.5))
            slope = deterministic("slope", jnp.exp(spread * sample("e", dist.Normal(0.0, 1.0))))
        with plate("people", 25):
            theta = deterministic("theta", gamma * grade + sample("f", dist.Normal(0.0, 1.0)))
        with plate("answers", len(y)):
            sample("y", dist.Bernoulli(logits=slope[item] * (theta[person] - hard[item])),
                   obs=jnp.asarray(y))

    return Program(probml.model(twopl)(), data, plain, {}, None, ask)


@program("zero inflation by a covariate × overdispersion × site effects × log effort")
def inflated_counts():
    r = rng(2)
    n, sites = 120, 10
    site, cover = np.tile(np.arange(sites), 12), r.normal(size=n)
    effort = r.uniform(0.5, 3.0, n)
    u = 0.5 * r.normal(size=sites)
    mean = effort * np.exp(0.8 + 0.5 * cover + u[site])
    gate = logistic(-0.8 - 0.9 * cover)
    y = np.where(r.random(n) < gate, 0, r.poisson(mean * r.gamma(2.0, 0.5, n)))

    def frogs(site, cover, effort, y=None):
        a = sample("a", dist.Normal(0.0, 2.0))
        b = sample("b", dist.Normal(0.0, 1.0))
        g = sample("g", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0))
        phi = sample("phi", dist.Gamma(2.0, 0.5))
        with plate("sites", 10):
            u = sample("u", dist.Normal(0.0, sd))
        with plate("visits", cover.shape[0]):
            own = dist.NegativeBinomial2(effort * jnp.exp(a + b * cover + u[site]), phi)
            return sample("y", dist.ZeroInflatedDistribution(
                own, gate_logits=g[0] + g[1] * cover), obs=y)

    data = {"site": site, "cover": cover, "effort": effort, "y": y}
    new = {k: v[:3] for k, v in data.items() if k != "y"}
    arrays = {k: jnp.asarray(v) for k, v in data.items()}

    def plain():
        with handlers.trace() as seen:
            frogs(**arrays)
        at = {k: seen[k]["value"] for k in ("a", "b", "u", "g")}
        x = arrays["cover"][:3]
        mean = arrays["effort"][:3] * jnp.exp(at["a"] + at["b"] * x + at["u"][site[:3]])
        deterministic("predicted", mean * jax.nn.sigmoid(-at["g"][0] - at["g"][1] * x))

    def ask(fit, data):
        finite(fit.log_prob(data), (n,), "log_prob")
        made = fit.simulate(**{k: data[k] for k in ("site", "cover", "effort")}, seed=1)["y"]
        assert 0.25 < (np.asarray(made) == 0).mean() < 0.65

    return Program(probml.model(frogs)(), data, plain, new, "y", ask)


@program("Gaussian copula of Weibull margins × scales by a covariate × LKJ")
def copula_of_lives():
    r = rng(3)
    n, x = 70, rng(33).normal(size=70)
    z = r.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], n)
    scale = np.exp(np.stack([0.3 + 0.7 * x, -0.4 - 0.3 * x], 1))
    y = scale * (-st.norm.logsf(z)) ** (1 / np.array([1.5, 0.9]))

    def lives(x, y=None):
        a = sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        shape = sample("shape", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
        root = sample("root", dist.LKJCholesky(2, 2.0))
        margins = dist.Weibull(jnp.exp(a + b * x[:, None]), shape)
        with plate("n", x.shape[0]):
            sample("y", dist.GaussianCopula(margins, correlation_cholesky=root), obs=y)

    data = {"x": x, "y": y}
    arrays = {k: jnp.asarray(v) for k, v in data.items()}

    def ask(fit, data):
        finite(fit.log_prob(data), (n,), "log_prob")
        assert "root" in fit.to_arviz().posterior

    return Program(probml.model(lives)(), data, lambda: lives(**arrays), {}, None, ask)


@program("local level by scan × regressor × Student's t noise × missing steps")
def level_with_regressor():
    r = rng(4)
    n = 60
    x = r.normal(size=n)
    y = np.cumsum(0.3 * r.normal(size=n)) + 0.8 * x + 0.5 * r.standard_t(4, n)
    holes = y.copy()
    holes[[10, 11, 12, 30, 45]] = np.nan

    def level(x, y):
        beta = sample("beta", dist.Normal(0.0, 1.0))
        q = sample("q", dist.HalfNormal(0.5))
        s = sample("s", dist.HalfNormal(1.0))

        def step(mu, at):
            x_t, y_t = at
            mu = sample("mu", dist.Normal(mu, q))
            sample("y", dist.StudentT(4.0, mu + beta * x_t, s), obs=y_t)
            return mu, mu

        scan(step, sample("mu0", dist.Normal(0.0, 1.0)), (x, y))

    def plain():
        beta = sample("beta", dist.Normal(0.0, 1.0))
        q = sample("q", dist.HalfNormal(0.5))
        s = sample("s", dist.HalfNormal(1.0))
        mu0 = sample("mu0", dist.Normal(0.0, 1.0))
        e = sample("e", dist.Normal(0.0, 1.0).expand([n]).to_event(1))
        mu = deterministic("mu", mu0 + q * jnp.cumsum(e))
        there = ~np.isnan(holes)
        sample("y", dist.StudentT(4.0, (mu + beta * x)[there], s), obs=jnp.asarray(holes[there]))

    def ask(fit, data):
        back(fit, fit.model)
        assert "beta" in fit.to_arviz().posterior

    return Program(probml.model(level)(), {"x": x, "y": holes}, plain, {}, None, ask)


# ---- a user of Stan --------------------------------------------------------------------------------


@program("measurement error × Poisson × log exposure × two replicates, one often missing")
def mismeasured_dose():
    r = rng(5)
    n = 70
    true = r.normal(1.0, 0.8, n)
    w = true[:, None] + 0.5 * r.normal(size=(n, 2))
    w[r.random(n) < 0.4, 1] = np.nan
    years = r.uniform(1, 5, n)
    y = r.poisson(years * np.exp(-0.5 + 0.6 * true))

    @probml.model
    def doses(years):
        mu = sample("mu", dist.Normal(0.0, 2.0))
        tau = sample("tau", dist.HalfNormal(1.0))
        error = sample("error", dist.HalfNormal(1.0))
        a, b = sample("a", dist.Normal(0.0, 2.0)), sample("b", dist.Normal(0.0, 1.0))
        with probml.rows():
            true = sample("true", dist.Normal(mu, tau))
            sample("first", dist.Normal(true, error))
            sample("second", dist.Normal(true, error))
            sample("y", dist.Poisson(years * jnp.exp(a + b * true)))

    def plain():
        mu = sample("mu", dist.Normal(0.0, 2.0))
        tau = sample("tau", dist.HalfNormal(1.0))
        error = sample("error", dist.HalfNormal(1.0))
        a, b = sample("a", dist.Normal(0.0, 2.0)), sample("b", dist.Normal(0.0, 1.0))
        with plate("n", n):
            e = sample("e", dist.Normal(0.0, 1.0))
            x = mu + tau * e
            sample("first", dist.Normal(x, error), obs=jnp.asarray(w[:, 0]))
            with handlers.mask(mask=~np.isnan(w[:, 1])):
                sample("second", dist.Normal(x, error), obs=jnp.asarray(np.nan_to_num(w[:, 1])))
            sample("y", dist.Poisson(years * jnp.exp(a + b * x)), obs=jnp.asarray(y))
        deterministic("predicted", years[:3] * jnp.exp(a + b * mu + 0.5 * (b * tau) ** 2))

    def ask(fit, data):
        finite(fit.impute(data)["second"], (n,), "impute")
        own = fit.conditional(data, "true")
        assert np.corrcoef(np.asarray(own.mean), true)[0, 1] > 0.7

    return Program(doses(), {"years": years, "first": w[:, 0], "second": w[:, 1], "y": y}, plain,
                   {"years": years[:3]}, "y", ask)


@program("changepoint × slope after it × overdispersed counts × offset")
def changepoint_of_counts():
    r = rng(6)
    n = 50
    year, people = np.arange(n), r.uniform(1, 3, n)
    mean = people * np.exp(np.where(year < 22, 1.2, 0.3 - 0.01 * (year - 22)))
    y = r.poisson(mean * r.gamma(6.0, 1 / 6, n))

    @probml.model
    def disasters(year, people):
        when = sample("when", dist.Categorical(jnp.ones(50) / 50))
        early, late = sample("early", dist.Normal(0.0, 2.0)), sample("late", dist.Normal(0.0, 2.0))
        slope = sample("slope", dist.Normal(0.0, 0.05))
        phi = sample("phi", dist.Gamma(2.0, 0.2))
        with probml.rows():
            log = jnp.where(year < when, early, late + slope * (year - when))
            sample("y", dist.NegativeBinomial2(people * jnp.exp(log), phi))

    def plain():
        early, late = sample("early", dist.Normal(0.0, 2.0)), sample("late", dist.Normal(0.0, 2.0))
        slope = sample("slope", dist.Normal(0.0, 0.05))
        phi = sample("phi", dist.Gamma(2.0, 0.2))
        when = jnp.arange(n)[:, None]
        log = jnp.where(year < when, early, late + slope * (year - when))
        each = dist.NegativeBinomial2(people * jnp.exp(log), phi).log_prob(y).sum(1)
        factor("y", jax.nn.logsumexp(each) - np.log(n))
        deterministic("predicted", jax.nn.softmax(each) @ (people * jnp.exp(log))[:, [5, 22, 40]])

    def ask(fit, data):
        p = np.asarray(fit.posterior("when").probs)
        assert p.shape == (50,) and abs(p.sum() - 1) < 1e-3 and 15 < p @ np.arange(50) < 30, p

    return Program(disasters(), {"year": year, "people": people, "y": y}, plain,
                   {"year": year[[5, 22, 40]], "people": people[[5, 22, 40]]}, "y", ask)


@program("right censoring × Weibull × frailty of clinics × covariate")
def censored_frailties():
    r = rng(7)
    n = 96
    clinic, age = np.tile(np.arange(8), 12), r.normal(size=n)
    scale = np.exp(1.0 - 0.4 * age + 0.5 * r.normal(size=8)[clinic])
    time, limit = scale * r.weibull(1.5, n), r.uniform(1, 6, n)
    cut, time = time > limit, np.minimum(time, limit)

    def survival(clinic, age, cut, time):
        a, b = sample("a", dist.Normal(0.0, 2.0)), sample("b", dist.Normal(0.0, 1.0))
        shape = sample("shape", dist.LogNormal(0.0, 0.7))
        sd = sample("sd", dist.HalfNormal(1.0))
        with plate("clinics", 8):
            u = sample("u", dist.Normal(0.0, sd))
        scale = jnp.exp(a + b * age + u[clinic])
        with plate("patients", age.shape[0]):
            sample("time", dist.RightCensoredDistribution(dist.Weibull(scale, shape), cut), obs=time)

    data = {"clinic": clinic, "age": age, "cut": cut, "time": time}

    def ask(fit, data):
        finite(fit.log_prob(data), (n,), "log_prob")
        finite(fit.predict({k: v[:4] for k, v in data.items() if k != "time"}, "time"), (4,), "time")

    arrays = {k: jnp.asarray(v) for k, v in data.items()}
    return Program(probml.model(survival)(), data, lambda: survival(**arrays), {}, None, ask)


@program("capture–recapture × chances of occasions × individual heterogeneity × a covariate")
def closed_capture():
    r = rng(8)
    n, there = 90, np.arange(90) < 60
    p = logistic(np.array([-1.0, -0.3, 0.2, -0.6, 0.0]) + 0.7 * r.normal(size=(n, 1)))
    caught = ((r.random((n, 5)) < p) & there[:, None]).astype(int)
    caught = caught[np.argsort(~caught.any(1), kind="stable")]

    @probml.model
    def animals():
        share = sample("share", dist.Beta(1.0, 1.0))
        sd = sample("sd", dist.HalfNormal(1.0))
        with plate("occasions", 5):
            level = sample("level", dist.Normal(0.0, 1.5))
        with probml.rows():
            real = sample("real", dist.Bernoulli(share))
            own = sample("own", dist.Normal(0.0, 1.0))
            p = jax.nn.sigmoid(level + sd * own[..., None]) * real[..., None]
            sample("caught", dist.Bernoulli(p).to_event(1))

    def plain():
        share = sample("share", dist.Beta(1.0, 1.0))
        sd = sample("sd", dist.HalfNormal(1.0))
        with plate("occasions", 5):
            level = sample("level", dist.Normal(0.0, 1.5))
        with plate("n", n):
            own = sample("own_", dist.Normal(0.0, 1.0))
        logit = level + sd * own[:, None]
        each = dist.Bernoulli(logits=logit).log_prob(jnp.asarray(caught)).sum(1) + jnp.log(share)
        factor("y", jnp.where(caught.any(1), each, jnp.logaddexp(each, jnp.log1p(-share))).sum())

    def ask(fit, data):
        p = np.asarray(fit.predict_proba(data, "real"))
        assert p.shape == (n, 2) and (p[caught.any(1), 1] > 0.999).all()
        assert 0.02 < p[-1, 1] < 0.9

    return Program(animals(), {"caught": caught}, plain, {}, None, ask)


@program("Dirichlet–multinomial × softmax of a covariate × vectors of effects of schools")
def overdispersed_choices():
    r = rng(9)
    n = 60
    school, x = np.tile(np.arange(10), 6), r.normal(size=n)
    eta = np.array([0.5, 0.0]) + np.outer(x, [0.6, -0.4]) + 0.5 * r.normal(size=(10, 2))[school]
    p = np.exp(np.concatenate([eta, np.zeros((n, 1))], 1))
    p = p / p.sum(1, keepdims=True)
    total = r.integers(8, 20, n)
    y = np.stack([r.multinomial(m, r.dirichlet(15 * q)) for m, q in zip(total, p, strict=True)])

    @probml.model
    def choices(school, x, total):
        a = sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0))
        size = sample("size", dist.Gamma(2.0, 0.1))
        with plate("schools", 10):
            u = sample("u", dist.Normal(0.0, sd).expand([2]).to_event(1))
        with probml.rows():
            eta = a + x[..., None] * b + u[school]
            p = jax.nn.softmax(jnp.concatenate([eta, jnp.zeros((*eta.shape[:-1], 1))], -1))
            sample("y", dist.DirichletMultinomial(size * p, total))

    def plain():
        a = sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0))
        size = sample("size", dist.Gamma(2.0, 0.1))
        with plate("schools", 10):
            e = sample("e", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        u = deterministic("u", sd * e)
        eta = a + x[:, None] * b + u[school]
        p = jax.nn.softmax(jnp.concatenate([eta, jnp.zeros((n, 1))], -1))
        with plate("n", n):
            sample("y", dist.DirichletMultinomial(size * p, total), obs=jnp.asarray(y))
        deterministic("predicted", total[:4, None] * p[:4])

    def ask(fit, data):
        made = np.asarray(fit.simulate(**{k: data[k] for k in ("school", "x", "total")})["y"])
        assert (made.sum(1) == total).all()

    data = {"school": school, "x": x, "total": total, "y": y}
    return Program(choices(), data, plain, {k: data[k][:4] for k in ("school", "x", "total")}, "y", ask)


@program("survival by pieces × a covariate that changes × random-walk hazard × hospitals")
def changing_hazard():
    r = rng(10)
    rows = []
    sick = r.normal(0, 0.4, 6)
    for patient in range(60):
        hospital, trend = patient % 6, r.normal()
        for piece in range(5):
            x = 0.5 * trend * piece / 2 + 0.3 * r.normal()
            rate = np.exp(-1.6 + 0.2 * piece + 0.6 * x + sick[hospital])
            wait = r.exponential(1 / rate)
            rows.append((hospital, piece, x, min(wait, 1.0), int(wait < 1)))
            if wait < 1:
                break
    hospital, piece, x, risk, died = (np.array(c) for c in zip(*rows, strict=True))

    def hazards(hospital, piece, x, risk, died=None):
        first = sample("first", dist.Normal(-1.0, 1.0))
        step = sample("step", dist.HalfNormal(0.5))
        jump = sample("jump", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
        base = deterministic("base", first + jnp.concatenate([jnp.zeros(1), step * jnp.cumsum(jump)]))
        beta = sample("beta", dist.Normal(0.0, 1.0))
        sd = sample("sd", dist.HalfNormal(0.7))
        with plate("hospitals", 6):
            u = sample("u", dist.Normal(0.0, sd))
        with plate("intervals", x.shape[0]):
            mean = risk * jnp.exp(base[piece] + beta * x + u[hospital])
            sample("died", dist.Poisson(mean), obs=died)

    data = {"hospital": hospital, "piece": piece, "x": x, "risk": risk, "died": died}
    arrays = {k: jnp.asarray(v) for k, v in data.items()}

    def plain():
        with handlers.trace() as seen:
            hazards(**arrays)
        base, beta, u = (seen[k]["value"] for k in ("base", "beta", "u"))
        deterministic("predicted", (arrays["risk"] * jnp.exp(base[piece] + beta * x + u[hospital]))[:4])

    def ask(fit, data):
        low, high = fit.predict({k: v[:4] for k, v in data.items() if k != "died"}, "died",
                                interval=0.9)[1:]
        assert (np.asarray(low) <= np.asarray(high)).all()
        finite(fit.log_prob(data), (len(x),), "log_prob")

    return Program(probml.model(hazards)(), data, plain,
                   {k: v[:4] for k, v in data.items() if k != "died"}, "died", ask)


# ---- a user of lme4 and brms -----------------------------------------------------------------------


@program("missing covariate and outcome cells × correlated random slopes × offset")
def missing_slopes():
    r = rng(11)
    n = 110
    group, x = np.tile(np.arange(11), 10), r.normal(0.3, 1.0, n)
    u = r.multivariate_normal([0, 0], [[0.25, 0.1], [0.1, 0.16]], 11)
    area = r.uniform(0.5, 2.0, n)
    y = r.poisson(area * np.exp(0.7 + 0.4 * x + u[group, 0] + u[group, 1] * x)).astype(float)
    holes, gaps = x.copy(), y.copy()
    holes[r.random(n) < 0.1] = np.nan
    gaps[r.random(n) < 0.1] = np.nan

    @probml.model
    def slopes(group, area):
        mean, wide = sample("mean", dist.Normal(0.0, 1.0)), sample("wide", dist.HalfNormal(2.0))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        root = sample("root", dist.LKJCholesky(2, 2.0))
        with plate("groups", 11):
            u = sample("u", dist.MultivariateNormal(b, scale_tril=sd[:, None] * root))
        with probml.rows():
            x = sample("x", dist.Normal(mean, wide))
            sample("y", dist.Poisson(area * jnp.exp(u[group, 0] + u[group, 1] * x)))

    there, gone = ~np.isnan(gaps), np.isnan(holes)

    def plain():
        mean, wide = sample("mean", dist.Normal(0.0, 1.0)), sample("wide", dist.HalfNormal(2.0))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        root = sample("root", dist.LKJCholesky(2, 2.0))
        with plate("groups", 11):
            e = sample("e", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        u = deterministic("u", b + e @ (sd[:, None] * root).T)
        new = sample("new", dist.Normal(mean, wide).expand([int(gone.sum())]).to_event(1))
        sample("x", dist.Normal(mean, wide), obs=jnp.asarray(holes[~gone]))
        x = jnp.asarray(np.nan_to_num(holes)).at[np.flatnonzero(gone)].set(new)
        rate = area * jnp.exp(u[group, 0] + u[group, 1] * x)
        sample("y", dist.Poisson(rate[there]), obs=jnp.asarray(gaps[there]))
        deterministic("predicted", area[:3] * jnp.exp(u[group[:3], 0] + u[group[:3], 1] * 0.5))

    def ask(fit, data):
        filled = fit.impute(data)
        finite(filled["x"], (n,), "impute x")
        finite(filled["y"], (n,), "impute y")

    return Program(slopes(), {"group": group, "area": area, "x": holes, "y": gaps}, plain,
                   {"group": group[:3], "area": area[:3], "x": np.full(3, 0.5)}, "y", ask)


@program("ordinal × random intercept × a monotone effect × unequal thresholds")
def monotone_ordinal():
    r = rng(12)
    n = 140
    village, income = np.tile(np.arange(14), 10), r.integers(0, 5, n)
    eta = 1.6 * np.array([0, 0.1, 0.4, 0.9, 1.0])[income] + 0.6 * r.normal(size=14)[village]
    y = (eta[:, None] + r.logistic(size=(n, 1)) > np.array([-0.5, 0.8, 2.0])).sum(1)

    @probml.model
    def happy(village, income):
        b = sample("b", dist.Normal(0.0, 1.0))
        part = sample("part", dist.Dirichlet(2.0 * jnp.ones(4)))
        cut = sample("cut", dist.TransformedDistribution(
            dist.Normal(0.0, 2.0).expand([3]).to_event(1),
            numpyro.distributions.transforms.OrderedTransform()))
        sd = sample("sd", dist.HalfNormal(1.0))
        with plate("villages", 14):
            u = sample("u", dist.Normal(0.0, sd))
        climbed = jnp.concatenate([jnp.zeros(1), jnp.cumsum(part)])
        with probml.rows():
            sample("y", dist.OrderedLogistic(4 * b * climbed[income] + u[village], cut))

    def plain():
        b = sample("b", dist.Normal(0.0, 1.0))
        part = sample("part", dist.Dirichlet(2.0 * jnp.ones(4)))
        cut = sample("cut", dist.TransformedDistribution(
            dist.Normal(0.0, 2.0).expand([3]).to_event(1),
            numpyro.distributions.transforms.OrderedTransform()))
        sd = sample("sd", dist.HalfNormal(1.0))
        with plate("villages", 14):
            e = sample("e", dist.Normal(0.0, 1.0))
        u = deterministic("u", sd * e)
        climbed = jnp.concatenate([jnp.zeros(1), jnp.cumsum(part)])
        with plate("n", n):
            sample("y", dist.OrderedLogistic(4 * b * climbed[income] + u[village], cut),
                   obs=jnp.asarray(y))
        deterministic("p", dist.OrderedLogistic((4 * b * climbed[income] + u[village])[:5], cut).probs)

    def ask(fit, data):
        p = fit.predict_proba({k: data[k][:5] for k in ("village", "income")}, "y")
        finite(p, (5, 4), "predict_proba")
        close(np.asarray(p).sum(1), np.ones(5), "probabilities")

    return Program(happy(), {"village": village, "income": income, "y": y}, plain, {}, None, ask)
