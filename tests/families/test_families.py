"""Every family: its density is NumPyro's, its gradients are statistics, its updates are maxima, its
posteriors and predictives exact."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, plate, sample
from scipy import integrate, special, stats

import probml
from cases import nan
from probml.families import log_linear, registry

EXACT = 1e-12
STATES, CELLS, K, ROWS = 3, 2, 4, 40
rng = np.random.default_rng(0)


def positive(*shape):
    return jnp.asarray(rng.gamma(2.0, 1.0, shape))


def real(*shape):
    return jnp.asarray(rng.normal(size=shape))


def unit(*shape):
    return jnp.asarray(rng.random(shape))


def simplex(*shape):
    return jnp.asarray(rng.dirichlet(np.ones(shape[-1]), shape[:-1]))


GRID = (STATES, CELLS)
COUNTS, AMOUNTS, SHARES = (rng.poisson(3, (ROWS, CELLS)), rng.gamma(2.0, 1.0, (ROWS, CELLS)),
                           rng.random((ROWS, CELLS)))
WORDS = rng.multinomial(9, np.ones(K) / K, (ROWS, CELLS))

# name → (distribution over states and cells, data, statistics x → leaves of the natural parameters,
# or None)
FAMILIES = {
    "Poisson": (dist.Poisson(positive(*GRID)), COUNTS,
                lambda x: {"eta": [x], "constant": [1 + 0 * x]}),
    "Exponential": (dist.Exponential(positive(*GRID)), AMOUNTS,
                    lambda x: {"eta": [x], "constant": [1 + 0 * x]}),
    "Gamma": (dist.Gamma(positive(*GRID), positive(*GRID)), AMOUNTS,
              lambda x: {"eta": [np.log(x), x], "constant": [1 + 0 * x]}),
    "Geometric": (dist.Geometric(probs=unit(*GRID)), COUNTS,
                  lambda x: {"eta": [x], "constant": [1 + 0 * x]}),
    "Geometric logits": (dist.Geometric(logits=real(*GRID)), COUNTS,
                         lambda x: {"eta": [x], "constant": [1 + 0 * x]}),
    "LogNormal": (
        dist.LogNormal(real(*GRID), positive(*GRID)),
        AMOUNTS,
        lambda x: {"eta": [np.log(x), np.log(x) ** 2], "constant": [1 + 0 * x]},
    ),
    "Beta": (dist.Beta(positive(*GRID), positive(*GRID)), SHARES,
             lambda x: {"eta": [np.log(x), np.log1p(-x)], "constant": [1 + 0 * x]}),
    "Binomial": (dist.Binomial(12, probs=unit(*GRID)), COUNTS,
                 lambda x: {"hit": [x], "miss": [12 - x], "total": [0 * x]}),
    "Binomial logits": (dist.Binomial(12, logits=real(*GRID)), COUNTS,
                        lambda x: {"hit": [x], "miss": [12 - x], "total": [0 * x]}),
    "Multinomial": (dist.Multinomial(9, probs=simplex(*GRID, K)), WORDS, lambda x: {"log": [x]}),
    "Multinomial logits": (dist.Multinomial(9, logits=real(*GRID, K)), WORDS,
                           lambda x: {"log": [x]}),
    "DirichletMultinomial": (dist.DirichletMultinomial(positive(*GRID, K), 9), WORDS, None),
}
every = pytest.mark.parametrize("name", FAMILIES)


@functools.lru_cache
def compiled(family):
    """The family's natural parameters and density, each compiled once a shape."""
    return jax.jit(lambda arguments: family.natural(arguments, 0.0)), jax.jit(family.log_density)


def natural_of(distribution, shape=GRID):
    """The natural parameters of a distribution with batch axes (states, cells), and its family's
    density."""
    family = registry.entry(distribution).likelihood
    arguments = {a: np.asarray(v) for a, v in family.arguments(distribution).items()}
    arguments = {a: np.broadcast_to(v, (*shape, *v.shape[v.ndim - family.argument_event[a] :]))
                 for a, v in arguments.items()}
    natural, density = compiled(family)
    return natural(arguments), density


def hidden(x):
    """Some cells unseen, filled with 0: (filled, mask of x's shape, mask of cells)."""
    cells = np.random.default_rng(1).random(x.shape[:2]) < 0.7
    seen = np.broadcast_to(cells.reshape(*cells.shape, *(1,) * (x.ndim - 2)), x.shape)
    return np.where(seen, x, 0), seen, cells


# The density


