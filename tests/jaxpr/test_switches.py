"""Discrete sites outside rows with many states, such as change points: every answer is that of
enumeration, at a cost linear in them."""

import io
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from scipy.special import gammaln, logsumexp
from scipy.stats import poisson

import probml
from probml.dataset import read
from probml.device import load
from probml.engines import progress as run
from probml.engines import progress as running
from probml.evidence import density
from probml.numerics.compiling import jit
from probml.plan import plan

T = np.arange(12)
Y = np.array([4, 5, 4, 1, 6, 3, 1, 0, 1, 2, 0, 1])
DATA = {"t": T, "y": Y}


def change_point(rate, states=12, later=False, hidden=False):
    """A model whose rates are rate(t, tau, a, b[, second change point or hidden state])."""

    def function(t):
        a, b = sample("a", dist.Exponential(0.5)), sample("b", dist.Exponential(0.5))
        more = [sample("tau", dist.DiscreteUniform(1, states))]
        if later:
            more.append(sample("later", dist.Categorical(jnp.arange(1.0, 6.0) / 15)))
        with probml.rows():
            if hidden:
                more.append(sample("z", dist.Bernoulli(0.3)))
            sample("y", dist.Poisson(rate(t, a, b, *more)))

    return probml.model(function)()


PROGRAMS = {  # name: (rate, switches, more)
    "where": (lambda t, a, b, tau: jnp.where(t < tau, a, b), 1, {}),
    "an index": (lambda t, a, b, tau: jnp.array([a, b])[(t >= tau).astype(int)], 1, {}),
    "a jump": (lambda t, a, b, tau: a + (t >= tau) * b, 1, {}),
    "twice the same": (lambda t, a, b, tau: jnp.where(t < tau, a, b) + jnp.where(t < tau, b, 2 * a),
                       1, {}),
    "an interval": (lambda t, a, b, tau: jnp.where((t < tau) & (t > tau - 4), a, b), 1, {}),
    "two sites": (lambda t, a, b, tau, later: jnp.array(
        [a, b, a + b]
    )[(t >= tau).astype(int) + (t >= 7 + later)], 2, {"later": True}),
    "a hidden state": (lambda t, a, b, tau, z: jnp.where(t < tau, a, b) * (1.0 + 2.0 * z), 1,
                       {"hidden": True}),
    "one of two": (lambda t, a, b, tau, later: jnp.where(t < tau, a, b * (1.0 + later)), 1,
                   {"later": True}),
    "a slope": (lambda t, a, b, tau: a + b * jnp.maximum(t - tau, 0), 0, {}),
    "a comparison with a parameter": (lambda t, a, b, tau: jnp.where(t < tau * a, a, b), 0, {}),
}


# each is a program to compile
SLOW = ("an index", "a jump", "twice the same", "one of two", "a comparison with a parameter")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
                                  for name in PROGRAMS])
def test_the_density_and_its_gradient_are_those_of_enumeration(name, monkeypatch):
    rate, count, more = PROGRAMS[name]
    model, at = change_point(rate, **more), {"a": jnp.asarray(3.5), "b": jnp.asarray(1.2)}
    held = read.read(model, DATA)
    made = held.plan()
    assert [len(found.compared) for found in made.switches.values()] == ([count] if count else [])
    seen = {k: jnp.asarray(v) for k, v in DATA.items()}

    def logs_at(at, others):
        """log p(y | everything), a row at a time, as the site's program sees it."""

        def one(t, y):
            return dist.Poisson(rate(t[None], at["a"], at["b"], *others)).log_prob(y)[0]

        return jax.vmap(one)(seen["t"], seen["y"])

    @jax.jit
    def by_hand(at):
        terms = []
        for tau in range(1, 13):
            for i in range(5 if "later" in more else 1):
                others = (tau, i) if "later" in more else (tau,)
                logs = (
                    logs_at(at, others)
                    if "hidden" not in more
                    else jnp.logaddexp(jnp.log(0.7) + logs_at(at, (*others, 0)),
                                       jnp.log(0.3) + logs_at(at, (*others, 1)))
                )
                terms.append(
                    logs.sum() - jnp.log(12.0) + (jnp.log((i + 1) / 15) if "later" in more else 0.0)
                )
        return jax.nn.logsumexp(jnp.stack(terms)) + sum(dist.Exponential(0.5).log_prob(v)
                                                        for v in at.values())

    value, slope = jax.jit(jax.value_and_grad(by_hand))(at)
    for size in (16, 4):
        monkeypatch.setattr(plan.Plan, "chunk_rows", lambda self, copies=1, size=size: size)
        rows, known = load.load(held, made)
        assert (rows.weights.shape[0] > 1) == (size == 4)
        found = jax.jit(lambda u, known, rows: density.value_and_gradient(
            made, lambda u: (u, 0.0), u, known, rows
        ))(at, known, rows)
        np.testing.assert_allclose(found[0], value, rtol=1e-5)
        np.testing.assert_allclose([found[1]["a"], found[1]["b"]], [slope["a"], slope["b"]],
                                   rtol=2e-4, atol=1e-4)


