"""Small models of numbers and categories that tests of rows in parts have in common."""

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import plate, sample

import probml


@probml.model
def mixture(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 10.0))
        scale = sample("scale", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], scale[z]))


@probml.model
def network():
    first = sample("first", dist.Dirichlet(jnp.ones(2)))
    with plate("state", 2):
        second = sample("second", dist.Dirichlet(jnp.ones(3)))
        mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        a = sample("a", dist.Categorical(first))
        sample("b", dist.Categorical(second[a]))
        sample("y", dist.Normal(mean[a], 1.0))
