"""Models of users of Stan, PyMC, brms and lme4 that combine what no other list combines: distribution
classes of one's own, masks, soft constraints, bounds that depend on each other, other units, one row.

Written before any of them was run, and not tuned to the answers. `new_truths.py` computes their
references (`eighth_truths.json`).
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from collection import PARALLEL, Collection, chain_log, logistic
from jax.scipy.special import gammaln, log_ndtr, logsumexp
from numpyro import deterministic, factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints, transforms
from numpyro.infer.reparam import LocScaleReparam

import probml

EIGHTH = Collection(2029, 8)
new, summed, rng = EIGHTH.new, EIGHTH.summed, EIGHTH.rng


# ---- distribution classes of one's own ------------------------------------------------------------


class Gompertz(dist.Distribution):
    """Ages at death whose log hazard is a line."""

    arg_constraints = {"rate": constraints.positive, "growth": constraints.positive}
    support = constraints.positive

    def __init__(self, rate, growth, *, validate_args=None):
        self.rate, self.growth = jnp.broadcast_arrays(rate, growth)
        super().__init__(batch_shape=jnp.shape(self.rate), validate_args=validate_args)

    def log_prob(self, value):
        return (jnp.log(self.rate) + self.growth * value
                - self.rate / self.growth * jnp.expm1(self.growth * value))

    def sample(self, key, sample_shape=()):
        u = jax.random.exponential(key, sample_shape + self.batch_shape)
        return jnp.log1p(self.growth / self.rate * u) / self.growth


R = rng(1)
STABLE = np.repeat(np.arange(6), 7)
AGE = np.log1p(0.8 / (0.05 * np.exp(R.normal(0, 0.5, 6)))[STABLE] * R.exponential(size=42)) / 0.8


@new(stable=STABLE, age=np.minimum(AGE, 4.0), dead=AGE < 4)
def horses_that_age(stable, age, dead):
    """A user's Gompertz class under a mask, those alive by a factor, frailties of stables."""
    m = sample("m", dist.Normal(-3, 1))
    growth = sample("growth", dist.LogNormal(0, 0.5))
    tau = sample("tau", dist.HalfNormal(0.7))
    with plate("stables", 6):
        u = sample("u", dist.Normal(m, tau))
    rate = jnp.exp(u)[stable]
    with plate("n", 42):
        with handlers.mask(mask=dead):
            sample("age", Gompertz(rate, growth), obs=age)
        factor("alive", jnp.where(dead, 0.0, -rate / growth * jnp.expm1(growth * age)))


class GeneralizedPoisson(dist.Distribution):
    """Consul's counts, with mean `rate` and variance rate / (1 − shift)²."""

    arg_constraints = {"rate": constraints.positive, "shift": constraints.unit_interval}
    support = constraints.nonnegative_integer

    def __init__(self, rate, shift, *, validate_args=None):
        self.rate, self.shift = jnp.broadcast_arrays(rate, shift)
        super().__init__(batch_shape=jnp.shape(self.rate), validate_args=validate_args)

    def log_prob(self, value):
        theta = self.rate * (1 - self.shift)
        total = theta + self.shift * value
        return jnp.log(theta) + (value - 1) * jnp.log(total) - total - gammaln(value + 1)

    def sample(self, key, sample_shape=()):
        return jax.random.poisson(key, self.rate, sample_shape + self.batch_shape)


R = rng(2)
FARM, DAYS = np.repeat(np.arange(7), 6), R.uniform(1, 4, 42)
GOATS = R.negative_binomial(3, 3 / (3 + DAYS * np.exp(0.6 + R.normal(0, 0.4, 7))[FARM]))


@new(farm=FARM, days=DAYS, kids=np.where(np.arange(42) % 9 == 4, np.nan, GOATS))
def counts_of_consul(farm, days):
    """A user's class of counts in rows, days as exposure, effects of farms, counts missing."""
    a = sample("a", dist.Normal(0, 1.5))
    shift = sample("shift", dist.Beta(1, 2))
    tau = sample("tau", dist.HalfNormal(0.7))
    with plate("farms", 7):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        sample("kids", GeneralizedPoisson(days * jnp.exp(a + u[farm]), shift))


@summed("counts_of_consul")
def counts_of_consul_by_hand(farm, days, kids):
    a = sample("a", dist.Normal(0, 1.5))
    shift = sample("shift", dist.Beta(1, 2))
    tau = sample("tau", dist.HalfNormal(0.7))
    with plate("farms", 7):
        u = sample("u", dist.Normal(0, tau))
    gone = jnp.isnan(kids)
    log = GeneralizedPoisson(days * jnp.exp(a + u[farm]), shift).log_prob(jnp.where(gone, 0.0, kids))
    factor("kids", jnp.where(gone, 0.0, log).sum())


# ---- masks, soft constraints, priors that read each other -----------------------------------------

R = rng(3)
DEPTH, WELL = R.uniform(0, 3, 45), np.repeat(np.arange(9), 5)
LEAD = np.exp(0.5 * DEPTH + R.normal(0, 0.5, 9)[WELL] + R.normal(0, 0.5, 45))


@new(well=WELL, depth=DEPTH, lead=np.log(np.maximum(LEAD, 1.0)), below=LEAD < 1.0)
def lead_below_the_limit(well, depth, lead, below):
    """(1 | well) under a limit of detection: exact ones by obs under Distribution.mask, the others by a factor."""
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("wells", 9):
        u = sample("u", dist.Normal(0, tau))
    mean = a + b * depth + u[well]
    with plate("n", 45):
        sample("lead", dist.Normal(mean, sigma).mask(~below), obs=lead)
        factor("limit", jnp.where(below, log_ndtr(-mean / sigma), 0.0))


R = rng(4)
TRACT = np.arange(12)
LEFT, RIGHT = np.arange(11), np.arange(1, 12)
HOUSES = R.uniform(1, 5, 12)


@new(houses=HOUSES, fires=R.poisson(HOUSES * np.exp(0.5 + np.sin(TRACT / 2))))
def fires_of_neighbours(houses, fires):
    """Stan's BYM2: an ICAR by factors with a soft sum to zero, and effects of tracts, one sd, one share."""
    a = sample("a", dist.Normal(0, 1))
    sigma = sample("sigma", dist.HalfNormal(1))
    rho = sample("rho", dist.Beta(1, 1))
    with plate("tracts", 12):
        theta = sample("theta", dist.Normal(0, 1))
        phi = sample("phi", dist.Normal(0, 10))
    factor("icar", -0.5 * ((phi[LEFT] - phi[RIGHT]) ** 2).sum())
    factor("soft", dist.Normal(0, 0.01 * 12).log_prob(phi.sum()))
    both = deterministic("both", jnp.sqrt(1 - rho) * theta + jnp.sqrt(rho / 1.4) * phi)
    with plate("n", 12):
        sample("fires", dist.Poisson(houses * jnp.exp(a + sigma * both)), obs=fires)


R = rng(5)
KIN, INCOME = np.repeat(np.arange(10), 4), R.normal(size=10)


@new(kin=KIN, income=INCOME, y=2 + INCOME[KIN] * 0.7 + (R.normal(size=10) * np.exp(0.4 * INCOME))[KIN]
     + R.normal(0, 1, 40))
