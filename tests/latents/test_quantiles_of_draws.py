"""Draws of a number of a row by quadrature, at given uniform numbers, are the quantiles of its
posterior, with missing answers and with two peaks."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from scipy import stats

import probml
from probml.dataset.sources.parts import open_data
from probml.latents.quadrature import Quadrature


@probml.model
def counts():
    rate = sample("rate", dist.Normal(0, 1))
    with probml.rows():
        z = sample("z", dist.Normal(0, 1))
        sample("y", dist.Poisson(jnp.exp(rate + z[..., None]) * jnp.ones(3)).to_event(1))


@probml.model
def squares():
    rate = sample("rate", dist.Normal(0, 1))
    with probml.rows():
        z = sample("z", dist.Normal(0, 1))
        sample("y", dist.Normal(z**2 + rate, 0.3))


@pytest.mark.parametrize("model, y, log", [
    (counts, np.array([0.0, 3.0, np.nan]),
     lambda z: stats.poisson(np.exp(0.4 + z)).logpmf([[0], [3]]).sum(0)),
    (squares, np.array(2.0), lambda z: stats.norm(z**2 + 0.4, 0.3).logpdf(2.0)),
], ids=["counts", "two peaks"])
def test_draws_at_given_uniform_numbers_are_quantiles(monkeypatch, model, y, log):
    plan = open_data(model(), {"y": y[None]}).plan()
    (group,) = plan.latents
    assert isinstance(group.kind, Quadrature)
    monkeypatch.setattr(jax.random, "uniform", lambda key, dtype: key)
    share = np.linspace(1e-3, 1 - 1e-3, 999)
    seen = {"y": (jnp.nan_to_num(y), jnp.asarray(~np.isnan(y)))}
    found = np.asarray(jax.vmap(lambda key: group.kind.draw(
        plan.structure, group, {"rate": jnp.asarray(0.4)}, seen, key))(jnp.asarray(share)))[:, 0]
    grid = np.linspace(-8, 8, 400_001)
    mass = np.exp(log(grid) + stats.norm.logpdf(grid))
    total = np.cumsum(mass) - 0.5 * mass
    np.testing.assert_allclose(np.interp(found, grid, total / mass.sum()), share, atol=2e-4)
    exact = np.interp(share, total / mass.sum(), grid)
    np.testing.assert_allclose(found.std(), exact.std(), rtol=1e-3)
