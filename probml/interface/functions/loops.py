"""numpyro's scan with discrete states that nobody sees → its evidence, by the forward algorithm.

Let c be what one step hands to the next, z the discrete sites of a step, in cells that do not look
at each other (sequences, animals). Where c depends on the step's own z and not on the one before (a
chain of first order), then for every cell

    α_1(z) = p(z, y_1 | c_0),  α_t(z') = Σ_z α_{t−1}(z) p(z', y_t | c_{t−1}(z)),  p(y) = Σ_z α_T(z)

and where it depends on the z of the last h steps, in a chain of order h, their joint states stand
in the place of z. What is continuous and unseen in a step is drawn beside it, by a scan of its own
that forgets z.

Cost: steps × K^(h+1) evaluations of the step's body, K joint states of a cell (Rabiner 1989).
"""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.contrib.control_flow.scan import PytreeTrace

from probml.elimination.semiring import SUM, Semiring
from probml.errors import ModelError
from probml.interface.functions.leaning import Leaning
from probml.interface.functions.states import States, is_hidden, logs_of, states_of
from probml.jaxpr import levels
from probml.jaxpr.cells import NONE, SEVERAL, cells
from probml.jaxpr.walk import jaxpr_of
from probml.structure.leaves import leaves_of_distribution

MOST = 2**12  # joint states of a cell


class Summed:
    """What a scan leaves behind that was summed out: nothing may look at it."""

    def __init__(self, name: str, how: str = "discrete, in a scan, and summed out there"):
        self.name, self.how = name, how

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") and attribute != "__jax_array__":
            raise AttributeError(attribute)
        self._refuse()

    def _refuse(self, *_: Any) -> NoReturn:
        raise ModelError(
            f"site '{self.name}' is {self.how}, so the scan cannot return its value: observe every "
            f"site that depends on it inside the body of the scan"
        )


for _name in ("getitem iter len float bool array neg abs add radd sub rsub mul rmul truediv "
              "rtruediv pow rpow matmul rmatmul lt le gt ge").split():
    setattr(Summed, f"__{_name}__", Summed._refuse)


class Loop(NamedTuple):
    """A scan of which sites are summed, or integrated, out.

    Attributes:
        hidden: its discrete sites; drawn: the continuous ones that are unseen; shapes: of these.
        given: sites that a handler around the scan conditions on, name → values of all steps.
    """

    body: Callable
    hidden: Mapping[str, States]
    drawn: tuple[str, ...]
    given: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def name(self) -> str:
        return next(iter(self.hidden))

    def trace(self, carry: Any, x: Any, step: Any, values: Mapping) -> tuple[dict, Any, Any]:
        """The messages of one step, what it hands on, and what it returns; what is in `values` has
        them."""
        seen = {name: value[step] for name, value in self.given.items()}
        with (handlers.block(), handlers.trace() as trace, handlers.condition(data=seen),
              handlers.substitute(data=dict(values))):
            after, said = self.body(carry, x)
        return trace, *jax.tree.map(jnp.asarray, (after, said))

    def run(self, carry: Any, x: Any, step: Any, states: Mapping,
            values: Mapping) -> tuple[list[jax.Array], Any]:
        """The logs of all discrete and observed sites at these states, each flat, and what the step
        hands on."""
        trace, after, _ = self.trace(carry, x, step, {**states, **values})
        return [log.ravel() for log in logs_of(trace, self.drawn).values()], after


def names_inside(msg: dict) -> set[str]:
    """The sites of a control-flow message's body; of cond those of its first."""
    if len(msg["args"]) == 5:
        body, init, xs = msg["args"][:3]
        return set(_plain(body, init, jax.tree.map(lambda leaf: leaf[0], xs)))
    _, body, _, operand = msg["args"]
    return set(_plain(body, operand))


def summed_out(msg: dict, leaning: Leaning | None = None) -> None:
    """A control-flow message whose body has discrete sites that are unseen → one factor, named
    after the first of them; others stay as they are.

    Args:
        leaning: weighs the states of these, step by step.
    """
    if len(msg["args"]) != 5 or msg["value"] is not None:  # cond, or integrated out already
        return
    body, init, xs, length, reverse = msg["args"]
    first = jax.tree.map(lambda leaf: leaf[0], xs)
    loop = loop_of(body, init, first, conditioned(msg))
    if not loop.hidden:
        return
    if length is None:
        length = len(jax.tree.leaves(xs)[0])
    init, xs = jax.tree.map(jnp.asarray, (init, xs))
    values = _drawn(loop, msg) if loop.drawn else {}
    lean = {} if leaning is None else {
        name: leaning.of(name, (length, *states.shape), states.low, states.count)
        for name, states in loop.hidden.items()
    }
    if reverse:
        xs, values, lean = jax.tree.map(lambda leaf: leaf[::-1], (xs, values, lean))
    semiring = SUM if leaning is None else leaning.semiring(loop.hidden)
    numpyro.factor(loop.name, _evidence(loop, init, xs, values, length, lean, semiring))
    left = Summed(loop.name)
    shapes = jax.eval_shape(lambda: loop.trace(init, first, 0, _blank(loop, init, first))[1])
    carry = jax.tree.map(lambda _: left, shapes)
    msg["value"] = ((length, None, carry), (PytreeTrace({}), left))


