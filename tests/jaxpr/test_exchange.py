"""Do rows look at each other: the verdict on each of a hundred functions against brute force, and
models that it lets through."""

import functools
import operator

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import lax, vmap
from numpyro import sample
from numpyro.infer.util import log_density

import probml
from probml.jaxpr import exchangeability, primitives
from probml.jaxpr.program import equations

# rows, a row's own axes, entries of a shared table; no function makes another multiple of 11
N, T, D, K = 11, 4, 3, 5
CODES = np.arange(N) * 2 % D
KERNEL = np.array([0.2, 0.5, 0.3])


def inputs():
    rng = np.random.default_rng(3)
    x = rng.uniform(0.2, 2.0, (N, T))
    a = rng.normal(size=(N, D, D)) * 0.2 + 2 * np.eye(D)
    z, i = rng.integers(0, D, N), rng.integers(0, T - 1, N)
    return {"x": x, "a": a, "y": rng.uniform(0.1, 1.0, N), "z": z, "i": i,
            "w": rng.uniform(0.3, 0.9, T), "table": rng.normal(size=(K, D))}


def garch(w, r):
    def step(variance, r):
        after = w[0] + w[1] * variance + w[2] * r**2
        return after, variance

    return lax.scan(step, jnp.ones(()), r)[1]


def newton(y):
    """The square root of each row's y: as many steps as it takes."""
    return lax.while_loop(lambda c: abs(c[0] ** 2 - y) > 1e-3,
                          lambda c: ((c[0] + y / c[0]) / 2, c[1] + 1), (jnp.ones(()), 0))[0]


def together(y):
    """The same, each row until the last is done."""
    return lax.while_loop(lambda v: jnp.any(jnp.abs(v * v - y) > 0.5),
                          lambda v: (7 * v + y / v) / 8, y * 0 + 9)


def along_time(w, x):
    """GARCH on the array as a whole: the carry has the axis of rows, a step takes a column."""

    def step(variance, column):
        return w[0] + w[1] * variance + w[2] * column**2, variance

    return lax.scan(step, jnp.ones(x.shape[0]), x.T)[1].T


def symmetric(a):
    return a @ jnp.swapaxes(a, -1, -2)


def flat(x):
    return jnp.exp(x.reshape(-1)).reshape(x.shape)


@jax.custom_jvp
def smooth(x):
    return jnp.log1p(jnp.exp(x))


smooth.defjvp(lambda p, t: (smooth(*p), t[0] * jax.nn.sigmoid(p[0])))

