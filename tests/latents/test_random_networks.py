"""Linear Gaussian networks drawn at random, numbers and vectors under states, with any cells unseen:
held to the joint normal distribution of all cells, state by state."""

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from scipy import stats

import probml
from probml.dataset import read
from probml.device import load
from probml.evidence.e_step import log_evidence

nan = np.nan
ROWS, STATES = 7, 2


class Node(NamedTuple):
    """A number (size 0) or a vector; `parents` are earlier nodes, `moved` whether its location
    looks at the state, `wide` whether its scale does."""

    size: int
    parents: tuple[int, ...]
    moved: bool
    wide: bool

    @property
    def cells(self) -> int:
        return max(self.size, 1)


@probml.model
def network(nodes: tuple):
    """Nodes are (size, parents, moved, wide)."""
    share = sample("share", dist.Dirichlet(jnp.ones(STATES)))
    given, cells = [], [max(node[0], 1) for node in nodes]
    for i, node in enumerate(nodes):
        loc = sample(f"loc{i}", dist.Normal(0.0, 3.0).expand([STATES, cells[i]]).to_event(2))
        scale = sample(f"scale{i}", dist.LogNormal(0.0, 1.0).expand([STATES, cells[i]]).to_event(2))
        slopes = [sample(f"slope{i}{j}", dist.Normal(0.0, 1.0).expand(
            [cells[i], cells[j]]).to_event(2)) for j in node[1]]
        given.append((loc, scale, slopes))
    with probml.rows():
        c = sample("c", dist.Categorical(share))
        made: list = []
        for i, (size, parents, moved, spread) in enumerate(nodes):
            loc, scale, slopes = given[i]
            mean = loc[c] if moved else loc[0]
            for j, slope in zip(parents, slopes, strict=True):
                above = made[j] if nodes[j][0] else made[j][..., None]
                mean = mean + above @ slope.T
            wide = scale[c] if spread else scale[0]
            if not size:
                made.append(sample(f"x{i}", dist.Normal(mean[..., 0], wide[..., 0])))
            elif spread:
                made.append(sample(f"x{i}", dist.Normal(mean, wide).to_event(1)))
            else:  # correlated
                root = jnp.diag(wide) + 0.3 * np.tri(size, k=-1)
                made.append(sample(f"x{i}", dist.MultivariateNormal(mean, scale_tril=root)))


def drawn(seed: int) -> tuple[tuple[Node, ...], dict, dict]:
    """A network, parameters, and rows of which some sites, cells and states are unseen."""
    random = np.random.default_rng(seed)
    nodes = []
    for i in range(random.integers(3, 5)):
        parents = tuple(j for j in range(i) if random.random() < 0.6)
        nodes.append(Node(int(random.choice([0, 0, 2, 3])), parents, *(random.random(2) < 0.6)))
    nodes = tuple(Node(n.size, n.parents, bool(n.moved), bool(n.wide)) for n in nodes)
    params = {"share": random.dirichlet(np.ones(STATES))}
    for i, node in enumerate(nodes):
        params[f"loc{i}"] = random.normal(size=(STATES, node.cells))
        params[f"scale{i}"] = random.uniform(0.4, 1.5, (STATES, node.cells))
        for j in node.parents:
            params[f"slope{i}{j}"] = random.normal(size=(node.cells, nodes[j].cells))
    data = {"c": np.where(random.random(ROWS) < 0.5, random.integers(STATES, size=ROWS), nan)}
    for i, node in enumerate(nodes):
        x = 2 * random.normal(size=(ROWS, node.cells))
        x[random.random(x.shape) < 0.4] = nan
        if i == len(nodes) - 1 or random.random() < 0.7:  # else unseen in every row
            data[f"x{i}"] = x if node.size else x[:, 0]
    return nodes, params, data


