"""The plan of a structure and a pattern of observations: roles, scopes, orders and budget."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from probml.elimination import orders
from probml.errors import Refusal, listed
from probml.jaxpr.memo import memo
from probml.latents import grouping, hidden_cells
from probml.latents.latent import Group
from probml.plan.groupings import choose_quadrature, groupings
from probml.plan.plan import BUDGET, TABLE, Plan, Variable
from probml.plan.roles import Request, assign_roles, summed_out
from probml.structure.site import Site
from probml.structure.structure import Structure


def make(
    structure: Structure,
    pattern: Mapping[str, str],
    given: tuple[str, ...] = (),
    targets: tuple[str, ...] = (),
    merge_globals: bool = False,
    joints: tuple[tuple[str, ...], ...] = (),
    holes: tuple[str, ...] = (),
    effects: tuple[str, ...] = (),
    lenient: bool = False,
    flat: tuple[str, ...] = (),
    nodes: int | None = None,
) -> Plan:
    """Decide the plan; cached by value.

    Args:
        merge_globals: for queries on single rows: global variables are eliminated with the row's
            own.
        joints: targets that a query asks for together.
        holes: partially observed continuous sites on whose missing cells others depend.
        effects: parameters that are integrated out, of those that can be (plan/random_effects.py).
        lenient: latents that cannot be integrated out are labelled instead of refused: for a plan
            that is only described.
        flat: those of the effects that are integrated out without a prior.
        nodes: of a quadrature over effects, see groupings.choose_quadrature.

    Raises:
        Refusal: a latent continuous site on which others depend cannot be integrated out, a
            summed-out site has no finite support, a table exceeds the budget.
    """
    return _decide(Request(
        structure, tuple(sorted(pattern.items())), tuple(given), tuple(targets), merge_globals,
        tuple(joints), tuple(holes), tuple(effects), lenient, tuple(flat), nodes))


@memo(512)
def _decide(request: Request) -> Plan:
    """Roles, then groups, then the sites whose tables pool, then orders and their cost."""
    structure, roles = request.structure, assign_roles(request)
    # in a fit the latents on which a factor depends are sampled; a question integrates them out
    weighing = () if request.merge_globals else structure.losses
    targets = [name for name in request.targets if name not in structure.sites
               or structure.sites[name].discrete and name not in roles.observed]
    groups, variables = _group(
        structure, roles.latents, [n for n in roles.observed if n not in weighing],
        [n for n in roles.observed if n in weighing], targets, request.lenient, roles.cellwise,
        roles.variables)
    _check_switching(structure, groups, variables)
    parts = choose_quadrature(structure, groupings(structure, request.effects, request.flat),
                              request.nodes) if request.effects else ()
    integrated = {name for group in groups for name in group.sites}
    integrated |= {child for name in request.effects for child in structure.children[name]}
    pattern = dict(request.pattern)
    pooled, rowwise = [], []
    for name in (*roles.observed, *(v for v in variables if structure.sites[v].rows)):
        if name not in integrated:
            table = _is_pooled(structure, structure.sites[name], pattern, variables)
            (pooled if table else rowwise).append(name)
    plan = Plan(structure, pattern, request.given, request.targets, variables,
                tuple(roles.observed), tuple(pooled), tuple(rowwise), (), (), (), (), 1, 1, 1,
                groups, parts)
    _check_supports(plan)
    return _order(plan, request)


class Elimination(NamedTuple):
    """Variables that are eliminated together: the scopes of their factors, the order, and the
    variables of the widest table with its entries."""

    scopes: Sequence[tuple[str, ...]]
    order: tuple[str, ...]
    clique: Sequence[str]
    entries: int


def _eliminated(scopes: Sequence[tuple[str, ...]], sizes: Mapping[str, int],
                names: Sequence[str]) -> Elimination:
    order = tuple(orders.best_order(scopes, sizes, names))
    return Elimination(scopes, order,
                       *(orders.widest(scopes, sizes, order) if scopes else ((), 1)))


def _order(plan: Plan, request: Request) -> Plan:
    """The plan with the orders in which its variables are eliminated, and their cost.

    Raises:
        Refusal: a table exceeds the budget.
    """
    sites = plan.structure.sites
    sizes = {name: variable.states for name, variable in plan.variables.items()}
    local = [v for v in plan.variables
             if sites[v].time is None and (sites[v].rows or request.merge_globals)]
    inner = [v for v in plan.variables if sites[v].time is not None and not sites[v].chain]
    outer = [v for v in plan.variables if v not in local and sites[v].time is None]
    row = _eliminated(_scopes_of_row(plan, request), sizes, local)
    step = _with_moves(plan, sizes, _eliminated(_scopes_of_step(plan), sizes, inner))
    outside = _eliminated(_scopes_above(plan, outer, request) if outer else [], sizes, outer)
    for clique, entries in ((part.clique, part.entries) for part in (row, outside, step)):
        if entries * 8 > BUDGET:
            raise Refusal(
                f"model '{plan.structure.model.name}': discrete sites that are not in the data "
                f"(latent) are summed out. This needs a joint table of {listed(clique)} with "
                f"{entries:.3g} entries ({entries * 8:.3g} bytes), more than the limit of "
                f"{BUDGET:.3g} bytes. Give some of these sites in the data, or remove a "
                "dependence between them from the model function")
    wider = row if row.entries >= step.entries else step
    return dataclasses.replace(
        plan, order=row.order, global_order=outside.order, step_order=step.order,
        clique=tuple(wider.clique), entries=wider.entries,
        work=orders.work(row.scopes, sizes, row.order),
        width=_width(plan, sizes, row.entries, step.entries))


def _computed_targets(plan: Plan) -> list[Site]:
    """The targets that are computed from sites."""
    computed = plan.structure.deterministics
    return [computed[name] for name in plan.targets if name in computed]


def _scopes_of_row(plan: Plan, request: Request) -> list[tuple[str, ...]]:
    scopes = [plan.scope(name) for name in (*plan.pooled, *plan.rowwise) if name not in plan.steps]
    scopes += [*request.joints, *(plan.group_scope(group) for group in plan.latents)]
    scopes += [plan.along] if plan.along else []
    scopes += [plan.scope(site.name) for site in _computed_targets(plan) if site.time is None]
    return scopes + [plan.globals] * (request.merge_globals and bool(plan.globals))


def _scopes_of_step(plan: Plan) -> list[tuple[str, ...]]:
    scopes = [plan.scope(name) for name in (*plan.pooled, *plan.rowwise) if name in plan.steps]
    return scopes + [plan.scope(site.name) for site in _computed_targets(plan)
                     if site.time is not None]


def _scopes_above(plan: Plan, outer: Sequence[str], request: Request) -> list[tuple[str, ...]]:
    """The scopes of the tables of variables outside rows."""
    parents = {v: plan.structure.sites[v].parents for v in outer}
    scopes = [(*(p for p in parents[v] if p in plan.variables), v) for v in outer]
    scopes += [plan.row_globals] * (not request.merge_globals)
    return scopes + [plan.scope(name) for name in plan.mixed]


def _with_moves(plan: Plan, sizes: Mapping[str, int], step: Elimination) -> Elimination:
    """A chain moves between all pairs of its joint states."""
    joint = (*plan.along, *plan.chains)
    moves = math.prod(sizes[v] for v in joint) * math.prod(sizes[v] for v in plan.chains)
    return step if moves < step.entries else step._replace(
        clique=(*joint, *plan.chains), entries=moves)


def _width(plan: Plan, sizes: Mapping[str, int], row: int, step: int) -> int:
    """How many numbers the evaluation of a row reads and writes.

    Args:
        row, step: entries of the widest tables of a row and of a step.
    """
    sites, own = plan.structure.sites, (*plan.pooled, *plan.rowwise)
    states = {name: math.prod(sizes[v] for v in plan.scope(name)) for name in own}
    return max(
        row,
        math.prod(sizes[v] for v in (*plan.along, *plan.chains)) if plan.chains else step,
        *(math.prod(sites[n].cells or (1,)) * (1 + (sites[n].event or (1,))[0] // 2) for n in own),
        *states.values(),
        *(2 * math.prod(sites[name].cells) * states[name] for name in plan.partially_observed),
        *(_breadth(plan, group) for group in plan.latents),
        _touched_by_effects(plan),
    )


def _touched_by_effects(plan: Plan) -> int:
    """How many numbers a row's log density as a function of effects reads and writes."""
    parts, n_observed = plan.groupings, sum(math.prod(plan.structure.sites[n].cells)
                                            for n in plan.grouped)
    size, nodes = sum(part.cells for part in parts), max((part.nodes for part in parts), default=0)
    if nodes:  # a row's log density at every node, or its second derivatives
        return n_observed * (1 + max(nodes, size if len(parts) == 1 else size**2))
    return n_observed * (1 + size) + size**2 * any(part.index is not None for part in parts)


