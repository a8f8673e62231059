"""The other half of `eleventh_cases.py`: insurance, survival, birds, wine, rivers, published trials, …."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from eleventh_cases import first
from judged_by_nuts import Program, program
from ninth_cases import finite, logistic
from numpyro import deterministic, factor, handlers, plate, sample
from numpyro.distributions import constraints
from oracles_of_strangers import close

import probml
from first_cases import back


def rng(seed):
    return np.random.default_rng([2512, seed])


# ---- a user of lme4 and brms -----------------------------------------------------------------------


@program("negative binomial × exposure × crossed effects of text labels × missing counts × new labels")
def claims_of_drivers():
    r = rng(1)
    n = 160
    driver, road = np.arange(n) % 16, r.integers(0, 9, n)
    night, km = r.normal(size=n), r.lognormal(0.0, 0.6, n)
    mean = km * np.exp(0.6 + 0.3 * night + 0.5 * r.normal(size=16)[driver] + 0.4 * r.normal(size=9)[road])
    claims = r.poisson(mean * r.gamma(3.0, 1 / 3, n)).astype(float)
    claims[::13] = np.nan
    names, roads = np.array([f"d{k:02d}" for k in range(16)]), np.array([f"r{k}" for k in range(9)])

    def parameters():
        a, b = sample("a", dist.Normal(0.0, 2.0)), sample("b", dist.Normal(0.0, 1.0))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        return a, b, sd, sample("size", dist.Gamma(2.0, 0.5))

    @probml.model
    def insurance(driver, road, night, km):
        a, b, sd, size = parameters()
        with plate("drivers", 16):
            u = sample("u", dist.Normal(0.0, sd[0]))
        with plate("roads", 9):
            v = sample("v", dist.Normal(0.0, sd[1]))
        with probml.rows():
            log = a + b * night + u[driver] + v[road]
            sample("claims", dist.NegativeBinomial2(km * jnp.exp(log), size))

    there = ~np.isnan(claims)

    def plain():
        a, b, sd, size = parameters()
        u = deterministic("u", sd[0] * sample("e", dist.Normal(0.0, 1.0).expand([16]).to_event(1)))
        v = deterministic("v", sd[1] * sample("f", dist.Normal(0.0, 1.0).expand([9]).to_event(1)))
        mean = km * jnp.exp(a + b * night + u[driver] + v[road])
        sample("claims", dist.NegativeBinomial2(mean[there], size), obs=jnp.asarray(claims[there]))
        deterministic("predicted", mean[:4])

    def ask(fit, data):
        new = {"driver": ["d03", "stranger"], "road": ["r1", "r1"], "night": [0.0, 0.0], "km": [1.0, 1.0]}
        low, high = fit.predict(new, "claims", interval=0.9, unknown="new")[1:]
        assert (np.asarray(low) <= high).all()
        finite(fit.log_prob(new | {"claims": [1, 1]}, unknown="new"), (2,), "log_prob of a stranger")

    data = {"driver": names[driver], "road": roads[road], "night": night, "km": km, "claims": claims}
    return Program(insurance(), data, plain, first(data, 4, "claims"), "claims", ask)


@program("ordered probit × thresholds of each judge × crossed effects of wines")
def judges_of_wine():
    r = rng(2)
    n, judges, wines = 160, 8, 20
    judge, wine = np.tile(np.arange(8), 20), np.repeat(np.arange(20), 8)
    good = 0.9 * r.normal(size=20)
    cut = np.array([-1.0, 0.2, 1.3]) + 0.4 * r.normal(size=(8, 1)) + 0.15 * r.normal(size=(8, 3))
    score = ((good[wine] + r.normal(size=n))[:, None] > np.sort(cut, 1)[judge]).sum(1)

    def parameters():
        sd, lean = sample("sd", dist.HalfNormal(1.0)), sample("lean", dist.HalfNormal(0.5))
        start = sample("start", dist.Normal(-1.0, 1.0))
        gap = sample("gap", dist.Normal(0.0, 0.5).expand([2]).to_event(1))
        return sd, lean, start, gap, sample("vary", dist.HalfNormal(0.3))

    def chances(eta, cut):
        below = jax.scipy.special.ndtr(cut - eta[..., None])
        one = jnp.ones_like(below[..., :1])
        return jnp.diff(jnp.concatenate([0 * one, below, one], -1), axis=-1)

    @probml.model
    def tasting(judge, wine):
        sd, lean, start, gap, vary = parameters()
        with plate("wines", wines):
            good = sample("good", dist.Normal(0.0, sd))
        with plate("judges", judges):
            begin = sample("begin", dist.Normal(start, lean))
            step = sample("step", dist.LogNormal(gap, vary).to_event(1))
        cut = deterministic("cut", jnp.concatenate([begin[:, None], begin[:, None] + jnp.cumsum(step, 1)], 1))
        with probml.rows():
            sample("score", dist.Categorical(chances(good[wine], cut[judge])))

    def plain():
        sd, lean, start, gap, vary = parameters()
        good = deterministic("good", sd * sample("e", dist.Normal(0.0, 1.0).expand([wines]).to_event(1)))
        f = sample("f", dist.Normal(0.0, 1.0).expand([judges]).to_event(1))
        g = sample("g", dist.Normal(0.0, 1.0).expand([judges, 2]).to_event(2))
        begin, step = start + lean * f, jnp.exp(gap + vary * g)
        cut = jnp.concatenate([begin[:, None], begin[:, None] + jnp.cumsum(step, 1)], 1)
        deterministic("cut", cut)
        p = chances(good[wine], cut[judge])
        factor("score", jnp.log(p[np.arange(n), score]).sum())

    def ask(fit, data):
        p = np.asarray(fit.predict_proba({"judge": judge[:8], "wine": wine[:8]}, "score"))
        finite(p, (8, 4), "predict_proba")
        close(p.sum(1), np.ones(8), "probabilities")
        table = probml.compare({"one": fit, "same": fit}, data)
        assert len(table) == 2

    return Program(tasting(), {"judge": judge, "wine": wine, "score": score}, plain, {}, None, ask)


@program("units of 10^6 and 10^-6 × Student's t of unknown degrees × weights of rows × groups")
def far_units():
    r = rng(3)
    n = 120
    firm, sales, dose = np.arange(n) % 10, 3e6 * r.normal(size=n) + 8e6, 2e-6 * r.lognormal(size=n)
    u = 4e3 * r.normal(size=10)
    y = 2e4 + 1.5e-3 * sales + 2e9 * dose + u[firm] + 3e3 * r.standard_t(3, n)
    weights = r.integers(1, 4, n).astype(float)

    def parameters():
        a = sample("a", dist.Normal(0.0, 1e5))
        b, c = sample("b", dist.Normal(0.0, 1e-2)), sample("c", dist.Normal(0.0, 1e10))
        sd, s = sample("sd", dist.HalfNormal(1e4)), sample("s", dist.HalfNormal(1e4))
        return a, b, c, sd, s, sample("nu", dist.Gamma(2.0, 0.1))

    @probml.model
    def regression(firm, sales, dose):
        a, b, c, sd, s, nu = parameters()
        with plate("firms", 10):
            u = sample("u", dist.Normal(0.0, sd))
        with probml.rows():
            sample("y", dist.StudentT(nu, a + b * sales + c * dose + u[firm], s))

    def plain():
        e = sample("e_", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        sd = 1e4 * sample("sd_", dist.HalfNormal(1.0))
        s, nu = 1e4 * sample("s_", dist.HalfNormal(1.0)), sample("nu", dist.Gamma(2.0, 0.1))
        a, b, c = 1e5 * e[0], 1e-2 * e[1], 1e10 * e[2]
        for name, value in {"a": a, "b": b, "c": c, "sd": sd, "s": s}.items():
            deterministic(name, value)
        u = deterministic("u", sd * sample("f", dist.Normal(0.0, 1.0).expand([10]).to_event(1)))
        mean = a + b * sales + c * dose + u[firm]
        with plate("n", n), handlers.scale(scale=jnp.asarray(weights)):
            sample("y", dist.StudentT(nu, mean, s), obs=jnp.asarray(y))
        deterministic("predicted", mean[:5])

    def ask(fit, data):
        value, low, high = fit.predict(first(data, 5, "y"), "y", interval=0.9)
        assert (low < value).all() and (value < high).all() and (high - low < 5e4).all()
        back(fit, fit.model)

    data = {"firm": firm, "sales": sales, "dose": dose, "y": y}
    return Program(regression(), data, plain, first(data, 5, "y"), "y", ask, ("nu",), weights)


# ---- a user of Stan --------------------------------------------------------------------------------


@program("accelerated failure × gamma frailty × late entry × right censoring, all by target +=")
def late_entries():
    r = rng(4)
    rows = []
    frail = r.gamma(4.0, 0.25, 9)
    while len(rows) < 108:
        clinic, age = len(rows) % 9, r.normal()
        scale = np.exp(1.2 - 0.4 * age)
        time = scale * (r.exponential() / frail[clinic]) ** (1 / 1.4)
        enter, leave = r.uniform(0, 1.0), r.uniform(1.5, 6.0)
        if time > enter:
            rows.append((clinic, age, enter, min(time, leave), int(time <= leave)))
    clinic, age, enter, time, died = (np.array(c) for c in zip(*rows, strict=True))

    def parameters():
        a, b = sample("a", dist.Normal(0.0, 2.0)), sample("b", dist.Normal(0.0, 1.0))
        shape, wide = sample("shape", dist.LogNormal(0.0, 0.5)), sample("wide", dist.Gamma(2.0, 4.0))
        with plate("clinics", 9):
            frail = sample("frail", dist.Gamma(1 / wide, 1 / wide))
        return a, b, shape, frail

    def target(a, b, shape, frail, clinic, age, enter, time, died):
        scale, own = jnp.exp(a + b * age), frail[clinic]
        hazard = jnp.log(own) + jnp.log(shape / scale) + (shape - 1) * jnp.log(time / scale)
        return died * hazard - own * ((time / scale) ** shape - (enter / scale) ** shape)

    @probml.model
    def lives(clinic, age, enter, time, died):
        at = parameters()
        with probml.rows():
            factor("target", target(*at, clinic, age, enter, time, died))

    data = {"clinic": clinic, "age": age, "enter": enter, "time": time, "died": died}
    arrays = {k: jnp.asarray(v) for k, v in data.items()}

    def plain():
        factor("target", target(*parameters(), **arrays).sum())

    def ask(fit, data):
        finite(fit.draws(10)["frail"], (10, 9), "draws")
        finite(fit.log_prob(data), (108,), "log_prob")

    return Program(lives(), data, plain, {}, None, ask)


@program("meta-analysis × a moderator measured with error × selection of significant trials")
def published_trials():
    r = rng(5)
    rows = []
    while len(rows) < 60:
        se, x = r.uniform(0.1, 0.5), r.normal()
        y = 0.2 + 0.25 * x + 0.2 * r.normal() + se * r.normal()
        if y / se > 1.645 or r.random() < 0.35:
            rows.append((y, se, x + 0.3 * r.normal()))
    y, se, w = (np.array(c) for c in zip(*rows, strict=True))

    def parameters():
        mu, b = sample("mu", dist.Normal(0.0, 0.5)), sample("b", dist.Normal(0.0, 0.5))
        tau, keep = sample("tau", dist.HalfNormal(0.3)), sample("keep", dist.Beta(1.0, 1.0))
        return mu, b, tau, keep

    def log_weight(y, se, mean, wide, keep):
        sure = 1 - jax.scipy.special.ndtr((1.645 * se - mean) / wide)
        return jnp.where(y > 1.645 * se, 0.0, jnp.log(keep)) - jnp.log(sure + keep * (1 - sure))

    @probml.model
    def trials(se):
        mu, b, tau, keep = parameters()
        with probml.rows():
            x = sample("x", dist.Normal(0.0, 1.0))
            sample("w", dist.Normal(x, 0.3))
            mean, wide = mu + b * x, jnp.sqrt(tau**2 + se**2)
            y = sample("y", dist.Normal(mean, wide))
            factor("published", log_weight(y, se, mean, wide, keep))

    def plain():
        mu, b, tau, keep = parameters()
        with plate("n", 60):
            x = sample("x_", dist.Normal(0.0, 1.0))
            sample("w", dist.Normal(x, 0.3), obs=jnp.asarray(w))
            wide = jnp.sqrt(tau**2 + se**2)
            sample("y", dist.Normal(mu + b * x, wide), obs=jnp.asarray(y))
            factor("published", log_weight(y, se, mu + b * x, wide, keep))

    def ask(fit, data):
        finite(fit.log_prob(data), (60,), "log_prob")
        own = np.asarray(fit.conditional(data, "x").mean)
        assert np.corrcoef(own, w)[0, 1] > 0.8

    return Program(trials(), {"se": se, "w": w, "y": y}, plain, {}, None, ask)


@program("indicators of columns outside rows × Poisson × exposure × groups")
def spike_and_slab():
    r = rng(6)
    n = 100
    x, ward, days = r.normal(size=(n, 5)), np.arange(n) % 10, r.uniform(0.5, 2.0, n)
    mean = days * np.exp(0.5 + x @ np.array([0.5, 0, 0, -0.22, 0]) + 0.4 * r.normal(size=10)[ward])
    y = r.poisson(mean)

    def parameters():
        a, sd = sample("a", dist.Normal(0.0, 1.0)), sample("sd", dist.HalfNormal(1.0))
        return a, sd, sample("pi", dist.Beta(2.0, 2.0))

    @probml.model
    def selection(x, ward, days):
        a, sd, pi = parameters()
        with plate("columns", 5):
            use = sample("use", dist.Bernoulli(pi))
            beta = sample("beta", dist.Normal(0.0, 0.5))
        with plate("wards", 10):
            u = sample("u", dist.Normal(0.0, sd))
        with probml.rows():
            sample("y", dist.Poisson(days * jnp.exp(a + x @ (use * beta) + u[ward])))

    every = np.array([[k >> j & 1 for j in range(5)] for k in range(32)])

    def plain():
        a, sd, pi = parameters()
        beta = sample("beta", dist.Normal(0.0, 0.5).expand([5]).to_event(1))
        u = deterministic("u", sd * sample("e", dist.Normal(0.0, 1.0).expand([10]).to_event(1)))
        rate = days * jnp.exp(a + (every * beta) @ x.T + u[ward])
        each = dist.Poisson(rate).log_prob(jnp.asarray(y)).sum(1)
        each = each + every.sum(1) * jnp.log(pi) + (5 - every.sum(1)) * jnp.log1p(-pi)
        factor("y", jax.nn.logsumexp(each))
        deterministic("predicted", jax.nn.softmax(each) @ rate[:, :4])
        deterministic("chance", jax.nn.softmax(each) @ every)

    def ask(fit, data):
        p = np.asarray(fit.posterior("use").probs)
        p = p[:, 1] if p.ndim == 2 else p
        assert p.shape == (5,) and p[0] > 0.95 and p[[1, 2, 4]].max() < 0.6, p

    data = {"x": x, "ward": ward, "days": days, "y": y}
    return Program(selection(), data, plain, first(data, 4, "y"), "y", ask)


# ---- a user of PyMC and NumPyro ----------------------------------------------------------------------


@program("Hilbert-space Gaussian process × Poisson × exposure × effects of weekdays that sum to zero")
def births_by_day():
    r = rng(7)
    n, m, edge = 84, 12, 1.5
    t, day, size = np.linspace(-1, 1, n), np.arange(n) % 7, r.uniform(0.5, 2.0, n)
    y = r.poisson(size * np.exp(1.0 + 0.5 * np.sin(4 * t) + np.array([.1, .1, .1, .1, .1, -.2, -.3])[day]))

    def process(t, height, length, z):
        root = jnp.arange(1, m + 1) * jnp.pi / (2 * edge)
        basis = jnp.sin(root * (t[:, None] + edge)) / jnp.sqrt(edge)
        density = height**2 * jnp.sqrt(2 * jnp.pi) * length * jnp.exp(-0.5 * (length * root) ** 2)
        return basis @ (jnp.sqrt(density) * z)

    def births(t, day, size, y=None):
        a, height = sample("a", dist.Normal(0.0, 2.0)), sample("height", dist.HalfNormal(1.0))
        length = sample("length", dist.InverseGamma(5.0, 2.0))
        z = sample("z", dist.Normal(0.0, 1.0).expand([m]).to_event(1))
        sd = sample("sd", dist.HalfNormal(0.5))
        w = sample("w", dist.ZeroSumNormal(1.0, (7,)))
        f = deterministic("f", process(t, height, length, z))
        with plate("n", t.shape[0]):
            sample("y", dist.Poisson(size * jnp.exp(a + f + sd * w[day])), obs=y)

    data = {"t": t, "day": day, "size": size, "y": y}
    arrays = {k: jnp.asarray(v) for k, v in data.items()}

    def ask(fit, data):
        made = np.asarray(fit.simulate(t=t, day=day, size=size, seed=1)["y"])
        finite(made, (n,), "simulate")
        w = np.asarray(fit.draws(50)["w"])
        assert abs(w.sum(1)).max() < 1e-3, "effects that sum to zero"

    return Program(probml.model(births)(), data, lambda: births(**arrays), {}, None, ask)


@program("regularised horseshoe × logistic × groups × more columns than matter")
def horseshoe_of_genes():
    r = rng(8)
    n, d = 120, 12
    x, clinic = r.normal(size=(n, d)), np.arange(n) % 8
    eta = 1.5 * x[:, 0] - 1.2 * x[:, 5] + 0.5 * r.normal(size=8)[clinic]
    y = (r.random(n) < logistic(eta)).astype(int)

    def genes(x, clinic, y=None):
        tau = sample("tau", dist.HalfCauchy(0.2))
        slab = sample("slab", dist.InverseGamma(2.0, 4.0))
        lam = sample("lam", dist.HalfCauchy(1.0).expand([12]).to_event(1))
        z = sample("z", dist.Normal(0.0, 1.0).expand([12]).to_event(1))
        own = jnp.sqrt(slab) * lam / jnp.sqrt(slab + tau**2 * lam**2)
        beta = deterministic("beta", tau * own * z)
        sd, a = sample("sd", dist.HalfNormal(1.0)), sample("a", dist.Normal(0.0, 1.5))
        with plate("clinics", 8):
            u = sample("u", dist.Normal(0.0, 1.0))
        with plate("n", x.shape[0]):
            sample("y", dist.Bernoulli(logits=a + x @ beta + sd * u[clinic]), obs=y)

    data = {"x": x, "clinic": clinic, "y": y}
    arrays = {k: jnp.asarray(v) for k, v in data.items()}

    def ask(fit, data):
        p = np.asarray(fit.predict_proba({"x": x, "clinic": clinic}, "y"))
        finite(p, (n, 2), "predict_proba")
        assert ((p[:, 1] > 0.5) == y).mean() > 0.75
        assert "beta" in fit.to_arviz().posterior

    return Program(probml.model(genes)(), data, lambda: genes(**arrays), {}, None, ask,
                   ("tau", "slab", "lam", "beta", "z"))


@program("von Mises × direction by a covariate × concentration by another × birds")
def homing_pigeons():
    r = rng(9)
    n = 120
    bird, wind, cloud = np.arange(n) % 12, r.normal(size=n), r.normal(size=n)
    mean = 2.6 + 2 * np.arctan(0.4 * wind) + 0.4 * r.normal(size=12)[bird]
    y = r.vonmises(0, np.exp(1.2 - 0.5 * cloud), n) + mean
    y = (y + np.pi) % (2 * np.pi) - np.pi

    def parameters():
        home = sample("home", dist.Normal(2.0, 1.0))
        b = sample("b", dist.Normal(0.0, 1.0))
        k = sample("k", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        return home, b, k, sample("sd", dist.HalfNormal(0.5))

    @probml.model
    def pigeons(bird, wind, cloud):
        home, b, k, sd = parameters()
        with plate("birds", 12):
            u = sample("u", dist.Normal(0.0, sd))
        with probml.rows():
            sample("y", dist.VonMises(home + 2 * jnp.arctan(b * wind) + u[bird],
                                      jnp.exp(k[0] + k[1] * cloud)))

    def plain():
        home, b, k, sd = parameters()
        u = deterministic("u", sd * sample("e", dist.Normal(0.0, 1.0).expand([12]).to_event(1)))
        sample("y", dist.VonMises(home + 2 * jnp.arctan(b * wind) + u[bird],
                                  jnp.exp(k[0] + k[1] * cloud)), obs=jnp.asarray(y))

    def ask(fit, data):
        made = np.asarray(fit.simulate(bird=bird, wind=wind, cloud=cloud, seed=3)["y"])
        finite(made, (n,), "simulate")
        assert abs(made).max() <= np.pi + 1e-5 and np.cos(made - y).mean() > 0.3
        finite(fit.log_prob(data), (n,), "log_prob")

    return Program(pigeons(), {"bird": bird, "wind": wind, "cloud": cloud, "y": y}, plain, {}, None, ask)


class EndedBeta(dist.Distribution):
    """A share that is 0, 1 or between: a user's own distribution."""

    arg_constraints = {"end": constraints.unit_interval, "one": constraints.unit_interval,
                       "mean_between": constraints.unit_interval, "size": constraints.positive}
    support = constraints.unit_interval
    pytree_data_fields = ("end", "one", "mean_between", "size")

    def __init__(self, end, one, mean_between, size, *, validate_args=None):
        shape = jnp.broadcast_shapes(*map(jnp.shape, (end, one, mean_between, size)))
        self.end, self.one, self.mean_between, self.size = (
            jnp.broadcast_to(v, shape) for v in (end, one, mean_between, size))
        super().__init__(batch_shape=shape, event_shape=(), validate_args=validate_args)

    def between(self):
        return dist.Beta(self.mean_between * self.size, (1 - self.mean_between) * self.size)

    def sample(self, key, sample_shape=()):
        a, b, c = jax.random.split(key, 3)
        shape = sample_shape + self.batch_shape
        ended, top = (jax.random.bernoulli(k, p, shape) for k, p in ((a, self.end), (b, self.one)))
        return jnp.where(ended, jnp.where(top, 1.0, 0.0), self.between().sample(c, sample_shape))

    def log_prob(self, value):
        inside = (value > 0) & (value < 1)
        within = self.between().log_prob(jnp.where(inside, value, 0.5)) + jnp.log1p(-self.end)
        ended = jnp.log(self.end) + jnp.log(jnp.where(value > 0.5, self.one, 1 - self.one))
        return jnp.where(inside, within, ended)

    @property
    def mean(self):
        return self.end * self.one + (1 - self.end) * self.mean_between


