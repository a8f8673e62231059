"""The distribution of an unseen number given each row: a normal, or a table over nodes, where
nothing discrete is unseen beside it and the parameters are a point, else a mixture of these."""

import functools
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml.dataset import dataset
from probml.device.rows import Known, Rows
from probml.errors import ModelError
from probml.factors import integrated
from probml.latents.latent import Moments
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.queries import asking
from probml.queries.parts import Belief
from probml.queries.queries import states_and_log
from probml.queries.tabled import Tabled

if TYPE_CHECKING:
    from probml.interface.fit import Fit


def conditional(fit: "Fit", data: dataset.Data, name: str, plug_in: bool) -> Any:
    """See Fit.conditional."""
    site = fit.structure.sites[name]
    if not site.rows or site.discrete:
        ask = "predict_proba(data" if site.rows else "posterior("
        raise ModelError(f"conditional(data, '{name}'): expected a continuous site inside rows(); "
                         f"ask {ask}{', ' * site.rows}'{name}')")
    if data.pattern.get(name) == "seen":
        raise ModelError(f"conditional(data, '{name}'): it is seen in every row")
    question = asking.prepare(fit, data, (name,), plug_in, (name,))
    found = _components(question.plan, name, question.averaged, question.belief, question.known,
                        question.rows)
    # (draws, chunks, b, states, ...) → (rows, draws × states, ...)
    log, weight, *found = (np.moveaxis(np.stack([question.back(part) for part in leaf]), 0, 1)
                           for leaf in found)
    share = np.exp(log - log.max(1, keepdims=True))
    weight = weight * (share / share.sum(1, keepdims=True))[:, :, None]
    weight, mean, *found = (leaf.reshape(len(leaf), -1, *leaf.shape[3:])
                            for leaf in (weight, *found))
    if len(found) == 2:
        if weight.shape[1] == 1:
            mean, found = mean[:, 0], [leaf[:, 0] for leaf in found]
        return _mixed(weight, Tabled(*found, mean, validate_args=False))
    root = found[0]
    # rootᵀ root = lower lowerᵀ, also where it is singular
    lower = np.swapaxes(np.linalg.qr(root, mode="r"), -1, -2)
    sign = np.sign(np.diagonal(lower, axis1=-2, axis2=-1))
    lower = lower * np.where(sign == 0, 1.0, sign)[..., None, :]
    if weight.shape[1] == 1:
        mean, lower = mean[:, 0], lower[:, 0]
    # a cell that is seen has no spread, which validation would refuse
    parts = (dist.MultivariateNormal(mean, scale_tril=lower, validate_args=False) if site.cells
             else dist.Normal(mean[..., 0], lower[..., 0, 0], validate_args=False))
    return _mixed(weight, parts)


def _mixed(weight: np.ndarray, parts: dist.Distribution) -> dist.Distribution:
    if weight.shape[1] == 1:
        return parts
    return dist.MixtureSameFamily(dist.Categorical(probs=weight), parts)


@functools.partial(jit, static_argnames=("plan", "name", "averaged"))
def _components(plan: Plan, name: str, averaged: bool, belief: Belief, known: Known, every: Rows):
    """log p(row), the probabilities of the states beside a latent, its mean and root in each, or,
    of a single number without a normal, its mean, values and their weights: (draws, chunks, b,
    ...). Several have the normal of their mean and covariance."""
    group = plan.hidden[name]
    reach, start = plan.reach(group), 0
    states = math.prod(plan.variables[v].states for v in reach)
    for latent in group.names:
        size = math.prod(plan.structure.sites[latent].cells)
        if latent == name:
            break
        start += size

    def chunk(rows, belief):
        found = integrated.moments(plan, belief.params, known, rows, group)
        log, weight = states_and_log(plan, reach, belief, known, rows)
        count = len(rows.weights)
        mean = found.mean[..., start : start + size].reshape(count, states, size)
        weight = weight.reshape(count, states)
        if isinstance(found, Moments):
            root = found.root[..., start : start + size].reshape(count, states, -1, size)
            return log, weight, mean, root
        values = found.values[..., start : start + size].reshape(count, states, -1, size)
        share = found.weights.reshape(count, states, -1)
        if found.values.shape[-1] == 1:
            order = jnp.argsort(values[..., 0], -1)
            ordered = (jnp.take_along_axis(leaf, order, -1) for leaf in (values[..., 0], share))
            return log, weight, mean[..., 0], *ordered
        away = jnp.sqrt(share)[..., None] * (values - mean[..., None, :])
        return log, weight, mean, jnp.linalg.qr(away, mode="r")

    if not averaged:
        return jax.tree.map(lambda leaf: leaf[None],
                            every.map(lambda rows: chunk(rows, belief)))
    each_table = belief.table is not None and belief.table.ndim > len(plan.globals)

    def at(draw):
        params, table = draw if each_table else (draw, belief.table)
        own = belief._replace(params=params, table=table)
        return every.map(lambda rows: chunk(rows, own))

    return jax.lax.map(at, (belief.params, belief.table) if each_table else belief.params)
