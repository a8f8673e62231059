"""Exact: posteriors, evidence and predictives against textbook formulas; refusals that name the
site."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import special, stats

import cases
import probml
from cases import nan

TIGHT = 1e-9  # closed forms are read off derivatives in float64: a few digits below its sixteen


def close(got, expected, tolerance=TIGHT):
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


# Probability tables


def test_a_beta_posterior_adds_counts():
    toss = np.array([0, 1, 0, 1, 1])
    fit = cases.coin(a=2.0, b=3.0).fit({"toss": toss})
    posterior = fit.posterior("heads")
    assert isinstance(posterior, dist.Beta)
    close([posterior.concentration1, posterior.concentration0], [5.0, 5.0])
    close(fit.params["heads"], 0.5)
    close(fit.predict_proba({"toss": [nan]}, "toss"), [[0.5, 0.5]])
    close(fit.log_evidence, special.betaln(5, 5) - special.betaln(2, 3))
    close(fit.log_prob({"toss": [1, 0, nan]}), [np.log(0.5), np.log(0.5), 0.0])


def test_a_beta_posterior_weighs_rows():
    fit = cases.coin(a=2.0, b=3.0).fit({"toss": [1, 0]}, weights=[2.5, 0.5])
    close([fit.posterior("heads").concentration1, fit.posterior("heads").concentration0],
          [4.5, 3.5])
    close(fit.log_evidence, special.betaln(4.5, 3.5) - special.betaln(2, 3))


def test_a_dirichlet_posterior_adds_counts():
    a, face = np.array([1.0, 2.0, 0.5]), np.array([0, 0, 1, 0, nan])
    fit = cases.dice(a=tuple(a)).fit({"face": face})
    after = a + [3, 1, 0]
    close(fit.posterior("theta").concentration, after)
    close(fit.params["theta"], after / after.sum())
    close(fit.predict_proba({"face": [nan]}, "face")[0], after / after.sum())

    def normaliser(a):
        return special.gammaln(a).sum() - special.gammaln(a.sum())

    close(fit.log_evidence, normaliser(after) - normaliser(a))


@probml.model
def bayes_net():
    """A class, a feature below it, and one coin that is used by two sites."""
    share = sample("share", dist.Dirichlet(jnp.array([1.0, 2.0])))
    with plate("class", 2):
        table = sample("table", dist.Dirichlet(jnp.array([1.0, 1.0, 2.0])))
    p = sample("p", dist.Beta(1.5, 1.0))
    with probml.rows():
        z = sample("z", dist.Categorical(share))
        sample("colour", dist.Categorical(table[z]))
        sample("left", dist.Bernoulli(p))
        sample("right", dist.Bernoulli(1.0 - p))


NET = {"z": [0, 1, 1, 0, 1], "colour": [2, 0, 0, 1, 2], "left": [1, 1, 0, 1, 1],
       "right": [0, 1, 0, 0, nan]}


def test_tables_below_a_seen_class_and_a_coin_used_twice():
    fit = bayes_net().fit(NET, probml.Exact())
    close(fit.posterior("share").concentration, [3.0, 5.0])
    close(fit.posterior("table").concentration, [[1, 2, 3], [3, 1, 3]])
    close([fit.posterior("p").concentration1, fit.posterior("p").concentration0],
          [1.5 + 4 + 3, 1.0 + 1 + 1])


def test_an_unseen_class_is_predicted_from_the_posterior_means_of_the_tables():
    fit = bayes_net().fit(NET, probml.Exact())
    joint = np.array([3, 5]) / 8 * np.array([3 / 6, 3 / 7])
    close(fit.predict_proba({"colour": [2]}, "z")[0], joint / joint.sum())
    close(fit.log_prob({"colour": [2]}), [np.log(joint.sum())])


def test_one_coin_twice_in_a_row_is_not_two_independent_coins():
    fit = bayes_net().fit(NET, probml.Exact())
    a, b = 8.5, 3.0
    both = a * b / ((a + b) * (a + b + 1))  # E[p (1 - p)] under Beta(a, b)
    # averaged over 256 draws: the standard error of E[p (1 − p)] is below 1% here
    np.testing.assert_allclose(np.exp(fit.log_prob({"left": [1], "right": [1]})), [both], rtol=0.05)


# Locations


def test_the_mean_of_a_normal_with_known_variance():
    x = np.array([2.0, 4.0, 9.0])
    fit = cases.known_variance().fit({"x": x})
    n, s2, s02, m0 = 3, 9.0, 4.0, 1.0
    loc, variance = (s2 * m0 + n * s02 * x.mean()) / (n * s02 + s2), 1 / (1 / s02 + n / s2)
    assert isinstance(fit.posterior("mean"), dist.Normal)
    close([fit.posterior("mean").loc, fit.posterior("mean").scale], [loc, np.sqrt(variance)])
    close(fit.log_evidence,
          stats.multivariate_normal(np.full(3, m0), s2 * np.eye(3) + s02).logpdf(x))
    close(fit.log_prob({"x": [0.0, 5.0, nan]})[:2],
          stats.norm(loc, np.sqrt(variance + s2)).logpdf([0.0, 5.0]))
    close(fit.log_prob({"x": [0.0, 5.0]}, plug_in=True), stats.norm(loc, 3.0).logpdf([0.0, 5.0]))


@probml.model
def two_rulers():
    """One length, measured by two instruments of known precision."""
    length = sample("length", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("coarse", dist.Normal(length, 2.0))
        sample("fine", dist.Normal(2.0 * length + 1.0, 0.5))


def test_a_mean_used_in_two_sites_collects_the_precision_of_both():
    coarse, fine = np.array([3.0, 5.0, nan]), np.array([9.0, nan, 8.0])
    fit = two_rulers().fit({"coarse": coarse, "fine": fine})
    precision = 1 / 100 + 2 / 4 + 2 * 4 / 0.25
    loc = ((3 + 5) / 4 + 2 * (8 + 7) / 0.25) / precision
    close([fit.posterior("length").loc, fit.posterior("length").scale], [loc, precision**-0.5])


# Scales


@probml.model
def groups(k: int, m0: float = 1.0, kappa: float = 0.5, a: float = 3.0, b: float = 2.0):
    """Normal–inverse-gamma in every group."""
    with plate("group", k):
        variance = sample("variance", dist.InverseGamma(a, b))
        mean = sample("mean", dist.Normal(m0, jnp.sqrt(variance / kappa)))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.full(k, 1.0 / k)))
        sample("x", dist.Normal(mean[z], jnp.sqrt(variance[z])))


def normal_inverse_gamma(x, m0=1.0, kappa=0.5, a=3.0, b=2.0):
    """(m, kappa, a, b) after x, and log p(x) (Murphy 2007, Conjugate Bayesian analysis of the
    Gaussian, 3.)."""
    n, mean = len(x), np.mean(x) if len(x) else 0.0
    k, after = kappa + n, a + n / 2
    scale = b + 0.5 * ((x - mean) ** 2).sum() + kappa * n * (mean - m0) ** 2 / (2 * k)
    evidence = special.gammaln(after) - special.gammaln(a) + a * np.log(b) - after * np.log(scale)
    evidence += 0.5 * np.log(kappa / k) - n / 2 * np.log(2 * np.pi)
    return (kappa * m0 + n * mean) / k, k, after, scale, evidence


@functools.lru_cache
def grouped():
    rng = np.random.default_rng(0)
    z = rng.integers(3, size=12)
    x = np.array([0.0, 3.0, -2.0])[z] + rng.normal(size=12) * np.array([0.5, 1.0, 2.0])[z]
    return (groups(k=3).fit({"x": x, "z": z}, probml.Exact()), x, z,
            [normal_inverse_gamma(x[z == g]) for g in range(3)])


def test_normal_inverse_gamma_posteriors_and_evidence():
    fit, _, _, after = grouped()
    m, kappa, a, b, evidence = map(np.array, zip(*after, strict=True))
    variance, mean = fit.posterior("variance"), fit.posterior("mean")
    assert isinstance(variance, dist.InverseGamma) and isinstance(mean, dist.StudentT)
    close([variance.concentration, variance.rate], [a, b])
    close([mean.df, mean.loc, mean.scale], [2 * a, m, np.sqrt(b / (a * kappa))])
    close(fit.log_evidence, evidence.sum() + 12 * np.log(1 / 3))
    close(fit.params["variance"], b / (a - 1))
    close(fit.params["mean"], m)


def test_the_predictive_of_a_normal_inverse_gamma_is_student_t():
    fit, _, _, after = grouped()
    new = np.array([-1.0, 0.5, 4.0])
    log = np.stack([stats.t(2 * a, m, np.sqrt(b * (1 + 1 / k) / a)).logpdf(new)
                    for m, k, a, b, _ in after], 1) + np.log(1 / 3)
    close(fit.log_prob({"x": new}), special.logsumexp(log, 1))
    close(fit.predict_proba({"x": new}, "z"), special.softmax(log, 1))
    close(fit.log_prob({"x": new, "z": [0, 1, 2]}), log[range(3), range(3)])


def test_a_group_without_rows_keeps_its_prior():
    fit = groups(k=3).fit({"x": [0.5, 1.0], "z": [0, 1]}, probml.Exact())
    close([fit.posterior("variance").concentration[2], fit.posterior("variance").rate[2]],
          [3.0, 2.0])
    close(fit.posterior("mean").scale[2], np.sqrt(2.0 / (3.0 * 0.5)))


def test_draws_agree_with_the_posterior_and_keep_location_and_scale_together():
    fit, _, _, after = grouped()
    draws = fit.draws(4000, seed=1)
    assert draws["mean"].shape == draws["variance"].shape == (4000, 3)
    m, kappa, a, b, _ = map(np.array, zip(*after, strict=True))
    for name in ("mean", "variance"):
        sd = np.sqrt(np.asarray(fit.posterior(name).variance))
        # 5 standard errors
        np.testing.assert_allclose(draws[name].mean(0), fit.posterior(name).mean,
                                   atol=5 * sd.max() / np.sqrt(4000))
    # standard normal, whatever the variance
    z = (draws["mean"] - m) / np.sqrt(draws["variance"] / kappa)
    np.testing.assert_allclose(z.std(0), 1.0, atol=5 / np.sqrt(2 * 4000))
    np.testing.assert_allclose([np.corrcoef(np.abs(z[:, g]), draws["variance"][:, g])[0, 1]
                                for g in range(3)], 0.0, atol=5 / np.sqrt(4000))
    np.testing.assert_allclose(draws["mean"], fit.draws(4000, seed=1)["mean"], atol=0)


def test_the_evidence_is_the_product_of_one_step_predictions():
    _, x, z, _ = grouped()
    model, n = groups(k=3), 5
    data = {"x": x[:n], "z": z[:n]}
    # the first t + 1 rows
    fits = [model.fit(data, probml.Exact(), weights=np.arange(n) <= t) for t in range(n)]
    steps = [fit.log_prob(data)[t + 1] for t, fit in enumerate(fits[:-1])]
    close(np.diff([fit.log_evidence for fit in fits]), steps)
    close(fits[0].log_evidence, normal_inverse_gamma(x[:1])[4] + np.log(1 / 3))


@probml.model
def features(d: int):
    """Naive Bayes: a class, d Normal features and d Bernoulli ones, every parameter with its
    conjugate prior."""
    with plate("class", 2):
        variance = sample("variance", dist.InverseGamma(3.0, 2.0).expand([d]).to_event(1))
        mean = sample("mean", dist.Normal(1.0, jnp.sqrt(variance / 0.5)).to_event(1))
        rate = sample("rate", dist.Beta(1.0, 2.0).expand([d]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Bernoulli(0.4))
        sample("x", dist.Normal(mean[z], jnp.sqrt(variance[z])).to_event(1))
        sample("b", dist.Bernoulli(rate[z]).to_event(1))


def test_the_predictive_of_many_features_is_a_product_and_skips_missing_cells():
    rng = np.random.default_rng(3)
    x, b, z = (rng.normal(size=(8, 2)), rng.integers(2, size=(8, 2)),
               np.array([0, 1, 0, 0, 1, 1, 0, 1]))
    fit = features(d=2).fit({"x": x, "b": b, "z": z}, probml.Exact())
    new = {"x": np.array([[0.5, nan], [nan, nan], [1.0, 2.0]]),
           "b": np.array([[1.0, 0.0], [nan, 1.0], [nan, nan]])}
    log = np.tile(np.log([0.6, 0.4]), (3, 1))
    for g in range(2):
        for j in range(2):
            m, k, a, s, _ = normal_inverse_gamma(x[z == g, j])
            log[:, g] += np.nan_to_num(
                stats.t(2 * a, m, np.sqrt(s * (1 + 1 / k) / a)).logpdf(new["x"][:, j])
            )
            p = (1 + b[z == g, j].sum()) / (3 + (z == g).sum())
            log[:, g] += np.nan_to_num(np.log(np.where(np.isnan(new["b"][:, j]), nan,
                                                       np.where(new["b"][:, j] == 1, p, 1 - p))))
    close(fit.log_prob(new), special.logsumexp(log, 1))
    close(fit.predict_proba(new, "z"), special.softmax(log, 1))


@probml.model
def one_variance(d: int):
    """One variance for a vector and for two groups of it: ties."""
    variance = sample("variance", dist.InverseGamma(3.0, 2.0))
    with plate("group", 2):
        mean = sample("mean", dist.Normal(0.0, jnp.sqrt(variance / 0.5)).expand([d]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Bernoulli(0.5))
        sample("x", dist.Normal(mean[z], jnp.sqrt(variance)).to_event(1))


def test_one_variance_for_two_means_pools_their_squares():
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(7, 2)), np.array([0, 1, 0, 0, 1, 1, 0])
    fit = one_variance(d=2).fit({"x": x, "z": z}, probml.Exact())
    a, b, evidence, loc, kappa = 3.0, 2.0, 7 * np.log(0.5), np.zeros((2, 2)), np.zeros((2, 1))
    for g in range(2):
        xs = x[z == g]
        n, mean = len(xs), xs.mean(0)
        kappa[g] = 0.5 + n
        loc[g] = n * mean / kappa[g]
        a += n  # two coordinates, half a count each
        b += 0.5 * ((xs - mean) ** 2).sum() + 0.5 * n * (mean**2).sum() / (2 * kappa[g, 0])
        evidence += 2 * 0.5 * np.log(0.5 / kappa[g, 0]) - n * np.log(2 * np.pi)
    evidence += special.gammaln(a) - special.gammaln(3.0) + 3 * np.log(2.0) - a * np.log(b)
    close([fit.posterior("variance").concentration, fit.posterior("variance").rate], [a, b])
    close(fit.log_evidence, evidence)
    mean = fit.posterior("mean")
    close(mean.mean, loc)
    # of Student t: b / (a kappa) · 2a / (2a − 2)
    close(mean.variance, np.broadcast_to(b / (a - 1) / kappa, (2, 2)))


@probml.model
def wishart(d: int, kappa: float = 0.5):
    covariance = sample("covariance",
                        dist.InverseWishart(concentration=d + 3.0, scale_matrix=2.0 * jnp.eye(d)))
    mean = sample("mean", dist.MultivariateNormal(jnp.arange(1.0, d + 1), covariance / kappa))
    with probml.rows():
        sample("x", dist.MultivariateNormal(mean, covariance_matrix=covariance))


@functools.lru_cache
def wisharted():
    rng = np.random.default_rng(2)
    x, d, kappa, nu, psi, m0 = (rng.normal(size=(9, 2)) @ [[1.0, 0.5], [0.0, 2.0]], 2, 0.5, 5.0,
                                2.0 * np.eye(2), np.array([1.0, 2.0]))
    n, mean = len(x), x.mean(0)
    k = kappa + n
    m, after = (kappa * m0 + n * mean) / k, nu + n
    scatter = psi + (x - mean).T @ (x - mean) + kappa * n / k * np.outer(mean - m0, mean - m0)
    evidence = -n * d / 2 * np.log(
        np.pi
    ) + special.multigammaln(after / 2, d) - special.multigammaln(nu / 2, d)
    evidence += (nu / 2 * np.linalg.slogdet(psi)[1] - after / 2 * np.linalg.slogdet(scatter)[1] + d
                 / 2 * np.log(kappa / k))
    return wishart(d=2).fit({"x": x}, probml.Exact()), x, m, k, after, scatter, evidence


def test_normal_inverse_wishart_posteriors_and_evidence():
    fit, _, m, k, nu, scatter, evidence = wisharted()
    covariance, mean = fit.posterior("covariance"), fit.posterior("mean")
    assert isinstance(covariance, dist.InverseWishart)
    close(covariance.concentration, nu)
    close(covariance.scale_matrix, scatter)
    df = nu - 2 + 1
    close([mean.df, *mean.loc], [df, *m])
    close(mean.scale_tril @ mean.scale_tril.T, scatter / (k * df))
    close(fit.log_evidence, evidence)


def test_the_predictive_of_a_normal_inverse_wishart_is_a_multivariate_student_t():
    fit, x, m, k, nu, scatter, _ = wisharted()
    df = nu - 2 + 1
    close(fit.log_prob({"x": x}),
          stats.multivariate_t(m, scatter * (k + 1) / (k * df), df).logpdf(x))


def test_draws_of_a_normal_inverse_wishart_have_its_moments():
    fit, _, m, k, nu, scatter, _ = wisharted()
    draws = fit.draws(4000, seed=0)
    mean = scatter / (nu - 3)
    # about five standard errors
    np.testing.assert_allclose(draws["covariance"].mean(0), mean, atol=0.1 * np.abs(mean).max())
    np.testing.assert_allclose(draws["mean"].mean(0), m, atol=5 * np.sqrt(mean.max() / k / 4000))
    whitened = np.linalg.solve(np.linalg.cholesky(draws["covariance"] / k),
                               (draws["mean"] - m)[..., None])[..., 0]
    np.testing.assert_allclose(np.cov(whitened.T), np.eye(2), atol=5 * np.sqrt(2 / 4000))


@probml.model
def normal_gamma(m0: float = 0.0, kappa: float = 2.0):
    precision = sample("precision", dist.Gamma(2.0, 1.5))
    mean = sample("mean", dist.Normal(m0, (kappa * precision) ** -0.5))
    with probml.rows():
        sample("x", dist.Normal(mean, precision**-0.5))


def test_a_normal_gamma_prior_on_a_precision():
    x = np.array([0.5, -1.0, 2.0, 0.3])
    fit = normal_gamma().fit({"x": x}, probml.Exact())
    m, kappa, a, b, evidence = normal_inverse_gamma(x, 0.0, 2.0, 2.0, 1.5)
    assert isinstance(fit.posterior("precision"), dist.Gamma)
    close([fit.posterior("precision").concentration, fit.posterior("precision").rate], [a, b])
    close([fit.posterior("mean").df, fit.posterior("mean").loc, fit.posterior("mean").scale],
          [2 * a, m, np.sqrt(b / (a * kappa))])
    close(fit.log_evidence, evidence)
    close(fit.log_prob({"x": [1.0]}),
          stats.t(2 * a, m, np.sqrt(b * (1 + 1 / kappa) / a)).logpdf([1.0]))


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the units
@pytest.mark.parametrize("unit", [1e-6, 1e4, 1e7])
def test_a_precision_far_from_its_prior_is_read_in_float32(unit):
    """At the prior's point a sum of squares of 1e14 hides how many rows there are."""
    x = np.array([0.5, -1.0, 2.0, 0.3, 0.9, -0.2]) * unit
    with jax.enable_x64(False):
        fit = normal_gamma().fit({"x": x}, probml.Exact())
        found = fit.posterior("precision"), fit.log_evidence, fit.log_prob({"x": x})
    m, kappa, a, b, evidence = normal_inverse_gamma(x, 0.0, 2.0, 2.0, 1.5)
    np.testing.assert_allclose([found[0].concentration, found[0].rate], [a, b], rtol=1e-4)
    np.testing.assert_allclose(found[1], evidence, rtol=1e-4)
    right = stats.t(2 * a, m, np.sqrt(b * (1 + 1 / kappa) / a)).logpdf(x)
    np.testing.assert_allclose(found[2], right, atol=1e-3)


