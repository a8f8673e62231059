"""Models of the BUGS volumes and of Gelman and Hill, as Stan's example-models have them, written for
NumPyro on small data: what Stan sums out by hand is a discrete site here."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro import handlers, plate, sample
from written_elsewhere import table

RNG = np.random.default_rng(12)
CASES, case = table()
N = 8
X, Y, B, C = (RNG.normal(size=(N, 2)), RNG.normal(size=N), RNG.integers(2, size=N),
              RNG.poisson(2.0, size=N))


@case(x=np.array([8.0, 15, 22, 29, 36]), Y=RNG.normal(size=(4, 5)), settings={"xbar": 22.0})
def rats(x, xbar, Y):
    mu_alpha, mu_beta = sample("mu_alpha", dist.Normal(0, 100)), sample("mu_beta", dist.Normal(0, 100))
    sigmasq = sample("sigmasq_y", dist.InverseGamma(0.001, 0.001))
    spread = [sample(f"sigmasq_{name}", dist.InverseGamma(1.0, 1.0)) for name in ("alpha", "beta")]
    n, t = Y.shape
    with plate("rat", n, dim=-2):
        alpha = sample("alpha", dist.Normal(mu_alpha, jnp.sqrt(spread[0])))
        beta = sample("beta", dist.Normal(mu_beta, jnp.sqrt(spread[1])))
        with plate("time", t):
            sample("Y", dist.Normal(alpha + beta * (x - xbar), jnp.sqrt(sigmasq)), obs=Y)
    numpyro.deterministic("alpha0", mu_alpha - xbar * mu_beta)


@case(t=np.array([94.3, 15.7, 62.9, 126.0]), y=np.array([5, 1, 5, 14]))
def pump(t, y):
    alpha, beta = sample("alpha", dist.Exponential(1.0)), sample("beta", dist.Gamma(0.1, 1.0))
    with plate("pumps", len(t)):
        theta = sample("theta", dist.Gamma(alpha, beta))
        sample("y", dist.Poisson(theta * t), obs=y)


@case(y=np.array([[0, 1, 0, 1, 1], [0, 0, 0, 1, 1], [0, 0, 1, 0, 1]]))
def dogs(y):
    """What happened before is counted."""
    alpha = sample("alpha", dist.TruncatedNormal(0.0, 316.2, high=-0.00001))
    beta = sample("beta", dist.TruncatedNormal(0.0, 316.2, high=-0.00001))
    avoided = jnp.cumsum(y, 1) - y
    shocked = jnp.arange(y.shape[1]) - avoided
    p = jnp.exp(alpha * avoided + beta * shocked)
    with plate("dog", y.shape[0], dim=-2), plate("trial", y.shape[1], dim=-1):
        sample("y", dist.Bernoulli(1 - p), obs=y)


@case(n=np.array([39, 62, 81, 51]), r=np.array([10, 23, 23, 26]), x1=np.array([0.0, 0, 1, 1]),
      x2=np.array([0.0, 1, 0, 1]))
def seeds(n, r, x1, x2):
    alpha = [sample(f"alpha{k}", dist.Normal(0.0, 1000.0)) for k in ("0", "1", "2", "12")]
    tau = sample("tau", dist.Gamma(1e-3, 1e-3))
    with plate("I", len(n)):
        b = sample("b", dist.Normal(0.0, 1 / jnp.sqrt(tau)))
        sample("r", dist.Binomial(n, logits=alpha[0] + alpha[1] * x1 + alpha[2] * x2
                                  + alpha[3] * x1 * x2 + b), obs=r)


@case(x=np.array([0.0, 10, 33, 100, 333, 1000]), y=RNG.poisson(25, size=(6, 3)))
def salm(x, y):
    alpha, beta, gamma = (sample(name, dist.Normal(0.0, 1000.0)) for name in ("alpha", "beta", "gamma"))
    sigma = sample("sigma", dist.HalfCauchy(1.0))
    with plate("dose", 6, dim=-2), plate("plates", 3, dim=-1):
        lam = sample("lambda", dist.Normal(0.0, sigma))
        rate = alpha + beta * jnp.log(x + 10) + gamma * x
        sample("y", dist.Poisson(jnp.exp(rate[:, None] + lam)), obs=y)


@case(y=RNG.normal(size=(4, 3)))
def dyes(y):
    theta = sample("theta", dist.Normal(0.0, 1e5))
    within, between = (sample(name, dist.InverseGamma(0.001, 0.001)) for name in ("tau_within", "tau_between"))
    with plate("batch", 4, dim=-2):
        mu = sample("mu", dist.Normal(theta, jnp.sqrt(between)))
        with plate("samples", 3):
            sample("y", dist.Normal(mu, jnp.sqrt(within)), obs=y)


@case(r=B.reshape(4, 2))
def lsat(r):
    beta = sample("beta", dist.HalfNormal(100.0))
    with plate("items", 2, dim=-1):
        alpha = sample("alpha", dist.Normal(0.0, 100.0))
    with plate("students", 4, dim=-2):
        theta = sample("theta", dist.Normal(0.0, 1.0))
        with plate("answers", 2, dim=-1):
            sample("r", dist.Bernoulli(logits=beta * theta - alpha), obs=r)


BONES = np.array([[1, 2, 1], [2, -1, 1], [3, 2, -1]])


@case(grade=BONES, gamma=np.array([[0.5, 1.5], [0.0, 2.0], [1.0, np.inf]]),
      delta=np.array([2.9, 1.0, 0.7]))
def bones(grade, gamma, delta):
    """Graded responses, of which some are missing (-1), items of two or three grades."""
    with plate("child", 3, dim=-2):
        theta = sample("theta", dist.Normal(0.0, 36.0))
    q = jax.nn.sigmoid(delta[:, None] * (theta[..., None] - gamma))
    p = jnp.concatenate([1 - q[..., :1], q[..., :-1] - q[..., 1:], q[..., -1:]], -1)
    with plate("children", 3, dim=-2), plate("items", 3, dim=-1), handlers.mask(mask=grade != -1):
        sample("grade", dist.Categorical(probs=p), obs=jnp.where(grade == -1, 1, grade) - 1)


@case(time=np.array([12.0, 1, 21, 25, 40, 40]), cens=np.array([0, 0, 0, 0, 1, 1]),
      group=np.array([0, 0, 1, 1, 0, 1]))
def mice(time, cens, group):
    r = sample("r", dist.Exponential(0.001))
    beta = sample("beta", dist.Normal(0, 100).expand([2]).to_event(1))
    scale = jnp.exp(-beta[group] / r)
    with plate("mice", len(time)):
        with handlers.mask(mask=cens == 0):
            sample("died", dist.Weibull(scale, r), obs=time)
        numpyro.factor("lives", jnp.where(cens == 1, -((time / scale) ** r), 0.0))


@case(t=np.array([[8.0, 16], [23, 13], [22, 28]]), event=np.array([[1, 1], [1, 0], [1, 1]]),
      age=np.array([[28.0, 28], [48, 48], [32, 32]]))
def kidney(t, event, age):
    alpha, beta = sample("alpha", dist.Normal(0, 100)), sample("beta", dist.Normal(0, 100))
    r, tau = sample("r", dist.Gamma(1, 1e-3)), sample("tau", dist.Gamma(1e-3, 1e-3))
    with plate("patient", 3, dim=-2):
        b = sample("b", dist.Normal(0, 1 / jnp.sqrt(tau)))
        mu = jnp.exp(-(alpha + beta * age + b) / r)
        with plate("infection", 2):
            sample("t", dist.RightCensoredDistribution(dist.Weibull(mu, r), 1 - event), obs=t)


@case(x=np.array([1.0, 1.5, 2.5, 4, 9, 22]), Y=np.array([1.8, 1.85, 2.0, 2.2, 2.5, 2.6]))
def dugongs(x, Y):
    alpha, beta = sample("alpha", dist.Normal(0, 1000)), sample("beta", dist.Normal(0, 1000))
    lam, tau = sample("lambda", dist.Uniform(0.5, 1)), sample("tau", dist.Gamma(1e-4, 1e-4))
    sample("Y", dist.Normal(alpha - beta * lam**x, 1 / jnp.sqrt(tau)), obs=Y)


@case(ns=np.array([[2, 0, 18, 0], [1, 1, 10, 0], [0, 0, 5, 2], [0, 1, 1, 3]]))
def biopsies(ns):
    """What is there is hidden; a biopsy shows at most that much."""
    p = sample("p", dist.Dirichlet(jnp.ones(4)))
    rows = [sample(f"e{k}", dist.Dirichlet(jnp.ones(k + 1))) for k in range(1, 4)]
    error = jnp.stack([jnp.array([1.0, 0, 0, 0]), *(jnp.pad(row, (0, 4 - len(row))) for row in rows)])
    with plate("sets", len(ns)):
        true = sample("true", dist.Categorical(p))
        sample("ns", dist.Multinomial(jnp.asarray(ns).sum(1), error[true]), obs=ns)


@case(y=RNG.normal(540, 8, size=7))
def eyes(y):
    sigma = sample("sigma", dist.HalfNormal(10))
    theta, lam = sample("theta", dist.HalfNormal(100)), sample("lambda1", dist.Normal(540, 100))
    p1 = sample("P1", dist.Uniform(0, 1))
    with plate("N", len(y)):
        kind = sample("T", dist.Bernoulli(1 - p1))
        sample("y", dist.Normal(lam + theta * kind, sigma), obs=y)


@case(x=np.array([6, 9, 17, 22]), y=np.array([5, 2, 0, 0]), t=np.array([11, 11, 17, 22]))
def hearts(x, y, t):
    """Some patients are cured: a binomial with too many zeros."""
    alpha, delta = sample("alpha", dist.Normal(0, 100)), sample("delta", dist.Normal(0, 100))
    theta, p = jax.nn.sigmoid(delta), jax.nn.sigmoid(alpha)
    rest = jnp.log1p(-theta) + dist.Binomial(t, p).log_prob(y)
    with plate("patients", len(y)):
        numpyro.factor("y", jnp.where(y == 0, jnp.logaddexp(jnp.log(theta), rest), rest))


@case(y=np.array([21, 20, 15]), n=np.array([48, 34, 21]), Z=np.array([10.0, 30, 50]))
def air(y, n, Z):
    """Berkson's error in a covariate."""
    theta = sample("theta", dist.Normal(0, 32).expand([2]).to_event(1))
    with plate("J", 3):
        x = sample("X", dist.Normal(4.48 + 0.76 * Z, 9.0))
        sample("y", dist.Binomial(n, logits=theta[0] + theta[1] * x), obs=y)


