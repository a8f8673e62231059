"""Loop-invariant code motion on traced programs: what a function computes without its arguments is
computed once, before a loop that calls it.

A log density is evaluated thousands of times by one compiled loop, and each time it computes from
the rows what no parameter changes: log factorials, masks, products of covariates. XLA moves
that out of a loop, but not out of a scan over chunks of rows, whose slices differ by step.

A value that is kept is read from memory in every call. So a result is kept where computing it takes
longer; a few elementwise operations and broadcasts are repeated, which XLA fuses with their use.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import jax
from jax.extend.core import JaxprEqn

from probml.jaxpr.compat import OFF
from probml.jaxpr.primitives import Kind, name_of, table_entry
from probml.jaxpr.program import (
    CALLS,
    RULES,
    Line,
    Program,
    Scan,
    bodies,
    equations,
    evaluate_lines,
    flat,
    flatten,
)
from probml.typing import PyTree

# Nanoseconds an entry of a result, about.
READ = 4.0  # of memory that is not cached, in a loop that also writes
SPECIAL, TRANSCENDENTAL, DIVISION, ARITHMETIC = 20.0, 3.0, 1.0, 0.3
COST = {name: cost for cost, names in (
    (SPECIAL, """bessel_i0e bessel_i1e digamma erf_inv igamma igamma_grad_a igammac lgamma polygamma
    random_gamma_grad regularized_incomplete_beta zeta"""),
    (TRANSCENDENTAL, """acos acosh asin asinh atan atan2 atanh cos cosh erf erfc exp exp2 expm1
    gather log log1p log2 logistic pow sin sinh tan tanh"""),
    (DIVISION, "cbrt div integer_pow rem rsqrt sqrt"),
) for name in names.split()}
MIN_COST = 100.0  # of a result that is kept, in a call
# A result is kept that has at most so many entries as it is computed from, or as these, for each
# nanosecond that it saves an entry.
FEW_ENTRIES = 2**16


def hoisted(function: Callable, *like: PyTree) -> Callable:
    """The same function of trees of arrays, not differentiated later; what does not depend on its
    arguments is computed now, if that takes long. What it closes over may be traced.

    Args:
        like: arguments of the same shapes and types.
    """
    if "hoisting" in OFF:
        return function
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*like)
    program = flatten(closed, CALLS | RULES)
    remainder = Remainder(program, program.inputs)
    kept, results = remainder.keep({}), jax.tree.structure(shapes)

    @functools.wraps(function)
    def call(*args: PyTree) -> PyTree:
        values = dict(zip(program.inputs, jax.tree.leaves(args), strict=True))
        return jax.tree.unflatten(results, remainder.run(values, kept))

    return call


class Kept(NamedTuple):
    """Values that are kept: by place, and of each scan that was split those of all its steps."""

    values: dict[int, jax.Array]
    steps: list["Kept"]


class Remainder:
    """What is left to do of a program when some of its inputs are known, and which values that it
    computes from these alone are kept.

    Args:
        moving: the places of the other inputs.
        copies: how often it is run on values of its own, as the body of a scan.
    """

    def __init__(self, program: Program, moving: Iterable[int], copies: int = 1):
        self._program, self._copies = program, copies
        self._moving = set(moving)
        self._splits = dict[tuple[int, ...], SplitScan]()  # by the places of their results
        sources = {place for place, _ in program.constants} | (
            set(program.inputs) - self._moving)
        lines = []  # that are left
        for line in program.lines:
            if self._moving.isdisjoint(line.operands) and not _is_impure(line.eqn):
                continue
            split = self._split(line)
            if split is not None:
                self._splits[line.results] = split
            self._moving.update(line.results)
            lines.append(line)
        needed = {*program.results, *(i for line in lines for i in line.operands)} - self._moving
        support = self._supports(sources)
        self._places = sorted({i for place in needed for i in support[place]} - sources)
        recomputed = program.restricted(list(needed), {*self._places, *sources})
        self._lines = recomputed + lines
        inputs = {i for split in self._splits.values() for i in split.line.operands} - self._moving
        self._first = program.restricted([*self._places, *inputs], sources)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is kept."""
        return not self._places and not self._splits

    def keep(self, known: Mapping[int, jax.Array]) -> Kept:
        """The values to keep, given the inputs that are known."""
        values = dict(self._program.constants) | dict(known)
        evaluate_lines(self._first, values)
        return Kept({place: values[place] for place in self._places},
                    [split.keep(values) for split in self._splits.values()])

    def run(self, inputs: Mapping[int, jax.Array], kept: Kept) -> list[jax.Array]:
        """The results, given all inputs and what is kept."""
        values = dict(self._program.constants) | dict(inputs) | kept.values
        steps = iter(kept.steps)
        for line in self._lines:
            split = self._splits.get(line.results)
            if split is None:
                evaluate_lines([line], values)
            else:
                values |= zip(line.results, split.run(values, next(steps)), strict=True)
        return [values[place] for place in self._program.results]

    def _split(self, line: Line) -> "SplitScan | None":
        if name_of(line.eqn) != "scan":
            return None
        scan = Scan.of(line.eqn)
        carried = slice(scan.constants, scan.constants + scan.carries)
        if all(i in self._moving for i in line.operands[carried.stop :]):
            return None  # what is the same in all steps is not in this loop alone
        body = flat(scan.body, CALLS | RULES)
        moving = {place for place, i in zip(body.inputs, line.operands, strict=True)
                  if i in self._moving} | set(body.inputs[carried])
        remainder = Remainder(body, moving, self._copies * scan.length)
        return None if remainder.is_whole else SplitScan(line, scan, body, remainder,
                                                         moving)

    def _supports(self, sources: set[int]) -> dict[int, frozenset[int]]:
        """Known place → the sources and the places worth keeping that it is computed from.

        A result is kept if computing it, from what is kept and the sources, takes longer than
        reading it; the more, the larger it may be. So is what is computed from kept results without
        becoming larger, in their place.
        """
        support = {place: frozenset({place}) for place in sources}
        cost_of = dict.fromkeys(sources, 0.0)  # place → time to compute it
        kept = set[int]()
        for line in self._program.lines:
            if not self._moving.isdisjoint(line.results):
                continue
            needs = frozenset[int]().union(*(support[i] for i in line.operands))
            entries = sum(map(self._entries, needs))
            cost = _cost(line.eqn) + sum(cost_of[i] for i in line.operands)
            for place in line.results:
                size = self._entries(place)
                per_entry = self._copies * cost / max(size, 1)
                pays = cost >= MIN_COST and per_entry >= READ and (
                    size <= per_entry * max(FEW_ENTRIES, entries))
                if pays or not kept.isdisjoint(needs) and size <= entries:
                    kept.add(place)
                    support[place], cost_of[place] = frozenset({place}), 0.0
                else:
                    support[place], cost_of[place] = needs, cost
        return support

    def _entries(self, place: int) -> int:
        return self._copies * _entries(self._program.avals[place])


