"""Engines as the command line writes them: one table, that of the library."""

import ast
import inspect

import probml
from probml.engines.engine import Engine
from probml.errors import ModelError
from probml.models.commandline.catalogue import ENGINES
from probml.models.commandline.catalogue import SAID as SAID

KNOWN: dict[str, type[Engine]] = {name: getattr(probml, name) for name in ENGINES}


def engine_of(text: str | None) -> Engine | None:
    """The engine that is written so, "em" or "NUTS(draws=500)"; None without one. Settings are
    plain values, nothing is executed.

    Raises:
        ModelError: an unknown name or setting, a setting that is no plain value; settings that must
            be said, and are not.
    """
    if text is None:
        return None
    name, bracket, _ = text.partition("(")
    kind = {known.lower(): known for known in KNOWN}.get(name.strip().lower())
    if kind is None:
        raise ModelError(f"--engine {text}: expected one of {', '.join(KNOWN)}")
    if not bracket:
        params = inspect.signature(KNOWN[kind]).parameters.values()
        required = [param.name for param in params if param.default is param.empty]
        if required:
            raise ModelError(f"--engine {text}: {kind} needs {' and '.join(required)}: which "
                             f"arguments of the model function to estimate. For an argument "
                             f"'scale' give --engine \"{kind}({required[0]}='scale')\"")
        return KNOWN[kind]()
    try:
        call = ast.parse(kind + text[len(name):], mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("expected name=value")
        settings = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError):
        raise ModelError(f"--engine {text}: expected arguments name=value, whose values are "
                         "numbers or text, such as 'NUTS(draws=500)'") from None
    try:
        return KNOWN[kind](**settings)
    except TypeError as error:
        raise ModelError(f"--engine {text}: {error}") from None