@every
def test_the_density_is_that_of_numpyro_also_with_unseen_cells_and_in_float32(name):
    distribution, x, _ = FAMILIES[name]
    natural, density = natural_of(distribution)
    # (rows, states, cells)
    expected = np.asarray(jax.jit(lambda x: distribution.log_prob(x[:, None]))(x))
    np.testing.assert_allclose(density(natural, x, None), expected.sum(-1), rtol=EXACT, atol=EXACT)
    filled, seen, cells = hidden(x)
    np.testing.assert_allclose(density(natural, filled, seen),
                               np.where(cells[:, None], expected, 0.0).sum(-1), rtol=EXACT,
                               atol=EXACT)
    single = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), natural)
    got = density(single, x.astype(np.float32) if x.dtype.kind == "f" else x, None)
    assert got.dtype == np.float32
    # sums of terms of about ten
    np.testing.assert_allclose(got, expected.sum(-1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in FAMILIES if FAMILIES[name][2]])
def test_the_gradient_of_the_evidence_gives_expected_statistics(name):
    distribution, x, statistics = FAMILIES[name]
    natural, density = natural_of(distribution)
    filled, seen, cells = hidden(x)
    q = np.random.default_rng(2).random((ROWS, STATES))
    got = jax.jit(jax.grad(lambda n: (q * density(n, filled, seen)).sum()))(natural)
    assert got.keys() == statistics(x).keys()
    for leaf, columns in statistics(x).items():
        weight = cells.reshape(*cells.shape, *(1,) * (x.ndim - 2))
        expected = np.concatenate([np.einsum("bp,bc...->pc...", q, column * weight)
                                   for column in columns], 1)
        np.testing.assert_allclose(got[leaf], expected, rtol=EXACT, atol=EXACT)


CORNERS = {
    "a rate of 0": (dist.Poisson(jnp.array([0.0, 2.0])), [[0, 1], [1, 0]],
                    [stats.poisson(2).logpmf(1), -np.inf]),
    "a negative count": (dist.Poisson(jnp.array([1.0, 2.0])), [[-1, 0], [0, 0]], [-np.inf, -3.0]),
    "a million": (dist.Poisson(jnp.array([1e6, 0.0])), [[1_000_000, 0], [998_000, 0]],
                  stats.poisson(1e6).logpmf([1e6, 998e3])),
    "a probability of 1 of success": (dist.Geometric(jnp.array([1.0, 0.5])), [[0, 0], [1, 0]],
                                      [np.log(0.5), -np.inf]),
    "a probability of 0 of success": (dist.Geometric(jnp.array([0.0, 0.5])), [[0, 0], [5, 0]],
                                      [-np.inf, -np.inf]),
    "no trial can succeed": (dist.Binomial(3, jnp.array([0.0, 1.0])), [[0, 3], [1, 3], [0, 2]],
                             [0.0, -np.inf, -np.inf]),
    "more successes than trials": (dist.Binomial(3, jnp.array([0.5, 0.5])), [[4, 0], [3, 0]],
                                   [-np.inf, 6 * np.log(0.5)]),
    "a waiting time of 0": (dist.Exponential(jnp.array([1.0, 2.0])), [[0.0, 1.0], [-1.0, 1.0]],
                            [np.log(2) - 2, -np.inf]),
    "an amount of 0": (dist.Gamma(2.0, jnp.array([1.0, 2.0])), [[0.0, 1.0], [-1.0, 1.0]],
                       [-np.inf, -np.inf]),
    "a negative LogNormal": (dist.LogNormal(0.0, jnp.array([1.0, 2.0])), [[-1.0, 1.0], [0.0, 1.0]],
                             [-np.inf, -np.inf]),
    "shares of 0 and 1": (dist.Beta(2.0, jnp.array([1.0, 2.0])), [[0.0, 0.5], [1.0, 0.5]],
                          [-np.inf, -np.inf]),
    "a word that cannot be": (
        dist.Multinomial(3, jnp.array([[0.0, 0.4, 0.6]] * 2)),
        [[[0, 1, 2]] * 2, [[1, 2, 0], [0, 1, 2]]],
        [2 * np.log(3 * 0.4 * 0.36), -np.inf],
    ),
}


