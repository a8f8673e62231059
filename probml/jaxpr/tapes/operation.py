"""The implementation of a primitive in NumPy: a function built from the parameters and shapes of an
equation, and the estimated seconds of a call; and those of elementwise primitives."""

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

SECONDS_PER_CALL = 2e-6  # of a NumPy function on few numbers, with our overhead
SECONDS_PER_ENTRY = 1e-9  # of operands and results


class Aval(NamedTuple):
    """The shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        return math.prod(self.shape)


Avals = Sequence[Aval]


class Step(NamedTuple):
    """One primitive, and the places of its operands and results."""

    name: str
    params: dict[str, Any]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    ins: tuple[Aval, ...]
    outs: tuple[Aval, ...]


class Unsupported(Exception):
    """A program has a primitive that is not implemented in NumPy, and is compiled by XLA."""


class TooLong(Exception):
    """A loop takes much longer than assumed: the program is compiled by XLA after all."""


def seconds(ins: Avals, outs: Avals, **_: object) -> float:
    """The estimated seconds of a call that reads every entry once."""
    return SECONDS_PER_CALL + SECONDS_PER_ENTRY * sum(aval.size for aval in (*ins, *outs))


class Operation(NamedTuple):
    """One primitive.

    Attributes:
        build: (avals of operands, avals of results, **parameters) → the function of the operands,
            which returns the result, or if `several` a list of results. Raises Unsupported.
        keys: the parameters that it takes.
        cost: (avals of operands, avals of results, **parameters) → estimated seconds of a call.
    """

    build: Callable[..., Callable]
    keys: tuple[str, ...] = ()
    several: bool = False
    cost: Callable[..., float] = seconds


def _divided(ins: Avals, outs: Avals) -> Callable:
    if outs[0].dtype.kind == "f":
        return np.divide
    return lambda a, b: np.where((a < 0) != (b < 0), -(abs(a) // abs(b)), abs(a) // abs(b))


def _power(ins: Avals, outs: Avals, y: int) -> Callable:
    if y < 0:
        return lambda x: 1 / np.power(x, -y)
    return np.square if y == 2 else lambda x: np.power(x, y)


def _rounded(ins: Avals, outs: Avals, rounding_method: int) -> Callable:
    if int(rounding_method) == 1:
        return np.rint

    def away(x: np.ndarray):
        truncated = np.trunc(x)
        return np.where(np.abs(x - truncated) >= 0.5, truncated + np.sign(x), truncated)

    return away


def _converted(ins: Avals, outs: Avals, new_dtype: np.dtype) -> Callable:
    """Conversion as by XLA: to integers by truncation, saturated at their range."""
    kind = outs[0].dtype
    if kind.kind == "b":
        return lambda x: np.not_equal(x, 0)
    if ins[0].dtype.kind != "f" or kind.kind not in "iu":
        return lambda x: np.asarray(x).astype(kind)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max

    def cut(x: np.ndarray):
        filled = np.where(np.isnan(x), 0.0, x)
        in_range = (filled > low) & (filled < high)
        converted = np.where(in_range, filled, 0.0).astype(kind)
        return np.where(in_range, converted, np.where(filled >= high, high, low)).astype(kind)

    return cut


def _selected(ins: Avals, outs: Avals) -> Callable:
    if ins[0].dtype.kind == "b" and len(ins) == 3:
        return lambda which, no, yes: np.where(which, yes, no)
    return lambda which, *cases: np.choose(np.clip(which, 0, len(cases) - 1), cases)


def _shifted(function: Callable, signed: bool = True) -> Operation:
    """A bit shift; by at least the number of bits it gives 0 (or −1, of negative numbers)."""

    def build(ins: Avals, outs: Avals) -> Callable:
        kind = outs[0].dtype
        dtype = kind if signed or kind.kind == "u" else np.dtype(f"u{kind.itemsize}")
        bits = 8 * kind.itemsize

        def shifted(x: np.ndarray, shift: np.ndarray):
            shift = np.asarray(shift).astype(dtype)
            result = function(np.asarray(x).astype(dtype), np.minimum(shift, dtype.type(bits - 1)))
            return np.where(shift < bits, result, dtype.type(0)).astype(kind)

        return shifted

    return Operation(build)


def _platform(ins: Avals, outs: Avals, platforms: Sequence[Sequence[str] | None]) -> Callable:
    """The index of the branch for CPUs."""
    matches = [i for i, names in enumerate(platforms) if names is None or "cpu" in names]
    if not matches:
        raise Unsupported("a program for other machines")
    return lambda: np.asarray(matches[0])


def _same_bits(ins: Avals, outs: Avals) -> Callable:
    kind = outs[0].dtype
    if ins[0].dtype.itemsize != kind.itemsize or ins[0].dtype.kind == "b" or kind.kind == "b":
        raise Unsupported("bits of numbers of other sizes")
    return lambda x: np.array(x, order="C").view(kind)


def _precise(ins: Avals, outs: Avals, exponent_bits: int, mantissa_bits: int) -> Callable:
    bits = {4: (8, 23), 8: (11, 52)}.get(outs[0].dtype.itemsize)
    if bits != (exponent_bits, mantissa_bits):
        raise Unsupported("lower precision than a float has")
    return lambda x: x


_FUNCTIONS: dict[str, Callable] = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "add": np.add, "add_any": np.add,
    "and": np.bitwise_and, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high), "copy": np.array,
    "copy_p": np.array, "cos": np.cos, "cosh": np.cosh, "eq": np.equal, "exp": np.exp,
    "exp2": np.exp2, "expm1": np.expm1, "floor": np.floor, "ge": np.greater_equal,
    "gt": np.greater, "is_finite": np.isfinite, "le": np.less_equal, "log": np.log,
    "log1p": np.log1p, "log2": np.log2,
    "logistic": lambda x: 1 / (1 + np.exp(-x)), "lt": np.less, "max": np.maximum,
    "min": np.minimum, "mul": np.multiply, "ne": np.not_equal, "neg": np.negative,
    "nextafter": np.nextafter, "not": np.invert, "or": np.bitwise_or, "pow": np.power,
    "rem": np.fmod, "rsqrt": lambda x: 1 / np.sqrt(x), "sign": np.sign, "sin": np.sin,
    "one_minus_square": lambda x: 1 - x * x,  # since JAX 0.11
    "sinh": np.sinh, "sqrt": np.sqrt, "square": np.square, "stop_gradient": lambda x: x,
    "sub": np.subtract, "tan": np.tan, "tanh": np.tanh, "xor": np.bitwise_xor,
}
OPERATIONS: dict[str, Operation] = {
    **{name: Operation(lambda ins, outs, of=function: of)
       for name, function in _FUNCTIONS.items()},
    # of SciPy, which is imported at the first use: that takes 20 ms
    **{name: Operation(lambda ins, outs, of=function: getattr(
        importlib.import_module("scipy.special"), of)) for name, function in {
        "bessel_i0e": "i0e", "bessel_i1e": "i1e", "digamma": "psi", "erf": "erf", "erfc": "erfc",
        "erf_inv": "erfinv", "igamma": "gammainc", "igammac": "gammaincc", "lgamma": "gammaln",
        "polygamma": "polygamma", "regularized_incomplete_beta": "betainc", "zeta": "zeta",
    }.items()},
    "bitcast_convert_type": Operation(_same_bits),
    "convert_element_type": Operation(_converted, ("new_dtype",)),
    "div": Operation(_divided),
    "integer_pow": Operation(_power, ("y",)),
    "platform_index": Operation(_platform, ("platforms",)),
    "reduce_precision": Operation(_precise, ("exponent_bits", "mantissa_bits")),
    "round": Operation(_rounded, ("rounding_method",)),
    "select_n": Operation(_selected),
    "shift_left": _shifted(np.left_shift),
    "shift_right_logical": _shifted(np.right_shift, signed=False),
}