def test_every_comparison_has_its_own_side_where_numbers_are_equal():
    compare = [jnp.less, jnp.less_equal, jnp.greater, jnp.greater_equal]
    turned = [lambda t, tau, f=f: f(tau, t) for f in compare] + [
        lambda t, tau, f=f: f(tau / 2.0, t - 1) for f in compare
    ]

    @probml.model
    def compared(t):
        a, b = sample("a", dist.Exponential(0.5)), sample("b", dist.Exponential(0.5))
        tau = sample("tau", dist.DiscreteUniform(1, 40))
        with probml.rows():
            for i, f in enumerate([*compare, *turned]):
                sample(f"y{i}", dist.Poisson(jnp.where(f(t, tau), a, b)))

    times = np.array([3, 3, 1, 7, 12, 3, 40, 40, 0])
    data = {f"y{i}": np.random.default_rng(i).poisson(2.0, 9) for i in range(12)}
    model, want = compared(), np.zeros(40)
    made = read.read(model, {"t": times, **data}).plan()
    assert len(made.ordered) == 12 and not made.without_ordered.row_globals
    for k, tau in enumerate(range(1, 41)):
        for i, f in enumerate([*compare, *turned]):
            want[k] += poisson.logpmf(data[f"y{i}"], np.where(f(times, tau), 3.5, 1.2)).sum()
    prior = 2 * np.log(0.5) - 0.5 * (3.5 + 1.2)
    got = model.log_density({"t": times, **data}, {"a": 3.5, "b": 1.2})
    np.testing.assert_allclose(got, logsumexp(want) - np.log(40) + prior, rtol=1e-5)


def grid():
    """The posterior of PROGRAMS["where"] by hand: of tau its probabilities, of a and b the means (a
    Gamma each, given tau)."""

    # log ∫ Exponential(a; 1/2) Π Poisson(y | a) da but for a constant, and the mean of a
    def one(y):
        shape, rate = 1 + y.sum(), 0.5 + len(y)
        return gammaln(shape) - shape * np.log(rate), shape / rate

    parts = [(one(Y[T < tau]), one(Y[T >= tau])) for tau in range(1, 13)]
    logs = np.array([early[0] + late[0] for early, late in parts])
    probs = np.exp(logs - logsumexp(logs))
    return probs, [float(probs @ [part[i][1] for part in parts]) for i in (0, 1)]


@pytest.mark.slow
def test_nuts_finds_the_year_and_the_rates():
    probs, means = grid()
    fit = change_point(PROGRAMS["where"][0]).fit(DATA, probml.NUTS(draws=500, warmup=300), seed=0)
    draws = fit.draws(2000, seed=0)
    np.testing.assert_allclose([draws["a"].mean(), draws["b"].mean()], means, rtol=0.05)
    np.testing.assert_allclose(fit.posterior("tau").probs, probs, atol=0.03)
    np.testing.assert_allclose(np.bincount(np.asarray(draws["tau"], int), minlength=13)[1:] / 2000,
                               probs, atol=0.05)


def test_em_ends_at_the_mode_of_the_density():
    model = change_point(PROGRAMS["where"][0])
    fit = model.fit(DATA, probml.EM(restarts=3, tolerance=1e-9), seed=0)
    at = {"a": fit.params["a"], "b": fit.params["b"]}
    here = float(model.log_density(DATA, at))
    for name in at:
        for factor in (0.97, 1.03):
            assert float(model.log_density(DATA, {**at, name: at[name] * factor})) < here


def test_the_cost_is_linear_in_the_states():
    costs = []
    for states in (100, 400):
        # no switches: every row at every state
        model = change_point(PROGRAMS["a slope"][0], states)
        held = read.read(model, DATA)
        rows, known = load.load(held, held.plan())
        made = held.plan()
        program = jax.jit(lambda u, known, rows, made=made: density.log_posterior(made, known, rows)(u))
        found = program.lower(jnp.zeros(2), known, rows).compile().cost_analysis()
        costs.append((found[0] if isinstance(found, list) else found)["flops"])
    assert costs[1] < 5 * costs[0]


