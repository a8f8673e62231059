"""numpyro's scan with latent discrete states → its evidence, by the forward algorithm.

Let c be the carry of a step and z its discrete sites, in cells that do not depend on each other
(sequences, animals). Where c depends on the step's own z and not on the one before (a chain of
first order), then for every cell

    α_1(z) = p(z, y_1 | c_0),  α_t(z') = Σ_z α_{t−1}(z) p(z', y_t | c_{t−1}(z)),  p(y) = Σ_z α_T(z)

and where it depends on the z of the last h steps (a chain of order h), z is replaced by their joint
states. Sites on which c does not depend are summed out within the step, in cells of their own, each
below one cell of the chain. Latent continuous sites of a step are drawn by a scan of their own,
which does not depend on z.

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
from jax.tree_util import PyTreeDef
from numpyro import handlers
from numpyro.contrib.control_flow import scan

from probml.elimination.factor import SUM, Semiring
from probml.errors import ModelError, listed
from probml.interface.functions.marginal_weights import StateWeights
from probml.interface.functions.scan_starts import ScanCall
from probml.interface.functions.states import States, is_hidden, logs_of, states_of
from probml.jaxpr import levels
from probml.jaxpr.cells import NONE, cells, merge_cells
from probml.jaxpr.program import jaxpr_of
from probml.structure.leaves import leaves_of_distribution
from probml.typing import ArrayLike, PyTree, SiteValues

MOST_JOINT_STATES = 2**12  # joint states of a cell


class SummedOut:
    """In the place of what a scan returns where it was summed out: any use of it raises."""

    def __init__(self, name: str, how: str = "discrete and latent in a scan, where it is summed "
                                             "out"):
        self.name, self.treatment = name, how

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") and attribute != "__jax_array__":
            raise AttributeError(attribute)
        self._refuse()

    def _refuse(self, *_: object) -> NoReturn:
        raise ModelError(
            f"site '{self.name}' is {self.treatment}, so code after the scan cannot use its value. "
            f"Move every site that depends on '{self.name}' into the function that is passed to "
            "scan")


for _name in ("getitem iter len float bool array neg abs add radd sub rsub mul rmul truediv "
              "rtruediv pow rpow matmul rmatmul lt le gt ge").split():
    setattr(SummedOut, f"__{_name}__", SummedOut._refuse)


class Loop(NamedTuple):
    """The body of a scan whose latent sites are summed or integrated out.

    Attributes:
        discrete: its latent discrete sites; shapes: of its latent continuous sites.
        given: sites that a handler around the scan conditions on, name → values of all steps.
    """

    body: Callable
    discrete: Mapping[str, States]
    shapes: Mapping[str, tuple[int, ...]]
    given: SiteValues

    @property
    def name(self) -> str:
        """The first of its discrete sites."""
        return next(iter(self.discrete))

    def trace(self, carry: object, x: object, step: object,
              values: Mapping) -> tuple[dict, PyTree, PyTree]:
        """The messages of one step at some values of its sites, its carry and its output."""
        observed = {name: value[step] for name, value in self.given.items()}
        with (handlers.block(), handlers.trace() as trace, handlers.condition(data=observed),
              handlers.substitute(data=dict(values))):
            returned = self.body(carry, x)
        return trace, *jax.tree.map(jnp.asarray, returned)

    def run(self, carry: object, x: object, step: object, states: Mapping,
            values: Mapping) -> tuple[list[jax.Array], PyTreeDef]:
        """The flat log densities of all discrete and observed sites at these states, and the
        carry."""
        trace, new_carry, _ = self.trace(carry, x, step, {**states, **values})
        return [log.ravel() for log in logs_of(trace, self.shapes).values()], new_carry

    def blank(self) -> dict[str, jax.Array]:
        """Some value of each latent site of a step."""
        return self.lowest() | {name: jnp.zeros(shape) for name, shape in self.shapes.items()}

    def lowest(self) -> dict[str, jax.Array]:
        """Each discrete site of a step, all of its cells in the lowest state."""
        return {name: jnp.full(states.shape, states.low) for name, states in self.discrete.items()}

    def joint(self, names: Sequence[str]) -> tuple[np.ndarray, dict[str, jax.Array]]:
        """The joint states of some sites, (joint states, sites), and each site with all of its
        cells in one, for each of these."""
        grid = np.array(list(itertools.product(*(range(self.discrete[name].count)
                                                 for name in names))), int)
        return grid, {name: self.discrete[name].everywhere()[grid[:, i]]
                      for i, name in enumerate(names)}


def sites_inside(msg: dict) -> set[str]:
    """The sites of a control-flow message's body; of cond those of its first."""
    if (call := ScanCall.of(msg)) is not None:
        return _of_body(set, call.body, call.init, call.first_x)
    _, body, _, operand = msg["args"]
    return _of_body(set, body, operand)