@case(x=np.array([0, 1, 1, 0, 1, 0]), w=np.array([1, 0, 1, 1, 0, 0]), d=np.array([1, 1, 0, 0, 1, 0]),
      known=np.array([1, 1, 1, 0, 0, 0]))
def cervix(x, w, d, known):
    """An error in a covariate of two values, for some seen without."""
    phi = sample("phi", dist.Uniform(0, 1).expand([2, 2]).to_event(2))
    q, beta0, beta = (sample("q", dist.Uniform(0, 1)), sample("beta0C", dist.Normal(0, 1)),
                      sample("beta", dist.Normal(0, 1)))
    known = known == 1
    with plate("N", len(d)):
        hidden = sample("x_hidden", dist.Bernoulli(q))
        there = jnp.where(known, x, hidden)
        with handlers.mask(mask=known):
            numpyro.factor("as seen", jnp.where(x == hidden, 0.0, -jnp.inf))
        sample("d", dist.Bernoulli(logits=beta0 + beta * there), obs=d)
        sample("w", dist.Bernoulli(phi[there, d]), obs=w)


@case(Y=RNG.normal(size=(4, 3)), age=np.array([8.0, 8.5, 9.0]))
def jaw(Y, age):
    beta0, beta1 = sample("beta0", dist.Normal(0, 32)), sample("beta1", dist.Normal(0, 32))
    sigma = sample("Sigma", dist.InverseWishart(4.0, scale_matrix=jnp.eye(3)))
    with plate("boys", 4):
        sample("Y", dist.MultivariateNormal(beta0 + beta1 * age, sigma), obs=Y)


