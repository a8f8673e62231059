"""Forty models more, in the idioms of NumPyro's tutorials and of Stan's user's guide.

Written before any of them was run, and not tuned to the answers. `new_truths.py` computes their
references (`fifth_truths.json`).
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from collection import PARALLEL, Collection, logistic
from jax.scipy.special import gammaln, logsumexp
from jax.scipy.stats import norm
from numpyro import deterministic, factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints, transforms
from numpyro.infer.reparam import LocScaleReparam

FIFTH = Collection(1129)
new, summed, rng = FIFTH.new, FIFTH.summed, FIFTH.rng


# ---- errors of inputs, missing inputs --------------------------------------------------------------

R = rng(1)
TRUE = R.normal(1, 1.5, 60)


@new(x=TRUE + R.normal(0, 0.7, 60), y=R.binomial(1, logistic(-0.5 + 1.2 * TRUE)))
def logistic_with_an_error_in_the_input(x, y=None):
    """Stan's guide: the true dose is a number of each row."""
    m = sample("m", dist.Normal(0, 3))
    s = sample("s", dist.HalfNormal(3))
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 2))
    with plate("n", x.shape[0]):
        dose = sample("dose", dist.Normal(m, s))
        sample("x", dist.Normal(dose, 0.7), obs=x)
        sample("y", dist.Bernoulli(logits=a + b * dose), obs=y)


R = rng(2)
AGE = R.normal(30, 10, 40)
LOST = np.arange(40) % 5 == 2


@new(age=np.where(LOST, 0.0, AGE), there=~LOST,
     alive=R.binomial(1, logistic(0.4 - 0.08 * (AGE - 30))))
def ages_with_an_obs_mask(age, there, alive=None):
    """NumPyro's obs_mask: what is not there is a latent number of its own."""
    m = sample("m", dist.Normal(30, 10))
    s = sample("s", dist.LogNormal(2, 0.5))
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 0.2))
    with plate("people", age.shape[0]):
        full = sample("age", dist.Normal(m, s), obs=age, obs_mask=there)
        sample("alive", dist.Bernoulli(logits=a + b * (full - 30)), obs=alive)


@summed("ages_with_an_obs_mask")
def ages_with_an_obs_mask_by_hand(age, there, alive):
    """Without the flat numbers that NumPyro has where an age is observed."""
    m = sample("m", dist.Normal(30, 10))
    s = sample("s", dist.LogNormal(2, 0.5))
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 0.2))
    lost = sample("lost", dist.Normal(m, s).expand([int(LOST.sum())]).to_event(1))
    factor("there", jnp.where(there, dist.Normal(m, s).log_prob(age), 0.0).sum())
    full = jnp.asarray(age).at[np.flatnonzero(LOST)].set(lost)
    sample("alive", dist.Bernoulli(logits=a + b * (full - 30)), obs=alive)


R = rng(3)
RAIN = R.normal(0, 1, 30)
HOLES = np.array([3, 11, 17, 26])


@new(rain=np.where(np.isin(np.arange(30), HOLES), 0.0, RAIN),
     crop=4 + 1.5 * RAIN - 0.5 * RAIN**2 + R.normal(0, 0.8, 30))
def missing_rain_set_into_a_column(rain, crop=None):
    """The tutorial of the Titanic: imputed numbers are written into the column, which is then observed."""
    m = sample("m", dist.Normal(0, 1))
    s = sample("s", dist.HalfNormal(2))
    lost = sample("lost", dist.Normal(m, s).expand([4]).mask(False))
    full = jnp.asarray(rain).at[HOLES].set(lost)
    sample("rain", dist.Normal(m, s).expand([30]).to_event(1), obs=full)
    a = sample("a", dist.Normal(0, 5))
    b = sample("b", dist.Normal(0, 2).expand([2]))
    sigma = sample("sigma", dist.Exponential(1))
    sample("crop", dist.Normal(a + b[0] * full + b[1] * full**2, sigma), obs=crop)


# ---- what is latent and discrete -------------------------------------------------------------------

R = rng(4)


@new(accidents=np.r_[R.poisson(3.2, 22), R.poisson(1.1, 18)])
def accidents_with_a_year_of_change(accidents):
    """Stan's guide: the year of change is summed out; here it is enumerated."""
    early = sample("early", dist.Exponential(0.5))
    late = sample("late", dist.Exponential(0.5))
    year = sample("year", dist.Categorical(probs=jnp.ones(40) / 40), infer=PARALLEL)
    with plate("years", 40):
        sample("n", dist.Poisson(jnp.where(jnp.arange(40) < year, early, late)), obs=accidents)


@summed("accidents_with_a_year_of_change")
def accidents_with_a_year_of_change_summed(accidents):
    early = sample("early", dist.Exponential(0.5))
    late = sample("late", dist.Exponential(0.5))
    rate = jnp.where(jnp.arange(40) < jnp.arange(40)[:, None], early, late)
    factor("n", logsumexp(dist.Poisson(rate).log_prob(accidents).sum(-1)))


R = rng(5)
KIND = R.binomial(1, 0.35, 70)
X = R.uniform(-2, 2, 70)


