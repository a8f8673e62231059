"""Steps of a recursion that a program writes down one after the other, as one step under a scan.

A Python loop that hands on what it has computed, s_t = f(s_{t−1}, y_t; θ), leaves a program that
grows with the loop: volatilities of past returns, levels of exponential smoothing, walks of
standardised steps. The equations of a step are those that its results ask for and no step before
has asked for. Where these are alike (patterns.py), and take from steps before what was made in the
same place so many steps back, one of them is enough: what does not look back is computed of all
steps at once; what was made so and is looked back at, moved along; what is left of the recursion
runs under a scan; and what nothing later asks for is computed of all steps at once again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal

from probml.jaxpr.levels import restrict
from probml.jaxpr.program import bodies
from probml.jaxpr.repeats.patterns import (
    Digests,
    Leaf,
    Work,
    at,
    computed,
    needed,
    number,
    pattern,
    stacked,
)
from probml.jaxpr.walk import equations, evaluate

LEAST = 8  # like steps from which a recursion is worth a scan
JOINTS = ("stack", "concatenate")


class _Carried(NamedTuple):
    """A leaf that is a result of a step before: which, and what the first steps take instead, as
    many as it lies steps back."""

    ref: tuple
    begin: tuple[Leaf, ...]


class Recursion:
    """Steps that are one step under a scan.

    Args:
        before: of the steps before those that are alike, their results.
        work: the equations of one; count: of how many.
        same: leaves that are the same in all steps; each: step by step; carried: from steps before.
    """

    def __init__(self, closed: ClosedJaxpr, before: Sequence[Sequence[Any]], work: Work, count: int,
                 same: Mapping[int, Leaf], each: Mapping[int, Sequence[Leaf]],
                 carried: Mapping[int, _Carried]):
        self._closed, self._before, self._work, self._count = closed, before, work, count
        self._same, self._each, self._carried = same, each, carried

    def values(self, give: Callable[[int], Any],
               column: Callable[[Sequence[int]], jax.Array]) -> list[jax.Array]:
        """The results of all steps, for each result of a step (steps, *shape).

        Args:
            give: an input of the program, by its number; column: several, along a first axis.
        """
        read = self._reader(give)
        same = {leaf: _value(own, read) for leaf, own in self._same.items()}
        columns = {leaf: self._column(own, read, column) for leaf, own in self._each.items()}
        begin = {leaf: [jnp.asarray(_value(one, read)) for one in own.begin]
                 for leaf, own in self._carried.items()}
        run = _Run(self._work, self._count, same, columns)
        run.fill(dict(self._carried), begin)
        out = []
        for place, ref in enumerate(self._work.refs[-1]):
            own = run.whole(ref)
            first = [jnp.asarray(read(outs[place]), own.dtype)[None] for outs in self._before]
            out.append(jnp.concatenate([*first, own]) if first else own)
        return out

    def _reader(self, give: Callable[[int], Any]) -> Callable[[Any], Any]:
        """Values of the program's variables that are made before the run, each computed once."""
        jaxpr = self._closed.jaxpr
        held = dict(zip(jaxpr.constvars, self._closed.consts, strict=True))
        inputs = {var: i for i, var in enumerate(jaxpr.invars)}
        leaves = [*self._same.values(), *(one for own in self._each.values() for one in own),
                  *(one for own in self._carried.values() for one in own.begin)]
        atoms = [*(leaf.variable for leaf in leaves if leaf.variable is not None),
                 *(atom for outs in self._before for atom in outs)]
        made = [atom for atom in dict.fromkeys(a for a in atoms if not isinstance(a, Literal))
                if atom not in held and atom not in inputs]
        if made:
            program = ClosedJaxpr(jaxpr.replace(outvars=made), self._closed.consts)
            part, takes = restrict(program, range(len(made)))
            held |= zip(made, evaluated(part, [give(i) for i in takes]), strict=True)

        def read(atom: Any) -> Any:
            if isinstance(atom, Literal):
                return np.asarray(atom.val, atom.aval.dtype)
            return held[atom] if atom in held else give(inputs[atom])

        return read

    def _column(self, own: Sequence[Leaf], read: Callable, column: Callable) -> jax.Array:
        inputs = {var: i for i, var in enumerate(self._closed.jaxpr.invars)}
        if all(leaf.variable in inputs for leaf in own):
            return column([inputs[leaf.variable] for leaf in own])
        return stacked([_value(leaf, read) for leaf in own])


