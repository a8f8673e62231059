"""Hierarchies as users paste them: effects of groups, schools, students, players, and latent series
read by an index."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import deterministic, handlers, plate, sample
from numpyro.infer.reparam import LocScaleReparam

import probml
from user_truth import Case


@probml.model
def varying_intercepts(x, group):
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfCauchy(2))
    b, sigma = sample("b", dist.Normal(0, 5)), sample("sigma", dist.HalfNormal(2))
    with plate("groups", 6):
        alpha = sample("alpha", dist.Normal(mu, tau))
    with probml.rows():
        sample("y", dist.Normal(alpha[group] + b * x, sigma))


@probml.model
def noncentred_intercepts(x, group):
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfCauchy(2))
    b, sigma = sample("b", dist.Normal(0, 5)), sample("sigma", dist.HalfNormal(2))
    with plate("groups", 6):
        z = sample("z", dist.Normal(0, 1))
        alpha = deterministic("alpha", mu + tau * z)
    with probml.rows():
        sample("y", dist.Normal(alpha[group] + b * x, sigma))


@probml.model
def reparametrised_intercepts(x, group):
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfCauchy(2))
    b, sigma = sample("b", dist.Normal(0, 5)), sample("sigma", dist.HalfNormal(2))
    with plate("groups", 6), handlers.reparam(config={"alpha": LocScaleReparam(0)}):
        alpha = sample("alpha", dist.Normal(mu, tau))
    with probml.rows():
        sample("y", dist.Normal(alpha[group] + b * x, sigma))


def grouped(rng):
    group, x = np.repeat(np.arange(6), 8), rng.normal(size=48)
    effect = rng.normal(1, 1, 6)
    return {"x": x, "group": group, "y": effect[group] + 0.7 * x + 0.8 * rng.normal(size=48)}


@probml.model
def fixed_spread(x, group):
    """No hierarchy: the prior of the effects depends on an unseen location alone."""
    mu = sample("mu", dist.Normal(0, 5))
    b, sigma = sample("b", dist.Normal(0, 5)), sample("sigma", dist.HalfNormal(2))
    with plate("groups", 6):
        alpha = sample("alpha", dist.Normal(mu, 1.0))
    with probml.rows():
        sample("y", dist.Normal(alpha[group] + b * x, sigma))


@probml.model
def lkj_slopes(x, group):
    mean = sample("mean", dist.Normal(0, 5).expand([2]).to_event(1))
    spread = sample("spread", dist.Exponential(1).expand([2]).to_event(1))
    corr = sample("corr", dist.LKJCholesky(2, concentration=2.0))
    sigma = sample("sigma", dist.Exponential(1))
    with plate("groups", 6):
        effect = sample("effect", dist.MultivariateNormal(mean, scale_tril=spread[:, None] * corr))
    with probml.rows():
        sample("y", dist.Normal(effect[group, 0] + effect[group, 1] * x, sigma))


@probml.model
def lkj_slopes_noncentred(x, group):
    mean = sample("mean", dist.Normal(0, 5).expand([2]).to_event(1))
    spread = sample("spread", dist.Exponential(1).expand([2]).to_event(1))
    corr = sample("corr", dist.LKJCholesky(2, concentration=2.0))
    sigma = sample("sigma", dist.Exponential(1))
    with plate("groups", 6):
        z = sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    effect = mean + z @ (spread[:, None] * corr).T
    with probml.rows():
        sample("y", dist.Normal(effect[group, 0] + effect[group, 1] * x, sigma))


@probml.model
def schools_by_index(school, sigma):
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfCauchy(5))
    with plate("schools", 8):
        theta = sample("theta", dist.Normal(mu, tau))
    with probml.rows():
        sample("y", dist.Normal(theta[school], sigma))


@probml.model
def schools_integrated(sigma):
    """The same with the effects integrated out by hand: no hierarchy is left."""
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfCauchy(5))
    with probml.rows():
        sample("y", dist.Normal(mu, jnp.sqrt(tau**2 + sigma**2)))


# Rubin 1981
SCHOOLS = {"sigma": [15.0, 10, 16, 11, 9, 11, 10, 18], "y": [28.0, 8, -3, 7, -1, 1, 18, 12]}


@probml.model
def radon(floor, county, uranium):
    g = sample("g", dist.Normal(0, 2).expand([2]).to_event(1))
    tau, sigma = sample("tau", dist.HalfNormal(1)), sample("sigma", dist.HalfNormal(1))
    b = sample("b", dist.Normal(0, 1))
    with plate("counties", 5):
        raw = sample("raw", dist.Normal(0, 1))
    with probml.rows():
        sample("log_radon",
               dist.Normal(g[0] + g[1] * uranium + tau * raw[county] + b * floor, sigma))


def houses(rng):
    county, floor, level = np.repeat(np.arange(5), 10), rng.integers(0, 2, 50), rng.normal(size=5)
    effect = 1 + 0.5 * level + 0.4 * rng.normal(size=5)
    y = effect[county] - 0.6 * floor + 0.7 * rng.normal(size=50)
    return {"floor": floor, "county": county, "uranium": level[county], "log_radon": y}


@probml.model
def rasch(student, item):
    with plate("students", 12):
        theta = sample("theta", dist.Normal(0, 1))
    with plate("items", 6):
        b = sample("b", dist.Normal(0, 2))
    with probml.rows():
        sample("right", dist.Bernoulli(logits=theta[student] - b[item]))


@probml.model
def two_parameter(student, item):
    with plate("students", 12):
        theta = sample("theta", dist.Normal(0, 1))
    with plate("items", 6):
        b, a = sample("b", dist.Normal(0, 2)), sample("a", dist.LogNormal(0, 0.5))
    with probml.rows():
        sample("right", dist.Bernoulli(logits=a[item] * (theta[student] - b[item])))


def answers(rng):
    student, item = (m.ravel() for m in np.meshgrid(np.arange(12), np.arange(6), indexing="ij"))
    away = rng.normal(size=12)[student] - np.linspace(-1, 1, 6)[item]
    return {"student": student, "item": item,
            "right": (rng.random(72) < 1 / (1 + np.exp(-1.3 * away))).astype(int)}


@probml.model
def baseball(player):
    m = sample("m", dist.Uniform(0, 1))
    kappa = sample("kappa", dist.Pareto(1.0, 1.5))
    with plate("players", 8):
        phi = sample("phi", dist.Beta(m * kappa, (1 - m) * kappa))
    with probml.rows():
        sample("hits", dist.Binomial(45, phi[player]))


@probml.model
def fixed_kappa(player):
    """As numpyro's example with a known concentration: a hierarchy through m all the same."""
    m = sample("m", dist.Beta(1, 1))
    with plate("players", 8):
        phi = sample("phi", dist.Beta(20 * m, 20 * (1 - m)))
    with probml.rows():
        sample("hits", dist.Binomial(45, phi[player]))


