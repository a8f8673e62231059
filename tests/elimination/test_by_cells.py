"""Sums cell by cell are the sums over all joint states."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from probml.elimination.cellwise.by_cells import NONE, Part, Tangled, sum_out

RNG = np.random.default_rng(0)


def part(sizes, **cells):
    cells = {name: np.array(where) for name, where in cells.items()}
    count = len(next(iter(cells.values())))
    return Part(jnp.asarray(RNG.normal(size=(*(sizes[n][1] for n in cells), count))), cells)


def by_force(parts, sizes):
    tables = [np.asarray(one.log) for one in parts]
    every = [(name, cell) for name, (count, _) in sizes.items() for cell in range(count)]
    logs = []
    for states in itertools.product(*(range(sizes[name][1]) for name, _ in every)):
        at, log = dict(zip(every, states, strict=True)), 0.0
        for one, table in zip(parts, tables, strict=True):
            for e in range(table.shape[-1]):
                key = tuple(0 if where[e] == NONE else at[name, where[e]]
                            for name, where in one.cells.items())
                log += table[(*key, e)]
        logs.append(log)
    return logsumexp(logs)


SIZES = {"c": (2, 2), "s": (4, 3), "g": (1, 2)}
TREES = {
    "items_and_positions": [part(SIZES, c=[0, 1]), part(SIZES, s=[0, 1, 2, 3]),
                            part(SIZES, s=[0, 1, 2, 3], c=[0, 0, 1, 1], g=[0, 0, 0, 0])],
    "ragged": [part(SIZES, c=[1, 0]), part(SIZES, c=[0, 0, 0, 1]), part(SIZES, s=[3, 1, 0, 2]),
               part(SIZES, c=[1, 0, 1, 1], s=[2, 3, 0, 1]), part(SIZES, g=[0])],
}


@pytest.mark.parametrize("name", TREES)
def test_a_sum_by_cells_is_the_sum_over_joint_states(name):
    parts = TREES[name]
    got, gradient = jax.jit(jax.value_and_grad(lambda logs: sum_out(
        [Part(log, part.cells) for log, part in zip(logs, parts, strict=True)], SIZES, 1000
    )))([part.log for part in parts])
    np.testing.assert_allclose(got, by_force(parts, SIZES), rtol=1e-12)
    assert all(np.isfinite(log).all() for log in gradient)


def test_an_element_that_looks_at_no_cell_is_the_same_in_all_states():
    half = part(SIZES, c=[0, NONE, 1])
    half = Part(half.log.at[:, 1].set(0.7), half.cells)
    parts = [half, part(SIZES, s=[0, 1, 2, 3]), part(SIZES, g=[0])]
    got = jax.jit(lambda: sum_out(parts, SIZES, 1000))()
    np.testing.assert_allclose(got, by_force(parts, SIZES), rtol=1e-12)


def test_cells_that_meet_crosswise_are_tangled():
    sizes = {"a": (2, 2), "b": (2, 2)}
    with pytest.raises(Tangled) as error:
        sum_out([part(sizes, a=[0, 0, 1, 1], b=[0, 1, 0, 1])], sizes, 1000)
    assert error.value.names == ("a", "b")


def test_a_table_larger_than_it_may_be_is_refused():
    sizes = {"a": (1, 9), "b": (1, 9)}
    with pytest.raises(Tangled):
        sum_out([part(sizes, a=[0], b=[0])], sizes, 80)


def test_what_is_impossible_has_finite_gradients():
    log = jnp.array([[-jnp.inf, 0.0], [-jnp.inf, 1.0]])
    value, gradient = jax.jit(jax.value_and_grad(
        lambda log: sum_out([Part(log, {"a": np.array([0, 1])})], {"a": (2, 2)}, 99)))(log)
    assert value == -np.inf and np.isfinite(gradient).all()
