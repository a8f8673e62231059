"""Every density keeps its digits in float32 at every argument, as NumPyro's own inside mixtures and factors too.

A line of TABLE is a distribution by a size over 24 decades, values at quantiles, and its formula, computed in NumPy's
long double (18 digits).
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import factor, sample
from scipy import special, stats

import probml
from probml.families.densities.censored import accurate
from probml.families.likelihoods.binomial import of_trials
from probml.jaxpr.program import equations

LONG = np.longdouble
TIMES, CLOSE, QUANTILES = 200, 1e-3, np.array([0.01, 0.1, 0.5, 0.9, 0.99])[:, None]
SIZES = np.float32(10.0) ** np.linspace(-12, 12, TIMES).astype(np.float32)
Z = stats.norm.ppf(QUANTILES)
pytestmark = pytest.mark.skipif(np.finfo(LONG).nmant < 60, reason="long double is double here")


def lgamma(x):
    """log Γ by Stirling's series from 40 on, below by Γ(x + 40) / Π (x + i)."""
    x = LONG(x)
    less = sum(np.log(x + i) for i in range(40))
    z = np.where(x < 40, x + 40, x)
    terms = [LONG(1) / 12, -LONG(1) / 360, LONG(1) / 1260, -LONG(1) / 1680, LONG(1) / 1188, -LONG(691) / 360360]
    series = sum(term / z ** (2 * i + 1) for i, term in enumerate(terms))
    return (z - LONG(0.5)) * np.log(z) - z + np.log(2 * LONG(np.pi)) / 2 + series - np.where(x < 40, less, 0)


def lbeta(a, b):
    return lgamma(a) + lgamma(b) - lgamma(LONG(a) + LONG(b))


def choose(n, k):
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def xlogy(x, y):
    return np.where(x == 0, 0, x * np.log(np.where(x == 0, 1, y)))


def counts(mean, variance, most=2.0**23):
    """Whole numbers about a mean."""
    return np.clip(np.round(mean + Z * np.sqrt(variance)), 0, most)


def negative_binomial(k, c, m):
    return lgamma(c + k) - lgamma(c) - lgamma(k + 1) + c * np.log(c / (c + m)) + xlogy(k, m / (c + m))


def gamma(x, a, rate):
    return a * np.log(rate * x) - rate * x - lgamma(a) - np.log(x)


def student(x, df, loc, scale):
    return (lgamma((df + 1) / 2) - lgamma(df / 2) - np.log(df * LONG(np.pi)) / 2 - np.log(scale)
            - (df + 1) / 2 * np.log1p(((x - loc) / scale) ** 2 / df))