class _Run:
    """The steps that are alike, as far as they are computed."""

    def __init__(self, work: Work, count: int, same: dict[int, Any], columns: dict[int, jax.Array]):
        self.work, self.count, self.same, self.columns = work, count, same, columns
        self.left = list(range(len(work.eqns)))
        self.still: dict[int, Sequence[Any]] = {}  # the same of all steps
        self.made: dict[int, Sequence[Any]] = {}  # of each, steps first

    def fill(self, carried: dict[int, _Carried], begin: Mapping[int, list[jax.Array]]) -> None:
        """Compute all equations."""
        while True:
            self._ready()
            moved = [leaf for leaf, own in carried.items() if own.ref[1] not in self.left]
            if not moved:
                break
            for leaf in moved:
                whole = self.whole(carried.pop(leaf).ref)
                first = jnp.stack(begin[leaf])[: self.count].astype(whole.dtype)
                self.columns[leaf] = jnp.concatenate([first, whole])[: self.count]
        if carried:
            self._scanned(carried, begin)
            self._ready()

    def whole(self, ref: tuple) -> jax.Array:
        """What an operand is in each step."""
        leaf, i = ref[0] == "leaf", ref[1]
        if (i in self.columns) if leaf else (i in self.made):
            return at(ref, self.columns, self.made)
        one = jnp.asarray(at(ref, self.same, self.still))
        return jnp.broadcast_to(one, (self.count, *one.shape))

    def _operands(self, i: int) -> tuple[tuple, ...]:
        own = self.work.starts.get(i)
        return (*self.work.refs[i], *(() if own is None else (("leaf", own),)))

    def _ready(self) -> None:
        """Compute what is left and looks at nothing that is not known."""
        still, each = set(self.still), set(self.made)
        for i in self.left:
            kinds = {"same" if (ref[1] in self.same if ref[0] == "leaf" else ref[1] in still)
                     else "each" if (ref[1] in self.columns if ref[0] == "leaf" else ref[1] in each)
                     else "late" for ref in self._operands(i)}
            if "late" not in kinds:
                (each if "each" in kinds else still).add(i)
        once = [i for i in self.left if i in still]
        self.still |= computed(self.work, once, self.same, (), self.still)
        many = [i for i in self.left if i in each]
        if many:
            def one(own: tuple[dict, dict]) -> dict:
                return computed(self.work, many, self.same | own[0], self.columns,
                                self.still | own[1])

            self.made |= jax.vmap(one)((self.columns, self.made))
        self.left = [i for i in self.left if i not in still and i not in each]

    def _scanned(self, carried: Mapping[int, _Carried], begin: Mapping[int, list]) -> None:
        """Run what steps hand on."""
        asked = {own.ref[1] for own in carried.values()}
        core: list[int] = []
        for i in reversed(self.left):
            if i in asked:
                core.append(i)
                asked |= {ref[1] for ref in self.work.refs[i] if ref[0] == "made"}
        core.reverse()
        looks = {ref for i in core for ref in self._operands(i)}
        columns = {leaf: value for leaf, value in self.columns.items() if ("leaf", leaf) in looks}
        made = {i: value for i, value in self.made.items() if i in {ref[1] for ref in looks
                                                                    if ref[0] == "made"}}

        def step(windows: dict[int, list], now: tuple[dict, dict]) -> tuple[dict, tuple]:
            own, before = now
            taken = {leaf: window[0] for leaf, window in windows.items()}
            leaves, known = self.same | own | taken, self.still | before
            found = computed(self.work, core, leaves, (*self.columns, *carried), known)
            after = {leaf: [*window[1:], jnp.asarray(at(carried[leaf].ref, leaves, known | found),
                                                     window[0].dtype)]
                     for leaf, window in windows.items()}
            return after, (taken, found)

        windows = {leaf: [jnp.asarray(one, one.dtype) for one in begin[leaf]] for leaf in carried}
        _, (taken, found) = lax.scan(step, windows, (columns, made), length=self.count)
        self.columns |= taken
        self.made |= found
        self.left = [i for i in self.left if i not in found]


def _value(leaf: Leaf, read: Callable[[Any], Any]) -> Any:
    return number(read(leaf.variable)) if leaf.number is None else leaf.number