def joint(nodes: tuple[Node, ...], p: Mapping, c: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of all cells in a state."""
    ends = np.cumsum([0, *(node.cells for node in nodes)])
    base, own, step = np.zeros(ends[-1]), np.zeros((ends[-1], ends[-1])), np.zeros(
        (ends[-1], ends[-1]))
    for i, node in enumerate(nodes):
        at = slice(ends[i], ends[i + 1])
        base[at] = p[f"loc{i}"][c if node.moved else 0]
        root = np.diag(p[f"scale{i}"][c if node.wide else 0])
        if node.size and not node.wide:
            root = root + 0.3 * np.tri(node.size, k=-1)
        own[at, at] = root @ root.T
        for j in node.parents:
            step[at, ends[j] : ends[j + 1]] = p[f"slope{i}{j}"]
    total = np.linalg.inv(np.eye(ends[-1]) - step)
    return total @ base, total @ own @ total.T


def table(nodes: tuple[Node, ...], data: Mapping) -> np.ndarray:
    """All cells of all rows, NaN where unseen."""
    return np.concatenate([np.reshape(data.get(f"x{i}", np.full((ROWS, node.cells), nan)),
                                      (ROWS, node.cells)) for i, node in enumerate(nodes)], 1)


def logs(nodes: tuple[Node, ...], p: Mapping, data: Mapping) -> np.ndarray:
    """log p(row, state), (rows, states)."""
    out = np.full((ROWS, STATES), -np.inf)
    for k in range(STATES):
        mean, cov = joint(nodes, p, k)
        for i, (row, c) in enumerate(zip(table(nodes, data), data["c"], strict=True)):
            s = ~np.isnan(row)
            if np.isnan(c) or c == k:
                out[i, k] = np.log(p["share"][k]) + (stats.multivariate_normal(
                    mean[s], cov[np.ix_(s, s)]).logpdf(row[s]) if s.any() else 0.0)
    return out


SEEDS = [6, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(9) if seed != 6)]


@pytest.mark.parametrize("seed", SEEDS)
def test_densities_and_means_are_those_of_the_joint_normal(seed):
    nodes, params, data = drawn(seed)
    fit, each = network(nodes=tuple(map(tuple, nodes))).at(params), logs(nodes, params, data)
    total = np.logaddexp.reduce(each, 1)
    np.testing.assert_allclose(fit.log_prob(data), total, rtol=0, atol=1e-9)
    share, mean = np.exp(each - total[:, None]), 0.0
    for k in range(STATES):
        middle, cov = joint(nodes, params, k)
        rows = []
        for row in table(nodes, data):
            s = ~np.isnan(row)
            gain = cov[:, s] @ np.linalg.inv(cov[np.ix_(s, s)]) if s.any() else np.zeros(
                (len(row), 0))
            rows.append(middle + gain @ (row[s] - middle[s]))
        mean = mean + share[:, k, None] * np.array(rows)
    filled = fit.impute(data)
    got = np.concatenate([np.reshape(filled[f"x{i}"] if f"x{i}" in filled else data[f"x{i}"],
                                     (ROWS, -1)) for i in range(len(nodes))], 1)
    np.testing.assert_allclose(got, mean, rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_gradients_are_differences_of_the_closed_form(seed):
    nodes, params, data = drawn(seed)
    held = read.read(network(nodes=tuple(map(tuple, nodes))), data)
    plan = held.plan()
    rows, known = load.load(held, plan)
    slopes = jax.jit(jax.grad(lambda p: log_evidence(plan, p, known, rows)))(
        {name: jnp.asarray(value) for name, value in params.items()})
    for name in (name for name in params if name != "share"):
        for place in np.ndindex(params[name].shape):
            ends = []
            for step in (-1e-5, 1e-5):
                moved = {**params, name: np.array(params[name])}
                moved[name][place] += step
                ends.append(np.logaddexp.reduce(logs(nodes, moved, data), 1).sum())
            assert slopes[name][place] == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-5,
                                                        abs=1e-6), (name, place)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_em_never_falls_and_tells_the_closed_form(seed):
    nodes, params, _ = drawn(seed)
    random = np.random.default_rng(seed)
    model = network(nodes=tuple(map(tuple, nodes)))
    data = model.at(params).simulate(rows=60, seed=seed)
    for name in [name for name in data if name.startswith("x")]:
        data[name] = np.where(random.random(np.shape(data[name])) < 0.25, nan, data[name])
    data["c"] = np.where(random.random(60) < 0.5, data["c"], nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it need not end within so few
        fit = model.fit(data, probml.EM(max_iterations=25, restarts=1, accelerate=False))
    assert len(fit.history) > 5 and np.all(np.diff(fit.history) > -1e-7)
    found = {name: np.asarray(value, float) for name, value in fit.params.items()}
    own = {name: value[:ROWS] for name, value in data.items()}
    np.testing.assert_allclose(fit.log_prob(own, plug_in=True),
                               np.logaddexp.reduce(logs(nodes, found, own), 1), atol=1e-8)
