"""Priors in other units than the data: said before anything is fitted, from what the model states
and the columns show.

A prior whose location is thousands of its own spreads from where the column lies that it is the
location of, or a prior of a scale that is thousands of its spreads from the column's, tells more of
a slip in units than of the world. No row is passed to the device.
"""

import math
import warnings
from collections.abc import Callable

import numpy as np
from numpyro.distributions.distribution import validation_enabled

from probml.dataset.checks.digits import measured
from probml.dataset.dataset import Data
from probml.errors import ModelError
from probml.jaxpr.levels import Level, Use
from probml.plan.plan import Plan
from probml.structure.site import Site
from probml.structure.structure import Structure

FAR = 1000.0  # spreads of a prior
# steps at the most from what a model states to a prior's arguments, such as filling an array with
# one number
SHORT = 8


def _half_normal(scale: np.ndarray) -> tuple:
    return scale * math.sqrt(2 / math.pi), scale * math.sqrt(1 - 2 / math.pi)


def _log_normal(loc: np.ndarray, scale: np.ndarray) -> tuple:
    with np.errstate(over="ignore"):
        mean = np.exp(loc + scale**2 / 2)
        return mean, mean * np.sqrt(np.expm1(scale**2))


# kind → mean and standard deviation from the arguments; heavy tails have none, and reach any unit
MOMENTS: dict[str, Callable[..., tuple]] = {
    "Normal": lambda loc, scale: (loc, scale),
    "Laplace": lambda loc, scale: (loc, math.sqrt(2) * scale),
    "Logistic": lambda loc, scale: (loc, math.pi / math.sqrt(3) * scale),
    "LogNormal": _log_normal,
    "HalfNormal": _half_normal,
    "Exponential": lambda rate: (1 / rate, 1 / rate),
    "Gamma": lambda concentration, rate: (concentration / rate, np.sqrt(concentration) / rate),
    "Uniform": lambda low, high: ((low + high) / 2, (high - low) / math.sqrt(12)),
}
_BACK = {  # step of a coordinate → what undoes it
    "power": lambda value, number: value ** (1 / number),
    "exp": lambda value, _: np.log(value),
    "log": lambda value, _: np.exp(value),
}


def refuse_points(plan: Plan) -> None:
    """
    Raises:
        ModelError: a prior that states a spread of 0 or below, which has no density: by parameter.
    """
    structure = plan.structure
    for name in plan.free:
        found = _constant_prior_moments(structure, name)
        if found is None or bool((found[1] > 0).all()) or np.isnan(found[1]).any():
            continue
        given = {key: float(np.ravel(value)[0]) for key, value in found[2].items()}
        words = ", ".join(f"{key}={value:g}" for key, value in given.items())
        raise ModelError(f"model '{structure.model.name}': the prior of '{name}', "
                         f"{structure.sites[name].kind}({words}), has scale 0 and so no density: "
                         f"expected a scale above 0. A known quantity is not a site: write its "
                         f"value instead of '{name}', or give it as data, fit({{'{name}': ...}})")


def warn(data: Data, plan: Plan) -> None:
    """Warn of every parameter whose prior is in other units than the column of which it is the
    location or the scale."""
    structure, said = data.structure, set()
    for name in plan.observed:
        site, column = structure.sites[name], data.table.columns.get(name)
        if column is None or site.family is None or not _located(site):
            continue
        # the steps of all rows are one column
        axes = (0,) if site.time is None else (0, 1 + site.time)
        found = measured(column.values, column.seen, axes)
        for argument, role in (("loc", "location"),
                               *((argument, "scale") for argument in site.family.scatter)):
            for parameter, use in site.uses.get(argument, {}).items():
                text = None if (parameter not in plan.free or parameter in said
                                or use.level is not Level.MOVED) else _conflict(
                    structure, site, parameter, use, role, *found)
                if text is not None:
                    said.add(parameter)
                    warnings.warn(f"model '{structure.model.name}': {text}", UserWarning,
                                  stacklevel=5)


def _located(site: Site) -> bool:
    """Whether a site has a location and a scale in its own units."""
    family = site.traits
    return bool(family.scatter) and family.scaling and "loc" in family.argument_event


