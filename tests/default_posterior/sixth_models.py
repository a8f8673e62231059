"""Models as users of lme4, brms and bambi write them by hand, and as teachers do.

Written before any of them was run, and not tuned to the answers. `new_truths.py` computes their
references (`sixth_truths.json`).
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from collection import PARALLEL, Collection, logistic
from jax.scipy.special import gammaln, logsumexp
from jax.scipy.stats import norm
from numpyro import deterministic, factor, handlers, plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.distributions import transforms

import probml

SIXTH = Collection(1130, 3)
new, summed, rng = SIXTH.new, SIXTH.summed, SIXTH.rng


# ---- effects of groups ------------------------------------------------------------------------------

R = rng(1)
SCHOOL = np.repeat(np.arange(5), 10)
FORM = np.repeat(np.arange(10), 5)
SES = R.normal(size=50)


@new(school=SCHOOL, form=FORM, ses=SES,
     score=50 + R.normal(0, 5, 5)[SCHOOL] + R.normal(0, 3, 10)[FORM] + (2 + R.normal(0, 1, 5)[SCHOOL]) * SES
     + R.normal(0, 4, 50))
def forms_in_schools(school, form, ses, score=None):
    """score ~ ses + (ses | school) + (1 | school:form), in points, correlated effects centred."""
    b = sample("b", dist.Normal(jnp.array([50.0, 0.0]), jnp.array([20.0, 5.0])).to_event(1))
    sd = sample("sd", dist.HalfNormal(jnp.array([10.0, 3.0])).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 2.0))
    sd_form = sample("sd_form", dist.HalfNormal(5))
    sigma = sample("sigma", dist.HalfNormal(10))
    with plate("schools", 5):
        u = sample("u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=sd[:, None] * lower))
    with plate("forms", 10):
        v = sample("v", dist.Normal(0, sd_form))
    with plate("pupils", 50):
        sample("score", dist.Normal(b[0] + u[school, 0] + v[form] + (b[1] + u[school, 1]) * ses, sigma),
               obs=score)


R = rng(2)
SUBJECT, PICTURE = np.repeat(np.arange(8), 6), np.tile(np.arange(6), 8)
SECONDS = R.uniform(5, 30, 48)


@new(subject=SUBJECT, picture=PICTURE, seconds=SECONDS, looks=R.poisson(SECONDS * np.exp(
    -1.2 + R.normal(0, 0.4, 8)[SUBJECT] + R.normal(0, 0.3, 6)[PICTURE])))
def looks_at_pictures(subject, picture, seconds, looks=None):
    """looks ~ offset(log(seconds)) + (1 | subject) + (1 | picture)."""
    a = sample("a", dist.Normal(0, 2))
    sd = sample("sd", dist.Exponential(jnp.array([2.0, 2.0])).to_event(1))
    with plate("subjects", 8):
        s = sample("s", dist.Normal(0, sd[0]))
    with plate("pictures", 6):
        p = sample("p", dist.Normal(0, sd[1]))
    with plate("n", 48):
        sample("looks", dist.Poisson(jnp.exp(jnp.log(seconds) + a + s[subject] + p[picture])), obs=looks)


R = rng(3)
PAIN = R.integers(0, 4, 60)
CLINIC = R.integers(0, 6, 60)


@new(pain=PAIN, clinic=CLINIC, days=1 + 3 * np.array([0, 0.6, 0.8, 1.0])[PAIN]
     + R.normal(0, 0.7, 6)[CLINIC] + R.normal(size=60))
def monotonic_pain(pain, clinic, days=None):
    """days ~ mo(pain) + (1 | clinic): brms' monotonic effect."""
    a = sample("a", dist.Normal(0, 5))
    b = sample("b", dist.Normal(0, 3))
    step = sample("step", dist.Dirichlet(jnp.ones(3)))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.Exponential(1))
    with plate("clinics", 6):
        z = sample("z", dist.Normal(0, 1))
    share = jnp.concatenate([jnp.zeros(1), jnp.cumsum(step)])
    sample("days", dist.Normal(a + b * 3 * share[pain] + tau * z[clinic], sigma), obs=days)


R = rng(4)
HOME = np.repeat(np.arange(8), 7)
GOES = R.random(56) < logistic(0.3 + R.normal(0, 1, 8))[HOME]


@new(home=HOME, euro=np.where(GOES, R.lognormal(2.5 + R.normal(0, 0.4, 8)[HOME], 0.6), 0.0))
def spending_behind_a_hurdle(home, euro):
    """brms' hurdle_lognormal with (1 | p | home) on both parts, not centred; zeros by where."""
    a = sample("a", dist.Normal(0, 2).expand([2]).to_event(1))
    sd = sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 1.0))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("homes", 8):
        z = sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    u = z @ (sd[:, None] * lower).T
    logit, mean = a[0] + u[home, 0], a[1] + u[home, 1]
    log = jnp.where(euro > 0, jax.nn.log_sigmoid(logit)
                    + dist.LogNormal(mean, sigma).log_prob(jnp.where(euro > 0, euro, 1.0)),
                    jax.nn.log_sigmoid(-logit))
    factor("euro", log.sum())


R = rng(5)
WHO = np.repeat(np.arange(7), 8)
DOSE = np.tile(np.arange(8) / 7, 7)


@new(who=WHO, dose=DOSE, y=R.normal(1 + 2 * DOSE + R.normal(0, 0.5, 7)[WHO],
                                    np.exp(-0.5 + DOSE + R.normal(0, 0.4, 7)[WHO])))
def spread_of_each_person(who, dose, y=None):
    """bf(y ~ dose + (1 | who), sigma ~ dose + (1 | who))."""
    b = sample("b", dist.Normal(0, 3).expand([2]).to_event(1))
    g = sample("g", dist.Normal(0, 1.5).expand([2]).to_event(1))
    tau = sample("tau", dist.HalfNormal(1).expand([2]).to_event(1))
    with plate("people", 7):
        u = sample("u", dist.Normal(0, tau[0]))
        v = sample("v", dist.Normal(0, tau[1]))
    with plate("n", 56):
        sample("y", dist.Normal(b[0] + b[1] * dose + u[who], jnp.exp(g[0] + g[1] * dose + v[who])), obs=y)


