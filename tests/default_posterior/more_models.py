"""Fifty models more, each of two or three mechanisms together, as a distrustful user would paste them.

Written before any of them was run, and not tuned to the answers. `new_truths.py` computes their
references (`more_truths.json`).
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from collection import Collection
from jax.scipy.special import gammaln, log_ndtr, logsumexp
from numpyro import deterministic, factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints, transforms
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

import probml

MORE = Collection()
new, summed = MORE.new, MORE.summed
NODES, LOG_WEIGHTS = (lambda x, w: (x * np.sqrt(2.0), np.log(w / np.sqrt(np.pi))))(
    *np.polynomial.hermite.hermgauss(60))


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng([1128, seed])


def holed(values: np.ndarray, every: int, first: int = 1) -> np.ndarray:
    """The values as floats, with every so many of them missing."""
    out = np.array(values, float)
    out.ravel()[first::every] = np.nan
    return out


# ---- missing cells --------------------------------------------------------------------------------

R = rng(1)
G = R.integers(0, 6, 60)
AGE = R.normal(40, 8, 60)


@new(clinic=G, age=holed(AGE, 5),
     pressure=120 + R.normal(0, 4, 6)[G] + 0.5 * (AGE - 40) + 5 * R.normal(size=60))
def clinics_with_missing_ages(clinic):
    """A covariate with missing cells beside the intercepts of groups."""
    mu = sample("mu", dist.Normal(120, 20))
    tau = sample("tau", dist.HalfNormal(10))
    b = sample("b", dist.Normal(0, 2))
    sigma = sample("sigma", dist.HalfNormal(10))
    m = sample("m", dist.Normal(40, 10))
    s = sample("s", dist.HalfNormal(20))
    with plate("clinics", 6):
        a = sample("a", dist.Normal(mu, tau))
    with probml.rows():
        age = sample("age", dist.Normal(m, s))
        sample("pressure", dist.Normal(a[clinic] + b * (age - 40), sigma))


@summed("clinics_with_missing_ages")
def clinics_with_missing_ages_summed(clinic, age, pressure):
    mu = sample("mu", dist.Normal(120, 20))
    tau = sample("tau", dist.HalfNormal(10))
    b = sample("b", dist.Normal(0, 2))
    sigma = sample("sigma", dist.HalfNormal(10))
    m = sample("m", dist.Normal(40, 10))
    s = sample("s", dist.HalfNormal(20))
    with plate("clinics", 6):
        a = sample("a", dist.Normal(mu, tau))
    lost = jnp.isnan(age)
    known = jnp.where(lost, m, age)
    factor("age", jnp.where(lost, 0.0, dist.Normal(m, s).log_prob(known)).sum())
    wide = jnp.sqrt(sigma**2 + jnp.where(lost, (b * s)**2, 0.0))
    factor("pressure", dist.Normal(a[clinic] + b * (known - 40), wide).log_prob(pressure).sum())


R = rng(2)
G = R.integers(0, 4, 40)
L3 = np.linalg.cholesky(np.array([[1, 0.6, 0.2], [0.6, 1, 0.4], [0.2, 0.4, 1]]))


@new(group=G, x=holed(R.normal(0, 1, (4, 3))[G] + R.normal(size=(40, 3)) @ L3.T, 7, 3))
def normal_vectors_with_holes_by_group(group):
    """Vectors with missing cells, whose means are those of their groups."""
    mean = sample("mean", dist.Normal(0, 3).expand([3]).to_event(1))
    between = sample("between", dist.HalfNormal(2).expand([3]).to_event(1))
    within = sample("within", dist.HalfNormal(2).expand([3]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(3, 2.0))
    with plate("groups", 4):
        centre = sample("centre", dist.Normal(mean, between).to_event(1))
    with probml.rows():
        sample("x", dist.MultivariateNormal(centre[group], scale_tril=within[:, None] * lower))


@summed("normal_vectors_with_holes_by_group")
def normal_vectors_with_holes_by_group_summed(group, x):
    mean = sample("mean", dist.Normal(0, 3).expand([3]).to_event(1))
    between = sample("between", dist.HalfNormal(2).expand([3]).to_event(1))
    within = sample("within", dist.HalfNormal(2).expand([3]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(3, 2.0))
    with plate("groups", 4):
        centre = sample("centre", dist.Normal(mean, between).to_event(1))
    tril = within[:, None] * lower
    cov, there = tril @ tril.T, ~jnp.isnan(x)
    both = there[:, :, None] & there[:, None, :]
    off = jnp.where(there, jnp.nan_to_num(x) - centre[group], 0.0)
    log = dist.MultivariateNormal(jnp.zeros(3), jnp.where(both, cov, jnp.eye(3))).log_prob(off)
    factor("x", (log + 0.5 * jnp.log(2 * jnp.pi) * (~there).sum(-1)).sum())


R = rng(3)
WAS = R.random(50) < 0.5
DAMP = R.normal(size=50)
MADE = np.where(WAS[:, None], R.random((50, 4)) < [0.8, 0.7, 0.9, 0.6],
                R.random((50, 4)) < [0.2, 0.1, 0.3, 0.2])


@new(damp=DAMP + WAS, sign=holed(MADE, 6))
def two_classes_of_signs_with_holes(damp):
    """Latent classes of binary signs, some not looked for; a covariate of the class."""
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.HalfNormal(2))
    with plate("kinds", 2):
        shows = sample("shows", dist.Beta(1.5, 1.5).expand([4]).to_event(1))
    with probml.rows():
        ill = sample("ill", dist.Bernoulli(logits=a + b * damp))
        sample("sign", dist.Bernoulli(shows[ill]).to_event(1))


@summed("two_classes_of_signs_with_holes")
def two_classes_of_signs_with_holes_summed(damp, sign):
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.HalfNormal(2))
    with plate("kinds", 2):
        shows = sample("shows", dist.Beta(1.5, 1.5).expand([4]).to_event(1))
    there = ~jnp.isnan(sign)
    each = dist.Bernoulli(shows).log_prob(jnp.nan_to_num(sign)[:, None, :])
    each = jnp.where(there[:, None, :], each, 0.0).sum(-1)
    eta = a + b * damp
    prior = jnp.stack([jax.nn.log_sigmoid(-eta), jax.nn.log_sigmoid(eta)], -1)
    factor("sign", logsumexp(prior + each, -1).sum())


R = rng(4)
WET = R.normal(size=45)
FOX = R.random(45) < 0.6
HARE = R.random(45) < np.where(FOX, 0.35, 0.8)


@new(wet=WET, fox_seen=holed(R.binomial(4, 0.5 * FOX), 8), hare_seen=holed(R.binomial(4, 0.6 * HARE), 9))
def foxes_and_hares(wet):
    """Two presences of a row, of which one depends on the other; counts of either may be missing."""
    a = sample("a", dist.Normal(0, 1.5))
    slope = sample("slope", dist.Normal(0, 1))
    with plate("foxes", 2):
        b = sample("b", dist.Normal(0, 1.5))
    finds = sample("finds", dist.Beta(2, 2).expand([2]).to_event(1))
    with probml.rows():
        fox = sample("fox", dist.Bernoulli(logits=a + slope * wet))
        hare = sample("hare", dist.Bernoulli(logits=b[fox]))
        sample("fox_seen", dist.Binomial(4, finds[0] * fox))
        sample("hare_seen", dist.Binomial(4, finds[1] * hare))


@summed("foxes_and_hares")
def foxes_and_hares_summed(wet, fox_seen, hare_seen):
    a = sample("a", dist.Normal(0, 1.5))
    slope = sample("slope", dist.Normal(0, 1))
    with plate("foxes", 2):
        b = sample("b", dist.Normal(0, 1.5))
    finds = sample("finds", dist.Beta(2, 2).expand([2]).to_event(1))

    def seen(values, p):
        lost, k = jnp.isnan(values), jnp.nan_to_num(values)
        present = jnp.where(lost, 0.0, dist.Binomial(4, p).log_prob(k))
        return jnp.stack([jnp.where(lost | (k == 0), 0.0, -jnp.inf), present], -1)

    eta = a + slope * wet
    fox = jnp.stack([jax.nn.log_sigmoid(-eta), jax.nn.log_sigmoid(eta)], -1)
    hare = jnp.stack([jax.nn.log_sigmoid(-b), jax.nn.log_sigmoid(b)], -1)
    joint = (fox + seen(fox_seen, finds[0]))[:, :, None] + hare + seen(hare_seen, finds[1])[:, None, :]
    factor("seen", logsumexp(joint, (1, 2)).sum())


R = rng(5)
Z = R.normal(size=60)
HARD = np.array([-1.0, -0.4, 0.1, 0.6, 1.2])


@new(answers=holed(R.random((60, 5)) < 1 / (1 + np.exp(-1.3 * (Z[:, None] - HARD))), 11, 4))
def answers_with_holes():
    """One trait of a row under five answers, some of which are missing."""
    power = sample("power", dist.LogNormal(0, 0.5).expand([5]).to_event(1))
    hard = sample("hard", dist.Normal(0, 1.5).expand([5]).to_event(1))
    with probml.rows():
        trait = sample("trait", dist.Normal(0, 1))
        sample("answers", dist.Bernoulli(logits=power * (trait[..., None] - hard)).to_event(1))


@summed("answers_with_holes")
def answers_with_holes_summed(answers):
    power = sample("power", dist.LogNormal(0, 0.5).expand([5]).to_event(1))
    hard = sample("hard", dist.Normal(0, 1.5).expand([5]).to_event(1))
    each = dist.Bernoulli(logits=power * (NODES[:, None] - hard)).log_prob(
        jnp.nan_to_num(answers)[:, None, :])
    each = jnp.where(jnp.isnan(answers)[:, None, :], 0.0, each).sum(-1)
    factor("answers", logsumexp(each + LOG_WEIGHTS, -1).sum())


R = rng(6)
G = R.integers(0, 5, 30)
DOSE = R.normal(2, 1, 30)
LOST = np.array([3, 11, 12, 25])


@new(school=G, dose=np.where(np.isin(np.arange(30), LOST), 0.0, DOSE),
     score=R.normal(0, 1, 5)[G] + 0.8 * DOSE + R.normal(size=30))
def imputed_as_in_pymc(school, dose, score):
    """Missing doses are a vector of sites that is put where they belong."""
    mu = sample("mu", dist.Normal(0, 5))
    tau = sample("tau", dist.HalfNormal(2))
    a = sample("a", dist.Normal(mu, tau).expand([5]))
    b = sample("b", dist.Normal(0, 2))
    where = sample("where", dist.Normal(0, 5))
    wide = sample("wide", dist.HalfNormal(3))
    lost = sample("lost", dist.Normal(where, wide).expand([4]).mask(False))
    full = dose.at[LOST].set(lost) if hasattr(dose, "at") else jnp.asarray(dose).at[LOST].set(lost)
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("pupils", 30):
        sample("dose_row", dist.Normal(where, wide), obs=full)
        sample("score", dist.Normal(a[school] + b * full, sigma), obs=score)


@summed("imputed_as_in_pymc")
def imputed_as_in_pymc_by_hand(school, dose, score):
    mu = sample("mu", dist.Normal(0, 5))
    tau = sample("tau", dist.HalfNormal(2))
    a = sample("a", dist.Normal(mu, tau).expand([5]))
    b = sample("b", dist.Normal(0, 2))
    where = sample("where", dist.Normal(0, 5))
    wide = sample("wide", dist.HalfNormal(3))
    lost = sample("lost", dist.Normal(where, wide).expand([4]))
    sigma = sample("sigma", dist.HalfNormal(2))
    full = dose.at[LOST].set(lost)
    there = np.setdiff1d(np.arange(30), LOST)
    factor("dose", dist.Normal(where, wide).log_prob(dose[there]).sum())
    sample("score", dist.Normal(a[school] + b * full, sigma), obs=score)


# ---- along time -----------------------------------------------------------------------------------

R = rng(7)
E = np.zeros((5, 8))
for _t in range(8):
    E[:, _t] = (0.6 * E[:, _t - 1] if _t else 0.0) + 0.7 * R.normal(size=5)


@new(y=R.normal(3, 1.5, (5, 1)) + 0.3 * np.arange(8) + E)
def growth_with_correlated_errors(y):
    """AR(1) errors in five curves with intercepts of their own."""
    mu = sample("mu", dist.Normal(0, 5))
    tau = sample("tau", dist.HalfNormal(3))
    slope = sample("slope", dist.Normal(0, 1))
    rho = sample("rho", dist.Uniform(-1, 1))
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("children", 5):
        a = sample("a", dist.Normal(mu, tau))
    mean = a[:, None] + slope * jnp.arange(8.0)
    error = y - mean
    sample("first", dist.Normal(mean[:, 0], sigma / jnp.sqrt(1 - rho**2)), obs=y[:, 0])
    sample("rest", dist.Normal(mean[:, 1:] + rho * error[:, :-1], sigma), obs=y[:, 1:])


R = rng(8)
S = np.array([0] * 9 + [1] * 11 + [0] * 8 + [1] * 7)
RAIN = R.normal(size=35)


@new(rain=RAIN, flow=np.where(S, 4 + 1.0 * RAIN, 1 + 0.1 * RAIN) + 0.6 * R.normal(size=35))
def regimes_of_a_river(rain, flow):
    """A hidden Markov model by scan, with a regression in each state."""
    stay = sample("stay", dist.Beta(8, 2).expand([2]).to_event(1))
    low = sample("low", dist.Normal(0, 3))
    step = sample("step", dist.HalfNormal(4))
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    go = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])
    level = jnp.stack([low, low + step])

    def day(state, now):
        rain, flow = now
        state = sample("state", dist.Categorical(go[state]), infer={"enumerate": "parallel"})
        sample("flow", dist.Normal(level[state] + b[state] * rain, sigma), obs=flow)
        return state, None

    scan(day, 0, (rain, flow))


@summed("regimes_of_a_river")
def regimes_of_a_river_summed(rain, flow):
    stay = sample("stay", dist.Beta(8, 2).expand([2]).to_event(1))
    low = sample("low", dist.Normal(0, 3))
    step = sample("step", dist.HalfNormal(4))
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    go = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])
    level = jnp.stack([low, low + step])
    logs = dist.Normal(level + b * rain[:, None], sigma).log_prob(flow[:, None])
    alpha = jnp.array([0.0, -jnp.inf])
    for log in logs:
        alpha = logsumexp(alpha[:, None] + jnp.log(go), 0) + log
    factor("flow", logsumexp(alpha))


R = rng(9)
S = np.array([[0] * 5 + [1] * 7, [1] * 4 + [0] * 8, [0] * 12])
CALLS = R.poisson(np.where(S, 7.0, 2.0)).astype(float)


@new(calls=np.where(R.random((3, 12)) < 0.15, -1, CALLS))
def quiet_and_busy_lines(calls):
    """Three chains under one plate inside a scan; a count of −1 was not recorded."""
    quiet = sample("quiet", dist.Gamma(2, 1))
    more = sample("more", dist.Gamma(3, 0.5))
    leave = sample("leave", dist.Beta(2, 8).expand([2]).to_event(1))
    go = jnp.stack([jnp.stack([1 - leave[0], leave[0]]), jnp.stack([leave[1], 1 - leave[1]])])
    rate = jnp.stack([quiet, quiet + more])

    def hour(before, now):
        with plate("lines", 3):
            busy = sample("busy", dist.Categorical(go[before]), infer={"enumerate": "parallel"})
            with handlers.mask(mask=now >= 0):
                sample("calls", dist.Poisson(rate[busy]), obs=jnp.where(now >= 0, now, 0))
        return busy, None

    scan(hour, jnp.zeros(3, int), calls.T)


@summed("quiet_and_busy_lines")
def quiet_and_busy_lines_summed(calls):
    quiet = sample("quiet", dist.Gamma(2, 1))
    more = sample("more", dist.Gamma(3, 0.5))
    leave = sample("leave", dist.Beta(2, 8).expand([2]).to_event(1))
    go = jnp.stack([jnp.stack([1 - leave[0], leave[0]]), jnp.stack([leave[1], 1 - leave[1]])])
    rate = jnp.stack([quiet, quiet + more])
    logs = jnp.where((calls >= 0)[..., None],
                     dist.Poisson(rate).log_prob(jnp.maximum(calls, 0)[..., None]), 0.0)
    total = 0.0
    for line in range(3):
        alpha = jnp.array([0.0, -jnp.inf])
        for t in range(12):
            alpha = logsumexp(alpha[:, None] + jnp.log(go), 0) + logs[line, t]
        total = total + logsumexp(alpha)
    factor("calls", total)


R = rng(10)
LEVEL = np.cumsum(R.normal(0, 0.5, 24)) + 5
KEPT = np.ones(24, bool)
KEPT[[4, 5, 6, 15]] = False


@new(kept=KEPT, x=np.tile([0.0, 1.0, 0.0], 8),
     y=np.where(KEPT, LEVEL + np.tile([0.0, 1.0, 0.0], 8) + 0.4 * R.normal(size=24), 0.0))
def level_with_gaps(kept, x, y):
    """A local level by scan with a regressor, where some observations are masked."""
    drift = sample("drift", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    b = sample("b", dist.Normal(0, 2))
    start = sample("start", dist.Normal(5, 3))

    def step(level, now):
        kept, x, y = now
        level = sample("level", dist.Normal(level, drift))
        with handlers.mask(mask=kept):
            sample("y", dist.Normal(level + b * x, sigma), obs=y)
        return level, None

    scan(step, start, (kept, x, y))


@summed("level_with_gaps")
def level_with_gaps_by_hand(kept, x, y):
    drift = sample("drift", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    b = sample("b", dist.Normal(0, 2))
    start = sample("start", dist.Normal(5, 3))
    m, v, total = start, 0.0, 0.0
    for t in range(24):
        v = v + drift**2
        f = v + sigma**2
        off = y[t] - m - b * x[t]
        total = total + jnp.where(kept[t], dist.Normal(0, jnp.sqrt(f)).log_prob(off), 0.0)
        m, v = m + jnp.where(kept[t], v / f * off, 0.0), jnp.where(kept[t], v * sigma**2 / f, v)
    factor("y", total)


R = rng(11)
HOLIDAY = np.tile([0, 0, 0, 1.0], 5)


@new(holiday=HOLIDAY, cases=R.poisson(np.exp(1.5 + np.cumsum(R.normal(0, 0.25, 20)) - 0.6 * HOLIDAY)))
def weekly_cases(holiday, cases):
    """A random walk of log rates, negative binomial counts, a covariate."""
    step = sample("step", dist.HalfNormal(0.5))
    start = sample("start", dist.Normal(1, 1))
    b = sample("b", dist.Normal(0, 1))
    phi = sample("phi", dist.Gamma(2, 0.1))
    walk = sample("walk", dist.GaussianRandomWalk(step, 20))
    sample("cases", dist.NegativeBinomial2(jnp.exp(start + walk + b * holiday), phi), obs=cases)


R = rng(12)
EXPOSED = R.integers(3, 12, 22).astype(float)


@new(exposed=EXPOSED, faults=R.poisson(EXPOSED * np.where(np.arange(22) < 13, 0.5, 1.4)))
def change_in_a_rate(exposed, faults):
    """A discrete time of change, an offset, and rates with a common prior."""
    scale = sample("scale", dist.Exponential(1.0))
    rate = sample("rate", dist.Exponential(1 / scale).expand([2]).to_event(1))
    when = sample("when", dist.DiscreteUniform(1, 21), infer={"enumerate": "parallel"})
    now = jnp.where(jnp.arange(22) < when, rate[0], rate[1])
    with plate("weeks", 22):
        sample("faults", dist.Poisson(now * exposed), obs=faults)


@summed("change_in_a_rate")
def change_in_a_rate_summed(exposed, faults):
    scale = sample("scale", dist.Exponential(1.0))
    rate = sample("rate", dist.Exponential(1 / scale).expand([2]).to_event(1))
    when = np.arange(1, 22)[:, None]
    log = dist.Poisson(jnp.where(np.arange(22) < when, rate[0], rate[1]) * exposed).log_prob(faults)
    factor("faults", logsumexp(log.sum(-1)) - jnp.log(21.0))


R = rng(13)
TURN = np.array([2, 5, 3, 6, 4])


@new(y=1 + R.normal(0, 0.5, (5, 1)) + np.maximum(0, np.arange(8) - TURN[:, None]) * 0.9
     + 0.4 * R.normal(size=(5, 8)))
def each_subject_turns(y):
    """Each subject has a time of its own from which its curve rises, and an intercept of its own."""
    mu = sample("mu", dist.Normal(0, 3))
    tau = sample("tau", dist.HalfNormal(1))
    slope = sample("slope", dist.HalfNormal(2))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("subjects", 5):
        a = sample("a", dist.Normal(mu, tau))
        turn = sample("turn", dist.Categorical(jnp.ones(8) / 8), infer={"enumerate": "parallel"})
        mean = a[:, None] + slope * jnp.maximum(0, jnp.arange(8) - turn[..., None])
        sample("y", dist.Normal(mean, sigma).to_event(1), obs=y)


@summed("each_subject_turns")
def each_subject_turns_summed(y):
    mu = sample("mu", dist.Normal(0, 3))
    tau = sample("tau", dist.HalfNormal(1))
    slope = sample("slope", dist.HalfNormal(2))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("subjects", 5):
        a = sample("a", dist.Normal(mu, tau))
    rise = np.maximum(0, np.arange(8) - np.arange(8)[:, None])
    log = dist.Normal(a[:, None, None] + slope * rise, sigma).log_prob(y[:, None, :]).sum(-1)
    factor("y", (logsumexp(log, 1) - jnp.log(8.0)).sum())


R = rng(14)
SEX = R.integers(0, 2, 24)
ALIVE, CAUGHT = np.ones(24, bool), np.zeros((24, 5), int)
CAUGHT[:, 0] = 1
for _t in range(1, 5):
    ALIVE &= R.random(24) < np.where(SEX, 0.85, 0.65)
    CAUGHT[:, _t] = ALIVE & (R.random(24) < 0.6)


@new(sex=SEX, caught=CAUGHT)
def voles_caught_again(sex, caught):
    """Capture and recapture in a Python loop: survival by sex, capture by occasion."""
    survive = sample("survive", dist.Beta(1, 1).expand([2]).to_event(1))
    mu = sample("mu", dist.Normal(0, 1))
    sd = sample("sd", dist.HalfNormal(1))
    p = sample("p", dist.TransformedDistribution(dist.Normal(mu, sd).expand([4]),
                                                 transforms.SigmoidTransform()))
    alive = jnp.ones(24, int)
    with plate("voles", 24):
        for t in range(1, 5):
            alive = sample(f"alive_{t}", dist.Bernoulli(survive[sex] * alive),
                           infer={"enumerate": "parallel"})
            sample(f"caught_{t}", dist.Bernoulli(p[t - 1] * alive), obs=caught[:, t])


@summed("voles_caught_again")
def voles_caught_again_summed(sex, caught):
    survive = sample("survive", dist.Beta(1, 1).expand([2]).to_event(1))
    mu = sample("mu", dist.Normal(0, 1))
    sd = sample("sd", dist.HalfNormal(1))
    p = sample("p", dist.TransformedDistribution(dist.Normal(mu, sd).expand([4]),
                                                 transforms.SigmoidTransform()))
    phi = survive[sex]
    live, dead = jnp.ones(24), jnp.zeros(24)
    for t in range(1, 5):
        dead = jnp.where(caught[:, t] == 1, 0.0, dead + live * (1 - phi))
        live = live * phi * jnp.where(caught[:, t] == 1, p[t - 1], 1 - p[t - 1])
    factor("caught", jnp.log(live + dead).sum())


# ---- discrete beside groups, curves and counts ----------------------------------------------------

R = rng(15)
G = R.integers(0, 5, 60)
X = R.normal(size=60)
WHICH = R.random(60) < 0.4


@new(clinic=G, x=X, y=R.normal(0, 0.6, 5)[G] + np.where(WHICH, 4 - X, 1 + X) + 0.5 * R.normal(size=60))
def two_lines_in_clinics(clinic, x):
    """A mixture of two regressions, with an effect of the clinic in either."""
    w = sample("w", dist.Beta(2, 2))
    low = sample("low", dist.Normal(0, 3))
    gap = sample("gap", dist.HalfNormal(4))
    b = sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("clinics", 5):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        z = sample("z", dist.Bernoulli(w))
        sample("y", dist.Normal(low + gap * z + b[z] * x + u[clinic], sigma))


@summed("two_lines_in_clinics")
def two_lines_in_clinics_summed(clinic, x, y):
    w = sample("w", dist.Beta(2, 2))
    low = sample("low", dist.Normal(0, 3))
    gap = sample("gap", dist.HalfNormal(4))
    b = sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("clinics", 5):
        u = sample("u", dist.Normal(0, tau))
    one, two = (dist.Normal(low + gap * z + b[z] * x + u[clinic], sigma).log_prob(y) for z in (0, 1))
    factor("y", jnp.logaddexp(jnp.log1p(-w) + one, jnp.log(w) + two).sum())


R = rng(16)
G = R.integers(0, 8, 80)
X = R.normal(size=80)


@new(pond=G, x=X, eggs=np.where(R.random(80) < 0.3, 0,
                                R.poisson(np.exp(1 + 0.4 * X + R.normal(0, 0.5, 8)[G]))))
def empty_nests_in_ponds(pond, x, eggs):
    """Zero inflation beside effects of groups on the rate."""
    gate = sample("gate", dist.Beta(1, 1))
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfCauchy(1))
    with plate("ponds", 8):
        u = sample("u", dist.Normal(0, tau))
    with plate("nests", 80):
        sample("eggs", dist.ZeroInflatedPoisson(gate, jnp.exp(a + b * x + u[pond])), obs=eggs)


R = rng(17)
HOURS = R.uniform(1, 10, 50)
X = R.normal(size=50)


@new(hours=HOURS, bait=X, fish=np.where(R.random(50) < 1 / (1 + np.exp(-1 + X)),
                                        R.poisson(HOURS * 0.8 * R.gamma(2, 0.5, 50)), 0))
def anglers_who_do_not_fish(hours, bait):
    """A hidden yes or no of each row with a covariate, negative binomial counts, an offset."""
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 1))
    rate = sample("rate", dist.LogNormal(0, 1))
    phi = sample("phi", dist.Exponential(0.5))
    with probml.rows():
        fishes = sample("fishes", dist.Bernoulli(logits=a + b * bait))
        mean = jnp.where(fishes == 1, rate * hours, 1e-6)
        sample("fish", dist.NegativeBinomial2(mean, phi))


@summed("anglers_who_do_not_fish")
def anglers_who_do_not_fish_summed(hours, bait, fish):
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 1))
    rate = sample("rate", dist.LogNormal(0, 1))
    phi = sample("phi", dist.Exponential(0.5))
    eta = a + b * bait
    yes = dist.NegativeBinomial2(rate * hours, phi).log_prob(fish)
    no = dist.NegativeBinomial2(1e-6, phi).log_prob(fish)
    factor("fish", jnp.logaddexp(jax.nn.log_sigmoid(eta) + yes, jax.nn.log_sigmoid(-eta) + no).sum())


R = rng(18)
X = R.normal(size=25)
N = R.poisson(np.exp(1.6 + 0.5 * X))
MOST = 40


@new(x=X, seen=R.binomial(N[:, None], 0.5, (25, 3)))
def frogs_of_ponds(x, seen):
    """An N-mixture: the number of frogs is summed up to 40, its rate has a covariate."""
    a = sample("a", dist.Normal(1, 1))
    b = sample("b", dist.Normal(0, 1))
    p = sample("p", dist.Beta(2, 2))
    numbers = jnp.arange(MOST + 1)
    with plate("ponds", 25):
        logits = dist.Poisson(jnp.exp(a + b * x)[:, None]).log_prob(numbers)
        n = sample("n", dist.Categorical(logits=logits), infer={"enumerate": "parallel"})
        sample("seen", dist.Binomial(n[..., None], p).to_event(1), obs=seen)


@summed("frogs_of_ponds")
def frogs_of_ponds_summed(x, seen):
    a = sample("a", dist.Normal(1, 1))
    b = sample("b", dist.Normal(0, 1))
    p = sample("p", dist.Beta(2, 2))
    n = np.arange(MOST + 1)
    prior = jax.nn.log_softmax(dist.Poisson(jnp.exp(a + b * x)[:, None]).log_prob(n), -1)
    k = np.asarray(MORE.models["frogs_of_ponds"][1]["seen"])[:, None, :]
    fits = (k <= n[:, None]).all(-1)
    left = np.maximum(n[:, None] - k, 0)
    log = (gammaln(n + 1.0)[:, None] - gammaln(k + 1.0) - gammaln(left + 1.0)
           + k * jnp.log(p) + left * jnp.log1p(-p)).sum(-1)
    factor("seen", logsumexp(jnp.where(fits, prior + log, -jnp.inf), -1).sum())


R = rng(19)
WAS = R.random(50) < 0.35
DEPTH = np.where(WAS, R.normal(3.0, 0.4, 50), R.normal(1.0, 0.7, 50))


@new(worms=R.poisson(np.exp(DEPTH)))
def kind_and_depth_of_a_row():
    """A hidden kind and a hidden normal number in one row, under a count."""
    w = sample("w", dist.Beta(2, 2))
    low = sample("low", dist.Normal(1, 1))
    gap = sample("gap", dist.HalfNormal(2))
    sd = sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    with probml.rows():
        kind = sample("kind", dist.Bernoulli(w))
        depth = sample("depth", dist.Normal(low + gap * kind, sd[kind]))
        sample("worms", dist.Poisson(jnp.exp(depth)))


@summed("kind_and_depth_of_a_row")
def kind_and_depth_of_a_row_summed(worms):
    w = sample("w", dist.Beta(2, 2))
    low = sample("low", dist.Normal(1, 1))
    gap = sample("gap", dist.HalfNormal(2))
    sd = sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    mean = jnp.stack([low, low + gap])
    depth = mean[:, None] + sd[:, None] * NODES
    log = logsumexp(dist.Poisson(jnp.exp(depth)).log_prob(worms[:, None, None]) + LOG_WEIGHTS, -1)
    factor("worms", logsumexp(log + jnp.log(jnp.stack([1 - w, w])), -1).sum())


R = rng(20)
G = R.integers(0, 6, 70)
X = R.normal(size=70)
TRUE = R.random(70) < 1 / (1 + np.exp(-(0.2 + 1.2 * X + R.normal(0, 0.7, 6)[G])))


@new(area=G, x=X, test=np.where(TRUE, R.random(70) < 0.9, R.random(70) < 0.1))
def imperfect_tests_in_areas(area, x):
    """A disease that a test sees with errors, and effects of areas on its odds."""
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1.5))
    tau = sample("tau", dist.HalfNormal(1))
    hit = sample("hit", dist.Beta(18, 2))
    clear = sample("clear", dist.Beta(18, 2))
    with plate("areas", 6):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        ill = sample("ill", dist.Bernoulli(logits=a + b * x + u[area]))
        sample("test", dist.Bernoulli(jnp.where(ill == 1, hit, 1 - clear)))


@summed("imperfect_tests_in_areas")
def imperfect_tests_in_areas_summed(area, x, test):
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1.5))
    tau = sample("tau", dist.HalfNormal(1))
    hit = sample("hit", dist.Beta(18, 2))
    clear = sample("clear", dist.Beta(18, 2))
    with plate("areas", 6):
        u = sample("u", dist.Normal(0, tau))
    p = jax.nn.sigmoid(a + b * x + u[area])
    sample("test", dist.Bernoulli(p * hit + (1 - p) * (1 - clear)), obs=jnp.asarray(test, int))


R = rng(21)
G = np.repeat(np.arange(8), 6)
T = np.tile(np.arange(6.0), 8)
BAD = R.random(48) < 0.1


@new(who=G, t=T, y=R.normal(2, 1, 8)[G] + R.normal(0.5, 0.3, 8)[G] * T + R.normal(size=48)
     * np.where(BAD, 4.0, 0.4))
def slopes_with_outliers(who, t):
    """Intercepts and slopes of subjects, and a hidden outlier of each row."""
    mu = sample("mu", dist.Normal(0, 3).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1).expand([2]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    bad = sample("bad", dist.Beta(1, 9))
    with plate("subjects", 8):
        a = sample("a", dist.Normal(mu[0], tau[0]))
        b = sample("b", dist.Normal(mu[1], tau[1]))
    with probml.rows():
        out = sample("out", dist.Bernoulli(bad))
        sample("y", dist.Normal(a[who] + b[who] * t, sigma * jnp.where(out == 1, 10.0, 1.0)))


@summed("slopes_with_outliers")
def slopes_with_outliers_summed(who, t, y):
    mu = sample("mu", dist.Normal(0, 3).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1).expand([2]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    bad = sample("bad", dist.Beta(1, 9))
    with plate("subjects", 8):
        a = sample("a", dist.Normal(mu[0], tau[0]))
        b = sample("b", dist.Normal(mu[1], tau[1]))
    mean = a[who] + b[who] * t
    factor("y", jnp.logaddexp(jnp.log1p(-bad) + dist.Normal(mean, sigma).log_prob(y),
                              jnp.log(bad) + dist.Normal(mean, 10 * sigma).log_prob(y)).sum())


R = rng(22)
SHARE = R.dirichlet([4.0, 2, 2], 4)
PART = np.array([[R.choice(3, p=SHARE[s]) for _ in range(15)] for s in range(4)])


@new(weight=np.array([1.0, 3.0, 6.0])[PART] + np.array([0.4, 0.5, 0.9])[PART] * R.normal(size=(4, 15)))
def catches_of_known_kinds(weight):
    """Kinds with known means; each site has its own shares, which have a common mean."""
    base = sample("base", dist.Dirichlet(jnp.ones(3)))
    total = sample("total", dist.Gamma(4, 0.5))
    with plate("sites", 4):
        share = sample("share", dist.Dirichlet(total * base + 0.01))
    kinds = dist.Normal(jnp.array([1.0, 3.0, 6.0]), jnp.array([0.4, 0.5, 0.9]))
    with plate("places", 4, dim=-2), plate("fish", 15, dim=-1):
        sample("weight", dist.MixtureSameFamily(dist.Categorical(share[:, None, :]), kinds), obs=weight)


# ---- numbers of a row and effects of groups -------------------------------------------------------

R = rng(23)
G = R.integers(0, 5, 40)
DOSE = R.normal(size=40)


@new(ward=G, dose_read=DOSE + 0.5 * R.normal(size=40),
     falls=R.poisson(np.exp(0.7 + 0.5 * DOSE + R.normal(0, 0.4, 5)[G])))
def mismeasured_doses_in_wards(ward):
    """The true dose of a row is hidden; counts and effects of wards."""
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    m = sample("m", dist.Normal(0, 1))
    s = sample("s", dist.HalfNormal(1.5))
    with plate("wards", 5):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        dose = sample("dose", dist.Normal(m, s))
        sample("dose_read", dist.Normal(dose, 0.5))
        sample("falls", dist.Poisson(jnp.exp(a + b * dose + u[ward])))


R = rng(24)
G = R.integers(0, 7, 56)
X = R.normal(size=56)
LIVED = R.weibull(1.4, 56) * np.exp(1 - 0.5 * X + R.normal(0, 0.4, 7)[G])


@new(ward=G, x=X, t=np.minimum(LIVED, 4.0), died=LIVED < 4.0)
def frail_wards(ward, x, t, died):
    """Censored Weibull times by factor, with a frailty of each ward that is log-normal."""
    shape = sample("shape", dist.Gamma(4, 3))
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("wards", 7):
        frailty = sample("frailty", dist.LogNormal(0, tau))
    scale = jnp.exp(a + b * x) * frailty[ward] ** (-1 / shape)
    law = dist.Weibull(scale, shape)
    with plate("patients", 56):
        factor("t", jnp.where(died, law.log_prob(t), -((t / scale) ** shape)))


R = rng(25)
G = R.integers(0, 6, 72)
X = R.normal(size=72)
LATENT = 1.1 * X + R.normal(0, 0.8, 6)[G] + R.logistic(size=72)


@new(judge=G, sweet=X, score=np.digitize(LATENT, [-1.5, 0.0, 1.5]))
def wines_by_judges(judge, sweet, score):
    """Ordered scores, cut points that are transformed, effects of judges."""
    b = sample("b", dist.Normal(0, 2))
    tau = sample("tau", dist.HalfNormal(1))
    cuts = sample("cuts", dist.TransformedDistribution(
        dist.Normal(0, 2).expand([3]).to_event(1), transforms.OrderedTransform()))
    with plate("judges", 6):
        u = sample("u", dist.Normal(0, tau))
    with plate("glasses", 72):
        sample("score", dist.OrderedLogistic(b * sweet + u[judge], cuts), obs=score)


R = rng(26)
ABLE, DIFF = R.normal(size=20), np.linspace(-1.5, 1.5, 6)


@new(right=R.random((20, 6)) < 0.2 + 0.8 / (1 + np.exp(-1.5 * (ABLE[:, None] - DIFF))))
def guessing_pupils(right):
    """Item response with guessing, in two plates."""
    with plate("items", 6, dim=-1):
        hard = sample("hard", dist.Normal(0, 1.5))
        power = sample("power", dist.LogNormal(0, 0.4))
        guess = sample("guess", dist.Beta(5, 20))
    with plate("pupils", 20, dim=-2):
        able = sample("able", dist.Normal(0, 1))
        with plate("answers", 6, dim=-1):
            p = guess + (1 - guess) * jax.nn.sigmoid(power * (able - hard))
            sample("right", dist.Bernoulli(p), obs=right)


R = rng(27)
DONE = R.random((10, 6)) < 0.75


@new(done=DONE, score=np.where(DONE, 5 + R.normal(0, 1, (10, 1)) + R.normal(0, 0.8, 6)
                              + 0.7 * R.normal(size=(10, 6)), -99.0))
def students_and_tasks_masked(done, score):
    """Crossed effects; scores of tasks that were not done are masked."""
    mu = sample("mu", dist.Normal(0, 10))
    tau = sample("tau", dist.HalfNormal(2).expand([2]))
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("students", 10, dim=-2):
        a = sample("a", dist.Normal(0, tau[0]))
    with plate("tasks", 6, dim=-1):
        b = sample("b", dist.Normal(0, tau[1]))
    with handlers.mask(mask=done):
        sample("score", dist.Normal(mu + a + b, sigma), obs=score)


R = rng(28)
G = R.integers(0, 4, 40)


@new(shop=G, sold=R.binomial(12, np.array([0.3, 0.4, 0.35, 0.5])[G]))
def conway_maxwell_by_shop(shop, sold):
    """A density made by factor: Conway-Maxwell-Poisson, its constant a sum; effects of shops."""
    a = sample("a", dist.Normal(1, 1))
    nu = sample("nu", dist.Gamma(2, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    with plate("shops", 4):
        u = sample("u", dist.Normal(0, tau))
    rate = a + u[shop]
    n = jnp.arange(80.0)
    constant = logsumexp(nu * (n * rate[:, None] - gammaln(n + 1)), -1)
    with plate("days", 40):
        factor("sold", nu * (sold * rate - gammaln(sold + 1.0)) - constant)


@summed("conway_maxwell_by_shop")
def conway_maxwell_by_shop_not_centred(shop, sold):
    """NumPyro's own chains disagree where the effects are centred."""
    a = sample("a", dist.Normal(1, 1))
    nu = sample("nu", dist.Gamma(2, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    with plate("shops", 4):
        z = sample("z", dist.Normal(0, 1))
    u = deterministic("u", tau * z)
    rate = a + u[shop]
    n = jnp.arange(80.0)
    constant = logsumexp(nu * (n * rate[:, None] - gammaln(n + 1)), -1)
    factor("sold", (nu * (sold * rate - gammaln(sold + 1.0)) - constant).sum())


R = rng(29)
X = R.normal(5, 2, 15)


@new(x=X + 0.3 * R.normal(size=15), y=1 + 0.7 * X + np.append(0.3 * R.normal(size=14), 4.0),
     dx=np.full(15, 0.3), dy=R.uniform(0.2, 0.5, 15))
def calibration_with_both_errors(dx, dy):
    """Errors of known size in x and y, scatter with heavy tails, an outlier."""
    a = sample("a", dist.Normal(0, 5))
    b = sample("b", dist.Normal(0, 2))
    m = sample("m", dist.Normal(5, 5))
    s = sample("s", dist.HalfNormal(5))
    scatter = sample("scatter", dist.HalfNormal(1))
    with probml.rows():
        truth = sample("truth", dist.Normal(m, s))
        sample("x", dist.Normal(truth, dx))
        line = sample("line", dist.StudentT(4, a + b * truth, scatter))
        sample("y", dist.Normal(line, dy))


R = rng(30)
G, H = np.repeat(np.arange(9), 7), np.tile(np.arange(7), 9)


@new(person=G, word=H, errors=R.poisson(np.exp(0.6 + R.normal(0, 0.6, 9)[G] + R.normal(0, 0.5, 7)[H])))
def persons_by_words(person, word):
    """Crossed effects on counts."""
    mu = sample("mu", dist.Normal(0, 2))
    s_person = sample("s_person", dist.Exponential(1))
    s_word = sample("s_word", dist.Exponential(1))
    with plate("persons", 9):
        a = sample("a", dist.Normal(0, s_person))
    with plate("words", 7):
        b = sample("b", dist.Normal(0, s_word))
    with probml.rows():
        sample("errors", dist.Poisson(jnp.exp(mu + a[person] + b[word])))


R = rng(31)
G = np.repeat(np.arange(10), 6)
T = np.tile(np.arange(6) - 2.5, 10)
AB = R.normal(size=(10, 2)) @ np.array([[1.2, 0.3], [0, 0.3]]) + [4, 0.5]


@new(who=G, t=T, y=AB[G, 0] + AB[G, 1] * T + 0.8 * R.normal(size=60))
def correlated_slopes(who, t, y):
    """Intercepts and slopes with an LKJ correlation, not centred, as people paste from a guide."""
    mu = sample("mu", dist.Normal(0, 5).expand([2]))
    sd = sample("sd", dist.HalfCauchy(2).expand([2]))
    corr = sample("corr", dist.LKJCholesky(2, 2.0))
    with plate("groups", 10):
        raw = sample("raw", dist.Normal(0, 1).expand([2]).to_event(1))
    both = deterministic("both", mu + raw @ (sd[:, None] * corr).T)
    sigma = sample("sigma", dist.Exponential(1))
    with plate("obs", 60):
        sample("y", dist.Normal(both[who, 0] + both[who, 1] * t, sigma), obs=y)


R = rng(32)
X = R.normal(size=(60, 6))


@new(x=X, y=R.random(60) < 1 / (1 + np.exp(-(X @ [2, 0, 0, -1.5, 0, 0]))))
def horseshoe_of_six(x, y):
    """A horseshoe on the coefficients of a logistic regression."""
    tau = sample("tau", dist.HalfCauchy(0.5))
    lam = sample("lam", dist.HalfCauchy(1).expand([6]))
    b = sample("b", dist.Normal(0, tau * lam))
    a = sample("a", dist.Normal(0, 2))
    sample("y", dist.Bernoulli(logits=a + x @ b), obs=y)


@summed("horseshoe_of_six")
def horseshoe_of_six_not_centred(x, y):
    tau = sample("tau", dist.HalfCauchy(0.5))
    lam = sample("lam", dist.HalfCauchy(1).expand([6]))
    b = deterministic("b", tau * lam * sample("raw", dist.Normal(0, 1).expand([6])))
    a = sample("a", dist.Normal(0, 2))
    sample("y", dist.Bernoulli(logits=a + x @ b), obs=jnp.asarray(y, int))


R = rng(33)
T = np.linspace(0, 5, 12)


@new(t=T, who=np.arange(12) % 3, y=np.sin(1.3 * T) + np.array([0, 1, -0.5])[np.arange(12) % 3]
     + 0.2 * R.normal(size=12))
def smooth_curve_and_three_labs(t, who, y):
    """A Gaussian process at 12 points and effects of three labs."""
    length = sample("length", dist.InverseGamma(5, 5))
    height = sample("height", dist.HalfNormal(1))
    noise = sample("noise", dist.HalfNormal(0.5))
    lab = sample("lab", dist.Normal(0, 1).expand([3]))
    gap = (t[:, None] - t) / length
    cov = height**2 * jnp.exp(-0.5 * gap**2) + (noise**2 + 1e-5) * jnp.eye(12)
    sample("y", dist.MultivariateNormal(lab[who], cov), obs=y)


R = rng(34)
G = R.integers(0, 3, 45)
SPEED = R.normal(size=45)


@new(station=G, speed=SPEED, wind=(0.5 + 2 * np.arctan(0.6 * SPEED) + R.vonmises(0, 4, 45)
                                  + np.pi) % (2 * np.pi) - np.pi)
def winds_of_stations(station, speed):
    """Directions with a linear covariate by the usual link, and a concentration of each station."""
    mu = sample("mu", dist.VonMises(0, 0.5))
    b = sample("b", dist.Normal(0, 1))
    centre = sample("centre", dist.Normal(1, 1))
    wide = sample("wide", dist.HalfNormal(1))
    with plate("stations", 3):
        kappa = sample("kappa", dist.LogNormal(centre, wide))
    with probml.rows():
        sample("wind", dist.VonMises(mu + 2 * jnp.arctan(b * speed), kappa[station]))


R = rng(35)
G = R.integers(0, 4, 60)
X = R.normal(size=60)
PAY = 1 + 0.8 * X + R.normal(0, 0.4, 4)[G] + R.normal(size=60)
PAID = PAY > 0


@new(branch=G[PAID], x=X[PAID], pay=PAY[PAID])
def only_those_who_are_paid(branch, x, pay):
    """A truncated outcome and effects of branches."""
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 2))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("branches", 4):
        u = sample("u", dist.Normal(0, tau))
    with plate("people", len(pay)):
        mean = a + b * x + u[branch]
        sample("pay", dist.LeftTruncatedDistribution(dist.Normal(mean, sigma), low=0.0), obs=pay)


