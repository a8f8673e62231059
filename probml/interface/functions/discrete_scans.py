"""numpyro's scan with discrete states that nobody sees → its evidence, by the forward algorithm.

Let c be what one step hands to the next, z the discrete sites of a step, in cells that do not look
at each other (sequences, animals). Where c depends on the step's own z and not on the one before (a
chain of first order), then for every cell

    α_1(z) = p(z, y_1 | c_0),  α_t(z') = Σ_z α_{t−1}(z) p(z', y_t | c_{t−1}(z)),  p(y) = Σ_z α_T(z)

and where it depends on the z of the last h steps, in a chain of order h, their joint states stand
in the place of z. Sites on which c does not depend are summed out within the step, in cells of
their own, each below one cell of the chain. What is continuous and unseen in a step is drawn beside
it, by a scan of its own that forgets z.

Cost: steps × K^(h+1) evaluations of the step's body, K joint states of a cell (Rabiner 1989).
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.contrib.control_flow.scan import PytreeTrace

from probml.elimination.semiring import SUM, Semiring
from probml.errors import ModelError
from probml.interface.functions.marginal_weights import StateWeights
from probml.interface.functions.states import States, is_hidden, logs_of, states_of
from probml.jaxpr import levels
from probml.jaxpr.cells import NONE, SEVERAL, cells
from probml.jaxpr.program import jaxpr_of
from probml.structure.leaves import leaves_of_distribution

MOST_JOINT_STATES = 2**12  # joint states of a cell


class SummedOut:
    """What a scan leaves behind that was summed out: nothing may look at it."""

    def __init__(self, name: str, how: str = "discrete, in a scan, and summed out there"):
        self.name, self.how = name, how

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") and attribute != "__jax_array__":
            raise AttributeError(attribute)
        self._refuse()

    def _refuse(self, *_: object) -> NoReturn:
        raise ModelError(
            f"site '{self.name}' is {self.how}, so the scan cannot return its value: observe every "
            f"site that depends on it inside the body of the scan"
        )


for _name in ("getitem iter len float bool array neg abs add radd sub rsub mul rmul truediv "
              "rtruediv pow rpow matmul rmatmul lt le gt ge").split():
    setattr(SummedOut, f"__{_name}__", SummedOut._refuse)


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

    def trace(self, carry: object, x: object, step: object,
              values: Mapping) -> tuple[dict, Any, Any]:
        """The messages of one step, what it hands on, and what it returns; what is in `values` has
        them."""
        seen = {name: value[step] for name, value in self.given.items()}
        with (handlers.block(), handlers.trace() as trace, handlers.condition(data=seen),
              handlers.substitute(data=dict(values))):
            after, said = self.body(carry, x)
        return trace, *jax.tree.map(jnp.asarray, (after, said))

    def run(self, carry: object, x: object, step: object, states: Mapping,
            values: Mapping) -> tuple[list[jax.Array], Any]:
        """The logs of all discrete and observed sites at these states, flat, and what the step
        hands on."""
        trace, after, _ = self.trace(carry, x, step, {**states, **values})
        return [log.ravel() for log in logs_of(trace, self.drawn).values()], after

    def blank(self) -> dict[str, jax.Array]:
        """Every latent site of a step at some value of its shape."""
        found = {name: jnp.full(states.shape, states.low) for name, states in self.hidden.items()}
        return found | {name: jnp.zeros(shape) for name, shape in self.shapes.items()}

    def joint(self, names: Sequence[str]) -> tuple[np.ndarray, dict[str, jax.Array]]:
        """The joint states of some sites, (joint states, sites), and each site with all of its
        cells in one, for each of these."""
        grid = np.array(list(itertools.product(*(range(self.hidden[name].count)
                                                 for name in names))), int)
        return grid, {name: self.hidden[name].everywhere()[grid[:, i]]
                      for i, name in enumerate(names)}


def sites_inside(msg: dict) -> set[str]:
    """The sites of a control-flow message's body; of cond those of its first."""
    if len(msg["args"]) == 5:
        body, init, xs = msg["args"][:3]
        return _of_body(set, body, init, jax.tree.map(lambda leaf: leaf[0], xs))
    _, body, _, operand = msg["args"]
    return _of_body(set, body, operand)


