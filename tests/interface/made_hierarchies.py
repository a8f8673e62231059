"""Hierarchies that were thought up to be mistaken for something with a joint mode, and models like
them that have one, written for NumPyro on small data that they themselves could have made."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import expit, gammaln
from numpyro import handlers, plate, sample
from numpyro.contrib.control_flow import scan
from written_elsewhere import table

RNG = np.random.default_rng(19)
CASES, case = table()
N = 40
G = np.arange(N) % 8
X = RNG.normal(size=N)
EFFECT = RNG.normal(size=8)
Y = 1.0 + 0.7 * EFFECT[G] + 0.5 * X + 0.4 * RNG.normal(size=N)
TWO = (RNG.random(N) < expit(0.3 + EFFECT[G] + X)).astype(int)
COUNTS = RNG.poisson(np.exp(0.8 + 0.5 * EFFECT[G]))
WALK = np.cumsum(0.3 * RNG.normal(size=N))
SEEN = WALK + 0.4 * RNG.normal(size=N)
grouped = {"g": G, "y": Y}


@case(g=G, x=X, y=Y)
def slopes_with_a_correlation(g, x, y):
    mean = sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
    sd = sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    root, noise = sample("root", dist.LKJCholesky(2, 2.0)), sample("noise", dist.HalfNormal(1))
    with plate("groups", 8):
        b = sample("b", dist.MultivariateNormal(mean, scale_tril=sd[:, None] * root))
    sample("y", dist.Normal(b[g, 0] + b[g, 1] * x, noise), obs=y)


@case(g=G, x=X, y=TWO)
def slopes_of_two_classes_by_a_precision(g, x, y):
    mean = sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
    precision = sample("precision", dist.Wishart(4.0, jnp.eye(2)))
    with plate("groups", 8):
        b = sample("b", dist.MultivariateNormal(mean, precision_matrix=precision))
    with plate("n", len(y)):
        sample("y", dist.Bernoulli(logits=b[g, 0] + b[g, 1] * x), obs=y)


@case(**grouped)
def uncentred_by_softplus(g, y):
    a, t, noise = sample("a", dist.Normal(0, 2)), sample("t", dist.Normal(0, 1)), sample("noise", dist.HalfNormal(1))
    z = sample("z", dist.Normal(0, 1).expand([8]))
    sample("y", dist.Normal(a + jax.nn.softplus(t) * z[g], noise), obs=y)


@case(**grouped)
def uncentred_by_a_logarithm(g, y):
    a, log_sd = sample("a", dist.Normal(0, 2)), sample("log_sd", dist.Normal(-1, 1))
    noise = sample("noise", dist.HalfNormal(1))
    with plate("groups", 8):
        z = sample("z", dist.Normal(0, 1))
    effect = numpyro.deterministic("effect", a + jnp.exp(log_sd) * z)
    with plate("n", len(y)):
        sample("y", dist.Normal(effect[g], noise), obs=y)


@case(**grouped)
def centred_by_a_precision(g, y):
    a, tau, noise = sample("a", dist.Normal(0, 2)), sample("tau", dist.Gamma(2, 1)), sample("noise", dist.Gamma(2, 1))
    with plate("groups", 8):
        b = sample("b", dist.Normal(a, 1 / jnp.sqrt(tau)))
    sample("y", dist.Normal(b[g], jax.lax.rsqrt(noise)), obs=y)


@case(g=G, y=COUNTS)
def a_prior_by_a_factor(g, y):
    """The effects' density is written by hand, with a factor."""
    a, sd = sample("a", dist.Normal(0, 2)), sample("sd", dist.HalfNormal(1))
    b = sample("b", dist.ImproperUniform(dist.constraints.real, (), (8,)))
    numpyro.factor("prior", (-0.5 * (b / sd) ** 2 - jnp.log(sd)).sum())
    sample("y", dist.Poisson(jnp.exp(a + b[g])), obs=y)


@case(x=RNG.normal(size=(N, 6)), y=Y)
def finnish_horseshoe(x, y):
    tau, noise = sample("tau", dist.HalfCauchy(0.3)), sample("noise", dist.HalfNormal(1))
    lam, c2 = sample("lam", dist.HalfCauchy(1).expand([6])), sample("c2", dist.InverseGamma(2, 4))
    wide = jnp.sqrt(c2) * lam / jnp.sqrt(c2 + tau**2 * lam**2)
    b = sample("b", dist.Normal(0, 1).expand([6])) * tau * wide
    sample("y", dist.Normal(x @ b, noise), obs=y)


