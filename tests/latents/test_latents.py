"""Unseen numbers inside rows: integrated out, held to the joint normal distribution and to another
library's quadrature."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import factor, plate, sample
from scipy import stats

import probml
from cases import fitted
from probml.dataset import read
from probml.device import load
from probml.engines.engine import Outcome, Status
from probml.evidence.e_step import expect, log_evidence, row_surrogate, surrogate
from probml.fits import latent_findings

nan = np.nan


def log_normal(x, mean, cov):
    """log N(x; mean, cov) of what is seen of x."""
    seen = ~np.isnan(x)
    if not seen.any():
        return 0.0
    return stats.multivariate_normal(mean[seen], cov[np.ix_(seen, seen)]).logpdf(x[seen])


def given(x, mean, cov):
    """Mean and covariance of all coordinates given those that are seen."""
    s = ~np.isnan(x)
    gain = cov[:, s] @ np.linalg.inv(cov[np.ix_(s, s)]) if s.any() else np.zeros((len(x), 0))
    return mean + gain @ (x[s] - mean[s]), cov - gain @ cov[s]


@probml.model
def web(u):
    """A number that feeds a vector, both of which feed three cells, beside a state."""
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("state", 2):
        level = sample("level", dist.Normal(0.0, 3.0))
        offset = sample("offset", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
    spread = sample("spread", dist.LogNormal(0.0, 1.0))
    slope = sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    root = sample("root", dist.LKJCholesky(2, 1.0))
    load = sample("load", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    cross = sample("cross", dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2))
    beta = sample("beta", dist.Normal(0.0, 1.0))
    noise = sample("noise", dist.LogNormal(0.0, 1.0).expand([3]).to_event(1))
    with probml.rows():
        c = sample("c", dist.Categorical(weights))
        a = sample("a", dist.Normal(level[c] + u, spread))
        b = sample("b", dist.MultivariateNormal(slope * a[..., None], scale_tril=2.0 * root))
        mean = offset[c] + load * a[..., None] + b @ cross.T + beta * u[..., None]
        sample("d", dist.Normal(mean, noise).to_event(1))


RNG = np.random.default_rng(0)
ROWS = 12
WEB = {
    "weights": np.array([0.3, 0.7]), "level": np.array([-1.0, 0.5]),
    "offset": RNG.normal(size=(2, 3)), "spread": np.array(1.3), "slope": RNG.normal(size=2),
    "root": np.array([[1.0, 0.0], [0.6, 0.8]]), "load": RNG.normal(size=3),
    "cross": RNG.normal(size=(3, 2)), "beta": np.array(0.4), "noise": np.array([0.5, 0.7, 0.9]),
}


def joint(p, u, c):
    """Mean and covariance of (a, b, d) of a row in state c."""
    step = np.zeros((6, 6))
    step[1:3, 0], step[3:, 0], step[3:, 1:3] = p["slope"], p["load"], p["cross"]
    own = np.zeros((6, 6))
    own[0, 0], own[1:3, 1:3] = p["spread"] ** 2, 4 * p["root"] @ p["root"].T
    own[3:, 3:] = np.diag(p["noise"] ** 2)
    base = np.concatenate([[p["level"][c] + u], np.zeros(2), p["offset"][c] + p["beta"] * u])
    total = np.linalg.inv(np.eye(6) - step)
    return total @ base, total @ own @ total.T


def some_web(holes):
    """Rows of the web with a share of unseen cells."""
    random = np.random.default_rng(1)
    u, x = random.normal(size=ROWS), random.normal(size=(ROWS, 6)) * 2
    x[random.random(x.shape) < holes] = nan
    x[0] = nan
    c = np.where(random.random(ROWS) < 0.5, random.integers(2, size=ROWS), nan)
    return u, x, c


CASES = {
    "a and b unseen": {"d"}, "a seen in part": {"a", "d"}, "b seen in part": {"b", "d"},
    "all seen in part": {"a", "b", "d"}, "d unseen": {"a", "b"},
}


@pytest.fixture(scope="module")
def fit():
    return web().at(WEB)


@pytest.mark.parametrize("case", CASES)
def test_any_holes_of_a_linear_gaussian_network_are_the_joint_normal(case, fit):
    u, x, c = some_web(0.35)
    names = {"a": slice(0, 1), "b": slice(1, 3), "d": slice(3, 6)}
    for name, where in names.items():
        if name not in CASES[case]:
            x[:, where] = nan
    data = {"u": u, "c": c, **{n: x[:, w][:, 0] if n == "a" else x[:, w]
                               for n, w in names.items() if n in CASES[case]}}
    logs = np.array([[np.log(WEB["weights"][k]) + log_normal(row, *joint(WEB, v, k))
                      if np.isnan(s) or s == k else -np.inf for k in range(2)]
                     for v, row, s in zip(u, x, c, strict=True)])
    total = np.logaddexp.reduce(logs, 1)
    np.testing.assert_allclose(fit.log_prob(data), total, atol=1e-9)
    share = np.exp(logs - total[:, None])
    np.testing.assert_allclose(fit.predict_proba(data, "c"), share, atol=1e-9)
    filled = fit.impute(data)
    for i, (v, row) in enumerate(zip(u, x, strict=True)):
        mean = share[i] @ np.array([given(row, *joint(WEB, v, k))[0] for k in range(2)])
        got = np.concatenate([np.ravel(filled[n][i]) for n in names])
        np.testing.assert_allclose(got, mean, atol=1e-9)


def test_a_conditional_is_the_mixture_of_its_states(fit):
    u, x, c = some_web(0.3)
    x[:, :1] = nan
    found = fit.conditional({"u": u, "c": c, "b": x[:, 1:3], "d": x[:, 3:]}, "b")
    assert isinstance(found, dist.MixtureSameFamily) and found.batch_shape == (ROWS,)
    for i, k in itertools.product(range(ROWS), range(2)):
        mean, cov = given(x[i], *joint(WEB, u[i], k))
        part = found.component_distribution
        np.testing.assert_allclose(part.mean[i, k], mean[1:3], atol=1e-9)
        lower = np.asarray(part.scale_tril)[i, k]
        np.testing.assert_allclose(lower @ lower.T, cov[1:3, 1:3], atol=1e-9)


def test_draws_given_a_row_have_its_conditional_moments(fit):
    u, x, _ = some_web(0.0)
    row = np.array([nan, nan, 0.7, 1.0, nan, -0.4])
    n = 4000
    data = {"u": np.full(n, u[1]), "c": np.zeros(n), "b": np.tile(row[1:3], (n, 1)),
            "d": np.tile(row[3:], (n, 1))}
    drawn = fit.simulate(rows=n, seed=3, given=data)
    got = np.column_stack([drawn["a"], drawn["b"], drawn["d"]])
    mean, cov = given(row, *joint(WEB, u[1], 0))
    np.testing.assert_allclose(got.mean(0), mean, atol=5 * np.sqrt(np.diag(cov).max() / n))
    np.testing.assert_allclose(np.cov(got.T), cov, atol=0.25)


def test_the_gradient_of_the_evidence_is_that_of_the_joint_normal():
    """Of every parameter, by differences of the closed form."""
    u, x, _ = some_web(0.3)
    x[:, :3] = nan
    model, data = web(), {"u": u, "d": x[:, 3:]}

    def closed(p):
        logs = [[np.log(p["weights"][k]) + log_normal(row, *joint(p, v, k)) for k in range(2)]
                for v, row in zip(u, x, strict=True)]
        return np.logaddexp.reduce(np.array(logs), 1).sum()

    held = read.read(model, data)
    plan = held.plan()
    rows, known = load.load(held, plan)
    slopes = jax.jit(jax.grad(lambda p: log_evidence(plan, p, known, rows)))(
        {name: jnp.asarray(value) for name, value in WEB.items()})
    for name in ("level", "spread", "slope", "load", "cross", "beta", "noise"):
        for place in np.ndindex(WEB[name].shape):
            ends = []
            for step in (-1e-5, 1e-5):
                moved = {**WEB, name: np.array(WEB[name])}
                moved[name][place] += step
                ends.append(closed(moved))
            want = (ends[1] - ends[0]) / 2e-5
            np.testing.assert_allclose(slopes[name][place], want, rtol=1e-5, atol=1e-6)


@probml.model
def analysers(whole: bool):
    """Mixtures of factor analysers, of independent cells or of one vector; a second latent looks
    at the first."""
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("component", 2):
        loading = sample("loading", dist.Normal(0.0, 2.0).expand([3, 2]).to_event(2))
        mean = sample("mean", dist.Normal(0.0, 10.0).expand([3]).to_event(1))
    noise = sample("noise", dist.LogNormal(0.0, 1.0).expand([3]).to_event(1))
    drift, width = sample("drift", dist.Normal(0.0, 1.0)), sample("width", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        c = sample("c", dist.Categorical(weights))
        z = sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        v = sample("v", dist.Normal(drift * z[..., 0], width))
        loc = mean[c] + jnp.einsum("...dq,...q->...d", loading[c], z) + v[..., None]
        if whole:
            cov = noise[:, None] * noise + jnp.diag(noise**2)
            sample("x", dist.MultivariateNormal(loc, covariance_matrix=cov))
        else:
            sample("x", dist.Normal(loc, noise).to_event(1))


@pytest.mark.parametrize("case", ["cells", "vector", "rows of their own"])
def test_the_m_step_climbs_what_touches_the_evidence(case):
    """At the parameters of the E-step both have the same gradient, whether or not statistics
    pool."""
    random = np.random.default_rng(4)
    if case == "rows of their own":
        u, x, c = some_web(0.3)
        model, data, params = web(), {"u": u, "c": c, "a": x[:, 0], "d": x[:, 3:]}, WEB
    else:
        x = random.normal(size=(9, 3))
        x[2, 1], x[5] = nan, nan
        model, data = analysers(whole=case == "vector"), {"x": x}
        params = {"weights": np.array([0.4, 0.6]), "loading": random.normal(size=(2, 3, 2)),
                  "mean": random.normal(size=(2, 3)), "noise": random.uniform(0.5, 1.0, 3),
                  "drift": 0.3, "width": 0.8}
    held = read.read(model, data)
    plan = held.plan()
    assert bool(plan.poolable_groups) == (case != "rows of their own")
    rows, known = load.load(held, plan)
    params = {name: jnp.asarray(value) for name, value in params.items()}

    @jax.jit
    def slopes(params):
        expected = expect(plan, params, known, rows)

        def climbed(p):
            taps = jax.tree.map(lambda leaf: leaf[0], expected.responsibilities)  # all rows are one chunk
            return surrogate(plan, expected, p, known) + row_surrogate(plan, taps, p, known,
                                                                       rows.first, params)

        return (expected.log_evidence, jax.grad(climbed)(params),
                jax.grad(lambda p: log_evidence(plan, p, known, rows))(params))

    value, climbed, wanted = slopes(params)
    assert np.isfinite(value)
    for name in params:
        np.testing.assert_allclose(climbed[name], wanted[name], atol=1e-9, err_msg=name)


@probml.model
def line():
    m, s = sample("m", dist.Normal(0.0, 10.0)), sample("s", dist.LogNormal(0.0, 1.0))
    a, b = sample("a", dist.Normal(0.0, 10.0)), sample("b", dist.Normal(0.0, 10.0))
    noise = sample("noise", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        x = sample("x", dist.Normal(m, s))
        sample("y", dist.Normal(a + b * x, noise))


def test_a_missing_covariate_is_learnt_from_as_the_closed_form_has_it():
    random = np.random.default_rng(2)
    x = random.normal(1.0, 2.0, 80)
    y = 0.5 - 1.5 * x + 0.7 * random.normal(size=80)
    x[random.random(80) < 0.3], y[random.random(80) < 0.2] = nan, nan
    fit = line().fit({"x": x, "y": y}, probml.EM(prior=False, tolerance=1e-12))
    assert np.all(np.diff(fit.history) > -1e-9)

    def closed(p):
        mean = np.array([p["m"], p["a"] + p["b"] * p["m"]])
        cov = p["s"] ** 2 * np.array([[1, p["b"]], [p["b"], p["b"] ** 2]])
        cov[1, 1] += p["noise"] ** 2
        return sum(log_normal(np.array(pair), mean, cov) for pair in zip(x, y, strict=True))

    best = {name: float(value) for name, value in fit.params.items()}
    np.testing.assert_allclose(fit.history[-1], closed(best), rtol=1e-10)
    for name in best:  # stationary
        ends = [closed({**best, name: best[name] + step}) for step in (-1e-4, 1e-4)]
        assert abs(ends[1] - ends[0]) / 2e-4 < 1e-2


BENT = {
    "square": lambda z: dist.Normal(z**2, 1.0),
    "folded": lambda z: dist.Normal(jnp.sqrt(z**2), 0.5),
    "scale": lambda z: dist.Normal(0.0, jnp.exp(z)),
    "count": lambda z: dist.Poisson(jnp.exp(z)),
    "choice": lambda z: dist.Bernoulli(logits=2 * z),
    "heavy": lambda z: dist.StudentT(3.0, z, 1.0),
}


@probml.model
def bent(kind, tail=False):
    """A number that enters what is below it otherwise than affinely."""
    width = sample("width", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.StudentT(4.0, 0.3, width) if tail else dist.Normal(0.3, width))
        sample("y", BENT[kind](z))


@pytest.mark.parametrize("kind, tail", [*((kind, False) for kind in BENT), ("count", True)])
def test_one_number_a_row_is_integrated_by_quadrature(kind, tail):
    """Against the trapezoid rule on a fine grid; two peaks and kinks cost digits."""
    y = np.array([1.0, 0.0, 3.0]) if kind != "choice" else np.array([1.0, 0.0, 1.0])
    fit = bent(kind=kind, tail=tail).at({"width": 0.8})
    prior = dist.StudentT(4.0, 0.3, 0.8) if tail else dist.Normal(0.3, 0.8)
    grid = np.linspace(-1.0, 1.0, 200_001) * (800.0 if tail else 9.0)
    logs = [prior.log_prob(grid) + BENT[kind](grid).log_prob(v) for v in y]
    joint = np.exp(np.nan_to_num(logs, nan=-np.inf))
    whole = np.trapezoid(joint, grid)
    loose = {"folded": 5e-3, "square": 1e-5}.get(kind, 2e-6)
    np.testing.assert_allclose(fit.log_prob({"y": y}), np.log(whole), atol=loose)
    if kind == "count" and not tail:
        np.testing.assert_allclose(fit.impute({"y": y})["z"],
                                   np.trapezoid(joint * grid, grid) / whole, atol=1e-5)


@probml.model
def click():
    slope = sample("slope", dist.Normal(0.0, 1.0))
    with probml.rows():
        x = sample("x", dist.Normal(0.0, 1.0))
        sample("y", dist.Bernoulli(logits=slope * x))


def test_a_hole_under_a_choice_is_integrated_where_it_is_and_nowhere_else():
    fit = click().at({"slope": 1.5})
    x, y = np.array([0.1, nan, 1.0]), np.array([1.0, 1.0, nan])
    got = fit.log_prob({"x": x, "y": y})
    seen = stats.norm.logpdf(x) - np.log1p(np.exp(-1.5 * x))
    np.testing.assert_allclose(got[[0, 1]], [seen[0], np.log(0.5)], atol=1e-8)
    np.testing.assert_allclose(got[2], stats.norm.logpdf(1.0), atol=1e-8)
    chance = fit.predict_proba({"x": x, "y": y}, "y")[:, 1]
    np.testing.assert_allclose(chance, [1.0, 1.0, 1 / (1 + np.exp(-1.5))], atol=1e-8)


@probml.model
def rates(waits: bool):
    shape = sample("shape", dist.Gamma(2.0, 1.0))
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    with probml.rows():
        r = sample("r", dist.Gamma(shape, rate))
        rates = 2 * r[..., None] * jnp.ones(2)
        sample("y", (dist.Exponential if waits else dist.Poisson)(rates).to_event(1))


@pytest.mark.parametrize("waits", [False, True])
def test_a_gamma_rate_of_several_cells_is_conjugate(waits):
    y = np.array([[1.0, 2.0], [0.5, nan], [4.0, 1.0]])
    y = y if waits else np.floor(y)
    fit = rates(waits=waits).at({"shape": 2.5, "rate": 0.7})
    r = np.linspace(0.0, 60.0, 600_001)[1:, None]
    below = stats.expon(scale=1 / (2 * r)).logpdf if waits else stats.poisson(2 * r).logpmf
    joint = [np.exp(stats.gamma(2.5, scale=1 / 0.7).logpdf(r[:, 0]) + np.nansum(below(row), 1))
             for row in y]
    whole = np.trapezoid(joint, r[:, 0])
    np.testing.assert_allclose(fit.log_prob({"y": y}), np.log(whole), atol=1e-7)
    means = np.trapezoid(joint * r[:, 0], r[:, 0]) / whole
    np.testing.assert_allclose(fit.impute({"y": y})["r"], means, atol=1e-6)
    words = {site["site"]: site["role"] for site in rates(waits=waits).explain({"y": y}).sites}
    assert words["r"] == "latent, integrated out, conjugate"


def test_em_of_overdispersed_counts_ends_at_the_mode_of_the_negative_binomial():
    random = np.random.default_rng(6)
    counts = random.poisson(random.gamma(3.0, 0.8, 300))
    y = np.column_stack([counts, np.full(300, nan)])
    fit = rates(waits=False).fit({"y": y}, probml.EM(prior=False, tolerance=1e-10))
    assert np.all(np.diff(fit.history) > -1e-7)
    p = fit.params

    def closed(shape, rate):
        return stats.nbinom(shape, rate / (rate + 2)).logpmf(counts).sum()

    best = closed(p["shape"], p["rate"])
    np.testing.assert_allclose(fit.history[-1], best, rtol=1e-9)
    for times in (0.97, 1.03):
        assert closed(p["shape"] * times, p["rate"] * times) < best + 1e-3
        assert closed(p["shape"] * times, p["rate"]) < best


@probml.model
def several(kind):
    with probml.rows():
        if kind == "kink":
            z = sample("z", dist.Laplace(0.0, 1.0).expand([2]).to_event(1))
            sample("y", dist.Poisson(jnp.exp(z.sum(-1))))
        elif kind == "loss":
            z = sample("z", dist.Normal(0.0, 1.0))
            sample("y", dist.Normal(z, 1.0))
            factor("loss", z**2)
        elif kind == "chain":
            z = sample("z", dist.Normal(0.0, 1.0))
            c = sample("c", probml.MarkovChain(jnp.ones(2) / 2, jnp.full((2, 2), 0.5)))
            sample("y", dist.Normal(c + z[..., None], 1.0).to_event(1))


@pytest.mark.parametrize("kind, words", [
    ("kink", "not differentiable everywhere"),
    ("loss", "'loss' (factor), which depends on 'z', is latent or a factor"), ("chain", "'y' is part of a chain"),
])
def test_what_has_no_integral_is_refused_with_its_reason(kind, words):
    y = np.zeros((3, 4)) if kind == "chain" else np.array([1.0, 0.0, 2.0])
    with pytest.raises(probml.Refusal, match="'z'") as refusal:
        several(kind=kind).fit({"y": y}, probml.EM())
    assert words in str(refusal.value) and "Give 'z' in the data" in str(refusal.value)


def test_a_hole_that_has_no_integral_is_refused_by_its_row():
    @probml.model
    def pair():
        with probml.rows():
            x = sample("x", dist.Laplace(0.0, 1.0).expand([2]).to_event(1))
            sample("y", dist.Bernoulli(logits=x.sum(-1)))

    with pytest.raises(probml.Refusal, match="'x' is missing in 1 of 3 rows, first in row 1"):
        pair().at({}).log_prob({"x": [[0.1, 1], [nan, 0], [1, 1]], "y": [1, 0, 1]})


@probml.model
def analysis(d: int, q: int):
    loading = sample("loading", dist.Normal(0.0, 2.0).expand([d, q]).to_event(2))
    noise = sample("noise", dist.LogNormal(0.0, 1.0).expand([d]).to_event(1))
    mean = sample("mean", dist.Normal(0.0, 10.0).expand([d]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Normal(0.0, 1.0).expand([q]).to_event(1))
        sample("x", dist.Normal(mean + z @ loading.T, noise).to_event(1))


def factor_data(n=200, d=5, q=2, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, q)) @ random.normal(size=(q, d)) + random.normal(size=d)
    return x + random.normal(size=(n, d)) * random.uniform(0.3, 1.0, d)


def covariance(params):
    return params["loading"] @ params["loading"].T + np.diag(params["noise"] ** 2)


def test_factor_analysis_starts_off_the_saddle_of_no_loadings():
    x = factor_data()
    fit = fitted(analysis(d=5, q=2), {"x": x}, probml.EM(prior=False, tolerance=1e-9))
    cov = covariance(fit.params)
    got = sum(log_normal(row, fit.params["mean"], cov) for row in x)
    np.testing.assert_allclose(fit.history[-1], got, rtol=1e-9)
    none = stats.norm(x.mean(0), x.std(0)).logpdf(x).sum()
    best = stats.multivariate_normal(x.mean(0), np.cov(x.T, bias=True)).logpdf(x).sum()
    assert got > best - 3.0 > none


@probml.model
def schools(sigma):
    mu = sample("mu", dist.Normal(0.0, 5.0))
    tau = sample("tau", dist.HalfNormal(5.0))
    with probml.rows():
        theta = sample("theta", dist.Normal(mu, tau))
        sample("y", dist.Normal(theta, sigma))


SCHOOLS = {"sigma": np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
           "y": np.array([28.0, 8, -3, 7, -1, 1, 18, 12])}


def test_a_spread_of_zero_is_an_ordinary_point():
    fit = schools().at({"mu": 3.0, "tau": 0.0})
    want = stats.norm(3.0, SCHOOLS["sigma"]).logpdf(SCHOOLS["y"])
    np.testing.assert_allclose(fit.log_prob(SCHOOLS), want, atol=1e-10)
    np.testing.assert_allclose(fit.conditional(SCHOOLS, "theta").mean, 3.0)


def test_a_spread_that_rows_cannot_tell_from_zero_is_said_to_be_at_its_boundary():
    fit = schools().fit({**SCHOOLS, "y": np.full(8, 3.0) + np.arange(8) / 10}, probml.EM())
    assert fit.converged and "'tau' is at its boundary" in fit.status
    apart = schools().fit({**SCHOOLS, "y": SCHOOLS["y"] * 8}, probml.EM())
    assert apart.converged and "boundary" not in apart.status


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:NUTS of model")
def test_row_levels_under_nuts_are_drawn_given_each_draw_of_their_spread():
    """Against a grid over tau, in which mu and the levels are normal."""
    fit = schools().fit(SCHOOLS, probml.NUTS(draws=1500, chains=2))
    assert set(fit.params) == {"mu", "tau"}
    tau, y, noise = np.linspace(0.001, 40, 4000)[:, None], SCHOOLS["y"], SCHOOLS["sigma"]
    v = tau**2 + noise**2
    precision, mean = (1 / v).sum(1) + 1 / 25, (y / v).sum(1)
    log = (-0.5 * np.log(v).sum(1) - 0.5 * np.log(precision) + 0.5 * mean**2 / precision
           - 0.5 * (y**2 / v).sum(1) - 0.5 * (tau[:, 0] / 5) ** 2)
    weight = np.exp(log - log.max())
    level = (y * tau**2 + (mean / precision)[:, None] * noise**2) / v
    want = weight @ level / weight.sum()
    draws = fit.draws(3000)
    assert abs(draws["tau"].mean() - weight @ tau[:, 0] / weight.sum()) < 0.4
    many = {name: np.tile(value, 500) for name, value in SCHOOLS.items()}
    found = fit.simulate(seed=1, given=many)["theta"]
    np.testing.assert_allclose(found.reshape(500, 8).mean(0), want, atol=0.8)


def test_explain_says_what_is_integrated_out():
    words = {site["site"]: site["role"] for site in schools().explain(SCHOOLS).sites}
    assert words["theta"] == "latent, integrated out, in closed form (normal distributions)"
    data = {"x": [0.1, nan, 1.0], "y": [1.0, 0.0, 2.0]}
    words = {site["site"]: site["role"] for site in line().explain(data).sites}
    assert words["x"] == "partially observed, integrated out where missing, in closed form (normal distributions)"


def test_float32_keeps_the_digits_of_a_far_and_tight_prior():
    """Beside a prior 1e3 of its spreads away, and noise a thousandth of it."""
    with jax.enable_x64(False):
        fit = analysis(d=3, q=1).at({"loading": np.full((3, 1), 30.0), "noise": np.full(3, 0.03),
                                     "mean": np.full(3, 100.0)})
        x = 100.0 + np.array([[3.0, 3.02, 2.97], [-10.0, -10.03, -9.99]])
        got = np.asarray(fit.log_prob({"x": x}))
    cov = 900.0 + 0.0009 * np.eye(3)
    x32 = x.astype(np.float32).astype(float)
    np.testing.assert_allclose(got, [log_normal(row, np.full(3, 100.0), cov) for row in x32],
                               rtol=2e-3)


@pytest.mark.parametrize("scale", [0.3, 2.0, 20.0])
@pytest.mark.parametrize("seen", [
    lambda e: dist.Poisson(jnp.exp(1 + e)), lambda e: dist.Gamma(2.0, jnp.exp(-e)),
    lambda e: dist.Normal(0.0, jnp.exp(e)), lambda e: dist.NegativeBinomial2(jnp.exp(e), 2.0)],
    ids=["Poisson", "Gamma", "Normal", "NegativeBinomial2"])
def test_float32_has_the_density_of_float64_where_rates_overflow_far_out(seen, scale):
    @probml.model
    def own_rate():
        sigma = sample("sigma", dist.HalfNormal(1.0))
        with probml.rows():
            e = sample("e", dist.Normal(0.0, sigma))
            sample("y", seen(e))

    y = np.array([1, 2, 7, 40])
    found = {}
    for double in (True, False):
        with jax.enable_x64(double):
            fit = own_rate().at({"sigma": np.array(scale)})
            found[double] = np.asarray(fit.log_prob({"y": y}))
    np.testing.assert_allclose(found[False], found[True], rtol=2e-4)


def test_a_number_given_a_row_is_its_posterior_density_where_that_is_no_normal():
    """Of a Gamma rate under counts, a Gamma; of a normal under counts, a grid's."""
    y = np.array([[1.0, nan], [7.0, 3.0]])
    found = rates(waits=False).at({"shape": 2.5, "rate": 0.7}).conditional({"y": y}, "r")
    given_row = stats.gamma(2.5 + np.nansum(y, 1), scale=1 / (0.7 + 2 * np.sum(~np.isnan(y), 1)))
    np.testing.assert_allclose(found.mean, given_row.mean(), rtol=1e-9)
    np.testing.assert_allclose(found.variance, given_row.var(), rtol=1e-6)
    at = given_row.ppf([[0.1], [0.5], [0.9]])
    np.testing.assert_allclose(found.log_prob(at), given_row.logpdf(at), atol=0.02)
    np.testing.assert_allclose(found.cdf(at), [[0.1, 0.1], [0.5, 0.5], [0.9, 0.9]], atol=0.01)
    drawn = found.sample(jax.random.key(0), (4000,))
    np.testing.assert_allclose(drawn.mean(0), given_row.mean(),
                               atol=(5 * given_row.std() / 4000**0.5).max())


@pytest.mark.parametrize("exact", [True, False])
def test_an_ascent_that_falls_is_a_fault_of_ours_where_its_integrals_are_exact(exact):
    @probml.model
    def able():
        easy = sample("easy", dist.Normal(0.0, 3.0))
        with probml.rows():
            z = sample("z", dist.Normal(0.0, 1.0))
            sample("y", dist.Normal(z + easy, 1.0) if exact else dist.Poisson(jnp.exp(z + easy)))

    held = read.read(able(), {"y": np.array([0.0, 2.0, 5.0])})
    plan = held.plan()
    rows, known = load.load(held, plan)
    fell = Outcome({"easy": np.zeros(())}, np.zeros(1), Status.FELL, 1)
    assert latent_findings.with_boundary_findings(plan, fell, known, rows, True).status is (
        Status.FELL if exact else Status.STALLED
    )
