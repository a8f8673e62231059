"""Programs of fields that `ninth_cases.py` and `tenth_cases.py` leave out: sport, fisheries, trade, ….

Twenty-six were written before any was run; the other half is in `twelfth_cases.py`. Each is fitted by
default and asked two questions; the oracle is NumPyro's NUTS on a plain function.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from judged_by_nuts import Program, program
from ninth_cases import finite, logistic
from numpyro import deterministic, factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan
from oracles_of_strangers import close

import probml
from first_cases import back


def rng(seed):
    return np.random.default_rng([2511, seed])


def first(data, n, *without):
    return {k: v[:n] for k, v in data.items() if k not in without}


# ---- a user of NumPyro: functions with obs=, pasted ------------------------------------------------


@program("ranking of teams × strengths that move by season × home advantage × draws")
def season_of_matches():
    r = rng(1)
    n = 150
    season, home = np.repeat(np.arange(3), 50), r.integers(0, 8, n)
    away = (home + r.integers(1, 8, n)) % 8
    moves = np.concatenate([np.zeros((1, 8)), 0.4 * r.normal(size=(2, 8))])
    strong = 0.8 * r.normal(size=8) + np.cumsum(moves, 0)
    eta = 0.4 + strong[season, home] - strong[season, away]
    result = (eta[:, None] + r.logistic(size=(n, 1)) > np.array([-0.4, 0.4])).sum(1)

    def league(season, home, away, result=None):
        sd, move = sample("sd", dist.HalfNormal(1.0)), sample("move", dist.HalfNormal(0.5))
        edge, half = sample("edge", dist.Normal(0.0, 1.0)), sample("half", dist.LogNormal(-1.0, 0.5))
        with plate("teams", 8):
            start = sample("start", dist.Normal(0.0, sd))
            with plate("changes", 2):
                change = sample("change", dist.Normal(0.0, move))
        walk = jnp.concatenate([jnp.zeros((1, 8)), jnp.cumsum(change, 0)])
        strength = deterministic("strength", start + walk)
        eta = edge + strength[season, home] - strength[season, away]
        with plate("matches", home.shape[0]):
            sample("result", dist.OrderedLogistic(eta, jnp.stack([-half, half])), obs=result)

    def plain():
        sd, move = sample("sd", dist.HalfNormal(1.0)), sample("move", dist.HalfNormal(0.5))
        edge, half = sample("edge", dist.Normal(0.0, 1.0)), sample("half", dist.LogNormal(-1.0, 0.5))
        start = deterministic("start", sd * sample("e", dist.Normal(0.0, 1.0).expand([8]).to_event(1)))
        f = sample("f", dist.Normal(0.0, 1.0).expand([2, 8]).to_event(2))
        change = deterministic("change", move * f)
        strength = start + jnp.concatenate([jnp.zeros((1, 8)), jnp.cumsum(change, 0)])
        deterministic("strength", strength)
        eta = edge + strength[season, home] - strength[season, away]
        sample("result", dist.OrderedLogistic(eta, jnp.stack([-half, half])).to_event(1),
               obs=jnp.asarray(result))

    def ask(fit, data):
        p = np.asarray(fit.predict_proba(first(data, 9, "result"), "result"))
        finite(p, (9, 3), "predict_proba")
        swapped = {"season": data["season"][:9], "home": data["away"][:9], "away": data["home"][:9]}
        assert (p[:, 2] > np.asarray(fit.predict_proba(swapped, "result"))[:, 0]).all()

    data = {"season": season, "home": home, "away": away, "result": result}
    return Program(probml.model(league)(), data, plain, {}, None, ask)


@program("stochastic volatility as an AR(1) by scan × leverage × regressor")
def volatility_with_leverage():
    r = rng(2)
    n = 100
    x, y, h, e = r.normal(size=n), np.zeros(n), -1.0, 0.0
    for t in range(n):
        h = -1.0 + 0.9 * (h + 1.0) + 0.35 * (-0.6 * e + 0.8 * r.normal())
        e = r.normal()
        y[t] = 0.3 * x[t] + np.exp(h / 2) * e

    def parameters():
        return (sample("mu", dist.Normal(0.0, 2.0)), sample("beta", dist.Normal(0.0, 1.0)),
                sample("stay", dist.Beta(10.0, 1.5)), sample("wide", dist.HalfNormal(0.5)),
                sample("rho", dist.Uniform(-1.0, 1.0)))

    def returns(x, y):
        mu, beta, stay, wide, rho = parameters()

        def step(carry, at):
            h, e = carry
            x_t, y_t = at
            middle = mu + stay * (h - mu) + wide * rho * e
            h = sample("h", dist.Normal(middle, wide * jnp.sqrt(1 - rho**2)))
            y_t = sample("y", dist.Normal(beta * x_t, jnp.exp(h / 2)), obs=y_t)
            return (h, (y_t - beta * x_t) * jnp.exp(-h / 2)), h

        scan(step, (mu, 0.0), (x, y))

    def plain():
        mu, beta, stay, wide, rho = parameters()
        own = sample("own", dist.Normal(0.0, 1.0).expand([n]).to_event(1))

        def step(carry, at):
            h, e = carry
            x_t, y_t, own_t = at
            h = mu + stay * (h - mu) + wide * (rho * e + jnp.sqrt(1 - rho**2) * own_t)
            return (h, (y_t - beta * x_t) * jnp.exp(-h / 2)), h

        h = jax.lax.scan(step, (mu, 0.0), (jnp.asarray(x), jnp.asarray(y), own))[1]
        sample("y", dist.Normal(beta * x, jnp.exp(deterministic("h", h) / 2)), obs=jnp.asarray(y))

    def ask(fit, data):
        finite(fit.draws(20)["h"], (20, n), "draws of h")
        finite(fit.simulate(x=x, seed=2)["y"], (n,), "simulate")

    return Program(probml.model(returns)(), {"x": x, "y": y}, plain, {}, None, ask)


@program("compartments by scan × towns × reported negative binomial counts × weekends × missing days")
def outbreak_of_towns():
    r = rng(3)
    people, days = np.array([2000.0, 5000.0, 3000.0]), 40
    weekend = (np.arange(days) % 7 > 4).astype(float)
    s, i, rows = people - 8, np.full(3, 8.0), []
    for _ in range(days):
        new = s * (1 - np.exp(-np.array([0.4, 0.5, 0.35]) * i / people))
        s, i = s - new, i * np.exp(-0.2) + new
        rows.append(new)
    mean = 0.4 * np.array(rows) * np.exp(-0.5 * weekend)[:, None]
    y = r.poisson(mean * r.gamma(15.0, 1 / 15, mean.shape)).astype(float)
    y[[4, 11, 25], [0, 1, 2]] = np.nan

    def curves(people, weekend):
        level, sd = sample("level", dist.Normal(-1.0, 0.4)), sample("sd", dist.HalfNormal(0.3))
        gamma = sample("gamma", dist.LogNormal(-1.6, 0.2))
        share, dip = sample("share", dist.Beta(8.0, 12.0)), sample("dip", dist.Normal(0.0, 0.5))
        e = sample("e", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        start = sample("start", dist.LogNormal(2.0, 0.5).expand([3]).to_event(1))
        beta = deterministic("beta", jnp.exp(level + sd * e))

        def day(state, _):
            s, i = state
            new = s * (1 - jnp.exp(-beta * i / people))
            return (s - new, i * jnp.exp(-gamma) + new), new

        new = jax.lax.scan(day, (people - start, start), None, length=weekend.shape[0])[1]
        return share * new * jnp.exp(dip * weekend)[:, None]

    def epidemic(people, weekend, y=None):
        mean, size = curves(people, weekend), sample("size", dist.Gamma(4.0, 0.2))
        with plate("days", weekend.shape[0]):
            sample("y", dist.NegativeBinomial2(mean, size).to_event(1), obs=y)

    there = ~np.isnan(y)

    def plain():
        mean, size = curves(jnp.asarray(people), jnp.asarray(weekend)), sample("size", dist.Gamma(4.0, 0.2))
        sample("y", dist.NegativeBinomial2(mean[there], size), obs=jnp.asarray(y[there]))

    def ask(fit, data):
        made = np.asarray(fit.simulate(people=people, weekend=weekend, seed=1)["y"])
        finite(made, (days, 3), "simulate")
        assert 0.3 < made.sum() / np.nansum(y) < 3
        back(fit, fit.model)

    data = {"people": people, "weekend": weekend, "y": y}
    return Program(probml.model(epidemic)(), data, plain, {}, None, ask)


@program("distances of a half-normal detection × counts of transects × observers × cover")
def sightings_along_lines():
    r = rng(4)
    lines, wide = 40, 50.0
    cover, long, who = r.normal(size=lines), r.uniform(0.5, 2.0, lines), np.arange(lines) % 5
    skill = np.exp(3.0 - 0.2 * cover + 0.15 * r.normal(size=5)[who])
    there = r.poisson(long * np.exp(2.0 + 0.4 * cover))
    line = np.repeat(np.arange(lines), there)
    away = r.uniform(0, wide, len(line))
    met = r.random(len(line)) < np.exp(-0.5 * (away / skill[line]) ** 2)
    line, away = line[met], away[met]
    count = np.bincount(line, minlength=lines)

    def parts(cover, who):
        a, b = sample("a", dist.Normal(0.0, 2.0)), sample("b", dist.Normal(0.0, 1.0))
        s = sample("s", dist.Normal(jnp.array([3.0, 0.0]), jnp.array([1.0, 0.5])).to_event(1))
        sd = sample("sd", dist.HalfNormal(0.3))
        e = sample("e", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
        u = deterministic("u", sd * e)
        return a + b * cover, jnp.exp(s[0] + s[1] * cover + u[who])

    def survey(cover, long, who, line, count=None, away=None):
        log, scale = parts(cover, who)
        seen = scale * jnp.sqrt(jnp.pi / 2) * jax.scipy.special.erf(wide / (scale * jnp.sqrt(2.0))) / wide
        with plate("lines", cover.shape[0]):
            sample("count", dist.Poisson(long * jnp.exp(log) * seen), obs=count)
        with plate("sightings", line.shape[0]):
            sample("away", dist.TruncatedNormal(0.0, scale[line], low=0.0, high=wide), obs=away)

    def plain():
        log, scale = parts(jnp.asarray(cover), who)
        area = scale * (dist.Normal(0.0, 1.0).cdf(wide / scale) - 0.5) * jnp.sqrt(2 * jnp.pi)
        sample("count", dist.Poisson(long * jnp.exp(log) * area / wide), obs=jnp.asarray(count))
        factor("away", jnp.sum(-0.5 * (away / scale[line]) ** 2 - jnp.log(area[line])))

    def ask(fit, data):
        made = fit.simulate(**{k: data[k] for k in ("cover", "long", "who", "line")}, seed=4)
        finite(made["away"], (len(line),), "simulate")
        assert 0 <= np.min(made["away"]) and np.max(made["away"]) <= wide
        assert "s" in fit.to_arviz().posterior

    data = {"cover": cover, "long": long, "who": who, "line": line, "count": count, "away": away}
    return Program(probml.model(survey)(), data, plain, {}, None, ask)


@program("multinomial logit × inputs of the alternatives × those not to be had × tastes of persons")
def ways_to_work():
    r = rng(5)
    n, persons = 160, 32
    who = np.arange(n) % persons
    cost, hours = r.lognormal(0.5, 0.5, (n, 3)), r.lognormal(-0.3, 0.4, (n, 3))
    open_ = np.ones((n, 3), bool)
    open_[r.random(n) < 0.3, 2] = False
    taste = -np.exp(-0.2 + 0.6 * r.normal(size=persons))
    u = np.array([0.0, 0.5, -0.3]) + taste[who][:, None] * cost - 1.2 * hours
    way = np.argmax(np.where(open_, u + r.gumbel(size=(n, 3)), -np.inf), 1)

    def logits(who, cost, hours, open_, log_taste, own, slow):
        own = jnp.concatenate([jnp.zeros(1), own])
        u = own - jnp.exp(log_taste[who])[:, None] * cost + slow * hours
        return jnp.where(open_, u, -jnp.inf)

    def modes(who, cost, hours, open_, way=None):
        own = sample("own", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        slow = sample("slow", dist.Normal(0.0, 1.0))
        middle, sd = sample("middle", dist.Normal(0.0, 1.0)), sample("sd", dist.HalfNormal(1.0))
        with plate("persons", persons):
            log_taste = sample("log_taste", dist.Normal(middle, sd))
        with plate("trips", who.shape[0]):
            sample("way", dist.Categorical(
                logits=logits(who, cost, hours, open_, log_taste, own, slow)), obs=way)

    def plain():
        own = sample("own", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        slow = sample("slow", dist.Normal(0.0, 1.0))
        middle, sd = sample("middle", dist.Normal(0.0, 1.0)), sample("sd", dist.HalfNormal(1.0))
        e = sample("e", dist.Normal(0.0, 1.0).expand([persons]).to_event(1))
        log_taste = deterministic("log_taste", middle + sd * e)
        u = logits(who, cost, hours, np.ones_like(open_), log_taste, own, slow)
        u = jnp.where(open_, u, -1e6)
        factor("way", (u[np.arange(n), way] - jax.nn.logsumexp(u, 1)).sum())

    def ask(fit, data):
        p = np.asarray(fit.predict_proba(first(data, 20, "way"), "way"))
        finite(p, (20, 3), "predict_proba")
        assert (p[~open_[:20]] < 1e-6).all()
        finite(fit.log_prob(data), (n,), "log_prob")

    data = {"who": who, "cost": cost, "hours": hours, "open_": open_, "way": way}
    return Program(probml.model(modes)(), data, plain, {}, None, ask)


# ---- a user of brms and lme4 -----------------------------------------------------------------------


@program("hurdle × truncated counts × correlated effects of both parts × log effort")
def hurdle_of_catches():
    r = rng(6)
    n = 156
    boat, depth, hours = np.arange(n) % 13, r.normal(size=n), r.uniform(0.5, 3.0, n)
    u = r.multivariate_normal([0, 0], [[0.5, 0.2], [0.2, 0.25]], 13)
    some = (r.random(n) < logistic(0.6 + 0.7 * depth + u[boat, 0])).astype(int)
    fish = np.zeros(n, int)
    rate = hours * np.exp(0.5 - 0.3 * depth + u[boat, 1])
    while ((some == 1) & (fish == 0)).any():
        fish = np.where((some == 1) & (fish == 0), r.poisson(rate), fish)

    def parameters():
        a = sample("a", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        root = sample("root", dist.LKJCholesky(2, 2.0))
        return a, b, sd[:, None] * root

    @probml.model
    def catches(boat, depth, hours):
        a, b, root = parameters()
        with plate("boats", 13):
            u = sample("u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root))
        with probml.rows():
            some = sample("some", dist.Bernoulli(logits=a[0] + b[0] * depth + u[boat, 0]))
            rate = hours * jnp.exp(a[1] + b[1] * depth + u[boat, 1])
            with handlers.mask(mask=some == 1):
                sample("fish", dist.Poisson(rate))
                factor("truncated", -jnp.log1p(-jnp.exp(-rate)))

    def plain():
        a, b, root = parameters()
        e = sample("e", dist.Normal(0.0, 1.0).expand([13, 2]).to_event(2))
        u = deterministic("u", e @ root.T)
        sample("some", dist.Bernoulli(logits=a[0] + b[0] * depth + u[boat, 0]), obs=jnp.asarray(some))
        rate = (hours * jnp.exp(a[1] + b[1] * depth + u[boat, 1]))[some == 1]
        each = dist.Poisson(rate).log_prob(jnp.asarray(fish[some == 1])) - jnp.log1p(-jnp.exp(-rate))
        factor("fish", each.sum())

    def ask(fit, data):
        p = fit.predict_proba(first(data, 5, "some", "fish"), "some")
        finite(p, (5, 2), "predict_proba")
        finite(fit.log_prob(data), (n,), "log_prob")

    data = {"boat": boat, "depth": depth, "hours": hours, "some": some, "fish": fish}
    return Program(catches(), data, plain, {}, None, ask)


@program("gravity of trade × AR(1) errors of a pair × crossed effects of countries × missing years")
def gravity_of_trade():
    r = rng(7)
    origin, target = np.array([(i, j) for i in range(7) for j in range(7) if i != j]).T
    n, years = len(origin), 6
    wealth = r.normal(size=7)[:, None] + 0.3 * np.arange(years) / 6 + 0.2 * r.normal(size=(7, years))
    mass, far = wealth[origin] + wealth[target], r.normal(size=n)
    error = np.zeros((n, years))
    error[:, 0] = r.normal(size=n) * 0.5 / np.sqrt(1 - 0.7**2)
    for t in range(1, years):
        error[:, t] = 0.7 * error[:, t - 1] + 0.5 * r.normal(size=n)
    o, d = 0.6 * r.normal(size=7), 0.4 * r.normal(size=7)
    y = 1.0 + 0.8 * mass + (o[origin] + d[target] - 0.9 * far)[:, None] + error
    y[[3, 8, 20, 33], [0, 2, 5, 3]] = np.nan
    lag = np.abs(np.arange(years)[:, None] - np.arange(years))

    def parameters():
        c = sample("c", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
        rho, s = sample("rho", dist.Uniform(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        return c, s**2 * rho**lag / (1 - rho**2), sd

    @probml.model
    def trade(origin, target, mass, far):
        c, cov, sd = parameters()
        with plate("countries", 7):
            sends = sample("sends", dist.Normal(0.0, sd[0]))
            takes = sample("takes", dist.Normal(0.0, sd[1]))
        with probml.rows():
            own = c[0] + c[2] * far + sends[origin] + takes[target]
            sample("y", dist.MultivariateNormal(own[..., None] + c[1] * mass, cov))

    def plain():
        c, cov, sd = parameters()
        e = sample("e", dist.Normal(0.0, 1.0).expand([2, 7]).to_event(2))
        sends, takes = deterministic("sends", sd[0] * e[0]), deterministic("takes", sd[1] * e[1])
        mean = (c[0] + c[2] * far + sends[origin] + takes[target])[:, None] + c[1] * mass
        whole = ~np.isnan(y).any(1)
        sample("y", dist.MultivariateNormal(mean[whole], cov).to_event(1), obs=jnp.asarray(y[whole]))
        for i in np.flatnonzero(~whole):
            k = np.flatnonzero(~np.isnan(y[i]))
            sample(f"y{i}", dist.MultivariateNormal(mean[i, k], cov[np.ix_(k, k)]),
                   obs=jnp.asarray(y[i, k]))
        deterministic("predicted", mean[:3])

    def ask(fit, data):
        filled = np.asarray(fit.impute(data)["y"])
        finite(filled, (n, years), "impute")
        assert abs(filled[8, 2] - (y[8, 1] + y[8, 3]) / 2) < 1.5
        finite(fit.log_prob(data), (n,), "log_prob")

    data = {"origin": origin, "target": target, "mass": mass, "far": far, "y": y}
    return Program(trade(), data, plain, first(data, 3, "y"), "y", ask)


@program("four-parameter logistic × plates with their own half doses × Student's t × doses of 0")
def dose_response():
    r = rng(8)
    doses = np.array([0.0, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 0.0, 100])
    n = 96
    well, dose = np.repeat(np.arange(8), 12), np.tile(doses, 8)
    half = np.exp(0.2 + 0.5 * r.normal(size=8))[well]
    y = 5 + 90 / (1 + np.where(
        dose > 0, (np.maximum(dose, 1e-9) / half) ** -1.3, np.inf)) + 4 * r.standard_t(4, n)

    def curve(low, high, slope, log_half, well, dose):
        at = jnp.log(jnp.where(dose > 0, dose, 1.0))
        risen = jax.nn.sigmoid(slope * (at - log_half[well]))
        return low + (high - low) * jnp.where(dose > 0, risen, 0.0)

    def parameters():
        low, high = sample("low", dist.Normal(0.0, 20.0)), sample("high", dist.Normal(100.0, 20.0))
        slope, s = sample("slope", dist.LogNormal(0.0, 0.5)), sample("s", dist.HalfNormal(10.0))
        return low, high, slope, s, sample("m", dist.Normal(0.0, 2.0)), sample("sd", dist.HalfNormal(1.0))

    @probml.model
    def response(well, dose):
        low, high, slope, s, m, sd = parameters()
        with plate("wells", 8):
            log_half = sample("log_half", dist.Normal(m, sd))
        with probml.rows():
            sample("y", dist.StudentT(4.0, curve(low, high, slope, log_half, well, dose), s))

    def plain():
        low, high, slope, s, m, sd = parameters()
        e = sample("e", dist.Normal(0.0, 1.0).expand([8]).to_event(1))
        mean = curve(low, high, slope, deterministic("log_half", m + sd * e), well, dose)
        sample("y", dist.StudentT(4.0, mean, s), obs=jnp.asarray(y))
        deterministic("predicted", mean[2:8])

    def ask(fit, data):
        middle, low, high = fit.predict({"well": [0, 1, 2], "dose": [0.0, 1.0, 50.0]}, "y", interval=0.9)
        assert (low < middle).all() and (middle < high).all() and np.diff(middle).min() > 0

    data = {"well": well, "dose": dose, "y": y}
    return Program(response(), data, plain, {k: v[2:8] for k, v in data.items() if k != "y"}, "y", ask)


# ---- a user of unmarked, with Stan and PyMC ----------------------------------------------------------


@program("occupancy that turns over × covariates of the moves and of detection × missing surveys")
def turnover():
    r = rng(9)
    n, steps = 60, 6
    region, x, wind = np.arange(n) % 6, r.normal(size=(n, steps)), r.normal(size=(n, steps, 2))
    u = 0.5 * r.normal(size=6)
    z = np.zeros((n, steps), int)
    z[:, 0] = r.random(n) < 0.5
    for t in range(1, steps):
        p = np.where(z[:, t - 1], logistic(1.5 - 0.5 * x[:, t]), logistic(-1.0 + 0.8 * x[:, t]))
        z[:, t] = r.random(n) < p
    y = ((r.random((n, steps, 2)) < logistic(0.4 - 0.6 * wind + u[region][:, None, None]))
         & (z[..., None] == 1)).astype(float)
    y[r.random((n, steps, 2)) < 0.1] = np.nan

    def parameters():
        begin = sample("begin", dist.Beta(1.0, 1.0))
        c = sample("c", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        s = sample("s", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        d = sample("d", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        return begin, c, s, d, sample("sd", dist.HalfNormal(1.0))

    def moves(x, c, s):
        gain, stay = jax.nn.sigmoid(c[0] + c[1] * x), jax.nn.sigmoid(s[0] + s[1] * x)
        return jnp.stack([jnp.stack([1 - gain, gain], -1), jnp.stack([1 - stay, stay], -1)], -2)

    @probml.model
    def patches(region, x, wind):
        begin, c, s, d, sd = parameters()
        with plate("regions", 6):
            u = sample("u", dist.Normal(0.0, sd))
        with probml.rows():
            z = sample("z", probml.MarkovChain(jnp.stack([1 - begin, begin]), moves(x, c, s),
                                               inhomogeneous=True))
            p = jax.nn.sigmoid(d[0] + d[1] * wind + u[region][..., None, None])
            sample("y", dist.Bernoulli(p * z[..., None]).to_event(2))

    def plain():
        begin, c, s, d, sd = parameters()
        u = deterministic("u", sd * sample("e", dist.Normal(0.0, 1.0).expand([6]).to_event(1)))
        logit = d[0] + d[1] * wind + u[region][:, None, None]
        seen = dist.Bernoulli(logits=logit).log_prob(jnp.asarray(np.nan_to_num(y)))
        there = jnp.where(np.isnan(y), 0.0, seen).sum(-1)
        absent = jnp.where((np.nan_to_num(y) == 0).all(-1), 0.0, -1e6)
        own = jnp.stack([absent, there], -1)
        log_move = jnp.log(moves(jnp.asarray(x), c, s))
        alpha = jnp.log(jnp.stack([1 - begin, begin])) + own[:, 0]
        for t in range(1, steps):
            alpha = jax.nn.logsumexp(alpha[:, :, None] + log_move[:, t], 1) + own[:, t]
        factor("y", jax.nn.logsumexp(alpha, 1).sum())

    def ask(fit, data):
        path = np.asarray(fit.decode(data)["z"])
        assert path.shape == (n, steps) and (path == z).mean() > 0.8
        assert (path[np.nan_to_num(y).any(-1)] == 1).all()

    return Program(patches(), {"region": region, "x": x, "wind": wind, "y": y}, plain, {}, None, ask)


@program("removal: latent counts × passes that take from what is left × streams × a missing pass")
def removal_of_trout():
    r = rng(10)
    n = 72
    stream, shade, effort = np.arange(n) % 8, r.normal(size=n), r.normal(size=n)
    there = r.poisson(np.exp(1.8 + 0.3 * shade + 0.4 * r.normal(size=8)[stream]))
    p = logistic(-0.2 + 0.5 * effort)
    one = r.binomial(there, p)
    two = r.binomial(there - one, p)
    three = r.binomial(there - one - two, p).astype(float)
    three[::5] = np.nan
    top = 50

    def parameters():
        a, b = sample("a", dist.Normal(0.0, 2.0)), sample("b", dist.Normal(0.0, 1.0))
        c, d = sample("c", dist.Normal(0.0, 1.5)), sample("d", dist.Normal(0.0, 1.0))
        return a, b, c, d, sample("sd", dist.HalfNormal(1.0))

    @probml.model
    def trout(stream, shade, effort):
        a, b, c, d, sd = parameters()
        with plate("streams", 8):
            u = sample("u", dist.Normal(0.0, sd))
        with probml.rows():
            rate = jnp.exp(a + b * shade + u[stream])
            total = sample("total", dist.Categorical(
                logits=dist.Poisson(rate[..., None]).log_prob(jnp.arange(top))))
            logit = c + d * effort
            one = sample("one", dist.Binomial(total, logits=logit))
            two = sample("two", dist.Binomial(jnp.maximum(total - one, 0), logits=logit))
            sample("three", dist.Binomial(jnp.maximum(total - one - two, 0), logits=logit))

    def plain():
        a, b, c, d, sd = parameters()
        u = deterministic("u", sd * sample("e", dist.Normal(0.0, 1.0).expand([8]).to_event(1)))
        total, logit = jnp.arange(top)[None], (c + d * effort)[:, None]
        rate = jnp.exp(a + b * shade + u[stream])
        each = jax.nn.log_softmax(dist.Poisson(rate[:, None]).log_prob(total), -1)
        left = total
        for caught in (one, two, three):
            know = ~np.isnan(caught)
            caught = jnp.asarray(np.nan_to_num(caught))[:, None]
            own = dist.Binomial(jnp.maximum(left, caught), logits=logit).log_prob(caught)
            own = jnp.where(left >= caught, own, -jnp.inf)
            each, left = each + jnp.where(know[:, None], own, 0.0), left - caught
        factor("y", jax.nn.logsumexp(each, 1).sum())
        deterministic("predicted", rate[:4] * jax.nn.sigmoid(logit[:4, 0]))

    def ask(fit, data):
        p = np.asarray(fit.predict_proba(data, "total"))
        finite(p, (n, top), "predict_proba")
        assert (p[np.arange(top) < (one + two)[:, None]] < 1e-5).all()
        assert np.corrcoef(p @ np.arange(top), there)[0, 1] > 0.7
        finite(fit.impute(data)["three"], (n,), "impute")

    data = {"stream": stream, "shade": shade, "effort": effort, "one": one, "two": two, "three": three}
    new = {k: data[k][:4] for k in ("stream", "shade", "effort")}
    return Program(trout(), data, plain, new, "one", ask)


# ---- a biostatistician --------------------------------------------------------------------------------


@program("tests without gold standard × severity that they share × populations × missing tests")
def imperfect_tests():
    r = rng(11)
    n = 180
    place = np.arange(n) % 3
    sick = r.random(n) < np.array([0.2, 0.45, 0.7])[place]
    own = r.normal(size=n)
    hit, false = np.array([1.5, 1.0, 0.8, 2.0]), np.array([-2.5, -2.0, -3.0, -1.8])
    logit = np.where(sick[:, None], hit + 0.9 * own[:, None], false)
    y = (r.random((n, 4)) < logistic(logit)).astype(float)
    y[r.random((n, 4)) < 0.1] = np.nan

    def parameters():
        share = sample("share", dist.Beta(1.0, 1.0).expand([3]).to_event(1))
        hit = sample("hit", dist.Normal(1.5, 0.7).expand([4]).to_event(1))
        false = sample("false", dist.Normal(-2.0, 0.7).expand([4]).to_event(1))
        return share, hit, false, sample("sd", dist.HalfNormal(1.0))

    @probml.model
    def four_tests(place):
        share, hit, false, sd = parameters()
        with probml.rows():
            sick = sample("sick", dist.Bernoulli(share[place]))
            own = sample("own", dist.Normal(0.0, 1.0))
            logit = jnp.where(sick[..., None] == 1, hit + sd * own[..., None], false)
            sample("y", dist.Bernoulli(logits=logit).to_event(1))

    def plain():
        share, hit, false, sd = parameters()
        with plate("n", n):
            own = sample("own_", dist.Normal(0.0, 1.0))
        seen, there = jnp.asarray(np.nan_to_num(y)), ~np.isnan(y)
        each = []
        for logit in (jnp.broadcast_to(false, (n, 4)), hit + sd * own[:, None]):
            log = dist.Bernoulli(logits=logit).log_prob(seen)
            each.append(jnp.where(there, log, 0.0).sum(1))
        p = share[place]
        factor("y", jnp.logaddexp(jnp.log1p(-p) + each[0], jnp.log(p) + each[1]).sum())

    def ask(fit, data):
        p = np.asarray(fit.predict_proba(data, "sick"))
        assert p.shape == (n, 2) and ((p[:, 1] > 0.5) == sick).mean() > 0.85
        joint = fit.decide(data, "sick", loss=np.array([[0.0, 1.0], [5.0, 0.0]]))
        assert np.shape(joint) == (n,)

    return Program(four_tests(), {"place": place, "y": y}, plain, {}, None, ask)


@program("latent growth × times of each child × missing waves × a binary outcome of the slope")
def growth_of_children():
    r = rng(12)
    n, waves = 90, 4
    age = np.arange(waves) + r.uniform(-0.3, 0.3, (n, waves))
    ses = r.normal(size=n)
    both = np.stack([2.0 + 0.5 * ses, 0.6 + 0.2 * ses], 1)
    both = both + r.multivariate_normal([0, 0], [[0.6, 0.1], [0.1, 0.12]], n)
    y = both[:, :1] + both[:, 1:] * age + 0.5 * r.normal(size=(n, waves))
    drop = r.random((n, waves)) < 0.15
    y[drop] = np.nan
    passed = (r.random(n) < logistic(-1.2 + 2.0 * both[:, 1])).astype(float)
    passed[::9] = np.nan

    def parameters():
        a = sample("a", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        root = sample("root", dist.LKJCholesky(2, 2.0))
        g = sample("g", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        return a, b, sd[:, None] * root, g, sample("s", dist.HalfNormal(1.0))

    @probml.model
    def growth(age, ses):
        a, b, root, g, s = parameters()
        with probml.rows():
            own = sample("own", dist.MultivariateNormal(a + b * ses[..., None], scale_tril=root))
            sample("y", dist.Normal(own[..., :1] + own[..., 1:] * age, s).to_event(1))
            sample("passed", dist.Bernoulli(logits=g[0] + g[1] * own[..., 1]))

    def plain():
        a, b, root, g, s = parameters()
        e = sample("e", dist.Normal(0.0, 1.0).expand([n, 2]).to_event(2))
        own = a + b * ses[:, None] + e @ root.T
        mean, know = own[:, :1] + own[:, 1:] * age, ~np.isnan(passed)
        sample("y", dist.Normal(mean[~drop], s), obs=jnp.asarray(y[~drop]))
        sample("passed", dist.Bernoulli(logits=(g[0] + g[1] * own[:, 1])[know]),
               obs=jnp.asarray(passed[know]))
        deterministic("predicted", (a + b * ses[:4, None])[:, :1] + (a + b * ses[:4, None])[:, 1:] * age[:4])

    def ask(fit, data):
        p = np.asarray(fit.predict_proba(data, "passed"))
        finite(p, (n, 2), "predict_proba")
        own = fit.conditional(data, "own")
        assert np.corrcoef(np.asarray(own.mean)[:, 1], both[:, 1])[0, 1] > 0.6

    data = {"age": age, "ses": ses, "y": y, "passed": passed}
    return Program(growth(), data, plain, first(data, 4, "y", "passed"), "y", ask)


@program("graded response × latent ability of a row × a group's mean × missing items")
def graded_items():
    r = rng(13)
    n, items = 90, 6
    female = np.arange(n) % 2
    theta = 0.5 * female + r.normal(size=n)
    slope = r.lognormal(0.2, 0.3, items)
    cut = np.sort(r.normal(0, 1.3, (items, 3)), 1)
    y = (slope * theta[:, None] + r.logistic(size=(n, items)))[..., None] > cut
    y = y.sum(-1).astype(float)
    y[r.random((n, items)) < 0.12] = np.nan

    def parameters():
        gap = sample("gap", dist.Normal(0.0, 1.0))
        slope = sample("slope", dist.LogNormal(0.0, 0.5).expand([items]).to_event(1))
        with plate("items", items):
            cut = sample("cut", dist.TransformedDistribution(
                dist.Normal(0.0, 2.0).expand([3]).to_event(1),
                dist.transforms.OrderedTransform()))
        return gap, slope, cut

    @probml.model
    def questionnaire(female):
        gap, slope, cut = parameters()
        with probml.rows():
            theta = sample("theta", dist.Normal(gap * female, 1.0))
            sample("y", dist.OrderedLogistic(slope * theta[..., None], cut).to_event(1))

    def plain():
        gap, slope, cut = parameters()
        theta = gap * female + sample("e", dist.Normal(0.0, 1.0).expand([n]).to_event(1))
        own = dist.OrderedLogistic(slope * theta[:, None], cut).log_prob(jnp.asarray(np.nan_to_num(y)).astype(int))
        factor("y", jnp.where(np.isnan(y), 0.0, own).sum())

    def ask(fit, data):
        own = fit.conditional(data, "theta")
        assert np.corrcoef(np.asarray(own.mean), theta)[0, 1] > 0.7
        p = fit.predict_proba(data, "y")
        finite(p, (n, items, 4), "predict_proba")
        close(np.asarray(p).sum(-1), np.ones((n, items)), "probabilities")

    return Program(questionnaire(), {"female": female, "y": y}, plain, {}, None, ask)