@pytest.mark.parametrize("name", CORNERS)
def test_the_impossible_is_minus_infinity_with_finite_gradients(name):
    distribution, x, expected = CORNERS[name]
    natural, density = natural_of(distribution, (1, 2))
    x = np.asarray(x)

    @jax.jit
    def evidence(natural):
        log = density(natural, x, None)
        return (jnp.where(jnp.isfinite(log), log, 0.0).sum(),
                (log, density(natural, 0 * x, np.zeros(x.shape, bool))))

    slope, (log, unseen) = jax.grad(evidence, has_aux=True)(natural)
    np.testing.assert_allclose(log[:, 0], expected, rtol=1e-9, atol=EXACT)  # log Γ near a million
    np.testing.assert_array_equal(unseen, 0.0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


def test_rising_factorials_keep_their_digits():
    a, x = (np.array([1e-3, 0.3, 7.9, 8.1, 1e3, 1e6, 1e9])[:, None],
            np.array([0.0, 0.5, 1.0, 3.0, 7.0]))
    whole = np.array([1.0, 3.0, 7.0])
    exact = np.stack([np.log(a + np.arange(int(n))).sum(1) for n in whole], 1)
    rising = jax.jit(log_linear.rising)
    np.testing.assert_allclose(rising(a, whole), exact, rtol=2e-12)
    np.testing.assert_allclose(rising(a[:4], x), special.gammaln(a[:4] + x)
                               - special.gammaln(a[:4]), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(rising(a.astype(np.float32), whole.astype(np.float32)), exact,
                               rtol=1e-5)


# Updates: one model with a site of every family below a class


@probml.model
def menagerie(a: float = 2.0, b: float = 0.5):
    """A class, and below it a site of every family with a closed form."""
    with plate("class", 2):
        calls = sample("calls", dist.Gamma(a, b).expand([2]).to_event(1))
        hazard = sample("hazard", dist.Gamma(a, b))
        flow = sample("flow", dist.Gamma(a, b))
        luck = sample("luck", dist.Beta(2.0, 3.0))
        skill = sample("skill", dist.Beta(2.0, 3.0))
        topic = sample("topic", dist.Dirichlet(jnp.array([1.5, 2.0, 1.1])))
        variance = sample("variance", dist.InverseGamma(3.0, 2.0))
        level = sample("level", dist.Normal(1.0, jnp.sqrt(variance / 0.5)))
    with probml.rows():
        z = sample("z", dist.Bernoulli(0.4))
        sample("poisson", dist.Poisson(calls[z]).to_event(1))
        sample("exponential", dist.Exponential(hazard[z]))
        sample("gamma", dist.Gamma(jnp.array([2.5, 0.7])[z], flow[z]))
        sample("geometric", dist.Geometric(luck[z]))
        sample("binomial", dist.Binomial(5, skill[z]))
        sample("multinomial", dist.Multinomial(4, topic[z]))
        sample("lognormal", dist.LogNormal(level[z], jnp.sqrt(variance[z])))


@functools.lru_cache
def animals(n=12):
    draw = np.random.default_rng(3)
    return {
        "z": np.arange(n) % 2,
        "poisson": draw.poisson([2.0, 7.0], (n, 2)),
        "exponential": draw.exponential(0.5, n),
        "gamma": draw.gamma(2.5, 0.5, n),
        "geometric": draw.geometric(0.3, n) - 1,
        "binomial": draw.binomial(5, 0.6, n),
        "multinomial": draw.multinomial(4, [0.2, 0.5, 0.3], n),
        "lognormal": draw.lognormal(0.5, 0.8, n),
    }


def by_numpyro(params):
    """log p(row | params) of the animals and log p(params), by NumPyro's handlers."""
    data = {name: jnp.asarray(value) for name, value in animals().items()}
    with handlers.trace() as trace, handlers.seed(rng_seed=0), handlers.substitute(
        data={**params, **data}
    ):
        menagerie()(rows=len(data["z"]))
    logs = {s["name"]: s["fn"].log_prob(s["value"]) for s in trace.values()
            if s["type"] == "sample"}
    return sum(logs[name] for name in data), sum(logs[name].sum() for name in params)


@pytest.mark.parametrize("prior", [False, True])
def test_the_m_step_ends_where_the_gradient_of_numpyros_density_vanishes(prior):
    fit = menagerie().fit(animals(), probml.EM(prior=prior))
    assert fit.converged

    @jax.jit
    @jax.grad
    def slopes(params):
        rows, outside = by_numpyro(params)
        return rows.sum() + (outside if prior else 0.0)

    for name, slope in (
        slopes({name: jnp.asarray(value) for name, value in fit.params.items()}).items()
    ):
        slope = slope * np.abs(fit.params[name])
        if name == "topic":  # along the simplex
            slope = slope - fit.params[name] * slope.sum(-1, keepdims=True)
        np.testing.assert_allclose(slope, 0.0, atol=1e-7, err_msg=name)


@probml.model
def without_closed_form():
    shape, flow = sample("shape", dist.Gamma(2.0, 1.0)), sample("flow", dist.Gamma(2.0, 1.0))
    up, down = sample("up", dist.Gamma(2.0, 1.0)), sample("down", dist.Gamma(2.0, 1.0))
    with probml.rows():
        sample("amount", dist.Gamma(shape, flow))
        sample("share", dist.Beta(up, down))


def test_concentrations_are_climbed_on_pooled_statistics_to_scipys_maximum():
    draw = np.random.default_rng(6)
    data = {"amount": draw.gamma(2.5, 0.5, 30), "share": draw.beta(2.0, 3.0, 30)}
    p = without_closed_form().fit(data, probml.EM(prior=False, tolerance=1e-13)).params
    a, _, scale = stats.gamma.fit(data["amount"], floc=0)
    # the objective is flat: its error is of second order
    np.testing.assert_allclose([p["shape"], p["flow"]], [a, 1 / scale], rtol=1e-3)
    np.testing.assert_allclose([p["up"], p["down"]],
                               stats.beta.fit(data["share"], floc=0, fscale=1)[:2], rtol=1e-3)


# Posteriors, evidence and predictives in closed form


SHAPES = np.array([2.5, 0.7])


@functools.lru_cache
def exact():
    return menagerie().fit(animals(), probml.Exact())


def after(g):
    """What the rows of a class say: name → (posterior numbers, log evidence)."""
    data, a, b, s = animals(), 2.0, 0.5, SHAPES[g]
    mine = {name: np.asarray(value[data["z"] == g], float) for name, value in data.items()}
    n = len(mine["z"])

    def gamma(count, total, base):
        return (a + count, b + total), (
            special.gammaln(a + count) - special.gammaln(a) + a * np.log(b) - (a + count)
            * np.log(b + total) + base
        ).sum()

    def beta(hits, misses, base):
        return ((2.0 + hits, 3.0 + misses),
                special.betaln(2.0 + hits, 3.0 + misses) - special.betaln(2.0, 3.0) + base)

    x, y, v, w = mine["poisson"], mine["geometric"], mine["binomial"], mine["multinomial"]
    prior = np.array([1.5, 2.0, 1.1])
    topic = prior + w.sum(0)

    def normaliser(a):
        return special.gammaln(a).sum() - special.gammaln(a.sum())

    words = special.gammaln(5) * n - special.gammaln(w + 1).sum()
    return {
        "calls": gamma(x.sum(0), n, -special.gammaln(x + 1).sum(0)),
        "hazard": gamma(n, mine["exponential"].sum(), 0.0),
        "flow": gamma(s * n, mine["gamma"].sum(),
                      ((s - 1) * np.log(mine["gamma"]) - special.gammaln(s)).sum()),
        "luck": beta(n, y.sum(), 0.0),
        "skill": beta(v.sum(), (5 - v).sum(), np.log(special.comb(5, v)).sum()),
        "topic": ((topic,), normaliser(topic) - normaliser(prior) + words),
    }


def normal_inverse_gamma(x, m0=1.0, kappa=0.5, a=3.0, b=2.0):
    n, mean = len(x), x.mean()
    k, late = kappa + n, a + n / 2
    scale = b + 0.5 * ((x - mean) ** 2).sum() + kappa * n * (mean - m0) ** 2 / (2 * k)
    evidence = special.gammaln(late) - special.gammaln(a) + a * np.log(b) - late * np.log(scale)
    return ((kappa * m0 + n * mean) / k, k, late, scale,
            evidence + 0.5 * np.log(kappa / k) - n / 2 * np.log(2 * np.pi))


def test_conjugate_posteriors_are_those_of_the_textbook():
    fit = exact()
    for g in range(2):
        found = after(g)
        for name in ("calls", "hazard", "flow"):
            posterior = fit.posterior(name)
            np.testing.assert_allclose(posterior.concentration[g], found[name][0][0], rtol=1e-9,
                                       err_msg=name)
            np.testing.assert_allclose(posterior.rate[g], found[name][0][1], rtol=1e-9,
                                       err_msg=name)
        for name in ("luck", "skill"):
            posterior = fit.posterior(name)
            np.testing.assert_allclose([posterior.concentration1[g], posterior.concentration0[g]],
                                       found[name][0], rtol=1e-9, err_msg=name)
        np.testing.assert_allclose(fit.posterior("topic").concentration[g], found["topic"][0][0],
                                   rtol=1e-9)


def test_the_evidence_is_the_product_of_the_textbook_evidences():
    data = animals()
    total = np.log(np.where(data["z"] == 1, 0.4, 0.6)).sum()
    for g in range(2):
        x = data["lognormal"][data["z"] == g]
        total += sum(
            evidence for _, evidence in after(g).values()
        ) + normal_inverse_gamma(np.log(x))[4] - np.log(x).sum()
    np.testing.assert_allclose(exact().log_evidence, total, rtol=1e-10)


NEW = {
    "poisson": ([4, nan], [nan, 3]),
    "exponential": (0.7,),
    "gamma": (1.3,),
    "geometric": (3,),
    "binomial": (2,),
    "multinomial": ([1, 1, 2], [3, 0, 0]),
    "lognormal": (1.7,),
}


def expected_predictives(name, g, x):
    """The textbook predictive of one seen value, and the same by quadrature where the parameter is
    one number."""
    found = after(g)
    match name:
        case "poisson":
            j = int(np.isnan(x[0]))
            a, b = found["calls"][0][0][j], found["calls"][0][1]
            return stats.nbinom(a, b / (b + 1)).logpmf(x[j]), (stats.gamma(a, scale=1 / b),
                                                               lambda p: stats.poisson.pmf(x[j], p))
        case "exponential":
            a, b = found["hazard"][0]
            return stats.lomax(a, scale=b).logpdf(x), (stats.gamma(a, scale=1 / b),
                                                       lambda p: p * np.exp(-p * x))
        case "gamma":
            a, b = found["flow"][0]
            s = SHAPES[g]
            return (stats.betaprime(s, a, scale=b).logpdf(x),
                    (stats.gamma(a, scale=1 / b), lambda p: stats.gamma.pdf(x, s, scale=1 / p)))
        case "geometric":
            a, b = found["luck"][0]
            return special.betaln(a + 1, b + x) - special.betaln(a, b), (stats.beta(a, b),
                                                                         lambda p: (1 - p) ** x * p)
        case "binomial":
            a, b = found["skill"][0]
            return stats.betabinom(5, a, b).logpmf(x), (stats.beta(a, b),
                                                        lambda p: stats.binom.pmf(x, 5, p))
        case "multinomial":
            return stats.dirichlet_multinomial(found["topic"][0][0], int(np.sum(x))).logpmf(x), None
        case "lognormal":
            m, k, a, b, _ = normal_inverse_gamma(
                np.log(animals()["lognormal"][animals()["z"] == g])
            )
            return (stats.t(2 * a, m, np.sqrt(b * (1 + 1 / k) / a)).logpdf(np.log(x)) - np.log(x),
                    None)


def average(posterior, likelihood):
    """∫ p(x | parameter) p(parameter | data) by quadrature."""
    return integrate.quad(lambda p: posterior.pdf(p) * likelihood(p), *posterior.support(),
                          epsabs=1e-12)[0]


def test_predictives_are_those_of_the_textbook_and_of_quadrature():
    rows = [(name, g, x) for name, values in NEW.items() for x in values for g in range(2)]
    width = {"poisson": 2, "multinomial": 3}
    data = {name: np.full((len(rows), width[name]) if name in width else len(rows), nan)
            for name in NEW}
    for i, (name, _, x) in enumerate(rows):
        data[name][i] = x
    classes = np.array([g for _, g, _ in rows])
    got = exact().log_prob({**data, "z": classes}) - np.log(np.where(classes == 1, 0.4, 0.6))
    summed = exact().log_prob(data)
    for i, (name, g, x) in enumerate(rows):
        log, grid = expected_predictives(name, g, x)
        np.testing.assert_allclose(got[i], log, rtol=1e-9, err_msg=name)
        other = expected_predictives(name, 1 - g, x)[0]
        mixed = special.logsumexp([log, other], b=[0.4, 0.6] if g else [0.6, 0.4])
        np.testing.assert_allclose(summed[i], mixed, rtol=1e-9, err_msg=name)
        if grid is not None:
            np.testing.assert_allclose(np.exp(got[i]), average(*grid), rtol=1e-7, err_msg=name)


@pytest.mark.slow
def test_a_predictive_is_the_average_over_draws():
    fit, n = exact(), 256
    each = jax.jit(jax.vmap(lambda p: by_numpyro(p)[0]))(fit.draws(n, seed=0))
    log = special.logsumexp(each, 0) - np.log(n)
    error = np.std(np.exp(each - log), 0) / np.sqrt(n)
    assert (np.abs(np.exp(log - fit.log_prob(animals())) - 1) < 5 * error).all()


@pytest.mark.slow
def test_float32_fits_are_close_to_float64():
    with jax.enable_x64(False):
        single = menagerie().fit(animals(), probml.Exact())
        log = single.log_prob(animals())
    fit = exact()
    np.testing.assert_allclose(single.log_evidence, fit.log_evidence, rtol=1e-4)
    np.testing.assert_allclose(log, fit.log_prob(animals()), rtol=1e-4)
    for name, value in fit.params.items():
        np.testing.assert_allclose(single.params[name], value, rtol=1e-3, err_msg=name)


def test_a_mean_that_is_not_linear_in_its_parameter_is_averaged():
    fit = exact()
    got = fit.predict({"z": [0, 1]}, "exponential")
    exactly = [b / (a - 1) for (a, b), _ in (after(g)["hazard"] for g in range(2))]
    # 256 draws of 1/rate, whose relative spread is about 1/√8: 2% one standard error
    np.testing.assert_allclose(got, exactly, rtol=0.1)
    linearly = fit.predict({"z": [0, 1]}, "binomial")
    np.testing.assert_allclose(
        linearly, [5 * a / (a + b) for (a, b), _ in (after(g)["skill"] for g in range(2))]
    )


# A class of many states, seen in part


@probml.model
def crowd(k: int):
    with plate("class", k):
        rate = sample("rate", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
        skill = sample("skill", dist.Beta(1.0, 1.0))
        topic = sample("topic", dist.Dirichlet(jnp.ones(3)))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.full(k, 1 / k)))
        sample("poisson", dist.Poisson(rate[z]).to_event(1))
        sample("binomial", dist.Binomial(4, skill[z]))
        sample("multinomial", dist.Multinomial(3, topic[z]))


def test_many_classes_seen_in_part_and_unseen_cells_agree_with_enumeration():
    # more than factors.SLICES: every row takes its own slice
    draw, k, n = np.random.default_rng(8), 70, 20
    params = {"rate": draw.gamma(2.0, 1.0, (k, 2)), "skill": draw.random(k),
              "topic": draw.dirichlet(np.ones(3), k)}
    words = draw.multinomial(3, [0.2, 0.3, 0.5], n)
    data = {"poisson": draw.poisson(2, (n, 2)), "binomial": draw.binomial(4, 0.5, n),
            "multinomial": words}
    log = np.full((n, k), -np.log(k))
    counts = stats.poisson(params["rate"]).logpmf(data["poisson"][:, None])
    hide = draw.random((n, 2)) < 0.3
    log += np.where(hide[:, None], 0.0, counts).sum(-1)
    log += np.where(np.arange(n)[:, None] < 5, 0.0,
                    stats.binom(4, params["skill"]).logpmf(data["binomial"][:, None]))
    words = np.stack([stats.multinomial(3, topic).logpmf(data["multinomial"])
                      for topic in params["topic"]], 1)
    log += np.where(np.arange(n)[:, None] >= 15, 0.0, words)
    data = {name: value.astype(float) for name, value in data.items()}
    data["poisson"][hide], data["binomial"][:5], data["multinomial"][15:] = nan, nan, nan
    z = draw.integers(k, size=n)
    part = np.where(np.arange(n) % 3 == 0, nan, z)
    seen, summed = log[np.arange(n), z], special.logsumexp(log, 1)
    fit = crowd(k).at(params)
    np.testing.assert_allclose(fit.log_prob({**data, "z": z}), seen, atol=1e-10)
    np.testing.assert_allclose(fit.log_prob({**data, "z": part}),
                               np.where(np.isnan(part), summed, seen), atol=1e-10)


# Zeros, priors of priors


@probml.model
def counts(k: int, d: int, a: float = 1.0, b: float = 0.01):
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 2.0)))
    with plate("component", k):
        rate = sample("rate", dist.Gamma(a, b).expand([d]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Poisson(rate[z]).to_event(1))


def zeros(n=60):
    draw = np.random.default_rng(4)
    z = draw.integers(2, size=n)
    return draw.poisson(np.array([[0.0, 5.0, 0.0, 1e6], [0.0, 1.0, 4.0, 1.02e6]])[z]).astype(
        float
    ), z


def test_columns_without_a_count_go_to_a_rate_of_0_and_millions_keep_theirs():
    x, z = zeros()
    fit = counts(k=2, d=4).fit({"x": x}, probml.EM(prior=False))
    order = np.argsort(fit.params["rate"][:, 3])
    np.testing.assert_allclose(fit.params["rate"][order],
                               np.stack([x[z == g].mean(0) for g in range(2)]), rtol=1e-9,
                               atol=1e-30)
    assert np.isfinite(fit.log_prob({"x": x})).all()
    assert fit.log_prob({"x": x[:1] + [[1, 0, 0, 0]]})[0] < -60  # a count where none was seen


def test_an_unseen_class_of_counts_keeps_its_rate():
    x, z = zeros()
    fit = counts(k=2, d=4).fit({"x": x, "z": 0 * z}, probml.EM(prior=False))
    np.testing.assert_allclose(fit.params["rate"], [x.mean(0), np.full(4, 100.0)], rtol=1e-9)


def test_a_gamma_prior_below_1_is_maximised_in_the_logarithm():
    x, z = zeros()
    model = counts(k=2, d=4, a=0.5, b=0.5)
    assert "log coordinate" in str(model.explain({"x": x, "z": z}))
    fit = model.fit({"x": x, "z": z}, probml.EM())
    for g in range(2):
        np.testing.assert_allclose(fit.params["rate"][g],
                                   (0.5 + x[z == g].sum(0)) / (0.5 + (z == g).sum()), rtol=1e-9)


@probml.model
def precisions(k: int, a: float):
    with plate("group", k):
        precision = sample("precision", dist.Gamma(a, 1.5))
        mean = sample("mean", dist.Normal(0.0, (2.0 * precision) ** -0.5))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.full(k, 1 / k)))
        sample("x", dist.Normal(mean[z], precision[z] ** -0.5))


