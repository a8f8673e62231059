"""Integrals over many numbers whose joint density is normal, in closed form, or a product of
factors of one or two numbers each, by quadrature about the mode."""

from collections.abc import Callable

import jax
import numpy as np
from scipy.sparse.csgraph import connected_components

QUADRATIC_TOLERANCE = 1e-8  # of a log density, for it to be that of a normal
MAX_NEWTON_STEPS = 60
NODES, PAIR_NODES = 241, 61  # of one number, and in each direction of two
HALF_RANGE = 12.0  # standard deviations of the curvature on either side of the mode


class Unknown(Exception):
    """Brute force is not possible: too many joint states, or dependent numbers that are not normal.
    """


class SeparableIntegral:
    """log ∫ exp(density(b, *args)) db over all of R^d, compiled once for all args.

    Args:
        density: b (d,), args → a log density, which has a mode in b.
    """

    def __init__(self, density: Callable):
        self._value, self._slope, self._bend = (
            jax.jit(density), jax.jit(jax.grad(density)), jax.jit(jax.hessian(density)))
        self._mapped = jax.jit(lambda points, *args: jax.lax.map(lambda b: density(b, *args),
                                                                 points))

    def log(self, start: np.ndarray, *args: object) -> float:
        """
        Raises:
            Unknown: there is no such answer.

        Cost: Hessians of d × d, and NODES densities a number.
        """
        at, top, curved = self._mode(np.asarray(start, float), args)
        sign, log_det = np.linalg.slogdet(curved)
        if sign <= 0 or not np.isfinite(top):
            raise Unknown("the mode of the latent variables was not found")
        root = np.linalg.cholesky(np.linalg.inv(curved))
        probes = np.random.default_rng(0).normal(size=(3, len(at)))
        found = [float(self._value(at + root @ probe, *args)) for probe in probes]
        parabola = top - 0.5 * (probes**2).sum(1)
        if np.allclose(found, parabola, rtol=0, atol=QUADRATIC_TOLERANCE * (1 + abs(top))):
            return top + 0.5 * len(at) * np.log(2 * np.pi) - 0.5 * float(log_det)
        small = 1e-12 * np.abs(curved).max()
        linked = np.abs(curved) > small
        for probe in probes:
            linked |= np.abs(np.asarray(self._bend(at + root @ probe, *args))) > small
        return top + sum(self._of_part(args, at, top, part, curved)
                         for part in _independent_parts(linked))

    def _mode(self, at: np.ndarray, args: tuple) -> tuple[np.ndarray, float, np.ndarray]:
        """The mode, the log density and the curvature there, by Newton's method."""
        for _ in range(MAX_NEWTON_STEPS):
            step = np.linalg.solve(-np.asarray(self._bend(at, *args)),
                                   np.asarray(self._slope(at, *args)))
            best, size = float(self._value(at, *args)), 1.0
            while size > 1e-6 and not float(self._value(at + size * step, *args)) >= (
                    best - 1e-12 * abs(best)):
                size /= 2
            at = at + size * step
            if np.abs(step).max() < 1e-10 * (1 + np.abs(at).max()):
                break
        return at, float(self._value(at, *args)), -np.asarray(self._bend(at, *args))

    def _of_part(self, args: tuple, at: np.ndarray, top: float, part: list[int],
                 curved: np.ndarray) -> float:
        """log of the integral over some of the numbers, relative to the density at the mode."""
        if len(part) > 2:
            raise Unknown(f"{len(part)} latent variables with a density that is not normal depend "
                          f"on one another")
        root = np.linalg.cholesky(np.linalg.inv(curved[np.ix_(part, part)]))
        count = NODES if len(part) == 1 else PAIR_NODES
        # sinh t: tails that fall like exponentials, or powers, are met
        t = np.linspace(-1, 1, count) * np.arcsinh(HALF_RANGE**2 if len(part) == 1 else HALF_RANGE)
        nodes, widths = np.sinh(t), np.cosh(t) * (t[1] - t[0])
        grid, width = (np.stack(np.meshgrid(*[one] * len(part), indexing="ij"), -1).reshape(
            -1, len(part)) for one in (nodes, widths))
        points = np.tile(at, (len(grid), 1))
        points[:, part] += grid @ root.T
        logs = np.nan_to_num(np.asarray(self._mapped(points, *args)) - top, nan=-np.inf)
        return float(np.logaddexp.reduce(logs + np.log(width).sum(-1))
                     + np.log(np.diag(root)).sum())


def _independent_parts(linked: np.ndarray) -> list[list[int]]:
    """The numbers in mutually independent parts: connected components."""
    count, part = connected_components(linked)
    return [np.flatnonzero(part == k).tolist() for k in range(count)]