def sum_out_scan(msg: dict, weights: StateWeights | None = None) -> None:
    """Replace a scan whose body has latent discrete sites by one factor, named after the first of
    them; other messages stay as they are.

    Args:
        weights: of the states of these sites, step by step.
    """
    call = ScanCall.of(msg)
    if call is None or msg["value"] is not None:  # integrated out already
        return
    loop = loop_of(call, conditioned_values(msg))
    if not loop.discrete:
        return
    init, xs = jax.tree.map(jnp.asarray, (call.init, call.xs))
    values = _draw_continuous(loop, call) if loop.shapes else {}
    logs = {} if weights is None else {name: weights.of(states, call.length)
                                       for name, states in loop.discrete.items()}
    if call.reverse:
        xs, values, logs = jax.tree.map(lambda leaf: leaf[::-1], (xs, values, logs))
    semiring = SUM if weights is None else weights.semiring(loop.discrete)
    numpyro.factor(loop.name, _evidence(loop, init, xs, values, call.length, logs, semiring))
    stand_in = SummedOut(loop.name)
    shapes = jax.eval_shape(lambda: loop.trace(init, call.first_x, 0, loop.blank())[1])
    msg["value"] = call.result(jax.tree.map(lambda _: stand_in, shapes), stand_in)


def conditioned_values(msg: dict) -> dict[str, ArrayLike]:
    """The sites of a scan that handlers around it condition on, name → values of all steps."""
    return dict(item for kind, values in msg["kwargs"]["substitute_stack"]
                if kind == "condition" and isinstance(values, Mapping) for item in values.items())


def _of_body(read: Callable[[dict], PyTree], body: Callable, *args: object) -> PyTree:
    """`read` of the trace of a loop's body, run abstractly."""
    results = list[Any]()

    def run(args: tuple) -> int:
        with handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0):
            body(*args)
        results.append(read(trace))
        return 0

    jax.eval_shape(run, args)  # arguments, since a carry that begins as a Python number is an array
    return results[0]


def loop_of(call: ScanCall, given: Mapping) -> Loop:
    """The latent sites of a scan's body, found by an abstract run.

    Args:
        given: see Loop.
    """
    def latent(trace: dict) -> tuple[dict, dict]:
        free = {name: site["fn"] for name, site in trace.items()
                if name not in given and site["type"] == "sample" and not site["is_observed"]
                and not isinstance(site["fn"], dist.Unit)}
        discrete = {name for name in free if is_hidden(trace[name])}
        return ({name: states_of(name, free[name], " in a scan") for name in free
                 if name in discrete},
                {name: tuple(fn.shape()) for name, fn in free.items() if name not in discrete})

    hidden, shapes = _of_body(latent, call.body, call.init, call.first_x)
    joint = math.prod(states.count for states in hidden.values())
    if joint > MOST_JOINT_STATES:
        raise ModelError(f"the latent discrete sites of a scan, {listed(hidden)}, have {joint:,} "
                         "joint states in each step, more than the limit of "
                         f"{MOST_JOINT_STATES:,}. Use fewer states, or give one of these sites in "
                         "the data")
    return Loop(call.body, hidden, shapes, given)


