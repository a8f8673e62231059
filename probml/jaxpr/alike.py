"""Results of a program that are computed alike: by the same equations, of other inputs and other
numbers.

What a Python loop writes down step after step is found again as one step for many operands, so that
it is traced, compiled and differentiated once: `y[3]` and `y[4]` differ by a number, `mean[z_3]`
and `mean[z_4]` by an input. Two results are alike if their equations, in order, have the same
primitives, parameters and shapes, and take their operands from the same places; a slice counts by
its size, where it begins is a number.
"""

from collections.abc import Collection, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from probml.jaxpr.shortened import bind

_RULES = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")  # derivatives of their own


class _Leaf(NamedTuple):
    """Where a result's equations begin: a variable (an input or a constant), or numbers."""

    variable: Any = None
    number: np.ndarray | None = None


class _Work(NamedTuple):
    """The equations of one result, in order, and what they begin with.

    Attributes:
        refs: for each equation (and, last, for the result) its operands: ("made", equation, which)
            or ("leaf", number).
        starts: equation → the leaf that says where its slice begins.
    """

    eqns: tuple[Any, ...]
    refs: tuple[tuple[tuple, ...], ...]
    leaves: tuple[_Leaf, ...]
    starts: dict[int, int]


class Alike:
    """Results of one program that are alike.

    Args:
        outputs: which; tracked: for each the inputs to be told apart, in the places where the
            equations take them.
    """

    def __init__(self, outputs: Sequence[int], tracked: Sequence[tuple[int, ...]],
                 works: Sequence[_Work], inputs: dict, constants: dict, places: Sequence[int]):
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
                    varied[leaf] = _stacked(values)
        work = self._works[0]
        if not varied:  # the same numbers for all
            one = _run(work, fixed, ())
            return jnp.broadcast_to(one, (len(self.outputs), *jnp.shape(one)))
        return jax.vmap(lambda own: _run(work, fixed | own, tuple(varied)))(varied)

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
                value = _number(self._constants[own.variable])
                marks.add((value.dtype, value.tobytes()) if isinstance(value, np.ndarray)
                          else id(value))
                found.append(value)
        return len(marks) == 1, found


def _number(value: Any) -> Any:
    """A constant as an array of NumPy's, where it is known."""
    if isinstance(value, jax.core.Tracer) or jnp.issubdtype(jnp.result_type(value),
                                                           jax.dtypes.extended):
        return value
    return np.asarray(value)


def _stacked(values: Sequence[Any]) -> jax.Array:
    if all(isinstance(value, np.ndarray) for value in values):
        return jnp.asarray(np.stack(values))
    return jnp.stack(values)


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
    digests = _Digests()
    found: dict[Hashable, list] = {}
    for output, atom in enumerate(jaxpr.outvars):
        eqns = [jaxpr.eqns[i] for i in _needed(jaxpr, atom, made)]
        key, work = _pattern(eqns, atom, digests, {var for var, i in inputs.items()
                                                   if i in tracked})
        found.setdefault(key, []).append((output, work))
    out = []
    for members in found.values():
        works = [work for _, work in members]
        places = [i for i, leaf in enumerate(works[0].leaves)
                  if inputs.get(leaf.variable) in tracked]
        own = [tuple(inputs[work.leaves[i].variable] for i in places) for work in works]
        out.append(Alike([output for output, _ in members], own, works, inputs, constants, places))
    return out


def _needed(jaxpr: Jaxpr, atom: Any, made: dict) -> list[int]:
    """The equations that a result asks for, each behind those that it asks for itself: the order
    in which operands ask for them, whatever else the program computes between."""
    done: set[int] = set()
    out: list[int] = []
    left = [(atom, False)]
    while left:
        own, ready = left.pop()
        i = None if isinstance(own, Literal) else made.get(own)
        if i is None or i in done:
            continue
        if ready:
            done.add(i)
            out.append(i)
        else:
            left.append((own, True))
            left += [(operand, False) for operand in reversed(jaxpr.eqns[i].invars)]
    return out


