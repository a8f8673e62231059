"""Two numbers a row by quadrature, several by Laplace's approximation: held to grids,
to an approximation written once more with SciPy, and to differences of both."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import optimize, stats
from scipy.special import logsumexp

import probml
from probml.dataset import read
from probml.device import load
from probml.evidence.e_step import log_evidence

nan = np.nan


@probml.model
def counts(q: int, prior: str = "normal"):
    load = sample("load", dist.Normal(0.0, 1.0).expand([3, q]).to_event(2))
    mean = sample("mean", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    width = sample("width", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        if prior == "normal":
            z = sample("z", dist.Normal(0.3, width).expand([q]).to_event(1))
        else:
            z = sample("z", dist.Gamma(2.0, 2.0 / width).expand([q]).to_event(1))
        sample("y", dist.Poisson(jnp.exp(mean + z @ load.T)).to_event(1))


Y = np.array([[1.0, 3.0, 0.0], [2.0, nan, 1.0], [0.0, 6.0, 2.0]])
POINT = {"load": np.array([[0.5, -0.2], [0.3, 0.6], [-0.4, 0.1]]),
         "mean": np.array([0.5, 1.0, -0.2]), "width": np.array(0.8)}


def on_a_grid(y, prior):
    """log p(row) and the mean of z given it, by the trapezoid rule."""
    axis = np.linspace(-7, 7, 501) if prior == "normal" else np.linspace(1e-6, 16, 1201)
    z = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    own = stats.norm(0.3, 0.8) if prior == "normal" else stats.gamma(2.0, scale=0.4)
    rate = np.exp(POINT["mean"] + z @ POINT["load"].T)
    log = own.logpdf(z).sum(1) + np.nansum(stats.poisson.logpmf(y, rate), 1)
    weight = np.exp(log - log.max())
    return (np.log(weight.sum() * (axis[1] - axis[0]) ** 2) + log.max(),
            weight @ z / weight.sum())


@pytest.mark.parametrize("prior, close", [("normal", 1e-6), ("gamma", 4e-4)])
def test_two_numbers_a_row_are_integrated_by_quadrature(prior, close):
    fit = counts(q=2, prior=prior).at(POINT)
    logs, means = zip(*(on_a_grid(row, prior) for row in Y), strict=True)
    np.testing.assert_allclose(fit.log_prob({"y": Y}), logs, atol=close)
    np.testing.assert_allclose(fit.impute({"y": Y})["z"], means, atol=10 * close)
    words = {site["site"]: site["role"] for site in counts(q=2, prior=prior).explain({"y": Y}).sites}
    assert words["z"] == "latent, integrated out, by quadrature with 25 × 25 nodes"


def test_a_vector_of_which_one_number_is_seen_is_integrated_over_the_other():
    z = np.array([[0.4, nan], [nan, nan], [0.1, -0.2]])
    got = counts(q=2).at(POINT).log_prob({"y": Y, "z": z})
    axis = np.linspace(-7, 7, 4001)
    both = np.stack([np.full(4001, 0.4), axis], 1)
    log = (stats.norm(0.3, 0.8).logpdf(both).sum(1)
           + stats.poisson.logpmf(Y[0], np.exp(POINT["mean"] + both @ POINT["load"].T)).sum(1))
    np.testing.assert_allclose(got[0], np.log(np.exp(log).sum() * (axis[1] - axis[0])), atol=1e-6)
    np.testing.assert_allclose(got[1], on_a_grid(Y[1], "normal")[0], atol=1e-6)
    rate = np.exp(POINT["mean"] + z[2] @ POINT["load"].T)
    seen = stats.norm(0.3, 0.8).logpdf(z[2]).sum() + stats.poisson.logpmf(Y[2], rate).sum()
    np.testing.assert_allclose(got[2], seen, atol=1e-8)


def laplace(p, y):
    """Σ over rows of Laplace's approximation, by SciPy and the analytic Hessian."""
    total = 0.0
    for row in y:
        seen = ~np.isnan(row)
        load, mean, x = p["load"][seen], p["mean"][seen], row[seen]

        def loss(e, load=load, mean=mean, x=x):
            eta = mean + (0.3 + p["width"] * e) @ load.T
            rate = np.exp(eta)
            value = -stats.norm.logpdf(e).sum() - stats.poisson.logpmf(x, rate).sum()
            return value, e - p["width"] * load.T @ (x - rate)

        top = optimize.minimize(loss, np.zeros(load.shape[1]), jac=True, tol=1e-13)
        rate = np.exp(mean + (0.3 + p["width"] * top.x) @ load.T)
        bend = np.eye(len(top.x)) + p["width"] ** 2 * (load.T * rate) @ load
        total += (-top.fun + 0.5 * len(top.x) * np.log(2 * np.pi)
                  - 0.5 * np.linalg.slogdet(bend)[1])
    return total


def three():
    random = np.random.default_rng(0)
    return {"load": 0.5 * random.normal(size=(3, 3)), "mean": POINT["mean"],
            "width": np.array(0.8)}


def test_several_numbers_a_row_are_laplaces_approximation_and_so_is_its_gradient():
    model, params = counts(q=3), three()
    held = read.read(model, {"y": Y})
    plan = held.plan()
    rows, known = load.load(held, plan)
    arrays = {name: jnp.asarray(value) for name, value in params.items()}
    value, slopes = jax.jit(jax.value_and_grad(
        lambda p: log_evidence(plan, p, known, rows)))(arrays)
    np.testing.assert_allclose(value, laplace(params, Y), atol=1e-9)
    for name, place in (("load", (0, 1)), ("load", (2, 2)), ("mean", (1,)), ("width", ())):
        ends = []
        for step in (-1e-4, 1e-4):
            moved = {**params, name: np.array(params[name])}
            moved[name][place] += step
            ends.append(laplace(moved, Y))
        np.testing.assert_allclose(slopes[name][place], (ends[1] - ends[0]) / 2e-4, atol=1e-6)


