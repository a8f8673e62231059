"""Programs that NumPy runs: what XLA makes of the same program, to rounding, infinities and what is
not a number among it; and what NumPy is not told of is left to XLA."""

import pickle
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy import special
from jax.scipy.linalg import cho_solve, solve_triangular

from probml.jaxpr.tapes.operation import TooLong
from probml.jaxpr.tapes.recorded import record

KINDS = (np.float64, np.float32)
MOST = 1.0  # seconds


def taped(function, *args):
    return record(jax.make_jaxpr(function)(*args), MOST)


def agree(functions, args, kind, loose=50.0):
    """All of some functions as one tape and as one program of XLA's."""

    def every(*args):
        return {name: function(*args) for name, function in functions.items()}

    tape = taped(every, *args)
    assert tape is not None
    mine, tree = tape.run(jax.tree.leaves(args)), jax.tree.structure(jax.eval_shape(every, *args))
    for (path, want), got in zip(jax.tree_util.tree_leaves_with_path(jax.jit(every)(*args)),
                                 jax.tree.leaves(jax.tree.unflatten(tree, mine)), strict=True):
        want, name = np.asarray(want), jax.tree_util.keystr(path)
        assert (got.dtype, got.shape) == (want.dtype, want.shape), name
        if want.dtype.kind == "f":
            size = np.abs(want[np.isfinite(want)]).max(initial=1.0)
            np.testing.assert_allclose(got, want, rtol=loose * np.finfo(kind).eps,
                                       atol=np.finfo(kind).eps * size * loose, err_msg=name)
        else:
            np.testing.assert_array_equal(got, want, err_msg=name)


