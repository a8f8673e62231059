"""Sixty models that the project had not tried, as people paste them, with small data.

Half are in the project's own form (`with probml.rows():`), half are NumPyro functions with `obs=` and
plates of their own. They were written before the default engine was changed, and are not tuned to its
answers. `new_truths.py` computes the references of `new_truths.json`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from collection import Collection
from jax.scipy.special import gammaln, logsumexp
from jax.scipy.stats import norm
from numpyro import factor, plate, sample
from numpyro.distributions import constraints

import probml

NEW = Collection()
new, summed = NEW.new, NEW.summed


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng([2026, seed])


# ---- few rows about curves and lines, in rows ------------------------------------------------------

@new(bp=[194.5, 194.3, 197.9, 198.4, 199.4, 199.9, 200.9, 201.1, 201.4, 201.3, 203.6, 204.6, 209.5,
         208.6, 210.7, 211.9, 212.2],
     pressure=[20.79, 20.79, 22.40, 22.67, 23.15, 23.35, 23.89, 23.99, 24.02, 24.01, 25.14, 26.57,
               28.49, 27.76, 29.04, 29.88, 30.06])
def forbes_boiling_point(bp):
    """Forbes 1857. The temperature is not centred: intercept and slope are one ridge."""
    a = sample("a", dist.Normal(0, 100))
    b = sample("b", dist.Normal(0, 10))
    sigma = sample("sigma", dist.HalfCauchy(1))
    with probml.rows():
        sample("pressure", dist.Normal(a + b * bp, sigma))


@new(x=[10.0, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5],
     y=[7.46, 6.77, 12.74, 7.11, 7.81, 8.84, 6.08, 5.39, 8.15, 6.42, 5.73])
def anscombe_third(x):
    """Ten points on a line and an outlier, with Student errors of unknown degrees of freedom."""
    a = sample("a", dist.Normal(0, 10))
    b = sample("b", dist.Normal(0, 5))
    nu = sample("nu", dist.Gamma(2, 0.1))
    sigma = sample("sigma", dist.HalfNormal(2))
    with probml.rows():
        sample("y", dist.StudentT(nu, a + b * x, sigma))


@new(temp=[66, 70, 69, 68, 67, 72, 73, 70, 57, 63, 70, 78, 67, 53, 67, 75, 70, 81, 76, 79, 75, 76, 58.0],
     damage=[0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1])
def o_rings(temp):
    a = sample("a", dist.Cauchy(0, 10))
    b = sample("b", dist.Cauchy(0, 2.5))
    with probml.rows():
        sample("damage", dist.Bernoulli(logits=a + b * temp))


@new(time=[1.0, 2, 3, 4, 5, 7], demand=[8.3, 10.3, 19.0, 16.0, 15.6, 19.8])
def biochemical_oxygen_demand(time):
    """Bates and Watts: six rows about an exponential rise."""
    top = sample("top", dist.HalfNormal(50))
    rate = sample("rate", dist.HalfNormal(2))
    sigma = sample("sigma", dist.HalfCauchy(5))
    with probml.rows():
        sample("demand", dist.Normal(top * (1 - jnp.exp(-rate * time)), sigma))


@new(kicks=np.repeat([0, 1, 2, 3, 4], [109, 65, 22, 3, 1]))
def horse_kicks():
    """Counts that are Poisson: the dispersion is bounded on one side alone."""
    mu = sample("mu", dist.Gamma(1, 1))
    phi = sample("phi", dist.Exponential(0.02))
    with probml.rows():
        sample("kicks", dist.NegativeBinomial2(mu, phi))


@new(latitude=[44, 55, 42, 52, 13, 44, 19, 13, 27, 42, 18, 33, 33.0],
     log_rr=[-0.8893, -1.5854, -1.3481, -1.4416, -0.2175, -0.7861, -1.6209, 0.0120, -0.4694, -1.3713,
             -0.3394, 0.4459, -0.0173],
     se=[0.5706, 0.4411, 0.6445, 0.1415, 0.2263, 0.0831, 0.4722, 0.0629, 0.2376, 0.2702, 0.1114, 0.7297,
         0.2672])
def bcg_vaccine(latitude, se):
    """A meta-regression whose effects of studies are numbers of a row."""
    mu = sample("mu", dist.Normal(0, 2))
    beta = sample("beta", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfCauchy(0.5))
    with probml.rows():
        theta = sample("theta", dist.Normal(mu + beta * (latitude - 33.5) / 10, tau))
        sample("log_rr", dist.Normal(theta, se))


HALD = np.array([[7, 26, 6, 60], [1, 29, 15, 52], [11, 56, 8, 20], [11, 31, 8, 47], [7, 52, 6, 33],
                 [11, 55, 9, 22], [3, 71, 17, 6], [1, 31, 22, 44], [2, 54, 18, 22], [21, 47, 4, 26],
                 [1, 40, 23, 34], [11, 66, 9, 12], [10, 68, 8, 12.0]])


@new(x=HALD, heat=[78.5, 74.3, 104.3, 87.6, 95.9, 109.2, 102.7, 72.5, 93.1, 115.9, 83.8, 113.3, 109.4])
def hald_cement(x):
    """Four columns that add up to nearly 100, thirteen rows."""
    a = sample("a", dist.Normal(0, 100))
    scale = sample("scale", dist.HalfCauchy(1))
    b = sample("b", dist.Normal(0, scale).expand([4]).to_event(1))
    sigma = sample("sigma", dist.HalfCauchy(5))
    with probml.rows():
        sample("heat", dist.Normal(a + x @ b, sigma))


STACK = np.array([[80, 27, 89], [80, 27, 88], [75, 25, 90], [62, 24, 87], [62, 22, 87], [62, 23, 87],
                  [62, 24, 93], [62, 24, 93], [58, 23, 87], [58, 18, 80], [58, 18, 89], [58, 17, 88],
                  [58, 18, 82], [58, 19, 93], [50, 18, 89], [50, 18, 86], [50, 19, 72], [50, 19, 79],
                  [50, 20, 80], [56, 20, 82], [70, 20, 91.0]])
LOSS = [42, 37, 37, 28, 18, 18, 19, 20, 15, 14, 14, 13, 11, 12, 8, 7, 8, 8, 9, 15, 15.0]


@new(x=(STACK - STACK.mean(0)) / STACK.std(0), loss=LOSS)
def stack_loss(x):
    """BUGS volume 1: double exponential errors, whose density has a kink at every row."""
    a = sample("a", dist.Normal(0, 100))
    b = sample("b", dist.Normal(0, 30).expand([3]).to_event(1))
    sigma = sample("sigma", dist.Gamma(1, 0.1))
    with probml.rows():
        sample("loss", dist.Laplace(a + x @ b, sigma))


@new(x=np.arange(2.0, 21), n=[1443, 694, 455, 353, 272, 256, 240, 217, 200, 237, 202, 192, 174, 167, 201,
                              195, 191, 147, 152.0],
     share=np.array([1346, 577, 337, 208, 149, 136, 111, 69, 67, 75, 52, 46, 54, 28, 27, 31, 33, 20, 24])
     / np.array([1443, 694, 455, 353, 272, 256, 240, 217, 200, 237, 202, 192, 174, 167, 201, 195, 191, 147,
                 152]))
def golf_putting(x, n):
    """Gelman's golf study: geometry, with an error of the model."""
    angle = sample("angle", dist.HalfNormal(1))
    error = sample("error", dist.HalfNormal(1))
    with probml.rows():
        p = 2 * norm.cdf(jnp.arcsin((2.125 - 0.84) / 12 / x) / angle) - 1
        sample("share", dist.Normal(p, jnp.sqrt(p * (1 - p) / n + error**2)))


