"""Vectors seen in part: marginal densities, exact EM, conditional means and draws, against brute
force and scipy."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample
from scipy.stats import multivariate_normal, multivariate_t

import probml
from probml.dataset import read
from probml.device import layout, load
from probml.device.rows import Chunk, take_rows
from probml.evidence import e_step
from probml.families import marginal_normal
from probml.families.likelihoods.multivariate_normal import MultivariateNormal
from probml.models import gaussian_mixture

FAMILY = MultivariateNormal()


def covariances(random, k, d):
    root = random.normal(size=(k, d, d))
    return root @ np.swapaxes(root, -1, -2) + np.eye(d)


def holes(random, n, d, share=0.4):
    """A mask with a row seen whole, one not at all, and random ones."""
    seen = random.random((n, d)) > share
    seen[0], seen[1] = True, False
    return seen


def marginal(x, seen, loc, covariance):
    """The oracle: scipy's density of the sub-vector."""
    return np.array(
        [multivariate_normal(loc[s], covariance[np.ix_(s, s)]).logpdf(row[s]) if s.any() else 0.0
         for row, s in zip(x, seen, strict=True)]
    )


MORE = [pytest.param(*pair, marks=pytest.mark.slow)
        for pair in ((5, True), (8, False), (9, False), (9, True))]


@pytest.mark.parametrize(("d", "switch"), [(1, False), (1, True), (5, False), *MORE])
def test_the_kernel_is_the_density_of_the_sub_vector_and_its_gradient(d, switch, monkeypatch):
    random = np.random.default_rng(d)
    if d == 5:
        monkeypatch.setattr(marginal_normal, "HELD", 2**9)  # a few rows at a time
    loc, covariance = random.normal(size=(3, 1, d)), covariances(random, 3, d)[:, None]
    n = marginal_normal.MIN_TILES if d == 8 else 40  # so many are written out
    x, seen, weight = (random.normal(size=(n, 1, d)), holes(random, n, d)[:, None],
                       random.random((n, 3)))
    found = marginal_normal.locate(seen, switch)

    @jax.jit
    def fast(loc, covariance):
        natural = FAMILY.natural({"loc": loc, "covariance_matrix": covariance}, 0.0)
        return FAMILY.log_density(natural, jnp.asarray(np.where(seen, x, 7.0)), jnp.asarray(seen),
                                  jax.tree.map(jnp.asarray, found))

    @jax.jit
    def slow(loc, covariance):
        return marginal_normal.log_density(loc[:, 0], covariance[:, 0], jnp.asarray(x),
                                           jnp.asarray(seen))

    expected = np.stack([marginal(x[:, 0], seen[:, 0], loc[j, 0], covariance[j, 0])
                         for j in range(3)], 1)
    np.testing.assert_allclose(fast(loc, covariance), expected, atol=1e-10)
    np.testing.assert_allclose(slow(loc, covariance), expected, atol=1e-10)
    slopes = [jax.grad(lambda *a, f=f: (weight * f(*a)).sum(),
                       (0, 1))(jnp.asarray(loc), jnp.asarray(covariance)) for f in (fast, slow)]
    for a, b in zip(*slopes, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_two_dimensions_equal_brute_integration():
    random = np.random.default_rng(0)
    loc, covariance = np.array([0.5, -1.0]), np.array([[1.0, 0.6], [0.6, 2.0]])
    row, seen = np.array([[0.3, np.nan]]), np.array([[True, False]])
    grid = np.linspace(-15, 15, 4001)
    joint = multivariate_normal(loc, covariance).pdf(np.stack([np.full_like(grid, 0.3), grid], 1))
    step = grid[1] - grid[0]
    log = marginal_normal.log_density(loc, covariance, np.nan_to_num(row), seen)[0]
    np.testing.assert_allclose(log, np.log(joint.sum() * step), atol=1e-10)
    mean = marginal_normal.fill(loc, covariance, np.nan_to_num(row), seen)[0]
    np.testing.assert_allclose(mean, [0.3, (grid * joint).sum() / joint.sum()], atol=1e-10)
    draws = random.multivariate_normal(loc, covariance, 200_000)
    filled = marginal_normal.fill(draws,
                                  covariance, np.broadcast_to(np.nan_to_num(row), draws.shape),
                                  np.broadcast_to(seen, draws.shape))
    np.testing.assert_allclose(filled[:, 0], 0.3)
    spread = ((grid - mean[1]) ** 2 * joint).sum() / joint.sum()
    np.testing.assert_allclose([filled[:, 1].mean(), filled[:, 1].var()], [mean[1], spread],
                               atol=0.02)


def test_a_student_t_seen_in_part_is_the_student_t_of_the_sub_vector():
    random = np.random.default_rng(1)
    loc, covariance = random.normal(size=4), covariances(random, 1, 4)[0]
    x, seen = random.normal(size=(6, 4)), holes(random, 6, 4)
    expected = [
        multivariate_t(loc[s], covariance[np.ix_(s, s)], df=3.5).logpdf(row[s]) if s.any() else 0.0
        for row, s in zip(x, seen, strict=True)
    ]
    np.testing.assert_allclose(marginal_normal.log_density(loc, covariance, x, seen, 3.5), expected,
                               atol=1e-10)


@probml.model
def mixture(k: int, d: int):
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 2.0)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 5.0).expand([d]).to_event(1))
        covariance = sample("covariance", dist.InverseWishart(d + 2.0, scale_matrix=jnp.eye(d)))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.MultivariateNormal(mean[z], covariance_matrix=covariance[z]))