R = rng(6)
AGE = np.sort(R.uniform(0, 1, 60))
KNOTS = np.linspace(0.1, 0.9, 6)
BASIS = np.maximum(AGE[:, None] - KNOTS, 0) ** 3 * 20
FARM = R.integers(0, 5, 60)


@new(age=AGE, basis=BASIS, farm=FARM, milk=R.poisson(np.exp(1.5 + np.sin(5 * AGE) + R.normal(0, 0.3, 5)[FARM])))
def milk_by_a_spline(age, basis, farm, milk=None):
    """milk ~ s(age) + (1 | farm): the wiggles as effects of one sd, counts."""
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 2))
    sd = sample("sd", dist.HalfCauchy(1))
    tau = sample("tau", dist.HalfCauchy(1))
    with plate("knots", 6):
        w = sample("w", dist.Normal(0, sd))
    with plate("farms", 5):
        u = sample("u", dist.Normal(0, tau))
    with plate("n", 60):
        sample("milk", dist.Poisson(jnp.exp(a + b * age + basis @ w + u[farm])), obs=milk)


R = rng(7)
T = np.linspace(-1, 1, 50)
SINES = np.sin(np.pi * np.arange(1, 11) * (T[:, None] + 1.5) / 3) / np.sqrt(1.5)


@new(basis=SINES, won=R.binomial(1, logistic(2 * np.sin(3 * T))))
def hilbert_space_process(basis, won=None):
    """won ~ gp(t, k = 10, c = 1.5): a Gaussian process by ten sines, its spectral density by hand."""
    a = sample("a", dist.Normal(0, 1.5))
    size = sample("size", dist.HalfNormal(2))
    length = sample("length", dist.InverseGamma(4, 2))
    z = sample("z", dist.Normal(0, 1).expand([10]).to_event(1))
    w = jnp.pi * jnp.arange(1, 11) / 3
    spectrum = size * jnp.sqrt(jnp.sqrt(2 * jnp.pi) * length) * jnp.exp(-0.25 * (length * w) ** 2)
    with plate("n", 50):
        sample("won", dist.Bernoulli(logits=a + basis @ (spectrum * z)), obs=won)


R = rng(8)
LAB = np.repeat(np.arange(6), 7)
LEVEL = R.lognormal(0.5 + R.normal(0, 0.5, 6)[LAB], 0.7)
KIND = np.where(LEVEL < 0.8, -1, np.where(LEVEL > 5, 1, np.where(R.random(42) < 0.3, 2, 0)))
LOW = np.where(KIND == 1, 5.0, np.where(KIND == 2, np.floor(LEVEL), LEVEL))


