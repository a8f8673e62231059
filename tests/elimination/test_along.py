"""Cells in rows: their sum, and their best values, are those of all joint states."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.elimination.cellwise.by_cells import NONE, Move, Part, Tangled, find_chains, sum_out

RNG = np.random.default_rng(0)
OWN = RNG.normal(size=(3, 6))  # states, cells
LINKS = [(4, 1), (1, 3), (2, 5)]  # 4 - 1 - 3, 2 - 5, and 0 by itself
TABLES = RNG.normal(size=(3, 3, 3))


def moves():
    one, other = map(np.array, zip(*LINKS, strict=True))
    return [Move("z", jnp.moveaxis(jnp.asarray(TABLES), 0, -1), one, other)]


def by_force():
    logs = {}
    for z in itertools.product(range(3), repeat=6):
        logs[z] = OWN[list(z), range(6)].sum() + sum(
            TABLES[i, z[a], z[b]] for i, (a, b) in enumerate(LINKS))
    return logs


def test_rows_of_several_lengths_are_summed_and_maximised_as_joint_states_are():
    logs, part = by_force(), lambda own: [Part(own, {"z": np.arange(6)})]
    got = jax.jit(lambda own: sum_out(part(own), {"z": (6, 3)}, 2**20, moves()))(OWN)
    np.testing.assert_allclose(got, np.logaddexp.reduce(list(logs.values())), rtol=1e-5)
    hot = jax.jit(jax.grad(lambda own: sum_out(part(own), {"z": (6, 3)}, 2**20, moves(), ["z"])))(
        jnp.asarray(OWN))
    best = max(logs, key=logs.get)
    np.testing.assert_array_equal(hot, np.eye(3)[list(best)].T)


def test_a_ring_and_a_cell_of_three_neighbours_are_no_rows():
    link = lambda pairs: [Move("z", jnp.zeros((2, 2, len(pairs))), *map(  # noqa: E731
        np.array, zip(*pairs, strict=True)))]
    assert find_chains(link([(0, 1), (1, 2), (2, 0)]), 3) is None
    assert find_chains(link([(0, 1), (0, 2), (0, 3)]), 4) is None
    np.testing.assert_array_equal(find_chains(link([(2, 1)]), 3), [[0, NONE], [1, 2]])
    with pytest.raises(Tangled):
        sum_out([], {"z": (3, 2)}, 2**20, link([(0, 1), (1, 2), (2, 0)]))
