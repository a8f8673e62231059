"""The curvature of a log density at a point, and whitened coordinates about it.

`measure`, `estimate_hessian` and `differences` compute Hessians on the host from differences of
gradients, `Frame` serves there and on the device; `units`, `scaled` and `whitened` rescale them.
"""

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr import backward

# Curvatures here are eigenvalues of the negative Hessian with each coordinate in its own unit.
MIN_UNCOUPLED_CURVATURE = 0.1  # curvature below which correlations are worth a full matrix
FLAT_CURVATURE = 1e-6  # lower bound on a curvature, so that no direction becomes infinitely wide
MAX_DENSE_COORDINATES = 16  # coordinates up to which a matrix costs no more than a unit for each
MAX_ROUNDS = 8  # rounds of central differences in `measure`
MAX_HESSIAN_COORDINATES = 1024  # coordinates up to which a Hessian is computed

A = TypeVar("A", np.ndarray, jax.Array)
# u (d,) → (value, gradient of its negative)
Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]

# Smallest curvature that differences of gradients determine; a flatter direction needs another
# round in coordinates in which it is wider.
MIN_CURVATURE = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-3}
# Difference step, relative to the width of a coordinate.
DIFFERENCE_STEP = {np.dtype(np.float64): 1e-3, np.dtype(np.float32): 0.1}
MAX_PREDICTION_ERROR = 0.2  # of a gradient change, relative to the step


class Frame(NamedTuple):
    """Whitened coordinates z about a point, u = centre + root z: the negative Hessian of the log
    density in z is the identity.

    Attributes:
        centre: (d,).
        root: (d, d), symmetric up to the units of u; or (d,), one unit a coordinate.
        curvature: (d,), eigenvalues of the negative Hessian with each coordinate in its own unit;
            0 along a flat direction, negative where the centre is not a mode.
        axes: (d, d), the eigenvectors, one a column, in the units of u.
    """

    centre: jax.Array
    root: jax.Array
    curvature: jax.Array
    axes: jax.Array

    def point(self, z: jax.Array) -> jax.Array:
        return self.centre + (self.root * z if self.root.ndim == 1 else self.root @ z)

    def points(self, z: np.ndarray) -> np.ndarray:
        """Returns u at many z (..., d), on the host."""
        return self.centre + (self.root * z if self.root.ndim == 1 else z @ self.root.T)

    def inverse(self, u: np.ndarray) -> np.ndarray:
        """Returns z at points u (k, d), on the host."""
        offset = u - self.centre
        return offset / self.root if self.root.ndim == 1 else np.linalg.solve(self.root, offset.T).T

    def pull(self, gradient: jax.Array) -> jax.Array:
        """Returns the gradient with respect to z, given that with respect to u, (..., d)."""
        return gradient * self.root if self.root.ndim == 1 else gradient @ self.root

    def transform(self, with_grad: Callable) -> Callable:
        """Returns z → (value, gradient), given u → (value, gradient)."""

        def transformed(z: jax.Array):
            value, gradient = with_grad(self.point(z))
            return value, self.pull(gradient)

        return transformed

    def diagonal(self) -> "Frame":
        """Returns the frame with one unit a coordinate, (d,), which keeps independence in u."""
        return self if self.root.ndim == 1 else self._replace(root=(self.root**2).sum(1) ** 0.5)

    def independent(self, hessian: jax.Array) -> "Frame":
        """Returns a diagonal frame whose units are the conditional standard deviations, given all
        other coordinates; hessian: (d, d), or empty."""
        diagonal = jnp.diagonal(hessian) if hessian.size else jnp.ones_like(self.centre)
        root = self.diagonal().root
        return self._replace(
            root=jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0)), root)
        )

    def square(self) -> "Frame":
        """Returns the frame with a matrix root if it has at most MAX_DENSE_COORDINATES, so that
        the compiled program does not depend on the data. On the host."""
        if self.root.ndim == 2 or len(self.root) > MAX_DENSE_COORDINATES:
            return self
        return self._replace(root=np.diag(self.root))

    def uncoupled(self) -> "Frame":
        """Returns the frame without correlations, which vary over the density, unless some
        direction is narrow enough to need them."""
        least = np.min(np.asarray(self.curvature))
        return self.diagonal() if bool(least >= MIN_UNCOUPLED_CURVATURE) else self