@new(lab=LAB, kind=KIND, low=np.maximum(LOW, 1e-3), high=np.where(KIND == 2, np.floor(LEVEL) + 1, LEVEL))
def levels_censored_in_four_ways(lab, kind, low, high):
    """low | cens(kind, high) ~ (1 | lab): left of 0.8, right of 5, intervals, exact; a log-normal."""
    mu = sample("mu", dist.Normal(0, 2))
    tau = sample("tau", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("labs", 6):
        u = sample("u", dist.Normal(mu, tau))
    own = dist.LogNormal(u[lab], sigma)
    def below(x):
        return norm.cdf((jnp.log(x) - u[lab]) / sigma)
    between = jnp.where(kind == 2, below(high) - below(jnp.where(kind == 2, low, high / 2)), 1.0)
    log = jnp.select([kind == -1, kind == 1, kind == 2],
                     [jnp.log(below(0.8)), jnp.log1p(-below(5.0)), jnp.log(between)], own.log_prob(low))
    with plate("n", 42):
        factor("level", log)


R = rng(9)
BOAT = np.repeat(np.arange(5), 12)
DEPTH = R.normal(size=60)
LENGTH = 30 + R.normal(0, 3, 5)[BOAT] + 4 * DEPTH + R.normal(0, 5, 60)
KEPT = LENGTH > 27


@new(boat=BOAT[KEPT], depth=DEPTH[KEPT], length=LENGTH[KEPT])
def fish_longer_than_the_mesh(boat, depth, length=None):
    """length | trunc(lb = 27) ~ depth + (1 | boat), in centimetres."""
    a = sample("a", dist.Normal(30, 10))
    b = sample("b", dist.Normal(0, 5))
    tau = sample("tau", dist.HalfNormal(5))
    sigma = sample("sigma", dist.HalfNormal(10))
    with plate("boats", 5):
        u = sample("u", dist.Normal(0, tau))
    with plate("n", len(length) if length is not None else len(depth)):
        sample("length", dist.TruncatedNormal(a + b * depth + u[boat], sigma, low=27.0), obs=length)


R = rng(10)
TRUE = R.normal(2, 1, 30)


@new(x=TRUE + R.normal(0, 0.5, 30), sx=np.full(30, 0.5), y=1 + 0.8 * TRUE + R.normal(0, 0.5, 30),
     sy=R.uniform(0.2, 0.6, 30))
def errors_on_both_sides(x, sx, y, sy):
    """y | mi(sy) ~ me(x, sx): true values of outcome and input are numbers of each row, by rows of a plate."""
    mx = sample("mx", dist.Normal(0, 3))
    tx = sample("tx", dist.HalfNormal(2))
    a = sample("a", dist.Normal(0, 3))
    b = sample("b", dist.Normal(0, 2))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("n", 30):
        real = sample("real", dist.Normal(mx, tx))
        sample("x", dist.Normal(real, sx), obs=x)
        out = sample("out", dist.Normal(a + b * real, sigma))
        sample("y", dist.Normal(out, sy), obs=y)


R = rng(11)
BIRD = np.repeat(np.arange(8), 5)
HATCH = R.normal(size=40)
U = R.multivariate_normal([0, 0], [[0.5, 0.3], [0.3, 0.5]], 8)
E = R.multivariate_normal([0, 0], [[0.6, -0.25], [-0.25, 0.5]], 40)


@new(bird=BIRD, hatch=HATCH, both=np.stack([0.4 * HATCH, 0.2 - 0.5 * HATCH], 1) + U[BIRD] + E)
def tarsus_and_back(bird, hatch, both=None):
    """mvbind(tarsus, back) ~ hatch + (1 | q | fosternest), set_rescor(TRUE)."""
    a = sample("a", dist.Normal(0, 2).expand([2]).to_event(1))
    b = sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    sd = sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    l_u = sample("l_u", dist.LKJCholesky(2, 2.0))
    sigma = sample("sigma", dist.HalfNormal(1).expand([2]).to_event(1))
    l_e = sample("l_e", dist.LKJCholesky(2, 2.0))
    with plate("nests", 8):
        u = sample("u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=sd[:, None] * l_u))
    deterministic("rescor", (l_e @ l_e.T)[0, 1])
    with plate("n", 40):
        sample("both", dist.MultivariateNormal(a + b * hatch[:, None] + u[bird],
                                               scale_tril=sigma[:, None] * l_e), obs=both)


R = rng(12)
TREAT = np.repeat([0.0, 1.0], 35)
LATENT = 0.9 * TREAT[:, None] + R.logistic(size=(70, 3))
STOP = LATENT < np.array([-0.5, 0.2, 0.8]) + np.array([0, 0, 1.0]) * TREAT[:, None]


@new(treat=TREAT, stage=np.where(STOP.any(1), STOP.argmax(1), 3))
def stages_one_after_another(treat, stage):
    """sratio with a category-specific effect: cs(treat)."""
    c = sample("c", dist.Normal(0, 2).expand([3]).to_event(1))
    m = sample("m", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("steps", 3):
        b = sample("b", dist.Normal(m, tau))
    stop = jax.nn.sigmoid(c - b * treat[:, None])
    go = jnp.cumprod(1 - stop, axis=-1)
    probs = jnp.concatenate([stop[:, :1], stop[:, 1:] * go[:, :-1], go[:, -1:]], -1)
    with plate("n", 70):
        sample("stage", dist.Categorical(probs=probs), obs=stage)


R = rng(13)
JUDGE = np.tile([0, 1], 40)
WINE = np.repeat(np.arange(8), 10)
TASTE = R.normal(0, 1, 8)[WINE] + R.normal(size=80) * np.where(JUDGE == 1, 1.8, 1.0)


@new(judge=JUDGE, wine=WINE, mark=np.digitize(TASTE, [-1.0, 0.0, 1.0]))
def marks_of_unequal_judges(judge, wine, mark=None):
    """mark ~ judge + (1 | wine), disc ~ 0 + judge, cumulative("probit")."""
    c = sample("c", dist.TransformedDistribution(dist.Normal(0, 2).expand([3]).to_event(1),
                                                 transforms.OrderedTransform()))
    b = sample("b", dist.Normal(0, 1))
    log_disc = sample("log_disc", dist.Normal(0, 0.7))
    tau = sample("tau", dist.HalfNormal(1.5))
    with plate("wines", 8):
        u = sample("u", dist.Normal(0, tau))
    below = norm.cdf(jnp.exp(log_disc * judge)[:, None] * (c - (b * judge + u[wine])[:, None]))
    edges = jnp.concatenate([jnp.zeros((80, 1)), below, jnp.ones((80, 1))], -1)
    with plate("n", 80):
        sample("mark", dist.Categorical(probs=jnp.diff(edges)), obs=mark)


R = rng(14)
TRIAL = np.repeat(np.arange(9), 2)
SE = R.uniform(0.1, 0.4, 18)
YEAR = R.normal(size=9)[TRIAL]


@new(trial=TRIAL, se=SE, year=YEAR, effect=0.4 + 0.2 * YEAR + R.normal(0, 0.25, 9)[TRIAL]
     + R.normal(0, 0.1, 18) + R.normal(size=18) * SE)
def meta_analysis_of_three_levels(trial, se, year, effect=None):
    """effect | se(se) ~ year + (1 | trial / outcome), half-Cauchy scales."""
    mu = sample("mu", dist.Normal(0, 1))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfCauchy(0.5))
    omega = sample("omega", dist.HalfCauchy(0.5))
    with plate("trials", 9):
        u = sample("u", dist.Normal(0, tau))
    with plate("outcomes", 18):
        v = sample("v", dist.Normal(mu + b * year + u[trial], omega))
        sample("effect", dist.Normal(v, se), obs=effect)


R = rng(15)
X = R.normal(size=70)
P = logistic(0.5 * X)
KIND = R.choice(3, 70, p=[0.15, 0.2, 0.65])


@new(x=X, y=np.where(KIND == 0, 0.0, np.where(KIND == 1, 1.0, R.beta(8 * P, 8 * (1 - P)))))
def shares_with_both_ends(x, y=None):
    """zero_one_inflated_beta: zoi, coi, mu ~ x."""
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1))
    phi = sample("phi", dist.Gamma(2, 0.2))
    zoi = sample("zoi", dist.Beta(1, 1))
    coi = sample("coi", dist.Beta(1, 1))
    mu = jax.nn.sigmoid(a + b * x)
    end = (y == 0) | (y == 1)
    inner = dist.Beta(mu * phi, (1 - mu) * phi).log_prob(jnp.where(end, 0.5, y))
    with plate("n", 70):
        factor("y", jnp.where(y == 0, jnp.log(zoi) + jnp.log1p(-coi), jnp.where(
            y == 1, jnp.log(zoi) + jnp.log(coi), jnp.log1p(-zoi) + inner)))


R = rng(16)
BMI = R.normal(27, 3, 40)
HOLES = np.arange(40) % 6 == 1


@new(chl=180 + 4 * (BMI - 27) + R.normal(0, 15, 40), bmi=np.where(HOLES, np.nan, BMI))
def cholesterol_with_missing_bmi():
    """bf(chl ~ mi(bmi)) + bf(bmi | mi() ~ 1), as rows with missing cells."""
    m = sample("m", dist.Normal(25, 5))
    s = sample("s", dist.HalfNormal(5))
    a = sample("a", dist.Normal(180, 50))
    b = sample("b", dist.Normal(0, 10))
    sigma = sample("sigma", dist.HalfNormal(20))
    with probml.rows():
        bmi = sample("bmi", dist.Normal(m, s))
        sample("chl", dist.Normal(a + b * (bmi - 27), sigma))


