"""Abstract interpretation of traced programs: one interpreter for equations, calls, loops and
branches.

A `Domain` defines the abstract values: that of a constant, how an equation maps those of its
operands to those of its results, and the join of two. Short loops are unrolled if the domain asks
for it; other loops are iterated until a fixed point.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from jax.extend.core import ClosedJaxpr, JaxprEqn

from probml.jaxpr.primitives import Kind, name_of, table_entry
from probml.jaxpr.program import EVERY_CALL, Program, Scan, While, flat

V = TypeVar("V")
PATIENCE = 16  # iterations of a fixed point after which values are widened


class Domain(Generic[V]):
    """The abstract values of an analysis.

    Attributes:
        unrolled: scans of up to so many steps are unrolled.
        calls: the primitives of calls that are entered.
        idle: also interpret equations that no result depends on.
    """

    unrolled = 0
    calls = EVERY_CALL
    idle = False

    def constant(self, value: object) -> V:
        """The value of a constant of the program."""
        raise NotImplementedError

    def equation(self, eqn: JaxprEqn, operands: list[V]) -> list[V]:
        """The values of the results of an equation (not of calls, copies, loops, branches)."""
        raise NotImplementedError

    def opaque_results(self, eqn: JaxprEqn, operands: list[V]) -> list[V] | None:
        """The values of the results of a loop or branch that is treated as a black box; None: it is
        interpreted."""
        return None

    def join(self, one: V, other: V, eqn: JaxprEqn) -> V:
        """The value of an array that may be either, after this loop or branch. Chains of joins are
        finite."""
        raise NotImplementedError

    def same(self, one: V, other: V) -> bool:
        """Whether two values are equal."""
        return one == other

    def widened(self, value: V) -> V:
        """A value above this one from which few further joins are possible."""
        return value

    def entering(self, value: V, turn: int | None, scan: Scan) -> V:
        """The value of a slice along the first axis: of one step, or (turn=None) of any."""
        return value

    def loop_carry(self, value: V, scan: Scan | None, first: bool) -> V:
        """The value of a carry at the start of a step: the first step, or a later one. scan: None
        in a `while`."""
        return value

    def leaving(self, values: Sequence[V], aval: object) -> V:
        """The value of the results of all steps, stacked along a first axis; of a loop that is not
        unrolled one value stands for all steps."""
        return values[0]


def analyse(closed: ClosedJaxpr, domain: Domain[V], inputs: Iterable[V]) -> list[V]:
    """The abstract values of the outputs of a program, given those of its inputs."""
    program = flat(closed, domain.calls, domain.idle)
    values = values_of(program, domain, inputs)
    return [values[i] for i in program.results]


def values_of(program: Program, domain: Domain[V], inputs: Iterable[V]) -> list[V]:
    """The abstract value of each place of a program."""
    values: list[Any] = [None] * len(program.avals)
    for place, const in program.constants:
        values[place] = domain.constant(const)
    for place, value in zip(program.inputs, inputs, strict=True):
        values[place] = value
    for eqn, operands, results in program.lines:
        outputs = _results(eqn, [values[i] for i in operands], domain)
        for place, value in zip(results, outputs, strict=True):
            values[place] = value
    return values


def _results(eqn: JaxprEqn, operands: list[V], domain: Domain[V]) -> list[V]:
    entry = table_entry(eqn)
    if entry is not None and entry.kind is Kind.LOOP:
        unrolls = name_of(eqn) == "scan" and 0 < eqn.params["length"] <= domain.unrolled
        outputs = None if unrolls else domain.opaque_results(eqn, operands)
        return _LOOPS[name_of(eqn)](eqn, operands, domain) if outputs is None else outputs
    if entry is not None and entry.kind is Kind.COPY and len(operands) == len(eqn.outvars):
        return operands
    return domain.equation(eqn, operands)


def _scan(eqn: JaxprEqn, operands: list[V], domain: Domain[V]) -> list[V]:
    scan, out_avals = Scan.of(eqn), [var.aval for var in eqn.outvars]
    consts, init = operands[: scan.constants], operands[scan.constants :][: scan.carries]
    xs = operands[scan.constants + scan.carries :]

    def step(carry: list[V], index: int | None) -> list[V]:
        return analyse(scan.body, domain,
                       [*consts, *carry, *(domain.entering(x, index, scan) for x in xs)])

    if 0 < scan.length <= domain.unrolled:
        carry, steps = init, []
        for index in reversed(range(scan.length)) if eqn.params["reverse"] else range(scan.length):
            outputs = step(carry, index)
            carry = outputs[: scan.carries]
            steps.append(outputs[scan.carries :])
        steps = steps[::-1] if eqn.params["reverse"] else steps
        return carry + [domain.leaving(list(outs), aval) for outs, aval
                        in zip(zip(*steps, strict=True), out_avals[scan.carries :], strict=True)]

    def handed(outputs: list[V], is_first: bool) -> list[V]:
        return [value if scan.is_invariant(i) else domain.loop_carry(value, scan, is_first)
                for i, value in enumerate(outputs[: scan.carries])]

    last: list[V] = []

    def turned(carry: list[V]) -> list[V]:
        last[:] = step(carry, None)
        return handed(last, False)

    carry = _fixpoint(turned, handed(init, True), domain, eqn)
    return carry + [domain.leaving([value], aval) for value, aval
                    in zip(last[scan.carries :], out_avals[scan.carries :], strict=True)]


def _while(eqn: JaxprEqn, operands: list[V], domain: Domain[V]) -> list[V]:
    """The number of iterations depends on everything that the condition reads."""
    loop = While.of(eqn)
    cond_consts, body_consts = (operands[: loop.cond_constants],
                                operands[loop.cond_constants :][: loop.constants])

    def step(carry: list[V]) -> list[V]:
        (predicate,) = analyse(loop.condition, domain, [*cond_consts, *carry])
        outputs = analyse(loop.body, domain, [*body_consts, *carry])
        return [value if loop.is_invariant(i)
                else domain.join(domain.loop_carry(value, None, False), predicate, eqn)
                for i, value in enumerate(outputs)]

    init = [value if loop.is_invariant(i) else domain.loop_carry(value, None, True)
            for i, value in enumerate(operands[loop.cond_constants + loop.constants :])]
    return _fixpoint(step, init, domain, eqn)


def _branches(eqn: JaxprEqn, operands: list[V], domain: Domain[V]) -> list[V]:
    results = [analyse(body, domain, operands[1:]) for body in eqn.params["branches"]]
    return [functools.reduce(lambda one, other: domain.join(one, other, eqn), (*outs, operands[0]))
            for outs in zip(*results, strict=True)]


def _fixpoint(step: Callable[[list[V]], list[V]], carry: list[V], domain: Domain[V],
              eqn: JaxprEqn) -> list[V]:
    """The values of a carry at the start of any step: the least fixed point above the initial
    values."""
    iteration = 0
    while True:
        joined = [domain.join(old, value, eqn)
                  for old, value in zip(carry, step(carry), strict=True)]
        if all(map(domain.same, carry, joined)):
            return carry
        iteration += 1
        carry = joined if iteration < PATIENCE else list(map(domain.widened, joined))


_LOOPS = {"cond": _branches, "scan": _scan, "while": _while}
