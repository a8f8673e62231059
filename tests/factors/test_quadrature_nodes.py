"""The distribution interpolated through Gauss–Hermite nodes: its quantiles beside those of the
density itself on a fine grid, also where the density ends abruptly."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from probml.factors.random_effects.quadrature_nodes import AtNodes, _rule

NODES = 25
QUANTILES = np.array([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99])


def log_poisson(count, tau):
    """Of ε ~ Normal(0, 1), the log density given a count of the rate exp(1 + tau ε)."""
    return lambda e: -0.5 * e**2 + count * (1 + tau * e) - np.exp(1 + tau * e)


def log_logistic(successes, tau):
    return lambda e: -0.5 * e**2 + successes * tau * e - 5 * np.logaddexp(0, tau * e)


DENSITIES = {
    "normal": lambda e: -0.5 * (e - 1) ** 2 / 0.3**2,
    **{f"no event, sd {tau}": log_poisson(0, tau) for tau in (0.3, 1.0, 3.0, 6.0, 20.0)},
    **{f"4 events, sd {tau}": log_poisson(4, tau) for tau in (0.3, 1.0, 3.0)},
    **{f"all succeed, sd {tau}": log_logistic(5, tau) for tau in (0.3, 1.0, 3.0, 10.0)},
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", DENSITIES)
def test_quantiles_are_those_of_the_density(name, dtype):
    log = DENSITIES[name]
    with np.errstate(over="ignore"):
        mode = optimize.minimize_scalar(lambda e: -log(e), bounds=(-8, 8), method="bounded").x
        bent = -(log(mode + 1e-3) - 2 * log(mode) + log(mode - 1e-3)) / 1e-6
        scale = bent**-0.5
        t, weight = _rule(NODES)
        high = log(mode + scale * t) + 0.5 * t**2  # −∞ where the rate is ∞
        logs = (weight + high - np.logaddexp.reduce(weight + high)).astype(dtype)
        grid = np.linspace(mode - 12, mode + 12, 200_001)
        density = np.exp(log(grid) - log(grid).max())
    below = np.cumsum(density) / density.sum()
    expected = np.interp(QUANTILES, below, grid)
    found = AtNodes(jnp.asarray(mode, dtype), jnp.asarray(scale, dtype), jnp.asarray(logs)).icdf(
        jnp.asarray(QUANTILES, dtype))
    sd = np.sqrt((density @ grid**2 - (density @ grid) ** 2 / density.sum()) / density.sum())
    np.testing.assert_allclose(found, expected, atol=0.1 * sd)
