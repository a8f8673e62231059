"""Variational Bayes held to updates written by hand, to scikit-learn and to exact evidence."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy.special import betaln, digamma, gammaln

import probml
from coded import codes
from probml.errors import Refusal


def vb(**changed):
    return probml.VB(**{"tolerance": 1e-12, "restarts": 1, "max_iterations": 3000} | changed)


def softmax(logs):
    """Rows that sum to 1, and the logarithms of their sums."""
    top = logs.max(1, keepdims=True)
    r = np.exp(logs - top)
    return r / r.sum(1, keepdims=True), (np.log(r.sum(1)) + top[:, 0])


def dirichlet_gap(a, prior):
    """KL(Dirichlet(a) ‖ Dirichlet(prior)), summed over tables."""
    prior = np.broadcast_to(prior, a.shape)
    logs = digamma(a) - digamma(a.sum(-1, keepdims=True))
    constant = [gammaln(each.sum(-1)) - gammaln(each).sum(-1) for each in (a, prior)]
    return np.sum(constant[0] - constant[1] + ((a - prior) * logs).sum(-1))


def gamma_gap(a, b, prior_a, prior_b):
    """KL(Gamma(a, b) ‖ Gamma(prior_a, prior_b)), summed."""
    return np.sum((a - prior_a) * digamma(a) - gammaln(a) + gammaln(prior_a)
                  + prior_a * (np.log(b) - np.log(prior_b)) + a * (prior_b - b) / b)


# Nothing hidden: two blocks that are not conjugate together


@probml.model
def level():
    """Mean and precision, independent a priori."""
    mean = sample("mean", dist.Normal(1.0, 2.0))
    precision = sample("precision", dist.Gamma(2.0, 3.0))
    with probml.rows():
        sample("x", dist.Normal(mean, precision**-0.5))


X = np.array([3.1, 2.2, 4.0, 3.3, 5.1, 2.8, 3.9])


def level_by_hand(x, weights, m0=1.0, s0=2.0, a0=2.0, b0=3.0):
    """The fixed point of Bishop (2006), section 10.1.3, and the bound there."""
    n, mean, a = weights.sum(), weights @ x / weights.sum(), a0 + weights.sum() / 2
    rate = 1.0
    for _ in range(500):
        t = a / rate
        precision = 1 / s0**2 + n * t
        m = (m0 / s0**2 + n * t * mean) / precision
        rate = b0 + 0.5 * (weights @ (x - m) ** 2 + n / precision)
    away = weights @ (x - m) ** 2 + n / precision
    fit = 0.5 * n * (digamma(a) - np.log(rate) - np.log(2 * np.pi)) - 0.5 * a / rate * away
    normal = 0.5 * (np.log(s0**2 * precision) + (1 / precision + (m - m0) ** 2) / s0**2 - 1)
    return m, precision, a, rate, fit - normal - gamma_gap(a, rate, a0, b0)


@pytest.mark.parametrize("weights", [None, np.array([1.0, 2.0, 0.5, 1.0, 1.0, 3.0, 1.0])],
                         ids=["alike", "weighted"])
def test_a_mean_and_a_precision_that_are_independent_reach_the_fixed_point_by_hand(weights):
    m, precision, a, rate, bound = level_by_hand(X, np.ones(7) if weights is None else weights)
    fit = level().fit({"x": X}, vb(), weights=weights)
    assert fit.converged
    np.testing.assert_allclose(fit.posterior("mean").loc, m, rtol=1e-7)
    np.testing.assert_allclose(fit.posterior("mean").scale, precision**-0.5, rtol=1e-7)
    np.testing.assert_allclose(fit.posterior("precision").concentration, a, rtol=1e-7)
    np.testing.assert_allclose(fit.posterior("precision").rate, rate, rtol=1e-7)
    assert math.isclose(fit.bound, bound, rel_tol=1e-9)
    assert (np.diff(fit.history) > -1e-9).all() and fit.bound == fit.history[-1]


def test_the_bound_of_a_mean_and_a_precision_is_below_the_integral():
    mean, log = np.meshgrid(np.linspace(-4, 10, 1201), np.linspace(-6, 3, 1201), indexing="ij")
    t = np.exp(log)
    joint = (sum(dist.Normal(mean, t**-0.5).log_prob(x) for x in X)
             + dist.Normal(1.0, 2.0).log_prob(mean) + dist.Gamma(2.0, 3.0).log_prob(t) + log)
    joint = np.asarray(joint)
    evidence = np.log(np.exp(joint - joint.max()).sum()) + joint.max() + np.log(14 / 1200 * 9 / 1200)
    bound = level().fit({"x": X}, vb()).bound
    assert evidence - 0.2 < bound < evidence


def test_its_predictive_averages_over_q():
    """No closed form: x is neither normal nor Student's t where both are independent."""
    fit = level().fit({"x": X}, vb())
    m, precision, a, rate, _ = level_by_hand(X, np.ones(7))
    random = np.random.default_rng(0)
    mean = random.normal(m, precision**-0.5, 200_000)
    scale = random.gamma(a, 1 / rate, 200_000) ** -0.5
    exact = np.log(np.mean(np.exp(np.asarray(dist.Normal(mean, scale).log_prob(4.0)))))
    assert abs(fit.log_prob({"x": np.array([4.0])})[0] - exact) < 0.05
    assert abs(fit.log_prob({"x": np.array([4.0])}, plug_in=True)[0] - exact) > 0.01


