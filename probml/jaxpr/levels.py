"""How outputs of a jaxpr depend on parameters, constant < moved < affine < general, by abstract
interpretation.

The jaxpr is "parameters and other values -> distribution arguments"; the level of an argument in a
parameter says which closed-form M-step can apply. `mean[z]` is moved; `sqrt(variance[z])` is moved
in another coordinate; `x @ beta[z] + b` is affine in `beta` and `b`; `softmax(logits)` is general.
Levels are conservative: everything below GENERAL is proved from the equations (analysis.py), and an
unknown equation is GENERAL in everything it depends on.

Three assumptions of the levels:
  - powers are read on the positive half line: `sqrt(x**2)` is `x`;
  - a constant factor that is not one known number may be zero somewhere, as in `mean * mask`;
  - an index out of bounds may read NaN (`jnp.take`) or drop a write; only an explicit fill value
    counts as a constant.
"""

import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Atom
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

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

    @property
    def is_affine(self) -> bool:
        """Whether the output is an affine function of the parameter itself, not of its power, its
        logarithm or the like."""
        return self.level <= Level.AFFINE and all(step in ("times", "complement")
                                                  for step, _ in self.coordinate)


class _Step(NamedTuple):
    """One map of a coordinate, then a constant factor: 1 for none, NaN where it is not one known
    number."""

    name: str
    number: float = 1.0
    factor: float = 1.0


_COPY = (_Step("copy"),)


class _Value(NamedTuple):
    """The abstract value of an array: its level in each parameter, and its coordinate."""

    levels: Mapping[str, Level]
    chain: tuple[_Step, ...] | None = None
    """The coordinate, begun by a copy; not None exactly when there are parameters and all are
    MOVED."""
    uniform: float | None = None
    """The value of all elements, where no parameter enters and it is one known number."""


_CONSTANT = _Value({})
_INVERSE = {"exp": "log", "log": "exp", "complement": "complement"}
_MAPS: dict[str, tuple] = {"sqrt": ("power", 0.5), "rsqrt": ("power", -0.5),
                           "square": ("power", 2.0), "cbrt": ("power", 1 / 3),
                           "exp": ("exp",), "log": ("log",), "logistic": ("logistic",)}
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
    all_uses = [{name: _use(level, value.chain) for name, level in value.levels.items()}
                for value in outputs]
    if not any(eqn.primitive.name in _LOOPS for eqn in equations(closed_jaxpr)):
        return all_uses
    # a loop mixes all its operands; its body tells on which of them each result depends
    return [{name: use for name, use in uses.items()
             if any(tracked.get(i) == name for i in needed)}
            for uses, needed in zip(all_uses, dependencies(closed_jaxpr), strict=True)]


def dependencies(closed_jaxpr: ClosedJaxpr) -> list[frozenset[int]]:
    """For each output, the indices of all inputs it depends on: exact through calls and loops; of
    unknown equations all operands."""
    return analyse(closed_jaxpr, Dependence(), map(frozenset, zip(range(len(
        closed_jaxpr.jaxpr.invars)))))


class Dependence(Domain[frozenset]):
    """The inputs on which an array depends, by their names."""

    def constant(self, value: object) -> frozenset:
        return frozenset()

    def equation(self, eqn: JaxprEqn, operands: list[frozenset]) -> list[frozenset]:
        return [frozenset().union(*operands)] * len(eqn.outvars)

    def join(self, one: frozenset, other: frozenset, eqn: JaxprEqn) -> frozenset:
        return one | other


class _NanTests(Dependence):
    """Dependences, and whether an array that depends on an input is asked for NaN."""

    found = False

    def equation(self, eqn: JaxprEqn, operands: list[frozenset]) -> list[frozenset]:
        name = eqn.primitive.name  # jnp.isnan(x) is x ≠ x
        self.found |= bool(operands and operands[0]) and (
            name == "is_finite" or name == "ne" and eqn.invars[0] is eqn.invars[1])
        return super().equation(eqn, operands)


