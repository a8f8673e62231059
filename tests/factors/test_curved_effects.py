"""Effects of groups under counts and choices: the integral over them and its gradient, against
quadrature and Laplace's approximation of the joint density written down without any structure."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import integrate, optimize, stats

import probml
from probml.dataset import read
from probml.device import load
from probml.evidence import density, e_step, random_effects
from probml.factors.random_effects import information
from probml.plan import groupings
from probml.plan.random_effects import effects as integrable

N = 24


@probml.model
def counts(group, x, groups: int):
    """A number a group, under counts; a normal site reads it too."""
    mu, tau = sample("mu", dist.Normal(0.0, 5.0)), sample("tau", dist.HalfNormal(2.0))
    beta, noise = sample("beta", dist.Normal(0.0, 5.0)), sample("noise", dist.HalfNormal(2.0))
    with plate("group", groups):
        alpha = sample("alpha", dist.Normal(mu, tau))
    with probml.rows():
        sample("y", dist.Poisson(jnp.exp(alpha[group] + beta * x)))
        sample("t", dist.Normal(alpha[group], noise))


@probml.model
def choices(group, item, x, groups: int, items: int):
    """A line a group and a number an item, under successes of three trials."""
    level = sample("level", dist.Normal(0.0, 5.0))
    wide = sample("wide", dist.HalfNormal(2.0).expand([2]).to_event(1))
    spread = sample("spread", dist.HalfNormal(2.0))
    with plate("group", groups):
        turn = jnp.array([[1.0, 0.0], [0.4, 0.8]])
        line = sample("line", dist.MultivariateNormal(level * jnp.array([1.0, 0.2]),
                                                      scale_tril=wide[:, None] * turn))
    with plate("item", items):
        hard = sample("hard", dist.Normal(0.3, spread))
    with probml.rows():
        own = line[group]
        sample("y", dist.Binomial(3, logits=own[..., 0] + own[..., 1] * x - hard[item]))


RNG = np.random.default_rng(0)
TABLE = {"group": RNG.integers(0, 4, N), "item": RNG.integers(0, 3, N), "x": RNG.normal(size=N)}
COUNTED = {"group": TABLE["group"], "x": TABLE["x"], "t": np.where(np.arange(N) % 3, np.nan,
                                                                   RNG.normal(size=N)),
           "y": np.where(np.arange(N) == 5, np.nan, RNG.poisson(2.0, N))}
CHOSEN = {**TABLE, "y": RNG.integers(0, 4, N)}
AT = {"mu": 0.4, "tau": 0.7, "beta": 0.3, "noise": 0.8}
THERE = {"level": 0.7, "wide": np.array([1.2, 0.5]), "spread": 0.9}


def loaded(model, table, nodes=None):
    held = read.read(model, table)
    plan = held.plan(effects=integrable(held.plan(), N, closed=False), nodes=nodes)
    return plan, *load.load(held, plan)


def evidence(plan, rows, known, params):
    at = {name: jnp.asarray(value) for name, value in params.items()}
    return float(jax.jit(lambda at: e_step.log_evidence(plan, at, known, rows))(at))


def of_group(g, a):
    """log p(rows of group g, its effect), the effect at a."""
    mine = TABLE["group"] == g
    y, t = COUNTED["y"][mine], COUNTED["t"][mine]
    rate = np.exp(a + AT["beta"] * TABLE["x"][mine])
    return (np.nansum(stats.poisson.logpmf(y, rate)) + np.nansum(stats.norm.logpdf(
        t, a, AT["noise"])) + stats.norm.logpdf(a, AT["mu"], AT["tau"]))


def brute_force():
    """Σ over groups of the log of an integral by SciPy."""
    total = 0.0
    for g in range(4):
        top = optimize.minimize_scalar(lambda a, g=g: -of_group(g, a))
        total += np.log(integrate.quad(lambda a, g=g, top=top: np.exp(of_group(g, a) + top.fun),
                                       -8, 8, epsabs=1e-13, points=[top.x])[0]) - top.fun
    return total


def laplace(joint, size):
    """Laplace's approximation of the log integral of exp joint."""
    joint, up, bend = (jax.jit(f) for f in (joint, jax.grad(lambda u: -joint(u)),
                                            jax.hessian(lambda u: -joint(u))))
    top = optimize.minimize(lambda u: -float(joint(u)), np.zeros(size), jac=lambda u: np.asarray(
        up(u)), method="BFGS", options={"gtol": 1e-9}).x
    for _ in range(3):
        top = top - np.linalg.solve(bend(top), up(top))
    curve = np.asarray(bend(top))
    return float(joint(top)) + 0.5 * size * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(curve)[1], top


