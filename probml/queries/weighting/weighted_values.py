"""Values of one site in rows with factors, and the log weight of each: log p(row) with the site
observed at that value."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from probml.dataset import tables
from probml.dataset.dataset import Data
from probml.errors import Refusal
from probml.numerics.transfer import random_key
from probml.queries import asking
from probml.queries.fitted import Fitted
from probml.queries.simulation import LOG_WEIGHT
from probml.structure.site import Site

TOGETHER = 200_000  # rows queried, or simulated, in one call
DRAWS = 200  # draws without factors, whose range is where the search for the nodes begins
NODES, SEARCH_NODES = 401, 65  # nodes of a continuous site, and of the search for its range
COUNTS = 4096  # maximum number of values of a count
NEGLIGIBLE = 30.0  # nats below the maximum log density
SEARCHES = 12  # maximum iterations of the search for the range of a continuous site


Evaluated = tuple[np.ndarray, np.ndarray]  # values of a site, (n, m), and the log weight of each


def observing(data: Data, values: Mapping[str, np.ndarray]) -> Data:
    """The rows with some sites observed at these values, (n, *cells) each."""
    columns = {name: tables.Column(value.astype(np.int32 if data.structure.sites[name].discrete
                                                else float), None)
               for name, value in values.items()}
    return data._replace(table=replace(data.table, columns={**data.table.columns, **columns}))


def candidates(fit: Fitted, data: Data, count: int, seed: int,
                plug_in: bool) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """`count` draws of every row from the model without its factors, name → (n, count, ...), and
    their log weights (the sum of the factors), (n, count)."""
    plain = data._replace(structure=data.structure.without(data.structure.losses))
    n, chunks = data.table.rows, []
    step = max(TOGETHER // count, 1)
    for start in range(0, n, step):
        rows = np.arange(start, min(start + step, n))
        drawn = fit._drawn_rows(plain.taken(np.repeat(rows, count)), random_key(seed + start),
                                seed + start, plug_in)
        chunks.append({k: np.asarray(v).reshape(len(rows), count, *np.shape(v)[1:])
                       for k, v in drawn.items()})
    draws = {name: np.concatenate([part[name] for part in chunks]) for name in chunks[0]}
    return draws, draws.pop(LOG_WEIGHT).astype(float)


def evaluate(fit: Fitted, data: Data, site: Site, plug_in: bool,
             bounds: tuple[np.ndarray, np.ndarray] | None = None) -> Evaluated:
    """Values of a site that cover all but a negligible part of its distribution in each row, and
    their log weights; −∞ outside `bounds`."""
    n = data.table.rows

    def ask(values: np.ndarray, plug_in: bool = True) -> np.ndarray:
        logs = _logs(fit, data, site, values, plug_in)
        if bounds is None:
            return logs
        in_bounds = (values >= bounds[0][:, None]) & (values <= bounds[1][:, None])
        return np.where(in_bounds, logs, -np.inf)

    if site.discrete and site.finite is not None:
        values = np.tile(np.arange(site.finite), (n, 1))
        return values, ask(values, plug_in)
    draws = candidates(fit, data, DRAWS, 0, plug_in)[0][site.name].reshape(n, -1)
    if site.discrete:
        return _counted(draws, lambda values: ask(values, plug_in))
    return _placed(site, draws, ask, plug_in)


def _logs(fit: Fitted, data: Data, site: Site, values: np.ndarray, plug_in: bool) -> np.ndarray:
    """log p(row) with the site observed at each of the values, (n, m)."""
    n, m = values.shape
    logs, step = np.empty((n, m)), max(TOGETHER // m, 1)
    for start in range(0, n, step):
        rows = np.arange(start, min(start + step, n))
        repeated = data.taken(np.repeat(rows, m))
        site_values = values[rows].reshape(-1, *(1,) * len(site.cells))
        repeated = observing(repeated, {site.name: site_values})
        answers = asking.answer_by_draws(fit, repeated.trimmed(), (), plug_in)  # to be compared
        logs[rows] = answers[0].reshape(len(rows), m)
    return np.where(np.isnan(logs), -np.inf, logs)


def _counted(draws: np.ndarray, ask: Callable) -> Evaluated:
    """Values of an unbounded count: 0, 1, … up to where the rest is negligible."""
    count = 1 << int(draws.max() + np.ptp(draws) + 16).bit_length()  # a power of two: few programs
    while count <= COUNTS:
        values = np.tile(np.arange(count), (len(draws), 1))
        logs = ask(values)
        if (logs[:, -1] < logs.max(1) - NEGLIGIBLE).all():
            return values, logs
        count *= 2
    raise Refusal(f"the predictive distribution of a count in a model with numpyro.factor has more "
                  f"than {COUNTS:,} values of non-negligible probability. Use "
                  f"fit.simulate(given=data)")


def _placed(site: Site, draws: np.ndarray, ask: Callable, plug_in: bool) -> Evaluated:
    """Equidistant nodes of a continuous site in the unconstrained coordinate of its support, over
    the range of non-negligible density at the point estimate (twice that, unless plug_in)."""
    forward: Any = site.domain.bijection if site.domain.fixed else None

    def evaluate_grid(low: np.ndarray, high: np.ndarray, nodes: int = SEARCH_NODES,
                      plug_in: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        u = low[:, None] + np.linspace(0, 1, nodes) * (high - low)[:, None]
        x = u if forward is None else np.asarray(forward(u), float)
        volume = 0.0 if forward is None else np.asarray(forward.log_abs_det_jacobian(u, x), float)
        return u, x, ask(x, plug_in) + volume

    u = draws if forward is None else np.asarray(forward.inv(draws), float)
    margin = np.maximum(np.ptp(u, 1), 1e-3 * np.abs(u).max(1) + 1e-12)
    low, high, row = u.min(1) - margin, u.max(1) + margin, np.arange(len(u))
    for _ in range(SEARCHES):
        u, _, logs = evaluate_grid(low, high)
        relevant = logs > logs.max(1, keepdims=True) - NEGLIGIBLE
        first, last = relevant.argmax(1), SEARCH_NODES - 1 - relevant[:, ::-1].argmax(1)
        if ((first > 0) & (last < SEARCH_NODES - 1) & (last - first > SEARCH_NODES // 2)).all():
            break
        width, step = high - low, u[:, 1] - u[:, 0]
        low = np.where(first == 0, low - width, u[row, first] - step)
        high = np.where(last == SEARCH_NODES - 1, high + width, u[row, last] + step)
    (low, cut_low), (high, cut_high) = (_edge(u[:, order], logs[:, order], evaluate_grid)
                                        for order in (slice(None), slice(None, None, -1)))
    padding = 0.0 if plug_in else 0.5 * (high - low)
    low, high = np.where(cut_low, low, low - padding), np.where(cut_high, high, high + padding)
    _, values, logs = evaluate_grid(low, high, NODES, plug_in)
    return values, logs + np.log(gregory_weights(NODES) * (high - low)[:, None])


def gregory_weights(count: int) -> np.ndarray:
    """Weights (count,) of equidistant nodes at distance 1 for an integral between the first and the
    last: Gregory's rule of fourth order, accurate also where the density ends at a bound."""
    weights, edge = np.ones(count), np.array([3 / 8, 7 / 6, 23 / 24])
    weights[:3], weights[-3:] = edge, edge[::-1]
    return weights


def _edge(u: np.ndarray, logs: np.ndarray, on_grid: Callable) -> tuple[np.ndarray, np.ndarray]:
    """The first node with positive density (refined where nodes before it have density 0),
    and whether there are such nodes: the edge of the support."""
    row, cut = np.arange(len(u)), np.zeros(len(u), bool)
    for _ in range(4):
        is_finite = np.isfinite(logs)
        first = np.where(is_finite.any(1), is_finite.argmax(1), 0)
        cut |= first > 0
        inner, outer = u[row, first], u[row, np.maximum(first - 1, 0)]
        if not cut.any():
            break
        u, _, logs = on_grid(outer, inner)
    return inner, cut
