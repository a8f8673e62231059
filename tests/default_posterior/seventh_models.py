"""Models that combine two to four mechanisms whose pair is in no other list.

In the idioms of the manuals of NumPyro, Stan, PyMC and brms. Written before any of them was run, and
not tuned to the answers. `new_truths.py` computes their references (`seventh_truths.json`).
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from collection import PARALLEL, Collection, chain_log, logistic
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from numpyro import deterministic, factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.distributions import transforms
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

import probml

SEVENTH = Collection(1131, 7)
new, summed, rng = SEVENTH.new, SEVENTH.summed, SEVENTH.rng


# ---- chains together with groups, missing cells, zeros, censoring ---------------------------------

R = rng(1)


def _moods(r, n, t, stay=(0.85, 0.75)):
    z = np.zeros((n, t), int)
    z[:, 0] = r.integers(0, 2, n)
    for k in range(1, t):
        z[:, k] = np.where(r.random(n) < np.array(stay)[z[:, k - 1]], z[:, k - 1], 1 - z[:, k - 1])
    return z


CLINIC = np.repeat(np.arange(4), 3)
MOOD = _moods(R, 12, 10)


@new(clinic=CLINIC, score=np.array([0.0, 3.0])[MOOD] + R.normal(0, 0.7, 4)[CLINIC][:, None]
     + R.normal(0, 0.8, (12, 10)))
def moods_of_patients_in_clinics(clinic):
    """A hidden chain of each patient, whose scores are shifted by an effect of the clinic."""
    stay = sample("stay", dist.Beta(8, 2).expand([2]).to_event(1))
    mean = sample("mean", dist.TransformedDistribution(dist.Normal(1, 3).expand([2]).to_event(1),
                                                       transforms.OrderedTransform()))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("clinics", 4):
        u = sample("u", dist.Normal(0, tau))
    turn = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]), turn))
        sample("score", dist.Normal(mean[z] + u[clinic][..., None], sigma).to_event(1))


@summed("moods_of_patients_in_clinics")
def moods_of_patients_in_clinics_summed(clinic, score):
    stay = sample("stay", dist.Beta(8, 2).expand([2]).to_event(1))
    mean = sample("mean", dist.TransformedDistribution(dist.Normal(1, 3).expand([2]).to_event(1),
                                                       transforms.OrderedTransform()))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("clinics", 4):
        u = sample("u", dist.Normal(0, tau))
    turn = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])
    log = dist.Normal(mean + u[clinic][:, None, None], sigma).log_prob(score[..., None])
    factor("score", chain_log(log, jnp.array([0.5, 0.5]), turn).sum())


R = rng(2)
ACTIVE = _moods(R, 6, 14)
CALLS = np.where(ACTIVE == 1, R.poisson(4.0, (6, 14)), np.where(R.random((6, 14)) < 0.5, 0, 1))
CALLS = np.where(R.random((6, 14)) < 0.15, np.nan, CALLS)


@new(calls=CALLS)
def frogs_that_call_with_gaps():
    """A hidden chain with zero-inflated counts of one state, Poisson of the other, nights missing."""
    stay = sample("stay", dist.Beta(6, 2).expand([2]).to_event(1))
    rate = sample("rate", dist.Gamma(jnp.array([1.0, 8.0]), jnp.array([2.0, 2.0])).to_event(1))
    gate = sample("gate", dist.Beta(2, 2))
    turn = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]), turn))
        sample("calls", dist.ZeroInflatedPoisson(jnp.where(z == 0, gate, 0.0), rate[z]).to_event(1))


@summed("frogs_that_call_with_gaps")
def frogs_that_call_with_gaps_summed(calls):
    stay = sample("stay", dist.Beta(6, 2).expand([2]).to_event(1))
    rate = sample("rate", dist.Gamma(jnp.array([1.0, 8.0]), jnp.array([2.0, 2.0])).to_event(1))
    gate = sample("gate", dist.Beta(2, 2))
    turn = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])
    there, full = ~np.isnan(CALLS), np.nan_to_num(CALLS)
    one = dist.ZeroInflatedPoisson(gate, rate[0]).log_prob(full)
    log = jnp.stack([one, dist.Poisson(rate[1]).log_prob(full)], -1)
    log = jnp.where(there[..., None], log, 0.0)
    factor("calls", chain_log(log, jnp.array([0.5, 0.5]), turn).sum())


R = rng(3)
WET = _moods(R, 8, 9, (0.8, 0.7))
RAIN = np.where(WET == 1, R.gamma(2, 3.0, (8, 9)), R.gamma(1, 0.4, (8, 9)))


@new(rain=np.minimum(RAIN, 10.0))
def rain_in_a_full_gauge(rain):
    """Pasted: the forward algorithm by scan and a factor, gauges that overflow at 10 (censored)."""
    stay = sample("stay", dist.Beta(6, 2).expand([2]).to_event(1))
    mean = sample("mean", dist.LogNormal(jnp.array([-1.0, 1.5]), jnp.array([0.5, 0.5])).to_event(1))
    shape = sample("shape", dist.LogNormal(0.3, 0.4))
    turn = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])
    own = dist.Gamma(shape, shape / mean)
    tail = jnp.log(jax.scipy.special.gammaincc(shape, shape / mean * 10.0))
    log = jnp.where(rain[..., None] >= 10, tail, own.log_prob(rain[..., None]))

    def day(alpha, now):
        alpha = logsumexp(alpha[:, :, None] + jnp.log(turn), 1) + now
        return alpha, None

    alpha, _ = jax.lax.scan(day, jnp.log(0.5) + log[:, 0], jnp.swapaxes(log[:, 1:], 0, 1))
    with plate("gauges", 8):
        factor("rain", logsumexp(alpha, -1))


R = rng(4)
SKILL = np.cumsum(R.normal(0, 0.4, (4, 8)), 1) + R.normal(0, 0.7, (4, 1))


@new(grade=np.digitize(SKILL + R.logistic(size=(4, 8)), [-1.0, 0.5, 2.0]))
def grades_that_drift(grade):
    """Ordered grades of four pupils by a walk of each, scanned, not centred."""
    c = sample("c", dist.TransformedDistribution(dist.Normal(0, 2).expand([3]).to_event(1),
                                                 transforms.OrderedTransform()))
    step = sample("step", dist.HalfNormal(0.5))
    first = sample("first", dist.Normal(0, 1).expand([4]).to_event(1))

    def term(x, now):
        with plate("pupils", 4):
            z = sample("z", dist.Normal(0, 1))
            x = x + step * z
            sample("grade", dist.OrderedLogistic(x, c), obs=now)
        return x, x

    scan(term, first, jnp.asarray(grade).T)


R = rng(5)
TRAFFIC = R.uniform(1, 5, 40)
RATE = np.exp(np.cumsum(R.normal(0, 0.2, 40)) - 0.2)


@new(traffic=TRAFFIC, hits=np.where(R.random(40) < 0.25, 0, R.poisson(TRAFFIC * RATE)))
def broken_counter_on_a_walk(traffic, hits=None):
    """A log rate that walks (GaussianRandomWalk), traffic as exposure, a counter that fails to 0."""
    scale = sample("scale", dist.HalfNormal(0.5))
    base = sample("base", dist.Normal(0, 1))
    fails = sample("fails", dist.Beta(1, 3))
    walk = sample("walk", dist.GaussianRandomWalk(scale, num_steps=40))
    with plate("hours", 40):
        sample("hits", dist.ZeroInflatedPoisson(fails, traffic * jnp.exp(base + walk)), obs=hits)


@summed("broken_counter_on_a_walk")
def broken_counter_on_a_walk_not_centred(traffic, hits):
    """The same density in steps of sd 1, without the funnel in which NUTS gets stuck."""
    scale = sample("scale", dist.HalfNormal(0.5))
    base = sample("base", dist.Normal(0, 1))
    fails = sample("fails", dist.Beta(1, 3))
    z = sample("z", dist.Normal(0, 1).expand([40]).to_event(1))
    walk = deterministic("walk", scale * jnp.cumsum(z))
    sample("hits", dist.ZeroInflatedPoisson(fails, traffic * jnp.exp(base + walk)), obs=hits)


# ---- discrete variables of groups -----------------------------------------------------------------

R = rng(6)
CHILD, VISIT = np.repeat(np.arange(14), 5), np.tile(np.arange(5.0), 14)
QUICK = R.random(14) < 0.4


@new(child=CHILD, visit=VISIT, size=10 + R.normal(0, 1, 14)[CHILD] + np.where(QUICK, 2.0, 0.6)[CHILD] * VISIT
     + R.normal(0, 0.6, 70))
def growth_of_two_kinds(child, visit, size=None):
    """A growth mixture: a hidden kind of each child sets its slope, an effect of the child its level."""
    share = sample("share", dist.Beta(2, 2))
    a = sample("a", dist.Normal(10, 5))
    slope = sample("slope", dist.TransformedDistribution(dist.Normal(1, 2).expand([2]).to_event(1),
                                                         transforms.OrderedTransform()))
    tau = sample("tau", dist.HalfNormal(2))
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("children", 14):
        u = sample("u", dist.Normal(0, tau))
        kind = sample("kind", dist.Bernoulli(share), infer=PARALLEL)
    with plate("n", len(child)):
        sample("size", dist.Normal(a + u[child] + slope[kind[child]] * visit, sigma), obs=size)


@summed("growth_of_two_kinds")
def growth_of_two_kinds_summed(child, visit, size):
    share = sample("share", dist.Beta(2, 2))
    a = sample("a", dist.Normal(10, 5))
    slope = sample("slope", dist.TransformedDistribution(dist.Normal(1, 2).expand([2]).to_event(1),
                                                         transforms.OrderedTransform()))
    tau = sample("tau", dist.HalfNormal(2))
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("children", 14):
        u = sample("u", dist.Normal(0, tau))
    each = dist.Normal(a + u[child] + slope[:, None] * visit, sigma).log_prob(size)
    each = each.reshape(2, 14, 5).sum(-1)
    factor("size", jnp.logaddexp(jnp.log1p(-share) + each[0], jnp.log(share) + each[1]).sum())


R = rng(7)
MACHINE = np.repeat(np.arange(10), 6)
BAD = R.random(10) < 0.4
LIFE = R.weibull(1.5, 60) * np.where(BAD, 1.5, 6.0)[MACHINE]


@new(machine=MACHINE, life=np.minimum(LIFE, 5.0), ended=LIFE < 5.0)
def lemons_with_censored_lives(machine, life, ended):
    """Some machines are lemons (enumerated); lives are Weibull, the test stops at 5 (RightCensored)."""
    share = sample("share", dist.Beta(2, 2))
    scale = sample("scale", dist.TransformedDistribution(
        dist.Normal(1, 1).expand([2]).to_event(1),
        [transforms.OrderedTransform(), transforms.ExpTransform()]))
    shape = sample("shape", dist.LogNormal(0.3, 0.4))
    with plate("machines", 10):
        good = sample("good", dist.Bernoulli(share), infer=PARALLEL)
    with plate("n", 60):
        sample("life", dist.RightCensoredDistribution(
            dist.Weibull(scale[good[machine]], shape), censored=~ended), obs=life)


@summed("lemons_with_censored_lives")
def lemons_with_censored_lives_summed(machine, life, ended):
    share = sample("share", dist.Beta(2, 2))
    scale = sample("scale", dist.TransformedDistribution(
        dist.Normal(1, 1).expand([2]).to_event(1),
        [transforms.OrderedTransform(), transforms.ExpTransform()]))
    shape = sample("shape", dist.LogNormal(0.3, 0.4))
    own = dist.Weibull(scale[:, None], shape)
    each = jnp.where(ended, own.log_prob(life), -(life / scale[:, None]) ** shape)
    each = each.reshape(2, 10, 6).sum(-1)
    factor("life", jnp.logaddexp(jnp.log1p(-share) + each[0], jnp.log(share) + each[1]).sum())


R = rng(8)
TURNS = R.integers(4, 11, 5)
WEEKLY = R.poisson(np.where(np.arange(15) < TURNS[:, None], 2.0, 6.0) * R.gamma(20, 0.05, (5, 1)))


@new(sold=WEEKLY)
def each_shop_has_its_week(sold):
    """A hidden week of change of every shop, a level of every shop, counts: plate in plate."""
    m = sample("m", dist.Normal(0.7, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    jump = sample("jump", dist.Normal(0, 1))
    with plate("shops", 5, dim=-2):
        level = sample("level", dist.Normal(m, tau))
        week = sample("week", dist.Categorical(probs=jnp.ones(15) / 15), infer=PARALLEL)
        with plate("weeks", 15, dim=-1):
            sample("sold", dist.Poisson(jnp.exp(level + jump * (jnp.arange(15) >= week))), obs=sold)


@summed("each_shop_has_its_week")
def each_shop_has_its_week_summed(sold):
    m = sample("m", dist.Normal(0.7, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    jump = sample("jump", dist.Normal(0, 1))
    with plate("shops", 5, dim=-2):
        level = sample("level", dist.Normal(m, tau))
    late = jnp.arange(15) >= jnp.arange(15)[:, None]
    log = dist.Poisson(jnp.exp(level[..., None] + jump * late)).log_prob(sold[:, None])
    factor("sold", logsumexp(log.sum(-1), -1).sum())


R = rng(9)
RATER, PATIENT = np.tile(np.arange(4), 25), np.repeat(np.arange(25), 4)
ILL = R.random(25) < 0.4
SAYS = R.random(100) < np.where(ILL[PATIENT], logistic(1.5 + R.normal(0, 0.6, 4))[RATER],
                                logistic(-1.5 + R.normal(0, 0.6, 4))[RATER])


@new(rater=RATER, patient=PATIENT, ill=np.where(SAYS, 1.0, 0.0))
def raters_without_a_standard(rater, patient, ill=None):
    """Dawid and Skene: a hidden truth of each patient, skills of raters as effects about a mean."""
    prevalence = sample("prevalence", dist.Beta(2, 3))
    m = sample("m", dist.Normal(jnp.array([-1.5, 1.5]), 0.7).to_event(1))
    tau = sample("tau", dist.HalfNormal(0.7).expand([2]).to_event(1))
    with plate("raters", 4):
        skill = sample("skill", dist.Normal(m, tau).to_event(1))
    with plate("patients", 25):
        true = sample("true", dist.Bernoulli(prevalence), infer=PARALLEL)
    with plate("n", len(rater)):
        sample("ill", dist.Bernoulli(logits=skill[rater, true[patient]]), obs=ill)


@summed("raters_without_a_standard")
def raters_without_a_standard_summed(rater, patient, ill):
    prevalence = sample("prevalence", dist.Beta(2, 3))
    m = sample("m", dist.Normal(jnp.array([-1.5, 1.5]), 0.7).to_event(1))
    tau = sample("tau", dist.HalfNormal(0.7).expand([2]).to_event(1))
    with plate("raters", 4):
        skill = sample("skill", dist.Normal(m, tau).to_event(1))
    each = dist.Bernoulli(logits=skill[rater].T).log_prob(ill).reshape(2, 25, 4).sum(-1)
    factor("ill", jnp.logaddexp(jnp.log1p(-prevalence) + each[0], jnp.log(prevalence) + each[1]).sum())


# ---- missing cells together with effects, counts, orders ------------------------------------------

R = rng(10)
PLOT, YEAR = np.repeat(np.arange(6), 8), np.tile(np.arange(8), 6)
MOIST = R.normal(0.3 * R.normal(size=6)[PLOT], 1)
AREA = R.uniform(0.5, 2, 48)


@new(plot=PLOT, year=YEAR, area=AREA, moist=np.where(R.random(48) < 0.15, np.nan, MOIST),
     plants=R.poisson(AREA * np.exp(1 + 0.5 * MOIST + R.normal(0, 0.3, 6)[PLOT] + R.normal(0, 0.2, 8)[YEAR])))
def plants_with_missing_moisture(plot, year, area):
    """Counts by area, crossed effects of plots and years, an input with missing cells."""
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 1))
    sd = sample("sd", dist.HalfNormal(0.5).expand([2]).to_event(1))
    with plate("plots", 6):
        u = sample("u", dist.Normal(0, sd[0]))
    with plate("years", 8):
        v = sample("v", dist.Normal(0, sd[1]))
    with probml.rows():
        moist = sample("moist", dist.Normal(0, 1))
        sample("plants", dist.Poisson(area * jnp.exp(a + b * moist + u[plot] + v[year])))


@summed("plants_with_missing_moisture")
def plants_with_missing_moisture_by_hand(plot, year, area, moist, plants):
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 1))
    sd = sample("sd", dist.HalfNormal(0.5).expand([2]).to_event(1))
    with plate("plots", 6):
        u = sample("u", dist.Normal(0, sd[0]))
    with plate("years", 8):
        v = sample("v", dist.Normal(0, sd[1]))
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    gone = jnp.isnan(moist)
    x = jnp.where(gone, jnp.asarray(nodes)[:, None], moist)
    log = dist.Poisson(area * jnp.exp(a + b * x + u[plot] + v[year])).log_prob(plants)
    each = logsumexp(log + jnp.log(weights / weights.sum())[:, None], 0)
    factor("plants", jnp.where(gone, each, log[0]).sum())


R = rng(11)
ABLE = R.normal(size=40) + np.repeat([0.0, 0.8], 20)
RIGHT = (R.random((40, 5)) < logistic(np.array([1, 1.5, 0.8, 1.2, 1]) * (ABLE[:, None] - np.linspace(-1, 1, 5))))


@new(school=np.repeat([0, 1], 20), right=np.where(R.random((40, 5)) < 0.15, np.nan, RIGHT))
def items_of_two_schools_with_holes(school):
    """Two-parameter items, abilities about a mean of the school, answers missing."""
    shift = sample("shift", dist.Normal(0, 1))
    slope = sample("slope", dist.LogNormal(0, 0.4).expand([5]).to_event(1))
    hard = sample("hard", dist.Normal(0, 1.5).expand([5]).to_event(1))
    with probml.rows():
        able = sample("able", dist.Normal(shift * school, 1))
        sample("right", dist.Bernoulli(logits=slope * (able[..., None] - hard)).to_event(1))


@summed("items_of_two_schools_with_holes")
def items_of_two_schools_with_holes_by_hand(school, right):
    shift = sample("shift", dist.Normal(0, 1))
    slope = sample("slope", dist.LogNormal(0, 0.4).expand([5]).to_event(1))
    hard = sample("hard", dist.Normal(0, 1.5).expand([5]).to_event(1))
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)
    able = shift * school + jnp.asarray(nodes)[:, None]
    gone = jnp.isnan(right)
    log = dist.Bernoulli(logits=slope * (able[..., None] - hard)).log_prob(jnp.where(gone, 0.0, right))
    log = jnp.where(gone, 0.0, log).sum(-1)
    factor("right", logsumexp(log + jnp.log(weights / weights.sum())[:, None], 0).sum())


R = rng(12)
SMOKE = R.integers(0, 3, 60)
TOWN = R.integers(0, 5, 60)


@new(town=TOWN, smoke=np.where(R.random(60) < 0.2, np.nan, SMOKE),
     fev=3 - 0.4 * SMOKE + R.normal(0, 0.3, 5)[TOWN] + R.normal(0, 0.4, 60))
def smoking_with_missing_answers(town):
    """A category with missing cells as an input, its shares unknown; effects of towns."""
    shares = sample("shares", dist.Dirichlet(jnp.ones(3)))
    mean = sample("mean", dist.Normal(2.5, 1).expand([3]).to_event(1))
    tau = sample("tau", dist.HalfNormal(0.5))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("towns", 5):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        smoke = sample("smoke", dist.Categorical(shares))
        sample("fev", dist.Normal(mean[smoke] + u[town], sigma))


@summed("smoking_with_missing_answers")
def smoking_with_missing_answers_summed(town, smoke, fev):
    shares = sample("shares", dist.Dirichlet(jnp.ones(3)))
    mean = sample("mean", dist.Normal(2.5, 1).expand([3]).to_event(1))
    tau = sample("tau", dist.HalfNormal(0.5))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("towns", 5):
        u = sample("u", dist.Normal(0, tau))
    log = jnp.log(shares) + dist.Normal(mean + u[town][:, None], sigma).log_prob(fev[:, None])
    own = jnp.isnan(smoke)[:, None] | (jnp.arange(3) == smoke[:, None])
    factor("fev", logsumexp(jnp.where(own, log, -jnp.inf), -1).sum())


R = rng(13)
RING = np.repeat(np.arange(7), 6)
DOSE = np.tile(np.arange(6.0), 7) / 5
RESP = 1 + 2 * DOSE + R.normal(0, 0.6, 7)[RING] + R.normal(0, 0.5, 7)[RING] * DOSE + R.standard_t(3, 42) * 0.3


@new(ring=RING, dose=DOSE, y=np.where(np.arange(42) % 9 == 4, np.nan, RESP))
def slopes_with_student_errors_and_gaps(ring, dose, y=None):
    """(dose | ring), correlated, centred; Student errors of unknown df; outcomes missing as NaN."""
    b = sample("b", dist.Normal(0, 3).expand([2]).to_event(1))
    sd = sample("sd", dist.Exponential(1).expand([2]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 2.0))
    df = sample("df", dist.Gamma(2, 0.1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("rings", 7):
        u = sample("u", dist.MultivariateNormal(b, scale_tril=sd[:, None] * lower))
    with plate("n", len(ring)):
        sample("y", dist.StudentT(df, u[ring, 0] + u[ring, 1] * dose, sigma), obs=y)


@summed("slopes_with_student_errors_and_gaps")
def slopes_with_student_errors_and_gaps_by_hand(ring, dose, y):
    b = sample("b", dist.Normal(0, 3).expand([2]).to_event(1))
    sd = sample("sd", dist.Exponential(1).expand([2]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 2.0))
    df = sample("df", dist.Gamma(2, 0.1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("rings", 7):
        u = sample("u", dist.MultivariateNormal(b, scale_tril=sd[:, None] * lower))
    gone = jnp.isnan(y)
    log = dist.StudentT(df, u[ring, 0] + u[ring, 1] * dose, sigma).log_prob(jnp.where(gone, 0.0, y))
    factor("y", jnp.where(gone, 0.0, log).sum())


R = rng(14)
TASTE = R.normal(size=(45, 1)) * [1.0, 0.8, 1.2, 0.9]
ANSWERS = np.stack([np.digitize(TASTE[:, j] + R.normal(0, 0.8, 45), [-0.8, 0.7]) for j in range(4)], 1)


@new(wave=np.arange(45) % 3, likes=np.where(R.random((45, 4)) < 0.1, np.nan, ANSWERS))
def ordered_items_of_waves(wave):
    """One factor behind ordered answers (graded response), a mean of each wave, answers missing."""
    tau = sample("tau", dist.HalfNormal(0.5))
    with plate("waves", 3):
        m = sample("m", dist.Normal(0, tau))
    load = sample("load", dist.LogNormal(0, 0.4).expand([4]).to_event(1))
    with plate("items", 4):
        c = sample("c", dist.TransformedDistribution(dist.Normal(0, 2).expand([2]).to_event(1),
                                                     transforms.OrderedTransform()))
    with probml.rows():
        f = sample("f", dist.Normal(m[wave], 1))
        sample("likes", dist.OrderedLogistic(load * f[..., None], c).to_event(1))


@summed("ordered_items_of_waves")
def ordered_items_of_waves_by_hand(wave, likes):
    tau = sample("tau", dist.HalfNormal(0.5))
    with plate("waves", 3):
        m = sample("m", dist.Normal(0, tau))
    load = sample("load", dist.LogNormal(0, 0.4).expand([4]).to_event(1))
    with plate("items", 4):
        c = sample("c", dist.TransformedDistribution(dist.Normal(0, 2).expand([2]).to_event(1),
                                                     transforms.OrderedTransform()))
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)
    f = m[wave] + jnp.asarray(nodes)[:, None]
    gone = jnp.isnan(likes)
    log = dist.OrderedLogistic(load * f[..., None], c).log_prob(jnp.where(gone, 0, likes).astype(int))
    log = jnp.where(gone, 0.0, log).sum(-1)
    factor("likes", logsumexp(log + jnp.log(weights / weights.sum())[:, None], 0).sum())


# ---- processes, splines, walks --------------------------------------------------------------------

R = rng(15)
T = np.sort(R.uniform(0, 6, 36))
BOAT = R.integers(0, 4, 36)


@new(t=T, boat=BOAT, effort=R.uniform(1, 3, 36),
     fish=R.poisson(2 * np.exp(0.5 * np.sin(T) + R.normal(0, 0.3, 4)[BOAT])))
def catches_by_a_process_and_boats(t, boat, effort, fish=None):
    """Pasted: a Gaussian process by its Cholesky factor, effects of boats, effort as exposure."""
    a = sample("a", dist.Normal(0, 1))
    eta = sample("eta", dist.HalfNormal(1))
    rho = sample("rho", dist.InverseGamma(5, 5))
    tau = sample("tau", dist.HalfNormal(0.5))
    cov = eta**2 * jnp.exp(-0.5 * ((t[:, None] - t) / rho) ** 2) + 1e-5 * jnp.eye(36)
    with plate("times", 36):
        z = sample("z", dist.Normal(0, 1))
    with plate("boats", 4):
        u = sample("u", dist.Normal(0, tau))
    f = jnp.linalg.cholesky(cov) @ z
    with plate("n", 36):
        sample("fish", dist.Poisson(effort * jnp.exp(a + f + u[boat])), obs=fish)


R = rng(16)
S = np.sort(R.uniform(0, 5, 30))
LEAD = 1 + np.sin(S) + R.normal(0, 0.3, 30)


@new(s=S, low=LEAD < 0.8, lead=np.maximum(LEAD, 0.8))
def lead_below_detection_along_a_line(s, low, lead=None):
    """A Gaussian process with its noise, values under a limit left-censored: latent as numbers of rows."""
    m = sample("m", dist.Normal(1, 1))
    eta = sample("eta", dist.HalfNormal(1))
    rho = sample("rho", dist.LogNormal(0, 0.5))
    sigma = sample("sigma", dist.HalfNormal(0.5))
    cov = eta**2 * jnp.exp(-jnp.abs(s[:, None] - s) / rho)
    f = sample("f", dist.MultivariateNormal(jnp.full(30, m), cov + 1e-6 * jnp.eye(30)))
    with plate("n", 30):
        sample("lead", dist.LeftCensoredDistribution(dist.Normal(f, sigma), censored=low), obs=lead)


R = rng(17)
AGE = np.sort(R.uniform(0, 1, 70))
BASIS = np.maximum(AGE[:, None] - np.linspace(0.15, 0.85, 5), 0)
VILLAGE = R.integers(0, 6, 70)
SICK = np.digitize(1.5 * np.sin(4 * AGE) + R.normal(0, 0.5, 6)[VILLAGE] + R.logistic(size=70), [-0.5, 1.0])


@new(age=AGE, basis=BASIS, village=VILLAGE, state=SICK)
def states_by_a_broken_line(age, basis, village, state=None):
    """Cumulative logit of a penalised broken line, effects of villages, cut points by a Dirichlet."""
    b = sample("b", dist.Normal(0, 2))
    wiggle = sample("wiggle", dist.HalfNormal(2))
    with plate("knots", 5):
        w = sample("w", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("villages", 6):
        u = sample("u", dist.Normal(0, 1))
    share = sample("share", dist.Dirichlet(jnp.full(3, 2.0)))
    p = jnp.cumsum(share)[:2]
    cut = jnp.log(p) - jnp.log1p(-p)
    eta = b * age + basis @ (wiggle * w) + tau * u[village]
    with plate("n", len(age)):
        sample("state", dist.OrderedLogistic(eta, cut), obs=state)


R = rng(18)
HOME, AWAY, ROUND = R.integers(0, 5, 50), R.integers(0, 4, 50), np.repeat(np.arange(5), 10)
AWAY = np.where(AWAY >= HOME, AWAY + 1, AWAY)
FORM = np.cumsum(R.normal(0, 0.4, (5, 5)), 0) + R.normal(0, 0.7, 5)


@new(home=HOME, away=AWAY, round_=ROUND, won=R.binomial(1, logistic(0.3 + FORM[ROUND, HOME] - FORM[ROUND, AWAY])))
def teams_whose_form_walks(home, away, round_, won=None):
    """Bradley and Terry with abilities that walk from round to round, teams beside each other."""
    edge = sample("edge", dist.Normal(0, 0.5))
    spread = sample("spread", dist.HalfNormal(1))
    step = sample("step", dist.HalfNormal(0.5))
    with plate("teams", 5):
        first = sample("first", dist.Normal(0, spread))
        with plate("rounds", 4):
            move = sample("move", dist.Normal(0, 1))
    form = jnp.concatenate([first[None], first + step * jnp.cumsum(move, 0)])
    with plate("games", len(home)):
        sample("won", dist.Bernoulli(logits=edge + form[round_, home] - form[round_, away]), obs=won)


R = rng(19)
PRICE = R.normal(size=30)


def _sales():
    out, e = [], 0.0
    for t in range(30):
        e = 0.6 * e + R.normal(0, 0.5)
        out.append(5 - 1.2 * PRICE[t] + (0.8 if t % 7 in (5, 6) else 0.0) + e)
    return np.array(out)


@new(price=PRICE, day=np.arange(30) % 7, sales=_sales())
def sales_with_days_and_lagged_errors(price, day, sales=None):
    """Pasted: seven effects that sum to 0, a price, errors of the first order by scan over what is left."""
    a = sample("a", dist.Normal(0, 10))
    b = sample("b", dist.Normal(0, 2))
    tau = sample("tau", dist.HalfNormal(1))
    week = sample("week", dist.ZeroSumNormal(tau, event_shape=(7,)))
    rho = sample("rho", dist.Uniform(-1, 1))
    sigma = sample("sigma", dist.HalfNormal(1))
    mean = a + b * price + week[day]
    sample("first", dist.Normal(mean[0], sigma / jnp.sqrt(1 - rho**2)), obs=sales[0])

    def step(before, now):
        mean, value = now
        sample("rest", dist.Normal(mean + rho * before, sigma), obs=value)
        return value - mean, None

    scan(step, sales[0] - mean[0], (mean[1:], jnp.asarray(sales)[1:]))


# ---- mixtures together with truncation, effects, weights ------------------------------------------

R = rng(20)
LENGTH = np.where(R.random(90) < 0.5, R.normal(25, 3, 90), R.normal(40, 5, 90))
LENGTH = LENGTH[LENGTH > 22]


@new(length=LENGTH)
def cohorts_above_the_mesh(length):
    """Two cohorts of fish, each normal, seen only above the mesh: a truncated mixture by MixtureGeneral."""
    share = sample("share", dist.Beta(2, 2))
    mu = sample("mu", dist.TransformedDistribution(
        dist.Normal(jnp.array([25.0, 3.0]), jnp.array([5.0, 0.5])).to_event(1), transforms.OrderedTransform()))
    sd = sample("sd", dist.LogNormal(1.3, 0.4).expand([2]).to_event(1))
    log = jnp.log(jnp.stack([1 - share, share])) + dist.Normal(mu, sd).log_prob(length[:, None])
    above = (1 - share) * norm.sf(22, mu[0], sd[0]) + share * norm.sf(22, mu[1], sd[1])
    with plate("n", length.shape[0]):
        factor("length", logsumexp(log, -1) - jnp.log(above))


R = rng(21)
SHOP = np.repeat(np.arange(5), 14)
BIG = R.random(70) < R.beta(3, 5, 5)[SHOP]


@new(shop=SHOP, euro=np.where(BIG, R.gamma(8, 5.0, 70), R.gamma(3, 2.0, 70)))
def baskets_small_and_big(shop):
    """A gamma mixture in rows, whose shares are of each shop, about a mean (logits)."""
    m = sample("m", dist.Normal(0, 1.5))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("shops", 5):
        l = sample("l", dist.Normal(m, tau))  # noqa: E741
    mean = sample("mean", dist.LogNormal(jnp.array([1.8, 3.7]), 0.4).to_event(1))
    shape = sample("shape", dist.LogNormal(1.2, 0.5).expand([2]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Bernoulli(logits=l[shop]))
        sample("euro", dist.Gamma(shape[z], shape[z] / mean[z]))


@summed("baskets_small_and_big")
def baskets_small_and_big_summed(shop, euro):
    m = sample("m", dist.Normal(0, 1.5))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("shops", 5):
        l = sample("l", dist.Normal(m, tau))  # noqa: E741
    mean = sample("mean", dist.LogNormal(jnp.array([1.8, 3.7]), 0.4).to_event(1))
    shape = sample("shape", dist.LogNormal(1.2, 0.5).expand([2]).to_event(1))
    log = dist.Gamma(shape, shape / mean).log_prob(euro[:, None])
    factor("euro", jnp.logaddexp(jax.nn.log_sigmoid(-l[shop]) + log[:, 0],
                                 jax.nn.log_sigmoid(l[shop]) + log[:, 1]).sum())


R = rng(22)
W = R.uniform(0.5, 2.5, 60)
X = R.normal(size=60)
TRUST = np.digitize(0.8 * X + R.logistic(size=60), [-1.0, 0.5, 1.5])


@new(w=W, region=np.arange(60) % 5, x=X, trust=TRUST)
def weighted_trust_of_regions(w, region, x, trust=None):
    """Ordered answers with survey weights (scale in a plate) and effects of regions, LocScaleReparam."""
    def inner():
        b = sample("b", dist.Normal(0, 1))
        tau = sample("tau", dist.HalfNormal(1))
        c = sample("c", dist.TransformedDistribution(dist.Normal(0, 2).expand([3]).to_event(1),
                                                     transforms.OrderedTransform()))
        with plate("regions", 5):
            u = sample("u", dist.Normal(0, tau))
        with plate("n", 60), handlers.scale(scale=w):
            sample("trust", dist.OrderedLogistic(b * x + u[region], c), obs=trust)

    handlers.reparam(inner, config={"u": LocScaleReparam(0)})()


R = rng(23)
SITE = np.repeat(np.arange(8), 6)
OUT = R.random(48) < 0.12


@new(site=SITE, y=np.where(OUT, R.normal(0, 6, 48), 1 + R.normal(0, 0.8, 8)[SITE] + R.normal(0, 0.5, 48)))
def outliers_among_effects(site, y=None):
    """MixtureSameFamily of a narrow and a wide normal about effects of sites, by TransformReparam."""
    p = sample("p", dist.Beta(1, 9))
    mu = sample("mu", dist.Normal(0, 3))
    tau = sample("tau", dist.HalfNormal(2))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("sites", 8), handlers.reparam(config={"u": TransformReparam()}):
        u = sample("u", dist.TransformedDistribution(dist.Normal(0, 1), transforms.AffineTransform(mu, tau)))
    with plate("n", 48):
        mix = dist.Categorical(probs=jnp.stack([1 - p, p], -1))
        loc = jnp.stack([u[site], jnp.zeros(48)], -1)
        scale = jnp.broadcast_to(jnp.stack([sigma, 6.0 * jnp.ones(())]), (48, 2))
        sample("y", dist.MixtureSameFamily(mix, dist.Normal(loc, scale)), obs=y)


# ---- several outcomes -----------------------------------------------------------------------------

R = rng(24)
WHO = np.repeat(np.arange(12), 4)
TIME = np.tile(np.arange(4.0), 12)
LEVEL = R.normal(0, 1, 12)
LIVED = R.exponential(6 * np.exp(-0.7 * LEVEL))


@new(who=WHO, time=TIME, marker=5 + LEVEL[WHO] + 0.3 * TIME + R.normal(0, 0.5, 48),
     lived=np.minimum(LIVED, 10), died=LIVED < 10)
def markers_and_survival(who, time, marker, lived, died):
    """A joint model: the effect of a patient stands in the marker and in the hazard, censored lives."""
    a = sample("a", dist.Normal(5, 3))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(2))
    sigma = sample("sigma", dist.HalfNormal(1))
    base = sample("base", dist.Normal(-2, 1))
    link = sample("link", dist.Normal(0, 1))
    with plate("patients", 12):
        u = sample("u", dist.Normal(0, tau))
        rate = jnp.exp(base + link * u)
        factor("survival", jnp.where(died, jnp.log(rate), 0.0) - rate * lived)
    with plate("n", 48):
        sample("marker", dist.Normal(a + b * time + u[who], sigma), obs=marker)


R = rng(25)
FIELD = np.repeat(np.arange(6), 7)
NUTRIENT = R.normal(size=42)
SHARED = R.multivariate_normal([0, 0], [[0.3, 0.2], [0.2, 0.3]], 6)[FIELD]


@new(field=FIELD, nutrient=NUTRIENT, eggs=R.poisson(np.exp(1 + 0.3 * NUTRIENT + SHARED[:, 0])),
     alive=R.binomial(1, logistic(0.5 - 0.5 * NUTRIENT + 2 * SHARED[:, 1])))
def eggs_and_survival_of_fields(field, nutrient, eggs=None, alive=None):
    """A count and a yes or no, whose effects of fields go together: (1 | p | field), not centred."""
    a = sample("a", dist.Normal(0, 1.5).expand([2]).to_event(1))
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    sd = sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 2.0))
    with plate("fields", 6):
        z = sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    u = deterministic("u", z @ (sd[:, None] * lower).T)
    with plate("n", len(field)):
        sample("eggs", dist.Poisson(jnp.exp(a[0] + b[0] * nutrient + u[field, 0])), obs=eggs)
        sample("alive", dist.Bernoulli(logits=a[1] + b[1] * nutrient + u[field, 1]), obs=alive)


R = rng(26)
POND = np.repeat(np.arange(5), 4)
SUN = R.normal(size=20)
MIX = np.exp(np.stack([0 * SUN, 0.5 + 0.4 * SUN, -0.5 + R.normal(0, 0.5, 5)[POND]], 1))
MIX = MIX / MIX.sum(1, keepdims=True)


@new(pond=POND, sun=SUN, caught=np.stack([R.multinomial(25, R.dirichlet(12 * m)) for m in MIX]))
def species_of_ponds_overdispersed(pond, sun, caught=None):
    """DirichletMultinomial with a regression on each logit and correlated effects of ponds."""
    a = sample("a", dist.Normal(0, 1).expand([2]).to_event(1))
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    sd = sample("sd", dist.HalfNormal(0.7).expand([2]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 2.0))
    size = sample("size", dist.Gamma(2, 0.1))
    with plate("ponds", 5):
        u = sample("u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=sd[:, None] * lower))
    rest = a + b * sun[:, None] + u[pond]
    p = jax.nn.softmax(jnp.concatenate([jnp.zeros((len(sun), 1)), rest], -1), -1)
    with plate("n", len(sun)):
        sample("caught", dist.DirichletMultinomial(size * p, total_count=25), obs=caught)


R = rng(27)
USER, FILM = np.repeat(np.arange(12), 6), np.concatenate([R.choice(10, 6, replace=False) for _ in range(12)])
PLAYS = R.poisson(np.exp(0.5 + R.normal(0, 0.5, 12)[USER] + R.normal(0, 0.5, 10)[FILM]
                         + R.normal(0, 0.7, 12)[USER] * R.normal(0, 0.7, 10)[FILM]))


@new(user=USER, film=FILM, plays=PLAYS)
def plays_of_users_and_films(user, film, plays=None):
    """Crossed effects and one product of factors (rank 1, its sign held by a positive scale), counts."""
    a = sample("a", dist.Normal(0, 1))
    sd = sample("sd", dist.HalfNormal(0.7).expand([2]).to_event(1))
    rank = sample("rank", dist.HalfNormal(0.7))
    with plate("users", 12):
        u = sample("u", dist.Normal(0, sd[0]))
        p = sample("p", dist.HalfNormal(1))
    with plate("films", 10):
        v = sample("v", dist.Normal(0, sd[1]))
        q = sample("q", dist.Normal(0, 1))
    with plate("n", 72):
        sample("plays", dist.Poisson(jnp.exp(a + u[user] + v[film] + rank * p[user] * q[film])), obs=plays)


# ---- families seldom used, combined ---------------------------------------------------------------

R = rng(28)
SHOP, DISCOUNT = np.repeat(np.arange(6), 9), R.uniform(0, 1, 54)
COMES = R.random(54) < logistic(0.5 + R.normal(0, 0.7, 6)[SHOP])


@new(shop=SHOP, discount=DISCOUNT, items=np.where(COMES, 1 + R.poisson(np.exp(0.5 + DISCOUNT)), 0))
def items_behind_a_hurdle(shop, discount, items=None):
    """NumPyro's HurdlePoisson: a gate with effects of shops, counts with a slope."""
    a = sample("a", dist.Normal(0, 1.5))
    tau = sample("tau", dist.HalfNormal(1))
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    with plate("shops", 6):
        u = sample("u", dist.Normal(0, tau))
    with plate("n", len(shop)):
        sample("items", dist.HurdlePoisson(jax.nn.sigmoid(-a - u[shop]), jnp.exp(b[0] + b[1] * discount)), obs=items)


