"""Climbing: Newton's steps for sums of functions of one number each, damped ones where a Hessian is
cheap, L-BFGS for the rest."""

import functools

import jax
import jax.numpy as jnp

from probml.jaxpr.opened import backward
from probml.numerics.process.plain import traced_once

NEWTON = 40  # Newton's steps at the most
TRIES = 4  # steps by the curvature of the start that are tried for one that is taken
STIFF = 1e12  # damping, in units of the curvature, from which no step is looked for
# standard deviations from the top, in coordinates of the curvature, that are as good as there
NEAR = 1e-6
# iterations in a row that gain no more than rounding, where digits are too few to tell a smaller
# gain
PATIENCE = 5
TURNS = 32  # evaluations of a search along one direction, of which none takes so many
SHORTEST = 1e-10  # share of a step below which no ascent is looked for
# of a climb that goes on by slopes: what is left to gain, by the curvature that it has learnt,
# relative to 1 + |value|, that is nothing; iterations that it takes so at the most; roundings of
# the value within which slopes are asked
LEFT, LONG, BLIND = 1e-8, 40, 4


def newton(loss, start):
    """Minimise a sum of functions of one number each, all at once: Newton's steps, bounded,
    downhill where the curvature is negative.

    Keeps the start if that is better: then the objective of the whole never falls.
    """
    gradient = backward.gradient(loss)

    def step(carry):
        u, _, count = carry
        slope, curvature = jax.jvp(gradient, (u,), (jax.tree.map(jnp.ones_like, u),))

        def move(x, g, h):
            step = jnp.where(h > 0, -g / jnp.where(h > 0, h, 1.0),
                             -jnp.sign(g) * jnp.minimum(jnp.abs(g), 0.5))
            return jnp.clip(step, -1.0 - jnp.abs(x), 1.0 + jnp.abs(x))

        moves = jax.tree.map(move, u, slope, curvature)
        size = jnp.max(jnp.stack([jnp.max(jnp.abs(m) / (1 + jnp.abs(x)))
                                  for m, x in zip(*map(jax.tree.leaves, (moves, u)), strict=True)]))
        return jax.tree.map(jnp.add, u, moves), size, count + 1

    def more(carry):
        _, size, count = carry
        return (count < NEWTON) & (size > 4 * jnp.finfo(size.dtype).eps)

    dtype = jax.tree.leaves(start)[0].dtype
    best, _, _ = jax.lax.while_loop(more, step, (start, jnp.full((), jnp.inf, dtype), 0))
    good = loss(best) <= loss(start)
    return jax.tree.map(lambda a, b: jnp.where(good, a, b), best, start)


def second_order(function):
    """u → (value, gradient, Hessian) of a function of a vector: all directions of its gradient at
    once."""

    def slope(u):
        value, gradient = backward.value_and_gradient(function)(u)
        return gradient, (value, gradient)

    def at(u):
        hessian, (value, gradient) = jax.jacfwd(slope, has_aux=True)(u)
        return value, gradient, hessian

    return at


def _ahead(gradient, hessian, damping):
    """Newton's damped step and what it promises; NaN where the damped Hessian is not positive
    definite."""
    diagonal = jnp.maximum(jnp.abs(jnp.diagonal(hessian)), jnp.finfo(hessian.dtype).tiny)
    # what its own curvature would have to be beside what couples it to each other one
    least = jnp.max(hessian**2 / diagonal, 1)
    unit = jnp.sqrt(jnp.maximum(diagonal, jnp.where(jnp.isfinite(least), least, 0.0)))
    scaled = hessian / unit[:, None] / unit[None, :] + damping * jnp.eye(len(unit),
                                                                         dtype=hessian.dtype)
    step = -jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(scaled), True), gradient / unit) / unit
    return step, -0.5 * jnp.vdot(gradient, step)


