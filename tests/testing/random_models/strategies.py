"""hypothesis strategies: random recipes of models, and random data for them.

Sizes are few, so that shapes recur: 6 rows, 2 or 3 states, 2 cells, 4 steps, 3 groups.
"""

from typing import Any

from hypothesis import strategies as st

from random_models.case import ABSENT, PART, SEEN, SOFT, Case
from random_models.families import KINDS, LOC, PRIORS, UNIT
from random_models.recipe import (
    CHAINS,
    EFFECTS,
    INDEXES,
    INNER,
    STEPS,
    counted,
    finite,
    states,
    timed,
    vector,
)

NAMES = "abcdefgh"
CELLS = 2
JOINT = 200  # joint states of what may be unseen
UNITS = ([1e9, 0.0], [1e-9, 0.0], [1.0, 1e6])
# whose ends are numbers, beside which NumPyro's density of such a scale loses its digits, or whose
# logarithm has the location
UNITLESS = ("cut", "truncated", "lognormal")
PLATED = ("plate", "grid")
COMMON = ("chain", "walk", "categorical", "categorical", "normal", "normal", "bernoulli", "gamma",
          "poisson")  # beside one of each


@st.composite
def recipes(draw: st.DrawFn, most: int = 4, learn: bool = True) -> dict[str, Any]:
    """A recipe of at most `most` sites; without `learn`, of no parameters."""
    sites: list[dict[str, Any]] = []
    star = draw(st.integers(0, 7), label="star") == 7
    for name in NAMES[: draw(st.integers(1, most), label="sites")]:
        hub = sites[0] if star and sites else {"kind": "walk"}
        shared = finite(hub) and hub["kind"] != "chain" and not hub.get("outside") and hub.get(
            "layout", "scalar") == "scalar" and not vector(hub)
        sites.append(draw(_site(name, sites, learn, hub["name"] if shared else ""), label=name))
    if all(site.get("outside") for site in sites):
        sites[-1] = {key: value for key, value in sites[-1].items() if key != "outside"}
    return {"seed": draw(st.integers(0, 9), label="numbers"), "sites": sites}


@st.composite
def _site(draw: st.DrawFn, name: str, before: list[dict], learn: bool,
          hub: str) -> dict[str, Any]:
    """A site; below the hub, where there is one: several share that parent."""
    kind = draw(st.sampled_from([*KINDS, *COMMON]))
    site: dict[str, Any] = {"name": name, "kind": kind}
    if kind == "walk":
        return site | _learnt(draw, ["keeps", "noise"], "", learn)
    if kind in ("categorical", "softmax", "chain"):
        site["states"] = draw(st.integers(2, 3))
    if kind == "chain":
        return draw(_chain(site, before, learn))
    own, known = KINDS[kind], {one["name"]: one for one in before}
    able = [one for one in before if finite(one) and not vector(one)
            and one.get("layout") != "grid"]
    if kind in ("bernoulli", "categorical") and draw(st.integers(0, 7)) == 0:
        above = [one["name"] for one in able if one.get("outside")][:1]
        return site | {"outside": True} | ({"parents": above} if above else {}) | _learnt(
            draw, list(own.arguments), "", learn)
    parents = [hub] if hub else _draw_subset(draw, [one["name"] for one in able], 2)
    site |= _draw_layout(draw, parents, own.width, known)
    site |= _draw_terms(draw, site, before, known)
    names = [*own.arguments, *(EFFECTS[i] for i in INDEXES if i in site.get("adds", ()))]
    if "takes" in site and own.takes[1] == UNIT:
        names.remove(own.takes[0])
    priors = set().union(*(PRIORS[where] for where in (*own.arguments.values(), "real")))
    chosen = draw(st.sampled_from(sorted(priors)))
    site |= _learnt(draw, names, chosen, learn)
    if set(EFFECTS.values()) & set(site.get("learn", ())) and draw(st.booleans()):
        site["spread"] = True
    return site


def _draw_layout(draw: st.DrawFn, parents: list[str], width: bool,
                 known: dict[str, dict]) -> dict[str, Any]:
    """Discrete parents of a site, and the axes of its cells, which parents in a plate decide.

    Args:
        width: the value of the site is a vector in itself.
    """
    stepped = [p for p in parents if timed(known[p], known)]
    plated = [p for p in parents if known[p].get("layout") == "plate"]
    parents = [] if plated and (stepped or width) else parents
    layouts = ["scalar"] if width else ["scalar", "event"] if stepped else [
        "scalar", "scalar", "event", "plate", "scalar", "grid"]
    layout = "plate" if plated and parents else draw(st.sampled_from(layouts))
    out = {"parents": parents, "size": CELLS if layout != "scalar" or width else 0,
           "layout": "" if layout == "scalar" else layout,
           "shared": layout in PLATED and draw(st.booleans())}
    return {key: value for key, value in out.items() if value}


