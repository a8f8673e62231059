"""Priors in other units than the data: said before anything is fitted, from what the model states
and the columns show.

A prior whose location is thousands of its own spreads from where the column lies that it is the
location of, or a prior of a scale that is thousands of its spreads from the column's, tells more of
a slip in units than of the world. No row is passed to the device.
"""

import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from numpyro.distributions.distribution import validation_enabled

from probml.dataset.checks.digits import measured
from probml.dataset.dataset import Data
from probml.errors import ModelError
from probml.jaxpr.levels import Level, Use
from probml.plan.plan import Plan
from probml.structure.site import Site
from probml.structure.structure import Structure


class Measured(NamedTuple):
    """A column's name, and the means and standard deviations of its cells."""

    name: str
    centre: np.ndarray
    spread: np.ndarray


FAR = 1000.0  # spreads of a prior
# the same of a location beside unseen numbers of the rows, which explain what the prior forbids it:
# another mode, far away, is then the highest
BESIDE = 30.0
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
        found = Measured(name, *measured(column.values, column.seen, axes))
        for argument, role in (("loc", "location"),
                               *((argument, "scale") for argument in site.family.scatter)):
            for parameter, use in site.uses.get(argument, {}).items():
                beside = (use.level is Level.AFFINE and role == "location" and not site.inputs
                          and bool(plan.latents))
                known = (parameter not in plan.free or parameter in said
                         or not (beside or use.level is Level.MOVED))
                text = None if known else _prior_data_conflict(structure, site, parameter, use,
                                                               role, found,
                                                               BESIDE if beside else FAR)
                if text is not None and (not beside or _added(structure, name, parameter)):
                    text += (", or the latent variables of the rows explain the values that the "
                             "prior rules out" * beside)
                    said.add(parameter)
                    warnings.warn(f"model '{structure.model.name}': {text}", UserWarning,
                                  stacklevel=5)


def _located(site: Site) -> bool:
    """Whether a site has a location and a scale in its own units."""
    family = site.traits
    return bool(family.scatter) and family.scaling and "loc" in family.argument_event


def _prior_data_conflict(structure: Structure, site: Site, parameter: str, use: Use, role: str,
                         column: Measured, far: float) -> str | None:
    """The warning that a prior and the data conflict, or None."""
    found = _moments(structure, parameter)
    if found is None or any(step not in _BACK for step, _ in use.coordinate):
        return None
    mean, deviation = found
    _, centre, spread = column
    if role == "location":
        if use.coordinate:
            return None
        value, away = centre, _distance_of_location(structure, site, parameter, column, mean)
    else:
        value, away = _distance_of_scale(structure, site, use, column, mean)
    with np.errstate(all="ignore"):
        away = np.nan_to_num(np.broadcast_to(
            away, np.broadcast_shapes(np.shape(away), centre.shape)
        ) / np.max(deviation), posinf=0.0)
    if not away.size or away.max() <= far:
        return None
    cells = away.reshape(-1, max(centre.size, 1)).max(0)
    if role == "scale" and math.prod(structure.sites[parameter].shape) == 1:
        # one number for cells of several spreads: that it reaches one of them is enough
        away = cells = np.where(cells == cells.min(), cells, 0.0)
        if away.max() <= far:
            return None
    j = int(cells.argmax())
    lies, wide, reached = (float(np.ravel(part)[j % np.size(part)])
                           for part in (centre, spread, value))
    middle, reach = (float(np.ravel(part)[0]) for part in (mean, deviation))
    units = f"({column.name} - {lies:.3g}) / {wide:.2g}" if wide else f"{column.name} - {lies:.3g}"
    whose = f"'{column.name}'" + (f"[{j}]" if centre.size > 1 else "")
    return (
        f"the prior of '{parameter}', {structure.sites[parameter].kind} with centre {middle:.3g} "
        f"and scale {reach:.2g}, is {away.max():.2g} of its standard deviations away from the "
        f"data: {whose}, of which it is the {role}, has centre {lies:.6g} and standard deviation "
        f"{wide:.2g}. The prior is used as written and biases the estimate: measure the data in "
        f"other units, {units}, or {_better_prior(role, use, lies, wide, reached)}"
    )


def _distance_of_location(structure: Structure, site: Site, parameter: str, column: Measured,
                          mean: np.ndarray) -> np.ndarray:
    """How far a column's centre is from the mean of the prior of its location; 0 within a standard
    deviation of the column."""
    away = np.abs(_less(column.centre, mean))
    away = np.where(away > column.spread, away, 0.0)
    if any(structure.sites[p].states in structure.sites[parameter].shape
           for p in _discrete(structure, site)):
        # the locations of several states have to reach all of it
        return np.maximum(away, column.spread)
    return away


def _distance_of_scale(structure: Structure, site: Site, use: Use, column: Measured,
                       mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The value of a scale parameter for a column's standard deviation, and how far it is from the
    prior's mean."""
    value = np.where(column.spread > 0, column.spread, np.nan)
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


def _added(structure: Structure, name: str, parameter: str) -> bool:
    """Whether the location of a site is a parameter and more, which does not depend on it: looked
    at for two values of all else."""
    program, takes = structure.programs[name]
    random = np.random.default_rng(0)

    def location(value: jax.Array, env: dict) -> jax.Array:
        return structure.arguments(name, {**env, parameter: value})["loc"]

    for _ in range(2):
        env = {key: random.uniform(0.5, 1.5, aval.shape).astype(aval.dtype)
               for key, aval in zip(takes, program.in_avals, strict=True)}
        with validation_enabled(False):
            slope = jax.jvp(lambda value, env=env: location(value, env), (env[parameter],),
                            (np.ones_like(env[parameter]),))[1]
        if not np.allclose(slope, 1.0, atol=1e-5):
            return False
    return True


def _discrete(structure: Structure, site: Site) -> list[str]:
    """The discrete sites in rows that a site depends on."""
    return [p for p in site.parents if structure.sites[p].rows and structure.sites[p].states]


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


def _moments(structure: Structure, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean and standard deviation of a prior that states them."""
    found = _constant_prior_moments(structure, name)
    if found is None:
        return None
    mean, deviation, _ = found
    return ((mean, deviation) if np.isfinite(mean).all() and np.isfinite(deviation).all()
            and (deviation > 0).all() else None)


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