R = rng(29)
NEST, VIEWS = np.repeat(np.arange(10), 3), R.integers(3, 9, 30)
USED = R.random(10) < 0.6


@new(nest=NEST, views=VIEWS, seen=R.binomial(VIEWS, np.where(USED[NEST], 0.4, 0.0)))
def nests_used_or_not(nest, views, seen=None):
    """Zero-inflated by groups: a nest is used or not (enumerated), detection has effects of visits."""
    used = sample("used", dist.Beta(1, 1))
    m = sample("m", dist.Normal(0, 1.5))
    tau = sample("tau", dist.HalfNormal(0.7))
    with plate("nests", 10):
        z = sample("z", dist.Bernoulli(used), infer=PARALLEL)
    with plate("n", 30):
        e = sample("e", dist.Normal(0, 1))
        sample("seen", dist.Binomial(views, z[nest] * jax.nn.sigmoid(m + tau * e)), obs=seen)


@summed("nests_used_or_not")
def nests_used_or_not_summed(nest, views, seen):
    used = sample("used", dist.Beta(1, 1))
    m = sample("m", dist.Normal(0, 1.5))
    tau = sample("tau", dist.HalfNormal(0.7))
    with plate("n", 30):
        e = sample("e", dist.Normal(0, 1))
    log = dist.Binomial(views, jax.nn.sigmoid(m + tau * e)).log_prob(seen).reshape(10, 3).sum(-1)
    never = (seen.reshape(10, 3) == 0).all(-1)
    factor("seen", jnp.logaddexp(jnp.log(used) + log, jnp.where(never, jnp.log1p(-used), -jnp.inf)).sum())


