"""Log probabilities of observed states: one row that has a table of its own, and many rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.families.likelihoods.categorical import look_up


@pytest.mark.parametrize("states", [2, 3, 8, 9])
@pytest.mark.parametrize("masked", [False, True])
def test_a_row_with_its_own_table_has_the_log_probability_and_slope_of_rows_that_share_one(
        states, masked):
    random = np.random.default_rng(states)
    tables = np.log(random.dirichlet(np.ones(states), (6, 2)))  # (rows, cells, states)
    tables[0, 0] = np.where(np.arange(states) == 0, 0.0, -np.inf)
    codes = random.integers(states, size=(6, 2))
    codes[0, 0] = 1  # impossible
    seen = random.random((6, 2)) < 0.6 if masked else None

    def own(tables: jax.Array) -> jax.Array:
        return jax.vmap(lambda table, code, mask: look_up(
            table[None], code[None], None if mask is None else mask[None])[0, 0])(
                tables, codes, seen)

    def shared(tables: jax.Array) -> jax.Array:
        return jnp.diagonal(look_up(tables, codes, seen))

    np.testing.assert_allclose(own(tables), shared(tables), rtol=1e-12)
    finite = tables[1:], codes[1:], None if seen is None else seen[1:]
    picked = np.take_along_axis(finite[0], finite[1][..., None], -1)[..., 0]
    np.testing.assert_allclose(own(tables)[1:], np.where(True if seen is None else finite[2], picked,
                                                         0.0).sum(1), rtol=1e-12)
    slopes = [jax.grad(lambda t, f=f: jnp.where(jnp.isfinite(f(t)), f(t), 0).sum())(tables)
              for f in (own, shared)]
    np.testing.assert_allclose(*slopes, atol=1e-12)