# Efron & Morris 1975, in part
BATTERS = {"player": np.arange(8), "hits": [18, 17, 16, 15, 14, 11, 10, 7]}


@probml.model
def pumps(pump, time):
    alpha, beta = sample("alpha", dist.Exponential(1.0)), sample("beta", dist.Gamma(0.1, 1.0))
    with plate("pumps", 10):
        rate = sample("rate", dist.Gamma(alpha, beta))
    with probml.rows():
        sample("failures", dist.Poisson(rate[pump] * time))


PUMPS = {  # Gaver & O'Muircheartaigh 1987
    "pump": np.arange(10),
    "time": [94.3, 15.7, 62.9, 126.0, 5.24, 31.4, 1.05, 1.05, 2.1, 10.5],
    "failures": [5, 1, 5, 14, 3, 19, 1, 1, 4, 22],
}


@probml.model
def nested_plates(school, pupil_class):
    top, mu = sample("top", dist.HalfNormal(1)), sample("mu", dist.Normal(0, 2))
    within, sigma = sample("within", dist.HalfNormal(1)), sample("sigma", dist.HalfNormal(1))
    with plate("schools", 3, dim=-1):
        a = sample("a", dist.Normal(mu, top))
        with plate("classes", 2, dim=-2):
            c = sample("c", dist.Normal(a, within))
    with probml.rows():
        sample("score", dist.Normal(c[pupil_class, school], sigma))