@new(x=X, y=np.where(KIND, 3 + 0.2 * X, -1 + 1.5 * X) + R.normal(0, 0.6, 70))
def two_regressions_in_order(x, y=None):
    """A mixture of regressions whose intercepts are in order, assignments enumerated."""
    share = sample("share", dist.Beta(2, 2))
    a = sample("a", dist.TransformedDistribution(dist.Normal(0, 3).expand([2]).to_event(1),
                                                 transforms.OrderedTransform()))
    b = sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("n", x.shape[0]):
        z = sample("z", dist.Bernoulli(share), infer=PARALLEL)
        sample("y", dist.Normal(a[z] + b[z] * x, sigma), obs=y)


@summed("two_regressions_in_order")
def two_regressions_in_order_summed(x, y):
    share = sample("share", dist.Beta(2, 2))
    a = sample("a", dist.TransformedDistribution(dist.Normal(0, 3).expand([2]).to_event(1),
                                                 transforms.OrderedTransform()))
    b = sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(2))
    each = dist.Normal(a + b * x[:, None], sigma).log_prob(y[:, None])
    factor("y", logsumexp(each + jnp.log(jnp.stack([1 - share, share])), axis=-1).sum())


R = rng(6)
SEEN = R.binomial(5, 0.45, 50)


@new(caught=np.r_[SEEN[SEEN > 0], np.zeros(40, int)])
def animals_never_caught(caught):
    """Capture and recapture by augmented data (BPA, chapter 6): which rows are real is enumerated."""
    real = sample("real", dist.Beta(1, 1))
    p = sample("p", dist.Beta(1, 1))
    with plate("animals", caught.shape[0]):
        z = sample("z", dist.Bernoulli(real), infer=PARALLEL)
        sample("caught", dist.Binomial(5, p * z), obs=caught)
    deterministic("expected", real * caught.shape[0])


@summed("animals_never_caught")
def animals_never_caught_summed(caught):
    real = sample("real", dist.Beta(1, 1))
    p = sample("p", dist.Beta(1, 1))
    there = jnp.log(real) + dist.Binomial(5, p).log_prob(caught)
    factor("caught", jnp.where(caught > 0, there, jnp.logaddexp(there, jnp.log1p(-real))).sum())
    deterministic("expected", real * caught.shape[0])


R = rng(7)
X = R.normal(size=60)
CLASS = R.binomial(1, logistic(0.3 + 1.2 * X))


@new(x=X, items=R.binomial(1, np.where(CLASS[:, None] == 1, 0.85, 0.2), (60, 4)))
def latent_class_with_a_covariate(x, items=None):
    """Two classes of persons, whose shares follow a covariate; a plate of items in that of persons."""
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1.5))
    with plate("of", 4):
        low = sample("low", dist.Beta(2, 6))
        high = sample("high", dist.Beta(6, 2))
    with plate("persons", x.shape[0], dim=-2):
        z = sample("z", dist.Bernoulli(logits=(a + b * x)[:, None]), infer=PARALLEL)
        with plate("items", 4, dim=-1):
            sample("items_", dist.Bernoulli(jnp.where(z == 1, high, low)), obs=items)


@summed("latent_class_with_a_covariate")
def latent_class_with_a_covariate_summed(x, items):
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1.5))
    with plate("of", 4):
        low = sample("low", dist.Beta(2, 6))
        high = sample("high", dist.Beta(6, 2))
    each = [dist.Bernoulli(p).log_prob(items).sum(-1) for p in (low, high)]
    factor("items", jnp.logaddexp(each[0] + jax.nn.log_sigmoid(-(a + b * x)),
                                  each[1] + jax.nn.log_sigmoid(a + b * x)).sum())


R = rng(8)
WET = R.normal(size=40)
THERE = R.binomial(1, logistic(0.2 + WET))


@new(wet=WET, wind=R.normal(size=(40, 3)), seen=R.binomial(1, 0.5 * THERE[:, None], (40, 3)))
def occupancy_with_wind(wet, wind, seen=None):
    """Sites in a plate, visits in a plate within, detection by a covariate of the visit."""
    a = sample("a", dist.Normal(0, 1.5).expand([2]).to_event(1))
    d = sample("d", dist.Normal(0, 1.5).expand([2]).to_event(1))
    with plate("sites", wet.shape[0], dim=-2):
        z = sample("z", dist.Bernoulli(logits=a[0] + a[1] * wet[:, None]), infer=PARALLEL)
        with plate("visits", 3, dim=-1):
            p = jax.nn.sigmoid(d[0] + d[1] * wind)
            sample("seen", dist.Bernoulli(z * p), obs=seen)


@summed("occupancy_with_wind")
def occupancy_with_wind_summed(wet, wind, seen):
    a = sample("a", dist.Normal(0, 1.5).expand([2]).to_event(1))
    d = sample("d", dist.Normal(0, 1.5).expand([2]).to_event(1))
    there = dist.Bernoulli(logits=d[0] + d[1] * wind).log_prob(seen).sum(-1)
    logit = a[0] + a[1] * wet
    none = jnp.where(seen.sum(-1) > 0, -jnp.inf, jax.nn.log_sigmoid(-logit))
    factor("seen", jnp.logaddexp(jax.nn.log_sigmoid(logit) + there, none).sum())


R = rng(9)
X = R.normal(size=(40, 4))


@new(x=X, y=X @ [1.2, 0.0, -0.8, 0.1] + R.normal(0, 1, 40))
def spikes_and_slabs_enumerated(x, y=None):
    """Which of four columns count: sixteen joint states."""
    with plate("columns", 4):
        inside = sample("inside", dist.Bernoulli(0.5), infer=PARALLEL)
        slab = sample("slab", dist.Normal(0, 1.5))
    sigma = sample("sigma", dist.HalfCauchy(1))
    with plate("n", 40):
        sample("y", dist.Normal(x @ (inside * slab), sigma), obs=y)