R = rng(36)
SIZES = np.array([2, 9, 4, 1, 7, 12, 3, 5, 2, 6])
WARD = np.repeat(np.arange(10), SIZES)
HOSPITAL = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 3])


@new(ward=WARD, x=(R.normal(0, 1, 4)[HOSPITAL] + R.normal(0, 0.6, 10))[WARD]
     + R.standard_t(4, 51) * 0.8)
def wards_in_hospitals(ward):
    """Two levels with unequal sizes, Student errors."""
    mu = sample("mu", dist.Normal(0, 3))
    between = sample("between", dist.HalfNormal(2))
    within = sample("within", dist.HalfNormal(2))
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("hospitals", 4):
        hospital = sample("hospital", dist.Normal(mu, between))
    with plate("wards", 10):
        level = sample("level", dist.Normal(hospital[HOSPITAL], within))
    with probml.rows():
        sample("x", dist.StudentT(4, level[ward], sigma))


@summed("wards_in_hospitals")
def wards_in_hospitals_not_centred(ward, x):
    mu = sample("mu", dist.Normal(0, 3))
    between = sample("between", dist.HalfNormal(2))
    within = sample("within", dist.HalfNormal(2))
    sigma = sample("sigma", dist.HalfNormal(2))
    hospital = mu + between * sample("raw", dist.Normal(0, 1).expand([4]))
    deterministic("hospital", hospital)
    level = hospital[HOSPITAL] + within * sample("raw_ward", dist.Normal(0, 1).expand([10]))
    deterministic("level", level)
    sample("x", dist.StudentT(4, level[ward], sigma), obs=x)