def families_that_differ_in_spread(kin, income, y=None):
    """Effects whose mean and sd are regressions on an input of the group; an sd for odd families."""
    g = sample("g", dist.Normal(0, 2).expand([2]).to_event(1))
    h = sample("h", dist.Normal(0, 0.7).expand([2]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(2).expand([2]).to_event(1))
    with plate("families", 10):
        u = sample("u", dist.Normal(g[0] + g[1] * income, jnp.exp(h[0] + h[1] * income)))
    with plate("n", 40):
        sample("y", dist.Normal(u[kin], sigma[kin % 2]), obs=y)


R = rng(6)
WHO = np.repeat(np.arange(8), 6)
LOUD = R.normal(0, 0.5, 8)


@new(who=WHO, y=1 + LOUD[WHO] + np.exp(-0.5 + 0.8 * LOUD[WHO]) * R.normal(size=48))
def loud_people_vary(who, y=None):
    """One effect of a person stands in the mean and in the log sd of his readings."""
    a = sample("a", dist.Normal(0, 2))
    c = sample("c", dist.Normal(0, 1).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("people", 8):
        u = sample("u", dist.Normal(0, tau))
    with plate("n", 48):
        sample("y", dist.Normal(a + u[who], jnp.exp(c[0] + c[1] * u[who])), obs=y)


R = rng(7)


@new(y=R.uniform(2.0, 5.5, 12), lab=np.arange(12) % 3)
def bounds_that_depend_on_each_other(lab, y=None):
    """A uniform between two unknown bounds, of which the second begins at the first, shifted by labs."""
    low = sample("low", dist.Uniform(-5, 2.0))
    high = sample("high", dist.Uniform(low + 1, 12))
    tau = sample("tau", dist.HalfNormal(0.3))
    with plate("labs", 3):
        u = sample("u", dist.Normal(0, tau))
    with plate("n", 12):
        width = (high - low) / 4
        sample("y", dist.StudentT(5, (low + high) / 2 + u[lab], width), obs=y)


R = rng(8)
BATCH = np.repeat(np.arange(5), 6)


@new(batch=BATCH, purity=R.beta(20 * 0.8, 4, 30), steps=R.poisson(3, 30))
def purity_of_batches(batch, steps, purity=None):
    """Kumaraswamy outcomes; the median by effects of batches that are LogNormal about a shared scale."""
    tau = sample("tau", dist.InverseGamma(3, 1))
    b = sample("b", dist.Laplace(0, 0.2))
    m = sample("m", dist.Gumbel(1, 1))
    shape = sample("shape", dist.Gamma(4, 1))
    with plate("batches", 5):
        u = sample("u", dist.LogNormal(m, tau))
    with plate("n", 30):
        sample("purity", dist.Kumaraswamy(u[batch] * jnp.exp(b * steps), shape), obs=purity)


# ---- missing cells with outcomes that feed others -------------------------------------------------

R = rng(9)
SCHOOL = np.repeat(np.arange(6), 8)
READ1 = 5 + R.normal(0, 0.8, 6)[SCHOOL] + R.normal(size=48)
READ2 = 2 + 0.7 * READ1 + R.normal(0, 0.7, 48)


@new(school=SCHOOL, first=np.where(R.random(48) < 0.2, np.nan, READ1),
     second=np.where(R.random(48) < 0.2, np.nan, READ2))
def two_tests_with_holes(school):
    """The first test feeds the second, either may be missing, effects of schools in the first alone."""
    a = sample("a", dist.Normal(5, 3))
    b = sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfCauchy(1))
    sd = sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    with plate("schools", 6):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        first = sample("first", dist.Normal(a + u[school], sd[0]))
        sample("second", dist.Normal(b[0] + b[1] * first, sd[1]))


@summed("two_tests_with_holes")
def two_tests_with_holes_by_hand(school, first, second):
    a = sample("a", dist.Normal(5, 3))
    b = sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfCauchy(1))
    sd = sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    with plate("schools", 6):
        u = sample("u", dist.Normal(0, tau))
    mean, no1, no2 = a + u[school], jnp.isnan(first), jnp.isnan(second)
    x, y = jnp.where(no1, 0.0, first), jnp.where(no2, 0.0, second)
    log1 = dist.Normal(mean, sd[0]).log_prob(x)
    log2 = dist.Normal(b[0] + b[1] * jnp.where(no1, mean, x), jnp.sqrt(
        sd[1] ** 2 + jnp.where(no1, (b[1] * sd[0]) ** 2, 0.0))).log_prob(y)
    factor("tests", (jnp.where(no1, 0.0, log1) + jnp.where(no2, 0.0, log2)).sum())


R = rng(10)
SMOKES = (R.random(50) < 0.4).astype(float)
BIRTHS = 3.4 - 0.4 * SMOKES + R.normal(0, 0.4, 50)
MIDWIFE = np.arange(50) % 5


@new(midwife=MIDWIFE, smokes=np.where(R.random(50) < 0.25, np.nan, SMOKES), kilos=BIRTHS,
     early=np.where(R.random(50) < logistic(-8 + 2 * BIRTHS), 0.0, 1.0))