@probml.model
def scaled():
    """Mean given precision: conjugate together."""
    precision = sample("precision", dist.Gamma(2.0, 3.0))
    mean = sample("mean", dist.Normal(1.0, (4.0 * precision) ** -0.5))
    with probml.rows():
        sample("x", dist.Normal(mean, precision**-0.5))


def test_where_all_is_conjugate_together_it_is_exact():
    ours, exact = scaled().fit({"x": X}, vb()), scaled().fit({"x": X}, probml.Exact())
    assert math.isclose(ours.bound, exact.log_evidence, rel_tol=1e-12)
    assert ours.log_evidence is None and ours.iterations <= 4
    for name in ("loc", "scale", "df"):
        np.testing.assert_allclose(getattr(ours.posterior("mean"), name),
                                   getattr(exact.posterior("mean"), name), rtol=1e-10)
    new = {"x": np.array([0.0, 4.0])}
    np.testing.assert_allclose(ours.log_prob(new), exact.log_prob(new), rtol=1e-9)


@probml.model
def line(x, d: int = 3):
    coefficients = sample("coefficients", dist.Normal(0.0, 3.0).expand([d]).to_event(1))
    precision = sample("precision", dist.Gamma(1.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(x @ coefficients, precision**-0.5))


def test_a_regression_with_unknown_noise_reaches_the_fixed_point_by_hand():
    random = np.random.default_rng(3)
    x = random.standard_normal((30, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.7 * random.standard_normal(30)
    a, rate = 1.0 + 15, 1.0
    for _ in range(500):
        precision = np.eye(3) / 9 + a / rate * x.T @ x
        covariance = np.linalg.inv(precision)
        m = a / rate * covariance @ x.T @ y
        away = ((y - x @ m) ** 2).sum() + np.trace(x.T @ x @ covariance)
        rate = 1.0 + 0.5 * away
    bound = (15 * (digamma(a) - np.log(rate) - np.log(2 * np.pi)) - 0.5 * a / rate * away
             - gamma_gap(a, rate, 1.0, 1.0)
             - 0.5 * (np.trace(covariance) / 9 + m @ m / 9 - 3 + 3 * np.log(9)
                      + np.linalg.slogdet(precision)[1]))
    fit = line().fit({"x": x, "y": y}, vb())
    np.testing.assert_allclose(fit.posterior("coefficients").mean, m, rtol=1e-6)
    np.testing.assert_allclose(fit.posterior("coefficients").covariance_matrix, covariance,
                               rtol=1e-6)
    np.testing.assert_allclose(fit.posterior("precision").rate, rate, rtol=1e-7)
    assert math.isclose(fit.bound, bound, rel_tol=1e-9)


# Mixtures


@probml.model
def normals(k: int, d: int, concentration: float = 1.0, sticks: bool = False):
    """scikit-learn's BayesianGaussianMixture."""
    weights = sample("weights", probml.dirichlet_process(concentration, k) if sticks
                     else dist.Dirichlet(jnp.full(k, concentration)))
    with plate("component", k):
        precision = sample("precision", dist.Wishart(d + 1.0, rate_matrix=0.5 * jnp.eye(d)))
        mean = sample("mean", dist.MultivariateNormal(jnp.zeros(d),
                                                      precision_matrix=0.2 * precision))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.MultivariateNormal(mean[z], precision_matrix=precision[z]))


def clouds(n=60, seed=1):
    random = np.random.default_rng(seed)
    return np.concatenate([random.normal(-3.0, 1.0, (n, 2)),
                           random.normal([1.0, 2.0], [0.5, 1.0], (n, 2))])


def wishart_norm(dof, rate):
    """log ∫ of a Wishart's kernel, but for the power of π, which priors and posteriors share."""
    d = rate.shape[-1]
    return (0.5 * dof * d * np.log(2) + gammaln((dof - np.arange(d)) / 2).sum()
            - 0.5 * dof * np.linalg.slogdet(rate)[1])


@pytest.mark.parametrize("sticks", [False, True], ids=["dirichlet", "dirichlet process"])
def test_it_agrees_with_scikit_learn_on_a_mixture_of_normals(sticks):
    peers = pytest.importorskip("sklearn.mixture")
    x, kind = clouds(), "dirichlet_process" if sticks else "dirichlet_distribution"
    peer = peers.BayesianGaussianMixture(
        n_components=2, weight_concentration_prior_type=kind, weight_concentration_prior=0.7,
        mean_precision_prior=0.2, mean_prior=np.zeros(2), degrees_of_freedom_prior=3.0,
        covariance_prior=0.5 * np.eye(2), tol=1e-15, max_iter=5000, reg_covar=0.0, random_state=0,
    ).fit(x)
    # the first stick is that of most rows
    start = {"mean": peer.means_, "weights": peer.weights_, "precision": peer.precisions_}
    fit = normals(2, 2, 0.7, sticks).fit({"x": x}, vb(tolerance=1e-14), start=start)
    precision = fit.posterior("precision")
    np.testing.assert_allclose(precision.concentration, peer.degrees_of_freedom_, rtol=1e-6)
    rates = peer.covariances_ * peer.degrees_of_freedom_[:, None, None]
    np.testing.assert_allclose(np.asarray(precision.rate_matrix), rates, rtol=1e-5)
    np.testing.assert_allclose(fit.params["mean"], peer.means_, rtol=1e-6, atol=1e-7)
    if sticks:
        found = fit.posterior("weights")
        for ours, theirs in zip((found.concentration1, found.concentration0),
                                peer.weight_concentration_, strict=True):
            np.testing.assert_allclose(ours, theirs[:1], rtol=1e-6)
        prior = np.log(0.7)  # of one stick: 1 / B(1, 0.7)
    else:
        found = fit.posterior("weights").concentration
        np.testing.assert_allclose(found, peer.weight_concentration_, rtol=1e-6)
        prior = gammaln(1.4) - 2 * gammaln(0.7)
    # what scikit-learn's bound leaves out: normalisers of the prior, and 2π
    dropped = (-2 * wishart_norm(3.0, 0.5 * np.eye(2)) + prior + 2 * np.log(0.2)
               - len(x) * np.log(2 * np.pi))
    if sticks:  # theirs has a stick for the last component too, which ours knows to be the rest
        dropped -= betaln(*(each[-1] for each in peer.weight_concentration_))
    assert math.isclose(fit.bound, peer.lower_bound_ + dropped, rel_tol=1e-6 if sticks else 1e-7)
    # their q(z) is one E-step ahead of their q(θ)
    expected = peer.predict_proba(x)
    assert np.abs(expected - fit_responsibilities(fit, x)).max() < 2e-3


def fit_responsibilities(fit, x):
    return np.asarray(fit.predict_proba({"x": x}, "z"))


@probml.model
def counts(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 2.0)))
    with plate("component", k):
        rate = sample("rate", dist.Gamma(2.0, 0.5))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Poisson(rate[z]))