def pupils(rng):
    school, room = np.tile(np.repeat(np.arange(3), 2), 6), np.tile(np.arange(2), 18)
    effect = rng.normal(size=(2, 3))
    return {"school": school, "pupil_class": room,
            "score": effect[room, school] + 0.5 * rng.normal(size=36)}


@probml.model
def crossed_effects(subject, word):
    s, w = sample("s", dist.HalfNormal(1)), sample("w", dist.HalfNormal(1))
    mu, sigma = sample("mu", dist.Normal(0, 2)), sample("sigma", dist.HalfNormal(1))
    with plate("subjects", 6):
        u = sample("u", dist.Normal(0, 1))
    with plate("words", 5):
        v = sample("v", dist.Normal(0, 1))
    with probml.rows():
        sample("log_time", dist.Normal(mu + s * u[subject] + w * v[word], sigma))


def reading(rng):
    subject, word = (m.ravel() for m in np.meshgrid(np.arange(6), np.arange(5), indexing="ij"))
    y = rng.normal(size=6)[subject] + 0.5 * rng.normal(size=5)[word] + 0.4 * rng.normal(size=30)
    return {"subject": subject, "word": word, "log_time": y}


@probml.model
def stochastic_volatility(t):
    mu, phi = sample("mu", dist.Normal(-1, 1)), sample("phi", dist.Beta(20, 1.5))
    s = sample("s", dist.HalfNormal(0.5))
    z = sample("z", dist.Normal(0, 1).expand([30]).to_event(1))
    _, h = jax.lax.scan(lambda h, e: (phi * h + s * e, phi * h + s * e),
                        z[0] * s / jnp.sqrt(1 - (2 * phi - 1) ** 2 + 1e-3), z)
    with probml.rows():
        sample("r", dist.Normal(0, jnp.exp((mu + h[t]) / 2)))


def returns(rng):
    return {"t": np.arange(30),
            "r": np.exp(0.5 * (-1 + np.cumsum(0.3 * rng.normal(size=30)))) * rng.normal(size=30)}


@probml.model
def local_level(t):
    s, sigma = sample("s", dist.HalfNormal(50)), sample("sigma", dist.HalfNormal(200))
    step = sample("step", dist.Normal(0, 1).expand([20]).to_event(1))
    first = sample("first", dist.Normal(1000, 200))
    level = deterministic("level", first + s * jnp.cumsum(step))
    with probml.rows():
        sample("flow", dist.Normal(level[t], sigma))


# Cobb 1978
NILE = [1120.0, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960,
        1180, 799, 958, 1140]


@probml.model
def random_walk_site(t):
    s, sigma = sample("s", dist.HalfNormal(1)), sample("sigma", dist.HalfNormal(1))
    walk = sample("walk", dist.GaussianRandomWalk(s, 15))
    with probml.rows():
        sample("y", dist.Normal(walk[t], sigma))


@probml.model
def horseshoe(x):
    tau = sample("tau", dist.HalfCauchy(0.5))
    lam = sample("lam", dist.HalfCauchy(1).expand([4]).to_event(1))
    b = sample("b", dist.Normal(0, tau * lam).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(x @ b, 0.7))


def sparse(rng):
    x = rng.normal(size=(60, 4))
    return {"x": x, "y": x @ [2.0, 0, 0, 0] + 0.7 * rng.normal(size=60)}


@probml.model
def bradley_terry(home, away):
    edge = sample("edge", dist.Normal(0, 1))
    with plate("teams", 5):
        skill = sample("skill", dist.Normal(0, 1))
    with probml.rows():
        sample("won", dist.Bernoulli(logits=edge + skill[home] - skill[away]))


def games(rng):
    home, away = rng.integers(0, 5, 60), rng.integers(0, 5, 60)
    away = np.where(away == home, (away + 1) % 5, away)
    return {"home": home, "away": away,
            "won": (rng.random(60) < 1 / (1 + np.exp(-(0.4 + 0.5 * (home - away))))).astype(int)}


