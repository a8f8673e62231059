"""Predictive distributions of missing values in rows with a numpyro.factor, normalised over the
values of the site.

p(y | rest of the row) ∝ p(row, y) exp(Σ factors). For a site with one number per row the right side
is p(row) with y observed, evaluated at every value of a discrete y or at nodes of a continuous one:
a table for each row, from which means, quantiles and probabilities follow. For vectors and whole
rows, draws from the model without its factors are weighted (importance sampling).

A factor can also express truncation: −log P(y ≥ 1) or −log(F(b) − F(a)) does not depend on y, and
exp(−factor) is the probability of the observable values. `find_bounds` finds the interval that has
this probability, both at the fitted parameters and at others near them.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from probml.dataset.dataset import Data
from probml.errors import Refusal, listed
from probml.queries import asking
from probml.queries.fitted import Fitted
from probml.queries.weighting.weighted_values import (
    candidates,
    evaluate,
    gregory_weights,
    observing,
)
from probml.structure.site import Site
from probml.typing import PyTree, SiteValues

VALUES = 32  # values of a site's parents at which exp(−factor) must be a probability
POINTS = 4  # parameter values at which exp(−factor) is compared with probabilities of intervals
APART, TRIES = 0.3, 10  # first step between them in unconstrained coordinates; maximum step changes
FINER = 8  # times as many nodes at which cumulative probabilities are computed
ALIKE = 5e-4  # tolerance for log probabilities, nats, in float32


def find_bounds(fit: Fitted, data: Data, site: Site) -> tuple[np.ndarray, np.ndarray] | None:
    """Truncation bounds of a site whose density is divided by P(lower ≤ y ≤ upper) in a factor:
    lower and upper, (n,) each; None if no factor normalises the site in this way.

    Raises:
        Refusal: the factors divide by a probability, but not by that of an interval.
    """
    sites = data.structure.sites
    factor_names = tuple(name for name in data.structure.losses
                         if set(sites[name].parents) & set(site.parents))
    if not factor_names or any(site.name in sites[name].parents for name in data.structure.losses):
        return None
    data = data.without(data.descendants(site.name))

    def factors(fit_at: Fitted, data: Data = data) -> np.ndarray:
        plain = data._replace(structure=data.structure.without(factor_names))
        return asking.answer(fit_at, data, (), True)[0] - asking.answer(fit_at, plain, (), True)[0]

    log_factors = factors(fit)
    if np.abs(log_factors).max() < ALIKE or log_factors.min() < -ALIKE:
        return None  # no effect, or a penalty or the density of something else
    # exp(−factor) of a truncation is ≤ 1 at all parameters, and at all values of the parents that
    # site and factor share in a row; that of another density is not
    shared = sorted({parent for name in factor_names for parent in sites[name].parents}
                    & {parent for parent in site.parents if sites[parent].rows})
    others = _with_other_values(fit, data, shared)
    other_logs = [factors(fit, other) for other in others]
    if any(factors(alt).min() < -ALIKE for alt in _distant_fits(fit)) or any(
            alt.min() < -ALIKE for alt in other_logs):
        return None
    intervals = [None] if math.prod(site.cells) > 1 else _row_intervals(
        [*((alt, data) for alt in _nearby_fits(fit, log_factors, factors)),
         *((fit, other) for other in others[:POINTS])], factors, site)
    if None in intervals:
        if any((alt == 0.0).any() for alt in other_logs):
            return None  # no effect at some values of the parents: a weight of these values
        raise Refusal(
            f"model '{fit.model.name}': factor {listed(factor_names)} depends on the parameters of "
            f"'{site.name}' ({site.kind}) but not on its value, as the normalisation of a "
            f"truncated distribution does. So the truncation bounds of '{site.name}' are unknown. "
            f"Write them into the factor, such as "
            f"factor(\"{factor_names[0]}\", jnp.where({site.name} > 0, log_factor, -jnp.inf))")
    return tuple(np.array(intervals, float).T)  # type: ignore[return-value]


def _row_intervals(points: Sequence[tuple[Fitted, Data]], factors: Callable,
                   site: Site) -> list[tuple[float, float] | None]:
    """For each row the interval whose probability is exp(−factors) at all points; None where there
    is none."""
    probs = np.exp(-np.array([factors(*point) for point in points]))
    tables = []
    for fit_at, rows in points:
        values, logs = evaluate(fit_at, rows, site, True)
        mass = np.exp(logs - logs.max(1, keepdims=True))
        if not site.discrete:  # cumulated between nodes
            values, mass = (_interpolated(array) for array in (values, mass))
        tables.append((values, mass / mass.sum(1, keepdims=True)))
    return [find_interval([values[i] for values, _ in tables], [mass[i] for _, mass in tables],
                          probs[:, i], not site.discrete) for i in range(probs.shape[1])]


def _interpolated(values: np.ndarray) -> np.ndarray:
    """Rows of numbers at nodes, (n, m), with FINER − 1 more between any two nodes."""
    from scipy.interpolate import PchipInterpolator  # late: slow to import

    last = values.shape[1] - 1
    return PchipInterpolator(np.arange(last + 1), values, 1)(np.linspace(0, last, FINER * last + 1))


def _with_other_values(fit: Fitted, data: Data, names: Sequence[str]) -> list[Data]:
    """VALUES copies of the rows in which the observed values of the sites `names` are replaced by
    draws at the fitted parameters; [] without names."""
    if not names:
        return []
    drawn = candidates(fit, data.without(names), VALUES, 0, True)[0]
    return [observing(data, {name: drawn[name][:, k] for name in names}) for k in range(VALUES)]


def _shifted_fit(fit: Fitted, direction: Mapping[str, np.ndarray], step: float) -> Fitted:
    """The fit at parameters shifted by `step` along a direction in unconstrained coordinates."""
    point = dict(fit.point)
    for name, value in fit.point.items():
        site = fit.structure.sites[name]
        if site.domain.fixed and site.domain.rank == 0 and not site.discrete:
            u = np.asarray(site.domain.bijection.inv(np.asarray(value)), float)
            point[name] = np.asarray(site.domain.bijection(u + step * direction[name]))
    return replace(fit, point=point)  # type: ignore[type-var]


def _directions(fit: Fitted, count: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    return [{name: random.uniform(0.5, 1.0, np.shape(value)) * random.choice([-1, 1])
             for name, value in fit.point.items()} for _ in range(count)]


def _distant_fits(fit: Fitted) -> list[Fitted]:
    """The fit at parameters far from its own: steps of ±2 along two random directions."""
    return [_shifted_fit(fit, direction, step) for direction in _directions(fit, 2)
            for step in (-2.0, 2.0)]


def _nearby_fits(fit: Fitted, log_factors: np.ndarray, factors: Callable) -> list[Fitted]:
    """The fit, and copies at parameters near it at which the log factors differ by 0.2 to 4 nats
    from its own, if such are found.

    Args:
        log_factors: the log factors of the fit.
    """
    fits = [fit]
    for direction in _directions(fit, POINTS - 1):
        step = APART
        for _ in range(TRIES):
            pair = [_shifted_fit(fit, direction, side * step) for side in (1, -1)]
            gaps = [np.abs(factors(trial) - log_factors).max() for trial in pair]
            accepted = [trial for trial, gap in zip(pair, gaps, strict=True) if 0.2 < gap < 4.0]
            if accepted:
                break
            step *= 2.0 if max(gaps) <= 0.2 else 0.5
        fits.append((accepted or pair)[0])
    return fits


def find_interval(values: Sequence[np.ndarray], masses: Sequence[np.ndarray],
                  shares: np.ndarray, smooth: bool) -> tuple[float, float] | None:
    """The ends of an interval that has probability shares[k] under the distribution with masses[k]
    at values[k], for every k; one-sided (an end at ±∞) if possible; None if there is none.

    Args:
        smooth: masses are those of a density at nodes; else of the integers 0, 1, ….
    """
    longest = max(map(len, masses))
    if smooth:
        grids, cdfs = values, [np.cumsum(mass) - 0.5 * mass for mass in masses]
        starts = np.linspace(values[0][0], values[0][-1], 4001)
    else:
        grids = [np.arange(longest + 1) - 0.5] * len(masses)
        cdfs = [np.cumsum(np.pad(mass, (1, longest - len(mass)))) for mass in masses]
        starts = grids[0][:-1]

    def under(k: int, x: np.ndarray) -> np.ndarray:
        return np.interp(x, grids[k], cdfs[k], 0.0, 1.0)

    def end(share: np.ndarray) -> np.ndarray:
        quantile = np.interp(share, cdfs[0], grids[0])
        return quantile if smooth else np.round(quantile - 0.5) + 0.5

    def errors(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        mass = np.array([under(k, ends) - under(k, starts) for k in range(len(shares))])
        with np.errstate(divide="ignore"):
            return np.abs(np.log(np.maximum(mass, 0)) - np.log(shares)[:, None]).max(0)

    tolerance, unbounded = ALIKE * (4 if smooth else 1), np.array([np.inf])
    for begin, stop in ((end(1 - shares[:1]), unbounded), (-unbounded, end(shares[:1]))):
        if errors(begin, stop)[0] < tolerance:
            return float(begin[0]), float(stop[0])
    for _ in range(3 if smooth else 1):
        stops = end(np.minimum(under(0, starts) + shares[0], 1.0))
        error = errors(starts, stops)
        best, step = int(np.argmin(error)), starts[1] - starts[0]
        bounds = float(starts[best]), float(stops[best])
        starts = bounds[0] + np.linspace(-step, step, 401)
    return bounds if error[best] < tolerance else None


CANDIDATES, MAX_CANDIDATES = 256, 2**16  # importance draws per row: initial and maximum number
MAX_CHECKED_ROWS = 8  # rows in which the densities of a site are checked to add up to 1
MIN_EFFECTIVE = 32  # minimum effective sample size of the weighted draws


class Table(NamedTuple):
    """A predictive distribution of a site in every row: values, (n, m, *cells), and their weights,
    (n, m), which sum to 1 in each row.

    Args:
        smooth: values are nodes of a continuous density; else they are its only values.
    """

    values: np.ndarray
    weights: np.ndarray
    smooth: bool

    def mean(self) -> np.ndarray:
        """(n, *cells)."""
        return np.einsum("nm,nm...->n...", self.weights, self.values)

    def quantiles(self, probs: Sequence[float]) -> np.ndarray:
        """(quantiles, n, *cells)."""
        n, m = self.weights.shape
        flat = self.values.reshape(n, m, -1)
        result = np.empty((len(probs), n, flat.shape[2]))
        for row in range(n):
            for cell in range(flat.shape[2]):
                order = np.argsort(flat[row, :, cell], kind="stable")
                value, weights = flat[row, order, cell], self.weights[row, order]
                if self.smooth:
                    value, density = _interpolated(np.stack([value, weights / gregory_weights(m)]))
                    cdf = np.cumsum(np.r_[0.0, 0.5 * (density[1:] + density[:-1])])
                    result[:, row, cell] = np.interp(probs, cdf / cdf[-1], value)
                else:
                    positions = np.searchsorted(np.cumsum(weights), probs)
                    result[:, row, cell] = value[np.minimum(positions, m - 1)]
        return result.reshape(len(probs), n, *self.values.shape[2:])

    def probabilities(self, site: Site) -> np.ndarray:
        """The probability of each value of a site with finitely many: (n, *cells, values)."""
        hot = self.values[..., None] == site.low + np.arange(site.finite or 0)
        return np.einsum("nm,nm...->n...", self.weights, hot.astype(float))


def table_of(fit: Fitted, data: Data, name: str, plug_in: bool) -> Table | None:
    """Predictive distribution of a site given the other observed cells of each row, where it is
    affected by factors; None: no factor affects it, or it is a variable of the plan.

    Raises:
        Refusal: a factor divides by a probability that is not that of an interval.
    """
    site = data.structure.sites.get(name)
    if site is None or not site.rows or site.time is not None or not data.structure.losses:
        return None
    data, inverse = _distinct(data.without((name,)))
    if not has_unsummed_parents(data, name):
        bounds = find_bounds(fit, data, site)
        table = None if bounds is None else _tabulate(fit, data, site, plug_in, bounds)
    elif site.finite is not None and name in _variables(data, (name,)):
        return None
    else:
        table = (_drawn(fit, data, name, plug_in) if math.prod(site.cells) > 1
                 else _tabulate(fit, data, site, plug_in))
    return table and Table(table.values[inverse] + site.low, table.weights[inverse], table.smooth)


def check_likelihood(fit: Fitted, data: Data) -> None:
    """Check that rows have a likelihood where an observed site depends on parameters by factors
    alone: over the values of that site the densities of a row must add up to 1, as they do where
    a factor only normalises; those of the hinge of a support vector machine do not.

    Raises:
        Refusal: they add up to something else.
    """
    sites = data.structure.sites
    factors = {name: sites[name].parents for name in data.structure.losses}
    for site in sites.values():
        loss = next((name for name, parents in factors.items() if site.name in parents), None)
        if (loss is None or not site.rows or site.finite is None or site.cells
                or site.time is not None or data.pattern.get(site.name) != "seen"
                or any(not sites[parent].rows for parent in site.parents)):
            continue
        subset = data.taken(np.arange(min(data.table.rows, MAX_CHECKED_ROWS)))
        total = np.exp(evaluate(fit, subset, site, True)[1]).sum(1)
        if not np.allclose(total, 1.0, atol=1e-3):
            raise Refusal(
                f"log_prob needs a likelihood, but the factor '{loss}' of model '{fit.model.name}' "
                f"is a loss. The probabilities of the {site.finite} values of '{site.name}' in row "
                f"{int(np.argmax(abs(total - 1)))} add up to "
                f"{total[np.argmax(abs(total - 1))]:.3g}, not to 1. Use fit.log_joint(data), which "
                "need not be normalised. predict, predict_proba and simulate normalise the "
                "probabilities")


def has_unsummed_parents(data: Data, target: str | None = None) -> bool:
    """Whether a factor depends on missing or latent sites of rows that are not summed out; with
    `target`, on such sites that are not integrated out either, other than `target`."""
    sites = data.structure.sites
    unseen = {p for name in data.structure.losses for p in sites[name].parents if sites[p].rows
              and data.pattern.get(p) != "seen"}
    integrated = set() if target is None else _integrated(data) - {target}
    return not unseen <= _variables(data) | integrated


def _variables(data: Data, targets: tuple[str, ...] = ()) -> set[str]:
    """The sites that are summed out; empty where the data have no plan."""
    with contextlib.suppress(Refusal):
        return set(data.plan(targets, merge_globals=True, lenient=True).variables)
    return set()


def _integrated(data: Data) -> set[str]:
    """The continuous sites of rows that are integrated out, factors included."""
    with contextlib.suppress(Refusal):
        plan = data.plan(merge_globals=True)
        return {name for group in plan.latents for name in group.names}
    return set()


def _distinct(data: Data) -> tuple[Data, np.ndarray]:
    """The distinct rows (by observed cells and inputs), and for each row the number of its
    copy among them, (n,)."""
    n, arrays = data.table.rows, [*data.table.inputs.values(), *data.new.values()]
    for column in data.table.columns.values():
        arrays += [leaf for leaf in (column.values, column.observed, column.likelihood)
                   if leaf is not None]
    arrays += [] if data.lengths is None else [data.lengths]
    parts = [np.ascontiguousarray(array).reshape(n, -1).view(np.uint8) for array in arrays]
    row_bytes = np.concatenate([np.zeros((n, 1), np.uint8), *parts], 1)
    _, first, inverse = np.unique(row_bytes, axis=0, return_index=True, return_inverse=True)
    return data.taken(first), inverse.reshape(-1)


def _tabulate(fit: Fitted, data: Data, site: Site, plug_in: bool,
              bounds: tuple[np.ndarray, np.ndarray] | None = None) -> Table:
    """The table of a site with one number per row, restricted to `bounds` if given."""
    values, logs = evaluate(fit, data, site, plug_in, bounds)
    log_max = logs.max(1, keepdims=True)
    if not np.isfinite(log_max).all():
        row = int(np.flatnonzero(~np.isfinite(log_max[:, 0]))[0])
        raise Refusal(f"model '{fit.model.name}': the density of row {row} is 0 at all values of "
                      f"'{site.name}' that were tried, because its factors are −∞. Check the data "
                      f"of row {row}, or the numpyro.factor sites")
    weights = np.exp(logs - log_max)
    return Table(values, weights / weights.sum(1, keepdims=True), not site.discrete)


def _drawn(fit: Fitted, data: Data, name: str, plug_in: bool) -> Table:
    """Importance-weighted draws of a site with several cells."""
    draws, logs = _draw_until_effective(fit, data, 0, plug_in, {}, 64 * MIN_EFFECTIVE)
    weights = np.exp(logs - logs.max(1, keepdims=True))
    return Table(draws[name].astype(float), weights / weights.sum(1, keepdims=True), False)


def _draw_until_effective(fit: Fitted, data: Data, seed: int, plug_in: bool, cuts: SiteValues,
                          n_eff: int = MIN_EFFECTIVE) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Draws of every row with an effective sample size of at least `n_eff`, name → (n, draws, ...),
    and their log weights, (n, draws).

    Args:
        cuts: site → its truncation bounds, (n,) each.

    Raises:
        Refusal: MAX_CANDIDATES draws do not have that effective sample size.
    """
    count = CANDIDATES
    while True:
        draws, logs = candidates(fit, data, count, seed, plug_in)
        for name, (lower, upper) in cuts.items():
            value = draws[name].reshape(logs.shape)
            in_bounds = (value >= lower[:, None]) & (value <= upper[:, None])
            logs = np.where(in_bounds, logs, -np.inf)
        weights = np.exp(logs - np.maximum(logs.max(1, keepdims=True), -1e300))
        ess = weights.sum(1) ** 2 / np.maximum((weights**2).sum(1), 1e-300)
        if (ess >= n_eff).all():
            return draws, logs
        if count >= MAX_CANDIDATES:
            row = int(np.argmin(ess))
            raise Refusal(
                f"model '{fit.model.name}': the factor weights of row {row} are so unequal that "
                f"{count} draws have an effective sample size of only {ess[row]:.0f}. So rows "
                f"cannot be simulated. Replace the factor '{data.structure.losses[0]}' and the "
                "site on which it depends by one site with a normalised distribution, such as "
                "dist.LeftTruncatedDistribution(dist.Normal(0, 1), low=0)")
        count *= 4


def resampled(fit: Fitted, data: Data, seed: int, plug_in: bool) -> dict[str, np.ndarray] | None:
    """Rows drawn from the model with its factors, name → (n, ...): each is picked by its weight
    among draws of the model without factors (sampling importance resampling; Rubin 1988). None:
    they can be simulated directly, since factors depend only on sites that are summed out.

    Raises:
        Refusal: as `table_of`; weights are too uneven.
    """
    if not data.structure.losses:
        return None
    cuts: dict[str, PyTree] = {}
    if not has_unsummed_parents(data):
        subset, inverse = _distinct(data)
        for site in data.structure.sites.values():
            if (site.rows and not site.factor and site.time is None
                and data.pattern.get(site.name) != "seen"):
                bounds = find_bounds(fit, subset.without((site.name,)), site)
                cuts |= {} if bounds is None else {site.name: tuple(b[inverse] for b in bounds)}
        if not cuts:
            return None
    draws, logs = _draw_until_effective(fit, data, seed, plug_in, cuts)
    noise = np.random.default_rng([seed, 11]).gumbel(size=logs.shape)
    picked = np.argmax(logs + noise, 1)
    return {name: value[np.arange(len(picked)), picked] for name, value in draws.items()}