@case(x=RNG.normal(size=(N, 6)), y=Y)
def relaxed_spikes(x, y):
    """Inclusion by a logistic of a normal, the slab's width unseen."""
    slab, noise = sample("slab", dist.HalfNormal(2)), sample("noise", dist.HalfNormal(1))
    with plate("columns", 6):
        inside, z = sample("inside", dist.Normal(-1, 2)), sample("z", dist.Normal(0, 1))
    sample("y", dist.Normal(x @ (expit(inside) * slab * z), noise), obs=y)


@case(y=SEEN)
def autoregression_of_a_state_in_a_loop(y):
    phi, sd, noise = sample("phi", dist.Uniform(-1, 1)), sample("sd", dist.HalfNormal(1)), sample("noise", dist.HalfNormal(1))
    x = sample("x_0", dist.Normal(0, 1))
    sample("y_0", dist.Normal(x, noise), obs=y[0])
    for t in range(1, 12):
        x = sample(f"x_{t}", dist.Normal(phi * x, sd))
        sample(f"y_{t}", dist.Normal(x, noise), obs=y[t])


@case(y=SEEN)
def innovations_summed_up(y):
    sd, noise = sample("sd", dist.HalfNormal(1)), sample("noise", dist.HalfNormal(1))
    e = sample("e", dist.Normal(0, 1).expand([len(y)]))
    sample("y", dist.Normal(sd * jnp.cumsum(e), noise), obs=y)


@case(y=SEEN)
def innovations_through_a_recursion(y):
    """AR(1) of standard innovations by jax.lax.scan, their scale outside."""
    phi, sd, noise = sample("phi", dist.Uniform(0, 1)), sample("sd", dist.HalfNormal(1)), sample("noise", dist.HalfNormal(1))
    e = sample("e", dist.Normal(0, 1).expand([len(y)]))
    _, x = jax.lax.scan(lambda x, e: (phi * x + sd * e,) * 2, 0.0, e)
    sample("y", dist.Normal(x, noise), obs=y)


@case(y=RNG.poisson(np.exp(WALK)))
def counts_of_a_walk_by_scan(y):
    sd = sample("sd", dist.HalfNormal(1))

    def step(x, now):
        x = sample("x", dist.Normal(x, sd))
        sample("y", dist.Poisson(jnp.exp(x)), obs=now)
        return x, None

    scan(step, 0.0, y)


TRUE = RNG.normal(size=N)


@case(x=TRUE + 0.5 * RNG.normal(size=N), y=1 + 2 * TRUE + 0.3 * RNG.normal(size=N))
def errors_of_unknown_size(x, y):
    """The covariate's own spread is 1, the size of its error is not known."""
    a, b, error, noise = (sample("a", dist.Normal(0, 2)), sample("b", dist.Normal(0, 2)),
                          sample("error", dist.HalfNormal(1)), sample("noise", dist.HalfNormal(1)))
    with plate("n", len(x)):
        true = sample("true", dist.Normal(0, 1))
        sample("x", dist.Normal(true, error), obs=x)
        sample("y", dist.Normal(a + b * true, noise), obs=y)


@case(x=TRUE + 0.5 * RNG.normal(size=N), y=(RNG.random(N) < expit(2 * TRUE)).astype(int))
def errors_of_known_size(x, y):
    """Only the slope is shared, and no scale is unseen."""
    b = sample("b", dist.Normal(0, 2))
    true = sample("true", dist.Normal(0, 1).expand([len(x)]))
    sample("x", dist.Normal(true, 0.5), obs=x)
    sample("y", dist.Bernoulli(logits=b * true), obs=y)


LOADINGS = RNG.normal(size=(2, 5))


@case(y=RNG.normal(size=(20, 2)) @ LOADINGS + 0.5 * RNG.normal(size=(20, 5)))
def factors_with_scores(y):
    n, d = y.shape
    w = sample("w", dist.Normal(0, 1).expand([2, d]).to_event(2))
    noise = sample("noise", dist.HalfNormal(1).expand([d]).to_event(1))
    f = sample("f", dist.Normal(0, 1).expand([n, 2]).to_event(2))
    sample("y", dist.Normal(f @ w, noise), obs=y)


