"""An engine of a user's own, in one file: variational Bayes EM, held to updates written by hand.

Nothing else in the house knows of it; CONTRIBUTING.md says what such a file needs.
"""

import functools
import itertools
import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy.special import digamma, gammaln

import probml
from probml.extend import (
    DIRICHLET,
    GAUSSIAN,
    INVERSE_GAMMA,
    Block,
    Capabilities,
    Closed,
    Engine,
    Form,
    Known,
    Marginals,
    Objective,
    Outcome,
    Plan,
    Problem,
    Progress,
    Refusal,
    Rows,
    Status,
    StepResult,
    backward,
    blocks,
    check_distinct,
    check_settings,
    expect,
    iterate,
    jit,
    log_prior,
    natural_parameters,
    naturals,
    starts,
    users,
)

BLOCK = 25  # iterations a device call


@dataclass(frozen=True)
class VariationalEM(Engine):
    """Variational Bayes EM (Attias 2000; Beal 2003): q(z) q(θ) nearest to the posterior of hidden
    states and parameters, q(θ) a conjugate distribution for each block.

    E-step: q(z) ∝ exp E[log p(x, z | θ)], which is that of EM with E[η(θ)] in the place of η(θ).
    M-step: q(θ) ∝ p(θ) exp E[log p(x, z | θ)], read off as the forms are. The bound
    E[log p(x, z, θ)] − E[log q] never falls and is below log p(x).

    Args:
        max_iterations: of both steps, at the most.
        tolerance: stop when one gains less than this of the bound per unit of weight, in nats.

    Cost: an iteration of EM.
    """

    max_iterations: int = 500
    tolerance: float = 1e-9

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(statistics=True)

    def __post_init__(self):
        check_settings(self, positive=("max_iterations",), nonnegative=("tolerance",))

    def refuse(self, problem: Problem) -> None:
        plan, where = problem.plan, f"VariationalEM cannot fit {problem}"
        check_distinct(problem.data, plan)
        if plan.globals or plan.rowwise:
            name = (*plan.globals, *plan.rowwise)[0]
            raise Refusal(f"{where}: site '{name}' is not pooled. Try EM() or NUTS()")
        owner = {}
        for block in _all_blocks(plan):
            owner |= dict.fromkeys(block.names, block)
            if not block.conjugate or (block.form, block.event) not in AVERAGES:
                raise Refusal(f"{where}: parameter '{block.names[0]}' has no closed form here "
                              f"({block.why or block.form.name}). Try EM() or NUTS()")
        for site in (plan.structure.sites[name] for name in users(plan)):
            own = {name for name in (site.name,) if name in owner}
            own |= {name for uses in site.uses.values() for name in uses if name in owner}
            if len({owner[name] for name in own}) > 1:
                raise Refusal(f"{where}: {sorted(own)} meet in '{site.name}': their posteriors "
                              f"depend on each other. Try EM() or NUTS()")

    def run(self, problem: Problem) -> Outcome:
        plan, known, rows = problem.plan, problem.known, problem.rows
        first = starts(problem.data, plan, known, problem.weights, 1, problem.seed, problem.start,
                       True, whole=True)
        params = {name: jnp.asarray(value[0]) for name, value in first.params.items()}
        found, bounds = _first(plan, params, known, rows), []
        gain = self.tolerance * float(rows.weights.sum())

        def turn(done: int) -> StepResult:
            nonlocal found
            count = min(BLOCK, self.max_iterations - done)
            found, trail = _several(plan, found, known, rows, count)
            bounds.extend(np.asarray(trail)[:count].tolist())
            level = len(bounds) > 1 and bounds[-1] - bounds[-2] <= gain
            return StepResult(count, bounds[-1], Status.CONVERGED if level else Status.RUNNING)

        with Progress("VariationalEM", self.max_iterations, False) as bar:
            status = iterate(bar, self.max_iterations, turn)
        found = jax.device_get(_with_means(plan, found, known))
        return Outcome(found.mean, np.array(bounds), status, len(bounds) - 1, posterior=found,
                       bound=bounds[-1])


def _all_blocks(plan: Plan) -> list[Block]:
    return [block for stage in blocks(plan, True) for block in stage]


# E[f(c)] of a function in the span of a form's statistics: f at a point, and its slopes in a
# coordinate u of c. Form, axes of a value → c(u), and from the means of the statistics the point
# and the directions in which f is differentiated in turn.


def _table(mean):
    """Of log c, at c ∝ exp E log c."""
    u = jax.nn.log_softmax(mean["log"])
    return u, [(mean["log"] - u,)]