@program("zero-one-inflated beta of the user's own class × covariates of all its parts × groups")
def shares_with_ends():
    r = rng(10)
    n = 150
    plot, x = np.arange(n) % 10, r.normal(size=n)
    u = 0.5 * r.normal(size=10)
    end, one = logistic(-1.2 + 0.5 * x), logistic(0.3 + 0.8 * x + u[plot])
    mean, size = logistic(-0.2 + 0.6 * x + u[plot]), np.exp(1.8)
    y = r.beta(mean * size, (1 - mean) * size).clip(1e-3, 1 - 1e-3)
    y = np.where(r.random(n) < end, (r.random(n) < one).astype(float), y)

    def parameters():
        a = sample("a", dist.Normal(0.0, 1.5).expand([3]).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        return a, b, sample("size", dist.Gamma(2.0, 0.2)), sample("sd", dist.HalfNormal(1.0))

    def shares(a, b, size, u, x):
        e, o, m = (jax.nn.sigmoid(a[k] + b[k] * x + (u if k else 0.0)) for k in range(3))
        return EndedBeta(e, o, m, size)

    @probml.model
    def cover(plot, x):
        a, b, size, sd = parameters()
        with plate("plots", 10):
            u = sample("u", dist.Normal(0.0, sd))
        with probml.rows():
            sample("y", shares(a, b, size, u[plot], x))

    def plain():
        a, b, size, sd = parameters()
        u = deterministic("u", sd * sample("e", dist.Normal(0.0, 1.0).expand([10]).to_event(1)))
        own = shares(a, b, size, u[plot], x)
        factor("y", own.log_prob(jnp.asarray(y)).sum())
        deterministic("predicted", own.mean[:5])

    def ask(fit, data):
        made = np.asarray(fit.simulate(plot=plot, x=x, seed=2)["y"])
        finite(made, (n,), "simulate")
        assert abs((made == 0).mean() - (y == 0).mean()) < 0.15 and (made == 1).any()
        finite(fit.log_prob(data), (n,), "log_prob")

    data = {"plot": plot, "x": x, "y": y}
    return Program(cover(), data, plain, first(data, 5, "y"), "y", ask)


# ---- a teacher -------------------------------------------------------------------------------------


@program("mixture of regressions × a missing number and a missing yes or no among the covariates")
def classes_with_gaps():
    r = rng(11)
    n = 150
    z, x, d = r.random(n) < 0.4, r.normal(0.5, 1.0, n), (r.random(n) < 0.35).astype(float)
    y = np.where(z, 3.0 - 1.0 * x, -1.0 + 0.8 * x) + 0.7 * d + np.where(z, 0.4, 0.7) * r.normal(size=n)
    holes, gaps = x.copy(), d.copy()
    holes[r.random(n) < 0.2], gaps[r.random(n) < 0.2] = np.nan, np.nan

    def parameters():
        share, rate = sample("share", dist.Beta(2.0, 2.0)), sample("rate", dist.Beta(1.0, 1.0))
        m, wide = sample("m", dist.Normal(0.0, 2.0)), sample("wide", dist.HalfNormal(2.0))
        a = sample("a", dist.Normal(jnp.array([-1.0, 3.0]), 1.0).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        s = sample("s", dist.HalfNormal(1.0).expand([2]).to_event(1))
        return share, rate, m, wide, a, b, s, sample("c", dist.Normal(0.0, 1.0))

    @probml.model
    def classes():
        share, rate, m, wide, a, b, s, c = parameters()
        with probml.rows():
            z = sample("z", dist.Bernoulli(share))
            x = sample("x", dist.Normal(m, wide))
            d = sample("d", dist.Bernoulli(rate))
            sample("y", dist.Normal(a[z] + b[z] * x + c * d, s[z]))

    def plain():
        share, rate, m, wide, a, b, s, c = parameters()
        gone, unsure = np.isnan(holes), np.isnan(gaps)
        known = jnp.asarray(np.nan_to_num(holes))
        total = jnp.where(gone, 0.0, dist.Normal(m, wide).log_prob(known)).sum()
        cells = []
        for k in (0, 1):
            for j in (0, 1):
                at = jnp.where(gone, m, known)
                width = jnp.sqrt(s[k]**2 + jnp.where(gone, (b[k] * wide) ** 2, 0.0))
                log = dist.Normal(a[k] + b[k] * at + c * j, width).log_prob(y)
                log = log + (jnp.log(share) if k else jnp.log1p(-share))
                log = log + (jnp.log(rate) if j else jnp.log1p(-rate))
                cells.append(jnp.where(unsure | (gaps == j), log, -jnp.inf))
        factor("y", total + jax.nn.logsumexp(jnp.stack(cells), 0).sum())
        both = (1 - share) * (a[0] + b[0] * 1.0) + share * (a[1] + b[1] * 1.0)
        deterministic("predicted", jnp.stack([both, both + c]))

    def ask(fit, data):
        p = np.asarray(fit.joint(data, ["z", "d"]))
        finite(p, (n, 2, 2), "joint")
        assert ((p.sum(2)[:, 1] > 0.5) == z).mean() > 0.85
        filled = fit.impute(data)
        finite(filled["x"], (n,), "impute")
        assert np.corrcoef(np.asarray(filled["x"])[np.isnan(holes)], x[np.isnan(holes)])[0, 1] > 0.5

    data = {"x": holes, "d": gaps, "y": y}
    return Program(classes(), data, plain, {"x": np.array([1.0, 1.0]), "d": np.array([0, 1])}, "y", ask)


@program("hidden Markov × covariate in two emissions × sequences of several lengths × missing steps")
def attention_in_sequences():
    r = rng(12)
    lengths = r.integers(12, 25, 14)
    xs, rights, times, states = [], [], [], []
    for steps in lengths:
        x, z = r.normal(size=steps), np.zeros(steps, int)
        for t in range(1, steps):
            z[t] = z[t - 1] if r.random() < 0.85 else 1 - z[t - 1]
        right = (r.random(steps) < logistic(np.array([-0.3, 2.0])[z] - 0.5 * x)).astype(float)
        time = np.exp(np.array([0.9, 0.0])[z] + 0.2 * x + 0.3 * r.normal(size=steps))
        gone = r.random(steps) < 0.1
        right[gone] = np.nan
        xs, rights, times, states = xs + [x], rights + [right], times + [time], states + [z]

    def parameters():
        stay = sample("stay", dist.Beta(8.0, 2.0).expand([2]).to_event(1))
        level = sample("level", dist.Normal(jnp.array([0.0, 2.0]), 1.0).to_event(1))
        speed = sample("speed", dist.Normal(jnp.array([1.0, 0.0]), 0.5).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        return stay, level, speed, b, sample("s", dist.HalfNormal(1.0))

    def table(stay):
        return jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])

    @probml.model
    def attention(x):
        stay, level, speed, b, s = parameters()
        with probml.rows():
            z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]), table(stay)))
            sample("right", dist.Bernoulli(logits=level[z] + b[0] * x).to_event(1))
            sample("time", dist.LogNormal(speed[z] + b[1] * x, s).to_event(1))

    def plain():
        stay, level, speed, b, s = parameters()
        log_move, total = jnp.log(table(stay)), 0.0
        longest = max(lengths)

        def padded(values, fill):
            return np.array([np.pad(v, (0, longest - len(v)), constant_values=fill) for v in values])

        x, right, time = padded(xs, 0.0), padded(rights, np.nan), padded(times, np.nan)
        one = dist.Bernoulli(logits=level + b[0] * x[..., None]).log_prob(np.nan_to_num(right)[..., None])
        two = dist.LogNormal(speed + b[1] * x[..., None], s).log_prob(np.nan_to_num(time, nan=1.0)[..., None])
        own = (jnp.where(np.isnan(right)[..., None], 0.0, one)
               + jnp.where(np.isnan(time)[..., None], 0.0, two))
        alpha = jnp.log(0.5) + own[:, 0]
        for t in range(1, longest):
            alpha = jax.nn.logsumexp(alpha[:, :, None] + log_move, 1) + own[:, t]
        factor("y", total + jax.nn.logsumexp(alpha, 1).sum())

    def ask(fit, data):
        path = fit.decode(data)["z"]
        same = np.concatenate([np.asarray(p)[:len(z)] == z for p, z in zip(path, states, strict=True)])
        assert same.mean() > 0.85
        finite(fit.log_prob(data), (14,), "log_prob")

    return Program(attention(), {"x": xs, "right": rights, "time": times}, plain, {}, None, ask)


