"""A traced program in flat form: calls are inlined, unused equations dropped, equal ones merged.
Programs are analysed, evaluated and compared in this form."""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Atom, ShapedArray
from jax.extend.core import ClosedJaxpr as ClosedJaxpr
from jax.extend.core import Jaxpr, JaxprEqn, jaxpr_as_fun
from jax.extend.core import Literal as Literal
from jax.typing import ArrayLike

from probml.jaxpr.compat import as_written_at, equation_settings, is_outside_of_traces
from probml.jaxpr.memo import memo
from probml.jaxpr.primitives import FACTORISING, Kind, name_of, named, table_entry

CALLS = frozenset({"jit", "pjit", "closed_call", "core_call"})
RULES = frozenset({"custom_jvp_call", "custom_vjp_call"})  # calls with derivatives of their own
EVERY_CALL = named(Kind.CALL)
MAX_COMPARED_ENTRIES = 64  # of a constant that is compared by value


class Line(NamedTuple):
    """One equation, and the places of its operands and results."""

    eqn: JaxprEqn
    operands: tuple[int, ...]
    results: tuple[int, ...]


class Program(NamedTuple):
    """A program.

    Attributes:
        inputs, results: the places of arguments and of results. constants: (place, value).
        avals: the shape and type of what each place holds.
    """

    lines: list[Line]
    inputs: tuple[int, ...]
    constants: list[tuple[int, ArrayLike]]
    results: tuple[int, ...]
    avals: list[ShapedArray]

    def makers(self) -> dict[int, Line]:
        """Place → the line that computes it."""
        return {place: line for line in self.lines for place in line.results}

    def run(self, args: Sequence[jax.Array]) -> list[jax.Array]:
        """The results for arguments, which may be traced."""
        values = dict(self.constants) | dict(zip(self.inputs, args, strict=True))
        evaluate_lines(self.lines, values)
        return [values[place] for place in self.results]

    def restricted(self, wanted: Sequence[int], known: Collection[int] = ()) -> list[Line]:
        """The lines needed to compute some places, where the values of others are known."""
        return needed_lines(self.lines, wanted, known)

    def at(self, wanted: Sequence[int], values: Mapping[int, ArrayLike]) -> list[jax.Array]:
        """The values of some places, given those of others."""
        known = dict(self.constants) | dict(values)
        evaluate_lines(self.restricted(wanted, values), known)
        return [known[place] for place in wanted]


def needed_lines(lines: Sequence[Any], wanted: Iterable[int],
                 known: Collection[int] = ()) -> list[Any]:
    """Those of some lines, or steps of a tape, that compute `wanted`, where the values of other
    places are known."""
    alive, found = set(wanted).difference(known), []
    for line in reversed(lines):
        if not alive.isdisjoint(line.results):
            found.append(line)
            alive.update(set(line.operands).difference(known))
    return found[::-1]


def evaluate_lines(lines: Iterable[Line], values: dict[int, Any]) -> None:
    """Adds the results of lines to the values by place."""
    for eqn, operands, results in lines:
        values |= zip(results, bind(eqn, [values[i] for i in operands]), strict=True)


def flatten(closed: ClosedJaxpr, calls: Collection[str] = CALLS, idle: bool = False) -> Program:
    """The equations of a traced program.

    Args:
        calls: the calls to inline: with RULES where the program is not differentiated afterwards,
            EVERY_CALL where it is only analysed.
        idle: keep equations that no result needs.
    """
    flattener = _Flattener(calls, idle)
    inputs = [flattener.place(var.aval) for var in closed.jaxpr.invars]
    wanted = [True] * len(closed.jaxpr.outvars)
    results = flattener.walk(closed, inputs, wanted)
    return Program(flattener.lines, tuple(inputs), flattener.constants,
                   tuple(place for place in results if place is not None), flattener.avals)


flat = memo(1024)(flatten)
"""The same, once for a program that is read again."""


def bind(eqn: JaxprEqn, values: Sequence[ArrayLike]) -> Sequence[jax.Array]:
    """The results of an equation for operands of the same shapes."""
    if eqn.primitive.name in RULES:  # a rule may index its arguments by a traced number
        values = [value if isinstance(value, jax.Array) else jnp.asarray(value)
                  for value in values]
    params = eqn.primitive.get_bind_params(eqn.params)
    functions, params = params if isinstance(params, tuple) else ((), params)  # up to JAX 0.9
    with as_written_at(eqn.source_info.traceback):
        if eqn.ctx is equation_settings():  # nearly always
            outputs = eqn.primitive.bind(*functions, *values, **params)
        else:
            with eqn.ctx.manager:
                outputs = eqn.primitive.bind(*functions, *values, **params)
    return outputs if eqn.primitive.multiple_results else [outputs]


