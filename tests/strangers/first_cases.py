"""Sixty-odd questions after a fit, each to a pair of mechanisms that no test had tried (tests/testing/coverage.py).

Written before any of them was run. Each asks a model that a user of Stan, NumPyro or lme4 would write, and
compares with an oracle that is not of this package: all states summed, integrals on a grid, closed forms.
"""

import os
import tempfile

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.special as sp
import scipy.stats as st
from numpyro import deterministic, factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan
from oracles_of_strangers import (
    chain_sum,
    close,
    given_others,
    joint_states,
    log_sum,
    mixture_quantile,
    norm,
    normal_mean,
)

import probml

CASES = {}


def case(pair: str):
    def add(function):
        CASES[function.__name__] = (pair, function)
        return function
    return add


def share(p):
    p = np.asarray(p, float)
    return p / p.sum(-1, keepdims=True)


def back(fit, model):
    """The fit, saved and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        fit.save(os.path.join(folder, "fit"))
        return probml.load(os.path.join(folder, "fit"), model)


VALID = np.array([1, 0, 1, 1, 0], bool)
Y5 = np.array([1.2, 9.0, -0.3, 0.8, -7.0])

# ---- masks ----------------------------------------------------------------------------------------


@probml.model
def masked_mean(valid):
    mu = sample("mu", dist.Normal(0.0, 2.0))
    with probml.rows(), handlers.mask(mask=valid):
        sample("y", dist.Normal(mu, 1.0))


def mean_of_valid():
    y = Y5[VALID]
    v = 1 / (1 / 4 + len(y))
    return v * y.sum(), v


@case("mask × evidence")
def mask_evidence():
    fit = masked_mean().fit({"valid": VALID, "y": Y5})
    m, v = mean_of_valid()
    close(fit.params["mu"], m, "posterior mean", atol=0.05)
    y = Y5[VALID]
    right = st.multivariate_normal.logpdf(y, np.zeros(3), np.eye(3) + 4.0)
    close(fit.log_evidence, right, "log evidence", atol=0.05)


@case("mask × interval")
def mask_interval():
    fit = masked_mean().fit({"valid": VALID, "y": Y5})
    m, v = mean_of_valid()
    value, low, high = fit.predict({"valid": [True, True]}, "y", interval=0.9)
    close(value, [m, m], "mean of a new value", atol=0.1)
    s = np.sqrt(1 + v)
    close(low, [m - 1.645 * s] * 2, "lower", atol=0.2)
    close(high, [m + 1.645 * s] * 2, "upper", atol=0.2)


@probml.model
def masked_tests(done):
    with probml.rows():
        z = sample("z", dist.Bernoulli(0.3))
        sample("a", dist.Normal(2.0 * z, 1.0))
        with handlers.mask(mask=done):
            sample("b", dist.Bernoulli(0.1 + 0.8 * z))


@case("mask × predict_proba, decode")
def mask_proba():
    fit = masked_tests().at({})
    done, a, b = np.array([1, 0, 1], bool), np.array([0.5, 0.5, 1.4]), np.array([1, 1, 0])
    data = {"done": done, "a": a, "b": b}
    z = np.arange(2)
    like = norm.pdf(a[:, None], 2.0 * z) * np.where(done[:, None], st.bernoulli.pmf(
        b[:, None], 0.1 + 0.8 * z), 1.0)
    right = share(like * [0.7, 0.3])
    close(fit.predict_proba(data, "z"), right, "p(z)")
    close(fit.decode(data)["z"], right.argmax(1), "decode")
    close(fit.log_prob(data), np.log((like * [0.7, 0.3]).sum(1)), "log_prob")


@case("mask × joint, given=")
def mask_joint():
    fit = masked_tests().at({})
    data = {"done": [True, False], "a": [1.4, 1.4]}
    pz = share(norm.pdf(1.4, 2.0 * np.arange(2)) * [0.7, 0.3])
    pb = 0.1 + 0.8 * np.arange(2)
    right = pz[:, None] * np.stack([1 - pb, pb], 1)
    close(fit.joint(data, ["z", "b"])[0], right, "joint where it is not masked")
    drawn = fit.simulate(given={"done": [True] * 4000, "a": [1.4] * 4000}, seed=1)
    close(np.mean(drawn["b"]), right[:, 1].sum(), "share of b", atol=0.03)


@case("mask × Markov chain")
def mask_chain():
    initial, transition = np.array([0.6, 0.4]), np.array([[0.9, 0.1], [0.3, 0.7]])

    @probml.model
    def hmm(seen):
        with probml.rows():
            z = sample("z", probml.MarkovChain(jnp.array(initial), jnp.array(transition)))
            sample("y", dist.Normal(jnp.array([0.0, 3.0])[z], 1.0).mask(seen).to_event(1))

    y = np.array([[0.2, 2.5, 3.1, 9.0, 0.4], [1.5, 1.5, -9.0, 2.0, 3.0]])
    seen = np.array([[1, 1, 1, 0, 1], [1, 1, 0, 1, 1]], bool)
    fit = hmm().at({})
    emission = norm.logpdf(y[..., None], [0.0, 3.0]) * seen[..., None]
    right = [chain_sum(e, initial, transition) for e in emission]
    close(fit.log_prob({"seen": seen, "y": y}), [r[0] for r in right], "log_prob")
    close(fit.predict_proba({"seen": seen, "y": y}, "z"), [r[1] for r in right], "smoothing")


@case("mask × plate in rows, save")
def mask_plate():
    @probml.model
    def judges(present):
        lean = sample("lean", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with probml.rows():
            u = sample("u", dist.Normal(0.0, 1.0))
            sample("score", dist.Normal(u[..., None] + lean, 0.5).mask(present).to_event(1))

    present = np.array([[1, 1, 0], [1, 0, 0]], bool)
    score = np.array([[1.0, 1.4, -8.0], [0.3, 5.0, 5.0]])
    lean = np.array([0.1, 0.3, -0.2])
    model = judges()
    fit = back(model.at({"lean": lean}), model)
    right, middles = [], []
    for s, p in zip(score, present, strict=True):
        n = p.sum()
        cov = np.eye(n) * 0.25 + 1.0
        right.append(st.multivariate_normal.logpdf(s[p], lean[p], cov))
        middles.append(np.ones(n) @ np.linalg.solve(cov, s[p] - lean[p]))
    close(fit.log_prob({"present": present, "score": score}), right, "log_prob")
    close(fit.impute({"present": present, "score": score})["u"], middles, "E u")


# ---- factors --------------------------------------------------------------------------------------


@probml.model
def coupled(strength):
    with probml.rows():
        a = sample("a", dist.Bernoulli(0.4))
        b = sample("b", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
        factor("couple", strength * a * b)
        sample("y", dist.Normal(a - b, 1.0))


def coupled_joint(strength, y=None):
    a, b = np.arange(2)[:, None], np.arange(3)[None]
    p = np.array([0.6, 0.4])[:, None] * np.array([0.2, 0.5, 0.3]) * np.exp(strength * a * b)
    return p if y is None else p * norm.pdf(y, a - b)


@case("factor × joint, decode, impute")
def factor_joint():
    fit = coupled().at({})
    data = {"strength": [0.7, -1.2], "y": [0.1, -1.4]}
    right = np.stack([coupled_joint(s, y) for s, y in zip(data["strength"], data["y"], strict=True)])
    right /= right.sum((1, 2), keepdims=True)
    close(fit.joint(data, ["a", "b"]), right, "joint")
    best = [np.unravel_index(r.argmax(), r.shape) for r in right]
    found = fit.decode(data)
    close(np.stack([found["a"], found["b"]], 1), best, "decode")
    filled = fit.impute(data)
    close(filled["b"], right.sum(1).argmax(1), "impute b")


@case("factor × do")
def factor_do():
    fit = coupled().at({}).do({"a": 1})
    data = {"strength": [0.7, -1.2], "y": [0.1, -1.4]}
    right = np.stack([np.array([0.2, 0.5, 0.3]) * np.exp(s * np.arange(3)) * norm.pdf(
        y, 1 - np.arange(3)) for s, y in zip(data["strength"], data["y"], strict=True)])
    close(fit.predict_proba(data, "b"), share(right), "p(b | do(a = 1))")


@case("factor × given=, predict")
def factor_given():
    fit = coupled().at({})
    joint = coupled_joint(0.9) / coupled_joint(0.9).sum()
    wanted = (joint * (np.arange(2)[:, None] - np.arange(3))).sum()
    close(fit.predict({"strength": [0.9]}, "y"), [wanted], "mean of y, a and b unknown")
    drawn = fit.simulate(given={"strength": [0.9] * 6000, "a": [1] * 6000}, seed=2)
    close(np.bincount(drawn["b"].astype(int), minlength=3) / 6000, joint[1] / joint[1].sum(),
          "shares of b", atol=0.03)


@case("factor × conditional of a latent number")
def factor_conditional():
    @probml.model
    def shrunk(c):
        with probml.rows():
            u = sample("u", dist.Normal(0.0, 1.0))
            factor("shrink", -0.5 * c * u**2)
            sample("y", dist.Normal(u, 0.7))

    fit = shrunk().at({})
    c, y = np.array([0.0, 3.0]), np.array([1.0, 1.0])
    precision = 1 + c + 1 / 0.49
    found = fit.conditional({"c": c, "y": y}, "u")
    close(found.mean, y / 0.49 / precision, "mean")
    close(found.variance, 1 / precision, "variance")
    close(fit.impute({"c": c, "y": y})["u"], y / 0.49 / precision, "impute")


@case("factor × interval")
def factor_interval():
    @probml.model
    def positive_counts(hours):
        with probml.rows():
            n = sample("n", dist.Poisson(2.0 * hours))
            factor("at least one", jnp.where(n > 0, 0.0, -jnp.inf))

    fit = positive_counts().at({})
    hours = np.array([0.3, 1.0, 3.0])
    value, low, high = fit.predict({"hours": hours}, "n", interval=0.9)
    k = np.arange(1, 60)
    p = share(st.poisson.pmf(k, 2.0 * hours[:, None]))
    close(value, p @ k, "mean")
    cdf = np.cumsum(p, 1)
    close(low, [k[np.searchsorted(c, 0.05)] for c in cdf], "lower", atol=0.5)
    close(high, [k[np.searchsorted(c, 0.95)] for c in cdf], "upper", atol=0.5)


@case("factor × deterministic, evidence")
def factor_evidence():
    @probml.model
    def offset(c):
        mu = sample("mu", dist.Normal(0.0, 2.0))
        deterministic("twice", 2.0 * mu)
        with probml.rows():
            sample("y", dist.Normal(mu, 1.0))
            factor("constant", -0.3 * c)

    y, c = np.array([1.0, 2.0, 0.5]), np.array([1.0, 2.0, 3.0])
    fit = offset().fit({"c": c, "y": y})
    right = st.multivariate_normal.logpdf(y, np.zeros(3), np.eye(3) + 4.0) - 0.3 * c.sum()
    close(fit.params["twice"], 2 * y.sum() / 3.25, "twice mu", atol=0.1)
    close(fit.log_evidence, right, "log evidence", atol=0.05)


@case("factor × save, to_arviz")
def factor_arviz():
    @probml.model
    def tilted(x):
        b = sample("b", dist.Normal(0.0, 1.0))
        with probml.rows():
            y = sample("y", dist.Bernoulli(0.5))
            factor("loss", -jnp.log1p(jnp.exp(-(2 * y - 1) * b * x)))

    data = {"x": np.array([1.0, -2.0, 0.5, 1.5]), "y": np.array([1, 0, 1, 0])}
    model = tilted()
    fit = model.fit(data, probml.Laplace())
    tree = fit.to_arviz(data)
    loglik = np.asarray(tree.log_likelihood["y"] if "y" in tree.log_likelihood else next(iter(
        tree.log_likelihood.data_vars.values())))
    b = np.asarray(tree.posterior["b"])[..., None]
    right = np.log(0.5) - np.log1p(np.exp(-(2 * data["y"] - 1) * b * data["x"]))
    close(loglik.reshape(-1, 4).mean(0), right.reshape(-1, 4).mean(0), "log likelihood")
    kept = back(fit, model)
    close(kept.predict_proba({"x": [2.0]}, "y"), fit.predict_proba({"x": [2.0]}, "y"), "after load")
    grid = np.linspace(-6, 6, 4001)
    post = norm.logpdf(grid) - np.log1p(np.exp(
        -(2 * data["y"] - 1) * grid[:, None] * data["x"])).sum(1)
    w = share(np.exp(post - post.max()))
    p1 = 1 / (1 + np.exp(-2.0 * grid))  # exp of the loss, normalised over y
    close(fit.predict_proba({"x": [2.0]}, "y")[0, 1], w @ p1, "p(y = 1)", atol=0.02)


# ---- two tables -----------------------------------------------------------------------------------


@probml.model
def clinic(patient, day):
    slope = sample("slope", dist.Normal(0.0, 1.0))
    with probml.rows("patients"):
        kind = sample("kind", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
        sex = sample("sex", dist.Bernoulli(0.4 + 0.1 * kind))
        sample("age", dist.Normal(50.0 + 10.0 * sex, 8.0))
    with probml.rows("visits", of="patients"):
        flag = sample("flag", dist.Bernoulli(0.2 + 0.3 * kind[patient]))
        pain = sample("pain", dist.Normal(1.5 * kind[patient] + slope * day + flag, 1.0))
        deterministic("relief", 10.0 - pain)


def tables(**visits):
    first = {"patient": ["ann", "bob", "eve"], "age": [41.0, np.nan, 63.0]}
    second = {"patient": ["eve", "ann", "eve", "bob"], "day": np.array([0.0, 0.0, 1.0, 2.0]),
              "pain": np.array([3.1, 0.2, np.nan, 2.9]),
              "flag": np.array([1.0, np.nan, np.nan, 0.0])}
    return {"patients": first, "visits": {**second, **visits}}


def clinic_joint(data, slope, do=None):
    """(patient, kind, sex, flags of visits …) → log p, by all states; per patient."""
    out = {}
    v = data["visits"]
    for who, age in zip(data["patients"]["patient"], data["patients"]["age"], strict=True):
        at = [i for i, p in enumerate(v["patient"]) if p == who]
        logs = {}
        for kind, sex in joint_states(3, 2):
            if do is not None and kind != do:
                continue
            base = (0.0 if do is not None else np.log([0.5, 0.3, 0.2][kind])) + st.bernoulli.logpmf(
                sex, 0.4 + 0.1 * kind)
            if not np.isnan(age):
                base += norm.logpdf(age, 50 + 10 * sex, 8)
            for flags in joint_states(*[2] * len(at)):
                log = base
                for f, i in zip(flags, at, strict=True):
                    seen = v["flag"][i]
                    log += st.bernoulli.logpmf(f, 0.2 + 0.3 * kind) if np.isnan(
                        seen) or seen == f else -np.inf
                    if not np.isnan(v["pain"][i]):
                        log += norm.logpdf(v["pain"][i], 1.5 * kind + slope * v["day"][i] + f, 1.0)
                logs[kind, sex, *flags] = log
        out[who] = at, logs
    return out


def weights_of(logs):
    top = max(logs.values())
    total = sum(np.exp(v - top) for v in logs.values())
    return {key: np.exp(v - top) / total for key, v in logs.items()}, top + np.log(total)


@case("two tables × joint, log_prob")
def tables_joint():
    fit, data = clinic().at({"slope": 0.5}), tables()
    right, evidence = [], []
    for _, logs in clinic_joint(data, 0.5).values():
        w, log = weights_of(logs)
        table = np.zeros((3, 2))
        for key, p in w.items():
            table[key[:2]] += p
        right.append(table)
        evidence.append(log)
    close(fit.log_prob(data), evidence, "log_prob")
    close(fit.joint(data, ["kind", "sex"]), right, "joint")


@case("two tables × decode")
def tables_decode():
    fit, data = clinic().at({"slope": 0.5}), tables()
    found = fit.decode(data)
    flags = np.zeros(4)
    for who, (at, logs) in enumerate(clinic_joint(data, 0.5).values()):
        best = max(logs, key=logs.get)
        assert (found["kind"][who], found["sex"][who]) == best[:2], (found, best)
        flags[at] = best[2:]
    close(found["flag"], flags, "decode of visits")


@case("two tables × do, predict")
def tables_do():
    fit, data = clinic().at({"slope": 0.5}).do({"kind": 2}), tables()
    joint = clinic_joint(data, 0.5, do=2)
    mean = np.zeros(4)
    for at, logs in joint.values():
        w, _ = weights_of(logs)
        for j, i in enumerate(at):
            mean[i] = sum(p * (3.0 + 0.5 * data["visits"]["day"][i] + key[2 + j])
                          for key, p in w.items())
    close(fit.impute(data)["pain"][2], mean[2], "the pain that is missing, after do")
    close(fit.log_prob(data), [weights_of(logs)[1] for _, logs in joint.values()], "log_prob")


@case("two tables × interval, deterministic")
def tables_interval():
    fit, data = clinic().at({"slope": 0.5}), tables()
    value, low, high = fit.predict(data, "pain", interval=0.9)
    at, logs = list(clinic_joint(data, 0.5).values())[2]
    w, _ = weights_of(logs)
    j = at.index(2)
    means = [1.5 * key[0] + 0.5 + key[2 + j] for key in w]
    cdfs = [norm(m, 1).cdf for m in means]
    p = list(w.values())
    close(low[2], mixture_quantile(0.05, p, cdfs, -9, 14), "lower", atol=0.15)
    close(high[2], mixture_quantile(0.95, p, cdfs, -9, 14), "upper", atol=0.15)
    close(fit.predict(data, "relief")[2], 10 - np.dot(p, means), "deterministic of a missing cell",
          atol=0.1)  # by draws
    close(fit.predict(data, "relief")[[0, 1, 3]], 10 - data["visits"]["pain"][[0, 1, 3]],
          "deterministic of an observed cell")


@case("two tables × evidence, save, merge")
def tables_exact():
    @probml.model
    def conjugate(home):
        p = sample("p", dist.Beta(2.0, 2.0))
        mu = sample("mu", dist.Normal(0.0, 3.0))
        with probml.rows("homes"):
            sample("garden", dist.Bernoulli(p))
        with probml.rows("rooms", of="homes"):
            sample("warmth", dist.Normal(mu, 1.0))

    def some(names, garden, owners, warmth):
        return {"homes": {"home": names, "garden": garden},
                "rooms": {"home": owners, "warmth": np.array(warmth)}}

    one = some(["a", "b"], [1, 0], ["b", "a", "b"], [1.0, 2.0, 0.4])
    two = some(["c"], [1], ["c", "c"], [0.1, -0.3])
    y = np.array([1.0, 2.0, 0.4, 0.1, -0.3])

    def right(g, n, y):
        return (sp.betaln(2 + g, 2 + n - g) - sp.betaln(2, 2)
                + st.multivariate_normal.logpdf(y, np.zeros(len(y)), np.eye(len(y)) + 9.0))

    model = conjugate()
    first = model.fit(one)
    model = model.read(two)  # as probml.load asks for
    close(first.log_evidence, right(1, 2, y[:3]), "log evidence", atol=0.03)
    kept = back(first, model)
    close(kept.log_prob(two), first.log_prob(two), "after load")
    close(first.log_prob(two), [right(2, 3, y) - right(1, 2, y[:3])], "log p(new | old)",
          atol=0.15)  # of 256 draws


@case("two tables × latent number of a row")
def tables_latent():
    @probml.model
    def pupils(school):
        with probml.rows("schools"):
            u = sample("u", dist.Normal(1.0, 2.0))
            sample("funds", dist.Normal(0.5 * u, 1.0))
        with probml.rows("pupils", of="schools"):
            sample("score", dist.Normal(u[school], 1.0))

    data = {"schools": {"school": ["x", "y"], "funds": [1.5, np.nan]},
            "pupils": {"school": ["y", "x", "x", "y", "x"],
                       "score": np.array([2.0, 0.5, np.nan, 3.0, 1.1])}}
    fit = pupils().at({})
    for who, funds, at in (("x", [1.5], [0.5, np.nan, 1.1]), ("y", [np.nan], [2.0, 3.0])):
        load = np.array([1.0, 0.5, *np.ones(len(at))])
        noise = np.array([0.0, 1.0, *np.ones(len(at))])
        cov = 4 * np.outer(load, load) + np.diag(noise)
        mean = load.copy()
        values = np.array([np.nan, *funds, *at])
        m, v = given_others(mean, cov, values, [0])
        i = ["x", "y"].index(who)
        close(fit.impute(data)["u"][i], m[0], f"E u of {who}")
        close(np.asarray(fit.conditional(data, "u").variance)[i], v[0, 0], f"Var u of {who}")
        there = ~np.isnan(values)
        close(fit.log_prob(data)[i], st.multivariate_normal.logpdf(
            values[there], mean[there], cov[np.ix_(there, there)]), f"log p of {who}")
    close(fit.impute(data)["score"][2], fit.impute(data)["u"][0], "the score that is missing")


@case("two tables × factor, censored")
def tables_factor():
    @probml.model
    def lamps(box, ended):
        with probml.rows("boxes"):
            good = sample("good", dist.Bernoulli(0.5))
        with probml.rows("lamps", of="boxes"):
            rate = jnp.where(good[box] == 1, 0.5, 2.0)
            sample("hours", dist.Exponential(rate))
            factor("censored", jnp.where(ended == 1, 0.0, -jnp.log(rate)))

    hours, ended = np.array([1.0, 2.0, 0.1, 0.4]), np.array([1, 0, 1, 1])
    data = {"boxes": {"box": ["p", "q"]},
            "lamps": {"box": ["p", "p", "q", "q"], "hours": hours, "ended": ended}}
    fit = lamps().at({})
    right = []
    for at in ([0, 1], [2, 3]):
        right.append([0.5 * np.exp(sum((np.log(r) if ended[i] else 0.0) - r * hours[i]
                                       for i in at)) for r in (2.0, 0.5)])
    close(fit.predict_proba(data, "good"), share(right), "p(good)")
    close(fit.log_prob(data), np.log(np.sum(right, 1)), "log_prob")


@case("two tables × label probabilities, weights")
def tables_soft():
    fit = clinic().at({"slope": 0.5})
    data = tables()
    soft = np.array([[0.9, 0.05, 0.05], [0.2, 0.2, 0.6], [1.0, 1.0, 1.0]])
    data["patients"] = {**data["patients"], "kind": soft}
    right = []
    for i, (_, logs) in enumerate(clinic_joint(tables(), 0.5).values()):
        w, _ = weights_of(logs)
        p = np.zeros(3)
        for key, v in w.items():
            p[key[0]] += v * soft[i, key[0]]
        right.append(share(p))
    close(fit.predict_proba(data, "kind"), right, "p(kind)")


@case("two tables × compare")
def tables_compare():
    data = tables(flag=np.array([1.0, 0.0, 1.0, 0.0]))
    data["patients"] |= {"kind": [0, 1, 2], "sex": [1, 0, 1]}
    model = clinic()
    fits = {"flat": model.at({"slope": 0.0}), "steep": model.at({"slope": 0.5})}
    table = probml.compare(fits, data)
    for name, slope in (("flat", 0.0), ("steep", 0.5)):
        every = clinic_joint(data, slope)
        total = 0.0
        for who, (_, logs) in every.items():
            i = data["patients"]["patient"].index(who)
            total += log_sum(*[v for key, v in logs.items() if key[:2] == (
                data["patients"]["kind"][i], data["patients"]["sex"][i])])
        close(table.loc[name, "loglik"], total, f"loglik of {name}")


@case("two tables × effect of a group")
def tables_effects():
    @probml.model
    def wards(ward, bed):
        with plate("wards", 2):
            a = sample("a", dist.Normal(0.0, 1.0))
        with probml.rows("beds"):
            u = sample("u", dist.Normal(a[ward], 1.0))
        with probml.rows("nights", of="beds"):
            sample("pulse", dist.Normal(u[bed], 0.5))

    data = {"beds": {"bed": ["k", "l", "m"], "ward": ["north", "south", "north"]},
            "nights": {"bed": ["m", "k", "l", "k"], "pulse": np.array([1.0, 2.0, -1.0, 2.4])}}
    fit = wards().at({"a": np.array([1.5, -0.5])}, labels={"ward": ("north", "south")})
    right = []
    for m, y in ((1.5, [2.0, 2.4]), (-0.5, [-1.0]), (1.5, [1.0])):
        right.append((m + np.sum(y) / 0.25) / (1 + len(y) / 0.25))
    close(fit.impute(data)["u"], right, "E u of beds")


# ---- pasted functions -----------------------------------------------------------------------------


def pasted_line(x, y=None):
    a = sample("a", dist.Normal(0.0, 10.0))
    b = sample("b", dist.Normal(0.0, 10.0))
    with plate("data", len(x)):
        sample("obs", dist.Normal(a + b * x, 2.0), obs=y)


X8 = np.linspace(-1, 2, 8)
LINE = 1.0 + 3.0 * X8 + np.array([0.4, -1.0, 0.8, 1.9, -2.2, 0.3, 0.9, -1.5])


def line_posterior(x, y, s=2.0, prior=10.0):
    H = np.stack([np.ones_like(x), x], 1)
    cov = np.linalg.inv(H.T @ H / s**2 + np.eye(2) / prior**2)
    return cov @ H.T @ y / s**2, cov


@case("pasted function × interval, evidence")
def pasted_interval():
    fit = probml.model(pasted_line)().fit({"x": X8, "y": LINE})
    m, cov = line_posterior(X8, LINE)
    h = np.array([[1.0, 0.0], [1.0, 5.0]])
    value, low, high = fit.predict({"x": [0.0, 5.0]}, "obs", interval=0.9)
    s = np.sqrt(4 + np.einsum("ni,ij,nj->n", h, cov, h))
    close(value, h @ m, "mean", atol=0.15)
    close(high, h @ m + 1.645 * s, "upper", atol=0.6)  # 0.15 sd
    close(low, h @ m - 1.645 * s, "lower", atol=0.6)
    H = np.stack([np.ones_like(X8), X8], 1)
    close(fit.log_evidence, st.multivariate_normal.logpdf(
        LINE, np.zeros(8), 4 * np.eye(8) + 100 * H @ H.T), "log evidence", atol=0.1)


@case("pasted function × units far from 1, float32")
def pasted_units():
    import jax

    def cars(weight, price=None):
        a = sample("a", dist.Normal(2e6, 1e6))
        b = sample("b", dist.Normal(0.0, 1e4))
        sd = sample("sd", dist.HalfNormal(1e6))
        with plate("cars", weight.shape[0]):
            sample("price", dist.Normal(a + b * (weight - 1500.0), sd), obs=price)

    rng = np.random.default_rng(3)
    weight = rng.uniform(1000, 2000, 60)
    price = 2.1e6 + 1800 * (weight - 1500) + 2e5 * rng.normal(size=60)
    with jax.enable_x64(False):
        fit = probml.model(cars)().fit({"weight": weight, "price": price})
        table = fit.summary()
    H = np.stack([np.ones(60), weight - 1500], 1)
    beta, rss = np.linalg.lstsq(H, price, rcond=None)[:2]
    sd = np.sqrt(rss[0] / 58)
    se = sd * np.sqrt(np.diag(np.linalg.inv(H.T @ H)))
    for name, b, s in zip(("a", "b"), beta, se, strict=True):
        close(table.loc[name, "mean"] / s, b / s, f"mean of {name}", atol=0.25, rtol=0)
        close(table.loc[name, "sd"] / s, 1.0, f"sd of {name}", atol=0.12)


def pasted_kinds(x=None, y=None, n=1):
    with plate("rows", n if x is None else len(x)):
        z = sample("z", dist.Bernoulli(0.3))
        w = sample("w", dist.Categorical(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])[z]))
        sample("xs", dist.Normal(2.0 * z, 1.0), obs=x)
        sample("ys", dist.Normal(w, 1.0), obs=y)


def kinds_joint(x, y):
    pz, pw = np.array([0.7, 0.3]), np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    joint = pz[:, None] * pw
    if not np.isnan(x):
        joint = joint * norm.pdf(x, 2.0 * np.arange(2))[:, None]
    if not np.isnan(y):
        joint = joint * norm.pdf(y, np.arange(3))
    return joint


@case("pasted function × joint, decode, missing cells")
def pasted_joint():
    fit = probml.model(pasted_kinds)().at({})
    x, y = np.array([0.5, 1.6, np.nan]), np.array([1.5, np.nan, 0.2])
    right = np.stack([kinds_joint(*r) for r in zip(x, y, strict=True)])
    data = {"x": x, "y": y}
    close(fit.log_prob(data), np.log(right.sum((1, 2))), "log_prob")
    right /= right.sum((1, 2), keepdims=True)
    close(fit.joint(data, ["z", "w"]), right, "joint")
    found = fit.decode(data)
    best = [np.unravel_index(r.argmax(), r.shape) for r in right]
    close(np.stack([found["z"], found["w"]], 1), best, "decode")
    close(fit.impute(data)["ys"], [1.5, right[1].sum(0) @ np.arange(3), 0.2], "impute ys")


@case("pasted function × do, given=")
def pasted_do():
    fit = probml.model(pasted_kinds)().at({}).do({"z": 1})
    data = {"x": np.array([0.5]), "y": np.array([1.5])}
    right = np.array([0.1, 0.3, 0.6]) * norm.pdf(1.5, np.arange(3))
    close(fit.predict_proba(data, "w"), [share(right)], "p(w | do(z = 1))")
    plain = probml.model(pasted_kinds)().at({})
    drawn = plain.simulate(given={"x": np.full(5000, 0.5), "y": np.full(5000, np.nan)}, seed=3)
    pz = share(kinds_joint(0.5, np.nan).sum(1))
    close(np.mean(drawn["z"]), pz[1], "share of z", atol=0.03)


def pasted_scan(y=None, steps=5):
    initial, transition = jnp.array([0.6, 0.4]), jnp.array([[0.9, 0.1], [0.3, 0.7]])
    means = sample("means", dist.Normal(jnp.array([0.0, 3.0]), 1.0).to_event(1))

    def step(z, now):
        z = sample("z", dist.Categorical(transition[z]))
        sample("y", dist.Normal(means[z], 1.0), obs=now)
        return z, None

    del initial
    scan(step, 0, y, length=steps if y is None else len(y))


@case("scan × predict_proba, decode, save")
def scan_states():
    y = np.array([0.2, 2.5, 3.1, 1.5, 0.4])
    model = probml.model(pasted_scan)()
    fit = model.fit({"y": y}, probml.MAP())
    means = np.asarray(fit.params["means"])
    transition = np.array([[0.9, 0.1], [0.3, 0.7]])
    emission = norm.logpdf(y[:, None], means)
    log, gamma, best = chain_sum(emission, transition[0], transition)
    close(fit.predict_proba({"y": y}, "z", plug_in=True), gamma, "smoothing")
    close(fit.decode({"y": y})["z"], best, "Viterbi")
    kept = back(fit, model.read({"y": y}))
    close(kept.predict_proba({"y": y}, "z", plug_in=True), gamma, "after load")
    close(fit.log_joint({"y": y}), log + norm.logpdf(means, [0.0, 3.0]).sum(), "log_joint")


@case("pasted function × merge, weights")
def pasted_merge():
    def coins(k, y=None):
        with plate("coins", k):
            p = sample("p", dist.Beta(2.0, 2.0))
        with plate("data", 1 if y is None else len(y)):
            sample("y", dist.Bernoulli(p[0]), obs=y)

    model = probml.model(coins)(k=1)
    y = np.array([1, 0, 1, 1, 0, 1])
    one, two = model.fit({"y": y[:4]}), model.fit({"y": y[4:]})
    both = one.merge(two)
    close(both.params["p"], [(2 + 4) / (4 + 6)], "merged")
    weighted = model.fit({"y": y}, weights=np.array([2, 0, 1, 1, 3, 1.0]))
    close(weighted.params["p"], [(2 + 5) / (4 + 8)], "weighted")


@case("pasted function × effect of a group × new data with fewer groups")
def pasted_groups():
    def survey(region, n_regions, age, y=None):
        mu = sample("mu", dist.Normal(0.0, 1.0))
        with plate("regions", n_regions):
            a = sample("a", dist.Normal(mu, 1.0))
        b = sample("b", dist.Normal(0.0, 1.0))
        with plate("n", region.shape[0]):
            sample("y", dist.Normal(a[region] + b * age, 1.0), obs=y)

    rng = np.random.default_rng(5)
    region, age = rng.integers(0, 4, 40), rng.normal(size=40)
    y = np.array([1.0, -1.0, 2.0, 0.0])[region] + 0.5 * age + rng.normal(size=40)
    fit = probml.model(survey)(n_regions=4).fit({"region": region, "age": age, "y": y})
    H = np.concatenate([np.eye(4)[region], age[:, None]], 1)
    prior = np.zeros((5, 5))
    prior[:4, :4] = np.eye(4) + 1.0
    prior[4, 4] = 1.0
    cov = np.linalg.inv(np.linalg.inv(prior) + H.T @ H)
    m = cov @ H.T @ y
    value, low, high = fit.predict({"region": np.array([3, 2]), "age": np.array([0.0, 1.0])}, "y",
                                   interval=0.9)
    h = np.array([[0, 0, 0, 1, 0.0], [0, 0, 1, 0, 1.0]])
    s = np.sqrt(1 + np.einsum("ni,ij,nj->n", h, cov, h))
    close(value, h @ m, "predicted mean", atol=0.1)
    close(high - low, 2 * 1.645 * s, "width", atol=0.35)


# ---- groups that were not in the data -------------------------------------------------------------


def drawn_fit(model, data):
    return model.fit(data, probml.NUTS(draws=400, warmup=300, chains=1, progress=False))


@case("new groups × counts, interval")
def new_counts():
    @probml.model
    def counts(g, hours, groups: int):
        mu = sample("mu", dist.Normal(0.0, 1.0))
        tau = sample("tau", dist.HalfNormal(0.5))
        with plate("groups", groups):
            a = sample("a", dist.Normal(mu, tau))
        with probml.rows():
            sample("n", dist.Poisson(hours * jnp.exp(a[g])))

    rng = np.random.default_rng(6)
    g = np.repeat(np.array(["a", "b", "c", "d", "e"]), 6)
    n = rng.poisson(np.exp(rng.normal(0.5, 0.4, 5)).repeat(6) * 2.0)
    model = counts(groups=5)
    fit = drawn_fit(model, {"g": g, "hours": np.full(30, 2.0), "n": n})
    draws = fit.draws(4000, seed=1)
    mu, tau = np.asarray(draws["mu"]), np.asarray(draws["tau"])
    new = {"g": ["z", "a"], "hours": [3.0, 3.0]}
    value, low, high = fit.predict(new, "n", interval=0.9, unknown="new")
    close(value[0], np.mean(3 * np.exp(mu + tau**2 / 2)), "mean of a new group", rtol=0.05)
    close(value[1], np.mean(3 * np.exp(draws["a"][:, 0])), "mean of a known group", rtol=0.05)
    rng = np.random.default_rng(0)
    made = rng.poisson(3 * np.exp(mu + tau * rng.normal(size=mu.shape)))
    close([low[0], high[0]], np.quantile(made, [0.05, 0.95]), "interval", atol=2.1)
    # log p(n) of a new group: its effect integrated out in each draw
    logs = [normal_mean(lambda a, m=m, t=t: st.poisson.pmf(5, 3 * np.exp(a)), m, t)
            for m, t in zip(mu[:800], tau[:800], strict=True)]
    found = fit.log_prob({"g": ["z"], "hours": [3.0], "n": [5]}, unknown="new")
    close(found, [np.log(np.mean(logs))], "log_prob of a new group", atol=0.06)


@case("new groups × mixture × text labels")
def new_mixture():
    @probml.model
    def shoppers(shop, shops: int):
        tau = sample("tau", dist.HalfNormal(1.0))
        with plate("shops", shops):
            a = sample("a", dist.Normal(0.0, tau))
        with probml.rows():
            kind = sample("kind", dist.Bernoulli(logits=a[shop]))
            sample("spent", dist.Normal(4.0 * kind, 1.0))

    rng = np.random.default_rng(7)
    shop = np.repeat(np.array(["kiosk", "mall", "market"]), 20)
    kind = rng.random(60) < np.repeat([0.1, 0.9, 0.5], 20)
    fit = drawn_fit(shoppers(shops=3), {"shop": shop, "spent": 4.0 * kind + rng.normal(size=60)})
    draws = fit.draws(3000, seed=1)
    like = norm.pdf(2.3, [0.0, 4.0])
    tau = np.asarray(draws["tau"])
    rng = np.random.default_rng(1)
    p1 = 1 / (1 + np.exp(-tau * rng.normal(size=(40, len(tau)))))
    both = np.stack([(1 - p1) * like[0], p1 * like[1]], -1).mean((0, 1))
    # the effect belongs to the row: p(kind | spent) = E p(kind, spent) / E p(spent)
    got = fit.predict_proba({"shop": ["online"], "spent": [2.3]}, "kind", unknown="new")
    close(got, [share(both)], "p(kind) of a new shop", atol=0.02)
    pk = 1 / (1 + np.exp(-np.asarray(draws["a"])[:, 1]))  # mall
    both = np.stack([(1 - pk) * like[0], pk * like[1]], -1).mean(0)
    got = fit.predict_proba({"shop": ["mall"], "spent": [2.3]}, "kind", unknown="new")
    close(got, [share(both)], "p(kind) of a known shop", atol=0.02)


@case("new groups × two index columns, one of them new")
def new_crossed():
    @probml.model
    def ratings(judge, wine, judges: int, wines: int):
        with plate("judges", judges):
            j = sample("j", dist.Normal(0.0, 1.0))
        with plate("wines", wines):
            w = sample("w", dist.Normal(0.0, 2.0))
        with probml.rows():
            sample("score", dist.Normal(j[judge] + w[wine], 1.0))

    judge = np.array(["ann", "ann", "ben", "ben", "cy", "cy"])
    wine = np.array(["red", "white", "red", "rose", "white", "rose"])
    score = np.array([3.0, 1.0, 2.5, -1.0, 0.5, -2.0])
    fit = ratings(judges=3, wines=3).fit({"wine": wine, "judge": judge, "score": score})
    H = np.concatenate([np.eye(3)[[0, 0, 1, 1, 2, 2]], np.eye(3)[[0, 2, 0, 1, 2, 1]]], 1)
    cov = np.linalg.inv(np.diag([1, 1, 1, 0.25, 0.25, 0.25]) + H.T @ H)
    m = cov @ H.T @ score
    value, low, high = fit.predict({"judge": ["dee", "ann"], "wine": ["red", "gold"]}, "score",
                                   interval=0.9, unknown="new")
    close(value, [m[3], m[0]], "means: labels are sorted", atol=0.15)
    s = np.sqrt([1 + 1 + cov[3, 3], 1 + 4 + cov[0, 0]])
    close(high - low, 3.29 * s, "widths", atol=0.5)


@case("new groups × latent number of a row")
def new_latent():
    @probml.model
    def pupils(school, schools: int):
        with plate("schools", schools):
            a = sample("a", dist.Normal(1.0, 2.0))
        with probml.rows():
            u = sample("u", dist.Normal(a[school], 1.0))
            sample("x", dist.Normal(u, 1.0))
            sample("y", dist.Normal(u, 1.0))

    rng = np.random.default_rng(8)
    school = np.repeat(np.arange(4), 5)
    u = np.array([0.0, 1.0, 2.0, 3.0])[school] + rng.normal(size=20)
    fit = drawn_fit(pupils(schools=4), {"school": school.astype(str), "x": u + rng.normal(size=20),
                                        "y": u + rng.normal(size=20)})
    data = {"school": ["new"], "x": [5.0]}
    # u ~ N(1, 4 + 1); x = 5: E u = 1 + 5/6 · 4
    close(fit.predict(data, "y", unknown="new"), [1 + 5 / 6 * 4], "E y | x of a new school", atol=0.2)


# ---- discrete sites outside rows ------------------------------------------------------------------


@probml.model
def scenario(t):
    s = sample("s", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
    with probml.rows():
        sample("y", dist.Normal(jnp.array([0.0, 1.0, 2.0])[s] * t, 1.0))


def scenario_posterior(t, y):
    log = np.log([0.5, 0.3, 0.2]) + norm.logpdf(y[:, None], t[:, None] * np.arange(3.0)).sum(0)
    return share(np.exp(log - log.max()))


T4, S4 = np.array([1.0, 0.5, -1.0, 0.3]), np.array([1.1, 0.9, -0.2, 0.1])


@case("discrete outside rows × predict, interval, simulate")
def outside_predict():
    fit = scenario().fit({"t": T4, "y": S4})
    p = scenario_posterior(T4, S4)
    value, low, high = fit.predict({"t": [4.0]}, "y", interval=0.9)
    close(value, [p @ [0.0, 4.0, 8.0]], "mean")
    cdfs = [norm(m, 1).cdf for m in (0.0, 4.0, 8.0)]
    close(low, [mixture_quantile(0.05, p, cdfs, -9, 19)], "lower", atol=0.25)
    close(high, [mixture_quantile(0.95, p, cdfs, -9, 19)], "upper", atol=0.25)
    close(fit.log_prob({"t": [4.0], "y": [3.0]}), [np.log(p @ norm.pdf(3.0, [0.0, 4.0, 8.0]))],
          "log predictive density")
    drawn = fit.simulate(t=np.full(4000, 20.0), seed=1)["y"]
    got = [np.mean(np.abs(drawn - m) < 6) for m in (0.0, 20.0, 40.0)]
    close(got, p, "shares of scenarios among rows, each with its own draw", atol=0.03)


@case("discrete outside rows × weights, compare")
def outside_weights():
    w = np.array([2.0, 0.0, 1.0, 3.0])
    fit = scenario().fit({"t": T4, "y": S4}, weights=w)
    log = np.log([0.5, 0.3, 0.2]) + (w[:, None] * norm.logpdf(
        S4[:, None], T4[:, None] * np.arange(3.0))).sum(0)
    close(fit.log_evidence, np.logaddexp.reduce(log), "log evidence of weighted rows")


@case("discrete outside rows × latent number of a row")
def outside_latent():
    @probml.model
    def drift():
        moved = sample("moved", dist.Bernoulli(0.4))
        with probml.rows():
            u = sample("u", dist.Normal(1.5 * moved, 1.0))
            sample("x", dist.Normal(u, 0.5))

    x = np.array([0.8, 1.2, 0.1])
    fit = drift().fit({"x": x})
    log = np.log([0.6, 0.4]) + norm.logpdf(x[:, None], [0.0, 1.5], np.sqrt(1.25)).sum(0)
    p = share(np.exp(log))
    close(fit.log_evidence, np.logaddexp.reduce(log), "log evidence")
    # of a row as a new one: its own x counts again
    joint = p * norm.pdf(0.3, [0.0, 1.5], np.sqrt(1.25))
    m = (np.array([0.0, 1.5]) + 0.3 / 0.25) / 5
    close(fit.impute({"x": [0.3]})["u"], [share(joint) @ m], "E u of a new row")


@case("discrete outside rows × change point × Poisson rates learnt")
def outside_change():
    @probml.model
    def mines(year):
        early = sample("early", dist.Gamma(2.0, 1.0))
        late = sample("late", dist.Gamma(2.0, 1.0))
        when = sample("when", dist.Categorical(jnp.ones(8) / 8))
        with probml.rows():
            sample("n", dist.Poisson(jnp.where(year < when, early, late)))

    year, n = np.arange(8), np.array([4, 5, 3, 4, 1, 0, 1, 1])

    def gamma_evidence(k):
        return (sp.gammaln(2 + k.sum()) - sp.gammaln(2) - (2 + k.sum()) * np.log(1 + len(k))
                - sp.gammaln(k + 1).sum())

    logs = np.array([gamma_evidence(n[:w]) + gamma_evidence(n[w:]) for w in range(8)]) - np.log(8)
    p = share(np.exp(logs - logs.max()))
    early = sum(p[w] * (2 + n[:w].sum()) / (1 + w) for w in range(8))
    late = sum(p[w] * (2 + n[w:].sum()) / (1 + 8 - w) for w in range(8))
    fit = mines().fit({"year": year, "n": n})
    trusted = not any(w.code.value in ("unreliable", "weights") for w in fit.warnings)
    close([fit.params["early"], fit.params["late"]], [early, late], f"{fit.status}; trusted "
          f"{trusted}", atol=0.15)
    value = fit.predict({"year": [3, 6]}, "n")
    at3 = sum(p[w] * ((2 + n[:w].sum()) / (1 + w) if w > 3 else (2 + n[w:].sum()) / (9 - w))
              for w in range(8))
    close(value[0], at3, "predicted rate of year 3", atol=0.2)


@case("discrete outside rows × effect of a group × matrix")
def outside_matrix():
    @probml.model
    def pairs():
        linked = sample("linked", dist.Bernoulli(0.5))
        with probml.rows():
            cov = jnp.array([[1.0, 0.0], [0.0, 1.0]]) + 0.8 * linked * jnp.array([[0, 1.0], [1.0, 0]])
            sample("x", dist.MultivariateNormal(jnp.zeros(2), covariance_matrix=cov))

    x = np.array([[0.5, 0.3], [-1.0, -0.2], [0.2, 0.9]])
    fit = pairs().fit({"x": x})
    log = [np.log(0.5) + st.multivariate_normal.logpdf(x, np.zeros(2), [[1, r], [r, 1]]).sum()
           for r in (0.0, 0.8)]
    close(fit.log_evidence, np.logaddexp.reduce(log), "log evidence")
    p = share(np.exp(log))
    close(fit.impute({"x": [[2.0, np.nan]]})["x"][0, 1], share(p * norm.pdf(2.0))[1] * 1.6,
          "the other cell")
