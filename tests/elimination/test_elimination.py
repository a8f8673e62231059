"""Variable elimination against brute-force enumeration, and its numerics at the edges of the
float."""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probml.elimination import elimination, levelwise, rows_last
from probml.elimination.factor import Factor
from probml.elimination.orders import min_fill, widest

sys.path.insert(0, str(Path(__file__).parents[1]))
import oracles

jax.config.update("jax_enable_x64", True)

SEEDS = [0, 1, 2, 3]


# of sums with rows last, beside those of one random graph
ABREAST = ("impossible_row", "infinite_log", "however_far_apart", "near_minus_1000", "edge_of_the")


@pytest.fixture(params=["unrolled", "levelwise", "wide", "abreast"], autouse=True)
def way(request, monkeypatch):
    """Every claim holds for both ways of elimination, where each bucket is worked on by itself, and
    of sums with rows last."""
    chosen = request.node.callspec.params
    if request.param == "abreast":
        if chosen.get("seed") != 0 and not any(word in request.node.name for word in ABREAST):
            pytest.skip("one random graph, and the edges of the float, are enough for rows last")
        monkeypatch.setattr(rows_last, "fits", lambda factors, order: len(order) > 0)
    if request.param in ("levelwise", "wide") and chosen.get("seed", 0) > 1:
        pytest.skip("two random graphs are enough for the second way, which is always in log space")
    if request.param == "wide" and chosen.get("seed") != 0:
        pytest.skip("one random graph is enough for the wide buckets of the second way")
    monkeypatch.setattr(elimination, "_is_levelwise",
                        lambda factors, order: factors and request.param in ("levelwise", "wide"))
    if request.param == "wide":
        monkeypatch.setattr(levelwise, "MIN_TENSOR_ENTRIES", 1)
        levelwise._schedule.cache_clear()
        request.addfinalizer(levelwise._schedule.cache_clear)
    return request.param


def compiled(verb):
    """A verb as engines call it: in one program, not operation by operation."""

    def call(factors, *args, **options):
        scopes, told = [f.names for f in factors], []

        def run(logs):
            tables = [Factor(log, scope) for log, scope in zip(logs, scopes, strict=True)]
            found, tree = jax.tree.flatten(verb(tables, *args, **options),
                                           is_leaf=lambda leaf: isinstance(leaf, Factor))
            told[:] = tree, [getattr(leaf, "names", None) for leaf in found]
            return [leaf.log if isinstance(leaf, Factor) else leaf for leaf in found]

        found = jax.jit(run)([f.log for f in factors])
        tree, names = told
        return jax.tree.unflatten(tree, [leaf if scope is None else Factor(leaf, scope)
                                         for leaf, scope in zip(found, names, strict=True)])

    return call


draw, evidence, maximise, maximise_value, remainder, sum_out = map(compiled, (
    elimination.draw, elimination.evidence, elimination.maximise, elimination.maximise_value,
    elimination.remainder, elimination.sum_out,
))


def random_graph(seed, impossible=0.15):
    """3-7 variables of 1-4 states, random scopes, some entries -inf, rows axes 1 or 3."""
    rng = np.random.default_rng(seed)
    names = [f"v{i}" for i in range(rng.integers(3, 8))]
    sizes = {name: int(rng.integers(1, 5)) for name in names}
    scopes = [list(rng.choice(names, rng.integers(1, 4), replace=False))
              for _ in range(len(names) + 2)]
    scopes += [[name] for name in names if not any(name in scope for scope in scopes)]
    factors = []
    for scope in scopes:
        log = rng.normal(0, 2, (int(rng.choice([1, 3])), *(sizes[name] for name in scope)))
        factors.append((np.where(rng.random(log.shape) < impossible, -np.inf, log),
                        tuple(map(str, scope))))
    order = min_fill([scope for _, scope in factors], sizes, names)
    return ([Factor(jnp.asarray(log), scope) for log, scope in factors], sizes, order,
            oracles.enumerate_factors(factors, sizes))


