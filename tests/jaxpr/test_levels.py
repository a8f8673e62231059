"""Levels of real jnp code and real NumPyro constructors, and the numbers behind them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.extend.core import jaxpr_as_fun
from numpyro.distributions import Normal

from probml.jaxpr.levels import Level, Use, classify, dependencies, restrict

AFFINE, GENERAL, COPY = Use(Level.AFFINE), Use(Level.GENERAL), Use(Level.MOVED)

n, k, d = 6, 3, 2
Z = np.array([0, 1, 2, 1, 0, 0])
X = np.linspace(-1.0, 1.0, n * d).reshape(n, d)
ARRAYS = {
    "p": np.array([0.2, 0.3, 0.4]),
    "a": np.array([0.5, 0.6, 0.7]),
    "b": np.array([1.5, 1.6, 1.7]),
    "s": np.array(0.8),
    "mean": np.arange(6.0).reshape(k, d) + 1,
    "scale": np.arange(6.0).reshape(k, d) + 2,
    "cov": np.eye(d) + np.arange(k)[:, None, None],
    "z": Z,
    "x": X,
    "i": np.array(1),
}
PARAMETERS = ("p", "a", "b", "s", "mean", "scale", "cov")


def moved(*steps):
    """MOVED in the coordinate of these steps; a name stands for (name, 1.0)."""
    return Use(Level.MOVED,
               tuple(step if isinstance(step, tuple) else (step, 1.0) for step in steps))


def power(p):
    return ("power", p)


def trace(function):
    """The jaxpr of a function of some of ARRAYS, taken by name, and its tracked inputs."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    tracked = {i: name for i, name in enumerate(names) if name in PARAMETERS}
    return jax.make_jaxpr(function)(*(ARRAYS[name] for name in names)), tracked


def levels(function):
    (uses,) = classify(*trace(function))
    return uses