R = rng(30)
DISTRICT, SECTOR = np.repeat(np.arange(4), 10), np.tile(np.arange(5), 8)
TAX = R.beta(6, 14, 40)


@new(district=DISTRICT, sector=SECTOR, rate=TAX)
def tax_rates_of_districts(district, sector, rate=None):
    """BetaProportion whose precision has effects too; sectors nested in districts, cells by an index."""
    a = sample("a", dist.Normal(0, 1.5))
    tau = sample("tau", dist.HalfNormal(0.7).expand([2]).to_event(1))
    with plate("districts", 4, dim=-2):
        u = sample("u", dist.Normal(0, tau[0]))
        with plate("sectors", 5, dim=-1):
            v = sample("v", dist.Normal(0, tau[1]))
    k = sample("k", dist.Normal(3, 1))
    omega = sample("omega", dist.HalfNormal(0.5))
    with plate("precisions", 4):
        w = sample("w", dist.Normal(0, omega))
    with plate("n", 40):
        mean = jax.nn.sigmoid(a + u[district, 0] + v[district, sector])
        sample("rate", dist.BetaProportion(mean, jnp.exp(k + w[district])), obs=rate)


R = rng(31)
HERD, WEIGHT = np.repeat(np.arange(7), 6), R.normal(size=42)
TICKS = R.negative_binomial(2, 2 / (2 + np.exp(1 + 0.4 * WEIGHT + R.normal(0, 0.4, 7)[HERD])))


