"""What the arguments of questions must be, by their names: checked before anything is read."""

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import numpy as np

from probml.errors import ModelError


def _name(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _names(value: Any) -> bool:
    plain = isinstance(value, Iterable) and not hasattr(value, "shape")
    return _name(value) or plain and all(isinstance(name, str) for name in value)


RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "plug_in": ("True or False", lambda value: isinstance(value, bool | np.bool_ | int)),
    "site": ("the name of a site", _names),
    "sites": ("a list of the names of sites", _names),
    "unknown": ("'refuse' or 'new'", lambda value: isinstance(value, str)),
    "strategy": ("'uniform' or 'quantile'", lambda value: isinstance(value, str)),
}
SEVERAL = ("predict_proba",)  # whose site may be several


def worded(cls: type) -> type:
    """Let the public verbs of a class refuse arguments that are not what RULES says."""
    for name, found in list(vars(cls).items()):
        if isinstance(found, FunctionType) and not name.startswith("_"):
            setattr(cls, name, _checked(name, found))
    return cls


def _checked(verb: str, function: Callable) -> Callable:
    signature = inspect.signature(function)
    rules = {name: RULES[name] for name in signature.parameters if name in RULES}
    if not rules:
        return function

    @functools.wraps(function)
    def ask(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        for name in (name for name in rules if name in given):
            words, valid = rules[name]
            single = name == "site" and verb not in SEVERAL
            if not valid(given[name]) or single and not _name(given[name]):
                raise ModelError(f"{verb}({name}={reprlib.repr(given[name])}): expected {words}")
        return function(*args, **kwargs)

    return ask
