"""Models of the Stan User's Guide, written for NumPyro on small data: what Stan sums out by hand is
a discrete site here."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.experimental.ode import odeint
from numpyro import handlers, plate, sample
from numpyro.contrib.control_flow import scan
from written_elsewhere import table

RNG = np.random.default_rng(2)
CASES, case = table()
N = 8
X, Y, B, C = (RNG.normal(size=(N, 2)), RNG.normal(size=N), RNG.integers(2, size=N),
              RNG.poisson(2.0, size=N))
G = np.arange(N) % 3


@case(x=X[:, 0], y=Y)
def linear_regression(x, y):
    alpha, beta = sample("alpha", dist.Normal(0, 10)), sample("beta", dist.Normal(0, 10))
    sigma = sample("sigma", dist.HalfNormal(5))
    sample("y", dist.Normal(alpha + beta * x, sigma), obs=y)


@case(x=X[:, 0], y=Y)
def robust_regression(x, y):
    alpha, beta = sample("alpha", dist.Normal(0, 10)), sample("beta", dist.Normal(0, 10))
    with plate("N", y.shape[0]):
        sample("y", dist.StudentT(4.0, alpha + beta * x, 1.0), obs=y)


@case(x=X, y=G)
def softmax_regression(x, y):
    beta = sample("beta", dist.Normal(0, 5).expand([2, 3]).to_event(2))
    sample("y", dist.Categorical(logits=x @ beta), obs=y)


@case(x=X, y=G)
def ordered_logistic(x, y):
    beta = sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    cuts = sample("c", dist.TransformedDistribution(
        dist.Normal(0, 3).expand([2]).to_event(1), dist.transforms.OrderedTransform()))
    sample("y", dist.OrderedLogistic(x @ beta, cuts), obs=y)


@case(level=G, x=X, y=B)
def hierarchical_logistic(level, x, y):
    with plate("D", 2):
        mu, sigma = sample("mu", dist.Normal(0, 100)), sample("sigma", dist.HalfNormal(1))
        with plate("L", 3):
            beta = sample("beta", dist.Normal(mu, sigma))
    sample("y", dist.Bernoulli(logits=(x * beta[level]).sum(-1)), obs=y)


@case(student=G, question=np.arange(N) % 2, y=B)
def item_response(student, question, y):
    mu = sample("mu", dist.Normal(0.75, 1))
    with plate("J", 3):
        alpha = sample("alpha", dist.Normal(0, 1))
    with plate("K", 2):
        beta = sample("beta", dist.Normal(0, 1))
        gamma = sample("gamma", dist.LogNormal(0.5, 1))
    with plate("N", len(y)):
        logits = gamma[question] * (alpha[student] - (beta[question] + mu))
        sample("y", dist.Bernoulli(logits=logits), obs=y)


@case(group=G, x=X, y=Y)
def correlated_effects(group, x, y):
    omega = sample("L_Omega", dist.LKJCholesky(2, 2.0))
    tau = sample("tau", dist.HalfCauchy(2.5).expand([2]).to_event(1))
    with plate("J", 3):
        z = sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    gamma = sample("gamma", dist.Normal(0, 5).expand([2]).to_event(1))
    beta = gamma + z @ (tau[:, None] * omega).T
    sigma = sample("sigma", dist.Exponential(1))
    sample("y", dist.Normal((beta[group] * x).sum(-1), sigma), obs=y)


@case(y=RNG.normal(size=(5, 2)), x=RNG.normal(size=(5, 3)))
def seemingly_unrelated(x, y):
    beta = sample("beta", dist.Normal(0, 2).expand([2, 3]).to_event(2))
    omega = sample("L_Omega", dist.LKJCholesky(2, 4.0))
    sigma = sample("L_sigma", dist.HalfCauchy(2.5).expand([2]).to_event(1))
    with plate("n", len(y)):
        sample("y", dist.MultivariateNormal(x @ beta.T, scale_tril=sigma[:, None] * omega), obs=y)


@case(y=Y)
def autoregressive_of_one(y):
    alpha, beta, sigma = (sample("alpha", dist.Normal(0, 10)), sample("beta", dist.Normal(0, 10)),
                          sample("sigma", dist.HalfNormal(5)))
    sample("y", dist.Normal(alpha + beta * y[:-1], sigma), obs=y[1:])


@case(r=Y, settings={"sigma1": 0.7})
def garch(r, sigma1):
    mu, a0 = sample("mu", dist.Normal(0, 5)), sample("a0", dist.HalfNormal(2))
    a1 = sample("a1", dist.Uniform(0, 1))
    b1 = sample("b1", dist.Uniform(0, 1 - a1))

    def onward(sigma, last):
        sigma = jnp.sqrt(a0 + a1 * (last - mu) ** 2 + b1 * sigma**2)
        return sigma, sigma

    _, later = jax.lax.scan(onward, jnp.asarray(sigma1), r[:-1])
    sample("r", dist.Normal(mu, jnp.concatenate([jnp.array([sigma1]), later])), obs=r)


@case(y=Y)
def moving_average(y):
    mu, theta = sample("mu", dist.Cauchy(0, 2.5)), sample("theta", dist.Cauchy(0, 2.5))
    sigma = sample("sigma", dist.HalfCauchy(2.5))

    def onward(error, v):
        error = v - mu - theta * error
        return error, error

    _, errors = jax.lax.scan(onward, 0.0, y)
    before = jnp.concatenate([jnp.zeros(1), errors[:-1]])
    sample("y", dist.Normal(mu + theta * before, sigma), obs=y)


@case(y=Y)
def stochastic_volatility_of_stan(y):
    phi, mu = sample("phi", dist.Uniform(-1, 1)), sample("mu", dist.Cauchy(0, 10))
    sigma = sample("sigma", dist.HalfCauchy(5))

    def step(h, v):
        h = sample("h", dist.Normal(mu + phi * (h - mu), sigma))
        sample("y", dist.Normal(0.0, jnp.exp(h / 2)), obs=v)
        return h, None

    scan(step, mu, y)


W, Z = np.array([0, 2, 1, 1, 0, 2]), np.array([0, 1, 1, 0, 0, 1])


@case(w=W, z=Z, settings={"k": 2, "v": 3})
def chain_with_seen_states(w, z, k, v):
    with plate("K", k):
        theta = sample("theta", dist.Dirichlet(jnp.ones(k)))
        phi = sample("phi", dist.Dirichlet(jnp.full(v, 0.1)))
    sample("w", dist.Categorical(phi[z]), obs=w)
    sample("z", dist.Categorical(theta[z[:-1]]), obs=z[1:])


@case(u=W[:5], settings={"k": 2, "v": 3})
def chain_with_hidden_states(u, k, v):
    with plate("K", k):
        theta = sample("theta", dist.Dirichlet(jnp.ones(k)))
        phi = sample("phi", dist.Dirichlet(jnp.full(v, 0.5)))

    def step(z, word):
        z = sample("z", dist.Categorical(theta[z]))
        sample("u", dist.Categorical(phi[z]), obs=word)
        return z, None

    scan(step, 0, u)


@case(y=Y[:5])
def chain_of_a_loop(y):
    """The same by a Python loop, each step a site of its own."""
    theta = sample("theta", dist.Dirichlet(jnp.ones((2, 2))).to_event(1))
    mu, z = sample("mu", dist.Normal(0, 3).expand([2]).to_event(1)), 0
    for t in range(len(y)):
        z = sample(f"z_{t}", dist.Categorical(theta[z]))
        sample(f"y_{t}", dist.Normal(mu[z], 1.0), obs=y[t])


@case(y=Y[:4], miss=np.array([4, 6]), settings={"n": 6})
def missing_data_as_parameters(y, miss, n):
    mu, sigma = sample("mu", dist.Normal(0, 3)), sample("sigma", dist.HalfNormal(2))
    unseen = sample("y_mis", dist.Normal(mu, sigma).expand([len(miss)]).to_event(1))
    sample("y_obs", dist.Normal(mu, sigma), obs=y)
    numpyro.deterministic("whole", jnp.concatenate([y, unseen]))


@case(y=np.array([0.3, 1.1, 0.7]), censored=4, settings={"u": 1.5})
def censored_data(y, censored, u):
    mu, sigma = sample("mu", dist.Normal(0, 3)), sample("sigma", dist.HalfNormal(2))
    sample("y", dist.Normal(mu, sigma), obs=y)
    log = jnp.log(1 - dist.Normal(mu, sigma).cdf(u))
    numpyro.factor("censored", censored * log)


@case(y=np.abs(Y), settings={"u": 4.0})
def truncated_data(y, u):
    mu, sigma = sample("mu", dist.Normal(0, 3)), sample("sigma", dist.HalfNormal(2))
    sample("y", dist.TruncatedNormal(mu, sigma, high=u), obs=y)


@case(y=np.round(Y))
def rounded_data(y):
    mu, sigma = sample("mu", dist.Normal(0, 3)), sample("sigma", dist.HalfNormal(2))
    with plate("N", len(y)):
        z = sample("z", dist.Uniform(-0.5, 0.5))
        numpyro.factor("rounded", dist.Normal(mu, sigma).log_prob(y + z))


@case(y=Y, settings={"k": 2})
def mixture_of_normals(y, k):
    theta = sample("theta", dist.Dirichlet(jnp.ones(k)))
    mu = sample("mu", dist.Normal(0, 10).expand([k]).to_event(1))
    sigma = sample("sigma", dist.LogNormal(0, 2).expand([k]).to_event(1))
    z = sample("z", dist.Categorical(theta).expand([len(y)]))
    sample("y", dist.Normal(mu[z], sigma[z]), obs=y)


@case(y=C)
def zero_inflation(y):
    theta, rate = sample("theta", dist.Beta(1, 1)), sample("lambda", dist.Gamma(2, 1))
    with plate("N", len(y)):
        zero = sample("zero", dist.Bernoulli(theta))
        sample("y", dist.Poisson(jnp.where(zero == 1, 1e-12, rate)), obs=y)


@case(y=C)
def hurdle(y):
    theta, rate = sample("theta", dist.Beta(1, 1)), sample("lambda", dist.Gamma(2, 1))
    sample("zero", dist.Bernoulli(theta), obs=(y == 0).astype(int))
    with handlers.mask(mask=y > 0):
        sample("y", dist.Poisson(rate), obs=y)
        numpyro.factor("above", -jnp.log1p(-jnp.exp(-rate)) * jnp.ones(len(y)))


@case(D=np.array([4, 5, 4, 0, 1, 0]))
def change_point(D):
    e, late = sample("e", dist.Exponential(1.0)), sample("l", dist.Exponential(1.0))
    s = sample("s", dist.DiscreteUniform(0, len(D) - 1))
    sample("D", dist.Poisson(jnp.where(jnp.arange(len(D)) < s, e, late)), obs=D)


@case(D=np.array([4, 5, 1, 0, 6, 7]))
def two_change_points(D):
    e, m, late = (sample(name, dist.Exponential(1.0)) for name in "eml")
    s = sample("s", dist.DiscreteUniform(0, len(D) - 1))
    r = sample("r", dist.DiscreteUniform(0, len(D) - 1))
    t = jnp.arange(len(D))
    sample("D", dist.Poisson(jnp.where(t < s, e, jnp.where(t < r, m, late))), obs=D)


@case(ratings=RNG.integers(2, size=(4, 3)), settings={"k": 2})
def noisy_raters(ratings, k):
    items, raters = ratings.shape
    pi = sample("pi", dist.Dirichlet(jnp.full(k, 3.0)))
    theta = sample("theta", dist.Dirichlet(jnp.eye(k) * 2 + 1).expand([raters, k]).to_event(2))
    with plate("I", items, dim=-2):
        z = sample("z", dist.Categorical(pi))
        with plate("J", raters):
            sample("y", dist.Categorical(theta[jnp.arange(raters), z]), obs=ratings)


@case(ii=np.array([0, 0, 1, 2, 2, 2, 3]), jj=np.array([0, 1, 1, 0, 2, 1, 2]),
      y=np.array([0, 0, 1, 1, 1, 0, 1]), settings={"items": 4, "raters": 3})
def noisy_raters_in_long_form(ii, jj, y, items, raters):
    """A row of data a rating: each reads its item's class through an index."""
    pi = sample("pi", dist.Dirichlet(jnp.ones(2)))
    theta = sample("theta", dist.Dirichlet(jnp.eye(2) + 1).expand([raters, 2]).to_event(2))
    with plate("I", items):
        z = sample("z", dist.Categorical(pi))
    with plate("N", len(y)):
        sample("y", dist.Categorical(theta[jj, z[ii]]), obs=y)