# ---- units, handlers, transformed and improper ----------------------------------------------------

R = rng(37)
G = R.integers(0, 6, 48)
YEAR = 10000 + R.integers(0, 20, 48).astype(float)


@new(lab=G, day=YEAR, lead=0.002 + 0.001 * R.normal(size=6)[G] + 1e-4 * (YEAR - 10010)
     + 5e-4 * R.normal(size=48))
def traces_of_lead_by_day(lab, day):
    """Outcomes of thousandths, a column that is shifted by ten thousand, effects of labs."""
    a = sample("a", dist.Normal(0, 0.01))
    b = sample("b", dist.Normal(0, 0.001))
    tau = sample("tau", dist.HalfNormal(0.005))
    sigma = sample("sigma", dist.HalfNormal(0.005))
    with plate("labs", 6):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        sample("lead", dist.Normal(a + b * (day - 10010.0) + u[lab], sigma))


@summed("traces_of_lead_by_day")
def traces_of_lead_by_day_scaled(lab, day, lead):
    a = deterministic("a", 0.01 * sample("raw_a", dist.Normal(0, 1)))
    b = deterministic("b", 0.001 * sample("raw_b", dist.Normal(0, 1)))
    tau = deterministic("tau", 0.005 * sample("raw_tau", dist.HalfNormal(1)))
    sigma = deterministic("sigma", 0.005 * sample("raw_sigma", dist.HalfNormal(1)))
    u = deterministic("u", tau * sample("raw_u", dist.Normal(0, 1).expand([6])))
    sample("lead", dist.Normal(a + b * (day - 10010.0) + u[lab], sigma), obs=lead)


