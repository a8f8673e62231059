"""A traced program as one list of equations: calls are opened, equations that nothing asks for are
left out, and equal ones are one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core, source_info_util

# the settings that equations are made under; some JAX makes a new object each time it is asked
_here = getattr(core, "current_jaxpr_eqn_context", lambda: None)
CALLS = ("jit", "pjit", "closed_call", "core_call")
RULES = ("custom_jvp_call", "custom_vjp_call")  # calls with derivatives of their own


class Line(NamedTuple):
    """One equation at its places."""

    eqn: Any
    operands: tuple[int, ...]
    results: tuple[int, ...]


class Lines(NamedTuple):
    """A program.

    Attributes:
        inputs, results: the places of arguments and of results. constants: (place, value).
        size: how many places there are.
    """

    lines: list[Line]
    inputs: tuple[int, ...]
    constants: list[tuple[int, Any]]
    results: tuple[int, ...]
    size: int

    def begun(self, args: Sequence[Any]) -> list[Any]:
        """Values by place: arguments and constants."""
        values: list[Any] = [None] * self.size
        for place, value in self.constants:
            values[place] = value
        for place, value in zip(self.inputs, args, strict=True):
            values[place] = value
        return values

    def run(self, args: Sequence[Any]) -> list[Any]:
        """The results for arguments, which may be traced."""
        values = self.begun(args)
        for eqn, operands, results in self.lines:
            found = bind(eqn, [values[i] for i in operands])
            for place, value in zip(results, found, strict=True):
                values[place] = value
        return [values[i] for i in self.results]


def opened(closed: Any, last: bool = False) -> Lines:
    """The equations of a traced program.

    Args:
        last: nothing differentiates it any more, so that functions with derivatives of their own
            are opened too.
    """
    opener = _Opener((*CALLS, *RULES) if last else CALLS)
    inputs = [opener.place() for _ in closed.jaxpr.invars]
    consts = [opener.constant(value) for value in closed.consts]
    wanted = [True] * len(closed.jaxpr.outvars)
    results = opener.walk(closed.jaxpr, consts, inputs, wanted)
    return Lines(opener.lines, tuple(inputs), opener.constants,
                 tuple(place for place in results if place is not None), opener.count)


def bind(eqn: Any, values: Sequence[Any]) -> Sequence[Any]:
    """The results of an equation for operands of the same shapes."""
    if eqn.primitive.name in RULES:  # a rule may index what it is given by a traced number
        values = [jnp.asarray(value) if isinstance(value, np.ndarray) else value
                  for value in values]
    params = eqn.primitive.get_bind_params(eqn.params)
    functions, params = params if isinstance(params, tuple) else ((), params)  # up to JAX 0.9
    with source_info_util.user_context(eqn.source_info.traceback):
        if eqn.ctx is _here():  # as nearly always
            found = eqn.primitive.bind(*functions, *values, **params)
        else:
            with eqn.ctx.manager:
                found = eqn.primitive.bind(*functions, *values, **params)
    return found if eqn.primitive.multiple_results else [found]


class _Opener:
    def __init__(self, calls: Sequence[str]) -> None:
        self._calls = calls
        self.lines: list[Line] = []
        self.constants: list[tuple[int, Any]] = []
        self.count = 0
        self._made: dict[tuple, tuple[int, ...]] = {}  # what a line does and takes → its results
        self._known: dict[tuple, int] = {}  # constant → its place

    def place(self) -> int:
        self.count += 1
        return self.count - 1

    def constant(self, value: Any, aval: Any = None) -> int:
        """The place of a value; as bytes, since -0.0 is not 0.0."""
        if aval is None or isinstance(value, jax.Array) or np.ndim(value):
            key: tuple = (id(value),)
        else:
            key = (aval.dtype, getattr(aval, "weak_type", False), np.asarray(value).tobytes())
        if key not in self._known:
            self._known[key] = place = self.place()
            self.constants.append((place, value))  # which keeps it alive, and its id its own
        return self._known[key]

    def walk(self, jaxpr: Any, consts: Sequence[int], args: Sequence[int],
             wanted: Sequence[bool]) -> list[int | None]:
        """Adds the lines of a program; the places of its wanted results."""
        at: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args),
                                      strict=True))

        def read(atom: Any) -> int:
            return self.constant(atom.val, atom.aval) if _literal(atom) else at[atom]

        for eqn, asked in _needed(jaxpr, wanted):
            operands = tuple(map(read, eqn.invars))
            inner = _inside(eqn) if eqn.primitive.name in self._calls else None
            if inner is not None:
                held = [self.constant(value) for value in inner.consts]
                found: Sequence[int | None] = self.walk(inner.jaxpr, held, operands, asked)
            else:
                found = self._line(eqn, operands)
            at.update(zip(eqn.outvars, found, strict=True))
        return [read(atom) if want else None
                for atom, want in zip(jaxpr.outvars, wanted, strict=True)]

    def _line(self, eqn: Any, operands: tuple[int, ...]) -> tuple[int, ...]:
        """The results of an equation; those of an equal one, where there is one."""
        key = None if eqn.effects else _key(eqn, operands)
        if key is not None and key in self._made:
            return self._made[key]
        results = tuple(self.place() for _ in eqn.outvars)
        self.lines.append(Line(eqn, operands, results))
        if key is not None:
            self._made[key] = results
        return results


def _inside(eqn: Any) -> Any:
    """The program that a call runs on its operands."""
    found = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr") or eqn.params.get("fun_jaxpr")
    fits = hasattr(found, "consts") and len(found.jaxpr.invars) == len(eqn.invars)
    return found if fits else None


def _key(eqn: Any, operands: tuple[int, ...]) -> tuple | None:
    """What two equations share that are equal; None where that cannot be told."""
    try:
        key = (eqn.primitive, tuple(sorted(eqn.params.items(), key=lambda item: item[0])), operands)
        hash(key)
    except TypeError:
        return None
    return key


def _needed(jaxpr: Any, wanted: Sequence[bool]) -> list[tuple[Any, list[bool]]]:
    """The equations that results depend on, in order, and which results of each."""
    alive = {atom for atom, want in zip(jaxpr.outvars, wanted, strict=True)
             if want and not _literal(atom)}
    out = []
    for eqn in reversed(jaxpr.eqns):
        asked = [var in alive for var in eqn.outvars]
        if any(asked) or eqn.effects:
            out.append((eqn, asked))
            alive.update(atom for atom in eqn.invars if not _literal(atom))
    return out[::-1]


def _literal(atom: Any) -> bool:
    return hasattr(atom, "val")
