"""Dynamic factors: many series that a few autoregressions move.

    y_t = μ + W f_t + ν_t,   ν_t ~ N(0, diag(noise²))
    f_t[i] = φ_i1 f_{t−1}[i] + … + φ_ip f_{t−p}[i] + ε_t[i],   ε_t[i] ~ N(0, 1)

A factor is stationary, and what is new in it has variance 1, which the loadings W take the unit of;
its sign is free, and factors are told apart by their autocorrelations alone. They are integrated
out along time, unseen cells drop out.

Sources: Geweke (1977), "The dynamic factor analysis of economic time series"; Stock & Watson
(2011), "Dynamic factor models"; Watson & Engle (1983), "Alternative algorithms for the estimation
of dynamic factor, MIMIC and varying coefficient regression models".
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.linalg import block_diag
from numpyro import deterministic, sample

import probml
from probml.models.chains.structural import autoregression, companion, order_of
from probml.models.summaries.chains import dynamic_factor_tables
from probml.models.summaries.former_names import SIGMA


@probml.model
def dynamic_factor(k: int, d: int, order: int = 1, centre=0.0, mean_scale=1000.0,
                   loading_scale=10.0, scale=1.0):
    """k factors of d series. Sites: `partial` (k, order), partial autocorrelations, `loadings` (d,
    k), `mean` (d,), `sigma` (d,), standard deviations; in every row `factors` (steps, k · order),
    each factor's present step before its past ones, and `y` (steps, d). Computed: `coefficients`
    (k, order).

    Args:
        k, d: factors, series.
        order: of each factor's autoregression.
        centre, mean_scale: normal prior of the mean, in the data's units; one number or (d,).
        loading_scale: prior standard deviation of a loading.
        scale: of the half-normal prior of the noise, in the data's units.
    """
    order_of(order, "dynamic_factor")
    partial = sample("partial", dist.Uniform(-1.0, 1.0).expand([k, order]).to_event(2))
    loadings = sample("loadings", dist.Normal(0.0, loading_scale).expand([d, k]).to_event(2))
    mean = sample("mean", dist.Normal(jnp.full(d, centre), mean_scale).to_event(1))
    noise = sample("sigma", dist.HalfNormal(scale).expand([d]).to_event(1))
    coefficients, correlations = jax.vmap(autoregression)(partial)
    deterministic("coefficients", coefficients)
    shock_cov = jnp.zeros((order, order)).at[0, 0].set(1.0)
    with probml.rows():
        z = sample("factors", probml.GaussianChain(
            jnp.zeros(k * order), block_diag(*correlations),
            block_diag(*jax.vmap(companion)(coefficients)), block_diag(*[shock_cov] * k)))
        sample("y", dist.Normal(mean + z[..., ::order] @ loadings.T, noise).to_event(2))


dynamic_factor.summarized(dynamic_factor_tables)
dynamic_factor.renames(SIGMA)