@new(herd=HERD, weight=WEIGHT, ticks=np.where(R.random(42) < 0.2, 0, TICKS))
def ticks_zero_inflated_in_herds(herd, weight, ticks=None):
    """ZeroInflatedNegativeBinomial2, gate by weight, effects of herds not centred, improper intercept."""
    a = sample("a", dist.ImproperUniform(dist.constraints.real, (), ()))
    b = sample("b", dist.Normal(0, 1))
    gate = sample("gate", dist.Normal(jnp.array([-1.5, 0.0]), jnp.array([1.0, 0.5])).to_event(1))
    size = sample("size", dist.Gamma(2, 0.5))
    tau = sample("tau", dist.HalfNormal(0.7))
    with plate("herds", 7):
        z = sample("z", dist.Normal(0, 1))
    with plate("n", 42):
        sample("ticks", dist.ZeroInflatedNegativeBinomial2(
            jnp.exp(a + b * weight + tau * z[herd]), size, gate_logits=gate[0] + gate[1] * weight), obs=ticks)


R = rng(32)
LAB, DOSE = np.repeat(np.arange(4), 8), np.tile([0.1, 0.3, 1, 3, 10, 30, 100, 300], 4)
READ = 0.1 + 2 / (1 + (np.exp(2 + R.normal(0, 0.4, 4))[LAB] / DOSE) ** 1.2) + R.standard_t(4, 32) * 0.08


