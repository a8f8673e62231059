"""Sums of exponentials, where rounding puts a log above its maximum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.numerics.logs import (
    MAX_SERIES_ARGUMENT,
    exp_below,
    log1p_of_little,
    log_sum,
    weighted_log,
)


def test_a_log_that_rounding_puts_above_its_maximum_keeps_its_share():
    value, slope = jax.jit(jax.vmap(jax.value_and_grad(exp_below)))(jnp.array([1e-7, 0.0, -1.0, -jnp.inf]))
    np.testing.assert_allclose(value, [1, 1, np.exp(-1), 0], rtol=1e-6)
    np.testing.assert_allclose(slope, [1, 1, np.exp(-1), 0], rtol=1e-6)


def test_the_gradient_of_a_sum_of_logs_is_a_distribution_also_far_out():
    log = jnp.array([[3e8, 3e8, -jnp.inf], [0.0, -1e-7, 1e-7]])
    shares = np.asarray(jax.jit(jax.grad(lambda log: log_sum(log, -1).sum()))(log))
    np.testing.assert_allclose(shares.sum(-1), 1, rtol=1e-6)
    assert shares[0, 2] == 0


@pytest.mark.parametrize("kind, off", [(jnp.float64, 4e-16), (jnp.float32, 2e-7)])
def test_logarithms_of_little_above_1_keep_the_digits_of_the_little(kind, off):
    u = (MAX_SERIES_ARGUMENT * np.concatenate([np.linspace(0, 1, 500), np.geomspace(1e-12, 1, 500)])).astype(kind)
    np.testing.assert_allclose(np.asarray(jax.jit(log1p_of_little)(u), float),
                               np.log1p(u.astype(float)), rtol=off)


def test_a_weight_of_zero_counts_nothing_whatever_the_log():
    weight, log = jnp.array([0.0, 0.0, 0.0, 2.0]), jnp.array([-jnp.inf, jnp.nan, 1.0, -3.0])
    np.testing.assert_array_equal(weighted_log(weight, log), [0, 0, 0, -6])
    of_weight, of_log = jax.grad(lambda w, log: weighted_log(w, log).sum(), (0, 1))(weight, log)
    np.testing.assert_array_equal(of_weight, [0, 0, 0, -3])
    np.testing.assert_array_equal(of_log, [0, 0, 0, 2])