def _check_switching(structure: Structure, groups: tuple[Group, ...], variables: Mapping) -> None:
    """Refuse continuous states along time whose moves or measurements depend on latent discrete
    states along time: their filter would have to keep a normal for each path of these."""
    sites = structure.sites
    for group in groups:
        for name in (name for name in group.sites if any(sites[n].chain for n in group.names)):
            for state in sites[name].parents:
                if state in variables and sites[state].time is not None:
                    chain = next(n for n in group.names if sites[n].chain)
                    raise Refusal(
                        f"model '{structure.model.name}': site '{chain}' (GaussianChain) cannot be "
                        f"integrated out along time, because '{name}' depends on the latent states "
                        f"of '{state}' (a switching linear system). This integral is a sum over "
                        f"all paths of '{state}', too many to compute. Give '{state}' in the data, "
                        f"or make it one dist.Categorical per row. Or write '{chain}' as a "
                        "MarkovChain over a grid of values. Or write a function with obs= and a "
                        "scan over time, without rows()")


def _breadth(plan: Plan, group: Group) -> int:
    """How many numbers the message of a row takes: in each state its observed cells times its
    latent ones, or times the values at which it is evaluated."""
    cells = {name: math.prod(plan.structure.sites[name].cells) for name in group.sites}
    n_latent = sum(cells[name] for name in group.names)
    states = math.prod(plan.variables[v].states for v in plan.group_scope(group))
    states *= math.prod(plan.structure.sites[name].finite or 1 for name in group.cellwise)
    return states * max(n_latent, group.kind.breadth) * sum(cells.values())


