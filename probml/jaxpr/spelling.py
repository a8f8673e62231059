"""A fingerprint of a traced program that can be compared between processes.

It has a digest of the equations in order, and separately the constants: libraries round constants
differently from machine to machine, which does not make it another model. The printed form of JAX
is no fingerprint, because shared subprograms and memory addresses in it change from process to
process.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.core import Atom
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var
from jax.typing import ArrayLike

MAX_LISTED_CONSTANTS = 32  # constants kept one by one; a longer array is summarised by three sums
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Spelled(NamedTuple):
    """The digest of the equations of a program, and its constants."""

    text: str
    numbers: tuple[float, ...]


def spelled(closed: ClosedJaxpr) -> Spelled:
    """The fingerprint of a program. Cost: about 10 µs for each equation."""
    words: list[str] = []
    numbers: list[float] = []
    _program(closed.jaxpr, closed.consts, words, numbers)
    return Spelled(hashlib.sha256("\n".join(words).encode()).hexdigest()[:16], tuple(numbers))


def _program(jaxpr: Jaxpr, consts: Sequence[ArrayLike], words: list, numbers: list) -> None:
    names: dict[Var, int] = {}

    def atom(each: Atom) -> None:
        if isinstance(each, Literal):
            _value(each.val, words, numbers)
        else:
            words.append(f"{names.setdefault(each, len(names))} {each.aval.dtype}"
                         f"{each.aval.shape}")

    for var, value in zip(jaxpr.constvars, consts, strict=bool(consts)):
        atom(var)
        _value(value, words, numbers)
    for var in jaxpr.invars:
        atom(var)
    for eqn in jaxpr.eqns:
        words.append(eqn.primitive.name)
        for var in (*eqn.invars, *eqn.outvars):
            atom(var)
        for name in sorted(eqn.params):
            words.append(name)
            _value(eqn.params[name], words, numbers)
    for var in jaxpr.outvars:
        atom(var)


def _value(value: object, words: list, numbers: list) -> None:
    if isinstance(value, ClosedJaxpr):
        _program(value.jaxpr, value.consts, words, numbers)
    elif isinstance(value, Jaxpr):
        _program(value, (), words, numbers)
    elif isinstance(value, float | complex | np.ndarray | np.generic | jax.Array):
        _array(value, words, numbers)
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            words.append(repr(key))
            _value(value[key], words, numbers)
    elif isinstance(value, list | tuple):
        words.append(f"{len(value)}:")
        for item in value:
            _value(item, words, numbers)
    elif callable(value):  # for example the rule of a custom derivative
        words.append(getattr(value, "__name__", type(value).__name__))
    else:
        words.append(_ADDRESS.sub("", repr(value)))


def _array(value: object, words: list, numbers: list) -> None:
    if jax.dtypes.issubdtype(getattr(value, "dtype", float), jax.dtypes.prng_key):
        words.append("key")
        return
    array = np.asarray(value)
    words.append(f"{array.dtype.str}{array.shape}")
    if array.dtype.kind not in "fc":
        words.append(hashlib.sha256(array.tobytes()).hexdigest())
        return
    parts = np.stack([array.real, array.imag]) if array.dtype.kind == "c" else array
    flat = parts.astype(float).ravel()
    odd = ~np.isfinite(flat)
    words += [f"{i} {flat[i]}" for i in np.flatnonzero(odd)[:MAX_LISTED_CONSTANTS]]
    words.append(str(int(odd.sum())))
    flat = np.where(odd, 0.0, flat)
    if len(flat) > MAX_LISTED_CONSTANTS:  # the third sum depends on the order
        flat = np.array([flat.mean(), np.sqrt((flat**2).mean()),
                         flat @ np.cos(np.arange(len(flat))) / np.sqrt(len(flat))])
    numbers += flat.tolist()