ABILITY = RNG.normal(size=30)
ANSWERS = (RNG.random((30, 6)) < expit(np.linspace(0.5, 2, 6) * (ABILITY[:, None] - np.linspace(-1, 1, 6)))).astype(int)


@case(y=ANSWERS)
def answers_with_discrimination(y):
    persons, items = y.shape
    theta = sample("theta", dist.Normal(0, 1).expand([persons]))
    a, b = sample("a", dist.LogNormal(0, 0.5).expand([items])), sample("b", dist.Normal(0, 1).expand([items]))
    sample("y", dist.Bernoulli(logits=a * (theta[:, None] - b)), obs=y)


@case(rater=np.arange(N) % 5, x=X, y=np.digitize(Y, [0.3, 1.0, 1.7]))
def cutpoints_of_raters(rater, x, y):
    """Every rater has cutpoints of their own about those of all."""
    b, sd = sample("b", dist.Normal(0, 1)), sample("sd", dist.HalfNormal(1))
    first = sample("first", dist.Normal(0, 2))
    gaps = sample("gaps", dist.HalfNormal(1).expand([2]).to_event(1))
    cuts = first + jnp.concatenate([jnp.zeros(1), jnp.cumsum(gaps)])
    with plate("raters", 5):
        shift = sample("shift", dist.Normal(0, sd))
    sample("y", dist.OrderedLogistic(b * x, cuts + shift[rater][:, None]), obs=y)


T = np.linspace(0, 1, 25)
CURVE = np.sin(6 * T) + 0.3 * RNG.normal(size=25)


@case(x=T, y=CURVE)
def process_at_its_points(x, y):
    """A Gaussian process whose values are a site, centred."""
    length, scale, noise = (sample("length", dist.InverseGamma(5, 2)), sample("scale", dist.HalfNormal(1)),
                            sample("noise", dist.HalfNormal(1)))
    k = scale**2 * jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + 1e-6 * jnp.eye(len(x))
    f = sample("f", dist.MultivariateNormal(jnp.zeros(len(x)), k))
    sample("y", dist.Normal(f, noise), obs=y)


@case(x=T, y=RNG.poisson(np.exp(1 + np.sin(6 * T))))
def process_behind_counts(x, y):
    """Whitened, the jitter added to the covariance, the scale a logarithm."""
    length, log_scale, mean = (sample("length", dist.InverseGamma(5, 2)), sample("log_scale", dist.Normal(0, 1)),
                               sample("mean", dist.Normal(0, 1)))
    k = jnp.exp(2 * log_scale) * jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + 1e-6 * jnp.eye(len(x))
    eta = sample("eta", dist.Normal(0, 1).expand([len(x)]))
    sample("y", dist.Poisson(jnp.exp(mean + jnp.linalg.cholesky(k) @ eta)), obs=y)


BASIS = np.maximum(T[:, None] - np.linspace(0.1, 0.9, 9), 0) ** 3


@case(basis=BASIS, x=T, y=CURVE)
def spline_with_its_smoothing(basis, x, y):
    line = sample("line", dist.Normal(0, 5).expand([2]).to_event(1))
    smooth, noise = sample("smooth", dist.HalfCauchy(10)), sample("noise", dist.HalfNormal(1))
    w = sample("w", dist.Normal(0, smooth).expand([basis.shape[1]]).to_event(1))
    sample("y", dist.Normal(line[0] + line[1] * x + basis @ w, noise), obs=y)


@case(counts=np.stack([RNG.multinomial(12, p) for p in RNG.dirichlet([2, 1, 3], size=10)]))
def shares_with_their_concentration(counts):
    mean, strength = sample("mean", dist.Dirichlet(jnp.ones(3))), sample("strength", dist.LogNormal(1, 1))
    with plate("samples", len(counts)):
        p = sample("p", dist.Dirichlet(strength * mean))
        sample("counts", dist.Multinomial(12, p), obs=counts)


@case(effect=np.array([0.4, 0.1, 0.8, -0.2, 0.5, 0.3, 0.9]), error=np.array([0.2, 0.3, 0.25, 0.4, 0.15, 0.3, 0.2]),
      year=np.linspace(-1, 1, 7))
