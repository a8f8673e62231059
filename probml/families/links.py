"""Coordinate maps: from a parameter to the quantity c in which a form holds, and back.

A chain of steps (name, amount), applied in order; `power` alone has an amount, and `times` (a
constant factor) is dropped where a form is closed under it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from probml.families import definite, domains
from probml.families.domains import Domain

Steps = tuple[tuple[str, float], ...]
_Map = Callable[[jax.Array, float], jax.Array]

# step → parameter to c, c to parameter, and where a parameter then lies (None: where c does)
_LINKS: dict[str, tuple[_Map, _Map, Domain | None]] = {
    "power": (lambda v, p: v**p, lambda v, p: v ** (1 / p), domains.POSITIVE),
    "complement": (lambda v, _: 1 - v, lambda v, _: 1 - v, None),
    "exp": (lambda v, _: jnp.exp(v), lambda v, _: jnp.log(v), domains.REAL),
    "log": (lambda v, _: jnp.log(v), lambda v, _: jnp.exp(v), domains.POSITIVE),
    "logistic": (lambda v, _: jax.nn.sigmoid(v), lambda v, _: jnp.log(v) - jnp.log1p(-v),
                 domains.REAL),
    "gram": (lambda v, _: v @ jnp.swapaxes(v, -1, -2), lambda v, _: jnp.linalg.cholesky(v),
             domains.LOWER_CHOLESKY),
    "inverse": (lambda v, _: definite.inverse(v), lambda v, _: definite.inverse(v), None),
}


def forward(value: jax.Array, steps: Steps) -> jax.Array:
    """Parameter → the quantity c of its form."""
    for step, amount in steps:
        value = _LINKS[step][0](value, amount)
    return value


def logarithm(value: jax.Array, steps: Steps) -> jax.Array:
    """Parameter → log c, of steps that are powers and exponentials: without c between, whose
    derivatives soon leave the range of float32."""
    log = None
    for step, amount in steps:
        if step == "exp":
            log = value if log is None else jnp.exp(log)
        else:
            log = amount * (jnp.log(value) if log is None else log)
    return jnp.log(value) if log is None else log


def backward(value: jax.Array, steps: Steps) -> jax.Array:
    """The quantity c → the parameter."""
    for step, amount in reversed(steps):
        value = _LINKS[step][1](value, amount)
    return value


def source(steps: Steps) -> Domain | None:
    """Where a parameter lies that these steps take to c; None: where c does."""
    return _LINKS[steps[0][0]][2] if steps else None
