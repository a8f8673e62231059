"""Observations in the forms that strangers have them in, each combined with a mechanism.

Columns of every type, units, gaps and sizes; teachers' puzzles. Written before any of them was run. Oracles: closed
forms, sums over all states, grids.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import scipy.special as sp
import scipy.stats as st
from numpyro import factor, handlers, plate, sample
from oracles_of_strangers import close, grid_mean, norm

import probml
from first_cases import back, case, share


def rng(seed):
    return np.random.default_rng([1131, seed])


def ridge(H, y, prior_mean, prior_sd, sigma):
    """Mean and covariance of the coefficients of a linear model with a known sigma."""
    precision = H.T @ H / sigma**2 + np.diag(1 / np.square(prior_sd))
    cov = np.linalg.inv(precision)
    return cov @ (H.T @ y / sigma**2 + prior_mean / np.square(prior_sd)), cov


def near(fit, name, mean, sd, what=""):
    """Means within 0.25 posterior sd and sds within 0.2, or said."""
    if not fit.converged or fit.warnings:
        return
    own = np.asarray(fit.draws(4000, seed=0)[name], float)
    close((own.mean(0) - mean) / sd, np.zeros(np.shape(mean)), f"{what}{name}: means in sds ({fit.status})",
          atol=0.25)
    close(own.std(0) / sd, np.ones(np.shape(mean)), f"{what}{name}: sds ({fit.status})", atol=0.2, rtol=0)


# ---- units and shapes of columns -------------------------------------------------------------------


@case("units of 10^6 × collinear columns × prediction")
def collinear_millions():
    def sales(ads, clicks, sold=None):
        a = sample("a", dist.Normal(0.0, 1e7))
        b = sample("b", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        with plate("n", ads.shape[0]):
            sample("sold", dist.Normal(a + b[0] * ads + b[1] * clicks, 2e5), obs=sold)

    r = rng(1)
    ads = r.uniform(1e6, 5e6, 50)
    clicks = ads * 1.0001 + r.normal(0, 1e3, 50)
    sold = 3e6 + 1.5 * ads + r.normal(0, 2e5, 50)
    fit = probml.model(sales)().fit({"ads": ads, "clicks": clicks, "sold": sold}, seed=0)
    H = np.stack([np.ones(50), ads, clicks], 1)
    m, cov = ridge(H, sold, np.zeros(3), np.array([1e7, 5, 5]), 2e5)
    near(fit, "b", m[1:], np.sqrt(np.diag(cov))[1:])
    near(fit, "a", m[0], np.sqrt(cov[0, 0]))
    value, low, high = fit.predict({"ads": [3e6], "clicks": [3.0003e6]}, "sold", interval=0.9)
    h = np.array([1, 3e6, 3.0003e6])
    s = np.sqrt(4e10 + h @ cov @ h)
    close((value - h @ m) / s, [0.0], "prediction", atol=0.2)
    close((high - low) / (3.29 * s), [1.0], "width", atol=0.12)


@case("units from 10^-9 to 10^12 × collinear columns, each unit of its own")
def units_of_every_size():
    r = rng(15)
    x = 3 + r.uniform(-2, 2, 50)
    z, y = x * 1.0001 + r.normal(0, 0.01, 50), 3 + 1.5 * x + r.normal(0, 0.2, 50)
    for u, v in ((1e6, 1), (1e6, 1e6), (1e12, 1e-3), (1e-9, 1e-9), (1, 1e6)):
        def line(x, z, y=None, u=u, v=v):
            a = sample("a", dist.Normal(0.0, 10 * u))
            b = sample("b", dist.Normal(0.0, 5 * u / v).expand([2]).to_event(1))
            with plate("n", x.shape[0]):
                sample("y", dist.Normal(a + b[0] * x + b[1] * z, 0.2 * u), obs=y)

        ours = [np.float32(one).astype(float) for one in (x * v, z * v, y * u)]
        fit = probml.model(line)(u=u, v=v).fit(dict(zip("xzy", ours, strict=True)), seed=0)
        m, cov = ridge(np.c_[np.ones(50), ours[0] / v, ours[1] / v], ours[2] / u, 0, np.array([10.0, 5, 5]), 0.2)
        unit = np.array([u, u / v, u / v])
        table = fit.summary()
        close((table["mean"] - m * unit) / (np.sqrt(np.diag(cov)) * unit), np.zeros(3), f"means, {u} {v}", atol=0.1)
        close(table["sd"] / (np.sqrt(np.diag(cov)) * unit), np.ones(3), f"sds, {u} {v}", atol=0.05)


@case("collinear columns × unknown sigma × 2,000 rows, in float32")
def collinear_and_unknown_noise():
    def line(x, z, y=None):
        a = sample("a", dist.Normal(0.0, 1e3))
        b = sample("b", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        s = sample("s", dist.HalfNormal(0.5))
        with plate("n", x.shape[0]):
            sample("y", dist.Normal(a + b[0] * x + b[1] * z, s), obs=y)

    r = rng(16)
    x = 3 + r.uniform(-2, 2, 2000)
    for gap in (1e-2, 3e-4):
        z, y = x * 1.0001 + r.normal(0, gap, 2000), 3 + 1.5 * x + r.normal(0, 0.2, 2000)
        ours = [np.float32(one).astype(float) for one in (x, z, y)]
        fit = probml.model(line)().fit(dict(zip("xzy", ours, strict=True)), seed=0)
        H = np.c_[np.ones(2000), ours[0], ours[1]]
        s = np.sqrt(np.linalg.lstsq(H, ours[2], rcond=None)[1][0] / 1997)
        m, cov = ridge(H, ours[2], 0, np.array([1e3, 5, 5]), s)
        assert fit.converged, fit.status  # a prior holds what the rows do not tell
        near(fit, "b", m[1:], np.sqrt(np.diag(cov))[1:])
        near(fit, "s", s, s / np.sqrt(2 * 1997))


@case("collinear columns × logistic × 2,000 rows, in float32")
def collinear_and_logistic():
    def yes(x, z, y=None):
        b = sample("b", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
        with plate("n", x.shape[0]):
            sample("y", dist.Bernoulli(logits=b[0] + b[1] * x + b[2] * z), obs=y)

    r = rng(17)
    x = 3 + r.uniform(-2, 2, 2000)
    y = r.random(2000) < 1 / (1 + np.exp(3 - x))
    for gap in (1e-2, 3e-4):
        z = np.float32(x * 1.0001 + r.normal(0, gap, 2000)).astype(float)
        H, w = np.c_[np.ones(2000), np.float32(x).astype(float), z], np.zeros(3)
        for _ in range(30):
            p = 1 / (1 + np.exp(-H @ w))
            hess = H.T @ ((p * (1 - p))[:, None] * H) + np.eye(3) / 9
            w = w + np.linalg.solve(hess, H.T @ (y - p) - w / 9)
        fit = probml.model(yes)().fit({"x": H[:, 1], "z": z, "y": y.astype(int)}, seed=0)
        assert fit.converged, fit.status
        near(fit, "b", w, np.sqrt(np.diag(np.linalg.inv(hess))))


@case("one row × counts × interval, log_prob")
def one_row_of_counts():
    @probml.model
    def calls(hours):
        rate = sample("rate", dist.Gamma(2.0, 1.0))
        with probml.rows():
            sample("calls", dist.Poisson(rate * hours))

    fit = calls().fit({"hours": [2.0], "calls": [9]}, seed=0)
    close(fit.params["rate"], 11 / 3, "mean", atol=0.1)
    new = st.nbinom(11, 3 / (3 + 4.0))
    value, low, high = fit.predict({"hours": [4.0]}, "calls", interval=0.9)
    close(value, [new.mean()], "predicted", atol=0.4)
    close([low[0], high[0]], new.ppf([0.05, 0.95]), "interval", atol=1.1)
    close(fit.log_prob({"hours": [4.0], "calls": [20]}), [new.logpmf(20)], "log_prob", atol=0.1)


@case("10,000 rows × logistic, offset in log, booleans")
def ten_thousand_rows():
    def clicks(x, bid, clicked=None):
        a = sample("a", dist.Normal(0, 5))
        b = sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
        with plate("n", x.shape[0]):
            sample("clicked", dist.Bernoulli(logits=a + x @ b + jnp.log(bid)), obs=clicked)

    r = rng(2)
    x, bid = r.normal(size=(10000, 3)), r.lognormal(0, 1, 10000)
    y = r.random(10000) < 1 / (1 + np.exp(-(-2 + x @ [0.5, 0, -0.3] + np.log(bid))))
    fit = probml.model(clicks)().fit({"x": x, "bid": bid, "clicked": y}, seed=0)
    H, w = np.c_[np.ones(10000), x], np.zeros(4)
    for _ in range(30):
        p = 1 / (1 + np.exp(-(H @ w + np.log(bid))))
        hess = H.T @ ((p * (1 - p))[:, None] * H) + np.diag([1 / 25, 0.25, 0.25, 0.25])
        w = w + np.linalg.solve(hess, H.T @ (y - p) - np.array([1 / 25, 0.25, 0.25, 0.25]) * w)
    sd = np.sqrt(np.diag(np.linalg.inv(hess)))
    near(fit, "a", w[0], sd[0])
    near(fit, "b", w[1:], sd[1:])
    got = fit.predict_proba({"x": x[:2], "bid": bid[:2]}, "clicked")
    close(got[:, 1], p[:2], "probabilities", atol=0.01)


@case("a column all missing × two outcomes of one parameter")
def column_all_missing():
    @probml.model
    def twins():
        m = sample("m", dist.Normal(0.0, 3.0))
        d = sample("d", dist.Normal(0.0, 2.0))
        with probml.rows():
            sample("x", dist.Normal(m, 1.0))
            sample("y", dist.Normal(m + d, 1.0))

    x = np.array([1.2, 0.4, 2.2])
    fit = twins().fit({"x": x, "y": [np.nan] * 3}, seed=0)
    v = 1 / (1 / 9 + 3)
    near(fit, "m", v * x.sum(), np.sqrt(v))
    near(fit, "d", 0.0, 2.0)
    value, low, high = fit.predict({"x": [np.nan]}, "y", interval=0.9)
    s = np.sqrt(v + 4 + 1)
    close([value[0], high[0] - low[0]], [v * x.sum(), 3.29 * s], "y of a new row", atol=0.35)


@case("booleans, text, None × naive Bayes by hand, learnt probabilities")
def answers_in_words():
    @probml.model
    def patients():
        sick = sample("sick", dist.Dirichlet(jnp.ones(2)))
        with plate("states", 2):
            cough = sample("cough_p", dist.Beta(1.0, 1.0))
            colour = sample("colour_p", dist.Dirichlet(jnp.ones(3)))
        with probml.rows():
            state = sample("state", dist.Categorical(sick))
            sample("cough", dist.Bernoulli(cough[state]))
            sample("colour", dist.Categorical(colour[state]))

    frame = pd.DataFrame({
        "state": ["well", "ill", "ill", "well", "well", "ill", "well"],
        "cough": [False, True, True, False, None, True, True],
        "colour": ["pink", "grey", "red", "pink", "red", "grey", None]})
    fit = patients().fit(frame, seed=0)
    # labels in alphabetical order: ill, well; grey, pink, red
    new = pd.DataFrame({"cough": [True, False], "colour": ["red", "pink"]})
    prior = np.array([4, 5]) / 9
    cough = np.array([4 / 5, 2 / 5])
    colour = np.array([[3, 1, 2], [1, 3, 2]]) / 6
    right = share(np.stack([prior * cough * colour[:, 2], prior * (1 - cough) * colour[:, 1]]))
    close(fit.predict_proba(new, "state"), right, "p(state)", atol=0.03)
    assert list(fit.predict(new, "state")) == ["ill", "well"]
    got = fit.impute(frame)
    assert got["colour"].iloc[6] == "pink", got
    assert str(got["cough"].iloc[4]) in ("False", "0", "0.0"), got


@case("dates as an input × trend")
def dates_as_inputs():
    def trend(day, y=None):
        a = sample("a", dist.Normal(0.0, 10.0))
        b = sample("b", dist.Normal(0.0, 1.0))
        with plate("n", day.shape[0]):
            sample("y", dist.Normal(a + b * day, 1.0), obs=y)

    frame = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=6), "y": [1.0, 2, 2, 4, 4, 6]})
    try:
        fit = probml.model(trend)().fit(frame, seed=0)
    except (probml.DataError, probml.ModelError) as error:
        assert "day" in str(error), error
        return
    raise AssertionError(f"a date is no number: {fit.status}")


@case("integers of one byte × a difference below zero")
def pixels_of_one_byte():
    def light(pixel, y=None):
        a = sample("a", dist.Normal(0.0, 5.0))
        b = sample("b", dist.Normal(0.0, 5.0))
        with plate("n", pixel.shape[0]):
            sample("y", dist.Normal(a + b * (pixel - 128) / 64, 1.0), obs=y)

    pixel = np.array([3, 40, 90, 128, 180, 255], np.uint8)
    y = np.array([-3.0, -2, -1, 0.5, 2, 4])
    fit = probml.model(light)().fit({"pixel": pixel, "y": y}, seed=0)
    H = np.stack([np.ones(6), (pixel.astype(float) - 128) / 64], 1)
    m, cov = ridge(H, y, 0, np.array([5.0, 5]), 1.0)
    near(fit, "a", m[0], np.sqrt(cov[0, 0]))
    near(fit, "b", m[1], np.sqrt(cov[1, 1]))
    close(fit.predict({"pixel": np.array([0], np.uint8)}, "y"), [m[0] - 2 * m[1]], "predicted", atol=0.3)


@case("seconds since 1970 in nanoseconds × a slope by the hour")
def nanoseconds():
    def warming(t, y=None):
        a = sample("a", dist.Normal(0.0, 10.0))
        b = sample("b", dist.Normal(0.0, 10.0))
        hours = (t - 1_700_000_000_000_000_000) / 3_600_000_000_000
        with plate("n", t.shape[0]):
            sample("y", dist.Normal(a + b * hours, 0.5), obs=y)

    hours = np.array([0.0, 1, 2, 3, 4, 5])
    t = (1_700_000_000_000_000_000 + hours * 3.6e12).astype(np.int64)
    y = 2 + 1.5 * hours + np.array([0.3, -0.2, 0.1, -0.4, 0.2, 0.0])
    try:
        fit = probml.model(warming)().fit({"t": t, "y": y}, seed=0)
    except (probml.DataError, probml.ModelError) as error:
        assert "t" in str(error), error
        return
    H = np.stack([np.ones(6), hours], 1)
    m, cov = ridge(H, y, 0, np.array([10.0, 10]), 0.5)
    near(fit, "a", m[0], np.sqrt(cov[0, 0]))
    near(fit, "b", m[1], np.sqrt(cov[1, 1]))


@case("pandas' Int64 with NA × counts × group")
def nullable_counts():
    @probml.model
    def births(farm):
        mu = sample("mu", dist.Normal(1.0, 1.0))
        with plate("farms", 3):
            z = sample("z", dist.Normal(0.0, 0.5))
        with probml.rows():
            sample("born", dist.Poisson(jnp.exp(mu + z[farm])))

    frame = pd.DataFrame({"farm": pd.array(["c", "a", "b", "a", "c", "b", "a"], dtype="string"),
                          "born": pd.array([3, None, 5, 2, 4, 7, 1], dtype="Int64")})
    fit = births().fit(frame, seed=0)
    farm, born = np.array([2, 1, 0, 2, 1, 0]), np.array([3, 5, 2, 4, 7, 1])
    axes = np.linspace(-2.2, 2.2, 61)
    mu = np.linspace(-1.5, 3, 101)
    # given mu the farms are independent
    log_each = np.stack([[st.poisson.logpmf(born[farm == g][:, None], np.exp(m + axes)).sum(0)
                          + norm.logpdf(axes, 0, 0.5) for g in range(3)] for m in mu])
    top = log_each.max(-1, keepdims=True)
    mass = np.exp(log_each - top)
    total = np.log(mass.sum(-1)) + top[..., 0]
    p = share(np.exp(total.sum(1) + norm.logpdf(mu, 1, 1) - (total.sum(1) + norm.logpdf(mu, 1, 1)).max()))
    mean = p @ mu
    near(fit, "mu", mean, np.sqrt(p @ (mu - mean) ** 2))
    rate = (share(mass) * np.exp(mu[:, None, None] + axes)).sum(-1)
    close(fit.predict(pd.DataFrame({"farm": ["b"]}), "born"), [p @ rate[:, 1]], "predicted of b", rtol=0.05)


@case("groups counted from one × an effect of each")
def groups_from_one():
    def radon(county, y=None):
        with plate("counties", 4):
            a = sample("a", dist.Normal(0.0, 5.0))
        with plate("n", county.shape[0]):
            sample("y", dist.Normal(a[county - 1], 1.0), obs=y)

    county = np.array([4, 1, 2, 2, 3, 4, 4, 1])
    y = np.array([8.0, 1.0, 3.0, 4.0, 6.0, 7.0, 9.0, 0.0])
    fit = probml.model(radon)().fit({"county": county, "y": y}, seed=0)
    H = np.eye(4)[county - 1]
    m, cov = ridge(H, y, 0, np.full(4, 5.0), 1.0)
    near(fit, "a", m, np.sqrt(np.diag(cov)))
    close(fit.predict({"county": np.array([3, 1])}, "y"), m[[2, 0]], "predicted", atol=0.25)


@case("groups counted from one × without the −1")
def groups_from_one_as_they_are():
    def radon(county, y=None):
        with plate("counties", 4):
            a = sample("a", dist.Normal(0.0, 5.0))
        with plate("n", county.shape[0]):
            sample("y", dist.Normal(a[county], 1.0), obs=y)

    county = np.array([4, 1, 2, 2, 3, 4, 4, 1])
    y = np.array([8.0, 1.0, 3.0, 4.0, 6.0, 7.0, 9.0, 0.0])
    try:
        fit = probml.model(radon)().fit({"county": county, "y": y}, seed=0)
    except (probml.DataError, probml.ModelError) as error:
        assert "county" in str(error), error
        return
    # as labels of the four members: never 3 and 4 as one
    m, cov = ridge(np.eye(4)[county - 1], y, 0, np.full(4, 5.0), 1.0)
    near(fit, "a", m, np.sqrt(np.diag(cov)))
    close(fit.predict({"county": np.array([3, 4])}, "y"), m[[2, 3]], "predicted", atol=0.25)


@case("groups as floats of a CSV × slope")
def groups_as_floats():
    @probml.model
    def shops(shop, price):
        with plate("shops", 3):
            a = sample("a", dist.Normal(0.0, 5.0))
        b = sample("b", dist.Normal(0.0, 5.0))
        with probml.rows():
            sample("sold", dist.Normal(a[shop] + b * price, 1.0))

    frame = pd.DataFrame({"shop": [0.0, 1, 2, 1, 0, 2], "price": [1.0, 2, 3, 1, 2, 2],
                          "sold": [3.0, 5, 1, 6, 2, 2]})
    try:
        fit = shops().fit(frame, seed=0)
    except (probml.DataError, probml.ModelError) as error:
        assert "shop" in str(error), error
        return
    H = np.c_[np.eye(3)[frame["shop"].astype(int)], frame["price"]]
    m, cov = ridge(H, frame["sold"].to_numpy(), 0, np.full(4, 5.0), 1.0)
    near(fit, "a", m[:3], np.sqrt(np.diag(cov))[:3])
    near(fit, "b", m[3], np.sqrt(cov[3, 3]))


@case("counts with a fraction, in words")
def fractions_of_counts():
    @probml.model
    def visits():
        rate = sample("rate", dist.Gamma(2.0, 1.0))
        with probml.rows():
            sample("visits", dist.Poisson(rate))

    for values in ([3.0, 2.5, 1.0], [3, -1, 2], ["3", "2", "x"]):
        try:
            visits().fit({"visits": values}, seed=0)
        except (probml.DataError, probml.ModelError) as error:
            assert "visits" in str(error), error
            continue
        raise AssertionError(f"{values} were fitted")


@case("weights of 0 and fractions × two groups × prediction")
def weights_and_groups():
    @probml.model
    def marks(group):
        m = sample("m", dist.Normal(0.0, 2.0))
        with plate("groups", 2):
            a = sample("a", dist.Normal(m, 1.0))
        with probml.rows():
            sample("y", dist.Normal(a[group], 1.0))

    group, y = np.array(["p", "q", "p", "q", "q"]), np.array([1.0, 4.0, 2.0, 50.0, 3.0])
    w = np.array([0.5, 2.0, 1.5, 0.0, 1.0])
    fit = marks().fit({"group": group, "y": y}, weights=w, seed=0)
    H = np.eye(2)[(group == "q").astype(int)]
    prior = np.linalg.inv(np.eye(2) + 4.0)
    cov = np.linalg.inv(prior + H.T @ (w[:, None] * H))
    m = cov @ H.T @ (w * y)
    near(fit, "a", m, np.sqrt(np.diag(cov)))
    near(fit, "m", 4 * np.ones(2) @ np.linalg.inv(np.eye(2) + 4) @ m, np.sqrt(
        4 - 4 * np.ones(2) @ np.linalg.inv(np.eye(2) + 4) @ np.ones(2) * 4
        + 16 * np.ones(2) @ np.linalg.inv(np.eye(2) + 4) @ cov @ np.linalg.inv(np.eye(2) + 4) @ np.ones(2)))
    close(fit.predict({"group": ["q"]}, "y"), [m[1]], "predicted", atol=0.2)


@case("intervals as two columns × factor in rows × truncated prior")
def intervals_of_durations():
    @probml.model
    def durations(low, high):
        rate = sample("rate", dist.Gamma(2.0, 2.0))
        with probml.rows():
            factor("between", jnp.log(jnp.exp(-rate * low) - jnp.exp(-rate * high)))

    low, high = np.array([0.0, 1, 1, 2, 0, 3]), np.array([1.0, 2, 3, 4, 2, 99.0])
    fit = durations().fit({"low": low, "high": high}, seed=0)

    def log(u):
        return (st.gamma.logpdf(u, 2, scale=0.5) + np.log(
            np.exp(-u[:, None] * low) - np.exp(-u[:, None] * high)).sum(1))

    mean, second = (grid_mean(log, lambda v, k=k: v**k, 1e-4, 6, 4001)[0] for k in (1, 2))
    near(fit, "rate", mean, np.sqrt(second - mean**2))


# ---- puzzles ---------------------------------------------------------------------------------------


@case("cookies of a bowl × plates of draws × decode")
def cookies():
    @probml.model
    def bowls():
        with probml.rows():
            bowl = sample("bowl", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
            with plate("draws", 4):
                sample("vanilla", dist.Bernoulli(jnp.array([0.75, 0.5, 0.1])[bowl]))

    drawn = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, np.nan]])
    fit = bowls().at({})
    p = np.array([0.75, 0.5, 0.1])
    like = np.stack([np.prod([q**v * (1 - q) ** (1 - v) for v in row if not np.isnan(v)], axis=0)
                     for row in drawn for q in [p]])
    right = share(like * [0.5, 0.3, 0.2])
    close(fit.predict_proba({"vanilla": drawn}, "bowl"), right, "p(bowl)")
    close(fit.decode({"vanilla": drawn[:2]})["bowl"], right[:2].argmax(1), "bowls")
    close(fit.impute({"vanilla": drawn})["vanilla"][2, 3], float(right[2] @ p > 0.5), "the last cookie")


@case("Monty Hall × a host with habits that are learnt")
def monty_hall():
    @probml.model
    def show():
        lazy = sample("lazy", dist.Beta(1.0, 1.0))
        with probml.rows():
            prize = sample("prize", dist.Categorical(jnp.ones(3) / 3))
            # the player takes door 0; the host opens 1 where he can choose with probability lazy
            opens = jnp.stack([lazy, jnp.zeros_like(lazy), jnp.ones_like(lazy)])
            sample("opens_1", dist.Bernoulli(opens[prize]))

    fit = show().fit({"opens_1": [1, 1, 0, 1, 1, 1], "prize": [0, 2, 1, 0, 2, None]}, seed=0)
    # lazy: two openings of 1 where he could choose, Beta(3, 1), and the last row says little
    x = np.linspace(0, 1, 20001)
    p = share(x**2 * (x + 1))  # p(opens 1) = (lazy + 1) / 3
    lazy = p @ x
    near(fit, "lazy", lazy, np.sqrt(p @ (x - lazy) ** 2))
    got = fit.predict_proba({"opens_1": [1]}, "prize", plug_in=True)
    m = float(np.asarray(fit.params["lazy"]))
    close(got, [[m / (1 + m), 0, 1 / (1 + m)]], "switch or stay", atol=0.01)
    got = fit.predict_proba({"opens_1": [1]}, "prize")
    # a new row: E p(prize, opens) / E p(opens)
    close(got, [share([lazy, 0, 1])], "switch or stay, on average", atol=0.02)


@case("German tanks × a number of tanks outside rows")
def german_tanks():
    def tanks(serial):
        n = sample("n", dist.Categorical(jnp.ones(300) / 300))
        with plate("seen", serial.shape[0]):
            factor("serial", jnp.where(serial <= n + 1, -jnp.log(n + 1.0), -jnp.inf))

    serial = np.array([37, 112, 60])
    fit = probml.model(tanks)().fit({"serial": serial}, seed=0)
    many = np.arange(1, 301)
    p = share(np.where(many >= 112, many**-3.0, 0))
    if fit.converged and not fit.warnings:
        drawn = np.asarray(fit.draws(4000, seed=0).get("n", np.nan), float) + 1
        if not np.isnan(drawn).any():
            mean = p @ many
            close(drawn.mean(), mean, "mean", atol=0.25 * np.sqrt(p @ (many - mean) ** 2))
    assert serial.max() == 112


@case("a change at any moment × step that no derivative moves × gammas")
def coal():
    def mines(year, disasters=None):
        early = sample("early", dist.Exponential(0.5))
        late = sample("late", dist.Exponential(0.5))
        when = sample("when", dist.Uniform(0.0, 20.0))
        with plate("years", year.shape[0]):
            sample("disasters", dist.Poisson(jnp.where(year < when, early, late)), obs=disasters)

    year = np.arange(20.0)
    n = np.array([4, 5, 3, 4, 2, 6, 4, 5, 3, 1, 0, 1, 1, 2, 0, 1, 0, 1, 2, 1])

    def evidence(k):
        return sp.gammaln(1 + k.sum()) - (1 + k.sum()) * np.log(0.5 + len(k)) - sp.gammaln(k + 1).sum()

    logs = np.array([evidence(n[:w]) + evidence(n[w:]) for w in range(1, 21)])  # when in (w − 1, w]
    p = share(np.exp(logs - logs.max()))
    w = np.arange(1, 21)
    mean = p @ (w - 0.5)
    fit = probml.model(mines)().fit({"year": year, "disasters": n}, seed=0)
    near(fit, "when", mean, np.sqrt(p @ ((w - 0.5) ** 2 + 1 / 12) - mean**2))
    early = p @ [(1 + n[:k].sum()) / (0.5 + k) for k in w]
    square = p @ [(1 + n[:k].sum()) * (2 + n[:k].sum()) / (0.5 + k) ** 2 for k in w]
    near(fit, "early", early, np.sqrt(square - early**2))


@case("missing cells of two outcomes × group effect × impute")
def cells_of_two_outcomes():
    @probml.model
    def lambs(farm):
        with plate("farms", 2):
            m = sample("m", dist.Normal(jnp.zeros(2), 3.0).to_event(1))
        with probml.rows():
            sample("x", dist.MultivariateNormal(m[farm], jnp.array([[1.0, 0.7], [0.7, 1.0]])))

    x = np.array([[1.0, 2.0], [0.5, np.nan], [np.nan, 3.0], [-1.0, -2.0], [np.nan, np.nan]])
    farm = np.array(["up", "up", "up", "low", "low"])
    fit = lambs().fit({"farm": farm, "x": x}, seed=0)
    S, codes = np.array([[1, 0.7], [0.7, 1]]), (farm == "up").astype(int)
    precision, shift = np.eye(4) / 9, np.zeros(4)
    for row, g in zip(x, codes, strict=True):
        there = np.flatnonzero(~np.isnan(row))
        if len(there):
            inverse = np.linalg.inv(S[np.ix_(there, there)])
            precision[np.ix_(2 * g + there, 2 * g + there)] += inverse
            shift[2 * g + there] += inverse @ row[there]
    cov = np.linalg.inv(precision)
    m = (cov @ shift).reshape(2, 2)
    near(fit, "m", m, np.sqrt(np.diag(cov)).reshape(2, 2))
    value = fit.predict({"farm": ["up"], "x": [[2.0, np.nan]]}, "x")
    close(np.ravel(value)[-1], m[1, 1] + 0.7 * (2.0 - m[1, 0]), "the other of a new lamb", atol=0.35)


@case("A/B by beta-binomial × log_prob, interval, saved")
def trial_of_two_arms():
    @probml.model
    def arms(arm, shown):
        with plate("arms", 2):
            p = sample("p", dist.Beta(1.0, 1.0))
        with probml.rows():
            sample("bought", dist.Binomial(shown, p[arm]))

    data = {"arm": ["B", "A", "B"], "shown": [20, 30, 15], "bought": [6, 3, 5]}
    model = arms()
    fit = model.fit(data, seed=0)
    near(fit, "p", np.array([4 / 32, 12 / 37]), np.sqrt([4 * 28 / 32**2 / 33, 12 * 25 / 37**2 / 38]))
    new = st.betabinom(10, 12, 25)
    for one in (fit, back(fit, model)):
        got = one.log_prob({"arm": ["B"], "shown": [10], "bought": [5]})
        close(got, [new.logpmf(5)], "log_prob", atol=0.08)
        value, low, high = one.predict({"arm": ["B"], "shown": [10]}, "bought", interval=0.8)
        close([value[0], low[0], high[0]], [new.mean(), *new.ppf([0.1, 0.9])], "interval", atol=1.05)
    p = fit.draws(4000, seed=1)["p"]
    right = np.mean(rng(9).beta(12, 25, 200000) > rng(10).beta(4, 28, 200000))
    close(np.mean(p[:, 1] > p[:, 0]), right, "P(B better)", atol=0.02)


@case("numbers as text of a CSV × regression")
def numbers_as_text():
    def line(x, y=None):
        a = sample("a", dist.Normal(0.0, 5.0))
        b = sample("b", dist.Normal(0.0, 5.0))
        with plate("n", x.shape[0]):
            sample("y", dist.Normal(a + b * x, 1.0), obs=y)

    try:
        fit = probml.model(line)().fit({"x": ["1.5", "2", "3", "4"], "y": [1.0, 2.0, 3.0, 5.0]}, seed=0)
    except (probml.DataError, probml.ModelError) as error:
        assert "x" in str(error), error
        return
    H = np.stack([np.ones(4), [1.5, 2, 3, 4]], 1)
    m, cov = ridge(H, np.array([1.0, 2, 3, 5]), 0, np.array([5.0, 5]), 1.0)
    near(fit, "b", m[1], np.sqrt(cov[1, 1]))


@case("ordered categories of numbers × class of a row")
def sizes_as_categories():
    @probml.model
    def shirts():
        with plate("kinds", 2):
            p = sample("p", dist.Dirichlet(jnp.array([1.0, 1.0, 1.0])))
        with probml.rows():
            kind = sample("kind", dist.Categorical(jnp.array([0.5, 0.5])))
            sample("size", dist.Categorical(p[kind]))

    sizes = pd.Categorical([40, 42, 38, 42, 40, None], categories=[38, 40, 42], ordered=True)
    frame = pd.DataFrame({"kind": ["f", "m", "f", "m", "m", "f"], "size": sizes})
    fit = shirts().fit(frame, seed=0)
    right = np.array([[2, 2, 1], [1, 2, 3]]) / np.array([[5], [6]])
    close(fit.predict_proba(pd.DataFrame({"kind": ["f", "m"]}), "size"), right, "p(size)", atol=0.02)
    assert list(fit.predict(pd.DataFrame({"kind": ["m"]}), "size")) == [42]
    got = fit.impute(pd.DataFrame({"size": pd.Categorical([38, 42], categories=[38, 40, 42])}))
    assert list(got["kind"]) == ["f", "m"], got


@case("a constant column × its slope under a prior")
def constant_column():
    def line(x, z, y=None):
        a = sample("a", dist.Normal(0.0, 5.0))
        b = sample("b", dist.Normal(0.0, 2.0))
        c = sample("c", dist.Normal(0.0, 2.0))
        with plate("n", x.shape[0]):
            sample("y", dist.Normal(a + b * x + c * z, 1.0), obs=y)

    x, y = np.array([0.0, 1, 2, 3]), np.array([3.0, 3.5, 5.0, 6.0])
    fit = probml.model(line)().fit({"x": x, "z": np.ones(4), "y": y}, seed=0)
    m, cov = ridge(np.c_[np.ones(4), x, np.ones(4)], y, 0, np.array([5.0, 2, 2]), 1.0)
    for i, name in enumerate("abc"):
        near(fit, name, m[i], np.sqrt(cov[i, i]))


@case("a mean far from zero × unknown sigma, float32")
def pressure_in_pascal():
    def pressure(y):
        m = sample("m", dist.Normal(1e5, 1e4))
        s = sample("s", dist.HalfNormal(10.0))
        with plate("n", y.shape[0]):
            sample("y", dist.Normal(m, s), obs=y)

    y = 101325.0 + rng(11).normal(0, 0.5, 12)
    fit = probml.model(pressure)().fit({"y": y}, seed=0)
    y = np.float32(y).astype(float)
    s = np.exp(np.linspace(np.log(0.05), np.log(5), 4001))
    log = -(len(y) - 1) * np.log(s) - ((y - y.mean()) ** 2).sum() / (2 * s**2) - s**2 / 200
    p = share(np.exp(log - log.max()) * s)
    mean = p @ s
    near(fit, "m", y.mean(), np.sqrt(p @ s**2 / len(y)))
    near(fit, "s", mean, np.sqrt(p @ (s - mean) ** 2))


@case("rows shuffled, another index × group effects × pandas")
def frame_with_an_index():
    @probml.model
    def yields(field, rain):
        with plate("fields", 3):
            a = sample("a", dist.Normal(0.0, 3.0))
        b = sample("b", dist.Normal(0.0, 3.0))
        with probml.rows():
            sample("crop", dist.Normal(a[field] + b * rain, 1.0))

    r = rng(12)
    frame = pd.DataFrame({"field": np.repeat(["x", "y", "z"], 4), "rain": r.normal(size=12)})
    frame["crop"] = frame["field"].map({"x": 1.0, "y": 2.0, "z": 4.0}) + frame["rain"] + r.normal(size=12)
    mixed = frame.sample(frac=1, random_state=1)
    mixed.index = pd.date_range("2020", periods=12)[::-1]
    fit = yields().fit(mixed, seed=0)
    H = np.c_[np.eye(3)[np.repeat(np.arange(3), 4)], frame["rain"]]
    m, cov = ridge(H, frame["crop"].to_numpy(), 0, np.full(4, 3.0), 1.0)
    near(fit, "a", m[:3], np.sqrt(np.diag(cov))[:3])
    new = pd.DataFrame({"rain": [0.5], "field": ["z"]}, index=["here"])
    value = fit.predict(new, "crop")
    close(np.asarray(value), [m[2] + 0.5 * m[3]], "predicted", atol=0.2)


@case("a mixture in units of 10^-6 × classes of new rows")
def microns():
    @probml.model
    def cells():
        w = sample("w", dist.Beta(2.0, 2.0))
        m = sample("m", dist.Normal(jnp.array([3e-6, 9e-6]), 2e-6).to_event(1))
        s = sample("s", dist.LogNormal(jnp.log(1e-6), 0.5))
        with probml.rows():
            big = sample("big", dist.Bernoulli(w))
            sample("size", dist.Normal(m[big], s))

    r = rng(13)
    big = r.random(80) < 0.3
    size = np.where(big, 8e-6, 4e-6) + 0.8e-6 * r.normal(size=80)
    fit = cells().fit({"size": size}, seed=0)
    m, s, w = (np.asarray(fit.params[k], float) for k in ("m", "s", "w"))
    close(m * 1e6, [size[~big].mean() * 1e6, size[big].mean() * 1e6], "means", atol=0.5)
    close(s * 1e6, 0.8, "sd", atol=0.25)
    close(w, big.mean(), "share", atol=0.1)
    new = np.array([3e-6, 6.1e-6, 9e-6])
    got = fit.predict_proba({"size": new}, "big", plug_in=True)
    like = norm.pdf(new[:, None], m, s) * np.array([1 - w, w])
    close(got, share(like), "p(big)", atol=0.01)


@case("years as they are × a quadratic trend of counts, float32")
def raw_years():
    def bikes(year, count=None):
        a = sample("a", dist.Normal(0.0, 1e4))
        b = sample("b", dist.Normal(0.0, 10.0))
        with plate("n", year.shape[0]):
            sample("count", dist.Poisson(jnp.exp(a + b * year)), obs=count)

    year = np.arange(2001, 2013)
    count = rng(14).poisson(np.exp(2.0 + 0.12 * (year - 2006)))
    fit = probml.model(bikes)().fit({"year": year, "count": count}, seed=0)
    H, w = np.c_[np.ones(12), year - 2006.5], np.array([2.0, 0.1])
    for _ in range(50):
        mu = np.exp(H @ w)
        w = w + np.linalg.solve(H.T @ (mu[:, None] * H), H.T @ (count - mu))
    cov = np.linalg.inv(H.T @ (mu[:, None] * H))
    near(fit, "b", w[1], np.sqrt(cov[1, 1]))
    got = fit.predict({"year": np.array([2006, 2014])}, "count")
    new = np.c_[np.ones(2), np.array([2006, 2014]) - 2006.5]
    right = np.exp(new @ w + 0.5 * np.einsum("ni,ij,nj->n", new, cov, new))
    close(np.asarray(got) / right, [1.0, 1.0], f"predicted ({fit.status})", atol=0.06)


@case("hidden state of a sensor × three readings with gaps × posterior of the state")
def noisy_sensors():
    @probml.model
    def days():
        with probml.rows():
            rain = sample("rain", dist.Bernoulli(0.3))
            sample("a", dist.Bernoulli(jnp.array([0.1, 0.9])[rain]))
            sample("b", dist.Normal(2.0 * rain, 1.0))
            sample("c", dist.Poisson(jnp.array([0.5, 3.0])[rain]))

    a, b, c = np.array([1, np.nan, 0]), np.array([np.nan, 1.2, 3.0]), np.array([4, np.nan, np.nan])
    like = np.ones((3, 2))
    for i in range(3):
        if not np.isnan(a[i]):
            like[i] *= st.bernoulli.pmf(a[i], [0.1, 0.9])
        if not np.isnan(b[i]):
            like[i] *= norm.pdf(b[i], [0, 2])
        if not np.isnan(c[i]):
            like[i] *= st.poisson.pmf(c[i], [0.5, 3.0])
    right = share(like * [0.7, 0.3])
    fit = days().at({})
    data = {"a": a, "b": b, "c": c}
    close(fit.predict_proba(data, "rain"), right, "p(rain)")
    close(fit.impute(data)["b"][0], right[0] @ [0.0, 2.0], "b of the first day", atol=0.01)
    close(fit.log_prob(data), np.log((like * [0.7, 0.3]).sum(1)), "log_prob")


# ---- the same model in another unit has the same answer --------------------------------------------


def same_in_every_unit(build, data, sites):
    """build(unit) → a bound model; data(unit); posterior means and sds scale with the unit."""
    base = None
    for unit in (1.0, 1e6, 1e-6):
        fit = build(unit).fit(data(unit), seed=0)
        assert fit.converged, f"{unit}: {fit.status}"
        drawn = fit.draws(4000, seed=0)
        found = {name: (np.asarray(drawn[name], float).mean(0) / unit, np.asarray(drawn[name], float).std(0) / unit)
                 for name in sites}
        base = base or found
        for name, (mean, sd) in found.items():
            close((mean - base[name][0]) / base[name][1], np.zeros(np.shape(mean)), f"{unit}: mean of {name}",
                  atol=0.2, rtol=0)
            close(sd / base[name][1], np.ones(np.shape(sd)), f"{unit}: sd of {name}", atol=0.15, rtol=0)


@case("a mixture in any unit × the posterior about EM's optimum")
def mixture_in_any_unit():
    def build(u):
        @probml.model
        def two():
            w = sample("w", dist.Dirichlet(jnp.ones(2)))
            m = sample("m", dist.Normal(jnp.array([1.0, 7.0]) * u, 3 * u).to_event(1))
            s = sample("s", dist.HalfNormal(2 * u))
            with probml.rows():
                z = sample("z", dist.Categorical(w))
                sample("y", dist.Normal(m[z], s))

        return two()

    r = rng(18)
    y = np.where(r.random(40) < 0.4, 6, 2) + r.normal(0, 0.7, 40)
    same_in_every_unit(build, lambda u: {"y": y * u}, ("m", "s"))


@case("a censored outcome in any unit × mask and factor")
def censored_in_any_unit():
    def build(u):
        def capped(y=None):
            m = sample("m", dist.Normal(0.0, 10 * u))
            s = sample("s", dist.HalfNormal(5 * u))
            y = jnp.asarray(y)
            with plate("n", 40), handlers.mask(mask=y < 5 * u):
                sample("y", dist.Normal(m, s), obs=y)
            factor("c", jnp.where(y < 5 * u, 0.0, jax.scipy.stats.norm.logsf((5 * u - m) / s)).sum())

        return probml.model(capped)()

    y = np.minimum(4 + 2 * rng(19).normal(size=40), 5.0)
    same_in_every_unit(build, lambda u: {"y": y * u}, ("m", "s"))


@case("a curve that saturates, in any unit")
def saturation_in_any_unit():
    def build(u):
        def curve(x, y=None):
            top = sample("top", dist.LogNormal(jnp.log(5 * u), 1.0))
            half = sample("half", dist.LogNormal(0.0, 1.0))
            s = sample("s", dist.HalfNormal(u))
            with plate("n", x.shape[0]):
                sample("y", dist.Normal(top * x / (half + x), s), obs=y)

        return probml.model(curve)()

    r = rng(20)
    x = r.uniform(0.2, 8, 40)
    y = 6 * x / (1.5 + x) + r.normal(0, 0.3, 40)
    same_in_every_unit(build, lambda u: {"x": x, "y": y * u}, ("top", "s"))
