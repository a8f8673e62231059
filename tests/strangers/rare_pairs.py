"""Pairs of mechanisms that no test had tried on 30 November (`testing/coverage.py --never`), three or
four of them in one function. Written before any of them was run. Oracles: closed forms and sums over
all states, NumPyro's own density.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from more_cases import INITIAL, TRANSITION, chain, walk_moments
from numpyro import factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan
from oracles_of_strangers import chain_sum, close, joint_states, log_sum, norm
from scipy.special import gammaln

import plain_numpyro
import probml
from first_cases import case, share

YEAR, UNIT = np.array([0, 1, 2, 3, 3, 1, 0, 2]), np.array([0, 1, 2, 0, 1, 2, 1, 0])
LEVEL = np.array([0.3, -0.2, 0.5, 0.9])
OK = np.array([1, 1, 0, 1, 1, 0, 1, 1], bool)
Y = np.array([0.9, -0.4, 30.0, 1.9, 0.3, -20.0, 0.1, np.nan])
WALK = 0.25 * np.minimum.outer(np.arange(1, 5), np.arange(1, 5))  # of steps of standard deviation 0.5
COV = np.array([[1.0, 0.4], [0.4, 0.8]])


def walk():
    return probml.GaussianChain(jnp.zeros(1), jnp.eye(1), jnp.eye(1), 0.3 * jnp.eye(1))


def years(scanned):
    """A random walk of the years' levels; a scan outside rows() is refused, and the walk is what the
    refusal says to type."""
    def step(before, _):
        now = sample("level", dist.Normal(before, 0.5))
        return now, now

    if scanned:
        return scan(step, 0.0, None, length=4)[1]
    return sample("level", dist.GaussianRandomWalk(0.5, num_steps=4))


def unscanned(model, data):
    """The bound model with the walk, after that with the scan was refused."""
    with pytest.raises(probml.ModelError, match="scan and cond are not supported .* dist.GaussianRandomWalk"):
        model(scanned=True).fit(data)
    return model(scanned=False)


def normal_posterior(H, y, prior, noise):
    """(mean, covariance, log evidence) of numbers b, y = H b + N(0, diag noise)."""
    total = H @ prior @ H.T + np.diag(noise)
    gain = prior @ H.T @ np.linalg.inv(total)
    return gain @ y, prior - gain @ H @ prior, st.multivariate_normal.logpdf(y, np.zeros(len(y)), total)


def block(*parts):
    return np.block([[p if i == j else np.zeros((len(p), len(q))) for j, q in enumerate(parts)]
                     for i, p in enumerate(parts)])


# ---- levels by a scan, read by rows ---------------------------------------------------------------


@case("scan × effect of a group × mask × weights; interval, evidence, new groups")
def scan_effects():
    @probml.model
    def sales(year, unit, ok, scanned: bool):
        level = years(scanned)
        with plate("units", 3):
            a = sample("a", dist.Normal(0.0, 1.0))
        with probml.rows(), handlers.mask(mask=ok):
            sample("y", dist.Normal(level[year] + a[unit], 0.7))

    data, w = {"year": YEAR, "unit": UNIT, "ok": OK, "y": Y}, np.array([1, 2, 5, 1, 3, 1, 1, 2])
    at = np.repeat(np.flatnonzero(OK & ~np.isnan(Y)), w[OK & ~np.isnan(Y)])
    H = np.hstack([np.eye(4)[YEAR], np.eye(3)[UNIT]])
    m, v, log = normal_posterior(H[at], Y[at], block(WALK, np.eye(3)), np.full(len(at), 0.49))
    fit = unscanned(sales, data).fit(data, weights=w)
    drawn = fit.draws(4000)
    close(drawn["level"].mean(0), m[:4], "levels", atol=0.05)
    close(drawn["a"].std(0), np.sqrt(np.diag(v))[4:], "sd of effects", atol=0.05)
    close(fit.log_evidence, log, "log evidence", atol=0.1)
    new = {"year": [3, 3], "unit": [1, 7], "ok": [True, True]}
    h = np.array([[0, 0, 0, 1, 0, 1, 0], [0, 0, 0, 1, 0, 0, 0.0]])
    sd = np.sqrt(np.einsum("ri,ij,rj->r", h, v, h) + [0.49, 1.49])
    value, low, high = fit.predict(new, "y", interval=0.9, unknown="new")
    close(value, h @ m, "means", atol=0.15)
    close(high - low, 3.29 * sd, "widths", rtol=0.1)
    close(fit.log_prob({**new, "y": [1.0, 1.0]}, unknown="new"), norm.logpdf(1.0, h @ m, sd),
          "log_prob", atol=0.1)


@case("scan × latent number of a row × plate in rows × factor; conditional, impute")
def scan_latent():
    @probml.model
    def pupils(year, c, scanned: bool):
        level = years(scanned)
        with probml.rows():
            u = sample("u", dist.Normal(0.0, 1.0))
            factor("shrink", -0.5 * c * u**2)
            with plate("items", 2):
                sample("y", dist.Normal(level[year] + u, 0.7))

    y = np.stack([np.where(OK, Y, 0.4), np.arange(8) / 5 - 0.6], 1)
    c, there = np.linspace(0, 2, 8), ~np.isnan(y)
    data = {"year": YEAR, "c": c, "y": y}
    model = unscanned(pupils, data)
    fit = model.at({"level": LEVEL})
    precision = 1 + c + there.sum(1) / 0.49
    mean = np.nansum(y - LEVEL[YEAR][:, None], 1) / 0.49 / precision
    logs = []
    for row, k, at, level in zip(y, c, there, LEVEL[YEAR], strict=True):
        total = np.ones((at.sum(),) * 2) / (1 + k) + 0.49 * np.eye(at.sum())
        logs.append(st.multivariate_normal.logpdf(row[at], np.full(at.sum(), level), total)
                    - 0.5 * np.log(1 + k))
    close(fit.log_prob(data), logs, "log_prob")
    found = fit.conditional(data, "u")
    close(found.mean, mean, "mean of u")
    close(found.variance, 1 / precision, "variance of u")
    close(fit.impute(data)["y"][7, 0], LEVEL[2] + mean[7], "the missing item")
    fit = model.fit(data)
    rows, items = np.nonzero(there)
    H = np.hstack([np.eye(4)[YEAR], np.eye(8)])[rows]
    m, v, _ = normal_posterior(H, y[rows, items], block(WALK, np.diag(1 / (1 + c))),
                               np.full(len(rows), 0.49))
    close(fit.draws(2000)["level"].std(0), np.sqrt(np.diag(v))[:4], "sd of levels", atol=0.05)
    close(fit.params["level"], m[:4], "levels", atol=0.06)


@case("scan × Dirichlet in rows × censored or truncated × matrix parameter × discrete outside rows")
def scan_shares():
    @probml.model
    def diets(year, total, scanned: bool):
        on = sample("on", dist.Bernoulli(0.3))
        level = years(scanned)
        with probml.rows():
            p = sample("p", dist.Dirichlet(jnp.exp(level[year] + on)[..., None] * jnp.ones(3)))
            sample("count", dist.Multinomial(total, p))
            sample("t", dist.TruncatedNormal(level[year] + on, 1.0, low=0.0))
            sample("v", dist.MultivariateNormal((level[year] - on)[..., None] * jnp.ones(2),
                                                covariance_matrix=jnp.array(COV)))

    r = np.random.default_rng(1)
    count = r.multinomial(6, [0.2, 0.3, 0.5], 8)
    t, v = np.abs(r.normal(size=8)), r.normal(size=(8, 2))
    t[2], v[3, 1] = np.nan, np.nan
    logs = []
    for on in range(2):
        a = np.exp(LEVEL[YEAR] + on)[:, None] * np.ones(3)
        log = (gammaln(7) - gammaln(count + 1).sum(1) + gammaln(a + count).sum(1) - gammaln(a).sum(1)
               + gammaln(a.sum(1)) - gammaln(a.sum(1) + 6))
        mean = LEVEL[YEAR] + on
        log = log + np.where(np.isnan(t), 0, norm.logpdf(np.nan_to_num(t), mean) - norm.logcdf(mean))
        for i in range(8):
            at = ~np.isnan(v[i])
            log[i] += st.multivariate_normal.logpdf(v[i, at], np.full(at.sum(), LEVEL[YEAR[i]] - on),
                                                    COV[np.ix_(at, at)])
        logs.append(np.log([0.7, 0.3][on]) + log.sum())
    data = {"year": YEAR, "total": np.full(8, 6), "count": count, "t": t, "v": v}
    prior = norm.logpdf(np.diff(LEVEL, prepend=0.0), 0, 0.5).sum()
    close(unscanned(diets, data).log_density(data, {"level": LEVEL}), log_sum(*logs) + prior, "log density")


@case("scan × two tables; predict, impute")
def scan_tables():
    @probml.model
    def towns(town, year, scanned: bool):
        level = years(scanned)
        with probml.rows("towns"):
            rich = sample("rich", dist.Bernoulli(0.4))
        with probml.rows("sales", of="towns"):
            sample("y", dist.Normal(level[year] + 2.0 * rich[town], 0.7))

    town, y = np.array([0, 1, 2, 0, 1, 2, 1, 0]), np.where(OK, Y, 0.5)
    data = {"towns": {"town": ["a", "b", "c"]},
            "sales": {"town": [("a", "b", "c")[i] for i in town], "year": YEAR, "y": y}}
    like = np.zeros((3, 2))
    for i in range(8):
        if not np.isnan(y[i]):
            like[town[i]] += norm.logpdf(y[i], LEVEL[YEAR[i]] + 2.0 * np.arange(2), 0.7)
    like = np.exp(like) * [0.6, 0.4]
    model = unscanned(towns, data)
    fit = model.at({"level": LEVEL})
    close(fit.log_prob(data), np.log(like.sum(1)), "log_prob")
    close(fit.predict_proba(data, "rich"), share(like), "p(rich)")
    close(fit.impute(data)["y"][7], LEVEL[2] + 2 * share(like)[0, 1], "a missing sale")
    logs, means = [], []
    for rich in joint_states(2, 2, 2):
        at = ~np.isnan(y)
        shift = 2.0 * np.array(rich)[town]
        m, _, log = normal_posterior(np.eye(4)[YEAR][at], (y - shift)[at], WALK, np.full(7, 0.49))
        logs.append(log + st.bernoulli.logpmf(rich, 0.4).sum())
        means.append(m)
    w = np.exp(np.array(logs) - log_sum(*logs))
    fit = model.fit(data)
    drawn = fit.draws(4000)["level"]
    close(drawn.mean(0), w @ np.array(means), "levels", atol=0.06)


@case("Markov chain × scan × inputs along time")
def scan_chain():
    """Each row a series (n, t); the level of a step is a random walk that all series share."""
    @probml.model
    def stations(heat, year, scanned: bool):
        level = years(scanned)
        with probml.rows():
            z = sample("z", chain())
            sample("y", dist.Normal(2.0 * z + 0.5 * heat + level[year], 0.7).to_event(1))

    r = np.random.default_rng(2)
    heat, y = r.normal(size=(3, 4)), r.normal(size=(3, 4)) + 1
    y[1, 2] = np.nan
    mean = 0.5 * heat[..., None] + LEVEL[:, None] + 2.0 * np.arange(2)
    log = np.where(np.isnan(y)[..., None], 0.0, norm.logpdf(np.nan_to_num(y)[..., None], mean, 0.7))
    right = [chain_sum(e, INITIAL, TRANSITION) for e in log]
    data = {"heat": heat, "year": np.tile(np.arange(4), (3, 1)), "y": y}
    fit = unscanned(stations, data).at({"level": LEVEL})
    close(fit.log_prob(data), [r[0] for r in right], "log_prob")
    close(fit.predict_proba(data, "z"), [r[1] for r in right], "smoothing")
    close(fit.impute(data)["y"][1, 2], right[1][1][2] @ mean[1, 2], "a missing step")


# ---- pasted functions with a scan -----------------------------------------------------------------


def panel(unit, y, ok):
    """Series of units about one walk; y and ok are (t, n)."""
    with plate("units", 3):
        a = sample("a", dist.Normal(0.0, 1.0))

    def step(x, now):
        value, good = now
        x = sample("x", dist.Normal(0.8 * x, 0.5))
        with plate("n", 4), handlers.mask(mask=good):
            sample("y", dist.Normal(x + a[unit], 0.7), obs=value)
        return x, x

    scan(step, 0.0, (y, ok))


@case("a pasted scan × effect of a group × mask × plate; evidence, interval of draws")
def pasted_panel():
    r = np.random.default_rng(3)
    unit, ok = np.array([0, 1, 2, 0]), r.random((6, 4)) < 0.7
    y = np.where(ok, r.normal(size=(6, 4)) + 0.5, 40.0)
    fit = probml.model(panel)().fit({"unit": unit, "y": y, "ok": ok})
    power = 0.8 ** np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    sd2 = np.array([0.25 * sum(0.64**k for k in range(t + 1)) for t in range(6)])
    prior = block(power * np.minimum.outer(sd2, sd2), np.eye(3))
    t, n = np.nonzero(ok)
    H = np.hstack([np.eye(6)[t], np.eye(3)[unit[n]]])
    m, v, log = normal_posterior(H, y[ok], prior, np.full(len(t), 0.49))
    close(fit.log_evidence, log, "log evidence", atol=0.1)
    drawn = fit.draws(4000)
    close(drawn["a"].mean(0), m[6:], "effects", atol=0.06)
    close(drawn["a"].std(0), np.sqrt(np.diag(v))[6:], "sd of effects", atol=0.05)


def ages(y, x, cut):
    """Ages at death along years, cut at a limit, with a covariance of two outcomes."""
    on = sample("on", dist.Bernoulli(0.3))
    root = sample("root", dist.LKJCholesky(2, 2.0))
    with plate("kinds", 2):
        p = sample("p", dist.Dirichlet(jnp.ones(3)))

    def step(u, now):
        value, own, gone = now
        u = sample("u", dist.Normal(0.7 * u + 0.5 * on, 0.6))
        sample("y", dist.MultivariateNormal(u * jnp.ones(2), scale_tril=root), obs=value)
        factor("cut", jnp.where(gone, dist.Normal(u, 1.0).log_prob(own) * 0.0
                                + jnp.log1p(-dist.Normal(u, 1.0).cdf(own)), 0.0))
        sample("t", dist.TruncatedNormal(u, 1.0, low=-1.0), obs=own)
        sample("kind", dist.Categorical(p[0]), obs=jnp.where(gone, 1, 2))
        return u, u

    scan(step, 0.0, (y, x, cut))


@case("a pasted scan × discrete outside rows × matrix parameter × factor × censored")
def pasted_ages():
    r = np.random.default_rng(4)
    y, x, cut = r.normal(size=(6, 2)), np.abs(r.normal(size=6)), r.random(6) < 0.4
    params = {"root": np.linalg.cholesky(np.array([[1, 0.3], [0.3, 1]])), "u": r.normal(size=6) / 2,
              "p": np.array([[0.2, 0.3, 0.5], [0.4, 0.4, 0.2]])}
    args = (jnp.asarray(y), jnp.asarray(x), jnp.asarray(cut))
    right = [plain_numpyro.log_density(handlers.seed(handlers.condition(ages, data={"on": jnp.array(on)}),
                                                     0), args, {}, params) for on in range(2)]
    got = probml.model(ages)().log_density({"y": y, "x": x, "cut": cut}, params)
    close(got, log_sum(*right), "log density")


# ---- chains beside what they had never stood beside ------------------------------------------------


def of_people(y, likelihoods):
    """A chain in the first table, whose kind the visits in the second tell: the data, log p(row, kind)
    and what is refused, a chain in the second."""
    data = {"people": {"person": ["p", "q"], "y": y},
            "visits": {"person": ["p", "q", "p", "p"], "x": np.array([0.4, 1.2, -0.3, np.nan])}}
    like = likelihoods + np.log([0.6, 0.4])
    for who, x in ((0, 0.4), (1, 1.2), (0, -0.3)):
        like[who] += norm.logpdf(x, np.arange(2))
    return data, like


def far_chain(own):
    @probml.model
    def weeks(person):
        with probml.rows("people"):
            kind = sample("kind", dist.Bernoulli(0.4))
        with probml.rows("weeks", of="people"):
            z = sample("z", own())
            sample("y", dist.Normal(1.0 * kind[person][..., None] + z[..., 0], 1.0).to_event(1))

    with pytest.raises(probml.ModelError, match="supported in the rows of 'people' only"):
        weeks().fit({"people": {"person": ["p"]}, "weeks": {"person": ["p", "p"], "y": np.ones((2, 3))}})


@case("two tables × Markov chain × inputs along time; forecast, table, decide")
def diaries():
    """heat is (n, t)."""
    turn = np.array([[[0.9, 0.1], [0.3, 0.7]], [[0.5, 0.5], [0.1, 0.9]]])

    @probml.model
    def people(person, heat):
        with probml.rows("people"):
            kind = sample("kind", dist.Bernoulli(0.4))
            z = sample("z", probml.MarkovChain(jnp.array(INITIAL), jnp.array(turn)[kind]))
            sample("y", dist.Normal(2.0 * z + 0.5 * heat, 1.0).to_event(1))
        with probml.rows("visits", of="people"):
            sample("x", dist.Normal(1.0 * kind[person], 1.0))

    r = np.random.default_rng(5)
    heat, y, later = r.normal(size=(2, 3)), r.normal(size=(2, 3)) + 1, r.normal(size=(2, 1))
    y[1, 1] = np.nan
    wide = np.hstack([y, [[np.nan], [np.nan]]])
    mean = 0.5 * np.hstack([heat, later])[..., None] + 2.0 * np.arange(2)
    log = np.where(np.isnan(wide)[..., None], 0.0, norm.logpdf(np.nan_to_num(wide)[..., None], mean))
    sums = [[chain_sum(e, INITIAL, t) for t in turn] for e in log]
    data, like = of_people(y, [[s[0] for s in both] for both in sums])
    data["people"]["heat"] = heat
    fit, p = people().at({}), share(np.exp(like))
    states = np.einsum("nk,nkts->nts", p, np.array([[s[1] for s in both] for both in sums]))
    close(fit.log_prob(data), np.logaddexp.reduce(like, 1), "log_prob")
    close(fit.predict_proba(data, "kind"), p, "p(kind)")
    close(fit.predict_proba(data, "z"), states[:, :3], "p(z)")
    close(fit.impute(data)["x"][3], p[0, 1], "a missing visit")
    close(fit.decide(data, "kind", loss=[[0, 1], [2, 0]]), (p @ [[0, 1], [2, 0]]).argmin(1), "decide")
    close(people().fit(data).log_prob(data), np.logaddexp.reduce(like, 1), "log_prob of a fit")
    close(fit.forecast(data, steps=1, heat=later)["y"][:, 0], (states[:, 3] * mean[:, 3]).sum(1), "forecast")
    far_chain(lambda: probml.MarkovChain(jnp.array(INITIAL), jnp.array(TRANSITION)))


@case("two tables × Gaussian chain")
def walks_of_people():
    @probml.model
    def people(person):
        with probml.rows("people"):
            kind = sample("kind", dist.Bernoulli(0.4))
            z = sample("z", walk())
            sample("y", dist.Normal(2.0 * kind[..., None] + z[..., 0], 0.5).to_event(1))
        with probml.rows("visits", of="people"):
            sample("x", dist.Normal(1.0 * kind[person], 1.0))

    y = np.array([[0.2, 0.9, 1.4], [2.5, np.nan, 1.9]])
    cov, logs = walk_moments(3, 1.0, 0.3) + 0.25 * np.eye(3), []
    for row in y:
        at = ~np.isnan(row)
        logs.append([st.multivariate_normal.logpdf(row[at], np.full(at.sum(), 2.0 * k),
                                                   cov[np.ix_(at, at)]) for k in range(2)])
    data, like = of_people(y, logs)
    fit = people().at({})
    close(fit.log_prob(data), np.logaddexp.reduce(like, 1), "log_prob")
    close(fit.predict_proba(data, "kind"), share(np.exp(like)), "p(kind)")
    far_chain(walk)


@case("Gaussian chain × factor × truncated × label probabilities")
def walk_soft():
    @probml.model
    def patients(boost):
        with probml.rows():
            kind = sample("kind", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
            factor("boosted", boost * kind)
            sample("t", dist.TruncatedNormal(1.0 * kind, 1.0, low=0.0))
            z = sample("z", walk())
            sample("y", dist.Normal(1.0 * kind[..., None] + z[..., 0], 0.5).to_event(1))

    y = np.array([[0.2, 0.9, 1.4], [1.5, np.nan, 1.9]])
    soft, boost, t = np.array([[0.7, 0.2, 0.1], [1.0, 1.0, 0.3]]), np.array([0.5, -0.3]), np.array([0.4, 2.0])
    k, cov = np.arange(3), walk_moments(3, 1.0, 0.3) + 0.25 * np.eye(3)
    like = np.log([0.5, 0.3, 0.2] * soft) + boost[:, None] * k
    like += norm.logpdf(t[:, None], k) - norm.logcdf(k)
    for i, row in enumerate(y):
        at = ~np.isnan(row)
        like[i] += [st.multivariate_normal.logpdf(row[at], np.full(at.sum(), a), cov[np.ix_(at, at)])
                    for a in k]
    fit, data = patients().at({}), {"boost": boost, "t": t, "y": y, "kind": soft}
    close(fit.log_prob(data), np.logaddexp.reduce(like, 1), "log_prob")
    close(fit.predict_proba(data, "kind"), share(np.exp(like)), "p(kind)")


@case("Dirichlet in rows × inputs along time × truncated × mask × factor")
def plots():
    """heat is (n, t), and so is the mask."""
    @probml.model
    def herbs(heat, total, ok, boost):
        with probml.rows():
            kind = sample("kind", dist.Bernoulli(0.4))
            factor("boosted", boost * kind)
            p = sample("p", dist.Dirichlet(jnp.array([[1.0, 2.0, 3.0], [4.0, 1.0, 1.0]])[kind]))
            sample("count", dist.Multinomial(total, p))
            sample("t", dist.TruncatedNormal(1.0 * kind, 1.0, low=0.0))
            z = sample("z", chain())
            mean = 2.0 * z + 0.5 * heat + kind[..., None]
            sample("y", dist.Normal(mean, 1.0).mask(ok).to_event(1))

    r = np.random.default_rng(6)
    heat, y, ok = r.normal(size=(3, 4)), r.normal(size=(3, 4)) + 1, r.random((3, 4)) < 0.6
    y[0, 0], y[~ok], t = np.nan, 50.0, np.array([0.3, np.nan, 1.2])
    count, boost = np.array([[1, 2, 3], [5, 0, 1], [0, 0, 2]]), np.array([0.5, -1.0, 0.0])
    total, alpha = count.sum(1), np.array([[1.0, 2.0, 3.0], [4.0, 1.0, 1.0]])
    like = np.zeros((3, 2))
    for k in range(2):
        a = alpha[k] + count
        log = (gammaln(total + 1) - gammaln(count + 1).sum(1) + gammaln(a).sum(1)
               - gammaln(a.sum(1)) - gammaln(alpha[k]).sum() + gammaln(6.0))
        log += np.where(np.isnan(t), 0, norm.logpdf(np.nan_to_num(t), k) - norm.logcdf(k))
        mean = 0.5 * heat[..., None] + 2.0 * np.arange(2) + k
        there = (ok & ~np.isnan(y))[..., None]
        each = np.where(there, norm.logpdf(np.nan_to_num(y)[..., None], mean), 0.0)
        like[:, k] = np.log([0.6, 0.4][k]) + k * boost + log + [chain_sum(e, INITIAL, TRANSITION)[0] for e in each]
    data = {"heat": heat, "total": total, "ok": ok, "count": count, "t": t, "y": y,
            "boost": boost}
    fit = herbs().at({})
    close(fit.log_prob(data), np.logaddexp.reduce(like, 1), "log_prob")
    close(fit.predict_proba(data, "kind"), share(np.exp(like)), "p(kind)")


@case("discrete outside rows × inputs along time × mask")
def strain():
    """heat is (n, t); one discrete number is common to all rows."""
    @probml.model
    def herds(heat, ok):
        strain = sample("strain", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
        with probml.rows():
            z = sample("z", chain())
            mean = 2.0 * z + heat * (strain - 1.0)
            sample("y", dist.Normal(mean, 1.0).mask(ok).to_event(1))

    r = np.random.default_rng(7)
    heat, y, ok = r.normal(size=(3, 4)), r.normal(size=(3, 4)) + 1, r.random((3, 4)) < 0.6
    y[~ok] = -30.0

    def sums(rows, s):
        mean = (heat * (s - 1.0))[rows][..., None] + 2.0 * np.arange(2)
        log = np.where(ok[rows][..., None], norm.logpdf(y[rows][..., None], mean), 0.0)
        return np.array([chain_sum(e, INITIAL, TRANSITION)[0] for e in log])

    logs = np.log([0.2, 0.5, 0.3]) + [sums(slice(0, 2), s).sum() for s in range(3)]
    fit = herds().fit({"heat": heat[:2], "ok": ok[:2], "y": y[:2]})
    close(fit.log_evidence, log_sum(*logs), "log evidence")
    p = np.exp(logs - log_sum(*logs))
    new = {"heat": heat[2:], "ok": ok[2:], "y": y[2:]}
    close(fit.log_prob(new), [np.log(sum(p[s] * np.exp(sums(slice(2, 3), s)[0]) for s in range(3)))],
          "log_prob of a new row")


# ---- masks, two tables, matrices, float32 ----------------------------------------------------------


@case("mask × discrete outside rows × weights × float32 × vector by a matrix")
def masked_on():
    @probml.model
    def columns(x, ok):
        with plate("columns", 2):
            on = sample("on", dist.Bernoulli(0.3))
        w = sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with probml.rows(), handlers.mask(mask=ok):
            sample("y", dist.Normal((x * on) @ w, 0.7))

    r = np.random.default_rng(8)
    x, weights = r.normal(size=(8, 2)), np.array([1, 2, 5, 1, 3, 1, 1, 2])
    y, at = Y.copy(), np.repeat(*(a[OK & ~np.isnan(Y)] for a in (np.arange(8), weights)))
    logs, means, covs = [], [], []
    for on in joint_states(2, 2):
        m, v, log = normal_posterior((x * on)[at], y[at], np.eye(2), np.full(len(at), 0.49))
        logs.append(log + st.bernoulli.logpmf(on, 0.3).sum())
        means.append(m)
        covs.append(v + np.outer(m, m))
    p = np.exp(np.array(logs) - log_sum(*logs))
    with jax.enable_x64(False):
        fit = columns().fit({"x": x, "ok": OK, "y": y}, weights=weights)
        drawn = fit.draws(4000)
    mean = p @ np.array(means)
    sd = np.sqrt(np.diag(np.tensordot(p, covs, 1) - np.outer(mean, mean)))
    close(drawn["w"].mean(0), mean, "w", atol=0.07)
    close(drawn["w"].std(0), sd, "sd of w", atol=0.06)
    close(fit.log_evidence, log_sum(*logs), "log evidence", atol=0.1)


@case("factor × float32 × mask × effect of a group")
def far_factor():
    @probml.model
    def shops(unit, ok, c):
        with plate("units", 3):
            a = sample("a", dist.Normal(0.0, 1e4))
        with probml.rows():
            z = sample("z", dist.Bernoulli(0.3))
            factor("open", c * z)
            with handlers.mask(mask=ok):
                sample("y", dist.Normal(a[unit] + 2e4 * z, 1e4))

    a, c, y = np.array([1e6, 1.01e6, 0.98e6]), np.linspace(-2, 2, 8), 1e6 + 1e4 * np.arange(8.0)
    mean = a[UNIT][:, None] + 2e4 * np.arange(2)
    like = np.log([0.7, 0.3]) + c[:, None] * np.arange(2) + np.where(
        OK[:, None], norm.logpdf(y[:, None], mean, 1e4), 0.0)
    with jax.enable_x64(False):
        fit, data = shops().at({"a": a}), {"unit": UNIT, "ok": OK, "c": c, "y": y}
        close(fit.log_prob(data), np.logaddexp.reduce(like, 1), "log_prob")
        close(fit.predict_proba(data, "z"), share(np.exp(like)), "p(z)")


@case("mask × two tables × discrete outside rows × matrix parameter × label probabilities × float32")
def wards():
    @probml.model
    def outbreak(patient, ok):
        strain = sample("strain", dist.Bernoulli(0.3))
        with probml.rows("patients"):
            kind = sample("kind", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
            sample("age", dist.Normal(1.0 * kind + strain, 1.0))
        with probml.rows("visits", of="patients"):
            mean = (kind[patient] - 1.0 * strain)[..., None] * jnp.array([1.0, 0.5])
            with handlers.mask(mask=ok):
                sample("v", dist.MultivariateNormal(mean, covariance_matrix=jnp.array(COV)))

    r = np.random.default_rng(9)
    who, ok, v = np.array([0, 1, 2, 1, 0]), np.array([1, 0, 1, 1, 1], bool), r.normal(size=(5, 2))
    v[1], age, soft = 40.0, np.array([0.3, np.nan, 2.0]), np.array([[1, 1, 1], [0.2, 0.7, 0.1], [0, 0.5, 1]])
    data = {"patients": {"patient": ["a", "b", "c"], "age": age, "kind": soft},
            "visits": {"patient": [("a", "b", "c")[i] for i in who], "ok": ok, "v": v}}
    logs, each = [], []
    for s in range(2):
        with np.errstate(divide="ignore"):
            like = np.log([0.5, 0.3, 0.2] * soft)
        like += np.where(np.isnan(age)[:, None], 0, norm.logpdf(np.nan_to_num(age)[:, None],
                                                                np.arange(3) + s))
        for i, row, good in zip(who, v, ok, strict=True):
            like[i] += [good * st.multivariate_normal.logpdf(row, (k - s) * np.array([1, 0.5]), COV)
                        for k in range(3)]
        logs.append(np.log([0.7, 0.3][s]) + np.logaddexp.reduce(like, 1).sum())
        each.append(share(np.exp(like)))
    with jax.enable_x64(False):
        fit = outbreak().fit(data)
        close(fit.log_evidence, log_sum(*logs), "log evidence")


@case("censored × matrix parameter × mixture × missing cells")
def cut_pairs():
    @probml.model
    def seeds(dead):
        with probml.rows():
            kind = sample("kind", dist.Bernoulli(0.4))
            sample("v", dist.MultivariateNormal(2.0 * kind[..., None] * jnp.ones(2),
                                                covariance_matrix=jnp.array(COV)))
            own = dist.Exponential(jnp.array([1.0, 0.3])[kind])
            t = sample("t", own)
            factor("censored", jnp.where(dead, 0.0, jnp.log1p(-own.cdf(t)) - own.log_prob(t)))

    dead, t = np.array([1, 0, 1], bool), np.array([0.4, 2.0, 3.0])
    v = np.array([[0.1, np.nan], [2.0, 1.0], [np.nan, np.nan]])
    rate, like = np.array([1.0, 0.3]), np.log([[0.6, 0.4]] * 3)
    like += np.where(dead[:, None], np.log(rate), 0.0) - rate * t[:, None]
    for i, row in enumerate(v):
        at = ~np.isnan(row)
        if at.any():
            like[i] += [st.multivariate_normal.logpdf(row[at], np.full(at.sum(), 2.0 * k),
                                                      COV[np.ix_(at, at)]) for k in range(2)]
    fit, data = seeds().at({}), {"dead": dead, "t": t, "v": v}
    close(fit.log_prob(data), np.logaddexp.reduce(like, 1), "log_prob")
    close(fit.predict_proba(data, "kind"), share(np.exp(like)), "p(kind)")


@case("two tables × a parameter that obs= fixes")
def fixed_tables():
    @probml.model
    def towns(town):
        s = sample("s", dist.HalfNormal(1.0), obs=0.5)
        m = sample("m", dist.Normal(0.0, 2.0))
        with probml.rows("towns"):
            u = sample("u", dist.Normal(m, 1.0))
        with probml.rows("sales", of="towns"):
            sample("y", dist.Normal(u[town], s))

    town, y = np.array([0, 1, 0, 2]), np.array([0.3, 1.5, 0.9, -0.4])
    data = {"towns": {"town": ["a", "b", "c"]}, "sales": {"town": ["a", "b", "a", "c"], "y": y}}
    H = np.hstack([np.ones((4, 1)), np.eye(3)[town]])
    m, v, log = normal_posterior(H, y, block(4 * np.eye(1), np.eye(3)), np.full(4, 0.25))
    fit = towns().fit(data)
    close(fit.params["m"], m[0], "m", atol=0.06)
    close(fit.log_evidence, log + st.halfnorm.logpdf(0.5), "log evidence", atol=0.06)
    drawn = fit.draws(4000)["m"]
    close(drawn.std(), np.sqrt(v[0, 0]), "sd of m", atol=0.05)