def all_choices(u):
    """log p(rows, effects), effects the lines of four groups and three items' numbers."""
    line, hard = u[:8].reshape(4, 2), u[8:]
    turn = jnp.asarray(THERE["wide"])[:, None] * jnp.array([[1.0, 0.0], [0.4, 0.8]])
    own = line[TABLE["group"]]
    eta = own[:, 0] + own[:, 1] * TABLE["x"] - hard[TABLE["item"]]
    return (dist.MultivariateNormal(THERE["level"] * jnp.array([1.0, 0.2]), scale_tril=turn)
            .log_prob(line).sum() + dist.Normal(0.3, THERE["spread"]).log_prob(hard).sum()
            + dist.Binomial(3, logits=eta).log_prob(CHOSEN["y"]).sum())


@pytest.fixture(scope="module")
def counted():
    return loaded(counts(groups=4), COUNTED)


@pytest.fixture(scope="module")
def chosen():
    return loaded(choices(groups=4, items=3), CHOSEN)


def test_effects_under_counts_are_integrated_by_quadrature(counted):
    plan, rows, known = counted
    assert plan.effects == ("alpha",) and set(plan.grouped) == {"y", "t"}
    assert plan.groupings[0].nodes == groupings.NODES
    assert evidence(plan, rows, known, AT) == pytest.approx(brute_force(), abs=1e-8)


def test_one_node_is_laplace():
    plan, rows, known = loaded(counts(groups=4), COUNTED, nodes=1)
    want = 0.0
    for g in range(4):
        mine = TABLE["group"] == g
        y, t, x = COUNTED["y"][mine], COUNTED["t"][mine], TABLE["x"][mine]
        seen = ~np.isnan(y), ~np.isnan(t)

        def joint(a, y=y, t=t, x=x, seen=seen):
            rate = jnp.exp(a[0] + AT["beta"] * x)
            rows = jnp.where(seen[0], dist.Poisson(rate).log_prob(np.nan_to_num(y)), 0.0).sum()
            more = dist.Normal(a[0], AT["noise"]).log_prob(np.nan_to_num(t))
            return rows + jnp.where(seen[1], more, 0.0).sum() + dist.Normal(
                AT["mu"], AT["tau"]).log_prob(a[0])

        want += laplace(joint, 1)[0]
    assert evidence(plan, rows, known, AT) == pytest.approx(want, abs=1e-8)


def test_effects_of_two_groupings_are_integrated_by_laplace(chosen):
    plan, rows, known = chosen
    assert set(plan.effects) == {"line", "hard"}
    assert [part.nodes for part in plan.groupings] == [1, 1]
    want, top = laplace(all_choices, 11)
    assert evidence(plan, rows, known, THERE) == pytest.approx(want, abs=1e-8)
    at = {name: jnp.asarray(value) for name, value in THERE.items()}
    noise, _ = jax.jit(lambda at: random_effects.find_mode(
        random_effects.density_of_rows(plan, at, known, rows.total)))(at)
    mode = information.effects_at(plan, information.compute_prior(plan, at, known), noise)
    np.testing.assert_allclose(np.concatenate([np.ravel(mode["line"]), mode["hard"]]), top,
                               atol=1e-7)