COUNTS = np.concatenate([np.random.default_rng(0).poisson(2.0, 25),
                         np.random.default_rng(1).poisson(9.0, 25)])
POINT = {"weights": np.array([0.4, 0.6]), "rate": np.array([3.0, 5.0])}


def counts_by_hand(x, weights, w, rate, iterations):
    """VB of `counts` from the responsibilities at a point: the bounds, and the last q(θ)."""
    r, _ = softmax(np.log(w) + x[:, None] * np.log(rate) - rate)
    r, bounds = r * weights[:, None], []
    for _ in range(iterations):
        n = r.sum(0)
        alpha, a, b = 2.0 + n, 2.0 + r.T @ x, 0.5 + n
        logs = (digamma(alpha) - digamma(alpha.sum()) + x[:, None] * (digamma(a) - np.log(b))
                - a / b - gammaln(x + 1)[:, None])
        r, evidence = softmax(logs)
        r = r * weights[:, None]
        bounds.append(weights @ evidence - dirichlet_gap(alpha, np.full(len(w), 2.0))
                      - gamma_gap(a, b, 2.0, 0.5))
    return np.array(bounds), alpha, a, b


@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2.0, 50)], ids=["alike", "weighted"])
def test_a_mixture_of_poissons_takes_the_steps_that_were_written_by_hand(weights):
    with pytest.warns(probml.ConvergenceWarning, match="VB.*iteration limit"):
        fit = counts(2).fit({"x": COUNTS}, vb(max_iterations=9), start=POINT, weights=weights)
    bounds, alpha, a, b = counts_by_hand(COUNTS, np.ones(50) if weights is None else weights,
                                         *POINT.values(), len(fit.history))
    np.testing.assert_allclose(fit.history, bounds, rtol=1e-11)
    np.testing.assert_allclose(fit.posterior("weights").concentration, alpha, rtol=1e-9)
    np.testing.assert_allclose(fit.posterior("rate").concentration, a, rtol=1e-9)
    np.testing.assert_allclose(fit.posterior("rate").rate, b, rtol=1e-9)