@summed("cholesterol_with_missing_bmi")
def cholesterol_with_missing_bmi_by_hand(chl, bmi):
    m = sample("m", dist.Normal(25, 5))
    s = sample("s", dist.HalfNormal(5))
    a = sample("a", dist.Normal(180, 50))
    b = sample("b", dist.Normal(0, 10))
    sigma = sample("sigma", dist.HalfNormal(20))
    full = jnp.where(HOLES, m, bmi)
    factor("bmi", jnp.where(HOLES, 0.0, dist.Normal(m, s).log_prob(full)).sum())
    sd = jnp.sqrt(sigma**2 + jnp.where(HOLES, (b * s) ** 2, 0.0))
    sample("chl", dist.Normal(a + b * (full - 27), sd), obs=chl)


R = rng(17)
YEAR = np.concatenate([np.full(10 - k, k) for k in range(7)]) % 7
DEV = np.concatenate([np.arange(1, 11 - k) for k in range(7)]).astype(float)
GROWS = 1 - np.exp(-(DEV / 4) ** 1.4)


@new(year=YEAR, dev=DEV, loss=5000 * np.exp(R.normal(0, 0.1, 7))[YEAR] * GROWS + R.normal(0, 100, len(DEV)))
def losses_of_accident_years(year, dev, loss=None):
    """cum ~ ult * (1 − exp(−(dev / theta)^omega)), ult ~ 1 + (1 | AY), nl = TRUE; in thousands."""
    ult = sample("ult", dist.Normal(5000, 1000))
    sd = sample("sd", dist.HalfNormal(1000))
    omega = sample("omega", dist.TruncatedNormal(1, 2, low=0.0))
    theta = sample("theta", dist.TruncatedNormal(5, 3, low=0.0))
    sigma = sample("sigma", dist.HalfNormal(500))
    with plate("years", 7):
        u = sample("u", dist.Normal(ult, sd))
    with plate("n", len(dev)):
        sample("loss", dist.Normal(u[year] * (1 - jnp.exp(-((dev / theta) ** omega))), sigma), obs=loss)


R = rng(18)
ONE, TWO = R.integers(0, 6, 50), R.integers(0, 6, 50)
PART = R.uniform(0.2, 0.8, 50)
ABLE = R.normal(0, 1, 6)


@new(one=ONE, two=TWO, part=PART, grade=3 + PART * ABLE[ONE] + (1 - PART) * ABLE[TWO] + R.normal(0, 0.6, 50))
def pupils_of_two_teachers(one, two, part, grade=None):
    """grade ~ 1 + (1 | mm(one, two, weights = cbind(part, 1 − part)))."""
    a = sample("a", dist.Normal(0, 5))
    tau = sample("tau", dist.HalfCauchy(1))
    sigma = sample("sigma", dist.HalfCauchy(1))
    with plate("teachers", 6):
        u = sample("u", dist.Normal(0, tau))
    with plate("n", 50):
        sample("grade", dist.Normal(a + part * u[one] + (1 - part) * u[two], sigma), obs=grade)


R = rng(19)
SITE = np.repeat(np.arange(6), 9)
WARM = R.normal(size=54)
SHAPE = np.exp(0.5 + 0.6 * WARM)


@new(site=SITE, warm=WARM, ticks=R.negative_binomial(SHAPE, SHAPE / (SHAPE + np.exp(
    1.2 + 0.3 * WARM + R.normal(0, 0.5, 6)[SITE]))))
def ticks_with_a_shape(site, warm, ticks=None):
    """bf(ticks ~ warm + (1 | site), shape ~ warm), negbinomial."""
    b = sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    g = sample("g", dist.Normal(0, 1).expand([2]).to_event(1))
    tau = sample("tau", dist.Exponential(1))
    with plate("sites", 6):
        u = sample("u", dist.Normal(0, tau))
    with plate("n", 54):
        sample("ticks", dist.NegativeBinomial2(jnp.exp(b[0] + b[1] * warm + u[site]),
                                               jnp.exp(g[0] + g[1] * warm)), obs=ticks)


R = rng(20)
X = R.normal(size=70)
FAST = R.random(70) < logistic(0.4 + 1.0 * X)


@new(x=X, rt=np.where(FAST, R.normal(0.4, 0.1, 70), R.normal(1.0, 0.3, 70)))
def two_ways_to_answer(x):
    """mixture(gaussian, gaussian), theta2 ~ x: means in order, a width of each; rows."""
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1))
    mu = sample("mu", dist.TransformedDistribution(dist.Normal(0, 1).expand([2]).to_event(1),
                                                   transforms.OrderedTransform()))
    s = sample("s", dist.LogNormal(-1.5, 0.7).expand([2]).to_event(1))
    with probml.rows():
        fast = sample("fast", dist.Bernoulli(logits=a + b * x))
        sample("rt", dist.Normal(mu[1 - fast], s[1 - fast]))


@summed("two_ways_to_answer")
def two_ways_to_answer_summed(x, rt):
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1))
    mu = sample("mu", dist.TransformedDistribution(dist.Normal(0, 1).expand([2]).to_event(1),
                                                   transforms.OrderedTransform()))
    s = sample("s", dist.LogNormal(-1.5, 0.7).expand([2]).to_event(1))
    each = dist.Normal(mu, s).log_prob(rt[:, None])
    factor("rt", jnp.logaddexp(jax.nn.log_sigmoid(a + b * x) + each[:, 0],
                               jax.nn.log_sigmoid(-(a + b * x)) + each[:, 1]).sum())


R = rng(21)
BATCH = np.repeat(np.arange(7), 4)
TOTAL = R.integers(5, 30, 28)


