"""The normal at a mode whose widths are too many digits apart for one look, as of a level and a
slope beside an input about 20,000: the curvature is taken again in the coordinates that the last
found, on the host, until all of it is told (numerics/refinement.py)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Problem
from probml.engines.start.begin import Begin, hyper
from probml.evidence import density
from probml.numerics import curvature
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.numerics.curvature import Frame, Starts
from probml.numerics.refinement import refine_with_hessians
from probml.plan.plan import Plan

WORK = 2**24  # rows times coordinates up to which a second look is worth its time


def refine_flat_directions(problem: Problem, begun: Begin, left: float,
                           spread: np.ndarray) -> tuple[Begin, float]:
    """What was measured at a mode, or, where a direction is nearly flat there or its climb ended
    before, at the mode with all of its curvature; and how far from it that is, in standard
    deviations.

    Args:
        left: that distance, as it was measured. spread: normal numbers (k, d) for points about it.

    Cost: 4 d gradients, 2 d for each turn that goes on, k.
    """
    plan, known, rows = problem.plan, problem.known, problem.rows
    frame, low = begun.frame, np.asarray(begun.frame.curvature).min(initial=np.inf)
    sound = low > curvature.FLAT_CURVATURE and np.isfinite(left) and bool(begun.climbed)
    runs_away = low < -curvature.FLAT_CURVATURE and hyper(plan)
    if (sound or runs_away or plan.carried or frame.root.ndim == 1 or problem.in_parts
        or problem.size * frame.centre.size > WORK):
        return begun, left
    kind = np.asarray(frame.centre).dtype

    def evaluate(u: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _at(plan, jnp.asarray(u.astype(kind)), known, rows)
        return float(value), -np.asarray(gradient)

    found = refine_with_hessians(evaluate, np.asarray(frame.centre))
    if not found.reliable or not np.isfinite(found.predicted_gain):
        return begun, left
    root = _even(found.root)
    at = (found.u + spread @ root.T).astype(kind)
    values, slopes = zip(*map(evaluate, at), strict=True)
    inverse = np.linalg.inv(root)
    hessian = jnp.asarray((inverse.T @ inverse).astype(kind))
    new = Frame(found.u.astype(kind), root.astype(kind), np.ones(len(root), kind),
                root.astype(kind))
    return begun._replace(
        frame=jax.tree.map(jnp.asarray, new), hessian=hessian,
        value=jnp.asarray(found.heights[-1], kind), climbed=jnp.ones((), bool),
        trail=jnp.concatenate([jnp.asarray(begun.trail),
                               jnp.asarray(found.heights[1:], begun.trail.dtype)]),
        starts=Starts(jnp.asarray(at), jnp.asarray(values, kind), -jnp.asarray(np.stack(slopes)))
    ), float(np.sqrt(2 * max(found.predicted_gain, 0.0)))


def _even(root: np.ndarray) -> np.ndarray:
    """The same widths by a root that is symmetric, each coordinate in its own unit: its columns are
    directions of a coordinate each."""
    unit = np.sqrt((root**2).sum(1))
    left, size, _ = np.linalg.svd(root / unit[:, None])
    return unit[:, None] * ((left * size) @ left.T)


@functools.partial(jit, static_argnums=0, seldom=ONCE)
def _at(plan: Plan, u: jax.Array, known: Known, rows: Rows):
    return density.posterior(plan, known, rows)(u)