def smoking_mothers(midwife):
    """A yes or no with missing cells in the mean and the sd of one outcome and the odds of another; midwives."""
    share = sample("share", dist.Beta(2, 2))
    b = sample("b", dist.Normal(jnp.array([3.5, 0.0]), 1.0).to_event(1))
    s = sample("s", dist.LogNormal(-1, 0.5).expand([2]).to_event(1))
    c = sample("c", dist.Normal(0, 1.5).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("midwives", 5):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        smokes = sample("smokes", dist.Bernoulli(share))
        sample("kilos", dist.Normal(b[0] + b[1] * smokes, s[smokes]))
        sample("early", dist.Bernoulli(logits=c[0] + c[1] * smokes + u[midwife]))


@summed("smoking_mothers")
def smoking_mothers_summed(midwife, smokes, kilos, early):
    share = sample("share", dist.Beta(2, 2))
    b = sample("b", dist.Normal(jnp.array([3.5, 0.0]), 1.0).to_event(1))
    s = sample("s", dist.LogNormal(-1, 0.5).expand([2]).to_event(1))
    c = sample("c", dist.Normal(0, 1.5).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("midwives", 5):
        u = sample("u", dist.Normal(0, tau))
    x = jnp.arange(2)[:, None]
    log = (jnp.log(jnp.stack([1 - share, share]))[:, None]
           + dist.Normal(b[0] + b[1] * x, s[:, None]).log_prob(kilos)
           + dist.Bernoulli(logits=c[0] + c[1] * x + u[midwife]).log_prob(early))
    log = jnp.where(jnp.isnan(smokes) | (smokes == x), log, -jnp.inf)
    factor("rows", logsumexp(log, 0).sum())


R = rng(11)
PERSON, TRAIT = np.arange(30), R.normal(size=30)
ITEMS = (R.random((30, 6)) < logistic(TRAIT[:, None] - np.linspace(-1, 1, 6))).astype(float)


@new(wealth=TRAIT * 0.6 + R.normal(size=30), answer=np.where(R.random((30, 6)) < 0.15, np.nan, ITEMS))
def items_with_a_trait_by_wealth(wealth):
    """Rasch items in a plate inside rows, a trait with a regression and an unknown sd, answers missing."""
    g = sample("g", dist.Normal(0, 1))
    sd = sample("sd", dist.HalfNormal(1.5))
    spread = sample("spread", dist.HalfNormal(1))
    with plate("item", 6):
        easy = sample("easy", dist.Normal(0, spread))
    with probml.rows():
        trait = sample("trait", dist.Normal(g * wealth, sd))
        with plate("items", 6):
            sample("answer", dist.Bernoulli(logits=trait + easy[:, None]) if jnp.ndim(trait) else
                   dist.Bernoulli(logits=trait + easy))


@summed("items_with_a_trait_by_wealth")
def items_with_a_trait_by_wealth_by_hand(wealth, answer):
    g = sample("g", dist.Normal(0, 1))
    sd = sample("sd", dist.HalfNormal(1.5))
    spread = sample("spread", dist.HalfNormal(1))
    with plate("item", 6):
        easy = sample("easy", dist.Normal(0, spread))
    nodes, weights = np.polynomial.hermite_e.hermegauss(25)
    trait = g * wealth[:, None] + sd * nodes
    gone = jnp.isnan(answer)[:, None]
    log = dist.Bernoulli(logits=trait[..., None] + easy).log_prob(jnp.nan_to_num(answer)[:, None])
    log = jnp.where(gone, 0.0, log).sum(-1)
    factor("answers", logsumexp(log + jnp.log(weights / weights.sum()), -1).sum())


# ---- mixtures of rows -----------------------------------------------------------------------------

R = rng(12)
REEF, DEEP = np.repeat(np.arange(4), 15), R.normal(size=60)
KIND = R.random(60) < logistic(0.8 * DEEP)
FISH = np.where(KIND, 30 + 3 * DEEP, 20 - 1 * DEEP) + R.normal(0, 0.8, 4)[REEF] + R.normal(0, 1.2, 60)


@new(reef=REEF, deep=DEEP, size=np.where(np.arange(60) % 11 == 7, np.nan, FISH))
def fish_of_two_kinds_on_reefs(reef, deep):
    """A mixture of regressions whose weights are a regression too, effects of reefs, sizes missing."""
    w = sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    a = sample("a", dist.Normal(jnp.array([20.0, 30.0]), 2.0).to_event(1))
    b = sample("b", dist.Normal(0, 3).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("reefs", 4):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        kind = sample("kind", dist.Bernoulli(logits=w[0] + w[1] * deep))
        sample("size", dist.Normal(a[kind] + b[kind] * deep + u[reef], sigma))


@summed("fish_of_two_kinds_on_reefs")
def fish_of_two_kinds_on_reefs_summed(reef, deep, size):
    w = sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    a = sample("a", dist.Normal(jnp.array([20.0, 30.0]), 2.0).to_event(1))
    b = sample("b", dist.Normal(0, 3).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("reefs", 4):
        u = sample("u", dist.Normal(0, tau))
    gone = jnp.isnan(size)
    log = dist.Normal(a[:, None] + b[:, None] * deep + u[reef], sigma).log_prob(jnp.where(gone, 25.0, size))
    eta = w[0] + w[1] * deep
    log = logsumexp(log + jnp.stack([-jax.nn.softplus(eta), -jax.nn.softplus(-eta)]), 0)
    factor("size", jnp.where(gone, 0.0, log).sum())


R = rng(13)
SECONDS = np.where(R.random(50) < 0.2, R.uniform(0, 10, 50), R.weibull(2, 50) * 3)


@new(seconds=np.minimum(SECONDS, 6.0))
def guesses_among_answers(seconds):
    """Contaminated and cut: a share of answers is uniform on 0 to 10, times end at 6; a weight of each row."""
    guess = sample("guess", dist.Beta(1, 3))
    scale = sample("scale", dist.LogNormal(1, 0.5))
    shape = sample("shape", dist.LogNormal(0.5, 0.4))
    own = dist.Weibull(scale, shape)
    seen = jnp.logaddexp(jnp.log(guess) - jnp.log(10.0), jnp.log1p(-guess) + own.log_prob(seconds))
    late = jnp.logaddexp(jnp.log(guess * 0.4), jnp.log1p(-guess) - (6 / scale) ** shape)
    with plate("n", 50):
        factor("seconds", jnp.where(seconds >= 6, late, seen) * jnp.where(jnp.arange(50) < 25, 1.0, 0.5))


R = rng(14)
WEEK = R.poisson(np.where(R.random((8, 12)) < 0.3, 9, 2))


@new(sick=WEEK)
def outbreaks_by_a_mixture_of_weeks(sick):
    """A mixture in a plate of a plate: weeks of hospitals are outbreaks; rates of hospitals, ordered by a ratio."""
    share = sample("share", dist.Beta(2, 4))
    m = sample("m", dist.Normal(0.7, 0.5))
    tau = sample("tau", dist.HalfNormal(0.4))
    more = sample("more", dist.LogNormal(0.2, 0.4))
    with plate("hospitals", 8, dim=-2):
        level = sample("level", dist.Normal(m, tau))
        with plate("weeks", 12, dim=-1):
            out = sample("out", dist.Bernoulli(share), infer=PARALLEL)
            sample("sick", dist.Poisson(jnp.exp(level + more * out)), obs=sick)


@summed("outbreaks_by_a_mixture_of_weeks")
def outbreaks_by_a_mixture_of_weeks_summed(sick):
    share = sample("share", dist.Beta(2, 4))
    m = sample("m", dist.Normal(0.7, 0.5))
    tau = sample("tau", dist.HalfNormal(0.4))
    more = sample("more", dist.LogNormal(0.2, 0.4))
    with plate("hospitals", 8, dim=-2):
        level = sample("level", dist.Normal(m, tau))
    log = [dist.Poisson(jnp.exp(level + more * k)).log_prob(sick) for k in (0, 1)]
    factor("sick", jnp.logaddexp(jnp.log1p(-share) + log[0], jnp.log(share) + log[1]).sum())


# ---- hidden chains --------------------------------------------------------------------------------

R = rng(15)


def _walks(r, n, t, stay):
    z = np.zeros((n, t), int)
    z[:, 0] = r.integers(0, 2, n)
    for k in range(1, t):
        z[:, k] = np.where(r.random(n) < np.array(stay)[z[:, k - 1]], z[:, k - 1], 1 - z[:, k - 1])
    return z


PULSE = np.array([0.0, 2.5])[_walks(R, 7, 12, (0.85, 0.8))] + R.standard_t(4, (7, 12)) * 0.6
SITTING = np.where(np.arange(7) % 2 == 0, 1.0, 0.0)


@new(sitting=SITTING, pulse=np.where(R.random((7, 12)) < 0.1, np.nan, PULSE))
def pulses_by_posture(sitting):
    """A chain whose transitions are logistic in an input of the row, Student emissions, cells missing."""
    eta = sample("eta", dist.Normal(1.5, 0.7).expand([2]).to_event(1))
    gamma = sample("gamma", dist.Normal(0, 0.7))
    mean = sample("mean", dist.Normal(jnp.array([0.0, 2.5]), 0.7).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with probml.rows():
        stay = jax.nn.sigmoid(eta + gamma * sitting[..., None])
        turn = jnp.stack([jnp.stack([stay[..., 0], 1 - stay[..., 0]], -1),
                          jnp.stack([1 - stay[..., 1], stay[..., 1]], -1)], -2)
        z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]), turn))
        sample("pulse", dist.StudentT(4.0, mean[z], sigma).to_event(1))


@summed("pulses_by_posture")
def pulses_by_posture_summed(sitting, pulse):
    eta = sample("eta", dist.Normal(1.5, 0.7).expand([2]).to_event(1))
    gamma = sample("gamma", dist.Normal(0, 0.7))
    mean = sample("mean", dist.Normal(jnp.array([0.0, 2.5]), 0.7).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    stay = jax.nn.sigmoid(eta + gamma * sitting[:, None])
    turn = jnp.stack([jnp.stack([stay[:, 0], 1 - stay[:, 0]], -1),
                      jnp.stack([1 - stay[:, 1], stay[:, 1]], -1)], -2)
    gone = jnp.isnan(pulse)[..., None]
    log = dist.StudentT(4.0, mean, sigma).log_prob(jnp.nan_to_num(pulse)[..., None])
    log = jnp.where(gone, 0.0, log)
    factor("pulse", jax.vmap(lambda one, own: chain_log(one, jnp.array([0.5, 0.5]), own))(log, turn).sum())


R = rng(16)
ASLEEP = _walks(R, 1, 60, (0.9, 0.85))[0]
LIGHT = np.sin(np.arange(60) / 6)


@new(light=LIGHT, moves=R.poisson(np.where(ASLEEP == 1, 0.5, np.exp(1.2 + 0.4 * LIGHT))))
def a_sleeper_by_scan(light, moves):
    """A chain by scan with enumeration, negative binomial counts with an input in one state."""
    stay = sample("stay", dist.Beta(8, 2).expand([2]).to_event(1))
    a = sample("a", dist.Normal(jnp.array([1.0, -1.0]), 0.5).to_event(1))
    b = sample("b", dist.Normal(0, 0.5))
    k = sample("k", dist.Gamma(4, 0.5))
    turn = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])

    def step(z, now):
        own, count = now
        z = sample("z", dist.Categorical(turn[z]), infer=PARALLEL)
        rate = jnp.exp(a[z] + jnp.where(z == 0, b * own, 0.0))
        sample("moves", dist.NegativeBinomial2(rate, k), obs=count)
        return z, None

    scan(step, 0, (jnp.asarray(light), jnp.asarray(moves)))