class _Flattener:
    def __init__(self, calls: Collection[str], idle: bool) -> None:
        self._calls, self._idle = calls, idle
        self.lines: list[Line] = []
        self.constants: list[tuple[int, ArrayLike]] = []
        self.avals: list[ShapedArray] = []
        self._made: dict[tuple, tuple[int, ...]] = {}  # key of a line → its results
        self._known: dict[tuple, int] = {}  # constant → its place

    def place(self, aval: object) -> int:
        self.avals.append(aval)
        return len(self.avals) - 1

    def constant(self, value: ArrayLike, aval: ShapedArray) -> int:
        """The place of a constant; short ones are compared by their bytes: -0.0 is not 0.0."""
        kind = getattr(aval, "dtype", None)
        if isinstance(value, jax.core.Tracer) or not isinstance(kind, np.dtype) or (
                np.size(value) > MAX_COMPARED_ENTRIES
                or not getattr(value, "is_fully_addressable", True)):
            key: tuple = (id(value),)
        else:
            key = (kind, getattr(aval, "weak_type", False), np.shape(value),
                   np.asarray(value).tobytes())
        if key not in self._known:
            self._known[key] = place = self.place(aval)
            self.constants.append((place, value))  # which keeps it alive, and its id its own
        return self._known[key]

    def walk(self, closed: ClosedJaxpr, args: Sequence[int],
             wanted: Sequence[bool]) -> list[int | None]:
        """Adds the lines of a program; the places of its wanted results."""
        jaxpr = closed.jaxpr
        consts = [self.constant(value, var.aval)
                  for value, var in zip(closed.consts, jaxpr.constvars, strict=True)]
        places: dict[Hashable, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars),
                                               (*consts, *args), strict=True))

        def read(atom: Atom) -> int:
            return self.constant(atom.val, atom.aval) if _literal(atom) else places[atom]

        for eqn, used in _needed(jaxpr, wanted, self._idle):
            operands = tuple(map(read, eqn.invars))
            inner, numbers = called(eqn) if eqn.primitive.name in self._calls else (None, ())
            if inner is not None:
                outs: Sequence[int | None] = self.walk(inner, [operands[i] for i in numbers], used)
            else:
                outs = self._line(eqn, operands)
            places.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom) if want else None
                for atom, want in zip(jaxpr.outvars, wanted, strict=True)]

    def _line(self, eqn: JaxprEqn, operands: tuple[int, ...]) -> tuple[int, ...]:
        """The results of an equation, or those of an equal one before it."""
        key = None if eqn.effects else _key(eqn, operands)
        if key is not None and key in self._made:
            return self._made[key]
        results = tuple(self.place(var.aval) for var in eqn.outvars)
        self.lines.append(Line(eqn, operands, results))
        if key is not None:
            self._made[key] = results
        return results


def _key(eqn: JaxprEqn, operands: tuple[int, ...]) -> tuple | None:
    """A key that equal equations share; None where the parameters are not hashable."""
    try:
        key = (eqn.primitive, tuple(sorted(eqn.params.items(), key=lambda item: item[0])), operands)
        hash(key)
    except TypeError:
        return None
    return key


def _needed(jaxpr: Jaxpr, wanted: Sequence[bool], idle: bool) -> list[tuple[JaxprEqn, list[bool]]]:
    """The equations that results depend on, in order, and which results of each."""
    needed = {atom for atom, want in zip(jaxpr.outvars, wanted, strict=True)
              if want and not _literal(atom)}
    lines = []
    for eqn in reversed(jaxpr.eqns):
        used = [idle or var in needed for var in eqn.outvars]
        if any(used) or eqn.effects:
            lines.append((eqn, used))
            needed.update(atom for atom in eqn.invars if not _literal(atom))
    return lines[::-1]


def _literal(atom: object) -> bool:
    return hasattr(atom, "val")


# programs inside equations


