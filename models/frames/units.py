"""The data's own units: moments of columns by which an estimator sets its priors, so that no unit
of measurement matters.

They add up over parts of the rows (Chan, Golub & LeVeque 1983): parts give the prior of the whole.
"""

from typing import ClassVar

import numpy as np
from jax.typing import ArrayLike

from probml.dataset.checks.digits import ROUNDING
from probml.dataset.moments import Moments as CellMoments
from probml.models.frames.clusters import clusters
from probml.models.frames.measured import SHARE, TIME

TOGETHER = 2**17  # numbers that are looked at together: they stay in cache
RATES = ("exponential", "poisson")  # kinds whose prior is of a rate


class Moments(CellMoments):
    """Weights, means and sums of squares about them of the seen cells, each (groups, d): a group a
    class, the last one without a label."""

    __add__ = CellMoments.merged  # type: ignore[assignment]

    def pooled(self) -> "Moments":
        """All groups as one."""
        first, *others = (Moments(*(value[i : i + 1] for value in self))
                          for i in range(len(self.weight)))
        return sum(others, first)

    @property
    def centre(self) -> np.ndarray:
        """(d,)."""
        return self.pooled().mean[0]

    @property
    def spread(self) -> np.ndarray:
        """Standard deviations of all rows; of a constant column the size of its value, or 1;
        (d,)."""
        total, mean = self.pooled(), np.abs(self.centre)
        square = total.square[0] / np.maximum(total.weight[0], np.finfo(float).tiny)
        return np.where(square > (ROUNDING * total.mean[0]) ** 2, np.sqrt(square),
                        np.where(mean > 0, mean, 1.0))

    @property
    def within(self) -> np.ndarray:
        """Standard deviations within the groups; of a column without any there, such as one whose
        values are the groups, SHARE of its `spread`; (d,)."""
        weight, spread = self.weight[:-1].sum(0), self.spread
        square = self.square[:-1].sum(0) / np.maximum(weight, np.finfo(float).tiny)
        threshold = np.maximum(1e-12 * spread**2, (ROUNDING * self.centre) ** 2)
        is_measured = (weight > 0) & (square > threshold)
        return np.where(is_measured, np.sqrt(square), SHARE * spread)


