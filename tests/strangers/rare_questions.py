"""Pairs of a mechanism and a question that no test had asked on 30 November
(`testing/coverage.py --never`), several of them of one function. Written before any was run.
Oracles: closed forms and sums over all states; of decisions the least expected loss by hand.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from more_cases import INITIAL, TRANSITION, chain, walk_moments
from numpyro import deterministic, factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan
from oracles_of_strangers import chain_sum, close, given_others, log_sum, norm
from rare_pairs import COV, block, walk
from scipy.special import gammaln

import probml
from first_cases import case, share

KIND, LOSS = np.array([0.5, 0.3, 0.2]), np.array([[0.0, 1, 4], [2, 0, 1], [3, 2, 0.0]])


def loglik(fit, data):
    """The draws' log likelihoods, (draws, rows), and the draws of each parameter."""
    tree = fit.to_arviz(data)
    found = next(iter(tree.log_likelihood.data_vars.values()))
    drawn = {name: np.asarray(value).reshape(-1, *np.shape(value)[2:])
             for name, value in tree.posterior.data_vars.items()}
    return np.asarray(found).reshape(-1, np.shape(found)[-1]), drawn


def emissions(y, mean, sd=1.0):
    return np.where(np.isnan(y)[..., None], 0.0, norm.logpdf(np.nan_to_num(y)[..., None], mean, sd))


# ---- chains of discrete states --------------------------------------------------------------------


@probml.model
def patients(unit, boost, ok, heat):
    """heat is (n, t)."""
    with plate("units", 2):
        a = sample("a", dist.Normal(0.0, 1.0))
    with probml.rows():
        kind = sample("kind", dist.Categorical(jnp.array(KIND)))
        factor("boosted", boost * kind)
        with plate("items", 2):
            sample("q", dist.Bernoulli(0.2 + 0.3 * kind))
        with handlers.mask(mask=ok):
            sample("t", dist.TruncatedNormal(1.0 * kind, 1.0, low=0.0))
        u = sample("u", dist.Normal(1.0 * kind, 1.0))
        sample("x", dist.Normal(u, 1.0))
        z = sample("z", chain())
        sample("y", dist.Normal(2.0 * z + 0.5 * heat + (a[unit] + kind)[..., None], 1.0).to_event(1))


def of_patients(steps=3):
    r = np.random.default_rng(1)
    y = r.normal(size=(3, steps)) + 1
    y[1, 1] = np.nan
    return {"unit": ["west", "east", "west"], "boost": np.array([0.5, -0.3, 0.0]),
            "ok": np.array([True, False, True]), "heat": r.normal(size=(3, steps)),
            "q": np.array([[1.0, np.nan], [0, 1], [1, 1]]), "t": np.array([0.4, 9.0, 1.5]),
            "x": np.array([0.2, 1.5, np.nan]), "y": y,
            "kind": np.array([[0.7, 0.2, 0.1], [1.0, 1.0, 0.3], [1.0, 1.0, 1.0]])}


A = np.array([1.0, -1.0])  # of east, west


def patients_by_hand(data, effects, later=None):
    """(log p(row, kind), p(z | row, kind)); with `later` inputs, of the steps that follow as well."""
    k = np.arange(3)
    like = np.log(KIND * data["kind"]) + data["boost"][:, None] * k
    for j in range(2):
        q = data["q"][:, j, None]
        like += np.where(np.isnan(q), 0.0, st.bernoulli.logpmf(np.nan_to_num(q), 0.2 + 0.3 * k))
    t = data["t"][:, None]
    like += np.where(data["ok"][:, None], norm.logpdf(t, k) - norm.logcdf(k), 0.0)
    x = data["x"][:, None]
    like += np.where(np.isnan(x), 0.0, norm.logpdf(np.nan_to_num(x), k, np.sqrt(2)))
    y, heat, states = data["y"], data["heat"], []
    if later is not None:
        y = np.hstack([y, np.full(later.shape, np.nan)])
        heat = np.hstack([heat, later])
    for i in range(len(y)):
        sums = [chain_sum(emissions(y[i], 0.5 * heat[i][:, None] + effects[i] + kind + 2.0 * np.arange(2)),
                          INITIAL, TRANSITION) for kind in k]
        like[i] += [s[0] for s in sums]
        states.append([s[1] for s in sums])
    return like, np.array(states)


