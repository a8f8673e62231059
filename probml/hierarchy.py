"""Hierarchies: parameters whose joint mode with others is no answer, read from the structure before anything is compiled.

Two kinds of tie make the joint mode of all parameters meaningless:
  - a spread: the prior of `alpha` takes an unseen parameter as its scale, covariance, concentration or rate, and that parameter
    reaches the data through `alpha` alone. Where the effects are all alike and their spread is 0 the joint density has its peak,
    whatever the data say. (A dependence through a location alone makes none; a spread that the rows' own distribution takes too is
    held by the rows.)
  - incidental parameters (Neyman & Scott 1948): the members of a plate that rows read by an index have few rows each, beside
    parameters that all rows share: however many rows there are, the mode of what is shared is not where it should be.
"""

import functools
import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from probml.language import Refusal
from probml.plan import Plan

FEW = 30  # rows for each member of a plate read by an index, on average, below which its effects are incidental
FALLEN = 7.0  # logarithms of a spread that a climb may lose on its way to a mode: beyond, it is on its way to 0


class Tie(NamedTuple):
    """A parameter whose joint mode with `others` is no answer, and the reason in words."""

    name: str
    others: tuple[str, ...]
    why: str
    spread: bool


def ties(plan: Plan, rows: int | None = None) -> tuple[Tie, ...]:
    """The ties of a plan's free parameters; of incidental ones only where the number of rows is told."""
    return _spreads(plan) + (() if rows is None else _incidental(plan, rows))


@functools.lru_cache(maxsize=512)
def _spreads(plan: Plan) -> tuple[Tie, ...]:
    sites, out = plan.structure.sites, []
    direct = {p for name in (*plan.pooled, *plan.rowwise, *plan.globals) for uses in sites[name].uses.values() for p in uses}
    for name in plan.free:
        site, found = sites[name], {}
        for argument, uses in site.uses.items():
            if argument not in site.locations:
                found |= {p: argument for p in uses if p in plan.free and p not in direct}
        if found:
            unseen = " and ".join(f"'{parent}'" for parent in found)
            words = sorted({argument for argument in found.values() if not argument.startswith("argument")})
            role = f"the {' and '.join(words)} of" if words else "more than the location of"
            out.append(Tie(name, tuple(found), f"the prior of '{name}' ({site.kind}) takes the unseen {unseen} as {role} it", True))
    return tuple(out)


def _incidental(plan: Plan, rows: int) -> tuple[Tie, ...]:
    sites, out = plan.structure.sites, []
    indexed = getattr(plan.structure, "indexed", {})
    for given, index in indexed.items():
        members = {name for name, _ in index.parameters if name in plan.free}
        proper = [name for name in plan.free if name in members and sites[name].kind != "ImproperUniform"]
        shared = tuple(name for name in plan.free if name not in members)
        if not proper or not shared or index.length < 2 or rows >= FEW * index.length:
            continue
        each = rows / index.length
        for name in proper:
            why = f"'{name}' has {index.length} members, read by '{given}', with {each:.3g} rows each"
            out.append(Tie(name, shared, why, False))
    return tuple(out)


def judge(plan: Plan, rows: int, engine: str, ladder: bool) -> None:
    """What an engine that ends at a joint mode has to say of a hierarchy: in the ladder it refuses, asked for by name it warns.

    Raises:
        Refusal: the plan has ties, and the engine was not asked for by name.
    """
    found = ties(plan, rows)
    if not found:
        return
    reasons = "; ".join(dict.fromkeys(tie.why for tie in found[:3])) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
    text = f"{engine} of model '{plan.structure.model.name}': its parameters make a hierarchy ({reasons}), whose joint mode is no answer: "
    spreads = tuple(dict.fromkeys(name for tie in found if tie.spread for name in tie.others))
    if spreads:
        named = ", ".join(f"'{name}'" for name in spreads)
        text += f"{named}, which stands in another parameter's prior, can shrink for ever. Use NUTS()"
    else:
        text += "with few rows for each member, what all share is biased however many rows there are. Use NUTS()"
    if ladder:
        raise Refusal(text)
    warnings.warn(text, RuntimeWarning, stacklevel=5)


def vanished(plan: Plan, begun: Mapping[str, Any], ended: Mapping[str, Any]) -> tuple[str, ...]:
    """Spreads of a hierarchy that a climb carried towards 0, in words.

    Args:
        begun, ended: the parameters at the start and the end; nothing is said where there is no start.
    """
    spreads = dict.fromkeys(name for tie in _spreads(plan) for name in tie.others if name in begun)
    spreads = [name for name in spreads if plan.structure.sites[name].domain == "positive"]
    gone = [name for name in spreads if np.any(np.asarray(ended[name]) < math.exp(-FALLEN) * np.asarray(begun[name]))]
    if not gone:
        return ()
    named = ", ".join(f"'{name}'" for name in gone)
    return (f"{named} shrinks for ever: the density rises without bound as the effects become all alike. Use NUTS()",)