class Starts(NamedTuple):
    """Initial points about a mode, with log density and gradient."""

    u: jax.Array  # (k, d)
    value: jax.Array  # (k,)
    gradient: jax.Array  # (k, d)


def measure(
    evaluate: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], u: np.ndarray,
    spread: np.ndarray, is_diag: np.ndarray, max_unit: np.ndarray, hessian: np.ndarray | None = None
) -> tuple[Frame, np.ndarray, Starts]:
    """Returns the frame at u, the negative Hessian (d, d), and starting points at z = spread.

    The Hessian is computed by central differences of gradients, ∂²f/∂u_i∂u ≈
    (∇f(u + h e_i) − ∇f(u − h e_i)) / 2h. The first round uses a small h, further rounds a fraction
    of the width found so far, until h is at most that width: coordinates may have any unit. This
    needs no second derivatives, which recursions along time do not have. On the host.

    Args:
        evaluate: points (n, d) → (f (n,), ∇f (n, d)), f a log density.
        u: (d,).
        spread: (k, d), standard normal numbers; multiplied by 0.1 if u is not a mode.
        is_diag: (d,) bool, coordinates whose correlations with others are ignored because they vary
            over the density.
        max_unit: (d,), largest unit of each coordinate.
        hessian: (d, d), negative, if it is known.

    Cost: 6 d gradients, 2 d more for each further round, d² memory; above MAX_HESSIAN_COORDINATES,
        and with a Hessian, k gradients.
    """
    spread, max_unit = spread.astype(u.dtype), max_unit.astype(u.dtype)
    with np.errstate(all="ignore"):
        if hessian is not None:
            hessian = np.where(np.isfinite(hessian), hessian, 0.0)
        elif u.size <= MAX_HESSIAN_COORDINATES:
            hessian = _hessian_by_gradients(evaluate, u)
        frame = _unit_frame(u) if hessian is None else _frame(u, hessian, is_diag, max_unit)
        shrink = 1.0 if (frame.curvature > FLAT_CURVATURE).all() else 0.1
        u_points = frame.points((shrink * spread).astype(u.dtype))
        return (frame, np.zeros((0, 0), u.dtype) if hessian is None else hessian,
                Starts(u_points, *evaluate(u_points)))


def _hessian_by_gradients(evaluate: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
                          u: np.ndarray) -> np.ndarray:
    """Returns the negative Hessian (d, d), see `measure`; entries that are not finite are 0."""
    d, eps = u.size, np.finfo(u.dtype).eps
    first_step = eps ** (1 / 3) + eps ** (2 / 3) * np.abs(u)
    share = 1e-3 if eps < 1e-10 else 0.1  # of a width: cancellation against the third derivative
    min_step, h = 1e-3 * eps ** (2 / 3) * np.abs(u), first_step
    hessian = np.zeros((d, d), u.dtype)
    for turn in range(MAX_ROUNDS):
        steps = np.diag(h)
        gradients = evaluate(np.concatenate([u + steps, u - steps]).astype(u.dtype))[1]
        found = (gradients[d:] - gradients[:d]) / (2 * h[:, None])
        finite = np.isfinite(found).all(1)
        found = 0.5 * (found + found.T)
        if turn == 0 or np.isfinite(found).all():
            hessian = np.where(np.isfinite(found), found, 0.0).astype(u.dtype)
        diagonal = np.diagonal(hessian)
        width = np.sqrt(1 / np.where(diagonal > 0, diagonal, np.inf))
        if turn and (finite & ((h <= width) | (width == 0) | (h <= min_step))).all():
            break
        step = np.where((width > 0) & np.isfinite(width), np.maximum(share * width, min_step),
                        first_step)
        # a shorter step where the density is 0 at the end of the last one; by little, since the
        # curvature that far away may be larger than that of the point
        h = np.where(finite, np.maximum(step, 1e-2 * h), np.minimum(step, 1e-2 * h))
    return hessian