@new(population=[1100, 1500, 3600, 4791, 7400, 8000, 9200, 13000, 17500, 275000.0],
     contact=[0, 0, 0, 1, 1, 1, 1, 0, 1, 0], tools=[13, 22, 24, 43, 33, 19, 40, 28, 55, 71])
def oceanic_tools(population, contact):
    """McElreath's innovation and loss: only a product of three is informed at each population."""
    with plate("contacts", 2):
        a = sample("a", dist.Normal(1, 1))
        b = sample("b", dist.Exponential(1))
    g = sample("g", dist.Exponential(1))
    with probml.rows():
        sample("tools", dist.Poisson(jnp.exp(a[contact]) * population ** b[contact] / g))


R = rng(1)
LAND = R.normal(size=40)


@new(x=LAND, y=1 + 0.5 * LAND + 0.2 * R.normal(size=40) - np.abs(0.5 * R.normal(size=40)))
def stochastic_frontier(x):
    """Efficiency is a half-normal number of each row, integrated out by hand into a factor."""
    a = sample("a", dist.Normal(0, 5))
    b = sample("b", dist.Normal(0, 5))
    noise = sample("noise", dist.HalfNormal(1))
    waste = sample("waste", dist.HalfNormal(1))
    total = jnp.sqrt(noise**2 + waste**2)
    with probml.rows():
        y = sample("y", dist.Normal(a + b * x, total))
        factor("skew", jnp.log(2.0) + norm.logcdf(-(y - a - b * x) * waste / noise / total))


R = rng(2)
CAPITAL = np.exp(R.normal(3, 0.6, 9))
LABOUR = CAPITAL**0.9 * np.exp(0.1 * R.normal(size=9))


@new(capital=CAPITAL, labour=LABOUR,
     output=2 * CAPITAL**0.3 * LABOUR**0.7 * np.exp(0.1 * R.normal(size=9)))
def cobb_douglas(capital, labour):
    """Output in its own units, inputs that move together, shares between 0 and 1."""
    level = sample("level", dist.LogNormal(0, 2))
    alpha = sample("alpha", dist.Uniform(0, 1))
    beta = sample("beta", dist.Uniform(0, 1))
    sigma = sample("sigma", dist.Exponential(1))
    with probml.rows():
        mean = jnp.log(level) + alpha * jnp.log(capital) + beta * jnp.log(labour)
        sample("output", dist.LogNormal(mean, sigma))


@new(place=[-1.3, 0.2, 1.1, 0.7, 14.0, 2.9])
def lighthouse():
    """Gull's lighthouse: flashes reach the coast by a Cauchy distribution."""
    along = sample("along", dist.Uniform(-20, 20))
    offshore = sample("offshore", dist.Uniform(0, 20))
    with probml.rows():
        sample("place", dist.Cauchy(along, offshore))


@new(dose=[0.0, 0.3, 1, 3, 10, 30, 100], effect=[2.1, 3.4, 5.2, 14.8, 30.5, 39.0, 38.1])
def emax_with_hill(dose):
    base = sample("base", dist.Normal(0, 10))
    emax = sample("emax", dist.HalfNormal(100))
    ec50 = sample("ec50", dist.LogNormal(1, 2))
    hill = sample("hill", dist.LogNormal(0, 0.5))
    sigma = sample("sigma", dist.HalfCauchy(2))
    with probml.rows():
        shape = jnp.where(dose > 0, dose, 1e-6) ** hill
        sample("effect", dist.Normal(base + emax * shape / (shape + ec50**hill), sigma))


@new(day=[2.0, 5, 9, 14, 20, 27, 35, 44], size=[0.31, 0.62, 1.7, 4.1, 9.2, 13.8, 18.3, 19.1])
def gompertz_growth(day):
    top = sample("top", dist.LogNormal(3, 1))
    delay = sample("delay", dist.LogNormal(1, 1))
    rate = sample("rate", dist.Beta(1, 9))
    sigma = sample("sigma", dist.Exponential(2))
    with probml.rows():
        sample("size", dist.LogNormal(jnp.log(top) - delay * jnp.exp(-rate * day), sigma))


R = rng(4)
AGE = R.uniform(1, 12, 14)


@new(rings=AGE + 0.5 * R.normal(size=14),
     length=60 * (1 - np.exp(-0.2 * (AGE + 0.5))) + 2 * R.normal(size=14))