def beta(x, a, b):
    return (a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - lbeta(a, b)


def beta_binomial(k, n, a, b):
    return choose(n, k) + lbeta(a + k, b + n - k) - lbeta(a, b)


def wide(k, a, b, n):
    return lgamma(n + k) - lgamma(n) - lgamma(k + 1) + lbeta(a + k, b + n) - lbeta(a, b)


def folded(q):
    return -np.log1p(-q)


# name → (size → distribution, the values at quantiles, the formula (value, size) in long double)
TABLE = {
    "NegativeBinomial2": (lambda a: dist.NegativeBinomial2(7.5, a), lambda a: counts(7.5, 7.5 + 7.5**2 / a),
                          lambda k, a: negative_binomial(k, a, LONG(7.5))),
    "NegativeBinomial2 by mean": (lambda a: dist.NegativeBinomial2(a, 3.0), lambda a: counts(a, a + a**2 / 3),
                                  lambda k, a: negative_binomial(k, LONG(3), a)),
    "NegativeBinomialProbs": (lambda a: dist.NegativeBinomialProbs(a, 0.25), lambda a: counts(a / 3, a * 4 / 9),
                              lambda k, a: negative_binomial(k, a, a / 3)),
    "NegativeBinomialLogits": (lambda a: dist.NegativeBinomialLogits(a, -2.0),
                               lambda a: counts(a * np.exp(-2), a * np.exp(-2) * (1 + np.exp(-2))),
                               lambda k, a: negative_binomial(k, a, a * np.exp(-LONG(2)))),
    "GammaPoisson": (lambda a: dist.GammaPoisson(a, 2.0), lambda a: counts(a / 2, a * 0.75),
                     lambda k, a: negative_binomial(k, a, a / 2)),
    "ZeroInflatedNegativeBinomial2": (lambda a: dist.ZeroInflatedNegativeBinomial2(7.5, a, gate=0.25),
                                      lambda a: 1 + counts(7.5, 7.5 + 7.5**2 / a),
                                      lambda k, a: np.log(LONG(0.75)) + negative_binomial(k, a, LONG(7.5))),
    "BetaBinomial": (lambda a: dist.BetaBinomial(a, 2 * a, 50),
                     lambda a: np.clip(counts(50 / 3, 11 * (1 + 49 / (1 + 3 * a))), 0, 50),
                     lambda k, a: beta_binomial(k, LONG(50), a, 2 * a)),
    "Poisson": (lambda a: dist.Poisson(a), lambda a: counts(a, a), lambda k, a: xlogy(k, a) - a - lgamma(k + 1)),
    "ZeroInflatedPoisson": (lambda a: dist.ZeroInflatedPoisson(0.25, a), lambda a: 1 + counts(a, a),
                            lambda k, a: np.log(LONG(0.75)) + xlogy(k, a) - a - lgamma(k + 1)),
    "BinomialProbs": (lambda a: dist.BinomialProbs(0.25, jnp.ceil(a)), lambda a: np.clip(counts(
        np.ceil(a) / 4, np.ceil(a) * 0.1875), 0, np.ceil(a)), lambda k, a: choose(np.ceil(a), k) + k * np.log(
            LONG(0.25)) + (np.ceil(a) - k) * np.log(LONG(0.75))),
    "BinomialLogits": (lambda a: dist.BinomialLogits(jnp.log(a), 50), lambda a: np.clip(counts(
        50 * a / (1 + a), 50 * a / (1 + a) ** 2), 0, 50), lambda k, a: choose(LONG(50), k) + k * np.log(a)
            - 50 * np.log1p(a)),
    "Gamma": (lambda a: dist.Gamma(a, 0.7 * a), lambda a: special.gammaincinv(a, QUANTILES) / (np.float32(0.7) * a),
              lambda x, a: gamma(x, a, LONG(np.float32(0.7) * np.float32(a)))),
    "Chi2": (lambda a: dist.Chi2(a), lambda a: 2 * special.gammaincinv(a / 2, QUANTILES),
             lambda x, a: gamma(x, a / 2, LONG(0.5))),
    "InverseGamma": (lambda a: dist.InverseGamma(a, 3.0), lambda a: 3 / special.gammainccinv(a, QUANTILES),
                     lambda x, a: gamma(3 / x, a, LONG(1)) + np.log(3 / x) - np.log(x)),
    "Beta": (lambda a: dist.Beta(a, 2 * a), lambda a: special.betaincinv(a, 2 * a, QUANTILES),
             lambda x, a: beta(x, a, 2 * a)),
    "BetaProportion": (lambda a: dist.BetaProportion(0.25, a), lambda a: special.betaincinv(a / 4, a * 0.75, QUANTILES),
                       lambda x, a: beta(x, a / 4, a * LONG(0.75))),
    "StudentT": (lambda a: dist.StudentT(a, 0.7, 1.3), lambda a: 0.7 + 1.3 * special.stdtrit(a, QUANTILES),
                 lambda x, a: student(x, a, LONG(np.float32(0.7)), LONG(np.float32(1.3)))),
    "Weibull": (lambda a: dist.Weibull(3.7, a), lambda a: 3.7 * folded(QUANTILES) ** (1 / a),
                lambda x, a: np.log(a) - np.log(x) + a * np.log(x / LONG(np.float32(3.7)))
                - (x / LONG(np.float32(3.7))) ** a),
    "Pareto": (lambda a: dist.Pareto(3.7, a), lambda a: 3.7 * (1 - QUANTILES) ** (-1 / a),
               lambda x, a: np.log(a) - np.log(x) - a * np.log(x / LONG(np.float32(3.7)))),
    "VonMises": (lambda a: dist.VonMises(0.7, a), lambda a: 0.7 + np.clip(Z / np.sqrt(a), -2, 2),
                 lambda x, a: -2 * a * np.sin((x - LONG(np.float32(0.7))) / 2) ** 2 - np.log(
                     2 * LONG(np.pi) * special.i0e(np.float64(a)))),
    "Normal, right-censored": (lambda a: dist.RightCensoredDistribution(dist.Normal(0.0, 1.0), jnp.ones(TIMES)),
                               lambda a: np.minimum(a, 1e4) + 0 * Z, lambda x, a: special.log_ndtr(-np.float64(x))),
    "Weibull, right-censored": (lambda a: dist.RightCensoredDistribution(dist.Weibull(2.0, 1.5), jnp.ones(TIMES)),
                                lambda a: a * (1 + 0 * Z), lambda x, a: -((x / 2) ** LONG(1.5))),
    "Normal, interval-censored": (
        lambda a: dist.IntervalCensoredDistribution(dist.Normal(0.0, 1.0), jnp.zeros(TIMES), jnp.zeros(TIMES)),
        lambda a: np.stack(np.broadcast_arrays(2 + 3 * QUANTILES, 2.5 + 3 * QUANTILES + np.minimum(a, 9.0)), -1),
        lambda x, a: np.log(special.ndtr(-np.float64(x[..., 0])) - special.ndtr(-np.float64(x[..., 1])))),
}


def misses(name):
    """By how many nats float32 misses the formula, where it holds the value; and the gradient by the size."""
    make, values, formula = TABLE[name]
    with np.errstate(all="ignore"):
        x = np.asarray(values(SIZES.astype(float)), np.float32)
        shown = np.asarray(x, float)
        right = np.asarray(formula(LONG(x), LONG(SIZES)), float)
        flat = shown if shown.ndim == 2 else shown[..., 0]
        spread = np.abs(flat[-1] - flat[0]) / 4
        # what float32 cannot hold beside its spread, or is at an edge, is for double (dataset/checks/digits.py)
        held = np.isfinite(right) & (np.abs(flat) < (2.0**23 if (flat == np.round(flat)).all() else 1e36)) & ((np.abs(flat) > 1e-36) | (flat == np.round(flat)))
        if "censored" not in name and not (flat == np.round(flat)).all():
            held &= (np.spacing(np.abs(flat).astype(np.float32)) < 2e-4 * spread) & (flat != 0) & (flat != 1)

    def log(size, x):
        return make(size).log_prob(x)

    with jax.enable_x64(False), accurate(), np.errstate(all="ignore"):
        found, slope = jax.jit(lambda size, x: (log(size, x), jax.grad(lambda s: jnp.where(
            jnp.isfinite(log(s, x)), log(s, x), 0.0).sum())(size)))(jnp.asarray(SIZES), jnp.asarray(x))
    found, right = np.asarray(found, float), np.where(held, right, 0.0)
    off = np.where(held, np.abs(np.where(held, found, 0.0) - right) / (1 + 1e-2 * np.abs(right)), 0.0)
    return off, found, held, np.asarray(slope)


@pytest.mark.parametrize("name", TABLE)
def test_a_density_in_float32_has_the_digits_of_long_double(name):
    off, found, held, slope = misses(name)
    assert held.sum() > TIMES and off.max() < CLOSE, (off.max(), SIZES[off.max(0).argmax()])
    assert np.isfinite(slope[held.all(0)]).all()
    fn = TABLE[name][0](jnp.asarray(SIZES))
    if fn.support.is_discrete:
        assert found[held].max() <= 0.0


WRITTEN = {
    "site": lambda c, y: sample("y", dist.NegativeBinomial2(10.0, c)),
    "mixture of one kind": lambda c, y: sample("y", dist.MixtureSameFamily(
        dist.Categorical(probs=jnp.array([0.3, 0.7])), dist.NegativeBinomial2(10.0, jnp.stack([c, c], -1)))),
    "mixture of several": lambda c, y: sample("y", dist.MixtureGeneral(
        dist.Categorical(probs=jnp.array([0.3, 0.7])), [dist.NegativeBinomial2(10.0, c), dist.GammaPoisson(
            c, c / 10.0)])),
    "factor": lambda c, y: factor("f", dist.NegativeBinomial2(10.0, c).log_prob(y)),
}


@pytest.mark.parametrize("how", WRITTEN)
def test_large_concentrations_are_the_poisson_however_a_model_writes_them(how):
    if how == "factor":
        @probml.model
        def counted(c, y):
            sample("free", dist.Normal(0.0, 1.0))
            with probml.rows():
                WRITTEN[how](c, y)
    else:
        @probml.model
        def counted(c):
            with probml.rows():
                WRITTEN[how](c, None)

    y = np.array([3, 10, 14])
    with jax.enable_x64(False):
        check(counted, how, y)


def check(counted, how, y):
    for c in (1e3, 1e5, 1e7, 1e12):
        right = stats.poisson.logpmf(y, 10.0) if c > 1e9 else stats.nbinom.logpmf(y, c, c / (c + 10.0))
        rows = {"c": np.full(3, c), "y": y}
        if how == "factor":
            got = counted().log_density(rows, {"free": 0.0}) + 0.5 * np.log(2 * np.pi)
            assert abs(got - right.sum()) < CLOSE
        else:
            np.testing.assert_allclose(counted().at({}).log_prob(rows), right, atol=CLOSE)


def test_numpyro_is_as_it_was_after_a_model_has_run():
    held = dist.GammaPoisson.log_prob
    with accurate(), accurate():
        assert dist.GammaPoisson.log_prob is not held
    assert dist.GammaPoisson.log_prob is held and "log_prob" not in vars(dist.NegativeBinomial2)


@pytest.mark.parametrize("cells", [(), (1,), (3,)])
def test_successes_and_failures_of_a_binomial_have_no_axis_of_their_own(cells):
    def log(logits, n, x):
        return of_trials(dist.BinomialLogits(logits, n, validate_args=False), x)

    args = [np.full((7, *cells), value) for value in (0.3, 9, 4)]
    program = jax.make_jaxpr(jax.vmap(jax.grad(lambda *at: log(*at).sum())))(*args)
    axes = max(len(var.aval.shape) for eqn in equations(program) for var in eqn.outvars)
    assert axes == 1 + max(len(cells), 1)
    x = np.arange(5)[:, None]
    np.testing.assert_allclose(log(0.3, np.array([2, 9]), x), stats.binom.logpmf(
        x, [2, 9], 1 / (1 + np.exp(-0.3))), rtol=2e-5)
