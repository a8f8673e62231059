"""The one walk through a traced program: equation by equation, into calls, and into the bodies of
loops and branches.

What is found out about an array is up to the reader, who says what a constant is, what an equation
does, and, for loops, what is true of an array that may be either of two. Everything that reads
jaxprs goes this way (levels.py, exchangeability.py).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax._src import core
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from probml.jaxpr.memo import memo
from probml.jaxpr.opened.lines import opened
from probml.jaxpr.primitives import Kind, known

_T = TypeVar("_T")
Reading = Callable[[ClosedJaxpr, Sequence[_T]], list[_T]]
"""What is found out about the results of a program, given the same about its operands."""


def interpret(
    closed: ClosedJaxpr, inputs: Iterable[_T], constant: Callable[[Any], _T],
    rule: Callable[[Any, list[_T]], list[_T]]
) -> list[_T]:
    """What is found out about each output of a program.

    Args:
        closed: the program.
        inputs: the same about its inputs.
        constant: reads an array that the program holds: a literal or a constant, also one inside a
            call.
        rule: (equation, values of its operands) -> values of its results. Calls are walked into and
            do not come here; loops and branches do (scan, repeat, branch below).
    """
    jaxpr = closed.jaxpr
    values = dict(zip(jaxpr.constvars, map(constant, closed.consts), strict=True)) | dict(
        zip(jaxpr.invars, inputs, strict=True)
    )

    def read(atom: Any) -> _T:
        return constant(atom.val) if isinstance(atom, Literal) else values[atom]

    for eqn in jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        body, taken = called(eqn)
        results = rule(eqn, operands) if body is None else interpret(
            body, [operands[i] for i in taken], constant, rule
        )
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def jaxpr_of(function: Callable) -> Callable[..., ClosedJaxpr]:
    """As jax.make_jaxpr, but what the program holds of NumPy's arrays is its own.

    JAX (0.10) makes of an array that a function holds one of its precision, and hands that out
    again, in any precision, for as long as something holds it: a program of float32 would then have
    constants of double, which no operation takes, or one of double those of float32. A copy is
    nobody else's.
    """
    trace = jax.make_jaxpr(function)

    def own(*args: Any) -> ClosedJaxpr:
        closed = trace(*args)
        return ClosedJaxpr(closed.jaxpr, [held.copy() if isinstance(held, np.ndarray) else held
                                          for held in closed.consts])

    return own


def evaluate(closed: ClosedJaxpr, *values: Any) -> list:
    """The results of a program; inside a trace its calls are opened."""
    if core.trace_state_clean():
        return jaxpr_as_fun(closed)(*values)
    return _opened(closed).run(values)


_opened = memo(1024)(opened)


def called(eqn: Any) -> tuple[ClosedJaxpr | None, Sequence[int]]:
    """The jaxpr that this equation runs once, if it does just that, and on which of its
    operands."""
    entry, everything = known(eqn), list(range(len(eqn.invars)))
    if entry is None or entry.kind is not Kind.CALL:
        return None, everything
    # takes what matvec, vecmat, solve and transpose_solve hold, then b
    if eqn.primitive.name == "custom_linear_solve":
        before, own, after = (sum(eqn.params["const_lengths"][i])
                              for i in (slice(0, 2), slice(2, 3), slice(3, 4)))
        taken = [*everything[before : before + own], *everything[before + own + after :]]
        candidates = [eqn.params["jaxprs"].solve]
    else:
        taken, candidates = everything, [eqn.params[
            key
        ] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr", "call") if key in eqn.params]
    sizes = len(taken), len(eqn.outvars)
    fitting = (body for body in map(_closed, candidates) if body is not None
               and (len(body.in_avals), len(body.out_avals)) == sizes)
    return next(fitting, None), taken


def bodies(eqn: Any) -> Iterator[ClosedJaxpr]:
    """All programs inside an equation: of a call, a loop, a branch."""
    for value in eqn.params.values():
        for body in map(_closed, value if isinstance(value, list | tuple) else [value]):
            if body is not None:
                yield body


def equations(closed: ClosedJaxpr) -> Iterator[Any]:
    """All equations of a program and of the programs inside it."""
    for eqn in closed.jaxpr.eqns:
        yield eqn
        for body in bodies(eqn):
            yield from equations(body)


def one_way(closed: ClosedJaxpr) -> bool:
    """Whether a program can be differentiated backwards alone: it has functions with a derivative
    of their own (jax.custom_vjp), as solvers of differential equations have, or primitives of other
    libraries (lineax's), of which nothing is known."""
    return any(eqn.primitive.name.startswith("custom_vjp_call") or known(eqn) is None and any(
        np.issubdtype(getattr(var.aval, "dtype", bool), np.inexact) for var in eqn.outvars)
        for eqn in equations(closed))


def _closed(body: Any) -> ClosedJaxpr | None:
    if isinstance(body, Jaxpr) and not body.constvars:
        return ClosedJaxpr(body, ())
    return body if isinstance(body, ClosedJaxpr) else None


class Scan(NamedTuple):
    """The parts of a `scan`: operands and results by what they are to the body."""

    body: ClosedJaxpr
    constants: int
    carries: int
    length: int

    @classmethod
    def of(cls, eqn: Any) -> "Scan":
        params = eqn.params
        if "ft_in" in params:  # from JAX 0.11 on: a tree of each of the three kinds of operands
            constants, carries, _ = (len(tuple(part.vals)) for part in params["ft_in"].unpack())
        else:
            constants, carries = params["num_consts"], params["num_carry"]
        return cls(_closed(params["jaxpr"]), constants, carries, params["length"])

    def kept(self, carry: int) -> bool:
        """Whether the body hands on this carry as it took it."""
        return self.body.jaxpr.outvars[carry] is self.body.jaxpr.invars[self.constants + carry]


class While(NamedTuple):
    """The parts of a `while`."""

    condition: ClosedJaxpr
    body: ClosedJaxpr
    asked: int  # operands that only the condition takes
    constants: int  # operands that only the body takes

    @classmethod
    def of(cls, eqn: Any) -> "While":
        params = eqn.params
        return cls(_closed(params["cond_jaxpr"]), _closed(params["body_jaxpr"]),
                   params["cond_nconsts"], params["body_nconsts"])

    def kept(self, carry: int) -> bool:
        """Whether the body hands on this carry as it took it."""
        return self.body.jaxpr.outvars[carry] is self.body.jaxpr.invars[self.constants + carry]


def settled(
    step: Callable[[list[_T]], list[_T]], carry: list[_T], join: Callable[[_T, _T], _T],
    alike: Callable[[_T, _T], bool]
) -> list[_T]:
    """What holds of a carry before every step: the least that holds of the first and, if of one,
    also of the next.

    Ends because `join` can only climb finitely often.
    """
    while True:
        joined = [join(before, after) for before, after in zip(carry, step(carry), strict=True)]
        if all(alike(before, after) for before, after in zip(carry, joined, strict=True)):
            return joined
        carry = joined