@probml.model
def zero_sum_football(home, away):
    """Attack and defence, identified by a sum of zero (Baio & Blangiardo 2010)."""
    edge, s = sample("edge", dist.Normal(0, 1)), sample("s", dist.HalfNormal(1))
    attack = sample("attack", dist.ZeroSumNormal(s, (5,)))
    defence = sample("defence", dist.ZeroSumNormal(s, (5,)))
    with probml.rows():
        sample("goals", dist.Poisson(jnp.exp(edge + attack[home] - defence[away])))


def matches(rng):
    data = games(rng)
    return {"home": data["home"], "away": data["away"],
            "goals": rng.poisson(np.exp(0.3 + 0.2 * (data["home"] - data["away"])))}


@probml.model
def ordinal_by_judge(judge, x):
    s, b = sample("s", dist.HalfNormal(1)), sample("b", dist.Normal(0, 1))
    cut = sample("cut", dist.TransformedDistribution(dist.Normal(0, 2).expand([2]).to_event(1),
                                                     dist.transforms.OrderedTransform()))
    with plate("judges", 5):
        u = sample("u", dist.Normal(0, 1))
    with probml.rows():
        sample("grade", dist.OrderedLogistic(b * x + s * u[judge], cut))


def grades(rng):
    judge, x = np.repeat(np.arange(5), 10), rng.normal(size=50)
    return {"judge": judge, "x": x, "grade": np.digitize(
        x + 0.7 * rng.normal(size=5)[judge] + rng.logistic(size=50), [-1, 1]
    )}


@probml.model
def group_as_columns():
    """One plate inside rows: a row is a day with four shops, the shops' levels are outside rows."""
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfNormal(2))
    sigma = sample("sigma", dist.HalfNormal(2))
    with plate("shops", 4):
        level = sample("level", dist.Normal(mu, tau))
    with probml.rows():
        with plate("shop", 4):
            sample("sales", dist.Normal(level[:, None], sigma))


@probml.model
def shops_by_event():
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfNormal(2))
    sigma = sample("sigma", dist.HalfNormal(2))
    level = sample("level", dist.Normal(mu, tau).expand([4]).to_event(1))
    with probml.rows():
        sample("sales", dist.Normal(level, sigma).to_event(1))


def shops(rng):
    return {"sales": np.array([1.0, 2.0, 0.0, 1.5]) + rng.normal(size=(12, 4))}


def hierarchy(model, make, **more):
    return Case(model, make, truth="posterior", **more)


def normal(model, make, **more):
    """Of normal effects, which are integrated out by default: the posterior is NUTS's by name."""
    return hierarchy(model, make, engine=probml.NUTS(target_accept=0.9), **more)


CASES = [
    normal(varying_intercepts(), grouped),
    normal(noncentred_intercepts(), grouped),
    normal(reparametrised_intercepts(), grouped),
    normal(fixed_spread(), grouped),
    normal(lkj_slopes(), grouped),
    normal(lkj_slopes_noncentred(), grouped),
    normal(schools_by_index(), lambda rng: {"school": np.arange(8), **SCHOOLS}),
    Case(schools_integrated(), lambda rng: SCHOOLS),
    normal(radon(), houses),
    normal(rasch(), answers),
    normal(two_parameter(), answers),
    hierarchy(baseball(), lambda rng: BATTERS),
    hierarchy(fixed_kappa(), lambda rng: BATTERS),
    hierarchy(pumps(), lambda rng: PUMPS),
    hierarchy(nested_plates(), pupils),
    normal(crossed_effects(), reading),
    normal(stochastic_volatility(), returns),
    normal(local_level(), lambda rng: {"t": np.arange(20), "flow": NILE}),
    normal(random_walk_site(), lambda rng: {
        "t": np.arange(15), "y": np.cumsum(rng.normal(size=15)) + 0.5 * rng.normal(size=15)
    }),
    hierarchy(horseshoe(), sparse),
    normal(bradley_terry(), games),
    hierarchy(zero_sum_football(), matches),
    hierarchy(ordinal_by_judge(), grades),
    normal(group_as_columns(), shops),
    normal(shops_by_event(), shops),
]