@summed("spikes_and_slabs_enumerated")
def spikes_and_slabs_enumerated_summed(x, y):
    with plate("columns", 4):
        slab = sample("slab", dist.Normal(0, 1.5))
    sigma = sample("sigma", dist.HalfCauchy(1))
    every = jnp.asarray(np.array(list(np.ndindex(2, 2, 2, 2)), float))
    each = dist.Normal((every * slab) @ x.T, sigma).log_prob(y).sum(-1)
    factor("y", logsumexp(each))


R = rng(10)
COVER = R.normal(size=20)


@new(cover=COVER, counts=R.binomial(R.poisson(np.exp(1.6 + 0.5 * COVER))[:, None], 0.4, (20, 3)))
def birds_counted_thrice(cover, counts):
    """Royle's N-mixture: the number of birds is summed out in a factor."""
    a = sample("a", dist.Normal(1, 1))
    b = sample("b", dist.Normal(0, 1))
    p = sample("p", dist.Beta(2, 2))
    many = jnp.arange(60)
    log = dist.Poisson(jnp.exp(a + b * cover)[:, None]).log_prob(many)
    seen = dist.Binomial(many[None, :, None], p).log_prob(counts[:, None, :])
    seen = jnp.where(many[None, :, None] >= counts[:, None, :], seen, -jnp.inf).sum(-1)
    factor("birds", logsumexp(log + seen, axis=-1).sum())


# ---- survival, bounds, rounding ---------------------------------------------------------------------

R = rng(11)
WARD = R.integers(0, 6, 60)
AGED = R.normal(size=60)
LIFE = R.exponential(np.exp(1 - 0.5 * AGED + R.normal(0, 0.5, 6)[WARD]))


@new(ward=WARD, aged=AGED, time=np.minimum(LIFE, 4.0), dead=LIFE < 4.0)
def wards_with_censored_lives(ward, aged, time=None, dead=None):
    """Exponential times; two sites with complementary masks."""
    mu = sample("mu", dist.Normal(0, 2))
    tau = sample("tau", dist.HalfNormal(1))
    b = sample("b", dist.Normal(0, 1))
    with plate("wards", 6):
        u = sample("u", dist.Normal(0, 1))
    rate = jnp.exp(-(mu + tau * u[ward] + b * aged))
    with plate("n", 60):
        with handlers.mask(mask=dead):
            sample("died", dist.Exponential(rate), obs=time)
        with handlers.mask(mask=~dead):
            sample("lived", dist.Bernoulli(jnp.exp(-rate * time)), obs=jnp.ones(60))


R = rng(12)
DRUG = np.repeat([0, 1], 40)
LIFE = np.where(R.random(80) < np.where(DRUG, 0.45, 0.2), np.inf, 2 * R.weibull(1.6, 80))


@new(drug=DRUG, time=np.minimum(LIFE, 5.0), event=(LIFE < 5.0).astype(int))
def weibull_of_the_cured(drug, time, event):
    """A share is cured; the likelihood is a factor of each row."""
    k = sample("k", dist.LogNormal(0, 0.5))
    scale = sample("scale", dist.LogNormal(0.5, 1))
    c = sample("c", dist.Normal(0, 1.5).expand([2]))
    cured = deterministic("cured", jax.nn.sigmoid(c))[drug]
    h = (time / scale) ** k
    dies = jnp.log1p(-cured) + jnp.log(k / scale) + (k - 1) * jnp.log(time / scale) - h
    lives = jnp.log(cured + (1 - cured) * jnp.exp(-h))
    with plate("n", 80):
        factor("lik", jnp.where(event == 1, dies, lives))


R = rng(13)
WEIGHT = np.round(R.normal(7.2, 1.3, 120))
WEIGHT = WEIGHT[WEIGHT >= 6][:70]


@new(weight=WEIGHT)
def rounded_and_truncated_weights(weight):
    """Stan's guide, two sections at once: to whole numbers, and only from 6 on."""
    m = sample("m", dist.Normal(5, 5))
    s = sample("s", dist.HalfNormal(3))
    inside = norm.cdf((weight + 0.5 - m) / s) - norm.cdf((weight - 0.5 - m) / s)
    factor("rounded", jnp.log(inside).sum() - len(weight) * norm.logsf((5.5 - m) / s))


R = rng(14)
X = R.uniform(0, 3, 60)
Y = -1 + 1.2 * X + np.exp(-0.5 + 0.4 * X) * R.normal(size=60)


@new(x=X, y=np.clip(Y, 0, None))
def tobit_with_growing_noise(x, y=None):
    """Zero is censored; the noise grows with x."""
    a = sample("a", dist.Normal(0, 3).expand([2]))
    g = sample("g", dist.Normal(0, 1).expand([2]))
    mean, sd = a[0] + a[1] * x, jnp.exp(g[0] + g[1] * x)
    below = dist.Normal(mean, sd).cdf(0.0)
    with plate("n", 60), handlers.mask(mask=y > 0):
        sample("y", dist.Normal(mean, sd), obs=y)
    factor("censored", jnp.where(y > 0, 0.0, jnp.log(below)).sum())


# ---- answers of persons -----------------------------------------------------------------------------

R = rng(15)
PERSON, ITEM = np.repeat(np.arange(14), 6), np.tile(np.arange(6), 14)