@new(lab=LAB, dose=DOSE, low=np.floor(READ * 10) / 10)
def dose_response_read_on_a_scale(lab, dose, low):
    """A curve of each laboratory, Student errors, readings rounded down to 0.1 (interval-censored)."""
    top = sample("top", dist.LogNormal(0.5, 0.5))
    hill = sample("hill", dist.LogNormal(0, 0.4))
    m = sample("m", dist.Normal(2, 1.5))
    tau = sample("tau", dist.HalfNormal(0.5))
    sigma = sample("sigma", dist.HalfNormal(0.3))
    with plate("labs", 4):
        half = sample("half", dist.LogNormal(m, tau))
    mean = top / (1 + (half[lab] / dose) ** hill)
    x, y = (low - 0.1 - mean) / sigma, (low - mean) / sigma
    with plate("n", 32):
        t = [v / jnp.sqrt(2 + v**2) for v in (x, y)]  # distribution function of Student's t with 2 df
        factor("low", jnp.log((t[1] - t[0]) / 2 + 1e-12))


R = rng(33)
TRUE = R.normal(0, 1, 40)
GROUP = np.repeat(np.arange(5), 8)


@new(group=GROUP, x=TRUE + R.normal(0, 0.4, 40),
     y=1 + TRUE - 0.5 * TRUE**2 + R.normal(0, 0.4, 5)[GROUP] + R.normal(0, 0.4, 40))
