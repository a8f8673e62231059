"""Sums with rows last tell what sums with rows first do, gradients too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.elimination import abreast, buckets
from probml.elimination.factor import Factor, product
from probml.elimination.semiring import SUM

jax.config.update("jax_enable_x64", True)

SCOPES = ("a", "ba", "cab", "dc", "ed", "fce", "a", "b", "c", "d", "e", "f")
SIZE = {"a": 2, "b": 3, "c": 2, "d": 4, "e": 2, "f": 3}


@pytest.mark.parametrize("kind, near", [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_sums_with_rows_last_are_those_of_buckets(kind, near):
    random, rows = np.random.default_rng(0), abreast.ROWS
    logs = [np.log(random.random((1 if i < 6 else rows, *(SIZE[u] for u in scope)))).astype(kind)
            for i, scope in enumerate(SCOPES)]
    logs[1][0, 0, 1] = -np.inf  # an impossible move, and a row that is impossible
    logs[7][3] = -np.inf
    order = "fedbca"

    def both(sweep):
        def total(logs):
            factors = [Factor(log, tuple(scope)) for log, scope in zip(logs, SCOPES, strict=True)]
            log = product(sweep(factors, tuple(order))).log
            return jnp.where(jnp.isfinite(log), log, 0.0).sum(), log

        return jax.jit(jax.value_and_grad(total, has_aux=True))(logs)

    factors = [Factor(log, tuple(scope)) for log, scope in zip(logs, SCOPES, strict=True)]
    assert abreast.fits(factors, tuple(order))
    found, told = both(abreast.sum_out), both(lambda f, o: buckets.sweep(f, o, SUM).left)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, near, near), found, told)
    assert not np.isfinite(found[0][1][3])
    assert found[0][1].dtype == kind