CLAIMS = {
    # copies
    "normal_loc_is_moved": (lambda mean, scale, z: Normal(mean[z], scale[z]).loc, {"mean": COPY}),
    "normal_scale_is_moved": (lambda mean, scale, z: Normal(mean[z], scale[z]).scale,
                              {"scale": COPY}),
    "expanded_loc_is_moved": (
        lambda s, x: Normal(s, 1.0).expand([4]).to_event(1).base_dist.base_dist.loc, {"s": COPY}
    ),
    "covariance_as_given_is_moved": (
        lambda mean, cov, z: dist.MultivariateNormal(mean[z], covariance_matrix=cov[z]).__dict__[
            "covariance_matrix"
        ],
        {"cov": COPY},
    ),
    "cholesky_is_general": (
        lambda mean, cov, z: dist.MultivariateNormal(mean[z], covariance_matrix=cov[z]).scale_tril,
        {"cov": GENERAL},
    ),
    "beta_concentrations_are_moved": (lambda a, b: dist.Beta(a, b)._dirichlet.concentration,
                                      {"a": COPY, "b": COPY}),
    "identity": (lambda p: p, {"p": COPY}),
    "take": (lambda p, z: jnp.take(p, z), {"p": COPY}),
    "tile": (lambda p: jnp.tile(p, (2, 2)), {"p": COPY}),
    "repeat": (lambda p: jnp.repeat(p, 2), {"p": COPY}),
    "broadcast_to": (lambda p: jnp.broadcast_to(p, (4, 3)), {"p": COPY}),
    "transpose": (lambda mean: mean.T, {"mean": COPY}),
    "slices": (lambda mean: mean[1:, ::-1], {"mean": COPY}),
    "dynamic_index": (lambda p, i: p[i], {"p": COPY}),
    "roll": (lambda p: jnp.roll(p, 1), {"p": COPY}),
    "split": (lambda p: jnp.split(p, 3)[1], {"p": COPY}),
    "expand_and_squeeze": (lambda p: jnp.squeeze(p[None, :, None]), {"p": COPY}),
    "diagonal": (lambda cov: jnp.diagonal(cov, axis1=1, axis2=2), {"cov": COPY}),
    "lower_precision": (lambda p: p.astype(jnp.float32), {"p": COPY}),
    "plus_zero": (lambda p: 0.0 + p, {"p": COPY}),
    "times_one": (lambda p: 1.0 * p / 1.0, {"p": COPY}),
    "concatenate": (lambda p, a: jnp.concatenate([p, a]), {"p": COPY, "a": COPY}),
    "stack": (lambda p, a: jnp.stack([p, a], -1), {"p": COPY, "a": COPY}),
    "unpack": (lambda p: jnp.stack([*p][::-1]), {"p": COPY}),
    "where": (lambda a, b, z: jnp.where(z[:3] == 0, a, b), {"a": COPY, "b": COPY}),
    "set_to_moved": (lambda p, s, z: p.at[z].set(s), {"p": COPY, "s": COPY}),
    "set_into_zeros": (lambda p: jnp.zeros((3, 2)).at[:, 0].set(p)[:, 0], {"p": AFFINE}),
    "update_slice": (lambda p, a: jax.lax.dynamic_update_slice(p, a[:1], (1,)),
                     {"p": COPY, "a": COPY}),
    "update_all": (lambda p, a: jax.lax.dynamic_update_slice(p, a, (0,)), {"a": COPY}),
    "sum_over_one": (lambda p: p[:, None].sum(1), {"p": COPY}),
    "barrier": (lambda p, a: jax.lax.optimization_barrier((p, jnp.exp(a)))[0], {"p": COPY}),
    # other coordinates
    "sqrt": (lambda mean, scale, z: Normal(mean[z], jnp.sqrt(scale[z])).scale,
             {"scale": moved(power(0.5))}),
    "one_over_sqrt": (lambda a, z: 1 / jnp.sqrt(a[z]), {"a": moved(power(-0.5))}),
    "rsqrt": (lambda a: jax.lax.rsqrt(a), {"a": moved(power(-0.5))}),
    "sqrt_of_ratio": (lambda a: jnp.sqrt(a / 3.0), {"a": moved(power(0.5))}),
    "ratio_of_sqrt": (lambda a, x: 2.0 * jnp.sqrt(a) / x[0, 0], {"a": moved(power(0.5))}),
    "square": (lambda a: a**2, {"a": moved(power(2.0))}),
    "product_with_itself": (lambda a: a * a, {"a": moved(power(2.0))}),
    "sqrt_of_square": (lambda a: jnp.sqrt(jnp.square(a)), {"a": COPY}),
    "reciprocal": (lambda a: jnp.reciprocal(a), {"a": moved(power(-1.0))}),
    "power_of_literal": (lambda a: a**2.5, {"a": moved(power(2.5))}),
    "power_of_constant": (lambda a: a ** jnp.full(3, 1.5), {"a": moved(power(1.5))}),
    "power_of_data": (lambda a, x: a ** x[0, 0], {"a": GENERAL}),
    "negative_integer_power": (lambda a: 1 / a**-3, {"a": moved(power(3.0))}),
    "times_data": (lambda a, x: a * x[:3, 0], {"a": moved("times")}),
    "outer_with_data": (lambda a, x: jnp.einsum("i,n->ni", a, x[:, 0]), {"a": moved("times")}),
    "negative": (lambda a: -a, {"a": moved("times")}),
    "twice_negative": (lambda a: jnp.negative(-a), {"a": COPY}),
    "twice_then_half": (lambda a: 2 * a / 2, {"a": COPY}),
    "scaled_square_root_of_square": (lambda a: jnp.sqrt((3 * a) ** 2), {"a": moved("times")}),
    "times_zero_is_not_one_to_one": (lambda a: 0.0 * a, {"a": AFFINE}),
    "exp": (lambda a, z: dist.Poisson(jnp.exp(a[z])).rate, {"a": moved("exp")}),
    "exp_of_half": (lambda a: jnp.exp(0.5 * a), {"a": moved("times", "exp")}),
    "base_two": (lambda a: 2.0**a, {"a": moved("times", "exp")}),
    "log_to_base_two": (lambda a: jnp.log2(a), {"a": moved("log", "times")}),
    "exp_undoes_log": (lambda a: jnp.exp(jnp.log(a)), {"a": COPY}),
    "scaled_exp": (lambda a: 3.0 * jnp.exp(a), {"a": moved("exp", "times")}),
    "log_of_scaled_exp_does_not_cancel": (lambda a: jnp.log(3.0 * jnp.exp(a)),
                                          {"a": moved("exp", "times", "log")}),
    "logistic": (lambda a: dist.Bernoulli(jax.nn.sigmoid(a)).probs, {"a": moved("logistic")}),
    "complement": (lambda p, z: dist.Bernoulli(1 - p[z]).probs, {"p": moved("complement")}),
    "complement_of_ones": (lambda p: jnp.ones(3) - p, {"p": moved("complement")}),
    "complement_by_negation": (lambda p: 1 + -p, {"p": moved("complement")}),
    "two_complements": (lambda p: 1 - (1 - p), {"p": COPY}),
    "log_of_complement": (lambda p: jnp.log1p(-p), {"p": moved("complement", "log")}),
    "complement_of_exp_of_negative": (lambda a: 1 - jnp.exp(-a),
                                      {"a": moved("times", "exp", "complement")}),
    "factor_before_a_complement_is_kept": (lambda a: 1 - 2 * jnp.sqrt(a),
                                           {"a": moved(power(0.5), "times", "complement")}),
    "same_coordinate": (lambda a, b: jnp.concatenate([jnp.exp(a), jnp.exp(b)]),
                        {"a": moved("exp"), "b": moved("exp")}),
    "same_up_to_factors": (lambda a, b: jnp.stack([a, 2 * b]),
                           {"a": moved("times"), "b": moved("times")}),
    "different_coordinates": (lambda a, b: jnp.stack([a, jnp.exp(b)]), {"a": AFFINE, "b": GENERAL}),
    # affine
    "regression": (lambda mean, p, x, z: (x * mean[z]).sum(-1) + p[z],
                   {"mean": AFFINE, "p": AFFINE}),
    "matrix_product": (lambda mean, x: x @ mean.T, {"mean": AFFINE}),
    "einsum": (lambda mean, x, s: jnp.einsum("nd,kd->nk", x, mean) + s,
               {"mean": AFFINE, "s": AFFINE}),
    "vmap": (lambda mean, x, z, s: jax.vmap(lambda x, z: x @ mean[z] + s)(x, z),
             {"mean": AFFINE, "s": AFFINE}),
    "vmapped_index": (lambda p, z: jax.vmap(lambda z: p[z])(z), {"p": COPY}),
    "value_and_complement": (lambda p: jnp.stack([p, 1 - p], -1), {"p": AFFINE}),
    "with_a_constant": (lambda p: jnp.append(0.0, p), {"p": AFFINE}),
    "with_a_constant_in_another_coordinate": (lambda p: jnp.append(0.0, jnp.exp(p)),
                                              {"p": GENERAL}),
    "where_or_constant": (lambda a, z: jnp.where(z[:3] == 0, a, 1.0), {"a": AFFINE}),
    "diag": (lambda p: jnp.diag(p), {"p": AFFINE}),
    "tril": (lambda mean: jnp.tril(mean), {"mean": AFFINE}),
    "set_to_constant": (lambda p: p.at[0].set(0.0), {"p": AFFINE}),
    "read_or_fill": (lambda p, z: p.at[z].get(mode="fill", fill_value=0.0), {"p": AFFINE}),
    "add_at": (lambda p, a, z: p.at[z].add(a[0]), {"p": AFFINE, "a": AFFINE}),
    "sum": (lambda a, b: a + b, {"a": AFFINE, "b": AFFINE}),
    "difference_with_complement": (lambda a, b: 1 - a + b, {"a": AFFINE, "b": AFFINE}),
    "shift": (lambda a, x: (a + 2.0) - x[:3, 0], {"a": AFFINE}),
    "minus_one": (lambda a: a - 1.0, {"a": AFFINE}),
    "shift_of_exp": (lambda a: jnp.exp(a) + 2.0, {"a": GENERAL}),
    "mean": (lambda a: a - a.mean(), {"a": AFFINE}),
    "cumsum": (lambda a: jnp.cumsum(a), {"a": AFFINE}),
    "convolution": (lambda a, x: jnp.convolve(x[:, 0], a), {"a": AFFINE}),
    "affine_then_moved": (lambda a, b, z: jnp.broadcast_to(2 * (a + b)[z], (4, n)),
                          {"a": AFFINE, "b": AFFINE}),
    "sum_with_general": (lambda a, b: a + jnp.tanh(b), {"a": AFFINE, "b": GENERAL}),
    # general
    "softmax": (lambda a: jax.nn.softmax(a), {"a": GENERAL}),
    "product": (lambda a, b: a * b, {"a": GENERAL, "b": GENERAL}),
    "ratio": (lambda a, b: a / b, {"a": GENERAL, "b": GENERAL}),
    "inner_product": (lambda a, b: a @ b, {"a": GENERAL, "b": GENERAL}),
    "log_of_affine": (lambda a, b: jnp.log(a + b), {"a": GENERAL, "b": GENERAL}),
    "tanh": (lambda a: jnp.tanh(a), {"a": GENERAL}),
    "softplus": (lambda a: jax.nn.softplus(a), {"a": GENERAL}),
    "expm1": (lambda a: jnp.expm1(a), {"a": GENERAL}),
    "clip": (lambda a: jnp.clip(a, 0.1, 0.9), {"a": GENERAL}),
    "sort": (lambda a: jnp.sort(a), {"a": GENERAL}),
    "stop_gradient": (lambda a: jax.lax.stop_gradient(a), {"a": GENERAL}),
    "comparison": (lambda a: a > 0.5, {"a": GENERAL}),
    "rounding": (lambda a: a.astype(int).astype(float), {"a": GENERAL}),
    "tracked_index": (lambda a, s: a[s.astype(int)], {"a": GENERAL, "s": GENERAL}),
    "tracked_predicate": (lambda a, b, s: jnp.where(s > 0, a, b),
                          {"a": GENERAL, "b": GENERAL, "s": GENERAL}),
    "power_zero_is_not_one_to_one": (lambda a: jax.lax.pow(a, 0.0), {"a": GENERAL}),
    "scan": (lambda a: jax.lax.scan(lambda c, x: (c + x, c), 0.0, a)[1], {"a": GENERAL}),
    "scan_with_the_shapes_of_its_body": (
        lambda s: jax.lax.scan(lambda c, _: (2 * c, None), s, None, 3)[0], {"s": GENERAL}
    ),
    "branch": (lambda a, i: jax.lax.cond(i > 0, lambda a: a, lambda a: 2 * a, a), {"a": GENERAL}),
    "loop": (lambda s: jax.lax.while_loop(lambda c: c < 9, lambda c: 2 * c, s), {"s": GENERAL}),
    "callback": (lambda a: jax.pure_callback(np.sin, a, a), {"a": GENERAL}),
    # nothing
    "constant": (lambda a, x: jnp.log(1 + x**2) @ x.T, {}),
    "shape_only": (lambda a: jnp.ones_like(a), {}),
    "random": (lambda a: jax.random.normal(jax.random.key(0), a.shape), {}),
    # calls
    "nested_jit": (lambda a, z: jax.jit(lambda a: jax.jit(jnp.sqrt)(a[z]))(a),
                   {"a": moved(power(0.5))}),
    "checkpoint": (lambda a: jax.checkpoint(jnp.exp)(a), {"a": moved("exp")}),
    "custom_jvp": (lambda a, b: double_with_custom_jvp(a), {"a": moved("times")}),
    "custom_vjp": (lambda a, b: double_with_custom_vjp(a), {"a": moved("times")}),
    "literal_into_a_call": (lambda a: jax.jit(lambda one, a: one - a)(1.0, a),
                            {"a": moved("complement")}),
}