def masked_em(x, seen, weights, loc, covariance, iterations):
    """Maximum likelihood EM as a textbook writes it, row by row (Little & Rubin 2002, section
    11.2.1)."""
    n, d = x.shape
    for _ in range(iterations):
        log = np.stack([marginal(x, seen, m, c) for m, c in zip(loc, covariance, strict=True)],
                       1) + np.log(weights)
        q = np.exp(log - log.max(1, keepdims=True))
        q /= q.sum(1, keepdims=True)
        new_loc, new_covariance = [], []
        for j, (m, c) in enumerate(zip(loc, covariance, strict=True)):
            filled, extra = x.copy(), np.zeros((n, d, d))
            for i, s in enumerate(seen):
                gain = c[np.ix_(~s, s)] @ np.linalg.inv(c[np.ix_(s, s)])
                filled[i, ~s] = m[~s] + gain @ (x[i, s] - m[s])
                extra[i][np.ix_(~s, ~s)] = c[np.ix_(~s, ~s)] - gain @ c[np.ix_(s, ~s)]
            new_loc.append(q[:, j] @ filled / q[:, j].sum())
            away = filled - new_loc[-1]
            new_covariance.append(np.einsum(
                "i,ijk->jk", q[:, j], away[:, :, None] * away[:, None] + extra
            ) / q[:, j].sum())
        weights, loc, covariance = q.mean(0), np.array(new_loc), np.array(new_covariance)
    return weights, loc, covariance