def _frame(u: np.ndarray, hessian: np.ndarray, is_diag: np.ndarray, max_unit: np.ndarray) -> Frame:
    """Returns the frame of a negative Hessian: each coordinate in its own unit, then the inverse
    symmetric square root of the scaled matrix. Negative eigenvalues enter by absolute value."""
    diagonal = np.abs(np.diagonal(hessian))
    unit = np.where(diagonal > 0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 1.0)
    unit = np.minimum(unit, max_unit)
    ignored = (is_diag[:, None] | is_diag) & ~np.eye(len(u), dtype=bool)
    scaled = np.where(ignored, 0.0, hessian * unit[:, None] * unit)
    scaled = np.where(np.diag(is_diag), 1.0, scaled).astype(u.dtype)
    curvature, axes = np.linalg.eigh(scaled)
    root = (axes / np.sqrt(np.maximum(np.abs(curvature), FLAT_CURVATURE))) @ axes.T
    return Frame(u, *(leaf.astype(u.dtype) for leaf in (unit[:, None] * root, curvature,
                                                        unit[:, None] * axes)))


def _unit_frame(u: np.ndarray) -> Frame:
    return Frame(u, np.ones_like(u), np.ones_like(u), np.zeros((0, 0), u.dtype))


def second_order(function):
    """Returns u → (value, gradient, Hessian) of a scalar function of a vector, by forward-mode
    differentiation of its gradient in all directions at once."""

    def slope(u: jax.Array):
        value, gradient = backward.value_and_gradient(function)(u)
        return gradient, (value, gradient)

    def evaluate(u):
        hessian, (value, gradient) = jax.jacfwd(slope, has_aux=True)(u)
        return value, gradient, hessian

    return evaluate


def units(hessian: A, xp: ModuleType = np) -> A:
    """Returns the unit of each coordinate, |H_ii|^(−1/2), (d,); in an indefinite Hessian a smaller
    one where needed for |H_ij| ≤ 1 in these units, as in a definite one; 1 where row i is 0.

    Args:
        xp: numpy, or jax.numpy for a traced Hessian.
    """
    diagonal = xp.abs(xp.diagonal(hessian))
    with np.errstate(over="ignore", invalid="ignore"):
        bound = xp.max(hessian**2 / xp.where(diagonal > 0, diagonal, xp.inf), 1, initial=0.0)
    diagonal = xp.maximum(diagonal, xp.where(xp.isfinite(bound), bound, 0.0))
    return xp.where(diagonal > 0, 1 / xp.sqrt(xp.where(diagonal > 0, diagonal, 1.0)), 1.0)


def scaled(hessian: A, unit: A) -> A:
    """Returns the Hessian (d, d) with each coordinate in its unit."""
    return hessian * unit[:, None] * unit