def test_a_group_without_rows_keeps_a_gamma_prior_whose_mode_is_on_the_edge():
    fit = precisions(k=2, a=0.5).fit({"x": [0.5, -1.0, 2.0], "z": [0, 0, 0]}, probml.Exact())
    np.testing.assert_allclose([fit.posterior("precision").concentration[1],
                                fit.posterior("precision").rate[1]], [0.5, 1.5], rtol=1e-9)
    expected = stats.t(1.0, 0.0, np.sqrt(1.5 / 0.5 * 1.5)).logpdf([0.3, 4.0]) - np.log(2)
    np.testing.assert_allclose(fit.log_prob({"x": [0.3, 4.0], "z": [1, 1]}), expected, rtol=1e-9)


@probml.model
def partially_pooled(k: int):
    """Rates of groups around a rate that is unknown itself."""
    slow = sample("slow", dist.Gamma(2.0, 1.0))
    with plate("group", k):
        rate = sample("rate", dist.Gamma(3.0, slow))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.full(k, 1 / k)))
        sample("x", dist.Poisson(rate[z]))


def test_a_rate_in_the_prior_of_rates_is_maximised_in_turn_and_refused_by_exact():
    x, z = np.array([1, 4, 2, 0, 6, 3]), np.array([0, 1, 2, 0, 1, 2])
    with pytest.raises(probml.Refusal, match="prior of 'rate' depends on parameter 'slow'"):
        partially_pooled(k=3).fit({"x": x, "z": z}, probml.Exact())
    # a joint mode, asked for by name
    fit = partially_pooled(k=3).fit({"x": x, "z": z}, probml.EM(tolerance=1e-14))
    assert fit.converged
    slow, rate = fit.params["slow"], fit.params["rate"]
    total, n = np.bincount(z, x), np.bincount(z)
    np.testing.assert_allclose(rate, (3 - 1 + total) / (slow + n), rtol=1e-5)
    np.testing.assert_allclose(slow, (2 - 1 + 3 * 3) / (1 + rate.sum()), rtol=1e-5)


