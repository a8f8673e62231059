"""Draws of a posterior, and predictive distributions with parameters integrated out."""

import functools

import jax
import jax.numpy as jnp

from probml.numerics.compiling import jit
from probml.plan.blocks import blocks
from probml.posteriors import predictive
from probml.posteriors.conjugate import Marginals


@functools.partial(jit, static_argnums=(0, 1))
def draw_params(plan, n, closed, states, known, key):
    marginals = Marginals(plan, known, blocks(plan, True), closed) if closed is not None else None

    def one(key):
        out = marginals.draw(key) if marginals is not None else {}
        if states is not None:
            flat = jax.random.categorical(jax.random.fold_in(key, 99), states.reshape(-1))
            for name, state in zip(plan.globals, jnp.unravel_index(flat, states.shape),
                                   strict=True):
                out[name] = jnp.asarray(plan.variables[name].values)[state].reshape(
                    plan.structure.sites[name].shape
                )
        return out

    return jax.vmap(one)(jax.random.split(key, n))


def predictives(fitted, plan, closed, known):
    """The posterior predictive of every site that a query's plan needs, site → arguments; None
    where one has no closed form.

    One row at a time they are exact where each parameter element enters a row once: then the sites'
    predictives multiply.
    """
    touched = {}
    for name in (*plan.pooled, *plan.rowwise):
        uses = plan.structure.sites[name].uses.values()
        touched[name] = tuple(dict.fromkeys(p for u in uses for p in u if p in fitted.free))
    if any(touched[name] for name in plan.steps):
        return None  # a row uses a parameter of its steps many times
    used = [p for names in touched.values() for p in names]
    if len(used) != len(set(used)):
        return None
    if not all(predictive.linear(plan, fitted, name) for name in plan.targets):
        return None
    if any(p in used for name in plan.targets if name in plan.structure.deterministics
           for p in plan.structure.named[name].uses["value"]):
        return None  # what the row shows tells of the very parameters
    marginals = Marginals(plan, known, blocks(fitted, True), closed)
    wanted = [name for name in plan.pooled if touched[name]]
    if any(predictive.shares(marginals, name) for name in wanted):
        return None
    tables = [name for name in wanted if plan.structure.sites[name].states is not None
              and name not in plan.counted]
    if not all(predictive.integrable(marginals, name) for name in tables):
        return None
    continuous = tuple(name for name in wanted if name not in tables)
    continuous += tuple(name for name in plan.rowwise if touched[name])
    return _predictive_arguments(fitted, plan, continuous, closed, known) if continuous else {}


@functools.partial(jit, static_argnums=(0, 1, 2))
def _predictive_arguments(fitted, plan, names, closed, known):
    marginals = Marginals(plan, known, blocks(fitted, True), closed)
    out = {name: predictive.affine(marginals, name) if name in plan.rowwise
           else predictive.predictive(marginals, name) for name in names}
    return None if any(value is None for value in out.values()) else out