def moments(X, weights=None, codes=None, groups: int = 0) -> Moments:
    """Moments of the rows X (n, d), NaN unseen, in the groups that `codes` (n,) name; NaN there, or
    no codes: the last group.

    Cost: two looks at every number, some rows at a time, and groups × d a row.
    """
    X, n = np.asarray(X, float), len(X)
    weights = np.ones(n) if weights is None else np.asarray(weights, float)
    codes = np.full(n, groups) if codes is None else np.where(np.isnan(codes), groups,
                                                              codes).astype(int)
    origin = np.where(np.isnan(X[0]), 0.0, X[0])  # of large numbers the differences are summed
    group_ids, chunk = np.arange(groups + 1)[:, None], max(TOGETHER // X.shape[1], 1)

    def summed(centre: np.ndarray, power: int) -> tuple[np.ndarray, np.ndarray]:
        """Σ weight and Σ weight × (x − about)^power of the seen cells of each group."""
        totals = np.zeros((2, groups + 1, X.shape[1]))
        for start in range(0, n, chunk):
            part = slice(start, start + chunk)
            in_group = (codes[part] == group_ids) * weights[part]
            offsets = X[part] - (centre if centre.ndim == 1 else centre[codes[part]])
            is_missing = np.isnan(offsets)
            if is_missing.any():
                offsets[is_missing] = 0.0
                totals[0] += in_group @ ~is_missing
            else:
                totals[0] += in_group.sum(1, keepdims=True)
            totals[1] += in_group @ (offsets**2 if power == 2 else offsets)
        return totals[0], totals[1]

    total, sums = summed(origin, 1)
    mean = np.where(total > 0, origin + sums / np.where(total > 0, total, 1.0), 0.0)
    return Moments(total, mean, summed(mean, 2)[1])


def rates(mean: np.ndarray, shape: float, waits: bool = False) -> np.ndarray:
    """The default `rate` of Gamma(shape, rate) priors of rates, from columns' mean counts or mean
    waiting times, (d,).

    A prior with a mode, shape > 1, has it at the rate of all rows, (shape − 1) / rate = 1/wait or
    count: a component without rows then lies among the data, and is not rewarded for lying beyond
    them. Under a shape of 1 the prior falls from 0, and says next to nothing.
    """
    mean = np.where(mean > 0, mean, 1.0)
    if shape <= 1:
        return TIME * (mean if waits else np.ones_like(mean))
    return (shape - 1) * (mean if waits else 1 / mean)


class InUnits:
    """An estimator whose prior is in units of its columns where the settings `centre`, `scale` and
    `rate`, those it has, are None.

    Prior scales are then standard deviations within classes, where labels are observed, and within
    clusters, found by k-means (clusters.py), for latent components. The standard deviation of all
    rows would be too wide for clusters far apart, and a share of it too narrow for few rows
    (benchmarks/defaults.md).
    """

    # site of the columns → what the names of the prior's sites begin with
    _named: ClassVar[dict[str, str]] = {"x": "prior"}
    # of the estimator
    classes_: np.ndarray
    shape: float
    _target: ClassVar[str]

    def _prior(self) -> dict[str, ArrayLike]:
        """The settings of the model: "each" for what is measured; before there are rows, the
        function's own defaults."""
        names = [name for name in ("centre", "scale", "rate") if hasattr(self, name)]
        prior = {name: "each" if getattr(self, name) is None else getattr(self, name)
                 for name in names}
        return prior if hasattr(self, "_moments") else {name: value for name, value in prior.items()
                                                        if not isinstance(value, str)}

    # normals that nobody sees, of the rows or of every class; the most, of several sizes
    _components = 1

    def _measure(self, data, weights, codes=None) -> dict[str, Moments]:
        """Site → moments in the classes, where there are any, and clusters in each."""
        return {site: moments(data[site], weights, *self._parts(data[site], weights, codes, prefix))
                for site, prefix in self._named.items() if site in data}

    def _parts(self, X, weights, codes, prefix: str) -> tuple[np.ndarray, int]:
        """A group of every row, NaN of one whose class is unseen, and how many there are."""
        classes = 1 if codes is None else len(self.classes_)
        k = 1 if prefix.startswith(RATES) else self._components
        codes = np.zeros(len(X)) if codes is None else np.asarray(codes, float)
        if k == 1:
            return codes, classes
        groups = codes * k
        for code in range(classes):
            mask = codes == code
            groups[mask] += clusters(X[mask], k, None if weights is None else weights[mask])
        return groups, classes * k

    def _hyperparameters(self, data, weights, further: bool = False) -> dict[str, np.ndarray]:
        """Site → value of what is measured; `further`: these rows come beside those before."""
        measured = self._measure(data, weights, data.get(self._target))
        old = getattr(self, "_moments", {}) if further else {}
        return self._measured_priors({site: old[site] + value if site in old else value
                                      for site, value in measured.items()})

    def _measured_priors(self, measured: dict[str, Moments]) -> dict[str, np.ndarray]:
        self._moments, values = measured, {}
        for site, value in measured.items():
            prefix, prior = self._named[site], self._prior()
            if prefix.startswith(RATES):
                if prior.get("rate") == "each":
                    waits = prefix.startswith("exponential")
                    values[f"{prefix}_rate"] = rates(value.centre, self.shape, waits)
                continue
            if isinstance(prior["centre"], str):
                values[f"{prefix}_centre"] = value.centre
            if isinstance(prior["scale"], str):
                values[f"{prefix}_scale"] = value.within
        return values

    def _merged_hyperparameters(self, others) -> dict[str, np.ndarray]:
        """As `_hyperparameters`, of the rows of this estimator and of others."""
        total = dict(self._moments)
        for other in others:
            total = {site: value + other._moments[site] for site, value in total.items()}
        return self._measured_priors(total)