def asks_for_nan(closed_jaxpr: ClosedJaxpr) -> bool:
    """Whether a program asks which numbers that depend on its inputs are NaN, or finite."""
    tests = _NanTests()
    analyse(closed_jaxpr, tests, map(frozenset, zip(range(len(closed_jaxpr.jaxpr.invars)))))
    return tests.found


def restrict(closed_jaxpr: ClosedJaxpr, outputs: Sequence[int]) -> tuple[ClosedJaxpr,
                                                                         tuple[int, ...]]:
    """A jaxpr of only these outputs, in this order, and the indices of the inputs it still takes.

    Equations, constants and inputs that the outputs do not need are dropped; a call or a loop is
    kept or dropped as a whole, and operands that only its other results need are zero.
    """
    jaxpr = closed_jaxpr.jaxpr
    outvars = [jaxpr.outvars[i] for i in outputs]
    needed = {atom for atom in outvars if not isinstance(atom, Literal)}
    eqns = []
    for eqn in reversed(jaxpr.eqns):
        if not needed.isdisjoint(eqn.outvars):
            eqns.append(eqn)
            needed.update(atom for atom in eqn.invars if not isinstance(atom, Literal))
    indices = tuple(i for i, var in enumerate(jaxpr.invars) if var in needed)
    constants = [(var, value) for var, value in zip(jaxpr.constvars, closed_jaxpr.consts,
                                                    strict=True) if var in needed]
    reduced = jaxpr.replace(
        constvars=[var for var, _ in constants],
        invars=[jaxpr.invars[i] for i in indices],
        outvars=outvars,
        eqns=eqns[::-1],
        effects=set().union(*(eqn.effects for eqn in eqns)),
    )
    reduced = ClosedJaxpr(reduced, [value for _, value in constants])
    needed = set().union(*dependencies(reduced))
    unused = [i for i, aval in enumerate(reduced.in_avals) if i not in needed
              and isinstance(aval.dtype, np.dtype)]
    return ((_zeroed(reduced, unused), tuple(i for k, i in enumerate(indices) if k not in unused))
            if unused else (reduced, indices))


def _zeroed(closed_jaxpr: ClosedJaxpr, unused: Sequence[int]) -> ClosedJaxpr:
    """The program with these inputs replaced by zeros."""
    jaxpr = closed_jaxpr.jaxpr
    constvars = [*jaxpr.constvars, *(jaxpr.invars[i] for i in unused)]
    invars = [var for i, var in enumerate(jaxpr.invars) if i not in unused]
    zeros = [np.zeros(jaxpr.invars[i].aval.shape, jaxpr.invars[i].aval.dtype) for i in unused]
    return ClosedJaxpr(jaxpr.replace(constvars=constvars, invars=invars),
                       [*closed_jaxpr.consts, *zeros])


def _use(level: Level, chain: tuple[_Step, ...] | None) -> Use:
    """A level and a coordinate as a Use: factors are constants, and constants next to a last power
    are left out."""
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
    """The common coordinate of two, up to different factors; None if they differ otherwise."""
    if [step[:2] for step in one] != [step[:2] for step in other]:
        return None
    return tuple(left if left == right else left._replace(factor=math.nan)
                 for left, right in zip(one, other, strict=True))


def _extended(chain: tuple[_Step, ...], name: str, number: float) -> tuple[_Step, ...]:
    """The coordinate followed by one more map, in normal form: no two powers in a row, no factor
    before a power."""
    *earlier, last = chain
    if name == "times":
        return (*earlier, last._replace(factor=last.factor * number))
    if name == "power":  # (c x^q)^p = c^p x^(pq)
        with np.errstate(all="ignore"):
            factor = float(np.power(np.float64(last.factor), number))
        factor = factor if math.isfinite(factor) and factor != 0.0 else math.nan
        if last.name != "power":
            earlier, last = [*earlier, last._replace(factor=1.0)], _Step("power")
        total = last.number * number
        return (*earlier, _Step("power", total, factor)) if total != 1.0 else _extended(
            tuple(earlier), "times", factor
        )
    return tuple(earlier) if last == _Step(_INVERSE.get(name, "")) else (*chain, _Step(name))