def a_square_of_a_mismeasured_input(group, x, y=None):
    """The true input is a number of each row and stands squared; effects of groups."""
    b = sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("groups", 5):
        u = sample("u", dist.Normal(0, tau))
    with plate("n", 40):
        true = sample("true", dist.Normal(0, 1))
        sample("x", dist.Normal(true, 0.4), obs=x)
        sample("y", dist.Normal(b[0] + b[1] * true + b[2] * true**2 + u[group], sigma), obs=y)


R = rng(34)
X = R.normal(size=(60, 6))
WARD = R.integers(0, 6, 60)


@new(x=X, ward=WARD, died=R.binomial(1, logistic(X @ [1.5, 0, 0, -1, 0, 0] + R.normal(0, 0.6, 6)[WARD] - 0.5)))
def horseshoe_and_wards(x, ward, died=None):
    """A regularised horseshoe (not centred) beside effects of wards, a logistic model."""
    a = sample("a", dist.Normal(0, 2))
    local = sample("local", dist.HalfCauchy(1).expand([6]).to_event(1))
    whole = sample("whole", dist.HalfCauchy(0.3))
    slab = sample("slab", dist.InverseGamma(2, 4))
    z = sample("z", dist.Normal(0, 1).expand([6]).to_event(1))
    wide = jnp.sqrt(slab * local**2 / (slab + whole**2 * local**2))
    beta = deterministic("beta", z * whole * wide)
    tau = sample("tau", dist.HalfNormal(1))
    with plate("wards", 6):
        u = sample("u", dist.Normal(0, tau))
    with plate("n", 60):
        sample("died", dist.Bernoulli(logits=a + x @ beta + u[ward]), obs=died)