FUNCTIONS = {
    # elementwise, moves, reductions
    "arithmetic": lambda x, y, w: jnp.exp(x) * w + y[:, None] ** 2,
    "special_functions": lambda x: jsp.special.gammaln(x) + jsp.special.digamma(x)
    + jsp.special.betainc(2.0, x, 0.3) + jsp.special.erf(x),
    "logical": lambda x, z: jnp.where((x > 0.5) & (z[:, None] != 1), x, -x),
    "clip": lambda x: jnp.clip(x, 0.3, 0.9),
    "one_hot": lambda z: jax.nn.one_hot(z, D),
    "custom_jvp": lambda x: smooth(x),
    "checkpoint": lambda x: jax.checkpoint(jnp.sin)(x),
    "sum_within": lambda x: x.sum(-1),
    "sum_over_rows": lambda x: x - x.sum(0),
    "mean_over_rows": lambda x: x - x.mean(0),
    "standardise_within": lambda x: (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True),
    "standardise_over_rows": lambda x: (x - x.mean(0)) / x.std(0),
    "max_over_rows": lambda y: y / y.max(),
    "softmax_within": lambda x: jax.nn.softmax(x, -1),
    "softmax_over_rows": lambda x: jax.nn.softmax(x, 0),
    "logsumexp_within": lambda x: jsp.special.logsumexp(x, axis=1),
    "argmax_within": lambda x: jnp.argmax(x + jnp.arange(T), -1),
    "argmax_over_rows": lambda x: x + jnp.argmax(x[:, 0]),
    "transposed_and_back": lambda x: (x.T * 2).T[:, ::-1],
    "reversed_rows": lambda x: x + x[::-1],
    "flattened_and_back": lambda x: flat(x),
    "flattened_with_a_plate": lambda x, y: (
        jnp.stack([x, 2 * x], 1).reshape(x.shape[0], -1) + y[:, None]
    ).reshape(-1, 2, T),
    "reshaped_across_rows": lambda x: jnp.exp(x).reshape(T, -1).T,
    "sum_after_flattening": lambda x: x / jnp.sum(x.reshape(-1)),
    "tiled_within": lambda x: jnp.tile(x, (1, 2)),
    "tiled_shared": lambda x, w: x * jnp.tile(w, (x.shape[0], 1)),
    "repeat_within": lambda x: jnp.repeat(x, 2, axis=1),
    "stacked_columns": lambda x: jnp.stack([x[:, 0], x[:, 1]], -1),
    "concatenated_within": lambda x, y: jnp.concatenate([x, y[:, None], jnp.zeros((x.shape[0], 1))],
                                                        1),
    "padded_within": lambda x: jnp.pad(x, ((0, 0), (1, 0))),
    "split_within": lambda x: jnp.split(x, 2, axis=1)[1],
    "unstacked_within": lambda x: jnp.unstack(x, axis=1)[2],
    "shifted_within": lambda x: x.at[:, 1:].set(x[:, :-1]),
    "rolled_within": lambda x: jnp.roll(x, 1, axis=1),
    "rolled_over_rows": lambda x: jnp.roll(x, 1, axis=0),
    "lagged_over_rows": lambda y: jnp.concatenate([y[:1] * 0, y[:-1]]),
    "first_row_as_reference": lambda y: y - y[0],
    "diff_within": lambda x: jnp.diff(x, axis=1),
    "diff_over_rows": lambda y: jnp.diff(y, append=0.0),
    "all_pairs_of_rows": lambda y: jnp.abs(y[:, None] - y[None, :]).sum(1),
    "all_pairs_within": lambda x: jnp.abs(x[:, :, None] - x[:, None, :]).sum((1, 2)),
    "counts_rows": lambda y: y / jnp.ones_like(y).sum(),
    # indices
    "shared_table_by_code": lambda table, z: table[z],
    "table_by_code_minus_one": lambda table, z: table[z - 1] + table[jnp.clip(z, 0, 1)],
    "take": lambda table, z: jnp.take(table, z, axis=0),
    "own_entry": lambda x, i: jnp.take_along_axis(x, i[:, None], axis=1)[:, 0],
    "own_entry_by_row_number": lambda x, i: x[jnp.arange(x.shape[0]), i],
    "own_row_by_number": lambda x: vmap(lambda i: x[i].sum())(jnp.arange(x.shape[0])),
    "rows_at_the_codes": lambda x, z: x[z],
    "next_row_by_number": lambda y: y[(jnp.arange(y.shape[0]) + 1) % y.shape[0]],
    "fixed_permutation_within": lambda x: x[:, np.array([2, 0, 1, 3])],
    "own_slice": lambda x, i: vmap(lambda r, i: lax.dynamic_slice(r, (i,), (2,)))(x, i),
    "shared_slice": lambda x, w: lax.dynamic_slice_in_dim(x, jnp.argmax(w), 2, axis=1),
    "set_own_entry": lambda x, i: vmap(lambda r, i: r.at[i].set(0.0))(x, i),
    "set_own_entry_by_row_number": lambda i: jnp.zeros((i.shape[0], T)).at[jnp.arange(i.shape[0]),
                                                                           i].set(1.0),
    "add_at_own_entry": lambda x, i, y: x.at[jnp.arange(x.shape[0]), i].add(y),
    "set_column": lambda x, y: x.at[:, 2].set(y),
    "set_first_row": lambda x: x.at[0].set(0.0),
    "sums_by_code": lambda y, z: jax.ops.segment_sum(y, z, D)[z],
    "sums_by_position_within": lambda x: vmap(
        lambda r: jax.ops.segment_sum(r, jnp.array([0, 1, 0, 1]), 2)
    )(x),
    "counts_within": lambda x: vmap(lambda r: jnp.bincount((r * 2).astype(int), length=4))(x),
    "update_slice_within": lambda x: lax.dynamic_update_slice(x, x[:, :2] * 3, (0, 2)),
    # products
    "matrix_times_row": lambda x, w: x @ w,
    "gram_of_rows": lambda x: (x @ x.T).sum(1),
    "products_within": lambda x: jnp.einsum("nt,ns->nts", x, x),
    "own_matrix": lambda a, table: jnp.einsum("nij,kj->nki", a, table),
    "rows_contracted": lambda x: x * jnp.einsum("nt,nt->", x, x),
    "outer": lambda y, w: jnp.outer(y, w),
    "convolution_within": lambda x: vmap(lambda r: jnp.convolve(r, KERNEL))(x),
    "convolution_with_own_kernel": lambda x: vmap(lambda r: jnp.convolve(r, r[:2]))(x),
    "convolution_with_a_shared_signal": lambda x, w: vmap(lambda r: jnp.convolve(w, r[:2]))(x),
    "convolution_over_rows": lambda y: jnp.convolve(y, KERNEL, mode="same"),
    "polynomial": lambda x: jnp.polyval(jnp.asarray(KERNEL), x),
    # along an axis
    "cumsum_within": lambda x: jnp.cumsum(x, 1),
    "cumsum_over_rows": lambda x: jnp.cumsum(x, 0),
    "cumprod_reversed_within": lambda x: lax.cumprod(x, 1, reverse=True),
    "cumulative_maximum_over_rows": lambda y: lax.cummax(y),
    "associative_scan_within": lambda x: lax.associative_scan(jnp.multiply, x, axis=1),
    "associative_scan_over_rows": lambda x: lax.associative_scan(jnp.multiply, x, axis=0),
    "sort_within": lambda x: jnp.sort(x, -1),
    "sort_over_rows": lambda y: jnp.sort(y),
    "rank_within": lambda x: jnp.argsort(jnp.argsort(x, -1), -1),
    "rank_over_rows": lambda y: jnp.argsort(jnp.argsort(y)),
    "median_within": lambda x: jnp.median(x, -1),
    "median_over_rows": lambda y: y - jnp.median(y),
    "quantile_within": lambda x: jnp.quantile(x, 0.3, axis=-1),
    "top_two_within": lambda x: lax.top_k(x, 2)[0],
    "fft_within": lambda x: jnp.abs(jnp.fft.fft(x)),
    "fft_over_rows": lambda x: jnp.abs(jnp.fft.fft(x, axis=0)),
    "fft_of_rows_without_an_axis": lambda y: jnp.real(jnp.fft.fft(y)),
    "window_within": lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2), (1, 1), "SAME"),
    "window_over_rows": lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 1), (1, 1), "SAME"),
    "interpolated": lambda x, w: vmap(lambda r: jnp.interp(r, jnp.arange(4.0), w))(x),
    "ranked_among_shared": lambda y, w: jnp.searchsorted(jnp.sort(w), y),
    "ranked_among_rows": lambda y: jnp.searchsorted(jnp.sort(y), y),
    # linear algebra
    "solve_own": lambda a, x: jnp.linalg.solve(a, x[:, :D, None])[..., 0],
    "solve_own_under_vmap": lambda a, x: vmap(jnp.linalg.solve)(a, x[:, :D]),
    "solve_shared": lambda x, table: jnp.linalg.solve(table[:D] + 3 * jnp.eye(D), x[:, :D].T).T,
    "solve_along_rows": lambda y: jnp.linalg.solve(jnp.eye(y.shape[0]) * 2 + 0.1, y),
    "triangular_along_rows": lambda y: jsp.linalg.solve_triangular(
        jnp.tril(jnp.ones((y.shape[0],) * 2)), y, lower=True
    ),
    "covariance_of_rows": lambda x: jnp.linalg.cholesky(
        jnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1)) + jnp.eye(len(x))
    )[:, 0],
    "cholesky_own": lambda a: jnp.linalg.cholesky(symmetric(a)),
    "inverse_own": lambda a: jnp.linalg.inv(a),
    "determinant_own": lambda a: jnp.linalg.slogdet(a)[1] + jnp.linalg.det(a),
    "eigenvalues_own": lambda a: jnp.linalg.eigvalsh(symmetric(a)),
    "singular_values_own": lambda a: jnp.linalg.svd(a, compute_uv=False),
    "qr_own": lambda a: jnp.abs(jnp.linalg.qr(a)[1]),
    "qr_over_rows": lambda x: jnp.abs(jnp.linalg.qr(x)[0]),
    "exponential_own": lambda a: jsp.linalg.expm(a * 0.1),
    "power_own": lambda a: jnp.linalg.matrix_power(a, 3),
    # loops and branches
    "garch_under_vmap": lambda w, x: vmap(lambda r: garch(w, r))(x),
    "garch_along_time": lambda w, x: along_time(w, x),
    "garch_over_rows": lambda w, y: garch(w, y),
    "random_walk_over_rows": lambda y: lax.scan(lambda c, y: (0.5 * c + y, c), 0.0, y)[1],
    "map_over_rows": lambda x: lax.map(lambda r: jnp.sort(jnp.fft.fft(r).real), x),
    "scan_over_rows_without_a_carry": lambda w, x: lax.scan(lambda w, r: (w, (w * r).sum()), w,
                                                            x)[1],
    "scan_over_rows_that_counts": lambda y: lax.scan(lambda c, y: (c + 1.0, y * c), 0.0, y)[1],
    "network_of_recurrence": lambda w, x: lax.scan(
        lambda h, c: (jnp.tanh(h @ jnp.outer(w, w) + c[:, None]), None), x * 0, x.T
    )[0],
    "fori_loop": lambda x: lax.fori_loop(0, 3, lambda k, v: v * 0.5 + k, x),
    "fori_loop_by_column": lambda x: lax.fori_loop(0, T, lambda k, s: s * 0.5 + x[:, k],
                                                   x[:, 0] * 0),
    "fori_loop_by_row": lambda y: lax.fori_loop(0, y.shape[0], lambda k, s: s + s[k - 1] * 0.1, y),
    "while_under_vmap": lambda y: vmap(newton)(y),
    "while_until_all_rows_are_done": lambda y: together(y),
    "while_with_a_shared_condition": lambda y, w: lax.while_loop(
        lambda c: c[0] < w.sum(), lambda c: (c[0] + 1, c[1] * 1.1), (0.0, y)
    )[1],
    "branch_under_vmap": lambda x: vmap(
        lambda r: lax.cond(r[0] > 1, jnp.sort, lambda r: r * 2, r)
    )(x),
    "switch_under_vmap": lambda x, z: vmap(
        lambda r, z: lax.switch(z, [jnp.sin, jnp.cos, jnp.exp], r)
    )(x, z),
    "branch_shared": lambda x, w: lax.cond(w[0] > 0.5, lambda x: jnp.cumsum(x, 1), lambda x: x, x),
    "branch_shared_of_which_one_mixes": lambda x, w: lax.cond(
        w[0] > 2.0, lambda x: jnp.cumsum(x, 0), lambda x: x, x
    ),
    "branch_by_a_mean_of_rows": lambda y: lax.cond(y.mean() > 0.55, lambda y: y, lambda y: -y, y),
    "gradient_of_a_sum_over_rows": lambda x, w: jax.grad(lambda x: (jnp.tanh(x * w) ** 2).sum())(x),
    "gradient_under_vmap": lambda x, w: vmap(jax.grad(lambda r: garch(w, r).sum()))(x),
    # a row's number
    "trend": lambda y: y + jnp.arange(y.shape[0]),
    "codes_held_by_a_call": lambda y: jax.jit(lambda y: y + CODES[: y.shape[0]])(y),
    "position_within": lambda x: x * jnp.arange(T),
    "constants_within_a_call": lambda x: jax.jit(lambda x: x * np.arange(4.0))(x),
    "noise_for_each_row": lambda y: y + jax.random.normal(jax.random.key(0), y.shape),
    "noise_for_all": lambda x: x + jax.random.normal(jax.random.key(0), (T,)),
    "noise_by_a_key_of_the_row": lambda z: vmap(
        lambda z: jax.random.normal(jax.random.fold_in(jax.random.key(0), z), (2,))
    )(z),
}
ROW = frozenset({"x", "a", "y", "z", "i"})
UNDECIDED = frozenset({"branch_shared_of_which_one_mixes"})
"""Row-wise in fact, and refused: nobody can tell."""
COUNTED = frozenset({"counts_rows"})
"""Of no other row, but of how many there are."""


