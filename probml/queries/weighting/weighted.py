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


def find_bounds(fit: Fitted, held: Data, site: Site) -> tuple[np.ndarray, np.ndarray] | None:
    """Truncation bounds of a site whose density is divided by P(lower ≤ y ≤ upper) in a factor:
    lower and upper, (n,) each; None if no factor normalises the site in this way.

    Raises:
        Refusal: the factors divide by a probability, but not by that of an interval.
    """
    sites = held.structure.sites
    constant = tuple(name for name in held.structure.losses
                     if set(sites[name].parents) & set(site.parents))
    if not constant or any(site.name in sites[name].parents for name in held.structure.losses):
        return None
    held = held.without(held.descendants(site.name))

    def factors(there: Fitted, held: Data = held) -> np.ndarray:
        plain = held._replace(structure=held.structure.without(constant))
        return asking.answer(there, held, (), True)[0] - asking.answer(there, plain, (), True)[0]

    own = factors(fit)
    if np.abs(own).max() < ALIKE or own.min() < -ALIKE:
        return None  # no effect, or a penalty or the density of something else
    # exp(−factor) of a truncation is ≤ 1 at all parameters, and at all values of the parents that
    # site and factor share in a row; that of another density is not
    shared = sorted({parent for name in constant for parent in sites[name].parents}
                    & {parent for parent in site.parents if sites[parent].rows})
    others = _with_other_values(fit, held, shared)
    at_others = [factors(fit, other) for other in others]
    if any(factors(there).min() < -ALIKE for there in _far(fit)) or any(
            there.min() < -ALIKE for there in at_others):
        return None
    found = [None] if math.prod(site.cells) > 1 else _row_intervals(
        [*((there, held) for there in _about(fit, own, factors)),
         *((fit, other) for other in others[:POINTS])], factors, site)
    if None in found:
        if any((there == 0.0).any() for there in at_others):
            return None  # no effect at some values of the parents: a weight of these values
        raise Refusal(
            f"model '{fit.model.name}': factor {listed(constant)} depends on the parameters of "
            f"'{site.name}' ({site.kind}) but not on its value, as the normalisation of a "
            f"truncated distribution does. So the truncation bounds of '{site.name}' are unknown. "
            f"Write them into the factor, such as "
            f"factor(\"{constant[0]}\", jnp.where({site.name} > 0, log_factor, -jnp.inf))")
    return tuple(np.array(found, float).T)  # type: ignore[return-value]


def _row_intervals(points: Sequence[tuple[Fitted, Data]], factors: Callable,
                   site: Site) -> list[tuple[float, float] | None]:
    """For each row the interval whose probability is exp(−factors) at all points; None where there
    is none."""
    shares = np.exp(-np.array([factors(*point) for point in points]))
    tables = []
    for there, rows in points:
        values, logs = evaluate(there, rows, site, True)
        mass = np.exp(logs - logs.max(1, keepdims=True))
        if not site.discrete:  # cumulated between nodes
            values, mass = (_interpolated(each) for each in (values, mass))
        tables.append((values, mass / mass.sum(1, keepdims=True)))
    return [find_interval([values[i] for values, _ in tables], [mass[i] for _, mass in tables],
                          shares[:, i], not site.discrete) for i in range(shares.shape[1])]


def _interpolated(values: np.ndarray) -> np.ndarray:
    """Rows of numbers at nodes, (n, m), with FINER − 1 more between any two nodes."""
    from scipy.interpolate import PchipInterpolator  # late: slow to import

    last = values.shape[1] - 1
    return PchipInterpolator(np.arange(last + 1), values, 1)(np.linspace(0, last, FINER * last + 1))


def _with_other_values(fit: Fitted, held: Data, names: Sequence[str]) -> list[Data]:
    """VALUES copies of the rows in which the observed values of the sites `names` are replaced by
    draws at the fitted parameters; [] without names."""
    if not names:
        return []
    drawn = candidates(fit, held.without(names), VALUES, 0, True)[0]
    return [observing(held, {name: drawn[name][:, k] for name in names}) for k in range(VALUES)]