@pytest.mark.parametrize("which", ["quadrature", pytest.param("Laplace", marks=pytest.mark.slow),
                                   "two groupings"])
def test_gradients_are_those_of_the_evidence(which, counted, chosen):
    if which == "two groupings":
        (plan, rows, known), params = chosen, THERE
    else:
        params = AT
        plan, rows, known = counted if which == "quadrature" else loaded(counts(groups=4), COUNTED,
                                                                         nodes=1)
    at = density.to_unbounded(plan, {name: jnp.asarray(value) for name, value in params.items()}, known)
    both = jax.jit(lambda u: density.value_and_gradient(
        plan, lambda u: density.from_unbounded(plan, u, known), u, known, rows))
    value, gradient = both(at)
    assert np.isfinite(value)
    for i in range(len(at)):
        step = 1e-5 * np.eye(len(at))[i]
        change = (both(at + step)[0] - both(at - step)[0]) / 2e-5
        assert gradient[i] == pytest.approx(float(change), abs=2e-6 * (1 + abs(float(change))))


@probml.model
def wandering(t):
    """A walk outside rows, which they read by an index, under counts."""
    scale = sample("scale", dist.HalfNormal(1.0))
    walk = sample("walk", dist.GaussianRandomWalk(scale, 5))
    with probml.rows():
        sample("y", dist.Poisson(jnp.exp(0.5 + walk[t])))


def test_a_random_walk_outside_rows_is_an_effect():
    t, y = np.arange(N) % 5, RNG.poisson(2.0, N)
    plan, rows, known = loaded(wandering(), {"t": t, "y": y})
    assert plan.effects == ("walk",) and plan.groupings[0].nodes == 1

    def joint(u):
        return (dist.GaussianRandomWalk(0.6, 5).log_prob(u)
                + dist.Poisson(jnp.exp(0.5 + u[t])).log_prob(y).sum())

    assert evidence(plan, rows, known, {"scale": 0.6}) == pytest.approx(laplace(joint, 5)[0],
                                                                        abs=1e-8)


def test_chunks_add_up(chosen):
    plan, rows, known = chosen
    several = jax.tree.map(lambda leaf: leaf.reshape(2, -1, *leaf.shape[2:]), rows)
    assert evidence(plan, several, known, THERE) == pytest.approx(
        evidence(plan, rows, known, THERE), abs=1e-9)


# sites of a row at eta = own[group] + 0.3 x, and c of log p = a + b eta − k exp(c eta); None: none
KINDS = {
    "counts": (lambda eta, x, k: dist.Poisson(jnp.exp(eta)), 1),
    "counts, exposed": (lambda eta, x, k: dist.Poisson(jnp.exp(x) * jnp.exp(eta)), 1),
    "waits": (lambda eta, x, k: dist.Exponential(jnp.exp(eta)), 1),
    "waits by mean": (lambda eta, x, k: dist.Gamma(k, k / jnp.exp(eta)), -1),
    "inverse": (lambda eta, x, k: dist.InverseGamma(k, jnp.exp(eta)), 1),
    "deviations": (lambda eta, x, k: dist.Normal(x, jnp.exp(eta)), -2),
    "squared waits": (lambda eta, x, k: dist.Weibull(jnp.exp(eta), 2.0), -2),
    "two counts": (lambda eta, x, k: dist.Poisson(
        jnp.exp(eta)[..., None] * jnp.array([1.0, 2.0])).to_event(1), 1),
    "waits of one shape": (lambda eta, x, k: dist.Weibull(jnp.exp(eta), k), None),
    "slopes": (lambda eta, x, k: dist.Poisson(jnp.exp(eta * x)), None),
    "overdispersed": (lambda eta, x, k: dist.NegativeBinomial2(jnp.exp(eta), k), None),
    "many zeros": (lambda eta, x, k: dist.ZeroInflatedPoisson(0.3, jnp.exp(eta)), None),
    "choices": (lambda eta, x, k: dist.Bernoulli(1 - jnp.exp(-jnp.exp(eta))), None),
    "means": (lambda eta, x, k: dist.StudentT(5.0, eta, 1.0), None),
}