def arguments(name):
    return FUNCTIONS[name].__code__.co_varnames[: FUNCTIONS[name].__code__.co_argcount]


@pytest.fixture(scope="module")
def traced():
    arrays = inputs()
    return {name: jax.make_jaxpr(function)(*(arrays[a] for a in arguments(name)))
            for name, function in FUNCTIONS.items()}


@pytest.fixture(scope="module")
def everything():
    """All functions compiled as one: arrays -> their results."""

    def results(arrays, names):
        return {name: FUNCTIONS[name](*(arrays[a] for a in arguments(name))) for name in names}

    return jax.jit(results, static_argnums=1,
                   compiler_options={"xla_backend_optimization_level": 0})


@pytest.fixture(scope="module")
def verdicts(traced):
    return {
        name: exchangeability.mixes(closed, [0 if a in ROW else None for a in arguments(name)],
                                    N)[0] for name, closed in traced.items()
    }


def changed(arrays, function):
    return {name: function(array) if name in ROW else array for name, array in arrays.items()}


def near(one, other):
    return np.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_every_verdict_is_that_of_brute_force(everything, verdicts):
    """Change some rows, one after another: no other row may move. Turn the rows around: the results
    must turn with them."""
    names, arrays = tuple(FUNCTIONS), inputs()
    there = everything(arrays, names)
    rowwise = {name: True for name in names}
    for row, factor in ((3, 9.0), (8, 0.05), (0, 200.0)):

        def replaced(array, row=row, factor=factor):
            out = np.array(array)
            out[row] = out[row] * factor if array.dtype.kind == "f" else (out[row] + 1) % D
            return out

        for name, result in everything(changed(arrays, replaced), names).items():
            rowwise[name] &= near(np.delete(there[name], row, 0), np.delete(result, row, 0))
    order = np.roll(np.arange(N)[::-1], 2)
    for name, result in everything(changed(arrays, lambda array: array[order]), names).items():
        rowwise[name] &= near(there[name][order], result)
    wrongly_accepted = {name for name, found in verdicts.items() if not found and not rowwise[name]}
    wrongly_refused = {name for name, found in verdicts.items() if found and rowwise[name]}
    assert not wrongly_accepted
    assert wrongly_refused == UNDECIDED | COUNTED
    assert len(FUNCTIONS) > 100 and 30 < sum(rowwise.values()) < len(FUNCTIONS) - 30