def marginals(factors, order, **options):
    """The gradient of the summed evidence with respect to every factor's logs."""
    scopes = [f.names for f in factors]

    def total(logs):
        return jnp.sum(elimination.evidence(
            [Factor(log, scope) for log, scope in zip(logs, scopes, strict=True)], order, **options
        ))

    return jax.jit(jax.grad(total))([f.log for f in factors])


def chain(length, rng, k=2, n=5, spread=1.0):
    """A pairwise chain of shared tables with one table per row and variable."""
    names = [f"z{i:04d}" for i in range(length)]
    table = np.log(rng.dirichlet(np.ones(k), (1, k)))
    factors = [Factor(jnp.asarray(table), pair) for pair in zip(names, names[1:], strict=False)]
    factors += [Factor(jnp.asarray(rng.normal(0, spread, (n, k))), (name,)) for name in names]
    return factors, names, table[0]


def forward(factors, table, length):
    """Log-space forward recursion of the chain above."""
    alpha = np.asarray(factors[length - 1].log)
    for i in range(1, length):
        alpha = oracles.log_sum(alpha[:, :, None] + table,
                                1) + np.asarray(factors[length - 1 + i].log)
    return oracles.log_sum(alpha, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_evidence_equals_enumeration(seed):
    factors, _, order, joint = random_graph(seed)
    got = evidence(factors, order)
    assert got.shape == joint.shape[:1]
    np.testing.assert_allclose(got, oracles.evidence(joint), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_of_evidence_is_the_posterior_marginal(seed):
    factors, sizes, order, joint = random_graph(seed)
    for f, got in zip(factors, marginals(factors, order), strict=True):
        expected = oracles.posterior(joint, sizes, f.names)
        if f.log.shape[0] == 1:
            expected = expected.sum(0, keepdims=True)
        np.testing.assert_allclose(got, expected, atol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_order_gives_the_same_evidence(seed):
    factors, sizes, order, joint = random_graph(seed)
    shuffled = tuple(str(u) for u in np.random.default_rng(seed).permutation(order))
    np.testing.assert_allclose(evidence(factors, shuffled), oracles.evidence(joint), rtol=1e-10,
                               atol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_maximise_equals_enumeration(seed):
    factors, sizes, order, joint = random_graph(seed)
    value, states = maximise(factors, order)
    expected, argmax = oracles.most_probable(joint, sizes)
    np.testing.assert_allclose(value, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(maximise_value(factors, order), expected, rtol=1e-10, atol=1e-10)
    for name in sizes:
        assert states[name].dtype == jnp.int32
        np.testing.assert_array_equal(states[name],
                                      np.where(np.isfinite(expected), argmax[name], 0))


@pytest.mark.parametrize("seed", SEEDS)
def test_sum_out_equals_the_enumerated_marginal_of_kept_names(seed):
    factors, sizes, order, joint = random_graph(seed)
    kept = set(order[seed % 2 :: 2])
    gone = [name for name in order if name not in kept]
    left = sum_out(factors, gone)
    assert set(left.names) == kept
    got = np.broadcast_to(left.log, (joint.shape[0], *left.log.shape[1:]))
    np.testing.assert_allclose(got, oracles.log_marginal(joint, sizes, left.names), rtol=1e-10,
                               atol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_maximise_after_sum_out_is_the_most_probable_state_of_the_marginal(seed):
    factors, sizes, order, joint = random_graph(seed)
    first, rest = order[::2], order[1::2]
    marginal = oracles.log_marginal(joint, sizes, rest)
    expected, argmax = oracles.most_probable(marginal, {name: sizes[name] for name in rest})
    for left in ([sum_out(factors, first)], remainder(factors, first)):
        value, states = maximise(left, rest)
        np.testing.assert_allclose(value, expected, rtol=1e-10, atol=1e-10)
        for name in rest:
            np.testing.assert_array_equal(np.broadcast_to(states[name], expected.shape),
                                          np.where(np.isfinite(expected), argmax[name], 0))


def test_maximise_gives_ties_to_the_lowest_index_and_one_gradient():
    factors = [Factor(jnp.zeros((2, 3)), ("a",)), Factor(jnp.zeros((1, 3, 2)), ("a", "b"))]
    value, states = maximise(factors, ("a", "b"))
    np.testing.assert_array_equal(value, [0, 0])
    np.testing.assert_array_equal(states["a"], [0, 0])
    np.testing.assert_array_equal(states["b"], [0, 0])
    slope = jax.grad(
        lambda log: jnp.sum(maximise_value([Factor(log, ("a",)), factors[1]], ("a", "b")))
    )(factors[0].log)
    np.testing.assert_array_equal(slope, [[1, 0, 0], [1, 0, 0]])


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_draws_have_the_joint_posterior_frequencies(seed):
    factors, sizes, order, joint = random_graph(seed, impossible=0.05)
    count = 20_000
    sample = jax.jit(jax.vmap(
        lambda key: elimination.draw(factors, order, key)[1]
    ))
    states = sample(jax.random.split(jax.random.key(seed), count))
    for row, log in enumerate(joint):
        flat = np.ravel_multi_index([np.asarray(states[name])[:, row] for name in sizes],
                                    joint.shape[1:])
        seen = np.bincount(flat, minlength=log.size)
        expected = count * oracles.posterior(log[None], sizes, list(sizes)).ravel()
        if not expected.any():
            assert seen[0] == count  # an impossible row: every state is 0
            continue
        assert seen[expected == 0].sum() == 0
        rare = expected < 5
        seen, expected = np.append(seen[~rare], seen[rare].sum()), np.append(expected[~rare],
                                                                             expected[rare].sum())
        seen, expected = seen[expected > 0], expected[expected > 0]
        freedom = len(seen) - 1
        # 5 standard deviations
        assert ((seen - expected) ** 2 / expected).sum() < freedom + 5 * np.sqrt(2 * freedom + 1)


def test_draws_of_shared_tables_keep_one_row_and_joined_rows_are_independent():
    shared = Factor(jnp.log(jnp.array([[0.5, 0.5]])), ("a",))
    assert draw([shared], ("a",), jax.random.key(0))[1]["a"].shape == (1,)
    many = draw([shared, Factor(jnp.zeros((4000, 2)), ("b",))], ("a", "b"), jax.random.key(0))[1]
    assert abs(float(many["a"].mean()) - 0.5) < 0.05 and abs(
        float((many["a"] == many["b"]).mean()) - 0.5
    ) < 0.05


def test_an_impossible_row_has_no_gradient_and_harms_no_other():
    prior = jnp.log(jnp.array([[0.25, 0.75]]))
    table = jnp.log(jnp.array([[[0.5, 0.5], [0.0, 1.0]]]))
    seen = jnp.array([[0.0, -jnp.inf], [-jnp.inf, -jnp.inf], [-3.0, -1.0]])
    apart = jnp.zeros((3, 2))
    factors = [Factor(prior, ("a",)), Factor(table, ("a", "b")), Factor(seen, ("b",)),
               Factor(apart, ("c",))]
    order = ("a", "b", "c")
    got = evidence(factors, order)
    assert got[1] == -jnp.inf
    np.testing.assert_allclose(got[0], np.log(0.125 * 2))
    slopes = marginals(factors, order)
    assert all(np.isfinite(s).all() for s in slopes)
    np.testing.assert_allclose(slopes[2].sum(1), [1, 0, 1])
    np.testing.assert_allclose(slopes[3].sum(1), [1, 0, 1])
    np.testing.assert_allclose(slopes[0].sum(), 2)
    value, states = maximise(factors, order)
    assert value[1] == -jnp.inf and all(state[1] == 0 for state in states.values())
    slope = jax.grad(
        lambda log: jnp.sum(maximise_value([*factors[:2], Factor(log, ("b",)), factors[3]], order))
    )(seen)
    np.testing.assert_array_equal(slope[1], [0, 0])
    assert all(state[1] == 0 for state in draw(factors, order, jax.random.key(0))[1].values())


def test_an_infinite_log_takes_the_whole_posterior_and_never_gives_nan():
    a = jnp.array([[jnp.inf, 0.0], [jnp.inf, 0.0], [0.0, 0.0]])
    b = jnp.array([[[0.0, 0.0], [0.0, 1.0]]])
    c = jnp.array([[0.0, 0.0], [-jnp.inf, -jnp.inf], [0.0, -jnp.inf]])
    factors = [Factor(a, ("a",)), Factor(b, ("a", "b")), Factor(c, ("b",))]
    np.testing.assert_allclose(evidence(factors, ("a", "b")),
                               [np.inf, -np.inf, np.log(2)])
    slopes = marginals(factors, ("a", "b"))
    np.testing.assert_allclose(slopes[0], [[1, 0], [0, 0], [0.5, 0.5]], atol=1e-12)
    np.testing.assert_allclose(slopes[2], [[0.5, 0.5], [0, 0], [1, 0]], atol=1e-12)
    value, states = maximise(factors, ("a", "b"))
    np.testing.assert_array_equal(value, [np.inf, -np.inf, 0])
    slope = jax.grad(
        lambda log: jnp.sum(maximise_value([Factor(log, ("a",)), *factors[1:]], ("a", "b")))
    )(a)
    np.testing.assert_array_equal(slope, [[1, 0], [0, 0], [1, 0]])
    shared = [factors[0], Factor(b.at[0, 1, 1].set(jnp.inf), ("a", "b")), factors[2]]
    assert not np.isnan(evidence(shared, ("a", "b"))).any()
    assert all(np.isfinite(slope).all()
               for slope in marginals(shared, ("a", "b")))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_mixture_is_exact_however_far_apart_weights_and_likelihoods_lie(dtype):
    weights = jnp.array([[-2000.0, 0.0]], dtype)
    likelihood = jnp.array([[-1000.0, -4000.0]], dtype)
    factors = [Factor(weights, ("z",)), Factor(likelihood, ("z",))]
    np.testing.assert_allclose(evidence(factors, ("z",)), [-3000.0])
    np.testing.assert_allclose(marginals(factors, ("z",))[0], [[1.0, 0.0]])


def test_two_variables_near_minus_1000_do_not_underflow():
    rng = np.random.default_rng(0)
    factors = [
        (rng.normal(-1000, 30, (4, 3)), ("a",)),
        (rng.normal(-1000, 30, (4, 3)), ("b",)),
        (rng.normal(-1000, 5, (1, 3, 3)), ("a", "b")),
    ]
    sizes = {"a": 3, "b": 3}
    joint = oracles.enumerate_factors(factors, sizes)
    tables = [Factor(jnp.asarray(log), names) for log, names in factors]
    np.testing.assert_allclose(evidence(tables, ("a", "b")), oracles.evidence(joint), rtol=1e-12)
    for table, got in zip(tables[:2], marginals(tables, ("a", "b"))[:2], strict=True):
        np.testing.assert_allclose(got, oracles.posterior(joint, sizes, table.names), atol=1e-10)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_gradients_stay_finite_at_the_edge_of_the_range(dtype):
    edge = -np.log(float(jnp.finfo(dtype).tiny)) * 0.45
    swap = jnp.array([[[0.0, -edge], [-edge, 0.0]]], dtype)
    names = [f"v{i}" for i in range(6)]
    factors = [Factor(swap, pair) for pair in zip(names, names[1:], strict=False)]
    factors += [Factor(jnp.array([[0.0, -3 * edge], [-3 * edge, 0.0]], dtype)[i % 2][None], (name,))
                for i, name in enumerate(names)]
    assert np.isfinite(evidence(factors, names)).all()
    for slope in marginals(factors, names):
        np.testing.assert_allclose(slope.sum(), 1, rtol=1e-3)


def test_a_chain_of_500_equals_the_forward_recursion(way):
    if way != "unrolled":
        pytest.skip("a chain has a level for each name")
    factors, names, table = chain(500, np.random.default_rng(1), k=3, spread=20.0)
    expected = forward(factors, table, 500)
    np.testing.assert_allclose(evidence(factors, names), expected, rtol=1e-10)


def test_a_hub_with_300_leaves_does_not_underflow():
    rng = np.random.default_rng(2)
    tables = np.log(rng.dirichlet(np.ones(2) * 0.1, (300, 1, 2)))
    names = [f"x{i}" for i in range(300)]
    masks = np.where(rng.random((300, 4, 1)) < 0.5, [0.0, -np.inf], [-np.inf, 0.0])
    factors = [Factor(jnp.asarray(table), ("z", name))
               for table, name in zip(tables, names, strict=True)]
    factors += [Factor(jnp.asarray(mask), (name,)) for mask, name in zip(masks, names, strict=True)]
    order = min_fill([f.names for f in factors], dict.fromkeys(["z", *names], 2), ["z", *names])
    with np.errstate(divide="ignore"):
        by_state = sum(np.log(np.exp(mask) @ np.exp(table[0]).T)
                       for table, mask in zip(tables, masks, strict=True))
    np.testing.assert_allclose(evidence(factors, order), oracles.log_sum(by_state, 1), rtol=1e-10)


@pytest.mark.parametrize(
    "seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[1:3])]
)
def test_float32_agrees_with_float64(seed):
    factors, _, order, _ = random_graph(seed)
    single = [Factor(f.log.astype(jnp.float32), f.names) for f in factors]
    got = evidence(single, order)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, evidence(factors, order), rtol=1e-3, atol=1e-3)
    for low, high in zip(marginals(single, order), marginals(factors, order), strict=True):
        np.testing.assert_allclose(low, high, atol=1e-3)


@pytest.mark.parametrize("seed", [0, 3])
def test_hessian_of_evidence_equals_finite_differences(seed):
    factors, _, order, _ = random_graph(seed, impossible=0.0)
    slope = jax.jit(jax.grad(
        lambda log: jnp.sum(elimination.evidence([Factor(log, factors[0].names), *factors[1:]],
                                                 order))
    ))
    log = factors[0].log
    direction = jnp.asarray(np.random.default_rng(seed).normal(size=log.shape))
    got = jax.jvp(slope, (log,), (direction,))[1]
    expected = (slope(log + 1e-5 * direction) - slope(log - 1e-5 * direction)) / 2e-5
    np.testing.assert_allclose(got, expected, atol=1e-8)


def test_vmap_equals_a_loop():
    factors, _, order, _ = random_graph(5)
    shifts = jnp.array([0.0, 1.5, -2.0])

    def shifted(shift):
        tables = [Factor(f.log * (1 + shift / 10), f.names) for f in factors]
        return elimination.evidence(tables, order), elimination.maximise(tables, order)[1]

    shifted = jax.jit(shifted)
    together, states = jax.vmap(shifted)(shifts)
    for i, shift in enumerate(shifts):
        np.testing.assert_allclose(together[i], shifted(shift)[0], rtol=1e-12)
        assert all((states[name][i] == state).all() for name, state in shifted(shift)[1].items())


def test_shared_tables_stay_one_row():
    factors = [Factor(jnp.zeros((1, 2)), ("a",)), Factor(jnp.zeros((1, 2, 3)), ("a", "b")),
               Factor(jnp.zeros((4, 2)), ("c",))]
    assert sum_out(factors[:2], ("a",)).log.shape == (1, 3)
    assert all(f.log.shape[0] == 1 for f in remainder(factors, ("a",)) if "b" in f.names)
    assert evidence(factors[:2], ("a", "b")).shape == (1,)
    assert evidence(factors, ("a", "b", "c")).shape == (4,)
    np.testing.assert_array_equal(evidence([], ()), [0.0])


def test_min_fill_on_a_tree_has_width_two():
    rng = np.random.default_rng(0)
    names = [f"t{i}" for i in range(1000)]
    scopes = [(names[i], names[rng.integers(i)]) for i in range(1, 1000)]
    sizes = {name: int(rng.integers(2, 5)) for name in names}
    start = time.process_time()
    order = min_fill(scopes, sizes, names)
    clique, entries = widest(scopes, sizes, order)
    assert time.process_time() - start < 2
    assert sorted(order) == sorted(names) and len(clique) == 2 and entries <= 16
    assert order == min_fill(reversed(scopes), sizes, set(names))


def test_min_fill_counts_equal_recounting_at_every_step():
    rng = np.random.default_rng(3)
    names = [f"g{i}" for i in range(20)]
    sizes = {name: int(rng.integers(2, 5)) for name in names}
    scopes = [tuple(rng.choice(names, 3, replace=False)) for _ in range(16)]
    near = {v: {u for scope in scopes if v in scope for u in scope} - {v} for v in names}
    expected, remaining = [], set(names[:15])
    while remaining:
        keys = {}
        for v in remaining:
            missing = sum(b not in near[a] for a in near[v] for b in near[v] if a < b)
            keys[v] = (missing, sizes[v] * int(np.prod([sizes[u] for u in near[v]])), v)
        v = min(remaining, key=keys.get)
        expected.append(v)
        remaining.remove(v)
        around = near.pop(v)
        for u in around:
            near[u] = (near[u] | around) - {u, v}
    assert min_fill(scopes, sizes, names[:15]) == tuple(expected)


def test_widest_names_the_clique_that_a_bad_order_creates():
    scopes = [("hub", f"leaf{i}") for i in range(5)]
    sizes = {"hub": 3} | {f"leaf{i}": 2 for i in range(5)}
    assert widest(scopes, sizes, ["hub"]) == (("hub", "leaf0", "leaf1", "leaf2", "leaf3", "leaf4"),
                                              96)
    assert widest(scopes, sizes, min_fill(scopes, sizes, sizes))[1] == 6


def test_a_chain_of_1000_traces_in_seconds(way):
    if way != "unrolled":
        pytest.skip("a chain has a level for each name")
    factors, names, table = chain(1000, np.random.default_rng(0))
    scopes = [f.names for f in factors]

    def total(logs):
        return jnp.sum(
            elimination.evidence([Factor(log, scope)
                                  for log, scope in zip(logs, scopes, strict=True)], order)
        )

    start = time.process_time()
    order = min_fill(scopes, dict.fromkeys(names, 2), names)
    jax.jit(jax.grad(total)).trace([f.log for f in factors])
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("factors", "order", "message"),
    [
        ([((1, 2), ("a",)), ((1, 3), ("a",))], ("a",), "has 3 states of 'a', but another table has 2"),
        ([((2, 2), ("a",)), ((3, 2), ("a",))], ("a",), "has 3 rows, but another table has"),
        ([((1, 2, 2), ("a", "a"))], ("a",), "distinct"),
        ([((2,), ("a",))], ("a",), "one axis for the rows"),
        ([((1, 2), ("a",))], ("a", "b"), "b"),
        ([((1, 2), ("a",))], ("a", "a"), "once"),
        ([((1, 2, 2), ("a", "b"))], ("a",), "each once, got"),
    ],
)
def test_what_does_not_fit_is_refused(factors, order, message):
    factors = [Factor(jnp.zeros(shape), names) for shape, names in factors]
    for verb in (evidence, maximise, maximise_value):
        with pytest.raises(ValueError, match=message):
            verb(factors, order)