def _step(value: _Value, name: str, number: float = 1.0) -> _Value:
    """The value after a one-to-one elementwise map."""
    if value.chain is None:
        return _affine([value]) if name in ("times", "complement") else _general([value])
    return value._replace(chain=_extended(value.chain, name, number))


def _times(value: _Value, factor: float | None) -> _Value:
    """The value times a constant; a factor of None is not one known number."""
    if factor == 0.0:  # not one-to-one
        return _affine([value])
    return _step(value, "times",
                 factor if factor is not None and math.isfinite(factor) else math.nan)


class _Levels(Domain[_Value]):
    """Levels and coordinates; a loop mixes all its operands."""

    def constant(self, value: object) -> _Value:
        if not 1 <= getattr(value, "size", 1) <= _LARGEST_CONSTANT_READ:
            return _CONSTANT
        try:
            array = np.asarray(value)
            first = float(np.real(array.flat[0]))
        except (TypeError, ValueError):  # a random key, a tracer
            return _CONSTANT
        return _Value({}, None, first) if np.all(array == first) else _CONSTANT

    def opaque_results(self, eqn: JaxprEqn, operands: list[_Value]) -> list[_Value]:
        return [_general(operands)] * len(eqn.outvars)

    def equation(self, eqn: JaxprEqn, operands: list[_Value]) -> list[_Value]:
        name = name_of(eqn)
        if not any(value.levels for value in operands):
            keeps = (name == "convert_element_type" and _is_float(eqn.outvars[0])
                     or name in _MOVES and name != "gather")
            return [operands[0] if keeps else _CONSTANT] * len(eqn.outvars)
        value = _result(name, eqn, operands)
        return [value if value.chain == _COPY or _is_float(var) else _general([value])
                for var in eqn.outvars]


class _Call(NamedTuple):
    """An equation of which at least one operand depends on a parameter.

    Attributes:
        values: of its operands.
        only_operand: the operand that depends on parameters, if it is the only one.
        constant: the value of all elements of the other operand, if known.
    """

    eqn: JaxprEqn
    values: list[_Value]
    only_operand: _Value | None
    constant: float | None

    @property
    def first(self) -> _Value:
        return self.values[0]


def _result(name: str, eqn: JaxprEqn, values: list[_Value]) -> _Value:
    """The result of an equation with at least one operand that depends on a parameter."""
    tracked = [value for value in values if value.levels]
    alone = tracked[0] if len(tracked) == 1 else None
    constant = next((value.uniform for value in values if not value.levels), None)
    call, result = _Call(eqn, values, alone, constant), None
    if (rule := _moved_level if name in _MOVES else _RULES.get(name)) is not None:
        result = rule(call)
    if result is None and alone is not None and (of_one := _RULES_OF_ONE.get(name)) is not None:
        result = of_one(alone, call)
    return _general(values) if result is None else result


def _moved_level(call: _Call) -> _Value:
    fill = call.eqn.params.get("fill_value")
    moved = call.first if fill is None or np.isnan(fill) else _mixed([call.first, _CONSTANT])
    return moved if call.first is call.only_operand else _general(call.values)


def _pad(call: _Call) -> _Value:
    crops = all(max(sides) <= 0 for sides in call.eqn.params["padding_config"])
    return call.first if crops and call.first is call.only_operand else _mixed(call.values)


def _scatter(call: _Call, combined: Callable = _mixed) -> _Value:
    target, indices, updates = call.values[:3]
    return _general(call.values) if indices.levels else combined([target, updates])


def _update_slice(call: _Call) -> _Value:
    if any(value.levels for value in call.values[2:]):
        return _general(call.values)
    replaces = call.eqn.invars[0].aval.shape == call.eqn.invars[1].aval.shape
    return call.values[1] if replaces else _mixed(call.values[:2])


def _add_several(call: _Call) -> _Value | None:
    return _affine(call.values) if call.only_operand is None else None