@case(w=np.array([[0, 1, 1], [2, 2, 0], [1, 0, 1]]), settings={"k": 2, "v": 3})
def naive_bayes_unsupervised(w, k, v):
    theta = sample("theta", dist.Dirichlet(jnp.ones(k)))
    phi = sample("phi", dist.Dirichlet(jnp.ones(v)).expand([k]).to_event(1))
    with plate("M", len(w), dim=-2):
        z = sample("z", dist.Categorical(theta))
        with plate("N", w.shape[1]):
            sample("w", dist.Categorical(phi[z]), obs=w)


@case(w=np.array([0, 1, 1, 2, 2, 0]), doc=np.array([0, 0, 1, 1, 2, 2]),
      settings={"k": 2, "v": 3, "documents": 3})
def latent_dirichlet(w, doc, k, v, documents):
    with plate("K", k):
        phi = sample("phi", dist.Dirichlet(jnp.ones(v)))
    with plate("M", documents):
        theta = sample("theta", dist.Dirichlet(jnp.ones(k)))
    with plate("N", len(w)):
        z = sample("z", dist.Categorical(theta[doc]))
        sample("w", dist.Categorical(phi[z]), obs=w)


@case(x=X, y=B)
def process_of_two_classes(x, y):
    rho, alpha = sample("rho", dist.InverseGamma(5, 5)), sample("alpha", dist.HalfNormal(1))
    square = ((x[:, None] - x) ** 2).sum(-1)
    k = alpha**2 * jnp.exp(-0.5 * square / rho**2) + 1e-6 * jnp.eye(len(x))
    eta = sample("eta", dist.Normal(0, 1).expand([len(x)]).to_event(1))
    sample("z", dist.Bernoulli(logits=jnp.linalg.cholesky(k) @ eta), obs=y)


