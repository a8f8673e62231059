"""Constraints on the parameters of estimators, each a description and a test, and one form of error
message.

An estimator is a dataclass that declares each parameter once, with its default and its rule:

    @dataclass(eq=False, repr=False)
    class Estimator(...):
        k: int = parameter(2, integer(1))
        _: KW_ONLY
        prior: bool = parameter(True, FLAG)

Equality and repr stay scikit-learn's, whose `get_params` reads the constructor.
"""

import math
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import field, fields, is_dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from probml.engines.engine import Engine
from probml.errors import ModelError

Rule = tuple[str, Callable[[Any], bool]]


def parameter(default: object, rule: Rule) -> Any:
    """A field of an estimator: a parameter, its default and its rule."""
    return field(default=default, metadata={"rule": rule})


def fixed(value: object) -> Any:
    """A field of an estimator with a fixed value, which is a parameter of its base class."""
    return field(default=value, init=False)


def rules(estimator: object) -> dict[str, Rule]:
    """Parameter → rule of an estimator, in the order of its constructor's fields."""
    parameters = fields(estimator) if is_dataclass(estimator) else ()
    return {item.name: item.metadata["rule"] for item in parameters if "rule" in item.metadata}


TEXT: Rule = ("a name", lambda value: isinstance(value, str))
FLAG: Rule = ("True or False", lambda value: isinstance(value, bool | np.bool_))
ANY: Rule = ("anything", lambda value: True)
Seed = int | np.random.Generator | np.random.RandomState | None
SEED: Rule = (
    "None, an integer of at least 0, a Generator or a RandomState",
    lambda value: value is None
    or isinstance(value, np.random.RandomState | np.random.Generator)
    or isinstance(value, Integral) and int(value) >= 0,
)
ENGINE: Rule = (
    "None or an engine, such as probml.EM()",
    lambda value: value is None or isinstance(value, Engine),
)

ClassWeight = str | Mapping[Hashable, float] | None
CLASS_WEIGHT: Rule = (
    "None, 'balanced' or a mapping of classes to weights",
    lambda v: v is None or isinstance(v, str) and v == "balanced" or isinstance(v, Mapping),
)


def integer(low: int, high: int | None = None) -> Rule:
    """The rule for an integer of at least `low` and, where `high` is given, at most `high`."""
    words = (f"an integer of at least {low}" if high is None
             else f"an integer from {low} to {high:,}")
    return (words, lambda v: isinstance(v, Integral) and not isinstance(v, bool) and int(v) >= low
            and (high is None or int(v) <= high))


LARGEST_INTEGER = 2**31 - 1  # that a solver in C holds, such as LIBSVM
# of repetitions, and of parts that are in memory at once
STARTS, PARTS = integer(1, 10_000), integer(1, 100_000)


def sizes(low: int) -> Rule:
    """An integer of at least `low`, or several of them to choose among."""
    words, valid = integer(low)

    def all_valid(value: Any):
        is_sequence = isinstance(value, range | list | tuple) or (isinstance(value, np.ndarray)
                                                                  and value.ndim == 1)
        return is_sequence and len(value) > 0 and all(map(valid, value))

    return f"{words}, or a range or list of several", lambda value: valid(value) or all_valid(value)


def number(low: float, above: bool = False) -> Rule:
    """A finite number of at least `low`, or above it."""
    words = f"a number above {low:g}" if above else f"a number of at least {low:g}"
    return (words, lambda v: isinstance(v, Real) and not isinstance(v, bool)
            and math.isfinite(v) and (float(v) > low if above else float(v) >= low))


SHARE: Rule = ("a number of at least 0 and below 1",
               lambda v: number(0.0)[1](v) and bool(v < 1))


def within(low: float, high: float) -> Rule:
    """A number between two others."""
    return (f"a number between {low:g} and {high:g}",
            lambda v: isinstance(v, Real) and not isinstance(v, bool) and low < float(v) < high)


def several(words: str = "names") -> Rule:
    """A collection of possible names, but no single text."""
    return (f"a list, tuple or set of {words}",
            lambda v: isinstance(v, Collection) and not isinstance(v, str | bytes | Mapping)
            and getattr(v, "ndim", 1) == 1 and all(isinstance(name, Hashable) for name in v))


def numbers(low: float) -> Rule:
    """A number above `low`, or an array of such."""

    def valid(value: object):
        try:
            array = np.asarray(value)
            if array.dtype.kind not in "biufO":  # dates can be converted to numbers, too
                return False
            array = array.astype(float)
        except (TypeError, ValueError):
            return False
        return not isinstance(value, bool) and array.size > 0 and bool(np.isfinite(array).all()
                                                                       and (array > low).all())

    return ("numbers" if low == -np.inf else f"numbers above {low:g}"), valid


def optional(rule: Rule) -> Rule:
    """A rule that also allows None."""
    words, valid = rule
    return f"{words}, or None", lambda value: value is None or valid(value)


def one_of(*names: object) -> Rule:
    """One of a few values."""
    return (f"one of {', '.join(map(repr, names))}",
            lambda value: isinstance(value, str) and value in names)


def check(estimator: object) -> None:
    """Check the parameters of an estimator against their rules.

    Raises:
        ModelError: naming the parameter, expected and got.
    """
    for name, (words, valid) in rules(estimator).items():
        value = getattr(estimator, name)
        if not valid(value):
            raise ModelError(f"{type(estimator).__name__}({name}={value!r}): expected {words}, got "
                             f"{value!r}")


def hold(call: str, **given: tuple[Any, Rule]) -> None:
    """Check arguments of a function against rules: name=(value, rule).

    Raises:
        ModelError: naming the argument, expected and got.
    """
    for name, (value, (words, valid)) in given.items():
        if not valid(value):
            raise ModelError(f"{call}({name}={value!r:.200}): expected {words}")


def check_count(verb: str, name: str, value: object, largest: int = LARGEST_INTEGER) -> None:
    """
    Raises:
        ModelError: an argument of a verb is no whole number from 1 to `largest`.
    """
    hold(verb, **{name: (value, integer(1, largest))})
