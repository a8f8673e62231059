"""The Hessian at a mode where standard deviations differ by so many orders of magnitude that one
measurement does not determine it, as for a level and a slope of an input about 20,000: it is
measured again, in coordinates whitened by the last measurement (numerics/refinement.py)."""


import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.engine import Problem
from probml.engines.start.begin import Mode, hyperparameters
from probml.evidence import density
from probml.numerics import curvature
from probml.numerics.compiling import ONCE, jit
from probml.numerics.curvature import Frame, Starts
from probml.numerics.refinement import refine_with_hessians
from probml.plan.plan import Plan

MAX_WORK = 2**24  # rows times coordinates up to which it is measured again


def refine_flat_directions(problem: Problem, begun: Mode, left: float,
                           spread: np.ndarray) -> tuple[Mode, float]:
    """The measurement at a mode or, if a direction is nearly flat there or its optimisation did not
    converge, a new one at the refined mode; and the distance from the mode, in standard deviations.

    Args:
        left: that distance, as it was measured. spread: standard normal numbers (k, d) for points
            about the mode.

    Cost: 4 d gradients, 2 d for each further round, k.
    """
    plan, known, rows = problem.plan, problem.known, problem.rows
    frame, low = begun.frame, np.asarray(begun.frame.curvature).min(initial=np.inf)
    sound = low > curvature.FLAT_CURVATURE and np.isfinite(left) and bool(begun.converged)
    runs_away = low < -curvature.FLAT_CURVATURE and hyperparameters(plan)
    if (sound or runs_away or plan.carried or frame.root.ndim == 1 or problem.in_parts
        or problem.size * frame.centre.size > MAX_WORK):
        return begun, left
    kind = np.asarray(frame.centre).dtype

    def evaluate(u: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _log_posterior(plan, jnp.asarray(u.astype(kind)), known, rows)
        return float(value), -np.asarray(gradient)

    found = refine_with_hessians(evaluate, np.asarray(frame.centre))
    if not found.reliable or not np.isfinite(found.predicted_gain):
        return begun, left
    root = _symmetric_root(found.root)
    at = (found.u + spread @ root.T).astype(kind)
    values, slopes = zip(*map(evaluate, at), strict=True)
    inverse = np.linalg.inv(root)
    hessian = jnp.asarray((inverse.T @ inverse).astype(kind))
    new = Frame(found.u.astype(kind), root.astype(kind), np.ones(len(root), kind),
                root.astype(kind))
    return begun._replace(
        frame=jax.tree.map(jnp.asarray, new), hessian=hessian,
        value=jnp.asarray(found.heights[-1], kind), converged=jnp.ones((), bool),
        history=jnp.concatenate([jnp.asarray(begun.history),
                               jnp.asarray(found.heights[1:], begun.history.dtype)]),
        starts=Starts(jnp.asarray(at), jnp.asarray(values, kind), -jnp.asarray(np.stack(slopes)))
    ), float(np.sqrt(2 * max(found.predicted_gain, 0.0)))


def _symmetric_root(root: np.ndarray) -> np.ndarray:
    """The root (d, d) of the same covariance that is symmetric with each coordinate in its own
    unit, so that each column belongs to a coordinate."""
    unit = np.sqrt((root**2).sum(1))
    left, size, _ = np.linalg.svd(root / unit[:, None])
    return unit[:, None] * ((left * size) @ left.T)


@jit(static_argnums=0, seldom=ONCE)
def _log_posterior(plan: Plan, u: jax.Array, known: Known, rows: Rows):
    return density.posterior(plan, known, rows)(u)
