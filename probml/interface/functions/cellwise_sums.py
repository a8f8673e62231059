"""Discrete sites in plates, or in the steps of a Python loop, of a density without rows, summed out
cell by cell.

The function is run three times: once to see its sites; once for its program, which says which of
them look at the discrete ones, and is run over the states of these, all cells of a site in one
state at a time (cell_tables.py); and once as it stands, for what does not look at them. Each
element of a log density looks at one cell of each site (jaxpr/cells.py proves it), so the run with
all cells in a state holds what every cell has in that state, and elimination/cellwise does the
rest. Cost: states × cells.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from probml.elimination.cellwise.by_cells import Part, Tangled, sum_out
from probml.errors import ModelError, Refusal, quoted
from probml.interface.functions.cell_tables import (
    Variables,
    as_factors,
    compute_tables,
    join_alike_variables,
    separate_variables,
)
from probml.interface.functions.marginal_weights import StateWeights
from probml.interface.functions.messages import run_in_part, trace_isolated
from probml.interface.functions.states import States, is_hidden, logs_of, states_of
from probml.interface.functions.steps.record import latent_values, record_program
from probml.jaxpr import levels

MOST_TABLE_ENTRIES = 2**24  # entries of a table


class _TracedFunction(NamedTuple):
    """What the first runs tell.

    Attributes:
        free: the continuous sites that are unseen, name → shape.
        looks: name → the hidden sites at which its log density, or its value, looks.
        computed: the names of the deterministics.
        owners: the names whose logs, and values, are the results of `program`, whose inputs are the
            hidden sites and then the free ones, each in order.
    """

    hidden: dict[str, States]
    free: dict[str, tuple[int, ...]]
    looks: dict[str, tuple[str, ...]]
    computed: tuple[str, ...]
    owners: tuple[str, ...]
    program: Any


def sum_out_cells(call: Callable[[], Any], names: Iterable[str],
                  given: Mapping[str, Any], weights: StateWeights | None = None) -> Any:
    """Run a function, its discrete sites `names` summed out: those outside hear of the other
    parameters, of what does not look at the discrete ones, and of one factor.

    Args:
        given: values of sites that are data, name → value.
        weights: weighs the states of the discrete ones.

    Raises:
        ModelError: an element looks at two cells of a site; no order takes the sites out one by
            one; a site has no finite list of values.
    """
    seen = _trace_function(call, set(names), given, weights)
    gone = {name for name, looks in seen.looks.items() if looks and name not in seen.free}
    mixed = [name for name in seen.free if seen.looks[name]]
    still = {name: states.everywhere()[0] for name, states in seen.hidden.items()}
    out, values = run_in_part(call, gone, seen.free, still, given, mixed)
    numpyro.factor(next(iter(seen.hidden)), _evidence(seen, values, weights))
    return out


def _trace_function(call: Callable, names: set[str], given: Mapping,
                    weights: StateWeights | None) -> _TracedFunction:
    trace = trace_isolated(call, given)
    hidden = {name: states_of(name, trace[name]["fn"]) for name in trace if name in names}
    for name, site in trace.items():
        if is_hidden(site) and name not in hidden:
            raise ModelError(f"site '{name}' is discrete and latent: give it in the data")
    free = {name: value for name, value in latent_values(trace).items() if name not in hidden}
    computed = tuple(name for name, site in trace.items() if site["type"] == "deterministic")
    blank = {name: jnp.full(s.shape, s.low) for name, s in hidden.items()}
    program, owners = record_program(
        lambda states, values: (trace_isolated(call, given, {**values, **states}, weights), ()),
        lambda name, site: [("log", log.ravel()) for log in logs_of({name: site}).values()],
        blank, free)
    owned = [name for name, _ in owners]
    order = sorted(blank)
    looks = {name: tuple(order[i] for i in sorted(used) if i < len(order)) for name, used
             in zip(owned, levels.dependencies(program), strict=True)}
    return _TracedFunction(hidden, {name: np.shape(value) for name, value in free.items()}, looks,
                           computed, tuple(owned), program)


def _evidence(seen: _TracedFunction, values: Mapping, weights: StateWeights | None) -> jax.Array:
    """log Σ over all states of the hidden sites of the sites that look at them."""
    at = [i for i, name in enumerate(seen.owners) if seen.looks[name]
          and name not in seen.computed]
    program, takes = levels.restrict(seen.program, at)
    inputs = [*sorted(seen.hidden), *sorted(values)]
    taken = [inputs[i] for i in takes]
    found = compute_tables(program, [seen.owners[i] for i in at],
                           {name: seen.hidden[name] for name in taken if name in seen.hidden},
                           {name: values[name] for name in taken if name in values})
    best = set() if weights is None else set(weights.best)
    for name in (seen.owners[i] for i in at):
        others = [site for site in seen.looks[name] if site not in best]
        if name in best and name not in seen.hidden and others:
            raise Refusal(f"decode(sites={sorted(best)}): '{name}' is in a scan that depends on "
                          f"'{others[0]}', which would be summed out after it: name both")
    ways = [join_alike_variables(found, seen.hidden), separate_variables(seen.hidden)]
    failure = Tangled(tuple(seen.hidden))
    for variables in ways if ways[0].joined else ways[1:]:
        out = as_factors(found, variables)
        if out is None or any(0 < len(best & set(sites)) < len(sites)
                              for sites in variables.joined.values()):
            continue
        parts, moves = out
        parts += [] if weights is None else _weight_factors(weights, seen.hidden, variables)
        most = {variables.of[name][0] for name in best if name in variables.of}
        try:
            total = sum_out(parts, variables.sizes, MOST_TABLE_ENTRIES, moves, most)
        except Tangled as tangled:
            failure = tangled
            continue
        if weights is not None:
            turning = {move.name for move in moves}
            weights.together += [(tuple(sites), variable in turning) for variable, sites
                                 in variables.joined.items()]
        return total
    raise ModelError(
        f"the discrete sites {quoted(failure.names)} cannot be summed out cell by "
        f"cell: each has a cell that depends on several cells of another, or their joint tables "
        f"are too large. Give one of them in the data"
    )


def _weight_factors(weights: StateWeights, hidden: Mapping[str, States],
                    variables: Variables) -> list[Part]:
    """What the states of the discrete sites weigh, a part a variable."""
    found: dict[str, list[tuple[int, jax.Array]]] = {}
    for name, states in hidden.items():
        own = weights.of(states).reshape(states.cells, states.count)
        if name in weights.weights:
            variable, first = variables.of[name]
            found.setdefault(variable, []).append((first, own))
    return [Part(jnp.concatenate([own for _, own in parts]).T, {variable: np.concatenate(
        [first + np.arange(len(own)) for first, own in parts])})
        for variable, parts in found.items()]
