"""Programs of a user of Stan's guide and of a user of NumPyro, and what is asked of them afterwards.

Twenty-four were written before any was run; the other half is in `fourteenth_cases.py`. The plain
function has the answers, too: a prediction, a density or a probability is a deterministic site of it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pyarrow as pa
import pytest
from eleventh_cases import first
from judged_by_nuts import Program, program
from ninth_cases import finite, logistic
from numpyro import deterministic, factor, handlers, plate, sample
from oracles_of_strangers import close

import probml
from first_cases import back


def rng(seed):
    return np.random.default_rng([3011, seed])


def jointly(fit, rows, site, step=None):
    """p(state, what is seen of the row), of each state: the density of a row times its probabilities.
    Their average over draws is that of NumPyro's; of the probabilities alone it is not, which weigh
    draws by the density of the row."""
    p = np.asarray(fit.predict_proba(rows, site))
    return (p if step is None else p[:, step]) * np.exp(np.asarray(fit.log_prob(rows)))[:, None]


# ---- a user of NumPyro -----------------------------------------------------------------------------


class Davidson:
    """Bradley and Terry's model with ties: a class whose objects are models."""

    def __init__(self, teams):
        self.teams = teams

    def chances(self, ability, edge, tie, home, away):
        one, two = ability[home] + edge, ability[away]
        logits = jnp.stack([two, tie + (one + two) / 2, one], -1)  # away, draw, home
        return jax.nn.softmax(logits)

    def __call__(self, home, away, result=None):
        sd, edge = sample("sd", dist.HalfNormal(1.0)), sample("edge", dist.Normal(0.0, 1.0))
        tie = sample("tie", dist.Normal(0.0, 1.0))
        with plate("teams", self.teams):
            ability = sample("ability", dist.Normal(0.0, sd))
        with plate("games", len(home)):
            p = self.chances(ability, edge, tie, home, away)
            sample("result", dist.Categorical(probs=p), obs=result)


@program("Bradley–Terry with ties × home advantage × a class with __call__ × numbers as text")
def ties_of_teams():
    r = rng(1)
    n, teams = 140, 10
    home = np.arange(n) % teams
    away = (home + r.integers(1, teams, n)) % teams
    own = Davidson(teams)
    p = np.asarray(own.chances(0.8 * r.normal(size=teams), 0.4, -0.2, home, away))
    result = np.array([r.choice(3, p=q / q.sum()) for q in p.astype(float)])
    name, words = np.array([f"{k + 1:02d}" for k in range(teams)]), np.array(["A", "D", "H"])

    def plain():
        sd, edge = sample("sd", dist.HalfNormal(1.0)), sample("edge", dist.Normal(0.0, 1.0))
        tie = sample("tie", dist.Normal(0.0, 1.0))
        e = sample("e", dist.Normal(0.0, 1.0).expand([teams]).to_event(1))
        ability = deterministic("ability", sd * e)
        p = own.chances(ability, edge, tie, home, away)
        factor("result", jnp.log(p[np.arange(n), result]).sum())
        deterministic("chances", own.chances(ability, edge, tie, np.array([0, 3]), np.array([5, 9])))
        deterministic("density", p[np.arange(6), result[:6]])

    def ask(fit, data):
        assert list(fit.labels("result")) == ["A", "D", "H"]
        assert set(fit.predict(first(data, 9, "result"), "result")) <= {"A", "D", "H"}

    new = {"home": ["01", "04"], "away": ["06", "10"]}
    data = {"home": name[home], "away": name[away], "result": words[result]}
    answers = {"chances": lambda fit: fit.predict_proba(new, "result"),
               "density": lambda fit: np.exp(fit.log_prob(first(data, 6)))}
    return Program(probml.model(own)(), data, plain, {}, None, ask, answers=answers)


