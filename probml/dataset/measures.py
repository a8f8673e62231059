"""Constants of priors that are computed from the data (language/measured.py), such as a multiple of
the standard deviation of a column, as values of their sites."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from probml.dataset.checks.digits import ROUNDING
from probml.dataset.dataset import Data
from probml.dataset.moments import Moments
from probml.dataset.sources.profile import along_steps
from probml.language.measured import Measure
from probml.structure.site import Site


def with_measures(data: Data) -> Data:
    """The same data, with the values of sites that are computed from their columns.

    Cost: one pass over these columns; none for a source, whose profile has the moments.
    """
    sites = data.structure.sites
    measured = moments_by_column(data, [name for name in sites if name not in data.table.values])
    values = {**values_of(sites, measured), **data.table.values}
    return data._replace(measured=measured, table=replace(data.table, values=values))


def moments_by_column(data: Data, names: Iterable[str]) -> dict[str, Moments | None]:
    """Column → its moments, for the columns on which the sites `names` depend; None where every
    cell is missing."""
    sites = data.structure.sites
    columns = {measure.of for measure in (sites[name].measure for name in names)
               if measure is not None}
    return {column: moments_of(data, column) for column in sorted(columns)}


def merged(one: Mapping[str, Moments | None],
           other: Mapping[str, Moments | None]) -> dict[str, Moments | None]:
    """The moments of the rows of both, for the columns of the first."""
    found = {of: [own for own in (mine, other.get(of)) if own is not None]
             for of, mine in one.items()}
    return {of: functools.reduce(Moments.merged, own) if own else None
            for of, own in found.items()}


def values_of(sites: Mapping[str, Site],
              measured: Mapping[str, Moments | None]) -> dict[str, np.ndarray]:
    """Site → its value, for the sites computed from a column in `measured`."""
    return {name: _value(site.measure, measured[site.measure.of], site.shape)
            for name, site in sites.items()
            if site.measure is not None and site.measure.of in measured}


def moments_of(data: Data, name: str) -> Moments | None:
    """The moments of a column, over rows and steps; None where every cell is missing."""
    if data.survey is not None:
        return data.survey.profile.moments.get(name)
    column = data.table.columns.get(name)
    if column is None or column.likelihood is not None:
        return None
    if data.structure.sites[name].time is not None:
        return along_steps(data, name, data.weights)
    return Moments.of(column, data.weights)


def _value(measure: Measure, moments: Moments | None, shape: tuple[int, ...]) -> np.ndarray:
    """The value of a site from the moments of its column; the stated one if there are none."""
    if moments is None:
        return np.full(shape, measure.stated)
    mean = np.asarray(moments.mean, float)
    if measure.statistic == "sd":
        spread = np.sqrt(moments.square / np.maximum(moments.weight, np.finfo(float).tiny))
        # for a constant column the absolute value of the constant
        size = np.where(np.abs(mean) > 0, np.abs(mean), 1.0)
        value = measure.times * np.where(spread > ROUNDING * np.abs(mean), spread, size)
    else:
        value = measure.times * mean
    return np.broadcast_to(value, shape) if np.ndim(value) <= len(shape) else np.reshape(value,
                                                                                         shape)
