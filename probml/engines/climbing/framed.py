"""The climb of very many rows by few passes over them: quasi-Newton steps in coordinates in which
a sample's curvature is 1, decided on the host, each pass shared among threads.

From the top of a sample of m rows the top of all n is some √(d/m) standard deviations of the
sample away, and a step leaves a share of what there is to gain that is about the square of what
the sample's curvature is off. So three passes are enough where the loop of a program, which must
see that a step gains nothing, takes six.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.restarting import slices
from probml.evidence import density
from probml.factors.prior import log_prior
from probml.jaxpr.opened.backward import value_and_gradient
from probml.numerics.ascent import BLIND, NEAR, PATIENCE, SHORTEST
from probml.numerics.compiling import jit
from probml.numerics.tiers import ONCE
from probml.plan.plan import Plan

# times what the next step is foretold to gain, from what the last ones did, that must be less than
# nothing for a step to be taken without a look at where it leads
SAFE = 4.0
SHORTER = 0.3  # of a step that did not rise enough

Both = Callable[[np.ndarray], tuple[float, np.ndarray]]


class Climbed(NamedTuple):
    """Where a climb ended: the point, its value, the steps taken, the value after each, the
    start's first, and whether the gradient there is zero as far as anything can tell."""

    point: np.ndarray
    value: float
    count: int
    trail: np.ndarray
    flat: bool


def passes(plan: Plan, prior: bool, known: Known, rows: Rows) -> Both:
    """u → the log posterior, or the likelihood, and its gradient, in double, by a pass over the
    rows in parts (slices.shares)."""
    parts, kind = slices.shares(plan, rows) or [rows], jnp.result_type(float)
    compiled = False

    def both(u: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal compiled
        at = u.astype(kind)
        found = slices.each(lambda part: jax.device_get(_of_rows(plan, at, known, part)), parts,
                            not compiled)
        compiled = True
        if prior:
            found.append(jax.device_get(_of_prior(plan, at, known)))
        return (float(sum(np.float64(value) for value, _ in found)),
                np.sum([slope for _, slope in found], 0, dtype=np.float64))

    return both


def framed(both: Both, centre: np.ndarray, root: np.ndarray) -> Both:
    """The same in coordinates z, u = centre + root z."""

    def at(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = both(centre + root @ z)
        return value, root.T @ slope

    return at


def ascend(both: Both, start: np.ndarray, steps: int, tolerance: float, enough: float,
           rounding: float) -> Climbed:
    """Maximise by BFGS from the unit matrix (Nocedal & Wright 2006, "Numerical Optimization",
    chapter 6), with a backtracking line search.

    Args:
        both: point (d,) → (value, gradient), the curvature about −1.
        tolerance: stop where the value rises by less than this, relative to 1 + |value|.
        enough: stop where what is left to gain, by the curvature as learnt so far, is less than
            this, relative to 1 + |value|; or is foretold to be after one more step, from how the
            last one shortened it. That step is taken without a look. 0: the curvature is not
            known, and learnt from the first step on, which is short.
        rounding: of the numbers that values are made of.

    Cost: one evaluation a step, and d² operations.
    """
    point, inverse, count, calm, before, whole = start, np.eye(len(start)), 0, 0, np.inf, False
    value, slope = both(point)
    trail, patience = [value], PATIENCE if tolerance < rounding else 1
    tolerance = max(tolerance, rounding) if tolerance > 0 else 0.0
    while count < steps and np.isfinite(value) and np.linalg.norm(slope) > NEAR:
        step = inverse @ slope
        if not enough and not count:
            step /= max(np.linalg.norm(slope), 1.0)
        gain, least = 0.5 * slope @ step, enough * (1 + abs(value))
        if enough and (gain <= least or whole and SAFE * gain * min(gain / before, 1.0) <= least):
            point, value, count = point + step, value + gain, count + 1
            return Climbed(point, value, count, np.array([*trail, value]), True)
        size, blind = 1.0, BLIND * rounding * (1 + abs(value))
        while True:
            new, there = both(point + size * step)
            rise = new - value
            flatter = abs(rise) <= blind and abs(there @ step) <= 0.9 * 2 * gain
            if rise >= 1e-4 * size * 2 * gain or flatter or size <= SHORTEST:
                break
            size *= SHORTER
        if not (rise > 0 or flatter):  # no way up was found
            break
        move, bend = size * step, slope - there
        if (along := move @ bend) > 0:
            if not enough and not count:
                inverse = along / (bend @ bend) * inverse
            inverse = _learnt(inverse, move, bend, along)
        point, slope, value, count = point + move, there, max(new, value), count + 1
        trail.append(value)
        before, whole = gain, size == 1.0
        calm = calm + 1 if rise <= tolerance * (1 + abs(value)) else 0
        if calm >= patience:
            break
    flat = np.linalg.norm(slope) <= max(rounding ** (1 / 3), 50 * rounding**0.5) * (1 + abs(value))
    return Climbed(point, value, count, np.array(trail), bool(flat))


def _learnt(inverse: np.ndarray, move: np.ndarray, bend: np.ndarray, along: float) -> np.ndarray:
    """The inverse of the curvature, from what a move has bent the slope by."""
    turned = inverse @ bend
    across = np.outer(move, turned) / along
    return inverse - across - across.T + (1 + bend @ turned / along) * np.outer(move, move) / along


@functools.partial(jit, static_argnames=("plan",))
def _of_rows(plan: Plan, u: jax.Array, known: Known, rows: Rows) -> tuple[jax.Array, jax.Array]:
    return density.value_and_gradient(plan, density.without_volume(plan, known), u, known, rows,
                                      False, mode=True)


@functools.partial(jit, static_argnames=("plan",), seldom=ONCE)
def _of_prior(plan: Plan, u: jax.Array, known: Known) -> tuple[jax.Array, jax.Array]:
    return value_and_gradient(
        lambda u: log_prior(plan, density.unflat(plan, u, known)[0], known, True))(u)