@new(batch=BATCH, total=TOTAL, bad=R.binomial(TOTAL, R.beta(2, 8, 28)))
def failures_beta_binomial(batch, total, bad=None):
    """bad | vint(total) ~ (1 | batch), a custom beta-binomial family."""
    a = sample("a", dist.Normal(-1, 1.5))
    tau = sample("tau", dist.HalfNormal(1))
    phi = sample("phi", dist.Gamma(0.5, 0.05))
    with plate("batches", 7):
        u = sample("u", dist.Normal(0, tau))
    mu = jax.nn.sigmoid(a + u[batch])
    with plate("n", 28):
        sample("bad", dist.BetaBinomial(mu * phi, (1 - mu) * phi, total), obs=bad)


# ---- what teachers ask -------------------------------------------------------------------------------

R = rng(22)
SHOP = np.repeat(np.arange(6), 2)
ARM = np.tile([0, 1], 6)
SHOWN = R.integers(100, 400, 12)


@new(shop=SHOP, arm=ARM, shown=SHOWN, bought=R.binomial(SHOWN, logistic(
    -2.5 + R.normal(0, 0.4, 6)[SHOP] + (0.3 + R.normal(0, 0.15, 6)[SHOP]) * ARM)))
def arms_in_shops(shop, arm, shown, bought=None):
    """An A/B test in six shops: base rates and lifts go together."""
    mu = sample("mu", dist.Normal(jnp.array([-2.0, 0.0]), jnp.array([1.0, 0.5])).to_event(1))
    sd = sample("sd", dist.HalfNormal(0.5).expand([2]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 2.0))
    with plate("shops", 6):
        u = sample("u", dist.MultivariateNormal(mu, scale_tril=sd[:, None] * lower))
    deterministic("lift", jax.nn.sigmoid(mu[0] + mu[1]) - jax.nn.sigmoid(mu[0]))
    with plate("n", 12):
        sample("bought", dist.Binomial(shown, logits=u[shop, 0] + u[shop, 1] * arm), obs=bought)


R = rng(23)


def _track():
    s, out = np.array([0.0, 1.0]), []
    for _ in range(18):
        s = np.array([s[0] + s[1], s[1] + R.normal(0, 0.3)])
        out.append(s[0] + R.normal(0, 0.8))
    return np.array(out)


@new(y=_track())
def tracking_a_target(y):
    """Position and velocity by scan; only the velocity is pushed; noises unknown."""
    q = sample("q", dist.HalfNormal(1))
    r = sample("r", dist.HalfNormal(2))
    v0 = sample("v0", dist.Normal(0, 2))

    def step(carry, now):
        place, speed = carry
        place = place + speed
        sample("y", dist.Normal(place, r), obs=now)
        return (place, sample("speed", dist.Normal(speed, q))), None

    scan(step, (0.0, v0), jnp.asarray(y))


@summed("tracking_a_target")
def tracking_a_target_by_kalman(y):
    q = sample("q", dist.HalfNormal(1))
    r = sample("r", dist.HalfNormal(2))
    v0 = sample("v0", dist.Normal(0, 2))
    move = jnp.array([[1.0, 1.0], [0.0, 1.0]])

    def step(carry, now):
        mean, cov = carry
        mean, cov = mean + jnp.array([mean[1], 0.0]), move @ cov @ move.T
        var = cov[0, 0] + r**2
        log = dist.Normal(mean[0], jnp.sqrt(var)).log_prob(now)
        gain = cov[:, 0] / var
        mean, cov = mean + gain * (now - mean[0]), cov - jnp.outer(gain, cov[0])
        return (mean, cov + q**2 * jnp.diag(jnp.array([0.0, 1.0]))), log

    begin = (jnp.stack([0.0 * v0, v0]), jnp.zeros((2, 2)))
    factor("y", jax.lax.scan(step, begin, jnp.asarray(y))[1].sum())


R = rng(24)
PUPIL, QUESTION = np.repeat(np.arange(20), 6), np.tile(np.arange(6), 20)
CAN = R.normal(size=20)[PUPIL] - np.linspace(-1.5, 1.5, 6)[QUESTION]


@new(pupil=PUPIL, question=QUESTION, right=R.binomial(1, 0.2 + 0.8 * logistic(1.3 * CAN)))
def guessing_at_questions(pupil, question, right=None):
    """3PL: one discrimination, one chance to guess, difficulties about a mean."""
    guess = sample("guess", dist.Beta(4, 16))
    slope = sample("slope", dist.LogNormal(0, 0.4))
    m = sample("m", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(1.5))
    with plate("questions", 6):
        hard = sample("hard", dist.Normal(m, tau))
    with plate("pupils", 20):
        theta = sample("theta", dist.Normal(0, 1))
    with plate("answers", 120):
        p = guess + (1 - guess) * jax.nn.sigmoid(slope * (theta[pupil] - hard[question]))
        sample("right", dist.Bernoulli(p), obs=right)


R = rng(25)
WHITE, BLACK = (np.array(k) for k in zip(*[(i, j) for i in range(6) for j in range(6) if i != j], strict=True))
RATING = R.normal(0, 150, 6)
DIFF = (RATING[WHITE] - RATING[BLACK] + 35) * np.log(10) / 400
WIN = np.exp(DIFF) / (np.exp(DIFF) + 1 + 0.6 * np.exp(DIFF / 2))
DRAW = 0.6 * np.exp(DIFF / 2) / (np.exp(DIFF) + 1 + 0.6 * np.exp(DIFF / 2))
LUCK = R.random(30)


@new(white=WHITE, black=BLACK, result=np.where(LUCK < WIN, 2, np.where(LUCK < WIN + DRAW, 1, 0)))
def ratings_of_chess_players(white, black, result=None):
    """Elo in its own units, draws as Davidson has them, an advantage of white."""
    spread = sample("spread", dist.HalfNormal(200))
    edge = sample("edge", dist.Normal(0, 50))
    drawn = sample("drawn", dist.LogNormal(0, 0.7))
    with plate("players", 6):
        rating = sample("rating", dist.Normal(1500, spread))
    d = (rating[white] - rating[black] + edge) * jnp.log(10.0) / 400
    logits = jnp.stack([0 * d, jnp.log(drawn) + d / 2, d], -1)
    with plate("games", 30):
        sample("result", dist.Categorical(logits=logits), obs=result)


R = rng(26)


