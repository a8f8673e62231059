"""Precision of fits. A fit that needed double precision computes its answers in double precision,
whatever JAX's setting is; so does a question for which float32 turns out to be too imprecise."""

import functools
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution


class TooFewDigits(Exception):
    """float32 is too imprecise for a computation, which is then repeated in double precision."""


def in_its_own(cls: type) -> type:
    """Class decorator: public methods and cached properties of a frozen dataclass compute in double
    precision if `self.double` is set, or after they have raised TooFewDigits."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, FunctionType):
            setattr(cls, name, _with_own_precision(member))
        elif isinstance(member, functools.cached_property):
            member.func = _with_own_precision(member.func)
    return cls


def _with_own_precision(function: Callable) -> Callable:
    @functools.wraps(function)
    def ask(self, *args: object, **kwargs: object):
        if jax.config.jax_enable_x64:
            return function(self, *args, **kwargs)
        if not self.double:
            try:
                return function(self, *args, **kwargs)
            except TooFewDigits:
                with jax.enable_x64(True):
                    return _keep_double(function(replace(self, double=True), *args, **kwargs))
        with jax.enable_x64(True):
            return _keep_double(function(self, *args, **kwargs))

    return ask


def _keep_double(result: Any) -> Any:
    """Returns a double-precision result that survives outside of double precision: distributions go
    on computing in double precision, JAX arrays become NumPy arrays."""
    if isinstance(result, Distribution) and not isinstance(result, InDouble):
        return _make_double(type(result), result.__dict__)
    return np.asarray(result) if isinstance(result, jax.Array) and not isinstance(
        result, jax.core.Tracer) else result


class InDouble:
    """Mixin for a class of distributions: attributes and methods compute in double precision."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        with jax.enable_x64(True):
            value = super().__getattribute__(name)
        return _call_in_double(value) if isinstance(value, MethodType) else _keep_double(value)

    def __reduce__(self):
        kind = type(self).__mro__[2]
        return _make_double, (kind, {name: getattr(self, name) for name in self.__dict__})


def _make_double(kind: type, state: dict[str, object]) -> Distribution:
    """Returns a distribution that computes in double precision, with the given attributes."""
    out = object.__new__(_make_double_class(kind))
    out.__dict__.update(state)
    return out


@functools.cache
def _make_double_class(kind: type) -> type:
    namespace = {"__module__": kind.__module__, "__qualname__": kind.__qualname__,
                 "__doc__": kind.__doc__}
    return type(kind)(kind.__name__, (InDouble, kind), namespace)


def _call_in_double(method: MethodType) -> Callable:
    @functools.wraps(method)
    def ask(*args: object, **kwargs: object):
        with jax.enable_x64(True):
            return _keep_double(method(*args, **kwargs))

    return ask