@summed("a_sleeper_by_scan")
def a_sleeper_by_scan_summed(light, moves):
    stay = sample("stay", dist.Beta(8, 2).expand([2]).to_event(1))
    a = sample("a", dist.Normal(jnp.array([1.0, -1.0]), 0.5).to_event(1))
    b = sample("b", dist.Normal(0, 0.5))
    k = sample("k", dist.Gamma(4, 0.5))
    turn = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])
    rate = jnp.exp(a + b * light[:, None] * jnp.array([1.0, 0.0]))
    log = dist.NegativeBinomial2(rate, k).log_prob(moves[:, None])
    factor("moves", chain_log(log, turn[0], turn))


# ---- other units, shifted columns, one row --------------------------------------------------------

R = rng(17)
CITY, YEAR = np.repeat(np.arange(6), 7), np.tile(np.arange(1990.0, 2025, 5), 6)
PEOPLE = 1e6 * (2 + R.normal(0, 0.5, 6)[CITY] + (0.02 + R.normal(0, 0.01, 6)[CITY]) * (YEAR - 2005)
                + R.normal(0, 0.1, 42))


@new(city=CITY, year=YEAR, people=PEOPLE)
def cities_that_grow(city, year, people=None):
    """Millions of people, a slope of each city on the year as it is, Student errors."""
    a = sample("a", dist.Normal(0, 1e8))
    b = sample("b", dist.Normal(0, 1e5))
    tau = sample("tau", dist.HalfNormal(1e6))
    omega = sample("omega", dist.HalfNormal(5e4))
    sigma = sample("sigma", dist.HalfCauchy(1e6))
    with plate("cities", 6):
        u = sample("u", dist.Normal(0, tau))
        v = sample("v", dist.Normal(0, omega))
    with plate("n", 42):
        sample("people", dist.StudentT(5.0, a + u[city] + b * year + v[city] * (year - 2005), sigma), obs=people)


R = rng(18)
DYE, LANE = np.tile(np.arange(3), 12), np.repeat(np.arange(6), 6)
LUX = 1e-6 * (3 + R.normal(0, 0.6, 6)[LANE] + np.array([0, 1, 2.0])[DYE]) * np.exp(R.normal(0, 0.1, 36))


@new(dye=DYE, lane=LANE, grams=np.where(np.arange(36) % 10 == 3, np.nan, LUX))
def micrograms_of_dye(dye, lane):
    """Micrograms in grams: effects of lanes, errors in proportion to the mean, missing outcomes."""
    a = sample("a", dist.Normal(3e-6, 3e-6).expand([3]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1e-6))
    cv = sample("cv", dist.HalfNormal(0.3))
    with plate("lanes", 6):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        mean = a[dye] + u[lane]
        sample("grams", dist.Normal(mean, cv * jnp.abs(mean)))


@summed("micrograms_of_dye")
def micrograms_of_dye_by_hand(dye, lane, grams):
    """In micrograms and not centred, so that chains begin where the means are positive."""
    x = sample("x", dist.Normal(0, 1).expand([3]).to_event(1))
    many = sample("many", dist.HalfNormal(1))
    cv = sample("cv", dist.HalfNormal(0.3))
    with plate("lanes", 6):
        z = sample("z", dist.Normal(0, 1))
    deterministic("a", (3 + 3 * x) * 1e-6)
    deterministic("tau", many * 1e-6)
    deterministic("u", many * z * 1e-6)
    mean, gone = (3 + 3 * x)[dye] + many * z[lane], jnp.isnan(grams)
    log = dist.Normal(mean, cv * jnp.abs(mean)).log_prob(jnp.where(gone, 0.0, grams * 1e6))
    factor("grams", jnp.where(gone, 0.0, log).sum())


@new(cured=np.array([7.0]), treated=np.array([9]))
def one_trial_of_nine(treated, cured=None):
    """A single row: a rate whose logit has an unknown mean and an unknown sd, and a binomial count."""
    m = sample("m", dist.Normal(0, 1))
    sd = sample("sd", dist.HalfNormal(1))
    with plate("n", 1):
        eta = sample("eta", dist.StudentT(4.0, m, sd))
        deterministic("rate", jax.nn.sigmoid(eta))
        sample("cured", dist.Binomial(treated, logits=eta), obs=cured)


R = rng(19)


@new(kelvin=np.array([290.0, 291, 289, 295, 300, 302, 299, 305]), bar=np.repeat([1.0, 1.02], 4) * 1e5,
     rate=np.array([1.1, 1.2, 1.0, 1.6, 2.4, 2.7, 2.2, 3.3]) * 1e-9)
def arrhenius_in_si(kelvin, bar, rate=None):
    """Eight rows in SI units: an activation energy, log-normal errors by ExpTransform, two shifted inputs."""
    log_a = sample("log_a", dist.Normal(10, 20))
    energy = sample("energy", dist.Gamma(4, 4 / 6e4))
    order = sample("order", dist.Normal(1, 0.5))
    sigma = sample("sigma", dist.HalfNormal(0.2))
    mean = log_a - energy / (8.314 * kelvin) + order * jnp.log(bar / 1e5)
    with plate("n", 8):
        sample("rate", dist.TransformedDistribution(dist.Normal(mean - 20, sigma), transforms.ExpTransform()),
               obs=rate)


# ---- effects that are not normal, or that are read in unusual ways --------------------------------

R = rng(21)
TEAM = np.repeat(np.arange(10), 4)


@new(team=TEAM, day=np.tile(np.arange(4.0), 10), ill=np.where(np.arange(40) % 13 == 5, np.nan, R.poisson(
    np.exp(0.3 + (R.standard_t(3, 10) * 0.5)[TEAM] + 0.2 * np.tile(np.arange(4.0), 10)))))
def teams_with_heavy_tails(team, day):
    """Student effects of teams, an effect of each row as well (log-normal Poisson), counts missing."""
    a = sample("a", dist.Normal(0, 1))
    b = sample("b", dist.Normal(0, 0.5))
    nu = sample("nu", dist.Gamma(2, 0.1))
    tau = sample("tau", dist.HalfNormal(0.7))
    own = sample("own", dist.HalfNormal(0.5))
    with plate("teams", 10):
        u = sample("u", dist.StudentT(nu, 0, tau))
    with probml.rows():
        e = sample("e", dist.Normal(0, 1))
        sample("ill", dist.Poisson(jnp.exp(a + b * day + u[team] + own * e)))


