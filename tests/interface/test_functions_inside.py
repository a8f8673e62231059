"""What a user's function may compute: solvers, loops, functions with derivatives of their own, callbacks. Each in a
model with rows() and in a function with obs=, against NumPyro's own density and its gradient.

A line of TABLE is a function of a parameter, positive, x (rows,) and an index (rows,) that gives the location of each row.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import lax
from jax.experimental.ode import odeint
from numpyro import plate, sample
from numpyro.infer.util import log_density

import probml

TIMES = np.linspace(0.0, 3.0, 7)
X = np.linspace(0.2, 2.5, 6)
AT = {"a": 1.3, "sigma": 0.7}


def decay(y, t, a):
    return -a * y


def by_steps(a, x, i):
    """Euler's steps, of lax.scan."""
    return lax.scan(lambda y, _: (y - 0.1 * a * y, y), 2.0, None, length=20)[1][5 * i]


@jax.custom_vjp
def own_vjp(a, x):
    return jnp.sin(a * x)


own_vjp.defvjp(lambda a, x: (own_vjp(a, x), (a, x)),
               lambda held, g: (jnp.sum(g * held[1] * jnp.cos(held[0] * held[1])),
                                g * held[0] * jnp.cos(held[0] * held[1])))


@jax.custom_vjp
def looks_up(a, table):
    return a * table


def looks_up_back(held, g):
    _, total = lax.scan(lambda total, i: (total + g[i] * held[i], i), 0.0, jnp.arange(len(held)))
    return lax.scan(lambda total, i: (total + g[i] * held[i], None), 0.0, jnp.arange(len(held)))[0], g


looks_up.defvjp(lambda a, table: (looks_up(a, table), table), looks_up_back)


@jax.custom_jvp
def own_jvp(a, x):
    return jnp.exp(-a * x)


own_jvp.defjvp(lambda at, along: (own_jvp(*at), -own_jvp(*at) * (along[0] * at[1] + at[0] * along[1])))


@jax.custom_vjp
def host(a, x):
    return jax.pure_callback(lambda a, x: np.asarray(np.log1p(a * x), np.asarray(x).dtype),
                             jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(a, x)), a, x, vmap_method="broadcast_all")


host.defvjp(lambda a, x: (host(a, x), (a, x)),
            lambda held, g: (jnp.sum(g * held[1] / (1 + held[0] * held[1])), g * held[0] / (1 + held[0] * held[1])))


def root(a, x):
    """y with y³ + a y = x, by Newton's steps in custom_root."""
    def solve(f, y):
        return lax.fori_loop(0, 30, lambda _, y: y - f(y) / (3 * y**2 + a), y)

    return lax.custom_root(lambda y: y**3 + a * y - x, jnp.ones_like(x), solve, lambda g, y: y / g(jnp.ones_like(y)))


def linear(a, x):
    matrix = jnp.eye(len(x)) * (2 + a) + 0.3
    return lax.custom_linear_solve(lambda v: matrix @ v, x, lambda mv, b: jnp.linalg.solve(matrix, b), symmetric=True)


def kernel(a, n):
    i = jnp.arange(n)
    return jnp.exp(-a * (i[:, None] - i) ** 2) + 0.1 * jnp.eye(n)


def until(a, x):
    """The square root by Heron's steps in lax.while_loop, which has no gradient backwards."""
    return lax.while_loop(lambda s: s[1] < 20, lambda s: (0.5 * (s[0] + 2.0 / s[0]), s[1] + 1), (1.0, 0))[0] * a * x


