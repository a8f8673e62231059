"""Claims of effects of groups in many rows: no pass over the rows for each draw, densities that are
compared member by member, and the answer is that of the exact way."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.dataset import read
from probml.engines import ladder
from probml.engines.engine import planned
from probml.engines.sampling import latents
from probml.evidence.cost import evaluation_cost
from probml.posteriors.posterior import Normal, unconstrained

GROUPS = 12


def model_of(kind):
    @probml.model
    def model(group, other, x):
        level = sample("level", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
        sd = sample("sd", dist.HalfNormal(1.0))
        with plate("groups", GROUPS):
            own = (sample("own", dist.Normal(0.0, sd).expand([2]).to_event(1)) if kind == "slopes"
                   else sample("own", dist.Normal(0.0, sd)))
        eta = 0.0
        if kind == "crossed":
            with plate("others", 5):
                eta = sample("second", dist.Normal(0.0, sd))[other]
        with probml.rows():
            shift = own[group]
            if kind == "slopes":
                shift = shift[..., 0] + shift[..., 1] * x
            eta = level[0] + level[1] * x + shift + eta
            if kind == "normal":
                sample("y", dist.Normal(eta, 0.5))
            elif kind == "counts":
                sample("y", dist.Poisson(jnp.exp(eta)))
            else:
                sample("y", dist.Bernoulli(logits=eta))

    return model()


def data_of(kind, rows):
    random = np.random.default_rng(0)
    group, other = np.arange(rows) % GROUPS, np.arange(rows) % 5
    x = random.normal(size=rows)
    eta = 0.5 + 0.3 * x + 0.6 * random.normal(size=GROUPS)[group]
    y = {"normal": lambda: eta + 0.5 * random.normal(size=rows),
         "counts": lambda: random.poisson(np.exp(eta))}.get(
             kind, lambda: (random.random(rows) < 1 / (1 + np.exp(-eta))).astype(int))()
    return {"group": group, "other": other, "x": x, "y": y}


@pytest.mark.parametrize("kind", ["normal", "counts", "choices", "slopes", "crossed"])
def test_draws_about_linear_means_are_near_exact_ones(kind, monkeypatch):
    """The same draws of the parameters, so that means and widths differ by the draws of the effects
    alone."""
    caught, found = {}, {}

    def run(self, problem):
        caught["problem"] = problem
        return original(self, problem)

    original = probml.Laplace.run
    monkeypatch.setattr(probml.Laplace, "run", run)
    fit = model_of(kind).fit(data_of(kind, 600), probml.Laplace())
    problem = caught["problem"]
    draws = jax.device_get(fit.draws(200, seed=0))
    u = np.asarray([unconstrained(problem.plan, {name: draws[name][i] for name in problem.plan.free},
                                  problem.known) for i in range(200)])
    factor = np.linalg.cholesky(np.cov(u.T)).astype(u.dtype)
    normal = Normal(u.mean(0), np.zeros_like(u[0]), factor)
    for limit in (np.inf, 0):
        monkeypatch.setattr(latents, "MAX_EXACT_WORK", limit)
        found[limit] = latents.complete_normal(problem.plan, normal, problem.known, problem.rows,
                                              0).values
    assert found[0].keys() == found[np.inf].keys()
    for name in found[0]:
        exact, near = found[np.inf][name][0], found[0][name][0]
        sd = exact.std(0)
        np.testing.assert_allclose(near.mean(0), exact.mean(0), atol=0.15 * sd.max())
        np.testing.assert_allclose(near.std(0), sd, rtol=0.12)


def test_densities_are_compared_where_rounding_hides_their_differences(monkeypatch):
    """As of 10⁷ rows in single precision: those of each member are compared."""
    data = data_of("counts", 900)
    usual = model_of("counts").fit(data, probml.Laplace())
    monkeypatch.setattr("probml.engines.laplace.hides_differences", lambda value: abs(value) > 500)
    by_members = model_of("counts").fit(data, probml.Laplace())
    assert by_members.status == usual.status
    assert abs(by_members.log_evidence - usual.log_evidence) < 0.01
    sd = np.std(jax.device_get(usual.draws(500, seed=0)["own"]), 0)
    assert np.max(np.abs(usual.params["own"] - by_members.params["own"]) / sd) < 0.2


@probml.model
def matches(season, home, away, teams: int, seasons: int):
    """Strengths that rows read twice: no index says which one they read, so that they are integrated
    out together, with second derivatives of each row for all pairs."""
    sd, move = sample("sd", dist.HalfNormal(1.0)), sample("move", dist.HalfNormal(0.5))
    with plate("teams", teams):
        start = sample("start", dist.Normal(0.0, sd))
    with plate("changes", seasons):
        change = sample("change", dist.Normal(0.0, move).expand([teams]).to_event(1))
    strength = jnp.concatenate([start[None], start + change])
    with probml.rows():
        sample("won", dist.Bernoulli(logits=strength[season, home] - strength[season, away]))


@pytest.mark.parametrize(("teams", "integrated"), [(2, True), (8, False)])
def test_effects_are_integrated_out_by_default_where_that_costs_less_than_sampling(teams, integrated):
    random = np.random.default_rng(0)
    season, home = np.arange(90) % 3, random.integers(0, teams, 90)
    data = read.read(matches(teams=teams, seasons=2), {
        "season": season, "home": home, "away": (home + 1) % teams, "won": random.integers(0, 2, 90)})
    assert planned(data).groupings
    chosen, reasons = ladder.choose(data)
    assert (probml.Laplace() in chosen) == integrated
    assert integrated or "'change', 'start'" in str(reasons[probml.Laplace()])
    assert isinstance(chosen[0], probml.Laplace if integrated else probml.NUTS)


@pytest.mark.parametrize("kind", ["counts", "choices", "slopes", "crossed"])
def test_an_integral_counts_its_inner_passes(kind):
    data = read.read(model_of(kind), data_of(kind, 600))
    plan = planned(data)
    assert plan.groupings
    ratio = evaluation_cost(plan, data) / evaluation_cost(data.plan(), data)
    assert (ratio < 10) == (kind == "counts")
    assert ratio < 300
