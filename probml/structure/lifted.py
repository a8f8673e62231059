"""Settings of a model as sites outside rows, so that results are functions of them.

A setting is part of a model's identity: with another value it is another model and another program.
A lifted setting is a site with a given value, and one program serves all values. The uses of
parameters (`Site.uses`: copied, affine, general) are those of the model with a constant setting, so
that closed forms that hold for every constant are found.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro import sample
from numpyro.distributions import constraints

from probml.errors import ModelError, Refusal, listed, shortly
from probml.jaxpr.memo import memo, register_cache
from probml.language.language import Bound
from probml.structure.structure import Structure
from probml.structure.trace import trace


def site_of(setting: str) -> str:
    """Returns the name of the site of a lifted setting."""
    return f"setting {setting}"


class _Lifted:
    """A generative function in which some settings are sites with an improper density of 1."""

    def __init__(self, generative: Any, shapes: tuple[tuple[str, tuple[int, ...]], ...]):
        names = dict(shapes)

        def run(settings: Mapping, inputs: Mapping, rows: int | None = None) -> object:
            values = {name: sample(site_of(name), dist.ImproperUniform(constraints.real, (), shape))
                      for name, shape in shapes}
            return generative.run({**settings, **values}, inputs, rows)

        self.run: Callable = run
        self.function = generative.function
        self.key = ("lifted", shapes, *generative.key)
        self.is_joint, self.found = generative.is_joint, generative.found
        self.arguments = tuple(name for name in generative.arguments if name not in names)
        self.__name__, self.__qualname__ = generative.__name__, generative.__qualname__
        self.__module__ = generative.__module__


def numbers(model: Bound, names: tuple[str, ...], owner: str) -> dict[str, np.ndarray]:
    """Returns the values of settings as float64 arrays, by name.

    Args:
        owner: the caller, for messages.

    Raises:
        ModelError: there is no setting of that name.
        Refusal: a setting is neither a number nor an array of numbers.
    """
    bound, where, values = model.bound, f"{owner} of model '{model.name}'", {}
    for name in names:
        if name not in bound:
            what = ("an input, which is given with the data" if name in model.inputs
                    else f"not a setting; the settings are {listed(bound)}")
            raise ModelError(f"{where}: '{name}' is {what}")
        try:
            value = np.asarray(bound[name])
        except ValueError:  # ragged
            value = np.asarray(None)
        if value.dtype.kind not in "iuf" or not value.size:
            raise Refusal(f"{where}: setting '{name}' is {shortly(bound[name])}, which is not a "
                          f"number. Set '{name}' to the initial value of the search, "
                          f"{model.name}({name}=1.0), or name another setting")
        if not np.isfinite(value).all():
            raise Refusal(f"{where}: setting '{name}' is {shortly(bound[name])}, expected finite "
                          f"numbers")
        values[name] = value.astype(float)
    return values


def lifted(structure: Structure, names: tuple[str, ...], owner: str) -> Structure:
    """Returns the structure in which these settings are sites (see `site_of`). It does not depend
    on their values, and is cached.

    Raises:
        ModelError: there is no setting of that name.
        Refusal: a setting is not numeric, the function needs it as a Python number (for sizes or
            branches), or no density depends on it.
    """
    values = numbers(structure.model, names, owner)
    shapes = tuple((name, value.shape) for name, value in values.items())
    fixed = tuple((name, value) for name, value in structure.model.settings if name not in names)
    trace_key = (structure.specs, bool(jax.config.jax_enable_x64))
    cached = _CACHE.get(key := (_with_settings(structure.model, fixed), shapes, trace_key))
    if cached is None:
        cached = _CACHE[key] = _trace_lifted(structure, fixed, shapes, owner)
        while len(_CACHE) > MAX_CACHED:
            del _CACHE[next(iter(_CACHE))]
    return cached


MAX_CACHED = 64  # structures
_CACHE: dict[tuple, Structure] = {}
register_cache(_CACHE.clear)


def _with_settings(model: Bound, settings: tuple) -> Bound:
    """Returns the model with these settings alone, as a cache key; it is never run."""
    return Bound(model.generative, settings, model.interventions)


@memo(MAX_CACHED)
def _generative(model: Bound, shapes: tuple) -> _Lifted:
    return _Lifted(model.generative, shapes)


def _trace_lifted(structure: Structure, fixed: tuple, shapes: tuple, owner: str) -> Structure:
    model, specs = structure.model, {name: (shape, kind) for name, shape, kind in structure.specs}

    def traced(shapes: tuple) -> Structure:
        names = dict(shapes)
        others = tuple((name, value) for name, value in model.settings if name not in names)
        generative = _generative(_with_settings(model, others), shapes)
        return trace(Bound(generative, others, model.interventions), specs)

    try:
        result = traced(shapes)
    except ModelError as error:
        name = next((name for name, shape in shapes if _cannot_be_traced(traced, (name, shape))),
                    shapes[0][0])
        raise Refusal(
            f"{owner} of model '{model.name}': the setting '{name}' cannot be optimised. The "
            "function needs it as a Python number (for sizes, indices or branches), not as a JAX "
            "array. Fit a model for each value, and compare their log_evidence. The error of the "
            f"function was: {str(error).splitlines()[-1]}"
        ) from error
    idle = next((name for name, _ in shapes
                 if not any(site_of(name) in takes for _, takes in result.programs.values())), None)
    if idle is not None:
        raise Refusal(f"{owner} of model '{model.name}': no distribution depends on setting "
                      f"'{idle}', so no value of '{idle}' is better than another. Name another "
                      f"setting, {owner}(['...'])")
    sites = {name: dataclasses.replace(site, uses=structure.sites[name].uses)
             if name in structure.sites else site for name, site in result.sites.items()}
    return dataclasses.replace(result, sites=sites)


def _cannot_be_traced(traced: Callable, shape: tuple) -> bool:
    try:
        traced((shape,))
    except ModelError:
        return True
    return False
