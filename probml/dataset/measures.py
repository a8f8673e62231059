"""Numbers of a prior that are measured on the rows (language/measured.py), as values of their sites
beside those that the data give."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from probml.dataset.checks.digits import ROUNDING
from probml.dataset.dataset import Data
from probml.dataset.moments import Moments
from probml.dataset.sources.sequences import along_steps
from probml.language.measured import Measure
from probml.structure.site import Site


def with_measures(held: Data) -> Data:
    """The same data, with what is measured of them.

    Cost: one pass over columns that are measured; of a source its profile knows it.
    """
    sites = held.structure.sites
    measured = moments_by_column(held, [name for name in sites if name not in held.table.values])
    values = {**values_of(sites, measured), **held.table.values}
    return held._replace(measured=measured, table=replace(held.table, values=values))


def moments_by_column(held: Data, names: Iterable[str]) -> dict[str, Moments | None]:
    """Column → its moments, of those by which some of the sites are measured; None where nothing
    is seen of it."""
    sites = held.structure.sites
    columns = {measure.of for measure in (sites[name].measure for name in names)
               if measure is not None}
    return {of: moments_of(held, of) for of in sorted(columns)}


def merged(one: Mapping[str, Moments | None],
           other: Mapping[str, Moments | None]) -> dict[str, Moments | None]:
    """Of the rows of both, the columns of the first."""
    found = {of: (own, other.get(of)) for of, own in one.items()}
    return {of: mine if theirs is None else theirs if mine is None else mine.merged(theirs)
            for of, (mine, theirs) in found.items()}


def values_of(sites: Mapping[str, Site],
              measured: Mapping[str, Moments | None]) -> dict[str, np.ndarray]:
    """Site → its value, of those whose column was measured."""
    return {name: _value(site.measure, measured[site.measure.of], site.shape)
            for name, site in sites.items()
            if site.measure is not None and site.measure.of in measured}


def moments_of(held: Data, name: str) -> Moments | None:
    """Of the cells of a column, steps of a chain together; None where nothing is seen of it."""
    if held.survey is not None:
        return held.survey.profile.moments.get(name)
    column = held.table.columns.get(name)
    if column is None or column.likelihood is not None:
        return None
    if held.structure.sites[name].time is not None:
        return along_steps(held, name, held.weights)
    return Moments.of(column, held.weights)


def _value(measure: Measure, found: Moments | None, shape: tuple[int, ...]) -> np.ndarray:
    if found is None:
        return np.full(shape, measure.stated)
    mean = np.asarray(found.mean, float)
    if measure.statistic == "sd":
        spread = np.sqrt(found.square / np.maximum(found.weight, np.finfo(float).tiny))
        # of a constant column the size of its value
        size = np.where(np.abs(mean) > 0, np.abs(mean), 1.0)
        value = measure.times * np.where(spread > ROUNDING * np.abs(mean), spread, size)
    else:
        value = measure.times * mean
    return np.broadcast_to(value, shape) if np.ndim(value) <= len(shape) else np.reshape(value,
                                                                                         shape)
