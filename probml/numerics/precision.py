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
    for name, found in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(found, FunctionType):
            setattr(cls, name, _with_own_precision(found))
        elif isinstance(found, functools.cached_property):
            found.func = _with_own_precision(found.func)
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


def _keep_double(found: Any) -> Any:
    """Returns a double-precision result that survives outside of double precision: distributions go
    on computing in double precision, JAX arrays become NumPy arrays."""
    if isinstance(found, Distribution) and not isinstance(found, InDouble):
        return _make_double(type(found), found.__dict__)
    return np.asarray(found) if isinstance(found, jax.Array) and not isinstance(
        found, jax.core.Tracer) else found


class InDouble:
    """Mixin for a class of distributions: attributes and methods compute in double precision."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        with jax.enable_x64(True):
            found = super().__getattribute__(name)
        return _call_in_double(found) if isinstance(found, MethodType) else _keep_double(found)

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
    own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__,
           "__doc__": kind.__doc__}
    return type(kind)(kind.__name__, (InDouble, kind), own)


def _call_in_double(method: MethodType) -> Callable:
    @functools.wraps(method)
    def ask(*args: object, **kwargs: object):
        with jax.enable_x64(True):
            return _keep_double(method(*args, **kwargs))

    return ask