def _draw_continuous(loop: Loop, call: ScanCall) -> dict[str, jax.Array]:
    """The continuous sites of all steps, by a scan whose discrete sites are fixed: the continuous
    ones do not depend on them (_dependence)."""
    fixed = loop.lowest()

    def step(carry: tuple, x: object):
        with (handlers.block(hide_fn=lambda site: site["name"] not in loop.shapes
                             and site["type"] != "plate"),
              handlers.trace() as trace, handlers.substitute(data=fixed)):
            new_carry, _ = loop.body(carry, x)
        return new_carry, {name: trace[name]["value"] for name in loop.shapes}

    return scan(step, call.init, call.xs, length=call.length, reverse=call.reverse)[1]


class _StepTables(NamedTuple):
    """The log densities of a step at its joint states, for the forward algorithm.

    Attributes:
        tree: of the carry.
        chain, step_sites: the discrete sites on which the carry depends, and the others.
    """

    loop: Loop
    tree: PyTreeDef
    chain: tuple[str, ...]
    step_sites: tuple[str, ...]
    cells: "_Cells"
    semiring: Semiring

    def weights(self, weights: Mapping[str, jax.Array], names: Sequence[str],
                count: int) -> jax.Array:
        """The log weights of the joint states of some sites of a step, (joint states, cells)."""
        grid = self.loop.joint(names)[0]
        total = jnp.zeros((len(grid), count))
        for i, name in enumerate(names):
            if name in weights:
                states = self.loop.discrete[name]
                logs = weights[name].reshape(states.cells, states.count)[:, grid[:, i]].T
                total = total.at[:, : states.cells].add(logs)
        return total

    def at_state(self, carry: list, x: PyTree, t: PyTree, states: Mapping, values: Mapping,
                 weights: Mapping) -> tuple[jax.Array, jax.Array, list]:
        """The log density of each cell at a joint state of the chain, that of what depends on no
        cell, and the carry."""
        grid, sub_states = self.loop.joint(self.step_sites)

        def run(state: Mapping) -> tuple[jax.Array, list]:
            logs, carries = self.loop.run(jax.tree.unflatten(self.tree, carry), x, t,
                                          {**states, **state}, values)
            return jnp.concatenate(logs), jax.tree.leaves(carries)

        logs, carries = jax.vmap(run, axis_size=len(grid))(sub_states)
        terms = self.weights(weights, self.step_sites,
                             self.cells.number) + self.cells.sum_below(logs)
        log = self.cells.sum_chain(logs[0], self.semiring.logs(terms, 0))
        return log[:-1], log[-1], [leaf[0] for leaf in carries]

    def at_states(self, carry: list, x: PyTree, t: PyTree, values: Mapping,
                  weights: Mapping) -> tuple:
        """`at_state` at every joint state of the chain."""
        grid, all_states = self.loop.joint(self.chain)
        return jax.vmap(lambda states: self.at_state(carry, x, t, states, values, weights),
                        axis_size=len(grid))(all_states)