def test_a_rate_of_which_nothing_was_counted_keeps_its_exposure():
    """λ ~ Gamma(1, ½), no counts: λ | data ~ Gamma(1, ½ + rows)."""
    @probml.model
    def none():
        rate = sample("rate", dist.Gamma(1.0, 0.5))
        with probml.rows():
            sample("x", dist.Poisson(rate))

    fit = none().fit({"x": np.zeros(5)}, probml.Exact())
    found = fit.posterior("rate")
    close([found.concentration, found.rate], [1.0, 5.5])


@probml.model
def noise(scale_is: str):
    """The mean is known; the prior is on the variance or on the precision."""
    if scale_is == "variance":
        scale = jnp.sqrt(sample("variance", dist.InverseGamma(2.0, 1.5)))
    else:
        scale = sample("precision", dist.Gamma(2.0, 1.5)) ** -0.5
    with probml.rows():
        sample("x", dist.Normal(1.0, scale))


@pytest.mark.parametrize("name", ["variance", "precision"])
def test_an_unknown_scale_about_a_known_mean(name):
    x = np.array([0.5, -1.0, 2.0, 0.3, nan])
    fit = noise(name).fit({"x": x}, probml.Exact())
    a, b = 2.0 + 4 / 2, 1.5 + 0.5 * ((x[:4] - 1.0) ** 2).sum()
    posterior = fit.posterior(name)
    close([posterior.concentration, posterior.rate], [a, b])
    close(fit.log_prob({"x": [3.0, 1.0]}), stats.t(2 * a, 1.0, np.sqrt(b / a)).logpdf([3.0, 1.0]))
    expected = (special.gammaln(a) - special.gammaln(2.0) + 2 * np.log(1.5) - a * np.log(b) - 2
                * np.log(2 * np.pi))
    close(fit.log_evidence, expected)


