"""Masks together with what no other list has them with, and chances far out in a tail.

The first failed with an error of JAX's when it was written. Oracles: closed forms and sums over all states.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.stats as st
from jax.scipy.special import log_ndtr
from numpyro import deterministic, factor, handlers, plate, sample
from oracles_of_strangers import chain_sum, close, joint_states, log_sum
from scipy.special import gammaln

import probml
from first_cases import case

FARM = np.array([0, 1, 2, 0, 1, 2])
LEVEL = np.array([0.2, -0.4, 0.9])
OK = np.array([1, 0, 1, 1, 0, 1], bool)


@case("mask × Dirichlet in rows × totals that are inputs")
def masked_multinomial():
    @probml.model
    def meals(first, second, again):
        k = sample("k", dist.Gamma(2.0, 0.3))
        share = sample("share", dist.Dirichlet(jnp.ones(3)))
        with probml.rows():
            p = sample("p", dist.Dirichlet(k * share))
            sample("one", dist.Multinomial(first, p))
            with handlers.mask(mask=again):
                sample("two", dist.Multinomial(second, p))

    one = np.array([[3, 1, 0], [2, 2, 2], [0, 0, 5], [1, 0, 0], [4, 1, 1], [0, 3, 1]])
    two = np.array([[1, 1, 1], [9, 0, 0], [0, 2, 2], [3, 0, 1], [0, 7, 0], [1, 1, 0]])
    share = np.array([0.2, 0.3, 0.5])
    fit = meals().at({"k": 4.0, "share": share})
    data = {"first": one.sum(1), "second": two.sum(1), "again": OK, "one": one, "two": two}
    counted = np.where(OK[:, None], two, 0)

    def ways(counts):
        return gammaln(counts.sum(1) + 1) - gammaln(counts + 1).sum(1)

    def gammas(a):
        return gammaln(a).sum(-1) - gammaln(a.sum(-1))

    right = (ways(one) + np.where(OK, ways(two), 0) + gammas(4 * share + one + counted)
             - gammas(4 * share))
    close(fit.log_prob(data), right, "log_prob")


@case("mask × matrix parameter × effect of a group × deterministic")
def masked_vector():
    @probml.model
    def soils(farm, ok):
        with plate("farms", 3):
            level = sample("level", dist.Normal(0.0, 1.0))
        factor_of = sample("factor_of", dist.LKJCholesky(2, 2.0))
        with probml.rows(), handlers.mask(mask=ok):
            mean = deterministic("mean", level[farm][..., None] * jnp.array([1.0, 2.0]))
            sample("y", dist.MultivariateNormal(mean, scale_tril=factor_of))

    root = np.linalg.cholesky([[1.0, 0.6], [0.6, 1.0]])
    fit = soils().at({"level": LEVEL, "factor_of": root})
    y = np.arange(12.0).reshape(6, 2) / 5
    right = [st.multivariate_normal(m * np.array([1, 2]), root @ root.T).logpdf(row) * ok
             for m, row, ok in zip(LEVEL[FARM], y, OK, strict=True)]
    close(fit.log_prob({"farm": FARM, "ok": OK, "y": y}), right, "log_prob")


@case("mask × censored × effect of a group × deterministic")
def masked_survival():
    @probml.model
    def lives(farm, cut):
        with plate("farms", 3):
            level = sample("level", dist.Normal(0.0, 1.0))
        with probml.rows():
            mean = deterministic("mean", 0.5 + level[farm])
            with handlers.mask(mask=~cut):
                sample("time", dist.LogNormal(mean, 0.7))
            factor("alive", jnp.where(cut, log_ndtr((mean - np.log(3.0)) / 0.7), 0.0))

    time = np.array([1.0, 3.0, 2.0, 0.4, 3.0, 2.5])
    own = st.lognorm(0.7, scale=np.exp(0.5 + LEVEL[FARM]))
    fit = lives().at({"level": LEVEL})
    close(fit.log_prob({"farm": FARM, "cut": ~OK, "time": time}),
          np.where(OK, own.logpdf(time), own.logsf(3.0)), "log_prob")


@case("mask × Markov chain × effect of a group × inputs along time × missing steps")
def masked_chain_of_groups():
    initial, transition = np.array([0.6, 0.4]), np.array([[0.9, 0.1], [0.3, 0.7]])

    @probml.model
    def moods(farm, heat, ok):
        with plate("farms", 3):
            level = sample("level", dist.Normal(0.0, 1.0))
        with probml.rows():
            z = sample("z", probml.MarkovChain(jnp.array(initial), jnp.array(transition)))
            mean = jnp.array([0.0, 2.0])[z] + 0.5 * heat + level[farm][..., None]
            sample("y", dist.Normal(mean, 1.0).mask(ok).to_event(1))

    random = np.random.default_rng(5)
    heat, y, ok = random.normal(size=(6, 4)), random.normal(size=(6, 4)), random.random((6, 4)) < 0.7
    y[2, 1], y[~ok] = np.nan, 50.0
    mean = np.array([0.0, 2.0]) + (0.5 * heat + LEVEL[FARM][:, None])[..., None]
    there = ok & ~np.isnan(y)
    log = np.where(there[..., None], st.norm.logpdf(np.nan_to_num(y)[..., None], mean), 0.0)
    right = [chain_sum(each, initial, transition) for each in log]
    fit, data = moods().at({"level": LEVEL}), {"farm": FARM, "heat": heat, "ok": ok, "y": y}
    close(fit.log_prob(data), [each[0] for each in right], "log_prob")
    close(fit.predict_proba(data, "z"), [each[1] for each in right], "smoothing")


@case("mask × discrete outside rows × vector by a matrix × two outcomes")
def masked_columns():
    @probml.model
    def columns(x, ok):
        with plate("columns", 2):
            on = sample("on", dist.Bernoulli(0.3))
        slope = sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with probml.rows():
            mean = x @ (on * slope)
            with handlers.mask(mask=ok):
                sample("y", dist.Normal(mean, 1.0))
            sample("n", dist.Poisson(jnp.exp(mean)))

    x, slope = np.random.default_rng(6).normal(size=(6, 2)), np.array([0.8, -0.5])
    y, n = np.array([1.0, 77, -0.3, 0.2, -40, 0.9]), np.array([2, 0, 1, np.nan, 3, 1])
    log = []
    for on in joint_states(2, 2):
        mean = x @ (on * slope)
        count = np.where(np.isnan(n), 0, st.poisson(np.exp(mean)).logpmf(np.nan_to_num(n)))
        log.append(st.bernoulli(0.3).logpmf(on).sum() + st.norm.logpdf(y, mean)[OK].sum() + count.sum())
    got = columns().log_density({"x": x, "ok": OK, "y": y, "n": n}, {"slope": slope})
    close(got, log_sum(*log) + st.norm.logpdf(slope).sum(), "log density")


@case("an interval far out in a tail × effects × a pasted function")
def far_interval():
    """NumPyro's own log probability stands still where its cdf is 1."""
    def seeds(plot, cut, span=None):
        shape = sample("shape", dist.LogNormal(0.5, 0.5))
        with plate("plots", 3):
            scale = sample("scale", dist.LogNormal(0.0, 1.0))
        own = dist.Weibull(scale[plot], shape)
        with plate("n", 6):
            sample("span", dist.IntervalCensoredDistribution(own, jnp.zeros_like(cut), cut), obs=span)

    span = np.array([[0.0, 1], [5, 6], [2, 3], [6, 50], [9, 10], [1, 2]])
    scale, cut = np.array([1.0, 1.5, 0.7]), np.array([0, 0, 0, 1, 0, 0])
    below, above = (-((end / scale[FARM]) ** 2.3) for end in span.T)
    right = np.where(cut == 1, below, below + np.log(-np.expm1(above - below))).sum()
    right += st.lognorm(0.5, scale=np.exp(0.5)).logpdf(2.3) + st.lognorm(1.0).logpdf(scale).sum()
    with jax.enable_x64(True):
        got = probml.model(seeds)().log_density({"plot": FARM, "cut": cut, "span": span},
                                               {"shape": 2.3, "scale": scale})
    close(got, right, "log density", rtol=1e-6)