def curvature_axes(hessian: np.ndarray, min_curvature: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the eigenvalues (d,) of a symmetric Hessian (d, d), with each coordinate in its own
    unit, and axes (d, d), one a column, along which the absolute curvature is 1. Curvatures below
    `min_curvature` count as this."""
    unit = units(hessian)
    curvature, axes = np.linalg.eigh(scaled(hessian, unit))
    return curvature, unit[:, None] * axes / np.sqrt(np.maximum(np.abs(curvature), min_curvature))


def whitened(hessian: np.ndarray, min_curvature: float) -> np.ndarray | None:
    """Returns W (d, d), lower triangular, such that WᵀW is the inverse of a Hessian; None unless
    all its eigenvalues, with each coordinate in its own unit, exceed `min_curvature`. A Cholesky
    factor is a continuous function of the Hessian, as eigenvectors of equal eigenvalues are not."""
    if not (np.isfinite(hessian).all() and (np.diagonal(hessian) > 0).all()):
        return None
    hessian = 0.5 * (hessian + hessian.T)
    unit = units(hessian)
    unitless = scaled(hessian, unit)
    if np.linalg.eigvalsh(unitless).min() <= min_curvature:
        return None
    return np.linalg.inv(np.linalg.cholesky(unitless)) * unit


def estimate_hessian(evaluate: Evaluate, end: np.ndarray, slope: np.ndarray) -> np.ndarray | None:
    """Returns the Hessian (d, d) by forward differences of gradients, or None if it is unreliable:
    asymmetric, nearly flat along a direction, or unable to predict the gradient change of a test
    step along all coordinates, each by a fraction of its width. The test finds rounding errors and
    a Hessian that varies within that width.

    Args:
        end, slope: (d,), a point and the gradient there.

    Cost: d + 1 gradients.
    """
    eps, d = np.finfo(end.dtype).eps, end.size
    min_curvature, share = MIN_CURVATURE[np.dtype(end.dtype)], DIFFERENCE_STEP[np.dtype(end.dtype)]
    with np.errstate(invalid="ignore", over="ignore"):  # infinite entries are rejected below
        points = [(end + step).astype(end.dtype) for step in np.diag(eps ** (1 / 3)
                                                                   * (1 + np.abs(end)))]
        hessian = np.array([(evaluate(point)[1] - slope) / (point - end)[i]
                            for i, point in enumerate(points)], float)
        if whitened(hessian, min_curvature) is None:
            return None
        unit = units(hessian)
        unitless = scaled(hessian, unit)
        if np.abs(unitless - unitless.T).max() > MAX_PREDICTION_ERROR:
            return None
        wave = np.cos(2.4 * np.arange(d) + 0.4)  # the test step moves every coordinate differently
        step = share * unit * np.where(wave < 0, wave - 0.5, wave + 0.5)
        point = (end + step).astype(end.dtype)
        change = unit * (evaluate(point)[1] - slope)
        predicted = unitless @ ((point - end) / unit)
        if not np.abs(change - predicted).max() <= MAX_PREDICTION_ERROR * share:
            return None
    return 0.5 * (hessian + hessian.T)


def differences(gradient: Callable[[np.ndarray], np.ndarray], u: np.ndarray) -> np.ndarray:
    """Returns the Hessian (d, d) at u (d,) by central differences of a gradient, first with a fixed
    step, then with a fraction of the width of each coordinate.

    Cost: 4 d gradients.
    """
    eps = np.finfo(u.dtype).eps
    first_step = eps ** (1 / 3) * (1 + np.abs(u))
    share, step = DIFFERENCE_STEP[np.dtype(u.dtype)], first_step
    slopes = np.full((len(u), len(u)), np.nan)
    for _ in range(2):
        gradients = [[gradient((u + side * h).astype(u.dtype)) for side in (1, -1)]
                     for h in np.diag(step)]
        with np.errstate(invalid="ignore"):  # the density may be 0 at an end
            found = np.array([(up - down) / (2 * h)
                              for (up, down), h in zip(gradients, step, strict=True)], float)
        # along a flat direction the second step may end where the density is 0
        slopes = np.where(np.isfinite(found).all(1, keepdims=True), found, slopes)
        hessian = 0.5 * (slopes + slopes.T)
        curved = np.diagonal(hessian) > 0
        step = np.where(curved, share / np.sqrt(np.where(curved, np.diagonal(hessian), 1.0)),
                        first_step)
        step = np.maximum(step, 1e-3 * first_step)
    return hessian
