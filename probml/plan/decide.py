"""What was seen + structure → plan: roles, scopes, orders and budget decided."""

import math
from collections.abc import Mapping

import numpy as np

from probml.elimination import orders
from probml.errors import Refusal, quoted
from probml.jaxpr.memo import memo
from probml.latents import grouping, hidden_cells
from probml.latents.latent import Group
from probml.plan.groupings import groupings
from probml.plan.integrals import ruled
from probml.plan.plan import BUDGET, TABLE, Plan
from probml.plan.variable import Variable
from probml.structure.site import Site
from probml.structure.structure import Structure

FEW = 6  # binary digits of the joint states of a site that are summed out as they are


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
        holes: continuous sites seen in part whose unseen cells others look at.
        effects: parameters that are integrated out, of those that can be (plan/effects.py).
        lenient: latents that cannot be integrated out are labelled, for who only reads the plan.
        flat: those of the effects that are integrated out without a prior.
        nodes: of a quadrature over effects, see integrals.ruled.

    Raises:
        Refusal: an unseen continuous site feeds another and cannot be integrated out, a summed-out
            site has no finite support, a table exceeds the budget.
    """
    return _make(structure, tuple(sorted(pattern.items())), tuple(given), tuple(targets),
                 merge_globals, tuple(joints), tuple(holes), tuple(effects), lenient, tuple(flat),
                 nodes)


@memo(512)
def _make(structure: Structure, pattern_items: tuple, given: tuple, targets: tuple,
          merge_globals: bool, joints: tuple, holes: tuple, effects: tuple,
          lenient: bool, flat: tuple, nodes: int | None) -> Plan:
    pattern, sites, name_of = dict(pattern_items), structure.sites, structure.model.name
    active, barren = _active(structure, pattern, targets), _barren(structure, given)
    asked = [structure.deterministics[name] for name in targets if name in structure.deterministics]
    # site → what is asked and computed from it
    feeds = {parent: site.name for site in reversed(asked) for parent in site.parents}
    variables: dict[str, Variable] = {}
    observed, latents, cellwise = [], [], []
    for name in (name for name in holes if sites[name].discrete):
        raise Refusal(f"model '{name_of}': the vector '{name}' ({sites[name].kind}) is partially "
                      f"observed while others depend on it, and it has too many states to be "
                      f"summed out")
    for site in sites.values():
        if (site.name in given or site.name not in active and site.rows or site.factor
            or site.name in barren):
            continue
        state = pattern.get(site.name)
        has_children = (any(child in active for child in structure.children[site.name])
                        or site.name in feeds)
        if not site.discrete:
            looked = state == "torn" and any(p in latents for p in site.parents)
            # where nothing is seen and nothing asked, as in a fit that was put at a point, nothing
            # is integrated, but what a factor looks at; a chain also where it is seen: its steps
            # are no rows
            if (site.rows and (pattern or targets or holes or structure.losses)
                and (state is None and has_children or site.name in holes or looked
                     or site.chain)):
                latents.append(site.name)
            if site.rows and state is not None:
                observed.append(site.name)
            continue
        clamped = site.chain and state == "seen" and not _countable(structure, site)
        hidden = has_children or site.name in targets or state == "likelihood" or site.chain
        summed = not site.rows or clamped or (state != "seen" and hidden)
        if (summed and site.rows and site.name in targets and not has_children and state is None
            and math.prod(site.cells) > 1):
            summed = False  # a vector leaf is predicted from its parents, cell by cell
        if summed and site.rows and site.states is None and not has_children and not any(
            site.name in joint for joint in joints
        ):
            summed = False  # a count, asked for its mean or its probabilities cell by cell
        if (site.name in targets and not has_children and site.rows and not site.chain
            and state != "likelihood" and any(p in latents for p in site.parents)):
            summed = False  # a leaf below a number: averaged over it
        if summed and _is_spread(structure, site, state, {*active, *targets}, joints):
            cellwise.append(site.name)
        elif summed:
            variables[site.name] = _variable(structure, site)
        elif state is not None:
            observed.append(site.name)
    observed += [name for name in structure.losses if name in active]
    beside = [name for name in targets if name not in sites
              or sites[name].discrete and name not in observed]
    # of a fit what a factor depends on is sampled; a question takes whatever integral there is
    weighing = () if merge_globals else structure.losses
    groups, variables = _grouped(
        structure, latents, [n for n in observed if n not in weighing],
        [n for n in observed if n in weighing], beside, lenient, cellwise, variables)
    inside = [v for v in variables if sites[v].rows]
    _check_switching(structure, groups, variables)
    integrated = {name for group in groups for name in group.sites}
    integrated |= {child for name in effects for child in structure.children[name]}
    parts = ruled(structure, groupings(structure, effects, flat), nodes)
    pooled, rowwise = [], []
    for name in (n for n in (*observed, *inside) if n not in integrated):
        (pooled if _is_pooled(structure, sites[name], pattern, variables) else rowwise).append(name)
    draft = Plan(structure, pattern, given, targets, variables, tuple(observed), tuple(pooled),
                 tuple(rowwise), (), (), (), (), 1, 1, 1, groups, parts)
    _check_supports(draft)
    local = [v for v in variables if sites[v].time is None and (sites[v].rows or merge_globals)]
    inner = [v for v in variables if sites[v].time is not None and not sites[v].chain]
    outer = [v for v in variables if v not in local and sites[v].time is None]
    sizes = {v: variable.states for v, variable in variables.items()}
    scopes = [draft.scope(name) for name in (*pooled, *rowwise) if name not in draft.steps] + list(
        joints
    )
    scopes += [draft.reach(group) for group in groups]
    scopes += [draft.along] if draft.along else []
    scopes += [draft.scope(site.name) for site in asked if site.time is None]
    inside = [draft.scope(name) for name in (*pooled, *rowwise) if name in draft.steps]
    inside += [draft.scope(site.name) for site in asked if site.time is not None]
    step_order = orders.best_order(inside, sizes, inner)
    if merge_globals:
        scopes += [tuple(draft.globals)] * bool(draft.globals)
    order = orders.best_order(scopes, sizes, local)
    clique, entries = orders.widest(scopes, sizes, order) if scopes else ((), 1)
    outer_scopes = [tuple(p for p in sites[v].parents if p in variables) + (v,)
                    for v in outer] + [draft.touching] * (not merge_globals)
    outer_scopes += [draft.scope(name) for name in draft.mixed]
    global_order = orders.best_order(outer_scopes, sizes, outer)
    wide, many = orders.widest(outer_scopes, sizes, global_order) if outer else ((), 1)
    step, step_entries = orders.widest(inside, sizes, step_order) if inside else ((), 1)
    joint = (*draft.along, *draft.chains)  # a chain moves between all pairs of its joint states
    moves = math.prod(sizes[v] for v in joint) * math.prod(sizes[v] for v in draft.chains)
    if moves >= step_entries:
        step, step_entries = (*joint, *draft.chains), moves
    for names, count in ((clique, entries), (wide, many), (step, step_entries)):
        if count * 8 > BUDGET:
            raise Refusal(
                f"model '{name_of}': summing out needs a table over "
                f"{quoted(names)} with {count:.3g} entries, {count * 8:.3g} "
                f"bytes, above the budget of {BUDGET:.3g}. Observe some of these sites, or remove "
                f"an edge between them"
            )
    width = max(
        entries,
        step_entries if not draft.chains else math.prod(sizes[v] for v in joint),
        max((math.prod(sites[n].cells or (1,)) * (1 + (sites[n].event or (1,))[0] // 2)
             for n in (*pooled, *rowwise)), default=1),
        max((math.prod(sizes[v] for v in draft.scope(n)) for n in (*pooled, *rowwise)), default=1),
        max((2 * math.prod(sites[n].cells) * math.prod(sizes[v] for v in draft.scope(n))
             for n in draft.torn), default=1),
        max((_breadth(draft, group) for group in groups), default=1),
        _told(draft),
    )
    return Plan(
        structure,
        pattern,
        given,
        targets,
        variables,
        tuple(observed),
        tuple(pooled),
        tuple(rowwise),
        tuple(order),
        tuple(global_order),
        tuple(step_order),
        clique if entries >= step_entries else tuple(step),
        max(entries, step_entries),
        orders.work(scopes, sizes, order),
        width,
        groups,
        parts,
    )


def _told(plan: Plan) -> int:
    """Numbers that what a row says of effects touches."""
    parts, seen = plan.groupings, sum(math.prod(plan.structure.sites[n].cells)
                                      for n in plan.grouped)
    own, nodes = sum(part.cells for part in parts), max((part.nodes for part in parts), default=0)
    if nodes:  # a row's log density at every node, or its second derivatives
        return seen * (1 + max(nodes, own if len(parts) == 1 else own**2))
    return seen * (1 + own) + own**2 * any(part.index is not None for part in parts)


def _check_switching(structure: Structure, groups: tuple[Group, ...], variables: Mapping) -> None:
    """Refuse numbers along time whose moves, or what is seen of them, depend on states that change
    along time: their filter would have to keep a normal for each path of these."""
    sites = structure.sites
    for group in groups:
        for name in (name for name in group.sites if any(sites[n].chain for n in group.names)):
            for state in sites[name].parents:
                if state in variables and sites[state].time is not None:
                    chain = next(n for n in group.names if sites[n].chain)
                    raise Refusal(
                        f"model '{structure.model.name}': site '{chain}' (GaussianChain) is to be "
                        f"integrated out along time, but '{name}' depends on '{state}', whose "
                        f"states are latent and change along time: a switching linear system, "
                        f"which has no exact filter of fixed size. Give '{state}' in the data; let "
                        f"it be one state per row, dist.Categorical in rows(), which is exact; "
                        f"write '{chain}' as a MarkovChain over a grid of values; or sample it by "
                        f"NUTS: a NumPyro function with obs= and a scan over time of its own, "
                        f"without rows()")


def _breadth(plan: Plan, group: Group) -> int:
    """Numbers that a row's message touches: in each state what is seen, by what is unseen or by the
    values at which it is evaluated."""
    cells = {name: math.prod(plan.structure.sites[name].cells) for name in group.sites}
    unseen = sum(cells[name] for name in group.names)
    states = math.prod(plan.variables[v].states for v in plan.reach(group))
    states *= math.prod(plan.structure.sites[name].finite or 1 for name in group.cellwise)
    return states * max(unseen, group.kind.breadth) * sum(cells.values())


def _check_supports(plan: Plan) -> None:
    """Refuse a parameter whose support differs from state to state of what is summed out, or from
    step to step of a scan by the values of the steps before: no one map takes all numbers onto it.
    """
    for site in (plan.structure.sites[name] for name in plan.free):
        bounds = plan.structure.bounds(site.name).values() if not site.domain.fixed else ()
        reached = {name for _, takes in bounds for name in takes}
        state = next((v for v in plan.variables if v in reached), None)
        if state is not None:
            raise Refusal(
                f"model '{plan.structure.model.name}': the support of parameter '{site.name}' "
                f"({site.kind}) depends on '{state}', which is discrete and latent. Give '{state}' "
                f"in the data, or give '{site.name}' a prior whose support is the same for all its "
                f"states"
            )
        if site.name in reached:
            raise Refusal(
                f"model '{plan.structure.model.name}': the support of '{site.name}' ({site.kind}), "
                f"which is in a scan, depends on its value in the step before. Give '{site.name}' "
                f"a prior whose support is the same in all steps: sample the increment of a step, "
                f"and add it to the carry of the scan"
            )


def _active(structure: Structure, pattern: Mapping[str, str], targets: tuple[str, ...]) -> set[str]:
    """Sites inside rows that matter: data, targets and their ancestors; barren ones sum to one and
    are dropped."""
    active, stack = set(), [*pattern, *targets, *structure.losses]
    while stack:
        name = stack.pop()
        if name not in active:
            active.add(name)
            stack += [p for p in structure.named[name].parents if structure.sites[p].rows
                      and pattern.get(p) != "seen"]
    return active


def _barren(structure: Structure, given: tuple[str, ...]) -> set[str]:
    """Counts without end, outside rows and unseen, on which nothing depends, or nothing but others
    of the kind: they sum to one."""
    sites, out = structure.sites, set()
    used = {parent for site in structure.deterministics.values() for parent in site.parents}
    for site in reversed(sites.values()):
        endless = (site.discrete and not site.rows and not site.factor and site.finite is None
                   and site.name not in given)
        if endless and site.name not in used and out.issuperset(structure.children[site.name]):
            out.add(site.name)
    return out


def _countable(structure: Structure, site: Site) -> bool:
    """Whether a chain that is seen whole is its pair counts: its tables are the same at every step,
    and no other chain with states looks at it."""
    sites = structure.sites
    parents = [sites[p] for p in site.parents if sites[p].rows]
    plain = all(p.time is None and p.discrete and p.states is not None and math.prod(p.cells) == 1
                for p in parents)
    return plain and not site.inputs and not any(c in structure.markov
                                                 for c in structure.children[site.name])


def _grouped(
    structure: Structure, latents: list[str], seen: list[str], losses: list[str],
    asked: list[str], lenient: bool, cellwise: list[str], variables: dict[str, Variable],
) -> tuple[tuple[Group, ...], dict[str, Variable]]:
    """The groups of latents, hidden cells among them, and the variables: hidden cells that cannot
    be summed out one by one are so as their joint states."""
    sites, given = structure.sites, _given_numbers(structure, latents, variables)
    cellwise = [name for name in sites if name in cellwise or name in given]
    variables = {name: own for name, own in variables.items() if name not in given}
    below = {name: [n for n in structure.children[name] if n in (*latents, *losses)
                    or sites[n].time is not None] for name in cellwise}
    joint = {name: f"'{names[0]}' depends on them" for name, names in below.items() if names}
    while True:
        cellwise = [name for name in cellwise if name not in joint]
        variables = variables | {name: _variable(structure, sites[name], why)
                                 for name, why in joint.items()}
        variables = {name: variables[name] for name in sites if name in variables}
        inside = [name for name in variables if sites[name].rows]
        groups = grouping.groups(structure, latents, seen, [*inside, *losses],
                                 [n for n in asked if n not in (*inside, *cellwise)], lenient,
                                 cellwise)
        joint = {name: why for group in groups if group.cellwise
                 if (why := hidden_cells.why_not(structure, group)) is not None
                 for name in group.cellwise}
        if not joint:
            return groups, variables


def _given_numbers(structure: Structure, latents: list[str],
                   variables: Mapping[str, Variable]) -> set[str]:
    """The variables that depend on numbers of a row, and those that depend on these: they are
    summed out within the integral over the numbers."""
    found: set[str] = set()
    while more := {name for name in variables if name not in found and structure.sites[name].rows
                   and structure.sites[name].time is None
                   and any(p in latents or p in found for p in structure.sites[name].parents)}:
        found |= more
    return found


def _is_spread(structure: Structure, site: Site, state: str | None, asked: set[str],
               joints: tuple[tuple[str, ...], ...]) -> bool:
    """Whether a hidden site has so many joint states that its cells are to be summed out one by
    one; it, or what depends on it, is seen or asked for."""
    return (site.rows and site.time is None and state != "likelihood" and site.finite is not None
            and math.prod(site.cells) > 1  # of one cell the states are the table
            and math.prod(site.cells) * math.log2(max(site.finite, 2)) > FEW
            and not any(site.name in joint for joint in joints)
            and any(name in asked for name in (site.name, *structure.children[site.name])))


def _variable(structure: Structure, site: Site, why: str = "") -> Variable:
    if site.finite is None:
        end = "" if site.event else (f", or truncate it: Categorical(logits=dist.{site.kind}(...)"
                                     f".log_prob(jnp.arange(k)))")
        raise Refusal(
            f"model '{structure.model.name}': site '{site.name}' ({site.kind}) is latent and has "
            f"to be summed out, but the model gives no finite list of its values (a total_count or "
            f"DiscreteUniform bounds that depend on an input or on another site do not give one). "
            f"Give '{site.name}' in the data{end}"
        )
    cells = math.prod(site.cells)
    # of one cell the states are the table, which has its own budget
    if cells > 1 and cells * math.log2(max(site.finite, 2)) > 16:
        raise Refusal(
            f"model '{structure.model.name}': site '{site.name}' has {cells} missing cells of "
            f"{site.finite} states that are not independent given the "
            f"rest{' (' * bool(why)}{why}{')' * bool(why)}: {site.finite}^{cells} joint states. "
            f"Give '{site.name}' in the data or use fewer cells"
        )
    grid = np.indices((site.finite,) * cells).reshape(cells, -1).T
    return Variable(site.name, grid.reshape(-1, *site.cells).astype(np.int32))


def _is_pooled(structure: Structure, site: Site, pattern: Mapping[str, str],
               variables: Mapping[str, Variable]) -> bool:
    """A site is pooled when its arguments are one table over few discrete states, the same for
    every row."""
    if (site.family is None or site.family.rowwise or site.inputs
        or pattern.get(site.name) == "carried"):
        return False
    # a count that is summed out, by its own log_prob
    if site.name in variables and site.states is None:
        return False
    entries = math.prod(site.lattice) * max(math.prod(site.event), site.states or 1)
    for parent in site.parents:
        above = structure.sites[parent]
        if above.rows and parent not in variables:
            if not above.discrete or above.states is None or math.prod(above.cells) != 1:
                return False
            entries *= above.states
        elif parent in variables:
            entries *= variables[parent].states
    return entries <= TABLE