R = rng(38)
G = R.integers(0, 5, 40)
X = 10000 + 3 * R.normal(size=40)


@new(site=G, height=X, yield_kg=5e4 + 2000 * (X - 10000) + R.normal(0, 4000, 5)[G]
     + 3000 * R.normal(size=40))
def far_from_zero_in_thousands(site, height, yield_kg):
    """A slope on a column that is not centred, in units of thousands, with effects of sites."""
    a = sample("a", dist.Normal(0, 1e8))
    b = sample("b", dist.Normal(0, 1e4))
    tau = sample("tau", dist.HalfCauchy(1e4))
    sigma = sample("sigma", dist.HalfCauchy(1e4))
    with plate("sites", 5):
        u = sample("u", dist.Normal(0, tau))
    with plate("plots", 40):
        sample("yield_kg", dist.Normal(a + b * height + u[site], sigma), obs=yield_kg)


@summed("far_from_zero_in_thousands")
def far_from_zero_in_thousands_scaled(site, height, yield_kg):
    b = deterministic("b", 1e4 * sample("raw_b", dist.Normal(0, 1)))
    tau = deterministic("tau", 1e4 * sample("raw_tau", dist.HalfCauchy(1)))
    sigma = deterministic("sigma", 1e4 * sample("raw_sigma", dist.HalfCauchy(1)))
    level = 1e4 * sample("raw_level", dist.Normal(0, 1).mask(False))
    a = deterministic("a", level - 1e4 * b)
    factor("prior", dist.Normal(0, 1e8).log_prob(a))
    u = deterministic("u", tau * sample("raw_u", dist.Normal(0, 1).expand([5])))
    sample("yield_kg", dist.Normal(level + b * (height - 10000) + u[site], sigma), obs=yield_kg)


