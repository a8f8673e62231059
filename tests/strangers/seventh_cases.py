"""Distributions that no other list uses, and latent numbers that two observed ones of a row share,
each with groups and missing cells. Written before any of them was run. Oracles: closed forms.
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.stats as st
from numpyro import plate, sample
from oracles_of_strangers import close
from scipy.special import betaln, gammaln

import probml
from first_cases import case

FARM = np.array([0, 1, 2, 0, 1, 2])
LEVEL = np.array([0.2, -0.4, 0.9])


@case("negative binomial behind a hurdle × groups × exposure × a missing count")
def hurdle_of_groups():
    @probml.model
    def ticks(farm, hours):
        gate = sample("gate", dist.Beta(2.0, 2.0))
        phi = sample("phi", dist.Exponential(0.5))
        with plate("farms", 3):
            level = sample("level", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("ticks", dist.HurdleNegativeBinomial2(gate, hours * jnp.exp(level[farm]), phi))

    hours, count = np.array([1.0, 2, 0.5, 1, 3, 1]), np.array([0, 3, 1, np.nan, 0, 7])
    fit = ticks().at({"gate": 0.3, "phi": 2.0, "level": LEVEL})
    mean = hours * np.exp(LEVEL[FARM])
    own = st.nbinom(2.0, 2 / (2 + mean))
    there = np.nan_to_num(count)
    right = np.where(there == 0, np.log(0.3), np.log(0.7) + own.logpmf(there) - np.log1p(-own.pmf(0)))
    data = {"farm": FARM, "hours": hours, "ticks": count}
    close(fit.log_prob(data), np.where(np.isnan(count), 0.0, right), "log_prob")
    close(fit.predict({"farm": FARM, "hours": hours}, "ticks"), 0.7 * mean / (1 - own.pmf(0)), "mean")
    close(fit.impute(data)["ticks"][3], (0.7 * mean / (1 - own.pmf(0)))[3], "imputed")


@case("two counts share a gamma rate whose mean is of the group × either missing")
def shared_gamma():
    @probml.model
    def flies(farm):
        k = sample("k", dist.LogNormal(1.0, 0.5))
        with plate("farms", 3):
            level = sample("level", dist.Normal(0.0, 1.0))
        with probml.rows():
            rate = sample("rate", dist.Gamma(k, k / jnp.exp(level[farm])))
            sample("one", dist.Poisson(rate))
            sample("two", dist.Poisson(2.0 * rate))

    one, two = np.array([1, np.nan, 4, 0, np.nan, 2]), np.array([3, 2, np.nan, 1, np.nan, 9])
    fit = flies().at({"k": 2.5, "level": LEVEL})
    b, y, z = 2.5 / np.exp(LEVEL[FARM]), np.nan_to_num(one), np.nan_to_num(two)
    n, time = y + z, ~np.isnan(one) + 2.0 * ~np.isnan(two)
    right = (2.5 * np.log(b) - gammaln(2.5) + gammaln(2.5 + n) - (2.5 + n) * np.log(b + time)
             - gammaln(y + 1) - gammaln(z + 1) + z * np.log(2))
    data = {"farm": FARM, "one": one, "two": two}
    close(fit.log_prob(data), right, "log_prob")
    rate = (2.5 + n) / (b + time)
    close(fit.conditional(data, "rate").mean, rate, "rate given the counts")
    got = fit.impute(data)
    close(got["one"], np.where(np.isnan(one), rate, one), "one")
    close(got["two"], np.where(np.isnan(two), 2 * rate, two), "two")


@case("two binomials share a beta probability whose mean is of the group × one missing")
def shared_beta():
    @probml.model
    def eggs(farm):
        k = sample("k", dist.Gamma(3.0, 0.5))
        with plate("farms", 3):
            q = sample("q", dist.Beta(2.0, 2.0))
        with probml.rows():
            p = sample("p", dist.Beta(k * q[farm], k * (1 - q[farm])))
            sample("one", dist.Binomial(8, p))
            sample("two", dist.Binomial(6, p))

    one, two, q = np.array([1, np.nan, 8, 0, 5, 2]), np.array([3, 2, 6, 1, 0, 4]), np.array([0.2, 0.5, 0.7])
    fit = eggs().at({"k": 4.0, "q": q})
    a, b = 4 * q[FARM], 4 * (1 - q[FARM])
    y, there = np.nan_to_num(one), ~np.isnan(one)
    more, less = two + y, 6 - two + np.where(there, 8 - y, 0)
    right = betaln(a + more, b + less) - betaln(a, b) + sum(
        gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) for n, k in ((8.0 * there, y), (6.0, two)))
    data = {"farm": FARM, "one": one, "two": two}
    close(fit.log_prob(data), right, "log_prob")
    close(fit.impute(data)["one"][1], 8 * ((a + more) / (a + b + more + less))[1], "one", atol=5e-3)
