"""A tape without repeated numbers: where each entry of a result is a function of the entries at its
place, NumPy repeats what is short along an axis by itself. So arrays stay as short as they were
before they were repeated until something looks at their shape, and what copies or renames is left
out."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from probml.jaxpr.tapes import elementwise
from probml.jaxpr.tapes.operation import Aval, Step

SAME = ("copy", "copy_p", "stop_gradient")


def thinned(steps: Sequence[Step], known: Callable[[int], Aval], new: Callable[[Aval], int],
            constants: dict[int, np.ndarray],
            results: Sequence[int]) -> tuple[list[Step], list[int]]:
    """The same steps on arrays as short as they can be, and where the results are.

    Args:
        known: place → what it holds. new: makes a place.
        constants: place → value; those that are one number throughout are made short.
    """
    thin = _Thin(known, new, constants)
    for step in steps:
        thin.add(step)
    found = [thin.whole(place) for place in results]
    return thin.steps, found


class _Thin:
    def __init__(self, known: Callable[[int], Aval], new: Callable[[Aval], int],
                 constants: dict[int, np.ndarray]):
        self.steps: list[Step] = []
        self._known, self._new, self._constants = known, new, constants
        self._at: dict[int, int] = {}  # place → that of the same array
        self._short: dict[int, tuple[int, ...]] = {}  # place → its shape, where it is short
        self._whole: dict[int, int] = {}  # place → that of the array at its full length
        self._uniform: dict[int, int] = {}  # constant → its one number

    def add(self, step: Step) -> None:
        name, operands = step.name, [self._at.get(i, i) for i in step.operands]
        place = step.results[0] if step.results else -1
        if name == "broadcast_in_dim" and len(operands) == 1:
            (source,), shape = operands, self._shape(operands[0])
            own = [1] * len(step.outs[0].shape)
            for axis, there in enumerate(step.params["broadcast_dimensions"]):
                own[there] = shape[axis]
            self._renamed(step, source, tuple(own), "reshape", {})
        elif name in SAME or name == "convert_element_type" and step.ins[0] == step.outs[0]:
            self._at[place] = operands[0]
        elif name == "transpose" and operands[0] in self._short:
            shape = self._shape(operands[0])
            turned = tuple(shape[i] for i in step.params["permutation"])
            self._renamed(step, operands[0], turned, name, step.params)
        elif name in elementwise.OPERATIONS and operands:
            operands = [self._number(i, step.outs[0]) for i in operands]
            shapes = [self._shape(i) for i in operands]
            self._put(step, operands, shapes, np.broadcast_shapes(*shapes))
        else:
            operands = [self.whole(i) for i in operands]
            self.steps.append(step._replace(operands=tuple(operands)))

    def whole(self, place: int) -> int:
        """Where the array is at its full length."""
        place = self._at.get(place, place)
        if place not in self._short:
            return place
        if place not in self._whole:
            short, full = self._short[place], self._known(place)
            self._whole[place] = there = self._new(full)
            self.steps.append(Step("widened", {}, (place,), (there,),
                                   (Aval(short, full.dtype),), (full,)))
        return self._whole[place]

    def _shape(self, place: int) -> tuple[int, ...]:
        return self._short.get(place) or self._known(place).shape

    def _number(self, place: int, out: Aval) -> int:
        """A constant that is one number throughout, as that number."""
        value = self._constants.get(place)
        if value is None or value.ndim == 0 or value.size < 2 or out.size != value.size:
            return place
        if place not in self._uniform:
            first = value.reshape(-1)[:1]
            same = value.tobytes() == first.tobytes() * value.size
            there = place
            if same:
                there = self._new(Aval((1,) * value.ndim, value.dtype))
                self._constants[there] = first.reshape((1,) * value.ndim).copy()
            self._uniform[place] = there
        return self._uniform[place]

    def _renamed(self, step: Step, source: int, shape: tuple[int, ...], name: str,
                 params: dict[str, Any]) -> None:
        """A step that only gives an array another shape."""
        (place,), (out,) = step.results, step.outs
        before = self._shape(source)
        if before == shape == out.shape:
            self._at[place] = source
            return
        if shape != out.shape:
            self._short[place] = shape
        self.steps.append(Step(name, params, (source,), (place,), (Aval(before, out.dtype),),
                               (Aval(shape, out.dtype),)))

    def _put(self, step: Step, operands: Sequence[int], shapes: Sequence[tuple[int, ...]],
             shape: tuple[int, ...]) -> None:
        """A step of entries by themselves."""
        (place,), (out,) = step.results, step.outs
        if shape != out.shape:
            self._short[place] = shape
        ins = tuple(Aval(s, aval.dtype) for s, aval in zip(shapes, step.ins, strict=True))
        self.steps.append(Step(step.name, step.params, tuple(operands), (place,), ins,
                               (Aval(shape, out.dtype),)))