@case(p1=np.array([0, 1, 2, 0]), p2=np.array([1, 2, 3, 3]), y=np.array([1, 0, 1, 1]))
def bradley_terry(p1, p2, y):
    sigma = sample("sigma", dist.LogNormal(0, 0.5))
    with plate("K", 4):
        alpha = sample("alpha", dist.Normal(0, sigma))
    with plate("N", len(y)):
        sample("y", dist.Bernoulli(logits=alpha[p1] - alpha[p2]), obs=y)


@case(R=3, settings={"M": 10, "C": 8})
def lincoln_petersen(M, C, R):
    size = sample("N", dist.Uniform(15.0, 100.0))
    sample("R", dist.Binomial(C, M / size), obs=R)


def oscillator(y, t, theta):
    return jnp.stack([y[1], -y[0] - theta * y[1]])


@case(y=RNG.normal(size=(4, 2)), ts=np.array([0.0, 0.5, 1.0, 1.5]))
def harmonic_oscillator(y, ts):
    sigma = sample("sigma", dist.HalfNormal(2.5).expand([2]).to_event(1))
    theta, y0 = sample("theta", dist.Normal(0, 1)), sample("y0", dist.Normal(0, 1).expand([2]))
    mu = odeint(oscillator, y0, ts, theta)
    with plate("T", len(ts)):
        sample("y", dist.Normal(mu, sigma).to_event(1), obs=y)