@program("one compartment with absorption × correlated effects × below the limit × a dict of columns")
def concentrations_over_time():
    r = rng(2)
    subject, time = np.repeat(np.arange(12), 7), np.tile([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 14.0], 12)
    dose = np.repeat(r.choice([100.0, 200.0], 12), 7)
    eta = r.multivariate_normal([0, 0], [[0.09, 0.03], [0.03, 0.06]], 12)

    def curve(log, data):
        ka, cl, v = jnp.exp(log[0]), jnp.exp(log[1]), jnp.exp(log[2])
        k = cl / v
        return data["dose"] / v * ka / (ka - k) * (jnp.exp(-k * data["time"])
                                                  - jnp.exp(-ka * data["time"]))

    columns = {"subject": subject, "time": time, "dose": dose}
    log = np.array([0.6, 1.2, 2.9])
    mean = np.asarray(curve([log[0], log[1] + eta[subject, 0], log[2] + eta[subject, 1]], columns))
    y = mean * np.exp(0.2 * r.normal(size=84))
    low = y < 0.6
    y = np.where(low, 0.6, y)

    def kinetics(data, low, y=None):
        log = sample("log", dist.Normal(jnp.array([0.5, 1.0, 3.0]), 0.5).to_event(1))
        sd = sample("sd", dist.HalfNormal(0.5).expand([2]).to_event(1))
        root = sample("root", dist.LKJCholesky(2, 2.0))
        s = sample("s", dist.HalfNormal(0.5))
        with plate("subjects", 12):
            eta = sample("eta", dist.MultivariateNormal(jnp.zeros(2), scale_tril=sd[:, None] * root))
        own = eta[data["subject"]]
        with plate("n", data["time"].shape[0]):
            mean = jnp.log(curve([log[0], log[1] + own[:, 0], log[2] + own[:, 1]], data))
            with handlers.mask(mask=~low):
                sample("y", dist.LogNormal(mean, s), obs=y)
            below = jax.scipy.special.log_ndtr((jnp.log(0.6) - mean) / s)
            factor("below", jnp.where(low, below, 0.0))

    def plain():
        log = sample("log", dist.Normal(jnp.array([0.5, 1.0, 3.0]), 0.5).to_event(1))
        sd = sample("sd", dist.HalfNormal(0.5).expand([2]).to_event(1))
        root = sample("root", dist.LKJCholesky(2, 2.0))
        s = sample("s", dist.HalfNormal(0.5))
        e = sample("e", dist.Normal(0.0, 1.0).expand([12, 2]).to_event(2))
        eta = deterministic("eta", e @ (sd[:, None] * root).T)
        own = eta[subject]
        mean = jnp.log(curve([log[0], log[1] + own[:, 0], log[2] + own[:, 1]], columns))
        sample("y", dist.LogNormal(mean[~low], s), obs=jnp.asarray(y[~low]))
        factor("below", jax.scipy.special.log_ndtr((jnp.log(0.6) - mean[low]) / s).sum())
        deterministic("half", jnp.log(2.0) * jnp.exp(log[2] - log[1]))

    def ask(fit, data):
        back(fit, fit.model)
        made = np.asarray(fit.simulate(data=columns, low=low, seed=1)["y"])
        assert made.shape == (84,) and (made > 0).all()
        with pytest.raises(probml.Refusal, match="no plate of independent rows"):
            fit.log_prob(data)  # its size is that of a column in a dict

    answers = {"half": lambda fit: np.mean(
        np.log(2) * np.exp([d[2] - d[1] for d in np.asarray(fit.draws(2000, seed=1)["log"])]))}
    data = {"data": columns, "low": low, "y": y}
    return Program(probml.model(kinetics)(), data, plain, {}, None, ask, answers=answers)