# Refusals


@probml.model
def uncoupled(prior: str):
    scale = (jnp.sqrt(sample("variance", dist.InverseGamma(2.0, 1.0))) if prior == "conjugate"
             else sample("scale", dist.LogNormal(0.0, 1.0)))
    mean = sample("mean", dist.Normal(0.0, 3.0))
    with probml.rows():
        sample("x", dist.Normal(mean, scale))


def test_exact_refuses_what_is_not_conjugate_and_names_it():
    for prior, word in (("conjugate", "'mean'"), ("lognormal", "'scale'")):
        with pytest.raises(probml.Refusal, match=word) as refusal:
            uncoupled(prior).fit({"x": [0.0, 1.0]}, probml.Exact())
        assert refusal.value.instead and set(refusal.value.instead) <= {"EM", "Laplace"}


def test_exact_refuses_an_unseen_class_beside_unknown_tables():
    for data in ({"colour": [0, 1]}, {"colour": [0, 1], "z": [nan, 1]}):
        with pytest.raises(probml.Refusal, match="'z'"):
            bayes_net().fit(data, probml.Exact())


def test_without_an_engine_the_first_that_can_is_taken():
    assert "Exact" in cases.coin().fit({"toss": [1, 0]}).engine
    assert "EM" in bayes_net().fit({"colour": [0, 1, 2, 0], "left": [1, 1, 0, 1]}).engine
    assert "Laplace" in uncoupled("lognormal").fit({"x": [0.0, 1.0, 4.0]}).engine