def _evidence(loop: Loop, init: object, xs: object, values: Mapping, length: int,
              state_weights: Mapping[str, jax.Array], semiring: Semiring) -> jax.Array:
    """log p of all that is observed in the scan, discrete sites summed out or maximised.

    Args:
        values: of the continuous sites, steps first.
        state_weights: site → log weights of its states, (steps, *cells, states).
    """
    all_steps = xs, dict(values), dict(state_weights)
    x, drawn, weights = jax.tree.map(lambda leaf: leaf[0], all_steps)
    varies, order, chain = _dependence(loop, init, x, drawn)
    start, tree = jax.tree.flatten(init)
    below = tuple(name for name in loop.discrete if name not in chain)
    steps = _StepTables(loop, tree, chain, below,
                        _cells_of_elements(loop, init, x, drawn, order, chain), semiring)
    joint = len(loop.joint(chain)[0])
    n_older = joint ** (order - 1)  # joint states of the earlier steps, without the last one

    def weighted(log: jax.Array, weights: Mapping) -> jax.Array:
        log_w = steps.weights(weights, chain, steps.cells.chains)
        return log + jnp.tile(log_w, (n_older, 1)) if state_weights else log

    log, log_rest, carry = steps.at_states(start, x, 0, drawn, weights)
    # the steps before the first are in one state
    log = jnp.concatenate([log, jnp.full(((n_older - 1) * joint, log.shape[1]), -jnp.inf)])
    carry = [jnp.concatenate([leaf] * n_older) for leaf in carry]
    # a leaf that varies with the states has one value for each, another is the same in all
    split = lambda flat: [leaf if own else leaf[0]  # noqa: E731
                          for leaf, own in zip(flat, varies, strict=True)]
    dtypes = [leaf.dtype for leaf in carry]

    def forward(state: tuple, inputs: tuple):
        log, total, carry, t = state
        x, values, weights = inputs
        step, log_rest, after = jax.vmap(
            lambda *own: steps.at_states(list(own), x, t, values, weights),
            [0 if own else None for own in varies], axis_size=len(log))(*carry)
        # (states of the oldest step, of the others and of the new one, ...)
        split_off = lambda leaf: leaf.reshape(joint, -1, *leaf.shape[2:])  # noqa: E731
        log = weighted(semiring.logs(split_off(log[:, None] + step), 0), weights)
        # the carry is the same from any state of the oldest step
        after = [split_off(leaf)[0].astype(kind) for leaf, kind in zip(after, dtypes, strict=True)]
        return (log, total + log_rest[0, 0], split(after), t + 1), None

    state = weighted(log, weights), log_rest[0], split(carry), 1
    if length > 1:
        later = jax.tree.map(lambda leaf: leaf[1:], all_steps)
        state, _ = jax.lax.scan(forward, state, later, length=length - 1)
    return semiring.logs(state[0], 0).sum() + state[1]


def _dependence(loop: Loop, init: object, x: object,
                drawn: Mapping) -> tuple[list[bool], int, tuple[str, ...]]:
    """Whether each leaf of the carry varies with the discrete states, the number of steps on whose
    states it depends (the order of the chain), and the sites of these.

    Raises:
        ModelError: the order is all earlier steps, or so high that there are too many joint states;
            a continuous site depends on a state.
    """
    flat, tree = jax.tree.flatten(init)
    states = loop.lowest()

    def after(states: jax.Array, *leaves: jax.Array):
        trace, carry, _ = loop.trace(jax.tree.unflatten(tree, leaves), x, 0, {**states, **drawn})
        return jax.tree.leaves(carry), [leaf for name in loop.shapes for leaf in
                                        leaves_of_distribution(trace[name]["fn"])[0]]

    closed = jaxpr_of(after)(states, *flat)
    depends = levels.dependencies(closed)
    first, inputs = len(states), sorted(states)
    chain = tuple(name for name in loop.discrete if any(inputs.index(name) in depends[leaf]
                                                        for leaf in range(len(flat))))
    joint = math.prod(loop.discrete[name].count for name in chain)
    varying = {leaf for leaf in range(len(flat)) if any(i < first for i in depends[leaf])}
    order, late = 1, set(varying)  # leaves that depend on the states of so many steps, or more
    while late := {leaf for leaf in range(len(flat)) if depends[leaf] & {first + i for i in late}}:
        varying |= late
        order += 1
        if order > len(flat) or joint**order > MOST_JOINT_STATES:
            raise ModelError(
                f"site '{loop.name}' in a scan cannot be summed out. The carry (what is passed "
                "from step to step) depends on the discrete states of "
                f"{'all earlier' if order > len(flat) else order} steps. Each step has {joint:,} "
                f"possible states, and at most {MOST_JOINT_STATES:,} combinations of states are "
                "supported. Let the carry contain only the states of the last step, and nothing "
                "that is computed from earlier states"
            )
    discrete = {*range(first), *(first + leaf for leaf in varying)}
    if any(uses & discrete for uses in depends[len(flat) :]):
        raise ModelError(
            f"site '{next(iter(loop.shapes))}' (continuous) depends on site '{loop.name}' "
            "(discrete). Both are latent in a scan, and they cannot be integrated out together. "
            "Give one of the two in the data"
        )
    return [leaf in varying for leaf in range(len(flat))], order, chain


