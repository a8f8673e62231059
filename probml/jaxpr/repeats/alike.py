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

from probml.jaxpr.repeats.patterns import Digests, Work, needed, number, pattern, result_of, stacked


class Alike:
    """Results of one program that are alike.

    Args:
        outputs: which; tracked: for each the inputs to be told apart, in the places where the
            equations take them.
    """

    def __init__(self, outputs: Sequence[int], tracked: Sequence[tuple[int, ...]],
                 works: Sequence[Work], inputs: dict, constants: dict, places: Sequence[int]):
        self.outputs, self.tracked = tuple(outputs), tuple(tracked)
        self._works, self._inputs, self._constants = works, inputs, constants
        self._places = list(places)

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
        fixed, varied = dict(fixed), dict(varied)
        for leaf in range(len(self._works[0].leaves)):
            if leaf not in fixed and leaf not in varied:
                same, values = self._values(leaf, inputs)
                if same:
                    fixed[leaf] = values[0]
                else:
                    varied[leaf] = stacked(values)
        work = self._works[0]
        if not varied:  # the same numbers for all
            one = result_of(work, fixed, ())
            return jnp.broadcast_to(one, (len(self.outputs), *jnp.shape(one)))
        return jax.vmap(lambda own: result_of(work, fixed | own, tuple(varied)))(varied)

    def _values(self, leaf: int, inputs: Sequence[Any]) -> tuple[bool, list[Any]]:
        """Whether a leaf is the same for all, and what it is for each."""
        found: list[Any] = []
        marks: set[Hashable] = set()
        for work in self._works:
            own = work.leaves[leaf]
            if own.number is not None:
                marks.add((own.number.dtype, own.number.tobytes()))
                found.append(own.number)
            elif own.variable in self._inputs:
                marks.add(self._inputs[own.variable])
                found.append(inputs[self._inputs[own.variable]])
            else:
                value = number(self._constants[own.variable])
                marks.add((value.dtype, value.tobytes()) if isinstance(value, np.ndarray)
                          else id(value))
                found.append(value)
        return len(marks) == 1, found


def alike(closed: ClosedJaxpr, tracked: Collection[int]) -> list[Alike]:
    """The results of a program in classes of those that are alike, in order.

    Args:
        tracked: inputs that are no numbers to be stacked, but told apart, such as those that are
            summed over; two results are alike also where these differ.

    Cost: one pass over the equations of each result; nothing is compiled.
    """
    jaxpr = closed.jaxpr
    made = {var: i for i, eqn in enumerate(jaxpr.eqns) for var in eqn.outvars}
    inputs = {var: i for i, var in enumerate(jaxpr.invars)}
    constants = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    digests = Digests()
    told = {var for var, i in inputs.items() if i in tracked}
    found: dict[Hashable, list] = {}
    for output, atom in enumerate(jaxpr.outvars):
        eqns = [jaxpr.eqns[i] for i in needed(jaxpr, [atom], made)]
        key, work = pattern(eqns, [atom], digests, told)
        found.setdefault(key, []).append((output, work))
    out = []
    for members in found.values():
        works = [work for _, work in members]
        places = [i for i, leaf in enumerate(works[0].leaves)
                  if inputs.get(leaf.variable) in tracked]
        own = [tuple(inputs[work.leaves[i].variable] for i in places) for work in works]
        out.append(Alike([output for output, _ in members], own, works, inputs, constants, places))
    return out
