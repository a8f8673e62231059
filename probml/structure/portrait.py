"""What tells one model from another of the same name and settings: its sites, and, of a function
that a user may have changed, the program of each."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpyro

from probml.jaxpr import levels
from probml.jaxpr.spelling import spelled
from probml.structure.site import Site
from probml.structure.structure import Structure

CLOSE = 1e-4  # how near numbers of one model are, whose libraries round differently


def portrait(structure: Structure, programs: bool) -> dict[str, Any]:
    """What a file holds of a model, as JSON.

    Args:
        programs: also what the function computes, which is compared under the same versions of JAX
            and NumPyro alone: others may trace it otherwise.
    """
    out: dict[str, Any] = {"sites": {name: _describe_site(site) for name,
                                     site in structure.named.items()}}
    if programs:
        out |= {"by": traced_by(), "programs": {name: _program(structure, name)
                                                for name in structure.named}}
    return out


def traced_by() -> str:
    """On what the text of a program depends, beside the function."""
    digits = "float64" if jax.config.jax_enable_x64 else "float32"
    return f"jax {jax.__version__}, numpyro {numpyro.__version__}, {digits}"


def difference(structure: Structure, said: Mapping[str, Any]) -> str | None:
    """In words, the first thing in which a model is not the one that a file was saved from; None:
    nothing. What the file does not say is not compared."""
    own, theirs = portrait(structure, False)["sites"], said.get("sites", {})
    for name in (*theirs, *own) if theirs else ():
        if name not in own or name not in theirs:
            has, lacks = ("the file", "this model") if name in theirs else ("this model",
                                                                            "the file")
            return f"{has} has the site '{name}', and {lacks} has none"
        for what, value in theirs[name].items():
            if value != own[name].get(what):
                return f"the {what} of '{name}' was {value} and is now {own[name].get(what)}"
    if said.get("by") != traced_by():
        return None
    for name, (text, numbers) in said["programs"].items():
        mine, held = _program(structure, name)
        if text != mine or len(numbers) != len(held):
            return f"'{name}' is computed differently"
        for one, other in zip(numbers, held, strict=True):
            if not math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE * _size(held)):
                return f"'{name}' is computed from {one:.6g}, and now from {other:.6g}"
    return None


def _size(numbers: Sequence[float]) -> float:
    return min(1e-3, max(map(abs, numbers), default=0.0))


def _describe_site(site: Site) -> dict[str, Any]:
    return {"distribution": site.kind, "place": "rows" if site.rows else "no rows",
            "shape": list(site.cells), "parents": sorted((*site.parents, *site.inputs))}


def _program(structure: Structure, name: str) -> list[Any]:
    """The text of a site's arguments, and their numbers."""
    program, takes = structure.programs[name]
    site, parts = structure.named[name], [(program, tuple(range(len(takes))))]
    if site.family is None and name in structure.sites:  # in an order that NumPyro leaves open
        parts = [levels.restrict(program, [i]) for i in range(len(site.arguments))]
    found = sorted((f"{text} {' '.join(takes[i] for i in at)}", numbers)
                   for (text, numbers), at in ((spelled(part), at) for part, at in parts))
    return ["; ".join(text for text, _ in found), [n for _, numbers in found for n in numbers]]
