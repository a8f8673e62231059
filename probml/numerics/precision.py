"""A fit whose digits ran out in float32 is in double, and is asked in double, whatever JAX's own
precision is."""

import functools
from collections.abc import Callable
from types import FunctionType

import jax


def in_its_own(cls: type) -> type:
    """Let the public verbs and answers of a class compute in double where `self.double` says so."""
    for name, found in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(found, FunctionType):
            setattr(cls, name, _switched(found))
        elif isinstance(found, functools.cached_property):
            found.func = _switched(found.func)
    return cls


def _switched(function: Callable) -> Callable:
    @functools.wraps(function)
    def ask(self, *args, **kwargs):
        if not self.double or jax.config.jax_enable_x64:
            return function(self, *args, **kwargs)
        with jax.enable_x64(True):
            return function(self, *args, **kwargs)

    return ask
