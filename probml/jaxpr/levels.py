"""How outputs of a jaxpr depend on parameters: constant < moved < affine < general, found by
abstract interpretation.

The jaxpr is "parameters and other values -> distribution arguments"; the level of an argument in a
parameter says which closed-form M-step can apply. `mean[z]` is moved; `sqrt(variance[z])` is moved
in another coordinate; `x @ beta[z] + b` is affine in `beta` and `b`; `softmax(logits)` is general.
A level is a promise: everything below GENERAL is proved from the equations (walk.py), and every
equation not known here is GENERAL in all it depends on.

Three things the levels do not see, for those who rely on them:
  - powers are read on the positive half line: `sqrt(x**2)` is `x`;
  - a constant factor that is not one known number may be zero somewhere, as in `mean * mask`;
  - an index out of bounds may read NaN (`jnp.take`) or drop a write; only an explicit fill value
    counts as a constant.
"""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from probml.jaxpr.analysis import Domain, analyse
from probml.jaxpr.primitives import Kind, name_of, named
from probml.jaxpr.program import equations


class Level(enum.IntEnum):
    """How an output depends on a parameter, the rest held fixed."""

    CONSTANT = 0  # not at all
    # every element of the output is one element of one parameter, perhaps in another coordinate
    MOVED = 1
    AFFINE = 2  # affine, jointly with every other parameter of level MOVED or AFFINE
    GENERAL = 3  # in a way that is not known


class Use(NamedTuple):
    """How one output uses one parameter.

    `coordinate` is for MOVED only: the one-to-one elementwise maps from parameter element to output
    element, in order of application; empty for a pure copy. Steps: ("power", p); ("complement",
    1.0), which is 1 - x; ("exp", 1.0); ("log", 1.0); ("logistic", 1.0); ("times", 1.0), a product
    with constants, which may differ per element. A "times" that ends the coordinate next to a power
    is left out: `c * sqrt(x)` and `sqrt(x / c)` are both (("power", 0.5),).
    """

    level: Level
    coordinate: tuple[tuple[str, float], ...] = ()


class _Step(NamedTuple):
    """One map of a coordinate, then a constant factor: 1 for none, NaN where it is not one known
    number."""

    name: str
    number: float = 1.0
    factor: float = 1.0


_COPY = (_Step("copy"),)


class _Value(NamedTuple):
    """What is known of one array."""

    levels: Mapping[str, Level]
    chain: tuple[_Step, ...] | None = None
    """The coordinate, begun by a copy; not None exactly when there are parameters and all are
    MOVED."""
    uniform: float | None = None
    """The value of all elements, where no parameter enters and it is one known number."""


_CONSTANT = _Value({})
_INVERSE = {"exp": "log", "log": "exp", "complement": "complement"}
_MAPS: dict[str, tuple] = {"sqrt": ("power", 0.5), "rsqrt": ("power", -0.5),
                           "square": ("power", 2.0), "cbrt": ("power", 1 / 3)}
_MAPS |= {name: (name,) for name in ("exp", "log", "logistic")}
_MOVES = named(Kind.MOVE)
_LARGEST_CONSTANT_READ = 4096
_LOOPS = named(Kind.LOOP)


def classify(closed_jaxpr: ClosedJaxpr, tracked: Mapping[int, str]) -> list[dict[str, Use]]:
    """For each output, the tracked parameters it depends on and how.

    Args:
        closed_jaxpr: a function of parameters and other values (data, discrete values).
        tracked: index of an input -> name of the parameter it is. Inputs that are not named count
            as known constants.

    Returns:
        One dict per output; a parameter of level CONSTANT is absent.

    Cost: one pass over the equations, no array computation.
    """
    jaxpr = closed_jaxpr.jaxpr
    inputs = [_Value({tracked[i]: Level.MOVED}, _COPY) if i in tracked else _CONSTANT
              for i in range(len(jaxpr.invars))]
    outputs = analyse(closed_jaxpr, _Levels(), inputs)
    found = [{name: _use(level, value.chain) for name, level in value.levels.items()}
             for value in outputs]
    if not any(eqn.primitive.name in _LOOPS for eqn in equations(closed_jaxpr)):
        return found
    # a loop mixes all that enters it: which results take what is told by its body
    return [{name: use for name, use in uses.items()
             if any(tracked.get(i) == name for i in taken)}
            for uses, taken in zip(found, dependencies(closed_jaxpr), strict=True)]