# Counts of words


@probml.model
def texts(k: int, d: int, length):
    share = sample("share", dist.Dirichlet(jnp.full(k, 2.0)))
    with plate("topic", k):
        words = sample("words", dist.Dirichlet(jnp.full(d, 1.1)))
    with probml.rows():
        z = sample("z", dist.Categorical(share))
        sample("x", dist.Multinomial(length, words[z], total_count_max=80))


@functools.lru_cache
def library():
    truth = texts(k=2, d=4).at({"share": np.array([0.4, 0.6]),
                                "words": np.array([[0.6, 0.2, 0.1, 0.1], [0.1, 0.1, 0.3, 0.5]])})
    length = np.random.default_rng(5).integers(5, 80, 100)
    return {**truth.simulate(length=length, seed=0), "length": length}


def test_lengths_of_texts_are_an_input_that_does_not_stand_in_the_way():
    data = library()
    # simulated with the model's own total
    np.testing.assert_array_equal(data["x"].sum(1), data["length"])
    data, z = {name: data[name] for name in ("x", "length")}, data["z"]
    model = texts(k=2, d=4)
    assert "closed form" in str(model.explain(data)) and "on all rows" not in str(
        model.explain(data)
    )
    fit = model.fit(data)
    assert fit.converged
    found = fit.predict(data)
    assert max((found == z).mean(), (found != z).mean()) > 0.95
    np.testing.assert_allclose(fit.predict({"length": [3], "z": [0]}, "x", plug_in=True),
                               3 * fit.params["words"][:1], rtol=1e-5)


