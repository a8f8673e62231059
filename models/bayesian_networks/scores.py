"""Scores of Bayesian networks from complete data: one number per family (a node and its parents),
their sum the graph's score.

Natural logarithms, larger is better, on the scale of R's bnlearn (Scutari 2010). For a discrete
node of r states whose q configurations of parents are the product of the parents' states, N_jk the
rows of state k under configuration j:

    loglik    Σ_jk N_jk log(N_jk / N_j)
    aic, bic  loglik − (r−1) q · {1, ½ log n}
    k2        Σ_j [log Γ(r) − log Γ(r + N_j)] + Σ_jk log Γ(1 + N_jk)   (Cooper & Herskovits 1992)
    bdeu      the same with pseudo-counts s/(rq) in place of 1 and s/q in place of r
              (Buntine 1991; Heckerman et al. 1995)

All of them are a function of the cells of {node, parents} minus a function of the cells of
{parents}, so that a set of columns is counted once whichever of its families are asked for. A
continuous node is a linear regression on its p continuous parents, with coefficients and a variance
of their own in each of q configurations of its discrete parents (conditional linear Gaussian:
Lauritzen & Wermuth 1989): (p + 2) q parameters, and the variance divides by rows − p − 1, as in
bnlearn: a configuration of no more than p + 1 rows scores −inf. A variance below 1e-10 of the
column's own counts as that, so that what others determine exactly still has a finite, high score.
Discrete nodes have no continuous parents.

Rows may have weights that are no whole numbers: expected counts, of rows with unseen cells. Every
discrete score is convex in the counts, and its derivative by the weight of a row is the sum over
families of

    loglik, aic, bic  log N_jk − log N_j
    k2                ψ(1 + N_jk) − ψ(r + N_j)
    bdeu              ψ(s/(rq) + N_jk) − ψ(s/q + N_j)
"""

import copy
import math
from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import digamma, gammaln, xlogy

from probml import DataError, ModelError
from probml.models.bayesian_networks.folding import combine_codes
from probml.models.bayesian_networks.variables import Variables, use_one_of

SCORES = ("bdeu", "k2", "loglik", "aic", "bic")
# least variance, as a share of the column's own, and least eigenvalue of parents' correlations that
# counts
MIN_RELATIVE_VARIANCE = 1e-10
BATCH = 256  # sets of columns per compiled call
BUFFERS = (2**14, 2**20)  # cells per compiled call; a single set may have as many as MAX_CELLS
MAX_CELLS = 2**22


def score_for(variables: Variables, score: str | None) -> str:
    """The score that was asked for; with none, bdeu where all columns are discrete, else bic."""
    return score if score is not None else "bic" if variables.continuous else "bdeu"


