"""The generative functions that are timed, written as a user would write them."""

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import plate, sample

import probml


@probml.model
def gaussian_mixture(k: int, d: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 10.0).expand([d]).to_event(1))
        covariance = sample("covariance", dist.InverseWishart(d + 2.0, scale_matrix=jnp.eye(d)))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.MultivariateNormal(mean[z], covariance_matrix=covariance[z]))


@probml.model
def gaussian_bayes(k: int, d: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("class", k):
        variance = sample("variance", dist.InverseGamma(1.0, 1.0).expand([d]).to_event(1))
        mean = sample("mean", dist.Normal(0.0, jnp.sqrt(variance / 0.01)).to_event(1))
    with probml.rows():
        y = sample("y", dist.Categorical(weights))
        sample("x", dist.Normal(mean[y], jnp.sqrt(variance[y])).to_event(1))


@probml.model
def categorical_bayes(k: int, d: int, states: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("class", k):
        table = sample("table", dist.Dirichlet(jnp.ones(states)).expand([d]).to_event(1))
    with probml.rows():
        y = sample("y", dist.Categorical(weights))
        sample("x", dist.Categorical(table[y]).to_event(1))


@probml.model
def line(x):
    intercept = sample("intercept", dist.Normal(0, 10))
    slope = sample("slope", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    scale = sample("scale", dist.HalfNormal(5))
    with probml.rows():
        sample("y", dist.Normal(intercept + x @ slope, scale))
