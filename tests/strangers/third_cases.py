"""More cases, written where the first two parts had found something: interventions, factors, pasted functions,
units and codes that do not begin at 0."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import scipy.stats as st
from more_cases import INITIAL, TRANSITION, chain
from numpyro import deterministic, factor, handlers, plate, sample
from oracles_of_strangers import (
    chain_sum,
    close,
    given_others,
    grid_mean,
    mixture_quantile,
    norm,
    normal_mean,
)

import probml
from first_cases import back, case, line_posterior, pasted_kinds, share

# ---- interventions --------------------------------------------------------------------------------


@case("do × continuous parent × latent number, interval")
def do_number():
    @probml.model
    def dose():
        with probml.rows():
            severity = sample("severity", dist.Normal(0.0, 1.0))
            d = sample("dose", dist.Normal(1.5 * severity, 0.5))
            sample("outcome", dist.Normal(-2.0 * severity + 1.0 * d, 0.7))
            sample("sign", dist.Normal(severity, 0.8))

    fit = dose().at({})
    # observed: dose = 2 tells severity; done: only the sign does
    cov = np.outer([1, 1.5, -0.5, 1.0], [1, 1.5, -0.5, 1.0]) + np.diag([0, 0.25, 0.49 + 0.25, 0.64])
    cov[1, 2] += 0.25
    cov[2, 1] += 0.25
    m, v = given_others(np.zeros(4), cov, [np.nan, 2.0, np.nan, 0.4], [2])
    close(fit.predict({"dose": [2.0], "sign": [0.4]}, "outcome"), m, "given the dose")
    sev, var = 0.4 / 0.64 / (1 + 1 / 0.64), 1 / (1 + 1 / 0.64)
    acted = fit.do({"dose": 2.0})
    value, low, high = acted.predict({"sign": [0.4]}, "outcome", interval=0.9)
    close(value, [-2 * sev + 2.0], "after do(dose = 2)")
    close(high - low, [3.29 * np.sqrt(4 * var + 0.49)], "width", atol=0.3)


@case("do × Markov chain, decode")
def do_chain():
    @probml.model
    def treated():
        with probml.rows():
            old = sample("old", dist.Bernoulli(0.5))
            drug = sample("drug", dist.Bernoulli(0.2 + 0.6 * old))
            z = sample("z", chain())
            sample("y", dist.Normal(2.0 * z + 1.0 * drug[..., None] + 0.5 * old[..., None],
                                    1.0).to_event(1))

    fit = treated().at({}).do({"drug": 1})
    y = np.array([[1.2, 3.5, 2.9, 0.8]])
    parts = [chain_sum(norm.logpdf(y[0][:, None], 2.0 * np.arange(2) + 1.0 + 0.5 * old), INITIAL,
                       TRANSITION) for old in range(2)]
    logs = np.array([p[0] for p in parts]) + np.log(0.5)
    p = share(np.exp(logs - logs.max()))
    close(fit.log_prob({"y": y}), [np.logaddexp(*logs)], "log_prob")
    close(fit.predict_proba({"y": y}, "old"), [p], "p(old)")
    close(fit.predict_proba({"y": y}, "z")[0], p[0] * parts[0][1] + p[1] * parts[1][1], "states")


@case("do × vector site, matrix")
def do_vector():
    @probml.model
    def soil():
        with probml.rows():
            wet = sample("wet", dist.Bernoulli(0.3))
            x = sample("x", dist.MultivariateNormal(jnp.array([1.0, -1.0]) * wet[..., None],
                                                    covariance_matrix=jnp.array([[1.0, 0.5], [0.5, 1.0]])))
            sample("crop", dist.Normal(x @ jnp.array([1.0, 2.0]) + wet, 1.0))

    fit = soil().at({})
    acted = fit.do({"x": np.array([0.5, 1.5])})
    data = {"crop": [4.0]}
    like = norm.pdf(4.0, 3.5 + np.arange(2)) * [0.7, 0.3]
    close(acted.predict_proba(data, "wet"), [share(like)], "p(wet)")
    close(acted.log_prob(data), [np.log(like.sum())], "log_prob")
    close(acted.predict({"wet": [1]}, "crop"), [4.5], "crop")


@case("do × text labels × fit × effects")
def do_labels():
    @probml.model
    def ads():
        with plate("ages", 2):
            reach = sample("reach", dist.Beta(1.0, 1.0))
        with plate("seen and age", 4):
            buys = sample("buys", dist.Beta(1.0, 1.0))
        with probml.rows():
            age = sample("age", dist.Bernoulli(0.5))
            seen = sample("seen", dist.Bernoulli(reach[age]))
            sample("bought", dist.Bernoulli(buys[2 * seen + age]))

    rng = np.random.default_rng(9)
    age = rng.integers(0, 2, 80)
    seen = rng.random(80) < np.where(age, 0.8, 0.2)
    bought = rng.random(80) < 0.1 + 0.3 * age + 0.2 * seen
    names = {"age": np.array(["young", "old"])[age], "seen": np.array(["no", "yes"])[seen * 1],
             "bought": np.array(["n", "y"])[bought * 1]}
    fit = ads().fit(names)
    o = (names["age"] == "young") * 1  # sorted: old, young

    def mean(k, n):
        return (1 + k) / (2 + n)

    p = [mean((bought & seen & (o == a)).sum(), (seen & (o == a)).sum()) for a in range(2)]
    got = fit.do({"seen": "yes"}).predict_proba({"age": ["old", None]}, "bought")
    close(got[:, 1], [p[0], (p[0] + p[1]) / 2], "p(bought | do(seen))", atol=0.01)


@case("do × codes that begin at 1")
def do_codes():
    @probml.model
    def dice():
        with probml.rows():
            face = sample("face", dist.DiscreteUniform(1, 3))
            second = sample("second", dist.DiscreteUniform(2, 4))
            sample("y", dist.Normal(1.0 * face * second, 1.0))

    fit = dice().at({})
    y = np.array([8.2, 3.1])
    f, s = np.arange(1, 4)[:, None], np.arange(2, 5)[None]
    joint = norm.pdf(y[:, None, None], f * s) / 9
    close(fit.log_prob({"y": y}), np.log(joint.sum((1, 2))), "log_prob")
    close(fit.joint({"y": y}, ["face", "second"]), joint / joint.sum((1, 2), keepdims=True), "joint")
    best = [np.unravel_index(j.argmax(), (3, 3)) for j in joint]
    found = fit.decode({"y": y})
    close(found["face"], [b[0] + 1 for b in best], "decode")
    close(found["second"], [b[1] + 2 for b in best], "decode")
    acted = fit.do({"face": 3})
    close(acted.predict_proba({"y": y}, "second"), share(norm.pdf(y[:, None], 3 * s)), "do(face = 3)")
    close(acted.predict({"second": [4]}, "y"), [12.0], "predict after do")
    drawn = acted.simulate(5, seed=0)
    close(drawn["face"], np.full(5, 3), "simulate after do")
    close(fit.predict({"face": [2]}, "y"), [6.0], "predict given a code")


@case("do × plate in rows")
def do_plate():
    @probml.model
    def panel():
        with probml.rows():
            z = sample("z", dist.Bernoulli(0.4))
            with plate("waves", 2):
                x = sample("x", dist.Bernoulli(0.2 + 0.5 * z))
                sample("y", dist.Normal(1.0 * x + 2.0 * z, 1.0))

    fit = panel().at({}).do({"x": np.array([1, 0])})
    y = np.array([[1.5, 0.2], [3.3, 2.0]])
    z = np.arange(2)
    like = np.array([0.6, 0.4]) * norm.pdf(y[:, :1], 1 + 2.0 * z) * norm.pdf(y[:, 1:], 2.0 * z)
    close(fit.log_prob({"y": y}), np.log(like.sum(1)), "log_prob")
    close(fit.predict_proba({"y": y}, "z"), share(like), "p(z)")


# ---- factors --------------------------------------------------------------------------------------


@case("factor × Markov chain")
def factor_chain():
    @probml.model
    def calls(boost):
        with probml.rows():
            g = sample("g", dist.Bernoulli(0.5))
            z = sample("z", chain())
            sample("y", dist.Normal(2.0 * z + g[..., None], 1.0).to_event(1))
            factor("boosted", boost * g)

    y, boost = np.array([[0.4, 2.2, 3.0], [1.0, 1.1, 0.2]]), np.array([1.3, -0.5])
    logs = np.array([[chain_sum(norm.logpdf(r[:, None], 2.0 * np.arange(2) + g), INITIAL,
                                TRANSITION)[0] + np.log(0.5) + b * g for g in range(2)]
                     for r, b in zip(y, boost, strict=True)])
    fit = calls().at({})
    close(fit.log_prob({"y": y, "boost": boost}), np.logaddexp.reduce(logs, 1), "log_prob")
    close(fit.predict_proba({"y": y, "boost": boost}, "g"), share(np.exp(logs)), "p(g)")
    drawn = fit.simulate(given={"y": np.repeat(y[:1], 3000, 0), "boost": np.full(3000, 1.3)}, seed=1)
    close(np.mean(drawn["g"]), share(np.exp(logs))[0, 1], "share of g", atol=0.03)


@case("factor × two latent numbers, impute, interval")
def factor_numbers():
    @probml.model
    def ties(c):
        with probml.rows():
            u = sample("u", dist.Normal(0.0, 1.0))
            v = sample("v", dist.Normal(1.0, 1.0))
            factor("tie", -0.5 * c * (u - v) ** 2)
            sample("x", dist.Normal(u, 0.5))
            sample("y", dist.Normal(v, 0.5))

    c, x = 2.0, 1.2
    P = np.array([[1 + c + 4, -c, 0], [-c, 1 + c + 4, -4], [0, -4, 4]])  # u, v, y given x
    h = np.array([4 * x, 1.0, 0.0])
    cov = np.linalg.inv(P)
    m = cov @ h
    fit = ties().at({})
    filled = fit.impute({"c": [c], "x": [x]})
    close([filled["u"][0], filled["v"][0], filled["y"][0]], m, "means", atol=5e-3)
    value, low, high = fit.predict({"c": [c], "x": [x]}, "y", interval=0.9)
    close([low[0], high[0]], m[2] + np.array([-1.645, 1.645]) * np.sqrt(cov[2, 2]), "interval", atol=0.12)


@case("factor × plate in rows, missing cells, weights")
def factor_plate():
    @probml.model
    def boards(lean):
        with probml.rows():
            z = sample("z", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
            with plate("votes", 3):
                sample("v", dist.Bernoulli(0.2 + 0.3 * z))
            factor("leaning", lean * (z == 2))

    v = np.array([[1.0, np.nan, 1.0], [0.0, 0.0, np.nan]])
    lean = np.array([0.8, 2.0])
    z = np.arange(3)
    p = 0.2 + 0.3 * z
    like = np.array([0.5, 0.3, 0.2]) * np.exp(lean[:, None] * (z == 2))
    for i in range(2):
        for k in range(3):
            if not np.isnan(v[i, k]):
                like[i] *= p if v[i, k] else 1 - p
    fit = boards().at({})
    close(fit.log_prob({"v": v, "lean": lean}), np.log(like.sum(1)), "log_prob")
    close(fit.predict_proba({"v": v, "lean": lean}, "z"), share(like), "p(z)")
    close(fit.predict_proba({"v": v, "lean": lean}, "v")[0, 1, 1], share(like)[0] @ p, "missing vote")


@case("factor × label probabilities, compare of none")
def factor_soft():
    @probml.model
    def tagged(c):
        with probml.rows():
            z = sample("z", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
            sample("x", dist.Normal(2.0 * z, 1.0))
            factor("tilt", c * z)

    soft, c, x = np.array([[0.7, 0.2, 0.1]]), np.array([0.6]), np.array([1.5])
    like = norm.pdf(1.5, 2.0 * np.arange(3)) * [0.5, 0.3, 0.2] * soft[0] * np.exp(0.6 * np.arange(3))
    fit = tagged().at({})
    close(fit.log_prob({"c": c, "x": x, "z": soft}), [np.log(like.sum())], "log_prob")
    close(fit.predict_proba({"c": c, "x": x, "z": soft}, "z"), [share(like)], "p(z)")
    w = np.array([0.5, 0.3, 0.2]) * soft[0] * np.exp(0.6 * np.arange(3))
    close(fit.predict({"c": c, "z": soft}, "x"), [share(w) @ [0.0, 2.0, 4.0]], "E x")


@case("factor × weights × MAP")
def factor_weights():
    @probml.model
    def scored(x):
        b = sample("b", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("y", dist.Normal(b, 1.0))
            factor("penalty", -0.5 * (b - x) ** 2)

    x, y, w = np.array([1.0, 2.0, -1.0]), np.array([0.5, 1.5, 0.0]), np.array([1.0, 2.0, 0.0])
    fit = scored().fit({"x": x, "y": y}, probml.MAP(), weights=w)
    close(fit.params["b"], (w @ (x + y)) / (1 + 2 * w.sum()), "mode: a weight counts the factor as well")


@case("factor × effect of a group × new groups")
def factor_groups():
    @probml.model
    def stores(store, open_):
        with plate("stores", 2):
            a = sample("a", dist.Normal(0.0, 1.0))
        with probml.rows():
            z = sample("z", dist.Bernoulli(logits=a[store]))
            factor("open", jnp.where(open_ == 1, 0.0, -2.0) * z)
            sample("y", dist.Normal(3.0 * z, 1.0))

    fit = stores().at({"a": np.array([0.4, -1.0])}, labels={"store": ("east", "west")})
    y, open_ = np.array([1.6, 1.6, 1.6]), np.array([1, 0, 0])
    a = np.array([-1.0, 0.4, 0.0])
    p = 1 / (1 + np.exp(-a))
    like = np.stack([(1 - p) * norm.pdf(y), p * norm.pdf(y, 3) * np.exp(-2.0 * (open_ == 0))], 1)
    got = fit.predict_proba({"store": ["west", "east", "north"], "open_": open_, "y": y}, "z",
                            unknown="new")
    close(got, share(like), "p(z)")
    first = {"store": ["west", "east"], "open_": open_[:2]}
    w = np.stack([1 - p, p * np.exp(-2.0 * (open_ == 0))], 1)
    close(fit.predict(first, "y"), (3 * share(w)[:, 1])[:2], "E y")


@case("factor that reads a missing number × mixture")
def factor_missing():
    @probml.model
    def quality():
        with probml.rows():
            z = sample("z", dist.Bernoulli(0.4))
            x = sample("x", dist.Normal(2.0 * z, 1.0))
            factor("smooth", -0.5 * (x - 1.0) ** 2)

    fit = quality().at({})
    x = np.array([0.7, np.nan])
    own = np.array([0.6, 0.4]) * norm.pdf(0.7, [0.0, 2.0]) * np.exp(-0.5 * 0.09)
    # ∫ N(x; m, 1) exp(−(x − 1)²/2) dx = N(1; m, 2) √(2π)
    other = np.array([0.6, 0.4]) * norm.pdf(1.0, [0.0, 2.0], np.sqrt(2)) * np.sqrt(2 * np.pi)
    close(fit.log_prob({"x": x}), np.log([own.sum(), other.sum()]), "log_prob")
    close(fit.predict_proba({"x": x}, "z"), share(np.stack([own, other])), "p(z)")
    close(fit.impute({"x": x})["x"][1], share(other) @ np.array([0.5, 1.5]), "E x", atol=0.01)


# ---- pasted functions -----------------------------------------------------------------------------


@case("pasted function × mask")
def pasted_mask():
    def survey(x, asked, y=None):
        b = sample("b", dist.Normal(0.0, 2.0))
        with plate("people", len(x)):
            with handlers.mask(mask=asked):
                sample("y", dist.Normal(b * x, 1.0), obs=y)

    x, asked = np.array([1.0, 2.0, 0.5, -1.0]), np.array([1, 0, 1, 1], bool)
    y = np.array([1.3, 50.0, 0.2, -2.0])
    fit = probml.model(survey)().fit({"x": x, "asked": asked, "y": y})
    v = 1 / (0.25 + (x[asked] ** 2).sum())
    m = v * (x[asked] * y[asked]).sum()
    close(fit.params["b"], m, "posterior mean", atol=0.04)
    close(fit.log_prob({"x": [2.0], "asked": [False], "y": [9.0]}), [0.0], "a row not asked")
    close(fit.log_prob({"x": [2.0], "asked": [True], "y": [2.0]}), [norm.logpdf(
        2.0, 2 * m, np.sqrt(1 + 4 * v))], "a row that is asked", atol=0.03)


@case("pasted function × deterministic × predict")
def pasted_deterministic():
    def growth(t, y=None):
        a = sample("a", dist.Normal(0.0, 5.0))
        b = sample("b", dist.Normal(0.0, 5.0))
        mu = deterministic("mu", a + b * t)
        with plate("obs", len(t)):
            sample("y", dist.Normal(mu, 2.0), obs=y)

    t = np.linspace(-1, 2, 8)
    y = 1 + 3 * t + np.array([0.4, -1.0, 0.8, 1.9, -2.2, 0.3, 0.9, -1.5])
    fit = probml.model(growth)().fit({"t": t, "y": y})
    m, _ = line_posterior(t, y, prior=5.0)
    found = np.asarray(fit.predict({"t": [0.0, 5.0]}, "y"))
    close(found, [m[0], m[0] + 5 * m[1]], "predict", atol=0.2)
    close(np.asarray(fit.predict({"t": [0.0, 5.0]}, "mu")), found, "deterministic", atol=0.2)


@case("pasted function × missing cells at fit × text index")
def pasted_missing():
    def plots(site, n_sites, ph, y=None):
        with plate("sites", n_sites):
            a = sample("a", dist.Normal(0.0, 2.0))
        with plate("plots", len(site)):
            sample("y", dist.Normal(a[site] + ph, 1.0), obs=y)

    site = np.array(["moor", "fen", "moor", "fen", "bog", "bog"])
    ph = np.array([0.1, -0.2, 0.4, 0.0, 1.0, -1.0])
    y = np.array([1.0, np.nan, 2.0, -1.0, 0.5, np.nan])
    fit = probml.model(plots)(n_sites=3).fit({"site": site, "ph": ph, "y": y})
    names = ["bog", "fen", "moor"]
    m = []
    for name in names:
        at = (site == name) & ~np.isnan(y)
        m.append((y[at] - ph[at]).sum() / (0.25 + at.sum()))
    close(fit.params["a"], m, "posterior means", atol=0.1)
    close(fit.predict({"site": ["moor", "bog"], "ph": [0.0, 1.0]}, "y"), [m[2], m[0] + 1], "predict",
          atol=0.1)


@case("pasted function × mixture × interval, simulate")
def pasted_mixture():
    fit = probml.model(pasted_kinds)().at({})
    x = np.array([0.5])
    pz = share([0.7 * norm.pdf(0.5), 0.3 * norm.pdf(0.5, 2.0)])
    pw = pz @ np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    value, low, high = fit.predict({"x": x, "y": [np.nan]}, "ys", interval=0.9)
    close(value, [pw @ np.arange(3)], "mean")
    cdfs = [norm(m, 1).cdf for m in range(3)]
    close(high, [mixture_quantile(0.95, pw, cdfs, -5, 9)], "upper", atol=0.15)
    drawn = fit.simulate(4000, seed=1)
    close(np.mean(drawn["ys"]), np.array([0.7, 0.3]) @ np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
          @ np.arange(3), "mean of simulated rows", atol=0.06)


@case("pasted function × two observed sites × one missing at the question")
def pasted_two():
    def tests(load, a=None, b=None):
        s = sample("s", dist.Normal(0.0, 1.0))
        with plate("people", len(load)):
            x = sample("x", dist.Normal(s * load, 1.0), obs=a)
            sample("yes", dist.Bernoulli(logits=x), obs=b)

    load = np.array([1.0, -1.0, 2.0, 0.5])
    a, b = np.array([1.2, -0.4, 2.5, 0.0]), np.array([1, 0, 1, 1])
    fit = probml.model(tests)().fit({"load": load, "a": a, "b": b})
    v = 1 / (1 + (load**2).sum())
    m = v * (load * a).sum()
    close(fit.params["s"], m, "posterior mean", atol=0.05)
    got = fit.predict_proba({"load": [2.0], "a": [np.nan]}, "yes")[:, 1]
    right = normal_mean(lambda x: 1 / (1 + np.exp(-x)), 2 * m, np.sqrt(1 + 4 * v))
    close(got, [right], "p(yes | load)", atol=0.02)


@case("pasted NumPyro HMM of its tutorial × predict")
def pasted_hmm():
    from numpyro.contrib.control_flow import scan

    def hmm(ys, n):
        with plate("states", 2):
            mean = sample("mean", dist.Normal(jnp.array([0.0, 3.0]), 0.1))

        def step(before, y):
            with plate("series", n, dim=-1):
                z = sample("z", dist.Categorical(jnp.array(TRANSITION)[before]))
                sample("y", dist.Normal(mean[z], 1.0), obs=y)
            return z, None

        scan(step, jnp.zeros(n, int), ys)

    ys = np.array([[0.2, 2.0], [2.5, 2.8], [3.0, 0.4], [0.1, 0.2]])
    model = probml.model(hmm)(n=2)
    fit = model.fit({"ys": ys}, probml.MAP())
    mean = np.asarray(fit.params["mean"])
    got = np.asarray(fit.predict_proba({"ys": ys}, "z", plug_in=True))
    right = np.stack([chain_sum(norm.logpdf(ys[:, i][:, None], mean), TRANSITION[0], TRANSITION)[1]
                      for i in range(2)], 1)
    close(got, right, "smoothing of two series")


# ---- units, codes, float32 ------------------------------------------------------------------------


@case("float32 × inputs that are seconds since 1970")
def seconds():
    @probml.model
    def drift(when):
        a = sample("a", dist.Normal(0.0, 100.0))
        b = sample("b", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("y", dist.Normal(a + b * (when - 1.7e9) / 3600.0, 1.0))

    hours = np.arange(24.0)
    y = 20 + 0.5 * hours + np.random.default_rng(2).normal(size=24)
    with jax.enable_x64(False):
        fit = drift().fit({"when": 1.7e9 + 3600 * hours, "y": y})
        got = fit.predict({"when": [1.7e9 + 3600 * 30]}, "y")
        log = fit.log_prob({"when": [1.7e9 + 3600 * 5], "y": [22.0]})
    H = np.stack([np.ones(24), hours], 1)
    cov = np.linalg.inv(H.T @ H + np.diag([1e-4, 1.0]))
    m = cov @ H.T @ y
    close(got, [m @ [1, 30]], "predicted", atol=0.15)
    h = np.array([1, 5.0])
    close(log, [norm.logpdf(22.0, h @ m, np.sqrt(1 + h @ cov @ h))], "log_prob", atol=0.05)


@case("float32 × mixture far from zero, conditional of missing cells")
def far_mixture():
    @probml.model
    def weights():
        with probml.rows():
            z = sample("z", dist.Bernoulli(0.4))
            sample("x", dist.MultivariateNormal(
                jnp.array([[50000.0, 30000.0], [50004.0, 30003.0]])[z],
                covariance_matrix=jnp.array([[1.0, 0.6], [0.6, 2.0]])))

    x = np.array([[50001.5, np.nan], [50002.2, 30001.0]])
    mean = np.array([[50000.0, 30000.0], [50004.0, 30003.0]])
    like = np.array([[0.6, 0.4]]) * np.array([
        norm.pdf(50001.5, mean[:, 0], 1.0),
        [st.multivariate_normal.pdf(x[1], m, [[1, 0.6], [0.6, 2]]) for m in mean]])
    with jax.enable_x64(False):
        fit = weights().at({})
        got, log = fit.predict_proba({"x": x}, "z"), fit.log_prob({"x": x})
        filled = fit.impute({"x": x})["x"]
    close(got, share(like), "p(z)", atol=0.01)
    close(log, np.log(like.sum(1)), "log_prob", atol=0.02)
    other = share(like)[0] @ (mean[:, 1] + 0.6 * (50001.5 - mean[:, 0]))
    close(filled[0, 1] - 30000, other - 30000, "impute", atol=0.02)


@case("codes from 1 × effects of text groups × label probabilities")
def codes():
    @probml.model
    def stars(shop):
        with plate("shops", 2):
            a = sample("a", dist.Normal(0.0, 1.0))
        with probml.rows():
            n = sample("stars", dist.DiscreteUniform(1, 5))
            sample("y", dist.Normal(a[shop] + 1.0 * n, 1.0))

    fit = stars().at({"a": np.array([1.0, -1.0])}, labels={"shop": ("p", "q")})
    y = np.array([3.2, 2.5])
    n = np.arange(1, 6)
    p = share(norm.pdf(y[:, None], np.array([-1.0, 1.0])[:, None] + n))
    data = {"shop": ["q", "p"], "y": y}
    close(fit.predict_proba(data, "stars"), p, "p(stars)")
    close(fit.predict(data, "stars"), n[p.argmax(1)], "most probable")
    close(fit.predict({"shop": ["q"], "stars": [4]}, "y"), [3.0], "predict given a code")
    close(np.unique(fit.simulate(shop=np.repeat("p", 300))["stars"]), n, "simulated codes")
    act = fit.decide(data, "stars", loss=np.abs(n[:, None] - n))
    cost = p @ np.abs(n[:, None] - n)
    close(act, n[cost.argmin(1)] if np.max(np.asarray(act, float)) > 0 else act, "decide: codes as labels")


@case("counts of ten millions × float32 × log_prob, interval")
def many_counts():
    @probml.model
    def census(area):
        with probml.rows():
            sample("n", dist.Poisson(1e6 * area))

    area, n = np.array([1.0, 20.0]), np.array([1000500, 19995000])
    with jax.enable_x64(False):
        fit = census().at({})
        log = fit.log_prob({"area": area, "n": n})
        value, low, high = fit.predict({"area": area}, "n", interval=0.9)
    close(log, st.poisson.logpmf(n, 1e6 * area), "log_prob", atol=0.02)
    close((high - low) / np.sqrt(1e6 * area), [3.29, 3.29], "width", atol=0.3)


@case("NUTS × elpd_loo of compare, exact leave-one-out")
def loo():
    @probml.model
    def mean():
        mu = sample("mu", dist.Normal(0.0, 3.0))
        with probml.rows():
            sample("y", dist.Normal(mu, 1.0))

    y = np.array([0.5, 1.4, 2.2, 0.1, 1.9, 1.0, 0.4, 1.6])
    fit = mean().fit({"y": y}, probml.NUTS(draws=1000, warmup=300, chains=2, progress=False))
    table = probml.compare({"it": fit}, {"y": y})
    right = 0.0
    for i in range(8):
        rest = np.delete(y, i)
        v = 1 / (1 / 9 + 7)
        right += norm.logpdf(y[i], v * rest.sum(), np.sqrt(1 + v))
    close(table.loc["it", "elpd_loo"], right, "elpd_loo", atol=0.08)


@case("Dirichlet × counts × weights × missing words, predictive")
def words():
    @probml.model
    def docs():
        with plate("kinds", 2):
            p = sample("p", dist.Dirichlet(jnp.array([1.0, 2.0, 0.5])))
        with probml.rows():
            kind = sample("kind", dist.Bernoulli(0.5))
            sample("word", dist.Categorical(p[kind]))

    kind, word = np.array([0, 0, 1, 1, 1]), np.array([0, 2, 1, 1, 0])
    w = np.array([1.0, 2.0, 1.0, 0.5, 3.0])
    fit = docs().fit({"kind": kind, "word": word}, weights=w)
    a = np.array([1.0, 2.0, 0.5])
    n = np.stack([[w[(kind == k) & (word == j)].sum() for j in range(3)] for k in range(2)])
    post = share(a + n)
    close(fit.predict_proba({"kind": [0, 1]}, "word"), post, "predictive of words")
    close(fit.predict_proba({"word": [0, 1, 2]}, "kind"), share(post.T), "p(kind | word)")
    close(fit.log_prob({"word": [1]}), [np.log(post[:, 1].mean())], "log_prob")


@case("pandas table with missing labels × semi-supervised × predict of rows in another order")
def semi():
    @probml.model
    def types():
        with probml.rows():
            kind = sample("kind", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
            sample("size", dist.Normal(jnp.array([0.0, 2.0, 4.0])[kind], 1.0))
            sample("soft", dist.Bernoulli(jnp.array([0.9, 0.5, 0.1])[kind]))

    frame = pd.DataFrame({"size": [1.0, np.nan, 3.2], "soft": ["yes", "no", None],
                          "kind": pd.Categorical([None, "b", None], categories=["a", "b", "c"])},
                         index=[7, 3, 5])
    fit = types().at({}, labels={"kind": ("a", "b", "c"), "soft": ("no", "yes")})
    like = np.array([0.2, 0.5, 0.3]) * norm.pdf(1.0, [0, 2, 4]) * [0.9, 0.5, 0.1]
    late = np.array([0.2, 0.5, 0.3]) * norm.pdf(3.2, [0, 2, 4])
    close(fit.predict_proba(frame, "kind"), share(np.stack([like, [0, 1, 0], late])), "p(kind)")
    filled = fit.impute(frame)
    assert list(filled.index) == [7, 3, 5]
    close(filled["size"], [1.0, 2.0, 3.2], "impute")
    p = share(late) @ [0.9, 0.5, 0.1]
    assert list(filled["soft"]) == ["yes", "no", "yes" if p > 0.5 else "no"]
    close(fit.log_prob(frame), np.log([like.sum(), 0.25, late.sum()]), "log_prob")


@case("latent number × effect of a group × text × save × predict_proba")
def latent_groups():
    @probml.model
    def exam(school):
        with plate("schools", 2):
            a = sample("a", dist.Normal(0.0, 1.0))
        with probml.rows():
            u = sample("u", dist.Normal(a[school], 0.8))
            sample("one", dist.Bernoulli(logits=2.0 * u))
            sample("two", dist.Bernoulli(logits=u - 0.5))

    model = exam()
    fit = back(model.at({"a": np.array([1.0, -1.0])}, labels={"school": ("p", "q")}), model)
    data = {"school": ["q", "p"], "one": [1, 0]}
    right, logs = [], []
    for m, one in ((-1.0, 1), (1.0, 0)):
        def like(u, one=one):
            p = 1 / (1 + np.exp(-2 * u))
            return p if one else 1 - p

        total = normal_mean(like, m, 0.8)
        right.append(normal_mean(lambda u, f=like: f(u) / (1 + np.exp(0.5 - u)), m, 0.8) / total)
        logs.append(np.log(total))
    close(fit.log_prob(data), logs, "log_prob")
    close(fit.predict_proba(data, "two")[:, 1], right, "p(two | one)")


@case("latent number × truncated × scale mixture, conditional density")
def latent_scale():
    @probml.model
    def noisy():
        with probml.rows():
            s = sample("s", dist.Gamma(3.0, 2.0))
            sample("y", dist.Normal(0.0, 1.0 / jnp.sqrt(s)))
            sample("n", dist.Poisson(2.0 * s))

    y, n = np.array([0.3, 3.0]), np.array([4, 1])
    fit = noisy().at({})
    a, b = 3 + 0.5 + n, 2 + y**2 / 2 + 2
    close(fit.impute({"y": y, "n": n})["s"], a / b, "E s")
    found = fit.conditional({"y": y, "n": n}, "s")
    close(found.variance, a / b**2, "Var s", rtol=0.01)
    log = [grid_mean(lambda s, i=i: st.gamma.logpdf(s, 3, scale=0.5) + norm.logpdf(
        y[i], 0, 1 / np.sqrt(s)) + st.poisson.logpmf(n[i], 2 * s), lambda s: s, 1e-6, 30)[1]
        for i in range(2)]
    close(fit.log_prob({"y": y, "n": n}), log, "log_prob")