@new(person=PERSON, item=ITEM, right=R.binomial(1, logistic(
    R.lognormal(0.2, 0.3, 6)[ITEM] * (R.normal(size=14)[PERSON] - R.normal(0, 1, 6)[ITEM]))))
def two_parameters_that_go_together(person, item, right=None):
    """2PL whose log discrimination and difficulty are correlated among items (LKJ, centred)."""
    with plate("persons", 14):
        theta = sample("theta", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(0.7).expand([2]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 4.0))
    with plate("items", 6):
        both = sample("both", dist.MultivariateNormal(jnp.zeros(2), scale_tril=tau[:, None] * lower))
    with plate("answers", 84):
        sample("right", dist.Bernoulli(logits=jnp.exp(both[item, 0]) * (
            theta[person] - both[item, 1])), obs=right)


R = rng(16)
J = np.repeat(np.arange(8), 8)
X = R.normal(size=64)


@new(judge=J, x=X, grade=np.digitize(0.9 * X + R.normal(0, 0.7, 8)[J] + R.normal(size=64),
                                     [-1.0, 0.3, 1.2]))
def grades_of_judges(judge, x, grade=None):
    """Ordinal probit with cutpoints in order and effects of judges, reparametrised by a handler."""
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    c = sample("c", dist.TransformedDistribution(dist.Normal(0, 1.5).expand([3]).to_event(1),
                                                 transforms.OrderedTransform()))
    with plate("judges", 8), handlers.reparam(config={"u": LocScaleReparam(0)}):
        u = sample("u", dist.Normal(0, tau))
    with plate("n", 64):
        above = norm.cdf(c - (b * x + u[judge])[:, None])
        edges = jnp.concatenate([jnp.zeros((64, 1)), above, jnp.ones((64, 1))], -1)
        sample("grade", dist.Categorical(probs=jnp.diff(edges)), obs=grade)


R = rng(17)
WHO = np.repeat(np.arange(8), 2)
SIGNAL = np.tile([0, 1], 8)


@new(who=WHO, signal=SIGNAL, yes=R.binomial(20, logistic(
    -0.8 + R.normal(0, 0.4, 8)[WHO] + (1.6 + R.normal(0, 0.5, 8)[WHO]) * SIGNAL)))
def detection_of_signals(who, signal, yes=None):
    """Criterion and sensitivity of each subject, correlated, not centred, by z @ L.T."""
    mu = sample("mu", dist.Normal(0, 1).expand([2]).to_event(1))
    sd = sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 2.0))
    z = sample("z", dist.Normal(0, 1).expand([8, 2]).to_event(2))
    both = deterministic("both", mu + z @ (sd[:, None] * lower).T)
    with plate("n", 16):
        sample("yes", dist.Binomial(20, norm.cdf(both[who, 0] + both[who, 1] * signal)), obs=yes)


R = rng(18)


def _learner():
    q, made, won = np.zeros(2), [], []
    for _ in range(80):
        c = int(R.random() < logistic(3 * (q[1] - q[0])))
        r = int(R.random() < (0.3, 0.7)[c])
        q[c] += 0.3 * (r - q[c])
        made.append(c)
        won.append(r)
    return np.array(made), np.array(won)


MADE, WON = _learner()


@new(choice=MADE, reward=WON)
def a_learner_of_two_arms(choice, reward):
    """Rescorla and Wagner by scan: choices are observed within it."""
    rate = sample("rate", dist.Beta(1.1, 1.1))
    steep = sample("steep", dist.LogNormal(0.5, 1))

    def step(q, both):
        c, r = both
        sample("choice", dist.Bernoulli(logits=steep * (q[1] - q[0])), obs=c)
        return q.at[c].add(rate * (r - q[c])), None

    scan(step, jnp.zeros(2), (jnp.asarray(choice), jnp.asarray(reward, float)))


# ---- along time -------------------------------------------------------------------------------------

R = rng(19)
LEVEL = np.cumsum(R.normal(0, 0.4, 40)) + 5
GAPS = np.isin(np.arange(40), [5, 6, 7, 8, 20, 33])


@new(y=np.where(GAPS, 0.0, LEVEL + R.normal(0, 0.8, 40)), there=~GAPS)
def level_with_gaps_by_scan(y, there):
    """A local level by scan, its missing steps masked."""
    q = sample("q", dist.HalfNormal(1))
    s = sample("s", dist.HalfNormal(2))
    start = sample("start", dist.Normal(0, 10))

    def step(level, both):
        one, seen = both
        level = sample("level", dist.Normal(level, q))
        with handlers.mask(mask=seen):
            sample("y", dist.Normal(level, s), obs=one)
        return level, None

    scan(step, start, (jnp.asarray(y), jnp.asarray(there)))


@summed("level_with_gaps_by_scan")
def level_with_gaps_by_kalman(y, there):
    q = sample("q", dist.HalfNormal(1))
    s = sample("s", dist.HalfNormal(2))
    start = sample("start", dist.Normal(0, 10))

    def step(carry, both):
        (mean, var), (one, seen) = carry, both
        var = var + q**2
        log = jnp.where(seen, dist.Normal(mean, jnp.sqrt(var + s**2)).log_prob(one), 0.0)
        gain = jnp.where(seen, var / (var + s**2), 0.0)
        return (mean + gain * (one - mean), (1 - gain) * var), log

    factor("y", jax.lax.scan(step, (start, 0.0 * q), (jnp.asarray(y), jnp.asarray(there)))[1].sum())


R = rng(20)