@summed("teams_with_heavy_tails")
def teams_with_heavy_tails_by_hand(team, day, ill):
    a = sample("a", dist.Normal(0, 1))
    b = sample("b", dist.Normal(0, 0.5))
    nu = sample("nu", dist.Gamma(2, 0.1))
    tau = sample("tau", dist.HalfNormal(0.7))
    own = sample("own", dist.HalfNormal(0.5))
    with plate("teams", 10):
        u = sample("u", dist.StudentT(nu, 0, tau))
    nodes, weights = np.polynomial.hermite_e.hermegauss(25)
    gone = jnp.isnan(ill)
    rate = jnp.exp((a + b * day + u[team])[:, None] + own * nodes)
    log = dist.Poisson(rate).log_prob(jnp.nan_to_num(ill)[:, None])
    log = logsumexp(log + jnp.log(weights / weights.sum()), -1)
    factor("ill", jnp.where(gone, 0.0, log).sum())


R = rng(22)
SITE = np.repeat(np.arange(12), 4)


@new(site=SITE, y=np.where(np.arange(12) < 4, 3.0, 0.0)[SITE] + R.normal(0, 0.5, 12)[SITE] + R.normal(0, 1, 48))
def effects_of_two_clusters(site, y=None):
    """Effects of sites from a mixture (MixtureSameFamily) of two normals in order; skew errors of Gumbel."""
    share = sample("share", dist.Dirichlet(jnp.array([2.0, 4.0])))
    place = sample("place", dist.Normal(jnp.array([3.0, 0.0]), 0.7).to_event(1))
    wide = sample("wide", dist.LogNormal(-0.5, 0.5).expand([2]).to_event(1))
    beta = sample("beta", dist.LogNormal(0, 0.5))
    with plate("sites", 12):
        u = sample("u", dist.MixtureSameFamily(dist.Categorical(share), dist.Normal(place, wide)))
    with plate("n", 48):
        sample("y", dist.Gumbel(u[site], beta), obs=y)


R = rng(23)
POND, HOURS = np.repeat(np.arange(6), 6), np.tile([0.5, 1, 2, 4, 6, 9], 6)
DECAY = np.abs(R.normal(0.4, 0.15, 6))


@new(pond=POND, hours=HOURS, oxygen=8 * np.exp(-DECAY[POND] * HOURS) + 1 + R.normal(0, 0.3, 36))
def decay_of_ponds(pond, hours, oxygen=None):
    """Decay rates of ponds are normal truncated at 0, asymptote flat above 0, errors grow with the mean."""
    start = sample("start", dist.LogNormal(2, 0.5))
    rest = sample("rest", dist.ImproperUniform(constraints.positive, (), ()))
    m = sample("m", dist.HalfNormal(1))
    tau = sample("tau", dist.HalfNormal(0.3))
    s = sample("s", dist.HalfNormal(0.5))
    power = sample("power", dist.Beta(2, 2))
    with plate("ponds", 6):
        k = sample("k", dist.TruncatedNormal(m, tau, low=0.0))
    mean = rest + start * jnp.exp(-k[pond] * hours)
    with plate("n", 36):
        sample("oxygen", dist.Normal(mean, s * mean**power), obs=oxygen)


R = rng(24)
PANEL, WINE = np.repeat(np.arange(8), 5), np.tile(np.arange(5), 8)
NOTE = 3 + R.normal(0, 0.6, 8)[PANEL] + np.array([-1, -0.5, 0, 0.5, 1])[WINE] * R.lognormal(0, 0.3, 8)[PANEL]


@new(panel=PANEL, wine=WINE, note=NOTE + R.normal(0, 0.4, 40))
def judges_stretch_the_scale(panel, wine, note=None):
    """Effects of wines that sum to 0 times a LogNormal stretch of each judge, besides levels, non-centred by a handler."""
    a = sample("a", dist.Normal(3, 1))
    tau = sample("tau", dist.HalfNormal(1).expand([2]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("judges", 8):
        with handlers.reparam(config={"u": LocScaleReparam(0)}):
            u = sample("u", dist.Normal(a, tau[0]))
        stretch = sample("stretch", dist.LogNormal(0, 0.4))
    w = sample("w", dist.ZeroSumNormal(tau[1], event_shape=(5,)))
    with plate("n", 40):
        sample("note", dist.Normal(u[panel] + stretch[panel] * w[wine], sigma), obs=note)


R = rng(25)
TEST = np.arange(9)
ILL, WELL_N = R.integers(15, 50, 9), R.integers(15, 50, 9)
TRUE2 = R.multivariate_normal([1.5, 2.0], [[0.5, -0.25], [-0.25, 0.4]], 9)


@new(ill=ILL, well=WELL_N, blind=np.arange(9) % 2, hits=R.binomial(ILL, logistic(TRUE2[:, 0])),
     clear=R.binomial(WELL_N, logistic(TRUE2[:, 1])))
def accuracy_of_a_test(ill, well, blind, hits=None, clear=None):
    """Reitsma's bivariate meta-analysis: correlated logits by LKJ, two binomials a study, an input of both."""
    m = sample("m", dist.Normal(0, 2).expand([2]).to_event(1))
    b = sample("b", dist.Normal(0, 1))
    sd = sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 2.0))
    with plate("studies", 9):
        eta = sample("eta", dist.MultivariateNormal(m, scale_tril=sd[:, None] * lower))
        logits = eta + b * blind[:, None]
        sample("hits", dist.Binomial(ill, logits=logits[:, 0]), obs=hits)
        sample("clear", dist.Binomial(well, logits=logits[:, 1]), obs=clear)


# ---- curves and walks -----------------------------------------------------------------------------

R = rng(26)
TREE, HEIGHT = np.repeat(np.arange(5), 9), np.sort(R.uniform(0, 1, 45))
BASIS = np.stack([np.clip(HEIGHT - k, 0, None) for k in (0.2, 0.4, 0.6, 0.8)], 1)
LEAF = R.gamma(4, np.exp(0.5 + np.sin(4 * HEIGHT) + R.normal(0, 0.3, 5)[TREE % 5]) / 4)


@new(tree=R.permutation(TREE), side=np.arange(45) % 3, height=HEIGHT, basis=BASIS, leaf=LEAF)
def leaves_along_a_trunk(tree, side, height, basis, leaf=None):
    """Gamma outcomes: a penalised broken line and crossed effects, all sds by half-t priors."""
    a = sample("a", dist.Normal(0, 2).expand([2]).to_event(1))
    sd = sample("sd", dist.FoldedDistribution(dist.StudentT(3.0, 0.0, 1.0)).expand([3]).to_event(1))
    shape = sample("shape", dist.Gamma(2, 0.5))
    z = sample("z", dist.Normal(0, 1).expand([4]).to_event(1))
    with plate("trees", 5):
        u = sample("u", dist.Normal(0, sd[1]))
    with plate("sides", 3):
        v = sample("v", dist.Normal(0, sd[2]))
    eta = a[0] + a[1] * height + basis @ (sd[0] * z) + u[tree] + v[side]
    with plate("n", 45):
        sample("leaf", dist.Gamma(shape, shape * jnp.exp(-eta)), obs=leaf)


R = rng(27)
T27 = np.linspace(0, 1, 50)
SINES = np.stack([np.sin(np.pi * k * T27) for k in range(1, 6)], 1)
BOATS = R.integers(1, 6, 50).astype(float)


@new(sines=SINES, boats=BOATS, whales=np.where(R.random(50) < 0.3, 0, R.poisson(
    BOATS * np.exp(0.3 + np.sin(6 * T27)))))