@program("ideal points × two anchors × votes not cast × a pyarrow table with nulls")
def roll_calls():
    r = rng(3)
    people, bills = 14, 16
    who, bill = np.repeat(np.arange(people), bills), np.tile(np.arange(bills), people)
    theta = np.concatenate([[-1.5, 1.5], r.normal(size=people - 2)])
    slope, hard = 1.2 * r.normal(size=bills), 0.8 * r.normal(size=bills)
    vote = (r.random(len(who)) < logistic(slope[bill] * theta[who] - hard[bill])).astype(float)
    vote[r.random(len(who)) < 0.15] = np.nan
    anchor = jnp.zeros(people).at[0].set(-1.5).at[1].set(1.5)

    def parameters():
        wide = sample("wide", dist.HalfNormal(1.0))
        theta = sample("theta", dist.Normal(anchor, jnp.where(anchor == 0, 1.0, 0.1)).to_event(1))
        return wide, theta

    @probml.model
    def votes(who, bill):
        wide, theta = parameters()
        with plate("bills", bills):
            hard = sample("hard", dist.Normal(0.0, wide))
            slope = sample("slope", dist.Normal(0.0, 1.5))
        with probml.rows():
            sample("vote", dist.Bernoulli(logits=slope[bill] * theta[who] - hard[bill]))

    cast, out = ~np.isnan(vote), np.flatnonzero(np.isnan(vote))[:6]

    def plain():
        wide, theta = parameters()
        hard = deterministic(
            "hard", wide * sample("e", dist.Normal(0.0, 1.0).expand([bills]).to_event(1)))
        slope = sample("slope", dist.Normal(0.0, 1.5).expand([bills]).to_event(1))
        logits = slope[bill] * theta[who] - hard[bill]
        sample("vote", dist.Bernoulli(logits=logits[cast]).to_event(1), obs=jnp.asarray(vote[cast]))
        deterministic("chance", jax.nn.sigmoid(logits[out]))

    names = [f"Rep. {chr(65 + k)}" for k in range(people)]
    titles = [f"H.R. {100 + k}" for k in range(bills)]
    table = pa.table({"who": [names[k] for k in who], "bill": [titles[k] for k in bill],
                      "vote": pa.array([None if np.isnan(v) else bool(v) for v in vote])})

    def ask(fit, data):
        full = fit.impute(data)["vote"]
        assert len(full) == len(who) and not any(v is None for v in np.asarray(full, object))
        assert len(probml.compare({"one": fit, "same": fit}, data)) == 2

    new = {"who": [names[k] for k in who[out]], "bill": [titles[k] for k in bill[out]]}
    answers = {"chance": lambda fit: np.asarray(fit.predict_proba(new, "vote"))[:, 1]}
    return Program(votes(), table, plain, {}, None, ask, answers=answers)


@program("CAR of a map × expected counts × categories in the map's order × a table indexed by names")
def cases_of_a_map():
    r = rng(4)
    side = 6
    n = side * side
    at = np.array([(i, j) for i in range(side) for j in range(side)])
    near = (np.abs(at[:, None] - at[None]).sum(-1) == 1).astype(float)
    precision = 3.0 * (np.diag(near.sum(1)) - 0.9 * near)
    phi = r.multivariate_normal(np.zeros(n), np.linalg.inv(precision))
    x, expected = r.normal(size=n), r.uniform(2, 15, n)
    y = r.poisson(expected * np.exp(-0.1 + 0.3 * x + phi)).astype(float)
    y[[7, 20, 33]] = np.nan

    def parameters():
        a, b = sample("a", dist.Normal(0.0, 1.0)), sample("b", dist.Normal(0.0, 1.0))
        rho, tau = sample("rho", dist.Beta(4.0, 1.0)), sample("tau", dist.Gamma(2.0, 0.5))
        return a, b, sample("phi", dist.CAR(0.0, rho, tau, near))

    @probml.model
    def disease(area, expected, x):
        a, b, phi = parameters()
        with probml.rows():
            sample("y", dist.Poisson(expected * jnp.exp(a + b * x + phi[area])))

    there = ~np.isnan(y)

    def plain():
        a, b, phi = parameters()
        mean = expected * jnp.exp(a + b * x + phi)
        sample("y", dist.Poisson(mean[there]), obs=jnp.asarray(y[there]))
        deterministic("holes", mean[~there])
        deterministic("density", jnp.exp(dist.Poisson(mean[:6]).log_prob(y[:6])))

    names = [f"d{k}" for k in range(n)]
    table = pd.DataFrame({"area": pd.Categorical(names, categories=names), "expected": expected,
                          "x": x, "y": y}, index=[f"row {k}" for k in range(n)])

    def ask(fit, data):
        low, high = fit.predict(table.drop(columns="y"), "y", interval=0.9)[1:]
        assert (np.asarray(low) <= np.asarray(high)).all()
        finite(fit.simulate(**{k: table[k] for k in ("area", "expected", "x")})["y"], (n,), "made")

    answers = {"holes": lambda fit: np.asarray(fit.impute(table)["y"], float)[~there],
               "density": lambda fit: np.exp(fit.log_prob(table.iloc[:6]))}
    # in another order than that of the map
    return Program(disease(), table.sample(frac=1.0, random_state=1), plain, {}, None, ask,
                   answers=answers)


# ---- a user of Stan's guide ------------------------------------------------------------------------