@case("forecast × effect of a group, latent number, plate in rows, factor, mask, truncated, label "
      "probabilities, float32, inputs along time; table, decide, new groups of the same")
def patients_asked():
    data, k = of_patients(), np.arange(3)
    later = np.random.default_rng(2).normal(size=(3, 2))  # heat of (n, t) later steps
    with jax.enable_x64(False):
        fit = patients().at({"a": A}, labels={"unit": ("east", "west")})
        ahead = fit.forecast(data, steps=2, heat=later)["y"]
        act = fit.decide(data, "kind", loss=LOSS)
        new = fit.predict_proba({**data, "unit": ["north", "east", "south"]}, "kind", unknown="new")
        tables = fit.table("kind"), fit.table("z")
        value = fit.predict({**data, "x": np.full(3, np.nan)}, "x")
    effects = np.array([-1.0, 1.0, -1.0])
    like, states = patients_by_hand(data, effects, later)
    p = share(np.exp(like))
    mean = (0.5 * later + effects[:, None])[:, None] + k[:, None] + 2 * states[:, :, 3:, 1]
    close(ahead, np.einsum("nk,nkt->nt", p, mean), "forecast")
    close(act, (p @ LOSS).argmin(1), "decide")
    close(new, share(np.exp(patients_by_hand(data, np.array([0.0, 1.0, 0.0]))[0])), "new groups")
    close(tables[0].to_numpy(), [KIND], "table of kind")
    close(tables[1].to_numpy(), TRANSITION, "table of z")
    like, _ = patients_by_hand({**data, "x": np.full(3, np.nan)}, effects)
    close(value, share(np.exp(like)) @ k, "x of a patient")


@case("matrix parameter, Dirichlet in rows, discrete outside rows × forecast, decode, decide, table; "
      "weights × forecast, new groups; Gaussian chain × table, decide, new groups")