def von_bertalanffy_with_uncertain_ages():
    """The true age is a number of each row that enters the curve."""
    top = sample("top", dist.Normal(60, 20))
    k = sample("k", dist.LogNormal(-1.5, 0.7))
    start = sample("start", dist.Normal(0, 1))
    sigma = sample("sigma", dist.HalfNormal(5))
    with probml.rows():
        age = sample("age", dist.Gamma(4, 0.6))
        sample("rings", dist.Normal(age, 0.5))
        sample("length", dist.Normal(top * (1 - jnp.exp(-k * (age - start))), sigma))


@new(x=np.tile([0.0, 1.0], 18),
     caught=[0, 0, 3, 0, 0, 7, 1, 0, 0, 2, 0, 0, 0, 11, 0, 1, 2, 0, 0, 4, 0, 0, 1, 0, 0, 0, 5, 0, 0, 3, 0, 0,
             2, 0, 0, 19])
def zero_inflated_negative_binomial(x):
    """Zeros of two sources: the gate and the dispersion explain each other away."""
    a = sample("a", dist.Normal(0, 2))
    b = sample("b", dist.Normal(0, 2))
    gate = sample("gate", dist.Beta(1, 1))
    phi = sample("phi", dist.Gamma(1, 0.5))
    with probml.rows():
        base = dist.NegativeBinomial2(jnp.exp(a + b * x), phi)
        sample("caught", dist.ZeroInflatedDistribution(base, gate=gate))


R = rng(5)
X3 = R.normal(size=(12, 2))


@new(x=X3, brand=[0, 2, 1, 1, 0, 2, 2, 1, 0, 0, 1, 0])
def brand_choice(x):
    """A multinomial logit with as many coefficients as classes allow and a prior scale of its own."""
    scale = sample("scale", dist.HalfCauchy(1))
    a = sample("a", dist.Normal(0, 2).expand([2]).to_event(1))
    b = sample("b", dist.Normal(0, scale).expand([2, 2]).to_event(2))
    with probml.rows():
        logits = jnp.concatenate([a + x @ b, jnp.zeros((*x.shape[:-1], 1))], -1)
        sample("brand", dist.Categorical(logits=logits))


@new(group=np.repeat([0, 1], 11),
     stars=[0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4, 4, 3, 4, 4, 2, 4, 4, 0])
def unequal_variance_ordinal(group):
    """Kruschke's ordinal probit: outer cutpoints fixed, location and scale of each group."""
    with plate("groups", 2):
        mu = sample("mu", dist.Normal(2, 4))
        sigma = sample("sigma", dist.HalfNormal(4))
    share = sample("share", dist.Dirichlet(jnp.ones(3)))
    with probml.rows():
        cuts = jnp.stack([0.5, 0.5 + 3 * share[0], 0.5 + 3 * (share[0] + share[1]), 3.5])
        below = norm.cdf((cuts - mu[group][..., None]) / sigma[group][..., None])
        edge = jnp.ones_like(below[..., :1])
        probs = jnp.diff(jnp.concatenate([0 * edge, below, edge], -1), axis=-1)
        sample("stars", dist.Categorical(probs))


R = rng(6)
Z = R.integers(2, size=40)
X4 = R.uniform(-2, 2, 40)


@new(labels=True, x=X4, y=np.where(Z == 0, 1 + 1.5 * X4, -1 - 0.5 * X4) + 0.4 * R.normal(size=40))
def two_lines(x):
    """A mixture of regressions without an order: two labellings."""
    w = sample("w", dist.Beta(2, 2))
    with plate("lines", 2):
        a = sample("a", dist.Normal(0, 2))
        b = sample("b", dist.Normal(0, 2))
        sigma = sample("sigma", dist.HalfNormal(1))
    with probml.rows():
        z = sample("z", dist.Bernoulli(w))
        sample("y", dist.Normal(a[z] + b[z] * x, sigma[z]))


@summed("two_lines")
def two_lines_summed(x, y):
    w = sample("w", dist.Beta(2, 2))
    with plate("lines", 2):
        a = sample("a", dist.Normal(0, 2))
        b = sample("b", dist.Normal(0, 2))
        sigma = sample("sigma", dist.HalfNormal(1))
    log = dist.Normal(a + b * x[:, None], sigma).log_prob(y[:, None])
    factor("y", logsumexp(log + jnp.log(jnp.stack([1 - w, w])), -1).sum())


@new(calls=[0, 1, 0, 2, 9, 1, 0, 0, 12, 1, 7, 0, 1, 3, 0, 2, 0, 10, 1, 0, 5, 1])
def busy_and_quiet_days():
    """Two Poisson rates in order by a positive difference; the kind of day is hidden."""
    quiet = sample("quiet", dist.Exponential(1))
    more = sample("more", dist.Gamma(2, 0.3))
    busy = sample("busy", dist.Beta(1, 3))
    with probml.rows():
        kind = sample("kind", dist.Bernoulli(busy))
        sample("calls", dist.Poisson(quiet + kind * more))


@summed("busy_and_quiet_days")
def busy_and_quiet_days_summed(calls):
    quiet = sample("quiet", dist.Exponential(1))
    more = sample("more", dist.Gamma(2, 0.3))
    busy = sample("busy", dist.Beta(1, 3))
    one, two = dist.Poisson(quiet).log_prob(calls), dist.Poisson(quiet + more).log_prob(calls)
    factor("calls", jnp.logaddexp(jnp.log1p(-busy) + one, jnp.log(busy) + two).sum())


R = rng(7)
WET = R.normal(size=30)
HERE = R.random(30) < 1 / (1 + np.exp(-0.3 - WET))


@new(wet=WET, seen=R.binomial(5, np.where(HERE, 0.55, 0.08)))
def occupancy_with_false_positives(wet):
    """Ecology: presence is hidden, and absent animals are reported too."""
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1.5))
    right = sample("right", dist.Beta(4, 2))
    wrong = sample("wrong", dist.Beta(1, 6))
    with probml.rows():
        z = sample("z", dist.Bernoulli(logits=a + b * wet))
        sample("seen", dist.Binomial(5, jnp.where(z == 1, right, wrong)))