@probml.model
def bursty(d: int):
    with plate("topic", 2):
        words = sample("words", dist.Gamma(2.0, 1.0).expand([d]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Bernoulli(0.4))
        sample("x", dist.DirichletMultinomial(words[z], 20))


@pytest.mark.slow
def test_a_dirichlet_multinomial_is_fitted_row_by_row():
    draw, words = np.random.default_rng(7), np.array([[4.0, 1.0, 0.5], [0.5, 1.0, 4.0]])
    z = (draw.random(80) < 0.4).astype(int)
    x = np.array([draw.multinomial(20, draw.dirichlet(words[c])) for c in z])
    fit = bursty(d=3).fit({"x": x}, probml.EM(),
                          start={"words": np.array([[2.0, 1.0, 1.0], [1.0, 1.0, 2.0]])})
    assert fit.converged and fit.history[-1] > bursty(d=3).at({"words": words}).log_joint({"x": x})
    density = [[stats.dirichlet_multinomial(a, 20).logpmf(row) for a in fit.params["words"]]
               for row in x]
    expected = special.softmax(np.array(density) + np.log([0.6, 0.4]), 1)
    np.testing.assert_allclose(fit.predict_proba({"x": x}), expected, atol=1e-10)
    assert (expected.argmax(1) == z).mean() > 0.8


@probml.model
def trials(n):
    p = sample("p", dist.Beta(1.0, 1.0))
    with probml.rows():
        sample("hits", dist.Binomial(n, p))


def test_trials_may_differ_from_row_to_row():
    hits, n = np.array([2, 0, 5, 3]), np.array([3, 1, 9, 4])
    posterior = trials().fit({"hits": hits, "n": n}, probml.Exact()).posterior("p")
    np.testing.assert_allclose([posterior.concentration1, posterior.concentration0],
                               [1 + 10, 1 + 7], rtol=1e-9)


@probml.model
def exposed(exposure):
    rate = sample("rate", dist.Gamma(2.0, 0.5))
    with probml.rows():
        sample("x", dist.Poisson(exposure * rate))


def test_an_exposure_scales_a_rate_row_by_row():
    x, time = np.array([2, 0, 5, 3]), np.array([0.5, 1.0, 4.0, 1.5])
    fit = exposed().fit({"x": x, "exposure": time}, probml.Exact())
    np.testing.assert_allclose([fit.posterior("rate").concentration, fit.posterior("rate").rate],
                               [2 + 10, 0.5 + 7], rtol=1e-9)
    before, after = stats.gamma(2.0, scale=2.0), stats.gamma(12.0, scale=1 / 7.5)
    expected = stats.poisson(time * 2.0).logpmf(x).sum() + before.logpdf(2.0) - after.logpdf(2.0)
    np.testing.assert_allclose(fit.log_evidence, expected, rtol=1e-9)


# Refusals


@probml.model
def single(family: str):
    p = sample("p", dist.Beta(1.0, 1.0))
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    words = sample("words", dist.Dirichlet(jnp.ones(3)))
    with probml.rows():
        match family:
            case "Poisson":
                sample("x", dist.Poisson(rate))
            case "Exponential":
                sample("x", dist.Exponential(rate))
            case "Gamma":
                sample("x", dist.Gamma(2.0, rate))
            case "LogNormal":
                sample("x", dist.LogNormal(0.0, rate))
            case "Geometric":
                sample("x", dist.Geometric(p))
            case "Beta":
                sample("x", dist.Beta(rate, 2.0))
            case "Binomial":
                sample("x", dist.Binomial(5, p))
            case "Binomials":
                sample("x", dist.Binomial(jnp.array([5, 2]), p * jnp.ones(2)).to_event(1))
            case "Multinomial":
                sample("x", dist.Multinomial(5, words))


BAD = {
    "a negative Poisson count": ("Poisson", [1, -2], "count.*-2.*row 1"),
    "half a Poisson count": ("Poisson", [1, 2.5], "count.*2.5.*row 1"),
    "a negative Exponential": ("Exponential", [1.0, -1.0], "zero or positive.*-1.0.*row 1"),
    "a Gamma of 0": ("Gamma", [1.0, 0.0], "positive.*0.0.*row 1"),
    "a LogNormal of 0": ("LogNormal", [nan, 1.0, 0.0], "positive.*0.0.*row 2"),
    "a negative Geometric count": ("Geometric", [1, -1], "count.*-1.*row 1"),
    "half a Geometric count": ("Geometric", [0.5, 1], "count.*0.5.*row 0"),
    "a Beta of 0": ("Beta", [0.5, 0.0], "between 0 and 1.*0.0.*row 1"),
    "a Beta of 1": ("Beta", [0.5, 1.0], "between 0 and 1.*1.0.*row 1"),
    "a Beta above 1": ("Beta", [0.5, nan, 1.5], "between 0 and 1.*1.5.*row 2"),
    "more successes than trials": ("Binomial", [1, 6], "0 to 5.*total_count.*6.*row 1"),
    "half a success": ("Binomial", [1, 0.5], "count.*0.5.*row 1"),
    "more successes than the trials of its cell": ("Binomials", [[1, 2], [5, 3]],
                                                   "total_count.*3.*row 1.*cell 1"),
    "half a word": ("Multinomial", [[1, 2, 2.5], [1, 2, 2]], "count.*2.5.*row 0.*cell 2"),
    "a negative count of words": ("Multinomial", [[1, 2, 2], [5, 1, -1]],
                                  "count.*-1.*row 1.*cell 2"),
    "a text read in part": ("Multinomial", [[1, 2, 2], [5, 1, nan]], "has observed and missing elements in row 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_data_outside_the_support_are_refused_by_name_row_and_value(case):
    family, x, message = BAD[case]
    with pytest.raises((probml.DataError, probml.Refusal), match=f"'x'.*{message}"):
        single(family).fit({"x": x}, probml.MAP())
