"""Truncation that is written as a factor: between which bounds a site's values lie.

A factor such as −log P(y ≥ 1) or −log(F(b) − F(a)) does not depend on y: exp(−factor) is the
probability of the values that can be observed. They are found as the interval that has this
probability, at the point of the fit and at other parameters about it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from probml.dataset.dataset import Data
from probml.errors import Refusal, quoted
from probml.queries import asking
from probml.queries.fitted import Fitted
from probml.queries.weighting.weighted_values import candidates, evaluate, observing
from probml.structure.site import Site

VALUES = 32  # of what a site depends on, at which a factor must divide by a probability
POINTS = 4  # of the parameters, at which a factor is held against probabilities of sets of values
APART, TRIES = 0.3, 10  # by which these differ at first, in coordinates without bounds
ALIKE = 5e-4  # nats by which such probabilities may differ, in single precision


def find_bounds(fit: Fitted, held: Data, site: Site) -> tuple[np.ndarray, np.ndarray] | None:
    """The least and the greatest value, each (n,), of those by whose probability factors divide the
    density of a site; None: the factors divide by no such probability.

    Raises:
        Refusal: they do, and it is no probability of values that lie between two.
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
        return None  # nothing; a density of something else, or a penalty
    # a probability that is divided by is one at all parameters, and at all values of what the site
    # and the factors depend on in a row; a density of something else is not
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
            return None  # values at which nothing is divided by: a weight of these
        raise Refusal(
            f"model '{fit.model.name}': factor {quoted(constant)} depends on the parameters of "
            f"'{site.name}' ({site.kind}) and not on its value, and raises the density of every "
            f"row, like the normalisation of a truncated distribution. The observable values "
            f"cannot be derived from it: write them in the factor, as a condition on the value of "
            f"the site, such as "
            f"factor(\"{constant[0]}\", jnp.where({site.name} > 0, value, -jnp.inf))")
    return tuple(np.array(found, float).T)  # type: ignore[return-value]


def _row_intervals(points: Sequence[tuple[Fitted, Data]], factors: Callable,
                   site: Site) -> list[tuple[float, float] | None]:
    """Of every row the interval whose probability its factors are at all points; None: there is
    none."""
    shares = np.exp(-np.array([factors(*point) for point in points]))
    tables = [evaluate(there, rows, site, True) for there, rows in points]
    masses = [np.exp(each.logs - each.logs.max(1, keepdims=True)) for each in tables]
    return [find_interval([each.values[i] for each in tables],
                          [mass[i] / mass[i].sum() for mass in masses], shares[:, i],
                          not site.discrete) for i in range(shares.shape[1])]


def _with_other_values(fit: Fitted, held: Data, names: Sequence[str]) -> list[Data]:
    """The rows with draws of some of their sites in place of what is observed of these, at the
    parameters of the fit; none of no sites."""
    if not names:
        return []
    drawn = candidates(fit, held.without(names), VALUES, 0, True)[0]
    return [observing(held, {name: drawn[name][:, k] for name in names}) for k in range(VALUES)]


def _shifted_fit(fit: Fitted, toward: Mapping[str, np.ndarray], step: float) -> Fitted:
    """The fit at parameters shifted by `step` along a direction in unbounded coordinates."""
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
    """The fit at parameters far away, in some directions and the other way."""
    return [_shifted_fit(fit, toward, step) for toward in _directions(fit, 2)
            for step in (-2.0, 2.0)]


def _about(fit: Fitted, own: np.ndarray, factors: Callable) -> list[Fitted]:
    """The fit, and others at parameters so far from its own that factors differ, but not by much.

    Args:
        own: the factors of the fit.
    """
    out = [fit]
    for toward in _directions(fit, POINTS - 1):
        step = APART
        for _ in range(TRIES):
            there = _shifted_fit(fit, toward, step)
            apart = np.abs(factors(there) - own).max()
            if 0.2 < apart < 4.0:
                break
            step *= 2.0 if apart <= 0.2 else 0.5
        out.append(there)
    return out


def find_interval(values: Sequence[np.ndarray], masses: Sequence[np.ndarray],
                  shares: np.ndarray, smooth: bool) -> tuple[float, float] | None:
    """The ends of an interval that has the probability shares[k] under masses[k] at values[k], for
    every k, one without an end where that will do; None: there is none.

    Args:
        smooth: masses are those of a density at nodes; else of whole numbers 0, 1, ….
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