def _shifted_fit(fit: Fitted, toward: Mapping[str, np.ndarray], step: float) -> Fitted:
    """The fit at parameters shifted by `step` along a direction in unconstrained coordinates."""
    point = dict(fit.point)
    for name, value in fit.point.items():
        site = fit.structure.sites[name]
        if site.domain.fixed and site.domain.rank == 0 and not site.discrete:
            u = np.asarray(site.domain.bijection.inv(np.asarray(value)), float)
            point[name] = np.asarray(site.domain.bijection(u + step * toward[name]))
    return replace(fit, point=point)  # type: ignore[type-var]


def _directions(fit: Fitted, count: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    return [{name: random.uniform(0.5, 1.0, np.shape(value)) * random.choice([-1, 1])
             for name, value in fit.point.items()} for _ in range(count)]


def _far(fit: Fitted) -> list[Fitted]:
    """The fit at parameters far from its own: steps of ±2 along two random directions."""
    return [_shifted_fit(fit, toward, step) for toward in _directions(fit, 2)
            for step in (-2.0, 2.0)]


def _about(fit: Fitted, own: np.ndarray, factors: Callable) -> list[Fitted]:
    """The fit, and copies at parameters near it at which the log factors differ by 0.2 to 4 nats
    from its own, if such are found.

    Args:
        own: the log factors of the fit.
    """
    out = [fit]
    for toward in _directions(fit, POINTS - 1):
        step = APART
        for _ in range(TRIES):
            both = [_shifted_fit(fit, toward, side * step) for side in (1, -1)]
            apart = [np.abs(factors(there) - own).max() for there in both]
            found = [there for there, by in zip(both, apart, strict=True) if 0.2 < by < 4.0]
            if found:
                break
            step *= 2.0 if max(apart) <= 0.2 else 0.5
        out.append((found or both)[0])
    return out


def find_interval(values: Sequence[np.ndarray], masses: Sequence[np.ndarray],
                  shares: np.ndarray, smooth: bool) -> tuple[float, float] | None:
    """The ends of an interval that has probability shares[k] under the distribution with masses[k]
    at values[k], for every k; one-sided (an end at ±∞) if possible; None if there is none.

    Args:
        smooth: masses are those of a density at nodes; else of the integers 0, 1, ….
    """
    longest = max(map(len, masses))
    if smooth:
        grids, below = values, [np.cumsum(mass) - 0.5 * mass for mass in masses]
        begins = np.linspace(values[0][0], values[0][-1], 4001)
    else:
        grids = [np.arange(longest + 1) - 0.5] * len(masses)
        below = [np.cumsum(np.pad(mass, (1, longest - len(mass)))) for mass in masses]
        begins = grids[0][:-1]

    def under(k: int, x: np.ndarray) -> np.ndarray:
        return np.interp(x, grids[k], below[k], 0.0, 1.0)

    def end(share: np.ndarray) -> np.ndarray:
        found = np.interp(share, below[0], grids[0])
        return found if smooth else np.round(found - 0.5) + 0.5

    def errors(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        mass = np.array([under(k, ends) - under(k, begins) for k in range(len(shares))])
        with np.errstate(divide="ignore"):
            return np.abs(np.log(np.maximum(mass, 0)) - np.log(shares)[:, None]).max(0)

    tolerance, unbounded = ALIKE * (4 if smooth else 1), np.array([np.inf])
    for begin, stop in ((end(1 - shares[:1]), unbounded), (-unbounded, end(shares[:1]))):
        if errors(begin, stop)[0] < tolerance:
            return float(begin[0]), float(stop[0])
    for _ in range(3 if smooth else 1):
        stops = end(np.minimum(under(0, begins) + shares[0], 1.0))
        wrong = errors(begins, stops)
        best, step = int(np.argmin(wrong)), begins[1] - begins[0]
        found = float(begins[best]), float(stops[best])
        begins = found[0] + np.linspace(-step, step, 401)
    return found if wrong[best] < tolerance else None


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

    def quantiles(self, at: Sequence[float]) -> np.ndarray:
        """(quantiles, n, *cells)."""
        n, m = self.weights.shape
        flat = self.values.reshape(n, m, -1)
        out = np.empty((len(at), n, flat.shape[2]))
        for row in range(n):
            for cell in range(flat.shape[2]):
                order = np.argsort(flat[row, :, cell], kind="stable")
                value, share = flat[row, order, cell], self.weights[row, order]
                if self.smooth:
                    value, density = _interpolated(np.stack([value, share / gregory_weights(m)]))
                    below = np.cumsum(np.r_[0.0, 0.5 * (density[1:] + density[:-1])])
                    out[:, row, cell] = np.interp(at, below / below[-1], value)
                else:
                    found = np.searchsorted(np.cumsum(share), at)
                    out[:, row, cell] = value[np.minimum(found, m - 1)]
        return out.reshape(len(at), n, *self.values.shape[2:])

    def probabilities(self, site: Site) -> np.ndarray:
        """The probability of each value of a site with finitely many: (n, *cells, values)."""
        hot = self.values[..., None] == site.low + np.arange(site.finite or 0)
        return np.einsum("nm,nm...->n...", self.weights, hot.astype(float))


def table_of(fit: Fitted, held: Data, name: str, plug_in: bool) -> Table | None:
    """Predictive distribution of a site given the other observed cells of each row, where it is
    affected by factors; None: no factor affects it, or it is a variable of the plan.

    Raises:
        Refusal: a factor divides by a probability that is not that of an interval.
    """
    site = held.structure.sites.get(name)
    if site is None or not site.rows or site.time is not None or not held.structure.losses:
        return None
    held, back = _distinct(held.without((name,)))
    if not looking(held, name):
        bounds = find_bounds(fit, held, site)
        found = None if bounds is None else _tabulate(fit, held, site, plug_in, bounds)
    elif site.finite is not None and name in _variables(held, (name,)):
        return None
    else:
        found = (_drawn(fit, held, name, plug_in) if math.prod(site.cells) > 1
                 else _tabulate(fit, held, site, plug_in))
    return found and Table(found.values[back] + site.low, found.weights[back], found.smooth)


def check_likelihood(fit: Fitted, held: Data) -> None:
    """Check that rows have a likelihood where an observed site depends on parameters by factors
    alone: over the values of that site the densities of a row must add up to 1, as they do where
    a factor only normalises; those of the hinge of a support vector machine do not.

    Raises:
        Refusal: they add up to something else.
    """
    sites = held.structure.sites
    factors = {name: sites[name].parents for name in held.structure.losses}
    for site in sites.values():
        loss = next((name for name, parents in factors.items() if site.name in parents), None)
        if (loss is None or not site.rows or site.finite is None or site.cells
                or site.time is not None or held.pattern.get(site.name) != "seen"
                or any(not sites[parent].rows for parent in site.parents)):
            continue
        few = held.taken(np.arange(min(held.table.rows, MAX_CHECKED_ROWS)))
        total = np.exp(evaluate(fit, few, site, True)[1]).sum(1)
        if not np.allclose(total, 1.0, atol=1e-3):
            raise Refusal(
                f"log_prob needs a likelihood, but the factor '{loss}' of model '{fit.model.name}' "
                f"is a loss. The probabilities of the {site.finite} values of '{site.name}' in row "
                f"{int(np.argmax(abs(total - 1)))} add up to "
                f"{total[np.argmax(abs(total - 1))]:.3g}, not to 1. Use fit.log_joint(data), which "
                "need not be normalised. predict, predict_proba and simulate normalise the "
                "probabilities")


def looking(held: Data, asked: str | None = None) -> bool:
    """Whether a factor depends on missing or latent sites of rows that are not summed out; with
    `asked`, on such sites that are not integrated out either, other than `asked`."""
    sites = held.structure.sites
    unseen = {p for name in held.structure.losses for p in sites[name].parents if sites[p].rows
              and held.pattern.get(p) != "seen"}
    beside = set() if asked is None else _integrated(held) - {asked}
    return not unseen <= _variables(held) | beside


def _variables(held: Data, targets: tuple[str, ...] = ()) -> set[str]:
    """The sites that are summed out; empty where the data have no plan."""
    with contextlib.suppress(Refusal):
        return set(held.plan(targets, merge_globals=True, lenient=True).variables)
    return set()


def _integrated(held: Data) -> set[str]:
    """The continuous sites of rows that are integrated out, factors included."""
    with contextlib.suppress(Refusal):
        plan = held.plan(merge_globals=True)
        return {name for group in plan.latents for name in group.names}
    return set()


def _distinct(held: Data) -> tuple[Data, np.ndarray]:
    """The distinct rows (by observed cells and inputs), and for each row the number of its
    copy among them, (n,)."""
    n, arrays = held.table.rows, [*held.table.inputs.values(), *held.new.values()]
    for column in held.table.columns.values():
        arrays += [leaf for leaf in (column.values, column.seen, column.likelihood)
                   if leaf is not None]
    arrays += [] if held.lengths is None else [held.lengths]
    parts = [np.ascontiguousarray(array).reshape(n, -1).view(np.uint8) for array in arrays]
    lines = np.concatenate([np.zeros((n, 1), np.uint8), *parts], 1)
    _, first, back = np.unique(lines, axis=0, return_index=True, return_inverse=True)
    return held.taken(first), back.reshape(-1)


def _tabulate(fit: Fitted, held: Data, site: Site, plug_in: bool,
              bounds: tuple[np.ndarray, np.ndarray] | None = None) -> Table:
    """The table of a site with one number per row, restricted to `bounds` if given."""
    values, logs = evaluate(fit, held, site, plug_in, bounds)
    top = logs.max(1, keepdims=True)
    if not np.isfinite(top).all():
        row = int(np.flatnonzero(~np.isfinite(top[:, 0]))[0])
        raise Refusal(f"model '{fit.model.name}': the density of row {row} is 0 at all values of "
                      f"'{site.name}' that were tried, because its factors are −∞. Check the data "
                      f"of row {row}, or the numpyro.factor sites")
    share = np.exp(logs - top)
    return Table(values, share / share.sum(1, keepdims=True), not site.discrete)


def _drawn(fit: Fitted, held: Data, name: str, plug_in: bool) -> Table:
    """Importance-weighted draws of a site with several cells."""
    found, logs = _enough(fit, held, 0, plug_in, {}, 64 * MIN_EFFECTIVE)
    share = np.exp(logs - logs.max(1, keepdims=True))
    return Table(found[name].astype(float), share / share.sum(1, keepdims=True), False)


def _enough(fit: Fitted, held: Data, seed: int, plug_in: bool, cuts: SiteValues,
            worth: int = MIN_EFFECTIVE) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Draws of every row with an effective sample size of at least `worth`, name → (n, draws, ...),
    and their log weights, (n, draws).

    Args:
        cuts: site → its truncation bounds, (n,) each.

    Raises:
        Refusal: MAX_CANDIDATES draws do not have that effective sample size.
    """
    count = CANDIDATES
    while True:
        found, logs = candidates(fit, held, count, seed, plug_in)
        for name, (first, last) in cuts.items():
            value = found[name].reshape(logs.shape)
            within = (value >= first[:, None]) & (value <= last[:, None])
            logs = np.where(within, logs, -np.inf)
        share = np.exp(logs - np.maximum(logs.max(1, keepdims=True), -1e300))
        own = share.sum(1) ** 2 / np.maximum((share**2).sum(1), 1e-300)
        if (own >= worth).all():
            return found, logs
        if count >= MAX_CANDIDATES:
            row = int(np.argmin(own))
            raise Refusal(
                f"model '{fit.model.name}': the factor weights of row {row} are so unequal that "
                f"{count} draws have an effective sample size of only {own[row]:.0f}. So rows "
                f"cannot be simulated. Replace the factor '{held.structure.losses[0]}' and the "
                "site on which it depends by one site with a normalised distribution, such as "
                "dist.LeftTruncatedDistribution(dist.Normal(0, 1), low=0)")
        count *= 4


def resampled(fit: Fitted, held: Data, seed: int, plug_in: bool) -> dict[str, np.ndarray] | None:
    """Rows drawn from the model with its factors, name → (n, ...): each is picked by its weight
    among draws of the model without factors (sampling importance resampling; Rubin 1988). None:
    they can be simulated directly, since factors depend only on sites that are summed out.

    Raises:
        Refusal: as `table_of`; weights are too uneven.
    """
    if not held.structure.losses:
        return None
    cuts: dict[str, PyTree] = {}
    if not looking(held):
        few, back = _distinct(held)
        for site in held.structure.sites.values():
            if (site.rows and not site.factor and site.time is None
                and held.pattern.get(site.name) != "seen"):
                bounds = find_bounds(fit, few.without((site.name,)), site)
                cuts |= {} if bounds is None else {site.name: tuple(b[back] for b in bounds)}
        if not cuts:
            return None
    found, logs = _enough(fit, held, seed, plug_in, cuts)
    noise = np.random.default_rng([seed, 11]).gumbel(size=logs.shape)
    picked = np.argmax(logs + noise, 1)
    return {name: value[np.arange(len(picked)), picked] for name, value in found.items()}