class Scores:
    """Scores of families, each set of columns counted once.

    Parents are bit masks: bit j stands for column j. `counted` is the number of sets of columns
    counted so far. With `weights` (rows,) the rows are distinct ones of discrete columns, each
    counted so often.
    """

    def __init__(self, variables: Variables, score: str, strength: float = 1.0,
                 weights: np.ndarray | None = None):
        if not isinstance(score, str) or score not in SCORES:
            raise ModelError(f"score={score!r}: {use_one_of(SCORES, score)}")
        if not (isinstance(strength, int | float | np.number)
                and not isinstance(strength, bool) and 0 < strength < np.inf):
            raise ModelError(f"strength={strength!r}, the equivalent sample size of score='bdeu': "
                             f"expected a number above 0")
        self.continuous = variables.continuous
        if self.continuous and score in ("bdeu", "k2"):
            raise DataError(
                f"column {variables.names[self.continuous[0]]!r} is continuous, but "
                f"score={score!r} supports only discrete columns. Choose score='bic', cut the "
                f"column into classes (pandas.cut), or pass "
                f"kinds={{{variables.names[self.continuous[0]]!r}: 'categorical'}} if the numbers "
                f"of the column are categories"
            )
        self.score, self.strength = score, float(strength)
        self.rows = variables.rows if weights is None else round(weights.sum())
        self.size = len(variables.names)
        self.states = [1 if labels is None else len(labels) for labels in variables.labels]
        self.penalty = {"aic": 1.0, "bic": np.log(self.rows) / 2}.get(score, 0.0)
        self.continuous_mask = sum(1 << j for j in self.continuous)
        self.counted = 0
        self._kinds = sorted(set(self.states)) if score == "k2" else []
        self._codes = {j: values for j, values in enumerate(variables.columns)
                       if variables.labels[j] is not None}
        self._places: dict[int, tuple[np.ndarray, int]] = {}
        self._device: tuple = ()
        if weights is None:
            self._patterns, self._weights = _distinct(self._codes, self.size, self.states,
                                                      self.rows)
            self._device = (jnp.asarray(self._patterns), jnp.asarray(self._weights))
        else:  # counted on the host, in double: what a step gains may be small
            self._patterns, self._weights = np.stack(variables.columns), weights
        self._terms: dict[int, tuple] = {}
        self._moments: dict[int, tuple] = {}
        self._regressions: dict[int, np.ndarray] = {}
        if self.continuous:
            numeric = np.stack([variables.columns[j] for j in self.continuous], 1)
            numeric -= numeric.mean(0)
            largest = np.abs(numeric).max(0)  # no square of a large number overflows below
            spread = (numeric / largest).std(0)
            self._wide, self._scale = numeric / largest / spread, np.log(largest) + np.log(spread)

    def families(self, children, parents) -> np.ndarray:
        """Scores of (child, parents), parents as bit masks; float64, one each. −inf: no such family
        can be fitted."""
        out = np.full(len(parents), -np.inf)
        pairs = list(zip(children, parents, strict=True))
        tabular = [i for i, (child, mask) in enumerate(pairs) if child in self._codes
                   and not mask & self.continuous_mask]
        normal = [i for i, (child, _) in enumerate(pairs) if child not in self._codes]
        if tabular:
            self._count({s for i in tabular for s in (pairs[i][1], pairs[i][1] | 1 << pairs[i][0])})
            index = {r: 1 + k for k, r in enumerate(self._kinds)}
            terms = self._terms
            for i in tabular:
                child, mask = pairs[i]
                out[i] = terms[mask | 1 << child][0] - terms[mask][index.get(self.states[child], 0)]
        if normal:
            self._regress({pairs[i][1] for i in normal})
            index = {j: k for k, j in enumerate(self.continuous)}
            for i in normal:
                child, mask = pairs[i]
                out[i] = self._regressions[mask][index[child]]
        return out

    def total(self, parents) -> float:
        """The score of a graph, parents as bit masks."""
        return float(self.families(range(self.size), parents).sum())

    def reweighted(self, weights: np.ndarray) -> "Scores":
        """The same rows at other weights; where their cells lie in tables is not sought again."""
        clone = copy.copy(self)
        clone._weights, clone._terms, clone.counted = weights, {}, 0
        return clone

    def likelihood(self) -> "Scores":
        """The same rows under loglik."""
        clone = copy.copy(self)
        clone.score, clone.penalty, clone._kinds, clone.counted = "loglik", 0.0, [], 0
        clone._terms, clone._regressions = {}, {}
        return clone

    def slopes(self, parents) -> np.ndarray:
        """Derivative of a graph's score by the weight of each distinct row, (u,); of discrete
        columns, parents as bit masks."""
        total = np.zeros(self._patterns.shape[1])
        for child, mask in enumerate(parents):
            joint, marginal = self._weight_at(mask | 1 << child), self._weight_at(mask)
            if self.score == "bdeu":
                total += digamma(self.strength / self.cells(mask | 1 << child) + joint)
                total -= digamma(self.strength / self.cells(mask) + marginal)
            elif self.score == "k2":
                total += digamma(1 + joint) - digamma(self.states[child] + marginal)
            else:  # where no row is, none comes: 0 in the end, and no NaN
                total += np.log(joint, where=joint > 0, out=np.full_like(joint, -np.inf))
                total -= np.log(marginal, where=marginal > 0, out=np.zeros_like(marginal))
        return total

    def _weight_at(self, mask: int) -> np.ndarray:
        """What the rows of the same configuration of a set weigh, for each distinct row, (u,)."""
        if mask not in self._places:
            self._places[mask] = self._configurations(mask, self._patterns)
        ids, n_cells = self._places[mask]
        return np.bincount(ids, self._weights, n_cells)[ids]

    def cells(self, mask: int) -> float:
        """Configurations of the discrete columns of a set."""
        return min(math.prod(float(self.states[j]) for j in bits(mask)), 1e300)

    def _count(self, masks) -> None:
        """Terms of all sets of discrete columns that are not known yet."""
        new = sorted(mask for mask in masks if mask not in self._terms)
        cells = {mask: self.cells(mask) for mask in new}
        # A table with many more cells than rows is mostly zeros: its rows are sorted on the host
        # instead.
        limit = 0 if not self._device else min(MAX_CELLS, max(4 * len(self._weights), 2**12))
        batch: list[int] = []
        total = 0
        for mask in new:
            if cells[mask] > limit:
                ids, n_cells = self._places.get(mask) or self._configurations(mask, self._patterns)
                counts = np.bincount(ids, self._weights, n_cells)
                self._keep([mask], np.zeros(n_cells, np.intp), counts, np.array([cells[mask]]))
                continue
            if batch and (len(batch) == BATCH or total + cells[mask] > BUFFERS[-1]):
                self._count_batch(batch, cells)
                batch, total = [], 0
            batch.append(mask)
            total += int(cells[mask])
        if batch:
            self._count_batch(batch, cells)

    def _count_batch(self, masks, cells) -> None:
        members, strides = np.zeros((2, BATCH, self.size), np.int32)
        starts, entries = [0], []
        for s, mask in enumerate(masks):
            stride = 1
            for i, j in enumerate(bits(mask)):
                entries.append((s, i, j, stride))
                stride *= self.states[j]
            starts.append(starts[-1] + stride)
        width = 0
        if entries:
            set_, slot, member, stride = np.array(entries).T
            members[set_, slot], strides[set_, slot], width = member, stride, int(slot.max()) + 1
        offsets = np.full(BATCH + 1, starts[-1], np.int32)
        offsets[: len(starts)] = starts
        n_cells = int(offsets[len(masks)])
        buffer = next(size for size in (*BUFFERS, MAX_CELLS) if size >= n_cells)
        table = np.asarray(_tables(*self._device, members, strides, offsets, width, len(masks),
                                   buffer=buffer))
        nonzero = np.flatnonzero(table)  # an empty cell adds nothing to any score
        sets = np.searchsorted(offsets[1 : len(masks) + 1], nonzero, side="right")
        self._keep(masks, sets, table[nonzero].astype(np.float64),
                   np.array([cells[mask] for mask in masks]))

    def _keep(self, masks, sets, counts, cells) -> None:
        """The terms of sets from their non-empty cells: `counts` (c,) rows in each and `sets` (c,)
        whose they are."""

        def total(values):
            return np.bincount(sets, values, len(masks))

        if self.score == "bdeu":
            pseudo = self.strength / cells
            terms = [total(gammaln(pseudo[sets] + counts) - gammaln(pseudo)[sets])]
        elif self.score == "k2":
            terms = [total(gammaln(1 + counts)),
                     *(total(gammaln(r + counts) - gammaln(r)) for r in self._kinds)]
        else:
            terms = [total(xlogy(counts, counts)) - self.penalty * cells]
        self._terms.update(zip(masks, zip(*(term.tolist() for term in terms), strict=True),
                               strict=True))
        self.counted += len(masks)

    def _configurations(self, mask: int, columns) -> tuple[np.ndarray, int]:
        """(number of each row's configuration among those seen, how many are seen); sorted,
        whatever the order of rows."""
        chosen = [(columns[j], self.states[j]) for j in bits(mask)]
        code, _ = combine_codes(chosen,
                                len(columns[0]) if isinstance(columns, np.ndarray) else self.rows)
        ids = np.unique(code, return_inverse=True)[1]
        return ids, int(ids.max()) + 1

    def _moments_of(self, mask: int):
        """(rows (q,), scatter about the mean (q, m, m)) of the continuous columns in each
        configuration seen; None: one row in some."""
        if mask not in self._moments:
            ids, n_cells = self._configurations(mask, self._codes)
            rows = np.bincount(ids, minlength=n_cells)
            scatter = None
            if rows.min() > 1:
                scatter = np.empty((n_cells, len(self.continuous), len(self.continuous)))
                order, ends = np.argsort(ids, kind="stable"), np.cumsum(rows)
                for c in range(n_cells):
                    part = self._wide[order[ends[c] - rows[c] : ends[c]]]
                    part = part - part.mean(0)
                    scatter[c] = part.T @ part
            self._moments[mask] = (rows, scatter)
            self.counted += 1
        return self._moments[mask]

    def _regress(self, masks) -> None:
        """Scores of every continuous column given each of the sets of parents; (m,), of no meaning
        for the parents themselves."""
        groups: dict[tuple[int, int], list[int]] = {}
        for mask in sorted(mask for mask in masks if mask not in self._regressions):
            groups.setdefault((mask & ~self.continuous_mask,
                               (mask & self.continuous_mask).bit_count()), []).append(mask)
        index = {j: k for k, j in enumerate(self.continuous)}
        for (discrete, p), members in groups.items():
            rows, scatter = self._moments_of(discrete)
            # as many coefficients as rows: no variance to estimate
            if scatter is None or rows.min() <= p + 1:
                self._regressions.update((mask, np.full(len(self.continuous), -np.inf))
                                         for mask in members)
                continue
            # what is held at once: 2^22 numbers
            batch = max(1, 2**22 // (rows.size * max(p, 1) * len(index)))
            for part in (members[i : i + batch] for i in range(0, len(members), batch)):
                parents = np.array([[index[j] for j in bits(mask & self.continuous_mask)]
                                    for mask in part],
                                   np.intp).reshape(len(part), p)
                rss = _residuals(scatter, parents)  # (b, q, m)
                variance = np.maximum(rss / (rows - p - 1)[:, None], MIN_RELATIVE_VARIANCE)
                loglik = -0.5 * (
                    rows[:, None] * np.log(2 * np.pi * variance) + rss / variance
                ).sum(1) - self.rows * self._scale
                values = loglik - self.penalty * (p + 2) * self.cells(discrete)
                self._regressions.update(zip(part, values, strict=True))


def bits(mask: int) -> list[int]:
    """The columns of a set, ascending."""
    columns = []
    while mask:
        low = mask & -mask
        columns.append(low.bit_length() - 1)
        mask ^= low
    return columns


def _distinct(codes: Mapping[int, np.ndarray], size: int, states, rows: int) -> tuple[np.ndarray,
                                                                                      np.ndarray]:
    """The distinct rows of the discrete columns, (size, u) int32, and how often each occurs, (u,);
    padded by rows of weight 0."""
    code, _ = combine_codes([(values, states[j]) for j, values in codes.items()], rows)
    _, index, weights = np.unique(code, return_index=True, return_counts=True)
    # lengths of few kinds, so that similar data share a compiled program
    step = max(16, (1 << len(index).bit_length()) >> 4)
    length = -(-len(index) // step) * step
    patterns, counts = np.zeros((size, length), np.int32), np.zeros(length, np.int32)
    for j, values in codes.items():
        patterns[j, : len(index)] = values[index]
    counts[: len(index)] = weights
    return patterns, counts


@partial(jax.jit, static_argnames="buffer")
def _tables(columns, weights, members, strides, offsets, width, sets, *, buffer):
    """Contingency tables of several sets of columns, one behind the other in one array (buffer,) of
    int32.

    Which columns, their strides and where a table starts are data, not shapes, so that no set
    compiles anew. One set after the other: the scatter of a single one into a table that stays in
    the cache is four times as fast as all at once.
    """

    def add_counts(s, table):
        start = jnp.full(columns.shape[1], offsets[s], jnp.int32)
        code = lax.fori_loop(0, width,
                             lambda i, code: code + strides[s, i] * columns[members[s, i]], start)
        return table.at[code].add(weights, mode="promise_in_bounds")

    return lax.fori_loop(0, sets, add_counts, jnp.zeros(buffer, jnp.int32))


def _residuals(scatter: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """Residual sums of squares of every column on each set of parents: scatter (q, m, m), parents
    (b, p) → (b, q, m).

    By the eigenvectors of the parents' correlations: directions without variance, of collinear
    parents, are left out.
    """
    total_ss = np.diagonal(scatter, axis1=1, axis2=2)  # (q, m)
    if parents.shape[1] == 0:
        return np.broadcast_to(total_ss, (len(parents), *total_ss.shape))
    inner = scatter[:, parents[:, :, None], parents[:, None, :]].swapaxes(0, 1)  # (b, q, p, p)
    cross = scatter[:, parents].swapaxes(0, 1)  # (b, q, p, m)
    scale = np.sqrt(total_ss[:, parents].swapaxes(0, 1))  # (b, q, p)
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(inner / (scale[..., :, None] * scale[..., None, :]))
    inv = np.where(values > MIN_RELATIVE_VARIANCE, 1 / np.maximum(values, MIN_RELATIVE_VARIANCE),
                   0.0)
    projected = vectors.swapaxes(-1, -2) @ (cross / scale[..., None])  # (b, q, p, m)
    return np.maximum(total_ss - (projected**2 * inv[..., None]).sum(-2), 0.0)