def sum_out_scan(msg: dict, leaning: StateWeights | None = None) -> None:
    """A control-flow message whose body has discrete sites that are unseen → one factor, named
    after the first of them; others stay as they are.

    Args:
        leaning: weighs the states of these, step by step.
    """
    if len(msg["args"]) != 5 or msg["value"] is not None:  # cond, or integrated out already
        return
    body, init, xs, length, reverse = msg["args"]
    first = jax.tree.map(lambda leaf: leaf[0], xs)
    loop = loop_of(body, init, first, conditioned_values(msg))
    if not loop.hidden:
        return
    if length is None:
        length = len(jax.tree.leaves(xs)[0])
    init, xs = jax.tree.map(jnp.asarray, (init, xs))
    values = _draw_continuous(loop, msg) if loop.drawn else {}
    lean = {} if leaning is None else {
        name: leaning.of(name, (length, *states.shape), states.low, states.count)
        for name, states in loop.hidden.items()
    }
    if reverse:
        xs, values, lean = jax.tree.map(lambda leaf: leaf[::-1], (xs, values, lean))
    semiring = SUM if leaning is None else leaning.semiring(loop.hidden)
    numpyro.factor(loop.name, _evidence(loop, init, xs, values, length, lean, semiring))
    left = SummedOut(loop.name)
    shapes = jax.eval_shape(lambda: loop.trace(init, first, 0, loop.blank())[1])
    carry = jax.tree.map(lambda _: left, shapes)
    msg["value"] = ((length, None, carry), (PytreeTrace({}), left))


def conditioned_values(msg: dict) -> dict[str, Any]:
    """What handlers around a scan say is seen of its sites, name → values of all steps."""
    return dict(item for kind, values in msg["kwargs"]["substitute_stack"]
                if kind == "condition" and isinstance(values, Mapping) for item in values.items())


def _of_body(read: Callable[[dict], Any], body: Callable, *args: object) -> Any:
    """What `read` makes of the sites of a loop's body, run by itself without computing anything."""
    found = list[Any]()

    def run() -> int:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0):
            body(*args)
        found.append(read(trace))
        return 0

    jax.eval_shape(run)
    return found[0]


def loop_of(body: Callable, init: object, first: object, given: Mapping) -> Loop:
    """What a scan's body holds; nothing is compiled.

    Args:
        first: inputs of the first step; given: see Loop.
    """
    def latent(trace: dict) -> tuple[dict, dict]:
        free = {name: site["fn"] for name, site in trace.items()
                if name not in given and site["type"] == "sample" and not site["is_observed"]
                and not isinstance(site["fn"], dist.Unit)}
        discrete = {name for name in free if is_hidden(trace[name])}
        return ({name: states_of(name, free[name], " in a scan") for name in free
                 if name in discrete},
                {name: tuple(fn.shape()) for name, fn in free.items() if name not in discrete})

    hidden, drawn = _of_body(latent, body, init, first)
    joint = math.prod(states.count for states in hidden.values())
    if joint > MOST_JOINT_STATES:
        raise ModelError(f"site '{next(iter(hidden))}' in a scan: {joint} joint states per step "
                         f"are too many to be summed out")
    return Loop(body, hidden, tuple(drawn), given, drawn)


def _draw_continuous(loop: Loop, msg: dict) -> dict[str, jax.Array]:
    """The continuous sites of all steps, by a scan in which the discrete ones are held still: they
    do not depend on these (_checked)."""
    _, init, xs, length, reverse = msg["args"]
    still = {name: value for name, value in loop.blank().items() if name in loop.hidden}

    def step(carry: tuple, x: object):
        with (handlers.block(hide_fn=lambda site: site["name"] not in loop.drawn
                             and site["type"] != "plate"),
              handlers.trace() as trace, handlers.substitute(data=still)):
            after, _ = loop.body(carry, x)
        return after, {name: trace[name]["value"] for name in loop.drawn}

    _, values = scan(step, init, xs, length=length, reverse=reverse)
    return values


class _StepTables(NamedTuple):
    """The log densities of a step at its joint states, of which the forward algorithm is made.

    Attributes:
        tree: of what a step hands on.
        chain, below: the sites on which that depends, and the others.
    """

    loop: Loop
    tree: Any
    chain: tuple[str, ...]
    below: tuple[str, ...]
    places: "_Cells"
    semiring: Semiring

    def weights(self, weights: Mapping[str, jax.Array], names: Sequence[str],
                count: int) -> jax.Array:
        """What joint states of some sites of a step weigh, (joint states, cells)."""
        grid = self.loop.joint(names)[0]
        total = jnp.zeros((len(grid), count))
        for i, name in enumerate(names):
            if name in weights:
                states = self.loop.hidden[name]
                each = weights[name].reshape(states.cells, states.count)[:, grid[:, i]].T
                total = total.at[:, : states.cells].add(each)
        return total

    def at_state(self, carry: list, x: Any, t: Any, states: Mapping, values: Mapping,
                 weights: Mapping) -> tuple[jax.Array, jax.Array, list]:
        """The logs of each cell at a joint state of the chain, of what looks at no cell, and what
        the step hands on."""
        inner, own = self.loop.joint(self.below)

        def run(now: Mapping) -> tuple[jax.Array, list]:
            logs, after = self.loop.run(jax.tree.unflatten(self.tree, carry), x, t,
                                        {**states, **now}, values)
            return jnp.concatenate(logs), jax.tree.leaves(after)

        logs, after = jax.vmap(run, axis_size=len(inner))(own)
        each = self.weights(weights, self.below, self.places.cells) + self.places.of_cells(logs)
        log = self.places.of_chain(logs[0], self.semiring.logs(each, 0))
        return log[:-1], log[-1], [leaf[0] for leaf in after]

    def at_states(self, carry: list, x: Any, t: Any, values: Mapping, weights: Mapping) -> tuple:
        """The same at every joint state."""
        grid, every = self.loop.joint(self.chain)
        return jax.vmap(lambda states: self.at_state(carry, x, t, states, values, weights),
                        axis_size=len(grid))(every)


