"""Densities far out in float32: truncated normals far from their middle against integrals in more digits, Student's t
of many degrees of freedom, and fits that NumPyro's density would send to infinity."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from scipy import integrate, stats

import probml
from probml.families import registry

ENDS = [(-1.0, None), (None, 1.5), (-1.0, 1.5), (0.0, 20.0), (-1.0, -0.5)]
MIDDLES = np.array([-1e3, -31.0, -6.1, -0.5, 0.2, 1.6, 9.0, 1e3])


def sums(loc, scale, low, high):
    """log of the integral of exp(−(x − loc)²/2 scale²) less its greatest, mean and sd, by a fine grid."""
    low, high = -np.inf if low is None else low, np.inf if high is None else high
    top = np.clip(loc, low, high)
    reach = min(12 * scale, 60 * scale**2 / max(abs(loc - top), 1e-300))
    x = np.linspace(max(low, top - reach), min(high, top + reach), 200_001)
    # (top − loc)² − (x − loc)² without the difference of two large ones
    weight = np.exp((top - x) * (x + top - 2 * loc) / (2 * scale**2))
    weight[[0, -1]] *= 0.5
    weight *= x[1] - x[0]
    mean = weight @ x / weight.sum()
    return top, np.log(weight.sum()), mean, np.sqrt(weight @ (x - mean) ** 2 / weight.sum())


def every():
    """All ends beside all middles, each (ends, middles)."""
    low, high = (np.array([[end] for end in ends], float) for ends in
                 zip(*((-np.inf if a is None else a, np.inf if b is None else b) for a, b in ENDS), strict=True))
    return low, high, np.array([[sums(loc, 1.0, *ends) for loc in MIDDLES] for ends in ENDS])


def between(loc, scale, pair):
    return registry.sharp(dist.TruncatedNormal(loc, scale, low=pair[0], high=pair[1]))


def test_density_and_moments_are_those_of_integrals_however_far_the_middle():
    low, high, right = every()
    top, log, mean, sd = np.moveaxis(right, -1, 0)
    x = mean + 0.1 * sd
    wanted = (top - x) * (x + top - 2 * MIDDLES) / 2 - log

    def look(loc, scale, x):
        def log_prob(loc, scale, i):
            return between(loc, scale, ENDS[i]).log_prob(x[i])

        made = [between(loc, scale, pair) for pair in ENDS]
        slopes = [jax.grad(lambda *at, i=i: log_prob(*at, i).sum(), (0, 1))(loc, scale) for i in range(len(ENDS))]
        return (jnp.stack([log_prob(loc, scale, i) for i in range(len(ENDS))]),
                jnp.stack([one.mean for one in made]), jnp.stack([one.variance for one in made]), slopes)

    for double, close in ((True, 1e-7), (False, 2e-4)):
        with jax.enable_x64(double):
            logs, means, variances, slopes = jax.jit(look)(*(jnp.asarray(a, float) for a in (
                MIDDLES, np.ones(len(MIDDLES)), x)))
            far = slice(None) if double else slice(1, -1)  # a middle 1000 away leaves float32 no digits
            at = np.s_[:, far]
            np.testing.assert_allclose(logs[at], wanted[at], rtol=10 * close, atol=close)
            # in float32 an end itself has no more digits
            np.testing.assert_allclose(((means - mean) / sd)[at], 0.0, atol=close if double else 3e-3)
            np.testing.assert_allclose(jnp.sqrt(variances)[at], sd[at], rtol=close if double else 2e-3)
            assert all(np.isfinite(slope).all() for slope in jax.tree.leaves(slopes))


def test_draws_lie_between_the_ends_and_have_the_mean():
    low, high, right = every()
    loc = jnp.asarray(MIDDLES, float)

    def draw(key):
        return jnp.stack([registry.sharp(dist.TruncatedNormal(loc, 1.0, low=a, high=b).expand(
            [3, len(MIDDLES)]).to_event(1)).sample(key, (4000,)) for a, b in ENDS])

    drawn = np.asarray(jax.jit(draw)(jax.random.key(0)), float)
    assert drawn.shape == (len(ENDS), 4000, 3, len(MIDDLES))
    assert (drawn >= low[:, :, None, None]).all() and (drawn <= high[:, :, None, None]).all()
    mean, sd = right[..., 2], right[..., 3]
    off = np.abs(drawn.mean((1, 2)) - mean)
    assert (off < 5 * sd / np.sqrt(12000) + 1e-7 * (1 + np.abs(mean))).all()


KINDS = {"Laplace": lambda z: -np.abs(z), "Cauchy": lambda z: -np.log1p(z**2),
         "Logistic": lambda z: -np.abs(z) - 2 * np.log1p(np.exp(-np.abs(z)))}
PLACES = [(2.0, 5.0), (0.5, np.inf), (-1.0, 3.0), (-np.inf, 0.7), (-np.inf, -4.0), (1e-3, 2e-3), (300.0, np.inf),
          (-400.0, -300.0), (2e4, 2.001e4), (-1e-4, 1e-4), (0.0, 1.0)]


def cut(kind, low, high, loc=0.0, scale=1.0):
    ends = (None if np.isinf(low) else low, None if np.isinf(high) else high)
    return registry.sharp(dist.TruncatedDistribution(getattr(dist, kind)(loc, scale), *ends))


@pytest.mark.parametrize("kind", KINDS)
def test_other_truncated_distributions_are_theirs_however_far_the_middle(kind):
    height = KINDS[kind]

    def log_of(low, high, x):
        """log p by a sum over a grid that is fine where the density is; ends and x are as in double."""
        near = low if low > 0 else high if high < 0 else 0.0

        def grown(u):
            return np.exp(height(near + u) - height(near))

        parts = [integrate.quad(grown, a, b, limit=500, epsabs=0.0, epsrel=1e-10)[0] for a, b in
                 itertools.pairwise(sorted({low - near, high - near, *(
                     u for u in (-30.0, -1.0, 0.0, 1.0, 30.0) if low - near < u < high - near)}))]
        return height(x) - height(near) - np.log(sum(parts))

    for low, high in PLACES:
        start = low if np.isfinite(low) else high - 3.0 if np.isfinite(high) else -1.0
        x = start + 0.3 * min(high - start, 3.0)
        wanted = log_of(low, high, x)

        def density(loc, scale, low=low, high=high, x=x):
            return cut(kind, low, high, loc, scale).log_prob(x)

        for double, close in ((True, 1e-9), (False, 2e-6)):
            with jax.enable_x64(double):
                found, slopes = jax.jit(jax.value_and_grad(density, (0, 1)))(0.0, 1.0)
                # of ends at 1e4, whole numbers and their tenths
                near = abs(low) > 1e3 and not double
                np.testing.assert_allclose(found, wanted, rtol=close, atol=5e-3 if near else 5 * close if double else 5e-4)
                assert np.isfinite(slopes).all()


@pytest.mark.parametrize("kind", KINDS)
def test_their_draws_are_quantiles_of_the_density(kind):
    for low, high in PLACES:
        with jax.enable_x64():
            made = cut(kind, low, high, 0.3, 2.0)
            q = jnp.linspace(0.02, 0.98, 25)
            x = made.icdf(q)
            assert (x >= low).all() and (x <= high).all() and (jnp.diff(x) > 0).all()
            # the slope of a quantile is one over the density
            np.testing.assert_allclose(jax.vmap(jax.grad(made.icdf))(q), jnp.exp(-made.log_prob(x)), rtol=1e-6)
        drawn = cut(kind, low, high, 0.3, 2.0).sample(jax.random.key(0), (1000,))
        assert ((drawn >= np.float32(low)) & (drawn <= np.float32(high))).all()


def test_a_fit_of_what_falls_off_from_an_end_stays_where_the_density_is_finite():
    @probml.model
    def lives():
        loc = sample("loc", dist.Normal(0.0, 20.0))
        scale = sample("scale", dist.HalfNormal(20.0))
        with probml.rows():
            sample("x", dist.TruncatedNormal(loc, scale, low=0.0, high=20.0))

    x = np.random.default_rng(0).exponential(size=200)
    fit = lives().fit({"x": x}, probml.MAP())
    assert fit.converged and "several" not in fit.status and np.isfinite(fit.log_joint({"x": x}))
    far = lives().at({"loc": -60.0, "scale": 7.8})
    logs = np.asarray(far.log_prob({"x": x}))
    rate = 60.0 / 7.8**2  # nearly an exponential
    np.testing.assert_allclose(logs, np.log(rate) - rate * x - x**2 / (2 * 7.8**2), atol=0.03)
    drawn = far.simulate(rows=2000, seed=0)["x"]
    assert 0 <= drawn.min() and drawn.max() <= 20.0 and abs(drawn.mean() - 1 / rate) < 0.1
    assert abs(float(np.mean(far.impute({"x": [np.nan, 1.0]})["x"][0])) - 1 / rate) < 0.05


def test_students_t_of_many_degrees_is_the_normal_in_float32_too():
    @probml.model
    def heavy(df):
        with probml.rows():
            sample("x", dist.StudentT(df, 0.2, 1.3))
            sample("y", dist.MultivariateStudentT(df, jnp.zeros(3), 2.0 * jnp.eye(3)))

    x, y = np.array([1.7, -6.0]), np.array([[1.0, 2.0, -1.0], [0.0, 9.0, 0.1]])
    for df in (3.0, 20.0, 1e3, 1e6, 1e9):
        wanted = stats.t.logpdf(x, df, 0.2, 1.3) + stats.multivariate_t.logpdf(y, np.zeros(3), 4 * np.eye(3), df)
        if df > 1e5:  # where SciPy's have lost digits as well
            normal = stats.norm.logpdf(x, 0.2, 1.3) + stats.multivariate_normal.logpdf(y, np.zeros(3), 4 * np.eye(3))
            np.testing.assert_allclose(wanted, normal, atol=1e-2)
            wanted = normal
        np.testing.assert_allclose(heavy(df=df).at({}).log_prob({"x": x, "y": y}), wanted, atol=3e-4 if df > 1e5
                                   else 2e-5)


def test_a_beta_binomial_of_large_concentrations_is_the_binomial_in_float32_too():
    @probml.model
    def clumped(a, b):
        with probml.rows():
            sample("k", dist.BetaBinomial(a, b, total_count=50))

    k = np.array([0, 3, 31, 50])
    for a, b in ((0.4, 2.0), (30.0, 20.0), (3e4, 2e4), (3e7, 2e7)):
        wanted = stats.betabinom.logpmf(k, 50, a, b) if a < 1e6 else stats.binom.logpmf(k, 50, 0.6)
        np.testing.assert_allclose(clumped(a=a, b=b).at({}).log_prob({"k": k}), wanted, rtol=2e-5, atol=5e-4)


PARTS = np.array([0.2, 0.3, 0.5])


@probml.model
def amounts(a):
    rate = sample("rate", dist.Gamma(2.0, 2.0))
    with probml.rows():
        sample("x", dist.Gamma(a, a * rate))


@probml.model
def slopes(z, a):
    slope = sample("slope", dist.Normal(0.0, 1.0))
    with probml.rows():
        share = jax.nn.sigmoid(slope * z)
        sample("amount", dist.Gamma(a, a / share))
        sample("inverse", dist.InverseGamma(a, a * share))
        sample("share", dist.Beta(a * share, a * (1 - share)))
        sample("parts", dist.Dirichlet(jnp.broadcast_to(a * PARTS, (3,))))


@pytest.mark.parametrize("a", [0.3, 7.0, 9.0, 1e3, 1e5, 1e7])
def test_large_concentrations_keep_their_digits_in_float32(a):
    random, n = np.random.default_rng(0), 40
    z = random.normal(size=n).astype(np.float32)
    share = 1 / (1 + np.exp(-0.5 * z.astype(float)))
    drawn = {"amount": random.gamma(a, share / a), "inverse": a * share / random.gamma(a, size=n),
             "share": random.beta(a * share, a * (1 - share)).clip(1e-6, 1 - 1e-6),
             "parts": random.dirichlet(a * PARTS, n).clip(1e-6)}
    x = {name: column.astype(np.float32) for name, column in drawn.items()}
    exact = {name: column.astype(float) for name, column in x.items()}
    exact["parts"] /= exact["parts"].sum(1, keepdims=True)
    wanted = {"amount": stats.gamma(a, scale=share / a).logpdf(exact["amount"]),
              "inverse": stats.invgamma(a, scale=a * share).logpdf(exact["inverse"]),
              "share": stats.beta(a * share, a * (1 - share)).logpdf(exact["share"]),
              "parts": np.array([stats.dirichlet(a * PARTS).logpdf(row) for row in exact["parts"]])}
    fit = slopes(a=a).at({"slope": 0.5})
    for name, right in wanted.items():
        got = fit.log_prob({name: x[name], "z": z})
        np.testing.assert_allclose(got, right, rtol=1e-3, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("rows", [1, 50])
def test_pooled_amounts_of_large_concentration_are_told_in_double(rows):
    for a in (1e4, 1e7):
        x = np.random.default_rng(1).gamma(a, 0.5 / a, size=rows).astype(np.float32)
        right = stats.gamma(a, scale=0.5 / a).logpdf(x.astype(float))
        np.testing.assert_allclose(amounts(a=a).at({"rate": 2.0}).log_prob({"x": x}), right, rtol=1e-4, atol=1e-4)
    fit = amounts(a=1e7).fit({"x": x}, probml.MAP())
    assert rows == 1 or abs(float(fit.params["rate"]) * x.mean() - 1) < 1e-5