@summed("occupancy_with_false_positives")
def occupancy_with_false_positives_summed(wet, seen):
    a = sample("a", dist.Normal(0, 1.5))
    b = sample("b", dist.Normal(0, 1.5))
    right = sample("right", dist.Beta(4, 2))
    wrong = sample("wrong", dist.Beta(1, 6))
    eta = a + b * wet
    one = jax.nn.log_sigmoid(eta) + dist.Binomial(5, right).log_prob(seen)
    factor("seen", jnp.logaddexp(one, jax.nn.log_sigmoid(-eta) + dist.Binomial(5, wrong).log_prob(seen)).sum())


@new(x=[0.0, 0.9, 1.8, 2.6, 3.3, 4.4, 5.2, 6.1, 6.5, 7.4],
     y=[5.9, 5.4, 4.4, 4.6, 3.5, 3.7, 2.8, 2.8, 2.4, 1.5],
     wx=[1000, 1000, 500, 800, 200, 80, 60, 20, 1.8, 1], wy=[1, 1.8, 4, 8, 20, 20, 70, 70, 100, 500.0])
def pearson_and_york(wx, wy):
    """Errors of known size in both coordinates, and more scatter than they say."""
    a = sample("a", dist.Normal(0, 20))
    b = sample("b", dist.Normal(0, 5))
    mu = sample("mu", dist.Normal(0, 10))
    width = sample("width", dist.HalfNormal(10))
    extra = sample("extra", dist.HalfNormal(0.5))
    with probml.rows():
        true = sample("true", dist.Normal(mu, width))
        sample("x", dist.Normal(true, 1 / jnp.sqrt(wx)))
        sample("y", dist.Normal(a + b * true, jnp.sqrt(1 / wy + extra**2)))


TEAMS = np.array(np.triu_indices(7, 1))
WINS = [7, 9, 7, 7, 9, 11, 7, 5, 11, 9, 9, 7, 7, 8, 12, 6, 7, 10, 7, 12, 6]


@new(home=TEAMS[0], away=TEAMS[1], wins=WINS)
def american_league(home, away):
    """Agresti's baseball teams of 1987: thirteen games a pair, abilities of small spread."""
    spread = sample("spread", dist.HalfCauchy(1))
    with plate("teams", 7):
        ability = sample("ability", dist.Normal(0, spread))
    with probml.rows():
        sample("wins", dist.Binomial(13, logits=ability[home] - ability[away]))


@new(ward=np.repeat(np.arange(6), 3), beds=np.tile([1.2, 3.4, 0.8], 6), year=np.tile([-1.0, 0, 1], 6),
     infections=[2, 5, 1, 0, 0, 0, 3, 9, 4, 1, 2, 0, 0, 1, 0, 4, 11, 5])
def infections_of_wards(ward, beds, year):
    """Rates with exposures; one ward without a case; effects not centred."""
    mu = sample("mu", dist.Normal(0, 2))
    tau = sample("tau", dist.HalfNormal(2))
    trend = sample("trend", dist.Normal(0, 1))
    with plate("wards", 6):
        raw = sample("raw", dist.Normal(0, 1))
    with probml.rows():
        sample("infections", dist.Poisson(beds * jnp.exp(mu + tau * raw[ward] + trend * year)))


R = rng(8)
PERSON, ITEM = np.repeat(np.arange(15), 6), np.tile(np.arange(6), 15)
P3 = 0.2 + 0.8 / (1 + np.exp(-1.3 * (R.normal(size=15)[PERSON] - np.linspace(-1.5, 1.5, 6)[ITEM])))


@new(person=PERSON, item=ITEM, right=(R.random(90) < P3).astype(int))
def three_parameter_logistic(person, item):
    """39 numbers, of which the guessing rates are told by few answers."""
    with plate("persons", 15):
        theta = sample("theta", dist.Normal(0, 1))
    with plate("items", 6):
        difficulty = sample("difficulty", dist.Normal(0, 2))
        slope = sample("slope", dist.LogNormal(0, 0.5))
        guess = sample("guess", dist.Beta(5, 17))
    with probml.rows():
        p = jax.nn.sigmoid(slope[item] * (theta[person] - difficulty[item]))
        sample("right", dist.Bernoulli(guess[item] + (1 - guess[item]) * p))


R = rng(9)
WIDE = R.normal(size=(10_000, 10))
BETA = np.array([0.3, -0.2, 0.1, 0, 0, 0.5, -0.4, 0, 0.2, 0])


@new(x=WIDE, claims=R.poisson(np.exp(-1 + WIDE @ BETA) * R.gamma(1.5, 1 / 1.5, 10_000)))
def claims_of_many(x):
    """10,000 rows and ten columns of negative binomial counts."""
    a = sample("a", dist.Normal(0, 5))
    b = sample("b", dist.Normal(0, 1).expand([10]).to_event(1))
    phi = sample("phi", dist.HalfCauchy(5))
    with probml.rows():
        sample("claims", dist.NegativeBinomial2(jnp.exp(a + x @ b), phi))


@new(x=[0.4, -0.2, 1.7, 0.1, 0.9, -0.4, 0.3, 2.6, 0.0, 0.6, -0.1, 1.2])
def skew_normal():
    """The sign of the skew is not sure: a long arm on one side."""
    loc = sample("loc", dist.Normal(0, 3))
    scale = sample("scale", dist.HalfNormal(3))
    alpha = sample("alpha", dist.Normal(0, 5))
    with probml.rows():
        x = sample("x", dist.Normal(loc, scale))
        factor("skew", jnp.log(2.0) + norm.logcdf(alpha * (x - loc) / scale))


@new(z=[-2.2, -1.7, 0.1, 0.3, -0.2, -1.9, 0.4, -2.5])
def shares_of_known_kinds():
    """Weights of three known components, the third of which no row needs: a corner."""
    weights = sample("weights", dist.Dirichlet(0.5 * jnp.ones(3)))
    with probml.rows():
        kinds = dist.Normal(jnp.array([-2.0, 0.0, 3.0]), jnp.array([0.5, 0.5, 0.5]))
        sample("z", dist.MixtureSameFamily(dist.Categorical(weights), kinds))