R = rng(39)
G = R.integers(0, 6, 60)
X = R.normal(size=60)


@new(school=G, x=X, passed=R.random(60) < 1 / (1 + np.exp(-(0.5 + X + R.normal(0, 1, 6)[G]))))
def batches_of_a_plate(school, x, passed):
    """A plate that is subsampled, with effects of groups."""
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 2))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("schools", 6):
        u = sample("u", dist.Normal(0, tau))
    with plate("pupils", 60, subsample_size=20) as who:
        sample("passed", dist.Bernoulli(logits=a + b * x[who] + u[school[who]]), obs=passed[who])


@summed("batches_of_a_plate")
def batches_of_a_plate_whole(school, x, passed):
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 2))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("schools", 6):
        u = sample("u", dist.Normal(0, tau))
    sample("passed", dist.Bernoulli(logits=a + b * x + u[school]), obs=jnp.asarray(passed, int))


def _litters(mother, pups):
    mu = sample("mu", dist.Normal(0, 2))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("mothers", 8):
        rate = sample("rate", dist.TransformedDistribution(
            dist.Normal(0, 1), transforms.AffineTransform(mu, tau)))
        kick = sample("kick", dist.Normal(mu, 0.5))
    sample("pups", dist.Poisson(jnp.exp(rate[mother] + 0.1 * kick[mother])), obs=pups)


