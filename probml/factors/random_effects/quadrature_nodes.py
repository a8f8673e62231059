"""The conditional distribution of an effect that is integrated out by quadrature, from its density
at the nodes.

With nodes t_j = (x_j − mode) / scale of a Gauss–Hermite rule, whose weights w_j are what a standard
normal has there, π_j is the probability that the rule gives a node. The density is that of the
normal about the mode times e^h, h(t) the cubics through h_j = log π_j − log w_j with their slopes:
of a normal it is that normal. Means and variances are sums over nodes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from probml.numerics.transfer import as_array
from probml.plan.groupings import quadrature_rule

STEPS = 256  # in which a quantile is looked up
MAX_FALL = 1e3  # of a log density from its maximum to a node; beyond, the density is 0


class Nodes(NamedTuple):
    """The arguments of `AtNodes`."""

    loc: jax.Array
    scale: jax.Array
    logs: jax.Array


class AtNodes(dist.Distribution):
    """A distribution interpolated through Gauss–Hermite nodes.

    Args:
        loc, scale: (*batch), of the normal about which the nodes lie.
        logs: (*batch, m), the logarithms of the probabilities of the nodes, by their values.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive,
                       "logs": constraints.real_vector}
    support = constraints.real

    def __init__(self, loc: jax.Array, scale: jax.Array, logs: jax.Array, *,
                 validate_args: bool | None = None):
        self.loc, self.scale, self.logs = map(as_array, (loc, scale, logs))
        super().__init__(self.loc.shape, (), validate_args=validate_args)

    @property
    def _rule(self) -> tuple[jax.Array, ...]:
        return tuple(as_array(part.astype(self.logs.dtype)) for part in _rule(self.logs.shape[-1]))

    @property
    def mean(self):
        return self.loc + self.scale * (jnp.exp(self.logs) @ self._rule[0])

    @property
    def variance(self):
        share, t = jnp.exp(self.logs), self._rule[0]
        return self.scale**2 * (share * (t - (share @ t)[..., None]) ** 2).sum(-1)

    def _tilt(self) -> tuple[jax.Array, jax.Array]:
        """h and its slope at the nodes, (*batch, m): finite, and such that no cubic exceeds both
        of its ends by much (Fritsch & Carlson 1980), as where a rate exp(x) ends a density."""
        t, weight = self._rule
        logs, gaps = self.logs - weight, jnp.diff(t)
        logs = jnp.maximum(logs, logs.max(-1, keepdims=True) - MAX_FALL)
        secants = jnp.diff(logs) / gaps
        before, after = secants[..., :-1], secants[..., 1:]
        inner = (after * gaps[:-1] + before * gaps[1:]) / (t[2:] - t[:-2])
        limit = 3 * jnp.minimum(jnp.abs(before), jnp.abs(after))
        inner = jnp.clip(inner, -limit, limit)
        return logs, jnp.concatenate([secants[..., :1], inner, secants[..., -1:]], -1)

    def log_prob(self, value: jax.Array):
        t, nodes = (jnp.asarray(value) - self.loc) / self.scale, self._rule[0]

        def tilt(t: jax.Array, logs: jax.Array, slope: jax.Array):
            cell = jnp.clip(jnp.searchsorted(nodes, t) - 1, 0, len(nodes) - 2)
            return _cubic(nodes, t, cell, logs, slope)

        h = jnp.vectorize(tilt, signature="(),(m),(m)->()")(t, *self._tilt())
        return dist.Normal().log_prob(t) + h - jnp.log(self.scale)

    def icdf(self, q: jax.Array):
        """Quantiles, from the distribution function on even steps between the outer nodes."""
        nodes = _rule(self.logs.shape[-1])[0].astype(self.logs.dtype)
        t = np.linspace(nodes[0], nodes[-1], STEPS, dtype=nodes.dtype)
        cell = np.clip(np.searchsorted(nodes, t) - 1, 0, len(nodes) - 2)  # the same of all members
        log = _cubic(nodes, t, cell, *self._tilt()) - 0.5 * t**2
        cumulative = jnp.cumsum(jax.nn.softmax(log), -1)
        # what is up to a step has half of its own behind it
        cdf = cumulative - 0.5 * jnp.diff(cumulative, axis=-1, prepend=0.0)
        quantile = jnp.vectorize(lambda q, cdf: jnp.interp(q, cdf, t), signature="(),(m)->()")
        return self.loc + self.scale * quantile(jnp.asarray(q), cdf)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()):
        return self.icdf(jax.random.uniform(key, self.shape(sample_shape), self.logs.dtype))


def _cubic(nodes: ArrayLike, t: ArrayLike, cell: ArrayLike, logs: jax.Array,
           slope: jax.Array) -> jax.Array:
    """The cubics through `logs` at the nodes with these slopes, (..., m), at t, (k,), between nodes
    `cell` and at + 1; constant beyond the outer nodes."""
    width, rise = nodes[cell + 1] - nodes[cell], logs[..., cell + 1] - logs[..., cell]
    s = jnp.clip((t - nodes[cell]) / width, 0.0, 1.0)
    bend = (1 - s) * slope[..., cell] - s * slope[..., cell + 1]
    return logs[..., cell] + s**2 * (3 - 2 * s) * rise + width * s * (1 - s) * bend


def _rule(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The nodes, and the logarithms of their weights."""
    t, log = quadrature_rule(nodes, 1)
    return t[:, 0], log - 0.5 * t[:, 0] ** 2