COUNTS = [13, 14, 8, 10, 16, 26, 32, 27, 18, 32, 36, 24, 22, 23, 22, 18, 25, 21, 21, 14, 8, 11, 14, 23, 18, 17,
          19, 20, 22, 19, 13, 26, 13, 14, 22, 24, 21, 22, 26, 21, 23, 24, 27, 41, 31, 27, 35, 26, 28, 36]


@new(quakes=[COUNTS])
def earthquakes():
    """Large earthquakes a year from 1900: two hidden states whose rates are in order."""
    low = sample("low", dist.Gamma(4, 0.25))
    step = sample("step", dist.Gamma(2, 0.2))
    leave = sample("leave", dist.Beta(1, 4).expand([2]).to_event(1))
    turn = jnp.stack([jnp.stack([1 - leave[0], leave[0]]), jnp.stack([leave[1], 1 - leave[1]])])
    rate = jnp.stack([low, low + step])
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]), turn))
        sample("quakes", dist.Poisson(rate[z]).to_event(1))


@summed("earthquakes")
def earthquakes_summed(quakes):
    low = sample("low", dist.Gamma(4, 0.25))
    step = sample("step", dist.Gamma(2, 0.2))
    leave = sample("leave", dist.Beta(1, 4).expand([2]).to_event(1))
    turn = jnp.stack([jnp.stack([1 - leave[0], leave[0]]), jnp.stack([leave[1], 1 - leave[1]])])
    logs = dist.Poisson(jnp.stack([low, low + step])).log_prob(quakes[0][:, None])

    def forward(alpha, log):
        return logsumexp(alpha[:, None] + jnp.log(turn), 0) + log, None

    alpha, _ = jax.lax.scan(forward, jnp.log(0.5) + logs[0], logs[1:])
    factor("quakes", logsumexp(alpha))


# ---- functions with obs= and plates of their own ---------------------------------------------------

@new(survey=[50, 3330], negatives=[399, 401], positives=[103, 122])
def santa_clara(survey, negatives, positives):
    """Prevalence by an imperfect test; Gelman and Carpenter 2020."""
    p = sample("prevalence", dist.Uniform(0, 1))
    specificity = sample("specificity", dist.Uniform(0, 1))
    sensitivity = sample("sensitivity", dist.Uniform(0, 1))
    rate = p * sensitivity + (1 - p) * (1 - specificity)
    sample("tested", dist.Binomial(survey[1], rate), obs=survey[0])
    sample("known_negatives", dist.Binomial(negatives[1], specificity), obs=negatives[0])
    sample("known_positives", dist.Binomial(positives[1], sensitivity), obs=positives[0])


@new(y=[0.42, 0.37, 0.51, 0.45, 0.39, 0.88, 0.61, 0.43, 0.40, 0.71, 0.48, 1.35])
def shifted_lognormal_reaction_times(y):
    mu = sample("mu", dist.Normal(-1, 1))
    sigma = sample("sigma", dist.HalfNormal(1))
    shift = sample("shift", dist.Uniform(0, jnp.min(y)))
    with plate("trials", len(y)):
        sample("y", dist.LogNormal(mu, sigma), obs=y - shift)


@new(time=[6.0, 6, 6, 7, 10, 13, 16, 22, 23, 6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35, 1, 1, 2, 2, 3, 4, 4,
           5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23],
     event=[1] * 9 + [0] * 12 + [1] * 21, treated=[1.0] * 21 + [0.0] * 21)
def leukaemia_remission(time, event, treated):
    """Gehan's data by a log-logistic with a fraction that is cured."""
    a = sample("a", dist.Normal(2, 2))
    b = sample("b", dist.Normal(0, 2))
    shape = sample("shape", dist.Gamma(2, 1))
    cured = sample("cured", dist.Beta(1, 4))
    z = shape * (jnp.log(time) - a - b * treated)
    survival = cured + (1 - cured) * jax.nn.sigmoid(-z)
    log_density = jnp.log1p(-cured) + jnp.log(shape) - jnp.log(time) + z - 2 * jax.nn.softplus(z)
    factor("times", jnp.sum(jnp.where(event == 1, log_density, jnp.log(survival))))


@new(time=[0.25, 0.57, 1.12, 2.02, 3.82, 5.1, 7.03, 9.05, 12.12, 24.37],
     conc=[2.84, 6.57, 10.5, 9.66, 8.58, 8.36, 7.47, 6.89, 5.94, 3.28])
def theophylline(time, conc):
    """One subject, first-order absorption: the two rates can change places."""
    ka = sample("ka", dist.LogNormal(0, 1))
    ke = sample("ke", dist.LogNormal(-2, 1))
    volume = sample("volume", dist.LogNormal(-1, 1))
    sigma = sample("sigma", dist.HalfNormal(0.5))
    gap = jnp.where(jnp.abs(ka - ke) < 1e-5, 1e-5, ka - ke)
    curve = 4.02 / volume * ka / gap * (jnp.exp(-ke * time) - jnp.exp(-ka * time))
    sample("conc", dist.LogNormal(jnp.log(jnp.maximum(curve, 1e-8)), sigma), obs=conc)


@new(age=[118.0, 484, 664, 1004, 1231, 1372, 1582],
     size=[[30.0, 58, 87, 115, 120, 142, 145], [33, 69, 111, 156, 172, 203, 203],
           [30, 51, 75, 108, 115, 139, 140], [32, 62, 112, 167, 179, 209, 214],
           [30, 49, 81, 125, 142, 174, 177]])
def orange_trees(age, size):
    """A nonlinear mixed model, centred, with the scales that the units have."""
    mu = sample("mu", dist.Normal(200, 100))
    tau = sample("tau", dist.HalfCauchy(30))
    middle = sample("middle", dist.Normal(700, 300))
    width = sample("width", dist.HalfNormal(500))
    sigma = sample("sigma", dist.HalfCauchy(10))
    with plate("trees", 5, dim=-2):
        top = sample("top", dist.Normal(mu, tau))
        with plate("ages", 7, dim=-1):
            sample("size", dist.Normal(top * jax.nn.sigmoid((age - middle) / width), sigma), obs=size)


