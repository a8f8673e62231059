"""Small programs are compiled at XLA's lowest level, large ones at the full one: chosen by shapes
alone, and the answers agree to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import cho_solve

from compilations import compiled
from probml.dataset.sources.parts import open_data
from probml.models import hidden_markov, item_response
from probml.numerics import compiling
from probml.numerics.logs import log_sum


class Planned:
    """A static argument that knows its work."""

    table_entries = 10


ROWS = np.zeros(1000)


@pytest.mark.parametrize("leaves, static, loops, small", [
    ([ROWS, 1.0], (), 1, True),
    ([ROWS, ROWS], (), 128, False),
    ([ROWS] * 20, (Planned(),), 1, False),
    ([ROWS] * 20, ("a name", True), 1, True),
    ([1.0], (1_000_000,), 1, False),  # so many rows are made
    ([], (), 1, True),
])
def test_the_numbers_their_tables_and_the_passes_choose_the_level(leaves, static, loops, small):
    level = compiling.options_for(leaves, static, loops)["xla_backend_optimization_level"]
    assert level == (0 if small else 3)


@pytest.mark.parametrize("rows, draws, small", [(100, 1, True), (100, 100, True), (100, 20_000, False)])
def test_draws_over_which_a_program_loops_choose_the_level(rows, draws, small):
    leaves = [np.zeros((draws, 3)), np.zeros(draws), np.zeros(rows)]
    level = compiling.options_for(leaves, (Planned(),), draws=draws)["xla_backend_optimization_level"]
    assert level == (0 if small else 3)


def test_nodes_of_a_quadrature_are_its_work():
    plan = open_data(item_response(items=3), {"y": np.zeros((5, 3))}).plan()
    assert plan.table_entries == plan.latents[0].kind.breadth > 1


def test_moves_of_a_chain_are_its_work():
    plan = open_data(hidden_markov(k=5, d=2), {"y": np.zeros((3, 20, 2))}).plan()
    assert plan.table_entries == 25


def _twice(x):
    return 2.0 * x


def test_each_size_is_compiled_once_at_its_level(monkeypatch):
    asked = []
    own = compiling.options_for
    monkeypatch.setattr(compiling, "options_for", lambda *args: asked.append(own(*args)) or asked[-1])
    double = compiling.jit(_twice)
    few, many = np.ones(3), np.ones(compiling.MAX_SMALL_PROGRAM_ENTRIES + 1)
    with compiled() as found:
        for values in (few, many, few, many, few + 1.0):
            np.testing.assert_array_equal(double(values), 2.0 * values)
    assert len(found) == 2
    assert asked == [compiling.QUICK, compiling.FULL, compiling.QUICK, compiling.FULL, compiling.QUICK]


def _evidence(theta, x):
    """Of a mixture of normals with full precisions: maxima, logs, products, LAPACK, a loop."""
    log, mean, root = theta
    lower = jnp.tril(root, -1) + jnp.exp(0.1 * root) * jnp.eye(3, dtype=root.dtype)
    precision = lower @ jnp.swapaxes(lower, -1, -2)
    away = x[:, None] - mean
    squares = jnp.einsum("nki,kij,nkj->nk", away, precision, away)
    half = jnp.log(jnp.diagonal(jnp.linalg.cholesky(precision), axis1=-2, axis2=-1)).sum(-1)
    table = jax.nn.log_softmax(log) + half - 0.5 * squares

    def step(state, row):
        return log_sum(state[:, None] + jnp.log(0.1 + jnp.eye(len(log), dtype=log.dtype)), 0) + row, state[0]

    chain, _ = jax.lax.scan(step, jnp.zeros_like(log), table)
    pull = jax.vmap(lambda matrix: cho_solve((matrix, True), jnp.ones(len(matrix), log.dtype)))(lower)
    return log_sum(table, 1).sum() + log_sum(chain, 0) - (pull**2).sum()


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_both_levels_agree_to_rounding_with_gradients(kind):
    """Scales from near to far, where one state takes all of a row."""
    both = {level: jax.jit(jax.value_and_grad(_evidence), compiler_options=level_options)
            for level, level_options in (("quick", compiling.QUICK), ("full", compiling.FULL))}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scale = 10.0 ** rng.uniform(-2, 1.5)
        theta = jax.tree.map(lambda a: a.astype(kind), (
            rng.normal(size=5), scale * rng.normal(size=(5, 3)), rng.normal(size=(5, 3, 3))
        ))
        x = (scale * rng.normal(size=(61, 3))).astype(kind)
        quick, full = (both[level](theta, x) for level in ("quick", "full"))
        for a, b in zip(jax.tree.leaves(quick), jax.tree.leaves(full), strict=True):
            assert a.dtype == kind
            np.testing.assert_allclose(a, b, rtol=0, atol=2e3 * np.finfo(kind).eps * np.abs(b).max())


def test_shares_of_states_add_up_at_the_lowest_level():
    """What a state lost where its log lay above its maximum by a rounding, as a mixture of 272 rows
    and 20 states did (numerics/logs.py)."""
    rng = np.random.default_rng(0)

    def total(log, mean, x):
        return log_sum(log - 0.5 * ((x[:, None] - mean) ** 2).sum(-1), 1).sum()

    slopes = jax.jit(jax.grad(total, (0, 1)), compiler_options=compiling.QUICK)
    for _ in range(50):
        mean, x = 3.0 * rng.normal(size=(20, 2)), 3.0 * rng.normal(size=(272, 2))
        q = np.exp(-0.5 * ((x[:, None] - mean) ** 2).sum(-1))
        q /= q.sum(1, keepdims=True)
        counts, moved = slopes(np.zeros(20), mean, x)
        np.testing.assert_allclose(counts, q.sum(0), rtol=1e-10)
        away = (q[:, :, None] * (x[:, None] - mean)).sum(0)
        np.testing.assert_allclose(moved, away, rtol=1e-9, atol=1e-10)
