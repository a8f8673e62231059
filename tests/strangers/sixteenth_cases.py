"""The other half of `fifteenth_cases.py`: programs of users of Turing, Pyro and Infer.NET, and of readers of
Murphy's and of Koller and Friedman's books.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import scipy.stats as st
from eleventh_cases import first
from fifteenth_cases import normals
from judged_by_nuts import Program, program
from ninth_cases import finite, logistic
from numpyro import deterministic, factor, plate, sample
from numpyro.contrib.control_flow import scan
from oracles_of_strangers import close

import probml
from first_cases import back, case


def rng(seed):
    return np.random.default_rng([112, 16, seed])


# ---- Turing, Pyro, Infer.NET -----------------------------------------------------------------------


@program("TrueSkill: win, draw or loss of two players × a margin that is learnt × a player with one game")
def skills_of_players():
    r = rng(1)
    n, players = 110, 11
    one = r.integers(0, 10, n)
    two = (one + r.integers(1, 10, n)) % 10
    two[30] = 10
    skill = 25 + 6 * r.normal(size=players)
    gap = skill[one] - skill[two] + 6 * r.normal(size=n)
    result = np.where(gap > 2, 2, np.where(gap < -2, 0, 1))

    def chances(margin, gap):
        below, above = (jax.scipy.stats.norm.cdf((m - gap) / 6) for m in (-margin, margin))
        return jnp.stack([below, above - below, 1 - above], -1)

    @probml.model
    def trueskill(one, two):
        margin = sample("margin", dist.HalfNormal(5.0))
        with plate("players", players):
            skill = sample("skill", dist.Normal(25.0, 8.0))
        with probml.rows():
            sample("result", dist.Categorical(chances(margin, skill[one] - skill[two])))

    def plain():
        margin = sample("margin", dist.HalfNormal(5.0))
        skill = deterministic("skill", 25 + 8 * normals("e", players))
        p = chances(margin, skill[one] - skill[two])
        factor("result", jnp.log(p[np.arange(n), result]).sum())
        deterministic("match", chances(margin, skill[jnp.array([0, 3])] - skill[jnp.array([4, 10])]))
        deterministic("density", p[np.arange(5), result[:5]])

    names = np.array([f"player {k:02d}" for k in range(players)])
    frame = pd.DataFrame({"one": names[one], "two": names[two], "result": pd.Categorical.from_codes(
        result, ["loss", "draw", "win"])}, index=pd.date_range("2026-01-01", periods=n, freq="7h"))
    match = pd.DataFrame({"one": names[[0, 3]], "two": names[[4, 10]]})

    def ask(fit, data):
        assert list(fit.labels("result")) == ["loss", "draw", "win"]
        made = fit.simulate(one=match["one"], two=match["two"], seed=1)["result"]
        assert set(made) <= {"loss", "draw", "win"}

    answers = {"match": lambda fit: fit.predict_proba(match, "result"),
               "density": lambda fit: np.exp(fit.log_prob(frame.iloc[:5]))}
    return Program(trueskill(), frame, plain, {}, None, ask, answers=answers)


@program("clicks: examined or not by position × attraction of a document × enumerate × p(examined | no click)")
def clicks_of_searches():
    r = rng(2)
    n, docs, ranks = 280, 8, 4
    doc, rank = r.integers(0, docs, n), r.integers(0, ranks, n)
    attract, exam = r.beta(2, 3, docs), np.array([0.97, 0.7, 0.4, 0.25])
    click = (r.random(n) < attract[doc] * exam[rank]).astype(np.uint8)

    def clicks(doc, rank, docs, click=None):
        with plate("docs", docs):
            attract = sample("attract", dist.Beta(2.0, 2.0))
        with plate("ranks", 4):
            exam = sample("exam", dist.Beta(jnp.array([30.0, 3.0, 2.0, 1.0]), jnp.array([1.0, 2.0, 2.0, 2.0])))
        with plate("searches", doc.shape[0]):
            e = sample("examined", dist.Bernoulli(exam[rank]), infer={"enumerate": "parallel"})
            sample("click", dist.Bernoulli(jnp.where(e == 1, attract[doc], 0.0)), obs=click)

    def plain():
        attract = sample("attract", dist.Beta(2.0, 2.0).expand([docs]).to_event(1))
        exam = sample("exam", dist.Beta(jnp.array([30.0, 3.0, 2.0, 1.0]),
                                        jnp.array([1.0, 2.0, 2.0, 2.0])).to_event(1))
        p = attract[doc] * exam[rank]
        factor("click", jnp.where(click == 1, jnp.log(p), jnp.log1p(-p)).sum())
        seen = jnp.where(click == 1, 1.0, (exam[rank] - p) / (1 - p))
        deterministic("examined", seen[:12])
        deterministic("mean", p[:12])

    def ask(fit, data):
        z = fit.decode(data)["examined"]
        assert (np.asarray(z)[click == 1] == 1).all()
        low = fit.log_prob(data)
        finite(low, (n,), "log_prob")

    data = {"doc": doc, "rank": rank, "click": click}
    answers = {"examined": lambda fit: np.asarray(fit.predict_proba(first(data, 12), "examined"))[:, 1],
               "mean": lambda fit: np.asarray(fit.predict_proba(first(data, 12, "click"), "click"))[:, 1]}
    return Program(probml.model(clicks)(docs=docs), data, plain, {}, None, ask, answers=answers)


@program("Bayesian PCA by a pasted plate × widths of directions × missing cells × a row all missing")
def components_with_holes():
    r = rng(3)
    n, d, q = 36, 5, 2
    w = r.normal(size=(d, q)) * [1.5, 0.7]
    x = np.arange(d) + r.normal(size=(n, q)) @ w.T + 0.4 * r.normal(size=(n, d))
    x[r.random((n, d)) < 0.12] = np.nan
    x[20] = np.nan

    def parameters():
        mu = sample("mu", dist.Normal(0.0, 5.0).expand([d]).to_event(1))
        wide = sample("wide", dist.LogNormal(0.0, 0.5).expand([q]).to_event(1))
        return mu, wide, sample("s", dist.HalfNormal(1.0))

    def pca(n, q, x=None):
        mu, wide, s = parameters()
        w = sample("w", dist.Normal(0.0, wide).expand([d, q]).to_event(2))
        with plate("n", n):
            z = sample("z", dist.Normal(0.0, 1.0).expand([q]).to_event(1))
            sample("x", dist.Normal(mu + z @ w.T, s).to_event(1), obs=x)

    def plain():
        mu, wide, s = parameters()
        w = normals("e", d, q) * wide
        cov = w @ w.T + s**2 * jnp.eye(d)
        for i, row in enumerate(x):
            there = ~np.isnan(row)
            if there.any():
                own = dist.MultivariateNormal(mu[there], cov[there][:, there])
                factor(f"row {i}", own.log_prob(row[there]))
        deterministic("covariance", cov)

    def ask(fit, data):
        with pytest.raises(probml.Refusal, match="no plate of independent rows"):
            fit.log_prob({"x": x})  # a latent vector stands in the plate

    def covariance(fit):
        some = fit.draws(2000)
        return np.mean(np.einsum("nik,njk->nij", some["w"], some["w"])
                       + np.eye(d) * np.asarray(some["s"])[:, None, None] ** 2, 0)

    return Program(probml.model(pca)(n=n, q=q), {"x": x}, plain, {}, None, ask, ("wide",),
                   answers={"covariance": covariance})


# ---- Koller and Friedman, Murphy -------------------------------------------------------------------


@case("Lauritzen's waste incinerator: discrete causes of normal effects in a chain, no parameter at all")
def incinerator():
    @probml.model
    def waste():
        with probml.rows():
            burning = sample("burning", dist.Categorical(jnp.array([0.85, 0.15])))  # stable, unstable
            filter_ = sample("filter", dist.Categorical(jnp.array([0.95, 0.05])))  # intact, defect
            kind = sample("waste", dist.Categorical(jnp.array([2 / 7, 5 / 7])))  # industrial, household
            e = sample("efficiency", dist.Normal(
                jnp.array([[-3.9, -3.2], [-0.4, -0.5]])[filter_, kind],
                jnp.sqrt(jnp.array([[2e-5, 2e-5], [1e-4, 1e-4]]))[filter_, kind]))
            dust = sample("dust", dist.Normal(
                jnp.array([[6.5, 6.0], [7.5, 7.0]])[burning, kind] + e,
                jnp.sqrt(jnp.array([[0.03, 0.04], [0.1, 0.1]]))[burning, kind]))
            sample("co2", dist.Normal(jnp.array([-2.0, -1.0])[burning], jnp.sqrt(jnp.array([0.1, 0.3]))[burning]))
            sample("light", dist.Normal(3 - dust / 2, 0.5))
            metal = sample("metal", dist.Normal(jnp.array([0.5, -0.5])[kind],
                                                jnp.sqrt(jnp.array([0.01, 0.005]))[kind]))
            sample("emission", dist.Normal(dust + metal, jnp.sqrt(0.002)))

    def normal(b, f, w):
        """Prior, mean and covariance of efficiency, dust, co2, light, metal, emission."""
        p = (0.85, 0.15)[b] * (0.95, 0.05)[f] * (2 / 7, 5 / 7)[w]
        me, ve = ((-3.9, -3.2), (-0.4, -0.5))[f][w], (2e-5, 1e-4)[f]
        md, vd = ((6.5, 6.0), (7.5, 7.0))[b][w] + me, ((0.03, 0.04), (0.1, 0.1))[b][w]
        mm, vm = (0.5, -0.5)[w], (0.01, 0.005)[w]
        mean = np.array([me, md, (-2.0, -1.0)[b], 3 - md / 2, mm, md + mm])
        by = np.array([[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [-.5, -.5, 0, 1, 0, 0],
                       [0, 0, 0, 0, 1, 0], [1, 1, 0, 0, 1, 1]], float)
        return p, mean, by @ np.diag([ve, vd, (0.1, 0.3)[b], 0.25, vm, 0.002]) @ by.T

    def truth(seen, kind=None):
        at = list(seen)
        logs, dust, states = [], [], list(itertools.product((0, 1), repeat=3))
        for state in states:
            p, mean, cov = normal(*state)
            own = cov[np.ix_(at, at)]
            away = np.array(list(seen.values())) - mean[at]
            logs.append(np.log(p * (kind is None or state[2] == kind) + 1e-300)
                        + (st.multivariate_normal(np.zeros(len(at)), own).logpdf(away) if at else 0.0))
            dust.append(mean[1] + (cov[1, at] @ np.linalg.solve(own, away) if at else 0.0))
        w = np.exp(np.array(logs) - max(logs))
        return np.logaddexp.reduce(logs), w / w.sum(), np.array(states), np.array(dust)

    fit = waste().at({}, labels={"burning": ["stable", "unstable"], "filter": ["intact", "defect"],
                                 "waste": ["industrial", "household"]})
    log, w, states, dust = truth({3: 1.1, 2: -0.9}, kind=0)
    row = {"waste": ["industrial"], "light": [1.1], "co2": [-0.9]}
    close(fit.predict_proba(row, "burning")[0, 0], w[states[:, 0] == 0].sum(), "stable")
    close(fit.predict_proba(row, "filter")[0, 0], w[states[:, 1] == 0].sum(), "intact")
    close(w[states[:, 0] == 0].sum(), 0.0122, "as Lauritzen prints it", atol=2e-4)
    close(fit.predict(row, "dust"), [w @ dust], "dust")
    close(fit.log_prob(row), [log], "log_prob")
    close(fit.joint(row, ["burning", "filter"])[0].ravel(), [w[(states[:, 0] == a) & (states[:, 1] == b)].sum()
                                                            for a in (0, 1) for b in (0, 1)], "joint")
    log, w, states, dust = truth({5: 4.0})
    close(fit.predict_proba({"emission": [4.0]}, "waste")[0], [w[states[:, 2] == k].sum() for k in (0, 1)], "waste")
    log, w, states, dust = truth({})
    close(fit.predict({"co2": [np.nan]}, "dust"), [w @ dust], "dust before")
    sure = fit.do({"dust": 3.0})
    close(sure.predict({"co2": [np.nan]}, "light"), [1.5], "light after do")
    close(sure.predict_proba({"co2": [np.nan]}, "filter")[0], [0.95, 0.05], "filter after do")
    made = fit.simulate(4000, seed=1)
    close(np.mean(made["filter"] == "defect"), 0.05, "made", atol=0.015)


@case("factorial HMM: two chains × Student's t × missing steps × joint decode × forecast")
def factorial_student():
    @probml.model
    def factorial():
        a = sample("a", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
        b = sample("b", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
        stay = sample("stay", dist.Beta(8.0, 2.0))
        s = sample("s", dist.HalfNormal(1.0))
        two = jnp.stack([jnp.stack([stay, 1 - stay]), jnp.stack([1 - stay, stay])])
        three = jnp.array([[0.6, 0.3, 0.1], [0.2, 0.6, 0.2], [0.0, 0.3, 0.7]])
        with probml.rows():
            slow = sample("slow", probml.MarkovChain(jnp.array([0.5, 0.5]), two))
            fast = sample("fast", probml.MarkovChain(jnp.array([0.2, 0.5, 0.3]), three))
            sample("y", dist.StudentT(4.0, a[slow] + b[fast], s).to_event(1))

    a, b = np.array([0.0, 4.0]), np.array([-1.0, 0.0, 1.5])
    fit = factorial().at({"a": a, "b": b, "stay": 0.9, "s": 0.5})
    y = np.array([[0.1, -0.8, np.nan, 3.2, 4.1], [5.2, np.nan, np.nan, 0.0, 9.0], [np.nan] * 5])
    move = np.kron([[0.9, 0.1], [0.1, 0.9]], [[0.6, 0.3, 0.1], [0.2, 0.6, 0.2], [0.0, 0.3, 0.7]])
    start, level = np.kron([0.5, 0.5], [0.2, 0.5, 0.3]), (a[:, None] + b).ravel()
    with np.errstate(divide="ignore"):
        move_log = np.log(move)
    every = np.array(list(itertools.product(range(6), repeat=5)))
    prior = np.log(start)[every[:, 0]] + sum(move_log[every[:, t], every[:, t + 1]] for t in range(4))
    logs, slow, fast, ahead, best = [], [], [], [], []
    for row in y:
        own = np.where(np.isnan(row)[:, None], 0.0, st.t(4, level, 0.5).logpdf(np.nan_to_num(row)[:, None]))
        log = prior + own[np.arange(5), every].sum(1)
        w = np.exp(log - log.max())
        logs.append(np.log(w.sum()) + log.max())
        gamma = np.array([[w[every[:, t] == k].sum() for k in range(6)] for t in range(5)]) / w.sum()
        slow.append(gamma.reshape(5, 2, 3).sum(2))
        fast.append(gamma.reshape(5, 2, 3).sum(1))
        ahead.append([gamma[4] @ move @ level, gamma[4] @ move @ move @ level])
        best.append(every[log.argmax()])
    close(fit.log_prob({"y": y}), logs, "log_prob")
    close(fit.predict_proba({"y": y}, "slow"), slow, "slow")
    close(fit.predict_proba({"y": y}, "fast"), fast, "fast")
    got = fit.decode({"y": y[:2]})
    assert (np.asarray(got["slow"]) * 3 + got["fast"] == np.array(best[:2])).all(), (got, best)
    close(fit.forecast({"y": y}, steps=2)["y"], ahead, "forecast")
    filled = np.asarray(fit.impute({"y": y})["y"])
    close(filled[1, 1:3], [(np.kron(s, np.ones(3)) * level).sum() * 0 + s @ a + f @ b
                           for s, f in zip(slow[1][1:3], fast[1][1:3], strict=True)], "imputed")


@program("semi-Markov: regimes of three stages each × Poisson × sequences of several lengths × missing counts")
def stages_of_sleep():
    r = rng(6)
    leave, rate = np.array([0.3, 0.6]), np.array([2.0, 9.0])
    sequences, lengths = [], (24, 17, 30, 9, 21, 1)
    for length in lengths:
        z, out = 3 * r.integers(0, 2), []
        for _ in range(length):
            out.append(float(r.poisson(rate[z // 3])))
            if r.random() < leave[z // 3]:
                z = (z + 1) % 6
        out = np.array(out)
        out[r.random(length) < 0.1] = np.nan
        sequences.append(out)

    def parameters():
        return sample("leave", dist.Beta(2.0, 2.0).expand([2]).to_event(1)), sample(
            "rate", dist.Gamma(jnp.array([2.0, 10.0]), 1.0).to_event(1))

    def table(leave):
        p = jnp.repeat(leave, 3)
        return jnp.diag(1 - p) + p[:, None] * jnp.roll(jnp.eye(6), 1, axis=1)

    start = jnp.array([0.5, 0, 0, 0.5, 0, 0])

    @probml.model
    def stages():
        leave, rate = parameters()
        with probml.rows():
            z = sample("z", probml.MarkovChain(start, table(leave)))
            sample("y", dist.Poisson(rate[z // 3]).to_event(1))

    def plain():
        leave, rate = parameters()
        move, level = table(leave), jnp.repeat(rate, 3)

        def forward(alpha, y):
            own = jnp.where(jnp.isnan(y), 1.0, jnp.exp(dist.Poisson(level).log_prob(jnp.nan_to_num(y))))
            p = alpha * own
            return (p / p.sum()) @ move, (jnp.log(p.sum()), p / p.sum())

        ends = []
        for k, y in enumerate(sequences):
            alpha, (log, gamma) = jax.lax.scan(forward, start, jnp.asarray(y))
            factor(f"y{k}", log.sum())
            # an answer takes a row as a new one, by the density of which it weighs the parameters
            density = jnp.exp(log.sum() + 2.4 * len(y))
            ends.append((density * gamma[-1], density, density * alpha @ level))
        deterministic("last", jnp.stack([e[0] for e in ends]))
        deterministic("density", jnp.stack([e[1] for e in ends]))
        deterministic("ahead", jnp.stack([e[2] for e in ends]))

    def ask(fit, data):
        made = fit.simulate(2, steps=7, seed=1)
        finite(made["y"], (2, 7), "simulate")
        assert len(fit.decode(data)["z"]) == 6

    def last(fit):
        p = fit.predict_proba({"y": sequences}, "z")
        ends = [np.asarray(q)[len(y) - 1] for q, y in zip(p, sequences, strict=True)]
        return density(fit)[:, None] * np.array(ends)

    def ahead(fit):
        return density(fit) * [np.ravel(v)[0] for v in fit.forecast({"y": sequences})["y"]]

    def density(fit):
        return np.exp(np.asarray(fit.log_prob({"y": sequences}), float) + 2.4 * np.array(lengths))

    answers = {"last": last, "ahead": ahead, "density": density}
    return Program(stages(), {"y": sequences}, plain, {}, None, ask, answers=answers)


FAR = np.array([-38.0, -38.0, -38.0, -27.0])  # about the log densities of sequences


@program("symbols of text along sequences × Dirichlet emissions that tell the states apart × missing symbols")
def islands_of_bases():
    r = rng(7)
    rows, steps = 7, 30
    emit = np.array([[0.35, 0.15, 0.15, 0.35], [0.1, 0.4, 0.4, 0.1]])
    x = np.zeros((rows, steps), int)
    for i in range(rows):
        z = r.integers(0, 2)
        for t in range(steps):
            x[i, t] = r.choice(4, p=emit[z])
            z = z if r.random() < 0.85 else 1 - z
    letters = np.array(list("ACGT"))[x].astype(object)
    letters[r.random(x.shape) < 0.07] = None
    letters[3, 20:] = None

    def parameters():
        emit = sample("emit", dist.Dirichlet(jnp.array([[8.0, 3, 3, 8], [3, 8, 8, 3]])).to_event(1))
        return emit, sample("move", dist.Dirichlet(jnp.array([[8.0, 2.0], [2.0, 8.0]])).to_event(1))

    @probml.model
    def bases():
        with plate("states", 2):
            emit = sample("emit", dist.Dirichlet(jnp.array([[8.0, 3, 3, 8], [3, 8, 8, 3]])))
            move = sample("move", dist.Dirichlet(jnp.array([[8.0, 2.0], [2.0, 8.0]])))
        with probml.rows():
            z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]), move))
            sample("x", dist.Categorical(emit[z]).to_event(1))

    there = np.array([[v is not None for v in row] for row in letters])

    def plain():
        emit, move = parameters()
        own = jnp.where(there[:, :, None], emit[:, x].transpose(1, 2, 0), 1.0)

        def total(log_own):
            def step(alpha, at):
                p = alpha * jnp.exp(at)
                return (p / p.sum(1, keepdims=True)) @ move, jnp.log(p.sum(1))

            start = jnp.full((len(log_own), 2), 0.5)
            return jax.lax.scan(step, start, jnp.swapaxes(log_own, 0, 1))[1].sum()

        factor("x", total(jnp.log(own)))
        gamma = jax.grad(total)(jnp.log(own))
        alone = jax.vmap(lambda row: total(row[None]))(jnp.log(own)[:4])
        # an answer takes a row as a new one, by the density of which it weighs the parameters
        density = jnp.exp(alone - FAR)[:, None, None]
        deterministic("states", (density * gamma[:4])[:2, ::6])
        deterministic("symbol", (density * (gamma[:4] @ emit))[3, 20:23])

    def ask(fit, data):
        assert set(fit.decode({"x": letters})["x"].ravel()) <= set("ACGT")
        filled = fit.impute({"x": letters})["x"]
        assert (filled[there] == letters[there]).all()

    def jointly(fit, site):
        density = np.exp(np.asarray(fit.log_prob({"x": letters[:4]}), float) - FAR)
        return density[:, None, None] * np.asarray(fit.predict_proba({"x": letters[:4]}, site))

    answers = {"states": lambda fit: jointly(fit, "z")[:2, ::6], "symbol": lambda fit: jointly(fit, "x")[3, 20:23]}
    return Program(bases(), {"x": letters}, plain, {}, None, ask, answers=answers)


@program("autoregressive HMM by scan with its observation in the carry × states and next value")
def switching_autoregression():
    r = rng(8)
    n, z, y = 110, 0, [0.0]
    for _ in range(n):
        z = z if r.random() < 0.92 else 1 - z
        y.append((0.5, 0.0)[z] + (0.9, -0.3)[z] * y[-1] + (0.3, 0.8)[z] * r.normal())
    y = np.array(y, np.float32)

    def parameters():
        a = sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        phi = sample("phi", dist.Normal(jnp.array([0.8, -0.2]), 0.3).to_event(1))
        s = sample("s", dist.LogNormal(jnp.array([-1.0, 0.0]), 0.5).to_event(1))
        return a, phi, s, sample("stay", dist.Beta(9.0, 1.5).expand([2]).to_event(1))

    def series(y):
        a, phi, s, stay = parameters()
        move = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])

        def step(carry, now):
            z, before = carry
            z = sample("z", dist.Categorical(move[z]), infer={"enumerate": "parallel"})
            sample("y", dist.Normal(a[z] + phi[z] * before, s[z]), obs=now)
            return (z, now), None

        scan(step, (0, y[0]), y[1:])

    def plain():
        a, phi, s, stay = parameters()
        move = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])
        own = dist.Normal(a + phi * y[:-1, None], s).log_prob(jnp.asarray(y[1:, None]))

        def total(own):
            def step(alpha, at):
                p = (alpha @ move) * jnp.exp(at)
                return p / p.sum(), jnp.log(p.sum())

            return jax.lax.scan(step, jnp.array([1.0, 0.0]), own)[1].sum()

        factor("y", total(own))
        deterministic("states", jax.grad(total)(own)[::10])

    def ask(fit, data):
        assert np.asarray(fit.decode(data)["z"]).ravel().shape == (n,)
        assert len(fit.summary()) == 8

    answers = {"states": lambda fit: np.asarray(fit.predict_proba({"y": y}, "z")).reshape(n, 2)[::10]}
    return Program(probml.model(series)(), {"y": y}, plain, {}, None, ask, answers=answers)


@case("naive Bayes of mixed columns: more columns than rows × a constant one × text, counts, flags, numbers × update")
def naive_bayes_of_mixed_columns():
    @probml.model
    def mixed(d: int):
        share = sample("share", dist.Dirichlet(jnp.ones(2)))
        with plate("class", 2):
            mean = sample("mean", dist.Normal(0.0, 2.0).expand([d]).to_event(1))
            rate = sample("rate", dist.Gamma(2.0, 1.0))
            flag = sample("flag", dist.Beta(1.0, 1.0))
            colour = sample("colour_of", dist.Dirichlet(jnp.ones(3)))
        with probml.rows():
            c = sample("c", dist.Categorical(share))
            sample("x", dist.Normal(mean[c], 1.0).to_event(1))
            sample("count", dist.Poisson(rate[c]))
            sample("ill", dist.Bernoulli(flag[c]))
            sample("colour", dist.Categorical(colour[c]))

    r = rng(9)
    n, d = 7, 9
    c = np.array([0, 1, 0, 1, 1, 0, 1])
    x = r.normal(size=(n, d)) + c[:, None]
    x[:, 4] = 1.0
    x[2, :3], x[6] = np.nan, np.nan
    count = np.array([1, 5, 0, 4, np.nan, 2, 7])
    ill = np.array([True, False, None, False, True, True, False], object)
    colour = np.array(["red", "blue", "green", None, "blue", "red", "blue"], object)
    colours = ["blue", "green", "red"]
    data = {"c": np.array(["healthy", "sick"])[c], "x": x, "count": pd.array(pd.array(count), "Int64"),
            "ill": ill, "colour": colour}
    new = {"x": r.normal(size=(3, d)), "count": np.array([3, np.nan, 0]), "ill": np.array([None, True, False], object),
           "colour": np.array(["green", None, "red"], object)}
    new["x"][1, 2] = np.nan

    def densities(row):
        """log p(class, row), all parameters integrated out."""
        out = []
        for k in range(2):
            mine = c == k
            log = np.log((1 + mine.sum()) / (2 + n))
            for j in range(d):
                own = x[mine, j][~np.isnan(x[mine, j])]
                v = 1 / (1 / 4 + len(own))
                if not np.isnan(new["x"][row, j]):
                    log += st.norm(v * own.sum(), np.sqrt(1 + v)).logpdf(new["x"][row, j])
            own = count[mine][~np.isnan(count[mine])]
            a, b = 2 + own.sum(), 1.0 + len(own)
            if not np.isnan(new["count"][row]):
                log += st.nbinom(a, b / (b + 1)).logpmf(new["count"][row])
            yes, no = sum(v is True for v in ill[mine]), sum(v is False for v in ill[mine])
            if new["ill"][row] is not None:
                log += np.log((1 + (yes if new["ill"][row] else no)) / (2 + yes + no))
            seen = [v for v in colour[mine] if v is not None]
            if new["colour"][row] is not None:
                log += np.log((1 + seen.count(new["colour"][row])) / (3 + len(seen)))
            out.append(log)
        return np.array(out)

    fit = mixed(d=d).fit(data)
    assert list(fit.labels("colour")) == colours, fit.labels("colour")
    log = np.array([densities(i) for i in range(3)])
    total = np.logaddexp.reduce(log, 1)
    p = np.exp(log - total[:, None])
    close(fit.predict_proba(new, "c"), p, "classes", atol=0.02)
    close(fit.log_prob(new), total, "log_prob", atol=0.15)
    again = back(fit, fit.model)
    close(again.predict_proba(new, "c"), fit.predict_proba(new, "c"), "loaded", atol=1e-4)
    some = {k: v[:4] for k, v in data.items()}
    rest = {k: v[4:] for k, v in data.items()}
    both = mixed(d=d).fit(some).update(rest)
    close(both.params["mean"], fit.params["mean"], "update", atol=1e-4)
    close(both.params["colour_of"], fit.params["colour_of"], "update of text", atol=1e-4)
    close(both.log_evidence, fit.log_evidence, "evidence", atol=0.02)


@program("mixture of von Mises × degrees that the function turns to radians × enumerate × density of a new angle")
def headings_of_turtles():
    r = rng(10)
    n = 90
    z = r.random(n) < 0.75
    degrees = np.rad2deg(np.where(z, r.vonmises(1.1, 4.0, n), r.vonmises(-2.0, 2.0, n))) % 360

    def parameters():
        w = sample("w", dist.Dirichlet(jnp.array([6.0, 3.0])))
        with plate("k", 2):
            loc = sample("loc", dist.Normal(jnp.array([1.0, -2.0]), 0.4))
            kappa = sample("kappa", dist.Gamma(4.0, 1.0))
        return w, loc, kappa

    def turtles(heading):
        w, loc, kappa = parameters()
        with plate("n", heading.shape[0]):
            z = sample("z", dist.Categorical(w), infer={"enumerate": "parallel"})
            angle = (jnp.deg2rad(heading) + jnp.pi) % (2 * jnp.pi) - jnp.pi
            sample("angle", dist.VonMises(loc[z], kappa[z]), obs=angle)

    def plain():
        w, loc, kappa = parameters()
        angle = (jnp.deg2rad(degrees) + jnp.pi) % (2 * jnp.pi) - jnp.pi
        log = jnp.log(w) + dist.VonMises(loc, kappa).log_prob(angle[:, None])
        factor("angle", jax.nn.logsumexp(log, 1).sum())
        deterministic("class", jax.nn.softmax(log[:8], 1))
        deterministic("density", jnp.exp(jax.nn.logsumexp(log[:8], 1)))

    def ask(fit, data):
        assert (np.asarray(fit.decode(data)["z"]) == ~z).mean() > 0.9

    data = {"heading": degrees}
    answers = {"class": lambda fit: fit.predict_proba(first(data, 8), "z"),
               "density": lambda fit: np.exp(fit.log_prob(first(data, 8)))}
    return Program(probml.model(turtles)(), data, plain, {}, None, ask, answers=answers)


@program("latent classes whose chances a covariate moves × items of a float matrix with NaN × an empty row")
def classes_by_age():
    r = rng(11)
    n = 160
    age = r.integers(18, 80, n)
    z = (r.random(n) < logistic(-0.2 + 0.05 * (age - 45))).astype(int)
    p = np.array([[0.15, 0.2, 0.1, 0.3, 0.25], [0.85, 0.7, 0.8, 0.6, 0.9]])
    y = (r.random((n, 5)) < p[z]).astype(float)
    y[r.random((n, 5)) < 0.08] = np.nan
    y[4] = np.nan

    def parameters():
        g = sample("g", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        return g, sample("p", dist.Beta(jnp.array([[2.0], [5.0]]), jnp.array([[5.0], [2.0]])).expand(
            [2, 5]).to_event(2))

    def classes(age, y=None):
        g, p = parameters()
        with plate("people", age.shape[0]):
            eta = g[0] + g[1] * (age - 45) / 10
            z = sample("z", dist.Bernoulli(logits=eta))
            sample("y", dist.Bernoulli(p[z]).to_event(1), obs=y)

    there = ~np.isnan(y)

    def plain():
        g, p = parameters()
        eta = g[0] + g[1] * (age - 45) / 10
        share = jnp.stack([jax.nn.log_sigmoid(-eta), jax.nn.log_sigmoid(eta)], -1)
        own = dist.Bernoulli(p).log_prob(np.nan_to_num(y)[:, None])
        log = share + jnp.where(there[:, None], own, 0.0).sum(-1)
        factor("y", jax.nn.logsumexp(log, 1).sum())
        deterministic("class", jax.nn.softmax(log[:8], 1)[:, 1])
        deterministic("density", jnp.exp(jax.nn.logsumexp(log[:8], 1)))
        eta = g[0] + g[1] * jnp.array([-2.0, 3.0])
        deterministic("items", jax.nn.sigmoid(eta)[:, None] * (p[1] - p[0]) + p[0])

    def ask(fit, data):
        finite(fit.simulate(age=[20, 60], seed=2)["y"], (2, 5), "simulate")
        one = probml.compare({"classes": fit}, data)
        assert len(one) == 1

    data = {"age": age.astype(np.uint8), "y": y}
    new = {"age": np.array([25, 75], np.uint8)}
    answers = {"class": lambda fit: np.asarray(fit.predict_proba(first(data, 8), "z"))[:, 1],
               "density": lambda fit: np.exp(fit.log_prob(first(data, 8))),
               "items": lambda fit: np.asarray(fit.predict_proba(new, "y"))[..., 1]}
    return Program(probml.model(classes)(), data, plain, {}, None, ask, answers=answers)


@program("Dirichlet process by sticks, five of them × Poisson counts × the tutorial's function × predictive density")
def sunspots_by_sticks():
    r = rng(12)
    n, sticks = 70, 5
    y = np.where(r.random(n) < 0.6, r.poisson(4, n), r.poisson(30, n))

    def mix_weights(beta):
        left = jnp.cumprod(1 - beta)
        return jnp.pad(beta, (0, 1), constant_values=1) * jnp.pad(left, (1, 0), constant_values=1)

    def process(T, data=None):
        alpha = sample("alpha", dist.Gamma(2.0, 2.0))
        with plate("beta_plate", T - 1):
            beta = sample("beta", dist.Beta(1, alpha))
        with plate("lambda_plate", T):
            lmbda = sample("lambda", dist.Gamma(2.0, 0.1))
        with plate("data", data.shape[0]):
            z = sample("z", dist.Categorical(mix_weights(beta)), infer={"enumerate": "parallel"})
            sample("obs", dist.Poisson(lmbda[z]), obs=data)

    def plain():
        alpha = sample("alpha", dist.Gamma(2.0, 2.0))
        beta = sample("b", dist.Beta(jnp.ones(sticks - 1), alpha).to_event(1))
        rate = sample("l", dist.Gamma(2.0, 0.1).expand([sticks]).to_event(1))
        log = jnp.log(mix_weights(beta)) + dist.Poisson(rate).log_prob(jnp.arange(60)[:, None])
        every = jax.nn.logsumexp(log, 1)
        factor("obs", every[y].sum())
        deterministic("density", jnp.exp(every[::6]))

    def ask(fit, data):
        finite(fit.log_prob(data), (n,), "log_prob")

    data = {"data": y.astype(np.float32)}
    return Program(probml.model(process)(T=sticks), data, plain, {}, None, ask, ("alpha",), answers={
        "density": lambda fit: np.exp(fit.log_prob({"data": np.arange(60, dtype=np.float32)[::6]}))})


@case("mixture of factor analysers × fewer rows than columns × missing cells × factors of a row given its class")
def factor_analysers():
    k, d, q = 2, 6, 2

    @probml.model
    def analysers():
        w = sample("w", dist.Dirichlet(jnp.ones(k)))
        with plate("component", k):
            mean = sample("mean", dist.Normal(0.0, 3.0).expand([d]).to_event(1))
            load = sample("load", dist.Normal(0.0, 1.0).expand([d, q]).to_event(2))
        psi = sample("psi", dist.HalfNormal(1.0).expand([d]).to_event(1))
        with probml.rows():
            z = sample("z", dist.Categorical(w))
            f = sample("f", dist.Normal(0.0, 1.0).expand([q]).to_event(1))
            sample("x", dist.Normal(mean[z] + (load[z] @ f[..., None])[..., 0], psi).to_event(1))

    r = rng(13)
    mean, load, psi = r.normal(size=(k, d)), r.normal(size=(k, d, q)), 0.3 + r.random(d)
    w = np.array([0.3, 0.7])
    x = r.normal(size=(4, d)) * 1.5
    x[1, [0, 3]], x[2, :5], x[3] = np.nan, np.nan, np.nan
    logs, filled, factors = np.zeros((4, k)), np.zeros((4, k, d)), np.zeros((4, k, q))
    for i, row in enumerate(x):
        there = ~np.isnan(row)
        for j in range(k):
            cov = load[j] @ load[j].T + np.diag(psi**2)
            own, away = cov[np.ix_(there, there)], row[there] - mean[j, there]
            gain = np.linalg.solve(own, away) if there.any() else np.zeros(0)
            logs[i, j] = np.log(w[j]) + (st.multivariate_normal(np.zeros(len(away)), own).logpdf(away)
                                         if there.any() else 0.0)
            filled[i, j] = mean[j] + cov[:, there] @ gain
            factors[i, j] = load[j][there].T @ gain
    total = np.logaddexp.reduce(logs, 1)
    p = np.exp(logs - total[:, None])
    fit = analysers().at({"w": w, "mean": mean, "load": load, "psi": psi})
    close(fit.log_prob({"x": x}), total, "log_prob")
    close(fit.predict_proba({"x": x}, "z"), p, "classes")
    close(fit.predict({"x": x}, "f"), np.einsum("ij,ijq->iq", p, factors), "factors")
    right = np.where(np.isnan(x), np.einsum("ij,ijd->id", p, filled), x)
    close(fit.impute({"x": x})["x"], right, "imputed")
    made = fit.simulate(given={"x": np.repeat(x[1:2], 3000, 0)}, seed=2)["x"]
    close(np.asarray(made)[:, [0, 3]].mean(0), right[1, [0, 3]], "drawn", atol=0.12)
    own = fit.conditional({"x": x[:2]}, "f")
    close(own.mean, np.einsum("ij,ijq->iq", p, factors)[:2], "conditional")
    assert fit.do({"z": 1}).log_prob({"x": x}).shape == (4,)
    close(fit.do({"z": 1}).log_prob({"x": x}), logs[:, 1] - np.log(w[1]), "do")
