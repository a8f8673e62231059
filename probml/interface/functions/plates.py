"""Discrete sites in plates of a density without rows, summed out cell by cell.

The function is run three times: once to see which sites look at the discrete ones; once as it
stands, for what does not; and, at its values, over the states of the discrete ones, all cells of a
site in one state at a time. Each element of a log density looks at one cell of each (jaxpr/cells.py
proves it), so the run with all cells in a state holds what every cell has in that state, and
elimination/by_cells.py does the rest. Cost: states × cells.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.primitives import Messenger

from probml.elimination.by_cells import Part, Tangled, sum_out
from probml.errors import ModelError
from probml.interface.functions.leaning import Leaning
from probml.interface.functions.loops import summed_out
from probml.interface.functions.states import States, is_hidden, logs_of, states_of
from probml.interface.functions.survey import prepared
from probml.jaxpr import levels
from probml.jaxpr.cells import SEVERAL, cells
from probml.jaxpr.walk import evaluate

MOST = 2**24  # entries of a table


class _Alone(Messenger):
    """A run that nobody outside hears of: sites at `values`, others at a value of their shape."""

    def __init__(self, values: Mapping[str, Any], given: Mapping[str, Any]):
        super().__init__()
        self.values, self.given = values, given

    def process_message(self, msg: dict) -> None:
        prepared(msg)
        if msg["type"] == "control_flow":
            msg["kwargs"]["substitute_stack"] += [
                ("condition", self.given),
                ("substitute", lambda s: None if s["is_observed"] else self.values.get(s["name"])),
            ]
            if msg["kwargs"]["rng_key"] is None:
                msg["kwargs"]["rng_key"] = jax.random.key(0)
            summed_out(msg)
        if msg["type"] != "sample" or msg["is_observed"]:
            return
        fn, name = msg["fn"], msg["name"]
        if name in self.given:
            msg |= {"value": self.given[name], "is_observed": True}
        elif name in self.values:
            msg["value"] = self.values[name]
        elif msg["value"] is None:
            dtype = int if fn.support.is_discrete else float
            msg["value"] = jnp.zeros(fn.shape(), jnp.result_type(dtype))


class _Keep(Messenger):
    """Keeps the values of continuous sites, as those outside have given them; a site whose
    distribution looks at what is summed out is handed on as a number of its support alone."""

    def __init__(self, free: Iterable[str], mixed: Iterable[str]):
        super().__init__()
        self.free, self.mixed, self.values = set(free), set(mixed), {}

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and msg["name"] in self.mixed:
            fn = msg["fn"]
            msg["fn"] = dist.ImproperUniform(fn.support, fn.batch_shape, fn.event_shape)

    def postprocess_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and msg["name"] in self.free:
            self.values[msg["name"]] = msg["value"]


class _Seen(NamedTuple):
    """What a first run tells.

    Attributes:
        free: the continuous sites that are unseen, name → shape.
        looks: name → the hidden sites at which its log density, or its value, looks.
        computed: the names of the deterministics.
    """

    hidden: dict[str, States]
    free: dict[str, tuple[int, ...]]
    looks: dict[str, tuple[str, ...]]
    computed: tuple[str, ...]


def summed_in_plates(call: Callable[[], Any], names: Iterable[str],
                     given: Mapping[str, Any], leaning: Leaning | None = None) -> Any:
    """Run a function, its discrete sites `names` summed out: those outside hear of the other
    parameters, of what does not look at the discrete ones, and of one factor.

    Args:
        given: values of sites that are data, name → value.
        leaning: weighs the states of the discrete ones.

    Raises:
        ModelError: an element looks at two cells of a site; no order takes the sites out one by
            one; a site has no finite list of values.
    """
    seen = _first(call, set(names), given)
    gone = {name for name, looks in seen.looks.items() if looks and name not in seen.free}
    mixed = [name for name in seen.free if seen.looks[name]]
    still = {name: states.everywhere()[0] for name, states in seen.hidden.items()}
    keep = _Keep(seen.free, mixed)
    with (handlers.block(hide_fn=lambda msg: msg.get("name") in gone), keep,
          handlers.substitute(data=still)):
        out = call()
    numpyro.factor(next(iter(seen.hidden)),
                   _evidence(call, seen, given, keep.values, leaning))
    return out


def _run(call: Callable, given: Mapping, values: Mapping) -> dict:
    with handlers.block(), handlers.trace() as trace, _Alone(values, given):
        call()
    return trace


def _first(call: Callable, names: set[str], given: Mapping) -> _Seen:
    trace = _run(call, given, {})
    hidden = {name: states_of(name, trace[name]["fn"]) for name in trace if name in names}
    for name, site in trace.items():
        if is_hidden(site) and name not in hidden:
            raise ModelError(f"site '{name}' is discrete and unseen: give it in the data")
    free = {name: np.shape(site["value"]) for name, site in trace.items()
            if site["type"] == "sample" and not site["is_observed"] and name not in hidden
            and not isinstance(site["fn"], dist.Unit)}
    computed = tuple(name for name, site in trace.items() if site["type"] == "deterministic")
    owners: list[str] = []

    def every(values):
        found = _run(call, given, values)
        owners[:] = [*logs_of(found), *computed]
        return [*logs_of(found).values(), *(jnp.asarray(found[name]["value"]) for name in computed)]

    blank = {name: jnp.full(s.shape, s.low) for name, s in hidden.items()}
    closed = jax.make_jaxpr(every)(blank)
    order = sorted(blank)
    looks = {name: tuple(order[i] for i in sorted(used)) for name, used
             in zip(owners, levels.dependencies(closed), strict=True)}
    return _Seen(hidden, free, looks, computed)


def _evidence(call: Callable, seen: _Seen, given: Mapping, values: Mapping,
              leaning: Leaning | None) -> jax.Array:
    """log Σ over all states of the hidden sites of the sites that look at them."""
    owners = [name for name, looks in seen.looks.items() if looks and name not in seen.computed]

    def every(states, values):
        logs = logs_of(_run(call, given, {**values, **states}))
        return [logs[name].ravel() for name in owners]

    blank = {name: jnp.full(s.shape, s.low) for name, s in seen.hidden.items()}
    closed = jax.make_jaxpr(every)(blank, dict(values))
    inputs = [*sorted(blank), *sorted(values)]
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, name in enumerate(owners):
        groups.setdefault(seen.looks[name], []).append(i)
    parts = [part for looks, at in groups.items()
             for part in _parts(closed, inputs, [owners[i] for i in at], at, looks, seen, values)]
    if leaning is not None:
        for name, s in seen.hidden.items():
            weights = leaning.of(name, s.shape, s.low, s.count).reshape(s.cells, s.count)
            parts.append(Part(weights.T, {name: np.arange(s.cells)}))
    sizes = {name: (s.cells, s.count) for name, s in seen.hidden.items()}
    try:
        return sum_out(parts, sizes, MOST)
    except Tangled as tangled:
        raise ModelError(
            f"the discrete sites {', '.join(map(repr, tangled.names))} cannot be summed out cell "
            f"by cell: each has a cell that meets several cells of another, or their common tables "
            f"are too large. Give one of them in the data"
        ) from None


def _parts(closed: Any, inputs: list[str], owners: list[str], at: list[int],
           looks: tuple[str, ...], seen: _Seen, values: Mapping) -> list[Part]:
    """The log densities of sites that look at the same hidden ones, over the states of these."""
    program, takes = levels.restrict(closed, at)
    taken = [inputs[i] for i in takes]
    found = cells(program, {i: name for i, name in enumerate(taken) if name in looks})
    for owner, own in zip(owners, found, strict=True):
        several = next((name for name, where in own.items() if (where == SEVERAL).any()), None)
        if several is not None:
            raise ModelError(
                f"site '{owner}' looks at several cells of '{several}' at once, which is discrete, "
                f"unseen and has {seen.hidden[several].cells} cells, so it cannot be summed out "
                f"cell by cell. Give '{several}' in the data, or let each member of a plate look "
                f"at its own"
            )

    def logs(*states):
        env = {**values, **dict(zip(looks, states, strict=True))}
        return evaluate(program, *(jnp.asarray(env[name], aval.dtype)
                                   for name, aval in zip(taken, program.in_avals, strict=True)))

    for i in reversed(range(len(looks))):
        logs = jax.vmap(logs, in_axes=tuple(0 if j == i else None for j in range(len(looks))))
    over = logs(*(seen.hidden[name].everywhere() for name in looks))
    return [Part(log, {name: own.get(name, np.full(log.shape[-1], -1)) for name in looks})
            for log, own in zip(over, found, strict=True)]
