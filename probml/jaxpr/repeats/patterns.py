"""Equations of a program as a pattern: what two results share that are computed by the same
primitives, parameters and shapes, from operands in the same places; and what tells them apart, the
leaves with which they begin."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from probml.jaxpr.program import bind

_RULES = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")  # derivatives of their own


class Leaf(NamedTuple):
    """Where a result's equations begin: a variable (an input or a constant), or numbers."""

    variable: Any = None
    number: np.ndarray | None = None


class Work(NamedTuple):
    """The equations of some results, in order, and what they begin with.

    Attributes:
        refs: for each equation (and, last, for the results) its operands: ("made", equation,
            which) or ("leaf", number).
        starts: equation → the leaf that says where its slice begins.
    """

    eqns: tuple[Any, ...]
    refs: tuple[tuple[tuple, ...], ...]
    leaves: tuple[Leaf, ...]
    starts: dict[int, int]


def number(value: Any) -> Any:
    """A constant as an array of NumPy's, where it is known."""
    if isinstance(value, jax.core.Tracer) or jnp.issubdtype(jnp.result_type(value),
                                                           jax.dtypes.extended):
        return value
    return np.asarray(value)


def stacked(values: Sequence[Any]) -> jax.Array:
    """Values of one shape along a first axis; numbers as one constant."""
    if all(isinstance(value, np.ndarray) for value in values):
        return jnp.asarray(np.stack(values))
    return jnp.stack(values)


def needed(jaxpr: Jaxpr, atoms: Sequence[Any], made: Mapping[Any, int],
           done: set[int] | None = None) -> list[int]:
    """The equations that results ask for, each behind those that it asks for itself: the order in
    which operands ask for them, whatever else the program computes between.

    Args:
        made: variable → the equation that makes it.
        done: equations that are there already, to which those found are added.
    """
    done = set() if done is None else done
    out: list[int] = []
    left = [(atom, False) for atom in reversed(atoms)]
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


def pattern(eqns: Sequence[Any], outs: Sequence[Any], digests: "Digests",
            tracked: Collection[Any]) -> tuple[Hashable, Work]:
    """What alike results share, and where one's operands are: `outs` by these equations.

    Args:
        tracked: inputs that are told from others.
    """
    leaves: list[Leaf] = []
    places: dict[Any, tuple] = {}
    starts: dict[int, int] = {}
    key, refs = [], []

    def ref(atom: Any) -> tuple:
        if isinstance(atom, Literal):
            leaves.append(Leaf(number=np.asarray(atom.val, atom.aval.dtype)))
            return "leaf", len(leaves) - 1
        if atom not in places:
            leaves.append(Leaf(variable=atom))
            places[atom] = "leaf", len(leaves) - 1
        return places[atom]

    def said(atom: Any) -> tuple:
        own = not isinstance(atom, Literal) and atom in tracked
        return own, atom.aval.shape, atom.aval.dtype

    for i, eqn in enumerate(eqns):
        params = dict(eqn.params)
        if eqn.primitive.name == "slice" and params.get("strides") is None:
            starts[i] = len(leaves)
            leaves.append(Leaf(number=np.array(params.pop("start_indices"), np.int32)))
            params.pop("limit_indices")  # what is cut out is as large as the result
        operands = tuple(map(ref, eqn.invars))
        refs.append(operands)
        key.append((eqn.primitive.name, digests.of_params(eqn.primitive.name, params), operands,
                    tuple(map(said, eqn.invars)),
                    tuple((var.aval.shape, var.aval.dtype) for var in eqn.outvars)))
        places |= {var: ("made", i, j) for j, var in enumerate(eqn.outvars)}
    refs.append(tuple(map(ref, outs)))
    work = Work(tuple(eqns), tuple(refs), tuple(leaves), starts)
    return (tuple(key), refs[-1], tuple(map(said, outs))), work


def at(ref: tuple, leaves: Mapping[int, Any], made: Mapping[int, Sequence[Any]]) -> Any:
    """The value at which an operand looks."""
    return leaves[ref[1]] if ref[0] == "leaf" else made[ref[1]][ref[2]]


def computed(work: Work, some: Iterable[int], leaves: Mapping[int, Any], varied: Collection[int],
             made: Mapping[int, Sequence[Any]]) -> dict[int, Sequence[Any]]:
    """The results of some equations, in order: equation → its results.

    Args:
        varied: leaves that are not the same for all, so that no slice begins there by a number.
        made: those of equations before.
    """
    made, out = dict(made), {}
    for i in some:
        eqn = work.eqns[i]
        values = [at(ref, leaves, made) for ref in work.refs[i]]
        if work.starts.get(i) in varied:
            start = leaves[work.starts[i]]
            made[i] = [lax.dynamic_slice(values[0], list(start), eqn.outvars[0].aval.shape)]
        else:
            made[i] = bind(eqn, values)
        out[i] = made[i]
    return out


def result_of(work: Work, leaves: Mapping[int, Any], varied: Collection[int]) -> jax.Array:
    """The first result of a pattern."""
    made = computed(work, range(len(work.eqns)), leaves, varied, {})
    return jnp.asarray(at(work.refs[-1][0], leaves, made))


class Digests:
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
        key += [self._of(own, False) if isinstance(own := number(value), np.ndarray)
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