@program("two changes at unknown times, outside rows × Poisson × exposure")
def two_changes():
    r = rng(5)
    n = 36
    day, hours = np.arange(n), r.uniform(0.5, 2.0, n)
    y = r.poisson(hours * np.array([2.0, 6.0, 1.0])[(day > 11).astype(int) + (day > 22)])

    @probml.model
    def eras(day, hours):
        with plate("eras", 3):
            rate = sample("rate", dist.Gamma(2.0, 0.5))
        with plate("changes", 2):
            at = sample("at", dist.Categorical(jnp.full(n, 1 / n)))
        first, last = jnp.minimum(at[0], at[1]), jnp.maximum(at[0], at[1])
        with probml.rows():
            era = (day > first).astype(int) + (day > last).astype(int)
            sample("y", dist.Poisson(hours * rate[era]))

    one, two = np.meshgrid(np.arange(n), np.arange(n))
    low, high = np.minimum(one, two).ravel(), np.maximum(one, two).ravel()
    era = (day > low[:, None]).astype(int) + (day > high[:, None])

    def plain():
        rate = sample("rate", dist.Gamma(2.0, 0.5).expand([3]).to_event(1))
        log = dist.Poisson(hours * rate[:, None]).log_prob(jnp.asarray(y))  # (era, day)
        total = sum(jnp.where(era == k, log[k], 0.0).sum(1) for k in range(3))
        factor("y", jax.nn.logsumexp(total))
        deterministic("mean", jax.nn.softmax(total) @ rate[era[:, [5, 11, 13, 17, 23, 30]]])

    def ask(fit, data):
        finite(fit.simulate(day=day, hours=hours, seed=2)["y"], (n,), "simulate")

    new = {"day": np.array([5, 11, 13, 17, 23, 30]), "hours": np.ones(6)}
    return Program(eras(), {"day": day, "hours": hours, "y": y}, plain, {}, None, ask,
                   answers={"mean": lambda fit: fit.predict(new, "y")})


