"""More models of NumPyro's folder of examples, written anew on small data: regressions, series,
processes, mixtures, networks with weights that are no sites."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.example_libraries import stax
from jax.experimental.ode import odeint
from numpyro import handlers, plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints
from numpyro.infer.reparam import LocScaleReparam
from written_elsewhere import table

RNG = np.random.default_rng(1)
CASES, case = table()
N = 8
X, Y, B = RNG.normal(size=(N, 3)), RNG.normal(size=N), RNG.integers(2, size=N)
T = np.linspace(0.0, 1.0, N)


@case(x=X, y=B)
def cover_types(x, y):
    coefficients = sample("coefficients", dist.Normal(jnp.zeros(3), jnp.ones(3)))
    logits = numpyro.deterministic("logits", jnp.dot(x, coefficients))
    return sample("obs", dist.Bernoulli(logits=logits), obs=y)


@case(x=X, y=B)
def logistic_of_dais(x, y):
    theta = sample("theta", dist.Normal(jnp.zeros(3), 1).to_event(1))
    with plate("n", len(y)):
        sample("y", dist.Bernoulli(logits=x @ theta), obs=y)


@case(data=X, obs=B, settings={"subsample": 4}, plain={"subsample": None})
def energy_conserving_subsampling(data, obs, subsample):
    theta = sample("theta", dist.continuous.Normal(jnp.zeros(3), 0.5 * jnp.ones(3)))
    with plate("N", data.shape[0], subsample_size=subsample):
        batch = numpyro.subsample(data, event_dim=1)
        seen = numpyro.subsample(obs, event_dim=0)
        sample("obs", dist.Bernoulli(logits=theta @ batch.T), obs=seen)


@case(x=T, y=Y)
def gaussian_process(x, y):
    var, length, noise = (sample(f"kernel_{name}", dist.LogNormal(0.0, 1.0))
                          for name in ("var", "length", "noise"))
    k = var * jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + (noise + 1e-6) * jnp.eye(len(x))
    sample("Y", dist.MultivariateNormal(jnp.zeros(len(x)), covariance_matrix=k), obs=y)


LABELS = np.array([0, 1, 1, 0, 2])
WORDS = np.array([1, 0, 0, 2, 1])
UNLABELLED = np.array([0, 2, 1, 1])


@case(labels=LABELS, words=WORDS, unlabelled=UNLABELLED, settings={"k": 3, "v": 3})
def semi_supervised_chain(labels, words, unlabelled, k, v):
    """A chain that is seen in part; what is not is summed by the function itself."""
    move = sample("move", dist.Dirichlet(jnp.ones((k, k))).to_event(1))
    emit = sample("emit", dist.Dirichlet(jnp.ones((k, v))).to_event(1))
    sample("labels", dist.Categorical(probs=move[labels[:-1]]), obs=labels[1:])
    sample("words", dist.Categorical(probs=emit[labels]), obs=words)

    def onward(log, word):
        return jax.nn.logsumexp(jnp.log(move) + jnp.log(emit[:, word]) + log[:, None], 0), None

    log, _ = jax.lax.scan(onward, jnp.log(emit[:, unlabelled[0]]), unlabelled[1:])
    numpyro.factor("forward", jax.nn.logsumexp(log))


@case(y=Y, settings={"seasons": 3})
def holt_winters(y, seasons, future=0):
    n = y.shape[0]
    smooth, trending, seasonal = (sample(name, dist.Beta(1, 1))
                                  for name in ("smooth", "trending", "seasonal"))
    seasonal = seasonal * (1 - smooth)
    noise = sample("noise", dist.HalfNormal(1))
    start = sample("level", dist.Normal(0, 1)), sample("trend", dist.Normal(0, 1))
    with plate("seasons", seasons):
        first = sample("season", dist.Normal(0, 1))

    def step(carry, t):
        level, trend, season = carry
        now = jnp.where(t < n, smooth * (y[t] - season[0]) + (1 - smooth) * (level + trend), level)
        slope = jnp.where(t < n, trending * (now - level) + (1 - trending) * trend, trend)
        turn = jnp.where(t < n, seasonal * (y[t] - level - trend) + (1 - seasonal) * season[0],
                         season[0])
        mean = level + jnp.where(t < n, 1, t - n + 1) * trend + season[0]
        drawn = sample("drawn", dist.Normal(mean, noise))
        return (now, slope, jnp.concatenate([season[1:], turn[None]])), drawn

    with handlers.condition(data={"drawn": y}):
        _, drawn = scan(step, (*start, first), jnp.arange(n + future))
    if future > 0:
        numpyro.deterministic("forecast", drawn[-future:])


@case(x=X, y=Y)
def horseshoe(x, y):
    d = x.shape[1]
    lambdas = sample("lambdas", dist.HalfCauchy(jnp.ones(d)))
    tau = sample("tau", dist.HalfCauchy(jnp.ones(1)))
    free = sample("free_betas", dist.Normal(0.0, jnp.ones(d)))
    betas = numpyro.deterministic("betas", tau * lambdas * free)
    sigma = 1.0 / jnp.sqrt(sample("precision", dist.Gamma(3.0, 1.0)))
    sample("Y", dist.Normal(jnp.dot(x, betas), sigma), obs=y)


@case(x=X, y=B)
def horseshoe_of_two_classes(x, y):
    d = x.shape[1]
    lambdas = sample("lambdas", dist.HalfCauchy(jnp.ones(d)))
    tau = sample("tau", dist.HalfCauchy(jnp.ones(1)))
    free = sample("free_betas", dist.Normal(0.0, jnp.ones(d)))
    sample("Y", dist.Bernoulli(logits=jnp.dot(x, tau * lambdas * free)), obs=y)


def eigenfunctions(x, bound, m):
    j = jnp.arange(1, m + 1)
    return jnp.sin(j * jnp.pi / (2 * bound) * (x[:, None] + bound)) / jnp.sqrt(bound), j


@case(x=T, day=np.arange(N) % 7, y=Y, settings={"bound": 1.5, "m": 3})
def births_by_hilbert_space_process(x, day, y, bound, m):
    intercept = sample("intercept", dist.Normal(0, 1))

    def process(name):
        alpha, length = (sample(f"{name}.{p}", dist.InverseGamma(10.0, 2.0))
                         for p in ("alpha", "length"))
        phi, j = eigenfunctions(x, bound, m)
        density = alpha * jnp.sqrt(jnp.sqrt(2 * jnp.pi) * length) * jnp.exp(
            -0.25 * (length * j * jnp.pi / 2 / bound) ** 2)
        with plate(f"{name}.basis", m):
            beta = sample(f"{name}.beta", dist.Normal(0, 1))
        return phi @ (density * beta)

    f = handlers.scope(process, prefix="trend", divider="::")("f")
    with plate("day_of_week", 6):
        week = sample("week", dist.Normal(0, 1))
    sigma = sample("sigma", dist.HalfNormal(0.5))
    mu = intercept + f + jnp.concatenate([jnp.zeros(1), week])[day]
    with plate("obs", len(x)):
        sample("y", dist.Normal(mu, sigma), obs=y)


@case(data=Y)
def minipyro(data):
    loc = sample("loc", dist.Normal(0.0, 1.0))
    with plate("data", len(data)):
        sample("obs", dist.Normal(loc, 1.0), obs=data)


AGE, PLACE, YEAR = (RNG.integers(size, size=12) for size in (3, 4, 2))
AGE[:3], PLACE[:4], YEAR[:2] = range(3), range(4), range(2)
DRIFTS = {name: LocScaleReparam(0) for name in ("region", "place", "age_drift")}


@case(age=AGE, space=PLACE, time=YEAR, lookup=np.array([0, 0, 1, 1]),
      population=RNG.integers(20, 40, size=12), deaths=RNG.integers(0, 20, size=12))
@handlers.reparam(config=DRIFTS)
def mortality(age, space, time, lookup, population, deaths=None):
    regions, places, ages, years = (len(np.unique(v)) for v in (lookup, space, age, time))
    scale = {name: sample(f"sigma_{name}", dist.HalfNormal(1.0)) for name in "rpay"}
    with plate("regions", regions, dim=-2):
        region = sample("region", dist.Normal(0, scale["r"]))
    with plate("space", places, dim=-2):
        place = sample("place", dist.Normal(region[lookup], scale["p"]))
    with plate("ages", ages, dim=-3):
        wide = jnp.pad(jnp.broadcast_to(scale["a"], ages - 1), (1, 0), constant_values=10.0)
        drift = sample("age_drift", dist.Normal(0, wide[:, None, None]))
    with plate("years", years - 1, dim=-1):
        year = jnp.pad(jnp.cumsum(sample("year", dist.Normal(0, scale["y"])), -1), (1, 0))
    rate = jnp.cumsum(drift, -3) + place + year
    with plate("N", len(population)):
        mu = numpyro.deterministic("mu", jax.scipy.special.expit(rate[age, space, time]))
        sample("deaths", dist.Binomial(population, mu), obs=deaths)


class DualMoon(dist.Distribution):
    """Two moons (neutra.py): a density that is not normalised."""

    support = constraints.real_vector

    def __init__(self):
        super().__init__(event_shape=(2,))

    def sample(self, key, sample_shape=()):
        return jnp.zeros(sample_shape + self.event_shape)

    def log_prob(self, x):
        one = 0.5 * ((jnp.linalg.norm(x, axis=-1) - 2) / 0.4) ** 2
        two = -0.5 * ((x[..., :1] + jnp.array([-2.0, 2.0])) / 0.6) ** 2
        return -(one - jax.scipy.special.logsumexp(two, axis=-1))


@case()
def dual_moon():
    sample("x", DualMoon())


@case(settings={"dim": 3})
def funnel(dim):
    y = sample("y", dist.Normal(0, 3))
    sample("x", dist.Normal(jnp.zeros(dim - 1), jnp.exp(y / 2)))


class Shell(dist.Distribution):
    """A shell of Gaussian density about a centre (gaussian_shells.py)."""

    support = constraints.real_vector
    arg_constraints = {"loc": constraints.real_vector}

    def __init__(self, loc, radius, width):
        self.loc, self.radius, self.width = loc, radius, width
        super().__init__(loc.shape[:-1], loc.shape[-1:])

    def sample(self, key, sample_shape=()):
        return jnp.zeros(sample_shape + self.shape())

    def log_prob(self, value):
        norm = jnp.linalg.norm(value - self.loc, axis=-1)
        return -0.5 * ((norm - self.radius) / self.width) ** 2


@case()
def gaussian_shells():
    centres = jnp.array([[-3.5, 0.0], [3.5, 0.0]])
    z = sample("z", dist.Categorical(jnp.array([0.5, 0.5])))
    sample("x", Shell(centres[z], 2.0, 0.1))


def dz_dt(z, t, theta):
    u, v = z
    alpha, beta, gamma, delta = theta
    return jnp.stack([(alpha - beta * v) * u, (-gamma + delta * u) * v])


@case(y=np.exp(RNG.normal(size=(5, 2))), settings={"years": 5})
def predator_and_prey(years, y=None):
    start = sample("z_init", dist.LogNormal(jnp.log(10), 1).expand([2]))
    times = jnp.arange(float(years))
    theta = sample("theta", dist.TruncatedNormal(
        low=0.0, loc=jnp.array([1.0, 0.05, 1.0, 0.05]), scale=jnp.array([0.2, 0.01, 0.2, 0.01])))
    z = odeint(dz_dt, start, times, theta, rtol=1e-6, atol=1e-5, mxstep=1000)
    sigma = sample("sigma", dist.LogNormal(-1, 1).expand([2]))
    sample("y", dist.LogNormal(jnp.log(z), sigma), obs=y)


@case(design=np.c_[np.ones(N), B].astype(float), outcome=RNG.integers(2, size=N))
def proportion_test(design, outcome):
    beta = sample("coefficients", dist.MultivariateNormal(0.0, covariance_matrix=jnp.eye(2)))
    sample("obs", dist.Bernoulli(logits=design.dot(beta)), obs=outcome)


@case(x=X, y=Y)
def sparse_interactions(x, y):
    d = x.shape[1]
    sigma = sample("sigma", dist.HalfNormal(3.0))
    phi = sigma * (1 / np.sqrt(N)) / (d - 1)
    eta1, msq, xisq = (sample("eta1", dist.HalfCauchy(phi)), sample("msq", dist.InverseGamma(2, 2)),
                       sample("xisq", dist.InverseGamma(2, 2)))
    lam = sample("lambda", dist.HalfCauchy(jnp.ones(d)))
    kappa = jnp.sqrt(msq) * lam / jnp.sqrt(msq + jnp.square(eta1 * lam))
    eta2 = jnp.square(eta1) * jnp.sqrt(xisq) / msq
    kx = kappa * x
    k = (0.5 * eta2**2 * jnp.square(1.0 + kx @ kx.T) - 0.5 * eta2**2 * (kx**2) @ (kx**2).T
         + (eta1**2 - eta2**2) * kx @ kx.T + 1.0 - 0.5 * eta2**2)
    k = k + jnp.eye(len(x)) * (jnp.square(sigma) + 1e-6)
    sample("Y", dist.MultivariateNormal(jnp.zeros(len(x)), covariance_matrix=k), obs=y)


@case(data=RNG.uniform(-3, 3, size=(5, 2)), settings={"n": 5, "k": 2})
def skewed_angles(data, n, k):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("mixture", k):
        phi, psi = (sample(f"{name}_loc", dist.VonMises(0.0, 2.0)) for name in ("phi", "psi"))
        kappa, rho = (sample(f"{name}_conc", dist.Beta(2.0, 5.0)) for name in ("phi", "psi"))
        scale = sample("corr_scale", dist.Beta(2.0, 10.0))
        one, two = (sample(f"skew_{name}", dist.Uniform(-1.0, 1.0)) for name in ("phi", "psi"))
        skewness = jnp.stack((one, (1 - jnp.abs(one)) * two), axis=-1)
    with plate("obs", n, dim=-1):
        z = sample("z", dist.Categorical(weights), infer={"enumerate": "parallel"})
        sine = dist.SineBivariateVonMises(
            phi_loc=phi[z], psi_loc=psi[z], phi_concentration=7 * kappa[z],
            psi_concentration=7 * rho[z], weighted_correlation=scale[z])
        sample("phi_psi", dist.SineSkewed(sine, skewness[z]), obs=data)


@case(returns=Y)
def stochastic_volatility(returns):
    step = sample("sigma", dist.Exponential(50.0))
    s = sample("s", dist.GaussianRandomWalk(scale=step, num_steps=jnp.shape(returns)[0]))
    nu = sample("nu", dist.Exponential(0.1))
    sample("r", dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s)), obs=returns)


@case(a=B, c=RNG.integers(2, size=N), settings={"n": N})
def toy_mixture(a, c, n):
    p_a = sample("p_a", dist.Beta(1, 1))
    p_b, p_c = (sample(f"p_{name}", dist.Beta(jnp.ones(2), jnp.ones(2)).to_event(1))
                for name in "bc")
    with plate("data", n):
        first = sample("A", dist.Bernoulli(p_a), obs=a)
        hidden = sample("B", dist.Bernoulli(p_b[first]), infer={"enumerate": "parallel"})
        sample("C", dist.Bernoulli(p_c[hidden]), obs=c)


DEPARTMENT = np.repeat(np.arange(4), 2)


@case(department=DEPARTMENT, male=np.tile([1, 0], 4), applications=np.full(8, 20),
      admitted=RNG.integers(20, size=8))
def admissions(department, male, applications, admitted=None):
    mu = sample("mu", dist.Normal(0, jnp.array([4.0, 1.0])))
    sigma = sample("sigma", dist.HalfNormal(jnp.array([2.0, 1.0])))
    tril = jnp.diag(sigma) @ sample("L", dist.LKJCholesky(2, concentration=2))
    z = sample("z", dist.Normal(jnp.zeros((len(np.unique(department)), 2)), 1))
    v = jnp.dot(tril, z.T).T
    logits = mu[0] + v[department, 0] + (mu[1] + v[department, 1]) * male
    with plate("data", len(department)):
        sample("admitted", dist.Binomial(applications, logits=logits), obs=admitted)


@case(x=X[:, 0], y=RNG.poisson(1.0, size=N))
def zero_inflated_poisson(x, y):
    gate, b = sample("gate", dist.Beta(1, 1)), sample("b", dist.Normal(0, 1))
    with plate("n", len(y)):
        sample("y", dist.ZeroInflatedPoisson(gate, jnp.exp(b * x)), obs=y)


@case(x=X, y=Y, settings={"hidden": 2})
def network_of_stein(x, y, hidden):
    prec = [sample(f"{name}_prec", dist.Gamma(1.0, 0.1)) for name in ("nn", "obs")]
    n, d = x.shape
    with plate("l1", d, dim=-2), plate("hidden", hidden):
        w1 = sample("w1", dist.Normal(0.0, 1.0 / jnp.sqrt(prec[0])))
    with plate("hidden ", hidden):
        b1 = sample("b1", dist.Normal(0.0, 1.0 / jnp.sqrt(prec[0])))
        w2 = sample("w2", dist.Normal(0.0, 1.0 / jnp.sqrt(prec[0])))
    b2 = sample("b2", dist.Normal(0.0, 1.0 / jnp.sqrt(prec[0])))
    with plate("data", n, subsample_size=n):
        loc = jax.nn.relu(x @ w1 + b1) @ w2 + b2
        sample("y", dist.Normal(loc, jnp.sqrt(1 / prec[1])), obs=y)


@case(counts=RNG.integers(0, 4, size=(4, 5)).astype(float))
def logistic_normal_topics(counts):
    """ProdLDA with a linear decoder whose weights are sites."""
    documents, words = counts.shape
    beta = sample("beta", dist.Normal(0, 1).expand([2, words]).to_event(2))
    with plate("documents", documents):
        theta = jax.nn.softmax(sample("logtheta", dist.Normal(0, 1).expand([2]).to_event(1)), -1)
        total = counts.sum(-1)
        sample("words", dist.Multinomial(total_count=total, probs=jax.nn.softmax(theta @ beta)),
               obs=counts)


@case(y=Y)
def point_of_a_param(y):
    """SVI's way to a point: a number that has no prior."""
    loc = numpyro.param("loc", 0.3)
    scale = numpyro.param("scale", 1.5, constraint=constraints.positive)
    m = sample("m", dist.Normal(0.0, 1.0))
    with plate("n", len(y)):
        sample("y", dist.Normal(loc + m, scale), obs=y)


@case(batch=B.reshape(4, 2).astype(float), settings={"hidden": 2})
def autoencoder(batch, hidden):
    """The decoder of vae.py: a network of stax, its weights parameters without priors."""
    size = batch.shape[-1]
    decode = numpyro.module("decoder", stax.serial(stax.Dense(3), stax.Softplus, stax.Dense(size),
                                                   stax.Sigmoid), (hidden,))
    with plate("batch", len(batch)):
        z = sample("z", dist.Normal(0, 1).expand([hidden]).to_event(1))
        sample("obs", dist.Bernoulli(decode(z)).to_event(1), obs=batch)


@case(y=Y)
def seasonal_by_circulant(y):
    """A process on a circle, by its row of covariances."""
    scale, length = sample("scale", dist.HalfNormal(1.0)), sample("length", dist.LogNormal(0, 1))
    lag = jnp.minimum(jnp.arange(len(y)), len(y) - jnp.arange(len(y)))
    row = scale**2 * jnp.exp(-0.5 * (lag / length) ** 2) + 0.5 * (lag == 0)
    sample("y", dist.CirculantNormal(jnp.zeros(len(y)), covariance_row=row), obs=y)
