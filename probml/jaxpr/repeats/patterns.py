"""The computation of a result as a pattern: two results have the same pattern if they are computed
by the same primitives, with the same parameters and shapes, from operands in the same order. The
leaves (the inputs and constants that the computations start from) may differ.

The unrolled steps of a Python loop thus become one step for many operands, which is traced,
compiled and differentiated once: `y[3]` and `y[4]` differ by a number, `mean[z_3]` and `mean[z_4]`
by an input. Slices of one size have the same pattern; their starts are leaves.
"""

import itertools
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.typing import ArrayLike

from probml.jaxpr.program import RULES, Line, Program, bind, flat, flatten

Leaf = int | tuple[int, ...]  # a place of the program, or the start indices of a slice


class Work(NamedTuple):
    """The lines that compute some results, renumbered in the order in which they occur.

    Attributes:
        leaves: renumbered place → the leaf that it starts from. results: renumbered places.
    """

    lines: tuple[Line, ...]
    leaves: dict[int, Leaf]
    results: tuple[int, ...]


def number(value: ArrayLike, aval: ShapedArray) -> np.ndarray:
    """A constant as a NumPy array; a tracer or a random key as it is."""
    if isinstance(value, jax.core.Tracer) or jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        return value
    return np.asarray(value, aval.dtype)


def stacked(values: Sequence[ArrayLike]) -> jax.Array:
    """Values of the same shape, stacked along a new first axis; constants give one constant."""
    if all(isinstance(value, np.ndarray) for value in values):
        return jnp.asarray(np.stack(values))
    return jnp.stack(values)


def needed(makers: Mapping[int, Line], places: Sequence[int],
           done: set[tuple[int, ...]] | None = None) -> list[Line]:
    """The lines that compute some places, each after those it depends on, in depth-first order of
    the operands: an order that does not depend on what else the program computes.

    Args:
        makers: place → the line that computes it.
        done: results of lines to leave out; those of the lines found are added.
    """
    done = set() if done is None else done
    lines: list[Line] = []
    stack = [(place, False) for place in reversed(places)]
    while stack:
        place, ready = stack.pop()
        line = makers.get(place)
        if line is None or line.results in done:
            continue
        if ready:
            done.add(line.results)
            lines.append(line)
        else:
            stack.append((place, True))
            stack += [(operand, False) for operand in reversed(line.operands)]
    return lines


def pattern(program: Program, lines: Sequence[Line], results: Sequence[int], digests: "Digests",
            tracked: Collection[int]) -> tuple[Hashable, Work]:
    """The pattern of some results as a hashable key, and their renumbered lines.

    Args:
        tracked: places of inputs that the key marks.
    """
    constants, count = {place for place, _ in program.constants}, itertools.count()
    renumbered: dict[int, int] = {}
    leaves: dict[int, Leaf] = {}
    key: list[Hashable] = []
    new_lines = []

    def of(place: int) -> int:
        if place in renumbered:
            return renumbered[place]
        index = next(count)
        leaves[index] = place
        key.append((place in tracked, _shape(program.avals[place])))
        if place not in constants:  # equal constants may differ in another result
            renumbered[place] = index
        return index

    for eqn, operands, outputs in lines:
        name, params, inputs = eqn.primitive.name, eqn.params, [*map(of, operands)]
        if name == "slice" and params.get("strides") is None:
            inputs.append(next(count))
            leaves[inputs[-1]] = tuple(params["start_indices"])
            params = {}  # the shape of the result gives the size of the slice
        renumbered |= {place: next(count) for place in outputs}
        key.append((name, digests.of_params(name, params), *inputs,
                    *(_shape(program.avals[place]) for place in outputs)))
        new_lines.append(Line(eqn, tuple(inputs), tuple(renumbered[place] for place in outputs)))
    new_results = tuple(map(of, results))
    return (*key, new_results), Work(tuple(new_lines), leaves, new_results)


def _shape(aval: ShapedArray) -> Hashable:
    return aval.shape, aval.dtype


def computed(lines: Sequence[Line], values: Mapping[int, ArrayLike]) -> dict[int, jax.Array]:
    """The values that the lines of a pattern compute: renumbered place → value.

    Args:
        values: of the leaves. The start of a slice is a NumPy array if it is the same for all.
    """
    known, new_values = dict(values), {}
    for eqn, operands, results in lines:
        ins = [known[i] for i in operands]
        if len(ins) == len(eqn.invars):
            outputs = bind(eqn, ins)
        elif isinstance(ins[-1], np.ndarray):
            outputs = bind(eqn, ins[:-1])
        else:
            outputs = [lax.dynamic_slice(ins[0], list(ins[1]), eqn.outvars[0].aval.shape)]
        new_values |= zip(results, outputs, strict=True)
        known |= zip(results, outputs, strict=True)
    return new_values


