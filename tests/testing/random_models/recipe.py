"""A model as data: a recipe says which sites there are, and one generative function reads it.

A recipe is a mapping that JSON holds:

    {"seed": 3,                     # of the numbers that are known
     "sites": [
        {"name": "a", "kind": "categorical", "states": 3},
        {"name": "b", "kind": "normal", "parents": ["a"], "layout": "event", "size": 2,
         "learn": ["loc"], "prior": "normal", "adds": ["x", "c"]}]}

`kind` is one of families.KINDS, or "chain" (a MarkovChain of STEPS steps), or "walk" (a
GaussianChain of one number). `parents` are finite sites before it, whose states index the tables of
its arguments; of a chain these are its initial and its transition, a chain before it drives it step
by step. `layout` is "scalar", "event" (`size` cells, to_event(1)), "plate" (a plate of `size`
nested in the rows) or "grid" (a plate of INNER nested in one of `size`); `outside`: the site stands
outside the rows. `learn` are the arguments that are parameters, the others are numbers. `adds` are
what is added, times a number, to the argument that says where it lies: the input "x", the input "t"
of every step, effects of the index inputs "group" and "unit" (`spread`: the standard deviation of
their prior is a parameter too), sites of numbers before it, of vectors by a matrix of loadings;
`bends` adds squares of these. `unit` is a factor and an offset of a site that has a location and a
scale. `tells`: a deterministic of it, `told`. `takes` is an unseen number before it that enters as
its argument, or as a factor of it, see families.Kind.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import deterministic, plate, sample

from probml.interface.model import Model, model
from probml.language.gaussian_chain import GaussianChain
from probml.language.language import rows
from probml.language.markov_chain import MarkovChain
from random_models.families import FACTOR, KINDS, SPREAD, UNIT, constant, last, prior

STEPS = 4
GROUPS = 3
INNER = 3  # of a grid, the plate in the plate
INDEXES = {"group": GROUPS, "unit": 2}  # inputs that name members, whose numbers are parameters
EFFECTS = {"group": "effect", "unit": "crossed"}
INPUTS = ("x", "group", "t", "unit")
CHAINS = ("chain", "walk")


def states(site: Mapping[str, Any]) -> int:
    """How many values a finite site has."""
    kind = KINDS.get(site["kind"])
    return (kind.cells if kind else None) or site.get("states", 2)


def finite(site: Mapping[str, Any]) -> bool:
    return site["kind"] == "chain" or site["kind"] != "walk" and KINDS[site["kind"]].finite


def counted(site: Mapping[str, Any]) -> bool:
    """Whether a state is a count among a total."""
    return site["kind"] not in CHAINS and KINDS[site["kind"]].counted


def timed(site: Mapping[str, Any], sites: Mapping[str, Any]) -> bool:
    """Whether a site has a value a step."""
    above = (*site.get("parents", ()), *site.get("adds", ()))
    return site["kind"] in CHAINS or "t" in above or any(
        timed(sites[name], sites) for name in above if name in sites)


def vector(site: Mapping[str, Any]) -> bool:
    """Whether a site's value is a vector of `size` numbers."""
    return site.get("layout") == "event" or site["kind"] not in CHAINS and KINDS[
        site["kind"]].width


def inputs(recipe: Mapping[str, Any]) -> tuple[str, ...]:
    """The inputs that a recipe's sites look at."""
    return tuple(name for name in INPUTS
                 if any(name in site.get("adds", ()) for site in recipe["sites"]))


def build(recipe: Mapping[str, Any]) -> Model:
    """The bound model of a recipe."""
    unused = {name: None for name in INPUTS if name not in inputs(recipe)}
    return generated(recipe=recipe, **unused)


@model
def generated(recipe, x, group, t, unit):
    """What a recipe says."""
    sites = {site["name"]: site for site in recipe["sites"]}
    given = {"x": x, "group": group, "t": t, "unit": unit}
    numbers = {name: np.random.default_rng([recipe["seed"], i]) for i, name in enumerate(sites)}
    tables = {name: _tables(site, sites, numbers[name]) for name, site in sites.items()}
    values: dict[str, Any] = {}
    for name, site in sites.items():
        if site.get("outside"):
            values[name] = _draw(site, sites, tables[name], values, given)
    with rows():
        for name, site in sites.items():
            if not site.get("outside"):
                values[name] = _draw(site, sites, tables[name], values, given)
                if site.get("tells"):
                    deterministic(f"{name}_told", computed_value(values[name]))