def _variance(mean):
    """Of log c and 1/c, at c = 1/E(1/c): f″ removes log c's part from f′."""
    u = -jnp.log(mean["inverse"])
    away = mean["log"] - u
    return u, [(away,), (away, jnp.ones_like(u))]


def _location(mean):
    """Of c and c²: f(E c) + ½ var(c) f″."""
    half = jnp.sqrt(0.5 * (mean["square"] - mean["value"] ** 2))
    return mean["value"], [(half, half)]


AVERAGES: dict[tuple[Form | None, int], tuple[Callable, Callable]] = {
    (DIRICHLET, 1): (jnp.exp, _table),
    (INVERSE_GAMMA, 0): (jnp.exp, _variance),
    (GAUSSIAN, 0): (lambda u: u, _location),
}


def _reading(plan: Plan, block: Block, natural: Mapping) -> tuple[Callable, jax.Array, list[tuple]]:
    """u → the parameter, u and directions of a block, see AVERAGES."""
    prior = plan.structure.sites[block.names[0]].entry.prior
    link, directions = AVERAGES[block.form, block.event]
    return (lambda u: backward(link(u), block.steps),
            *directions(block.form.expectation(natural, prior)))


def _averaged(function: Callable[[Mapping], Any], plan: Plan, found: Closed) -> Any:
    """E_q[function(θ)] of a function without products across blocks."""
    total = function(found.params)
    for block, natural in zip(_all_blocks(plan), found.natural, strict=True):
        link, u, ways = _reading(plan, block, natural)

        def of(u, name=block.names[0], link=link):
            return function({**found.params, name: link(u)})

        for directions in ways:
            slope = of
            for way in directions:
                slope = functools.partial(_along, slope, way)
            total = jax.tree.map(jnp.add, total, slope(u))
    return total


def _along(function: Callable, way: jax.Array, u: jax.Array) -> Any:
    return jax.jvp(function, (u,), (way,))[1]


def _maximised(plan: Plan, expected, params: Mapping, known: Known, rows: Rows) -> Closed:
    """The M-step: q(θ) of every block, and the points about which functions of it are averaged."""
    natural, points = [], {}
    for stage in blocks(plan, True):
        natural += natural_parameters(Objective(plan, expected, params, known, rows, True, mode=False), stage)
    for block, found in zip(_all_blocks(plan), natural, strict=True):
        link, u, _ = _reading(plan, block, found)
        points[block.names[0]] = link(u)
    return Closed(tuple(natural), points, points)


@functools.partial(jit, static_argnums=0)
def _first(plan: Plan, params: Mapping, known: Known, rows: Rows) -> Closed:
    return _maximised(plan, expect(plan, params, known, rows), params, known, rows)


@functools.partial(jit, static_argnums=0)
def _several(plan: Plan, found: Closed, known: Known, rows: Rows,
             count) -> tuple[Closed, jax.Array]:
    """Iterations, and the bound before each M-step: of what is left after the last it is no
    more."""

    def once(i, carry):
        found, trail = carry
        natural = _averaged(lambda params: naturals(plan, params, known), plan, found)
        expected = expect(plan, found.params, known, rows, natural=natural)
        marginals = Marginals(plan, known, found)
        gap = _averaged(lambda params: marginals.log_density(params)
                        - log_prior(plan, params, known), plan, found)
        return (_maximised(plan, expected, found.params, known, rows),
                trail.at[i].set(expected.log_evidence - gap))

    return jax.lax.fori_loop(0, count, once, (found, jnp.zeros(BLOCK)))


@functools.partial(jit, static_argnums=0)
def _with_means(plan: Plan, found: Closed, known: Known) -> Closed:
    return found._replace(mean=Marginals(plan, known, found).means())


@dataclass(frozen=True)
class Listed(Engine):
    """One that forgets that lists are not hashable."""

    parts: Any = ()

    def run(self, problem: Problem) -> Outcome:
        raise AssertionError("it is refused before")


# Held to updates by hand


@probml.model
def counts(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 2.0)))
    with plate("component", k):
        rate = sample("rate", dist.Gamma(2.0, 0.5))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Poisson(rate[z]))


@probml.model
def classes(k: int, states: int):
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 1.5)))
    with plate("class", k):
        table = sample("table", dist.Dirichlet(jnp.full(states, 0.7)))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        with plate("item", 3):
            sample("x", dist.Categorical(table[z]))


@probml.model
def normals(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 5.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], 1.0))


def softmax(logs):
    """Rows that sum to 1, and the logarithms of their sums."""
    top = logs.max(1, keepdims=True)
    r = np.exp(logs - top)
    return r / r.sum(1, keepdims=True), (np.log(r.sum(1)) + top[:, 0])