def test_what_is_accepted_is_the_same_one_row_at_a_time(everything, verdicts):
    names, arrays = tuple(name for name, found in verdicts.items() if not found), inputs()
    there = everything(arrays, names)
    for row in (0, 7):
        for name, result in everything(changed(arrays, operator.itemgetter(slice(row, row + 1))),
                                       names).items():
            assert near(there[name][row], result[0]), name


def test_every_primitive_met_is_known_to_the_table(traced):
    met = {primitives.name_of(eqn) for closed in traced.values() for eqn in equations(closed)}
    assert met <= set(primitives.TABLE), met - set(primitives.TABLE)
    assert len(met) > 80


def test_what_is_put_into_a_reference_is_taken_for_data():
    def through(y):
        held = jax.new_ref(jnp.zeros(()))
        held[...] = y.sum()
        return y - held[...]

    if not hasattr(jax, "new_ref"):
        pytest.skip("this JAX has no references")
    assert exchangeability.mixes(jax.make_jaxpr(through)(np.ones(N)), [0], N) != [""]


def test_a_table_as_long_as_the_rows_of_the_trace_is_no_axis_of_rows():
    """A table of 61 entries, read by a code: the number of rows in the trace gives way."""
    table = np.linspace(0.0, 1.0, 61)

    def function(codes):
        return jnp.asarray(table)[codes]

    def many(rows):
        return jax.make_jaxpr(function)(jax.ShapeDtypeStruct((rows,), int))

    assert exchangeability.row_dependence(many(1), many, [0]) == [""]