@program("level and slope of a Gaussian chain × rain as an input × two gauges × missing steps × rivers")
def levels_of_rivers():
    r = rng(13)
    n, steps = 6, 30
    rain = r.gamma(1.0, 1.0, (n, steps))
    level = np.zeros((n, steps))
    level[:, 0] = 3.0 + r.normal(size=n)
    for t in range(1, steps):
        level[:, t] = 0.6 + 0.8 * level[:, t - 1] + 0.4 * r.normal(size=n)
    one = level + 0.5 * rain + 0.3 * r.normal(size=(n, steps))
    two = 1.0 + level + 0.8 * r.normal(size=(n, steps))
    one[r.random((n, steps)) < 0.2] = np.nan
    two[:, 10:18] = np.nan

    def parameters():
        stay, drift = sample("stay", dist.Beta(8.0, 2.0)), sample("drift", dist.Normal(0.0, 1.0))
        q = sample("q", dist.HalfNormal(1.0))
        s = sample("s", dist.HalfNormal(1.0).expand([2]).to_event(1))
        b, shift = sample("b", dist.Normal(0.0, 1.0)), sample("shift", dist.Normal(0.0, 2.0))
        return stay, drift, q, s, b, shift

    @probml.model
    def rivers(rain):
        stay, drift, q, s, b, shift = parameters()
        with probml.rows():
            z = sample("z", probml.GaussianChain(
                jnp.array([3.0]), jnp.array([[2.0]]), stay[None, None], q[None, None] ** 2,
                offset=drift[None]))
            sample("one", dist.Normal(z[..., 0] + b * rain, s[0]).to_event(1))
            sample("two", dist.Normal(shift + z[..., 0], s[1]).to_event(1))

    def plain():
        stay, drift, q, s, b, shift = parameters()
        e = sample("e", dist.Normal(0.0, 1.0).expand([steps, n]).to_event(2))

        def step(z, e):
            z = drift + stay * z + q * e
            return z, z

        begin = 3.0 + jnp.sqrt(2.0) * e[0]
        z = jnp.concatenate([begin[None], jax.lax.scan(step, begin, e[1:])[1]]).T
        know, also = ~np.isnan(one), ~np.isnan(two)
        sample("one", dist.Normal((z + b * rain)[know], s[0]), obs=jnp.asarray(one[know]))
        sample("two", dist.Normal((shift + z)[also], s[1]), obs=jnp.asarray(two[also]))
        deterministic("next", drift + stay * z[:, -1] + b)

    def ask(fit, data):
        ahead = np.asarray(fit.forecast(data, steps=3, rain=np.ones((n, 3)))["one"])
        finite(ahead, (n, 3), "forecast")
        assert abs(ahead - 3.5).max() < 2.5
        finite(fit.impute(data)["two"], (n, steps), "impute")

    return Program(rivers(), {"rain": rain, "one": one, "two": two}, plain, {}, None, ask)