def dependencies(closed_jaxpr: ClosedJaxpr) -> list[frozenset[int]]:
    """For each output, the indices of all inputs it depends on: exact through calls and loops, all
    inputs for what is not known."""
    return analyse(closed_jaxpr, Dependence(), map(frozenset, zip(range(len(
        closed_jaxpr.jaxpr.invars)))))


class Dependence(Domain[frozenset]):
    """The inputs on which an array depends, by what they are called."""

    def constant(self, value: Any) -> frozenset:
        return frozenset()

    def equation(self, eqn: Any, operands: list[frozenset]) -> list[frozenset]:
        return [frozenset().union(*operands)] * len(eqn.outvars)

    def join(self, one: frozenset, other: frozenset, eqn: Any) -> frozenset:
        return one | other


def restrict(closed_jaxpr: ClosedJaxpr, outputs: Sequence[int]) -> tuple[ClosedJaxpr,
                                                                         tuple[int, ...]]:
    """A jaxpr of only these outputs, in this order, and the indices of the inputs it still takes.

    Equations, constants and inputs that the outputs do not need are gone; a call or a loop is kept
    or dropped as a whole, and what goes in for the sake of its other results is zero.
    """
    jaxpr = closed_jaxpr.jaxpr
    outvars = [jaxpr.outvars[i] for i in outputs]
    needed = {atom for atom in outvars if not isinstance(atom, Literal)}
    eqns = []
    for eqn in reversed(jaxpr.eqns):
        if not needed.isdisjoint(eqn.outvars):
            eqns.append(eqn)
            needed.update(atom for atom in eqn.invars if not isinstance(atom, Literal))
    kept = tuple(i for i, var in enumerate(jaxpr.invars) if var in needed)
    constants = [(var, value) for var, value in zip(jaxpr.constvars, closed_jaxpr.consts,
                                                    strict=True) if var in needed]
    smaller = jaxpr.replace(
        constvars=[var for var, _ in constants],
        invars=[jaxpr.invars[i] for i in kept],
        outvars=outvars,
        eqns=eqns[::-1],
        effects=set().union(*(eqn.effects for eqn in eqns)),
    )
    smaller = ClosedJaxpr(smaller, [value for _, value in constants])
    needed = set().union(*dependencies(smaller))
    idle = [i for i, aval in enumerate(smaller.in_avals) if i not in needed
            and isinstance(aval.dtype, np.dtype)]
    return ((_zeroed(smaller, idle), tuple(i for k, i in enumerate(kept) if k not in idle))
            if idle else (smaller, kept))


def _zeroed(closed_jaxpr: ClosedJaxpr, idle: Sequence[int]) -> ClosedJaxpr:
    """The same program where these inputs are constants, of zeros."""
    jaxpr = closed_jaxpr.jaxpr
    constvars = [*jaxpr.constvars, *(jaxpr.invars[i] for i in idle)]
    invars = [var for i, var in enumerate(jaxpr.invars) if i not in idle]
    zeros = [np.zeros(jaxpr.invars[i].aval.shape, jaxpr.invars[i].aval.dtype) for i in idle]
    return ClosedJaxpr(jaxpr.replace(constvars=constvars, invars=invars),
                       [*closed_jaxpr.consts, *zeros])


def _constant(value: Any) -> _Value:
    """What is known of a literal or a constant of the jaxpr."""
    if not 1 <= getattr(value, "size", 1) <= _LARGEST_CONSTANT_READ:
        return _CONSTANT
    try:
        array = np.asarray(value)
        first = float(np.real(array.flat[0]))
    except (TypeError, ValueError):  # a random key, a tracer
        return _CONSTANT
    return _Value({}, None, first) if np.all(array == first) else _CONSTANT


