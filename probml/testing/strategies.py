"""hypothesis strategies: random recipes of models, and random data for them.

Sizes are few, so that shapes recur: 6 rows, 2 or 3 states, 2 cells, 4 steps, 3 groups.
"""

from typing import Any

from hypothesis import strategies as st

from probml.testing.case import ABSENT, PART, SEEN, Case
from probml.testing.families import KINDS, PRIORS
from probml.testing.recipe import INPUTS, finite, states

NAMES = "abcdefgh"
CELLS = 2
JOINT = 200  # joint states of what may be unseen


@st.composite
def recipes(draw: st.DrawFn, most: int = 4, learn: bool = True) -> dict[str, Any]:
    """A recipe of at most `most` sites; without `learn`, of no parameters."""
    sites: list[dict[str, Any]] = []
    for name in NAMES[: draw(st.integers(1, most), label="sites")]:
        sites.append(draw(_site(name, sites, learn), label=name))
    return {"seed": draw(st.integers(0, 9), label="numbers"), "sites": sites}


@st.composite
def _site(draw: st.DrawFn, name: str, before: list[dict], learn: bool) -> dict[str, Any]:
    kind = draw(st.sampled_from([*KINDS, "chain", "categorical", "normal"]))
    site: dict[str, Any] = {"name": name, "kind": kind}
    if kind in ("categorical", "chain"):
        site["states"] = draw(st.integers(2, 3))
    if kind == "chain":
        return site | _learnt(draw, ["initial", "transition"], "", learn)
    own = KINDS[kind]
    able = [other for other in before if finite(other)]
    parents = draw(st.lists(st.sampled_from([other["name"] for other in able]), max_size=2,
                            unique=True)) if able else []
    chains = [p for p in parents if any(o["name"] == p and o["kind"] == "chain" for o in able)]
    parents = [p for p in parents if p not in chains[1:]]
    plated = [o for o in able if o["name"] in parents and o.get("layout") == "plate"]
    vectors = [o for o in able if o["name"] in parents and o.get("layout") == "event"]
    parents = [p for p in parents if p not in [o["name"] for o in vectors]]
    parents = [] if chains and plated else parents
    layouts = ["scalar", "scalar", "event", "plate"]
    if own.width or chains:
        layouts = ["scalar"] if own.width else ["scalar", "event"]
    layout = "plate" if plated and parents else draw(st.sampled_from(layouts))
    if own.width and layout == "plate":
        parents, layout = [], "scalar"
    if parents:
        site["parents"] = parents
    if layout != "scalar" or own.width:
        site["size"] = CELLS
    if layout != "scalar":
        site["layout"] = layout
    if layout == "plate" and draw(st.booleans()):
        site["shared"] = True
    latents = [o["name"] for o in before if o["kind"] == "normal" and _scalar(o, before)]
    if own.adds:
        adds = draw(st.lists(st.sampled_from([*INPUTS, *latents]), max_size=2, unique=True))
        if adds:
            site["adds"] = adds
    names = [*own.arguments, *(["effect"] if "group" in site.get("adds", ()) else [])]
    wheres = [*own.arguments.values(), "real"]
    chosen = draw(st.sampled_from(sorted({p for where in wheres for p in PRIORS[where]})))
    return site | _learnt(draw, names, chosen, learn)


def _learnt(draw: st.DrawFn, names: list[str], prior: str, learn: bool) -> dict[str, Any]:
    found = draw(st.lists(st.sampled_from(names), unique=True)) if learn else []
    return {"learn": sorted(found), "prior": prior} if found else {}


def _scalar(site: dict, sites: list[dict]) -> bool:
    """Whether a site has one value a row."""
    timed = {o["name"] for o in sites if o["kind"] == "chain"}
    return site.get("layout", "scalar") == "scalar" and not timed & set(site.get("parents", ()))


@st.composite
def cases(draw: st.DrawFn, most: int = 4, learn: bool = True, rows: int = 6) -> Case:
    """A recipe with data for it, of which brute force can tell what is true."""
    recipe = draw(recipes(most, learn), label="recipe")
    hidden, joint = {}, 1
    for site in recipe["sites"]:
        said = draw(st.sampled_from([SEEN, PART, ABSENT]), label=f"{site['name']} is")
        cells = site.get("size", 1) if site.get("layout", "scalar") != "scalar" else 1
        timed = any(o["kind"] == "chain" and o["name"] in (*site.get("parents", ()), site["name"])
                    for o in recipe["sites"])
        count = (states(site) ** (cells * (4 if timed else 1))) if finite(site) else 1
        if said == SEEN or joint * count > JOINT:
            continue
        joint *= count
        hidden[site["name"]] = said
    if len(hidden) == len(recipe["sites"]) and set(hidden.values()) == {ABSENT}:
        hidden.pop(next(iter(hidden)))  # something is seen
    return Case(recipe, rows, draw(st.integers(0, 9), label="data"), hidden)

