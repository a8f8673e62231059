"""Unseen numbers inside rows as coordinates of the density: their integral is the evidence that
other kinds find, and draws of them are draws given the rest."""

import contextlib
import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import deterministic, plate, sample
from scipy import stats

import probml
from probml.dataset import read
from probml.device import load
from probml.engines.engine import problem_of
from probml.engines.sampling import latents
from probml.evidence import density, row_coordinates
from probml.evidence.e_step import log_evidence
from probml.factors.naturals import log_prior
from probml.posteriors.posterior import Draws

nan = np.nan


@probml.model
def some(kind: str):
    width = sample("width", dist.LogNormal(0.0, 1.0))
    with plate("sort", 2):
        level = sample("level", dist.Normal(0.0, 2.0))
    with probml.rows():
        if kind == "level of a sort":
            c = sample("c", dist.Bernoulli(0.3))
            z = sample("z", dist.Normal(level[c], width))
        elif kind == "rate":
            z = sample("z", dist.Gamma(2.0, width))
        elif kind == "share":
            z = sample("z", dist.Beta(2.0, 1.0 + width))
        else:
            z = sample("z", dist.StudentT(4.0, level[0], width))
        below = {"rate": lambda z: z, "share": lambda z: 3 * z}.get(kind, jnp.exp)
        deterministic("rate", below(z))
        sample("y", dist.Poisson(below(z)))


KINDS = ("level of a sort", "rate", "share", "heavy", "heavy, seen in part")
POINT = {"width": np.array(0.7), "level": np.array([-0.3, 0.8])}


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.slow) if kind in ("rate", "share") else kind
    for kind in KINDS
])
def test_the_density_of_rows_coordinates_integrates_to_the_evidence(kind):
    model, data = some(kind=kind.partition(",")[0]), {"y": np.array([1.0, 4.0])}
    if "part" in kind:
        data["z"] = np.array([0.4, nan])
    problem = problem_of(probml.NUTS(integrate="none"), model_data(model, data))
    plan = problem.plan
    assert plan.sampled == ("z",) and not plan.latents
    rows, known = load.load(problem.data, plan)
    held = model_data(model, data)
    params = {name: jnp.asarray(value) for name, value in POINT.items()}
    first = density.to_unbounded(plan, params, known)
    both = density.log_posterior(plan, known, rows)
    axis = jnp.linspace(-15.0, 15.0, 1201)

    @jax.jit
    def total():
        # rows are independent: one goes along the grid, the other stands at 0
        def one(i):
            u = jnp.zeros((1201, 2)).at[:, i].set(axis)
            return jax.vmap(lambda u: both(jnp.concatenate([first, u]))[0])(u)

        middle = both(jnp.concatenate([first, jnp.zeros(2)]))[0]
        logs = [jax.nn.logsumexp(one(i)) + jnp.log(axis[1] - axis[0]) for i in range(2)]
        return sum(logs) - middle

    whole = held.plan()
    want = log_evidence(whole, params, *reversed(load.load(held, whole)))
    volume = density.from_unbounded(plan, first, known)[1]
    prior = log_prior(plan, params, known)
    np.testing.assert_allclose(total() - volume - prior, want, atol=2e-6)


VECTORS = {
    "root": lambda w, m: dist.MultivariateNormal(m, scale_tril=w * ROOT),
    "covariance": lambda w, m: dist.MultivariateNormal(m, covariance_matrix=w**2 * ROOT @ ROOT.T),
    "precision": lambda w, m: dist.MultivariateNormal(
        m, precision_matrix=jnp.linalg.inv(ROOT @ ROOT.T) / w**2),
    "walk": lambda w, m: dist.GaussianRandomWalk(w, num_steps=3),
}
ROOT = np.array([[1.0, 0, 0], [0.4, 0.8, 0], [-0.3, 0.2, 1.2]])


