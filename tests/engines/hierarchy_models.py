"""Hierarchies and other densities without a plain mode, as textbooks and case studies write them:
name → a function, its settings, its data. `hierarchy_truths.json` has posterior means and standard
deviations by NumPyro's NUTS (two chains of 1500, target 0.95); `python -m tests.engines.hierarchy_models`
adds those that are missing."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import expit
from numpyro import deterministic, factor, plate, sample
from numpyro.diagnostics import summary
from numpyro.infer import MCMC, NUTS, init_to_median

TRUTHS = Path(__file__).with_name("hierarchy_truths.json")
MODELS = {}


def case(**data):
    def add(function):
        MODELS[function.__name__] = (function, data)
        return function
    return add


r = np.random.default_rng(20)
N, HN, HC, E = dist.Normal, dist.HalfNormal, dist.HalfCauchy, dist.Exponential
SCHOOLS = {"y": np.array([28.0, 8, -3, 7, -1, 1, 18, 12]),
           "s": np.array([15.0, 10, 16, 11, 9, 11, 10, 18])}


@case(**SCHOOLS)
def schools_centred(s, y):
    mu, tau = sample("mu", N(0, 5)), sample("tau", HC(5.0))
    with plate("J", 8):
        theta = sample("theta", N(mu, tau))
        sample("y", N(theta, s), obs=y)


@case(**SCHOOLS)
def schools_by_cumulated_products(s, y):
    mu, log_tau = sample("mu", N(0, 5)), sample("log_tau", N(1.5, 1.0))
    eta = sample("eta", N(0, 1).expand([8]).to_event(1))
    theta = deterministic("theta", jax.lax.map(lambda e: mu + jnp.exp(log_tau) * e, eta))
    sample("y", N(theta, s).to_event(1), obs=y)


county = r.integers(0, 12, 90)
floor = r.integers(0, 2, 90).astype(float)


@case(county=county, floor=floor,
      y=(1.4 - 0.6 * floor + 0.35 * r.normal(size=12)[county] + 0.7 * r.normal(size=90)))
def radon_slopes(county, floor, y):
    ma, mb = sample("ma", N(0, 2)), sample("mb", N(0, 2))
    sa, sb, sigma = sample("sa", HN(1.0)), sample("sb", HN(1.0)), sample("sigma", HN(1.0))
    za, zb = sample("za", N(0, 1).expand([12])), sample("zb", N(0, 1).expand([12]))
    mean = (ma + sa * za)[county] + (mb + sb * zb)[county] * floor
    with plate("n", 90):
        sample("y", N(mean, sigma), obs=y)


@case(y=np.cumsum(0.3 * r.normal(size=40)) + 0.5 * r.normal(size=40))
def walk_by_scan(y):
    sd, noise, x0 = sample("sd", HN(1.0)), sample("noise", HN(1.0)), sample("x0", N(0, 2))
    eps = sample("eps", N(0, 1).expand([40]).to_event(1))
    x = jax.lax.scan(lambda x, e: (x + sd * e,) * 2, x0, eps)[1]
    sample("y", dist.StudentT(6.0, x, noise).to_event(1), obs=y)


lam = np.exp(1.0 + np.cumsum(0.15 * r.normal(size=40)))


@case(y=r.poisson(lam))
def counts_under_a_walk(y):
    sd, level = sample("sd", HN(0.5)), sample("level", N(1.0, 1.0))
    eps = sample("eps", N(0, 1).expand([len(y)]).to_event(1))
    rate = jax.lax.scan(lambda m, e: (m * jnp.exp(sd * e),) * 2, jnp.exp(level), eps)[1]
    sample("y", dist.Poisson(rate).to_event(1), obs=y)


h = np.zeros(60)
for t in range(1, 60):
    h[t] = 0.92 * h[t - 1] + 0.3 * r.normal()


@case(y=np.exp(h / 2 - 0.3) * r.normal(size=60))
def volatility(y):
    mu, phi = sample("mu", N(0, 1)), 2 * sample("phi", dist.Beta(20, 1.5)) - 1
    sd = sample("sd", HN(0.5))
    eps = sample("eps", N(0, 1).expand([60]).to_event(1))
    h = jax.lax.scan(lambda h, e: (phi * h + sd * e,) * 2, sd * eps[0], eps)[1]
    sample("y", N(0, jnp.exp((mu + h) / 2)).to_event(1), obs=y)


@case(y=r.poisson(np.exp(0.8 + 0.5 * r.normal(size=25) + 0.3 * np.sin(np.arange(25)))))
def icar_ring(y):
    sd, own, level = sample("sd", HN(1.0)), sample("own", HN(1.0)), sample("level", N(0, 2))
    phi = sample("phi", N(0, 1).expand([25]).to_event(1))
    factor("icar", -0.5 * jnp.sum((phi - jnp.roll(phi, 1)) ** 2) + 0.5 * jnp.sum(phi**2)
           - 0.5 * (jnp.sum(phi) / 0.025) ** 2 / 25**2)
    z = sample("z", N(0, 1).expand([25]).to_event(1))
    sample("y", dist.Poisson(jnp.exp(level + sd * phi + own * z)).to_event(1), obs=y)


X = r.normal(size=(40, 12))


@case(x=X, y=X[:, 0] * 1.5 - X[:, 3] + r.normal(size=40))
def horseshoe(x, y):
    tau, sigma = sample("tau", HC(0.3)), sample("sigma", HN(2.0))
    lam = sample("lam", HC(1.0).expand([12]).to_event(1))
    z = sample("z", N(0, 1).expand([12]).to_event(1))
    beta = deterministic("beta", tau * lam * z)
    with plate("n", 40):
        sample("y", N(x @ beta, sigma), obs=y)


t = np.sort(r.uniform(0, 4, 15))


@case(t=t, y=np.sin(2 * t) + 0.3 * r.normal(size=15))
def gaussian_process(t, y):
    amp, length = sample("amp", dist.LogNormal(0, 1)), sample("length", dist.InverseGamma(3, 2))
    noise = sample("noise", HN(0.5))
    k = amp**2 * jnp.exp(-0.5 * ((t[:, None] - t) / length) ** 2)
    sample("y", dist.MultivariateNormal(jnp.zeros(15), k + (noise**2 + 1e-5) * jnp.eye(15)), obs=y)


@case(t=t, y=r.poisson(np.exp(1 + np.sin(2 * t))))
def gaussian_process_of_counts(t, y):
    amp, length = sample("amp", HN(1.0)), sample("length", dist.InverseGamma(5, 5))
    level = sample("level", N(0, 2))
    k = jnp.exp(-0.5 * ((t[:, None] - t) / length) ** 2) + 1e-4 * jnp.eye(15)
    f = level + amp * jnp.linalg.cholesky(k) @ sample("z", N(0, 1).expand([15]).to_event(1))
    sample("y", dist.Poisson(jnp.exp(f)).to_event(1), obs=y)


rater = r.integers(0, 8, 120)
score = r.normal(size=120) + 0.8 * r.normal(size=8)[rater]


@case(rater=rater, x=r.normal(size=120), y=np.digitize(score, [-1.0, 0.0, 0.3, 1.2]))
def ordinal_raters(rater, x, y):
    cuts = sample("cuts", dist.TransformedDistribution(
        N(0, 2).expand([4]).to_event(1), dist.transforms.OrderedTransform()))
    b, sd = sample("b", N(0, 1)), sample("sd", HN(1.0))
    z = sample("z", N(0, 1).expand([8]).to_event(1))
    with plate("n", 120):
        sample("y", dist.OrderedLogistic(b * x + sd * z[rater], cuts), obs=y)


site = r.integers(0, 10, 80)
made = np.where(r.uniform(size=80) < 0.35, 0,
                r.poisson(np.exp(1.0 + 0.5 * r.normal(size=10)[site])))


@case(site=site, y=made)
def zero_inflated_sites(site, y):
    gate, level, sd = sample("gate", dist.Beta(1, 1)), sample("level", N(0, 2)), sample("sd", HN(1))
    z = sample("z", N(0, 1).expand([10]).to_event(1))
    with plate("n", 80):
        sample("y", dist.ZeroInflatedPoisson(gate, jnp.exp(level + sd * z[site])), obs=y)


@case(y=np.r_[r.poisson(3.0, 22), r.poisson(1.2, 18)])
def changepoint_smooth(y):
    early, late = sample("early", E(0.5)), sample("late", E(0.5))
    at = sample("at", dist.Uniform(0, 40))
    rate = early + (late - early) * expit((jnp.arange(40) - at) / 0.5)
    sample("y", dist.Poisson(rate).to_event(1), obs=y)


s, i, seen = 760.0, 3.0, []
for _ in range(14):
    new, out = 1.7 * s * i / 763, 0.5 * i
    s, i = s - new, i + new - out
    seen.append(r.negative_binomial(10, 10 / (10 + max(i, 0.1))))


@case(y=np.array(seen))
def sir(y):
    beta, gamma = sample("beta", dist.LogNormal(0.4, 0.5)), sample("gamma", dist.LogNormal(-0.7, 0.4))
    phi, i0 = sample("phi", E(0.1)), sample("i0", dist.LogNormal(1.0, 0.5))

    def step(state, _):
        s, i = state
        new = s * (1 - jnp.exp(-beta * i / 763))
        i = i + new - gamma * i
        return (s - new, i), i
    seen = jax.lax.scan(step, (763.0 - i0, i0), jnp.arange(14))[1]
    sample("y", dist.NegativeBinomial2(seen + 1e-6, phi).to_event(1), obs=y)


ability, hard = r.normal(size=30), r.normal(size=8)
answers = r.binomial(1, 1 / (1 + np.exp(-(1.2 * (ability[:, None] - hard)))))


@case(y=answers)
def item_response(y):
    sd, log_a = sample("sd", HN(1.0)), sample("log_a", N(0, 0.5).expand([8]).to_event(1))
    b = sample("b", N(0, 1).expand([8]).to_event(1)) * sd
    theta = sample("theta", N(0, 1).expand([30]).to_event(1))
    eta = jnp.exp(log_a) * (theta[:, None] - b)
    sample("y", dist.Bernoulli(logits=eta).to_event(2), obs=y)


x_true = r.normal(1.0, 1.0, 25)


@case(w=x_true + 0.7 * r.normal(size=25), y=0.5 + 0.9 * x_true + 0.4 * r.normal(size=25))
def errors_in_x(w, y):
    a, b, sigma = sample("a", N(0, 2)), sample("b", N(0, 2)), sample("sigma", HN(1.0))
    mx, sx = sample("mx", N(0, 2)), sample("sx", HN(2.0))
    x = mx + sx * sample("z", N(0, 1).expand([25]).to_event(1))
    sample("w", N(x, 0.7).to_event(1), obs=w)
    sample("y", N(a + b * x, sigma).to_event(1), obs=y)


@case(y=r.binomial(20, r.beta(3, 7, size=15)))
def rates_of_rates(y):
    mean, size = sample("mean", dist.Beta(1, 1)), sample("size", dist.Pareto(1.0, 1.5))
    with plate("J", 15):
        theta = sample("theta", dist.Beta(mean * size, (1 - mean) * size))
        sample("y", dist.Binomial(20, theta), obs=y)


kind = r.uniform(size=18) < 0.4
k = r.binomial(30, np.where(kind, r.beta(4, 12, 18), r.beta(30, 6, 18)))


@case(k=k)
def rates_of_two_kinds(k):
    share = sample("share", dist.Beta(2, 2))
    low, gap = sample("low", N(-1, 1)), sample("gap", HN(2.0))
    sd = sample("sd", HN(1.0))
    with plate("people", 18):
        z = sample("z", dist.Bernoulli(share))
        eta = sample("eta", N(low + gap * z, sd))
        sample("k", dist.Binomial(30, logits=eta), obs=k)


effects, errors = 0.3 + 0.4 * r.standard_t(3, 12), r.uniform(0.1, 0.5, 12)


@case(s=errors, y=effects + errors * r.normal(size=12))
def meta_with_tails(s, y):
    mu, tau, nu = sample("mu", N(0, 1)), sample("tau", HC(0.5)), sample("nu", dist.Gamma(2, 0.1))
    with plate("J", 12):
        theta = sample("theta", dist.StudentT(nu, mu, tau))
        sample("y", N(theta, s), obs=y)


wins = np.array([(a, b) for a in range(7) for b in range(a)] * 2)
strength = 0.8 * r.normal(size=7)
won = r.binomial(1, expit(strength[wins[:, 0]] - strength[wins[:, 1]]))


@case(a=wins[:, 0], b=wins[:, 1], y=np.asarray(won))
def bradley_terry(a, b, y):
    log_sd = sample("log_sd", N(-0.5, 1.0))
    z = sample("z", N(0, 1).expand([7]).to_event(1))
    theta = jnp.exp(log_sd) * (z - z.mean())
    sample("y", dist.Bernoulli(logits=theta[a] - theta[b]).to_event(1), obs=y)


@case(y=r.binomial(6, r.beta(1.5, 2.5, 40)))
def capture_recapture(y):
    mu, sd = sample("mu", N(0, 1.5)), sample("sd", HN(1.5))
    with plate("animals", 40):
        eps = sample("eps", N(0, 1))
        sample("y", dist.Binomial(6, probs=expit(mu + sd * eps)), obs=y)


xs = np.linspace(0, 1, 25)


@case(y=np.sin(6 * xs) + 0.2 * r.normal(size=25))
def second_order_walk(y):
    sd, noise = sample("sd", HN(0.5)), sample("noise", HN(0.5))
    a, b = sample("a", N(0, 2)), sample("b", N(0, 1))
    eps = sample("eps", N(0, 1).expand([25]).to_event(1))
    f = a + jnp.cumsum(b + jnp.cumsum(sd * eps))
    sample("y", N(f, noise).to_event(1), obs=y)


@case(y=np.array([2.1, 3.9, 6.2, 8.1, 9.7]), x=np.arange(1.0, 6.0))
def five_rows(x, y):
    a, b, sigma = sample("a", N(0, 10)), sample("b", N(0, 10)), sample("sigma", HC(5.0))
    with plate("n", 5):
        sample("y", N(a + b * x, sigma), obs=y)


@case(y=np.abs(0.6 + r.normal(size=15)))
def folded(y):
    m, s = sample("m", N(0, 3)), sample("s", HN(2.0))
    with plate("n", 15):
        sample("y", dist.MixtureSameFamily(dist.Categorical(jnp.ones(2) / 2), N(
            jnp.stack([m, -m]), s)), obs=y)


frail, group = r.gamma(2, 0.5, 12), np.repeat(np.arange(12), 4)
time = r.exponential(1 / frail[group])


@case(g=group, t=np.minimum(time, 1.5), dead=(time < 1.5).astype(float))
def frailty(g, t, dead):
    rate, shape = sample("rate", dist.LogNormal(0, 1)), sample("shape", dist.Gamma(2, 1))
    sd = sample("sd", HN(1.0))
    w = jnp.exp(sd * sample("z", N(0, 1).expand([12]).to_event(1)))[g] * rate
    factor("seen", jnp.sum(dead * (jnp.log(w * shape) + (shape - 1) * jnp.log(t)) - w * t**shape))


def kinds_summed(k):
    share = sample("share", dist.Beta(2, 2))
    low, gap = sample("low", N(-1, 1)), sample("gap", HN(2.0))
    sd = sample("sd", HN(1.0))
    weights = jnp.stack([1 - share, share])
    with plate("people", 18):
        eta = sample("eta", dist.MixtureSameFamily(
            dist.Categorical(weights), N(jnp.stack([low, low + gap]), sd)))
        sample("k", dist.Binomial(30, logits=eta), obs=k)


BY_HAND = {"rates_of_two_kinds": kinds_summed}  # what NumPyro samples in their place


def truth(name):
    """Means and standard deviations by NumPyro's NUTS, and the largest R-hat."""
    function, data = MODELS[name]
    model = BY_HAND.get(name, function)
    with jax.enable_x64(True):
        run = MCMC(NUTS(model, target_accept_prob=0.95, init_strategy=init_to_median),
                   num_warmup=1000, num_samples=1500, num_chains=2, progress_bar=False,
                   chain_method="sequential")
        run.run(jax.random.key(1), **{k: jnp.asarray(v) for k, v in data.items()})
        draws = run.get_samples(group_by_chain=True)
    rhat = {k: np.max(v["r_hat"]) for k, v in summary(draws).items()}
    return {"mean": {k: np.asarray(v.mean((0, 1))).round(5).tolist() for k, v in draws.items()},
            "sd": {k: np.asarray(v.std((0, 1))).round(5).tolist() for k, v in draws.items()},
            "r_hat": round(float(max(rhat.values())), 3)}


if __name__ == "__main__":
    import time as clock
    known = json.loads(TRUTHS.read_text()) if TRUTHS.exists() else {}
    for name in MODELS:
        if name not in known:
            begin = clock.time()
            try:
                known[name] = truth(name)
            except Exception as error:
                print(name, type(error).__name__, str(error)[:200])
                continue
            print(f"{name}: R-hat {known[name]['r_hat']}, {clock.time() - begin:.0f} s", flush=True)
            TRUTHS.write_text(json.dumps(known, indent=None).replace('"mean"', '\n"mean"') + "\n")
