"""Models of ecology as users of BPA, Kéry and Schaub, moveHMM and NumPyro's forum write them: animals
that are there and not seen."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers, plate, sample
from numpyro.contrib.control_flow import scan
from written_elsewhere import table

RNG = np.random.default_rng(11)
CASES, case = table()
N, J, T = 4, 3, 4
X, W = RNG.normal(size=N), RNG.normal(size=(N, J))
SEEN = RNG.integers(2, size=(N, J))
SEEN[0] = 0
COUNTS = RNG.poisson(1.0, size=(N, J))
HISTORY = np.array([[1, 0, 1, 0], [0, 1, 1, 1], [0, 0, 1, 0]])


@case(y=SEEN, x=X, w=W)
def occupancy(y, x, w):
    a = sample("a", dist.Normal(0, 1).expand([2]).to_event(1))
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    sites, visits = y.shape
    with plate("site", sites, dim=-2):
        psi = jax.nn.sigmoid(a[0] + a[1] * x[:, None])
        z = sample("z", dist.Bernoulli(psi), infer={"enumerate": "parallel"})
        with plate("visit", visits, dim=-1):
            p = jax.nn.sigmoid(b[0] + b[1] * w)
            sample("y", dist.Bernoulli(z * p), obs=y)


@case(y=SEEN)
def occupancy_marginalised(y):
    """Stan's way: no discrete site, a factor."""
    psi, p = sample("psi", dist.Uniform(0, 1)), sample("p", dist.Uniform(0, 1))
    sites, visits = y.shape
    with plate("site", sites):
        there = jnp.log(psi) + dist.Binomial(visits, p).log_prob(y.sum(1))
        gone = jnp.where(y.sum(1) == 0, jnp.log1p(-psi), -jnp.inf)
        numpyro.factor("occupied", jnp.logaddexp(there, gone))


@case(y=RNG.integers(2, size=(3, 3, 2)))
def dynamic_occupancy(y):
    """Seasons in a Python loop, sites a plate."""
    psi, p = sample("psi", dist.Beta(1, 1)), sample("p", dist.Beta(1, 1))
    stay, come = sample("phi", dist.Beta(1, 1)), sample("gamma", dist.Beta(1, 1))
    seasons, sites, _ = y.shape
    with plate("sites", sites):
        z = sample("z_0", dist.Bernoulli(psi))
        for t in range(seasons):
            if t:
                z = sample(f"z_{t}", dist.Bernoulli(z * stay + (1 - z) * come))
            sample(f"y_{t}", dist.Bernoulli(z[:, None] * p).expand([sites, 2]).to_event(1), obs=y[t])


@case(y=COUNTS[:2], settings={"most": 9})
def abundance_by_a_categorical(y, most):
    """The N-mixture of Royle, its N cut off."""
    lam, p = sample("lam", dist.LogNormal(1, 1)), sample("p", dist.Beta(1, 1))
    sites, visits = y.shape
    each = dist.Poisson(lam).log_prob(jnp.arange(most + 1))
    with plate("sites", sites, dim=-2):
        n = sample("N", dist.Categorical(logits=each))
        with plate("visits", visits, dim=-1):
            numpyro.factor("seen", jnp.where(y <= n, dist.Binomial(n, p, validate_args=False)
                                             .log_prob(jnp.minimum(y, n)), -jnp.inf))


@case(y=COUNTS[:2, :2], settings={"most": 7})
def abundance_between_bounds(y, most):
    """N is uniform beyond what was counted, weighed by a Poisson."""
    lam, p = sample("lam", dist.LogNormal(1, 1)), sample("p", dist.Beta(1, 1))
    with plate("sites", len(y)):
        n = sample("N", dist.DiscreteUniform(0, most))
        numpyro.factor("prior", dist.Poisson(lam).log_prob(n))
        sample("y", dist.Binomial(n[:, None], p, validate_args=False).to_event(1), obs=y)


@case(history=HISTORY)
def cormack_jolly_seber(history):
    """States alive and dead, each animal from where it was first met."""
    phi, p = sample("phi", dist.Beta(1, 1)), sample("p", dist.Beta(1, 1))
    animals, occasions = history.shape
    first = np.argmax(np.asarray(history), 1)

    def step(alive, now):
        y, t = now
        with plate("animals", animals), handlers.mask(mask=t > first):
            alive = sample("alive", dist.Bernoulli(jnp.where(t > first, alive * phi, 1.0)))
            sample("y", dist.Bernoulli(alive * p), obs=y)
        return alive, None

    scan(step, jnp.ones(animals, int), (history.T, jnp.arange(occasions)))


