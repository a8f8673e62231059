"""Examples of the BUGS book and of users of brms, with other tables and other questions.

Written before any of them was run.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from eleventh_cases import first
from judged_by_nuts import Program, program
from ninth_cases import finite, logistic
from numpyro import deterministic, factor, plate, sample

import probml
from first_cases import back


def rng(seed):
    return np.random.default_rng([112, seed])


def normals(name, *shape):
    return sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))


# ---- the BUGS examples -----------------------------------------------------------------------------


@program("growth × correlated intercepts and slopes × missing weeks × a table with two indices × a new rat")
def rats_with_missing_weeks():
    r = rng(1)
    rats, week = 24, np.array([8.0, 15, 22, 29, 36])
    rat, day = np.repeat(np.arange(rats), 5), np.tile(week, rats)
    u = r.multivariate_normal([240, 6.2], [[200, 3], [3, 0.25]], rats)
    y = u[rat, 0] + u[rat, 1] * (day - 22) + 6 * r.normal(size=len(rat))
    y[(rat >= 18) & (day >= 29)] = np.nan
    y[rat == 23] = np.nan
    y[23 * 5] = 151.0  # a rat with one row

    def parameters():
        mean = sample("mean", dist.Normal(jnp.array([250.0, 6.0]), jnp.array([50.0, 3.0])).to_event(1))
        sd = sample("sd", dist.HalfNormal(jnp.array([30.0, 2.0])).to_event(1))
        root = sample("root", dist.LKJCholesky(2, 1.0))
        return mean, sd[:, None] * root, sample("s", dist.HalfNormal(20.0))

    @probml.model
    def growth(rat, day):
        mean, root, s = parameters()
        with plate("rats", rats):
            u = sample("u", dist.MultivariateNormal(mean, scale_tril=root))
        with probml.rows():
            sample("y", dist.Normal(u[rat, 0] + u[rat, 1] * (day - 22), s))

    there = ~np.isnan(y)

    def plain():
        mean, root, s = parameters()
        e = normals("e", rats + 1, 2)
        u = mean + e @ root.T
        deterministic("u", u[:rats])
        line = u[rat, 0] + u[rat, 1] * (day - 22)
        sample("y", dist.Normal(line[there], s).to_event(1), obs=jnp.asarray(y[there]))
        deterministic("holes", line[~there])
        deterministic("stranger", u[rats, 0] + u[rats, 1] * jnp.array([-14.0, 28.0]))
        deterministic("density", jnp.exp(dist.Normal(line[:6], s).log_prob(y[:6])))

    names = np.array([f"rat {k:02d}" for k in range(rats)])
    index = pd.MultiIndex.from_arrays([names[rat], day.astype(int)], names=["animal", "age"])
    frame = pd.DataFrame({"rat": names[rat], "day": day, "y": pd.array(y, "Float64")}, index=index)
    frame.loc[~there, "y"] = pd.NA

    def ask(fit, data):
        filled = fit.impute(data)
        assert filled.index.equals(frame.index) and not filled["y"].isna().any()

    stranger = {"rat": ["new", "new"], "day": [8.0, 50.0]}
    answers = {"holes": lambda fit: np.asarray(fit.impute(frame)["y"], float)[~there],
               "stranger": lambda fit: fit.predict(stranger, "y", unknown="new"),
               "density": lambda fit: np.exp(fit.log_prob(frame.iloc[:6]))}
    return Program(growth(), frame, plain, {}, None, ask, answers=answers)


@program("stack loss: double exponential errors × columns that the function standardises itself")
def stacks():
    air = [80, 80, 75, 62, 62, 62, 62, 62, 58, 58, 58, 58, 58, 58, 50, 50, 50, 50, 50, 56, 70]
    water = [27, 27, 25, 24, 22, 23, 24, 24, 23, 18, 18, 17, 18, 19, 18, 18, 19, 19, 20, 20, 20]
    acid = [89, 88, 90, 87, 87, 87, 93, 93, 87, 80, 89, 88, 82, 93, 89, 86, 72, 79, 80, 82, 91]
    loss = [42, 37, 37, 28, 18, 18, 19, 20, 15, 14, 14, 13, 11, 12, 8, 7, 8, 8, 9, 15, 15]
    x = np.stack([air, water, acid], 1).astype(np.int16)

    def stack(x, y=None):
        z = (x - x.mean(0)) / x.std(0)
        a = sample("a", dist.Normal(0.0, 30.0))
        with plate("columns", 3):
            b = sample("b", dist.Normal(0.0, 10.0))
        s = sample("s", dist.HalfNormal(10.0))
        deterministic("slope", b / x.std(0))
        with plate("n", x.shape[0]):
            sample("y", dist.Laplace(a + z @ b, s), obs=y)

    def plain():
        z = (x - x.mean(0)) / x.std(0)
        a = sample("a", dist.Normal(0.0, 30.0))
        b, s = 10 * normals("e", 3), sample("s", dist.HalfNormal(10.0))
        deterministic("b", b)
        own = dist.Laplace(a + z @ b, s)
        factor("y", own.log_prob(jnp.asarray(loss, float)).sum())
        deterministic("slope", b / x.std(0))

    def ask(fit, data):
        finite(fit.simulate(x=x, seed=1)["y"], (21,), "simulate")
        assert "slope" in fit.to_arviz().posterior

    data = {"x": x, "y": np.asarray(loss, np.int8)}
    return Program(probml.model(stack)(), data, plain, {}, None, ask)


@program("Epil: counts × effects of patients × a number of each row × logs within the function × booleans")
def epil():
    r = rng(3)
    patients = 40
    patient, fourth = np.repeat(np.arange(patients), 4), np.tile([False, False, False, True], patients)
    base, age = r.integers(6, 80, patients)[patient], r.integers(18, 42, patients)[patient]
    treated = (r.random(patients) < 0.5)[patient]
    eta = (0.3 + 0.9 * np.log(base / 4) - 0.4 * treated + 0.2 * np.log(age / 28) - 0.1 * fourth
           + 0.5 * r.normal(size=patients)[patient] + 0.3 * r.normal(size=160))
    y = r.poisson(np.exp(eta)).astype(np.int32)

    def parameters():
        b = sample("b", dist.Normal(0.0, 1.0).expand([5]).to_event(1))
        return b, sample("sd", dist.HalfNormal(1.0)), sample("over", dist.HalfNormal(1.0))

    def line(b, base, age, treated, fourth):
        return b[0] + b[1] * jnp.log(base / 4) + b[2] * treated + b[3] * jnp.log(age / 28) + b[4] * fourth

    def seizures(patient, base, age, treated, fourth, y=None):
        b, sd, over = parameters()
        with plate("patients", patients):
            u = sample("u", dist.Normal(0.0, sd))
        with plate("visits", patient.shape[0]):
            e = sample("e", dist.Normal(0.0, over))
            log = line(b, base, age, treated, fourth) + u[patient] + e
            sample("y", dist.Poisson(jnp.exp(log)), obs=y)

    def plain():
        b, sd, over = parameters()
        u = deterministic("u", sd * normals("eu", patients))
        log = line(b, base, age, treated * 1.0, fourth * 1.0) + u[patient]
        e = over * normals("ee", 160)
        sample("y", dist.Poisson(jnp.exp(log + e)).to_event(1), obs=jnp.asarray(y))

    def ask(fit, data):
        made = fit.simulate(seed=1, **{k: v for k, v in data.items() if k != "y"})["y"]
        finite(made, (160,), "simulate")
        with pytest.raises(probml.DataError, match="needs independent rows"):
            fit.predict(first(data, 4, "y"), "y")  # a number of each row stands in the plate

    data = {"patient": patient.astype(np.int8), "base": base, "age": age, "treated": treated,
            "fourth": fourth, "y": y}
    return Program(probml.model(seizures)(), data, plain, {}, None, ask)


@program("LSAT: latent ability of a row × a matrix of True, False and None × a row all missing")
def law_school_items():
    r = rng(4)
    n = 140
    theta, b = r.normal(size=n), np.array([-2.0, -1.0, -0.3, -1.2, -1.8])
    y = (r.random((n, 5)) < logistic(0.9 * theta[:, None] - b)).astype(object)
    y = np.where(y == 1, True, False).astype(object)
    y[7] = None
    y[r.random((n, 5)) < 0.06] = None
    y[8, 1:] = None

    def parameters():
        return sample("a", dist.HalfNormal(2.0)), sample("b", dist.Normal(0.0, 2.0).expand([5]).to_event(1))

    @probml.model
    def lsat():
        a, b = parameters()
        with probml.rows():
            theta = sample("theta", dist.Normal(0.0, 1.0))
            sample("y", dist.Bernoulli(logits=a * theta[..., None] - b).to_event(1))

    there = np.array([[v is not None for v in row] for row in y])
    own = np.where(there, y, False).astype(float)
    pattern = np.array([[1, 1, 1, 1, 1], [0, 0, 1, 0, 0]], float)

    def plain():
        a, b = parameters()
        theta = normals("t", n)
        eta = a * theta[:, None] - b
        log = jnp.where(there, dist.Bernoulli(logits=eta).log_prob(own), 0.0)
        factor("y", log.sum())
        deterministic("ability", theta[5:12])
        nodes, weights = np.polynomial.hermite_e.hermegauss(40)
        logs = dist.Bernoulli(logits=a * nodes[:, None, None] - b).log_prob(pattern).sum(-1)
        deterministic("density", (weights / weights.sum()) @ jnp.exp(logs))

    def ask(fit, data):
        filled = fit.impute(data)["y"]
        assert filled.shape == (n, 5)
        assert all(filled[i, j] == y[i, j] for i in range(n) for j in range(5) if there[i, j])

    answers = {"ability": lambda fit: fit.predict({"y": y[5:12]}, "theta"),
               "density": lambda fit: np.exp(fit.log_prob({"y": pattern.astype(bool)}))}
    return Program(lsat(), {"y": y}, plain, {}, None, ask, answers=answers)


@program("Inhaler: ordered words × cross-over with carry-over × effects of persons × float32 contrasts")
def inhalers():
    r = rng(5)
    persons = 60
    person = np.repeat(np.arange(persons), 2)
    group = np.repeat(np.where(np.arange(persons) % 2, 0.5, -0.5), 2).astype(np.float32)
    period = np.tile([-0.5, 0.5], persons).astype(np.float32)
    treat = (2 * group * -2 * period * 0.5).astype(np.float32)
    carry = np.where(period > 0, group, 0).astype(np.float32)
    eta = 1.1 * treat - 0.3 * period + 0.9 * r.normal(size=persons)[person]
    y = (eta[:, None] + r.logistic(size=(2 * persons, 1)) > np.array([0.5, 2.0, 3.2])).sum(1)

    def parameters():
        b = sample("b", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0))
        cut = sample("cut", dist.TransformedDistribution(
            dist.Normal(1.0, 2.0).expand([3]).to_event(1), dist.transforms.OrderedTransform()))
        return b, sd, cut

    def ratings(person, treat, period, carry, y=None):
        b, sd, cut = parameters()
        with plate("persons", persons):
            u = sample("u", dist.Normal(0.0, sd))
        with plate("n", len(person)):
            eta = b[0] * treat + b[1] * period + b[2] * carry + u[person]
            sample("y", dist.OrderedLogistic(eta, cut), obs=y)

    def plain():
        b, sd, cut = parameters()
        e = normals("e", persons + 1)
        u = sd * e
        deterministic("u", u[:persons])
        eta = b[0] * treat + b[1] * period + b[2] * carry
        factor("y", dist.OrderedLogistic(eta + u[person], cut).log_prob(jnp.asarray(y)).sum())
        deterministic("known", dist.OrderedLogistic(eta[:4] + u[person[:4]], cut).probs)
        deterministic("stranger", dist.OrderedLogistic(eta[:2] + u[persons], cut).probs)

    words = np.array(["easy", "rereading", "unclear", "confusing"])
    data = {"person": person, "treat": treat, "period": period, "carry": carry,
            "y": pd.Categorical(words[y], categories=list(words), ordered=True)}

    def ask(fit, data):
        assert list(fit.labels("y")) == list(words)
        assert set(fit.decide(first(data, 4, "y"), "y")) <= set(words)

    stranger = first(data, 2, "y") | {"person": np.array([persons, persons])}
    answers = {"known": lambda fit: fit.predict_proba(first(data, 4, "y"), "y"),
               "stranger": lambda fit: fit.predict_proba(stranger, "y", unknown="new")}
    return Program(probml.model(ratings)(), data, plain, {}, None, ask, answers=answers)


@program("Leukaemia as a counting process: gamma increments of the hazard × long table × text of weeks")
def leukaemia():
    treated = [6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    placebo = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
    times = np.array(sorted({*treated[0], *placebo}))
    rows = []
    for died, group, treat in ((True, treated[0], True), (False, treated[1], True), (True, placebo, False)):
        for end in group:
            rows += [(k, treat, int(died and t == end)) for k, t in enumerate(times) if t <= end]
    moment, treat, death = map(np.array, zip(*rows, strict=True))
    gaps = np.diff(np.append(times, 36)).astype(float)

    def parameters():
        return sample("beta", dist.Normal(0.0, 2.0)), sample(
            "hazard", dist.Gamma(0.05 * gaps, 0.5).to_event(1))

    @probml.model
    def counting(week, treat):
        beta = sample("beta", dist.Normal(0.0, 2.0))
        with plate("weeks", len(gaps)):
            hazard = sample("hazard", dist.Gamma(0.05 * gaps, 0.5))
        deterministic("alive", jnp.exp(-jnp.cumsum(hazard)[:, None] * jnp.exp(beta * jnp.array([0.5, -0.5]))))
        with probml.rows():
            sample("death", dist.Poisson(hazard[week] * jnp.exp(beta * jnp.where(treat, -0.5, 0.5))))

    def plain():
        beta, hazard = parameters()
        mean = hazard[moment] * jnp.exp(beta * np.where(treat, -0.5, 0.5))
        factor("death", dist.Poisson(mean).log_prob(jnp.asarray(death)).sum())
        deterministic("alive", jnp.exp(-jnp.cumsum(hazard)[:, None] * jnp.exp(beta * jnp.array([0.5, -0.5]))))
        deterministic("mean", mean[:5])

    frame = pd.DataFrame({"week": [f"week {times[k]:02d}" for k in moment], "treat": treat, "death": death})

    def ask(fit, data):
        again = back(fit, fit.model)
        new = frame.iloc[:3].drop(columns="death")
        np.testing.assert_allclose(again.predict(new, "death"), fit.predict(new, "death"), rtol=1e-4)

    return Program(counting(), frame, plain, {}, None, ask,
                   answers={"mean": lambda fit: fit.predict(frame.iloc[:5].drop(columns="death"), "death")})


AGES = np.array([1.0, 1.5, 1.5, 1.5, 2.5, 4.0, 5.0, 5.0, 7.0, 8.0, 8.5, 9.0, 9.5, 9.5, 10.0, 12.0, 12.0,
                 13.0, 13.0, 14.5, 15.5, 15.5, 16.5, 17.0, 22.5, 29.0, 31.5], np.float32)
LENGTHS = np.array([1.80, 1.85, 1.87, 1.77, 2.02, 2.27, 2.15, 2.26, 2.47, 2.19, 2.26, 2.40, 2.39, 2.41, 2.50,
                    2.32, 2.32, 2.43, 2.47, 2.56, 2.65, 2.47, 2.64, 2.56, 2.70, 2.72, 2.57], np.float32)


@program("Dugongs: a curve that saturates × BUGS's vague gamma of a precision × float32 × lengths ahead")
def dugongs():
    @probml.model
    def growth(age):
        alpha = sample("alpha", dist.Normal(0.0, 100.0))
        beta = sample("beta", dist.Normal(0.0, 100.0))
        gamma = sample("gamma", dist.Uniform(0.5, 1.0))
        tau = sample("tau", dist.Gamma(0.001, 0.001))
        deterministic("U3", jnp.log(gamma) - jnp.log1p(-gamma))
        with probml.rows():
            sample("length", dist.Normal(alpha - beta * gamma**age, tau**-0.5))

    ahead = np.array([0.0, 40.0], np.float32)

    def plain():
        alpha = sample("alpha", dist.Normal(0.0, 100.0))
        beta = sample("beta", dist.Normal(0.0, 100.0))
        gamma = sample("gamma", dist.Uniform(0.5, 1.0))
        tau = sample("tau", dist.Gamma(0.001, 0.001))
        sample("length", dist.Normal(alpha - beta * gamma ** jnp.asarray(AGES), tau**-0.5).to_event(1),
               obs=jnp.asarray(LENGTHS))
        deterministic("U3", jnp.log(gamma) - jnp.log1p(-gamma))
        deterministic("ahead", alpha - beta * gamma ** jnp.asarray(ahead))

    def ask(fit, data):
        low, high = fit.predict({"age": ahead}, "length", interval=0.95)[1:]
        assert (np.asarray(low) < np.asarray(high)).all() and 2.3 < low[1] < 2.65 < high[1] < 3.2

    return Program(growth(), {"age": AGES, "length": LENGTHS}, plain, {}, None, ask, ("alpha", "ahead"),
                   answers={"ahead": lambda fit: fit.predict({"age": ahead}, "length")})


@program("Cervix: a covariate misclassified and mostly unknown × weights of twelve rows × nullable booleans")
def cervix():
    whole = [(1, 0, 0, 13), (1, 0, 1, 3), (1, 1, 0, 5), (1, 1, 1, 18), (0, 0, 0, 33), (0, 0, 1, 11),
             (0, 1, 0, 16), (0, 1, 1, 16)]
    part = [(1, None, 0, 318), (1, None, 1, 375), (0, None, 0, 701), (0, None, 1, 535)]
    d, x, w, times = zip(*whole, *part, strict=True)

    def parameters():
        q = sample("q", dist.Beta(1.0, 1.0))
        b = sample("b", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
        return q, b, sample("phi", dist.Beta(1.0, 1.0).expand([2, 2]).to_event(2))

    @probml.model
    def virus():
        q, b, phi = parameters()
        with probml.rows():
            x = sample("x", dist.Bernoulli(q))
            d = sample("d", dist.Bernoulli(logits=b[0] + b[1] * x))
            sample("w", dist.Bernoulli(phi[x, d]))

    def plain():
        q, b, phi = parameters()
        state = jnp.arange(2)
        p = jnp.stack([1 - q, q])
        sick = jax.nn.sigmoid(b[0] + b[1] * state)
        joint = p[:, None, None] * jnp.stack([1 - sick, sick], 1)[:, :, None] * jnp.stack([1 - phi, phi], -1)
        total = sum(t * jnp.log(joint[a, i, j] if a is not None else joint[:, i, j].sum())
                    for i, a, j, t in zip(d, x, w, times, strict=True))
        factor("cells", total)
        deterministic("exposed", (joint[1] / joint.sum(0)).reshape(4))
        deterministic("cause", sick)

    frame = pd.DataFrame({"d": pd.array(d, "boolean"), "x": pd.array(x, "boolean"), "w": pd.array(w, "boolean")},
                         index=list("abcdefghijkl"))
    cells = pd.DataFrame({"d": [False, False, True, True], "w": [False, True, False, True]})

    def ask(fit, data):
        p = np.asarray(fit.predict_proba(frame, "x"))
        assert p.shape == (12, 2) and (p[:8].max(1) > 0.999).all()
        finite(fit.log_prob(frame), (12,), "log_prob")

    answers = {"exposed": lambda fit: np.asarray(fit.predict_proba(cells, "x"))[:, 1],
               "cause": lambda fit: np.array([fit.do({"x": v}).predict_proba({"w": [None]}, "d")[0, 1]
                                              for v in (False, True)])}
    return Program(virus(), frame, plain, {}, None, ask, weights=np.array(times), answers=answers)


@program("Jaw: four ages of a boy as one normal vector × LKJ × holes × an odd index × a boy never measured")
def jaws():
    r = rng(9)
    age, n = np.array([8.0, 8.5, 9.0, 9.5]), 20
    y = 48.5 + 1.9 * (age - 8.75) + r.multivariate_normal(np.zeros(4), 6 * 0.93 ** np.abs(
        np.subtract.outer(np.arange(4), np.arange(4))), n)
    y[[2, 5, 5, 11, 16], [3, 2, 3, 0, 1]] = np.nan
    y[13] = np.nan

    def parameters():
        a, b = sample("a", dist.Normal(50.0, 10.0)), sample("b", dist.Normal(0.0, 5.0))
        sd = sample("sd", dist.HalfNormal(5.0).expand([4]).to_event(1))
        return a + b * (age - 8.75), sd[:, None] * sample("root", dist.LKJCholesky(4, 1.0))

    @probml.model
    def jaw():
        mean, root = parameters()
        with probml.rows():
            sample("y", dist.MultivariateNormal(mean, scale_tril=root))

    def plain():
        mean, root = parameters()
        cov, filled = root @ root.T, []
        for row in y:
            there = ~np.isnan(row)
            if there.any():
                away = jnp.asarray(row[there]) - mean[there]
                own = cov[there][:, there]
                factor(f"row {len(filled)}", dist.MultivariateNormal(0.0, own).log_prob(away))
                filled.append((mean + cov[:, there] @ jnp.linalg.solve(own, away))[~there])
            else:
                filled.append(mean)
        deterministic("holes", jnp.concatenate(filled))
        deterministic("density", jnp.exp(dist.MultivariateNormal(mean, scale_tril=root).log_prob(y[:2])))

    frame = pd.DataFrame(y, columns=["8", "8.5", "9", "9.5"], index=np.arange(n)[::-1] * 3)

    def ask(fit, data):
        finite(np.asarray(fit.simulate(3, seed=1)["y"]), (3, 4), "simulate")
        own = fit.conditional({"y": frame.iloc[2:3]}, "y")
        finite(own.mean, (1, 4), "conditional")

    answers = {"holes": lambda fit: np.asarray(fit.impute({"y": frame})["y"])[np.isnan(y)],
               "density": lambda fit: np.exp(fit.log_prob({"y": frame.iloc[:2]}))}
    return Program(jaw(), {"y": frame}, plain, {}, None, ask, answers=answers)


@program("Ice: age, period, cohort × second-order random walk by two cumsums × exposure × text codes")
def ice():
    r = rng(10)
    cells = [(a, c) for a in range(9) for c in range(11) if 4 <= a + c <= 14]
    age, cohort = np.array(cells).T
    pop = r.lognormal(3.5, 0.6, len(age)).astype(np.float32)
    cases = r.poisson(pop * np.exp(-2.0 + 0.35 * age - 0.02 * age**2 + 0.06 * (cohort - 5)
                                   - 0.012 * (cohort - 5) ** 2))

    def parameters():
        with plate("ages", 9):
            a = sample("a", dist.Normal(-1.0, 2.0))
        sd = sample("sd", dist.HalfNormal(0.3))
        slope = sample("slope", dist.Normal(0.0, 0.3))
        return a, sd, slope

    def cancers(age, cohort, pop, cases=None):
        a, sd, slope = parameters()
        with plate("moves", 9):
            e = sample("e", dist.Normal(0.0, 1.0))
        walk = jnp.cumsum(slope + sd * jnp.cumsum(e))
        b = deterministic("b", jnp.concatenate([jnp.zeros(1), slope[None], slope + walk]))
        with plate("n", pop.shape[0]):
            sample("cases", dist.Poisson(pop * jnp.exp(a[age] + b[cohort])), obs=cases)

    def plain():
        a, sd, slope = parameters()
        walk = jnp.cumsum(slope + sd * jnp.cumsum(normals("e", 9)))
        b = deterministic("b", jnp.concatenate([jnp.zeros(1), slope[None], slope + walk]))
        mean = pop * jnp.exp(a[age] + b[cohort])
        factor("cases", dist.Poisson(mean).log_prob(jnp.asarray(cases)).sum())
        deterministic("mean", mean[:6])
        deterministic("density", jnp.exp(dist.Poisson(mean[:6]).log_prob(jnp.asarray(cases[:6]))))

    data = {"age": np.array([f"{20 + 5 * k}-{24 + 5 * k}" for k in range(9)])[age],
            "cohort": np.array([f"{1880 + 5 * k}" for k in range(11)])[cohort], "pop": pop, "cases": cases}

    def ask(fit, data):
        low, high = fit.predict(first(data, 6, "cases"), "cases", interval=0.9)[1:]
        assert (np.asarray(low) < np.asarray(high)).all()

    answers = {"mean": lambda fit: fit.predict(first(data, 6, "cases"), "cases"),
               "density": lambda fit: np.exp(fit.log_prob(first(data, 6)))}
    return Program(probml.model(cancers)(), data, plain, {}, None, ask, answers=answers)


@program("Alli: multinomial counts × effects of lakes and sizes against a first × totals × an empty row")
def alligators():
    r = rng(11)
    lake, size = np.repeat(np.arange(4), 4), np.tile([0, 0, 1, 1], 4)
    total = r.integers(8, 50, 16)
    eta = np.array([0.0, -0.5, -1.5, -1.2, -0.8]) + np.where(np.arange(5) > 0, (
        0.8 * r.normal(size=(4, 5))[lake] + np.outer(size, [0, -1.0, 0.4, 0.6, 0.2])), 0.0)
    p = np.exp(eta) / np.exp(eta).sum(1, keepdims=True)
    y = np.array([r.multinomial(t, q) for t, q in zip(total, p, strict=True)])

    def parameters():
        a = sample("a", dist.Normal(0.0, 2.0).expand([4]).to_event(1))
        b = sample("b", dist.Normal(0.0, 1.5).expand([3, 4]).to_event(2))
        return a, b, sample("c", dist.Normal(0.0, 1.5).expand([4]).to_event(1))

    def logits(a, b, c, lake, size):
        of_lake = jnp.concatenate([jnp.zeros((1, 4)), b])[lake]
        eta = a + of_lake + size[:, None] * c
        return jnp.concatenate([jnp.zeros_like(eta[:, :1]), eta], -1)

    def food(lake, size, total, y=None):
        a, b, c = parameters()
        with plate("n", lake.shape[0]):
            sample("y", dist.Multinomial(total, logits=logits(a, b, c, lake, size)), obs=y)

    def plain():
        a, b, c = parameters()
        log = jax.nn.log_softmax(logits(a, b, c, lake, size))
        factor("y", (jnp.where(np.arange(16) == 9, 0.0, 1.0)[:, None] * y * log).sum())
        deterministic("mean", 10 * jnp.exp(log[8:11]))

    holes = y.astype(float)
    holes[9] = np.nan
    names = np.array(["George", "Hancock", "Oklawaha", "Trafford"])
    data = {"lake": names[lake], "size": size.astype(bool), "total": total, "y": holes}

    def ask(fit, data):
        made = np.asarray(fit.simulate(lake=data["lake"], size=data["size"], total=total, seed=2)["y"])
        assert made.shape == (16, 5) and (made.sum(1) == total).all()

    new = {"lake": names[lake[8:11]], "size": size[8:11].astype(bool), "total": [10, 10, 10]}
    return Program(probml.model(food)(), data, plain, {}, None, ask,
                   answers={"mean": lambda fit: fit.predict(new, "y")})


# ---- a user of brms --------------------------------------------------------------------------------


@program("multi-membership: a pupil of two schools by shares × sigma by a covariate × a school with one row")
def pupils_of_two_schools():
    r = rng(12)
    n, schools = 130, 12
    one, two = r.integers(0, 11, n), r.integers(0, 11, n)
    two[5] = 11
    share, x = np.where(r.random(n) < 0.5, 1.0, r.random(n)).round(2), r.normal(size=n)
    share[5] = 0.6
    u = 1.2 * r.normal(size=schools)
    y = 10 + 0.8 * x + share * u[one] + (1 - share) * u[two] + np.exp(0.1 + 0.4 * x) * r.normal(size=n)

    def parameters():
        a = sample("a", dist.Normal(jnp.array([10.0, 0.0]), jnp.array([5.0, 2.0])).to_event(1))
        c = sample("c", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        return a, c, sample("sd", dist.HalfNormal(2.0))

    @probml.model
    def scores(one, two, share, x):
        a, c, sd = parameters()
        with plate("schools", schools):
            u = sample("u", dist.Normal(0.0, sd))
        with probml.rows():
            mean = a[0] + a[1] * x + share * u[one] + (1 - share) * u[two]
            sample("y", dist.Normal(mean, jnp.exp(c[0] + c[1] * x)))

    def plain():
        a, c, sd = parameters()
        u = sd * normals("e", schools + 1)
        deterministic("u", u[:schools])
        mean = a[0] + a[1] * x + share * u[one] + (1 - share) * u[two]
        own = dist.Normal(mean, jnp.exp(c[0] + c[1] * x))
        log = own.log_prob(jnp.asarray(y))
        factor("y", log.sum())
        deterministic("density", jnp.exp(log[3:9]))
        other = dist.Normal(a[0] + 0.3 * u[0] + 0.7 * u[schools], jnp.exp(c[0]))
        deterministic("stranger", jnp.exp(other.log_prob(11.0)))

    names = np.array([f"school {k:02d}" for k in range(schools)])
    data = {"one": names[one], "two": names[two], "share": share, "x": x, "y": y}

    def ask(fit, data):
        value, low, high = fit.predict(first(data, 5, "y"), "y", interval=0.8)
        assert (np.asarray(low) < value).all() and (value < np.asarray(high)).all()

    stranger = {"one": ["school 00"], "two": ["abroad"], "share": [0.3], "x": [0.0], "y": [11.0]}
    answers = {"density": lambda fit: np.exp(fit.log_prob({k: v[3:9] for k, v in data.items()})),
               "stranger": lambda fit: np.exp(fit.log_prob(stranger, unknown="new"))[0]}
    return Program(scores(), data, plain, {}, None, ask, answers=answers)


@program("phylogeny: effects by a matrix that is an argument × a second effect of the species × few rows each")
def phenotypes_of_species():
    r = rng(13)
    species, each = 16, 4
    half = np.kron(np.eye(4), np.full((4, 4), 0.6)) + 0.2 + 0.2 * np.eye(16)
    of = np.repeat(np.arange(species), each)
    x = r.normal(size=len(of)).astype(np.float32)
    u = r.multivariate_normal(np.zeros(16), half)
    y = (5 + 0.7 * x + u[of] + 0.4 * r.normal(size=16)[of] + 0.6 * r.normal(size=len(of))).astype(np.float32)

    def parameters():
        a, b = sample("a", dist.Normal(5.0, 3.0)), sample("b", dist.Normal(0.0, 1.0))
        sd = sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        return a, b, sd, sample("s", dist.HalfNormal(1.0))

    def phenotype(A, species, x, y=None):
        a, b, sd, s = parameters()
        u = sample("u", dist.MultivariateNormal(jnp.zeros(A.shape[0]), scale_tril=sd[0] * jnp.linalg.cholesky(A)))
        with plate("kinds", A.shape[0]):
            v = sample("v", dist.Normal(0.0, sd[1]))
        deterministic("lambda", sd[0] ** 2 / (sd[0] ** 2 + sd[1] ** 2))
        with plate("n", species.shape[0]):
            sample("y", dist.Normal(a + b * x + u[species] + v[species], s), obs=y)

    there = ~np.isin(np.arange(len(of)), [5, 40])

    def plain():
        a, b, sd, s = parameters()
        u = sd[0] * jnp.linalg.cholesky(half) @ normals("e", species)
        v = sd[1] * normals("f", species)
        deterministic("u", u)
        deterministic("v", v)
        deterministic("lambda", sd[0] ** 2 / (sd[0] ** 2 + sd[1] ** 2))
        mean = a + b * x + u[of] + v[of]
        sample("y", dist.Normal(mean[there], s).to_event(1), obs=jnp.asarray(y[there]))
        deterministic("mean", mean[:6])
        deterministic("density", jnp.exp(dist.Normal(mean[6:9], s).log_prob(y[6:9])))

    holes = np.where(there, y, np.nan).astype(np.float32)
    data = {"A": half, "species": of.astype(np.int16), "x": x, "y": holes}

    def ask(fit, data):
        finite(fit.simulate(A=half, species=of, x=x, seed=1)["y"], (len(of),), "simulate")
        filled = np.asarray(fit.impute(data)["y"], float)
        finite(filled, (len(of),), "impute")

    new = {"A": half, "species": of[:6], "x": x[:6]}
    some = {"A": half, "species": of[6:9], "x": x[6:9], "y": y[6:9]}
    answers = {"mean": lambda fit: fit.predict(new, "y"), "density": lambda fit: np.exp(fit.log_prob(some))}
    return Program(probml.model(phenotype)(), data, plain, {}, None, ask, answers=answers)
