"""One number a row under sites that are conjugate to it: a rate of counts or of waiting times with
a Gamma prior, a probability with a Beta prior, the variance of normal sites with an inverse Gamma
prior, or its inverse with a Gamma one.

log p(seen) = log p(z) + log p(seen | z) − log p(z | seen) at any z, so that no family needs the
formula of its predictive (negative binomial, beta-binomial, Lomax, Student's t …). The objective of
an M-step is taken over the nodes of the quadrature.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.jaxpr.levels import Level, Use
from probml.latents.latent import Group, Seen, mean_over_settings
from probml.latents.quadrature import Nodes, Quadrature, joint_density, where_seen
from probml.structure.structure import Structure


class ConjugateChild(NamedTuple):
    """A kind of site that is conjugate to a number.

    `argument` is c · number^power, c free of it; `added`: (x, arguments at the number 1) → what an
    observed cell adds to the two parameters of the prior.
    """

    argument: str
    added: Callable
    power: float = 1.0


def _square(x: jax.Array, arguments: Mapping) -> tuple[jax.Array, jax.Array]:
    return jnp.full_like(x, 0.5), 0.5 * ((x - arguments["loc"]) / arguments["scale"]) ** 2


CONJUGATE_CHILDREN: dict[str, dict[str, ConjugateChild]] = {
    "Gamma": {
        "Poisson": ConjugateChild("rate", lambda x, at: (x, at["rate"])),
        "Exponential": ConjugateChild("rate", lambda x, at: (jnp.ones_like(x), at["rate"] * x)),
        "Gamma": ConjugateChild("rate", lambda x, at: (at["concentration"], at["rate"] * x)),
        "Normal": ConjugateChild("scale", _square, -0.5),
    },
    "Beta": {
        "Bernoulli": ConjugateChild("probs", lambda x, at: (x, 1 - x)),
        "Binomial": ConjugateChild("probs", lambda x, at: (x, at["total_count"] - x)),
        "Geometric": ConjugateChild("probs", lambda x, at: (jnp.ones_like(x), x)),
    },
    "InverseGamma": {"Normal": ConjugateChild("scale", _square, 0.5)},
}
# the two parameters of a prior, and the prior of these
PRIORS: dict[str, tuple[tuple[str, str], Callable]] = {
    "Gamma": (("concentration", "rate"), dist.Gamma),
    "Beta": (("concentration1", "concentration0"), dist.Beta),
    "InverseGamma": (("concentration", "rate"), dist.InverseGamma),
}


class WithPosterior:
    """A latent whose posterior given a row is a distribution, `posterior`, in closed form."""

    posterior: Callable[..., dist.Distribution]

    def message(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> jax.Array:
        joint, own_data = joint_density(structure, group, env, seen)
        posterior = self.posterior(structure, group, env, seen)
        z = jax.lax.stop_gradient(posterior.mean)
        return where_seen(own_data, lambda x: joint(x, 0.0), joint(z, 0.0) - posterior.log_prob(z))

    def draw(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
             key: jax.Array) -> jax.Array:
        drawn = self.posterior(structure, group, env, seen).sample(key)
        return jnp.atleast_1d(where_seen(seen.get(group.name, (None, None)), lambda x: x, drawn))


class Conjugate(WithPosterior, Quadrature):
    """A Gamma, inverse Gamma or Beta number; see the top of this file."""

    exact, finer, averages = True, None, True

    description = "integrated out, conjugate"

    def why_not(self, structure: Structure, group: Group) -> str | None:
        latent = structure.sites[group.name]
        if latent.kind not in CONJUGATE_CHILDREN:
            return f"'{group.name}' is {latent.kind}"
        for name in (name for name in group.sites if name != group.name):
            site = structure.sites[name]
            child = CONJUGATE_CHILDREN[latent.kind].get(site.kind)
            for argument, uses in structure.row_uses(name).items():
                use = uses.get(group.name)
                if use is not None and (child is None or argument != child.argument
                                        or use.level > Level.MOVED
                                        or not _scaled(use, child.power, latent.kind != "Beta")):
                    return f"'{name}' ({site.kind}) is not conjugate to '{group.name}'"
        return super().why_not(structure, group)

    def conditional(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> Nodes:
        nodes, own_data = super().conditional(structure, group, env, seen), seen.get(group.name,
                                                                               (None, None))
        mean = self.posterior(structure, group, env, seen).mean
        return nodes._replace(mean=where_seen(own_data, lambda x: x, mean)[None])

    def posterior(self, structure: Structure, group: Group, env: Mapping,
                  seen: Seen) -> dist.Distribution:
        """The posterior of the number given its observed children."""
        site = structure.sites[group.name]
        names, family = PRIORS[site.kind]

        def natural(env: Mapping) -> tuple[jax.Array, jax.Array]:
            prior = structure.distribution(group.name, env)
            first, second = (jnp.reshape(getattr(prior, name), ()) for name in names)
            unit = {**env, group.name: site.place(jnp.ones(site.cells))}
            for name in (name for name in group.sites if name in seen and name != group.name):
                (x, mask), child = seen[name], structure.sites[name]
                statistics = CONJUGATE_CHILDREN[site.kind][child.kind].added(x.astype(first.dtype),
                                                         structure.cells(name, unit))
                a, b = (jnp.where(True if mask is None else mask, jnp.broadcast_to(leaf, x.shape),
                                  0.0).sum() for leaf in statistics)
                first, second = first + a, second + b
            return first, second

        return family(*mean_over_settings(env, natural))


def _scaled(use: Use, power: float, unit: bool) -> bool:
    """Whether an argument is a power of a number; times what is free of it, where `unit`."""
    steps = [step for step in use.coordinate if step[0] != "times"]
    exponent = math.prod(amount for _, amount in steps)
    is_power = all(name == "power" for name, _ in steps) and math.isclose(exponent, power)
    return is_power and (unit or not use.coordinate)