@case(pair=np.array([[0, 1], [1, 2], [2, 3]]), y=np.array([2, 5, 3, 4]), rain=np.ones(4))
def ice(pair, y, rain):
    """An intrinsic autoregression: a flat vector and a factor."""
    sigma = sample("sigma", dist.Uniform(0, 1))
    beta = sample("beta", dist.Normal(0, 10).expand([4]).to_event(1))
    numpyro.factor("steps", dist.Normal(beta[pair[:, 0]], sigma).log_prob(beta[pair[:, 1]]).sum())
    sample("y", dist.Poisson(rain * jnp.exp(beta)), obs=y)


@case(n=np.array([59, 60, 62]), r=np.array([6, 13, 18]), x=np.array([1.69, 1.72, 1.75]))
def beetles(n, r, x):
    alpha, beta = sample("alpha_star", dist.Normal(0, 1e4)), sample("beta", dist.Normal(0, 1e4))
    line = alpha + beta * (x - x.mean()) / 20
    sample("r", dist.Binomial(n, 1 - jnp.exp(-jnp.exp(line))), obs=r)


@case(X=np.array([[[7, 1, 0], [4, 2, 2]], [[1, 3, 1], [0, 2, 2]]]))
def alligators(X):
    """A multinomial logit, the first food and the first lake the reference."""
    alpha = sample("alpha", dist.Normal(0, 300).expand([2]).to_event(1))
    beta = sample("beta", dist.Normal(0, 300).expand([1, 2]).to_event(2))
    alpha, beta = jnp.pad(alpha, (1, 0)), jnp.pad(beta, ((1, 0), (1, 0)))
    logits = alpha + beta[:, None]
    with plate("lakes", 2, dim=-2), plate("sizes", 2, dim=-1):
        sample("X", dist.Multinomial(logits=jnp.broadcast_to(logits, X.shape),
                                     total_count=jnp.asarray(X).sum(-1)), obs=X)