def _use(level: Level, chain: tuple[_Step, ...] | None) -> Use:
    """The public form: factors are constants, and constants next to a last power are multiplied
    away."""
    if chain is None:
        return Use(level)
    steps = []
    for name, number, factor in chain:
        steps += [(name, number)] * (name != "copy") + [("times", 1.0)] * (factor != 1.0)
    absorbed = chain[-1].name == "power" and chain[-1].factor != 1.0
    return Use(level, tuple(steps[:-1] if absorbed else steps))


def _general(values: Iterable[_Value]) -> _Value:
    return _Value({name: Level.GENERAL for value in values for name in value.levels})


def _affine(values: Iterable[_Value]) -> _Value:
    """The level of an affine function of the values."""
    levels: dict[str, Level] = {}
    for value in values:
        for name, level in value.levels.items():
            if value.chain is not None:
                affine = all(step.name in ("copy", "complement") for step in value.chain)
                level = Level.AFFINE if affine else Level.GENERAL
            levels[name] = max(level, levels.get(name, Level.CONSTANT))
    return _Value(levels)


def _mixed(values: Sequence[_Value]) -> _Value:
    """An array each of whose elements is an element of one of the values."""
    chain = values[0].chain
    for value in values[1:]:
        chain = None if chain is None or value.chain is None else _merged(chain, value.chain)
    return _affine(values) if chain is None else _Value(
        {name: Level.MOVED for value in values for name in value.levels}, chain
    )


def _merged(one: tuple[_Step, ...], other: tuple[_Step, ...]) -> tuple[_Step, ...] | None:
    """The coordinate that is both, up to factors that differ; None if they differ in more."""
    if [step[:2] for step in one] != [step[:2] for step in other]:
        return None
    return tuple(left if left == right else left._replace(factor=math.nan)
                 for left, right in zip(one, other, strict=True))


def _extended(chain: tuple[_Step, ...], name: str, number: float) -> tuple[_Step, ...]:
    """The coordinate followed by one more map, in normal form: no two powers in a row, no factor
    before a power."""
    *before, last = chain
    if name == "times":
        return (*before, last._replace(factor=last.factor * number))
    if name == "power":  # (c x^q)^p = c^p x^(pq)
        with np.errstate(all="ignore"):
            factor = float(np.power(np.float64(last.factor), number))
        factor = factor if math.isfinite(factor) and factor != 0.0 else math.nan
        if last.name != "power":
            before, last = [*before, last._replace(factor=1.0)], _Step("power")
        total = last.number * number
        return (*before, _Step("power", total, factor)) if total != 1.0 else _extended(
            tuple(before), "times", factor
        )
    return tuple(before) if last == _Step(_INVERSE.get(name, "")) else (*chain, _Step(name))


def _step(value: _Value, name: str, number: float = 1.0) -> _Value:
    """The value after a one-to-one elementwise map."""
    if value.chain is None:
        return _affine([value]) if name in ("times", "complement") else _general([value])
    return value._replace(chain=_extended(value.chain, name, number))


def _times(value: _Value, factor: float | None) -> _Value:
    """The value times a constant; None where it is not one known number."""
    if factor == 0.0:  # not one-to-one
        return _affine([value])
    return _step(value, "times",
                 factor if factor is not None and math.isfinite(factor) else math.nan)


class _Levels(Domain[_Value]):
    """Levels and coordinates; a loop mixes all that enters it."""

    def constant(self, value: Any) -> _Value:
        return _constant(value)

    def opaque_results(self, eqn: Any, operands: list[_Value]) -> list[_Value]:
        return [_general(operands)] * len(eqn.outvars)

    def equation(self, eqn: Any, operands: list[_Value]) -> list[_Value]:
        name = name_of(eqn)
        if not any(value.levels for value in operands):
            kept = (name == "convert_element_type" and _is_float(eqn.outvars[0])
                    or name in _MOVES and name != "gather")
            return [operands[0] if kept else _CONSTANT] * len(eqn.outvars)
        value = _result(name, eqn, operands)
        return [value if value.chain == _COPY or _is_float(var) else _general([value])
                for var in eqn.outvars]


