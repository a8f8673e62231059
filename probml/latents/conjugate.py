"""One number a row under sites that are conjugate to it: a rate of counts or of waiting times with
a Gamma prior, a probability with a Beta prior.

log p(seen) = log p(z) + log p(seen | z) − log p(z | seen) at any z, so that no family needs the
formula of its predictive (negative binomial, beta-binomial, Lomax …). What an M-step climbs is
taken over the nodes of the quadrature.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.jaxpr.levels import Level
from probml.latents.latent import Group, Seen
from probml.latents.quadrature import Nodes, Quadrature, joint_density, where_seen
from probml.structure.structure import Structure

# kind of the site below → the argument that is the number, and (x, arguments at the number 1) →
# what a seen cell adds to the two parameters of the prior
COUNTS: dict[str, dict[str, tuple[str, Callable]]] = {
    "Gamma": {
        "Poisson": ("rate", lambda x, at: (x, at["rate"])),
        "Exponential": ("rate", lambda x, at: (jnp.ones_like(x), at["rate"] * x)),
        "Gamma": ("rate", lambda x, at: (at["concentration"], at["rate"] * x)),
    },
    "Beta": {
        "Bernoulli": ("probs", lambda x, at: (x, 1 - x)),
        "Binomial": ("probs", lambda x, at: (x, at["total_count"] - x)),
        "Geometric": ("probs", lambda x, at: (jnp.ones_like(x), x)),
    },
}


class Conjugate(Quadrature):
    """A Gamma or Beta number; see the top of this file."""

    exact, finer = True, None

    @property
    def words(self) -> str:
        return "integrated out, conjugate"

    def claims(self, structure: Structure, group: Group) -> str | None:
        own = structure.sites[group.name]
        if own.kind not in COUNTS:
            return f"'{group.name}' is {own.kind}"
        for name in (name for name in group.sites if name != group.name):
            site = structure.sites[name]
            argument, _ = COUNTS[own.kind].get(site.kind, ("", None))
            for found, uses in structure.row_uses(name).items():
                use = uses.get(group.name)
                scaled = own.kind == "Gamma" and use is not None and all(
                    step == "times" for step, _ in use.coordinate)
                if use is not None and (found != argument or use.level > Level.MOVED
                                        or use.coordinate and not scaled):
                    return f"'{name}' ({site.kind}) is not conjugate to '{group.name}'"
        return super().claims(structure, group)

    def message(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> jax.Array:
        joint, own = joint_density(structure, group, env, seen)
        posterior = _posterior(structure, group, env, seen)
        at = jax.lax.stop_gradient(posterior.mean)
        return where_seen(own, lambda x: joint(x, 0.0), joint(at, 0.0) - posterior.log_prob(at))

    def conditional(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> Nodes:
        nodes, own = super().conditional(structure, group, env, seen), seen.get(group.name,
                                                                               (None, None))
        mean = _posterior(structure, group, env, seen).mean
        return nodes._replace(mean=where_seen(own, lambda x: x, mean)[None])

    def draw(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
             key: jax.Array) -> jax.Array:
        drawn = _posterior(structure, group, env, seen).sample(key)
        return where_seen(seen.get(group.name, (None, None)), lambda x: x, drawn)[None]


def _posterior(structure: Structure, group: Group, env: Mapping,
               seen: Seen) -> dist.Distribution:
    """The number given what is seen below it."""
    site = structure.sites[group.name]
    first, second = (jnp.reshape(structure.cells(group.name, env)[name], ()) for name in (
        ("concentration", "rate") if site.kind == "Gamma" else ("concentration1",
                                                                "concentration0")))
    unit = {**env, group.name: site.place(jnp.ones(site.cells))}
    for name in (name for name in group.sites if name in seen and name != group.name):
        (x, mask), child = seen[name], structure.sites[name]
        more = COUNTS[site.kind][child.kind][1](x.astype(first.dtype), structure.cells(name, unit))
        a, b = (jnp.where(True if mask is None else mask, jnp.broadcast_to(leaf, x.shape),
                          0.0).sum() for leaf in more)
        first, second = first + a, second + b
    return (dist.Gamma if site.kind == "Gamma" else dist.Beta)(first, second)
