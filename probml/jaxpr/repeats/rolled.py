"""Unrolled recursions rewritten as loops: the steps of a Python loop as one step under `lax.scan`.

A Python loop s_t = f(s_{t−1}, y_t; θ) is traced to a program that grows with the loop (GARCH
volatilities, exponential smoothing, random walks of standardised steps). The equations of a step
are those that its results depend on and that no earlier step has used. If these have the same
pattern in every step (patterns.py), and use values of earlier steps at constant lags, one step is
enough. Quantities that do not depend on earlier steps are computed for all steps at once; lagged
values of these are shifted copies; the rest of the recursion runs under a scan; and what no later
step depends on is again computed for all steps at once.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn
from jax.typing import ArrayLike

from probml.jaxpr.program import Line, Program, flat, needed_lines
from probml.jaxpr.repeats.patterns import (
    Digests,
    Leaf,
    Work,
    computed,
    needed,
    number,
    pattern,
    stacked,
)

MIN_STEPS = 8  # of the same pattern, from which a scan is faster


class _Carried(NamedTuple):
    """A leaf that an earlier step computes: at which of its places, and the values that the first
    steps use instead, one for each step of the lag."""

    slot: int
    initial: tuple[Leaf, ...]


class Recursion:
    """Steps of one pattern, as one step under a scan.

    Args:
        before: the places of the results of the steps before these.
        work: the lines of one step; count: the number of steps.
        same: leaves that are the same in all steps; each: one for each step; carried: those
            computed by earlier steps.
    """

    def __init__(self, program: Program, before: Sequence[Sequence[int]], work: Work, count: int,
                 same: Mapping[int, Leaf], each: Mapping[int, Sequence[Leaf]],
                 carried: Mapping[int, _Carried]):
        self._program, self._before, self._work, self._count = program, before, work, count
        self._shared, self._per_step, self._carried = same, each, carried

    def values(self, give: Callable[[int], jax.Array],
               column: Callable[[Sequence[int]], jax.Array]) -> list[jax.Array]:
        """The results of all steps: for each result of a step an array (steps, *shape).

        Args:
            give: number of an input of the program → its value; column: numbers of several inputs →
                their values, stacked along a first axis.
        """
        inputs: dict[Leaf, int] = {place: i for i, place in enumerate(self._program.inputs)}
        columns = {own: column([inputs[place] for place in leaves])
                   for own, leaves in self._per_step.items() if inputs.keys() >= set(leaves)}
        rest = {own: leaves for own, leaves in self._per_step.items() if own not in columns}
        values = self._leaf_values(give, [
            *self._shared.values(), *(leaf for leaves in rest.values() for leaf in leaves),
            *(leaf for own in self._carried.values() for leaf in own.initial),
            *(place for places in self._before for place in places)])
        columns |= {own: stacked([values[leaf] for leaf in leaves]) for own, leaves in rest.items()}
        run = _Run(self._work, self._count,
                   {own: values[leaf] for own, leaf in self._shared.items()},
                   columns)
        run.fill(dict(self._carried), {own: [jnp.asarray(values[leaf]) for leaf in carried.initial]
                                       for own, carried in self._carried.items()})
        results = []
        for i, place in enumerate(self._work.results):
            own = run.stacked(place)
            initial = [jnp.asarray(values[places[i]], own.dtype)[None] for places in self._before]
            results.append(jnp.concatenate([*initial, own]) if initial else own)
        return results

    def _leaf_values(self, give: Callable[[int], jax.Array],
                     leaves: Sequence[Leaf]) -> dict[Leaf, ArrayLike]:
        """The values of leaves, computed before the scan."""
        places = [leaf for leaf in dict.fromkeys(leaves) if isinstance(leaf, int)]
        values = _evaluated(self._program, places, give)
        constants = dict(self._program.constants)
        values_by_leaf: dict[Leaf, ArrayLike] = {
            place: number(value, self._program.avals[place]) if place in constants else value
            for place, value in zip(places, values, strict=True)}
        return values_by_leaf | {leaf: np.array(leaf, np.int32) for leaf in leaves
                                 if isinstance(leaf, tuple)}


class _Run:
    """The state of the computation of all steps: values that are the same in all steps, and values
    for each step (along the first axis), by renumbered place; and the lines that are left."""

    def __init__(self, work: Work, count: int, same: dict[int, ArrayLike],
                 each: dict[int, jax.Array]):
        self.remaining, self.count, self.shared, self.per_step = list(work.lines), count, same, each

    def fill(self, carried: dict[int, _Carried], begin: Mapping[int, list[jax.Array]]) -> None:
        """Compute all lines."""
        while True:
            self._ready()
            ready = [leaf for leaf, carry in carried.items()
                     if carry.slot in self.shared or carry.slot in self.per_step]
            if not ready:
                break
            for leaf in ready:
                all_steps = self.stacked(carried.pop(leaf).slot)
                initial = jnp.stack(begin[leaf])[: self.count].astype(all_steps.dtype)
                self.per_step[leaf] = jnp.concatenate([initial, all_steps])[: self.count]
        if carried:
            self._scanned(carried, begin)
            self._ready()

    def stacked(self, place: int) -> jax.Array:
        """The values of a place in all steps."""
        if place in self.per_step:
            return self.per_step[place]
        value = jnp.asarray(self.shared[place])
        return jnp.broadcast_to(value, (self.count, *value.shape))

    def _ready(self) -> None:
        """Compute the lines that depend on known values alone."""
        same, known = set(self.shared), {*self.shared, *self.per_step}
        once, per_step, remaining = [], [], []
        for line in self.remaining:
            if same.issuperset(line.operands):
                once.append(line)
                same.update(line.results)
            elif known.issuperset(line.operands):
                per_step.append(line)
            else:
                remaining.append(line)
                continue
            known.update(line.results)
        self.remaining = remaining
        self.shared |= computed(once, self.shared)
        if per_step:
            self.per_step |= jax.vmap(lambda row: computed(per_step,
                                                           self.shared | row))(self.per_step)

    def _scanned(self, carried: Mapping[int, _Carried], initial: Mapping[int, list]) -> None:
        """Run the recursion proper under a scan."""
        lines = needed_lines(self.remaining, (carry.slot for carry in carried.values()))
        wanted = {place for line in lines for place in line.operands}

        def step(windows: dict[int, list], row: dict) -> tuple[dict, dict]:
            lagged = {leaf: window[0] for leaf, window in windows.items()}
            results = computed(lines, self.shared | row | lagged)
            known = row | lagged | results
            shifted = {leaf: [*window[1:], jnp.asarray(known[carried[leaf].slot], window[0].dtype)]
                       for leaf, window in windows.items()}
            return shifted, lagged | results

        windows = {leaf: [jnp.asarray(x0, x0.dtype) for x0 in initial[leaf]] for leaf in carried}
        columns = {place: value for place, value in self.per_step.items() if place in wanted}
        self.per_step |= lax.scan(step, windows, columns, length=self.count)[1]
        self.remaining = [line for line in self.remaining if line.results[0] not in self.per_step]


def recursion(closed: ClosedJaxpr, steps: Sequence[Sequence[int]],
              tracked: Collection[int] = ()) -> Recursion | None:
    """The recursion, or None if the steps have different patterns or do not depend on earlier ones.

    Args:
        steps: for each step, which results of the program belong to it.
        tracked: inputs that the pattern marks.

    Cost: one pass over the equations of all steps; nothing is compiled.
    """
    program = flat(closed)
    return _recursion(program, [[program.results[i] for i in step] for step in steps],
                      {program.inputs[i] for i in tracked})


def _recursion(program: Program, steps: Sequence[Sequence[int]],
               tracked: Collection[int] = ()) -> Recursion | None:
    """As `recursion`, given the places of the results."""
    if len({tuple(program.avals[place].shape for place in places) for places in steps}) != 1:
        return None
    makers, digests, done = program.makers(), Digests(), set[tuple[int, ...]]()
    home: dict[Leaf, tuple[int, int]] = {}  # place → the step that computes it, renumbered place
    keys, works = [], []
    for t, places in enumerate(steps):
        lines = needed(makers, places, done)
        key, work = pattern(program, lines, places, digests, tracked)
        keys.append(key)
        works.append(work)
        home |= {place: (t, slot) for line, new_line in zip(lines, work.lines, strict=True)
                 for place, slot in zip(line.results, new_line.results, strict=True)}
    first = len(keys) - 1
    while first and keys[first - 1] == keys[-1]:
        first -= 1
    # the first steps may differ
    for start in range(first, min(first + 3, len(steps) - MIN_STEPS + 1)):
        slots = _slots(works[start:], start, home)
        if slots is not None:
            return Recursion(program, steps[:start], works[-1], len(steps) - start, *slots)
    return None


def _slots(works: Sequence[Work], start: int, home: Mapping[Leaf, tuple[int, int]]
           ) -> tuple[dict, dict, dict] | None:
    """The leaves of steps of one pattern, sorted into (same, each, carried); see `Recursion`."""
    same, each, carried = dict[int, Leaf](), dict[int, Sequence[Leaf]](), dict[int, _Carried]()
    for leaf in works[0].leaves:
        leaves = [work.leaves[leaf] for work in works]
        origins = [home.get(place, (-1, -1)) for place in leaves]
        if len(set(leaves)) == 1:
            same[leaf] = leaves[0]
        elif origins[-1][0] < start:
            if any(t >= start for t, _ in origins):
                return None
            each[leaf] = leaves
        else:
            lag = start + len(works) - 1 - origins[-1][0]
            if any(t >= start for t, _ in origins[:lag]) or any(
                origins[k] != (start + k - lag, origins[-1][1]) for k in range(lag, len(works))
            ):
                return None
            carried[leaf] = _Carried(origins[-1][1], tuple(leaves[:lag]))
    return (same, each, carried) if carried else None


def evaluated(closed: ClosedJaxpr, inputs: Sequence[jax.Array]) -> list[jax.Array]:
    """The results of a program; recursions whose steps it stacks are computed by a scan."""
    program = flat(closed)
    return _evaluated(program, program.results, lambda i: inputs[i])


def _evaluated(program: Program, wanted: Sequence[int],
               give: Callable[[int], jax.Array]) -> list[jax.Array]:
    """As `evaluated`, given places."""
    makers, known = (program.makers(), dict[int, ArrayLike]())
    while True:
        lines = program.restricted(wanted, known)
        joint = next(((line, loop) for line in reversed(lines)
                      if (loop := _joined(program, line, makers)) is not None), None)
        if joint is None:
            break
        (eqn, _, (place,)), loop = joint
        steps, = loop.values(give, lambda inputs: jnp.stack([jnp.asarray(give(i)) for i in inputs]))
        known[place] = jnp.moveaxis(steps, 0, _axis(eqn)).reshape(program.avals[place].shape)
    used = {*wanted, *(place for line in lines for place in line.operands)}
    known |= {place: give(i) for i, place in enumerate(program.inputs) if place in used}
    return program.at(wanted, known)


def recursive(closed: ClosedJaxpr) -> bool:
    """Whether a program stacks the steps of a recursion."""
    program = flat(closed, idle=True)
    makers = program.makers()
    return any(_joined(program, line, makers) is not None for line in program.lines)


def _joined(program: Program, line: Line, makers: Mapping[int, Line]) -> Recursion | None:
    """The recursion whose steps a line stacks or concatenates; None if there is none."""
    joins = line.eqn.primitive.name in ("stack", "concatenate")
    sides = _sides(program, line, makers) if joins else []
    return _recursion(program, [(place,) for place in sides]) if sides else None


def _axis(eqn: JaxprEqn) -> int:
    return eqn.params["axis" if eqn.primitive.name == "stack" else "dimension"]


def _sides(program: Program, line: Line, makers: Mapping[int, Line]) -> list[int]:
    """The operands that a line stacks or concatenates (nested concatenations are flattened); empty
    if they are fewer than MIN_STEPS or of different shapes."""
    out, stack = [], list(reversed(line.operands))
    while stack:
        place = stack.pop()
        maker = makers.get(place)
        if maker is not None and maker.eqn.primitive.name == "concatenate" and (
            line.eqn.primitive.name == "concatenate" and _axis(maker.eqn) == _axis(line.eqn)
        ):
            stack += reversed(maker.operands)
        else:
            out.append(place)
    return out if len(out) >= MIN_STEPS and len({program.avals[i].shape for i in out}) == 1 else []
