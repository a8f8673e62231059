"""Climbing: Newton's steps for sums of functions of one number each, L-BFGS for everything else."""

import functools

import jax
import jax.numpy as jnp

NEWTON = 40  # Newton's steps at the most
SHORTEST = 1e-10  # share of a step below which no ascent is looked for


def newton(loss, start):
    """Minimise a sum of functions of one number each, all at once: Newton's steps, bounded, downhill where the curvature is negative.

    Keeps the start if that is better: then the objective of the whole never falls.
    """
    gradient = jax.grad(loss)

    def step(carry):
        u, _, count = carry
        slope, curvature = jax.jvp(gradient, (u,), (jax.tree.map(jnp.ones_like, u),))

        def move(x, g, h):
            step = jnp.where(h > 0, -g / jnp.where(h > 0, h, 1.0), -jnp.sign(g) * jnp.minimum(jnp.abs(g), 0.5))
            return jnp.clip(step, -1.0 - jnp.abs(x), 1.0 + jnp.abs(x))

        moves = jax.tree.map(move, u, slope, curvature)
        size = jnp.max(jnp.stack([jnp.max(jnp.abs(m) / (1 + jnp.abs(x))) for m, x in zip(*map(jax.tree.leaves, (moves, u)), strict=True)]))
        return jax.tree.map(jnp.add, u, moves), size, count + 1

    def more(carry):
        _, size, count = carry
        return (count < NEWTON) & (size > 4 * jnp.finfo(size.dtype).eps)

    dtype = jax.tree.leaves(start)[0].dtype
    best, _, _ = jax.lax.while_loop(more, step, (start, jnp.full((), jnp.inf, dtype), 0))
    good = loss(best) <= loss(start)
    return jax.tree.map(lambda a, b: jnp.where(good, a, b), best, start)


def lbfgs(value_and_gradient, start, steps: int | jax.Array, tolerance: float, trail: int = 0):
    """Minimise by optax's L-BFGS with a backtracking line search; returns (best point, its value, iterations, values, gradient).

    Args:
        value_and_gradient: point → (value, gradient).
        tolerance: stop when the value falls by less than this, relative to 1 + |value|.
        trail: how many values to keep; the first is the start's.

    The program holds one copy of `value_and_gradient`, which is what takes long to compile: every turn of the loop evaluates it once.
    """
    import optax  # late: not every model climbs

    curvature = optax.scale_by_lbfgs(memory_size=10)
    dtype = jax.tree.leaves(start)[0].dtype

    def step(carry):
        """One evaluation, at `point + size · direction`: taken, if the value falls by enough, else tried again nearer by."""
        point, value, gradient, memory, direction, slope, size, (fall, least, count, values, _) = carry
        there = jax.tree.map(lambda p, d: p + size * d, point, direction)
        new, slopes = value_and_gradient(there)
        first = count < 0
        taken = first | (new <= value + 1e-4 * size * slope)
        keep = functools.partial(jnp.where, taken & (first | (new < value)))
        ended = taken | (size <= SHORTEST)  # of the search along one direction
        fall = jnp.where(ended, jnp.where(taken & (new < value), value - new, 0.0), fall)
        point, value, gradient = jax.tree.map(keep, there, point), keep(new, value), jax.tree.map(keep, slopes, gradient)
        least = jnp.where(first, 1e-14 * (1 + optax.tree.norm(gradient)), least)
        ahead, later = curvature.update(gradient, memory, point)
        descent = -optax.tree.vdot(ahead, gradient)
        ahead = jax.tree.map(lambda d, g: jnp.where(descent < 0, -d, -g), ahead, gradient)
        descent = jnp.where(descent < 0, descent, -optax.tree.vdot(gradient, gradient))
        renew = functools.partial(jnp.where, ended)
        full = jnp.where(first, jnp.minimum(1.0, 1.0 / jnp.maximum(optax.tree.norm(gradient), 1e-30)), 1.0).astype(dtype)
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
            (fall, least, count, values, ended),
        )

    def more(carry):
        _, value, gradient, _, _, _, _, (fall, least, count, _, ended) = carry
        small = fall <= tolerance * (1 + jnp.abs(value))
        return ~ended | (count < 0) | ((count < steps) & ~((count > 0) & small) & (optax.tree.norm(gradient) > least))

    blank, zero = jax.tree.map(jnp.zeros_like, start), jnp.zeros((), dtype)
    counters = (jnp.full((), jnp.inf, dtype), zero, jnp.full((), -1), jnp.full(trail + 1, jnp.nan, dtype), jnp.ones((), bool))
    carry = (start, jnp.full((), jnp.inf, dtype), blank, curvature.init(start), blank, zero, zero, counters)
    point, value, gradient, _, _, _, _, (_, _, count, values, _) = jax.lax.while_loop(more, step, carry)
    return point, value, count, values, gradient
