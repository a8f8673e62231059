"""Posterior predictive checks: statistics of the data compared with those of replicated data.

    y_rep ~ ∫ p(y | θ, inputs) p(θ | data) dθ,    the rank of T(y) among T(y_rep)

T are mean, standard deviation, minimum and maximum, of states their shares. Rows are simulated from
their inputs alone, latent variables too. With a point estimate, θ is fixed, and replicates vary too
little.

Source: Gelman, Meng & Stern (1996), "Posterior predictive assessment of model fitness via realized
discrepancies".
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from probml.assessment.reports import replicate
from probml.dataset import dataset
from probml.queries.fitted import Fitted
from probml.queries.simulation import without_masked
from probml.typing import ArrayLike

REPLICATES = 200  # replicated tables
MAX_NUMBERS = 2**24  # in all of them
MISFIT_DISTANCE = 3.3 / 1.96  # half-widths of the central 95% beyond which a statistic misfits
MIN_REPLICATES = 20  # below which nothing is reported
MAX_CELLS, MAX_STATES = 8, 12  # of a site that are reported
MAX_DIFFUSE_RANGES = 2  # of a series: a wider central 95% of replicated levels is uninformative
BINS = 20  # of a histogram
STATISTICS: dict[str, Callable[..., ArrayLike]] = {
    "mean": np.nanmean, "sd": np.nanstd, "minimum": np.nanmin, "maximum": np.nanmax}


class Statistic(NamedTuple):
    """A statistic of the data and its distribution over replicates."""

    name: str
    of: str
    observed: float
    low: float  # central 95% of the replicates
    median: float
    high: float
    p_value: float  # share of replicates in which it is greater, ties halved: the p-value

    @property
    def missed(self) -> bool:
        """Whether the model misfits it: more extreme than in all replicates, and as far from their
        median as a normal variable in one case of a thousand, so that of some dozens of statistics
        hardly one misfits by chance."""
        side = self.high - self.median if self.observed > self.median else self.median - self.low
        return (not 0.0 < self.p_value < 1.0
                and abs(self.observed - self.median) > MISFIT_DISTANCE * max(
                    side, 1e-9 * abs(self.median)))


class Bins(NamedTuple):
    """A histogram of the cells of a site, observed and replicated."""

    name: str
    edges: np.ndarray
    observed: np.ndarray
    low: np.ndarray  # central 95% of the replicates
    median: np.ndarray
    high: np.ndarray


class Replicated(NamedTuple):
    """Posterior predictive checks of the data."""

    tables: int  # replicates
    point: bool  # whether all are at one value of the parameters
    statistics: tuple[Statistic, ...]
    bins: tuple[Bins, ...]


def replicated(fit: Fitted, data: dataset.Data, columns: Mapping[str, tuple] = MappingProxyType({}),
               categories: Mapping[str, Sequence] = MappingProxyType({})) -> Replicated | None:
    """
    Args:
        data: the rows, and their inputs, as the model reads them.
        columns: site → the names of its columns in the user's table; else those of the fit.
        categories: site → the categories of each of its columns.

    Returns:
        None where tables are so large that few can be simulated, or nothing is observed.

    Raises:
        Refusal: a loss, a factor: none can be drawn from.
    Cost: a simulation of all rows a table.
    """
    data.structure.need_rows("replicated tables")
    data = without_masked(data, {**fit.point, **fit.given})
    sites = data.structure.sites
    names = tuple(name for name, column in data.table.columns.items()
                  if column.likelihood is None and not sites[name].factor)
    numbers = sum(data.table.columns[name].values.size for name in names)
    count = min(REPLICATES, MAX_NUMBERS // max(numbers, 1))
    if not names or count < MIN_REPLICATES:
        return None
    tables = replicate(fit, data, {} if fit.certain else fit._draws(count, 0), names, count)
    statistics: list[Statistic] = []
    bins: list[Bins] = []
    for name in names:
        observed = np.asarray(data.table.columns[name].values_or_nan, float)
        replicates = np.where(np.isnan(observed), np.nan, tables[name].astype(float))
        if name in fit.units:
            observed, replicates = (fit.units[name].convert(name, {name: array})
                                    for array in (observed, replicates))
        names_of = columns.get(name) or fit.columns.get(name, ())
        low = 0 if sites[name].finite else sites[name].low or 0
        for i, (label, idx) in enumerate(_cells(fit, name, observed.shape[1:], names_of)):
            pair = observed[:, *idx].ravel() + low, replicates[:, :, *idx].reshape(count, -1) + low
            if np.isnan(pair[0]).all():
                continue
            if sites[name].finite:
                labels = (categories.get(name, ())[i : i + 1] or [fit.labels(name)])[0]
                statistics += _state_shares(label, labels, *pair)
                continue
            centred = sites[name].time is not None and _is_diffuse(*pair)
            if centred:
                label, pair = f"{label} − its mean", tuple(
                    values - np.nanmean(values, -1, keepdims=True) for values in pair)
            statistics += [_statistic(label, stat_name, float(statistic(pair[0])),
                                      statistic(pair[1], axis=1))
                           for stat_name, statistic in list(STATISTICS.items())[centred:]]
            bins.append(_histogram(label, *pair))
    return Replicated(count, fit.certain, tuple(statistics), tuple(bins))


def _cells(fit: Fitted, name: str, shape: tuple[int, ...],
           columns: Sequence[str]) -> list[tuple[str, tuple]]:
    """The first cells of a site, named as its columns in the user's table; all steps of a cell are
    one."""
    time = fit.structure.named[name].time
    sizes = [1 if axis == time else size for axis, size in enumerate(shape)]
    cells = []
    for index in list(np.ndindex(*sizes))[:MAX_CELLS]:
        slices = tuple(slice(None) if axis == time else i for axis, i in enumerate(index))
        cell = [i for axis, i in enumerate(index) if axis != time]
        label = (columns[cell[0]] if len(cell) == 1 and len(columns) == sizes[-1] else
                 f"{name}[{', '.join(map(str, cell))}]" if cell else columns[0] if len(columns) == 1
                 else name)
        cells.append((label, slices))
    return cells


def _is_diffuse(observed: np.ndarray, replicates: np.ndarray) -> bool:
    """Whether the level of a series has so wide a prior that replicated levels are uninformative:
    series are then compared about their means."""
    low, high = np.quantile(np.nanmean(replicates, 1), (0.025, 0.975))
    return bool(high - low > MAX_DIFFUSE_RANGES * (np.nanmax(observed) - np.nanmin(observed)))


def _state_shares(name: str, labels: tuple, observed: np.ndarray,
                  replicates: np.ndarray) -> list[Statistic]:
    cells = max((~np.isnan(observed)).sum(), 1)
    return [_statistic(name, f"share of {label}", float((observed == code).sum() / cells),
                       (replicates == code).sum(1) / cells)
            for code, label in list(enumerate(labels))[len(labels) == 2 : MAX_STATES]]


def _statistic(name: str, stat_name: str, observed: float, replicates: np.ndarray) -> Statistic:
    low, middle, high = np.nanquantile(replicates, (0.025, 0.5, 0.975))
    ties = np.isclose(replicates, observed, rtol=1e-6)
    above = float(((replicates > observed) & ~ties).mean() + 0.5 * ties.mean())
    return Statistic(name, stat_name, observed, float(low), float(middle), float(high), above)


def _histogram(name: str, observed: np.ndarray, replicates: np.ndarray) -> Bins:
    """A histogram over the range of the data and of most replicates; of rounded numbers, each bin
    contains the same number of possible values."""
    known = observed[~np.isnan(observed)]
    low = min(float(known.min()), float(np.nanquantile(replicates, 0.001)))
    high = max(float(known.max()), float(np.nanquantile(replicates, 0.999)))
    width = (high - low) / BINS or 1.0
    if (unit := _rounding(known)) is not None:
        width = unit * max(np.ceil(width / unit - 1e-6), 1)
        low = float(known.min()) - 0.5 * unit - width * max(
            np.ceil((known.min() - 0.5 * unit - low) / width), 0)
    edges = low + width * np.arange(int(np.ceil((high - low) / width - 1e-6)) + 1)
    edges = np.append(edges, edges[-1] + width) if edges[-1] <= known.max() else edges
    counts = np.stack([np.histogram(row[~np.isnan(row)], edges)[0] for row in replicates])
    return Bins(name, edges, np.histogram(known, edges)[0],
                *np.quantile(counts, (0.025, 0.5, 0.975), axis=0))


def _rounding(known: np.ndarray) -> float | None:
    """The unit to which numbers are rounded, where many are equal; else None."""
    values = np.unique(known.astype(np.float32))
    gaps = np.diff(values)
    if len(values) > 0.7 * len(known) or not len(gaps):
        return None
    unit = float(gaps.min())
    return unit if np.allclose(gaps / unit, np.round(gaps / unit), atol=0.05) else None
