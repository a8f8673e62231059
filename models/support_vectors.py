"""Support vector machines: kernels, the dual solved by sequential minimal optimisation, and the generative functions of its loss.

In signed coordinates β = y α both duals, of classification and of ε-insensitive regression, are one problem,

    max over β of cᵀβ − ½ βᵀKβ,   Σβ = 0,   low ≤ β ≤ high
    classes   c = ±1 the class, β between 0 and c·C
    numbers   two variables a row: c = y − ε with 0 ≤ β ≤ C, and c = y + ε with −C ≤ β ≤ 0; f(x) = Σ (β₁ + β₂) K(x_i, x) + b

With the gradient f = c − Kβ, it is solved where no pair violates: m = max f over β < high, M = min f over β > low, m − M ≤ tol. A step
takes i of the maximum, and of all j with f_j < m the one of greatest gain (m − f_j)²/(K_ii + K_jj − 2 K_ij), and moves along e_i − e_j.
Where steps of two are slow (a large C on a flat kernel), an interior point comes near the maximum, and steps of two end it.

Sources: Vapnik (1995); Platt (1998), "Sequential minimal optimization"; Fan, Chen & Lin (2005), "Working set selection using second order
information" (LIBSVM's); Ferris & Munson (2003), "Interior-point methods for massive support vector machines".
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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

KERNELS = ("linear", "poly", "rbf", "sigmoid")
BUDGET = 2**31  # bytes of a kernel matrix
PIECE = 2**21  # numbers of a kernel that are worked on together
CURVED = 1e-12  # curvature along a pair that has none
SMALL = 4000  # variables up to which an interior point takes over from slow steps
DEAR = 0.08  # steps, times variables squared, that take as long as the interior point
TURNS = 100  # of the interior point; some 30 are usual
SNAP = 1e-7  # of the width of its box, within which a variable is at its bound


@model
def support_vector_machine(kernel, classes: int = 2, c: float = 1.0):
    """Classes by the sign of f = Σ_i β_i K(x_i, x) + b; of more than two, one f for each pair of classes.

        loss of a row of class y = c · Σ over pairs (y, j) of max(0, 1 − f_yj(x)),   f_jy = −f_yj

    It is no likelihood: predict and decode take the class of the least loss. The penalty ½ β K β has no place in a row; the function
    states what `SupportVectorMachine` has found by the dual, and is made with `.at(params)`.

    Args:
        kernel: K(x_i, x) of every row x, (n, support vectors). classes: how many. c: cost of a violation.

    Sites: dual (pairs, support vectors) β, positive for the first class of the pair (of two classes for the second: 1 against 0);
    bias (pairs,); y the class.
    """
    first, second = pairs(classes)
    dual = sample("dual", dist.ImproperUniform(constraints.real, (), (len(first), kernel.shape[-1])))
    bias = sample("bias", dist.ImproperUniform(constraints.real, (), (len(first),)))
    with rows():
        y = sample("y", dist.Categorical(jnp.full(classes, 1 / classes)))
        f = kernel @ dual.T + bias
        states = jnp.arange(classes)
        losses = jnp.maximum(1 - f, 0.0) @ (first[:, None] == states) + jnp.maximum(1 + f, 0.0) @ (second[:, None] == states)
        factor("hinge", -c * jnp.take_along_axis(losses, y[..., None], -1)[..., 0])


@model
def support_vector_regression(kernel, c: float = 1.0, epsilon: float = 0.1):
    """Numbers about f = Σ_i β_i K(x_i, x) + b at a loss of c · max(0, |y − f| − ε), which is no likelihood; see support_vector_machine.

    Args:
        kernel: K(x_i, x) of every row x, (n, support vectors). c: cost of a unit of error. epsilon: half-width of the tube without cost.

    Sites: dual (support vectors,) β; bias; y.
    """
    dual = sample("dual", dist.ImproperUniform(constraints.real, (), (kernel.shape[-1],)))
    bias = sample("bias", dist.ImproperUniform(constraints.real, (), ()))
    with rows():
        y = sample("y", dist.ImproperUniform(constraints.real, (), ()))
        factor("tube", -c * jnp.maximum(jnp.abs(y - kernel @ dual - bias) - epsilon, 0.0))


def pairs(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """The two classes of every pair, the positive one first: (1, 0) of two classes, (i, j) with i < j of more, as LIBSVM orders them."""
    if classes == 2:
        return np.array([1]), np.array([0])
    return np.triu_indices(classes, 1)


# Kernels, in float64 and outside JAX: no program for every shape


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
        return np.tanh(out, out=out) if self.name == "sigmoid" else np.power(out, self.degree, out=out)

    def pieces(self, a: np.ndarray, b: np.ndarray) -> Iterator[np.ndarray]:
        """K a few rows of a at a time."""
        size = max(PIECE // max(len(b), 1), 1)
        for start in range(0, len(a), size):
            yield self(a[start : start + size], b)

    def matrix(self, x: np.ndarray, owner: str) -> np.ndarray:
        """K (m, m) of rows with themselves, in a buffer that JAX takes as it is; m ≥ n, the rows beyond n are 0.

        Raises:
            ModelError: it would need more than BUDGET.
        """
        n, m = len(x), padded(len(x))
        if 8 * m * m > BUDGET:
            raise ModelError(
                f"{owner}: {n} rows that are solved together need a kernel matrix of {8 * m * m / 2**30:.1f} GiB, above the budget of "
                f"{BUDGET / 2**30:.1f} GiB. Take fewer rows; or a linear machine (LinearSVM), of a curved kernel on features that "
                "approximate it, such as those of sklearn.kernel_approximation.Nystroem"
            )
        raw = np.empty(m * m + 8)
        start = -raw.ctypes.data // 8 % 8
        out = raw[start : start + m * m].reshape(m, m)
        out[n:], out[:n, n:] = 0.0, 0.0
        size = max(PIECE // n, 1)

        def fill(at):
            out[at : at + size, :n][: n - at] = self(x[at : at + size], x)

        with ThreadPoolExecutor() as pool:
            list(pool.map(fill, range(0, n, size)))
        return out


def padded(n: int) -> int:
    """n, rounded up so that few programs are compiled: 64, 128, 256, then eighths of powers of two."""
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


def solve(kernel: np.ndarray, c: np.ndarray, low: np.ndarray, high: np.ndarray, tol: float, most: int) -> Solution:
    """The maximum of cᵀβ − ½ βᵀKβ with Σβ = 0 and low ≤ β ≤ high, where 0 is allowed, in float64 whatever JAX's precision, on the CPU.

    Args:
        kernel: (m, m), as Kernel.matrix gives it. c, low, high: (copies, n), n ≤ m; copies of a row share its kernel.
        tol: of the gap. most: steps.

    Cost: 8 m² bytes; a step reads two rows of the kernel: a few n operations. As many steps as rows are usual.
    """
    copies, n = c.shape
    m = len(kernel)
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        c, low, high = (jnp.asarray(np.pad(a, ((0, 0), (0, m - n))).ravel()) for a in (c, low, high))
        q, beta, f, steps = jnp.asarray(kernel), jnp.zeros_like(c), c, 0
        patience = max(4 * copies * n + 1000, int(DEAR * (copies * n) ** 2)) if copies * n <= SMALL else most
        while True:
            beta, f, top, bottom, taken = _steps(q, beta, f, low, high, float(tol), min(4 * copies * m + 1000, most - steps), copies)
            steps += int(taken)
            if top - bottom <= tol or steps >= most:
                break
            if steps >= patience:
                patience, full = most, np.tile(kernel, (copies, copies))
                found = _interior(full, *map(np.asarray, (c, low, high)))
                if found is not None:
                    beta, f = jnp.asarray(found), c - jnp.asarray(full @ found)
        free = (beta > low) & (beta < high)
        bias = float(f[free].mean()) if free.any() else float((top + bottom) / 2)
        objective = float(0.5 * beta @ (c + f))
        return Solution(np.asarray(beta).reshape(copies, m)[:, :n], bias, float(top - bottom), steps, objective)


def _first(values: jax.Array, best: jax.Array) -> jax.Array:
    """Where the value first stands; two plain reductions are faster than argmax on CPUs."""
    size = values.shape[0]
    return jnp.min(jnp.where(values == best, lax.iota(jnp.int32, size), size - 1))


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
        top = up.max()
        i = _first(up, top)
        downs = beta > low
        bottom = jnp.min(jnp.where(downs, f, jnp.inf))
        row_i = row(i)
        away = top - f
        curvature = jnp.maximum(diagonal[i] + diagonal - 2 * row_i, CURVED)
        gain = jnp.where(downs & (away > 0), away * away / curvature, -1.0)
        most_gain = gain.max()
        j = _first(gain, most_gain)
        room_i, room_j = high[i] - beta[i], beta[j] - low[j]
        wanted = jnp.where((most_gain > 0) & (top - bottom > tol), away[j] / curvature[j], 0.0)
        length = jnp.minimum(wanted, jnp.minimum(room_i, room_j))
        f = f - length * (row_i - row(j))
        at_i = jnp.where(length >= room_i, high[i], beta[i] + length)
        at_j = jnp.where(length >= room_j, low[j], beta[j] - length)
        moved = length > 0
        beta = beta.at[i].set(jnp.where(moved, at_i, beta[i])).at[j].set(jnp.where(moved, at_j, beta[j]))
        return beta, f, top, bottom, taken + 1

    return lax.while_loop(more, step, (beta, f, jnp.asarray(jnp.inf, f.dtype), jnp.asarray(-jnp.inf, f.dtype), 0))


def _interior(kernel: np.ndarray, c: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray | None:
    """The same maximum by a primal-dual interior point method (Mehrotra 1992; Ferris & Munson 2003), (m,); None where it has no luck.

    What ends within SNAP of its box's width from a bound is put there, and the rest moved so that Σβ = 0. Cost: m³/3 a turn, some 30 turns.
    """
    from scipy.linalg import cho_factor, cho_solve

    live = high > low
    q, c, low, high = kernel[np.ix_(live, live)], c[live], low[live], high[live]
    width = high - low
    beta = (low + high) / 2
    beta -= (beta.sum() / width.sum()) * width  # Σβ = 0, inside the box as 0 is
    shift, below, above = 0.0, np.ones_like(c), np.ones_like(c)  # multipliers
    for _ in range(TURNS):
        to_low, to_high = beta - low, high - beta
        slope = q @ beta - c + shift - below + above
        mu = (below @ to_low + above @ to_high) / (2 * len(c))
        if mu * len(c) < 1e-12 * max(1.0, abs(c @ beta)) and np.abs(slope).max() < 1e-8 * max(1.0, np.abs(c).max()):
            break
        try:
            root = cho_factor(q + np.diag(below / to_low + above / to_high))
        except np.linalg.LinAlgError:  # a kernel that is not positive
            return None
        ones = cho_solve(root, np.ones_like(c))

        now = (root, ones, slope, beta, to_low, to_high, below, above)
        d, _, d_below, d_above = _newton(*now, 0.0, 0.0)
        length = min(_room(d, to_low, to_high), _room(np.r_[d_below, d_above], np.r_[below, above]))
        next_mu = ((below + length * d_below) @ (to_low + length * d) + (above + length * d_above) @ (to_high - length * d)) / (2 * len(c))
        centre = mu * (next_mu / mu) ** 3
        d, d_shift, d_below, d_above = _newton(*now, centre - d_below * d, centre + d_above * d)
        length = 0.99 * min(_room(d, to_low, to_high), _room(np.r_[d_below, d_above], np.r_[below, above]))
        beta, shift = beta + length * d, shift + length * d_shift
        below, above = below + length * d_below, above + length * d_above
    beta = np.where(beta - low < SNAP * width, low, np.where(high - beta < SNAP * width, high, beta))
    free = (beta > low) & (beta < high)
    if not free.any():
        return None
    beta[free] -= beta.sum() / free.sum()
    if (beta < low).any() or (beta > high).any():
        return None
    out = np.zeros(len(live))
    out[live] = beta
    return out


def _newton(root, ones, slope, beta, to_low, to_high, below, above, at_low, at_high):
    """Directions of β, of the multiplier of Σβ = 0 and of those of the bounds, towards the products `at_low` and `at_high`."""
    from scipy.linalg import cho_solve

    free = cho_solve(root, -slope + at_low / to_low - at_high / to_high - below + above)
    up = (free.sum() + beta.sum()) / ones.sum()
    d = free - up * ones
    return d, up, (at_low - below * d) / to_low - below, (at_high + above * d) / to_high - above


def _room(d: np.ndarray, down: np.ndarray, up: np.ndarray | None = None) -> float:
    """How far, up to 1, one may go along d with `down` below each variable and `up` above."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ways = np.where(d < 0, -down / d, np.inf if up is None else np.where(d > 0, up / d, np.inf))
    return float(min(1.0, np.nanmin(ways, initial=1.0)))
