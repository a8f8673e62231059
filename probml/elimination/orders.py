"""Elimination orders: which name to sum out next, so that the tables on the way stay small; knows
names and sizes, never tensors.

The best order is NP-hard to find (Arnborg, Corneil & Proskurowski 1987); greedy ones come close,
and some tens of them with random ties and costs closer still: on munin, link and barley the largest
table is 2 to 8 times smaller than that of the first greedy order.

Sources: Rose 1970 (minimum fill); Kjaerulff 1990 (minimum weight, where states are unequal);
Fishelson & Geiger 2004 (random choices among the cheapest, many times over); Gogate & Dechter 2004.
"""

import heapq
import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from probml.errors import present

TRIES = 50  # random orders at the most
STEPS = 2_000_000  # pairs of neighbours that all tries together may visit, about two seconds
NONE = (math.inf, math.inf)  # no bound on (largest table, entries of all)

# The cost of eliminating a name, from the edges that it adds, the entries of its table and a random
# number in [0, 1): each try takes the next cost. No single one is best: minimum fill wins on link,
# minimum weight on munin, their product on diabetes.
COSTS: tuple[Callable[[int, int, float], tuple[float, ...]], ...] = (
    lambda fill, entries, chance: (fill, chance),
    lambda fill, entries, chance: (entries, chance),
    lambda fill, entries, chance: (fill * entries, chance),
    lambda fill, entries, chance: (fill * (1 + 0.3 * chance), entries),
    lambda fill, entries, chance: (math.log(fill * entries) * (1 + 0.1 * chance) if fill else -1.0,
                                   entries),
)