def test_the_bound_is_below_the_evidence_that_enumeration_finds():
    x = COUNTS[[0, 1, 2, 30, 31, 32]]

    def joint(z):
        """log p(x, z), rates and weights integrated out."""
        n = np.bincount(z, minlength=2)
        total = np.array([x[z == j].sum() for j in (0, 1)])
        tables = gammaln(4.0) - gammaln(4.0 + len(x)) + np.sum(gammaln(2.0 + n) - gammaln(2.0))
        rates = (2.0 * np.log(0.5) - gammaln(2.0) + gammaln(2.0 + total)
                 - (2.0 + total) * np.log(0.5 + n))
        return tables + rates.sum() - gammaln(x + 1).sum()

    logs = [joint(np.array(z)) for z in itertools.product((0, 1), repeat=len(x))]
    evidence = np.logaddexp.reduce(logs)
    fit = counts(2).fit({"x": x}, vb())
    # both labellings share the evidence, of which q has one
    assert evidence - 2.0 < fit.bound < evidence - 0.1


# Chains


@probml.model
def symbols(k: int, size: int):
    initial = sample("initial", dist.Dirichlet(jnp.full(k, 1.5)))
    with plate("state", k):
        transition = sample("transition", dist.Dirichlet(jnp.full(k, 0.8)))
        table = sample("table", dist.Dirichlet(jnp.full(size, 0.6)))
    with probml.rows():
        z = sample("z", probml.MarkovChain(initial, transition))
        sample("y", dist.Categorical(table[z]).to_event(1))


