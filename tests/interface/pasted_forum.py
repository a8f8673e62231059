"""Models as NumPyro's tutorials and the questions of its forum have them: handlers, masks, truncation,
series, nested plates, on small data."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro import handlers, plate, sample
from numpyro.contrib.control_flow import cond, scan
from numpyro.contrib.hsgp.approximation import hsgp_squared_exponential
from numpyro.distributions import transforms
from numpyro.infer.reparam import CircularReparam, LocScaleReparam, ProjectedNormalReparam
from written_elsewhere import table

RNG = np.random.default_rng(14)
CASES, case = table()
N = 8
X, Y, B, C = (RNG.normal(size=(N, 2)), RNG.normal(size=N), RNG.integers(2, size=N),
              RNG.poisson(2.0, size=N))
G = np.arange(N) % 3


@case(y=Y, settings={"future": 2})
def local_trend_by_condition(y, future=0):
    """The tutorial on forecasting: what is seen stands around the scan."""
    smooth, sigma = sample("smoothing", dist.Beta(1, 1)), sample("sigma", dist.HalfNormal(1))
    slope = sample("slope", dist.Normal(0, 0.5))

    def step(carry, t):
        level, at = carry
        mu = level + slope
        now = sample("y", dist.Normal(mu, sigma))
        level = smooth * now + (1 - smooth) * mu
        return (level, at + 1), now

    with handlers.condition(data={"y": y[1:]}):
        _, ys = scan(step, (y[0], 0), jnp.arange(1, len(y)))
    numpyro.deterministic("last", ys[-1])


@case(y=np.cumsum(Y))
def level_with_drift_sites_outside(y):
    """The tutorial on hierarchical forecasting: drifts are sites of a plate, the scan adds them up."""
    n = len(y)
    drift_scale, sigma = sample("drift_scale", dist.HalfNormal(1)), sample("sigma", dist.HalfNormal(1))
    with plate("time", n):
        drift = sample("drift", dist.Normal(0, drift_scale))

    def move(level, d):
        level = level + d
        return level, level

    _, level = jax.lax.scan(move, jnp.zeros(()), drift)
    with plate("times", n):
        sample("y", dist.Normal(level, sigma), obs=y)


@case(y=RNG.normal(size=(6, 2)))
@handlers.reparam(config={"drift": LocScaleReparam(0)})
def series_in_a_plate_reparametrised(y):
    scale, sigma = sample("scale", dist.LogNormal(-2, 1)), sample("sigma", dist.LogNormal(-1, 1))
    with plate("series", 2, dim=-1):
        start = sample("start", dist.Normal(0, 2))
        with plate("time", len(y), dim=-2):
            drift = sample("drift", dist.Normal(0, scale))
    level = start + jnp.cumsum(drift, -2)
    with plate("series2", 2, dim=-1), plate("time2", len(y), dim=-2):
        sample("y", dist.Normal(level, sigma), obs=y)


@case(y=Y[:5])
def switching_autoregression(y):
    with plate("state", 2):
        a, s = sample("a", dist.Normal(0, 0.5)), sample("s", dist.HalfNormal(1))
        row = sample("row", dist.Dirichlet(jnp.ones(2)))

    def step(carry, now):
        z, before = carry
        z = sample("z", dist.Categorical(row[z]))
        sample("y", dist.Normal(a[z] * before, s[z]), obs=now)
        return (z, now), None

    scan(step, (0, 0.0), y)


@case(angle=RNG.uniform(-3, 3, size=6))
@handlers.reparam(config={"mu": CircularReparam()})
def mean_direction(angle):
    mu = sample("mu", dist.VonMises(0.0, 1.0))
    kappa = sample("kappa", dist.HalfNormal(2))
    sample("angle", dist.VonMises(mu, kappa), obs=angle)


@case(angle=RNG.uniform(-3, 3, size=6))
@handlers.reparam(config={"direction": ProjectedNormalReparam()})
def direction_by_a_projected_normal(angle):
    direction = sample("direction", dist.ProjectedNormal(jnp.zeros(2)))
    sample("angle", dist.VonMises(jnp.arctan2(direction[1], direction[0]), 3.0), obs=angle)


@case(y=Y, x=X[:, 0], other=Y[::-1].copy())
def submodels_in_scopes(x, y, other):
    def line(x, y):
        a, b = sample("a", dist.Normal(0, 1)), sample("b", dist.Normal(0, 1))
        s = sample("s", dist.HalfNormal(1))
        with plate("n", len(y)):
            sample("y", dist.Normal(a + b * x, s), obs=y)

    handlers.scope(line, prefix="first")(x, y)
    handlers.scope(line, prefix="second", divider=".")(x, other)


@case(x=X[:, 0], y=Y, plain={"size": None}, settings={"size": 3})
def batches_by_subsample(x, y, size):
    a, b = sample("a", dist.Normal(0, 1)), sample("b", dist.Normal(0, 1))
    with plate("N", len(x), subsample_size=size):
        batch_x = numpyro.subsample(x, event_dim=0)
        batch_y = numpyro.subsample(y, event_dim=0)
        sample("obs", dist.Normal(a + b * batch_x, 0.5), obs=batch_y)


@case(y=np.abs(Y) + 0.1, cut=0.1)
def truncated_below(y, cut):
    loc, scale = sample("loc", dist.Normal(0, 1)), sample("scale", dist.HalfNormal(1))
    with plate("n", len(y)):
        sample("y", dist.LeftTruncatedDistribution(dist.Normal(loc, scale), low=cut), obs=y)


@case(y=np.clip(Y, -1, 1))
def tobit_of_both_ends(y):
    mu, sigma = sample("mu", dist.Normal(0, 1)), sample("sigma", dist.HalfNormal(1))
    inside = (y > -1) & (y < 1)
    with handlers.mask(mask=inside):
        sample("y", dist.Normal(mu, sigma), obs=y)
    low = dist.Normal(mu, sigma).cdf(-1.0)
    numpyro.factor("low", (y == -1).sum() * jnp.log(low))
    numpyro.factor("high", (y == 1).sum() * jnp.log1p(-dist.Normal(mu, sigma).cdf(1.0)))


@case(time=np.array([1.0, 2.0, 3.0, 3.0]), alive=np.array([0, 0, 1, 1]))
def censored_right(time, alive):
    rate, k = sample("rate", dist.Gamma(2, 1)), sample("k", dist.LogNormal(0, 0.5))
    with plate("people", len(time)):
        sample("t", dist.RightCensoredDistribution(dist.Weibull(1 / rate, k), alive), obs=time)


@case(y=Y, sigma=np.full(N, 0.3))
def outliers_by_a_general_mixture(y, sigma):
    frac = sample("frac", dist.Beta(1, 5))
    mu, wide = sample("mu", dist.Normal(0, 1)), sample("wide", dist.HalfCauchy(2))
    mix = dist.Categorical(jnp.stack([1 - frac, frac]))
    with plate("n", len(y)):
        sample("y", dist.MixtureGeneral(mix, [dist.Normal(mu, sigma), dist.StudentT(3.0, mu, wide)]), obs=y)


@case(x=X[:, 0], y=B)
def classes_by_a_hilbert_space_process(x, y):
    amplitude, length = sample("amplitude", dist.HalfNormal(1)), sample("length", dist.InverseGamma(3, 2))
    f = hsgp_squared_exponential(x, alpha=amplitude, length=length, ell=3.0, m=4)
    sample("y", dist.Bernoulli(logits=f), obs=y)


@case(x=X[:6, 0], y=B[:6])
def process_of_classes(x, y):
    var, length = sample("var", dist.LogNormal(0, 1)), sample("length", dist.LogNormal(0, 1))
    k = var * jnp.exp(-0.5 * (x[:, None] - x) ** 2 / length**2) + 1e-6 * jnp.eye(len(x))
    eta = sample("eta", dist.Normal(0, 1).expand([len(x)]).to_event(1))
    f = numpyro.deterministic("f", jnp.linalg.cholesky(k) @ eta)
    sample("y", dist.Bernoulli(logits=f), obs=y)


@case(y=RNG.normal(size=(3, 4)))
def several_outcomes(y):
    """Correlated noise, ordered means."""
    sd = sample("sd", dist.HalfNormal(1).expand([4]).to_event(1))
    root = sample("root", dist.LKJCholesky(4, 2.0))
    mean = sample("mean", dist.TransformedDistribution(
        dist.Normal(0, 1).expand([4]).to_event(1), transforms.OrderedTransform()))
    with plate("n", len(y)):
        sample("y", dist.MultivariateNormal(mean, scale_tril=sd[:, None] * root), obs=y)


@case(counts=RNG.multinomial(9, [0.2, 0.3, 0.5], size=4), group=np.array([0, 0, 1, 1]))
def dirichlet_multinomial(counts, group):
    a = sample("a", dist.LogNormal(0, 1).expand([2, 3]).to_event(2))
    with plate("samples", len(counts)):
        sample("counts", dist.DirichletMultinomial(a[group], 9), obs=counts)


@case(y=RNG.integers(2, size=(5, 3)), settings={"k": 2})
def latent_classes(y, k):
    pi = sample("pi", dist.Dirichlet(jnp.ones(k)))
    with plate("item", y.shape[1], dim=-2), plate("class", k, dim=-1):
        p = sample("p", dist.Beta(1, 1))
    with plate("person", len(y)):
        c = sample("c", dist.Categorical(pi))
        sample("y", dist.Bernoulli(p[:, c].T).to_event(1), obs=y)


@case(y=RNG.normal(size=(2, 3, 2)))
def plates_of_plates_of_plates(y):
    mu = sample("mu", dist.Normal(0, 1))
    with plate("a", 2, dim=-3):
        a = sample("alpha", dist.Normal(mu, 1))
        with plate("b", 3, dim=-2):
            z = sample("z", dist.Bernoulli(0.3))
            with plate("c", 2, dim=-1):
                sample("y", dist.Normal(a + 2.0 * z, 1.0), obs=y)


@case(y=Y, x=X)
def means_by_nested_maps(x, y):
    w = sample("w", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    v = sample("v", dist.Normal(0, 1).expand([3]).to_event(1))

    def unit(own, column):
        return jnp.tanh(own @ column)

    layer = jax.vmap(jax.vmap(unit, in_axes=(None, 1)), in_axes=(0, None))(x, w)
    with plate("n", len(x)):
        sample("y", dist.Normal(layer @ v, 0.5), obs=y)


@case(y=Y)
def a_branch_by_cond(y):
    m = sample("m", dist.Normal(0, 1))

    def one(_):
        return sample("s", dist.HalfNormal(1.0))

    def other(_):
        return sample("s", dist.HalfNormal(3.0))

    s = cond(m > 0, one, other, None)
    sample("y", dist.Normal(m, s), obs=y)


@case(y=Y, adjacency=np.array([[0, 1, 0, 0], [1, 0, 1, 1], [0, 1, 0, 0], [0, 1, 0, 0]]))
def areas(y, adjacency):
    tau, rho = sample("tau", dist.Gamma(2, 2)), sample("rho", dist.Uniform(0, 0.99))
    phi = sample("phi", dist.CAR(0.0, rho, tau, adjacency))
    sample("y", dist.Normal(phi[jnp.arange(8) % 4], 0.5), obs=y)


@case(y=RNG.normal(size=(3, 2)))
def matrix_of_normals(y):
    row, column = (sample(name, dist.LKJCholesky(n, 1.0)) for name, n in (("row", 3), ("column", 2)))
    sample("y", dist.MatrixNormal(jnp.zeros((3, 2)), row, column), obs=y)


@case(y=np.where(np.arange(N) % 4 == 2, 0.0, Y), there=np.arange(N) % 4 != 2, x=X[:, 0])
def cells_under_a_mask(y, there, x):
    """What was not seen under handlers.mask, its mean a random walk of the rest."""
    s = sample("s", dist.HalfNormal(1))
    walk = sample("walk", dist.GaussianRandomWalk(s, num_steps=len(y)))
    with plate("n", len(y)), handlers.mask(mask=there):
        sample("y", dist.Normal(walk + x, 0.5), obs=y)


@case(y=Y, z=np.where(np.arange(N) < 5, B, 0), known=np.arange(N) < 5)
def states_known_in_part(y, z, known):
    """Semi-supervised: labels by obs_mask."""
    w, m = sample("w", dist.Beta(1, 1)), sample("m", dist.Normal(0, 1).expand([2]).to_event(1))
    with plate("n", len(y)):
        z = sample("z", dist.Bernoulli(w), obs=z, obs_mask=known)
        sample("y", dist.Normal(m[z], 1.0), obs=y)


@case(y=Y, words=np.array([0, 2, 1, 1, 0, 2, 2, 1]), doc=np.array([0, 0, 0, 1, 1, 1, 1, 1]))
def supervised_topics(y, words, doc):
    """Two documents with a score each, words one by one."""
    theta = sample("theta", dist.Dirichlet(jnp.ones(2)).expand([2]).to_event(1))
    phi = sample("phi", dist.Dirichlet(jnp.ones(3)).expand([2]).to_event(1))
    eta = sample("eta", dist.Normal(0, 1).expand([2]).to_event(1))
    with plate("words", len(words)):
        z = sample("z", dist.Categorical(theta[doc]))
        sample("w", dist.Categorical(phi[z]), obs=words)
    with plate("docs", 2):
        sample("score", dist.Normal(theta @ eta, 1.0), obs=y[:2])


@case(y=Y, settings={"k": 3})
def sticks(y, k):
    """A Dirichlet process mixed by hand, its sticks sites of a plate."""
    alpha = sample("alpha", dist.Gamma(1, 1))
    with plate("sticks", k - 1):
        beta = sample("beta", dist.Beta(1, alpha))
    with plate("components", k):
        m = sample("m", dist.Normal(0, 2))
    rest = jnp.concatenate([jnp.ones(1), jnp.cumprod(1 - beta)])
    w = jnp.pad(beta, (0, 1), constant_values=1) * rest
    with plate("n", len(y)):
        numpyro.factor("y", logsumexp(jnp.log(w) + dist.Normal(m, 0.5).log_prob(y[:, None]), -1))


@case(x=np.where(np.arange(N) % 3 == 1, np.nan, X[:, 0]), y=Y)
def cells_imputed_by_an_argument(x, y):
    """Gaps filled by sites of their own, by where."""
    mu, s = sample("mu", dist.Normal(0, 1)), sample("s", dist.HalfNormal(1))
    b = sample("b", dist.Normal(0, 1))
    gone = np.isnan(x)
    filled = sample("filled", dist.Normal(mu, s).expand([len(x)]))
    with handlers.mask(mask=~gone):
        sample("x", dist.Normal(mu, s), obs=jnp.nan_to_num(x))
    sample("y", dist.Normal(b * jnp.where(gone, filled, jnp.nan_to_num(x)), 1.0), obs=y)


# functions under handlers, each as a decorator


@case(y=Y)
@functools.partial(handlers.lift, prior={"mu": dist.Normal(0.0, 2.0)})
def a_lifted_param(y):
    sample("y", dist.Normal(numpyro.param("mu", 0.3), 1.0), obs=y)


@case(y=Y)
@functools.partial(handlers.block, hide=["aside"])
def a_hidden_likelihood(y):
    mu = sample("mu", dist.Normal(0.0, 2.0))
    sample("aside", dist.Normal(mu, 0.1), obs=3.0)
    sample("y", dist.Normal(mu, 1.0), obs=y)


@case(y=Y)
@functools.partial(handlers.do, data={"x": 0.7})
@functools.partial(handlers.condition, data={"z": 1.2})
def done_and_conditioned(y):
    x, z = sample("x", dist.Normal(0.0, 2.0)), sample("z", dist.Normal(0.0, 1.0))
    sample("y", dist.Normal(sample("b", dist.Normal(0, 1)) * x + z, 1.0), obs=y)


@case(y=Y)
@functools.partial(handlers.scale, scale=0.5)
@functools.partial(handlers.mask, mask=True)
def a_power_posterior(y):
    sample("y", dist.Normal(sample("mu", dist.Normal(0.0, 2.0)), 1.0), obs=y)


@case(y=Y)
@functools.partial(handlers.substitute, data={"s": 0.8})
def a_substituted_scale(y):
    s, mu = sample("s", dist.HalfNormal(1.0)), sample("mu", dist.Normal(0.0, 2.0))
    sample("y", dist.Normal(mu, s), obs=y)