# name → f(a, x, i): (rows,); what is of several numbers at once is so of a grid, of which i picks
TABLE = {
    "odeint": lambda a, x, i: odeint(decay, jnp.array(2.0), jnp.asarray(TIMES), a)[i],
    "odeint, times of NumPy's": lambda a, x, i: odeint(decay, jnp.array([2.0, 1.0]), TIMES, a)[i, 0],
    "odeint of a start that is a parameter": lambda a, x, i: odeint(lambda y, t: -y, a, jnp.asarray(TIMES))[i],
    "odeint, jitted": lambda a, x, i: jax.jit(lambda a: odeint(decay, jnp.array(2.0), jnp.asarray(TIMES), a))(a)[
        i],
    "lax.scan": by_steps,
    "lax.while_loop": lambda a, x, i: until(a, x),
    "lax.fori_loop": lambda a, x, i: lax.fori_loop(0, 5, lambda i, y: y + a * x / (i + 1.0), x),
    "lax.associative_scan": lambda a, x, i: lax.associative_scan(jnp.add, a * jnp.arange(4.0))[i],
    "lax.map": lambda a, x, i: lax.map(lambda t: jnp.tanh(a * t), jnp.arange(4.0))[i],
    "lax.cond": lambda a, x, i: lax.cond(a > 1.0, lambda a: a**2, lambda a: a, a) * x,
    "lax.switch": lambda a, x, i: lax.switch(1, [jnp.sin, jnp.cos, jnp.exp], a) * x,
    "lax.switch by a parameter": lambda a, x, i: lax.switch(jnp.floor(a).astype(int), [jnp.sin, jnp.cos, jnp.exp], a) * x,
    "custom_vjp": lambda a, x, i: own_vjp(a, x),
    "custom_vjp whose rule indexes": lambda a, x, i: looks_up(a, jnp.asarray([0.5, 1.0, 2.0]))[i],
    "custom_vjp whose rule indexes NumPy's": lambda a, x, i: looks_up(a, np.array([0.5, 1.0, 2.0]))[i],
    "custom_jvp": lambda a, x, i: own_jvp(a, x),
    "pure_callback of a parameter": lambda a, x, i: host(a, jnp.arange(1.0, 4.0))[i],
    "custom_root": lambda a, x, i: root(a, x),
    "custom_linear_solve": lambda a, x, i: linear(a, jnp.arange(4.0))[i],
    "jnp.linalg.solve": lambda a, x, i: jnp.linalg.solve(kernel(a, 4), jnp.ones(4))[i],
    "jnp.linalg.inv": lambda a, x, i: jnp.linalg.inv(kernel(a, 4))[0][i],
    "jnp.linalg.eigh": lambda a, x, i: jnp.linalg.eigh(kernel(a, 4))[0][i],
    "jnp.linalg.cholesky": lambda a, x, i: jnp.linalg.cholesky(kernel(a, 4))[:, 0][i],
    "jnp.linalg.slogdet": lambda a, x, i: jnp.linalg.slogdet(kernel(a, 4))[1] * x,
    "jnp.linalg.qr": lambda a, x, i: jnp.linalg.qr(kernel(a, 4))[1][0][i],
    "jnp.linalg.svd": lambda a, x, i: jnp.linalg.svd(kernel(a, 4), compute_uv=False)[i],
    "jnp.linalg.matrix_power": lambda a, x, i: jnp.linalg.matrix_power(kernel(a, 3), 3)[0][i],
    "expm": lambda a, x, i: jax.scipy.linalg.expm(-kernel(a, 3))[0][i],
    "cho_solve": lambda a, x, i: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(kernel(a, 4)), True), jnp.ones(4))[
        i],
    "jax.checkpoint": lambda a, x, i: jax.checkpoint(lambda a, x: jnp.sin(jnp.exp(-a * x)))(a, x),
    "nested jit": lambda a, x, i: jax.jit(lambda a, x: jax.jit(jnp.tanh)(a * x) + x)(a, x),
    "vmap": lambda a, x, i: jax.vmap(lambda t: a * t + t**2)(jnp.arange(4.0))[i],
    "grad inside": lambda a, x, i: jax.grad(lambda t: jnp.sin(a * t))(0.7) * x,
    "jvp inside": lambda a, x, i: jax.jvp(lambda t: jnp.sin(a * t), (0.7,), (1.0,))[1] * x,
    "hessian inside": lambda a, x, i: jax.hessian(lambda t: jnp.sin(a * t))(0.7) * x,
    "stop_gradient": lambda a, x, i: lax.stop_gradient(a) * x + a,
    "interp": lambda a, x, i: jnp.interp(a, jnp.arange(4.0), jnp.arange(4.0) ** 2) * x,
    "interp at rows": lambda a, x, i: jnp.interp(x, jnp.arange(4.0), a * jnp.arange(4.0) ** 2),
    "fft": lambda a, x, i: jnp.fft.rfft(jnp.exp(-a * jnp.arange(6.0))).real[i],
    "sort": lambda a, x, i: jnp.sort(jnp.sin(a * jnp.arange(5.0)))[i],
    "argsort": lambda a, x, i: (a * jnp.arange(5.0))[jnp.argsort(jnp.array([3, 1, 2, 0, 4]))][i],
    "searchsorted": lambda a, x, i: a * jnp.searchsorted(jnp.arange(4.0), x),
    "convolve": lambda a, x, i: jnp.convolve(jnp.ones(4), jnp.array([a, 1.0]), "same")[i],
    "cumprod": lambda a, x, i: jnp.cumprod(a * jnp.ones(4))[i],
    "logsumexp": lambda a, x, i: jax.scipy.special.logsumexp(a * jnp.arange(4.0)) * x,
    "betainc": lambda a, x, i: jax.scipy.special.betainc(2.0, 3.0, jax.nn.sigmoid(a)) * x,
    "gammainc": lambda a, x, i: jax.scipy.special.gammainc(2.0, a * x),
    "bessel": lambda a, x, i: jax.scipy.special.i0e(a) * x,
    "erfinv": lambda a, x, i: jax.scipy.special.erfinv(a / 5) * x,
    "einsum": lambda a, x, i: jnp.einsum("ij,j->i", kernel(a, 4), jnp.arange(4.0))[i],
    "at set": lambda a, x, i: jnp.zeros(4).at[1].set(a).at[2].add(a**2)[i],
    "segment_sum": lambda a, x, i: jax.ops.segment_sum(a * jnp.arange(6.0), jnp.array([0, 0, 1, 1, 2, 2]), 3)[i],
    "bfloat16": lambda a, x, i: (a.astype(jnp.bfloat16).astype(float) if hasattr(a, "astype") else a) * x,
    "complex": lambda a, x, i: jnp.abs(jnp.exp(1j * a) + 1.0) * x,
}
QUICK = ("odeint", "lax.while_loop", "custom_vjp whose rule indexes", "pure_callback of a parameter", "custom_root",
         "fft", "complex")


