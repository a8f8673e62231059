"""Discrete sites in plates of a density without rows, summed out cell by cell.

The function is run three times: once to see its sites; once for its program, which says which of
them look at the discrete ones, and is run over the states of these, all cells of a site in one
state at a time; and once as it stands, for what does not look at them. Each
element of a log density looks at one cell of each site (jaxpr/cells.py proves it), so the run with
all cells in a state holds what every cell has in that state, and elimination/cellwise does the
rest. Cost: states × cells.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from probml.elimination.cellwise.by_cells import NONE, Part, Tangled, sum_out
from probml.errors import ModelError, Refusal, quoted
from probml.interface.functions.marginal_weights import StateWeights
from probml.interface.functions.messages import run_in_part, trace_isolated
from probml.interface.functions.states import States, is_hidden, logs_of, states_of
from probml.interface.functions.steps.programs import (
    evaluate_results,
    latent_values,
    record_program,
)
from probml.jaxpr import levels
from probml.jaxpr.cells import SEVERAL, cells
from probml.jaxpr.program import ClosedJaxpr
from probml.typing import PyTree, SiteValues


def compute_parts(closed: ClosedJaxpr, owners: Sequence[str], hidden: Mapping[str, States],
                  values: SiteValues) -> list[Part]:
    """The log densities of the sites `owners`, over the states of the discrete sites on which they
    depend.

    Args:
        closed: the program of these logs, each flat; its inputs are the hidden sites and then
            `values`, each by name in order.

    Raises:
        ModelError: an element depends on several cells of a site.
    """
    names, out = [*sorted(hidden), *sorted(values)], []
    found = cells(closed, dict(enumerate(sorted(hidden))))
    for i, used in enumerate(levels.dependencies(closed)):
        looks = [names[j] for j in sorted(used) if names[j] in hidden]
        where = _cells_of_elements(found[i], looks, owners[i], hidden, closed.out_avals[i].size)
        logs = _over_states(closed, i, names, values, looks)
        out.append(Part(logs(*(hidden[name].everywhere() for name in looks)), where))
    return out


def _over_states(closed: ClosedJaxpr, output: int, names: Sequence[str], values: SiteValues,
                 looks: Sequence[str]) -> Callable[..., jax.Array]:
    """The states of the sites `looks` → a result of a program in all of them, the first site's axis
    in front."""
    def logs(*states: jax.Array) -> jax.Array:
        at = {**values, **dict(zip(looks, states, strict=True))}
        return evaluate_results(closed, [output], lambda i: at[names[i]])[0]

    mapped: Callable[..., jax.Array] = logs
    for i in reversed(range(len(looks))):
        mapped = jax.vmap(mapped, in_axes=tuple(0 if j == i else None for j in range(len(looks))))
    return mapped


def _cells_of_elements(found: Mapping[str, np.ndarray], looks: Sequence[str], owner: str,
                       hidden: Mapping[str, States], size: int) -> dict[str, np.ndarray]:
    """For some sites the cell on which each element of a log density depends."""
    several = next((name for name, where in found.items() if (where == SEVERAL).any()), None)
    if several is not None:
        raise ModelError(
            f"site '{several}' is discrete and latent with {hidden[several].cells} elements, and "
            f"an element of site '{owner}' depends on several of them, so they cannot be summed "
            f"out one by one. Give '{several}' in the data, or let each element of '{owner}' "
            f"depend on one element of '{several}'"
        )
    return {name: found.get(name, np.full(size, NONE)) for name in looks}


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
            raise ModelError(f"site '{name}' is discrete and latent and cannot be summed out in "
                             f"this model. Give '{name}' in the data")
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
    parts = compute_parts(program, [seen.owners[i] for i in at],
                          {name: seen.hidden[name] for name in taken if name in seen.hidden},
                          {name: values[name] for name in taken if name in values})
    best = set() if weights is None else set(weights.best)
    for name in (seen.owners[i] for i in at):
        others = [site for site in seen.looks[name] if site not in best]
        if name in best and name not in seen.hidden and others:
            raise Refusal(f"decode(sites={sorted(best)}): '{name}' is in a scan that depends on "
                          f"'{others[0]}', so the most probable '{name}' cannot be computed with "
                          f"'{others[0]}' summed out. Name both in sites=")
    if weights is not None:
        parts += _weight_factors(weights, seen.hidden)
    sizes = {name: (states.cells, states.count) for name, states in seen.hidden.items()}
    try:
        return sum_out(parts, sizes, MOST_TABLE_ENTRIES, best)
    except Tangled as tangled:
        raise ModelError(
            f"the discrete sites {quoted(tangled.names)} cannot be summed out: an element of one "
            f"depends on several elements of another, or their joint tables are too large. Give "
            f"one of them in the data"
        ) from None


def _weight_factors(weights: StateWeights, hidden: Mapping[str, States]) -> list[Part]:
    """What the states of the discrete sites weigh, a part a site."""
    found = {name: weights.of(states).reshape(states.cells, states.count)
             for name, states in hidden.items()}
    return [Part(own.T, {name: np.arange(len(own))}) for name, own in found.items()
            if name in weights.weights]