def herds():
    def growth(unit, x, total):
        strain = sample("strain", dist.Bernoulli(0.3))
        w = jnp.array([0.5, -0.4])
        with plate("units", 2):
            a = sample("a", dist.Normal(0.0, 1.0))
        with probml.rows():
            kind = sample("kind", dist.Bernoulli(0.2 + 0.5 * strain))
            sample("v", dist.MultivariateNormal(1.0 * kind[..., None] * jnp.ones(2),
                                                covariance_matrix=jnp.array(COV)))
            p = sample("p", dist.Dirichlet(jnp.array([[1.0, 2.0, 3.0], [4.0, 1.0, 1.0]])[kind]))
            sample("count", dist.Multinomial(total, p))
            z = sample("z", walk())
            mean = x @ w + a[unit] + kind
            sample("y", dist.Normal(mean[..., None] + z[..., 0], 0.5).to_event(1))

    r = np.random.default_rng(3)
    n, alpha = 4, np.array([[1.0, 2.0, 3.0], [4.0, 1.0, 1.0]])
    x, v, y = r.normal(size=(n, 2)), r.normal(size=(n, 2)), r.normal(size=(n, 3))
    v[1, 0], y[2, 1] = np.nan, np.nan
    count = np.array([[1, 2, 3], [5, 0, 1], [0, 0, 2], [2, 2, 0]])
    data = {"unit": ["e", "w", "e", "w"], "x": x, "total": count.sum(1), "v": v, "count": count, "y": y}
    cov = walk_moments(5, 1.0, 0.3) + 0.25 * np.eye(5)
    wide = np.hstack([y, np.full((n, 2), np.nan)])

    def by_hand(strain, effects):
        """(log p(row, kind), mean of the two steps that follow, given kind)"""
        like, ahead = np.zeros((n, 2)), np.zeros((n, 2, 2))
        for i in range(n):
            for k in range(2):
                at, a = ~np.isnan(v[i]), alpha[k] + count[i]
                like[i, k] = st.bernoulli.logpmf(k, 0.2 + 0.5 * strain) + st.multivariate_normal.logpdf(
                    v[i, at], np.full(at.sum(), k), COV[np.ix_(at, at)])
                like[i, k] += (gammaln(count[i].sum() + 1) - gammaln(count[i] + 1).sum() + gammaln(a).sum()
                               - gammaln(a.sum()) - gammaln(alpha[k]).sum() + gammaln(6.0))
                mean = np.full(5, x[i] @ [0.5, -0.4] + effects[i] + k)
                at = ~np.isnan(wide[i])
                like[i, k] += st.multivariate_normal.logpdf(wide[i, at], mean[at], cov[np.ix_(at, at)])
                ahead[i, k] = given_others(mean, cov, wide[i], [3, 4])[0]
        return like, ahead

    effects = np.array([0.6, -0.7, 0.6, -0.7])
    fixed = probml.model(handlers.condition(growth, data={"strain": jnp.array(1)}))()
    fit = fixed.at({"a": effects[:2]}, labels={"unit": ("e", "w")})
    like, ahead = by_hand(1, effects)
    p = share(np.exp(like))
    close(fit.forecast(data, steps=2)["y"], np.einsum("nk,nkt->nt", p, ahead), "forecast")
    close(fit.decode(data)["kind"], p.argmax(1), "decode")
    close(fit.decide(data, "kind", loss=[[0, 1], [5, 0]]), (p @ [[0, 1], [5, 0]]).argmin(1), "decide")
    close(fit.table("kind", data).to_numpy(), [[0.3, 0.7]], "table")
    like, _ = by_hand(1, np.zeros(n))
    got = fit.predict_proba({**data, "unit": ["n", "s", "n", "s"]}, "kind", unknown="new")
    close(got, share(np.exp(like)), "new groups")
    weights = np.array([1, 2, 1, 3])
    fit = probml.model(growth)().fit(data, probml.MAP(), weights=weights)
    close(fit.table("kind").to_numpy(), [[0.8, 0.2], [0.3, 0.7]], "table of kind")
    close(fit.table("strain").to_numpy(), [[0.7, 0.3]], "table of strain")
    a = np.asarray(fit.params["a"])[[0, 1, 0, 1]]
    both = [by_hand(s, a) for s in range(2)]
    logs = np.log([0.7, 0.3]) + [weights @ np.logaddexp.reduce(b[0], 1) for b in both]
    posterior = np.exp(logs - log_sum(*logs))
    mean = sum(q * np.einsum("nk,nkt->nt", share(np.exp(b[0])), b[1])
               for q, b in zip(posterior, both, strict=True))
    close(fit.forecast(data, steps=2)["y"], mean, "forecast of a weighted fit", atol=0.02)
    blank = {"unit": ["n"], "x": x[:1], "total": [4], "y": np.full((1, 3), np.nan)}
    value = fit.predict(blank, "v", unknown="new")
    close(value[0], np.full(2, posterior @ [0.2, 0.7]), "v of a new unit")


