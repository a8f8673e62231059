"""L-BFGS where the numbers of an argument have coefficients of their own, as a softmax's: in
coordinates in which the curvature of each number by itself is 1, taken again on the way.

Of 650 coefficients of ten classes of digits, 1,200 evaluations become 120. A block a number costs
some ten evaluations, all of the Hessian a hundred.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.engines.climbing.climbs import (
    BLOCK,
    CHUNK,
    Ascent,
    climb_in_blocks,
    smooth,
    some_rows,
)
from probml.engines.climbing.coordinates import flat, unflat
from probml.engines.engine import Outcome, Problem
from probml.evidence import density
from probml.factors.prior import log_prior
from probml.factors.straight import curvatures
from probml.numerics.ascent import lbfgs, level, second_order
from probml.numerics.compiling import jit
from probml.numerics.process.threads import one_thread
from probml.plan.plan import Plan
from probml.plan.strands import strands

AGAIN = 25  # iterations after which the curvature is taken anew
# of all rows, those that tell it: evaluations that it may cost, about, for each coefficient
WORTH = 64
# times the work of an ascent that a number of a row makes, for XLA (numerics/tiers.py): each meets
# the coefficients of several numbers, and of the roots their pairs
CLIMBED, ROOTED = 4, 32


def strung(problem: Problem) -> bool:
    """Whether this climb is one for the problem: its rows are held."""
    rows, plan = problem.rows, problem.plan
    held = not isinstance(rows, Summary) and rows.held
    return held and smooth(plan) and not problem.known.centring and bool(strands(plan))


def by_strands(engine: Ascent, problem: Problem, params: Mapping) -> Outcome:
    """By L-BFGS in such coordinates."""
    plan, known, rows = problem.plan, problem.known, problem.rows
    number = np.concatenate([np.array(own) for _, own in strands(plan)])
    places = np.argsort(number, kind="stable").reshape(number.max() + 1, -1)
    near, scale = _telling(rows, problem.size, places.shape[1])

    def block(u: jax.Array, count: int) -> tuple[Any, ...]:
        done, trails = 0, []
        while True:
            size = min(AGAIN, count - done)
            roots = _roots(plan, engine.prior, u, places, known, near, scale)
            u, value, some, trail, end = _climb(plan, engine.prior, u, roots, places, known, rows,
                                                np.asarray(size), engine.tolerance)
            trails.append(np.asarray(trail)[bool(trails) : int(some) + 1])
            done += int(some)
            if int(some) < size or done == count or not np.isfinite(value):
                return u, value, done, np.concatenate(trails), bool(end)

    with one_thread(places.shape[1]):
        top, history, status = climb_in_blocks(engine, block, flat(plan, params, known))
    return Outcome(unflat(plan, top, known), history, status, len(history) - 1)


def _telling(rows: Rows, n: int, width: int) -> tuple[Rows, np.ndarray]:
    """Rows that tell the curvature, and for how many each stands."""
    count = max(WORTH * n // width, 8 * width)
    if count >= n / 2:
        return rows, np.ones(())
    chunks = max(count // CHUNK, 1)
    index = np.linspace(0, n - 1, chunks * min(CHUNK, count)).astype(int).reshape(chunks, -1)
    return some_rows(rows, index), np.asarray(n / index.size)


@functools.partial(jit, static_argnames=("plan", "prior"), loops=ROOTED)
def _roots(plan: Plan, prior: bool, u: jax.Array, places: jax.Array, known: Known, rows: Rows,
           scale: jax.Array) -> jax.Array:
    """Of each number's block of the curvature at u, the root of its inverse, (m, q, q); a unit
    where it has none."""
    def point(u):
        return density.unflat(plan, u, known)[0]

    found = scale * rows.total(lambda chunk: curvatures(plan, point, u, places, known, chunk))
    if prior:
        held = -second_order(lambda u: log_prior(plan, point(u), known, True))(u)[2]
        found = found + held[places[:, :, None], places[:, None, :]]
    unit = jnp.sqrt(jnp.maximum(jnp.diagonal(found, axis1=1, axis2=2),
                                jnp.finfo(found.dtype).tiny))
    eye = jnp.eye(found.shape[1], dtype=found.dtype)
    scaled = found / unit[:, :, None] / unit[:, None, :] + jnp.sqrt(jnp.finfo(u.dtype).eps) * eye
    factor = jnp.linalg.cholesky(scaled)
    root = jax.scipy.linalg.solve_triangular(factor, jnp.broadcast_to(eye, factor.shape),
                                             lower=True)
    root = jnp.swapaxes(root, 1, 2) / unit[:, :, None]
    return jnp.where(jnp.isfinite(root).all((1, 2), keepdims=True), root, eye)


@functools.partial(jit, static_argnames=("plan", "prior"), loops=CLIMBED)
def _climb(plan: Plan, prior: bool, u: jax.Array, roots: jax.Array, places: jax.Array, known: Known,
           rows: Rows, steps: jax.Array, tolerance: jax.Array):
    back = jnp.argsort(places.reshape(-1))

    def at(z):
        return u + (roots @ z.reshape(*places.shape, 1)).reshape(-1)[back]

    def both(z):
        value, gradient = density.value_and_gradient(
            plan, lambda z: (density.unflat(plan, at(z), known)[0], 0.0), z, known, rows, prior,
            mode=True)
        return -value, -gradient

    z, value, count, trail, gradient = lbfgs(both, jnp.zeros_like(u), steps, tolerance,
                                             trail=BLOCK, framed=True)
    return at(z), -value, count, -trail, level(value, gradient)