@jax.custom_jvp
def double_with_custom_jvp(x):
    return 2 * x


double_with_custom_jvp.defjvp(lambda x, t: (2 * x[0], 2 * t[0]))


@jax.custom_vjp
def double_with_custom_vjp(x):
    return 2 * x


double_with_custom_vjp.defvjp(lambda x: (2 * x, None), lambda _, t: (2 * t,))


@pytest.mark.parametrize("name", CLAIMS)
def test_level_of(name):
    function, expected = CLAIMS[name]
    assert levels(function) == expected


STEPS = {
    "power": lambda x, p: x**p,
    "complement": lambda x, _: 1 - x,
    "exp": lambda x, _: np.exp(x),
    "log": lambda x, _: np.log(x),
    "logistic": lambda x, _: 1 / (1 + np.exp(-x)),
}
SCALED = ("sqrt_of_ratio", "ratio_of_sqrt")  # a factor next to a power is not in the coordinate


@pytest.mark.parametrize("name", [name for name, (_, uses) in CLAIMS.items()
                                  if all(use.level < Level.GENERAL for use in uses.values())])
def test_promise_holds_in_numbers(name):
    """MOVED: each output is a mapped parameter element. AFFINE: the second difference along the
    parameters vanishes."""
    function, uses = CLAIMS[name]
    closed, tracked = trace(function)
    arrays = [ARRAYS[argument]
              for argument in function.__code__.co_varnames[: len(closed.in_avals)]]

    run = jax.jit(jaxpr_as_fun(closed))

    def output(t):
        return np.asarray(run(*(a + t if i in tracked else a for i, a in enumerate(arrays)))[0])

    coordinates = {use.coordinate for use in uses.values() if use.level == Level.MOVED}
    for coordinate in coordinates:
        if name not in SCALED and "times" not in dict(coordinate):
            elements = np.concatenate([np.ravel(a) for i, a in enumerate(arrays)
                                       if tracked.get(i) in uses])
            for step, number in coordinate:
                elements = STEPS[step](elements, number)
            assert np.isclose(output(0.0)[..., None], elements, rtol=1e-6).any(-1).all()
    if all(set(dict(coordinate)) <= {"times", "complement"} for coordinate in coordinates):
        curvature = output(0.2) - 2 * output(0.1) + output(0.0)
        np.testing.assert_allclose(curvature, 0.0, atol=1e-6)  # one claim converts to float32