def recursion(closed: ClosedJaxpr, steps: Sequence[Sequence[Any]],
              tracked: Collection[int] = ()) -> Recursion | None:
    """The steps of a recursion as one, or None where they are none, or not alike.

    Args:
        steps: for each step its results, variables of the program.
        tracked: inputs that are told from others.

    Cost: one pass over the equations of all steps; nothing is compiled.
    """
    jaxpr, digests, done = closed.jaxpr, Digests(), set[int]()
    if len({tuple(atom.aval.shape for atom in outs) for outs in steps}) != 1:
        return None
    made = {var: i for i, eqn in enumerate(jaxpr.eqns) for var in eqn.outvars}
    told = {jaxpr.invars[i] for i in tracked}
    home: dict[Any, tuple[int, tuple]] = {}
    keys, works = [], []
    for t, outs in enumerate(steps):
        eqns = [jaxpr.eqns[i] for i in needed(jaxpr, outs, made, done)]
        key, work = pattern(eqns, outs, digests, told)
        keys.append(key)
        works.append(work)
        home |= {var: (t, ("made", i, j)) for i, eqn in enumerate(eqns)
                 for j, var in enumerate(eqn.outvars)}
    first = len(keys) - 1
    while first and keys[first - 1] == keys[-1]:
        first -= 1
    for start in range(first, min(first + 3, len(steps) - LEAST + 1)):  # the first may look askew
        found = _slots(works[start:], start, home)
        if found is not None:
            before = [tuple(outs) for outs in steps[:start]]
            return Recursion(closed, before, works[-1], len(steps) - start, *found)
    return None


def _slots(works: Sequence[Work], start: int, home: Mapping[Any, tuple[int, tuple]]
           ) -> tuple[dict, dict, dict] | None:
    """What the leaves of steps that are alike are: (same, each, carried)."""
    same, each, carried = dict[int, Leaf](), dict[int, Sequence[Leaf]](), dict[int, _Carried]()
    for leaf in range(len(works[0].leaves)):
        own = [work.leaves[leaf] for work in works]
        made = [home.get(one.variable, (-1, ())) for one in own]
        if len({_mark(one) for one in own}) == 1:
            same[leaf] = own[0]
        elif made[-1][0] < start:
            if any(t >= start for t, _ in made):
                return None
            each[leaf] = own
        else:
            back = start + len(works) - 1 - made[-1][0]
            if any(t >= start for t, _ in made[:back]) or any(
                made[k] != (start + k - back, made[-1][1]) for k in range(back, len(works))
            ):
                return None
            carried[leaf] = _Carried(made[-1][1], tuple(own[:back]))
    return (same, each, carried) if carried else None


def _mark(leaf: Leaf) -> Any:
    return leaf.variable if leaf.number is None else (leaf.number.dtype, leaf.number.tobytes())


def evaluated(closed: ClosedJaxpr, inputs: Sequence[Any]) -> list[Any]:
    """The results of a program; what stacks the steps of a recursion is computed by a scan."""
    jaxpr = closed.jaxpr
    made = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    for i, eqn in reversed(list(enumerate(jaxpr.eqns))):
        sides = _sides(eqn, made) if eqn.primitive.name in JOINTS else []
        found = recursion(closed, [(atom,) for atom in sides]) if sides else None
        axis = _axis(eqn)
        if found is None or axis is None:
            continue
        steps, = found.values(lambda i: inputs[i],
                              lambda at: jnp.stack([jnp.asarray(inputs[i]) for i in at]))
        shape = eqn.outvars[0].aval.shape
        rest = jaxpr.replace(invars=[*jaxpr.invars, *eqn.outvars],
                             eqns=[*jaxpr.eqns[:i], *jaxpr.eqns[i + 1 :]])
        part, takes = restrict(ClosedJaxpr(rest, closed.consts), range(len(jaxpr.outvars)))
        held = [*inputs, jnp.moveaxis(steps, 0, axis).reshape(shape)]
        return evaluated(part, [held[i] for i in takes])
    return evaluate(closed, *inputs)


def recursive(closed: ClosedJaxpr) -> bool:
    """Whether a program stacks the steps of a recursion."""
    made = {var: eqn for eqn in closed.jaxpr.eqns for var in eqn.outvars}
    joints = (eqn for eqn in closed.jaxpr.eqns if any(
        own.primitive.name in JOINTS for own in (eqn, *_inside(eqn))))
    every = (_sides(eqn, made) for eqn in joints)
    return any(recursion(closed, [(atom,) for atom in sides]) is not None
               for sides in every if sides)


def _inside(eqn: Any) -> list[Any]:
    return [each for body in bodies(eqn) for each in equations(body)]


def _axis(eqn: Any) -> int | None:
    return eqn.params.get("dimension", eqn.params.get("axis"))


def _sides(eqn: Any, made: Mapping[Any, Any]) -> list[Any]:
    """What an equation puts side by side, many of one shape; what is joined in turn, as
    jnp.concatenate does, taken apart; nothing where these are few or not alike."""
    out, left = [], list(reversed(eqn.invars))
    while left:
        atom = left.pop()
        before = None if isinstance(atom, Literal) else made.get(atom)
        if before is not None and before.primitive.name == eqn.primitive.name == "concatenate" and (
            _axis(before) == _axis(eqn)
        ):
            left += reversed(before.invars)
        else:
            out.append(atom)
    return out if len(out) >= LEAST and len({atom.aval.shape for atom in out}) == 1 else []