def _epidemic():
    s, i, out = 990.0, 10.0, []
    for _ in range(25):
        fresh, well = 0.6 * s * i / 1000, 0.25 * i
        s, i = s - fresh, i + fresh - well
        out.append(R.negative_binomial(10, 10 / (10 + 0.5 * fresh)))
    return np.array(out)


@new(cases=_epidemic())
def epidemic_by_scan(cases):
    """SIR by days: infections per contact, days ill, reported share, all unknown; overdispersed counts."""
    beta = sample("beta", dist.LogNormal(-0.7, 0.5))
    ill = sample("ill", dist.LogNormal(1.4, 0.3))
    share = sample("share", dist.Beta(5, 5))
    i0 = sample("i0", dist.Exponential(0.1))
    size = sample("size", dist.Gamma(2, 0.2))
    deterministic("r0", beta * ill)

    def day(carry, now):
        s, i = carry
        fresh = beta * s * i / 1000
        sample("cases", dist.NegativeBinomial2(share * fresh + 1e-6, size), obs=now)
        return (s - fresh, i + fresh - i / ill), None

    scan(day, (1000 - i0, i0), jnp.asarray(cases))


R = rng(27)
T = np.arange(0, 60, 3.0)


@new(t=T, clicks=R.poisson(400 * np.exp(-T / 4) + 150 * np.exp(-T / 25) + 10))
def two_isotopes(t, clicks=None):
    """Counts of two isotopes above a background; half-lives in order by a ratio."""
    fast = sample("fast", dist.LogNormal(1.0, 0.7))
    ratio = sample("ratio", dist.LogNormal(1.5, 0.5))
    a = sample("a", dist.HalfNormal(500).expand([2]).to_event(1))
    dark = sample("dark", dist.Gamma(2, 0.1))
    rate = a[0] * jnp.exp2(-t / fast) + a[1] * jnp.exp2(-t / (fast * (1 + ratio))) + dark
    with plate("n", 20):
        sample("clicks", dist.Poisson(rate), obs=clicks)


R = rng(28)
DOSE = np.array([0.0, 1, 2, 4, 8, 16, 32])
REPLY = np.where(DOSE > 0, logistic(1.8 * (np.log(np.maximum(DOSE, 1)) - 1.6)), 0)


@new(dose=DOSE, given=np.full(7, 25), dead=R.binomial(25, 0.1 + 0.9 * REPLY))
def insects_that_die_anyway(dose, given, dead=None):
    """Abbott: natural deaths, log-logistic in the dose, of which one is 0."""
    natural = sample("natural", dist.Beta(1, 9))
    half = sample("half", dist.LogNormal(1.5, 1))
    slope = sample("slope", dist.LogNormal(0.5, 0.5))
    reply = jnp.where(dose > 0, 1 / (1 + (half / jnp.where(dose > 0, dose, 1.0)) ** slope), 0.0)
    deterministic("lethal_90", half * 9 ** (1 / slope))
    with plate("doses", 7):
        sample("dead", dist.Binomial(given, natural + (1 - natural) * reply), obs=dead)


R = rng(29)
TREE = np.array([[1.0, 0.8, 0.5, 0.5, 0.0, 0.0, 0.0], [0.8, 1, 0.5, 0.5, 0, 0, 0], [0.5, 0.5, 1, 0.7, 0, 0, 0],
                 [0.5, 0.5, 0.7, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0.6, 0.3], [0, 0, 0, 0, 0.6, 1, 0.3],
                 [0, 0, 0, 0, 0.3, 0.3, 1]])
SPECIES = np.repeat(np.arange(7), 4)
MASS = R.normal(0, 1, 28) + np.linspace(-1, 1, 7)[SPECIES]
PHYLO = np.linalg.cholesky(TREE) @ R.normal(0, 0.5, 7)


@new(species=SPECIES, log_mass=MASS, log_rate=1 + 0.75 * MASS + PHYLO[SPECIES] + R.normal(0, 0.2, 28))
def allometry_with_a_tree(species, log_mass, log_rate=None):
    """gr(species, cov = A) and (1 | species): kin are alike, and each is itself."""
    a = sample("a", dist.Normal(0, 3))
    b = sample("b", dist.Normal(0.75, 0.3))
    kin = sample("kin", dist.HalfNormal(1))
    own = sample("own", dist.HalfNormal(0.5))
    sigma = sample("sigma", dist.HalfNormal(0.5))
    p = sample("p", dist.MultivariateNormal(jnp.zeros(7), covariance_matrix=kin**2 * TREE))
    with plate("species_", 7):
        u = sample("u", dist.Normal(0, own))
    with plate("n", 28):
        sample("log_rate", dist.Normal(a + b * log_mass + p[species] + u[species], sigma), obs=log_rate)


@summed("allometry_with_a_tree")
def allometry_without_its_effects(species, log_mass, log_rate):
    """Both effects integrated out."""
    a = sample("a", dist.Normal(0, 3))
    b = sample("b", dist.Normal(0.75, 0.3))
    kin = sample("kin", dist.HalfNormal(1))
    own = sample("own", dist.HalfNormal(0.5))
    sigma = sample("sigma", dist.HalfNormal(0.5))
    cov = (kin**2 * TREE + own**2 * jnp.eye(7))[species[:, None], species] + sigma**2 * jnp.eye(28)
    sample("log_rate", dist.MultivariateNormal(a + b * log_mass, covariance_matrix=cov), obs=log_rate)


R = rng(30)
HOUR = np.tile(np.arange(12), 3)
METER = np.repeat(np.arange(3), 12)
AIR = 290 + np.cumsum(R.normal(0, 0.5, 12))
BIAS = np.array([0.0, 0.8, -0.5])
DRIFT = np.array([0.0, 0.05, -0.03])


@new(hour=HOUR, meter=METER, kelvin=AIR[HOUR] + (BIAS + DRIFT * HOUR[:, None])[np.arange(36), METER]
     + R.normal(0, 0.2, 36))