NILE = [1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960, 1180, 799, 958,
        1140, 1100, 1210, 1150, 1250, 1260, 1220, 1030, 1100, 774, 840, 874, 694, 940, 833, 701, 916, 692, 1020,
        1050, 969, 831, 726, 456, 824, 702, 1120, 1100, 832, 764, 821, 768, 845, 864, 862, 698, 845, 744, 796]


@new(flow=np.array(NILE) / 100)
def nile_by_a_sigmoid(flow):
    """A change of level whose place and width are unknown."""
    before = sample("before", dist.Normal(10, 5))
    jump = sample("jump", dist.Normal(0, 5))
    when = sample("when", dist.Uniform(0, len(flow)))
    width = sample("width", dist.HalfNormal(5))
    sigma = sample("sigma", dist.HalfNormal(3))
    year = jnp.arange(len(flow))
    mean = before + jump * jax.nn.sigmoid((year - when) / width)
    with plate("years", len(flow)):
        sample("flow", dist.Normal(mean, sigma), obs=flow)


LYNX = [269, 321, 585, 871, 1475, 2821, 3928, 5943, 4950, 2577, 523, 98, 184, 279, 409, 2285, 2685, 3409, 1824, 409,
        151, 45, 68, 213, 546, 1033, 2129, 2536, 957, 361, 377, 225, 360, 731, 1638, 2725, 2871, 2119, 684, 299]


@new(y=np.log10(LYNX))
def lynx_autoregression(y):
    """Two lags by partial autocorrelations, Student errors."""
    partial = sample("partial", dist.Uniform(-1, 1).expand([2]))
    mu = sample("mu", dist.Normal(3, 1))
    sigma = sample("sigma", dist.Exponential(3))
    nu = sample("nu", dist.Gamma(2, 0.1))
    first, second = partial[0] * (1 - partial[1]), partial[1]
    c = y - mu
    with plate("steps", len(y) - 2):
        sample("y", dist.StudentT(nu, mu + first * c[1:-1] + second * c[:-2], sigma), obs=y[2:])


DIPPERS = np.array([[11, 2, 0, 0, 0, 0, 9], [0, 24, 1, 0, 0, 0, 35], [0, 0, 34, 2, 0, 0, 42],
                    [0, 0, 0, 45, 1, 2, 32], [0, 0, 0, 0, 51, 0, 37], [0, 0, 0, 0, 0, 52, 46]])


@new(m=DIPPERS)
def dippers_by_year(m):
    """Cormack, Jolly and Seber by an m-array: of the last year only survival times recapture is told."""
    phi = sample("phi", dist.Uniform(0, 1).expand([6]).to_event(1))
    p = sample("p", dist.Uniform(0, 1).expand([6]).to_event(1))
    for i in range(6):
        alive, cells = 1.0, [0.0] * i
        for j in range(i, 6):
            cells.append(alive * phi[j] * p[j])
            alive = alive * phi[j] * (1 - p[j])
        probs = jnp.stack([jnp.asarray(cell, phi.dtype) for cell in cells[i:]])
        last = 1 - probs.sum()
        sample(f"m{i}", dist.Multinomial(int(DIPPERS[i].sum()), jnp.append(probs, last)), obs=m[i, i:])


@new(caught=[38, 44, 51, 29], marked=[0, 5, 9, 11], before=[0, 38, 77, 119.0])
def schnabel_census(caught, marked, before):
    """The population is a positive number with the flat prior of Jeffreys on its logarithm."""
    log_n = sample("log_n", dist.ImproperUniform(constraints.greater_than(jnp.log(140.0)), (), ()))
    catch = sample("catch", dist.Beta(1, 1).expand([4]))
    n = jnp.exp(log_n)
    factor("ways", (gammaln(n - before + 1) - gammaln(n - before - (caught - marked) + 1)).sum())
    factor("caught", (caught * jnp.log(catch) + (n - caught) * jnp.log1p(-catch)).sum())