def _square(call: _Call) -> _Value | None:
    is_square = len(call.values) == 2 and call.eqn.invars[0] is call.eqn.invars[1]
    return _step(call.first, "power", 2.0) if is_square else None


def _integer_pow(call: _Call) -> _Value | None:
    power = call.eqn.params["y"]
    return _step(call.first, "power", float(power)) if power else None


def _subtract(alone: _Value, call: _Call) -> _Value:
    if alone is call.first:
        return alone if call.constant == 0.0 else _affine(call.values)
    if call.constant == 1.0:
        return _step(alone, "complement")
    return _plus(_times(alone, -1.0), call.constant)


def _divide(alone: _Value, call: _Call) -> _Value:
    if alone is call.first:
        return _times(alone, 1.0 / call.constant if call.constant else None)
    return _times(_step(alone, "power", -1.0), call.constant)


def _pow(alone: _Value, call: _Call) -> _Value | None:
    constant = call.constant
    if alone is call.first:
        return _step(alone, "power", constant) if constant and math.isfinite(constant) else None
    if constant and 0 < constant < math.inf and constant != 1.0:
        return _step(_times(alone, math.log(constant)), "exp")
    return None


def _map_of(*step: Any) -> Callable[[_Value, _Call], _Value]:
    return lambda alone, call: _step(alone, *step)


def _log1p(alone: _Value, call: _Call) -> _Value | None:
    negative = alone.chain and alone.chain[-1].factor == -1.0
    return _step(_plus(alone, 1.0), "log") if negative else None


def _plus(value: _Value, constant: float | None) -> _Value:
    """The value plus a constant; 1 + (-x) is the complement."""
    if constant == 0.0:
        return value
    if constant == 1.0 and value.chain is not None and value.chain[-1].factor == -1.0:
        return _step(_times(value, -1.0), "complement")
    return _affine([value])


def _is_float(atom: Atom) -> bool:
    dtype = getattr(atom.aval, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.floating))


# primitive → its rule, whatever number of operands depends on parameters; None: it does not apply
_RULES: dict[str, Callable[[_Call], _Value | None]] = {
    "add": _add_several, "add_any": _add_several, "concatenate": lambda call: _mixed(call.values),
    "convert_element_type": lambda call: (
        call.first if _is_float(call.eqn.invars[0]) and _is_float(call.eqn.outvars[0])
        else _general(call.values)),
    "cumsum": lambda call: _affine(call.values),
    "dynamic_update_slice": _update_slice, "integer_pow": _integer_pow, "mul": _square, "pad": _pad,
    "reduce_sum": lambda call: (
        call.first if call.eqn.invars[0].aval.size == call.eqn.outvars[0].aval.size
        else _affine(call.values)),
    "scatter": _scatter,
    "scatter_add": lambda call: _scatter(call, _affine),
    "scatter_sub": lambda call: _scatter(call, _affine), 
    "select_n": lambda call: (_general(call.values) if call.first.levels
                              else _mixed(call.values[1:])),
    "stack": lambda call: _mixed(call.values), "sub": _add_several,
}
# and its rule where one operand alone does
_RULES_OF_ONE: dict[str, Callable[[_Value, _Call], _Value | None]] = {
    "add": lambda alone, call: _plus(alone, call.constant),
    "add_any": lambda alone, call: _plus(alone, call.constant),
    "conv_general_dilated": lambda alone, call: _affine(call.values),
    "div": _divide,
    "dot_general": lambda alone, call: (  # with nothing summed an outer product
        _affine(call.values) if call.eqn.params["dimension_numbers"][0][0]
        else _times(alone, None)),
    "exp2": lambda alone, call: _step(_times(alone, math.log(2.0)), "exp"),
    "log1p": _log1p,
    "log2": lambda alone, call: _times(_step(alone, "log"), 1 / math.log(2.0)),
    "mul": lambda alone, call: _times(alone, call.constant),
    "neg": lambda alone, call: _times(alone, -1.0),
    "pow": _pow, "sub": _subtract,
    **{name: _map_of(*step) for name, step in _MAPS.items()},
}
