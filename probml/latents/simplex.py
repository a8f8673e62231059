"""Probabilities of a row with a Dirichlet prior, of which categories or counts are seen: integrated
out in closed form.

With n_k how often k is seen in the row and α' = α + n,

    log p(seen) = log p(z) + log p(seen | z) − log p(z | seen) at any z,
    z | seen ~ Dirichlet(α'),

(the Dirichlet-multinomial), and E[log z_k | seen] = ψ(α'_k) − ψ(Σ α') is all that an M-step of α
needs. Means over z are taken over k points on the way from the mean to each corner, which have the
mean and the covariance of the Dirichlet: exact of what is affine or quadratic in z.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import digamma, gammaln

from probml.jaxpr.levels import Level
from probml.jaxpr.memo import memo
from probml.latents.conjugate import WithPosterior
from probml.latents.latent import Group, Seen, mean_over_settings
from probml.latents.quadrature import Nodes, where_seen
from probml.numerics.compiling import jit
from probml.numerics.process.inline_calls import evaluated
from probml.structure.densities import example
from probml.structure.structure import Structure

KINDS = ("Categorical", "Multinomial")  # seen below, by their `probs`
MAX_ROUNDING = 1e-5  # relative difference that is rounding, in float32


class Simplex(WithPosterior):
    """One vector of probabilities; see the top of this file."""

    description = "integrated out, conjugate"
    pools, exact = False, True
    averages = True
    breadth, finer, tolerance = 1, None, 0.0

    def why_not(self, structure: Structure, group: Group) -> str | None:
        latent = structure.sites[group.name]
        if latent.kind != "Dirichlet" or len(group.names) > 1 or len(latent.cells) != 1:
            return f"'{group.name}' is not a single Dirichlet vector of a row"
        for name in (name for name in group.sites if name != group.name):
            site = structure.sites[name]
            for argument, uses in structure.row_uses(name).items():
                use = uses.get(group.name)
                if use is not None and (site.kind not in KINDS or argument != "probs"
                                        or site.time is not None or use.level > Level.MOVED
                                        or use.coordinate
                                        or not _is_identity_map(structure, group.name, name)):
                    return f"'{name}' ({site.kind}) is not conjugate to '{group.name}'"
        return None

    def posterior(self, structure: Structure, group: Group, env: Mapping,
                  seen: Seen) -> dist.Dirichlet:
        """The posterior of the vector given its observed children."""
        alpha = _prior(structure, group, env)
        for name in (name for name in group.sites if name in seen and name != group.name):
            x, mask = seen[name]
            if structure.sites[name].kind == "Categorical":
                counts = jax.nn.one_hot(x.reshape(-1), len(alpha), dtype=alpha.dtype)
                observed = None if mask is None else mask.reshape(-1)
            else:
                counts = x.reshape(-1, len(alpha)).astype(alpha.dtype)
                observed = None if mask is None else mask.reshape(counts.shape).all(-1)
            seen_counts = counts if observed is None else jnp.where(observed[:, None], counts, 0.0)
            alpha = alpha + seen_counts.sum(0)
        return dist.Dirichlet(alpha)

    def conditional(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> Nodes:
        posterior, own_data = (self.posterior(structure, group, env, seen),
                               seen.get(group.name, (None, None)))
        mean, total = posterior.mean, posterior.concentration.sum()
        step = (1 + total) ** -0.5
        values = (1 - step) * mean + step * jnp.eye(len(mean), dtype=mean.dtype)
        mean, values = (where_seen(own_data, lambda z: z, leaf) for leaf in (mean, values))
        return Nodes(mean, values, posterior.mean)

    def row_posterior(self, structure: Structure, group: Group, env: Mapping,
                      seen: Seen) -> jax.Array:
        """What an M-step needs of a row: E[log z], (k,)."""
        alpha = self.posterior(structure, group, env, seen).concentration
        logs = digamma(alpha) - digamma(alpha.sum())
        return where_seen(seen.get(group.name, (None, None)),
                          lambda z: jnp.log(jnp.maximum(z, 1e-30)), logs)

    def expected(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
                 moments: jax.Array) -> jax.Array:
        """E[log p] of the prior alone: the children depend on no parameter but z."""
        alpha = _prior(structure, group, env)
        return gammaln(alpha.sum()) - gammaln(alpha).sum() + ((alpha - 1) * moments).sum()


def _prior(structure: Structure, group: Group, env: Mapping) -> jax.Array:
    return mean_over_settings(env, lambda at: structure.distribution(group.name,
                                                                     at).concentration.reshape(-1))


@memo(256)
def _is_identity_map(structure: Structure, latent: str, name: str) -> bool:
    """Whether the probabilities of each cell are the vector itself, in its order: an affine map may
    take a part of it, or another order."""
    env, sites = example(structure, name), structure.sites
    p = np.arange(1.0, 1.0 + sites[latent].cells[0])
    p /= p.sum()

    @jit
    def probabilities(env: Mapping, p: jax.Array) -> jax.Array:
        return structure.cells(name, {**env, latent: sites[latent].place(p)})["probs"]

    with evaluated():
        probs = np.asarray(probabilities(env, jnp.asarray(p)))
    return probs.shape[-1] == len(p) and bool(np.all(np.abs(probs - p) <= MAX_ROUNDING))