def whales_along_a_year(sines, boats, whales=None):
    """A Gaussian process by five sines under zero inflation, boats as exposure, an unknown length scale."""
    a = sample("a", dist.Normal(0, 1))
    alpha = sample("alpha", dist.HalfNormal(1))
    ell = sample("ell", dist.InverseGamma(3, 0.6))
    gate = sample("gate", dist.Beta(2, 4))
    z = sample("z", dist.Normal(0, 1).expand([5]).to_event(1))
    density = jnp.sqrt(alpha**2 * jnp.sqrt(2 * jnp.pi) * ell
                       * jnp.exp(-0.5 * (ell * jnp.pi * jnp.arange(1, 6)) ** 2))
    curve = deterministic("curve", a + sines @ (density * z))
    with plate("n", 50):
        sample("whales", dist.ZeroInflatedDistribution(dist.Poisson(boats * jnp.exp(curve)), gate=gate), obs=whales)


@summed("whales_along_a_year")
def whales_without_a_root_of_zero(sines, boats, whales):
    """The same density; its gradient is a number also where an amplitude is 0 in float64."""
    a = sample("a", dist.Normal(0, 1))
    alpha = sample("alpha", dist.HalfNormal(1))
    ell = sample("ell", dist.InverseGamma(3, 0.6))
    gate = sample("gate", dist.Beta(2, 4))
    z = sample("z", dist.Normal(0, 1).expand([5]).to_event(1))
    size = alpha * (2 * jnp.pi) ** 0.25 * jnp.sqrt(ell) * jnp.exp(-0.25 * (ell * jnp.pi * jnp.arange(1, 6)) ** 2)
    curve = deterministic("curve", a + sines @ (size * z))
    sample("whales", dist.ZeroInflatedPoisson(gate, boats * jnp.exp(curve)), obs=whales)


R = rng(28)
STATE, POLL = np.repeat(np.arange(4), 10), np.tile(np.arange(10), 4)
ASKED = R.integers(20, 60, 40)


@new(state=STATE, poll=POLL, asked=ASKED, yes=np.where(np.arange(40) % 7 == 2, np.nan, R.binomial(
    ASKED, logistic(np.cumsum(R.normal(0, 0.15, (4, 10)), 1) + R.normal(0, 0.5, 4)[:, None]).ravel())))
def polls_that_walk_in_states(state, poll, asked):
    """A walk of each state (GaussianRandomWalk in a plate) about a level, binomial polls in rows, some missing."""
    step = sample("step", dist.HalfNormal(0.3))
    tau = sample("tau", dist.HalfNormal(1))
    m = sample("m", dist.Normal(0, 1))
    with plate("states", 4):
        level = sample("level", dist.Normal(m, tau))
        walk = sample("walk", dist.GaussianRandomWalk(step, num_steps=10))
    with probml.rows():
        sample("yes", dist.Binomial(asked, logits=level[state] + walk[state, poll]))


@summed("polls_that_walk_in_states")
def polls_that_walk_in_states_by_hand(state, poll, asked, yes):
    step = sample("step", dist.HalfNormal(0.3))
    tau = sample("tau", dist.HalfNormal(1))
    m = sample("m", dist.Normal(0, 1))
    with plate("states", 4):
        own = sample("own", dist.Normal(0, 1))
        z = sample("z", dist.Normal(0, 1).expand([10]).to_event(1))
    level = deterministic("level", m + tau * own)
    walk = deterministic("walk", step * jnp.cumsum(z, -1))
    gone = jnp.isnan(yes)
    log = dist.Binomial(asked, logits=level[state] + walk[state, poll]).log_prob(jnp.nan_to_num(yes))
    factor("yes", jnp.where(gone, 0.0, log).sum())


R = rng(29)
ARM = np.arange(40) % 2
LIVES = R.exponential(1 / (0.3 * np.exp(-0.6 * ARM)))
ENDS = np.array([1.0, 2, 4, 7])
STAYED = np.clip(np.minimum(LIVES, 7)[:, None] - np.r_[0, ENDS[:-1]], 0, np.diff(np.r_[0, ENDS]))
DIED = ((LIVES[:, None] <= ENDS) & (LIVES[:, None] > np.r_[0, ENDS[:-1]])).astype(float)


@new(arm=ARM, ward=np.repeat(np.arange(8), 5), stayed=STAYED, died=DIED)
def piecewise_hazards_with_frailty(arm, ward, stayed, died):
    """Log hazards of four periods walk; Poisson pseudo-counts under a mask; gamma frailties of wards."""
    first = sample("first", dist.Normal(-1, 1))
    step = sample("step", dist.HalfNormal(0.5))
    b = sample("b", dist.Normal(0, 1))
    inv = sample("inv", dist.HalfNormal(1))
    with plate("periods", 3):
        z = sample("z", dist.Normal(0, 1))
    log_h = first + step * jnp.concatenate([jnp.zeros(1), jnp.cumsum(z)])
    with plate("wards", 8):
        frail = sample("frail", dist.Gamma(1 / inv, 1 / inv))
    rate = jnp.exp(log_h + b * arm[:, None]) * frail[ward][:, None] * stayed
    at_risk = stayed > 0
    with plate("periods_", 4, dim=-1), plate("n", 40, dim=-2), handlers.mask(mask=at_risk):
        sample("died", dist.Poisson(jnp.where(at_risk, rate, 1.0)), obs=died)


# ---- vectors, simplexes, more than one outcome ----------------------------------------------------

R = rng(30)
LAKE, SALT = np.repeat(np.arange(6), 5), R.normal(size=30)
MIX = np.stack([R.multinomial(20, p) for p in (lambda e: e / e.sum(1, keepdims=True))(np.exp(
    np.stack([np.zeros(30), 0.5 * SALT, -0.3 + R.normal(0, 0.5, 6)[LAKE]], 1)))])


@new(lake=LAKE, salt=SALT, caught=MIX)
def species_in_lakes(lake, salt, caught=None):
    """Multinomial logit of counts whose effects of lakes are a simplex's logits with their own sds, reference by pad."""
    a = sample("a", dist.Normal(0, 1.5).expand([2]).to_event(1))
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1).expand([2]).to_event(1))
    with plate("lakes", 6):
        u = sample("u", dist.Normal(0, tau).to_event(1))
    eta = jnp.pad(a + b * salt[:, None] + u[lake], ((0, 0), (1, 0)))
    with plate("n", 30):
        sample("caught", dist.Multinomial(total_count=20, logits=eta), obs=caught)


R = rng(31)
SOIL = np.arange(24) % 4
PARTS = R.dirichlet([6, 3, 2], 24)


@new(soil=SOIL, deep=np.linspace(-1, 1, 24), parts=np.where((np.arange(24) % 7 == 3)[:, None], np.nan, PARTS))
def sand_silt_and_clay(soil, deep):
    """Dirichlet regression with a simplex parameter as the base, effects of soils, whole vectors missing."""
    base = sample("base", dist.Dirichlet(jnp.ones(3)))
    b = sample("b", dist.Normal(0, 0.5).expand([3]).to_event(1))
    tau = sample("tau", dist.HalfNormal(0.5))
    phi = sample("phi", dist.LogNormal(2.5, 0.7))
    with plate("soils", 4):
        u = sample("u", dist.Normal(0, tau).expand([3]).to_event(1))
    with probml.rows():
        share = jax.nn.softmax(jnp.log(base) + b * deep[..., None] + u[soil], -1)
        sample("parts", dist.Dirichlet(phi * share))


