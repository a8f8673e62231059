"""Hierarchies: parameters whose joint mode with others is no answer, read from the structure before
anything is compiled.

Three kinds of tie make the joint mode of all parameters meaningless:
  - a spread: the prior of `alpha` takes an unseen parameter as its scale, covariance, concentration
    or rate, and that parameter reaches the data through `alpha` alone. Where the effects are all
    alike and their spread is 0 the joint density has its peak, whatever the data say. (A dependence
    through a location alone makes none; a spread that the rows' own distribution takes too is held
    by the rows, but where nothing looks at `alpha`, as at missing values that are sites of their
    own: as many of them as there are rows, all at their mode, halve a variance.)
  - the same written as a product: `tau * z[group]` with z ~ Normal(0, 1), or `z[group] / sqrt(p)`.
    The density of what reaches the rows stays as it is when tau grows and z shrinks in proportion,
    which z's prior rewards: only tau's prior ends that.
  - incidental parameters (Neyman & Scott 1948): the members of a plate that rows read by an index
    have few rows each, beside parameters that all rows share: however many rows there are, the mode
    of what is shared is not where it should be.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from probml.errors import quoted
from probml.jaxpr.memo import memo
from probml.plan.blocks import all_blocks
from probml.plan.plan import Plan
from probml.plan.products import powers

# rows for each member of a plate read by an index, on average, below which so many members are
# incidental
FEW, MANY = 30, 10
LEAST = 10  # and below which any number of them is
# logarithms of a spread that a climb may lose on its way to a mode: beyond, it is on its way to 0
FALLEN = 7.0


class Tie(NamedTuple):
    """A parameter whose joint mode with `others` is no answer, and the reason in words."""

    name: str
    others: tuple[str, ...]
    why: str
    kind: str  # "spread", "product" or "incidental"


def ties(plan: Plan, rows: int | None = None) -> tuple[Tie, ...]:
    """The ties of a plan's free parameters; of incidental ones only where the number of rows is
    told (one row stands for none)."""
    found = _spreads(plan) + _products(plan)
    if rows is None or rows <= 1:
        return found
    told = {tie.name for tie in found}
    return found + tuple(tie for tie in _incidental(plan, rows) if tie.name not in told)


@memo(512)
def _spreads(plan: Plan) -> tuple[Tie, ...]:
    sites, out = plan.structure.sites, []
    direct = {p for name in (*plan.pooled, *plan.rowwise, *plan.integrated, *plan.globals)
              if _depends_on_data(plan, name) for uses in sites[name].uses.values() for p in uses}
    for name in plan.free:
        site, found = sites[name], {}
        alone = not plan.structure.children[name]
        for argument, uses in site.uses.items():
            if argument not in site.locations:
                found |= {p: argument for p in uses
                          if p in plan.free and (alone or p not in direct)}
        if found:
            words = sorted({argument for argument in found.values()
                            if not argument.startswith("argument")})
            role = f"the {' and '.join(words)} of" if words else "more than the location of"
            out.append(Tie(name, tuple(found),
                           f"the prior of '{name}' ({site.kind}) has the unknown "
                           f"{quoted(found, ' and ')} as {role} it", "spread"))
    return tuple(out)


def _depends_on_data(plan: Plan, name: str) -> bool:
    """Whether a site is a likelihood: a factor of parameters alone is part of the prior."""
    structure = plan.structure
    site, (program, _) = structure.sites[name], structure.programs[name]
    return site.kind != "factor" or bool(site.inputs) or any(np.ndim(c) for c in program.consts)


def _products(plan: Plan) -> tuple[Tie, ...]:
    sites, told = plan.structure.sites, powers(plan)
    found: dict[str, list[str]] = {}
    for name, other in told:
        found.setdefault(name, []).append(other)

    def describe_factor(name: str, other: str) -> str:
        if sites[other].domain.unbounded:
            return f"the exponential of '{other}'"
        return f"'{other}'" if told[name, other] == 1 else f"a power of '{other}'"

    return tuple(Tie(n, tuple(o), f"only the product of '{n}' and "
                                  f"{' or '.join(describe_factor(n, other) for other in o)} enters "
                                  f"the likelihood", "product")
                 for n, o in found.items())


@memo(512)
def _incidental(plan: Plan, rows: int) -> tuple[Tie, ...]:
    sites, out = plan.structure.sites, []
    normal = [set(block.names) for block in all_blocks(plan, True)
              if block.form and block.form.joint and block.conjugate]
    for given, index in plan.structure.indexed.items():
        members = {name for name, _ in index.parameters if name in plan.free}
        proper = [name for name in plan.free if name in members
                  and not sites[name].entry.improper]
        # of jointly normal parameters the mode is the mean
        beside = {n for group in normal if group & members for n in group}
        shared = tuple(name for name in plan.free if name not in members | beside)
        each = rows / max(index.length, 1)
        if not proper or not shared or index.length < 2 or each >= (
            FEW if index.length >= MANY else LEAST
        ):
            continue
        for name in proper:
            why = (f"'{name}' has {index.length} levels, indexed by '{given}', with {each:.3g} "
                   f"rows each")
            out.append(Tie(name, shared, why, "incidental"))
    return tuple(out)


def find_collapsed_scales(plan: Plan, begun: Mapping[str, Any],
                          ended: Mapping[str, jax.Array]) -> list[str]:
    """Scales of a hierarchy that an optimisation carried towards 0, where the density rises without
    bound as the effects become equal.

    Args:
        begun, ended: the parameters at the start and the end; none is found where there is no
            start.
    """
    spreads = dict.fromkeys(name for tie in _spreads(plan) for name in tie.others if name in begun)
    return [name for name in spreads if plan.structure.sites[name].domain.log_scale and
            np.any(np.asarray(ended[name]) < math.exp(-FALLEN) * np.asarray(begun[name]))]


def paths(plan: Plan) -> bool:
    """Whether steps of loops are integrated out of one density of everything: the plan knows no
    spreads of theirs."""
    model = plan.structure.model
    return model.whole and model.generative.integrated


def next_to_zero(plan: Plan, begun: Mapping[str, Any],
                 ended: Mapping[str, Any]) -> list[str]:
    """Positive parameters, ranges from 0 included, that an optimisation over what paths share
    carried next to 0; arguments as of `find_collapsed_scales`."""
    return [name for name in plan.free if name in begun
            and plan.structure.sites[name].domain.bounds.get("lower_bound") is not None
            and np.all(np.asarray(plan.structure.sites[name].domain.bounds["lower_bound"]) == 0)
            and np.any(np.asarray(ended[name]) < math.exp(-FALLEN) * np.asarray(begun[name]))]