@probml.model
def of_kind(group, x, kind):
    level, sd = sample("level", dist.Normal(0.0, 2.0)), sample("sd", dist.HalfNormal(1.0))
    k = sample("k", dist.LogNormal(0.0, 1.0))
    with plate("group", 4):
        own = sample("own", dist.Normal(level, sd))
    with probml.rows():
        sample("y", KINDS[kind][0](own[group] + 0.3 * x, x, k))


@pytest.mark.parametrize("kind", [kind if kind in ("counts", "deviations", "slopes") else
                                  pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS])
def test_exponential_log_densities_of_members_are_found_and_need_one_pass(kind):
    """The same evidence, gradient, modes and check of the nodes as by passes over the rows, of
    weighted rows with missing cells in several chunks."""
    y = np.abs(RNG.normal(size=N)) + 0.1
    if "counts" in kind or kind in ("slopes", "overdispersed", "many zeros", "choices"):
        y = np.minimum(RNG.poisson(2.0, N), 1 if kind == "choices" else 9).astype(float)
    y = np.where(np.arange(N) == 7, np.nan, y)
    y = np.stack([y, y + 1], 1) if kind == "two counts" else y
    plan, rows, known = loaded(of_kind(kind=kind), {"group": TABLE["group"], "x": TABLE["x"], "y": y})
    assert plan.groupings[0].exponent == KINDS[kind][1]
    if KINDS[kind][1] is None:
        return
    rows = jax.tree.map(lambda leaf: leaf.reshape(2, -1, *leaf.shape[2:]), rows)
    passes = replace(plan, groupings=(replace(plan.groupings[0], exponent=None),))
    at = {"level": jnp.asarray(0.3), "sd": jnp.asarray(0.8), "k": jnp.asarray(1.7)}
    u = density.to_unbounded(plan, at, known)

    def found(plan):
        return jax.jit(lambda u: (
            density.value_and_gradient(plan, lambda u: density.from_unbounded(plan, u, known), u,
                                       known, rows),
            e_step.log_evidence(plan, at, known, rows),
            jax.jacfwd(lambda u: random_effects.conditional_means(
                plan, density.from_unbounded(plan, u, known)[0], known, rows.total))(u),
            random_effects.member_evidences(plan, at, known, rows.total),
            random_effects.quadrature_gain(plan, at, known, rows.total, 41)))(u)

    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8),
                 found(plan), found(passes))


@pytest.mark.parametrize("kind", ["counts", "waits", "waits by mean", "deviations"])
def test_rounding_makes_no_density_high_far_out(kind):
    """In float32, where b of b δ − k exp(c δ) is the rounding of a difference."""
    def found(double):
        with jax.enable_x64(double):
            plan, rows, known = loaded(of_kind(kind=kind), {
                "group": TABLE["group"], "x": TABLE["x"], "y": np.full(N, 2.0)})
            program = jax.jit(lambda level: jax.vmap(lambda level: e_step.log_evidence(
                plan, {"level": level, "sd": jnp.asarray(4.0), "k": jnp.asarray(1.0)}, known, rows))(level))
            return np.asarray(program(jnp.linspace(-40.0, 40.0, 33)), float)

    right, rounded = found(True), found(False)
    assert not (rounded > right + 5).any()


def test_a_rate_that_rounds_to_zero_is_no_likely_one():
    """exp(−1000) of a member with counts: its rate is lost, and with it how high its rows rise."""
    plan, rows, known = loaded(of_kind(kind="counts"), {
        "group": TABLE["group"], "x": TABLE["x"], "y": np.ones(N)})
    for level in (-700.0, -1000.0):
        assert not evidence(plan, rows, known, {"level": level, "sd": 1.0, "k": 1.0}) > -1e3