def test_untracked_parameters_count_as_constants():
    closed, _ = trace(lambda a, b: a * b)
    assert classify(closed, {0: "a"}) == [{"a": moved("times")}]
    assert classify(closed, {}) == [{}]


def test_every_output_is_classified_on_its_own():
    closed, tracked = trace(lambda a, b, z: (a[z], jnp.exp(b), a + b, z))
    assert classify(closed, tracked) == [{"a": COPY}, {"b": moved("exp")},
                                         {"a": AFFINE, "b": AFFINE}, {}]


def test_classify_works_on_constants_that_are_traced():
    def outer(c):
        seen.extend(classify(jax.make_jaxpr(lambda a: c * a)(1.0), {0: "a"}))
        return c

    seen = []
    jax.jit(outer)(2.0)
    assert seen == [{"a": moved("times")}]


def test_dependencies_are_exact_through_calls():
    @jax.jit
    def swap(a, b, c):
        return jax.checkpoint(jnp.sin)(b), jax.jit(lambda a, c: (a, a + c))(a, c)[1], jnp.zeros(())

    assert dependencies(jax.make_jaxpr(swap)(1.0, 2.0, 3.0)) == [{1}, {0, 2}, frozenset()]


def test_dependencies_of_inputs_constants_and_loops():
    def function(a, b, c):
        return (b, jnp.arange(3), jax.lax.scan(lambda s, x: (s + x, s), a, jnp.stack([b, b]))[1],
                a * np.arange(2.0))

    assert dependencies(jax.make_jaxpr(function)(1.0, 2.0, 3.0)) == [{1}, frozenset(), {0, 1}, {0}]


