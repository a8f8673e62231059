"""Mixtures of factor analysers: every component a Gaussian of few directions, its factors unseen
numbers of the row."""

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import plate, sample

import probml
from probml.models.summaries.former_names import SIGMA


@probml.model
def mixture_of_factor_analysers(components: int, k: int, d: int, centre=0.0, mean_scale=1000.0,
                                loading_scale=10.0, scale=1.0):
    """x = μ_c + W_c z + noise, z ~ N(0, I_k), in one of `components` (Ghahramani & Hinton 1996):
    locally linear, of few parameters. Sites: `weights` (components,), `loadings` (components, d,
    k), `mean` (components, d), `sigma` (d,), standard deviations; in every row `c`, `z` (k,), `x`
    (d,).

    Args:
        components, k, d: mixture components, factors of each, columns.
        centre, mean_scale: normal prior of means, in the data's units; one number or (d,).
        loading_scale: prior standard deviation of a loading.
        scale: prior median of the noise, whose logarithm has standard deviation 1; one number or
            (d,).

    z is normal and enters x affinely, so that it is integrated out exactly in every component, and
    missing cells drop out.
    """
    weights = sample("weights", dist.Dirichlet(jnp.ones(components)))
    with plate("component", components):
        loadings = sample("loadings", dist.Normal(0.0, loading_scale).expand([d, k]).to_event(2))
        mean = sample("mean", dist.Normal(jnp.full(d, centre), mean_scale).to_event(1))
    noise = sample("sigma", dist.LogNormal(jnp.log(jnp.full(d, scale)), 1.0).to_event(1))
    with probml.rows():
        c = sample("c", dist.Categorical(weights))
        z = sample("z", dist.Normal(0.0, 1.0).expand([k]).to_event(1))
        location = mean[c] + jnp.einsum("...dk,...k->...d", loadings[c], z)
        sample("x", dist.Normal(location, noise).to_event(1))


mixture_of_factor_analysers.renames(SIGMA)