def _check_supports(plan: Plan) -> None:
    """Refuse a parameter whose support differs from state to state of what is summed out, or from
    step to step of a scan by the values of the steps before: no one map takes all numbers onto it.
    """
    for site in (plan.structure.sites[name] for name in plan.free):
        bounds = plan.structure.bounds(site.name).values() if not site.domain.fixed else ()
        inputs = {name for _, names in bounds for name in names}
        state = next((v for v in plan.variables if v in inputs), None)
        if state is not None:
            raise Refusal(
                f"model '{plan.structure.model.name}': the support (the set of possible values) of "
                f"parameter '{site.name}' ({site.kind}) depends on '{state}', which is discrete "
                f"and latent. Give '{state}' in the data, or give '{site.name}' a prior whose "
                f"support is the same for all states of '{state}'"
            )
        if site.name in inputs:
            raise Refusal(
                f"model '{plan.structure.model.name}': site '{site.name}' ({site.kind}) is in a "
                "scan, and its support (the set of possible values) depends on its value in the "
                "step before. In each step sample the increment instead, from a prior with the "
                "same support in all steps. Add it to the value before, x = x + "
                "sample(\"increment\", dist.HalfNormal(1))"
            )


def _group(
    structure: Structure, latents: list[str], observed: list[str], losses: list[str],
    targets: list[str], lenient: bool, cellwise: list[str], variables: dict[str, Variable],
) -> tuple[tuple[Group, ...], dict[str, Variable]]:
    """The groups of latents, hidden cells among them, and the variables: hidden cells that cannot
    be summed out one by one are so as their joint states."""
    sites, given = structure.sites, _given_numbers(structure, latents, variables)
    cellwise = [name for name in sites if name in cellwise or name in given]
    variables = {name: variable for name, variable in variables.items() if name not in given}
    children = {name: [n for n in structure.children[name] if n in (*latents, *losses)
                       or sites[n].time is not None] for name in cellwise}
    joint = {name: f"'{names[0]}' depends on them jointly" for name, names in children.items()
             if names}
    while True:
        cellwise = [name for name in cellwise if name not in joint]
        variables = variables | {name: summed_out(structure, sites[name], why)
                                 for name, why in joint.items()}
        variables = {name: variables[name] for name in sites if name in variables}
        in_rows = [name for name in variables if sites[name].rows]
        groups = grouping.groups(structure, latents, observed, [*in_rows, *losses],
                                 [n for n in targets if n not in (*in_rows, *cellwise)], lenient,
                                 cellwise) if latents or cellwise else ()
        joint = {name: why for group in groups if group.cellwise
                 if (why := hidden_cells.why_not(structure, group)) is not None
                 for name in group.cellwise}
        if not joint:
            return groups, variables


def _given_numbers(structure: Structure, latents: list[str],
                   variables: Mapping[str, Variable]) -> set[str]:
    """The variables that depend on numbers of a row, and those that depend on these: they are
    summed out within the integral over the numbers."""
    dependent: set[str] = set()
    while new := {name for name in variables if name not in dependent and structure.sites[name].rows
                  and structure.sites[name].time is None
                  and any(p in latents or p in dependent for p in structure.sites[name].parents)}:
        dependent |= new
    return dependent


def _is_pooled(structure: Structure, site: Site, pattern: Mapping[str, str],
               variables: Mapping[str, Variable]) -> bool:
    """A site is pooled when its arguments are one table over few discrete states, the same for
    every row."""
    if (site.family is None or site.traits.rowwise or site.inputs
        or pattern.get(site.name) == "sampled"):
        return False
    # a count that is summed out, by its own log_prob
    if site.name in variables and site.states is None:
        return False
    entries = math.prod(site.lattice) * max(math.prod(site.event), site.states or 1)
    for parent in site.parents:
        node = structure.sites[parent]
        if node.rows and parent not in variables:
            if not node.discrete or node.states is None or math.prod(node.cells) != 1:
                return False
            entries *= node.states
        elif parent in variables:
            entries *= variables[parent].states
    return entries <= TABLE