R = rng(40)
G = R.integers(0, 8, 40)


@new(mother=G, pups=R.poisson(np.exp(1 + 0.5 * R.normal(size=8))[G]))
def litters_reparametrised(mother, pups):
    """Two handlers.reparam over one function: an affine transform, and a location and scale."""
    handlers.reparam(_litters, {"rate": TransformReparam(), "kick": LocScaleReparam(0.3)})(mother, pups)


R = rng(41)
G = R.integers(0, 6, 48)


@new(machine=G, wait=R.gamma(2, np.exp(R.normal(0.5, 0.5, 6))[G] / 2))
def waits_of_machines(machine, wait):
    """Means that are log-normal among machines, gamma outcomes."""
    m = sample("m", dist.Normal(0, 1))
    s = sample("s", dist.LogNormal(-1, 0.5))
    shape = sample("shape", dist.LogNormal(0, 1))
    with plate("machines", 6):
        mean = sample("mean", dist.LogNormal(m, s))
    with plate("waits", 48):
        sample("wait", dist.Gamma(shape, shape / mean[machine]), obs=wait)


R = rng(42)
ADJ = np.zeros((9, 9))
for _i in range(9):
    for _j in (_i + 1, _i + 3):
        if _j < 9 and not (_j == _i + 1 and _j % 3 == 0):
            ADJ[_i, _j] = ADJ[_j, _i] = 1
