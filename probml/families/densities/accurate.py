"""NumPyro's densities to the last digits of float32, wherever they are evaluated: of a site, of a
component of a mixture, and where a function calls log_prob itself.

Some formulas of NumPyro's take differences of large numbers: of log Γ at 10⁵ float32 leaves a tenth
of a nat, of a probability next to 1 nothing. While a function of this package runs or a density is
evaluated, their classes have the method of their Entry instead; NumPyro is unchanged otherwise.

Log densities of distributions without a kernel, without differences of large numbers: of powers
of a value near its scale, of angles near the mean.
"""

import contextlib
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import i0e

from probml.numerics.logs import LOG_TWO_PI
from probml.numerics.process.threads import single_thread


def log_ratio(x: jax.Array, y: jax.Array):
    """log(x / y), to the last digits near 1 as well."""
    w = (x - y) / y
    return jnp.where(jnp.abs(w) < 0.5, jnp.log1p(jnp.clip(w, -0.5, 0.5)), jnp.log(x) - jnp.log(y))


def pareto(own: dist.Distribution, x: jax.Array):
    return jnp.log(own.alpha) - jnp.log(x) - own.alpha * log_ratio(x, own.scale)


def von_mises(own: dist.Distribution, x: jax.Array):
    k = own.concentration
    return -2 * k * jnp.sin((x - own.loc) / 2) ** 2 - LOG_TWO_PI - jnp.log(i0e(k))


def weibull(own: dist.Distribution, x: jax.Array):
    c, log = own.concentration, log_ratio(x, own.scale)
    return jnp.log(c) - jnp.log(own.scale) + (c - 1) * log - jnp.exp(c * log)


Method = Callable[[dist.Distribution, jax.Array], jax.Array]
_methods: dict[type[dist.Distribution], Method] = {}
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
