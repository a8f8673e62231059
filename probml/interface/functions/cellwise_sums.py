"""Discrete sites in plates, or in the steps of a Python loop, of a density without rows, summed out
cell by cell.

The function is run three times: once to see its sites; once for its program, which says which of
them look at the discrete ones, and is run over the states of these, all cells of a site in one
state at a time; and once as it stands, for what does not look at them. Each
element of a log density looks at one cell of each site (jaxpr/cells.py proves it), so the run with
all cells in a state holds what every cell has in that state, and elimination/cellwise does the
rest. Cost: states × cells.

The log densities of a run as tables over the states of its discrete sites, with the cells on
which their elements depend, for elimination/cellwise/by_cells.py.

Steps of a Python loop are alike: the same equations, of other sites and other numbers
(jaxpr/repeats). Their tables are made by one program for all, and sites that stand in the same
place of alike steps, z_0, z_1, …, are cells of one variable, so that they are summed out together:
those that depend on each other in turn by the forward algorithm.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from probml.elimination.cellwise.by_cells import NONE, Move, Part, Tangled, sum_out
from probml.errors import ModelError, Refusal, listed
from probml.interface.functions.marginal_weights import StateWeights
from probml.interface.functions.messages import run_in_part, trace_isolated
from probml.interface.functions.states import States, is_hidden, logs_of, states_of
from probml.interface.functions.steps.loop_sites import remove_numbers
from probml.interface.functions.steps.programs import latent_values, record_program
from probml.jaxpr import levels
from probml.jaxpr.cells import SEVERAL, cells
from probml.jaxpr.program import ClosedJaxpr
from probml.jaxpr.repeats.patterns import equivalent_results
from probml.typing import PyTree, SiteValues


class Table(NamedTuple):
    """Logs over states.

    Attributes:
        log: (*states, members, elements of one).
        sites: for each member the sites whose states these are, in their order.
        cells: for each member and site the cell on which each element depends.
    """

    log: jax.Array
    sites: tuple[tuple[str, ...], ...]
    cells: tuple[tuple[np.ndarray, ...], ...]


class Variables(NamedTuple):
    """Which sites are cells of one variable.

    Attributes:
        of: site → (variable, the number of its first cell there).
        sizes: variable → (cells, states).
    """

    of: Mapping[str, tuple[str, int]]
    sizes: Mapping[str, tuple[int, int]]

    @property
    def joined(self) -> dict[str, list[str]]:
        """Variable → its sites, of those that have several."""
        sites_of: dict[str, list[str]] = {}
        for site, (variable, _) in self.of.items():
            sites_of.setdefault(variable, []).append(site)
        return {variable: sites for variable, sites in sites_of.items() if len(sites) > 1}


def compute_tables(closed: ClosedJaxpr, owners: Sequence[str], hidden: Mapping[str, States],
                   values: SiteValues) -> list[Table]:
    """The log densities of the sites `owners`, over the states of the discrete sites on which they
    depend; those that are alike in one table.

    Args:
        closed: the program of these logs, each flat; its inputs are the hidden sites and then
            `values`, each by name in order.

    Raises:
        ModelError: an element depends on several cells of a site.
    """
    names = [*sorted(hidden), *sorted(values)]
    marks = cells(closed, dict(enumerate(sorted(hidden))))
    inputs = [None if name in hidden else jnp.asarray(values[name], aval.dtype)
              for name, aval in zip(names, closed.in_avals, strict=True)]
    tables = []
    for group in equivalent_results(closed, range(len(hidden))):
        looks = tuple(tuple(names[i] for i in own) for own in group.tracked)
        where = tuple(_cells_of_elements(marks[i], own, owners[i], hidden, closed.out_avals[i].size)
                      for i, own in zip(group.outputs, looks, strict=True))
        logs = _mapped(functools.partial(group, inputs), len(looks[0]))
        tables.append(Table(logs(*(hidden[name].everywhere() for name in looks[0])), looks, where))
    return tables


def _mapped(logs: object, count: int) -> PyTree:
    """Over the states of each operand, the first one's axis in front."""
    for i in reversed(range(count)):
        logs = jax.vmap(logs, in_axes=tuple(0 if j == i else None for j in range(count)))
    return logs