def _arma():
    y, e = [1.0], [0.0]
    for _ in range(79):
        e.append(R.normal(0, 0.7))
        y.append(0.5 + 0.6 * y[-1] + 0.3 * e[-2] + e[-1])
    return np.array(y)


@new(y=_arma())
def arma_by_scan(y):
    """Errors are carried along; the density of a step is a factor of what is observed."""
    mu = sample("mu", dist.Normal(0, 2))
    phi = sample("phi", dist.Uniform(-1, 1))
    theta = sample("theta", dist.Uniform(-1, 1))
    sigma = sample("sigma", dist.HalfCauchy(1))

    def step(carry, now):
        before, error = carry
        mean = mu + phi * before + theta * error
        sample("y", dist.Normal(mean, sigma), obs=now)
        return (now, now - mean), None

    scan(step, (y[0], 0.0), jnp.asarray(y[1:]))


R = rng(21)
VOL = -1 + 0.15 * np.cumsum(R.normal(size=60))


@new(r=np.exp(VOL) * R.standard_t(8, 60))
def volatility_as_a_walk(r):
    """NumPyro's stochastic volatility, of sixty days."""
    step = sample("step", dist.Exponential(10))
    nu = sample("nu", dist.Exponential(0.1))
    s = sample("s", dist.GaussianRandomWalk(scale=step, num_steps=60))
    sample("r", dist.StudentT(nu, loc=0.0, scale=jnp.exp(s)), obs=r)


R = rng(22)


def _series():
    out = np.zeros((4, 20))
    for t in range(1, 20):
        out[:, t] = np.array([0.2, 0.5, 0.6, 0.8]) * out[:, t - 1] + R.normal(0, 1, 4)
    return out + 3


@new(y=_series())
def autoregressions_of_four_firms(y):
    """A panel as a matrix: each firm has a lag of its own about a common one, by a logistic."""
    m = sample("m", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    with plate("firms", 4, dim=-2):
        raw = sample("raw", dist.Normal(0, 1))
        mean = sample("mean", dist.Normal(3, 2))
        sigma = sample("sigma", dist.HalfNormal(2))
        phi = jax.nn.sigmoid(m + tau * raw)
        with plate("times", 19, dim=-1):
            sample("y", dist.Normal(mean + phi * (y[:, :-1] - mean), sigma), obs=y[:, 1:])


R = rng(23)


def _chain():
    z, x, out = 0, R.normal(size=80), []
    for t in range(80):
        z = int(R.random() < logistic(-1.5 + 1.0 * x[t])) if z == 0 else int(R.random() < 0.8)
        out.append(R.normal((0.0, 3.0)[z], 0.8))
    return x, np.array(out)


SWITCH, OUT = _chain()


@new(x=SWITCH, y=OUT)
def hidden_states_driven_by_a_covariate(x, y):
    """A hidden Markov model whose transition follows x, summed out by the forward recursion."""
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1.5))
    stay = sample("stay", dist.Beta(4, 1))
    mu = sample("mu", dist.TransformedDistribution(dist.Normal(0, 3).expand([2]).to_event(1),
                                                   transforms.OrderedTransform()))
    sigma = sample("sigma", dist.HalfNormal(2))
    emit = dist.Normal(mu, sigma).log_prob(jnp.asarray(y)[:, None])

    def step(alpha, both):
        xt, et = both
        up = jax.nn.sigmoid(a + b * xt)
        move = jnp.log(jnp.array([[1 - up, up], [1 - stay, stay]]))
        return logsumexp(alpha[:, None] + move, axis=0) + et, None

    alpha, _ = jax.lax.scan(step, jnp.log(0.5) + emit[0], (jnp.asarray(x[1:]), emit[1:]))
    factor("forward", logsumexp(alpha))


R = rng(24)


def _prey():
    out, s = [], np.array([10.0, 4.0])
    for t in range(100):
        if t % 5 == 0:
            out.append(s * np.exp(R.normal(0, 0.15, 2)))
        s = s + 0.1 * np.array([0.8 * s[0] - 0.15 * s[0] * s[1], 0.05 * s[0] * s[1] - 0.5 * s[1]])
    return np.array(out)


@new(y=_prey())
def hares_and_lynxes_by_euler(y):
    """Lotka and Volterra by steps of a tenth, logarithmic errors, initial numbers unknown."""
    rates = sample("rates", dist.LogNormal(jnp.log(jnp.array([0.8, 0.15, 0.05, 0.5])), 0.4).to_event(1))
    first = sample("first", dist.LogNormal(jnp.log(jnp.array([8.0, 5.0])), 0.5).to_event(1))
    sigma = sample("sigma", dist.LogNormal(-1.5, 0.7))

    def euler(s, _):
        a, b, c, d = rates
        return s + 0.1 * jnp.array([a * s[0] - b * s[0] * s[1], c * s[0] * s[1] - d * s[1]]), s

    _, path = jax.lax.scan(euler, first, None, length=100)
    sample("y", dist.LogNormal(jnp.log(jnp.maximum(path[::5], 1e-6)), sigma).to_event(2), obs=y)


# ---- curves -----------------------------------------------------------------------------------------

R = rng(25)
DOSE = np.tile([0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0], 3)
DISH = np.repeat(np.arange(3), 7)


@new(dose=DOSE, dish=DISH, y=(10 + R.normal(0, 4, 3)[DISH] + 80 / (1 + (1.0 / DOSE) ** 1.3)
                              + R.normal(0, 3, 21)))
