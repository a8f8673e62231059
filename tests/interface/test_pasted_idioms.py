"""Idioms of NumPyro's users that were refused, or read otherwise than they were meant."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers, plate, sample

import probml
from plain_numpyro import log_density

RNG = np.random.default_rng(4)


def test_a_function_that_masks_unseen_cells_by_numpy_is_taken_as_it_is():
    def masked(y):
        m, s = sample("m", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
        there = ~np.isnan(np.asarray(y))
        with plate("n", len(y)), handlers.mask(mask=there):
            sample("o", dist.Normal(m, s), obs=jnp.where(there, np.nan_to_num(y), 0.0))

    y = np.where(RNG.uniform(size=9) < 0.3, np.nan, RNG.normal(size=9))
    y[2] = np.nan
    p = {"m": 0.3, "s": 0.8}
    want = log_density(masked, (y,), {}, p)
    np.testing.assert_allclose(probml.model(masked)().log_density({"y": y}, p), want, rtol=1e-10)


def test_a_plate_along_the_second_axis_of_what_is_observed_is_not_read_as_rows():
    def slopes(y, x):
        tau = sample("tau", dist.HalfNormal(1.0))
        with plate("subject", 3, dim=-2):
            ab = sample("ab", dist.MultivariateNormal(jnp.zeros(2), tau * jnp.eye(2)))
            with plate("time", len(x), dim=-1):
                sample("y", dist.Normal(ab[..., 0] + ab[..., 1] * x, 0.5), obs=y)

    data = {"y": RNG.normal(size=(3, 5)), "x": RNG.normal(size=5)}
    p = {"tau": np.array(0.7), "ab": RNG.normal(size=(3, 1, 2))}
    want = log_density(slopes, (), data, p)
    np.testing.assert_allclose(probml.model(slopes)().log_density(data, p), want, rtol=1e-10)


def test_a_distribution_that_holds_a_function_of_parameters_has_its_density():
    def diffusion(y):
        k, s = sample("k", dist.LogNormal(-1.0, 0.5)), sample("s", dist.HalfNormal(1.0))
        pull = lambda x: -k * x  # noqa: E731
        x = sample("x", dist.EulerMaruyama(t=jnp.arange(6) * 0.1, init_dist=dist.Normal(0.0, 1.0),
                                           sde_fn=lambda x, t: (pull(x), s)))
        sample("y", dist.Normal(x, 0.5), obs=y)

    y, p = RNG.normal(size=6), {"k": 0.4, "s": 0.8, "x": RNG.normal(size=6)}
    want = log_density(diffusion, (y,), {}, p)
    np.testing.assert_allclose(probml.model(diffusion)().log_density({"y": y}, p), want, rtol=1e-9)