def test_dependencies_are_those_of_each_result_of_a_loop():
    def scan(a, b, c):
        (later, kept, _), seen = jax.lax.scan(lambda s, x: ((s[0] + s[2], s[1], x * s[2]), s[1]),
                                              (a, b, 1.0), jnp.stack([c, c]))
        return later, kept, seen

    def loop(a, b, c):
        return jax.lax.while_loop(lambda s: s[2] < c, lambda s: (s[0] * 2, s[1], s[2] + 1),
                                  (a, b, 0.0))

    def branch(a, b, c):
        return jax.lax.cond(c > 0, lambda a, b: (a, 2 * b, 1.0), lambda a, b: (a + b, 3 * b, 2.0),
                            a, b)

    assert dependencies(jax.make_jaxpr(scan)(1.0, 2.0, 3.0)) == [{0, 2}, {1}, {1}]
    assert dependencies(jax.make_jaxpr(loop)(1.0, 2.0, 3.0)) == [{0, 2}, {1}, {2}]
    assert dependencies(jax.make_jaxpr(branch)(1.0, 2.0, 3.0)) == [{0, 1, 2}, {1, 2}, {2}]


def test_levels_of_a_loop_are_those_of_each_result():
    def stepped(a, b, xs):
        def step(carry, x):
            return x, (a * carry, b + 0.0 * x, jnp.exp(x))

        return jax.lax.scan(step, a, xs)[1]

    closed = jax.make_jaxpr(stepped)(1.0, 2.0, jnp.arange(3.0))
    found = classify(closed, {0: "a", 1: "b", 2: "x"})
    assert [set(uses) for uses in found] == [{"a", "x"}, {"b", "x"}, {"x"}]


