"""Variational Bayes beside unseen numbers of rows, held to updates written by hand and to exact
evidence."""

import math

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy.special import digamma, gammaln

import probml
from mean_field_by_hand import LOG_TWO_PI, gamma_gap, normal_gap, vb
from probml.errors import Refusal

# Factor analysis


@probml.model
def factors(k: int, d: int):
    precision = sample("precision", dist.Gamma(2.0, 1.0).expand([d]).to_event(1))
    loadings = sample("loadings", dist.Normal(0.0, 1.0).expand([d, k]).to_event(2))
    mean = sample("mean", dist.Normal(0.0, 3.0).expand([d]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Normal(0.0, 1.0).expand([k]).to_event(1))
        sample("x", dist.Normal(mean + z @ loadings.T, precision**-0.5).to_event(1))


def measured(n=40, d=4, k=2, holes=0.0, seed=0):
    random = np.random.default_rng(seed)
    x = (random.normal(size=(n, k)) @ random.normal(size=(k, d)) + random.normal(size=d)
         + 0.4 * random.normal(size=(n, d)))
    return np.where(random.random(x.shape) < holes, np.nan, x)


POINT = {"precision": np.full(4, 1.5), "mean": np.array([0.1, -0.2, 0.3, 0.0]),
         "loadings": np.array([[1.0, 0.2], [-0.5, 1.0], [0.3, -0.8], [0.9, 0.4]])}


def factors_by_hand(x, precision, mean, loadings, iterations):
    """VB of `factors` (Bishop 1999, "Variational principal components", with a noise for each
    column) from a point: the bounds, and q of the coefficients (w_j, μ_j) and of the precisions."""
    seen, x = ~np.isnan(x), np.nan_to_num(x)
    (n, d), k = x.shape, loadings.shape[1]
    prior = np.append(np.ones(k), 1 / 9)
    c, spread = np.column_stack([loadings, mean]), np.zeros((d, k + 1, k + 1))
    t, log, bounds = precision, np.log(precision), []
    a = rate = P = last = None
    for i in range(iterations + 1):
        square = c[:, :, None] * c[:, None, :] + spread  # E[c cᵀ]
        K = np.eye(k) + np.einsum("nj,j,jab->nab", seen, t, square[:, :k, :k])
        h = (seen * x * t) @ c[:, :k] - (seen * t) @ square[:, :k, k]
        inverse = np.linalg.inv(K)
        z = np.einsum("nab,nb->na", inverse, h)
        own = -0.5 * t * (x**2 - 2 * x * c[:, k] + square[:, k, k]) + 0.5 * (log - LOG_TWO_PI)
        evidence = ((seen * own).sum() + 0.5 * np.einsum("na,na->", h, z)
                    - 0.5 * np.linalg.slogdet(K)[1].sum())
        if i:
            bounds.append(evidence - gamma_gap(a, rate, 2.0, 1.0)
                          - sum(normal_gap(c[j], P[j], prior) for j in range(d)))
        last = c, spread, a, rate
        u = np.column_stack([z, np.ones(n)])
        uu = u[:, :, None] * u[:, None, :]
        uu[:, :k, :k] += inverse
        total, across = np.einsum("nj,nab->jab", seen, uu), (seen * x).T @ u
        P = np.diag(prior) + t[:, None, None] * total
        c = np.stack([np.linalg.solve(P[j], t[j] * across[j]) for j in range(d)])
        # what only a point is known of has no spread yet
        spread = np.linalg.inv(P) if i else np.zeros_like(P)
        square = c[:, :, None] * c[:, None, :] + spread
        away = (seen * x**2).sum(0) - 2 * (c * across).sum(1) + (square * total).sum((1, 2))
        spread = np.linalg.inv(P)
        a, rate = 2.0 + seen.sum(0) / 2, 1.0 + away / 2
        t, log = a / rate, digamma(a) - np.log(rate)
    return np.array(bounds), *last


@pytest.mark.parametrize("holes", [0.0, 0.2], ids=["whole", "with holes"])
def test_a_factor_analysis_takes_the_steps_that_were_written_by_hand(holes):
    x = measured(holes=holes)
    with pytest.warns(probml.ConvergenceWarning, match="iteration limit"):
        fit = factors(2, 4).fit({"x": x}, vb(max_iterations=12), start=POINT)
    bounds, c, spread, a, rate = factors_by_hand(x, **POINT, iterations=len(fit.history))
    np.testing.assert_allclose(fit.history, bounds, rtol=1e-9)
    np.testing.assert_allclose(fit.params["loadings"], c[:, :2], rtol=1e-7)
    np.testing.assert_allclose(fit.params["mean"], c[:, 2], rtol=1e-7)
    np.testing.assert_allclose(fit.posterior("mean").variance, spread[:, 2, 2], rtol=1e-7)
    found = fit.posterior("precision")
    np.testing.assert_allclose(found.concentration, a, rtol=1e-9)
    np.testing.assert_allclose(found.rate, rate, rtol=1e-8)
    assert (np.diff(fit.history) > -1e-9).all()


def test_a_factor_analysis_ends_where_a_step_by_hand_leaves_it():
    x = measured()
    fit = factors(2, 4).fit({"x": x}, vb(tolerance=1e-13))
    assert fit.converged and (np.diff(fit.history) > -1e-8).all()
    bounds = factors_by_hand(x, **{name: np.asarray(fit.params[name]) for name in POINT},
                             iterations=400)[0]
    assert math.isclose(bounds[-1], fit.bound, rel_tol=1e-8)


@pytest.mark.slow
def test_rows_that_tell_their_second_moments_alone_are_as_many_as_they_are():
    x = measured()

    def parts():
        for i in range(4):
            yield {"x": x[10 * i : 10 * (i + 1)]}

    few, whole = (factors(2, 4).fit(data, vb(), start=POINT) for data in (parts, {"x": x}))
    assert math.isclose(few.bound, whole.bound, rel_tol=1e-9)
    np.testing.assert_allclose(few.params["loadings"], whole.params["loadings"], rtol=1e-4,
                               atol=1e-6)


# Regressions with a number of each row


@probml.model
def visits(x, p: int = 2):
    beta = sample("beta", dist.Normal(0.0, 3.0).expand([p]).to_event(1))
    between = sample("between", dist.Gamma(2.0, 1.0))
    within = sample("within", dist.Gamma(2.0, 1.0))
    with probml.rows():
        b = sample("b", dist.Normal(0.0, between**-0.5))
        sample("y", dist.Normal(x @ beta + b[..., None], within**-0.5).to_event(1))


def visited(n=25, t=3, holes=0.0, seed=3):
    random = np.random.default_rng(seed)
    x = np.stack([np.ones((n, t)), random.normal(size=(n, t))], -1)
    y = x @ [1.0, -2.0] + random.normal(size=(n, 1)) + 0.5 * random.normal(size=(n, t))
    return x, np.where(random.random(y.shape) < holes, np.nan, y)


def visits_by_hand(x, y, rounds=400):
    """The fixed point of q(β) q(λ) q(τ) Π q(b_i), and the bound there."""
    seen, y = ~np.isnan(y), np.nan_to_num(y)
    n, count, m, S = len(y), seen.sum(1), np.zeros(2), np.zeros((2, 2))
    a, r, A, R = 2.0 + n / 2, 2.0 + n / 2, 2.0 + seen.sum() / 2, 2.0 + seen.sum() / 2
    for _ in range(rounds):
        between, within = a / r, A / R
        left, wide = seen * (y - x @ m), seen * np.einsum("nti,ij,ntj->nt", x, S, x)
        K = between + within * count
        b = within * left.sum(1) / K
        evidence = (0.5 * n * (digamma(a) - np.log(r)) - 0.5 * within * (left**2 + wide).sum()
                    + 0.5 * seen.sum() * (digamma(A) - np.log(R) - LOG_TWO_PI)
                    + 0.5 * (K * b**2 - np.log(K)).sum())
        P = np.eye(2) / 9 + within * np.einsum("nt,nti,ntj->ij", seen, x, x)
        bound = evidence - gamma_gap(a, r, 2.0, 1.0) - gamma_gap(A, R, 2.0, 1.0) - (
            normal_gap(m, np.linalg.inv(S), np.full(2, 1 / 9)) if S.any() else 0.0)
        last = m, S, a, r, A, R
        m = np.linalg.solve(P, within * np.einsum("nt,nti->i", seen * (y - b[:, None]), x))
        S = np.linalg.inv(P)
        r = 1.0 + 0.5 * (b**2 + 1 / K).sum()
        left, wide = seen * (y - x @ m), seen * np.einsum("nti,ij,ntj->nt", x, S, x)
        R = 1.0 + 0.5 * ((seen * (left - b[:, None]) ** 2 + wide).sum() + (count / K).sum())
    return bound, *last


@pytest.mark.parametrize("holes", [0.0, pytest.param(0.2, marks=pytest.mark.slow)],
                         ids=["whole", "with holes"])
def test_a_mixed_model_reaches_the_fixed_point_by_hand(holes):
    x, y = visited(holes=holes)
    bound, m, S, a, r, A, R = visits_by_hand(x, y)
    fit = visits().fit({"x": x, "y": y}, vb(tolerance=1e-14))
    assert fit.converged and (np.diff(fit.history) > -1e-9).all()
    assert math.isclose(fit.bound, bound, rel_tol=1e-9)
    np.testing.assert_allclose(fit.posterior("beta").mean, m, rtol=1e-6)
    np.testing.assert_allclose(fit.posterior("beta").covariance_matrix, S, rtol=1e-6)
    for name, shape, rate in (("between", a, r), ("within", A, R)):
        np.testing.assert_allclose(fit.posterior(name).concentration, shape, rtol=1e-9)
        np.testing.assert_allclose(fit.posterior(name).rate, rate, rtol=1e-6)


@pytest.mark.slow
def test_the_bound_of_a_mixed_model_is_below_its_evidence():
    """β and b integrated out, the two precisions on a grid."""
    x, y = visited(n=5, t=2)
    rows, flat = np.repeat(np.arange(5), 2), x.reshape(10, 2)
    logs, grid = [], np.linspace(-5, 5, 81)
    for u in grid:
        for v in grid:
            S = (9 * flat @ flat.T + np.exp(-u) * (rows[:, None] == rows)
                 + np.exp(-v) * np.eye(10))
            logs.append(-0.5 * (y.ravel() @ np.linalg.solve(S, y.ravel())
                                + np.linalg.slogdet(S)[1] + 10 * LOG_TWO_PI)
                        + sum(2 * w - np.exp(w) for w in (u, v)))
    evidence = np.logaddexp.reduce(logs) + 2 * np.log(grid[1] - grid[0])
    fit = visits().fit({"x": x, "y": y}, vb())
    # β and b, and b and its spread, are far from independent: the price of a mean field
    assert evidence - 3.0 < fit.bound < evidence - 0.1


def test_where_it_is_exact_but_for_one_sign_it_is_half_of_the_evidence():
    """One product of two numbers: both signs of the slope have half of the posterior."""

    @probml.model
    def product():
        slope = sample("slope", dist.Normal(0.0, 1.0))
        with probml.rows():
            f = sample("f", dist.Normal(0.0, 1.0))
            sample("x", dist.Normal(slope * f, 1.0))

    x, slope = np.array([2.0, -3.0, 0.5, 4.0, -2.5, 1.0]), np.linspace(-8, 8, 4001)
    spread = np.sqrt(1 + slope**2)
    logs = (-0.5 * (x[:, None] / spread) ** 2 - np.log(spread) - 0.5 * LOG_TWO_PI).sum(0)
    evidence = np.logaddexp.reduce(logs - 0.5 * slope**2 - 0.5 * LOG_TWO_PI) + np.log(16 / 4000)
    fit = product().fit({"x": x}, vb())
    assert evidence - 2.0 < fit.bound < evidence - np.log(2)
    # averaged over q, and with f given the row: no point stands for them
    new = {"x": np.array([0.0, 3.0])}
    assert np.abs(fit.log_prob(new) - fit.log_prob(new, plug_in=True)).max() > 0.01
    assert fit.conditional(new, "f").mean.shape == (2,)


# Other kinds of numbers


@probml.model
def waits():
    scale = sample("scale", dist.Gamma(2.0, 1.0))
    with probml.rows():
        rate = sample("rate", dist.Gamma(3.0, scale))
        sample("x", dist.Poisson(rate[..., None] * np.ones(4)).to_event(1))


@pytest.mark.slow
def test_rates_of_rows_that_are_conjugate_reach_the_fixed_point_by_hand():
    random = np.random.default_rng(2)
    x = random.poisson(random.gamma(3.0, 2.0, (20, 1)) * np.ones(4))
    a, b = 2.0 + 3 * 20, 60.0
    for _ in range(300):
        A, B = 3.0 + x.sum(1), a / b + 4
        bound = (20 * (3 * (digamma(a) - np.log(b)) - gammaln(3.0))
                 + (gammaln(A) - A * np.log(B)).sum() - gammaln(x + 1).sum()
                 - gamma_gap(a, b, 2.0, 1.0))
        b = 1.0 + (A / B).sum()
    fit = waits().fit({"x": x}, vb())
    assert math.isclose(fit.bound, bound, rel_tol=1e-8) and (np.diff(fit.history) > -1e-7).all()
    np.testing.assert_allclose(fit.posterior("scale").rate, b, rtol=1e-6)


@probml.model
def overdispersed():
    mean = sample("mean", dist.Normal(0.0, 2.0))
    precision = sample("precision", dist.Gamma(3.0, 1.0))
    with probml.rows():
        eta = sample("eta", dist.Normal(mean, precision**-0.5))
        sample("x", dist.Poisson(np.e**eta))


@pytest.mark.slow
def test_numbers_that_are_integrated_by_quadrature_reach_the_fixed_point_by_hand():
    x = np.array([0, 3, 1, 9, 2, 0, 5, 14, 1, 2])
    eta, n = np.linspace(-12, 8, 8001), len(x)
    m, P, a, b = 0.0, 1.0, 3.0 + n / 2, 3.0 + n / 2
    for _ in range(200):
        t = a / b
        logs = (-0.5 * t * ((eta - m) ** 2 + 1 / P) + x[:, None] * eta - np.exp(eta)
                + 0.5 * (digamma(a) - np.log(b) - LOG_TWO_PI) - gammaln(x + 1)[:, None])
        evidence = np.logaddexp.reduce(logs, 1) + np.log(eta[1] - eta[0])
        bound = evidence.sum() - gamma_gap(a, b, 3.0, 1.0) - normal_gap(
            np.array([m]), np.array([[P]]), np.array([0.25]))
        q = np.exp(logs - logs.max(1, keepdims=True))
        q /= q.sum(1, keepdims=True)
        last = m, P, b
        P = 0.25 + n * t
        m = t * (q @ eta).sum() / P
        b = 1.0 + 0.5 * ((q @ eta**2) - 2 * m * (q @ eta) + m**2 + 1 / P).sum()
    fit = overdispersed().fit({"x": x}, vb())
    assert math.isclose(fit.bound, bound, rel_tol=1e-7)
    np.testing.assert_allclose(fit.posterior("mean").loc, last[0], rtol=1e-5)
    np.testing.assert_allclose(fit.posterior("mean").scale, last[1] ** -0.5, rtol=1e-6)
    np.testing.assert_allclose(fit.posterior("precision").rate, last[2], rtol=1e-5)


@pytest.mark.slow
def test_numbers_of_rows_stand_beside_hidden_states():
    """A mixture whose components are blurred by a number of the row: below the mixture in which it
    is integrated out at known parameters, and near it."""

    @probml.model
    def blurred(whole: bool):
        weights = sample("weights", dist.Dirichlet(np.full(2, 2.0)))
        with plate("component", 2):
            mean = sample("mean", dist.Normal(0.0, 5.0))
        with probml.rows():
            z = sample("z", dist.Categorical(weights))
            if whole:
                sample("x", dist.Normal(mean[z], np.sqrt(1.09)))
            else:
                f = sample("f", dist.Normal(mean[z], 1.0))
                sample("x", dist.Normal(f, 0.3))

    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(m, 1.0, 20) for m in (-4, 4)])
    start = {"mean": np.array([-3.0, 3.0]), "weights": np.array([0.5, 0.5])}
    whole, parted = (blurred(each).fit({"x": x}, vb(), start=start) for each in (True, False))
    assert whole.bound - 3.0 < parted.bound < whole.bound
    np.testing.assert_allclose(parted.params["mean"], whole.params["mean"], atol=0.02)
    np.testing.assert_allclose(parted.params["weights"], whole.params["weights"], atol=0.01)