def _pattern(eqns: Sequence[Any], out: Any, digests: "_Digests",
             tracked: Collection[Any]) -> tuple[Hashable, _Work]:
    """What alike results share, and where one's operands are."""
    leaves: list[_Leaf] = []
    places: dict[Any, tuple] = {}
    starts: dict[int, int] = {}
    key, refs = [], []

    def ref(atom: Any) -> tuple:
        if isinstance(atom, Literal):
            leaves.append(_Leaf(number=np.asarray(atom.val, atom.aval.dtype)))
            return "leaf", len(leaves) - 1
        if atom not in places:
            leaves.append(_Leaf(variable=atom))
            places[atom] = "leaf", len(leaves) - 1
        return places[atom]

    def said(atom: Any) -> tuple:
        own = not isinstance(atom, Literal) and atom in tracked
        return own, atom.aval.shape, atom.aval.dtype

    for i, eqn in enumerate(eqns):
        params = dict(eqn.params)
        if eqn.primitive.name == "slice" and params.get("strides") is None:
            starts[i] = len(leaves)
            leaves.append(_Leaf(number=np.array(params.pop("start_indices"), np.int32)))
            params.pop("limit_indices")  # what is cut out is as large as the result
        operands = tuple(map(ref, eqn.invars))
        refs.append(operands)
        key.append((eqn.primitive.name, digests.of_params(eqn.primitive.name, params), operands,
                    tuple(map(said, eqn.invars)),
                    tuple((var.aval.shape, var.aval.dtype) for var in eqn.outvars)))
        places |= {var: ("made", i, j) for j, var in enumerate(eqn.outvars)}
    refs.append((ref(out),))
    work = _Work(tuple(eqns), tuple(refs), tuple(leaves), starts)
    return (tuple(key), refs[-1], said(out)), work


def _run(work: _Work, leaves: dict[int, Any], varied: Collection[int]) -> jax.Array:
    made: list[Sequence[Any]] = []

    def read(ref: tuple) -> Any:
        return leaves[ref[1]] if ref[0] == "leaf" else made[ref[1]][ref[2]]

    for i, (eqn, refs) in enumerate(zip(work.eqns, work.refs, strict=False)):
        values = list(map(read, refs))
        if work.starts.get(i) in varied:
            size = eqn.outvars[0].aval.shape
            start = leaves[work.starts[i]]
            made.append([lax.dynamic_slice(values[0], list(start), size)])
        else:
            made.append(bind(eqn, values))
    return jnp.asarray(read(work.refs[-1][0]))


class _Digests:
    """What equations inside calls and loops share, each program read once."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[Any, Hashable]] = {}  # the program is kept, or ids would return

    def of_params(self, name: str, params: dict[str, Any]) -> Hashable:
        """Derivatives of its own are told by where the function is written (its program is part of
        the key): JAX makes them anew at every call."""
        return tuple((key, self._of(value, name in _RULES)) for key, value
                     in sorted(params.items()))

    def _of(self, value: Any, loose: bool) -> Hashable:
        if isinstance(value, ClosedJaxpr | Jaxpr):
            if id(value) not in self.held:
                self.held[id(value)] = value, self._program(value, loose)
            return self.held[id(value)][1]
        if isinstance(value, tuple | list):
            return tuple(self._of(each, loose) for each in value)
        if isinstance(value, np.ndarray):
            return value.dtype.str, value.shape, value.tobytes()
        if loose and not isinstance(value, bool | int | float | str | None):
            return type(value).__module__, type(value).__qualname__
        try:
            hash(value)
        except TypeError:
            return id(value)
        return type(value), value

    def _program(self, program: Any, loose: bool) -> Hashable:
        jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
        constants = program.consts if isinstance(program, ClosedJaxpr) else ()
        places = {var: i for i, var in enumerate((*jaxpr.constvars, *jaxpr.invars))}
        key: list[Hashable] = [str(jaxpr.debug_info.func_src_info) if loose else ""]
        key += [self._of(own, False) if isinstance(own := _number(value), np.ndarray)
                else id(value) for value in constants]

        def read(atom: Any) -> Hashable:
            if isinstance(atom, Literal):
                return "number", atom.aval.dtype, np.asarray(atom.val).tobytes()
            return places[atom]

        for eqn in jaxpr.eqns:
            key.append((eqn.primitive.name, self.of_params(eqn.primitive.name, eqn.params),
                        tuple(map(read, eqn.invars)),
                        tuple((var.aval.shape, var.aval.dtype) for var in eqn.outvars)))
            places |= {var: len(places) + j for j, var in enumerate(eqn.outvars)}
        return (*key, *map(read, jaxpr.outvars), *(var.aval.shape for var in jaxpr.invars))

