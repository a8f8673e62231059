"""The curvature of a density at a point, and coordinates in which it is the same in all
directions: on the device (Frame); and on the host, by differences of gradients, with what is read
from a matrix of second derivatives: units, directions, what Newton's step promises."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr.opened import backward

# curvature, relative to the coordinates' own, below which their coupling is worth coordinates
# across them
COUPLED = 0.1
# curvature, relative to the coordinates' own, below which a direction is taken for this flat
FLAT = 1e-6
SQUARE = 16  # coordinates up to which a matrix costs no more than a unit for each
TURNS = 8  # differences at the most
MOST = 1024  # coordinates up to which a curvature is measured

# (d,) → a height, and the gradient of its negative
Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]

# curvature, in units of each coordinate's own, that a look tells at a time: what is flatter is
# looked at again in coordinates in which it is wider
TOLD = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-3}
SHARE = {np.dtype(np.float64): 1e-3, np.dtype(np.float32): 0.1}  # of a width, of differences
# of a slope's change, each in its coordinate's own unit, that curvatures must foretell
FORETOLD = 0.2


class Frame(NamedTuple):
    """Coordinates z about a point: u = centre + root z, in which the density curves like a standard
    normal's."""

    centre: jax.Array  # (d,)
    root: jax.Array  # (d, d) symmetric up to the units of u; or (d,), a unit a coordinate
    # (d,) of the directions of `axes`, once every coordinate has its own as unit; about 0: flat,
    # below: not a mode
    curvature: jax.Array
    axes: jax.Array  # (d, d), one a column, in these units

    def point(self, z: jax.Array) -> jax.Array:
        return self.centre + (self.root * z if self.root.ndim == 1 else self.root @ z)

    def points(self, z: np.ndarray) -> np.ndarray:
        """u at many z, (..., d), of a frame on the host."""
        return self.centre + (self.root * z if self.root.ndim == 1 else z @ self.root.T)

    def coordinates(self, u: jax.Array) -> jax.Array:
        """z at points u, (k, d)."""
        away = u - self.centre
        return away / self.root if self.root.ndim == 1 else jnp.linalg.solve(self.root, away.T).T

    def inverse(self, u: np.ndarray) -> np.ndarray:
        """The same of a frame on the host."""
        away = u - self.centre
        return away / self.root if self.root.ndim == 1 else np.linalg.solve(self.root, away.T).T

    def pull(self, gradient: jax.Array) -> jax.Array:
        """The gradient in z of the one in u, (..., d)."""
        return gradient * self.root if self.root.ndim == 1 else gradient @ self.root

    def transform(self, both: Callable) -> Callable:
        """A function of u that returns (value, gradient), as such a function of z."""

        def transformed(z: jax.Array):
            value, gradient = both(self.point(z))
            return value, self.pull(gradient)

        return transformed

    def diagonal(self) -> "Frame":
        """The same with a unit a coordinate alone: what is independent in u stays so."""
        return self if self.root.ndim == 1 else self._replace(root=(self.root**2).sum(1) ** 0.5)

    def independent(self, hessian: jax.Array) -> "Frame":
        """A frame of independent coordinates, each with its standard deviation given all others."""
        diagonal = jnp.diagonal(hessian) if hessian.size else jnp.ones_like(self.centre)
        root = self.diagonal().root
        return self._replace(
            root=jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0)), root)
        )

    def square(self) -> "Frame":
        """Of few coordinates always by a matrix, on the host: whether they need one depends on the
        data, the program does not."""
        if self.root.ndim == 2 or len(self.root) > SQUARE:
            return self
        return self._replace(root=np.diag(self.root))

    def uncoupled(self) -> "Frame":
        """The frame without correlations, unless the density is narrow across them: they change
        from place to place."""
        return self.diagonal() if bool(np.min(np.asarray(self.curvature)) >= COUPLED) else self


class Starts(NamedTuple):
    """Points about a mode."""

    u: jax.Array  # (k, d)
    value: jax.Array  # (k,)
    gradient: jax.Array  # (k, d)


