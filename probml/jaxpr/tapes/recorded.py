"""A traced program as a tape: a list of NumPy functions that run one after another.

XLA takes about half a millisecond per equation to lower and compile a program, NumPy some
microseconds to run it. So a program that runs once in a fit or a query, on few numbers, finishes
before it would be compiled. The arithmetic is the same, each operation once, and agrees to rounding
(tests/jaxpr/test_tapes.py). A tape is plain data (names of primitives, their parameters, places and
constants) that can be stored in a file.

Programs with unsupported primitives (callbacks into Python, rejection sampling, some
decompositions) have no tape.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn
from jax.typing import ArrayLike

from probml.jaxpr.primitives import OPERATIONS, name_of
from probml.jaxpr.program import EVERY_CALL, Scan, While, flatten, needed_lines
from probml.jaxpr.tapes import randoms
from probml.jaxpr.tapes.operation import (
    SECONDS_PER_CALL,
    Aval,
    Operation,
    Step,
    TooLong,
    Unsupported,
)

KINDS = "biuf"  # of dtypes: booleans, integers, floats
ASSUMED_ITERATIONS = 10  # of a loop of unknown length, for the estimate of seconds
MAX_LOOP_SECONDS = 0.2  # estimated, after which such a loop is given up
SECONDS_PER_ITERATION = 4 * SECONDS_PER_CALL  # of a loop, or a branch, without its body
MAX_FOLDED_ENTRIES = 4096  # of a result of constants that is computed when recording


def _operation(name: str) -> Operation:
    return LOOPS.get(name) or OPERATIONS[name]


def _bound(step: Step) -> Callable:
    """The function of a step."""
    return _operation(step.name).build(step.ins, step.outs, **step.params)


@dataclass(frozen=True, eq=False)
class Tape:
    """A program.

    Attributes:
        steps: in order.
        start: (place, value) of constants. size: the number of places.
        inputs: the place and dtype of each argument, dtype None for random keys; None: it is
            unused.
        outputs: the place, shape and dtype of each result. keys: which are random keys, returned
            as their words.
        seconds: the estimate for a run.
    """

    steps: tuple[Step, ...]
    start: tuple[tuple[int, np.ndarray], ...]
    size: int
    inputs: tuple[tuple[int, np.dtype | None] | None, ...]
    outputs: tuple[tuple[int, Aval], ...]
    seconds: float
    keys: tuple[bool, ...]

    @functools.cached_property
    def _code(self) -> list[tuple]:
        """Each step as (function, places of operands, of results, the dtype of the result; None if
        it has several, places that no later step uses)."""
        code, live = [], {place for place, _ in self.outputs}
        for step in self.steps[::-1]:
            freed = set(step.operands).union(step.results) - live
            live |= freed
            dtype = None if _operation(step.name).several else step.outs[0].dtype
            code.append((_bound(step), step.operands, step.results, dtype, tuple(freed)))
        return code[::-1]

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_code"}

    def run(self, args: Sequence[jax.Array]) -> list[np.ndarray]:
        """The results, in new arrays.

        Raises:
            TooLong: a loop of unknown length has run for too many iterations, a number that does
                not depend on the machine.
        """
        values = [None if place is None else randoms.keys_to_integers(arg) if place[1] is None
                  else np.asarray(arg, place[1])
                  for place, arg in zip(self.inputs, args, strict=True)]
        with np.errstate(all="ignore"):  # infinities and NaN are intended, as in XLA
            results = [randoms.key_words(value) if key else value
                       for value, key in zip(self.go(values), self.keys, strict=True)]
        shared_ids = {*map(id, values), *(id(value) for _, value in self.start)}
        return [value if key else _as_own_array(value, aval, id(value) in shared_ids)
                for value, (_, aval), key in zip(results, self.outputs, self.keys, strict=True)]

    def go(self, args: Sequence[Any]) -> list[np.ndarray]:
        """The results, which may be arguments or constants."""
        values: list[Any] = [None] * self.size
        for place, value in self.start:
            values[place] = value
        for target, value in zip(self.inputs, args, strict=True):
            if target is not None:
                values[target[0]] = value
        for function, operands, results, dtype, freed in self._code:
            found = function(*[values[i] for i in operands])
            if dtype is None:
                for place, value in zip(results, found, strict=True):
                    values[place] = value
            else:
                values[results[0]] = (found if found.dtype is dtype
                                      else found.astype(dtype, copy=False))
            found = None
            for place in freed:  # memory that is used again is in the processor's cache
                values[place] = None
        return [values[place] for place, _ in self.outputs]


def _as_own_array(value: object, aval: Aval, given: bool) -> np.ndarray:
    """A result as an array that shares no memory with others.

    Args:
        given: it is an argument or a constant, and must be copied.
    """
    array = np.asarray(value, aval.dtype)
    array = array if array.shape == aval.shape else array.reshape(aval.shape)
    is_owned = array.flags.owndata and array.flags.c_contiguous and not given
    return array if is_owned else np.array(array, order="C")


# loops and branches, whose bodies are tapes


def _scanned(ins: object, outs: Sequence[Aval], body: Tape, constants: int, carries: int,
             length: int, reverse: bool) -> Callable:
    def scanned(*operands: np.ndarray):
        consts, state = list(operands[:constants]), list(operands[constants : constants + carries])
        xs, outputs = operands[constants + carries :], []
        for i in reversed(range(length)) if reverse else range(length):
            results = body.go([*consts, *state, *[x[i] for x in xs]])
            state = results[:carries]
            outputs.append(results[carries:])
        if reverse:
            outputs.reverse()
        stacked = [np.stack(column) for column in zip(*outputs, strict=True)] if outputs else [
            np.zeros(aval.shape, aval.dtype) for aval in outs[carries:]]
        return [*state, *stacked]

    return scanned


def _repeated(ins: object, outs: object, condition: Tape, body: Tape, asked: int,
              constants: int) -> Callable:
    limit = max(ASSUMED_ITERATIONS,
                int(MAX_LOOP_SECONDS / (condition.seconds + body.seconds + SECONDS_PER_ITERATION)))

    def repeated(*operands: np.ndarray):
        cond_consts, body_consts = operands[:asked], operands[asked : asked + constants]
        state: Sequence[np.ndarray] = operands[asked + constants :]
        for _ in range(limit):
            on = condition.go([*cond_consts, *state])[0]
            if not np.any(on):
                return state
            new = body.go([*body_consts, *state])
            # of batched loops those that are still running
            state = new if not np.ndim(on) else [
                np.where(np.reshape(on, np.shape(on) + (1,) * (np.ndim(a) - np.ndim(on))), a, b)
                for a, b in zip(new, state, strict=True)]
        raise TooLong

    return repeated


def _branched(ins: object, outs: object, branches: tuple[Tape, ...]) -> Callable:
    return lambda which, *operands: branches[
        min(max(int(which), 0), len(branches) - 1)].go(operands)


LOOPS: dict[str, Operation] = {
    "scan": Operation(_scanned, several=True, cost=lambda ins, outs, body, constants, carries,
                      length, reverse: length * (SECONDS_PER_ITERATION + body.seconds)),
    "while": Operation(_repeated, several=True, cost=lambda ins, outs, condition, body, asked,
                       constants: ASSUMED_ITERATIONS * (
                           condition.seconds + body.seconds + SECONDS_PER_ITERATION)),
    "cond": Operation(_branched, several=True, cost=lambda ins, outs, branches: (
        SECONDS_PER_ITERATION + max(branch.seconds for branch in branches))),
}


# from a traced program


def record(closed: ClosedJaxpr, limit: float) -> Tape | None:
    """The tape of a program; None where there is none, or it would take more than `limit` seconds.
    """
    try:
        tape = _Recorder().record(closed)
    except Unsupported:
        return None
    return tape if tape.seconds <= limit else None


class _Recorder:
    """Records the tape of a program from its flat form: equations of constants are evaluated, and
    unused ones left out."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.avals: list[Aval | None] = []
        self.keys: set[int] = set()  # the places of random keys
        self.constants: dict[int, np.ndarray] = {}

    def record(self, closed: ClosedJaxpr) -> Tape:
        """The tape of a program.

        Raises:
            Unsupported: a primitive that is not implemented in NumPy.
        """
        places = [self._place(var.aval) for var in closed.jaxpr.invars]
        results = self._walk(closed, places)
        steps = needed_lines(self.steps, results)
        seconds = sum(_operation(step.name).cost(step.ins, step.outs, **step.params)
                      for step in steps)
        out_avals, keys = tuple(map(self._required_aval, results)), tuple(r in self.keys
                                                                          for r in results)
        live = {place for step in steps for place in step.operands} | {*results}
        inputs = [(place, None if place in self.keys else self._required_aval(place).dtype)
                  if place in live else None for place in places]
        start = tuple((place, value) for place, value in self.constants.items() if place in live)
        return Tape(tuple(steps), start, len(self.avals), tuple(inputs),
                    tuple(zip(results, out_avals, strict=True)), seconds, keys)

    def _place(self, aval: object) -> int:
        """A new place for an array of this shape and dtype."""
        shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
        if shape is not None and randoms.is_supported_key(dtype):
            self.keys.add(len(self.avals))
            dtype = randoms.KEY
        known = None
        if isinstance(dtype, np.dtype) and dtype.kind in KINDS and shape is not None:
            known = Aval(tuple(shape), dtype)
        self.avals.append(known)
        return len(self.avals) - 1

    def _required_aval(self, place: int) -> Aval:
        aval = self.avals[place]
        if aval is None:
            raise Unsupported("an array of another kind")
        return aval

    def _constant(self, value: ArrayLike, aval: ShapedArray) -> int:
        place = self._place(aval)
        if place in self.keys:
            self.constants[place] = randoms.keys_to_integers(value)
        elif self.avals[place] is not None:
            self.constants[place] = np.asarray(value, aval.dtype)
        return place

    def _walk(self, closed: ClosedJaxpr, places: Sequence[int]) -> list[int]:
        """Adds the steps of a program with its arguments at these places; returns the places of the
        results."""
        program = flatten(closed, EVERY_CALL)
        lookup, constants = dict(zip(program.inputs, places, strict=True)), dict(program.constants)

        def read(place: int, aval: object) -> int:
            if place not in lookup:
                lookup[place] = self._constant(constants[place], aval)
            return lookup[place]

        for eqn, inputs, outputs in program.lines:
            if eqn.effects:
                raise Unsupported("a program with effects")
            operands = [read(place, atom.aval)
                        for place, atom in zip(inputs, eqn.invars, strict=True)]
            branch = self._known_branch(eqn, operands)
            results = self._step(eqn, operands) if branch is None else self._walk(branch,
                                                                                  operands[1:])
            lookup.update(zip(outputs, results, strict=True))
        return list(map(read, program.results, closed.out_avals))

    def _known_branch(self, eqn: JaxprEqn, operands: Sequence[int]) -> ClosedJaxpr | None:
        """The branch that is taken, if that is known."""
        if name_of(eqn) != "cond" or operands[0] not in self.constants:
            return None
        branches, which = eqn.params["branches"], int(self.constants[operands[0]])
        return branches[min(max(which, 0), len(branches) - 1)]

    def _step(self, eqn: JaxprEqn, operands: Sequence[int]) -> Sequence[int]:
        name, params = name_of(eqn), _params(eqn)
        results = tuple(self._place(var.aval) for var in eqn.outvars)
        step = Step(name, params, tuple(operands), results,
                    tuple(map(self._required_aval, operands)),
                    tuple(map(self._required_aval, results)))
        function = _bound(step)  # which may refuse
        if (all(place in self.constants for place in operands) and name not in LOOPS
                and all(aval.size <= MAX_FOLDED_ENTRIES for aval in step.outs)):
            with np.errstate(all="ignore"):
                values = function(*[self.constants[place] for place in operands])
            values = values if _operation(name).several else [values]
            for place, value, aval in zip(results, values, step.outs, strict=True):
                self.constants[place] = np.asarray(value, aval.dtype)
        else:
            self.steps.append(step)
        return results


def _params(eqn: JaxprEqn) -> dict[str, Any]:
    """The parameters of an equation that its NumPy function takes.

    Raises:
        Unsupported: the primitive is not implemented.
    """
    name = name_of(eqn)
    if name == "scan":
        parts = Scan.of(eqn)
        return {"body": _Recorder().record(parts.body), "constants": parts.constants,
                "carries": parts.carries, "length": parts.length,
                "reverse": eqn.params["reverse"]}
    if name == "while":
        loop = While.of(eqn)
        return {"condition": _Recorder().record(loop.condition),
                "body": _Recorder().record(loop.body), "asked": loop.cond_constants,
                "constants": loop.constants}
    if name == "cond":
        return {"branches": tuple(_Recorder().record(b) for b in eqn.params["branches"])}
    known = OPERATIONS.get(name)
    if known is None:
        raise Unsupported(name)
    return {key: eqn.params[key] for key in known.keys if key in eqn.params}