def thermometers_that_drift(hour, meter, kelvin=None):
    """One true temperature as a walk in kelvin; offset and drift of each thermometer, the first is true."""
    start = sample("start", dist.Normal(290, 10))
    step = sample("step", dist.HalfNormal(1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("steps", 11):
        z = sample("z", dist.Normal(0, 1))
    air = deterministic("air", start + step * jnp.concatenate([jnp.zeros(1), jnp.cumsum(z)]))
    with plate("others", 2):
        bias = sample("bias", dist.Normal(0, 1))
        drift = sample("drift", dist.Normal(0, 0.1))
    bias, drift = (jnp.concatenate([jnp.zeros(1), v]) for v in (bias, drift))
    with plate("n", 36):
        sample("kelvin", dist.Normal(air[hour] + bias[meter] + drift[meter] * hour, sigma), obs=kelvin)


R = rng(31)
TRUE = R.normal(20, 3, 25)
FAILS = R.random((25, 3)) < 0.15


@new(read=np.where(FAILS, R.uniform(0, 50, (25, 3)), TRUE[:, None] + np.array([0.0, 1.0, -1.0])
                   + R.normal(0, [0.5, 0.8, 1.0], (25, 3))))
def sensors_that_fail(read):
    """Each reading is good or anything from 0 to 50: a density by logsumexp, a truth of each day."""
    fails = sample("fails", dist.Beta(1, 5))
    m = sample("m", dist.Normal(20, 10))
    s = sample("s", dist.HalfNormal(5))
    sd = sample("sd", dist.HalfNormal(2).expand([3]).to_event(1))
    off = sample("off", dist.Normal(0, 1).expand([2]).to_event(1))
    off = jnp.concatenate([jnp.zeros(1), off])
    with plate("days", 25):
        truth = sample("truth", dist.Normal(m, s))
    good = dist.Normal(truth[:, None] + off, sd).log_prob(read)
    factor("read", jnp.logaddexp(jnp.log1p(-fails) + good, jnp.log(fails) - jnp.log(50.0)).sum())


@summed("sensors_that_fail")
def sensors_that_fail_without_the_truth(read):
    """The truth of each day integrated out, over which of its three readings are good."""
    fails = sample("fails", dist.Beta(1, 5))
    m = sample("m", dist.Normal(20, 10))
    s = sample("s", dist.HalfNormal(5))
    sd = sample("sd", dist.HalfNormal(2).expand([3]).to_event(1))
    off = sample("off", dist.Normal(0, 1).expand([2]).to_event(1))
    off = jnp.concatenate([jnp.zeros(1), off])
    days = 0.0
    for good in np.ndindex(2, 2, 2):
        own = np.flatnonzero(good)
        log = len(own) * jnp.log1p(-fails) + (3 - len(own)) * (jnp.log(fails) - jnp.log(50.0))
        if len(own):
            cov = s**2 + jnp.diag(sd[own] ** 2)
            log += dist.MultivariateNormal(m + off[own], covariance_matrix=cov).log_prob(read[:, own])
        days = jnp.logaddexp(days, log) if any(good) else jnp.full(25, log)
    factor("read", days.sum())


R = rng(32)
TOSSED = R.integers(5, 40, 12)
LOADED = R.random(12) < 0.4


@new(tossed=TOSSED, heads=R.binomial(TOSSED, np.where(LOADED, 0.75, 0.5)))
def coins_of_a_gambler(tossed, heads):
    """Some coins are fair, the others share one bias: which is which is enumerated."""
    share = sample("share", dist.Beta(2, 2))
    bias = sample("bias", dist.Uniform(0.5, 1))
    with plate("coins", 12):
        loaded = sample("loaded", dist.Bernoulli(share), infer=PARALLEL)
        sample("heads", dist.Binomial(tossed, jnp.where(loaded == 1, bias, 0.5)), obs=heads)


@summed("coins_of_a_gambler")
def coins_of_a_gambler_summed(tossed, heads):
    share = sample("share", dist.Beta(2, 2))
    bias = sample("bias", dist.Uniform(0.5, 1))
    factor("heads", jnp.logaddexp(jnp.log(share) + dist.Binomial(tossed, bias).log_prob(heads), jnp.log1p(-share)
                                  + dist.Binomial(tossed, 0.5).log_prob(heads)).sum())


R = rng(33)
MAN = np.repeat(np.arange(5), 7)
HOURS = np.tile([0.5, 1, 2, 4, 8, 12, 24], 5)
KE = np.exp(-1.8 + R.normal(0, 0.25, 5))[MAN]
LEVEL = 320 / 30 * 1.5 / (1.5 - KE) * (np.exp(-KE * HOURS) - np.exp(-1.5 * HOURS))


@new(man=MAN, hours=HOURS, level=LEVEL * R.lognormal(0, 0.15, 35))
def theophylline_of_five_men(man, hours, level=None):
    """One compartment, absorbed in the first order; elimination of each person, not centred."""
    ka = sample("ka", dist.LogNormal(0.5, 0.5))
    m = sample("m", dist.Normal(-2, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    volume = sample("volume", dist.LogNormal(3.4, 0.4))
    sigma = sample("sigma", dist.HalfNormal(0.5))
    with plate("men", 5):
        z = sample("z", dist.Normal(0, 1))
    ke = jnp.exp(m + tau * z)[man]
    mean = 320 / volume * ka / (ka - ke) * (jnp.exp(-ke * hours) - jnp.exp(-ka * hours))
    with plate("n", 35):
        sample("level", dist.LogNormal(jnp.log(jnp.maximum(mean, 1e-6)), sigma), obs=level)


R = rng(34)
FIRST = R.random(90) < 0.4
AGAIN = R.random(90) < 0.4


@new(n1=FIRST.sum(), n2=AGAIN.sum(), both=(FIRST & AGAIN).sum())
def animals_marked_twice(n1, n2, both):
    """Lincoln and Petersen with an unknown number: a factor over all numbers up to 400."""
    p = sample("p", dist.Beta(2, 2).expand([2]).to_event(1))
    mean = sample("mean", dist.Gamma(4, 0.04))
    many = jnp.arange(401)
    only1, only2 = n1 - both, n2 - both
    never = many - n1 - only2
    log = (gammaln(many + 1) - gammaln(jnp.maximum(never, 0) + 1) - gammaln(both + 1) - gammaln(only1 + 1)
           - gammaln(only2 + 1) + n1 * jnp.log(p[0]) + (many - n1) * jnp.log1p(-p[0]) + n2 * jnp.log(p[1])
           + (many - n2) * jnp.log1p(-p[1]) + dist.Poisson(mean).log_prob(many))
    factor("seen", logsumexp(jnp.where(never >= 0, log, -jnp.inf)))


R = rng(35)
COUNTS = np.r_[R.poisson(6, 15), R.poisson(2, 12), R.poisson(5, 13)]


@new(counts=COUNTS)
def two_changes_of_counts(counts):
    """Rates of three stretches, two switches in order as shares of the time, smoothed by a logistic."""
    rate = sample("rate", dist.Gamma(2, 0.5).expand([3]).to_event(1))
    cut = sample("cut", dist.Dirichlet(jnp.full(3, 2.0)))
    t = (jnp.arange(40) + 0.5) / 40
    one, two = (jax.nn.sigmoid((t - c) * 60) for c in (cut[0], cut[0] + cut[1]))
    with plate("n", 40):
        sample("counts", dist.Poisson(rate[0] * (1 - one) + rate[1] * one * (1 - two) + rate[2] * two),
               obs=counts)


R = rng(36)
PANEL = np.repeat(np.arange(6), 8)
WEEK = np.tile(np.arange(8), 6)


def _errors():
    e = np.zeros((6, 8))
    e[:, 0] = R.normal(0, 1, 6)
    for t in range(1, 8):
        e[:, t] = 0.6 * e[:, t - 1] + R.normal(0, 0.8, 6)
    return e


@new(week=np.arange(8.0), y=2 + R.normal(0, 1, 6)[:, None] + 0.3 * np.arange(8) + _errors())
def panels_with_lagged_errors(week, y):
    """y ~ week + (1 | panel) + ar(p = 1, gr = panel, cov = TRUE): a covariance along time."""
    a = sample("a", dist.Normal(0, 5))
    b = sample("b", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(2))
    rho = sample("rho", dist.Uniform(-1, 1))
    sigma = sample("sigma", dist.HalfNormal(2))
    lag = jnp.abs(jnp.arange(8)[:, None] - jnp.arange(8))
    cov = sigma**2 / (1 - rho**2) * jnp.where(rho < 0, (-1.0) ** lag, 1.0) * jnp.abs(rho) ** lag
    with plate("panels", 6):
        u = sample("u", dist.Normal(a, tau))
        sample("y", dist.MultivariateNormal(u[:, None] + b * week, covariance_matrix=cov), obs=y)


R = rng(37)
ADS = R.uniform(0, 5, 24)


@new(ads=ADS, sold=2.0e6 + 3.0e5 * np.convolve(ADS, 0.5 ** np.arange(24))[:24] + R.normal(0, 1.5e5, 24))
def advertising_with_carry_over(ads, sold=None):
    """Adstock by scan in a mixed unit: millions of sales."""
    keep = sample("keep", dist.Beta(2, 2))
    base = sample("base", dist.Normal(2e6, 1e6))
    lift = sample("lift", dist.HalfNormal(5e5))
    sigma = sample("sigma", dist.HalfNormal(5e5))

    def week(stock, now):
        stock = now + keep * stock
        return stock, stock

    _, stock = jax.lax.scan(week, jnp.zeros(()), jnp.asarray(ads))
    with plate("n", 24):
        sample("sold", dist.Normal(base + lift * stock, sigma), obs=sold)


R = rng(38)
CELL = R.integers(0, 2, (40, 3))


@new(x=R.normal(size=40), votes=R.multinomial(1, [0.5, 0.3, 0.2], 40).argmax(1), area=R.integers(0, 5, 40))
def votes_of_areas(x, area, votes=None):
    """Categorical with (1 | r | area) on each logit, correlated, not centred, a matrix of effects."""
    a = sample("a", dist.Normal(0, 1.5).expand([2]).to_event(1))
    b = sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    sd = sample("sd", dist.Exponential(1).expand([2]).to_event(1))
    lower = sample("lower", dist.LKJCholesky(2, 2.0))
    with plate("areas", 5):
        z = sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    u = z @ (sd[:, None] * lower).T
    rest = a + b * x[:, None] + u[area]
    with plate("n", 40):
        sample("votes", dist.Categorical(logits=jnp.concatenate([jnp.zeros((40, 1)), rest], -1)), obs=votes)


R = rng(39)
STRATUM = np.repeat(np.arange(4), 6)
W = R.uniform(0.3, 3.0, 24)


@new(stratum=STRATUM, w=W, y=R.binomial(1, np.array([0.2, 0.5, 0.6, 0.8])[STRATUM]))
def a_survey_with_weights(stratum, w, y=None):
    """y | weights(w) ~ (1 | stratum): brms' pseudo-likelihood by handlers.scale, an array."""
    a = sample("a", dist.Normal(0, 1.5))
    tau = sample("tau", dist.HalfNormal(1))
    with plate("strata", 4):
        u = sample("u", dist.Normal(0, tau))
    with plate("n", 24), handlers.scale(scale=w):
        sample("y", dist.Bernoulli(logits=a + u[stratum]), obs=y)


R = rng(40)
DAMAGE = R.gamma(2.0, 1.0, 60)


@new(x=R.normal(size=60), cost=np.minimum(DAMAGE * np.exp(0.3), 8.0), capped=DAMAGE * np.exp(0.3) >= 8.0,
     deductible=np.full(60, 0.2))
def claims_above_a_deductible(x, cost, capped, deductible):
    """Losses of a gamma, known only above a deductible and up to a cap: truncated and censored at once."""
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 1))
    shape = sample("shape", dist.LogNormal(0.5, 0.7))
    rate = shape / jnp.exp(a + b * x)
    known = jax.scipy.special.gammainc
    dense = dist.Gamma(shape, rate).log_prob(cost)
    tail = jnp.log1p(-known(shape, rate * cost))
    with plate("n", 60):
        factor("claim", jnp.where(capped, tail, dense) - jnp.log1p(-known(shape, rate * deductible)))
