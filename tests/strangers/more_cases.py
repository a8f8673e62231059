"""The second half of the cases: chains, censored rows, vectors, matrices, labels, weights, comparisons."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import scipy.special as sp
import scipy.stats as st
from numpyro import deterministic, factor, handlers, plate, sample
from oracles_of_strangers import (
    chain_log,
    chain_sum,
    close,
    given_others,
    grid_mean,
    joint_states,
    log_sum,
    mixture_quantile,
    norm,
    normal_mean,
    paths,
)

import probml
from first_cases import back, case, share

INITIAL, TRANSITION = np.array([0.6, 0.4]), np.array([[0.9, 0.1], [0.3, 0.7]])


def chain():
    return probml.MarkovChain(jnp.array(INITIAL), jnp.array(TRANSITION))


# ---- chains ---------------------------------------------------------------------------------------


@case("Markov chain × censored")
def chain_censored():
    @probml.model
    def limits(censored):
        with probml.rows():
            z = sample("z", chain())
            m = jnp.array([0.0, 2.0])[z]
            y = sample("y", dist.Normal(m, 1.0).to_event(1))
            factor("limit", jnp.where(censored, dist.Normal(m, 1.0).log_prob(y) * -1
                                      + jnp.log1p(-dist.Normal(m, 1.0).cdf(y)), 0.0).sum(-1))

    y = np.array([[0.1, 2.0, 2.0, -0.4], [2.0, 1.0, 2.0, 0.0]])
    censored = np.array([[0, 1, 1, 0], [1, 0, 0, 0]], bool)
    fit = limits().at({})
    emission = np.where(censored[..., None], norm.logsf(y[..., None], [0.0, 2.0]),
                        norm.logpdf(y[..., None], [0.0, 2.0]))
    right = [chain_sum(e, INITIAL, TRANSITION) for e in emission]
    close(fit.log_prob({"censored": censored, "y": y}), [r[0] for r in right], "log_prob")
    close(fit.predict_proba({"censored": censored, "y": y}, "z"), [r[1] for r in right], "smoothing")


@case("Markov chain × effect of a group × new groups")
def chain_groups():
    @probml.model
    def animals(herd):
        with plate("herds", 2):
            a = sample("a", dist.Normal(0.0, 1.0))
        with probml.rows():
            z = sample("z", chain())
            sample("y", dist.Normal(a[herd][..., None] + 3.0 * z, 1.0).to_event(1))

    fit = animals().at({"a": np.array([1.0, -1.0])}, labels={"herd": ("east", "west")})
    y = np.array([[0.5, 3.0, np.nan, 1.9], [-1.0, 0.4, 2.2, 2.5]])
    right = [chain_sum(np.where(np.isnan(r)[:, None], 0.0, norm.logpdf(
        r[:, None], a + 3.0 * np.arange(2))), INITIAL, TRANSITION)
        for r, a in zip(y, (-1.0, 1.0), strict=True)]
    data = {"herd": ["west", "east"], "y": y}
    close(fit.log_prob(data), [r[0] for r in right], "log_prob")
    close(fit.impute(data)["y"][0, 2], -1.0 + 3.0 * right[0][1][2, 1], "missing step")
    new = chain_sum(np.where(np.isnan(y[0])[:, None], 0.0, norm.logpdf(
        y[0][:, None], 0.0 + 3.0 * np.arange(2))), INITIAL, TRANSITION)
    got = fit.predict_proba({"herd": ["south"], "y": y[:1]}, "z", unknown="new")
    close(got, [new[1]], "a new herd at a point has its prior's mean")


@case("Markov chain × compare")
def chain_compare():
    @probml.model
    def rolls(k: int):
        initial = sample("initial", dist.Dirichlet(jnp.ones(k)))
        with plate("states", k):
            transition = sample("transition", dist.Dirichlet(jnp.ones(k)))
            face = sample("face", dist.Dirichlet(jnp.ones(3)))
        with probml.rows():
            z = sample("z", probml.MarkovChain(initial, transition))
            sample("roll", dist.Categorical(face[z]).to_event(1))

    face = np.array([[0.6, 0.2, 0.2], [0.1, 0.1, 0.8]])
    point = {"initial": INITIAL, "transition": TRANSITION, "face": face}
    roll = np.array([[0, 0, 2, 1], [2, 2, 2, 0], [1, 0, 0, 0]])
    fit = rolls(k=2).fit({"roll": roll}, probml.EM(restarts=1, max_iterations=1), start=point)
    point = {name: np.asarray(value, float) for name, value in fit.params.items()}
    table = probml.compare({"two": fit}, {"roll": roll})
    face = point["face"]
    total = sum(chain_sum(np.log(face[:, r]).T, point["initial"], point["transition"])[0] for r in roll)
    close(table.loc["two", "loglik"], total, "loglik")
    close(table.loc["two", "parameters"], 1 + 2 + 4, "degrees of freedom")
    close(table.loc["two", "bic"], -2 * total + 7 * np.log(12), "BIC of steps")


@case("Markov chain × plate in rows, text labels")
def chain_plate():
    @probml.model
    def moods():
        with probml.rows():
            z = sample("z", chain())
            s = sample("s", dist.Bernoulli(0.5))
            sample("x", dist.Normal(2.0 * z + s[..., None], 1.0).to_event(1))
            with plate("questions", 2):
                sample("q", dist.Bernoulli(0.2 + 0.5 * s))

    x, q = np.array([[0.2, 2.9, 2.5]]), np.array([[1.0, np.nan]])
    fit = moods().at({})
    logs = []
    for s in range(2):
        log, gamma, _ = chain_sum(norm.logpdf(x[0][:, None], 2.0 * np.arange(2) + s), INITIAL,
                                  TRANSITION)
        logs.append((log + np.log(0.5) + np.log(0.2 + 0.5 * s), gamma))
    ps = share(np.exp([log for log, _ in logs]))
    data = {"x": x, "q": q}
    close(fit.log_prob(data), [np.logaddexp(logs[0][0], logs[1][0])], "log_prob")
    close(fit.predict_proba(data, "s"), [ps], "p(s)")
    close(fit.predict_proba(data, "z")[0], ps[0] * logs[0][1] + ps[1] * logs[1][1], "p(z)")
    close(fit.predict_proba(data, "q")[0, 1, 1], 0.2 + 0.5 * ps[1], "p(the question not asked)")


@case("Markov chain × label probabilities of a row")
def chain_soft():
    @probml.model
    def phones():
        with probml.rows():
            who = sample("who", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
            z = sample("z", chain())
            sample("y", dist.Normal(3.0 * z + jnp.array([0.0, 1.0, -1.0])[who][..., None],
                                    1.0).to_event(1))

    y, soft = np.array([[0.3, 3.5, 1.0]]), np.array([[0.1, 0.8, 0.5]])
    logs = np.array([np.log([0.5, 0.3, 0.2][w] * soft[0, w]) + chain_sum(
        norm.logpdf(y[0][:, None], 3.0 * np.arange(2) + (0.0, 1.0, -1.0)[w]), INITIAL,
        TRANSITION)[0] for w in range(3)])
    fit = phones().at({})
    close(fit.log_prob({"who": soft, "y": y}), [np.logaddexp.reduce(logs)], "log_prob")
    close(fit.predict_proba({"who": soft, "y": y}, "who"), [share(np.exp(logs))], "p(who)")


@case("inputs along time × predict, interval, forecast")
def time_inputs():
    @probml.model
    def sales(price):
        with probml.rows():
            z = sample("z", chain())
            sample("sold", dist.Poisson(jnp.exp(1.0 + z - 0.5 * price)).to_event(1))

    price = np.array([[0.0, 1.0, 0.5, 2.0]])
    sold = np.array([[3.0, 1.0, np.nan, 4.0]])
    rate = np.exp(1.0 + np.arange(2) - 0.5 * price[0][:, None])
    emission = np.where(np.isnan(sold[0])[:, None], 0.0, st.poisson.logpmf(
        np.nan_to_num(sold[0])[:, None], rate))
    log, gamma, _ = chain_sum(emission, INITIAL, TRANSITION)
    fit = sales().at({})
    close(fit.log_prob({"price": price, "sold": sold}), [log], "log_prob")
    close(fit.impute({"price": price, "sold": sold})["sold"][0, 2], gamma[2] @ rate[2], "missing step")
    value, low, high = fit.predict({"price": price, "sold": sold}, "sold", interval=0.9)
    cdf = np.cumsum(gamma[2] @ st.poisson.pmf(np.arange(60)[None], rate[2][:, None]))
    close([low[0, 2], high[0, 2]], np.searchsorted(cdf, [0.05, 0.95]), "interval", atol=1.0)
    # of a cell that is observed the answer is a new value of it, given the other sites: there are none
    close(value[0, 0], INITIAL @ rate[0], "a new value of an observed step", atol=0.05)


@case("two Markov chains × joint decode, pairs")
def chains_two():
    @probml.model
    def tides():
        with probml.rows():
            a = sample("a", chain())
            b = sample("b", probml.MarkovChain(jnp.array([0.5, 0.5]), jnp.array([[0.6, 0.4], [0.2, 0.8]])))
            sample("y", dist.Normal(2.0 * a + 5.0 * b, 1.0).to_event(1))

    y = np.array([[0.5, 4.0, 6.8, 3.2], [2.1, np.nan, 0.1, 7.2]])
    every = paths(2, 4)
    fit = tides().at({})
    found = fit.decode({"y": y})
    for i, row in enumerate(y):
        logs = {}
        for p in every:
            for q in every:
                e = norm.logpdf(row, 2.0 * p + 5.0 * q)
                logs[tuple(p), tuple(q)] = (chain_log(p, INITIAL, TRANSITION) + chain_log(
                    q, [0.5, 0.5], np.array([[0.6, 0.4], [0.2, 0.8]])) + np.nansum(e))
        best = max(logs, key=logs.get)
        close(fit.log_prob({"y": y})[i], np.logaddexp.reduce(list(logs.values())), "log_prob")
        close(found["a"][i], best[0], "decode a")
        close(found["b"][i], best[1], "decode b")


def walk_moments(steps, var0, q):
    """Covariance of a random walk that begins with variance var0."""
    t = np.arange(steps)
    return var0 + q * np.minimum.outer(t, t)


@case("Gaussian chain × deterministic, impute")
def walk_deterministic():
    @probml.model
    def rates():
        with probml.rows():
            z = sample("z", probml.GaussianChain(jnp.zeros(1), jnp.eye(1), jnp.eye(1), 0.3 * jnp.eye(1)))
            sample("y", dist.Normal(z[..., 0], 0.5).to_event(1))
            deterministic("rate", jnp.exp(z[..., 0]))

    y = np.array([[0.2, np.nan, 1.0, 0.7]])
    cov = walk_moments(4, 1.0, 0.3)
    there = ~np.isnan(y[0])
    gain = cov[:, there] @ np.linalg.inv(cov[np.ix_(there, there)] + 0.25 * np.eye(3))
    m, v = gain @ y[0, there], np.diag(cov - gain @ cov[there])
    fit = rates().at({})
    close(fit.impute({"y": y})["rate"], [np.exp(m + v / 2)], "E exp(z) of every step", rtol=0.02)


@case("Gaussian chain × latent number of a row")
def walk_latent():
    @probml.model
    def growth():
        with probml.rows():
            u = sample("u", dist.Normal(0.0, 2.0))
            z = sample("z", probml.GaussianChain(jnp.zeros(1), jnp.eye(1), jnp.eye(1), 0.3 * jnp.eye(1)))
            sample("y", dist.Normal(u[..., None] + z[..., 0], 0.5).to_event(1))
            sample("x", dist.Normal(u, 1.0))

    y, x = np.array([[0.2, np.nan, 1.0, 0.7]]), np.array([1.5])
    cov = np.zeros((6, 6))  # u, x, y1 … y4
    cov[:] = 4.0
    cov[1, 1] += 1.0
    cov[2:, 2:] += walk_moments(4, 1.0, 0.3) + 0.25 * np.eye(4)
    values = np.array([np.nan, 1.5, *y[0]])
    m, v = given_others(np.zeros(6), cov, values, [0, 3])
    there = ~np.isnan(values)
    fit = growth().at({})
    close(fit.log_prob({"y": y, "x": x}), [st.multivariate_normal.logpdf(
        values[there], np.zeros(there.sum()), cov[np.ix_(there, there)])], "log_prob")
    filled = fit.impute({"y": y, "x": x})
    close(filled["u"], m[:1], "E u")
    close(filled["y"][0, 1], m[1], "the missing step")
    value, low, high = fit.predict({"y": y, "x": x}, "y", interval=0.9)
    close([low[0, 1], high[0, 1]], m[1] + np.array([-1.645, 1.645]) * np.sqrt(v[1, 1]), "interval",
          atol=0.2)


@case("Gaussian chain × mask")
def walk_mask():
    @probml.model
    def level(good):
        with probml.rows():
            z = sample("z", probml.GaussianChain(jnp.zeros(1), jnp.eye(1), jnp.eye(1), 0.3 * jnp.eye(1)))
            sample("y", dist.Normal(z[..., 0], 0.5).mask(good).to_event(1))

    y, good = np.array([[0.2, 9.0, 1.0, 0.7]]), np.array([[1, 0, 1, 1]], bool)
    cov = walk_moments(4, 1.0, 0.3)
    at = good[0]
    fit = level().at({})
    close(fit.log_prob({"y": y, "good": good}), [st.multivariate_normal.logpdf(
        y[0, at], np.zeros(3), cov[np.ix_(at, at)] + 0.25 * np.eye(3))], "log_prob")
    m = cov[:, at] @ np.linalg.solve(cov[np.ix_(at, at)] + 0.25 * np.eye(3), y[0, at])
    close(np.asarray(fit.conditional({"y": y, "good": good}, "z").mean).reshape(4), m, "levels")


@case("Gaussian chain × mixture of rows, new groups")
def walk_mixture():
    @probml.model
    def sensors(site):
        with plate("sites", 2):
            a = sample("a", dist.Normal(0.0, 3.0))
        with probml.rows():
            k = sample("k", dist.Bernoulli(0.3))
            z = sample("z", probml.GaussianChain(jnp.zeros(1), jnp.eye(1), jnp.eye(1), 0.3 * jnp.eye(1)))
            sample("y", dist.Normal((a[site] + 2.0 * k)[..., None] + z[..., 0], 0.5).to_event(1))

    fit = sensors().at({"a": np.array([1.0, -1.0])}, labels={"site": ("n", "s")})
    y = np.array([[-0.2, 0.6, 1.0], [1.1, 2.0, np.nan]])
    logs = np.zeros((2, 2))
    for i, a in enumerate((-1.0, 1.0)):
        at = ~np.isnan(y[i])
        cov = walk_moments(3, 1.0, 0.3) + 0.25 * np.eye(3)
        for k in range(2):
            logs[i, k] = np.log([0.7, 0.3][k]) + st.multivariate_normal.logpdf(
                y[i, at], np.full(at.sum(), a + 2.0 * k), cov[np.ix_(at, at)])
    data = {"site": ["s", "n"], "y": y}
    close(fit.log_prob(data), np.logaddexp.reduce(logs, 1), "log_prob")
    close(fit.predict_proba(data, "k"), share(np.exp(logs)), "p(k)")


# ---- censored and truncated -----------------------------------------------------------------------


@case("censored × mixture, predict_proba")
def censored_mixture():
    @probml.model
    def bulbs(ended):
        with probml.rows():
            z = sample("z", dist.Bernoulli(0.4))
            own = dist.Weibull(jnp.array([1.0, 4.0])[z], 1.5)
            t = sample("t", own)
            factor("censored", jnp.where(ended, 0.0, jnp.log1p(-own.cdf(t)) - own.log_prob(t)))

    t, ended = np.array([0.5, 2.0, 2.0]), np.array([True, True, False])
    scale = np.array([1.0, 4.0])
    like = np.where(ended[:, None], st.weibull_min.pdf(t[:, None], 1.5, scale=scale),
                    st.weibull_min.sf(t[:, None], 1.5, scale=scale)) * [0.6, 0.4]
    fit = bulbs().at({})
    close(fit.predict_proba({"t": t, "ended": ended}, "z"), share(like), "p(z)")
    close(fit.log_prob({"t": t, "ended": ended}), np.log(like.sum(1)), "log_prob")


@case("truncated × interval, conditional, given=")
def truncated_interval():
    @probml.model
    def tobit(x):
        with probml.rows():
            sample("y", dist.TruncatedNormal(1.0 + x, 2.0, low=0.0))
            sample("w", dist.LogNormal(0.1 * x, 0.5))

    x = np.array([-2.0, 1.0])
    own = st.truncnorm((0 - 1 - x) / 2, np.inf, 1 + x, 2)
    fit = tobit().at({})
    data = {"x": x, "w": np.array([1.0, 1.2])}
    value, low, high = fit.predict(data, "y", interval=0.9)
    close(value, own.mean(), "mean")
    close(low, own.ppf(0.05), "lower", atol=0.12)
    close(high, own.ppf(0.95), "upper", atol=0.25)
    found = fit.conditional(data, "y")
    close(found.mean, own.mean(), "mean of the conditional", atol=0.02)
    close(found.variance, own.var(), "variance of the conditional", atol=0.05)
    value, low, high = fit.predict({"x": x}, "w", interval=0.9)
    close(value, np.exp(0.1 * x + 0.125), "mean of a lognormal")
    close(high, np.exp(0.1 * x + 1.645 * 0.5), "upper of a lognormal", atol=0.2)


@case("censored × effect of a group, compare")
def censored_groups():
    @probml.model
    def survival(clinic, dead):
        b = sample("b", dist.Normal(0.0, 2.0))
        with plate("clinics", 2):
            a = sample("a", dist.Normal(b, 1.0))
        with probml.rows():
            rate = jnp.exp(a[clinic])
            t = sample("t", dist.Exponential(rate))
            factor("censored", jnp.where(dead == 1, 0.0, -jnp.log(rate)) + 0.0 * t)

    t, dead, clinic = np.array([1.0, 0.2, 3.0, 0.5]), np.array([1, 1, 0, 0]), np.array([0, 0, 1, 1])
    a = np.array([0.5, -0.4])
    model = survival()
    log = dead * a[clinic] - np.exp(a[clinic]) * t
    data = {"clinic": clinic, "dead": dead, "t": t}
    fit = model.at({"b": 0.1, "a": a})
    close(fit.log_prob(data), log, "log_prob")
    close(fit.log_joint(data), log.sum() + norm.logpdf(0.1, 0, 2) + norm.logpdf(a, 0.1).sum(),
          "log_joint")
    table = probml.compare({"it": fit}, data)
    close(table.loc["it", "loglik"], log.sum(), "loglik")


@case("truncated × latent number of a row")
def truncated_latent():
    @probml.model
    def ability():
        with probml.rows():
            u = sample("u", dist.Normal(0.0, 1.0))
            sample("time", dist.TruncatedNormal(2.0 + u, 1.0, low=1.0))
            sample("right", dist.Bernoulli(logits=u))

    time, right = np.array([1.2, 4.0]), np.array([1.0, 0.0])

    def log(i):
        return lambda u: norm.logpdf(u) + norm.logpdf(time[i], 2 + u) - norm.logsf(1, 2 + u) + (
            st.bernoulli.logpmf(int(right[i]), 1 / (1 + np.exp(-u))))

    fit = ability().at({})
    found = [grid_mean(log(i), lambda u: u, -8, 8) for i in range(2)]
    close(fit.log_prob({"time": time, "right": right}), [f[1] for f in found], "log_prob")
    close(fit.impute({"time": time, "right": right})["u"], [f[0] for f in found], "E u", atol=0.01)
    # predict right given time alone
    wanted = [grid_mean(lambda u, t=t: norm.logpdf(u) + norm.logpdf(t, 2 + u) - norm.logsf(1, 2 + u),
                        lambda u: 1 / (1 + np.exp(-u)), -8, 8)[0] for t in time]
    close(fit.predict_proba({"time": time}, "right")[:, 1], wanted, "p(right | time)", atol=0.01)


# ---- vectors, matrices ----------------------------------------------------------------------------


@case("Dirichlet in rows × decode, deterministic")
def dirichlet_rows():
    @probml.model
    def shares_of_plots():
        with probml.rows():
            kind = sample("kind", dist.Bernoulli(0.4))
            sample("cover", dist.Dirichlet(jnp.array([[2.0, 1.0, 1.0], [1.0, 1.0, 3.0]])[kind]))

    cover = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    like = np.stack([[st.dirichlet.pdf(c, a) for a in ([2, 1, 1], [1, 1, 3])] for c in cover])
    right = like * [0.6, 0.4]
    fit = shares_of_plots().at({})
    close(fit.log_prob({"cover": cover}), np.log(right.sum(1)), "log_prob")
    close(fit.decode({"cover": cover})["kind"], right.argmax(1), "decode")
    mean = np.array([[2, 1, 1], [1, 1, 3]]) / np.array([[4.0], [5.0]])
    drawn = fit.simulate(4000, seed=1)["cover"].mean(0)
    close(drawn, 0.6 * mean[0] + 0.4 * mean[1], "mean of simulated shares", atol=0.02)
    close(fit.predict({"kind": [0, 1]}, "cover"), mean, "predict given the kind")


@case("latent Dirichlet of a row × counts")
def dirichlet_latent():
    @probml.model
    def topics():
        with probml.rows():
            theta = sample("theta", dist.Dirichlet(jnp.array([1.0, 2.0, 0.5])))
            sample("n", dist.Multinomial(6, theta))

    fit = topics().at({})
    n = np.array([[3, 2, 1], [0, 6, 0]])
    a = np.array([1.0, 2.0, 0.5])
    close(fit.log_prob({"n": n}), st.dirichlet_multinomial.logpmf(n, a, 6), "log_prob")
    close(fit.impute({"n": n})["theta"], share(a + n), "E theta")


@case("matrix × mixture × missing cells, joint, do")
def matrix_mixture():
    cov = np.array([[[1.0, 0.6], [0.6, 2.0]], [[0.5, -0.2], [-0.2, 0.7]]])
    mean = np.array([[0.0, 0.0], [2.0, 1.0]])

    @probml.model
    def full():
        with probml.rows():
            z = sample("z", dist.Bernoulli(0.4))
            sample("g", dist.Bernoulli(0.3 + 0.4 * z))
            sample("x", dist.MultivariateNormal(jnp.array(mean)[z], covariance_matrix=jnp.array(cov)[z]))

    fit = full().at({})
    x = np.array([[1.5, np.nan], [np.nan, 0.5], [0.3, 1.4]])
    joint = np.zeros((3, 2, 2))
    fill = np.zeros((3, 2))
    for i, row in enumerate(x):
        at = ~np.isnan(row)
        lz = [st.multivariate_normal.pdf(row[at], mean[z][at], cov[z][np.ix_(at, at)]) for z in range(2)]
        for z, g in joint_states(2, 2):
            joint[i, z, g] = [0.6, 0.4][z] * [0.7 - 0.4 * z, 0.3 + 0.4 * z][g] * lz[z]
        if not at.all():
            fill[i] = [given_others(mean[z], cov[z], row, np.flatnonzero(~at))[0][0] for z in range(2)]
    close(fit.log_prob({"x": x}), np.log(joint.sum((1, 2))), "log_prob")
    joint /= joint.sum((1, 2), keepdims=True)
    close(fit.joint({"x": x}, ["z", "g"]), joint, "joint")
    filled = fit.impute({"x": x})["x"]
    close([filled[0, 1], filled[1, 0]], (joint.sum(2) * fill).sum(1)[:2], "impute")
    value, low, high = fit.predict({"x": x}, "x", interval=0.9)
    sd = []
    for z in range(2):
        _, v = given_others(mean[z], cov[z], x[0], [1])
        sd.append(np.sqrt(v[0, 0]))
    p = joint[0].sum(1)
    cdfs = [norm(m, s).cdf for m, s in zip(fill[0], sd, strict=True)]
    close(low[0, 1], mixture_quantile(0.05, p, cdfs, -9, 9), "lower", atol=0.15)
    close(high[0, 1], mixture_quantile(0.95, p, cdfs, -9, 9), "upper", atol=0.15)
    acted = fit.do({"z": 1})
    close(acted.predict_proba({"x": x}, "g")[:, 1], np.full(3, 0.7), "p(g | do(z = 1))")


@case("matrix × merge, update, conjugate")
def matrix_merge():
    @probml.model
    def vectors():
        mu = sample("mu", dist.MultivariateNormal(jnp.zeros(2), covariance_matrix=4.0 * jnp.eye(2)))
        with probml.rows():
            sample("x", dist.MultivariateNormal(mu, covariance_matrix=jnp.array([[1.0, 0.5], [0.5, 2.0]])))

    x = np.array([[1.0, 0.2], [0.4, -1.0], [2.0, 1.0], [0.0, 0.3]])
    model = vectors()
    fit = model.fit({"x": x[:2]}).update({"x": x[2:]})
    S = np.linalg.inv([[1.0, 0.5], [0.5, 2.0]])
    V = np.linalg.inv(np.eye(2) / 4 + 4 * S)
    m = V @ S @ x.sum(0)
    close(fit.params["mu"], m, "posterior mean")
    close(fit.log_prob({"x": [[1.0, 1.0]]}), [st.multivariate_normal.logpdf(
        [1.0, 1.0], m, V + [[1.0, 0.5], [0.5, 2.0]])], "predictive density")
    close(fit.predict({"x": [[1.0, np.nan]]}, "x")[0, 1], given_others(
        m, V + [[1.0, 0.5], [0.5, 2.0]], [1.0, np.nan], [1])[0][0], "one cell given the other")


@case("plate in rows × interval, decide, missing cells")
def plate_interval():
    @probml.model
    def exam():
        with probml.rows():
            z = sample("z", dist.Bernoulli(0.5))
            with plate("tasks", 3):
                sample("points", dist.Normal(4.0 * z, 1.0))

    fit = exam().at({})
    points = np.array([[1.5, 2.2, np.nan], [0.1, np.nan, np.nan]])
    like = [share(0.5 * np.exp(np.nansum(norm.logpdf(p[:, None], [0.0, 4.0]), 0))) for p in points]
    value, low, high = fit.predict({"points": points}, "points", interval=0.9)
    for i, k in ((0, 2), (1, 1)):
        cdfs = [norm(m, 1).cdf for m in (0.0, 4.0)]
        close(value[i, k], like[i] @ [0.0, 4.0], "mean", atol=0.05)
        close(low[i, k], mixture_quantile(0.05, like[i], cdfs, -9, 12), "lower", atol=0.25)
        close(high[i, k], mixture_quantile(0.95, like[i], cdfs, -9, 12), "upper", atol=0.25)
    found = fit.decide({"points": points}, "z", loss=np.array([[0.0, 1.0], [9.0, 0.0]]))
    cost = np.array(like) @ np.array([[0.0, 1.0], [9.0, 0.0]])
    close(found, cost.argmin(1), "decide")


@case("plate in rows × effect of a group × new groups")
def plate_groups():
    @probml.model
    def classes(school):
        with plate("schools", 2):
            a = sample("a", dist.Normal(0.0, 1.0))
        with probml.rows():
            u = sample("u", dist.Normal(a[school], 0.5))
            with plate("items", 3):
                sample("right", dist.Normal(u, 1.0))

    fit = classes().at({"a": np.array([0.8, -0.5])}, labels={"school": ("p", "q")})
    right = np.array([[1.0, np.nan, 0.4], [0.2, -0.1, 0.0]])
    logs, means = [], []
    for row, a in zip(right, (-0.5, 0.8), strict=True):
        at = ~np.isnan(row)
        n = at.sum()
        cov = np.eye(n) + 0.25
        logs.append(st.multivariate_normal.logpdf(row[at], np.full(n, a), cov))
        means.append((a / 0.25 + row[at].sum()) / (4 + n))
    data = {"school": ["q", "p"], "right": right}
    close(fit.log_prob(data), logs, "log_prob")
    close(fit.impute(data)["u"], means, "E u")
    close(fit.impute(data)["right"][0, 1], means[0], "missing item")


# ---- labels, weights, comparisons -----------------------------------------------------------------


@case("label probabilities × compare, interval")
def soft_compare():
    @probml.model
    def labelled():
        with probml.rows():
            z = sample("z", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
            sample("x", dist.Normal(2.0 * z, 1.0))

    x, soft = np.array([0.5, 2.5]), np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.9]])
    right = norm.pdf(x[:, None], 2.0 * np.arange(3)) * [0.5, 0.3, 0.2] * soft
    fit = labelled().at({})
    table = probml.compare({"it": fit}, {"x": x, "z": soft})
    close(table.loc["it", "loglik"], np.log(right.sum(1)).sum(), "loglik")
    value, low, high = fit.predict({"z": soft}, "x", interval=0.9)
    for i in range(2):
        p = share(soft[i] * [0.5, 0.3, 0.2])
        cdfs = [norm(m, 1).cdf for m in (0.0, 2.0, 4.0)]
        close(value[i], p @ [0.0, 2.0, 4.0], "mean of a new x")
        close(high[i], mixture_quantile(0.95, p, cdfs, -5, 9), "upper", atol=0.2)


@case("weights × interval, compare, to_arviz")
def weights_interval():
    @probml.model
    def line(x):
        b = sample("b", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(b[0] + b[1] * x, 1.0))

    x, y, w = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.5, 1.0, 2.9, 2.8]), np.array([1, 2, 0, 3.0])
    H = np.stack([np.ones(4), x], 1)
    cov = np.linalg.inv(H.T @ (w[:, None] * H) + np.eye(2) / 4)
    m = cov @ H.T @ (w * y)
    for engine in (None, probml.Laplace()):
        fit = line().fit({"x": x, "y": y}, engine, weights=w)
        close(fit.params["b"], m, "posterior mean", atol=0.06)
        value, low, high = fit.predict({"x": [4.0]}, "y", interval=0.9)
        h = np.array([1.0, 4.0])
        close(high - low, [3.29 * np.sqrt(1 + h @ cov @ h)], "width", atol=0.35)


@case("pandas categories × mixture × effects, index columns in another order")
def pandas_categories():
    @probml.model
    def shops(town, size):
        with plate("towns", 3):
            a = sample("a", dist.Normal(0.0, 5.0))
        with plate("sizes", 2):
            b = sample("b", dist.Normal(0.0, 5.0))
        with probml.rows():
            sample("sold", dist.Normal(a[town] + b[size], 1.0))

    frame = pd.DataFrame({
        "sold": [1.0, 4.0, 2.5, 0.3, 5.1, 2.0],
        "size": pd.Categorical(["big", "small", "big", "small", "small", "big"],
                               categories=["small", "big"]),
        "town": pd.Categorical(["Rye", "Ely", "Ely", "Ayr", "Ely", "Rye"],
                               categories=["Rye", "Ely", "Ayr"])})
    fit = shops().fit(frame)
    H = np.concatenate([np.eye(3)[frame["town"].cat.codes], np.eye(2)[frame["size"].cat.codes]], 1)
    cov = np.linalg.inv(np.eye(5) / 25 + H.T @ H)
    m = cov @ H.T @ frame["sold"].to_numpy()
    new = pd.DataFrame({"town": ["Ayr", "Rye"], "size": ["big", "small"]})
    got = fit.predict(new, "sold")
    close(got, [m[2] + m[4], m[0] + m[3]], "predicted by labels as text", atol=0.15)
    other = new.assign(town=pd.Categorical(new["town"], categories=["Ayr", "Rye"]))
    close(fit.predict(other, "sold"), got, "by categories in another order", atol=1e-6)
    table = fit.summary()
    close(table.loc["a[Ayr]", "mean"] + table.loc["b[big]", "mean"], m[2] + m[4], "summary", atol=0.15)


@case("latent number of a row × compare, to_arviz, forecast of none")
def latent_compare():
    @probml.model
    def frail(x):
        b = sample("b", dist.Normal(0.0, 1.0))
        with probml.rows():
            u = sample("u", dist.Normal(0.0, 1.0))
            sample("n", dist.Poisson(jnp.exp(b * x + u)))

    x, n = np.array([0.5, -1.0, 2.0]), np.array([2, 0, 7])
    model = frail()
    data = {"x": x, "n": n}

    def loglik(b):
        return [np.log(normal_mean(lambda u, i=i: st.poisson.pmf(n[i], np.exp(b * x[i] + u))))
                for i in range(3)]

    table = probml.compare({"it": model.at({"b": 0.6})}, data)
    close(table.loc["it", "loglik"], np.sum(loglik(0.6)), "loglik")
    fit = model.fit(data, probml.NUTS(draws=100, warmup=200, chains=1, progress=False))
    tree = fit.to_arviz(data)
    found = np.asarray(tree.log_likelihood["n"]).reshape(-1, 3)
    b = np.asarray(tree.posterior["b"]).ravel()
    close(found[:5], [loglik(v) for v in b[:5]], "log likelihood of draws", atol=0.01)


@case("latent number of a row × text categories × mixture, save")
def latent_mixture():
    @probml.model
    def cells():
        with probml.rows():
            kind = sample("kind", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
            u = sample("u", dist.Normal(jnp.array([0.0, 1.0, -1.0])[kind], 0.5))
            sample("n", dist.Poisson(jnp.exp(u)))
            sample("seen", dist.Bernoulli(logits=2.0 * u))

    model = cells()
    fit = back(model.at({}, labels={"kind": ("a", "b", "c"), "seen": ("no", "yes")}), model)
    data = {"n": [3, 0, 1], "seen": ["yes", None, "no"]}
    right, filled = [], []
    for n, seen in zip(data["n"], (1, None, 0), strict=True):
        def like(u, n=n, seen=seen):
            p = 1 / (1 + np.exp(-2 * u))
            return st.poisson.pmf(n, np.exp(u)) * (1.0 if seen is None else p if seen else 1 - p)

        parts = [w * normal_mean(like, m, 0.5) for w, m in zip([0.2, 0.5, 0.3], [0.0, 1.0, -1.0],
                                                              strict=True)]
        right.append(parts)
        filled.append(sum(w * normal_mean(lambda u, f=like: u * f(u), m, 0.5) for w, m in zip(
            [0.2, 0.5, 0.3], [0.0, 1.0, -1.0], strict=True)) / sum(parts))
    right = np.array(right)
    close(fit.log_prob(data), np.log(right.sum(1)), "log_prob")
    close(fit.predict_proba(data, "kind"), share(right), "p(kind)")
    assert list(fit.predict(data, "kind")) == [("a", "b", "c")[i] for i in right.argmax(1)]
    close(fit.impute(data)["u"], filled, "E u")


@case("deterministic × mixture × interval, given=")
def deterministic_mixture():
    @probml.model
    def heights():
        with probml.rows():
            sex = sample("sex", dist.Bernoulli(0.5))
            h = sample("h", dist.Normal(1.65 + 0.13 * sex, 0.07))
            w = sample("w", dist.Normal(20.0 * h**2, 5.0))
            deterministic("bmi", w / h**2)

    fit = heights().at({})
    data = {"h": [1.6, np.nan], "w": [np.nan, 80.0]}
    filled = fit.impute(data)
    close(filled["bmi"][0], 20.0, "E bmi where the weight is missing", atol=0.05)
    logs = [lambda h, s=s: norm.logpdf(h, 1.65 + 0.13 * s, 0.07) + norm.logpdf(80, 20 * h**2, 5)
            for s in range(2)]
    parts = [grid_mean(log, lambda h: 80 / h**2, 1.0, 2.5) for log in logs]
    w = share(np.exp([p[1] for p in parts]))
    close(filled["bmi"][1], w @ [p[0] for p in parts], "E bmi where the height is missing", atol=0.1)
    close(fit.predict_proba(data, "sex")[1], w, "p(sex | weight)", atol=0.01)


@case("units far from 1 × latent number × do, float32")
def units_do():
    import jax

    @probml.model
    def firms():
        with probml.rows():
            size = sample("size", dist.Normal(3e6, 1e6))
            debt = sample("debt", dist.Normal(0.5 * size, 2e5))
            sample("tax", dist.Normal(1e-3 * size + 2e-3 * debt, 300.0))

    data = {"debt": np.array([1.2e6, 1.9e6]), "tax": np.array([np.nan, 7000.0])}
    B = np.array([1.0, 0.5, 2e-3])
    cov = 1e12 * np.outer(B, B)
    cov += np.diag([0, 4e10, 300.0**2])
    cov[1, 2] += 2e-3 * 4e10
    cov[2, 1] += 2e-3 * 4e10
    cov[2, 2] += 4e-6 * 4e10
    mean = 3e6 * B
    with jax.enable_x64(False):
        fit = firms().at({})
        filled = fit.impute(data)
        log = fit.log_prob(data)
    for i in range(2):
        values = np.array([np.nan, data["debt"][i], data["tax"][i]])
        m, _ = given_others(mean, cov, values, [0])
        close(filled["size"][i] / 1e6, m[0] / 1e6, "E size")
        at = ~np.isnan(values)
        close(log[i], st.multivariate_normal.logpdf(values[at], mean[at], cov[np.ix_(at, at)],
                                                    allow_singular=True), "log_prob", atol=0.02)


@case("matrix parameter × effects with correlation × new groups, interval")
def matrix_effects():
    @probml.model
    def lines(who, t, people: int):
        with plate("people", people):
            b = sample("b", dist.MultivariateNormal(jnp.array([1.0, 2.0]), covariance_matrix=jnp.array(
                [[1.0, 0.5], [0.5, 2.0]])))
        with probml.rows():
            sample("y", dist.Normal(b[who, 0] + b[who, 1] * t, 1.0))

    who, t = np.array(["u", "u", "v", "v", "v"]), np.array([0.0, 1.0, 0.0, 1.0, 2.0])
    y = np.array([0.2, 3.0, 2.0, 4.5, 9.0])
    fit = lines(people=2).fit({"who": who, "t": t, "y": y})
    P, mu = np.array([[1.0, 0.5], [0.5, 2.0]]), np.array([1.0, 2.0])
    H = np.stack([np.ones(3), t[2:]], 1)
    V = np.linalg.inv(np.linalg.inv(P) + H.T @ H)
    m = V @ (np.linalg.inv(P) @ mu + H.T @ y[2:])
    value, low, high = fit.predict({"who": ["v", "w"], "t": [3.0, 3.0]}, "y", interval=0.9,
                                   unknown="new")
    h = np.array([1.0, 3.0])
    close(value, [h @ m, h @ mu], "means", atol=0.2)
    close(high - low, 3.29 * np.sqrt([1 + h @ V @ h, 1 + h @ P @ h]), "widths", rtol=0.08)
    got = fit.log_prob({"who": ["w"], "t": [3.0], "y": [9.0]}, unknown="new")
    close(got, [norm.logpdf(9.0, h @ mu, np.sqrt(1 + h @ P @ h))], "log_prob of a new one", atol=0.05)


@case("hidden kinds × weights × text labels × partial_fit by update")
def naive_update():
    @probml.model
    def flowers():
        p = sample("p", dist.Dirichlet(jnp.ones(3)))
        with plate("kinds", 3):
            q = sample("q", dist.Beta(1.0, 1.0))
        with probml.rows():
            kind = sample("kind", dist.Categorical(p))
            sample("red", dist.Bernoulli(q[kind]))

    kinds, red = np.array(["oak", "elm", "ash", "elm", "oak"]), np.array([1, 0, 1, 1, 0])
    w = np.array([1.0, 2.0, 1.0, 0.5, 3.0])
    fit = flowers().fit({"kind": kinds, "red": red}, weights=w)
    fit = fit.update({"kind": ["ash"], "red": [0]}, weights=[2.0])
    names = np.array(["ash", "elm", "oak"])
    every, reds, ws = np.append(kinds, "ash"), np.append(red, 0), np.append(w, 2.0)
    n = np.array([ws[every == k].sum() for k in names])
    r = np.array([(ws * reds)[every == k].sum() for k in names])
    like = share((1 + n) / (3 + n.sum())) * (1 + r) / (2 + n)
    close(fit.predict_proba({"red": [1]}, "kind"), [share(like)], "p(kind)")
    assert list(fit.labels("kind")) == list(names)


@case("log-sum of weights: rows with weight × discrete outside rows × missing cells")
def outside_missing():
    @probml.model
    def machine():
        broken = sample("broken", dist.Bernoulli(0.2))
        with probml.rows():
            z = sample("z", dist.Bernoulli(0.1 + 0.6 * broken))
            with plate("gauges", 2):
                sample("g", dist.Normal(2.0 * z, 1.0))

    g = np.array([[0.5, np.nan], [2.2, 1.5], [np.nan, np.nan]])
    fit = machine().fit({"g": g})

    def row(values, b):
        pz = np.array([0.9 - 0.6 * b, 0.1 + 0.6 * b])
        return pz * np.exp(np.nansum(norm.logpdf(values[:, None], 2.0 * np.arange(2)), 0))

    parts = np.array([np.log([0.8, 0.2][b]) + sum(np.log(row(r, b).sum()) for r in g) for b in range(2)])
    close(fit.log_evidence, log_sum(*parts), "log evidence")
    p = share(np.exp(parts))
    new = np.array([1.4, np.nan])
    joint = sum(p[b] * row(new, b) for b in range(2))
    close(fit.log_prob({"g": [new]}), [np.log(joint.sum())], "log_prob")
    close(fit.predict_proba({"g": [new]}, "z"), [share(joint)], "p(z) of a new row")


@case("beta-binomial of a row × mask × handlers.scale")
def scaled():
    @probml.model
    def survey(w):
        p = sample("p", dist.Beta(2.0, 3.0))
        with probml.rows(), handlers.scale(scale=2.0):
            sample("yes", dist.Bernoulli(p))
        del w

    yes = np.array([1, 0, 1, 1])
    fit = survey().fit({"w": np.ones(4), "yes": yes})
    a, b = 2 + 2 * 3, 3 + 2 * 1
    close(fit.params["p"], a / (a + b), "posterior mean", atol=0.02)
    close(fit.log_evidence, sp.betaln(a, b) - sp.betaln(2, 3), "log evidence", atol=0.03)
