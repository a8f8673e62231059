"""A fit whose digits ran out in float32 is in double, and is asked in double, whatever JAX's own
precision is; so is one that is asked of data for which float32 has too few."""

import functools
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType

import jax


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


def carried(function: Callable) -> Callable:
    """The function for another thread, in the precision that this one has: a context that says so
    is of one thread."""
    double = bool(jax.config.jax_enable_x64)

    @functools.wraps(function)
    def own(*args, **kwargs):
        with jax.enable_x64(double):
            return function(*args, **kwargs)

    return own


def _switched(function: Callable) -> Callable:
    @functools.wraps(function)
    def ask(self, *args, **kwargs):
        if jax.config.jax_enable_x64:
            return function(self, *args, **kwargs)
        if not self.double:
            try:
                return function(self, *args, **kwargs)
            except TooFewDigits:
                with jax.enable_x64(True):
                    return function(replace(self, double=True), *args, **kwargs)
        with jax.enable_x64(True):
            return function(self, *args, **kwargs)

    return ask