def studies_by_a_regression(effect, error, year):
    """Random effects beside a covariate of the study, a heavy tailed spread."""
    b, tau = sample("b", dist.Normal(0, 1).expand([2]).to_event(1)), sample("tau", dist.HalfCauchy(0.5))
    with plate("studies", len(effect)):
        theta = sample("theta", dist.StudentT(4.0, b[0] + b[1] * year, tau))
        sample("effect", dist.Normal(theta, error), obs=effect)


VISITS = (RNG.random((20, 4)) < 0.4 * (RNG.random((20, 1)) < 0.6)).astype(int)


@case(y=VISITS)
def occupancy_with_unlike_sites(y):
    """What is there is summed by hand, and each site has a chance of its own."""
    mean, sd = sample("mean", dist.Normal(0, 1.5)), sample("sd", dist.HalfNormal(1))
    p = sample("p", dist.Beta(1, 1))
    e = sample("e", dist.Normal(0, 1).expand([len(y)]))
    psi = expit(mean + sd * e)
    k, seen = y.shape[1], y.sum(1)
    there = jnp.log(psi) + seen * jnp.log(p) + (k - seen) * jnp.log1p(-p)
    numpyro.factor("y", jnp.where(seen > 0, there, jnp.logaddexp(there, jnp.log1p(-psi))).sum())


@case(y=RNG.integers(2, size=(6, 5, 3)) * (RNG.random((1, 5, 1)) < 0.7))
def seasons_with_effects(y):
    """Dynamic occupancy, colonisation of every season drawn about a mean."""
    psi, p, stay = (sample(name, dist.Beta(2, 2)) for name in ("psi", "p", "stay"))
    mean, sd = sample("mean", dist.Normal(0, 1)), sample("sd", dist.HalfNormal(1))
    seasons, sites, _ = y.shape
    with plate("seasons", seasons - 1):
        come = sample("come", dist.Normal(mean, sd))
    with plate("sites", sites):
        z = sample("z_0", dist.Bernoulli(psi))
        for t in range(seasons):
            if t:
                z = sample(f"z_{t}", dist.Bernoulli(z * stay + (1 - z) * expit(come[t - 1])))
            sample(f"y_{t}", dist.Bernoulli(z[:, None] * p).expand([sites, 3]).to_event(1), obs=y[t])


@case(g=G, y=COUNTS * (RNG.random(N) < 0.7))
def zeros_and_groups(g, y):
    gate, mean, sd = sample("gate", dist.Beta(1, 1)), sample("mean", dist.Normal(0, 1)), sample("sd", dist.HalfNormal(1))
    with plate("groups", 8):
        e = sample("e", dist.Normal(mean, sd))
    with plate("n", len(y)):
        sample("y", dist.ZeroInflatedPoisson(gate, jnp.exp(e[g])), obs=y)


@case(y=COUNTS)
def a_rate_of_their_own(y):
    """Overdispersion: every count has a rate, whose shape and scale are shared."""
    shape, rate = sample("shape", dist.LogNormal(0, 1)), sample("rate", dist.LogNormal(0, 1))
    with plate("n", len(y)):
        own = sample("own", dist.Gamma(shape, rate))
        sample("y", dist.Poisson(own), obs=y)


@case(low=np.floor(Y), high=np.floor(Y) + 1)
def values_between_bounds(low, high):
    """Interval censoring by unseen values with bounds of data."""
    mu, sigma = sample("mu", dist.Normal(0, 3)), sample("sigma", dist.HalfNormal(2))
    with plate("n", len(low)):
        inside = sample("inside", dist.Uniform(low, high))
        numpyro.factor("y", -0.5 * ((inside - mu) / sigma) ** 2 - jnp.log(sigma))


@case(time=np.exp(Y), dead=TWO)
def censored_times_filled_in(time, dead):
    """What was not waited for is a site, beyond the last time seen."""
    mu, sigma = sample("mu", dist.Normal(0, 2)), sample("sigma", dist.HalfNormal(1))
    late = np.flatnonzero(dead == 0)
    more = sample("more", dist.Exponential(0.1).expand([len(late)]).mask(False))
    whole = jnp.asarray(time).at[late].add(more)
    sample("time", dist.LogNormal(mu, sigma), obs=whole)


