"""Econometrics, psychology and ecology as README's user writes them: three mechanisms together in each that no
earlier case combines, and questions with oracles. Written before any of them was run.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import scipy.stats as st
from eleventh_cases import first
from fifteenth_cases import normals
from judged_by_nuts import Program, program
from ninth_cases import finite, logistic
from numpyro import deterministic, factor, plate, sample
from numpyro.distributions import constraints

import probml
from first_cases import back


def rng(seed):
    return np.random.default_rng([127, seed])


def log_cdf(x):
    return jax.scipy.special.log_ndtr(x)


# ---- econometrics ----------------------------------------------------------------------------------


@program("stochastic frontier: a half-normal loss of each row × effects of firms × output in units of 1e6")
def frontier_of_firms():
    r = rng(1)
    firms, n, unit = 10, 80, 1e6
    firm, x = r.integers(0, firms, n), r.normal(size=n)
    u = 0.3 * r.normal(size=firms)
    y = unit * (5 + 0.7 * x + u[firm] + 0.15 * r.normal(size=n) - np.abs(0.5 * r.normal(size=n)))

    def parameters():
        a = sample("a", dist.Normal(5 * unit, 2 * unit))
        b = sample("b", dist.Normal(0.0, unit))
        tau = sample("tau", dist.HalfNormal(unit))
        return a, b, tau, sample("sv", dist.HalfNormal(unit)), sample("su", dist.HalfNormal(unit))

    @probml.model
    def frontier(firm, x):
        a, b, tau, sv, su = parameters()
        with plate("firms", firms):
            u = sample("u", dist.Normal(0.0, tau))
        with probml.rows():
            loss = sample("loss", dist.HalfNormal(su))
            sample("y", dist.Normal(a + b * x + u[firm] - loss, sv))

    def log_density(e, sv, su):  # Aigner, Lovell, Schmidt 1977
        s = jnp.hypot(sv, su)
        return jnp.log(2 / s) + dist.Normal().log_prob(e / s) + log_cdf(-e * su / sv / s)

    def expected_loss(e, sv, su):  # Jondrow and others 1982
        s2 = sv**2 + su**2
        m, w = -e * su**2 / s2, sv * su / jnp.sqrt(s2)
        return m + w * jnp.exp(dist.Normal().log_prob(m / w) - log_cdf(m / w))

    def plain():
        a, b = 5 + 2 * sample("a_", dist.Normal()), sample("b_", dist.Normal())
        tau, sv, su = (sample(f"{k}_", dist.HalfNormal(1.0)) for k in ("tau", "sv", "su"))
        e = normals("e", firms)
        for name, value in dict(a=a, b=b, tau=tau, sv=sv, su=su, u=tau * e).items():
            deterministic(name, unit * value)
        rest = y / unit - a - b * x - tau * e[firm]
        log = log_density(rest, sv, su)
        factor("y", log.sum())
        deterministic("density", jnp.exp(log[:4]))
        deterministic("loss_times_density", (expected_loss(rest, sv, su) * jnp.exp(log))[:4])
        deterministic("ahead", unit * (a + 2 * b + tau * e[:3] - su * jnp.sqrt(2 / jnp.pi)))

    data = {"firm": np.array([f"firm {k}" for k in range(firms)])[firm], "x": x, "y": y}
    new = {"firm": ["firm 0", "firm 1", "firm 2"], "x": [2.0, 2.0, 2.0]}

    def density(fit):
        return np.exp(fit.log_prob(first(data, 4)) + np.log(unit))

    def ask(fit, data):
        mean = np.asarray(fit.conditional(first(data, 4), "loss").mean)
        # of draws that the fit warns of, averages over some and over all differ more
        np.testing.assert_allclose(mean, fit.predict(first(data, 4), "loss"), rtol=0.03 if fit.converged else 0.2)

    answers = {"density": density, "ahead": lambda fit: fit.predict(new, "y"),
               "loss_times_density": lambda fit: density(fit) * fit.predict(first(data, 4), "loss") / unit}
    return Program(frontier(), data, plain, {}, None, ask, answers=answers)


@program("sample selection: wages are missing where a site that depends on them is no × instrument × schooling")
def wages_of_those_who_work():
    r = rng(2)
    n = 160
    school, children = r.normal(size=n), r.integers(0, 4, n).astype(float)
    wage = 2 + 0.5 * school + 0.6 * r.normal(size=n)
    e = (wage - 2 - 0.5 * school) / 0.6
    works = r.random(n) < st.norm.cdf(0.6 + 0.3 * school - 0.6 * children + 0.9 * e)
    seen = np.where(works, wage, np.nan)

    def parameters():
        b = sample("b", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        g = sample("g", dist.Normal(0.0, 1.5).expand([3]).to_event(1))
        return b, g, sample("k", dist.Normal(0.0, 1.0)), sample("sigma", dist.HalfNormal(1.0))

    @probml.model
    def selection(school, children):
        b, g, k, sigma = parameters()
        with probml.rows():
            mean = b[0] + b[1] * school
            wage = sample("wage", dist.Normal(mean, sigma))
            score = g[0] + g[1] * school + g[2] * children + k * (wage - mean) / sigma
            sample("works", dist.Bernoulli(jax.scipy.stats.norm.cdf(score)))

    def plain():
        b, g, k, sigma = parameters()
        mean = b[0] + b[1] * school
        score = g[0] + g[1] * school + g[2] * children
        e = (jnp.where(works, wage, 0.0) - mean) / sigma
        log = jnp.where(works, dist.Normal().log_prob(e) - jnp.log(sigma) + log_cdf(score + k * e),
                        log_cdf(-score / jnp.sqrt(1 + k**2)))
        factor("both", log.sum())
        deterministic("density", jnp.exp(log[:6]))
        deterministic("employed", jax.scipy.stats.norm.cdf((g[0] + g[2] * jnp.array([0.0, 3.0])) / jnp.sqrt(1 + k**2)))
        idle = np.flatnonzero(~works)[:3]
        slope = -k / jnp.sqrt(1 + k**2)  # of a wage, given that one does not work
        z = -(score / jnp.sqrt(1 + k**2))[idle]
        own = mean[idle] + sigma * slope * jnp.exp(dist.Normal().log_prob(z) - log_cdf(z))
        deterministic("wage_times_density", own * jnp.exp(log[idle]))

    data = {"school": school, "children": children.astype(np.int8), "wage": seen, "works": works}
    idle = np.flatnonzero(~works)[:3]
    rows = {k: v[idle] for k, v in data.items()}

    def ask(fit, data):
        filled = fit.impute(data)["wage"]
        finite(filled, (n,), "impute")
        np.testing.assert_allclose(filled[works], wage[works], rtol=1e-5)

    answers = {"density": lambda fit: np.exp(fit.log_prob(first(data, 6))),
               "employed": lambda fit: np.asarray(
                   fit.predict_proba({"school": [0.0, 0.0], "children": np.int8([0, 3])}, "works"))[:, 1],
               "wage_times_density": lambda fit: np.exp(fit.log_prob(rows)) * fit.impute(rows)["wage"]}
    return Program(selection(), data, plain, {}, None, ask, answers=answers)


@program("quantile regression: asymmetric Laplace × slopes of groups × holes × weights × an odd index")
def low_quantile_of_rents():
    r = rng(3)
    towns, n, q = 8, 120, 0.25
    town, size = r.integers(0, towns, n), r.uniform(20, 120, n)
    u = r.normal(size=(towns, 2)) * [1.0, 0.02]
    y = 4 + u[town, 0] + (0.1 + u[town, 1]) * size + r.gumbel(size=n)
    y[r.random(n) < 0.1] = np.nan
    weights = r.choice([0.5, 1.0, 2.0], n)

    def parameters():
        a, b = sample("a", dist.Normal(0.0, 10.0)), sample("b", dist.Normal(0.0, 0.5))
        return a, b, sample("tau", dist.HalfNormal(jnp.array([2.0, 0.05])).to_event(1)), sample("s", dist.HalfNormal(2.0))

    @probml.model
    def rents(town, size):
        a, b, tau, s = parameters()
        with plate("towns", towns):
            u = sample("u", dist.Normal(0.0, tau).to_event(1))
        with probml.rows():
            line = a + u[town, 0] + (b + u[town, 1]) * size
            sample("rent", dist.AsymmetricLaplaceQuantile(line, s, q))

    there = ~np.isnan(y)

    def plain():
        a, b, tau, s = parameters()
        u = deterministic("u", tau * normals("e", towns, 2))
        own = dist.AsymmetricLaplaceQuantile(a + u[town, 0] + (b + u[town, 1]) * size, s, q)
        log = own.log_prob(jnp.where(there, y, 0.0))
        factor("rent", (weights * log)[there].sum())
        new = dist.AsymmetricLaplaceQuantile(a + u[:2, 0] + (b + u[:2, 1]) * 100, s, q)
        deterministic("ahead", new.mean)
        deterministic("density", jnp.exp(log[there][:5]))

    frame = pd.DataFrame({"town": pd.Categorical.from_codes(town, [f"t{k}" for k in range(towns)]),
                          "size": size, "rent": y}, index=np.arange(n)[::-1] * 7)
    new = pd.DataFrame({"town": ["t0", "t1"], "size": [100.0, 100.0]})

    def ask(fit, data):
        value, low, high = fit.predict(new, "rent", interval=0.8)
        assert (low < value).all() and (value < high).all()

    answers = {"ahead": lambda fit: fit.predict(new, "rent"),
               "density": lambda fit: np.exp(fit.log_prob(frame[there].iloc[:5]))}
    return Program(rents(), frame, plain, {}, None, ask, weights=weights, answers=answers)


# ---- psychology ------------------------------------------------------------------------------------


@program("speed and accuracy: log times and answers share correlated effects of persons and of items × holes in both")
def speed_and_accuracy():
    r = rng(4)
    persons, items = 30, 8
    person, item = map(np.ravel, np.meshgrid(np.arange(persons), np.arange(items), indexing="ij"))
    p = r.multivariate_normal([0, 0], [[1.0, -0.15], [-0.15, 0.09]], persons)
    i = r.multivariate_normal([0, 0], [[0.6, 0.1], [0.1, 0.1]], items)
    right = (r.random(len(person)) < logistic(p[person, 0] - i[item, 0])).astype(float)
    time = np.exp(1.5 + i[item, 1] - p[person, 1] + 0.35 * r.normal(size=len(person)))
    right[r.random(len(person)) < 0.1] = np.nan
    time[r.random(len(person)) < 0.1] = np.nan

    def parameters():
        sd_p = sample("sd_p", dist.HalfNormal(1.0).expand([2]).to_event(1))
        root_p = sample("root_p", dist.LKJCholesky(2, 2.0))
        sd_i = sample("sd_i", dist.HalfNormal(1.0).expand([2]).to_event(1))
        root_i = sample("root_i", dist.LKJCholesky(2, 2.0))
        return sd_p[:, None] * root_p, sd_i[:, None] * root_i, sample("mu", dist.Normal(1.0, 1.0)), sample(
            "s", dist.HalfNormal(1.0))

    @probml.model
    def answers_and_times(person, item):
        root_p, root_i, mu, s = parameters()
        with plate("persons", persons):
            p = sample("p", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root_p))
        with plate("items", items):
            i = sample("i", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root_i))
        with probml.rows():
            sample("right", dist.Bernoulli(logits=p[person, 0] - i[item, 0]))
            sample("time", dist.LogNormal(mu + i[item, 1] - p[person, 1], s))

    def plain():
        root_p, root_i, mu, s = parameters()
        p = normals("ep", persons + 1, 2) @ root_p.T
        i = deterministic("i", normals("ei", items, 2) @ root_i.T)
        deterministic("p", p[:persons])
        logits = p[person, 0] - i[item, 0]
        a = jnp.where(np.isnan(right), 0.0, dist.Bernoulli(logits=logits).log_prob(np.nan_to_num(right)))
        b = jnp.where(np.isnan(time), 0.0, dist.LogNormal(mu + i[item, 1] - p[person, 1], s).log_prob(
            jnp.where(np.isnan(time), 1.0, time)))
        factor("both", (a + b).sum())
        deterministic("density", jnp.exp(a + b)[:8])
        new = jax.nn.sigmoid(p[persons, 0] - i[:2, 0])
        deterministic("stranger", new)
        quick = jnp.exp(dist.LogNormal(mu + i[:2, 1] - p[persons, 1], s).log_prob(1.5))
        deterministic("quick", new * quick)  # a new person's answer and time

    frame = pd.DataFrame({"person": [f"p{k:02d}" for k in person], "item": item.astype(np.uint8), "right": right,
                          "time": time})
    new = {"person": ["q", "q"], "item": np.uint8([0, 1])}
    seen = {**new, "time": [1.5, 1.5], "right": [1.0, 1.0]}

    def ask(fit, data):
        chance = np.asarray(fit.predict_proba({**new, "time": [1.5, 1.5]}, "right", unknown="new"))[:, 1]
        finite(chance, (2,), "given a time")

    answers = {"density": lambda fit: np.exp(fit.log_prob(frame.iloc[:8])),
               "stranger": lambda fit: np.asarray(fit.predict_proba(new, "right", unknown="new"))[:, 1],
               "quick": lambda fit: np.exp(fit.log_prob(first(seen, 2), unknown="new"))}
    return Program(answers_and_times(), frame, plain, {}, None, ask, answers=answers)


@program("delay discounting: hyperbolic values × correlated log rates and temperatures × amounts × a new person")
def delays_of_persons():
    r = rng(5)
    persons, n = 16, 25
    person = np.repeat(np.arange(persons), n)
    delay = r.choice([7.0, 30, 90, 180, 365], persons * n)
    soon, late = r.uniform(5, 60, persons * n), 60 + r.uniform(0, 40, persons * n)
    z = r.multivariate_normal([-4.5, -1.5], [[0.8, 0.2], [0.2, 0.2]], persons)
    p = logistic(np.exp(z[person, 1]) * (late / (1 + np.exp(z[person, 0]) * delay) - soon))
    y = r.random(len(p)) < p

    def parameters():
        mu = sample("mu", dist.Normal(jnp.array([-4.0, -1.5]), 1.0).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        return mu, sd[:, None] * sample("root", dist.LKJCholesky(2, 2.0))

    def advantage(z, delay, soon, late):
        return jnp.exp(z[..., 1]) * (late / (1 + jnp.exp(z[..., 0]) * delay) - soon)

    @probml.model
    def choices(person, delay, soon, late):
        mu, root = parameters()
        with plate("persons", persons):
            z = sample("z", dist.MultivariateNormal(mu, scale_tril=root))
        with probml.rows():
            sample("waits", dist.Bernoulli(logits=advantage(z[person], delay, soon, late)))

    def plain():
        mu, root = parameters()
        z = mu + normals("e", persons + 1, 2) @ root.T
        deterministic("z", z[:persons])
        logits = advantage(z[person], delay, soon, late)
        log = dist.Bernoulli(logits=logits).log_prob(jnp.asarray(y))
        factor("y", log.sum())
        deterministic("density", jnp.exp(log[:5]))
        deterministic("stranger", jax.nn.sigmoid(advantage(z[persons], jnp.array([7.0, 365.0]), 30.0, 80.0)))

    data = {"person": [f"{k:03d}" for k in person], "delay": delay, "soon": soon, "late": late, "waits": y}
    new = {"person": ["new", "new"], "delay": [7.0, 365.0], "soon": [30.0, 30.0], "late": [80.0, 80.0]}

    def ask(fit, data):
        made = fit.simulate(seed=3, **first(data, 10, "waits"))["waits"]
        assert np.shape(made) == (10,)

    answers = {"density": lambda fit: np.exp(fit.log_prob(first(data, 5))),
               "stranger": lambda fit: np.asarray(fit.predict_proba(new, "waits", unknown="new"))[:, 1]}
    return Program(choices(), data, plain, {}, None, ask, answers=answers)


@program("list experiment: a latent yes whose chance moves with age × counts of a binomial × treated or not × regions")
def sensitive_items():
    r = rng(6)
    regions, n, items = 6, 500, 3
    region, age, treated = r.integers(0, regions, n), r.normal(size=n), r.integers(0, 2, n)
    u = 0.5 * r.normal(size=regions)
    yes = r.random(n) < logistic(-0.5 + 0.8 * age + u[region])
    y = r.binomial(items, logistic(0.2 - 0.3 * age)) + treated * yes

    def parameters():
        b = sample("b", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        c = sample("c", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        return b, c, sample("tau", dist.HalfNormal(1.0))

    @probml.model
    def listed(region, age, treated):
        b, c, tau = parameters()
        with plate("regions", regions):
            u = sample("u", dist.Normal(0.0, tau))
        with probml.rows():
            yes = sample("yes", dist.Bernoulli(logits=b[0] + b[1] * age + u[region]))
            p = jax.nn.sigmoid(c[0] + c[1] * age)
            k = jnp.arange(items + 2)
            table = jnp.exp(dist.Binomial(items, p[..., None]).log_prob(jnp.minimum(k, items))) * (k <= items)
            plus = jnp.roll(table, 1, -1)
            sample("count", dist.Categorical(jnp.where((treated * yes)[..., None] == 1, plus, table)))

    def plain():
        b, c, tau = parameters()
        u = deterministic("u", tau * normals("e", regions))
        q, p = jax.nn.sigmoid(b[0] + b[1] * age + u[region]), jax.nn.sigmoid(c[0] + c[1] * age)

        def of(k):
            inside = (k >= 0) & (k <= items)
            return jnp.where(inside, jnp.exp(dist.Binomial(items, p).log_prob(jnp.clip(k, 0, items))), 0.0)

        yes = of(y - treated) * q
        total = yes + of(y) * (1 - q)
        factor("count", jnp.log(total).sum())
        deterministic("density", total[:6])
        deterministic("yes_and_count", yes[:6])
        deterministic("share", jax.nn.sigmoid(b[0] + b[1] * jnp.array([-1.0, 1.0]) + u[:2]))

    data = {"region": np.array(list("ABCDEF"))[region], "age": age, "treated": treated, "count": y}
    new = {"region": ["A", "B"], "age": [-1.0, 1.0], "treated": [0, 0]}

    def ask(fit, data):
        assert set(np.unique(fit.decode(data, ["yes"])["yes"])) <= {0, 1}

    def yes(fit):
        return np.asarray(fit.predict_proba(first(data, 6), "yes"))[:, 1]

    answers = {"density": lambda fit: np.exp(fit.log_prob(first(data, 6))),
               "yes_and_count": lambda fit: np.exp(fit.log_prob(first(data, 6))) * yes(fit),
               "share": lambda fit: np.asarray(fit.predict_proba(new, "yes"))[:, 1]}
    return Program(listed(), data, plain, {}, None, ask, answers=answers)


@program("mediation: two sites in a chain × correlated slopes of schools × holes in the mediator × do of either")
def mediation_of_schools():
    r = rng(7)
    schools, n = 12, 180
    school, x = r.integers(0, schools, n), r.normal(size=n)
    s = np.array([[0.5, 0.5], [0.5, 0.9]]) + r.multivariate_normal([0, 0], [[0.09, 0.03], [0.03, 0.09]], schools)[:, None, :] * [[1, 1], [0, 0]]
    m = 1 + s[school, 0, 0] * x + 0.7 * r.normal(size=n)
    y = -1 + 0.3 * x + s[school, 0, 1] * m + 0.8 * r.normal(size=n)
    hole = r.random(n) < 0.2

    def parameters():
        mu = sample("mu", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(0.5).expand([2]).to_event(1))
        root = sd[:, None] * sample("root", dist.LKJCholesky(2, 2.0))
        c = sample("c", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        return mu, root, c, sample("w", dist.HalfNormal(1.0).expand([2]).to_event(1))

    @probml.model
    def mediated(school):
        mu, root, c, w = parameters()
        with plate("schools", schools):
            s = sample("s", dist.MultivariateNormal(mu, scale_tril=root))
        with probml.rows():
            x = sample("x", dist.Normal(0.0, 1.0))
            m = sample("m", dist.Normal(c[0] + s[school, 0] * x, w[0]))
            sample("y", dist.Normal(c[1] + c[2] * x + s[school, 1] * m, w[1]))

    def plain():
        mu, root, c, w = parameters()
        s = deterministic("s", mu + normals("e", schools, 2) @ root.T)
        a, b = s[school, 0], s[school, 1]
        mean_m = c[0] + a * x
        log = jnp.where(hole, dist.Normal(c[1] + c[2] * x + b * mean_m, jnp.hypot(w[1], b * w[0])).log_prob(y),
                        dist.Normal(mean_m, w[0]).log_prob(m) + dist.Normal(c[1] + c[2] * x + b * m, w[1]).log_prob(y))
        factor("both", log.sum())
        total = dist.Normal().log_prob(x) + log
        deterministic("density", jnp.exp(total[:5]))
        deterministic("do_x", c[1] + 2 * c[2] + s[:3, 1] * (c[0] + 2 * s[:3, 0]))
        deterministic("do_m", c[1] + 2 * s[:3, 1])  # and x on average
        deterministic("see_m", c[1] + c[2] * (s[:3, 0] * (2 - c[0]) / (s[:3, 0] ** 2 + w[0] ** 2)) + 2 * s[:3, 1])

    data = {"school": [f"school {k:02d}" for k in school], "x": x, "m": np.where(hole, np.nan, m), "y": y}
    new = {"school": [f"school {k:02d}" for k in range(3)]}

    def ask(fit, data):
        assert "total" not in fit.params and fit.impute(data)["m"].shape == (n,)

    answers = {"density": lambda fit: np.exp(fit.log_prob(first(data, 5))),
               "do_x": lambda fit: fit.do({"x": 2.0}).predict(new, "y"),
               "do_m": lambda fit: fit.do({"m": 2.0}).predict(new, "y")}
    return Program(mediated(), data, plain, {}, None, ask, answers=answers)


# ---- ecology, astronomy, sports --------------------------------------------------------------------


@program("occupancy of many species: correlated effects of a species on presence and detection × a site covariate × "
         "visits with holes")
def species_of_ponds():
    r = rng(8)
    species, ponds, visits = 10, 20, 3
    kind, pond = map(np.ravel, np.meshgrid(np.arange(species), np.arange(ponds), indexing="ij"))
    depth = r.normal(size=ponds)
    e = r.multivariate_normal([0.3, -0.3], [[0.8, 0.3], [0.3, 0.5]], species)
    slope = 0.5 + 0.4 * r.normal(size=species)
    z = r.random(len(kind)) < logistic(e[kind, 0] + slope[kind] * depth[pond])
    y = (z[:, None] & (r.random((len(kind), visits)) < logistic(e[kind, 1])[:, None])).astype(float)
    y[r.random(y.shape) < 0.15] = np.nan

    def parameters():
        mu = sample("mu", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        root = sd[:, None] * sample("root", dist.LKJCholesky(2, 2.0))
        return mu, root, sample("b", dist.Normal(0.0, 1.0)), sample("sb", dist.HalfNormal(0.7))

    @probml.model
    def community(kind, depth):
        mu, root, b, sb = parameters()
        with plate("species", species):
            e = sample("e", dist.MultivariateNormal(mu, scale_tril=root))
            slope = sample("slope", dist.Normal(b, sb))
        with probml.rows():
            z = sample("z", dist.Bernoulli(logits=e[kind, 0] + slope[kind] * depth))
            with plate("visits", visits, dim=-2):
                sample("y", dist.Bernoulli(z * jax.nn.sigmoid(e[kind, 1])))

    def plain():
        mu, root, b, sb = parameters()
        e = deterministic("e", mu + normals("n", species, 2) @ root.T)
        slope = deterministic("slope", b + sb * normals("ns", species))
        psi = jax.nn.sigmoid(e[kind, 0] + slope[kind] * depth[pond])
        p = jax.nn.sigmoid(e[kind, 1])[:, None]
        seen = jnp.where(np.isnan(y), 1.0, jnp.where(y == 1, p, 1 - p)).prod(1)
        never = ~(np.nan_to_num(y) == 1).any(1)
        total = psi * seen + (1 - psi) * never
        factor("y", jnp.log(total).sum())
        at = np.flatnonzero(never)[:4]
        deterministic("density", total[:5])
        deterministic("there_unseen", (psi * seen)[at])
        deterministic("deep", jax.nn.sigmoid(e[:4, 0] + 2 * slope[:4]))

    data = {"kind": [f"sp{k}" for k in kind], "depth": depth[pond], "y": y}
    at = np.flatnonzero(~(np.nan_to_num(y) == 1).any(1))[:4]
    rows = {"kind": [f"sp{kind[k]}" for k in at], "depth": depth[pond][at], "y": y[at]}
    new = {"kind": [f"sp{k}" for k in range(4)], "depth": [2.0] * 4}

    def ask(fit, data):
        state = fit.decode(data, ["z"])["z"]
        assert (np.asarray(state)[(np.nan_to_num(y) == 1).any(1)] == 1).all()

    answers = {"density": lambda fit: np.exp(fit.log_prob(first(data, 5))),
               "there_unseen": lambda fit: np.exp(fit.log_prob(rows)) * np.asarray(fit.predict_proba(rows, "z"))[:, 1],
               "deep": lambda fit: np.asarray(fit.predict_proba(new, "z"))[:, 1]}
    return Program(community(), data, plain, {}, None, ask, answers=answers)


@program("outliers of a line: an indicator × known errors in an input × two telescopes × decode × a hole")
def stars_and_outliers():
    r = rng(9)
    n = 60
    scope, x, error = r.integers(0, 2, n), r.uniform(0, 10, n), r.uniform(0.2, 0.8, n)
    bad = r.random(n) < 0.15
    y = np.where(bad, r.normal(12, 6, n), 3 + 1.2 * x + np.array([0.0, 0.7])[scope] + error * r.normal(size=n))
    y[5] = np.nan

    def parameters():
        b = sample("b", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        shift = sample("shift", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        share = sample("share", dist.Beta(1.0, 4.0))
        return b, shift, share, sample("mu", dist.Normal(10.0, 5.0)), sample("wide", dist.HalfNormal(8.0))

    @probml.model
    def line(scope, x, error):
        b, shift, share, mu, wide = parameters()
        with probml.rows():
            bad = sample("bad", dist.Bernoulli(share))
            mean = jnp.where(bad == 1, mu, b[0] + b[1] * x + shift[scope])
            sample("y", dist.Normal(mean, jnp.where(bad == 1, jnp.hypot(wide, error), error)))

    def plain():
        b, shift, share, mu, wide = parameters()
        good = (1 - share) * jnp.exp(dist.Normal(b[0] + b[1] * x + shift[scope], error).log_prob(np.nan_to_num(y)))
        off = share * jnp.exp(dist.Normal(mu, jnp.hypot(wide, error)).log_prob(np.nan_to_num(y)))
        there = ~np.isnan(y)
        factor("y", jnp.log(good + off)[there].sum())
        deterministic("density", (good + off)[:4])
        deterministic("bad_and_y", off[:4])
        deterministic("hole", (1 - share) * (b[0] + b[1] * x + shift[scope])[5:6] + share * mu)

    data = {"scope": np.array(["north", "south"])[scope], "x": x, "error": error, "y": y}

    def ask(fit, data):
        finite(np.asarray(fit.decode(data)["bad"], float), (n,), "decode")

    answers = {"density": lambda fit: np.exp(fit.log_prob(first(data, 4))),
               "bad_and_y": lambda fit: np.exp(fit.log_prob(first(data, 4))) * np.asarray(
                   fit.predict_proba(first(data, 4), "bad"))[:, 1],
               "hole": lambda fit: fit.impute({k: v[5:6] for k, v in data.items()})["y"]}
    return Program(line(), data, plain, {}, None, ask, answers=answers)


class PlackettLuce(dist.Distribution):
    """Orders of three items by their log strengths (Plackett 1975)."""

    arg_constraints = {"logits": constraints.real_vector}
    support = constraints.independent(constraints.nonnegative_integer, 1)

    def __init__(self, logits, *, validate_args=None):
        self.logits = jnp.asarray(logits)
        super().__init__(self.logits.shape[:-1], self.logits.shape[-1:], validate_args=validate_args)

    def log_prob(self, value):
        """The log probability of the items from the first to the last."""
        own = jnp.take_along_axis(jnp.broadcast_to(self.logits, value.shape), value.astype(int), -1)
        rest = jax.lax.cumlogsumexp(own, axis=own.ndim - 1, reverse=True)
        return (own - rest).sum(-1)

    def sample(self, key, sample_shape=()):
        shape = (*sample_shape, *self.batch_shape, *self.event_shape)
        return jnp.argsort(-(self.logits + jax.random.gumbel(key, shape)), -1)


@program("races: orders by the user's own class × strengths of drivers × a covariate of each place × weights")
def races_of_drivers():
    r = rng(10)
    drivers, n = 8, 70
    who = np.stack([r.choice(drivers, 3, replace=False) for _ in range(n)])
    wet = r.normal(size=(n, 3))
    theta = r.normal(size=drivers)
    order = np.argsort(-(theta[who] + 0.5 * wet + r.gumbel(size=(n, 3))), 1)
    weights = r.choice([1.0, 2.0], n)

    def parameters():
        return sample("tau", dist.HalfNormal(1.0)), sample("b", dist.Normal(0.0, 1.0))

    @probml.model
    def races(one, two, three, wet):
        tau, b = parameters()
        with plate("drivers", drivers):
            theta = sample("theta", dist.Normal(0.0, tau))
        with probml.rows():
            logits = jnp.stack([theta[one], theta[two], theta[three]], -1) + b * wet
            sample("order", PlackettLuce(logits))

    def plain():
        tau, b = parameters()
        theta = deterministic("theta", tau * normals("e", drivers))
        log = PlackettLuce(theta[who] + b * wet).log_prob(jnp.asarray(order))
        factor("order", (weights * log).sum())
        deterministic("density", jnp.exp(log[:6]))

    names = np.array([f"d{k}" for k in range(drivers)])
    data = {"one": names[who[:, 0]], "two": names[who[:, 1]], "three": names[who[:, 2]], "wet": wet, "order": order}

    def ask(fit, data):
        made = np.asarray(fit.simulate(seed=1, **first(data, 5, "order"))["order"])
        assert (np.sort(made, 1) == np.arange(3)).all()

    return Program(races(), data, plain, {}, None, ask, weights=weights,
                   answers={"density": lambda fit: np.exp(fit.log_prob(first(data, 6)))})


class ConwayMaxwellPoisson(dist.Distribution):
    """Counts whose dispersion is a power of their factorial (Shmueli and others 2005)."""

    arg_constraints = {"log_rate": constraints.real, "nu": constraints.positive}
    support = constraints.nonnegative_integer
    terms = 60

    def __init__(self, log_rate, nu, *, validate_args=None):
        self.log_rate, self.nu = jnp.broadcast_arrays(log_rate, nu)
        super().__init__(self.log_rate.shape, validate_args=validate_args)

    def _logits(self, value):
        return value * self.log_rate - self.nu * jax.scipy.special.gammaln(value + 1.0)

    def _table(self):
        k = jnp.arange(self.terms, dtype=float)
        return k, k * self.log_rate[..., None] - self.nu[..., None] * jax.scipy.special.gammaln(k + 1)

    def log_prob(self, value):
        return self._logits(value) - jax.scipy.special.logsumexp(self._table()[1], -1)

    @property
    def mean(self):
        k, table = self._table()
        return (k * jax.nn.softmax(table, -1)).sum(-1)

    def sample(self, key, sample_shape=()):
        return jax.random.categorical(key, self._table()[1], shape=(*sample_shape, *self.batch_shape))


@program("Conway, Maxwell and Poisson by the user's own class × effects of litters × dispersion by a flag × holes")
def eggs_of_nests():
    r = rng(11)
    nests, n = 12, 110
    nest, food, late = r.integers(0, nests, n), r.normal(size=n), r.random(n) < 0.5
    u = 0.4 * r.normal(size=nests)
    nu = np.where(late, 2.0, 1.3)
    rate = nu * (1.0 + 0.3 * food + u[nest])
    table = ConwayMaxwellPoisson(jnp.asarray(rate), jnp.asarray(nu))._table()[1]  # NumPy draws alike in any precision
    y = np.argmax(np.asarray(table) + r.gumbel(size=table.shape), 1).astype(float)
    y[r.random(n) < 0.1] = np.nan
    there = ~np.isnan(y)

    def parameters():
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        return b, sample("tau", dist.HalfNormal(1.0)), sample("log_nu", dist.Normal(0.0, 0.7).expand([2]).to_event(1))

    def law(b, u, log_nu, food, late):
        nu = jnp.exp(log_nu[0] + log_nu[1] * late)
        return ConwayMaxwellPoisson(nu * (b[0] + b[1] * food + u), nu)

    @probml.model
    def eggs(nest, food, late):
        b, tau, log_nu = parameters()
        with plate("nests", nests):
            u = sample("u", dist.Normal(0.0, tau))
        with probml.rows():
            sample("eggs", law(b, u[nest], log_nu, food, late))

    def plain():
        b, tau, log_nu = parameters()
        u = tau * normals("e", nests + 1)
        deterministic("u", u[:nests])
        log = law(b, u[nest], log_nu, food, late).log_prob(jnp.asarray(np.nan_to_num(y)))
        factor("eggs", log[there].sum())
        deterministic("density", jnp.exp(log[there][:5]))
        deterministic("known", law(b, u[:2], log_nu, 1.0, jnp.array([0.0, 1.0])).mean)
        deterministic("stranger", law(b, u[nests:], log_nu, 1.0, jnp.array([1.0])).mean)

    frame = pd.DataFrame({"nest": [f"n{k:02d}" for k in nest], "food": food, "late": late, "eggs": pd.array(y, "Int64")})
    new = pd.DataFrame({"nest": ["n00", "n01"], "food": [1.0, 1.0], "late": [False, True]})

    def ask(fit, data):
        again = back(fit, fit.model)
        np.testing.assert_allclose(again.log_prob(frame.iloc[:3]), fit.log_prob(frame.iloc[:3]), rtol=1e-4)
        assert fit.impute(frame)["eggs"].notna().all()

    answers = {"density": lambda fit: np.exp(fit.log_prob(frame[there].iloc[:5])),
               "known": lambda fit: fit.predict(new, "eggs"),
               "stranger": lambda fit: fit.predict(new.iloc[1:].replace("n01", "other"), "eggs", unknown="new")}
    return Program(eggs(), frame, plain, {}, None, ask, answers=answers)


@program("Gompertz growth × three correlated effects × an error that grows with the mean × holes × a new animal")
def growth_of_hens():
    r = rng(12)
    hens, ages = 10, np.array([1.0, 2, 3, 4, 6, 8, 10])
    hen, age = np.repeat(np.arange(hens), 7), np.tile(ages, hens)
    z = np.array([1.2, 1.1, -0.7]) + r.multivariate_normal(np.zeros(3), np.diag([0.03, 0.02, 0.03]) + 0.01, hens)

    def curve(z, age):
        return jnp.exp(z[..., 0] - jnp.exp(z[..., 1] - jnp.exp(z[..., 2]) * age))

    mean = np.asarray(curve(jnp.asarray(z[hen]), age))
    y = mean + 0.08 * mean**0.8 * r.normal(size=len(hen))
    y[r.random(len(hen)) < 0.12] = np.nan
    there = ~np.isnan(y)

    def parameters():
        mu = sample("mu", dist.Normal(jnp.array([1.0, 1.0, -0.5]), 0.5).to_event(1))
        sd = sample("sd", dist.HalfNormal(0.3).expand([3]).to_event(1))
        root = sd[:, None] * sample("root", dist.LKJCholesky(3, 2.0))
        return mu, root, sample("s", dist.HalfNormal(0.3)), sample("power", dist.Normal(1.0, 0.3))

    @probml.model
    def growth(hen, age):
        mu, root, s, power = parameters()
        with plate("hens", hens):
            z = sample("z", dist.MultivariateNormal(mu, scale_tril=root))
        with probml.rows():
            mean = deterministic("mean", curve(z[hen], age))
            sample("y", dist.Normal(mean, s * mean**power))

    def plain():
        mu, root, s, power = parameters()
        z = mu + normals("e", hens + 1, 3) @ root.T
        deterministic("z", z[:hens])
        mean = curve(z[hen], age)
        log = dist.Normal(mean, s * mean**power).log_prob(np.nan_to_num(y))
        factor("y", log[there].sum())
        deterministic("density", jnp.exp(log[there][:5]))
        deterministic("ahead", curve(z[:2], 12.0))
        deterministic("stranger", curve(z[hens:], 5.0))

    data = {"hen": [f"hen {k}" for k in hen], "age": age, "y": y}
    at = np.flatnonzero(there)[:5]
    rows = {"hen": [f"hen {hen[k]}" for k in at], "age": age[at], "y": y[at]}

    def ask(fit, data):
        value, low, high = fit.predict({"hen": ["hen 0"], "age": [12.0]}, "y", interval=0.9)
        assert low[0] < value[0] < high[0]

    answers = {"density": lambda fit: np.exp(fit.log_prob(rows)),
               "ahead": lambda fit: fit.predict({"hen": ["hen 0", "hen 1"], "age": [12.0, 12.0]}, "mean"),
               "stranger": lambda fit: fit.predict({"hen": ["X"], "age": [5.0]}, "y", unknown="new")}
    return Program(growth(), data, plain, {}, None, ask, answers=answers)