def best_order(scopes: Iterable[Iterable[str]], sizes: Mapping[str, int],
               eliminate: Collection[str]) -> tuple[str, ...]:
    """An order of the names of `eliminate` whose largest table is small, and whose tables are few
    entries in all.

    `min_fill`, and then random orders of several costs; the smallest largest table wins, then the
    least work, then the first. Where no edge is added (chains, trees, mixtures) nothing is better
    and nothing is tried. The same graph gives the same order.
    Cost: at most `TRIES` greedy orders, within `STEPS`: 1,000 names in about a second.
    """
    adj = _interaction(scopes, eliminate)
    names, wanted = sorted(adj), sorted(set(eliminate))
    visits = [0]
    first = _greedy(adj, sizes, wanted, lambda fill, entries, v: (fill, entries, v), NONE, visits)
    best, value, edges = present(first)  # no order is worse than no bound
    if not edges:
        return best
    number_of = {name: i for i, name in enumerate(names)}  # whole numbers are faster than names
    numbered = {number_of[v]: {number_of[u] for u in nbrs} for v, nbrs in adj.items()}
    local, remaining = {number_of[v]: sizes[v] for v in names}, [number_of[v] for v in wanted]
    rng = random.Random(0)
    for i in range(min(TRIES, STEPS // max(visits[0], 1))):
        cost = COSTS[i % len(COSTS)]
        result = _greedy(numbered, local, remaining,
                         lambda fill, entries, v, cost=cost: cost(fill, entries, rng.random()),
                         value, visits)
        if result is not None:
            best, value = tuple(names[v] for v in result[0]), result[1]
        if visits[0] > STEPS:
            break
    return best


def min_fill(scopes: Iterable[Iterable[str]], sizes: Mapping[str, int],
             eliminate: Collection[str]) -> tuple[str, ...]:
    """Greedy order of the names of `eliminate`: next goes the one whose removal adds the fewest
    edges to the interaction graph.

    Ties go to the smaller clique (in entries), then to the name; names not in `eliminate` stay in
    the graph.
    Cost: O(edges x degree), 1,000 names in well under a second: fill counts are updated, never
        recounted.
    """
    adj = _interaction(scopes, eliminate)
    result = _greedy(adj, sizes, sorted(set(eliminate)),
                     lambda fill, entries, v: (fill, entries, v), NONE, [0])
    return present(result)[0]  # no order is worse than no bound


def _greedy(adj: Mapping, sizes: Mapping, eliminate: Sequence, cost: Callable, bound: tuple,
            visits: list) -> tuple | None:
    """(order, (largest table, entries of all), edges added) by the cheapest name each time; None
    once it cannot beat `bound`.

    `cost(fill, entries, name)` is asked anew whenever a name's fill or entries change. `spent[0]`
    counts pairs of neighbours.
    """
    adj = {v: set(nbrs) for v, nbrs in adj.items()}
    # near[v] - near[u] contains u
    fill = {v: sum(len(adj[v] - adj[u]) - 1 for u in adj[v]) // 2 for v in adj}
    entries = {v: math.prod(sizes[u] for u in (v, *adj[v])) for v in adj}
    wanted = set(eliminate)
    heap = [(cost(fill[v], entries[v], v), v, fill[v], entries[v]) for v in eliminate]
    heapq.heapify(heap)
    order, largest, total, edges = [], 0, 0, 0
    while heap:
        _, v, count, size = heapq.heappop(heap)
        if v not in wanted or (count, size) != (fill[v], entries[v]):
            continue  # an entry that a later update replaced
        largest, total, edges = max(largest, size), total + size, edges + count
        if (largest, total) >= bound:
            return None
        order.append(v)
        wanted.remove(v)
        nbrs = adj.pop(v)
        visits[0] += 1 + len(nbrs) ** 2
        touched = set(nbrs)
        for u in nbrs:
            # pairs (v, w) that were missing; near[u] - around contains v
            fill[u] -= len(adj[u] - nbrs) - 1
            adj[u].remove(v)
            entries[u] //= sizes[v]
        for a, b in ([pair for pair in combinations(nbrs, 2) if pair[1] not in adj[pair[0]]]
                     if count else []):
            shared = adj[a] & adj[b]
            touched |= shared
            for w in shared:
                fill[w] -= 1
            for u, new in ((a, b), (b, a)):
                fill[u] += len(adj[u]) - len(shared)
                adj[u].add(new)
                entries[u] *= sizes[new]
        # sorted: a random number goes to the same name in every run
        for u in sorted(touched & wanted):
            heapq.heappush(heap, (cost(fill[u], entries[u], u), u, fill[u], entries[u]))
    return tuple(order), (largest, total), edges


def widest(scopes: Iterable[Iterable[str]], sizes: Mapping[str, int],
           order: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """The largest table that eliminating in this order creates or meets, and its number of entries
    per row."""
    cliques = [*map(frozenset, scopes), *_cliques(scopes, order)]
    size, clique = max(((math.prod(sizes[u] for u in names), sorted(names)) for names in cliques),
                       default=(1, []))
    return tuple(clique), size


def work(scopes: Iterable[Iterable[str]], sizes: Mapping[str, int], order: Sequence[str]) -> int:
    """The entries of all tables that eliminating in this order meets, per row."""
    return sum(math.prod(sizes[u] for u in clique) for clique in _cliques(scopes, order))


class Bucket(NamedTuple):
    """The tables that are multiplied where a name is eliminated (Dechter 1999).

    Attributes:
        tables: numbers of factors, and of messages, which are numbered after the factors in the
            order of their buckets.
        axes: of each table among (*others, name): so equal steps are equal in any names.
        message_names: the names of the bucket's message.
    """

    name: str
    tables: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    message_names: tuple[str, ...]


def buckets(scopes: Sequence[tuple], order: Sequence) -> tuple[list[Bucket], list[tuple[int,
                                                                                        tuple]]]:
    """The buckets of an order, each factor and message in that of the first of its names; and
    (number, names) of the tables that are left."""
    rank = {name: i for i, name in enumerate(order)}
    piles: list[list] = [[] for _ in range(len(order) + 1)]  # the last one holds what is left

    def file(number: int, names: tuple) -> None:
        piles[min((rank[u] for u in names if u in rank), default=-1)].append((number, names))

    for i, names in enumerate(scopes):
        file(i, names)
    result = []
    for i, (name, pile) in enumerate(zip(order, piles, strict=False)):
        others = tuple(dict.fromkeys(u for _, names in pile for u in names if u != name))
        axis_of = {u: k for k, u in enumerate((*others, name))}
        result.append(Bucket(name, tuple(number for number, _ in pile),
                             tuple(tuple(axis_of[u] for u in names) for _, names in pile), others))
        file(len(scopes) + i, others)
    return result, piles[-1]


def _cliques(scopes: Iterable[Iterable[str]], order: Sequence[str]) -> list[frozenset[str]]:
    """The names of the table of each bucket."""
    return [frozenset((bucket.name, *bucket.message_names))
            for bucket in buckets([tuple(scope) for scope in scopes], order)[0]]


def _interaction(scopes: Iterable[Iterable[str]], isolated: Iterable[str]) -> dict[str, set[str]]:
    """Neighbours of each name: two names are neighbours if some factor holds both."""
    adj: dict[str, set[str]] = {}
    for scope in [*map(tuple, scopes), *((name,) for name in isolated)]:
        for v in scope:
            adj.setdefault(v, set()).update(scope)
    for v, nbrs in adj.items():
        nbrs.remove(v)
    return adj