class SplitScan(NamedTuple):
    """A scan in two: one over what is known in each step, and one over the rest with what the first
    keeps. varying: the places of its body's inputs that are not known."""

    line: Line
    scan: Scan
    body: Program
    remainder: Remainder
    varying: set[int]

    def keep(self, values: Mapping[int, jax.Array]) -> Kept:
        """What all steps keep, given the known operands."""
        fixed, slices = self._operands(values, self.varying)
        return jax.lax.scan(lambda _, xs: ((), self.remainder.keep({**fixed, **xs})), (), slices,
                            length=self.scan.length)[1]

    def run(self, values: Mapping[int, jax.Array], kept: Kept) -> list[jax.Array]:
        """The results, given all operands."""
        scan, params = self.scan, self.line.eqn.params
        carried = slice(scan.constants, scan.constants + scan.carries)
        fixed, slices = self._operands(values, set())

        def step(carry: list[jax.Array], pair: tuple[dict, Kept]) -> tuple[list, list]:
            xs, kept_step = pair
            entering = dict(zip(self.body.inputs[carried], carry, strict=True))
            outputs = self.remainder.run({**fixed, **xs, **entering}, kept_step)
            return outputs[: scan.carries], outputs[scan.carries :]

        carry, results = jax.lax.scan(
            step, [values[i] for i in self.line.operands[carried]], (slices, kept),
            length=scan.length, reverse=params["reverse"], unroll=params["unroll"])
        return [*carry, *results]

    def _operands(self, values: Mapping[int, jax.Array],
                  excluded: set[int]) -> tuple[dict, dict]:
        """Constants and scanned arrays, by their places in the body."""
        start, known = self.scan.constants, [
            (place, values[i]) for place, i in zip(self.body.inputs, self.line.operands,
                                                   strict=True) if place not in excluded]
        places = self.body.inputs
        return ({place: value for place, value in known if place in places[:start]},
                {place: value for place, value in known
                 if place in places[start + self.scan.carries :]})


def _is_impure(eqn: JaxprEqn) -> bool:
    """Whether an equation is evaluated in each call in any case: it receives rows from the host."""
    return bool(eqn.effects) or "callback" in eqn.primitive.name or any(
        map(_is_impure, (inner for body in bodies(eqn) for inner in equations(body))))


def _cost(eqn: JaxprEqn) -> float:
    """Nanoseconds that an equation takes, about."""
    entry = table_entry(eqn)
    n_in, n_out = (sum(_entries(atom.aval) for atom in atoms)
                   for atoms in (eqn.invars, eqn.outvars))
    if entry is None or entry.kind in (Kind.LOOP, Kind.OPAQUE, Kind.CALL):
        return SPECIAL * (n_in + n_out)
    if entry.kind is Kind.CONTRACT:
        return ARITHMETIC * n_in * max(n_out / max(n_in, 1), 1.0)
    unit_cost = {Kind.MOVE: 0.0, Kind.COPY: 0.0, Kind.CREATE: 0.0, Kind.ELEMENTWISE: ARITHMETIC,
                 Kind.REDUCE: ARITHMETIC}.get(entry.kind, TRANSCENDENTAL)
    return COST.get(name_of(eqn), unit_cost) * max(n_in if unit_cost else 0, n_out)


def _entries(aval: object) -> int:
    return math.prod(getattr(aval, "shape", ()))