def conditioned(msg: dict) -> dict[str, Any]:
    """What handlers around a scan say is seen of its sites, name → values of all steps."""
    return dict(item for kind, values in msg["kwargs"]["substitute_stack"]
                if kind == "condition" and isinstance(values, Mapping) for item in values.items())


def _plain(body: Callable, *args: Any) -> dict:
    """The messages of a body run by itself, abstractly."""
    found = {}

    def run() -> int:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0):
            body(*args)
        found.update(trace)
        return 0

    jax.eval_shape(run)
    return found


def loop_of(body: Callable, init: Any, first: Any, given: Mapping) -> Loop:
    """What a scan's body holds; nothing is compiled.

    Args:
        first: inputs of the first step; given: see Loop.
    """
    hidden, drawn = {}, dict[str, tuple[int, ...]]()

    def run() -> int:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0):
            body(init, first)
        for name, site in trace.items():
            if name in given or site["type"] != "sample" or site["is_observed"]:
                continue
            if is_hidden(site):
                hidden[name] = states_of(name, site["fn"], " in a scan")
            elif type(site["fn"]).__name__ != "Unit":
                drawn[name] = tuple(site["fn"].shape())
        return 0

    jax.eval_shape(run)
    joint = math.prod(states.count for states in hidden.values())
    if joint > MOST:
        raise ModelError(f"site '{next(iter(hidden))}' in a scan: {joint} joint states per step "
                         f"are too many to be summed out")
    return Loop(body, hidden, tuple(drawn), given, drawn)


def _blank(loop: Loop, init: Any, first: Any) -> dict[str, jax.Array]:
    """Every unseen site of a step at some value of its shape."""
    found = {name: jnp.full(states.shape, states.low) for name, states in loop.hidden.items()}
    return found | {name: jnp.zeros(site["fn"].shape())
                    for name, site in _plain(loop.body, init, first).items() if name in loop.drawn}


def _drawn(loop: Loop, msg: dict) -> dict[str, jax.Array]:
    """The continuous sites of all steps, by a scan in which the discrete ones are held still: they
    do not depend on these (_checked)."""
    _, init, xs, length, reverse = msg["args"]
    still = {name: jnp.full(states.shape, states.low) for name, states in loop.hidden.items()}

    def step(carry, x):
        with (handlers.block(hide_fn=lambda site: site["name"] not in loop.drawn
                             and site["type"] != "plate"),
              handlers.trace() as trace, handlers.substitute(data=still)):
            after, _ = loop.body(carry, x)
        return after, {name: trace[name]["value"] for name in loop.drawn}

    _, values = scan(step, init, xs, length=length, reverse=reverse)
    return values