R = rng(35)
BIRD, WIND = np.repeat(np.arange(5), 8), R.normal(size=40)
HEAD = (1 + 0.6 * np.tanh(WIND) + R.normal(0, 0.4, 5)[BIRD] + R.vonmises(0, 6, 40) + np.pi) % (2 * np.pi) - np.pi


@new(bird=BIRD, wind=WIND, heading=np.where(np.arange(40) % 8 == 3, np.nan, HEAD))
def headings_with_gaps(bird, wind):
    """Angles by von Mises with effects of birds and a saturated input, in rows, angles missing."""
    m = sample("m", dist.Normal(1, 1))
    b = sample("b", dist.Normal(0, 0.7))
    tau = sample("tau", dist.HalfNormal(0.5))
    kappa = sample("kappa", dist.LogNormal(1.5, 0.7))
    with plate("birds", 5):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        sample("heading", dist.VonMises(m + b * jnp.tanh(wind) + u[bird], kappa))


@summed("headings_with_gaps")
def headings_with_gaps_by_hand(bird, wind, heading):
    m = sample("m", dist.Normal(1, 1))
    b = sample("b", dist.Normal(0, 0.7))
    tau = sample("tau", dist.HalfNormal(0.5))
    kappa = sample("kappa", dist.LogNormal(1.5, 0.7))
    with plate("birds", 5):
        u = sample("u", dist.Normal(0, tau))
    gone = jnp.isnan(heading)
    log = dist.VonMises(m + b * jnp.tanh(wind) + u[bird], kappa).log_prob(jnp.where(gone, 0.0, heading))
    factor("heading", jnp.where(gone, 0.0, log).sum())


R = rng(36)
AREA = np.arange(9)
NEXT = (np.abs(AREA[:, None] - AREA) == 1).astype(float)
POPULATION = R.uniform(2, 10, 9)


@new(population=POPULATION, cases=np.where(R.random((9, 3)) < 0.2, 0, R.poisson(
    POPULATION[:, None] * np.exp(np.sin(AREA / 2))[:, None], (9, 3))))