def test_states_behind_switches_cost_no_density_each():
    costs = {}
    for name in ("where", "a slope"):
        held = read.read(change_point(PROGRAMS[name][0], 400), DATA)
        made = held.plan()
        rows, known = load.load(held, made)
        program = jax.jit(lambda u, known, rows, made=made: density.log_posterior(made, known, rows)(u))
        found = program.lower(jnp.zeros(2), known, rows).compile().cost_analysis()
        costs[name] = (found[0] if isinstance(found, list) else found).get("transcendentals", 0.0)
    assert costs["where"] < 0.2 * costs["a slope"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_long_run_shows_a_bar_where_somebody_looks_on_and_lines_elsewhere(monkeypatch):
    for watched, drawn in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(run, "DELAY", 0.05)
        monkeypatch.setattr(sys, "stderr", watched)
        with running.Progress("NUTS", 100, False) as bar:
            time.sleep(0.4)
            assert (bar.bar is not None) == drawn
        assert "NUTS" in watched.getvalue() and "preparing" in watched.getvalue()
        assert ("0/100" in watched.getvalue()) == ("\r" in watched.getvalue()) == drawn
    monkeypatch.setattr(run, "DELAY", 10.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with running.Progress("NUTS", 100, False) as bar:  # a short one stays silent
        bar.advance(100, 1.0)
    assert sys.stderr.getvalue() == ""


def test_iterations_without_an_objective_show_none(monkeypatch):
    monkeypatch.setattr(run, "DELAY", 0.05)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with running.Progress("check", 100, False) as bar:
        bar.advance(14)
        time.sleep(0.2)
    assert "check: 14 of at most 100 iterations; 0 s so far" in sys.stderr.getvalue()


def test_work_within_work_shows_one_bar_and_does_not_begin_its_ten_seconds_anew(monkeypatch):
    monkeypatch.setattr(run, "DELAY", 0.5)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with running.Progress("Laplace", None, False) as outer:
        time.sleep(0.3)
        with running.Progress("EM", 100, False) as inner:
            time.sleep(0.4)  # 0.7 s of the whole
            assert inner.bar is not None and outer.bar is None
        assert "EM" in sys.stderr.getvalue() and "Laplace" not in sys.stderr.getvalue()
        time.sleep(0.8)
        assert "Laplace: 00:0" in sys.stderr.getvalue() and "working" in sys.stderr.getvalue()
        with running.Progress("EM", 100, True):  # asked for: at once, in the other's place
            assert outer.bar is None
        assert outer.bar is not None
    assert outer.bar.disable and running.Progress._open.innermost is None


def test_what_compiles_for_long_says_so_where_somebody_looks_on(monkeypatch):
    monkeypatch.setattr(run, "COMPILING", 0.1)
    monkeypatch.setattr(sys, "stderr", Terminal())

    @jit
    def slowly_traced(x):
        time.sleep(0.5)
        return 2 * x

    with running.Progress("EM", None, False) as bar:
        bar.about = "150 × 4"
        time.sleep(0.3)
        assert sys.stderr.getvalue() == ""
        assert slowly_traced(1.5) == 3.0
        assert "compiling EM for 150 × 4, once" in sys.stderr.getvalue()
        time.sleep(0.3)
        assert "working" in sys.stderr.getvalue()
    monkeypatch.setattr(sys, "stderr", Terminal())
    with running.Progress("EM", None, False):
        slowly_traced(2.5)  # no more
        time.sleep(0.3)
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize("engine", [probml.Laplace(), probml.Exact()], ids=["Laplace", "Exact"])
def test_engines_that_count_nothing_show_a_clock(engine, monkeypatch):
    @probml.model
    def normal():
        mean = sample("mean", dist.Normal(0.0, 10.0))
        with probml.rows():
            sample("y", dist.Normal(mean, 1.0))

    true = type(engine).run

    def slow(self, *args):
        time.sleep(0.3)
        return true(self, *args)

    monkeypatch.setattr(type(engine), "run", slow)
    monkeypatch.setattr(run, "DELAY", 0.1)
    monkeypatch.setattr(sys, "stderr", Terminal())
    normal().fit({"y": T[:4] / 3}, engine)
    assert f"{type(engine).__name__}: 00:0" in sys.stderr.getvalue()
