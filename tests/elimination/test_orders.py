"""Elimination orders: as good as the best of all orders on small graphs, never worse than minimum
fill, small tables on large networks."""

import itertools
import math
import time

import numpy as np
import pytest

from probml.elimination.orders import best_order, min_fill, widest, work
from probml.models.bayesian_networks.bif import _text
from probml.models.bayesian_networks.bif_reader import parse


def graph(seed, size=7, scopes=9, states=(2, 6)):
    """Random (scopes, sizes)."""
    random = np.random.default_rng(seed)
    names = [f"g{i}" for i in range(size)]
    return ([tuple(random.choice(names, 2, replace=False)) for _ in range(scopes)],
            {n: int(random.integers(*states)) for n in names})


def by_hand(scopes, sizes, order):
    """Entries of the largest table of an order."""
    near = {v: {u for scope in scopes if v in scope for u in scope} - {v} for v in sizes}
    largest = 0
    for v in order:
        around = near.pop(v)
        largest = max(largest, sizes[v] * math.prod(sizes[u] for u in around))
        for u in around:
            near[u] = (near[u] | around) - {u, v}
    return largest


@pytest.mark.parametrize("seed", range(5))
def test_the_largest_table_of_a_small_graph_is_that_of_the_best_of_all_orders(seed):
    scopes, sizes = graph(seed)
    least = min(by_hand(scopes, sizes, order) for order in itertools.permutations(sizes))
    assert by_hand(scopes, sizes, best_order(scopes, sizes, sizes)) == least


@pytest.mark.parametrize("seed", range(5))
def test_an_order_is_never_worse_than_minimum_fill_and_leaves_out_what_stays(seed):
    scopes, sizes = graph(seed, 30, 60)
    gone = list(sizes)[:25]
    order, plain = best_order(scopes, sizes, gone), min_fill(scopes, sizes, gone)
    assert sorted(order) == sorted(plain) == sorted(gone)
    best, first = ((widest(scopes, sizes, each)[1], work(scopes, sizes, each))
                   for each in (order, plain))
    assert best <= first


def test_the_same_graph_gives_the_same_order_however_it_is_listed():
    scopes, sizes = graph(0, 40, 80)
    shuffled = [scope[::-1] for scope in scopes[::-1]]
    assert best_order(scopes, sizes, list(sizes)) == best_order(
        shuffled, dict(reversed(sizes.items())), set(sizes)
    )


def test_a_graph_without_cycles_keeps_the_order_of_minimum_fill():
    random = np.random.default_rng(0)
    scopes = [(f"t{i}", f"t{random.integers(i)}") for i in range(1, 200)]
    sizes = {f"t{i}": int(random.integers(2, 5)) for i in range(200)}
    assert best_order(scopes, sizes, sizes) == min_fill(scopes, sizes, sizes)


# network -> the largest table of its best order known here, and of the first greedy order
KNOWN = {"insurance": (7_200, 28_800), "mildew": (1_550_000, 2_820_000),
         "link": (2_100_000, 16_800_000), "munin": (1_010_000, 2_750_000)}


@pytest.mark.parametrize("name", KNOWN)
def test_the_largest_tables_of_large_networks_are_several_times_below_those_of_minimum_fill(
    shared_data, name
):
    network = parse(_text(next((shared_data / "bn" / "networks").glob(f"{name}.bif*"))))
    scopes = [(*network.parents[node], node) for node in network.states]
    sizes = {node: len(labels) for node, labels in network.states.items()}
    start = time.perf_counter()
    order = best_order(scopes, sizes, sizes)
    assert time.perf_counter() - start < 10  # a second on an idle machine
    best, plain = widest(scopes, sizes, order)[1], widest(scopes, sizes,
                                                          min_fill(scopes, sizes, sizes))[1]
    assert best <= KNOWN[name][0] and plain >= 1.5 * best


def test_hundreds_of_names_that_all_meet_are_ordered_once():
    scopes, sizes = graph(1, 400, 1200, (2, 3))
    start = time.perf_counter()
    order = best_order(scopes, sizes, sizes)
    assert time.perf_counter() - start < 10 and sorted(order) == sorted(sizes)