def neighbours_with_too_many_zeros(population, cases=None):
    """Pasted: a conditional autoregression of areas, zero inflation, population as exposure."""
    a = sample("a", dist.Normal(0, 1))
    rho = sample("rho", dist.Beta(2, 2))
    tau = sample("tau", dist.Gamma(2, 1))
    gate = sample("gate", dist.Beta(1, 4))
    phi = sample("phi", dist.CAR(0.0, rho, tau, jnp.asarray(NEXT)))
    with plate("years", 3, dim=-1), plate("areas", 9, dim=-2):
        rate = (population * jnp.exp(a + phi))[:, None]
        sample("cases", dist.ZeroInflatedPoisson(gate, rate), obs=cases)


R = rng(37)
STUDY = np.arange(14)
SE = R.uniform(0.1, 0.5, 14)
EFFECT = 0.3 + R.normal(0, 0.2, 14) + R.normal(size=14) * SE


@new(se=SE, kind=STUDY % 3, effect=EFFECT)
def studies_published_if_significant(se, kind, effect):
    """Meta-analysis with effects of kinds of studies and a selection on z: a factor divides by its share."""
    mu = sample("mu", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    omega = sample("omega", dist.HalfNormal(0.5))
    keep = sample("keep", dist.Beta(2, 2))
    with plate("kinds", 3):
        k = sample("k", dist.Normal(0, omega))
    sd = jnp.sqrt(tau**2 + se**2)
    with plate("studies", 14):
        sample("effect", dist.Normal(mu + k[kind], sd), obs=effect)
        out = norm.cdf((1.96 * se - mu - k[kind]) / sd)
        factor("chosen", jnp.where(effect > 1.96 * se, 0.0, jnp.log(keep)) - jnp.log(1 - (1 - keep) * out))


R = rng(38)
LEVEL = np.cumsum(R.normal(0, 0.5, 30)) + 10
TEMP = R.normal(size=30)


@new(temp=TEMP, load=np.where(np.isin(np.arange(30), [5, 6, 7, 18]), np.nan, LEVEL + 1.5 * TEMP
                              + R.normal(0, 0.6, 30)))
def load_with_a_level_a_season_and_gaps(temp, load=None):
    """A level that walks, a dummy season of period 4 by scan, a slope; values missing as NaN."""
    b = sample("b", dist.Normal(0, 2))
    q = sample("q", dist.HalfNormal(1))
    s = sample("s", dist.HalfNormal(0.5))
    sigma = sample("sigma", dist.HalfNormal(1))
    first = sample("first", dist.Normal(10, 5))
    season = sample("season", dist.ZeroSumNormal(s, event_shape=(4,)))
    with plate("steps", 29):
        z = sample("z", dist.Normal(0, 1))
    level = first + q * jnp.concatenate([jnp.zeros(1), jnp.cumsum(z)])
    with plate("n", 30):
        sample("load", dist.Normal(level + season[jnp.arange(30) % 4] + b * temp, sigma), obs=load)


@summed("load_with_a_level_a_season_and_gaps")
def load_with_a_level_a_season_and_gaps_by_hand(temp, load):
    b = sample("b", dist.Normal(0, 2))
    q = sample("q", dist.HalfNormal(1))
    s = sample("s", dist.HalfNormal(0.5))
    sigma = sample("sigma", dist.HalfNormal(1))
    first = sample("first", dist.Normal(10, 5))
    season = sample("season", dist.ZeroSumNormal(s, event_shape=(4,)))
    with plate("steps", 29):
        z = sample("z", dist.Normal(0, 1))
    level = first + q * jnp.concatenate([jnp.zeros(1), jnp.cumsum(z)])
    gone = jnp.isnan(load)
    log = dist.Normal(level + season[jnp.arange(30) % 4] + b * temp, sigma).log_prob(jnp.where(gone, 0, load))
    factor("load", jnp.where(gone, 0.0, log).sum())


R = rng(39)
BOTH = R.multivariate_normal([1, 2], [[1, 0.6], [0.6, 1.5]], 40)
CHOSEN = BOTH[:, 0] + 0.5 * R.normal(size=40) > 0.5


@new(clinic=np.arange(40) % 4, both=np.where(np.stack([np.full(40, False), ~CHOSEN], 1), np.nan, BOTH))
def pairs_of_which_one_is_lost(clinic):
    """Pairs of a normal with LKJ scales, means of clinics with effects, the second part missing in many rows."""
    mu = sample("mu", dist.Normal(0, 3).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1))
    sd = sample("sd", dist.HalfNormal(2).expand([2]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 1.0))
    with plate("clinics", 4):
        u = sample("u", dist.Normal(0, tau))
    with probml.rows():
        sample("both", dist.MultivariateNormal(mu + u[clinic][..., None], scale_tril=sd[:, None] * lower))


@summed("pairs_of_which_one_is_lost")
def pairs_of_which_one_is_lost_by_hand(clinic, both):
    mu = sample("mu", dist.Normal(0, 3).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1))
    sd = sample("sd", dist.HalfNormal(2).expand([2]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 1.0))
    with plate("clinics", 4):
        u = sample("u", dist.Normal(0, tau))
    mean = mu + u[clinic][:, None]
    gone = jnp.isnan(both[:, 1])
    whole = dist.MultivariateNormal(mean, scale_tril=sd[:, None] * lower).log_prob(jnp.nan_to_num(both))
    factor("both", jnp.where(gone, dist.Normal(mean[:, 0], sd[0]).log_prob(both[:, 0]), whole).sum())


R = rng(40)
DEMAND = R.normal(size=25)


@new(demand=DEMAND, product=np.arange(25) % 3, stock=np.full(25, 6),
     sold=np.minimum(R.poisson(np.exp(1.3 + 0.4 * DEMAND)), 6))
def sales_cut_by_the_stock(demand, product, stock, sold=None):
    """Counts right-censored where all are sold (more than 6), a slope of each product in a low-rank normal prior."""
    mu = sample("mu", dist.Normal(0, 1).expand([2]).to_event(1))
    load = sample("load", dist.HalfNormal(0.5).expand([2]).to_event(1))
    own = sample("own", dist.LogNormal(-2, 0.5).expand([2]).to_event(1))
    with plate("products", 3):
        b = sample("b", dist.LowRankMultivariateNormal(mu, load[:, None], own))
    rate = jnp.exp(b[product, 0] + b[product, 1] * demand)
    with plate("n", 25):
        sample("sold", dist.RightCensoredDistribution(dist.Poisson(rate), censored=sold >= stock), obs=sold)


@summed("sales_cut_by_the_stock")
def sales_cut_by_the_stock_by_hand(demand, product, stock, sold):
    mu = sample("mu", dist.Normal(0, 1).expand([2]).to_event(1))
    load = sample("load", dist.HalfNormal(0.5).expand([2]).to_event(1))
    own = sample("own", dist.LogNormal(-2, 0.5).expand([2]).to_event(1))
    with plate("products", 3):
        b = sample("b", dist.MultivariateNormal(mu, covariance_matrix=load[:, None] * load + jnp.diag(own)))
    rate = jnp.exp(b[product, 0] + b[product, 1] * demand)
    below = jnp.exp(dist.Poisson(rate[:, None]).log_prob(jnp.arange(7))).sum(-1)
    log = jnp.where(sold >= stock, jnp.log1p(-below), dist.Poisson(rate).log_prob(sold))
    factor("sold", log.sum())
