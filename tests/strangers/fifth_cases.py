"""Posteriors of one or two numbers in shapes that mislead an optimum, by the default engine.

Far modes, edges that data move, rings, narrow peaks on wide feet, kinks. Oracle: NumPyro's own density on a
grid. Right: means within 0.2 posterior sd and sds within 15 %, or the fit says that it is not to be trusted.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import factor, plate, sample
from numpyro.infer.util import log_density

import probml
from first_cases import case

MEAN, SD, NOISE = 0.2, 0.15, 0.08  # the last: of 4,000 draws that may be worth few


def grid_moments(function, data, grids, inside):
    """(means, sds) of the sites on a grid: name → numbers."""
    names, axes = list(grids), np.meshgrid(*grids.values(), indexing="ij")
    points = {name: jnp.asarray(axis.ravel()) for name, axis in zip(names, axes, strict=True)}
    arguments = {name: jnp.asarray(value) for name, value in data.items()}
    log = np.asarray(jax.lax.map(lambda point: log_density(function, (), arguments, point)[0],
                                 points, batch_size=4096), float)
    values = np.stack([axis.ravel() for axis in axes])
    log = np.where(inside(*values), np.nan_to_num(log, nan=-np.inf), -np.inf)
    cell = np.prod(np.meshgrid(*map(np.gradient, grids.values()), indexing="ij"), axis=0).ravel()
    weight = np.exp(log - log.max()) * cell
    weight /= weight.sum()
    mean = values @ weight
    return mean, np.sqrt((values - mean[:, None]) ** 2 @ weight)


def held(function, data, inside=lambda *values: True, **grids):
    """The default answer has the moments of the grid, or says that it is not to be trusted.

    Args:
        inside: numbers of the sites → where outcomes are in their support, which NumPyro does not check.
    """
    data = {name: np.asarray(value) for name, value in data.items()}
    mean, sd = grid_moments(function, data, grids, inside)
    fit = probml.model(function)().fit(data, seed=0)
    drawn = fit.draws(4000, seed=0)
    own = np.stack([np.asarray(drawn[name], float) for name in grids])
    away = np.abs(own.mean(1) - mean) / sd
    ratio = own.std(1) / sd
    if fit.converged and not fit.warnings:
        assert (away < MEAN + NOISE).all() and (np.abs(ratio - 1) < SD + NOISE).all(), (
            f"means {own.mean(1)} of {mean}, sds {own.std(1)} of {sd}: {fit.status}")


def rng(seed):
    return np.random.default_rng([1130, seed])


@case("edge that data move × uniform outcome")
def edge_of_a_uniform():
    def waits(y):
        longest = sample("longest", dist.Pareto(1.0, 1.5))
        with plate("n", len(y)):
            sample("y", dist.Uniform(0.0, longest), obs=y)

    y = rng(1).uniform(0, 4, 8)
    held(waits, {"y": y}, lambda longest: longest >= y.max(), longest=np.linspace(1.0, 20, 40001))


@case("edge that data move × both ends")
def both_edges():
    def window(y):
        low = sample("low", dist.Normal(0.0, 5.0))
        wide = sample("wide", dist.Exponential(0.2))
        with plate("n", len(y)):
            sample("y", dist.Uniform(low, low + wide), obs=y)

    y = rng(2).uniform(-1, 2, 10)
    held(window, {"y": y}, lambda low, wide: (low <= y.min()) & (low + wide >= y.max()), low=np.linspace(-6, 2, 1601),
         wide=np.linspace(0.01, 12, 1601))


@case("shifted exponential × unknown start")
def shifted_exponential():
    def times(y):
        start = sample("start", dist.Uniform(0.0, 10.0))
        rate = sample("rate", dist.Gamma(2.0, 2.0))
        with plate("n", len(y)):
            factor("y", jnp.where(y >= start, jnp.log(rate) - rate * (y - start), -jnp.inf))

    held(times, {"y": 3 + rng(3).exponential(1.0, 12)}, start=np.linspace(0, 3.5, 1401),
         rate=np.linspace(0.01, 6, 1201))


@case("frequency of a wave × many modes")
def frequency():
    def wave(t, y):
        f = sample("f", dist.Uniform(0.5, 6.0))
        a = sample("a", dist.HalfNormal(2.0))
        sample("y", dist.Normal(a * jnp.sin(f * t), 1.0), obs=y)

    t = np.sort(rng(4).uniform(0, 8, 18))
    held(wave, {"t": t, "y": 0.9 * np.sin(2.7 * t) + rng(5).normal(size=18)},
         f=np.linspace(0.5, 6, 3001), a=np.linspace(0, 6, 301))


@case("ring × a distance alone is observed")
def ring():
    def place(d):
        x = sample("x", dist.Normal(0.0, 3.0))
        y = sample("y", dist.Normal(0.5, 3.0))
        sample("d", dist.Normal(jnp.sqrt(x**2 + y**2), 0.2), obs=d)

    held(place, {"d": np.array([2.0, 2.2, 1.9])}, x=np.linspace(-4, 4, 1601),
         y=np.linspace(-4, 4, 1601))


@case("narrow peak on a wide foot × prior of two scales")
def peak_on_a_foot():
    def effect(y):
        b = sample("b", dist.MixtureSameFamily(
            dist.Categorical(jnp.array([0.5, 0.5])), dist.Normal(jnp.zeros(2), jnp.array([0.02, 3.0]))))
        sample("y", dist.Normal(b, 1.0), obs=y)

    held(effect, {"y": np.array([0.9, 1.6, 0.2])}, b=np.linspace(-8, 8, 160001))


@case("two modes far apart × an outlier of equal weight")
def two_far_modes():
    def location(y):
        m = sample("m", dist.Normal(0.0, 20.0))
        with plate("n", len(y)):
            sample("y", dist.StudentT(2.0, m, 0.3), obs=y)

    held(location, {"y": np.array([-9.8, -10.1, -10.0, 7.0, 7.3, 7.1])},
         m=np.linspace(-40, 40, 80001))


@case("product of two numbers × one observed")
def product():
    def signal(y):
        a = sample("a", dist.Normal(0.0, 1.0))
        b = sample("b", dist.Normal(0.0, 1.0))
        sample("y", dist.Normal(a * b, 0.3), obs=y)

    held(signal, {"y": np.array([1.1, 0.8])}, a=np.linspace(-5, 5, 1501), b=np.linspace(-5, 5, 1501))


@case("funnel × a scale and one effect")
def funnel():
    def one(y):
        v = sample("v", dist.Normal(0.0, 2.0))
        x = sample("x", dist.Normal(0.0, jnp.exp(v)))
        sample("y", dist.Normal(x, 1.0), obs=y)

    held(one, {"y": np.array([0.3, -0.2])}, v=np.linspace(-9, 9, 2001),
         x=np.concatenate([-np.geomspace(30, 1e-5, 1500), np.geomspace(1e-5, 30, 1500)]))


@case("kink × double exponential outcomes, two of them")
def median_of_two():
    def middle(y):
        m = sample("m", dist.Normal(0.0, 10.0))
        with plate("n", len(y)):
            sample("y", dist.Laplace(m, 0.5), obs=y)

    held(middle, {"y": np.array([0.0, 6.0])}, m=np.linspace(-10, 16, 26001))


@case("step × a threshold that no derivative moves")
def threshold():
    def jump(x, y):
        c = sample("c", dist.Uniform(0.0, 10.0))
        h = sample("h", dist.Normal(0.0, 3.0))
        sample("y", dist.Normal(jnp.where(x > c, h, 0.0), 1.0), obs=y)

    x = np.arange(10) + 0.5
    held(jump, {"x": x, "y": 1.5 * (x > 6) + rng(6).normal(size=10)}, c=np.linspace(0, 10, 2001),
         h=np.linspace(-10, 10, 801))


@case("correlation near one × two rows")
def near_one():
    def both(x):
        r = sample("r", dist.Uniform(-1.0, 1.0))
        s = sample("s", dist.HalfCauchy(1.0))
        cov = s**2 * jnp.array([[1.0, r], [r, 1.0]])
        with plate("n", len(x)):
            sample("x", dist.MultivariateNormal(jnp.zeros(2), cov), obs=x)

    held(both, {"x": np.array([[1.0, 1.02], [-0.5, -0.52], [2.0, 2.05]])},
         r=1 - np.geomspace(2, 1e-7, 3001)[::-1], s=np.geomspace(0.05, 300, 1201))


@case("two bumps of one coefficient × factor by hand")
def bumps_by_factor():
    def bumps(y):
        a = sample("a", dist.Uniform(-5.0, 5.0))
        factor("bumps", jnp.logaddexp(jnp.log(0.8) - 0.5 * ((a + 3) / 0.8) ** 2 - jnp.log(0.8),
                                      jnp.log(0.2) - 0.5 * ((a - 2) / 0.05) ** 2 - jnp.log(0.05)))
        sample("y", dist.Normal(0.0, 1.0), obs=y)

    held(bumps, {"y": np.array([0.1, 0.2])}, a=np.linspace(-5, 5, 100001))


@case("exact zeros × shape of a Weibull below one, one row")
def one_weibull():
    def life(y):
        k = sample("k", dist.Exponential(1.0))
        s = sample("s", dist.Exponential(0.1))
        with plate("n", len(y)):
            sample("y", dist.Weibull(s, k), obs=y)

    held(life, {"y": np.array([4.2])}, k=np.linspace(1e-4, 14, 2001),
         s=np.geomspace(1e-4, 120, 2000))