@case(x=np.where(np.arange(N) % 20 == 3, np.nan, X), y=Y)
def two_cells_filled_in(x, y):
    """So few that the mode is near the mean."""
    gone = np.flatnonzero(np.isnan(x))
    b, noise = sample("b", dist.Normal(0, 1).expand([2]).to_event(1)), sample("noise", dist.HalfNormal(1))
    fill = sample("fill", dist.Normal(0, 1).expand([len(gone)]))
    full = jnp.asarray(np.nan_to_num(x)).at[gone].set(fill)
    sample("y", dist.Normal(b[0] + b[1] * full, noise), obs=y)


@case(y=Y[:18].reshape(6, 3))
def effects_one_by_one(y):
    """Uncentred, each effect a site of its own."""
    mu, tau, s = sample("mu", dist.Normal(0, 2)), sample("tau", dist.HalfNormal(1)), sample("s", dist.HalfNormal(1))
    for i in range(len(y)):
        z = sample(f"z_{i}", dist.Normal(0, 1))
        sample(f"y_{i}", dist.Normal(mu + tau * z, s).expand([3]).to_event(1), obs=y[i])


@case(y=np.round(Y[:10]))
def rounded_one_by_one(y):
    mu, s = sample("mu", dist.Normal(0, 2)), sample("s", dist.HalfNormal(1))
    for i in range(len(y)):
        e = sample(f"e_{i}", dist.Uniform(-0.5, 0.5))
        numpyro.factor(f"y_{i}", dist.Normal(mu, s).log_prob(y[i] + e))


@case(y=COUNTS[:6])
def effects_by_name(y):
    mu, tau = sample("mu", dist.Normal(0, 2)), sample("tau", dist.HalfNormal(1))
    z = jnp.stack([sample(name, dist.Normal(0, 1)) for name in ("ann", "bob", "cyd", "dan", "eve", "fay")])
    sample("y", dist.Poisson(jnp.exp(mu + tau * z)), obs=y)


# those whose mode is an answer


@case(y=Y[:10])
def cubic_number_by_number(y):
    """Coefficients are single numbers with one prior, and no vector that grows."""
    a, b, c, d = (sample(name, dist.Normal(0, 1)) for name in "abcd")
    s, x = sample("s", dist.HalfNormal(1)), jnp.arange(len(y)) / 10
    sample("y", dist.Normal(a + b * x + c * x**2 + d * x**3, s), obs=y)


COLUMNS = RNG.normal(size=(N, 12))


@case(x=COLUMNS, y=Y)
def ridge_of_known_scale(x, y):
    b = sample("b", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    numpyro.factor("y", dist.Normal(x @ b, 0.5).log_prob(y).sum())


@case(x=COLUMNS, y=TWO)
def logistic_of_known_scale(x, y):
    a, b = sample("a", dist.Normal(0, 2)), sample("b", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with handlers.scale(scale=1.0):
        sample("y", dist.Bernoulli(logits=a + x @ b), obs=y)


@case(x=COLUMNS[:, :4], y=Y)
def regression_of_unknown_noise(x, y):
    b, noise = sample("b", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1)), sample("noise", dist.HalfNormal(1))
    numpyro.factor("y", dist.Normal(x @ b, noise).log_prob(y).sum())


@case(x=COLUMNS[:15], y=TWO[:15])
def more_columns_than_is_wise(x, y):
    """Logistic, no scale unseen: penalised likelihood."""
    a, b = sample("a", dist.Normal(0, 2)), sample("b", dist.Normal(0, 0.5).expand([x.shape[1]]).to_event(1))
    numpyro.factor("y", (y * (a + x @ b) - jnp.logaddexp(0.0, a + x @ b)).sum())


@case(y=COUNTS)
def negative_binomial_by_hand(y):
    mu, k = sample("mu", dist.LogNormal(0, 1)), sample("k", dist.LogNormal(0, 1))
    numpyro.factor("y", (gammaln(y + k) - gammaln(k) - gammaln(y + 1.0) + k * jnp.log(k / (k + mu))
                         + y * jnp.log(mu / (k + mu))).sum())


@case(x=T, y=CURVE)
def process_integrated(x, y):
    length, scale, noise = (sample("length", dist.InverseGamma(5, 2)), sample("scale", dist.HalfNormal(1)),
                            sample("noise", dist.HalfNormal(1)))
    k = scale**2 * jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + (noise**2 + 1e-6) * jnp.eye(len(x))
    sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), k), obs=y)