def _draw_terms(draw: st.DrawFn, site: dict[str, Any], before: list[dict],
                known: dict[str, dict]) -> dict[str, Any]:
    """What enters the arguments of a site, its unit, and whether it measures another."""
    own, layout = KINDS[site["kind"]], site.get("layout", "scalar")
    if own.adds:
        site = site | _added(draw, site, before, layout, known)
    if own.takes and not timed(site, known):
        site = site | _taken(draw, own.takes[1], before, known)
    if own.arguments is LOC and site["kind"] not in UNITLESS and draw(st.integers(0, 7)) == 7:
        site = site | {"unit": draw(st.sampled_from(UNITS))}
    if "size" not in site and not timed(site, known) and draw(st.integers(0, 7)) == 7:
        site = site | {"tells": True}
    return site


@st.composite
def _chain(draw: st.DrawFn, site: dict[str, Any], before: list[dict],
           learn: bool) -> dict[str, Any]:
    """A chain of its own, or moved by what belongs to its row, by another chain, by an input."""
    able = [one["name"] for one in before if one["kind"] == "chain" or finite(one)
            and one.get("layout", "scalar") == "scalar"
            and not timed(one, {other["name"]: other for other in before})]
    parents = _draw_subset(draw, able, 1) if draw(st.booleans()) else []
    if parents:
        site["parents"] = parents
    if draw(st.integers(0, 3)) == 0:
        site["adds"] = ["t"]
    return site | _learnt(draw, ["initial", "transition"], "", learn)


def _draw_subset(draw: st.DrawFn, names: list[str], most: int) -> list[str]:
    return draw(st.lists(st.sampled_from(names), max_size=most, unique=True)) if names else []


def _added(draw: st.DrawFn, site: dict, before: list[dict], layout: str,
           known: dict) -> dict[str, Any]:
    """What is added to where a site lies."""
    numbers = [one["name"] for one in before if one["kind"] == "walk"
               or one["kind"] != "chain" and KINDS[one["kind"]].lies == "real"
               and one.get("layout", "scalar") not in PLATED and "unit" not in one]
    stepped = timed(site, known)
    can = ["x", *INDEXES, *(["t"] if stepped else []), *numbers]
    if layout in PLATED:
        can = [name for name in can if name not in known or not timed(known[name], known)]
    adds = _draw_subset(draw, can, 2)
    if not adds:
        return {}
    bends = any(name in known for name in adds) and draw(st.integers(0, 5)) == 0
    return {"adds": adds} | ({"bends": True} if bends else {})


def _taken(draw: st.DrawFn, how: str, before: list[dict], known: dict) -> dict[str, Any]:
    """An unseen number that enters as an argument, or a factor of it."""
    lies = "unit" if how == UNIT else "positive"
    can = [one["name"] for one in before if one["kind"] not in CHAINS
           and KINDS[one["kind"]].lies == lies and one.get("layout", "scalar") == "scalar"
           and not timed(one, known) and "unit" not in one]
    found = _draw_subset(draw, can, 1)
    return {"takes": found[0]} if found else {}


def _learnt(draw: st.DrawFn, names: list[str], prior: str, learn: bool) -> dict[str, Any]:
    found = draw(st.lists(st.sampled_from(names), unique=True)) if learn and names else []
    return {"learn": sorted(found), "prior": prior} if found else {}


@st.composite
def cases(draw: st.DrawFn, most: int = 4, learn: bool = True, rows: int = 6) -> Case:
    """A recipe with data for it, of which brute force can tell what is true."""
    recipe = draw(recipes(most, learn), label="recipe")
    known = {site["name"]: site for site in recipe["sites"]}
    hidden, joint, blank = {}, 1, draw(st.integers(0, 7), label="blank") == 7
    for name, site in known.items():
        if site.get("outside"):
            joint *= states(site)
            continue
        if site["kind"] not in CHAINS and KINDS[site["kind"]].is_joint:
            blank = False
            continue
        scalar = (finite(site) and not counted(site) and not timed(site, known)
                  and site.get("layout", "scalar") == "scalar")
        said = draw(st.sampled_from([SEEN, PART, ABSENT, *([SOFT] if scalar else [])]),
                    label=f"{name} is")
        cells = site.get("size", 1) if site.get("layout", "scalar") != "scalar" else 1
        cells *= INNER if site.get("layout") == "grid" else 1
        count = (states(site) ** (cells * (STEPS if timed(site, known) else 1))
                 if finite(site) else 1)
        if blank and said == SEEN:  # a row shows nothing of it
            said = PART
        if said == SEEN or joint * count > JOINT:
            blank = False
            continue
        joint *= count
        hidden[name] = said
    inside = [name for name, site in known.items() if not site.get("outside")]
    if set(hidden) == set(inside) and set(hidden.values()) == {ABSENT}:
        hidden.pop(next(iter(hidden)))  # something is seen
    return Case(recipe, rows, draw(st.integers(0, 9), label="data"), hidden, int(blank))