def four_parameter_curve_of_dishes(dose, dish, y=None):
    """Bottom of each dish, top, slope and log half dose: units in the tens."""
    bottom = sample("bottom", dist.Normal(10, 10))
    tau = sample("tau", dist.HalfNormal(5))
    rise = sample("rise", dist.LogNormal(4, 0.7))
    half = sample("half", dist.Normal(0, 2))
    slope = sample("slope", dist.LogNormal(0, 0.5))
    sigma = sample("sigma", dist.HalfCauchy(5))
    with plate("dishes", 3):
        u = sample("u", dist.Normal(bottom, tau))
    with plate("wells", 21):
        sample("y", dist.Normal(u[dish] + rise * jax.nn.sigmoid(slope * (jnp.log(dose) - half)), sigma),
               obs=y)


R = rng(26)
S = np.tile([0.2, 0.5, 1, 2, 5, 10.0], 4)
B = np.repeat(np.arange(4), 6)


@new(s=S, batch=B, v=R.lognormal(np.log(R.lognormal(2.3, 0.2, 4)[B] * S / (1.5 + S)), 0.1))
def enzyme_batches(s, batch, v=None):
    """Michaelis and Menten: a capacity of each batch about a common one, errors in proportion."""
    km = sample("km", dist.Gamma(2, 1))
    m = sample("m", dist.Normal(2, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    cv = sample("cv", dist.HalfNormal(0.3))
    with plate("batches", 4):
        top = sample("top", dist.LogNormal(m, tau))
    with plate("n", 24):
        sample("v", dist.LogNormal(jnp.log(top[batch] * s / (km + s)), cv), obs=v)


R = rng(27)
TREE, DAY = np.repeat(np.arange(5), 6), np.tile([1.0, 3, 5, 7, 9, 12], 5)


@new(tree=TREE, day=DAY, size=np.exp(R.normal(3, 0.15, 5))[TREE] / (1 + np.exp(-(DAY - 5) / 1.8))
     + R.normal(0, 0.7, 30))
def growth_of_five_trees(tree, day, size=None):
    """Logistic growth: log asymptotes by LocScaleReparam, Student errors."""
    m = sample("m", dist.Normal(3, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    mid = sample("mid", dist.Normal(5, 3))
    pace = sample("pace", dist.LogNormal(0.5, 0.5))
    sigma = sample("sigma", dist.HalfNormal(2))
    nu = sample("nu", dist.Gamma(2, 0.1))
    with handlers.reparam(config={"asymptote": LocScaleReparam(centered=0)}):
        with plate("trees", 5):
            top = sample("asymptote", dist.Normal(m, tau))
    with plate("n", 30):
        sample("size", dist.StudentT(nu, jnp.exp(top[tree]) * jax.nn.sigmoid((day - mid) / pace), sigma),
               obs=size)


R = rng(28)
T = np.linspace(0, 5, 20)


@new(t=T, n=R.poisson(np.exp(1.2 + 0.8 * np.sin(1.5 * T))))
def events_of_a_cox_process(t, n=None):
    """A log-Gaussian Cox process: counts of intervals, the process by a Cholesky factor."""
    mean = sample("mean", dist.Normal(1, 1))
    size = sample("size", dist.HalfNormal(1))
    length = sample("length", dist.InverseGamma(5, 5))
    z = sample("z", dist.Normal(0, 1).expand([20]).to_event(1))
    k = size**2 * jnp.exp(-0.5 * ((t[:, None] - t) / length) ** 2) + 1e-5 * jnp.eye(20)
    f = deterministic("f", mean + jnp.linalg.cholesky(k) @ z)
    with plate("bins", 20):
        sample("n", dist.Poisson(jnp.exp(f)), obs=n)


R = rng(29)
T = np.linspace(0, 1, 30)
BUMPS = np.exp(-0.5 * ((T[:, None] - np.linspace(0, 1, 9)) / 0.12) ** 2)


@new(basis=BUMPS, y=np.sin(5 * T) + R.normal(0, 0.3, 30))
def spline_with_second_differences(basis, y=None):
    """A flat prior by ImproperUniform, and a walk of the second order by factor."""
    w = sample("w", dist.ImproperUniform(constraints.real, (), (9,)))
    smooth = sample("smooth", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    second = w[2:] - 2 * w[1:-1] + w[:-2]
    factor("walk", dist.Normal(0, smooth).log_prob(second).sum()
           + dist.Normal(0, 2).log_prob(w[:2]).sum())
    with plate("n", 30):
        sample("y", dist.Normal(basis @ w, sigma), obs=y)


# ---- many outcomes, areas, shares -------------------------------------------------------------------

R = rng(30)
X = R.normal(size=(40, 2))
L = np.linalg.cholesky(np.array([[1, 0.6], [0.6, 1]]))


@new(x=X, y=X @ np.array([[1.0, 0.0], [-0.5, 0.8]]) + (R.normal(size=(40, 2)) @ L.T)
     / np.sqrt(R.chisquare(5, 40) / 5)[:, None])
def two_outcomes_with_wide_tails(x, y=None):
    """Multivariate Student errors, LKJ, one column at a time in the predictor."""
    with plate("inputs", 2):
        b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    sd = sample("sd", dist.HalfCauchy(1).expand([2]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 1.0))
    nu = sample("nu", dist.Gamma(2, 0.1))
    with plate("n", 40):
        sample("y", dist.MultivariateStudentT(nu, x @ b, sd[:, None] * lower), obs=y)


R = rng(31)
NEAR = np.zeros((10, 10), int)
for _i, _j in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9), (0, 5), (2, 7), (4, 9)]:
    NEAR[_i, _j] = NEAR[_j, _i] = 1


@new(expected=R.uniform(5, 20, 10), cases=R.poisson(R.uniform(5, 20, 10)))
def areas_by_numpyros_car(expected, cases=None):
    """NumPyro's own CAR with an unknown strength of neighbours."""
    a = sample("a", dist.Normal(0, 1))
    alpha = sample("alpha", dist.Beta(2, 2))
    tau = sample("tau", dist.Gamma(2, 1))
    phi = sample("phi", dist.CAR(0.0, alpha, tau, NEAR))
    with plate("areas", 10):
        sample("cases", dist.Poisson(expected * jnp.exp(a + phi)), obs=cases)


R = rng(32)
POND = np.repeat([0, 1, 2], 5)


@new(pond=POND, total=np.full(15, 20), fish=np.stack([R.multinomial(20, R.dirichlet(np.array(
    [[6.0, 3, 1], [2, 5, 3], [1, 2, 7]])[g])) for g in POND]))
def fish_of_ponds(pond, total, fish=None):
    """Dirichlet-multinomial: shares of each pond times one concentration."""
    with plate("ponds", 3):
        share = sample("share", dist.Dirichlet(jnp.ones(3)))
    strength = sample("strength", dist.Gamma(2, 0.1))
    with plate("nets", 15):
        sample("fish", dist.DirichletMultinomial(strength * share[pond], total), obs=fish)


R = rng(33)
TRIED = R.integers(10, 60, 12)


@new(tried=TRIED, hit=R.binomial(TRIED, R.beta(20, 55, 12)))
def players_by_a_pareto(tried, hit=None):
    """Stan's repeated trials: mean and concentration, the latter by a Pareto."""
    phi = sample("phi", dist.Uniform(0, 1))
    kappa = sample("kappa", dist.Pareto(1, 1.5))
    with plate("players", 12):
        theta = sample("theta", dist.Beta(phi * kappa, (1 - phi) * kappa))
        sample("hit", dist.Binomial(tried, theta), obs=hit)


R = rng(34)
TOWN = np.repeat(np.arange(6), 6)
INCOME = R.normal(size=36)
MU = logistic(-0.4 + 0.6 * INCOME + R.normal(0, 0.4, 6)[TOWN])


@new(town=TOWN, income=INCOME, share=R.beta(MU * 25, (1 - MU) * 25))
def shares_of_towns(town, income, share=None):
    """Beta regression: effects on the mean, an input of the precision."""
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    d = sample("d", dist.Normal(jnp.array([3.0, 0.0]), 1).to_event(1))
    with plate("towns", 6):
        u = sample("u", dist.Normal(0, tau))
    p = jax.nn.sigmoid(a + b * income + u[town])
    k = jnp.exp(d[0] + d[1] * income)
    with plate("n", 36):
        sample("share", dist.BetaProportion(p, k), obs=share)


R = rng(35)
PRICE = R.uniform(0.5, 2, (60, 3))
OPEN = R.random((60, 3)) < 0.8
OPEN[:, 0] = True
UTIL = np.array([0.0, 0.5, 1.0]) - 1.2 * PRICE + R.gumbel(size=(60, 3))


@new(price=PRICE, there=OPEN, chosen=np.where(OPEN, UTIL, -1e9).argmax(1))
def choices_of_what_is_there(price, there, chosen=None):
    """McFadden's logit: what is not offered has no chance."""
    a = sample("a", dist.Normal(0, 2).expand([2]).to_event(1))
    b = sample("b", dist.TransformedDistribution(dist.LogNormal(0, 1), transforms.AffineTransform(0.0, -1.0)))
    u = jnp.concatenate([jnp.zeros(1), a]) + b * price
    with plate("n", 60):
        sample("chosen", dist.Categorical(logits=jnp.where(there, u, -1e9)), obs=chosen)


R = rng(36)
ATT, DEF = R.normal(0, 0.3, 5), R.normal(0, 0.3, 5)
HOME, AWAY = (np.array(k) for k in zip(*[(i, j) for i in range(5) for j in range(5) if i != j], strict=True))


@new(home=HOME, away=AWAY, goals=np.stack([R.poisson(np.exp(0.5 + ATT[HOME] - DEF[AWAY])),
                                          R.poisson(np.exp(0.2 + ATT[AWAY] - DEF[HOME]))], 1))
def attack_and_defence(home, away, goals=None):
    """Two Poisson outcomes of a game, strengths that add up to zero."""
    base = sample("base", dist.Normal(0, 1))
    edge = sample("edge", dist.Normal(0, 0.5))
    sd = sample("sd", dist.HalfNormal(0.7).expand([2]).to_event(1))
    attack = sample("attack", dist.ZeroSumNormal(sd[0], (5,)))
    defence = sample("defence", dist.ZeroSumNormal(sd[1], (5,)))
    rate = jnp.exp(base + jnp.stack([edge + attack[home] - defence[away],
                                     attack[away] - defence[home]], -1))
    with plate("games", 20):
        sample("goals", dist.Poisson(rate).to_event(1), obs=goals)


# ---- idioms -----------------------------------------------------------------------------------------

R = rng(37)
OLD, NOW = R.normal(0.8, 1, (60, 2)), R.normal(0.2, 1, (25, 2))


@new(x=NOW[:, 0], y=1 + 0.5 * NOW[:, 0] + 0.8 * NOW[:, 1], x0=OLD[:, 0],
     y0=1.3 + 0.6 * OLD[:, 0] + OLD[:, 1])
def power_prior_by_scale(x, y, x0, y0):
    """A former study counts for 0.3: handlers.scale about its site."""
    a = sample("a", dist.Normal(0, 5))
    b = sample("b", dist.Normal(0, 5))
    sigma = sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))
    with handlers.scale(scale=0.3):
        sample("y0", dist.Normal(a + b * x0, sigma), obs=y0)
    sample("y", dist.Normal(a + b * x, sigma), obs=y)


R = rng(38)
X = R.normal(size=(50, 5))


@new(x=X, y=X @ [2.0, 0, 0, 0.5, -1.0] + R.normal(size=50))
def lasso_by_its_mixture(x, y=None):
    """Park and Casella: variances of coefficients are exponential, and so is their rate's prior a gamma."""
    rate = sample("rate", dist.Gamma(1, 1))
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("columns", 5):
        v = sample("v", dist.Exponential(rate))
        b = sample("b", dist.Normal(0, sigma * jnp.sqrt(v)))
    with plate("n", 50):
        sample("y", dist.Normal(x @ b, sigma), obs=y)


R = rng(39)
X = R.normal(size=30)


@new(x=X, y=1 + 2 * X + R.standard_t(3, 30))
def student_errors_by_their_mixture(x, y=None):
    """A precision of each row, and degrees of freedom that are unknown."""
    a = sample("a", dist.Normal(0, 3))
    b = sample("b", dist.Normal(0, 3))
    sigma = sample("sigma", dist.HalfNormal(2))
    nu = sample("nu", dist.Gamma(4, 0.5))
    with plate("n", 30):
        w = sample("w", dist.Gamma(nu / 2, nu / 2))
        sample("y", dist.Normal(a + b * x, sigma / jnp.sqrt(w)), obs=y)


R = rng(40)
BOTH = R.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 50)