def _result(name: str, eqn: Any, values: list[_Value]) -> _Value:
    """The result of an equation with at least one operand that depends on a parameter."""
    first, rest = values[0], values[1:]
    tracked = [value for value in values if value.levels]
    alone = tracked[0] if len(tracked) == 1 else None
    # of the other operand, for two
    constant = next((value.uniform for value in values if not value.levels), None)
    match name:
        case _ if name in _MOVES:
            fill = eqn.params.get("fill_value")
            moved = first if fill is None or np.isnan(fill) else _mixed([first, _CONSTANT])
            return moved if first is alone else _general(values)
        case "convert_element_type":
            return first if _is_float(eqn.invars[0]) and _is_float(eqn.outvars[0]) else _general(
                values
            )
        case "concatenate" | "stack":
            return _mixed(values)
        case "select_n":
            return _general(values) if first.levels else _mixed(rest)
        case "pad":
            inside = all(max(sides) <= 0 for sides in eqn.params["padding_config"])
            return first if inside and first is alone else _mixed(values)
        case "scatter" | "scatter_add" | "scatter_sub":
            combined = _mixed if name == "scatter" else _affine
            return _general(values) if values[1].levels else combined([first, values[2]])
        case "dynamic_update_slice":
            updated = values[1] if eqn.invars[0].aval.shape == eqn.invars[1].aval.shape else _mixed(
                values[:2]
            )
            return _general(values) if any(value.levels for value in values[2:]) else updated
        case "reduce_sum" | "cumsum":
            return (first if name == "reduce_sum"
                    and eqn.invars[0].aval.size == eqn.outvars[0].aval.size else _affine(values))
        case "add" | "add_any" | "sub" if alone is None:
            return _affine(values)
        case "mul" if len(values) == 2 and eqn.invars[0] is eqn.invars[1]:
            return _step(first, "power", 2.0)
        case "integer_pow" if eqn.params["y"]:
            return _step(first, "power", float(eqn.params["y"]))
        case _ if alone is None:
            return _general(values)
        case "add" | "add_any":
            return _plus(alone, constant)
        case "sub" if alone is first:
            return alone if constant == 0.0 else _affine(values)
        case "sub":
            return _step(alone, "complement") if constant == 1.0 else _plus(_times(alone, -1.0),
                                                                            constant)
        case "neg":
            return _times(alone, -1.0)
        case "mul":
            return _times(alone, constant)
        case "div" if alone is first:
            return _times(alone, 1.0 / constant if constant else None)
        case "div":
            return _times(_step(alone, "power", -1.0), constant)
        case "dot_general":
            (summed, _), _ = eqn.params["dimension_numbers"]
            return _affine(values) if summed else _times(alone, None)
        case "conv_general_dilated":
            return _affine(values)
        case _ if name in _MAPS:
            return _step(alone, *_MAPS[name])
        case "pow" if alone is first and constant and math.isfinite(constant):
            return _step(alone, "power", constant)
        case "pow" if (alone is not first and constant and 0 < constant < math.inf
                       and constant != 1.0):
            return _step(_times(alone, math.log(constant)), "exp")
        case "exp2":
            return _step(_times(alone, math.log(2.0)), "exp")
        case "log2":
            return _times(_step(alone, "log"), 1 / math.log(2.0))
        case "log1p" if alone.chain and alone.chain[-1].factor == -1.0:
            return _step(_plus(alone, 1.0), "log")
        case _:
            return _general(values)


def _plus(value: _Value, constant: float | None) -> _Value:
    """The value plus a constant; 1 + (-x) is the complement."""
    if constant == 0.0:
        return value
    if constant == 1.0 and value.chain is not None and value.chain[-1].factor == -1.0:
        return _step(_times(value, -1.0), "complement")
    return _affine([value])


def _is_float(atom: Any) -> bool:
    dtype = getattr(atom.aval, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.floating))