def test_what_has_no_integral_at_averaged_densities_is_refused_by_site():
    @probml.model
    def several():
        mean = sample("mean", dist.Normal(0.0, 2.0))
        with probml.rows():
            eta = sample("eta", dist.Normal(mean, 1.0).expand([3]).to_event(1))
            sample("x", dist.Poisson(np.e**eta).to_event(1))

    with pytest.raises(Refusal, match=r"VB cannot fit model 'several': site 'eta' \(Normal\).*"
                                      r"Laplace.*such as NUTS\(\)"):
        several().fit({"x": np.ones((4, 3), int)}, probml.VB())


def test_an_exact_posterior_is_averaged_over_where_numbers_of_new_rows_are_unseen():
    @probml.model
    def line():
        slope = sample("slope", dist.Normal(0.0, 2.0))
        with probml.rows():
            z = sample("z", dist.Normal(0.0, 1.0))
            sample("x", dist.Normal(slope * z, 1.0))

    fit = line().fit({"z": np.array([0.5, -0.4]), "x": np.array([1.0, 0.1])}, probml.Exact())
    found, new = fit.posterior("slope"), 4.0
    slope = np.linspace(-12, 12, 4001)
    weight = np.exp(np.asarray(found.log_prob(slope)))
    exact = np.log((weight * np.exp(np.asarray(dist.Normal(0.0, np.sqrt(1 + slope**2)).log_prob(
        new)))).sum() / weight.sum())
    assert abs(fit.log_prob({"x": np.array([new])})[0] - exact) < 0.2
    assert abs(fit.log_prob({"x": np.array([new])}, plug_in=True)[0] - exact) > 0.4