@new(income=np.exp(1 + 0.5 * BOTH[:, 0]), years=2 * np.exp(0.3 * BOTH[:, 1]))
def copula_of_income_and_years(income, years):
    """A Gaussian copula of a log-normal and a Weibull margin."""
    m = sample("m", dist.Normal(0, 2))
    s = sample("s", dist.HalfNormal(1))
    k = sample("k", dist.LogNormal(1, 1))
    scale = sample("scale", dist.LogNormal(1, 1))
    r = sample("r", dist.Uniform(-1, 1))
    first, second = dist.LogNormal(m, s), dist.Weibull(scale, k)
    sample("income", first, obs=income)
    sample("years", second, obs=years)
    u = norm.ppf(jnp.clip(jnp.stack([first.cdf(income), second.cdf(years)]), 1e-6, 1 - 1e-6))
    factor("copula", (-0.5 * jnp.log(1 - r**2) - (r**2 * (u[0]**2 + u[1]**2) - 2 * r * u[0] * u[1])
                      / (2 * (1 - r**2))).sum())


R = rng(41)
CLINIC = np.repeat(np.arange(5), 8)
VISITS = R.poisson(0.4 + np.exp(R.normal(0.3, 0.5, 5))[CLINIC])


@new(clinic=CLINIC, visits=VISITS, cost=np.where(VISITS > 0, R.gamma(2, 10 * np.maximum(VISITS, 1)), 1.0))
def costs_behind_a_hurdle(clinic, visits, cost):
    """Whether there is a visit, how many (a Poisson truncated at zero, by factor), and a masked gamma cost."""
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    shape = sample("shape", dist.HalfNormal(3))
    unit = sample("unit", dist.LogNormal(2, 1))
    with plate("clinics", 5):
        u = sample("u", dist.Normal(0, 1))
    any_ = visits > 0
    rate = jnp.exp(b + tau * u[clinic])
    with plate("n", 40):
        sample("any", dist.Bernoulli(logits=a), obs=any_.astype(jnp.int32))
        factor("more", jnp.where(any_, visits * jnp.log(rate) - rate - gammaln(visits + 1)
                                 - jnp.log1p(-jnp.exp(-rate)), 0.0))
        with numpyro.handlers.mask(mask=any_):
            sample("cost", dist.Gamma(shape, shape / (unit * jnp.maximum(visits, 1))), obs=cost)


R = rng(42)
MONTH = R.integers(0, 5, 50)
TRAPS = R.integers(1, 6, 50)


@new(month=MONTH, traps=TRAPS, flies=np.where(R.random(50) < 0.25, 0, R.negative_binomial(
    3, 3 / (3 + TRAPS * np.exp(0.5 + 0.3 * MONTH)))))
def flies_in_traps(month, traps, flies=None):
    """Zero-inflated negative binomial with an exposure and steps between months."""
    gate = sample("gate", dist.Beta(2, 5))
    size = sample("size", dist.Gamma(2, 0.5))
    first = sample("first", dist.Normal(0, 2))
    step = sample("step", dist.HalfNormal(0.5))
    walk = sample("walk", dist.Normal(0, 1).expand([4]).to_event(1))
    level = first + step * jnp.concatenate([jnp.zeros(1), jnp.cumsum(walk)])
    with plate("n", 50):
        sample("flies", dist.ZeroInflatedDistribution(
            dist.NegativeBinomial2(traps * jnp.exp(level[month]), size), gate=gate), obs=flies)