def logs_of(a):
    return digamma(a) - digamma(a.sum(-1, keepdims=True))


def chain_by_hand(y, initial, transition, table, iterations):
    """VB-EM of `symbols` (Beal 2003, section 3.4), from a point: bounds and concentrations."""
    k, bounds = len(initial), []
    tables, found = [np.log(each) for each in (initial, transition, table)], None
    for i in range(iterations + 1):
        first, moves, shown = np.exp(tables[0]), np.exp(tables[1]), np.exp(tables[2])
        counts, evidence = [np.zeros(k), np.zeros((k, k)), np.zeros(shown.shape)], 0.0
        for row in y:
            steps = len(row)
            forward, backward = np.zeros((steps, k)), np.ones((steps, k))
            forward[0] = first * shown[:, row[0]]
            for t in range(1, steps):
                forward[t] = forward[t - 1] @ moves * shown[:, row[t]]
            for t in reversed(range(steps - 1)):
                backward[t] = moves @ (shown[:, row[t + 1]] * backward[t + 1])
            total = forward[-1].sum()
            evidence += np.log(total)
            q = forward * backward / total
            counts[0] += q[0]
            for t in range(1, steps):
                counts[1] += (forward[t - 1][:, None] * moves * (shown[:, row[t]] * backward[t])
                              / total)
            for t in range(steps):
                counts[2][:, row[t]] += q[t]
        if i:
            bounds.append(evidence - sum(dirichlet_gap(a, p) for a, p in
                                         zip(found, (1.5, 0.8, 0.6), strict=True)))
        last = found
        found = [1.5 + counts[0], 0.8 + counts[1], 0.6 + counts[2]]
        tables = [logs_of(a) for a in found]
    return np.array(bounds), last


def test_a_hidden_markov_model_takes_the_steps_that_were_written_by_hand():
    random = np.random.default_rng(5)
    y = random.integers(3, size=(4, 12))
    y[:, :6] = np.minimum(y[:, :6], 1)
    point = {"initial": np.array([0.6, 0.4]), "transition": np.array([[0.7, 0.3], [0.2, 0.8]]),
             "table": np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])}
    with pytest.warns(probml.ConvergenceWarning, match="iteration limit"):
        fit = symbols(2, 3).fit({"y": y}, vb(max_iterations=6), start=point)
    bounds, found = chain_by_hand(y, *point.values(), len(fit.history))
    np.testing.assert_allclose(fit.history, bounds, rtol=1e-10)
    for name, concentration in zip(("initial", "transition", "table"), found, strict=True):
        np.testing.assert_allclose(fit.posterior(name).concentration, concentration, rtol=1e-8)


# Rows as EM has them


def test_empty_components_empty_themselves_and_every_row_is_counted():
    fit = normals(8, 2, 0.1).fit({"x": clouds()}, probml.VB(restarts=4))
    counts = np.asarray(fit.posterior("weights").concentration) - 0.1
    assert (counts > 1).sum() == 2 and math.isclose(counts.sum(), 120, rel_tol=1e-9)
    assert (np.diff(fit.history) > -1e-8).all()


def test_labels_seen_in_part_are_kept():
    labels = np.full(50, np.nan)
    labels[[0, 49]] = [1, 0]  # the other way round than the rates
    fit = counts(2).fit({"x": COUNTS, "z": labels}, vb())
    assert fit.params["rate"][0] > fit.params["rate"][1]


def test_unseen_cells_say_nothing():
    holed = np.append(COUNTS.astype(float), [np.nan] * 3)
    ours, whole = counts(2).fit({"x": holed}, vb()), counts(2).fit({"x": COUNTS}, vb())
    # three rows without a value: their q(z) is E log π alone
    alpha = np.asarray(ours.posterior("weights").concentration)
    np.testing.assert_allclose(ours.posterior("rate").rate.sum(), 51.0, rtol=1e-2, atol=3.5)
    assert math.isclose(alpha.sum(), 57.0, rel_tol=1e-9)
    assert ours.bound < whole.bound + 1e-9