def _evidence(loop: Loop, init: object, xs: object, values: Mapping, length: int,
              lean: Mapping[str, jax.Array], semiring: Semiring) -> jax.Array:
    """log p of all that is seen in the scan, discrete sites summed out, or the best of them taken.

    Args:
        lean: site → log weights of its states, (steps, *cells, states).
    """
    every = xs, dict(values), dict(lean)
    x, drawn, weights = jax.tree.map(lambda leaf: leaf[0], every)
    moves, order, chain = _dependence(loop, init, x, drawn)
    start, tree = jax.tree.flatten(init)
    below = tuple(name for name in loop.hidden if name not in chain)
    places = _cells_of_elements(loop, init, x, drawn, order, chain)
    steps = _StepTables(loop, tree, chain, below, places, semiring)
    joint = len(loop.joint(chain)[0])
    older = joint ** (order - 1)  # joint states of the steps before, the last one left out

    def weighed(log: jax.Array, weights: Mapping) -> jax.Array:
        own = steps.weights(weights, chain, steps.places.count)
        return log + jnp.tile(own, (older, 1)) if lean else log

    log, rest, carry = steps.at_states(start, x, 0, drawn, weights)
    # what was before the first step is in one state
    log = jnp.concatenate([log, jnp.full(((older - 1) * joint, log.shape[1]), -jnp.inf)])
    carry = [jnp.concatenate([leaf] * older) for leaf in carry]
    # one that moves with the states has one value for each, another is the same in all
    split = lambda flat: [leaf if moved else leaf[0]  # noqa: E731
                          for leaf, moved in zip(flat, moves, strict=True)]
    kinds = [leaf.dtype for leaf in carry]

    def onward(held: jax.Array, now: tuple):
        log, total, carry, t = held
        x, values, weights = now
        moved, rest, after = jax.vmap(
            lambda *own: steps.at_states(list(own), x, t, values, weights),
            [0 if moved else None for moved in moves], axis_size=len(log))(*carry)
        # (the oldest step's states, those of the others and of the new one, ...)
        split_off = lambda leaf: leaf.reshape(joint, -1, *leaf.shape[2:])  # noqa: E731
        log = weighed(semiring.logs(split_off(log[:, None] + moved), 0), weights)
        # from any state of the oldest step: it is the same
        after = [split_off(leaf)[0].astype(kind) for leaf, kind in zip(after, kinds, strict=True)]
        return (log, total + rest[0, 0], split(after), t + 1), None

    held = weighed(log, weights), rest[0], split(carry), 1
    if length > 1:
        later = jax.tree.map(lambda leaf: leaf[1:], every)
        held, _ = jax.lax.scan(onward, held, later, length=length - 1)
    return semiring.logs(held[0], 0).sum() + held[1]