EXPECTED = R.uniform(5, 30, 9)


@new(expected=EXPECTED, poor=np.linspace(-1, 1, 9),
     deaths=R.poisson(EXPECTED * np.exp(0.3 * np.linspace(-1, 1, 9) + R.normal(0, 0.3, 9))))
def counties_and_their_neighbours(expected, poor, deaths):
    """A conditional autoregression of nine counties, expected counts, a covariate."""
    a = sample("a", dist.Normal(0, 1))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.Gamma(2, 0.2))
    rho = sample("rho", dist.Uniform(0, 0.99))
    phi = sample("phi", dist.CAR(jnp.zeros(9), rho, tau, ADJ))
    sample("deaths", dist.Poisson(expected * jnp.exp(a + b * poor + phi)), obs=deaths)


R = rng(43)
G = R.integers(0, 7, 35)


@new(mill=G, strength=30 + R.normal(0, 2, 7)[G] + R.normal(size=35))
def flat_priors_and_mills(mill, strength):
    """Improper priors of the mean and the errors, a proper one of the spread between mills."""
    mu = sample("mu", dist.ImproperUniform(constraints.real, (), ()))
    sigma = sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))
    tau = sample("tau", dist.HalfNormal(5))
    factor("jeffreys", -jnp.log(sigma))
    with plate("mills", 7):
        u = sample("u", dist.Normal(0, tau))
    with plate("pieces", 35):
        sample("strength", dist.Normal(mu + u[mill], sigma), obs=strength)


R = rng(44)
G = np.repeat(np.arange(6), 9)


