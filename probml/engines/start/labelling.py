"""Which rows an EM starts from, and how they are labelled: seeds far apart, clusters, cuts of a
tree, soft waves; knows no model.

All is done in standardised units on the host: no unit of measurement matters, and nothing is
compiled.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from probml.dataset.dataset import Data
from probml.device.layout import bucket
from probml.engines.start import ward
from probml.errors import DataError, present
from probml.plan.plan import Plan

SAMPLE = 1024  # rows that join a start beside its seeds
CANDIDATES = 10_000  # rows among which they are drawn
TREE = 256  # rows of a hierarchical tree
LLOYD = 12  # iterations of k-means
TAIL = 3.0  # spreads beyond which distances count by their logarithm: an outlier is no cluster
WHITENED = 32  # columns of features at the most that are made uncorrelated
WINDOWS = (1, 5, 15, 45)  # steps of a chain that are looked at together

SPREAD, PARTS, WAVES, DRAWN, CUTS = "spread", "parts", "waves", "drawn", "cuts"
# in this order, then
KINDS = (SPREAD, PARTS, WAVES, DRAWN, SPREAD, CUTS, WAVES, PARTS, SPREAD, WAVES, DRAWN)
FURTHER = (WAVES, PARTS, SPREAD)  # over and over


class Labelling(NamedTuple):
    """For every start: rows, their weights, and evidence of the states of every hidden variable.

    Attributes:
        rows: (starts, m) indices of rows. weights: (starts, m).
        evidence: variable → (starts, m, states). drawn: (starts,) those that begin at parameters
            instead, not at labels.
    """

    rows: np.ndarray
    weights: np.ndarray
    evidence: dict[str, np.ndarray]
    drawn: np.ndarray


def hidden(plan: Plan) -> list[str]:
    """The variables in rows of which no label is seen."""
    return [v for v in plan.variables if plan.structure.sites[v].rows and v not in plan.pattern]


def labelled(data: Data, plan: Plan, weights: np.ndarray | None, starts: int, seed: int,
             allowed: Mapping) -> Labelling:
    """Rows and labels of every start, of several kinds in turn; the first is the one to take where
    there is but one.

    spread: a row for every state, far from each other (k-means++, Arthur & Vassilvitskii 2007), and
        others unlabelled with as much weight.
    parts: k-means. cuts: Ward's tree of a sample (1963), cut. waves: soft labels along random
    directions, squares among them, or at random. drawn: no labels, but the parameters' prior.
    """
    random = np.random.default_rng(seed)
    variables = hidden(plan)
    states = {v: plan.variables[v].states for v in variables}
    usable = np.arange(data.table.rows) if weights is None else np.flatnonzero(weights)
    count = len(usable)
    # not the count itself: another n in the same bucket compiles nothing
    size = min(SAMPLE, bucket(count))
    candidates = usable if count <= CANDIDATES else np.sort(
        random.choice(usable, CANDIDATES, replace=False)
    )
    there = np.arange(len(candidates))
    others = np.stack(
        [np.resize(random.permutation(there), size)
         if size > count else random.choice(there, size, False) for _ in range(starts)]
    )
    fresh = np.arange(size) < count  # the rest fills the shape
    features = _features(data, plan, candidates) if variables else np.zeros((len(there), 1))
    views = _views(features, bool(plan.chains))
    total = sum(states.values())
    loose = random.exponential(size=others.shape) if starts > 1 or not variables else np.ones(
        others.shape
    )
    seeds, sure = np.zeros((starts, total), int), np.zeros((starts, total))
    evidence = {v: np.ones((starts, total + size, states[v])) for v in variables}
    kinds = np.array([*KINDS, *FURTHER * starts][:starts] if variables else [SPREAD] * starts)
    for i, kind in enumerate(kinds):
        if kind in (SPREAD, DRAWN):
            at = 0
            for v in variables:
                seeds[i, at : at + states[v]] = _spread(features, states[v], random)
                evidence[v][i, at : at + states[v]] = np.eye(states[v])
                sure[i, at : at + states[v]] = allowed[v][i] if v in allowed else 1.0
                at += states[v]
            loose[i] *= (sure[i].sum() if variables else size) / loose[i].sum()
            continue
        loose[i] = fresh * (1.0 if weights is None else _mean_one(weights[candidates[others[i]]]))
        for j, v in enumerate(variables):
            free = np.flatnonzero(allowed[v][i]) if v in allowed else np.arange(states[v])
            way = WAVES if kind == CUTS and j else kind  # a second variable must not be the first
            table = np.zeros((size, states[v]))
            table[:, random.permutation(free)] = _ways[way](views, others[i], fresh, len(free),
                                                            random)
            evidence[v][i, total:] = table
    rows = candidates[np.concatenate([seeds, others], 1)]
    return Labelling(rows, np.concatenate([sure, loose], 1), evidence, kinds == DRAWN)


def _mean_one(weights: np.ndarray) -> np.ndarray:
    return weights / weights.mean()


# Labels of some rows, (rows, k)


def _parts(views: list, rows: np.ndarray, fresh: np.ndarray, k: int,
           random: np.random.Generator) -> np.ndarray:
    x = views[random.integers(len(views))][rows]
    seen = x[fresh]
    centres = seen[_spread(seen, k, random)]
    for _ in range(LLOYD):
        code = _nearest(seen, centres)
        centres = np.stack([seen[code == j].mean(0) if (code == j).any() else centres[j]
                            for j in range(k)])
    return np.eye(k)[_nearest(x, centres)]


def _cuts(views: list, rows: np.ndarray, fresh: np.ndarray, k: int,
          random: np.random.Generator) -> np.ndarray:
    x = views[random.integers(len(views))][rows]
    some = x[np.flatnonzero(fresh)[:TREE]]
    code = ward.cut(some, k) if len(some) > k else None
    if code is None:  # where heights are equal no cut has k parts
        return _parts(views, rows, fresh, k, random)
    return np.eye(k)[_nearest(x, np.stack([some[code == j].mean(0) for j in range(k)]))]


def _waves(views: list, rows: np.ndarray, fresh: np.ndarray, k: int,
           random: np.random.Generator) -> np.ndarray:
    x = views[random.integers(len(views))][rows]
    square = x**2 - (x**2).mean(0)
    square /= np.maximum(square.std(0), 1e-12)
    turns = random.standard_normal((2, x.shape[1], k)) / np.sqrt(x.shape[1])
    score = random.random(3)  # how much of each: some starts are noise alone, others sharp
    field = score[0] * x @ turns[0] + score[1] * square @ turns[1] + score[2] * random.gumbel(
        size=(len(x), k)
    )
    field = 3.0 * (field - field.mean(0)) / np.maximum(field.std(0), 1e-12)
    field -= field.max(1, keepdims=True)
    return np.exp(field) / np.exp(field).sum(1, keepdims=True)


_ways = {PARTS: _parts, CUTS: _cuts, WAVES: _waves}


def _nearest(x: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return np.argmin((centres**2).sum(1) - 2 * x @ centres.T, 1)


def _spread(features: np.ndarray, k: int, random: np.random.Generator) -> np.ndarray:
    """k rows, each drawn in proportion to its squared distance from those before; the best of a few
    tries each time."""
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


def check_distinct(data: Data, plan: Plan) -> None:
    """Refuse a hidden site with more states than there are distinct rows of continuous data below
    it; on the host, before any compile.

    Args:
        data: of chains, single steps.

    Raises:
        DataError: fewer distinct rows than components.
    """
    if data.table.rows > CANDIDATES:
        return
    for variable in hidden(plan):
        site = plan.structure.sites[variable]
        children = [c for c in plan.structure.children[variable] if c in plan.observed]
        # and no components
        numbers = site.family is None or site.states is None
        if numbers or not children or any(plan.structure.sites[c].discrete for c in children):
            continue
        if not any(set(plan.free) & set(used) for c in children
                   for used in plan.structure.sites[c].uses.values()):
            continue  # where the rows lie is known: no component is found
        states = present(site.states)  # of every cell, whatever the plate
        cells = math.prod(n for axis, n in enumerate(site.cells) if axis != site.time)
        distinct = cells * len(np.unique(_features(data, plan, np.arange(data.table.rows)), axis=0))
        if distinct < states:
            raise DataError(
                f"site '{variable}' has {states} states (components), but the data have only "
                f"{distinct} distinct {'rows' if cells == 1 else 'cells'}: "
                f"use at most {distinct} components"
            )


def _views(features: np.ndarray, chain: bool) -> list[np.ndarray]:
    """The rows as points in several ways: columns, uncorrelated columns, and of chains means and
    squares over some steps about a row."""
    views, x = [features], features[:, features.std(0) > 0]
    if 1 < x.shape[1] <= WHITENED:
        value, axes = np.linalg.eigh(np.cov(x.T))
        views.append((x - x.mean(0)) @ axes / np.sqrt(np.maximum(value, 1e-4 * value[-1])))
    if chain:
        both = np.concatenate([x, x**2], 1)
        sums = np.concatenate([np.zeros((1, both.shape[1])), np.cumsum(both, 0)])
        index = np.arange(len(both))
        for window in WINDOWS:
            low, high = np.maximum(index - window // 2, 0), np.minimum(index + window // 2 + 1,
                                                                       len(both))
            mean = (sums[high] - sums[low]) / (high - low)[:, None]
            views.append(_standard(mean))
    return views


def _standard(values: np.ndarray) -> np.ndarray:
    """Columns in units of their spread, that of their middle half where a few values are far away;
    those are drawn nearer."""
    values = values - values.mean(0, dtype=float)
    spread = values.std(0)
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    inner = (high - low) / 1.349
    heavy = (inner > 0) & (spread > TAIL * inner)
    spread = np.where(heavy, inner, spread)
    values = np.where(heavy, values - middle, values) / np.where(spread > 0, spread, 1.0)
    far = np.maximum(np.abs(values) / TAIL, 1.0)
    return np.where(far > 1, np.sign(values) * TAIL * (1 + np.log(far)), values)


def _features(data: Data, plan: Plan, rows: np.ndarray) -> np.ndarray:
    blocks = [np.zeros((len(rows), 1))]
    for name in (n for n in plan.observed if n in data.table.columns):  # not factors
        column, site = data.table.columns[name], plan.structure.sites[name]
        values = column.values[rows].reshape(len(rows), -1)
        if site.states:
            values = (values[..., None] == np.arange(site.states)).reshape(len(rows), -1) / np.sqrt(
                2
            )
        elif site.discrete and site.event:  # counts of a total: which shares, not how many
            counts = values.reshape(len(rows), -1, site.event[-1])
            values = np.sqrt(counts / np.maximum(counts.sum(-1, keepdims=True), 1)).reshape(
                len(rows), -1
            )
            spread = np.sqrt(values.var(0).sum())
            values = (values - values.mean(0)) / (spread if spread > 0 else 1.0)
        else:
            values = _standard(np.sqrt(np.maximum(values, 0)) if site.discrete
                               else values.astype(float))
        blocks.append(values)
    for name in data.table.inputs:
        blocks.append(
            _standard(np.asarray(data.table.inputs[name][rows], float).reshape(len(rows), -1))
        )
    return np.concatenate(blocks, 1)