def called(eqn: JaxprEqn) -> tuple[ClosedJaxpr | None, Sequence[int]]:
    """The jaxpr of an equation that is a single call, and the operands on which it is run."""
    entry, everything = table_entry(eqn), list(range(len(eqn.invars)))
    if entry is None or entry.kind is not Kind.CALL:
        return None, everything
    # operands: the constants of matvec, vecmat, solve and transpose_solve, then b
    if eqn.primitive.name == "custom_linear_solve":
        n_lead, n_own, n_last = (sum(eqn.params["const_lengths"][i])
                                 for i in (slice(0, 2), slice(2, 3), slice(3, 4)))
        operands = [*everything[n_lead : n_lead + n_own], *everything[n_lead + n_own + n_last :]]
        candidates = [eqn.params["jaxprs"].solve]
    elif "_prim" in eqn.params:
        operands, candidates = everything, [_expanded(eqn)]
    else:
        operands, candidates = everything, [eqn.params[
            key
        ] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr", "call") if key in eqn.params]
    sizes = len(operands), len(eqn.outvars)
    matches = (body for body in map(_closed, candidates) if body is not None
               and (len(body.in_avals), len(body.out_avals)) == sizes)
    return next(matches, None), operands


def bodies(eqn: JaxprEqn) -> Iterator[ClosedJaxpr]:
    """All programs inside an equation: of a call, a loop, a branch."""
    entry = table_entry(eqn)
    if entry is None or entry.kind in (Kind.CALL, Kind.LOOP):
        candidates = [_expanded(eqn)] if "_prim" in eqn.params else eqn.params.values()
        for value in candidates:
            for body in map(_closed, value if isinstance(value, list | tuple) else [value]):
                if body is not None:
                    yield body


def _expanded(eqn: JaxprEqn) -> ClosedJaxpr:
    """The program that a primitive of JAX 0.11 for a whole function, as `lax.custom_root`, runs."""
    primitive = eqn.params["_prim"]

    def run(*operands: jax.Array) -> list[jax.Array]:
        return jax.tree.leaves(primitive.expand(*jax.tree.unflatten(primitive.in_tree, operands)))

    return jax.make_jaxpr(run)(*(var.aval for var in eqn.invars))


def _closed(body: object) -> ClosedJaxpr | None:
    if isinstance(body, Jaxpr) and not body.constvars:
        return ClosedJaxpr(body, ())
    return body if isinstance(body, ClosedJaxpr) else None


class Scan(NamedTuple):
    """The parts of a `scan`: its operands are constants, carries and scanned arrays."""

    body: ClosedJaxpr
    constants: int
    carries: int
    length: int

    @classmethod
    def of(cls, eqn: JaxprEqn) -> "Scan":
        params = eqn.params
        if "ft_in" in params:  # from JAX 0.11 on: a tree of each of the three kinds of operands
            constants, carries, _ = (len(tuple(part.vals)) for part in params["ft_in"].unpack())
        else:
            constants, carries = params["num_consts"], params["num_carry"]
        return cls(_closed(params["jaxpr"]), constants, carries, params["length"])

    def is_invariant(self, carry: int) -> bool:
        """Whether the body returns this carry unchanged."""
        return self.body.jaxpr.outvars[carry] is self.body.jaxpr.invars[self.constants + carry]


class While(NamedTuple):
    """The parts of a `while`."""

    condition: ClosedJaxpr
    body: ClosedJaxpr
    cond_constants: int  # operands that only the condition takes
    constants: int  # operands that only the body takes

    @classmethod
    def of(cls, eqn: JaxprEqn) -> "While":
        params = eqn.params
        return cls(_closed(params["cond_jaxpr"]), _closed(params["body_jaxpr"]),
                   params["cond_nconsts"], params["body_nconsts"])

    def is_invariant(self, carry: int) -> bool:
        """Whether the body returns this carry unchanged."""
        return self.body.jaxpr.outvars[carry] is self.body.jaxpr.invars[self.constants + carry]


def jaxpr_of(function: Callable) -> Callable[..., ClosedJaxpr]:
    """jax.make_jaxpr with copies of the NumPy arrays that the function closes over.

    JAX (0.10) converts such an array to its present precision and caches the result by identity, in
    any precision: a program in float32 would then have constants in float64, which operations
    reject, or the reverse. A copy is not in that cache.
    """
    trace = jax.make_jaxpr(function)

    def own(*args: object) -> ClosedJaxpr:
        closed = trace(*args)
        return ClosedJaxpr(closed.jaxpr, [const.copy() if isinstance(const, np.ndarray) else const
                                          for const in closed.consts])

    return own


def evaluate(closed: ClosedJaxpr, *values: object) -> list:
    """The results of a program; inside a trace its calls are inlined."""
    return jaxpr_as_fun(closed)(*values) if is_outside_of_traces() else flat(closed).run(values)


def equations(closed: ClosedJaxpr) -> Iterator[JaxprEqn]:
    """All equations of a program and of the programs inside it."""
    for eqn in closed.jaxpr.eqns:
        yield eqn
        for body in bodies(eqn):
            yield from equations(body)


def largest_matrix(closed: ClosedJaxpr) -> int:
    """Columns of the largest matrix that a program factorises or solves with; 0: none."""
    return max((eqn.invars[0].aval.shape[-1] for eqn in equations(closed)
                if name_of(eqn) in FACTORISING), default=0)


def largest_array(closed: ClosedJaxpr) -> int:
    """Entries of the largest array that a program computes; 0: none."""
    return max((math.prod(getattr(var.aval, "shape", ())) for eqn in equations(closed)
                for var in eqn.outvars), default=0)


def one_way(closed: ClosedJaxpr) -> bool:
    """Whether a program supports reverse-mode differentiation alone: it has functions with
    jax.custom_vjp, such as solvers of differential equations, or primitives of other libraries,
    such as lineax's."""
    return any(eqn.primitive.name.startswith("custom_vjp_call") or table_entry(eqn) is None and any(
        np.issubdtype(getattr(var.aval, "dtype", bool), np.inexact) for var in eqn.outvars)
        for eqn in equations(closed))