@new(who=G, rt=0.25 + np.exp(-0.5 + R.normal(0, 0.3, 6)[G] + 0.4 * R.normal(size=54)))
def shifted_reaction_times(who, rt):
    """Log-normal times with a shift of each subject, written as a transformed normal."""
    mu = sample("mu", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    sigma = sample("sigma", dist.HalfNormal(0.5))
    shift = sample("shift", dist.Uniform(0, rt.min()))
    with plate("subjects", 6):
        u = sample("u", dist.Normal(mu, tau))
    with plate("trials", 54):
        sample("rt", dist.TransformedDistribution(
            dist.Normal(u[who], sigma),
            [transforms.ExpTransform(), transforms.AffineTransform(shift, 1.0)]), obs=rt)


R = rng(45)
G = np.repeat(np.arange(5), 7)
T = np.tile([0.5, 1, 2, 3, 4, 6, 8.0], 5)
CONC = 8 * np.exp(-np.exp(R.normal(-1, 0.3, 5))[G] * T + 0.15 * R.normal(size=35))


@new(patient=G, t=T, conc=np.maximum(CONC, 0.5))
def drug_below_the_limit(patient, t, conc):
    """Decay with a rate of each patient; what is at the limit of detection is censored."""
    start = sample("start", dist.LogNormal(2, 0.5))
    m = sample("m", dist.Normal(-1, 1))
    s = sample("s", dist.HalfNormal(0.5))
    sigma = sample("sigma", dist.HalfNormal(0.5))
    with plate("patients", 5):
        raw = sample("raw", dist.Normal(0, 1))
    rate = deterministic("rate", jnp.exp(m + s * raw))
    deterministic("half_life", jnp.log(2) / rate)
    mean = jnp.log(start) - rate[patient] * t
    below = conc <= 0.5
    seen = dist.Normal(mean, sigma).log_prob(jnp.log(conc))
    numpyro.factor("conc", jnp.where(below, log_ndtr((jnp.log(0.5) - mean) / sigma), seen).sum())


R = rng(46)
P = R.dirichlet([6.0, 3, 1], 7)


@new(votes=np.array([R.multinomial(20, p) for p in P]))
def districts_of_voters(votes):
    """Shares of districts about common ones, with a concentration, under multinomial counts."""
    base = sample("base", dist.Dirichlet(jnp.ones(3)))
    total = sample("total", dist.LogNormal(2, 1))
    with plate("districts", 7):
        share = sample("share", dist.Dirichlet(total * base))
        sample("votes", dist.Multinomial(20, share), obs=votes)


R = rng(47)
G = R.integers(0, 5, 30)
X = R.normal(size=30)


@new(herd=G, x=X, sick=R.binomial(12, R.beta(3, 6, 30)))
def herds_beyond_binomial(herd, x, sick):
    """Beta-binomial counts with a covariate and effects of herds that sum to zero."""
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    phi = sample("phi", dist.Gamma(2, 0.1))
    u = sample("u", dist.ZeroSumNormal(tau, (5,)))
    mean = jax.nn.sigmoid(a + b * x + u[herd])
    with plate("visits", 30):
        sample("sick", dist.BetaBinomial(mean * phi, (1 - mean) * phi, total_count=12), obs=sick)


R = rng(48)
Z = R.normal(size=50)
ERR = R.normal(size=(50, 2)) @ np.array([[1, 0.6], [0, 0.8]])
SCHOOLING = 0.9 * Z + ERR[:, 0]


@new(quarter=Z, both=np.stack([SCHOOLING, 0.5 * SCHOOLING + ERR[:, 1]], -1), region=np.arange(50) % 5)
def schooling_by_instrument(quarter, both, region):
    """An instrument, errors of two outcomes that are correlated, and effects of regions."""
    a = sample("a", dist.Normal(0, 1).expand([2]))
    first = sample("first", dist.Normal(0, 1))
    effect = sample("effect", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    sd = sample("sd", dist.HalfNormal(2).expand([2]))
    corr = sample("corr", dist.Uniform(-1, 1))
    u = sample("u", dist.Normal(0, tau).expand([5]).to_event(1))
    mean = jnp.stack([a[0] + first * quarter, a[1] + effect * both[:, 0] + u[region]], -1)
    off = corr * sd[0] * sd[1]
    cov = jnp.stack([jnp.stack([sd[0] ** 2, off]), jnp.stack([off, sd[1] ** 2])])
    with plate("people", 50):
        sample("both", dist.MultivariateNormal(mean, cov), obs=both)


R = rng(49)
YEARS = np.arange(28) / 10 - 1.4


@new(year=YEARS, flood=10 + 1.5 * YEARS + 2 * R.gumbel(size=28))
def floods_with_a_trend(year, flood):
    """Generalised extreme values by factor, whose support depends on the parameters; a trend."""
    a = sample("a", dist.Normal(10, 5))
    b = sample("b", dist.Normal(0, 3))
    scale = sample("scale", dist.HalfNormal(5))
    shape = sample("shape", dist.Normal(0, 0.2))
    z = (flood - a - b * year) / scale
    inside = 1 + shape * z
    safe = jnp.where(inside > 0, inside, 1.0)
    log = -jnp.log(scale) - (1 + 1 / shape) * jnp.log(safe) - safe ** (-1 / shape)
    factor("flood", jnp.where(inside > 0, log, -1e3 + 100 * inside).sum())


R = rng(50)
G = R.integers(0, 4, 40)
MM = R.normal(10, 1, 4)[G] + R.normal(size=40)


@new(kind=G, rounded=np.round(MM))
def lengths_to_the_millimetre(kind, rounded):
    """Rounded lengths: the probability of the interval, means and scales of kinds."""
    m = sample("m", dist.Normal(10, 5))
    between = sample("between", dist.HalfNormal(2))
    with plate("kinds", 4):
        mean = sample("mean", dist.Normal(m, between))
        sd = sample("sd", dist.LogNormal(0, 0.5))
    law = dist.Normal(mean[kind], sd[kind])
    with plate("leaves", 40):
        factor("rounded", jnp.log(law.cdf(rounded + 0.5) - law.cdf(rounded - 0.5)))


@summed("lengths_to_the_millimetre")
def lengths_to_the_millimetre_in_logarithms(kind, rounded):
    m = sample("m", dist.Normal(10, 5))
    between = sample("between", dist.HalfNormal(2))
    mean = deterministic("mean", m + between * sample("raw", dist.Normal(0, 1).expand([4])))
    sd = sample("sd", dist.LogNormal(0, 0.5).expand([4]))
    ends = (rounded + jnp.array([[-0.5], [0.5]]) - mean[kind]) / sd[kind]
    low, high = jnp.where(ends[0] > 0, -ends[::-1], ends)  # of the lower tail
    log = log_ndtr(high)
    factor("rounded", (log + jnp.log1p(-jnp.exp(log_ndtr(low) - log))).sum())


R = rng(51)
G = R.integers(0, 6, 60)
X = R.normal(size=60)


@new(town=G, x=X, rent=2 + X + R.normal(0, 0.5, 6)[G] + R.exponential(1, 60))
def ninth_decile_of_rents(town, x, rent):
    """A quantile regression by an asymmetric Laplace, with effects of towns."""
    a = sample("a", dist.Normal(0, 5))
    b = sample("b", dist.Normal(0, 2))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    u = sample("u", dist.Normal(0, tau).expand([6]))
    with plate("flats", 60):
        sample("rent", dist.AsymmetricLaplaceQuantile(a + b * x + u[town], sigma, 0.9), obs=rent)


def _study(effect, se, tau):
    mu = sample("mu", dist.Normal(0, 2))
    with plate("studies", len(effect)):
        theta = sample("theta", dist.Normal(mu, tau))
        sample("effect", dist.Normal(theta, se), obs=effect)


@new(adults=[0.3, 0.8, -0.1, 0.5], adults_se=[0.2, 0.3, 0.4, 0.2],
     children=[0.9, 0.2, 1.4], children_se=[0.3, 0.4, 0.5])
def two_scopes_with_one_spread(adults, adults_se, children, children_se):
    """One submodel in two scopes, which share their spread."""
    tau = sample("tau", dist.HalfNormal(1))
    with handlers.scope(prefix="adults"):
        _study(adults, adults_se, tau)
    with handlers.scope(prefix="children"):
        _study(children, children_se, tau)


R = rng(52)
G = R.integers(0, 3, 36)
LOAD = np.array([1.2, 0.9, -0.7, 0.5])


@new(group=G, x=R.normal(0, 1, (3, 4))[G] + R.normal(size=(36, 1)) * LOAD + 0.5 * R.normal(size=(36, 4)))
def one_factor_in_three_groups(group, x):
    """A factor of positive first loading as a low-rank covariance, means of groups."""
    first = sample("first", dist.HalfNormal(1))
    rest = sample("rest", dist.Normal(0, 1).expand([3]))
    noise = sample("noise", dist.HalfNormal(1).expand([4]))
    spread = sample("spread", dist.HalfNormal(1))
    with plate("groups", 3):
        mean = sample("mean", dist.Normal(0, spread).expand([4]).to_event(1))
    load = jnp.concatenate([first[None], rest])[:, None]
    with plate("rows", 36):
        sample("x", dist.LowRankMultivariateNormal(mean[group], load, noise**2), obs=x)


R = rng(53)
DOSES = np.array([0.0, 0.5, 1, 2, 4, 8])


@new(dose=np.tile(DOSES, 3), strain=np.repeat(np.arange(3), 6),
     dead=R.binomial(15, np.tile(0.05 + 0.9 / (1 + np.exp(-2 * (DOSES - 2))), 3)), total=np.full(18, 15))
def natural_mortality_of_strains(dose, strain, total, dead):
    """Abbott's correction: deaths without a dose, a steepness shared, a median dose of each strain."""
    natural = sample("natural", dist.Beta(1, 9))
    steep = sample("steep", dist.Gamma(4, 2))
    m = sample("m", dist.Normal(0.5, 1))
    s = sample("s", dist.HalfNormal(0.5))
    with plate("strains", 3):
        half = sample("half", dist.LogNormal(m, s))
    p = natural + (1 - natural) * jax.nn.sigmoid(steep * (dose - half[strain]))
    with plate("cups", 18):
        sample("dead", dist.Binomial(total, p), obs=dead)
