"""A fit whose digits ran out in float32 is in double, and is asked in double, whatever JAX's own
precision is; so is one that is asked of data for which float32 has too few."""

import functools
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution


class TooFewDigits(Exception):
    """float32 has too few digits for what is asked: the verb is asked again in double."""


def in_its_own(cls: type) -> type:
    """Let the public verbs and answers of a frozen dataclass compute in double where `self.double`
    says so, or where they raise TooFewDigits."""
    for name, found in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(found, FunctionType):
            setattr(cls, name, _switched(found))
        elif isinstance(found, functools.cached_property):
            found.func = _switched(found.func)
    return cls


def in_same_precision(function: Callable) -> Callable:
    """The function for another thread, in the precision of this thread: JAX's setting belongs to
    one thread."""
    double = bool(jax.config.jax_enable_x64)

    @functools.wraps(function)
    def own(*args: object, **kwargs: object):
        with jax.enable_x64(double):
            return function(*args, **kwargs)

    return own


def _switched(function: Callable) -> Callable:
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


def _keep_double(found: object) -> Any:
    """An answer that was made in double: a distribution goes on computing in double, what it
    computes is NumPy's."""
    if isinstance(found, Distribution) and not isinstance(found, InDouble):
        return _of(type(found), found.__dict__)
    return np.asarray(found) if isinstance(found, jax.Array) and not isinstance(
        found, jax.core.Tracer) else found


class InDouble:
    """Beside a class of distributions: what is asked of one is computed in double."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        with jax.enable_x64(True):
            found = super().__getattribute__(name)
        return _asked(found) if isinstance(found, MethodType) else _keep_double(found)

    def __reduce__(self):
        kind = type(self).__mro__[2]
        return _of, (kind, {name: getattr(self, name) for name in self.__dict__})


def _of(kind: type, state: dict[str, Any]) -> Distribution:
    """A distribution in double, of a class, with arguments, and with what it has computed."""
    out = object.__new__(_doubled(kind))
    out.__dict__.update(state)
    return out


@functools.cache
def _doubled(kind: type) -> type:
    own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__,
           "__doc__": kind.__doc__}
    return type(kind)(kind.__name__, (InDouble, kind), own)


def _asked(method: MethodType) -> Callable:
    @functools.wraps(method)
    def ask(*args: object, **kwargs: object):
        with jax.enable_x64(True):
            return _keep_double(method(*args, **kwargs))

    return ask