def data(n=300, d=5, seed=0):
    random = np.random.default_rng(seed)
    both = zip([np.zeros(d), np.full(d, 3.0)], covariances(random, 2, d), strict=True)
    x = np.concatenate([random.multivariate_normal(m, c, n // 2) for m, c in both])
    return x, holes(random, len(x), d, 0.3)


def test_em_is_the_textbooks_row_by_row():
    x, seen = data(60, 3)
    start = (np.array([0.4, 0.6]), np.array([[0.0, 0, 0], [2.0, 2, 2]]),
             np.stack([np.eye(3), 2 * np.eye(3)]))
    engine = probml.EM(prior=False, accelerate=False, max_iterations=4, tolerance=0.0)
    with pytest.warns(probml.ConvergenceWarning, match="before convergence"):
        first = dict(zip(("weights", "mean", "covariance"), start, strict=True))
        fit = mixture(2, 3).fit({"x": np.where(seen, x, np.nan)}, engine, start=first)
    expected = masked_em(x, seen, *start, 4)
    for name, value in zip(("weights", "mean", "covariance"), expected, strict=True):
        np.testing.assert_allclose(fit.params[name], value, atol=1e-10)


@pytest.fixture(scope="module")
def fitted():
    x, seen = data()
    torn = np.where(seen, x, np.nan)
    return x, seen, torn, mixture(2, 5).fit({"x": torn}, probml.EM(restarts=3, tolerance=1e-9))


def test_em_never_lowers_the_log_posterior_with_unseen_coordinates(fitted):
    *_, fit = fitted
    assert fit.converged and (np.diff(fit.history) >= -1e-9 * np.abs(fit.history[-1])).all()


def test_answers_are_those_of_the_sub_vectors(fitted):
    x, seen, torn, fit = fitted
    p = fit.params
    log = np.stack(
        [marginal(x, seen, m, c) for m, c in zip(p["mean"], p["covariance"], strict=True)], 1
    ) + np.log(p["weights"])
    total = np.logaddexp.reduce(log, 1)
    np.testing.assert_allclose(fit.log_prob({"x": torn}), total, atol=1e-9)
    q = np.exp(log - total[:, None])
    np.testing.assert_allclose(fit.predict_proba({"x": torn}), q, atol=1e-9)
    # nothing of row 1 is seen
    np.testing.assert_allclose(fit.log_prob({"x": torn})[1], 0.0, atol=1e-9)
    filled = fit.impute({"x": torn})["x"]
    expected = np.stack([marginal_normal.fill(m, c, np.nan_to_num(torn), seen)
                         for m, c in zip(p["mean"], p["covariance"], strict=True)], 1)
    np.testing.assert_allclose(filled, np.einsum("ij,ijd->id", q, expected), atol=1e-9)
    np.testing.assert_array_equal(filled[seen], x[seen])


def test_draws_given_the_seen_coordinates_have_the_conditional_moments(fitted):
    x, seen, torn, fit = fitted
    row = np.repeat(np.array([[0.0, np.nan, 0.5, np.nan, np.nan]]), 40_000, 0)
    drawn = fit.simulate(given={"x": row}, seed=1)
    mask = ~np.isnan(row[0])
    np.testing.assert_array_equal(drawn["x"][:, mask], row[:, mask])
    np.testing.assert_allclose(drawn["x"].mean(0), fit.impute({"x": row[:1]})["x"][0], atol=0.05)
    p, j = fit.params, fit.predict_proba({"x": row[:1]})[0].argmax()
    c = p["covariance"][j]
    schur = (c[np.ix_(~mask, ~mask)] - c[np.ix_(~mask, mask)] @ np.linalg.inv(c[np.ix_(mask, mask)])
             @ c[np.ix_(mask, ~mask)])
    np.testing.assert_allclose(np.cov(drawn["x"][drawn["z"] == j][:, ~mask].T), schur,
                               atol=0.1 * np.abs(schur).max())


@pytest.mark.slow
def test_map_and_em_meet(fitted):
    *_, torn, fit = fitted
    start = {name: value + 0.01 * (name == "mean") for name, value in fit.params.items()}
    climbed = mixture(2, 5).fit({"x": torn}, probml.MAP(), start=start)
    np.testing.assert_allclose(climbed.history[-1], fit.history[-1], atol=1e-4)


@pytest.mark.slow
def test_em_takes_seen_labels_and_unseen_cells(fitted):
    x, seen, torn, _ = fitted
    labels = np.repeat([0, 1], len(x) // 2)
    with pytest.raises(probml.Refusal, match="'x'.*partially observed"):
        mixture(2, 5).fit({"x": torn, "z": labels}, probml.Exact())
    fit = mixture(2, 5).fit({"x": torn, "z": labels}, probml.EM())
    assert fit.converged
    assert (fit.predict({"x": torn}) == labels).mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["full", "tied"])
def test_every_order_of_many_rows_gives_the_same_fit(covariance):
    """Rows travel sorted by what is unseen, through programs of several sizes; answers come back in
    the user's order."""
    random = np.random.default_rng(3)
    d, n = 7, 6000
    x = random.normal(size=(n, d)) @ random.normal(size=(d, d)) + 3 * random.integers(2,
                                                                                      size=(n, 1))
    x[random.random((n, d)) < 0.25] = np.nan
    model, engine = gaussian_mixture(2, d, covariance), probml.EM(max_iterations=5, tolerance=0.0)
    precision = np.eye(d) if covariance == "tied" else np.tile(np.eye(d), (2, 1, 1))
    start = {"weights": np.full(2, 0.5), "mean": np.stack([np.zeros(d), np.full(d, 3.0)]),
             "precision": precision}
    shuffle = random.permutation(n)
    with pytest.warns(RuntimeWarning):
        a = model.fit({"x": x}, engine, start=start)
        b = model.fit({"x": x[shuffle]}, engine, start=start)
    np.testing.assert_allclose(a.log_prob({"x": x})[shuffle], b.log_prob({"x": x[shuffle]}),
                               rtol=1e-9)
    part = slice(0, 20)
    np.testing.assert_allclose(a.log_prob({"x": x[part]}), a.log_prob({"x": x})[part], atol=1e-9)
    np.testing.assert_allclose(a.impute({"x": x[part]})["x"], a.impute({"x": x})["x"][part],
                               atol=1e-9)


@probml.model
def regression(x, d: int = 2):
    slope = sample("slope", dist.Normal(0.0, 5.0).expand([d]).to_event(1))
    covariance = sample("covariance", dist.InverseWishart(d + 2.0, scale_matrix=jnp.eye(d)))
    with probml.rows():
        sample("y", dist.MultivariateNormal(x[:, None] * slope, covariance_matrix=covariance))


def test_a_regression_of_vectors_takes_rows_seen_in_part():
    random = np.random.default_rng(5)
    x = random.normal(size=200)
    y = x[:, None] * np.array([1.0, -2.0]) + random.multivariate_normal(
        [0, 0], [[1.0, 0.8], [0.8, 1.0]], 200
    )
    y[::3, 1] = np.nan
    fit = regression().fit({"x": x, "y": y}, probml.EM())
    p, seen = fit.params, ~np.isnan(y)
    expected = np.array([marginal(y[i : i + 1], seen[i : i + 1], x[i] * p["slope"],
                                  p["covariance"])[0] for i in range(200)])
    np.testing.assert_allclose(fit.log_prob({"x": x, "y": y}), expected, atol=1e-9)
    np.testing.assert_allclose(p["slope"], [1.0, -2.0], atol=0.2)


@pytest.mark.parametrize("name", ["mvn_mvnmle_apple_missing", "mvn_airquality"])
def test_mvnmle_is_reached(shared_data, name):
    fit = json.loads((shared_data / "fits" / f"{name}.json").read_text())
    table = pd.read_csv(shared_data / fit["dataset"])[fit["columns"]].astype(float)
    if name == "mvn_airquality":
        table["Ozone"] = np.log(table["Ozone"])
    data = {"x": table.to_numpy()}
    found = gaussian_mixture(1, table.shape[1]).fit(
        data, probml.EM(prior=False, tolerance=1e-14, max_iterations=5000)
    )
    np.testing.assert_allclose(found.log_prob(data).sum(), fit["loglik"], atol=1e-6)
    np.testing.assert_allclose(found.params["mean"][0], fit["mean_polished"], rtol=1e-6)
    np.testing.assert_allclose(np.linalg.inv(found.params["precision"][0]),
                               fit["covariance_polished"], rtol=1e-5)


def repeated(random, n, d, patterns, share=0.4):
    """A mask whose rows have few patterns, and some that have their own."""
    seen = holes(random, patterns, d, share)[random.integers(patterns, size=n)]
    seen[: n // 10] = holes(random, n // 10, d, share)
    return seen


@pytest.fixture
def tiles_pay(monkeypatch):
    """Tiles wherever patterns repeat, whatever rows by themselves cost on some machine."""
    monkeypatch.setattr(layout, "cost",
                        lambda lengths, tile, m, d: (-(-lengths // tile)).sum() * (8 + tile))


@pytest.mark.usefixtures("tiles_pay")
@pytest.mark.parametrize(("d", "several"), [
    (4, False), *(pytest.param(*pair, marks=pytest.mark.slow)
                  for pair in ((4, True), (9, True), (9, False)))])
def test_rows_in_tiles_of_one_pattern_have_the_density_and_gradient_of_their_sub_vectors(d, several):
    random = np.random.default_rng(d)
    mask = repeated(random, 240, d, 6)
    laid = layout.tile_by_pattern(mask, several)
    assert max(laid.tiles.rows) > 1
    seen = mask[laid.index][:, None]
    n = len(seen)
    loc, covariance = random.normal(size=(2, 1, d)), covariances(random, 2, d)[:, None]
    x, weight = random.normal(size=(n, 1, d)), random.random((n, 2))
    # chunks of whole tiles, as rows are passed over
    chunks = [slice(i, i + 64) for i in range(0, n, 64)] if several else [slice(None)]
    pad = -n % max(laid.tiles.rows)
    found = marginal_normal.locate(np.concatenate([seen, np.ones((pad, 1, d), bool)]), several)
    found = found._replace(tiles=laid.tiles)
    wide = [np.concatenate([a, np.zeros((pad, *a.shape[1:]), a.dtype)]) for a in (x, seen, weight)]

    def fast(loc, covariance):
        natural = FAMILY.natural({"loc": loc, "covariance_matrix": covariance}, 0.0)
        values = [FAMILY.log_density(
            natural, jnp.asarray(np.where(wide[1][at], wide[0][at], 7.0)), jnp.asarray(wide[1][at]),
            jax.tree.map(lambda leaf, at=at: jnp.asarray(leaf[at]), found)) for at in chunks]
        return jnp.concatenate(values)[:n]

    def slow(loc, covariance):
        return marginal_normal.log_density(loc[:, 0], covariance[:, 0], jnp.asarray(x),
                                           jnp.asarray(seen))

    expected = np.stack([marginal(x[:, 0], seen[:, 0], loc[j, 0], covariance[j, 0])
                         for j in range(2)], 1)
    at = jnp.asarray(loc), jnp.asarray(covariance)
    values, slopes = [], []
    for function in (fast, slow):
        value, back = jax.vjp(jax.jit(function), *at)
        values.append(value)
        slopes.append(back(jnp.asarray(weight)))
    np.testing.assert_allclose(values[0], expected, atol=1e-10)
    for a, b in zip(*slopes, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.usefixtures("tiles_pay")
@pytest.mark.parametrize("several", [True, False])
def test_a_layout_has_every_row_once_and_one_pattern_a_tile(several):
    random = np.random.default_rng(4)
    seen = repeated(random, 3000, 5, 12)
    index, own, tiles = layout.tile_by_pattern(seen, several)
    np.testing.assert_array_equal(np.sort(index[own]), np.arange(3000))
    assert all(a % b == 0 for a, b in zip(tiles.rows, tiles.rows[1:], strict=False))
    place, count = 0, (~seen).sum(1)
    assert (np.diff(count[index]) >= 0).all()
    while place < len(index):
        tile = tiles.of(count[index[place]] if several else count.max())
        assert place % tile == 0
        assert (seen[index[place : place + tile]] == seen[index[place]]).all()
        place += tile
    assert len(index) < 1.5 * 3000


def test_patterns_that_hardly_repeat_stay_without_tiles():
    seen = np.random.default_rng(5).random((500, 30)) > 0.5
    assert layout.tile_by_pattern(seen, True) is None


@pytest.mark.usefixtures("tiles_pay")
def test_expected_statistics_of_rows_in_tiles_are_those_of_rows_as_they_come(monkeypatch):
    random = np.random.default_rng(6)
    x, seen = random.normal(size=(700, 4)) + 1e3, repeated(random, 700, 4, 8)
    weights = random.random(700)
    held = read.read(mixture(2, 4), {"x": np.where(seen, x, np.nan)}).trimmed()
    plan, found = held.plan(), []
    params = {"weights": np.array([0.3, 0.7]), "mean": 1e3 + random.normal(size=(2, 4)),
              "covariance": covariances(random, 2, 4)}
    monkeypatch.setattr(layout, "MIN_ROWS_FOR_TILES", 100)
    for keep in (layout.choose_layout(held, plan), layout.choose_layout(held, plan, summed=False)):
        rows, known = load.load(held, plan, weights, keep)
        found.append(jax.jit(functools.partial(e_step.expect, plan))(params, known, rows))
    assert rows.first.missing["x"].tiles is None
    tiled, plain = ((e.statistics, e.log_evidence) for e in found)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-8), tiled, plain)


@pytest.mark.usefixtures("tiles_pay")
def test_rows_that_are_picked_leave_their_tiles():
    seen = repeated(np.random.default_rng(7), 300, 4, 5)
    keep = layout.tile_by_pattern(seen, False)
    found = marginal_normal.locate(seen[keep.index][:, None], False)._replace(tiles=keep.tiles)
    chunk = Chunk({}, {}, {}, {"x": found}, {}, {}, np.ones(len(keep.index)))
    assert take_rows(chunk, np.arange(7)).missing["x"].tiles is None
