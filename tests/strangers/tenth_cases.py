"""The other half of `ninth_cases.py`: programs of users of brms and PyMC, and of a teacher."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from judged_by_nuts import Program, program
from ninth_cases import finite, logistic
from numpyro import deterministic, factor, handlers, plate, sample
from oracles_of_strangers import close

import probml
from first_cases import back


def rng(seed):
    return np.random.default_rng([2412, seed])


# ---- a user of lme4 and brms -----------------------------------------------------------------------


@program("a penalised spline × group effects × standard deviation by a covariate")
def spline_of_groups():
    from scipy.interpolate import BSpline
    r = rng(1)
    n = 150
    t, g = np.sort(r.uniform(0, 1, n)), np.arange(n) % 10
    knots = np.r_[[0] * 3, np.linspace(0, 1, 6), [1] * 3]
    basis = BSpline.design_matrix(t.clip(0, 1 - 1e-9), knots, 3).toarray()
    y = np.sin(5 * t) + 0.4 * r.normal(size=10)[g] + np.exp(-1.5 + 0.8 * t) * r.normal(size=n)

    @probml.model
    def curve(basis, g, t):
        tau, sd = sample("tau", dist.HalfNormal(1.0)), sample("sd", dist.HalfNormal(1.0))
        w = sample("w", dist.Normal(0.0, tau).expand([8]).to_event(1))
        s = sample("s", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with plate("groups", 10):
            u = sample("u", dist.Normal(0.0, sd))
        with probml.rows():
            sample("y", dist.Normal(basis @ w + u[g], jnp.exp(s[0] + s[1] * t)))

    def plain():
        tau, sd = sample("tau", dist.HalfNormal(1.0)), sample("sd", dist.HalfNormal(1.0))
        w = deterministic("w", tau * sample("e", dist.Normal(0.0, 1.0).expand([8]).to_event(1)))
        s = sample("s", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with plate("groups", 10):
            u = sample("u", dist.Normal(0.0, sd))
        with plate("n", n):
            sample("y", dist.Normal(basis @ w + u[g], jnp.exp(s[0] + s[1] * t)), obs=jnp.asarray(y))
        deterministic("predicted", (basis @ w + u[g])[::40])

    def ask(fit, data):
        value, low, high = fit.predict({k: data[k][::40] for k in ("basis", "g", "t")}, "y", interval=0.9)
        assert (low < value).all() and (value < high).all()
        table = probml.compare({"a": fit, "b": fit}, data)
        assert len(table) == 2

    data = {"basis": basis, "g": g, "t": t, "y": y}
    return Program(curve(), data, plain, {k: data[k][::40] for k in ("basis", "g", "t")}, "y", ask)


@program("two outcomes × LKJ of residuals × LKJ of effects × missing cells of either")
def two_outcomes():
    r = rng(2)
    n = 96
    child, x = np.arange(n) % 12, r.normal(size=n)
    u = r.multivariate_normal([0, 0], [[0.4, 0.2], [0.2, 0.3]], 12)
    y = np.array([1.0, -0.5]) + np.outer(x, [0.6, 0.2]) + u[child]
    y = y + r.multivariate_normal([0, 0], [[0.5, -0.2], [-0.2, 0.4]], n)
    y[::7, 0], y[3::9, 1] = np.nan, np.nan

    @probml.model
    def growth(child, x):
        a = sample("a", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        noise = sample("noise", dist.HalfNormal(1.0).expand([2]).to_event(1))
        of_effects = sample("of_effects", dist.LKJCholesky(2, 2.0))
        of_rows = sample("of_rows", dist.LKJCholesky(2, 2.0))
        with plate("children", 12):
            u = sample("u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=sd[:, None] * of_effects))
        with probml.rows():
            mean = a + b * x[..., None] + u[child]
            sample("y", dist.MultivariateNormal(mean, scale_tril=noise[:, None] * of_rows))

    def plain():
        a = sample("a", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        noise = sample("noise", dist.HalfNormal(1.0).expand([2]).to_event(1))
        of_effects = sample("of_effects", dist.LKJCholesky(2, 2.0))
        of_rows = sample("of_rows", dist.LKJCholesky(2, 2.0))
        with plate("children", 12):
            e = sample("e", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        u = deterministic("u", e @ (sd[:, None] * of_effects).T)
        mean, root = a + b * x[:, None] + u[child], noise[:, None] * of_rows
        gone = np.isnan(y)
        both = ~gone.any(1)
        sample("both", dist.MultivariateNormal(mean[both], scale_tril=root), obs=jnp.asarray(y[both]))
        width = jnp.sqrt((root**2).sum(1))
        for k in (0, 1):
            only = ~gone[:, k] & gone[:, 1 - k]
            sample(f"only{k}", dist.Normal(mean[only, k], width[k]), obs=jnp.asarray(y[only, k]))
        deterministic("predicted", mean[:3])

    def ask(fit, data):
        filled = np.asarray(fit.impute(data)["y"])
        finite(filled, (n, 2), "impute")
        close(filled[~np.isnan(y)], y[~np.isnan(y)], "observed cells stay", rtol=1e-4)
        finite(fit.log_prob(data), (n,), "log_prob")

    data = {"child": child, "x": x, "y": y}
    return Program(growth(), data, plain, {"child": child[:3], "x": x[:3]}, "y", ask)


@program("beta outcome × precision by a covariate × random intercepts × exact zeros by a hurdle")
def zeros_and_shares():
    r = rng(3)
    n = 130
    plot, x = np.arange(n) % 13, r.normal(size=n)
    u = 0.5 * r.normal(size=13)
    zero = r.random(n) < logistic(-1.2 - 0.8 * x - u[plot])
    mean, size = logistic(-0.3 + 0.5 * x + u[plot]), np.exp(2.0 + 0.4 * x)
    y = np.where(zero, 0.0, r.beta(mean * size, (1 - mean) * size).clip(1e-3, 1 - 1e-3))

    def cover(plot, x, zero, y):
        a = sample("a", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        p = sample("p", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0))
        with plate("plots", 13):
            u = sample("u", dist.Normal(0.0, sd))
        with plate("n", x.shape[0]):
            sample("zero", dist.Bernoulli(logits=a[0] + b[0] * x - u[plot]), obs=zero)
            mean = jax.nn.sigmoid(a[1] + b[1] * x + u[plot])
            size = jnp.exp(p[0] + p[1] * x)
            with handlers.mask(mask=zero == 0):
                sample("y", dist.Beta(mean * size, (1 - mean) * size), obs=jnp.where(zero, 0.5, y))

    data = {"plot": plot, "x": x, "zero": zero.astype(int), "y": y}
    arrays = {k: jnp.asarray(v) for k, v in data.items()}

    def ask(fit, data):
        finite(fit.log_prob(data), (n,), "log_prob")
        finite(fit.draws(10)["u"], (10, 13), "draws")

    return Program(probml.model(cover)(), data, lambda: cover(**arrays), {}, None, ask)


# ---- a user of PyMC --------------------------------------------------------------------------------


@program("mixture of regressions × class by a covariate × effects of hospitals × missing outcomes")
def classes_of_slopes():
    r = rng(4)
    n = 120
    ward, x, w = np.arange(n) % 8, r.normal(size=n), r.normal(size=n)
    z = (r.random(n) < logistic(0.3 + 1.0 * w)).astype(int)
    y = np.where(z, 2.5 + 1.0 * x, -1.0 - 0.5 * x) + 0.6 * r.normal(size=8)[ward] + 0.5 * r.normal(size=n)
    holes = y.copy()
    holes[::15] = np.nan

    @probml.model
    def classes(ward, x, w):
        g = sample("g", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        a = sample("a", dist.Normal(jnp.array([-1.0, 2.0]), 1.0).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd, noise = sample("sd", dist.HalfNormal(1.0)), sample("noise", dist.HalfNormal(1.0))
        with plate("wards", 8):
            u = sample("u", dist.Normal(0.0, sd))
        with probml.rows():
            z = sample("z", dist.Bernoulli(logits=g[0] + g[1] * w))
            sample("y", dist.Normal(a[z] + b[z] * x + u[ward], noise))

    there = ~np.isnan(holes)

    def plain():
        g = sample("g", dist.Normal(0.0, 1.5).expand([2]).to_event(1))
        a = sample("a", dist.Normal(jnp.array([-1.0, 2.0]), 1.0).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sd, noise = sample("sd", dist.HalfNormal(1.0)), sample("noise", dist.HalfNormal(1.0))
        with plate("wards", 8):
            u = sample("u", dist.Normal(0.0, sd))
        own = jax.nn.log_sigmoid(jnp.stack([-(g[0] + g[1] * w), g[0] + g[1] * w], 1))
        mean = a + b * x[:, None] + u[ward][:, None]
        each = own + dist.Normal(mean, noise).log_prob(jnp.nan_to_num(holes)[:, None])
        factor("y", jax.nn.logsumexp(each[there], 1).sum())
        deterministic("predicted", (jnp.exp(own) * mean).sum(1)[:4])

    def ask(fit, data):
        p = np.asarray(fit.predict_proba(data, "z"))
        finite(p, (n, 2), "predict_proba")
        assert ((p[there, 1] > 0.5) == z[there]).mean() > 0.9

    new = {"ward": ward[:4], "x": x[:4], "w": w[:4]}
    return Program(classes(), {"ward": ward, "x": x, "w": w, "y": holes}, plain, new, "y", ask)


@program("attack and defence of teams × two counts of a match × a latent number that both share")
def rugby():
    r = rng(5)
    n, teams = 60, 6
    home = r.integers(0, 6, n)
    away = (home + r.integers(1, 6, n)) % 6
    att, defend = 0.3 * r.normal(size=6), 0.2 * r.normal(size=6)
    form = 0.3 * r.normal(size=n)
    goals = r.poisson(np.exp(0.8 + 0.2 + att[home] - defend[away] + form))
    against = r.poisson(np.exp(0.8 + att[away] - defend[home] + form))

    @probml.model
    def matches(home, away):
        level, at_home = sample("level", dist.Normal(0.0, 1.0)), sample("at_home", dist.Normal(0.0, 0.5))
        sd_att, sd_def = sample("sd_att", dist.HalfNormal(0.5)), sample("sd_def", dist.HalfNormal(0.5))
        sd_form = sample("sd_form", dist.HalfNormal(0.5))
        with plate("teams", teams):
            att = sample("att", dist.Normal(0.0, sd_att))
            defend = sample("defend", dist.Normal(0.0, sd_def))
        with probml.rows():
            form = sample("form", dist.Normal(0.0, sd_form))
            sample("goals", dist.Poisson(jnp.exp(level + at_home + att[home] - defend[away] + form)))
            sample("against", dist.Poisson(jnp.exp(level + att[away] - defend[home] + form)))

    def plain():
        level, at_home = sample("level", dist.Normal(0.0, 1.0)), sample("at_home", dist.Normal(0.0, 0.5))
        sd_att, sd_def = sample("sd_att", dist.HalfNormal(0.5)), sample("sd_def", dist.HalfNormal(0.5))
        sd_form = sample("sd_form", dist.HalfNormal(0.5))
        with plate("teams", teams):
            att = deterministic("att", sd_att * sample("e", dist.Normal(0.0, 1.0)))
            defend = deterministic("defend", sd_def * sample("f", dist.Normal(0.0, 1.0)))
        with plate("n", n):
            own = sd_form * sample("own", dist.Normal(0.0, 1.0))
            log = level + at_home + att[home] - defend[away]
            sample("goals", dist.Poisson(jnp.exp(log + own)), obs=jnp.asarray(goals))
            sample("against", dist.Poisson(jnp.exp(level + att[away] - defend[home] + own)),
                   obs=jnp.asarray(against))
        deterministic("predicted", jnp.exp(log + 0.5 * sd_form**2)[:3])

    def ask(fit, data):
        more = fit.predict({"home": home[:3], "away": away[:3], "against": [9, 9, 9]}, "goals")
        less = fit.predict({"home": home[:3], "away": away[:3], "against": [0, 0, 0]}, "goals")
        assert (np.asarray(more) > np.asarray(less)).all()

    data = {"home": home, "away": away, "goals": goals, "against": against}
    return Program(matches(), data, plain, {"home": home[:3], "away": away[:3]}, "goals", ask)


@program("stochastic volatility as a random walk × regressor × Student's t of unknown degrees")
def volatility():
    r = rng(6)
    n = 100
    x = r.normal(size=n)
    h = -1.0 + np.cumsum(0.15 * r.normal(size=n))
    y = 0.3 * x + np.exp(h) * r.standard_t(6, n)

    def returns(x, y=None):
        step = sample("step", dist.Exponential(10.0))
        nu = sample("nu", dist.Gamma(4.0, 0.5))
        beta = sample("beta", dist.Normal(0.0, 1.0))
        start = sample("start", dist.Normal(-1.0, 1.0))
        s = sample("s", dist.GaussianRandomWalk(scale=step, num_steps=x.shape[0]))
        with plate("n", x.shape[0]):
            sample("y", dist.StudentT(nu, beta * x, jnp.exp(start + s)), obs=y)

    def plain():
        step = sample("step", dist.Exponential(10.0))
        nu = sample("nu", dist.Gamma(4.0, 0.5))
        beta = sample("beta", dist.Normal(0.0, 1.0))
        start = sample("start", dist.Normal(-1.0, 1.0))
        e = sample("e", dist.Normal(0.0, 1.0).expand([n]).to_event(1))
        s = deterministic("s", step * jnp.cumsum(e))
        sample("y", dist.StudentT(nu, beta * x, jnp.exp(start + s)), obs=jnp.asarray(y))

    def ask(fit, data):
        finite(fit.simulate(x=x, seed=3)["y"], (n,), "simulate")

    return Program(probml.model(returns)(), {"x": x, "y": y}, plain, {}, None, ask, ("nu",))


@program("a Gaussian process × binomial counts × effects of observers × length scale")
def process_of_counts():
    r = rng(7)
    n = 24
    t, who, total = np.sort(r.uniform(0, 4, n)), np.arange(n) % 5, r.integers(5, 15, n)
    y = r.binomial(total, logistic(np.sin(2 * t) + 0.4 * r.normal(size=5)[who]))

    def prevalence(t, who, total, y=None):
        m = sample("m", dist.Normal(0.0, 1.0))
        height, length = sample("height", dist.HalfNormal(1.5)), sample("length", dist.InverseGamma(4.0, 4.0))
        sd = sample("sd", dist.HalfNormal(1.0))
        with plate("observers", 5):
            u = sample("u", dist.Normal(0.0, sd))
        gap = t[:, None] - t[None, :]
        cov = height**2 * jnp.exp(-0.5 * (gap / length) ** 2) + 1e-4 * jnp.eye(t.shape[0])
        e = sample("e", dist.Normal(0.0, 1.0).expand([t.shape[0]]).to_event(1))
        f = deterministic("f", jnp.linalg.cholesky(cov) @ e)
        with plate("n", t.shape[0]):
            sample("y", dist.Binomial(total, logits=m + f + u[who]), obs=y)

    data = {"t": t, "who": who, "total": total, "y": y}
    arrays = {k: jnp.asarray(v) for k, v in data.items()}

    def ask(fit, data):
        made = np.asarray(fit.simulate(t=t, who=who, total=total, seed=1)["y"])
        assert (made <= total).all() and made.shape == (n,)

    return Program(probml.model(prevalence)(), data, lambda: prevalence(**arrays), {}, None, ask)


@program("occupancy × detection by a covariate of the visit × missing visits × effects of regions")
def occupancy():
    r = rng(8)
    n = 84
    region, wood, wind = np.arange(n) % 7, r.normal(size=n), r.normal(size=(n, 3))
    z = r.random(n) < logistic(0.3 + 1.0 * wood + 0.7 * r.normal(size=7)[region])
    y = ((r.random((n, 3)) < logistic(0.2 - 0.7 * wind)) & z[:, None]).astype(float)
    y[r.random((n, 3)) < 0.15] = np.nan

    @probml.model
    def birds(region, wood, wind):
        a, b = sample("a", dist.Normal(0.0, 1.5)), sample("b", dist.Normal(0.0, 1.0))
        c, d = sample("c", dist.Normal(0.0, 1.5)), sample("d", dist.Normal(0.0, 1.0))
        sd = sample("sd", dist.HalfNormal(1.0))
        with plate("regions", 7):
            u = sample("u", dist.Normal(0.0, sd))
        with probml.rows():
            z = sample("z", dist.Bernoulli(logits=a + b * wood + u[region]))
            p = jax.nn.sigmoid(c + d * wind) * z[..., None]
            sample("y", dist.Bernoulli(p).to_event(1))

    there = ~np.isnan(y)

    def plain():
        a, b = sample("a", dist.Normal(0.0, 1.5)), sample("b", dist.Normal(0.0, 1.0))
        c, d = sample("c", dist.Normal(0.0, 1.5)), sample("d", dist.Normal(0.0, 1.0))
        sd = sample("sd", dist.HalfNormal(1.0))
        with plate("regions", 7):
            u = sample("u", dist.Normal(0.0, sd))
        logit = a + b * wood + u[region]
        own = dist.Bernoulli(logits=c + d * wind).log_prob(jnp.asarray(np.nan_to_num(y)))
        at = jax.nn.log_sigmoid(logit) + jnp.where(there, own, 0.0).sum(1)
        never = (np.nan_to_num(y) == 0).all(1)
        factor("y", jnp.where(never, jnp.logaddexp(at, jax.nn.log_sigmoid(-logit)), at).sum())

    def ask(fit, data):
        p = np.asarray(fit.predict_proba(data, "z"))
        seen = np.nan_to_num(y).any(1)
        assert p.shape == (n, 2) and (p[seen, 1] > 0.999).all() and p[~seen, 1].max() < 0.95

    return Program(birds(), {"region": region, "wood": wood, "wind": wind, "y": y}, plain, {}, None, ask)


# ---- a teacher -------------------------------------------------------------------------------------


@program("Student's t of unknown degrees × two groups with their own widths × unknown labels")
def best_with_unknown_labels():
    r = rng(9)
    g = np.arange(64) % 2
    y = np.where(g, 101.5 + 2.0 * r.standard_t(5, 64), 99.0 + 1.2 * r.standard_t(5, 64))
    labels = np.where(np.arange(64) % 5 == 0, None, np.array(["placebo", "drug"], object)[g])

    @probml.model
    def best():
        nu = sample("nu", dist.Exponential(1 / 29))
        share = sample("share", dist.Beta(1.0, 1.0))
        with plate("groups", 2):
            mu = sample("mu", dist.Normal(100.0, 10.0))
            sigma = sample("sigma", dist.Uniform(0.1, 10.0))
        with probml.rows():
            g = sample("g", dist.Bernoulli(share))
            sample("y", dist.StudentT(nu + 1, mu[g], sigma[g]))

    code = np.where(g == 1, 0, 1)  # labels in the order of the alphabet: drug, placebo
    known = labels != np.array(None)

    def plain():
        nu = sample("nu", dist.Exponential(1 / 29))
        share = sample("share", dist.Beta(1.0, 1.0))
        with plate("groups", 2):
            mu = sample("mu", dist.Normal(100.0, 10.0))
            sigma = sample("sigma", dist.Uniform(0.1, 10.0))
        each = dist.StudentT(nu + 1, mu, sigma).log_prob(jnp.asarray(y)[:, None])
        each = each + jnp.log(jnp.stack([1 - share, share]))
        own = each[np.arange(64), code]
        factor("y", jnp.where(known, own, jax.nn.logsumexp(each, 1)).sum())

    def ask(fit, data):
        assert fit.labels("g") == ("drug", "placebo")
        assert fit.predict({"y": [108.0]}, "g")[0] == "drug"
        back(fit, fit.model)

    return Program(best(), {"g": labels, "y": y}, plain, {}, None, ask, ("nu",))


@program("Markov chain × Poisson × effects of herds × offset along time × missing steps")
def grazing_chains():
    r = rng(10)
    n, steps = 12, 20
    herd, hours = np.arange(n) % 4, r.uniform(0.5, 2.0, (n, steps))
    u = 0.3 * r.normal(size=4)
    z = np.zeros((n, steps), int)
    for t in range(1, steps):
        z[:, t] = np.where(r.random(n) < 0.15, 1 - z[:, t - 1], z[:, t - 1])
    y = r.poisson(hours * np.exp(np.array([0.0, 1.6])[z] + u[herd][:, None])).astype(float)
    y[r.random((n, steps)) < 0.1] = np.nan

    @probml.model
    def grazing(herd, hours):
        stay = sample("stay", dist.Beta(8.0, 2.0).expand([2]).to_event(1))
        level = sample("level", dist.Normal(jnp.array([0.0, 1.5]), 0.3).to_event(1))
        sd = sample("sd", dist.HalfNormal(0.5))
        with plate("herds", 4):
            u = sample("u", dist.Normal(0.0, sd))
        transition = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])
        with probml.rows():
            z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]), transition))
            sample("y", dist.Poisson(hours * jnp.exp(level[z] + u[herd][..., None])).to_event(1))

    there = ~np.isnan(y)

    def plain():
        stay = sample("stay", dist.Beta(8.0, 2.0).expand([2]).to_event(1))
        level = sample("level", dist.Normal(jnp.array([0.0, 1.5]), 0.3).to_event(1))
        sd = sample("sd", dist.HalfNormal(0.5))
        with plate("herds", 4):
            e = sample("e", dist.Normal(0.0, 1.0))
        u = deterministic("u", sd * e)
        log_move = jnp.log(jnp.stack([jnp.stack([stay[0], 1 - stay[0]]),
                                      jnp.stack([1 - stay[1], stay[1]])]))
        rate = hours[..., None] * jnp.exp(level + u[herd][:, None, None])
        own = dist.Poisson(rate).log_prob(jnp.asarray(np.nan_to_num(y))[..., None])
        own = jnp.where(there[..., None], own, 0.0)
        alpha = jnp.log(0.5) + own[:, 0]
        for t in range(1, steps):
            alpha = jax.nn.logsumexp(alpha[:, :, None] + log_move, 1) + own[:, t]
        factor("y", jax.nn.logsumexp(alpha, 1).sum())

    def ask(fit, data):
        p = np.asarray(fit.predict_proba(data, "z"))
        finite(p, (n, steps, 2), "smoothing")
        path = np.asarray(fit.decode(data)["z"])
        assert (path == z).mean() > 0.85

    return Program(grazing(), {"herd": herd, "hours": hours, "y": y}, plain, {}, None, ask)


@program("N-mixture: latent counts × thinned counts of visits × a covariate of each")
def thinned_counts():
    r = rng(11)
    n = 60
    x, wind = r.normal(size=n), r.normal(size=(n, 3))
    total = r.poisson(np.exp(1.2 + 0.5 * x))
    y = r.binomial(total[:, None], logistic(0.2 - 0.6 * wind))

    @probml.model
    def salamanders(x, wind):
        a, b = sample("a", dist.Normal(0.0, 2.0)), sample("b", dist.Normal(0.0, 1.0))
        c, d = sample("c", dist.Normal(0.0, 1.5)), sample("d", dist.Normal(0.0, 1.0))
        counts = jnp.arange(41)
        with probml.rows():
            log = dist.Poisson(jnp.exp(a + b * x)[..., None]).log_prob(counts)
            total = sample("total", dist.Categorical(logits=log))
            sample("y", dist.Binomial(total[..., None], logits=c + d * wind).to_event(1))

    def plain():
        a, b = sample("a", dist.Normal(0.0, 2.0)), sample("b", dist.Normal(0.0, 1.0))
        c, d = sample("c", dist.Normal(0.0, 1.5)), sample("d", dist.Normal(0.0, 1.0))
        counts = jnp.arange(41)
        log = jax.nn.log_softmax(dist.Poisson(jnp.exp(a + b * x)[:, None]).log_prob(counts), -1)
        may = counts[None] >= y.max(1)[:, None]
        safe = jnp.maximum(counts[None, :, None], y.max(1)[:, None, None])
        seen = dist.Binomial(safe, logits=(c + d * wind)[:, None, :]).log_prob(jnp.asarray(y)[:, None, :])
        factor("y", jax.nn.logsumexp(jnp.where(may, log + seen.sum(-1), -jnp.inf), 1).sum())

    def ask(fit, data):
        p = np.asarray(fit.predict_proba(data, "total"))
        finite(p, (n, 41), "predict_proba")
        low = np.arange(41) < y.max(1)[:, None]
        assert (p[low.nonzero()] < 1e-4).all() and np.corrcoef(p @ np.arange(41), total)[0, 1] > 0.7

    return Program(salamanders(), {"x": x, "wind": wind, "y": y}, plain, {}, None, ask)


@program("no gold standard: two tests × disease by age × centres × a third test that is a number")
def no_gold_standard():
    r = rng(12)
    n = 150
    centre, age = np.arange(n) % 5, r.normal(size=n)
    sick = r.random(n) < logistic(-0.5 + 0.8 * age + 0.5 * r.normal(size=5)[centre])
    one = np.where(sick, r.random(n) < 0.85, r.random(n) < 0.1).astype(float)
    two = np.where(sick, r.random(n) < 0.7, r.random(n) < 0.05).astype(float)
    marker = np.where(sick, 1.5, 0.0) + 0.8 * r.normal(size=n)
    two[::4], marker[1::6] = np.nan, np.nan

    @probml.model
    def tests(centre, age):
        a, b = sample("a", dist.Normal(0.0, 1.0)), sample("b", dist.Normal(0.0, 1.0))
        hit = sample("hit", dist.Beta(8.0, 2.0).expand([2]).to_event(1))
        false = sample("false", dist.Beta(1.0, 9.0).expand([2]).to_event(1))
        m = sample("m", dist.Normal(jnp.array([0.0, 1.5]), 0.5).to_event(1))
        s = sample("s", dist.HalfNormal(1.0))
        with plate("centres", 5):
            u = sample("u", dist.Normal(0.0, 0.7))
        with probml.rows():
            sick = sample("sick", dist.Bernoulli(logits=a + b * age + u[centre]))
            sample("one", dist.Bernoulli(jnp.where(sick == 1, hit[0], false[0])))
            sample("two", dist.Bernoulli(jnp.where(sick == 1, hit[1], false[1])))
            sample("marker", dist.Normal(m[sick], s))

    def plain():
        a, b = sample("a", dist.Normal(0.0, 1.0)), sample("b", dist.Normal(0.0, 1.0))
        hit = sample("hit", dist.Beta(8.0, 2.0).expand([2]).to_event(1))
        false = sample("false", dist.Beta(1.0, 9.0).expand([2]).to_event(1))
        m = sample("m", dist.Normal(jnp.array([0.0, 1.5]), 0.5).to_event(1))
        s = sample("s", dist.HalfNormal(1.0))
        with plate("centres", 5):
            u = sample("u", dist.Normal(0.0, 0.7))
        logit = a + b * age + u[centre]
        each = jax.nn.log_sigmoid(jnp.stack([-logit, logit], 1))
        for k, test in enumerate((one, two)):
            own = dist.Bernoulli(jnp.stack([false[k], hit[k]])).log_prob(np.nan_to_num(test)[:, None])
            each = each + jnp.where(np.isnan(test)[:, None], 0.0, own)
        own = dist.Normal(m, s).log_prob(np.nan_to_num(marker)[:, None])
        each = each + jnp.where(np.isnan(marker)[:, None], 0.0, own)
        factor("y", jax.nn.logsumexp(each, 1).sum())
        deterministic("predicted", (jax.nn.sigmoid(logit) * (m[1] - m[0]) + m[0])[:4])

    def ask(fit, data):
        p = np.asarray(fit.predict_proba(data, "sick"))
        finite(p, (n, 2), "predict_proba")
        assert ((p[:, 1] > 0.5) == sick).mean() > 0.8
        made = fit.simulate(centre=centre, age=age, seed=1)
        finite(made["marker"], (n,), "simulate")

    data = {"centre": centre, "age": age, "one": one, "two": two, "marker": marker}
    return Program(tests(), data, plain, {"centre": centre[:4], "age": age[:4]}, "marker", ask)
