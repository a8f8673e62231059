"""Hierarchies: parameters whose joint mode with others is no estimate, found in the structure
before anything is compiled.

Three kinds of tie between parameters make the joint mode of all of them degenerate:

  - a spread: the prior of `alpha` takes a free parameter as its scale, covariance, concentration
    or rate, and that parameter enters the likelihood through `alpha` alone. The joint density has
    its peak where the effects are equal and their scale is 0, whatever the data. (A dependence
    through a location alone makes no tie; nor does a scale that the distribution of the rows takes
    too, unless nothing depends on `alpha`, as on missing values that are sites of their own: as
    many of them as there are rows, all at their mode, halve a variance.)
  - the same written as a product: `tau * z[group]` with z ~ Normal(0, 1), or `z[group] / sqrt(p)`.
    The likelihood does not change when tau grows and z shrinks in proportion, which z's prior
    rewards: only tau's prior bounds tau.
  - incidental parameters (Neyman & Scott 1948): the members of a plate that rows read by an index
    have few rows each, and other parameters are shared by all rows: the joint mode of the shared
    ones is biased, however many rows there are.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from probml.errors import quoted
from probml.jaxpr.memo import memo
from probml.plan.blocks import all_blocks
from probml.plan.plan import Plan
from probml.plan.products import powers
from probml.typing import SiteValues

# Members of a plate read by an index are incidental below so many rows a member on average: below
# MIN_ROWS_PER_MEMBER where there are MIN_MANY_MEMBERS members, below MIN_ROWS_OF_FEW_MEMBERS
# however few.
MIN_ROWS_PER_MEMBER, MIN_MANY_MEMBERS = 30, 10
MIN_ROWS_OF_FEW_MEMBERS = 10
# by how much the logarithm of a scale may fall in an optimisation: beyond, it is on its way to 0
MAX_LOG_SCALE_FALL = 7.0


class DegenerateMode(NamedTuple):
    """A tie between parameters: the joint mode of one with `others` is no estimate, and why, in
    words."""

    name: str
    others: tuple[str, ...]
    why: str
    kind: str  # "spread", "product" or "incidental"


def degenerate_modes(plan: Plan, rows: int | None = None) -> tuple[DegenerateMode, ...]:
    """The ties between a plan's free parameters; incidental ones only where the number of rows is
    given (one row stands for none)."""
    found = _spreads(plan) + _products(plan)
    if rows is None or rows <= 1:
        return found
    tied = {tie.name for tie in found}
    return found + tuple(tie for tie in _incidental(plan, rows) if tie.name not in tied)


@memo(512)
def _spreads(plan: Plan) -> tuple[DegenerateMode, ...]:
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
            out.append(DegenerateMode(name, tuple(found),
                                      f"the prior of '{name}' ({site.kind}) has the unknown "
                                      f"{quoted(found, ' and ')} as {role} it", "spread"))
    return tuple(out)


def _depends_on_data(plan: Plan, name: str) -> bool:
    """Whether a site is a likelihood: a factor of parameters alone is part of the prior."""
    structure = plan.structure
    site, (program, _) = structure.sites[name], structure.programs[name]
    return site.kind != "factor" or bool(site.inputs) or any(np.ndim(c) for c in program.consts)


def _products(plan: Plan) -> tuple[DegenerateMode, ...]:
    sites, exponents = plan.structure.sites, powers(plan)
    found: dict[str, list[str]] = {}
    for name, other in exponents:
        found.setdefault(name, []).append(other)

    def describe_factor(name: str, other: str) -> str:
        if sites[other].domain.unbounded:
            return f"the exponential of '{other}'"
        return f"'{other}'" if exponents[name, other] == 1 else f"a power of '{other}'"

    return tuple(DegenerateMode(
        n, tuple(o), f"only the product of '{n}' and "
                     f"{' or '.join(describe_factor(n, other) for other in o)} enters "
                     f"the likelihood", "product") for n, o in found.items())


@memo(512)
def _incidental(plan: Plan, rows: int) -> tuple[DegenerateMode, ...]:
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
            MIN_ROWS_PER_MEMBER if index.length >= MIN_MANY_MEMBERS else MIN_ROWS_OF_FEW_MEMBERS
        ):
            continue
        for name in proper:
            why = (f"'{name}' has {index.length} levels, indexed by '{given}', with {each:.3g} "
                   f"rows each")
            out.append(DegenerateMode(name, shared, why, "incidental"))
    return tuple(out)


def find_collapsed_scales(plan: Plan, begun: SiteValues,
                          ended: Mapping[str, jax.Array]) -> list[str]:
    """Scales of a hierarchy that an optimisation carried towards 0, where the density rises without
    bound as the effects become equal.

    Args:
        begun, ended: the parameters at the start and the end; none is found where there is no
            start.
    """
    spreads = dict.fromkeys(name for tie in _spreads(plan) for name in tie.others if name in begun)
    return [name for name in spreads if plan.structure.sites[name].domain.log_scale
            and _has_fallen(begun[name], ended[name])]


def _has_fallen(begun: ArrayLike, ended: ArrayLike) -> bool:
    """Whether an entry of a scale is on its way to 0."""
    return bool(np.any(np.asarray(ended) < math.exp(-MAX_LOG_SCALE_FALL) * np.asarray(begun)))


def integrates_loops(plan: Plan) -> bool:
    """Whether steps of loops are integrated out of one joint density: the plan has no scales of
    theirs."""
    model = plan.structure.model
    return model.whole and model.generative.integrated


def next_to_zero(plan: Plan, begun: SiteValues,
                 ended: SiteValues) -> list[str]:
    """Positive parameters, intervals from 0 included, that an optimisation of such a density
    carried next to 0; arguments as of `find_collapsed_scales`."""
    return [name for name in plan.free if name in begun
            and plan.structure.sites[name].domain.bounds.get("lower_bound") is not None
            and np.all(np.asarray(plan.structure.sites[name].domain.bounds["lower_bound"]) == 0)
            and _has_fallen(begun[name], ended[name])]