@summed("sand_silt_and_clay")
def sand_silt_and_clay_by_hand(soil, deep, parts):
    base = sample("base", dist.Dirichlet(jnp.ones(3)))
    b = sample("b", dist.Normal(0, 0.5).expand([3]).to_event(1))
    tau = sample("tau", dist.HalfNormal(0.5))
    phi = sample("phi", dist.LogNormal(2.5, 0.7))
    with plate("soils", 4):
        u = sample("u", dist.Normal(0, tau).expand([3]).to_event(1))
    share = jax.nn.softmax(jnp.log(base) + b * deep[:, None] + u[soil], -1)
    gone = jnp.isnan(parts[:, 0])
    log = dist.Dirichlet(phi * share).log_prob(jnp.where(gone[:, None], 1 / 3, parts))
    factor("parts", jnp.where(gone, 0.0, log).sum())


R = rng(32)
REGION = np.repeat(np.arange(8), 6)
PRONE = R.normal(0, 0.7, 8)
CLAIM = R.random(48) < logistic(-0.2 + PRONE)[REGION]


@new(region=REGION, cost=np.where(CLAIM, R.gamma(2, np.exp(1 + 0.8 * PRONE)[REGION] / 2), 0.0))
def claims_of_regions(region, cost):
    """Hurdle gamma whose two parts share an effect with a loading, by factor; sums in thousands and a deductible."""
    a = sample("a", dist.Normal(0, 1.5).expand([2]).to_event(1))
    load = sample("load", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    shape = sample("shape", dist.LogNormal(0.5, 0.5))
    with plate("regions", 8):
        u = sample("u", dist.Normal(0, tau))
    eta, mean = a[0] + u[region], jnp.exp(a[1] + load * u[region])
    some = cost > 0
    amount = dist.Gamma(shape, shape / mean).log_prob(jnp.where(some, cost, 1.0))
    with plate("n", 48):
        sample("claim", dist.Bernoulli(logits=eta), obs=some.astype(jnp.int32))
        factor("cost", jnp.where(some, amount, 0.0))


R = rng(33)
FIELD = np.repeat(np.arange(7), 6)
HAY = R.normal(1, 0.3, 7)
GRAIN = 3 + HAY[FIELD] + 0.3 * R.normal(size=42) - np.abs(R.normal(0, 0.6, 42))


@new(field=FIELD, water=R.normal(size=42), grain=np.where(np.arange(42) % 12 == 6, np.nan, GRAIN))
def a_frontier_of_fields(field, water):
    """Stochastic frontier in rows: a half-normal loss of each row, normal effects of fields, outcomes missing."""
    a = sample("a", dist.Normal(3, 2))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    loss = sample("loss", dist.LogNormal(-0.5, 0.5))
    sigma = sample("sigma", dist.LogNormal(-1, 0.5))
    with plate("fields", 7):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        v = sample("v", dist.HalfNormal(loss))
        sample("grain", dist.Normal(a + b * water + u[field] - v, sigma))


@summed("a_frontier_of_fields")
def a_frontier_of_fields_by_hand(field, water, grain):
    a = sample("a", dist.Normal(3, 2))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    loss = sample("loss", dist.LogNormal(-0.5, 0.5))
    sigma = sample("sigma", dist.LogNormal(-1, 0.5))
    with plate("fields", 7):
        u = sample("u", dist.Normal(0, tau))
    gone = jnp.isnan(grain)
    e = jnp.nan_to_num(grain) - a - b * water - u[field]
    both = jnp.sqrt(loss**2 + sigma**2)
    log = jnp.log(2.0) + dist.Normal(0, both).log_prob(e) + log_ndtr(-e * loss / sigma / both)
    factor("grain", jnp.where(gone, 0.0, log).sum())


R = rng(34)
BOX, SOWN = np.repeat(np.arange(6), 5), R.integers(5, 15, 30)
GERM = R.beta(*(4 * np.stack([logistic(R.normal(0, 0.6, 6)), logistic(-R.normal(0, 0.6, 6))])[:, BOX]))


@new(box=BOX, sown=SOWN, warm=np.arange(30) % 2, grew=np.where(np.arange(30) % 8 == 1, np.nan, R.binomial(SOWN, GERM)))
def seeds_with_a_chance_of_each_row(box, sown, warm):
    """A Beta chance of each row by mean and size, whose mean has effects of boxes; counts missing."""
    a = sample("a", dist.Normal(0, 1))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(0.7))
    size = sample("size", dist.LogNormal(1.5, 0.7))
    with plate("boxes", 6):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        mean = jax.nn.sigmoid(a + b * warm + u[box])
        p = sample("p", dist.Beta(mean * size, (1 - mean) * size))
        sample("grew", dist.Binomial(sown, p))


@summed("seeds_with_a_chance_of_each_row")
def seeds_with_a_chance_of_each_row_by_hand(box, sown, warm, grew):
    a = sample("a", dist.Normal(0, 1))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(0.7))
    size = sample("size", dist.LogNormal(1.5, 0.7))
    with plate("boxes", 6):
        u = sample("u", dist.Normal(0, tau))
    mean = jax.nn.sigmoid(a + b * warm + u[box])
    gone = jnp.isnan(grew)
    log = dist.BetaBinomial(mean * size, (1 - mean) * size, sown).log_prob(jnp.nan_to_num(grew))
    factor("grew", jnp.where(gone, 0.0, log).sum())


R = rng(35)
BLOCK = (np.arange(8) >= 4).astype(int)
PAIRS = np.array([(i, j) for i in range(8) for j in range(i)])
TIES = (R.random(28) < np.where(BLOCK[PAIRS[:, 0]] == BLOCK[PAIRS[:, 1]], 0.8, 0.15)).astype(float)


@new(one=PAIRS[:, 0], two=PAIRS[:, 1], tie=TIES)
def two_blocks_of_friends(one, two, tie=None):
    """A block model: a hidden kind of each node, ties of pairs depend on both; the first node is of kind 0."""
    within = sample("within", dist.Beta(4, 2))
    between = sample("between", dist.Beta(2, 4))
    with plate("nodes", 8):
        kind = sample("kind", dist.Bernoulli(0.5), infer=PARALLEL)
    with plate("pairs", 28):
        same = kind[one] == kind[two]
        sample("tie", dist.Bernoulli(jnp.where(same, within, between)), obs=tie)


@summed("two_blocks_of_friends")
def two_blocks_of_friends_summed(one, two, tie):
    within = sample("within", dist.Beta(4, 2))
    between = sample("between", dist.Beta(2, 4))
    kinds = jnp.asarray((np.arange(256)[:, None] >> np.arange(8)) & 1)
    same = kinds[:, one] == kinds[:, two]
    log = dist.Bernoulli(jnp.where(same, within, between)).log_prob(tie).sum(-1)
    factor("tie", logsumexp(log) - 8 * jnp.log(2.0))


R = rng(36)
STORM = np.repeat(np.arange(5), 12)
BREAK = R.integers(3, 9, 5)
COUNTS36 = R.negative_binomial(4, 4 / (4 + np.exp(np.where(np.tile(np.arange(12), 5) < BREAK[STORM], 0.5, 1.7))))