def _evidence(loop: Loop, init: Any, xs: Any, values: Mapping, length: int,
              lean: Mapping[str, jax.Array], semiring: Semiring) -> jax.Array:
    """log p of all that is seen in the scan, discrete sites summed out, or the best of them taken.

    Args:
        lean: site → log weights of its states, (steps, *cells, states).
    """
    grid = np.array(list(itertools.product(*(range(states.count)
                                             for states in loop.hidden.values()))))
    every = {name: states.everywhere()[grid[:, i]]
             for i, (name, states) in enumerate(loop.hidden.items())}
    at = lambda t: jax.tree.map(lambda leaf: leaf[t], (xs, dict(values)))  # noqa: E731
    x, drawn = at(0)
    moves, order = _depends(loop, init, x, drawn)
    where, count = _cells(loop, init, x, drawn, order)
    older = len(grid) ** (order - 1)  # joint states of the steps before, the last one left out

    def of_cells(logs: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
        """Logs of all elements → those of each cell, and the sum of what looks at none."""
        log = jnp.concatenate(logs)
        each = jax.ops.segment_sum(log, np.where(where == NONE, count, where), count + 1)
        return each[:-1], each[-1]

    def step(carry: list, x: Any, t: Any, states: Mapping, values: Mapping) -> tuple:
        logs, after = loop.run(jax.tree.unflatten(tree, carry), x, t, states, values)
        return *of_cells(logs), jax.tree.leaves(after)

    start, tree = jax.tree.flatten(init)
    def leant(weights: Mapping[str, jax.Array]) -> jax.Array:
        """What a step's joint states weigh, (joint states, cells)."""
        total = jnp.zeros((len(grid), count))
        for i, (name, states) in enumerate(loop.hidden.items()):
            if name in weights:
                own = weights[name].reshape(states.cells, states.count)[:, grid[:, i]].T
                total = total.at[:, : states.cells].add(own)
        return jnp.tile(total, (older, 1))

    log, rest, carry = jax.vmap(step, (None, None, None, 0, None))(start, x, 0, every, drawn)
    if older > 1:  # what was before the first step is in one state
        log = jnp.concatenate([log, jnp.full(((older - 1) * len(grid), count), -jnp.inf)])
        carry = [jnp.concatenate([leaf] * older) for leaf in carry]
    if lean:
        log += leant({name: weights[0] for name, weights in lean.items()})
    # one that moves with the states has one value for each, another is the same in all
    split = lambda flat: [leaf if moved else leaf[0]  # noqa: E731
                          for leaf, moved in zip(flat, moves, strict=True)]
    kinds = [leaf.dtype for leaf in split(carry)]
    axes = [0 if moved else None for moved in moves]

    def onward(held, now):
        log, total, carry, t = held
        x, values, weights = now
        inner = jax.vmap(step, (None, None, None, 0, None))
        moved, rest, after = jax.vmap(inner, (axes, None, None, None, None), axis_size=len(log))(
            carry, x, t, every, values)
        # (the oldest step's states, those of the others and of the new one, ...)
        split_off = lambda leaf: leaf.reshape(len(grid), -1, *leaf.shape[2:])  # noqa: E731
        log = semiring.logs(split_off(log[:, None] + moved), 0)
        log = log + leant(weights) if weights else log
        # from any state of the oldest step: it is the same
        after = [split_off(leaf)[0].astype(kind) for leaf, kind in zip(after, kinds, strict=True)]
        return (log, total + rest[0, 0], split(after), t + 1), None

    held = (log, rest[0], split(carry), 1)
    if length > 1:
        later = jax.tree.map(lambda leaf: leaf[1:], (xs, dict(values), dict(lean)))
        held, _ = jax.lax.scan(onward, held, later, length=length - 1)
    return semiring.logs(held[0], 0).sum() + held[1]


def _depends(loop: Loop, init: Any, x: Any, drawn: Mapping) -> tuple[list[bool], int]:
    """Which leaves of what a step hands on move with its states, and on the states of how many
    steps they depend.

    Raises:
        ModelError: on those of all steps before, or of so many that their joint states are too
            many; a continuous site depends on a state.
    """
    flat, tree = jax.tree.flatten(init)
    states = {name: jnp.full(s.shape, s.low) for name, s in loop.hidden.items()}

    def after(states, *leaves):
        trace, carry, _ = loop.trace(jax.tree.unflatten(tree, leaves), x, 0, {**states, **drawn})
        drawns = [leaf for name in loop.drawn
                  for leaf in leaves_of_distribution(trace[name]["fn"])[0]]
        return jax.tree.leaves(carry), drawns

    closed = jaxpr_of(after)(states, *flat)
    depends = levels.dependencies(closed)
    first, joint = len(states), math.prod(s.count for s in loop.hidden.values())
    moved = {leaf for leaf in range(len(flat)) if any(i < first for i in depends[leaf])}
    order, late = 1, set(moved)  # leaves that depend on the states of so many steps, or more
    while late := {leaf for leaf in range(len(flat)) if depends[leaf] & {first + i for i in late}}:
        moved |= late
        order += 1
        if order > len(flat) or joint**order > MOST:
            raise ModelError(
                f"site '{loop.name}' in a scan is summed out by the forward algorithm, over the "
                f"joint states of the steps on which the carry of a step depends, up to {MOST:,}: "
                f"here the carry depends on {'all steps before' if order > len(flat) else order}. "
                f"Put only the newest states in the carry, or combine the older ones in one site "
                f"with more states"
            )
    bad = {first + leaf for leaf in moved}
    bad |= set(range(first))
    if any(uses & bad for uses in depends[len(flat) :]):
        raise ModelError(
            f"site '{loop.drawn[0]}' is continuous and latent in a scan and depends on the "
            f"discrete site '{loop.name}', which is summed out there: observe one of the two"
        )
    return [leaf in moved for leaf in range(len(flat))], order


def _cells(loop: Loop, init: Any, x: Any, drawn: Mapping,
           order: int) -> tuple[np.ndarray, int]:
    """The cell at which each element of a step's logs looks, now and in the steps before, and how
    many cells there are.

    Args:
        order: on how many steps what is handed on depends.

    Raises:
        ModelError: an element looks at two cells.
    """
    names, states = list(loop.hidden), [jnp.full(s.shape, s.low) for s in loop.hidden.values()]

    def last(every, x, drawn):
        carry = init
        for now in every:
            logs, carry = loop.run(carry, x, 0, dict(zip(names, now, strict=True)), drawn)
        return logs

    closed = jaxpr_of(last)([states] * (order + 1), x, dict(drawn))
    tracked = {i: f"{i}" for i in range((order + 1) * len(names))}
    count, out = max(s.cells for s in loop.hidden.values()), []
    for var, found in zip(closed.out_avals, cells(closed, tracked), strict=True):
        where = np.full(var.shape, NONE)
        for own in found.values():
            clash = (own == SEVERAL) | (own != NONE) & (where != NONE) & (own != where)
            if clash.any():
                raise ModelError(
                    f"site '{loop.name}' in a scan has {count} cells, and a step depends on more "
                    f"than one of them at once, so they cannot be summed out cell by cell: put the "
                    f"chains in a plate whose members do not depend on each other"
                )
            where = np.where(own != NONE, own, where)
        out.append(where)
    return np.concatenate(out), count