def _dependence(loop: Loop, init: object, x: object,
                drawn: Mapping) -> tuple[list[bool], int, tuple[str, ...]]:
    """Which leaves of what a step hands on move with its states, on the states of how many steps
    they depend, and on those of which sites.

    Raises:
        ModelError: on those of all steps before, or of so many that their joint states are too
            many; a continuous site depends on a state.
    """
    flat, tree = jax.tree.flatten(init)
    states = {name: jnp.full(s.shape, s.low) for name, s in loop.hidden.items()}

    def after(states: jax.Array, *leaves: jax.Array):
        trace, carry, _ = loop.trace(jax.tree.unflatten(tree, leaves), x, 0, {**states, **drawn})
        drawns = [leaf for name in loop.drawn
                  for leaf in leaves_of_distribution(trace[name]["fn"])[0]]
        return jax.tree.leaves(carry), drawns

    closed = jaxpr_of(after)(states, *flat)
    depends = levels.dependencies(closed)
    first, inputs = len(states), sorted(states)
    chain = tuple(name for name in loop.hidden if any(inputs.index(name) in depends[leaf]
                                                      for leaf in range(len(flat))))
    joint = math.prod(loop.hidden[name].count for name in chain)
    moved = {leaf for leaf in range(len(flat)) if any(i < first for i in depends[leaf])}
    order, late = 1, set(moved)  # leaves that depend on the states of so many steps, or more
    while late := {leaf for leaf in range(len(flat)) if depends[leaf] & {first + i for i in late}}:
        moved |= late
        order += 1
        if order > len(flat) or joint**order > MOST_JOINT_STATES:
            raise ModelError(
                f"site '{loop.name}' in a scan is summed out by the forward algorithm, over the "
                f"joint states of the steps on which the carry of a step depends, up to "
                f"{MOST_JOINT_STATES:,}: here the carry depends on "
                f"{'all steps before' if order > len(flat) else order}. Put only the newest states in the carry, or combine the older ones in one site "
                f"with more states"
            )
    bad = {first + leaf for leaf in moved}
    bad |= set(range(first))
    if any(uses & bad for uses in depends[len(flat) :]):
        raise ModelError(
            f"site '{loop.drawn[0]}' is continuous and latent in a scan and depends on the "
            f"discrete site '{loop.name}', which is summed out there: observe one of the two"
        )
    return [leaf in moved for leaf in range(len(flat))], order, chain


class _Cells(NamedTuple):
    """At which cells the elements of a step's logs look.

    Attributes:
        chain: the cell of the chain of every element, now and in the steps before.
        below: the cell of every element of sites on which what is handed on does not depend.
        above: of these cells, the cell of the chain. count: how many cells the chain has.
    """

    chain: np.ndarray
    below: np.ndarray
    above: np.ndarray
    count: int  # type: ignore[assignment] # not the tuple's method

    @property
    def cells(self) -> int:
        return len(self.above)

    def of_cells(self, logs: jax.Array) -> jax.Array:
        """Logs of all elements, (states, elements) → of each cell below, (states, cells)."""
        return jax.ops.segment_sum(logs.T, np.where(self.below == NONE, self.cells, self.below),
                                   self.cells + 1)[:-1].T

    def of_chain(self, logs: jax.Array, cells: jax.Array) -> jax.Array:
        """Logs of all elements, and of the cells below → those of each cell of the chain, and the
        sum of what looks at none."""
        where = np.concatenate([self.chain, self.above])
        return jax.ops.segment_sum(
            jnp.concatenate([jnp.where(self.below == NONE, logs, 0.0), cells]),
            np.where(where == NONE, self.count, where), self.count + 1)


def _cells_of_elements(loop: Loop, init: object, x: object, drawn: Mapping, order: int,
                       chain: Sequence[str]) -> _Cells:
    """At which cells the elements of a step's logs look.

    Args:
        order: on how many steps what is handed on depends. chain: on which sites.

    Raises:
        ModelError: an element looks at two cells.
    """
    names, states = list(loop.hidden), [jnp.full(s.shape, s.low) for s in loop.hidden.values()]

    def last(every: Any, x: Any, drawn: Any):
        carry = init
        for now in every:
            logs, carry = loop.run(carry, x, 0, dict(zip(names, now, strict=True)), drawn)
        return logs

    closed = jaxpr_of(last)([states] * (order + 1), x, dict(drawn))
    tracked = {i: f"{i}" for i in range((order + 1) * len(names))}
    sizes = [max((s.cells for name, s in loop.hidden.items() if (name in chain) == which),
                 default=int(which)) for which in (True, False)]

    def refused(name: str) -> ModelError:
        return ModelError(
            f"site '{name}' in a scan has {loop.hidden[name].cells} cells, and a step depends on "
            f"more than one of them at once, so they cannot be summed out cell by cell: put the "
            f"chains in a plate whose members do not depend on each other")

    out: list[list[np.ndarray]] = [[], []]
    for var, found in zip(closed.out_avals, cells(closed, tracked), strict=True):
        both = [np.full(var.shape, NONE), np.full(var.shape, NONE)]
        for at, own in found.items():
            name = names[int(at) % len(names)]
            where = both[name not in chain]
            if ((own == SEVERAL) | (own != NONE) & (where != NONE) & (own != where)).any():
                raise refused(name)
            where[own != NONE] = own[own != NONE]
        for side, where in zip(out, both, strict=True):
            side.append(where)
    above, below = map(np.concatenate, out)
    least, most = np.full(sizes[1], sizes[0]), np.full(sizes[1], NONE)
    met = (above != NONE) & (below != NONE)
    np.minimum.at(least, below[met], above[met])
    np.maximum.at(most, below[met], above[met])
    if ((least != most) & (most != NONE)).any():
        raise refused(chain[0])
    return _Cells(above, below, most, sizes[0])
