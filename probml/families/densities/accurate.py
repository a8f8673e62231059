"""NumPyro's densities to the last digits of float32, wherever they are evaluated: of a site, of a
component of a mixture, and where a function calls log_prob itself.

Some formulas of NumPyro's take differences of large numbers: of log Γ at 10⁵ float32 leaves a tenth
of a nat, of a probability next to 1 nothing. While a function of this package runs or a density is
evaluated, their classes have the method of their Entry instead; NumPyro is unchanged otherwise.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpyro.distributions as dist

from probml.numerics.process.single_thread import single_thread

Method = Callable[[dist.Distribution, jax.Array], jax.Array]
_methods: dict[Any, Method] = {}
_entered: list[bool] = []


def add(kind: type, method: Method) -> None:
    """Compute the log density of a class of distributions, and of those derived from it, so."""
    _methods[kind] = method


@contextlib.contextmanager
def accurate() -> Iterator[None]:
    """Inside, log_prob of NumPyro's distributions keeps its digits; one may enter it again."""
    with single_thread():
        if _entered:  # by this thread
            yield
            return
        held = {kind: vars(kind).get("log_prob") for kind in _methods}
        _entered.append(True)
        try:
            for kind, method in _methods.items():
                kind.log_prob = method
            yield
        finally:
            for kind, own in held.items():
                if own is None:
                    del kind.log_prob
                else:
                    kind.log_prob = own
            _entered.clear()