@case(x=X[:, 0], y=Y)
def errors_in_measurement(x, y):
    mu, tau = sample("mu_x", dist.Normal(0, 10)), sample("sigma_x", dist.HalfNormal(2))
    alpha, beta, sigma = (sample("alpha", dist.Normal(0, 10)), sample("beta", dist.Normal(0, 10)),
                          sample("sigma", dist.HalfNormal(2)))
    with plate("N", len(x)):
        true = sample("x_true", dist.Normal(mu, tau))
        sample("x", dist.Normal(true, 0.4), obs=x)
        sample("y", dist.Normal(alpha + beta * true, sigma), obs=y)


@case(r_t=np.array([3, 5, 2]), n_t=np.full(3, 20), r_c=np.array([5, 6, 4]), n_c=np.full(3, 20))
def meta_analysis(r_t, n_t, r_c, n_c):
    mu, tau = sample("mu", dist.Normal(0, 2)), sample("tau", dist.HalfCauchy(1))
    with plate("J", len(r_t)):
        base = sample("base", dist.Normal(0, 2))
        delta = sample("delta", dist.Normal(mu, tau))
        sample("r_c", dist.Binomial(n_c, logits=base), obs=r_c)
        sample("r_t", dist.Binomial(n_t, logits=base + delta), obs=r_t)
