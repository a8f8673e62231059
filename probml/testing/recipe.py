"""A model as data: a recipe says which sites there are, and one generative function reads it.

A recipe is a mapping that JSON holds:

    {"seed": 3,                     # of the numbers that are known
     "sites": [
        {"name": "a", "kind": "categorical", "states": 3},
        {"name": "b", "kind": "normal", "parents": ["a"], "layout": "event", "size": 2,
         "learn": ["loc"], "prior": "normal", "adds": ["x", "c"]}]}

`kind` is one of families.KINDS, or "chain" (a MarkovChain of STEPS steps). `parents` are finite
sites before it, whose states index the tables of its arguments; `layout` is "scalar", "event"
(`size` cells, to_event(1)) or "plate" (a plate of `size` nested in the rows). `learn` are the
arguments that are parameters, the others are numbers. `adds` are what is added, times a number, to
the argument that says where it lies: the input "x", effects of the index input "group", normal
scalar sites before it.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro import plate, sample

from probml.interface.model import Model, model
from probml.language.language import rows
from probml.language.markov_chain import MarkovChain
from probml.testing.families import KINDS, TOTAL, constant, prior

STEPS = 4
GROUPS = 3
INPUTS = ("x", "group")


def states(site: Mapping[str, Any]) -> int:
    """How many values a finite site has."""
    return {"bernoulli": 2, "logistic": 2, "binomial": TOTAL + 1}.get(site["kind"],
                                                                      site.get("states", 2))


def finite(site: Mapping[str, Any]) -> bool:
    return site["kind"] == "chain" or KINDS[site["kind"]].finite


def inputs(recipe: Mapping[str, Any]) -> tuple[str, ...]:
    """The inputs that a recipe's sites look at."""
    return tuple(name for name in INPUTS
                 if any(name in site.get("adds", ()) for site in recipe["sites"]))


def build(recipe: Mapping[str, Any]) -> Model:
    """The bound model of a recipe."""
    unused = {name: None for name in INPUTS if name not in inputs(recipe)}
    return generated(recipe=recipe, **unused)


@model
def generated(recipe, x, group):
    """What a recipe says."""
    sites = {site["name"]: site for site in recipe["sites"]}
    numbers = {name: np.random.default_rng([recipe["seed"], i]) for i, name in enumerate(sites)}
    tables = {name: _tables(site, sites, numbers[name]) for name, site in sites.items()}
    values: dict[str, Any] = {}
    with rows():
        for name, site in sites.items():
            values[name] = _draw(site, sites, tables[name], values, x, group)


def _tables(site: Mapping, sites: Mapping, rng: np.random.Generator) -> dict[str, Any]:
    """The arguments of a site, an axis for each parent, then its cells: parameters and numbers;
    and what is multiplied with what is added."""
    over = tuple(states(sites[parent]) for parent in site.get("parents", ()))
    if site["kind"] == "chain":
        k = site["states"]
        return {"initial": _argument(site, "initial", "simplex", (), k, rng),
                "transition": _argument(site, "transition", "simplex", (k,), k, rng)}
    kind, k = KINDS[site["kind"]], states(site)
    shared = site.get("shared") or site.get("layout", "scalar") == "scalar" and not kind.width
    cells = () if shared else (site["size"],)
    out = {name: _argument(site, name, where,
                           over if where == "one positive" else (*over, *cells), k, rng)
           for name, where in kind.arguments.items()}
    for name in site.get("adds", ()):
        out[f"+{name}"] = (_argument(site, "effect", "real", (GROUPS,), k, rng) if name == "group"
                           else rng.normal(0.0, 1.0))
    return out


def _argument(site: Mapping, name: str, where: str, shape: tuple[int, ...], k: int,
              rng: np.random.Generator) -> Any:
    number = constant(where, shape, k, rng)  # drawn also if learnt: the others stay what they are
    if name not in site.get("learn", ()):
        return jnp.asarray(number)
    said = prior(where, site.get("prior", ""), k)
    own = f"{site['name']}_{name}"
    if len(shape) == 1:
        with plate(f"{own}s", shape[0]):
            return sample(own, said)
    return sample(own, said.expand(shape).to_event(len(shape)) if shape else said)


def _draw(site: Mapping, sites: Mapping, tables: Mapping, values: Mapping, x: Any,
          group: Any) -> Any:
    if site["kind"] == "chain":
        return sample(site["name"], MarkovChain(tables["initial"], tables["transition"],
                                                steps=STEPS))
    kind, layout, parents = KINDS[site["kind"]], site.get("layout", "scalar"), site.get("parents",
                                                                                       ())
    timed = any(sites[parent]["kind"] == "chain" for parent in parents)
    looked = [values[p][..., None] if timed and sites[p]["kind"] != "chain" else values[p]
              for p in parents]
    arguments = {name: _at(tables[name], looked, site, where)
                 for name, where in kind.arguments.items()}
    for name in site.get("adds", ()):
        by = {"x": x, "group": group}.get(name, values.get(name))
        term = tables["+group"][by] if name == "group" else tables[f"+{name}"] * by
        wide = timed + (layout == "event" or kind.width)
        arguments[kind.adds] = arguments[kind.adds] + term.reshape(term.shape + (1,) * wide)
    made = kind.make(**arguments)
    events = timed + (layout == "event")
    if layout == "plate":
        with plate(f"{site['name']}_cells", site["size"]):
            return sample(site["name"], made)
    return sample(site["name"], made.to_event(events) if events else made)


def _at(table: Any, looked: list, site: Mapping, where: str) -> Any:
    """The entries of a table at the parents' states; cells of a nested plate before the rows."""
    own = where == "simplex"
    if site.get("layout") != "plate" or site.get("shared"):
        return table[tuple(looked)] if looked else table
    cells = jnp.arange(site["size"])[:, None]
    return table[(*looked, cells)] if looked else (table[:, None] if own or table.ndim == 1
                                                   else table)