# A regression and a scale of its own for every class (conditional linear Gaussian)


@probml.model
def regressions(k: int, x):
    """y | class j, x ~ N(a_j + b_j x, 1/P_j), a_j, b_j | P_j ~ N(0, 9/P_j), P_j ~ Gamma(2, 1)."""
    precision = sample("precision", dist.Gamma(2.0, 1.0).expand([k]).to_event(1))
    intercept = sample("intercept", dist.Normal(0.0, 3 * precision**-0.5).to_event(1))
    slope = sample("slope", dist.Normal(0.0, 3 * precision**-0.5).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.full(k, 1 / k)))
        sample("y", dist.Normal(intercept[z] + slope[z] * x, precision[z] ** -0.5))


def class_evidence(x, y):
    """Evidence of one class's rows, and its posterior (precision matrix, mean, shape, rate): Murphy
    (2012), section 7.6.3."""
    design = np.stack([np.ones_like(x), x], 1)
    matrix = np.eye(2) / 9 + design.T @ design
    mean = np.linalg.solve(matrix, design.T @ y)
    shape, rate = 2 + len(x) / 2, 1 + 0.5 * (y @ y - mean @ matrix @ mean)
    evidence = -len(x) / 2 * np.log(2 * np.pi) - 0.5 * np.log(9**2 * np.linalg.det(matrix))
    evidence += special.gammaln(shape) - special.gammaln(2) - shape * np.log(rate)
    return evidence, matrix, mean, shape, rate


