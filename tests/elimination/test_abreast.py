"""Sums with rows last tell what sums with rows first do, gradients too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.elimination import elimination, rows_last
from probml.elimination.factor import SUM, Factor, product

jax.config.update("jax_enable_x64", True)

SCOPES = ("a", "ba", "cab", "dc", "ed", "fce", "a", "b", "c", "d", "e", "f")
SIZE = {"a": 2, "b": 3, "c": 2, "d": 4, "e": 2, "f": 3}


@pytest.mark.parametrize("kind, near, sure", [(np.float64, 1e-12, False), (np.float32, 1e-5, False),
                                              (np.float64, 1e-12, True)])
def test_sums_with_rows_last_are_those_of_buckets(kind, near, sure):
    """sure: what is seen of a name is told to be an indicator."""
    random, rows = np.random.default_rng(0), rows_last.ROWS
    logs = [np.log(random.random((1 if i < 6 else rows, *(SIZE[u] for u in scope)))).astype(kind)
            for i, scope in enumerate(SCOPES)]
    logs[1][0, 0, 1] = -np.inf  # an impossible move, and a row that is impossible
    if sure:
        logs[6:] = [np.where(log > np.log(0.3), 0.0, -np.inf) for log in logs[6:]]
    logs[7][3] = -np.inf
    order = "fedbca"

    def graph(logs):
        return [Factor(log, tuple(scope), sure and i > 5)
                for i, (log, scope) in enumerate(zip(logs, SCOPES, strict=True))]

    def both(sweep):
        def total(logs):
            factors = graph(logs)
            log = product(sweep(factors, tuple(order))).log
            return jnp.where(jnp.isfinite(log), log, 0.0).sum(), log

        return jax.jit(jax.value_and_grad(total, has_aux=True))(logs)

    assert rows_last.fits(graph(logs), tuple(order))
    found, told = both(rows_last.sum_out), both(lambda f, o: elimination.sweep(f, o, SUM).remaining)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, near, near), found, told)
    assert not np.isfinite(found[0][1][3])
    assert found[0][1].dtype == kind


def test_no_message_is_made_again_for_each_of_its_readers():
    names, states, rows = "abcdefgh", 4, rows_last.ROWS
    scopes = [*zip(names, names[1:], strict=False), *zip(names)]

    def total(logs):
        factors = [Factor(log, scope) for log, scope in zip(logs, scopes, strict=True)]
        return product(rows_last.sum_out(factors, tuple(names))).log.sum()

    logs = [jnp.zeros((1 if len(scope) > 1 else rows, *[states] * len(scope))) for scope in scopes]
    told = jax.jit(jax.value_and_grad(total)).lower(logs).compile().cost_analysis()
    # 18 an entry of the tables that meet; 31 where each reader makes what it reads
    assert told["flops"] < 24 * rows * states**2 * len(names)