GRID = np.array([[abs(i // 4 - j // 4) + abs(i % 4 - j % 4) == 1 for j in range(16)] for i in range(16)])


@new(cases=[3, 5, 9, 12, 1, 4, 6, 11, 2, 2, 3, 7, 0, 1, 2, 3],
     expected=[4.1, 5.0, 4.4, 6.1, 3.2, 4.7, 5.5, 5.0, 3.8, 4.0, 4.2, 5.1, 2.5, 3.0, 4.1, 3.9])
def lip_cancer_on_a_grid(cases, expected):
    mu = sample("mu", dist.Normal(0, 2))
    tau = sample("tau", dist.Gamma(2, 2))
    alpha = sample("alpha", dist.Uniform(0, 1))
    phi = sample("phi", dist.CAR(jnp.zeros(16), alpha, tau, jnp.asarray(GRID, float), is_sparse=False))
    with plate("areas", 16):
        sample("cases", dist.Poisson(expected * jnp.exp(mu + phi)), obs=cases)


@new(x=[0.1, 0.9, 1.4, 2.2, 3.1, 4.0, 4.6], y=[0.2, 0.8, 1.3, 0.7, -0.1, -0.9, -0.8])
def process_of_seven_points(x, y):
    length = sample("length", dist.InverseGamma(3, 3))
    height = sample("height", dist.HalfNormal(2))
    noise = sample("noise", dist.HalfNormal(0.5))
    k = height**2 * jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2)
    sample("y", dist.MultivariateNormal(0.0, k + (noise**2 + 1e-6) * jnp.eye(len(x))), obs=y)


@new(x=np.linspace(0, 5, 12), y=[0, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 0])
def process_of_yes_and_no(x, y):
    length = sample("length", dist.LogNormal(0, 0.7))
    height = sample("height", dist.HalfNormal(3))
    mean = sample("mean", dist.Normal(0, 1))
    raw = sample("raw", dist.Normal(0, 1).expand([12]).to_event(1))
    r = jnp.sqrt(3.0) * jnp.abs(x[:, None] - x) / length
    lower = jnp.linalg.cholesky((1 + r) * jnp.exp(-r) + 1e-5 * jnp.eye(12))
    with plate("points", 12):
        sample("y", dist.Bernoulli(logits=mean + height * lower @ raw), obs=y)


R = rng(11)
LEVEL = np.cumsum(0.2 * R.normal(size=40))


@new(k=R.binomial(8, 1 / (1 + np.exp(-LEVEL))))
def approval_random_walk(k):
    """A walk that is not centred, with Student steps."""
    first = sample("first", dist.Normal(0, 1))
    step = sample("step", dist.Exponential(2))
    nu = sample("nu", dist.Gamma(2, 0.2))
    moves = sample("moves", dist.StudentT(nu, 0, 1).expand([39]).to_event(1))
    level = first + jnp.concatenate([jnp.zeros(1), jnp.cumsum(step * moves)])
    with plate("weeks", 40):
        sample("k", dist.Binomial(8, logits=level), obs=k)


R = rng(12)
AGES = np.linspace(-1, 1, 5)
DEATHS = R.poisson(800 * np.exp(-4 + 1.2 * AGES[:, None] - (0.2 + 0.1 * AGES[:, None]) * np.arange(-4, 4)))


@new(deaths=DEATHS)
def lee_carter(deaths):
    """Log mortality of ages and years: an age's slope times a year's index, which walks."""
    a = sample("a", dist.Normal(-4, 2).expand([5]).to_event(1))
    b = sample("b", dist.Dirichlet(jnp.ones(5)))
    drift = sample("drift", dist.Normal(0, 1))
    sigma = sample("sigma", dist.HalfNormal(1))
    k = sample("k", dist.GaussianRandomWalk(sigma, num_steps=8))
    index = k + drift * jnp.arange(8)
    with plate("ages", 5, dim=-2), plate("years", 8, dim=-1):
        sample("deaths", dist.Poisson(800 * jnp.exp(a[:, None] + b[:, None] * index)), obs=deaths)


@new(y=[[1.2, 0.7], [2.9, 3.6], [2.0, 1.1]])
def three_groups_of_two(y):
    """Six rows, two scales, centred."""
    mu = sample("mu", dist.Normal(0, 10))
    tau = sample("tau", dist.HalfCauchy(1))
    sigma = sample("sigma", dist.HalfCauchy(1))
    with plate("groups", 3, dim=-2):
        theta = sample("theta", dist.Normal(mu, tau))
        with plate("two", 2, dim=-1):
            sample("y", dist.Normal(theta, sigma), obs=y)


@new(counts=[[12, 3, 0, 1], [7, 9, 1, 0], [15, 1, 0, 0], [4, 4, 3, 0], [10, 6, 0, 2]])
def species_of_ponds(counts):
    """Dirichlet-multinomial with a concentration that has a prior of its own."""
    share = sample("share", dist.Dirichlet(jnp.ones(4)))
    concentration = sample("concentration", dist.LogNormal(2, 1.5))
    with plate("ponds", counts.shape[0]):
        sample("counts", dist.DirichletMultinomial(concentration * share, counts.sum(-1)), obs=counts)


@new(rain=[0.0, 0, 3.1, 0.4, 0, 0, 12.2, 1.8, 0, 0.9, 0, 5.5, 0, 0, 2.4, 0.2, 0, 7.7])
def tweedie_rainfall(rain):
    """A Poisson number of gamma showers, their number summed out in a factor."""
    rate = sample("rate", dist.Gamma(1, 1))
    shape = sample("shape", dist.LogNormal(0, 0.7))
    scale = sample("scale", dist.HalfNormal(5))
    n = jnp.arange(1, 25)
    wet = jnp.where(rain > 0, rain, 1.0)[:, None]
    amounts = dist.Gamma(n * shape, 1 / scale).log_prob(wet)
    logs = logsumexp(dist.Poisson(rate).log_prob(n) + amounts, -1)
    factor("rain", jnp.where(rain > 0, logs, -rate).sum())


R = rng(15)
GENES = R.normal(size=(15, 20))


@new(x=GENES, y=2 * GENES[:, 0] - 1.5 * GENES[:, 3] + 0.5 * R.normal(size=15))
def more_genes_than_patients(x, y):
    """R2-D2: a prior on the share of explained variance, split by a Dirichlet; 42 numbers, 15 rows."""
    sigma = sample("sigma", dist.HalfNormal(1))
    r2 = sample("r2", dist.Beta(1, 2))
    split = sample("split", dist.Dirichlet(0.5 * jnp.ones(20)))
    z = sample("z", dist.Normal(0, 1).expand([20]))
    beta = z * sigma * jnp.sqrt(split * r2 / (1 - r2))
    with plate("patients", len(y)):
        sample("y", dist.Normal(x @ beta, sigma), obs=y)


R = rng(16)
SKILL, HARD = 1.3 * R.normal(size=130), np.linspace(-2, 2, 12)


@new(right=(R.random((130, 12)) < 1 / (1 + np.exp(HARD - SKILL[:, None]))).astype(int))
def hundred_and_thirty_pupils(right):
    """A Rasch model with a spread of its own: 144 numbers, centred."""
    spread = sample("spread", dist.HalfNormal(2))
    mean = sample("mean", dist.Normal(0, 2))
    with plate("pupils", 130, dim=-2):
        skill = sample("skill", dist.Normal(mean, spread))
    with plate("items", 12, dim=-1):
        hard = sample("hard", dist.Normal(0, 1))
    with plate("pupil", 130, dim=-2), plate("item", 12, dim=-1):
        sample("right", dist.Bernoulli(logits=skill - hard), obs=right)


R = rng(17)
INTENSITY = np.exp(0.3 + np.cumsum(0.15 * R.normal(size=150)))


@new(spikes=R.poisson(INTENSITY))
def spikes_of_a_neuron(spikes):
    """A walk of 150 steps, centred, behind Poisson counts: 152 numbers."""
    start = sample("start", dist.Normal(0, 1))
    sigma = sample("sigma", dist.HalfCauchy(0.2))
    walk = sample("walk", dist.GaussianRandomWalk(sigma, num_steps=150))
    with plate("bins", 150):
        sample("spikes", dist.Poisson(jnp.exp(start + walk)), obs=spikes)


@new(y=[-3.1, -2.6, 2.2, 2.9, 3.0])
def cauchy_of_two_clusters(y):
    """A location with two modes that trade places."""
    mu = sample("mu", dist.Normal(0, 10))
    with plate("n", 5):
        sample("y", dist.Cauchy(mu, 0.7), obs=y)


@new(x=[1.0, 2, 3, 4, 5, 6, 7, 8], y=[1.1, 1.7, 3.4, 3.6, 5.3, 5.1, 7.7, 7.9])
def eight_rows_with_flat_priors(x, y):
    """BDA3, chapter 14: flat coefficients and 1/sigma: Student's t on six degrees of freedom."""
    beta = sample("beta", dist.ImproperUniform(constraints.real_vector, (), (2,)))
    sigma = sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))
    factor("jeffreys", -jnp.log(sigma))
    sample("y", dist.Normal(beta[0] + beta[1] * x, sigma), obs=y)


@new(effect=[0.62, 0.41, 0.55, 0.12, 0.38, 0.71, 0.29, 0.45, 0.08],
     se=[0.28, 0.19, 0.26, 0.09, 0.18, 0.33, 0.13, 0.21, 0.07])
def publication_bias(effect, se):
    """A meta-analysis in which what is not significant is published less often."""
    mu = sample("mu", dist.Normal(0, 1))
    tau = sample("tau", dist.HalfNormal(0.5))
    kept = sample("kept", dist.Beta(1, 1))
    total = jnp.sqrt(tau**2 + se**2)
    significant = 1 - norm.cdf((1.96 * se - mu) / total)
    weight = jnp.where(effect > 1.96 * se, 1.0, kept)
    with plate("studies", len(effect)):
        sample("effect", dist.Normal(mu, total), obs=effect)
        factor("published", jnp.log(weight) - jnp.log(significant + kept * (1 - significant)))


@new(x=[[0.2, 1.0, -0.3], [-1.1, -0.4, 0.5], [0.8, 1.9, 0.1], [-0.5, 0.2, -1.2], [1.4, 1.1, 0.9],
        [-0.9, -1.6, 0.4]])
def covariance_of_six_rows(x):
    """A correlation matrix of three columns that has more numbers than it should."""
    mu = sample("mu", dist.Normal(0, 2).expand([3]))
    sds = sample("sds", dist.HalfCauchy(1).expand([3]))
    lower = sample("lower", dist.LKJCholesky(3, 1.0))
    with plate("n", 6):
        sample("x", dist.MultivariateNormal(mu, scale_tril=sds[:, None] * lower), obs=x)


@new(tanks=[19.0, 40, 42, 60])
def german_tanks(tanks):
    """The number of tanks as a positive number: the posterior is highest at its bound."""
    most = sample("most", dist.Uniform(60, 1000))
    with plate("seen", 4):
        sample("tanks", dist.Uniform(0, most), obs=tanks)


# ---- posteriors that are improper, unidentified, or of many modes -------------------------------------

T = np.array([0.3, 1.1, 2.9, 4.2, 6.8, 7.7, 9.1, 11.4])


@new(hopeless="The likelihood has many separate modes in the frequency; no chain visits all of them.",
     t=T, velocity=np.round(10 * np.sin(2.3 * T + 0.4) + 3 * np.cos(5 * T), 1))
def radial_velocity(t, velocity):
    frequency = sample("frequency", dist.Uniform(0.1, 12))
    a = sample("a", dist.Normal(0, 10))
    b = sample("b", dist.Normal(0, 10))
    sigma = sample("sigma", dist.HalfNormal(3))
    with plate("nights", len(t)):
        mean = a * jnp.sin(frequency * t) + b * jnp.cos(frequency * t)
        sample("velocity", dist.Normal(mean, sigma), obs=velocity)


@new(hopeless="Complete separation under flat priors: the likelihood rises for ever.",
     dose=[1.0, 2, 3, 4, 6, 7, 8, 9], died=[0, 0, 0, 0, 1, 1, 1, 1])
def separated_doses(dose, died):
    a = sample("a", dist.ImproperUniform(constraints.real, (), ()))
    b = sample("b", dist.ImproperUniform(constraints.real, (), ()))
    with plate("animals", len(died)):
        sample("died", dist.Bernoulli(logits=a + b * dose), obs=died)


@new(hopeless="Only differences of abilities are identified, and their priors are flat.",
     i=TEAMS[0], j=TEAMS[1], wins=WINS)
def league_with_flat_abilities(i, j, wins):
    ability = sample("ability", dist.ImproperUniform(constraints.real_vector, (), (7,)))
    with plate("pairs", len(wins)):
        sample("wins", dist.Binomial(13, logits=ability[i] - ability[j]), obs=wins)


@new(hopeless="With the prior 1/tau the posterior has an infinite mass at tau = 0.",
     y=[0.4, 1.9, -0.2, 1.1, 0.7], se=[0.6, 0.8, 0.5, 0.7, 0.9])
def studies_with_a_flat_log_scale(y, se):
    mu = sample("mu", dist.Normal(0, 10))
    log_tau = sample("log_tau", dist.ImproperUniform(constraints.real, (), ()))
    with plate("studies", len(y)):
        theta = sample("theta", dist.Normal(mu, jnp.exp(log_tau)))
        sample("y", dist.Normal(theta, se), obs=y)


R = rng(20)
COMMON = R.normal(size=25)


@new(hopeless="All loadings and scores can change their sign together: two mirrored modes.",
     scores=COMMON[:, None] * [0.9, 0.8, -0.7, 0.6] + 0.5 * R.normal(size=(25, 4)))
def one_factor_without_a_sign(scores):
    loading = sample("loading", dist.Normal(0, 1).expand([4]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(1).expand([4]).to_event(1))
    cov = loading[:, None] * loading + jnp.diag(sigma**2)
    with plate("people", scores.shape[0]):
        sample("scores", dist.MultivariateNormal(jnp.zeros(4), cov), obs=scores)