def test_restrict_takes_nothing_for_the_other_results_of_a_call_or_a_loop():
    def function(a, b):
        doubled, more = jax.jit(lambda a, b: (2 * a, jnp.exp(b)))(a, b)
        return jax.lax.scan(lambda c, _: ((c[0] + 1, c[1] * 2), None), (doubled, more), None, 3)[0]

    closed = jax.make_jaxpr(function)(1.0, 2.0)
    for output in (0, 1):
        smaller, kept = restrict(closed, [output])
        assert kept == (output,)
        np.testing.assert_allclose(jaxpr_as_fun(smaller)([1.0, 2.0][output])[0],
                                   function(1.0, 2.0)[output], rtol=1e-6)


def test_dependencies_contain_what_the_levels_use():
    for function, expected in CLAIMS.values():
        closed, tracked = trace(function)
        (used,) = dependencies(closed)
        assert set(expected) <= {tracked[i] for i in used if i in tracked}


def test_restrict_keeps_the_numbers_and_drops_what_is_unused():
    kernel = np.arange(4.0).reshape(2, 2)

    def function(a, b, c):
        return a @ kernel, jax.jit(jnp.sin)(b) + 1, c, a @ kernel.T + c, 3.0

    arguments = np.ones(2), np.array(2.0), np.array(3.0)
    closed = jax.make_jaxpr(function)(*arguments)
    original = jaxpr_as_fun(closed)(*arguments)
    for outputs, inputs, constants in [([1], (1,), 0), ([3, 0], (0, 2), 2), ([2, 2], (2,), 0),
                                       ([4], (), 0), ([], (), 0)]:
        smaller, kept = restrict(closed, outputs)
        assert kept == inputs
        assert len(smaller.consts) <= constants
        result = jax.jit(jaxpr_as_fun(smaller))(*(arguments[i] for i in kept))
        for position, output in enumerate(outputs):
            np.testing.assert_array_equal(result[position], original[output])


def test_restrict_removes_equations_and_effects_that_do_not_matter():
    def function(a, b):
        jax.debug.print("{}", b)
        return jnp.exp(a), jnp.linalg.inv(b)

    smaller, kept = restrict(jax.make_jaxpr(function)(1.0, np.eye(2)), [0])
    assert kept == (0,)
    assert [eqn.primitive.name for eqn in smaller.jaxpr.eqns] == ["exp"]
    assert not smaller.jaxpr.effects
    assert classify(smaller, {0: "a"}) == [{"a": moved("exp")}]