def _conflict(structure: Structure, site: Site, parameter: str, use: Use, role: str,
              centre: np.ndarray, spread: np.ndarray) -> str | None:
    """The warning that a prior and the data conflict, or None.

    Args:
        centre, spread: means and standard deviations of the cells of the site's column.
    """
    found = _constant_prior_moments(structure, parameter)
    if found is None or any(step not in _BACK for step, _ in use.coordinate) or (
            role == "location" and use.coordinate):
        return None
    mean, deviation, _ = found
    if not (np.isfinite([mean, deviation]).all() and (deviation > 0).all()):
        return None
    if role == "location":
        value, away = centre, np.abs(_less(centre, mean))
        away = np.where(away > spread, away, 0.0)  # within the column
    else:
        value, away = _distance_of_scale(structure, site, use, spread, mean)
    with np.errstate(all="ignore"):
        away = np.nan_to_num(np.broadcast_to(
            away, np.broadcast_shapes(np.shape(away), centre.shape)
        ) / np.max(deviation), posinf=0.0)
    cells = away.reshape(-1, max(centre.size, 1)).max(0, initial=0.0)
    if role == "scale" and math.prod(structure.sites[parameter].shape) == 1:
        # one number for cells of several spreads: that it reaches one of them is enough
        cells = np.where(cells == cells.min(), cells, 0.0)
    if not cells.size or cells.max() <= FAR:
        return None
    j = int(cells.argmax())
    lies, wide, reached = (float(np.ravel(part)[j % np.size(part)])
                           for part in (centre, spread, value))
    middle, reach = (float(np.ravel(part)[0]) for part in (mean, deviation))
    units = f"({site.name} - {lies:.3g}) / {wide:.2g}" if wide else f"{site.name} - {lies:.3g}"
    whose = f"'{site.name}'" + (f"[{j}]" if centre.size > 1 else "")
    return (
        f"the prior of '{parameter}', {structure.sites[parameter].kind} with centre {middle:.3g} "
        f"and scale {reach:.2g}, is {cells.max():.2g} of its standard deviations away from the "
        f"data: {whose}, of which it is the {role}, has centre {lies:.6g} and standard deviation "
        f"{wide:.2g}. The prior is used as written and biases the estimate: measure the data in "
        f"other units, {units}, or {_better_prior(role, use, lies, wide, reached)}"
    )


def _distance_of_scale(structure: Structure, site: Site, use: Use, spread: np.ndarray,
                       mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The value of a scale parameter for a column's standard deviation, and how far it is from the
    prior's mean."""
    value = np.where(spread > 0, spread, np.nan)
    with np.errstate(all="ignore"):
        for step, number in reversed(use.coordinate):
            value = _BACK[step](value, number)
        away = _less(value, mean)
    if site.inputs or site.parents != tuple(p for p in site.parents
                                            if not structure.sites[p].rows):
        # what else explains the spread?
        away = np.where(_less(value, mean) > 0, away, 0.0) if _falls(use) else 0.0 * away
    return value, np.abs(away)


def _better_prior(role: str, use: Use, centre: float, spread: float, value: float) -> str:
    """A prior that agrees with the data, as a remedy."""
    if role == "location":
        reaching = 10 * spread or abs(centre) or 1.0  # of a column that is constant
        return f"centre it at the data, such as dist.Normal({centre:.3g}, {reaching:.2g})"
    if use.coordinate:
        return f"widen it to cover {value:.3g}, the value for a standard deviation of {spread:.2g}"
    return (f"widen it to cover their standard deviation, such as "
            f"dist.LogNormal({math.log(max(spread, 1e-300)):.3g}, 1)")


def _falls(use: Use) -> bool:
    """Whether a parameter falls where the scale rises, as a precision does."""
    return math.prod(math.copysign(1.0, number) for step, number in use.coordinate
                     if step == "power") < 0


def _less(value: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Value − mean, cell by cell where they broadcast, else each value less the mean of means."""
    try:
        return np.asarray(value) - np.asarray(mean)
    except ValueError:
        return np.asarray(value) - np.mean(mean)


def _constant_prior_moments(structure: Structure, name: str) -> tuple[np.ndarray, np.ndarray,
                                                                      dict] | None:
    """Mean, standard deviation and arguments of a prior whose arguments are constants."""
    site, (program, takes) = structure.sites[name], structure.programs[name]
    if site.kind not in MOMENTS or takes or len(program.jaxpr.eqns) > SHORT:
        return None
    with validation_enabled(False):
        prior, moments = structure.distribution(name, {}), MOMENTS[site.kind]
    given = {key: np.asarray(getattr(prior, key), float)
             for key in moments.__code__.co_varnames[: moments.__code__.co_argcount]}
    with np.errstate(all="ignore"):
        mean, deviation = moments(**given)
    mean, deviation = np.broadcast_arrays(np.asarray(mean, float), np.asarray(deviation, float))
    return mean, deviation, given
