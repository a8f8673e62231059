"""Predictions by simulated values of each row: predictive intervals, medians, means of
deterministics, and bands about forecasts."""

import warnings
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpyro.distributions as dist

from probml.dataset import dataset
from probml.errors import ModelError, Refusal, present
from probml.numerics.transfer import random_key
from probml.queries import asking, queries
from probml.queries.conditionals import conditional
from probml.queries.fitted import Fitted
from probml.queries.weighting import weighted
from probml.structure.recorder import DETERMINISTIC

REPLICATES = 2000  # simulated values of each row for an interval
MAX_SIMULATED_ROWS = 200_000  # in one call


class Interval(NamedTuple):
    """A prediction with bounds, each (n, *cells)."""

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def interval(fit: Fitted, data: dataset.Data, site: str, probability: float, plug_in: bool,
             given: str) -> Interval:
    """See Fit.predict(interval=): quantiles of simulated values of the missing cells of a site,
    each with its own draw of the parameters."""
    target = fit._site(site)
    if not target.rows:
        raise ModelError(f"predict(interval=...): site '{site}' is a parameter (it is sampled "
                         "outside rows()), so predict does not apply. Use quantiles of "
                         f"fit.draws(1000)['{site}'] for its posterior interval")
    if target.states is not None:
        raise ModelError(f"predict(interval=...): site '{site}' has unordered states, which have "
                         f"no intervals. Use predict_proba(data, '{site}'), or name a site of "
                         "numbers, predict(data, site, interval=0.9)")
    if given != queries.ALL:
        raise ModelError(f"predict(interval=..., given={given!r}): an interval uses the observed "
                         "values of all time steps. Use given='all'")
    tails = (0.5 - probability / 2, 0.5 + probability / 2)
    if target.kind == DETERMINISTIC:
        return Interval(fit._deterministic_means(data, [site], plug_in)[site],
                        *_quantiles(fit, data, site, tails, plug_in))
    if not fit.structure.has_mean(site):
        _warn_without_mean(fit, site)
        lower, middle, upper = _answer_for_new_values(data, site, lambda data: _quantiles(
            fit, data, site, (tails[0], 0.5, tails[1]), plug_in
        ))
        return Interval(middle, lower, upper)
    table = weighted.table_of(fit, data, site, plug_in)
    if table is not None:
        return Interval(table.mean(), *table.quantiles(tails))
    value, lower, upper = _answer_for_new_values(data, site, lambda data: np.stack([
        asking.answer(fit, data, [("mean", site)], plug_in)[1]["mean", site],
        *_quantiles(fit, data, site, tails, plug_in)
    ]))
    if not np.isfinite(value).all() and not target.event:
        value = median(fit, data, site, plug_in, given)
    return Interval(value, lower, upper)


def median(fit: Fitted, data: dataset.Data, site: str, plug_in: bool, given: str) -> np.ndarray:
    """The median of a new value of a site without mean, in every row, (n, *cells): of simulated
    values; warns that it is one.

    Raises:
        Refusal: it is a vector, or cannot be drawn from.
    """
    if given != queries.ALL:
        raise Refusal(f"predict(given={given!r}): site '{site}' has no finite mean, so predict "
                      f"returns its median, which uses the observed values of all time steps. "
                      f"Use given='all'")
    _warn_without_mean(fit, site)
    return _answer_for_new_values(data, site,
                                  lambda data: _quantiles(fit, data, site, (0.5,), plug_in))[0]


def _answer_for_new_values(data: dataset.Data, site: str, ask: Callable[[dataset.Data], np.ndarray]
                           ) -> np.ndarray:
    """The answer of `ask` for new values of a site, (..., n, *cells): of an observed cell with no
    cell of the site observed in its row, of a missing one given the others."""
    column = data.table.columns.get(site)
    if column is None:
        return ask(data)
    fresh = ask(data.without([site]))
    if column.observed is None:
        return fresh
    cells = column.observed.reshape(data.table.rows, -1)
    if not (cells.any(1) & ~cells.all(1)).any():
        return fresh
    return np.where(column.observed, fresh, ask(data))


