"""Symbolic values of the integers of a traced program: each is an affine, clipped function of a
cell of an input, or a formula; and which axes of parameters run along the axes of an array.

The program is not run: symbolic values follow from the equations, element by element, in NumPy.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn
from jax.typing import ArrayLike

from probml.jaxpr.primitives import computed

# the six fields of a symbolic number: clip(scale · code[source] + offset, low, high), formula
SOURCE, SCALE, OFFSET, LOW, HIGH, NODE = range(6)
KNOWN, UNKNOWN = -1, -2  # sources: the number is the constant `offset`; nothing is known
MAX_TRACKED_ELEMENTS = 2**16  # elements of an array that are tracked one by one
WRITTEN = 256  # elements of an array whose formulas are kept
ALTERNATIVES = 256  # possible values of one number
UNROLLED = 256  # steps of a scan that is unrolled
TABLE = ""  # the name of constant arrays in labels of parameters

# a parameter, an axis of it, and how far its entries are shifted along the axis of an array
Label = tuple[str, int, int]


class Value(NamedTuple):
    """The abstract value of an array.

    Attributes:
        numbers: (6, alternatives, *shape), the symbolic number of each element; None: unknown. If
            the scale is NaN, the field NODE is the number of its formula, counted from 1; 0: none.
        axes: for each axis, the axes of parameters that run along it.
        other_axes: axes of parameters on which elements depend in another way.
        negative: of a predicate `x < 0`, the numbers x.
    """

    numbers: np.ndarray | None
    axes: tuple[frozenset[Label], ...]
    other_axes: frozenset[tuple[str, int]] = frozenset()
    negative: np.ndarray | None = None

    @property
    def all_axes(self) -> frozenset[tuple[str, int]]:
        """All axes of parameters on which the array depends."""
        return self.other_axes | {label[:2] for labels in self.axes for label in labels}


class Node(NamedTuple):
    """An operation on symbolic numbers; `is_integer`: its result is an integer."""

    name: str
    numbers: tuple[tuple[float, ...], ...]
    is_integer: bool
    constants: Any  # the power of integer_pow, the entries of a table


def numbers_of(source: object, scale: float, offset: object, low: float = -np.inf,
               high: float = np.inf) -> np.ndarray:
    """Symbolic numbers with a single alternative, (6, 1, *shape)."""
    return np.stack(np.broadcast_arrays(
        *(np.asarray(v, float) for v in (source, scale, offset, low, high, 0.0))
    ))[:, None]


def constant(value: ArrayLike) -> Value:
    """The value of a constant of the program. If its elements differ, its axes get the label
    TABLE."""
    table = tuple(frozenset([(TABLE, 0, 0)]) if size > 1 else frozenset()
                  for size in np.shape(value))
    if getattr(value, "size", 1) > MAX_TRACKED_ELEMENTS or not _numeric(value):
        return Value(None, table)
    array = np.asarray(value, float)
    varies = array.size > 1 and not np.all(array == array.flat[0])
    return Value(numbers_of(KNOWN, 0.0, array), table if varies else (frozenset(),) * array.ndim)


def _numeric(value: object) -> bool:
    dtype = getattr(value, "dtype", np.asarray(value).dtype if np.isscalar(value) else None)
    return dtype is not None and any(jnp.issubdtype(dtype, kind)
                                     for kind in (jnp.floating, jnp.integer, jnp.bool_))


OPERATIONS: dict[str, Callable | None] = {
    "add": np.add, "and": np.logical_and, "div": np.true_divide, "eq": np.equal,
    "floor": np.floor, "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal,
    "lt": np.less, "max": np.maximum, "min": np.minimum, "mul": np.multiply, "ne": np.not_equal,
    "neg": np.negative, "or": np.logical_or, "rem": np.fmod, "sign": np.sign, "sub": np.subtract,
    "abs": np.abs, "ceil": np.ceil, "round": np.round, "convert_element_type": np.asarray,
    "integer_pow": None, "table": None, "not": np.logical_not,
    "clamp": lambda low, x, high: np.clip(x, low, high),
    "select_n": lambda which, no, yes: np.where(np.asarray(which) != 0, yes, no),
}


def elementwise(name: str, eqn: JaxprEqn, values: list[Value], nodes: list[Node]) -> Value:
    shape = eqn.outvars[0].aval.shape
    full_rank = [v for v in values if len(v.axes) == len(shape)]
    axes = tuple(frozenset().union(*(v.axes[i] for v in full_rank)) for i in range(len(shape)))
    loose = frozenset().union(*(v.other_axes for v in values))
    operands = [v.numbers for v in values if v.numbers is not None]
    if len(operands) < len(values) or math.prod(shape) > MAX_TRACKED_ELEMENTS:
        return Value(None, axes, loose)
    wrapped = _wrapped(*values) if name == "select_n" and len(values) == 3 else None
    if wrapped is not None:
        return Value(wrapped, axes, loose)
    parts = _broadcast_alternatives(operands, shape)
    if parts is None:
        return Value(None, axes, loose)
    integer = not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating)
    rule = RULES.get("trunc" if integer and name == "convert_element_type" else name)
    # what is compared with 0
    negative = (parts[0] if name == "lt" and _is_known(parts[1]) and not parts[1][OFFSET].any()
                else None)
    numbers = opaque(parts) if negative is not None else rule(*parts) if rule else None
    numbers = _folded(eqn, parts) if numbers is None else numbers
    write(nodes, numbers, parts, name, integer, eqn.params.get("y"))
    return Value(numbers, axes, loose, negative)


def _folded(eqn: JaxprEqn, parts: list[np.ndarray]) -> np.ndarray:
    """The result if all operands are known; else an unknown function of their cells."""
    result = computed(eqn, [part[OFFSET].astype(atom.aval.dtype) for part, atom in zip(
        parts, eqn.invars, strict=True)]) if all(map(_is_known, parts)) else None
    return opaque(parts) if result is None else _constant_numbers(result[0].astype(float))


def write(nodes: list[Node], numbers: np.ndarray, parts: list[np.ndarray], name: str, integer: bool,
          more: Any) -> None:
    """Record the formulas of numbers that are no affine function of a cell."""
    flat = numbers.reshape(6, -1)
    positions = np.flatnonzero(np.isnan(flat[SCALE]) & (flat[NODE] == 0))
    if name not in OPERATIONS or not 0 < len(positions) <= WRITTEN:
        return
    operands = [part.reshape(6, -1) for part in parts]
    for i in positions:
        args = tuple(tuple(part[:, i].tolist()) for part in operands)
        if all(number[SOURCE] == KNOWN or math.isfinite(number[SCALE]) or number[NODE]
               for number in args):
            nodes.append(Node(name, args, integer, more))
            numbers[(NODE, *map(int, np.unravel_index(i, numbers.shape[1:])))] = len(nodes)


def sources_of(nodes: Sequence[Node], number: tuple[float, ...]) -> list[int]:
    """The cells of inputs on which a number depends."""
    if not number[NODE]:
        return [int(number[SOURCE])] if number[SOURCE] >= 0 else []
    visited, stack, cells = set(), [number], set()
    while stack:
        *_, node = current = stack.pop()
        if node and node not in visited:
            visited.add(node)
            stack += nodes[int(node) - 1].numbers
        elif not node and current[SOURCE] >= 0:
            cells.add(int(current[SOURCE]))
    return sorted(cells)


def evaluated(nodes: Sequence[Node], number: tuple[float, ...], codes: dict[int, np.ndarray],
              known: dict[int, np.ndarray]) -> ArrayLike:
    """The value of a symbolic number for given codes."""
    if not number[NODE]:
        if number[SOURCE] == KNOWN:
            return number[OFFSET]
        return np.clip(number[SCALE] * codes[int(number[SOURCE])] + number[OFFSET], number[LOW],
                       number[HIGH])
    place = int(number[NODE])
    if place not in known:
        node = nodes[place - 1]
        operands = [evaluated(nodes, operand, codes, known) for operand in node.numbers]
        if node.name == "table":
            value = node.constants[np.clip(operands[0], 0, len(node.constants) - 1).astype(int)]
        elif node.name == "integer_pow":
            value = np.asarray(operands[0], float) ** node.constants
        else:
            operation = OPERATIONS[node.name]
            assert operation is not None, node.name
            value = np.asarray(operation(*operands), float)
        known[place] = np.trunc(value) if node.is_integer else value
    return known[place]


def _broadcast_alternatives(parts: list[np.ndarray],
                            shape: tuple[int, ...]) -> list[np.ndarray] | None:
    """Operands broadcast to the same shape and the same alternatives (all combinations); None if
    these are too many."""
    varying = [i for i, part in enumerate(parts) if part.shape[1] > 1]
    total = math.prod(parts[i].shape[1] for i in varying)
    if total > ALTERNATIVES:
        return None
    result = []
    for i, part in enumerate(parts):
        lead = [part.shape[1] if j == i else 1 for j in varying]
        expanded = part.reshape(6, *lead, *(part.shape[2:] or (1,) * len(shape)))
        expanded = np.broadcast_to(expanded, (6, *(parts[j].shape[1] for j in varying), *shape))
        result.append(expanded.reshape(6, total, *shape))
    return result


def _constant_numbers(value: np.ndarray) -> np.ndarray:
    return np.stack(np.broadcast_arrays(float(KNOWN), 0.0, value, -np.inf, np.inf, 0.0))


def opaque(parts: Sequence[np.ndarray]) -> np.ndarray:
    """An unknown function of the operands; its source is their common cell, if there is one."""
    source = np.full(parts[0].shape[1:], float(KNOWN))
    for part in parts:
        cell = part[SOURCE]
        source = np.where((cell == KNOWN) | (cell == source), source,
                          np.where(source == KNOWN, cell, UNKNOWN))
    source = np.where(source == KNOWN, UNKNOWN, source)
    return np.stack(np.broadcast_arrays(source, np.nan, np.nan, -np.inf, np.inf, 0.0))


def _sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    const = [(p[SOURCE] == KNOWN) for p in (a, b)]
    free = [np.isinf(p[LOW]) & np.isinf(p[HIGH]) for p in (a, b)]
    with np.errstate(invalid="ignore"):
        fields = np.stack([np.where(const[0], b[SOURCE], a[SOURCE]),
                           *(a[[SCALE, OFFSET]] + b[[SCALE, OFFSET]])])
        low = np.where(const[0], b[LOW] + a[OFFSET], a[LOW] + b[OFFSET])
        high = np.where(const[0], b[HIGH] + a[OFFSET], a[HIGH] + b[OFFSET])
    addable = const[0] | const[1] | (a[SOURCE] == b[SOURCE]) & (a[SOURCE] >= 0) & free[0] & free[1]
    one_const = const[0] ^ const[1]
    total = np.stack([*fields, np.where(one_const, low, -np.inf), np.where(one_const, high, np.inf),
                      np.zeros_like(low)])
    total = np.where(addable, total, opaque([a, b]))
    cancelled = (total[SOURCE] >= 0) & (total[SCALE] == 0)
    return np.where(cancelled, _constant_numbers(total[OFFSET]), total)


def _scaled(a: np.ndarray, factor: ArrayLike) -> np.ndarray:
    factor = np.broadcast_to(factor, a.shape[1:])
    with np.errstate(invalid="ignore"):
        bounds = np.sort(a[[LOW, HIGH]] * factor, 0)
        scaled = np.stack([a[SOURCE], a[SCALE] * factor, a[OFFSET] * factor, *bounds,
                           np.zeros_like(factor)])
    zero = (factor == 0) | (a[SOURCE] == KNOWN)
    return np.where(zero, _constant_numbers(np.where(factor == 0, 0.0, a[OFFSET] * factor)), scaled)


def _is_known(part: np.ndarray) -> bool:
    return bool((part[SOURCE] == KNOWN).all())


def _by_known(rule: Callable, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """A rule applied to one operand and the constant other one; None if neither is constant."""
    return (rule(a, b[OFFSET]) if _is_known(b) else rule(b, a[OFFSET]) if _is_known(a) else None)


def _clamped(low: np.ndarray, a: np.ndarray, high: np.ndarray) -> np.ndarray | None:
    """clip(a, low, high); None if a bound is not constant."""
    return _clipped(np.minimum, _clipped(np.maximum, a, low[OFFSET]),
                    high[OFFSET]) if _is_known(low) and _is_known(high) else None


def _rounded(a: np.ndarray) -> np.ndarray:
    """Rounding: integers stay as they are."""
    return np.where((a[[SCALE, OFFSET]] % 1 != 0).any(0), opaque([a]), a)


def _truncated(a: np.ndarray) -> np.ndarray:
    """Truncation towards zero; known numbers are truncated."""
    return np.where(a[SOURCE] == KNOWN, _constant_numbers(np.trunc(a[OFFSET])), _rounded(a))


def _clipped(bound: np.ufunc, a: np.ndarray, value: np.ndarray) -> np.ndarray:
    """max(a, value) or min(a, value)."""
    clipped = np.stack([*a[: OFFSET + 1], bound(a[LOW], value), bound(a[HIGH], value),
                        np.zeros_like(value)])
    return np.where(a[SOURCE] == KNOWN, _constant_numbers(bound(a[OFFSET], value)), clipped)


def _wrapped(predicate: Value, index: Value, shifted: Value) -> np.ndarray | None:
    """jnp rewrites an index i as where(i < 0, i + n, i), which is treated as i; None for any other
    select."""
    no, yes, tested = index.numbers, shifted.numbers, predicate.negative
    if tested is None or no is None or yes is None or not (
        tested.shape == no.shape == yes.shape and np.array_equal(tested, no, True)
    ):
        return None
    with np.errstate(invalid="ignore"):
        shift = yes[OFFSET] - no[OFFSET]
    same_cell = (yes[SOURCE] == no[SOURCE]) & (
        (yes[SCALE] == no[SCALE]) | np.isnan(yes[SCALE]) & np.isnan(no[SCALE])
    )
    if not same_cell.all() or not ((shift > 0) | np.isnan(shift)).all():
        return None
    return no


def _selected(which: np.ndarray, *cases: np.ndarray) -> np.ndarray | None:
    """where(which, yes, no); None if there are more than two cases."""
    if len(cases) > 2:
        return None
    no, yes = cases
    picked = np.where(which[OFFSET] != 0, yes, no)
    return np.where(which[SOURCE] == KNOWN, picked, opaque([which, no, yes]))


# primitive → the numbers of its result; None: the rule does not apply to these operands
RULES: dict[str, Callable[..., np.ndarray | None]] = {
    "add": _sum, "add_any": _sum, "sub": lambda a, b: _sum(a, _scaled(b, -1.0)),
    "neg": lambda a: _scaled(a, -1.0), "mul": partial(_by_known, _scaled),
    "max": partial(_by_known, partial(_clipped, np.maximum)),
    "min": partial(_by_known, partial(_clipped, np.minimum)),
    "clamp": _clamped, "select_n": _selected, "trunc": _truncated,
    "convert_element_type": lambda a: a,
    **dict.fromkeys(("floor", "ceil", "round", "reduce_precision", "stop_gradient", "real"),
                    _rounded),
}