@probml.model
def vectors(kind: str, plates: bool):
    width, mean = sample("width", dist.LogNormal(0.0, 1.0)), sample("mean", dist.Normal(0.0, 1.0))
    with probml.rows(), plate("inner", 2) if plates else contextlib.nullcontext():
        z = sample("z", VECTORS[kind](width, mean * jnp.ones(3)))
        sample("y", dist.Poisson(jnp.exp(z)).to_event(1))


@pytest.mark.parametrize("plates", (False, True))
@pytest.mark.parametrize("kind", VECTORS)
def test_a_missing_vector_has_coordinates_in_units_of_its_prior_whatever_rows_observe(kind, plates):
    random, cells = np.random.default_rng(3), (2, 3) if plates else (3,)
    z = random.normal(size=(3, *cells))
    z[1, ..., 1], z[2] = (z[1, ..., 1], nan) if kind == "walk" else (nan, nan)
    y = random.poisson(1.0, z.shape)
    problem = problem_of(probml.NUTS(integrate="none"),
                         model_data(vectors(kind=kind, plates=plates), {"z": z, "y": y}))
    plan = problem.plan
    rows, known = load.load(problem.data, plan)
    params = {"width": jnp.asarray(0.02), "mean": jnp.asarray(0.5)}
    first = density.to_unbounded(plan, params, known)
    u = random.normal(size=(row_coordinates.size(plan, rows) // z[0].size, *cells))

    prior = VECTORS[kind](0.02, 0.5 * jnp.ones(3))
    root = np.linalg.cholesky(np.asarray(prior.covariance_matrix)) if kind != "walk" else (
        0.02 * np.tri(3))
    at = np.where(np.isnan(z), u[:3], z)
    at[2] = (0.0 if kind == "walk" else 0.5) + u[2] @ root.T
    want = stats.norm.logpdf(u).sum() + prior.log_prob(at[:2]).sum()
    want += stats.poisson.logpmf(y, np.exp(at)).sum()
    want -= stats.norm.logpdf(u[:2])[np.isnan(z[:2])].sum()

    shown = row_coordinates.values(plan, params, known, rows, jnp.asarray(u.ravel()))["z"]
    np.testing.assert_allclose(shown.reshape(-1, *cells)[:3], at, rtol=1e-10)
    both = density.log_posterior(plan, known, rows)(jnp.concatenate([first, u.ravel()]))[0]
    got = both - density.from_unbounded(plan, first, known)[1] - log_prior(plan, params, known)
    np.testing.assert_allclose(got, want, rtol=1e-9)


def model_data(model, data):
    return read.read(model, data)


def test_the_gradient_of_the_density_is_its_derivative():
    problem = problem_of(probml.NUTS(), model_data(some(kind="heavy"), {"y": np.arange(5.0)}))
    plan = problem.plan
    rows, known = load.load(problem.data, plan)
    u = jnp.asarray(np.random.default_rng(0).normal(size=density.unbounded_size(plan)
                                                    + row_coordinates.size(plan, rows)))
    both = jax.jit(density.log_posterior(plan, known, rows))
    _, gradient = both(u)
    assert len(u) == 3 + 8  # eight rows, of which three are padding
    for i in (0, 2, 3, 7, 9):
        ends = [both(u.at[i].add(step))[0] for step in (-1e-5, 1e-5)]
        np.testing.assert_allclose(gradient[i], (ends[1] - ends[0]) / 2e-5, atol=1e-7)
    np.testing.assert_allclose(gradient[-3:], -u[-3:], atol=1e-12)


@probml.model
def schools(sigma):
    mu = sample("mu", dist.Normal(0.0, 5.0))
    tau = sample("tau", dist.HalfNormal(5.0))
    with probml.rows():
        theta = sample("theta", dist.Normal(mu, tau))
        deterministic("double", 2 * theta)
        sample("y", dist.Normal(theta, sigma))


SCHOOLS = {"sigma": np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
           "y": np.array([28.0, 8, -3, 7, -1, 1, 18, 12])}


@pytest.mark.filterwarnings("ignore:NUTS of model")
def test_numbers_that_were_integrated_out_are_drawn_given_each_draw_of_the_rest():
    part = {**SCHOOLS, "theta": np.array([5.0, *[nan] * 7])}
    fit = schools().fit(part, probml.NUTS(draws=5, warmup=5, chains=1))
    n = 4000
    same = {"mu": np.full((1, n), 4.0), "tau": np.full((1, n), 6.0)}
    fit = dataclasses.replace(fit, belief=Draws(same, None, {}))
    drawn = fit.draws(n)
    assert drawn["theta"].shape == (n, 8)
    np.testing.assert_array_equal(drawn["theta"][:, 0], 5.0)
    np.testing.assert_allclose(drawn["double"], 2 * drawn["theta"], rtol=1e-12)
    precision = 1 / 36 + 1 / SCHOOLS["sigma"] ** 2
    mean = (4 / 36 + SCHOOLS["y"] / SCHOOLS["sigma"] ** 2) / precision
    error = np.sqrt(1 / precision / n)
    assert np.all(np.abs(drawn["theta"].mean(0) - mean)[1:] < 5 * error[1:])
    np.testing.assert_allclose((drawn["theta"].var(0) * precision)[1:], 1.0, atol=0.12)


@pytest.mark.parametrize("integrate, names", [
    ("exact", ()), ("all", ()), ("none", ("theta",)),
])
def test_integrate_chooses_what_is_integrated_and_what_is_sampled(integrate, names):
    held = model_data(schools(), SCHOOLS)
    assert problem_of(probml.NUTS(integrate=integrate), held).plan.sampled == names
    held = model_data(some(kind="heavy"), {"y": np.arange(3.0)})
    plan = problem_of(probml.NUTS(integrate=integrate), held).plan
    assert plan.sampled == (() if integrate == "all" else ("z",))
    assert bool(plan.latents) == (integrate == "all")


def test_what_cannot_be_sampled_is_refused_in_words():
    with pytest.raises(probml.ModelError, match=r"NUTS\(integrate\): expected one of .* got 'some'"):
        probml.NUTS(integrate="some")
    with pytest.raises(probml.Refusal, match="a latent value of 'z' is sampled"):
        some(kind="heavy").fit({"y": np.arange(3.0)}, probml.NUTS(), weights=[1.0, 2.0, 1.0])
    with pytest.raises(probml.Refusal, match="more than"):
        latents.check(problem_of(probml.NUTS(), model_data(
            some(kind="heavy"), {"y": np.arange(300.0)})), "NUTS", 10**7)
    shown = str(some(kind="heavy").explain({"y": np.arange(3.0)}))
    assert "sampling 'z', 1 number per row, together with the parameters" in shown


@probml.model
def switched():
    slope = sample("slope", dist.Normal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Normal(0.0, 1.0))
        c = sample("c", dist.Bernoulli(logits=3 * z))
        sample("x", dist.Normal(z, 0.5))
        sample("y", dist.Normal(slope * c, 0.5))


def test_a_number_above_a_hidden_state_is_integrated_out():
    data = {"x": np.arange(4.0), "y": np.arange(4.0)}
    words = {s["site"]: s["role"] for s in switched().explain(data).sites}
    assert words["z"] == "latent, integrated out, by quadrature with 61 nodes"
    grid, x = np.linspace(-9, 9, 3601), np.arange(4.0)[:, None]
    up, width = 1 / (1 + np.exp(-3 * grid)), 0.5
    below = ((1 - up) * stats.norm.pdf(x, 0.0, width) + up * stats.norm.pdf(x, 1.5, width))
    want = np.log((below * stats.norm.pdf(x, grid, width) * stats.norm.pdf(grid)).sum(1) * 0.005)
    np.testing.assert_allclose(switched().at({"slope": 1.5}).log_prob(data), want, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:NUTS of model")
def test_a_number_above_a_hidden_state_has_no_integral_and_is_sampled():
    """Its posterior mean, against a grid at each slope that was drawn."""
    random = np.random.default_rng(0)
    z = random.normal(size=12)
    data = {"x": z + 0.5 * random.normal(size=12),
            "y": 2.0 * (random.random(12) < 1 / (1 + np.exp(-3 * z))) + 0.5 * random.normal(size=12)}
    fit = switched().fit(data, probml.NUTS(draws=400, warmup=300, chains=2))
    drawn = fit.draws(800)
    assert drawn["z"].shape == (800, 12)
    grid = np.linspace(-5, 5, 801)
    up = 1 / (1 + np.exp(-3 * grid))
    means = []
    for slope in drawn["slope"][::20]:
        like = ((1 - up) * np.exp(-2 * data["y"][:, None] ** 2)
                + up * np.exp(-2 * (data["y"][:, None] - slope) ** 2))
        weight = like * np.exp(-2 * (data["x"][:, None] - grid) ** 2 - grid**2 / 2)
        means.append(weight @ grid / weight.sum(1))
    np.testing.assert_allclose(drawn["z"].mean(0), np.mean(means, 0), atol=0.12)


@pytest.fixture(scope="module")
def guided():
    return some(kind="heavy").fit({"y": np.array([0.0, 1.0, 30.0])}, probml.SVI(steps=600))


def test_a_normal_guide_moves_the_numbers_of_rows_too(guided):
    fit = guided
    drawn = fit.draws(500)
    assert drawn["z"].shape == (500, 3) and drawn["rate"].shape == (500, 3)
    assert drawn["z"].mean(0)[2] > 3.0 > drawn["z"].mean(0)[1] > drawn["z"].mean(0)[0]
    with pytest.raises(probml.Refusal, match="every row has a latent variable, 'z'"):
        some(kind="heavy").fit({"y": np.arange(3.0)}, probml.SVI(batch_rows=2))


def test_a_file_keeps_the_numbers_of_rows_that_were_sampled(tmp_path, guided):
    fit = guided
    fit.save(tmp_path / "fit")
    again = probml.load(tmp_path / "fit", some(kind="heavy"))
    np.testing.assert_array_equal(again.belief.inside["z"], fit.belief.inside["z"])
    found = fit.to_arviz().posterior
    assert found["z"].dims == ("chain", "draw", "rows") and found["rate"].shape == found["z"].shape


@probml.model
def animals():
    tau = sample("tau", dist.HalfNormal(1.0))
    with probml.rows():
        u = sample("u", dist.Normal(0.0, tau))
        z = sample("z", probml.MarkovChain(jnp.array([0.6, 0.4]), jnp.array([[0.8, 0.2],
                                                                             [0.3, 0.7]])))
        rate = jnp.array([1.0, 6.0])[z] * jnp.exp(u)[..., None]
        sample("y", dist.Poisson(rate).to_event(1))


def test_a_number_beside_a_chain_enters_the_density_of_its_steps():
    y = np.array([[0, 3, 5], [2, 9, 1]])
    problem = problem_of(probml.NUTS(), model_data(animals(), {"y": y}))
    plan = problem.plan
    rows, known = load.load(problem.data, plan)
    u = jnp.concatenate([jnp.zeros(1), jnp.asarray([0.7, -0.4]),
                         jnp.zeros(row_coordinates.size(plan, rows) - 2)])  # tau = 1: u is itself
    value = float(density.log_posterior(plan, known, rows)(u)[0])
    start, move, want = np.array([0.6, 0.4]), np.array([[0.8, 0.2], [0.3, 0.7]]), 0.0
    for number, counts in zip([0.7, -0.4], y, strict=True):
        row = 0.0
        for path in itertools.product(range(2), repeat=3):
            log = np.log(start[path[0]]) + sum(
                np.log(move[a, b]) for a, b in itertools.pairwise(path))
            log += stats.poisson.logpmf(counts, np.array([1.0, 6.0])[list(path)]
                                        * np.exp(number)).sum()
            row += np.exp(log)
        want += np.log(row) + stats.norm.logpdf(number)
    idle = (row_coordinates.size(plan, rows) - 2) * stats.norm.logpdf(0.0)  # padding
    np.testing.assert_allclose(value - idle, want + stats.halfnorm.logpdf(1.0), atol=1e-9)