def chords(value_and_gradient, hessian: jax.Array, start: jax.Array, steps: int) -> jax.Array:
    """Some way down to the minimum of a function of one vector: Newton's steps by the Hessian of
    the start, damped as `damped_newton` damps them. Never ends above the start.

    A Hessian costs as many passes over rows as there are directions, a step two: steps after the
    first gain a constant factor each instead of doubling the digits (Ortega & Rheinboldt 1970,
    "Iterative Solution of Nonlinear Equations", section 7.1).

    Args:
        value_and_gradient: point (d,) → (value, gradient).
        steps: that are taken at the most; `TRIES` times as many are tried.
    """
    value_and_gradient = traced_once(value_and_gradient)  # traced once, for the start and the loop

    def turn(carry):
        point, value, gradient, damping, count, tries, _ = carry
        step, promise = _ahead(gradient, hessian, damping)
        sound = jnp.all(jnp.isfinite(step)) & (promise > 0)
        there = jnp.where(sound, point + step, point)
        new, slope = value_and_gradient(there)
        taken = sound & jnp.isfinite(new) & (new <= value)
        damping = jnp.where(taken, jnp.where(damping < 1e-4, 0.0, damping / 10),
                            jnp.maximum(10 * damping, 1e-3))
        keep = functools.partial(jnp.where, taken)
        # what a step less than that promises is rounding
        ended = sound & (promise <= jnp.finfo(value.dtype).eps * (1 + jnp.abs(value)))
        return (keep(there, point), keep(new, value), keep(slope, gradient), damping, count + taken,
                tries + 1, ended)

    def more(carry):
        _, value, _, _, count, tries, ended = carry
        return ~ended & (count < steps) & (tries < TRIES * steps) & jnp.isfinite(value)

    value, gradient = value_and_gradient(start)
    none = jnp.zeros((), int)
    carry = (start, value, gradient, jnp.zeros((), value.dtype), none, none, jnp.zeros((), bool))
    return jax.lax.while_loop(more, turn, carry)[0]


def damped_newton(evaluate, start: jax.Array, steps: int | jax.Array, tolerance: float,
                  trail: int = 0):
    """Minimise a function of one vector by Newton's steps, (H + damping · diag H) step = −gradient
    (Levenberg 1944, Marquardt 1963).

    The damping is none where the steps go well and grows where they do not, or where the Hessian is
    not positive definite.

    Args:
        evaluate: point (d,) → (value, gradient, Hessian).
        tolerance: stop when a step promises less than this, relative to 1 + |value|, or gains less.
            One that promises next to `nothing` is taken without a look at where it leads.
        trail: how many values to keep; the first is the start's.

    Returns:
        point, value, iterations, values, gradient: as lbfgs; the Hessian at the point, and at the
            start. All are of the last point that was looked at.
    """

    evaluate = traced_once(evaluate)  # traced once, for the start and the loop

    def ahead(value, gradient, hessian, damping):
        step, promise = _ahead(gradient, hessian, damping)
        sound = jnp.all(jnp.isfinite(step)) & (promise >= 0)
        small = sound & (damping <= 1e-3)
        least = jnp.minimum(tolerance * (1 + jnp.abs(value)), nothing(value))
        return step, promise, sound, small, small & (promise <= least)

    def turn(carry):
        point, value, gradient, hessian, damping, count, values, (step, promise, sound, small, _,
                                                                  _) = carry
        there = jnp.where(sound, point + step, point)
        new, slope, bend = evaluate(there)
        taken = sound & jnp.isfinite(new) & (new <= value)
        small &= promise <= tolerance * (1 + jnp.abs(value))
        fall = jnp.where(taken, value - new, jnp.inf)
        ended = small | (taken & (damping == 0) & (fall <= tolerance * (1 + jnp.abs(value))))
        damping = jnp.where(taken, jnp.where(damping < 1e-4, 0.0, damping / 10),
                            jnp.maximum(10 * damping, 1e-3))
        keep = functools.partial(jnp.where, taken)
        count = count + taken
        values = values.at[jnp.where(taken, count, values.size)].set(new, mode="drop")
        value, gradient, hessian = keep(new, value), keep(slope, gradient), keep(bend, hessian)
        return (keep(there, point), value, gradient, hessian, damping, count, values,
                (*ahead(value, gradient, hessian, damping), ended))

    def more(carry):
        _, value, _, _, damping, count, _, (*_, unseen, ended) = carry
        going = ~ended & ~unseen & (damping < STIFF)
        return going & (count < steps) & jnp.isfinite(value)

    value, gradient, first = evaluate(start)
    # less is rounding
    tolerance = jnp.maximum(tolerance, jnp.where(tolerance > 0, jnp.finfo(value.dtype).eps, 0.0))
    values = jnp.full(trail + 1, jnp.nan, value.dtype).at[0].set(value)
    none = jnp.zeros((), value.dtype)
    carry = (start, value, gradient, first, none, jnp.zeros((), int), values,
             (*ahead(value, gradient, first, none), jnp.zeros((), bool)))
    point, value, gradient, hessian, _, count, values, (step, _, _, _, unseen, ended) = (
        jax.lax.while_loop(more, turn, carry))
    point = jnp.where(unseen & ~ended & (count < steps), point + step, point)
    return point, value, count, values, gradient, hessian, first


