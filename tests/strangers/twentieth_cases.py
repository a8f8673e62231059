"""Time series, medicine and machine learning as programs pasted with `obs=` and own plates: three mechanisms together
in each that no earlier case combines. Written before any of them was run.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from eleventh_cases import first
from fifteenth_cases import normals
from judged_by_nuts import Program, program
from ninth_cases import finite, logistic
from numpyro import deterministic, factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan

import probml


def rng(seed):
    return np.random.default_rng([128, seed])


# ---- time series -----------------------------------------------------------------------------------


@program("vector autoregression by scan × LKJ noise × cells missing in vectors × impute along time")
def vector_autoregression():
    r = rng(1)
    n = 60
    a = np.array([[0.6, 0.2], [-0.1, 0.5]])
    noise = r.multivariate_normal([0, 0], [[0.5, 0.2], [0.2, 0.3]], n)
    full = np.zeros((n, 2))
    for t in range(n):
        full[t] = (a @ full[t - 1] if t else 0) + noise[t]
    y = full.copy()
    y[10, 0] = y[20] = y[21] = y[40, 1] = np.nan
    hole = np.isnan(y)

    def parameters():
        a = sample("a", dist.Normal(0.0, 0.5).expand([2, 2]).to_event(2))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        return a, sd[:, None] * sample("root", dist.LKJCholesky(2, 2.0))

    def var(n, y=None):
        a, root = parameters()

        def step(before, _):
            now = sample("y", dist.MultivariateNormal(a @ before, scale_tril=root))
            return now, now

        with handlers.condition(data={} if y is None else {"y": y}):
            scan(step, jnp.zeros(2), None, length=n)

    def plain():
        a, root = parameters()
        unseen = sample("unseen", dist.Normal(0.0, 20.0).expand([int(hole.sum())]).mask(False).to_event(1))
        whole = jnp.asarray(np.nan_to_num(y)).at[np.nonzero(hole)].set(unseen)
        before = jnp.concatenate([jnp.zeros((1, 2)), whole[:-1]])
        factor("y", dist.MultivariateNormal(before @ a.T, scale_tril=root).log_prob(whole).sum())
        deterministic("holes", unseen)

    def ask(fit, data):
        made = fit.simulate(seed=1)["y"]
        assert np.shape(made) == (n, 2)

    return Program(probml.model(var)(n=n), {"y": y}, plain, {}, None, ask,
                   answers={"holes": lambda fit: np.asarray(fit.impute({"y": y})["y"])[hole]})


@program("ARMA errors by scan: the last error in the carry × a regressor × gaps that later steps depend on")
def errors_in_the_carry():
    r = rng(2)
    n = 70
    x, e = r.normal(size=n), 0.5 * r.normal(size=n)
    full, before = np.zeros(n), 0.0
    for t in range(n):
        full[t] = 1 + 0.8 * x[t] + 0.6 * (full[t - 1] - 1 - 0.8 * x[t - 1] if t else 0) + e[t] + 0.4 * before
        before = e[t]
    y = full.copy()
    y[[12, 30, 31, 55]] = np.nan
    hole = np.isnan(y)

    def parameters():
        b = sample("b", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        phi, theta = sample("phi", dist.Uniform(-1.0, 1.0)), sample("theta", dist.Uniform(-1.0, 1.0))
        return b, phi, theta, sample("s", dist.HalfNormal(1.0))

    def arma(x, y=None):
        b, phi, theta, s = parameters()

        def step(carry, x):
            level, error = carry
            mean = b[0] + b[1] * x + phi * level + theta * error
            now = sample("y", dist.Normal(mean, s))
            return (now - b[0] - b[1] * x, now - mean), None

        with handlers.condition(data={} if y is None else {"y": y}):
            scan(step, (0.0, 0.0), x)

    def plain():
        b, phi, theta, s = parameters()
        unseen = sample("unseen", dist.Normal(0.0, 20.0).expand([int(hole.sum())]).mask(False).to_event(1))
        whole = jnp.asarray(np.nan_to_num(y)).at[np.nonzero(hole)].set(unseen)

        def step(carry, xy):
            level, error = carry
            x, now = xy
            mean = b[0] + b[1] * x + phi * level + theta * error
            return (now - b[0] - b[1] * x, now - mean), mean

        mean = jax.lax.scan(step, (0.0, 0.0), (jnp.asarray(x), whole))[1]
        factor("y", dist.Normal(mean, s).log_prob(whole).sum())
        deterministic("holes", unseen)

    def ask(fit, data):
        assert np.shape(fit.simulate(seed=1, x=np.zeros(20))["y"]) == (20,)

    data = {"x": x, "y": y}
    return Program(probml.model(arma)(), data, plain, {}, None, ask,
                   answers={"holes": lambda fit: np.asarray(fit.impute(data)["y"])[hole]})


@program("Hawkes process of two kinds: times in one array × excitation by a matrix × a factor of the whole")
def quakes_that_excite():
    r = rng(3)
    end, mu, alpha, beta = 60.0, np.array([0.4, 0.25]), np.array([[0.4, 0.1], [0.3, 0.2]]), 1.2
    times, kinds, t = [], [], 0.0
    while True:  # Ogata's thinning
        past = np.exp(-beta * (t - np.array(times))) if times else np.zeros(0)
        top = mu.sum() + sum(alpha[k].sum() * beta * p for k, p in zip(kinds, past, strict=True))
        t += r.exponential(1 / top)
        if t > end:
            break
        past = np.exp(-beta * (t - np.array(times))) if times else np.zeros(0)
        rate = mu + sum((alpha[k] * beta * p for k, p in zip(kinds, past, strict=True)), np.zeros(2))
        u = r.uniform(0, top)
        if u < rate.sum():
            times.append(t)
            kinds.append(int(u > rate[0]))
    times, kinds = np.array(times), np.array(kinds)

    def parameters():
        mu = sample("mu", dist.Gamma(2.0, 5.0).expand([2]).to_event(1))
        alpha = sample("alpha", dist.Beta(1.0, 3.0).expand([2, 2]).to_event(2))
        return mu, alpha, sample("beta", dist.LogNormal(0.0, 0.5))

    def log_likelihood(mu, alpha, beta, times, kinds):
        gap = times[:, None] - times[None]
        kernel = jnp.where(gap > 0, beta * jnp.exp(-beta * jnp.where(gap > 0, gap, 0.0)), 0.0)
        rate = mu[kinds] + (alpha[kinds[None], kinds[:, None]] * kernel).sum(1)
        total = mu.sum() * end + (alpha[kinds].sum(1) * -jnp.expm1(-beta * (end - times))).sum()
        return jnp.log(rate).sum() - total

    def hawkes(times, kinds):
        mu, alpha, beta = parameters()
        factor("events", log_likelihood(mu, alpha, beta, times, kinds))

    def plain():
        factor("events", log_likelihood(*parameters(), jnp.asarray(times), kinds))

    def ask(fit, data):
        assert np.isfinite(fit.log_joint(data))

    return Program(probml.model(hawkes)(), {"times": times, "kinds": kinds}, plain, {}, None, ask)


@program("media mix: adstock of two channels by lax.scan × saturation × seasons × weeks without sales × weeks ahead")
def media_of_weeks():
    r = rng(4)
    n = 80
    spend = r.gamma(2.0, 0.5, (n, 2)) * (r.random((n, 2)) < 0.7)
    week = np.arange(n)

    def adstock(spend, keep):
        def step(stock, now):
            stock = now + keep * stock
            return stock, stock
        return jax.lax.scan(step, jnp.zeros(2), spend)[1]

    def mean(a, b, c, keep, half, spend, week):
        stock = adstock(spend, keep)
        wave = c[0] * jnp.sin(2 * jnp.pi * week / 52) + c[1] * jnp.cos(2 * jnp.pi * week / 52)
        return a + (b * stock / (stock + half)).sum(-1) + wave

    keep, half = jnp.array([0.6, 0.3]), jnp.array([1.0, 1.5])
    y = np.array(mean(3.0, jnp.array([1.5, 1.0]), [0.4, -0.2], keep, half, spend, week)) + 0.25 * r.normal(size=n)
    y[[20, 33, 34, 60]] = np.nan
    there = ~np.isnan(y)

    def parameters():
        a = sample("a", dist.Normal(3.0, 1.0))
        b = sample("b", dist.HalfNormal(2.0).expand([2]).to_event(1))
        c = sample("c", dist.Normal(0.0, 0.5).expand([2]).to_event(1))
        keep = sample("keep", dist.Beta(3.0, 3.0).expand([2]).to_event(1))
        half = sample("half", dist.LogNormal(0.0, 0.4).expand([2]).to_event(1))
        return a, b, c, keep, half, sample("s", dist.HalfNormal(0.5))

    def sales(spend, week, y=None):
        *theta, s = parameters()
        with plate("weeks", len(week)):
            sample("y", dist.Normal(mean(*theta, spend, week), s), obs=y)

    later = np.concatenate([spend, np.ones((4, 2))])

    def plain():
        *theta, s = parameters()
        m = mean(*theta, jnp.asarray(spend), week)
        factor("y", dist.Normal(m, s).log_prob(np.nan_to_num(y))[there].sum())
        deterministic("holes", m[~there])
        deterministic("later", mean(*theta, jnp.asarray(later), np.arange(n + 4))[-4:])

    data = {"spend": spend, "week": week, "y": y}

    def ask(fit, data):
        assert np.shape(fit.simulate(seed=1, spend=later, week=np.arange(n + 4))["y"]) == (n + 4,)

    answers = {"later": lambda fit: np.mean([fit.simulate(
        seed=k, spend=later, week=np.arange(n + 4))["y"][-4:] for k in range(300)], 0)}
    return Program(probml.model(sales)(), data, plain, {}, None, ask, answers=answers)


@program("a trend with Laplace changes of slope × Fourier waves × Student's t × holes × days ahead by predict")
def trend_with_changes():
    r = rng(5)
    n = 120
    t, at = np.arange(n) / 100, np.linspace(0.1, 0.9, 8)
    delta = np.where(np.arange(8) == 3, 3.0, 0.0)
    wave = np.stack([np.sin(2 * np.pi * np.arange(n) / 7), np.cos(2 * np.pi * np.arange(n) / 7)], 1)
    y = 2 + 1.0 * t + np.maximum(t[:, None] - at, 0) @ delta + wave @ [0.3, -0.2] + 0.15 * r.standard_t(4, n)
    y[50:58] = np.nan

    def parameters():
        a, slope = sample("a", dist.Normal(0.0, 5.0)), sample("slope", dist.Normal(0.0, 5.0))
        tau = sample("tau", dist.HalfNormal(1.0))
        delta = sample("delta", dist.Laplace(0.0, tau).expand([8]).to_event(1))
        return a, slope, tau, delta, sample("c", dist.Normal(0.0, 1.0).expand([2]).to_event(1)), sample(
            "s", dist.HalfNormal(0.5)), sample("nu", dist.Gamma(2.0, 0.2))

    def line(a, slope, delta, c, t, wave):
        return a + slope * t + jnp.maximum(t[:, None] - at, 0.0) @ delta + wave @ c

    def prophet(t, wave, y=None):
        a, slope, tau, delta, c, s, nu = parameters()
        with plate("days", t.shape[0]):
            sample("y", dist.StudentT(nu, line(a, slope, delta, c, t, wave), s), obs=y)

    later = np.arange(n, n + 3) / 100
    waves = np.stack([np.sin(2 * np.pi * np.arange(n, n + 3) / 7), np.cos(2 * np.pi * np.arange(n, n + 3) / 7)], 1)
    there = ~np.isnan(y)

    def plain():
        a, slope = sample("a", dist.Normal(0.0, 5.0)), sample("slope", dist.Normal(0.0, 5.0))
        tau = sample("tau", dist.HalfNormal(1.0))
        delta = deterministic("delta", tau * sample("e", dist.Laplace(0.0, 1.0).expand([8]).to_event(1)))
        c = sample("c", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        s, nu = sample("s", dist.HalfNormal(0.5)), sample("nu", dist.Gamma(2.0, 0.2))
        m = line(a, slope, delta, c, t, wave)
        log = dist.StudentT(nu, m, s).log_prob(np.nan_to_num(y))
        factor("y", log[there].sum())
        deterministic("ahead", line(a, slope, delta, c, later, waves))
        deterministic("density", jnp.exp(log[:5]))
        deterministic("holes", m[~there])

    data = {"t": t, "wave": wave, "y": y}

    def ask(fit, data):
        value, low, high = fit.predict({"t": later, "wave": waves}, "y", interval=0.9)
        assert (low < value).all() and (value < high).all()

    answers = {"ahead": lambda fit: fit.predict({"t": later, "wave": waves}, "y"),
               "density": lambda fit: np.exp(fit.log_prob(first(data, 5))),
               "holes": lambda fit: np.asarray(fit.impute(data)["y"])[~there]}
    return Program(probml.model(prophet)(), data, plain, {}, None, ask, ("nu", "tau"), answers=answers)


@program("threshold autoregression: the regime is of the step before × regimes' own widths × gaps")
def regimes_of_the_last_value():
    r = rng(6)
    n = 80
    full = np.zeros(n)
    for t in range(1, n):
        up = full[t - 1] > 0
        full[t] = (1.0 - 0.4 * full[t - 1] if up else -0.8 + 0.5 * full[t - 1]) + (0.4 if up else 0.8) * r.normal()
    y = full.copy()
    y[[25, 26, 60]] = np.nan

    def parameters():
        a = sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        b = sample("b", dist.Normal(0.0, 0.5).expand([2]).to_event(1))
        return a, b, sample("s", dist.HalfNormal(1.0).expand([2]).to_event(1))

    def setar(n, y=None):
        a, b, s = parameters()

        def step(before, _):
            k = (before > 0).astype(int)
            now = sample("y", dist.Normal(a[k] + b[k] * before, s[k]))
            return now, None

        with handlers.condition(data={} if y is None else {"y": y}):
            scan(step, 0.0, None, length=n)

    hole, grid = np.isnan(y), jnp.linspace(-7.0, 7.0, 701)

    def plain():  # missing values on a grid, which chains do not leave for another regime
        a, b, s = parameters()

        def log(now, before):
            k = (before > 0).astype(int)
            return dist.Normal(a[k] + b[k] * before, s[k]).log_prob(now)

        seen = np.flatnonzero(~(hole | np.roll(hole, 1)))
        factor("y", log(y[seen], jnp.asarray(np.where(seen > 0, y[seen - 1], 0.0))).sum())
        means = []
        for start, last in ((25, 26), (60, 60)):
            ahead = [jnp.exp(log(grid, jnp.full_like(grid, y[start - 1])))]  # p(first missing | before)
            for _ in range(last - start):
                ahead.append(ahead[-1] @ jnp.exp(log(grid[None], grid[:, None])) * 0.02)
            back = jnp.exp(log(y[last + 1], grid))  # p(what is seen next | grid)
            total = (ahead[-1] * back).sum() * 0.02
            factor(f"gap_{start}", jnp.log(total))
            for density in reversed(ahead):
                means.append((grid * density * back).sum() * 0.02 / total)
                back = jnp.exp(log(grid[None], grid[:, None])) @ back * 0.02
        deterministic("holes", jnp.stack([means[1], means[0], means[2]]))

    def ask(fit, data):
        assert np.shape(fit.simulate(seed=1)["y"]) == (n,)

    return Program(probml.model(setar)(n=n), {"y": y}, plain, {}, None, ask,
                   answers={"holes": lambda fit: np.asarray(fit.impute({"y": y})["y"])[hole]})


# ---- medicine --------------------------------------------------------------------------------------


@program("a marker along time and survival share effects of patients × two plates × censoring by a factor × holes")
def marker_and_survival():
    r = rng(7)
    people = 40
    u = r.multivariate_normal([0, 0], [[0.5, 0.1], [0.1, 0.15]], people)
    patient = np.repeat(np.arange(people), 5)
    when = np.tile(np.arange(5.0) / 2, people)
    y = 1 + 0.3 * when + u[patient, 0] + u[patient, 1] * when + 0.4 * r.normal(size=len(when))
    y[r.random(len(y)) < 0.1] = np.nan
    treat = r.integers(0, 2, people)
    life = -np.log(r.random(people)) / np.exp(-1.2 - 0.5 * treat + 0.6 * u[:, 0] + 0.8 * u[:, 1])
    ended = np.minimum(life, 4.0)
    died = life < 4.0

    def parameters():
        b = sample("b", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        root = sd[:, None] * sample("root", dist.LKJCholesky(2, 2.0))
        g = sample("g", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
        return b, root, g, sample("s", dist.HalfNormal(1.0))

    def hazard(g, u, treat):
        return jnp.exp(g[0] + g[1] * treat + g[2] * u[..., 0] + g[3] * u[..., 1])

    def joint(patient, when, treat, ended, died, y=None):
        b, root, g, s = parameters()
        with plate("patients", people):
            u = sample("u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root))
            rate = hazard(g, u, treat)
            factor("survival", jnp.where(died, jnp.log(rate), 0.0) - rate * ended)
        with plate("visits", len(when)):
            sample("y", dist.Normal(b[0] + b[1] * when + u[patient, 0] + u[patient, 1] * when, s), obs=y)

    there = ~np.isnan(y)

    def plain():
        b, root, g, s = parameters()
        u = deterministic("u", normals("e", people, 2) @ root.T)
        rate = hazard(g, u, treat)
        factor("survival", (jnp.where(died, jnp.log(rate), 0.0) - rate * ended).sum())
        log = dist.Normal(b[0] + b[1] * when + u[patient, 0] + u[patient, 1] * when, s).log_prob(np.nan_to_num(y))
        factor("y", log[there].sum())

    data = {"patient": patient, "when": when, "treat": treat, "ended": ended, "died": died, "y": y}

    def ask(fit, data):
        assert {"u", "g"} <= set(fit.to_arviz().posterior)

    return Program(probml.model(joint)(), data, plain, {}, None, ask)


@program("network meta-analysis: arms of trials × baselines × random contrasts × a missing arm × a contrast computed")
def network_of_treatments():
    r = rng(8)
    arms = [(t, a) for t, pair in enumerate([(0, 1), (0, 1), (0, 2), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3), (0, 1, 2),
                                             (0, 2, 3)]) for a in pair]
    trial, drug = np.array(arms).T
    trials = trial.max() + 1
    base = np.array([np.flatnonzero(trial == t)[0] for t in trial])
    is_base = base == np.arange(len(trial))
    d = np.array([0, -0.5, -0.8, 0.2])
    mu = r.normal(-1, 0.5, trials)
    total = r.integers(40, 150, len(trial))
    eta = mu[trial] + np.where(is_base, 0, d[drug] - d[drug[base]] + 0.2 * r.normal(size=len(trial)))
    y = r.binomial(total, logistic(eta)).astype(float)
    y[4] = np.nan

    def parameters():
        tau = sample("tau", dist.HalfNormal(0.5))
        d = sample("d", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
        return tau, jnp.concatenate([jnp.zeros(1), d])

    def network(trial, drug, against, first_arm, total, y=None):
        tau, d = parameters()
        with plate("trials", trials):
            mu = sample("mu", dist.Normal(-1.0, 1.5))
        with plate("arms", len(trial)):
            own = sample("own", dist.Normal(0.0, 1.0))
            delta = jnp.where(first_arm, 0.0, d[drug] - d[against] + tau * own)
            sample("y", dist.Binomial(total, logits=mu[trial] + delta), obs=y)
        deterministic("best_against_second", d[2] - d[1])

    there = ~np.isnan(y)

    def plain():
        tau, d = parameters()
        mu = deterministic("mu", -1 + 1.5 * normals("e", trials))
        own = normals("o", len(trial))
        delta = jnp.where(is_base, 0.0, d[drug] - d[drug[base]] + tau * own)
        log = dist.Binomial(jnp.asarray(total), logits=mu[trial] + delta).log_prob(jnp.asarray(np.nan_to_num(y)))
        factor("y", log[there].sum())
        deterministic("best_against_second", d[2] - d[1])

    data = {"trial": trial, "drug": drug, "against": drug[base], "first_arm": is_base, "total": total, "y": y}

    def ask(fit, data):
        assert len(fit.summary())

    return Program(probml.model(network)(), data, plain, {}, None, ask, ("tau",))


@program("prevalence: three tables of plates × sensitivity and specificity of studies × positives of sites")
def antibodies_of_a_county():
    r = rng(9)
    sens_n, spec_n, site_n = np.array([85, 37, 120, 60]), np.array([371, 30, 110, 300, 200]), np.array([250, 400, 300])
    sens = r.binomial(sens_n, logistic(r.normal(1.5, 0.3, 4)))
    spec = r.binomial(spec_n, logistic(r.normal(4.0, 0.5, 5)))
    prevalence = np.array([0.03, 0.08, 0.12])
    y = r.binomial(site_n, prevalence * 0.82 + (1 - prevalence) * 0.02)

    def parameters():
        mu = sample("mu", dist.Normal(jnp.array([1.5, 4.0]), 1.0).to_event(1))
        tau = sample("tau", dist.HalfNormal(0.5).expand([2]).to_event(1))
        return mu, tau, sample("pi", dist.Beta(1.0, 9.0).expand([3]).to_event(1))

    def county(sens_n, spec_n, site_n, sens=None, spec=None, y=None):
        mu, tau, pi = parameters()
        own = sample("own", dist.Normal(mu, tau).to_event(1))
        with plate("sens_studies", 4):
            a = sample("logit_sens", dist.Normal(mu[0], tau[0]))
            sample("sens", dist.Binomial(sens_n, logits=a), obs=sens)
        with plate("spec_studies", 5):
            b = sample("logit_spec", dist.Normal(mu[1], tau[1]))
            sample("spec", dist.Binomial(spec_n, logits=b), obs=spec)
        p = pi * jax.nn.sigmoid(own[0]) + (1 - pi) * jax.nn.sigmoid(-own[1])
        with plate("sites", 3):
            sample("y", dist.Binomial(site_n, p), obs=y)

    def plain():
        mu, tau, pi = parameters()
        own = deterministic("own", mu + tau * normals("e0", 2))
        a = deterministic("logit_sens", mu[0] + tau[0] * normals("e1", 4))
        b = deterministic("logit_spec", mu[1] + tau[1] * normals("e2", 5))
        p = pi * jax.nn.sigmoid(own[0]) + (1 - pi) * jax.nn.sigmoid(-own[1])
        log = [dist.Binomial(jnp.asarray(n), **how).log_prob(jnp.asarray(k)).sum() for n, how, k in (
            (sens_n, {"logits": a}, sens), (spec_n, {"logits": b}, spec), (site_n, {"probs": p}, y))]
        factor("all", sum(log))

    data = {"sens_n": sens_n, "spec_n": spec_n, "site_n": site_n, "sens": sens, "spec": spec, "y": y}

    def ask(fit, data):
        made = fit.simulate(seed=1)
        assert np.shape(made["y"]) == (3,) and np.shape(made["spec"]) == (5,)

    return Program(probml.model(county)(), data, plain, {}, None, ask, ("tau",))


# ---- machine learning, anthropology, space ---------------------------------------------------------


@program("matrix factorisation: users and items by vectors, known up to a rotation × biases × ratings not given")
def ratings_of_films():
    r = rng(10)
    users, films, rank = 20, 15, 2
    user, film = map(np.ravel, np.meshgrid(np.arange(users), np.arange(films), indexing="ij"))
    p, q = r.normal(size=(users, rank)), r.normal(size=(films, rank))
    y = 3 + 0.5 * r.normal(size=users)[user] + 0.5 * r.normal(size=films)[film] + 0.6 * (p[user] * q[film]).sum(1)
    y = y + 0.4 * r.normal(size=len(y))
    hole = r.random(len(y)) < 0.4
    y[hole] = np.nan

    def parameters():
        return sample("mu", dist.Normal(3.0, 1.0)), sample("s", dist.HalfNormal(1.0))

    def factorised(user, film, y=None):
        mu, s = parameters()
        with plate("users", users):
            p = sample("p", dist.Normal(0.0, 0.8).expand([rank]).to_event(1))
            a = sample("a", dist.Normal(0.0, 0.5))
        with plate("films", films):
            q = sample("q", dist.Normal(0.0, 0.8).expand([rank]).to_event(1))
            b = sample("b", dist.Normal(0.0, 0.5))
        with plate("n", len(user)):
            sample("y", dist.Normal(mu + a[user] + b[film] + (p[user] * q[film]).sum(-1), s), obs=y)

    def plain():
        mu, s = parameters()
        p, q = 0.8 * normals("p_", users, rank), 0.8 * normals("q_", films, rank)
        a, b = deterministic("a", 0.5 * normals("a_", users)), deterministic("b", 0.5 * normals("b_", films))
        m = mu + a[user] + b[film] + (p[user] * q[film]).sum(-1)
        log = dist.Normal(m, s).log_prob(np.nan_to_num(y))
        factor("y", log[~hole].sum())
        deterministic("holes", m[hole][:20])
        deterministic("density", jnp.exp(log[~hole][:5]))

    data = {"user": [f"u{k}" for k in user], "film": [f"f{k}" for k in film], "y": y}
    at = np.flatnonzero(~hole)[:5]
    rows = {"user": [f"u{user[k]}" for k in at], "film": [f"f{film[k]}" for k in at], "y": y[at]}

    def ask(fit, data):
        finite(fit.impute(data)["y"], (len(y),), "impute")

    answers = {"holes": lambda fit: np.asarray(fit.impute(data)["y"])[hole][:20],
               "density": lambda fit: np.exp(fit.log_prob(rows))}
    return Program(probml.model(factorised)(), data, plain, {}, None, ask, answers=answers)


@program("boxes: five strategies of children as a mixture of tables by a factor × shares of ages × regions")
def boxes_of_children():
    r = rng(11)
    n, regions = 180, 4
    region, age, majority_first = r.integers(0, regions, n), r.integers(0, 3, n), r.integers(0, 2, n)
    shares = np.array([[0.2, 0.3, 0.2, 0.15, 0.15], [0.4, 0.2, 0.2, 0.1, 0.1], [0.5, 0.15, 0.15, 0.1, 0.1]])

    def tables(majority_first):
        e = np.eye(3)
        own = np.stack([np.broadcast_to(v, (len(majority_first), 3)) for v in (e[1], e[2], e[0], np.ones(3) / 3)]
                       + [np.where(majority_first[:, None] == 1, e[1], e[2])], 1)
        return own

    p = (shares[age][:, :, None] * tables(majority_first)).sum(1)
    y = np.array([r.choice(3, p=q) for q in p])

    def parameters():
        share = sample("share", dist.Dirichlet(jnp.full((3, 5), 2.0)).to_event(1))
        tau = sample("tau", dist.HalfNormal(0.7))
        return share, tau

    def log_rows(share, u, age, region, table, y):
        tilted = jax.nn.softmax(jnp.log(share)[age] + u[region], -1)
        given = jnp.take_along_axis(table, y[:, None, None].repeat(5, 1), 2)[..., 0]
        return jnp.log((tilted * given).sum(-1))

    def boxes(age, region, table, y):
        share, tau = parameters()
        with plate("regions", regions):
            u = sample("u", dist.Normal(0.0, tau).expand([5]).to_event(1))
        with plate("children", len(age)):
            factor("choice", log_rows(share, u, age, region, table, y))

    table = tables(majority_first)

    def plain():
        share, tau = parameters()
        u = deterministic("u", tau * normals("e", regions, 5))
        log = log_rows(share, u, age, region, jnp.asarray(table), jnp.asarray(y))
        factor("choice", log.sum())
        deterministic("density", jnp.exp(log[:6]))

    data = {"age": age, "region": region, "table": table, "y": y}

    def ask(fit, data):
        assert fit.draws(3)["share"].shape == (3, 3, 5)

    return Program(probml.model(boxes)(), data, plain, {}, None, ask,
                   answers={"density": lambda fit: np.exp(fit.log_prob(first(data, 6)))})


@program("spatial lag: one normal vector through solve × neighbours that are an argument × cells that are missing")
def prices_of_districts():
    r = rng(12)
    side, n = 6, 36
    at = np.stack(np.divmod(np.arange(n), side), 1)
    near = (np.abs(at[:, None] - at[None]).sum(-1) == 1).astype(float)
    w = near / near.sum(1, keepdims=True)
    x = r.normal(size=n)
    full = np.linalg.solve(np.eye(n) - 0.6 * w, 1 + 0.8 * x + 0.4 * r.normal(size=n))
    y = full.copy()
    y[[3, 17, 30]] = np.nan
    hole = np.isnan(y)

    def parameters():
        b = sample("b", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        return b, sample("rho", dist.Uniform(-1.0, 1.0)), sample("s", dist.HalfNormal(1.0))

    def law(b, rho, s, w, x):
        a = jnp.eye(n) - rho * w
        return dist.MultivariateNormal(jnp.linalg.solve(a, b[0] + b[1] * x), precision_matrix=a.T @ a / s**2)

    def lag(w, x, y=None):
        sample("y", law(*parameters(), w, x), obs=y)

    def plain():
        own = law(*parameters(), jnp.asarray(w), x)
        cover, mean = own.covariance_matrix, own.mean
        seen, lost = np.flatnonzero(~hole), np.flatnonzero(hole)
        factor("y", dist.MultivariateNormal(mean[seen], cover[jnp.ix_(seen, seen)]).log_prob(y[seen]))
        gain = jnp.linalg.solve(cover[jnp.ix_(seen, seen)], cover[jnp.ix_(seen, lost)]).T
        deterministic("holes", mean[lost] + gain @ (y[seen] - mean[seen]))

    data = {"w": w, "x": x, "y": y}

    def ask(fit, data):
        assert np.shape(fit.simulate(seed=1)["y"]) == (n,)

    return Program(probml.model(lag)(), data, plain, {}, None, ask,
                   answers={"holes": lambda fit: np.asarray(fit.impute(data)["y"])[hole]})
