"""Posterior distribution of a missing or latent continuous value given each row: a normal, or a
distribution tabulated at quadrature nodes (`Tabled`); a mixture of these where discrete variables
are latent as well, or over posterior draws of the parameters.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from probml.dataset import dataset
from probml.device.rows import Chunk, Known, Rows
from probml.errors import ModelError
from probml.factors import integrated, linear_chains
from probml.latents.latent import Moments
from probml.numerics import lapack
from probml.numerics.compiling import ASKED, jit
from probml.plan.plan import Plan
from probml.queries import asking
from probml.queries.fitted import Fitted
from probml.queries.queries import Belief, states_and_log


def conditional(fit: Fitted, data: dataset.Data, name: str, plug_in: bool) -> dist.Distribution:
    """See Fit.conditional."""
    site = fit.structure.sites[name]
    if not site.rows or site.discrete:
        method = "posterior" if not site.rows else "predict" if site.finite is None else (
            "predict_proba")
        raise ModelError(f"conditional(data, '{name}'): expected a continuous site inside rows(). "
                         f"For '{name}' use fit.{method}({'data, ' * site.rows}'{name}')")
    if data.pattern.get(name) == "seen":
        raise ModelError(f"conditional(data, '{name}'): '{name}' is observed in every row of the "
                         f"data, so it has no conditional distribution. Choose a site with missing "
                         f"values")
    question = asking.prepare(fit, data, (name,), plug_in, (name,))
    logs, *parts = _components(question.plan, name, question.averaged, question.belief,
                               question.known, question.rows)
    n_lead = 1 if site.time is None else 2  # rows, or rows and steps
    # (draws, chunks, b[, steps], states, ...) → (rows[, steps], draws × states, ...)
    logs = np.stack([question.to_user_rows(part) for part in logs], -1)
    parts = [np.moveaxis(np.stack([question.to_user_rows(part, name) for part in leaf]), 0, n_lead)
             for leaf in parts]
    probs = np.exp(logs - logs.max(1, keepdims=True))
    probs = (probs / probs.sum(1, keepdims=True)).reshape(len(logs), *(1,) * (n_lead - 1), -1, 1)
    weight, mean, *others = (leaf.reshape(*leaf.shape[:n_lead], -1, *leaf.shape[n_lead + 2 :])
                             for leaf in (parts[0] * probs, *parts[1:]))
    if len(others) == 2:
        if weight.shape[n_lead] == 1:
            mean, others = mean[:, 0], [leaf[:, 0] for leaf in others]
        return _mixed(weight, Tabled(others[0], others[1], mean, validate_args=False), n_lead)
    root = others[0]
    # rootᵀ root = lower lowerᵀ, also where it is singular; along time it is triangular already
    timed = question.plan.timed(question.plan.hidden[name])
    lower = np.swapaxes(root if timed else np.linalg.qr(root, mode="r"), -1, -2)
    sign = np.sign(np.diagonal(lower, axis1=-2, axis2=-1))
    lower = lower * np.where(sign == 0, 1.0, sign)[..., None, :]
    if weight.shape[n_lead] == 1:
        mean, lower = mean[..., 0, :], lower[..., 0, :, :]
    # an observed cell has standard deviation 0, which validation would refuse
    normal = (dist.MultivariateNormal(mean, scale_tril=lower, validate_args=False)
              if len(site.cells) > n_lead - 1
              else dist.Normal(mean[..., 0], lower[..., 0, 0], validate_args=False))
    return _mixed(weight, normal, n_lead)


def _mixed(weight: np.ndarray, components: dist.Distribution, n_lead: int) -> dist.Distribution:
    return components if weight.shape[n_lead] == 1 else dist.MixtureSameFamily(
        dist.Categorical(probs=weight), components)


@jit(static_argnames=("plan", "name", "averaged"), seldom=ASKED)
def _components(plan: Plan, name: str, averaged: bool, belief: Belief, known: Known,
                all_rows: Rows):
    """log p(row), the probabilities of the discrete states that the latent depends on, and for each
    its mean and a root R of its covariance RᵀR; of a scalar that is not normal its mean, nodes
    and weights instead. (draws, chunks, b, ...), of a site along time (draws, chunks, b, steps,
    ...). A vector that is not normal is approximated by the normal of its mean and covariance."""
    group, site = plan.hidden[name], plan.structure.sites[name]
    scope, start = plan.group_scope(group), 0
    states = math.prod(plan.variables[v].states for v in scope)
    for latent in group.names:
        size = math.prod(plan.structure.sites[latent].cells)
        if latent == name:
            break
        start += size

    def chunk(rows: Chunk, belief: Belief):
        logs, weight = states_and_log(plan, scope, belief, known, rows)
        count, block = len(rows.weights), slice(start, start + size)
        weight = weight.reshape(count, states)
        if not plan.timed(group):
            moments = integrated.moments(plan, belief.params, known, rows, group)
            mean = moments.mean[..., block].reshape(count, states, size)
            if isinstance(moments, Moments):
                return logs, weight, mean, moments.root[..., block].reshape(count, states, -1, size)
            values = moments.values[..., block].reshape(count, states, -1, size)
            probs = moments.weights.reshape(count, states, -1)
            if moments.values.shape[-1] == 1:
                order = jnp.argsort(values[..., 0], -1)
                ordered = (jnp.take_along_axis(leaf, order, -1) for leaf in (values[..., 0], probs))
                return logs, weight, mean[..., 0], *ordered
            deviations = jnp.sqrt(probs)[..., None] * (values - mean[..., None, :])
            return logs, weight, mean, jnp.linalg.qr(deviations, mode="r")
        mean, covariance = linear_chains.moments(plan, belief.params, known, rows, group)
        mean = rows.along.folded(mean[..., block]).reshape(count, -1, states, size)
        root = jnp.swapaxes(lapack.root(covariance[..., block, block]), -1, -2)
        root = rows.along.folded(root)  # one row where all rows have the same covariance
        root = root.reshape(len(root), -1, states, size, size)
        root = jnp.broadcast_to(root, (count, *root.shape[1:]))
        if site.time is None:
            return (logs, weight, mean[:, 0], root[:, 0])
        return (logs, jnp.broadcast_to(weight[:, None], mean.shape[:-1]), mean, root)

    if not averaged:
        return jax.tree.map(lambda leaf: leaf[None],
                            all_rows.map(lambda rows: chunk(rows, belief)))
    return belief.map_draws(plan, lambda draw: all_rows.map(lambda rows: chunk(rows, draw)))


class Tabled(dist.Distribution):
    """A smooth univariate distribution given by quadrature nodes and weights.

    log p(x) interpolates the density, weight / width, linearly between nodes, and is −∞ outside
    them; samples invert the distribution function, linear between nodes.

    Args:
        values: (*batch, m), ascending. weights: (*batch, m), of sum 1. centre: (*batch), the mean.
    """

    arg_constraints = {"values": constraints.real_vector, "weights": constraints.simplex}
    support = constraints.real
    pytree_data_fields = ("values", "weights", "centre")

    def __init__(self, values: jax.Array, weights: jax.Array, centre: jax.Array, *,
                 validate_args: bool | None = None):
        self.values, self.weights, self.centre = map(jnp.asarray, (values, weights, centre))
        super().__init__(self.values.shape[:-1], (), validate_args=validate_args)

    @property
    def mean(self):
        return self.centre

    @property
    def variance(self):
        # nodes of weight 0 may lie so far out that their squares overflow in float32
        deviations = jnp.where(self.weights > 0, self.values - self.centre[..., None], 0.0)
        return (self.weights * deviations**2).sum(-1)

    @property
    def _node_cdf(self):
        """The distribution function at the nodes."""
        return jnp.cumsum(self.weights, -1) - 0.5 * self.weights

    def log_prob(self, value: jax.Array):
        midpoints = 0.5 * (self.values[..., 1:] + self.values[..., :-1])
        edges = jnp.concatenate([self.values[..., :1], midpoints, self.values[..., -1:]], -1)
        width = jnp.diff(edges, axis=-1)
        # the nodes of an observed value coincide: width 0
        densities = jnp.where(width > 0, self.weights / jnp.where(width > 0, width, 1.0), jnp.inf)
        return jnp.log(_interpolate(value, self.values, densities, 0.0, 0.0))

    def cdf(self, value: jax.Array):
        return _interpolate(value, self.values, self._node_cdf, 0.0, 1.0)

    def icdf(self, q: jax.Array):
        return _interpolate(q, self._node_cdf, self.values, None, None)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()):
        shape, kind = (*sample_shape, *self.batch_shape), self.values.dtype
        return self.icdf(jax.random.uniform(key, shape, dtype=kind))


def _interpolate(x: jax.Array, xp: jax.Array, fp: jax.Array, left: jax.Array, right: jax.Array):
    """numpy.interp, batched over the leading axes of the nodes."""
    return jnp.vectorize(lambda x, xp, fp: jnp.interp(x, xp, fp, left, right),
                         signature="(),(m),(m)->()")(jnp.asarray(x), xp, fp)