def test_a_regression_and_scale_for_each_class_is_exact():
    rng = np.random.default_rng(4)
    z, x = np.repeat([0, 1, 2], [9, 6, 1]), rng.normal(size=16)
    y = (np.array([1.0, -2, 0.5])[z] + np.array([2.0, 0, 1])[z] * x + np.array([0.1, 1, 3])[z]
         * rng.normal(size=16))
    fit = regressions(k=3).fit({"x": x, "y": y, "z": z}, probml.Exact())
    parts = [class_evidence(x[z == j], y[z == j]) for j in range(3)]
    np.testing.assert_allclose(fit.log_evidence,
                               sum(part[0] for part in parts) + 16 * np.log(1 / 3), rtol=1e-11)
    for j, (_, matrix, mean, shape, rate) in enumerate(parts):
        np.testing.assert_allclose([fit.params["intercept"][j], fit.params["slope"][j]], mean,
                                   atol=1e-10)
        np.testing.assert_allclose(fit.params["precision"][j], shape / rate, rtol=1e-9)
        covariance = np.linalg.inv(matrix) * rate / (shape - 1)
        np.testing.assert_allclose(fit.posterior("slope").variance[j], covariance[1, 1], rtol=1e-8)
        row, h = {"x": [0.7], "y": [1.3], "z": [j]}, np.array([1, 0.7])
        spread = np.sqrt(rate / shape * (1 + h @ np.linalg.solve(matrix, h)))
        expected = stats.t(2 * shape, h @ mean, spread).logpdf(1.3) + np.log(1 / 3)
        np.testing.assert_allclose(fit.log_prob(row), expected, rtol=1e-9)
    draws = fit.draws(20_000, seed=1)
    _, matrix, mean, shape, rate = parts[1]
    np.testing.assert_allclose(draws["slope"][:, 1].mean(), mean[1], atol=0.03)
    np.testing.assert_allclose(draws["slope"][:, 1].var(),
                               np.linalg.inv(matrix)[1, 1] * rate / (shape - 1), rtol=0.1)


@pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")
def test_values_whose_squares_overflow_are_named_be_they_observed_or_inputs():
    @probml.model
    def line(t):
        slope = sample("slope", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("y", dist.Normal(slope * t, 1.0))

    good, bad = np.linspace(0.0, 1.0, 9), np.where(np.arange(9) == 4, 1e200, 0.5)
    for data, name, other in (({"t": good, "y": bad}, "'y'", "'t'"),
                              ({"t": bad, "y": good}, "'t'", "'y'")):
        with pytest.raises(probml.Refusal, match="too large") as caught:
            line().fit(data, probml.Exact())
        assert name in str(caught.value) and other not in str(caught.value)
        assert "Laplace()" in str(caught.value)
