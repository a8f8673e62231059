"""Checks of the arguments of methods of fits and models, by argument name; warnings about answers
that are not finite."""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

import jax
import numpy as np

from probml.dataset.coding.indices import NEW, REFUSE
from probml.engines.ladder import able
from probml.errors import ModelError, Refusal, counted, described
from probml.language.language import LONGEST, Bound

MIN_SIMULATIONS = 20  # of simulation-based calibration, so that bins have ten each


def _name(value: object) -> bool:
    return value is None or isinstance(value, str)


def _names(value: Any) -> bool:
    is_list = isinstance(value, Iterable) and not hasattr(value, "shape")
    return _name(value) or is_list and all(isinstance(name, str) for name in value)


def _count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1


RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "plug_in": ("True or False", lambda value: isinstance(value, bool | np.bool_ | int)),
    "parameters": ("True or False", lambda value: isinstance(value, bool | np.bool_)),
    "progress": ("True or False", lambda value: isinstance(value, bool | np.bool_)),
    "site": ("the name of one site. For several discrete sites together use joint(data, sites) or "
             "decode(data)", _names),
    "sites": ("a list of the names of sites", _names),
    "unknown": (f"'{REFUSE}' or '{NEW}'",
                lambda value: isinstance(value, str) and value in (REFUSE, NEW)),
    "interval": ("a probability between 0 and 1, such as 0.9",
                 lambda value: value is None or isinstance(value, float) and 0 < value < 1),
    "n": (f"the number of draws, an integer from 1 to {LONGEST:,}",
          lambda value: _count(value) and value <= LONGEST),
    "rows": (f"the number of rows, an integer from 1 to {LONGEST:,}, such as rows=100",
             lambda value: value is None or isinstance(value, Mapping)
             or _count(value) and value <= LONGEST),
    "steps": (f"an integer of at least 1, and at most {LONGEST:,}",
              lambda value: value is None or _count(value) and value <= LONGEST),
    "prior": ("a number of prior draws (an integer of at least 1), or None for no prior draws",
              lambda value: value is None or _count(value)),
    "simulations": (f"the number of data sets to simulate, an integer of at least "
                    f"{MIN_SIMULATIONS}",
                    lambda value: _count(value) and value >= MIN_SIMULATIONS),
    "simulator": ("the Model from which the data are simulated",
                  lambda value: isinstance(value, Bound | None)),
    "engines": ("a list of engines, such as [probml.NUTS()]", lambda value: value is None
                or isinstance(value, Iterable) and getattr(value, "ndim", 1) == 1),
}


# methods that return numbers → whether they are draws, of which infinite ones are reported too
NUMERIC_METHODS = {"draws": True, "simulate": True, "log_prob": False, "log_joint": False,
                   "predict": False, "predict_proba": False, "joint": False, "impute": False}


def checked_verbs(cls: type) -> type:
    """Let the public methods of a class refuse arguments that break RULES, and warn where an answer
    is not finite."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(cls, name, _with_finite_check(name, _checked(name, method)))
    return cls


def _with_alternatives(owner: Any, refusal: Refusal) -> Refusal:
    """A refusal with alternatives: of the engines that it names, those that can fit the data."""
    if not refusal.instead or not hasattr(owner, "engine"):
        return refusal
    data = owner.data if owner.fitted_rows is None else owner.fitted_rows.data
    if data is None:
        return Refusal(f"{refusal.offering(())}. To see the engines that support the data, call "
                       "model.explain(data)")
    return refusal.offering(able(refusal.instead, data, owner.engine.partition("(")[0]))


def _with_finite_check(verb: str, function: Callable) -> Callable:
    if verb not in NUMERIC_METHODS:
        return function
    drawn = NUMERIC_METHODS[verb]

    @functools.wraps(function)
    def ask(self: Any, *args: object, **kwargs: object) -> Any:
        answer = function(self, *args, **kwargs)
        problem = _describe_nonfinite(answer, drawn)
        if not problem:
            return answer
        double = jax.config.jax_enable_x64
        limit = np.finfo(np.float64 if double else np.float32).max
        why = (f"a parameter of its distribution overflows "
               f"({limit:.2g}{'' if double else ', in float64 1.8e+308'}) or is undefined, such as "
               f"the logarithm of a negative number. Give scales and rates informative priors, "
               f"such as LogNormal(0, 1)" if drawn else
               "the quantity is undefined for this distribution (Cauchy has no mean), or a value "
               "in the data is so extreme that its density underflows. Check the data for extreme "
               "values, or use medians of draws")
        is_fit = hasattr(self, "double")  # a Fit, whose verbs go through one more function
        warnings.warn(f"{verb}: {problem}: {why}", RuntimeWarning, stacklevel=2 + is_fit)
        return answer

    return ask


def _describe_nonfinite(answer: object, drawn: bool) -> str:
    """The NaN entries of an answer, and the infinite ones of draws, in words; "": none."""
    parts = answer if isinstance(answer, Mapping) else {"": answer}
    for name, part in parts.items():
        values = np.asarray(part) if isinstance(part, np.ndarray | float | jax.Array) else None
        if values is None or values.dtype.kind != "f":
            continue
        with np.errstate(all="ignore"):
            if np.isfinite(values.sum()):  # as a rule: one pass, no array of its own
                continue
        bad = ~np.isfinite(values) if drawn else np.isnan(values)
        if bad.any():
            kind = "NaN" if np.isnan(values[bad]).all() else "infinite" if not np.isnan(
                values[bad]).any() else "NaN or infinite"
            where = f"'{name}'" if name else ""
            if values.ndim == 0:
                return f"{where or 'the answer'} is {kind}"
            return (f"{int(bad.sum())} of "
                    f"{counted(values.size, 'number')}{f' of {where}' * bool(where)} are {kind}, "
                    f"the first at index {int(np.argwhere(bad)[0][0])}")
    return ""


def _checked(verb: str, function: Callable) -> Callable:
    names = list(inspect.signature(function).parameters)
    rules = {name: RULES[name] for name in names if name in RULES}
    if not rules:
        return function

    @functools.wraps(function)
    def ask(*args: object, **kwargs: object) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        for name in (name for name in rules if name in given):
            words, valid = rules[name]
            single = name == "site" and verb != "predict_proba"  # whose site may be several
            if not valid(given[name]) or single and not _name(given[name]):
                raise ModelError(f"{verb}({name}={described(given[name])}): expected {words}")
        try:
            return function(*args, **kwargs)
        except Refusal as why:
            raise _with_alternatives(args[0], why) from None

    return ask
