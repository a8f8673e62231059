"""Comparison of a model with the one that a file was saved from: by their sites and, for a function
that a user may have changed, by the programs of these."""

import math
from typing import Any

import jax
import numpyro

from probml.jaxpr import levels
from probml.jaxpr.spelling import spelled
from probml.structure.site import Site
from probml.structure.structure import Structure
from probml.typing import Json

TOLERANCE = 1e-4  # relative; constants of one model differ by rounding between library builds


def portrait(structure: Structure, programs: bool) -> dict[str, Any]:
    """Returns the description of a model that is saved with a fit, as JSON.

    Args:
        programs: include the program of each site. Programs are compared only under the same
            versions of JAX and NumPyro, since other versions may trace a function differently.
    """
    out: dict[str, object] = {"sites": {name: _describe_site(site) for name,
                                     site in structure.named.items()}}
    if programs:
        out |= {"by": traced_by(), "programs": {name: _describe_program(structure, name)
                                                for name in structure.named}}
    return out


def traced_by() -> str:
    """Returns the versions and the precision on which the text of a program depends."""
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
    if saved.get("by") != traced_by():
        return None
    for name, (saved_text, saved_numbers) in saved["programs"].items():
        text, numbers = _describe_program(structure, name)
        if saved_text != text or len(saved_numbers) != len(numbers):
            return f"'{name}' is computed differently"
        scale = min(1e-3, max(map(abs, numbers), default=0.0))
        for before, now in zip(saved_numbers, numbers, strict=True):
            if not math.isclose(before, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE * scale):
                return f"'{name}' is computed from {before:.6g}, and now from {now:.6g}"
    return None


def _describe_site(site: Site) -> dict[str, object]:
    return {"distribution": site.kind, "place": "rows" if site.rows else "no rows",
            "shape": list(site.cells), "parents": sorted((*site.parents, *site.inputs))}


def _describe_program(structure: Structure, name: str) -> list[Any]:
    """Returns the program of a site's arguments as text, and the constants in it."""
    program, takes = structure.programs[name]
    site, parts = structure.named[name], [(program, tuple(range(len(takes))))]
    if site.family is None and name in structure.sites:  # NumPyro does not fix their order
        parts = [levels.restrict(program, [i]) for i in range(len(site.arguments))]
    found = sorted((f"{text} {' '.join(takes[i] for i in at)}", numbers)
                   for (text, numbers), at in ((spelled(part), at) for part, at in parts))
    return ["; ".join(text for text, _ in found), [n for _, numbers in found for n in numbers]]
