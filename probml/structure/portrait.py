"""Comparison of a model with the one that a file was saved from: by their sites and, for a function
that a user may have changed, by the values of their arguments at two points."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from probml.jaxpr.program import evaluate
from probml.numerics.compiling import jit
from probml.structure.densities import example
from probml.structure.site import Site
from probml.structure.structure import Structure
from probml.typing import Json

TOLERANCE = 1e-4  # relative; arguments of one model differ by rounding between library builds
MAX_LISTED = 32  # numbers of an argument that are kept one by one
MAX_SECONDS = 2.0  # that NumPy may take for the arguments: compiling those of a network takes long


def portrait(structure: Structure, programs: bool) -> dict[str, Any]:
    """Returns the description of a model that is saved with a fit, as JSON.

    Args:
        programs: include values of the arguments of each site. They are compared only under the
            same versions of JAX and NumPyro, since others may derive other arguments.
    """
    description: dict[str, object] = {"sites": {name: _describe_site(site) for name,
                                     site in structure.named.items()}}
    if programs:
        description |= {"by": traced_by(), "values": _values(structure)}
    return description


def traced_by() -> str:
    """Returns the versions and the precision on which the values of arguments depend."""
    digits = "float64" if jax.config.jax_enable_x64 else "float32"
    return f"jax {jax.__version__}, numpyro {numpyro.__version__}, {digits}"


def difference(structure: Structure, saved: Json) -> str | None:
    """Returns the first difference between a model and the saved description of one, as text; None
    if there is none. Entries that the description lacks are not compared."""
    sites, saved_sites = portrait(structure, False)["sites"], saved.get("sites", {})
    for name in (*saved_sites, *sites) if saved_sites else ():
        if name not in sites or name not in saved_sites:
            has, lacks = ("the file", "this model") if name in saved_sites else ("this model",
                                                                                 "the file")
            return f"{has} has a site '{name}', and {lacks} does not"
        for key, value in saved_sites[name].items():
            if value != sites[name].get(key):
                return f"the {key} of '{name}' was {value} and is now {sites[name].get(key)}"
    if saved.get("by") != traced_by() or "values" not in saved:
        return None
    for name, numbers in _values(structure).items():
        saved_numbers = saved["values"].get(name, [])
        if len(saved_numbers) != len(numbers):
            return f"'{name}' is computed differently"
        scale = min(1e-3, max(map(abs, numbers), default=0.0))
        for old, new in zip(saved_numbers, numbers, strict=True):
            if not math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=TOLERANCE * scale):
                return (f"an argument of the distribution of '{name}' was {old:.6g} and is "
                        f"now {new:.6g}, for the same values of its parents")
    return None


def _describe_site(site: Site) -> dict[str, object]:
    return {"distribution": site.kind, "place": "rows" if site.rows else "no rows",
            "shape": list(site.cells), "parents": sorted((*site.parents, *site.inputs))}


def _values(structure: Structure) -> dict[str, list[float]]:
    """Site → numbers that its arguments have at two points without symmetries."""
    points = {name: _points(structure, name) for name in structure.named}
    values: dict[str, list[float]] = {}
    for name, arguments in _arguments(structure, points).items():
        parts = [_summary(np.asarray(argument)) for argument in arguments]
        if structure.named[name].family is None:  # NumPyro does not fix their order
            parts.sort()
        values[name] = [number for part in parts for number in part]
    return values


def _points(structure: Structure, name: str) -> list[list[np.ndarray]]:
    """Two points of the inputs of a site's program, with the codes 0 and 1."""
    first = list(example(structure, name).values())
    return [first, [(1.3 * value).astype(value.dtype) if value.dtype.kind == "f" else value + 1
                    if value.dtype.kind in "iu" else ~value for value in first]]


@jit(static_argnums=0, seldom=MAX_SECONDS)
def _arguments(structure: Structure, points: Mapping) -> dict[str, list[jax.Array]]:
    """Site → its arguments at the points of its program's inputs."""
    return {name: [jnp.stack(values) for values in zip(
        *(evaluate(structure.programs[name][0], *point) for point in pair), strict=True)]
        for name, pair in points.items()}


def _summary(array: np.ndarray) -> list[float]:
    """The finite numbers of an array and zeros for others; of a long array three sums, the last of
    which depends on the order."""
    flat = array.ravel().astype(float)
    flat = np.where(np.isfinite(flat), flat, 0.0)
    if len(flat) > MAX_LISTED:
        flat = np.array([flat.mean(), np.sqrt((flat**2).mean()),
                         flat @ np.cos(np.arange(len(flat))) / np.sqrt(len(flat))])
    return flat.tolist()
