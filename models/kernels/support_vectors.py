"""Support vector machines: kernels, the dual solved by sequential minimal optimisation, and the
generative functions of its loss.

In signed coordinates β = y α both duals, of classification and of ε-insensitive regression, are one
problem,

    max over β of cᵀβ − ½ βᵀKβ,   Σβ = 0,   low ≤ β ≤ high
    classes   c = ±1 the class, β between 0 and c·C
    numbers   two variables a row: c = y − ε with 0 ≤ β ≤ C, and c = y + ε with −C ≤ β ≤ 0;
              f(x) = Σ (β₁ + β₂) K(x_i, x) + b

With the gradient f = c − Kβ, it is solved where no pair violates: m = max f over β < high, M = min
f over β > low, m − M ≤ tol. A step takes i of the maximum, and of all j with f_j < m the one of
greatest gain (m − f_j)²/(K_ii + K_jj − 2 K_ij), and moves along e_i − e_j. After many steps those
variables are left out for a while that are settled at a bound (Joachims 1998). Where steps are slow
all the same (a large C on a flat kernel), an interior point (interior_point.py) comes near the
maximum, and steps end it.

Sources: Vapnik (1995); Platt (1998), "Sequential minimal optimization"; Fan, Chen & Lin (2005),
"Working set selection using second order information" (LIBSVM's).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from numpyro import factor, sample
from numpyro.distributions import constraints

from probml import ModelError, model, rows
from probml.models.kernels.interior_point import Dense, Products, maximum

KERNELS = ("linear", "poly", "rbf", "sigmoid")
BUDGET = 2**31  # bytes of a kernel matrix
PIECE = 2**20  # numbers of a kernel that are worked on together
CURVED = 1e-12  # curvature along a pair that has none
SMALL = 4000  # variables up to which an interior point takes over from slow steps
DEAR = 0.08  # steps, times variables squared, that take as long as the interior point


@model
def support_vector_machine(kernel, classes: int = 2, c: float = 1.0):
    """Classes by the sign of f = Σ_i β_i K(x_i, x) + b; of more than two, one f for each pair of
    classes.

        loss of a row of class y = c · Σ over pairs (y, j) of max(0, 1 − f_yj(x)),   f_jy = −f_yj

    It is no likelihood: predict and decode take the class of the least loss. The penalty ½ β K β
    has no place in a row; the function states what `SupportVectorMachine` has found by the dual,
    and is made with `.at(params)`.

    Args:
        kernel: K(x_i, x) of every row x, (n, support vectors). classes: how many. c: cost of a
            violation.

    Sites: dual (pairs, support vectors) β, positive for the first class of the pair (of two classes
    for the second: 1 against 0); bias (pairs,); y the class.
    """
    first, second = pairs(classes)
    dual = sample("dual",
                  dist.ImproperUniform(constraints.real, (), (len(first), kernel.shape[-1])))
    bias = sample("bias", dist.ImproperUniform(constraints.real, (), (len(first),)))
    with rows():
        y = sample("y", dist.Categorical(jnp.full(classes, 1 / classes)))
        f = kernel @ dual.T + bias
        states = jnp.arange(classes)
        losses = jnp.maximum(1 - f, 0.0) @ (first[:, None] == states) + jnp.maximum(1 + f, 0.0) @ (
            second[:, None] == states
        )
        factor("hinge", -c * jnp.take_along_axis(losses, y[..., None], -1)[..., 0])


@model
def support_vector_regression(kernel, c: float = 1.0, epsilon: float = 0.1):
    """Numbers about f = Σ_i β_i K(x_i, x) + b at a loss of c · max(0, |y − f| − ε), which is no
    likelihood; see support_vector_machine.

    Args:
        kernel: K(x_i, x) of every row x, (n, support vectors). c: cost of a unit of error. epsilon:
            half-width of the tube without cost.

    Sites: dual (support vectors,) β; bias; y.
    """
    dual = sample("dual", dist.ImproperUniform(constraints.real, (), (kernel.shape[-1],)))
    bias = sample("bias", dist.ImproperUniform(constraints.real, (), ()))
    with rows():
        y = sample("y", dist.ImproperUniform(constraints.real, (), ()))
        factor("tube", -c * jnp.maximum(jnp.abs(y - kernel @ dual - bias) - epsilon, 0.0))


def pairs(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """The two classes of every pair, the positive one first: (1, 0) of two classes, (i, j) with i <
    j of more, as LIBSVM orders them."""
    if classes == 2:
        return np.array([1]), np.array([0])
    return np.triu_indices(classes, 1)


# Kernels: of the rows that are fitted as one program, of others outside JAX, so that no shape is
# compiled for


class Kernel(NamedTuple):
    """linear a·b, poly (γ a·b + r)^degree, rbf exp(−γ|a − b|²), sigmoid tanh(γ a·b + r)."""

    name: str
    gamma: float = 1.0
    degree: float = 3
    coef0: float = 0.0

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """K (n, m) of rows a (n, d) and b (m, d)."""
        if self.name == "rbf" and len(b):
            centre = b.mean(0)  # at an offset squares lose digits
            a, b = a - centre, b - centre
        out = a @ b.T
        if self.name == "linear":
            return out
        if self.name == "rbf":
            out -= 0.5 * (b**2).sum(1)
            out -= 0.5 * (a**2).sum(1)[:, None]
            np.minimum(out, 0.0, out=out)
            out *= 2 * self.gamma
            return np.exp(out, out=out)
        out *= self.gamma
        out += self.coef0
        return np.tanh(out, out=out) if self.name == "sigmoid" else np.power(out, self.degree,
                                                                             out=out)

    def pieces(self, a: np.ndarray, b: np.ndarray) -> Iterator[np.ndarray]:
        """K a few rows of a at a time."""
        size = max(PIECE // max(len(b), 1), 1)
        for start in range(0, len(a), size):
            yield self(a[start : start + size], b)

    def matrix(self, x: np.ndarray, owner: str) -> jax.Array:
        """K (m, m) of rows with themselves in float64, m = padded(n), the rows beyond n 0.

        Raises:
            ModelError: it would need more than BUDGET, or has numbers that are too large.
        """
        (n, d), m = x.shape, padded(len(x))
        if 8 * m * m > BUDGET:
            raise ModelError(
                f"{owner}: {n} rows that are solved together need a kernel matrix of "
                f"{8 * m * m / 2**30:.1f} GiB, above the budget of "
                f"{BUDGET / 2**30:.1f} GiB. Take fewer rows; or a linear machine (LinearSVM), of a "
                f"curved kernel on features that "
                "approximate it, such as those of sklearn.kernel_approximation.Nystroem"
            )
        x = x - x.mean(0) if self.name == "rbf" else x
        wide = np.zeros((m, 1 << max(d - 1, 3).bit_length()))  # columns of zeros change no product
        wide[:n, :d] = x
        with in_float64():
            out = _gram(jnp.asarray(wide), n, self.gamma, self.degree, self.coef0, self.name)
        own = np.asarray(out).diagonal()[:n]
        if not np.isfinite(own).all():
            row = int(np.argmin(np.isfinite(own)))
            raise ModelError(f"{owner}: the kernel of row {row} with itself is {own[row]}, too "
                             f"large: standardise the columns of X")
        return out


@partial(jax.jit, static_argnums=5)
def _gram(x, n, gamma, degree, coef0, name: str):
    out = x @ x.T
    if name == "rbf":
        half = 0.5 * jnp.diagonal(out)
        out = jnp.exp(2 * gamma * jnp.minimum(out - half - half[:, None], 0.0))
    elif name == "poly":
        out = (gamma * out + coef0) ** degree
    elif name == "sigmoid":
        out = jnp.tanh(gamma * out + coef0)
    seen = jnp.arange(len(x)) < n
    return jnp.where(seen & seen[:, None], out, 0.0)


@contextmanager
def in_float64():
    """JAX in float64, whatever its precision elsewhere, and on the CPU, where one step after the
    other is fast."""
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        yield


def padded(n: int) -> int:
    """n, rounded up so that few programs are compiled: 64, 128, 256, then eighths of powers of
    two."""
    if n <= 256:
        return 64 if n <= 64 else 128 if n <= 128 else 256
    step = 2 ** (int(n - 1).bit_length() - 4)
    return -(-n // step) * step


# The dual


class Solution(NamedTuple):
    """The dual's maximum.

    beta (copies, n); bias b; gap m − M; steps of two variables; objective cᵀβ − ½ βᵀKβ.
    """

    beta: np.ndarray
    bias: float
    gap: float
    steps: int
    objective: float


def solve(
    kernel: jax.Array, c: np.ndarray, low: np.ndarray, high: np.ndarray, tol: float, most: int,
    x: np.ndarray | None = None
) -> Solution:
    """The maximum of cᵀβ − ½ βᵀKβ with Σβ = 0 and low ≤ β ≤ high, where 0 is allowed, in float64
    whatever JAX's precision, on the CPU.

    Args:
        kernel: (m, m), as Kernel.matrix gives it. c, low, high: (copies, n), n ≤ m; copies of a row
            share its kernel.
        tol: of the gap. most: steps. x: (n, d) where K = xxᵀ.

    Cost: 8 m² bytes; a step reads two rows of the kernel: a few n operations. As many steps as rows
        are usual, more where C is large.
    """
    copies, n = c.shape
    m = len(kernel)
    with in_float64():
        c, low, high = (jnp.asarray(np.pad(a, ((0, 0), (0, m - n))).ravel())
                        for a in (c, low, high))
        beta, f, steps, size = jnp.zeros_like(c), c, 0, copies * n
        thin = x is not None and 2 * x.shape[1] < n
        patience = max(size, 1000) if thin else max(4 * size + 1000,
                                                    int(DEAR * size**2)) if size <= SMALL else most
        while True:
            until = min(steps + max(size, 1000), most)
            beta, f, top, bottom, taken = _steps(kernel, beta, f, low, high, float(tol),
                                                 until - steps, copies)
            steps += int(taken)
            if not top - bottom > tol or steps >= most:
                break
            if steps >= patience:
                patience = most
                beta, f = _leap(kernel, beta, f, c, low, high, copies, x if thin else None)
            else:
                limit = min(max(20 * size, 10_000), patience - steps, most - steps)
                beta, f, taken = _shrunk(kernel, beta, f, low, high, float(tol), limit, copies,
                                         float(top), float(bottom))
                steps += taken
    beta, f, c, low, high = map(np.asarray, (beta, f, c, low, high))
    free = (beta > low) & (beta < high)
    gap, middle = float(top - bottom), float(top + bottom) / 2
    bias = float(f[free].mean()) if free.any() else middle
    return Solution(beta.reshape(copies, m)[:, :n], bias, gap, steps, float(0.5 * beta @ (c + f)))


def _shrunk(kernel, beta, f, low, high, tol: float, most: int, copies: int, top: float,
            bottom: float):
    """Steps among the variables that are not settled at a bound, by the part of the kernel that is
    theirs: (β, f, steps)."""
    beta, f, low, high = map(np.asarray, (beta, f, low, high))
    settled = (beta == high) & (f > top) | (beta == low) & (f < bottom)
    active = np.flatnonzero(~settled & (high > low))
    rows = active % len(kernel)
    m = padded(len(active))
    if m > 0.8 * copies * len(kernel):
        return jnp.asarray(beta), jnp.asarray(f), 0
    part = np.zeros((m, m))
    part[: len(active), : len(active)] = np.asarray(kernel)[np.ix_(rows, rows)]
    given = (jnp.asarray(np.pad(a[active], (0, m - len(active)))) for a in (beta, f, low, high))
    found, _, _, _, taken = _steps(jnp.asarray(part), *given, tol, most, 1)
    moved = np.bincount(rows, np.asarray(found)[: len(active)] - beta[active], len(kernel))
    beta = beta.copy()
    beta[active] = np.asarray(found)[: len(active)]
    return (jnp.asarray(beta), jnp.asarray(f - np.tile(np.asarray(kernel) @ moved, copies)),
            int(taken))


def _leap(kernel, beta, f, c, low, high, copies: int, x: np.ndarray | None):
    """(β, f) near the maximum by the interior point, or as they are."""
    if x is None:
        quadratic = Dense(np.tile(np.asarray(kernel), (copies, copies)))
    else:
        quadratic = Products(np.tile(np.pad(x, ((0, len(kernel) - len(x)), (0, 0))), (copies, 1)))
    found = maximum(quadratic, *map(np.asarray, (c, low, high)))
    return (beta, f) if found is None else (jnp.asarray(found),
                                            c - jnp.asarray(quadratic.times(found)))


def _fold(values: jax.Array, larger: Callable) -> jax.Array:
    """A maximum or minimum by halves, which CPUs take several numbers at a time; a reduction goes
    one by one."""
    while len(values) > 64 and len(values) % 2 == 0:
        half = len(values) // 2
        values = larger(values[:half], values[half:])
    return values.max() if larger is jnp.maximum else values.min()


def _first(values: jax.Array, best: jax.Array) -> jax.Array:
    """Where the value first stands; argmax is slow on CPUs."""
    return _fold(jnp.where(values == best, lax.iota(jnp.int32, len(values)), len(values) - 1),
                 jnp.minimum)


@partial(jax.jit, static_argnums=7)
def _steps(kernel, beta, f, low, high, tol, most, copies: int):
    """Steps of two variables until the gap is at most `tol`: (β, f, m, M, steps)."""
    n = kernel.shape[0]
    diagonal = jnp.tile(jnp.diagonal(kernel), copies)

    def row(i):
        return jnp.tile(lax.dynamic_index_in_dim(kernel, i % n, 0, False), copies)

    def more(state):
        _, _, top, bottom, taken = state
        return (top - bottom > tol) & (taken < most)

    def step(state):
        beta, f, _, _, taken = state
        up = jnp.where(beta < high, f, -jnp.inf)
        top = _fold(up, jnp.maximum)
        i = _first(up, top)
        downs = beta > low
        bottom = _fold(jnp.where(downs, f, jnp.inf), jnp.minimum)
        row_i = row(i)
        away = top - f
        curvature = jnp.maximum(diagonal[i] + diagonal - 2 * row_i, CURVED)
        gain = jnp.where(downs & (away > 0), away * away / curvature, -1.0)
        most_gain = _fold(gain, jnp.maximum)
        j = _first(gain, most_gain)
        room_i, room_j = high[i] - beta[i], beta[j] - low[j]
        wanted = jnp.where((most_gain > 0) & (top - bottom > tol), away[j] / curvature[j], 0.0)
        length = jnp.minimum(wanted, jnp.minimum(room_i, room_j))
        f = f - length * (row_i - row(j))
        at_i = jnp.where(length >= room_i, high[i], beta[i] + length)
        at_j = jnp.where(length >= room_j, low[j], beta[j] - length)
        moved = length > 0
        beta = beta.at[i].set(jnp.where(moved, at_i, beta[i])).at[j].set(
            jnp.where(moved, at_j, beta[j])
        )
        return beta, f, top, bottom, taken + 1

    return lax.while_loop(more, step, (beta, f, jnp.asarray(jnp.inf, f.dtype),
                                       jnp.asarray(-jnp.inf, f.dtype), 0))