class Digests:
    """Hashable keys of the parameters of equations, with the programs inside calls and loops; each
    program is read once."""

    def __init__(self) -> None:
        # id → (the program, kept alive so that its id is not reused, its key)
        self.digests: dict[int, tuple[object, Hashable]] = {}

    def of_params(self, name: str, params: Mapping[str, Any]) -> Hashable:
        """The key of the parameters of an equation. The rules of custom derivatives are identified
        by where they are defined, because JAX creates new objects at every call."""
        return tuple((key, self._of(value, name in RULES)) for key, value in sorted(params.items()))

    def _of(self, value: object, by_source: bool) -> Hashable:
        if isinstance(value, ClosedJaxpr | Jaxpr):
            if id(value) not in self.digests:
                self.digests[id(value)] = value, self._program(value, by_source)
            return self.digests[id(value)][1]
        if isinstance(value, tuple | list):
            return tuple(self._of(item, by_source) for item in value)
        if isinstance(value, np.ndarray):
            return value.dtype.str, value.shape, value.tobytes()
        if by_source and not isinstance(value, bool | int | float | str | None):
            return type(value).__module__, type(value).__qualname__
        try:
            hash(value)
        except TypeError:
            return id(value)
        return type(value), value

    def _program(self, value: object, by_source: bool) -> Hashable:
        """The key of a program; equal programs have equal keys."""
        closed = value if isinstance(value, ClosedJaxpr) else ClosedJaxpr(value, ())
        program = flatten(closed)
        constants = [(place, number(const, program.avals[place]))
                     for place, const in program.constants]
        return (str(closed.jaxpr.debug_info.func_src_info) if by_source else "", program.results,
                *((place, self._of(array, False) if isinstance(array, np.ndarray) else id(array))
                  for place, array in constants),
                *map(_shape, closed.in_avals),
                *((eqn.primitive.name, self.of_params(eqn.primitive.name, eqn.params), operands,
                   *(_shape(var.aval) for var in eqn.outvars))
                  for eqn, operands, _ in program.lines))


class EquivalentResults:
    """Results of one program that have the same pattern.

    Attributes:
        outputs: their numbers. tracked: for each its tracked inputs, in the order of the pattern.
    """

    def __init__(self, program: Program, outputs: Sequence[int], works: Sequence[Work],
                 tracked: Collection[int]):
        self._works, self._constants, self._avals = works, dict(program.constants), program.avals
        self._inputs: dict[Leaf, int] = {place: i for i, place in enumerate(program.inputs)}
        self._places = [slot for slot, leaf in works[0].leaves.items() if leaf in tracked]
        self.outputs = tuple(outputs)
        self.tracked = tuple(tuple(self._inputs[work.leaves[i]] for i in self._places)
                             for work in works)

    def __call__(self, inputs: Sequence[jax.Array | None], *states: jax.Array) -> jax.Array:
        """The values of all results, (results, *shape of one).

        Args:
            inputs: values of the program's inputs; those of tracked ones are not used.
            states: values in place of the tracked inputs, the same for all results.
        """
        return self._over(inputs, dict(zip(self._places, states, strict=True)), {})

    def at_each(self, inputs: Sequence[jax.Array | None],
                columns: Sequence[jax.Array]) -> jax.Array:
        """The values of all results, each with its own values in place of the tracked inputs.

        Args:
            columns: for each tracked input of the pattern (results, *shape of the input).
        """
        return self._over(inputs, {}, dict(zip(self._places, columns, strict=True)))

    def _over(self, inputs: Sequence[jax.Array | None], fixed: dict[int, jax.Array],
              varied: dict[int, jax.Array]) -> jax.Array:
        work, fixed, varied = self._works[0], dict(fixed), dict(varied)
        for slot in work.leaves.keys() - self._places:
            leaves = [member.leaves[slot] for member in self._works]
            values = [self._value(leaf, inputs) for leaf in leaves]
            if len(set(leaves)) == 1:
                fixed[slot] = values[0]
            else:
                varied[slot] = stacked(values)

        def result(row: dict[int, jax.Array]) -> jax.Array:
            known = fixed | row
            return jnp.asarray((known | computed(work.lines, known))[work.results[0]])

        if not varied:  # all results are equal
            single = result({})
            return jnp.broadcast_to(single, (len(self.outputs), *jnp.shape(single)))
        return jax.vmap(result)(varied)

    def _value(self, leaf: Leaf, inputs: Sequence[jax.Array | None]) -> ArrayLike:
        if isinstance(leaf, tuple):
            return np.array(leaf, np.int32)
        if leaf in self._inputs:
            return inputs[self._inputs[leaf]]
        return number(self._constants[leaf], self._avals[leaf])


def equivalent_results(closed: ClosedJaxpr, tracked: Collection[int]) -> list[EquivalentResults]:
    """The results of a program in classes of the same pattern, in order.

    Args:
        tracked: inputs that results may have different ones of, such as those that are summed
            over, and whose values are given at each call.

    Cost: one pass over the equations of each result; nothing is compiled.
    """
    program, digests = flat(closed), Digests()
    makers, places_in = program.makers(), {program.inputs[i] for i in tracked}
    classes: dict[Hashable, dict[int, Work]] = {}
    for output, place in enumerate(program.results):
        key, work = pattern(program, needed(makers, [place]), [place], digests, places_in)
        classes.setdefault(key, {})[output] = work
    return [EquivalentResults(program, [*works], [*works.values()], places_in)
            for works in classes.values()]