@case(marr=np.array([[2, 1, 0, 3], [0, 3, 1, 2], [0, 0, 2, 4]]))
def recaptured_by_arrays(marr):
    """The m-array: multinomials of first recaptures."""
    k = len(marr)
    with plate("occasion", k):
        phi, p = sample("phi", dist.Beta(1, 1)), sample("p", dist.Beta(1, 1))
    rows = []
    for t in range(k):
        cells, alive = [jnp.zeros(())] * t, 1.0
        for u in range(t, k):
            alive = alive * phi[u]
            cells.append(alive * p[u])
            alive = alive * (1 - p[u])
        row = jnp.stack(cells)
        rows.append(jnp.append(row, 1 - row.sum()))
    sample("marr", dist.Multinomial(jnp.asarray(marr).sum(1), jnp.stack(rows)), obs=marr)


@case(history=np.array([[0, 1, 0], [1, 1, 0], [0, 0, 0]]))
def jolly_seber_with_augmented_animals(history):
    """Not entered, alive, dead; the last animals were never met."""
    gamma = sample("gamma", dist.Beta(1, 1).expand([3]).to_event(1))
    phi, p = sample("phi", dist.Beta(1, 1)), sample("p", dist.Beta(1, 1))
    animals, occasions = history.shape

    def move(t):
        return jnp.array([[1 - gamma[t], gamma[t], 0.0], [0.0, phi, 1 - phi], [0.0, 0.0, 1.0]])

    def step(z, now):
        y, t = now
        with plate("animals", animals):
            z = sample("z", dist.Categorical(move(t)[z]))
            sample("y", dist.Bernoulli(jnp.where(z == 1, p, 0.0)), obs=y)
        return z, None

    scan(step, jnp.zeros(animals, int), (history.T, jnp.arange(occasions)))


@case(y=np.array([2, 1, 3, 0, 0, 0]), settings={"occasions": 4})
def closed_population(y, occasions):
    """M0 with augmented animals; how many there are is computed."""
    omega, p = sample("omega", dist.Uniform(0, 1)), sample("p", dist.Uniform(0, 1))
    with plate("animal", len(y)):
        z = sample("z", dist.Bernoulli(omega))
        sample("y", dist.Binomial(occasions, z * p), obs=y)
    numpyro.deterministic("N", z.sum())


@case(y=np.array([2, 1, 3, 0, 0, 0]), settings={"occasions": 4})
def closed_population_of_unlike_animals(y, occasions):
    omega = sample("omega", dist.Uniform(0, 1))
    mean, sd = sample("mean", dist.Normal(0, 1)), sample("sd", dist.HalfNormal(1))
    with plate("animal", len(y)):
        eps = sample("eps", dist.Normal(mean, sd))
        sample("y", dist.ZeroInflatedDistribution(dist.Binomial(occasions, logits=eps),
                                                  gate=1 - omega), obs=y)


@case(history=np.array([[1, 2, 0], [2, 0, 2]]))
def several_places(history):
    """Multistate recapture: two places and death, seen as a place or not at all."""
    with plate("places", 2):
        s = sample("S", dist.Beta(1, 1))
        psi, p = sample("psi", dist.Beta(1, 1)), sample("p", dist.Beta(1, 1))
    move = jnp.array([[s[0] * (1 - psi[0]), s[0] * psi[0], 1 - s[0]],
                      [s[1] * psi[1], s[1] * (1 - psi[1]), 1 - s[1]], [0.0, 0.0, 1.0]])
    see = jnp.array([[1 - p[0], p[0], 0.0], [1 - p[1], 0.0, p[1]], [1.0, 0.0, 0.0]])
    for i in range(len(history)):
        z = int(np.asarray(history)[i, 0]) - 1
        for t in range(1, 3):
            z = sample(f"z_{i}_{t}", dist.Categorical(move[z]))
            sample(f"y_{i}_{t}", dist.Categorical(see[z]), obs=history[i, t])


@case(step_length=RNG.gamma(2.0, size=5), angle=RNG.uniform(-3, 3, size=5), x=RNG.normal(size=5))
def moving_animal(step_length, angle, x):
    """moveHMM: steps and turns, moves between states by a covariate."""
    with plate("state", 2):
        shape, rate = sample("shape", dist.LogNormal(0, 1)), sample("rate", dist.LogNormal(0, 1))
        kappa = sample("kappa", dist.Gamma(2, 1))
        beta = sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))

    def move(z, now):
        length, turn, covariate = now
        leave = jax.nn.sigmoid(beta[z, 0] + beta[z, 1] * covariate)
        z = sample("z", dist.Bernoulli(jnp.where(z == 0, leave, 1 - leave)))
        sample("length", dist.Gamma(shape[z], rate[z]), obs=length)
        sample("turn", dist.VonMises(0.0, kappa[z]), obs=turn)
        return z, None

    scan(move, 0, (step_length, angle, x))


