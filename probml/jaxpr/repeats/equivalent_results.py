"""Results of a program that are computed alike: by the same equations, of other inputs and other
numbers.

What a Python loop writes down step after step is found again as one step for many operands, so that
it is traced, compiled and differentiated once: `y[3]` and `y[4]` differ by a number, `mean[z_3]`
and `mean[z_4]` by an input. Two results are alike if their equations, in order, have the same
primitives, parameters and shapes, and take their operands from the same places; a slice counts by
its size, where it begins is a number.
"""

from collections.abc import Collection, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from probml.jaxpr.program import Program, flat
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


class EquivalentResults:
    """Results of one program that are alike.

    Attributes:
        outputs: which; tracked: for each the inputs to be told apart, in the places where the
            equations take them.
    """

    def __init__(self, program: Program, outputs: Sequence[int], works: Sequence[Work],
                 tracked: Collection[int]):
        self._works, self._constants, self._avals = works, dict(program.constants), program.avals
        self._inputs: dict[Leaf, int] = {place: i for i, place in enumerate(program.inputs)}
        self._places = [own for own, leaf in works[0].leaves.items() if leaf in tracked]
        self.outputs = tuple(outputs)
        self.tracked = tuple(tuple(self._inputs[work.leaves[i]] for i in self._places)
                             for work in works)

    def __call__(self, inputs: Sequence[Any], states: Sequence[jax.Array]) -> jax.Array:
        """All of them, (results, *shape of one).

        Args:
            inputs: values of the program's inputs; of the tracked ones none is read.
            states: in the place of the tracked ones, for all results the same.
        """
        return self._over(inputs, dict(zip(self._places, states, strict=True)), {})

    def at_each(self, inputs: Sequence[Any], columns: Sequence[jax.Array]) -> jax.Array:
        """The same with numbers of each result in the place of the tracked inputs.

        Args:
            columns: a place each, (results, *shape of the input).
        """
        return self._over(inputs, {}, dict(zip(self._places, columns, strict=True)))

    def _over(self, inputs: Sequence[Any], fixed: dict[int, Any],
              varied: dict[int, jax.Array]) -> jax.Array:
        work, fixed, varied = self._works[0], dict(fixed), dict(varied)
        for own in work.leaves.keys() - self._places:
            leaves = [each.leaves[own] for each in self._works]
            values = [self._value(leaf, inputs) for leaf in leaves]
            if len(set(leaves)) == 1:
                fixed[own] = values[0]
            else:
                varied[own] = stacked(values)

        def result(own: dict[int, Any]) -> jax.Array:
            held = fixed | own
            return jnp.asarray((held | computed(work.lines, held))[work.results[0]])

        if not varied:  # the same numbers for all
            one = result({})
            return jnp.broadcast_to(one, (len(self.outputs), *jnp.shape(one)))
        return jax.vmap(result)(varied)

    def _value(self, leaf: Leaf, inputs: Sequence[Any]) -> Any:
        if isinstance(leaf, tuple):
            return np.array(leaf, np.int32)
        if leaf in self._inputs:
            return inputs[self._inputs[leaf]]
        return number(self._constants[leaf], self._avals[leaf])


def equivalent_results(closed: ClosedJaxpr, tracked: Collection[int]) -> list[EquivalentResults]:
    """The results of a program in classes of those that are alike, in order.

    Args:
        tracked: inputs that are no numbers to be stacked, but told apart, such as those that are
            summed over; two results are alike also where these differ.

    Cost: one pass over the equations of each result; nothing is compiled.
    """
    program, digests = flat(closed), Digests()
    makers, told = program.makers(), {program.inputs[i] for i in tracked}
    found: dict[Hashable, dict[int, Work]] = {}
    for output, place in enumerate(program.results):
        key, work = pattern(program, needed(makers, [place]), [place], digests, told)
        found.setdefault(key, {})[output] = work
    return [EquivalentResults(program, [*works], [*works.values()], told)
            for works in found.values()]