ODD = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 3.0, 700.0, -700.0, np.inf, -np.inf, np.nan, 1e-30]
ALONE = {
    name: getattr(lax, name) for name in (
        "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cbrt", "cos", "cosh",
        "exp", "exp2", "expm1", "floor", "is_finite", "log", "log1p", "logistic", "neg", "rsqrt",
        "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "erf", "erfc")
} | {
    "round to even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "round away": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "integer": lambda x: lax.convert_element_type(x, np.int32),
    "byte": lambda x: lax.convert_element_type(x, np.uint8),
    "truth": lambda x: lax.convert_element_type(x, bool),
    "cube": lambda x: lax.integer_pow(x, 3),
    "base two": jnp.log2,
    "inverse square": lambda x: lax.integer_pow(x, -2),
    "barrier": lambda x: lax.optimization_barrier((x, x + 1)),
    "same digits": lambda x: lax.reduce_precision(x, *((11, 52) if x.dtype == np.float64 else (8, 23))),
    "clamped": lambda x: lax.clamp(x.dtype.type(-1), x, x.dtype.type(2)),
}
PAIRS = {name: getattr(lax, name) for name in (
    "add", "atan2", "div", "eq", "ge", "gt", "le", "lt", "max", "min", "mul", "ne", "pow", "rem",
    "sub")}


@pytest.mark.parametrize("kind", KINDS)
def test_entries_by_themselves_are_as_xla_has_them(kind):
    agree(ALONE, (np.array(ODD, kind),), kind, 500.0)
    a, b = np.meshgrid(np.array(ODD, kind), np.array(ODD, kind))
    agree(PAIRS, (a, b), kind, 500.0)
    few = np.array([0.1, 0.3, 0.9, 1.0, 2.5, 7.25], kind)
    agree({"lgamma": lax.lgamma, "digamma": lax.digamma, "inverse": lambda x: special.erfinv(x / 8),
           "upper": lambda x: lax.igammac(x, x), "lower": lambda x: lax.igamma(x, x + 1),
           "beta": lambda x: special.betainc(x, 2.0 + x, x / 8), "bessel": special.i0e,
           "zeta": lambda x: special.zeta(x + 1.5, x), "trigamma": lambda x: special.polygamma(1, x)},
          (few,), kind, 2e3)


def test_whole_numbers_and_truths_are_as_xla_has_them():
    a, b = np.meshgrid(np.array([-7, -2, 0, 3, 9]), np.array([-3, -1, 2, 5]))
    agree({"div": lax.div, "rem": lax.rem, "and": lax.bitwise_and, "or": lax.bitwise_or,
           "xor": lax.bitwise_xor, "not": lambda a, b: ~a, "floor": lambda a, b: a // b,
           "mod": lambda a, b: a % b, "sign": lambda a, b: jnp.sign(a), "float": lambda a, b: a / b,
           "both": lambda a, b: (a > 0) & ~(b > 0), "power": lambda a, b: a**3,
           "choice": lambda a, b: lax.select_n(jnp.clip(a, 0, 2), a, b, a + b)}, (a, b), np.float64)


X = np.random.default_rng(0).normal(size=(3, 4, 5))
AT = np.array([[2, 0], [1, 3], [5, -1], [0, 2]])  # some of them lie outside
MOVES = {
    "broadcast": lambda x: x[:, None] + jnp.ones((3, 2, 4, 5)),
    "scalar": lambda x: jnp.full((2, 3), x[0, 0, 0]),
    "transposed": lambda x: jnp.transpose(x, (2, 0, 1)).reshape(10, 6),
    "slices": lambda x: (x[::2, 1:3], x[..., ::-1], x[:, -1], x[1, 2, 3]),
    "joined": lambda x: (jnp.concatenate([x, 2 * x], 1), jnp.stack([x, x], 2)),
    "split": lambda x: lax.split(x, (1, 3), 1),
    "padded": lambda x: lax.pad(x, x[0, 0, 0], ((1, 2, 0), (0, -1, 1), (-2, 1, 2))),
    "cut": lambda x: lax.pad(x, 0.0 * x[0, 0, 0], ((-1, -1, 0), (-4, 0, 0), (-1, -2, 1))),
    "tiled": lambda x: jnp.tile(x, (2, 1, 3)),
    "rolled": lambda x: jnp.roll(x, 2, 1),
    "counted": lambda x: jnp.arange(5) + lax.broadcasted_iota(np.int32, (3, 5), 0),
    "unit": lambda x: jnp.eye(4, 5) * x + jnp.tril(x, -1),
    "window": lambda x: [lax.dynamic_slice(x, (i, 1, j), (2, 2, 3)) for i, j in AT],
    "put": lambda x: [lax.dynamic_update_slice(x, x[:2, :1], (i, j, 0)) for i, j in AT],
    "rows": lambda x: (x[AT[:, 0]], x[:, AT], x[AT[:, 0] % 3, :, AT[:, 1]], x[:, AT[1], AT[0]]),
    "filled": lambda x: [x.at[AT[:, 0]].get(mode=m, fill_value=f)
                         for m, f in (("fill", None), ("fill", 7.0), ("clip", None))],
    "along": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    "each": lambda x: jax.vmap(lambda row, at: row[at])(x, AT[:3]),
    "each a different": lambda x: jax.vmap(lambda row, at: row.at[at, 1:3].add(1.0))(x, AT[:3, 0]),
    "turned": lambda x: jax.vmap(lambda row, i: lax.dynamic_slice(row, (i, 1), (2, 2)), (1, 0))(
        x, jnp.arange(4)),
    "added": lambda x: (x.at[AT[:, 0]].add(2.0), x.at[:, AT[0], 1:].add(x[:, :2, 1:]),
                        x.at[AT[:, 0] % 3, AT[:, 1] % 4].multiply(3.0), x.at[1, 2].set(0.0)),
    "extremes": lambda x: (x.at[AT[:, 0]].max(0.1), x.at[0].min(-0.1), x.at[0, AT[0]].subtract(1.0),
                           x.at[AT[:, 0]].add(1.0, mode="clip")),
    "slopes": lambda x: jax.grad(lambda x: (x[AT[:, 0]] ** 2).sum() + x[::2, 1].sum())(x),
    "whole": lambda x: jnp.arange(6).at[jnp.array([1, 1, 9])].get(mode="fill"),
}
SUMS = {
    "sums": lambda x: (x.sum(), x.sum((0, 2)), x.mean(1), x.prod(1), x.max(2), x.min((0, 1))),
    "truths": lambda x: ((x > 0).any(1), (x > -3).all(), (x > 0).sum(0)),
    "nothing": lambda x: (x[:, :0].sum(1), x[:, :0].max(1, initial=-jnp.inf)),
    "places": lambda x: (x.argmax(1), x.argmin(2), jnp.argmax(jnp.where(x > 1, jnp.nan, x), 0)),
    "running": lambda x: (jnp.cumsum(x, 1), jnp.cumsum(x[::-1], 0)[::-1], lax.cummax(x, 2),
                          lax.cumsum(x, 1, reverse=True), lax.cummin(x, 0, reverse=True),
                          jnp.cumprod(x, 2), lax.cumlogsumexp(x, 1)),
    "products": lambda x: (x[0] @ x[1].T, jnp.einsum("abc,dbe->ade", x, x),
                           jnp.einsum("abc,abd->bdc", x, x), jnp.einsum("abc,abc->", x, x),
                           jnp.einsum("abc,b->ac", x, x[0, :, 0]), jnp.outer(x[0, 0], x[0, 1])),
    "whole products": lambda x: AT @ AT.T @ jnp.ones((4, 1), int),
    "orders": lambda x: (jnp.sort(x, 1), jnp.argsort(x, 2), lax.sort(
        (jnp.round(x), jnp.where(x > 1, jnp.nan, x)), dimension=1, num_keys=2)),
    "tables": lambda x: (special.logsumexp(x, 1), jax.nn.softmax(x), jnp.var(x, 2), jnp.median(x)),
}


def _matrices(x):
    lower = jnp.tril(x[:, :4, :4], -1) + 2.0 * jnp.eye(4, dtype=x.dtype)
    square, right = lower @ jnp.swapaxes(lower, -1, -2), x[:, :, 3:]
    own = jnp.linalg.cholesky(square)
    solves = [solve_triangular(a, right, lower=side, trans=turned, unit_diagonal=unit)
              for a, side in ((own, True), (jnp.swapaxes(own, -1, -2), False))
              for turned in (0, 1) for unit in (False, True)]
    beside = [lax.linalg.triangular_solve(own, jnp.swapaxes(right, -1, -2), left_side=False,
                                          lower=True, transpose_a=turned) for turned in (True, False)]
    slopes = jax.grad(lambda a: jnp.log(jnp.linalg.cholesky(a)[0, 1, 1]) + cho_solve(
        (jnp.linalg.cholesky(a[1]), True), jnp.ones(4, x.dtype)).sum())(square)
    halves = [x[0].T @ jnp.linalg.pinv(x[0].T), *jnp.linalg.svd(x, compute_uv=False)]
    values, vectors = jnp.linalg.eigh(square)
    eigen = values, (vectors * values[:, None]) @ jnp.swapaxes(vectors, -1, -2), jnp.linalg.eigvalsh(x[:, :4, :4])
    general = (*jnp.linalg.qr(x), jnp.linalg.qr(jnp.swapaxes(x, -1, -2), mode="r"),
               *jnp.linalg.qr(x[0], mode="complete"))
    failed = jnp.linalg.cholesky(square.at[1].multiply(-1.0)), jnp.linalg.eigvalsh(square * jnp.nan)
    return own, solves, beside, slopes, halves, eigen, general, failed


@pytest.mark.parametrize("kind", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_moves_and_sums_are_as_xla_has_them(kind):
    agree(MOVES, (X.astype(kind),), kind)
    agree(SUMS | {"matrices": _matrices}, (X.astype(kind),), kind, 500.0)


def _loops(x, flag):
    def step(state, row):
        new = jnp.tanh(state @ x[0, :, :4] + row[:4])
        return new, (new.sum(), row[0] > 0)

    forward = lax.scan(step, jnp.zeros(4, x.dtype), x[1])
    back = lax.scan(step, jnp.zeros(4, x.dtype), x[1], reverse=True)
    slopes = jax.grad(lambda s: lax.scan(step, s, x[1])[0].sum())(jnp.ones(4, x.dtype))
    none = lax.scan(step, jnp.zeros(4, x.dtype), x[1, :0])
    chosen = lax.cond(flag, lambda x: x + 1, lambda x: 2 * x, x)
    each = jax.vmap(lambda i: lax.switch(i, [jnp.sin, jnp.cos, jnp.exp], x[0, 0, 0]))(jnp.arange(4))
    fixed = lax.fori_loop(0, 3, lambda i, s: s * 1.5 + i, x[0])
    until = lax.while_loop(lambda s: s[1] < x[0, 0, 0] + 5, lambda s: (s[0] * x[0], s[1] + 1),
                           (x[1], x[2, 0, 0]))
    apart = jax.vmap(lambda row: lax.while_loop(lambda s: s.sum() < 9, lambda s: s + 1 + x[0], row))(x)
    own = lax.platform_dependent(x[0], cpu=jnp.cos, default=jnp.sin)
    alone = lax.switch(flag.astype(int) + 5, [jnp.sin, jnp.cos], x[0])
    return forward, back, slopes, none, chosen, each, fixed, until, apart, own, alone


@pytest.mark.parametrize("kind", KINDS)
def test_loops_and_branches_are_as_xla_has_them(kind):
    for flag in (True, False):
        agree({"loops": _loops}, (X.astype(kind), np.array(flag)), kind)


@pytest.mark.parametrize("function", [
    lambda x: jax.random.gamma(jax.random.key(0), jnp.exp(x)),
    lambda x: jax.random.normal(jax.random.key(0, impl="rbg"), x.shape),
    lambda x: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
    lambda x: jax.scipy.linalg.qr(x[0], pivoting=True)[0],
    lambda x: jnp.linalg.solve(x[0, :4, :4], x[0, :4, 0]),
    lambda x: x.astype(jnp.bfloat16).sum(),
    lambda x: jax.debug.print("{}", x.sum()),
], ids=["rejection", "another generator", "callback", "pivoted", "eliminated", "short floats", "prints"])
def test_what_numpy_is_not_told_of_has_no_tape(function):
    assert taped(function, X) is None


def _drawn(key, seed, x):
    one, *others = jax.random.split(key, 3)
    keys = jax.random.split(jax.random.fold_in(one, seed), (2, 3))
    return {
        "bits": [jax.random.bits(others[0], (5,), kind) for kind in ("uint8", "uint16", "uint32", "uint64")],
        "data": jax.random.key_data(keys), "each": jax.vmap(jax.vmap(jax.random.uniform))(keys),
        "made": jax.random.bits(jax.random.key(seed), (3, 2)),
        "folded": jax.random.key_data(jax.vmap(lambda i: jax.random.fold_in(keys[0, 1], i))(jnp.arange(4))),
        "old": jax.random.bits(jax.random.wrap_key_data(jax.random.key_data(others[1])), (3,)),
        "shuffled": jax.random.permutation(others[0], 7),
        "picked": jax.random.categorical(others[1], x[0]), "tossed": jax.random.bernoulli(one, 0.3, (9,)),
    }, {"normal": jax.random.normal(keys[1, 2], (4, 3)), "gumbel": jax.random.gumbel(one, (6,)),
        "walk": lax.scan(lambda s, k: (s + jax.random.normal(k), s), x[0, 0, 0], keys[0])}


def test_random_bits_are_jax_own_and_numbers_those_that_it_makes_of_them():
    args = (jax.random.key(7), np.int64(-3), X)
    tape = taped(_drawn, *args)
    exact, near = jax.jit(_drawn)(*args)
    mine, other = jax.tree.unflatten(jax.tree.structure((exact, near)), tape.run(args))
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(exact), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    for a, b in zip(jax.tree.leaves(other), jax.tree.leaves(near), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_keys_among_the_results_are_given_by_their_words():
    tape = taped(lambda key: (jax.random.split(key, 3), 1.0), jax.random.key(5))
    assert tape.keys == (True, False)
    np.testing.assert_array_equal(tape.run([jax.random.key(5)])[0],
                                  jax.random.key_data(jax.random.split(jax.random.key(5), 3)))


def test_an_argument_that_nothing_looks_at_may_be_of_any_kind():
    tape = taped(lambda key, x: 2 * x, jax.random.key(0), X)
    np.testing.assert_array_equal(tape.run([jax.random.key(0), X])[0], 2 * X)


def test_what_takes_long_has_no_tape():
    def product(x):
        return lax.scan(lambda s, _: (s @ s, None), x, None, length=1000)[0]

    closed = jax.make_jaxpr(product)(np.eye(50))
    found = record(closed, MOST)
    assert found is not None and 0.01 < found.seconds < MOST
    assert record(closed, 0.01) is None


def test_a_loop_that_goes_on_is_left():
    def count(x, end):
        return lax.while_loop(lambda s: s[0, 0, 0] < end, lambda s: s + 1.0, x)

    tape = taped(count, X, 9.0)
    np.testing.assert_array_equal(tape.run([X, 9.0])[0], jax.jit(count)(X, 9.0))
    with pytest.raises(TooLong):
        tape.run([X, 1e9])


def test_equal_steps_are_one_and_what_nothing_asks_for_is_none():
    def function(x):
        jnp.exp(x) @ jnp.ones((5, 5))  # for nothing
        table = jnp.log(jnp.arange(1.0, 6.0)) + jnp.eye(5)  # of constants
        return jnp.sin(x) + jnp.sin(x), x @ table

    tape = taped(function, X)
    assert [step.name for step in tape.steps] == ["sin", "add", "dot_general"]


def test_a_tape_is_plain_data():
    tape = taped(_loops, X, np.array(True))
    first = tape.run([X, np.array(True)])
    again = pickle.loads(pickle.dumps(tape)).run([X, np.array(True)])
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_results_share_no_memory_with_arguments_or_each_other():
    x = X.copy()
    tape = taped(lambda x: (x, x.T, x[0], jnp.zeros(3), x + 1), x)
    kept = [value.copy() for value in tape.run([x])]
    found = tape.run([x])
    x[:] = 0.0
    for value in found:
        value[...] += 1
    for a, b in zip(found, kept, strict=True):
        np.testing.assert_array_equal(a, b + 1)
    np.testing.assert_array_equal(tape.run([X])[3], np.zeros(3))


def test_a_run_holds_no_more_arrays_than_later_steps_use():
    def function(x):
        for _ in range(30):
            x = jnp.sin(x) + 1.0
        return x

    x = np.zeros(100_000)
    tape = taped(function, x)
    tracemalloc.start()
    tape.run([x])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(tape.steps) == 60 and peak < 5 * x.nbytes