def dirichlet_gap(a, prior):
    """KL(Dirichlet(a) ‖ Dirichlet(prior)), summed over tables."""
    logs = digamma(a) - digamma(a.sum(-1, keepdims=True))
    constant = [gammaln(each.sum(-1)) - gammaln(each).sum(-1) for each in (a, prior)]
    return np.sum(constant[0] - constant[1] + ((a - prior) * logs).sum(-1))


def gamma_gap(a, b, prior_a, prior_b):
    """KL(Gamma(a, b) ‖ Gamma(prior_a, prior_b)), summed."""
    return np.sum((a - prior_a) * digamma(a) - gammaln(a) + gammaln(prior_a)
                  + prior_a * (np.log(b) - np.log(prior_b)) + a * (prior_b - b) / b)


def counts_by_hand(x, weights, w, rate, iterations):
    """VB of `counts` from the responsibilities at a point: the bounds, and the last q(θ)."""
    r, _ = softmax(np.log(w) + x[:, None] * np.log(rate) - rate)
    r, bounds = r * weights[:, None], []
    for _ in range(iterations):
        n = r.sum(0)
        alpha, a, b = 2.0 + n, 2.0 + r.T @ x, 0.5 + n
        logs = (digamma(alpha) - digamma(alpha.sum()) + x[:, None] * (digamma(a) - np.log(b))
                - a / b - gammaln(x + 1)[:, None])
        r, evidence = softmax(logs)
        r = r * weights[:, None]
        bounds.append(weights @ evidence - dirichlet_gap(alpha, np.full(len(w), 2.0))
                      - gamma_gap(a, b, 2.0, 0.5))
    return np.array(bounds), alpha, a, b


def classes_by_hand(x, w, table, iterations):
    hot = np.eye(table.shape[-1])[x]  # (n, items, states)
    r, bounds = softmax(np.log(w) + np.einsum("nis,ks->nk", hot, np.log(table)))[0], []
    for _ in range(iterations):
        alpha, a = 1.5 + r.sum(0), 0.7 + np.einsum("nk,nis->ks", r, hot)
        logs = digamma(a) - digamma(a.sum(-1, keepdims=True))
        r, evidence = softmax(digamma(alpha) - digamma(alpha.sum())
                              + np.einsum("nis,ks->nk", hot, logs))
        bounds.append(evidence.sum() - dirichlet_gap(alpha, np.full(len(w), 1.5))
                      - dirichlet_gap(a, np.full(a.shape, 0.7)))
    return np.array(bounds), alpha, a


X = np.concatenate([np.random.default_rng(0).poisson(2.0, 25),
                    np.random.default_rng(1).poisson(9.0, 25)])
POINT = {"weights": np.array([0.4, 0.6]), "rate": np.array([3.0, 5.0])}


def stopped(model, data, start, weights=None):
    """A fit of a few iterations, which says that these were few."""
    with pytest.warns(probml.ConvergenceWarning, match="VariationalEM.*iteration limit"):
        return model.fit(data, VariationalEM(max_iterations=8), start=start, weights=weights)


@pytest.fixture(scope="module")
def found():
    return counts(2).fit({"x": X}, VariationalEM(), start=POINT)


def test_a_mixture_of_poissons_takes_the_steps_that_were_written_by_hand():
    fit = stopped(counts(2), {"x": X}, POINT)
    bounds, alpha, a, b = counts_by_hand(X, np.ones(50), *POINT.values(), len(fit.history) + 1)
    np.testing.assert_allclose(fit.history, bounds[:-1], rtol=1e-11)
    np.testing.assert_allclose(fit.posterior("weights").concentration, alpha, rtol=1e-9)
    rates = fit.posterior("rate")
    np.testing.assert_allclose(rates.concentration, a, rtol=1e-9)
    np.testing.assert_allclose(rates.rate, b, rtol=1e-9)
    assert (np.diff(fit.history) > -1e-9).all() and fit.bound == fit.history[-1]
    np.testing.assert_allclose(fit.params["rate"], a / b, rtol=1e-9)


def test_row_weights_count():
    weights = np.linspace(0.5, 2.0, 50)
    fit = stopped(counts(2), {"x": X}, POINT, weights)
    bounds, *_ = counts_by_hand(X, weights, *POINT.values(), len(fit.history))
    np.testing.assert_allclose(fit.history, bounds, rtol=1e-11)


def test_a_mixture_of_categoricals_takes_the_steps_that_were_written_by_hand():
    random = np.random.default_rng(3)
    tables = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    x = np.stack([random.choice(3, 3, p=tables[i % 2]) for i in range(30)])
    point = {"weights": np.array([0.5, 0.5]), "table": np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])}
    fit = stopped(classes(2, 3), {"x": x}, point)
    bounds, alpha, a = classes_by_hand(x, *point.values(), len(fit.history) + 1)
    np.testing.assert_allclose(fit.history, bounds[:-1], rtol=1e-10)
    np.testing.assert_allclose(fit.posterior("table").concentration, a, rtol=1e-8)
    assert (np.diff(fit.history) > -1e-9).all()