@case(x=np.linspace(-1.4, 1.6, 8), Y=np.array([1.1, 1.1, 0.9, 1.0, 0.8, 0.5, 0.2, -0.2]))
def stagnant(x, Y):
    """A broken line, its break one of the points."""
    k = sample("k", dist.Categorical(jnp.ones(8) / 8))
    alpha, sigma = sample("alpha", dist.Normal(0, 5)), sample("sigma", dist.HalfNormal(1))
    beta = sample("beta", dist.Normal(0, 5).expand([2]).to_event(1))
    slope = jnp.where(jnp.arange(8) <= k, beta[0], beta[1])
    sample("Y", dist.Normal(alpha + slope * (x - x[k]), sigma), obs=Y)


@case(smoking=1, xray=1, dyspnoea=1)
def asia(smoking=None, xray=None, dyspnoea=None):
    """A network asked what it says of one patient."""
    smoke = sample("smoking", dist.Bernoulli(0.5), obs=smoking)
    tub = sample("tuberculosis", dist.Bernoulli(sample("p_tub", dist.Beta(1, 99))))
    lung = sample("cancer", dist.Bernoulli(jnp.where(smoke == 1, 0.1, 0.01)))
    bronc = sample("bronchitis", dist.Bernoulli(jnp.where(smoke == 1, 0.6, 0.3)))
    either = numpyro.deterministic("either", jnp.maximum(tub, lung))
    sample("xray", dist.Bernoulli(jnp.where(either == 1, 0.98, 0.05)), obs=xray)
    sample("dyspnoea", dist.Bernoulli(jnp.array([[0.1, 0.8], [0.7, 0.9]])[either, bronc]), obs=dyspnoea)


@case(affected=np.array([0, 0, 1]))
def pigs(affected):
    """A pedigree: genes of parents and children, Mendel's table."""
    q = sample("q", dist.Uniform(0, 1))
    p = jnp.array([1.0, 0.5, 0.0])
    mendel = jnp.stack([jnp.stack([jnp.stack([a * b, a * (1 - b) + (1 - a) * b, (1 - a) * (1 - b)])
                                   for b in p]) for a in p])
    found = jnp.stack([q**2, 2 * q * (1 - q), (1 - q) ** 2])
    genes = {name: sample(name, dist.Categorical(found)) for name in ("ann", "bob", "carl")}
    genes["dora"] = sample("dora", dist.Categorical(mendel[genes["ann"], genes["bob"]]))
    genes["eve"] = sample("eve", dist.Categorical(mendel[genes["dora"], genes["carl"]]))
    for name, own in zip(("carl", "dora", "eve"), affected, strict=True):
        sample(f"affected_{name}", dist.Bernoulli(jnp.where(genes[name] == 2, 0.999, 0.001)), obs=own)


@case(y=np.array([[1.0, 1.2], [-1.0, 0.3], [0.4, 2.0]]), y1=np.array([2.0, -2.0]), y2=np.array([1.5]))
def camel(y, y1, y2):
    """A bivariate normal, some seen in one number alone."""
    sigma = sample("Sigma", dist.InverseWishart(2.5, scale_matrix=0.1 * jnp.eye(2)))
    sample("y", dist.MultivariateNormal(jnp.zeros(2), sigma), obs=y)
    sample("y1", dist.Normal(0.0, jnp.sqrt(sigma[0, 0])), obs=y1)
    sample("y2", dist.Normal(0.0, jnp.sqrt(sigma[1, 1])), obs=y2)