def _cells_of_elements(marks: Mapping[str, np.ndarray], sites: Sequence[str], owner: str,
                       hidden: Mapping[str, States], size: int) -> tuple[np.ndarray, ...]:
    """For some sites the cell on which each element of a log density depends."""
    mixed = next((name for name, where in marks.items() if (where == SEVERAL).any()), None)
    if mixed is not None:
        raise ModelError(
            f"site '{mixed}' is discrete and latent with {hidden[mixed].cells} elements. These "
            f"must be summed out one by one, but an element of site '{owner}' depends on several "
            f"of them. Give '{mixed}' in the data, or let each element of '{owner}' depend on "
            f"one element of '{mixed}'"
        )
    return tuple(marks.get(name, np.full(size, NONE)) for name in sites)


def separate_variables(hidden: Mapping[str, States]) -> Variables:
    """Each hidden site as a variable of its own."""
    return Variables({name: (name, 0) for name in hidden},
                     {name: (states.cells, states.count) for name, states in hidden.items()})


def join_alike_variables(tables: Sequence[Table], hidden: Mapping[str, States]) -> Variables:
    """Sites that stand in the same place of alike log densities, have as many states, and names
    that are the same but for numbers, as cells of one variable."""
    leader = {name: name for name in hidden}

    def of(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for table in tables:
        for members in zip(*table.sites, strict=True):
            kinds: dict[tuple, str] = {}
            for name in members:
                first = kinds.setdefault((remove_numbers(name), *hidden[name][1:]), name)
                root, merged = sorted((of(first), of(name)))
                leader[merged] = root
    sizes: dict[str, tuple[int, int]] = {}
    places = {}
    for name, states in hidden.items():
        offset = sizes.get(of(name), (0, states.count))[0]
        places[name] = of(name), offset
        sizes[of(name)] = offset + states.cells, states.count
    return Variables(places, sizes)


def as_factors(tables: Sequence[Table], variables: Variables) -> tuple[list[Part],
               list[Move]] | None:
    """Tables as factors over variables; None where one depends on three cells of a variable, on
    two and another variable, or some of its elements on two and others on one."""
    parts, moves = [], []
    for table in tables:
        members: dict[tuple[str, ...], list[int]] = {}
        for m, names in enumerate(table.sites):
            members.setdefault(tuple(variables.of[name][0] for name in names), []).append(m)
        for names, numbers in members.items():
            repeated = len(set(names)) < len(names)
            if repeated and len(names) > 2:
                return None
            complete = len(numbers) == len(table.sites)
            log = table.log if complete else jnp.take(table.log, np.array(numbers), -2)
            log = log.reshape(*log.shape[:-2], math.prod(log.shape[-2:]))
            where = [np.concatenate([_numbered(table.cells[m][place],
                                               variables.of[table.sites[m][place]][1])
                                     for m in numbers]) for place in range(len(names))]
            if not repeated:
                parts.append(Part(log, dict(zip(names, where, strict=True))))
                continue
            if (np.stack(where) == NONE).any():
                return None
            moves.append(Move(names[0], log, *where))
    return parts, moves


def _numbered(where: np.ndarray, first: int) -> np.ndarray:
    return np.where(where == NONE, NONE, where + first)


MOST_TABLE_ENTRIES = 2**24  # entries of a table


class _TracedFunction(NamedTuple):
    """What the first runs tell.

    Attributes:
        free: the continuous sites that are unseen, name → shape.
        parents: name → the hidden sites at which its log density, or its value, looks.
        computed: the names of the deterministics.
        owners: the names whose logs, and values, are the results of `program`, whose inputs are the
            hidden sites and then the free ones, each in order.
    """

    discrete: dict[str, States]
    free: dict[str, tuple[int, ...]]
    parents: dict[str, tuple[str, ...]]
    computed: tuple[str, ...]
    owners: tuple[str, ...]
    program: ClosedJaxpr


def sum_out_cells(call: Callable[[], object], names: Iterable[str],
                  given: SiteValues, weights: StateWeights | None = None) -> PyTree:
    """Run a function, its discrete sites `names` summed out: those outside hear of the other
    parameters, of what does not look at the discrete ones, and of one factor.

    Args:
        given: values of sites that are data, name → value.
        weights: weighs the states of the discrete ones.

    Raises:
        ModelError: an element looks at two cells of a site; no order takes the sites out one by
            one; a site has no finite list of values.
    """
    traced = _trace_function(call, set(names), given, weights)
    hidden = {name for name, looks in traced.parents.items() if looks and name not in traced.free}
    mixed = [name for name in traced.free if traced.parents[name]]
    fixed = {name: states.everywhere()[0] for name, states in traced.discrete.items()}
    result, values = run_in_part(call, hidden, traced.free, fixed, given, mixed)
    numpyro.factor(next(iter(traced.discrete)), _evidence(traced, values, weights))
    return result


def _trace_function(call: Callable, names: set[str], given: Mapping,
                    weights: StateWeights | None) -> _TracedFunction:
    trace = trace_isolated(call, given)
    hidden = {name: states_of(name, trace[name]["fn"]) for name in trace if name in names}
    for name, site in trace.items():
        if is_hidden(site) and name not in hidden:
            raise ModelError(f"site '{name}' is discrete and latent (not in the data), and its "
                             f"states cannot be summed out in this model. Give '{name}' in the "
                             "data")
    free = {name: value for name, value in latent_values(trace).items() if name not in hidden}
    computed = tuple(name for name, site in trace.items() if site["type"] == "deterministic")
    lowest = {name: jnp.full(s.shape, s.low) for name, s in hidden.items()}
    program, owners = record_program(
        lambda states, values: (trace_isolated(call, given, {**values, **states}, weights), ()),
        lambda name, site: [("log", log.ravel()) for log in logs_of({name: site}).values()],
        lowest, free)
    owned = [name for name, _ in owners]
    order = sorted(lowest)
    looks = {name: tuple(order[i] for i in sorted(inputs) if i < len(order)) for name, inputs
             in zip(owned, levels.dependencies(program), strict=True)}
    return _TracedFunction(hidden, {name: np.shape(value) for name, value in free.items()}, looks,
                           computed, tuple(owned), program)


def _evidence(traced: _TracedFunction, values: Mapping, weights: StateWeights | None) -> jax.Array:
    """log Σ over all states of the hidden sites of the sites that look at them."""
    positions = [i for i, name in enumerate(traced.owners) if traced.parents[name]
                 and name not in traced.computed]
    program, numbers = levels.restrict(traced.program, positions)
    inputs = [*sorted(traced.discrete), *sorted(values)]
    names = [inputs[i] for i in numbers]
    tables = compute_tables(program, [traced.owners[i] for i in positions],
                            {name: traced.discrete[name] for name in names
                             if name in traced.discrete},
                            {name: values[name] for name in names if name in values})
    best = set() if weights is None else set(weights.best)
    for name in (traced.owners[i] for i in positions):
        others = [site for site in traced.parents[name] if site not in best]
        if name in best and name not in traced.discrete and others:
            raise Refusal(f"decode(sites=[{listed(sorted(best))}]): '{name}' is in a scan that "
                          f"depends on '{others[0]}', so the most probable '{name}' cannot be "
                          "computed alone. Name both, "
                          f"sites=[{listed(sorted({*best, others[0]}))}]")
    groupings = [join_alike_variables(tables, traced.discrete), separate_variables(traced.discrete)]
    failure = Tangled(tuple(traced.discrete))
    for variables in groupings if groupings[0].joined else groupings[1:]:
        factors = as_factors(tables, variables)
        if factors is None or any(0 < len(best & set(sites)) < len(sites)
                                  for sites in variables.joined.values()):
            continue
        parts, moves = factors
        parts += [] if weights is None else _weight_factors(weights, traced.discrete, variables)
        maximised = {variables.of[name][0] for name in best if name in variables.of}
        try:
            total = sum_out(parts, variables.sizes, MOST_TABLE_ENTRIES, moves, maximised)
        except Tangled as tangled:
            failure = tangled
            continue
        if weights is not None:
            chained = {move.name for move in moves}
            weights.together += [(tuple(sites), variable in chained) for variable, sites
                                 in variables.joined.items()]
        return total
    raise ModelError(
        f"the discrete sites {listed(failure.names)} cannot be summed out. Possible causes: an "
        "element of one depends on several elements of another; their joint table is too large. "
        "Give one of these sites in the data"
    )


def _weight_factors(weights: StateWeights, hidden: Mapping[str, States],
                    variables: Variables) -> list[Part]:
    """What the states of the discrete sites weigh, a part a variable."""
    by_variable: dict[str, list[tuple[int, jax.Array]]] = {}
    for name, states in hidden.items():
        logs = weights.of(states).reshape(states.cells, states.count)
        if name in weights.weights:
            variable, first = variables.of[name]
            by_variable.setdefault(variable, []).append((first, logs))
    return [Part(jnp.concatenate([logs for _, logs in parts]).T, {variable: np.concatenate(
        [first + np.arange(len(logs)) for first, logs in parts])})
        for variable, parts in by_variable.items()]