def test_the_bound_is_below_the_evidence_that_enumeration_finds():
    x = X[[0, 1, 2, 30, 31, 32]]

    def joint(z):
        """log p(x, z), rates and weights integrated out."""
        n = np.bincount(z, minlength=2)
        total = np.array([x[z == j].sum() for j in (0, 1)])
        tables = gammaln(4.0) - gammaln(4.0 + len(x)) + np.sum(gammaln(2.0 + n) - gammaln(2.0))
        rates = (2.0 * np.log(0.5) - gammaln(2.0) + gammaln(2.0 + total)
                 - (2.0 + total) * np.log(0.5 + n))
        return tables + rates.sum() - gammaln(x + 1).sum()

    logs = [joint(np.array(z)) for z in itertools.product((0, 1), repeat=len(x))]
    evidence = np.logaddexp.reduce(logs)
    fit = counts(2).fit({"x": x}, VariationalEM(), start=POINT)
    # both labellings share the evidence, of which q has one
    assert evidence - 2.0 < fit.bound < evidence
    assert fit.log_evidence is None


def test_with_nothing_hidden_it_is_the_exact_posterior_and_the_bound_the_evidence():
    data = {"x": X, "z": (np.arange(50) >= 25).astype(int)}
    ours, exact = counts(2).fit(data, VariationalEM()), counts(2).fit(data, probml.Exact())
    assert math.isclose(ours.bound, exact.log_evidence, rel_tol=1e-10)
    np.testing.assert_allclose(ours.posterior("rate").rate, exact.posterior("rate").rate)
    halves = [counts(2).fit({k: v[i::2] for k, v in data.items()}, VariationalEM()) for i in (0, 1)]
    merged = halves[0].merge(halves[1])
    assert math.isclose(merged.bound, ours.bound, rel_tol=1e-10)


def test_locations_are_averaged_with_their_variance():
    x = np.array([-2.0, -1.5, -2.5, 2.0, 2.5, 1.0])
    fit = normals(1).fit({"x": x}, VariationalEM())
    exact = normals(1).fit({"x": x, "z": np.zeros(6, int)}, probml.Exact())
    assert math.isclose(fit.bound, exact.log_evidence, rel_tol=1e-10)


def test_a_fit_by_an_engine_of_ones_own_answers_is_kept_and_is_compared(found, tmp_path):
    assert found.converged and found.engine == repr(VariationalEM())
    assert found.draws(3)["rate"].shape == (3, 2) and found.log_prob({"x": X[:4]}).shape == (4,)
    found.save(tmp_path / "fit")
    back = probml.load(tmp_path / "fit", counts(2))
    assert back.bound == found.bound and back.status == found.status
    np.testing.assert_allclose(back.predict_proba({"x": X[:4]}), found.predict_proba({"x": X[:4]}))
    again = pickle.loads(pickle.dumps(found))
    folds = [(np.arange(45), np.arange(45, 50))]
    table = probml.compare({"ours": again}, {"x": X}, folds=folds)
    assert np.isfinite(table.loc["ours", "elpd_kfold"])
    # a file holds no code: the engine is to be named
    with pytest.warns(UserWarning, match="Give an engine for this model"):
        probml.compare({"ours": back}, {"x": X}, folds=folds)
    named = probml.compare({"ours": back}, {"x": X}, folds=folds, engines={"ours": VariationalEM()})
    assert named.loc["ours", "elpd_kfold"] == table.loc["ours", "elpd_kfold"]


def test_explain_asks_it_and_it_refuses_in_words():
    rows = counts(2).explain({"x": X}, engines=[VariationalEM()]).engines
    assert rows[-1] == {"engine": "VariationalEM", "": "possible, on request"}

    @probml.model
    def scaled():
        scale = sample("scale", dist.LogNormal(0.0, 1.0))
        with probml.rows():
            sample("x", dist.Normal(0.0, scale))

    assert "refuses" in scaled().explain({"x": X}, engines=[VariationalEM()]).engines[-1][""]
    with pytest.raises(Refusal, match="'scale' has no closed form here"):
        scaled().fit({"x": X}, VariationalEM())


def test_what_is_no_engine_is_refused_by_name():
    with pytest.raises(probml.ModelError, match="is not an engine"):
        counts(2).fit({"x": X}, VariationalEM)
    with pytest.raises(probml.ModelError, match="settings of an engine must be hashable"):
        counts(2).fit({"x": X}, Listed([1, 2]))