@new(river=STORM, month=np.tile(np.arange(12), 5), floods=COUNTS36)
def rivers_that_change_at_once(river, month, floods=None):
    """One hidden month of change for all, a jump of each river about a mean, negative binomial counts."""
    a = sample("a", dist.Normal(0.5, 1))
    m = sample("m", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    k = sample("k", dist.Exponential(0.2))
    when = sample("when", dist.DiscreteUniform(1, 11), infer=PARALLEL)
    with plate("rivers", 5):
        jump = sample("jump", dist.Normal(m, tau))
    with plate("n", 60):
        rate = jnp.exp(a + jump[river] * (month >= when))
        sample("floods", dist.NegativeBinomial2(rate, k), obs=floods)


@summed("rivers_that_change_at_once")
def rivers_that_change_at_once_summed(river, month, floods):
    a = sample("a", dist.Normal(0.5, 1))
    m = sample("m", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    k = sample("k", dist.Exponential(0.2))
    with plate("rivers", 5):
        jump = sample("jump", dist.Normal(m, tau))
    late = month >= jnp.arange(1, 12)[:, None]
    log = dist.NegativeBinomial2(jnp.exp(a + jump[river] * late), k).log_prob(floods).sum(-1)
    factor("floods", logsumexp(log) - jnp.log(11.0))


R = rng(37)
X37 = R.normal(size=(50, 5))


@new(x=X37, hospital=np.arange(50) % 6, dose=X37 @ [1.0, 0, 0, 0.8, 0] + R.normal(0, 0.7, 50))
def spike_and_slab_by_a_mixture(x, hospital, dose=None):
    """Continuous spike and slab: MixtureGeneral priors of coefficients, an inclusion share, effects of hospitals."""
    share = sample("share", dist.Beta(2, 2))
    slab = sample("slab", dist.InverseGamma(3, 2))
    mixing = dist.Categorical(jnp.stack([1 - share, share]))
    beta = sample("beta", dist.MixtureGeneral(mixing, [dist.Normal(0, 0.05), dist.Normal(0, slab)]).expand([5]).to_event(1))
    tau = sample("tau", dist.HalfNormal(0.5))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("hospitals", 6):
        u = sample("u", dist.Normal(0, tau))
    with plate("n", 50):
        sample("dose", dist.Normal(x @ beta + u[hospital], sigma), obs=dose)


R = rng(38)
PLANT = np.repeat(np.arange(6), 6)
COVER = logistic(-0.5 + R.normal(0, 0.6, 6)[PLANT] + R.normal(0, 0.5, 36))


@new(plant=PLANT, shade=np.arange(36) % 2, cover=np.where(np.arange(36) % 9 == 2, np.nan, COVER))
def cover_of_plots(plant, shade):
    """A logit-normal outcome as a TransformedDistribution in rows, its sd by groups' shade, some missing."""
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(1).expand([2]).to_event(1))
    with plate("plants", 6):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        sample("cover", dist.TransformedDistribution(
            dist.Normal(a + b * shade + u[plant], sigma[shade]), transforms.SigmoidTransform()))


@summed("cover_of_plots")
def cover_of_plots_by_hand(plant, shade, cover):
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(1).expand([2]).to_event(1))
    with plate("plants", 6):
        u = sample("u", dist.Normal(0, tau))
    gone = jnp.isnan(cover)
    full = jnp.where(gone, 0.5, cover)
    log = dist.Normal(a + b * shade + u[plant], sigma[shade]).log_prob(jnp.log(full / (1 - full)))
    factor("cover", jnp.where(gone, 0.0, log).sum())


R = rng(39)
HOME39, AWAY39 = np.array([(i, j) for i in range(6) for j in range(6) if i != j]).T
POWER = R.normal(0, 0.5, 6)
MARGIN = 3 + 8 * (POWER[HOME39] - POWER[AWAY39]) + R.normal(0, 6, 30)


@new(home=HOME39, away=AWAY39, margin=np.where(np.arange(30) % 7 == 5, np.nan, MARGIN),
     crowd=R.poisson(np.exp(3 + 0.3 * (POWER[HOME39] + POWER[AWAY39]))))
def margins_and_crowds(home, away):
    """One ability of a team read twice in two outcomes: as a difference in a margin, as a sum in a count."""
    h = sample("h", dist.Normal(0, 5))
    c = sample("c", dist.Normal(3, 1))
    scale = sample("scale", dist.HalfNormal(10))
    pull = sample("pull", dist.Normal(0, 0.5))
    sigma = sample("sigma", dist.HalfNormal(10))
    with plate("teams", 6):
        power = sample("power", dist.Normal(0, 1))
    with probml.rows():
        sample("margin", dist.Normal(h + scale * (power[home] - power[away]), sigma))
        sample("crowd", dist.Poisson(jnp.exp(c + pull * (power[home] + power[away]))))


@summed("margins_and_crowds")
def margins_and_crowds_by_hand(home, away, margin, crowd):
    """(power, pull) and (−power, −pull) make the same crowds, so that chains stay at one of two modes;
    one sign, that of a scale without bounds, says which, and chains cross from mode to mode at 0."""
    h = sample("h", dist.Normal(0, 5))
    c = sample("c", dist.Normal(3, 1))
    signed = sample("signed", dist.Normal(0, 10))
    size = sample("size", dist.HalfNormal(0.5))
    sigma = sample("sigma", dist.HalfNormal(10))
    with plate("teams", 6):
        q = sample("q", dist.Normal(0, 1))
    sign = jnp.where(signed < 0, -1.0, 1.0)
    for name, value in (("scale", jnp.abs(signed)), ("pull", sign * size), ("power", sign * q)):
        deterministic(name, value)
    gone = jnp.isnan(margin)
    log = dist.Normal(h + signed * (q[home] - q[away]), sigma).log_prob(jnp.where(gone, 0.0, margin))
    sample("crowd", dist.Poisson(jnp.exp(c + size * (q[home] + q[away]))), obs=crowd)
    factor("margin", jnp.where(gone, 0.0, log).sum())


R = rng(40)
TRUE40, CLASS = R.normal(1, 1, 45), np.repeat(np.arange(5), 9)


@new(room=CLASS, noise=np.exp(TRUE40 + R.normal(0, 0.3, 45)), asleep=R.binomial(1, logistic(0.5 - TRUE40
     + R.normal(0, 0.5, 5)[CLASS])), late=np.where(np.arange(45) % 10 == 4, np.nan, R.poisson(np.exp(0.2 * TRUE40))))
def noise_measured_with_error(room, noise):
    """A true noise of each row behind a LogNormal reading as input data, under a yes or no and a count with holes."""
    m = sample("m", dist.Normal(0, 2))
    s = sample("s", dist.LogNormal(0, 0.5))
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1))
    c = sample("c", dist.Normal(0, 1).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("rooms", 5):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        true = sample("true", dist.Normal(m, s))
        factor("reading", dist.LogNormal(true, 0.3).log_prob(noise))
        sample("asleep", dist.Bernoulli(logits=a + b * true + u[room]))
        sample("late", dist.Poisson(jnp.exp(c[0] + c[1] * true)))


@summed("noise_measured_with_error")
def noise_measured_with_error_by_hand(room, noise, asleep, late):
    m = sample("m", dist.Normal(0, 2))
    s = sample("s", dist.LogNormal(0, 0.5))
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1))
    c = sample("c", dist.Normal(0, 1).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("rooms", 5):
        u = sample("u", dist.Normal(0, tau))
    nodes, weights = np.polynomial.hermite_e.hermegauss(25)
    x = jnp.log(noise)[:, None]
    wide = 1 / (1 / s**2 + 1 / 0.3**2)
    true = wide * (m / s**2 + x / 0.3**2) + jnp.sqrt(wide) * nodes
    gone = jnp.isnan(late)[:, None]
    log = (dist.Bernoulli(logits=a + b * true + u[room][:, None]).log_prob(asleep[:, None])
           + jnp.where(gone, 0.0, dist.Poisson(jnp.exp(c[0] + c[1] * true)).log_prob(jnp.nan_to_num(late)[:, None])))
    log = logsumexp(log + jnp.log(weights / weights.sum()), -1)
    factor("rows", log.sum() + dist.LogNormal(m, jnp.sqrt(s**2 + 0.09)).log_prob(noise).sum())
