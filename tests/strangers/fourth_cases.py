"""A last handful: several tables, functions of one density, posteriors by draws."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.stats as st
from numpyro import deterministic, factor, plate, sample
from oracles_of_strangers import close, norm, normal_mean

import probml
from first_cases import back, case, clinic, clinic_joint, share, tables, weights_of


@case("two tables × a patient without visits, one patient alone, rows in another order")
def tables_empty():
    fit = clinic().at({"slope": 0.5})
    data = tables()
    data["patients"] = {"patient": ["zoe", "eve", "ann", "bob"],
                        "age": [55.0, 63.0, 41.0, np.nan]}
    usual = {who: weights_of(logs) for who, (_, logs) in clinic_joint(tables(), 0.5).items()}
    alone = clinic_joint({"patients": {"patient": ["zoe"], "age": [55.0]},
                          "visits": {"patient": [], "day": [], "pain": [], "flag": []}}, 0.5)
    usual["zoe"] = weights_of(alone["zoe"][1])
    close(fit.log_prob(data), [usual[who][1] for who in ("zoe", "eve", "ann", "bob")], "log_prob")
    kinds = []
    for who in ("zoe", "eve", "ann", "bob"):
        p = np.zeros(3)
        for key, w in usual[who][0].items():
            p[key[0]] += w
        kinds.append(p)
    close(fit.predict_proba(data, "kind"), kinds, "p(kind)")


@case("two tables × fit × learnt by EM, decode of one more table")
def tables_fit():
    @probml.model
    def herds(herd):
        w = sample("w", dist.Beta(1.0, 1.0))
        with plate("states", 2):
            p = sample("p", dist.Beta(1.0, 1.0))
        with probml.rows("herds"):
            sick = sample("sick", dist.Bernoulli(w))
        with probml.rows("cows", of="herds"):
            sample("positive", dist.Bernoulli(p[sick[herd]]))

    data = {"herds": {"herd": ["a", "b", "c"], "sick": [1, 0, 0]},
            "cows": {"herd": ["a", "a", "b", "c", "c", "a"], "positive": [1, 1, 0, 0, 1, 1]}}
    fit = herds().fit(data)
    # Beta(1 + 1, 1 + 2) of sick; p[0] ~ Beta(2, 3), p[1] ~ Beta(4, 1)
    close(fit.params["p"], [2 / 5, 4 / 5], "posterior means", atol=0.02)
    new = {"herds": {"herd": ["z"]}, "cows": {"herd": ["z", "z"], "positive": [1, 0]}}
    # both cows share p: E p(1 − p) = ab / ((a + b)(a + b + 1))
    like = np.array([3 / 5 * 2 * 3 / (5 * 6), 2 / 5 * 4 * 1 / (5 * 6)])
    close(fit.predict_proba(new, "sick"), [share(like)], "p(sick)", atol=0.02)


@case("two tables × weights")
def tables_weights():
    @probml.model
    def herds(herd):
        mu = sample("mu", dist.Normal(0.0, 2.0))
        with probml.rows("herds"):
            sample("size", dist.Normal(mu, 1.0))
        with probml.rows("cows", of="herds"):
            sample("milk", dist.Normal(mu, 1.0))

    data = {"herds": {"herd": ["a", "b"], "size": [1.0, 2.0]},
            "cows": {"herd": ["a", "b", "b"], "milk": np.array([0.5, 3.0, 2.0])}}
    fit = herds().fit(data, weights=[2.0, 1.0])
    v = 1 / (0.25 + 2 * 2 + 3)
    close(fit.params["mu"], v * (2 * 1.5 + 7.0), "a weight is of the row of the first table", atol=0.03)


@case("two tables × simulate, to_arviz")
def tables_simulate():
    fit, data = clinic().at({"slope": 0.5}), tables()
    many = {"patients": {"patient": np.arange(3000), "age": np.full(3000, 63.0)},
            "visits": {"patient": np.repeat(np.arange(3000), 2), "day": np.tile([0.0, 1.0], 3000),
                       "pain": np.tile([3.1, np.nan], 3000), "flag": np.tile([1.0, np.nan], 3000)}}
    drawn = fit.simulate(given=many, seed=1)
    at, logs = list(clinic_joint(data, 0.5).values())[2]
    w, _ = weights_of(logs)
    mean = sum(p * (1.5 * key[0] + 0.5 + key[3]) for key, p in w.items())
    close(np.mean(np.asarray(drawn["pain"])[1::2]), mean, "mean of the missing pain", atol=0.12)
    close(np.mean(drawn["kind"] == 2), sum(p for key, p in w.items() if key[0] == 2), "p(kind = 2)",
          atol=0.04)


@case("function of one density × predict_proba of its hidden state × save")
def whole():
    def votes(y=None):
        with plate("pollsters", 3, dim=-2):
            bias = sample("bias", dist.Normal(0.0, 0.5))
        with plate("weeks", 4):
            swing = sample("swing", dist.Bernoulli(0.3))
            with plate("p", 3, dim=-2):
                sample("y", dist.Normal(bias + 2.0 * swing, 1.0), obs=y)

    y = np.array([[0.2, 1.9, 0.1, 2.8], [0.5, 2.5, -0.3, 1.2], [-0.4, 1.1, 0.3, 2.2]])
    fit = probml.model(votes)().fit({"y": y}, probml.NUTS(draws=600, warmup=300, chains=2,
                                                          progress=False))
    import itertools
    total, hits = -np.inf, np.zeros(4)
    logs, every = [], list(itertools.product((0, 1), repeat=4))
    for s in every:
        rest = y - 2.0 * np.array(s)
        logs.append(sum(st.multivariate_normal.logpdf(r, np.zeros(4), np.eye(4) + 0.25) for r in rest)
                    + np.log(np.where(s, 0.3, 0.7)).sum())
    p = share(np.exp(np.array(logs) - max(logs)))
    hits = p @ np.array(every)
    got = np.asarray(fit.predict_proba({"y": y}, "swing"))
    close(got.reshape(4, 2)[:, 1], hits, "p(swing)", atol=0.03)
    del total


@case("posterior by draws × latent class × predict_proba, joint posterior of row and parameter")
def draws_class():
    @probml.model
    def kinds():
        w = sample("w", dist.Beta(1.0, 1.0))
        mu = sample("mu", dist.Normal(3.0, 1.0))
        with probml.rows():
            z = sample("z", dist.Bernoulli(w))
            sample("x", dist.Normal(mu * z, 1.0))

    x = np.array([0.1, 2.5, 3.4, -0.7, 1.6])
    fit = kinds().fit({"x": x}, probml.NUTS(draws=1500, warmup=400, chains=2, progress=False))
    w = np.linspace(0.0005, 0.9995, 400)[:, None, None]
    mu = np.linspace(-1, 7, 401)[None, :, None]
    like = (1 - w) * norm.pdf(x) + w * norm.pdf(x, mu)
    post = like.prod(-1) * norm.pdf(mu[..., 0], 3, 1)
    post /= post.sum()
    draws = fit.draws(3000, seed=0)
    close(np.mean(draws["w"]), (post * w[..., 0]).sum(), "E w", atol=0.03)
    # of a row as a new one: p(z, x | data) averaged over the posterior
    one = (post * (w * norm.pdf(1.6, mu))[..., 0]).sum()
    zero = (post * ((1 - w) * norm.pdf(1.6))[..., 0]).sum()
    close(fit.predict_proba({"x": [1.6]}, "z"), [share([zero, one])], "p(z) of a new row", atol=0.03)
    close(fit.log_prob({"x": [1.6]}), [np.log(one + zero)], "log predictive", atol=0.04)


@case("posterior by draws × interval, effects, deterministic in rows")
def draws_interval():
    @probml.model
    def plots(block, n: int):
        tau = sample("tau", dist.HalfNormal(2.0))
        with plate("blocks", n):
            a = sample("a", dist.Normal(0.0, tau))
        with probml.rows():
            deterministic("level", jnp.exp(a[block]))
            sample("y", dist.Normal(a[block], 1.0))

    rng = np.random.default_rng(4)
    block = np.repeat(np.arange(5), 4)
    y = np.array([1.0, -1.0, 2.0, 0.0, 0.5])[block] + rng.normal(size=20)
    fit = plots(n=5).fit({"block": block, "y": y}, probml.NUTS(draws=1000, warmup=400, chains=2,
                                                             progress=False))
    draws = fit.draws(4000, seed=2)
    a = np.asarray(draws["a"])
    close(fit.predict({"block": [2, 1]}, "level"), np.exp(a[:, [2, 1]]).mean(0), "E exp(a)", rtol=0.05)
    value, low, high = fit.predict({"block": [2]}, "y", interval=0.8)
    made = a[:, 2] + rng.normal(size=4000)
    close([low[0], high[0]], np.quantile(made, [0.1, 0.9]), "interval", atol=0.2)


@case("conditional after a posterior × mixture of draws")
def draws_conditional():
    @probml.model
    def errors():
        s = sample("s", dist.Gamma(3.0, 3.0))
        with probml.rows():
            u = sample("u", dist.Normal(0.0, 1.0))
            sample("x", dist.Normal(u, s))

    x = np.array([0.5, -1.2, 2.0, 0.3])
    fit = errors().fit({"x": x}, probml.NUTS(draws=1500, warmup=300, chains=2, progress=False))
    s = np.linspace(0.01, 6, 3000)
    post = st.gamma.pdf(s, 3, scale=1 / 3) * norm.pdf(x[:, None], 0, np.sqrt(1 + s**2)).prod(0)
    new = 1.5
    w = share(post * norm.pdf(new, 0, np.sqrt(1 + s**2)))
    m, v = new / (1 + s**2), s**2 / (1 + s**2)
    found = fit.conditional({"x": [new]}, "u")
    close(found.mean, [w @ m], "E u", atol=0.06)
    close(found.variance, [w @ (v + m**2) - (w @ m) ** 2], "Var u", atol=0.06)


@case("counts with exposure × offset × new rows with other exposure × evidence")
def exposure():
    @probml.model
    def claims(years):
        rate = sample("rate", dist.Gamma(2.0, 4.0))
        with probml.rows():
            sample("n", dist.Poisson(rate * years))

    years, n = np.array([1.0, 0.5, 3.0]), np.array([1, 0, 2])
    fit = claims().fit({"years": years, "n": n})
    a, b = 2 + n.sum(), 4 + years.sum()
    close(fit.params["rate"], a / b, "posterior mean", rtol=0.01)
    k = np.arange(0, 40)
    right = st.nbinom.pmf(k, a, b / (b + 2.0))
    value, low, high = fit.predict({"years": [2.0]}, "n", interval=0.9)
    close(value, [2 * a / b], "mean", rtol=0.02)
    cdf = right.cumsum()
    close([low[0], high[0]], np.searchsorted(cdf, [0.05, 0.95]), "interval", atol=1.0)
    close(fit.log_prob({"years": [2.0], "n": [3]}), [np.log(right[3])], "log predictive", atol=0.03)


@case("saved fit × text labels of groups × new groups")
def saved_groups():
    @probml.model
    def shops(shop, n: int):
        with plate("shops", n):
            a = sample("a", dist.Normal(0.0, 2.0))
        with probml.rows():
            sample("y", dist.Normal(a[shop], 1.0))

    shop, y = np.array(["b", "a", "b", "c"]), np.array([1.0, 2.0, 1.4, -1.0])
    model = shops(n=3)
    fit = back(model.fit({"shop": shop, "y": y}), model)
    m = [2.0 / 1.25, 2.4 / 2.25, -1.0 / 1.25]
    close(fit.predict({"shop": ["c", "a"]}, "y"), [m[2], m[0]], "after load", atol=0.05)
    value, low, high = fit.predict({"shop": ["zz"]}, "y", interval=0.9, unknown="new")
    close(high - low, [3.29 * np.sqrt(5)], "width of a new shop", atol=0.7)


@case("ordered categories × latent ability × factor")
def ordered():
    @probml.model
    def answers(c):
        with probml.rows():
            u = sample("u", dist.Normal(0.0, 1.0))
            factor("tilt", c * u)
            sample("q", dist.OrderedLogistic(1.5 * u, jnp.array([-1.0, 0.5])))

    def p(u, q):
        edges = 1 / (1 + np.exp(-(np.array([-1.0, 0.5])[:, None] - 1.5 * u)))
        return np.diff(np.vstack([np.zeros_like(u), edges, np.ones_like(u)]), axis=0)[q]

    fit = answers().at({})
    c, q = 0.4, 2
    total = normal_mean(lambda u: np.exp(c * u) * p(u, q))
    close(fit.log_prob({"c": [c], "q": [q]}), [np.log(total)], "log_prob")
    close(fit.impute({"c": [c], "q": [q]})["u"], [normal_mean(
        lambda u: u * np.exp(c * u) * p(u, q)) / total], "E u", atol=0.01)
    w = np.array([normal_mean(lambda u, k=k: np.exp(c * u) * p(u, k)) for k in range(3)])
    close(fit.predict_proba({"c": [c]}, "q"), [share(w)], "p(q)", atol=0.01)