def computed_value(value: Any) -> Any:
    """The value of a deterministic site that depends on a site with `tells`."""
    return 2.0 * value + 1.0


def _tables(site: Mapping, sites: Mapping, rng: np.random.Generator) -> dict[str, Any]:
    """The arguments of a site, an axis for each parent, then its cells: parameters and numbers;
    and what is multiplied with what is added."""
    over = tuple(states(sites[parent]) for parent in site.get("parents", ()))
    if site["kind"] == "chain":
        k = site["states"]
        out = {"initial": _argument(site, "initial", "simplex", _row_parent_states(site, sites), k,
                                    rng),
               "transition": _argument(site, "transition", "simplex", (*over, k), k, rng)}
        return out | ({"+t": rng.normal(0.0, 1.0, k)} if "t" in site.get("adds", ()) else {})
    if site["kind"] == "walk":
        return {"keeps": _argument(site, "keeps", "unit", (), 1, rng),
                "noise": _argument(site, "noise", "positive", (), 1, rng)}
    kind, k = KINDS[site["kind"]], states(site)
    shared = site.get("shared") or site.get("layout", "scalar") == "scalar" and not kind.width
    cells = () if shared else (site["size"],)
    cells = (*cells, INNER) if cells and site.get("layout") == "grid" else cells
    out = {}
    for name, where in kind.arguments.items():
        own = over if where in ("one positive", "shares") else (*over, *cells)
        out[name] = _argument(site, name, where, own, last(where, k, site.get("size", 0)) or k,
                              rng)
    for name in site.get("adds", ()):
        if name in INDEXES:
            out[f"+{name}"] = _argument(site, EFFECTS[name], "real", (INDEXES[name],), k, rng)
        elif name in sites and vector(sites[name]):
            out[f"+{name}"] = rng.normal(0.0, 1.0, (sites[name]["size"], *(
                (site["size"],) if vector(site) else ())))
        else:
            out[f"+{name}"] = rng.normal(0.0, 1.0)
    return out


def _row_parent_states(site: Mapping, sites: Mapping) -> tuple[int, ...]:
    """The numbers of states of a chain's parents on which its first step depends: those that belong
    to a row."""
    return tuple(states(sites[parent]) for parent in site.get("parents", ())
                 if sites[parent]["kind"] != "chain")


def _argument(site: Mapping, name: str, where: str, shape: tuple[int, ...], k: int,
              rng: np.random.Generator) -> Any:
    number = constant(where, shape, k, rng)  # drawn also if learnt: the others stay what they are
    if name not in site.get("learn", ()):
        return jnp.asarray(number)
    said = prior(where, site.get("prior", ""), k)
    own = f"{site['name']}_{name}"
    if name in EFFECTS.values() and site.get("spread"):
        said = dist.Normal(0.0, sample(f"{own}_spread", dist.HalfNormal(2.0)))
    if where == "logits":
        shape = (*shape, k)
    if len(shape) == 1 and where != "logits":
        with plate(f"{own}s", shape[0]):
            return sample(own, said)
    return sample(own, said.expand(shape).to_event(len(shape)) if shape else said)