def models(f):
    @probml.model
    def rows(x, i):
        a, sigma = sample("a", dist.LogNormal(0.0, 0.5)), sample("sigma", dist.HalfNormal(1.0))
        with probml.rows():
            sample("y", dist.Normal(f(a, x, i), sigma))

    def plain(x, i, y):
        a, sigma = sample("a", dist.LogNormal(0.0, 0.5)), sample("sigma", dist.HalfNormal(1.0))
        with plate("n", len(x)):
            sample("y", dist.Normal(f(a, x, i), sigma), obs=y)

    return rows(), probml.model(plain)(), plain


WHICH = np.arange(6) % 3
# where the density has steps, or another gradient than its own: only the density is compared
FLAT = ("stop_gradient", "bfloat16", "lax.switch by a parameter")
Y = np.sin(np.arange(6.0)) + 1


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in TABLE])
def test_a_function_inside_has_numpyros_density_and_gradient(name):
    rows, pasted, plain = models(TABLE[name])
    data = {"x": X, "i": WHICH, "y": Y}

    @jax.jit
    def right(a, sigma):
        return log_density(plain, (jnp.asarray(X), jnp.asarray(WHICH), jnp.asarray(Y)), {}, {"a": a, "sigma": sigma})[0]

    want = float(right(*AT.values()))
    for how, model in (("rows", rows), ("pasted", pasted)):
        assert abs(float(model.log_density(data, AT)) - want) < 1e-6, how
        if name in FLAT:
            continue
        fit = model.fit(data, probml.MAP(), start=AT)
        best = {k: float(v) for k, v in fit.params.items()}
        near = [float(right(best["a"] * (1 + da), best["sigma"] * (1 + ds)))
                for da, ds in ((0.02, 0), (-0.02, 0), (0, 0.02), (0, -0.02))]
        top = float(right(best["a"], best["sigma"]))
        assert top > want - 1e-6 and top > max(near) - 1e-4, (how, best, top, near)


def test_a_callback_on_all_rows_is_refused_and_runs_in_a_function_without_rows():
    rows, pasted, plain = models(lambda a, x, i: host(a, x))
    data = {"x": X, "i": WHICH, "y": Y}
    with pytest.raises(probml.ModelError, match="pure_callback.*obs="):
        rows.log_density(data, AT)
    right = log_density(plain, (jnp.asarray(X), jnp.asarray(WHICH), jnp.asarray(Y)), {}, AT)[0]
    assert abs(float(pasted.log_density(data, AT)) - float(right)) < 1e-6
    assert pasted.fit(data, probml.MAP(), start=AT).converged