# Models that the check lets through


@probml.model
def volatility(past):
    """GARCH(1, 1): a row is a series, the carry of the loop over time has an entry for each row."""
    w = sample("w", dist.LogNormal(-1.0, 0.5))
    a = sample("a", dist.Beta(2.0, 5.0))
    b = sample("b", dist.Beta(5.0, 3.0))

    def step(variance, r):
        after = w + a * r**2 + b * variance
        return after, after

    with probml.rows():
        variance = lax.scan(step, jnp.ones(past.shape[0]), past.T)[1].T
        sample("r", dist.Normal(0.0, jnp.sqrt(variance)).to_event(1))


@probml.model
def equilibrium(a, x):
    """The fixed point of each row's own system of equations, and a slope along its Fourier
    transform."""
    c = sample("c", dist.Normal(0.0, 2.0))
    s = sample("s", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        solved = jnp.linalg.solve(a + c * jnp.eye(D), x[..., None])[..., 0]
        sample("y", dist.Normal(solved + 0.1 * c * jnp.abs(jnp.fft.fft(x)), s).to_event(1))


@pytest.mark.parametrize(
    ("model", "elsewhere"), [(volatility(), {"w": 0.3, "a": 0.2, "b": 0.5}),
                             (equilibrium(), {"c": 0.7, "s": 0.4})], ids=["scan", "solve"]
)
def test_a_model_of_rows_that_look_within_fits_and_has_numpyros_density(model, elsewhere):
    rng = np.random.default_rng(5)
    own = {"past": rng.normal(size=(24, T)), "x": rng.normal(size=(24, D)),
           "a": rng.normal(size=(24, D, D)) * 0.2 + 3 * np.eye(D)}
    given = {name: own[name] for name in model.inputs}
    seen = {"r": rng.normal(size=(24, T))} if "past" in given else {"y": rng.normal(size=(24, D))}
    data = {**given, **seen}
    fit = model.fit(data)

    @jax.jit
    def density(params):
        plain = numpyro.handlers.condition(functools.partial(model, rows=24), {**params, **seen})
        return log_density(plain, (), given, {})[0]

    for params in (elsewhere, fit.params):
        np.testing.assert_allclose(model.log_density(data, params), density(params), rtol=1e-5)
        each = model.at(params).log_prob(data)
        np.testing.assert_allclose(
            model.at(params).log_prob({k: v[7:8] for k, v in data.items()})[0], each[7], rtol=1e-5
        )
    assert density(fit.params) > density(elsewhere)


def test_rows_of_large_tables_are_followed_without_their_elements():
    """As the covariances of 1,200 columns in two classes, of which seven rows have 10⁷ entries."""
    table, z = jax.ShapeDtypeStruct((2, 1200, 1200), float), jax.ShapeDtypeStruct((7,), int)
    found = [exchangeability.mixes(jax.make_jaxpr(
        lambda table, z, axis=axis: jnp.flip(table[z], axis))(table, z), [None, 0], 7)[0]
        for axis in (-1, 0)]
    assert found == ["", "rev"]