def _warn_without_mean(fit: Fitted, site: str) -> None:
    """Warn that a site has no mean, so that its median is the answer.

    Raises:
        Refusal: a vector has no median.
    """
    target = fit.structure.sites[site]
    if target.event:
        raise Refusal(f"predict: site '{site}' ({target.kind}) is a vector whose mean is not "
                      f"finite or not known, so predict cannot return it. Draw values with "
                      f"fit.simulate(given=data)")
    warnings.warn(
        f"model '{fit.model.name}': the mean of site '{site}' ({target.kind}) is not finite or not "
        f"known, so predict returns the median of {REPLICATES} simulated values per row. "
        "To avoid this, choose a distribution with a mean, or use fit.simulate(given=data)",
        RuntimeWarning,
        stacklevel=4,
    )


def _quantiles(fit: Fitted, data: dataset.Data, site: str, at: tuple[float, ...],
               plug_in: bool) -> np.ndarray:
    """Quantiles of simulated new values of a site, (quantiles, n, *cells)."""
    return from_simulated(fit, data, [site], plug_in, lambda drawn: np.quantile(drawn, at, 1))[site]


def simulated_mean(fit: Fitted, data: dataset.Data, name: str, plug_in: bool) -> np.ndarray:
    """The mean over simulated rows of a deterministic with missing continuous parents,
    (n, *cells)."""
    return from_simulated(fit, data, [name], plug_in, lambda drawn: drawn.mean(1)[None])[name][0]


def from_simulated(fit: Fitted, data: dataset.Data, sites: Sequence[str], plug_in: bool,
                   reduce: Callable[[np.ndarray], np.ndarray]) -> dict[str, np.ndarray]:
    """Site → reduce(REPLICATES simulated values of each row, (n, REPLICATES, *cells)); some rows at
    a time."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in sites}
    size = max(MAX_SIMULATED_ROWS // REPLICATES, 1)
    for start in range(0, data.table.rows, size):
        rows = np.arange(start, min(start + size, data.table.rows))
        drawn = fit._simulated(data.taken(np.repeat(rows, REPLICATES)), random_key(start), start,
                               plug_in)
        for name in sites:
            values = np.asarray(drawn[name], float)
            parts[name].append(reduce(values.reshape(len(rows), REPLICATES, *values.shape[1:])))
    return {name: np.concatenate(part, 1) for name, part in parts.items()}


def bands(fit: Fitted, data: dataset.Data, sites: Sequence[str], probability: float,
          plug_in: bool) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Bounds of equal-tailed intervals of the missing cells of sites, (n, *cells): exact where the
    conditional distribution is normal, else quantiles of draws."""
    bounds, simulated = {}, []
    for name in sites:
        try:
            result = conditional(fit, data, name, plug_in)
        except Refusal:
            result = None
        if isinstance(result, dist.Normal | dist.MultivariateNormal):
            shape = (data.table.rows, *fit.structure.sites[name].along(data.steps))
            time = present(fit.structure.sites[name].time)
            inner = (*shape[: 1 + time], *shape[2 + time :])
            mean, scale = (np.moveaxis(np.reshape(leaf, (inner[0], shape[1 + time], *inner[1:])),
                                       1, 1 + time)
                           for leaf in (result.mean, np.sqrt(result.variance)))
            half_width = NormalDist().inv_cdf(0.5 + probability / 2) * scale
            bounds[name] = (mean - half_width, mean + half_width)
        else:
            simulated.append(name)
    tails = (0.5 - probability / 2, 0.5 + probability / 2)
    drawn = from_simulated(fit, data, simulated, plug_in,
                           lambda values: np.quantile(values, tails, 1)) if simulated else {}
    return bounds | {name: tuple(result) for name, result in drawn.items()}