@case(loss=np.array([0.5, 1.2, 3.0, 9.0]))
def fire(loss):
    """A lognormal that goes on as a Pareto."""
    alpha, theta = sample("alpha", dist.Uniform(0.5, 5)), sample("theta", dist.Uniform(0.5, 5))
    sigma = jnp.exp(-1.0) / alpha
    mu = jnp.log(theta) - alpha * sigma**2
    body = dist.LogNormal(mu, sigma).log_prob(loss) - jnp.log1p(jax.scipy.special.ndtr(alpha * sigma))
    tail = dist.Pareto(theta, alpha).log_prob(jnp.where(loss > theta, loss, 2 * theta)) - jnp.log1p(
        jax.scipy.special.ndtr(alpha * sigma))
    numpyro.factor("loss", jnp.where(loss <= theta, body, tail).sum())


@case(county=np.arange(N) % 3, x=B.astype(float), u=RNG.normal(size=3), y=Y)
def radon_of_gelman_and_hill(county, x, u, y):
    g = sample("g", dist.Normal(0, 10).expand([2, 2]).to_event(2))
    sigma = sample("sigma", dist.HalfNormal(10).expand([2]).to_event(1))
    root = sample("L", dist.LKJCholesky(2, concentration=2.0))
    with plate("counties", 3):
        z = sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    b = jnp.stack([jnp.ones(3), u], 1) @ g + z @ (sigma[:, None] * root).T
    noise = sample("sigma_y", dist.HalfNormal(10))
    sample("y", dist.Normal(b[county, 0] + b[county, 1] * x, noise), obs=y)


@case(y=B, age=np.arange(N) % 3, state=np.arange(N) % 2, x=X[:, 0])
def polls_of_states(y, age, state, x):
    """Crossed effects of a logit, ARM chapter 14."""
    b0, b1 = sample("b.0", dist.Normal(0, 100)), sample("b.x", dist.Normal(0, 100))
    a = [sample(f"sigma.{name}", dist.Uniform(0, 100)) for name in ("age", "state")]
    with plate("ages", 3):
        age_effect = sample("b.age", dist.Normal(0, a[0]))
    with plate("states", 2):
        state_effect = sample("b.state", dist.Normal(0, a[1]))
    sample("y", dist.Bernoulli(logits=b0 + b1 * x + age_effect[age] + state_effect[state]), obs=y)


@case(y=RNG.normal(size=6), w=RNG.integers(2, size=6), z=RNG.integers(2, size=6))
def compliers(y, w, z):
    """Principal strata of an experiment with encouragement: never takers, compliers, always takers."""
    pi = sample("pi", dist.Dirichlet(jnp.ones(3)))
    mean = sample("mu", dist.Normal(0, 2).expand([3, 2]).to_event(2))
    takes = jnp.array([[0, 0], [0, 1], [1, 1]])
    logs = jnp.log(pi) + jnp.where(takes[:, z].T == w[:, None], 0.0, -jnp.inf)
    logs += dist.Normal(mean[:, z].T, 1.0).log_prob(y[:, None])
    with plate("people", len(y)):
        numpyro.factor("strata", logsumexp(logs, -1))


def seeds_not_centred(n, r, x1, x2):
    alpha = [sample(f"alpha{k}", dist.Normal(0.0, 1000.0)) for k in ("0", "1", "2", "12")]
    tau = sample("tau", dist.Gamma(1e-3, 1e-3))
    with plate("I", len(n)):
        b = sample("b_standard", dist.Normal(0.0, 1.0)) / jnp.sqrt(tau)
        sample("r", dist.Binomial(n, logits=alpha[0] + alpha[1] * x1 + alpha[2] * x2
                                  + alpha[3] * x1 * x2 + b), obs=r)


def kidney_not_centred(t, event, age):
    alpha, beta = sample("alpha", dist.Normal(0, 100)), sample("beta", dist.Normal(0, 100))
    r, tau = sample("r", dist.Gamma(1, 1e-3)), sample("tau", dist.Gamma(1e-3, 1e-3))
    with plate("patient", 3, dim=-2):
        b = sample("b_standard", dist.Normal(0.0, 1.0)) / jnp.sqrt(tau)
        mu = jnp.exp(-(alpha + beta * age + b) / r)
        with plate("infection", 2):
            sample("t", dist.RightCensoredDistribution(dist.Weibull(mu, r), 1 - event), obs=t)


# functions of the same posterior whose chains move better, for NumPyro to sample
BY_HAND = {"seeds": seeds_not_centred, "kidney": kidney_not_centred}
# why there are no posterior means and standard deviations to be reported
HOPELESS = {"dyes": "The posterior density of tau_between falls as its power -2.5: its variance is infinite."}