def test_with_nothing_hidden_parts_merge():
    data = {"x": COUNTS, "z": (np.arange(50) >= 25).astype(int)}
    ours, exact = counts(2).fit(data, probml.VB()), counts(2).fit(data, probml.Exact())
    assert math.isclose(ours.bound, exact.log_evidence, rel_tol=1e-10)
    halves = [counts(2).fit({k: v[i::2] for k, v in data.items()}, probml.VB()) for i in (0, 1)]
    assert math.isclose(halves[0].merge(halves[1]).bound, ours.bound, rel_tol=1e-10)


def test_a_source_of_rows_gives_what_memory_gives():
    def parts():
        for i in range(5):
            yield {"x": COUNTS[10 * i : 10 * (i + 1)]}

    ours, whole = (counts(2).fit(data, vb(), start=POINT) for data in (parts, {"x": COUNTS}))
    np.testing.assert_allclose(ours.posterior("rate").rate, whole.posterior("rate").rate, rtol=1e-8)
    assert math.isclose(ours.bound, whole.bound, rel_tol=1e-10)


# Side by side


def test_compare_ranks_by_the_bound_and_says_that_it_is_one(tmp_path):
    fits = {f"{k}": counts(k).fit({"x": COUNTS}, vb()) for k in (1, 2)}
    table = probml.compare(fits, {"x": COUNTS})
    assert table.attrs["criterion"] == "bound" and table.index[0] == "2"
    assert table.loc["2", "bound"] == fits["2"].bound and table["log_evidence"].isna().all()
    assert any("lower bound" in note for note in table.attrs["notes"])
    fits["2"].save(tmp_path / "fit")
    back = probml.load(tmp_path / "fit", counts(2))
    assert back.bound == fits["2"].bound
    np.testing.assert_allclose(back.posterior("rate").rate, fits["2"].posterior("rate").rate)


# What it does not treat


def test_what_is_not_conjugate_is_refused_by_site():
    @probml.model
    def odd(scale_of="lognormal"):
        scale = sample("scale", dist.LogNormal(0.0, 1.0))
        with probml.rows():
            sample("x", dist.Normal(0.0, scale))

    with pytest.raises(Refusal, match=r"VB cannot fit model 'odd': parameter 'scale' \(LogNormal\) "
                                      r"has no posterior in closed form.*such as SVI\(\)"):
        odd().fit({"x": X}, probml.VB())


# What it says of itself


@probml.model
def shifted():
    """Some rows are shifted: how many and how far hang together."""
    share = sample("share", dist.Beta(1.0, 1.0))
    shift = sample("shift", dist.Normal(0.0, 3.0))
    with probml.rows():
        z = sample("z", dist.Bernoulli(share))
        sample("x", dist.Normal(jnp.array([0.0, 1.0])[z] * shift, 1.0))


def test_blocks_that_hang_together_are_not_to_be_relied_on():
    x = np.random.default_rng(0).normal(size=30) + np.repeat([0.0, 1.5], 15)
    share, shift = np.meshgrid(np.linspace(0.001, 0.999, 300), np.linspace(-4, 6, 500),
                               indexing="ij")
    logs = -shift**2 / 18
    for value in x:
        logs += np.logaddexp(np.log(1 - share) - value**2 / 2,
                             np.log(share) - (value - shift) ** 2 / 2)
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    deviation = np.sqrt((mass * (shift - (mass * shift).sum()) ** 2).sum())
    for seed in range(3):
        found = shifted().fit({"x": x}, vb(), seed=seed)
        assert deviation > 1.5 * found.summary()["sd"]["shift"]
        assert "approximation-far" in codes(found) and "approximation-far" in codes(found)
        apart = shifted().fit({"x": x + np.repeat([0.0, 4.0], 15)}, vb(), seed=seed)
        assert "approximation-far" not in codes(apart)  # the rows tell who is shifted