@case(distance=np.abs(RNG.normal(size=6)), settings={"width": 3.0})
def distances_of_a_transect(distance, width):
    sigma = sample("sigma", dist.HalfNormal(2))
    grid = jnp.linspace(0, width, 50)
    area = jnp.trapezoid(jnp.exp(-0.5 * (grid / sigma) ** 2), grid)
    with plate("group", len(distance)):
        numpyro.factor("half normal", -0.5 * (distance / sigma) ** 2 - jnp.log(area))


@case(counts=np.log(RNG.poisson(20, size=9) + 1.0))
def population_by_state_space(counts):
    """Exponential growth seen through counts, a Python loop (BPA, chapter 5)."""
    mean, spread = sample("mean.r", dist.Normal(0, 0.1)), sample("sigma.proc", dist.Uniform(0, 1))
    noise = sample("sigma.obs", dist.Uniform(0, 1))
    state = [sample("logN.est[0]", dist.Normal(3.0, 1.0))]
    for t in range(1, len(counts)):
        r = sample(f"r[{t}]", dist.Normal(mean, spread))
        state.append(state[-1] + r)
    with plate("years", len(counts)):
        sample("y", dist.Normal(jnp.stack(state), noise), obs=counts)


@case(count=RNG.poisson(5.0, size=(3, 4)), miss=np.array([[1, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 1]]) > 0)
def counts_of_sites_and_years(count, miss):
    """GLMM of BPA, chapter 4: crossed effects, cells that were not counted under a mask."""
    mu = sample("mu", dist.Normal(0, 3))
    sd = sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    with plate("sites", 3, dim=-2):
        alpha = sample("alpha", dist.Normal(mu, sd[0]))
    with plate("years", 4, dim=-1):
        eps = sample("eps", dist.Normal(0, sd[1]))
    with plate("s", 3, dim=-2), plate("t", 4, dim=-1), handlers.mask(mask=miss):
        sample("C", dist.Poisson(jnp.exp(alpha + eps)), obs=count)


@case(y=RNG.integers(2, size=(5, 3)), adult=np.array([1, 0, 1, 1, 0]))
def two_species_of_one_kind(y, adult):
    """Royle's misclassified occupancy: a mixture of two detection rates where nothing is there."""
    psi = sample("psi", dist.Beta(1, 1))
    p = sample("p", dist.TransformedDistribution(
        dist.Normal(0, 1).expand([2]).to_event(1), dist.transforms.OrderedTransform()))
    with plate("site", len(y)):
        z = sample("z", dist.Bernoulli(psi))
        with handlers.mask(mask=jnp.asarray(adult) == 1):
            sample("y", dist.Bernoulli(logits=p[z][:, None]).expand([len(y), 3]).to_event(1), obs=y)


def alive_summed(history):
    """`cormack_jolly_seber` by the forward algorithm: under the mask every state has weight 1."""
    phi, p = sample("phi", dist.Beta(1, 1)), sample("p", dist.Beta(1, 1))
    later = jnp.arange(history.shape[1]) > jnp.argmax(history, 1)[:, None]
    move = jnp.array([[1.0, 0.0], [1 - phi, phi]])
    weight = jnp.tile(jnp.array([0.0, 1.0]), (len(history), 1))
    for t in range(history.shape[1]):
        y = history[:, t]
        seen = jnp.stack([1.0 - y, jnp.where(y == 1, p, 1 - p)], 1)
        weight = jnp.where(later[:, t, None], weight @ move * seen, weight.sum(1, keepdims=True))
    numpyro.factor("history", jnp.log(weight.sum(1)).sum())


def entered_summed(history):
    """`jolly_seber_with_augmented_animals` by the forward algorithm."""
    gamma = sample("gamma", dist.Beta(1, 1).expand([3]).to_event(1))
    phi, p = sample("phi", dist.Beta(1, 1)), sample("p", dist.Beta(1, 1))
    weight = jnp.tile(jnp.array([1.0, 0.0, 0.0]), (len(history), 1))
    for t in range(history.shape[1]):
        y = history[:, t]
        move = jnp.array([[1 - gamma[t], gamma[t], 0.0], [0.0, phi, 1 - phi], [0.0, 0.0, 1.0]])
        seen = jnp.stack([1.0 - y, jnp.where(y == 1, p, 1 - p), 1.0 - y], 1)
        weight = weight @ move * seen
    numpyro.factor("history", jnp.log(weight.sum(1)).sum())


# functions of the same posterior, what is discrete and hidden summed out, for NumPyro to sample
BY_HAND = {"cormack_jolly_seber": alive_summed,
           "jolly_seber_with_augmented_animals": entered_summed}