def _draw(site: Mapping, sites: Mapping, tables: Mapping, values: Mapping, given: Mapping) -> Any:
    if site["kind"] == "chain":
        return sample(site["name"], _chain(site, sites, tables, values, given))
    if site["kind"] == "walk":
        one = jnp.ones((1, 1))
        return sample(site["name"], GaussianChain(jnp.zeros(1), one, tables["keeps"] * one,
                                                  tables["noise"] ** 2 * one, steps=STEPS))
    kind, layout, parents = KINDS[site["kind"]], site.get("layout", "scalar"), site.get("parents",
                                                                                       ())
    wide = timed(site, sites)
    looked = [values[p][..., None] if wide and not timed(sites[p], sites) else values[p]
              for p in parents]
    arguments = {name: _at(tables[name], looked, site, where)
                 for name, where in kind.arguments.items()}
    for name in site.get("adds", ()):
        arguments[kind.adds] = arguments[kind.adds] + _term(site, sites, name, tables, values,
                                                            given)
    if "takes" in site:
        name, how = kind.takes
        of = sites[site["takes"]]["kind"]
        arguments[name] = _taken(arguments[name], values[site["takes"]], how, of,
                                 layout == "event")
    if "unit" in site:
        factor, offset = site["unit"]
        arguments |= {"loc": offset + factor * arguments["loc"],
                      "scale": factor * arguments["scale"]}
    made = kind.make(**arguments)
    events = wide + (layout == "event")
    if layout == "plate":
        with plate(f"{site['name']}_cells", site["size"]):
            return sample(site["name"], made)
    if layout == "grid":
        with (plate(f"{site['name']}_cells", site["size"]),
              plate(f"{site['name']}_inner", INNER)):
            return sample(site["name"], made)
    return sample(site["name"], made.to_event(events) if events else made)


def _chain(site: Mapping, sites: Mapping, tables: Mapping, values: Mapping,
           given: Mapping) -> MarkovChain:
    parents = site.get("parents", ())
    chained = any(sites[p]["kind"] == "chain" for p in parents)
    initial = tables["initial"][tuple(values[p] for p in parents if sites[p]["kind"] != "chain")]
    looked = tuple(values[p][..., None] if chained and sites[p]["kind"] != "chain" else values[p]
                   for p in parents)
    transition, moved = tables["transition"][looked], "+t" in tables
    if moved:  # (rows, steps, k, k)
        away = given["t"][..., None, None] * tables["+t"]
        transition = transition if chained else transition[..., None, :, :]
        transition = jax.nn.softmax(jnp.log(transition) + away)
    return MarkovChain(initial, transition, steps=STEPS, inhomogeneous=chained or moved)


def _term(site: Mapping, sites: Mapping, name: str, tables: Mapping, values: Mapping,
          given: Mapping) -> Any:
    """What one of `adds` adds, with the axes of the site's value."""
    kind, wide = KINDS[site["kind"]], timed(site, sites)
    cells = site.get("layout") == "event" or kind.width
    if name in INDEXES:
        term, steps = tables[f"+{name}"][given[name]], False
    elif name in given:
        term, steps = tables[f"+{name}"] * given[name], name == "t"
    else:
        of, value = sites[name], values[name]
        steps = timed(of, sites)
        value = value[..., 0] if of["kind"] == "walk" else value
        if site.get("bends"):
            value = value + 0.5 * value**2
        if vector(of):  # one of a site of several cells has them already
            term = value @ tables[f"+{name}"]
            return term[..., None, :] if wide and not steps and vector(site) else (
                term[..., None] if wide and not steps else term)
        term = tables[f"+{name}"] * value
    return term.reshape(term.shape + (1,) * ((wide and not steps) + cells))


def _taken(argument: Any, value: Any, how: str, of: str, cells: bool) -> Any:
    """An argument into which an unseen number enters."""
    value = value[..., None] if cells else value
    if how == UNIT:
        return jnp.broadcast_to(value, jnp.broadcast_shapes(value.shape, argument.shape))
    if how == FACTOR:
        return argument * value
    assert how == SPREAD
    return argument * value ** {"gamma": -0.5, "inverse": 0.5}.get(of, 1.0)


def _at(table: Any, looked: list, site: Mapping, where: str) -> Any:
    """The entries of a table at the parents' states; cells of a nested plate before the rows."""
    own = bool(last(where, 1, 1))
    if site.get("layout") == "grid" and not site.get("shared"):  # (inner, cells, rows)
        inner = jnp.arange(INNER)[:, None, None]
        return table[(*looked, jnp.arange(site["size"])[:, None], inner)]
    if site.get("layout") != "plate" or site.get("shared"):
        return table[tuple(looked)] if looked else table
    cells = jnp.arange(site["size"])[:, None]
    return table[(*looked, cells)] if looked else (table[:, None] if own or table.ndim == 1
                                                   else table)
