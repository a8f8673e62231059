"""Support vector machines: the generative functions of their losses, and kernels.

The dual is solved by LIBSVM, which scikit-learn brings along: see support_vector_estimators.py. In
signed coordinates β = y α, f(x) = Σ_i β_i K(x_i, x) + b.

Sources: Vapnik (1995); Chang & Lin (2011), "LIBSVM: a library for support vector machines".
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import factor, sample
from numpyro.distributions import constraints

from probml import model, rows

KERNELS = ("linear", "poly", "rbf", "sigmoid")
PIECE = 2**20  # numbers of a kernel that are worked on together


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
        gram = a @ b.T
        if self.name == "linear":
            return gram
        if self.name == "rbf":
            gram -= 0.5 * (b**2).sum(1)
            gram -= 0.5 * (a**2).sum(1)[:, None]
            np.minimum(gram, 0.0, out=gram)
            gram *= 2 * self.gamma
            return np.exp(gram, out=gram)
        gram *= self.gamma
        gram += self.coef0
        return np.tanh(gram, out=gram) if self.name == "sigmoid" else np.power(gram, self.degree,
                                                                               out=gram)

    def own(self, x: np.ndarray) -> np.ndarray:
        """K(x_i, x_i) of every row, (n,)."""
        square = np.einsum("ij,ij->i", x, x)
        if self.name == "linear":
            return square
        if self.name == "rbf":
            return np.ones_like(square)
        diag = self.gamma * square + self.coef0
        return np.tanh(diag) if self.name == "sigmoid" else diag**self.degree

    def blocks(self, a: np.ndarray, b: np.ndarray) -> Iterator[np.ndarray]:
        """K, some rows of a at a time."""
        size = max(PIECE // max(len(b), 1), 1)
        for start in range(0, len(a), size):
            yield self(a[start : start + size], b)