@case("Gaussian chain, mask, float32, inputs along time × compare, to_arviz; mask × merge, update")
def levels():
    """heat and ok are (n, t)."""
    @probml.model
    def stations(heat, ok):
        b = sample("b", dist.Normal(0.0, 1.0))
        with probml.rows():
            z = sample("z", walk())
            sample("y", dist.Normal(z[..., 0] + b * heat, 0.5).to_event(1))
            with handlers.mask(mask=ok):
                sample("n", dist.Poisson(jnp.exp(0.5 * b)))

    r = np.random.default_rng(4)
    heat, ok, n = r.normal(size=(5, 4)), r.random(5) < 0.6, r.poisson(1.3, 5)
    y = 0.7 * heat + r.normal(size=(5, 4))
    y[0, 2], n[~ok] = np.nan, 50
    cov = walk_moments(4, 1.0, 0.3) + 0.25 * np.eye(4)

    def rows(b):
        log = np.where(ok, st.poisson.logpmf(n, np.exp(0.5 * b)), 0.0)
        for i in range(5):
            at = ~np.isnan(y[i])
            log[i] += st.multivariate_normal.logpdf(y[i, at], b * heat[i, at], cov[np.ix_(at, at)])
        return log

    data = {"heat": heat, "ok": ok, "y": y, "n": n}
    with jax.enable_x64(False):
        point = stations().fit(data, probml.MAP())
        table = probml.compare({"point": point}, data)
        got, drawn = loglik(stations().fit(data, probml.Laplace()), data)
    close(table.loc["point", "loglik"], rows(float(point.params["b"])).sum(), "loglik")
    close(table.loc["point", "parameters"], 1, "degrees of freedom")
    for i in range(0, len(got), len(got) // 5):
        close(got[i], rows(float(drawn["b"][i])), "log likelihood of a draw", atol=5e-3)
    grid = np.linspace(-3, 4, 2001)
    w = np.array([rows(b).sum() + norm.logpdf(b) for b in grid])
    w = share(np.exp(w - w.max()))
    close(drawn["b"].mean(), w @ grid, "mean of b", atol=0.03)


@case("truncated, Dirichlet in rows, matrix parameter × to_arviz, interval, decide; deterministic × "
      "table, decide")
def soils():
    @probml.model
    def plots(total):
        b = sample("b", dist.Normal(0.0, 1.0))
        with probml.rows():
            kind = sample("kind", dist.Bernoulli(0.4))
            p = sample("p", dist.Dirichlet(jnp.exp(b * kind)[..., None] * jnp.ones(3)))
            sample("count", dist.Multinomial(total, p))
            t = sample("t", dist.TruncatedNormal(b + kind, 1.0, low=0.0))
            sample("v", dist.MultivariateNormal(b * jnp.ones(2), covariance_matrix=jnp.array(COV)))
            deterministic("twice", 2.0 * t + kind)

    r = np.random.default_rng(5)
    count, t, v = r.multinomial(6, [0.2, 0.3, 0.5], 6), np.abs(r.normal(size=6)), r.normal(size=(6, 2))

    def kinds(b):
        k = np.arange(2)
        a = np.exp(b * k)
        post = a[:, None] + count[:, None]
        log = (gammaln(7) - gammaln(count + 1).sum(1)[:, None] + gammaln(post).sum(2) - gammaln(
            post.sum(2)) - 3 * gammaln(a) + gammaln(3 * a))
        log = log + norm.logpdf(t[:, None], b + k) - norm.logcdf(b + k) + np.log([0.6, 0.4])
        return log + st.multivariate_normal.logpdf(v, [b, b], COV)[:, None]

    data = {"total": np.full(6, 6), "count": count, "t": t, "v": v}
    fit = plots().fit(data, probml.Laplace())
    got, drawn = loglik(fit, data)
    for i in range(0, len(got), len(got) // 5):
        close(got[i], np.logaddexp.reduce(kinds(float(drawn["b"][i])), 1), "log likelihood", atol=5e-3)
    grid = np.linspace(-3, 3, 1201)
    w = np.array([np.logaddexp.reduce(kinds(b), 1).sum() + norm.logpdf(b) for b in grid])
    w = share(np.exp(w - w.max()))
    close(drawn["b"].mean(), w @ grid, "mean of b", atol=0.04)
    right = np.logaddexp.reduce(kinds(float(fit.params["b"])), 1).sum()
    close(probml.compare({"one": fit}, data).loc["one", "loglik"], right, "loglik")
    fit = plots().at({"b": 0.3})
    p = share(np.exp(kinds(0.3)))
    loss = np.array([[0, 1.0], [1.5, 0]])
    close(fit.decide(data, "kind", loss=loss), (p @ loss).argmin(1), "decide")
    close(fit.table("kind").to_numpy(), [[0.6, 0.4]], "table")
    close(fit.predict(data, "twice"), 2 * t + p[:, 1], "twice")
    less = {**data, "v": np.full((6, 2), np.nan)}
    value, low, high = fit.predict(less, "v", interval=0.9)
    close(value, np.full((6, 2), 0.3), "v")
    close((high - low).mean(0), 3.29 * np.sqrt(np.diag(COV)), "widths", rtol=0.1)
    value, low, high = fit.predict({"total": [6], "t": t[:1], "v": v[:1]}, "count", interval=0.9)
    close(value, [[2.0, 2.0, 2.0]], "counts")


# ---- two tables -----------------------------------------------------------------------------------


@case("two tables × forecast, new groups, check, merge or update, to_arviz, table, decide")
def clinics():
    @probml.model
    def visits(patient, unit):
        b = sample("b", dist.Normal(0.0, 1.0))
        with plate("units", 2):
            a = sample("a", dist.Normal(0.0, 1.0))
        with probml.rows("patients"):
            kind = sample("kind", dist.Categorical(jnp.array(KIND)))
            sample("age", dist.Normal(b + kind, 1.0))
        with probml.rows("visits", of="patients"):
            flag = sample("flag", dist.Bernoulli(0.2 + 0.3 * kind[patient]))
            sample("pain", dist.Normal(a[unit] + 1.5 * kind[patient] + flag, 1.0))

    r = np.random.default_rng(6)
    who, unit = np.array([0, 1, 2, 1, 0]), np.array([0, 1, 1, 0, 0])
    age, pain, flag = r.normal(size=3) + 1, r.normal(size=5) + 2, np.array([0, np.nan, 1, np.nan, 0])
    soft = np.array([[1, 1, 1], [0.2, 0.7, 0.1], [0.3, 0.5, 1]])

    def kinds(b, effects):
        like = np.log(KIND * soft) + norm.logpdf(age[:, None], b + np.arange(3))
        for i, j in enumerate(who):
            pf = np.stack([0.8 - 0.3 * np.arange(3), 0.2 + 0.3 * np.arange(3)])
            each = np.log(pf) + norm.logpdf(pain[i], effects[i] + 1.5 * np.arange(3) + np.arange(2)[:, None])
            like[j] += each[int(flag[i])] if not np.isnan(flag[i]) else np.logaddexp(*each)
        return like

    def tables(names, **first):
        return {"patients": {"patient": ["p", "q", "r"], "age": age, "kind": soft, **first},
                "visits": {"patient": [("p", "q", "r")[i] for i in who], "unit": names, "pain": pain,
                           "flag": flag}}

    known = tables([("e", "w")[i] for i in unit])
    fit = visits().at({"a": A, "b": 0.4}, labels={"unit": ("e", "w")})
    p = share(np.exp(kinds(0.4, A[unit])))
    close(fit.decide(known, "kind", loss=LOSS), (p @ LOSS).argmin(1), "decide")
    close(fit.table("kind", known).to_numpy(), [KIND], "table of kind")
    new = fit.predict_proba(tables(["e", "w", "n", "n", "e"]), "kind", unknown="new")
    effects = np.array([1.0, -1.0, 0.0, 0.0, 1.0])
    close(new, share(np.exp(kinds(0.4, effects))), "new groups")
    with pytest.raises(probml.ModelError, match="has no chain, so it has no time steps to forecast"):
        fit.forecast(known)
    fit = visits().fit(known, probml.Laplace())
    close(fit.table("kind").to_numpy(), [KIND], "table of kind")
    with pytest.raises(probml.ModelError, match="'flag' has several values in each row"):
        fit.table("flag")
    got, drawn = loglik(fit, known)
    for i in range(0, len(got), len(got) // 5):
        right = np.logaddexp.reduce(kinds(float(drawn["b"][i]), drawn["a"][i][unit]), 1)
        close(got[i], right, "log likelihood of a draw", atol=5e-3)


@case("two tables, matrix parameter × check, update")
def tables_checked():
    @probml.model
    def towns(town):
        m = sample("m", dist.MultivariateNormal(jnp.zeros(2), covariance_matrix=jnp.array(COV)))
        with probml.rows("towns"):
            sample("t", dist.MultivariateNormal(m, covariance_matrix=jnp.array(COV)))
        with probml.rows("sales", of="towns"):
            sample("y", dist.Normal(m[0], 1.0))

    r = np.random.default_rng(7)
    town, t, y = ["a", "b", "a"], r.normal(size=(2, 2)), r.normal(size=3)
    data = {"towns": {"town": ["a", "b"], "t": t}, "sales": {"town": town, "y": y}}
    fit = towns().fit(data)
    more = {"towns": {"town": ["c"], "t": t[:1] + 1}, "sales": {"town": ["c", "c"], "y": y[:2]}}
    try:
        fit = fit.update(more)
        known = True
    except probml.ModelError as error:  # in words
        assert "update" in str(error) and "Traceback" not in str(error), error
        known = False
    ts, ys = (np.vstack([t, t[:1] + 1]), np.append(y, y[:2])) if known else (t, y)
    H = np.vstack([np.tile(np.eye(2), (len(ts), 1)), np.tile([1.0, 0.0], (len(ys), 1))])
    noise = block(*[COV] * len(ts), np.eye(len(ys)))
    values = np.append(ts.ravel(), ys)
    total = H @ COV @ H.T + noise
    close(fit.params["m"], COV @ H.T @ np.linalg.solve(total, values), "m", atol=0.06)
    close(towns().check(data, simulations=40).passed, True, "the certificate")


# ---- masks, pasted functions, discrete outside rows -------------------------------------------------


@case("mask × do, merge, update, to_arviz, table, decide, compare; discrete outside rows × table, decide, "
      "compare, new groups")
def tests_done():
    def clinic(unit, done):
        strain = sample("strain", dist.Bernoulli(0.3))
        with plate("units", 2):
            a = sample("a", dist.Normal(0.0, 1.0))
        with probml.rows():
            z = sample("z", dist.Categorical(jnp.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])[strain]))
            dose = sample("dose", dist.Bernoulli(0.2 + 0.3 * z))
            with handlers.mask(mask=done):
                sample("y", dist.Normal(a[unit] + 1.0 * z + dose, 1.0))

    own = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    unit, done = np.array([0, 1, 0, 1]), np.array([1, 0, 1, 1], bool)
    dose, y, k = np.array([0, 1, 1, 0]), np.array([0.3, 44.0, 2.9, 1.1]), np.arange(3)

    def kinds(strain, effects, do=False):
        like = np.log(own[strain]) + np.where(done[:, None], norm.logpdf(
            y[:, None], effects[:, None] + k + dose[:, None]), 0.0)
        return like if do else like + st.bernoulli.logpmf(dose[:, None], 0.2 + 0.3 * k)

    data = {"unit": [("e", "w")[i] for i in unit], "done": done, "dose": dose, "y": y}
    with pytest.raises(probml.ModelError, match="'strain' is discrete and summed out; fix it by"):
        probml.model(clinic)().at({"a": A, "strain": 1}, labels={"unit": ("e", "w")}).log_prob(data)
    fixed = probml.model(handlers.condition(clinic, data={"strain": jnp.array(1)}))()
    fit = fixed.at({"a": A}, labels={"unit": ("e", "w")})
    p = share(np.exp(kinds(1, A[unit])))
    close(fit.decide(data, "z", loss=LOSS), (p @ LOSS).argmin(1), "decide")
    free = probml.model(clinic)().at({"a": A}, labels={"unit": ("e", "w")})
    close(free.table("z").to_numpy(), own, "table of z")
    close(free.table("strain").to_numpy(), [[0.7, 0.3]], "table of strain")
    close(fit.table("dose").to_numpy()[:, 1], 0.2 + 0.3 * k, "table of dose")
    acted = fit.do({"dose": 1})
    less = {name: value for name, value in data.items() if name != "dose"}
    like = np.log(own[1]) + np.where(done[:, None], norm.logpdf(y[:, None], A[unit][:, None] + k + 1), 0.0)
    close(acted.predict_proba(less, "z"), share(np.exp(like)), "p(z | do(dose = 1))")
    close(acted.log_prob(less), np.logaddexp.reduce(like, 1), "log_prob after do")
    new = fit.predict_proba({**data, "unit": ["n", "n", "e", "s"]}, "z", unknown="new")
    close(new, share(np.exp(kinds(1, np.array([0, 0, 1.0, 0])))), "new groups")
    with jax.enable_x64(False):
        point = probml.model(clinic)().fit(data, probml.MAP())
        table = probml.compare({"point": point}, data)
    a = np.asarray(point.params["a"], float)[unit]
    logs = np.array([np.logaddexp.reduce(kinds(s, a), 1).sum() for s in range(2)]) + np.log([0.7, 0.3])
    close(table.loc["point", "loglik"], log_sum(*logs), "loglik")
    with pytest.raises(probml.Refusal, match="MAP.. gives a point estimate of 'a'"):
        point.to_arviz(data)


@probml.model
def counts_of_all():
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    with probml.rows():
        sample("n", dist.Poisson(rate))


@case("mask × update, merge, to_arviz")
def masked_updates():
    @probml.model
    def counts(ok):
        rate = sample("rate", dist.Gamma(2.0, 1.0))
        with probml.rows(), handlers.mask(mask=ok):
            sample("n", dist.Poisson(rate))

    n, ok = np.array([1, 40, 3, 0, 50, 2]), np.array([1, 0, 1, 1, 0, 1], bool)
    one, two = ({"ok": ok[part], "n": n[part]} for part in (slice(0, 3), slice(3, 6)))
    with pytest.raises(probml.Refusal, match="if the values to be left out are NaN in the data"):
        counts().fit(one, probml.Exact())
    first = counts().fit(one)
    for ask in (lambda: first.update(two), lambda: first.merge(counts().fit(two))):
        with pytest.raises(probml.Refusal, match="has no sufficient statistics"):
            ask()
    shape, hours = 2 + n[ok].sum(), 1 + ok.sum()
    holed = [{"ok": part["ok"] | True, "n": np.where(part["ok"], part["n"], np.nan)} for part in (one, two)]
    left, right = (counts_of_all().fit({"n": part["n"]}) for part in holed)
    for fit in (left.update({"n": holed[1]["n"]}), left.merge(right)):
        close(fit.params["rate"], shape / hours, "posterior mean")
        own = fit.posterior("rate")
        close(own.variance, shape / hours**2, "posterior variance")
    got, drawn = loglik(first, one)
    close(got[3], np.where(one["ok"], st.poisson.logpmf(one["n"], drawn["rate"][3]), 0.0), "a draw's")


def stands(unit, x, y=None):
    """A mixed model with a hidden kind, as it is pasted from NumPyro."""
    with plate("units", 3):
        a = sample("a", dist.Normal(0.0, 1.0))
    with plate("n", len(x)):
        kind = sample("kind", dist.Categorical(jnp.array(KIND)), infer={"enumerate": "parallel"})
        sample("y", dist.Normal(a[unit] + x + 2.0 * kind, 0.7), obs=y)


@case("pasted NumPyro function × forecast, new groups, check, table, decide")
def pasted_stands():
    unit, x, k = np.array([0, 1, 2, 1, 0]), np.linspace(-1, 1, 5), np.arange(3)
    y, effects = np.array([0.2, 3.9, 2.0, 0.4, 5.1]), np.array([0.3, -0.6, 1.1])
    names = [("u", "v", "w")[i] for i in unit]
    data = {"unit": names, "x": x, "y": y}
    model = probml.model(stands)()
    fit = model.at({"a": effects}, labels={"unit": ("u", "v", "w")})
    p = share(KIND * norm.pdf(y[:, None], (effects[unit] + x)[:, None] + 2 * k, 0.7))
    close(fit.decide(data, "kind", loss=LOSS), (p @ LOSS).argmin(1), "decide")
    close(fit.table("kind").to_numpy(), [KIND], "table")
    with pytest.raises(probml.ModelError, match="has no chain, so it has no time steps to forecast"):
        fit.forecast(data)
    p = share(KIND * norm.pdf(y[:, None], x[:, None] + 2 * k, 0.7))
    got = fit.predict_proba({**data, "unit": ["z"] * 5}, "kind", unknown="new")
    close(got, p, "a new unit at a point has its prior's mean")
    fit = model.fit(data)
    got = fit.predict({"unit": ["z"], "x": [0.5]}, "y", unknown="new", interval=0.9)
    close(got.value, [0.5 + 2 * KIND @ k], "E y of a new unit", atol=0.15)


@case("pasted NumPyro function × check")
def pasted_check():
    def line(x, y=None):
        b = sample("b", dist.Normal(0.0, 1.0))
        with plate("n", len(x)):
            sample("y", dist.Normal(b * x, 0.7), obs=y)

    x = np.linspace(-1, 2, 12)
    certificate = probml.model(line)().check({"x": x, "y": 0.5 * x}, simulations=60)
    close(certificate.passed, True, "the certificate")


# ---- a scan ---------------------------------------------------------------------------------------


def series(x, y=None):
    """x, y are (t,); z are hidden states, y what is seen of them."""
    mean = sample("mean", dist.Normal(jnp.array([0.0, 3.0]), 1.0).to_event(1))

    def step(z, now):
        own, value = now
        z = sample("z", dist.Categorical(jnp.array(TRANSITION)[z]))
        sample("y", dist.Normal(mean[z] + own, 1.0), obs=value)
        return z, None

    scan(step, 0, (x, y))


@case("scan × impute, given=, predict, joint, conditional, forecast, do, new groups, merge, table, decide")
def scan_asked():
    x, y = np.array([0.5, -0.5, 0.0, 1.0, 0.2]), np.array([0.2, 2.5, np.nan, 3.5, 0.4])
    mean = np.array([0.2, 2.8])
    fit = probml.model(series)().at({"mean": mean})
    data = {"x": x, "y": y}
    log, gamma, best = chain_sum(emissions(y, mean + x[:, None]), TRANSITION[0], TRANSITION)
    close(fit.predict_proba(data, "z"), gamma, "smoothing")
    close(fit.decode(data)["z"], best, "decode")
    drawn = np.asarray(fit.simulate(x=x, seed=3)["y"], float)
    assert np.isfinite(drawn).all() and drawn.shape == (5,)
    refused = {
        "predict": lambda: fit.predict(data, "y"), "interval": lambda: fit.predict(data, "y", interval=0.9),
        "joint": lambda: fit.joint(data, ["z"]), "conditional": lambda: fit.conditional(data, "y"),
        "impute": lambda: fit.impute(data),
        "forecast": lambda: fit.forecast(data, 2), "new groups": lambda: fit.log_prob(data, unknown="new"),
        "merge": lambda: fit.merge(fit), "table": lambda: fit.table("z"),
        "decide": lambda: fit.decide(data, "z"), "given=": lambda: fit.simulate(given=data),
    }
    said = "has no site|cannot be analysed|independent rows|has no chain|one density|one joint density|without data|at\\(\\)"
    for question, ask in refused.items():
        with pytest.raises((probml.Refusal, probml.ModelError), match=said):
            ask()
            print(question)


@case("scan × do, check, evidence")
def scan_checked():
    def path(x, y=None):
        b = sample("b", dist.Normal(0.0, 1.0))

        def step(z, now):
            own, value = now
            z = sample("z", dist.Normal(0.8 * z + b * own, 0.5))
            sample("y", dist.Normal(z, 0.5), obs=value)
            return z, None

        scan(step, 0.0, (x, y))

    r = np.random.default_rng(9)
    x = r.normal(size=6)
    power = np.tril(0.8 ** np.clip(np.subtract.outer(np.arange(6), np.arange(6)), 0, None))
    y = 0.7 * power @ x + r.normal(size=6) / 2
    H, total = power @ x, 0.25 * power @ power.T + 0.25 * np.eye(6)
    v = 1 / (1 + H @ np.linalg.solve(total, H))
    m = v * H @ np.linalg.solve(total, y)
    model = probml.model(path)()
    fit = model.fit({"x": x, "y": y})
    drawn = fit.draws(4000)["b"]
    close([drawn.mean(), drawn.std()], [m, np.sqrt(v)], "b", atol=0.02)
    close(fit.log_evidence, st.multivariate_normal.logpdf(y, np.zeros(6), total + np.outer(H, H)),
          "log evidence", atol=0.05)
    with pytest.raises(probml.ModelError, match="no such site inside rows"):
        fit.do({"b": 2.0})
    acted = model.at({"b": 2.0})
    many = np.stack([acted.simulate(x=x, seed=s)["y"] for s in range(12)])
    close(many.mean(0), 2.0 * H, "simulated", atol=1.0)
    with pytest.raises(probml.Refusal, match="no plate of independent rows"):
        model.check({"x": x, "y": y}, simulations=40)