def level(value, gradient):
    """Whether a gradient is zero as far as the arithmetic can tell."""
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
    eps = jnp.finfo(value.dtype).eps
    return norm <= jnp.maximum(eps ** (1 / 3), 50 * eps**0.5) * (1 + jnp.abs(value))


def arrived(value, gradient, hessian):
    """Newton's step from a minimum's neighbourhood, and whether it promises nothing any more:
    whatever the units, as `level` is not."""
    own = jnp.abs(jnp.diagonal(hessian))  # small ones are not to count as none
    unit = jnp.where(own > 0, 1 / jnp.sqrt(jnp.where(own > 0, own, 1.0)), 1.0)
    scaled = hessian * unit[:, None] * unit
    step = unit * jnp.linalg.lstsq(scaled, unit * gradient)[0]
    promise = 0.5 * jnp.vdot(gradient, step)
    return step, (promise >= 0) & (promise <= nothing(value))


def nothing(value):
    """A gain that is none, at a value of this size."""
    return jnp.maximum(1e-10, 10 * jnp.finfo(value.dtype).eps) * (1 + jnp.abs(value))


def lbfgs(value_and_gradient, start, steps: int | jax.Array, tolerance: float, trail: int = 0,
          framed: bool = False, enough: float | jax.Array = 0.0, slopes: bool = False):
    """Minimise by optax's L-BFGS with a backtracking line search; returns (best point, its value,
    iterations, values, gradient).

    Args:
        value_and_gradient: point → (value, gradient).
        tolerance: stop when the value falls by less than this, relative to 1 + |value|.
        trail: how many values to keep; the first is the start's.
        framed: the coordinates are such that the curvature is about 1; else it is learnt from the
            first steps on.
        enough: of such coordinates, stop where half the square of the gradient, which is what is
            left to gain, is less than this, relative to 1 + |value|.
        slopes: where values differ by rounding alone, and the tolerance is less than that, take
            a step that flattens the slope along it (Hager & Zhang 2005, "A new conjugate gradient
            method with guaranteed descent and an efficient line search", the approximate Wolfe
            conditions): values tell half the digits of where the minimum is, gradients all.

    The program holds one copy of `value_and_gradient`, which is what takes long to compile: every
    turn of the loop evaluates it once.
    """
    import optax  # late: not every model climbs

    curvature = optax.scale_by_lbfgs(memory_size=10, scale_init_precond=not framed)
    dtype = jax.tree.leaves(start)[0].dtype
    rounding = jnp.finfo(dtype).eps
    # what looks like no gain in few digits may be the way along a valley
    patience = jnp.where(tolerance < rounding, PATIENCE, 1)
    slopes = slopes and dtype != jnp.float64
    further = tolerance < rounding if slopes else False
    tolerance = jnp.maximum(tolerance, jnp.where(tolerance > 0, rounding, 0.0))

    def flatter(value, new, slope, direction, gradient):
        """Whether rounding alone tells two values apart, and the slope is less at the new one."""
        if not slopes:
            return False
        same = jnp.abs(new - value) <= BLIND * rounding * (1 + jnp.abs(value))
        return further & same & (jnp.abs(optax.tree.vdot(gradient, direction))
                                 <= 0.9 * jnp.abs(slope))

    def step(carry):
        """One evaluation, at `point + size · direction`: taken, if the value falls by enough, else
        tried again nearer by."""
        point, value, gradient, memory, direction, slope, size, (fall, least, count, values, _,
                                                                 calm, turns) = carry
        there = jax.tree.map(lambda p, d: p + size * d, point, direction)
        new, slopes_there = value_and_gradient(there)
        first = count < 0
        blind = flatter(value, new, slope, direction, slopes_there)
        taken = first | (new <= value + 1e-4 * size * slope) | blind
        keep = functools.partial(jnp.where, taken & (first | (new < value) | blind))
        # of the search along one direction; a slope that is no number makes its length none
        ended = taken | ~(size > SHORTEST)
        fall = jnp.where(ended, jnp.where(taken & (new < value), value - new, 0.0), fall)
        calm = jnp.where(ended & (count > -1),
                         jnp.where(fall <= tolerance * (1 + jnp.abs(value)), calm + 1, 0), calm)
        # of values that rounding alone tells apart the lower one
        point, value, gradient = (jax.tree.map(keep, there, point),
                                  keep(jnp.where(first, new, jnp.minimum(new, value)), value),
                                  jax.tree.map(keep, slopes_there, gradient))
        least = (jnp.maximum(NEAR, jnp.sqrt(2 * enough * (1 + jnp.abs(value)))) if framed else
                 jnp.where(first, 1e-14 * (1 + optax.tree.norm(gradient)), least)).astype(dtype)
        ahead, later = curvature.update(gradient, memory, point)
        descent = -optax.tree.vdot(ahead, gradient)
        ahead = jax.tree.map(lambda d, g: jnp.where(descent < 0, -d, -g), ahead, gradient)
        descent = jnp.where(descent < 0, descent, -optax.tree.vdot(gradient, gradient))
        renew = functools.partial(jnp.where, ended)
        short = jnp.minimum(1.0, 1.0 / jnp.maximum(optax.tree.norm(gradient), 1e-30))
        full = jnp.where(first & (not framed), short, 1.0).astype(dtype)
        count = jnp.where(ended, count + 1, count)
        values = values.at[jnp.where(ended, count, values.size)].set(value, mode="drop")
        return (
            point,
            value,
            gradient,
            jax.tree.map(renew, later, memory),
            jax.tree.map(renew, ahead, direction),
            renew(descent, slope),
            renew(full, 0.3 * size),
            (fall, least, count, values, ended, calm, turns + 1),
        )

    def more(carry):
        _, value, gradient, _, _, slope, _, (_, least, count, _, ended, calm, turns) = carry
        left = further & (calm < LONG) & (-0.5 * slope > LEFT * (1 + jnp.abs(value)))
        # each search ends by its length; that all do is made sure of
        return (turns < TURNS * (steps + 2)) & (~ended | (count < 0) | (
            (count < steps) & ((calm < patience) | left) & (optax.tree.norm(gradient) > least)
        ))

    blank, zero = jax.tree.map(jnp.zeros_like, start), jnp.zeros((), dtype)
    values = jnp.full(trail + 1, jnp.nan, dtype)
    counters = (jnp.full((), jnp.inf, dtype), zero, jnp.full((), -1), values, jnp.ones((), bool),
                jnp.zeros((), int), jnp.zeros((), int))
    carry = (start, jnp.full((), jnp.inf, dtype), blank, curvature.init(start), blank, zero, zero,
             counters)
    point, value, gradient, _, _, _, _, (_, _, count, values, *_) = jax.lax.while_loop(more, step,
                                                                                         carry)
    return point, value, count, values, gradient
