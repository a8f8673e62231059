"""What a function computes without its arguments is computed once, before a loop that calls it; its
values, and those of densities and their gradients, stay."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.dataset.read import read
from probml.device import load
from probml.engines.engine import planned, refusal
from probml.evidence import density
from probml.evidence.random_effects import density_of_rows, find_mode
from probml.interface.functions.read_function import read_function
from probml.jaxpr.hoisting import hoisted
from probml.jaxpr.program import bodies
from user_models import CASES

X = np.linspace(0.3, 2.0, 512).reshape(4, 128)


def operations(closed, looped=False, inside=None, entries=0):
    """The primitives of a program with results of so many entries, and whether a `while` runs them.
    """
    found = collections.Counter() if inside is None else inside
    for eqn in closed.jaxpr.eqns:
        found[eqn.primitive.name, looped] += any(
            np.prod(var.aval.shape) >= entries for var in eqn.outvars)
        for body in bodies(eqn):
            operations(body, looped or eqn.primitive.name == "while", found, entries)
    return found


def in_a_loop(function, start, x):
    """A program that calls function(x) → (argument → value), hoisted, ten times."""
    def run(start, x):
        once = hoisted(function(x), start)
        return jax.lax.while_loop(lambda held: held[0] < 10,
                                  lambda held: (held[0] + 1, 0.5 * once(held[1])), (0, start))[1]

    found = operations(jax.make_jaxpr(run)(start, x))
    return {name for name, looped in found if looped}, jax.jit(run)(start, x)


def scanned(x):
    def total(at):
        return jax.lax.scan(lambda carry, row: (carry + jnp.sum(jax.lax.lgamma(row) * at), ()),
                            0.0, x)[0]
    return total


def chained(x):
    def total(at):
        def step(carry, row):
            carry = jnp.tanh(carry + at + jnp.sum(jnp.log(row)))
            return carry, carry * jnp.sum(jax.lax.lgamma(row))

        last, each = jax.lax.scan(step, at, x, reverse=True)
        return last + each[0] + 2 * each[1]
    return total


FUNCTIONS = {
    "a sum": (lambda x: lambda at: jnp.sum(at * jax.lax.lgamma(x)), {"lgamma"}),
    "a sum over chunks": (scanned, {"lgamma"}),
    "a chain": (chained, {"lgamma", "log"}),
    "products": (lambda x: lambda at: at * jnp.sum(jnp.dot(x.T, x)), {"dot_general", "reduce_sum"}),
    "nothing": (lambda x: lambda at: jnp.sum(jnp.exp(at * x)), set()),
    "everything": (lambda x: lambda at: jnp.sum(jnp.exp(x)), {"exp", "reduce_sum"}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_costly_operations_without_arguments_leave_the_loop(name):
    function, costly = FUNCTIONS[name]
    before = {each for each, _ in operations(jax.make_jaxpr(function(X))(1.0))}
    loop, found = in_a_loop(function, 1.0, X)
    expected = 1.0
    for _ in range(10):
        expected = 0.5 * function(X)(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert costly <= before and loop.isdisjoint(costly)


def test_a_result_that_is_larger_than_the_rows_is_repeated_unless_it_is_dear():
    rows, states = np.linspace(1.0, 2.0, 2**17), np.arange(32.0)

    def table(function):
        return lambda x: lambda at: jnp.sum(at * function(x[:, None] + states))

    assert "exp" in in_a_loop(table(jnp.exp), 1.0, rows)[0]
    assert "lgamma" in in_a_loop(table(jax.lax.lgamma), 1.0, rows)[0]  # 32 times the rows
    assert "lgamma" not in in_a_loop(table(lambda x: jax.lax.lgamma(x[:, :16])), 1.0, rows)[0]


def test_rows_that_come_from_the_host_are_received_in_each_call():
    def function(x):
        return lambda at: at * jax.pure_callback(lambda: np.float64(2.0), jnp.zeros(()))

    assert "pure_callback" in in_a_loop(function, 1.0, X)[0]


@probml.model
def caught(effort):
    slope, rate = sample("slope", dist.Normal(0.0, 1.0)), sample("rate", dist.Gamma(2.0, 0.1))
    with probml.rows():
        total = sample("total", dist.Categorical(
            logits=dist.Poisson(rate).log_prob(jnp.arange(30))))
        sample("y", dist.Binomial(total, logits=slope * effort))


def density_of(model, data):
    """The plan and the rows of the density that NUTS samples, and the values that rows share."""
    met, engine = read_function(model, data), probml.NUTS()
    held = read(met.model, met.data).trimmed()
    if refusal(engine, held) is not None:
        pytest.skip("NUTS refuses")
    data = engine.prepare_data(held)
    plan = planned(data, engine)
    return plan, *load.load(data, plan)


def catches(n):
    return {"effort": np.linspace(-1, 1, n), "y": np.arange(n) % 7}


@pytest.mark.parametrize("n", [100, 20_000])
def test_a_gradient_has_no_log_factorials_of_counts(n):
    plan, rows, known = density_of(caught(), catches(n))
    assert rows.several == (n > 100)

    def slope(rows):
        return lambda u: density.log_posterior(plan, known, rows)(u)[1]

    loop, _ = in_a_loop(slope, jnp.zeros(density.unbounded_size(plan)), rows)
    assert "exp" in loop and "lgamma" not in loop


def test_engines_leave_rows_in_one_chunk_to_xla():
    for n in (100, 20_000):
        plan, rows, known = density_of(caught(), catches(n))
        both = density.log_posterior(plan, known, rows)
        again = density.for_loop(both, rows, jnp.zeros(density.unbounded_size(plan)))
        assert (again is both) == (not rows.several)


def values_and_gradients(case):
    """(value, gradient) at a point, of the density as it is and hoisted."""
    plan, rows, known = density_of(case.model, case.make(np.random.default_rng(0)))
    size = density.unbounded_size(plan)

    def both(u, rows):
        one = density.log_posterior(plan, known, rows)
        return one(u), hoisted(one, u)(u), hoisted(density.log_posterior_value(
            plan, known, rows), u)(u)

    if plan.sampled:
        pytest.skip("coordinates of rows")
    return jax.jit(both)(0.2 * np.random.default_rng(1).standard_normal(size), rows)


QUICK = ("beta_binomial", "capture_recapture", "hidden_markov", "negative_binomial", "pumps",
         "topics_by_index")


@pytest.mark.one_in(10)
@pytest.mark.parametrize("case", [
    pytest.param(case, marks=() if repr(case) in QUICK else pytest.mark.slow)
    for case in CASES if case.truth != "refused"], ids=repr)
def test_densities_and_their_gradients_stay(case):
    with jax.enable_x64(True):
        (value, slope), (value_after, slope_after), alone = values_and_gradients(case)
    np.testing.assert_allclose([value_after, alone], value, rtol=1e-10)
    np.testing.assert_allclose(slope_after, slope, rtol=1e-8, atol=1e-8)


KINDS = {
    "binomial": lambda eta, size: dist.Binomial(9, logits=eta),
    "negative binomial": lambda eta, size: dist.NegativeBinomial2(jnp.exp(eta), size),
    "gamma": lambda eta, size: dist.Gamma(size, jnp.exp(eta)),
    "Student t": lambda eta, size: dist.StudentT(size, eta, 1.0),
}


@probml.model
def grouped(group, kind: str):
    size = sample("size", dist.LogNormal(1.0, 1.0))
    with plate("groups", 5):
        effect = sample("effect", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", KINDS[kind](effect[group], size))


@pytest.mark.parametrize("kind", KINDS)
def test_steps_towards_the_mode_of_effects_do_not_compute_what_parameters_say_of_rows(kind):
    n = 20_000
    held = read(grouped(kind=kind), {"group": np.arange(n) % 5, "y": np.arange(n) % 7 + 1})
    plan = held.plan(effects=("effect",))
    rows, known = load.load(held, plan)

    def mode(size):
        return find_mode(density_of_rows(plan, {"size": size}, known, rows.total))[0].first

    found = operations(jax.make_jaxpr(mode)(3.0), entries=5)
    assert any(found[name, True] for name in ("exp", "log1p", "logistic"))
    assert not found["lgamma", True] + found["digamma", True]
