"""A family in one file: von Mises, the normal distribution of angles, which probml does not ship.

It has a form of its own, on a domain of its own. With R the length and m the direction of
(a, b), every sum of κ cos(x − c) over rows, and of a von Mises prior, is one Q(c):

    Q(c) = a cos c + b sin c + constant = R cos(c − m) + constant

Source: Mardia & Jupp (2000), "Directional Statistics", sections 3.5.4 and 10.2; the conjugate prior
    is that of Guttorp & Lockhart (1988).
"""

import math

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import i0e, i1e

from probml.extend import Entry, Form, Likelihood, Prior, domains, log_linear, register_family


def log_i0(z: jax.Array) -> jax.Array:
    """log I₀(z) for z ≥ 0."""
    return jnp.log(i0e(z)) + z


class Circular(Form):
    """Q(c) = a cos c + b sin c + constant, read off from Q' at c and a quarter further."""

    name = "circular"
    domain = domains.CIRCLE
    keys = ("cos", "sin")
    steady = True

    def points(self, c, event):
        return jnp.stack([c, c + math.pi / 2])

    def read(self, points, gradients, event):
        c, (here, there) = points[0], gradients
        return {"cos": -(here * jnp.sin(c) + there * jnp.cos(c)),
                "sin": here * jnp.cos(c) - there * jnp.sin(c)}

    def value(self, natural, c, event):
        return jnp.sum(natural["cos"] * jnp.cos(c) + natural["sin"] * jnp.sin(c))

    def mode(self, natural, fallback, event):
        length, direction = _polar(natural)
        return jnp.where(length == 0, fallback, direction)

    def moved(self, natural, prior, move):
        """The posterior of c where it is copied to: c ~ VonMises(direction, length)."""
        length, direction = _polar(natural)
        return {"direction": move(direction), "length": move(length)}

    def expectation(self, natural, prior):
        """E[cos c] and E[sin c] under VonMises: I₁(R)/I₀(R) in the direction m."""
        length, direction = _polar(natural)
        mean = i1e(length) / i0e(length)
        return {"cos": mean * jnp.cos(direction), "sin": mean * jnp.sin(direction)}


def _polar(natural):
    return jnp.hypot(natural["cos"], natural["sin"]), jnp.arctan2(natural["sin"], natural["cos"])


CIRCULAR = Circular()


class VonMisesPrior(Prior):
    """VonMises(m, R) on a direction; periodic, so that nowhere lies outside."""

    form = CIRCULAR

    def posterior(self, natural, event):
        length, direction = _polar(natural)
        return dist.VonMises(direction, length)

    def log_density(self, distribution, value, mode):
        k = distribution.concentration
        return k * jnp.cos(value - distribution.loc) - log_i0(k) - math.log(2 * math.pi)


class VonMises(Likelihood):
    """log p(x) = κ cos(x − loc) − log 2π I₀(κ), T(x) = (cos x, sin x), κ the concentration."""

    name = "VonMises"
    argument_event = {"loc": 0, "concentration": 0}
    canonical = {"loc": (CIRCULAR, ())}  # the concentration has no closed form: it is climbed

    def distribution(self, arguments):
        return dist.VonMises(**arguments)

    def natural(self, arguments, centre):
        given = log_linear.floats(arguments)
        loc, k = given["loc"], given["concentration"]
        return {"eta": jnp.concatenate([k * jnp.cos(loc), k * jnp.sin(loc)], -1),
                "constant": -log_i0(k) - math.log(2 * math.pi)}

    def log_density(self, natural, x, seen):
        return log_linear.log_density(natural, x, seen, jnp.isfinite(x),
                                      lambda x: ([jnp.cos(x), jnp.sin(x)], jnp.zeros_like(x)))

    def predictive(self, arguments, x, seen):
        """loc ~ VonMises(m, R): I₀(|κ e^{ix} + R e^{im}|) / (2π I₀(κ) I₀(R))."""
        k, m, r = arguments["concentration"], arguments["direction"], arguments["length"]
        # |κ e^{ix} + R e^{im}|² without the root of a difference
        both = jnp.sqrt((k - r) ** 2 + 2 * k * r * (1 + jnp.cos(x - m)))
        log = log_i0(both) - log_i0(k) - log_i0(r) - math.log(2 * math.pi)
        return log_linear.masked(log, seen)


register_family(Entry((dist.VonMises,), VonMises(), VonMisesPrior()))