def measure(
    both: Callable, u: jax.Array, spread: jax.Array, apart: jax.Array, widest: jax.Array
) -> tuple[Frame, jax.Array, Starts]:
    """The frame at u by differences of gradients, the negative Hessian, and starts at z = spread
    (k, d).

    Central differences, ∂²f/∂u_i∂u ≈ (∇f(u + h e_i) − ∇f(u − h e_i)) / 2h: once with a small h,
    then with h a share of the width that this told, until it is no more than the width that it
    tells: a coordinate may be in any unit. They need no second derivative of the program
    (recursions along time have none) and compile one gradient.

    Args:
        both: u → (f, ∇f), f a log density.
        spread: standard normal numbers (k, d); they are shrunk where the point is no mode.
        apart: (d,) bool, coordinates that are given a unit alone: what couples them to others
            changes from place to place.
        widest: (d,) the largest unit a coordinate may have.

    Cost: 6 d gradients, 2 d more for each further h, d² memory; above MOST coordinates 2 max(d, k)
    and no curvature.
    """
    d, k, eps = u.size, len(spread), jnp.finfo(u.dtype).eps
    rough = eps ** (1 / 3) + eps ** (2 / 3) * jnp.abs(u)
    share = 1e-3 if eps < 1e-10 else 0.1  # of a width: cancellation against the third derivative
    count = max(2 * d, k)
    measured = d <= MOST

    least = 1e-3 * eps ** (2 / 3) * jnp.abs(u)

    def points(last: jax.Array, hessian: jax.Array, h: jax.Array):
        frame = _frame(u, hessian, apart, widest) if measured else _unit_frame(u)
        sure = jnp.where(jnp.all(frame.curvature > FLAT), 1.0, 0.1)
        starts = jax.vmap(frame.point)(sure * spread)
        at = jnp.concatenate([u + jnp.diag(h), u - jnp.diag(h)]) if measured else jnp.zeros((0, d))
        pad = jnp.broadcast_to(u, (count, d))
        return jnp.where(last, pad.at[:k].set(starts), pad.at[: len(at)].set(at))

    def turn(carry: tuple):
        i, last, _, hessian, h, _, _ = carry
        values, gradients = jax.lax.map(both, points(last, hessian, h))
        told = last
        if measured:
            found = (gradients[d : 2 * d] - gradients[:d]) / (2 * h[:, None])
            finite = jnp.isfinite(found).all(1)
            found = 0.5 * (found + found.T)
            good = (i == 0) | jnp.all(jnp.isfinite(found))
            hessian = jnp.where(~last & good, jnp.where(jnp.isfinite(found), found, 0.0), hessian)
            curved = jnp.diagonal(hessian)
            width = jnp.sqrt(1 / jnp.where(curved > 0, curved, jnp.inf))
            told = (i > 0) & jnp.all(finite & ((h <= width) | (width == 0) | (h <= least)))
            near = (width > 0) & jnp.isfinite(width)
            step = jnp.where(near, jnp.maximum(share * width, least), rough)
            # where the density is none, nearer by
            h = jnp.where(last, h, jnp.where(finite, step, jnp.minimum(step, 1e-2 * h)))
        return i + 1, told | (i + 1 >= TURNS), last, hessian, h, values, gradients

    blank = jnp.zeros((d, d) if measured else (0, 0), u.dtype)
    *_, hessian, _, values, gradients = jax.lax.while_loop(
        lambda carry: ~carry[2], turn,
        (jnp.zeros((), int), jnp.asarray(not measured), jnp.zeros((), bool), blank, rough,
         jnp.zeros(count, u.dtype), jnp.zeros((count, d), u.dtype)))
    values, gradients = values[:k], gradients[:k]
    frame = _frame(u, hessian, apart, widest) if measured else _unit_frame(u)
    sure = jnp.where(jnp.all(frame.curvature > FLAT), 1.0, 0.1)
    return frame, hessian, Starts(jax.vmap(frame.point)(sure * spread), values, gradients)


def _frame(u: jax.Array, hessian: jax.Array, apart: jax.Array, widest: jax.Array) -> Frame:
    """Every coordinate in units of its own width, then the symmetric root of what couples them;
    negative curvature by its size."""
    diagonal = jnp.abs(jnp.diagonal(hessian))
    unit = jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0)), 1.0)
    unit = jnp.minimum(unit, widest)
    alone = (apart[:, None] | apart) & ~jnp.eye(len(u), dtype=bool)
    scaled = jnp.where(alone, 0.0, hessian * unit[:, None] * unit)
    scaled = jnp.where(jnp.diag(apart), 1.0, scaled)
    curvature, axes = jnp.linalg.eigh(scaled)
    root = (axes / jnp.sqrt(jnp.maximum(jnp.abs(curvature), FLAT))) @ axes.T
    return Frame(u, unit[:, None] * root, curvature, unit[:, None] * axes)


