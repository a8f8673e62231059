"""Whether a model makes tables like the one that was seen: the same table made again and again, at
draws of the parameters, beside the data.

    y_rep ~ ∫ p(y | θ, inputs) p(θ | data) dθ,    where is T(y) among T(y_rep)?

T are plain: mean, standard deviation, least, greatest; of states their shares. Rows are made from
nothing but their inputs, hidden sites anew. Of a point θ is that point, and tables spread too
little.

Source: Gelman, Meng & Stern (1996), "Posterior predictive assessment of model fitness via realized
discrepancies".
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from probml.assessment.reports import replicate
from probml.dataset import dataset
from probml.queries.fitted import Fitted

TABLES = 200  # that are made
MOST = 2**24  # numbers of all of them
FAR = 3.3 / 1.96  # sides of the central 95%
FEWEST = 20  # tables, below which nothing can be said
CELLS, STATES = 8, 12  # of a site that are told
WIDE = 2  # ranges of a series: a wider central 95% of replicated levels says nothing of it
BINS = 20  # of a picture
STATISTICS: dict[str, Callable[..., ArrayLike]] = {
    "mean": np.nanmean, "sd": np.nanstd, "minimum": np.nanmin, "maximum": np.nanmax}


class Statistic(NamedTuple):
    """A number of the data beside those of the tables that were made."""

    name: str
    of: str
    seen: float
    low: float  # central 95% of the tables
    middle: float
    high: float
    above: float  # share of tables in which it is greater, ties halved

    @property
    def missed(self) -> bool:
        """Whether the model misses it: no table has one so far out, and it is as far from their
        middle as a normal is in one case of a thousand, so that of some dozens hardly one is missed
        by chance."""
        side = self.high - self.middle if self.seen > self.middle else self.middle - self.low
        return (not 0.0 < self.above < 1.0
                and abs(self.seen - self.middle) > FAR * max(side, 1e-9 * abs(self.middle)))


class Bins(NamedTuple):
    """How many cells of a site lie in each bin, seen and made."""

    name: str
    edges: np.ndarray
    seen: np.ndarray
    low: np.ndarray  # central 95% of the tables
    middle: np.ndarray
    high: np.ndarray


class Replicated(NamedTuple):
    """What tables that were made say of the data."""

    tables: int
    point: bool  # whether all of them are made at one value of the parameters
    statistics: tuple[Statistic, ...]
    bins: tuple[Bins, ...]


def replicated(fit: Fitted, held: dataset.Data, columns: Mapping[str, tuple] = MappingProxyType({}),
               categories: Mapping[str, Sequence] = MappingProxyType({})) -> Replicated | None:
    """
    Args:
        held: the rows, and their inputs, as the model reads them.
        columns: site → the names of the columns that it came from; else those that the fit knows.
        categories: site → the categories of each of its columns.

    Returns:
        None where a table is so large that few can be made, or nothing of it is seen.

    Raises:
        Refusal: a loss, a factor: none can be drawn from.
    Cost: a simulation of all rows a table.
    """
    held.structure.need_rows("replicated tables")
    sites = held.structure.sites
    names = tuple(name for name, column in held.table.columns.items()
                  if column.likelihood is None and not sites[name].factor)
    numbers = sum(held.table.columns[name].values.size for name in names)
    count = min(TABLES, MOST // max(numbers, 1))
    if not names or count < FEWEST:
        return None
    made = replicate(fit, held, {} if fit.certain else fit._draws(count, 0), names, count)
    statistics: list[Statistic] = []
    bins: list[Bins] = []
    for name in names:
        shown = np.asarray(held.table.columns[name].values_or_nan, float)
        again = np.where(np.isnan(shown), np.nan, made[name].astype(float))
        if name in fit.units:
            shown, again = (fit.units[name].convert(name, {name: each}) for each in (shown, again))
        names_of = columns.get(name) or fit.columns.get(name, ())
        low = 0 if sites[name].finite else sites[name].low or 0
        for i, (label, at) in enumerate(_cells(fit, name, shown.shape[1:], names_of)):
            own = shown[:, *at].ravel() + low, again[:, :, *at].reshape(count, -1) + low
            if np.isnan(own[0]).all():
                continue
            if sites[name].finite:
                statistics += _shares(label, (categories.get(name, ())[i : i + 1]
                                              or [fit.labels(name)])[0], *own)
                continue
            level = sites[name].time is not None and _diffuse(*own)
            if level:
                label, own = f"{label} − its mean", tuple(
                    values - np.nanmean(values, -1, keepdims=True) for values in own)
            statistics += _numbers(label, *own)[level:]
            bins.append(_binned(label, *own))
    return Replicated(count, fit.certain, tuple(statistics), tuple(bins))


def _cells(fit: Fitted, name: str, shape: tuple[int, ...],
           own: Sequence[str]) -> list[tuple[str, tuple]]:
    """The first cells of a site, named as the columns that it came from; steps stay together."""
    time = fit.structure.named[name].time
    sizes = [1 if axis == time else size for axis, size in enumerate(shape)]
    out = []
    for index in list(np.ndindex(*sizes))[:CELLS]:
        at = tuple(slice(None) if axis == time else i for axis, i in enumerate(index))
        told = [i for axis, i in enumerate(index) if axis != time]
        label = (own[told[0]] if len(told) == 1 and len(own) == sizes[-1] else
                 f"{name}[{', '.join(map(str, told))}]" if told else own[0] if len(own) == 1
                 else name)
        out.append((label, at))
    return out


def _diffuse(shown: np.ndarray, again: np.ndarray) -> bool:
    """Whether the level of a series has so wide a prior that replicated levels say nothing: these
    are compared about their means."""
    low, high = np.quantile(np.nanmean(again, 1), (0.025, 0.975))
    return bool(high - low > WIDE * (np.nanmax(shown) - np.nanmin(shown)))


def _shares(name: str, labels: tuple, shown: np.ndarray, again: np.ndarray) -> list[Statistic]:
    cells = max((~np.isnan(shown)).sum(), 1)
    return [_statistic(name, f"share of {label}", float((shown == code).sum() / cells),
                       (again == code).sum(1) / cells)
            for code, label in list(enumerate(labels))[len(labels) == 2 : STATES]]


def _numbers(name: str, shown: np.ndarray, again: np.ndarray) -> list[Statistic]:
    return [_statistic(name, of, float(statistic(shown)), statistic(again, axis=1))
            for of, statistic in STATISTICS.items()]


def _statistic(name: str, of: str, seen: float, made: np.ndarray) -> Statistic:
    low, middle, high = np.nanquantile(made, (0.025, 0.5, 0.975))
    same = np.isclose(made, seen, rtol=1e-6)
    above = float(((made > seen) & ~same).mean() + 0.5 * same.mean())
    return Statistic(name, of, seen, float(low), float(middle), float(high), above)


def _binned(name: str, shown: np.ndarray, again: np.ndarray) -> Bins:
    """Bins from the least to the greatest of the data and of most tables; of numbers that are
    rounded, each holds as many of those that are possible."""
    known = shown[~np.isnan(shown)]
    low = min(float(known.min()), float(np.nanquantile(again, 0.001)))
    high = max(float(known.max()), float(np.nanquantile(again, 0.999)))
    width = (high - low) / BINS or 1.0
    if (unit := _rounding(known)) is not None:
        width = unit * max(np.ceil(width / unit - 1e-6), 1)
        low = float(known.min()) - 0.5 * unit - width * max(
            np.ceil((known.min() - 0.5 * unit - low) / width), 0)
    edges = low + width * np.arange(int(np.ceil((high - low) / width - 1e-6)) + 1)
    edges = np.append(edges, edges[-1] + width) if edges[-1] <= known.max() else edges
    each = np.stack([np.histogram(row[~np.isnan(row)], edges)[0] for row in again])
    return Bins(name, edges, np.histogram(known, edges)[0],
                *np.quantile(each, (0.025, 0.5, 0.975), axis=0))


def _rounding(known: np.ndarray) -> float | None:
    """The unit to which numbers are rounded, where many are alike; else None."""
    values = np.unique(known.astype(np.float32))
    gaps = np.diff(values)
    if len(values) > 0.7 * len(known) or not len(gaps):
        return None
    unit = float(gaps.min())
    return unit if np.allclose(gaps / unit, np.round(gaps / unit), atol=0.05) else None