class _Cells(NamedTuple):
    """The cells on which the elements of a step's log densities depend.

    Attributes:
        chain: the cell of the chain of each element, in this step and the earlier ones.
        step_cells: the cell of each element, of the sites on which the carry does not depend.
        chain_cells: the cell of the chain of each of the latter cells.
        chains: the number of cells of the chain.
    """

    chain: np.ndarray
    step_cells: np.ndarray
    chain_cells: np.ndarray
    chains: int

    @property
    def number(self) -> int:
        """The number of cells below the chain."""
        return len(self.chain_cells)

    def sum_below(self, logs: jax.Array) -> jax.Array:
        """The log densities of elements, (states, elements) → of cells below, (states, cells)."""
        return jax.ops.segment_sum(logs.T,
                                   np.where(self.step_cells == NONE, self.number, self.step_cells),
                                   self.number + 1)[:-1].T

    def sum_chain(self, logs: jax.Array, cells: jax.Array) -> jax.Array:
        """The log densities of elements, and of the cells below → those of each cell of the chain,
        and, last, of what depends on none."""
        where = np.concatenate([self.chain, self.chain_cells])
        return jax.ops.segment_sum(
            jnp.concatenate([jnp.where(self.step_cells == NONE, logs, 0.0), cells]),
            np.where(where == NONE, self.chains, where), self.chains + 1)


def _cells_of_elements(loop: Loop, init: object, x: object, drawn: Mapping, order: int,
                       chain: Sequence[str]) -> _Cells:
    """The cells on which the elements of a step's log densities depend.

    Args:
        order: the number of steps on which the carry depends. chain: the sites of these.

    Raises:
        ModelError: an element depends on two cells.
    """
    names, states = list(loop.discrete), list(loop.lowest().values())

    def last(all_states: PyTree, x: PyTree, drawn: PyTree):
        carry = init
        for now in all_states:
            logs, carry = loop.run(carry, x, 0, dict(zip(names, now, strict=True)), drawn)
        return logs

    closed = jaxpr_of(last)([states] * (order + 1), x, dict(drawn))
    tracked = {i: f"{i}" for i in range((order + 1) * len(names))}
    sizes = [max((s.cells for name, s in loop.discrete.items() if (name in chain) == in_chain),
                 default=int(in_chain)) for in_chain in (True, False)]

    def refused(name: str) -> ModelError:
        return ModelError(
            f"site '{name}' in a scan has {loop.discrete[name].cells} elements. They must be "
            "summed out one by one, but another site of the same step depends on several of them. "
            f"Put both sites in one plate, in which each element depends only on its own '{name}'. "
            f"If they must depend on several, give '{name}' in the data")

    columns: list[list[np.ndarray]] = [[], []]
    for aval, cell_map in zip(closed.out_avals, cells(closed, tracked), strict=True):
        cell_of = [np.full(aval.shape, NONE), np.full(aval.shape, NONE)]
        for key, marks in cell_map.items():
            name = names[int(key) % len(names)]
            where = cell_of[name not in chain]
            if not merge_cells(where, marks):
                raise refused(name)
        for side, where in zip(columns, cell_of, strict=True):
            side.append(where)
    above, below = map(np.concatenate, columns)
    lowest, highest = np.full(sizes[1], sizes[0]), np.full(sizes[1], NONE)
    paired = (above != NONE) & (below != NONE)
    np.minimum.at(lowest, below[paired], above[paired])
    np.maximum.at(highest, below[paired], above[paired])
    if ((lowest != highest) & (highest != NONE)).any():
        raise refused(chain[0])
    return _Cells(above, below, highest, sizes[0])