def _unit_frame(u: jax.Array) -> Frame:
    return Frame(u, jnp.ones_like(u), jnp.ones_like(u), jnp.zeros((0, 0), u.dtype))


def second_order(function: Callable):
    """u → (value, gradient, Hessian) of a function of a vector: all directions of its gradient at
    once."""

    def slope(u: jax.Array):
        value, gradient = backward.value_and_gradient(function)(u)
        return gradient, (value, gradient)

    def at(u: jax.Array):
        hessian, (value, gradient) = jax.jacfwd(slope, has_aux=True)(u)
        return value, gradient, hessian

    return at


def units(hessian: np.ndarray) -> np.ndarray:
    """Of each coordinate the width that its own curvature gives it, by its size, (d,); 1 where it
    has none."""
    own = np.abs(np.diagonal(hessian))
    return np.where(own > 0, 1 / np.sqrt(np.where(own > 0, own, 1.0)), 1.0)


def scaled(hessian: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The same second derivatives, every coordinate in its unit."""
    return hessian * unit[:, None] * unit


def whitened(hessian: np.ndarray, least: float) -> np.ndarray | None:
    """W (d, d), of which WᵀW is the inverse of a curvature; None where this is not above `least`
    in every direction, each coordinate in its own unit."""
    if not (np.isfinite(hessian).all() and (np.diagonal(hessian) > 0).all()):
        return None
    unit = units(hessian)
    curvature, axes = np.linalg.eigh(scaled(0.5 * (hessian + hessian.T), unit))
    return None if curvature.min() <= least else axes.T * unit / np.sqrt(curvature)[:, None]


def estimate_hessian(evaluate: Evaluate, end: np.ndarray, slope: np.ndarray) -> np.ndarray | None:
    """Second derivatives (d, d) by a first look, of one slope a coordinate; None where these are
    not to be believed: not as symmetric as second derivatives are, nearly flat in a direction, or
    not foretelling the slope some way along all coordinates at once, each by a share of its own
    width. What is rounding, or changes within that width, is found out so.

    Cost: d + 1 gradients.
    """
    eps, d = np.finfo(end.dtype).eps, end.size
    told, share = TOLD[np.dtype(end.dtype)], SHARE[np.dtype(end.dtype)]
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite tells nothing
        moved = [(end + way).astype(end.dtype) for way in np.diag(eps ** (1 / 3)
                                                                 * (1 + np.abs(end)))]
        found = np.array([(evaluate(at)[1] - slope) / (at - end)[i] for i, at in enumerate(moved)],
                         float)
        if whitened(found, told) is None:
            return None
        unit = units(found)
        bent = scaled(found, unit)
        if np.abs(bent - bent.T).max() > FORETOLD:
            return None
        wave = np.cos(2.4 * np.arange(d) + 0.4)  # no two coordinates together, and all of them
        way = share * unit * np.where(wave < 0, wave - 0.5, wave + 0.5)
        there = (end + way).astype(end.dtype)
        change = unit * (evaluate(there)[1] - slope)
        foretold = bent @ ((there - end) / unit)
        if not np.abs(change - foretold).max() <= FORETOLD * share:
            return None
    return 0.5 * (found + found.T)


def differences(gradient: Callable[[np.ndarray], np.ndarray], u: np.ndarray) -> np.ndarray:
    """Second derivatives (d, d) by central differences of a gradient: once rough, once by a share
    of the width that this told.

    Cost: 4 d gradients.
    """
    eps = np.finfo(u.dtype).eps
    rough = eps ** (1 / 3) * (1 + np.abs(u))
    share, width = SHARE[np.dtype(u.dtype)], rough
    for _ in range(2):
        ends = [[gradient((u + side * h).astype(u.dtype)) for side in (1, -1)]
                for h in np.diag(width)]
        with np.errstate(invalid="ignore"):  # where the density ends nothing is known
            found = np.array([(up - down) / (2 * h)
                              for (up, down), h in zip(ends, width, strict=True)], float)
        found = 0.5 * (found + found.T)
        told = np.diagonal(found) > 0
        width = np.where(told, share / np.sqrt(np.where(told, np.diagonal(found), 1.0)), rough)
        width = np.maximum(width, 1e-3 * rough)
    return found
