"""An extension in one file: the mean of a row's waiting times, with an inverse-gamma prior, is
integrated out in closed form.

v ~ InverseGamma(a, b), x_i | v ~ Exponential(c_i / v): v | x ~ InverseGamma(a + n, b + Σ c_i x_i), and
log p(x) = log p(v) + log p(x | v) − log p(v | x) at any v.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.extend import (
    Group,
    Nodes,
    Quadrature,
    Seen,
    Structure,
    joint_density,
    register_latent,
    where_seen,
)


class Mean(Quadrature):
    """See the top of this file; an M-step averages over the nodes of the quadrature."""

    exact, finer = True, None

    @property
    def description(self) -> str:
        return "integrated out, a mean in closed form"

    def why_not(self, structure: Structure, group: Group) -> str | None:
        if structure.sites[group.name].kind != "InverseGamma":
            return f"'{group.name}' is no InverseGamma"
        for name in (name for name in group.sites if name != group.name):
            site, looked = structure.sites[name], structure.row_uses(name)
            rate = looked.get("rate", {}).get(group.name)
            if site.kind != "Exponential" or rate is None or rate.coordinate != (("power", -1.0),):
                return f"'{name}' ({site.kind}) is no Exponential of rate c / '{group.name}'"
        return super().why_not(structure, group)

    def message(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> jax.Array:
        joint, own = joint_density(structure, group, env, seen)
        found = _posterior(structure, group, env, seen)
        at = jax.lax.stop_gradient(found.rate / found.concentration)
        return where_seen(own, lambda v: joint(v, 0.0), joint(at, 0.0) - found.log_prob(at))

    def conditional(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> Nodes:
        nodes = super().conditional(structure, group, env, seen)
        mean = _posterior(structure, group, env, seen).mean
        own = seen.get(group.name, (None, None))
        return nodes._replace(mean=where_seen(own, lambda v: v, mean)[None])

    def draw(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
             key: jax.Array) -> jax.Array:
        drawn = _posterior(structure, group, env, seen).sample(key)
        return where_seen(seen.get(group.name, (None, None)), lambda v: v, drawn)[None]


def _posterior(structure: Structure, group: Group, env: Mapping, seen: Seen) -> dist.Distribution:
    prior = structure.distribution(group.name, env)
    a, b = jnp.reshape(prior.concentration, ()), jnp.reshape(prior.rate, ())
    unit = {**env, group.name: structure.sites[group.name].place(jnp.ones(()))}
    for name in (name for name in group.sites if name in seen and name != group.name):
        x, mask = seen[name]
        live = jnp.ones(x.shape) if mask is None else mask.astype(x.dtype)
        rate = jnp.broadcast_to(structure.cells(name, unit)["rate"], x.shape)
        a, b = a + live.sum(), b + (live * rate * x).sum()
    return dist.InverseGamma(a, b)


register_latent(Mean())