@pytest.mark.parametrize("engine", [
    probml.MAP(prior=False),
    pytest.param(probml.EM(max_iterations=40, tolerance=1e-4), marks=pytest.mark.slow),
])
def test_engines_climb_laplaces_approximation_and_say_how_far_off_it_is(engine):
    random = np.random.default_rng(2)
    z = random.normal(size=(60, 3))
    y = random.poisson(np.exp(0.5 + 0.8 * z)).astype(float)
    y[random.random(y.shape) < 0.1] = nan
    model = counts(q=3)
    fit = model.fit({"y": y}, engine, start=three())
    assert np.all(np.diff(fit.history) > -1e-7 * abs(fit.history[0]))
    assert "rough-integral" in [warning.code.value for warning in fit.warnings]
    words = {site["site"]: site["role"] for site in model.explain({"y": y}).sites}
    assert words["z"] == "latent, integrated out, by Laplace's approximation"
    if isinstance(engine, probml.MAP):
        np.testing.assert_allclose(fit.history[-1], laplace(fit.params, y), atol=1e-6)


@pytest.mark.slow
def test_means_and_draws_given_a_row_are_nearer_than_the_normal_at_the_mode():
    """Beside loadings of 0 the third number is its prior's, and the other two have a grid."""
    wide = {**POINT, "load": np.concatenate([POINT["load"], np.zeros((3, 1))], 1)}
    fit = counts(q=3).at(wide)
    means = np.array([[*on_a_grid(row, "normal")[1], 0.3] for row in Y])
    np.testing.assert_allclose(fit.impute({"y": Y})["z"], means, atol=0.01)
    drawn = fit.simulate(given={"y": np.repeat(Y, 2000, 0)})["z"].reshape(3, 2000, 3)
    np.testing.assert_allclose(drawn.mean(1), means, atol=0.08)


@probml.model
def sorts():
    """Two counts of a row look at one number each; both look at a state."""
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("sort", 2):
        level = sample("level", dist.Normal(0.0, 2.0))
    with probml.rows():
        c = sample("c", dist.Categorical(weights))
        a = sample("a", dist.Normal(level[c], 0.5))
        b = sample("b", dist.StudentT(5.0, a, 0.4))
        sample("y", dist.Poisson(jnp.exp(b)))


def test_a_number_below_another_is_integrated_in_every_state():
    p = {"weights": np.array([0.4, 0.6]), "level": np.array([-0.5, 1.0])}
    y = np.array([0.0, 4.0])
    a = np.linspace(-5, 6, 501)[:, None]
    b = np.linspace(-12, 12, 2001)
    logs = [[np.log(p["weights"][c]) + np.log(
        (np.exp(stats.norm(p["level"][c], 0.5).logpdf(a) + stats.t(5, a, 0.4).logpdf(b)
                + stats.poisson.logpmf(v, np.exp(b)))).sum() * (a[1, 0] - a[0, 0]) * (b[1] - b[0]))
             for c in range(2)] for v in y]
    fit = sorts().at(p)
    np.testing.assert_allclose(fit.log_prob({"y": y}), np.logaddexp.reduce(logs, 1), atol=2e-3)
    share = np.exp(logs - np.logaddexp.reduce(logs, 1)[:, None])
    np.testing.assert_allclose(fit.predict_proba({"y": y}, "c"), share, atol=2e-3)


def test_several_numbers_given_a_row_have_their_mean_and_covariance():
    found = counts(q=2).at(POINT).conditional({"y": Y}, "z")
    axis = np.linspace(-7, 7, 501)
    z = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    for i, row in enumerate(Y):
        rate = np.exp(POINT["mean"] + z @ POINT["load"].T)
        log = (stats.norm(0.3, 0.8).logpdf(z).sum(1)
               + np.nansum(stats.poisson.logpmf(row, rate), 1))
        weight = np.exp(log - log.max()) / np.exp(log - log.max()).sum()
        np.testing.assert_allclose(found.mean[i], weight @ z, atol=1e-5)
        away = z - weight @ z
        np.testing.assert_allclose(found.covariance_matrix[i], (weight * away.T) @ away, atol=1e-5)


def test_a_row_with_two_modes_that_mirror_each_other_is_not_impossible():
    """Between them the curvature is not positive definite, and the density had been 0."""
    @probml.model
    def waiting():
        with probml.rows():
            z = sample("z", dist.LogNormal(0.0, 1.5).expand([2]).to_event(1))
            sample("y", dist.Exponential(jnp.exp(0.2 + z.sum(-1))))

    y = np.array([0.3, 1e-3, 1e-5])
    u = np.linspace(-9.0, 6.0, 751)
    own = stats.norm(0, 1.5).logpdf(u)
    rate = 0.2 + np.exp(u)[:, None] + np.exp(u)
    logs = rate - y[:, None, None] * np.exp(np.minimum(rate, 700.0)) + own[:, None] + own
    right = logsumexp(logs, (1, 2)) + 2 * np.log(u[1] - u[0])
    got = waiting().at({}).log_prob({"y": y})
    np.testing.assert_allclose(got, right, atol=0.1)