@program("Jolly–Seber as a chain of three states × effort by occasion × never captured rows")
def entries_and_deaths():
    r = rng(6)
    n, steps = 60, 7
    effort = np.array([0.5, -0.3, 0.8, 0.0, -0.6, 0.4, 1.0])
    z = np.zeros((n, steps), int)
    for t in range(steps):
        before = z[:, t - 1] if t else np.zeros(n, int)
        enter = (before == 0) & (r.random(n) < (0.3 if t == 0 else 0.12))
        die = (before == 1) & (r.random(n) < 0.2)
        z[:, t] = np.where(enter, 1, np.where(die, 2, before))
    y = ((z == 1) & (r.random((n, steps)) < logistic(0.6 + 0.8 * effort))).astype(int)

    def parameters(effort):
        begin, enter = sample("begin", dist.Beta(1.0, 1.0)), sample("enter", dist.Beta(1.0, 1.0))
        phi = sample("phi", dist.Beta(2.0, 1.0))
        c = sample("c", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        initial = jnp.stack([1 - begin, begin, jnp.zeros(())])
        move = jnp.stack([jnp.stack([1 - enter, enter, jnp.zeros(())]),
                          jnp.stack([jnp.zeros(()), phi, 1 - phi]), jnp.array([0.0, 0.0, 1.0])])
        return initial, move, jax.nn.sigmoid(c[0] + c[1] * effort)

    @probml.model
    def jolly_seber(effort):
        initial, move, p = parameters(effort)
        with probml.rows():
            z = sample("z", probml.MarkovChain(initial, move))
            sample("y", dist.Bernoulli(jnp.where(z == 1, p, 0.0)).to_event(1))

    def plain():
        initial, move, p = parameters(effort)
        alpha, total = initial[None] * jnp.ones((n, 1)), 0.0
        for t in range(steps):
            alpha = alpha @ move if t else alpha
            alive = jnp.where(y[:, t] == 1, p[t], 1 - p[t])
            gone = (y[:, t] == 0) * 1.0
            alpha = alpha * jnp.stack([gone, alive, gone], 1)
            total, alpha = total + jnp.log(alpha.sum(1)), alpha / alpha.sum(1, keepdims=True)
        factor("y", total.sum())
        deterministic("last", (alpha * jnp.exp(total)[:, None])[:8])
        deterministic("alive", alpha[:, 1].sum())

    def ask(fit, data):
        path = np.asarray(fit.decode(data)["z"])
        assert ((path == 1) >= (y == 1)).all() and (np.diff(path, axis=1) >= 0).all()
        assert "phi" in fit.to_arviz().posterior

    data = {"effort": np.tile(effort, (n, 1)), "y": y}
    answers = {"last": lambda fit: jointly(fit, first(data, 8), "z", -1),
               "alive": lambda fit: np.asarray(fit.predict_proba(data, "z"))[:, -1, 1].sum()}
    return Program(jolly_seber(), data, plain, {}, None, ask, answers=answers)


@program("cure × a hidden state that a factor of survival reads × wards × right censoring")
def cured_patients():
    r = rng(7)
    n = 150
    ward, x, drug = np.arange(n) % 10, r.normal(size=n), np.arange(n) % 2
    cured = r.random(n) < logistic(-0.5 + 0.9 * x)
    u = 0.4 * r.normal(size=10)
    time = np.exp(1.0 + 0.5 * drug + u[ward]) * r.weibull(1.5, n)
    end = r.uniform(4, 15, n)
    died = (~cured & (time < end)).astype(int)
    time = np.where(died == 1, time, end)

    def parameters():
        a = sample("a", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        c = sample("c", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        return a, c, sample("shape", dist.LogNormal(0.0, 0.5)), sample("sd", dist.HalfNormal(0.5))

    def log_lived(c, shape, u, drug, time, died):
        log = jnp.log(time) - (c[0] + c[1] * drug + u)
        hazard = jnp.log(shape) - jnp.log(time) + shape * log
        return died * hazard - jnp.exp(shape * log)

    @probml.model
    def cure(ward, x, drug, time, died):
        a, c, shape, sd = parameters()
        with plate("wards", 10):
            u = sample("u", dist.Normal(0.0, sd))
        with probml.rows():
            cured = sample("cured", dist.Bernoulli(logits=a[0] + a[1] * x))
            alive = jnp.where(died == 1, -jnp.inf, 0.0)
            factor("lived", jnp.where(
                cured == 1, alive, log_lived(c, shape, u[ward], drug, time, died)))

    def plain():
        a, c, shape, sd = parameters()
        u = deterministic("u", sd * sample("e", dist.Normal(0.0, 1.0).expand([10]).to_event(1)))
        log = log_lived(c, shape, u[ward], drug, time, died)
        rest, own = jax.nn.log_sigmoid(-a[0] - a[1] * x), jax.nn.log_sigmoid(a[0] + a[1] * x)
        each = jnp.where(died == 1, rest + log, jnp.logaddexp(own, rest + log))
        factor("y", each.sum())
        deterministic("cured", jnp.where(died == 1, 0.0, jnp.exp(own))[:8])
        deterministic("density", jnp.exp(each[:5]))

    def ask(fit, data):
        assert not np.asarray(fit.decode(data)["cured"])[died == 1].any()

    data = {"ward": ward, "x": x, "drug": drug, "time": time, "died": died}
    answers = {"cured": lambda fit: jointly(fit, first(data, 8), "cured")[:, 1],
               "density": lambda fit: np.exp(fit.log_prob(first(data, 5)))}
    return Program(cure(), data, plain, {}, None, ask, answers=answers)


@program("numbers rounded to integers of one byte × slopes of groups × a small width")
def rounded_weights():
    r = rng(8)
    n = 120
    pen, x = np.arange(n) % 12, r.normal(size=n)
    u = r.normal(size=(12, 2)) * [0.6, 0.3]
    y = np.round(4.0 + 0.7 * x + u[pen, 0] + u[pen, 1] * x + 0.4 * r.normal(size=n)).astype(np.int8)

    def parameters():
        a = sample("a", dist.Normal(jnp.array([4.0, 0.0]), 2.0).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        return a, sd, sample("s", dist.HalfNormal(1.0))

    def log_p(y, mean, s):
        ndtr = jax.scipy.special.ndtr
        return jnp.log(ndtr((y + 0.5 - mean) / s) - ndtr((y - 0.5 - mean) / s) + 1e-30)

    @probml.model
    def scales(pen, x, y):
        a, sd, s = parameters()
        with plate("pens", 12):
            u = sample("u", dist.Normal(0.0, sd).to_event(1))
        with probml.rows():
            mean = deterministic("mean", a[0] + u[pen, 0] + (a[1] + u[pen, 1]) * x)
            factor("rounded", log_p(y, mean, s))

    def plain():
        a, sd, s = parameters()
        e = sample("e", dist.Normal(0.0, 1.0).expand([12, 2]).to_event(2))
        u = deterministic("u", sd * e)
        mean = a[0] + u[pen, 0] + (a[1] + u[pen, 1]) * x
        log = log_p(y.astype(float), mean, s)
        factor("rounded", log.sum())
        deterministic("density", jnp.exp(log[:6]))
        deterministic("level", mean[:6])

    def ask(fit, data):
        back(fit, fit.model)

    data = {"pen": pen, "x": x, "y": y}
    answers = {"density": lambda fit: np.exp(fit.log_prob(first(data, 6))),
               "level": lambda fit: fit.predict(first(data, 6), "mean")}
    return Program(scales(), data, plain, {}, None, ask, answers=answers)


@program("three-parameter items × plates with dim × answers not given × latent abilities of rows")
def guessed_items():
    r = rng(9)
    people, items = 70, 8
    a, b = r.lognormal(0.3, 0.3, items), r.normal(0, 1, items)
    p = 0.2 + 0.8 * logistic(a * (r.normal(size=(people, 1)) - b))
    y = (r.random((people, items)) < p).astype(float)
    y[r.random((people, items)) < 0.12] = np.nan

    def three(people, y=None):
        at, among = plate("items", items, dim=-1), plate("people", people, dim=-2)
        with at:
            slope = sample("slope", dist.LogNormal(0.0, 0.5))
            hard = sample("hard", dist.Normal(0.0, 1.5))
            guess = sample("guess", dist.Beta(5.0, 17.0))
        with among:
            theta = sample("theta", dist.Normal(0.0, 1.0))
        with among, at:
            p = guess + (1 - guess) * jax.nn.sigmoid(slope * (theta - hard))
            deterministic("p", p)
            sample("y", dist.Bernoulli(p), obs=y)

    given = ~np.isnan(y)
    holes = np.argwhere(~given)[:8]

    def plain():
        slope = sample("slope", dist.LogNormal(0.0, 0.5).expand([items]).to_event(1))
        hard = sample("hard", dist.Normal(0.0, 1.5).expand([items]).to_event(1))
        guess = sample("guess", dist.Beta(5.0, 17.0).expand([items]).to_event(1))
        theta = sample("theta_", dist.Normal(0.0, 1.0).expand([people]).to_event(1))
        p = guess + (1 - guess) * jax.nn.sigmoid(slope * (theta[:, None] - hard))
        each = jnp.where(y == 1, jnp.log(p), jnp.log1p(-p))
        factor("y", jnp.where(given, each, 0.0).sum())
        deterministic("chance", p[holes[:, 0], holes[:, 1]])

    def ask(fit, data):
        finite(fit.simulate(seed=1)["y"], (people, items), "simulate")
        with pytest.raises(probml.Refusal, match="no plate of independent rows"):
            fit.predict_proba(data, "y")  # abilities stand in the plate

    data = {"y": y}
    answers = {"chance": lambda fit: np.asarray(
        fit.draws(2000)["p"]).mean(0)[holes[:, 0], holes[:, 1]]}
    return Program(probml.model(three)(people=people), data, plain, {}, None, ask, answers=answers)


@program("Dawid and Skene × classes by a covariate × raters in a loop of f-strings × gaps × text")
def raters_of_scans():
    r = rng(10)
    n, raters, k = 90, 4, 3
    x = r.normal(size=n)
    logits = np.stack([0 * x, 0.3 + 1.0 * x, -0.2 - 0.8 * x], 1)
    z = np.argmax(logits + r.gumbel(size=(n, k)), 1)
    table = np.array([r.dirichlet([1 + 9 * (i == j) for j in range(k)]) for _ in range(raters)
                      for i in range(k)]).reshape(raters, k, k)
    said = np.array([[r.choice(k, p=table[j, z[i]]) for j in range(raters)] for i in range(n)])
    gone = r.random((n, raters)) < 0.25

    def parameters():
        a = sample("a", dist.Normal(0.0, 1.0).expand([k - 1]).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([k - 1]).to_event(1))
        with plate("raters", raters, dim=-2), plate("classes", k, dim=-1):
            return a, b, sample("table", dist.Dirichlet(jnp.ones((k, k)) + 6 * jnp.eye(k)))

    def prior(a, b, x):
        eta = a + b * x[:, None]
        return jnp.concatenate([jnp.zeros_like(eta[:, :1]), eta], 1)

    @probml.model
    def scans(x):
        a, b, table = parameters()
        with probml.rows():
            z = sample("z", dist.Categorical(logits=prior(a, b, x)))
            for j in range(raters):
                sample(f"rater_{j}", dist.Categorical(table[j, z]))

    def plain():
        a, b, table = parameters()
        log = jax.nn.log_softmax(prior(a, b, x))
        for j in range(raters):
            own = jnp.log(table[j])[:, said[:, j]].T
            log = log + jnp.where(gone[:, j, None], 0.0, own)
        factor("y", jax.nn.logsumexp(log, 1).sum())
        deterministic("scan_classes", jnp.exp(log[:8]))

    words = np.array(["benign", "malign", "unclear"])
    frame = pd.DataFrame({"x": x} | {f"rater_{j}": np.where(gone[:, j], None, words[said[:, j]])
                                     for j in range(raters)}, index=np.arange(n)[::-1] * 10)

    def ask(fit, data):
        assert (np.asarray(fit.decode(data)["z"]) == z).mean() > 0.75
        finite(fit.log_prob(data), (n,), "log_prob")

    answers = {"scan_classes": lambda fit: jointly(fit, frame.iloc[:8], "z")}
    return Program(scans(), frame, plain, {}, None, ask, answers=answers)


@program("GARCH by lax.scan × returns of one percent × the observed returns are an input, too")
def conditional_variances():
    r = rng(11)
    n = 150
    y, s2 = np.zeros(n), 1e-4
    for t in range(n):
        s2 = 1e-5 + 0.25 * (y[t - 1] if t else 0.0) ** 2 + 0.65 * s2
        y[t] = 5e-4 + np.sqrt(s2) * r.normal()

    def variances(y, mu, c, a, b):
        def step(s2, e):
            s2 = c + a * e**2 + b * s2
            return s2, s2

        start = c / (1 - a - b)
        rest = jax.lax.scan(step, start, y - mu)[1]
        return jnp.concatenate([start[None], rest])

    def parameters():
        mu = 1e-2 * sample("mu", dist.Normal(0.0, 1.0))
        c = 1e-4 * sample("c", dist.HalfNormal(1.0))
        share = sample("share", dist.Dirichlet(jnp.array([2.0, 3.0, 2.0])))
        return mu, c, share[0], share[1]

    def garch(y):
        at = parameters()
        s2 = variances(y, *at)
        deterministic("ahead", 100 * jnp.sqrt(s2[-1]))
        sample("returns", dist.Normal(at[0], jnp.sqrt(s2[:-1])).to_event(1), obs=y)

    def ask(fit, data):
        finite(fit.simulate(y=y, seed=1)["returns"], (n,), "simulate")
        assert "ahead" in fit.to_arviz().posterior

    answers = {"ahead": lambda fit: np.mean(fit.draws(2000, seed=2)["ahead"])}
    return Program(probml.model(garch)(), {"y": y}, lambda: garch(jnp.asarray(y)), {}, None, ask,
                   ("c",), answers=answers)


@program("mixed membership: Dirichlet shares of a letter × multinomial words × totals")
def topics_of_letters():
    r = rng(12)
    n, words = 40, 6
    phi = np.array([[0.4, 0.3, 0.1, 0.1, 0.05, 0.05], [0.05, 0.05, 0.1, 0.1, 0.3, 0.4]])
    theta = r.dirichlet([0.8, 0.8], n)
    total = r.integers(15, 50, n)
    counts = np.array([r.multinomial(m, q) for m, q in zip(total, theta @ phi, strict=True)])
    lean = jnp.array([[4.0, 4, 1, 1, 1, 1], [1.0, 1, 1, 1, 4, 4]])

    @probml.model
    def letters(total):
        with plate("topics", 2):
            phi = sample("phi", dist.Dirichlet(lean))
        with probml.rows():
            theta = sample("theta", dist.Dirichlet(jnp.full(2, 0.8)))
            sample("counts", dist.Multinomial(total, theta @ phi))

    def plain():
        with plate("topics", 2):
            phi = sample("phi", dist.Dirichlet(lean))
        with plate("n", n):
            theta = sample("theta", dist.Dirichlet(jnp.full(2, 0.8)))
            sample("counts", dist.Multinomial(total, theta @ phi), obs=jnp.asarray(counts))

    def ask(fit, data):
        made = np.asarray(fit.simulate(total=total, seed=4)["counts"])
        assert made.shape == (n, words) and (made.sum(1) == total).all()
        close(np.asarray(fit.draws(20)["phi"]).sum(-1), np.ones((20, 2)), "shares")

    return Program(letters(), {"total": total, "counts": counts}, plain, {}, None, ask)
