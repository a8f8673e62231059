"""The rows from which EM starts, and their first labels: rows far from each other, k-means,
hierarchical clusters, random label probabilities. Independent of the model.

All is done in standardised units on the host: units of measurement do not matter, and nothing is
compiled.

Representative rows of a source, so that the first steps of a fit need not pass over all.

Source: Ward (1963), "Hierarchical grouping to optimize an objective function".
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from probml.dataset.dataset import Data
from probml.device.layout import bucket, order
from probml.device.load import load
from probml.engines.engine import Problem
from probml.errors import DataError, counted, present
from probml.plan.plan import Plan

ROUNDING = 1e-12  # relative difference of heights


def cut(points: np.ndarray, k: int) -> np.ndarray | None:
    """The cluster 0 … k − 1 of every point, (n, d) → (n,), by Ward's hierarchical clustering; None
    if heights are equal at the cut, so that there are no k clusters."""
    from scipy.cluster.hierarchy import fcluster, linkage  # late: slow to import

    count = len(points)
    if k >= count:
        return np.arange(count) if k == count else None
    tree = linkage(points, "ward")
    heights = np.append(0.0, tree[:, 2] ** 2)
    if k > 1 and heights[-k + 1] - heights[-k] <= ROUNDING * heights[-k + 1]:
        return None
    return fcluster(tree, k, "maxclust") - 1


def use_representative_rows(problem: Problem) -> Problem:
    """The problem on the representative rows of a source (dataset/sources/profile.py), weighted by
    the rows that each represents."""
    data = problem.data._replace(survey=None)
    old_weights = np.ones(data.table.rows) if problem.weights is None else problem.weights
    weights = old_weights * (problem.rows.weight / old_weights.sum())
    rows, known = load(data, problem.plan, weights, order(data, problem.plan),
                       params=problem.start)
    return replace(problem, data=data, weights=weights, rows=rows, known=known)


SAMPLE = 1024  # unlabelled rows of a start
CANDIDATES = 10_000  # rows from which they are drawn
TREE = 256  # rows of a hierarchical clustering
KMEANS_ITERATIONS = 12
# standard deviations beyond which distances are logarithmic, so that an outlier makes no cluster
TAIL = 3.0
MAX_INDICATORS = 256  # columns for the states of a categorical site, at most
MAX_WHITENED = 32  # columns of features that are made uncorrelated, at most
WINDOWS = (1, 5, 15, 45)  # steps of a chain over which features are averaged

SEEDS, KMEANS, RANDOM, PRIOR, TREES = "seeds", "k-means", "random", "prior", "trees"
# kinds of labels of the starts, in this order, then the others over and over
KINDS = (SEEDS, KMEANS, RANDOM, PRIOR, SEEDS, TREES, RANDOM, KMEANS, SEEDS, RANDOM, PRIOR)
FURTHER_KINDS = (RANDOM, KMEANS, SEEDS)


class Labelling(NamedTuple):
    """For every start: rows, their weights, and label probabilities of every hidden variable.

    Attributes:
        rows: (starts, m) indices of rows. weights: (starts, m).
        evidence: variable → (starts, m, states). drawn: (starts,) those that begin at parameters
            instead.
    """

    rows: np.ndarray
    weights: np.ndarray
    evidence: dict[str, np.ndarray]
    drawn: np.ndarray


def hidden_variables(plan: Plan) -> list[str]:
    """The discrete variables in rows of which no label is observed."""
    return [v for v in plan.variables if plan.structure.sites[v].rows and v not in plan.pattern]


def labelled(data: Data, plan: Plan, weights: np.ndarray | None, starts: int, seed: int,
             allowed: Mapping) -> Labelling:
    """Rows and labels of every start, of several kinds in turn; a single start is of the first.

    seeds: a row for every state, far from each other (k-means++, Arthur & Vassilvitskii 2007), and
        others unlabelled with as much weight.
    k-means. trees: Ward's hierarchical clustering (1963) of a sample. random: label probabilities
    along random directions, of squares too, or at random. prior: no labels, but draws of the prior.
    """
    random = np.random.default_rng(seed)
    variables = hidden_variables(plan)
    states = {v: plan.variables[v].states for v in variables}
    usable = np.arange(data.table.rows) if weights is None else np.flatnonzero(weights)
    count = len(usable)
    # not the count itself: another n in the same bucket compiles nothing
    size = min(SAMPLE, bucket(count))
    candidates = usable if count <= CANDIDATES else np.sort(
        random.choice(usable, CANDIDATES, replace=False)
    )
    positions = np.arange(len(candidates))
    others = np.stack(
        [np.resize(random.permutation(positions), size)
         if size > count else random.choice(positions, size, False) for _ in range(starts)]
    )
    real = np.arange(size) < count  # the rest fills the shape
    features = _features(data, plan, candidates) if variables else np.zeros((len(positions), 1))
    views = _views(features, bool(plan.chains))
    total = sum(states.values())
    other_weights = random.exponential(size=others.shape) if starts > 1 or not variables else (
        np.ones(others.shape))
    seeds, seed_weights = np.zeros((starts, total), int), np.zeros((starts, total))
    evidence = {v: np.ones((starts, total + size, states[v])) for v in variables}
    kinds = np.array([*KINDS, *FURTHER_KINDS * starts][:starts] if variables else [SEEDS] * starts)
    for i, kind in enumerate(kinds):
        if kind in (SEEDS, PRIOR):
            pos = 0
            for v in variables:
                seeds[i, pos : pos + states[v]] = _distant_rows(features, states[v], random)
                evidence[v][i, pos : pos + states[v]] = np.eye(states[v])
                seed_weights[i, pos : pos + states[v]] = allowed[v][i] if v in allowed else 1.0
                pos += states[v]
            other_weights[i] *= (seed_weights[i].sum() if variables else size
                                 ) / other_weights[i].sum()
            continue
        row_weights = np.ones(size) if weights is None else weights[candidates[others[i]]]
        other_weights[i] = real * row_weights / row_weights.mean()
        for j, v in enumerate(variables):
            codes = np.flatnonzero(allowed[v][i]) if v in allowed else np.arange(states[v])
            # a second variable must not have the same labels as the first
            label = _LABELLERS[RANDOM if kind == TREES and j else kind]
            x, table = views[random.integers(len(views))][others[i]], np.zeros((size, states[v]))
            table[:, random.permutation(codes)] = label(x, real, len(codes), random)
            evidence[v][i, total:] = table
    rows = candidates[np.concatenate([seeds, others], 1)]
    return Labelling(rows, np.concatenate([seed_weights, other_weights], 1), evidence,
                     kinds == PRIOR)


# Label probabilities of rows, (rows, k), by their features x in one of the views


def _kmeans(x: np.ndarray, real: np.ndarray, k: int, random: np.random.Generator) -> np.ndarray:
    points = x[real]
    centres = points[_distant_rows(points, k, random)]
    for _ in range(KMEANS_ITERATIONS):
        codes = _nearest(points, centres)
        centres = np.stack([points[codes == j].mean(0) if (codes == j).any() else centres[j]
                            for j in range(k)])
    return np.eye(k)[_nearest(x, centres)]


def _trees(x: np.ndarray, real: np.ndarray, k: int, random: np.random.Generator) -> np.ndarray:
    points = x[np.flatnonzero(real)[:TREE]]
    codes = cut(points, k) if len(points) > k else None
    if codes is None:  # heights are equal: there are no k clusters
        return _kmeans(x, real, k, random)
    return np.eye(k)[_nearest(x, np.stack([points[codes == j].mean(0) for j in range(k)]))]


def _random(x: np.ndarray, real: np.ndarray, k: int, random: np.random.Generator) -> np.ndarray:
    square = x**2 - (x**2).mean(0)
    square /= np.maximum(square.std(0), 1e-12)
    directions = random.standard_normal((2, x.shape[1], k)) / np.sqrt(x.shape[1])
    shares = random.random(3)  # of columns, squares, noise: some starts are nearly noise alone
    score = shares[0] * x @ directions[0] + shares[1] * square @ directions[1] + (
        shares[2] * random.gumbel(size=(len(x), k)))
    score = 3.0 * (score - score.mean(0)) / np.maximum(score.std(0), 1e-12)
    score -= score.max(1, keepdims=True)
    return np.exp(score) / np.exp(score).sum(1, keepdims=True)


_LABELLERS = {KMEANS: _kmeans, TREES: _trees, RANDOM: _random}


def _nearest(x: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return np.argmin((centres**2).sum(1) - 2 * x @ centres.T, 1)


def _distant_rows(features: np.ndarray, k: int, random: np.random.Generator) -> np.ndarray:
    """k rows, each drawn in proportion to its squared distance from those before, as the best of a
    few draws (k-means++)."""
    first = int(random.integers(len(features)))
    chosen, distance = [first], ((features - features[first]) ** 2).sum(1)
    tries = 2 + int(np.log(k))
    for _ in range(1, k):
        total = distance.sum()
        draws = (random.choice(len(features), tries, p=distance / total)
                 if total > 0 else random.integers(len(features), size=tries))
        reduced = [np.minimum(distance, ((features - features[row]) ** 2).sum(1)) for row in draws]
        best = int(np.argmin([r.sum() for r in reduced]))
        chosen.append(int(draws[best]))
        distance = reduced[best]
    return np.array(chosen)


# Rows as points


def single_steps(data: Data, plan: Plan, weights: np.ndarray | None,
                 seed: int) -> tuple[Data, np.ndarray | None]:
    """For hidden chains, the steps with observed data as rows of one step: emissions distinguish
    the states."""
    if not plan.chains:
        return data, weights
    table, steps = data.table, present(data.steps)
    usable = (np.ones((table.rows, steps), bool) if data.lengths is None
              else np.arange(steps) < data.lengths[:, None])
    observed = data.observed_steps()
    if observed is not None:
        usable &= observed
    if weights is not None:
        usable &= weights[:, None] > 0
    picks = np.flatnonzero(usable)
    if len(picks) > CANDIDATES:
        picks = np.sort(np.random.default_rng([seed, 2]).choice(picks, CANDIDATES, replace=False))
    return data.unrolled(picks), None if weights is None else weights[picks // steps]


def check_distinct(data: Data, plan: Plan) -> None:
    """Raises DataError if a hidden site has more states than there are distinct rows of the
    continuous data that depend on it; on the host, before anything is compiled. Where every
    parameter is known no component is found.
    """
    data = single_steps(data, plan, None, 0)[0] if plan.free else data
    if not plan.free or data.table.rows > CANDIDATES:
        return
    for variable in hidden_variables(plan):
        site = plan.structure.sites[variable]
        children = [c for c in plan.structure.children[variable] if c in plan.observed]
        no_components = site.family is None or site.states is None
        if no_components or not children or any(plan.structure.sites[c].discrete for c in children):
            continue
        if not any(set(plan.free) & set(used) for c in children
                   for used in plan.structure.sites[c].uses.values()):
            continue  # the emissions are known: no component is found
        states = present(site.states)
        cells = math.prod(n for axis, n in enumerate(site.cells) if axis != site.time)
        distinct = cells * len(np.unique(_features(data, plan, np.arange(data.table.rows)), axis=0))
        if distinct < states:
            raise DataError(
                f"site '{variable}' has {states} states (components), but the data have only "
                f"{counted(distinct, 'distinct row' if cells == 1 else 'distinct value')}. Use at "
                f"most {counted(distinct, 'component')}"
            )


def _views(features: np.ndarray, chain: bool) -> list[np.ndarray]:
    """Features of the rows in several ways: columns, uncorrelated columns, and for chains moving
    averages of columns and squares."""
    views, x = [features], features[:, features.std(0) > 0]
    if 1 < x.shape[1] <= MAX_WHITENED:
        value, axes = np.linalg.eigh(np.cov(x.T))
        views.append((x - x.mean(0)) @ axes / np.sqrt(np.maximum(value, 1e-4 * value[-1])))
    if chain:
        columns = np.concatenate([x, x**2], 1)
        sums = np.concatenate([np.zeros((1, columns.shape[1])), np.cumsum(columns, 0)])
        index = np.arange(len(columns))
        for window in WINDOWS:
            low, high = np.maximum(index - window // 2, 0), np.minimum(index + window // 2 + 1,
                                                                       len(columns))
            mean = (sums[high] - sums[low]) / (high - low)[:, None]
            views.append(_standardised(mean))
    return views


def _standardised(values: np.ndarray) -> np.ndarray:
    """Columns in units of their standard deviation, or of that of their middle half if there are
    outliers, which are moved nearer."""
    values = values - values.mean(0, dtype=float)
    spread = values.std(0)
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    robust_sd = (high - low) / 1.349
    has_outlier = (robust_sd > 0) & (spread > TAIL * robust_sd)
    spread = np.where(has_outlier, robust_sd, spread)
    values = np.where(has_outlier, values - median, values) / np.where(spread > 0, spread, 1.0)
    excess = np.maximum(np.abs(values) / TAIL, 1.0)
    return np.where(excess > 1, np.sign(values) * TAIL * (1 + np.log(excess)), values)


def _indicators(codes: np.ndarray, states: int) -> np.ndarray:
    """Codes as points with the distance 1 between any two states, (..., m), 0 where missing: a
    column for each state or, of more than MAX_INDICATORS, so many random ones in which distances
    are nearly the same (Johnson & Lindenstrauss 1984)."""
    if states <= MAX_INDICATORS:
        return (codes[..., None] == np.arange(states)) / np.sqrt(2)
    points = np.random.default_rng(0).normal(size=(states, MAX_INDICATORS)).astype(np.float32)
    valid = (codes >= 0) & (codes < states)
    coded = points[np.where(valid, codes, 0).astype(int)] / np.float32(np.sqrt(2 * MAX_INDICATORS))
    return np.where(valid[..., None], coded, np.float32(0))


def _features(data: Data, plan: Plan, rows: np.ndarray) -> np.ndarray:
    """Observed columns and inputs as standardised numbers, (rows, features)."""
    blocks = [np.zeros((len(rows), 1))]
    for name in (n for n in plan.observed if n in data.table.columns):  # not factors
        column, site = data.table.columns[name], plan.structure.sites[name]
        values = column.values[rows].reshape(len(rows), -1)
        if site.states:
            values = _indicators(values, site.states).reshape(len(rows), -1)
        elif site.discrete and site.event:  # counts of a total: their shares
            counts = values.reshape(len(rows), -1, site.event[-1])
            values = np.sqrt(counts / np.maximum(counts.sum(-1, keepdims=True), 1)).reshape(
                len(rows), -1
            )
            spread = np.sqrt(values.var(0).sum())
            values = (values - values.mean(0)) / (spread if spread > 0 else 1.0)
        else:
            values = _standardised(np.sqrt(np.maximum(values, 0)) if site.discrete
                               else values.astype(float))
        blocks.append(values)
    for name in data.table.inputs:
        blocks.append(
            _standardised(np.asarray(data.table.inputs[name][rows], float).reshape(len(rows), -1))
        )
    return np.concatenate(blocks, 1)
