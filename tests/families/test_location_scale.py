"""Scales of vectors: running sums are held to the matrix that they stand for."""

import jax.numpy as jnp
import numpy as np

from probml.families.location_scale import Root, Sums


def test_running_sums_are_their_matrix():
    random = np.random.default_rng(0)
    scale, x = jnp.asarray(random.uniform(0.5, 2.0, 3)), jnp.asarray(random.normal(size=(3, 5)))
    sums = Sums(scale, 5)
    dense = Root(scale[:, None, None] * np.tri(5))
    np.testing.assert_allclose(sums.whole(), dense.whole(), rtol=1e-12)
    for ask in ("times", "without"):
        np.testing.assert_allclose(getattr(sums, ask)(x), getattr(dense, ask)(x), rtol=1e-10)
    np.testing.assert_allclose(sums.volume(), dense.volume(), rtol=1e-12)
    np.testing.assert_allclose(sums.without(sums.times(x)), x, rtol=1e-12)
